//! `GET /admin/rooms`: every room an operator or a moderator may act in, with what it has come to, in one answer.
//!
//! It is what an overview asks for again and again, so an answer is bounded: [`ROOMS_MAX`] rooms, by name and then the next, or
//! the most watched ones.

use axum::body::Body;
use axum::extract::State;
use grandstand_core::names::RoomId;
use grandstand_wire::codes::ErrorCode;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::Shared;
use super::answer::{Problem, json as answer_json};
use super::ask::Ask;
use crate::auth::{self, Role};
use crate::link::RoomDetail;

/// Rooms of one answer: 500 rows are 150 KB.
const ROOMS_MAX: usize = 500;
/// Rooms of one answer of which no number was said.
const ROOMS: usize = 100;
/// Longest text a room may be looked for by; no title or id is longer.
const TEXT_BYTES_MAX: usize = 256;

/// `GET /admin/rooms?q=&order=&after=&limit=`.
pub async fn list(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let who = ask.identity(&control)?;
    let somebody = who.as_ref().ok_or(auth::Denied::NeedsToken)?;
    let is_moderator = somebody.roles.has(Role::RoomMod) && somebody.rooms().is_some();
    if !is_moderator {
        auth::may_configure(who.as_deref())?;
    }
    let limit = match ask.query("limit")? {
        None => ROOMS,
        Some(text) => text.parse().ok().filter(|n| (1..=ROOMS_MAX).contains(n)).ok_or_else(|| {
            Problem::new(ErrorCode::BadRequest, format!("limit is a whole number from 1 to {ROOMS_MAX}"))
        })?,
    };
    let after = match ask.query("after")? {
        None => None,
        Some(text) => Some(RoomId::parse(text).ok_or_else(|| Problem::new(ErrorCode::BadRoom, RoomId::RULE))?),
    };
    let by_viewers = match ask.query("order")? {
        None | Some("name") => false,
        Some("viewers") if after.is_none() => true,
        Some(_) => return Err(Problem::new(ErrorCode::BadRequest, "order is name, or without after viewers")),
    };
    let text = ask.query("q")?.unwrap_or_default().to_lowercase();
    if text.len() > TEXT_BYTES_MAX {
        return Err(Problem::new(ErrorCode::BadRequest, format!("q is at most {TEXT_BYTES_MAX} bytes")));
    }
    let has = |r: &RoomDetail| r.room.as_str().contains(&text) || r.settings.title.to_lowercase().contains(&text);
    let tallies = control.deps.tallies.all();
    let people = |room: &RoomId| tallies.get(room).map_or(0, |tally| tally.people());
    let mut found = control.deps.shard.rooms().await?;
    found.retain(|r| auth::may_moderate(who.as_deref(), &r.room).is_ok() && has(r));
    let n_found = found.len();
    if by_viewers {
        found.sort_by_cached_key(|r| (std::cmp::Reverse(people(&r.room)), r.room.clone()));
    }
    let mut following = found.iter().filter(|r| after.as_ref().is_none_or(|after| r.room > *after));
    let rows: Vec<Value> = following
        .by_ref()
        .take(limit)
        .map(|r| {
            let tally = tallies.get(&r.room);
            let served = tally.map(|tally| tally.served()).unwrap_or_default();
            json!({
                "room_id": r.room.as_str(),
                "title": &*r.settings.title,
                "state": r.settings.state.name(),
                "slow_mode_seconds": r.settings.slow_mode_seconds,
                "listed": r.settings.listed,
                "last_event_id": r.last_event.value(),
                "counters": {
                    "accepted": r.accepted,
                    "delivered": served.delivered,
                    "skipped": served.skipped,
                    "sampled": served.sampled,
                    "viewers": people(&r.room),
                    "connections": tally.map_or(0, |tally| tally.viewers()),
                },
            })
        })
        .collect();
    let more = following.next().is_some();
    Ok(answer_json(StatusCode::OK, &json!({"rooms": rows, "found": n_found, "more": more})))
}
