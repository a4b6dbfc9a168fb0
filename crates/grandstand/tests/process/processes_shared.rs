//! What several gateway processes hold together: clients that reach one process with something that another one has.

use std::thread::{self, JoinHandle};
use std::time::Instant;

use serde_json::{Value, json};

use crate::processes::{child, kill, metric};
use crate::support::{Http, LIMIT, Server, until};
use crate::viewer::{Rung, Viewer};

/// Enough new connections that the kernel gives each of two processes some: all go to one once in 2^23.
const N_CALLS: usize = 24;
/// Streams of a user and of an address, where they are few.
const MOST: usize = 6;

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

/// The code that a new stream is refused with; none when it is greeted.
fn refusal(viewer: &mut Viewer) -> Option<u16> {
    while let Some(event) = viewer.next() {
        if event["type"] == "hello" {
            return None;
        }
    }
    assert!(viewer.closed.is_some(), "an end without a word");
    viewer.closed
}

/// Opens streams as fast as they are answered; how many were let in, and how many were refused.
fn storm(server: &Server, n: usize) -> (u64, u64) {
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..n {
        let mut viewer = Viewer::open(server, Rung::WebSocket, "r", None, None).expect("a stream");
        match refusal(&mut viewer) {
            None => taken += 1,
            code => {
                assert_eq!(code, Some(4129));
                refused += 1;
            }
        }
    }
    (taken, refused)
}

#[test]
fn the_rate_of_new_streams_holds_for_all_gateway_processes_together() {
    let (rate, burst) = (20, 24);
    let server = Server::start(&["--gateways", "3", "--set", "admission.rate=20"], &[]);
    let token = server.token("ops", &["region-ops", "backend"]);
    let listed = || server.http().call("GET", "/admin/gateways", Some(&token), None).expect("an answer").json;
    assert_eq!(listed()["all"]["admission"], json!({"rate": 20, "burst": 24, "shared_by": 3}));
    let start = Instant::now();
    let (mut taken, mut refused) = (0, 0);
    while start.elapsed().as_secs() < 3 {
        let (more, less) = storm(&server, 10);
        (taken, refused) = (taken + more, refused + less);
    }
    let most = burst + rate * (start.elapsed().as_secs() + 1);
    assert!(taken <= most && taken > 0, "{taken} of at most {most}");
    assert!(refused > 0, "nobody came over the rate: this shows nothing");
    // A process that dies leaves its part to the others, and has it again when it is back.
    kill(child(&server, "gateway:1/3"));
    until("it is back", || metric(&server, "grandstand_link_joined_total") == 4);
    until("it has its part", || listed()["all"]["admission"]["shared_by"] == 3);
    // The whole is changed, and one gateway.
    let ask = |gateway: &str, body| {
        let path = format!("/admin/gateways/{gateway}/admission");
        let answer = server.http().call("POST", &path, Some(&token), Some(&body)).expect("an answer");
        assert_eq!(answer.status, 200, "{:?}", answer.json);
        answer.json
    };
    let all = ask("all", json!({"rate": 0, "justification": "half-time"}));
    assert_eq!(all["all"]["admission"], json!({"rate": 0, "burst": 0, "shared_by": 3}));
    assert_eq!(all["gateways"][2]["admission"], json!({"rate": 0, "burst": 0, "shared_by": 3}));
    assert_eq!(metric(&server, "grandstand_gateway_admission_rate"), 0);
    until("nobody is let in", || storm(&server, 24).0 == 0);
    let one = ask("g1", json!({"rate": 1_000, "justification": "for the second half"}));
    assert_eq!(one["admission"], json!({"rate": 1_000, "burst": 1_200}));
    until("somebody is let in", || storm(&server, 24).0 > 0);
    // What was asked outlives the process that was asked.
    kill(child(&server, "shard"));
    until("the log is back", || {
        let answer = server.try_http().and_then(|mut http| http.call("GET", "/admin/gateways", Some(&token), None));
        answer.is_ok_and(|answer| {
            let each = |n: usize| answer.json["gateways"][n]["admission"]["rate"].as_u64();
            answer.status == 200 && [each(0), each(1), each(2)] == [Some(0), Some(1_000), Some(0)]
        })
    });
}

#[test]
fn who_comes_back_from_a_drained_gateway_process_meets_another_one() {
    let server = Server::start(&["--gateways", "2"], &[]);
    let token = server.token("ops", &["region-ops"]);
    let ask = |gateway: &str, what: &str, body| {
        let path = format!("/admin/gateways/{gateway}/{what}");
        let answer = server.http().call("POST", &path, Some(&token), Some(&body)).expect("an answer");
        assert_eq!(answer.status, 200, "{:?}", answer.json);
    };
    // Whether all of so many new connections are viewers, or are sent away.
    let all_are = |code: Option<u16>| {
        // A listener that is being closed resets who waits at it.
        let one = || Viewer::try_open(&server, Rung::WebSocket, "r", None, None);
        (0..N_CALLS).all(|_| one().is_ok_and(|viewer| refusal(&mut viewer.expect("a stream")) == code))
    };
    let drain = || json!({"seconds": 0, "justification": "a new version"});
    ask("g1", "drain", drain());
    until("its listener is closed", || all_are(None));
    // With nobody else to go to, the last keeps its listener open and says so; so does the first then.
    ask("g0", "drain", drain());
    until("everyone is sent away", || all_are(Some(4112)));
    ask("all", "admission", json!({"justification": "the new version is there"}));
    until("both take viewers", || all_are(None));
}

#[test]
fn each_process_of_the_server_tells_what_it_takes() {
    let server = Server::start(&["--gateways", "2"], &[]);
    for (process, name) in [(0, "shard"), (1, "g0"), (2, "g1")] {
        for what in ["cpu_seconds_total", "resident_memory_bytes", "open_fds", "max_fds"] {
            let line = format!("grandstand_process_{what}{{process=\"{process}\",name=\"{name}\"}}");
            let value = || {
                let answer = server.http().call("GET", "/metrics", None, None).expect("an answer");
                let text = String::from_utf8(answer.body).expect("text");
                let line = text.lines().find(|l| l.starts_with(&line)).map(str::to_owned);
                line.and_then(|l| l.rsplit(' ').next()?.parse::<f64>().ok()).unwrap_or(0.0)
            };
            // A gateway tells it once a second.
            until(&line, || value() > 0.0);
        }
    }
}

/// Tries to come in by SSE: its connection, or the code it was refused with.
fn comes(server: &Server, headers: &[(&str, &str)]) -> Result<Http, u64> {
    let mut http = server.http();
    http.send("GET", "/v1/rooms/r/sse", headers, &[]).expect("sent");
    assert_eq!(http.head().expect("an answer").0, 200, "a refusal can be read by a page");
    loop {
        let line = http.line().expect("a line");
        let Some(event) = line.strip_prefix("data: ").map(|text| serde_json::from_str::<Value>(text).expect("JSON"))
        else {
            continue;
        };
        match event["type"].as_str() {
            Some("hello") => return Ok(http),
            Some("close") => return Err(event["code"].as_u64().expect("a code")),
            _ => {}
        }
    }
}

#[test]
fn a26_a73_the_streams_of_a_user_and_of_an_address_are_counted_over_all_gateway_processes() {
    let limits = [
        ("GRANDSTAND_LIMITS_STREAMS_PER_USER", "6"),
        ("GRANDSTAND_LIMITS_STREAMS_PER_ADDRESS", "6"),
        ("GRANDSTAND_TRUSTED_PROXIES", "127.0.0.1"),
    ];
    let server = Server::start(&["--gateways", "3"], &limits);
    let bearer = |user: &str| format!("Bearer {}", server.token(user, &["viewer"]));
    let (ann, bob) = (bearer("ann"), bearer("bob"));
    // Of one /64, each from a host of its own.
    let hosts: Vec<String> = (1..=N_CALLS).map(|n| format!("2001:db8::{n}")).collect();
    are_limited(&server, "user", |_| comes(&server, &[("Authorization", &ann)]), &[("Authorization", &bob)]);
    let of_one = |n: usize| comes(&server, &[("X-Forwarded-For", &hosts[n % N_CALLS])]);
    are_limited(&server, "address", of_one, &[("X-Forwarded-For", "2001:db8:0:1::1")]);
}

fn are_limited(server: &Server, what: &str, comes_one: impl Fn(usize) -> Result<Http, u64>, other: &[(&str, &str)]) {
    let mut inside: Vec<Http> =
        (0..MOST).map(|n| comes_one(n).unwrap_or_else(|code| panic!("the {n}th of a {what}: {code}"))).collect();
    // Each process counts its own at once, and hears of the others' within a few seconds.
    let refused = |n: usize| match comes_one(n) {
        Err(code) => code == 4129,
        Ok(_one_too_many) => false,
    };
    until("whichever process is met, it refuses", || (0..N_CALLS).all(refused));
    comes(server, other).unwrap_or_else(|code| panic!("another {what} is let in: {code}"));
    inside.truncate(MOST / 2);
    until("who leaves makes place, wherever it was", || comes_one(0).is_ok());
}
