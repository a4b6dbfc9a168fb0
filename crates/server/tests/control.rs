//! Control over a real shard in memory: each route as a client sees it, by its status, its code and its body.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use grandstand_server::admission::Admission;
use grandstand_server::auth::keys::SigningKey;
use grandstand_server::auth::provider_keys::ProviderKeys;
use grandstand_server::auth::ticket::Tickets;
use grandstand_server::auth::token::{Claims, Verifier};
use grandstand_server::clock;
use grandstand_server::config::{Config, Sources};
use grandstand_server::control::{self, Control, Deps};
use grandstand_server::link::{
    ConnKey, HttpFlow, HttpPart, HttpRequest, Mailbox, Tallies, ToWorker, WorkerId, Workers,
};
use grandstand_server::metrics::Metrics;
use grandstand_server::shard::{self, ShardConfig, ShardJoin, Stores};
use http::{HeaderMap, Request};
use http_body_util::BodyExt;
use serde_json::{Value, json};

struct Stand {
    control: Arc<Control>,
    signing: Arc<SigningKey>,
    runtime: tokio::runtime::Runtime,
    tickets: Arc<Tickets>,
    tallies: Tallies,
    join: Option<ShardJoin>,
    dir: tempfile::TempDir,
}

struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Bytes,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{:?}", self.body))
    }
    fn code(&self) -> (u16, String) {
        assert_eq!(self.header("content-type"), "application/problem+json", "{:?}", self.body);
        (self.status, self.json()["code"].as_str().unwrap().to_owned())
    }
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |v| v.to_str().unwrap())
    }
    fn ok(self) -> Value {
        assert!((200..300).contains(&self.status), "{} {:?}", self.status, self.body);
        self.json()
    }
}

/// A server without a configuration file.
fn development() -> Stand {
    Stand::new(&Sources::default())
}

/// A server with this file.
fn configured(text: &str) -> Stand {
    Stand::new(&Sources { file: Some(("stand.toml".into(), text.to_owned())), ..Sources::default() })
}

impl Stand {
    fn new(sources: &Sources) -> Stand {
        let (deps, join, dir) = deps(sources);
        let (signing, tickets, tallies) =
            (deps.signing.clone().expect("it has a key"), deps.tickets.clone(), deps.tallies.clone());
        let control = Control::new(deps);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Stand { control, signing, runtime, tickets, tallies, join: Some(join), dir }
    }
}

fn deps(sources: &Sources) -> (Deps, ShardJoin, tempfile::TempDir) {
    let mut config = Config::load(sources).unwrap_or_else(|faults| panic!("{faults:?}"));
    let dir = tempfile::tempdir().unwrap();
    config.data = dir.path().to_owned();
    let signing = Arc::new(SigningKey::in_folder(dir.path()).unwrap());
    let verifier = Verifier::new(Some(&signing), vec![], None, None, vec![], Arc::default()).unwrap();
    let workers = Workers::new(1);
    let shard_config = ShardConfig::embedded(config.create_on_use);
    let (shard, join) = shard::start(Stores::memory(), shard_config, workers.clone()).unwrap();
    let tickets = Arc::new(Tickets::new(&[7; 32], clock::wall()));
    let provider_keys = ProviderKeys::open(dir.path(), &config.providers).unwrap();
    let deps = Deps {
        config: Arc::new(config),
        shard,
        workers,
        verifier: Arc::new(verifier),
        signing: Some(signing),
        tickets,
        tallies: Tallies::default(),
        metrics: Arc::new(Metrics::new()),
        admission: Arc::new(Admission::new(None, clock::mono())),
        provider_keys: Arc::new(provider_keys),
        host: None,
    };
    (deps, join, dir)
}

impl Stand {
    fn token(&self, sub: &str, roles: &[&str]) -> String {
        let mut claims = Claims::new(sub, clock::wall(), Duration::from_secs(600));
        claims.roles = Some(roles.iter().map(|r| (*r).to_owned()).collect());
        self.signing.mint(&claims)
    }

    fn call(&self, request: http::request::Builder, body: impl Into<Bytes>) -> Answer {
        let request = if request.headers_ref().is_some_and(|h| h.contains_key("host")) {
            request
        } else {
            request.header("host", "localhost:8080")
        };
        let peer = SocketAddr::from(([127, 0, 0, 1], 4000));
        self.runtime.block_on(async {
            let (head, body) = self.control.call(request.body(body.into()).unwrap(), peer).await.into_parts();
            let body = body.collect().await.expect("the body ends well").to_bytes();
            Answer { status: head.status.as_u16(), headers: head.headers, body }
        })
    }

    fn get(&self, path: &str) -> Answer {
        self.call(Request::get(path), "")
    }
    fn get_as(&self, token: &str, path: &str) -> Answer {
        self.call(Request::get(path).header("authorization", format!("Bearer {token}")), "")
    }
    fn send(&self, method: &str, token: Option<&str>, path: &str, body: &Value) -> Answer {
        let mut request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        self.call(request, body.to_string())
    }
    fn post(&self, token: &str, path: &str, body: &Value) -> Answer {
        self.send("POST", Some(token), path, body)
    }
    fn comment(&self, token: &str, room: &str, key: &str, text: &str) -> Answer {
        self.post(token, &format!("/v1/rooms/{room}/comments"), &json!({"client_msg_id": key, "body": text}))
    }
    fn put(&self, token: &str, room: &str, mut change: Value) -> Answer {
        change["justification"] = "a test".into();
        self.send("PUT", Some(token), &format!("/admin/rooms/{room}"), &change)
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        if let Some(join) = self.join.take() {
            join.stop();
        }
    }
}

fn bodies(comments: &Value) -> Vec<&str> {
    comments.as_array().unwrap().iter().map(|c| c["body"].as_str().unwrap()).collect()
}

// ---- comments

#[test]
fn a_comment_is_acked_once_and_its_retry_gets_the_same_answer() {
    let stand = development();
    let ann = stand.token("ann", &["publisher"]);
    let first = stand.comment(&ann, "a", "k1", "first!").ok();
    assert_eq!((first["type"].as_str(), first["client_msg_id"].as_str()), (Some("publish_ack"), Some("k1")));
    let again = stand.comment(&ann, "a", "k1", "first!").ok();
    assert_eq!((&again["event_id"], &again["duplicate"]), (&first["event_id"], &json!(true)));
    assert_eq!(stand.comment(&ann, "a", "k1", "other").code(), (409, "idempotency_conflict".into()));
}

#[test]
fn what_may_not_be_published_is_refused_with_its_code() {
    let stand = development();
    let ann = stand.token("ann", &["publisher"]);
    let path = "/v1/rooms/a/comments";
    let good = json!({"client_msg_id": "k", "body": "text"});
    assert_eq!(stand.send("POST", None, path, &good).code(), (401, "no_token".into()));
    assert_eq!(stand.post("nonsense", path, &good).code(), (401, "bad_token".into()));
    assert_eq!(stand.post(&stand.token("v", &["viewer"]), path, &good).code(), (403, "not_allowed".into()));
    assert_eq!(stand.comment(&ann, "UPPER", "k", "text").code(), (400, "bad_room".into()));
    assert_eq!(stand.comment(&ann, "a%2fb", "k", "text").code(), (400, "bad_room".into()));
    assert_eq!(stand.comment(&ann, "a", "k", "").code(), (422, "bad_text".into()));
    assert_eq!(stand.comment(&ann, "a", "k", &"x".repeat(501)).code(), (422, "too_long".into()));
    assert_eq!(stand.comment(&ann, "a", "", "text").code(), (400, "bad_request".into()));
    assert_eq!(stand.post(&ann, path, &json!({"client_msg_id": "k"})).code(), (400, "bad_request".into()));
    let other = json!({"client_msg_id": "k", "body": "t", "as": {"id": "bob"}});
    assert_eq!(stand.post(&ann, path, &other).code(), (403, "not_allowed".into()));
    let bearer = format!("Bearer {ann}");
    let plain = |kind: &str, body: &'static str| {
        stand.call(Request::post(path).header("authorization", &bearer).header("content-type", kind), body)
    };
    assert_eq!(plain("text/plain", r#"{"client_msg_id":"k","body":"t"}"#).code(), (415, "bad_media_type".into()));
    assert_eq!(plain("application/json", r#"{"body":"a","body":"b"}"#).code(), (400, "bad_json".into()));
    assert_eq!(plain("application/json", "[]").code(), (400, "bad_json".into()));
    assert_eq!(plain("application/json", "{}x").code(), (400, "bad_json".into()));
}

#[test]
fn slow_mode_and_rates_are_429_with_a_reason_and_a_wait() {
    let stand = development();
    let (ann, op) = (stand.token("ann", &["publisher"]), stand.token("op", &["region-ops"]));
    stand.put(&op, "a", json!({"slow_mode_seconds": 30})).ok();
    stand.comment(&ann, "a", "k1", "one").ok();
    let refused = stand.comment(&ann, "a", "k2", "two");
    assert_eq!(refused.code(), (429, "rate_limited".into()));
    assert_eq!(refused.json()["reason"], "slow_mode");
    assert_eq!(refused.json()["client_msg_id"], "k2");
    assert!(refused.json()["retry_after_ms"].as_u64().unwrap() > 25_000);
    assert!(refused.header("retry-after").parse::<u64>().unwrap() >= 26);
    stand.comment(&stand.token("backend", &["backend"]), "a", "k1", "exempt").ok();
    stand.comment(&stand.token("backend", &["backend"]), "a", "k2", "exempt").ok();
}

#[test]
fn a_backend_publishes_as_its_users_and_the_key_is_theirs() {
    let stand = development();
    let backend = stand.token("backend", &["backend"]);
    let publish = |user: &str| {
        let body =
            json!({"client_msg_id": "same", "body": "hello", "as": {"id": user, "name": "Shown", "badges": ["mod"]}});
        stand.post(&backend, "/v1/rooms/a/comments", &body).ok()
    };
    assert_ne!(publish("ann")["event_id"], publish("bob")["event_id"]);
    let snapshot = stand.get("/v1/rooms/a/snapshot").ok();
    let user = &snapshot["recent_comments"][0]["user"];
    assert_eq!(*user, json!({"id": "ann", "display": "Shown", "badges": ["mod"]}));
}

// ---- gateways

#[test]
fn an_operator_changes_admission_and_drains_and_both_are_recorded_first() {
    let stand = development();
    let op = stand.token("op", &["region-ops"]);
    let listed = |stand: &Stand| stand.get_as(&op, "/admin/gateways").ok()["gateways"][0].clone();
    let before = listed(&stand);
    assert_eq!(
        (&before["id"], &before["state"], &before["admission"]),
        (&json!("local"), &json!("open"), &Value::Null)
    );
    let set = |what: &str, body: Value| stand.post(&op, &format!("/admin/gateways/local/{what}"), &body);
    let after = set("admission", json!({"rate": 200, "justification": "kick-off"})).ok();
    assert_eq!(after["admission"], json!({"rate": 200, "burst": 240}));
    assert_eq!(stand.get("/healthz/ready").status, 200);
    let drained = set("drain", json!({"seconds": 30, "justification": "new kernel"})).ok();
    assert_eq!((&drained["state"], &drained["drain"]["seconds"]), (&json!("draining"), &json!(30)));
    let unready = stand.get("/healthz/ready");
    assert_eq!((unready.status, &unready.json()["reason"]), (503, &json!("draining")));
    assert!(unready.json()["load"]["streams"].is_u64());
    set("admission", json!({"justification": "done"})).ok();
    let last = listed(&stand);
    assert_eq!((&last["state"], &last["admission"], &last["drain"]), (&json!("open"), &Value::Null, &Value::Null));
    assert_eq!((&last["changed"]["by"], &last["changed"]["justification"]), (&json!("op"), &json!("done")));
    let audit = std::fs::read_to_string(stand.dir.path().join("audit.jsonl")).unwrap();
    let lines: Vec<Value> = audit.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let whys: Vec<&str> = lines.iter().map(|line| line["justification"].as_str().unwrap()).collect();
    assert_eq!(whys, ["kick-off", "new kernel", "done"]);
    assert_eq!((&lines[1]["actor"], &lines[1]["given"]), (&json!("op"), &json!({"seconds": 30})));
}

#[test]
fn a_change_of_a_gateway_needs_its_role_a_reason_and_a_sane_number() {
    let stand = development();
    let op = stand.token("op", &["region-ops"]);
    let path = "/admin/gateways/local/admission";
    let good = json!({"rate": 1, "justification": "j"});
    let moderator = stand.token("mod", &["room-mod", "backend"]);
    assert_eq!(stand.post(&moderator, path, &good).code(), (403, "not_allowed".into()));
    assert_eq!(stand.send("POST", None, path, &good).code(), (401, "no_token".into()));
    assert_eq!(stand.get("/admin/gateways").code(), (401, "no_token".into()));
    assert_eq!(stand.post(&op, "/admin/gateways/other/drain", &good).code(), (404, "not_found".into()));
    for bad in [
        json!({"rate": 1}),
        json!({"rate": -1, "justification": "j"}),
        json!({"rate": 1.5, "justification": "j"}),
        json!({"rate": 1_000_001, "justification": "j"}),
        json!({"burst": 5, "justification": "j"}),
        json!({"rate": 5, "burst": 0, "justification": "j"}),
    ] {
        assert_eq!(stand.post(&op, path, &bad).code(), (422, "bad_field".into()), "{bad}");
    }
    for bad in [json!({"justification": "j"}), json!({"seconds": 3_601, "justification": "j"})] {
        assert_eq!(stand.post(&op, "/admin/gateways/local/drain", &bad).code(), (422, "bad_field".into()), "{bad}");
    }
    assert!(!stand.dir.path().join("audit.jsonl").exists());
}

// ---- guests, tickets, doors

#[test]
fn a_guest_may_talk_where_the_room_takes_guests() {
    let stand = development();
    let op = stand.token("op", &["region-ops"]);
    stand.put(&op, "members", json!({"anonymous_publish": false})).ok();
    let guest = stand.send("POST", None, "/v1/guest", &json!({"name": "Terrace", "room_id": "open"})).ok();
    let token = guest["token"].as_str().unwrap();
    stand.comment(token, "open", "k", "hi").ok();
    assert_eq!(stand.comment(token, "members", "k", "hi").code(), (403, "not_allowed".into()));
    let refused = stand.send("POST", None, "/v1/guest", &json!({"name": "Terrace", "room_id": "members"}));
    assert_eq!(refused.code(), (403, "not_allowed".into()));
    for name in ["", "a\nb", &"x".repeat(33)] {
        assert_eq!(stand.send("POST", None, "/v1/guest", &json!({"name": name})).code(), (422, "bad_field".into()));
    }
    assert_eq!(
        configured("").send("POST", None, "/v1/guest", &json!({"name": "T"})).code(),
        (403, "not_allowed".into()),
        "not without a setting"
    );
}

#[test]
fn a_ticket_is_sold_to_its_user_for_one_room() {
    let stand = development();
    let sold = stand.post(&stand.token("ann", &["publisher"]), "/v1/ticket", &json!({"room_id": "a"})).ok();
    let room = grandstand_core::names::RoomId::parse("a").unwrap();
    let admitted = stand.tickets.admit(sold["ticket"].as_str().unwrap(), &room, false, clock::wall()).unwrap();
    assert_eq!(admitted.identity.user.as_str(), "ann");
    assert_eq!(stand.send("POST", None, "/v1/ticket", &json!({"room_id": "a"})).code(), (401, "no_token".into()));
}

#[test]
fn foreign_pages_foreign_hosts_and_tokens_in_addresses_are_refused() {
    let stand = development();
    let from = |origin: &str| stand.call(Request::get("/v1/rooms").header("origin", origin), "");
    assert_eq!(from("https://evil.example").code(), (403, "bad_origin".into()));
    assert_eq!(from("null").code(), (403, "bad_origin".into()));
    let own = from("http://localhost:8080");
    assert_eq!((own.status, own.header("access-control-allow-origin")), (200, "http://localhost:8080"));
    let rebound = stand.call(Request::get("/v1/rooms").header("host", "evil.example"), "");
    assert_eq!(rebound.code(), (403, "bad_origin".into()));
    assert_eq!(stand.get("/v1/rooms?token=x").code(), (400, "bad_request".into()));
    assert_eq!(stand.get("/v1/rooms?access_token=x").code(), (400, "bad_request".into()));
}

#[test]
fn listed_origins_are_answered_by_name_and_may_ask_first() {
    let stand = configured("origins = [\"https://live.example.com\"]\n");
    let ask = |origin: &str, method: &str| {
        let request = Request::builder().method(method).uri("/v1/rooms").header("host", "stand.example");
        stand.call(request.header("origin", origin), "")
    };
    let preflight = ask("https://live.example.com", "OPTIONS");
    assert_eq!((preflight.status, preflight.header("access-control-allow-origin")), (204, "https://live.example.com"));
    assert!(preflight.header("access-control-allow-headers").contains("authorization"));
    assert!(!preflight.headers.contains_key("access-control-allow-credentials"));
    assert_eq!(ask("https://other.example.com", "OPTIONS").code(), (403, "bad_origin".into()));
    let answer = ask("https://live.example.com", "GET");
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (200, "https://live.example.com"));
    assert_eq!(answer.header("vary"), "origin");
}

#[test]
fn unknown_routes_are_404_and_other_methods_405() {
    let stand = development();
    for path in ["/nothing", "/v1/rooms/a", "/v1/rooms/a/snapshot/x.css", "/v1//rooms", "/V1/rooms", "/admin/rooms/"] {
        assert_eq!(stand.get(path).code(), (404, "not_found".into()), "{path}");
    }
    for method in ["DELETE", "TRACE", "PATCH", "PUT"] {
        let answer = stand.send(method, None, "/v1/rooms", &json!({}));
        assert_eq!(answer.code(), (405, "bad_method".into()), "{method}");
        assert!(answer.header("allow").contains("GET"));
    }
}

#[test]
fn a_report_counts_once_a_user_and_says_nothing_of_what_is_there() {
    let stand = development();
    let (ann, op) = (stand.token("ann", &["publisher"]), stand.token("op", &["admin"]));
    let id = stand.comment(&ann, "a", "k1", "buy this").ok()["event_id"].as_u64().unwrap();
    let report = |who: &str, id: u64| {
        stand.post(&stand.token(who, &["publisher"]), "/v1/rooms/a/reports", &json!({"event_id": id, "reason": "spam"}))
    };
    for who in ["bob", "bob", "cid"] {
        assert_eq!(report(who, id).status, 204, "{who}");
    }
    assert_eq!(report("bob", id + 1_000_000).status, 204, "an id that is not there is answered the same");
    let seen = stand.get_as(&op, "/admin/rooms/a/reports").ok();
    let [one] = &seen["reports"].as_array().unwrap()[..] else { panic!("{seen}") };
    assert_eq!((&one["event_id"], &one["count"], &one["reasons"]), (&json!(id), &json!(2), &json!({"spam": 2})));
    assert_eq!(stand.get_as(&ann, "/admin/rooms/a/reports").status, 403);
    assert_eq!(stand.call(Request::post("/v1/rooms/a/reports"), r#"{"event_id":1,"reason":"x"}"#).status, 401);
    let refused = (0..40).map(|_| report("eve", id)).find(|answer| answer.status == 429).expect("a rate");
    assert!(refused.json()["retry_after_ms"].is_u64(), "{:?}", refused.json());
    stand.post(&op, "/admin/rooms/a/retract", &json!({"event_id": id, "justification": "a test"})).ok();
    let seen = stand.get_as(&op, "/admin/rooms/a/reports").ok();
    assert!(seen["reports"].as_array().unwrap().iter().all(|one| one["event_id"] != id));
}

#[test]
fn what_was_taken_back_with_its_author_leaves_the_reports_and_what_others_said_stays() {
    let stand = development();
    let op = stand.token("op", &["admin"]);
    let say = |who: &str, key: &str| {
        let said = stand.comment(&stand.token(who, &["publisher"]), "a", key, &format!("{who} says {key}")).ok();
        let id = said["event_id"].as_u64().unwrap();
        for by in ["x", "y"] {
            let body = json!({"event_id": id, "reason": "spam"});
            assert_eq!(stand.post(&stand.token(by, &["publisher"]), "/v1/rooms/a/reports", &body).status, 204);
        }
        id
    };
    let listed = || {
        let seen = stand.get_as(&op, "/admin/rooms/a/reports").ok();
        let mut ids: Vec<u64> =
            seen["reports"].as_array().unwrap().iter().map(|r| r["event_id"].as_u64().unwrap()).collect();
        ids.sort();
        ids
    };
    let (ann, bob, cid) = (say("ann", "k1"), say("bob", "k1"), say("cid", "k1"));
    assert_eq!(listed(), [ann, bob, cid]);
    stand.post(&op, "/admin/rooms/a/retract", &json!({"user_id": "ann", "justification": "a test"})).ok();
    assert_eq!(listed(), [bob, cid], "all of a user");
    let purge = json!({"user_id": "bob", "purge_last_minutes": 5, "justification": "a test"});
    stand.post(&op, "/admin/rooms/a/bans", &purge).ok();
    assert_eq!(listed(), [cid], "and with a ban");
    // What it says later is another matter.
    let later = say("ann", "k2");
    assert_eq!(listed(), [cid, later]);
    stand.post(&op, "/admin/rooms/a/retract", &json!({"user_id": "dan", "justification": "a test"})).ok();
    assert_eq!(listed(), [cid, later], "looked at anew, and they stand");
}

// ---- snapshot and rooms

#[test]
fn a_snapshot_shows_the_room_and_is_known_by_its_tag() {
    let stand = development();
    let ann = stand.token("ann", &["publisher"]);
    let ids: Vec<Value> = (0..60)
        .map(|n| stand.comment(&ann, "a", &n.to_string(), &format!("c{n}")))
        .map_while(|a| (a.status == 200).then(|| a.json()["event_id"].clone()))
        .collect();
    let last = ids.last().unwrap();
    let answer = stand.get(&format!("/v1/rooms/a/snapshot?min={last}"));
    assert_eq!(answer.header("cache-control"), "private, max-age=1, stale-while-revalidate=4");
    let etag = answer.header("etag").to_owned();
    let snapshot = answer.ok();
    assert_eq!((&snapshot["as_of_event_id"], &snapshot["room_id"]), (last, &json!("a")));
    let shown = snapshot["recent_comments"].as_array().unwrap();
    assert_eq!((shown.len().min(50), shown.last().unwrap()["event_id"].clone()), (ids.len().min(50), last.clone()));
    assert!(shown.iter().all(|c| c.get("client_msg_id").is_none()), "nothing that is the author's alone");
    for key in ["as_of_pseq", "current_score", "scores", "pinned", "counters", "config", "banners"] {
        assert!(snapshot.get(key).is_some(), "{key}");
    }
    let known = stand.call(Request::get("/v1/rooms/a/snapshot").header("if-none-match", etag), "");
    assert_eq!((known.status, known.body.len()), (304, 0));

    let before = &ids[10];
    let page = stand.get(&format!("/v1/rooms/a/snapshot?before={before}&limit=4")).ok();
    assert_eq!(bodies(&page["recent_comments"]), ["c6", "c7", "c8", "c9"]);
    assert_eq!(page["more"], true);
    for bad in [
        "min=-1",
        "min=1e9",
        "min=9007199254740992",
        "before=x",
        "before=5&limit=0",
        "before=5&limit=201",
        "limit=5",
        "min=1&min=2",
    ] {
        assert_eq!(stand.get(&format!("/v1/rooms/a/snapshot?{bad}")).status, 400, "{bad}");
    }
}

#[test]
fn a_snapshot_is_not_older_than_asked_for() {
    let stand = development();
    let ann = stand.token("ann", &["publisher"]);
    for n in 0..20 {
        let id = stand.comment(&ann, "a", &n.to_string(), "text").ok()["event_id"].as_u64().unwrap();
        let snapshot = stand.get(&format!("/v1/rooms/a/snapshot?min={id}")).ok();
        assert!(snapshot["as_of_event_id"].as_u64().unwrap() >= id);
    }
}

#[test]
fn a_closed_door_is_closed_to_snapshots_and_lists_too() {
    let stand = development();
    let (ann, op) = (stand.token("ann", &["publisher"]), stand.token("op", &["region-ops"]));
    stand.put(&op, "private", json!({"anonymous_view": false})).ok();
    stand.put(&op, "unlisted", json!({"listed": false})).ok();
    stand.put(&op, "open", json!({"title": "Open"})).ok();
    assert_eq!(stand.get("/v1/rooms/private/snapshot").code(), (401, "no_token".into()));
    stand.get_as(&ann, "/v1/rooms/private/snapshot").ok();
    let names = |answer: Value| -> Vec<String> {
        answer["rooms"].as_array().unwrap().iter().map(|r| r["room_id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(stand.get("/v1/rooms").ok()), ["open"]);
    assert_eq!(names(stand.get_as(&ann, "/v1/rooms").ok()), ["open", "private"]);
    assert_eq!(configured("").get("/v1/rooms/none/snapshot").code(), (404, "no_such_room".into()));
}

#[test]
fn a_retracted_comment_is_gone_from_the_next_snapshot() {
    let stand = development();
    let (ann, moderator) = (stand.token("ann", &["publisher"]), stand.token("op", &["admin"]));
    let id = stand.comment(&ann, "a", "k1", "spoiler").ok()["event_id"].clone();
    stand.comment(&ann, "a", "k2", "fine").ok();
    stand.get("/v1/rooms/a/snapshot").ok();
    let body = json!({"event_id": id, "reason": "spoiler", "justification": "a test"});
    let event = stand.post(&moderator, "/admin/rooms/a/retract", &body).ok()["event_id"].clone();
    let snapshot = stand.get(&format!("/v1/rooms/a/snapshot?min={event}")).ok();
    assert_eq!(bodies(&snapshot["recent_comments"]), ["fine"]);
    let page = stand.get(&format!("/v1/rooms/a/snapshot?before={event}")).ok();
    assert_eq!(bodies(&page["recent_comments"]), ["fine"]);
}

// ---- operators

#[test]
fn settings_change_by_version_with_a_reason_by_those_who_may() {
    let stand = development();
    let op = stand.token("op", &["region-ops"]);
    let made = stand.put(&op, "a", json!({"title": "Final", "matches": ["m1"], "merge_ms": 50, "comment_age_ms": 500}));
    assert_eq!(made.header("etag"), "\"1\"");
    let made = made.ok();
    assert_eq!((&made["title"], &made["version"], &made["merge_ms"]), (&json!("Final"), &json!(1), &json!(50)));
    let with_version = |version: &str| {
        let request = Request::put("/admin/rooms/a").header("content-type", "application/json");
        let request = request.header("authorization", format!("Bearer {op}")).header("if-match", version);
        stand.call(request, json!({"title": "Next", "merge_ms": null, "justification": "a test"}).to_string())
    };
    assert_eq!(with_version("\"7\"").code(), (412, "stale_version".into()));
    assert_eq!(with_version("seven").code(), (400, "bad_request".into()));
    let changed = with_version("\"1\"").ok();
    assert_eq!((&changed["title"], &changed["merge_ms"]), (&json!("Next"), &Value::Null));
    assert_eq!((&made["comment_age_ms"], &changed["comment_age_ms"]), (&json!(500), &json!(500)));
    let read = stand.get_as(&op, "/admin/rooms/a").ok();
    assert_eq!((&read["title"], &read["counters"]["accepted"]), (&json!("Next"), &json!(0)));

    let send = |token: Option<&str>, body: Value| stand.send("PUT", token, "/admin/rooms/a", &body).code();
    assert_eq!(send(None, json!({})), (401, "no_token".into()));
    assert_eq!(send(Some(&stand.token("ann", &["publisher"])), json!({})), (403, "not_allowed".into()));
    assert_eq!(send(Some(&stand.token("b", &["backend"])), json!({})), (403, "not_allowed".into()));
    assert_eq!(send(Some(&op), json!({"title": "x"})), (422, "bad_field".into()), "no justification");
    assert_eq!(send(Some(&op), json!({"titel": "x", "justification": "j"})), (422, "unknown_key".into()));
    assert_eq!(send(Some(&op), json!({"home_region": "eu", "justification": "j"})), (422, "not_built".into()));
    assert_eq!(
        send(Some(&op), json!({"moderation_policy": "strict", "justification": "j"})),
        (422, "bad_field".into())
    );
    for age in [499, 10_001] {
        let change = json!({"comment_age_ms": age, "justification": "j"});
        assert_eq!(send(Some(&op), change), (422, "bad_field".into()), "{age}");
    }
    assert_eq!(send(Some(&op), json!({"rate": -1, "justification": "j"})), (422, "bad_field".into()));
    assert_eq!(send(Some(&op), json!({"state": "open", "justification": "j"})), (422, "bad_field".into()));
}

#[test]
fn a_room_is_told_how_it_is_sampled() {
    let stand = development();
    let op = stand.token("op", &["region-ops"]);
    let made =
        stand.put(&op, "a", json!({"preset": "danmaku", "weights": {"per_reply": 9, "badges": {"mod": 3}}})).ok();
    assert_eq!((&made["sampling"], &made["preset"], &made["cap"]), (&json!("auto"), &json!("danmaku"), &Value::Null));
    let weights = json!({"base": 1, "per_reply": 9, "per_reaction": 2, "badges": {"mod": 3}});
    assert_eq!((&made["sampling_rate"], &made["weights"]), (&json!(20), &weights));
    let changed = stand.put(&op, "a", json!({"sampling": "none", "sampling_viewers": 100, "cap": 7})).ok();
    assert_eq!((&changed["sampling"], &changed["cap"], &changed["version"]), (&json!("none"), &json!(7), &json!(2)));
    let snapshot = stand.get("/v1/rooms/a/snapshot").ok();
    assert_eq!((&snapshot["config"]["sampled"], &snapshot["config"]["cap"]), (&json!(false), &json!(7)));
    let send = |body: Value| stand.send("PUT", Some(&op), "/admin/rooms/a", &body).code();
    for wrong in [
        json!({"sampling": "sometimes", "justification": "j"}),
        json!({"cap": 101, "justification": "j"}),
        json!({"sampling_rate": 0, "justification": "j"}),
        json!({"preset": "cinema", "justification": "j"}),
        json!({"weights": {"base": 0}, "justification": "j"}),
        json!({"weights": {"luck": 1}, "justification": "j"}),
    ] {
        assert_eq!(send(wrong.clone()), (422, "bad_field".into()), "{wrong}");
    }
}

#[test]
fn what_was_read_of_a_room_may_be_sent_back_and_changes_nothing() {
    let stand = development();
    let op = stand.token("op", &["region-ops"]);
    let slow = json!({"title": "Final", "matches": ["m1"], "slow_mode_seconds": 30, "duration_ms": 600_000,
        "state": "settling", "settle_seconds": 600});
    stand.put(&op, "a", slow).ok();
    let read = stand.get_as(&op, "/admin/rooms/a");
    let tag = read.header("etag").to_owned();
    let read = read.ok();
    assert!(read["until_ts"].is_string() && read["settles_until_ts"].is_string(), "{read}");
    let sent_back = |change: Value, tag: Option<&str>| {
        let mut body = read.clone();
        body["justification"] = json!("a test");
        change.as_object().unwrap().iter().for_each(|(key, value)| body[key] = value.clone());
        let mut request = Request::put("/admin/rooms/a").header("content-type", "application/json");
        request = request.header("authorization", format!("Bearer {op}"));
        if let Some(tag) = tag {
            request = request.header("if-match", tag);
        }
        stand.call(request, body.to_string())
    };
    let settings = |mut all: Value| {
        for name in ["counters", "last_event_id"] {
            all.as_object_mut().unwrap().remove(name);
        }
        all
    };
    for tag in [Some(&*tag), None] {
        assert_eq!(sent_back(json!({}), tag).ok(), settings(read.clone()), "{tag:?}");
    }
    for (change, rule) in [
        (json!({"room_id": "b"}), "room_id"),
        (json!({"until_ts": "2030-01-01T00:00:00.000Z"}), "duration_ms"),
        (json!({"until_ts": "soon"}), "until_ts"),
        (json!({"settles_until_ts": "2030-01-01T00:00:00.000Z"}), "settle_seconds"),
        (json!({"version": "1"}), "version"),
    ] {
        let refused = sent_back(change, None);
        assert_eq!(refused.code(), (422, "bad_field".into()), "{rule}");
    }
    let changed = sent_back(json!({"title": "Next"}), None).ok();
    assert_eq!((&changed["title"], &changed["until_ts"]), (&json!("Next"), &read["until_ts"]));
    assert_eq!(sent_back(json!({}), None).code(), (412, "stale_version".into()), "it has changed since it was read");
}

#[test]
fn a_moderator_of_one_room_changes_what_moderators_may_there_and_nothing_elsewhere() {
    let stand = development();
    let mut claims = Claims::new("mod", clock::wall(), Duration::from_secs(600));
    claims.roles = Some(vec!["room-mod".into()]);
    claims.rooms = Some(vec!["a".into()]);
    let moderator = stand.signing.mint(&claims);
    stand.put(&stand.token("op", &["admin"]), "a", json!({})).ok();
    stand.put(&moderator, "a", json!({"slow_mode_seconds": 5})).ok();
    assert_eq!(stand.put(&moderator, "a", json!({"title": "mine"})).code(), (403, "not_allowed".into()));
    assert_eq!(stand.put(&moderator, "b", json!({"slow_mode_seconds": 5})).code(), (403, "not_allowed".into()));
    let slow = json!({"seconds": 0, "justification": "a test"});
    stand.post(&moderator, "/admin/rooms/a/slow-mode", &slow).ok();
    assert_eq!(stand.post(&moderator, "/admin/rooms/b/slow-mode", &slow).code(), (403, "not_allowed".into()));
    assert_eq!(stand.get_as(&moderator, "/admin/rooms/a/export").code(), (403, "not_allowed".into()));
}

#[test]
fn a_banned_user_is_told_so_until_the_ban_is_lifted() {
    let stand = development();
    let (ann, op) = (stand.token("ann", &["publisher"]), stand.token("op", &["admin"]));
    stand.comment(&ann, "a", "k1", "hi").ok();
    stand.post(&op, "/admin/rooms/a/bans", &json!({"user_id": "ann", "justification": "a test"})).ok();
    assert_eq!(stand.comment(&ann, "a", "k2", "hi").code(), (403, "banned".into()));
    let list = stand.get_as(&op, "/admin/rooms/a/bans").ok();
    assert_eq!((&list["bans"][0]["user_id"], &list["bans"][0]["until_ts"]), (&json!("ann"), &Value::Null));
    assert_eq!(stand.get_as(&ann, "/admin/rooms/a/bans").status, 403);
    stand.send("DELETE", Some(&op), "/admin/rooms/a/bans/ann", &json!({"justification": "a test"})).ok();
    stand.comment(&ann, "a", "k3", "hi").ok();
    let export = stand.get_as(&stand.token("backend", &["backend"]), "/admin/rooms/a/export?include=control");
    let lines: Vec<Value> =
        std::str::from_utf8(&export.body).unwrap().lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let audits = lines.iter().filter(|l| l["type"] == "audit");
    let said: Vec<_> = audits.map(|l| (l["by"].as_str(), l["what"].as_str(), l["justification"].as_str())).collect();
    let last = said.last_chunk::<2>().expect("every write is audited");
    assert_eq!(*last, ["ban", "unban"].map(|what| (Some("op"), Some(what), Some("a test"))));
}

#[test]
fn what_a_room_asks_of_a_comment_is_set_by_its_moderators_and_refused_by_name() {
    let stand = development();
    let (ann, op) = (stand.token("ann", &["publisher"]), stand.token("op", &["admin"]));
    stand.comment(&ann, "a", "k1", "gol").ok();
    let set = stand.put(&op, "a", json!({"unique_comment": true})).ok();
    assert_eq!((&set["unique_comment"], &set["members_only"]), (&json!(true), &Value::Null));
    let again = stand.comment(&ann, "a", "k2", "gol");
    assert_eq!(again.code(), (422, "not_unique".into()));
    assert!(again.json()["retry_after_ms"].as_u64().is_some_and(|ms| ms > 500_000), "{:?}", again.json());
    stand.put(&op, "a", json!({"unique_comment": false, "emote_only": true})).ok();
    assert_eq!(stand.comment(&ann, "a", "k3", "gol").code(), (422, "emote_only".into()));
    stand.comment(&ann, "a", "k3", "⚽").ok();
    stand.put(&op, "a", json!({"emote_only": false, "members_only": "sub"})).ok();
    assert_eq!(stand.comment(&ann, "a", "k4", "gol").code(), (403, "members_only".into()));
    stand.put(&op, "a", json!({"members_only": null})).ok();
    stand.comment(&ann, "a", "k4", "gol").ok();
}

#[test]
fn pins_are_put_and_taken_down_one_at_a_time() {
    let stand = development();
    let (ann, op) = (stand.token("ann", &["publisher"]), stand.token("op", &["admin"]));
    let ids: Vec<u64> =
        ["one", "two"].map(|text| stand.comment(&ann, "a", text, text).ok()["event_id"].as_u64().unwrap()).into();
    let until = "2999-01-01T00:00:00.000Z";
    stand.post(&op, "/admin/rooms/a/pin", &json!({"event_id": ids[0], "until": until, "justification": "j"})).ok();
    stand.post(&op, "/admin/rooms/a/pin", &json!({"event_id": ids[1], "justification": "j"})).ok();
    let settings = stand.get_as(&op, "/admin/rooms/a").ok();
    assert_eq!((&settings["pinned"], &settings["pin_ends"]), (&json!(ids), &json!({ids[0].to_string(): until})));
    let past = json!({"event_id": ids[0], "until": "2001-01-01T00:00:00Z", "justification": "j"});
    assert_eq!(stand.post(&op, "/admin/rooms/a/pin", &past).code(), (422, "bad_field".into()));
    let down = json!({"event_id": ids[0], "justification": "j"});
    stand.send("DELETE", Some(&op), "/admin/rooms/a/pin", &down).ok();
    let settings = stand.get_as(&op, "/admin/rooms/a").ok();
    assert_eq!((&settings["pinned"], &settings["pin_ends"]), (&json!([ids[1]]), &json!({})));
    let mut back = settings.clone();
    back["justification"] = json!("as it was read");
    stand.send("PUT", Some(&op), "/admin/rooms/a", &back).ok();
}

#[test]
fn a_strict_rooms_snapshot_is_kept_by_nobody() {
    let stand = development();
    let op = stand.token("op", &["admin"]);
    stand.put(&op, "a", json!({"moderation_policy": "pre-moderate-strict"})).ok();
    let first = stand.get("/v1/rooms/a/snapshot");
    assert_eq!(first.header("cache-control"), "private, no-store");
    stand.put(&op, "a", json!({"title": "changed"})).ok();
    let second = stand.get("/v1/rooms/a/snapshot");
    assert_ne!(first.header("etag"), second.header("etag"), "not the one of a moment ago");
}

#[test]
fn a_purge_is_one_retract_and_a_shadow_ban_has_none() {
    let stand = development();
    let (ann, op) = (stand.token("ann", &["publisher"]), stand.token("op", &["admin"]));
    stand.comment(&ann, "a", "k1", "hi").ok();
    let purge = json!({"user_id": "ann", "purge_last_minutes": 5, "justification": "a test"});
    let banned = stand.post(&op, "/admin/rooms/a/bans", &purge).ok()["event_id"].as_u64().unwrap();
    let snapshot = stand.get(&format!("/v1/rooms/a/snapshot?min={}", banned + 1)).ok();
    assert_eq!(snapshot["recent_comments"], json!([]));
    let shadow = json!({"user_id": "bob", "shadow": true, "purge_last_minutes": 5, "justification": "a test"});
    assert_eq!(stand.post(&op, "/admin/rooms/a/bans", &shadow).code(), (422, "bad_field".into()));
    let long = json!({"user_id": "bob", "purge_last_minutes": 1_441, "justification": "a test"});
    assert_eq!(stand.post(&op, "/admin/rooms/a/bans", &long).code(), (422, "bad_field".into()));
}

#[test]
fn what_is_said_under_a_shadow_ban_is_acked_and_in_nothing_that_others_read() {
    let stand = development();
    let (ann, op) = (stand.token("ann", &["publisher"]), stand.token("op", &["admin"]));
    let shadow = json!({"user_id": "ann", "shadow": true, "justification": "a test"});
    stand.post(&op, "/admin/rooms/a/bans", &shadow).ok();
    let said = stand.comment(&ann, "a", "k1", "buy this").ok();
    let id = said["event_id"].as_u64().expect("acked with an id as ever");
    let last = stand.comment(&stand.token("bob", &["publisher"]), "a", "k1", "hi").ok()["event_id"].as_u64().unwrap();
    let snapshot = stand.get(&format!("/v1/rooms/a/snapshot?min={last}")).ok();
    assert_eq!(bodies(&snapshot["recent_comments"]), ["hi"]);
    let page = stand.get(&format!("/v1/rooms/a/snapshot?before={}", last + 1)).ok();
    assert_eq!(bodies(&page["recent_comments"]), ["hi"]);
    let export = stand.get_as(&stand.token("backend", &["backend"]), "/admin/rooms/a/export?include=control");
    let lines = std::str::from_utf8(&export.body).unwrap().lines();
    let lines: Vec<Value> = lines.map(|l| serde_json::from_str(l).unwrap()).collect();
    let of = |kind: &str| lines.iter().find(|l| l["type"] == kind).unwrap_or_else(|| panic!("{kind}"));
    assert_eq!(of("ban")["shadow"], true);
    let marked = lines.iter().find(|l| l["event_id"] == id).unwrap();
    assert_eq!((&marked["shadowed"], &marked["audience"]), (&json!(true), &json!("author")));
}

#[test]
fn a_ban_of_the_whole_site_holds_in_every_room_until_it_is_lifted() {
    let stand = development();
    let (ann, op) = (stand.token("ann", &["publisher"]), stand.token("op", &["admin"]));
    let of_room = stand.token("mod", &["room-mod"]);
    let ban = json!({"user_id": "ann", "purge_last_minutes": 5, "justification": "a test"});
    assert_eq!(stand.post(&of_room, "/admin/bans", &ban).status, 403, "a room's moderators have no say elsewhere");
    stand.comment(&ann, "a", "k1", "hi").ok();
    assert!(stand.post(&op, "/admin/bans", &ban).ok()["event_id"].is_u64());
    for room in ["a", "b"] {
        assert_eq!(stand.comment(&ann, room, "k2", "hi").code(), (403, "banned".into()), "{room}");
    }
    let lift = json!({"user_id": "ann", "justification": "a test"});
    stand.send("DELETE", Some(&op), "/admin/bans", &lift).ok();
    assert_eq!(stand.send("DELETE", Some(&op), "/admin/bans", &lift).ok()["event_id"], Value::Null);
    stand.comment(&ann, "b", "k3", "hi").ok();
}

#[test]
fn the_bans_of_the_whole_site_are_listed_by_pages_with_who_put_them_up() {
    let stand = development();
    let (op, ops) = (stand.token("op", &["admin"]), stand.token("ops", &["region-ops"]));
    let list = |query: &str| stand.get_as(&ops, &format!("/admin/bans{query}")).ok();
    assert_eq!(list(""), json!({"bans": [], "found": 0, "more": false}));
    for n in 0..5 {
        let ban = json!({"user_id": format!("u{n}"), "seconds": 600, "reason": "ads", "justification": "a raid"});
        stand.post(&op, "/admin/bans", &ban).ok();
    }
    let shadow = json!({"user_id": "u2", "shadow": true, "justification": "it came back"});
    stand.post(&ops, "/admin/bans", &shadow).ok();
    let lift = json!({"user_id": "u4", "justification": "a mistake"});
    stand.send("DELETE", Some(&op), "/admin/bans", &lift).ok();

    let users = |list: &Value| -> Vec<String> {
        let bans = list["bans"].as_array().unwrap().iter();
        bans.map(|ban| ban["user_id"].as_str().unwrap().to_owned()).collect()
    };
    let all = list("");
    assert_eq!(
        (users(&all), &all["found"], &all["more"]),
        (vec!["u0".into(), "u1".into(), "u2".into(), "u3".into()], &json!(4), &json!(false))
    );
    let first = &all["bans"][0];
    assert_eq!(
        (&first["by"], &first["reason"], &first["justification"]),
        (&json!("op"), &json!("ads"), &json!("a raid"))
    );
    assert!(first["until_ts"].is_string() && first["since_ts"].is_string() && first["shadow"] == false, "{first}");
    let renewed = &all["bans"][2];
    assert_eq!((&renewed["shadow"], &renewed["until_ts"], &renewed["by"]), (&json!(true), &Value::Null, &json!("ops")));
    let page = list("?limit=3");
    assert_eq!((users(&page).len(), &page["found"], &page["more"]), (3, &json!(4), &json!(true)));
    let rest = list("?limit=3&after=u2");
    assert_eq!((users(&rest), &rest["more"]), (vec!["u3".to_owned()], &json!(false)));
    assert_eq!(users(&list("?user=u1")), ["u1"]);
    assert_eq!(list("?user=nobody"), json!({"bans": [], "found": 0, "more": false}));

    for bad in ["?limit=0", "?limit=501", "?limit=x", "?user=", "?after=", "?user=a&user=b"] {
        assert_eq!(stand.get_as(&ops, &format!("/admin/bans{bad}")).code(), (400, "bad_request".into()), "{bad}");
    }
    assert_eq!(stand.get("/admin/bans").code(), (401, "no_token".into()));
    for role in ["viewer", "publisher", "room-mod", "backend"] {
        let token = stand.token("somebody", &[role]);
        assert_eq!(stand.get_as(&token, "/admin/bans").code(), (403, "not_allowed".into()), "{role}");
    }
    // Who put them up is the file's to say, that they hold is not.
    std::fs::remove_file(stand.dir.path().join("audit.jsonl")).unwrap();
    let all = list("");
    assert_eq!(
        (users(&all).len(), &all["bans"][0]["by"], &all["bans"][0]["since_ts"]),
        (4, &Value::Null, &Value::Null)
    );
}

#[test]
fn an_export_is_every_record_of_the_room_in_order() {
    let stand = development();
    let backend = stand.token("backend", &["backend"]);
    let op = stand.token("op", &["admin"]);
    stand.put(&op, "a", json!({"title": "A"})).ok();
    let n = 2_500;
    let acked: Vec<u64> = (0..n)
        .map(|n| stand.comment(&backend, "a", &n.to_string(), "text").ok()["event_id"].as_u64().unwrap())
        .collect();
    stand.comment(&backend, "b", "k", "elsewhere").ok();
    let lines = |query: &str| -> Vec<Value> {
        let answer = stand.get_as(&backend, &format!("/admin/rooms/a/export{query}"));
        assert_eq!(answer.status, 200);
        std::str::from_utf8(&answer.body).unwrap().lines().map(|l| serde_json::from_str(l).unwrap()).collect()
    };
    let comments = |lines: &[Value]| -> Vec<u64> {
        lines.iter().filter(|l| l["type"] == "comment").map(|l| l["event_id"].as_u64().unwrap()).collect()
    };
    let all = lines("?include=control");
    assert_eq!(comments(&all), acked);
    assert!(all.iter().any(|l| l["type"] == "room") && all.iter().all(|l| l["room_id"] == "a"));
    assert!(
        all.iter().filter(|l| l["type"] == "comment").all(|l| l["client_msg_id"].is_string() && l["epoch"].is_u64())
    );
    assert!(lines("").iter().all(|l| l["type"] != "room"));
    let part = format!("?from={}&to={}", acked[10], acked[19]);
    assert_eq!(comments(&lines(&part)), acked[10..20]);
    assert_eq!(comments(&lines("?include=raw")), acked, "nothing was said in a wide room");
    assert_eq!(stand.get("/admin/rooms/a/export").code(), (401, "no_token".into()));
}

// ---- scores

const PROVIDERS: &str = "[[provider]]\nid = \"feed\"\nkid = \"k1\"\nkey = \"0123456789abcdef\"\n\
                         [[provider]]\nid = \"other\"\nkid = \"k1\"\nkey = \"fedcba9876543210\"\n";

fn score(event: &str, revision: Option<u32>, home: u32) -> Value {
    let mut body = json!({"match_id": "m1", "event_id": event, "provider": "feed", "kind": "goal", "score": {"home": home, "away": 0}, "minute": "78"});
    if let Some(revision) = revision {
        body["revision"] = revision.into();
    }
    body
}

fn sign(key: &[u8], path: &str, t: u64, body: &str) -> String {
    use aws_lc_rs::{digest, hmac};
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let signed = format!("POST\n{path}\n{t}\n{}", hex(digest::digest(&digest::SHA256, body.as_bytes()).as_ref()));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), signed.as_bytes());
    format!("t={t},kid=k1,v1={}", hex(tag.as_ref()))
}

impl Stand {
    fn score_as(&self, provider: &str, key: &[u8], at: i64, body: &Value) -> Answer {
        let t = (clock::wall().0 / 1000).saturating_add_signed(at);
        let body = body.to_string();
        let request = Request::post("/v1/score-event").header("content-type", "application/json");
        let signature = sign(key, "/v1/score-event", t, &body);
        self.call(request.header("x-provider-id", provider).header("x-signature", signature), body)
    }
    fn score(&self, body: &Value) -> Answer {
        self.score_as("feed", b"0123456789abcdef", 0, body)
    }
}

#[test]
fn a_score_is_accepted_once_repeated_and_corrected_by_revision() {
    let stand = configured(PROVIDERS);
    let op = stand.token("op", &["region-ops"]);
    assert_eq!(stand.score(&score("g1", Some(1), 1)).code(), (422, "unknown_match".into()));
    stand.put(&op, "final", json!({"matches": ["m1"]})).ok();
    let first = stand.score(&score("g1", Some(1), 1));
    assert_eq!(first.status, 202);
    let again = stand.score(&score("g1", Some(1), 1));
    assert_eq!((again.status, again.json()["event_id"].clone()), (200, first.json()["event_id"].clone()));
    let mut replayed = score("g1", Some(1), 1);
    replayed["historical"] = true.into();
    let replayed = stand.score(&replayed);
    assert_eq!(replayed.status, 200, "a recovery replay of what is known is a repeat");
    assert_eq!(replayed.json()["event_id"], first.json()["event_id"]);
    assert_eq!(stand.score(&score("g1", Some(1), 9)).code(), (409, "payload_conflict".into()));
    assert_eq!(stand.score(&score("g1", Some(3), 2)).status, 202);
    let late = stand.score(&score("g1", Some(2), 1));
    assert_eq!((late.status, &late.json()["superseded"]), (202, &json!(true)));
    let mut minted = score("g2", None, 3);
    minted["minute"] = "90+2:05".into();
    let minted = stand.score(&minted);
    assert_eq!((minted.status, &minted.json()["revision"]), (202, &json!(1)));
    let snapshot = stand.get("/v1/rooms/final/snapshot").ok();
    assert_eq!(snapshot["current_score"]["score"]["home"], 3);
    stand.put(&op, "final", json!({"state": "closed"})).ok();
    assert_eq!(stand.score(&score("g3", Some(1), 4)).code(), (409, "room_state".into()));
}

#[test]
fn a_score_from_anyone_but_its_provider_now_is_401() {
    let stand = configured(PROVIDERS);
    stand.put(&stand.token("op", &["region-ops"]), "final", json!({"matches": ["m1"]})).ok();
    let body = score("g1", Some(1), 1);
    let wrong = (401, "bad_signature".to_owned());
    assert_eq!(stand.score_as("feed", b"another key here", 0, &body).code(), wrong);
    assert_eq!(stand.score_as("other", b"0123456789abcdef", 0, &body).code(), wrong);
    assert_eq!(stand.score_as("other", b"fedcba9876543210", 0, &body).code(), wrong, "the body names another provider");
    assert_eq!(stand.score_as("feed", b"0123456789abcdef", -310, &body).code(), wrong);
    assert_eq!(stand.score_as("feed", b"0123456789abcdef", 310, &body).code(), wrong);
    assert_eq!(stand.send("POST", None, "/v1/score-event", &body).code(), wrong);
    let backend = stand.token("backend", &["backend"]);
    assert_eq!(stand.post(&backend, "/v1/score-event", &body).code(), wrong, "a bearer posts in development mode only");
    let mut other_path = Request::post("/v1/score-event?room=final").header("content-type", "application/json");
    let text = body.to_string();
    let signature = sign(b"0123456789abcdef", "/v1/score-event", clock::wall().0 / 1000, &text);
    other_path = other_path.header("x-provider-id", "feed").header("x-signature", signature);
    assert_eq!(stand.call(other_path, text).code(), (422, "bad_field".into()), "?room= binds in development mode only");
}

#[test]
fn a_malformed_score_is_422_with_its_fields_and_a_large_one_413() {
    let stand = configured(PROVIDERS);
    let mut body = score("g1", Some(0), 1);
    body["kind"] = "dive".into();
    body["minute"] = "<b>".into();
    body["score"]["away"] = (-1).into();
    let answer = stand.score(&body);
    assert_eq!(answer.code(), (422, "bad_field".into()));
    let fields: Vec<String> =
        answer.json()["fields"].as_array().unwrap().iter().map(|f| f["field"].as_str().unwrap().to_owned()).collect();
    assert_eq!(fields, ["revision", "kind", "score.away", "minute"]);
    let mut large = score("g1", Some(1), 1);
    large["data"] = "x".repeat(17 * 1024).into();
    assert_eq!(stand.score(&large).code(), (413, "too_large".into()));
}

#[test]
fn a_provider_in_a_loop_is_slowed_at_the_door() {
    let stand = configured(PROVIDERS);
    stand.put(&stand.token("op", &["region-ops"]), "final", json!({"matches": ["m1"]})).ok();
    let refused = (0..300).map(|n| stand.score(&score(&format!("g{n}"), Some(1), 1))).find(|a| a.status == 429);
    let refused = refused.expect("a burst of 300 is too many");
    assert_eq!(refused.code(), (429, "rate_limited".into()));
    assert!(refused.header("retry-after").parse::<u64>().unwrap() >= 1);
}

#[test]
fn in_development_mode_a_backend_posts_scores_and_binds_the_match() {
    let stand = development();
    let backend = stand.token("backend", &["backend"]);
    let answer = stand.post(&backend, "/v1/score-event?room=replayed", &score("g1", Some(1), 1));
    assert_eq!((answer.status, &answer.json()["room_id"]), (202, &json!("replayed")));
    assert_eq!(stand.post(&backend, "/v1/score-event", &score("g2", Some(1), 2)).status, 202, "bound from now on");
    let ann = stand.token("ann", &["publisher"]);
    assert_eq!(
        stand.post(&ann, "/v1/score-event?room=replayed", &score("g3", Some(1), 1)).code(),
        (403, "not_allowed".into())
    );
}

// ---- the process and its pages

#[test]
fn health_metrics_and_description_are_there() {
    let stand = development();
    stand.get("/healthz/live").ok();
    let ready = stand.get("/healthz/ready").ok();
    assert_eq!((&ready["ready"], &ready["durability"]), (&json!(true), &json!("none")));
    stand.get("/openapi.json").ok();
    let text = String::from_utf8(stand.get("/metrics").body.to_vec()).unwrap();
    assert!(text.contains("grandstand_control_answers_total{status=\"2xx\"} 3"), "{text}");
    stand.tallies.of(&grandstand_core::names::RoomId::parse("named-room").unwrap());
    assert!(
        !String::from_utf8(stand.get("/metrics").body.to_vec()).unwrap().contains("named-room"),
        "no label of a room"
    );
    let inner = configured("internal_listen = \"127.0.0.1:0\"\n");
    for path in ["/metrics", "/healthz/ready"] {
        assert_eq!(inner.get(path).code(), (404, "not_found".into()), "{path} is on the internal address");
    }
    inner.get("/healthz/live").ok();
}

#[test]
fn pages_come_with_a_policy_that_runs_nothing_else() {
    let stand = development();
    for path in ["/", "/rooms/any-room"] {
        let page = stand.get(path);
        assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"));
        assert!(page.header("content-security-policy").starts_with("default-src 'none'; script-src 'self'"));
        assert!(!page.header("content-security-policy").contains("unsafe"));
        assert_eq!((page.header("x-content-type-options"), page.header("cache-control")), ("nosniff", "no-store"));
    }
    assert_eq!(stand.get("/assets/room.js").header("content-type"), "text/javascript; charset=utf-8");
    for path in ["/assets/nothing.js", "/assets/..%2findex.html", "/assets/ROOM.js"] {
        assert_eq!(stand.get(path).code(), (404, "not_found".into()), "{path}");
    }
    assert_eq!(stand.get("/rooms/UPPER").code(), (400, "bad_room".into()));
}

#[test]
fn a_page_for_a_frame_names_who_may_frame_it_and_an_overlay_judges_its_parameters() {
    let stand = configured("[embed]\norigins = [\"https://club.example.com\"]\n");
    let framed = stand.get("/embed/any-room");
    assert_eq!((framed.status, framed.header("content-type")), (200, "text/html; charset=utf-8"));
    let policy = framed.header("content-security-policy");
    assert!(
        policy.contains("frame-ancestors 'self' https://club.example.com:443;") && !policy.contains("unsafe"),
        "{policy}"
    );
    assert!(!framed.headers.contains_key("x-frame-options"));
    for path in ["/", "/rooms/any-room", "/console", "/overlay/any-room"] {
        let page = stand.get(path);
        assert!(page.header("content-security-policy").contains("frame-ancestors 'none';"), "{path}");
        assert_eq!(page.header("x-frame-options"), "DENY", "{path}");
    }
    assert_eq!(development().get("/embed/any-room").header("x-frame-options"), "SAMEORIGIN");
    assert_eq!(stand.get("/embed/UPPER").code(), (400, "bad_room".into()));

    for query in ["", "?theme=plain", "?max=1&fade=0&theme=light", "?max=100&fade=3600"] {
        assert_eq!(stand.get(&format!("/overlay/any-room{query}")).status, 200, "{query}");
    }
    for query in [
        "?theme=",
        "?theme=Dark",
        "?max=0",
        "?max=101",
        "?max=",
        "?fade=3601",
        "?fade=1.5",
        "?max=1&max=1",
        "?lines=5",
        "?token=x",
    ] {
        assert_eq!(stand.get(&format!("/overlay/any-room{query}")).code(), (400, "bad_request".into()), "{query}");
    }
    assert_eq!(stand.get("/overlay/UPPER").code(), (400, "bad_room".into()));
}

#[test]
fn the_demo_is_one_at_a_time_and_for_development_mode() {
    let stand = development();
    let first = stand.call(Request::post("/v1/demo"), "");
    assert_eq!(first.status, 201);
    let room = first.json()["room_id"].as_str().unwrap().to_owned();
    let second = stand.call(Request::post("/v1/demo"), "");
    assert_eq!((second.status, second.json()["room_id"].as_str()), (200, Some(room.as_str())));
    let snapshot = stand.get(&format!("/v1/rooms/{room}/snapshot")).ok();
    assert!(snapshot["recent_comments"].as_array().unwrap().len() >= 3);
    assert_eq!(configured("").call(Request::post("/v1/demo"), "").code(), (403, "not_allowed".into()));
}

#[test]
fn answers_leave_over_the_link_part_by_part_as_the_gateway_asks() {
    let (deps, join, _dir) = deps(&Sources::default());
    let token = |roles: &[&str]| {
        let mut claims = Claims::new("backend", clock::wall(), Duration::from_secs(600));
        claims.roles = Some(roles.iter().map(|r| (*r).to_owned()).collect());
        format!("Bearer {}", deps.signing.as_ref().unwrap().mint(&claims))
    };
    let backend = token(&["backend"]);
    let (came, wait) = std::sync::mpsc::channel();
    let mailbox = Arc::new(Mailbox::new(64, move || came.send(()).unwrap_or_default()));
    deps.workers.set(WorkerId(0), mailbox.clone());
    let (requests, taken) = tokio::sync::mpsc::channel(control::REQUESTS_MAX);
    let running = control::start(deps.clone(), taken, None).unwrap();
    let conn = ConnKey { worker: WorkerId(0), slot: 3, generation: 9 };
    let send = |request: http::request::Builder, body: String| {
        let request = request.header("host", "localhost").header("authorization", &backend);
        let request = request.header("content-type", "application/json").body(Bytes::from(body)).unwrap();
        let flow = Arc::new(HttpFlow::new());
        let peer = SocketAddr::from(([127, 0, 0, 1], 4000));
        assert!(requests.try_send(HttpRequest { request, peer, conn, flow: flow.clone() }).is_ok(), "there is room");
        flow
    };
    let mut parts = std::collections::VecDeque::new();
    let mut next = || loop {
        if let Some(part) = parts.pop_front() {
            return part;
        }
        wait.recv_timeout(Duration::from_secs(10)).expect("a part comes");
        parts.extend(mailbox.take().into_iter().map(|item| match item {
            ToWorker::Http { conn: to, part } => {
                assert_eq!(to, conn);
                part
            }
            _ => panic!("control sends answers only"),
        }));
    };
    send(Request::post("/v1/rooms/a/comments"), json!({"client_msg_id": "k", "body": "text"}).to_string());
    let HttpPart::Whole { head, body } = next() else { panic!("a small body comes whole") };
    assert_eq!(head.status, 200);
    let id = serde_json::from_slice::<Value>(&body).unwrap()["event_id"].as_u64().unwrap();
    let flow = send(Request::get("/admin/rooms/a/export"), String::new());
    let HttpPart::Head(head) = next() else { panic!("a long body comes in chunks") };
    assert_eq!(head.status, 200);
    let HttpPart::Chunk(line) = next() else { panic!("the first chunk may go at once") };
    assert_eq!(serde_json::from_slice::<Value>(&line).unwrap()["event_id"].as_u64(), Some(id));
    flow.left();
    assert!(matches!(next(), HttpPart::End));
    running.stop();
    join.stop();
}

#[test]
fn the_internal_address_serves_health_and_metrics_and_nothing_else() {
    use std::io::{Read, Write};
    let text = "internal_listen = \"127.0.0.1:0\"\n";
    let (deps, join, _dir) = deps(&Sources { file: Some(("stand.toml".into(), text.into())), ..Sources::default() });
    let (_requests, taken) = tokio::sync::mpsc::channel(1);
    let running = control::start(deps, taken, None).unwrap();
    let get = |path: &str| {
        let mut stream = std::net::TcpStream::connect(running.internal.unwrap()).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(get("/metrics").contains("\ngrandstand_ready 1\n"));
    assert!(get("/healthz/ready").starts_with("HTTP/1.1 200"));
    assert!(get("/v1/rooms").starts_with("HTTP/1.1 404"));
    assert!(get("/metrics x").starts_with("HTTP/1.1 400"));
    running.stop();
    join.stop();
}
