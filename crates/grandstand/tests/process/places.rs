//! `connections_max` over several gateway processes: whoever comes is dealt to one by chance, and still each place is taken.

use serde_json::json;

use crate::processes::metric;
use crate::support::{Answer, Server, until};
use crate::viewer::{RUNGS, Rung, Viewer};

/// Enough new connections that the kernel gives each of a few processes some.
const N_CALLS: usize = 24;

/// Tries to come in: the stream, or the code it was refused with. `None`: the listener it queued at was just closed.
fn comes(server: &Server, rung: Rung) -> Option<Result<Viewer, u64>> {
    let code = |json: &serde_json::Value| json["code"].as_u64().unwrap_or_default();
    match Viewer::try_open(server, rung, "r", None, None).ok()? {
        Err(Answer { status, json, .. }) => {
            assert_eq!((rung, status), (Rung::Poll, 429), "{json}");
            assert!(json["retry_after_ms"].is_u64() && json["spread_ms"].is_u64(), "{json}");
            Some(Err(code(&json)))
        }
        Ok(mut viewer) => match viewer.next_or_answer()? {
            event if event["type"] == "hello" => Some(Ok(viewer)),
            event => {
                assert_eq!(event["type"], "close", "{event}");
                assert!(event["retry_after_ms"].is_u64() && event["spread_ms"].is_u64(), "{event}");
                Some(Err(code(&event)))
            }
        },
    }
}

/// Comes until it is in.
fn comes_in(server: &Server, rung: Rung) -> Viewer {
    let mut inside = None;
    until("there is a place", || {
        match comes(server, rung) {
            Some(Ok(viewer)) => inside = Some(viewer),
            Some(Err(code)) => assert_eq!(code, 4129),
            None => {}
        }
        inside.is_some()
    });
    inside.expect("it is in")
}

/// Everyone who comes can read that the server is full, on each rung, and nobody comes in.
fn is_full(server: &Server) {
    let refused = |rung| match comes(server, rung) {
        Some(Ok(_)) => panic!("one too many came in"),
        Some(Err(code)) => code == 4129,
        None => false,
    };
    for rung in RUNGS {
        until("everyone is told", || (0..N_CALLS).all(|_| refused(rung)));
    }
}

#[test]
fn exactly_as_many_viewers_come_in_as_the_server_may_hold_whichever_gateway_process_they_meet() {
    for (gateways, most) in [("2", 7), ("4", 10), ("3", 2)] {
        let setting = format!("limits.connections_max={most}");
        let server = Server::start(&["--gateways", gateways, "--set", &setting], &[]);
        let rung = |n: usize| [Rung::WebSocket, Rung::Sse][n % 2];
        let mut inside: Vec<Viewer> = (0..most).map(|n| comes_in(&server, rung(n))).collect();
        is_full(&server);
        // Some leave, others come.
        inside.drain(..most / 2);
        inside.extend((0..most / 2).map(|n| comes_in(&server, rung(n))));
        is_full(&server);
        // Those inside are served.
        let token = server.token("backend", &["backend"]);
        let id = server.published("r", &token, "k", "to all of them");
        inside.iter_mut().for_each(|viewer| drop(viewer.until_id(id)));
    }
}

#[test]
fn a_gateway_process_without_places_leaves_the_port_to_those_that_have_some() {
    let most = 40;
    let args = ["--gateways", "2", "--set", "limits.connections_max=40", "--set", "workers=1"];
    let server = Server::start(&args, &[]);
    let token = server.token("ops", &["region-ops"]);
    let full = || {
        let listed = server.http().call("GET", "/admin/gateways", Some(&token), None).expect("an answer").json;
        listed["gateways"].as_array().expect("gateways").iter().filter(|g| g["full"] == json!(true)).count()
    };
    let mut inside = Vec::new();
    while full() == 0 {
        inside.push(comes_in(&server, Rung::WebSocket));
    }
    assert!(inside.len() < most, "both filled up at once: this shows nothing");
    until("its listener is closed", || metric(&server, "grandstand_gateway_ports_left") == 1);
    // From here nobody meets the full one: each comes in at the first try.
    while inside.len() < most {
        match comes(&server, Rung::WebSocket) {
            Some(Ok(viewer)) => inside.push(viewer),
            other => panic!("the {}th was not taken: {:?}", inside.len() + 1, other.map(Result::err)),
        }
    }
    until("both are on the port to say no", || metric(&server, "grandstand_gateway_ports_left") == 0);
    is_full(&server);
    let limited = "grandstand_gateway_streams_limited_total{limit=\"connections\"}";
    until("refusals are counted", || metric(&server, limited) >= N_CALLS as u64);
}
