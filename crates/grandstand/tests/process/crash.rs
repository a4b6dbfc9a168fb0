//! kill -9 under load, again and again: no acked publish is lost, none is doubled, no id is used twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Http, Server};

const ACKS_MIN: usize = 200;
const PUBLISHERS: usize = 16;

fn rounds() -> usize {
    let is_long = std::env::var_os("GRANDSTAND_LONG").is_some();
    let told = std::env::var("LONG_ROUNDS").ok().map(|n| n.parse().expect("LONG_ROUNDS is a number"));
    if is_long { told.unwrap_or(1_000) } else { 20 }
}

/// What one publisher knows of one key: the id it was told, or that nobody told it anything.
type Told = BTreeMap<String, Option<u64>>;

#[test]
fn no_acked_publish_is_lost_or_doubled_by_kill_nine() {
    let mut server = Server::start(&[], &[]);
    let token = server.token("backend", &["backend"]);
    let mut told: Told = BTreeMap::new();
    let start_of_all = Instant::now();
    for round in 0..rounds() {
        let n_acks = Arc::new(AtomicUsize::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let results = Arc::new(Mutex::new(Vec::new()));
        // Keys whose fate the last kill left open are sent again first: the answer may be the old event, never a second one.
        let open: Vec<String> = told.iter().filter(|(_, id)| id.is_none()).map(|(k, _)| k.clone()).collect();
        let publishers: Vec<_> = (0..PUBLISHERS)
            .map(|p| {
                let (n_acks, stop, results) = (n_acks.clone(), stop.clone(), results.clone());
                // Connected before any of them publishes: the kill may come before the last thread has begun.
                let (mut http, token) = (Http::connect(server.addr).expect("the server accepts"), token.clone());
                let mut keys: Vec<String> = open.iter().skip(p).step_by(PUBLISHERS).cloned().collect();
                std::thread::spawn(move || {
                    let mut n = 0;
                    while !stop.load(Ordering::Relaxed) {
                        let key = keys.pop().unwrap_or_else(|| {
                            n += 1;
                            format!("{round}-{p}-{n}")
                        });
                        let body = json!({"client_msg_id": key, "body": format!("comment {key}")});
                        let answer = http.call("POST", "/v1/rooms/crash/comments", Some(&token), Some(&body));
                        let id = match answer {
                            Ok(answer) if answer.status == 200 => answer.json["event_id"].as_u64(),
                            Ok(answer) => panic!("{} {:?}", answer.status, answer.json),
                            Err(_) => None,
                        };
                        results.lock().expect("no panic").push((key, id));
                        if id.is_none() {
                            return;
                        }
                        n_acks.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let start = Instant::now();
        // The kill falls at another moment of the commit each round.
        let enough = ACKS_MIN + round % 20 * 7;
        while n_acks.load(Ordering::Relaxed) < enough {
            assert!(start.elapsed() < Duration::from_secs(30), "round {round} is void: too few acks");
            std::hint::spin_loop();
        }
        server.kill();
        stop.store(true, Ordering::Relaxed);
        for publisher in publishers {
            publisher.join().expect("a publisher panicked");
        }
        for (key, id) in results.lock().expect("no panic").drain(..) {
            let known = told.entry(key.clone()).or_insert(id);
            assert!(known.is_none() || id.is_none() || *known == id, "{key} was given {known:?} and then {id:?}");
            *known = known.or(id);
        }
        server.restart();
    }
    let admin = server.token("checker", &["backend", "admin"]);
    let log = server.export("crash", &admin);
    let mut by_key: BTreeMap<&str, u64> = BTreeMap::new();
    let mut ids = BTreeSet::new();
    let mut last = 0;
    for event in log.iter().filter(|e| e["type"] == "comment") {
        let id = event["event_id"].as_u64().expect("an id");
        let key = event["client_msg_id"].as_str().expect("the export names the key");
        assert!(id > last, "ids go backwards: {last} then {id}");
        last = id;
        assert!(ids.insert(id), "{id} is used twice");
        assert_eq!(event["body"], format!("comment {key}"), "one id, one content");
        assert!(by_key.insert(key, id).is_none(), "{key} is in the log twice");
    }
    let acked: Vec<_> = told.iter().filter_map(|(k, id)| id.map(|id| (k, id))).collect();
    assert!(acked.len() >= ACKS_MIN * rounds(), "only {} acks in all", acked.len());
    for (key, id) in acked {
        assert_eq!(by_key.get(key.as_str()), Some(&id), "{key} was acked as {id}");
    }
    let (n_acked, took) = (told.values().flatten().count(), start_of_all.elapsed().as_secs());
    println!("{} kills, {n_acked} acknowledged comments, {} in the log, {took} s", rounds(), by_key.len());
}
