//! What an operator does to a gateway: how fast it takes new streams, and emptying it.
//!
//! Each write is a line of `audit.jsonl` in the data folder, on the disk before it takes effect: it concerns no room, so no
//! room's log can hold it.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use grandstand_core::admission::Limit;
use grandstand_core::names::UserId;
use grandstand_wire::codes::ErrorCode;
use grandstand_wire::stamp;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::answer::{Problem, json as answer_json};
use super::ask::{Ask, Fields};
use super::rooms::justification;
use super::{Control, Shared};
use crate::admission::{Change, LOCAL};
use crate::auth;
use crate::clock;
use crate::link::OVERLOADED;
use crate::metrics::Transport;

const RATE_MAX: u32 = 1_000_000;

/// `GET /admin/gateways`.
pub async fn list(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    auth::may_configure(ask.identity(&control)?.as_deref())?;
    Ok(answer_json(StatusCode::OK, &json!({"gateways": [control.gateway()]})))
}

/// `POST …/admission {rate?, burst?, justification}`: 0 takes nobody; without a rate the configured one holds again. Ends a drain.
pub async fn admission(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let (by, mut fields) = begin(&control, &ask)?;
    let rate = fields.number("rate", RATE_MAX);
    let rule = "must be a whole number from 1 to 10000000, beside a rate";
    let burst = fields.get("burst", rule, |v| {
        v.as_u64().and_then(|n| u32::try_from(n).ok()).filter(|n| (1..=10_000_000).contains(n) && rate.is_some())
    });
    let why = justification(&mut fields)?;
    let limit = rate.map(|rate| {
        let steady = Limit::steady(rate);
        Limit { burst: burst.unwrap_or(steady.burst), ..steady }
    });
    let change = control.record(by, "admission", &why, json!({"rate": rate, "burst": burst}))?;
    control.deps.admission.change(limit, change, clock::mono());
    Ok(answer_json(StatusCode::OK, &control.gateway()))
}

/// `POST …/drain {seconds, justification}`: viewers are sent away in equal slices, nobody new is taken until the next
/// admission call.
pub async fn drain(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let (by, mut fields) = begin(&control, &ask)?;
    let rule = "must be a whole number from 0 to 3600";
    let seconds = fields.need("seconds", rule, |v| v.as_u64().filter(|n| *n <= 3_600));
    let why = justification(&mut fields)?;
    let seconds = seconds.expect("checked");
    let change = control.record(by, "drain", &why, json!({"seconds": seconds}))?;
    control.deps.admission.start_drain(Duration::from_secs(seconds), change, clock::mono());
    Ok(answer_json(StatusCode::OK, &control.gateway()))
}

fn begin<'a>(control: &Control, ask: &'a Ask) -> Result<(UserId, Fields<'a>), Problem> {
    let who = ask.identity(control)?;
    auth::may_configure(who.as_deref())?;
    if ask.param("gateway") != LOCAL {
        return Err(Problem::new(ErrorCode::NotFound, "there is no such gateway; this process is `local`"));
    }
    Ok((who.expect("nobody else may").user.clone(), ask.object()?))
}

impl Control {
    /// Writes who did what and why, durably.
    /// Errors: it could not be written; nothing may be done then.
    fn record(&self, by: UserId, what: &str, justification: &str, given: Value) -> Result<Change, Problem> {
        let at = clock::wall();
        let line = json!({
            "ts": stamp::text(at), "actor": by.as_str(), "what": what, "gateway": LOCAL,
            "given": given, "justification": justification,
        });
        let path = self.deps.config.data.join("audit.jsonl");
        let written = OpenOptions::new().create(true).append(true).mode(0o600).open(&path).and_then(|mut file| {
            // One write a line: a crash between two leaves no half of one.
            file.write_all(format!("{line}\n").as_bytes())?;
            file.sync_data()
        });
        if let Err(fault) = written {
            tracing::error!(path = %path.display(), error = %fault, "an operator's change could not be recorded");
            return Err(Problem::new(ErrorCode::NoSpace, "the change could not be recorded; nothing was done")
                .after(OVERLOADED));
        }
        tracing::info!(target: "audit", actor = by.as_str(), what, gateway = LOCAL, given = %line["given"], justification);
        Ok(Change { by, justification: justification.to_owned(), at })
    }

    /// This process's gateway, as operators see it.
    fn gateway(&self) -> Value {
        let view = self.deps.admission.view();
        let now = clock::mono();
        let limit = |limit: Option<Limit>| limit.map(|l| json!({"rate": l.per_second, "burst": l.burst}));
        let drain = view.drain.map(|drain| {
            let remaining = (drain.began + drain.over).since(now);
            json!({"seconds": drain.over.as_secs(), "remaining_ms": remaining.as_millis() as u64})
        });
        let changed = view.changed.map(|change| {
            json!({"by": change.by.as_str(), "justification": change.justification, "ts": stamp::text(change.at)})
        });
        json!({
            "id": LOCAL,
            "state": if drain.is_some() { "draining" } else { "open" },
            "load": self.load(),
            "admission": limit(view.limit),
            "admission_configured": limit(view.configured),
            "drain": drain,
            "changed": changed,
        })
    }

    /// How full this gateway is, for a balancer outside.
    pub(super) fn load(&self) -> Value {
        let m = &self.deps.metrics;
        let gauge = |n: i64| n.max(0);
        let streams = |t: Transport| gauge(m.streams[t as usize].load(Ordering::Relaxed));
        let total = Transport::ALL.into_iter().map(streams).sum::<i64>();
        let most = self.deps.config.connections_max;
        json!({
            "connections_max": most,
            "share": most.map(|most| total as f64 / f64::from(most)),
            "connections": gauge(m.connections.load(Ordering::Relaxed)),
            "streams": total,
            "websocket": streams(Transport::WebSocket),
            "sse": streams(Transport::Sse),
            "poll": streams(Transport::Poll),
        })
    }
}
