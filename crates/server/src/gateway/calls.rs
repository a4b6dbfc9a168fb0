//! A long-poll in the loop: a call that waits in a room's roster like any viewer, and is answered once.
//!
//! It is let in and its cursor judged as every stream's is; from there it holds its line, waits for something to come and its
//! gap to be over, and its connection is an ordinary HTTP one again. `next_since` is where it stood when it was answered.

use std::time::Duration;

use bytes::Bytes;
use grandstand_core::ids::{Position, Pseq};
use grandstand_core::record::Lane;
use grandstand_core::viewer::walk::{Place, Skipped};
use grandstand_wire::{event, limits};

use super::bans;
use super::conn::Kind;
use super::frames::{self, Out};
use super::parts;
use super::polls::{Called, Heard, Known, Line};
use super::roster::Look;
use super::said::{Greeting, skipped_event, snapshot_required};
use super::stream::cors;
use super::viewer::{NOWHERE, Opening, PollCall};
use super::web;
use super::worker::Worker;
use crate::auth::permit::Permit;
use crate::failpoint;
use crate::link::{ConnKey, Piece, Served, ToWorker};
use crate::metrics::{self, Hop, Transport};

/// Told to a caller: so long its next call may wait.
const ASK_AGAIN_MS: u64 = limits::POLL_TIMEOUT_DEFAULT.as_millis() as u64;

/// So long before its token's end a caller is told of it, by each answer: calls are spread, so those who came together do not renew together.
const RENEW_BEFORE: Duration = Duration::from_secs(120);

impl Worker {
    pub(super) fn is_poll(&mut self, slot: usize) -> bool {
        self.viewer(slot).is_some_and(|v| v.transport == Transport::Poll)
    }

    pub(super) fn call(&mut self, slot: usize) -> Option<&mut PollCall> {
        self.viewer(slot)?.opening.as_mut()?.poll.as_mut()
    }

    /// Takes the line, and ends the call that held it.
    pub(super) fn take_line(&mut self, slot: usize) {
        let key = self.key(slot);
        let now = self.now;
        let Some(call) = self.call(slot) else { return };
        let (line, is_shared) = (call.line, call.is_shared);
        let Called { older, not_before, heard, banners, is_new } = self.shared.polls.call(line, key, now);
        if is_new && is_shared {
            self.shared.workers.end_line_elsewhere(line.number());
        }
        if let Some(call) = self.call(slot) {
            call.heard = heard;
            call.banners = banners;
            call.not_before = not_before;
            call.until = call.until.max(not_before);
        }
        if let Some(older) = older {
            self.end_call_of(older);
        }
    }

    /// The line was called on in another gateway process.
    pub(super) fn end_line(&mut self, line: u64) {
        if let Some(older) = self.shared.polls.give_up(Line::numbered(line)) {
            self.end_call_of(older);
        }
    }

    /// Ends a call of any worker of this process.
    fn end_call_of(&mut self, older: ConnKey) {
        if older.worker != self.id {
            // A worker too busy to hear it answers the older call at its own time limit.
            let _ = self.shared.workers.send(older.worker, ToWorker::EndPoll { conn: older });
        } else if self.conns.get(older.slot as usize).is_some_and(|c| c.generation == older.generation) {
            self.end_poll(older.slot as usize);
        }
    }

    /// The call was judged; from here it waits for something to come.
    pub(super) fn start_poll(
        &mut self,
        slot: usize,
        idx: usize,
        place: Place,
        snapshot: Option<(&'static str, Pseq)>,
        skipped: Option<Skipped>,
        permit: Permit,
    ) {
        self.take_line(slot);
        let Some(call) = self.call(slot) else { return };
        // 0 is where everybody starts, and says no more than none.
        let first = call.since.is_none_or(|since| since == Position::START);
        let Some(info) = self.rooms[idx].info.clone() else { return };
        if let Some((reason, pseq)) = snapshot {
            let events = vec![snapshot_required(&info.room, reason, place.position, pseq)];
            return self.answer_call(slot, events, place.position);
        }
        if first {
            let pseq = self.rooms[idx].ring.pseq();
            let greeting = Greeting {
                _permit: permit,
                from: place.position,
                pseq,
                resumed: false,
                skipped: None,
                sampled: false,
                snapshot: None,
            };
            let hello = self.hello(slot, idx, &greeting);
            let heard = self.rooms[idx].heard();
            self.note_heard(slot, heard);
            // With the banners that stand.
            let mut events = vec![hello];
            events.extend(self.rooms[idx].silent_events());
            let body = frames::poll_body(&events, place.position, false, ASK_AGAIN_MS);
            return self.answer_body(slot, &body);
        }
        if let Some(call) = self.call(slot) {
            call.skipped = skipped;
        }
        self.seat_poll(slot, idx, place, permit);
    }

    pub(super) fn seat_poll(&mut self, slot: usize, idx: usize, place: Place, permit: Permit) {
        self.seat(slot, 0, place, permit);
        let heard = self.rooms[idx].heard();
        if let Some(call) = self.call(slot) {
            // A caller that nothing is known of is not answered for what it finds there.
            call.found = call.heard.unwrap_or(heard);
        }
        if failpoint::is_active() {
            return self.queue_walk(idx);
        }
        self.answer_poll_if_due(slot);
    }

    /// The log's first page after a cursor that the ring does not hold: an answer by itself.
    pub(super) fn give_poll_page(&mut self, slot: usize, mut place: Place) {
        let Some(viewer) = self.viewer(slot) else { return };
        let idx = viewer.first.room as usize;
        let Some(permit) = self.permit(slot, 0, idx) else { return };
        let Some(viewer) = self.viewer(slot) else { return };
        let Some(joining) = &mut viewer.first.joining else { return };
        let (page, skipped) = (joining.page.take(), joining.skipped.take());
        let Some(page) = page else { return };
        let who = joining.who;
        self.take_line(slot);
        let room = &self.rooms[idx];
        let cap = self.shared.cap(room.info.as_deref(), self.now);
        let Some(Kind::Viewer(viewer)) = self.conns.get_mut(slot).map(|c| &mut c.kind) else { return };
        let identity = viewer.identity.clone();
        let author = identity.as_ref().map(|who| &who.user);
        let wants = |p: &Piece| {
            place.wants(p.id, p.lane)
                && !(p.lane == Lane::Comment && room.is_retracted(p))
                && bans::may_see(p, identity.as_deref(), &room.id)
        };
        let (given, sampled) = parts::of_page(&page.pieces, &parts::reader(who, viewer.taste(self.now), cap), wants);
        metrics::add(&self.shared.metrics.sampled[Hop::Log as usize], sampled);
        room.tally.add_served(Served { sampled, ..Served::default() });
        let mut events: Vec<Out<'_>> = given.into_iter().map(|p| Out::of(p, author)).collect();
        if let Some(skipped) = &skipped {
            events.insert(0, skipped_event(&room.id, skipped));
        }
        place.advance_page(page.upto);
        if !events.is_empty() {
            return self.answer_call(slot, events, place.position);
        }
        // Nothing followed: it waits in the ring like everyone else, or reads on at its next call.
        if place.position < self.rooms[idx].ring.floor() {
            return self.answer_call(slot, Vec::new(), place.position);
        }
        self.seat_poll(slot, idx, place, permit);
    }

    /// Answers a call whose time has come: something is there and its gap is over, or it has waited long enough.
    pub(super) fn answer_poll_if_due(&mut self, slot: usize) {
        let now = self.now;
        let Some(call) = self.call(slot) else { return };
        let (not_before, until, told, some) = (call.not_before, call.until, call.skipped, call.sampled);
        let (known, found, banners) = (call.heard, call.found, call.banners);
        let Some(viewer) = self.viewer(slot) else { return };
        let (idx, seat) = (viewer.first.room as usize, viewer.first.seat);
        if seat == NOWHERE {
            return;
        }
        let who = viewer.identity.clone();
        let token_ends = self.token_ends(slot);
        if now < not_before {
            return self.schedule(slot);
        }
        let heard = self.rooms[idx].heard();
        // At its end each call is told what it may not know.
        let is_news = found.numbers != heard.numbers || (now >= until && known != Some(heard));
        match self.look(idx, seat as usize, who.as_deref()) {
            Look::Nothing(head) if (is_news && !self.away) || now >= until || self.site.is_news(banners, now) => {
                let mut events = Vec::new();
                if is_news && !self.away {
                    events.extend(self.rooms[idx].latest_events(self.wall));
                    self.note_heard(slot, heard);
                }
                self.answer_call(slot, events, head);
            }
            Look::Nothing(_) => {}
            // It fell out of the ring: its next call reads the log from where it stands.
            Look::Below => {
                let position = self.rooms[idx].seats[seat as usize].place.position;
                self.answer_call(slot, Vec::new(), position);
            }
            Look::Events { mut events, n_events, upto, skipped, sampled } => {
                metrics::add(&self.shared.metrics.sampled[Hop::Poll as usize], sampled);
                self.rooms[idx].tally.add_served(Served { sampled, ..Served::default() });
                if let Some(told) = told {
                    events.insert(0, skipped_event(&self.rooms[idx].id, &told));
                }
                if !events.is_empty() && known != Some(heard) {
                    events.extend(self.rooms[idx].latest_events(self.wall));
                }
                // Winners that came while it waited, in a room that was narrow when it began, are a part too.
                let some = some || self.rooms[idx].info.as_ref().is_some_and(|info| info.wide);
                let body = (!events.is_empty()).then(|| self.poll_bytes(events, banners, token_ends, upto, some));
                match body {
                    Some(body) => {
                        let metrics = &self.shared.metrics;
                        metrics.add_delivered(Hop::Poll, n_events);
                        metrics::add(&metrics.skipped[Hop::Poll as usize], skipped);
                        metrics::add(&metrics.frames[Transport::Poll as usize], 1);
                        metrics::add(&metrics.bytes[Transport::Poll as usize], body.len() as u64);
                        let tally = &self.rooms[idx].tally;
                        tally.add_served(Served { delivered: n_events.total(), skipped, sampled: 0 });
                        self.note_heard(slot, heard);
                        self.answer_body(slot, &body);
                    }
                    None => {
                        self.set_place(idx, seat as usize, Place::live(upto));
                        if now >= until {
                            self.answer_call(slot, Vec::new(), upto);
                        }
                    }
                }
            }
        }
    }

    /// The caller is about to be told the room's numbers.
    fn note_heard(&mut self, slot: usize, heard: Heard) {
        if let Some(line) = self.call(slot).map(|call| call.line) {
            self.shared.polls.tell(line, heard);
        }
    }

    /// In how many milliseconds the caller's token ends, where it should be renewed by now. Whose has ended is told so by its next call.
    fn token_ends(&mut self, slot: usize) -> Option<u64> {
        let wall = self.wall;
        let exp = self.viewer(slot)?.identity.as_ref()?.exp;
        (wall < exp && exp.since(wall) <= RENEW_BEFORE).then(|| exp.since(wall).as_millis() as u64)
    }

    /// An answer's body: with every banner that its caller does not know, and that its token ends.
    fn poll_bytes<'a>(
        &'a self,
        mut events: Vec<Out<'a>>,
        banners: Known,
        token_ends: Option<u64>,
        next_since: Position,
        some: bool,
    ) -> Vec<u8> {
        events.extend(token_ends.map(|in_ms| {
            let mut json = Vec::new();
            event::TokenExpiring { room: None, in_ms }.write(&mut json);
            Out::loose("token_expiring", json)
        }));
        let n_before = events.len();
        events.extend(self.site.since(banners, self.now));
        self.shared.metrics.add_banners((events.len() - n_before) as u64);
        frames::poll_body(&events, next_since, some, ASK_AGAIN_MS)
    }

    pub(super) fn answer_call(&mut self, slot: usize, events: Vec<Out<'_>>, next_since: Position) {
        let Some((banners, some)) = self.call(slot).map(|call| (call.banners, call.sampled)) else { return };
        let token_ends = self.token_ends(slot);
        let body = self.poll_bytes(events, banners, token_ends, next_since, some);
        self.answer_body(slot, &body);
    }

    /// Gives a whole answer, which tells all of the site's banners.
    fn answer_body(&mut self, slot: usize, body: &[u8]) {
        let newest = self.site.newest();
        if let Some(line) = self.call(slot).map(|call| call.line) {
            self.shared.polls.tell_banners(line, newest);
        }
        let Some(viewer) = self.viewer(slot) else { return };
        let Some(opening) = viewer.opening.take() else { return };
        let mut headers = cors(opening.origin.as_deref());
        headers.push(("cache-control", "no-store"));
        let answer = web::whole(200, "application/json", body, opening.keep_alive, &headers);
        self.end_call(slot, *opening, answer, true);
    }

    /// A newer call took the line.
    pub(super) fn end_poll(&mut self, slot: usize) {
        let Some(viewer) = self.viewer(slot) else { return };
        if viewer.transport != Transport::Poll {
            return;
        }
        let Some(opening) = viewer.opening.take() else { return };
        let mut headers = cors(opening.origin.as_deref());
        headers.push(("cache-control", "no-store"));
        let answer = web::whole(204, "", &[], opening.keep_alive, &headers);
        self.end_call(slot, *opening, answer, false);
    }

    /// Writes a call's answer; the connection is an HTTP one again.
    pub(super) fn end_call(&mut self, slot: usize, opening: Opening, answer: Bytes, answered: bool) {
        if let Some(call) = &opening.poll {
            self.shared.polls.leave(call.line, self.key(slot), answered, self.now);
        }
        self.forget_viewer(slot);
        self.conns[slot].kind = Kind::Http(Box::new(web::Http::idle(self.now, Vec::new())));
        self.answer(slot, answer, opening.keep_alive);
    }
}
