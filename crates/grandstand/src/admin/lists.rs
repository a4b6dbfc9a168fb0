//! Lists of moderation as a person reads them.

use serde_json::Value;

use super::show::{cell, rows, table};
use crate::plain::plain;

fn until(value: &Value) -> String {
    if value.is_null() { "for good".to_owned() } else { cell(value) }
}

fn kind(ban: &Value) -> String {
    if ban["shadow"] == true { "shadow" } else { "ban" }.to_owned()
}

/// A room's.
pub fn bans(answer: &Value) {
    let row = |b: &Value| vec![cell(&b["user_id"]), kind(b), until(&b["until_ts"]), cell(&b["reason"])];
    table(&["USER", "KIND", "UNTIL", "REASON"], &rows(answer, "bans", row));
}

/// The site's, which say by whom and why too, where the audit does.
pub fn site_bans(answer: &Value) {
    let row = |b: &Value| {
        let known = ["reason", "by", "since_ts", "justification"].map(|name| cell(&b[name]));
        [cell(&b["user_id"]), kind(b), until(&b["until_ts"])].into_iter().chain(known).collect::<Vec<String>>()
    };
    table(&["USER", "KIND", "UNTIL", "REASON", "BY", "SINCE", "WHY"], &rows(answer, "bans", row));
}

pub fn held(answer: &Value) {
    let row = |h: &Value| {
        vec![cell(&h["held_id"]), cell(&h["until_ts"]), cell(&h["user"]["id"]), cell(&h["rule"]), cell(&h["body"])]
    };
    table(&["HELD", "UNTIL", "USER", "RULE", "TEXT"], &rows(answer, "held", row));
}

pub fn reports(answer: &Value) {
    let row = |r: &Value| {
        let reasons = r["reasons"].as_object().into_iter().flatten();
        let reasons: Vec<String> = reasons.map(|(why, n)| format!("{} × {}", cell(n), plain(why))).collect();
        vec![cell(&r["event_id"]), cell(&r["count"]), cell(&r["last_ts"]), reasons.join("; ")]
    };
    table(&["EVENT", "USERS", "LAST", "REASONS"], &rows(answer, "reports", row));
}

/// What is revoked, and the declared outage.
pub fn access(answer: &Value) {
    match &answer["outage"] {
        Value::Null => println!("no outage is declared"),
        outage => {
            println!("an outage is declared since {} until {}", cell(&outage["since_ts"]), cell(&outage["until_ts"]))
        }
    }
    let row = |r: &Value| {
        let of = ["user", "session", "key"].into_iter().find(|of| r[*of].is_string()).unwrap_or("-");
        vec![of.to_owned(), cell(&r[of]), cell(&r["since_ts"]), cell(&r["until_ts"])]
    };
    table(&["REVOKED", "NAME", "SINCE", "UNTIL"], &rows(answer, "revoked", row));
}
