//! What an open port has to bear: callers that take every descriptor, that shout without end, that come back all at once, and
//! a moderator's word that must reach everyone, also who was not there.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Http, LIMIT, Server};
use crate::viewer::{RUNGS, Rung, Viewer, ids};

/// A viewer by SSE that says nothing more and is not read yet.
fn silent_viewer(server: &Server) -> TcpStream {
    let mut socket = TcpStream::connect(server.addr).expect("the kernel accepts");
    socket.set_read_timeout(Some(LIMIT)).expect("a limit");
    let request = format!("GET /v1/rooms/full/sse HTTP/1.1\r\nHost: {}\r\n\r\n", server.addr);
    socket.write_all(request.as_bytes()).expect("the kernel takes it");
    socket
}

/// The first event that a stream is given.
fn first_event(socket: &mut TcpStream) -> String {
    let mut said = Vec::new();
    let mut byte = [0];
    loop {
        let text = String::from_utf8_lossy(&said);
        if let Some((_, kind)) = text.split_once("event: ")
            && let Some((kind, _)) = kind.split_once('\n')
        {
            return kind.to_owned();
        }
        let n = socket.read(&mut byte).unwrap_or_else(|e| panic!("{e} after {text:?}"));
        assert_eq!(n, 1, "it ended after {text:?}");
        said.extend_from_slice(&byte);
    }
}

#[test]
fn a26_without_descriptors_those_inside_are_served_and_everyone_outside_is_told() {
    let mut server = Server::unstarted(&[], &[]);
    server.restart_under(&["prlimit", "--nofile=100"]);
    let token = server.token("backend", &["backend"]);
    let mut inside = Viewer::open(&server, Rung::WebSocket, "full", None, None).unwrap_or_else(|a| panic!("{a:?}"));
    let mut publisher = server.http();
    let publish = |publisher: &mut Http, key: &str| {
        let body = json!({"client_msg_id": key, "body": key});
        let answer = publisher.call("POST", "/v1/rooms/full/comments", Some(&token), Some(&body)).expect("an answer");
        assert_eq!(answer.status, 200, "{:?}", answer.json);
        answer.json["event_id"].as_u64().expect("an id")
    };
    publish(&mut publisher, "before");
    let mut crowd: Vec<TcpStream> = (0..200).map(|_| silent_viewer(&server)).collect();
    let firsts: Vec<String> = crowd.iter_mut().map(first_event).collect();
    let n_of = |kind: &str| firsts.iter().filter(|first| *first == kind).count();
    let (n_in, n_out) = (n_of("hello"), n_of("close"));
    assert!((10..100).contains(&n_in), "{n_in} of 200 got in");
    assert_eq!(n_in + n_out, 200, "each is greeted or told why not: {firsts:?}");
    let id = publish(&mut publisher, "while nobody gets in");
    inside.until_id(id);
    let page = publisher.call("GET", "/metrics", None, None).expect("an answer");
    let text = String::from_utf8(page.body).expect("text");
    let counted =
        text.lines().find_map(|l| l.strip_prefix("grandstand_gateway_streams_limited_total{limit=\"sockets\"} "));
    assert_eq!(counted.and_then(|n| n.parse().ok()), Some(n_out), "{text}");
    // The crowd leaves: who comes then is let in.
    drop(crowd);
    let start = Instant::now();
    while first_event(&mut silent_viewer(&server)) != "hello" {
        assert!(start.elapsed() < LIMIT, "nobody gets in any more");
    }
    let after = publish(&mut publisher, "after");
    inside.until_id(after);
    server.stop();
}

#[test]
fn a22_a_flood_of_operations_closes_its_connection_and_no_other() {
    let server = Server::start(&[], &[]);
    let token = server.token("backend", &["backend"]);
    let mut calm = Viewer::open(&server, Rung::WebSocket, "flood", None, None).unwrap_or_else(|a| panic!("{a:?}"));
    let mut loud = Viewer::open(&server, Rung::WebSocket, "flood", None, None).unwrap_or_else(|a| panic!("{a:?}"));
    for _ in 0..2_000 {
        if loud.say(&json!({"op": "ping"})).is_err() {
            break;
        }
    }
    let close = loud.until(|e| e["type"] == "close").pop().expect("a close");
    assert_eq!(close["code"], 4129, "{close}");
    let id = server.published("flood", &token, "k", "calm");
    calm.until_id(id);
}

#[test]
fn a_retract_reaches_who_watches_who_resumes_and_who_comes_later() {
    let mut server = Server::start(&[], &[]);
    let (token, admin) = (server.token("backend", &["backend"]), server.token("op", &["admin", "backend"]));
    let first = server.published("word", &token, "k1", "before");
    let mut watching: Vec<Viewer> = RUNGS
        .iter()
        .map(|r| Viewer::open(&server, *r, "word", Some(&first.to_string()), None).unwrap_or_else(|a| panic!("{a:?}")))
        .collect();
    let gone = server.published("word", &token, "k2", "to be taken back");
    let stays = server.published("word", &token, "k3", "stays");
    for viewer in &mut watching {
        assert_eq!(ids(&viewer.until_id(stays)), [gone, stays]);
    }
    let body = json!({"event_id": gone, "reason": "spam", "justification": "process test"});
    let answer = server.http().call("POST", "/admin/rooms/word/retract", Some(&admin), Some(&body)).expect("an answer");
    assert_eq!(answer.status, 200, "{:?}", answer.json);
    for viewer in &mut watching {
        let told = viewer.until(|e| e["type"] == "retract").pop().expect("a retract");
        assert_eq!(told["target_event_id"].as_u64(), Some(gone), "{told}");
    }
    // From the ring first, then from the log of a new process.
    for from_log in [false, true] {
        if from_log {
            server.stop();
            server.restart();
        }
        for rung in RUNGS {
            let mut late =
                Viewer::open(&server, rung, "word", Some(&first.to_string()), None).unwrap_or_else(|a| panic!("{a:?}"));
            let seen = late.until(|e| e["type"] == "retract");
            assert!(!ids(&seen).contains(&gone), "{rung:?} of the log {from_log}: {seen:?}");
            assert!(ids(&seen).contains(&stays), "{rung:?} of the log {from_log}: {seen:?}");
        }
        let snapshot = server.http().call("GET", "/v1/rooms/word/snapshot", None, None).expect("an answer").json;
        let shown: Vec<u64> =
            snapshot["recent_comments"].as_array().expect("comments").iter().filter_map(id_of).collect();
        assert_eq!(shown, [first, stays]);
    }
}

fn id_of(event: &Value) -> Option<u64> {
    event["event_id"].as_u64()
}

#[test]
fn a_restart_under_a_crowd_gives_every_one_of_them_what_it_missed() {
    const CROWD: usize = 400;
    let mut server = Server::start(&[], &[]);
    let token = server.token("backend", &["backend"]);
    let first = server.published("herd", &token, "k0", "first");
    let mut published = vec![first];
    for n in 1..20 {
        published.push(server.published("herd", &token, &format!("k{n}"), "missed"));
    }
    server.kill();
    server.restart();
    let last = *published.last().expect("some");
    let cursor = first.to_string();
    let start = Instant::now();
    let mut crowd: Vec<Http> = (0..CROWD)
        .map(|_| {
            let mut http = server.http();
            http.send("GET", "/v1/rooms/herd/sse", &[("Last-Event-ID", &cursor)], &[]).expect("sent");
            http
        })
        .collect();
    for http in &mut crowd {
        assert_eq!(http.head().expect("a head").0, 200);
        let mut got = Vec::new();
        while got.last() != Some(&last) {
            let line = http.line().expect("the stream goes on");
            if let Some(id) = line.strip_prefix("id: ").and_then(|id| id.parse::<u64>().ok())
                && id > first
            {
                got.push(id);
            }
        }
        assert_eq!(got, published[1..], "all that was missed, once, in order");
    }
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}
