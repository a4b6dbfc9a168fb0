//! What an owner says back, and what it wants done.

use std::sync::Arc;
use std::time::Duration;

use crate::banners::Capped;
use crate::ids::{EventId, Partition, Revision, Seq};
use crate::names::RoomId;
use crate::owner::command::Tag;
use crate::record::{End, Record, Room};
use crate::reject::Reject;
use crate::time::{Mono, Wall};

/// The one answer a command gets.
#[derive(Clone, PartialEq, Debug)]
pub enum Answer {
    /// In the log. `duplicate`: it was there before this command, or by another one with the same key.
    Published {
        event_id: EventId,
        partition: Partition,
        offset: Seq,
        duplicate: bool,
    },
    /// In the log as it was said in a wide room; whether it is shown is told by [`Output::Fate`], or here when a repeat finds it
    /// known already.
    Raw {
        raw_id: EventId,
        partition: Partition,
        duplicate: bool,
        fate: Option<Fate>,
    },
    /// In the log; `accepted` is 202, else a repeat, 200. `event_id` is the deciding room's.
    Score {
        accepted: bool,
        event_id: EventId,
        revision: Revision,
        superseded: bool,
        /// Its match's viewers are shown its provider.
        shown: bool,
        room: RoomId,
    },
    /// A match is shown from other providers, or an operator's word on it is in the log. `event_id`: the deciding room's newest
    /// record of it.
    Match {
        event_id: EventId,
        room: RoomId,
    },
    /// The room as it is after the command.
    Room {
        version: u64,
        settings: Arc<Room>,
    },
    /// A gift is in the log. `duplicate`: it was there before this command.
    Gift {
        event_id: EventId,
        duplicate: bool,
        banner: BannerFate,
    },
    /// The site is told it.
    Banner {
        banner_id: EventId,
        until: Wall,
    },
    /// A ban or retract is in the log; `None` when there was nothing to do.
    Done {
        event_id: Option<EventId>,
    },
    /// In the log, and waits for a human's word, which is told by [`Output::Decided`].
    Held {
        held_id: EventId,
    },
    /// No verdict yet and the room publishes nothing without one; the key is not used up.
    Pending {
        retry_after: Duration,
    },
    Reject(Reject),
}

/// What a gift came to as a banner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BannerFate {
    /// It is not worth one, or it is a repeat, whose first answer said it.
    Unsaid,
    /// The id of its banner.
    Shown(EventId),
    Capped(Capped),
}

/// What became of a comment of a wide room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Shown(EventId),
    NotShown,
}

impl Fate {
    /// The event it was shown as.
    pub fn event_id(self) -> Option<EventId> {
        match self {
            Fate::Shown(event_id) => Some(event_id),
            Fate::NotShown => None,
        }
    }
}

/// What an owner knows of the fate of something said in a wide room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Known {
    /// It may still win: [`Output::Fate`] will tell.
    Waits,
    Decided(Fate),
    /// Nothing was said under this id, or it is too long ago to tell.
    Forgotten,
}

/// Why a batch is certainly not in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The store refused or failed; a retry may succeed.
    Overloaded,
    /// The store is full.
    NoSpace,
    /// The store cannot be written for a while.
    NotReady,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Output {
    Answer {
        tag: Tag,
        answer: Answer,
    },
    /// A durable record, in log order, each exactly once.
    Committed(Arc<Record>),
    /// All frames of likes of this sender up to this number are settled: it may let go of them.
    LikesSettled {
        sender: u64,
        number: u64,
    },
    /// What became of a comment that was answered with [`Answer::Raw`]; once, after its answer. `record` is the raw comment, or the
    /// event it was shown as: both name its room, user and key.
    Fate {
        raw_id: EventId,
        record: Arc<Record>,
        fate: Fate,
    },
    /// What became of a comment that was answered with [`Answer::Held`]; once. `record` is the held comment.
    Decided {
        held_id: EventId,
        record: Arc<Record>,
        end: End,
    },
    /// Ask the classifier; `tag` is above any command's and never comes again. Tell [`crate::owner::Owner::on_verdict`], at any time:
    /// past the deadline the policy decides alone, and a block that comes later takes back what was shown.
    NeedVerdict {
        tag: Tag,
        room: RoomId,
        text: Arc<str>,
        deadline: Mono,
        /// The room shows nothing without an allow.
        strict: bool,
    },
}
