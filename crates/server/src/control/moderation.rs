//! What a room's moderators do: slow mode, state, pins, bans and retracts. Each is one command to the room's owner.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use grandstand_core::ids::EventId;
use grandstand_core::names::{RoomId, UserId};
use grandstand_core::owner::answer::Answer;
use grandstand_core::owner::command::Command;
use grandstand_core::record::{RetractTarget, RoomState};
use grandstand_core::rooms::RoomChange;
use grandstand_wire::codes::ErrorCode;
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

/// `POST …/bans {user_id, seconds?, reason?}`.
pub async fn ban(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let (room, actor, mut fields) = begin(&control, &ask)?;
    for name in ["shadow", "purge_last_minutes"] {
        if fields.object.given(name).is_some() {
            let detail = format!("{name} is not built in this version");
            return Err(Problem::new(ErrorCode::NotBuilt, detail).with("key", name));
        }
    }
    let user = fields.need("user_id", UserId::RULE, |v| v.as_str().and_then(UserId::parse));
    let rule = "must be 1 to 315360000 seconds";
    let seconds = fields.get("seconds", rule, |v| v.as_u64().filter(|n| (1..=315_360_000).contains(n)));
    let reason = reason(&mut fields);
    let why = justification(&mut fields)?;
    let until = seconds.map(|s| clock::wall() + Duration::from_secs(s));
    let command = Command::Ban { room: room.clone(), user: user.expect("checked"), until, reason };
    moderate(&control, room, &actor, "ban", &why, command).await
}

/// `DELETE …/bans/{user}`.
pub async fn unban(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let user = ask.user()?;
    let (room, actor, mut fields) = begin(&control, &ask)?;
    let why = justification(&mut fields)?;
    let command = Command::Unban { room: room.clone(), user };
    moderate(&control, room, &actor, "unban", &why, command).await
}

fn begin<'a>(control: &Control, ask: &'a Ask) -> Result<(RoomId, Arc<Identity>, Fields<'a>), Problem> {
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
    let command = Command::PutRoom { room: room.clone(), change, if_version: None };
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
