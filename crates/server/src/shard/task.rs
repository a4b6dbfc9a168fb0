//! The owner thread: one log's state machine, its mail, and what leaves it.
//!
//! Like a clerk with one ledger: takes all the mail there is, writes one page of entries, sends the page to be filed, and
//! only when it is filed tells anyone. While a page is away the mail piles up for the next. It never waits for a viewer, never
//! touches a file, and never says anything about an entry that is not filed.
//!
//! The awkward case: a full worker mailbox. The batch is not kept for that worker; the room is put on its lost list and the
//! worker is told to resync once there is room. Nothing else waits for it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use grandstand_core::banners::Standing;
use grandstand_core::ids::{EventId, Position};
use grandstand_core::likes::Frame;
use grandstand_core::names::{ClientMsgId, Key, RoomId, UserId};
use grandstand_core::owner::Owner;
use grandstand_core::owner::answer::{Answer, BannerFate, Failure, Fate, Known, Output};
use grandstand_core::owner::command::Command;
use grandstand_core::owner::view::RoomView;
use grandstand_core::record::{Audience, Body, End, Policy, Record, RetractTarget, Room, Tally, Verdict};
use grandstand_core::reject::{Code, Reject};
use grandstand_core::time::{Mono, Wall};
use grandstand_core::watch::Silence;
use grandstand_store::fault::{Refusal, WriteFault};
use grandstand_wire::event;
use slab::Slab;
use tokio::sync::oneshot;

use crate::clock;
use crate::link::likes::{LikeBox, RoomTotals};
use crate::link::{
    AskFate, Batch, ConnKey, MatchDetail, NoRoom, OwnerBox, ReadRefused, ReplyTo, RoomBan, RoomDetail, RoomInfo,
    ShardStatus, SiteBanner, SiteBans, SiteList, SnapshotView, Tallies, ToOwner, ToWorker, Which, WorkerId, Workers,
};
use crate::moderation;
use crate::shard::asker::{Asker, Question};
use crate::shard::facts::Facts;
use crate::shard::keeper::Keep;
use crate::shard::writer::{Keeping, Outcome, Work};
use crate::shard::{OnFatal, info, piece};

pub struct Task {
    pub owner: Owner,
    /// The way to the operator's own classifier.
    pub asker: Option<Asker>,
    pub create_on_use: bool,
    pub retention_days: u32,
    pub retention_header_days: u32,
    pub mail: Arc<OwnerBox>,
    pub likes: Arc<LikeBox>,
    /// How many watch, over all gateways.
    pub tallies: Tallies,
    /// The built-in classifier: quick enough to be asked in this thread.
    pub rules: Arc<moderation::Live>,
    pub status: Arc<ShardStatus>,
    pub facts: Arc<Facts>,
    pub workers: Workers,
    pub writer: Sender<Work>,
    pub outcome: Arc<Outcome>,
    pub keeper: Sender<Keep>,
    pub on_fatal: OnFatal,
    pub times: Times,
    pub state: State,
}

/// How often the owner thread does what is not mail.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// A checkpoint of the changed rooms after this long, or after `checkpoint_records`.
    pub checkpoint: Duration,
    pub checkpoint_records: u64,
    /// Between two tries of a log that had no space.
    pub probe: Duration,
    /// Without a try for this long after that, the log is taken to have space until a commit says otherwise.
    pub probe_quiet: Duration,
    pub retention: Duration,
}

impl Default for Times {
    /// Source: docs/decisions/0005-numbers.md.
    fn default() -> Times {
        Times {
            checkpoint: Duration::from_secs(10),
            checkpoint_records: 50_000,
            probe: Duration::from_secs(1),
            probe_quiet: Duration::from_secs(10),
            retention: Duration::from_secs(60),
        }
    }
}

/// What the thread keeps beside the owner.
#[derive(Default)]
pub struct State {
    replies: Slab<ReplyTo>,
    /// Who waits to be told what becomes of a raw comment. What is not decided is bounded by the windows.
    undecided: HashMap<EventId, Vec<ConnKey>>,
    viewers_at: Option<Instant>,
    /// Where each room's batches go: workers, or homes of several.
    subscribers: HashMap<RoomId, Vec<WorkerId>>,
    /// Rooms of which a worker missed something, and what.
    lost: BTreeMap<(WorkerId, RoomId), Lost>,
    /// Comments said in a wide room since its last batch.
    said: HashMap<RoomId, u32>,
    /// Homes that are told the site's list, and whether they have the list as it is.
    site_told: BTreeMap<WorkerId, bool>,
    /// What rooms are told of their providers.
    silent: Arc<[Silence]>,
    /// What stands, written once for all who are told; until there is another.
    site_banners: Option<Vec<Arc<SiteBanner>>>,
    waiting: Vec<Waiting>,
    in_flight_since: Option<Instant>,
    hold: Option<Hold>,
    /// Set by a failed commit: what is to be tried again is not sealed before it.
    retry_at: Option<Instant>,
    /// Likes of this process wait in their box for the next tally.
    likes_wait: bool,
    /// Who hands on likes: where it is, and up to which of its frames it is to be told that they are settled.
    senders: BTreeMap<u64, LikeSender>,
    /// Set while the log has no space: no command is taken before it.
    probe_at: Option<Instant>,
    checkpoint_at: Option<Instant>,
    records_since_checkpoint: u64,
    retention_at: Option<Instant>,
    stopping: bool,
}

#[derive(Default)]
struct LikeSender {
    home: Option<WorkerId>,
    settled: Option<u64>,
}

/// What found a worker's mailbox full.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lost {
    /// The answer to its subscription: it is given again.
    Subscription,
    /// A batch or settings: the worker's ring has a hole.
    Batch,
}

/// A batch that is not sealed yet although the log is free: those just answered are about to ask again, and one sync for
/// all of them is worth a short wait. Without it a closed circle of publishers falls into two halves that take turns, each
/// waiting for the other's sync.
struct Hold {
    until: Instant,
    /// Nobody else is expected.
    enough: usize,
}

/// A snapshot that must not be older than the head is yet.
struct Waiting {
    room: RoomId,
    min: Position,
    until: Instant,
    reply: oneshot::Sender<Result<Arc<SnapshotView>, ReadRefused>>,
}

/// The oldest batch may be this late before publishes are refused. Source: docs/decisions/0005-numbers.md, 500 ms of queued work.
const QUEUED_MAX: Duration = Duration::from_millis(500);
/// A commit faster than this is not worth holding a batch for; a hold takes a quarter of a commit, at most this long.
const HOLD_FROM: Duration = Duration::from_millis(1);
const HOLD_MAX: Duration = Duration::from_millis(3);
/// As often as the owner looks at a room's crowd.
const VIEWERS_EVERY: Duration = Duration::from_secs(1);
/// Between a commit that failed and the next try.
const RETRY_AFTER: Duration = Duration::from_millis(100);
const SNAPSHOT_WAIT: Duration = Duration::from_secs(1);
/// Connections that are told what became of one comment: more repeats of one than these are nobody's accident.
const TOLD_MAX: usize = 8;
/// How often a worker with a full mailbox is tried again.
const LOST_RETRY: Duration = Duration::from_millis(10);

impl Task {
    /// Runs until stopped, or until the log's state is not known any more (then `on_fatal` was called).
    pub fn run(self) {
        let mail = self.mail.clone();
        self.live();
        mail.close();
    }

    fn live(mut self) {
        let now = Instant::now();
        // A start that found an erase unfinished owes it a checkpoint.
        let soon = self.status.erasing().wants_checkpoint();
        self.state.checkpoint_at = Some(if soon { now } else { now + self.times.checkpoint });
        self.state.retention_at = Some(now + self.times.retention);
        loop {
            let deadline = self.deadline();
            let outcome = self.outcome.clone();
            let mail = self.mail.take(deadline, || outcome.is_there());
            let (mono, wall) = (clock::mono(), clock::wall());
            // The outcome first: what it frees may admit what has come meanwhile.
            if let Some(result) = self.outcome.take()
                && !self.committed(result, mono, wall)
            {
                return;
            }
            // Before the mail: a worker is never told of a head that readers do not know yet.
            self.drain(mono, wall);
            for item in mail.links {
                self.link(item);
            }
            if !mail.priority.is_empty() {
                self.state.hold = None;
            }
            for (reply, command) in mail.priority.into_iter().chain(mail.publishes) {
                self.submit(reply, command, mono, wall);
            }
            if self.state.stopping {
                self.owner.hurry_tally();
            }
            // While a batch is away they wait where they are bounded.
            if self.tally_is_due(mono) {
                self.state.likes_wait = false;
                self.owner.take_likes(Frame { from: None, round: self.likes.take(mono) }, mono, wall);
            }
            self.count_viewers();
            if self.owner.next_deadline().is_some_and(|at| at <= mono) {
                self.owner.on_deadline(mono, wall);
            }
            self.drain(mono, wall);
            self.seal(mono, wall);
            self.chores();
            if self.state.stopping && self.state.in_flight_since.is_none() {
                self.checkpoint();
                return;
            }
        }
    }

    /// The owner turns rooms wide by their crowds, which gateways count.
    fn count_viewers(&mut self) {
        let now = Instant::now();
        if self.state.viewers_at.is_some_and(|at| now < at) {
            return;
        }
        self.state.viewers_at = Some(now + VIEWERS_EVERY);
        let rooms: Vec<RoomId> = self.owner.watched_rooms().cloned().collect();
        for room in rooms {
            let viewers = self.viewers(&room);
            self.owner.set_viewers(&room, viewers);
        }
        self.status.set_wide(self.owner.n_wide());
        self.status.moderation().set_reloads(self.rules.reloads());
    }

    fn tally_is_due(&self, now: Mono) -> bool {
        self.state.likes_wait && self.state.in_flight_since.is_none() && self.owner.next_tally() <= now
    }

    fn deadline(&self) -> Option<Instant> {
        let state = &self.state;
        let owner = self.owner.next_deadline().map(|at| Instant::now() + at.since(clock::mono()));
        let waiting = state.waiting.iter().map(|w| w.until).min();
        let likes = (state.likes_wait && state.in_flight_since.is_none())
            .then(|| Instant::now() + self.owner.next_tally().since(clock::mono()));
        let lost = (!state.lost.is_empty()
            || state.senders.values().any(|s| s.settled.is_some())
            || state.site_told.values().any(|told| !*told))
        .then(|| Instant::now() + LOST_RETRY);
        let hold = state.hold.as_ref().map(|hold| hold.until);
        let probe = state.probe_at.map(|at| at + self.times.probe_quiet);
        [owner, waiting, likes, lost, hold, probe, state.retry_at, state.checkpoint_at, state.retention_at]
            .into_iter()
            .flatten()
            .min()
    }

    fn link(&mut self, item: ToOwner) {
        match item {
            ToOwner::Subscribe { worker, room } => self.subscribe(worker, room),
            ToOwner::Unsubscribe { worker, room } => {
                let home = self.workers.home(worker);
                if let Some(homes) = self.state.subscribers.get_mut(&room) {
                    homes.retain(|h| *h != home);
                    if homes.is_empty() {
                        self.state.subscribers.remove(&room);
                    }
                }
                let workers = &self.workers;
                self.state.lost.retain(|(worker, lost), _| *lost != room || workers.home(*worker) != home);
            }
            ToOwner::AskFate(AskFate { conn, room, client_msg_id, raw_id }) => match self.owner.fate(&room, raw_id) {
                Known::Waits => self.tell_later(raw_id, conn),
                Known::Decided(fate) => self.tell_conn(conn, &room, &client_msg_id, fate.event_id()),
                // Neither word would be true for certain.
                Known::Forgotten => {}
            },
            ToOwner::Came { home } => {
                self.state.site_told.entry(home).or_insert(false);
                self.tell_site();
            }
            ToOwner::Gone { home } => {
                self.state.subscribers.retain(|_, homes| {
                    homes.retain(|h| *h != home);
                    !homes.is_empty()
                });
                self.state.site_told.remove(&home);
                let workers = &self.workers;
                self.state.lost.retain(|(worker, _), _| workers.home(*worker) != home);
                self.state.senders.retain(|_, sender| sender.home != Some(home));
            }
            ToOwner::Site { reply } => drop(reply.send(self.site_list())),
            ToOwner::SiteBans { reply } => {
                let as_of = self.owner.log_time(clock::mono(), clock::wall());
                drop(reply.send(SiteBans { as_of, bans: self.owner.site().bans.clone() }));
            }
            ToOwner::Matches { which, reply } => drop(reply.send(self.matches(&which))),
            ToOwner::Silent(told) => {
                self.state.silent = told;
                self.tell_site_anew();
            }
            ToOwner::Snapshot { room, min, reply } => {
                if self.owner.head() < min {
                    self.state.waiting.push(Waiting { room, min, until: Instant::now() + SNAPSHOT_WAIT, reply });
                } else {
                    let _ = reply.send(self.snapshot(&room));
                }
            }
            ToOwner::Room { room, reply } => {
                let _ = reply.send(self.detail(&room).ok_or(ReadRefused::NoRoom));
            }
            ToOwner::Rooms { reply } => {
                let rooms = self.owner.rooms().map(detail_of).collect();
                let _ = reply.send(rooms);
            }
            ToOwner::Held { room, reply } => {
                let held = self.owner.held(&room, clock::mono(), clock::wall());
                drop(reply.send(held.ok_or(ReadRefused::NoRoom)));
            }
            ToOwner::Verdict { tag, ruling } => {
                self.status.moderation().add_ruling(ruling.as_ref());
                self.owner.on_verdict(tag, ruling, clock::mono(), clock::wall());
            }
            ToOwner::LikesWait => self.state.likes_wait = true,
            ToOwner::Likes { home, frame } => {
                if let Some((sender, _)) = frame.from {
                    self.state.senders.entry(sender).or_default().home = Some(home);
                }
                let (mono, wall) = (clock::mono(), clock::wall());
                self.owner.take_likes(frame, mono, wall);
            }
            ToOwner::Stop => self.state.stopping = true,
        }
    }

    /// Registers the worker, then tells it the room's facts: every later batch follows them.
    fn subscribe(&mut self, worker: WorkerId, room: RoomId) {
        debug_assert_eq!(self.facts.head(), self.owner.head(), "readers know the head that a worker is told");
        let found = self.info(&room).ok_or(NoRoom);
        if found.is_ok() {
            let home = self.workers.home(worker);
            // First: whoever is greeted in the room reads it there.
            self.state.site_told.entry(home).or_insert(false);
            self.tell_site();
            let homes = self.state.subscribers.entry(room.clone()).or_default();
            if !homes.contains(&home) {
                homes.push(home);
            }
        }
        if self.workers.send(worker, ToWorker::Room { room: room.clone(), found }).is_err() {
            self.status.add_undelivered();
            self.state.lost.insert((worker, room), Lost::Subscription);
        }
    }

    fn submit(&mut self, reply: ReplyTo, command: Command, now: Mono, wall: Wall) {
        if let Some(reject) = self.refusal(&command) {
            self.answer(reply, Answer::Reject(reject));
            return;
        }
        let tag = self.state.replies.insert(reply) as u64;
        self.owner.submit(tag, command, now, wall);
    }

    /// Why nothing of this kind is taken now.
    fn refusal(&self, command: &Command) -> Option<Reject> {
        let now = Instant::now();
        let state = &self.state;
        if state.stopping {
            return Some(Reject::after(Code::NotReady, "the server is stopping", Duration::from_secs(1)));
        }
        if let Some(at) = state.probe_at
            && now < at
        {
            return Some(Reject::after(Code::NoSpace, "the log has no space", at - now));
        }
        let late = state.in_flight_since.is_some_and(|since| now - since > QUEUED_MAX);
        (late && matches!(command, Command::Publish(_) | Command::React(_)))
            .then(|| Reject::after(Code::Overloaded, "the log is behind", QUEUED_MAX))
    }

    /// Whether the thread goes on.
    fn committed(&mut self, result: Result<(), WriteFault>, now: Mono, wall: Wall) -> bool {
        let took = self.state.in_flight_since.take().map_or(Duration::ZERO, |since| since.elapsed());
        match result {
            Ok(()) => {
                let n_before = self.owner.n_pending();
                self.owner.on_committed(now, wall);
                let n_waiting = self.owner.n_pending();
                let n_answered = n_before - n_waiting;
                // Those waiting came while the log was busy; when they are many, they and the answered take turns.
                if took >= HOLD_FROM && n_waiting * 4 >= n_answered && n_waiting > 0 {
                    let until = Instant::now() + (took / 4).min(HOLD_MAX);
                    self.state.hold = Some(Hold { until, enough: n_before });
                }
                if self.state.probe_at.take().is_some() {
                    self.status.set_no_space(false);
                    tracing::info!("the log has space again");
                }
                true
            }
            Err(WriteFault::Refused(Refusal::NoSpace)) => {
                if self.state.probe_at.is_none() {
                    tracing::error!("the log has no space: publishes are refused, reads go on");
                    self.status.set_no_space(true);
                }
                self.state.probe_at = Some(Instant::now() + self.times.probe);
                self.state.retry_at = self.state.probe_at;
                self.owner.on_failed(Failure::NoSpace, now, wall);
                true
            }
            Err(WriteFault::Failed(fault)) => {
                tracing::warn!(%fault, "a commit failed and left nothing behind");
                self.state.retry_at = Some(Instant::now() + RETRY_AFTER);
                self.owner.on_failed(Failure::Overloaded, now, wall);
                true
            }
            // Another writer went past us, or it is not known what is durable: only the log itself can tell.
            Err(fault @ (WriteFault::Refused(_) | WriteFault::Unknown(_))) => {
                self.status.set_ready(false);
                let advice = "the process ends and reads its log again at the next start";
                (self.on_fatal)(&format!("a commit ended without an answer to rely on ({fault}); {advice}"));
                false
            }
        }
    }

    fn seal(&mut self, now: Mono, wall: Wall) {
        if self.state.in_flight_since.is_some() || self.state.retry_at.is_some_and(|at| Instant::now() < at) {
            return;
        }
        self.state.retry_at = None;
        if let Some(hold) = &self.state.hold
            && !self.state.stopping
            && self.owner.n_pending() < hold.enough
            && Instant::now() < hold.until
        {
            return;
        }
        self.state.hold = None;
        if let Some(records) = self.owner.seal(now, wall) {
            self.state.in_flight_since = Some(Instant::now());
            self.writer.send(Work::Append(records)).expect("the writer lives as long as the owner");
        }
        // Sealing checks once more and may refuse.
        self.drain(now, wall);
    }

    /// Takes all the owner has to say: answers at once, events by room.
    fn drain(&mut self, now: Mono, wall: Wall) {
        let mut committed: Vec<Arc<Record>> = Vec::new();
        let mut verdicts = Vec::new();
        let mut answers = Vec::new();
        let mut settled = false;
        let mut fates = Vec::new();
        let mut decided = Vec::new();
        while let Some(output) = self.owner.poll() {
            match output {
                Output::Answer { tag, answer } => answers.push((tag, answer)),
                Output::Committed(record) => committed.push(record),
                Output::Fate { raw_id, record, fate } => fates.push((raw_id, record, fate)),
                Output::Decided { held_id, record, end } => decided.push((held_id, record, end)),
                Output::NeedVerdict { tag, room, text, deadline, strict } => {
                    let own = self.rules.judge(&text, strict);
                    match (own, &self.asker) {
                        // A block is a block: nobody else is asked.
                        (Some(ruling), Some(asker)) if ruling.verdict != Verdict::Block => {
                            let question = Question { tag, room, text, deadline, strict, ruling };
                            if let Err(own) = asker.ask(question) {
                                verdicts.push((tag, own));
                            }
                        }
                        (own, _) => verdicts.push((tag, own)),
                    }
                }
                Output::LikesSettled { sender, number } => {
                    self.state.senders.entry(sender).or_default().settled = Some(number);
                    settled = true;
                }
            }
        }
        if !committed.is_empty() {
            self.advance(&committed);
            // Before the answers: whoever is told that it holds finds it holding.
            self.note_rules(&committed);
        }
        for (tag, answer) in answers {
            let reply = self.state.replies.remove(tag as usize);
            self.answer(reply, answer);
        }
        if !committed.is_empty() {
            self.count_moderated(&committed);
            self.count_scores(&committed);
            self.fan_out(&committed);
            self.count_gifts(&committed);
        }
        if settled {
            self.tell_settled();
        }
        for (raw_id, record, fate) in fates {
            self.tell_fate(raw_id, &record, fate);
        }
        for (held_id, record, end) in decided {
            self.tell_decided(held_id, &record, end);
        }
        if !verdicts.is_empty() {
            for (tag, ruling) in verdicts {
                self.status.moderation().add_ruling(ruling.as_ref());
                self.owner.on_verdict(tag, ruling, now, wall);
            }
            self.drain(now, wall);
        }
    }

    /// Readers and status learn of the commit before anyone is told of it.
    fn advance(&mut self, committed: &[Arc<Record>]) {
        for record in committed {
            if let Some(user) = record.erases() {
                self.erase(record.event_id(), user);
            }
        }
        let touched: BTreeSet<&RoomId> = committed.iter().filter_map(|r| r.room.as_ref()).collect();
        let views = touched.into_iter().filter_map(|room| self.owner.room(room));
        self.facts.advance(self.owner.head(), self.owner.epochs(), views);
        self.status.set_head(self.owner.head());
        self.status.add_accepted(
            committed
                .iter()
                .filter(|r| !matches!(r.body, Body::EpochStart | Body::Tally(_)) && r.raw_id().is_none())
                .count() as u64,
        );
        self.state.records_since_checkpoint += committed.len() as u64;
        if !self.state.waiting.is_empty() {
            self.wake_snapshots();
        }
    }

    /// From here on readers are shown nothing of the user, and the writer goes through the log once a checkpoint is free of it.
    fn erase(&mut self, id: EventId, user: &UserId) {
        self.status.erasing().begin(id, Some(user.clone()));
        // What was shared of rooms may show the user.
        self.status.add_rules();
        self.writer.send(Work::EraseUser(id)).expect("the writer lives as long as the owner");
        self.state.checkpoint_at = Some(Instant::now());
    }

    /// One batch for each room with subscribers, the same `Arc` to each of them and to no other.
    fn fan_out(&mut self, committed: &[Arc<Record>]) {
        let mut rooms: BTreeMap<&RoomId, Vec<&Arc<Record>>> = BTreeMap::new();
        let erased: Vec<&UserId> = committed.iter().filter_map(|record| record.erases()).collect();
        for record in committed {
            if let Body::Tally(tally) = &record.body {
                self.tell_totals(tally);
                self.status.set_likes(self.owner.likes_counted(), self.owner.uncounted());
            }
            if let Some(room) = &record.room
                && self.state.subscribers.contains_key(room)
            {
                rooms.entry(room).or_default().push(record);
            }
        }
        for (room, records) in rooms {
            let of = |r: &&Arc<Record>| if self.is_unallowed(r) { piece::of_unallowed(r) } else { piece::of(r) };
            let pieces: Vec<_> = records.iter().filter_map(of).collect();
            let changed = records.iter().any(|r| matches!(r.body, Body::Room(_) | Body::Config(_) | Body::Retract(_)));
            let said = records.iter().filter(|r| r.is_raw()).count() as u32;
            let said = said + self.state.said.remove(room).unwrap_or_default();
            let batch = (!pieces.is_empty()).then(|| Arc::new(Batch { room: room.clone(), pieces, said }));
            if batch.is_none() && said > 0 {
                self.state.said.insert(room.clone(), said);
            }
            let info = changed.then(|| self.info(room)).flatten();
            let bans: Vec<Arc<RoomBan>> = records.iter().filter_map(|r| ban_of(r, room)).collect();
            let forget = records.iter().rev().find(|r| erased.iter().any(|user| takes_all_of(r, user)));
            let forget = forget.map(|r| r.event_id());
            for worker in self.state.subscribers.get(room).cloned().unwrap_or_default() {
                if self.state.lost.contains_key(&(worker, room.clone())) {
                    continue;
                }
                let sent = batch.iter().map(|b| ToWorker::Batch(b.clone()));
                let told = bans.iter().map(|ban| ToWorker::Banned(ban.clone()));
                let forget = forget.map(|upto| ToWorker::Forget { room: room.clone(), upto });
                for item in sent.chain(info.iter().map(|i| ToWorker::Settings(i.clone()))).chain(told).chain(forget) {
                    if self.workers.send(worker, item).is_err() {
                        self.status.add_undelivered();
                        self.status.add_dropped(batch.as_ref().map_or(&[], |b| &b.pieces));
                        self.state.lost.insert((worker, room.clone()), Lost::Batch);
                        break;
                    }
                }
            }
        }
    }

    /// The totals that a tally made durable, each room's to its subscribers: one item a home.
    fn tell_totals(&mut self, tally: &Tally) {
        self.status.add_tally();
        let mut by_home: BTreeMap<WorkerId, Vec<RoomTotals>> = BTreeMap::new();
        for (room, totals) in &tally.rooms {
            for home in self.state.subscribers.get(room).into_iter().flatten() {
                if !self.state.lost.contains_key(&(*home, room.clone())) {
                    by_home.entry(*home).or_default().push((room.clone(), totals.clone()));
                }
            }
        }
        for (home, rooms) in by_home {
            let rooms = Arc::new(rooms);
            if self.workers.send(home, ToWorker::Tally(rooms.clone())).is_err() {
                self.status.add_undelivered();
                // The facts they are given once there is room hold the totals.
                let lost = rooms.iter().map(|(room, _)| ((home, room.clone()), Lost::Batch));
                self.state.lost.extend(lost);
            }
        }
    }

    /// Tells those who published it what became of a comment of a wide room.
    fn tell_fate(&mut self, raw_id: EventId, record: &Record, fate: Fate) {
        self.status.add_fate(fate);
        let Some(conns) = self.state.undecided.remove(&raw_id) else { return };
        let (Some(room), Some(key)) = (&record.room, &record.client_msg_id) else { return };
        let event_id = fate.event_id();
        for conn in conns {
            self.tell_conn(conn, room, key, event_id);
        }
    }

    fn tell_conn(&self, conn: ConnKey, room: &RoomId, key: &ClientMsgId, event_id: Option<EventId>) {
        let (room, client_msg_id) = (room.clone(), key.clone());
        // Whoever misses it finds it out by asking with the same key.
        if self.workers.send(conn.worker, ToWorker::Fate { conn, room, client_msg_id, event_id }).is_err() {
            self.status.add_undelivered();
        }
    }

    /// The connection is told once it is decided.
    fn tell_later(&mut self, raw_id: EventId, conn: ConnKey) {
        let conns = self.state.undecided.entry(raw_id).or_default();
        if conns.len() < TOLD_MAX && !conns.contains(&conn) {
            conns.push(conn);
        }
    }

    /// Tells those who published it what became of a comment that was held.
    fn tell_decided(&mut self, held_id: EventId, record: &Record, end: End) {
        self.status.moderation().add_end(end);
        let Some(conns) = self.state.undecided.remove(&held_id) else { return };
        let (Some(room), Body::Held(held)) = (&record.room, &record.body) else { return };
        for conn in conns {
            let (room, client_msg_id) = (room.clone(), held.client_msg_id.clone());
            let item = match end {
                End::Approved(id) => ToWorker::Fate { conn, room, client_msg_id, event_id: Some(id) },
                End::Denied | End::Expired => ToWorker::Refused { conn, room, client_msg_id },
            };
            // As with a fate: whoever misses it asks with the same key.
            if self.workers.send(conn.worker, item).is_err() {
                self.status.add_undelivered();
            }
        }
    }

    /// Tells those who hand on likes what they may let go of; who cannot hear it is told with the next chores.
    fn tell_settled(&mut self) {
        self.status.set_likes(self.owner.likes_counted(), self.owner.uncounted());
        self.state.senders.retain(|id, sender| {
            let Some(home) = sender.home else { return false };
            if let Some(number) = sender.settled
                && self.workers.send(home, ToWorker::LikesSettled { sender: *id, number }).is_ok()
            {
                sender.settled = None;
            }
            true
        });
    }

    /// How many viewers a room has, over all gateways, as of a second ago.
    fn viewers(&self, room: &RoomId) -> u64 {
        self.tallies.find(room).map_or(0, |tally| tally.viewers())
    }

    /// Whether this is a comment for viewers, without an allow under the policy in force, of a room that shows none without.
    fn is_unallowed(&self, record: &Record) -> bool {
        if !matches!(record.body, Body::Comment(_))
            || record.audience == Audience::Nobody
            || record.verdict == Verdict::Allow
        {
            return false;
        }
        record.room.as_ref().and_then(|room| self.owner.room(room)).is_some_and(|view| {
            view.settings.moderation_policy == Policy::PreModerateStrict
                && self.owner.policy_version(&view.room) == record.policy_version
        })
    }

    /// Counts what moderation came to, and holds what is shown against what its room promises.
    fn count_moderated(&self, committed: &[Arc<Record>]) {
        let counts = self.status.moderation();
        for record in committed {
            match &record.body {
                Body::Blocked(_) => counts.add_blocked(),
                Body::Held(_) => counts.add_held(),
                Body::Comment(_) if self.is_unallowed(record) => {
                    counts.add_unallowed();
                    tracing::error!(id = record.event_id().value(), "a strict room shows a comment without an allow");
                }
                // Moderation itself took something back: its retract has no operator.
                Body::Audit(audit) if record.user.is_none() && audit.what.starts_with("moderation") => {
                    counts.add_taken_back();
                }
                _ => {}
            }
        }
    }

    /// Puts what was said of tokens on the board, and says that rooms changed.
    fn note_rules(&mut self, committed: &[Arc<Record>]) {
        let is_access = |r: &Arc<Record>| {
            matches!(r.body, Body::Revoke(..) | Body::RevokeEnd(_) | Body::Outage(_) | Body::EraseUser(_))
        };
        if committed.iter().any(is_access) {
            self.status.board().write(Arc::new(self.owner.access().at(clock::wall())));
            self.tell_site_anew();
        }
        if committed.iter().any(|record| matches!(record.body, Body::Room(_))) {
            self.status.add_rules();
        }
    }

    /// Counts gifts and banners, and tells the site what is new.
    fn count_gifts(&mut self, committed: &[Arc<Record>]) {
        let active = &self.owner.site().active;
        // A blackout ended some.
        let gone = self.state.site_banners.iter().flatten().any(|banner| !active.contains_key(&banner.id));
        let mut changed = gone;
        for record in committed {
            match &record.body {
                Body::Gift(gift) => {
                    self.status.add_gift();
                    if gift.banner_until.is_some() {
                        self.status.add_banner(true);
                        changed = true;
                    }
                }
                Body::Banner(_) => {
                    self.status.add_banner(false);
                    changed = true;
                }
                Body::BannerEnd(_) | Body::SiteBan(_) | Body::SiteUnban(_) | Body::EraseUser(_) => changed = true,
                _ => {}
            }
        }
        if changed {
            self.state.site_banners = None;
            self.tell_site_anew();
        }
    }

    fn matches(&self, which: &Which) -> Vec<MatchDetail> {
        let one = |match_id: &Key| {
            let views = self.owner.rooms_that_show(match_id);
            let first = views.first()?;
            Some(MatchDetail {
                match_id: match_id.clone(),
                room: first.room.clone(),
                ledger: first.scores.get(match_id).cloned().unwrap_or_default(),
                rooms: views.iter().map(|view| (view.room.clone(), view.settings.state)).collect(),
            })
        };
        match which {
            Which::One(match_id) => one(match_id).into_iter().collect(),
            Which::Fed => self.owner.fed_matches().filter_map(one).collect(),
            Which::All(after, most) => {
                let wanted = self.owner.matches().filter(|m| after.as_ref().is_none_or(|after| after < *m));
                wanted.filter_map(one).take(*most).collect()
            }
        }
    }

    /// Holds what was shown of matches against what their ledgers say is the newest.
    fn count_scores(&self, committed: &[Arc<Record>]) {
        for record in committed {
            let Body::Score(score) = &record.body else { continue };
            if record.audience != Audience::Everyone || score.superseded {
                continue;
            }
            let view = record.room.as_ref().and_then(|room| self.owner.room(room));
            let row = view.and_then(|view| view.scores.get(&score.match_id)?.rows.get(score.shown_as().0));
            // One that came later in the same batch is newer.
            if row.is_some_and(|row| row.top.event_id() < record.event_id()) {
                self.status.add_not_highest();
                tracing::error!(
                    id = record.event_id().value(),
                    "a score event is shown that is not the highest revision"
                );
            }
        }
    }

    /// The site's banners that stand, and what is said of tokens.
    fn site_list(&mut self) -> Arc<SiteList> {
        let as_of = self.owner.log_time(clock::mono(), clock::wall());
        let active = &self.owner.site().active;
        let written = self.state.site_banners.get_or_insert_with(|| {
            let one = |(id, Standing { since, banner }): (&EventId, &Standing)| {
                let mut json = Vec::with_capacity(320);
                event::write_banner(*id, banner, &mut json);
                Arc::new(SiteBanner { id: *id, ts: *since, until: banner.until, json: json.into_boxed_slice() })
            };
            active.iter().map(one).collect()
        });
        written.retain(|banner| as_of < banner.until);
        let banners = written.clone();
        let bans = self.owner.site().bans.values();
        let bans = bans.filter(|ban| !ban.shadow && ban.until.is_none_or(|until| as_of < until));
        let bans = bans.map(|ban| (ban.user.clone(), ban.until)).collect();
        let silent = self.state.silent.clone();
        Arc::new(SiteList { as_of, banners, bans, access: self.status.board().read(), silent })
    }

    /// The site's list is another one: nobody has it.
    fn tell_site_anew(&mut self) {
        self.state.site_told.values_mut().for_each(|told| *told = false);
        self.tell_site();
    }

    /// Sends the site's list to the homes that do not have it. A full one is tried again with the lost.
    fn tell_site(&mut self) {
        if self.state.site_told.values().all(|told| *told) {
            return;
        }
        let list = self.site_list();
        for (home, told) in self.state.site_told.iter_mut().filter(|(_, told)| !**told) {
            *told = self.workers.send(*home, ToWorker::Site(list.clone())).is_ok();
            if !*told {
                self.status.add_undelivered();
            }
        }
    }

    fn answer(&mut self, reply: ReplyTo, answer: Answer) {
        if let Answer::Gift { banner: BannerFate::Capped(why), .. } = &answer {
            self.status.add_capped(*why);
        }
        match reply {
            ReplyTo::Nobody => {}
            ReplyTo::Conn { conn, request } => {
                let waits = match answer {
                    Answer::Raw { raw_id, fate: None, .. } => Some(raw_id),
                    Answer::Held { held_id } => Some(held_id),
                    _ => None,
                };
                if let Some(id) = waits {
                    self.tell_later(id, conn);
                }
                // A full mailbox here means a worker that does not run; its clients ask again with the same key.
                if self.workers.send(conn.worker, ToWorker::Answer { conn, request, answer }).is_err() {
                    self.status.add_undelivered();
                }
            }
            // Nobody waits any more: the outcome stands all the same.
            ReplyTo::Oneshot(reply) => drop(reply.send(answer)),
        }
    }

    fn chores(&mut self) {
        let now = Instant::now();
        self.tell_lost();
        if self.state.senders.values().any(|sender| sender.settled.is_some()) {
            self.tell_settled();
        }
        self.tell_site();
        // With nobody publishing nothing would ever find out that there is room again: the next publish may.
        if self.state.probe_at.is_some_and(|at| at + self.times.probe_quiet <= now) {
            self.state.probe_at = None;
            self.status.set_no_space(false);
        }
        if !self.state.waiting.is_empty() {
            self.wake_snapshots();
        }
        let due = self.state.checkpoint_at.is_some_and(|at| at <= now);
        if due || self.state.records_since_checkpoint >= self.times.checkpoint_records {
            self.checkpoint();
            self.state.checkpoint_at = Some(now + self.times.checkpoint);
        }
        if self.state.retention_at.is_some_and(|at| at <= now) {
            self.retain();
            self.state.retention_at = Some(now + self.times.retention);
        }
    }

    /// Tries once more what a full mailbox did not take.
    fn tell_lost(&mut self) {
        for ((worker, room), lost) in std::mem::take(&mut self.state.lost) {
            if lost == Lost::Subscription {
                // As if it had just come: the room may have been made since.
                self.subscribe(worker, room);
                continue;
            }
            let item = match self.info(&room) {
                Some(info) => ToWorker::Resync(info),
                None => ToWorker::Room { room: room.clone(), found: Err(NoRoom) },
            };
            if self.workers.send(worker, item).is_err() {
                self.state.lost.insert((worker, room), lost);
            }
        }
    }

    /// Hands a copy of what changed to the keeper; the owner goes on at once.
    fn checkpoint(&mut self) {
        let scrub = self.status.erasing().wants_checkpoint();
        if self.state.records_since_checkpoint == 0 && !scrub {
            return;
        }
        self.state.records_since_checkpoint = 0;
        let start = Instant::now();
        let (log, rooms) = self.owner.take_checkpoint();
        self.status.checkpoints().copy.add(start.elapsed());
        self.keeper.send(Keep::Checkpoint { log, rooms, scrub }).expect("the keeper lives as long as the owner");
    }

    /// Bodies as long as their room asks, headers as long as the most patient one and the server's setting.
    fn retain(&mut self) {
        const DAY: Duration = Duration::from_secs(86_400);
        let now = clock::wall();
        let default = Room::fresh("").retention_days;
        // A room with the default follows the server's setting.
        let days = |settings: &Room| match settings.retention_days {
            days if days == default => self.retention_days,
            days => days,
        };
        let rooms: HashMap<RoomId, u32> =
            self.owner.rooms().map(|view| (view.room.clone(), days(&view.settings))).collect();
        let longest = rooms.values().copied().max().unwrap_or(0).max(self.retention_header_days);
        let keeping = Keeping {
            rooms: rooms.into_iter().map(|(room, days)| (room, now - DAY * days)).collect(),
            others: now - DAY * self.retention_days,
            headers: now - DAY * longest,
        };
        self.writer.send(Work::Retain(keeping)).expect("the writer lives as long as the owner");
    }

    fn wake_snapshots(&mut self) {
        let (head, now) = (self.owner.head(), Instant::now());
        for waiting in std::mem::take(&mut self.state.waiting) {
            if waiting.min <= head {
                let _ = waiting.reply.send(self.snapshot(&waiting.room));
            } else if waiting.until <= now {
                let _ = waiting.reply.send(Err(ReadRefused::Busy(crate::link::OVERLOADED)));
            } else {
                self.state.waiting.push(waiting);
            }
        }
    }

    /// The room as viewers are greeted with it. A room made on first use is there before its first record.
    fn info(&self, room: &RoomId) -> Option<Arc<RoomInfo>> {
        let log = info::Log { head: self.owner.head(), epochs: self.owner.epochs() };
        match self.owner.room(room) {
            Some(view) => {
                let facts = (view.last_event, view.pseq, view.wide, view.likes.clone());
                Some(info::of(room, view.settings.clone(), log, facts))
            }
            None if self.create_on_use => {
                let settings = Arc::new(Room::fresh(room.as_str()));
                Some(info::of(room, settings, log, (Position::START, Default::default(), false, Default::default())))
            }
            None => None,
        }
    }

    fn detail(&self, room: &RoomId) -> Option<RoomDetail> {
        self.owner.room(room).map(detail_of)
    }

    fn snapshot(&mut self, room: &RoomId) -> Result<Arc<SnapshotView>, ReadRefused> {
        let info = self.info(room).ok_or(ReadRefused::NoRoom)?;
        let banners = self.site_list();
        let head = self.owner.head();
        let view = self.owner.room(room);
        let as_of = if info.last_event > Position::START { info.last_event } else { head };
        Ok(Arc::new(SnapshotView {
            room: room.clone(),
            as_of,
            pseq: info.pseq,
            settings: info.settings.clone(),
            current: view.map(RoomView::current_scores).unwrap_or_default(),
            scores: view.map(RoomView::top_scores).unwrap_or_default(),
            pinned: view.map(|v| v.pinned.clone()).unwrap_or_default(),
            recent: view.map(|v| v.recent.iter().cloned().collect()).unwrap_or_default(),
            policy_version: self.owner.policy_version(room),
            banners,
            info,
        }))
    }
}

fn takes_all_of(record: &Record, user: &UserId) -> bool {
    matches!(&record.body, Body::Retract(retract) if retract.target == RetractTarget::User(user.clone()))
}

/// What a banned user's streams are told: nothing of a shadow ban.
fn ban_of(record: &Record, room: &RoomId) -> Option<Arc<RoomBan>> {
    let Body::Ban(ban) = &record.body else { return None };
    let told = || Arc::new(RoomBan { room: room.clone(), user: ban.user.clone(), until: ban.until });
    (!ban.shadow).then(told)
}

fn detail_of(view: &RoomView) -> RoomDetail {
    RoomDetail {
        room: view.room.clone(),
        settings: view.settings.clone(),
        last_event: view.last_event,
        pseq: view.pseq,
        accepted: view.accepted,
        likes: view.likes.clone(),
        reports: view.reports.clone(),
        retracted: view.retracted.clone(),
        bans: view.bans.clone(),
    }
}
