//! The owner of a log: the one place that decides what happened in its rooms, and in which order.
//!
//! Like the clerk of a court: he hears each party, notes who waits, writes the day's entries in one go, and only when the
//! book has been closed over them does anything count. `submit` checks a command against what is in the log and holds its
//! claims; `seal` gives ids to all that waits, checking ban, room state and policy once more against what the same batch
//! already holds; `on_committed` takes the records in, by the same code that recovery uses, and only then answers.
//!
//! It must never answer, show or change anything before the commit returned, give one id to two records that anyone can
//! have seen, or leave a command without its one answer.
//!
//! The awkward case: a failed batch. Its ids were never seen, so they are given again; its claims are let go; its commands
//! are told to retry. An unknown outcome has no method here: the process ends and the log is read again.
//!
//! Numbers: docs/decisions/0005-numbers.md and docs/protocol.md.

pub mod answer;
pub mod checkpoint;
pub mod command;
pub mod view;

mod access;
mod admit;
mod bans;
mod commit;
mod draft;
mod due;
mod erase;
mod feeds;
mod gifts;
pub mod likes;
mod orders;
mod recover;
mod reports;
mod seal;
mod shadow;
mod verdicts;
mod wide;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::access::Access;
use crate::banners::Site;
use crate::claims::Claims;
use crate::dedupe;
use crate::hash::Seeded;
use crate::ids::{Epoch, EpochSpan, EventId, Position, Seq};
use crate::names::{Key, RoomId, UserId};
use crate::owner::due::Due;
use crate::planted::planted;
use crate::rate::Gcra;
use crate::reader::Reader;
use crate::record::{Crowd, Record, Room};
use crate::sampler;
use crate::sampler::switch::{Change, Merged, Switch};
use crate::slow_mode;
use crate::time::{Mono, Wall};

use answer::Output;
use command::Tag;
use view::RoomView;

/// What an owner is told once.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Written into each record; `local` when embedded.
    pub region: Arc<str>,
    /// Development mode: a room is made by its first comment or score.
    pub create_on_use: bool,
    /// Rooms that may be made on first use.
    pub rooms_max: usize,
    /// Comments between check and commit; past it `overloaded`.
    pub pending_max: usize,
    /// As above, for scores, gifts and operators.
    pub pending_priority_max: usize,
    /// How long the classifier has for a verdict.
    pub verdict_within: Duration,
    /// What clients are told to wait when refused for load.
    pub retry_after: Duration,
    /// The last seq of an epoch; 2^32 but in tests.
    pub seq_max: u64,
    /// Of a wide room's window; the weights are the room's own.
    pub window: sampler::window::Settings,
    /// Seed of the maps' hasher and of the lotteries of wide rooms: chance in a server, the scenario's in a simulation.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            region: "local".into(),
            create_on_use: false,
            rooms_max: 10_000,
            pending_max: 8_192,
            pending_priority_max: 1_024,
            verdict_within: Duration::from_millis(80),
            retry_after: Duration::from_millis(500),
            seq_max: Seq::MAX,
            window: sampler::window::Settings::default(),
            seed: 0,
        }
    }
}

pub struct Owner {
    settings: Settings,
    hasher: Seeded,
    /// Every slot by its room's name.
    index: HashMap<RoomId, usize, Seeded>,
    /// Rooms that are in the log, by name.
    order: BTreeMap<RoomId, usize>,
    slots: Vec<Slot>,
    /// Rooms that show a match.
    matches: BTreeMap<Key, BTreeSet<usize>>,
    /// When a room's slow mode ends by itself.
    slow_ends: Due,
    /// When the next of a room's pins ends by itself.
    pin_ends: Due,
    /// When a settling room closes by itself.
    settle_ends: Due,
    /// When something of a room's combos is to be told.
    combos_due: Due,
    /// Rooms of which that waits to be sealed or committed.
    combos_waiting: BTreeSet<usize>,
    site: Site,
    access: Access,
    reader: Reader,
    /// Log time of the newest record.
    ts: Wall,
    /// The epoch this owner writes in once started.
    epoch: Option<Epoch>,
    waiting: VecDeque<seal::Waiting>,
    /// Questions are numbered above any command's tag.
    questions: Tag,
    judging: BTreeMap<Tag, seal::Comment>,
    /// Shown without a verdict or before it, by the question that is still open.
    shown: BTreeMap<Tag, verdicts::Shown>,
    /// Shown, and to be taken back with the next batch.
    take_backs: BTreeMap<EventId, (usize, Option<Arc<str>>)>,
    /// Recovery: shown before a verdict that this process never asked for.
    unasked: Vec<(usize, Arc<Record>)>,
    /// When each held comment is refused if nobody decides.
    held_ends: BTreeSet<(Wall, usize, EventId)>,
    flight: Option<commit::Flight>,
    /// Comments and other commands between submit and answer.
    n_comments: usize,
    n_priority: usize,
    out: VecDeque<Output>,
    /// When to look whether a user has gone quiet.
    quiet: VecDeque<(Wall, usize, UserId)>,
    counting: likes::Counting,
    clock: (Mono, Wall),
    /// From where log time goes on by itself.
    paced: (Mono, Wall),
    /// Rooms whose crowd is looked at each second: something was said lately, or they are wide.
    active: BTreeSet<usize>,
    tick_at: Option<Mono>,
    ticked: Option<Mono>,
    /// Rooms that are to become wide or narrow with the next batch.
    turning: BTreeMap<usize, (Change, Crowd)>,
    /// When each room's window closes.
    closing: BTreeSet<(Mono, usize)>,
    /// Rooms with winners that may have their turn.
    lines: BTreeSet<usize>,
    /// What of shadow-banned users was drawn and has no id yet, in order.
    apart_drawn: VecDeque<(usize, Arc<Record>)>,
    /// Winners without a verdict: their room, and until when.
    judged_winners: BTreeMap<Tag, (usize, Mono)>,
    /// Rooms that are narrow again, and until when what they were wide for is kept.
    kept: BTreeSet<(Wall, usize)>,
    /// Recovery: what was said in wide rooms in the last seconds of the log.
    recovered: BTreeMap<usize, VecDeque<Arc<Record>>>,
    #[cfg(feature = "planted")]
    leaked: u64,
}

/// A room and what is under way in it.
struct Slot {
    room: RoomId,
    /// `None` until the log holds a record of the room.
    view: Option<RoomView>,
    users: HashMap<UserId, User, Seeded>,
    rate: Gcra,
    /// Since the last checkpoint.
    changed: bool,
    /// Comments of either road since the crowd was looked at last.
    said: u32,
    /// The frames they would leave in.
    merged: Merged,
    /// Connections, as the owner was told last.
    viewers: u64,
    switch: Switch,
    /// When it is wide, or was.
    wide: Option<Box<wide::Wide>>,
}

/// One (room, user).
struct User {
    keys: dedupe::Window,
    claims: Claims<Tag>,
    slow: slow_mode::Clock,
    rate: Gcra,
    reports: Gcra,
}

impl User {
    fn new(hasher: Seeded) -> User {
        User {
            keys: dedupe::Window::new(hasher),
            claims: Claims::new(hasher),
            slow: slow_mode::Clock::default(),
            rate: Gcra::default(),
            reports: Gcra::default(),
        }
    }
}

impl Owner {
    pub fn new(settings: Settings, now: Mono, wall: Wall) -> Owner {
        let hasher = Seeded(settings.seed);
        Owner {
            settings,
            hasher,
            index: HashMap::with_hasher(hasher),
            order: BTreeMap::new(),
            slots: Vec::new(),
            matches: BTreeMap::new(),
            slow_ends: Due::default(),
            pin_ends: Due::default(),
            settle_ends: Due::default(),
            combos_due: Due::default(),
            combos_waiting: BTreeSet::new(),
            site: Site::default(),
            access: Access::default(),
            reader: Reader::new(),
            ts: Wall(0),
            epoch: None,
            waiting: VecDeque::new(),
            questions: 0,
            judging: BTreeMap::new(),
            shown: BTreeMap::new(),
            take_backs: BTreeMap::new(),
            unasked: Vec::new(),
            held_ends: BTreeSet::new(),
            flight: None,
            n_comments: 0,
            n_priority: 0,
            out: VecDeque::new(),
            quiet: VecDeque::new(),
            counting: likes::Counting::new(hasher),
            clock: (now, wall),
            paced: (now, wall),
            active: BTreeSet::new(),
            tick_at: None,
            ticked: None,
            turning: BTreeMap::new(),
            closing: BTreeSet::new(),
            lines: BTreeSet::new(),
            apart_drawn: VecDeque::new(),
            judged_winners: BTreeMap::new(),
            kept: BTreeSet::new(),
            recovered: BTreeMap::new(),
            #[cfg(feature = "planted")]
            leaked: 0,
        }
    }

    /// Takes the next output; drain after each input.
    pub fn poll(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// The newest record of the log.
    pub fn head(&self) -> Position {
        self.reader.head()
    }

    /// Every epoch of the log with its last valid seq, rising.
    pub fn epochs(&self) -> &[EpochSpan] {
        self.reader.spans()
    }

    pub fn room(&self, room: &RoomId) -> Option<&RoomView> {
        self.slots[*self.index.get(room)?].view.as_ref()
    }

    /// Every room, by name.
    pub fn rooms(&self) -> impl Iterator<Item = &RoomView> {
        self.order.values().filter_map(|&at| self.slots[at].view.as_ref())
    }

    /// Every match that a room shows, by id.
    pub fn matches(&self) -> impl Iterator<Item = &Key> {
        self.matches.keys()
    }

    /// Those of them that are shown from a primary provider.
    pub fn fed_matches(&self) -> impl Iterator<Item = &Key> {
        let is_fed = |at: usize, id: &Key| self.slots[at].view.as_ref().is_some_and(|view| view.is_fed(id));
        self.matches.iter().filter(move |(id, rooms)| rooms.iter().any(|&at| is_fed(at, id))).map(|(id, _)| id)
    }

    /// The rooms that show a match, the first bound first: it decides about its events.
    pub fn rooms_that_show(&self, match_id: &Key) -> Vec<&RoomView> {
        let rooms = self.matches.get(match_id).into_iter().flatten();
        let mut views: Vec<&RoomView> = rooms.filter_map(|&at| self.slots[at].view.as_ref()).collect();
        views.sort_by_key(|view| view.bound.get(match_id).copied());
        views
    }

    /// The site's banners as the log has them.
    pub fn site(&self) -> &Site {
        &self.site
    }

    /// What the log says of tokens.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// Commands between submit and answer.
    pub fn n_pending(&self) -> usize {
        self.n_comments + self.n_priority
    }

    /// When to call [`Owner::on_deadline`]: a verdict is late, a slow mode, a settling or a wide room's window ends, likes are to be sealed,
    /// or a combo is to be told.
    pub fn next_deadline(&self) -> Option<Mono> {
        let verdict = self.judging.values().map(|c| c.deadline).min();
        let (now, log_now) = (self.clock.0, self.log_now());
        // Sooner than it is where log time goes slowly: then what is left is looked at again.
        let held_end = self.held_ends.first().map(|(end, ..)| *end);
        let of_rooms = [&self.slow_ends, &self.pin_ends, &self.settle_ends, &self.combos_due].map(Due::first);
        let on_log_time = of_rooms.into_iter().chain([held_end]).flatten().min();
        let on_log_time = on_log_time.map(|due| now + due.since(log_now));
        let unasked = (!self.unasked.is_empty()).then_some(now);
        let due = [verdict, on_log_time, self.tally_due(), self.next_wide(), unasked];
        due.into_iter().flatten().min()
    }

    fn tick(&mut self, now: Mono, wall: Wall) {
        self.clock = (now.max(self.clock.0), wall);
        let log_now = self.log_now();
        if log_now > self.own_pace() {
            self.paced = (self.clock.0, log_now);
        }
    }

    /// Log time as of these clocks.
    pub fn log_time(&mut self, now: Mono, wall: Wall) -> Wall {
        self.tick(now, wall);
        self.log_now()
    }

    /// Log time as it is when nothing more is written. It never falls, and never stands still: while the wall clock is behind
    /// it goes on at half its pace until the two meet, so that what is to last three seconds then lasts six and not an hour.
    fn log_now(&self) -> Wall {
        let (_, wall) = self.clock;
        if planted(15) {
            return wall;
        }
        self.ts.max(wall).max(if planted(55) { Wall(0) } else { self.own_pace() })
    }

    fn own_pace(&self) -> Wall {
        let (since, from) = self.paced;
        from + self.clock.0.since(since) / 2
    }

    /// The room's slot, made when it is new.
    fn slot_of(&mut self, room: &RoomId) -> usize {
        if let Some(&at) = self.index.get(room) {
            return at;
        }
        let at = self.slots.len();
        self.slots.push(Slot {
            room: room.clone(),
            view: None,
            users: HashMap::with_hasher(self.hasher),
            rate: Gcra::default(),
            changed: false,
            said: 0,
            merged: Merged::default(),
            viewers: 0,
            switch: Switch::default(),
            wide: None,
        });
        self.index.insert(room.clone(), at);
        at
    }

    /// The user's place in a room, made when it is new.
    fn user_of(&mut self, at: usize, user: &UserId, log_now: Wall) -> &mut User {
        let users = &mut self.slots[at].users;
        if !users.contains_key(user) {
            users.insert(user.clone(), User::new(self.hasher));
            self.quiet.push_back((log_now + dedupe::WINDOW, at, user.clone()));
        }
        users.get_mut(user).expect("it was just put there")
    }
}

/// Settings of a room made by its first use, titled by its own name.
fn fresh_room(room: &RoomId) -> Arc<Room> {
    Arc::new(Room { version: 1, ..Room::fresh(room.as_str()) })
}
