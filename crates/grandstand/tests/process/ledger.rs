//! The ledger of a room: each decision is one row; and the chain over the log, which holds over an erase and not over a changed byte.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::{Value, json};

use crate::moderated::listed;
use crate::support::{Server, until};

fn get(server: &Server, token: &str, path: &str) -> Value {
    let answer = server.http().call("GET", path, Some(token), None).expect("an answer");
    assert_eq!(answer.status, 200, "{path}: {:?}", answer.json);
    answer.json
}

fn call(server: &Server, method: &str, path: &str, token: &str, body: &Value) -> Value {
    let answer = server.http().call(method, path, Some(token), Some(body)).expect("an answer");
    assert!(answer.status / 100 == 2, "{method} {path}: {} {:?}", answer.status, answer.json);
    answer.json
}

/// Every row of the room "a", so many at a time.
fn rows(server: &Server, token: &str, query: &str, limit: usize) -> Vec<Value> {
    rows_of(server, token, "a", query, limit)
}

fn rows_of(server: &Server, token: &str, room: &str, query: &str, limit: usize) -> Vec<Value> {
    let (mut all, mut before) = (Vec::new(), String::new());
    loop {
        let page = get(server, token, &format!("/admin/rooms/{room}/ledger?limit={limit}{query}{before}"));
        all.extend(page["rows"].as_array().expect("rows").iter().cloned());
        match page["next"].as_u64() {
            Some(next) => before = format!("&before={next}"),
            None => return all,
        }
    }
}

fn ids(rows: &[Value]) -> Vec<u64> {
    rows.iter().map(|row| row["event_id"].as_u64().expect("an id")).collect()
}

/// A body with the reason that every write needs.
fn why(body: &Value) -> Value {
    let mut body = body.clone();
    body["justification"] = json!("third warning");
    body
}

#[test]
fn each_decision_is_one_row_and_pages_add_up() {
    let server = Server::start(&[], &[]);
    let admin = server.token("ops", &["admin"]);
    let (ann, bob) = (server.token("ann", &["publisher"]), server.token("bob", &["publisher"]));
    server.put_room("a", &admin, json!({"user_rate": 1000, "user_burst": 1000}));
    let mut said = Vec::new();
    for n in 0..6 {
        let who = if n % 2 == 0 { &ann } else { &bob };
        said.push(server.published("a", who, &format!("k{n}"), "hi"));
    }
    call(&server, "POST", "/admin/rooms/a/retract", &admin, &why(&json!({"event_id": said[0]})));
    call(&server, "POST", "/admin/rooms/a/bans", &admin, &why(&json!({"user_id": "ann", "purge_last_minutes": 5})));
    call(&server, "DELETE", "/admin/rooms/a/bans/ann", &admin, &why(&json!({})));
    // Nothing to lift: an operator asked all the same.
    call(&server, "DELETE", "/admin/rooms/a/bans/ann", &admin, &why(&json!({})));
    call(&server, "POST", "/admin/rooms/a/slow-mode", &admin, &why(&json!({"seconds": 0})));

    let all = rows(&server, &admin, "", 500);
    let lines = server.export("a", &admin);
    let wanted: Vec<u64> = lines
        .iter()
        .rev()
        .filter(|line| line["type"] == "comment" || line["type"] == "audit")
        .map(|line| line["event_id"].as_u64().expect("an id"))
        .collect();
    assert_eq!(ids(&all), wanted, "what a change wrote is in its row, and is none of its own: {all:?}");
    for limit in [1, 2, 3] {
        assert_eq!(rows(&server, &admin, "", limit), all, "{limit} at a time");
    }
    let kinds: BTreeSet<&str> = all.iter().filter_map(|row| row["kind"].as_str()).collect();
    assert_eq!(kinds, BTreeSet::from(["admin", "comment"]));
    let ban = all.iter().find(|row| row["action"] == "ban").expect("the ban");
    let changes: Vec<&str> =
        ban["changes"].as_array().expect("changes").iter().filter_map(|c| c["type"].as_str()).collect();
    assert_eq!(
        (changes, &ban["operator"], &ban["justification"]),
        (vec!["ban", "retract"], &json!("ops"), &json!("third warning"))
    );
    assert_eq!(all.iter().filter(|row| row["action"] == "unban").count(), 2);
    assert_eq!(ids(&rows(&server, &admin, "&user=bob&kind=comment", 500)), [said[5], said[3], said[1]]);
    assert_eq!(rows(&server, &admin, "&verdict=none", 500).len(), 6);
    assert_eq!(rows(&server, &admin, "&verdict=block", 500), Vec::<Value>::new());
    let wrong = server.http().call("GET", "/admin/rooms/a/ledger?kind=joke", Some(&admin), None).expect("an answer");
    assert_eq!(wrong.status, 400);
    let foreign = server.http().call("GET", "/admin/rooms/a/ledger", Some(&ann), None).expect("an answer");
    assert_eq!(foreign.status, 403);
}

/// How many rows there are of each kind.
fn kinds(rows: &[Value]) -> BTreeMap<&str, usize> {
    rows.iter().filter_map(|row| row["kind"].as_str()).fold(BTreeMap::new(), |mut kinds, kind| {
        *kinds.entry(kind).or_default() += 1;
        kinds
    })
}

#[test]
fn what_is_blocked_held_and_taken_back_is_one_row_each_with_its_verdict() {
    let server = listed("idiot\n", "dumb\n", &[]);
    let admin = server.token("ops", &["admin"]);
    let ann = server.token("ann", &["publisher"]);
    server.put_room("a", &admin, json!({"moderation_policy": "pre-moderate", "hold_flagged": true}));
    let shown = server.published("a", &ann, "k0", "what a goal");
    assert_eq!(server.publish("a", &ann, "k1", "you idiot").status, 422);
    for (key, text, decision) in [("k2", "dumb luck", "approve"), ("k3", "a dumb one", "deny")] {
        assert_eq!(server.publish("a", &ann, key, text).status, 202);
        let held = get(&server, &admin, "/admin/rooms/a/held");
        let id = held["held"][0]["held_id"].as_u64().expect("it waits");
        let body = why(&json!({"decision": decision}));
        call(&server, "POST", &format!("/admin/rooms/a/held/{id}"), &admin, &body);
    }
    let all = rows(&server, &admin, "", 500);
    let wanted = BTreeMap::from([("admin", 3), ("blocked", 1), ("comment", 2), ("held", 2)]);
    assert_eq!(kinds(&all), wanted, "who decided about what was held is in the row of that decision: {all:?}");
    assert_eq!(ids(&all).into_iter().collect::<BTreeSet<_>>().len(), all.len(), "one row for each");
    let of = |verdict: &str| {
        kinds(&rows(&server, &admin, &format!("&verdict={verdict}"), 500)).into_keys().collect::<Vec<_>>().join(" ")
    };
    assert_eq!((of("allow").as_str(), of("block").as_str()), ("comment", "blocked"), "{all:?}");
    let first = all.iter().find(|row| row["event_id"] == shown).expect("its row");
    assert_eq!((&first["verdict"], &first["user_id"]), (&json!("allow"), &json!("ann")), "{first}");
    let approved = all.iter().find(|row| row["action"] == "held: approve").expect("its row");
    assert!(approved["changes"].as_array().is_some_and(|changes| changes.len() == 1), "{approved}");

    // Shown first and judged then: taking it back is moderation's own deed, and a row of its own.
    server.put_room("b", &admin, json!({"moderation_policy": "post-moderate-fast"}));
    let gone = server.published("b", &ann, "k4", "you idiot");
    until("it is taken back", || kinds(&rows_of(&server, &admin, "b", "", 500)).contains_key("override"));
    let all = rows_of(&server, &admin, "b", "", 500);
    assert_eq!(kinds(&all), BTreeMap::from([("admin", 1), ("comment", 1), ("override", 1)]), "{all:?}");
    let override_row = all.iter().find(|row| row["kind"] == "override").expect("its row");
    assert_eq!(override_row["operator"], Value::Null, "{override_row}");
    assert_eq!(override_row["changes"][0]["target_event_id"], json!(gone), "{override_row}");
}

#[test]
fn the_chain_holds_over_an_erase_and_names_the_record_whose_link_was_changed() {
    let mut server = Server::start(&[], &[]);
    let admin = server.token("ops", &["admin"]);
    let (ann, bob) = (server.token("ann", &["publisher"]), server.token("bob", &["publisher"]));
    for n in 0..20 {
        server.published("a", if n % 2 == 0 { &ann } else { &bob }, &format!("k{n}"), "hello");
    }
    call(&server, "DELETE", "/admin/users/ann", &admin, &json!({"justification": "a request"}));
    let export = server.http().call("GET", "/admin/rooms/a/export", Some(&admin), None).expect("an answer");
    assert_eq!(export.status, 200);
    until("the erase is done", || get(&server, &admin, "/admin/erasures")["pending"] == json!([]));
    let told = get(&server, &admin, "/admin/ledger/verify");
    assert_eq!(
        (&told["broken"], &told["more"], &told["before_chain"]),
        (&Value::Null, &json!(false), &json!(0)),
        "{told}"
    );
    assert!(told["records"].as_u64().is_some_and(|n| n > 20), "{told}");
    let terminal = |server: &Server, words: &[&str]| {
        let url = format!("http://{}", server.addr);
        let mut command = Command::new(env!("CARGO_BIN_EXE_grandstand"));
        command.arg("admin").args(words).args(["--url", &url, "--token", &admin]);
        command.output().expect("the binary can be started")
    };
    let cli = |server: &Server| terminal(server, &["ledger", "verify"]);
    let out = cli(&server);
    assert!(out.status.success() && String::from_utf8_lossy(&out.stdout).contains("records fit"), "{out:?}");
    let head = format!("chain head: {} {}", told["upto"], told["link"].as_str().expect("a link"));
    let exported = terminal(&server, &["export", "a"]);
    assert_eq!(String::from_utf8_lossy(&exported.stderr).trim(), head, "an export names the head and its link");
    // The erase made a checkpoint, which keeps the link it stands at.
    let kept = &told["checkpoint"];
    assert!(kept["event_id"].as_u64() > Some(0) && kept["link"].as_str().is_some_and(|l| l.len() == 64), "{told}");

    let (upto, link) = (told["upto"].as_u64().expect("an id"), told["link"].as_str().expect("a link").to_owned());
    server.stop();
    let path = server.data().join("log.db");
    let mut bytes = std::fs::read(&path).expect("the log's file");
    let link: Vec<u8> = (0..64).step_by(2).map(|at| u8::from_str_radix(&link[at..at + 2], 16).expect("hex")).collect();
    let at = bytes.windows(32).position(|w| w == link).expect("the link stands in the file");
    bytes[at] ^= 1;
    std::fs::write(&path, bytes).expect("it is written");
    server.restart();
    let told = get(&server, &admin, "/admin/ledger/verify");
    assert_eq!(told["broken"]["event_id"], json!(upto), "{told}");
    let out = cli(&server);
    assert!(
        !out.status.success() && String::from_utf8_lossy(&out.stderr).contains(&format!("event {upto}")),
        "{out:?}"
    );
}
