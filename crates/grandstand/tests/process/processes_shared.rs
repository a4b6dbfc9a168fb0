//! What several gateway processes hold together: clients that reach one process with something that another one has.

use std::thread::{self, JoinHandle};
use std::time::Instant;

use serde_json::json;

use crate::processes::metric;
use crate::support::{Http, LIMIT, Server};
use crate::viewer::{Rung, Viewer};

/// Enough new connections that the kernel gives each of two processes some: all go to one once in 2^23.
const N_CALLS: usize = 24;

#[test]
fn a_stream_is_renewed_whichever_gateway_process_the_call_reaches() {
    let server = Server::start(&["--gateways", "2"], &[]);
    let token = server.token("ann", &["publisher"]);
    let mut viewer = Viewer::open(&server, Rung::Sse, "r", None, Some(&token)).expect("a stream");
    let hello = viewer.until(|e| e["type"] == "hello").pop().expect("a hello");
    let session = hello["session"].as_str().expect("a session").to_owned();
    let renew = |session: &str, token: &str| {
        let body = json!({"session": session, "token": token});
        server.http().call("POST", "/v1/rooms/r/auth", None, Some(&body)).expect("an answer").status
    };
    for _ in 0..N_CALLS {
        assert_eq!(renew(&session, &server.token("ann", &["publisher"])), 204);
    }
    for _ in 0..N_CALLS {
        assert_eq!(renew(&session, &server.token("bob", &["publisher"])), 403);
    }
    // A process that never was, and a stream that never was in one that is.
    for unknown in [format!("3f00{}", &session[4..]), format!("{}0000000000000000", &session[..20])] {
        for _ in 0..N_CALLS {
            assert_eq!(renew(&unknown, &token), 404, "{unknown}");
        }
    }
}

#[test]
fn a_newer_poll_of_a_tab_ends_the_older_one_in_another_gateway_process() {
    let server = Server::start(&["--gateways", "2"], &[]);
    let token = server.token("ann", &["publisher"]);
    let since = server.published("r", &token, "k", "first");
    let poll = || -> JoinHandle<u16> {
        let (address, token) = (server.addr, token.clone());
        let path = format!("/v1/rooms/r/poll?since={since}&timeout=30&tab=t");
        thread::spawn(move || {
            let mut http = Http::connect(address).expect("a connection");
            http.call("GET", &path, Some(&token), None).expect("an answer").status
        })
    };
    let mut held = poll();
    let end = Instant::now() + LIMIT;
    while metric(&server, "grandstand_gateway_streams{transport=\"poll\"}") == 0 {
        assert!(Instant::now() < end, "the first poll does not wait");
        thread::yield_now();
    }
    for _ in 0..N_CALLS {
        // The older one ends when the newer one has come, so the next is newer than both.
        let newer = poll();
        assert_eq!(held.join().expect("a status"), 204);
        held = newer;
    }
    server.published("r", &token, "k2", "second");
    assert_eq!(held.join().expect("a status"), 200);
}
