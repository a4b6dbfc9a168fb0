//! Bans as the open streams of every gateway process know them, and what is said under a shadow ban.

use serde_json::{Value, json};

use crate::support::Server;
use crate::viewer::{RUNGS, Rung, Viewer};

fn call(server: &Server, method: &str, path: &str, token: &str, body: &Value) -> Value {
    let answer = server.call_until_there(method, path, Some(token), Some(body));
    assert_eq!(answer.status, 200, "{:?}", answer.json);
    answer.json
}

fn open(server: &Server, rung: Rung, room: &str, token: &str, cursor: Option<u64>) -> Viewer {
    let cursor = cursor.map(|c| c.to_string());
    let mut viewer = Viewer::open(server, rung, room, cursor.as_deref(), Some(token)).expect("a stream");
    if rung != Rung::Poll {
        assert_eq!(viewer.next().expect("hello")["type"], "hello");
    }
    viewer
}

#[test]
fn a_banned_users_open_streams_are_told_and_a_ban_of_the_site_closes_them() {
    for args in [&[][..], &["--gateways", "2"]] {
        let server = Server::start(args, &[]);
        let (admin, ann) = (server.token("ops", &["admin"]), server.token("ann", &["publisher"]));
        server.put_room("a", &admin, json!({}));
        let mut streams: Vec<Viewer> = (0..6).map(|n| open(&server, RUNGS[n % 2], "a", &ann, None)).collect();
        let ban = json!({"user_id": "ann", "seconds": 600, "justification": "third warning"});
        call(&server, "POST", "/admin/rooms/a/bans", &admin, &ban);
        for stream in &mut streams {
            let told = stream.until(|e| e["type"] == "error").pop().expect("an error");
            assert_eq!((&told["code"], &told["room_id"]), (&json!("banned"), &json!("a")), "{told}");
            assert!(told["retry_after_ms"].as_u64().is_some_and(|ms| ms <= 600_000), "{told}");
        }
        let ban = json!({"user_id": "ann", "justification": "in every room"});
        call(&server, "POST", "/admin/bans", &admin, &ban);
        for stream in &mut streams {
            let close = stream.until(|e| e["type"] == "close").pop().expect("a close");
            assert_eq!(close["code"], 4003, "{close}");
        }
        // One that comes later is refused, in a room it was not banned from too.
        server.put_room("b", &admin, json!({}));
        match Viewer::open(&server, Rung::WebSocket, "b", None, Some(&ann)) {
            Ok(mut stream) => assert_eq!(stream.next().expect("a close")["code"], 4003),
            Err(answer) => panic!("{answer:?}"),
        }
        let listed = || server.http().call("GET", "/admin/bans", Some(&admin), None).expect("an answer").json;
        let all = listed();
        assert_eq!(
            (&all["found"], &all["bans"][0]["user_id"], &all["bans"][0]["by"]),
            (&json!(1), &json!("ann"), &json!("ops"))
        );
        assert_eq!(all["bans"][0]["justification"], "in every room", "{all}");
        call(&server, "DELETE", "/admin/bans", &admin, &json!({"user_id": "ann", "justification": "a mistake"}));
        assert_eq!(listed(), json!({"bans": [], "found": 0, "more": false}));
        open(&server, Rung::WebSocket, "b", &ann, None);
    }
}

#[test]
fn the_sites_bans_are_listed_as_ever_after_a_restart() {
    for args in [&[][..], &["--gateways", "2"]] {
        let mut server = Server::start(args, &[]);
        let admin = server.token("ops", &["admin"]);
        for (user, more) in [("ann", json!({"seconds": 600})), ("bob", json!({"shadow": true, "reason": "ads"}))] {
            let mut ban = more;
            ban["user_id"] = json!(user);
            ban["justification"] = json!("a raid");
            call(&server, "POST", "/admin/bans", &admin, &ban);
        }
        let listed = |server: &Server| {
            let answer = server.call_until_there("GET", "/admin/bans", Some(&admin), None);
            assert_eq!(answer.status, 200, "{:?}", answer.json);
            answer.json
        };
        let before = listed(&server);
        assert_eq!((&before["found"], &before["bans"][1]["shadow"]), (&json!(2), &json!(true)), "{before}");
        server.stop();
        server.restart();
        assert_eq!(listed(&server), before);
    }
}

/// Comments in what was seen, by their text.
fn texts(seen: &[Value]) -> Vec<&str> {
    seen.iter().filter(|e| e["type"] == "comment").filter_map(|e| e["body"].as_str()).collect()
}

#[test]
fn what_a_shadow_banned_user_says_is_seen_by_itself_and_moderators_on_every_rung() {
    for args in [&[][..], &["--gateways", "2"]] {
        let server = Server::start(args, &[]);
        let (admin, eve) = (server.token("ops", &["admin"]), server.token("eve", &["publisher"]));
        let (bob, moderator) = (server.token("bob", &["publisher"]), server.token_in("mod", &["room-mod"], &["a"]));
        server.put_room("a", &admin, json!({}));
        let start = server.published("a", &bob, "k0", "start");
        let ban = json!({"user_id": "eve", "shadow": true, "justification": "ads"});
        call(&server, "POST", "/admin/rooms/a/bans", &admin, &ban);
        let of = |token: &str| RUNGS.map(|rung| open(&server, rung, "a", token, Some(start)));
        let (mut own, mut mods, mut others) = (of(&eve), of(&moderator), of(&bob));
        let hidden = server.published("a", &eve, "k1", "buy this");
        let last = server.published("a", &bob, "k1", "end");
        for viewer in own.iter_mut().chain(&mut mods) {
            let seen = viewer.until_id(last);
            assert_eq!(texts(&seen), ["buy this", "end"], "live");
            assert!(seen.iter().any(|e| e["event_id"] == hidden));
        }
        for viewer in &mut others {
            assert_eq!(texts(&viewer.until_id(last)), ["end"], "live");
        }
        // The log's pages and rings of streams that resume.
        for (token, wanted) in [(&eve, &["buy this", "end"][..]), (&moderator, &["buy this", "end"]), (&bob, &["end"])]
        {
            for rung in RUNGS {
                let seen = open(&server, rung, "a", token, Some(start)).until_id(last);
                assert_eq!(texts(&seen), wanted, "{rung:?}");
                let keyed = seen.iter().any(|e| e["client_msg_id"] == "k1" && e["event_id"] == hidden);
                assert_eq!(keyed, *token == eve, "a copy of one's own has its key");
            }
        }
    }
}

#[test]
fn a_wide_room_shows_what_is_said_under_a_shadow_ban_to_its_author_alone() {
    let server = Server::start(&[], &[]);
    let (admin, eve) = (server.token("ops", &["admin"]), server.token("eve", &["publisher"]));
    let bob = server.token("bob", &["publisher"]);
    server.put_room("w", &admin, json!({"sampling": "always"}));
    let ban = json!({"user_id": "eve", "shadow": true, "justification": "ads"});
    call(&server, "POST", "/admin/rooms/w/bans", &admin, &ban);
    let mut own = open(&server, Rung::WebSocket, "w", &eve, None);
    let mut other = open(&server, Rung::Sse, "w", &bob, None);
    own.say(&json!({"op": "publish", "client_msg_id": "k1", "body": "buy this"})).expect("it is said");
    let ack = own.until(|e| e["type"] == "publish_ack").pop().expect("an ack");
    assert!(ack["raw_id"].is_u64() && ack.get("event_id").is_none(), "{ack}");
    let committed = own.until(|e| e["type"] == "publish_commit").pop().expect("its fate");
    assert!(committed["event_id"].is_u64(), "alone in its window it is drawn: {committed}");
    let answer = server.publish("w", &bob, "k1", "end");
    assert_eq!(answer.status, 200, "{:?}", answer.json);
    let seen = other.until(|e| e["type"] == "comment" && e["body"] == "end");
    assert_eq!(texts(&seen), ["end"]);
}
