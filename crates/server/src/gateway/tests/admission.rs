//! Who is let in, on real sockets: the rate of new streams, its refusals on each rung, and a paced drain.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use grandstand_core::admission::Limit;
use grandstand_core::names::UserId;
use grandstand_core::time::Wall;
use serde_json::json;

use super::{Http, Stage, StreamLimit, StreamLimits, WAIT, Ws, stage, stage_behind, stage_with};
use crate::admission::Change;
use crate::clock;
use crate::metrics::{Refused, read};

fn change() -> Change {
    Change { by: UserId::parse("ops").unwrap(), justification: "a test".to_owned(), at: Wall(1) }
}

fn limit(stage: &Stage, per_second: u32, burst: u32) {
    stage.admission.change(Some(Limit { per_second, burst }), change(), clock::mono());
}

#[test]
fn a26_a_stream_beyond_the_rate_is_refused_readably_on_every_rung() {
    let stage = stage();
    limit(&stage, 1, 1);
    assert_eq!(stage.ws_as("a", "ann").next()["type"], "hello");
    limit(&stage, 0, 1);

    let mut ws = stage.ws_as("a", "bob");
    let close = ws.next();
    assert_eq!((&close["type"], &close["code"]), (&json!("close"), &json!(4129)));
    assert!(close["retry_after_ms"].as_u64() > Some(0) && close["spread_ms"].as_u64() > Some(0), "{close}");

    let mut sse = stage.say("GET /v1/rooms/a/sse HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(sse.head().status, 200);
    assert!(sse.until(b"\n\n").starts_with(b"retry: "));
    let (kind, _, close) = sse.event();
    assert_eq!((kind.as_str(), &close["code"]), ("close", &json!(4129)));

    let mut poll = stage.say("GET /v1/rooms/a/poll HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let refused = poll.answer();
    assert_eq!((refused.status, &refused.json()["code"]), (429, &json!(4129)));
    assert!(refused.header("retry-after").is_some(), "{}", refused.head);
    assert_eq!(read(&stage.metrics.refused[Refused::Closed as usize]), 3);
    assert_eq!(read(&stage.metrics.admitted), 1);
}

#[test]
fn r32_the_wait_of_a_refusal_grows_with_those_who_come() {
    let stage = stage();
    limit(&stage, 1, 1);
    assert_eq!(stage.ws("a", "").next()["type"], "hello");
    let wait = |close: &serde_json::Value, name: &str| close[name].as_u64().expect("a wait");
    let longest = || {
        let close = stage.ws("a", "").next();
        wait(&close, "retry_after_ms") + wait(&close, "spread_ms")
    };
    let waits: Vec<u64> = (0..4).map(|_| longest()).collect();
    assert!(waits.is_sorted() && waits[3] > waits[0] + 1_000, "{waits:?}");
    assert_eq!(read(&stage.metrics.refused[Refused::Rate as usize]), 4);
}

#[test]
fn a_backend_and_a_poll_that_goes_on_take_no_place() {
    let stage = stage();
    limit(&stage, 1, 1);
    let bearer = format!("Authorization: Bearer {}\r\n", stage.token("ann"));
    let get = |since: u64| {
        let ask = format!("GET /v1/rooms/a/poll?since={since} HTTP/1.1\r\nHost: localhost\r\n{bearer}\r\n");
        stage.say(&ask).answer()
    };
    let cursor = stage.comment("a", "one").value();
    assert_eq!(get(cursor - 1).status, 200);
    limit(&stage, 0, 1);
    stage.comment("a", "two");
    assert_eq!(get(cursor).status, 200);
    assert_eq!(stage.ws_as("a", "bob").closed(), (4129, 4129));
    let mut claims = crate::auth::token::Claims::new("b", clock::wall(), Duration::from_secs(600));
    claims.roles = Some(vec!["backend".into()]);
    let backend = format!("Authorization: Bearer {}\r\n", stage.key.mint(&claims));
    assert_eq!(stage.ws("a", &backend).next()["type"], "hello");
    assert_eq!(read(&stage.metrics.admitted), 1, "nor are they in the count of those who do");
}

#[test]
fn a_drain_closes_with_4112_in_slices_takes_nobody_and_can_be_undone() {
    let stage = stage();
    let mut viewers: Vec<_> = (0..20).map(|_| stage.ws("a", "")).collect();
    viewers.iter_mut().for_each(|ws| assert_eq!(ws.next()["type"], "hello"));
    stage.seated("a", 20);
    let began = Instant::now();
    stage.admission.start_drain(Duration::from_secs(2), change(), clock::mono());
    assert_eq!(stage.ws("a", "").closed(), (4112, 4112));
    let mut ends: Vec<Duration> = std::thread::scope(|scope| {
        let waits: Vec<_> = viewers
            .drain(..)
            .map(|mut ws| {
                scope.spawn(move || {
                    assert_eq!(ws.closed(), (4112, 4112));
                    began.elapsed()
                })
            })
            .collect();
        waits.into_iter().map(|wait| wait.join().unwrap()).collect()
    });
    ends.sort_unstable();
    assert!(ends[19] >= Duration::from_millis(1_500) && ends[19] < WAIT, "{ends:?}");
    assert!(ends[19] - ends[0] > Duration::from_millis(500), "not at once: {ends:?}");
    assert_eq!(stage.ws("a", "").closed(), (4112, 4112));
    stage.admission.change(None, change(), clock::mono());
    assert_eq!(stage.ws("a", "").next()["type"], "hello");
}

#[test]
fn a_full_room_and_a_full_gateway_refuse_with_4129_until_someone_leaves() {
    let stage = stage_with(
        2,
        StreamLimits { each: StreamLimit { per_user: 64, per_address: 64 }, total: Some(3), per_room: Some(2) },
    );
    let mut inside: Vec<_> = (0..2).map(|_| stage.ws("a", "")).collect();
    inside.iter_mut().for_each(|ws| assert_eq!(ws.next()["type"], "hello"));
    assert_eq!(stage.ws("a", "").closed(), (4129, 4129));
    assert_eq!(read(&stage.metrics.refused[Refused::Room as usize]), 1);
    let mut other = stage.ws("b", "");
    assert_eq!(other.next()["type"], "hello");
    other.op(json!({"op": "join", "room_id": "a"}));
    let error = other.next();
    assert_eq!((&error["type"], &error["code"], &error["room_id"]), (&json!("error"), &json!("too_many"), &json!("a")));
    assert_eq!(stage.ws("c", "").closed(), (4129, 4129));
    assert_eq!(read(&stage.metrics.refused[Refused::Connections as usize]), 1);
    drop(inside.pop());
    stage.seated("a", 1);
    let began = Instant::now();
    while stage.ws("c", "").next()["type"] != "hello" {
        assert!(began.elapsed() < WAIT, "the place was never given back");
    }
}

#[test]
fn who_finds_no_place_waits_as_long_as_the_rooms_crowd_needs() {
    let stage = stage_with(
        2,
        StreamLimits { each: StreamLimit { per_user: 64, per_address: 64 }, total: None, per_room: Some(30) },
    );
    // One a second, thirty at once: the crowd of thirty needs half a minute.
    limit(&stage, 1, 30);
    let mut inside: Vec<_> = (0..30).map(|_| stage.ws("a", "")).collect();
    inside.iter_mut().for_each(|ws| assert_eq!(ws.next()["type"], "hello"));
    stage.seated("a", 30);
    let mut refused = stage.ws("a", "");
    let close = refused.next();
    assert_eq!(
        (&close["type"], &close["code"], &close["retry_after_ms"]),
        (&json!("close"), &json!(4129), &json!(5_000))
    );
    assert_eq!(close["spread_ms"], 30_000);
}

const TWO: StreamLimits =
    StreamLimits { each: StreamLimit { per_user: 64, per_address: 2 }, total: None, per_room: None };

#[test]
fn a72_behind_a_trusted_proxy_the_clients_address_is_counted_and_cannot_be_made_up() {
    let stage = stage_behind(2, TWO, &["127.0.0.1"], false);
    let from = |hops: &str| stage.ws("a", &format!("X-Forwarded-For: {hops}\r\n"));
    let mut inside: Vec<Ws> = (0..2).map(|n| from(&format!("192.0.2.{n}, 203.0.113.9"))).collect();
    inside.iter_mut().for_each(|ws| assert_eq!(ws.next()["type"], "hello"));
    assert_eq!(from("192.0.2.77, 203.0.113.9").closed(), (4129, 4129));
    assert_eq!(from("203.0.113.9, 127.0.0.1").closed(), (4129, 4129));
    assert_eq!(from("203.0.113.8").next()["type"], "hello");
    assert_eq!(read(&stage.metrics.refused[Refused::Address as usize]), 2);
}

#[test]
fn a72_without_a_trusted_proxy_what_a_client_says_of_its_address_is_nothing() {
    let stage = stage_behind(2, TWO, &["10.0.0.0/8"], false);
    let mut inside: Vec<Ws> = (0..4).map(|_| stage.ws("a", "X-Forwarded-For: 203.0.113.9\r\n")).collect();
    // Loopback itself has no limit: had the header counted, the third would be refused.
    inside.iter_mut().for_each(|ws| assert_eq!(ws.next()["type"], "hello"));
}

fn proxied(source: [u8; 4]) -> Vec<u8> {
    let mut bytes = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    bytes.extend(source);
    bytes.extend([127, 0, 0, 1, 0x30, 0x39, 0, 80]);
    bytes
}

#[test]
fn a72_a_proxy_header_names_the_client_and_comes_first_or_the_connection_ends() {
    let stage = stage_behind(2, TWO, &["127.0.0.1"], true);
    let open = |source: [u8; 4]| {
        let mut socket = stage.socket();
        let bytes = proxied(source);
        // In two pieces, as a network may deliver it.
        socket.write_all(&bytes[..9]).unwrap();
        socket.write_all(&bytes[9..]).unwrap();
        Ws::open(socket, "/v1/rooms/a/stream", "")
    };
    let mut inside: Vec<Ws> = (0..2).map(|_| open([203, 0, 113, 9])).collect();
    inside.iter_mut().for_each(|ws| assert_eq!(ws.next()["type"], "hello"));
    assert_eq!(open([203, 0, 113, 9]).closed(), (4129, 4129));
    assert_eq!(open([203, 0, 113, 8]).next()["type"], "hello");
    for front in [&b"GET /v1/rooms HTTP/1.1\r\nHost: localhost\r\n\r\n"[..], b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2\r\n"] {
        let mut socket = stage.socket();
        socket.write_all(front).unwrap();
        let mut rest = Vec::new();
        // A reset says the same as an end here.
        let _ = socket.read_to_end(&mut rest);
        assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
    }
}

#[test]
fn a72_a_proxy_header_of_anyone_else_is_a_malformed_request() {
    let stage = stage_behind(2, TWO, &["10.0.0.0/8"], true);
    let mut http = Http { socket: stage.socket(), buf: Vec::new() };
    http.socket.write_all(&proxied([203, 0, 113, 9])).unwrap();
    http.socket.write_all(b"GET /v1/rooms HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    assert_eq!(http.head().status, 400);
    assert_eq!(stage.ws("a", "").next()["type"], "hello");
}
