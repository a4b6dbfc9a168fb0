//! `POST /v1/score-event`: the door for providers.
//!
//! A provider is one identity in four places (header, key owner, body, certificate where one is configured) or it is nobody.
//! What comes in is typed and closed: kinds, states and minutes are lists and forms, never free text. Nothing is answered
//! with 2xx that is not in the log. In development mode a bearer of role `backend` may post too, so that a recording can be
//! replayed, and `?room=` binds the match to a room.

use aws_lc_rs::digest;
use axum::body::Body;
use axum::extract::State;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use grandstand_core::ids::Revision;
use grandstand_core::names::{Key, RoomId};
use grandstand_core::owner::answer::Answer;
use grandstand_core::owner::command::Command;
use grandstand_core::record::{ScoreKind, ScoreState};
use grandstand_core::revision::ScoreIn;
use grandstand_core::revision::{MINUTE_RULE, is_minute};
use grandstand_wire::codes::ErrorCode;
use grandstand_wire::json::{Object, Value};
use grandstand_wire::limits::{GOALS_MAX, REVISION_MAX, SCORE_BODY_BYTES_MAX};
use http::{HeaderName, Response, StatusCode};
use serde_json::json;

use super::answer::{Problem, json as answer_json};
use super::ask::{Ask, Fields};
use super::{Control, Shared, signature};
use crate::auth::{self, certificate};
use crate::clock;
use crate::link::Delay;

const PROVIDER: HeaderName = HeaderName::from_static("x-provider-id");
const SIGNATURE: HeaderName = HeaderName::from_static("x-signature");

pub async fn post(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    if ask.body.len() > SCORE_BODY_BYTES_MAX {
        return Err(Problem::new(ErrorCode::TooLarge, "a score event is at most 16 KiB"));
    }
    let source = identify(&control, &ask)?;
    let mut score = read(&mut ask.object()?)?;
    source.speaks_for(&score.provider)?;
    // Whatever becomes of what it says.
    control.feeds.hear(&score.provider);
    score.room = bound_room(&control, &ask)?;
    if let Source::Provider(_) = source
        && let Err(retry_after) = control.score_rates.take(score.match_id.as_str().into(), clock::mono())
    {
        return Err(Problem::new(ErrorCode::RateLimited, "too many score events for this match")
            .after(Delay { retry_after, spread: retry_after }));
    }
    let match_id = score.match_id.clone();
    match control.deps.shard.ask(Command::Score(score)).await? {
        Answer::Score { accepted, event_id, revision, superseded, shown, room } => {
            let status = if accepted { StatusCode::ACCEPTED } else { StatusCode::OK };
            let mut body = json!({
                "event_id": event_id.value(),
                "match_id": match_id.as_str(),
                "revision": revision.0,
                "room_id": room.as_str(),
            });
            if superseded {
                body["superseded"] = true.into();
            }
            if !accepted {
                body["duplicate"] = true.into();
            }
            if !shown {
                body["shown"] = false.into();
            }
            Ok(answer_json(status, &body))
        }
        Answer::Reject(reject) => Err(reject.into()),
        other => unreachable!("a score event is never answered by {other:?}"),
    }
}

/// `POST /v1/score-heartbeat`: a provider that has nothing to say is there.
pub async fn heartbeat(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let source = identify(&control, &ask)?;
    let mut fields = ask.object()?;
    let provider = fields.need("provider", Key::RULE, |v| v.as_str().and_then(Key::parse));
    fields.check(ErrorCode::BadField)?;
    let provider = provider.expect("checked");
    source.speaks_for(&provider)?;
    control.feeds.hear(&provider);
    let stale_after = control.deps.config.feeds.stale_after.map(|limit| limit.as_millis() as u64);
    Ok(answer_json(StatusCode::OK, &json!({"provider": provider.as_str(), "stale_after_ms": stale_after})))
}

/// Who sent it.
enum Source {
    Provider(String),
    /// A bearer of role `backend`, development mode only; exempt of rates.
    Backend,
}

impl Source {
    /// Errors: it is another provider than the body names.
    fn speaks_for(&self, named: &Key) -> Result<(), Problem> {
        match self {
            Source::Provider(signed) if *signed != named.as_str() => Err(refused("the body names another provider")),
            Source::Provider(_) | Source::Backend => Ok(()),
        }
    }
}

fn identify(control: &Control, ask: &Ask) -> Result<Source, Problem> {
    let one = |name: &HeaderName| {
        let mut values = ask.headers.get_all(name).iter();
        match (values.next(), values.next()) {
            (Some(value), None) => value.to_str().ok(),
            _ => None,
        }
    };
    if ask.headers.contains_key(&SIGNATURE) {
        let (Some(provider), Some(given)) = (one(&PROVIDER), one(&SIGNATURE)) else {
            return Err(refused("X-Provider-Id and X-Signature are needed, once each"));
        };
        let what = (ask.method.as_str(), ask.path.as_str(), &ask.body[..]);
        let live = control.deps.provider_keys.live();
        return match signature::check(&live.keys, provider, given, what, clock::wall()) {
            Ok(provider) => {
                if !shows_its_certificate(control, ask, provider) {
                    tracing::warn!(provider, peer = %ask.peer, "a score event came without its provider's certificate");
                    return Err(refused("the provider's identity or signature does not hold"));
                }
                Ok(Source::Provider(provider.to_owned()))
            }
            Err(fault) => {
                tracing::warn!(%fault, provider, peer = %ask.peer, "a score event's signature does not hold");
                Err(refused("the provider's identity or signature does not hold"))
            }
        };
    }
    if control.deps.config.development {
        let who = ask.identity(control)?;
        let backend = who.as_ref().is_some_and(|id| id.is_backend());
        return match who {
            Some(_) if backend => Ok(Source::Backend),
            Some(_) => Err(auth::Denied::NotAllowed.into()),
            None => Err(refused("X-Signature, or a bearer of role backend, is needed")),
        };
    }
    Err(refused("X-Provider-Id and X-Signature are needed"))
}

/// Whether the client of the request showed the certificate that its provider is known by, where it is known by one.
fn shows_its_certificate(control: &Control, ask: &Ask, provider: &str) -> bool {
    let mut holders = control.deps.config.providers.iter().filter(|key| key.provider == provider);
    let Some(holder) = holders.find_map(|key| key.certificate.as_ref()) else { return true };
    let shown = ask.headers.get(certificate::HEADER).and_then(|text| URL_SAFE_NO_PAD.decode(text).ok());
    shown.is_some_and(|der| holder.holds(&der))
}

fn refused(detail: &str) -> Problem {
    Problem::new(ErrorCode::BadSignature, detail)
}

fn bound_room(control: &Control, ask: &Ask) -> Result<Option<RoomId>, Problem> {
    let Some(room) = ask.query("room")? else { return Ok(None) };
    if !control.deps.config.development {
        let fault = [("room".to_owned(), "binds matches in development mode only: PUT the room's matches".to_owned())];
        return Err(Problem::new(ErrorCode::BadField, "room: only in development mode").fields(&fault));
    }
    RoomId::parse(room).map(Some).ok_or_else(|| Problem::new(ErrorCode::BadRoom, RoomId::RULE))
}

/// Reads the body. Errors: every member that breaks its rule.
fn read(fields: &mut Fields<'_>) -> Result<ScoreIn, Problem> {
    let key = |v: &Value<'_>| v.as_str().and_then(Key::parse);
    let either = |fields: &Fields<'_>, one: &'static str, other: &'static str| {
        if fields.object.given(one).is_none() && fields.object.given(other).is_some() { other } else { one }
    };
    for (one, other) in [("match_id", "matchId"), ("event_id", "eventId")] {
        if fields.object.given(one).is_some() && fields.object.given(other).is_some() {
            fields.fault(other, format!("is given as {one} too"));
        }
    }
    let (match_name, event_name) = (either(fields, "match_id", "matchId"), either(fields, "event_id", "eventId"));
    let match_id = fields.need(match_name, Key::RULE, key);
    let event = fields.need(event_name, Key::RULE, key);
    let provider = fields.need("provider", Key::RULE, key);
    let rule = format!("must be 1 to {REVISION_MAX}");
    let revision = fields.get("revision", &rule, |v| {
        let n = v.as_u64().and_then(|n| u32::try_from(n).ok())?;
        (1..=REVISION_MAX).contains(&n).then_some(Revision(n))
    });
    let rule = names("must be one of", ScoreKind::ALL.iter().map(|(_, n)| *n));
    let kind = fields.need("kind", &rule, |v| v.as_str().and_then(ScoreKind::parse));
    let rule = names("must be one of", ScoreState::ALL.iter().map(|(_, n)| *n));
    let state = fields.get("state", &rule, |v| v.as_str().and_then(ScoreState::parse));
    let goals = fields.need("score", "must be {home, away}", |v| match v {
        Value::Object(score) => Some(score.clone()),
        _ => None,
    });
    let goals = goals.map(|score| (read_goals(fields, &score, "home"), read_goals(fields, &score, "away")));
    let minute = fields.get("minute", MINUTE_RULE, |v| match v {
        Value::Number(_) => v.as_u64().filter(|n| *n <= 999).map(|n| n.to_string()),
        _ => v.as_str().filter(|m| is_minute(m)).map(str::to_owned),
    });
    let historical = fields.flag("historical").unwrap_or(false);
    let data = fields.object.given("data").map(|data| {
        let mut out = Vec::new();
        data.write_canonical(&mut out);
        String::from_utf8(out).expect("JSON is UTF-8")
    });
    fields.check(ErrorCode::BadField)?;
    let (home, away) = goals.expect("checked");
    let mut score = ScoreIn {
        match_id: match_id.expect("checked"),
        provider: provider.expect("checked"),
        event: event.expect("checked"),
        revision,
        kind: kind.expect("checked"),
        state: state.unwrap_or(ScoreState::Confirmed),
        home: home.expect("checked"),
        away: away.expect("checked"),
        minute: minute.map(Into::into),
        historical,
        digest: [0; 16],
        data: data.map(Into::into),
        room: None,
    };
    score.digest = payload_digest(&score);
    Ok(score)
}

pub(super) fn read_goals(fields: &mut Fields<'_>, score: &Object<'_>, side: &str) -> Option<u32> {
    let goals =
        score.given(side).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok()).filter(|n| *n <= GOALS_MAX);
    if goals.is_none() {
        fields.fault(&format!("score.{side}"), format!("must be a whole number from 0 to {GOALS_MAX}"));
    }
    goals
}

/// What tells a repeat from a conflict: the parsed payload without its identity, so that spelling does not matter, and
/// without `historical`, so that a provider may replay all of a match and is told of each event that it is known.
pub fn payload_digest(score: &ScoreIn) -> [u8; 16] {
    let canonical = json!([
        score.kind.name(),
        score.state.name(),
        score.home,
        score.away,
        score.minute.as_deref(),
        score.data.as_deref(),
    ]);
    let hash = digest::digest(&digest::SHA256, canonical.to_string().as_bytes());
    hash.as_ref()[..16].try_into().expect("SHA-256 gives 32 bytes")
}

pub(super) fn names<'a>(start: &str, all: impl Iterator<Item = &'a str>) -> String {
    all.fold(start.to_owned(), |text, name| text + " " + name)
}

#[cfg(test)]
mod tests {
    use grandstand_wire::json::{Value, parse};

    use super::{Fields, read};
    use crate::control::answer::Problem;
    use grandstand_core::revision::ScoreIn;

    const GOOD: &str = r#"{"match_id":"m","event_id":"e","provider":"p","kind":"goal","score":{"home":1,"away":0},"minute":"78","data":{"a":1,"b":[2]}}"#;

    fn read_text(text: &str) -> Result<ScoreIn, Problem> {
        match parse(text) {
            Ok(Value::Object(object)) => read(&mut Fields::of(object)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn spelling_does_not_make_another_payload_but_content_does() {
        let first = read_text(GOOD).unwrap().digest;
        for same in [
            GOOD.replace(':', " : "),
            GOOD.replace("goal", "g\\u006fal"),
            GOOD.replace(r#""a":1,"b":[2]"#, r#""b":[2],"a":1"#),
            GOOD.replace("match_id", "matchId").replace("event_id", "eventId"),
            GOOD.replace(r#""minute":"78""#, r#""minute":78"#),
            GOOD.replace(r#""kind""#, r#""state":"confirmed","kind""#),
            GOOD.replace(r#""kind""#, r#""revision":2,"kind""#),
            GOOD.replace(r#""kind""#, r#""historical":true,"kind""#),
        ] {
            assert_eq!(read_text(&same).unwrap().digest, first, "{same}");
        }
        for other in [
            GOOD.replace("\"home\":1", "\"home\":2"),
            GOOD.replace("goal", "own_goal"),
            GOOD.replace("78", "79"),
            GOOD.replace("[2]", "[3]"),
            GOOD.replace(r#""kind""#, r#""state":"provisional","kind""#),
        ] {
            assert_ne!(read_text(&other).unwrap().digest, first, "{other}");
        }
    }

    #[test]
    fn everything_is_typed_closed_and_bounded() {
        for bad in [
            GOOD.replace("\"home\":1", "\"home\":-1"),
            GOOD.replace("\"home\":1", "\"home\":1.0"),
            GOOD.replace("\"home\":1", "\"home\":\"1\""),
            GOOD.replace("\"home\":1", "\"home\":10001"),
            GOOD.replace("\"home\":1,", ""),
            GOOD.replace("goal", "<b>goal</b>"),
            GOOD.replace("\"78\"", "\"<i>\""),
            GOOD.replace("\"m\"", "\"\""),
            GOOD.replace(r#""kind""#, r#""revision":0,"kind""#),
            GOOD.replace(r#""kind""#, r#""revision":1000001,"kind""#),
            GOOD.replace(r#""kind""#, r#""revision":4294967297,"kind""#),
            GOOD.replace(r#""kind""#, r#""state":"sure","kind""#),
            GOOD.replace(r#""kind""#, r#""historical":1,"kind""#),
            GOOD.replace(r#""kind""#, r#""matchId":"m","kind""#),
            "{}".to_owned(),
        ] {
            let problem = read_text(&bad).expect_err(&bad);
            assert_eq!(problem.code, grandstand_wire::codes::ErrorCode::BadField, "{bad}");
        }
    }
}
