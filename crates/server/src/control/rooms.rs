//! The list of rooms, and a room's settings for its operators.

use axum::body::Body;
use axum::extract::State;
use grandstand_core::ids::EventId;
use grandstand_core::names::Key;
use grandstand_core::owner::answer::Answer;
use grandstand_core::owner::command::Command;
use grandstand_core::record::{Audit, Policy, Room, RoomState};
use grandstand_core::regions::Region;
use grandstand_core::rooms::{Asks, RoomChange};
use grandstand_core::sampler::switch::Sampling;
use grandstand_core::sampler::{Preset, Weights};
use grandstand_wire::codes::ErrorCode;
use grandstand_wire::export;
use grandstand_wire::json::Value;
use grandstand_wire::limits::GIFT_MICROS_MAX;
use grandstand_wire::stamp;
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::time::Duration;

use super::answer::{Problem, json as answer_json};
use super::ask::{Ask, Fields};
use super::gifts::is_currency;
use super::{Control, Shared};
use crate::auth::permit::{self, Permit};
use crate::auth::{self, Identity};
use crate::link::RoomDetail;
use grandstand_core::names::RoomId;

/// Settings of features that are not built: refused, not ignored.
const NOT_BUILT: [&str; 3] = ["home_region", "strict", "mode"];
/// What a room's moderator may change; everything else is an operator's.
const FOR_MODERATORS: [&str; 8] = [
    "state",
    "slow_mode_seconds",
    "duration_ms",
    "pinned",
    "unique_comment",
    "emote_only",
    "members_only",
    "justification",
];

/// `GET /v1/rooms`: the rooms that may be listed, by name.
pub async fn list(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let who = ask.identity(&control)?;
    let tallies = control.deps.tallies.all();
    let rooms = control.deps.shard.rooms().await?;
    let rows = rooms.iter().filter(|r| r.settings.listed);
    let rows: Vec<Json> = rows
        .filter_map(|r| {
            let permit = permit::may_view(who.as_deref(), ask.place, &r.room, &r.settings).ok()?;
            let viewers = tallies.get(&r.room).map_or(0, |t| t.people());
            Some(row(r, viewers, permit))
        })
        .collect();
    Ok(answer_json(StatusCode::OK, &json!({ "rooms": rows })))
}

/// A line of the list.
fn row(room: &RoomDetail, viewers: u64, _permit: Permit) -> Json {
    json!({
        "room_id": room.room.as_str(),
        "title": &*room.settings.title,
        "state": room.settings.state.name(),
        "viewers": viewers,
        "last_event_id": room.last_event.value(),
    })
}

/// `GET /admin/rooms/{room}`.
pub async fn get(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let room = ask.room()?;
    let who = ask.identity(&control)?;
    may_read(who.as_deref(), &room)?;
    let detail = control.deps.shard.room(room.clone()).await?;
    let tally = control.deps.tallies.find(&room).unwrap_or_default();
    let served = tally.served();
    let mut body = settings_json(&room, &detail.settings);
    body["counters"] = json!({
        "accepted": detail.accepted,
        "delivered": served.delivered,
        "skipped": served.skipped,
        "sampled": served.sampled,
        "likes": detail.likes.iter().map(|(kind, total)| (kind.as_str(), *total)).collect::<BTreeMap<_, _>>(),
        "viewers": tally.people(),
        "connections": tally.viewers(),
    });
    body["last_event_id"] = detail.last_event.value().into();
    Ok(with_version(answer_json(StatusCode::OK, &body), detail.settings.version))
}

/// `PUT /admin/rooms/{room}`: changes the given settings; makes the room when there is none.
pub async fn put(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let room = ask.room()?;
    let who = ask.identity(&control)?;
    auth::may_moderate(who.as_deref(), &room)?;
    let mut fields = ask.object()?;
    let names: Vec<String> = fields.object.iter().map(|(name, _)| name.to_owned()).collect();
    if let Some(name) = names.iter().find(|n| NOT_BUILT.contains(&n.as_str())) {
        return Err(Problem::new(ErrorCode::NotBuilt, format!("{name} is not built in this version"))
            .with("key", name.as_str()));
    }
    let operator = auth::may_configure(who.as_deref()).is_ok();
    if let Some(name) = names.iter().find(|n| !operator && !FOR_MODERATORS.contains(&n.as_str())) {
        return Err(Problem::new(ErrorCode::NotAllowed, format!("{name} is for operators")));
    }
    if !operator {
        // A moderator's rooms are a pattern: making one of them is the operators' matter.
        control.settings(&room).await?;
    }
    if fields.object.given("room_id").is_some_and(|id| id.as_str() != Some(room.as_str())) {
        fields.fault("room_id", "is the room of the path");
    }
    let mut change = read_change(&mut fields, &names)?;
    let config = &control.deps.config;
    let knows = config.region_header.is_some() || config.region_database.is_some();
    if !knows && change.blackout_regions.as_ref().is_some_and(|regions| !regions.is_empty()) {
        let rule = "nobody knows where viewers are: set region.header or region.database, else the room would be shown to none";
        return Err(Problem::new(ErrorCode::BadField, rule));
    }
    let justification = justification(&mut fields)?;
    let if_version = if_match(&ask)?.or(fields.object.given("version").and_then(Value::as_u64));
    if let Some(until) = fields.object.given("until_ts").and_then(Value::as_str).and_then(stamp::parse) {
        // An end is set by `duration_ms`; one that was read may come back as it is, and then slow mode is not touched.
        let now = control.settings(&room).await?;
        if now.slow_mode_until != Some(until) || change.slow_mode_seconds != Some(now.slow_mode_seconds) {
            return Err(Problem::new(ErrorCode::BadField, "until_ts is given by the server: use duration_ms"));
        }
        change.slow_mode_seconds = None;
    }
    if let Some(until) = fields.object.given("settles_until_ts").and_then(Value::as_str).and_then(stamp::parse)
        && control.settings(&room).await?.settles_until != Some(until)
    {
        let rule = "settles_until_ts is given by the server: use settle_seconds";
        return Err(Problem::new(ErrorCode::BadField, rule));
    }
    let actor = who.expect("nobody else may moderate");
    let command = Command::PutRoom { room: room.clone(), change: change.into(), if_version };
    match control.operate(&actor, "put room", &room, &justification, command).await? {
        Answer::Room { version, settings } => {
            control.known.forget(&room);
            Ok(with_version(answer_json(StatusCode::OK, &settings_json(&room, &settings)), version))
        }
        other => unreachable!("a change of a room is never answered by {other:?}"),
    }
}

/// Operators, backends and the room's moderators may read its settings.
fn may_read(who: Option<&Identity>, room: &RoomId) -> Result<(), Problem> {
    match auth::may_moderate(who, room) {
        Err(auth::Denied::NotAllowed) => Ok(auth::may_act_as_backend(who, room)?),
        other => Ok(other?),
    }
}

fn read_change(fields: &mut Fields<'_>, names: &[String]) -> Result<RoomChange, Problem> {
    const KNOWN: [&str; 44] = [
        "title",
        "state",
        "matches",
        "anonymous_view",
        "anonymous_publish",
        "listed",
        "rate",
        "user_rate",
        "user_burst",
        "like_rate",
        "merge_ms",
        "comment_age_ms",
        "resume_window",
        "retention",
        "slow_mode_seconds",
        "duration_ms",
        "moderation_policy",
        "pinned",
        "sampling",
        "sampling_rate",
        "sampling_viewers",
        "cap",
        "preset",
        "weights",
        "banner_items",
        "banner_amounts",
        "banner_rate",
        "banner_seconds",
        "combo_seconds",
        "hold_flagged",
        "hold_seconds",
        "unique_comment",
        "emote_only",
        "members_only",
        "blackout_regions",
        "settle_seconds",
        "justification",
        // As `GET` gives them, so that its answer may be sent back.
        "room_id",
        "version",
        "until_ts",
        "counters",
        "last_event_id",
        "pin_ends",
        "settles_until_ts",
    ];
    if let Some(name) = names.iter().find(|n| !KNOWN.contains(&n.as_str())) {
        return Err(
            Problem::new(ErrorCode::UnknownKey, format!("there is no setting {name}")).with("key", name.as_str())
        );
    }
    fields.get("version", "must be the version that was read", Value::as_u64);
    for end in ["until_ts", "settles_until_ts"] {
        fields.get(end, "must be the time that was read", |v| v.as_str().and_then(stamp::parse));
    }
    let text = |v: &Value<'_>| v.as_str().map(std::sync::Arc::from);
    let most = u32::MAX;
    let change =
        RoomChange {
            title: fields.get("title", "must be text", text),
            state: fields
                .get("state", "must be scheduled, live, settling or closed", |v| v.as_str().and_then(RoomState::parse)),
            matches: fields.get("matches", "must be a list of match ids", |v| match v {
                Value::Array(items) => items.iter().map(|m| m.as_str().and_then(Key::parse)).collect(),
                _ => None,
            }),
            anonymous_view: fields.flag("anonymous_view"),
            anonymous_publish: fields.flag("anonymous_publish"),
            listed: fields.flag("listed"),
            rate: fields.number("rate", most),
            user_rate: fields.number("user_rate", most),
            user_burst: fields.number("user_burst", most),
            like_rate: fields.number("like_rate", most),
            merge_ms: number_or_null(fields, "merge_ms"),
            comment_age_ms: number_or_null(fields, "comment_age_ms"),
            resume_window_seconds: fields.number("resume_window", most),
            retention_days: fields.number("retention", most),
            slow_mode_seconds: fields.number("slow_mode_seconds", most),
            slow_mode_for: fields.number("duration_ms", most).map(|ms| Duration::from_millis(ms.into())),
            moderation_policy: fields.get("moderation_policy", POLICY, |v| v.as_str().and_then(Policy::parse)),
            pinned: fields.get("pinned", "must be a list of event ids", |v| match v {
                Value::Array(items) => items.iter().map(|e| e.as_u64().and_then(EventId::new)).collect(),
                _ => None,
            }),
            sampling: fields.get("sampling", "must be auto, none or always", |v| v.as_str().and_then(Sampling::parse)),
            sampling_rate: fields.number("sampling_rate", most),
            sampling_viewers: fields.number("sampling_viewers", most),
            cap: number_or_null(fields, "cap"),
            preset: fields.get("preset", "must be chat or danmaku", |v| v.as_str().and_then(Preset::parse)),
            weights: fields.get("weights", "must be {base, per_reply, per_reaction, badges}, whole numbers", |v| {
                weights(v).map(Box::new)
            }),
            banner_items: fields.get("banner_items", "must be a list of items, each a display name", |v| match v {
                Value::Array(items) => items.iter().map(|i| i.as_str().and_then(auth::display_name)).collect(),
                _ => None,
            }),
            banner_amounts: fields.get("banner_amounts", "must be an object: by currency, from how many micros", |v| {
                let Value::Object(amounts) = v else { return None };
                let one = |(currency, from): (&str, &Value<'_>)| {
                    let from = from.as_u64().filter(|n| *n <= GIFT_MICROS_MAX)?;
                    is_currency(currency).then(|| (currency.into(), from))
                };
                amounts.iter().map(one).collect()
            }),
            banner_rate: fields.number("banner_rate", most),
            banner_seconds: fields.number("banner_seconds", most),
            combo_seconds: fields.number("combo_seconds", most),
            hold_flagged: fields.flag("hold_flagged"),
            hold_seconds: fields.number("hold_seconds", most),
            blackout_regions: fields.get("blackout_regions", &format!("must be a list, each {}", Region::RULE), |v| {
                match v {
                    Value::Array(items) => items.iter().map(|i| i.as_str().and_then(Region::parse)).collect(),
                    _ => None,
                }
            }),
            settle_seconds: fields.number("settle_seconds", most),
            asks: asks(fields).map(Box::new),
        };
    fields.check(ErrorCode::BadField)?;
    Ok(change)
}

/// All four members; what is left out is as in any room. Errors: `None` for a member that is unknown or no number.
fn weights(value: &Value<'_>) -> Option<Weights> {
    let number = |v: &Value<'_>| v.as_u64().and_then(|n| u32::try_from(n).ok());
    let Value::Object(members) = value else { return None };
    let mut weights = Weights::default();
    for (name, value) in members.iter() {
        match name {
            "base" => weights.base = number(value)?,
            "per_reply" => weights.per_reply = number(value)?,
            "per_reaction" => weights.per_reaction = number(value)?,
            "badges" => {
                let Value::Object(badges) = value else { return None };
                let all: Option<Vec<_>> = badges.iter().map(|(badge, v)| Some((badge.into(), number(v)?))).collect();
                weights.badges = all?;
            }
            _ => return None,
        }
    }
    Some(weights)
}

/// `null` gives the setting back to its default, so here it is not the same as absent.
fn number_or_null(fields: &mut Fields<'_>, member: &'static str) -> Option<Option<u32>> {
    let null = fields.object.iter().any(|(name, value)| name == member && value.is_null());
    if null { Some(None) } else { fields.number(member, u32::MAX).map(Some) }
}

fn asks(fields: &mut Fields<'_>) -> Option<Asks> {
    let asks = Asks {
        unique_comment: fields.flag("unique_comment"),
        emote_only: fields.flag("emote_only"),
        members_only: badge_or_null(fields),
        ..Asks::default()
    };
    (asks != Asks::default()).then_some(asks)
}

fn badge_or_null(fields: &mut Fields<'_>) -> Option<Option<std::sync::Arc<str>>> {
    let member = "members_only";
    if fields.object.iter().any(|(name, value)| name == member && value.is_null()) {
        return Some(None);
    }
    fields.get(member, "must be a badge or null", |v| v.as_str().map(std::sync::Arc::from)).map(Some)
}

const POLICY: &str = "must be off, post-moderate-fast, pre-moderate or pre-moderate-strict";

/// Every operator's write says why. Errors: missing or empty.
pub fn justification(fields: &mut Fields<'_>) -> Result<String, Problem> {
    let rule = "must say why, in 1 to 200 bytes";
    let text = fields.need("justification", rule, |v| {
        v.as_str()
            .map(str::trim)
            .filter(|t| (1..=200).contains(&t.len()) && !t.chars().any(char::is_control))
            .map(str::to_owned)
    });
    fields.check(ErrorCode::BadField)?;
    Ok(text.expect("checked"))
}

/// The version of `If-Match: "<version>"`.
///
/// `If-None-Match: *` means that the room must not be there, which is its version 0.
fn if_match(ask: &Ask) -> Result<Option<u64>, Problem> {
    if ask.headers.get(header::IF_NONE_MATCH).is_some_and(|v| v == "*") {
        return Ok(Some(0));
    }
    let mut given = ask.headers.get_all(header::IF_MATCH).iter();
    let Some(value) = given.next() else { return Ok(None) };
    let text = value.to_str().unwrap_or_default();
    let version = text.strip_prefix('"').and_then(|t| t.strip_suffix('"')).and_then(|t| t.parse().ok());
    match (version, given.next()) {
        (Some(version), None) => Ok(Some(version)),
        _ => Err(Problem::new(ErrorCode::BadRequest, "If-Match must be one quoted version")),
    }
}

fn with_version(mut response: Response<Body>, version: u64) -> Response<Body> {
    let etag = HeaderValue::from_str(&format!("\"{version}\"")).expect("digits are a header value");
    response.headers_mut().insert(header::ETAG, etag);
    response
}

/// Every setting, by the names that a `PUT` takes.
fn settings_json(room: &RoomId, settings: &Room) -> Json {
    let mut out = Vec::new();
    export::write_settings(Some(room), settings, &mut out);
    serde_json::from_slice(&out).expect("settings are written as JSON")
}

impl Control {
    /// One operator's write. Who did it and why is kept in the room's log beside what it changed, and said on the log of the
    /// process.
    pub async fn operate(
        &self,
        actor: &Identity,
        what: &str,
        room: &RoomId,
        justification: &str,
        command: Command,
    ) -> Result<Answer, Problem> {
        let audit = Audit { what: what.into(), justification: justification.into() };
        let command = Command::Audited { by: actor.user.clone(), audit, command: command.into() };
        match self.deps.shard.ask(command).await? {
            Answer::Reject(reject) => Err(reject.into()),
            answer => {
                tracing::info!(target: "audit", actor = actor.user.as_str(), what, room = room.as_str(), justification);
                Ok(answer)
            }
        }
    }
}
