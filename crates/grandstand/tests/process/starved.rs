//! F-30: a server that is not given the processor. It is slow and complete: scores come, and nothing is shed by that alone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::processes::metric;
use crate::support::{LIMIT, Server};
use crate::viewer::{Rung, Viewer, ids};

/// The process runs for so many of a hundred parts of each.
const SLICE: Duration = Duration::from_millis(20);

/// Stops the process and lets it go on again, until told to end. The waits are the starvation itself.
fn starve(pid: u32, percent: u32, over: &AtomicBool) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process");
    while !over.load(Ordering::Relaxed) {
        let _ = kill_process(pid, Signal::STOP);
        std::thread::sleep(SLICE * (100 - percent) / 100);
        let _ = kill_process(pid, Signal::CONT);
        std::thread::sleep(SLICE * percent / 100);
    }
}

/// A test that fails must not leave the others running.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn goal(server: &Server, token: &str, n: u64) -> u64 {
    // Each of ten matches has its own rate.
    let body = json!({"match_id": format!("m{}", n % 10), "event_id": format!("e{n}"), "provider": "desk", "kind": "goal",
        "score": {"home": n, "away": 0}});
    let answer = server.http().call("POST", "/v1/score-event?room=wide", Some(token), Some(&body)).expect("an answer");
    assert_eq!(answer.status, 202, "{:?}", answer.json);
    answer.json["event_id"].as_u64().expect("an id")
}

#[test]
fn f30_a_starved_server_sheds_nothing_by_that_alone_and_every_score_comes() {
    let server = Server::start(&["--set", "workers=1"], &[]);
    let token = server.token("backend", &["backend", "region-ops"]);
    let matches: Vec<String> = (0..10).map(|n| format!("m{n}")).collect();
    let settings = json!({"sampling": "always", "state": "live", "matches": matches});
    server.put_room("wide", &token, settings);
    let mut viewers: Vec<Viewer> = (0..40)
        .map(|n| Viewer::open(&server, [Rung::WebSocket, Rung::Sse][n % 2], "wide", None, None).expect("a stream"))
        .collect();
    for viewer in &mut viewers {
        viewer.until(|e| e["type"] == "hello");
    }
    let shed = || metric(&server, "grandstand_gateway_shedding{by=\"shedder\"}");
    for (percent, n_goals) in [(50, 10), (10, 20)] {
        let over = AtomicBool::new(false);
        let began = Instant::now();
        let goals: Vec<u64> = std::thread::scope(|scope| {
            scope.spawn(|| starve(server.pid(), percent, &over));
            // A room that says more than it shows, all the time.
            scope.spawn(|| {
                let mut http = server.http();
                for n in 0.. {
                    if over.load(Ordering::Relaxed) {
                        return;
                    }
                    let author = format!("author-{percent}-{}", n % 40);
                    let body = json!({"client_msg_id": format!("{percent}-{n}"), "body": format!("comment {n}"), "as": {"id": author}});
                    let answer = http.call("POST", "/v1/rooms/wide/comments", Some(&token), Some(&body)).expect("an answer");
                    assert_eq!(answer.status, 200, "{:?}", answer.json);
                }
            });
            let _ends = Ends(&over);
            let mut goals = Vec::new();
            let mut looked = Duration::ZERO;
            // The shedder needs three seconds of both signs: it has as many, and more.
            while goals.len() < n_goals || looked < Duration::from_secs(5) {
                goals.push(goal(&server, &token, u64::from(percent) * 100 + goals.len() as u64));
                assert_eq!(shed(), 0, "starved to {percent} %, it sheds");
                looked = began.elapsed();
                assert!(looked < LIMIT * 2, "{} goals in {looked:?}", goals.len());
            }
            goals
        });
        let last = *goals.last().expect("some goals");
        for viewer in &mut viewers {
            let events = viewer.until_id(last);
            let scores: Vec<_> = events.iter().filter(|e| e["type"] == "score_event").cloned().collect();
            assert_eq!(ids(&scores), goals);
        }
    }
}
