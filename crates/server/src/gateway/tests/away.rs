//! The shard goes away and comes back; a ring that missed something is filled from the log.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::{Stage, Ws, room, stage, stage_with};
use crate::gateway::StreamLimits;
use crate::link::bundles::Limits as StreamLimit;
use crate::link::{ReadRefused, ToWorker};

impl Stage {
    fn tell(&self, mail: impl Fn() -> ToWorker) {
        for worker in self.workers.ids() {
            self.workers.send(worker, mail()).ok().unwrap();
        }
    }
    /// As when its process is killed: what it knew of the gateway is gone.
    fn away(&self) {
        self.status.set_ready(false);
        {
            let mut log = self.log.lock().unwrap();
            let left = std::mem::take(&mut log.subscribers);
            log.before.extend(left);
        }
        self.tell(|| ToWorker::Away);
    }
    /// Begins a new epoch.
    fn back(&self) {
        {
            let mut log = self.log.lock().unwrap();
            log.epoch += 1;
            log.seq = 0;
        }
        self.status.set_ready(true);
        self.tell(|| ToWorker::Back);
    }
    fn n_past(&self) -> usize {
        self.log.lock().unwrap().n_past
    }
}

fn one_worker() -> Stage {
    stage_with(1, StreamLimits { each: StreamLimit { per_user: 8, per_address: 64 }, total: None, per_room: None })
}

fn ids(events: &[Value]) -> Vec<u64> {
    events.iter().filter_map(|e| e["event_id"].as_u64()).collect()
}

/// The next `n` events with an id.
fn events(viewer: &mut Ws, n: usize) -> Vec<Value> {
    let mut seen = Vec::new();
    while seen.len() < n {
        let event = viewer.next();
        if event["event_id"].is_u64() {
            seen.push(event);
        }
    }
    seen
}

#[test]
fn viewers_keep_their_sockets_and_are_told_of_a_pause_once() {
    let stage = stage();
    let mut viewers = [stage.ws("r", ""), stage.ws("r", "")];
    let mut sse = stage.say("GET /v1/rooms/r/sse HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!((sse.head().status, sse.event().0.as_str()), (200, "hello"));
    viewers.iter_mut().for_each(|v| drop(v.next_of("hello")));
    stage.seated("r", 3);
    stage.away();
    for viewer in &mut viewers {
        let paused = viewer.next_of("feed_paused");
        assert_eq!((&paused["room_id"], &paused["reason"]), (&json!("r"), &json!("owner_away")));
        assert_eq!(paused["snapshot_url"], "/v1/rooms/r/snapshot");
        assert_eq!((&paused["retry_after_ms"], &paused["spread_ms"]), (&json!(1_000), &json!(1_000)));
    }
    let (kind, id, _) = sse.event();
    assert_eq!((kind.as_str(), id), ("feed_paused", None), "a pause does not move the cursor");
    stage.away();
    stage.back();
    let first = stage.score_when_subscribed("r");
    for viewer in &mut viewers {
        assert_eq!(viewer.next()["event_id"], first, "told once, and on it goes");
    }
    let mut said = String::new();
    while !(said.contains("event: counters") && said.contains("event: score_event")) {
        said.push_str(&String::from_utf8(sse.until(b"\n\n")).unwrap());
    }
    assert!(!said.contains("feed_paused"), "the first counters say that it is over: {said}");
}

impl Stage {
    /// A score given to the workers live: all of them have asked for the room again.
    fn score_when_subscribed(&self, id: &str) -> u64 {
        let began = std::time::Instant::now();
        let of = |log: &super::Log, then: bool| {
            let rooms = if then { &log.before } else { &log.subscribers };
            rooms.get(&room(id)).map_or(0, Vec::len)
        };
        loop {
            let log = self.log.lock().unwrap();
            if of(&log, false) >= of(&log, true) {
                break;
            }
            drop(log);
            assert!(began.elapsed() < super::WAIT, "the rooms were never subscribed again");
            std::thread::yield_now();
        }
        self.score(id, 1).value()
    }
}

#[test]
fn publishes_are_refused_at_the_door_while_the_shard_is_away() {
    let stage = one_worker();
    let mut viewer = stage.ws_as("r", "ann");
    viewer.next_of("hello");
    stage.seated("r", 1);
    stage.away();
    viewer.next_of("feed_paused");
    viewer.op(json!({"op": "publish", "client_msg_id": "a", "body": "hello?"}));
    let error = viewer.next_of("error");
    assert_eq!((&error["code"], &error["client_msg_id"]), (&json!("not_ready"), &json!("a")));
    assert!((1_000..=2_000).contains(&error["retry_after_ms"].as_u64().unwrap()), "{error}");
    stage.back();
    stage.score_when_subscribed("r");
    viewer.op(json!({"op": "publish", "client_msg_id": "a", "body": "hello?"}));
    viewer.next_of("publish_ack");
}

#[test]
fn who_comes_while_the_shard_is_away_is_told_to_come_again() {
    let stage = one_worker();
    let mut viewer = stage.ws("r", "");
    viewer.next_of("hello");
    stage.seated("r", 1);
    let mut poll =
        stage.say("GET /v1/rooms/r/poll?since=60129542145&timeout=30&tab=a HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stage.seated("r", 2);
    stage.away();
    let answer = poll.answer();
    assert_eq!((answer.status, &answer.json()["events"][0]["type"]), (200, &json!("feed_paused")));
    assert_eq!(answer.json()["next_since"], 60_129_542_145_u64, "the call's cursor stays where it was");
    let mut late = stage.ws("r", "");
    let close = late.next_of("close");
    assert_eq!((&close["code"], &close["retry_after_ms"]), (&json!(4153), &json!(1_000)));
    poll.get("/v1/rooms/r/poll?since=60129542145&timeout=30&tab=a", "");
    let refused = poll.answer();
    assert_eq!((refused.status, &refused.json()["code"]), (503, &json!(4153)));
    assert_eq!(refused.header("retry-after").as_deref(), Some("1"));
    viewer.next_of("feed_paused");
}

#[test]
fn what_was_committed_and_not_delivered_is_read_once_and_nobody_is_closed() {
    let stage = one_worker();
    let mut viewers: Vec<Ws> = (0..20).map(|_| stage.ws("r", "")).collect();
    viewers.iter_mut().for_each(|v| drop(v.next_of("hello")));
    stage.seated("r", 20);
    let seen = [stage.comment("r", "a").value(), stage.score("r", 1).value()];
    viewers.iter_mut().for_each(|v| assert_eq!(ids(&events(v, 2)), seen));
    stage.away();
    // Eight events: three pages.
    let mut missed: Vec<u64> =
        (0..4).flat_map(|n| [stage.score("r", n).value(), stage.comment("r", "b").value()]).collect();
    stage.back();
    missed.push(stage.score_when_subscribed("r"));
    missed.push(stage.comment("r", "c").value());
    for viewer in &mut viewers {
        let given = events(viewer, missed.len());
        assert_eq!(ids(&given), missed);
        let pseqs: Vec<u64> = given.iter().filter_map(|e| e["pseq"].as_u64()).collect();
        assert_eq!(pseqs, [2, 3, 4, 5, 6]);
    }
    assert_eq!(stage.n_past(), 3, "one read of each page, however many viewers");
    assert_eq!(stage.metrics.priority_lost.load(Ordering::Relaxed), 0);
}

#[test]
fn a_room_where_nothing_happened_meanwhile_is_not_read_at_all() {
    let stage = one_worker();
    let mut viewer = stage.ws("quiet", "");
    viewer.next_of("hello");
    stage.seated("quiet", 1);
    stage.comment("quiet", "a");
    events(&mut viewer, 1);
    stage.away();
    stage.comment("other", "b");
    stage.back();
    let score = stage.score_when_subscribed("quiet");
    assert_eq!(ids(&events(&mut viewer, 1)), [score]);
    assert_eq!(stage.n_past(), 0);
}

#[test]
fn a_gap_that_cannot_be_read_closes_its_viewers_who_resume() {
    for fails in [ReadRefused::Fault, ReadRefused::Unknown] {
        let stage = one_worker();
        let mut viewer = stage.ws("r", "");
        viewer.next_of("hello");
        stage.seated("r", 1);
        let seen = stage.score("r", 0).value();
        events(&mut viewer, 1);
        stage.away();
        stage.log.lock().unwrap().fails = Some(fails);
        let missed = stage.score("r", 1).value();
        stage.back();
        assert_eq!(viewer.closed(), (4201, 4201), "{fails:?}");
        stage.seated("r", 0);
        let mut again = stage.ws_as_from("r", "ann", seen);
        assert_eq!(again.next_of("hello")["resumed"], true);
        assert_eq!(ids(&events(&mut again, 1)), [missed]);
    }
}

#[test]
fn a_log_that_lost_what_viewers_saw_makes_them_resume() {
    let stage = one_worker();
    let mut viewer = stage.ws("r", "");
    viewer.next_of("hello");
    stage.seated("r", 1);
    stage.score("r", 0);
    events(&mut viewer, 1);
    stage.away();
    {
        let mut log = stage.log.lock().unwrap();
        log.rooms.clear();
        log.pseq.clear();
    }
    stage.back();
    assert_eq!(viewer.closed(), (4201, 4201));
}

#[test]
fn batches_that_found_the_mailbox_full_are_read_from_the_log() {
    let stage = one_worker();
    let mut viewer = stage.ws("r", "");
    viewer.next_of("hello");
    stage.seated("r", 1);
    let mut all = vec![stage.comment("r", "a").value()];
    let subscribers = std::mem::take(&mut stage.log.lock().unwrap().subscribers);
    all.extend((0..5).map(|n| stage.score("r", n).value()));
    let info = {
        let mut log = stage.log.lock().unwrap();
        log.subscribers = subscribers;
        log.info(&room("r"))
    };
    stage.tell(|| ToWorker::Resync(Arc::new(info.clone())));
    all.push(stage.score("r", 9).value());
    assert_eq!(ids(&events(&mut viewer, all.len())), all);
    assert_eq!(stage.n_past(), 2);
}
