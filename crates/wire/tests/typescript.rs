//! web/sdk/src/wire.ts is what clients written in TypeScript know of the bytes: written by the code's own tables and by the
//! kept frames of every event type. `GOLDEN=write` renews it.
//!
//! A frame's member is optional when a kept frame of its type lacks it, and of the type that all kept frames show. What a
//! frame cannot show (which texts a member may have, what an empty list would hold) is said in [`KNOWN`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use grandstand_core::record::{Policy, RoomState, ScoreKind, ScoreState};
use grandstand_wire::codes::{CloseCode, ErrorCode, RateReason};
use grandstand_wire::limits;
use serde_json::Value;

/// `type.member`, or `member` of any type, → what it is. A type named here with a capital is declared by its own table or
/// by [`OBJECTS`].
const KNOWN: &[(&str, &str)] = &[
    ("user", "User"),
    ("score", "Goals"),
    ("endpoints", "Endpoints"),
    ("hello.config", "RoomConfig"),
    ("hello.counters", "CounterValues"),
    ("hello.comments", "'all' | 'some'"),
    ("hello.banners", "BannerEvent[]"),
    ("likes", "Record<string, number>"),
    ("badges", "string[]"),
    ("pinned", "number[]"),
    ("sse", "string[]"),
    ("score_event.kind", "ScoreKind"),
    ("score_event.state", "ScoreState"),
    ("config.state", "RoomState"),
    ("RoomConfig.state", "RoomState"),
    ("moderation_policy", "ModerationPolicy"),
    ("error.code", "ErrorCode"),
    ("rate_limited.reason", "RateReason"),
    ("resumed", "boolean"),
    ("sampled", "boolean"),
    ("anonymous_publish", "boolean"),
    ("emote_only", "boolean"),
    ("unique_comment", "boolean"),
    ("members_only", "string | null"),
    // Broadcast banners that ended say nothing else.
    ("minute", "string | null"),
    ("until_ts", "string | null"),
    ("banner.until_ts", "string"),
];

/// Objects inside events: their name, where a frame shows them.
const OBJECTS: &[(&str, &str)] = &[
    ("User", "user"),
    ("Goals", "score"),
    ("Endpoints", "endpoints"),
    ("RoomConfig", "config"),
    ("CounterValues", "counters"),
];

/// Members that a server leaves out, which no kept frame is without.
const OPTIONAL: &[&str] = &[
    "CounterValues.keep_fraction",
    "Endpoints.api",
    "Endpoints.poll",
    "Endpoints.sse",
    "Endpoints.websocket",
    "RoomConfig.cap",
    "close.room_id",
];

fn golden_events() -> Vec<Value> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/events");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    files.iter().map(|f| serde_json::from_str(&fs::read_to_string(f).unwrap()).unwrap()).collect()
}

fn primitive(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(true) => "true",
        Value::Bool(false) => "false",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) | Value::Object(_) => panic!("{value} is not in the table of what frames cannot show"),
    }
}

/// The members of an object type that these frames show, one a line.
fn members(name: &str, frames: &[&serde_json::Map<String, Value>]) -> String {
    let keys: BTreeSet<&String> = frames.iter().flat_map(|f| f.keys()).collect();
    let mut text = String::new();
    for key in keys.into_iter().filter(|k| *k != "type") {
        let path = format!("{name}.{key}");
        let missing = frames.iter().any(|f| !f.contains_key(key)) || OPTIONAL.contains(&path.as_str());
        let known = [path.as_str(), key].iter().find_map(|p| KNOWN.iter().find(|(k, _)| k == p)).map(|(_, t)| *t);
        let its = known.map_or_else(
            || {
                let shown: BTreeSet<&str> = frames.iter().filter_map(|f| f.get(key)).map(primitive).collect();
                shown.into_iter().collect::<Vec<_>>().join(" | ")
            },
            str::to_owned,
        );
        writeln!(text, "  {key}{}: {its};", if missing { "?" } else { "" }).unwrap();
    }
    text
}

fn union<'a>(name: &str, words: impl Iterator<Item = &'a str>) -> String {
    let words: Vec<String> = words.map(|w| format!("'{w}'")).collect();
    format!("export type {name} =\n  | {};\n\n", words.join("\n  | "))
}

fn camel(kind: &str) -> String {
    let words = kind.split('_').map(|w| w[..1].to_uppercase() + &w[1..]);
    words.collect::<String>().trim_end_matches("Event").to_owned() + "Event"
}

fn module() -> String {
    let events = golden_events();
    let mut by_type: BTreeMap<&str, Vec<&serde_json::Map<String, Value>>> = BTreeMap::new();
    for event in &events {
        let object = event.as_object().unwrap();
        by_type.entry(object["type"].as_str().unwrap()).or_default().push(object);
    }
    let mut text = String::from(
        "// What a Grandstand server says, as TypeScript. Written by crates/wire/tests/typescript.rs from the tables of crates/wire\n\
         // and its kept frames; GOLDEN=write renews it.\n\n",
    );
    for (name, member) in OBJECTS {
        let inside: Vec<_> = events.iter().filter_map(|e| e.get(member)).filter_map(Value::as_object).collect();
        assert!(!inside.is_empty(), "no kept frame has a {member}");
        write!(text, "export interface {name} {{\n{}}}\n\n", members(name, &inside)).unwrap();
    }
    for (kind, frames) in &by_type {
        write!(text, "export interface {} {{\n  type: '{kind}';\n{}}}\n\n", camel(kind), members(kind, frames))
            .unwrap();
    }
    let all: Vec<String> = by_type.keys().map(|kind| camel(kind)).collect();
    write!(
        text,
        "/** Every event this version of the server gives. */\nexport type ServerEvent =\n  | {};\n\n",
        all.join("\n  | ")
    )
    .unwrap();
    text += &union("ScoreKind", ScoreKind::ALL.iter().map(|(_, n)| *n));
    text += &union("ScoreState", ScoreState::ALL.iter().map(|(_, n)| *n));
    text += &union("RoomState", RoomState::ALL.iter().map(|(_, n)| *n));
    text += &union("ModerationPolicy", Policy::ALL.iter().map(|(_, n)| *n));
    text += &union("ErrorCode", ErrorCode::ALL.iter().map(|c| c.name()));
    text += &union("RateReason", RateReason::ALL.iter().map(|c| c.name()));
    text += "/** HTTP status of each error code. */\nexport const STATUS_OF_ERROR: Readonly<Record<ErrorCode, number>> = {\n";
    for code in ErrorCode::ALL {
        writeln!(text, "  {}: {},", code.name(), code.status()).unwrap();
    }
    text += "};\n\n/** Why each close code is given. */\nexport const REASON_OF_CLOSE: Readonly<Record<number, string>> = {\n";
    for code in CloseCode::ALL {
        writeln!(text, "  {}: '{}',", code.code(), code.reason()).unwrap();
    }
    text += "};\n\n/** What a client waits after a close that tells no waits: at least, and a uniform draw on top, in milliseconds. */\n";
    text += "export const WAITS_OF_CLOSE: Readonly<Record<number, readonly [number, number]>> = {\n";
    for (code, (retry, spread)) in CloseCode::ALL.iter().filter_map(|c| Some((c, c.retry()?))) {
        writeln!(text, "  {}: [{retry}, {spread}],", code.code()).unwrap();
    }
    text += "};\n\n/** What is bounded, and by how much, in words. */\nexport const LIMITS: Readonly<Record<string, string>> = {\n";
    for (what, bound) in limits::all() {
        writeln!(text, "  '{}': '{}',", what.replace('\'', "\\'"), bound.replace('\'', "\\'")).unwrap();
    }
    text += "};\n";
    text
}

#[test]
fn the_types_of_the_sdk_are_those_of_the_wire() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../web/sdk/src/wire.ts");
    let module = module();
    if std::env::var_os("GOLDEN").is_some_and(|v| v == "write") {
        fs::write(&path, module).unwrap();
        return;
    }
    let kept = fs::read_to_string(&path).unwrap();
    assert_eq!(kept, module, "web/sdk/src/wire.ts is not what the code says (GOLDEN=write renews it)");
}

#[test]
fn a_member_of_an_unknown_shape_is_asked_about() {
    let frame: Value = serde_json::from_str(r#"{"type":"x","list":[]}"#).unwrap();
    let asked = std::panic::catch_unwind(|| members("x", &[frame.as_object().unwrap()]));
    assert!(asked.is_err());
}
