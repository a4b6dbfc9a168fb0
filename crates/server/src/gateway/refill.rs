//! What a room's ring lacks is read from the log, once for all its viewers on this worker.
//!
//! ```text
//!            old ring            read backwards            new ring
//! ─── floor ────────── head ┆ ◄─ page ◄─ page ◄─ page ─┆ head ── live ─►
//! ```
//!
//! A ring that lost touch with its room (the shard was away, the mailbox was full) begins anew at the room's head, where what
//! is live joins it, and the log fills what lies between it and the old one, the newest page first. So the ring never has a
//! hole: it ends earlier. Viewers who stand before its floor wait for it; nobody is closed, nobody reads alone.
//!
//! The same road serves cursors from before the floor, as after a restart, when everyone comes back to a ring that has only
//! begun: the ring is given a past, as far back as the lowest cursor that waits, and every cursor is judged by the ring. So a
//! storm costs a room a few pages, however many come. A cursor older than a storm lasts reads the log for itself.
//!
//! It never joins what does not join: a priority number that does not lead up to the next, or a log that does not know what
//! the ring was given, ends the attempt, and so does a past heavier than a ring may be. Then those who stand before the
//! floor are closed with 4201 and resume from their cursors.

use std::sync::Arc;
use std::time::Duration;

use grandstand_core::ids::Position;
use grandstand_core::names::RoomId;
use grandstand_core::record::Audience;
use grandstand_core::time::{Mono, Wall};
use grandstand_core::viewer::ring::{self, Entry, Rejoin, Ring};
use grandstand_wire::codes::CloseCode;

use super::parts::{self, Cap};
use super::viewer::Stage;
use super::worker::Worker;
use crate::failpoint;
use crate::link::{Fetch, Past, Piece, ReadRefused, RoomInfo};

/// A reader that has not answered by then will not.
const ANSWER_WAIT: Duration = Duration::from_secs(5);

/// What was read for many is kept for those who are still to come.
const PAST_KEPT: Duration = Duration::from_secs(30);
/// Cursors that waited, judged between two walks: a greeting is about 30 microseconds.
const JUDGED_A_TURN: usize = 64;

/// A cursor before the ring's floor, and whose it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Below {
    pub slot: u32,
    pub generation: u32,
    pub cursor: Position,
}

/// A ring that is being filled.
pub(super) struct Refill {
    request: u64,
    asked_at: Mono,
    /// The asked page ends here, at the ring's floor.
    upto: Position,
    /// The newest place the ring was ever given.
    seen: Position,
    /// To be joined in the end.
    old: Option<Ring<Arc<Piece>>>,
    /// Something of it may not wait.
    urgent: bool,
}

/// One event as a ring takes it at `at`, where viewers are given so many comments.
pub(super) fn entry(piece: &Arc<Piece>, at: Mono, cap: Cap) -> Entry<Arc<Piece>> {
    Entry {
        id: piece.id,
        lane: piece.lane,
        closes_window: piece.closes_window,
        private: piece.audience != Audience::Everyone,
        pseq: piece.pseq,
        won: parts::lot(piece, cap.milli),
        at,
        bytes: piece.json.len() as u32,
        payload: piece.clone(),
    }
}

impl Worker {
    /// The facts of a room whose feed broke off are here; every later batch follows them.
    pub(super) fn rejoin(&mut self, idx: usize, info: Arc<RoomInfo>) {
        // A second break while the first is being mended: what lies between is not known any more.
        if self.rooms[idx].refill.is_some() {
            self.give_up_refill(idx);
        }
        let room = &mut self.rooms[idx];
        let how = ring::rejoin(&room.ring, room.last_event, info.head, info.last_event, info.pseq);
        match how {
            Rejoin::Whole => room.ring.advance(info.head),
            Rejoin::Gap | Rejoin::Lost => {
                let anew = Ring::new(info.head, info.pseq, ring::Limits::default());
                let old = std::mem::replace(&mut room.ring, anew);
                room.last_event = info.last_event;
                if how == Rejoin::Gap {
                    let seen = old.head();
                    room.refill = Some(Refill::new(seen, Some(old), self.now));
                }
            }
        }
        self.take_settings(idx, info);
        match how {
            Rejoin::Whole => {}
            Rejoin::Gap => self.ask_past(idx),
            Rejoin::Lost => {
                self.rooms[idx].retracts.clear();
                self.close_below(idx);
            }
        }
    }

    fn ask_past(&mut self, idx: usize) {
        self.n_requests += 1;
        let request = self.n_requests;
        let room = &mut self.rooms[idx];
        let upto = room.ring.floor();
        let Some(refill) = &mut room.refill else { return };
        refill.request = request;
        refill.asked_at = self.now;
        refill.upto = upto;
        let past = Fetch::Past { worker: self.id, request, room: room.id.clone(), upto, seen: refill.seen };
        if self.shared.shard.fetch(past).is_err() {
            self.give_up_refill(idx);
        }
    }

    pub(super) fn on_past(&mut self, id: &RoomId, request: u64, answer: Result<Past, ReadRefused>) {
        let Some(&idx) = self.room_ids.get(id) else { return };
        let (now, wall) = (self.now, self.wall);
        let room = &mut self.rooms[idx];
        let Some(refill) = room.refill.as_mut().filter(|refill| refill.request == request) else { return };
        let past = match answer {
            Ok(past) => past,
            Err(refused) => {
                tracing::warn!(room = %id, ?refused, "a ring could not be filled from the log");
                return self.give_up_refill(idx);
            }
        };
        refill.urgent |= past.pieces.iter().any(|piece| piece.closes_window);
        // What nobody was given is new to everyone; what lies further back is as old as it is.
        let cap = self.shared.cap(room.info.as_deref(), now);
        let is_gap = refill.old.is_some();
        let at = |piece: &Piece| if is_gap { now } else { Mono(now.0.saturating_sub(age(wall, piece))) };
        let entries: Vec<_> = past.pieces.iter().map(|piece| entry(piece, at(piece), cap)).collect();
        let came_to_nothing = past.after >= refill.upto;
        // A ring that let go of something meanwhile is too full to be given more.
        if room.ring.floor() != refill.upto || !room.ring.extend_back(past.after, entries) {
            tracing::warn!(room = %id, "a page of the log does not join the ring");
            return self.give_up_refill(idx);
        }
        room.ring.keep_until(now + PAST_KEPT);
        let retracts = past.pieces.iter().filter_map(|piece| Some((piece.id, piece.retracts.clone()?)));
        room.retracts.splice(0..0, retracts);
        room.retracts.sort_by_key(|(at, _)| *at);
        let refill = room.refill.as_mut().expect("it was just there");
        let joins = refill.old.take_if(|old| old.head() >= past.after);
        let urgent = refill.urgent;
        if let Some(old) = joins {
            if !room.ring.join(old) {
                tracing::warn!(room = %id, "the ring does not join what it was before");
            }
            self.close_below(idx);
            self.queue_walk_as(idx, urgent);
        }
        let room = &mut self.rooms[idx];
        let floor = room.ring.floor();
        let gap = room.refill.as_ref().is_some_and(|refill| refill.old.is_some());
        if !gap && room.below.iter().all(|b| b.cursor >= floor) {
            room.refill = None;
        } else if came_to_nothing || !room.ring.takes_past(now) {
            return self.give_up_refill(idx);
        } else {
            self.ask_past(idx);
        }
        self.judge_later(idx);
    }

    /// The ring stays as it is; those before its floor come back with their cursors.
    pub(super) fn give_up_refill(&mut self, idx: usize) {
        self.rooms[idx].refill = None;
        self.close_below(idx);
        self.queue_walk(idx);
        self.judge_later(idx);
    }

    /// Whether a viewer whose cursor the ring does not hold waits until it does. `false`: it asks the log for itself.
    pub(super) fn wait_for_past(&mut self, slot: usize, member: usize, idx: usize, cursor: Position) -> bool {
        let now = self.now;
        let room = &self.rooms[idx];
        let fills = room.refill.is_some() || room.ring.takes_past(now);
        // Failpoints stand on the road that everyone takes alone.
        if self.away || cursor >= room.ring.floor() || !fills || failpoint::is_active() {
            return false;
        }
        let generation = self.conns[slot].generation;
        let Some(viewer) = self.viewer(slot) else { return false };
        let Some(joining) = &mut viewer.member_mut(member).joining else { return false };
        joining.stage = Stage::Past;
        let room = &mut self.rooms[idx];
        room.below.push(Below { slot: slot as u32, generation, cursor });
        if room.refill.is_none() {
            room.refill = Some(Refill::new(room.ring.head(), None, now));
            self.ask_past(idx);
        }
        true
    }

    fn judge_later(&mut self, idx: usize) {
        if !self.rooms[idx].below.is_empty() && !self.filled.contains(&idx) {
            self.filled.push_back(idx);
        }
    }

    /// Judges cursors that the ring has come to hold, or will not; a few at a time.
    pub(super) fn judge_filled(&mut self) {
        let mut left = JUDGED_A_TURN;
        while left > 0
            && let Some(idx) = self.filled.pop_front()
        {
            let Some(room) = self.rooms.get_mut(idx) else { continue };
            let (floor, over) = (room.ring.floor(), room.refill.is_none());
            let mut taken = Vec::new();
            room.below.retain(|below| {
                let takes = taken.len() < left && (over || below.cursor >= floor);
                if takes {
                    taken.push(*below);
                }
                !takes
            });
            left -= taken.len();
            if left == 0 {
                self.judge_later(idx);
            }
            for Below { slot, generation, .. } in taken {
                let slot = slot as usize;
                if self.conns.get(slot).is_some_and(|c| c.generation == generation) {
                    self.guarded(slot, |w| w.judge_waited(slot, idx));
                }
            }
        }
    }

    fn judge_waited(&mut self, slot: usize, idx: usize) {
        let Some(viewer) = self.viewer(slot) else { return };
        let Some(member) = viewer.member_of(idx) else { return };
        let waits = viewer.member_mut(member).joining.as_ref().is_some_and(|j| matches!(j.stage, Stage::Past));
        if waits {
            self.judge_cursor(slot, member, idx, true);
        }
    }

    /// Closes those whom the ring cannot serve from where they stand. Who is catching up goes back to the log by itself.
    fn close_below(&mut self, idx: usize) {
        let room = &self.rooms[idx];
        let floor = room.ring.floor();
        let below = room.seats.iter().filter(|s| s.place.position < floor && s.place.catch_up.is_none());
        for slot in below.map(|s| s.slot as usize).collect::<Vec<_>>() {
            self.guarded(slot, |w| w.close(slot, CloseCode::Resync));
        }
    }

    /// Once a second: a reader whose answer was lost is not waited for any longer.
    pub(super) fn keep_refills(&mut self) {
        let now = self.now;
        let late = |refill: &Refill| now.since(refill.asked_at) > ANSWER_WAIT;
        let late = self.rooms.iter().filter(|(_, room)| room.refill.as_ref().is_some_and(late));
        for idx in late.map(|(idx, _)| idx).collect::<Vec<_>>() {
            tracing::warn!(room = %self.rooms[idx].id, "a page of the log did not come in time");
            self.give_up_refill(idx);
        }
    }
}

impl Refill {
    fn new(seen: Position, old: Option<Ring<Arc<Piece>>>, now: Mono) -> Refill {
        Refill { request: 0, asked_at: now, upto: seen, seen, old, urgent: false }
    }
}

/// Microseconds since a piece was given its id.
fn age(now: Wall, piece: &Piece) -> u64 {
    now.since(piece.ts).as_micros() as u64
}
