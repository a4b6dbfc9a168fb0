//! Calls about a room: snapshot, settings, score events.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde_json::{Value, json};

use crate::http::{Http, Patience};
use crate::sign::Signer;
use crate::{Fault, segment};

/// One revision of one score event, as a provider posts it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ScoreEvent {
    pub match_id: String,
    pub event_id: String,
    pub provider: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<u32>,
    pub kind: String,
    pub score: Score,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minute: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Stored with the event, sent to no viewer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Score {
    pub home: u32,
    pub away: u32,
}

/// What became of a posted score event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Posted {
    /// 202: durable, and published under this id.
    Accepted { event_id: Option<u64>, superseded: bool },
    /// 200: the same had come before; nothing was published again.
    Repeated { event_id: Option<u64> },
    /// It will not be taken.
    Refused { status: u16, code: String, message: String },
}

/// `GET /v1/rooms/{room}/snapshot`, never older than `min`.
pub async fn snapshot(http: &Http, room: &str, min: Option<u64>) -> Result<Value, Fault> {
    let query = min.map(|m| format!("?min={m}")).unwrap_or_default();
    http.get(&format!("/v1/rooms/{}/snapshot{query}", segment(room))).await?.success()?.json()
}

/// `GET /v1/rooms/{room}/snapshot?before=…`: at most `limit` (1 to 200) comments older than `before`, newest last, and whether there are more.
pub async fn older(http: &Http, room: &str, before: u64, limit: usize) -> Result<(Vec<Value>, bool), Fault> {
    let target = format!("/v1/rooms/{}/snapshot?before={before}&limit={limit}", segment(room));
    let mut page = http.get(&target).await?.success()?.json()?;
    let more = page["more"] == true;
    match page["recent_comments"].take() {
        Value::Array(comments) => Ok((comments, more)),
        _ => Err(Fault::Protocol("a page back without comments".to_owned())),
    }
}

/// The room's settings, or `None` when it does not exist.
pub async fn settings(http: &Http, room: &str) -> Result<Option<Value>, Fault> {
    let reply = http.get(&format!("/admin/rooms/{}", segment(room))).await?;
    if reply.status == 404 { Ok(None) } else { reply.success()?.json().map(Some) }
}

/// Changes the given settings and leaves the others; creates the room when it does not exist.
pub async fn put(http: &Http, room: &str, change: &Value, justification: &str) -> Result<Value, Fault> {
    let mut body = change.clone();
    if let Some(members) = body.as_object_mut() {
        members.insert("justification".to_owned(), json!(justification));
    }
    let body = serde_json::to_vec(&body).expect("a value serialises");
    http.call("PUT", &format!("/admin/rooms/{}", segment(room)), &[], Some(&body)).await?.success()?.json()
}

/// Posts one score event until it is taken or refused for good; waits out 429 and 503 up to `patience`.
///
/// `room`: binds the match to this room where the server is in development mode.
pub async fn post_score(
    http: &Http,
    event: &ScoreEvent,
    room: Option<&str>,
    signer: Option<&Signer>,
    patience: Duration,
) -> Result<Posted, Fault> {
    const PATH: &str = "/v1/score-event";
    let body = serde_json::to_vec(event).expect("text and numbers serialise");
    let target = room.map_or_else(|| PATH.to_owned(), |room| format!("{PATH}?room={}", segment(room)));
    let patience = Patience::of(patience);
    let reply = loop {
        let signature;
        let mut headers = vec![("X-Provider-Id", event.provider.as_str())];
        if let Some(signer) = signer {
            let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            signature = signer.signature("POST", PATH, unix, &body);
            headers.push(("X-Signature", &signature));
        }
        let reply = http.call("POST", &target, &headers, Some(&body)).await?;
        if !patience.again(&reply).await {
            break reply;
        }
    };
    let answer = serde_json::from_slice::<Value>(&reply.body).unwrap_or(Value::Null);
    let event_id = answer.get("event_id").and_then(Value::as_u64);
    Ok(match reply.status {
        202 => {
            let superseded = answer.get("superseded").and_then(Value::as_bool).unwrap_or(false);
            Posted::Accepted { event_id, superseded }
        }
        200 => Posted::Repeated { event_id },
        status => {
            let code = answer.get("code").and_then(Value::as_str).unwrap_or("refused").to_owned();
            let detail = ["detail", "message", "title"].iter().find_map(|k| answer.get(k)?.as_str());
            Posted::Refused { status, code, message: detail.unwrap_or_default().to_owned() }
        }
    })
}
