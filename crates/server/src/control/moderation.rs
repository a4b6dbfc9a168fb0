//! What a room's moderators do: slow mode, state, pins, bans and retracts. Each is one command to the room's owner.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use grandstand_core::bans::{PURGE_MAX, SITE_PURGE_MAX};
use grandstand_core::ids::EventId;
use grandstand_core::names::{RoomId, UserId};
use grandstand_core::owner::answer::Answer;
use grandstand_core::owner::command::Command;
use grandstand_core::record::{Ban, RetractTarget, RoomState};
use grandstand_core::rooms::{Asks, RoomChange};
use grandstand_wire::stamp;
use http::{Response, StatusCode};
use serde_json::json;

use super::answer::{Problem, json as answer_json};
use super::ask::{Ask, Fields};
use super::rooms::justification;
use super::{Control, Shared};
use crate::auth::{self, Identity};
use crate::clock;

/// `POST …/slow-mode {seconds, duration_ms?}`; 0 ends it.
pub async fn slow_mode(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let (room, actor, mut fields) = begin(&control, &ask)?;
    let seconds = fields.number("seconds", u32::MAX);
    if fields.object.given("seconds").is_none() {
        fields.fault("seconds", "is missing");
    }
    let lasts = fields.number("duration_ms", u32::MAX).map(|ms| Duration::from_millis(ms.into()));
    let why = justification(&mut fields)?;
    let change = RoomChange { slow_mode_seconds: seconds, slow_mode_for: lasts, ..RoomChange::default() };
    change_room(&control, room, &actor, "slow mode", &why, change).await
}

/// `POST …/state {state}`.
pub async fn state(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let (room, actor, mut fields) = begin(&control, &ask)?;
    let rule = "must be scheduled, live, settling or closed";
    let state = fields.need("state", rule, |v| v.as_str().and_then(RoomState::parse));
    let why = justification(&mut fields)?;
    let change = RoomChange { state, ..RoomChange::default() };
    change_room(&control, room, &actor, "state", &why, change).await
}

/// `POST …/retract {event_id | user_id | all, reason?}`.
pub async fn retract(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let (room, actor, mut fields) = begin(&control, &ask)?;
    let event = fields.get("event_id", "must be an event id", |v| v.as_u64().and_then(EventId::new));
    let user = fields.get("user_id", UserId::RULE, |v| v.as_str().and_then(UserId::parse));
    let all = fields.flag("all");
    let target = match (event, user, all) {
        (Some(event), None, None) => Some(RetractTarget::Event(event)),
        (None, Some(user), None) => Some(RetractTarget::User(user)),
        (None, None, Some(true)) => Some(RetractTarget::All),
        _ => None,
    };
    if target.is_none() {
        fields.fault("event_id", "give exactly one of event_id, user_id, all");
    }
    let reason = reason(&mut fields);
    let why = justification(&mut fields)?;
    let target = target.expect("checked");
    let command = Command::Retract { room: room.clone(), target, reason };
    moderate(&control, room, &actor, "retract", &why, command).await
}

/// `POST …/pin {event_id, until?}`: one more pin, or another end for one that is there.
pub async fn pin(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let (room, actor, mut fields) = begin(&control, &ask)?;
    let event = fields.need("event_id", "must be an event id", |v| v.as_u64().and_then(EventId::new));
    let until = fields.get("until", "must be a time, as ts is", |v| v.as_str().and_then(stamp::parse));
    let why = justification(&mut fields)?;
    let change = Asks { pin: Some((event.expect("checked"), until)), ..Asks::default() }.into();
    change_room(&control, room, &actor, "pin", &why, change).await
}

/// `DELETE …/pin {event_id}`.
pub async fn unpin(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let (room, actor, mut fields) = begin(&control, &ask)?;
    let event = fields.need("event_id", "must be an event id", |v| v.as_u64().and_then(EventId::new));
    let why = justification(&mut fields)?;
    let change = Asks { unpin: event, ..Asks::default() }.into();
    change_room(&control, room, &actor, "unpin", &why, change).await
}

/// `GET …/bans`: those that hold now, by user.
pub async fn bans(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let room = ask.room()?;
    let who = ask.identity(&control)?;
    auth::may_moderate(who.as_deref(), &room)?;
    let (detail, now) = (control.deps.shard.room(room.clone()).await?, clock::wall());
    let holds = detail.bans.values().filter(|ban| ban.until.is_none_or(|until| now < until));
    let line = |ban: &Ban| {
        json!({"user_id": ban.user.as_str(), "until_ts": ban.until.map(stamp::text), "shadow": ban.shadow,
            "reason": &*ban.reason})
    };
    let bans: Vec<_> = holds.map(line).collect();
    Ok(answer_json(StatusCode::OK, &json!({"room_id": room.as_str(), "bans": bans})))
}

/// `POST …/bans {user_id, seconds?, shadow?, purge_last_minutes?, reason?}`.
pub async fn ban(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let (room, actor, mut fields) = begin(&control, &ask)?;
    let wanted = Wanted::read(&mut fields, PURGE_MAX);
    let why = justification(&mut fields)?;
    let (ban, purge) = wanted.ban();
    let what = if ban.shadow { "shadow ban" } else { "ban" };
    let command = Command::Ban { room: room.clone(), ban, purge };
    moderate(&control, room, &actor, what, &why, command).await
}

/// `POST /admin/bans`: as a room's, in every room. Who did it and why is a line of `audit.jsonl`: it is of no room.
pub async fn site_ban(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let (who, mut fields) = ask.configures(&control)?;
    let by = who.user.clone();
    let wanted = Wanted::read(&mut fields, SITE_PURGE_MAX);
    let why = justification(&mut fields)?;
    let (ban, purge) = wanted.ban();
    let given = json!({"user_id": ban.user.as_str(), "until_ts": ban.until.map(stamp::text), "shadow": ban.shadow,
        "purge_last_minutes": purge.map(|p| p.as_secs() / 60), "reason": &*ban.reason});
    control.record(by.clone(), "site ban", "site", &why, given)?;
    done(control.deps.shard.ask(Command::SiteBan { by, ban, purge }).await?)
}

/// `DELETE /admin/bans {user_id}`.
pub async fn site_unban(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let (who, mut fields) = ask.configures(&control)?;
    let by = who.user.clone();
    let user = fields.need("user_id", UserId::RULE, |v| v.as_str().and_then(UserId::parse));
    let why = justification(&mut fields)?;
    let user = user.expect("checked");
    control.record(by.clone(), "site unban", "site", &why, json!({"user_id": user.as_str()}))?;
    done(control.deps.shard.ask(Command::SiteUnban { by, user }).await?)
}

fn done(answer: Answer) -> Result<Response<Body>, Problem> {
    match answer {
        Answer::Done { event_id } => {
            Ok(answer_json(StatusCode::OK, &json!({"event_id": event_id.map(EventId::value)})))
        }
        Answer::Reject(reject) => Err(reject.into()),
        other => unreachable!("a ban is never answered by {other:?}"),
    }
}

/// A ban as it is asked for.
struct Wanted {
    user: Option<UserId>,
    seconds: Option<u64>,
    shadow: bool,
    purge: Option<Duration>,
    reason: Arc<str>,
}

impl Wanted {
    fn read(fields: &mut Fields<'_>, purge_max: Duration) -> Wanted {
        let user = fields.need("user_id", UserId::RULE, |v| v.as_str().and_then(UserId::parse));
        let rule = "must be 1 to 315360000 seconds";
        let seconds = fields.get("seconds", rule, |v| v.as_u64().filter(|n| (1..=315_360_000).contains(n)));
        let shadow = fields.flag("shadow").unwrap_or(false);
        let minutes_max = purge_max.as_secs() / 60;
        let rule = format!("must be 1 to {minutes_max} minutes");
        let within = |n: &u64| (1..=minutes_max).contains(n);
        let purge = fields.get("purge_last_minutes", &rule, |v| v.as_u64().filter(within));
        let purge = purge.map(|minutes| Duration::from_secs(minutes * 60));
        if shadow && purge.is_some() {
            fields.fault("purge_last_minutes", "a purge would tell its user of the shadow ban");
        }
        Wanted { user, seconds, shadow, purge, reason: reason(fields) }
    }

    /// Once the fields were checked.
    fn ban(self) -> (Ban, Option<Duration>) {
        let until = self.seconds.map(|s| clock::wall() + Duration::from_secs(s));
        let user = self.user.expect("checked");
        (Ban { user, until, reason: self.reason, shadow: self.shadow }, self.purge)
    }
}

/// `DELETE …/bans/{user}`.
pub async fn unban(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let user = ask.user()?;
    let (room, actor, mut fields) = begin(&control, &ask)?;
    let why = justification(&mut fields)?;
    let command = Command::Unban { room: room.clone(), user };
    moderate(&control, room, &actor, "unban", &why, command).await
}

pub fn begin<'a>(control: &Control, ask: &'a Ask) -> Result<(RoomId, Arc<Identity>, Fields<'a>), Problem> {
    let room = ask.room()?;
    let who = ask.identity(control)?;
    auth::may_moderate(who.as_deref(), &room)?;
    Ok((room, who.expect("nobody else may moderate"), ask.object()?))
}

fn reason(fields: &mut Fields<'_>) -> Arc<str> {
    let rule = "must be at most 200 bytes on one line";
    let text = fields.get("reason", rule, |v| {
        v.as_str().filter(|t| t.len() <= 200 && !t.chars().any(char::is_control)).map(Arc::from)
    });
    text.unwrap_or_else(|| Arc::from(""))
}

async fn change_room(
    control: &Control,
    room: RoomId,
    actor: &Identity,
    what: &str,
    why: &str,
    change: RoomChange,
) -> Result<Response<Body>, Problem> {
    control.settings(&room).await?;
    let command = Command::PutRoom { room: room.clone(), change: change.into(), if_version: None };
    match control.operate(actor, what, &room, why, command).await? {
        Answer::Room { version, .. } => {
            Ok(answer_json(StatusCode::OK, &json!({"room_id": room.as_str(), "version": version})))
        }
        other => unreachable!("a change of a room is never answered by {other:?}"),
    }
}

/// Answers with the event that it became; `null` when there was nothing to do.
async fn moderate(
    control: &Control,
    room: RoomId,
    actor: &Identity,
    what: &str,
    why: &str,
    command: Command,
) -> Result<Response<Body>, Problem> {
    match control.operate(actor, what, &room, why, command).await? {
        Answer::Done { event_id } => {
            let event_id = event_id.map(EventId::value);
            Ok(answer_json(StatusCode::OK, &json!({"room_id": room.as_str(), "event_id": event_id})))
        }
        other => unreachable!("a ban or a retract is never answered by {other:?}"),
    }
}
