//! Where the roles meet: what a gateway worker, the shard and the control plane say to each other.
//!
//! Embedded, the link is a set of in-process mailboxes. With several gateway processes it is a local socket between each of
//! them (`hub`) and the shard's (`host`), and the handles here hide which of the two it is. Every mailbox is bounded; a full one
//! is answered by a refusal, never by waiting, so that no role can stop another. Nothing here decides anything.
//!
//! ```text
//! gateway ── ShardHandle ──► shard owner (commands, subscriptions) · shard readers (resumes, pages)
//! control ── ShardHandle ──► the same, answers by oneshot
//! shard ──── Workers ──────► gateway worker mailbox (ToWorker)
//! gateway ── HttpRequest ──► control          control ── Workers ──► ToWorker::Http
//! ```

pub mod bundles;
pub mod checkpoints;
pub mod codec;
pub mod erasing;
pub mod host;
pub mod hub;
pub mod likes;
pub mod moderated;
pub mod peers;
mod share;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use grandstand_core::access::Access;
use grandstand_core::admission::Demand;
use grandstand_core::banners::Capped;
use grandstand_core::ids::{Epoch, EpochSpan, EventId, Position, Pseq};
use grandstand_core::likes::{Frame, Totals};
use grandstand_core::moderation::Ruling;
use grandstand_core::names::{ClientMsgId, Key, RoomId, UserId};
use grandstand_core::owner::answer::{Answer, Fate};
use grandstand_core::owner::command::{Command, Tag};
use grandstand_core::owner::likes::Uncounted;
use grandstand_core::owner::view::Retracted;
use grandstand_core::record::{Audience, Ban, Lane, Record, RetractTarget, Room, RoomState};
use grandstand_core::reports::Reports;
use grandstand_core::revision::{CurrentScore, Ledger};
use grandstand_core::sampler::pick::WindowNumber;
use grandstand_core::time::Wall;
use grandstand_core::viewer::people::People;
use grandstand_core::viewer::resume;
use grandstand_core::watch::Silence;
use grandstand_store::log::Verified;
use grandstand_wire::chain::Link;
use grandstand_wire::problem;
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::auth::board::Board;
use crate::link::checkpoints::Checkpoints;
use crate::link::erasing::Erasing;
use crate::metrics::LANES;
use host::Host;
use hub::Hub;
use likes::{LikeBox, RoomTotals};
use moderated::Moderated;
use peers::To;

/// One gateway worker. The low sixteen bits are its process and its place there, the same in every process; above them the
/// shard's process keeps the serial of the link it came by, so that no two workers that ever were have the same name there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WorkerId(pub u32);

/// Gateway processes of one shard at most, and workers of each of them.
pub const PROCESSES_MAX: u8 = 64;
pub const WORKERS_A_PROCESS_MAX: u8 = 254;

impl WorkerId {
    pub fn of(process: u8, worker: u8) -> WorkerId {
        WorkerId(u32::from(process) << 8 | u32::from(worker))
    }
    /// Process and place, without the link.
    pub fn number(self) -> u16 {
        self.0 as u16
    }
    /// 0 where gateway and shard share a process.
    pub fn process(self) -> u8 {
        (self.0 >> 8) as u8
    }
}

/// One connection of one worker. `generation` tells a reused slot from the connection an answer was meant for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ConnKey {
    pub worker: WorkerId,
    pub slot: u32,
    pub generation: u32,
}

/// One event of a room, encoded once, shared by every ring, frame and resume that carries it.
#[derive(Debug)]
pub struct Piece {
    pub id: EventId,
    pub lane: Lane,
    /// When its id was given.
    pub ts: Wall,
    /// Flushes what waits in the merge window before it.
    pub closes_window: bool,
    pub pseq: Option<Pseq>,
    /// The `type` on the wire and SSE's `event:`.
    pub kind: &'static str,
    /// The JSON object, `room_id` included, without `client_msg_id`.
    pub json: Box<[u8]>,
    /// Whose it is: the author's own connections get `client_msg_id` too.
    pub author: Option<(UserId, Option<ClientMsgId>)>,
    pub audience: Audience,
    /// A comment without an allow of a room that shows none without: never, unless something is very wrong.
    pub unallowed: bool,
    /// On a retract: what must not be shown from here on. A ring drops the bodies it holds.
    pub retracts: Option<RetractTarget>,
    /// A window's winner: it is for those whom a gateway picks it for.
    pub won: Option<Won>,
}

/// What a gateway's pick must know of a window's winner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Won {
    pub window: WindowNumber,
    /// Winners of its window, itself included.
    pub of: u32,
    /// 1 to 1000.
    pub weight: u32,
    /// It came beside the lot: its addressee is given it beside the pick.
    pub by_right: bool,
    /// Whom it answers or names.
    pub addressee: Option<UserId>,
    /// The thread it is in.
    pub reply_to: Option<EventId>,
}

/// What one commit added to one room, in id order.
#[derive(Debug)]
pub struct Batch {
    pub room: RoomId,
    pub pieces: Vec<Arc<Piece>>,
    /// Comments that were said in the room, wide, since its last batch; winners are among them.
    pub said: u32,
}

/// A cursor from before so many restarts is older than any resume window.
pub const EPOCHS_TOLD: usize = 16;

/// A room as a gateway needs it to greet and admit viewers.
#[derive(Clone, Debug)]
pub struct RoomInfo {
    pub room: RoomId,
    pub settings: Arc<Room>,
    /// The log's head when this was made: every batch with a higher id follows on this link.
    pub head: Position,
    /// The log's newest epochs, at most [`EPOCHS_TOLD`], oldest first: cursors of theirs are judged without the log.
    pub epochs: Arc<[EpochSpan]>,
    /// The room's newest event that any viewer is sent, or START.
    pub last_event: Position,
    pub pseq: Pseq,
    /// Likes by kind, as they are in the log.
    pub likes: Totals,
    /// JSON of hello's config members (an object) and pinned, ready to embed.
    pub config_json: Arc<str>,
    pub pinned_json: Arc<str>,
    /// Comments go through its window and viewers are given a part of them, at most `settings.sampling.cap()` a second.
    pub wide: bool,
}

/// What the whole site must know: what it does not name is over.
#[derive(Debug, Default)]
pub struct SiteList {
    /// Log time when it was made, which may be ahead of a clock that was set back.
    pub as_of: Wall,
    /// All banners that stand, at most `banners::ACTIVE_MAX`, oldest first.
    pub banners: Vec<Arc<SiteBanner>>,
    /// What is said of tokens.
    pub access: Arc<Access>,
    /// Who may be nowhere on the site, by name, and until when: at most `bans::SITE_MAX`.
    pub bans: Arc<[(UserId, Option<Wall>)]>,
    /// Providers of which nothing comes, and that they are back, by room: at most `watch::TOLD_MAX`.
    pub silent: Arc<[Silence]>,
}

/// Who may not speak anywhere, shadow bans too: an operator's list, which no gateway is sent.
#[derive(Clone, Debug)]
pub struct SiteBans {
    /// Log time: a ban with an end up to here is over.
    pub as_of: Wall,
    /// Those that are over may be among them.
    pub bans: Arc<BTreeMap<UserId, Ban>>,
}

/// A user may not speak in a room from here on; its open streams are told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RoomBan {
    pub room: RoomId,
    pub user: UserId,
    pub until: Option<Wall>,
}

/// One banner, encoded once for every viewer of the site.
#[derive(PartialEq, Eq, Debug)]
pub struct SiteBanner {
    pub id: EventId,
    /// When its id was given, and when it is over.
    pub ts: Wall,
    pub until: Wall,
    pub json: Box<[u8]>,
}

/// One page of a room's log for one catching-up viewer.
#[derive(Clone, Debug)]
pub struct Page {
    /// Of a window that the asked position lies within also the winners before it: nothing of one is picked that is not whole.
    pub pieces: Vec<Arc<Piece>>,
    /// The page holds every event of the room after the asked position up to here.
    pub upto: Position,
}

/// One page of a room's past for a ring, read backwards.
#[derive(Clone, Debug)]
pub struct Past {
    /// Oldest first.
    pub pieces: Vec<Arc<Piece>>,
    /// The page holds every event of the room after here and up to the asked place.
    pub after: Position,
}

/// Bounded, many senders, one receiver that is woken when the box stops being empty.
pub struct Mailbox<T> {
    queue: Mutex<VecDeque<T>>,
    limit: usize,
    wake: Box<dyn Fn() + Send + Sync>,
}

/// The box is full: the receiver is that far behind.
#[derive(Debug, PartialEq, Eq)]
pub struct Full<T>(pub T);

impl<T> Mailbox<T> {
    pub fn new(limit: usize, wake: impl Fn() + Send + Sync + 'static) -> Mailbox<T> {
        Mailbox { queue: Mutex::new(VecDeque::new()), limit, wake: Box::new(wake) }
    }

    /// Errors: the item comes back when the box holds `limit` already.
    pub fn send(&self, item: T) -> Result<(), Full<T>> {
        let first = {
            let mut queue = self.queue.lock().expect("no holder of a mailbox lock can panic");
            if queue.len() >= self.limit {
                return Err(Full(item));
            }
            queue.push_back(item);
            queue.len() == 1
        };
        if first {
            (self.wake)();
        }
        Ok(())
    }

    /// Takes all that has come, in order of sending.
    pub fn take(&self) -> VecDeque<T> {
        std::mem::take(&mut *self.queue.lock().expect("no holder of a mailbox lock can panic"))
    }

    pub fn len(&self) -> usize {
        self.queue.lock().expect("no holder of a mailbox lock can panic").len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// How long a refused client should wait, and over how long clients are spread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delay {
    pub retry_after: Duration,
    pub spread: Duration,
}

impl Delay {
    /// As a problem document tells it.
    pub fn wait(self) -> problem::Wait {
        let millis = |d: Duration| d.as_millis() as u64;
        problem::Wait { retry_after_ms: millis(self.retry_after), spread_ms: millis(self.spread) }
    }
}

// ---- shard -> gateway worker -------------------------------------------------------------------------------------

/// What a gateway worker's mailbox receives.
pub enum ToWorker {
    /// The answer to `subscribe`. Every batch of the room with an id above the info's `head` follows on this mailbox.
    Room {
        room: RoomId,
        found: Result<Arc<RoomInfo>, NoRoom>,
    },
    /// One commit's events of one room this worker is subscribed to, in id order. The same `Arc` goes to every worker.
    Batch(Arc<Batch>),
    /// The room's settings changed. Sent after the batch that carries the change, never before it.
    Settings(Arc<RoomInfo>),
    /// What rooms came to in likes with one tally. As a batch is: sent once to a home, of rooms it has viewers of.
    Tally(Arc<Vec<RoomTotals>>),
    /// For a process's hub: all frames of likes of this sender up to this number are settled.
    LikesSettled {
        sender: u64,
        number: u64,
    },
    /// A user was banned in a room this worker is subscribed to. Lost to a full mailbox, its streams learn of it when they speak.
    Banned(Arc<RoomBan>),
    /// A user was erased: before long no ring of the room may hold anything up to here, of which some may name the user. Sent after
    /// the batch that tells viewers.
    Forget {
        room: RoomId,
        upto: EventId,
    },
    /// The site's list: to each home when it is linked and before the first room it asks for, and again when it changes.
    Site(Arc<SiteList>),
    /// Batches of this room were not delivered because the mailbox was full. The ring has a hole below `head`, which it reads
    /// from the log; every batch above `head` follows.
    Resync(Arc<RoomInfo>),
    /// The shard is away: nothing more of it comes, and what it was asked is not answered.
    Away,
    /// The shard is there again, perhaps another one: it knows of no subscription and no question. Every room is subscribed
    /// anew; [`ToWorker::Room`] answers as the first time.
    Back,
    /// The answer to [`ShardHandle::past`].
    Past {
        room: RoomId,
        request: u64,
        answer: Result<Past, ReadRefused>,
    },
    Resume {
        conn: ConnKey,
        request: u64,
        room: RoomId,
        answer: Result<Resumed, ReadRefused>,
    },
    Page {
        conn: ConnKey,
        request: u64,
        room: RoomId,
        answer: Result<Page, ReadRefused>,
    },
    Answer {
        conn: ConnKey,
        request: u64,
        answer: Answer,
    },
    /// What became of a comment of a wide room, or of one that was held and approved, that was published here: the event it was
    /// shown as, or none.
    Fate {
        conn: ConnKey,
        room: RoomId,
        client_msg_id: ClientMsgId,
        event_id: Option<EventId>,
    },
    /// Moderation refused a comment that was held, which was published here.
    Refused {
        conn: ConnKey,
        room: RoomId,
        client_msg_id: ClientMsgId,
    },
    Http {
        conn: ConnKey,
        part: HttpPart,
    },
    /// From another worker: a new token for a stream that cannot speak. [`ToWorker::Renewed`] answers.
    Renew {
        conn: ConnKey,
        nonce: u64,
        room: RoomId,
        token: Box<str>,
        reply: ConnKey,
        /// Drawn by chance: the process that asked may be another one by the time it is answered.
        request: u64,
    },
    /// Whether the stream took the token; `None` when there is no such stream.
    Renewed {
        conn: ConnKey,
        request: u64,
        taken: Option<bool>,
    },
    /// From another worker: a newer poll of the same viewer came, this one is answered 204.
    EndPoll {
        conn: ConnKey,
    },
    /// From another gateway process: a poll of this line came there. The one that holds it here is answered 204.
    EndLine {
        line: u64,
    },
    /// From its own process: whether the port is left to other processes may have changed.
    Port,
    /// Close every viewer with 4112, the client's wait drawn from the delay; accept nothing new.
    Drain(Delay),
    Stop,
}

/// The room does not exist and is not made on first use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoRoom;

/// The answer to a cursor that the ring does not cover and, when events follow it, the first page of them.
#[derive(Clone, Debug)]
pub struct Resumed {
    pub answer: resume::Answer,
    pub first: Page,
}

/// A reader could not answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadRefused {
    /// Close code 4004 or HTTP 404.
    NoRoom,
    /// The log could not be read; the connection is closed with 4150 and the client comes back.
    Fault,
    /// Too many readers wait; ask again after the delay.
    Busy(Delay),
    /// The ring that asks for its room's past was given what the log does not hold: everyone resumes.
    Unknown,
}

// ---- gateway, control -> shard -------------------------------------------------------------------------------------

/// Where the answer to a command goes.
pub enum ReplyTo {
    Conn {
        conn: ConnKey,
        request: u64,
    },
    Oneshot(oneshot::Sender<Answer>),
    /// Nobody is told.
    Nobody,
}

/// The shard takes no more of this kind now (`overloaded`); nothing was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overloaded(pub Delay);

/// What the owner thread receives beside commands.
pub enum ToOwner {
    Subscribe {
        worker: WorkerId,
        room: RoomId,
    },
    Unsubscribe {
        worker: WorkerId,
        room: RoomId,
    },
    /// What became of this raw comment is to be told by [`ToWorker::Fate`], as to who published it here.
    AskFate(AskFate),
    /// The like box of this process stopped being empty.
    LikesWait,
    /// A round of likes of a gateway process.
    Likes {
        home: WorkerId,
        frame: Frame,
    },
    /// A gateway process is there.
    Came {
        home: WorkerId,
    },
    /// This home of subscriptions, and all behind it, is gone.
    Gone {
        home: WorkerId,
    },
    Snapshot {
        room: RoomId,
        min: Position,
        reply: oneshot::Sender<Result<Arc<SnapshotView>, ReadRefused>>,
    },
    Room {
        room: RoomId,
        reply: oneshot::Sender<Result<RoomDetail, ReadRefused>>,
    },
    Rooms {
        reply: oneshot::Sender<Vec<RoomDetail>>,
    },
    /// The room's queue for review, oldest first: what may still be approved.
    Held {
        room: RoomId,
        reply: oneshot::Sender<Result<Vec<Arc<Record>>, ReadRefused>>,
    },
    /// The classifier's word on what it was asked.
    Verdict {
        tag: Tag,
        ruling: Option<Ruling>,
    },
    Site {
        reply: oneshot::Sender<Arc<SiteList>>,
    },
    SiteBans {
        reply: oneshot::Sender<SiteBans>,
    },
    Matches {
        which: Which,
        reply: oneshot::Sender<Vec<MatchDetail>>,
    },
    /// What rooms are to be told of providers.
    Silent(Arc<[Silence]>),
    Stop,
}

/// Which matches are asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Which {
    One(Key),
    /// Those that are shown from a primary provider.
    Fed,
    /// By id, from after this one, at most so many.
    All(Option<Key>, usize),
}

/// A match that at least one room shows.
#[derive(Clone, Debug)]
pub struct MatchDetail {
    pub match_id: Key,
    /// The room that decides about it, and what that has heard of it.
    pub room: RoomId,
    pub ledger: Arc<Ledger>,
    /// All that show it, the deciding one first.
    pub rooms: Vec<(RoomId, RoomState)>,
}

/// A connection was told that its comment of a wide room is in the log, and the shard that would tell it what became of it went
/// away.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AskFate {
    pub conn: ConnKey,
    pub room: RoomId,
    pub client_msg_id: ClientMsgId,
    pub raw_id: EventId,
}

/// What a gateway asks of the log, for a viewer or for a ring.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fetch {
    /// How a viewer at `cursor` goes on. [`ToWorker::Resume`] answers, the first page with it.
    Resume { conn: ConnKey, request: u64, room: RoomId, cursor: Position },
    /// The next page of a catching-up viewer. [`ToWorker::Page`] answers. Asked when the last page has left.
    /// `comments_from` is the resume answer's: comments up to there are left out.
    Page { conn: ConnKey, request: u64, room: RoomId, after: Position, comments_from: Position },
    /// What a worker's ring of the room lacks, from `upto` backwards, one page. [`ToWorker::Past`] answers.
    /// `seen` is the newest place of the log that the ring was ever given: a log that does not know it is another one.
    Past { worker: WorkerId, request: u64, room: RoomId, upto: Position, seen: Position },
}

impl Fetch {
    /// The name of the worker that asks.
    pub(super) fn worker_mut(&mut self) -> &mut WorkerId {
        match self {
            Fetch::Resume { conn, .. } | Fetch::Page { conn, .. } => &mut conn.worker,
            Fetch::Past { worker, .. } => worker,
        }
    }

    /// What its worker hears when nothing was read.
    pub(super) fn refused(self, why: ReadRefused) -> (WorkerId, ToWorker) {
        match self {
            Fetch::Resume { conn, request, room, .. } => {
                (conn.worker, ToWorker::Resume { conn, request, room, answer: Err(why) })
            }
            Fetch::Page { conn, request, room, .. } => {
                (conn.worker, ToWorker::Page { conn, request, room, answer: Err(why) })
            }
            Fetch::Past { worker, request, room, .. } => (worker, ToWorker::Past { room, request, answer: Err(why) }),
        }
    }
}

/// What a reader thread receives.
pub enum ToReader {
    Fetch(Fetch),
    /// Comments older than `before`, newest last, at most `limit`.
    Older {
        room: RoomId,
        before: Position,
        limit: usize,
        reply: oneshot::Sender<Result<Vec<Arc<Piece>>, ReadRefused>>,
    },
    Export {
        room: RoomId,
        after: Position,
        reply: oneshot::Sender<Result<ExportPage, ReadRefused>>,
    },
    Archive {
        room: RoomId,
        after: After,
        reply: oneshot::Sender<Result<ExportPage, ReadRefused>>,
    },
    /// The whole log, without what users say.
    Scan {
        after: Position,
        reply: oneshot::Sender<Result<ExportPage, ReadRefused>>,
    },
    Past {
        room: RoomId,
        before: Position,
        reply: oneshot::Sender<Result<BackPage<Arc<Record>>, ReadRefused>>,
    },
    /// Holds a stretch of the log against its chain.
    Verify {
        from: Option<(Position, Link)>,
        reply: oneshot::Sender<Result<Verified, ReadRefused>>,
    },
    /// The link at a place of the log.
    Link {
        at: Position,
        reply: oneshot::Sender<Result<Option<Link>, ReadRefused>>,
    },
    Audit {
        asked: AuditAsked,
        reply: oneshot::Sender<Result<BackPage<Audited>, ReadRefused>>,
    },
}

/// Where a reading begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum After {
    Position(Position),
    /// With what has this log time or a later one.
    From(Wall),
}

/// Which operators' changes are looked for.
#[derive(Clone, Default, Debug)]
pub struct AuditAsked {
    /// `None`: of every room.
    pub room: Option<RoomId>,
    pub by: Option<UserId>,
    pub what: Option<Arc<str>>,
    /// Log time, `from` included and `to` not.
    pub from: Option<Wall>,
    pub to: Option<Wall>,
    /// Only what stands before.
    pub before: Position,
    pub limit: usize,
}

/// An operator's change as the log has it.
#[derive(Clone, Debug)]
pub struct Audited {
    pub audit: Arc<Record>,
    /// The records it wrote, directly before it, at most three; none where there was nothing to do.
    pub changes: Vec<Arc<Record>>,
}

/// What one look back found, newest first.
#[derive(Clone, Debug)]
pub struct BackPage<T> {
    pub found: Vec<T>,
    /// Everything from here on has been looked at: the next look is before it. START: there is no more.
    pub upto: Position,
}

/// A room as its operator and the room list see it.
#[derive(Clone, Debug)]
pub struct RoomDetail {
    pub room: RoomId,
    pub settings: Arc<Room>,
    /// The room's newest event that any viewer is sent, or START.
    pub last_event: Position,
    pub pseq: Pseq,
    /// Comments ever accepted.
    pub accepted: u64,
    pub likes: Totals,
    /// What viewers reported.
    pub reports: Arc<Reports>,
    pub retracted: Arc<Retracted>,
    /// Those that are over may be among them.
    pub bans: Arc<BTreeMap<UserId, Ban>>,
}

/// What the snapshot of a room is made from; viewer-independent.
#[derive(Clone, Debug)]
pub struct SnapshotView {
    pub room: RoomId,
    /// The room's newest event, or in an empty room its log's newest record. Never below the asked `min`.
    pub as_of: Position,
    pub pseq: Pseq,
    pub settings: Arc<Room>,
    /// The current score of each match the room shows, in the settings' order.
    pub current: Vec<CurrentScore>,
    /// The highest revision of each event of those matches, by match, then in order of first arrival.
    pub scores: Vec<Arc<Record>>,
    /// Pinned comments that may be shown.
    pub pinned: Vec<Arc<Record>>,
    /// The last comments (≤ 50), newest last, retracted ones left out.
    pub recent: Vec<Arc<Record>>,
    /// Moves with every change a snapshot may show that has no event id.
    pub policy_version: u32,
    /// The ready-made parts of the room, as in `hello`.
    pub info: Arc<RoomInfo>,
    /// The site's banners.
    pub banners: Arc<SiteList>,
}

/// The room's records after the asked position, in order, control records (bans, room changes) included; retracted and
/// erased bodies as the log holds them.
#[derive(Clone, Debug)]
pub struct ExportPage {
    pub records: Vec<Arc<Record>>,
    /// Everything of the room up to here is in this page or an earlier one.
    pub upto: Position,
    /// The log's head when the page was read; `upto == head` ends an export without `to`.
    pub head: Position,
}

/// What the log was read for, once each time it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Read {
    /// One cursor was judged.
    Resume,
    /// A page for viewers that catch up.
    Page,
    /// A page of a room's past for a ring.
    Past,
    /// Older comments.
    Older,
    Export,
    /// Back from the newest, for a user's history or the audit.
    Back,
    /// A stretch held against the chain.
    Verify,
}

impl Read {
    pub const ALL: [Read; 7] =
        [Read::Resume, Read::Page, Read::Past, Read::Older, Read::Export, Read::Back, Read::Verify];

    pub fn name(self) -> &'static str {
        match self {
            Read::Resume => "resume",
            Read::Page => "page",
            Read::Past => "past",
            Read::Older => "older",
            Read::Export => "export",
            Read::Back => "back",
            Read::Verify => "verify",
        }
    }
}

/// Why the owner did not count likes.
pub const UNCOUNTED: [&str; 4] = ["banned", "rate", "room", "kind"];

/// What anyone may read of the shard at any moment.
pub struct ShardStatus {
    ready: AtomicBool,
    no_space: AtomicBool,
    /// This process has no memory for more comments.
    short: AtomicBool,
    head: AtomicU64,
    epoch: AtomicU64,
    accepted: AtomicU64,
    commits: AtomicU64,
    records: AtomicU64,
    commit_micros: AtomicU64,
    log_bytes: AtomicU64,
    undelivered: AtomicU64,
    dropped: [AtomicU64; LANES.len()],
    /// Likes counted, and those that were not: banned, over the rate, of no such room, of a kind too many.
    likes: AtomicU64,
    uncounted: [AtomicU64; UNCOUNTED.len()],
    tallies: AtomicU64,
    reads: [AtomicU64; Read::ALL.len()],
    checkpoints: Checkpoints,
    moderation: Moderated,
    erasing: Erasing,
    /// The newest place of the log whose link is kept beside the log too.
    chained: Mutex<Option<(Position, Link)>>,
    /// Changes of rooms' settings since the process started.
    rules: AtomicU64,
    /// Score events that were shown as the newest of their key and were not.
    not_highest: AtomicU64,
    board: Arc<Board>,
    /// Gifts, banners of gifts and of operators, and gifts that were worth a banner and got none, by why.
    gifts: AtomicU64,
    banners: [AtomicU64; 2],
    capped: [AtomicU64; Capped::ALL.len()],
    wide: AtomicU64,
    shown: AtomicU64,
    not_shown: AtomicU64,
    /// `fsync`, `interval` or `none`: what an ack means here.
    durability: OnceLock<&'static str>,
}

impl ShardStatus {
    fn new(board: Arc<Board>) -> ShardStatus {
        ShardStatus {
            board,
            rules: AtomicU64::new(0),
            not_highest: AtomicU64::new(0),
            ready: AtomicBool::new(false),
            no_space: AtomicBool::new(false),
            short: AtomicBool::new(false),
            head: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
            accepted: AtomicU64::new(0),
            commits: AtomicU64::new(0),
            records: AtomicU64::new(0),
            commit_micros: AtomicU64::new(0),
            log_bytes: AtomicU64::new(0),
            undelivered: AtomicU64::new(0),
            dropped: Default::default(),
            likes: AtomicU64::new(0),
            uncounted: Default::default(),
            tallies: AtomicU64::new(0),
            reads: Default::default(),
            checkpoints: Checkpoints::default(),
            moderation: Moderated::default(),
            erasing: Erasing::default(),
            chained: Mutex::default(),
            gifts: AtomicU64::new(0),
            banners: Default::default(),
            capped: Default::default(),
            wide: AtomicU64::new(0),
            shown: AtomicU64::new(0),
            not_shown: AtomicU64::new(0),
            durability: OnceLock::new(),
        }
    }
    /// Commands are taken: the log is recovered and this epoch's first record is durable.
    pub fn ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }
    /// Commands are refused with `no_space`; reads go on.
    pub fn no_space(&self) -> bool {
        self.no_space.load(Ordering::Acquire)
    }
    /// The newest committed record that was given out.
    pub fn head(&self) -> Position {
        Position::new(self.head.load(Ordering::Acquire)).expect("only positions are stored")
    }
    /// Errors: `None` before the shard is ready.
    pub fn epoch(&self) -> Option<Epoch> {
        Epoch::new(self.epoch.load(Ordering::Acquire) as u32)
    }
    pub fn durability(&self) -> &'static str {
        self.durability.get().copied().unwrap_or("unknown")
    }
    /// Comments, scores, gifts and operator changes made durable since the process started.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }
    /// Commits, the records in them, and the time the log took for them, since the process started.
    pub fn commits(&self) -> (u64, u64, Duration) {
        let micros = self.commit_micros.load(Ordering::Relaxed);
        (self.commits.load(Ordering::Relaxed), self.records.load(Ordering::Relaxed), Duration::from_micros(micros))
    }
    pub fn log_bytes(&self) -> u64 {
        self.log_bytes.load(Ordering::Relaxed)
    }
    /// Rooms that are wide now, as of a second ago.
    pub fn wide(&self) -> u64 {
        self.wide.load(Ordering::Relaxed)
    }
    /// Comments of wide rooms since the process started: those that were shown, and those whose window closed without them.
    pub fn fates(&self) -> (u64, u64) {
        (self.shown.load(Ordering::Relaxed), self.not_shown.load(Ordering::Relaxed))
    }
    /// Answers and batches that found a full worker mailbox (batches are made good by a resync).
    pub fn undelivered(&self) -> u64 {
        self.undelivered.load(Ordering::Relaxed)
    }

    /// Events of batches that found a full worker mailbox, in the order of [`LANES`].
    pub fn dropped(&self) -> [u64; LANES.len()] {
        self.dropped.each_ref().map(|n| n.load(Ordering::Relaxed))
    }

    /// Likes counted since the process started, and the tallies they were written with.
    pub fn likes(&self) -> (u64, u64) {
        (self.likes.load(Ordering::Relaxed), self.tallies.load(Ordering::Relaxed))
    }
    pub fn add_tally(&self) {
        self.tallies.fetch_add(1, Ordering::Relaxed);
    }
    /// Likes that came and were not counted, in the order of [`UNCOUNTED`].
    pub fn uncounted(&self) -> [u64; UNCOUNTED.len()] {
        self.uncounted.each_ref().map(|n| n.load(Ordering::Relaxed))
    }
    pub fn set_likes(&self, counted: u64, n: Uncounted) {
        self.likes.store(counted, Ordering::Relaxed);
        let Uncounted { banned, over_rate, room, kind } = n;
        for (place, n) in self.uncounted.iter().zip([banned, over_rate, room, kind]) {
            place.store(n, Ordering::Relaxed);
        }
    }

    /// Reads of the log for this purpose.
    pub fn reads(&self, what: Read) -> u64 {
        self.reads[what as usize].load(Ordering::Relaxed)
    }
    pub fn add_read(&self, what: Read) {
        self.reads[what as usize].fetch_add(1, Ordering::Relaxed);
    }
    pub fn moderation(&self) -> &Moderated {
        &self.moderation
    }
    /// What the newest checkpoint knows of the log's chain.
    pub fn chained(&self) -> Option<(Position, Link)> {
        *self.chained.lock().expect("no holder of this lock can panic")
    }
    pub fn set_chained(&self, at: Position, link: Link) {
        *self.chained.lock().expect("no holder of this lock can panic") = Some((at, link));
    }
    /// Who is being erased.
    pub fn erasing(&self) -> &Erasing {
        &self.erasing
    }
    /// Moves whenever a room's settings change, before whoever changed them is answered.
    pub fn rules(&self) -> u64 {
        self.rules.load(Ordering::Acquire)
    }
    pub fn not_highest(&self) -> u64 {
        self.not_highest.load(Ordering::Relaxed)
    }
    pub fn add_not_highest(&self) {
        self.not_highest.fetch_add(1, Ordering::Relaxed);
    }
    pub fn add_rules(&self) {
        self.rules.fetch_add(1, Ordering::AcqRel);
    }
    /// What the log says of tokens, as far as this process was told.
    pub fn board(&self) -> &Arc<Board> {
        &self.board
    }
    pub fn checkpoints(&self) -> &Checkpoints {
        &self.checkpoints
    }

    /// Gifts in the log since the process started.
    pub fn gifts(&self) -> u64 {
        self.gifts.load(Ordering::Relaxed)
    }
    pub fn add_gift(&self) {
        self.gifts.fetch_add(1, Ordering::Relaxed);
    }
    /// Banners since the process started: of gifts, of operators.
    pub fn banners(&self) -> [u64; 2] {
        self.banners.each_ref().map(|n| n.load(Ordering::Relaxed))
    }
    pub fn add_banner(&self, of_gift: bool) {
        self.banners[usize::from(!of_gift)].fetch_add(1, Ordering::Relaxed);
    }
    /// Gifts that were worth a banner and got none, in the order of [`Capped::ALL`].
    pub fn capped(&self) -> [u64; Capped::ALL.len()] {
        self.capped.each_ref().map(|n| n.load(Ordering::Relaxed))
    }
    pub fn add_capped(&self, why: Capped) {
        self.capped[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Release);
    }
    /// Comments are refused for want of memory in this process; all else goes on.
    pub fn is_short(&self) -> bool {
        self.short.load(Ordering::Acquire)
    }

    pub fn set_short(&self, short: bool) {
        self.short.store(short, Ordering::Release);
    }

    pub fn set_no_space(&self, no_space: bool) {
        self.no_space.store(no_space, Ordering::Release);
    }
    pub fn set_head(&self, head: Position) {
        self.head.store(head.value(), Ordering::Release);
    }
    pub fn set_epoch(&self, epoch: Epoch) {
        self.epoch.store(u64::from(epoch.value()), Ordering::Release);
    }
    /// Calling twice keeps the first.
    pub fn set_durability(&self, durability: &'static str) {
        let _ = self.durability.set(durability);
    }
    pub fn set_log_bytes(&self, bytes: u64) {
        self.log_bytes.store(bytes, Ordering::Relaxed);
    }
    pub fn set_wide(&self, n: u64) {
        self.wide.store(n, Ordering::Relaxed);
    }
    pub fn add_fate(&self, fate: Fate) {
        let n = match fate {
            Fate::Shown(_) => &self.shown,
            Fate::NotShown => &self.not_shown,
        };
        n.fetch_add(1, Ordering::Relaxed);
    }
    pub fn add_accepted(&self, n: u64) {
        self.accepted.fetch_add(n, Ordering::Relaxed);
    }
    pub fn add_commit(&self, n_records: u64, took: Duration) {
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.records.fetch_add(n_records, Ordering::Relaxed);
        self.commit_micros.fetch_add(took.as_micros() as u64, Ordering::Relaxed);
    }
    pub fn add_undelivered(&self) {
        self.undelivered.fetch_add(1, Ordering::Relaxed);
    }
    /// The pieces of a batch that a worker's full mailbox did not take.
    pub fn add_dropped(&self, pieces: &[Arc<Piece>]) {
        for (n, (lane, _)) in self.dropped.iter().zip(LANES) {
            n.fetch_add(pieces.iter().filter(|p| p.lane == lane).count() as u64, Ordering::Relaxed);
        }
    }
}

/// The way to the shard: cheap to clone, never waits.
#[derive(Clone)]
pub struct ShardHandle {
    way: Way,
    status: Arc<ShardStatus>,
}

#[derive(Clone)]
enum Way {
    /// The shard's threads are in this process.
    Here { owner: Arc<OwnerBox>, readers: Arc<JobBox<ToReader>>, likes: Arc<LikeBox> },
    /// Behind a socket. Its gateway asks for what viewers need; all else is asked in the shard's own process.
    There(Arc<Hub>),
}

/// The shard's ends of a [`ShardHandle`].
pub struct ShardEnds {
    pub owner: Arc<OwnerBox>,
    pub readers: Arc<JobBox<ToReader>>,
    pub likes: Arc<LikeBox>,
    pub status: Arc<ShardStatus>,
}

/// What a full shard tells a client. Source: docs/protocol.md, retry rule; half a second is the most the queue may hold.
pub const OVERLOADED: Delay = Delay { retry_after: Duration::from_millis(500), spread: Duration::from_millis(1_000) };
/// Memory is looked at once a second, and is not there again at once.
const SHORT: Delay = Delay { retry_after: Duration::from_secs(5), spread: Duration::from_secs(10) };

impl ShardHandle {
    pub fn new() -> (ShardHandle, ShardEnds) {
        let owner = Arc::new(OwnerBox::new());
        let readers = Arc::new(JobBox::new(JOBS_LIMIT));
        let status = Arc::new(ShardStatus::new(Arc::default()));
        let ringer = owner.clone();
        // Which users' rates share a place in a table is nobody's business outside.
        let seed = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0);
        let likes = Arc::new(LikeBox::new(seed, move || ringer.send_link(ToOwner::LikesWait)));
        let ends =
            ShardEnds { owner: owner.clone(), readers: readers.clone(), likes: likes.clone(), status: status.clone() };
        (ShardHandle { way: Way::Here { owner, readers, likes }, status }, ends)
    }

    /// The shard of another process.
    pub fn there(hub: Arc<Hub>) -> ShardHandle {
        let status = hub.status().clone();
        ShardHandle { way: Way::There(hub), status }
    }

    /// For what only the shard's own process asks. `None` in a gateway's.
    fn owner(&self) -> Option<&OwnerBox> {
        match &self.way {
            Way::Here { owner, .. } => Some(owner),
            Way::There(_) => None,
        }
    }

    fn readers(&self) -> Option<&JobBox<ToReader>> {
        match &self.way {
            Way::Here { readers, .. } => Some(readers),
            Way::There(_) => None,
        }
    }

    pub fn status(&self) -> &ShardStatus {
        &self.status
    }

    /// The worker has a viewer of the room: [`ToWorker::Room`] comes, then every batch. Never refused: its number is
    /// bounded by the worker's rooms.
    pub fn subscribe(&self, worker: WorkerId, room: RoomId) {
        match &self.way {
            Way::Here { owner, .. } => owner.send_link(ToOwner::Subscribe { worker, room }),
            Way::There(hub) => hub.subscribe(worker, room),
        }
    }

    /// Asked of a shard that is back. Never refused: a connection asks for as many as it awaits, once.
    pub fn ask_fate(&self, asked: AskFate) {
        match &self.way {
            Way::Here { owner, .. } => owner.send_link(ToOwner::AskFate(asked)),
            Way::There(hub) => hub.ask_fate(asked),
        }
    }

    /// Whether this process has places for viewers has changed. In the shard's own process nobody else has any.
    pub fn say_places(&self) {
        match &self.way {
            Way::Here { .. } => {}
            Way::There(hub) => hub.say_places(),
        }
    }

    /// The last viewer left. Batches already on their way may still come.
    pub fn unsubscribe(&self, worker: WorkerId, room: RoomId) {
        match &self.way {
            Way::Here { owner, .. } => owner.send_link(ToOwner::Unsubscribe { worker, room }),
            Way::There(hub) => hub.unsubscribe(worker, &room),
        }
    }

    /// Where likes of this process are gathered until the next tick.
    pub fn likes(&self) -> &LikeBox {
        match &self.way {
            Way::Here { likes, .. } => likes,
            Way::There(hub) => hub.likes(),
        }
    }

    /// Whether this process counts a room's people by itself; else the shard's does, for all.
    pub fn is_here(&self) -> bool {
        matches!(self.way, Way::Here { .. })
    }

    /// A gateway process hands on a round of likes.
    pub(super) fn take_likes(&self, home: WorkerId, frame: Frame) {
        if let Some(owner) = self.owner() {
            owner.send_link(ToOwner::Likes { home, frame });
        }
    }

    /// A gateway process is linked: it is told what the whole site must know.
    pub(super) fn came(&self, home: WorkerId) {
        if let Some(owner) = self.owner() {
            owner.send_link(ToOwner::Came { home });
        }
    }

    /// A gateway process is gone, and its subscriptions with it.
    pub(super) fn gone(&self, home: WorkerId) {
        if let Some(owner) = self.owner() {
            owner.send_link(ToOwner::Gone { home });
        }
    }

    /// Asks for a change. The answer comes as [`ToWorker::Answer`] or by the oneshot, after its commit.
    /// Errors: the lane is full; nothing was or will be done.
    pub fn command(&self, reply: ReplyTo, command: Command) -> Result<(), Overloaded> {
        if self.status.is_short() && matches!(command, Command::Publish(_)) {
            return Err(Overloaded(SHORT));
        }
        match &self.way {
            Way::Here { owner, .. } => owner.send_command(reply, command),
            Way::There(hub) => hub.command(reply, command),
        }
    }

    /// [`ShardHandle::command`] for tasks.
    /// Errors: the lane is full, or the shard ended before it answered (the outcome is unknown: retry with the same key).
    pub async fn ask(&self, command: Command) -> Result<Answer, Overloaded> {
        let (reply, answer) = oneshot::channel();
        self.command(ReplyTo::Oneshot(reply), command)?;
        answer.await.map_err(|_| Overloaded(OVERLOADED))
    }

    /// Asks for something of the log; the answer comes as its worker's mail.
    /// Errors: too many jobs wait.
    pub fn fetch(&self, fetch: Fetch) -> Result<(), Overloaded> {
        match &self.way {
            Way::Here { readers, .. } => readers.send(ToReader::Fetch(fetch)).map_err(|Full(_)| Overloaded(OVERLOADED)),
            Way::There(hub) => hub.fetch(fetch),
        }
    }

    /// The owner finishes what was admitted and ends; commands are refused with `not_ready` from here on.
    pub fn stop_owner(&self) {
        self.status.set_ready(false);
        if let Some(owner) = self.owner() {
            owner.stop();
        }
    }

    /// The readers finish the jobs that wait and end.
    pub fn stop_readers(&self) {
        if let Some(readers) = self.readers() {
            readers.close();
        }
    }

    /// The room as of now, never older than `min` (waits up to 1 s for it).
    /// Errors: `NoRoom`; `Busy` when `min` is not reached in time.
    pub async fn snapshot(&self, room: RoomId, min: Position) -> Result<Arc<SnapshotView>, ReadRefused> {
        self.ask_owner(|reply| ToOwner::Snapshot { room, min, reply }).await?
    }

    pub async fn room(&self, room: RoomId) -> Result<RoomDetail, ReadRefused> {
        self.ask_owner(|reply| ToOwner::Room { room, reply }).await?
    }

    /// The room's queue for review, oldest first.
    pub async fn held(&self, room: RoomId) -> Result<Vec<Arc<Record>>, ReadRefused> {
        self.ask_owner(|reply| ToOwner::Held { room, reply }).await?
    }

    /// Every room, in name order.
    pub async fn rooms(&self) -> Result<Vec<RoomDetail>, ReadRefused> {
        self.ask_owner(|reply| ToOwner::Rooms { reply }).await
    }

    /// The site's banners that stand.
    pub async fn site(&self) -> Result<Arc<SiteList>, ReadRefused> {
        self.ask_owner(|reply| ToOwner::Site { reply }).await
    }

    /// The bans of the whole site.
    pub async fn site_bans(&self) -> Result<SiteBans, ReadRefused> {
        self.ask_owner(|reply| ToOwner::SiteBans { reply }).await
    }

    /// Matches that rooms show, by id.
    pub async fn matches(&self, which: Which) -> Result<Vec<MatchDetail>, ReadRefused> {
        self.ask_owner(|reply| ToOwner::Matches { which, reply }).await
    }

    /// What rooms are to be told of their providers from now on.
    pub fn tell_silent(&self, told: Arc<[Silence]>) {
        if let Some(owner) = self.owner() {
            owner.send_link(ToOwner::Silent(told));
        }
    }

    /// Comments before `before`, newest last, at most `limit`, retracted ones left out.
    pub async fn older(&self, room: RoomId, before: Position, limit: usize) -> Result<Vec<Arc<Piece>>, ReadRefused> {
        self.ask_reader(|reply| ToReader::Older { room, before, limit, reply }).await
    }

    /// Holds a stretch of the log against its chain, from where an earlier call came to.
    pub async fn verify(&self, from: Option<(Position, Link)>) -> Result<Verified, ReadRefused> {
        self.ask_reader(|reply| ToReader::Verify { from, reply }).await
    }

    /// The chain's link at a place of the log.
    pub async fn chain_link(&self, at: Position) -> Result<Option<Link>, ReadRefused> {
        self.ask_reader(|reply| ToReader::Link { at, reply }).await
    }

    /// The room's records before `before`, one page of the newest.
    pub async fn past(&self, room: RoomId, before: Position) -> Result<BackPage<Arc<Record>>, ReadRefused> {
        self.ask_reader(|reply| ToReader::Past { room, before, reply }).await
    }

    /// Operators' changes before a position, as many as one page's time finds.
    pub async fn audit(&self, asked: AuditAsked) -> Result<BackPage<Audited>, ReadRefused> {
        self.ask_reader(|reply| ToReader::Audit { asked, reply }).await
    }

    /// The room's records after `after`, one page.
    pub async fn export(&self, room: RoomId, after: Position) -> Result<ExportPage, ReadRefused> {
        self.ask_reader(|reply| ToReader::Export { room, after, reply }).await
    }

    /// The room's comments that anybody may still be shown, one page.
    pub async fn archive(&self, room: RoomId, after: After) -> Result<ExportPage, ReadRefused> {
        self.ask_reader(|reply| ToReader::Archive { room, after, reply }).await
    }

    /// One page of the whole log after `after`, without comments.
    pub async fn scan(&self, after: Position) -> Result<ExportPage, ReadRefused> {
        self.ask_reader(|reply| ToReader::Scan { after, reply }).await
    }

    /// Errors: `Fault` when there is no owner here, or it ended before it answered.
    async fn ask_owner<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> ToOwner) -> Result<T, ReadRefused> {
        let (reply, answer) = oneshot::channel();
        self.owner().ok_or(ReadRefused::Fault)?.send_link(question(reply));
        answer.await.map_err(|_| ReadRefused::Fault)
    }

    /// Errors: as of [`ShardHandle::ask_owner`], of the readers; `Busy` when as many jobs wait as may.
    async fn ask_reader<T>(
        &self,
        job: impl FnOnce(oneshot::Sender<Result<T, ReadRefused>>) -> ToReader,
    ) -> Result<T, ReadRefused> {
        let (reply, answer) = oneshot::channel();
        let readers = self.readers().ok_or(ReadRefused::Fault)?;
        readers.send(job(reply)).map_err(|Full(_)| ReadRefused::Busy(OVERLOADED))?;
        answer.await.unwrap_or(Err(ReadRefused::Fault))
    }
}

/// Reader jobs that may wait: past this a resume is told to come again.
const JOBS_LIMIT: usize = 16_384;
/// Publishes that may wait for the owner. Source: docs/decisions/0005-numbers.md.
const PUBLISHES_LIMIT: usize = 8_192;
/// Scores, gifts and operators' changes have their own places, so that chat never keeps them out.
const PRIORITY_LIMIT: usize = 1_024;

/// The owner thread's mailbox: three lanes under one lock, so that one wait sees them all.
pub struct OwnerBox {
    lanes: Mutex<OwnerLanes>,
    came: Condvar,
}

/// All that waited, in order of sending within each lane.
#[derive(Default)]
pub struct OwnerLanes {
    /// Subscriptions and queries: bounded by their senders (one a room and worker, one a request in flight).
    pub links: VecDeque<ToOwner>,
    /// Scores, gifts, operators' changes.
    pub priority: VecDeque<(ReplyTo, Command)>,
    pub publishes: VecDeque<(ReplyTo, Command)>,
    sleeping: bool,
    closed: bool,
}

impl OwnerLanes {
    pub fn is_empty(&self) -> bool {
        self.links.is_empty() && self.priority.is_empty() && self.publishes.is_empty()
    }
}

impl OwnerBox {
    fn new() -> OwnerBox {
        OwnerBox { lanes: Mutex::new(OwnerLanes::default()), came: Condvar::new() }
    }

    /// The classifier's word.
    pub fn send_verdict(&self, tag: Tag, ruling: Option<Ruling>) {
        self.send_link(ToOwner::Verdict { tag, ruling });
    }

    fn send_link(&self, item: ToOwner) {
        self.put(|lanes| {
            if !lanes.closed {
                lanes.links.push_back(item);
            }
        });
    }

    /// Ends the owner's wait, for whoever has something for it outside these lanes.
    pub fn nudge(&self, put: impl FnOnce()) {
        self.put(|_| put());
    }

    /// Asks the owner thread to finish what was admitted and end.
    pub fn stop(&self) {
        self.send_link(ToOwner::Stop);
    }

    fn send_command(&self, reply: ReplyTo, command: Command) -> Result<(), Overloaded> {
        self.put(|lanes| {
            let closed = lanes.closed;
            let (lane, limit) = match command {
                Command::Publish(_) | Command::React(_) => (&mut lanes.publishes, PUBLISHES_LIMIT),
                _ => (&mut lanes.priority, PRIORITY_LIMIT),
            };
            if lane.len() >= limit || closed {
                return Err(Overloaded(OVERLOADED));
            }
            lane.push_back((reply, command));
            Ok(())
        })
    }

    fn put<R>(&self, put: impl FnOnce(&mut OwnerLanes) -> R) -> R {
        let mut lanes = self.lanes.lock().expect("no holder of this lock can panic");
        let result = put(&mut lanes);
        let wake = std::mem::take(&mut lanes.sleeping);
        drop(lanes);
        if wake {
            self.came.notify_one();
        }
        result
    }

    /// Waits until something is there, or `nudge` was called, or the deadline; takes all. `done` is looked at under the
    /// lock, so that a nudge between two waits is not missed.
    pub fn take(&self, deadline: Option<Instant>, done: impl Fn() -> bool) -> OwnerLanes {
        let mut lanes = self.lanes.lock().expect("no holder of this lock can panic");
        while lanes.is_empty() && !done() {
            lanes.sleeping = true;
            lanes = match deadline {
                None => self.came.wait(lanes).expect("no holder of this lock can panic"),
                Some(at) => {
                    let now = Instant::now();
                    if now >= at {
                        break;
                    }
                    self.came.wait_timeout(lanes, at - now).expect("no holder of this lock can panic").0
                }
            };
        }
        lanes.sleeping = false;
        OwnerLanes {
            links: std::mem::take(&mut lanes.links),
            priority: std::mem::take(&mut lanes.priority),
            publishes: std::mem::take(&mut lanes.publishes),
            ..OwnerLanes::default()
        }
    }

    /// Nobody reads here any more: what waits and what still comes is dropped, which ends the wait of every `oneshot`.
    pub fn close(&self) {
        let mut lanes = self.lanes.lock().expect("no holder of this lock can panic");
        let left = std::mem::take(&mut *lanes);
        lanes.closed = true;
        drop(lanes);
        drop(left);
    }
}

/// A bounded queue of jobs that several threads share.
pub struct JobBox<T> {
    jobs: Mutex<(VecDeque<T>, bool)>,
    came: Condvar,
    limit: usize,
}

impl<T> JobBox<T> {
    fn new(limit: usize) -> JobBox<T> {
        JobBox { jobs: Mutex::new((VecDeque::new(), false)), came: Condvar::new(), limit }
    }

    /// Errors: the job comes back when `limit` wait already or the box is closed.
    pub fn send(&self, job: T) -> Result<(), Full<T>> {
        let mut jobs = self.jobs.lock().expect("no holder of this lock can panic");
        if jobs.0.len() >= self.limit || jobs.1 {
            return Err(Full(job));
        }
        jobs.0.push_back(job);
        drop(jobs);
        self.came.notify_one();
        Ok(())
    }

    /// Waits for jobs and takes up to `n`. `None` when the box is closed and empty.
    pub fn take(&self, n: usize) -> Option<Vec<T>> {
        let mut jobs = self.jobs.lock().expect("no holder of this lock can panic");
        loop {
            if !jobs.0.is_empty() {
                let n = n.min(jobs.0.len());
                return Some(jobs.0.drain(..n).collect());
            }
            if jobs.1 {
                return None;
            }
            jobs = self.came.wait(jobs).expect("no holder of this lock can panic");
        }
    }

    pub fn close(&self) {
        self.jobs.lock().expect("no holder of this lock can panic").1 = true;
        self.came.notify_all();
    }
}

/// The way to the gateway workers: mailboxes of this process, made before the workers and filled by each as it starts, or the
/// links to the processes they are in.
#[derive(Clone)]
pub struct Workers(Places);

#[derive(Clone)]
enum Places {
    Here { process: u8, mailboxes: Arc<[OnceLock<Arc<Mailbox<ToWorker>>>]>, beyond: Beyond },
    There(Arc<Host>),
}

/// The way to the workers of other gateway processes, where there are any. It holds these workers itself.
type Beyond = Arc<OnceLock<Weak<Hub>>>;

impl Workers {
    pub fn new(n: u16) -> Workers {
        Workers::here(0, n)
    }

    /// The workers of one gateway process among several.
    pub fn of_process(process: u8, n: u8) -> Workers {
        Workers::here(process, u16::from(n))
    }

    fn here(process: u8, n: u16) -> Workers {
        let mailboxes = (0..n).map(|_| OnceLock::new()).collect();
        Workers(Places::Here { process, mailboxes, beyond: Beyond::default() })
    }

    /// Those of other processes.
    pub fn there(host: Arc<Host>) -> Workers {
        Workers(Places::There(host))
    }

    /// The workers of this process, in order.
    pub fn ids(&self) -> impl Iterator<Item = WorkerId> + use<> {
        let (first, n) = match &self.0 {
            Places::Here { process, mailboxes, .. } => (WorkerId::of(*process, 0).0, mailboxes.len() as u32),
            Places::There(_) => (0, 0),
        };
        (first..first + n).map(WorkerId)
    }

    /// Set once, before the first worker runs.
    fn set_beyond(&self, hub: &Arc<Hub>) {
        if let Places::Here { beyond, .. } = &self.0 {
            let _ = beyond.set(Arc::downgrade(hub));
        }
    }

    fn beyond(&self) -> Option<Arc<Hub>> {
        match &self.0 {
            Places::Here { beyond, .. } => beyond.get()?.upgrade(),
            Places::There(_) => None,
        }
    }

    /// Whether mail can be sent to it: it is a worker of this process, or of another that this one has a way to.
    pub fn is_known(&self, worker: WorkerId) -> bool {
        self.mailbox(worker).is_some() || self.beyond().is_some()
    }

    fn mailbox(&self, worker: WorkerId) -> Option<&OnceLock<Arc<Mailbox<ToWorker>>>> {
        match &self.0 {
            Places::Here { process, mailboxes, .. } => {
                let place = worker.0.checked_sub(WorkerId::of(*process, 0).0)?;
                mailboxes.get(place as usize)
            }
            Places::There(_) => None,
        }
    }

    /// Where batches for this worker are sent: to itself, or once to its process, whose hub gives them out.
    pub fn home(&self, worker: WorkerId) -> WorkerId {
        match &self.0 {
            Places::Here { .. } => worker,
            Places::There(_) => host::home_of(worker),
        }
    }

    /// A worker's place is set once, before its first message to another role.
    pub fn set(&self, worker: WorkerId, mailbox: Arc<Mailbox<ToWorker>>) {
        let place = self.mailbox(worker).expect("a worker has its place in its own process");
        assert!(place.set(mailbox).is_ok(), "a worker's mailbox is set once");
    }

    /// Errors: the worker's mailbox (or the link to its process) is full, or it has none yet.
    #[expect(clippy::result_large_err, reason = "the item itself comes back, as from its mailbox")]
    pub fn send(&self, worker: WorkerId, item: ToWorker) -> Result<(), Full<ToWorker>> {
        if let Places::There(host) = &self.0 {
            return host.send(worker, item);
        }
        match (self.mailbox(worker), self.beyond()) {
            (Some(place), _) => match place.get() {
                Some(mailbox) => mailbox.send(item),
                None => Err(Full(item)),
            },
            (None, Some(hub)) => hub.pass(To::Worker(worker), item),
            (None, None) => Err(Full(item)),
        }
    }

    /// Every worker of this process looks whether the port is left to other processes.
    pub fn look_at_port(&self) {
        for worker in self.ids() {
            // One whose mailbox is full looks by itself, once a second.
            let _ = self.send(worker, ToWorker::Port);
        }
    }

    /// A poll of this line came to this process: one that waits on it in another is ended. Without a way there, it ends at its
    /// own time.
    pub fn end_line_elsewhere(&self, line: u64) {
        if let Some(hub) = self.beyond() {
            let _ = hub.pass(To::Others, ToWorker::EndLine { line });
        }
    }
}

// ---- gateway <-> control -------------------------------------------------------------------------------------------

/// A request of a route that is no stream, its body read whole.
pub struct HttpRequest {
    pub request: http::Request<Bytes>,
    pub peer: SocketAddr,
    /// Where the parts of the response go.
    pub conn: ConnKey,
    pub flow: Arc<HttpFlow>,
}

/// A response on its way to one connection, in order: one `Head`, any number of `Chunk`s, one `End`.
#[derive(Debug)]
pub enum HttpPart {
    /// `body` is the whole body when it is known at once; then `End` follows nothing and the response is complete.
    Whole {
        head: http::response::Parts,
        body: Bytes,
    },
    /// The body follows in chunks; its length is in `head` (Content-Length) or the gateway sends it chunked.
    Head(http::response::Parts),
    Chunk(Bytes),
    End,
    /// The body broke off; the connection is closed without an end.
    Broken,
}

/// The way to control: its channel, or the link to the process it is in.
#[derive(Clone)]
pub enum ControlHandle {
    Here(mpsc::Sender<HttpRequest>),
    There(Arc<Hub>),
}

/// Why a request did not reach control; nothing was or will be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unheard {
    /// Too many wait.
    Busy,
    /// The process it is in is away for so long.
    Away(Delay),
}

impl From<mpsc::Sender<HttpRequest>> for ControlHandle {
    fn from(sender: mpsc::Sender<HttpRequest>) -> ControlHandle {
        ControlHandle::Here(sender)
    }
}

impl ControlHandle {
    /// The flow of a response to this connection.
    pub fn flow(&self, conn: ConnKey) -> Arc<HttpFlow> {
        Arc::new(match self {
            ControlHandle::Here(_) => HttpFlow::new(),
            ControlHandle::There(hub) => HttpFlow(Turns::There(hub.clone(), conn)),
        })
    }

    pub fn send(&self, request: HttpRequest) -> Result<(), Unheard> {
        match self {
            ControlHandle::Here(sender) => sender.try_send(request).map_err(|_| Unheard::Busy),
            ControlHandle::There(hub) => hub.http(request),
        }
    }
}

/// Lets one chunk out at a time: control waits, the gateway says when the last has left.
pub struct HttpFlow(Turns);

enum Turns {
    Here(Semaphore),
    /// Control waits in another process.
    There(Arc<Hub>, ConnKey),
}

/// The connection is gone; the rest of the response is for nobody.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gone;

impl Default for HttpFlow {
    fn default() -> HttpFlow {
        HttpFlow::new()
    }
}

impl HttpFlow {
    /// The first chunk may go at once.
    pub fn new() -> HttpFlow {
        HttpFlow(Turns::Here(Semaphore::new(1)))
    }
    /// Control: waits until a chunk may be sent.
    pub async fn next(&self) -> Result<(), Gone> {
        match &self.0 {
            Turns::Here(turns) => turns.acquire().await.map(|permit| permit.forget()).map_err(|_| Gone),
            Turns::There(..) => Err(Gone),
        }
    }
    /// Gateway: the last chunk has left.
    pub fn left(&self) {
        match &self.0 {
            Turns::Here(turns) => turns.add_permits(1),
            Turns::There(hub, conn) => hub.http_left(*conn),
        }
    }
    /// Gateway: the connection is gone.
    pub fn close(&self) {
        match &self.0 {
            Turns::Here(turns) => turns.close(),
            Turns::There(hub, conn) => hub.http_gone(*conn),
        }
    }
    pub fn is_closed(&self) -> bool {
        match &self.0 {
            Turns::Here(turns) => turns.is_closed(),
            Turns::There(..) => false,
        }
    }
}

/// What gateways count per room and others read.
#[derive(Default, Debug)]
pub struct RoomTally {
    /// In this process.
    pub viewers: AtomicI64,
    /// In the other gateway processes, as of a second ago.
    pub elsewhere: AtomicU32,
    pub held_elsewhere: AtomicU32,
    /// Streams that count against the room's limit, where there is one.
    pub held: AtomicU32,
    delivered: AtomicU64,
    skipped: AtomicU64,
    sampled: AtomicU64,
    /// How many may be coming: what the spread of a refusal is sized by.
    pub demand: Mutex<Demand>,
    /// Who watched when each worker of this process counted last.
    seen: Mutex<BTreeMap<WorkerId, Seen>>,
    /// People of the whole room at the last count, and its viewers then: 32 bits each, so that they are of one moment.
    people: AtomicU64,
}

/// What a room's viewers came to, since the process started.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Served {
    /// Events given.
    pub delivered: u64,
    /// Comments passed over, and told.
    pub skipped: u64,
    /// Comments of a wide room that were not a viewer's part.
    pub sampled: u64,
}

impl Served {
    /// What has come since `before`.
    pub fn since(self, before: Served) -> Served {
        Served {
            delivered: self.delivered.saturating_sub(before.delivered),
            skipped: self.skipped.saturating_sub(before.skipped),
            sampled: self.sampled.saturating_sub(before.sampled),
        }
    }
}

/// Who watches a room in one place.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Seen {
    pub viewers: u32,
    /// Those of them that nobody can be told apart by.
    pub anonymous: u32,
    pub users: People,
}

impl Seen {
    pub fn join(&mut self, other: &Seen) {
        self.viewers = self.viewers.saturating_add(other.viewers);
        self.anonymous = self.anonymous.saturating_add(other.anonymous);
        self.users.join(&other.users);
    }

    /// Users once each, and everyone without a name.
    pub fn people(&self) -> u64 {
        self.users.count().min(u64::from(self.viewers - self.anonymous.min(self.viewers))) + u64::from(self.anonymous)
    }
}

impl RoomTally {
    pub fn served(&self) -> Served {
        let read = |n: &AtomicU64| n.load(Ordering::Relaxed);
        Served { delivered: read(&self.delivered), skipped: read(&self.skipped), sampled: read(&self.sampled) }
    }
    pub fn add_served(&self, more: Served) {
        let add = |n: &AtomicU64, more: u64| n.fetch_add(more, Ordering::Relaxed);
        add(&self.delivered, more.delivered);
        add(&self.skipped, more.skipped);
        add(&self.sampled, more.sampled);
    }

    /// Its viewers in this process.
    pub fn here(&self) -> u64 {
        self.viewers.load(Ordering::Relaxed).max(0) as u64
    }

    /// Viewers of the whole room.
    pub fn viewers(&self) -> u64 {
        self.here() + u64::from(self.elsewhere.load(Ordering::Relaxed))
    }

    /// People who watch the room: each user once. Who came since the last count is taken for somebody new.
    pub fn people(&self) -> u64 {
        let counted = self.people.load(Ordering::Relaxed);
        let (people, then, now) = (counted >> 32, counted & u64::from(u32::MAX), self.viewers());
        (people + now.saturating_sub(then)).saturating_sub(then.saturating_sub(now)).clamp(now.min(1), now)
    }

    /// The whole room was counted.
    pub fn set_people(&self, people: u64, viewers: u64) {
        let half = |n: u64| n.min(u64::from(u32::MAX));
        self.people.store(half(people) << 32 | half(viewers), Ordering::Relaxed);
    }

    /// A worker of this process has looked who watches.
    pub fn look(&self, worker: WorkerId, seen: Seen) {
        let mut all = self.seen.lock().expect("no holder of this lock can panic");
        if seen.viewers == 0 { drop(all.remove(&worker)) } else { drop(all.insert(worker, seen)) }
    }

    /// All that this process's workers saw.
    pub fn seen(&self) -> Seen {
        let all = self.seen.lock().expect("no holder of this lock can panic");
        let mut seen = Seen::default();
        all.values().for_each(|part| seen.join(part));
        seen
    }
}

/// The tallies of all rooms with viewers now, or that told viewers something since the process started.
#[derive(Clone, Default)]
pub struct Tallies(Arc<Mutex<HashMap<RoomId, Arc<RoomTally>>>>);

impl Tallies {
    /// The room's tally, made when it is new. A worker keeps it beside its roster.
    pub fn of(&self, room: &RoomId) -> Arc<RoomTally> {
        let mut rooms = self.0.lock().expect("no holder of this lock can panic");
        rooms.entry(room.clone()).or_default().clone()
    }

    /// The room's tally, when there is one.
    pub fn find(&self, room: &RoomId) -> Option<Arc<RoomTally>> {
        self.0.lock().expect("no holder of this lock can panic").get(room).cloned()
    }

    /// A worker gives up a room and `own` with it. A tally that counted nothing and that nobody else holds is forgotten:
    /// names of rooms cost anyone nothing.
    pub fn leave(&self, room: &RoomId, own: Arc<RoomTally>) {
        let mut rooms = self.0.lock().expect("no holder of this lock can panic");
        drop(own);
        let idle = |tally: &Arc<RoomTally>| Arc::strong_count(tally) == 1 && tally.served() == Served::default();
        if rooms.get(room).is_some_and(idle) {
            rooms.remove(room);
            if rooms.capacity() > 4 * rooms.len().max(64) {
                rooms.shrink_to_fit();
            }
        }
    }

    pub fn all(&self) -> BTreeMap<RoomId, Arc<RoomTally>> {
        let rooms = self.0.lock().expect("no holder of this lock can panic");
        rooms.iter().map(|(room, tally)| (room.clone(), tally.clone())).collect()
    }
}
