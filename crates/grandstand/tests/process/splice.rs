//! The splice between log and live stream, cut at every step by a failpoint while events go on: nothing missed, nothing twice.

use std::time::{Duration, Instant};

use crate::support::{LIMIT, Server};
use crate::viewer::{RUNGS, Rung, Viewer, ids};

const POINTS: [&str; 5] = [
    "resume.before_subscribe",
    "resume.before_read",
    "resume.between_pages",
    "resume.between_last_page_and_live",
    "walk.slice",
];

/// Publishes from several connections so that a page's worth takes little time.
fn publish(server: &Server, token: &str, prefix: &str, n: usize) -> Vec<u64> {
    let mut http = server.http();
    (0..n)
        .map(|i| {
            let body = serde_json::json!({"client_msg_id": format!("{prefix}{i}"), "body": format!("{prefix} {i}")});
            let answer = http.call("POST", "/v1/rooms/splice/comments", Some(token), Some(&body)).expect("an answer");
            assert_eq!(answer.status, 200, "{:?}", answer.json);
            answer.json["event_id"].as_u64().expect("an id")
        })
        .collect()
}

#[test]
fn a_resume_held_at_any_point_misses_nothing() {
    for point in POINTS {
        for rung in RUNGS {
            let mut server = Server::start(&[], &[]);
            let token = server.token("backend", &["backend"]);
            let first = publish(&server, &token, "seen", 1)[0];
            let mut wanted = publish(&server, &token, "missed", 450);
            server.stop();
            let (reached, released) = (server.folder().join("reached"), server.folder().join("released"));
            let failpoints = format!("{point}=pause:{}", released.display());
            server.set_env(&[
                ("GRANDSTAND_FAILPOINTS", &failpoints),
                ("GRANDSTAND_FAILPOINTS_REACHED", reached.to_str().expect("a path")),
            ]);
            server.restart();
            let resumed = {
                let cursor = first.to_string();
                let (server, point) = (&server, point);
                std::thread::scope(|scope| {
                    let viewer = scope.spawn(move || {
                        let mut viewer = Viewer::open(server, rung, "splice", Some(&cursor), None)
                            .unwrap_or_else(|a| panic!("{point} {rung:?}: {a:?}"));
                        let mut seen = Vec::new();
                        loop {
                            let event = viewer.next().unwrap_or_else(|| panic!("{point} {rung:?}: the stream ended"));
                            let last = event["body"] == "live 29";
                            seen.push(event);
                            if last {
                                return seen;
                            }
                        }
                    });
                    let start = Instant::now();
                    // The walk's point is reached by the first live event; the others by the resume itself.
                    let mut live = if point == "walk.slice" { publish(server, &token, "live", 10) } else { Vec::new() };
                    while !reached.exists() {
                        assert!(start.elapsed() < LIMIT, "{point} {rung:?} was never reached: the run is void");
                        std::thread::sleep(Duration::from_millis(2));
                    }
                    let done = live.len();
                    live.extend(publish_from(server, &token, done, 20));
                    std::fs::write(&released, "").expect("released");
                    live.extend(publish_from(server, &token, 20, 30));
                    (viewer.join().expect("the viewer panicked"), live)
                })
            };
            let (seen, live) = resumed;
            wanted.extend(live);
            assert_eq!(ids(&seen), wanted, "{point} {rung:?}");
            if rung != Rung::Poll {
                assert_eq!(seen[0]["resumed"], true, "{point} {rung:?} {}", seen[0]);
            }
        }
    }
}

fn publish_from(server: &Server, token: &str, from: usize, to: usize) -> Vec<u64> {
    (from..to).map(|n| server.published("splice", token, &format!("live{n}"), &format!("live {n}"))).collect()
}
