//! Moderated rooms in the real binary: what each policy lets pass, what an author is told, and what the log keeps.

use serde_json::{Value, json};

use crate::support::{Answer, Server, until};
use crate::viewer::{RUNGS, Rung, Viewer, open_at};

const ROOM: &str = "stand";

/// A server with a word list, which may be written again.
fn listed(block: &str, flag: &str, more: &[&str]) -> Server {
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
