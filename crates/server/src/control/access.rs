//! What an operator says of tokens: which are not taken any more, and that no new ones can be had.
//!
//! Who said it and why is a line of `audit.jsonl`, on the disk before the log is asked: it is of no room, so no room's log can hold
//! it. The word itself is a record of the log ([`grandstand_core::access`]), so a restart knows it.

use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use grandstand_core::access::{
    OUTAGE_SECONDS_MAX, OUTAGE_SECONDS_MIN, REVOKED_SECONDS, REVOKED_SECONDS_MAX, Revoked, Term,
};
use grandstand_core::names::UserId;
use grandstand_core::owner::answer::Answer;
use grandstand_core::owner::command::Command;
use grandstand_wire::codes::ErrorCode;
use grandstand_wire::stamp;
use http::{Response, StatusCode};
use serde_json::{Map, Value, json};

use super::Shared;
use super::answer::{Problem, json as answer_json};
use super::ask::{Ask, Fields};
use super::rooms::justification;
use crate::auth::{self, Identity};
use crate::clock;

/// Where it is audited as being of.
const OF: &str = "access";

fn said(what: &Revoked) -> Map<String, Value> {
    let (of, name) = what.said();
    Map::from_iter([(of.to_owned(), name.into())])
}

fn term(mut body: Map<String, Value>, term: Term) -> Value {
    body.insert("since_ts".into(), stamp::text(term.since).into());
    body.insert("until_ts".into(), stamp::text(term.until).into());
    body.into()
}

/// `GET /admin/access`.
pub async fn get(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    auth::may_configure(ask.identity(&control)?.as_deref())?;
    let access = control.deps.verifier.board().read().at(clock::wall());
    let revoked: Vec<Value> = access.revoked.iter().map(|(what, t)| term(said(what), *t)).collect();
    let outage = access.outage.map(|t| term(Map::new(), t));
    Ok(answer_json(StatusCode::OK, &json!({"revoked": revoked, "outage": outage})))
}

/// Whose tokens a body means: exactly one of `user`, `session`, `key`. A key is an admin's to take back: everyone who holds a token of
/// it needs a new one.
fn whose(fields: &mut Fields<'_>, who: &Identity) -> Result<Revoked, Problem> {
    let rule = "must be 1 to 256 bytes without control characters";
    let user = fields.get("user", UserId::RULE, |v| v.as_str().and_then(UserId::parse)).map(Revoked::User);
    let mut name = |of: &str| {
        let text = fields.get(of, rule, |v| v.as_str().filter(|t| Revoked::is_name(t)).map(str::to_owned));
        text.map(Into::into)
    };
    let (session, key) = (name("session").map(Revoked::Session), name("key").map(Revoked::Key));
    fields.check(ErrorCode::BadField)?;
    let mut given = [user, session, key].into_iter().flatten();
    let (Some(what), None) = (given.next(), given.next()) else {
        return Err(Problem::new(ErrorCode::BadField, "one of user, session and key says whose tokens"));
    };
    if matches!(what, Revoked::Key(_)) {
        auth::may_administer(Some(who))?;
    }
    Ok(what)
}

/// `POST /admin/access/revocations {user | session | key, seconds?, justification}`.
pub async fn revoke(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let (who, mut fields) = ask.configures(&control)?;
    let what = whose(&mut fields, &who)?;
    let seconds = fields.within("seconds", 60..=REVOKED_SECONDS_MAX);
    let why = justification(&mut fields)?;
    if what == Revoked::Key(who.key.text()) {
        // Nobody could take it back.
        return Err(Problem::new(ErrorCode::BadField, "your own token is signed by this key: come with another"));
    }
    let seconds = seconds.unwrap_or(REVOKED_SECONDS);
    let mut given = said(&what);
    given.insert("seconds".into(), seconds.into());
    let by = who.user.clone();
    control.record(by.clone(), "revoke", OF, &why, given.into())?;
    let lasts = Duration::from_secs(u64::from(seconds));
    done(control.deps.shard.ask(Command::Revoke { by, what: what.clone(), lasts }).await?)?;
    let held = control.deps.verifier.board().read().revoked.get(&what).copied();
    let held = held.unwrap_or(Term { since: clock::wall(), until: clock::wall() + lasts });
    Ok(answer_json(StatusCode::OK, &term(said(&what), held)))
}

/// `DELETE /admin/access/revocations {user | session | key, justification}`: what it names is taken again.
pub async fn restore(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let (who, mut fields) = ask.configures(&control)?;
    let what = whose(&mut fields, &who)?;
    let why = justification(&mut fields)?;
    let by = who.user.clone();
    control.record(by.clone(), "revoke end", OF, &why, said(&what).into())?;
    if !done(control.deps.shard.ask(Command::RevokeEnd { by, what: what.clone() }).await?)? {
        return Err(Problem::new(
            ErrorCode::NotFound,
            "nothing of the kind is revoked; GET /admin/access names what is",
        ));
    }
    let mut body = said(&what);
    body.insert("revoked".into(), false.into());
    Ok(answer_json(StatusCode::OK, &body.into()))
}

/// `PUT /admin/access/outage {seconds, justification}`: tokens that ran out lately let their holders watch.
pub async fn declare(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let (who, mut fields) = ask.configures(&control)?;
    let by = who.user.clone();
    let seconds = fields.need_within("seconds", OUTAGE_SECONDS_MIN..=OUTAGE_SECONDS_MAX);
    let why = justification(&mut fields)?;
    let seconds = seconds.expect("checked");
    control.record(by.clone(), "auth outage", OF, &why, json!({"seconds": seconds}))?;
    let lasts = Duration::from_secs(u64::from(seconds));
    done(control.deps.shard.ask(Command::Outage { by, lasts: Some(lasts) }).await?)?;
    let outage = control.deps.verifier.board().read().outage.map(|t| term(Map::new(), t));
    Ok(answer_json(StatusCode::OK, &json!({"outage": outage})))
}

/// `DELETE /admin/access/outage {justification}`.
pub async fn end_outage(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let (who, mut fields) = ask.configures(&control)?;
    let by = who.user.clone();
    let why = justification(&mut fields)?;
    control.record(by.clone(), "auth outage end", OF, &why, json!({}))?;
    if !done(control.deps.shard.ask(Command::Outage { by, lasts: None }).await?)? {
        return Err(Problem::new(ErrorCode::NotFound, "no outage is declared"));
    }
    Ok(answer_json(StatusCode::OK, &json!({"outage": null})))
}

/// Whether there was something to do.
fn done(answer: Answer) -> Result<bool, Problem> {
    match answer {
        Answer::Done { event_id } => Ok(event_id.is_some()),
        Answer::Reject(reject) => Err(reject.into()),
        other => unreachable!("a word on tokens is never answered by {other:?}"),
    }
}
