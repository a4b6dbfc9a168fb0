//! What an operator does to a gateway: how fast it takes new streams, and emptying it.
//!
//! Each write is a line of `audit.jsonl` in the data folder, on the disk before it takes effect: it concerns no room, so no
//! room's log can hold it.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use grandstand_core::admission::{Drain, Limit};
use grandstand_core::names::UserId;
use grandstand_core::rooms::CAP_MAX;
use grandstand_wire::codes::ErrorCode;
use grandstand_wire::stamp;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::answer::{Problem, json as answer_json};
use super::ask::{Ask, Fields};
use super::rooms::justification;
use super::{Control, Shared};
use crate::admission::{Change, LOCAL, View};
use crate::auth;
use crate::clock;
use crate::link::OVERLOADED;
use crate::link::codec::{Order, Ordered};
use crate::link::host::Gateway;
use crate::metrics::{Metrics, Transport};
use crate::shedding;

const RATE_MAX: u32 = 1_000_000;
/// All gateways of a server that has several.
const ALL: &str = "all";

/// `GET /admin/gateways`.
pub async fn list(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    auth::may_configure(ask.identity(&control)?.as_deref())?;
    Ok(answer_json(StatusCode::OK, &control.listed()))
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
    let change = control.record(by, "admission", ask.param("gateway"), &why, json!({"rate": rate, "burst": burst}))?;
    control.carry_out(&ask, Order { what: Ordered::Admission(limit), change })
}

/// `POST …/drain {seconds, justification}`: viewers are sent away in equal slices, nobody new is taken until the next
/// admission call.
pub async fn drain(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let (by, mut fields) = begin(&control, &ask)?;
    let seconds = fields.need_within("seconds", 0..=3_600);
    let why = justification(&mut fields)?;
    let seconds = seconds.expect("checked");
    let change = control.record(by, "drain", ask.param("gateway"), &why, json!({"seconds": seconds}))?;
    control.carry_out(&ask, Order { what: Ordered::Drain(Duration::from_secs(seconds.into())), change })
}

/// `POST …/shedding {cap?, seconds?, expected_seconds?, justification}`: a cap lower than the shedder's own, for at most a quarter
/// of an hour; how long shedding is no surprise. What is left out ends.
pub async fn shedding(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let (by, mut fields) = begin(&control, &ask)?;
    let cap = fields.number("cap", CAP_MAX);
    let rule = "must be a whole number from 1 to 900, beside a cap";
    let lasts = |v: &grandstand_wire::json::Value<'_>, max: Duration| {
        v.as_u64().filter(|n| (1..=max.as_secs()).contains(n)).map(Duration::from_secs)
    };
    let over = fields.get("seconds", rule, |v| lasts(v, shedding::ORDERED_MAX).filter(|_| cap.is_some()));
    let expected =
        fields.get("expected_seconds", "must be a whole number from 1 to 43200", |v| lasts(v, shedding::EXPECTED_MAX));
    if cap.is_some() {
        fields.need("seconds", rule, |v| lasts(v, shedding::ORDERED_MAX));
    }
    let why = justification(&mut fields)?;
    let order = shedding::Order { cap: cap.zip(over).map(|(cap, over)| (u64::from(cap) * 1_000, over)), expected };
    let seconds = |d: Option<Duration>| d.map(|d| d.as_secs());
    let given = json!({"cap": cap, "seconds": seconds(over), "expected_seconds": seconds(expected)});
    let change = control.record(by, "shedding", ask.param("gateway"), &why, given)?;
    control.carry_out(&ask, Order { what: Ordered::Shedding(order), change })
}

fn begin<'a>(control: &Control, ask: &'a Ask) -> Result<(UserId, Fields<'a>), Problem> {
    let who = ask.identity(control)?;
    auth::may_configure(who.as_deref())?;
    let named = ask.param("gateway");
    match &control.deps.host {
        None if named != LOCAL => {
            return Err(Problem::new(ErrorCode::NotFound, "there is no such gateway; this process is `local`"));
        }
        Some(_) if named == ALL => {}
        Some(host) if !host.gateways().iter().any(|gateway| name(gateway.process) == named) => {
            return Err(Problem::new(
                ErrorCode::NotFound,
                "there is no such gateway now; GET /admin/gateways names them",
            ));
        }
        _ => {}
    }
    Ok((who.expect("nobody else may").user.clone(), ask.object()?))
}

/// A gateway process's name.
pub(super) fn name(process: u8) -> String {
    format!("g{process}")
}

impl Control {
    fn carry_out(&self, ask: &Ask, order: Order) -> Result<Response<Body>, Problem> {
        let named = ask.param("gateway");
        match &self.deps.host {
            None => {
                let (admission, now) = (&self.deps.admission, clock::mono());
                match order.what {
                    Ordered::Admission(limit) => admission.change(limit, order.change, now),
                    Ordered::Drain(over) => admission.start_drain(over, order.change, now),
                    Ordered::Shedding(what) => {
                        let taken = admission.shedding.order(what, order.change, now, &self.deps.metrics);
                        assert!(taken, "it was held against the limits");
                    }
                }
            }
            Some(host) if named == ALL => {
                host.order_all(&order);
                return Ok(answer_json(StatusCode::OK, &self.listed()));
            }
            Some(host) => {
                let process = named[1..].parse().expect("it was found by its name");
                let away = "the gateway went away; what was asked of it ended with it";
                host.order(process, order).map_err(|_| Problem::new(ErrorCode::NotReady, away).after(OVERLOADED))?;
            }
        }
        let gateways = self.gateways();
        let gateway = gateways.into_iter().find(|gateway| gateway["id"] == named);
        Ok(answer_json(StatusCode::OK, &gateway.unwrap_or(Value::Null)))
    }

    /// Writes who did what and why, durably.
    /// Errors: it could not be written; nothing may be done then.
    pub(super) fn record(
        &self,
        by: UserId,
        what: &str,
        gateway: &str,
        justification: &str,
        given: Value,
    ) -> Result<Change, Problem> {
        let at = clock::wall();
        let line = json!({
            "ts": stamp::text(at), "actor": by.as_str(), "what": what, "gateway": gateway,
            "given": given, "justification": justification,
        });
        let path = self.deps.config.data.join("audit.jsonl");
        let _lock = self.audit.lock().expect("no holder of this lock can panic");
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
        tracing::info!(target: "audit", actor = by.as_str(), what, gateway, given = %line["given"], justification);
        Ok(Change { by, justification: justification.to_owned(), at })
    }

    /// Every gateway and, where they share one, the rate of all.
    fn listed(&self) -> Value {
        let mut listed = json!({"gateways": self.gateways()});
        if let Some(host) = &self.deps.host {
            let (configured, whole) = (self.deps.admission.view().configured, host.whole());
            listed["all"] = json!({
                "admission": shared(self.rate(), host.n_sharing()),
                "admission_configured": shared(configured, 1),
                "changed": whole.map(|order| changed(&order.change)),
            });
        }
        listed
    }

    /// New streams a second, of the whole server.
    pub(super) fn rate(&self) -> Option<Limit> {
        let view = self.deps.admission.view();
        match self.deps.host.as_ref().map(|host| host.whole().map(|order| order.what)) {
            None => view.limit,
            Some(Some(Ordered::Admission(Some(limit)))) => Some(limit),
            Some(_) => view.configured,
        }
    }

    /// Every gateway, as operators see it.
    fn gateways(&self) -> Vec<Value> {
        let configured = self.deps.admission.view().configured;
        let Some(host) = &self.deps.host else {
            let mut one = gateway(LOCAL, &self.deps.admission.view());
            one["shedding"] = told(&self.deps.admission.shedding.view(clock::mono()));
            one["load"] = self.load_of(&self.deps.metrics);
            return vec![one];
        };
        let now = clock::mono();
        let (rate, shared_by) = (self.rate(), host.n_sharing());
        let each = |linked: Gateway| {
            let mut view = View { limit: rate, shared_by, configured, drain: None, changed: None };
            if let Some((order, since)) = linked.order {
                match order.what {
                    Ordered::Admission(None) => {}
                    Ordered::Admission(limit) => (view.limit, view.shared_by) = (limit, 1),
                    Ordered::Drain(over) => view.drain = Some(Drain { began: since, over }),
                    // Kept by itself.
                    Ordered::Shedding(_) => {}
                }
                view.changed = Some(order.change);
            }
            let mut one = gateway(&name(linked.process), &view);
            let engaged = linked.metrics.shedding[0].load(Ordering::Relaxed) > 0;
            let mut shed = shedding::View { engaged, cap: None, expected: None, changed: None };
            if let Some((Order { what: Ordered::Shedding(order), change }, since)) = linked.shedding {
                let left = |lasts: Duration| (since + lasts > now).then(|| (since + lasts).since(now));
                shed.cap = order.cap.and_then(|(cap, lasts)| Some((cap, left(lasts)?)));
                shed.expected = order.expected.and_then(left);
                shed.changed = Some(change);
            }
            one["shedding"] = told(&shed);
            one["load"] = self.load_of(&linked.metrics);
            one["pid"] = linked.pid.into();
            one["full"] = linked.full.into();
            one
        };
        host.gateways().into_iter().map(each).collect()
    }

    /// Whether no gateway takes anybody because all are being emptied.
    pub(super) fn is_draining(&self) -> bool {
        match &self.deps.host {
            None => self.deps.admission.is_draining(),
            Some(host) => host
                .gateways()
                .iter()
                .all(|gateway| matches!(gateway.order, Some((Order { what: Ordered::Drain(_), .. }, _)))),
        }
    }

    /// What the gateways counted: this process's, or the sum of all of them.
    pub(super) fn metrics(&self) -> Arc<Metrics> {
        match &self.deps.host {
            None => self.deps.metrics.clone(),
            Some(host) => Arc::new(Metrics::of_numbers(&host.numbers(&self.deps.metrics))),
        }
    }

    pub(super) fn load(&self) -> Value {
        self.load_of(&self.metrics())
    }

    /// How full this gateway is, for a balancer outside.
    fn load_of(&self, m: &Metrics) -> Value {
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

fn gateway(id: &str, view: &View) -> Value {
    let now = clock::mono();
    let drain = view.drain.map(|drain| {
        let remaining = (drain.began + drain.over).since(now);
        json!({"seconds": drain.over.as_secs(), "remaining_ms": remaining.as_millis() as u64})
    });
    json!({
        "id": id,
        "state": if drain.is_some() { "draining" } else { "open" },
        "admission": shared(view.limit, view.shared_by),
        "admission_configured": shared(view.configured, 1),
        "drain": drain,
        "changed": view.changed.as_ref().map(changed),
    })
}

fn told(view: &shedding::View) -> Value {
    let millis = |d: Duration| d.as_millis() as u64;
    json!({
        "engaged": view.engaged,
        "order": view.cap.map(|(cap_milli, left)| json!({"cap": cap_milli / 1_000, "remaining_ms": millis(left)})),
        "expected_ms": view.expected.map(millis),
        "changed": view.changed.as_ref().map(changed),
    })
}

fn shared(limit: Option<Limit>, by: u32) -> Value {
    limit.map_or(Value::Null, |l| match by {
        1 => json!({"rate": l.per_second, "burst": l.burst}),
        by => json!({"rate": l.per_second, "burst": l.burst, "shared_by": by}),
    })
}

fn changed(change: &Change) -> Value {
    json!({"by": change.by.as_str(), "justification": change.justification, "ts": stamp::text(change.at)})
}
