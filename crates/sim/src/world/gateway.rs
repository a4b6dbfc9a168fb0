//! The gateway's shell: connections, rosters and walks of the simulated gateways.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use grandstand_core::ids::{EventId, Position};
use grandstand_core::names::{ClientMsgId, RoomId};
use grandstand_core::owner::command::{Author, Command, Publish, Standing};
use grandstand_core::planted::planted;
use grandstand_core::record::{Audience, Body, Record};
use grandstand_core::regions::is_blacked_out;
use grandstand_core::sampler::silence::{self, GivenAt};
use grandstand_core::time::{Mono, Wall};
use grandstand_core::viewer::merge::Leave;
use grandstand_core::viewer::resume::{self, Answer};
use grandstand_core::viewer::retracts::Retracts;
use grandstand_core::viewer::ring;
use grandstand_core::viewer::session::{Action, Credential, Op, Session, Start};
use grandstand_core::viewer::walk::{Limits, Step, Walk, is_late};

use super::clients::MEMBER;
use crate::history::{Begun, ClientIdx, Picked, Seen};
use crate::options::Fault;
use crate::process::{Asker, CAP_MILLI, Conn, ConnId, ReadPage, State, entry, lot, picked, reader, taken_back};
use crate::world::{Down, Event, GATEWAY_EVERY, GatewayIdx, ProcessIdx, Up, WALL_BASE, World};

/// Rows of one page: small, so that a catch-up has several.
pub(super) const PAGE_ROWS: usize = 7;
/// Frames for one viewer in one turn; more than any ring of a run holds.
const FRAMES_MAX: usize = 10_000;
/// Of a frame that comes event by event.
const BETWEEN_EVENTS: Duration = Duration::from_millis(2);
/// Between an owner and its gateways; nothing overtakes on it.
pub(super) const LINK_WAIT: Duration = Duration::from_micros(300);

impl World {
    pub(super) fn ring_limits(&self) -> ring::Limits {
        ring::Limits { bytes: self.plan.ring_bytes, ..ring::Limits::default() }
    }

    fn walk_limits(&self) -> Limits {
        Limits { plan_bytes: self.plan.plan_bytes, ..Limits::default() }
    }

    /// What was committed goes to every gateway of the owner.
    pub(super) fn publish(&mut self, process: ProcessIdx, records: Vec<Arc<Record>>) {
        for gateway in self.linked_to(process) {
            if self.fault(Fault::DoubleLink) {
                let later = self.draw(1, 200);
                self.after(later, Event::Link { gateway, process, records: records.clone() });
            }
            self.after(LINK_WAIT, Event::Link { gateway, process, records: records.clone() });
        }
    }

    pub(super) fn on_link(&mut self, gateway: GatewayIdx, process: ProcessIdx, records: Vec<Arc<Record>>) {
        let now = self.now;
        if self.gateways[gateway].owner != Some(process) {
            return;
        }
        let Some(head) = records.last().map(|r| r.event_id().position()) else { return };
        for record in &records {
            if let Body::Tally(tally) = &record.body {
                self.take_totals(gateway, &tally.rooms);
            }
        }
        let rooms: Vec<RoomId> = self.gateways[gateway].rooms.keys().cloned().collect();
        for room in rooms {
            let roster = self.gateways[gateway].rooms.get_mut(&room).expect("just listed");
            let mine = records.iter().filter(|r| r.room.as_ref() == Some(&room)).filter_map(|r| entry(r, now));
            let (mut any, mut closes) = (false, false);
            for entry in mine {
                (any, closes) = (true, closes || entry.closes_window);
                roster.last_event = roster.last_event.max(entry.id.position());
                roster.ring.push(entry);
            }
            let taken = records.iter().filter(|r| r.room.as_ref() == Some(&room)).filter_map(|r| taken_back(r));
            taken.for_each(|(id, target)| roster.retracts.note(id, &target));
            roster.ring.advance(head);
            let newest = records.iter().filter(|r| r.room.as_ref() == Some(&room)).rev().find_map(|r| match &r.body {
                Body::Room(settings) => Some((r.event_id().position(), settings.blackout_regions.clone())),
                _ => None,
            });
            // A batch that comes twice says nothing new.
            if let Some(newest) = newest.filter(|(at, _)| *at > roster.blackouts.0) {
                roster.blackouts = newest;
                self.sweep(gateway, &room);
            }
            let roster = self.gateways[gateway].rooms.get_mut(&room).expect("just listed");
            if !any {
                continue;
            }
            match roster.merge.on_events(closes, now) {
                Leave::Now => self.walk(gateway, &room),
                Leave::At(_) => {
                    let due = roster.merge.deadline();
                    if let Some(due) = due.filter(|due| roster.due.is_none_or(|known| *due < known)) {
                        roster.due = Some(due);
                        self.at(due, Event::MergeDue { gateway, room });
                    }
                }
            }
        }
    }

    /// Who is in already is held against where the room may be shown.
    pub(super) fn sweep(&mut self, gateway: GatewayIdx, room: &RoomId) {
        let conns = self.gateways[gateway].conns.iter().filter(|(_, conn)| conn.room == *room);
        let out = conns.filter(|(_, conn)| !self.may_view(gateway, room, conn.client) && !planted(162));
        let out: Vec<ConnId> = out.map(|(id, _)| *id).collect();
        out.into_iter().for_each(|id| self.close(gateway, id, 4451));
    }

    fn may_view(&self, gateway: GatewayIdx, room: &RoomId, client: ClientIdx) -> bool {
        let roster = self.gateways[gateway].rooms.get(room);
        roster.is_none_or(|roster| !is_blacked_out(&roster.blackouts.1, Some(self.clients[client].region)))
    }

    pub(super) fn on_merge_due(&mut self, gateway: GatewayIdx, room: &RoomId) {
        let now = self.now;
        let Some(roster) = self.gateways[gateway].rooms.get_mut(room) else { return };
        roster.due = None;
        if roster.merge.deadline().is_some_and(|due| due <= now) {
            self.walk(gateway, room);
        }
    }

    pub(super) fn walk(&mut self, gateway: GatewayIdx, room: &RoomId) {
        let now = self.now;
        let Some(roster) = self.gateways[gateway].rooms.get_mut(room) else { return };
        roster.merge.on_walk(now);
        roster.due = None;
        let conns: Vec<ConnId> =
            self.gateways[gateway].conns.iter().filter(|(_, c)| c.room == *room).map(|(id, _)| *id).collect();
        conns.into_iter().for_each(|conn| self.serve(gateway, conn));
    }

    /// Brings one viewer as far as its socket takes it.
    pub(super) fn serve(&mut self, gateway: GatewayIdx, id: ConnId) {
        let (now, limits, (cap_milli, ordered)) = (self.now, self.walk_limits(), self.cap(gateway, self.now));
        for _ in 0..FRAMES_MAX {
            let host = &mut self.gateways[gateway];
            let Some(conn) = host.conns.get_mut(&id) else { return };
            let (Some(place), None) = (&mut conn.place, &conn.rest) else { return };
            let Some(roster) = host.rooms.get(&conn.room) else { return };
            let mut walk = Walk::new(&roster.ring, limits, now);
            match walk.step(place) {
                Step::AtHead => return place.rest(walk.head()),
                Step::Late => return self.close(gateway, id, 4200),
                Step::BelowFloor if roster.refill.is_some() => return,
                Step::BelowFloor if place.catch_up.is_none() => return self.close(gateway, id, 4200),
                Step::BelowFloor => return self.ask_page(gateway, id),
                Step::Send(plan) => {
                    let mut given = Vec::new();
                    let mut chosen = None;
                    if plan.holds_won {
                        let live = place.catch_up.is_none();
                        let waited = live.then_some(conn.given_at);
                        let due = silence::due(cap_milli, waited, now);
                        let mut windows = walk.winners(&plan);
                        let reader = reader(&self.clients[conn.client].user, cap_milli);
                        let due = windows.pick_due(due, &reader, &mut given);
                        // What is too late for it is told.
                        let n_given = given.len();
                        if plan.n_sent(&given) > 0 {
                            conn.given_at = due.given_at(waited, now);
                        }
                        let (client, windows) = (conn.client, windows.numbers().collect());
                        let (from, to) = (place.position, plan.upto);
                        chosen = Some(Picked { client, cap_milli, ordered, live, windows, n_given, from, to });
                    }
                    let entries = walk.entries_given(&plan, &given);
                    // Nobody here writes under a shadow ban, so what is private is nobody's.
                    let shown = |r: &Record| is_comment(r) && roster.retracts.hide(r.event_id(), r.user.as_ref(), r.ts);
                    let events = entries.filter(|e| !e.private && !shown(&e.payload)).map(|e| e.payload.clone());
                    let events: Vec<Arc<Record>> = events.collect();
                    let skipped = walk.passed_over(&plan, &given);
                    let head = walk.head();
                    place.advance(&plan);
                    chosen.into_iter().for_each(|chosen| self.saw(Seen::Picked(chosen)));
                    if skipped.is_some() || !events.is_empty() {
                        let down = Down::Events { skipped, events, head };
                        self.send(gateway, id, down, plan.priority_since);
                    }
                }
            }
        }
    }

    pub(super) fn send(&mut self, gateway: GatewayIdx, id: ConnId, down: Down, priority_since: Option<Mono>) {
        let wait = self.draw(1, 15);
        let when = self.now + wait;
        let Some(conn) = self.gateways[gateway].conns.get_mut(&id) else { return };
        if conn.stalled_until.is_some() {
            assert!(conn.rest.is_none(), "one frame's rest at most");
            conn.rest = Some((down, priority_since));
            return;
        }
        let when = when.max(conn.last_down);
        let client = conn.client;
        // To every other client what is one frame comes event by event, and the connection may break within it.
        let downs = if client % 2 == 1 { apart(down) } else { vec![down] };
        let times: Vec<Mono> = (0..downs.len() as u32).map(|n| when + BETWEEN_EVENTS * n).collect();
        conn.last_down = times.last().copied().unwrap_or(when);
        for (when, down) in times.into_iter().zip(downs) {
            self.at(when, Event::Down { client, conn: id, down });
        }
    }

    pub(super) fn close(&mut self, gateway: GatewayIdx, id: ConnId, code: u16) {
        let Some(conn) = self.gateways[gateway].conns.remove(&id) else { return };
        self.n_slow += u64::from(code == 4200);
        let when = self.now.max(conn.last_down);
        self.at(when, Event::Down { client: conn.client, conn: id, down: Down::Closed { code } });
    }

    /// What is not worth keeping for a socket that takes nothing.
    pub(super) fn send_aside(&mut self, gateway: GatewayIdx, id: ConnId, down: Down) {
        let stalled = self.gateways[gateway].conns.get(&id).is_some_and(|c| c.stalled_until.is_some());
        if !stalled {
            self.send(gateway, id, down, None);
        }
    }

    pub(super) fn on_up(&mut self, gateway: GatewayIdx, id: ConnId, client: ClientIdx, up: Up) {
        let now = self.now;
        match up {
            Up::Open { cursor, hello_first } => self.open(gateway, id, client, cursor, hello_first),
            Up::Gone => {
                self.gateways[gateway].conns.remove(&id);
            }
            Up::Hello { cursor } => {
                let credential = Ok(Some(self.credential(client)));
                let op = Op::Hello { credential, cursor };
                let Some(conn) = self.gateways[gateway].conns.get_mut(&id) else { return };
                let action = conn.session.on_op(op, now, &mut self.rng);
                self.act(gateway, id, action);
            }
            Up::Ping => {
                let Some(conn) = self.gateways[gateway].conns.get_mut(&id) else { return };
                let action = conn.session.on_op(Op::Ping, now, &mut self.rng);
                self.act(gateway, id, action);
            }
            Up::Like { n } => self.on_like(gateway, id, client, n),
            Up::Publish { key, text, reply_to } => self.on_publish(gateway, id, client, key, text, reply_to),
        }
    }

    fn open(&mut self, gateway: GatewayIdx, id: ConnId, client: ClientIdx, cursor: Position, hello_first: bool) {
        let now = self.now;
        if !self.gateways[gateway].owner.is_some_and(|process| self.processes[process].started) {
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
        let conn = Conn {
            client,
            session,
            room,
            place: None,
            stalled_until: None,
            rest: None,
            told: Default::default(),
            paging: false,
            awaited: BTreeSet::new(),
            last_down: now,
            given_at: GivenAt::new(now),
        };
        self.gateways[gateway].conns.insert(id, conn);
        self.act(gateway, id, action);
    }

    fn credential(&self, client: ClientIdx) -> Credential {
        let exp = Wall(WALL_BASE + 3_600_000);
        Credential { user: self.clients[client].user.clone(), exp, may_publish: true, exempt: false }
    }

    fn act(&mut self, gateway: GatewayIdx, id: ConnId, action: Action) {
        match action {
            Action::Greet { room, cursor } => self.subscribe(gateway, id, room, cursor),
            Action::Pong => {
                self.send_aside(gateway, id, Down::Pong);
            }
            Action::Close(close) => self.close(gateway, id, close.code()),
            _ => {}
        }
    }

    /// Registers first, then asks what the cursor is worth: nothing is lost between.
    fn subscribe(&mut self, gateway: GatewayIdx, id: ConnId, room: RoomId, cursor: Position) {
        let (now, limits) = (self.now, self.ring_limits());
        let window = Duration::from_secs(self.plan.resume_window.into());
        let host = &mut self.gateways[gateway];
        let Some(process) = host.owner else { return self.close(gateway, id, 4153) };
        let link = host.n_links;
        if !host.rooms.contains_key(&room) {
            if self.processes[process].state == State::Dead {
                // Nobody answers; the gateway will notice.
                return;
            }
            host.rooms.insert(room.clone(), self.processes[process].roster(&room, limits, link));
        }
        let client = self.gateways[gateway].conns.get(&id).map(|conn| conn.client);
        if client.is_some_and(|client| !self.may_view(gateway, &room, client)) {
            return self.close(gateway, id, 4451);
        }
        match resume::from_ring(&self.gateways[gateway].rooms[&room].ring, cursor, window, now, &[]) {
            Some(answer) => self.greet(gateway, id, cursor, answer),
            None if self.wait_for_past(gateway, id, &room, cursor) => {}
            None => self.ask_resume(gateway, process, id, cursor),
        }
    }

    pub(super) fn ask_resume(&mut self, gateway: GatewayIdx, process: ProcessIdx, id: ConnId, cursor: Position) {
        let wait = self.draw(1, 60);
        self.after(wait, Event::Resume { gateway, process, conn: id, cursor });
    }

    pub(super) fn on_resume(&mut self, gateway: GatewayIdx, process: ProcessIdx, id: ConnId, cursor: Position) {
        // Nobody answers: the gateway has noticed or will.
        if self.gateways[gateway].owner != Some(process) || self.processes[process].state != State::Running {
            return;
        }
        let wall = self.wall(process);
        let Some(conn) = self.gateways[gateway].conns.get(&id) else { return };
        if conn.place.is_some() {
            return;
        }
        let answer = self.processes[process].resume(&conn.room, cursor, wall);
        self.greet(gateway, id, cursor, answer);
    }

    pub(super) fn greet(&mut self, gateway: GatewayIdx, id: ConnId, asked: Position, answer: Answer) {
        let Some(conn) = self.gateways[gateway].conns.get_mut(&id) else { return };
        conn.place = Some(answer.place());
        let (cursor, pseq) = answer.baseline();
        let (kind, skipped) = match answer {
            Answer::Live { .. } => (Begun::Live, None),
            Answer::Resumed { from, comments_after, skipped, .. } => {
                let cut = (skipped.is_none() && comments_after > from).then_some(comments_after);
                (Begun::Resumed { cut }, skipped)
            }
            Answer::SnapshotRequired { .. } => (Begun::Snapshot, None),
        };
        let host = &mut self.gateways[gateway];
        let likes = match host.conns.get_mut(&id) {
            Some(conn) => {
                conn.told = host.rooms.get(&conn.room).map(|roster| roster.likes.clone()).unwrap_or_default();
                conn.told.clone()
            }
            None => Default::default(),
        };
        self.send(gateway, id, Down::Hello { asked, cursor, pseq, kind, skipped, likes }, None);
        self.serve(gateway, id);
    }

    fn ask_page(&mut self, gateway: GatewayIdx, id: ConnId) {
        let host = &mut self.gateways[gateway];
        let Some(conn) = host.conns.get_mut(&id) else { return };
        let Some(place) = conn.place.filter(|_| !std::mem::replace(&mut conn.paging, true)) else { return };
        let room = conn.room.clone();
        // Who reads while the owner is away asks again when one is there.
        let Some(process) = host.owner.filter(|p| self.processes[*p].state != State::Dead) else { return };
        let page = self.processes[process].page(&room, place.position, PAGE_ROWS);
        let copies = 1 + u64::from(self.fault(Fault::DoubleReply));
        for _ in 0..copies {
            let wait = self.draw(1, 40);
            self.after(wait, Event::Page { gateway, process, conn: id, page: page.clone() });
        }
    }

    pub(super) fn on_page(&mut self, gateway: GatewayIdx, id: ConnId, page: ReadPage) {
        let ReadPage { records, upto, hidden, head } = page;
        let (cap_milli, ordered) = self.cap(gateway, self.now);
        let host = &mut self.gateways[gateway];
        let Some(conn) = host.conns.get_mut(&id) else { return };
        conn.paging = false;
        let (Some(place), None) = (&mut conn.place, &conn.rest) else { return };
        let wanted = |r: &&Arc<Record>| {
            r.audience == Audience::Everyone && r.lane().is_some_and(|lane| place.wants(r.event_id(), lane))
        };
        let reader = reader(&self.clients[conn.client].user, cap_milli);
        let retracts = host.rooms.get(&conn.room).map(|roster| &roster.retracts);
        let taken_back = |r: &Record| {
            let hide = |retracts: &Retracts| retracts.hide(r.event_id(), r.user.as_ref(), r.ts);
            is_comment(r) && retracts.is_some_and(hide)
        };
        let shows = |r: &&Arc<Record>| !hidden.contains(&r.event_id()) && !taken_back(r);
        let events = picked(&records, &reader).filter(wanted).filter(shows).cloned().collect::<Vec<_>>();
        let chosen = Picked {
            client: conn.client,
            cap_milli,
            ordered,
            live: false,
            windows: records.iter().filter_map(|record| Some(lot(record)?.window)).collect(),
            n_given: 0,
            from: place.position,
            to: upto,
        };
        place.advance_page(upto);
        if cap_milli < CAP_MILLI && records.iter().any(|record| lot(record).is_some()) {
            self.saw(Seen::Picked(chosen));
        }
        if !events.is_empty() {
            self.send(gateway, id, Down::Events { skipped: None, events, head }, None);
        }
        self.serve(gateway, id);
    }

    fn on_publish(
        &mut self,
        gateway: GatewayIdx,
        id: ConnId,
        client: ClientIdx,
        key: ClientMsgId,
        text: Arc<str>,
        reply_to: Option<EventId>,
    ) {
        let now = self.now;
        let Some(conn) = self.gateways[gateway].conns.get_mut(&id) else { return };
        match conn.session.on_op(Op::Publish { room: None }, now, &mut self.rng) {
            Action::Publish { room } => {
                let user = self.clients[client].user.clone();
                let is_member = client.is_multiple_of(3) && self.plan.has(Fault::Rules);
                let badges: Arc<[Arc<str>]> = is_member.then(|| Arc::from(MEMBER)).into_iter().collect();
                let author = Author { display: user.as_str().into(), user, badges, standing: Standing::Viewer };
                let publish = Publish { room, author, client_msg_id: key.clone(), text, reply_to };
                match self.gateways[gateway].owner {
                    Some(process) if self.processes[process].state == State::Dead => {}
                    Some(process) => {
                        self.submit(process, Asker::Conn { conn: id, client, key }, Command::Publish(publish));
                    }
                    None => self.send_aside(gateway, id, Down::NotReady { key }),
                }
            }
            Action::Refuse(_) => {
                self.after(Duration::from_millis(1), Event::Down { client, conn: id, down: Down::NotAllowed { key } })
            }
            other => self.act(gateway, id, other),
        }
    }

    pub(super) fn on_gateway_tick(&mut self, gateway: GatewayIdx) {
        let wall = self.gateways[gateway].owner.map_or(Wall(WALL_BASE + self.now.0 / 1_000), |owner| self.wall(owner));
        let (now, limits) = (self.now, self.walk_limits());
        self.after(GATEWAY_EVERY, Event::GatewayTick { gateway });
        self.keep_shedder(gateway);
        self.look_for_owner(gateway);
        self.keep_refills(gateway);
        for roster in self.gateways[gateway].rooms.values_mut() {
            roster.ring.trim(now);
            // What an old ring holds will be held against them again.
            if roster.refill.is_none() {
                roster.retracts.forget(roster.ring.floor());
            }
        }
        let ids: Vec<ConnId> = self.gateways[gateway].conns.keys().copied().collect();
        for id in ids {
            let host = &mut self.gateways[gateway];
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
                self.close(gateway, id, 4200);
                continue;
            }
            if conn.stalled_until.is_none()
                && let Some((down, since)) = conn.rest.take()
            {
                self.send(gateway, id, down, since);
                self.serve(gateway, id);
            }
            self.act(gateway, id, action);
        }
        self.keep_likes(gateway);
    }

    pub(super) fn stall(&mut self, client: ClientIdx, until: Mono) {
        let Some((gateway, id)) = self.clients[client].conn else { return };
        if let Some(conn) = self.gateways[gateway].conns.get_mut(&id) {
            conn.stalled_until = conn.stalled_until.max(Some(until));
        }
    }

    pub(super) fn crash_worker(&mut self, gateway: GatewayIdx) {
        let Some(room) = self.gateways[gateway].rooms.keys().next().cloned() else { return };
        let ids: Vec<ConnId> =
            self.gateways[gateway].conns.iter().filter(|(_, c)| c.room == room).map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| self.close(gateway, id, 1006));
        self.gateways[gateway].rooms.remove(&room);
    }

    /// Whether a client's connection stands on a gateway that runs and has an owner.
    pub(super) fn is_connected(&self, client: ClientIdx) -> bool {
        self.clients[client].conn.is_some_and(|(gateway, id)| {
            let host = &self.gateways[gateway];
            host.state == State::Running
                && host.owner.is_some()
                && host.conns.get(&id).is_some_and(|conn| conn.place.is_some())
        })
    }
}

/// A frame's events one by one.
fn apart(down: Down) -> Vec<Down> {
    let Down::Events { mut skipped, events, head } = down else { return vec![down] };
    if events.is_empty() {
        return vec![Down::Events { skipped, events, head }];
    }
    let one = |event| Down::Events { skipped: skipped.take(), events: vec![event], head };
    events.into_iter().map(one).collect()
}

fn is_comment(record: &Record) -> bool {
    matches!(record.body, Body::Comment(_))
}
