//! The simulated world: one queue of events, one clock that jumps from one to the next, one source of chance.
//!
//! A run is a safety phase with faults, the healing, and a liveness phase without. The same seed is the same run to the last
//! event; the trace's hash says so.

mod clients;
mod gateway;
mod likes;
mod load;
mod storm;
mod survive;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use grandstand_core::ids::{Epoch, EventId, Position, Pseq};
use grandstand_core::likes::{Frame, Totals};
use grandstand_core::moderation::Ruling;
use grandstand_core::names::{ClientMsgId, RoomId};
use grandstand_core::owner;
use grandstand_core::owner::answer::{Answer, Failure, Known, Output};
use grandstand_core::owner::command::{Command, Tag};
use grandstand_core::planted::planted;
use grandstand_core::record::{Audience, Body, Record, Verdict};
use grandstand_core::rng::Rng;
use grandstand_core::time::{Mono, Wall};
use grandstand_core::viewer::walk::Skipped;

use crate::history::{Begun, ClientIdx, Line, Seen, Snapshot};
use crate::options::{Fault, Options, Plan};
use crate::process::{Asker, ConnId, Gateway, Past, Process, ReadOn, ReadPage, RoomFacts, Saved, State, take_backlog};
use clients::{Actor, Client};
use storm::Storm;
pub use survive::Survived;

pub type ProcessIdx = usize;
pub type GatewayIdx = usize;
pub type ActorIdx = usize;

/// 2026-06-11, kick-off of a tournament; any time would do.
const WALL_BASE: u64 = 1_781_000_000_000;
/// The two clocks are read in other units.
const LOG_TIME_SLACK: Duration = Duration::from_millis(2);
const NEMESIS_EVERY: Duration = Duration::from_millis(250);
const GATEWAY_EVERY: Duration = Duration::from_millis(100);
/// Within this of the last fault every viewer is at the head and every wish decided (I-16).
pub const HEAL_WITHIN: Duration = Duration::from_secs(10);
const CHECKPOINT_EVERY: usize = 40;

/// A frame from the server to one client.
#[derive(Clone, Debug)]
pub enum Down {
    Hello {
        asked: Position,
        cursor: Position,
        pseq: Pseq,
        kind: Begun,
        skipped: Option<Skipped>,
        likes: Totals,
    },
    /// A room's likes, told again.
    Totals {
        totals: Totals,
    },
    /// `head`: all up to here was known where they were chosen.
    Events {
        skipped: Option<Skipped>,
        events: Vec<Arc<Record>>,
        head: Position,
    },
    Answer {
        key: ClientMsgId,
        answer: Answer,
    },
    /// The session does not let it pass.
    NotAllowed {
        key: ClientMsgId,
    },
    /// The feed is paused: to be asked again.
    NotReady {
        key: ClientMsgId,
    },
    /// The owner is away; nobody is sent home.
    Paused,
    Pong,
    Closed {
        code: u16,
    },
}

/// A frame from a client to the server.
#[derive(Clone, Debug)]
pub enum Up {
    Open { cursor: Position, hello_first: bool },
    Hello { cursor: Position },
    Publish { key: ClientMsgId, text: Arc<str>, reply_to: Option<EventId> },
    Like { n: u32 },
    Ping,
    Gone,
}

#[derive(Clone, Debug)]
pub enum Event {
    Arrive {
        gateway: GatewayIdx,
        conn: ConnId,
        client: ClientIdx,
        up: Up,
    },
    Down {
        client: ClientIdx,
        conn: ConnId,
        down: Down,
    },
    Request {
        process: ProcessIdx,
        actor: ActorIdx,
        ask: u64,
        command: Box<Command>,
    },
    Reply {
        actor: ActorIdx,
        ask: u64,
        answer: Answer,
    },
    AskSnapshot {
        process: ProcessIdx,
        client: ClientIdx,
    },
    Snapshot {
        client: ClientIdx,
        shot: Arc<Snapshot>,
    },
    WriteDone {
        process: ProcessIdx,
        fate: Fate,
    },
    Link {
        gateway: GatewayIdx,
        process: ProcessIdx,
        records: Vec<Arc<Record>>,
    },
    MergeDue {
        gateway: GatewayIdx,
        room: RoomId,
    },
    Resume {
        gateway: GatewayIdx,
        process: ProcessIdx,
        conn: ConnId,
        cursor: Position,
    },
    Page {
        gateway: GatewayIdx,
        process: ProcessIdx,
        conn: ConnId,
        page: ReadPage,
    },
    /// A gateway notices that its owner is gone.
    Away {
        gateway: GatewayIdx,
        process: ProcessIdx,
    },
    /// A gateway is told how its rooms stand by the owner it has just been linked to.
    Facts {
        gateway: GatewayIdx,
        process: ProcessIdx,
        link: u64,
        facts: Vec<RoomFacts>,
    },
    Past {
        gateway: GatewayIdx,
        room: RoomId,
        request: u64,
        page: Option<Past>,
    },
    /// A round of likes on its way to an owner.
    Likes {
        gateway: GatewayIdx,
        process: ProcessIdx,
        frame: Frame,
    },
    /// A gateway is told up to which round its likes are counted.
    Settled {
        gateway: GatewayIdx,
        number: u64,
    },
    Verdict {
        process: ProcessIdx,
        tag: Tag,
        text: Arc<str>,
        verdict: Verdict,
    },
    OwnerDeadline {
        process: ProcessIdx,
    },
    GatewayTick {
        gateway: GatewayIdx,
    },
    ClientTick {
        client: ClientIdx,
    },
    ActorTick {
        actor: ActorIdx,
    },
    Nemesis,
    Start,
    Thaw {
        process: ProcessIdx,
    },
    /// A process that stood still learns that its lease is another's.
    LeaseEnd {
        process: ProcessIdx,
    },
    Heal,
}

/// How a write ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Written {
        twice: bool,
    },
    Failed(Failure),
    /// Records from .. to are written and the process dies.
    Dies {
        from: usize,
        to: usize,
    },
}

pub struct World {
    pub plan: Plan,
    pub now: Mono,
    rng: Rng,
    queue: BTreeMap<(Mono, u64), Event>,
    n_queued: u64,
    healed: bool,
    pub storage: Vec<Arc<Record>>,
    saved: Saved,
    pub processes: Vec<Process>,
    pub gateways: Vec<Gateway>,
    /// The newest owner.
    current: Option<ProcessIdx>,
    /// Where the front door leads.
    front: GatewayIdx,
    epoch: u32,
    next_conn: ConnId,
    pub clients: Vec<Client>,
    actors: Vec<Actor>,
    storms: BTreeMap<ActorIdx, Storm>,
    /// Ids that were acknowledged, for operators to retract and clients to answer.
    acked: BTreeMap<RoomId, Vec<EventId>>,
    pub history: Vec<Line>,
    /// What the shell itself saw go wrong.
    pub broken: Vec<String>,
    pub made: BTreeMap<Fault, u64>,
    /// Viewers closed as slow.
    pub n_slow: u64,
    pub survived: Survived,
    /// The classifier's opinions, and until when it has none to give.
    words: BTreeMap<Arc<str>, Verdict>,
    outage_until: Mono,
    /// What was shown, by whom and as which event; and what of it a block came to.
    shown: BTreeMap<Arc<str>, (ProcessIdx, EventId)>,
    must_go: BTreeMap<EventId, ProcessIdx>,
    trace: u64,
    print: bool,
}

impl World {
    pub fn new(options: &Options, print: bool) -> World {
        let plan = options.plan();
        let mut world = World {
            now: Mono(0),
            rng: Rng::new(options.seed),
            queue: BTreeMap::new(),
            n_queued: 0,
            healed: false,
            storage: Vec::new(),
            saved: Saved::default(),
            processes: Vec::new(),
            gateways: Vec::new(),
            current: None,
            front: 0,
            epoch: 0,
            next_conn: 1,
            clients: Vec::new(),
            actors: Vec::new(),
            storms: BTreeMap::new(),
            acked: BTreeMap::new(),
            history: Vec::new(),
            broken: Vec::new(),
            made: BTreeMap::new(),
            n_slow: 0,
            survived: Survived::default(),
            words: BTreeMap::new(),
            outage_until: Mono(0),
            shown: BTreeMap::new(),
            must_go: BTreeMap::new(),
            trace: 0xcbf2_9ce4_8422_2325,
            print,
            plan,
        };
        world.after(Duration::ZERO, Event::Start);
        world.after(NEMESIS_EVERY, Event::Nemesis);
        world.after(Duration::from_secs(options.seconds), Event::Heal);
        world.people();
        world
    }

    /// Runs to the end; returns the hash of everything that happened.
    pub fn run(&mut self) -> u64 {
        let mut end = Mono(u64::MAX);
        while let Some((key, event)) = self.queue.pop_first() {
            assert!(key.0 >= self.now, "time goes forward");
            if key.0 > end {
                break;
            }
            self.now = key.0;
            if matches!(event, Event::Heal) {
                end = self.now + HEAL_WITHIN;
            }
            self.trace_event(&event);
            self.on(event);
        }
        self.note_finals();
        self.trace
    }

    fn on(&mut self, event: Event) {
        if let Some(process) = event.process() {
            match self.processes[process].state {
                State::Running => {}
                State::Paused => return self.processes[process].backlog.push(event),
                State::Dead => return,
            }
        }
        if let Some(gateway) = event.gateway() {
            match (self.gateways[gateway].state, self.gateways[gateway].owner) {
                (State::Running, _) => {}
                (State::Paused, Some(process)) => return self.processes[process].backlog.push(event),
                (State::Paused, None) | (State::Dead, _) => return,
            }
        }
        match event {
            Event::Arrive { gateway, conn, client, up } => self.on_up(gateway, conn, client, up),
            Event::Down { client, conn, down } => self.on_down(client, conn, down),
            Event::Request { process, actor, ask, command } => {
                if self.processes[process].started {
                    if let Command::Audited { audit, .. } = &*command {
                        self.saw(Seen::Ordered(audit.justification.clone()));
                    }
                    self.submit(process, Asker::Actor { actor, ask }, *command);
                }
            }
            Event::Reply { actor, ask, answer } => self.on_reply(actor, ask, answer),
            Event::AskSnapshot { process, client } => self.on_ask_snapshot(process, client),
            Event::Snapshot { client, shot } => self.on_snapshot(client, shot),
            Event::WriteDone { process, fate } => self.on_write_done(process, fate),
            Event::Link { gateway, process, records } => self.on_link(gateway, process, records),
            Event::MergeDue { gateway, room } => self.on_merge_due(gateway, &room),
            Event::Resume { gateway, process, conn, cursor } => self.on_resume(gateway, process, conn, cursor),
            Event::Page { gateway, process, conn, page } => {
                if self.gateways[gateway].owner == Some(process) {
                    self.on_page(gateway, conn, page);
                }
            }
            Event::Away { gateway, process } => self.on_away(gateway, process),
            Event::Facts { gateway, process, link, facts } => self.on_facts(gateway, process, link, facts),
            Event::Past { gateway, room, request, page } => self.on_past(gateway, &room, request, page),
            Event::Verdict { process, tag, text, verdict } => {
                let (now, wall) = (self.now, self.wall(process));
                self.processes[process].owner.on_verdict(tag, Some(Ruling::plain(verdict)), now, wall);
                if verdict == Verdict::Block
                    && let Some((shown_by, id)) = self.shown.get(&text)
                    && *shown_by == process
                {
                    self.must_go.insert(*id, process);
                }
                self.pump(process);
            }
            Event::OwnerDeadline { process } => {
                let (now, wall) = (self.now, self.wall(process));
                self.processes[process].deadline = None;
                self.processes[process].owner.on_deadline(now, wall);
                self.pump(process);
            }
            Event::Likes { process, frame, .. } => self.on_likes(process, frame),
            Event::Settled { gateway, number } => self.gateways[gateway].sender.settled(number),
            Event::GatewayTick { gateway } => self.on_gateway_tick(gateway),
            Event::ClientTick { client } => self.on_client_tick(client),
            Event::ActorTick { actor } => self.on_actor_tick(actor),
            Event::Nemesis => self.on_nemesis(),
            Event::Start => self.start(),
            Event::Thaw { process } => self.thaw(process),
            Event::LeaseEnd { process } => {
                if self.current != Some(process) && self.processes[process].state == State::Running {
                    self.kill(process);
                }
            }
            Event::Heal => self.heal(),
        }
    }

    // ---- time and chance

    fn after(&mut self, wait: Duration, event: Event) {
        self.at(self.now + wait, event);
    }

    fn at(&mut self, when: Mono, event: Event) {
        self.n_queued += 1;
        self.queue.insert((when.max(self.now), self.n_queued), event);
    }

    fn draw(&mut self, from_ms: u64, to_ms: u64) -> Duration {
        Duration::from_micros(from_ms * 1_000 + self.rng.below((to_ms - from_ms) * 1_000 + 1))
    }

    fn wall(&self, process: ProcessIdx) -> Wall {
        let ms = (WALL_BASE + self.now.0 / 1_000).saturating_add_signed(self.processes[process].clock_off_ms);
        Wall(ms)
    }

    /// Whether this fault comes now.
    fn fault(&mut self, fault: Fault) -> bool {
        let Some((_, rate)) = self.plan.rates.iter().find(|(f, _)| *f == fault).copied() else { return false };
        let comes = !self.healed && self.rng.chance(rate, 1_000);
        if comes {
            *self.made.entry(fault).or_default() += 1;
        }
        comes
    }

    fn saw(&mut self, seen: Seen) {
        self.history.push(Line { at: self.now, seen });
    }

    fn trace_event(&mut self, event: &Event) {
        if matches!(event, Event::GatewayTick { .. } | Event::ClientTick { .. } | Event::ActorTick { .. }) {
            return;
        }
        let (kind, a, b) = event.gist();
        for word in [self.now.0, kind, a, b] {
            self.trace = (self.trace ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
        }
        if self.print {
            println!("{:>9.3} ms {}", self.now.0 as f64 / 1_000.0, event.told());
        }
    }

    // ---- processes

    fn start(&mut self) {
        let healthy = self.current.is_some_and(|p| self.processes[p].state == State::Running);
        if healthy {
            return;
        }
        self.epoch += 1 + self.rng.below(2) as u32;
        let epoch = Epoch::new(self.epoch).expect("a run has few epochs");
        let seed = self.rng.next();
        let wall = Wall(WALL_BASE + self.now.0 / 1_000);
        let process = Process::recover(&self.storage, &self.saved, epoch, seed, self.now, wall);
        let idx = self.processes.len();
        self.processes.push(process);
        self.current = Some(idx);
        match self.survivor() {
            Some(gateway) => self.front = gateway,
            None => {
                self.front = self.gateways.len();
                self.gateways.push(Gateway::new(idx, self.front as u64 + 1));
                self.after(GATEWAY_EVERY, Event::GatewayTick { gateway: self.front });
            }
        }
        self.pump(idx);
    }

    /// The process is gone; what it was writing may have been written.
    fn kill(&mut self, process: ProcessIdx) {
        if let Some(batch) = self.processes[process].flight.take() {
            let to = self.rng.below(batch.len() as u64 + 1) as usize;
            self.storage.extend_from_slice(&batch[..to]);
        }
        self.bury(process);
    }

    fn bury(&mut self, process: ProcessIdx) {
        let dead = &mut self.processes[process];
        dead.state = State::Dead;
        dead.flight = None;
        self.must_go.retain(|_, shown_by| *shown_by != process);
        for gateway in self.linked_to(process) {
            if self.fault(Fault::GatewaySurvives) {
                let notices = self.draw(0, 30);
                self.after(notices, Event::Away { gateway, process });
                continue;
            }
            self.gateways[gateway].state = State::Dead;
            self.lose_likes(gateway);
            let conns = std::mem::take(&mut self.gateways[gateway].conns);
            for (conn, held) in conns {
                let wait = self.draw(0, 30);
                self.after(wait, Event::Down { client: held.client, conn, down: Down::Closed { code: 1006 } });
            }
        }
        if self.current == Some(process) {
            let wait = self.draw(200, 1_200);
            self.after(wait, Event::Start);
        }
    }

    /// A process stands still or goes on with those that are linked to it: the machine does.
    fn set_state(&mut self, process: ProcessIdx, state: State) {
        self.processes[process].state = state;
        for gateway in self.linked_to(process) {
            self.gateways[gateway].state = state;
        }
    }

    /// The living gateways of an owner.
    fn linked_to(&self, process: ProcessIdx) -> Vec<GatewayIdx> {
        let linked = |g: &&Gateway| g.state != State::Dead && g.owner == Some(process);
        (0..self.gateways.len()).filter(|idx| linked(&&self.gateways[*idx])).collect()
    }

    fn thaw(&mut self, process: ProcessIdx) {
        if self.processes[process].state != State::Paused {
            return;
        }
        self.set_state(process, State::Running);
        for event in take_backlog(&mut self.processes[process]) {
            self.at(self.now, event);
        }
        let lease = self.draw(0, 2_000);
        self.after(lease, Event::LeaseEnd { process });
        self.pump(process);
    }

    fn heal(&mut self) {
        self.healed = true;
        for process in 0..self.processes.len() {
            self.thaw(process);
            self.processes[process].clock_off_ms = 0;
        }
        let conns = self.gateways.iter_mut().flat_map(|gateway| gateway.conns.values_mut());
        conns.for_each(|conn| conn.stalled_until = None);
        self.clients.iter_mut().for_each(|client| client.away_until = Mono(0));
        self.start();
    }

    fn on_nemesis(&mut self) {
        if self.healed {
            return;
        }
        self.after(NEMESIS_EVERY, Event::Nemesis);
        if let Some(process) = self.current.filter(|p| self.processes[*p].state == State::Running) {
            if self.fault(Fault::Crash) {
                self.kill(process);
            } else if self.fault(Fault::Zombie) {
                self.set_state(process, State::Paused);
                let (back, replaced) = (self.draw(500, 6_000), self.draw(100, 1_500));
                self.after(back, Event::Thaw { process });
                self.after(replaced, Event::Start);
            } else if self.fault(Fault::WorkerCrash) {
                self.linked_to(process).first().copied().into_iter().for_each(|gateway| self.crash_worker(gateway));
            }
            if self.fault(Fault::ClockJump) {
                self.processes[process].clock_off_ms = self.rng.below(10_000) as i64 - 5_000;
            }
        }
        if self.plan.has(Fault::Outage) && self.fault(Fault::Outage) {
            self.outage_until = self.now + self.draw(300, 3_000);
        }
        if self.fault(Fault::Overload) {
            self.overload();
        }
        let client = self.rng.below(self.clients.len() as u64) as usize;
        if self.fault(Fault::Stall) {
            let until = self.now + self.draw(300, 13_000);
            self.stall(client, until);
        }
        let client = self.rng.below(self.clients.len() as u64) as usize;
        if self.fault(Fault::Disconnect) {
            self.hang_up(client);
            let away = self.draw(0, 2_000);
            self.clients[client].away_until = self.now + away;
        } else if self.fault(Fault::LongAway) {
            self.hang_up(client);
            let away = self.draw(5_000, 20_000);
            self.clients[client].away_until = self.now + away;
        }
    }

    // ---- owner

    fn submit(&mut self, process: ProcessIdx, asker: Asker, command: Command) {
        let (now, wall) = (self.now, self.wall(process));
        let host = &mut self.processes[process];
        let tag = host.next_tag;
        host.next_tag += 1;
        host.tags.insert(tag, asker);
        host.owner.submit(tag, command, now, wall);
        self.pump(process);
    }

    /// Drains the owner and keeps one batch under way.
    fn pump(&mut self, process: ProcessIdx) {
        let mut committed = Vec::new();
        loop {
            while let Some(output) = self.processes[process].owner.poll() {
                match output {
                    Output::Answer { tag, answer } => self.answer(process, tag, answer),
                    Output::Committed(record) => committed.push(record),
                    Output::LikesSettled { sender, number } => self.tell_settled(sender, number),
                    Output::Fate { raw_id, fate, .. } => self.decided(process, raw_id, fate),
                    // Reviewers look at the queue itself.
                    Output::Decided { .. } => {}
                    Output::NeedVerdict { tag, room, text, .. } => {
                        let slow = self.fault(Fault::SlowVerdict);
                        let wait = if slow { self.draw(60, 500) } else { self.draw(1, 50) };
                        let block = self.fault(Fault::BlockVerdict);
                        let flag = self.plan.has(Fault::FlagVerdict) && self.fault(Fault::FlagVerdict);
                        let drawn = match (block, flag) {
                            (true, _) => Verdict::Block,
                            (_, true) => Verdict::Flag,
                            _ => Verdict::Allow,
                        };
                        // It has one opinion of one text.
                        let verdict = *self.words.entry(text.clone()).or_insert(drawn);
                        if self.now >= self.outage_until {
                            let version = self.processes[process].owner.policy_version(&room);
                            self.saw(Seen::Judged { room, text: text.clone(), version, verdict });
                            self.after(wait, Event::Verdict { process, tag, text, verdict });
                        }
                    }
                }
            }
            if self.processes[process].flight.is_some() || self.processes[process].state != State::Running {
                break;
            }
            let (now, wall) = (self.now, self.wall(process));
            let Some(batch) = self.processes[process].owner.seal(now, wall) else { break };
            self.log_time_goes_on(process, batch[0].ts);
            self.write(process, batch);
        }
        for record in &committed {
            if let (Body::Comment(comment), Audience::Everyone) = (&record.body, record.audience) {
                self.shown.insert(comment.text.clone(), (process, record.event_id()));
            }
        }
        if !committed.is_empty() {
            self.publish(process, committed);
        }
        let due = self.processes[process].owner.next_deadline();
        if let Some(due) = due.filter(|due| self.processes[process].deadline.is_none_or(|known| *due < known)) {
            self.processes[process].deadline = Some(due);
            self.at(due, Event::OwnerDeadline { process });
        }
    }

    /// However the clock of a process jumps, what is to last a second lasts two at most.
    fn log_time_goes_on(&mut self, process: ProcessIdx, ts: Wall) {
        let now = self.now;
        if let Some((then, last)) = self.processes[process].sealed.replace((now, ts))
            && ts + LOG_TIME_SLACK < last + now.since(then) / 2
        {
            self.broken.push(format!("log time stands still: {ts:?} is {:?} after {last:?}", now.since(then)));
        }
    }

    fn write(&mut self, process: ProcessIdx, batch: Arc<[Arc<Record>]>) {
        let host = &mut self.processes[process];
        if !host.started && !host.begins(&batch) {
            self.broken.push(format!("I-05: process {process} took over without an EpochStart of its own"));
        }
        // What every log demands of its writer.
        let mut last = self.processes[process].head();
        for record in batch.iter() {
            let id = record.event_id();
            let follows = |last: EventId| last.epoch() == id.epoch() && last.seq().next() == Some(id.seq());
            if !matches!(record.body, Body::EpochStart) && !last.event_id().is_some_and(follows) {
                self.broken.push(format!("a batch leaves a hole between {last:?} and {id:?}"));
            }
            last = id.position();
        }
        let n = batch.len();
        self.processes[process].flight = Some(batch);
        let upto = self.rng.below(n as u64) as usize;
        let fate = if self.fault(Fault::CrashBeforeWrite) {
            Fate::Dies { from: 0, to: 0 }
        } else if self.fault(Fault::CrashAfterWrite) {
            Fate::Dies { from: 0, to: n }
        } else if self.fault(Fault::Torn) {
            Fate::Dies { from: 0, to: upto }
        } else if n > 1 && self.fault(Fault::Hole) {
            Fate::Dies { from: upto.max(1), to: n }
        } else if self.fault(Fault::FailedCommit) {
            Fate::Failed(Failure::Overloaded)
        } else if self.fault(Fault::NoSpace) {
            Fate::Failed(Failure::NoSpace)
        } else {
            Fate::Written { twice: self.fault(Fault::DoubleWrite) }
        };
        let wait = if self.fault(Fault::SlowDisk) { self.draw(100, 1_500) } else { self.draw(1, 12) };
        self.after(wait, Event::WriteDone { process, fate });
    }

    fn on_write_done(&mut self, process: ProcessIdx, fate: Fate) {
        let Some(batch) = self.processes[process].flight.take() else { return };
        let (now, wall) = (self.now, self.wall(process));
        match fate {
            Fate::Failed(failure) => {
                self.processes[process].owner.on_failed(failure, now, wall);
                self.pump(process);
            }
            Fate::Dies { from, to } => {
                self.note_dark(&batch[from..to]);
                self.storage.extend_from_slice(&batch[from..to]);
                self.bury(process);
            }
            Fate::Written { twice } => {
                self.note_dark(&batch);
                for _ in 0..=u8::from(twice) {
                    self.storage.extend_from_slice(&batch);
                }
                let storage = &self.storage;
                if self.processes[process].read_on(storage, &batch) == ReadOn::Overtaken {
                    return self.bury(process);
                }
                let host = &mut self.processes[process];
                host.started = true;
                batch.iter().for_each(|record| host.note(record.clone()));
                host.owner.on_committed(now, wall);
                self.look_at_what_is_left(process, &batch);
                let host = &mut self.processes[process];
                host.records_since_checkpoint += batch.len();
                if host.records_since_checkpoint >= CHECKPOINT_EVERY {
                    host.records_since_checkpoint = 0;
                    let (log, rooms) = host.owner.take_checkpoint();
                    // As the catalog does: an older place never replaces a newer one.
                    if self.saved.log.as_ref().is_none_or(|saved| saved.position < log.position) {
                        self.saved.log = Some(log);
                        self.saved.rooms.extend(rooms.into_iter().map(|room| (room.view.room.clone(), room)));
                    }
                }
                self.pump(process);
            }
        }
    }

    /// Where rooms may be shown, from when on.
    fn note_dark(&mut self, written: &[Arc<Record>]) {
        for record in written {
            if let (Body::Room(settings), Some(room)) = (&record.body, &record.room) {
                let (room, id, regions) = (room.clone(), record.event_id(), settings.blackout_regions.clone());
                self.saw(Seen::Dark { room, id, regions });
            }
        }
    }

    /// Rooms in which a batch took something back are looked at with its commit.
    fn look_at_what_is_left(&mut self, process: ProcessIdx, batch: &[Arc<Record>]) {
        let taken = batch.iter().filter(|record| matches!(record.body, Body::Retract(_)));
        let rooms: BTreeSet<RoomId> = taken.filter_map(|record| record.room.clone()).collect();
        let shots: Vec<Snapshot> = rooms.iter().filter_map(|room| self.processes[process].snapshot(room)).collect();
        shots.into_iter().for_each(|shot| self.saw(Seen::Looked { shot: Arc::new(shot) }));
    }

    /// What was said is decided, once; what an owner before this one took is decided by either.
    fn decided(&mut self, process: ProcessIdx, raw_id: EventId, fate: owner::answer::Fate) {
        let host = &mut self.processes[process];
        if !host.undecided.remove(&raw_id) && raw_id.epoch() == host.epoch {
            self.broken.push(format!("I-16: {raw_id:?} was decided again, as {fate:?}"));
        }
        for conn in self.processes[process].told_of.remove(&raw_id).unwrap_or_default() {
            self.tell_fate(process, conn, raw_id, fate);
        }
    }

    /// Who said it is told what became of it, unless its gateway is another owner's by now.
    fn tell_fate(&mut self, process: ProcessIdx, conn: ConnId, raw_id: EventId, fate: owner::answer::Fate) {
        let mut linked = self.gateways.iter_mut().filter(|gateway| gateway.owner == Some(process));
        let Some(conn) = linked.find_map(|gateway| gateway.conns.get_mut(&conn)) else { return };
        if conn.awaited.remove(&raw_id) {
            let client = conn.client;
            self.saw(Seen::Decided { client, raw_id, fate });
        }
    }

    /// What connections of a gateway were promised to be told by the owner before this one.
    fn ask_fates(&mut self, gateway: GatewayIdx, process: ProcessIdx) {
        let conns = self.gateways[gateway].conns.iter();
        let asked: Vec<_> = conns.flat_map(|(id, conn)| conn.awaited.iter().map(|raw| (*id, *raw))).collect();
        for (conn, raw_id) in asked.into_iter().filter(|_| !planted(66)) {
            let room = self.gateways[gateway].conns[&conn].room.clone();
            match self.processes[process].owner.fate(&room, raw_id) {
                Known::Waits => drop(self.processes[process].told_of.entry(raw_id).or_default().insert(conn)),
                Known::Decided(fate) => self.tell_fate(process, conn, raw_id, fate),
                Known::Forgotten => self.broken.push(format!("I-16: nobody knows what became of {raw_id:?}")),
            }
        }
    }

    fn answer(&mut self, process: ProcessIdx, tag: Tag, answer: Answer) {
        if let Answer::Raw { raw_id, duplicate: false, .. } = answer {
            self.processes[process].undecided.insert(raw_id);
        }
        let Some(asker) = self.processes[process].tags.remove(&tag) else {
            return self.broken.push(format!("a command was answered twice: {answer:?}"));
        };
        if self.fault(Fault::LostReply) {
            return;
        }
        if let (Answer::Raw { raw_id, fate: None, .. }, Asker::Conn { conn, .. }) = (&answer, &asker) {
            let mut linked = self.gateways.iter_mut().filter(|gateway| gateway.owner == Some(process));
            if let Some(waits) = linked.find_map(|gateway| gateway.conns.get_mut(conn)) {
                waits.awaited.insert(*raw_id);
                self.processes[process].told_of.entry(*raw_id).or_default().insert(*conn);
            }
        }
        let copies = 1 + u64::from(self.fault(Fault::DoubleReply));
        for _ in 0..copies {
            let wait = if self.fault(Fault::LateReply) { self.draw(500, 4_000) } else { self.draw(1, 20) };
            match &asker {
                Asker::Actor { actor, ask } => {
                    self.after(wait, Event::Reply { actor: *actor, ask: *ask, answer: answer.clone() });
                }
                Asker::Conn { conn, client, key } => {
                    let down = Down::Answer { key: key.clone(), answer: answer.clone() };
                    self.after(wait, Event::Down { client: *client, conn: *conn, down });
                }
            }
        }
    }
}

impl Event {
    /// Whose turn it is, where it is a process's.
    fn process(&self) -> Option<ProcessIdx> {
        match self {
            Event::Request { process, .. }
            | Event::AskSnapshot { process, .. }
            | Event::WriteDone { process, .. }
            | Event::Verdict { process, .. }
            | Event::Likes { process, .. }
            | Event::OwnerDeadline { process } => Some(*process),
            _ => None,
        }
    }

    /// Whose turn it is, where it is a gateway's.
    fn gateway(&self) -> Option<GatewayIdx> {
        match self {
            Event::Arrive { gateway, .. }
            | Event::Link { gateway, .. }
            | Event::MergeDue { gateway, .. }
            | Event::Resume { gateway, .. }
            | Event::Page { gateway, .. }
            | Event::Away { gateway, .. }
            | Event::Facts { gateway, .. }
            | Event::Past { gateway, .. }
            | Event::Settled { gateway, .. }
            | Event::GatewayTick { gateway } => Some(*gateway),
            _ => None,
        }
    }

    /// Kind and two numbers, for the trace's hash.
    fn gist(&self) -> (u64, u64, u64) {
        let last = |records: &[Arc<Record>]| records.last().map_or(0, |r| r.event_id().value());
        match self {
            Event::Arrive { conn, up, .. } => (1, *conn, up.kind()),
            Event::Down { conn, down: Down::Events { events, skipped, .. }, .. } => {
                (2, *conn, last(events) ^ skipped.map_or(0, |s| s.count << 54))
            }
            Event::Down { conn, down: Down::Hello { cursor, .. }, .. } => (3, *conn, cursor.value()),
            Event::Down { conn, .. } => (4, *conn, 0),
            Event::Request { actor, ask, .. } => (5, *actor as u64, *ask),
            Event::Reply { actor, ask, .. } => (6, *actor as u64, *ask),
            Event::AskSnapshot { client, .. } => (7, *client as u64, 0),
            Event::Snapshot { client, shot } => (8, *client as u64, shot.as_of.value()),
            Event::WriteDone { process, fate } => {
                (9, *process as u64, u64::from(*fate == Fate::Written { twice: false }))
            }
            Event::Link { records, .. } => (10, records.len() as u64, last(records)),
            Event::MergeDue { gateway, .. } => (11, *gateway as u64, 0),
            Event::Resume { conn, cursor, .. } => (12, *conn, cursor.value()),
            Event::Page { conn, page, .. } => (13, *conn, page.upto.value()),
            Event::Verdict { tag, .. } => (14, *tag, 0),
            Event::OwnerDeadline { process } => (15, *process as u64, 0),
            Event::GatewayTick { gateway } => (16, *gateway as u64, 0),
            Event::ClientTick { client } => (17, *client as u64, 0),
            Event::ActorTick { actor } => (18, *actor as u64, 0),
            Event::Nemesis => (19, 0, 0),
            Event::Start => (20, 0, 0),
            Event::Thaw { process } => (21, *process as u64, 0),
            Event::Heal => (22, 0, 0),
            Event::LeaseEnd { process } => (23, *process as u64, 0),
            Event::Away { gateway, process } => (24, *gateway as u64, *process as u64),
            Event::Facts { gateway, link, .. } => (25, *gateway as u64, *link),
            Event::Likes { gateway, frame, .. } => (27, *gateway as u64, frame.from.map_or(0, |(_, number)| number)),
            Event::Settled { gateway, number } => (28, *gateway as u64, *number),
            Event::Past { request, page, .. } => (26, *request, page.as_ref().map_or(0, |(r, _)| last(r))),
        }
    }

    /// One line of a printed trace.
    fn told(&self) -> String {
        let ids = |records: &[Arc<Record>]| {
            records.iter().map(|r| format!("{:?}", r.event_id())).collect::<Vec<_>>().join(" ")
        };
        match self {
            Event::Down { client, conn, down: Down::Events { skipped, events, .. } } => {
                format!("client {client} conn {conn} <- events {} skipped {skipped:?}", ids(events))
            }
            Event::Down { client, conn, down } => format!("client {client} conn {conn} <- {down:?}"),
            Event::Arrive { gateway, conn, client, up } => {
                format!("client {client} conn {conn} -> gateway {gateway}: {up:?}")
            }
            Event::Link { gateway, process, records } => {
                format!("gateway {gateway} of process {process} link {}", ids(records))
            }
            Event::Past { gateway, room, page: Some((records, after)), .. } => {
                format!("gateway {gateway} {room} past {} after {after:?}", ids(records))
            }
            Event::Page { gateway, conn, page, .. } => {
                format!("gateway {gateway} conn {conn} page {} upto {:?}", ids(&page.records), page.upto)
            }
            Event::Snapshot { client, shot } => format!("client {client} <- snapshot as of {:?}", shot.as_of),
            other => format!("{other:?}"),
        }
    }
}

impl Up {
    fn kind(&self) -> u64 {
        match self {
            Up::Open { .. } => 1,
            Up::Hello { .. } => 2,
            Up::Publish { .. } => 3,
            Up::Ping => 4,
            Up::Gone => 5,
            Up::Like { .. } => 6,
        }
    }
}
