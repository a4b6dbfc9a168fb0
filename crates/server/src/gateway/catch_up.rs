//! From a cursor to a seat: judged by the ring or the log, caught up page by page, then live.
//!
//! ```text
//! cursor ─► ring │ log ─► hello ─► page ─► left ─► page … ─► inside the ring ─► seat
//! ```
//!
//! One page is asked for when the last has left, so a slow viewer holds one page and no more. The awkward case is a ring that
//! moves on past a viewer that was about to join it: it goes back to the log from where it stands.

use std::time::Duration;

use grandstand_core::ids::Position;
use grandstand_core::names::RoomId;
use grandstand_core::record::Lane;
use grandstand_core::viewer::resume::{self, Answer};
use grandstand_core::viewer::walk::Place;
use grandstand_wire::codes::CloseCode;

use super::bans;
use super::conn::Kind;
use super::frames::{self, Out};
use super::parts;
use super::roster::Seat;
use super::said::Greeting;
use super::viewer::{Hold, Joining, Member, NOWHERE, Stage};
use super::worker::Worker;
use crate::auth::permit::Permit;
use crate::failpoint;
use crate::link::{Fetch, Page, Piece, ReadRefused, Resumed, Served};
use crate::metrics::{self, ByLane, Hop};

impl Worker {
    /// Finds out what a viewer's cursor is worth. `waited`: the ring was filled for it as far back as it goes.
    pub(super) fn judge_cursor(&mut self, slot: usize, member: usize, idx: usize, waited: bool) {
        let now = self.now;
        let Some(viewer) = self.viewer(slot) else { return };
        let Some(joining) = &viewer.member_mut(member).joining else { return };
        let cursor = joining.cursor;
        let room = &self.rooms[idx];
        let window =
            Duration::from_secs(room.info.as_ref().map_or(300, |i| u64::from(i.settings.resume_window_seconds)));
        let answer = if cursor == Position::START {
            Some(Answer::Live { from: room.ring.head(), pseq: room.ring.pseq() })
        } else {
            let epochs = room.info.as_ref().map_or(&[][..], |i| &i.epochs);
            resume::from_ring(&room.ring, cursor, window, now, epochs)
        };
        match answer {
            Some(answer) => {
                if matches!(answer, Answer::Resumed { .. }) {
                    let from = if waited { metrics::Resumed::Shared } else { metrics::Resumed::FromRing };
                    self.shared.metrics.add_resumed(from);
                }
                self.begin(slot, member, idx, &answer, None);
            }
            None if !waited && self.wait_for_past(slot, member, idx, cursor) => {}
            None => {
                if let Some(viewer) = self.viewer(slot)
                    && let Some(joining) = &mut viewer.member_mut(member).joining
                {
                    joining.stage = Stage::Held(Hold::BeforeRead);
                }
                self.pass_hold(slot, member);
            }
        }
    }

    pub(super) fn ask_resume(&mut self, slot: usize, member: usize) {
        self.n_requests += 1;
        let request = self.n_requests;
        let key = self.key(slot);
        let Some(viewer) = self.viewer(slot) else { return };
        let Some(joining) = &mut viewer.member_mut(member).joining else { return };
        joining.stage = Stage::Resume { request };
        let (room, cursor) = (joining.room.clone(), joining.cursor);
        if self.shared.shard.fetch(Fetch::Resume { conn: key, request, room, cursor }).is_err() {
            self.close(slot, CloseCode::NotReady);
        }
    }

    pub(super) fn on_resume(&mut self, slot: usize, request: u64, room: &RoomId, answer: Result<Resumed, ReadRefused>) {
        let Some(&idx) = self.room_ids.get(room) else { return };
        let Some(viewer) = self.viewer(slot) else { return };
        let Some(member) = viewer.member_of(idx) else { return };
        let Some(joining) = &viewer.member_mut(member).joining else { return };
        if !matches!(joining.stage, Stage::Resume { request: asked } if asked == request) {
            return;
        }
        match answer {
            Ok(Resumed { answer, first }) => {
                if matches!(answer, Answer::Resumed { .. }) {
                    self.shared.metrics.add_resumed(metrics::Resumed::FromLog);
                }
                self.begin(slot, member, idx, &answer, Some(&first));
            }
            Err(refused) => self.read_refused(slot, refused),
        }
    }

    /// The cursor was judged: hello, and what follows it. `first` is the log's first page, when the ring does not reach back.
    fn begin(&mut self, slot: usize, member: usize, idx: usize, answer: &Answer, first: Option<&Page>) {
        let Some(permit) = self.permit(slot, member, idx) else { return };
        let snapshot = match answer {
            Answer::SnapshotRequired { reason, .. } => Some(reason.name()),
            _ => None,
        };
        match answer {
            Answer::Live { .. } => self.shared.metrics.add_resumed(metrics::Resumed::Live),
            Answer::SnapshotRequired { reason: resume::Reason::TooOld, .. } => {
                self.shared.metrics.add_resumed(metrics::Resumed::TooOld);
            }
            Answer::SnapshotRequired { .. } => self.shared.metrics.add_resumed(metrics::Resumed::UnknownCursor),
            // Counted where it is known from what.
            Answer::Resumed { .. } => {}
        }
        if let Answer::Resumed { skipped: Some(skipped), .. } = answer {
            metrics::add(&self.shared.metrics.skipped[Hop::Log as usize], skipped.count);
        }
        let (from, pseq) = answer.baseline();
        let place = answer.place();
        // What did not follow is told by hello's `some`; the page reader leaves the same comments out.
        let (resumed, skipped, comments_from) = match answer {
            Answer::Resumed { skipped, comments_after, .. } => (true, *skipped, *comments_after),
            _ => (false, None, from),
        };
        let page = first.filter(|_| resumed && place.position < self.rooms[idx].ring.head());
        let room = &self.rooms[idx];
        let sampled = resumed
            && (room.info.as_ref().is_some_and(|info| info.wide)
                || room.ring.holds_won(from)
                || page.is_some_and(|page| page.pieces.iter().any(|piece| piece.won.is_some())));
        if self.is_poll(slot) {
            if let Some(call) = self.call(slot) {
                call.sampled = sampled;
            }
            let Some(page) = page else {
                return self.start_poll(slot, idx, place, snapshot.map(|reason| (reason, pseq)), skipped, permit);
            };
            let joins = page.upto >= self.rooms[idx].ring.floor();
            let hold = if joins { Hold::BeforeLive { place } } else { Hold::BetweenPages { place, comments_from } };
            if let Some(viewer) = self.viewer(slot)
                && let Some(joining) = &mut viewer.member_mut(member).joining
            {
                joining.stage = Stage::Held(hold);
                joining.page = Some(Box::new(page.clone()));
                joining.skipped = skipped;
            }
            return self.pass_hold(slot, member);
        }
        self.greet(slot, idx, Greeting { _permit: permit, from, pseq, resumed, skipped, sampled, snapshot });
        match page {
            Some(page) => self.take_page(slot, member, idx, place, comments_from, page, permit),
            None => self.go_live(slot, member, place),
        }
    }

    fn read_refused(&mut self, slot: usize, refused: ReadRefused) {
        match refused {
            ReadRefused::NoRoom => self.close(slot, CloseCode::NoRoom),
            ReadRefused::Fault => self.close(slot, CloseCode::ServerFault),
            // Erased between two pages: who comes back is told to take a snapshot.
            ReadRefused::Unknown => self.close(slot, CloseCode::SlowConsumer),
            ReadRefused::Busy(delay) => self.close_with(slot, CloseCode::NotReady, Some(delay)),
        }
    }

    pub(super) fn ask_page(&mut self, slot: usize, member: usize, place: Place, comments_from: Position) {
        self.n_requests += 1;
        let request = self.n_requests;
        let key = self.key(slot);
        let Some(viewer) = self.viewer(slot) else { return };
        let Some(joining) = &mut viewer.member_mut(member).joining else { return };
        joining.stage = Stage::Pages { place, comments_from, request: Some(request) };
        let room = joining.room.clone();
        let page = Fetch::Page { conn: key, request, room, after: place.position, comments_from };
        if self.shared.shard.fetch(page).is_err() {
            self.close(slot, CloseCode::NotReady);
        }
    }

    pub(super) fn on_page(&mut self, slot: usize, request: u64, room: &RoomId, answer: Result<Page, ReadRefused>) {
        let Some(&idx) = self.room_ids.get(room) else { return };
        let Some(viewer) = self.viewer(slot) else { return };
        let Some(member) = viewer.member_of(idx) else { return };
        let Some(joining) = &viewer.member_mut(member).joining else { return };
        let Stage::Pages { place, comments_from, request: Some(asked) } = joining.stage else { return };
        if asked != request {
            return;
        }
        match answer {
            Ok(page) => {
                let Some(permit) = self.permit(slot, member, idx) else { return };
                self.take_page(slot, member, idx, place, comments_from, &page, permit);
            }
            Err(refused) => self.read_refused(slot, refused),
        }
    }

    /// Writes one page of the log; what follows waits until it has left.
    fn take_page(
        &mut self,
        slot: usize,
        member: usize,
        idx: usize,
        mut place: Place,
        comments_from: Position,
        page: &Page,
        _permit: Permit,
    ) {
        assert!(page.upto >= place.position, "a page never goes back");
        let room = &self.rooms[idx];
        let cap = self.shared.cap(room.info.as_deref(), self.now);
        let Some(Kind::Viewer(viewer)) = self.conns.get_mut(slot).map(|c| &mut c.kind) else { return };
        let transport = viewer.transport;
        let Some(who) = viewer.member_mut(member).joining.as_ref().map(|joining| joining.who) else { return };
        let identity = viewer.identity.clone();
        let author = identity.as_ref().map(|who| &who.user);
        let wants = |p: &Piece| {
            place.wants(p.id, p.lane)
                && !(p.lane == Lane::Comment && room.is_retracted(p))
                && bans::may_see(p, identity.as_deref(), &room.id)
        };
        let (given, sampled) = parts::of_page(&page.pieces, &parts::reader(who, viewer.taste(self.now), cap), wants);
        let events: Vec<Out<'_>> = given.iter().map(|p| Out::of(p, author)).collect();
        let bytes = frames::encode(transport, &events);
        let mut n_events = ByLane::default();
        for piece in given {
            n_events.add(piece.lane, 1);
        }
        let came_to_nothing = page.upto == place.position;
        place.advance_page(page.upto);
        if let Some(joining) = &mut viewer.member_mut(member).joining {
            joining.stage = Stage::Pages { place, comments_from, request: None };
        }
        let metrics = &self.shared.metrics;
        metrics.add_delivered(Hop::Log, n_events);
        metrics::add(&metrics.sampled[Hop::Log as usize], sampled);
        if !bytes.is_empty() {
            metrics::add(&metrics.frames[transport as usize], 1);
            metrics::add(&metrics.bytes[transport as usize], bytes.len() as u64);
        }
        let delivered = n_events.total();
        self.rooms[idx].tally.add_served(Served { delivered, sampled, ..Served::default() });
        if came_to_nothing && page.upto < self.rooms[idx].ring.floor() {
            // The log ends before the ring begins and has nothing more to give: the two do not join.
            tracing::error!(room = %self.rooms[idx].id, upto = %page.upto, "the log does not reach the ring");
            return self.close(slot, CloseCode::ServerFault);
        }
        self.send(slot, bytes);
        if self.conns.get(slot).is_some_and(|c| c.out.is_empty()) {
            self.page_left(slot, member);
        }
    }

    /// A page has left: the next one, or the ring from here on.
    fn page_left(&mut self, slot: usize, member: usize) {
        let Some(viewer) = self.viewer(slot) else { return };
        let place_in = viewer.member_mut(member);
        let Some(joining) = &mut place_in.joining else { return };
        let Stage::Pages { place, comments_from, request: None } = joining.stage else { return };
        let idx = place_in.room as usize;
        let joins = place.position >= self.rooms[idx].ring.floor();
        let hold = if joins { Hold::BeforeLive { place } } else { Hold::BetweenPages { place, comments_from } };
        let Some(viewer) = self.viewer(slot) else { return };
        if let Some(joining) = &mut viewer.member_mut(member).joining {
            joining.stage = Stage::Held(hold);
        }
        self.pass_hold(slot, member);
    }

    pub(super) fn go_live(&mut self, slot: usize, member: usize, place: Place) {
        let Some(viewer) = self.viewer(slot) else { return };
        let idx = viewer.member_mut(member).room as usize;
        // While a failpoint held, the ring may have moved on past this place.
        if place.position < self.rooms[idx].ring.floor() {
            let comments_from = place.catch_up.map_or(place.position, |c| c.comments_after);
            if let Some(viewer) = self.viewer(slot)
                && let Some(joining) = &mut viewer.member_mut(member).joining
            {
                joining.stage = Stage::Held(Hold::BetweenPages { place, comments_from });
            }
            return self.pass_hold(slot, member);
        }
        let Some(permit) = self.permit(slot, member, idx) else { return };
        self.seat(slot, member, place, permit);
        if failpoint::is_active() {
            // By a walk, so that a test can stop it there.
            return self.queue_walk(idx);
        }
        self.bring_member(slot, member);
    }

    fn bring_member(&mut self, slot: usize, member: usize) {
        let Some(viewer) = self.viewer(slot) else { return };
        let place_in = viewer.member_mut(member);
        if place_in.seat != NOWHERE {
            let (room, seat) = (place_in.room as usize, place_in.seat as usize);
            self.bring(room, seat);
        }
    }

    /// A catching-up viewer fell out of the ring: it reads the log again from its place.
    pub(super) fn back_to_the_log(&mut self, slot: usize, idx: usize) {
        let Some(viewer) = self.viewer(slot) else { return };
        let Some(member) = viewer.member_of(idx) else { return };
        let seat = viewer.member_mut(member).seat;
        if seat == NOWHERE {
            return;
        }
        let Seat { place, who, .. } = self.rooms[idx].seats[seat as usize];
        let room = self.rooms[idx].id.clone();
        let comments_from = place.catch_up.map_or(place.position, |c| c.comments_after);
        self.leave_seat(slot, member, idx);
        let Some(viewer) = self.viewer(slot) else { return };
        let stage = Stage::Held(Hold::BetweenPages { place, comments_from });
        viewer.member_mut(member).joining =
            Some(Box::new(Joining { room, cursor: place.position, stage, who, page: None, skipped: None }));
        self.pass_hold(slot, member);
    }

    /// Takes a viewer off the roster but not out of the room.
    fn leave_seat(&mut self, slot: usize, member: usize, idx: usize) {
        let Some(viewer) = self.viewer(slot) else { return };
        let place_in = viewer.member_mut(member);
        let left = Member { room: place_in.room, seat: place_in.seat, joining: None };
        place_in.seat = NOWHERE;
        self.rooms[idx].n_members += 1;
        self.unseat(&left);
    }

    /// All that was written to a viewer has left: it is brought to the head everywhere.
    pub(super) fn on_viewer_drained(&mut self, slot: usize) {
        let Some(viewer) = self.viewer(slot) else { return };
        for member in 0..viewer.n_members() {
            let Some(conn) = self.conns.get(slot) else { return };
            if !conn.out.is_empty() || conn.blocked {
                return;
            }
            let Some(viewer) = self.viewer(slot) else { return };
            if viewer.n_members() <= member {
                return;
            }
            let place_in = viewer.member_mut(member);
            if place_in.seat != NOWHERE {
                self.bring_member(slot, member);
            } else if place_in.joining.is_some() {
                self.page_left(slot, member);
            }
        }
    }

    /// Goes on behind failpoints that have let go.
    pub(super) fn pass_holds(&mut self, slot: usize) {
        let Some(viewer) = self.viewer(slot) else { return };
        for member in 0..viewer.n_members() {
            self.pass_hold(slot, member);
        }
    }
}
