//! Requests, read strictly: who asks, what about, and with which JSON.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::{FromRequest, FromRequestParts, Query, RawPathParams};
use bytes::Bytes;
use grandstand_core::ids::Position;
use grandstand_core::names::{RoomId, UserId};
use grandstand_core::regions::Region;
use grandstand_wire::codes::ErrorCode;
use grandstand_wire::json::{self, Object, Value};
use grandstand_wire::limits::HTTP_BODY_BYTES_MAX;
use http::{HeaderMap, Method, Request, header};

use super::Control;
use super::answer::Problem;
use crate::auth::{self, Identity, place};
use crate::clock;

/// One request, its path matched and its body read.
pub struct Ask {
    pub method: Method,
    /// Without the query.
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub peer: SocketAddr,
    /// Where the client is, as its gateway says; `None`: nobody knows.
    pub place: Option<Region>,
    params: Vec<(String, String)>,
    query: Vec<(String, String)>,
}

impl<S: Send + Sync> FromRequest<S> for Ask {
    type Rejection = Problem;

    async fn from_request(request: Request<Body>, state: &S) -> Result<Ask, Problem> {
        let (mut head, body) = request.into_parts();
        let params = RawPathParams::from_request_parts(&mut head, state)
            .await
            .map_err(|_| Problem::new(ErrorCode::BadRequest, "the path is not UTF-8"))?;
        let params = params.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let Query(query) = Query::<Vec<(String, String)>>::try_from_uri(&head.uri)
            .map_err(|_| Problem::new(ErrorCode::BadRequest, "the query is malformed"))?;
        if query.iter().any(|(name, _)| matches!(name.as_str(), "token" | "access_token" | "jwt" | "authorization")) {
            return Err(Problem::new(
                ErrorCode::BadRequest,
                "a token does not belong into an address: use Authorization",
            ));
        }
        let body = to_bytes(body, HTTP_BODY_BYTES_MAX)
            .await
            .map_err(|_| Problem::new(ErrorCode::TooLarge, "the body is above 64 KiB"))?;
        let peer = head.extensions.get::<SocketAddr>().copied().expect("every request comes with its peer");
        let path = head.uri.path().to_owned();
        let place = head.headers.get(place::HEADER).and_then(|v| v.to_str().ok()).and_then(Region::parse);
        Ok(Ask { method: head.method, path, headers: head.headers, body, peer, place, params, query })
    }
}

impl Ask {
    pub fn param(&self, name: &str) -> &str {
        self.params.iter().find(|(n, _)| n == name).map_or("", |(_, value)| value)
    }

    /// The query's value. Errors: given more than once.
    pub fn query(&self, name: &str) -> Result<Option<&str>, Problem> {
        let mut values = self.query.iter().filter(|(n, _)| n == name).map(|(_, value)| value.as_str());
        match (values.next(), values.next()) {
            (first, None) => Ok(first),
            _ => Err(Problem::new(ErrorCode::BadRequest, format!("{name} is given more than once"))),
        }
    }

    /// Errors: the query has another parameter, which is named.
    pub fn takes_only(&self, names: &[&str]) -> Result<(), Problem> {
        match self.query.iter().find(|(name, _)| !names.contains(&name.as_str())) {
            None => Ok(()),
            Some((name, _)) => {
                let known = names.join(", ");
                Err(Problem::new(ErrorCode::BadRequest, format!("there is no parameter {name:?} here, only {known}")))
            }
        }
    }

    pub fn room(&self) -> Result<RoomId, Problem> {
        RoomId::parse(self.param("room")).ok_or_else(|| Problem::new(ErrorCode::BadRoom, RoomId::RULE))
    }

    pub fn user(&self) -> Result<UserId, Problem> {
        UserId::parse(self.param("user")).ok_or_else(|| Problem::new(ErrorCode::BadRequest, UserId::RULE))
    }

    /// A position in the query.
    pub fn cursor(&self, name: &str) -> Result<Option<Position>, Problem> {
        match self.query(name)? {
            None => Ok(None),
            Some(text) => Position::parse(text)
                .map(Some)
                .ok_or_else(|| Problem::new(ErrorCode::BadCursor, format!("{name} is not a decimal in [0, 2^53)"))),
        }
    }

    /// Who asks: the bearer of a token, or nobody.
    /// Errors: credentials that do not hold are refused, never ignored.
    pub fn identity(&self, control: &Control) -> Result<Option<Arc<Identity>>, Problem> {
        let mut given = self.headers.get_all(header::AUTHORIZATION).iter();
        let Some(value) = given.next() else { return Ok(None) };
        if given.next().is_some() {
            return Err(Problem::new(ErrorCode::BadToken, "two Authorization headers"));
        }
        let text = value.to_str().map_err(|_| Problem::new(ErrorCode::BadToken, "Authorization is not text"))?;
        let token = match text.split_once(' ') {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
            _ => return Err(Problem::new(ErrorCode::BadToken, "only Authorization: Bearer is taken")),
        };
        Ok(Some(control.deps.verifier.verify(token, clock::wall())?))
    }

    /// A call that changes the site, not one room: who may, and the body. Errors: as of [`auth::may_configure`].
    pub fn configures(&self, control: &Control) -> Result<(Arc<Identity>, Fields<'_>), Problem> {
        let who = self.identity(control)?;
        auth::may_configure(who.as_deref())?;
        Ok((who.expect("nobody else may"), self.object()?))
    }

    /// The body as a strict JSON object.
    pub fn object(&self) -> Result<Fields<'_>, Problem> {
        if self.headers.contains_key(header::CONTENT_ENCODING) {
            return Err(Problem::new(ErrorCode::BadMedia, "encoded bodies are not taken"));
        }
        let kind = self.headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        // Anything a plain HTML form can send must be refused, whatever its body.
        if !kind.eq_ignore_ascii_case("application/json") {
            return Err(Problem::new(ErrorCode::BadMedia, "the body must be application/json"));
        }
        let text =
            std::str::from_utf8(&self.body).map_err(|_| Problem::new(ErrorCode::BadJson, "the body is not UTF-8"))?;
        match json::parse(text) {
            Ok(Value::Object(object)) => Ok(Fields { object, faults: Vec::new() }),
            Ok(_) => Err(Problem::new(ErrorCode::BadJson, "the body must be a JSON object")),
            Err(fault) => Err(Problem::new(ErrorCode::BadJson, fault.to_string())),
        }
    }
}

/// The members of a JSON object, read by name; what is wrong is collected and told together.
pub struct Fields<'a> {
    pub object: Object<'a>,
    faults: Vec<(String, String)>,
}

impl<'a> Fields<'a> {
    pub fn of(object: Object<'a>) -> Fields<'a> {
        Fields { object, faults: Vec::new() }
    }

    pub fn fault(&mut self, name: &str, rule: impl Into<String>) {
        self.faults.push((name.to_owned(), rule.into()));
    }

    /// Errors: everything that was wrong so far, with this code.
    pub fn check(&self, code: ErrorCode) -> Result<(), Problem> {
        match self.faults.as_slice() {
            [] => Ok(()),
            [(name, rule)] => Err(Problem::new(code, format!("{name}: {rule}")).fields(&self.faults)),
            many => Err(Problem::new(code, format!("{} members are wrong", many.len())).fields(many)),
        }
    }

    /// A member made by `parse`, which gives `None` for what breaks `rule`. A missing member is `None` and no fault.
    pub fn get<T>(&mut self, name: &str, rule: &str, parse: impl FnOnce(&Value<'a>) -> Option<T>) -> Option<T> {
        let value = self.object.given(name)?;
        let parsed = parse(value);
        if parsed.is_none() {
            self.fault(name, rule);
        }
        parsed
    }

    /// As [`Fields::get`], and it must be there.
    pub fn need<T>(&mut self, name: &str, rule: &str, parse: impl FnOnce(&Value<'a>) -> Option<T>) -> Option<T> {
        if self.object.given(name).is_none() {
            self.fault(name, format!("is missing: {rule}"));
            return None;
        }
        self.get(name, rule, parse)
    }

    pub fn flag(&mut self, name: &str) -> Option<bool> {
        self.get(name, "must be true or false", |v| match v {
            Value::Bool(yes) => Some(*yes),
            _ => None,
        })
    }

    pub fn number(&mut self, name: &str, to: u32) -> Option<u32> {
        self.within(name, 0..=to)
    }

    pub fn within(&mut self, name: &str, range: RangeInclusive<u32>) -> Option<u32> {
        self.get(name, &whole_rule(&range), |v| whole(v, &range))
    }

    /// As [`Fields::within`], and it must be there.
    pub fn need_within(&mut self, name: &str, range: RangeInclusive<u32>) -> Option<u32> {
        self.need(name, &whole_rule(&range), |v| whole(v, &range))
    }
}

fn whole_rule(range: &RangeInclusive<u32>) -> String {
    format!("must be a whole number from {} to {}", range.start(), range.end())
}

fn whole(value: &Value<'_>, range: &RangeInclusive<u32>) -> Option<u32> {
    value.as_u64().and_then(|n| u32::try_from(n).ok()).filter(|n| range.contains(n))
}
