//! How the process starts, stops and refuses to share its data.

use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use serde_json::json;

use crate::processes::metric;
use crate::support::{Server, connected, until};
use crate::viewer::{RUNGS, Rung, Viewer, ids, open_at};

#[test]
fn a_second_server_on_the_same_data_is_refused_with_the_reason() {
    let server = Server::start(&[], &[]);
    let mut second = server.command(&[]);
    let second = second.stderr(Stdio::piped()).output().expect("the binary can be started");
    assert!(!second.status.success());
    assert!(second.stdout.is_empty(), "it never said ready");
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(
        said.contains("data") && said.contains(&server.pid().to_string()),
        "names the folder and the holder: {said}"
    );
    let token = server.token("backend", &["backend"]);
    server.published("still", &token, "k", "the first one still serves");
}

#[test]
fn sigterm_tells_every_rung_and_ends_with_zero() {
    let mut server = Server::start(&[], &[]);
    let token = server.token("backend", &["backend"]);
    let id = server.published("drain", &token, "k", "before");
    let mut viewers: Vec<Viewer> = RUNGS
        .iter()
        .map(|r| Viewer::open(&server, *r, "drain", None, None).unwrap_or_else(|a| panic!("{a:?}")))
        .collect();
    for viewer in viewers.iter_mut().take(2) {
        assert_eq!(viewer.next().expect("hello")["type"], "hello");
    }
    server.signal("TERM");
    for (rung, viewer) in RUNGS.iter().zip(&mut viewers).filter(|(r, _)| **r != Rung::Poll) {
        let close = viewer.until(|e| e["type"] == "close").pop().expect("a close");
        assert_eq!(close["code"], 4112, "{rung:?}");
        assert!(close["retry_after_ms"].is_u64() && close["spread_ms"].is_u64(), "{close}");
    }
    let status = server.ended(Duration::from_secs(10));
    assert!(status.success(), "{status}");
    server.restart();
    assert_eq!(server.published("drain", &token, "k", "before"), id, "a retry after the restart is the same event");
}

#[test]
fn f05_a_viewer_that_does_not_read_its_end_holds_no_drain_up_and_resumes_whole() {
    let mut server = Server::start(&[], &[]);
    let token = server.token("backend", &["backend"]);
    let first = server.published("stalled", &token, "first", "first");
    let mut stalled = connected(server.addr).expect("a connection");
    let request = format!("GET /v1/rooms/stalled/sse?last_event_id={first} HTTP/1.1\r\nHost: {}\r\n\r\n", server.addr);
    stalled.write_all(request.as_bytes()).expect("sent");
    until("it is let in", || metric(&server, "grandstand_gateway_streams{transport=\"sse\"}") == 1);
    // More than two sockets' buffers hold: the end finds no place behind it.
    let mut http = server.http();
    let text = "\u{1f3c6}".repeat(500);
    let said: Vec<u64> = (0..400)
        .map(|n| {
            let body = json!({"client_msg_id": format!("k{n}"), "body": text});
            let answer = http.call("POST", "/v1/rooms/stalled/comments", Some(&token), Some(&body)).expect("an answer");
            answer.json["event_id"].as_u64().unwrap_or_else(|| panic!("{:?}", answer.json))
        })
        .collect();
    server.signal("TERM");
    let status = server.ended(Duration::from_secs(10));
    assert!(status.success(), "{status}");
    server.restart();
    let mut back = open_at(&server, Rung::Sse, "stalled", Some(first));
    assert_eq!(ids(&back.until_id(*said.last().expect("some"))), said);
}

#[test]
fn a_second_signal_ends_at_once() {
    let mut server = Server::start(&[], &[]);
    let _held = Viewer::open(&server, Rung::WebSocket, "two", None, None).unwrap_or_else(|a| panic!("{a:?}"));
    server.signal("TERM");
    server.signal("TERM");
    server.ended(Duration::from_secs(3));
}

#[test]
fn unknown_config_keys_refuse_to_start_and_are_named() {
    let mut server = Server::unstarted(&[], &[]);
    let file = server.folder().join("grandstand.toml");
    std::fs::write(&file, "listen = \"127.0.0.1:0\"\nlistn = \"127.0.0.1:1\"\n").expect("written");
    server.set_args(&["--config", file.to_str().expect("a path")]);
    let out = server.command(&[]).stderr(Stdio::piped()).output().expect("the binary can be started");
    assert!(!out.status.success());
    assert!(String::from_utf8_lossy(&out.stderr).contains("listn"), "{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn a_damaged_key_refuses_to_start_and_is_named_once() {
    let server = Server::unstarted(&[], &[]);
    std::fs::create_dir(server.data()).expect("made");
    let key = server.data().join("signing.key");
    std::fs::write(&key, "not a key").expect("written");
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("set");
    let out = server.command(&[]).stderr(Stdio::piped()).output().expect("the binary can be started");
    assert!(!out.status.success());
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(said.matches("signing.key").count(), 1 + usize::from(said.contains("DEVELOPMENT")), "{said}");
    assert_eq!(std::fs::read_to_string(&key).expect("read"), "not a key", "it is left as it was");
}

#[test]
fn state_survives_a_clean_restart() {
    let mut server = Server::start(&[], &[]);
    let (token, admin) = (server.token("backend", &["backend"]), server.token("op", &["admin"]));
    server.put_room("kept", &admin, json!({"title": "Kept room", "slow_mode_seconds": 5}));
    let id = server.published("kept", &token, "k", "kept comment");
    let before = server.http().call("GET", "/v1/rooms/kept/snapshot", None, None).expect("an answer").json;
    server.stop();
    server.restart();
    let after = server.http().call("GET", "/v1/rooms/kept/snapshot", None, None).expect("an answer").json;
    assert_eq!(before["recent_comments"], after["recent_comments"]);
    assert_eq!(before["config"], after["config"]);
    assert_eq!(before["as_of_event_id"], after["as_of_event_id"]);
    assert_eq!(after["recent_comments"][0]["event_id"].as_u64(), Some(id));
    assert_eq!(server.published("kept", &token, "k", "kept comment"), id);
}
