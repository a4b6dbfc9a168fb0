//! Several gateway processes under load: what crosses the link, a restart of one, the shard killed, one that hangs.

use std::collections::{BTreeSet, HashMap};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::fan::{Fans, Track, with_fans};
use crate::processes::{child, kill, metric, number, shard_pid};
use crate::support::{Http, LIMIT, Server, signal, until};
use crate::viewer::{RUNGS, Rung, Viewer};

/// How often the shard is killed in a row.
fn kills() -> usize {
    let is_long = std::env::var_os("GRANDSTAND_LONG").is_some();
    let told = std::env::var("LONG_KILLS").ok().map(|n| n.parse().expect("LONG_KILLS is a number"));
    if is_long { told.unwrap_or(100) } else { 2 }
}

/// Which process holds the server's end of each connection, by the client's port.
fn holders(server: &Server, pids: &[u32]) -> HashMap<u16, u32> {
    let port_of = |address: &str| u16::from_str_radix(address.rsplit(':').next()?, 16).ok();
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the kernel's table");
    // local, remote, …, inode
    let ports: HashMap<String, u16> = table
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|words| port_of(words[1]) == Some(server.addr.port()))
        .filter_map(|words| Some((format!("socket:[{}]", words[9]), port_of(words[2])?)))
        .collect();
    let mut holders = HashMap::new();
    for pid in pids {
        for entry in std::fs::read_dir(format!("/proc/{pid}/fd")).expect("the process runs").flatten() {
            let name = std::fs::read_link(entry.path()).unwrap_or_default();
            if let Some(port) = ports.get(&*name.to_string_lossy()) {
                holders.insert(*port, *pid);
            }
        }
    }
    holders
}

fn gateways(server: &Server, n: usize) -> Vec<u32> {
    (0..n).map(|g| child(server, &format!("gateway:{g}/{n}"))).collect()
}

fn p(sorted: &[Duration], share: usize) -> Duration {
    sorted[(sorted.len() * share).div_ceil(100).max(1) - 1]
}

#[test]
fn a_thousand_rooms_over_four_processes_cross_once_to_each_that_watches() {
    const ROOMS: usize = 1_000;
    let server = Server::start(&["--gateways", "4"], &[]);
    let pids = gateways(&server, 4);
    let token = server.token("backend", &["backend"]);
    // One or two a room, wherever the kernel puts them.
    let mut viewers: Vec<(usize, Viewer)> = (0..ROOMS)
        .flat_map(|room| (0..1 + room % 2).map(move |_| room))
        .map(|room| (room, Viewer::open(&server, Rung::WebSocket, &format!("r{room}"), None, None).expect("a stream")))
        .collect();
    for (_, viewer) in &mut viewers {
        viewer.until(|e| e["type"] == "hello");
    }
    let holders = holders(&server, &pids);
    let watching: BTreeSet<(usize, u32)> =
        viewers.iter().map(|(room, viewer)| (*room, holders[&viewer.port()])).collect();
    assert_eq!(watching.iter().map(|(_, pid)| pid).collect::<BTreeSet<_>>().len(), 4, "every process has a part");
    let mut http = server.http();
    let published: Vec<u64> = (0..ROOMS)
        .map(|room| {
            let body = json!({"client_msg_id": "k", "body": "one"});
            let path = format!("/v1/rooms/r{room}/comments");
            let answer = http.call("POST", &path, Some(&token), Some(&body)).expect("an answer");
            assert_eq!(answer.status, 200, "{:?}", answer.json);
            answer.json["event_id"].as_u64().expect("an id")
        })
        .collect();
    for (room, viewer) in &mut viewers {
        viewer.until_id(published[*room]);
    }
    assert_eq!(metric(&server, "grandstand_link_batches_total"), watching.len() as u64);
    assert_eq!(metric(&server, "grandstand_link_useless_batches_total"), 0);
}

#[test]
fn one_of_four_is_emptied_and_restarted_under_load_and_nobody_misses_anything() {
    let server = Server::start(&["--gateways", "4"], &[]);
    let pids = gateways(&server, 4);
    let token = server.token("ops", &["region-ops"]);
    let rungs: Vec<Rung> = (0..36).map(|n| RUNGS[n % 3]).collect();
    let ask = |method: &str, path: &str, body: Option<&Value>| -> Value {
        // The kernel may give the connection to the one that is about to end.
        let answer = server.try_http().and_then(|mut http| http.call(method, path, Some(&token), body));
        answer.map(|a| a.json).unwrap_or_default()
    };
    with_fans(
        &server,
        "r",
        &rungs,
        |_| true,
        |fans| {
            let start = Instant::now();
            let drained = loop {
                let order = json!({"seconds": 1, "justification": "a new version"});
                let answer = ask("POST", "/admin/gateways/g1/drain", Some(&order));
                if answer["state"] == "draining" {
                    break start;
                }
                assert!(start.elapsed() < LIMIT, "{answer}");
            };
            fans.wait("g1 is empty", |_| {
                let listed = ask("GET", "/admin/gateways", None);
                listed["gateways"][1]["load"]["streams"] == 0 && listed["gateways"][1]["state"] == "draining"
            });
            signal(pids[1], "TERM");
            fans.wait("g1 is back", |_| {
                let g1 = &ask("GET", "/admin/gateways", None)["gateways"][1];
                g1["pid"].as_u64().is_some_and(|pid| pid != u64::from(pids[1])) && g1["state"] == "open"
            });
            let live = fans.all_live(Instant::now());
            println!("everyone is live {:?} after the drain's begin", live - drained);
            let moved: Vec<&Track> = fans.tracks.iter().filter(|t| !t.cut.is_empty()).collect();
            assert!((1..rungs.len()).contains(&moved.len()), "{} of {} moved", moved.len(), rungs.len());
            for why in moved.iter().flat_map(|track| &track.cut).map(|(_, why)| why) {
                assert_eq!(why["code"], 4112, "{why}");
                let told = |name: &str| why[name].as_u64().unwrap_or_else(|| panic!("no {name}: {why}"));
                assert!(told("retry_after_ms") + told("spread_ms") < 10_000, "nobody is sent away for longer: {why}");
            }
            nobody_is_paused(fans);
        },
    );
}

fn nobody_is_paused(fans: &Fans) {
    for (n, track) in fans.tracks.iter().enumerate() {
        assert!(track.events.iter().all(|(_, e)| e["type"] != "feed_paused"), "viewer {n} was told of a pause");
    }
}

#[test]
fn a_pause_is_told_on_every_rung_refuses_with_delays_and_ends_with_nothing_missing() {
    let server = Server::start(&["--gateways", "2"], &[]);
    let token = server.token("backend", &["backend"]);
    let rungs: Vec<Rung> = (0..18).map(|n| RUNGS[n % 3]).collect();
    let mut speaker = Viewer::open(&server, Rung::WebSocket, "r", None, Some(&token)).expect("a stream");
    speaker.until(|e| e["type"] == "hello");
    with_fans(
        &server,
        "r",
        &rungs,
        |_| true,
        |fans| {
            // Nobody starts the shard again until everything about the pause was seen.
            signal(server.pid(), "STOP");
            let killed = Instant::now();
            kill(shard_pid(&server));
            fans.all_paused(killed);
            speaker.until(|e| e["type"] == "feed_paused");
            speaker
                .say(&json!({"op": "publish", "room_id": "r", "client_msg_id": "ws", "body": "by socket"}))
                .expect("sent");
            let refused = speaker.until(|e| e["type"] == "error").pop().expect("it is refused");
            assert_eq!((&refused["code"], &refused["client_msg_id"]), (&json!("not_ready"), &json!("ws")), "{refused}");
            assert!(refused["retry_after_ms"].as_u64().is_some_and(|ms| ms >= 1_000), "{refused}");
            fans.wait("the publisher is refused", |fans| {
                fans.refused.iter().any(|(_, _, json)| json["code"] == "not_ready")
            });
            for (_, status, json) in &fans.refused {
                assert_eq!(*status, 503, "{json}");
                assert!(json["retry_after_ms"].is_u64() && json["spread_ms"].is_u64(), "{json}");
            }
            // Whoever comes meanwhile is told when to come again.
            for rung in [Rung::WebSocket, Rung::Sse] {
                let mut new = Viewer::open(&server, rung, "r", None, None).expect("it is opened, then closed");
                let close = new.until(|e| e["type"] == "close").pop().expect("it is closed");
                assert_eq!(close["code"], 4153, "{close}");
                assert!(close["retry_after_ms"].is_u64() && close["spread_ms"].is_u64(), "{close}");
            }
            signal(server.pid(), "CONT");
            fans.all_live(killed);
            speaker
                .say(&json!({"op": "publish", "room_id": "r", "client_msg_id": "ws", "body": "by socket"}))
                .expect("sent");
            speaker.until(|e| e["type"] == "publish_ack");
            for (n, track) in fans.tracks.iter().enumerate() {
                assert!(
                    rungs[n] == Rung::Poll || track.cut.is_empty(),
                    "{:?} lost its socket: {:?}",
                    rungs[n],
                    track.cut
                );
            }
        },
    );
}

/// The long form kills a hundred times, with so much life between two kills that the supervisor does not take it for a shard
/// that cannot live, and holds the times against the promise.
#[test]
fn a_shard_killed_again_and_again_is_back_and_no_viewer_misses_an_event() {
    let n = kills();
    let is_long = n > 2;
    let server = Server::start(&["--gateways", "4"], &[]);
    let rungs: Vec<Rung> = (0..48).map(|n| RUNGS[n % 3]).collect();
    with_fans(
        &server,
        "r",
        &rungs,
        |_| true,
        |fans| {
            let (mut paused, mut live) = (Vec::new(), Vec::new());
            for round in 0..n {
                if is_long {
                    // Each kill at another moment of the second.
                    let lives = Duration::from_millis(10_500 + round as u64 * 137 % 1_000);
                    fans.run_until(Instant::now() + lives);
                }
                let killed = Instant::now();
                kill(shard_pid(&server));
                paused.extend(fans.all_paused(killed).into_iter().map(|at| at - killed));
                live.push(fans.all_live(Instant::now()) - killed);
            }
            paused.sort();
            live.sort();
            let row = |what: &str, times: &[Duration]| {
                let [p50, p99, max] = [50, 99, 100].map(|share| p(times, share).as_millis());
                println!("{what}: p50 {p50} ms, p99 {p99} ms, max {max} ms of {}", times.len());
            };
            println!("{n} kills of the shard's process, {} viewers on 4 gateway processes", rungs.len());
            row("kill to feed_paused, each viewer", &paused);
            row("kill to all live again, each kill", &live);
            if is_long {
                assert!(p(&paused, 99) <= Duration::from_secs(1), "feed_paused comes too late");
                assert!(p(&live, 99) <= Duration::from_secs(5), "viewers are live too late");
            }
        },
    );
}

#[test]
fn a_gateway_process_that_hangs_holds_nobody_up_and_catches_up_when_it_goes_on() {
    let server = Server::start(&["--gateways", "4"], &[]);
    let pids = gateways(&server, 4);
    let rungs: Vec<Rung> = (0..36).map(|n| RUNGS[n % 3]).collect();
    // The publisher and all that asks is at another one.
    let is_elsewhere = |http: &Http| holder(&server, &pids, http.port()) != pids[1];
    let asks = || {
        let mut http = server.http();
        while !is_elsewhere(&http) {
            http = server.http();
        }
        http
    };
    with_fans(&server, "r", &rungs, is_elsewhere, |fans| {
        let ports = holders(&server, &pids);
        let mut http = asks();
        let mut linked = || {
            let answer = http.call("GET", "/metrics", None, None).expect("an answer");
            let text = String::from_utf8(answer.body).expect("text");
            number(&text, "grandstand_link_processes")
        };
        assert!(ports.values().any(|pid| *pid == pids[1]), "it holds somebody");
        signal(pids[1], "STOP");
        let stopped = Instant::now();
        fans.wait("its link is given up", |_| linked() == 3);
        // The others went on all the time.
        let n_moved = fans.tracks.iter().filter(|t| t.first(stopped, |e| e["event_id"].is_u64()).is_some()).count();
        assert!((1..rungs.len()).contains(&n_moved), "{n_moved} of {}", rungs.len());
        let acked = fans.acks.iter().filter(|ack| ack.sent > stopped).count();
        assert!(acked > 20, "{acked} publishes in five seconds: the shard is held up");
        signal(pids[1], "CONT");
        fans.wait("it is linked again", |_| linked() == 4);
        let kept = |(n, track): (usize, &Track)| rungs[n] == Rung::Poll || track.cut.is_empty();
        assert!(fans.tracks.iter().enumerate().all(kept), "a socket was lost");
    });
}

/// Bytes that have come to the server's end of a connection and were not read yet.
fn unread(server: &Server, port: u16) -> u64 {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the kernel's table");
    let ends = |words: &[&str]| {
        words[1].ends_with(&format!(":{:04X}", server.addr.port())) && words[2].ends_with(&format!(":{port:04X}"))
    };
    let mut lines = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let line = lines.find(|words| ends(words)).expect("the connection is there");
    u64::from_str_radix(line[4].rsplit(':').next().expect("two queues"), 16).expect("a number")
}

#[test]
fn a_page_can_read_that_the_shard_died_before_it_answered() {
    let server = Server::start(&["--gateways", "2"], &[]);
    let mut http = server.http();
    let origin = format!("http://{}", server.addr);
    http.send("GET", "/v1/rooms", &[("Origin", &origin)], &[]).expect("sent");
    http.answer().expect("it lives");
    signal(server.pid(), "STOP");
    let shard = shard_pid(&server);
    signal(shard, "STOP");
    let start = Instant::now();
    // Each thread stops by itself, and one that still runs would answer.
    let runs = |thread: std::fs::DirEntry| {
        std::fs::read_to_string(thread.path().join("stat")).is_ok_and(|stat| !stat.contains(") T "))
    };
    while std::fs::read_dir(format!("/proc/{shard}/task")).expect("it is there").flatten().any(runs) {
        assert!(start.elapsed() < LIMIT, "the shard does not stop");
        std::thread::yield_now();
    }
    http.send("GET", "/v1/rooms", &[("Origin", &origin)], &[]).expect("sent");
    let start = Instant::now();
    while unread(&server, http.port()) > 0 {
        assert!(start.elapsed() < LIMIT, "the gateway reads nothing");
        std::thread::yield_now();
    }
    kill(shard);
    let (status, head) = http.head().expect("an answer");
    assert_eq!((status, head.get("access-control-allow-origin")), (503, Some(&origin)), "{head:?}");
    assert!(head.contains_key("retry-after") && head["vary"] == "Origin", "{head:?}");
    signal(server.pid(), "CONT");
}

fn holder(server: &Server, pids: &[u32], port: u16) -> u32 {
    let start = Instant::now();
    loop {
        // Accepted a moment after it is connected.
        if let Some(pid) = holders(server, pids).get(&port) {
            return *pid;
        }
        assert!(start.elapsed() < LIMIT, "nobody has accepted the connection");
        std::thread::yield_now();
    }
}

#[test]
fn f02_a_load_run_outlives_the_death_of_every_gateway_process_and_its_viewers_miss_nothing() {
    let server = Server::start(&["--gateways", "2"], &[]);
    let mut run = Command::new(env!("CARGO_BIN_EXE_grandstand"));
    run.args(["load", "--url", &format!("http://{}", server.addr), "--data"]).arg(server.data());
    run.args([
        "--viewers",
        "60",
        "--transport",
        "mix",
        "--rate",
        "20",
        "--score-rate",
        "2",
        "--seconds",
        "8",
        "--json",
    ]);
    let run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary can be started");
    // Whoever meets the port in the moment in which its process is killed tries again.
    let at_least = |name: &str, n: u64| {
        let page = server.try_http().and_then(|mut http| http.call("GET", "/metrics", None, None));
        page.is_ok_and(|page| page.status == 200 && number(&String::from_utf8_lossy(&page.body), name) >= n)
    };
    until("everybody is there", || at_least("grandstand_gateway_streams_admitted_total", 60));
    for gateway in 0..2 {
        kill(gateways(&server, 2)[gateway]);
        until("another is there", || at_least("grandstand_link_joined_total", 3 + gateway as u64));
    }
    let out = run.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{said}\n{}", String::from_utf8_lossy(&out.stderr));
    let report: Value = serde_json::from_str(&said).expect("one JSON object");
    assert!(report["reconnects"].as_u64().is_some_and(|n| n >= 40), "every rung came back: {report}");
}
