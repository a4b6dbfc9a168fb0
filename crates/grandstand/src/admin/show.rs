//! Answers as a person reads them. What users wrote is printed without what a terminal would obey.

use serde_json::Value;

use crate::plain::plain;

/// A value in a cell: text as it is, anything else as JSON.
pub fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => plain(text),
        other => plain(&other.to_string()),
    }
}

/// Columns as wide as their widest cell; numbers to the right.
pub fn table(head: &[&str], rows: &[Vec<String>]) {
    let width = |i: usize| {
        rows.iter().map(|row| row[i].chars().count()).chain([head[i].chars().count()]).max().expect("the head is there")
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let print = |cells: Vec<&str>| {
        let is_number = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
        let padded: Vec<String> = cells
            .iter()
            .zip(&widths)
            .map(|(text, width)| {
                let pad = " ".repeat(width - text.chars().count());
                if is_number(text) { format!("{pad}{text}") } else { format!("{text}{pad}") }
            })
            .collect();
        println!("{}", padded.join("  ").trim_end());
    };
    print(head.to_vec());
    rows.iter().for_each(|row| print(row.iter().map(String::as_str).collect()));
}

/// A list of the answer, a row each.
pub fn rows(answer: &Value, of: &str, row: impl Fn(&Value) -> Vec<String>) -> Vec<Vec<String>> {
    answer[of].as_array().into_iter().flatten().map(row).collect()
}

/// Rows of a ledger: what was said is not printed, what was decided of it is.
pub fn ledger(answer: &Value) {
    let row = |row: &Value| {
        let (who, what) = match row["operator"].is_null() && row["action"].is_null() {
            true => (cell(&row["user_id"]), cell(&row["verdict"])),
            false => (cell(&row["operator"]), cell(&row["action"])),
        };
        vec![cell(&row["ts"]), cell(&row["event_id"]), cell(&row["kind"]), what, who, cell(&row["justification"])]
    };
    table(&["when", "event", "kind", "what", "who", "why"], &rows(answer, "rows", row));
}

pub fn rooms(answer: &Value) {
    let row = |room: &Value| {
        let counted = |name: &str| cell(&room["counters"][name]);
        let slow = match room["slow_mode_seconds"].as_u64() {
            Some(seconds @ 1..) => format!("{seconds}s"),
            _ => "off".to_owned(),
        };
        vec![
            cell(&room["room_id"]),
            cell(&room["state"]),
            counted("viewers"),
            counted("accepted"),
            counted("skipped"),
            counted("sampled"),
            slow,
            cell(&room["title"]),
        ]
    };
    let head = ["ROOM", "STATE", "VIEWERS", "COMMENTS", "SKIPPED", "SAMPLED", "SLOW", "TITLE"];
    table(&head, &rows(answer, "rooms", row));
}

pub fn settings(settings: &Value) {
    if would(settings) {
        return;
    }
    for (name, value) in settings.as_object().into_iter().flatten() {
        println!("{name} = {}", cell(value));
    }
}

/// Prints the call that a change would be; whether nothing was changed.
fn would(answer: &Value) -> bool {
    let is_dry = answer["dry_run"] == true;
    if is_dry {
        println!("would: {} {} {}", cell(&answer["method"]), cell(&answer["path"]), cell(&answer["body"]));
    }
    is_dry
}

/// What was done, and the event or the version that it became.
pub fn done(what: &str, answer: &Value) {
    if would(answer) {
        return;
    }
    let named = ["event_id", "banner_id", "version", "until_ts"];
    let facts: Vec<String> = named
        .iter()
        .filter_map(|name| answer.get(name).map(|value| (name, value)))
        .map(|(name, value)| match value {
            // A ban or a retract of what is so already, or is not there.
            Value::Null => "there was nothing to change".to_owned(),
            value => format!("{name} {}", cell(value)),
        })
        .collect();
    match facts.is_empty() {
        true => println!("{}", plain(what)),
        false => println!("{} ({})", plain(what), facts.join(", ")),
    }
}

pub fn banners(answer: &Value) {
    let row =
        |b: &Value| vec![cell(&b["banner_id"]), cell(&b["until_ts"]), cell(&b["source_room_id"]), cell(&b["body"])];
    table(&["BANNER", "UNTIL", "ROOM", "TEXT"], &rows(answer, "banners", row));
}

pub fn gateways(answer: &Value) {
    let rate = |limit: &Value| match limit {
        Value::Null => "no limit".to_owned(),
        limit => format!("{}/s", limit["rate"]),
    };
    let row = |g: &Value| {
        let drain = match &g["drain"] {
            Value::Null => "-".to_owned(),
            drain => format!("{} s left", drain["remaining_ms"].as_u64().unwrap_or(0).div_ceil(1_000)),
        };
        let load = &g["load"];
        vec![
            cell(&g["id"]),
            cell(&g["state"]),
            cell(&load["connections"]),
            cell(&load["streams"]),
            rate(&g["admission"]),
            drain,
        ]
    };
    let mut rows = rows(answer, "gateways", row);
    if let Some(all) = answer.get("all") {
        rows.push(vec!["all".into(), "-".into(), "-".into(), "-".into(), rate(&all["admission"]), "-".into()]);
    }
    table(&["GATEWAY", "STATE", "CONNECTIONS", "STREAMS", "ADMISSION", "DRAIN"], &rows);
}

fn goals(score: &Value) -> String {
    match score {
        Value::Null => "-".to_owned(),
        score => format!("{}-{}", score["home"], score["away"]),
    }
}

pub fn providers(answer: &Value) {
    let names = |list: &Value| {
        let names: Vec<&str> = list.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        plain(&names.join(" "))
    };
    let row = |p: &Value| {
        vec![
            cell(&p["provider"]),
            names(&p["kids"]),
            cell(&p["heard_ts"]),
            names(&p["primary_of"]),
            names(&p["stand_by_of"]),
        ]
    };
    table(&["PROVIDER", "KEYS", "HEARD", "PRIMARY OF", "STANDS BY FOR"], &rows(answer, "providers", row));
}

pub fn provider_keys(answer: &Value) {
    let row = |k: &Value| vec![cell(&k["kid"]), cell(&k["from"]), cell(&k["since_ts"]), cell(&k["by"])];
    table(&["KEY", "FROM", "SINCE", "BY"], &rows(answer, "keys", row));
    if answer["taken_back"].as_array().is_some_and(|list| !list.is_empty()) {
        println!("\ntaken back, and in the configuration still:");
        let row = |k: &Value| vec![cell(&k["kid"]), cell(&k["since_ts"]), cell(&k["by"])];
        table(&["KEY", "SINCE", "BY"], &rows(answer, "taken_back", row));
    }
}

const MATCH: [&str; 6] = ["MATCH", "SCORE", "PRIMARY", "STAND-BY", "ROOMS", "STATE"];

fn one_match(m: &Value) -> Vec<String> {
    let rooms = m["rooms"].as_array().into_iter().flatten();
    let rooms: Vec<String> = rooms.map(|r| format!("{} ({})", cell(&r["room_id"]), cell(&r["state"]))).collect();
    let state = match (&m["silent_since_ts"], &m["differs_since_ts"]) {
        (Value::Null, Value::Null) => String::new(),
        (Value::Null, since) => format!("differ since {}", cell(since)),
        (since, _) => format!("silent since {}", cell(since)),
    };
    vec![
        cell(&m["match_id"]),
        goals(&m["current"]["score"]),
        cell(&m["primary"]),
        cell(&m["stand_by"]),
        rooms.join(" "),
        state,
    ]
}

pub fn matches(answer: &Value) {
    table(&MATCH, &rows(answer, "matches", one_match));
}

pub fn match_providers(answer: &Value) {
    table(&MATCH, &[one_match(answer)]);
    println!();
    let row = |p: &Value| {
        let shown = if p["shown"] == true { "shown" } else { "" };
        vec![cell(&p["provider"]), shown.to_owned(), goals(&p["score"]), cell(&p["events"]), cell(&p["heard_ts"])]
    };
    table(&["PROVIDER", "", "SCORE", "EVENTS", "HEARD"], &rows(answer, "providers", row));
}

fn events(answer: &Value, of: &str) {
    let row = |e: &Value| {
        let past = if e["historical"] == true { "past" } else { "" };
        vec![
            cell(&e["key"]),
            cell(&e["revision"]),
            cell(&e["kind"]),
            cell(&e["state"]),
            goals(&e["score"]),
            cell(&e["minute"]),
            cell(&e["provider"]),
            past.to_owned(),
        ]
    };
    table(&["KEY", "REVISION", "KIND", "STATE", "SCORE", "MINUTE", "PROVIDER", ""], &rows(answer, of, row));
}

pub fn scores(answer: &Value) {
    println!("shown: {}", goals(&answer["current"]["score"]));
    events(answer, "shown");
    println!();
    let row = |r: &Value| match r["type"].as_str() {
        Some("feed") => {
            let what = format!("from {}, {} stands by", cell(&r["primary"]), cell(&r["stand_by"]));
            vec![cell(&r["ts"]), cell(&r["event_id"]), String::new(), "feed".to_owned(), what]
        }
        _ => {
            let of = if r["provider_event"].is_null() { &r["key"] } else { &r["provider_event"] };
            let number = if r["provider_revision"].is_null() { &r["revision"] } else { &r["provider_revision"] };
            let what = format!("{} {} {}", cell(&r["kind"]), cell(&r["state"]), goals(&r["score"]));
            let shown = if r["shown"] == true { "shown" } else { "" };
            let of = format!("{} {} {}", cell(&r["provider"]), cell(of), cell(number));
            vec![cell(&r["ts"]), cell(&r["event_id"]), shown.to_owned(), of, what]
        }
    };
    table(&["WHEN", "EVENT", "", "WHOSE", "WHAT"], &rows(answer, "revisions", row));
}

/// What a change would tell viewers.
pub fn preview(answer: &Value, at_once: bool) {
    match answer["changes"].as_array().is_some_and(|changes| !changes.is_empty()) {
        true => events(answer, "changes"),
        false => println!("viewers are told nothing"),
    }
    println!("the score is {}, and would be {}", goals(&answer["score_now"]), goals(&answer["score_then"]));
    if !at_once {
        println!("nothing is done yet: the same with --confirm {} does it", cell(&answer["confirm"]));
    }
}

pub fn audit(answer: &Value) {
    let row = |r: &Value| {
        let place = if r["room_id"].is_null() { &r["target"] } else { &r["room_id"] };
        let changed: Vec<String> = r["changes"].as_array().into_iter().flatten().filter_map(change).collect();
        let what = if r["given"].is_null() { changed.join("; ") } else { cell(&r["given"]) };
        vec![cell(&r["ts"]), cell(&r["operator"]), cell(&r["action"]), cell(place), what, cell(&r["justification"])]
    };
    table(&["WHEN", "OPERATOR", "ACTION", "WHERE", "WHAT", "WHY"], &rows(answer, "audit", row));
}

/// A record that an operator's change wrote; `None` where its audit says it all.
fn change(record: &Value) -> Option<String> {
    let until = |record: &Value| match &record["until_ts"] {
        Value::Null => "for good".to_owned(),
        at => format!("until {}", cell(at)),
    };
    match record["type"].as_str()? {
        "ban" => Some(format!("{} {}", cell(&record["user_id"]), until(record))),
        "unban" => Some(cell(&record["user_id"])),
        "retract" if record["all"] == true => Some("everything".to_owned()),
        "retract" if record["user_id"].is_string() => {
            let since = record["since_ts"].as_str().map(|since| format!(" since {}", plain(since)));
            Some(format!("all of {}{}", cell(&record["user_id"]), since.unwrap_or_default()))
        }
        "retract" => Some(format!("event {}", cell(&record["target_event_id"]))),
        "held_end" => Some(format!("{} {}", cell(&record["held_id"]), cell(&record["end"]))),
        "config" => {
            let of_the_log = ["type", "room_id", "event_id", "pseq", "ts", "epoch", "seq", "by"];
            let members = record.as_object()?.iter().filter(|(name, _)| !of_the_log.contains(&name.as_str()));
            Some(members.map(|(name, value)| format!("{name}={}", cell(value))).collect::<Vec<_>>().join(" "))
        }
        _ => None,
    }
}

pub fn history(answer: &Value) {
    let row = |e: &Value| {
        let what = match e["type"].as_str().unwrap_or_default() {
            "comment" => cell(&e["body"]),
            "gift" => format!("{} × {}", cell(&e["count"]), cell(&e["item"])),
            "erased" => String::new(),
            _ => change(e).unwrap_or_default(),
        };
        let mark = if e["retracted"] == true { "retracted" } else { "" };
        vec![cell(&e["ts"]), cell(&e["event_id"]), cell(&e["type"]), mark.to_owned(), what]
    };
    table(&["WHEN", "EVENT", "TYPE", "MARK", "WHAT"], &rows(answer, "events", row));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{cell, change, plain};

    #[test]
    fn a_terminal_is_given_nothing_to_obey() {
        assert_eq!(plain("a\u{1b}[31mred\u{7}\r\nb"), "a [31mred   b");
        assert_eq!(cell(&json!("x\u{9b}2J")), "x 2J");
    }

    #[test]
    fn a_change_is_told_by_what_it_wrote() {
        let ban = json!({"type": "ban", "user_id": "u1", "until_ts": null, "reason": ""});
        assert_eq!(change(&ban).as_deref(), Some("u1 for good"));
        let config = json!({"type": "config", "event_id": 1, "ts": "t", "slow_mode_seconds": 10});
        assert_eq!(change(&config).as_deref(), Some("slow_mode_seconds=10"));
        assert_eq!(change(&json!({"type": "room", "settings": {}})), None);
        let purge = json!({"type": "retract", "user_id": "u1", "since_ts": "t"});
        assert_eq!(change(&purge).as_deref(), Some("all of u1 since t"));
        let denied = json!({"type": "held_end", "held_id": 7, "end": "denied"});
        assert_eq!(change(&denied).as_deref(), Some("7 denied"));
    }
}
