//! The processes of the simulated server: owners on the shared storage, and gateways with their viewers.
//!
//! The rules are the real ones, called directly; this file is the shell that a server is around them, as small as it can be.
//! The storage is a sequence that anyone may append to, as a replicated log is: what lies in it is judged by the reader rule
//! alone, and a process answers nothing before it has read its own batch back as valid.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use grandstand_core::hash::Seeded;
use grandstand_core::ids::{Epoch, EpochSpan, EventId, Position, Pseq};
use grandstand_core::likes::{Gatherer, Sender, Totals};
use grandstand_core::names::{ClientMsgId, RoomId, UserId};
use grandstand_core::owner::command::Tag;
use grandstand_core::owner::{Owner, Settings};
use grandstand_core::reader::{Reader, Reading};
use grandstand_core::record::{Audience, Body, Comment, Lane, Record, RetractTarget};
use grandstand_core::regions::Region;
use grandstand_core::rng::Rng;
use grandstand_core::sampler::pick::{ViewerKey, WindowNumber};
use grandstand_core::sampler::shedder::Shedder;
use grandstand_core::sampler::silence::GivenAt;
use grandstand_core::sampler::window;
use grandstand_core::time::{Mono, Wall};
use grandstand_core::viewer::merge::MergeWindow;
use grandstand_core::viewer::part::{self, Lot, Windows};
use grandstand_core::viewer::refill::Refill;
use grandstand_core::viewer::resume::{self, Answer, COMMENTS_MAX, Facts, Priority};
use grandstand_core::viewer::retracts::Retracts;
use grandstand_core::viewer::ring::{self, Entry, Ring};
use grandstand_core::viewer::session::Session;
use grandstand_core::viewer::walk::Place;

use crate::history::{ClientIdx, Snapshot};
use crate::world::{ActorIdx, Event, ProcessIdx};

/// A connection; never used twice in a run.
pub type ConnId = u64;

/// Log time younger than this is read for keys in recovery.
const KEYS_WINDOW: Duration = Duration::from_secs(600);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    Running,
    /// It stands still and does not know.
    Paused,
    Dead,
}

/// Whom a command is answered.
#[derive(Clone, Debug)]
pub enum Asker {
    Conn { conn: ConnId, client: ClientIdx, key: ClientMsgId },
    Actor { actor: ActorIdx, ask: u64 },
}

pub struct Process {
    pub state: State,
    pub epoch: Epoch,
    /// Its EpochStart is read back.
    pub started: bool,
    pub owner: Owner,
    pub tags: BTreeMap<Tag, Asker>,
    pub next_tag: Tag,
    /// The batch that was sealed and has no outcome yet.
    pub flight: Option<Arc<[Arc<Record>]>>,
    /// What came while it stood still.
    pub backlog: Vec<Event>,
    pub deadline: Option<Mono>,
    /// Milliseconds that its wall clock is off.
    pub clock_off_ms: i64,
    /// When it sealed a batch last, and the batch's log time.
    pub sealed: Option<(Mono, Wall)>,
    /// The log as it has read it.
    reader: Reader,
    read_upto: usize,
    pub log: Vec<Arc<Record>>,
    /// Of each room, the places in `log` of what viewers are sent.
    served: BTreeMap<RoomId, Vec<usize>>,
    pub records_since_checkpoint: usize,
    /// Said in its time and not decided yet.
    pub undecided: BTreeSet<EventId>,
    /// Who is to be told what becomes of what was said.
    pub told_of: BTreeMap<EventId, BTreeSet<ConnId>>,
}

/// A process of viewers, linked to one owner. It may die with its owner or go on without it.
pub struct Gateway {
    pub state: State,
    /// Whom it is linked to, as far as it knows; `None` while nobody is there.
    pub owner: Option<ProcessIdx>,
    /// Links it has had: what is asked over one is not answered over another.
    pub n_links: u64,
    pub n_requests: u64,
    pub rooms: BTreeMap<RoomId, Roster>,
    pub conns: BTreeMap<ConnId, Conn>,
    /// Likes since its last tick, and what it handed on that is not settled.
    pub likes: Gatherer,
    pub sender: Sender,
    pub shedder: Shedder,
    /// Its walks are late and its processors full until then.
    pub loaded_until: Mono,
    /// An operator's order is in force until then.
    pub ordered_until: Mono,
    pub shed_at: Mono,
}

impl Gateway {
    /// `number`: no other gateway ever has it.
    pub fn new(owner: ProcessIdx, number: u64) -> Gateway {
        Gateway {
            state: State::Running,
            owner: Some(owner),
            n_links: 1,
            n_requests: 0,
            rooms: BTreeMap::new(),
            conns: BTreeMap::new(),
            likes: Gatherer::new(Seeded(number)),
            sender: Sender::new(number),
            shedder: Shedder::default(),
            loaded_until: Mono(0),
            ordered_until: Mono(0),
            shed_at: Mono(0),
        }
    }
}

/// A room's viewers on one gateway.
pub struct Roster {
    pub ring: Ring<Arc<Record>>,
    pub merge: MergeWindow,
    pub due: Option<Mono>,
    /// The newest event of the room it was given or told of.
    pub last_event: Position,
    /// The link whose facts it stands on.
    pub link: u64,
    pub likes: Totals,
    pub refill: Option<Refill<Arc<Record>>>,
    /// Cursors from before the floor that wait for the ring to be filled.
    pub below: Vec<(ConnId, Position)>,
    pub retracts: Retracts,
    /// Where the room may not be shown, as far as the gateway knows, and the place in the log that says so.
    pub blackouts: (Position, Vec<Region>),
}

/// What an owner tells a gateway of a room when their link begins.
#[derive(Clone, Debug)]
pub struct RoomFacts {
    pub room: RoomId,
    pub head: Position,
    pub last_event: Position,
    pub pseq: Pseq,
    pub likes: Totals,
    pub blackouts: Vec<Region>,
}

/// A page of a room's log on its way to one viewer.
#[derive(Clone, Debug)]
pub struct ReadPage {
    pub records: Vec<Arc<Record>>,
    /// It is complete up to here.
    pub upto: Position,
    /// What of it was taken back, as of the head.
    pub hidden: BTreeSet<EventId>,
    pub head: Position,
}

/// A page of a room's past: the events after the position, and up to where it was asked.
pub type Past = (Vec<Arc<Record>>, Position);

pub struct Conn {
    pub client: ClientIdx,
    pub session: Session,
    pub room: RoomId,
    /// `None` until the resume was answered.
    pub place: Option<Place>,
    /// The socket takes nothing until then.
    pub stalled_until: Option<Mono>,
    /// The unwritten rest of one frame, and since when a priority event waits in it.
    pub rest: Option<(crate::world::Down, Option<Mono>)>,
    /// The room's likes as it was told them.
    pub told: Totals,
    /// A page of the log is on its way.
    pub paging: bool,
    /// It was told that this is in the log as it was said, and not what became of it.
    pub awaited: BTreeSet<EventId>,
    /// Nothing overtakes on one connection.
    pub last_down: Mono,
    /// When it was given a comment of a wide room last.
    pub given_at: GivenAt,
}

/// What is saved of an owner from time to time.
#[derive(Clone, Default)]
pub struct Saved {
    pub log: Option<grandstand_core::owner::checkpoint::LogCheckpoint>,
    pub rooms: BTreeMap<RoomId, grandstand_core::owner::checkpoint::RoomCheckpoint>,
}

/// What reading on in the storage came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadOn {
    /// All of the batch in flight is valid, and nothing foreign came between.
    Mine,
    /// Somebody else's record is valid where only ours could be, or ours is not.
    Overtaken,
}

impl Process {
    /// Recovers from the newest checkpoint and the storage, and begins `epoch`.
    pub fn recover(storage: &[Arc<Record>], saved: &Saved, epoch: Epoch, seed: u64, now: Mono, wall: Wall) -> Process {
        // Small, so that some lose, some wait, and some have a right.
        let window = window::Settings { winners: 2, by_right: 1, waiting: 3, ..window::Settings::default() };
        let settings = Settings { create_on_use: true, seed, window, ..Settings::default() };
        let mut owner = Owner::new(settings, now, wall);
        let mut reader = Reader::new();
        let valid: Vec<Arc<Record>> = storage.iter().filter(|r| reader.read(r) == Reading::Valid).cloned().collect();
        let upto = saved.log.as_ref().map_or(Position::START, |log| log.position);
        if let Some(log) = &saved.log {
            owner.restore_log(log.clone());
            saved.rooms.values().for_each(|room| owner.restore_room(room.clone()));
            let oldest = log.ts - KEYS_WINDOW;
            let known = valid.iter().filter(|r| r.event_id().position() <= upto && r.ts >= oldest);
            let left = left_of(known, &mut Rng::new(seed));
            left.iter().for_each(|record| owner.replay_keys(record));
        }
        for record in storage.iter().filter(|r| r.event_id().position() > upto) {
            owner.replay(record);
        }
        owner.start(epoch);
        let mut process = Process {
            state: State::Running,
            epoch,
            started: false,
            owner,
            tags: BTreeMap::new(),
            next_tag: 1,
            flight: None,
            undecided: BTreeSet::new(),
            told_of: BTreeMap::new(),
            backlog: Vec::new(),
            deadline: None,
            clock_off_ms: 0,
            sealed: None,
            reader,
            read_upto: storage.len(),
            log: Vec::new(),
            served: BTreeMap::new(),
            records_since_checkpoint: 0,
        };
        valid.into_iter().for_each(|record| process.note(record));
        process
    }

    /// Reads what was appended since, after the batch in flight was.
    pub fn read_on(&mut self, storage: &[Arc<Record>], batch: &[Arc<Record>]) -> ReadOn {
        let mut mine = batch.iter();
        for record in &storage[self.read_upto..] {
            if self.reader.read(record) != Reading::Valid {
                continue;
            }
            if !mine.next().is_some_and(|m| Arc::ptr_eq(m, record)) {
                return ReadOn::Overtaken;
            }
        }
        self.read_upto = storage.len();
        if mine.next().is_some() {
            return ReadOn::Overtaken;
        }
        ReadOn::Mine
    }

    /// A record is part of the log, as this process knows it.
    pub fn note(&mut self, record: Arc<Record>) {
        if let (Some(room), Some(_)) = (&record.room, record.lane()) {
            self.served.entry(room.clone()).or_default().push(self.log.len());
        }
        self.log.push(record);
    }

    pub fn head(&self) -> Position {
        self.log.last().map_or(Position::START, |record| record.event_id().position())
    }

    /// The newest record of a room that viewers are sent.
    fn last_event(&self, room: &RoomId) -> Position {
        self.after(room, Position::START).last().map_or(Position::START, |r| r.event_id().position())
    }

    /// The room's events after `position`, in order.
    fn after(&self, room: &RoomId, position: Position) -> impl DoubleEndedIterator<Item = &Arc<Record>> + Clone {
        let places = self.served.get(room).map_or(&[][..], Vec::as_slice);
        let from = places.partition_point(|place| self.log[*place].event_id().position() <= position);
        places[from..].iter().map(|place| &self.log[*place])
    }

    /// Judges a cursor by the log.
    pub fn resume(&self, room: &RoomId, cursor: Position, wall: Wall) -> Answer {
        let age = |r: &Record| wall.since(r.ts);
        let comments = self.after(room, cursor).filter(|r| is_public_comment(r));
        let first_priority = self.after(room, cursor).find(|r| r.lane() == Some(Lane::Priority));
        let view = self.owner.room(room);
        let pseq = view.map(|v| v.pseq).unwrap_or_default();
        let window = view.map_or(300, |v| v.settings.resume_window_seconds);
        let epochs: Vec<EpochSpan> = self.owner.epochs().to_vec();
        let window = Duration::from_secs(window.into());
        let wide_from = view.filter(|v| v.wide).map(|v| {
            let past = resume::wide_past(v.settings.sampling.cap(), window);
            self.after(room, Position::START)
                .take_while(|r| age(r) > past)
                .last()
                .map_or(Position::START, |r| r.event_id().position())
        });
        let facts = Facts {
            wide_from,
            head: self.head(),
            epochs: &epochs,
            complete_after: Position::START,
            last_event: self.last_event(room),
            pseq,
            first_priority: first_priority.map(|r| Priority {
                id: r.event_id(),
                pseq: r.pseq.expect("priority events are numbered"),
                age: age(r),
            }),
            first_comment: comments.clone().next().map(|r| (r.event_id(), age(r))),
            n_comments: comments.clone().count() as u64,
            window,
        };
        resume::resume_from(cursor, &facts, || {
            let mut newest: Vec<(EventId, Duration)> =
                comments.rev().take(COMMENTS_MAX + 1).map(|r| (r.event_id(), age(r))).collect();
            newest.reverse();
            newest
        })
    }

    /// The next page of a room's log: at most `rows` events after `after`, and up to where the page is complete.
    pub fn page(&self, room: &RoomId, after: Position, rows: usize) -> ReadPage {
        let mut rest = self.after(room, after);
        let mut page: Vec<Arc<Record>> = rest.by_ref().take(rows).cloned().collect();
        let more = rest.next().is_some();
        if let Some(window) = part::broken_end(&windows(&page)).filter(|_| more) {
            page.truncate(window);
        }
        let upto = match (more, page.last()) {
            (true, Some(last)) => last.event_id().position(),
            _ => self.head().max(after),
        };
        // A window that the asked place lies within is read whole; who is given a page passes over what it has.
        let lacking = part::lacks_before(&windows(&page));
        let before = self.after(room, Position::START).rev().skip_while(|r| r.event_id().position() > after);
        let mut whole: Vec<Arc<Record>> = before.take(lacking).cloned().collect();
        whole.reverse();
        whole.append(&mut page);
        let view = self.owner.room(room);
        // Of who was erased nothing is left in the log that a page could show.
        let erases = self.log.iter().filter_map(|record| Some((record.erases()?, record.event_id())));
        let erases: Vec<(&UserId, EventId)> = erases.collect();
        let is_erased = |record: &Record| {
            is_public_comment(record) && erases.iter().any(|(user, by)| record.event_id() < *by && record.is_of(user))
        };
        let hides = |record: &&Arc<Record>| view.is_some_and(|view| view.retracted.hides(record)) || is_erased(record);
        let hidden = whole.iter().filter(hides).map(|record| record.event_id()).collect();
        ReadPage { records: whole, upto, hidden, head: self.head() }
    }

    pub fn snapshot(&self, room: &RoomId) -> Option<Snapshot> {
        let view = self.owner.room(room)?;
        Some(Snapshot {
            room: room.clone(),
            as_of: self.owner.head(),
            pseq: view.pseq,
            recent: view.recent.iter().cloned().collect(),
            likes: view.likes.clone(),
            tops: view.scores.values().flat_map(|ledger| ledger.tops().cloned()).collect(),
        })
    }

    /// The page of a room's events that ends at `upto`, at most `rows` of them, for a ring that was given all up to `seen`.
    /// Errors: `None` when the log has not given out what the ring was given.
    pub fn past(&self, room: &RoomId, upto: Position, seen: Position, rows: usize) -> Option<Past> {
        if upto > self.head() || !resume::is_known(seen, self.head(), self.owner.epochs()) {
            return None;
        }
        let mut rest = self.after(room, Position::START).rev().skip_while(|r| r.event_id().position() > upto);
        let mut page: Vec<Arc<Record>> = rest.by_ref().take(rows).cloned().collect();
        page.reverse();
        let before =
            |r: &Arc<Record>| Position::new(r.event_id().value() - 1).expect("one less than an id is a position");
        let more = rest.next().is_some();
        if let Some(whole) = part::broken_start(&windows(&page)).filter(|_| more) {
            page.drain(..whole);
        }
        let after = page.first().filter(|_| more).map_or(Position::START, before);
        Some((page, after))
    }

    pub fn facts(&self, room: &RoomId) -> RoomFacts {
        let view = self.owner.room(room);
        let (pseq, likes) = view.map(|v| (v.pseq, v.likes.clone())).unwrap_or_default();
        let blackouts = view.map(|v| v.settings.blackout_regions.clone()).unwrap_or_default();
        RoomFacts { room: room.clone(), head: self.head(), last_event: self.last_event(room), pseq, likes, blackouts }
    }

    /// A roster for a room that nobody of the gateway has watched yet.
    pub fn roster(&self, room: &RoomId, limits: ring::Limits, link: u64) -> Roster {
        let RoomFacts { head, last_event, pseq, likes, blackouts, .. } = self.facts(room);
        let view = self.owner.room(room);
        let fixed = view.and_then(|v| v.settings.merge_ms).map(|ms| Duration::from_millis(ms.into()));
        Roster {
            ring: Ring::new(head, pseq, limits),
            merge: MergeWindow::new(fixed),
            due: None,
            last_event,
            link,
            likes,
            refill: None,
            below: Vec::new(),
            retracts: Retracts::default(),
            blackouts: (head, blackouts),
        }
    }

    /// Whether a batch carries what only a take-over may begin with.
    pub fn begins(&self, batch: &[Arc<Record>]) -> bool {
        batch.first().is_some_and(|r| matches!(r.body, Body::EpochStart) && r.epoch == self.epoch)
    }
}

/// What a start finds of records that a checkpoint stands behind: of a user who was erased by one of them, as much as `rng` says is
/// gone by then, since a crash comes at any step of it. What retention takes is older than any record that a start reads.
fn left_of<'a>(known: impl Iterator<Item = &'a Arc<Record>> + Clone, rng: &mut Rng) -> Vec<Arc<Record>> {
    let mut erases: Vec<(EventId, &UserId, EventId)> = Vec::new();
    let mut ids: Vec<EventId> = Vec::new();
    for record in known.clone() {
        ids.push(record.event_id());
        if let Some(user) = record.erases() {
            // As often as not it is done.
            let come = if rng.chance(1, 2) { record.event_id() } else { ids[rng.below(ids.len() as u64) as usize] };
            erases.push((record.event_id(), user, come));
        }
    }
    let left = |record: &Arc<Record>| {
        let id = record.event_id();
        let mut left = (**record).clone();
        for (of, user, come) in &erases {
            if id < *come {
                left = left.without(user).unwrap_or(left);
            } else if id == *of && of == come {
                left.body = Body::Erased;
            }
        }
        Arc::new(left)
    };
    known.map(left).collect()
}

/// An event as a ring holds it; `None` for records that no viewer is sent.
pub fn entry(record: &Arc<Record>, now: Mono) -> Option<Entry<Arc<Record>>> {
    Some(Entry {
        id: record.event_id(),
        lane: record.lane()?,
        closes_window: record.closes_window(),
        private: record.audience != Audience::Everyone,
        pseq: record.pseq,
        won: lot(record),
        at: now,
        bytes: 120,
        payload: record.clone(),
    })
}

/// Comments a thousand seconds that each viewer of a wide room is given: one or two a window.
pub const CAP_MILLI: u64 = 7_500;

fn windows(records: &[Arc<Record>]) -> Vec<Option<(WindowNumber, u32)>> {
    records.iter().map(|record| lot(record).map(|lot| (lot.window, lot.of))).collect()
}

/// What the pick must know of a window's winner.
pub fn lot(record: &Record) -> Option<Lot> {
    let Body::Comment(Comment { won: Some(won), reply_to, .. }) = &record.body else { return None };
    Some(Lot {
        window: won.window,
        of: won.of,
        weight: won.weight,
        author: ViewerKey::of_user(record.user.as_ref()?),
        thread: *reply_to,
        addressee: won.addressee.as_ref().filter(|_| won.by_right).map(ViewerKey::of_user),
        share_milli: part::share_milli(won.of, CAP_MILLI),
    })
}

/// A viewer of the simulation as the pick sees it: it follows nobody.
pub fn reader(user: &UserId, cap_milli: u64) -> part::Reader<'static> {
    part::Reader { key: ViewerKey::of_user(user), cap_milli, follows: &part::NOBODY, threads: &[] }
}

/// The records of a page without the winners that a viewer is not given.
pub fn picked<'r>(
    records: &'r [Arc<Record>],
    reader: &part::Reader<'_>,
) -> impl Iterator<Item = &'r Arc<Record>> + use<'r> {
    let mut given = Vec::new();
    Windows::gather(records.iter().zip(0..).map(|(record, at)| (at, lot(record)))).pick(reader, &mut given);
    let is_given = move |(record, at): &(&Arc<Record>, u64)| lot(record).is_none() || given.binary_search(at).is_ok();
    records.iter().zip(0_u64..).filter(is_given).map(|(record, _)| record)
}

/// What viewers are told to show no more.
pub fn taken_back(record: &Record) -> Option<(EventId, RetractTarget)> {
    match &record.body {
        Body::Retract(retract) if record.lane().is_some() => Some((record.event_id(), retract.target.clone())),
        _ => None,
    }
}

pub fn is_public_comment(record: &Record) -> bool {
    record.lane() == Some(Lane::Comment) && record.audience == Audience::Everyone
}

/// Takes what waits while a process stands still.
pub fn take_backlog(process: &mut Process) -> VecDeque<Event> {
    std::mem::take(&mut process.backlog).into()
}
