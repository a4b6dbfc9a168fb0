//! A full disk refuses publishes with a reason, goes on serving what is there, and recovers when there is room again.

use serde_json::json;

use crate::support::Server;
use crate::viewer::{RUNGS, Viewer, ids};

/// Publishes until the server refuses; the ids it acked.
fn fill(server: &Server, token: &str, prefix: &str) -> Vec<u64> {
    let text = "x".repeat(450);
    let mut http = server.http();
    let mut acked = Vec::new();
    for n in 0..200_000 {
        let body = json!({"client_msg_id": format!("{prefix}{n}"), "body": text});
        let answer = http.call("POST", "/v1/rooms/full/comments", Some(token), Some(&body)).expect("an answer");
        if answer.status == 200 {
            acked.push(answer.json["event_id"].as_u64().expect("an id"));
            continue;
        }
        assert_eq!(answer.status, 503, "{:?}", answer.json);
        assert!(answer.body.windows(8).any(|w| w == b"no_space"), "{}", String::from_utf8_lossy(&answer.body));
        return acked;
    }
    panic!("the store never filled");
}

fn still_serves(server: &Server, last: u64) {
    let snapshot = server.http().call("GET", "/v1/rooms/full/snapshot", None, None).expect("an answer");
    assert_eq!(
        snapshot.json["recent_comments"].as_array().and_then(|c| c.last()).and_then(|c| c["event_id"].as_u64()),
        Some(last)
    );
    for rung in RUNGS {
        let before = (last - 5).to_string();
        let mut viewer = Viewer::open(server, rung, "full", Some(&before), None).unwrap_or_else(|a| panic!("{a:?}"));
        assert_eq!(ids(&viewer.until_id(last)).last(), Some(&last), "{rung:?}");
    }
}

#[test]
fn the_store_limit_refuses_with_no_space_and_raising_it_recovers() {
    let mut server = Server::start(&[], &[("GRANDSTAND_STORE_BYTES_MAX", "4194304")]);
    let token = server.token("backend", &["backend"]);
    let acked = fill(&server, &token, "a");
    assert!(acked.len() > 500, "only {} fitted", acked.len());
    still_serves(&server, *acked.last().expect("some"));
    server.stop();
    server.set_env(&[("GRANDSTAND_STORE_BYTES_MAX", "67108864")]);
    server.restart();
    still_serves(&server, *acked.last().expect("some"));
    let next = server.published("full", &token, "after", "there is room again");
    assert!(next > *acked.last().expect("some"));
    let log = server.export("full", &server.token("checker", &["backend", "admin"]));
    let logged = ids(&log);
    assert_eq!(logged.len(), acked.len() + 1, "every acked comment and no refused one");
}

#[test]
fn a_file_size_limit_of_the_system_refuses_and_recovers() {
    let mut server = Server::unstarted(&[], &[]);
    server.restart_under(&["prlimit", "--fsize=6291456:unlimited"]);
    let token = server.token("backend", &["backend"]);
    let acked = fill(&server, &token, "a");
    assert!(acked.len() > 200, "only {} fitted", acked.len());
    still_serves(&server, *acked.last().expect("some"));
    // Lifted from outside, the running process recovers by itself.
    let lifted = std::process::Command::new("prlimit")
        .args(["--pid", &server.pid().to_string(), "--fsize=unlimited:unlimited"])
        .status()
        .expect("prlimit can be called");
    assert!(lifted.success());
    let start = std::time::Instant::now();
    let next = loop {
        let answer = server.publish("full", &token, "after", "there is room again");
        if answer.status == 200 {
            break answer.json["event_id"].as_u64().expect("an id");
        }
        assert_eq!(answer.status, 503, "{:?}", answer.json);
        assert!(start.elapsed() < crate::support::LIMIT, "it never recovered");
        std::thread::sleep(std::time::Duration::from_millis(50));
    };
    assert!(next > *acked.last().expect("some"));
    server.kill();
    server.restart();
    let log = server.export("full", &server.token("checker", &["backend", "admin"]));
    assert_eq!(ids(&log).len(), acked.len() + 1, "every acked comment and no refused one");
}
