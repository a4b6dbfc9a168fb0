//! `GET /v1/rooms/{room}/snapshot`: where a newcomer starts, and where a page of older comments comes from.
//!
//! A snapshot depends on the room alone; nothing of the asking viewer can get into it, because nothing of the viewer is
//! passed. One is built at most ten times a second a room and shared; a crowd that asks for the same room waits for one
//! build. `min=` is kept: a shared one that is older is built anew.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::digest;
use axum::body::Body;
use axum::extract::State;
use bytes::Bytes;
use grandstand_core::ids::Position;
use grandstand_core::names::RoomId;
use grandstand_core::record::{Body as RecordBody, Policy, Room};
use grandstand_core::sampler::keep::WHOLE_MILLIONTHS;
use grandstand_core::time::Mono;
use grandstand_wire::codes::ErrorCode;
use grandstand_wire::event::{Counters, write_banners, write_event};
use grandstand_wire::json::{write_str, write_u64};
use grandstand_wire::limits::PAGE_COMMENTS_MAX;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};

use super::answer::{Problem, bytes_answer};
use super::ask::Ask;
use super::signature::hex;
use super::{Control, Shared};
use crate::auth::permit::{self, Permit};
use crate::clock;
use crate::link::SnapshotView;

/// A shared snapshot is this old at most. The contract allows 1 s; a tenth still makes a crowd one reader.
const SHARED_FOR: Duration = Duration::from_millis(100);
/// One of a log that stands still: as long as the contract allows.
const EXACT_FOR: Duration = Duration::from_secs(1);
/// Rooms remembered; past it the old ones are forgotten.
const ROOMS_MAX: usize = 4096;

/// The newest snapshot of each room that was asked for.
#[derive(Default)]
pub struct Cache(Mutex<HashMap<RoomId, Arc<Place>>>);

impl Cache {
    /// Nothing that was built is kept.
    pub fn forget(&self) {
        self.0.lock().expect("no holder of this lock can panic").clear();
    }
}

/// Whoever holds it builds; the others wait for what was built.
type Place = tokio::sync::Mutex<Option<Arc<Built>>>;

/// One snapshot, encoded.
struct Built {
    at: Mono,
    as_of: Position,
    /// Of the whole log when it was built: while it stands still, all of the snapshot but its viewers is exact.
    head: Position,
    settings: Arc<Room>,
    /// How often rooms had changed when it was built: a shared one never outlives a change, which may be a blackout.
    rules: u64,
    etag: HeaderValue,
    body: Bytes,
}

pub async fn get(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let room = ask.room()?;
    let who = ask.identity(&control)?;
    let min = ask.cursor("min")?.unwrap_or(Position::START);
    let before = ask.cursor("before")?;
    if before.is_none() && ask.query("limit")?.is_some() {
        return Err(Problem::new(ErrorCode::BadRequest, "limit goes with before"));
    }
    if let Some(before) = before {
        let permit = permit::may_view(who.as_deref(), ask.place, &room, &*control.settings(&room).await?)?;
        return control.older(&ask, room, before, permit).await;
    }
    let built = control.built(&room, min).await?;
    let permit = permit::may_view(who.as_deref(), ask.place, &room, &built.settings)?;
    Ok(built.given(&ask.headers, permit))
}

impl Built {
    fn given(&self, headers: &HeaderMap, _permit: Permit) -> Response<Body> {
        let built = self;
        let known = is_known(headers, &built.etag);
        let mut response = if known {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response
        } else {
            bytes_answer(StatusCode::OK, "application/json", built.body.clone())
        };
        let headers = response.headers_mut();
        headers.insert(header::ETAG, built.etag.clone());
        // Where a room may not be shown somewhere, no copy outlives the next question.
        let fresh = match built.settings.blackout_regions.is_empty() && !is_strict(&built.settings) {
            true => "private, max-age=1, stale-while-revalidate=4",
            false => "private, no-store",
        };
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(fresh));
        response
    }
}

/// Nothing of the room may be shown a moment longer than it says.
fn is_strict(room: &Room) -> bool {
    room.moderation_policy == Policy::PreModerateStrict
}

impl Control {
    async fn built(&self, room: &RoomId, min: Position) -> Result<Arc<Built>, Problem> {
        let place = {
            let mut rooms = self.snapshots.0.lock().expect("no holder of this lock can panic");
            if rooms.len() >= ROOMS_MAX && !rooms.contains_key(room) {
                rooms.clear();
            }
            rooms.entry(room.clone()).or_default().clone()
        };
        let mut place = place.lock().await;
        let shard = &self.deps.shard;
        if let Some(built) = &*place {
            // What the log does not say changes too: how many watch.
            let exact = built.head == shard.status().head() && clock::mono().since(built.at) <= EXACT_FOR;
            // What a strict room took back is gone at once.
            let recent = clock::mono().since(built.at) <= SHARED_FOR && !is_strict(&built.settings);
            if built.rules == shard.status().rules() && built.as_of >= min && (exact || recent) {
                return Ok(built.clone());
            }
        }
        let (head, rules) = (shard.status().head(), shard.status().rules());
        let view = shard.snapshot(room.clone(), min).await?;
        let viewers = self.deps.tallies.find(room).map_or(0, |tally| tally.people());
        let body = write(&view, viewers, self.deps.config.endpoints.json().as_deref());
        let hash = tag_of(&body);
        let hex = hex(&hash[..12]);
        let built = Arc::new(Built {
            at: clock::mono(),
            as_of: view.as_of,
            head,
            settings: view.settings.clone(),
            rules,
            etag: HeaderValue::from_str(&format!("\"{hex}\"")).expect("hex is a header value"),
            body: body.into(),
        });
        *place = Some(built.clone());
        Ok(built)
    }

    /// A page of comments before a position, newest last.
    async fn older(
        &self,
        ask: &Ask,
        room: RoomId,
        before: Position,
        _permit: Permit,
    ) -> Result<Response<Body>, Problem> {
        let limit = match ask.query("limit")? {
            None => 50,
            Some(text) => text
                .parse::<usize>()
                .ok()
                .filter(|n| (1..=PAGE_COMMENTS_MAX).contains(n))
                .ok_or_else(|| Problem::new(ErrorCode::BadRequest, "limit must be 1 to 200"))?,
        };
        let pieces = self.deps.shard.older(room.clone(), before, limit).await?;
        let mut out = Vec::with_capacity(256 * pieces.len() + 64);
        out.extend_from_slice(b"{\"room_id\":");
        write_str(room.as_str(), &mut out);
        out.extend_from_slice(b",\"recent_comments\":[");
        for (i, piece) in pieces.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            out.extend_from_slice(&piece.json);
            if piece.won.is_some() {
                mark_sampled(&mut out);
            }
        }
        out.extend_from_slice(b"],\"more\":");
        // A short page is the last one.
        out.extend_from_slice(if pieces.len() == limit { b"true}" } else { b"false}" });
        let mut response = bytes_answer(StatusCode::OK, "application/json", out);
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
        Ok(response)
    }
}

/// Says of the comment that was just written that viewers were given a part of what it is one of.
fn mark_sampled(out: &mut Vec<u8>) {
    let end = out.pop();
    assert_eq!(end, Some(b'}'), "a comment is an object");
    out.extend_from_slice(b",\"sampled\":true}");
}

fn is_known(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    let known = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|v| v.to_str().ok());
    let mut tags = known.flat_map(|v| v.split(',')).map(|t| t.trim().trim_start_matches("W/"));
    tags.any(|t| t == "*" || t.as_bytes() == etag.as_bytes())
}

/// Digest of all that a viewer would see differ: the body but for the moment its counters were read at, which is the last
/// thing in it.
fn tag_of(body: &[u8]) -> [u8; 32] {
    const MOMENT: &[u8] = b",\"as_of_ts\":";
    let end = body.windows(MOMENT.len()).rposition(|w| w == MOMENT).unwrap_or(body.len());
    digest::digest(&digest::SHA256, &body[..end]).as_ref().try_into().expect("SHA-256 gives 32 bytes")
}

/// The snapshot's JSON.
/// `endpoints`: base URLs of transports, made ready; left out where they have none.
fn write(view: &SnapshotView, viewers: u64, endpoints: Option<&str>) -> Vec<u8> {
    let mut out = Vec::with_capacity(512 + 256 * (view.recent.len() + view.scores.len()));
    out.extend_from_slice(b"{\"room_id\":");
    write_str(view.room.as_str(), &mut out);
    out.extend_from_slice(b",\"as_of_event_id\":");
    write_u64(view.as_of.value(), &mut out);
    out.extend_from_slice(b",\"as_of_pseq\":");
    write_u64(view.pseq.0, &mut out);
    let events = |records: &[Arc<grandstand_core::record::Record>], out: &mut Vec<u8>| {
        out.push(b'[');
        let mut first = true;
        for record in records {
            let start = out.len();
            if !first {
                out.push(b',');
            }
            match write_event(record, out) {
                Some(_) => first = false,
                None => out.truncate(start),
            }
            if matches!(&record.body, RecordBody::Comment(comment) if comment.won.is_some()) {
                mark_sampled(out);
            }
        }
        out.push(b']');
    };
    out.extend_from_slice(b",\"current_score\":");
    // As of the newest event that stands, of the last of the room's matches that has one.
    let current = view.current.iter().rev().find_map(|score| score.event_id);
    match view.scores.iter().find(|record| Some(record.event_id()) == current) {
        Some(newest) => {
            if write_event(newest, &mut out).is_none() {
                out.extend_from_slice(b"null");
            }
        }
        None => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(b",\"scores\":");
    events(&view.scores, &mut out);
    out.extend_from_slice(b",\"recent_comments\":");
    events(&view.recent, &mut out);
    for (name, ready) in [("pinned", &view.info.pinned_json), ("config", &view.info.config_json)] {
        out.extend_from_slice(format!(",\"{name}\":{ready}").as_bytes());
    }
    out.extend_from_slice(b",\"banners\":");
    write_banners(view.banners.banners.iter().map(|banner| &*banner.json), &mut out);
    if let Some(endpoints) = endpoints {
        out.extend_from_slice(format!(",\"endpoints\":{endpoints}").as_bytes());
    }
    // Last: the tag is made of all before its moment.
    out.extend_from_slice(b",\"counters\":");
    let (room, likes) = (&view.room, &view.info.likes);
    // Of a sampled room each viewer is given another part, which its gateway measures; a snapshot is the same for all.
    let keep_millionths = (!view.info.wide).then_some(WHOLE_MILLIONTHS);
    Counters { room, likes, viewers, keep_millionths, as_of: clock::wall() }.write_values(&mut out);
    out.push(b'}');
    out
}

#[cfg(test)]
mod tests {
    use super::tag_of;

    #[test]
    fn the_tag_moves_with_what_is_shown_and_not_with_the_clock() {
        let at = |likes: u64, moment: &str| {
            tag_of(
                format!(r#"{{"recent_comments":[],"counters":{{"likes":{likes},"as_of_ts":"{moment}"}}}}"#).as_bytes(),
            )
        };
        assert_eq!(at(1, "2026-05-17T20:14:33.122Z"), at(1, "2026-05-17T20:14:34.000Z"));
        assert_ne!(at(1, "2026-05-17T20:14:33.122Z"), at(2, "2026-05-17T20:14:33.122Z"));
    }
}
