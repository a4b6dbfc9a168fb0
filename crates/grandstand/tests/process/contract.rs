//! Sentences of `docs/protocol.md`, asked of the real binary by its own names and codes.

use serde_json::json;

use crate::support::Server;
use crate::viewer::{Rung, Viewer};

#[test]
fn an_answer_to_head_on_a_streams_path_has_no_body() {
    let server = Server::start(&[], &[]);
    for path in ["/v1/rooms/r/sse", "/v1/rooms/r/poll", "/v1/rooms/r/stream", "/v1/rooms/r/auth"] {
        let mut http = server.http();
        http.send("HEAD", path, &[], &[]).expect("sent");
        let (status, head) = http.head().expect("an answer");
        assert_eq!((status, head["content-type"].as_str()), (405, "application/problem+json"), "{path}");
        // The connection goes on: what follows is the next answer and nothing else.
        let next = http.call("GET", "/healthz/live", None, None).expect("the next answer");
        assert_eq!(next.status, 200, "{path}");
    }
}

#[test]
fn a_listed_page_may_read_why_its_stream_was_refused() {
    let server = Server::start(&[], &[("GRANDSTAND_ORIGINS", "https://live.example.com")]);
    let origin = [("Origin", "https://live.example.com")];
    for (path, status) in
        [("/v1/rooms/R/poll", 400), ("/v1/rooms/r/poll?since=x", 400), ("/v1/rooms/r/sse?token=x", 400)]
    {
        let mut http = server.http();
        http.send("GET", path, &origin, &[]).expect("sent");
        let (got, head) = http.head().expect("an answer");
        assert_eq!(got, status, "{path}");
        assert_eq!(head.get("access-control-allow-origin").map(String::as_str), Some(origin[0].1), "{path}");
        assert_eq!(head.get("vary").map(String::as_str), Some("Origin"), "{path}");
    }
}

#[test]
fn who_watches_a_room_before_its_first_record_is_told_its_first_setting() {
    let server = Server::start(&[], &[]);
    let mut viewer = Viewer::open(&server, Rung::WebSocket, "new", None, None).expect("a stream");
    let hello = viewer.next().expect("hello");
    assert_eq!(hello["config"]["slow_mode_seconds"], 0);
    let settings = server.put_room("new", &server.token("ops", &["region-ops"]), json!({"slow_mode_seconds": 7}));
    assert_eq!(settings["version"], 1);
    let events = viewer.until(|e| e["type"] == "config");
    let config = events.last().expect("the config event");
    assert_eq!((&config["slow_mode_seconds"], &config["pseq"]), (&json!(7), &json!(1)));
    assert!(config.get("title").is_none(), "only what changed: {config}");
}

#[test]
fn a_colon_of_a_room_id_may_come_as_a_percent_code_on_every_route() {
    let server = Server::start(&[], &[]);
    let token = server.token("ann", &["publisher"]);
    server.published("match:final", &token, "k1", "hello");
    for path in ["/v1/rooms/match%3Afinal/snapshot", "/v1/rooms/match%3afinal/poll", "/v1/rooms/match:final/poll"] {
        let answer = server.http().call("GET", path, None, None).expect("an answer");
        assert_eq!(answer.status, 200, "{path}: {:?}", answer.json);
    }
    let answer = server.http().call("GET", "/v1/rooms/match%2Ffinal/poll", None, None).expect("an answer");
    assert_eq!((answer.status, &answer.json["code"]), (400, &json!("bad_room")));
}

#[test]
fn a_room_rates_wait_is_spread_and_a_users_own_is_not() {
    let server = Server::start(&[], &[]);
    let ops = server.token("ops", &["region-ops"]);
    server.put_room("busy", &ops, json!({"rate": 1}));
    server.put_room("own", &ops, json!({"user_rate": 1, "user_burst": 1}));
    let refused = |room: &str, user: &dyn Fn(u32) -> String| {
        (0..10)
            .map(|n| server.publish(room, &server.token(&user(n), &["publisher"]), &n.to_string(), "x"))
            .find(|answer| answer.status == 429)
            .expect("one is over the rate")
            .json
    };
    let shared = refused("busy", &|n| format!("user{n}"));
    assert_eq!((&shared["code"], &shared["reason"]), (&json!("rate_limited"), &json!("room_rate")));
    assert!(shared["spread_ms"].as_u64().expect("a spread") > 0, "{shared}");
    let own = refused("own", &|_| "ann".to_owned());
    assert_eq!((&own["reason"], &own["spread_ms"]), (&json!("user_rate"), &json!(0)));
}

#[test]
fn a_reply_to_what_does_not_exist_yet_is_a_bad_reply_on_every_way_in() {
    let server = Server::start(&[], &[]);
    let token = server.token("ann", &["publisher"]);
    let first = server.published("r", &token, "1", "x");
    let body = json!({"client_msg_id": "2", "body": "x", "reply_to": first + 1_000});
    let answer = server.http().call("POST", "/v1/rooms/r/comments", Some(&token), Some(&body)).expect("an answer");
    assert_eq!((answer.status, &answer.json["code"]), (422, &json!("bad_reply")));
    let mut viewer = Viewer::open(&server, Rung::WebSocket, "r", None, Some(&token)).expect("a stream");
    viewer.say(&json!({"op": "publish", "client_msg_id": "3", "body": "x", "reply_to": first + 1_000})).unwrap();
    let events = viewer.until(|e| e["type"] == "error");
    assert_eq!(events.last().expect("the error")["code"], "bad_reply");
}

#[test]
fn limits_of_a_connection_and_a_bad_renewal_are_refused_by_their_own_codes() {
    let server = Server::start(&[], &[]);
    let token = server.token("be", &["backend"]);
    let mut viewer = Viewer::open(&server, Rung::WebSocket, "r", None, Some(&token)).expect("a stream");
    viewer.say(&json!({"op": "auth", "token": "x.y.z"})).unwrap();
    let events = viewer.until(|e| e["type"] == "error");
    assert_eq!(events.last().expect("the error")["code"], "bad_token");
    for n in 0..201 {
        viewer.say(&json!({"op": "follow", "user_id": format!("u{n}")})).unwrap();
    }
    let events = viewer.until(|e| e["type"] == "error");
    assert_eq!(events.last().expect("the error")["code"], "too_many");
    for n in 0..128 {
        viewer.say(&json!({"op": "join", "room_id": format!("r{n}")})).unwrap();
    }
    let events = viewer.until(|e| e["type"] == "error");
    assert_eq!(events.last().expect("the error")["code"], "too_many");
}

#[test]
fn rooms_are_made_by_operators_and_not_by_moderators() {
    let server = Server::start(&[], &[("GRANDSTAND_ROOMS_CREATE_ON_USE", "false")]);
    let moderator = server.token_in("mod", &["room-mod"], &["r*"]);
    let why = "process test";
    let refused = [
        ("PUT", "/admin/rooms/r", json!({"slow_mode_seconds": 5, "justification": why})),
        ("POST", "/admin/rooms/r/slow-mode", json!({"seconds": 5, "justification": why})),
        ("POST", "/admin/rooms/r/state", json!({"state": "live", "justification": why})),
        ("POST", "/admin/rooms/r/bans", json!({"user_id": "x", "justification": why})),
    ];
    for (method, path, body) in &refused {
        let answer = server.http().call(method, path, Some(&moderator), Some(body)).expect("an answer");
        assert_eq!((answer.status, &answer.json["code"]), (404, &json!("no_such_room")), "{path}");
    }
    let backend = server.token("be", &["backend"]);
    let export = server.http().call("GET", "/admin/rooms/r/export", Some(&backend), None).expect("an answer");
    assert_eq!((export.status, &export.json["code"]), (404, &json!("no_such_room")));
    server.put_room("r", &server.token("ops", &["region-ops"]), json!({}));
    for (method, path, body) in &refused {
        let answer = server.http().call(method, path, Some(&moderator), Some(body)).expect("an answer");
        assert_eq!(answer.status, 200, "{path}");
    }
}

#[test]
fn a_stream_is_renewed_through_its_own_room_alone() {
    let server = Server::start(&[], &[]);
    let token = server.token("ann", &["publisher"]);
    let mut viewer = Viewer::open(&server, Rung::Sse, "r", None, Some(&token)).expect("a stream");
    let session = viewer.next().expect("hello")["session"].clone();
    let body = json!({"session": session, "token": token});
    let renew = |room: &str| {
        let path = format!("/v1/rooms/{room}/auth");
        server.http().call("POST", &path, None, Some(&body)).expect("an answer")
    };
    let other = renew("other");
    assert_eq!((other.status, &other.json["code"]), (404, &json!("not_found")));
    assert_eq!(renew("r").status, 204);
}

#[test]
fn a_room_is_made_scheduled_and_takes_scores_when_it_is_live() {
    let server = Server::start(&[], &[]);
    let ops = server.token("ops", &["region-ops"]);
    let made = server.put_room("cup", &ops, json!({"state": "scheduled", "matches": ["final"]}));
    assert_eq!((&made["state"], &made["version"]), (&json!("scheduled"), &json!(1)));
    let backend = server.token("be", &["backend"]);
    let goal =
        json!({"match_id": "final", "event_id": "g", "provider": "p", "kind": "goal", "score": {"home": 1, "away": 0}});
    let send = || server.http().call("POST", "/v1/score-event", Some(&backend), Some(&goal)).expect("an answer");
    let early = send();
    assert_eq!((early.status, &early.json["code"]), (409, &json!("room_state")));
    server.put_room("cup", &ops, json!({"state": "live"}));
    assert_eq!(send().status, 202);
    assert_eq!(send().status, 200);
    let again = json!({"state": "scheduled", "justification": "process test"});
    let refused = server.http().call("PUT", "/admin/rooms/cup", Some(&ops), Some(&again)).expect("an answer");
    assert_eq!((refused.status, &refused.json["code"]), (422, &json!("bad_field")));
}
