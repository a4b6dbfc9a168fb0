//! A room's numbers on one worker: likes, who watches, and the share of comments that is shown.
//!
//! A scoreboard: somebody changes the figures whenever the count comes in, and everyone sees the board as it hangs there, not
//! each change. New figures ride in the room's next frame; when there is none they go alone, as often as the room's size
//! allows. The last change is always told: whatever differs from the board has a time by which it hangs there.
//!
//! The awkward case is somebody who watches by long-poll and has no seat between two calls: its line remembers what it was
//! told, so that each call is answered for what is new and not for what it has seen.

use std::sync::Arc;

use grandstand_core::likes::Totals;
use grandstand_core::names::RoomId;
use grandstand_core::routing::stable_hash;
use grandstand_core::time::{Mono, Wall};
use grandstand_core::viewer::people::People;
use grandstand_wire::codes::{ErrorCode, RateReason};
use grandstand_wire::event;
use grandstand_wire::op;

use super::frames::Out;
use super::polls::Heard;
use super::roster::{Room, Told};
use super::said::{event_error, event_error_after};
use super::worker::Worker;
use crate::auth;
use crate::clock;
use crate::link::likes::{Like, Refused, RoomTotals};
use crate::link::{RoomInfo, Seen, WorkerId};
use crate::metrics::add;

impl Room {
    /// The room's numbers as they are now, `viewers` of them watching.
    pub fn counters(&self, viewers: u64, as_of: Wall) -> event::Counters<'_> {
        let keep_millionths = Some(self.keep_millionths);
        event::Counters { room: &self.id, likes: &self.likes, viewers, keep_millionths, as_of }
    }

    /// The room's latest values as an event of their own.
    pub fn counters_event(&self, as_of: Wall) -> Out<'static> {
        let mut json = Vec::with_capacity(192);
        self.counters(self.tally.people(), as_of).write(&mut json);
        Out::loose("counters", json)
    }

    /// What tells one state of the numbers from another.
    pub fn heard(&self) -> Heard {
        Heard { numbers: self.numbers, viewers: self.tally.people() }
    }

    /// The numbers are others: what tells them apart is made once, and not for each poll that waits.
    pub fn note_numbers(&mut self) {
        let mut text = Vec::with_capacity(64);
        event::write_likes(&self.likes, &mut text);
        text.extend_from_slice(&self.keep_millionths.to_le_bytes());
        self.note_silent(&mut text);
        self.numbers = stable_hash(&text);
    }

    /// Makes the latest values anew when who watches has changed and its time has come.
    pub fn renew_viewers(&mut self, now: Mono, wall: Wall) -> bool {
        self.pace.set_viewers(self.tally.viewers());
        let known = self.latest.told.viewers == Some(self.tally.people());
        if self.seats.is_empty() || known || now.since(self.latest.viewers_at) < self.pace.every() {
            return false;
        }
        self.renew_latest(now, wall);
        true
    }

    /// Every seat is told the values as they are now.
    pub fn renew_latest(&mut self, now: Mono, wall: Wall) {
        let told = Told {
            viewers: Some(self.tally.people()),
            likes: self.likes.clone(),
            keep_millionths: self.keep_millionths,
        };
        let events = self.latest_events(wall);
        self.latest.replace(&events);
        self.latest.told = told;
        self.latest.viewers_at = now;
        self.latest.told_at = now;
    }

    /// Counts who watches here, when somebody came or went: as often as the number is told.
    /// `alone`: nobody else counts for the whole room.
    pub fn look_around(&mut self, now: Mono, worker: WorkerId, alone: bool) {
        if !self.moved || now.since(self.counted_at) < self.pace.every() {
            return;
        }
        self.moved = false;
        self.counted_at = now;
        let viewers = self.seats.len() as u32;
        let named = self.seats.iter().filter(|seat| seat.who.mark().bits().is_some()).count() as u32;
        let users = People::of(self.seats.iter().filter_map(|seat| seat.who.mark().bits()));
        self.tally.look(worker, Seen { viewers, anonymous: viewers - named, users });
        if alone {
            let seen = self.tally.seen();
            self.tally.set_people(seen.people(), seen.viewers.into());
        }
    }
}

impl Worker {
    /// New latest values ride in the room's next frame; when none is due soon they go alone.
    pub(super) fn tell_soon(&mut self, idx: usize) {
        let at = self.now + self.rooms[idx].pace.alone_after();
        self.walk_by(idx, at);
    }

    /// The room is walked at `at`, unless something waits for its merge window: then they leave together.
    fn walk_by(&mut self, idx: usize, at: Mono) {
        let room = &mut self.rooms[idx];
        if room.deadline.is_none() {
            room.deadline = Some(at);
            self.windows.insert((at, idx));
        }
    }

    /// What rooms came to in likes.
    pub(super) fn on_tally(&mut self, rooms: &[RoomTotals]) {
        for (id, totals) in rooms {
            if let Some(&idx) = self.room_ids.get(id)
                && self.rooms[idx].info.is_some()
            {
                self.take_totals(idx, totals);
            }
        }
    }

    /// The room's likes as the shard tells them. They are told at once when nothing was told lately, else when the room's size
    /// allows it again.
    pub(super) fn take_totals(&mut self, idx: usize, totals: &Totals) {
        let room = &mut self.rooms[idx];
        // Facts and tallies come by different ways when a worker asks twice.
        room.likes = grandstand_core::likes::highest(&room.likes, totals);
        room.note_numbers();
        self.numbers_changed(idx);
    }

    /// Something else than the number of viewers differs from what the room's viewers were told.
    pub(super) fn numbers_changed(&mut self, idx: usize) {
        let room = &mut self.rooms[idx];
        let told = &room.latest.told;
        if room.likes == told.likes && room.keep_millionths == told.keep_millionths {
            return;
        }
        if room.seats.is_empty() {
            return;
        }
        room.latest.stale.get_or_insert(self.now);
        room.pace.set_viewers(room.tally.viewers());
        let at = (room.latest.told_at + room.pace.alone_after()).max(self.now);
        self.walk_by(idx, at);
    }

    // ---- likes -----------------------------------------------------------------------------------------------

    /// A viewer likes one of its rooms. Nothing is answered when it was taken: the totals will tell.
    pub(super) fn like(&mut self, slot: usize, room: &RoomId, like: &op::Like) {
        let refuse = |w: &mut Worker, code: ErrorCode, message: &str| {
            add(&w.shared.metrics.ops_refused, 1);
            w.say(slot, event_error(Some(room), code, message, None));
        };
        let Some(place) = self.room_ids.get(room).map(|&idx| &self.rooms[idx]) else { return };
        let (info, totals): (Option<Arc<RoomInfo>>, _) = (place.info.clone(), place.likes.clone());
        let Some(info) = info else {
            return refuse(self, ErrorCode::NotReady, "the room is still being joined");
        };
        let who = self.viewer(slot).and_then(|viewer| viewer.identity.clone());
        if auth::may_publish(who.as_deref(), room, &info.settings).is_err() {
            return refuse(self, ErrorCode::NotAllowed, "likes of this room are not open to you");
        }
        let Some(who) = who else { return };
        if self.draining {
            return refuse(self, ErrorCode::NotReady, "the server is going away");
        }
        let like = Like { room, kind: &like.kind, user: &who.user, n: like.n };
        match self.shared.shard.likes().like(&like, &info.settings, &totals, clock::mono()) {
            Ok(()) => add(&self.shared.metrics.likes, u64::from(like.n)),
            Err(refused) => self.refuse_counted(slot, room, refused),
        }
    }

    /// A like or a reaction is not taken.
    pub(super) fn refuse_counted(&mut self, slot: usize, room: &RoomId, refused: Refused) {
        add(&self.shared.metrics.ops_refused, 1);
        let wait = match refused {
            Refused::Rate(wait) => {
                let mut json = Vec::new();
                let retry_after_ms = wait.as_millis() as u64 + 1;
                let reason = RateReason::UserRate;
                event::RateLimited { room, client_msg_id: None, retry_after_ms, reason }.write(&mut json);
                return self.say(slot, Out::loose("rate_limited", json));
            }
            Refused::Full(delay) => Some(delay.retry_after),
            Refused::Room(_) | Refused::Kind => None,
        };
        self.say(slot, event_error_after(Some(room), refused.code(), refused.why(), None, wait));
    }
}
