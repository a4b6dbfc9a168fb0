//! A wide room in the real binary: both roads, the switch between them under load, and what an author is told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::processes::{kill, shard_pid};
use crate::support::{LIMIT, Server};
use crate::viewer::{Rung, Viewer};

const ROOM: &str = "stadium";

/// Twenty in the test command, a hundred in the long form.
fn n_flips() -> usize {
    if std::env::var_os("GRANDSTAND_LONG").is_some() { 100 } else { 20 }
}

fn exported(server: &Server, token: &str) -> Vec<Value> {
    server.export_with(ROOM, token, "control,raw")
}

fn is_raw(line: &Value) -> bool {
    line["type"] == "comment" && line["audience"] == "nobody"
}

fn id(line: &Value) -> u64 {
    line["event_id"].as_u64().expect("an id")
}

#[test]
fn an_author_in_a_wide_room_is_told_twice_and_sees_one_comment() {
    let server = Server::start(&[], &[]);
    let operator = server.token("op", &["region-ops"]);
    let backend = server.token("backend", &["backend"]);
    let ann = server.token("ann", &["publisher"]);
    server.put_room(ROOM, &operator, json!({"sampling": "always"}));
    let mut viewer = Viewer::open(&server, Rung::WebSocket, ROOM, None, Some(&ann)).expect("a stream");
    let publish = json!({"op": "publish", "client_msg_id": "k1", "body": "hello"});
    viewer.say(&publish).expect("it is open");
    let seen = viewer.until(|e| e["type"] == "publish_commit");
    let ack = seen.iter().find(|e| e["type"] == "publish_ack").expect("an ack comes first");
    assert!(ack["event_id"].is_null() && ack["raw_id"].is_u64(), "{ack}");
    let commit = seen.last().unwrap();
    assert_eq!(commit["client_msg_id"], "k1");
    let event_id = commit["event_id"].as_u64().expect("alone in its window it wins");
    // The same key again, by either transport: the first answer, and what became of it.
    viewer.say(&publish).expect("it is open");
    let again = viewer.until(|e| e["type"] == "publish_commit");
    let ack_again = again.iter().find(|e| e["type"] == "publish_ack").expect("an ack");
    assert_eq!((&ack_again["raw_id"], &ack_again["duplicate"]), (&ack["raw_id"], &json!(true)));
    assert_eq!(again.last().unwrap()["event_id"], event_id);
    let by_http = server.publish(ROOM, &ann, "k1", "hello");
    assert_eq!((by_http.status, &by_http.json["event_id"]), (200, &json!(event_id)));

    let lines = exported(&server, &backend);
    let raw: Vec<&Value> = lines.iter().filter(|l| is_raw(l)).collect();
    let shown: Vec<&Value> = lines.iter().filter(|l| l["type"] == "comment" && !is_raw(l)).collect();
    assert_eq!((raw.len(), shown.len()), (1, 1));
    assert_eq!((id(raw[0]), &shown[0]["source_id"]), (ack["raw_id"].as_u64().unwrap(), &ack["raw_id"]));
    assert_eq!(id(shown[0]), event_id);
    assert!(server.export(ROOM, &backend).iter().all(|line| !is_raw(line)), "raw lines come when they are asked for");
    let snapshot =
        server.http().call("GET", &format!("/v1/rooms/{ROOM}/snapshot"), None, None).expect("an answer").json;
    assert_eq!((&snapshot["config"]["sampled"], &snapshot["config"]["cap"]), (&json!(true), &json!(5)));
    assert_eq!(snapshot["recent_comments"][0]["event_id"], event_id);
    // What part a viewer is given is a viewer's own number, and a snapshot does not depend on who asks.
    assert_eq!(snapshot["counters"].get("keep_fraction"), None, "{}", snapshot["counters"]);
    let reacted = server.http().call(
        "POST",
        &format!("/v1/rooms/{ROOM}/reactions"),
        Some(&ann),
        Some(&json!({"event_id": event_id, "kind": "fire"})),
    );
    assert_eq!(reacted.expect("an answer").status, 204);
}

#[test]
fn an_author_is_told_what_became_of_a_comment_though_the_shard_was_killed_meanwhile() {
    let server = Server::start(&["--gateways", "2"], &[]);
    let operator = server.token("op", &["region-ops"]);
    let ann = server.token("ann", &["publisher"]);
    server.put_room(ROOM, &operator, json!({"sampling": "always"}));
    let mut viewer = Viewer::open(&server, Rung::WebSocket, ROOM, None, Some(&ann)).expect("a stream");
    let start = Instant::now();
    let told = |event: &Value, key: &str| event["type"] == "publish_commit" && event["client_msg_id"] == key;
    for n in 0.. {
        assert!(start.elapsed() < LIMIT, "the window always closed before the shard was dead");
        let key = format!("k{n}");
        let publish = json!({"op": "publish", "client_msg_id": key, "body": format!("hello {n}")});
        loop {
            viewer.say(&publish).expect("it is open");
            let answer = viewer.until(|e| e["client_msg_id"] == key.as_str()).pop().expect("an answer");
            if answer["type"] == "publish_ack" {
                assert!(answer["raw_id"].is_u64(), "{answer}");
                break;
            }
            assert!(start.elapsed() < LIMIT, "{answer}");
        }
        kill(shard_pid(&server));
        let before = viewer.until(|e| e["type"] == "feed_paused");
        if before.iter().any(|e| told(e, &key)) {
            continue;
        }
        let after = viewer.until(|e| told(e, &key));
        let commit = after.last().expect("it is told");
        let shown = after.iter().find(|e| e["type"] == "comment" && e["body"] == format!("hello {n}"));
        assert!(commit["event_id"].is_u64(), "alone in its window it is shown: {commit}");
        if let Some(shown) = shown {
            assert_eq!(shown["event_id"], commit["event_id"]);
        }
        return;
    }
}

#[test]
fn what_was_said_in_a_wide_room_outlives_a_kill() {
    let mut server = Server::start(&[], &[]);
    let operator = server.token("op", &["region-ops"]);
    let backend = server.token("backend", &["backend"]);
    server.put_room(ROOM, &operator, json!({"sampling": "always"}));
    let say = |server: &Server, n: u32| {
        let body =
            json!({"client_msg_id": format!("k{n}"), "body": format!("text {n}"), "as": {"id": format!("u{n}")}});
        let answer = server.http().call("POST", &format!("/v1/rooms/{ROOM}/comments"), Some(&backend), Some(&body));
        answer.expect("an answer").json
    };
    let raw: Vec<Value> = (0..20).map(|n| say(&server, n)["raw_id"].clone()).collect();
    server.kill();
    server.restart();
    let start = Instant::now();
    // Windows are not in the log: those that were open are made again of it.
    while (0..20).any(|n| say(&server, n)["event_id"].is_null()) {
        assert!(start.elapsed() < LIMIT, "every comment of a small wide room is shown");
    }
    assert!((0..20).all(|n| say(&server, n)["raw_id"] == raw[n as usize]), "a retry gets the first answer");
    let lines = exported(&server, &backend);
    let shown: BTreeSet<&str> =
        lines.iter().filter(|l| l["source_log"] == "raw").map(|l| l["body"].as_str().unwrap()).collect();
    let n_shown = lines.iter().filter(|l| l["source_log"] == "raw").count();
    assert_eq!((shown.len(), n_shown), (20, 20), "each once");
}

/// What one publisher was told of one comment.
#[derive(Clone, PartialEq, Debug)]
struct Told {
    user: String,
    key: String,
    text: String,
    /// Where it lies as it was said, on either road.
    said: u64,
    raw: bool,
}

#[test]
fn a_room_that_turns_wide_and_narrow_under_load_loses_doubles_and_reorders_nothing() {
    let server = Server::start(&[], &[]);
    let operator = server.token("op", &["admin"]);
    let backend = server.token("backend", &["backend"]);
    let slow = server.token("slow", &["publisher"]);
    server.put_room(ROOM, &operator, json!({"sampling": "none", "rate": 100_000, "slow_mode_seconds": 1}));
    let turning = AtomicBool::new(true);
    let n_said = AtomicU64::new(0);
    // So many comments between two turns; some of them are asked again on the other side.
    let hear_some = || {
        let upto = n_said.load(Ordering::Relaxed) + 40;
        let start = Instant::now();
        while n_said.load(Ordering::Relaxed) < upto {
            assert!(start.elapsed() < LIMIT, "publishers go on while a room turns");
            std::thread::yield_now();
        }
    };
    let (told, retries): (Vec<Vec<Told>>, Vec<Retry>) = std::thread::scope(|scope| {
        let publishers: Vec<_> = (0..4)
            .map(|p| {
                let (server, backend, turning, n_said) = (&server, &backend, &turning, &n_said);
                scope.spawn(move || publisher(server, backend, p, turning, n_said))
            })
            .collect();
        let (slow_server, slow_turning) = (&server, &turning);
        let slow_one = scope.spawn(move || slow_publisher(slow_server, &slow, slow_turning));
        let (watch_server, watch_turning) = (&server, &turning);
        let watcher = scope.spawn(move || watch(watch_server, watch_turning));
        for n in 0..n_flips() {
            hear_some();
            let sampling = if n % 2 == 0 { "always" } else { "none" };
            server.put_room(ROOM, &operator, json!({"sampling": sampling}));
            if n == n_flips() / 2 {
                let ban = json!({"user_id": "p0-u1", "reason": "rude", "justification": "test"});
                let path = format!("/admin/rooms/{ROOM}/bans");
                let answer = server.http().call("POST", &path, Some(&operator), Some(&ban)).expect("an answer");
                assert!(answer.status < 300, "{:?}", answer.json);
            }
        }
        server.put_room(ROOM, &operator, json!({"sampling": "none"}));
        // Enough for a retry on the other side of the last turn.
        hear_some();
        turning.store(false, Ordering::Relaxed);
        // The watcher looks up at the next event.
        server.publish(ROOM, &backend, "wake", "wake up");
        let said = publishers.into_iter().map(|p| p.join().expect("a publisher"));
        let (mut told, retries): (Vec<Vec<Told>>, Vec<Vec<Retry>>) = said.unzip();
        told.push(slow_one.join().expect("the slow one"));
        watcher.join().expect("the watcher");
        (told, retries.concat())
    });
    // A last one, behind which everything is decided.
    let last = server.published(ROOM, &backend, "the-last", "the last");
    let lines = exported(&server, &backend);
    let turns: Vec<u64> = lines.iter().filter(|l| l["type"] == "wide" || l["type"] == "narrow").map(id).collect();
    assert!(turns.len() >= n_flips() - 1, "{} turns", turns.len());
    for turn in &turns {
        let crossed = retries.iter().any(|retry| retry.said < *turn && *turn < retry.after);
        assert!(crossed, "nothing said before {turn} was asked again after it");
    }
    check(&lines, &told.concat());

    // Nobody waits behind the last turn, and the snapshot is the end of what was shown.
    let shown: Vec<&Value> = lines.iter().filter(|l| l["type"] == "comment" && !is_raw(l)).collect();
    let path = format!("/v1/rooms/{ROOM}/snapshot?min={last}");
    let snapshot = server.http().call("GET", &path, None, None).expect("an answer").json;
    let recent: Vec<u64> = snapshot["recent_comments"].as_array().expect("a list").iter().map(id).collect();
    let newest: Vec<u64> = shown[shown.len().saturating_sub(50)..].iter().map(|l| id(l)).collect();
    assert_eq!((recent, &snapshot["config"]["sampled"]), (newest, &json!(false)));
    assert_eq!(snapshot["counters"]["keep_fraction"], 1, "everyone is given everything");
}

/// What was asked again, and what its publisher had been told of last when it asked.
#[derive(Clone, Copy)]
struct Retry {
    said: u64,
    after: u64,
}

/// Says comments of four users in turn, and asks for every third again, some of them much later.
fn publisher(
    server: &Server,
    backend: &str,
    p: u64,
    turning: &AtomicBool,
    n_said: &AtomicU64,
) -> (Vec<Told>, Vec<Retry>) {
    let mut http = server.http();
    let mut ask = |user: &str, key: &str, text: &str| -> Option<Told> {
        let body = json!({"client_msg_id": key, "body": text, "as": {"id": user}});
        let answer = http.call("POST", &format!("/v1/rooms/{ROOM}/comments"), Some(backend), Some(&body));
        let answer = answer.expect("an answer");
        if answer.status == 403 && answer.json["code"] == "banned" {
            return None;
        }
        assert_eq!(answer.status, 200, "{:?}", answer.json);
        let raw = answer.json["raw_id"].as_u64();
        let said = raw.or(answer.json["event_id"].as_u64()).expect("an ack names what was said");
        Some(Told { user: user.into(), key: key.into(), text: text.into(), said, raw: raw.is_some() })
    };
    let (mut told, mut retries): (Vec<Told>, Vec<Retry>) = (Vec::new(), Vec::new());
    let mut n = 0_u64;
    while turning.load(Ordering::Relaxed) {
        n += 1;
        let (user, key, text) = (format!("p{p}-u{}", n % 4), format!("p{p}-{n}"), format!("comment {n} of {p}"));
        let Some(first) = ask(&user, &key, &text) else { continue };
        told.push(first.clone());
        n_said.fetch_add(1, Ordering::Relaxed);
        let after = first.said;
        let again = match n % 3 {
            0 => first,
            1 => told[told.len().saturating_sub(60)].clone(),
            _ => continue,
        };
        if let Some(answer) = ask(&again.user, &again.key, &again.text) {
            assert_eq!(answer, again, "a retry gets the first answer");
            retries.push(Retry { said: again.said, after });
        }
    }
    (told, retries)
}

/// A user under slow mode, who tries as often as it can.
fn slow_publisher(server: &Server, token: &str, turning: &AtomicBool) -> Vec<Told> {
    let (mut told, mut n) = (Vec::new(), 0);
    while turning.load(Ordering::Relaxed) {
        let (key, text) = (format!("slow-{n}"), format!("slowly {n}"));
        let answer = server.publish(ROOM, token, &key, &text);
        if answer.status == 200 {
            let raw = answer.json["raw_id"].as_u64();
            let said = raw.or(answer.json["event_id"].as_u64()).expect("an ack");
            told.push(Told { user: "slow".into(), key, text, said, raw: raw.is_some() });
            n += 1;
        } else {
            assert_eq!((answer.status, &answer.json["code"]), (429, &json!("rate_limited")));
            // It is told to wait and waits a little of it.
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    told
}

/// A viewer whose ids rise, whose priority numbers are whole, and who is told of each turn; it resumes now and then.
fn watch(server: &Server, turning: &AtomicBool) {
    let (mut last, mut pseq, mut sampled): (u64, Option<u64>, Option<bool>) = (0, None, None);
    while turning.load(Ordering::Relaxed) {
        let cursor = (last > 0).then(|| last.to_string());
        let mut viewer =
            Viewer::open(server, Rung::WebSocket, ROOM, cursor.as_deref(), None).unwrap_or_else(|a| panic!("{a:?}"));
        for n in 0..300 {
            if n > 0 && !turning.load(Ordering::Relaxed) {
                return;
            }
            let Some(event) = viewer.next() else { panic!("the stream ended: {:?}", viewer.closed) };
            if event["type"] == "hello" {
                assert_eq!(event["resumed"].as_bool(), Some(last > 0), "{event}");
                let now = event["config"]["sampled"].as_bool();
                // What the room is now; the turns of the gap follow.
                sampled = if last > 0 { sampled } else { now };
                last = last.max(event["cursor"].as_u64().expect("a cursor"));
                pseq = pseq.or(event["pseq"].as_u64());
                continue;
            }
            let Some(id) = event["event_id"].as_u64() else { continue };
            assert!(id > last, "{id} after {last}: {event}");
            last = id;
            if let Some(n) = event["pseq"].as_u64() {
                assert_eq!(Some(n), pseq.map(|before| before + 1), "{event}");
                pseq = Some(n);
            }
            if let Some(now) = event["sampled"].as_bool() {
                assert_ne!(Some(now), sampled, "each turn is told once");
                sampled = Some(now);
            }
        }
    }
}

/// The log alone says what happened; everyone who was told something is held against it.
fn check(lines: &[Value], told: &[Told]) {
    let text = |line: &Value, member: &str| line[member].as_str().unwrap_or_default().to_owned();
    let user_of = |line: &Value| line["user"]["id"].as_str().unwrap_or_default().to_owned();
    let mut said: BTreeMap<u64, &Value> = BTreeMap::new();
    let mut keys: BTreeSet<(String, String)> = BTreeSet::new();
    let mut won: BTreeMap<u64, &Value> = BTreeMap::new();
    let mut latest: BTreeMap<String, u64> = BTreeMap::new();
    let mut slow: Vec<Duration> = Vec::new();
    let (mut wide, mut banned) = (false, BTreeSet::new());
    for line in lines {
        let at = id(line);
        match line["type"].as_str().unwrap_or_default() {
            "wide" => assert!(!std::mem::replace(&mut wide, true), "{line}"),
            "narrow" => assert!(std::mem::replace(&mut wide, false), "{line}"),
            "ban" => drop(banned.insert(text(line, "user_id"))),
            "comment" => {
                let user = user_of(line);
                assert!(!banned.contains(&user), "a banned user speaks: {line}");
                let raw = is_raw(line);
                if line["source_id"].is_null() {
                    assert_eq!(raw, wide, "one road at a time: {line}");
                    assert!(keys.insert((user.clone(), text(line, "client_msg_id"))), "said twice: {line}");
                    said.insert(at, line);
                    if user == "slow" {
                        slow.push(millis(&text(line, "ts")));
                    }
                }
                if raw {
                    continue;
                }
                let as_said = line["source_id"].as_u64().unwrap_or(at);
                let first = said.get(&as_said).unwrap_or_else(|| panic!("nobody said {line}"));
                assert_eq!((user_of(first), &first["body"]), (user.clone(), &line["body"]));
                assert!(won.insert(as_said, line).is_none(), "shown twice: {line}");
                let before = latest.insert(user, as_said);
                assert!(before.is_none_or(|before| before < as_said), "a user's comments changed places: {line}");
            }
            _ => {}
        }
    }
    assert!(slow.windows(2).all(|pair| pair[1] - pair[0] >= Duration::from_secs(1)), "slow mode: {slow:?}");
    for told in told {
        let line = said.get(&told.said).unwrap_or_else(|| panic!("acknowledged and not in the log: {told:?}"));
        assert_eq!((user_of(line), text(line, "client_msg_id"), text(line, "body")), {
            (told.user.clone(), told.key.clone(), told.text.clone())
        });
        assert_eq!(is_raw(line), told.raw, "{told:?}");
    }
    let n_raw = said.values().filter(|line| is_raw(line)).count();
    let n_won = won.values().filter(|line| line["source_log"] == "raw").count();
    assert!(
        n_raw > 0 && n_won > 0 && n_raw < said.len(),
        "both roads were taken: {n_raw} of {}, {n_won} won",
        said.len()
    );
    assert!(said.len() == keys.len() && told.len() < said.len() + 1);
}

/// The time of day of a stamp, which is enough for a distance within one test.
pub fn millis(ts: &str) -> Duration {
    let part = |from: usize, to: usize| ts.get(from..to).and_then(|t| t.parse::<u64>().ok()).expect("a stamp");
    Duration::from_millis(((part(11, 13) * 60 + part(14, 16)) * 60 + part(17, 19)) * 1_000 + part(20, 23))
}
