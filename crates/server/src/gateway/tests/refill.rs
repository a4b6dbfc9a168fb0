//! Cursors from before the ring's floor: read back once for all who wait.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::Value;

use super::{Stage, Ws, stage_with};
use crate::gateway::StreamLimits;
use crate::link::bundles::Limits as StreamLimit;
use crate::metrics::Resumed;

fn stage() -> Stage {
    stage_with(1, StreamLimits { each: StreamLimit { per_user: 99, per_address: 99 }, total: None, per_room: None })
}

impl Stage {
    fn resumed(&self, how: Resumed) -> u64 {
        self.metrics.resumed[how as usize].load(Ordering::Relaxed)
    }
    fn reads(&self) -> (usize, usize) {
        let log = self.log.lock().unwrap();
        (log.n_past, log.n_alone)
    }
}

fn ids(viewer: &mut Ws, n: usize) -> Vec<u64> {
    let given = (0..n).map(|_| viewer.next()["event_id"].as_u64().unwrap());
    given.collect()
}

#[test]
fn a_storm_of_cursors_costs_the_log_a_few_pages() {
    let stage = stage();
    // A ring that has only begun: all of it lies before the floor.
    let mut all = vec![];
    for n in 0..6 {
        all.push(stage.comment("r", "a").value());
        all.push(stage.score("r", n).value());
    }
    let mut viewers: Vec<(usize, Ws)> = (0..40).map(|n| (n % 11, stage.ws_as_from("r", "ann", all[n % 11]))).collect();
    for (from, viewer) in &mut viewers {
        let hello = viewer.next_of("hello");
        assert_eq!((&hello["resumed"], &hello["cursor"]), (&Value::Bool(true), &Value::from(all[*from])));
        assert_eq!(hello["pseq"], (*from as u64).div_ceil(2), "the baseline at the cursor");
        assert_eq!(ids(viewer, 11 - *from), all[*from + 1..]);
    }
    let live = stage.score("r", 9).value();
    viewers.iter_mut().for_each(|(_, v)| assert_eq!(ids(v, 1), [live]));
    assert_eq!(stage.reads(), (4, 0), "four pages of three, and nobody read alone");
    assert_eq!(stage.resumed(Resumed::FromLog), 0);
    assert_eq!(stage.resumed(Resumed::Shared) + stage.resumed(Resumed::FromRing), 40);
}

#[test]
fn who_was_away_for_longer_than_a_storm_lasts_reads_for_itself() {
    let stage = stage();
    stage.log.lock().unwrap().age = Duration::from_secs(120);
    let mut all: Vec<u64> = (0..9).map(|_| stage.comment("r", "a").value()).collect();
    stage.log.lock().unwrap().age = Duration::ZERO;
    all.extend((0..3).map(|n| stage.score("r", n).value()));
    let mut near = stage.ws_as_from("r", "ann", all[9]);
    assert_eq!(near.next_of("hello")["resumed"], true);
    assert_eq!(ids(&mut near, 2), all[10..]);
    let mut far = stage.ws_as_from("r", "bob", all[0]);
    assert_eq!(far.next_of("hello")["resumed"], true);
    assert_eq!(ids(&mut far, 11), all[1..]);
    let (n_past, n_alone) = stage.reads();
    assert!(n_past <= 2 && n_alone == 1, "{n_past} {n_alone}");
    assert_eq!((stage.resumed(Resumed::Shared), stage.resumed(Resumed::FromLog)), (1, 1));
}

#[test]
fn a_cursor_that_the_log_never_gave_out_is_not_believed_for_being_low() {
    let stage = stage();
    stage.score("r", 1);
    let mut viewer = stage.ws_as_from("r", "ann", 5);
    // Below the oldest epoch it is merely old: what was ever said follows.
    assert_eq!(viewer.next_of("hello")["resumed"], true);
    assert_eq!(ids(&mut viewer, 1).len(), 1);
}

#[test]
fn polls_wait_for_the_past_like_everyone() {
    let stage = stage();
    let all: Vec<u64> = (0..5).map(|_| stage.comment("r", "a").value()).collect();
    let target = format!("/v1/rooms/r/poll?since={}&tab=x", all[0]);
    let mut poll = stage.say(&format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    let answer = poll.answer();
    let events = answer.json()["events"].as_array().unwrap().clone();
    assert_eq!(events.iter().filter_map(|e| e["event_id"].as_u64()).collect::<Vec<_>>(), all[1..]);
    assert_eq!(stage.reads().1, 0);
}
