//! `grandstand admin` against a real server: everything the operators' API does, with its refusals as exit codes and its audit.

use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::support::Server;
use crate::viewer::{Rung, Viewer};

pub fn admin(server: &Server, token: Option<&str>, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_grandstand"));
    command.arg("admin").args(args).env("GRANDSTAND_URL", format!("http://{}", server.addr));
    command.env_remove("GRANDSTAND_JUSTIFICATION");
    match token {
        Some(token) => command.env("GRANDSTAND_TOKEN", token),
        None => command.env_remove("GRANDSTAND_TOKEN"),
    };
    command.output().expect("the binary can be started")
}

pub fn said(out: &Output) -> String {
    String::from_utf8_lossy(&out.stdout).into_owned()
}

pub fn complained(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

/// Its answer; it must have gone well.
pub fn ok(server: &Server, token: &str, args: &[&str]) -> Value {
    let mut all = vec!["--json"];
    all.extend(args);
    let out = admin(server, Some(token), &all);
    assert!(out.status.success(), "{args:?}: {}", complained(&out));
    serde_json::from_str(&said(&out)).unwrap_or_else(|_| panic!("{args:?}: {}", said(&out)))
}

#[test]
fn everything_an_operator_does_is_done_from_a_terminal_and_audited() {
    let server = Server::start(&[], &[]);
    let (ops, backend) = (server.token("olive", &["admin"]), server.token("shop", &["backend"]));
    let why = ["-j", "asked by the desk"];
    let run = |args: &[&str]| ok(&server, &ops, &[args, &why].concat());

    let room = run(&["room", "put", "derby", "title=Derby <b>", "slow_mode_seconds=3"]);
    assert_eq!((&room["title"], &room["slow_mode_seconds"]), (&json!("Derby <b>"), &json!(3)));
    assert_eq!(ok(&server, &ops, &["room", "get", "derby"])["title"], "Derby <b>");
    let stale = admin(&server, Some(&ops), &["room", "put", "derby", "title=x", "--if-version", "77", "-j", "late"]);
    assert_eq!((stale.status.code(), complained(&stale).contains("stale_version")), (Some(5), true));

    run(&["slow-mode", "derby", "0"]);
    let mut viewer = Viewer::open(&server, Rung::WebSocket, "derby", None, None).expect("a stream");
    viewer.next().expect("hello");
    let first = server.published("derby", &backend, "k1", "one");
    let second = server.published("derby", &backend, "k2", "two\nlines");
    run(&["retract", "derby", &first.to_string(), "--reason", "off topic"]);
    let seen = viewer.until(|e| e["type"] == "retract");
    assert_eq!(seen.last().expect("it")["target_event_id"], first);
    run(&["pin", "derby", &second.to_string()]);
    assert_eq!(ok(&server, &ops, &["room", "get", "derby"])["pinned"], json!([second]));
    run(&["pin", "derby", &second.to_string(), "--off"]);
    assert_eq!(ok(&server, &ops, &["room", "get", "derby"])["pinned"], json!([]));

    let ban = run(&["ban", "derby", "u17", "--for", "10m", "--reason", "spam"]);
    assert!(ban["event_id"].is_u64(), "{ban}");
    let speak = json!({"client_msg_id": "x", "body": "x", "as": {"id": "u17"}});
    let speaks = |key: &str| {
        let mut body = speak.clone();
        body["client_msg_id"] = json!(key);
        server.http().call("POST", "/v1/rooms/derby/comments", Some(&backend), Some(&body)).expect("an answer").status
    };
    assert_eq!(speaks("a"), 403);
    run(&["unban", "derby", "u17"]);
    assert_eq!(speaks("b"), 200);
    let history = ok(&server, &ops, &["history", "derby", "u17"]);
    let kinds: Vec<&str> =
        history["events"].as_array().expect("events").iter().filter_map(|e| e["type"].as_str()).collect();
    assert_eq!(kinds, ["comment", "unban", "ban"]);
    run(&["retract", "derby", "--user", "u17"]);
    let history = ok(&server, &ops, &["history", "derby", "u17"]);
    assert_eq!((&history["events"][0]["type"], &history["events"][1]["retracted"]), (&json!("retract"), &json!(true)));
    run(&["state", "derby", "settling"]);
    assert_eq!(ok(&server, &ops, &["room", "get", "derby"])["state"], "settling");

    let banner = run(&["banner", "put", "half time", "--for", "5m", "--room", "derby"]);
    let id = banner["banner_id"].as_str().expect("an id").to_owned();
    assert_eq!(ok(&server, &ops, &["banner", "list"])["banners"][0]["body"], "half time");
    run(&["banner", "end", &id]);
    assert_eq!(ok(&server, &ops, &["banner", "list"])["banners"], json!([]));
    assert_eq!(run(&["admission", "local", "500", "--burst", "700"])["admission"], json!({"rate": 500, "burst": 700}));
    let shed = run(&["shedding", "local", "--cap", "2", "--for", "5m"]);
    assert_eq!(shed["shedding"]["order"]["cap"], 2, "{shed}");
    assert_eq!(run(&["shedding", "local"])["shedding"]["order"], Value::Null);
    let gift =
        json!({"gift_id": "g1", "user": {"id": "u17"}, "item": "rose", "amount_micros": 990_000, "currency": "EUR"});
    let given = server.http().call("POST", "/v1/rooms/derby/gifts", Some(&backend), Some(&gift)).expect("an answer");
    assert_eq!(given.status, 200, "{:?}", given.json);
    assert_eq!(ok(&server, &ops, &["gifts", "derby"])["currencies"][0]["amount_micros"], "990000");
    assert_eq!(run(&["drain", "local", "0"])["state"], "draining");
    assert_eq!(run(&["admission", "local"])["state"], "open");
    assert_eq!(ok(&server, &ops, &["gateways"])["gateways"][0]["id"], "local");

    let rooms = ok(&server, &ops, &["rooms", "--q", "DERBY"]);
    assert_eq!(rooms["rooms"][0]["counters"]["accepted"], 3, "{rooms}");
    let lines = admin(&server, Some(&backend), &["export", "derby", "--include", "control"]);
    let lines = said(&lines);
    assert_eq!(lines.lines().filter(|l| l.contains("\"type\":\"audit\"")).count(), 9, "{lines}");

    // As a person reads it: what was refused is not there.
    let printed = said(&admin(&server, Some(&ops), &["audit", "--room", "derby"]));
    assert!(
        printed.contains("u17 until") && printed.contains("asked by the desk") && !printed.contains("late"),
        "{printed}"
    );
    let export = said(&admin(&server, Some(&ops), &["history", "derby", "shop"]));
    assert!(export.contains("two lines"), "a text is one line: {export}");
}

#[test]
fn the_audit_is_read_back_whole_by_pages_and_filters_over_log_and_file() {
    let server = Server::start(&[], &[]);
    let (olive, ann) = (server.token("olive", &["admin"]), server.token("ann", &["region-ops"]));
    let backend = server.token("shop", &["backend"]);
    for n in 0..12 {
        let room = format!("r{}", n % 3);
        let by = if n % 2 == 0 { &olive } else { &ann };
        server.put_room(&room, by, json!({"title": format!("title {n}")}));
        server.published(&room, &backend, &format!("k{n}"), "in between");
        let body = json!({"user_id": format!("u{n}"), "justification": format!("ban {n}")});
        let path = format!("/admin/rooms/{room}/bans");
        assert_eq!(server.http().call("POST", &path, Some(by), Some(&body)).expect("an answer").status, 200);
        let body = json!({"rate": n, "justification": format!("gate {n}")});
        let answer = server.http().call("POST", "/admin/gateways/local/admission", Some(by), Some(&body));
        assert_eq!(answer.expect("an answer").status, 200);
    }
    let whole = ok(&server, &olive, &["audit"])["audit"].as_array().expect("rows").clone();
    assert_eq!(whole.len(), 36);
    let ts: Vec<&str> = whole.iter().filter_map(|row| row["ts"].as_str()).collect();
    assert!(ts.is_sorted_by(|a, b| a >= b), "newest first: {ts:?}");
    let of =
        |args: &[&str]| ok(&server, &olive, &[&["audit"], args].concat())["audit"].as_array().expect("rows").clone();
    assert_eq!(of(&["--operator", "ann"]).len(), 18);
    assert_eq!(of(&["--action", "ban", "--operator", "olive"]).len(), 6);
    assert_eq!(of(&["--room", "r1"]).len(), 8);
    assert_eq!(of(&["--action", "admission"])[0]["given"], json!({"rate": 11, "burst": null}));
    let bans = of(&["--action", "ban"]);
    for (n, row) in (0..12).rev().zip(&bans) {
        let change = &row["changes"][0];
        assert_eq!((&change["type"], &change["user_id"]), (&json!("ban"), &json!(format!("u{n}"))), "{row}");
    }
    let middle = ts[18].to_owned();
    assert_eq!(of(&["--from", &middle]).len() + of(&["--to", &middle]).len(), 36);

    // Small pages are the same rows, each once.
    let (mut pages, mut next) = (Vec::new(), String::new());
    loop {
        let answer = server.http().call("GET", &format!("/admin/audit?limit=5{next}"), Some(&olive), None);
        let answer = answer.expect("an answer").json;
        pages.extend(answer["audit"].as_array().expect("rows").clone());
        assert!(pages.len() <= 36, "{answer}");
        match answer["next"].as_str() {
            Some(cursor) => next = format!("&before={cursor}"),
            None => break,
        }
    }
    assert_eq!(pages, whole);
    // An unban of nobody is audited, and is not told to have done what stands before it.
    let idle = json!({"justification": "nobody"});
    let answer = server.http().call("DELETE", "/admin/rooms/r1/bans/never", Some(&olive), Some(&idle));
    assert_eq!(answer.expect("an answer").json["event_id"], Value::Null);
    assert_eq!(of(&["--action", "unban"])[0]["changes"], json!([]));
    for bad in ["limit=0", "limit=501", "from=yesterday", "before=1", "operator=", "room=A", "from=1&from=2"] {
        let answer = server.http().call("GET", &format!("/admin/audit?{bad}"), Some(&olive), None).expect("an answer");
        assert_eq!(answer.status, 400, "{bad}: {:?}", answer.json);
    }
}

#[test]
fn a_refusal_is_told_by_its_problem_document_and_its_exit_code() {
    let server = Server::start(&[], &[]);
    let (ops, nobody) = (server.token("olive", &["admin"]), server.token("ann", &["publisher"]));
    let moderator = server.token_in("mia", &["room-mod"], &["derby*"]);
    ok(&server, &ops, &["room", "put", "derby", "title=x", "-j", "w"]);
    ok(&server, &ops, &["room", "put", "other", "title=x", "-j", "w"]);
    type Case<'a> = (Option<&'a str>, &'a [&'a str], i32, &'a str);
    let cases: &[Case<'_>] = &[
        (Some(&ops), &["slow-mode", "derby", "10"], 2, "--justification is missing"),
        (None, &["rooms"], 2, "--token"),
        (Some("not.a.token"), &["rooms"], 3, "bad_token"),
        (Some(&nobody), &["rooms"], 3, "not_allowed"),
        (Some(&nobody), &["ban", "derby", "u", "-j", "w"], 3, "not_allowed"),
        (Some(&moderator), &["ban", "other", "u", "-j", "w"], 3, "not_allowed"),
        (Some(&moderator), &["gateways"], 3, "not_allowed"),
        (Some(&moderator), &["audit"], 3, "not_allowed"),
        (Some(&moderator), &["audit", "--room", "other"], 3, "not_allowed"),
        (Some(&moderator), &["export", "derby"], 3, "not_allowed"),
        (Some(&moderator), &["history", "other", "u"], 3, "not_allowed"),
        (Some(&ops), &["room", "get", "missing-room"], 4, "no_such_room"),
        (Some(&ops), &["banner", "end", "123", "-j", "w"], 4, "not_found"),
        (Some(&ops), &["drain", "g9", "1", "-j", "w"], 4, "not_found"),
        (Some(&ops), &["state", "derby", "merry", "-j", "w"], 1, "bad_field"),
        (Some(&ops), &["room", "put", "derby", "colour=red", "-j", "w"], 1, "unknown_key"),
        (Some(&ops), &["retract", "derby", "-j", "w"], 2, "required"),
        (Some(&ops), &["retract", "derby", "1", "--all", "-j", "w"], 2, "cannot be used"),
    ];
    for (token, args, code, word) in cases {
        let out = admin(&server, *token, args);
        assert_eq!(out.status.code(), Some(*code), "{args:?}: {}", complained(&out));
        assert!(complained(&out).contains(word) && out.stdout.is_empty(), "{args:?}: {}", complained(&out));
    }
    for args in [&["rooms"][..], &["audit", "--room", "derby"], &["history", "derby", "u"]] {
        ok(&server, &moderator, args);
    }
    assert_eq!(ok(&server, &moderator, &["rooms"])["rooms"].as_array().map(Vec::len), Some(1), "its own rooms alone");
    let out = admin(&server, Some(&ops), &["--json", "state", "derby", "merry", "-j", "w"]);
    let problem: Value = serde_json::from_str(&complained(&out)).expect("the problem document");
    assert_eq!((&problem["status"], &problem["code"]), (&json!(422), &json!("bad_field")));
    let gone = admin(&server, Some(&ops), &["--url", "http://127.0.0.1:1", "rooms"]);
    assert_eq!((gone.status.code(), complained(&gone).contains("cannot be reached")), (Some(7), true));
}

#[test]
fn an_export_is_written_to_a_file_that_was_not_there() {
    let server = Server::start(&[], &[]);
    let (ops, backend) = (server.token("olive", &["admin"]), server.token("shop", &["backend"]));
    for n in 0..40 {
        server.published("derby", &backend, &format!("k{n}"), "x");
    }
    let file = server.folder().join("derby.jsonl");
    let path = file.to_str().expect("a path");
    assert!(admin(&server, Some(&ops), &["export", "derby", "-o", path]).status.success());
    let lines = std::fs::read_to_string(&file).expect("the export");
    assert_eq!(lines.lines().count(), 40);
    let again = admin(&server, Some(&ops), &["export", "derby", "-o", path]);
    assert!(!again.status.success() && std::fs::read_to_string(&file).expect("it is as it was") == lines);
}
