//! Users who are erased: asked for by an admin, and how far the server is with it.
//!
//! Why it was done is a line of `audit.jsonl`, on the disk before the log is asked, and names nobody: that line is kept. Lines of
//! before that name the user lose what they were given. The erase itself is a record of the log ([`grandstand_core::record::Body`]),
//! so that it goes on after a crash.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use axum::body::Body;
use axum::extract::State;
use grandstand_core::ids::EventId;
use grandstand_core::names::UserId;
use grandstand_core::owner::answer::Answer;
use grandstand_core::owner::command::Command;
use grandstand_wire::codes::ErrorCode;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::Shared;
use super::answer::{Problem, json as answer_json};
use super::ask::Ask;
use super::rooms::justification;
use crate::auth::{self, files};

/// By then nothing names the user, on a log that is read through in that time.
const WITHIN_SECONDS: u64 = 60;

/// `DELETE /admin/users/{user} {justification}`: nothing of before names the user any more.
pub async fn erase(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let user = ask.user()?;
    let who = ask.identity(&control)?;
    auth::may_administer(who.as_deref())?;
    let mut fields = ask.object()?;
    let why = justification(&mut fields)?;
    if why.contains(user.as_str()) {
        let text = "justification: it is kept, so it must not name whom it erases";
        return Err(Problem::new(ErrorCode::BadField, text));
    }
    let by = who.expect("nobody else may").user.clone();
    control.record(by.clone(), "erase user", "site", &why, json!({}))?;
    strike(&control, &user).await?;
    let answer = control.deps.shard.ask(Command::EraseUser { by, user: user.clone() }).await?;
    control.snapshots.forget();
    // What an operator did about the user meanwhile stands before the record too.
    strike(&control, &user).await?;
    match answer {
        Answer::Done { event_id } => Ok(answer_json(
            StatusCode::ACCEPTED,
            &json!({"event_id": event_id.map(EventId::value), "within_seconds": WITHIN_SECONDS}),
        )),
        Answer::Reject(reject) => Err(reject.into()),
        other => unreachable!("an erase is never answered by {other:?}"),
    }
}

/// Takes the user out of `audit.jsonl`. Errors: the file stays as it is; whoever asks again makes it good.
async fn strike(control: &Shared, user: &UserId) -> Result<(), Problem> {
    let path = control.deps.config.data.join("audit.jsonl");
    let (held, whom) = (control.clone(), user.clone());
    let rewritten = tokio::task::spawn_blocking(move || {
        let _lock = held.audit.lock().expect("no holder of this lock can panic");
        forget(&path, &whom)
    });
    match rewritten.await {
        Ok(Ok(())) => Ok(()),
        failed => {
            tracing::error!(?failed, "audit.jsonl could not be written anew");
            let text = "audit.jsonl could not be written anew; ask again";
            Err(Problem::new(ErrorCode::ServerFault, text))
        }
    }
}

/// `GET /admin/erasures`: those that are not done, by the `event_id` they were answered with.
pub async fn list(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    auth::may_configure(ask.identity(&control)?.as_deref())?;
    let erasing = control.deps.shard.status().erasing();
    let pending: Vec<u64> = erasing.pending().into_iter().map(EventId::value).collect();
    Ok(answer_json(StatusCode::OK, &json!({"pending": pending, "done": erasing.done()})))
}

/// Writes the file anew without what its lines say of a user; one that is not there stays so. What an operator did stays, whoever
/// that was: who and when, and why in the operator's own words.
fn forget(path: &Path, user: &UserId) -> std::io::Result<()> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(fault) if fault.kind() == ErrorKind::NotFound => return Ok(()),
        Err(fault) => return Err(fault),
    };
    let mut out = Vec::with_capacity(text.len());
    let mut found = false;
    for line in text.split_inclusive(|b| *b == b'\n') {
        let told = serde_json::from_slice::<Value>(line).ok().filter(|told| names(&told["given"], user));
        match told {
            Some(mut told) => {
                told["given"] = json!({"erased": true});
                out.extend_from_slice(format!("{told}\n").as_bytes());
                found = true;
            }
            None => out.extend_from_slice(line),
        }
    }
    if !found {
        return Ok(());
    }
    files::replace(path, &out)?;
    files::sync_folder(path)
}

fn names(given: &Value, user: &UserId) -> bool {
    match given {
        Value::String(text) => text == user.as_str(),
        Value::Array(items) => items.iter().any(|item| names(item, user)),
        Value::Object(members) => members.values().any(|member| names(member, user)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use grandstand_core::names::UserId;

    use super::forget;

    #[test]
    fn the_audit_keeps_what_was_done_and_forgets_to_whom() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let user = UserId::parse("u-17").unwrap();
        forget(&path, &user).unwrap();
        assert!(!path.exists(), "there is nothing to forget");
        let line = |whom: &str| {
            format!(
                "{{\"actor\":\"u-17\",\"given\":{{\"user_id\":\"{whom}\"}},\"justification\":\"j\",\"what\":\"site ban\"}}\n"
            )
        };
        let others = line("u-171");
        std::fs::write(&path, [line("u-17"), others.clone(), "half a li".to_owned()].concat()).unwrap();
        forget(&path, &user).unwrap();
        let left = std::fs::read_to_string(&path).unwrap();
        let first = left.lines().next().unwrap();
        assert!(first.contains("\"actor\":\"u-17\"") && first.contains("{\"erased\":true}"), "{first}");
        assert!(!first.contains("user_id"), "{first}");
        assert!(left.ends_with(&format!("{others}half a li")), "{left}");
    }
}
