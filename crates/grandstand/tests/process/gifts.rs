//! Gifts from the backend's call to every viewer: once, in order, complete, whatever is killed in between.

use std::time::Instant;

use serde_json::{Value, json};

use crate::processes;
use crate::support::{Answer, Server};
use crate::viewer::{RUNGS, Rung, Viewer, open_at};

fn gift(gift_id: &str, user: &str, item: &str, count: u32, micros: u64) -> Value {
    json!({"gift_id": gift_id, "user": {"id": user, "name": format!("{user} of the north stand")}, "item": item,
        "count": count, "amount_micros": micros, "currency": "EUR"})
}

fn give(server: &Server, token: &str, room: &str, gift: &Value) -> Answer {
    server.http().call("POST", &format!("/v1/rooms/{room}/gifts"), Some(token), Some(gift)).expect("an answer")
}

/// The same, to a server whose shard may be away: a backend asks again, with the same key.
fn told(server: &Server, token: &str, room: &str, gift: &Value) -> Answer {
    server.call_until_there("POST", &format!("/v1/rooms/{room}/gifts"), Some(token), Some(gift))
}

fn given(server: &Server, token: &str, room: &str, gift: &Value) -> u64 {
    let answer = told(server, token, room, gift);
    assert_eq!(answer.status, 200, "{:?}", answer.json);
    answer.json["event_id"].as_u64().expect("an id")
}

#[test]
fn a_gift_reaches_every_viewer_on_every_rung_once() {
    for args in [&[][..], &["--gateways", "2"]] {
        let server = Server::start(args, &[]);
        let token = server.token("shop", &["backend"]);
        let before = server.published("r", &token, "k1", "before");
        let mut viewers: Vec<Viewer> = (0..6).map(|n| open_at(&server, RUNGS[n % 3], "r", Some(before))).collect();
        let first = given(&server, &token, "r", &gift("pay-1", "ann", "rocket", 3, 4_990_000));
        let second = given(&server, &token, "r", &gift("pay-2", "bob", "rose", 1, 100_000));
        let again = give(&server, &token, "r", &gift("pay-1", "ann", "rocket", 3, 4_990_000));
        assert_eq!(
            (again.status, &again.json["event_id"], &again.json["duplicate"]),
            (200, &json!(first), &json!(true))
        );
        let last = server.published("r", &token, "k2", "after");
        for viewer in &mut viewers {
            let seen = viewer.until_id(last);
            let gifts: Vec<&Value> = seen.iter().filter(|e| e["type"] == "gift").collect();
            let ids: Vec<u64> = gifts.iter().filter_map(|g| g["event_id"].as_u64()).collect();
            assert_eq!(ids, [first, second], "{seen:?}");
            let shown = gifts[0];
            let user = json!({"id": "ann", "display": "ann of the north stand", "badges": []});
            assert_eq!((&shown["user"], &shown["item"], &shown["count"]), (&user, &json!("rocket"), &json!(3)));
            assert_eq!((&shown["amount_micros"], &shown["currency"]), (&json!(4_990_000), &json!("EUR")));
            let pseqs: Vec<u64> = gifts.iter().filter_map(|g| g["pseq"].as_u64()).collect();
            assert_eq!(pseqs[1], pseqs[0] + 1);
        }
        // Who comes later with the old cursor is given the same.
        for rung in RUNGS {
            let seen = open_at(&server, rung, "r", Some(before)).until_id(last);
            let gifts: Vec<u64> =
                seen.iter().filter(|e| e["type"] == "gift").filter_map(|g| g["event_id"].as_u64()).collect();
            assert_eq!(gifts, [first, second], "{rung:?} {seen:?}");
        }
    }
}

#[test]
fn a_gift_is_refused_by_name_and_only_a_backend_may_send_one() {
    let server = Server::start(&[], &[]);
    let token = server.token("shop", &["backend"]);
    let good = gift("pay-1", "ann", "rocket", 3, 4_990_000);
    let fan = server.token("fan", &["publisher"]);
    let call = |token: Option<&str>, body: &Value| {
        let answer = server.http().call("POST", "/v1/rooms/r/gifts", token, Some(body)).expect("an answer");
        (answer.status, answer.json["code"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(call(None, &good), (401, "no_token".to_owned()));
    assert_eq!(call(Some(&fan), &good), (403, "not_allowed".to_owned()));
    assert_eq!(call(Some(&token), &json!({"gift_id": "x"})), (422, "bad_field".to_owned()));
    given(&server, &token, "r", &good);
    let other = gift("pay-1", "ann", "rocket", 4, 4_990_000);
    assert_eq!(call(Some(&token), &other), (409, "idempotency_conflict".to_owned()));
    let admin = server.token("admin", &["admin"]);
    server.put_room("r", &admin, json!({"state": "closed"}));
    assert_eq!(call(Some(&token), &gift("pay-2", "ann", "rocket", 1, 1)), (409, "room_state".to_owned()));
    assert_eq!(call(Some(&token), &good).0, 200, "a retry is answered in a closed room");
}

#[test]
fn a_gift_acked_before_a_kill_is_there_after_it_and_its_retry_is_answered() {
    for args in [&[][..], &["--gateways", "2"]] {
        let mut server = Server::start(args, &[]);
        let token = server.token("shop", &["backend"]);
        let before = server.published("r", &token, "k1", "before");
        let one = given(&server, &token, "r", &gift("pay-1", "ann", "rocket", 3, 4_990_000));
        let mut viewers = Vec::new();
        if args.is_empty() {
            server.kill();
            server.restart();
            viewers.extend(RUNGS.map(|rung| open_at(&server, rung, "r", Some(before))));
        } else {
            // Those of the gateways live through it.
            viewers.extend([Rung::WebSocket, Rung::Sse].map(|rung| open_at(&server, rung, "r", Some(before))));
            processes::kill(processes::shard_pid(&server));
        }
        let again = told(&server, &token, "r", &gift("pay-1", "ann", "rocket", 3, 4_990_000));
        assert_eq!((again.status, again.json["event_id"].as_u64()), (200, Some(one)), "{:?}", again.json);
        let last = given(&server, &token, "r", &gift("pay-2", "bob", "rose", 1, 100_000));
        for viewer in &mut viewers {
            let seen = viewer.until_id(last);
            let gifts: Vec<u64> =
                seen.iter().filter(|e| e["type"] == "gift").filter_map(|g| g["event_id"].as_u64()).collect();
            assert_eq!(gifts, [one, last], "{seen:?}");
        }
    }
}

/// What a viewer was given of gifts: of each combo its newest totals (gifts, items, micros), and how many events it took.
fn shown(events: &[Value]) -> (std::collections::BTreeMap<u64, (u64, u64, u64)>, usize) {
    let mut sums = std::collections::BTreeMap::new();
    let mut n = 0;
    for e in events.iter().filter(|e| e["type"] == "gift" || e["type"] == "gift_combo") {
        let number = |name: &str| e[name].as_u64();
        let id = number("combo_id").or(number("event_id")).expect("an id");
        let sum =
            (number("gifts").unwrap_or(1), number("count").expect("items"), number("amount_micros").expect("micros"));
        sums.insert(id, sum);
        n += 1;
    }
    (sums, n)
}

#[test]
fn a_combo_is_told_at_once_then_once_a_second_and_in_the_end_whole_to_everyone() {
    let mut server = Server::start(&[], &[]);
    let token = server.token("shop", &["backend"]);
    let admin = server.token("ops", &["region-ops"]);
    server.put_room("r", &admin, json!({"combo_seconds": 2}));
    let before = server.published("r", &token, "k1", "before");
    let mut early = open_at(&server, Rung::WebSocket, "r", Some(before));
    let start = Instant::now();
    let mut first = 0;
    for n in 0..30 {
        let id = given(&server, &token, "r", &gift(&format!("tap-{n}"), "ann", "rose", 2, 1_000));
        if n == 0 {
            first = id;
            early.until_id(id);
        }
    }
    let tapped = start.elapsed();
    // Killed in the middle: the next process owes what was not told.
    server.kill();
    server.restart();
    let whole = |e: &Value| e["ended"] == true;
    for rung in RUNGS {
        let seen = open_at(&server, rung, "r", Some(before)).until(whole);
        let (sums, n) = shown(&seen);
        assert_eq!(sums, [(first, (30, 60, 30_000))].into(), "{rung:?} {seen:?}");
        let most = 3 + tapped.as_secs() as usize;
        assert!(n <= most, "{n} events, {most} at most: {seen:?}");
        let pseqs: Vec<u64> = seen.iter().filter_map(|e| e["pseq"].as_u64()).collect();
        // A hello's is the baseline.
        assert!(pseqs.windows(2).all(|w| w[1] <= w[0] + 1), "{pseqs:?}");
    }
    let logged = server.export("r", &token).iter().filter(|line| line["type"] == "gift").count();
    assert_eq!(logged, 30, "each is in the log under its own id");
}

#[test]
fn the_account_of_a_room_is_the_sum_of_its_gifts_across_restarts() {
    let mut server = Server::start(&[], &[]);
    let token = server.token("shop", &["backend"]);
    let admin = server.token("ops", &["region-ops"]);
    server.put_room("r", &admin, json!({"combo_seconds": 1}));
    let mut sums = std::collections::BTreeMap::<(String, String), (u64, u64, u128)>::new();
    for n in 0..60u64 {
        let (user, currency) = (["ann", "bob", "eve"][n as usize % 3], ["EUR", "JPY"][n as usize % 2]);
        let mut one = gift(&format!("pay-{n}"), user, "rose", 1 + n as u32 % 4, 1_000_000_000_000_000 - n);
        one["currency"] = json!(currency);
        given(&server, &token, "r", &one);
        given(&server, &token, "r", &one);
        let sum = sums.entry((currency.to_owned(), user.to_owned())).or_default();
        *sum = (sum.0 + 1, sum.1 + 1 + n % 4, sum.2 + u128::from(1_000_000_000_000_000 - n));
        if n == 30 {
            server.stop();
            server.restart();
        }
    }
    server.kill();
    server.restart();
    let ask = |query: &str| {
        let path = format!("/admin/rooms/r/gifts{query}");
        server.http().call("GET", &path, Some(&token), None).expect("an answer")
    };
    let whole = ask("").json;
    assert_eq!((&whole["gifts"], &whole["more"]), (&json!(60), &json!(false)), "{whole}");
    let rows = whole["totals"].as_array().expect("rows").iter().map(|row| {
        let text = |name: &str| row[name].as_str().expect("text").to_owned();
        let number = |name: &str| row[name].as_u64().expect("a number");
        let micros = text("amount_micros").parse().expect("digits");
        ((text("currency"), text("user_id")), (number("gifts"), number("count"), micros))
    });
    assert_eq!(rows.collect::<std::collections::BTreeMap<_, _>>(), sums);
    let ann = ask("?user=ann&currency=EUR").json;
    assert_eq!(ann["gifts"], sums[&("EUR".to_owned(), "ann".to_owned())].0, "{ann}");
    // Parts add up.
    let middle = whole["upto"].as_u64().expect("an id") - 40;
    let parts = [ask(&format!("?to={middle}")).json, ask(&format!("?from={}", middle + 1)).json];
    assert_eq!(parts.iter().filter_map(|part| part["gifts"].as_u64()).sum::<u64>(), 60, "{parts:?}");
    assert_eq!(ask("?user=").status, 400);
    let fan = server.token("fan", &["publisher"]);
    let denied = server.http().call("GET", "/admin/rooms/r/gifts", Some(&fan), None).expect("an answer");
    assert_eq!(denied.status, 403);
}

#[test]
fn replayed_purchases_are_counted_once_and_equal_the_account() {
    let server = Server::start(&[], &[]);
    let samples = concat!(env!("CARGO_MANIFEST_DIR"), "/samples");
    // File, purchases posted, logged.
    let mut files: Vec<(String, u64, u64)> = [("youtube.jsonl", 2, 1), ("bilibili.xml", 2, 2), ("tiktok.jsonl", 3, 3)]
        .map(|(name, posted, logged)| (format!("{samples}/{name}"), posted, logged))
        .into();
    match std::env::var("GRANDSTAND_TRACES").ok().filter(|folder| !folder.is_empty()) {
        None => println!("the samples alone: GRANDSTAND_TRACES unset"),
        Some(folder) => {
            let chat = [
                ("07_youtube_superchat_2020-09-17.jsonl", 125, 68),
                ("13_bilibili_live_recorder_sample.xml", 30, 30),
                ("16_tiktok_event_samples.jsonl", 1, 1),
            ];
            files.extend(chat.map(|(name, posted, logged)| (format!("{folder}/chat/{name}"), posted, logged)));
        }
    }
    for (n, (file, posted, logged)) in files.iter().enumerate() {
        let mut replay = std::process::Command::new(env!("CARGO_BIN_EXE_grandstand"));
        let url = format!("http://{}", server.addr);
        replay.args([
            "replay",
            file,
            "--room",
            &format!("replay-{n}"),
            "--url",
            &url,
            "--speed",
            "max",
            "--json",
            "--data",
        ]);
        let out = replay.arg(server.data()).output().expect("the binary can be started");
        let account: Value = serde_json::from_slice(&out.stdout).unwrap_or_else(|e| {
            panic!("{file}: {e}: {} {}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
        });
        assert!(out.status.success(), "{file}: {account}");
        let gifts = &account["gifts"];
        let numbers =
            ["posted", "logged", "repeated", "shown", "counted"].map(|name| gifts[name].as_u64().unwrap_or(0));
        assert_eq!(numbers, [*posted, *logged, posted - logged, *logged, *logged], "{file}: {account}");
    }
}
