//! Everybody at once, and everybody away: admission and drain of the real binary, by clients that honour what they are told.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use grandstand_core::rng::Rng;
use serde_json::{Value, json};

use crate::support::{LIMIT, Server};
use crate::viewer::{RUNGS, Rung, Viewer};

const RATE: u64 = 200;
const BURST: u64 = 240;

fn operate(server: &Server, what: &str, body: &Value) -> Value {
    let token = server.token("op", &["region-ops"]);
    let path = format!("/admin/gateways/local/{what}");
    let answer = server.http().call("POST", &path, Some(&token), Some(body)).expect("an answer");
    assert_eq!(answer.status, 200, "{:?}", answer.json);
    answer.json
}

fn metric(server: &Server, name: &str) -> u64 {
    let answer = server.http().call("GET", "/metrics", None, None).expect("an answer");
    let text = String::from_utf8(answer.body).expect("text");
    let line = text.lines().find_map(|l| l.strip_prefix(name).and_then(|rest| rest.strip_prefix(' ')));
    line.unwrap_or_else(|| panic!("no {name}")).parse().expect("a number")
}

/// What a stream says first: hello, or the refusal with its waits.
enum Met {
    In(Box<Viewer>),
    Told { code: u64, retry_after: Duration, spread: Duration },
}

fn meet(server: &Server, rung: Rung, cursor: Option<&str>) -> Met {
    let told = |close: &Value| {
        let wait = |name: &str| Duration::from_millis(close[name].as_u64().expect("a wait"));
        Met::Told {
            code: close["code"].as_u64().expect("a code"),
            retry_after: wait("retry_after_ms"),
            spread: wait("spread_ms"),
        }
    };
    let mut viewer = match Viewer::open(server, rung, "storm", cursor, None) {
        Ok(viewer) => Box::new(viewer),
        Err(answer) => return told(&answer.json),
    };
    if rung == Rung::Poll {
        return Met::In(viewer);
    }
    let first = viewer.next().expect("a stream says something first");
    match first["type"].as_str() {
        Some("hello") => Met::In(viewer),
        Some("close") => told(&first),
        _ => panic!("{first}"),
    }
}

/// When an admitted viewer had asked, and when it had its hello: the server let it in between the two.
#[derive(Clone, Copy)]
struct Admitted {
    asked: Duration,
    greeted: Duration,
}

#[test]
fn r32_a_storm_never_exceeds_the_limit_and_everyone_is_back_within_twice_the_longest_wait_told() {
    const N: usize = 2_000;
    const THREADS: usize = 8;
    let server = Server::start(&[], &[("GRANDSTAND_ADMISSION_RATE", "200")]);
    let began = Instant::now();
    let inside: Mutex<Vec<(Admitted, Viewer)>> = Mutex::new(Vec::new());
    let longest = Mutex::new(Duration::ZERO);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (server, inside, longest) = (&server, &inside, &longest);
            scope.spawn(move || {
                let mut rng = Rng::new(thread as u64);
                let mut due = std::collections::BinaryHeap::from(vec![std::cmp::Reverse(Instant::now()); N / THREADS]);
                while let Some(std::cmp::Reverse(at)) = due.pop() {
                    // What a client does with its waits; nothing here waits for the server by sleeping.
                    std::thread::sleep(at.saturating_duration_since(Instant::now()));
                    let asked = began.elapsed();
                    match meet(server, Rung::WebSocket, None) {
                        Met::In(viewer) => {
                            let greeted = began.elapsed();
                            inside.lock().expect("alone").push((Admitted { asked, greeted }, *viewer));
                        }
                        Met::Told { code, retry_after, spread } => {
                            assert_eq!(code, 4129);
                            let mut longest = longest.lock().expect("alone");
                            *longest = (retry_after + spread).max(*longest);
                            drop(longest);
                            let drawn = Duration::from_millis(rng.below(spread.as_millis() as u64 + 1));
                            due.push(std::cmp::Reverse(Instant::now() + retry_after + drawn));
                        }
                    }
                    assert!(began.elapsed() < LIMIT * 4, "{} viewers never came in", due.len());
                }
            });
        }
    });
    let inside = inside.into_inner().expect("nobody panicked");
    let longest = longest.into_inner().expect("nobody panicked");
    assert_eq!(inside.len(), N);
    let mut times: Vec<Admitted> = inside.iter().map(|(times, _)| *times).collect();
    let took = times.iter().map(|t| t.greeted).max().expect("some");
    assert!(longest > Duration::from_secs(5), "a storm that was not felt: {longest:?}");
    assert!(took <= longest * 2, "the last came in after {took:?}, the longest wait told was {longest:?}");
    // Who asked after `from` and was greeted before `to` was let in between the two.
    times.sort_by_key(|t| t.asked);
    for (i, first) in times.iter().enumerate() {
        let mut ends: Vec<Duration> = times[i..].iter().map(|t| t.greeted).collect();
        ends.sort_unstable();
        for (n, end) in ends.iter().enumerate().step_by(16) {
            let window = end.saturating_sub(first.asked);
            let most = BURST + (RATE as f64 * window.as_secs_f64()).ceil() as u64;
            assert!((n as u64) < most, "{} let in within {window:?}", n + 1);
        }
    }
    assert_eq!(metric(&server, "grandstand_gateway_streams_admitted_total"), N as u64);
    assert!(metric(&server, "grandstand_gateway_streams_limited_total{limit=\"rate\"}") > 0);
    assert_eq!(metric(&server, "grandstand_gateway_admission_rate"), RATE);
}

#[test]
fn a_rate_of_zero_set_while_it_runs_refuses_every_rung_and_is_undone() {
    let server = Server::start(&[], &[]);
    operate(&server, "admission", &json!({"rate": 0, "justification": "process test"}));
    for rung in RUNGS {
        let Met::Told { code, retry_after, spread } = meet(&server, rung, None) else { panic!("{rung:?} came in") };
        assert_eq!(code, 4129);
        assert!(retry_after > Duration::ZERO && spread > Duration::ZERO, "{rung:?}");
    }
    let gateway = operate(&server, "admission", &json!({"justification": "process test"}));
    assert_eq!(gateway["admission"], Value::Null);
    for rung in RUNGS {
        assert!(matches!(meet(&server, rung, None), Met::In(_)), "{rung:?}");
    }
}

#[test]
fn a_drain_is_paced_resumable_unready_and_undone() {
    let server = Server::start(&[], &[]);
    let writer = server.token("writer", &["publisher"]);
    let mut last = server.published("storm", &writer, "k0", "before");
    let mut viewers: Vec<Viewer> = Vec::new();
    for n in 0..60 {
        let Met::In(viewer) = meet(&server, [Rung::WebSocket, Rung::Sse][n % 2], None) else { panic!("refused") };
        viewers.push(*viewer);
    }
    let began = Instant::now();
    operate(&server, "drain", &json!({"seconds": 3, "justification": "process test"}));
    let ready = server.http().call("GET", "/healthz/ready", None, None).expect("an answer");
    assert_eq!((ready.status, &ready.json["reason"]), (503, &json!("draining")));
    assert!(matches!(meet(&server, Rung::WebSocket, None), Met::Told { code: 4112, .. }));
    // Those who wait for their turn are still served.
    last = server.published("storm", &writer, "k1", "meanwhile").max(last);
    let mut ends: Vec<Duration> = std::thread::scope(|scope| {
        let waits: Vec<_> = viewers
            .drain(..)
            .map(|mut viewer| {
                scope.spawn(move || {
                    let seen = viewer.until(|e| e["type"] == "close");
                    let close = seen.last().expect("the close");
                    assert_eq!(close["code"], 4112);
                    assert!(close["spread_ms"].as_u64() > Some(0), "{close}");
                    began.elapsed()
                })
            })
            .collect();
        waits.into_iter().map(|wait| wait.join().expect("a viewer")).collect()
    });
    ends.sort_unstable();
    let (first, middle, end) = (ends[0], ends[30], ends[59]);
    assert!(end >= Duration::from_millis(2_500) && end < Duration::from_secs(10), "{ends:?}");
    assert!(first < middle && middle < end && end - first > Duration::from_secs(1), "not paced: {ends:?}");
    operate(&server, "admission", &json!({"justification": "process test"}));
    let ready = server.http().call("GET", "/healthz/ready", None, None).expect("an answer");
    assert_eq!(ready.status, 200);
    let Met::In(mut back) = meet(&server, Rung::WebSocket, Some(&(last - 1).to_string())) else { panic!("refused") };
    back.until_id(last);
    let audit = std::fs::read_to_string(server.data().join("audit.jsonl")).expect("the record of operators");
    assert_eq!(audit.lines().count(), 2, "{audit}");
}

#[test]
fn a72_per_address_limits_count_the_client_a_trusted_proxy_names_and_nobody_elses_word() {
    let limits = ("GRANDSTAND_LIMITS_STREAMS_PER_ADDRESS", "1");
    let status = |server: &Server, hops: &[&str]| {
        let mut http = server.http();
        let headers: Vec<(&str, &str)> = hops.iter().map(|h| ("X-Forwarded-For", *h)).collect();
        http.send("GET", "/v1/rooms/a/poll", &headers, &[]).expect("sent");
        http.answer().expect("an answer").status
    };
    let hold = |server: &Server, hops: &str| {
        let mut http = server.http();
        http.send("GET", "/v1/rooms/a/sse", &[("X-Forwarded-For", hops)], &[]).expect("sent");
        assert_eq!(http.head().expect("an answer").0, 200);
        // Its hello says that it was counted.
        while !http.line().expect("a line").starts_with("data: ") {}
        http
    };
    let trusting = Server::start(&[], &[limits, ("GRANDSTAND_TRUSTED_PROXIES", "127.0.0.1,10.0.0.0/8")]);
    let _held = hold(&trusting, "203.0.113.9");
    let table: &[(&[&str], u16)] = &[
        (&["203.0.113.9"], 429),
        (&["::ffff:203.0.113.9"], 429),
        (&["203.0.113.9:4711"], 429),
        (&["192.0.2.1, 203.0.113.9"], 429),
        (&["192.0.2.1", "203.0.113.9"], 429),
        (&["127.0.0.1, 203.0.113.9"], 429),
        (&["203.0.113.9, 10.0.0.7"], 429),
        (&["203.0.113.9, 10.0.0.7, 127.0.0.1"], 429),
        (&["203.0.113.8"], 200),
        (&["203.0.113.9, 203.0.113.8"], 200),
        // No address: the proxy's own, which is loopback and has no limit.
        (&["203.0.113.9, unknown"], 200),
        (&[], 200),
    ];
    for (hops, expected) in table {
        assert_eq!(status(&trusting, hops), *expected, "{hops:?}");
    }
    let wary = Server::start(&[], &[limits, ("GRANDSTAND_TRUSTED_PROXIES", "10.0.0.0/8")]);
    let _held = hold(&wary, "203.0.113.9");
    assert_eq!(status(&wary, &["203.0.113.9"]), 200);
}

#[test]
fn a72_a_mapped_range_of_trusted_proxies_refuses_to_start() {
    let server = Server::unstarted(&[], &[("GRANDSTAND_TRUSTED_PROXIES", "::ffff:10.0.0.0/8")]);
    let out = server.command(&[]).stderr(std::process::Stdio::piped()).output().expect("the binary can be started");
    assert!(!out.status.success());
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(said.contains("GRANDSTAND_TRUSTED_PROXIES") && said.contains("is not a network"), "{said}");
}

#[test]
fn a_full_server_and_a_full_room_refuse_every_rung_and_readiness_says_how_full() {
    let full = ("GRANDSTAND_LIMITS_CONNECTIONS_MAX", "3");
    let server = Server::start(&[], &[full, ("GRANDSTAND_LIMITS_CONNECTIONS_PER_ROOM_MAX", "2")]);
    let inside: Vec<Met> = (0..2).map(|_| meet(&server, Rung::WebSocket, None)).collect();
    assert!(inside.iter().all(|met| matches!(met, Met::In(_))));
    for rung in RUNGS {
        assert!(matches!(meet(&server, rung, None), Met::Told { code: 4129, .. }), "{rung:?}");
    }
    assert_eq!(metric(&server, "grandstand_gateway_streams_limited_total{limit=\"room\"}"), 3);
    let mut other = Viewer::open(&server, Rung::Sse, "other", None, None).unwrap_or_else(|a| panic!("{a:?}"));
    assert_eq!(other.next().expect("hello")["type"], "hello");
    let ready = server.http().call("GET", "/healthz/ready", None, None).expect("an answer");
    assert_eq!(ready.status, 200);
    assert_eq!((&ready.json["load"]["streams"], &ready.json["load"]["connections_max"]), (&json!(3), &json!(3)));
    assert_eq!(ready.json["load"]["share"], json!(1.0));
    let mut refused = Viewer::open(&server, Rung::WebSocket, "third", None, None).unwrap_or_else(|a| panic!("{a:?}"));
    assert_eq!(refused.next().expect("a close")["code"], 4129);
    assert_eq!(metric(&server, "grandstand_gateway_streams_limited_total{limit=\"connections\"}"), 1);
}
