//! What the clients of a run saw and did, in order of time. The checker judges from this and the log alone.

use std::sync::Arc;

use grandstand_core::ids::{EventId, Position, Pseq, Revision};
use grandstand_core::likes::Totals;
use grandstand_core::names::{ClientMsgId, Key, LikeKind, RoomId, UserId};
use grandstand_core::owner::answer::Fate;
use grandstand_core::record::{Record, Verdict};
use grandstand_core::regions::Region;
use grandstand_core::sampler::pick::WindowNumber;
use grandstand_core::time::Mono;
use grandstand_core::viewer::walk::Skipped;

/// A client by its number.
pub type ClientIdx = usize;

/// What makes one wish the same wish when it is asked again.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Wish {
    Comment { room: RoomId, user: UserId, key: ClientMsgId, text: Arc<str> },
    Score { room: RoomId, match_id: Key, event: Key, revision: Revision, home: u32 },
    Gift { room: RoomId, gift_id: Key },
}

#[derive(Clone, Debug)]
pub enum Seen {
    /// Asked, for the first time or again.
    Asked(Wish),
    Acked {
        wish: Wish,
        id: EventId,
        duplicate: bool,
    },
    /// Durable as it was said in a wide room; what became of it, when that is known.
    Said {
        wish: Wish,
        raw_id: EventId,
        fate: Option<Fate>,
    },
    /// A client is told what became of what it said in a wide room.
    Decided {
        client: ClientIdx,
        raw_id: EventId,
        fate: Fate,
    },
    /// Certainly not done.
    Refused(Wish),
    /// An operator's order came to an owner, for the first time or again.
    Ordered(Arc<str>),
    /// It was answered as done.
    Done(Arc<str>),
    /// An erase was answered as done, by this event.
    Erased(UserId, EventId),
    /// These settings of a room are in the storage, under this id: where it may not be shown.
    Dark {
        room: RoomId,
        id: EventId,
        regions: Vec<Region>,
    },
    /// The classifier was asked about a text under this version of its room's policy, and this is its word.
    Judged {
        room: RoomId,
        text: Arc<str>,
        version: u32,
        verdict: Verdict,
    },
    /// Somebody looks at the room right after something was taken back.
    Looked {
        shot: Arc<Snapshot>,
    },
    /// At the very end: a block of it came to the owner that showed it and lives on.
    MustGo(EventId),
    /// A stream begins: `cursor` is what the client asked for, the rest is hello.
    Hello {
        client: ClientIdx,
        user: UserId,
        region: Region,
        room: RoomId,
        asked: Position,
        cursor: Position,
        pseq: Pseq,
        kind: Begun,
        skipped: Option<Skipped>,
    },
    /// `head`: all up to here was known where they were chosen.
    Events {
        client: ClientIdx,
        room: RoomId,
        skipped: Option<Skipped>,
        events: Vec<Arc<Record>>,
        head: Position,
    },
    /// A gateway picked from windows of a wide room for a viewer.
    Picked(Picked),
    /// Told that the room's owner is away.
    Paused {
        client: ClientIdx,
    },
    Snapshot {
        client: ClientIdx,
        shot: Arc<Snapshot>,
    },
    /// Taken at the door.
    Liked {
        room: RoomId,
        kind: LikeKind,
        n: u32,
    },
    /// Taken at a door that is gone: counted or not.
    LikesAtRisk {
        room: RoomId,
        kind: LikeKind,
        n: u32,
    },
    /// A viewer is told a room's likes. `first`: with the hello of a connection.
    Totals {
        client: ClientIdx,
        room: RoomId,
        totals: Totals,
        first: bool,
    },
    /// At the very end: what the client believes.
    Final {
        client: ClientIdx,
        connected: bool,
        undecided: Option<Wish>,
    },
}

#[derive(Clone, Debug)]
pub struct Picked {
    pub client: ClientIdx,
    /// Comments a thousand seconds, as the gateway's shedder says.
    pub cap_milli: u64,
    /// An operator's order for a lower cap is in force.
    pub ordered: bool,
    /// From the ring, and not what a resume promised.
    pub live: bool,
    /// The whole windows, and winners of them that were chosen: given, or told as too late.
    pub windows: Vec<WindowNumber>,
    pub n_given: usize,
    /// (from, to]: of the log.
    pub from: Position,
    pub to: Position,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begun {
    Live,
    /// `some` of a wide room's comments: none up to `cut` follows, and nobody counts them.
    Resumed {
        cut: Option<Position>,
    },
    /// `snapshot_required`.
    Snapshot,
}

/// What a snapshot shows, as far as it is checked.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub room: RoomId,
    /// The log's place it was made at.
    pub as_of: Position,
    pub pseq: Pseq,
    pub recent: Vec<Arc<Record>>,
    /// The highest revision of each score event.
    pub tops: Vec<Arc<Record>>,
    pub likes: Totals,
}

#[derive(Clone, Debug)]
pub struct Line {
    pub at: Mono,
    pub seen: Seen,
}
