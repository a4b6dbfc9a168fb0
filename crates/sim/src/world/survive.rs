//! Gateways that outlive their owner: viewers keep their places, and each ring is joined to the log once the next one is there.
//!
//! How a ring is filled is the rule that gateways follow; only what a shell adds is written again, as small as it can be.

use std::ops::AddAssign;
use std::sync::Arc;
use std::time::Duration;

use grandstand_core::ids::Position;
use grandstand_core::names::RoomId;
use grandstand_core::record::Record;
use grandstand_core::viewer::refill::{Ask, Next, Refill, Stand, Took, waits_for_past};
use grandstand_core::viewer::resume;
use grandstand_core::viewer::ring::Rejoin;

use crate::options::Fault;
use crate::process::{Conn, ConnId, Past, RoomFacts, State, entry, taken_back};
use crate::world::gateway::{LINK_WAIT, PAGE_ROWS};
use crate::world::{Down, Event, GatewayIdx, ProcessIdx, World};

/// A reader that has not answered by then will not. Less than a late reply of this world takes, so that both happen.
const ANSWER_WAIT: Duration = Duration::from_secs(2);

/// What surviving came to in a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Survived {
    /// Viewers who kept their places when their owner died.
    pub viewers: u64,
    /// Rings that were joined to what they had been, by pages of the log.
    pub joined: u64,
    /// Rings that were whole: nothing had come.
    pub whole: u64,
    pub pages: u64,
    /// Rings that could not be filled.
    pub given_up: u64,
    /// Cursors that waited for the ring instead of reading the log.
    pub waited: u64,
}

impl AddAssign for Survived {
    fn add_assign(&mut self, other: Survived) {
        self.viewers += other.viewers;
        self.joined += other.joined;
        self.whole += other.whole;
        self.pages += other.pages;
        self.given_up += other.given_up;
        self.waited += other.waited;
    }
}

impl World {
    /// A gateway that stands without an owner, for the next one.
    pub(super) fn survivor(&self) -> Option<GatewayIdx> {
        let orphan = |owner: Option<ProcessIdx>| owner.is_none_or(|p| self.processes[p].state == State::Dead);
        self.gateways.iter().position(|gateway| gateway.state == State::Running && orphan(gateway.owner))
    }

    /// Viewers are told and stay; who was half way in comes again.
    pub(super) fn on_away(&mut self, gateway: GatewayIdx, process: ProcessIdx) {
        let host = &mut self.gateways[gateway];
        if host.owner != Some(process) {
            return;
        }
        host.owner = None;
        for room in host.rooms.keys().cloned().collect::<Vec<_>>() {
            if self.gateways[gateway].rooms[&room].refill.is_some() {
                self.give_up(gateway, &room);
            }
        }
        let ungreeted = |conn: &Conn| conn.place.is_none() && conn.session.is_live();
        let conns = self.gateways[gateway].conns.iter();
        let conns: Vec<(ConnId, bool)> = conns.map(|(id, conn)| (*id, ungreeted(conn))).collect();
        for (id, ungreeted) in conns {
            if ungreeted {
                self.close(gateway, id, 4153);
            } else {
                self.survived.viewers += 1;
                self.send_aside(gateway, id, Down::Paused);
            }
        }
    }

    /// Links a gateway to the owner that is there now, and asks how its rooms stand.
    pub(super) fn look_for_owner(&mut self, gateway: GatewayIdx) {
        let there = |process: &ProcessIdx| {
            let process = &self.processes[*process];
            process.state == State::Running && process.started
        };
        let Some(process) = self.current.filter(there) else { return };
        let host = &mut self.gateways[gateway];
        if host.owner.is_some() {
            return;
        }
        host.owner = Some(process);
        host.n_links += 1;
        let link = host.n_links;
        let facts = host.rooms.keys().map(|room| self.processes[process].facts(room)).collect();
        // Every later batch follows the facts.
        self.after(LINK_WAIT, Event::Facts { gateway, process, link, facts });
        self.hand_on_again(gateway, process);
        self.ask_fates(gateway, process);
        let mut readers = Vec::new();
        for (id, conn) in &mut self.gateways[gateway].conns {
            if std::mem::take(&mut conn.paging) {
                readers.push(*id);
            }
        }
        readers.into_iter().for_each(|id| self.serve(gateway, id));
    }

    pub(super) fn on_facts(&mut self, gateway: GatewayIdx, process: ProcessIdx, link: u64, facts: Vec<RoomFacts>) {
        if self.gateways[gateway].owner != Some(process) {
            return;
        }
        for facts in facts {
            self.take_totals(gateway, &[(facts.room.clone(), facts.likes.clone())]);
            if let Some(roster) = self.gateways[gateway].rooms.get_mut(&facts.room).filter(|r| r.link < link) {
                roster.blackouts = (facts.head, facts.blackouts.clone());
            }
            self.sweep(gateway, &facts.room);
            self.rejoin(gateway, link, &facts);
        }
    }

    fn rejoin(&mut self, gateway: GatewayIdx, link: u64, facts: &RoomFacts) {
        let (now, limits, room) = (self.now, self.ring_limits(), &facts.room);
        // A room that was forgotten and asked for again stands on newer facts.
        let Some(roster) = self.gateways[gateway].rooms.get_mut(room).filter(|roster| roster.link < link) else {
            return;
        };
        roster.link = link;
        let stand = Stand { head: facts.head, last_event: facts.last_event, pseq: facts.pseq };
        let (how, refill) = Refill::rejoin(&mut roster.ring, &mut roster.last_event, stand, limits, now);
        roster.refill = refill;
        match how {
            Rejoin::Whole => {
                self.survived.whole += 1;
                self.walk(gateway, room);
            }
            Rejoin::Gap => self.ask_past(gateway, room),
            Rejoin::Lost => {
                roster.retracts.clear();
                self.broken.push(format!("gateway {gateway} was given what the log of {room} does not know"));
                self.close_below(gateway, room);
            }
        }
    }

    fn ask_past(&mut self, gateway: GatewayIdx, room: &RoomId) {
        let now = self.now;
        let host = &mut self.gateways[gateway];
        host.n_requests += 1;
        let (request, owner) = (host.n_requests, host.owner);
        let Some(roster) = host.rooms.get_mut(room) else { return };
        let Some(refill) = &mut roster.refill else { return };
        let Ask { upto, seen } = refill.ask(&roster.ring, request, now);
        // Nobody answers: the gateway will notice.
        let Some(process) = owner.filter(|p| self.processes[*p].state != State::Dead) else { return };
        let page = self.processes[process].past(room, upto, seen, PAGE_ROWS);
        if self.fault(Fault::LostReply) {
            return;
        }
        let copies = 1 + u64::from(self.fault(Fault::DoubleReply));
        for _ in 0..copies {
            let wait = if self.fault(Fault::LateReply) { self.draw(500, 4_000) } else { self.draw(1, 40) };
            self.after(wait, Event::Past { gateway, room: room.clone(), request, page: page.clone() });
        }
    }

    pub(super) fn on_past(&mut self, gateway: GatewayIdx, room: &RoomId, request: u64, page: Option<Past>) {
        let now = self.now;
        let Some(owner) = self.gateways[gateway].owner else { return };
        let wall = self.wall(owner);
        let Some(roster) = self.gateways[gateway].rooms.get_mut(room) else { return };
        let Some(refill) = roster.refill.as_mut().filter(|refill| refill.awaits(request)) else { return };
        let Some((records, after)) = page else { return self.give_up(gateway, room) };
        let past = records.iter().filter_map(|record| entry(record, refill.came_at(record.ts, wall, now))).collect();
        let took = refill.take(&mut roster.ring, after, past, now);
        roster.retracts.note_past(records.iter().filter_map(|record| taken_back(record)));
        if took == Took::Broken {
            return self.give_up(gateway, room);
        }
        self.survived.pages += 1;
        if let Took::Joined { whole } = took {
            if !whole {
                self.broken.push(format!("a ring of {room} does not join what it was before"));
            }
            self.survived.joined += 1;
            self.close_below(gateway, room);
            self.walk(gateway, room);
        }
        let Some(roster) = self.gateways[gateway].rooms.get_mut(room) else { return };
        let Some(refill) = &roster.refill else { return };
        match refill.next(&roster.ring, roster.below.iter().map(|(_, cursor)| *cursor), now) {
            Next::Done => {
                roster.refill = None;
                self.walk(gateway, room);
            }
            Next::Ask => self.ask_past(gateway, room),
            Next::GiveUp => return self.give_up(gateway, room),
        }
        self.judge_waiting(gateway, room);
    }

    /// The ring stays as it is; those before its floor come back with their cursors.
    fn give_up(&mut self, gateway: GatewayIdx, room: &RoomId) {
        let Some(roster) = self.gateways[gateway].rooms.get_mut(room) else { return };
        roster.refill = None;
        self.survived.given_up += 1;
        self.close_below(gateway, room);
        self.walk(gateway, room);
        self.judge_waiting(gateway, room);
    }

    /// Closes those whom the ring cannot serve from where they stand. Who is catching up goes back to the log by itself.
    fn close_below(&mut self, gateway: GatewayIdx, room: &RoomId) {
        let host = &self.gateways[gateway];
        let floor = host.rooms[room].ring.floor();
        let stands_below =
            |conn: &Conn| conn.room == *room && conn.place.is_some_and(|p| p.position < floor && p.catch_up.is_none());
        let below: Vec<ConnId> = host.conns.iter().filter(|(_, c)| stands_below(c)).map(|(id, _)| *id).collect();
        below.into_iter().for_each(|id| self.close(gateway, id, 4201));
    }

    /// Whether a viewer whose cursor the ring does not hold waits until it does. `false`: it asks the log for itself.
    pub(super) fn wait_for_past(&mut self, gateway: GatewayIdx, id: ConnId, room: &RoomId, cursor: Position) -> bool {
        let (now, shares) = (self.now, self.plan.shares_reads);
        let Some(roster) = self.gateways[gateway].rooms.get_mut(room) else { return false };
        let fills = roster.refill.is_some() || shares;
        if cursor == Position::START || !fills || !waits_for_past(&roster.ring, roster.refill.as_ref(), cursor, now) {
            return false;
        }
        self.survived.waited += 1;
        roster.below.push((id, cursor));
        if roster.refill.is_none() {
            roster.refill = Some(Refill::of_past(&roster.ring, now));
            self.ask_past(gateway, room);
        }
        true
    }

    /// Judges cursors that the ring has come to hold, or will not.
    fn judge_waiting(&mut self, gateway: GatewayIdx, room: &RoomId) {
        let (now, window) = (self.now, Duration::from_secs(self.plan.resume_window.into()));
        let Some(roster) = self.gateways[gateway].rooms.get_mut(room) else { return };
        let (floor, over) = (roster.ring.floor(), roster.refill.is_none());
        let (taken, left) =
            std::mem::take(&mut roster.below).into_iter().partition(|(_, cursor)| over || *cursor >= floor);
        roster.below = left;
        let taken: Vec<(ConnId, Position)> = taken;
        for (id, cursor) in taken {
            let host = &self.gateways[gateway];
            let waits = host.conns.get(&id).is_some_and(|conn| conn.place.is_none());
            if !waits {
                continue;
            }
            let Some(roster) = host.rooms.get(room) else { return };
            match (resume::from_ring(&roster.ring, cursor, window, now, &[]), host.owner) {
                (Some(answer), _) => self.greet(gateway, id, cursor, answer),
                (None, Some(process)) => self.ask_resume(gateway, process, id, cursor),
                (None, None) => self.close(gateway, id, 4153),
            }
        }
    }

    /// A reader whose answer was lost is not waited for any longer.
    pub(super) fn keep_refills(&mut self, gateway: GatewayIdx) {
        let now = self.now;
        let late = |refill: &Refill<Arc<Record>>| refill.is_late(ANSWER_WAIT, now);
        let rooms = self.gateways[gateway].rooms.iter();
        let rooms = rooms.filter(|(_, roster)| roster.refill.as_ref().is_some_and(late));
        for room in rooms.map(|(room, _)| room.clone()).collect::<Vec<_>>() {
            self.give_up(gateway, &room);
        }
    }
}
