//! What a server says to a client: one JSON object an event.
//!
//! Events of the log (`comment`, `score_event`, `gift`, `retract`, `config`) are written from their record by
//! [`write_event`], once, without anything that belongs to one viewer; every viewer's frame shares those bytes. What
//! concerns one connection (`hello`, acks, refusals) is a struct with a `write`. Fields that are absent are not written,
//! but `minute`, `until_ts` and `members_only`, whose `null` says something.

use grandstand_core::ids::{EventId, Partition, Position, Pseq, Seq};
use grandstand_core::names::{ClientMsgId, Key, LikeKind, RoomId, UserId};
use grandstand_core::record::{
    Banner, Body, ComboUpdate, Comment, Config, Gift, Record, Retract, RetractTarget, Room, Score,
};
use grandstand_core::time::Wall;

use crate::codes::{CloseCode, RateReason};
use crate::json::{Writer, write_str, write_u64};

/// The `type` of the event that viewers are sent for this record; `None` for records that no viewer is sent.
pub fn kind(record: &Record) -> Option<&'static str> {
    record.lane()?;
    match record.body {
        Body::Comment(_) => Some("comment"),
        Body::Score(_) => Some("score_event"),
        Body::Gift(_) => Some("gift"),
        Body::Combo(_) => Some("gift_combo"),
        Body::Retract(_) => Some("retract"),
        Body::Config(_) => Some("config"),
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
        | Body::Erased => None,
        Body::Banner(_) | Body::BannerEnd(_) => None,
        Body::Revoke(..) | Body::RevokeEnd(_) | Body::Outage(_) | Body::Feed(_) | Body::EraseUser(_) => None,
    }
}

/// Appends the event of a record, without `client_msg_id`, and returns its `type`.
///
/// Errors: a record that no viewer is sent appends nothing and returns `None`.
pub fn write_event(record: &Record, out: &mut Vec<u8>) -> Option<&'static str> {
    let kind = kind(record)?;
    // A comment's frame is its text and about 160 bytes around it.
    out.reserve(256);
    let mut event = Writer::event(out, kind, record.room.as_ref());
    event.number("event_id", record.event_id().value());
    if let Some(pseq) = record.pseq {
        event.number("pseq", pseq.0);
    }
    members(record, &mut event);
    event.end();
    Some(kind)
}

/// The members that a record's body gives its event.
pub(crate) fn members(record: &Record, event: &mut Writer<'_>) {
    match &record.body {
        Body::Comment(body) => comment(record, body, event),
        Body::Score(body) => score(body, event),
        Body::Gift(body) => gift(record, body, event),
        Body::Combo(body) => combo(record, body, event),
        Body::Retract(body) => retract(body, event),
        Body::Config(body) => config(body, event),
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
        | Body::Revoke(..)
        | Body::RevokeEnd(_)
        | Body::Outage(_)
        | Body::Feed(_)
        | Body::EraseUser(_)
        | Body::Erased => {}
        Body::Banner(body) => {
            banner_members(record.event_id(), body, event);
        }
        Body::BannerEnd(id) => {
            event.text("banner_id", &id.value().to_string());
        }
    }
}

/// Copies an event with `client_msg_id` added at its end: the author's own copy of a comment.
///
/// `json` is one JSON object with at least one member, as [`write_event`] made it; anything else is a bug and panics.
pub fn with_client_msg_id(json: &[u8], key: &ClientMsgId, out: &mut Vec<u8>) {
    let body = json.strip_suffix(b"}").expect("an event is a JSON object");
    out.reserve(json.len() + key.as_str().len() + 20);
    out.extend_from_slice(body);
    out.extend_from_slice(b",\"client_msg_id\":");
    write_str(key.as_str(), out);
    out.push(b'}');
}

fn user<'a, B: AsRef<str> + 'a>(
    id: Option<&UserId>,
    display: &str,
    badges: impl IntoIterator<Item = &'a B>,
    out: &mut Vec<u8>,
) {
    let mut user = Writer::object(out);
    user.text("id", id.map_or("", UserId::as_str)).text("display", display);
    user.list("badges", badges, |badge, out| write_str(badge.as_ref(), out)).end();
}

fn comment(record: &Record, body: &Comment, event: &mut Writer<'_>) {
    event.with("user", |out| user(record.user.as_ref(), &body.display, body.badges.iter(), out));
    event.text("body", &body.text).time("ts", record.ts);
    event.number_if("reply_to", body.reply_to.map(EventId::value));
    let repeats = body.won.as_ref().map_or(0, |won| won.repeats);
    event.number_if("repeats", Some(u64::from(repeats)).filter(|n| *n > 0));
}

fn score(body: &Score, event: &mut Writer<'_>) {
    let (key, revision) = body.shown_as();
    event.text("match_id", body.match_id.as_str()).text("key", key.as_str());
    event.number("revision", u64::from(revision.0));
    event.text("kind", body.kind.name()).text("state", body.state.name());
    event.with("score", |out| goals(body, out));
    match &body.minute {
        Some(minute) => event.text("minute", minute),
        None => event.raw("minute", "null"),
    };
    event.flag("superseded", body.superseded).flag("historical", body.historical);
}

pub(crate) fn goals(body: &Score, out: &mut Vec<u8>) {
    let mut score = Writer::object(out);
    score.number("home", u64::from(body.home)).number("away", u64::from(body.away)).end();
}

fn gift(record: &Record, body: &Gift, event: &mut Writer<'_>) {
    event.text("gift_id", body.gift_id.as_str());
    event.with("user", |out| user::<String>(record.user.as_ref(), &body.display, [], out));
    event.text("item", &body.item).number("count", u64::from(body.count));
    event.number("amount_micros", body.amount_micros).text("currency", &body.currency);
}

fn combo(record: &Record, body: &ComboUpdate, event: &mut Writer<'_>) {
    event.number("combo_id", body.first.value());
    event.with("user", |out| user::<String>(record.user.as_ref(), &body.display, [], out));
    event.text("item", &body.item).number("gifts", u64::from(body.gifts)).number("count", body.count);
    event.number("amount_micros", body.amount_micros).text("currency", &body.currency);
    event.flag("ended", body.ended);
}

fn retract(body: &Retract, event: &mut Writer<'_>) {
    match &body.target {
        RetractTarget::Event(id) => event.number("target_event_id", id.value()),
        RetractTarget::User(user) => event.text("user_id", user.as_str()),
        RetractTarget::Since(user, from) => event.text("user_id", user.as_str()).time("since_ts", *from),
        RetractTarget::All => event.bool("all", true),
    };
    event.text("reason", &body.reason);
}

fn config(body: &Config, event: &mut Writer<'_>) {
    event.text_if("title", body.title.as_deref());
    event.text_if("state", body.state.map(|s| s.name()));
    event.number_if("slow_mode_seconds", body.slow_mode_seconds.map(u64::from));
    if let Some(until) = body.until_ts {
        until_ts(until, event);
    }
    event.text_if("moderation_policy", body.moderation_policy.map(|p| p.name()));
    if let Some(pinned) = &body.pinned {
        event.numbers("pinned", pinned.iter().map(|id| id.value()));
    }
    if let Some(sampled) = body.sampled {
        event.bool("sampled", sampled);
    }
    event.number_if("cap", body.cap.map(u64::from));
    for (name, on) in [("emote_only", body.emote_only), ("unique_comment", body.unique_comment)] {
        if let Some(on) = on {
            event.bool(name, on);
        }
    }
    match &body.members_only {
        None => {}
        Some(Some(badge)) => drop(event.text("members_only", badge)),
        Some(None) => drop(event.raw("members_only", "null")),
    }
}

fn until_ts(until: Option<Wall>, event: &mut Writer<'_>) {
    match until {
        Some(at) => event.time("until_ts", at),
        None => event.raw("until_ts", "null"),
    };
}

/// Appends what viewers are told of a room's settings, all of it: `config` of `hello` and snapshot, with the names of the
/// `config` event. `sampled`: whether the room is wide.
pub fn write_config(room: &Room, sampled: bool, out: &mut Vec<u8>) {
    let mut config = Writer::object(out);
    config.text("title", &room.title).text("state", room.state.name());
    config.number("slow_mode_seconds", u64::from(room.slow_mode_seconds));
    until_ts(room.slow_mode_until, &mut config);
    config.text("moderation_policy", room.moderation_policy.name());
    config.bool("anonymous_publish", room.anonymous_publish).bool("sampled", sampled);
    config.number("cap", u64::from(room.sampling.cap()));
    config.flag("emote_only", room.emote_only).flag("unique_comment", room.unique_comment);
    config.text_if("members_only", room.members_only.as_deref()).end();
}

/// Appends the ids of a room's pinned events as a JSON array.
pub fn write_pinned(room: &Room, out: &mut Vec<u8>) {
    out.push(b'[');
    for (i, id) in room.pinned.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write_u64(id.value(), out);
    }
    out.push(b']');
}

/// The first event of every stream, and the answer to `join`.
#[derive(Clone, Debug)]
pub struct Hello<'a> {
    pub room: &'a RoomId,
    pub session: &'a str,
    /// Everything after it follows: the client's own when resumed, else the head.
    pub cursor: Position,
    pub pseq: Pseq,
    pub resumed: bool,
    /// Whether every comment after the cursor follows (`all`) or some were left out (`some`).
    pub comments_all: bool,
    /// JSON objects and arrays, made by [`write_config`], [`Counters::write_values`], [`write_pinned`].
    pub config: &'a str,
    pub counters: &'a str,
    pub pinned: &'a str,
    pub banners: &'a str,
    /// Made by [`Endpoints::write`]; absent where one address serves all transports.
    pub endpoints: Option<&'a str>,
}

/// Base URLs of transports that have their own: `endpoints` of `hello` and snapshot. What is absent is reached where the
/// client is already.
#[derive(Clone, Debug)]
pub struct Endpoints<'a> {
    pub websocket: Option<&'a str>,
    pub sse: &'a [String],
    pub poll: Option<&'a str>,
    pub api: Option<&'a str>,
}

impl Endpoints<'_> {
    /// Appends the object alone.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut list = vec![b'['];
        for (i, url) in self.sse.iter().enumerate() {
            if i > 0 {
                list.push(b',');
            }
            write_str(url, &mut list);
        }
        list.push(b']');
        let list = String::from_utf8(list).expect("JSON that was just written");
        let mut object = Writer::object(out);
        object.text_if("websocket", self.websocket);
        if !self.sse.is_empty() {
            object.raw("sse", &list);
        }
        object.text_if("poll", self.poll).text_if("api", self.api).end();
    }
}

impl Hello<'_> {
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut event = Writer::event(out, "hello", Some(self.room));
        event.text("session", self.session).number("cursor", self.cursor.value()).number("pseq", self.pseq.0);
        event.bool("resumed", self.resumed).text("comments", if self.comments_all { "all" } else { "some" });
        event.raw("config", self.config).raw("counters", self.counters).raw("pinned", self.pinned);
        event.raw("banners", self.banners);
        if let Some(endpoints) = self.endpoints {
            event.raw("endpoints", endpoints);
        }
        event.end();
    }
}

/// A comment is durable and in the room's order. Also the body of a 200 to `POST …/comments`.
#[derive(Clone, Debug)]
pub struct PublishAck<'a> {
    pub room: &'a RoomId,
    pub client_msg_id: &'a ClientMsgId,
    pub id: AckId,
    pub partition: Partition,
    pub offset: Seq,
    pub duplicate: bool,
}

/// What an acknowledged comment is known by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AckId {
    Event(EventId),
    /// In a wide room, as it was said: the id it is shown under comes with `publish_commit`, if it is.
    Raw(EventId),
    /// A repeat by HTTP, where no `publish_commit` comes: also what became of it.
    Decided {
        raw_id: EventId,
        event_id: Option<EventId>,
    },
}

impl PublishAck<'_> {
    pub fn write(&self, out: &mut Vec<u8>) {
        out.reserve(192);
        let mut event = Writer::event(out, "publish_ack", Some(self.room));
        event.text("client_msg_id", self.client_msg_id.as_str());
        match self.id {
            AckId::Event(id) => event.number("event_id", id.value()),
            AckId::Raw(raw_id) => event.number("raw_id", raw_id.value()),
            AckId::Decided { raw_id, event_id: Some(id) } => {
                event.number("raw_id", raw_id.value()).number("event_id", id.value())
            }
            AckId::Decided { raw_id, event_id: None } => event.number("raw_id", raw_id.value()).bool("shown", false),
        };
        event.number("partition", u64::from(self.partition.0)).number("offset", self.offset.value());
        event.flag("duplicate", self.duplicate).end();
    }
}

/// What became of a comment of a wide room: its id, or that its window closed without it.
#[derive(Clone, Debug)]
pub struct PublishCommit<'a> {
    pub room: &'a RoomId,
    pub client_msg_id: &'a ClientMsgId,
    pub event_id: Option<EventId>,
}

impl PublishCommit<'_> {
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut event = Writer::event(out, "publish_commit", Some(self.room));
        event.text("client_msg_id", self.client_msg_id.as_str());
        match self.event_id {
            Some(id) => event.number("event_id", id.value()),
            None => event.bool("shown", false),
        };
        event.end();
    }
}

/// An operation was refused; the stream stays open. `code` is a name of [`crate::codes::ErrorCode`].
#[derive(Clone, Debug)]
pub struct ErrorEvent<'a> {
    /// Absent when the operation named no room.
    pub room: Option<&'a RoomId>,
    pub code: &'a str,
    pub message: &'a str,
    pub client_msg_id: Option<&'a ClientMsgId>,
    pub retry_after_ms: Option<u64>,
}

impl ErrorEvent<'_> {
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut event = Writer::event(out, "error", self.room);
        event.text("code", self.code).text("message", self.message);
        event.text_if("client_msg_id", self.client_msg_id.map(ClientMsgId::as_str));
        event.number_if("retry_after_ms", self.retry_after_ms).end();
    }
}

/// A publish came too soon.
#[derive(Clone, Debug)]
pub struct RateLimited<'a> {
    pub room: &'a RoomId,
    pub client_msg_id: Option<&'a ClientMsgId>,
    pub retry_after_ms: u64,
    pub reason: RateReason,
}

impl RateLimited<'_> {
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut event = Writer::event(out, "rate_limited", Some(self.room));
        event.text_if("client_msg_id", self.client_msg_id.map(ClientMsgId::as_str));
        event.number("retry_after_ms", self.retry_after_ms).text("reason", self.reason.name()).end();
    }
}

/// A comment waits for its verdict.
#[derive(Clone, Debug)]
pub struct ModerationPending<'a> {
    pub room: &'a RoomId,
    pub client_msg_id: &'a ClientMsgId,
    pub retry_after_ms: Option<u64>,
}

impl ModerationPending<'_> {
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut event = Writer::event(out, "moderation_pending", Some(self.room));
        event.text("client_msg_id", self.client_msg_id.as_str());
        event.number_if("retry_after_ms", self.retry_after_ms).end();
    }
}

/// Moderation refused a comment.
#[derive(Clone, Debug)]
pub struct ModerationFailed<'a> {
    pub room: &'a RoomId,
    pub client_msg_id: &'a ClientMsgId,
    pub reason: &'a str,
}

impl ModerationFailed<'_> {
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut event = Writer::event(out, "moderation_failed", Some(self.room));
        event.text("client_msg_id", self.client_msg_id.as_str()).text("reason", self.reason).end();
    }
}

/// The stream ends after this; the same code, reason and delays on every transport.
#[derive(Clone, Debug)]
pub struct Close<'a> {
    pub room: Option<&'a RoomId>,
    pub code: CloseCode,
    /// Milliseconds to wait, and to spread over; `None` where a client must not come back by itself.
    pub retry: Option<(u64, u64)>,
}

impl<'a> Close<'a> {
    /// With the code's default delays.
    pub fn of(code: CloseCode, room: Option<&'a RoomId>) -> Close<'a> {
        Close { room, code, retry: code.retry().map(|(retry, spread)| (retry.into(), spread.into())) }
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        let mut event = Writer::event(out, "close", self.room);
        event.number("code", u64::from(self.code.code())).text("reason", self.code.reason());
        if let Some((retry_after_ms, spread_ms)) = self.retry {
            event.number("retry_after_ms", retry_after_ms).number("spread_ms", spread_ms);
        }
        event.end();
    }
}

/// The cursor cannot be resumed from: load the snapshot; the stream goes on live from `cursor`.
#[derive(Clone, Debug)]
pub struct SnapshotRequired<'a> {
    pub room: &'a RoomId,
    /// `too_old` or `unknown_cursor`.
    pub reason: &'a str,
    pub cursor: Position,
    pub pseq: Pseq,
}

impl SnapshotRequired<'_> {
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut event = Writer::event(out, "snapshot_required", Some(self.room));
        event.with("snapshot_url", |out| snapshot_url(self.room, Some(self.cursor), out));
        event.text("reason", self.reason).number("cursor", self.cursor.value()).number("pseq", self.pseq.0).end();
    }
}

/// A room id has no character that a URL's path or a JSON string would escape.
fn snapshot_url(room: &RoomId, min: Option<Position>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\"/v1/rooms/");
    out.extend_from_slice(room.as_str().as_bytes());
    out.extend_from_slice(b"/snapshot");
    if let Some(min) = min {
        out.extend_from_slice(b"?min=");
        write_u64(min.value(), out);
    }
    out.push(b'"');
}

/// This many comments between two ids were not sent to this viewer.
#[derive(Clone, Debug)]
pub struct Skipped<'a> {
    pub room: &'a RoomId,
    pub count: u64,
    pub from: EventId,
    pub to: EventId,
}

impl Skipped<'_> {
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut event = Writer::event(out, "skipped", Some(self.room));
        event.number("count", self.count).number("from", self.from.value()).number("to", self.to.value()).end();
    }
}

/// The token ends soon: send a new one by `auth`.
#[derive(Clone, Debug)]
pub struct TokenExpiring<'a> {
    pub room: Option<&'a RoomId>,
    pub in_ms: u64,
}

impl TokenExpiring<'_> {
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut event = Writer::event(out, "token_expiring", self.room);
        event.number("in_ms", self.in_ms).end();
    }
}

/// The answer to `ping`.
#[derive(Clone, Debug)]
pub struct Pong<'a> {
    pub room: Option<&'a RoomId>,
}

impl Pong<'_> {
    pub fn write(&self, out: &mut Vec<u8>) {
        Writer::event(out, "pong", self.room).end();
    }
}

/// The answer to `leave`: nothing of this room follows.
#[derive(Clone, Debug)]
pub struct Left<'a> {
    pub room: &'a RoomId,
}

impl Left<'_> {
    pub fn write(&self, out: &mut Vec<u8>) {
        Writer::event(out, "left", Some(self.room)).end();
    }
}

/// The room's feed stands still; its snapshot can be read meanwhile.
#[derive(Clone, Debug)]
pub struct FeedPaused<'a> {
    pub room: &'a RoomId,
    pub reason: &'a str,
    pub retry_after_ms: u64,
    pub spread_ms: u64,
}

impl FeedPaused<'_> {
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut event = Writer::event(out, "feed_paused", Some(self.room));
        event.text("reason", self.reason).with("snapshot_url", |out| snapshot_url(self.room, None, out));
        event.number("retry_after_ms", self.retry_after_ms).number("spread_ms", self.spread_ms).end();
    }
}

/// Nothing has come for long from the provider that a match is shown from; or it has, again.
#[derive(Clone, Debug)]
pub struct FeedStale<'a> {
    pub room: &'a RoomId,
    pub match_id: &'a Key,
    pub provider: &'a Key,
    pub since: Wall,
    /// It is back.
    pub ended: bool,
}

impl FeedStale<'_> {
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut event = Writer::event(out, "feed_stale", Some(self.room));
        event.text("match_id", self.match_id.as_str()).text("provider", self.provider.as_str());
        event.time("since_ts", self.since).flag("ended", self.ended).end();
    }
}

/// Latest values of a room; never moves a cursor.
#[derive(Clone, Debug)]
pub struct Counters<'a> {
    pub room: &'a RoomId,
    /// Kind and total, in the order they are to be shown.
    pub likes: &'a [(LikeKind, u64)],
    pub viewers: u64,
    /// Share of comments a viewer is shown, in millionths: 1 000 000 is all. `None` where it is not known, and not told.
    pub keep_millionths: Option<u32>,
    pub as_of: Wall,
}

impl Counters<'_> {
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut event = Writer::event(out, "counters", Some(self.room));
        self.members(&mut event);
        event.end();
    }

    /// Appends the values alone, as `hello` and snapshot carry them.
    pub fn write_values(&self, out: &mut Vec<u8>) {
        let mut values = Writer::object(out);
        self.members(&mut values);
        values.end();
    }

    fn members(&self, event: &mut Writer<'_>) {
        event.with("likes", |out| write_likes(self.likes, out));
        event.number("viewers", self.viewers);
        if let Some(millionths) = self.keep_millionths {
            event.with("keep_fraction", |out| fraction(millionths, out));
        }
        event.time("as_of_ts", self.as_of);
    }
}

/// Appends totals as an object of kinds.
pub fn write_likes(totals: &[(LikeKind, u64)], out: &mut Vec<u8>) {
    let mut likes = Writer::object(out);
    for (kind, total) in totals {
        likes.number(kind.as_str(), *total);
    }
    likes.end();
}

/// Writes millionths as a JSON number between 0 and 1.
fn fraction(millionths: u32, out: &mut Vec<u8>) {
    assert!(millionths <= 1_000_000, "a fraction is at most 1");
    if millionths.is_multiple_of(1_000_000) {
        return write_u64(u64::from(millionths / 1_000_000), out);
    }
    let text = format!("0.{millionths:06}");
    out.extend_from_slice(text.trim_end_matches('0').as_bytes());
}

/// Appends a site-wide banner, the same for every room's stream: it has no `room_id`.
pub fn write_banner(id: EventId, banner: &Banner, out: &mut Vec<u8>) {
    let mut event = Writer::event(out, "banner", None);
    banner_members(id, banner, &mut event);
    event.end();
}

/// That a banner is taken down. It says nothing of what stood on it: there may be a reason why that is told no more.
pub fn ended_banner(id: EventId, until: Wall) -> Vec<u8> {
    let mut out = Vec::with_capacity(112);
    let mut event = Writer::event(&mut out, "banner", None);
    event.text("banner_id", &id.value().to_string());
    event.time("until_ts", until);
    event.flag("ended", true);
    event.end();
    out
}

/// Appends banners as [`write_banner`] wrote them as a JSON array: `banners` of `hello` and snapshot.
pub fn write_banners<'a>(banners: impl Iterator<Item = &'a [u8]>, out: &mut Vec<u8>) {
    out.push(b'[');
    for (i, banner) in banners.enumerate() {
        if i > 0 {
            out.push(b',');
        }
        out.extend_from_slice(banner);
    }
    out.push(b']');
}

fn banner_members(id: EventId, banner: &Banner, event: &mut Writer<'_>) {
    event.text("banner_id", &id.value().to_string());
    match &banner.gift {
        None => {
            event.text("body", &banner.text);
        }
        Some(gift) => {
            // For who shows a text and knows no gifts.
            event.text("body", &format!("{} · {} × {}", gift.display, gift.count, gift.item));
            event.with("user", |out| user::<String>(Some(&gift.user), &gift.display, [], out));
            event.text("item", &gift.item).number("count", u64::from(gift.count));
        }
    }
    event.text_if("source_room_id", banner.room.as_ref().map(RoomId::as_str)).time("until_ts", banner.until);
}
