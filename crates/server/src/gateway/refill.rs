//! What a room's ring lacks is read from the log, once for all its viewers on this worker.
//!
//! How a ring is filled back is `grandstand_core::viewer::refill`'s; here is who waits meanwhile. A ring that lost touch with
//! its room (the shard was away, the mailbox was full) is joined to what it was: nobody is closed, nobody reads alone. After a
//! restart, when everyone comes back to a ring that has only begun, it is given a past as far back as the lowest cursor that
//! waits, and every cursor is judged by the ring. So a storm costs a room a few pages, however many come. A cursor older than a
//! storm lasts reads the log for itself.
//!
//! Where a ring cannot be filled those who stand before its floor are closed with 4201 and resume from their cursors.

use std::sync::Arc;
use std::time::Duration;

use grandstand_core::ids::Position;
use grandstand_core::names::RoomId;
use grandstand_core::record::Audience;
use grandstand_core::time::Mono;
use grandstand_core::viewer::refill::{self, Next, Stand, Took, waits_for_past};
use grandstand_core::viewer::ring::{Entry, Limits, Rejoin};
use grandstand_wire::codes::CloseCode;

use super::parts::{self, Cap};
use super::viewer::Stage;
use super::worker::Worker;
use crate::failpoint;
use crate::link::{Fetch, Past, Piece, ReadRefused, RoomInfo};

/// A reader that has not answered by then will not.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
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
    refill: refill::Refill<Arc<Piece>>,
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
        let stand = Stand { head: info.head, last_event: info.last_event, pseq: info.pseq };
        let (ring, last) = (&mut room.ring, &mut room.last_event);
        let (how, refill) = refill::Refill::rejoin(ring, last, stand, Limits::default(), self.now);
        room.refill = refill.map(|refill| Refill { refill, urgent: false });
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
        let Some(Refill { refill, .. }) = &mut room.refill else { return };
        let refill::Ask { upto, seen } = refill.ask(&room.ring, request, self.now);
        let past = Fetch::Past { worker: self.id, request, room: room.id.clone(), upto, seen };
        if self.shared.shard.fetch(past).is_err() {
            self.give_up_refill(idx);
        }
    }

    pub(super) fn on_past(&mut self, id: &RoomId, request: u64, answer: Result<Past, ReadRefused>) {
        let Some(&idx) = self.room_ids.get(id) else { return };
        let (now, wall) = (self.now, self.wall);
        let room = &mut self.rooms[idx];
        let Some(refill) = room.refill.as_mut().filter(|r| r.refill.awaits(request)) else { return };
        let past = match answer {
            Ok(past) => past,
            Err(refused) => {
                tracing::warn!(room = %id, ?refused, "a ring could not be filled from the log");
                return self.give_up_refill(idx);
            }
        };
        refill.urgent |= past.pieces.iter().any(|piece| piece.closes_window);
        let urgent = refill.urgent;
        let refill = &mut refill.refill;
        let cap = self.shared.cap(room.info.as_deref(), now);
        let entries = past.pieces.iter().map(|piece| entry(piece, refill.came_at(piece.ts, wall, now), cap)).collect();
        let took = refill.take(&mut room.ring, past.after, entries, now);
        if took == Took::Broken {
            tracing::warn!(room = %id, "a page of the log does not join the ring");
            return self.give_up_refill(idx);
        }
        let retracts = past.pieces.iter().filter_map(|piece| Some((piece.id, piece.retracts.clone()?)));
        room.retracts.note_past(retracts);
        if let Took::Joined { whole } = took {
            if !whole {
                tracing::warn!(room = %id, "the ring does not join what it was before");
            }
            self.close_below(idx);
            self.queue_walk_as(idx, urgent);
        }
        let room = &mut self.rooms[idx];
        let Some(Refill { refill, .. }) = &room.refill else { return };
        match refill.next(&room.ring, room.below.iter().map(|below| below.cursor), now) {
            Next::Done => room.refill = None,
            Next::Ask => self.ask_past(idx),
            Next::GiveUp => return self.give_up_refill(idx),
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
        let refill = room.refill.as_ref().map(|r| &r.refill);
        // Failpoints stand on the road that everyone takes alone.
        if self.away || failpoint::is_active() || !waits_for_past(&room.ring, refill, cursor, now) {
            return false;
        }
        let generation = self.conns[slot].generation;
        let Some(viewer) = self.viewer(slot) else { return false };
        let Some(joining) = &mut viewer.member_mut(member).joining else { return false };
        joining.stage = Stage::Past;
        let room = &mut self.rooms[idx];
        room.below.push(Below { slot: slot as u32, generation, cursor });
        if room.refill.is_none() {
            room.refill = Some(Refill { refill: refill::Refill::of_past(&room.ring, now), urgent: false });
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
        let late = |r: &Refill| r.refill.is_late(ANSWER_WAIT, now);
        let late = self.rooms.iter().filter(|(_, room)| room.refill.as_ref().is_some_and(late));
        for idx in late.map(|(idx, _)| idx).collect::<Vec<_>>() {
            tracing::warn!(room = %self.rooms[idx].id, "a page of the log did not come in time");
            self.give_up_refill(idx);
        }
    }
}
