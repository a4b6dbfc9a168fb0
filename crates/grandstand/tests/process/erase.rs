//! A user who is erased: whatever of it was said, given, reported and done to it, no byte of the data folder names it a minute later.

use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::processes::{kill, shard_pid};
use crate::support::{Answer, LIMIT, Server};
use crate::viewer::{Rung, Viewer};

const NAME: &str = "Quillfeather";

/// What must not be found: what the user said, its name, its id, its keys.
struct Traces {
    user: String,
    needles: Vec<String>,
}

fn call(server: &Server, method: &str, path: &str, token: &str, body: &Value) -> Answer {
    let answer = server.call_until_there(method, path, Some(token), Some(body));
    assert!(answer.status / 100 == 2, "{method} {path}: {} {:?}", answer.status, answer.json);
    answer
}

/// Rooms in which a guest says and is given things among others, and in which things are done to it.
fn evening(server: &Server, admin: &str, nth: u32) -> Traces {
    for (room, change) in [
        ("a", json!({"user_rate": 1000, "user_burst": 1000, "banner_items": ["rocket"]})),
        ("w", json!({"user_rate": 1000, "user_burst": 1000, "sampling": "always"})),
    ] {
        server.put_room(room, admin, change);
    }
    let guest = call(server, "POST", "/v1/guest", admin, &json!({"name": NAME})).json;
    let user = guest["user"]["id"].as_str().expect("an id").to_owned();
    let token = guest["token"].as_str().expect("a token").to_owned();
    let (bob, backend) = (server.token("bob", &["publisher"]), server.token("shop", &["backend"]));
    // 450 clusters of three bytes: more than some pages have left.
    let long = "⚽".repeat(450);
    let mut first = None;
    for n in 0..120 {
        // Long ones reach over pages, short ones share one with others'.
        let text = if n % 10 == 0 { format!("wintergreen-{n} {long}") } else { format!("wintergreen-{n}") };
        let id = server.published("a", &token, &format!("marmalade-{n}"), &text);
        first.get_or_insert(id);
        server.published("a", &bob, &format!("b{n}"), &format!("bob says {n}"));
    }
    let first = first.expect("something was said");
    for n in 0..10 {
        for (token, key, text) in [
            (&token, format!("marmalade-w{n}"), format!("wintergreen-w{n}")),
            (&bob, format!("w{n}"), format!("yes, {n}")),
        ] {
            let body = json!({"client_msg_id": key, "body": text});
            call(server, "POST", "/v1/rooms/w/comments", token, &body);
        }
    }
    let gift = json!({"gift_id": format!("pay-{nth}"), "user": {"id": user, "name": NAME}, "item": "rocket", "count": 1,
        "amount_micros": 5_000_000, "currency": "EUR"});
    call(server, "POST", "/v1/rooms/a/gifts", &backend, &gift);
    call(server, "POST", "/v1/rooms/a/reports", &bob, &json!({"event_id": first, "reason": "spam"}));
    call(server, "POST", "/v1/rooms/a/reports", &token, &json!({"event_id": first + 1, "reason": "rude"}));
    let ban = json!({"user_id": user, "seconds": 600, "justification": "third warning"});
    call(server, "POST", "/admin/rooms/a/bans", admin, &ban);
    call(server, "POST", "/admin/bans", admin, &ban);
    let revoked = json!({"user": user, "justification": "lost its phone"});
    call(server, "POST", "/admin/access/revocations", admin, &revoked);
    let needles = [user.clone(), NAME.into(), "wintergreen".into(), "marmalade".into()];
    Traces { user, needles: needles.into() }
}

/// Every file of the folder, however deep, with its bytes.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder is there") {
        let entry = entry.expect("an entry");
        let (path, is) = (entry.path(), entry.file_type().expect("its type"));
        if is.is_dir() {
            all.extend(files(&path));
        } else if is.is_file() {
            match std::fs::read(&path) {
                Ok(bytes) => all.push((path, bytes)),
                // What is written beside takes its name's place at any moment.
                Err(fault) if fault.kind() == ErrorKind::NotFound => {}
                Err(fault) => panic!("{}: {fault}", path.display()),
            }
        } else {
            assert!(is.is_socket(), "{} is no file whose bytes were looked at", path.display());
        }
    }
    all
}

/// Files of the folder that hold one of the needles; the folder has what the needles are looked for in.
fn found(folder: &Path, needles: &[String]) -> Vec<String> {
    let all = files(folder);
    for name in ["log.db", "catalog.db", "audit.jsonl", "ledger.key", "format", "lock"] {
        assert!(all.iter().any(|(path, _)| *path == folder.join(name)), "{name} is looked through");
    }
    let mut hits = Vec::new();
    for (path, bytes) in all {
        let holds = |needle: &String| {
            let (first, rest) = needle.as_bytes().split_first().expect("a needle is no empty text");
            let mut at = bytes.iter().enumerate().filter(|(_, b)| *b == first).map(|(at, _)| at + 1);
            at.any(|at| bytes[at..].starts_with(rest))
        };
        hits.extend(needles.iter().filter(|n| holds(n)).map(|n| format!("{n} in {}", path.display())));
    }
    hits
}

fn erase(server: &Server, admin: &str, user: &str) -> u64 {
    let body = json!({"justification": "a request of the person"});
    let answer = call(server, "DELETE", &format!("/admin/users/{user}"), admin, &body);
    assert_eq!((answer.status, &answer.json["within_seconds"]), (202, &json!(60)));
    answer.json["event_id"].as_u64().expect("the erase is an event of the log")
}

/// Waits until no erase is under way.
fn done(server: &Server, admin: &str) {
    let end = Instant::now() + 2 * LIMIT;
    loop {
        let answer = server.call_until_there("GET", "/admin/erasures", Some(admin), None);
        if answer.json["pending"] == json!([]) {
            return;
        }
        assert!(Instant::now() < end, "it is not done within a minute: {:?}", answer.json);
        std::thread::yield_now();
    }
}

fn bodies(events: &[Value]) -> Vec<&str> {
    events.iter().filter_map(|e| e["body"].as_str()).collect()
}

#[test]
fn within_a_minute_no_byte_of_the_data_folder_names_who_was_erased() {
    for args in [&[][..], &["--gateways", "2"]] {
        let mut server = Server::start(args, &[]);
        let admin = server.token("ops", &["admin"]);
        let before = server.published("a", &server.token("backend", &["backend"]), "k0", "before");
        let traces = evening(&server, &admin, 0);
        let there = found(&server.data(), &traces.needles);
        assert!(traces.needles.iter().all(|n| there.iter().any(|hit| hit.starts_with(n.as_str()))), "{there:?}");
        let mut viewers: Vec<Viewer> = [Rung::WebSocket, Rung::Sse]
            .into_iter()
            .map(|rung| Viewer::open(&server, rung, "a", Some(&before.to_string()), None).expect("a stream"))
            .collect();
        for viewer in &mut viewers {
            viewer.until(|e| e["type"] == "gift");
        }

        let began = Instant::now();
        let id = erase(&server, &admin, &traces.user);
        for viewer in &mut viewers {
            let told = viewer.until(|e| e["type"] == "retract").pop().expect("a retract");
            assert_eq!(told["user_id"], json!(traces.user), "{told}");
        }
        // At once, however far the writer has come.
        for path in [
            "/v1/rooms/a/snapshot".to_owned(),
            format!("/v1/rooms/a/snapshot?before={id}&limit=200"),
            "/admin/rooms/a/export?include=control".to_owned(),
            "/admin/rooms/w/export?include=control,raw".to_owned(),
            "/admin/rooms/a/bans".to_owned(),
            "/admin/access".to_owned(),
            "/admin/audit?limit=500".to_owned(),
            format!("/admin/rooms/a/history?user={}", "bob"),
        ] {
            let answer = server.http().call("GET", &path, Some(&admin), None).expect("an answer");
            assert_eq!(answer.status, 200, "{path}: {:?}", answer.json);
            let text = String::from_utf8_lossy(&answer.body);
            for needle in &traces.needles {
                assert!(!text.contains(needle.as_str()), "{path} says {needle}");
            }
        }
        done(&server, &admin);
        assert_eq!(found(&server.data(), &traces.needles), Vec::<String>::new());
        assert!(began.elapsed() < Duration::from_secs(60));

        // Whoever was away is given nothing of what it said, and once the rings have let go nothing at all. What others said stays.
        let bob = server.token("bob", &["publisher"]);
        for n in 0.. {
            assert!(began.elapsed() < Duration::from_secs(60), "a ring still names the user");
            let mut late =
                Viewer::open(&server, Rung::WebSocket, "a", Some(&before.to_string()), None).expect("a stream");
            let after = server.published("a", &bob, &format!("after-{n}"), &format!("after {n}"));
            // What it was reading may be let go of by the ring that moment: it comes back.
            let Some(seen) = late.until_id_or_let_go(after) else { continue };
            let text = json!(seen).to_string();
            assert!(!text.contains("wintergreen") && !text.contains("marmalade"), "{text}");
            if !traces.needles.iter().any(|n| text.contains(n.as_str())) {
                break;
            }
        }
        let page = server.http().call("GET", "/v1/rooms/a/snapshot", None, None).expect("an answer");
        let said = page.json["recent_comments"].as_array().expect("comments").clone();
        assert!(bodies(&said).iter().any(|body| body.starts_with("after")), "{said:?}");

        server.stop();
        assert_eq!(found(&server.data(), &traces.needles), Vec::<String>::new(), "nor after it was stopped");
        server.restart();
        let lines = server.export("a", &admin);
        let erased = lines.iter().filter(|line| line["type"] == "erased").count();
        assert!(erased > 120, "{erased} records were erased");
        assert!(
            lines.iter().filter(|line| line["body"].as_str().is_some_and(|b| b.starts_with("bob says"))).count() >= 120
        );
        assert_eq!(found(&server.data(), &traces.needles), Vec::<String>::new(), "nor after a start");
    }
}

/// An evening and an erase, cut short a little later each round by what `cut` does.
fn cut_short(server: &mut Server, rounds: u32, cut: impl Fn(&mut Server)) {
    let admin = server.token("ops", &["admin"]);
    for round in 0..rounds {
        let traces = evening(server, &admin, round);
        erase(server, &admin, &traces.user);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(u64::from(round) * u64::from(round) * 5) {
            std::hint::spin_loop();
        }
        cut(server);
        done(server, &admin);
        assert_eq!(found(&server.data(), &traces.needles), Vec::<String>::new(), "round {round}");
    }
}

#[test]
fn an_erase_that_kill_nine_cuts_short_goes_on_with_the_next_start() {
    let mut server = Server::start(&[], &[]);
    cut_short(&mut server, 8, |server| {
        server.kill();
        server.restart();
    });
}

#[test]
fn an_erase_goes_on_in_the_next_shard_when_gateways_outlive_the_one_that_was_asked() {
    let mut server = Server::start(&["--gateways", "2"], &[]);
    cut_short(&mut server, 4, |server| kill(shard_pid(server)));
}

#[test]
fn an_erase_is_an_admins_and_its_reason_does_not_name_the_user() {
    let server = Server::start(&[], &[]);
    let (admin, ops) = (server.token("ops", &["admin"]), server.token("ops", &["region-ops"]));
    let body = json!({"justification": "a request"});
    let of = |token: &str, body: &Value| {
        let answer = server.http().call("DELETE", "/admin/users/u-17", Some(token), Some(body)).expect("an answer");
        (answer.status, answer.json["code"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(of(&ops, &body), (403, "not_allowed".into()));
    assert_eq!(of(&admin, &json!({})).0, 422);
    assert_eq!(of(&admin, &json!({"justification": "u-17 asked for it"})), (422, "bad_field".into()));
    assert_eq!(of(&admin, &body).0, 202, "one that nobody knows is erased too");
    done(&server, &admin);
}
