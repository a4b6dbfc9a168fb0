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
    In(Viewer),
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
        Ok(viewer) => viewer,
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
fn r32_a_storm_never_exceeds_the_limit_and_everyone_is_back_within_twice_the_spread() {
    const N: usize = 2_000;
    const THREADS: usize = 8;
    let server = Server::start(&[], &[("GRANDSTAND_ADMISSION_RATE", "200")]);
    let began = Instant::now();
    let inside: Mutex<Vec<(Admitted, Viewer)>> = Mutex::new(Vec::new());
    let widest = Mutex::new(Duration::ZERO);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (server, inside, widest) = (&server, &inside, &widest);
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
                            inside.lock().expect("alone").push((Admitted { asked, greeted }, viewer));
                        }
                        Met::Told { code, retry_after, spread } => {
                            assert_eq!(code, 4129);
                            let mut widest = widest.lock().expect("alone");
                            *widest = spread.max(*widest);
                            drop(widest);
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
    let widest = widest.into_inner().expect("nobody panicked");
    assert_eq!(inside.len(), N);
    let mut times: Vec<Admitted> = inside.iter().map(|(times, _)| *times).collect();
    let took = times.iter().map(|t| t.greeted).max().expect("some");
    assert!(widest > Duration::from_secs(5), "a storm that was not felt: {widest:?}");
    assert!(took <= widest * 2, "the last came in after {took:?}, the widest spread was {widest:?}");
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
    assert_eq!(metric(&server, "grandstand_streams_admitted_total"), N as u64);
    assert!(metric(&server, "grandstand_streams_refused_total{reason=\"rate\"}") > 0);
    assert_eq!(metric(&server, "grandstand_admission_rate"), RATE);
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
        viewers.push(viewer);
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
