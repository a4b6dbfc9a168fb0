//! Banners of the site on long-polls, whatever answers the call.

use std::sync::Arc;

use grandstand_core::ids::{Epoch, EventId, Seq};
use grandstand_core::time::Wall;
use serde_json::{Value, json};

use super::{Http, Stage, stage_with};
use crate::clock;
use crate::gateway::StreamLimits;
use crate::link::bundles::Limits as StreamLimit;
use crate::link::{SiteBanner, SiteList, ToWorker, WorkerId};

fn stage() -> Stage {
    stage_with(1, StreamLimits { each: StreamLimit { per_user: 999, per_address: 999 }, total: None, per_room: None })
}

/// These stand from now on.
fn hang(stage: &Stage, numbers: &[u64]) {
    let until = Wall(clock::wall().0 + 600_000);
    let one = |n: &u64| {
        let id = EventId::at(Epoch::new(1).unwrap(), Seq::new(*n).unwrap());
        let json = json!({"type": "banner", "banner_id": id.value().to_string()}).to_string().into_bytes();
        Arc::new(SiteBanner { id, ts: clock::wall(), until, json: json.into() })
    };
    let list = SiteList { as_of: clock::wall(), banners: numbers.iter().map(one).collect(), ..SiteList::default() };
    assert!(stage.workers.send(WorkerId(0), ToWorker::Site(Arc::new(list))).is_ok());
}

/// What a call is answered: the kinds of its events, with the banners' names, and where it goes on.
fn polled(http: &mut Http, since: u64, timeout: u32) -> (Vec<String>, u64) {
    http.get(&format!("/v1/rooms/a/poll?since={since}&timeout={timeout}&tab=1"), "");
    let answer = http.answer().json();
    let name = |e: &Value| match e["banner_id"].as_str() {
        Some(id) => format!("banner {}", EventId::new(id.parse().unwrap()).unwrap().seq().value()),
        None => e["type"].as_str().unwrap().to_owned(),
    };
    let events = answer["events"].as_array().unwrap().iter().filter(|e| e["type"] != "counters").map(name).collect();
    (events, answer["next_since"].as_u64().unwrap())
}

#[test]
fn every_answer_of_a_poll_has_each_banner_once() {
    let stage = stage();
    hang(&stage, &[]);
    // Long past, so that a cursor there is answered by the log.
    stage.log.lock().unwrap().age = std::time::Duration::from_secs(120);
    let past: Vec<u64> = (0..9).map(|_| stage.comment("a", "said").value()).collect();
    stage.log.lock().unwrap().age = std::time::Duration::ZERO;
    let mut viewer = stage.ws("a", "");
    viewer.next_of("hello");
    let mut http = stage.say("GET /v1/rooms/a/poll?tab=1 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(http.answer().json()["events"][0]["banners"], json!([]));
    hang(&stage, &[1]);
    viewer.next_of("banner");
    let (events, mut since) = polled(&mut http, past[0], 20);
    assert_eq!(stage.log.lock().unwrap().n_alone, 1, "no ring has it");
    assert_eq!(events, ["comment", "comment", "comment", "banner 1"], "answered by a page of the log");
    while since < past[8] {
        let (events, upto) = polled(&mut http, since, 20);
        assert!(events.iter().all(|kind| kind == "comment") && upto > since, "not again: {events:?}");
        since = upto;
    }
    hang(&stage, &[1, 2]);
    viewer.next_of("banner");
    let beyond = EventId::at(Epoch::new(8).unwrap(), Seq::START).value();
    assert_eq!(polled(&mut http, beyond, 20).0, ["snapshot_required", "banner 2"]);
    assert_eq!(polled(&mut http, since, 1).0, [""; 0]);
    // Taken down: told once more.
    hang(&stage, &[2]);
    assert_eq!(polled(&mut http, since, 20).0, ["banner 1"]);
    assert_eq!(polled(&mut http, since, 1).0, [""; 0]);
}

#[test]
fn a_banner_ends_the_wait_of_every_poll_of_a_crowd() {
    let stage = stage();
    hang(&stage, &[]);
    let mut polls: Vec<Http> = (0..150)
        .map(|n| stage.say(&format!("GET /v1/rooms/a/poll?tab={n} HTTP/1.1\r\nHost: localhost\r\n\r\n")))
        .collect();
    for (n, poll) in polls.iter_mut().enumerate() {
        let since = poll.answer().json()["next_since"].as_u64().unwrap();
        poll.get(&format!("/v1/rooms/a/poll?since={since}&timeout=30&tab={n}"), "");
    }
    stage.seated("a", 150);
    hang(&stage, &[1]);
    for poll in &mut polls {
        let answer = poll.answer().json();
        let told = answer["events"].as_array().unwrap().iter().filter(|e| e["type"] == "banner").count();
        assert_eq!(told, 1, "{answer}");
    }
}
