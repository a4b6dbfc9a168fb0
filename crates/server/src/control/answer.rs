//! Answers: JSON bodies and problem documents. Source: RFC 9457; codes from `grandstand_wire::codes`.

use std::time::Duration;

use axum::body::Body;
use axum::response::IntoResponse;
use grandstand_core::reject::{Code, Reject};
use grandstand_wire::codes::{ErrorCode, RateReason};
use grandstand_wire::http::retry_after;
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Map, Value};

use crate::auth::Denied;
use crate::auth::token::AuthFault;
use crate::link::likes::Refused;
use crate::link::{Delay, OVERLOADED, Overloaded, ReadRefused};

/// A refusal of a request.
#[derive(Debug)]
pub struct Problem {
    status: StatusCode,
    pub code: ErrorCode,
    detail: String,
    delay: Option<Delay>,
    more: Map<String, Value>,
}

impl Problem {
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Problem {
        let status = StatusCode::from_u16(code.status()).expect("the table holds statuses");
        Problem { status, code, detail: detail.into(), delay: None, more: Map::new() }
    }
    pub fn with_status(mut self, status: StatusCode) -> Problem {
        self.status = status;
        self
    }
    pub fn after(mut self, delay: Delay) -> Problem {
        self.delay = Some(delay);
        self
    }
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Problem {
        self.more.insert(name.to_owned(), value.into());
        self
    }
    /// The members at fault, each with its rule.
    pub fn fields(self, faults: &[(String, String)]) -> Problem {
        let list = faults.iter().map(|(field, rule)| serde_json::json!({"field": field, "rule": rule}));
        let list: Vec<Value> = list.collect();
        self.with("fields", list)
    }

    pub fn response(self) -> Response<Body> {
        let mut body = Map::new();
        body.insert("type".into(), "about:blank".into());
        body.insert("title".into(), self.code.meaning().into());
        body.insert("status".into(), self.status.as_u16().into());
        body.insert("code".into(), self.code.name().into());
        body.insert("detail".into(), self.detail.into());
        let wait = self.delay.map(Delay::wait);
        if let Some(wait) = wait {
            body.insert("retry_after_ms".into(), wait.retry_after_ms.into());
            body.insert("spread_ms".into(), wait.spread_ms.into());
        }
        body.extend(self.more);
        let bytes = serde_json::to_vec(&body).expect("a map of values serialises");
        let mut response = bytes_answer(self.status, "application/problem+json", bytes);
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(wait) = wait {
            headers.insert(header::RETRY_AFTER, retry_after(wait.retry_after_ms).into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response<Body> {
        self.response()
    }
}

impl From<Denied> for Problem {
    fn from(denied: Denied) -> Problem {
        match denied {
            Denied::NeedsToken => Problem::new(ErrorCode::NoToken, "give a token: Authorization: Bearer"),
            Denied::NotAllowed => Problem::new(ErrorCode::NotAllowed, "the token does not reach this far"),
            Denied::Blackout => Problem::new(ErrorCode::Blackout, "the room may not be shown where you are"),
        }
    }
}

impl From<AuthFault> for Problem {
    fn from(fault: AuthFault) -> Problem {
        match fault {
            AuthFault::Unsure => Problem::new(ErrorCode::NotReady, fault.to_string()).after(OVERLOADED),
            fault => Problem::new(ErrorCode::BadToken, fault.to_string()),
        }
    }
}

impl From<Overloaded> for Problem {
    fn from(Overloaded(delay): Overloaded) -> Problem {
        Problem::new(ErrorCode::Overloaded, "too much waits for the log").after(delay)
    }
}

impl From<ReadRefused> for Problem {
    fn from(refused: ReadRefused) -> Problem {
        match refused {
            ReadRefused::NoRoom => Problem::new(ErrorCode::NoRoom, "there is no such room"),
            ReadRefused::Fault | ReadRefused::Unknown => {
                Problem::new(ErrorCode::ServerFault, "the log could not be read").after(OVERLOADED)
            }
            ReadRefused::Busy(delay) => {
                Problem::new(ErrorCode::Overloaded, "too many readers wait, or the log is not there yet").after(delay)
            }
        }
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Problem {
        let problem = Problem::new(refused.code(), refused.why());
        match refused {
            Refused::Rate(retry_after) => {
                // Rounded up: who comes when told is not a moment early.
                let retry_after = retry_after + Duration::from_millis(1);
                problem.with("reason", RateReason::UserRate.name()).after(Delay { retry_after, spread: Duration::ZERO })
            }
            Refused::Full(delay) => problem.after(delay),
            Refused::Room(_) | Refused::Kind => problem,
        }
    }
}

impl From<Reject> for Problem {
    fn from(reject: Reject) -> Problem {
        let (code, reason) = code_of(reject.code);
        let mut problem = Problem::new(code, reject.message.to_string());
        if let Some(reason) = reason {
            problem = problem.with("reason", reason.name());
        }
        if !reject.fields.is_empty() {
            problem = problem.fields(&reject.fields);
        }
        let waits = matches!(code.status(), 429 | 503);
        match reject.retry_after {
            Some(retry_after) => {
                // A user's own rate is nobody else's: only shared refusals are spread.
                let own = matches!(reason, Some(RateReason::SlowMode | RateReason::UserRate));
                let spread = if own { Duration::ZERO } else { OVERLOADED.spread };
                problem.after(Delay { retry_after, spread })
            }
            None if waits => problem.after(OVERLOADED),
            None => problem,
        }
    }
}

/// The owner's codes as the wire names them.
fn code_of(code: Code) -> (ErrorCode, Option<RateReason>) {
    let plain = |code| (code, None);
    let rate = |reason| (ErrorCode::RateLimited, Some(reason));
    match code {
        Code::SlowMode => rate(RateReason::SlowMode),
        Code::UserRate => rate(RateReason::UserRate),
        Code::RoomRate => rate(RateReason::RoomRate),
        Code::IpRate => rate(RateReason::IpRate),
        Code::BadJson => plain(ErrorCode::BadJson),
        Code::BadOp => plain(ErrorCode::BadOp),
        Code::BadRoom => plain(ErrorCode::BadRoom),
        Code::BadText => plain(ErrorCode::BadText),
        Code::TooLong => plain(ErrorCode::TooLong),
        Code::BadField => plain(ErrorCode::BadField),
        Code::NotAllowed => plain(ErrorCode::NotAllowed),
        Code::Banned => plain(ErrorCode::Banned),
        Code::IdempotencyConflict => plain(ErrorCode::IdempotencyConflict),
        Code::Overloaded => plain(ErrorCode::Overloaded),
        Code::NoSpace => plain(ErrorCode::NoSpace),
        Code::NotReady => plain(ErrorCode::NotReady),
        Code::NoRoom => plain(ErrorCode::NoRoom),
        Code::NoEvent => plain(ErrorCode::BadReply),
        Code::RoomState => plain(ErrorCode::RoomState),
        Code::UnknownMatch => plain(ErrorCode::UnknownMatch),
        Code::PayloadConflict => plain(ErrorCode::PayloadConflict),
        Code::Stale => plain(ErrorCode::StaleVersion),
        Code::NotUnique => plain(ErrorCode::NotUnique),
        Code::EmoteOnly => plain(ErrorCode::EmoteOnly),
        Code::MembersOnly => plain(ErrorCode::MembersOnly),
        Code::ModerationFailed => plain(ErrorCode::ModerationFailed),
    }
}

pub fn json(status: StatusCode, value: &Value) -> Response<Body> {
    let mut response = bytes_answer(status, "application/json", value.to_string());
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

pub fn bytes_answer(status: StatusCode, kind: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
