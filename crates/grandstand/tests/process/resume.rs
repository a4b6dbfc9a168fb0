//! Every answer a cursor can get, on all three rungs; and five disconnects in a row.

use serde_json::{Value, json};

use crate::support::Server;
use crate::viewer::{RUNGS, Rung, Viewer, ids, open_at};

/// The first event that says where the stream stands: `hello`, or `snapshot_required` after it.
fn greeting(viewer: &mut Viewer) -> Value {
    let hello = viewer.next().expect("hello");
    assert_eq!(hello["type"], "hello", "{hello}");
    hello
}

/// A goal in a room bound to the match by the operator; its event id.
fn goal(server: &Server, token: &str, room: &str, n: u32) -> u64 {
    let body = json!({"match_id": format!("m-{room}"), "event_id": format!("e{n}"), "provider": "desk", "kind": "goal",
        "score": {"home": n, "away": 0}, "minute": "1"});
    let answer = server
        .http()
        .call("POST", &format!("/v1/score-event?room={room}"), Some(token), Some(&body))
        .expect("an answer");
    assert_eq!(answer.status, 202, "{:?}", answer.json);
    answer.json["event_id"].as_u64().expect("an id")
}

#[test]
fn without_a_cursor_the_stream_is_live_from_the_head() {
    let server = Server::start(&[], &[]);
    let token = server.token("backend", &["backend"]);
    let old = server.published("live", &token, "k1", "old");
    let mut before = old;
    for (n, rung) in RUNGS.into_iter().enumerate() {
        for zero in [None, Some(0)] {
            let mut viewer = open_at(&server, rung, "live", zero);
            if rung != Rung::Poll {
                let hello = greeting(&mut viewer);
                assert_eq!(
                    (hello["resumed"].as_bool(), hello["cursor"].as_u64().map(|c| c >= old)),
                    (Some(false), Some(true)),
                    "{rung:?} {hello}"
                );
            }
            let new = server.published("live", &token, &format!("n{n}{zero:?}"), "new");
            // A worker may hear of a commit a moment after its publisher was answered: the one before may be news to it.
            let seen = ids(&viewer.until_id(new));
            assert!(seen == [new] || seen == [before, new], "{rung:?}: {seen:?} after {before}, {new}");
            before = new;
        }
    }
}

#[test]
fn a_cursor_with_nothing_of_the_room_after_it_is_resumed_however_old() {
    let server = Server::start(&[], &[]);
    let token = server.token("backend", &["backend"]);
    let at = server.published("quiet", &token, "k1", "the last of this room");
    for n in 0..50 {
        server.published("noisy", &token, &format!("n{n}"), "another room");
    }
    for (n, rung) in RUNGS.into_iter().enumerate() {
        let mut viewer = open_at(&server, rung, "quiet", Some(at));
        if rung != Rung::Poll {
            let hello = greeting(&mut viewer);
            assert_eq!(
                (&hello["resumed"], hello["cursor"].as_u64(), &hello["comments"]),
                (&json!(true), Some(at), &json!("all")),
                "{rung:?} {hello}"
            );
        }
        let new = server.published("quiet", &token, &format!("q{n}"), "again");
        let seen = ids(&viewer.until_id(new));
        assert_eq!(seen.last(), Some(&new));
        assert!(seen.iter().all(|id| *id > at), "{rung:?}: {seen:?}");
    }
}

#[test]
fn a_cursor_of_the_same_log_but_another_room_is_valid() {
    let server = Server::start(&[], &[]);
    let token = server.token("backend", &["backend"]);
    let elsewhere = server.published("there", &token, "k1", "another room");
    let here = server.published("here", &token, "k2", "this room");
    for rung in RUNGS {
        let mut viewer = open_at(&server, rung, "here", Some(elsewhere));
        assert_eq!(ids(&viewer.until_id(here)), [here], "{rung:?}");
    }
}

#[test]
fn a_gap_is_filled_whole_and_in_order_from_ring_and_log() {
    let mut server = Server::start(&[], &[]);
    let token = server.token("backend", &["backend"]);
    let first = server.published("gap", &token, "k0", "seen");
    let mut missed: Vec<u64> = (1..100).map(|n| server.published("gap", &token, &format!("k{n}"), "missed")).collect();
    missed.push(goal(&server, &token, "gap", 1));
    for from in ["ring", "log"] {
        for rung in RUNGS {
            let mut viewer = open_at(&server, rung, "gap", Some(first));
            let seen = viewer.until_id(*missed.last().expect("some"));
            // Development mode binds the match by a config event of its own, which is in order too.
            let got: Vec<u64> = ids(&seen);
            assert!(got.is_sorted_by(|a, b| a < b), "{from} {rung:?}: {got:?}");
            assert!(missed.iter().all(|m| got.contains(m)), "{from} {rung:?}: {got:?}");
            if rung != Rung::Poll {
                assert_eq!(
                    (&seen[0]["resumed"], &seen[0]["comments"]),
                    (&json!(true), &json!("all")),
                    "{from} {rung:?} {}",
                    seen[0]
                );
            }
        }
        server.stop();
        server.restart();
    }
}

#[test]
fn more_than_five_hundred_comments_are_cut_and_it_is_told() {
    let mut server = Server::start(&[], &[]);
    let token = server.token("backend", &["backend"]);
    let first = server.published("long", &token, "k", "seen");
    let goal_id = goal(&server, &token, "long", 1);
    let missed: Vec<u64> = (0..700).map(|n| server.published("long", &token, &format!("k{n}"), "missed")).collect();
    server.stop();
    server.restart();
    for rung in RUNGS {
        let mut viewer = open_at(&server, rung, "long", Some(first));
        let seen = viewer.until_id(*missed.last().expect("some"));
        let got = ids(&seen);
        assert!(got.contains(&goal_id), "{rung:?}: the goal is never cut");
        let comments: Vec<u64> = got.iter().copied().filter(|id| missed.contains(id)).collect();
        assert_eq!(comments, missed[200..], "{rung:?}: the newest five hundred");
        if rung != Rung::Poll {
            assert_eq!(
                (&seen[0]["resumed"], &seen[0]["comments"]),
                (&json!(true), &json!("some")),
                "{rung:?} {}",
                seen[0]
            );
        }
    }
}

#[test]
fn cursors_beyond_the_head_or_their_epoch_are_unknown() {
    let mut server = Server::start(&[], &[]);
    let token = server.token("backend", &["backend"]);
    let first = server.published("unknown", &token, "k1", "one");
    server.stop();
    server.restart();
    let head = server.published("unknown", &token, "k2", "two");
    assert_ne!(first >> 33, head >> 33, "a restart is a new epoch");
    let beyond_epoch = first + 1_000;
    let beyond_head = head + 1_000;
    for (n, rung) in RUNGS.into_iter().enumerate() {
        for cursor in [beyond_epoch, beyond_head, (1 << 53) - 1] {
            let mut viewer = open_at(&server, rung, "unknown", Some(cursor));
            let seen = viewer.until(|e| e["type"] == "snapshot_required");
            let told = seen.last().expect("told");
            assert_eq!(told["reason"], "unknown_cursor", "{rung:?} {told}");
            let live_from = told["cursor"].as_u64().expect("a cursor");
            let url = told["snapshot_url"].as_str().expect("a url");
            assert!(url.contains(&format!("min={live_from}")), "{url}");
            let snapshot = server.http().call("GET", url, None, None).expect("an answer");
            assert_eq!(snapshot.status, 200, "{url} {:?}", snapshot.json);
            assert!(
                snapshot.json["as_of_event_id"].as_u64().is_some_and(|as_of| as_of >= live_from),
                "{:?}",
                snapshot.json
            );
            let new = server.published("unknown", &token, &format!("n{n}{cursor}"), "live");
            assert_eq!(ids(&viewer.until_id(new)), [new], "{rung:?}: live from the cursor told");
        }
    }
}

#[test]
fn a_cursor_older_than_the_window_with_newer_priority_needs_a_snapshot() {
    let mut server = Server::start(&[], &[]);
    let (token, admin) = (server.token("backend", &["backend"]), server.token("op", &["admin"]));
    server.put_room("old", &admin, json!({"resume_window": 1}));
    let first = server.published("old", &token, "k1", "one");
    goal(&server, &token, "old", 1);
    // The window is on log time: the next second must have come before the resume.
    std::thread::sleep(std::time::Duration::from_millis(2_100));
    server.published("old", &token, "k2", "two");
    server.stop();
    server.restart();
    for rung in RUNGS {
        let mut viewer = open_at(&server, rung, "old", Some(first));
        let seen = viewer.until(|e| e["type"] == "snapshot_required");
        assert_eq!(seen.last().expect("told")["reason"], "too_old", "{rung:?}");
    }
}

#[test]
fn what_is_no_cursor_is_a_bad_request() {
    let server = Server::start(&[], &[]);
    for bad in ["-1", "1e9", "abc", "9007199254740992", "18446744073709551616", "01", "0x10", "1.0"] {
        for rung in RUNGS {
            match Viewer::open(&server, rung, "bad", Some(bad), None) {
                Err(answer) => assert_eq!(answer.status, 400, "{rung:?} {bad} {answer:?}"),
                Ok(mut viewer) => {
                    assert_eq!(rung, Rung::WebSocket, "{bad} was accepted");
                    let close = viewer.until(|e| e["type"] == "close").pop().expect("a close");
                    assert_eq!(close["code"], 4000, "{bad} {close}");
                }
            }
        }
    }
}

#[test]
fn five_disconnects_in_a_row_miss_nothing() {
    let server = Server::start(&[], &[]);
    let token = server.token("backend", &["backend"]);
    for rung in RUNGS {
        let room = format!("five-{rung:?}").to_lowercase();
        let mut cursor = server.published(&room, &token, "start", "start");
        let mut got = Vec::new();
        let mut wanted = Vec::new();
        for round in 0..6 {
            let mut viewer = open_at(&server, rung, &room, Some(cursor));
            for n in 0..20 {
                wanted.push(server.published(&room, &token, &format!("{round}-{n}"), "text"));
            }
            // Half is read before the connection goes, half is not.
            let upto = if round == 5 { *wanted.last().expect("some") } else { wanted[wanted.len() - 10] };
            let seen = ids(&viewer.until_id(upto));
            got.extend(seen.iter().copied().filter(|id| *id <= upto));
            cursor = upto;
        }
        assert_eq!(got, wanted, "{rung:?}");
    }
}
