//! How many long-polls wait for a user and for an address.

use std::sync::atomic::Ordering;

use serde_json::json;

use super::{Http, Stage, stage, stage_behind};
use crate::gateway::StreamLimits;
use crate::link::bundles::Limits as StreamLimit;
use crate::metrics::Refused;

impl Stage {
    fn polls(&self, since: u64, tab: &str, fields: &str) -> Http {
        let target = format!("/v1/rooms/a/poll?since={since}&tab={tab}&timeout=30");
        self.say(&format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n"))
    }

    fn refused_polls(&self) -> u64 {
        self.metrics.refused[Refused::Polls as usize].load(Ordering::Relaxed)
    }
}

fn is_refused(poll: &mut Http) {
    let refused = poll.answer();
    assert_eq!((refused.status, &refused.json()["code"]), (429, &json!(4129)));
    assert_eq!((&refused.json()["retry_after_ms"], &refused.json()["spread_ms"]), (&json!(5_000), &json!(10_000)));
    assert!(refused.header("retry-after").is_some(), "{}", refused.head);
}

#[test]
fn r59_a_third_poll_of_a_user_is_told_to_wait_and_a_newer_one_of_a_tab_takes_its_place() {
    let stage = stage();
    let since = stage.score("a", 0).value();
    let bearer = |user: &str| format!("Authorization: Bearer {}\r\n", stage.token(user));
    let ann = bearer("ann");
    let mut first = stage.polls(since, "1", &ann);
    stage.seated("a", 1);
    let mut second = stage.polls(since, "2", &ann);
    stage.seated("a", 2);
    is_refused(&mut stage.polls(since, "3", &ann));
    assert_eq!(stage.refused_polls(), 1);
    let mut newer = stage.polls(since, "1", &ann);
    assert_eq!(first.answer().status, 204);
    // Others have their own, and a stream of another kind is no poll.
    let mut bob = stage.polls(since, "3", &bearer("bob"));
    let mut stream = stage.ws_as("a", "ann");
    assert_eq!(stream.next()["type"], "hello");
    stage.seated("a", 4);
    let id = stage.score("a", 1).value();
    for poll in [&mut newer, &mut second, &mut bob] {
        assert_eq!(poll.answer().json()["next_since"], id);
    }
    // Who was answered holds nothing.
    let mut third = stage.polls(since, "3", &ann);
    assert_eq!(third.answer().json()["next_since"], id);
    assert_eq!(stage.refused_polls(), 1);
}

#[test]
fn r59_an_address_has_its_polls_whoever_they_are_of() {
    let limits = StreamLimits { each: StreamLimit { per_user: 64, per_address: 64 }, total: None, per_room: None };
    let stage = stage_behind(2, limits, &["127.0.0.1"], false);
    let since = stage.score("a", 0).value();
    let from = |address: &str| format!("X-Forwarded-For: {address}\r\n");
    let named = format!("Authorization: Bearer {}\r\n{}", stage.token("ann"), from("203.0.113.9"));
    let mut waiting = vec![stage.polls(since, "1", &named), stage.polls(since, "", &from("203.0.113.9"))];
    waiting.push(stage.polls(since, "", &from("203.0.113.9")));
    stage.seated("a", 3);
    is_refused(&mut stage.polls(since, "", &from("203.0.113.9")));
    waiting.push(stage.polls(since, "", &from("203.0.113.8")));
    stage.seated("a", 4);
    let id = stage.score("a", 1).value();
    waiting.iter_mut().for_each(|poll| assert_eq!(poll.answer().json()["next_since"], id));
}
