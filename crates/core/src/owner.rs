//! The owner of one log: what may be asked of it and what it answers.

use std::sync::Arc;
use std::time::Duration;

use crate::ids::{EventId, Partition, Revision, Seq};
use crate::names::{ClientMsgId, Key, RoomId, UserId};
use crate::record::{Policy, RetractTarget, Room, RoomState, ScoreKind, ScoreState};
use crate::time::Wall;

/// The caller's token of one command; comes back with its answer.
pub type Tag = u64;

/// Who speaks, as the token says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Author {
    pub user: UserId,
    pub display: Arc<str>,
    pub badges: Arc<[Arc<str>]>,
    pub standing: Standing,
}

/// Which rates hold for an author.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    Viewer,
    /// Exempt of slow mode.
    Moderator,
    /// Exempt of every rate.
    Backend,
}

/// A comment asked for. The text has passed the text rule already.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Publish {
    pub room: RoomId,
    pub author: Author,
    pub client_msg_id: ClientMsgId,
    pub text: Arc<str>,
    pub reply_to: Option<EventId>,
}

/// A score event as a provider sent it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScoreIn {
    pub match_id: Key,
    pub provider: Key,
    pub event: Key,
    /// `None`: minted by arrival for each different payload.
    pub revision: Option<Revision>,
    pub kind: ScoreKind,
    pub state: ScoreState,
    pub home: u32,
    pub away: u32,
    pub minute: Option<Arc<str>>,
    pub historical: bool,
    /// Digest of the canonical payload.
    pub digest: [u8; 16],
    pub data: Option<Arc<str>>,
    /// Binds the match to this room where rooms are made on first use.
    pub room: Option<RoomId>,
}

/// A gift asked for by a backend; `gift_id` is the idempotency key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GiftIn {
    pub room: RoomId,
    pub user: UserId,
    pub gift: crate::record::Gift,
}

/// Only what changes; `None` leaves a setting as it is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RoomChange {
    pub title: Option<Arc<str>>,
    pub state: Option<RoomState>,
    pub matches: Option<Vec<Key>>,
    pub anonymous_view: Option<bool>,
    pub anonymous_publish: Option<bool>,
    pub listed: Option<bool>,
    pub rate: Option<u32>,
    pub user_rate: Option<u32>,
    pub user_burst: Option<u32>,
    /// `Some(None)` follows the room's size.
    pub merge_ms: Option<Option<u32>>,
    pub resume_window_seconds: Option<u32>,
    pub retention_days: Option<u32>,
    pub slow_mode_seconds: Option<u32>,
    pub slow_mode_until: Option<Option<Wall>>,
    pub moderation_policy: Option<Policy>,
    pub pinned: Option<Vec<EventId>>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    Publish(Publish),
    Score(ScoreIn),
    Gift(GiftIn),
    PutRoom { room: RoomId, change: RoomChange, if_version: Option<u64> },
    Ban { room: RoomId, user: UserId, until: Option<Wall>, reason: Arc<str> },
    Unban { room: RoomId, user: UserId },
    Retract { room: RoomId, target: RetractTarget, reason: Arc<str> },
}

/// What a command came to, after its commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    Published {
        event_id: EventId,
        partition: Partition,
        offset: Seq,
        /// The key was accepted before; this is the first answer again.
        duplicate: bool,
    },
    Score {
        /// Durable just now (202), or a repeat of what is there (200).
        accepted: bool,
        event_id: EventId,
        revision: Revision,
        superseded: bool,
        room: RoomId,
    },
    Room {
        version: u64,
        settings: Arc<Room>,
    },
    Done {
        event_id: EventId,
    },
    /// Held for a verdict; ask again with the same key.
    Pending {
        retry_after: Duration,
    },
    Reject(Reject),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reject {
    pub code: Code,
    pub message: String,
    pub retry_after: Option<Duration>,
    /// Field and fault, for answers that name them.
    pub fields: Vec<(String, String)>,
}

/// Every reason a command is refused for. Source: protocol.md, the closed list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Code {
    BadJson,
    BadOp,
    BadRoom,
    BadText,
    TooLong,
    NotAllowed,
    Banned,
    IdempotencyConflict,
    Overloaded,
    NoSpace,
    NotReady,
    NoRoom,
    NoEvent,
    RoomState,
    PayloadConflict,
    UnknownMatch,
    Stale,
    ModerationFailed,
    /// `rate_limited` with its reason.
    SlowMode,
    UserRate,
    RoomRate,
    IpRate,
}
