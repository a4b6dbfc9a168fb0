//! `POST /v1/rooms/{room}/likes`: likes of those who stream one way. They wait for the same tick as those of a WebSocket.

use axum::body::Body;
use axum::extract::State;
use grandstand_core::likes::PER_OP_MAX;
use grandstand_core::names::LikeKind;
use grandstand_wire::codes::ErrorCode;
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::json;

use super::Shared;
use super::answer::{Problem, json as answer_json};
use super::ask::Ask;
use crate::auth;
use crate::clock;
use crate::link::likes::Like;

pub async fn post(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let room = ask.room()?;
    let who = ask.identity(&control)?;
    let facts = control.facts(&room).await?;
    auth::may_publish(who.as_deref(), &room, &facts.settings)?;
    let identity = who.expect("nobody else may like");
    let mut fields = ask.object()?;
    let kind = fields.get("kind", LikeKind::RULE, |v| v.as_str().and_then(LikeKind::parse));
    let n = fields.need_within("n", 1..=PER_OP_MAX);
    fields.check(ErrorCode::BadRequest)?;
    let (kind, n) = (kind.unwrap_or_else(LikeKind::plain), n.expect("checked"));
    let like = Like { room: &room, kind: &kind, user: &identity.user, n };
    control.deps.shard.likes().like(&like, &facts.settings, &facts.totals, clock::mono())?;
    let body = json!({ "room_id": room.as_str(), "kind": kind.as_str(), "n": n });
    let mut response = answer_json(StatusCode::ACCEPTED, &body);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}
