//! What an owner is asked to do.

use std::sync::Arc;
use std::time::Duration;

use crate::access::Revoked;
use crate::ids::{EventId, Position};
use crate::names::{ClientMsgId, Key, RoomId, UserId};
use crate::record::{Audit, Ban, Gift, RetractTarget, ScoreKind, ScoreState};
use crate::reports::Report;
use crate::revision::ScoreIn;
use crate::rooms::RoomChange;

/// The caller's own token for one command; comes back in its answer. Unique among unanswered commands.
pub type Tag = u64;

#[derive(Clone, PartialEq, Debug)]
pub enum Command {
    Publish(Publish),
    React(React),
    Report(ReportIn),
    Score(ScoreIn),
    Gift(GiftIn),
    /// An operator's notice to the whole site, and its end before its time.
    Banner(BannerIn),
    BannerEnd {
        by: UserId,
        id: EventId,
    },
    /// Tokens are not taken any more for so long, or are again.
    Revoke {
        by: UserId,
        what: Revoked,
        lasts: Duration,
    },
    RevokeEnd {
        by: UserId,
        what: Revoked,
    },
    /// No new tokens can be had for so long; `None`: they can again.
    Outage {
        by: UserId,
        lasts: Option<Duration>,
    },
    /// Nothing of what stands in the log keeps this user. What it says afterwards is new.
    EraseUser {
        by: UserId,
        user: UserId,
    },
    /// Creates the room when it is not there yet. `if_version`: the version the change was made against, any when `None`;
    /// 0 = the room must not be there.
    PutRoom {
        room: RoomId,
        change: Box<RoomChange>,
        if_version: Option<u64>,
    },
    /// With a purge, what the user said in the time before it is taken back.
    Ban {
        room: RoomId,
        ban: Ban,
        purge: Option<Duration>,
    },
    /// The same in every room.
    SiteBan {
        by: UserId,
        ban: Ban,
        purge: Option<Duration>,
    },
    SiteUnban {
        by: UserId,
        user: UserId,
    },
    Unban {
        room: RoomId,
        user: UserId,
    },
    Retract {
        room: RoomId,
        target: RetractTarget,
        reason: Arc<str>,
    },
    /// From whom a match is shown. `if_version`: the newest record of the match that the change was made against.
    SetFeed {
        match_id: Key,
        primary: Key,
        stand_by: Option<Key>,
        if_version: Option<Position>,
    },
    /// An operator's word on a match: an event of its own, or a correction of one that is shown.
    TypeScore {
        typed: TypedScore,
        if_version: Option<Position>,
    },
    /// A human's word on a held comment.
    Decide {
        room: RoomId,
        held: EventId,
        approve: bool,
    },
    /// Any of the seven above as an operator's write: when it is not refused, the log keeps who did it and why beside it,
    /// also when there was nothing to change.
    Audited {
        by: UserId,
        audit: Audit,
        command: Box<Command>,
    },
}

/// One comment. The text and the name have passed [`crate::text`].
#[derive(Clone, PartialEq, Debug)]
pub struct Publish {
    pub room: RoomId,
    pub author: Author,
    pub client_msg_id: ClientMsgId,
    pub text: Arc<str>,
    pub reply_to: Option<EventId>,
}

/// One reaction to an event, or to what may still become one. Nothing of it is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct React {
    pub room: RoomId,
    pub user: UserId,
    pub target: EventId,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReportIn {
    pub room: RoomId,
    pub user: UserId,
    pub report: Report,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Author {
    pub user: UserId,
    pub display: Arc<str>,
    pub badges: Arc<[Arc<str>]>,
    pub standing: Standing,
}

/// What a token lets its holder pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    Viewer,
    /// Exempt of slow mode.
    Moderator,
    /// Exempt of slow mode and every rate.
    Backend,
}

/// `gift_id` is the idempotency key.
#[derive(Clone, PartialEq, Debug)]
pub struct GiftIn {
    pub room: RoomId,
    pub user: UserId,
    pub gift: Gift,
}

/// What an operator says of an event of a match.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TypedScore {
    pub match_id: Key,
    /// The key viewers know it under; one that nothing is shown under is a new event.
    pub event: Key,
    pub kind: ScoreKind,
    pub state: ScoreState,
    pub home: u32,
    pub away: u32,
    pub minute: Option<Arc<str>>,
    pub digest: [u8; 16],
}

#[derive(Clone, PartialEq, Debug)]
pub struct BannerIn {
    pub by: UserId,
    pub text: Arc<str>,
    /// The room it leads to.
    pub room: Option<RoomId>,
    pub lasts: Duration,
}
