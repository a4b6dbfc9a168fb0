//! What rides with what: the latest values of a room and its frames.

use std::sync::mpsc;
use std::time::Duration;

use grandstand_core::record::Room;
use grandstand_wire::ws::Incoming;
use serde_json::{Value, json};

use super::{room, stage};

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
