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
//! It never joins what does not join: a priority number that does not lead up to the next, or a log that does not know what
//! the ring was given, ends the attempt, and so does a past heavier than a ring may be. Then those who stand before the
//! floor are closed with 4201 and resume from their cursors.

use std::sync::Arc;
use std::time::Duration;

use grandstand_core::ids::Position;
use grandstand_core::names::RoomId;
use grandstand_core::record::Audience;
use grandstand_core::time::Mono;
use grandstand_core::viewer::ring::{self, Entry, Rejoin, Ring};
use grandstand_wire::codes::CloseCode;

use super::worker::Worker;
use crate::link::{Past, Piece, ReadRefused, RoomInfo};

/// A reader that has not answered by then will not.
const ANSWER_WAIT: Duration = Duration::from_secs(5);

/// A ring that is being filled.
pub(super) struct Refill {
    request: u64,
    asked_at: Mono,
    /// The asked page ends here, at the ring's floor.
    upto: Position,
    /// Far enough back.
    goal: Position,
    /// The newest place the ring was ever given.
    seen: Position,
    /// To be joined in the end.
    old: Option<Ring<Arc<Piece>>>,
    /// Something of it may not wait.
    urgent: bool,
}

/// One event as a ring takes it at `at`.
pub(super) fn entry(piece: &Arc<Piece>, at: Mono) -> Entry<Arc<Piece>> {
    Entry {
        id: piece.id,
        lane: piece.lane,
        closes_window: piece.closes_window,
        private: piece.audience != Audience::Everyone,
        pseq: piece.pseq,
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
                    room.refill = Some(Refill {
                        request: 0,
                        asked_at: self.now,
                        upto: info.head,
                        goal: seen,
                        seen,
                        old: Some(old),
                        urgent: false,
                    });
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
        if self.shared.shard.past(self.id, request, room.id.clone(), upto, refill.seen).is_err() {
            self.give_up_refill(idx);
        }
    }

    pub(super) fn on_past(&mut self, id: &RoomId, request: u64, answer: Result<Past, ReadRefused>) {
        let Some(&idx) = self.room_ids.get(id) else { return };
        let now = self.now;
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
        let entries: Vec<_> = past.pieces.iter().map(|piece| entry(piece, now)).collect();
        let came_to_nothing = past.after >= refill.upto;
        // A ring that let go of something meanwhile is too full to be given more.
        if room.ring.floor() != refill.upto || !room.ring.extend_back(past.after, entries) {
            tracing::warn!(room = %id, "a page of the log does not join the ring");
            return self.give_up_refill(idx);
        }
        let retracts = past.pieces.iter().filter_map(|piece| Some((piece.id, piece.retracts.clone()?)));
        room.retracts.splice(0..0, retracts);
        room.retracts.sort_by_key(|(at, _)| *at);
        let refill = room.refill.as_mut().expect("it was just there");
        if past.after > refill.goal {
            if came_to_nothing || room.ring.bytes() >= ring::Limits::default().bytes {
                tracing::warn!(room = %id, "more was missed than a ring holds");
                return self.give_up_refill(idx);
            }
            return self.ask_past(idx);
        }
        let Some(refill) = room.refill.take() else { return };
        if let Some(old) = refill.old
            && !room.ring.join(old)
        {
            tracing::warn!(room = %id, "the ring does not join what it was before");
        }
        self.close_below(idx);
        self.queue_walk_as(idx, refill.urgent);
    }

    /// The ring stays as it is; those before its floor come back with their cursors.
    pub(super) fn give_up_refill(&mut self, idx: usize) {
        self.rooms[idx].refill = None;
        self.close_below(idx);
        self.queue_walk(idx);
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
