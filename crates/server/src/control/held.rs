//! A room's queue for review: what was flagged where the room holds, and a moderator's word on it.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use grandstand_core::ids::EventId;
use grandstand_core::names::ClientMsgId;
use grandstand_core::owner::answer::Answer;
use grandstand_core::owner::command::Command;
use grandstand_core::record::{Body as RecordBody, Record};
use grandstand_wire::codes::ErrorCode;
use grandstand_wire::stamp;
use http::{Response, StatusCode};
use serde_json::{Value as Json, json};

use super::Shared;
use super::answer::{Problem, json as answer_json};
use super::ask::Ask;
use super::moderation::begin;
use super::rooms::justification;
use crate::auth;
use crate::auth::permit::{self, Permit};

/// `GET …/held`: what waits, oldest first.
pub async fn list(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let room = ask.room()?;
    let who = ask.identity(&control)?;
    auth::may_moderate(who.as_deref(), &room)?;
    let permit = permit::may_review(who.as_deref(), Some(&room))?;
    let held = control.deps.shard.held(room.clone()).await?;
    let held = queue(&held, permit);
    Ok(answer_json(StatusCode::OK, &json!({"room_id": room.as_str(), "held": held})))
}

fn queue(held: &[Arc<Record>], _permit: Permit) -> Vec<Json> {
    held.iter().filter_map(|record| line(record)).collect()
}

/// `POST …/held/{id} {decision}`. Answers with the event it is shown as, or the record that ends its wait.
pub async fn decide(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let held = ask.param("held").parse().ok().and_then(EventId::new);
    let (room, actor, mut fields) = begin(&control, &ask)?;
    let held = held.ok_or_else(|| Problem::new(ErrorCode::BadRequest, "a held comment is named by its held_id"))?;
    let decision = fields.need("decision", "must be approve or deny", |v| match v.as_str() {
        Some("approve") => Some(true),
        Some("deny") => Some(false),
        _ => None,
    });
    let why = justification(&mut fields)?;
    let approve = decision.expect("checked");
    let what = if approve { "held: approve" } else { "held: deny" };
    let command = Command::Decide { room: room.clone(), held, approve };
    match control.operate(&actor, what, &room, &why, command).await? {
        Answer::Done { event_id: Some(event_id) } => {
            let shown = approve.then(|| event_id.value());
            Ok(answer_json(
                StatusCode::OK,
                &json!({"room_id": room.as_str(), "held_id": held.value(), "event_id": shown}),
            ))
        }
        Answer::Done { event_id: None } => {
            Err(Problem::new(ErrorCode::NotFound, "no such comment is held: it was decided about, or its time is over"))
        }
        other => unreachable!("a decision is never answered by {other:?}"),
    }
}

fn line(record: &Record) -> Option<Json> {
    let RecordBody::Held(held) = &record.body else { return None };
    let (comment, user) = (&held.comment, record.user.as_ref()?);
    let badges: Vec<&str> = comment.badges.iter().map(|badge| &**badge).collect();
    Some(json!({
        "held_id": record.event_id().value(),
        "user": {"id": user.as_str(), "display": &*comment.display, "badges": badges},
        "body": &*comment.text,
        "reply_to": comment.reply_to.map(EventId::value),
        "client_msg_id": ClientMsgId::as_str(&held.client_msg_id),
        "rule": comment.rule.as_deref(),
        "ts": stamp::text(record.ts),
        "until_ts": stamp::text(held.until),
    }))
}
