//! A server whose memory runs short gives up comments, then refuses who comes and what is said; scores go on, and it lives.

use serde_json::json;

use crate::processes::metric;
use crate::support::{Http, Server, until};
use crate::viewer::{RUNGS, Rung, Viewer};

const SHEDS: &str = "grandstand_memory_short{does=\"shed\"}";
const REFUSES: &str = "grandstand_memory_short{does=\"refuse\"}";

/// A room that shows a match, and a viewer in it.
fn stands(server: &Server, token: &str) -> Viewer {
    server.put_room("match", token, json!({"state": "live", "matches": ["final"], "anonymous_view": true}));
    let mut viewer = Viewer::open(server, Rung::WebSocket, "match", None, None).expect("a stream");
    viewer.until(|e| e["type"] == "hello");
    viewer
}

/// A goal reaches who is inside.
fn scores_go_on(server: &Server, token: &str, inside: &mut Viewer, n: u64) {
    let goal = json!({
        "match_id": "final", "event_id": format!("g{n}"), "provider": "p", "kind": "goal",
        "score": {"home": n, "away": 0},
    });
    let answer = server.http().call("POST", "/v1/score-event", Some(token), Some(&goal)).expect("an answer");
    assert_eq!(answer.status, 202, "{:?}", answer.json);
    let goal = inside.until(|e| e["type"] == "score_event").pop().expect("a goal");
    assert_eq!(goal["score"]["home"], n);
}

/// Comments and new streams are refused in words; scores go on.
fn refuses(server: &Server, token: &str, inside: &mut Viewer) {
    let comment = server.publish("match", token, "refused", "one more");
    assert_eq!((comment.status, &comment.json["code"]), (503, &json!("overloaded")), "{:?}", comment.json);
    assert!(comment.json["retry_after_ms"].as_u64() >= Some(1_000), "{:?}", comment.json);
    for rung in RUNGS {
        let close = match Viewer::open(server, rung, "match", None, None) {
            Err(answer) => {
                assert_eq!((rung, answer.status), (Rung::Poll, 429));
                answer.json
            }
            Ok(mut viewer) => viewer.next().expect("a word"),
        };
        assert_eq!((&close["type"], &close["code"]), (&json!("close"), &json!(4129)), "{close}");
        assert!(close["retry_after_ms"].is_u64() && close["spread_ms"].is_u64(), "{close}");
    }
    scores_go_on(server, token, inside, 1);
    until("refusals are counted", || metric(server, "grandstand_gateway_streams_limited_total{limit=\"memory\"}") >= 3);
    // I-17: what was refused is not in the log.
    let log = server.export("match", &server.token("checker", &["backend", "admin"]));
    assert!(log.iter().all(|record| record["client_msg_id"] != "refused"));
}

#[test]
fn f29_a_server_that_fills_its_memory_sheds_comments_then_refuses_and_goes_on_with_scores() {
    let mut server = Server::start(&[], &[]);
    let token = server.token("backend", &["backend", "region-ops"]);
    drop(stands(&server, &token));
    server.published("match", &token, "warm", "up");
    let resident = metric(&server, "process_resident_memory_bytes");
    server.stop();
    // Three fifths of it are taken when nothing has happened yet.
    let limit = format!("limits.memory_bytes={}", resident * 5 / 3);
    server.set_args(&["--set", &limit]);
    server.restart();
    let mut inside = stands(&server, &token);
    assert_eq!((metric(&server, SHEDS), metric(&server, REFUSES)), (0, 0));
    // What rooms with viewers say is kept for half a minute.
    let rooms: Vec<String> = (0..16).map(|n| format!("room{n}")).collect();
    let _viewers: Vec<Viewer> =
        rooms.iter().map(|room| Viewer::open(&server, Rung::WebSocket, room, None, None).expect("a stream")).collect();
    let text = "x".repeat(490);
    let refused = std::thread::scope(|scope| {
        let threads: Vec<_> = rooms
            .iter()
            .map(|room| {
                let (server, token, text) = (&server, &token, &text);
                scope.spawn(move || {
                    let mut http: Http = server.http();
                    let path = format!("/v1/rooms/{room}/comments");
                    (0..40_000).any(|n| {
                        let body = json!({"client_msg_id": n.to_string(), "body": text});
                        let answer = http.call("POST", &path, Some(token), Some(&body)).expect("an answer");
                        assert!(answer.status == 200 || answer.json["code"] == "overloaded", "{:?}", answer.json);
                        answer.status != 200 && metric(server, REFUSES) == 1
                    })
                })
            })
            .collect();
        threads.into_iter().any(|thread| thread.join().expect("no thread failed"))
    });
    assert!(refused, "the memory never filled");
    assert_eq!(metric(&server, SHEDS), 1);
    refuses(&server, &token, &mut inside);
}

#[test]
fn f29_each_process_of_a_server_looks_at_its_own_memory() {
    // Every process is larger than a megabyte: refusing begins with its first look.
    for gateways in [&["--set", "limits.memory_bytes=1048576"][..], &["--gateways", "2"]] {
        let mut server = Server::start(gateways, &[]);
        let token = server.token("backend", &["backend", "region-ops"]);
        if gateways[0] == "--gateways" {
            server.stop();
            server.set_args(&["--gateways", "2", "--set", "limits.memory_bytes=1048576"]);
            server.restart();
        }
        let all = if gateways[0] == "--gateways" { 3 } else { 1 };
        until("each process has looked", || metric(&server, REFUSES) == all);
        assert_eq!(metric(&server, SHEDS), all);
        let ratio = |n: u64| {
            let answer = server.http().call("GET", "/metrics", None, None).expect("an answer");
            let page = String::from_utf8(answer.body).expect("text");
            let start = format!("grandstand_process_memory_ratio{{process=\"{n}\"");
            let line = page.lines().find(|line| line.starts_with(&start)).map(str::to_owned);
            line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).unwrap_or_default()
        };
        for process in 0..all {
            until("its ratio is told", || ratio(process) > 1.0);
        }
        let answer = server.http().call("GET", "/healthz/ready", None, None).expect("an answer");
        assert_eq!(answer.status, 200, "those inside are served: {:?}", answer.json);
        let comment = server.publish("r", &token, "k", "refused");
        assert_eq!((comment.status, &comment.json["code"]), (503, &json!("overloaded")));
        let mut refused = Viewer::open(&server, Rung::WebSocket, "r", None, None).expect("a stream");
        assert_eq!(refused.next().expect("a word")["code"], 4129);
    }
}
