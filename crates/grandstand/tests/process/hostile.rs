//! What an open port has to bear: callers that take every descriptor, that shout without end, that come back all at once, and
//! a moderator's word that must reach everyone, also who was not there. And the table of attacks: each number of the threat
//! model that these listeners can be attacked by, over plain TCP and over TLS, while others watch.

mod list;
mod rows;
mod stage;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use grandstand_core::rng::Rng;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use serde_json::{Value, json};

use self::stage::{Row, Stage};
use crate::processes::{metric, number};
use crate::support::{Http, LIMIT, Server, connected};
use crate::tls::secure;
use crate::viewer::{RUNGS, Rung, Viewer, ids};

/// A viewer by SSE that says nothing more and is not read yet.
fn silent_viewer(server: &Server) -> TcpStream {
    let mut socket = TcpStream::connect(server.addr).expect("the kernel accepts");
    socket.set_read_timeout(Some(LIMIT)).expect("a limit");
    let request = format!("GET /v1/rooms/full/sse HTTP/1.1\r\nHost: {}\r\n\r\n", server.addr);
    socket.write_all(request.as_bytes()).expect("the kernel takes it");
    socket
}

/// The first event that a stream is given.
fn first_event(socket: &mut TcpStream) -> String {
    let mut said = Vec::new();
    let mut byte = [0];
    loop {
        let text = String::from_utf8_lossy(&said);
        if let Some((_, kind)) = text.split_once("event: ")
            && let Some((kind, _)) = kind.split_once('\n')
        {
            return kind.to_owned();
        }
        let n = socket.read(&mut byte).unwrap_or_else(|e| panic!("{e} after {text:?}"));
        assert_eq!(n, 1, "it ended after {text:?}");
        said.extend_from_slice(&byte);
    }
}

#[test]
fn a26_without_descriptors_those_inside_are_served_and_everyone_outside_is_told() {
    let mut server = Server::unstarted(&[], &[]);
    server.restart_under(&["prlimit", "--nofile=100"]);
    let token = server.token("backend", &["backend"]);
    let mut inside = Viewer::open(&server, Rung::WebSocket, "full", None, None).unwrap_or_else(|a| panic!("{a:?}"));
    let mut publisher = server.http();
    let publish = |publisher: &mut Http, key: &str| {
        let body = json!({"client_msg_id": key, "body": key});
        let answer = publisher.call("POST", "/v1/rooms/full/comments", Some(&token), Some(&body)).expect("an answer");
        assert_eq!(answer.status, 200, "{:?}", answer.json);
        answer.json["event_id"].as_u64().expect("an id")
    };
    publish(&mut publisher, "before");
    let mut crowd: Vec<TcpStream> = (0..200).map(|_| silent_viewer(&server)).collect();
    let firsts: Vec<String> = crowd.iter_mut().map(first_event).collect();
    let n_of = |kind: &str| firsts.iter().filter(|first| *first == kind).count();
    let (n_in, n_out) = (n_of("hello"), n_of("close"));
    assert!((10..100).contains(&n_in), "{n_in} of 200 got in");
    assert_eq!(n_in + n_out, 200, "each is greeted or told why not: {firsts:?}");
    let id = publish(&mut publisher, "while nobody gets in");
    inside.until_id(id);
    let page = publisher.call("GET", "/metrics", None, None).expect("an answer");
    let text = String::from_utf8(page.body).expect("text");
    let counted =
        text.lines().find_map(|l| l.strip_prefix("grandstand_gateway_streams_limited_total{limit=\"sockets\"} "));
    assert_eq!(counted.and_then(|n| n.parse().ok()), Some(n_out), "{text}");
    // The crowd leaves: who comes then is let in.
    drop(crowd);
    let start = Instant::now();
    while first_event(&mut silent_viewer(&server)) != "hello" {
        assert!(start.elapsed() < LIMIT, "nobody gets in any more");
    }
    let after = publish(&mut publisher, "after");
    inside.until_id(after);
    server.stop();
}

#[test]
fn a16_five_thousand_that_drip_a_head_are_gone_in_time_and_nobody_else_notices() {
    const CROWD: usize = 5_000;
    // Each is a descriptor here and one there; the server takes what it may by itself.
    let limit = getrlimit(Resource::Nofile);
    let needed = CROWD as u64 + 1_000;
    assert!(limit.maximum.is_none_or(|most| most >= needed), "{needed} descriptors are needed: raise `ulimit -Hn`");
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
        .expect("the soft limit rises");
    let server = Server::start(&[], &[]);
    let token = server.token("backend", &["backend"]);
    let mut calm = Viewer::open(&server, Rung::WebSocket, "drip", None, None).unwrap_or_else(|a| panic!("{a:?}"));
    let mut crowd: Vec<TcpStream> = Vec::with_capacity(CROWD);
    for n in 0..CROWD {
        let mut socket = TcpStream::connect(server.addr).expect("the kernel accepts");
        socket.set_read_timeout(Some(LIMIT)).expect("a limit");
        // Those of before may be over while the last of them come.
        let _ = socket.write_all(&b"GET / HTTP/1.1\r\nHost: a\r\nX: "[..n % 24]);
        crowd.push(socket);
        if n % 1_000 == 999 {
            let id = server.published("drip", &token, &format!("k{n}"), "among a crowd");
            calm.until_id(id);
        }
    }
    for mut socket in crowd {
        let mut said = Vec::new();
        // A head that broke no rule yet is ended without a word.
        let ended = socket.read_to_end(&mut said);
        assert!(said.is_empty(), "one was told {}", said.escape_ascii());
        assert!(!ended.is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock), "one is held on to");
    }
    let page = server.http().call("GET", "/metrics", None, None).expect("an answer");
    let text = String::from_utf8(page.body).expect("text");
    assert!(number(&text, "grandstand_gateway_connections_accepted_total") >= CROWD as u64, "{text}");
    assert!(number(&text, "grandstand_gateway_connections") <= 4, "the viewer and who asks are left: {text}");
    let id = server.published("drip", &token, "after", "after all that");
    calm.until_id(id);
}

#[test]
fn a22_a_flood_of_operations_closes_its_connection_and_no_other() {
    let server = Server::start(&[], &[]);
    let token = server.token("backend", &["backend"]);
    let mut calm = Viewer::open(&server, Rung::WebSocket, "flood", None, None).unwrap_or_else(|a| panic!("{a:?}"));
    let mut loud = Viewer::open(&server, Rung::WebSocket, "flood", None, None).unwrap_or_else(|a| panic!("{a:?}"));
    for _ in 0..2_000 {
        if loud.say(&json!({"op": "ping"})).is_err() {
            break;
        }
    }
    let close = loud.until(|e| e["type"] == "close").pop().expect("a close");
    assert_eq!(close["code"], 4129, "{close}");
    let id = server.published("flood", &token, "k", "calm");
    calm.until_id(id);
}

#[test]
fn a_retract_reaches_who_watches_who_resumes_and_who_comes_later() {
    let mut server = Server::start(&[], &[]);
    let (token, admin) = (server.token("backend", &["backend"]), server.token("op", &["admin", "backend"]));
    let first = server.published("word", &token, "k1", "before");
    let mut watching: Vec<Viewer> = RUNGS
        .iter()
        .map(|r| Viewer::open(&server, *r, "word", Some(&first.to_string()), None).unwrap_or_else(|a| panic!("{a:?}")))
        .collect();
    let gone = server.published("word", &token, "k2", "to be taken back");
    let stays = server.published("word", &token, "k3", "stays");
    for viewer in &mut watching {
        assert_eq!(ids(&viewer.until_id(stays)), [gone, stays]);
    }
    let body = json!({"event_id": gone, "reason": "spam", "justification": "process test"});
    let answer = server.http().call("POST", "/admin/rooms/word/retract", Some(&admin), Some(&body)).expect("an answer");
    assert_eq!(answer.status, 200, "{:?}", answer.json);
    for viewer in &mut watching {
        let told = viewer.until(|e| e["type"] == "retract").pop().expect("a retract");
        assert_eq!(told["target_event_id"].as_u64(), Some(gone), "{told}");
    }
    // From the ring first, then from the log of a new process.
    for from_log in [false, true] {
        if from_log {
            server.stop();
            server.restart();
        }
        for rung in RUNGS {
            let mut late =
                Viewer::open(&server, rung, "word", Some(&first.to_string()), None).unwrap_or_else(|a| panic!("{a:?}"));
            let seen = late.until(|e| e["type"] == "retract");
            assert!(!ids(&seen).contains(&gone), "{rung:?} of the log {from_log}: {seen:?}");
            assert!(ids(&seen).contains(&stays), "{rung:?} of the log {from_log}: {seen:?}");
        }
        let snapshot = server.http().call("GET", "/v1/rooms/word/snapshot", None, None).expect("an answer").json;
        let shown: Vec<u64> =
            snapshot["recent_comments"].as_array().expect("comments").iter().filter_map(id_of).collect();
        assert_eq!(shown, [first, stays]);
    }
}

fn id_of(event: &Value) -> Option<u64> {
    event["event_id"].as_u64()
}

#[test]
fn a_restart_under_a_crowd_gives_every_one_of_them_what_it_missed() {
    const CROWD: usize = 400;
    let mut server = Server::start(&[], &[]);
    let token = server.token("backend", &["backend"]);
    let first = server.published("herd", &token, "k0", "first");
    let mut published = vec![first];
    for n in 1..20 {
        published.push(server.published("herd", &token, &format!("k{n}"), "missed"));
    }
    server.kill();
    server.restart();
    let last = *published.last().expect("some");
    let cursor = first.to_string();
    let start = Instant::now();
    let mut crowd: Vec<Http> = (0..CROWD)
        .map(|_| {
            let mut http = server.http();
            http.send("GET", "/v1/rooms/herd/sse", &[("Last-Event-ID", &cursor)], &[]).expect("sent");
            http
        })
        .collect();
    for http in &mut crowd {
        assert_eq!(http.head().expect("a head").0, 200);
        let mut got = Vec::new();
        while got.last() != Some(&last) {
            let line = http.line().expect("the stream goes on");
            if let Some(id) = line.strip_prefix("id: ").and_then(|id| id.parse::<u64>().ok())
                && id > first
            {
                got.push(id);
            }
        }
        assert_eq!(got, published[1..], "all that was missed, once, in order");
    }
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

/// What the table leaves behind, at most: rings and buffers of the rooms it touched.
const MEMORY_DRIFT_KB_MAX: u64 = 32 * 1024;
/// Enough for all the slow attacks at once, with some to spare for the quick ones.
const ATTACKERS: usize = 40;

/// Plays every row, many at a time, while viewers watch the room that is attacked.
fn play_table(server: &Server, tls: bool) {
    let stage = Stage { server };
    let token = server.token("witness", &["backend"]);
    let mut publisher = server.http();
    let mut tick = |n: u64| {
        let body = json!({"client_msg_id": format!("tick-{n}"), "body": format!("tick {n}")});
        let path = format!("/v1/rooms/{}/comments", rows::ROOM);
        let answer = publisher.call("POST", &path, Some(&token), Some(&body)).expect("an answer");
        assert_eq!(answer.status, 200, "{:?}", answer.json);
        answer.json["event_id"].as_u64().expect("an id")
    };
    let mut ticks = vec![tick(0)];
    let watching: Vec<Viewer> = RUNGS
        .iter()
        .map(|r| {
            Viewer::open(server, *r, rows::ROOM, Some(&ticks[0].to_string()), None).unwrap_or_else(|a| panic!("{a:?}"))
        })
        .collect();
    let (descriptors, memory) = (descriptors(server), memory_kb(server));
    let mut rows: Vec<Row> = rows::rows().into_iter().filter(|row| !(tls && row.plain_only)).collect();
    // The slow ones first, so that all of them wait at the same time.
    rows.sort_by_key(|row| row.a != 16);
    let n_rows = rows.len();
    let (queue, failed, last) = (Mutex::new(rows.into_iter()), Mutex::new(Vec::new()), AtomicU64::new(u64::MAX));
    let seen: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let watching: Vec<_> = watching
            .into_iter()
            .map(|mut viewer| {
                let last = &last;
                scope.spawn(move || {
                    let done = |e: &Value| e["event_id"].as_u64().is_some_and(|id| id >= last.load(Ordering::Acquire));
                    ids(&viewer.until(done))
                })
            })
            .collect();
        let attackers: Vec<_> = (0..ATTACKERS)
            .map(|_| {
                scope.spawn(|| {
                    loop {
                        let Some(row) = queue.lock().expect("nobody panics with it").next() else { return };
                        if let Err(what) = stage.play(&row) {
                            let row = format!("A-{:02} {}: {what}", row.a, row.title);
                            failed.lock().expect("nobody panics with it").push(row);
                        }
                    }
                })
            })
            .collect();
        while attackers.iter().any(|a| !a.is_finished()) {
            ticks.push(tick(ticks.len() as u64));
            std::thread::sleep(Duration::from_millis(40));
        }
        let end = tick(ticks.len() as u64);
        ticks.push(end);
        last.store(end, Ordering::Release);
        // Whoever read the last one before that was known is woken by one more.
        tick(ticks.len() as u64);
        attackers.into_iter().for_each(|a| a.join().expect("an attack is judged, it does not panic"));
        watching.into_iter().map(|w| w.join().expect("a viewer watches to the end")).collect()
    });
    let failed = failed.into_inner().expect("nobody panicked with it");
    assert!(failed.is_empty(), "{} of {n_rows} rows:\n{}", failed.len(), failed.join("\n"));
    for (rung, seen) in RUNGS.iter().zip(seen) {
        let seen: Vec<u64> = seen.into_iter().filter(|id| ticks.contains(id)).collect();
        assert_eq!(seen, ticks[1..], "{rung:?}");
    }
    assert_eq!(metric(server, "grandstand_gateway_assertions_failed_total"), 0, "A-88");
    let log = server.stderr();
    assert!(!log.contains("panicked"), "A-88: {log}");
    assert!(!log.contains("secret-in-a-url") && !log.contains(&token), "A-90: {log}");
    // The viewers' connections are closed by now; everything else of the table is gone as well.
    let start = Instant::now();
    while self::descriptors(server) > descriptors {
        assert!(start.elapsed() < LIMIT, "{} descriptors, {descriptors} before", self::descriptors(server));
        std::thread::yield_now();
    }
    let after = memory_kb(server);
    assert!(after < memory + MEMORY_DRIFT_KB_MAX, "{memory} KB before, {after} KB after");
}

fn descriptors(server: &Server) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("the process is there").count()
}

fn memory_kb(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("the process is there");
    let line = status.lines().find_map(|l| l.strip_prefix("RssAnon:")).expect("it has memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn every_attack_of_the_table_ends_as_it_must_and_reaches_nobody_else() {
    let mut server = Server::start(&[], &[]);
    play_table(&server, false);
    server.stop();
}

#[test]
fn every_attack_of_the_table_ends_the_same_over_tls() {
    let mut server = secure(&[]);
    play_table(&server, true);
    server.stop();
}

/// Bytes changed in a few places: flipped, cut, put in twice.
fn bent(bytes: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bent = bytes.to_vec();
    for _ in 0..=rng.below(3) {
        let at = rng.below(bent.len() as u64) as usize;
        match rng.below(5) {
            0 => bent[at] ^= 1 << rng.below(8),
            1 => bent[at] = rng.next() as u8,
            2 => bent.truncate(at.max(1)),
            3 => drop(bent.splice(at..at, [rng.next() as u8; 7])),
            _ => bent.extend_from_within(at..),
        }
    }
    bent
}

#[test]
fn bent_handshakes_and_records_end_their_own_connection_and_no_other() {
    let mut server = secure(&[]);
    let token = server.token("backend", &["backend"]);
    let mut calm = Viewer::open(&server, Rung::WebSocket, "calm", None, None).unwrap_or_else(|a| panic!("{a:?}"));
    let trust = server.trust.clone().expect("it speaks TLS");
    let mut rng = Rng::new(91);
    for n in 0..400 {
        let name = ServerName::try_from("localhost").expect("a name");
        let mut session = ClientConnection::new(trust.clone(), name).expect("a session");
        let mut hello = Vec::new();
        session.write_tls(&mut hello).expect("a hello");
        let mut socket = connected(server.addr).expect("the server accepts");
        if n % 2 == 0 {
            // What does not read it to its end resets what is still written.
            let _ = socket.write_all(&bent(&hello, &mut rng));
        } else {
            // A good handshake, and then records that nobody sealed, whole ones and beginnings.
            socket.write_all(&hello).expect("it is taken");
            while session.is_handshaking() {
                session.complete_io(&mut socket).expect("a good handshake");
            }
            let kind = [20, 21, 22, 23, 24, rng.next() as u8][rng.below(6) as usize];
            let len = rng.below(600) as u16;
            let mut record = vec![kind, 3, 3];
            record.extend(len.to_be_bytes());
            record.extend((0..len).map(|_| rng.next() as u8));
            let _ = socket.write_all(&bent(&record, &mut rng));
        }
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let mut said = Vec::new();
        if let Err(fault) = socket.read_to_end(&mut said) {
            assert_eq!(fault.kind(), std::io::ErrorKind::ConnectionReset, "connection {n} does not end");
        }
    }
    let id = server.published("calm", &token, "k", "still here");
    calm.until_id(id);
    assert_eq!(metric(&server, "grandstand_gateway_assertions_failed_total"), 0);
    assert!(!server.stderr().contains("panicked"), "{}", server.stderr());
    server.stop();
}
