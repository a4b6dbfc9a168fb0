//! Gifts from the backend's call to every viewer: once, in order, complete, whatever is killed in between.

use std::time::Instant;

use serde_json::{Value, json};

use crate::processes;
use crate::support::{Answer, LIMIT, Server};
use crate::viewer::{RUNGS, Rung, Viewer};

fn open(server: &Server, rung: Rung, room: &str, cursor: Option<u64>) -> Viewer {
    let cursor = cursor.map(|c| c.to_string());
    Viewer::open(server, rung, room, cursor.as_deref(), None).unwrap_or_else(|a| panic!("{rung:?}: {a:?}"))
}

fn gift(gift_id: &str, user: &str, item: &str, count: u32, micros: u64) -> Value {
    json!({"gift_id": gift_id, "user": {"id": user, "name": format!("{user} of the north stand")}, "item": item,
        "count": count, "amount_micros": micros, "currency": "EUR"})
}

fn give(server: &Server, token: &str, room: &str, gift: &Value) -> Answer {
    server.http().call("POST", &format!("/v1/rooms/{room}/gifts"), Some(token), Some(gift)).expect("an answer")
}

/// The same, to a server whose shard may be away: a backend asks again, with the same key.
fn told(server: &Server, token: &str, room: &str, gift: &Value) -> Answer {
    let end = Instant::now() + LIMIT;
    loop {
        let answer = give(server, token, room, gift);
        if answer.status != 503 {
            return answer;
        }
        assert!(Instant::now() < end, "{:?}", answer.json);
    }
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
        let mut viewers: Vec<Viewer> = (0..6).map(|n| open(&server, RUNGS[n % 3], "r", Some(before))).collect();
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
            let seen = open(&server, rung, "r", Some(before)).until_id(last);
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
            viewers.extend(RUNGS.map(|rung| open(&server, rung, "r", Some(before))));
        } else {
            // Those of the gateways live through it.
            viewers.extend([Rung::WebSocket, Rung::Sse].map(|rung| open(&server, rung, "r", Some(before))));
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
