//! What a client says on a WebSocket: one JSON object a text frame.
//!
//! Reading is strict about JSON and about the members an operation has, and blind to members it does not know, so that
//! newer clients can talk to older servers. It checks form alone: whether a text may be shown is `core::text`, whether the
//! user may speak is the owner. A fault names the rule, a code of the protocol, and the client's key when it could be read.

use std::borrow::Cow;
use std::fmt;

use grandstand_core::ids::{EventId, Position};
use grandstand_core::names::{ClientMsgId, LikeKind, RoomId, UserId};
use grandstand_core::reject::Code;
use grandstand_core::text::check_name;

use crate::codes::ErrorCode;
use crate::json::{self, Object, Value};
use crate::limits;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    Hello { token: Option<String>, last_event_id: Option<Position> },
    Publish(Publish),
    React { room: Option<RoomId>, event_id: EventId, kind: String },
    Like(Like),
    Report { room: Option<RoomId>, event_id: EventId, reason: String },
    Join { room: RoomId, last_event_id: Option<Position> },
    Leave { room: RoomId },
    Follow { user: UserId },
    Unfollow { user: UserId },
    Auth { token: String },
    Ping,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Publish {
    /// `None` on a one-room connection, or when the URL names the room.
    pub room: Option<RoomId>,
    pub client_msg_id: ClientMsgId,
    /// As the client sent it: not yet through the comment text rule.
    pub text: String,
    pub reply_to: Option<EventId>,
    /// Speak as this user; for role `backend` alone.
    pub speak_as: Option<SpeakAs>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Like {
    /// As for [`Publish`].
    pub room: Option<RoomId>,
    pub kind: LikeKind,
    /// 1 to 50.
    pub n: u32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpeakAs {
    pub id: UserId,
    pub name: String,
    pub badges: Vec<String>,
}

/// Why an operation was not understood.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpFault {
    pub code: ErrorCode,
    /// For people: names the rule.
    pub text: String,
    pub client_msg_id: Option<ClientMsgId>,
}

impl fmt::Display for OpFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.name(), self.text)
    }
}

/// Reads one client frame of at most 16 KiB (the caller has refused longer ones).
///
/// Errors: `bad_json`, `bad_op`, `bad_room`, `bad_cursor`; `bad_text` and `too_long` for a name of `as`.
pub fn parse(frame: &str) -> Result<Op, OpFault> {
    let value = json::parse(frame).map_err(|e| fault(ErrorCode::BadJson, e.to_string()))?;
    let Value::Object(object) = &value else {
        return Err(fault(ErrorCode::BadJson, "a frame is one JSON object"));
    };
    read(object).map_err(|mut f| {
        f.client_msg_id = object.given("client_msg_id").and_then(Value::as_str).and_then(ClientMsgId::parse);
        f
    })
}

fn read(object: &Object<'_>) -> Result<Op, OpFault> {
    let op = match object.given("op") {
        Some(Value::Text(op)) => op,
        Some(_) => return Err(fault(ErrorCode::BadOp, "op is a string")),
        None => return Err(fault(ErrorCode::BadOp, "op is missing")),
    };
    Ok(match &**op {
        "publish" => Op::Publish(publish(object, room(object)?)?),
        "hello" => Op::Hello { token: text_if(object, "token")?, last_event_id: cursor(object, "last_event_id")? },
        "react" => Op::React {
            room: room(object)?,
            event_id: event_id(object, "event_id")?.ok_or_else(|| missing("event_id"))?,
            kind: bounded(text(object, "kind")?, "kind", limits::BADGE_BYTES_MAX)?,
        },
        "like" => Op::Like(Like { room: room(object)?, kind: like_kind(object)?, n: like_count(object)? }),
        "report" => Op::Report {
            room: room(object)?,
            event_id: event_id(object, "event_id")?.ok_or_else(|| missing("event_id"))?,
            reason: bounded(text(object, "reason")?, "reason", limits::REASON_BYTES_MAX)?,
        },
        "join" => Op::Join {
            room: room(object)?.ok_or_else(|| missing("room_id"))?,
            last_event_id: cursor(object, "last_event_id")?,
        },
        "leave" => Op::Leave { room: room(object)?.ok_or_else(|| missing("room_id"))? },
        "follow" => Op::Follow { user: user(object)? },
        "unfollow" => Op::Unfollow { user: user(object)? },
        "auth" => Op::Auth { token: text(object, "token")? },
        "ping" => Op::Ping,
        _ => return Err(fault(ErrorCode::BadOp, "unknown op")),
    })
}

fn publish(object: &Object<'_>, room: Option<RoomId>) -> Result<Publish, OpFault> {
    let client_msg_id = match object.given("client_msg_id") {
        Some(Value::Text(key)) => ClientMsgId::parse(key).ok_or_else(|| fault(ErrorCode::BadOp, ClientMsgId::RULE))?,
        Some(_) => return Err(fault(ErrorCode::BadOp, ClientMsgId::RULE)),
        None => return Err(missing("client_msg_id")),
    };
    Ok(Publish {
        room,
        client_msg_id,
        text: text(object, "body")?,
        reply_to: event_id(object, "reply_to")?,
        speak_as: object.given("as").map(speak_as).transpose()?,
    })
}

fn speak_as(value: &Value<'_>) -> Result<SpeakAs, OpFault> {
    let Value::Object(object) = value else {
        return Err(fault(ErrorCode::BadOp, "as is an object of id, name and badges"));
    };
    let id = text(object, "id")?;
    let id = UserId::parse(&id).ok_or_else(|| fault(ErrorCode::BadOp, UserId::RULE))?;
    let name = match text_if(object, "name")? {
        Some(name) => display(&name)?,
        None => id.as_str().to_owned(),
    };
    Ok(SpeakAs { id, name, badges: badges(object)? })
}

fn display(name: &str) -> Result<String, OpFault> {
    check_name(name).map(Cow::into_owned).map_err(|broken| {
        let code = if broken.code() == Code::TooLong { ErrorCode::TooLong } else { ErrorCode::BadText };
        fault(code, broken.to_string())
    })
}

fn badges(object: &Object<'_>) -> Result<Vec<String>, OpFault> {
    let rule = || fault(ErrorCode::BadOp, "badges are up to 8 names of at most 32 bytes");
    match object.given("badges") {
        None => Ok(Vec::new()),
        Some(Value::Array(items)) if items.len() <= limits::BADGES_MAX => items
            .iter()
            .map(|item| {
                item.as_str()
                    .filter(|badge| badge.len() <= limits::BADGE_BYTES_MAX)
                    .and_then(|badge| check_name(badge).ok())
                    .map(Cow::into_owned)
                    .ok_or_else(rule)
            })
            .collect(),
        Some(_) => Err(rule()),
    }
}

fn room(object: &Object<'_>) -> Result<Option<RoomId>, OpFault> {
    match object.given("room_id") {
        None => Ok(None),
        Some(Value::Text(id)) => match RoomId::parse(id) {
            Some(id) => Ok(Some(id)),
            None => Err(fault(ErrorCode::BadRoom, RoomId::RULE)),
        },
        Some(_) => Err(fault(ErrorCode::BadRoom, RoomId::RULE)),
    }
}

fn user(object: &Object<'_>) -> Result<UserId, OpFault> {
    UserId::parse(&text(object, "user_id")?).ok_or_else(|| fault(ErrorCode::BadOp, UserId::RULE))
}

fn cursor(object: &Object<'_>, key: &'static str) -> Result<Option<Position>, OpFault> {
    match object.given(key) {
        None => Ok(None),
        Some(value) => match value.as_u64().and_then(Position::new) {
            Some(position) => Ok(Some(position)),
            None => Err(fault(ErrorCode::BadCursor, format!("{key} is an integer from 0 to 2^53 - 1"))),
        },
    }
}

fn event_id(object: &Object<'_>, key: &'static str) -> Result<Option<EventId>, OpFault> {
    match object.given(key) {
        None => Ok(None),
        Some(value) => match value.as_u64().and_then(EventId::new) {
            Some(id) => Ok(Some(id)),
            None => Err(fault(ErrorCode::BadOp, format!("{key} is the integer id of an event"))),
        },
    }
}

fn like_kind(object: &Object<'_>) -> Result<LikeKind, OpFault> {
    match text_if(object, "kind")? {
        None => Ok(LikeKind::plain()),
        Some(kind) => LikeKind::parse(&kind).ok_or_else(|| fault(ErrorCode::BadOp, LikeKind::RULE)),
    }
}

fn like_count(object: &Object<'_>) -> Result<u32, OpFault> {
    match object.given("n").ok_or_else(|| missing("n"))?.as_u64() {
        Some(n @ 1..=limits::LIKES_PER_OP_MAX) => Ok(n as u32),
        _ => Err(fault(ErrorCode::BadOp, "n is an integer from 1 to 50")),
    }
}

fn text(object: &Object<'_>, key: &'static str) -> Result<String, OpFault> {
    text_if(object, key)?.ok_or_else(|| missing(key))
}

fn text_if(object: &Object<'_>, key: &'static str) -> Result<Option<String>, OpFault> {
    match object.given(key) {
        None => Ok(None),
        Some(Value::Text(text)) => Ok(Some(text.clone().into_owned())),
        Some(_) => Err(fault(ErrorCode::BadOp, format!("{key} is a string"))),
    }
}

fn bounded(text: String, key: &'static str, bytes_max: usize) -> Result<String, OpFault> {
    if (1..=bytes_max).contains(&text.len()) {
        Ok(text)
    } else {
        Err(fault(ErrorCode::BadOp, format!("{key} is 1 to {bytes_max} bytes")))
    }
}

fn missing(key: &'static str) -> OpFault {
    fault(ErrorCode::BadOp, format!("{key} is missing"))
}

fn fault(code: ErrorCode, text: impl Into<String>) -> OpFault {
    OpFault { code, text: text.into(), client_msg_id: None }
}

#[cfg(test)]
mod tests {
    use grandstand_core::ids::Position;
    use grandstand_core::names::ClientMsgId;
    use proptest::prelude::{any, proptest};

    use super::{Op, parse};

    const ID: u64 = 1 << 33 | 7;

    #[track_caller]
    fn refused(frame: &str, code: &str, text: &str) {
        let fault = parse(frame).expect_err(frame);
        assert_eq!((fault.code.name(), &*fault.text), (code, text), "{frame}");
    }

    #[test]
    fn a_publish_is_read_whole() {
        let frame = format!(
            r#"{{"op":"publish","room_id":"a:b","client_msg_id":"k 1","body":"caf\u00e9 \ud83d\ude00","reply_to":{ID},
            "as":{{"id":"u1","name":"Ada","badges":["sub"]}},"later":[1,{{"x":null}}]}}"#
        );
        let Op::Publish(p) = parse(&frame).unwrap() else { panic!("{frame}") };
        assert_eq!(p.room.unwrap().as_str(), "a:b");
        assert_eq!((p.client_msg_id.as_str(), &*p.text), ("k 1", "café 😀"));
        assert_eq!(p.reply_to.unwrap().value(), ID);
        let speak_as = p.speak_as.unwrap();
        assert_eq!((speak_as.id.as_str(), &*speak_as.name, speak_as.badges.len()), ("u1", "Ada", 1));
    }

    #[test]
    fn null_is_the_same_as_absent() {
        let frame = r#"{"op":"publish","client_msg_id":"k","body":"x","reply_to":null,"room_id":null,"as":null}"#;
        let Op::Publish(p) = parse(frame).unwrap() else { panic!() };
        assert_eq!((p.room, p.reply_to, p.speak_as), (None, None, None));
        let hello = parse(r#"{"op":"hello","token":null,"last_event_id":0}"#).unwrap();
        assert_eq!(hello, Op::Hello { token: None, last_event_id: Some(Position::START) });
    }

    #[test]
    fn every_operation_is_read() {
        for frame in [
            r#"{"op":"hello","token":"a.b.c","last_event_id":9007199254740991}"#.to_owned(),
            format!(r#"{{"op":"react","event_id":{ID},"kind":"fire"}}"#),
            r#"{"op":"like","n":50}"#.to_owned(),
            format!(r#"{{"op":"report","event_id":{ID},"reason":"spam"}}"#),
            r#"{"op":"join","room_id":"r","last_event_id":5}"#.to_owned(),
            r#"{"op":"leave","room_id":"r"}"#.to_owned(),
            r#"{"op":"follow","user_id":"u"}"#.to_owned(),
            r#"{"op":"unfollow","user_id":"u"}"#.to_owned(),
            r#"{"op":"auth","token":"a.b.c"}"#.to_owned(),
            r#" {"op":"ping"} "#.to_owned(),
        ] {
            parse(&frame).unwrap_or_else(|e| panic!("{frame}: {e}"));
        }
    }

    #[test]
    fn each_broken_rule_is_named_with_its_code() {
        refused("[]", "bad_json", "a frame is one JSON object");
        refused(r#"{"op":"ping","op":"ping"}"#, "bad_json", "an object has each key once (at byte 25)");
        refused("{}", "bad_op", "op is missing");
        refused(r#"{"op":1}"#, "bad_op", "op is a string");
        refused(r#"{"op":"shout"}"#, "bad_op", "unknown op");
        refused(r#"{"op":"publish","body":"x"}"#, "bad_op", "client_msg_id is missing");
        refused(r#"{"op":"publish","client_msg_id":7}"#, "bad_op", ClientMsgId::RULE);
        refused(r#"{"op":"publish","client_msg_id":"k"}"#, "bad_op", "body is missing");
        refused(r#"{"op":"publish","client_msg_id":"k","body":1}"#, "bad_op", "body is a string");
        refused(
            r#"{"op":"publish","client_msg_id":"k","body":"x","reply_to":"7"}"#,
            "bad_op",
            "reply_to is the integer id of an event",
        );
        refused(
            r#"{"op":"publish","client_msg_id":"k","body":"x","as":{"id":"u","name":"\u0007"}}"#,
            "bad_text",
            "the text has 1 control characters, none are allowed",
        );
        refused(r#"{"op":"join"}"#, "bad_op", "room_id is missing");
        refused(
            r#"{"op":"join","room_id":"UP"}"#,
            "bad_room",
            "a room id is 1 to 128 of a-z 0-9 : _ . - and starts with a letter or digit",
        );
        for cursor in ["9007199254740992", "-1", "1e3", "1.0", "\"5\"", "[]"] {
            refused(
                &format!(r#"{{"op":"hello","last_event_id":{cursor}}}"#),
                "bad_cursor",
                "last_event_id is an integer from 0 to 2^53 - 1",
            );
        }
        for kind in ["\"\"", "\"Like\"", "\"a b\"", "\"abcdefghijklmnopq\""] {
            refused(&format!(r#"{{"op":"like","n":1,"kind":{kind}}}"#), "bad_op", super::LikeKind::RULE);
        }
        for n in ["0", "51", "1.5"] {
            refused(&format!(r#"{{"op":"like","n":{n}}}"#), "bad_op", "n is an integer from 1 to 50");
        }
    }

    #[test]
    fn a_fault_carries_the_key_when_it_could_be_read() {
        let key = |frame: &str| parse(frame).unwrap_err().client_msg_id.map(|k| k.to_string());
        assert_eq!(key(r#"{"op":"publish","client_msg_id":"k1"}"#), Some("k1".into()));
        assert_eq!(key(r#"{"op":"publish","client_msg_id":""}"#), None);
        assert_eq!(key(r#"{"op":"publish","client_msg_id":"k1""#), None);
    }

    proptest! {
        #[test]
        fn no_frame_panics(frame in any::<String>()) {
            let _ = parse(&frame);
        }
    }
}
