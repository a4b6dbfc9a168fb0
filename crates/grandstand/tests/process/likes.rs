//! Likes and who watches, as clients see them: given by socket and by POST, told on every rung, counted once whatever dies.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::processes::{child, kill, metric, shard_pid};
use crate::support::{Answer, Http, Server, until, until_within};
use crate::viewer::{RUNGS, Rung, Viewer};

/// How often at the latest who watches is told anew: by then a dead gateway's viewers are not counted any more.
const HEARTBEAT: Duration = Duration::from_secs(5);

fn open(server: &Server, rung: Rung, room: &str, token: Option<&str>) -> Viewer {
    let mut viewer =
        Viewer::open(server, rung, room, None, token).unwrap_or_else(|a| panic!("{} {:?}", a.status, a.json));
    viewer.until(|e| e["type"] == "hello");
    viewer
}

fn like(viewer: &mut Viewer, room: &str, kind: &str, n: u64) {
    viewer.say(&json!({"op": "like", "room_id": room, "kind": kind, "n": n})).expect("sent");
}

fn post(server: &Server, room: &str, token: Option<&str>, body: &Value) -> Answer {
    server.http().call("POST", &format!("/v1/rooms/{room}/likes"), token, Some(body)).expect("an answer")
}

fn snapshot(server: &Server, room: &str) -> Value {
    server.call_until_there("GET", &format!("/v1/rooms/{room}/snapshot"), None, None).json
}

/// Reads until the room's likes are these; panics when a total falls on the way, or is more than it may be.
fn until_likes(viewer: &mut Viewer, wanted: &Value) {
    let mut last: BTreeMap<String, u64> = BTreeMap::new();
    let count = |likes: &Value| -> BTreeMap<String, u64> {
        let likes = likes.as_object().expect("an object");
        likes.iter().map(|(kind, n)| (kind.clone(), n.as_u64().expect("a count"))).collect()
    };
    viewer.until(|event| {
        if event["type"] != "counters" {
            return false;
        }
        let now = count(&event["likes"]);
        for (kind, n) in &last {
            assert!(now.get(kind).is_some_and(|now| now >= n), "{kind} fell from {n}: {now:?}");
        }
        for (kind, n) in &now {
            assert!(*n <= wanted[kind].as_u64().unwrap_or(0), "more than was given: {now:?}, {wanted}");
        }
        last = now;
        event["likes"] == *wanted
    });
}

fn is_ready(server: &Server) -> bool {
    let answer = server.try_http().and_then(|mut http| http.call("GET", "/healthz/ready", None, None));
    answer.is_ok_and(|answer| answer.status == 200)
}

#[test]
fn likes_by_socket_and_by_post_are_told_on_every_rung_and_kept_across_a_kill() {
    for args in [&[][..], &["--gateways", "2"]] {
        let mut server = Server::start(args, &[]);
        let fan = server.token("fan", &["publisher"]);
        let other = server.token("other", &["publisher"]);
        let mut viewers: Vec<Viewer> = (0..9).map(|n| open(&server, RUNGS[n % 3], "r", None)).collect();
        let mut speaker = open(&server, Rung::WebSocket, "r", Some(&fan));
        like(&mut speaker, "r", "like", 7);
        like(&mut speaker, "r", "heart", 1);
        let answer = post(&server, "r", Some(&other), &json!({"n": 5}));
        assert_eq!((answer.status, &answer.json), (202, &json!({"room_id": "r", "kind": "like", "n": 5})));
        let total = json!({"heart": 1, "like": 12});
        for viewer in viewers.iter_mut().chain([&mut speaker]) {
            until_likes(viewer, &total);
        }
        let operator = server.token("ops", &["region-ops"]);
        let shown = |server: &Server| {
            let room = server.call_until_there("GET", "/admin/rooms/r", Some(&operator), None).json;
            [snapshot(server, "r")["counters"]["likes"].clone(), room["counters"]["likes"].clone()]
        };
        assert_eq!(shown(&server), [total.clone(), total.clone()]);
        let hello = Viewer::open(&server, Rung::Sse, "r", None, None).expect("a stream").next().expect("a hello");
        assert_eq!(hello["counters"]["likes"], total);
        drop((viewers, speaker));
        // What was shown is in the log, whatever ends.
        if args.is_empty() {
            server.kill();
            server.restart();
        } else {
            kill(shard_pid(&server));
        }
        assert_eq!(shown(&server), [total.clone(), total.clone()]);
        let mut speaker = Viewer::greeted(&server, Rung::WebSocket, "r", Some(&fan));
        like(&mut speaker, "r", "like", 1);
        until_likes(&mut speaker, &json!({"heart": 1, "like": 13}));
    }
}

#[test]
fn what_may_not_be_liked_is_refused_by_the_rule_it_breaks() {
    let server = Server::start(&[], &[]);
    let operator = server.token("ops", &["region-ops"]);
    let fan = server.token("fan", &["publisher"]);
    let code = |answer: Answer| (answer.status, answer.json["code"].as_str().unwrap_or_default().to_owned());
    server.put_room("r", &operator, json!({"title": "r"}));
    server.put_room("off", &operator, json!({"like_rate": 0}));
    server.put_room("shut", &operator, json!({"state": "closed"}));
    for (body, status, expected) in [
        (json!({}), 400, "bad_request"),
        (json!({"n": 0}), 400, "bad_request"),
        (json!({"n": 51}), 400, "bad_request"),
        (json!({"n": 1, "kind": "Heart"}), 400, "bad_request"),
    ] {
        assert_eq!(code(post(&server, "r", Some(&fan), &body)), (status, expected.to_owned()), "{body}");
    }
    let one = json!({"n": 1});
    assert_eq!(code(post(&server, "r", None, &one)), (401, "no_token".to_owned()));
    assert_eq!(code(post(&server, "r", Some(&server.token("v", &["viewer"])), &one)), (403, "not_allowed".to_owned()));
    assert_eq!(code(post(&server, "off", Some(&fan), &one)), (409, "room_state".to_owned()));
    assert_eq!(code(post(&server, "shut", Some(&fan), &one)), (409, "room_state".to_owned()));
    // Five seconds' worth at once, then the rate.
    assert_eq!(code(post(&server, "r", Some(&fan), &json!({"n": 50}))).0, 202);
    assert_eq!(code(post(&server, "r", Some(&fan), &json!({"n": 50}))).0, 202);
    let over = post(&server, "r", Some(&fan), &json!({"n": 50}));
    assert_eq!(
        (over.status, &over.json["code"], &over.json["reason"]),
        (429, &json!("rate_limited"), &json!("user_rate"))
    );
    assert!(over.json["retry_after_ms"].as_u64().is_some_and(|ms| (1_000..=2_500).contains(&ms)), "{:?}", over.json);
    let mut speaker = open(&server, Rung::WebSocket, "r", Some(&fan));
    like(&mut speaker, "r", "like", 50);
    let told = speaker.until(|e| e["type"] == "rate_limited").pop().expect("it is told");
    assert_eq!(told["reason"], "user_rate");
    // Reactions have a rate of their own, the same by both roads.
    let event_id = server.published("r", &fan, "k1", "to be reacted to");
    let react = json!({"event_id": event_id, "kind": "fire"});
    let by_post = || server.http().call("POST", "/v1/rooms/r/reactions", Some(&fan), Some(&react)).expect("an answer");
    let taken: Vec<u16> = (0..20).map(|_| by_post().status).collect();
    assert_eq!(taken, [204; 20]);
    let over = std::iter::repeat_with(by_post).take(1_000).find(|answer| answer.status != 204).expect("one is over");
    assert_eq!(over.status, 429);
    assert_eq!((&over.json["code"], &over.json["reason"]), (&json!("rate_limited"), &json!("user_rate")));
    assert!(over.json["retry_after_ms"].as_u64().is_some_and(|ms| (1..=200).contains(&ms)), "{:?}", over.json);
    for _ in 0..60 {
        speaker.say(&json!({"op": "react", "room_id": "r", "event_id": event_id, "kind": "fire"})).expect("sent");
    }
    assert_eq!(speaker.until(|e| e["type"] == "rate_limited").pop().expect("it is told")["reason"], "user_rate");
    let mut nobody = open(&server, Rung::WebSocket, "r", None);
    like(&mut nobody, "r", "like", 1);
    assert_eq!(nobody.until(|e| e["type"] == "error").pop().expect("it is told")["code"], "not_allowed");
    // A banned user's likes are taken at the door and not counted.
    let moderator = server.token_in("mod", &["room-mod"], &["r"]);
    let ban = json!({"user_id": "bad", "reason": "spam", "justification": "j"});
    let banned = server.http().call("POST", "/admin/rooms/r/bans", Some(&moderator), Some(&ban)).expect("an answer");
    assert_eq!(banned.status, 200, "{:?}", banned.json);
    assert_eq!(post(&server, "r", Some(&server.token("bad", &["publisher"])), &json!({"n": 9})).status, 202);
    assert_eq!(post(&server, "r", Some(&server.token("good", &["publisher"])), &one).status, 202);
    until("the good one's like is shown", || snapshot(&server, "r")["counters"]["likes"] == json!({"like": 101}));
    until("the other's are counted apart", || {
        metric(&server, "grandstand_likes_uncounted_total{reason=\"banned\"}") == 9
    });
}

#[test]
fn a_shard_killed_again_and_again_loses_no_like_of_living_gateways_and_counts_none_twice() {
    let server = Server::start(&["--gateways", "2"], &[]);
    let mut fans: Vec<Viewer> = (0..8)
        .map(|n| open(&server, Rung::WebSocket, "r", Some(&server.token(&format!("fan-{n}"), &["publisher"]))))
        .collect();
    let mut viewers: Vec<Viewer> = (0..4).map(|_| open(&server, Rung::Sse, "r", None)).collect();
    let mut given = 0;
    for round in 0..4 {
        for fan in &mut fans {
            like(fan, "r", "like", 1 + round);
            given += 1 + round;
        }
        // Between two ticks, in the middle of one, behind one: wherever it happens to be.
        kill(shard_pid(&server));
        for fan in &mut fans {
            like(fan, "r", "like", 2);
            given += 2;
        }
        until("the shard is back", || is_ready(&server));
    }
    let total = json!({ "like": given });
    for viewer in viewers.iter_mut().chain(&mut fans) {
        until_likes(viewer, &total);
    }
    assert_eq!(snapshot(&server, "r")["counters"]["likes"], total);
}

#[test]
fn a_killed_gateway_takes_its_viewers_with_it_and_at_most_a_ticks_likes() {
    let server = Server::start(&["--gateways", "2"], &[]);
    let mut fans: Vec<Viewer> = (0..12)
        .map(|n| open(&server, Rung::WebSocket, "r", Some(&server.token(&format!("fan-{n}"), &["publisher"]))))
        .collect();
    for fan in &mut fans {
        like(fan, "r", "like", 3);
    }
    let total = json!({"like": 36});
    for fan in &mut fans {
        until_likes(fan, &total);
    }
    let operator = server.token("ops", &["region-ops"]);
    let watching = || {
        let room = Http::connect(server.addr).and_then(|mut h| h.call("GET", "/admin/rooms/r", Some(&operator), None));
        room.ok()
            .and_then(|r| Some((r.json["counters"]["viewers"].as_u64()?, r.json["counters"]["connections"].as_u64()?)))
    };
    until("all twelve are counted", || watching() == Some((12, 12)));
    kill(child(&server, "gateway:0/2"));
    // The sockets of the dead one are closed; its viewers are not counted any more, long before the next report is due.
    let left =
        fans.iter_mut().map(|fan| fan.say(&json!({"op": "ping"})).is_ok() && ends(fan)).filter(|ended| !ended).count();
    until_within(HEARTBEAT, "those of the other are left", || watching() == Some((left as u64, left as u64)));
    assert_eq!(snapshot(&server, "r")["counters"]["likes"], total, "what was shown stands");
}

/// Whether the stream has ended: a ping is not answered.
fn ends(viewer: &mut Viewer) -> bool {
    loop {
        match viewer.next() {
            None => return true,
            Some(event) if event["type"] == "pong" => return false,
            Some(_) => {}
        }
    }
}

#[test]
fn a_user_who_watches_twice_is_one_viewer_over_all_gateways() {
    for args in [&[][..], &["--gateways", "2"]] {
        let server = Server::start(args, &[]);
        let twice = server.token("twice", &["viewer"]);
        let mut tabs: Vec<Viewer> = (0..10).map(|_| open(&server, Rung::WebSocket, "r", Some(&twice))).collect();
        let others: Vec<Viewer> = (0..3).map(|_| open(&server, Rung::Sse, "r", None)).collect();
        tabs[0].until(|e| e["type"] == "counters" && e["viewers"] == 4);
        until("the snapshot says so too", || snapshot(&server, "r")["counters"]["viewers"] == 4);
        assert_eq!((metric(&server, "grandstand_people"), metric(&server, "grandstand_viewers")), (4, 13));
        drop(others);
        tabs[0].until(|e| e["type"] == "counters" && e["viewers"] == 1);
    }
}

#[test]
fn the_last_like_before_the_end_is_counted() {
    let mut server = Server::start(&[], &[]);
    let mut fan = open(&server, Rung::WebSocket, "r", Some(&server.token("fan", &["publisher"])));
    for _ in 0..5 {
        like(&mut fan, "r", "like", 1);
    }
    fan.say(&json!({"op": "ping"})).expect("sent");
    fan.until(|e| e["type"] == "pong");
    server.signal("TERM");
    assert!(server.ended(Duration::from_secs(10)).success(), "{}", server.stderr());
    server.restart();
    assert_eq!(snapshot(&server, "r")["counters"]["likes"], json!({"like": 5}));
}
