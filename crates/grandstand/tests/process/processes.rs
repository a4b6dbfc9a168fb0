//! Several gateway processes before one shard process, as their clients see them.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Http, LIMIT, Server, signal, until};
use crate::viewer::{RUNGS, Rung, Viewer, ids};

fn open(server: &Server, rung: Rung, room: &str, cursor: Option<&str>, token: Option<&str>) -> Viewer {
    Viewer::open(server, rung, room, cursor, token).unwrap_or_else(|a| panic!("{} {:?}", a.status, a.json))
}

#[test]
fn viewers_of_every_gateway_process_see_the_same_room() {
    let mut server = Server::start(&["--gateways", "3"], &[]);
    let token = server.token("backend", &["backend"]);
    // Enough that the kernel gives some to each process.
    let mut viewers: Vec<Viewer> = (0..24).map(|n| open(&server, RUNGS[n % 3], "r", None, None)).collect();
    let published: Vec<u64> =
        (0..20).map(|n| server.published("r", &token, &format!("k{n}"), &format!("comment {n}"))).collect();
    for viewer in &mut viewers {
        assert_eq!(ids(&viewer.until_id(published[19])), published);
    }
    let mut speaker = open(&server, RUNGS[0], "r", None, Some(&token));
    speaker.until(|e| e["type"] == "hello");
    speaker.say(&json!({"op": "publish", "room_id": "r", "client_msg_id": "ws", "body": "by socket"})).expect("sent");
    let ack = speaker.until(|e| e["type"] == "publish_ack").pop().expect("an ack");
    for viewer in &mut viewers {
        viewer.until_id(ack["event_id"].as_u64().expect("an id"));
    }
    server.signal("TERM");
    assert!(server.ended(Duration::from_secs(10)).success(), "{}", server.stderr());
}

/// The process that holds the log.
pub fn shard_pid(server: &Server) -> u32 {
    child(server, "shard")
}

/// A process of the server, by its share.
pub fn child(server: &Server, share: &str) -> u32 {
    let children = format!("/proc/{0}/task/{0}/children", server.pid());
    let children = std::fs::read_to_string(children).expect("the supervisor runs");
    let is = |pid: &&str| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|b| *b == 0).any(|word| word == share.as_bytes())
    };
    children.split_whitespace().find(is).and_then(|pid| pid.parse().ok()).unwrap_or_else(|| panic!("no {share}"))
}

/// Kills a process and waits until it has let go of its sockets: who came to its port meanwhile is reset by the kernel.
pub fn kill(pid: u32) {
    signal(pid, "KILL");
    until("it is dead", || is_dead(pid));
}

/// Whether only its entry in the table is left. Source: Linux, proc_pid_stat(5).
fn is_dead(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    let is_zombie = stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'));
    // Its first thread may be gone before the others, which hold its files as well.
    is_zombie && std::fs::read_dir(format!("/proc/{pid}/task")).map_or(true, |threads| threads.count() <= 1)
}

pub fn metric(server: &Server, name: &str) -> u64 {
    let answer = server.http().call("GET", "/metrics", None, None).expect("an answer");
    number(&String::from_utf8(answer.body).expect("text"), name)
}

/// A value of a page of metrics.
pub fn number(page: &str, name: &str) -> u64 {
    let line = page.lines().find(|line| line.split(' ').next() == Some(name));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn tokens_that_gateway_processes_check_are_counted() {
    let server = Server::start(&["--gateways", "2"], &[]);
    for n in 0..4 {
        let token = server.token(&format!("user-{n}"), &["publisher"]);
        open(&server, Rung::WebSocket, "r", None, Some(&token)).until(|e| e["type"] == "hello");
    }
    // Told with the processes' next reports.
    let end = Instant::now() + LIMIT;
    let checked = || metric(&server, "grandstand_auth_tokens_total{from=\"signature\"}");
    while checked() != 4 {
        assert!(Instant::now() < end, "{} of 4", checked());
    }
}

#[test]
fn a_killed_shard_pauses_every_feed_and_no_viewer_loses_an_event() {
    let server = Server::start(&["--gateways", "2"], &[]);
    let token = server.token("backend", &["backend", "region-ops"]);
    let mut viewers: Vec<Viewer> = (0..8).map(|n| open(&server, RUNGS[n % 2], "r", None, None)).collect();
    let mut published = vec![server.published("r", &token, "before", "before")];
    kill(shard_pid(&server));
    // Whoever publishes meanwhile is told to come back, and does with the same key.
    let start = std::time::Instant::now();
    let id = loop {
        let answer = server.publish("r", &token, "after", "after");
        if answer.status == 200 {
            break answer.json["event_id"].as_u64().expect("an id");
        }
        assert!(answer.status == 503 && start.elapsed() < LIMIT, "{} {:?}", answer.status, answer.json);
        assert!(answer.json["retry_after_ms"].is_u64(), "{:?}", answer.json);
        std::thread::yield_now();
    };
    published.push(id);
    for viewer in &mut viewers {
        let events = viewer.until_id(id);
        assert_eq!(ids(&events), published);
        let paused = events.iter().position(|e| e["type"] == "feed_paused").expect("the pause is told");
        assert!(events[..paused].iter().all(|e| e["event_id"].as_u64() != Some(id)));
        assert_eq!(viewer.closed, None, "the socket is kept");
    }
}

#[test]
fn viewers_of_a_killed_gateway_resume_elsewhere_and_it_comes_back() {
    let server = Server::start(&["--gateways", "2"], &[]);
    let token = server.token("backend", &["backend"]);
    let mut viewers: Vec<Viewer> = (0..16).map(|_| open(&server, Rung::WebSocket, "r", None, None)).collect();
    let first = server.published("r", &token, "first", "first");
    for viewer in &mut viewers {
        viewer.until_id(first);
    }
    let old = child(&server, "gateway:0/2");
    kill(old);
    // A caller that the kernel had given to the dead one's listener tries again.
    let start = std::time::Instant::now();
    let second = loop {
        let body = json!({"client_msg_id": "second", "body": "second"});
        let answer = Http::connect(server.addr)
            .and_then(|mut http| http.call("POST", "/v1/rooms/r/comments", Some(&token), Some(&body)));
        match answer {
            Ok(answer) if answer.status == 200 => break answer.json["event_id"].as_u64().expect("an id"),
            _ => assert!(start.elapsed() < LIMIT, "nobody takes a publish"),
        }
    };
    let mut n_cut = 0;
    for viewer in &mut viewers {
        let mut seen = Vec::new();
        while let Some(event) = viewer.next() {
            seen.push(event);
            if ids(&seen).contains(&second) {
                break;
            }
        }
        if !ids(&seen).contains(&second) {
            n_cut += 1;
            let start = std::time::Instant::now();
            let mut again = loop {
                let cursor = first.to_string();
                // As above: a connection that is cut before its answer is made again.
                let opened = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    Viewer::open(&server, Rung::Sse, "r", Some(&cursor), None)
                }));
                match opened {
                    Ok(Ok(viewer)) => break viewer,
                    _ => assert!(start.elapsed() < LIMIT, "nobody takes a viewer"),
                }
            };
            assert_eq!(ids(&again.until_id(second)), [second], "exactly what it had not seen");
        }
    }
    assert!(n_cut < viewers.len(), "the other process's viewers noticed nothing");
    let start = std::time::Instant::now();
    while metric(&server, "grandstand_link_processes") < 2 || metric(&server, "grandstand_link_joined_total") < 3 {
        assert!(start.elapsed() < LIMIT, "the process did not come back");
        std::thread::yield_now();
    }
}

#[test]
fn a_batch_crosses_once_to_each_process_with_a_viewer_and_to_no_other() {
    let server = Server::start(&["--gateways", "4"], &[]);
    let token = server.token("backend", &["backend"]);
    // Each room has one viewer, so one process of the four.
    let n_rooms = 100;
    let mut viewers: Vec<Viewer> =
        (0..n_rooms).map(|n| open(&server, Rung::WebSocket, &format!("r{n}"), None, None)).collect();
    for viewer in &mut viewers {
        viewer.until(|e| e["type"] == "hello");
    }
    for (n, viewer) in viewers.iter_mut().enumerate() {
        let id = server.published(&format!("r{n}"), &token, "k", "one");
        viewer.until_id(id);
    }
    assert_eq!(metric(&server, "grandstand_link_batches_total"), n_rooms);
    assert_eq!(metric(&server, "grandstand_link_useless_batches_total"), 0);
    let load = server.http().call("GET", "/healthz/ready", None, None).expect("an answer").json;
    assert_eq!(load["ready"], true);
}

#[test]
fn an_operator_empties_one_gateway_process_of_several_by_its_name() {
    let server = Server::start(&["--gateways", "2"], &[]);
    let token = server.token("ops", &["region-ops", "backend"]);
    let mut viewers: Vec<Viewer> = (0..16).map(|_| open(&server, Rung::WebSocket, "r", None, None)).collect();
    // Whoever meets the port in the moment a drained process leaves it is reset, and tries again.
    let listed = || {
        let asked = || server.http().call("GET", "/admin/gateways", Some(&token), None).ok();
        let start = std::time::Instant::now();
        loop {
            if let Some(answer) = asked() {
                return answer.json;
            }
            assert!(start.elapsed() < LIMIT, "no answer");
        }
    };
    let start = std::time::Instant::now();
    // Each tells its figures once a second.
    while (0..2).map(|g| listed()["gateways"][g]["load"]["streams"].as_u64().unwrap_or(0)).sum::<u64>() < 16 {
        assert!(start.elapsed() < LIMIT, "viewers are missing: {}", listed());
        std::thread::yield_now();
    }
    let order = json!({"seconds": 0, "justification": "a new version"});
    let ask = |path: &str, body| server.http().call("POST", path, Some(&token), Some(body)).expect("an answer");
    assert_eq!(ask("/admin/gateways/local/drain", &order).status, 404);
    let answer = ask("/admin/gateways/g1/drain", &order);
    assert_eq!((answer.status, &answer.json["state"]), (200, &json!("draining")), "{:?}", answer.json);
    let start = std::time::Instant::now();
    while listed()["gateways"][1]["load"]["streams"] != 0 {
        assert!(start.elapsed() < LIMIT, "it was not emptied: {}", listed());
        std::thread::yield_now();
    }
    let states: Vec<_> = listed()["gateways"].as_array().expect("a list").iter().map(|g| g["state"].clone()).collect();
    assert_eq!(states, ["open", "draining"]);
    let id = server.published("r", &token, "k", "to those who stay");
    let mut n_sent_away = 0;
    for viewer in &mut viewers {
        let mut stays = false;
        while let Some(event) = viewer.next() {
            stays = event["event_id"].as_u64() == Some(id);
            if stays {
                break;
            }
        }
        assert!(stays || viewer.closed == Some(4112), "{:?}", viewer.closed);
        n_sent_away += usize::from(!stays);
    }
    assert!((1..viewers.len()).contains(&n_sent_away), "{n_sent_away} of {}", viewers.len());
}
