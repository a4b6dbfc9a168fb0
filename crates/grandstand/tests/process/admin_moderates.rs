//! Moderation from a terminal against a real server: what viewers see of it, and what the audit keeps.

use serde_json::{Value, json};

use crate::admin::{admin, complained, ok, said};
use crate::moderated::listed;
use crate::support::Server;
use crate::viewer::{Rung, Viewer};

const ROOM: &str = "stand";
const WHY: [&str; 2] = ["-j", "asked by the desk"];

fn run(server: &Server, token: &str, args: &[&str]) -> Value {
    ok(server, token, &[args, &WHY].concat())
}

/// A server where `*dumb*` is flagged and held, a viewer of its room, and an admin's token.
fn moderated(args: &[&str]) -> (Server, Viewer, String) {
    let server = listed("", "*dumb*\n", args);
    let ops = server.token("olive", &["admin"]);
    run(&server, &ops, &["room", "put", ROOM, "moderation_policy=pre-moderate", "hold_flagged=true"]);
    let mut viewer = Viewer::open(&server, Rung::WebSocket, ROOM, None, None).expect("a stream");
    viewer.next().expect("hello");
    (server, viewer, ops)
}

fn is_body(text: &'static str) -> impl Fn(&Value) -> bool {
    move |event| event["type"] == "comment" && event["body"] == text
}

#[test]
fn bans_the_queue_reports_and_pins_are_run_from_a_terminal() {
    for args in [&[][..], &["--gateways", "2"]] {
        let (server, mut viewer, ops) = moderated(args);
        let mia = server.token_in("mia", &["room-mod"], &["st*"]);
        let [ann, eve] = ["ann", "eve"].map(|user| server.token(user, &["publisher"]));

        // The queue: one is shown, one is refused.
        for (key, text) in [("k1", "dumb luck"), ("k2", "dumb referee")] {
            assert_eq!(server.publish(ROOM, &ann, key, text).status, 202);
        }
        let held = ok(&server, &mia, &["held", "list", ROOM])["held"].as_array().expect("a list").clone();
        let id = |n: usize| held[n]["held_id"].to_string();
        let printed = said(&admin(&server, Some(&mia), &["held", "list", ROOM]));
        assert!(printed.contains("dumb luck") && printed.contains("flag: *dumb*"), "{printed}");
        let shown = run(&server, &mia, &["held", "approve", ROOM, &id(0)])["event_id"].clone();
        assert_eq!(viewer.until(is_body("dumb luck")).pop().expect("it")["event_id"], shown);
        assert_eq!(run(&server, &mia, &["held", "deny", ROOM, &id(1)])["event_id"], Value::Null);
        assert_eq!(ok(&server, &mia, &["held", "list", ROOM])["held"], json!([]));
        let gone = admin(&server, Some(&mia), &[&["held", "approve", ROOM, &id(1)][..], &WHY].concat());
        assert_eq!(gone.status.code(), Some(4), "{}", complained(&gone));

        // Reports, and what is retracted leaves them.
        let spam = server.published(ROOM, &eve, "k1", "buy this");
        let path = format!("/v1/rooms/{ROOM}/reports");
        let report = json!({"event_id": spam, "reason": "ads"});
        let answer = server.call_until_there("POST", &path, Some(&ann), Some(&report));
        assert_eq!(answer.status, 204, "{:?}", answer.json);
        let reports = ok(&server, &mia, &["reports", ROOM])["reports"].clone();
        assert_eq!((&reports[0]["event_id"], &reports[0]["reasons"]["ads"]), (&json!(spam), &json!(1)), "{reports}");
        assert!(said(&admin(&server, Some(&mia), &["reports", ROOM])).contains("1 × ads"));

        // A dry run tells the call and leaves everything as it is.
        let ban = ["ban", ROOM, "eve", "--purge", "5m", "--reason", "ads"];
        let dry = run(&server, &mia, &[&["--dry-run"][..], &ban].concat());
        assert_eq!((&dry["dry_run"], &dry["body"]["purge_last_minutes"]), (&json!(true), &json!(5)), "{dry}");
        let told = admin(&server, Some(&mia), &[&["--dry-run"][..], &ban, &WHY].concat());
        let (stdout, stderr) = (said(&told), complained(&told));
        assert!(
            stdout.starts_with("would: POST /admin/rooms/stand/bans {") && stderr.contains("stand has "),
            "{stdout}{stderr}"
        );
        assert_eq!(ok(&server, &mia, &["bans", ROOM])["bans"], json!([]));

        // A ban with a purge, a timeout and a shadow ban.
        run(&server, &mia, &ban);
        let purged = viewer.until(|e| e["type"] == "retract").pop().expect("it");
        assert_eq!((&purged["user_id"], purged["since_ts"].is_string()), (&json!("eve"), true), "{purged}");
        run(&server, &mia, &["retract", ROOM, &spam.to_string()]);
        assert_eq!(
            ok(&server, &mia, &["reports", ROOM])["reports"],
            json!([]),
            "what is retracted is nobody's to look at"
        );
        assert_eq!(server.publish(ROOM, &eve, "k2", "more").status, 403);
        run(&server, &mia, &["timeout", ROOM, "bob", "10m"]);
        run(&server, &mia, &["ban", ROOM, "mal", "--shadow"]);
        let bans = ok(&server, &mia, &["bans", ROOM])["bans"].as_array().expect("a list").clone();
        let told: Vec<Value> =
            bans.iter().map(|b| json!([b["user_id"], b["until_ts"].is_string(), b["shadow"], b["reason"]])).collect();
        assert_eq!(
            told,
            [json!(["bob", true, false, ""]), json!(["eve", false, false, "ads"]), json!(["mal", false, true, ""])]
        );
        for user in ["bob", "eve", "mal"] {
            run(&server, &mia, &["unban", ROOM, user]);
        }
        assert_eq!(server.publish(ROOM, &eve, "k3", "back").status, 200);

        // Pins with and without an end, and what the room asks of comments.
        let ids = ["p1", "p2"].map(|key| server.published(ROOM, &ann, key, "pin me"));
        run(&server, &mia, &["pin", ROOM, &ids[0].to_string()]);
        run(&server, &mia, &["pin", ROOM, &ids[1].to_string(), "--for", "10m"]);
        let settings = ok(&server, &mia, &["room", "get", ROOM]);
        assert_eq!(settings["pinned"], json!(ids));
        let ends = settings["pin_ends"].as_object().expect("ends");
        assert_eq!(ends.keys().map(String::as_str).collect::<Vec<_>>(), [ids[1].to_string()]);
        let past = admin(
            &server,
            Some(&mia),
            &["pin", ROOM, &ids[0].to_string(), "--until", "2020-01-01T00:00:00.000Z", "-j", "x"],
        );
        assert_eq!((past.status.code(), complained(&past).contains("until")), (Some(1), true), "{}", complained(&past));
        for id in ids {
            run(&server, &mia, &["pin", ROOM, &id.to_string(), "--off"]);
        }
        assert_eq!(ok(&server, &mia, &["room", "get", ROOM])["pinned"], json!([]));
        run(&server, &ops, &["unique-comment", ROOM, "on"]);
        run(&server, &ops, &["emote-only", ROOM, "on"]);
        run(&server, &ops, &["members-only", ROOM, "member"]);
        let asks =
            |settings: &Value| json!([settings["unique_comment"], settings["emote_only"], settings["members_only"]]);
        assert_eq!(asks(&ok(&server, &ops, &["room", "get", ROOM])), json!([true, true, "member"]));
        run(&server, &ops, &["unique-comment", ROOM, "off"]);
        run(&server, &ops, &["emote-only", ROOM, "off"]);
        run(&server, &ops, &["members-only", ROOM, "--off"]);
        assert_eq!(asks(&ok(&server, &ops, &["room", "get", ROOM])), json!([false, false, Value::Null]));

        // Each is in the audit with its reason, and nothing that was refused or dry is.
        let audit = ok(&server, &ops, &["audit", "--room", ROOM])["audit"].as_array().expect("rows").clone();
        let actions: Vec<&str> = audit.iter().rev().skip(1).filter_map(|row| row["action"].as_str()).collect();
        let wanted = [
            "held: approve",
            "held: deny",
            "held: approve",
            "ban",
            "retract",
            "ban",
            "shadow ban",
            "unban",
            "unban",
            "unban",
            "put room",
            "pin",
            "unpin",
            "unpin",
            "put room",
            "put room",
            "put room",
            "put room",
            "put room",
            "put room",
        ];
        let is_done = |action: &&str| wanted.contains(action);
        assert_eq!(actions.into_iter().filter(is_done).collect::<Vec<_>>(), wanted, "{audit:?}");
        assert!(audit.iter().all(|row| row["justification"] == "asked by the desk"), "{audit:?}");
    }
}

#[test]
fn the_site_its_tokens_and_blackouts_are_run_from_a_terminal() {
    for args in [&[][..], &["--gateways", "2"]] {
        let more: Vec<&str> = ["--set", "region.header=X-Viewer-Region", "--set", "trusted_proxies=127.0.0.0/8"]
            .iter()
            .chain(args)
            .copied()
            .collect();
        let (server, _viewer, ops) = moderated(&more);
        let mia = server.token_in("mia", &["room-mod"], &["st*"]);
        let eve = server.token("eve", &["publisher"]);
        server.published(ROOM, &eve, "k1", "buy this");

        run(&server, &ops, &["site", "ban", "eve", "--for", "7d", "--purge", "10m", "--reason", "ads"]);
        run(&server, &ops, &["site", "ban", "mal", "--shadow"]);
        assert_eq!(server.publish(ROOM, &eve, "k2", "more").status, 403);
        let bans = ok(&server, &ops, &["site", "bans"])["bans"].as_array().expect("a list").clone();
        let told: Vec<Value> =
            bans.iter().map(|b| json!([b["user_id"], b["shadow"], b["by"], b["justification"]])).collect();
        assert_eq!(told, [json!(["eve", false, "olive", WHY[1]]), json!(["mal", true, "olive", WHY[1]])]);
        assert_eq!(ok(&server, &ops, &["site", "bans", "--user", "mal"])["bans"].as_array().map(Vec::len), Some(1));
        assert_eq!(ok(&server, &ops, &["site", "bans", "--limit", "1"])["bans"].as_array().map(Vec::len), Some(1));
        let printed = said(&admin(&server, Some(&ops), &["site", "bans"]));
        assert!(printed.contains("for good") && printed.contains("olive") && printed.contains("shadow"), "{printed}");
        run(&server, &ops, &["site", "unban", "eve"]);
        assert_eq!(server.publish(ROOM, &eve, "k3", "back").status, 200);

        run(&server, &ops, &["access", "revoke", "--session", "s 1", "--for", "1d"]);
        run(&server, &ops, &["access", "revoke", "--user", "eve"]);
        assert_eq!(server.publish(ROOM, &eve, "k4", "more").status, 401);
        run(&server, &ops, &["access", "outage", "1h"]);
        let access = ok(&server, &ops, &["access", "list"]);
        assert_eq!(
            (access["revoked"].as_array().map(Vec::len), access["outage"]["until_ts"].is_string()),
            (Some(2), true),
            "{access}"
        );
        let printed = said(&admin(&server, Some(&ops), &["access", "list"]));
        assert!(printed.starts_with("an outage is declared since") && printed.contains("session"), "{printed}");
        run(&server, &ops, &["access", "restore", "--user", "eve"]);
        run(&server, &ops, &["access", "outage-end"]);
        let again = admin(&server, Some(&ops), &[&["access", "outage-end"][..], &WHY].concat());
        assert_eq!(again.status.code(), Some(4), "{}", complained(&again));
        assert_eq!(server.publish(ROOM, &eve, "k5", "back").status, 200);

        run(&server, &ops, &["blackout", ROOM, "GB", "IE"]);
        assert_eq!(ok(&server, &ops, &["room", "get", ROOM])["blackout_regions"], json!(["GB", "IE"]));
        run(&server, &ops, &["blackout", ROOM, "--off"]);
        assert_eq!(ok(&server, &ops, &["room", "get", ROOM])["blackout_regions"], json!([]));

        let audit = ok(&server, &ops, &["audit"])["audit"].as_array().expect("rows").clone();
        for action in ["site ban", "site unban", "revoke", "revoke end", "auth outage", "auth outage end"] {
            assert!(
                audit.iter().any(|row| row["action"] == action && row["justification"] == WHY[1]),
                "{action}: {audit:?}"
            );
        }
        // A room's moderators have no say over the site.
        for args in [
            &["site", "bans"][..],
            &["site", "ban", "x"],
            &["site", "unban", "x"],
            &["access", "list"],
            &["access", "revoke", "--user", "x"],
            &["access", "restore", "--user", "x"],
            &["access", "outage", "1h"],
            &["access", "outage-end"],
            &["blackout", ROOM, "GB"],
        ] {
            let out = admin(&server, Some(&mia), &[args, &WHY].concat());
            assert_eq!(out.status.code(), Some(3), "{args:?}: {}", complained(&out));
        }
    }
}

#[test]
fn a_command_that_means_nothing_is_wrong_usage() {
    let server = Server::start(&[], &[]);
    let ops = server.token("olive", &["admin"]);
    for (args, word) in [
        (&["ban", ROOM, "u", "--purge", "90s"][..], "whole minutes"),
        (&["ban", ROOM, "u", "--purge", "5m", "--shadow"], "cannot be used"),
        (&["timeout", ROOM, "u"], "required"),
        (&["held", "deny", ROOM], "required"),
        (&["pin", ROOM, "1", "--off", "--for", "5m"], "cannot be used"),
        (&["members-only", ROOM], "required"),
        (&["blackout", ROOM], "required"),
        (&["blackout", ROOM, "GB", "--off"], "cannot be used"),
        (&["access", "revoke"], "required"),
        (&["access", "revoke", "--user", "a", "--key", "b"], "cannot be used"),
        (&["unique-comment", ROOM, "perhaps"], "invalid value"),
    ] {
        let out = admin(&server, Some(&ops), &[args, &WHY].concat());
        assert_eq!((out.status.code(), out.stdout.is_empty()), (Some(2), true), "{args:?}");
        assert!(complained(&out).contains(word), "{args:?}: {}", complained(&out));
    }
}

/// The exit code and what is told where somebody sits at a terminal and types `typed`.
fn at_a_terminal(server: &Server, token: &str, words: &str, typed: &str) -> (Option<i32>, String) {
    use std::io::Write as _;
    use std::process::{Command, Stdio};
    let line = format!("{} admin {words} -j spam", env!("CARGO_BIN_EXE_grandstand"));
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    command.env("GRANDSTAND_URL", format!("http://{}", server.addr)).env("GRANDSTAND_TOKEN", token);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("script of util-linux can be started");
    child.stdin.take().expect("it is piped").write_all(typed.as_bytes()).expect("it is taken");
    let out = child.wait_with_output().expect("it ends");
    (out.status.code(), said(&out))
}

#[test]
fn at_a_terminal_what_cannot_be_taken_back_is_asked_about_first() {
    let server = Server::start(&[], &[]);
    let (ops, ann) = (server.token("olive", &["admin"]), server.token("ann", &["publisher"]));
    let id = server.published(ROOM, &ann, "k1", "hi");
    let is_there = || {
        let snapshot = server.http().call("GET", &format!("/v1/rooms/{ROOM}/snapshot"), None, None).expect("an answer");
        snapshot.json["recent_comments"].as_array().is_some_and(|all| !all.is_empty())
    };
    let words = format!("retract {ROOM} {id}");
    for no in ["n\n", "\n", "what\n"] {
        let (code, told) = at_a_terminal(&server, &ops, &words, no);
        assert!(
            code == Some(8) && told.contains("cannot be undone") && told.contains("Go on?") && is_there(),
            "{code:?} {told}"
        );
    }
    let (code, told) = at_a_terminal(&server, &ops, &words, "yes\n");
    assert!(code == Some(0) && told.contains("is retracted") && !is_there(), "{code:?} {told}");
    // What can be taken back is not asked about, and neither is who said yes before.
    for words in [format!("timeout {ROOM} ann 5m"), format!("unban {ROOM} ann"), "--yes site ban ann".to_owned()] {
        let (code, told) = at_a_terminal(&server, &ops, &words, "");
        assert!(code == Some(0) && !told.contains("Go on?"), "{words}: {code:?} {told}");
    }
}
