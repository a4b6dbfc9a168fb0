//! `grandstand tail`: what it prints, what it makes harmless, and that a server which is killed leaves no hole in its lines.

use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Http, LIMIT, Server, Wire, signal};

/// A running `tail` and its lines.
struct Tail {
    child: Child,
    lines: Receiver<String>,
}

impl Tail {
    fn start(server: &Server, args: &[&str]) -> Tail {
        Tail::of(command(server, args))
    }

    fn of(mut command: Command) -> Tail {
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
        let stdout = child.stdout.take().expect("stdout is piped");
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
                if send.send(String::from_utf8(line).expect("lines are text")).is_err() {
                    return;
                }
            }
        });
        Tail { child, lines }
    }

    /// Lines up to the first that holds `what`, that one included.
    fn until(&mut self, what: &str) -> Vec<String> {
        let end = Instant::now() + LIMIT;
        let mut seen = Vec::new();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left).unwrap_or_else(|_| panic!("no {what:?} in {seen:#?}"));
            let found = line.contains(what);
            seen.push(line);
            if found {
                return seen;
            }
        }
    }

    /// Events up to the one with this id.
    fn events_until(&mut self, id: u64) -> Vec<Value> {
        let lines = self.until(&format!("\"event_id\":{id},"));
        lines.iter().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(server: &Server, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_grandstand"));
    command.arg("tail").args(args).env("GRANDSTAND_URL", format!("http://{}", server.addr));
    command.env_remove("GRANDSTAND_TOKEN").env_remove("NO_COLOR");
    command
}

fn ids(events: &[Value]) -> Vec<u64> {
    events.iter().filter(|e| e["type"] == "comment").filter_map(|e| e["event_id"].as_u64()).collect()
}

#[test]
fn a_tail_misses_nothing_when_the_server_is_killed_and_comes_back() {
    let mut server = Server::start(&[], &[]);
    let token = server.token("ann", &["backend"]);
    let first = server.published("derby", &token, "k0", "before");
    let since = (first - 1).to_string();
    for transport in ["ws", "sse"] {
        let mut tail = Tail::start(&server, &["derby", "--json", "--since", &since, "--transport", transport]);
        let mut all = tail.events_until(first);
        let mut told = vec![first];
        for round in 0..3 {
            // What is said just before the end may not have been given yet.
            for n in 0..5 {
                told.push(server.published("derby", &token, &format!("{transport}-{round}-{n}"), "said"));
            }
            server.kill();
            server.restart();
            told.push(server.published("derby", &token, &format!("{transport}-{round}-back"), "back"));
            all.extend(tail.events_until(*told.last().expect("some")));
        }
        let mut seen = ids(&all);
        // The second tail begins with all that the first one's room came to.
        seen.retain(|id| told.contains(id));
        assert_eq!(seen, told, "{transport}");
        assert!(all.iter().filter(|e| e["type"] == "hello").count() >= 4, "{transport}: each stream begins with hello");
    }
}

/// A server that means harm: every text it says holds what a terminal obeys.
fn hostile(evil: &str) -> std::net::SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("an address");
    let user = json!({"id": evil, "display": evil, "badges": [evil]});
    let score = json!({"type": "score_event", "event_id": 11, "match_id": evil, "key": "k", "revision": 1, "kind": evil, "state": evil,
        "score": {"home": 1, "away": 0}, "minute": evil});
    let comment = |id: u64| json!({"type": "comment", "event_id": id, "user": user, "body": evil, "ts": "2026-05-17T20:14:33.122Z"});
    let snapshot =
        json!({"room_id": "derby", "as_of_event_id": 10, "scores": [score], "recent_comments": [comment(10)],
        "config": {"title": evil, "state": evil}, "counters": {}})
        .to_string();
    let events = [
        json!({"type": "hello", "cursor": 10, "config": {"title": evil}}),
        json!({"type": "score_event", "event_id": 11, "match_id": "m", "key": evil, "revision": 2, "kind": evil, "state": evil,
            "score": {"home": 2, "away": 0}, "minute": evil}),
        comment(12),
        json!({"type": "retract", "event_id": 13, "target_event_id": 12, "reason": evil}),
        json!({"type": "banner", "banner_id": "1", "body": evil}),
        json!({"type": "error", "code": evil, "message": evil}),
        json!({"type": "close", "code": 4004, "reason": evil}),
    ];
    let stream: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    std::thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            let mut http = Http::over(Wire::Plain(socket));
            let Ok(line) = http.line() else { continue };
            let _ = http.headers();
            let answer = match line.contains("/snapshot") {
                true => format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{snapshot}", snapshot.len()),
                false => format!("HTTP/1.1 200 OK\r\n\r\n{stream}"),
            };
            let _ = http.stream.get_mut().write_all(answer.as_bytes());
        }
    });
    addr
}

#[test]
fn what_somebody_wrote_is_nothing_that_a_terminal_obeys() {
    let evil = "a\u{1b}]0;owned\u{7}\u{9b}2J\u{202e}b\r\u{8}c";
    let addr = hostile(evil);
    for args in [&["--color", "never"][..], &["--json", "--since", "10m"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_grandstand"));
        command
            .args(["tail", "derby", "--transport", "sse"])
            .args(args)
            .env("GRANDSTAND_URL", format!("http://{addr}"));
        let out = command.output().expect("it starts");
        assert_eq!(out.status.code(), Some(1), "a 4004 is an end");
        for said in [&out.stdout, &out.stderr] {
            let text = std::str::from_utf8(said).expect("text");
            let obeyed = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
            assert!(!text.contains(obeyed), "{args:?}: {text:?}");
        }
        let lines = String::from_utf8_lossy(&out.stdout).lines().count();
        assert!(lines >= 6, "{args:?}: {}", String::from_utf8_lossy(&out.stdout));
    }
}

#[test]
fn colours_are_for_those_who_want_them_and_no_color_is_respected() {
    let server = Server::start(&[], &[]);
    let token = server.token("ann", &["backend"]);
    server.published("derby", &token, "k0", "painted");
    for (color, is_painted) in [("always", true), ("never", false), ("auto", false)] {
        let mut tail = Tail::start(&server, &["derby", "--color", color]);
        let line = tail.until("painted").pop().expect("one");
        assert_eq!(line.contains('\u{1b}'), is_painted, "{color}: {line:?}");
    }
}

/// `script` (of every Debian) gives a command a terminal of its own.
fn on_a_terminal(server: &Server, words: &str, no_color: bool) -> Tail {
    let mut command = Command::new("script");
    let tail = format!("stty rows 24 cols 80; exec {} tail {words}", env!("CARGO_BIN_EXE_grandstand"));
    command.args(["-qfec", &tail, "/dev/null"]).env("GRANDSTAND_URL", format!("http://{}", server.addr));
    command.env_remove("NO_COLOR").env_remove("GRANDSTAND_TOKEN");
    if no_color {
        command.env("NO_COLOR", "1");
    }
    Tail::of(command)
}

#[test]
fn on_a_terminal_the_score_stands_on_the_first_line_and_the_terminal_is_given_back() {
    let server = Server::start(&[], &[]);
    let token = server.token("ann", &["backend"]);
    let goal = json!({"match_id": "m1", "event_id": "e1", "provider": "desk", "kind": "goal", "score": {"home": 2, "away": 1}, "minute": "78"});
    let posted =
        server.http().call("POST", "/v1/score-event?room=derby", Some(&token), Some(&goal)).expect("an answer");
    assert_eq!(posted.status, 202, "{:?}", posted.json);
    server.published("derby", &token, "k0", "first words");
    for no_color in [false, true] {
        let mut tail = on_a_terminal(&server, "derby", no_color);
        let mut lines = tail.until("first words");
        // The first line may be drawn after the words.
        if !lines.concat().contains("m1 2–1 78'") {
            server.published("derby", &token, &format!("k1{no_color}"), "more words");
            lines.extend(tail.until("more words"));
        }
        let text = lines.join("\n");
        assert!(text.contains("\u{1b}[2;24r"), "a region below the first row: {text:?}");
        assert!(text.contains("m1 2–1 78'"), "{text:?}");
        let author = lines.iter().find(|line| line.contains("first words")).expect("it is there");
        assert_eq!(author.contains("\u{1b}[2m"), !no_color, "{author:?}");
        // The command itself: `script` goes when it does, and writes what it said last.
        let script = tail.child.id();
        let children = std::fs::read_to_string(format!("/proc/{script}/task/{script}/children")).expect("it runs");
        signal(children.trim().parse().expect("one child"), "TERM");
        let end = Instant::now() + Duration::from_secs(10);
        while tail.child.try_wait().expect("it can be waited for").is_none() {
            assert!(Instant::now() < end, "it ends when it is told to");
            std::thread::yield_now();
        }
        let rest: Vec<String> = tail.lines.iter().collect();
        assert!(rest.join("\n").contains("\u{1b}[r"), "the whole terminal again: {rest:?}");
    }
}

#[test]
fn a_room_that_is_refused_is_an_error_and_a_reader_that_leaves_is_none() {
    let server = Server::start(&[], &[]);
    let out = command(&server, &["Bad Room"]).output().expect("it starts");
    assert_eq!(out.status.code(), Some(2));
    let out = command(&server, &["derby", "--token", "a.b.c"]).output().expect("it starts");
    assert_eq!(out.status.code(), Some(1), "{}", String::from_utf8_lossy(&out.stderr));
    let token = server.token("ann", &["backend"]);
    server.published("derby", &token, "k0", "one");
    let mut tail = Tail::start(&server, &["derby"]);
    tail.until("one");
    signal(tail.child.id(), "INT");
    assert!(tail.child.wait().expect("it ends").success());
}
