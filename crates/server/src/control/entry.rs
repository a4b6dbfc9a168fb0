//! How browsers come in: guests and tickets. Also the routes of features that are not built, which say so.

use axum::body::Body;
use axum::extract::State;
use grandstand_core::names::RoomId;
use grandstand_wire::codes::ErrorCode;
use http::{Response, StatusCode};
use serde_json::json;

use super::Shared;
use super::answer::{Problem, json as answer_json};
use super::ask::Ask;
use crate::auth::token::Claims;
use crate::auth::{self, door, permit, ticket};
use crate::clock;
use crate::link::Delay;

/// `POST /v1/guest {name, room_id?}`: a 12 h token for a named guest.
pub async fn guest(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let config = &control.deps.config;
    let Some(signing) = control.deps.signing.as_ref().filter(|_| config.guests) else {
        return Err(Problem::new(ErrorCode::NotAllowed, "this server takes no guests"));
    };
    let mut fields = ask.object()?;
    let room = fields.get("room_id", RoomId::RULE, |v| v.as_str().and_then(RoomId::parse));
    let name_rule = "must be 1 to 32 characters on one line, at most 64 bytes";
    let name = fields.need("name", name_rule, |v| v.as_str().and_then(auth::display_name));
    fields.check(ErrorCode::BadField)?;
    if let Some(room) = room
        && !control.settings(&room).await?.anonymous_publish
    {
        return Err(Problem::new(ErrorCode::NotAllowed, "this room takes no guests"));
    }
    if !door::is_exempt(ask.peer.ip(), &config.exempt)
        && let Err(retry_after) = control.guest_rates.take(door::address_key(ask.peer.ip()), clock::mono())
    {
        let delay = Delay { retry_after, spread: retry_after };
        return Err(Problem::new(ErrorCode::RateLimited, "too many guests from this address")
            .with("reason", "ip_rate")
            .after(delay));
    }
    let claims = Claims::guest(&name.expect("checked"), clock::wall()).expect("the name was checked");
    let body = json!({
        "token": signing.mint(&claims),
        "user": {"id": claims.sub, "display": claims.name},
        "expires_in_ms": auth::GUEST_TTL.as_millis() as u64,
    });
    Ok(answer_json(StatusCode::OK, &body))
}

/// `POST /v1/ticket {room_id}`: what a browser may put into a stream's URL.
pub async fn ticket(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let identity = ask.identity(&control)?.ok_or(auth::Denied::NeedsToken)?;
    let mut fields = ask.object()?;
    let room = fields.need("room_id", RoomId::RULE, |v| v.as_str().and_then(RoomId::parse));
    fields.check(ErrorCode::BadField)?;
    let room = room.expect("checked");
    // Nobody is sold what would not be let in.
    let _permit = permit::may_view(Some(&identity), ask.place, &room, &*control.settings(&room).await?)?;
    let body = json!({
        "ticket": control.deps.tickets.sell(&identity, &room, clock::wall()),
        "room_id": room.as_str(),
        "expires_in_ms": ticket::UNUSED_FOR.as_millis() as u64,
    });
    Ok(answer_json(StatusCode::OK, &body))
}
