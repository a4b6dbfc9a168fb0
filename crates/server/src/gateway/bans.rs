//! Bans as a gateway carries them out: a banned user's open streams are told, or closed, and what only its author and moderators
//! may see is kept from everyone else.
//!
//! The owner judges what is said; nothing here decides about a comment. A ban in one room leaves its user a viewer of it, who
//! is told once; a ban of the whole site closes the user's streams with 4003 and keeps new ones out while it holds.

use std::sync::Arc;

use grandstand_core::names::{RoomId, UserId};
use grandstand_core::record::Audience;
use grandstand_core::time::Wall;
use grandstand_wire::codes::{CloseCode, ErrorCode};

use super::conn::Kind;
use super::frames::UserMark;
use super::said::event_error_after;
use super::site::Site;
use super::worker::Worker;
use crate::auth::{self, Identity};
use crate::link::{Piece, RoomBan};

/// Whether the viewer is one of the room's moderators.
pub fn moderates(who: Option<&Identity>, room: &RoomId) -> bool {
    auth::may_moderate(who, room).is_ok()
}

/// Whether a piece may be sent to this viewer of the room.
pub fn may_see(piece: &Piece, who: Option<&Identity>, room: &RoomId) -> bool {
    let is_own = || matches!((&piece.author, who), (Some((author, _)), Some(who)) if *author == who.user);
    match piece.audience {
        Audience::Everyone => true,
        Audience::Author => is_own() || moderates(who, room),
        Audience::Nobody => false,
    }
}

impl Site {
    /// Whether the user may be nowhere on the site.
    pub fn bars(&self, user: &UserId, wall: Wall) -> bool {
        let found = self.bans.binary_search_by(|(name, _)| name.cmp(user));
        found.is_ok_and(|at| self.bans[at].1.is_none_or(|until| wall < until))
    }
}

impl Worker {
    /// Tells the banned user's streams of the room.
    pub(super) fn on_ban(&mut self, ban: &RoomBan) {
        let Some(&idx) = self.room_ids.get(&ban.room) else { return };
        let mark = UserMark::of(&ban.user);
        let seats = self.rooms[idx].seats.iter().filter(|seat| seat.who.mark() == mark);
        let slots: Vec<usize> = seats.map(|seat| seat.slot as usize).collect();
        let wait = ban.until.map(|until| until.since(self.wall));
        for slot in slots.into_iter().filter(|slot| self.is_of(*slot, &ban.user)).collect::<Vec<_>>() {
            let text = "you are banned in this room";
            let error = event_error_after(Some(&ban.room), ErrorCode::Banned, text, None, wait);
            self.guarded(slot, |w| w.say(slot, error));
        }
    }

    /// The list of those who may be nowhere: whoever is new on it goes.
    pub(super) fn on_site_bans(&mut self, bans: &Arc<[(UserId, Option<Wall>)]>) {
        if self.site.bans == *bans {
            return;
        }
        let before = std::mem::replace(&mut self.site.bans, bans.clone());
        // One that ended is on the list until the next one comes: the same name with another end is a new ban. Each name is there
        // once, so the order of names is that of the bans.
        let is_new = |ban: &&(UserId, _)| before.binary_search(ban).is_err();
        if !bans.iter().any(|ban| is_new(&ban)) {
            return;
        }
        let wall = self.wall;
        let is_barred = |conn: &super::conn::Conn| match &conn.kind {
            Kind::Viewer(viewer) => viewer.identity.as_ref().is_some_and(|who| self.site.bars(&who.user, wall)),
            _ => false,
        };
        let slots: Vec<usize> = self.conns.iter().filter(|(_, conn)| is_barred(conn)).map(|(slot, _)| slot).collect();
        for slot in slots {
            self.guarded(slot, |w| w.close(slot, CloseCode::NotAllowed));
        }
    }

    fn is_of(&self, slot: usize, user: &UserId) -> bool {
        match self.conns.get(slot).map(|conn| &conn.kind) {
            Some(Kind::Viewer(viewer)) => viewer.identity.as_ref().is_some_and(|who| who.user == *user),
            _ => false,
        }
    }
}
