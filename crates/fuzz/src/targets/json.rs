//! JSON and operations: taken and refused as serde_json does it, less what the protocol forbids beyond it.

use std::collections::HashSet;
use std::fmt;

use grandstand_core::rng::Rng;
use grandstand_wire::json;
use grandstand_wire::op::{self, Op};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::bytes::{number, outcome, pick, text, word};

pub fn generate(rng: &mut Rng) -> Vec<u8> {
    let mut out = String::new();
    value(&mut out, 0, rng);
    out.into_bytes()
}

fn value(out: &mut String, depth: u64, rng: &mut Rng) {
    if rng.chance(1, 50) {
        *out +=
            pick(&["\u{feff}", "NaN", "'", ",", "]", "}", "01", "+1", "1.", "1e", "-", "tru", "\u{b}", "/**/"], rng);
    }
    *out += pick(&["", "", "", " ", "\n\t"], rng);
    match rng.below(if depth > 20 { 5 } else { 8 }) {
        0 => *out += pick(&["null", "true", "false"], rng),
        1 => *out += &number(rng).to_string(),
        2 => *out += pick(&["-0", "0.5", "1e3", "-1E+9", "1e400", "123456789012345678901234567890", "0e0", "1.0"], rng),
        3 | 4 => string(out, rng),
        5 if rng.chance(1, 3) => *out += &["[".repeat(15), "]".repeat(15)].concat(),
        5 | 6 => {
            *out += "[";
            for n in 0..rng.below(4) {
                *out += if n > 0 { "," } else { "" };
                value(out, depth + 1, rng);
            }
            *out += "]";
        }
        _ => {
            *out += "{";
            let members = if rng.chance(1, 20) { 20 } else { rng.below(4) };
            for n in 0..members {
                *out += if n > 0 { "," } else { "" };
                match rng.below(4) {
                    0 => *out += "\"a\"",
                    1 => *out += "\"\\u0061\"",
                    2 => *out += &format!("\"k{n}\""),
                    _ => string(out, rng),
                }
                *out += ":";
                value(out, depth + 1, rng);
            }
            *out += "}";
        }
    }
    *out += pick(&["", "", "", " ", "\r\n"], rng);
}

fn string(out: &mut String, rng: &mut Rng) {
    if rng.chance(1, 2) {
        // As it should be written.
        *out += &Value::String(text(rng, 3)).to_string();
        return;
    }
    let escapes = [
        "a",
        "\\n",
        "\\u00e9",
        "\\ud83d\\ude00",
        "\\ud800",
        "\\udc00",
        "\\ud800\\ud800",
        "\\u12",
        "\\x",
        "\\/",
        "\\u0000",
        "\\\"",
        "\t",
        "\u{1}",
        "é",
    ];
    *out += "\"";
    for _ in 0..rng.below(4) {
        *out += if rng.chance(3, 4) { pick(&escapes[..4], rng) } else { pick(&escapes, rng) };
    }
    *out += "\"";
}

pub fn check(input: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(input);
    let theirs = strict(&text);
    match (json::parse(&text), theirs) {
        (Ok(value), Theirs::Good) => {
            let mut canonical = Vec::new();
            value.write_canonical(&mut canonical);
            let canonical = String::from_utf8(canonical).expect("JSON is text");
            assert_eq!(serde_json::from_str::<Value>(&canonical).ok(), serde_json::from_str(&text).ok(), "{canonical}");
            let mut again = Vec::new();
            json::parse(&canonical).expect("what is canonical is good").write_canonical(&mut again);
            assert_eq!(String::from_utf8_lossy(&again), canonical);
            outcome(&[1, kind(&value)])
        }
        // A number that no double holds is JSON all the same; they cannot say more about the text.
        (Ok(value), Theirs::Unheld) => outcome(&[2, kind(&value)]),
        (Ok(_), Theirs::Refused(why)) => panic!("taken, and {why}"),
        (Err(fault), Theirs::Good) => panic!("refused: {fault}"),
        (Err(fault), Theirs::Refused(_) | Theirs::Unheld) => {
            assert!(fault.at <= text.len());
            outcome(&[3, word(fault.rule)])
        }
    }
}

fn kind(value: &json::Value<'_>) -> u64 {
    match value {
        json::Value::Null => 1,
        json::Value::Bool(_) => 2,
        json::Value::Number(_) => 3 + u64::from(value.as_u64().is_some()),
        json::Value::Text(_) => 5,
        json::Value::Array(_) => 6,
        json::Value::Object(_) => 7,
    }
}

enum Theirs {
    Good,
    Unheld,
    Refused(String),
}

fn strict(text: &str) -> Theirs {
    match serde_json::from_str::<Strict>(text) {
        Ok(Strict(depth)) if depth > json::DEPTH_MAX => Theirs::Refused(format!("it is {depth} deep")),
        Ok(_) => Theirs::Good,
        Err(e) if e.to_string().contains("number out of range") => Theirs::Unheld,
        Err(e) => Theirs::Refused(e.to_string()),
    }
}

/// How deep arrays and objects stand in each other; no key twice.
struct Strict(usize);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Strict, D::Error> {
        d.deserialize_any(Walk)
    }
}

struct Walk;

impl<'de> Visitor<'de> for Walk {
    type Value = Strict;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }
    fn visit_unit<E>(self) -> Result<Strict, E> {
        Ok(Strict(0))
    }
    fn visit_bool<E>(self, _: bool) -> Result<Strict, E> {
        Ok(Strict(0))
    }
    fn visit_u64<E>(self, _: u64) -> Result<Strict, E> {
        Ok(Strict(0))
    }
    fn visit_i64<E>(self, _: i64) -> Result<Strict, E> {
        Ok(Strict(0))
    }
    fn visit_f64<E>(self, _: f64) -> Result<Strict, E> {
        Ok(Strict(0))
    }
    fn visit_str<E>(self, _: &str) -> Result<Strict, E> {
        Ok(Strict(0))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Strict, A::Error> {
        let mut depth = 0;
        while let Some(Strict(inner)) = seq.next_element()? {
            depth = depth.max(inner);
        }
        Ok(Strict(depth + 1))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Strict, A::Error> {
        let (mut depth, mut keys) = (0, HashSet::new());
        while let Some((key, Strict(inner))) = map.next_entry::<String, Strict>()? {
            if !keys.insert(key) {
                return Err(serde::de::Error::custom("a key stands there twice"));
            }
            depth = depth.max(inner);
        }
        Ok(Strict(depth + 1))
    }
}

pub fn generate_op(rng: &mut Rng) -> Vec<u8> {
    let ops = [
        "hello", "publish", "react", "like", "report", "join", "leave", "follow", "unfollow", "auth", "ping", "shout",
        "",
    ];
    let members = [
        "room_id",
        "client_msg_id",
        "body",
        "reply_to",
        "as",
        "token",
        "last_event_id",
        "event_id",
        "kind",
        "n",
        "reason",
        "user_id",
        "later",
    ];
    let mut all = vec![format!("\"op\":\"{}\"", pick(&ops, rng))];
    for member in members {
        if rng.chance(1, 2) {
            let mut said = String::new();
            match rng.below(8) {
                0 => value(&mut said, 18, rng),
                1 => said += &number(rng).to_string(),
                2 => said += "null",
                3 => string(&mut said, rng),
                _ => {
                    said += match member {
                        "room_id" => pick(&["\"a\"", "\"match:1\"", "\"A\"", "\"a/../b\"", "\"\""], rng),
                        "client_msg_id" => pick(&["\"k\"", "\"k 1\"", "\"\"", "\"\\n\""], rng),
                        "last_event_id" | "event_id" | "reply_to" => pick(
                            &["0", "8589934599", "9007199254740991", "9007199254740992", "-1", "1.0", "\"5\""],
                            rng,
                        ),
                        "n" => pick(&["1", "50", "51", "0", "1.5"], rng),
                        "as" => pick(
                            &[
                                r#"{"id":"u"}"#,
                                r#"{"id":"u","name":"Ada","badges":["a"]}"#,
                                r#"{"id":""}"#,
                                r#"{"id":"u","name":"\u200b"}"#,
                            ],
                            rng,
                        ),
                        _ => pick(&["\"a\"", "\"goal ⚽\"", "\"\\u0007\""], rng),
                    }
                }
            }
            all.push(format!("\"{member}\":{said}"));
        }
    }
    if rng.chance(1, 20) {
        all.push(all[rng.below(all.len() as u64) as usize].clone());
    }
    format!("{{{}}}", all.join(",")).into_bytes()
}

pub fn check_op(input: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(input);
    let theirs: Option<Value> = serde_json::from_str(&text).ok();
    let op = match op::parse(&text) {
        Err(fault) => {
            assert!(fault.code.status() / 100 == 4, "{fault}");
            let is_json = matches!(strict(&text), Theirs::Good);
            assert!(fault.code.name() == "bad_json" || json::parse(&text).is_ok(), "{fault}");
            if is_json && theirs.as_ref().is_some_and(Value::is_object) {
                assert_ne!(fault.code.name(), "bad_json", "{fault}");
            }
            let key = theirs.as_ref().and_then(|t| t["client_msg_id"].as_str());
            assert!(fault.client_msg_id.as_ref().is_none_or(|k| theirs.is_none() || Some(k.as_str()) == key));
            let rule: String = fault.text.chars().filter(|c| !c.is_ascii_digit()).collect();
            return outcome(&[1, word(fault.code.name()), word(&rule)]);
        }
        Ok(op) => op,
    };
    let Some(theirs) = theirs else { return outcome(&[2]) };
    let member = |name: &str| &theirs[name];
    let is_id = |ours: Option<u64>, name: &str| assert_eq!(ours, member(name).as_u64(), "{name}");
    let is_text = |ours: Option<&str>, name: &str| assert_eq!(ours, member(name).as_str(), "{name}");
    let name = match &op {
        Op::Hello { token, last_event_id } => {
            is_text(token.as_deref(), "token");
            is_id(last_event_id.map(|p| p.value()), "last_event_id");
            "hello"
        }
        Op::Publish(publish) => {
            is_text(publish.room.as_ref().map(|r| r.as_str()), "room_id");
            is_text(Some(publish.client_msg_id.as_str()), "client_msg_id");
            is_text(Some(&publish.text), "body");
            is_id(publish.reply_to.map(|id| id.value()), "reply_to");
            assert_eq!(publish.speak_as.as_ref().map(|s| s.id.as_str()), member("as")["id"].as_str());
            "publish"
        }
        Op::React { event_id, kind, .. } => {
            is_id(Some(event_id.value()), "event_id");
            is_text(Some(kind), "kind");
            "react"
        }
        Op::Like(like) => {
            is_text(like.room.as_ref().map(|r| r.as_str()), "room_id");
            is_id(Some(u64::from(like.n)), "n");
            "like"
        }
        Op::Report { event_id, reason, .. } => {
            is_id(Some(event_id.value()), "event_id");
            is_text(Some(reason), "reason");
            "report"
        }
        Op::Join { room, last_event_id } => {
            is_text(Some(room.as_str()), "room_id");
            is_id(last_event_id.map(|p| p.value()), "last_event_id");
            "join"
        }
        Op::Leave { room } => {
            is_text(Some(room.as_str()), "room_id");
            "leave"
        }
        Op::Follow { user } | Op::Unfollow { user } => {
            is_text(Some(user.as_str()), "user_id");
            if matches!(op, Op::Follow { .. }) { "follow" } else { "unfollow" }
        }
        Op::Auth { token } => {
            is_text(Some(token), "token");
            "auth"
        }
        Op::Ping => "ping",
    };
    assert_eq!(member("op").as_str(), Some(name));
    outcome(&[3, word(name), u64::from(!member("room_id").is_null()), u64::from(!member("as").is_null())])
}
