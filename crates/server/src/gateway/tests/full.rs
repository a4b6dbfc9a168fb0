//! A process that can hold no more sockets.

use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::Instant;

use grandstand_core::places::Answer;
use serde_json::json;

use super::{Stage, WAIT, Ws, stage_full};
use crate::admission::Share;
use crate::gateway::StreamLimits;
use crate::link::bundles::Limits as StreamLimit;
use crate::metrics::Refused;

fn stage(sockets_max: u64, port_shared: bool) -> Stage {
    let limits = StreamLimits { each: StreamLimit { per_user: 99, per_address: 99 }, total: None, per_room: None };
    stage_full(1, limits, &[], false, true, (sockets_max, port_shared))
}

impl Stage {
    fn until_sockets(&self, n: i64) {
        let began = Instant::now();
        while self.metrics.connections.load(Ordering::Relaxed) != n {
            assert!(began.elapsed() < WAIT, "never {n} sockets");
            std::thread::yield_now();
        }
    }
}

#[test]
fn who_comes_over_the_limit_can_read_why_on_every_rung() {
    let stage = stage(4, false);
    let mut inside: Vec<Ws> = (0..4).map(|_| stage.ws("r", "")).collect();
    inside.iter_mut().for_each(|v| drop(v.next_of("hello")));
    stage.seated("r", 4);
    for _ in 0..20 {
        let mut over = stage.ws("r", "");
        let close = over.next();
        assert_eq!((&close["type"], &close["code"]), (&json!("close"), &json!(4129)), "{close}");
        assert!(close["retry_after_ms"].is_u64() && close["spread_ms"].is_u64(), "{close}");
        let mut sse = stage.say("GET /v1/rooms/r/sse HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!((sse.head().status, sse.event().0.as_str()), (200, "close"));
        let mut poll = stage.say("GET /v1/rooms/r/poll HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(poll.answer().status, 429);
        assert!(poll.ends());
        let mut page = stage.say("GET /healthz/ready HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(page.answer().status, 200, "other requests are served");
        assert!(page.ends(), "and are the last");
    }
    assert_eq!(stage.metrics.refused[Refused::Sockets as usize].load(Ordering::Relaxed), 60);
    let score = stage.score("r", 1).value();
    inside.iter_mut().for_each(|v| assert_eq!(v.next_of("score_event")["event_id"], score));
    drop(inside.pop());
    stage.until_sockets(3);
    assert_eq!(stage.ws("r", "").next()["type"], "hello", "there is room again");
}

#[test]
fn a_crowd_over_the_limit_is_refused_to_the_last() {
    let stage = stage(4, false);
    let mut inside: Vec<Ws> = (0..4).map(|_| stage.ws("r", "")).collect();
    inside.iter_mut().for_each(|v| drop(v.next_of("hello")));
    let request = "GET /v1/rooms/r/sse HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut crowd: Vec<_> = (0..60).map(|_| stage.say(request)).collect();
    for over in &mut crowd {
        assert_eq!((over.head().status, over.event().0.as_str()), (200, "close"));
    }
}

#[test]
fn where_others_listen_a_full_worker_closes_its_listener_and_opens_it_below_95_percent() {
    let stage = stage(4, true);
    let mut inside: Vec<Ws> = (0..4).map(|_| stage.ws("r", "")).collect();
    inside.iter_mut().for_each(|v| drop(v.next_of("hello")));
    let began = Instant::now();
    let says_that_it_is = |full| {
        while stage.admission.places().full != full {
            assert!(began.elapsed() < WAIT, "its places were never told");
            std::thread::yield_now();
        }
    };
    // It is full, and so are the others as far as it knows: whoever comes is told so.
    says_that_it_is(true);
    let mut over = stage.ws("r", "");
    assert_eq!(over.next()["code"], 4129);
    let port = Answer { number: stage.admission.places().number, leaves: true };
    stage.admission.share(Share { others: 1, port, ..Share::ALONE }, crate::clock::mono());
    while TcpStream::connect(stage.address).is_ok() {
        assert!(began.elapsed() < WAIT, "the listener was never closed");
        std::thread::yield_now();
    }
    let score = stage.score("r", 1).value();
    inside.iter_mut().for_each(|v| assert_eq!(v.next_of("score_event")["event_id"], score));
    inside.truncate(2);
    while TcpStream::connect(stage.address).is_err() {
        assert!(began.elapsed() < WAIT, "the listener was never opened again");
        std::thread::yield_now();
    }
    assert_eq!(stage.ws("r", "").next()["type"], "hello");
}
