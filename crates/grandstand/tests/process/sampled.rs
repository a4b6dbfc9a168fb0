//! A room that says more than anyone reads, by the real binary: what each viewer is given of it, on every rung and again after a
//! resume, held against the windows that the log has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::processes::metric;
use crate::support::{LIMIT, Server, until};
use crate::viewer::{RUNGS, Rung, Viewer, ids};
use crate::wide::millis;

const ROOM: &str = "wide";
const SPEAKERS: usize = 4;
const AUTHORS: usize = 60;
const GOALS: u64 = 5;

fn open(server: &Server, rung: Rung, cursor: u64, token: &str) -> Viewer {
    let cursor = cursor.to_string();
    Viewer::open(server, rung, ROOM, Some(&cursor), Some(token)).unwrap_or_else(|a| panic!("{rung:?}: {a:?}"))
}

fn goal(server: &Server, token: &str, n: u64) -> u64 {
    let body = json!({"match_id": "m", "event_id": format!("e{n}"), "provider": "desk", "kind": "goal",
        "score": {"home": n, "away": 0}, "minute": "1"});
    let path = format!("/v1/score-event?room={ROOM}");
    let answer = server.http().call("POST", &path, Some(token), Some(&body)).expect("an answer");
    assert_eq!(answer.status, 202, "{:?}", answer.json);
    answer.json["event_id"].as_u64().expect("an id")
}

/// Speaks as many, on connections of its own, until told to stop; every comment is acknowledged.
fn speak(server: &Server, token: &str, speaker: usize, over: &AtomicBool, said: &AtomicU64) {
    let mut http = server.http();
    let mut n = 0;
    while !over.load(Ordering::Relaxed) {
        let author = format!("author-{speaker}-{}", n % AUTHORS);
        let body = json!({"client_msg_id": format!("{speaker}-{n}"), "body": format!("{n} of {speaker}"), "as": {"id": author}});
        let path = format!("/v1/rooms/{ROOM}/comments");
        let answer = http.call("POST", &path, Some(token), Some(&body)).expect("an answer");
        assert_eq!(answer.status, 200, "{:?}", answer.json);
        said.fetch_add(1, Ordering::Relaxed);
        n += 1;
    }
}

/// Comments by window, of those that are winners, as the log has them.
fn windows(server: &Server, token: &str) -> BTreeMap<u64, u64> {
    let lines = server.export(ROOM, token);
    let won = |line: &Value| Some((line["event_id"].as_u64()?, line["window"].as_u64()?));
    lines.iter().filter_map(won).collect()
}

fn comments(events: &[Value]) -> Vec<u64> {
    let comments = events.iter().filter(|e| e["type"] == "comment");
    comments.map(|e| e["event_id"].as_u64().expect("an id")).collect()
}

fn scores(events: &[Value]) -> Vec<u64> {
    events.iter().filter(|e| e["type"] == "score_event").map(|e| e["event_id"].as_u64().expect("an id")).collect()
}

fn wide_room(args: &[&str]) {
    let server = Server::start(args, &[]);
    let backend = server.token("backend", &["backend"]);
    let operator = server.token("op", &["region-ops"]);
    server.put_room(ROOM, &operator, json!({"title": "Wide", "sampling": "always", "state": "live", "matches": ["m"]}));
    let (ann, bob) = (server.token("ann", &["viewer"]), server.token("bob", &["viewer"]));
    let begun = {
        let mut first = open(&server, Rung::WebSocket, 0, &ann);
        let hello = first.next().expect("hello");
        assert_eq!((&hello["config"]["sampled"], &hello["config"]["cap"]), (&json!(true), &json!(5)), "{hello}");
        hello["cursor"].as_u64().expect("a cursor")
    };
    let mut viewers: Vec<Viewer> = RUNGS.into_iter().map(|rung| open(&server, rung, begun, &ann)).collect();
    viewers.push(open(&server, Rung::WebSocket, begun, &bob));
    let (over, said) = (AtomicBool::new(false), AtomicU64::new(0));
    let (goals, broken) = std::thread::scope(|scope| {
        for speaker in 0..SPEAKERS {
            let (server, backend, over, said) = (&server, &backend, &over, &said);
            scope.spawn(move || speak(server, backend, speaker, over, said));
        }
        // One whose connection breaks again and again.
        let broken = scope.spawn(|| {
            let (mut cursor, mut seen) = (begun, Vec::new());
            loop {
                let mut viewer = open(&server, Rung::WebSocket, cursor, &ann);
                let some = viewer.until(|e| e["type"] == "score_event");
                seen.extend(some.into_iter().filter(|e| e["type"] != "hello"));
                cursor = *ids(&seen).last().expect("an event");
                if scores(&seen).len() as u64 == GOALS {
                    return seen;
                }
            }
        });
        let mut goals = Vec::new();
        let began = Instant::now();
        for n in 1..=GOALS {
            // The windows between two goals are what the test is about.
            while said.load(Ordering::Relaxed) < n * 300 {
                assert!(began.elapsed() < LIMIT, "only {} were said", said.load(Ordering::Relaxed));
                std::thread::yield_now();
            }
            goals.push(goal(&server, &backend, n));
        }
        over.store(true, Ordering::Relaxed);
        (goals, broken.join().expect("the resuming viewer ended well"))
    });
    let last = *goals.last().expect("a goal");
    let seen: Vec<Vec<Value>> = viewers.iter_mut().map(|viewer| viewer.until_id(last)).collect();
    let of = windows(&server, &backend);
    for (who, seen) in seen.iter().chain([&broken]).enumerate() {
        assert_eq!(scores(seen), goals, "viewer {who}: every score, once, in order");
        assert!(seen.iter().all(|e| e["type"] != "skipped"), "viewer {who} was told of comments passed over");
        let given = comments(seen);
        assert!(given.is_sorted_by(|a, b| a < b), "viewer {who}: ids never go back");
        // A window is a fifth of a second, and the cap is five.
        let mut by_window = BTreeMap::<u64, u32>::new();
        for id in &given {
            *by_window.entry(of[id]).or_default() += 1;
        }
        assert!(by_window.values().all(|n| *n <= 1), "viewer {who}: {by_window:?}");
        let shown: BTreeSet<u64> = of.iter().filter(|(id, _)| **id < last).map(|(_, window)| *window).collect();
        assert_eq!(
            by_window.keys().copied().collect::<BTreeSet<_>>(),
            shown,
            "viewer {who} is given one of every window"
        );
    }
    let (ann_ws, bob_ws) = (comments(&seen[0]), comments(&seen[3]));
    assert_eq!((&ann_ws, &ann_ws), (&comments(&seen[1]), &comments(&seen[2])), "the same on every rung");
    assert_eq!(ann_ws, comments(&broken), "and however often the connection broke");
    assert_ne!(ann_ws, bob_ws, "and each viewer has its own");
    for rung in RUNGS {
        let mut again = open(&server, rung, begun, &ann);
        let all = again.until_id(last);
        assert_eq!((comments(&all), scores(&all)), (ann_ws.clone(), goals.clone()), "{rung:?} again, from the start");
        if rung != Rung::Poll {
            assert_eq!((&all[0]["type"], &all[0]["comments"]), (&json!("hello"), &json!("some")));
        }
    }
    let sampled = || metric(&server, "grandstand_gateway_sampled_total{lane=\"comment\",hop=\"walk\"}");
    until("what is not picked is counted", || sampled() > 0);
    let room =
        || server.http().call("GET", &format!("/admin/rooms/{ROOM}"), Some(&operator), None).expect("an answer").json;
    until("and told of the room", || room()["counters"]["sampled"].as_u64().is_some_and(|n| n > 0));
}

#[test]
fn each_viewer_of_a_wide_room_has_a_part_of_its_own_on_every_rung_and_after_every_resume() {
    wide_room(&[]);
}

#[test]
fn gateway_processes_give_a_viewer_the_same_part() {
    wide_room(&["--gateways", "2"]);
}

/// How far what was told is from what was given, as a share of it. `given`: comments of one stream up to there; `raw`: all that was
/// said, in order; `first`: of each window the first id.
fn off(told: f64, given: &[u64], raw: &[u64], first: &BTreeMap<u64, u64>, of: &BTreeMap<u64, u64>) -> f64 {
    let newest = given.last().expect("something was given");
    let said = raw.partition_point(|id| *id < first[&of[newest]]);
    let measured = given.len() as f64 / said as f64;
    (told - measured).abs() / measured
}

/// By the log alone, so that no clock of the test and no busy machine has a say: at each figure that a viewer is told, what it was
/// given before it on the same stream, and what had been said when the window closed that it was given last. All of it is within the ten
/// seconds that a figure is of.
#[test]
fn the_part_that_viewers_are_told_is_the_part_they_were_given() {
    for args in [&[][..], &["--gateways", "2"]] {
        let server = Server::start(args, &[]);
        let backend = server.token("backend", &["backend"]);
        let operator = server.token("op", &["region-ops"]);
        server.put_room(ROOM, &operator, json!({"sampling": "always"}));
        let rungs = [Rung::WebSocket, Rung::Sse, Rung::WebSocket];
        let mut viewers: Vec<Viewer> = rungs
            .iter()
            .enumerate()
            .map(|(n, rung)| {
                let token = server.token(&format!("viewer-{n}"), &["viewer"]);
                Viewer::greeted(&server, *rung, ROOM, Some(&token))
            })
            .collect();
        let (calmer, over, said) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
        let began = Instant::now();
        let mut seen: Vec<Vec<Value>> = vec![Vec::new(); viewers.len()];
        std::thread::scope(|scope| {
            for speaker in 0..SPEAKERS {
                let until = if speaker == 0 { &over } else { &calmer };
                let (server, backend, said) = (&server, &backend, &said);
                scope.spawn(move || speak(server, backend, speaker, until, said));
            }
            // A window gives each viewer one. Then three of four fall silent, so that the part grows and is told anew.
            let mut hear = |n: usize| {
                for (viewer, seen) in viewers.iter_mut().zip(&mut seen) {
                    while comments(seen).len() < n {
                        seen.extend(viewer.next());
                        assert!(viewer.closed.is_none() && began.elapsed() < LIMIT, "{:?}", viewer.closed);
                    }
                }
            };
            hear(8);
            calmer.store(true, Ordering::Relaxed);
            hear(24);
            over.store(true, Ordering::Relaxed);
        });
        let lines = server.export_with(ROOM, &backend, "raw");
        let is_raw = |line: &&Value| line["type"] == "comment" && line["audience"] == "nobody";
        let raw: Vec<u64> = lines.iter().filter(is_raw).filter_map(|line| line["event_id"].as_u64()).collect();
        let ts = |event: &Value| event["ts"].as_str().map(millis);
        let begun = lines.iter().find(is_raw).and_then(ts).expect("somebody spoke");
        let of = windows(&server, &backend);
        // From the newest, so that the first of a window is what stays.
        let first: BTreeMap<u64, u64> = of.iter().rev().map(|(id, window)| (*window, *id)).collect();
        for (who, seen) in seen.iter().enumerate() {
            let mut n_told = 0;
            for (at, event) in seen.iter().enumerate() {
                let given = comments(&seen[..at]);
                let Some(told) = event["keep_fraction"].as_f64().filter(|_| given.len() >= 8) else { continue };
                // Later the figure is not of the whole run any more, however slow the machine is.
                let last =
                    seen[..at].iter().rev().find(|e| e["type"] == "comment").and_then(ts).expect("it was given some");
                if last > begun + Duration::from_secs(9) {
                    break;
                }
                // It may have been counted before the window that it rode behind.
                let before = &given[..given.len() - 1];
                let off = off(told, &given, &raw, &first, &of).min(off(told, before, &raw, &first, &of));
                assert!(off < 0.1, "viewer {who}: {told} told after {} of {}, {off} off", given.len(), raw.len());
                n_told += 1;
            }
            assert!(n_told > 0, "viewer {who} was told nothing that could be compared");
        }
    }
}

#[test]
fn an_operator_lowers_the_cap_of_sampled_rooms_for_a_while_and_it_is_written_down() {
    for args in [&[][..], &["--gateways", "2"]] {
        let server = Server::start(args, &[]);
        let operator = server.token("op", &["region-ops"]);
        let gateway = if args.is_empty() { "local" } else { "g1" };
        let path = format!("/admin/gateways/{gateway}/shedding");
        let ask = |body: Value| server.http().call("POST", &path, Some(&operator), Some(&body)).expect("an answer");
        for wrong in [
            json!({"cap": 1, "justification": "no end"}),
            json!({"cap": 1, "seconds": 901, "justification": "too long"}),
            json!({"seconds": 60, "justification": "no cap"}),
            json!({"cap": 1, "seconds": 60}),
        ] {
            assert_eq!(ask(wrong.clone()).status, 422, "{wrong}");
        }
        let answer = ask(json!({"cap": 1, "seconds": 60, "expected_seconds": 3_600, "justification": "final"}));
        assert_eq!(answer.status, 200, "{:?}", answer.json);
        let told = &answer.json["shedding"];
        assert_eq!((&told["order"]["cap"], &told["changed"]["justification"]), (&json!(1), &json!("final")), "{told}");
        // A gateway process says so with its next report.
        let by = |by: &str| metric(&server, &format!("grandstand_gateway_shedding{{by=\"{by}\"}}"));
        let end = Instant::now() + LIMIT;
        while (by("order"), by("expected")) != (1, 1) {
            assert!(Instant::now() < end, "the order is never counted");
        }
        assert_eq!(by("shedder"), 0);
        assert_eq!(ask(json!({"justification": "over"})).status, 200);
        while (by("order"), by("expected")) != (0, 0) {
            assert!(Instant::now() < end, "the order never ends");
        }
        let audit = std::fs::read_to_string(server.data().join("audit.jsonl")).expect("an audit");
        let lines: Vec<Value> = audit.lines().map(|l| serde_json::from_str(l).expect(l)).collect();
        let written: Vec<_> = lines.iter().map(|l| (&l["what"], &l["justification"], &l["given"]["cap"])).collect();
        let what = json!("shedding");
        assert_eq!(written, [(&what, &json!("final"), &json!(1)), (&what, &json!("over"), &Value::Null)]);
    }
}
