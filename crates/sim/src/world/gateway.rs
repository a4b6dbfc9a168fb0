//! The gateway's shell: connections, rosters and walks of one simulated process.

use std::sync::Arc;
use std::time::Duration;

use grandstand_core::ids::{EventId, Position};
use grandstand_core::names::{ClientMsgId, RoomId};
use grandstand_core::owner::command::{Author, Command, Publish, Standing};
use grandstand_core::record::{Audience, Record};
use grandstand_core::time::{Mono, Wall};
use grandstand_core::viewer::merge::Leave;
use grandstand_core::viewer::resume::{self, Answer};
use grandstand_core::viewer::ring;
use grandstand_core::viewer::session::{Action, Credential, Op, Session, Start};
use grandstand_core::viewer::walk::{Limits, Step, Walk, is_late};

use crate::history::{Begun, ClientIdx};
use crate::options::Fault;
use crate::process::{Asker, Conn, ConnId, State, entry};
use crate::world::{Down, Event, GATEWAY_EVERY, ProcessIdx, Up, WALL_BASE, World};

/// Rows of one page: small, so that a catch-up has several.
const PAGE_ROWS: usize = 7;
/// Frames for one viewer in one turn; more than any ring of a run holds.
const FRAMES_MAX: usize = 10_000;

impl World {
    fn ring_limits(&self) -> ring::Limits {
        ring::Limits { bytes: self.plan.ring_bytes, ..ring::Limits::default() }
    }

    fn walk_limits(&self) -> Limits {
        Limits { plan_bytes: self.plan.plan_bytes, ..Limits::default() }
    }

    /// What was committed goes to the gateway of the same process.
    pub(super) fn publish(&mut self, process: ProcessIdx, records: Vec<Arc<Record>>) {
        let wait = Duration::from_micros(300);
        if self.fault(Fault::DoubleLink) {
            let later = self.draw(1, 200);
            self.after(later, Event::Link { process, records: records.clone() });
        }
        self.after(wait, Event::Link { process, records });
    }

    pub(super) fn on_link(&mut self, process: ProcessIdx, records: Vec<Arc<Record>>) {
        let now = self.now;
        let Some(head) = records.last().map(|r| r.event_id().position()) else { return };
        let rooms: Vec<RoomId> = self.processes[process].rooms.keys().cloned().collect();
        for room in rooms {
            let roster = self.processes[process].rooms.get_mut(&room).expect("just listed");
            let mine = records.iter().filter(|r| r.room.as_ref() == Some(&room)).filter_map(|r| entry(r, now));
            let (mut any, mut closes) = (false, false);
            for entry in mine {
                (any, closes) = (true, closes || entry.closes_window);
                roster.ring.push(entry);
            }
            roster.ring.advance(head);
            if !any {
                continue;
            }
            match roster.merge.on_events(closes, now) {
                Leave::Now => self.walk(process, &room),
                Leave::At(_) => {
                    let due = roster.merge.deadline();
                    if let Some(due) = due.filter(|due| roster.due.is_none_or(|known| *due < known)) {
                        roster.due = Some(due);
                        self.at(due, Event::MergeDue { process, room });
                    }
                }
            }
        }
    }

    pub(super) fn on_merge_due(&mut self, process: ProcessIdx, room: &RoomId) {
        let now = self.now;
        let Some(roster) = self.processes[process].rooms.get_mut(room) else { return };
        roster.due = None;
        if roster.merge.deadline().is_some_and(|due| due <= now) {
            self.walk(process, room);
        }
    }

    fn walk(&mut self, process: ProcessIdx, room: &RoomId) {
        let now = self.now;
        let Some(roster) = self.processes[process].rooms.get_mut(room) else { return };
        roster.merge.on_walk(now);
        roster.due = None;
        let conns: Vec<ConnId> =
            self.processes[process].conns.iter().filter(|(_, c)| c.room == *room).map(|(id, _)| *id).collect();
        conns.into_iter().for_each(|conn| self.serve(process, conn));
    }

    /// Brings one viewer as far as its socket takes it.
    fn serve(&mut self, process: ProcessIdx, id: ConnId) {
        let (now, limits) = (self.now, self.walk_limits());
        for _ in 0..FRAMES_MAX {
            let host = &mut self.processes[process];
            let Some(conn) = host.conns.get_mut(&id) else { return };
            let (Some(place), None) = (&mut conn.place, &conn.rest) else { return };
            let Some(roster) = host.rooms.get(&conn.room) else { return };
            let mut walk = Walk::new(&roster.ring, limits, now);
            match walk.step(place) {
                Step::AtHead => return place.rest(walk.head()),
                Step::Late => return self.close(process, id, 4200),
                Step::BelowFloor if place.catch_up.is_none() => return self.close(process, id, 4200),
                Step::BelowFloor => return self.ask_page(process, id),
                Step::Send(plan) => {
                    let entries = walk.entries(&plan);
                    // Nobody here writes under a shadow ban, so what is private is nobody's.
                    let events: Vec<Arc<Record>> = entries.filter(|e| !e.private).map(|e| e.payload.clone()).collect();
                    place.advance(&plan);
                    if plan.skipped.is_some() || !events.is_empty() {
                        let down = Down::Events { skipped: plan.skipped, events };
                        self.send(process, id, down, plan.priority_since);
                    }
                }
            }
        }
    }

    fn send(&mut self, process: ProcessIdx, id: ConnId, down: Down, priority_since: Option<Mono>) {
        let wait = self.draw(1, 15);
        let when = self.now + wait;
        let Some(conn) = self.processes[process].conns.get_mut(&id) else { return };
        if conn.stalled_until.is_some() {
            assert!(conn.rest.is_none(), "one frame's rest at most");
            conn.rest = Some((down, priority_since));
            return;
        }
        let when = when.max(conn.last_down);
        conn.last_down = when;
        let client = conn.client;
        self.at(when, Event::Down { client, conn: id, down });
    }

    fn close(&mut self, process: ProcessIdx, id: ConnId, code: u16) {
        let Some(conn) = self.processes[process].conns.remove(&id) else { return };
        self.n_slow += u64::from(code == 4200);
        let when = self.now.max(conn.last_down);
        self.at(when, Event::Down { client: conn.client, conn: id, down: Down::Closed { code } });
    }

    pub(super) fn on_up(&mut self, process: ProcessIdx, id: ConnId, client: ClientIdx, up: Up) {
        let now = self.now;
        match up {
            Up::Open { cursor, hello_first } => self.open(process, id, client, cursor, hello_first),
            Up::Gone => {
                self.processes[process].conns.remove(&id);
            }
            Up::Hello { cursor } => {
                let credential = Ok(Some(self.credential(client)));
                let op = Op::Hello { credential, cursor };
                let Some(conn) = self.processes[process].conns.get_mut(&id) else { return };
                let action = conn.session.on_op(op, now, &mut self.rng);
                self.act(process, id, action);
            }
            Up::Ping => {
                let Some(conn) = self.processes[process].conns.get_mut(&id) else { return };
                let action = conn.session.on_op(Op::Ping, now, &mut self.rng);
                self.act(process, id, action);
            }
            Up::Publish { key, text, reply_to } => self.on_publish(process, id, client, key, text, reply_to),
        }
    }

    fn open(&mut self, process: ProcessIdx, id: ConnId, client: ClientIdx, cursor: Position, hello_first: bool) {
        let now = self.now;
        if !self.processes[process].started {
            return self.at(now, Event::Down { client, conn: id, down: Down::Closed { code: 4153 } });
        }
        let room = self.clients[client].room.clone();
        let credential = (!hello_first).then(|| self.credential(client));
        let start = Start {
            room: room.clone(),
            credential,
            offers_subprotocol: true,
            anonymous_view: true,
            cursor: if hello_first { Position::START } else { cursor },
        };
        let (session, action) = Session::new(start, now, &mut self.rng).expect("anonymous viewing is allowed");
        let conn =
            Conn { client, session, room, place: None, stalled_until: None, rest: None, paging: false, last_down: now };
        self.processes[process].conns.insert(id, conn);
        self.act(process, id, action);
    }

    fn credential(&self, client: ClientIdx) -> Credential {
        let exp = Wall(WALL_BASE + 3_600_000);
        Credential { user: self.clients[client].user.clone(), exp, may_publish: true, exempt: false }
    }

    fn act(&mut self, process: ProcessIdx, id: ConnId, action: Action) {
        match action {
            Action::Greet { room, cursor } => self.subscribe(process, id, room, cursor),
            Action::Pong => {
                let down = Down::Pong;
                let stalled = self.processes[process].conns.get(&id).is_some_and(|c| c.stalled_until.is_some());
                if !stalled {
                    self.send(process, id, down, None);
                }
            }
            Action::Close(close) => self.close(process, id, close.code()),
            _ => {}
        }
    }

    /// Registers first, then asks what the cursor is worth: nothing is lost between.
    fn subscribe(&mut self, process: ProcessIdx, id: ConnId, room: RoomId, cursor: Position) {
        let (now, limits) = (self.now, self.ring_limits());
        let window = Duration::from_secs(self.plan.resume_window.into());
        let roster = self.processes[process].roster(&room, limits);
        match resume::from_ring(&roster.ring, cursor, window, now, &[]) {
            Some(answer) => self.greet(process, id, cursor, answer),
            None => {
                let wait = self.draw(1, 60);
                self.after(wait, Event::Resume { process, conn: id, cursor });
            }
        }
    }

    pub(super) fn on_resume(&mut self, process: ProcessIdx, id: ConnId, cursor: Position) {
        let wall = self.wall(process);
        let Some(conn) = self.processes[process].conns.get(&id) else { return };
        if conn.place.is_some() {
            return;
        }
        let answer = self.processes[process].resume(&conn.room, cursor, wall);
        self.greet(process, id, cursor, answer);
    }

    fn greet(&mut self, process: ProcessIdx, id: ConnId, asked: Position, answer: Answer) {
        let Some(conn) = self.processes[process].conns.get_mut(&id) else { return };
        conn.place = Some(answer.place());
        let (cursor, pseq) = answer.baseline();
        let (kind, skipped) = match answer {
            Answer::Live { .. } => (Begun::Live, None),
            Answer::Resumed { skipped, .. } => (Begun::Resumed, skipped),
            Answer::SnapshotRequired { .. } => (Begun::Snapshot, None),
        };
        self.send(process, id, Down::Hello { asked, cursor, pseq, kind, skipped }, None);
        self.serve(process, id);
    }

    fn ask_page(&mut self, process: ProcessIdx, id: ConnId) {
        let host = &mut self.processes[process];
        let Some(conn) = host.conns.get_mut(&id) else { return };
        let Some(place) = conn.place.filter(|_| !std::mem::replace(&mut conn.paging, true)) else { return };
        let room = conn.room.clone();
        let (records, upto) = host.page(&room, place.position, PAGE_ROWS);
        let copies = 1 + u64::from(self.fault(Fault::DoubleReply));
        for _ in 0..copies {
            let wait = self.draw(1, 40);
            self.after(wait, Event::Page { process, conn: id, records: records.clone(), upto });
        }
    }

    pub(super) fn on_page(&mut self, process: ProcessIdx, id: ConnId, records: Vec<Arc<Record>>, upto: Position) {
        let Some(conn) = self.processes[process].conns.get_mut(&id) else { return };
        conn.paging = false;
        let (Some(place), None) = (&mut conn.place, &conn.rest) else { return };
        let wanted = |r: &&Arc<Record>| {
            r.audience == Audience::Everyone && r.lane().is_some_and(|lane| place.wants(r.event_id(), lane))
        };
        let events: Vec<Arc<Record>> = records.iter().filter(wanted).cloned().collect();
        place.advance_page(upto);
        if !events.is_empty() {
            self.send(process, id, Down::Events { skipped: None, events }, None);
        }
        self.serve(process, id);
    }

    fn on_publish(
        &mut self,
        process: ProcessIdx,
        id: ConnId,
        client: ClientIdx,
        key: ClientMsgId,
        text: Arc<str>,
        reply_to: Option<EventId>,
    ) {
        let now = self.now;
        let Some(conn) = self.processes[process].conns.get_mut(&id) else { return };
        match conn.session.on_op(Op::Publish { room: None }, now, &mut self.rng) {
            Action::Publish { room } => {
                let user = self.clients[client].user.clone();
                let author =
                    Author { display: user.as_str().into(), user, badges: Arc::from([]), standing: Standing::Viewer };
                let publish = Publish { room, author, client_msg_id: key.clone(), text, reply_to };
                self.submit(process, Asker::Conn { conn: id, client, key }, Command::Publish(publish));
            }
            Action::Refuse(_) => {
                self.after(Duration::from_millis(1), Event::Down { client, conn: id, down: Down::NotAllowed { key } })
            }
            other => self.act(process, id, other),
        }
    }

    pub(super) fn on_gateway_tick(&mut self, process: ProcessIdx) {
        let (now, wall, limits) = (self.now, self.wall(process), self.walk_limits());
        self.after(GATEWAY_EVERY, Event::GatewayTick { process });
        self.processes[process].rooms.values_mut().for_each(|roster| roster.ring.trim(now));
        let ids: Vec<ConnId> = self.processes[process].conns.keys().copied().collect();
        for id in ids {
            let host = &mut self.processes[process];
            let Some(conn) = host.conns.get_mut(&id) else { continue };
            let action = conn.session.on_deadline(now, wall);
            if conn.stalled_until.is_some_and(|until| until <= now) || self.healed {
                conn.stalled_until = None;
            }
            let late =
                conn.rest.as_ref().and_then(|(_, since)| *since).is_some_and(|since| is_late(since, now, &limits));
            let behind = conn.stalled_until.is_some()
                && host
                    .rooms
                    .get(&conn.room)
                    .zip(conn.place)
                    .is_some_and(|(roster, place)| Walk::new(&roster.ring, limits, now).step(&place) == Step::Late);
            if behind || (late && conn.stalled_until.is_some()) {
                self.close(process, id, 4200);
                continue;
            }
            if conn.stalled_until.is_none()
                && let Some((down, since)) = conn.rest.take()
            {
                self.send(process, id, down, since);
                self.serve(process, id);
            }
            self.act(process, id, action);
        }
    }

    pub(super) fn stall(&mut self, client: ClientIdx, until: Mono) {
        let Some((process, id)) = self.clients[client].conn else { return };
        if let Some(conn) = self.processes[process].conns.get_mut(&id) {
            conn.stalled_until = conn.stalled_until.max(Some(until));
        }
    }

    pub(super) fn crash_worker(&mut self, process: ProcessIdx) {
        let Some(room) = self.processes[process].rooms.keys().next().cloned() else { return };
        let ids: Vec<ConnId> =
            self.processes[process].conns.iter().filter(|(_, c)| c.room == room).map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| self.close(process, id, 1006));
        self.processes[process].rooms.remove(&room);
    }

    /// Whether a client's connection stands on a process that runs.
    pub(super) fn is_connected(&self, client: ClientIdx) -> bool {
        self.clients[client].conn.is_some_and(|(process, id)| {
            let host = &self.processes[process];
            host.state == State::Running && host.conns.get(&id).is_some_and(|conn| conn.place.is_some())
        })
    }
}
