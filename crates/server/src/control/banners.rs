//! An operator's notices to the whole site.
//!
//! Who wrote one and why is a line of `audit.jsonl`, on the disk before the banner is asked for: it is of no room, so no room's
//! log can hold it.

use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use grandstand_core::banners::{SECONDS_MAX, TEXT_BYTES_MAX};
use grandstand_core::ids::EventId;
use grandstand_core::names::RoomId;
use grandstand_core::owner::answer::Answer;
use grandstand_core::owner::command::{BannerIn, Command};
use grandstand_wire::codes::ErrorCode;
use grandstand_wire::stamp;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::Shared;
use super::answer::{Problem, json as answer_json};
use super::ask::Ask;
use super::rooms::justification;
use crate::auth;

/// How long a banner stands of which nothing is said.
const SECONDS: u32 = 60;

/// `GET /admin/banners`: those that stand, as viewers were told them.
pub async fn list(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    auth::may_configure(ask.identity(&control)?.as_deref())?;
    let list = control.deps.shard.site().await?;
    let banners: Vec<Value> = list.banners.iter().filter_map(|b| serde_json::from_slice(&b.json).ok()).collect();
    Ok(answer_json(StatusCode::OK, &json!({ "banners": banners })))
}

/// `POST /admin/banners {body, seconds?, source_room_id?, justification}`.
pub async fn post(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let (who, mut fields) = ask.configures(&control)?;
    let by = who.user.clone();
    let rule = format!("must be 1 to {TEXT_BYTES_MAX} bytes on one line");
    let text = fields.need("body", &rule, |v| v.as_str().and_then(line));
    let seconds = fields.within("seconds", 1..=SECONDS_MAX);
    let room = fields.get("source_room_id", RoomId::RULE, |v| v.as_str().and_then(RoomId::parse));
    let why = justification(&mut fields)?;
    let (text, seconds) = (text.expect("checked"), seconds.unwrap_or(SECONDS));
    let given = json!({"body": &*text, "seconds": seconds, "source_room_id": room.as_ref().map(RoomId::as_str)});
    control.record(by.clone(), "banner", "site", &why, given)?;
    let lasts = Duration::from_secs(u64::from(seconds));
    match control.deps.shard.ask(Command::Banner(BannerIn { by, text, room, lasts })).await? {
        Answer::Banner { banner_id, until } => {
            let body = json!({"banner_id": banner_id.value().to_string(), "until_ts": stamp::text(until)});
            Ok(answer_json(StatusCode::OK, &body))
        }
        Answer::Reject(reject) => Err(reject.into()),
        other => unreachable!("a banner is never answered by {other:?}"),
    }
}

/// `DELETE /admin/banners/{banner} {justification}`: takes it down before its time.
pub async fn delete(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let (who, mut fields) = ask.configures(&control)?;
    let by = who.user.clone();
    let id = ask.param("banner").parse().ok().and_then(EventId::new);
    let why = justification(&mut fields)?;
    let none = || Problem::new(ErrorCode::NotFound, "no such banner stands; GET /admin/banners names them");
    let id = id.ok_or_else(none)?;
    control.record(by.clone(), "banner end", "site", &why, json!({"banner_id": id.value().to_string()}))?;
    match control.deps.shard.ask(Command::BannerEnd { by, id }).await? {
        Answer::Done { event_id: Some(_) } => {
            Ok(answer_json(StatusCode::OK, &json!({"banner_id": id.value().to_string(), "ended": true})))
        }
        Answer::Done { event_id: None } => Err(none()),
        Answer::Reject(reject) => Err(reject.into()),
        other => unreachable!("a banner's end is never answered by {other:?}"),
    }
}

/// One line of text as it is shown; `None` when it is empty, too long or more than a line.
fn line(text: &str) -> Option<std::sync::Arc<str>> {
    let text = grandstand_core::text::check(text).ok()?;
    let text = text.trim();
    let fits = (1..=TEXT_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control);
    fits.then(|| text.into())
}
