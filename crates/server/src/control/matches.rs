//! The score desk: from whom a match is shown, every revision that was said of it, and what operators type.
//!
//! A change of what viewers see is made in two steps. The first is asked without `confirm`: nothing is done, and the answer says
//! what would be told and what the score would be then. Its `confirm` sent with the same change does it, if the match is still
//! what it was; when anybody said anything meanwhile the answer is 412, and the operator looks again.

use std::collections::BTreeSet;

use aws_lc_rs::digest;
use axum::body::Body;
use axum::extract::State;
use grandstand_core::feed::Feed;
use grandstand_core::ids::{EventId, Position, Revision};
use grandstand_core::names::Key;
use grandstand_core::owner::answer::Answer;
use grandstand_core::owner::command::{Command, TypedScore};
use grandstand_core::record::{self, Record, Score, ScoreKind, ScoreState, Shown};
use grandstand_core::revision::{CurrentScore, MINUTE_RULE, OPERATOR, Row, ScoreIn, Showing, is_minute, operator};
use grandstand_wire::codes::ErrorCode;
use grandstand_wire::json::Value;
use grandstand_wire::stamp;
use http::{Response, StatusCode};
use serde_json::{Map, Value as Json, json};

use super::answer::{Problem, json as answer_json};
use super::ask::{Ask, Fields};
use super::audit::{limit, line_for, newest, past_rows};
use super::rooms::justification;
use super::scores::{names, payload_digest, read_goals};
use super::{Control, Shared};
use crate::auth;
use crate::auth::permit::{self, Permit};
use crate::link::{MatchDetail, Which};

/// `GET /admin/providers`: whose keys the server has, and when each was heard last.
pub async fn providers(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    auth::may_configure(ask.identity(&control)?.as_deref())?;
    let fed = control.deps.shard.matches(Which::Fed).await?;
    let feeds = fed.iter().filter_map(|detail| Some((&detail.match_id, detail.ledger.feed.as_ref()?)));
    let feeds: Vec<_> = feeds.collect();
    let (config, live) = (&control.deps.config, control.deps.provider_keys.live());
    let mut ids: BTreeSet<&str> = live.keys.iter().chain(&config.providers).map(|key| key.provider.as_str()).collect();
    // In development mode anybody may be one.
    ids.extend(feeds.iter().flat_map(|(_, feed)| both(feed)).map(Key::as_str));
    let watch = control.feeds.watch();
    let one = |id: &str| {
        let of = |is: &dyn Fn(&Feed) -> bool| {
            feeds.iter().filter(|(_, feed)| is(feed)).map(|(match_id, _)| match_id.as_str()).collect::<Vec<_>>()
        };
        let heard = Key::parse(id).and_then(|key| watch.heard(&key));
        json!({
            "provider": id,
            "kids": live.of_provider(id).into_iter().map(|(kid, _)| kid).collect::<Vec<_>>(),
            "certificate": config.providers.iter().any(|key| key.provider == id && key.certificate.is_some()),
            "heard_ts": heard.map(stamp::text),
            "primary_of": of(&|feed| feed.primary.as_str() == id),
            "stand_by_of": of(&|feed| feed.stand_by.as_ref().is_some_and(|key| key.as_str() == id)),
        })
    };
    let providers: Vec<Json> = ids.into_iter().map(one).collect();
    let feeds = &config.feeds;
    let body = json!({
        "providers": providers,
        "stale_seconds": feeds.stale_after.map(|limit| limit.as_secs()),
        "differ_seconds": feeds.differ_after.as_secs(),
    });
    Ok(answer_json(StatusCode::OK, &body))
}

/// `GET /admin/matches?after=&limit=`: the matches that rooms show, by id.
pub async fn list(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    auth::may_configure(ask.identity(&control)?.as_deref())?;
    let after = match ask.query("after")? {
        Some(text) => Some(Key::parse(text).ok_or_else(|| Problem::new(ErrorCode::BadRequest, Key::RULE))?),
        None => None,
    };
    let limit = limit(&ask)?;
    let found = control.deps.shard.matches(Which::All(after, limit)).await?;
    let next = found.last().filter(|_| found.len() == limit).map(|detail| detail.match_id.as_str().to_owned());
    let matches: Vec<Json> = found.iter().map(|detail| control.told(detail)).collect();
    Ok(answer_json(StatusCode::OK, &json!({"matches": matches, "next": next})))
}

/// `GET /admin/matches/{match}/providers`.
pub async fn get(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    auth::may_configure(ask.identity(&control)?.as_deref())?;
    let found = control.match_of(&ask).await?;
    let ledger = &found.ledger;
    let said = ledger.lines.keys().map(|(provider, _)| provider);
    let ids: BTreeSet<&Key> = said.chain(ledger.feed.iter().flat_map(both)).collect();
    let watch = control.feeds.watch();
    let one = |id: &Key| {
        let events = ledger.lines.keys().filter(|(provider, _)| provider == id).count();
        json!({
            "provider": id.as_str(), "shown": ledger.shows(id), "events": events,
            "score": ledger.score_of(id).map(goals), "heard_ts": watch.heard(id).map(stamp::text),
        })
    };
    let providers: Vec<Json> = ids.into_iter().map(one).collect();
    drop(watch);
    let mut body = control.told(&found);
    body["room_id"] = found.room.as_str().into();
    body["version"] = ledger.version().value().into();
    body["providers"] = providers.into();
    Ok(answer_json(StatusCode::OK, &body))
}

/// `PUT /admin/matches/{match}/providers {primary, stand_by?, confirm?, justification}`.
pub async fn put(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let (who, mut fields) = ask.configures(&control)?;
    let key = |v: &Value<'_>| v.as_str().and_then(Key::parse);
    let primary = fields.need("primary", Key::RULE, key);
    let stand_by = fields.get("stand_by", Key::RULE, key);
    for (name, id) in [("primary", &primary), ("stand_by", &stand_by)] {
        if id.as_ref().is_some_and(|id| !control.knows_provider(id)) {
            fields.fault(name, "must be a provider that the server has a key of");
        }
    }
    let confirm = read_confirm(&mut fields);
    fields.check(ErrorCode::BadField)?;
    let primary = primary.expect("checked");
    let found = control.match_of(&ask).await?;
    let ledger = &found.ledger;
    let what = json!(["feed", found.match_id.as_str(), primary.as_str(), stand_by.as_ref().map(Key::as_str)]);
    let Some(confirm) = confirm else {
        return Ok(preview(&found, &ledger.switch_to(&primary).told, &what));
    };
    let why = justification(&mut fields)?;
    let if_version = Some(confirm.holds_for(&what)?);
    let command = Command::SetFeed {
        match_id: found.match_id.clone(),
        primary: primary.clone(),
        stand_by: stand_by.clone(),
        if_version,
    };
    let event_id = done(control.operate(&who, "match providers", &found.room, &why, command).await?);
    let body = json!({
        "match_id": found.match_id.as_str(), "room_id": found.room.as_str(), "event_id": event_id.value(),
        "primary": primary.as_str(), "stand_by": stand_by.as_ref().map(Key::as_str),
    });
    Ok(answer_json(StatusCode::OK, &body))
}

/// `GET /admin/matches/{match}/scores?before=&limit=`: what is shown, and every revision that was said, newest first.
pub async fn scores(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let permit = permit::may_review(ask.identity(&control)?.as_deref(), None)?;
    let found = control.match_of(&ask).await?;
    let limit = limit(&ask)?;
    let before = ask.cursor("before")?.unwrap_or_else(newest);
    let ledger = &found.ledger;
    let is_of_it = |record: &Record| match &record.body {
        record::Body::Score(score) => score.match_id == found.match_id,
        record::Body::Feed(feed) => feed.match_id == found.match_id,
        _ => false,
    };

    let told = |record: &Record, permit: Permit| {
        let mut row = is_of_it(record).then(|| line_for(record, permit))?;
        if matches!(record.body, record::Body::Score(_)) {
            row["shown"] = (record.audience == record::Audience::Everyone).into();
        }
        Some(row)
    };
    let (rows, next) = past_rows(&control, &found.room, before, limit, permit, told).await?;
    let mut shown: Vec<(&Key, &Row)> = ledger.rows.iter().collect();
    shown.sort_by_key(|(_, row)| row.first);
    let shown: Vec<Json> = shown.into_iter().map(|(key, row)| event(key, row.revision(), row.score())).collect();
    let current = ledger.current(&found.match_id);
    let body = json!({
        "match_id": found.match_id.as_str(), "room_id": found.room.as_str(), "version": ledger.version().value(),
        "current": current.as_ref().map(current_json), "shown": shown,
        "revisions": rows, "more": next.is_some(), "next": next,
    });
    Ok(answer_json(StatusCode::OK, &body))
}

/// `POST /admin/matches/{match}/scores {key?, kind?, state?, score?, minute?, confirm?, justification}`: with the key of what is
/// shown a correction, whose members that are left out stay; with another key, or none, an event of the operators' own.
pub async fn type_score(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let (who, mut fields) = ask.configures(&control)?;
    let found = control.match_of(&ask).await?;
    let ledger = &found.ledger;
    let given = fields.get("key", Key::RULE, |v| v.as_str().and_then(Key::parse));
    let own = ledger.lines.keys().filter(|(provider, _)| provider.as_str() == OPERATOR).count();
    let next = || Key::parse(&format!("{OPERATOR}:{}", own + 1)).expect("a word and a number are a key");
    let event_key = given.unwrap_or_else(next);
    let row = ledger.rows.get(&event_key).map(Row::score);
    let rule = names("must be one of", ScoreKind::ALL.iter().map(|(_, n)| *n));
    let kind = fields.get("kind", &rule, |v| v.as_str().and_then(ScoreKind::parse)).or(row.map(|row| row.kind));
    let rule = names("must be one of", ScoreState::ALL.iter().map(|(_, n)| *n));
    let state = fields.get("state", &rule, |v| v.as_str().and_then(ScoreState::parse));
    let score = fields.get("score", "must be {home, away}", |v| match v {
        Value::Object(score) => Some(score.clone()),
        _ => None,
    });
    let score = score.map(|score| (read_goals(&mut fields, &score, "home"), read_goals(&mut fields, &score, "away")));
    let score = match (score, row) {
        (Some((home, away)), _) => home.zip(away),
        (None, row) => row.map(|row| (row.home, row.away)),
    };
    let minute = fields.get("minute", MINUTE_RULE, |v| v.as_str().filter(|m| is_minute(m)).map(Into::into));
    let minute = minute.or(row.and_then(|row| row.minute.clone()));
    if row.is_none() {
        for (name, there) in [("kind", kind.is_some()), ("score", score.is_some())] {
            if !there {
                fields.fault(name, "is missing: nothing is shown under this key yet");
            }
        }
    }
    let confirm = read_confirm(&mut fields);
    fields.check(ErrorCode::BadField)?;
    let (kind, (home, away)) = (kind.expect("checked"), score.expect("checked"));
    let state = state.or(row.map(|row| row.state)).unwrap_or(ScoreState::Confirmed);
    let typed = ScoreIn {
        match_id: found.match_id.clone(),
        provider: operator(),
        event: event_key.clone(),
        revision: None,
        kind,
        state,
        home,
        away,
        minute,
        historical: false,
        digest: [0; 16],
        data: None,
        room: None,
    };
    let digest = payload_digest(&typed);
    let what = json!([
        "type",
        found.match_id.as_str(),
        event_key.as_str(),
        kind.name(),
        state.name(),
        home,
        away,
        typed.minute.as_deref()
    ]);
    let Some(confirm) = confirm else {
        let (revision, showing) = ledger.showing_typed(&event_key);
        let shown: Option<Shown> = match showing {
            Showing::As(shown) => Some(shown),
            Showing::Plain | Showing::Hidden => None,
        };
        let told = Score { shown, ..typed.into_score(revision, false) };
        return Ok(preview(&found, &[told], &what));
    };
    let why = justification(&mut fields)?;
    let if_version = Some(confirm.holds_for(&what)?);
    let ScoreIn { match_id, event, minute, .. } = typed;
    let typed = TypedScore { match_id, event, kind, state, home, away, minute, digest };
    let name = if state == ScoreState::Withdrawn { "score: withdraw" } else { "score: type" };
    let command = Command::TypeScore { typed, if_version };
    let event_id = done(control.operate(&who, name, &found.room, &why, command).await?);
    let body = json!({
        "match_id": found.match_id.as_str(), "room_id": found.room.as_str(), "event_id": event_id.value(),
        "key": event_key.as_str(),
    });
    Ok(answer_json(StatusCode::OK, &body))
}

fn done(answer: Answer) -> EventId {
    match answer {
        Answer::Match { event_id, .. } => event_id,
        other => unreachable!("a change of a match is never answered by {other:?}"),
    }
}

/// The primary, and the stand-by where there is one.
fn both(feed: &Feed) -> impl Iterator<Item = &Key> {
    std::iter::once(&feed.primary).chain(&feed.stand_by)
}

impl Control {
    async fn match_of(&self, ask: &Ask) -> Result<MatchDetail, Problem> {
        let id = Key::parse(ask.param("match")).ok_or_else(|| Problem::new(ErrorCode::BadRequest, Key::RULE))?;
        let found = self.deps.shard.matches(Which::One(id)).await?.pop();
        found.ok_or_else(|| Problem::new(ErrorCode::NotFound, "no room shows this match"))
    }

    /// A match as operators see it in a list.
    fn told(&self, detail: &MatchDetail) -> Json {
        let MatchDetail { match_id, ledger, rooms, .. } = detail;
        let feed = ledger.feed.as_ref();
        let watch = self.feeds.watch();
        let rooms = rooms.iter().map(|(room, state)| json!({"room_id": room.as_str(), "state": state.name()}));
        json!({
            "match_id": match_id.as_str(),
            "rooms": rooms.collect::<Vec<_>>(),
            "current": ledger.current(match_id).as_ref().map(current_json),
            "primary": feed.map(|feed| feed.primary.as_str()),
            "stand_by": feed.and_then(|feed| feed.stand_by.as_ref()).map(Key::as_str),
            "silent_since_ts": watch.silent_since(match_id).map(stamp::text),
            "differs_since_ts": watch.differs_since(match_id).map(stamp::text),
        })
    }
}

fn goals((home, away): (u32, u32)) -> Json {
    json!({"home": home, "away": away})
}

fn current_json(score: &CurrentScore) -> Json {
    json!({
        "score": goals((score.home, score.away)), "state": score.state.name(), "minute": score.minute.as_deref(),
        "event_id": score.event_id.map(EventId::value),
    })
}

fn event(key: &Key, revision: Revision, score: &Score) -> Json {
    let mut told = Map::new();
    told.insert("key".into(), key.as_str().into());
    told.insert("revision".into(), revision.0.into());
    told.insert("kind".into(), score.kind.name().into());
    told.insert("state".into(), score.state.name().into());
    told.insert("score".into(), goals((score.home, score.away)));
    told.insert("minute".into(), score.minute.as_deref().into());
    told.insert("provider".into(), score.provider.as_str().into());
    if score.historical {
        told.insert("historical".into(), true.into());
    }
    told.into()
}

/// What would be done, and the token that does it.
fn preview(found: &MatchDetail, told: &[Score], what: &Json) -> Response<Body> {
    let ledger = &found.ledger;
    let changes = told.iter().map(|score| {
        let (key, revision) = score.shown_as();
        event(key, revision, score)
    });
    let now = ledger.current(&found.match_id).map(|score| goals((score.home, score.away)));
    let body = json!({
        "match_id": found.match_id.as_str(), "room_id": found.room.as_str(), "done": false,
        "changes": changes.collect::<Vec<_>>(),
        "score_now": now, "score_then": ledger.score_after(told).map(goals),
        "confirm": Confirm::of(ledger.version(), what).text(),
    });
    answer_json(StatusCode::OK, &body)
}

/// Which change was shown, and which match it was shown against.
struct Confirm {
    version: Position,
    what: u64,
}

const CONFIRM_RULE: &str = "must be the `confirm` of an answer to the same change without it";

impl Confirm {
    fn of(version: Position, what: &Json) -> Confirm {
        let hash = digest::digest(&digest::SHA256, what.to_string().as_bytes());
        let what = u64::from_be_bytes(hash.as_ref()[..8].try_into().expect("SHA-256 gives 32 bytes"));
        Confirm { version, what }
    }

    fn text(&self) -> String {
        format!("{}-{:016x}", self.version.value(), self.what)
    }

    fn parse(text: &str) -> Option<Confirm> {
        let (version, what) = text.split_once('-')?;
        let what = Some(what).filter(|what| what.len() == 16).and_then(|what| u64::from_str_radix(what, 16).ok())?;
        Some(Confirm { version: Position::parse(version)?, what })
    }

    /// The version the change was shown against. Errors: another change was shown.
    fn holds_for(&self, what: &Json) -> Result<Position, Problem> {
        match Confirm::of(self.version, what).what == self.what {
            true => Ok(self.version),
            false => {
                let fault = [("confirm".to_owned(), CONFIRM_RULE.to_owned())];
                Err(Problem::new(ErrorCode::BadField, format!("confirm: {CONFIRM_RULE}")).fields(&fault))
            }
        }
    }
}

fn read_confirm(fields: &mut Fields<'_>) -> Option<Confirm> {
    fields.get("confirm", CONFIRM_RULE, |v| v.as_str().and_then(Confirm::parse))
}

#[cfg(test)]
mod tests {
    use grandstand_core::ids::Position;
    use serde_json::json;

    use super::Confirm;

    #[test]
    fn a_confirmation_is_of_one_change_alone() {
        let version = Position::new(1 << 33 | 7).unwrap();
        let text = Confirm::of(version, &json!(["feed", "m", "p"])).text();
        let read = Confirm::parse(&text).unwrap();
        assert_eq!(read.holds_for(&json!(["feed", "m", "p"])).unwrap(), version);
        assert!(read.holds_for(&json!(["feed", "m", "q"])).is_err());
        for bad in ["", "-", "1-", "x-0000000000000000", "1-00000000000000000", "1-zzzzzzzzzzzzzzzz"] {
            assert!(Confirm::parse(bad).is_none(), "{bad}");
        }
    }
}
