//! Who may be here: tokens taken back end their streams wherever they are open, and a declared outage lets those that ran out watch.

use std::time::{Duration, SystemTime};

use grandstand_core::time::Wall;
use grandstand_server::auth::keys::SigningKey;
use grandstand_server::auth::token::Claims;
use serde_json::{Value, json};

use crate::support::{Answer, Server, until};
use crate::viewer::{RUNGS, Rung, Viewer};

pub fn now() -> Wall {
    Wall(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_millis() as u64)
}

/// A token of the server's own key, for an hour, changed as a test needs it.
pub fn minted(server: &Server, sub: &str, change: impl FnOnce(&mut Claims)) -> String {
    let key = SigningKey::in_folder(&server.data()).expect("the server made it");
    let mut claims = Claims::new(sub, now(), Duration::from_secs(3600));
    // Of a moment ago, as an identity provider's that somebody uses.
    claims.iat = claims.iat.map(|iat| iat - 60);
    change(&mut claims);
    key.mint(&claims)
}

fn ask(server: &Server, method: &str, path: &str, token: &str, body: Value) -> Answer {
    let mut body = body;
    body["justification"] = json!("process test");
    server.call_until_there(method, path, Some(token), Some(&body))
}

fn revoke(server: &Server, token: &str, whose: Value) {
    let answer = ask(server, "POST", "/admin/access/revocations", token, whose);
    assert_eq!(answer.status, 200, "{:?}", answer.json);
}

fn open(server: &Server, rung: Rung, room: &str, token: &str) -> Viewer {
    Viewer::open(server, rung, room, None, Some(token)).unwrap_or_else(|a| panic!("{rung:?}: {a:?}"))
}

/// The code with which a stream is ended; waits for it.
pub fn end_of(viewer: &mut Viewer) -> u64 {
    let mut code = None;
    while let Some(event) = viewer.next() {
        if event["type"] == "close" {
            code = event["code"].as_u64();
        }
    }
    let refused = viewer.refused.as_ref().and_then(|answer| answer.json["code"].as_u64());
    code.or(refused).or(viewer.closed.map(u64::from)).unwrap_or_else(|| panic!("it ended without a word"))
}

#[test]
fn a75_a_revoked_user_is_sent_away_from_every_stream_and_does_not_come_back() {
    for args in [&[][..], &["--gateways", "2"]] {
        let mut server = Server::start(args, &[]);
        let ops = server.token("ops", &["admin"]);
        server.put_room("stand", &ops, json!({"anonymous_view": true}));
        let [eve, ann] = ["eve", "ann"].map(|sub| minted(&server, sub, |_| {}));
        // As many as make it likely that each process has some.
        let mut of_eve: Vec<Viewer> = (0..6).map(|n| open(&server, RUNGS[n % 2], "stand", &eve)).collect();
        let mut of_ann = open(&server, Rung::WebSocket, "stand", &ann);
        of_eve.iter_mut().chain([&mut of_ann]).for_each(|viewer| drop(viewer.until(|e| e["type"] == "hello")));
        revoke(&server, &ops, json!({"user": "eve"}));
        for viewer in &mut of_eve {
            assert_eq!(end_of(viewer), 4003);
        }
        for restarted in [false, true] {
            if restarted {
                server.stop();
                server.restart();
            }
            for rung in RUNGS {
                let code = match Viewer::open(&server, rung, "stand", None, Some(&eve)) {
                    Ok(mut viewer) => end_of(&mut viewer),
                    Err(refused) => refused.json["code"].as_str().map_or(0, |code| {
                        assert!(["not_allowed", "bad_token"].contains(&code), "{code}");
                        4003
                    }),
                };
                assert_eq!(code, 4003, "{rung:?}, restarted: {restarted}");
            }
            let answer = server.publish("stand", &eve, "k1", "still here");
            assert_eq!((answer.status, &answer.json["code"]), (401, &json!("bad_token")), "{:?}", answer.json);
            let answer = server.http().call("POST", "/v1/ticket", Some(&eve), Some(&json!({"room_id": "stand"})));
            assert_eq!(answer.expect("an answer").status, 401);
        }
        let ops = server.token("ops", &["admin"]);
        let id = server.published("stand", &ann, "k2", "nothing was said of me");
        open(&server, Rung::WebSocket, "stand", &ann).until(|e| e["type"] == "hello");
        // Somebody who signs in again is somebody else than who had the old token.
        let new = minted(&server, "eve", |claims| {
            claims.iat = claims.iat.map(|iat| iat + 120).map(|iat| iat.min(now().0 / 1000 + 20))
        });
        open(&server, Rung::WebSocket, "stand", &new).until(|e| e["type"] == "hello");
        let listed = server.http().call("GET", "/admin/access", Some(&ops), None).expect("an answer").json;
        assert_eq!(listed["revoked"][0]["user"], "eve", "{listed}");
        assert_eq!(ask(&server, "DELETE", "/admin/access/revocations", &ops, json!({"user": "eve"})).status, 200);
        open(&server, Rung::WebSocket, "stand", &eve).until(|e| e["type"] == "hello");
        assert_eq!(ask(&server, "DELETE", "/admin/access/revocations", &ops, json!({"user": "eve"})).status, 404);
        assert!(id > 0);
        let audit = std::fs::read_to_string(server.data().join("audit.jsonl")).expect("the audit is there");
        let line = audit.lines().find(|line| line.contains("\"revoke\"")).expect("it is recorded");
        assert!(line.contains("process test") && line.contains("\"ops\"") && line.contains("eve"), "{line}");
    }
}

#[test]
fn a_session_and_a_key_are_taken_back_and_only_who_may_takes_them() {
    let server = Server::start(&[], &[]);
    let [admin, ops] = [("admin", "admin"), ("ops", "region-ops")].map(|(sub, role)| server.token(sub, &[role]));
    server.put_room("stand", &admin, json!({}));
    let session = |sid: &str| minted(&server, "eve", |claims| claims.sid = Some(sid.to_owned()));
    let (phone, laptop) = (session("phone"), session("laptop"));
    let mut on_phone = open(&server, Rung::WebSocket, "stand", &phone);
    let mut on_laptop = open(&server, Rung::WebSocket, "stand", &laptop);
    revoke(&server, &ops, json!({"session": "phone"}));
    assert_eq!(end_of(&mut on_phone), 4003);
    let later = minted(&server, "eve", |claims| {
        (claims.sid, claims.iat) = (Some("phone".to_owned()), Some(now().0 / 1000 + 20));
    });
    assert!(server.publish("stand", &later, "k", "a newer token of the session").status == 401);
    let id = server.published("stand", &laptop, "k", "from the other device");
    on_laptop.until_id(id);
    let whose = |whose: Value, token: &str| ask(&server, "POST", "/admin/access/revocations", token, whose);
    assert_eq!(whose(json!({"user": "eve"}), &laptop).status, 403, "a viewer");
    assert_eq!(whose(json!({"key": "idp-1"}), &ops).status, 403, "a key is an admin's");
    assert_eq!(whose(json!({"key": "idp-1"}), &admin).status, 200);
    assert_eq!(whose(json!({"key": "own"}), &admin).status, 422, "nobody could take it back");
    assert_eq!(whose(json!({"user": "eve", "session": "x"}), &admin).status, 422, "one of them");
    assert_eq!(whose(json!({}), &admin).status, 422);
    assert_eq!(whose(json!({"user": "eve", "seconds": 59}), &admin).status, 422);
    let unexplained = json!({"user": "eve"});
    let answer = server.http().call("POST", "/admin/access/revocations", Some(&admin), Some(&unexplained));
    assert_eq!(answer.expect("an answer").status, 422);
}

#[test]
fn a_poll_is_told_that_its_token_ends_as_a_stream_is() {
    let server = Server::start(&[], &[]);
    let id = server.published("stand", &server.token("ops", &["backend"]), "k", "something to begin at");
    let told = |seconds: u64| {
        let token = minted(&server, "ann", |claims| claims.exp = now().0 / 1000 + seconds);
        let path = format!("/v1/rooms/stand/poll?since={}&timeout=1&tab=t", id - 1);
        let answer = server.http().call("GET", &path, Some(&token), None).expect("an answer");
        let events = answer.json["events"].as_array().expect("events").clone();
        events.iter().find(|e| e["type"] == "token_expiring").map(|e| e["in_ms"].as_u64().expect("a time"))
    };
    assert!(told(100).is_some_and(|ms| ms <= 100_000), "the end is near");
    assert_eq!(told(600), None, "there is time");
}

#[test]
fn a57_a_declared_outage_lets_late_tokens_watch_and_ends_when_it_is_said_to() {
    for args in [&[][..], &["--gateways", "2"]] {
        let server = Server::start(args, &[]);
        let admin = server.token("admin", &["admin"]);
        server.put_room("stand", &admin, json!({"anonymous_view": false}));
        let ago = |seconds: u64| {
            minted(&server, "ann", |claims| {
                (claims.exp, claims.roles) = (now().0 / 1000 - seconds, Some(vec!["admin".into(), "publisher".into()]))
            })
        };
        let (late, too_late) = (ago(3600), ago(12 * 3600 + 5));
        let code = |token: &str| match Viewer::open(&server, Rung::WebSocket, "stand", None, Some(token)) {
            Ok(mut viewer) => end_of(&mut viewer),
            Err(refused) => panic!("{refused:?}"),
        };
        assert_eq!(code(&late), 4101, "without a declaration a late token is no token");
        let outage = |body: Value| ask(&server, "PUT", "/admin/access/outage", &admin, body);
        for bad in [json!({}), json!({"seconds": 59}), json!({"seconds": 86_401}), json!({"seconds": "1h"})] {
            assert_eq!(outage(bad.clone()).status, 422, "{bad}");
        }
        let answer = outage(json!({"seconds": 7200}));
        assert_eq!(answer.status, 200, "{:?}", answer.json);
        let watch = |n: usize| match args.is_empty() {
            true => {
                let mut viewer = open(&server, RUNGS[n % 2], "stand", &late);
                assert_eq!(viewer.next().expect("a word")["type"], "hello");
                viewer
            }
            false => Viewer::greeted(&server, RUNGS[n % 2], "stand", Some(&late)),
        };
        let mut watching: Vec<Viewer> = (0..4).map(watch).collect();
        assert_eq!(code(&too_late), 4101);
        // What else its roles gave it has ended with the token.
        assert_eq!(ask(&server, "PUT", "/admin/rooms/stand", &late, json!({"title": "mine"})).status, 403);
        let id = server.published("stand", &late, "k1", "nobody is judged first here");
        watching.iter_mut().for_each(|viewer| drop(viewer.until_id(id)));
        server.put_room("stand", &admin, json!({"moderation_policy": "pre-moderate"}));
        let id = server.published("stand", &late, "k1b", "and here they are judged like anybody");
        watching.iter_mut().for_each(|viewer| drop(viewer.until_id(id)));
        server.put_room("stand", &admin, json!({"moderation_policy": "pre-moderate-strict"}));
        let answer = server.publish("stand", &late, "k2", "here somebody is");
        assert_eq!((answer.status, &answer.json["code"]), (403, &json!("not_allowed")), "{:?}", answer.json);
        revoke(&server, &admin, json!({"session": "none of these"}));
        let answer = ask(&server, "DELETE", "/admin/access/outage", &admin, json!({}));
        assert_eq!(answer.status, 200, "{:?}", answer.json);
        for viewer in &mut watching {
            assert_eq!(end_of(viewer), 4101);
        }
        assert_eq!(code(&late), 4101);
        assert_eq!(ask(&server, "DELETE", "/admin/access/outage", &admin, json!({})).status, 404);
    }
}

#[test]
fn what_is_revoked_stays_revoked_in_an_outage() {
    let server = Server::start(&[], &[]);
    let admin = server.token("admin", &["admin"]);
    server.put_room("stand", &admin, json!({"anonymous_view": false}));
    let late = minted(&server, "eve", |claims| claims.exp = now().0 / 1000 - 600);
    assert_eq!(ask(&server, "PUT", "/admin/access/outage", &admin, json!({"seconds": 600})).status, 200);
    let mut viewer = open(&server, Rung::Sse, "stand", &late);
    viewer.until(|e| e["type"] == "hello");
    revoke(&server, &admin, json!({"user": "eve"}));
    assert_eq!(end_of(&mut viewer), 4003);
    until("the record is in force", || server.publish("stand", &late, "k", "x").status == 401);
}
