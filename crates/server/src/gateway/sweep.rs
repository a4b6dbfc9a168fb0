//! Who is in already is looked at again, when the rules of the door change.
//!
//! Like a steward who goes through the stands with a new list: he starts at the first row, takes a few seats at a time between
//! the walks, and begins anew when the list changes under him. Who came in after the list was there was held against it at the door.
//!
//! Work: a slice of a millisecond in every turn, so that no walk waits for it longer; a hundred thousand seats are some dozens of them.

use std::sync::Arc;
use std::time::Duration;

use grandstand_core::access::Access;
use grandstand_core::viewer::session::{Action, Close};
use grandstand_wire::codes::CloseCode;

use super::conn::Kind;
use super::viewer::NOWHERE;
use super::worker::Worker;
use crate::auth::Denied;
use crate::auth::board::Word;
use crate::clock;

const SLICE: Duration = Duration::from_millis(1);
const CLOCK_EVERY: usize = 16;

#[derive(Default)]
pub(super) struct Sweep {
    /// What the last one went by.
    access: Arc<Access>,
    /// Where it goes on.
    next_slot: Option<usize>,
}

impl Sweep {
    /// From the first seat.
    pub fn begin(&mut self) {
        self.next_slot = Some(0);
    }

    pub fn goes_on(&self) -> bool {
        self.next_slot.is_some()
    }
}

impl Worker {
    /// What is said of tokens, as the shard's list has it. Who is here is looked at when it is new.
    pub(super) fn on_access(&mut self, access: &Arc<Access>) {
        if self.sweep.access != *access {
            self.sweep.access = access.clone();
            self.sweep.begin();
        }
    }

    /// One slice of the sweep.
    pub(super) fn go_on_sweeping(&mut self) {
        let Some(mut slot) = self.sweep.next_slot else { return };
        self.tick();
        let until = self.now + SLICE;
        let mut looked = 0;
        let end = self.conns.capacity();
        while slot < end {
            if looked % CLOCK_EVERY == 0 && looked > 0 && clock::mono() >= until {
                break;
            }
            let at = slot;
            slot += 1;
            if self.conns.get(at).is_some_and(|conn| matches!(conn.kind, Kind::Viewer(_))) {
                looked += 1;
                self.guarded(at, |w| {
                    w.hold_against_board(at);
                    w.hold_against_blackouts(at);
                });
            }
        }
        self.sweep.next_slot = (slot < end).then_some(slot);
    }

    /// Whether a viewer's token still holds, as things are said now: it stays, goes on with less, or is sent away.
    fn hold_against_board(&mut self, slot: usize) {
        let (now, wall) = (self.now, self.wall);
        let Some(Kind::Viewer(viewer)) = self.conns.get_mut(slot).map(|c| &mut c.kind) else { return };
        let Some(who) = &viewer.identity else { return };
        let word = self.shared.verifier.board().judge(who, wall);
        let room = viewer.session.rooms().first().cloned();
        match word {
            Word::Stays => {
                if !who.is_late() {
                    viewer.session.ends(who.ends_at());
                }
            }
            Word::Late(late) => {
                viewer.session.ends(late.ends_at());
                viewer.identity = Some(Arc::from(late));
            }
            Word::Revoked { by_key: false } => return self.close(slot, CloseCode::NotAllowed),
            // Its holder did nothing: it fetches a new one, and comes back as the room can take them.
            Word::Revoked { by_key: true } => return self.send_for_token(slot, room.as_ref()),
            Word::Expired => {
                viewer.session.ends(who.exp);
                if viewer.session.on_deadline(now, wall) == Action::Close(Close::TokenExpired) {
                    return self.send_for_token(slot, room.as_ref());
                }
            }
        }
        self.schedule_live(slot);
    }

    /// Whether the rooms a viewer is in may still be shown where it is.
    fn hold_against_blackouts(&mut self, slot: usize) {
        let Some(viewer) = self.viewer(slot) else { return };
        let rooms: Vec<usize> =
            viewer.members().map(|m| m.room).filter(|r| *r != NOWHERE).map(|r| r as usize).collect();
        // From the last: one that is left moves those behind it.
        for idx in rooms.into_iter().rev() {
            let Some(member) = self.viewer(slot).and_then(|viewer| viewer.member_of(idx)) else { continue };
            if self.rooms[idx].info.is_some() && self.may_view(slot, idx).err() == Some(Denied::Blackout) {
                self.refuse_view(slot, member, idx, Denied::Blackout);
            }
        }
    }

    fn send_for_token(&mut self, slot: usize, room: Option<&grandstand_core::names::RoomId>) {
        let delay = room.and_then(|room| self.room_ids.get(room)).map(|&idx| self.pause(idx));
        self.close_with(slot, CloseCode::TokenExpired, delay);
    }

    /// A viewer's token may have run out: in a declared outage it goes on, with what is left of it.
    pub(super) fn let_late(&mut self, slot: usize) {
        let wall = self.wall;
        let Some(Kind::Viewer(viewer)) = self.conns.get_mut(slot).map(|c| &mut c.kind) else { return };
        let Some(who) = viewer.identity.as_ref().filter(|who| who.ends_at() <= wall) else { return };
        if let Word::Late(late) = self.shared.verifier.board().judge(who, wall) {
            viewer.session.ends(late.ends_at());
            viewer.identity = Some(Arc::from(late));
        }
    }
}
