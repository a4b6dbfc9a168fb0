//! The parser vectors of ircdocs, as published in `irc-parser-tests` (CC0), rewritten from YAML to JSON and otherwise as they are.

use std::collections::BTreeMap;
use std::path::Path;

use grandstand_wire::irc::{Line, Source, Writer};
use serde_json::Value;

/// The rows of a file; `n` is how many it is known to hold, so that an empty one is no pass.
fn rows(name: &str, n: usize) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/irc").join(name);
    let text = std::fs::read_to_string(&path).expect("the vectors are in the repository");
    let file: Value = serde_json::from_str(&text).expect("JSON");
    let rows = file["tests"].as_array().expect("rows").clone();
    assert_eq!(rows.len(), n, "{name}");
    rows
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn params(atoms: &Value) -> Vec<&str> {
    atoms["params"].as_array().map_or_else(Vec::new, |params| params.iter().map(text).collect())
}

fn tags(atoms: &Value) -> BTreeMap<&str, &str> {
    atoms["tags"].as_object().map_or_else(BTreeMap::new, |tags| tags.iter().map(|(k, v)| (&**k, text(v))).collect())
}

#[test]
fn lines_are_split_as_the_vectors_say() {
    for row in rows("msg-split.json", 35) {
        let (input, atoms) = (text(&row["input"]), &row["atoms"]);
        let line = Line::parse(input).unwrap_or_else(|fault| panic!("{input:?}: {fault:?}"));
        assert_eq!(line.verb, text(&atoms["verb"]), "{input:?}");
        assert_eq!(line.source, atoms["source"].as_str(), "{input:?}");
        assert_eq!(line.params, params(atoms), "{input:?}");
        // The last of a key counts.
        let read: BTreeMap<&str, &str> = line.tags.iter().map(|(key, value)| (*key, &**value)).collect();
        assert_eq!(read, tags(atoms), "{input:?}");
        for (key, value) in tags(atoms) {
            assert_eq!(line.tag(key), Some(value), "{input:?}");
        }
    }
}

#[test]
fn lines_are_joined_as_the_vectors_say() {
    for row in rows("msg-join.json", 17) {
        let atoms = &row["atoms"];
        let matches: Vec<&str> = row["matches"].as_array().expect("matches").iter().map(text).collect();
        // A tag without a value is written as one without or as an empty one: the vectors know no difference.
        let written = [false, true].map(|as_flag| {
            let mut out = Vec::new();
            let mut writer = Writer::new(&mut out);
            for (key, value) in tags(atoms) {
                writer = if as_flag && value.is_empty() { writer.flag(key) } else { writer.tag(key, value) };
            }
            let mut writer = writer.verb(atoms["source"].as_str(), text(&atoms["verb"]));
            let params = params(atoms);
            let Some((last, words)) = params.split_last() else {
                writer.end();
                return String::from_utf8(out).expect("text");
            };
            for word in words {
                writer = writer.param(word);
            }
            // What may be a word is one: some vectors know no other form.
            if last.is_empty() || last.starts_with(':') || last.contains(' ') {
                writer.text(last);
            } else {
                writer.param(last).end();
            }
            String::from_utf8(out).expect("text")
        });
        let hit = written.iter().any(|line| matches.contains(&line.trim_end_matches("\r\n")));
        assert!(hit, "{}: {written:?} is none of {matches:?}", text(&row["desc"]));
    }
}

#[test]
fn sources_are_split_as_the_vectors_say() {
    for row in rows("userhost-split.json", 9) {
        let atoms = &row["atoms"];
        let source = Source::split(text(&row["source"]));
        assert_eq!(
            (source.nick, source.user, source.host),
            (text(&atoms["nick"]), text(&atoms["user"]), text(&atoms["host"]))
        );
    }
}
