//! Whether the process lives, whether it can be used, and what its API is.

use axum::body::Body;
use axum::extract::State;
use grandstand_wire::codes::ErrorCode;
use http::{Response, StatusCode};
use serde_json::json;

use super::answer::{Problem, bytes_answer, json as answer_json};
use super::ask::Ask;
use super::{Control, Shared};

/// The API's description, kept by hand beside the routes.
pub const OPENAPI: &str = include_str!("openapi.json");

/// The process runs its loops: this answer came through two of them.
pub async fn live(_: Ask) -> Response<Body> {
    answer_json(StatusCode::OK, &json!({"live": true}))
}

pub async fn ready(State(control): State<Shared>, _: Ask) -> Result<Response<Body>, Problem> {
    control.public()?;
    Ok(control.readiness())
}

pub async fn metrics(State(control): State<Shared>, _: Ask) -> Result<Response<Body>, Problem> {
    control.public()?;
    Ok(control.metrics_answer())
}

pub async fn openapi(_: Ask) -> Response<Body> {
    bytes_answer(StatusCode::OK, "application/json", OPENAPI)
}

impl Control {
    /// These routes leave the public listener when they have an address of their own.
    fn public(&self) -> Result<(), Problem> {
        match self.deps.config.internal_listen {
            None => Ok(()),
            Some(_) => Err(Problem::new(ErrorCode::NotFound, "there is no such route")),
        }
    }

    /// 200 when the log is recovered and writable and viewers are not being sent away, else 503 with the reason.
    pub(super) fn readiness(&self) -> Response<Body> {
        let status = self.deps.shard.status();
        let reason = match (status.ready(), status.no_space(), self.is_draining()) {
            (false, ..) => Some("not_ready"),
            (true, true, _) => Some("no_space"),
            (true, false, true) => Some("draining"),
            (true, false, false) => None,
        };
        let code = if reason.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let body = json!({
            "ready": reason.is_none(),
            "reason": reason,
            "durability": status.durability(),
            "epoch": status.epoch().map(|e| e.value()),
            "head": status.head().value(),
            "load": self.load(),
        });
        answer_json(code, &body)
    }

    pub(super) fn metrics_answer(&self) -> Response<Body> {
        bytes_answer(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", super::metrics::text(self))
    }
}
