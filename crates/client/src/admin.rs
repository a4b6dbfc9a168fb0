//! What operators and moderators do, as calls: each is one request, and each refusal the server's own problem document.
//!
//! A write that was asked for once may be asked for again: bans, retracts, settings and drains say the same twice. The exception
//! is a banner, which would be a second one; [`Http`] repeats a call only where no answer began.

mod moderation;
mod site;
mod webhooks;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::http::{Http, Patience, Reply};
use crate::{Fault, segment};
pub use moderation::Ban;
pub use site::Whose;
pub use webhooks::WebhookAsked;

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum NotDone {
    #[error("{0}")]
    Refused(Box<Problem>),
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// A problem document (RFC 9457), as the server answers a refusal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    pub status: u16,
    /// Of the protocol's closed list; empty where something else answered.
    pub code: String,
    pub detail: String,
    /// The members at fault, each with its rule.
    pub fields: Vec<(String, String)>,
    pub retry_after_ms: Option<u64>,
    /// The document as it came, or null.
    pub document: Value,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.detail)?;
        if !self.code.is_empty() {
            write!(f, " ({}, {})", self.code, self.status)?;
        } else {
            write!(f, " ({})", self.status)?;
        }
        if let Some(ms) = self.retry_after_ms {
            write!(f, "; wait {ms} ms")?;
        }
        // Where there is one, the detail is its rule already, or says no more than that a member is wrong.
        if self.fields.len() > 1 || self.fields.iter().any(|(field, _)| !self.detail.contains(field.as_str())) {
            for (field, rule) in &self.fields {
                write!(f, "\n  {field}: {rule}")?;
            }
        }
        Ok(())
    }
}

impl Problem {
    fn of(reply: &Reply) -> Problem {
        let document = serde_json::from_slice::<Value>(&reply.body).unwrap_or(Value::Null);
        let text = |name: &str| document.get(name).and_then(Value::as_str).map(str::to_owned);
        let fields = document.get("fields").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let field = |f: &Value| Some((f.get("field")?.as_str()?.to_owned(), f.get("rule")?.as_str()?.to_owned()));
        Problem {
            status: reply.status,
            code: text("code").unwrap_or_default(),
            detail: text("detail").or_else(|| text("title")).unwrap_or_else(|| "the server refused".to_owned()),
            fields: fields.iter().filter_map(field).collect(),
            retry_after_ms: document.get("retry_after_ms").and_then(Value::as_u64),
            document,
        }
    }
}

/// Calls of one operator.
pub struct Admin {
    http: Arc<Http>,
    is_dry: bool,
    patience: Duration,
}

/// What of a room a retract takes back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    Event(u64),
    User(String),
    All,
}

/// `GET /admin/rooms`.
#[derive(Clone, Default, Debug)]
pub struct RoomsAsked {
    /// Part of an id or a title.
    pub text: Option<String>,
    /// The most watched first, instead of by name.
    pub by_viewers: bool,
    pub after: Option<String>,
    pub limit: Option<usize>,
}

/// `GET /admin/audit`.
#[derive(Clone, Default, Debug)]
pub struct AuditAsked {
    pub room: Option<String>,
    pub operator: Option<String>,
    pub action: Option<String>,
    /// RFC 3339.
    pub from: Option<String>,
    pub to: Option<String>,
    pub limit: Option<usize>,
    /// `next` of an earlier answer.
    pub before: Option<String>,
}

/// `GET /admin/rooms/{room}/archive`.
#[derive(Clone, Default, Debug)]
pub struct ArchiveAsked {
    /// `bilibili` or `dplayer`.
    pub format: String,
    /// Where the recording begins: offsets are from there.
    pub start: String,
    pub from: Option<String>,
    pub to: Option<String>,
    /// The room may not be shown everywhere, and the caller sees to that.
    pub blacked_out: bool,
}

impl Admin {
    /// `http` carries the operator's token.
    pub fn new(http: impl Into<Arc<Http>>) -> Admin {
        Admin { http: http.into(), is_dry: false, patience: Duration::ZERO }
    }

    /// Makes each change again while the server asks for patience, up to so long.
    pub fn patient(self, patience: Duration) -> Admin {
        Admin { patience, ..self }
    }

    /// Asks as ever and changes nothing: each change answers with the call that it would be,
    /// `{dry_run: true, method, path, body}`.
    pub fn dry(self) -> Admin {
        Admin { is_dry: true, ..self }
    }

    pub async fn rooms(&self, asked: &RoomsAsked) -> Result<Value, NotDone> {
        let order = asked.by_viewers.then(|| "viewers".to_owned());
        let limit = asked.limit.map(|n| n.to_string());
        self.get("/admin/rooms", &[("q", &asked.text), ("order", &order), ("after", &asked.after), ("limit", &limit)])
            .await
    }

    pub async fn room(&self, room: &str) -> Result<Value, NotDone> {
        self.get(&path(room, ""), &[]).await
    }

    /// Changes the given settings; makes the room when there is none. `version`: only if it is still this one.
    pub async fn put_room(
        &self,
        room: &str,
        change: Map<String, Value>,
        version: Option<u64>,
        why: &str,
    ) -> Result<Value, NotDone> {
        let version = version.map(|v| format!("\"{v}\""));
        let headers: Vec<(&str, &str)> = version.iter().map(|v| ("If-Match", v.as_str())).collect();
        self.write("PUT", &path(room, ""), &headers, change, why).await
    }

    pub async fn slow_mode(
        &self,
        room: &str,
        seconds: u32,
        lasts_ms: Option<u64>,
        why: &str,
    ) -> Result<Value, NotDone> {
        self.post(&path(room, "/slow-mode"), json!({"seconds": seconds, "duration_ms": lasts_ms}), why).await
    }

    pub async fn state(&self, room: &str, state: &str, why: &str) -> Result<Value, NotDone> {
        self.post(&path(room, "/state"), json!({"state": state}), why).await
    }

    pub async fn retract(
        &self,
        room: &str,
        target: &Target,
        reason: Option<&str>,
        why: &str,
    ) -> Result<Value, NotDone> {
        let body = match target {
            Target::Event(id) => json!({"event_id": id, "reason": reason}),
            Target::User(user) => json!({"user_id": user, "reason": reason}),
            Target::All => json!({"all": true, "reason": reason}),
        };
        self.post(&path(room, "/retract"), body, why).await
    }

    /// Changes what is pinned, if nobody else does meanwhile. `change` is given the pinned events, the newest pin first.
    pub async fn repin(
        &self,
        room: &str,
        change: impl FnOnce(Vec<u64>) -> Vec<u64>,
        why: &str,
    ) -> Result<Value, NotDone> {
        let now = self.room(room).await?;
        let pinned = now.get("pinned").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let pinned = change(pinned.iter().filter_map(Value::as_u64).collect());
        let version = now.get("version").and_then(Value::as_u64);
        self.put_room(room, object(json!({"pinned": pinned})), version, why).await
    }

    pub async fn banners(&self) -> Result<Value, NotDone> {
        self.get("/admin/banners", &[]).await
    }

    pub async fn banner(
        &self,
        text: &str,
        seconds: Option<u64>,
        room: Option<&str>,
        why: &str,
    ) -> Result<Value, NotDone> {
        self.post("/admin/banners", json!({"body": text, "seconds": seconds, "source_room_id": room}), why).await
    }

    pub async fn end_banner(&self, banner_id: &str, why: &str) -> Result<Value, NotDone> {
        self.write("DELETE", &format!("/admin/banners/{}", segment(banner_id)), &[], Map::new(), why).await
    }

    pub async fn gateways(&self) -> Result<Value, NotDone> {
        self.get("/admin/gateways", &[]).await
    }

    /// New streams a second; without a rate as configured.
    pub async fn admission(
        &self,
        gateway: &str,
        rate: Option<u32>,
        burst: Option<u32>,
        why: &str,
    ) -> Result<Value, NotDone> {
        let path = format!("/admin/gateways/{}/admission", segment(gateway));
        self.post(&path, json!({"rate": rate, "burst": burst}), why).await
    }

    pub async fn drain(&self, gateway: &str, seconds: u64, why: &str) -> Result<Value, NotDone> {
        self.post(&format!("/admin/gateways/{}/drain", segment(gateway)), json!({"seconds": seconds}), why).await
    }

    /// A cap on what viewers of sampled rooms are given, for so many seconds, and for how long shedding is no surprise. What is
    /// left out ends.
    pub async fn shedding(
        &self,
        gateway: &str,
        cap: Option<(u32, u64)>,
        expected_seconds: Option<u64>,
        why: &str,
    ) -> Result<Value, NotDone> {
        let path = format!("/admin/gateways/{}/shedding", segment(gateway));
        let (cap, seconds) = cap.unzip();
        self.post(&path, json!({"cap": cap, "seconds": seconds, "expected_seconds": expected_seconds}), why).await
    }

    /// What a room's gifts come to, ids `from` to `to`: one call's part; with `more` the next begins at `upto + 1`.
    /// Of one user, of one currency, where they are named.
    pub async fn gifts(
        &self,
        room: &str,
        (from, to): (Option<u64>, Option<u64>),
        user: Option<&str>,
        currency: Option<&str>,
    ) -> Result<Value, NotDone> {
        let (from, to) = (from.map(|n| n.to_string()), to.map(|n| n.to_string()));
        let (user, currency) = (user.map(str::to_owned), currency.map(str::to_owned));
        let query = [("from", &from), ("to", &to), ("user", &user), ("currency", &currency)];
        self.get(&path(room, "/gifts"), &query).await
    }

    /// Providers: their keys by name, what they are of, and when each was heard.
    pub async fn providers(&self) -> Result<Value, NotDone> {
        self.get("/admin/providers", &[]).await
    }

    /// A provider's keys by kid, without their secrets.
    pub async fn provider_keys(&self, provider: &str) -> Result<Value, NotDone> {
        self.get(&keys_of(provider), &[]).await
    }

    /// Makes a key of a provider; its `key`, the secret, is in this answer alone. Without a kid, one is made up.
    pub async fn add_provider_key(&self, provider: &str, kid: Option<&str>, why: &str) -> Result<Value, NotDone> {
        self.post(&keys_of(provider), json!({"kid": kid}), why).await
    }

    /// What is signed with this key is refused from here on.
    pub async fn remove_provider_key(&self, provider: &str, kid: &str, why: &str) -> Result<Value, NotDone> {
        let path = format!("{}/{}", keys_of(provider), segment(kid));
        self.write("DELETE", &path, &[], Map::new(), why).await
    }

    /// Matches that rooms show, by id, after this one.
    pub async fn matches(&self, after: Option<&str>, limit: usize) -> Result<Value, NotDone> {
        let (after, limit) = (after.map(str::to_owned), Some(limit.to_string()));
        self.get("/admin/matches", &[("after", &after), ("limit", &limit)]).await
    }

    /// From whom a match is shown, and what each provider says the score is.
    pub async fn match_providers(&self, id: &str) -> Result<Value, NotDone> {
        self.get(&of_match(id, "providers"), &[]).await
    }

    /// What is shown of a match, and every revision that was said before a place in the log, newest first.
    pub async fn match_scores(&self, id: &str, limit: usize, before: Option<u64>) -> Result<Value, NotDone> {
        let (limit, before) = (Some(limit.to_string()), before.map(|n| n.to_string()));
        self.get(&of_match(id, "scores"), &[("limit", &limit), ("before", &before)]).await
    }

    /// From whom the match is to be shown. Without `confirmed` (the `confirm` of such an answer, and why) nothing is done: the
    /// answer says what would be.
    pub async fn set_match_providers(
        &self,
        id: &str,
        primary: &str,
        stand_by: Option<&str>,
        confirmed: Option<(&str, &str)>,
    ) -> Result<Value, NotDone> {
        let body = object(json!({"primary": primary, "stand_by": stand_by}));
        self.in_two_steps("PUT", &of_match(id, "providers"), body, confirmed).await
    }

    /// A score event of the operators' own, or a correction of what is shown under its key. `confirmed`: as above.
    pub async fn type_score(
        &self,
        id: &str,
        score: Map<String, Value>,
        confirmed: Option<(&str, &str)>,
    ) -> Result<Value, NotDone> {
        self.in_two_steps("POST", &of_match(id, "scores"), score, confirmed).await
    }

    async fn in_two_steps(
        &self,
        method: &str,
        path: &str,
        mut body: Map<String, Value>,
        confirmed: Option<(&str, &str)>,
    ) -> Result<Value, NotDone> {
        let Some((confirm, why)) = confirmed else { return self.send(method, path, &[], body).await };
        body.insert("confirm".to_owned(), json!(confirm));
        self.write(method, path, &[], body, why).await
    }

    pub async fn audit(&self, asked: &AuditAsked) -> Result<Value, NotDone> {
        let limit = asked.limit.map(|n| n.to_string());
        let AuditAsked { room, operator, action, from, to, before, .. } = asked;
        let query = [
            ("room", room),
            ("operator", operator),
            ("action", action),
            ("from", from),
            ("to", to),
            ("limit", &limit),
            ("before", before),
        ];
        self.get("/admin/audit", &query).await
    }

    pub async fn history(
        &self,
        room: &str,
        user: &str,
        limit: Option<usize>,
        before: Option<u64>,
    ) -> Result<Value, NotDone> {
        let (limit, before) = (limit.map(|n| n.to_string()), before.map(|n| n.to_string()));
        self.get(&path(room, "/history"), &[("user", &Some(user.to_owned())), ("limit", &limit), ("before", &before)])
            .await
    }

    /// What was decided in a room, newest first. `of`: user, verdict and kind of the rows.
    pub async fn ledger(
        &self,
        room: &str,
        [user, verdict, kind]: [&Option<String>; 3],
        limit: Option<usize>,
        before: Option<u64>,
    ) -> Result<Value, NotDone> {
        let (limit, before) = (limit.map(|n| n.to_string()), before.map(|n| n.to_string()));
        let query = [("user", user), ("verdict", verdict), ("kind", kind), ("limit", &limit), ("before", &before)];
        self.get(&path(room, "/ledger"), &query).await
    }

    /// Holds a stretch of the log against its chain. `from`: `upto` and `link` of the answer before.
    pub async fn verify(&self, from: Option<(u64, String)>) -> Result<Value, NotDone> {
        let (after, link) = from.map(|(after, link)| (after.to_string(), link)).unzip();
        self.get("/admin/ledger/verify", &[("after", &after), ("link", &link)]).await
    }

    /// Nothing of before names the user any more, within a minute.
    pub async fn erase(&self, user: &str, why: &str) -> Result<Value, NotDone> {
        self.write("DELETE", &format!("/admin/users/{}", segment(user)), &[], Map::new(), why).await
    }

    /// Erases that are not done.
    pub async fn erasures(&self) -> Result<Value, NotDone> {
        self.get("/admin/erasures", &[]).await
    }

    /// The room's log as JSON Lines, handed on as it comes. `include`: of `control`, `raw`. Returns the log's head and the chain's link
    /// there, as the server tells them.
    pub async fn export(
        &self,
        room: &str,
        (from, to): (Option<u64>, Option<u64>),
        include: &str,
        out: &mut (dyn FnMut(&[u8]) -> std::io::Result<()> + Send),
    ) -> Result<Option<String>, NotDone> {
        let (from, to) = (from.map(|n| n.to_string()), to.map(|n| n.to_string()));
        let include = (!include.is_empty()).then(|| include.to_owned());
        let target = with_query(&path(room, "/export"), &[("from", &from), ("to", &to), ("include", &include)]);
        let reply = self.http.get_into(&target, out).await?;
        answered(&reply)?;
        Ok(reply.header("chain-head").map(str::to_owned))
    }

    /// The room's comments of a time as danmaku players read them, handed on as it comes. Times are RFC 3339.
    pub async fn archive(
        &self,
        room: &str,
        asked: &ArchiveAsked,
        out: &mut (dyn FnMut(&[u8]) -> std::io::Result<()> + Send),
    ) -> Result<(), NotDone> {
        let (format, start) = (Some(asked.format.clone()), Some(asked.start.clone()));
        let include = asked.blacked_out.then(|| "blacked_out".to_owned());
        let query =
            [("format", &format), ("start", &start), ("from", &asked.from), ("to", &asked.to), ("include", &include)];
        let reply = self.http.get_into(&with_query(&path(room, "/archive"), &query), out).await?;
        answered(&reply)
    }

    async fn get(&self, path: &str, query: &[(&str, &Option<String>)]) -> Result<Value, NotDone> {
        let reply = self.http.get(&with_query(path, query)).await?;
        answered(&reply)?;
        Ok(reply.json()?)
    }

    async fn post(&self, path: &str, body: Value, why: &str) -> Result<Value, NotDone> {
        self.write("POST", path, &[], object(body), why).await
    }

    async fn write(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        mut body: Map<String, Value>,
        why: &str,
    ) -> Result<Value, NotDone> {
        // What was not said is left out: `null` may mean something of its own in a room's settings, and they say it themselves.
        if method != "PUT" {
            body.retain(|_, value| !value.is_null());
        }
        body.insert("justification".to_owned(), json!(why));
        self.send(method, path, headers, body).await
    }

    /// The call as it is; where nothing may change, what it would be.
    async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Map<String, Value>,
    ) -> Result<Value, NotDone> {
        if self.is_dry {
            return Ok(json!({"dry_run": true, "method": method, "path": path, "body": body}));
        }
        let body = serde_json::to_vec(&body).expect("a map of values serialises");
        let patience = Patience::of(self.patience);
        let reply = loop {
            let reply = self.http.call(method, path, headers, Some(&body)).await?;
            if !patience.again(&reply).await {
                break reply;
            }
        };
        answered(&reply)?;
        Ok(reply.json()?)
    }
}

/// Errors: it is a refusal.
fn answered(reply: &Reply) -> Result<(), NotDone> {
    match reply.status {
        200..300 => Ok(()),
        _ => Err(NotDone::Refused(Box::new(Problem::of(reply)))),
    }
}

fn path(room: &str, rest: &str) -> String {
    format!("/admin/rooms/{}{rest}", segment(room))
}

fn keys_of(provider: &str) -> String {
    format!("/admin/providers/{}/keys", segment(provider))
}

fn of_match(id: &str, what: &str) -> String {
    format!("/admin/matches/{}/{what}", segment(id))
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => unreachable!("a body is an object: {other}"),
    }
}

fn with_query(path: &str, query: &[(&str, &Option<String>)]) -> String {
    let given = query.iter().filter_map(|(name, value)| Some(format!("{name}={}", segment(value.as_ref()?))));
    let query: Vec<String> = given.collect();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{}", query.join("&")) }
}

#[cfg(test)]
mod tests {
    use super::{Problem, with_query};
    use crate::http::Reply;

    #[test]
    fn a_problem_is_told_with_its_code_its_fields_and_how_long_to_wait() {
        let body = br#"{"title":"t","status":422,"code":"bad_field","detail":"2 members are wrong","fields":[{"field":"a","rule":"must"},{"field":"b","rule":"may"}]}"#;
        let problem = Problem::of(&Reply { status: 422, headers: Vec::new(), body: body.to_vec() });
        assert_eq!(problem.to_string(), "2 members are wrong (bad_field, 422)\n  a: must\n  b: may");
        let body = br#"{"status":422,"code":"bad_field","detail":"not valid","fields":[{"field":"until","rule":"a time to come"}]}"#;
        let one = Problem::of(&Reply { status: 422, headers: Vec::new(), body: body.to_vec() });
        assert_eq!(one.to_string(), "not valid (bad_field, 422)\n  until: a time to come");
        let busy = Problem::of(&Reply {
            status: 503,
            headers: Vec::new(),
            body: br#"{"code":"overloaded","detail":"busy","retry_after_ms":200}"#.to_vec(),
        });
        assert_eq!(busy.to_string(), "busy (overloaded, 503); wait 200 ms");
        let other = Problem::of(&Reply { status: 502, headers: Vec::new(), body: b"<html>".to_vec() });
        assert_eq!(other.to_string(), "the server refused (502)");
    }

    #[test]
    fn a_query_holds_what_was_given_and_no_separator() {
        let query = [("q", &Some("a&b=c d".to_owned())), ("none", &None)];
        assert_eq!(with_query("/p", &query), "/p?q=a%26b%3Dc%20d");
        assert_eq!(with_query("/p", &[]), "/p");
    }
}
