//! The score desk against the real binary: a stand-by and a switch-over, silence, what operators type, and a storm of corrections.

use std::collections::BTreeMap;

use grandstand_core::rng::Rng;
use serde_json::{Value, json};

use crate::admin::{admin, said};
use crate::banners::call;
use crate::processes::metric;
use crate::support::{Server, until};
use crate::viewer::{RUNGS, Rung, Viewer, open_at};

const MATCH: &str = "final:2026";

fn ok(server: &Server, method: &str, path: &str, token: &str, body: &Value) -> Value {
    let answer = call(server, method, path, token, body);
    assert!(answer.status == 200 || answer.status == 202, "{method} {path}: {:?}", answer.json);
    answer.json
}

fn providers() -> String {
    format!("/admin/matches/{MATCH}/providers")
}

fn desk() -> String {
    format!("/admin/matches/{MATCH}/scores")
}

fn score(provider: &str, event: &str, home: u32, away: u32) -> Value {
    json!({"match_id": MATCH, "provider": provider, "event_id": event, "kind": "goal", "score": {"home": home, "away": away}})
}

/// A server with a room that shows the match, and tokens of an operator and of whoever posts scores.
fn stage(args: &[&str]) -> (Server, String, String) {
    let server = Server::start(args, &[]);
    let (ops, feed) = (server.token("olive", &["region-ops"]), server.token("feeds", &["backend"]));
    server.put_room("derby", &ops, json!({"matches": [MATCH]}));
    (server, ops, feed)
}

/// Asks what a change would do, and does it. The preview and the answer.
fn change(server: &Server, method: &str, path: &str, ops: &str, wanted: &Value) -> (Value, Value) {
    let preview = ok(server, method, path, ops, wanted);
    assert_eq!(preview["done"], false, "{preview}");
    let mut confirmed = wanted.clone();
    confirmed["confirm"] = preview["confirm"].clone();
    confirmed["justification"] = json!("a process test");
    (preview, ok(server, method, path, ops, &confirmed))
}

/// What a viewer makes of its events: of each key the highest revision.
#[derive(Default)]
struct Board {
    by_key: BTreeMap<String, Value>,
    /// Keys in the order they came.
    order: Vec<String>,
}

impl Board {
    fn take(&mut self, events: &[Value]) {
        for event in events.iter().filter(|e| e["type"] == "score_event") {
            let key = event["key"].as_str().expect("a key").to_owned();
            if !self.order.contains(&key) {
                self.order.push(key.clone());
            }
            let known = self.by_key.get(&key).and_then(|e| e["revision"].as_u64());
            if known < event["revision"].as_u64() {
                self.by_key.insert(key, event.clone());
            }
        }
    }

    /// As docs/protocol.md says: the newest event that stands, history before news.
    fn score(&self) -> (u64, u64) {
        let newest = |old: bool| {
            let mut keys = self.order.iter().rev().map(|key| &self.by_key[key]);
            keys.find(|e| e["state"] != "withdrawn" && (e["historical"] == true) == old)
        };
        let goals =
            |e: &Value| (e["score"]["home"].as_u64().expect("home"), e["score"]["away"].as_u64().expect("away"));
        newest(false).or_else(|| newest(true)).map_or((0, 0), goals)
    }
}

#[test]
fn a_switch_over_tells_viewers_on_every_rung_the_difference_and_ends_in_the_new_ones_score() {
    for args in [&[][..], &["--gateways", "2"]] {
        let (server, ops, feed) = stage(args);
        let (_, set) = change(&server, "PUT", &providers(), &ops, &json!({"primary": "one", "stand_by": "two"}));
        assert_eq!((&set["primary"], &set["room_id"]), (&json!("one"), &json!("derby")), "{set}");
        let start = set["event_id"].as_u64().expect("an id");
        let mut viewers: Vec<Viewer> = RUNGS.map(|rung| open_at(&server, rung, "derby", Some(start))).into();
        let say = |what: Value| ok(&server, "POST", "/v1/score-event", &feed, &what);
        for (home, away) in [(1, 0), (2, 0)] {
            assert!(say(score("one", &format!("a{home}"), home, away)).get("shown").is_none());
        }
        assert_eq!(say(score("two", "b1", 1, 0))["shown"], false);
        assert_eq!(say(score("two", "b2", 1, 1))["shown"], false);

        let wanted = json!({"primary": "two", "stand_by": "one"});
        let preview = ok(&server, "PUT", &providers(), &ops, &wanted);
        let told: Vec<String> = preview["changes"]
            .as_array()
            .expect("changes")
            .iter()
            .map(|c| format!("{} {}", c["key"].as_str().expect("a key"), c["state"].as_str().expect("a state")))
            .collect();
        assert_eq!(told, ["b2 confirmed", "a2 withdrawn"], "what both saw is not told again");
        assert_eq!(preview["score_now"], json!({"home": 2, "away": 0}));
        assert_eq!(preview["score_then"], json!({"home": 1, "away": 1}));
        // A change of which one was not shown is not made, nor one against what has changed since.
        let mut other = json!({"primary": "three", "justification": "x"});
        other["confirm"] = preview["confirm"].clone();
        assert_eq!(call(&server, "PUT", &providers(), &ops, &other).status, 422);
        say(score("two", "b3", 1, 2));
        let mut stale = wanted.clone();
        (stale["confirm"], stale["justification"]) = (preview["confirm"].clone(), json!("too late"));
        let refused = call(&server, "PUT", &providers(), &ops, &stale);
        assert_eq!((refused.status, &refused.json["code"]), (412, &json!("stale_version")));

        let (_, done) = change(&server, "PUT", &providers(), &ops, &wanted);
        let end = done["event_id"].as_u64().expect("an id");
        say(score("one", "a3", 3, 0));
        let last = say(score("two", "b4", 2, 2))["event_id"].as_u64().expect("an id");
        for viewer in &mut viewers {
            let mut board = Board::default();
            let seen = viewer.until_id(last);
            assert!(seen.iter().any(|e| e["event_id"].as_u64() == Some(end)), "the switch-over itself");
            board.take(&seen);
            assert_eq!(board.score(), (2, 2));
            assert_eq!(board.order, ["a1", "a2", "b2", "b3", "b4"]);
            assert!(!seen.iter().any(|e| e["key"] == "a3"), "who stands by is not shown");
        }
        let audit = ok(&server, "GET", "/admin/audit?action=match%20providers&room=derby", &ops, &Value::Null);
        assert_eq!(audit["audit"].as_array().map(Vec::len), Some(2), "{audit}");
    }
}

#[test]
fn viewers_are_told_when_nothing_comes_of_a_primary_and_when_it_is_back() {
    for args in [&["--set", "scores.stale_seconds=7"][..], &["--gateways", "2", "--set", "scores.stale_seconds=7"]] {
        let (server, ops, feed) = stage(args);
        let beat = |provider: &str| {
            ok(&server, "POST", "/v1/score-heartbeat", &feed, &json!({"provider": provider}));
        };
        beat("one");
        let (_, set) = change(&server, "PUT", &providers(), &ops, &json!({"primary": "one"}));
        let start = set["event_id"].as_u64();
        let mut viewers: Vec<Viewer> = RUNGS.map(|rung| open_at(&server, rung, "derby", start)).into();
        for viewer in &mut viewers {
            let seen = viewer.until(|e| e["type"] == "feed_stale");
            let told = seen.last().expect("it is told");
            assert_eq!(
                (&told["provider"], &told["match_id"], &told["room_id"]),
                (&json!("one"), &json!(MATCH), &json!("derby"))
            );
            assert!(told["since_ts"].is_string() && told.get("ended").is_none() && told.get("event_id").is_none());
        }
        // Who comes meanwhile is told beside hello.
        for rung in RUNGS {
            let mut late = open_at(&server, rung, "derby", None);
            assert_eq!(late.next().expect("hello")["type"], "hello");
            assert_eq!(late.next().expect("at once")["type"], "feed_stale", "{rung:?}");
        }
        let matches = ok(&server, "GET", "/admin/matches", &ops, &Value::Null);
        assert!(matches["matches"][0]["silent_since_ts"].is_string(), "{matches}");
        assert_eq!(metric(&server, "grandstand_score_feeds_silent"), 1);
        for viewer in &mut viewers {
            // Again and again: a single word of life lasts seven seconds, longer than a poll.
            beat("one");
            viewer.until(|e| e["type"] == "feed_stale" && e["ended"] == true);
        }
        assert!(metric(&server, "grandstand_score_feeds_silent_total") >= 1);
        let listed = ok(&server, "GET", "/admin/providers", &ops, &Value::Null);
        assert!(listed["providers"][0]["heard_ts"].is_string(), "{listed}");
    }
}

#[test]
fn providers_that_say_different_scores_for_long_are_counted() {
    let (server, ops, feed) = stage(&["--set", "scores.differ_seconds=1"]);
    change(&server, "PUT", &providers(), &ops, &json!({"primary": "one", "stand_by": "two"}));
    let say = |provider, event, home| ok(&server, "POST", "/v1/score-event", &feed, &score(provider, event, home, 0));
    say("one", "a1", 1);
    say("two", "b1", 2);
    until("it is counted", || metric(&server, "grandstand_score_disagreements_total") == 1);
    let told = ok(&server, "GET", &providers(), &ops, &Value::Null);
    assert!(told["differs_since_ts"].is_string(), "{told}");
    say("one", "a2", 2);
    until("it is over", || metric(&server, "grandstand_score_feeds_differ") == 0);
    assert_eq!(metric(&server, "grandstand_score_not_highest_total"), 0);
}

#[test]
fn an_operator_types_corrects_and_takes_back_in_two_steps() {
    let (server, ops, feed) = stage(&[]);
    let say = |what: Value| ok(&server, "POST", "/v1/score-event", &feed, &what);
    let first = say(score("one", "a1", 1, 0))["event_id"].as_u64();
    let mut viewer = open_at(&server, Rung::WebSocket, "derby", first);
    let nobody = server.token("mod", &["publisher"]);
    assert_eq!(call(&server, "POST", &desk(), &nobody, &json!({"key": "a1"})).status, 403);
    assert_eq!(call(&server, "POST", &desk(), &ops, &json!({"key": "none", "state": "withdrawn"})).status, 422);
    let fake = json!({"match_id": MATCH, "provider": "operator", "event_id": "x", "kind": "goal", "score": {"home": 9, "away": 9}});
    assert_eq!(call(&server, "POST", "/v1/score-event", &feed, &fake).status, 422, "a provider is no operator");

    let (preview, done) =
        change(&server, "POST", &desk(), &ops, &json!({"key": "a1", "score": {"home": 0, "away": 1}}));
    assert_eq!((&preview["changes"][0]["revision"], &preview["changes"][0]["kind"]), (&json!(2), &json!("goal")));
    assert_eq!(preview["score_then"], json!({"home": 0, "away": 1}));
    let told = viewer.until_id(done["event_id"].as_u64().expect("an id")).pop().expect("it");
    assert_eq!((&told["key"], &told["score"]["away"]), (&json!("a1"), &json!(1)));

    let (_, own) = change(
        &server,
        "POST",
        &desk(),
        &ops,
        &json!({"kind": "goal", "score": {"home": 0, "away": 2}, "minute": "55"}),
    );
    let key = own["key"].as_str().expect("a key").to_owned();
    let (_, gone) = change(&server, "POST", &desk(), &ops, &json!({"key": key, "state": "withdrawn"}));
    let told = viewer.until_id(gone["event_id"].as_u64().expect("an id")).pop().expect("it");
    assert_eq!((&told["key"], &told["state"]), (&json!(key), &json!("withdrawn")));
    let newest = format!("/v1/rooms/derby/snapshot?min={}", gone["event_id"]);
    let snapshot = ok(&server, "GET", &newest, &ops, &Value::Null);
    assert_eq!(snapshot["current_score"]["score"], json!({"home": 0, "away": 1}), "not the one that was taken back");

    let news = say(score("one", "a1", 2, 1));
    let told = viewer.until_id(news["event_id"].as_u64().expect("an id")).pop().expect("it");
    assert_eq!(told["revision"], 3, "what its provider says next comes after the correction");
    let book = ok(&server, "GET", &desk(), &ops, &Value::Null);
    let revisions = book["revisions"].as_array().expect("revisions");
    let by = |provider: &str| revisions.iter().filter(|r| r["provider"] == provider).count();
    assert_eq!((by("one"), by("operator")), (2, 3), "{book}");
    assert!(revisions.iter().all(|r| r["shown"] == true && r["ts"].is_string()));
    assert_eq!((&book["current"]["score"], book["more"].as_bool()), (&json!({"home": 2, "away": 1}), Some(false)));

    // The same from a terminal.
    let admin = |args: &[&str]| {
        let out = admin(&server, Some(&ops), args);
        (out.status.code(), said(&out))
    };
    let (code, shown) = admin(&["match", MATCH, "type", "--key", "a1", "--score", "3-1"]);
    assert!(code == Some(0) && shown.contains("would be 3-1") && shown.contains("--confirm "), "{shown}");
    let (code, shown) = admin(&["match", MATCH, "withdraw", "a1", "--yes", "-j", "offside"]);
    assert!(code == Some(0) && shown.contains("taken back"), "{shown}");
    assert!(admin(&["match", MATCH, "scores"]).1.contains("operator a1 2"));
    assert!(admin(&["matches"]).1.contains(MATCH));
    assert_eq!(admin(&["match", "none", "providers"]).0, Some(4));
}

/// One event's revisions as a provider sends them, each with what it says.
struct Storm {
    sent: Vec<Value>,
    /// By event: the highest revision, and whether it stands.
    end: BTreeMap<String, (u32, Value)>,
    n_revisions: usize,
}

/// What a real push feed was measured to do: 2.9 revisions an event (at most 8), 34 % of them with the time of the one before, 16 %
/// out of their order, 4 % of events deleted, 6 % sent twice.
fn storm(provider: &str, seed: u64, n_events: u32) -> Storm {
    let mut rng = Rng::new(seed);
    let mut storm = Storm { sent: Vec::new(), end: BTreeMap::new(), n_revisions: 0 };
    let mut clock = 0;
    // Revisions of the last events wait together, so that they cross.
    for n in 1..=n_events {
        let name = format!("{provider}-{n}");
        let mut n_revisions = 1;
        while n_revisions < 8 && rng.chance(2, 3) {
            n_revisions += 1;
        }
        let deleted = rng.chance(4, 100);
        for revision in 1..=n_revisions {
            clock += u64::from(!rng.chance(34, 100));
            let last = revision == n_revisions;
            let mut said = score(provider, &name, n, rng.below(3) as u32);
            said["revision"] = json!(revision);
            said["data"] = json!({"updated": clock});
            if last && deleted {
                said["state"] = json!("withdrawn");
            }
            if last {
                storm.end.insert(name.clone(), (revision, said.clone()));
            }
            storm.n_revisions += 1;
            storm.sent.push(said.clone());
            if rng.chance(6, 100) {
                storm.sent.push(said);
            }
        }
    }
    for i in 1..storm.sent.len() {
        if rng.chance(16, 100) {
            let back = 1 + rng.below(3.min(i as u64)) as usize;
            storm.sent.swap(i, i - back);
        }
    }
    storm
}

#[test]
fn a_storm_of_corrections_ends_in_the_right_state_for_every_viewer_and_after_a_switch_over() {
    let seed = 20_260_711;
    for args in [&[][..], &["--gateways", "2"]] {
        let (server, ops, feed) = stage(args);
        let (_, set) = change(&server, "PUT", &providers(), &ops, &json!({"primary": "one", "stand_by": "two"}));
        let start = set["event_id"].as_u64();
        let mut viewers: Vec<Viewer> = RUNGS.map(|rung| open_at(&server, rung, "derby", start)).into();
        let (one, two) = (storm("one", seed, 120), storm("two", seed + 1, 120));
        assert!((2.4..3.4).contains(&(one.n_revisions as f64 / 120.0)), "{} revisions", one.n_revisions);
        let (mut repeats, mut superseded) = (0, 0);
        let mut http = server.http();
        let mut last = 0;
        for i in 0..one.sent.len().max(two.sent.len()) {
            for (which, storm) in [&one, &two].into_iter().enumerate() {
                let Some(said) = storm.sent.get(i) else { continue };
                let answer = http.call("POST", "/v1/score-event", Some(&feed), Some(said)).expect("an answer");
                assert!(matches!(answer.status, 200 | 202), "{:?}", answer.json);
                repeats += usize::from(answer.status == 200);
                superseded += usize::from(answer.json["superseded"] == true);
                if which == 0 && answer.status == 202 {
                    last = answer.json["event_id"].as_u64().expect("an id");
                }
            }
        }
        assert!(repeats > 10 && superseded > 30, "a storm that is none proves nothing: {repeats}, {superseded}");
        let mut boards: Vec<Board> = Vec::new();
        for viewer in &mut viewers {
            let mut board = Board::default();
            board.take(&viewer.until_id(last));
            for (event, (revision, said)) in &one.end {
                let shown = &board.by_key[event];
                assert_eq!((&shown["revision"], &shown["score"]), (&json!(revision), &said["score"]), "{event}");
                assert_eq!(shown["state"] == "withdrawn", said["state"] == "withdrawn", "{event}");
            }
            assert_eq!(board.by_key.len(), one.end.len());
            boards.push(board);
        }
        let snapshot = ok(&server, "GET", &format!("/v1/rooms/derby/snapshot?min={last}"), &ops, &Value::Null);
        let (home, away) = boards[0].score();
        assert_eq!(snapshot["current_score"]["score"], json!({"home": home, "away": away}));

        let (preview, done) = change(&server, "PUT", &providers(), &ops, &json!({"primary": "two", "stand_by": "one"}));
        let end = done["event_id"].as_u64().expect("an id");
        for (viewer, board) in viewers.iter_mut().zip(&mut boards) {
            board.take(&viewer.until_id(end));
            let (home, away) = board.score();
            assert_eq!(preview["score_then"], json!({"home": home, "away": away}));
        }
        let told = ok(&server, "GET", &providers(), &ops, &Value::Null);
        let own = told["providers"].as_array().expect("providers").iter().find(|p| p["provider"] == "two");
        assert_eq!(own.expect("it")["score"], preview["score_then"], "the new primary's score is shown");
        assert_eq!(metric(&server, "grandstand_score_not_highest_total"), 0);
    }
}

#[test]
fn a_provider_s_own_documents_are_told_and_what_it_deletes_is_taken_back() {
    let (server, ops, feed) = stage(&[]);
    server.put_room("derby", &ops, json!({"matches": ["77"]}));
    let incident = |which: u32, minute: u32, team: u32| json!({"type": which, "t": {"half": 1, "m": minute, "s": 5}, "team": team});
    let document = |goals: Value, deleted: Value, home: u32| {
        json!({
            "match": {"matchId": 77, "homeTeamId": 1, "awayTeamId": 2},
            "incidences": {"goals": goals, "status": {"1": {"type": 1, "t": {"half": 0, "m": 0, "s": 0}}}, "fouls": {"9": {}}},
            "scoreStatus": {"1": {"score": home}, "2": {"score": 1}},
            "deletedIncidences": deleted,
        })
    };
    let before =
        document(json!({"11": incident(9, 5, 1), "12": incident(10, 9, 1), "13": incident(9, 20, 1)}), json!([]), 2);
    let after = document(json!({"11": incident(9, 5, 1), "12": incident(10, 9, 1)}), json!(["13"]), 1);
    let post = |name: &str, document: &Value| {
        let file = server.folder().join(name);
        std::fs::write(&file, document.to_string()).expect("it can be written");
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_grandstand"));
        command.args(["adapt", "datafactory", "--post", "--provider", "df"]).arg(file);
        command.env("GRANDSTAND_URL", format!("http://{}", server.addr)).env("GRANDSTAND_TOKEN", &feed);
        let out = command.output().expect("the binary can be started");
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(out.status.success(), "{}", said(&out.stderr));
        (said(&out.stdout), said(&out.stderr))
    };
    assert_eq!(post("before.json", &before).0, "4 accepted, 0 known\n");
    let current =
        || ok(&server, "GET", "/v1/rooms/derby/snapshot", &ops, &Value::Null)["current_score"]["score"].clone();
    // A snapshot is shared for a tenth of a second.
    until("two goals and one", || current() == json!({"home": 2, "away": 1}));
    let (told, passed) = post("after.json", &after);
    assert_eq!(told, "1 accepted, 3 known\n", "a whole document again, and one thing new");
    assert!(passed.contains("1 × fouls"), "{passed}");
    until("one is taken back", || current() == json!({"home": 1, "away": 1}));
}
