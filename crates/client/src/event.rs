//! Server events as a client reads them.

use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::addresses::Told;
use crate::retry::End;

/// One event: the members the client itself acts on, and the whole as it came.
#[derive(Clone, Debug)]
pub struct Event {
    pub members: Members,
    /// The JSON object.
    pub json: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub struct Members {
    #[serde(rename = "type")]
    pub kind: String,
    pub room_id: Option<String>,
    pub event_id: Option<u64>,
    pub pseq: Option<u64>,
    pub client_msg_id: Option<String>,
    pub duplicate: Option<bool>,
    pub code: Option<serde_json::Value>,
    pub reason: Option<String>,
    pub message: Option<String>,
    pub retry_after_ms: Option<u64>,
    pub spread_ms: Option<u64>,
    pub count: Option<u64>,
    pub cursor: Option<u64>,
    pub resumed: Option<bool>,
    pub snapshot_url: Option<String>,
    pub endpoints: Option<Told>,
}

impl Event {
    pub fn parse(json: &str) -> Result<Event, serde_json::Error> {
        Ok(Event { members: serde_json::from_str(json)?, json: json.to_owned() })
    }

    /// Reads a frame: one object, or an array of them in id order.
    pub fn parse_frame(text: &str) -> Result<Vec<Event>, serde_json::Error> {
        if !text.trim_start().starts_with('[') {
            return Ok(vec![Event::parse(text)?]);
        }
        let raw: Vec<&RawValue> = serde_json::from_str(text)?;
        raw.into_iter().map(|one| Event::parse(one.get())).collect()
    }

    pub fn kind(&self) -> &str {
        &self.members.kind
    }

    /// Where a stream stands once this has been seen, when it moves.
    pub fn position(&self) -> Option<u64> {
        match self.kind() {
            "hello" | "snapshot_required" => self.members.cursor,
            // Answers carry ids of the client's own comments, which may be ahead of what it was served.
            "publish_ack" | "publish_commit" | "error" | "rate_limited" => None,
            _ => self.members.event_id,
        }
    }

    /// `retry_after_ms`, when told.
    pub fn retry_after(&self) -> Option<Duration> {
        self.members.retry_after_ms.map(Duration::from_millis)
    }

    /// An `error`'s code.
    pub fn code(&self) -> Option<&str> {
        self.members.code.as_ref()?.as_str()
    }

    /// A `close` event as the end of its stream.
    pub fn end(&self) -> Option<End> {
        let code = u16::try_from(self.members.code.as_ref()?.as_u64()?).ok()?;
        Some(End::Code {
            code,
            reason: self.members.reason.clone().unwrap_or_default(),
            retry_after: self.retry_after(),
            spread: self.members.spread_ms.map(Duration::from_millis),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Event;
    use crate::retry::End;

    #[test]
    fn a_frame_is_one_object_or_an_array() {
        let one = Event::parse_frame(r#"{"type":"pong"}"#).unwrap();
        assert_eq!((one.len(), one[0].kind()), (1, "pong"));
        let two = Event::parse_frame(r#" [{"type":"comment","event_id":8,"body":"a"}, {"type":"skipped","count":3}]"#)
            .unwrap();
        assert_eq!((two[0].position(), two[1].position(), two[1].members.count), (Some(8), None, Some(3)));
        assert_eq!(two[0].json, r#"{"type":"comment","event_id":8,"body":"a"}"#);
        assert!(Event::parse_frame("nonsense").is_err());
    }

    #[test]
    fn an_ack_does_not_move_the_cursor_but_hello_does() {
        let ack = Event::parse(r#"{"type":"publish_ack","event_id":9,"client_msg_id":"k"}"#).unwrap();
        assert_eq!(ack.position(), None);
        assert_eq!(Event::parse(r#"{"type":"hello","cursor":5}"#).unwrap().position(), Some(5));
    }

    #[test]
    fn a_close_event_carries_code_and_waits() {
        let close = Event::parse(r#"{"type":"close","code":4112,"reason":"drain","retry_after_ms":500}"#).unwrap();
        let End::Code { code, retry_after, spread, .. } = close.end().unwrap() else { panic!("a code") };
        assert_eq!((code, retry_after.unwrap().as_millis(), spread), (4112, 500, None));
        let error = Event::parse(r#"{"type":"error","code":"bad_text"}"#).unwrap();
        assert_eq!((error.code(), error.end()), (Some("bad_text"), None));
    }
}
