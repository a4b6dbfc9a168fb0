//! What a log holds: one record per decision, in order, and the typed body each kind carries.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::access::Revoked;
use crate::ids::{Epoch, EventId, Partition, Pseq, Revision, Seq};
use crate::likes::Totals;
use crate::moderation;
use crate::names::{ClientMsgId, Key, RoomId, UserId};
use crate::regions::Region;
use crate::reports::Report;
use crate::sampler;
use crate::sampler::pick::WindowNumber;
use crate::time::Wall;
use crate::{banners, combos, routing};

/// One entry of a log. `epoch` and `seq` are given when the batch is sealed and never change.
#[derive(Clone, PartialEq, Debug)]
pub struct Record {
    pub epoch: Epoch,
    pub seq: Seq,
    /// `None` for what is of the log or the site: EpochStart, Tally, operators' banners and the end of any, what is
    /// said of tokens, and who is erased.
    pub room: Option<RoomId>,
    /// Log time: never lower than the record before it.
    pub ts: Wall,
    /// Where it was admitted; `local` when embedded.
    pub region: Arc<str>,
    pub user: Option<UserId>,
    pub client_msg_id: Option<ClientMsgId>,
    /// Set on priority events that every viewer gets.
    pub pseq: Option<Pseq>,
    pub verdict: Verdict,
    /// Version of the room's policy at the moment the id was given.
    pub policy_version: u32,
    pub audience: Audience,
    /// Where it came from in another log, so that it is taken over once.
    pub source: Option<Source>,
    pub body: Body,
}

impl Record {
    pub fn event_id(&self) -> EventId {
        EventId::at(self.epoch, self.seq)
    }

    pub fn partition(&self) -> Partition {
        match (&self.room, &self.user) {
            (None, _) => Partition(0),
            (Some(room), Some(user)) if self.is_raw() => routing::partition_of_raw(room, user),
            (Some(room), _) => routing::partition_of(room),
        }
    }

    /// The lane it is served in; `None` for records that no viewer is sent.
    pub fn lane(&self) -> Option<Lane> {
        match (&self.body, self.audience) {
            (_, Audience::Nobody) => None,
            // Everybody was given it, and who was not is told that something is missing here.
            (Body::Erased, _) if self.pseq.is_some() => Some(Lane::Priority),
            (Body::Comment(_), _) => Some(Lane::Comment),
            (Body::Score(_) | Body::Gift(_) | Body::Combo(_) | Body::Retract(_) | Body::Config(_), _) => {
                Some(Lane::Priority)
            }
            (
                Body::EpochStart
                | Body::Room(_)
                | Body::Ban(_)
                | Body::Unban(_)
                | Body::SiteBan(_)
                | Body::SiteUnban(_)
                | Body::Report(_)
                | Body::Audit(_)
                | Body::Wide(_)
                | Body::Narrow(_)
                | Body::Tally(_)
                | Body::Blocked(_)
                | Body::Held(_)
                | Body::HeldEnd(_)
                | Body::Erased,
                _,
            ) => None,
            // Not of a room's order: the site lane carries them.
            (Body::Banner(_) | Body::BannerEnd(_), _) => None,
            // For the doors of every gateway.
            (Body::Revoke(..) | Body::RevokeEnd(_) | Body::Outage(_), _) => None,
            (Body::Feed(_), _) => None,
            (Body::EraseUser(_), _) => None,
        }
    }

    /// A priority event that nobody can be given any more: whoever lacks it needs a snapshot.
    pub fn is_lost(&self) -> bool {
        matches!(self.body, Body::Erased) && self.lane() == Some(Lane::Priority)
    }

    /// Whom it erases, while it says so.
    pub fn erases(&self) -> Option<&UserId> {
        match &self.body {
            Body::EraseUser(user) => Some(user),
            _ => None,
        }
    }

    /// Whether this user said, gave or reported it: the header's user is such a one, and not an operator.
    pub fn is_of(&self, user: &UserId) -> bool {
        self.user.as_ref() == Some(user)
            && !matches!(
                self.body,
                Body::Audit(_)
                    | Body::Banner(_)
                    | Body::BannerEnd(_)
                    | Body::SiteBan(_)
                    | Body::SiteUnban(_)
                    | Body::Revoke(..)
                    | Body::RevokeEnd(_)
                    | Body::Outage(_)
                    | Body::EraseUser(_)
            )
    }

    /// Whether it is of this user or about it. An operator is not named by what it did, nor anyone by the record that erases them:
    /// that one's body goes last.
    pub fn names(&self, user: &UserId) -> bool {
        self.is_of(user) || self.body.names(user)
    }

    /// What is left of it when this user is erased; `None`: all of it.
    pub fn without(&self, user: &UserId) -> Option<Record> {
        if !self.names(user) {
            return None;
        }
        let mut left = Record { body: Body::Erased, ..self.clone() };
        if self.is_of(user) {
            (left.user, left.client_msg_id) = (None, None);
        }
        Some(left)
    }

    /// A comment of a wide room as it was said: durable, and shown only if a window sequences it once more. Holds of an
    /// erased one too.
    pub fn is_raw(&self) -> bool {
        self.audience == Audience::Nobody && self.client_msg_id.is_some()
    }

    /// Whether its body is kept no longer than its room keeps what users said and gave; an operator's records are.
    pub fn is_said(&self) -> bool {
        self.lane().is_some()
            || self.is_raw()
            || matches!(self.body, Body::Gift(_) | Body::Score(_) | Body::Report(_) | Body::Blocked(_) | Body::Held(_))
    }

    /// Of a comment that was held and approved: the id it was held under.
    pub fn held_id(&self) -> Option<EventId> {
        self.source.as_ref().filter(|source| *source.log == *HELD).map(|source| source.id)
    }

    /// Of a window's winner: the id it was said under.
    pub fn raw_id(&self) -> Option<EventId> {
        self.source.as_ref().filter(|source| *source.log == *RAW).map(|source| source.id)
    }

    /// Whether it flushes what waits in the merge window before it (gifts ride with the comments).
    pub fn closes_window(&self) -> bool {
        self.lane() == Some(Lane::Priority) && !matches!(self.body, Body::Gift(_) | Body::Combo(_))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Lane {
    /// Scores, retracts, config, gifts: complete or told.
    Priority,
    /// Comments: may be passed over, counted.
    Comment,
    /// Likes, viewers, keep fraction: the last value wins.
    Latest,
    /// Site-wide banners.
    Site,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// No classifier looked at it (policy `off`, scores, operators).
    Unjudged,
    Allow,
    Flag,
    Block,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Audience {
    Everyone,
    /// Only the author's own connections and the room's moderators.
    Author,
    /// Kept for the log's readers; no viewer is sent it.
    Nobody,
}

/// [`Source::log`] of a window's winner.
pub const RAW: &str = "raw";
/// [`Source::log`] of a comment that was held for review and approved.
pub const HELD: &str = "held";

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    pub log: Arc<str>,
    pub id: EventId,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Body {
    /// Record 0 of each epoch; carries nothing but its place.
    EpochStart,
    Comment(Comment),
    Score(Score),
    Gift(Gift),
    Retract(Retract),
    /// What viewers must know of a room's change: only the changed keys.
    Config(Config),
    /// The whole room record after an operator's change (private; the matching `Config` follows it).
    Room(Arc<Room>),
    Ban(Ban),
    Unban(UserId),
    /// In every room; the record's user is the operator.
    SiteBan(Ban),
    SiteUnban(UserId),
    /// The record's user reported an event of the room.
    Report(Report),
    /// Who changed the room (the record's user) and why. Follows the records of the change in the same batch.
    Audit(Audit),
    /// The room is wide from here on: comments go through its window.
    Wide(Crowd),
    /// The room is narrow again: comments take their places as they come.
    Narrow(Crowd),
    /// What rooms of the log came to in likes.
    Tally(Tally),
    /// What a run of gifts has come to; the record's user is the giver.
    Combo(ComboUpdate),
    /// An operator's notice to the whole site; the record's user wrote it.
    Banner(Banner),
    /// An operator took this banner down.
    BannerEnd(EventId),
    /// A comment that moderation refused; the record's user said it.
    Blocked(Blocked),
    /// A comment that waits for a human's word; the record's user said it.
    Held(Held),
    /// What became of a comment that was held; the record's user said it.
    HeldEnd(HeldEnd),
    /// Tokens that are not taken any more, and until when that is remembered; the record's user said so.
    Revoke(Revoked, Wall),
    /// They are taken again.
    RevokeEnd(Revoked),
    /// No new tokens can be had until then at the latest; `None`: they can again.
    Outage(Option<Wall>),
    /// Who is shown of a match in this room.
    Feed(Arc<MatchFeed>),
    /// A user is erased: nothing that stands before keeps its name, its id or what it said. The record's user is the operator. When
    /// that is done this body goes too.
    EraseUser(UserId),
    /// Header kept, body gone (retention or erase).
    Erased,
}

impl Body {
    fn names(&self, user: &UserId) -> bool {
        let won_for = |comment: &Comment| comment.won.as_ref().is_some_and(|won| won.addressee.as_ref() == Some(user));
        match self {
            Body::Comment(comment) => won_for(comment),
            Body::Blocked(blocked) => won_for(&blocked.comment),
            Body::Held(held) => won_for(&held.comment),
            Body::Retract(Retract { target: RetractTarget::User(whose) | RetractTarget::Since(whose, _), .. }) => {
                whose == user
            }
            Body::Ban(ban) | Body::SiteBan(ban) => ban.user == *user,
            Body::Unban(whose) | Body::SiteUnban(whose) => whose == user,
            Body::Revoke(Revoked::User(whose), _) | Body::RevokeEnd(Revoked::User(whose)) => whose == user,
            Body::Retract(_) | Body::Revoke(..) | Body::RevokeEnd(_) => false,
            Body::EpochStart
            | Body::Score(_)
            | Body::Gift(_)
            | Body::Combo(_)
            | Body::Config(_)
            | Body::Room(_)
            | Body::Report(_)
            | Body::Audit(_)
            | Body::Wide(_)
            | Body::Narrow(_)
            | Body::Tally(_)
            | Body::Banner(_)
            | Body::BannerEnd(_)
            | Body::HeldEnd(_)
            | Body::Outage(_)
            | Body::Feed(_)
            | Body::EraseUser(_)
            | Body::Erased => false,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Comment {
    pub display: Arc<str>,
    pub badges: Arc<[Arc<str>]>,
    pub text: Arc<str>,
    pub reply_to: Option<EventId>,
    /// How it came through a wide room's window; `None` in a narrow room.
    pub won: Option<Box<Won>>,
    /// Its author was shadow-banned when it was said: nobody else is shown it, on either road.
    pub shadowed: bool,
    /// Why its verdict is what it is, where it is not a plain allow.
    pub rule: Option<Arc<str>>,
}

/// What no viewer was sent, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Blocked {
    /// Its rule is what it was refused by.
    pub comment: Comment,
    /// In the body, because a private record with a key in its header is a raw comment. `None` of a wide room's: there it is the raw
    /// comment's, which the record's source names.
    pub client_msg_id: Option<ClientMsgId>,
}

/// A comment in a room's queue for review.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    pub comment: Comment,
    pub client_msg_id: ClientMsgId,
    /// Log time at which it is refused if nobody has decided.
    pub until: Wall,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeldEnd {
    pub held: EventId,
    pub client_msg_id: ClientMsgId,
    pub end: End,
}

/// How a held comment left the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// It is shown as this event, which stands directly before.
    Approved(EventId),
    Denied,
    Expired,
}

impl End {
    pub fn name(self) -> &'static str {
        match self {
            End::Approved(_) => "approved",
            End::Denied => "denied",
            End::Expired => "expired",
        }
    }
}

/// What a gateway's pick and a log's reader must know of a window's winner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Won {
    pub window: WindowNumber,
    /// Winners of its window, itself included: nothing is picked of a window that is not whole. 0 until [`count_winners`].
    pub of: u32,
    /// 1 to [`sampler::WEIGHT_MAX`].
    pub weight: u32,
    /// Texts folded into it.
    pub repeats: u32,
    /// Beside the lot.
    pub by_right: bool,
    /// Whom it answers or names, when that user was in the room.
    pub addressee: Option<UserId>,
}

/// Says to each winner of a batch how many its window has. The winners of one window are in one batch, one behind the other.
pub fn count_winners(batch: &mut [Arc<Record>]) {
    let window = |record: &Record| match &record.body {
        Body::Comment(Comment { won: Some(won), .. }) => Some((record.room.clone(), won.window)),
        _ => None,
    };
    let mut rest = batch;
    while let Some(first) = rest.first() {
        let of = window(first);
        let n = rest.iter().take_while(|record| of.is_some() && window(record) == of).count();
        let (winners, after) = rest.split_at_mut(n.max(1));
        for record in winners.iter_mut().take(n) {
            if let Body::Comment(Comment { won: Some(won), .. }) = &mut Arc::make_mut(record).body {
                won.of = n as u32;
            }
        }
        rest = after;
    }
}

/// What the switch of a wide room saw when it turned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Crowd {
    /// Accepted comments a second.
    pub rate: u32,
    pub viewers: u64,
}

/// One revision of one score event. Identity: (match, provider, event, revision).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Score {
    pub match_id: Key,
    pub provider: Key,
    /// The provider's own event id (`key` on the wire).
    pub event: Key,
    pub revision: Revision,
    pub kind: ScoreKind,
    pub state: ScoreState,
    pub home: u32,
    pub away: u32,
    /// As the provider writes it: "78", "90+2", "HT".
    pub minute: Option<Arc<str>>,
    /// A higher revision was already there.
    pub superseded: bool,
    /// From a recovery replay: not news.
    pub historical: bool,
    /// Digest of the canonical payload, to tell a repeat from a conflict.
    pub digest: [u8; 16],
    /// Extra JSON from the provider; kept, never fanned out.
    pub data: Option<Arc<str>>,
    /// What viewers know it as, where that is not its own event and revision.
    pub shown: Option<Shown>,
}

/// A score event's name and number among a match's viewers, given by the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shown {
    pub key: Key,
    pub revision: Revision,
    /// It was seen before; a switch-over shows it now, or takes it back.
    pub again: bool,
}

impl Score {
    pub fn stands(&self) -> bool {
        self.state != ScoreState::Withdrawn
    }

    pub fn goals(&self) -> (u32, u32) {
        (self.home, self.away)
    }

    /// As viewers know it.
    pub fn shown_as(&self) -> (&Key, Revision) {
        self.shown.as_ref().map_or((&self.event, self.revision), |shown| (&shown.key, shown.revision))
    }
}

/// From whom a match's score events are shown from here on; the records of the switch follow it in the same batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MatchFeed {
    pub match_id: Key,
    pub primary: Key,
    pub stand_by: Option<Key>,
    /// Events of the primary that go on with what is shown already, and under which key, where no record says so.
    pub twins: Vec<(Key, Key)>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ScoreKind {
    KickOff,
    Goal,
    OwnGoal,
    Penalty,
    PenaltyMissed,
    YellowCard,
    SecondYellow,
    RedCard,
    Substitution,
    Var,
    HalfTime,
    SecondHalf,
    ExtraTime,
    PenaltyShootout,
    FullTime,
    Correction,
    Score,
}

impl ScoreKind {
    /// Every kind with its wire name; the closed list a provider may send.
    pub const ALL: [(ScoreKind, &'static str); 17] = [
        (ScoreKind::KickOff, "kick_off"),
        (ScoreKind::Goal, "goal"),
        (ScoreKind::OwnGoal, "own_goal"),
        (ScoreKind::Penalty, "penalty"),
        (ScoreKind::PenaltyMissed, "penalty_missed"),
        (ScoreKind::YellowCard, "yellow_card"),
        (ScoreKind::SecondYellow, "second_yellow"),
        (ScoreKind::RedCard, "red_card"),
        (ScoreKind::Substitution, "substitution"),
        (ScoreKind::Var, "var"),
        (ScoreKind::HalfTime, "half_time"),
        (ScoreKind::SecondHalf, "second_half"),
        (ScoreKind::ExtraTime, "extra_time"),
        (ScoreKind::PenaltyShootout, "penalty_shootout"),
        (ScoreKind::FullTime, "full_time"),
        (ScoreKind::Correction, "correction"),
        (ScoreKind::Score, "score"),
    ];

    pub fn name(self) -> &'static str {
        ScoreKind::ALL[self as usize].1
    }
    pub fn parse(name: &str) -> Option<ScoreKind> {
        ScoreKind::ALL.iter().find(|(_, n)| *n == name).map(|(k, _)| *k)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScoreState {
    Confirmed,
    Provisional,
    UnderReview,
    Withdrawn,
}

impl ScoreState {
    pub const ALL: [(ScoreState, &'static str); 4] = [
        (ScoreState::Confirmed, "confirmed"),
        (ScoreState::Provisional, "provisional"),
        (ScoreState::UnderReview, "under_review"),
        (ScoreState::Withdrawn, "withdrawn"),
    ];
    pub fn name(self) -> &'static str {
        ScoreState::ALL[self as usize].1
    }
    pub fn parse(name: &str) -> Option<ScoreState> {
        ScoreState::ALL.iter().find(|(_, n)| *n == name).map(|(s, _)| *s)
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gift {
    pub gift_id: Key,
    pub display: Arc<str>,
    pub item: Arc<str>,
    pub count: u32,
    pub amount_micros: u64,
    pub currency: Arc<str>,
    /// Until when the whole site is told of it; given with its id. Part of the gift, so that there is one banner of it or none.
    pub banner_until: Option<Wall>,
}

/// Totals of gifts of one user, item and currency that followed each other closely. Absolute: each stands for all before it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ComboUpdate {
    /// The first of them, which every viewer was sent as a gift.
    pub first: EventId,
    pub display: Arc<str>,
    pub item: Arc<str>,
    pub currency: Arc<str>,
    pub gifts: u32,
    /// Items of all of them.
    pub count: u64,
    pub amount_micros: u64,
    /// No gift is added to it any more.
    pub ended: bool,
}

/// A notice to the whole site.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Banner {
    /// An operator's words; empty for a gift's.
    pub text: Arc<str>,
    /// In no record: a gift's banner is made from its gift.
    pub gift: Option<BannerGift>,
    /// The room it came from, or leads to.
    pub room: Option<RoomId>,
    /// Log time at which it ends by itself.
    pub until: Wall,
}

/// Whose gift a banner shows, and what it was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BannerGift {
    pub user: UserId,
    pub display: Arc<str>,
    pub item: Arc<str>,
    pub count: u32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Retract {
    pub target: RetractTarget,
    pub reason: Arc<str>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RetractTarget {
    Event(EventId),
    User(UserId),
    /// What the user said at this log time or later.
    Since(UserId, Wall),
    All,
}

impl RetractTarget {
    /// Whether a comment is meant that was said before the retract: its id, its author and when.
    pub fn means(&self, id: EventId, user: Option<&UserId>, ts: Wall) -> bool {
        match self {
            RetractTarget::Event(target) => *target == id,
            RetractTarget::User(whose) => user == Some(whose),
            RetractTarget::Since(whose, from) => user == Some(whose) && *from <= ts,
            RetractTarget::All => true,
        }
    }
}

/// Only what changed; `None` means unchanged.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Config {
    pub title: Option<Arc<str>>,
    pub state: Option<RoomState>,
    pub slow_mode_seconds: Option<u32>,
    /// When slow mode ends by itself; `Some(None)` = open-ended.
    pub until_ts: Option<Option<Wall>>,
    pub moderation_policy: Option<Policy>,
    pub pinned: Option<Arc<[EventId]>>,
    /// Whether viewers are given a part of what is said.
    pub sampled: Option<bool>,
    /// Comments a second one viewer is given at most while the room is sampled.
    pub cap: Option<u32>,
    pub emote_only: Option<bool>,
    pub unique_comment: Option<bool>,
    /// The badge that may comment from now on; `Some(None)`: anybody.
    pub members_only: Option<Option<Arc<str>>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RoomState {
    Scheduled,
    Live,
    Settling,
    Closed,
}

impl RoomState {
    pub const ALL: [(RoomState, &'static str); 4] = [
        (RoomState::Scheduled, "scheduled"),
        (RoomState::Live, "live"),
        (RoomState::Settling, "settling"),
        (RoomState::Closed, "closed"),
    ];
    pub fn name(self) -> &'static str {
        RoomState::ALL[self as usize].1
    }
    pub fn parse(name: &str) -> Option<RoomState> {
        RoomState::ALL.iter().find(|(_, n)| *n == name).map(|(s, _)| *s)
    }
}

/// How comments are judged: before they are shown, after, or not at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    Off,
    PostModerateFast,
    PreModerate,
    PreModerateStrict,
}

impl Policy {
    pub const ALL: [(Policy, &'static str); 4] = [
        (Policy::Off, "off"),
        (Policy::PostModerateFast, "post-moderate-fast"),
        (Policy::PreModerate, "pre-moderate"),
        (Policy::PreModerateStrict, "pre-moderate-strict"),
    ];
    /// A comment is shown only with a verdict.
    pub fn judges_first(self) -> bool {
        matches!(self, Policy::PreModerate | Policy::PreModerateStrict)
    }
    pub fn name(self) -> &'static str {
        Policy::ALL[self as usize].1
    }
    pub fn parse(name: &str) -> Option<Policy> {
        Policy::ALL.iter().find(|(_, n)| *n == name).map(|(p, _)| *p)
    }
}

/// A room's settings, as an operator set them. Identity and history live in the log; this is its newest value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Room {
    pub title: Arc<str>,
    pub state: RoomState,
    pub matches: Vec<Key>,
    pub anonymous_view: bool,
    pub anonymous_publish: bool,
    /// Listed by `GET /v1/rooms`.
    pub listed: bool,
    /// Accepted comments a second in the whole room.
    pub rate: u32,
    /// Accepted comments a second and burst of one user.
    pub user_rate: u32,
    pub user_burst: u32,
    /// Likes a second that one user may give; 0: the room takes none.
    pub like_rate: u32,
    /// Fixed merge window; `None` follows the room's size.
    pub merge_ms: Option<u32>,
    /// Comments older than this are passed over for a slow viewer; `None` is the age of any room.
    pub comment_age_ms: Option<u32>,
    pub resume_window_seconds: u32,
    pub retention_days: u32,
    pub slow_mode_seconds: u32,
    pub slow_mode_until: Option<Wall>,
    pub moderation_policy: Policy,
    pub pinned: Vec<EventId>,
    /// When it is wide, and what is shown of it then.
    pub sampling: sampler::Rules,
    /// Items whose gift is told to the whole site.
    pub banner_items: Vec<Arc<str>>,
    /// By currency, from how many micros a gift is.
    pub banner_amounts: BTreeMap<Arc<str>, u64>,
    /// Banners of gifts of this room a minute; 0: none.
    pub banner_rate: u32,
    /// How long a gift's banner stands.
    pub banner_seconds: u32,
    /// Gifts of one user and item no further apart are one combo; 0: each stands alone.
    pub combo_seconds: u32,
    /// What a classifier flags waits for a human's word.
    pub hold_flagged: bool,
    /// After so long without one it is refused.
    pub hold_seconds: u32,
    /// A user says no comment twice within ten minutes.
    pub unique_comment: bool,
    pub emote_only: bool,
    /// The badge that may comment; `None`: anybody.
    pub members_only: Option<Arc<str>>,
    /// When pins end by themselves, of those that do.
    pub pin_ends: BTreeMap<EventId, Wall>,
    /// Where it may not be shown; in order, each once.
    pub blackout_regions: Vec<Region>,
    /// So long it settles before it closes by itself; 0: until somebody closes it.
    pub settle_seconds: u32,
    /// Log time at which it does, while it settles.
    pub settles_until: Option<Wall>,
    /// Grows by one with each change; the `ETag` of the room.
    pub version: u64,
}

impl Room {
    /// A room as it is when first used in development mode or put without settings. Source: docs/protocol.md, limits.
    pub fn fresh(title: &str) -> Room {
        Room {
            title: title.into(),
            state: RoomState::Live,
            matches: Vec::new(),
            anonymous_view: true,
            anonymous_publish: true,
            listed: true,
            rate: 2_000,
            user_rate: 2,
            user_burst: 40,
            like_rate: crate::likes::RATE,
            merge_ms: None,
            comment_age_ms: None,
            resume_window_seconds: 300,
            retention_days: 14,
            slow_mode_seconds: 0,
            slow_mode_until: None,
            moderation_policy: Policy::Off,
            pinned: Vec::new(),
            sampling: sampler::Rules::default(),
            banner_items: Vec::new(),
            banner_amounts: BTreeMap::new(),
            banner_rate: banners::ROOM_RATE,
            banner_seconds: banners::GIFT_SECONDS,
            combo_seconds: combos::SECONDS,
            hold_flagged: false,
            hold_seconds: moderation::HOLD_SECONDS,
            unique_comment: false,
            emote_only: false,
            members_only: None,
            pin_ends: BTreeMap::new(),
            blackout_regions: Vec::new(),
            settle_seconds: crate::rooms::SETTLE_SECONDS,
            settles_until: None,
            version: 0,
        }
    }
}

/// The totals of the rooms in which likes came since the last one, and up to which frame they hold.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Absolute, every kind of the room, rooms in order: what came before in the log is not needed to read it.
    pub rooms: Vec<(RoomId, Totals)>,
    /// Sender and number of the last frame of each sender that is counted in it, senders in order.
    pub senders: Vec<(u64, u64)>,
}

/// What an operator did and why, in the operator's words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Audit {
    pub what: Arc<str>,
    pub justification: Arc<str>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ban {
    pub user: UserId,
    /// Log time at which it ends by itself.
    pub until: Option<Wall>,
    pub reason: Arc<str>,
    /// The user may speak, and only itself and moderators hear it.
    pub shadow: bool,
}
