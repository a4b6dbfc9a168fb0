//! Moderated rooms in the real binary: what each policy lets pass, what an author is told, and what the log keeps.

use std::time::Instant;

use serde_json::{Value, json};

use crate::support::{Answer, Server, until};
use crate::viewer::{RUNGS, Rung, Viewer, open_at};

const ROOM: &str = "stand";

/// A server with a word list, which may be written again.
pub fn listed(block: &str, flag: &str, more: &[&str]) -> Server {
    let mut server = Server::unstarted(&[], &[]);
    let set = |name: &str, text: &str| {
        let path = server.folder().join(name);
        std::fs::write(&path, text).expect("the folder is there");
        format!("moderation.{name}_file={}", path.display())
    };
    let (block, flag) = (set("block", block), set("flag", flag));
    let args: Vec<&str> = ["--set", &block, "--set", &flag].into_iter().chain(more.iter().copied()).collect();
    server.set_args(&args);
    server.restart();
    server
}

fn with_policy(server: &Server, policy: &str) -> (String, String) {
    let operator = server.token("op", &["region-ops"]);
    server.put_room(ROOM, &operator, json!({"moderation_policy": policy}));
    (operator, server.token("ann", &["publisher"]))
}

fn publish(key: &str, body: &str) -> Value {
    json!({"op": "publish", "client_msg_id": key, "body": body})
}

/// What the author of `key` is told of it on a stream.
fn told(viewer: &mut Viewer, key: &str) -> Value {
    viewer.until(|e| e["client_msg_id"] == key && e["type"] != "comment").pop().expect("the last one is wanted")
}

fn code(answer: &Answer) -> (u16, &str) {
    (answer.status, answer.json["code"].as_str().unwrap_or_default())
}

#[test]
fn a_blocked_comment_is_refused_on_each_road_and_shown_to_nobody() {
    for (policy, args) in [("pre-moderate", &[][..]), ("pre-moderate-strict", &["--gateways", "2"])] {
        let server = listed("idiot # no names\n", "", args);
        let (_, ann) = with_policy(&server, policy);
        let start = server.published(ROOM, &ann, "k0", "hello");
        let mut viewers: Vec<Viewer> = RUNGS.iter().map(|rung| open_at(&server, *rung, ROOM, Some(start))).collect();
        let mut author = Viewer::open(&server, Rung::WebSocket, ROOM, None, Some(&ann)).expect("a stream");
        author.say(&publish("k1", "you 1d10t!")).expect("it is open");
        let refused = told(&mut author, "k1");
        assert_eq!(refused["type"], "moderation_failed", "{refused}");
        assert_eq!(code(&server.publish(ROOM, &ann, "k2", "i d i o t")), (422, "moderation_failed"));
        let shown = server.published(ROOM, &ann, "k3", "what a goal");
        for viewer in &mut viewers {
            let seen = viewer.until_id(shown);
            let bodies: Vec<&Value> = seen.iter().filter(|e| e["type"] == "comment").map(|e| &e["body"]).collect();
            assert_eq!(bodies, ["what a goal"], "{seen:?}");
        }
        let snapshot = server.http().call("GET", &format!("/v1/rooms/{ROOM}/snapshot"), None, None).expect("an answer");
        assert!(!snapshot.json.to_string().contains("1d10t"), "{:?}", snapshot.json);
    }
}

#[test]
fn a_word_list_is_read_again_when_it_changes_and_when_the_server_is_told_to() {
    let server = listed("idiot\n", "", &[]);
    let (_, ann) = with_policy(&server, "pre-moderate");
    server.published(ROOM, &ann, "k1", "a moron");
    let mut n = 0;
    let mut is_blocked = |text: &str| {
        n += 1;
        code(&server.publish(ROOM, &server.token(&format!("user-{n}"), &["publisher"]), "k", text)).0 == 422
    };
    std::fs::write(server.folder().join("block"), "moron\n").expect("the folder is there");
    until("the list is read again by itself", || is_blocked("a moron"));
    assert!(!is_blocked("an idiot"), "what left the list is allowed");
    std::fs::write(server.folder().join("block"), "moron\nidiot\n").expect("the folder is there");
    server.signal("HUP");
    until("the list is read again on the signal", || is_blocked("an idiot"));
    // A broken list is refused, and the old one holds on.
    std::fs::write(server.folder().join("block"), "b*d\n").expect("the folder is there");
    server.signal("HUP");
    until("the refusal is told", || server.stderr().contains("were not replaced"));
    assert!(is_blocked("an idiot"));
}

fn held(server: &Server, token: &str) -> Vec<Value> {
    let answer = server.http().call("GET", &format!("/admin/rooms/{ROOM}/held"), Some(token), None).expect("an answer");
    assert_eq!(answer.status, 200, "{:?}", answer.json);
    answer.json["held"].as_array().expect("a list").clone()
}

fn decide(server: &Server, token: &str, id: &Value, decision: &str) -> Answer {
    let body = json!({"decision": decision, "justification": "looked at"});
    let path = format!("/admin/rooms/{ROOM}/held/{id}");
    server.http().call("POST", &path, Some(token), Some(&body)).expect("an answer")
}

#[test]
fn what_is_shown_first_and_blocked_then_leaves_every_screen() {
    for args in [&[][..], &["--gateways", "2"]] {
        let server = listed("idiot\n", "", args);
        let (_, ann) = with_policy(&server, "post-moderate-fast");
        let start = server.published(ROOM, &ann, "k0", "hello");
        let mut viewers: Vec<Viewer> = RUNGS.iter().map(|rung| open_at(&server, *rung, ROOM, Some(start))).collect();
        let mut waits = Vec::new();
        for n in 0..20 {
            let shown = server.published(ROOM, &ann, &format!("k{}", n + 1), "you idiot");
            for viewer in &mut viewers {
                // Whoever is slower than the verdict is given the retract alone.
                let mut delivered = None;
                viewer.until(|e| {
                    if e["event_id"] == shown {
                        delivered = Some(Instant::now());
                    }
                    e["type"] == "retract" && e["target_event_id"] == shown
                });
                waits.extend(delivered.map(|at| at.elapsed()));
            }
        }
        assert!(!waits.is_empty(), "a WebSocket viewer is given it at once");
        waits.sort();
        // For the reader of the test's output: what was waited for one after the other makes these too short, never too long.
        println!("retract after delivery: p50 {:?} p99 {:?}", waits[waits.len() / 2], waits[waits.len() * 99 / 100]);
        let snapshot = server.http().call("GET", &format!("/v1/rooms/{ROOM}/snapshot"), None, None).expect("an answer");
        assert!(!snapshot.json.to_string().contains("idiot"), "{:?}", snapshot.json);
        let fine = server.published(ROOM, &ann, "fine", "what a goal");
        assert_eq!(viewers[0].until_id(fine).iter().filter(|e| e["type"] == "retract").count(), 0);
    }
}

#[test]
fn a_refused_comment_is_one_record_however_often_it_is_sent_and_after_a_kill() {
    let mut server = listed("idiot\n", "*dumb*\n", &[]);
    let (operator, ann) = with_policy(&server, "pre-moderate-strict");
    let backend = server.token("export", &["backend"]);
    for _ in 0..3 {
        assert_eq!(code(&server.publish(ROOM, &ann, "k1", "idiot")), (422, "moderation_failed"));
    }
    // Flagged, in a strict room that holds nothing.
    assert_eq!(code(&server.publish(ROOM, &ann, "k2", "dumber")), (422, "moderation_failed"));
    assert_eq!(code(&server.publish(ROOM, &ann, "k1", "another text")), (409, "idempotency_conflict"));
    server.kill();
    server.restart();
    assert_eq!(code(&server.publish(ROOM, &ann, "k1", "idiot")), (422, "moderation_failed"));
    let shown = server.published(ROOM, &ann, "k3", "nice");
    let lines = server.export(ROOM, &backend);
    let blocked: Vec<&Value> = lines.iter().filter(|l| l["type"] == "blocked").collect();
    let told: Vec<Value> =
        blocked.iter().map(|l| json!([l["client_msg_id"], l["body"], l["verdict"], l["rule"], l["by"]])).collect();
    let wanted = [
        json!(["k1", "idiot", "block", "block: idiot", "ann"]),
        json!(["k2", "dumber", "flag", "flag: *dumb*", "ann"]),
    ];
    assert_eq!(told, wanted);
    let comments: Vec<&Value> = lines.iter().filter(|l| l["type"] == "comment").collect();
    assert_eq!(comments.len(), 1);
    assert_eq!((&comments[0]["event_id"], &comments[0]["verdict"]), (&json!(shown), &json!("allow")));
    // Where it is only flagged, the flag is in the log.
    server.put_room(ROOM, &operator, json!({"moderation_policy": "pre-moderate"}));
    let flagged = server.published(ROOM, &ann, "k4", "dumber");
    let line = server.export(ROOM, &backend).into_iter().find(|l| l["event_id"] == flagged).expect("its line");
    assert_eq!((&line["verdict"], &line["rule"]), (&json!("flag"), &json!("flag: *dumb*")));
}

#[test]
fn a_held_comment_waits_for_a_moderator_across_a_kill_and_is_shown_or_refused() {
    for policy in ["pre-moderate", "pre-moderate-strict"] {
        let mut server = listed("idiot\n", "*dumb*\n", &[]);
        let (operator, ann) = with_policy(&server, policy);
        server.put_room(ROOM, &operator, json!({"hold_flagged": true, "hold_seconds": 600}));
        let moderator = server.token_in("mod", &["room-mod"], &[ROOM]);
        let backend = server.token("export", &["backend"]);
        let mut author = Viewer::open(&server, Rung::WebSocket, ROOM, None, Some(&ann)).expect("a stream");
        for (key, text) in [("k1", "dumber"), ("k2", "dumbest")] {
            author.say(&publish(key, text)).expect("it is open");
            let pending = told(&mut author, key);
            assert_eq!(pending["type"], "moderation_pending", "{pending}");
            assert!(pending.get("retry_after_ms").is_none(), "what becomes of it is told: {pending}");
        }
        let by_http = server.publish(ROOM, &ann, "k1", "dumber");
        assert_eq!((by_http.status, &by_http.json["type"]), (202, &json!("moderation_pending")));
        let queue = held(&server, &moderator);
        assert_eq!(queue.iter().map(|h| &h["body"]).collect::<Vec<_>>(), ["dumber", "dumbest"]);
        assert_eq!((&queue[0]["rule"], &queue[0]["user"]["id"]), (&json!("flag: *dumb*"), &json!("ann")));
        let path = format!("/admin/rooms/{ROOM}/held");
        assert_eq!(server.http().call("GET", &path, Some(&ann), None).expect("an answer").status, 403);
        // Approved and denied while its author listens.
        let approved = decide(&server, &moderator, &queue[0]["held_id"], "approve");
        assert_eq!(approved.status, 200, "{:?}", approved.json);
        let commit = author.until(|e| e["type"] == "publish_commit").pop().expect("it");
        assert_eq!((&commit["client_msg_id"], &commit["event_id"]), (&json!("k1"), &approved.json["event_id"]));
        assert_eq!(decide(&server, &moderator, &queue[1]["held_id"], "deny").status, 200);
        let refused = author.until(|e| e["type"] == "moderation_failed").pop().expect("it");
        assert_eq!(refused["client_msg_id"], "k2");
        assert_eq!(decide(&server, &moderator, &queue[1]["held_id"], "approve").status, 404, "it was decided about");
        assert_eq!(server.published(ROOM, &ann, "k1", "dumber"), commit["event_id"].as_u64().unwrap());
        assert_eq!(code(&server.publish(ROOM, &ann, "k2", "dumbest")), (422, "moderation_failed"));
        // A third one outlives the server.
        assert_eq!(server.publish(ROOM, &ann, "k3", "dumb").status, 202);
        drop(author);
        server.kill();
        server.restart();
        let queue = held(&server, &moderator);
        assert_eq!(queue.len(), 1, "{queue:?}");
        assert_eq!(server.publish(ROOM, &ann, "k3", "dumb").status, 202, "it still waits");
        let approved = decide(&server, &moderator, &queue[0]["held_id"], "approve");
        assert_eq!(server.published(ROOM, &ann, "k3", "dumb"), approved.json["event_id"].as_u64().unwrap());
        let lines = server.export(ROOM, &backend);
        let of = |kind: &str| lines.iter().filter(|l| l["type"] == kind).cloned().collect::<Vec<Value>>();
        assert_eq!((of("held").len(), of("comment").len()), (3, 2));
        let ends: Vec<Value> = of("held_end").iter().map(|l| l["end"].clone()).collect();
        assert_eq!(ends, ["approved", "denied", "approved"]);
        let audits: Vec<Value> =
            of("audit").iter().map(|l| json!([l["what"], l["by"]])).filter(|l| l[1] == "mod").collect();
        assert_eq!(audits.len(), 4, "{audits:?}");
        assert!(of("comment").iter().all(|l| l["source_log"] == "held" && l["verdict"] == "allow"));
        let metrics = server.http().call("GET", "/metrics", None, None).expect("an answer").body;
        let metrics = String::from_utf8(metrics).expect("text");
        assert!(metrics.contains("grandstand_moderation_strict_unallowed_total 0"), "{metrics}");
    }
}

#[test]
fn a_held_comment_that_nobody_decides_about_expires() {
    let server = listed("", "*dumb*\n", &[]);
    let (operator, ann) = with_policy(&server, "pre-moderate");
    // The shortest there is: a minute of log time, which a room's clock cannot be moved past from outside.
    server.put_room(ROOM, &operator, json!({"hold_flagged": true, "hold_seconds": 60}));
    assert_eq!(server.publish(ROOM, &ann, "k1", "dumb").status, 202);
    let queue = held(&server, &operator);
    assert!(queue[0]["until_ts"].as_str() > queue[0]["ts"].as_str(), "{queue:?}");
    let refused = server.http().call(
        "PUT",
        &format!("/admin/rooms/{ROOM}"),
        Some(&operator),
        Some(&json!({"hold_seconds": 59, "justification": "j"})),
    );
    assert_eq!(code(&refused.expect("an answer")), (422, "bad_field"));
}

/// A small HTTP server that judges as it is told to: the operator's classifier.
struct Judge {
    addr: std::net::SocketAddr,
    manner: std::sync::Arc<std::sync::Mutex<Manner>>,
    asked: std::sync::Arc<std::sync::atomic::AtomicU64>,
}

#[derive(Clone, Copy)]
enum Manner {
    /// Blocks what has `bad` in it, flags what has `odd`.
    Well,
    /// The same, after so long.
    Slowly(std::time::Duration),
    Fails,
    /// Answers 200 with something that is no verdict.
    Lies,
    /// Takes the question and never answers.
    Hangs,
}

impl Judge {
    fn start() -> Judge {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let judge = Judge {
            addr: listener.local_addr().expect("an address"),
            manner: std::sync::Arc::new(std::sync::Mutex::new(Manner::Well)),
            asked: Default::default(),
        };
        let (manner, asked) = (judge.manner.clone(), judge.asked.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (manner, asked) = (manner.clone(), asked.clone());
                std::thread::spawn(move || drop(serve_judge(stream, &manner, &asked)));
            }
        });
        judge
    }

    fn be(&self, manner: Manner) {
        *self.manner.lock().expect("nobody panics with it") = manner;
    }

    fn asked(&self) -> u64 {
        self.asked.load(std::sync::atomic::Ordering::SeqCst)
    }

    fn server(&self, more: &[&str]) -> Server {
        let url = format!("moderation.http_url=http://{}/judge?v=1", self.addr);
        let args: Vec<&str> = ["--set", &url].into_iter().chain(more.iter().copied()).collect();
        Server::start(&args, &[])
    }
}

fn serve_judge(
    stream: std::net::TcpStream,
    manner: &std::sync::Mutex<Manner>,
    asked: &std::sync::atomic::AtomicU64,
) -> std::io::Result<()> {
    use std::io::{BufRead, Read, Write};
    let mut reader = std::io::BufReader::new(stream);
    loop {
        let (mut line, mut len) = (String::new(), 0);
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        assert!(line.starts_with("POST /judge?v=1 HTTP/1.1"), "{line}");
        loop {
            line.clear();
            reader.read_line(&mut line)?;
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                len = value.trim().parse().expect("a length");
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; len];
        reader.read_exact(&mut body)?;
        asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let question: Value = serde_json::from_slice(&body).expect("a question is JSON");
        assert_eq!((&question["version"], &question["room_id"]), (&json!(1), &json!(ROOM)));
        let text = question["text"].as_str().expect("a text");
        let verdict = match text {
            text if text.contains("bad") => json!({"verdict": "block", "rule": "tone"}),
            text if text.contains("odd") => json!({"verdict": "flag"}),
            _ => json!({"verdict": "allow"}),
        };
        let now = *manner.lock().expect("nobody panics with it");
        let (status, answer) = match now {
            Manner::Well => (200, verdict),
            Manner::Slowly(wait) => {
                std::thread::sleep(wait);
                (200, verdict)
            }
            Manner::Fails => (500, json!({})),
            Manner::Lies => (200, json!({"verdict": "ALLOW"})),
            Manner::Hangs => {
                reader.read_exact(&mut [0])?;
                return Ok(());
            }
        };
        let answer = answer.to_string();
        let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n", answer.len());
        reader.get_mut().write_all((head + &answer).as_bytes())?;
    }
}

fn metric(server: &Server, line: &str) -> u64 {
    let body = server.http().call("GET", "/metrics", None, None).expect("an answer").body;
    let text = String::from_utf8(body).expect("text");
    let found = text.lines().find_map(|l| l.strip_prefix(line)?.trim().parse::<f64>().ok());
    found.unwrap_or_else(|| panic!("{line} is not a metric")) as u64
}

#[test]
fn an_operator_s_own_classifier_is_asked_and_obeyed() {
    let judge = Judge::start();
    let server = judge.server(&[]);
    let (_, ann) = with_policy(&server, "pre-moderate-strict");
    server.published(ROOM, &ann, "k1", "a fine goal");
    assert_eq!(code(&server.publish(ROOM, &ann, "k2", "a bad goal")), (422, "moderation_failed"));
    assert_eq!(code(&server.publish(ROOM, &ann, "k3", "an odd goal")), (422, "moderation_failed"));
    assert_eq!(judge.asked(), 3);
    // The same text again: what was said of it holds for a minute.
    assert_eq!(code(&server.publish(ROOM, &ann, "k4", "a bad goal")), (422, "moderation_failed"));
    assert_eq!((judge.asked(), metric(&server, "grandstand_moderation_classifier_kept_total")), (3, 1));
    let lines = server.export(ROOM, &server.token("export", &["backend"]));
    let rules: Vec<&Value> = lines.iter().filter(|l| l["type"] == "blocked").map(|l| &l["rule"]).collect();
    assert_eq!(rules, ["classifier: tone", "classifier", "classifier: tone"]);
}

#[test]
fn without_a_classifier_s_word_a_strict_room_shows_nothing_and_says_come_back() {
    let judge = Judge::start();
    let server = judge.server(&["--set", "moderation.http_timeout_ms=300"]);
    let (_, ann) = with_policy(&server, "pre-moderate-strict");
    for (n, manner) in [Manner::Fails, Manner::Lies, Manner::Hangs].into_iter().enumerate() {
        judge.be(manner);
        let answer = server.publish(ROOM, &ann, &format!("k{n}"), &format!("text {n}"));
        assert_eq!((answer.status, &answer.json["type"]), (202, &json!("moderation_pending")), "{:?}", answer.json);
        assert!(answer.json["retry_after_ms"].as_u64().is_some_and(|ms| ms > 0), "{:?}", answer.json);
    }
    // Until the breaker opens, and while it is open, the same.
    judge.be(Manner::Fails);
    for n in 0..40 {
        assert_eq!(
            server.publish(ROOM, &server.token("bob", &["publisher"]), &format!("b{n}"), &format!("more {n}")).status,
            202
        );
    }
    until("the breaker opens", || metric(&server, "grandstand_moderation_breaker_state{state=\"closed\"}") == 0);
    let asked = judge.asked();
    assert_eq!(server.publish(ROOM, &ann, "while-open", "while it is open").status, 202);
    assert!(judge.asked() <= asked + 1, "it is left alone");
    // It comes back: the same key is shown once.
    judge.be(Manner::Well);
    until("it is asked again", || server.publish(ROOM, &ann, "k0", "text 0").status == 200);
    assert_eq!(metric(&server, "grandstand_moderation_strict_unallowed_total"), 0);
}

#[test]
fn without_a_word_in_time_the_default_policy_shows_it_flagged_and_takes_it_back_on_a_later_block() {
    let judge = Judge::start();
    let server = judge.server(&["--set", "moderation.http_timeout_ms=5000"]);
    let (_, ann) = with_policy(&server, "pre-moderate");
    judge.be(Manner::Slowly(std::time::Duration::from_millis(400)));
    let bad = server.published(ROOM, &ann, "k1", "a bad goal");
    let fine = server.published(ROOM, &ann, "k2", "a fine goal");
    let mut viewer = open_at(&server, Rung::WebSocket, ROOM, Some(bad - 1));
    viewer.until(|e| e["type"] == "retract" && e["target_event_id"] == bad);
    let export = server.token("export", &["backend"]);
    let line = |id: u64| server.export(ROOM, &export).into_iter().find(|l| l["event_id"] == id).expect("its line");
    for id in [bad, fine] {
        assert_eq!((&line(id)["verdict"], &line(id)["rule"]), (&json!("flag"), &json!("no verdict in time")));
    }
    let audit = server.export(ROOM, &export).into_iter().find(|l| l["what"] == "moderation: retract").expect("a line");
    assert_eq!(audit["justification"], "classifier: tone");
    until("the other one's word has come", || {
        metric(&server, "grandstand_moderation_classifier_answers_total{result=\"verdict\"}") == 2
    });
    let retracts = server.export(ROOM, &export).into_iter().filter(|l| l["type"] == "retract").count();
    assert_eq!(retracts, 1, "what is allowed later stays");
}
