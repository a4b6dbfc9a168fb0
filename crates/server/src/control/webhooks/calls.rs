//! What operators do with receivers: `/admin/webhooks`.
//!
//! Each write is a line of `audit.jsonl` before it takes effect, without the secret: that is told once, to whoever makes it.

use axum::body::Body;
use axum::extract::State;
use grandstand_core::ids::Position;
use grandstand_core::time::Wall;
use grandstand_core::webhooks::Tracks;
use grandstand_wire::codes::ErrorCode;
use grandstand_wire::json::Value as Given;
use grandstand_wire::stamp;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::files::{Disabled, OldSecret, Receiver};
use super::post::fresh_secret;
use super::{Book, EVENTS, Live, PATTERNS_MAX, RECEIVERS_MAX, Webhooks};
use crate::auth::fetch::Url;
use crate::auth::{self, RoomPattern, files::random};
use crate::clock;
use crate::control::Shared;
use crate::control::answer::{Problem, json as answer_json};
use crate::control::ask::{Ask, Fields};
use crate::control::rooms::justification;
use crate::link::OVERLOADED;

/// A URL at most: longer ones are nobody's.
const URL_BYTES_MAX: usize = 1_024;
/// A secret that was replaced signs beside the new one for so long.
const OLD_SECRET_MS: u64 = 24 * 3_600 * 1_000;

/// `GET /admin/webhooks`.
pub async fn list(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    auth::may_configure(ask.identity(&control)?.as_deref())?;
    let book = control.webhooks.book();
    let all: Vec<Value> = book.live.values().map(told).collect();
    Ok(answer_json(StatusCode::OK, &json!({"webhooks": all})))
}

/// `POST /admin/webhooks {url, rooms?, events?, justification}`: its id and, once, its secret.
pub async fn put_up(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let (who, mut fields) = ask.configures(&control)?;
    let webhooks = &control.webhooks;
    let url = url(&mut fields, webhooks);
    if url.is_none() && fields.object.given("url").is_none() {
        fields.fault("url", "is missing");
    }
    let (rooms, events) = (rooms(&mut fields), events(&mut fields));
    let why = justification(&mut fields)?;
    let receiver = Receiver {
        id: format!("wh-{}", random::<6>().iter().map(|b| format!("{b:02x}")).collect::<String>()),
        url: url.expect("checked"),
        secret: fresh_secret(),
        old_secret: None,
        rooms: rooms.flatten(),
        events: events.flatten(),
        created_ms: clock::wall().0,
        by: who.user.as_str().to_owned(),
        from: control.deps.shard.status().head().value(),
        disabled: None,
    };
    if webhooks.book().live.len() >= RECEIVERS_MAX {
        return Err(
            Problem::new(ErrorCode::Overloaded, format!("there are {RECEIVERS_MAX} receivers")).after(OVERLOADED)
        );
    }
    let given = json!({"url": receiver.url, "rooms": receiver.rooms, "events": receiver.events});
    control.record(who.user.clone(), "webhook", &receiver.id, &why, given)?;
    let mut book = webhooks.book();
    let (id, secret) = (receiver.id.clone(), receiver.secret.clone());
    let live = Live::of(receiver, None, webhooks.rules).expect("its members were checked");
    book.live.insert(id.clone(), live);
    if let Err(problem) = webhooks.written(&mut book) {
        book.live.remove(&id);
        return Err(problem);
    }
    let mut answer = told(&book.live[&id]);
    answer["secret"] = secret.into();
    Ok(answer_json(StatusCode::OK, &answer))
}

/// `PUT /admin/webhooks/{webhook} {url?, rooms?, events?, enabled?, new_secret?, justification}`: what is left out stays.
pub async fn change(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let (who, mut fields) = ask.configures(&control)?;
    let webhooks = &control.webhooks;
    let (url, rooms, events) = (url(&mut fields, webhooks), rooms(&mut fields), events(&mut fields));
    let (enabled, new_secret) = (fields.flag("enabled"), fields.flag("new_secret").unwrap_or(false));
    let why = justification(&mut fields)?;
    let id = ask.param("webhook");
    if !webhooks.book().live.contains_key(id) {
        return Err(none());
    }
    let given = json!({"url": url, "rooms": rooms, "events": events, "enabled": enabled, "new_secret": new_secret});
    control.record(who.user.clone(), "webhook change", id, &why, given)?;
    let mut book = webhooks.book();
    let before = book.live.get(id).ok_or_else(none)?.receiver.clone();
    let mut after = before.clone();
    let now = clock::wall();
    if let Some(url) = url {
        after.url = url;
    }
    if let Some(rooms) = rooms {
        after.rooms = rooms;
    }
    if let Some(events) = events {
        after.events = events;
    }
    match enabled {
        Some(true) => after.disabled = None,
        Some(false) if after.disabled.is_none() => {
            after.disabled = Some(Disabled { at_ms: now.0, why: "an operator disabled it".to_owned() });
        }
        _ => {}
    }
    if new_secret {
        let old = std::mem::replace(&mut after.secret, fresh_secret());
        after.old_secret = Some(OldSecret { secret: old, until_ms: now.0 + OLD_SECRET_MS });
    }
    set(&mut book, id, &after);
    if let Err(problem) = webhooks.written(&mut book) {
        set(&mut book, id, &before);
        return Err(problem);
    }
    if enabled == Some(true)
        && let Some(live) = book.live.get_mut(id)
    {
        live.tracks.revive();
    }
    let mut answer = told(&book.live[id]);
    if new_secret {
        answer["secret"] = after.secret.into();
    }
    Ok(answer_json(StatusCode::OK, &answer))
}

/// `DELETE /admin/webhooks/{webhook} {justification}`.
pub async fn delete(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let (who, mut fields) = ask.configures(&control)?;
    let why = justification(&mut fields)?;
    let id = ask.param("webhook");
    if !control.webhooks.book().live.contains_key(id) {
        return Err(none());
    }
    control.record(who.user.clone(), "webhook end", id, &why, json!({}))?;
    let mut book = control.webhooks.book();
    let removed = book.live.remove(id).ok_or_else(none)?;
    if let Err(problem) = control.webhooks.written(&mut book) {
        book.live.insert(id.to_owned(), removed);
        return Err(problem);
    }
    Ok(answer_json(StatusCode::OK, &json!({"webhook_id": id, "ended": true})))
}

/// `POST /admin/webhooks/{webhook}/test {justification}`: posts an event that says nothing, now and once, and tells what came of it.
/// A receiver that is disabled is tried as well.
pub async fn try_out(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let (who, mut fields) = ask.configures(&control)?;
    let why = justification(&mut fields)?;
    let (webhooks, id) = (&control.webhooks, ask.param("webhook"));
    if !webhooks.book().live.contains_key(id) {
        return Err(none());
    }
    let Ok(_place) = webhooks.tries.try_acquire() else {
        return Err(Problem::new(ErrorCode::Overloaded, "other receivers are being tried").after(OVERLOADED));
    };
    control.record(who.user.clone(), "webhook test", id, &why, json!({}))?;
    let now = clock::wall();
    let event = json!({"type": "test", "timestamp": stamp::text(now), "data": {"type": "test", "webhook_id": id}});
    let name = format!("test_{}", u64::from_le_bytes(random()));
    let (url, letter) = {
        let book = webhooks.book();
        let live = book.live.get(id).ok_or_else(none)?;
        (live.url.clone(), live.letter(name, event.to_string().into_bytes(), now))
    };
    let failure = webhooks.post.post(&url, &letter).await.err().map(|failure| failure.to_string());
    Ok(answer_json(StatusCode::OK, &json!({"webhook_id": id, "delivered": failure.is_none(), "why": failure})))
}

impl Webhooks {
    /// Writes the receivers, and has what they are told looked at. Errors: the file could not be written; what is in memory has to be put back.
    fn written(&self, book: &mut Book) -> Result<(), Problem> {
        self.write_receivers(book).map_err(|fault| {
            tracing::error!(%fault, "webhooks.json could not be written");
            Problem::new(ErrorCode::NoSpace, "the receivers could not be written; nothing was done").after(OVERLOADED)
        })?;
        book.moved = true;
        self.changed.notify_one();
        Ok(())
    }
}

fn set(book: &mut Book, id: &str, receiver: &Receiver) {
    let Some(live) = book.live.get_mut(id) else { return };
    live.url = Url::parse_any(&receiver.url).expect("it was checked");
    let filter = receiver.filter().expect("it was checked");
    if filter != *live.filter {
        // What waits is what was asked for before.
        live.tracks.forget();
        live.filter = filter.into();
    }
    live.receiver = receiver.clone();
}

fn none() -> Problem {
    Problem::new(ErrorCode::NotFound, "there is no such receiver; GET /admin/webhooks names them")
}

fn told(live: &Live) -> Value {
    let Receiver { id, url, rooms, events, created_ms, by, disabled, .. } = &live.receiver;
    let ts = |at: Wall| stamp::text(at);
    json!({
        "webhook_id": id,
        "url": url,
        "rooms": rooms,
        "events": events,
        "created_ts": ts(Wall(*created_ms)),
        "by": by,
        "enabled": disabled.is_none(),
        "disabled_ts": disabled.as_ref().map(|d| ts(Wall(d.at_ms))),
        "disabled_why": disabled.as_ref().map(|d| &d.why),
        "delivered": live.delivered,
        "failed": live.failed,
        "passed_over": live.passed_over,
        "waiting_rooms": live.tracks.n_tracks(),
        "told_upto": lowest(&live.tracks).value(),
        "last_success_ts": live.last_success.map(ts),
        "failing_since_ts": live.tracks.failing_since().map(ts),
        "last_failure": live.last_failure.as_ref().map(|(at, why)| json!({"ts": ts(*at), "why": why})),
    })
}

/// Everything up to here was delivered.
fn lowest<T: Clone>(tracks: &Tracks<T>) -> Position {
    tracks.cursors().map(|(_, at)| at).chain([tracks.base()]).min().expect("the base is there")
}

fn url(fields: &mut Fields<'_>, webhooks: &Webhooks) -> Option<String> {
    let rule = "must be https://host[:port]/path without user info and fragment, of at most 1 024 bytes";
    let text = fields.get("url", rule, |v| {
        v.as_str().filter(|text| text.len() <= URL_BYTES_MAX && Url::parse_any(text).is_some()).map(str::to_owned)
    })?;
    let url = Url::parse_any(&text).expect("it was read just now");
    if let Err(rule) = webhooks.post.check(&url) {
        fields.fault("url", rule);
        return None;
    }
    Some(text)
}

/// What is said of a list of names: nothing; null for all; or the list.
type Said = Option<Option<Vec<String>>>;

fn list_of(fields: &mut Fields<'_>, name: &str, rule: &str, most: usize, is_one: impl Fn(&str) -> bool) -> Said {
    if fields.object.iter().any(|(given, value)| given == name && matches!(value, Given::Null)) {
        return Some(None);
    }
    let items = fields.get(name, rule, |v| match v {
        Given::Array(items) if (1..=most).contains(&items.len()) => {
            items.iter().map(|i| i.as_str().filter(|text| is_one(text)).map(str::to_owned)).collect::<Option<Vec<_>>>()
        }
        _ => None,
    });
    items.map(Some)
}

fn rooms(fields: &mut Fields<'_>) -> Said {
    let rule = format!(
        "must be 1 to {PATTERNS_MAX} room ids, or beginnings of some with *; null: all, and what is of the site"
    );
    list_of(fields, "rooms", &rule, PATTERNS_MAX, |text| RoomPattern::parse(text).is_some())
}

fn events(fields: &mut Fields<'_>) -> Said {
    let rule = format!("must be a list of {}; null: all", EVENTS.join(", "));
    list_of(fields, "events", &rule, EVENTS.len(), |text| EVENTS.contains(&text))
}
