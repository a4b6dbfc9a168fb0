//! Wide rooms: which comments are shown when more are said than anyone can read.
//!
//! Of every 200 ms the [`window`] keeps a weighted reservoir of candidates; its winners are sequenced into the room's ordered
//! log. Of those winners each viewer is given at most a cap a second by [`pick`]. [`switch`] says when a room is wide, and
//! [`shedder`] is the other thing: what an overloaded gateway may take away on top.
//!
//! Only a comment can become a [`Candidate`], so no score, gift or retract can be sampled, by type.
//!
//! Source: Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006 (the keys of `window`); Walker, "An
//! efficient method for generating discrete random variables with general distributions", 1977 (the table of `pick`).

use std::sync::Arc;

use crate::ids::EventId;
use crate::names::UserId;
use crate::record::{Body, Comment, Record};
use crate::time::Mono;

use switch::{Limits, Sampling};

pub mod fold;
pub mod keep;
pub mod known;
pub mod pick;
pub mod shedder;
pub mod silence;
pub mod switch;
pub mod window;

/// A room's settings of when it is wide and what its viewers are shown then.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rules {
    pub when: Sampling,
    /// Accepted comments a second above which it may be wide.
    pub rate: u32,
    /// Viewers from which it may be wide.
    pub viewers: u32,
    pub preset: Preset,
    /// Comments a second one viewer is given at most; `None` is the preset's.
    pub cap: Option<u32>,
    pub weights: Weights,
}

impl Default for Rules {
    fn default() -> Rules {
        let limits = Limits::default();
        Rules {
            when: Sampling::Auto,
            rate: limits.rate,
            viewers: limits.viewers as u32, // 50 000
            preset: Preset::Chat,
            cap: None,
            weights: Weights::default(),
        }
    }
}

impl Rules {
    /// Comments a second one viewer is given at most.
    pub fn cap(&self) -> u32 {
        self.cap.unwrap_or(self.preset.cap())
    }

    /// What the switch and the door hold a crowd against; what the gateways can send is the same for every room.
    pub fn limits(&self) -> Limits {
        Limits { rate: self.rate, viewers: u64::from(self.viewers), ..Limits::default() }
    }
}

/// What the comments of a room are for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Preset {
    /// To be read.
    Chat,
    /// To fly over the picture.
    Danmaku,
}

impl Preset {
    pub const ALL: [(Preset, &'static str); 2] = [(Preset::Chat, "chat"), (Preset::Danmaku, "danmaku")];

    /// Nobody reads more than five lines a second; fifty fly over a screen.
    pub fn cap(self) -> u32 {
        match self {
            Preset::Chat => 5,
            Preset::Danmaku => 50,
        }
    }
    pub fn name(self) -> &'static str {
        Preset::ALL[self as usize].1
    }
    pub fn parse(name: &str) -> Option<Preset> {
        Preset::ALL.iter().find(|(_, n)| *n == name).map(|(p, _)| *p)
    }
}

/// What raises a comment's chance; a room's settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Weights {
    /// Every comment has it. At least 1.
    pub base: u32,
    pub per_reply: u32,
    pub per_reaction: u32,
    /// Added for each badge the author has.
    pub badges: Vec<(Arc<str>, u32)>,
}

impl Default for Weights {
    fn default() -> Weights {
        Weights { base: 1, per_reply: 5, per_reaction: 2, badges: Vec::new() }
    }
}

/// The largest weight: one comment's chance is never more than a thousand times another's.
pub const WEIGHT_MAX: u32 = 1_000;

/// A comment of a wide room on its way through the window.
#[derive(Clone, Debug)]
pub struct Candidate {
    record: Arc<Record>,
    author: UserId,
    /// Whom it answers or names, when that user is in the room now.
    addressee: Option<UserId>,
    at: Mono,
    replies: u32,
    reactions: u32,
}

impl Candidate {
    /// `addressee` is a user whom the comment answers or names and who is in the room now.
    /// Errors: `None` for a record that is no comment of a user.
    pub fn new(record: Arc<Record>, addressee: Option<UserId>, at: Mono) -> Option<Candidate> {
        let author = record.user.clone()?;
        matches!(record.body, Body::Comment(_)).then_some(Candidate {
            record,
            author,
            addressee,
            at,
            replies: 0,
            reactions: 0,
        })
    }

    pub fn id(&self) -> EventId {
        self.record.event_id()
    }
    pub fn record(&self) -> &Arc<Record> {
        &self.record
    }
    /// When it was offered.
    pub fn at(&self) -> Mono {
        self.at
    }
    pub fn author(&self) -> &UserId {
        &self.author
    }
    pub fn addressee(&self) -> Option<&UserId> {
        self.addressee.as_ref()
    }
    /// It speaks to nobody if it spoke to this user.
    pub fn forget(&mut self, user: &UserId) {
        self.addressee.take_if(|addressee| addressee == user);
    }

    fn comment(&self) -> &Comment {
        match &self.record.body {
            Body::Comment(comment) => comment,
            _ => unreachable!("only a comment becomes a candidate"),
        }
    }

    /// Whether somebody answered or reacted to it.
    pub fn is_lifted(&self) -> bool {
        self.replies > 0 || self.reactions > 0
    }

    /// 1 to [`WEIGHT_MAX`].
    pub fn weight(&self, weights: &Weights) -> u32 {
        let badges = &self.comment().badges;
        let badges = weights.badges.iter().filter(|(badge, _)| badges.contains(badge)).map(|(_, weight)| *weight);
        let raised = self.replies.saturating_mul(weights.per_reply);
        let raised = raised.saturating_add(self.reactions.saturating_mul(weights.per_reaction));
        badges.fold(weights.base.saturating_add(raised), u32::saturating_add).clamp(1, WEIGHT_MAX)
    }
}
