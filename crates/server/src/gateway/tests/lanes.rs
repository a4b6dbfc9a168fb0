//! What rides with what: the latest values of a room and its frames.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use grandstand_core::names::LikeKind;
use grandstand_core::record::Room;
use grandstand_wire::ws::Incoming;
use serde_json::{Value, json};

use super::{Http, Stage, Ws, room, stage, stage_of};
use crate::link::ToWorker;

#[test]
fn the_number_of_viewers_rides_in_the_frame_of_a_busy_room() {
    let stage = stage();
    let slow = Room { merge_ms: Some(1_000), ..Room::fresh("t") };
    stage.log.lock().unwrap().settings.insert(room("a"), slow);
    let mut viewer = stage.ws("a", "");
    assert_eq!(viewer.next()["counters"]["viewers"], 1);
    let _others = [stage.ws("a", ""), stage.ws("a", "")];
    stage.seated("a", 3);
    let (stop, stopped) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let stage = &stage;
        // Always one that waits for the window, so that there is a frame to ride in.
        scope.spawn(move || {
            while stopped.recv_timeout(Duration::from_millis(5)) == Err(mpsc::RecvTimeoutError::Timeout) {
                stage.comment("a", "x");
            }
        });
        let kinds = loop {
            let Some(Incoming::Text(text)) = viewer.incoming() else { panic!("the stream ended") };
            let Ok(Value::Array(events)) = serde_json::from_str(&text) else {
                assert!(!text.contains("counters"), "they went alone: {text}");
                continue;
            };
            if let Some(told) = events.iter().find(|e| e["type"] == "counters") {
                assert_eq!((&told["viewers"], told.get("event_id")), (&json!(3), None));
                break events.iter().map(|e| e["type"].clone()).collect::<Vec<_>>();
            }
        };
        drop(stop);
        // After the events, which are in their order.
        assert_eq!(kinds.last(), Some(&json!("counters")));
        assert!(kinds[..kinds.len() - 1].iter().all(|kind| kind == "comment") && kinds.len() > 1, "{kinds:?}");
    });
}

#[test]
fn what_did_not_ride_goes_alone() {
    let stage = stage();
    let mut viewer = stage.ws("a", "");
    assert_eq!(viewer.next()["counters"]["viewers"], 1);
    let _other = stage.ws("a", "");
    loop {
        let Some(Incoming::Text(text)) = viewer.incoming() else { panic!("the stream ended") };
        let event: Value = serde_json::from_str(&text).unwrap();
        if event["type"] == "counters" && event["viewers"] == 2 {
            break;
        }
    }
}

/// The room has come to so many likes: told to every worker that watches it.
fn tally(stage: &Stage, id: &str, total: u64) {
    let room = room(id);
    let rooms = Arc::new(vec![(room.clone(), [(LikeKind::plain(), total)].into())]);
    let log = stage.log.lock().unwrap();
    for worker in log.subscribers.get(&room).into_iter().flatten() {
        assert!(stage.workers.send(*worker, ToWorker::Tally(rooms.clone())).is_ok());
    }
}

/// The totals that a viewer is told, up to and with this one.
fn totals_to(viewer: &mut Ws, last: u64) -> Vec<u64> {
    let mut told = Vec::new();
    loop {
        let Some(Incoming::Text(text)) = viewer.incoming() else { panic!("the stream ended after {told:?}") };
        let event: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(event["type"], "counters", "nothing else is said: {text}");
        let total = event["likes"]["like"].as_u64().unwrap_or(0);
        told.push(total);
        if total == last {
            return told;
        }
    }
}

#[test]
fn totals_of_likes_rise_to_the_last_and_a_lower_one_is_never_told() {
    let stage = stage_of(1, true);
    let mut viewer = stage.ws("a", "");
    assert_eq!(viewer.next()["counters"]["likes"], json!({}));
    stage.seated("a", 1);
    for total in [3, 8, 5, 9, 1] {
        tally(&stage, "a", total);
    }
    let told = totals_to(&mut viewer, 9);
    assert!(told.is_sorted() && told.len() <= 4, "{told:?}");
    // Nothing is left over: the next that is told is the next that comes.
    tally(&stage, "a", 10);
    assert_eq!(totals_to(&mut viewer, 10).iter().filter(|n| **n == 10).count(), 1);
    assert_eq!(stage.ws("a", "").next()["counters"]["likes"], json!({"like": 10}));
}

#[test]
fn likes_ride_behind_the_events_of_a_busy_rooms_frame() {
    let stage = stage();
    let slow = Room { merge_ms: Some(1_000), ..Room::fresh("t") };
    stage.log.lock().unwrap().settings.insert(room("a"), slow);
    let mut viewer = stage.ws("a", "");
    viewer.next();
    stage.seated("a", 1);
    let (stop, stopped) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let stage = &stage;
        scope.spawn(move || {
            let mut total = 0;
            while stopped.recv_timeout(Duration::from_millis(5)) == Err(mpsc::RecvTimeoutError::Timeout) {
                total += 1;
                stage.comment("a", "x");
                tally(stage, "a", total);
            }
        });
        let kinds = loop {
            let Some(Incoming::Text(text)) = viewer.incoming() else { panic!("the stream ended") };
            let Ok(Value::Array(events)) = serde_json::from_str(&text) else { continue };
            if events.iter().any(|e| e["likes"]["like"].is_u64()) {
                break events.iter().map(|e| e["type"].clone()).collect::<Vec<_>>();
            }
        };
        drop(stop);
        assert_eq!(kinds.last(), Some(&json!("counters")));
        assert!(kinds[..kinds.len() - 1].iter().all(|kind| kind == "comment") && kinds.len() > 1, "{kinds:?}");
    });
}

#[test]
fn a_poll_is_answered_by_each_change_of_likes_once_whether_it_waits_or_not() {
    let stage = stage();
    let mut http = stage.say("GET /v1/rooms/a/poll?tab=1 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let since = http.answer().json()["next_since"].as_u64().unwrap();
    let ask = |http: &mut Http, timeout: u64| {
        http.get(&format!("/v1/rooms/a/poll?since={since}&timeout={timeout}&tab=1"), "");
    };
    ask(&mut http, 20);
    stage.seated("a", 1);
    tally(&stage, "a", 4);
    let told = http.answer().json();
    assert_eq!(told["events"][0]["likes"], json!({"like": 4}), "{told}");
    // Between two calls.
    tally(&stage, "a", 6);
    ask(&mut http, 20);
    let told = http.answer().json();
    assert_eq!((&told["events"][0]["likes"], &told["next_since"]), (&json!({"like": 6}), &json!(since)), "{told}");
    ask(&mut http, 1);
    let told = http.answer().json();
    assert!(told["events"].as_array().unwrap().iter().all(|e| e["likes"] == json!({"like": 6})), "nothing new: {told}");
}
