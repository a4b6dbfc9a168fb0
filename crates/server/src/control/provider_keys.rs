//! The signing keys of score providers, changed while the server runs: made, listed without their secrets, and taken back.
//!
//! A provider changes over without a gap: a second key is made, the provider begins to sign with it, the first is taken back. Who
//! did it and why is a line of `audit.jsonl`, on the disk before the key is.

use axum::body::Body;
use axum::extract::State;
use grandstand_core::names::Key;
use grandstand_wire::codes::ErrorCode;
use grandstand_wire::stamp;
use http::{Response, StatusCode, header};
use serde_json::{Value, json};

use super::answer::{Problem, json as answer_json};
use super::ask::Ask;
use super::rooms::justification;
use super::{Control, Shared};
use crate::auth::provider_keys::{Fault, KID_RULE, Live, Origin, is_kid, is_provider};
use crate::auth::{self, files};
use crate::clock;
use crate::link::OVERLOADED;

/// Where it is audited as being of.
const OF: &str = "providers";

impl From<Fault> for Problem {
    fn from(fault: Fault) -> Problem {
        let text = fault.to_string();
        match fault {
            Fault::Taken | Fault::TooMany => {
                Problem::new(ErrorCode::BadField, format!("kid: {text}")).fields(&[("kid".to_owned(), text)])
            }
            Fault::NotFound => Problem::new(ErrorCode::NotFound, text),
            Fault::Io { path, source } => {
                tracing::error!(path = %path.display(), error = %source, "the keys of providers could not be written");
                Problem::new(ErrorCode::NoSpace, "the keys could not be written").after(OVERLOADED)
            }
        }
    }
}

fn provider(ask: &Ask) -> Result<Key, Problem> {
    let wrong = || Problem::new(ErrorCode::BadRequest, format!("a provider's name {}, and is not operator", Key::RULE));
    Key::parse(ask.param("provider")).filter(|id| is_provider(id.as_str())).ok_or_else(wrong)
}

fn told(live: &Live, provider: &str) -> Value {
    let keys = live.of_provider(provider).into_iter().map(|(kid, origin)| match origin {
        Origin::Configured => json!({"kid": kid, "from": "configuration", "since_ts": null, "by": null}),
        Origin::Made { at, by } => json!({"kid": kid, "from": "api", "since_ts": stamp::text(at), "by": by.as_str()}),
    });
    let taken_back = live
        .taken_back(provider)
        .map(|back| json!({"kid": back.kid, "since_ts": stamp::text(back.at), "by": back.by.as_str()}));
    json!({
        "provider": provider, "keys": keys.collect::<Vec<_>>(), "taken_back": taken_back.collect::<Vec<_>>(),
    })
}

/// `GET /admin/providers/{provider}/keys`.
pub async fn list(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    auth::may_configure(ask.identity(&control)?.as_deref())?;
    let provider = provider(&ask)?;
    Ok(answer_json(StatusCode::OK, &told(&control.deps.provider_keys.live(), provider.as_str())))
}

/// `POST /admin/providers/{provider}/keys {kid?, justification}`: the one answer with the secret in it.
pub async fn make(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let (who, mut fields) = ask.configures(&control)?;
    auth::may_administer(Some(&who))?;
    let provider = provider(&ask)?;
    let kid = fields.get("kid", KID_RULE, |v| v.as_str().filter(|kid| is_kid(kid)).and_then(Key::parse));
    let why = justification(&mut fields)?;
    let kid = kid.unwrap_or_else(fresh_kid);
    let (by, at) = (who.user.clone(), clock::wall());
    let given = json!({"provider": provider.as_str(), "kid": kid.as_str()});
    let record = || control.record(by.clone(), "provider key", OF, &why, given).map(drop);
    let key = control.deps.provider_keys.make(&provider, &kid, (by.clone(), at), record)?;
    let body = json!({"provider": provider.as_str(), "kid": kid.as_str(), "key": key, "since_ts": stamp::text(at)});
    let mut response = answer_json(StatusCode::OK, &body);
    // No cache and no browser's back button has it.
    response.headers_mut().insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    Ok(response)
}

/// `DELETE /admin/providers/{provider}/keys/{kid} {justification}`: nothing that is signed with it is taken from here on.
pub async fn take_back(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let (who, mut fields) = ask.configures(&control)?;
    auth::may_administer(Some(&who))?;
    let provider = provider(&ask)?;
    let kid = ask.param("kid");
    let why = justification(&mut fields)?;
    let (by, at) = (who.user.clone(), clock::wall());
    let given = json!({"provider": provider.as_str(), "kid": kid});
    let record = || control.record(by.clone(), "provider key end", OF, &why, given).map(drop);
    control.deps.provider_keys.take_back(provider.as_str(), kid, (by.clone(), at), record)?;
    Ok(answer_json(StatusCode::OK, &told(&control.deps.provider_keys.live(), provider.as_str())))
}

/// A kid for who does not care.
fn fresh_kid() -> Key {
    Key::parse(&format!("k{}", files::random_hex::<4>())).expect("a letter and digits are a key")
}

impl Control {
    /// Whether score events of this provider could come.
    pub(super) fn knows_provider(&self, provider: &Key) -> bool {
        self.deps.config.development || self.deps.provider_keys.live().knows(provider.as_str())
    }
}
