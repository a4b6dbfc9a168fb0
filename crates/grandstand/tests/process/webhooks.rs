//! Outgoing webhooks against a receiver that takes, refuses, hangs, dies and comes back, with the server killed in between.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::crypto::aws_lc_rs::default_provider as aws_lc_rs_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use crate::processes::metric;
use crate::support::{Answer, Http, LIMIT, Server, Wire, until};
use crate::tls::{Pair, self_signed};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Take,
    Refuse(u16),
    /// 429, and to be left alone for so many seconds.
    Later(u64),
    /// The connection is held and nothing is said.
    Hang,
}

/// One POST as it came.
#[derive(Clone, Debug)]
struct Heard {
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
    json: Value,
    taken: bool,
    at: Instant,
}

#[derive(Clone)]
struct Receiver {
    addr: SocketAddr,
    mode: Arc<Mutex<Mode>>,
    heard: Arc<Mutex<Vec<Heard>>>,
    held: Arc<Mutex<Vec<Http>>>,
}

impl Receiver {
    fn start() -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("an address");
        let receiver =
            Receiver { addr, mode: Arc::new(Mutex::new(Mode::Take)), heard: Arc::default(), held: Arc::default() };
        let this = receiver.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let this = this.clone();
                std::thread::spawn(move || drop(this.serve(stream)));
            }
        });
        receiver
    }

    fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut http = Http::over(Wire::Plain(stream));
        let line = http.line()?;
        assert!(line.starts_with("POST /hook HTTP/1.1"), "{line}");
        let headers = http.headers()?;
        let mut body = vec![0; headers.get("content-length").and_then(|n| n.parse().ok()).expect("a length")];
        http.stream.read_exact(&mut body)?;
        let mode = *self.mode.lock().expect("nobody panics with it");
        let json = serde_json::from_slice(&body).expect("JSON");
        let taken = mode == Mode::Take;
        self.heard.lock().expect("nobody panics with it").push(Heard {
            headers,
            body,
            json,
            taken,
            at: Instant::now(),
        });
        let (status, more) = match mode {
            Mode::Take => (204, String::new()),
            Mode::Refuse(status) => (status, String::new()),
            Mode::Later(seconds) => (429, format!("Retry-After: {seconds}\r\n")),
            Mode::Hang => {
                self.held.lock().expect("nobody panics with it").push(http);
                return Ok(());
            }
        };
        let answer = format!("HTTP/1.1 {status} X\r\n{more}Location: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n");
        http.stream.get_mut().write_all(answer.as_bytes())
    }

    fn set(&self, mode: Mode) {
        *self.mode.lock().expect("nobody panics with it") = mode;
        // Whoever hung is let go.
        self.held.lock().expect("nobody panics with it").clear();
    }

    fn url(&self) -> String {
        format!("http://{}/hook", self.addr)
    }

    fn n_heard(&self) -> usize {
        self.heard.lock().expect("nobody panics with it").len()
    }

    fn taken(&self) -> Vec<Heard> {
        self.heard.lock().expect("nobody panics with it").iter().filter(|heard| heard.taken).cloned().collect()
    }

    /// What was taken once this event was.
    fn until_taken(&self, id: u64) -> Vec<Heard> {
        until(&format!("event {id} is taken"), || self.taken().iter().any(|heard| event_id(heard) == id));
        self.taken()
    }
}

fn event_id(heard: &Heard) -> u64 {
    heard.json["data"]["event_id"].as_u64().expect("an id")
}

/// Repeats aside, in order of first arrival.
fn once(heard: &[Heard], room: &str, kind: &str) -> Vec<u64> {
    let mut ids: Vec<u64> = Vec::new();
    for one in heard.iter().filter(|h| h.json["data"]["room_id"] == room && h.json["type"] == kind) {
        if !ids.contains(&event_id(one)) {
            ids.push(event_id(one));
        }
    }
    ids
}

fn holds(secret: &str, heard: &Heard) -> bool {
    let key = STANDARD.decode(secret.strip_prefix("whsec_").expect("a secret")).expect("Base64");
    let mut signed = format!("{}.{}.", heard.headers["webhook-id"], heard.headers["webhook-timestamp"]).into_bytes();
    signed.extend_from_slice(&heard.body);
    let wanted = STANDARD.encode(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), &signed));
    heard.headers["webhook-signature"].split(' ').any(|signature| signature == format!("v1,{wanted}"))
}

const ALLOW: (&str, &str) = ("GRANDSTAND_WEBHOOKS_ALLOW", "127.0.0.0/8");

fn ask(server: &Server, method: &str, path: &str, token: &str, body: Value) -> Answer {
    server.http().call(method, &format!("/admin/webhooks{path}"), Some(token), Some(&body)).expect("an answer")
}

fn put_up(server: &Server, chief: &str, body: Value) -> (String, String) {
    let answer = ask(server, "POST", "", chief, body);
    assert_eq!(answer.status, 200, "{:?}", answer.json);
    let text = |name: &str| answer.json[name].as_str().expect("text").to_owned();
    (text("webhook_id"), text("secret"))
}

fn listed(server: &Server, chief: &str) -> Vec<Value> {
    let answer = server.http().call("GET", "/admin/webhooks", Some(chief), None).expect("an answer");
    assert_eq!(answer.status, 200, "{:?}", answer.json);
    answer.json["webhooks"].as_array().expect("a list").clone()
}

fn goal(server: &Server, token: &str, room: &str, n: u32) -> u64 {
    let body = json!({"match_id": format!("m-{room}"), "event_id": format!("e{n}"), "provider": "desk", "kind": "goal",
        "score": {"home": n, "away": 0}, "minute": "1"});
    let path = format!("/v1/score-event?room={room}");
    let answer = server.http().call("POST", &path, Some(token), Some(&body)).expect("an answer");
    assert_eq!(answer.status, 202, "{:?}", answer.json);
    answer.json["event_id"].as_u64().expect("an id")
}

fn admin(server: &Server, chief: &str, path: &str, body: Value) -> u64 {
    let answer = server.http().call("POST", path, Some(chief), Some(&body)).expect("an answer");
    assert_eq!(answer.status, 200, "{:?}", answer.json);
    answer.json["event_id"].as_u64().unwrap_or_default()
}

#[test]
fn what_happens_is_told_in_order_and_signed_and_no_comment_is() {
    let server = Server::start(&[], &[ALLOW]);
    let (token, chief) = (server.token("ann", &["backend"]), server.token("op", &["admin"]));
    let before = goal(&server, &token, "derby", 1);
    let (all, some) = (Receiver::start(), Receiver::start());
    let (id, secret) = put_up(&server, &chief, json!({"url": all.url(), "justification": "a test"}));
    let of_cup = json!({"url": some.url(), "rooms": ["cup:*"], "events": ["score_event"], "justification": "a test"});
    let (_, other) = put_up(&server, &chief, of_cup);

    let first = goal(&server, &token, "derby", 2);
    server.published("derby", &token, "k1", "a comment");
    let gift =
        json!({"gift_id": "g1", "user": {"id": "mia"}, "item": "rose", "amount_micros": 5_000_000, "currency": "EUR"});
    let given = server.http().call("POST", "/v1/rooms/derby/gifts", Some(&token), Some(&gift)).expect("an answer");
    assert_eq!(given.status, 200, "{:?}", given.json);
    let ban = admin(&server, &chief, "/admin/rooms/derby/bans", json!({"user_id": "troll", "justification": "a test"}));
    let retract = admin(&server, &chief, "/admin/rooms/derby/retract", json!({"all": true, "justification": "a test"}));
    let cup = goal(&server, &token, "cup:1", 1);
    admin(&server, &chief, "/admin/banners", json!({"body": "soon", "justification": "a test"}));
    let last = goal(&server, &token, "derby", 3);

    let heard = all.until_taken(last);
    until("the banner of no room is told", || all.taken().iter().any(|h| h.json["type"] == "banner"));
    let of_derby: Vec<&Heard> = heard.iter().filter(|h| h.json["data"]["room_id"] == "derby").collect();
    assert!(of_derby.is_sorted_by(|a, b| event_id(a) < event_id(b)), "each once and in order: {of_derby:#?}");
    let kinds: Vec<&str> = of_derby.iter().map(|h| h.json["type"].as_str().expect("a type")).collect();
    for wanted in ["score_event", "gift", "ban", "retract", "audit"] {
        assert!(kinds.contains(&wanted), "{wanted} in {kinds:?}");
    }
    assert!(!kinds.contains(&"comment"), "{kinds:?}");
    let ids: Vec<u64> = of_derby.iter().map(|h| event_id(h)).collect();
    assert!([first, ban, retract, last].iter().all(|id| ids.contains(id)) && !ids.contains(&before), "{ids:?}");
    for one in &heard {
        assert!(holds(&secret, one) && !holds(&other, one), "{one:?}");
        assert_eq!(one.headers["webhook-id"], format!("evt_{}", event_id(one)));
        assert_eq!(one.json["timestamp"], one.json["data"]["ts"]);
    }
    let of_some = some.until_taken(cup);
    assert_eq!(of_some.iter().map(event_id).collect::<Vec<_>>(), [cup], "what it asked for and nothing else");

    // A new secret signs beside the old one.
    let changed =
        ask(&server, "PUT", &format!("/{id}"), &chief, json!({"new_secret": true, "justification": "a test"}));
    let fresh = changed.json["secret"].as_str().expect("a secret").to_owned();
    let next = goal(&server, &token, "derby", 4);
    let heard = all.until_taken(next);
    let one = heard.iter().find(|h| event_id(h) == next).expect("it is there");
    assert!(fresh != secret && holds(&fresh, one) && holds(&secret, one));

    let told = listed(&server, &chief);
    assert!(told.iter().all(|w| w.get("secret").is_none()) && told.len() == 2, "{told:?}");
    let audit = std::fs::read_to_string(server.data().join("audit.jsonl")).expect("the audit");
    assert!(audit.contains("\"webhook\"") && !audit.contains("whsec_"), "{audit}");
    assert!(metric(&server, "grandstand_webhook_posts_total{result=\"delivered\"}") >= heard.len() as u64);
    let ended = ask(&server, "DELETE", &format!("/{id}"), &chief, json!({"justification": "a test"}));
    assert_eq!((ended.status, listed(&server, &chief).len()), (200, 1));
}

#[test]
fn a_receiver_that_refuses_hangs_and_comes_back_was_told_everything_though_the_server_was_killed() {
    let mut server = Server::start(&[], &[ALLOW]);
    let (token, chief) = (server.token("ann", &["backend"]), server.token("op", &["admin"]));
    let receiver = Receiver::start();
    let (_, secret) =
        put_up(&server, &chief, json!({"url": receiver.url(), "events": ["score_event"], "justification": "a test"}));
    let mut told: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    let mut n = 0;
    for mode in [Mode::Take, Mode::Refuse(500), Mode::Hang, Mode::Refuse(307), Mode::Take] {
        receiver.set(mode);
        let before = receiver.n_heard();
        for room in ["derby", "cup"] {
            for _ in 0..4 {
                n += 1;
                // The room does not wait for anybody.
                told.entry(room).or_default().push(goal(&server, &token, room, n));
            }
        }
        until("the receiver is asked", || receiver.n_heard() > before);
        if mode == Mode::Hang || mode == Mode::Refuse(307) {
            server.kill();
            server.restart();
        }
    }
    for (room, ids) in &told {
        let heard = receiver.until_taken(*ids.last().expect("some"));
        assert_eq!(once(&heard, room, "score_event"), *ids, "{room}: everything, and in order");
        assert!(heard.iter().all(|one| holds(&secret, one)));
        // A repeat is known by its id.
        let of_room = heard.iter().filter(|h| h.json["data"]["room_id"] == *room);
        assert!(of_room.clone().all(|h| h.headers["webhook-id"] == format!("evt_{}", event_id(h))));
    }
    let one = &listed(&server, &chief)[0];
    assert_eq!((&one["enabled"], &one["failing_since_ts"]), (&json!(true), &Value::Null), "{one}");
}

#[test]
fn what_waits_for_a_receiver_does_not_name_who_was_erased_meanwhile() {
    let server = Server::start(&[], &[ALLOW]);
    let (token, chief) = (server.token("ann", &["backend"]), server.token("op", &["admin"]));
    let receiver = Receiver::start();
    receiver.set(Mode::Refuse(503));
    let events = json!(["gift", "score_event"]);
    put_up(&server, &chief, json!({"url": receiver.url(), "events": events, "justification": "a test"}));
    for n in 0..2 {
        let gift = json!({"gift_id": format!("g{n}"), "user": {"id": "quill", "name": "Quill"}, "item": "rose",
            "amount_micros": 5_000_000, "currency": "EUR"});
        let given = server.http().call("POST", "/v1/rooms/derby/gifts", Some(&token), Some(&gift)).expect("an answer");
        assert_eq!(given.status, 200, "{:?}", given.json);
    }
    until("a gift is told, and not taken", || receiver.n_heard() > 0);
    let why = json!({"justification": "a request of the person"});
    let erased = server.http().call("DELETE", "/admin/users/quill", Some(&chief), Some(&why)).expect("an answer");
    assert_eq!(erased.status, 202, "{:?}", erased.json);
    until("the erase is done", || {
        let erasures = server.http().call("GET", "/admin/erasures", Some(&chief), None).expect("an answer");
        erasures.json["pending"] == json!([])
    });
    let last = goal(&server, &token, "derby", 1);
    receiver.set(Mode::Take);
    let heard = receiver.until_taken(last);
    let texts: Vec<_> = heard.iter().map(|one| String::from_utf8_lossy(&one.body)).collect();
    assert!(!texts.iter().any(|text| text.to_lowercase().contains("quill")), "{texts:#?}");
}

#[test]
fn a_receiver_that_is_slow_or_asks_for_time_is_given_it_and_no_other_waits() {
    let server = Server::start(&[], &[ALLOW]);
    let (token, chief) = (server.token("ann", &["backend"]), server.token("op", &["admin"]));
    let (slow, busy, quick) = (Receiver::start(), Receiver::start(), Receiver::start());
    slow.set(Mode::Hang);
    busy.set(Mode::Later(3));
    for receiver in [&slow, &busy, &quick] {
        let events = json!(["score_event"]);
        put_up(&server, &chief, json!({"url": receiver.url(), "events": events, "justification": "a test"}));
    }
    let first = goal(&server, &token, "derby", 1);
    until("both are asked", || slow.n_heard() > 0 && busy.n_heard() > 0);
    let told: Vec<u64> = (2..12).map(|n| goal(&server, &token, "derby", n)).collect();
    quick.until_taken(*told.last().expect("some"));
    assert!(slow.taken().is_empty() && busy.taken().is_empty());
    until("what it asks for is told", || {
        let why = listed(&server, &chief).iter().map(|w| w["last_failure"]["why"].to_string()).collect::<String>();
        why.contains("answered with status 429 and asks to be left alone for 3 s")
    });
    let asked = busy.heard.lock().expect("nobody panics with it")[0].at;
    busy.set(Mode::Take);
    // By itself it would be tried again after a second.
    let taken = busy.until_taken(first);
    assert!(taken[0].at.duration_since(asked).as_millis() >= 3_000, "{:?}", taken[0].at.duration_since(asked));
    slow.set(Mode::Take);
    for receiver in [&slow, &busy] {
        let heard = receiver.until_taken(*told.last().expect("some"));
        assert_eq!(once(&heard, "derby", "score_event"), [&[first], &told[..]].concat());
    }
}

#[test]
fn what_waits_when_a_receiver_asks_for_less_is_not_told() {
    let server = Server::start(&[], &[ALLOW]);
    let (token, chief) = (server.token("ann", &["backend"]), server.token("op", &["admin"]));
    let receiver = Receiver::start();
    receiver.set(Mode::Refuse(500));
    let rooms = json!(["derby", "cup"]);
    let (id, _) = put_up(&server, &chief, json!({"url": receiver.url(), "rooms": rooms, "justification": "a test"}));
    for n in 1..4 {
        goal(&server, &token, "cup", n);
        goal(&server, &token, "derby", n);
    }
    until("it is asked", || receiver.n_heard() > 0);
    let less = json!({"rooms": ["derby"], "events": ["score_event"], "justification": "a test"});
    assert_eq!(ask(&server, "PUT", &format!("/{id}"), &chief, less).status, 200);
    let last = goal(&server, &token, "derby", 4);
    receiver.set(Mode::Take);
    let heard = receiver.until_taken(last);
    assert_eq!(once(&heard, "derby", "score_event").len(), 4);
    // What was out already is not called back.
    assert!(once(&heard, "cup", "score_event").len() <= 1, "{heard:#?}");
}

#[test]
fn a_receiver_is_tried_by_an_operator_and_what_came_of_it_is_told() {
    let server = Server::start(&[], &[ALLOW]);
    let (fan, chief) = (server.token("ann", &["publisher"]), server.token("op", &["admin"]));
    let receiver = Receiver::start();
    let (id, secret) = put_up(&server, &chief, json!({"url": receiver.url(), "justification": "a test"}));
    let why = || json!({"justification": "does it arrive?"});
    let tried = ask(&server, "POST", &format!("/{id}/test"), &chief, why());
    assert_eq!((tried.status, &tried.json), (200, &json!({"webhook_id": id, "delivered": true, "why": null})));
    let heard = receiver.taken().into_iter().find(|heard| heard.json["type"] == "test").expect("it came");
    assert!(holds(&secret, &heard) && heard.headers["webhook-id"].starts_with("test_"), "{heard:?}");
    assert_eq!(heard.json["data"], json!({"type": "test", "webhook_id": id}));
    receiver.set(Mode::Refuse(401));
    let failed = ask(&server, "POST", &format!("/{id}/test"), &chief, why());
    assert_eq!(
        (&failed.json["delivered"], &failed.json["why"]),
        (&json!(false), &json!("it answered with status 401"))
    );
    // A try says nothing of what is told by itself.
    assert!(listed(&server, &chief)[0]["failing_since_ts"].is_null());
    assert_eq!(ask(&server, "POST", &format!("/{id}/test"), &fan, why()).status, 403);
    assert_eq!(ask(&server, "POST", "/wh-0123456789ab/test", &chief, why()).status, 404);
    let audit = std::fs::read_to_string(server.data().join("audit.jsonl")).expect("the audit");
    assert!(audit.contains("\"webhook test\"") && !audit.contains("whsec_"), "{audit}");
}

#[test]
fn a_receiver_that_takes_nothing_is_disabled_and_goes_on_where_it_was_left() {
    let server = Server::start(&[], &[ALLOW, ("GRANDSTAND_WEBHOOKS_GIVE_UP_SECONDS", "2")]);
    let (token, chief) = (server.token("ann", &["backend"]), server.token("op", &["admin"]));
    let receiver = Receiver::start();
    let (id, _) =
        put_up(&server, &chief, json!({"url": receiver.url(), "events": ["score_event"], "justification": "a test"}));
    receiver.set(Mode::Refuse(503));
    let mut told = vec![goal(&server, &token, "derby", 1)];
    let state = |name: &str| listed(&server, &chief)[0][name].clone();
    until("it fails", || !state("failing_since_ts").is_null());
    assert_eq!(metric(&server, "grandstand_webhook_receivers{state=\"failing\"}"), 1);
    until("it is given up", || state("enabled") == false);
    assert!(
        state("disabled_why").as_str().expect("why").contains("nothing was delivered"),
        "{}",
        state("disabled_why")
    );
    assert_eq!(metric(&server, "grandstand_webhook_receivers{state=\"disabled\"}"), 1);
    assert_eq!(metric(&server, "grandstand_webhook_given_up_total"), 1);
    told.push(goal(&server, &token, "derby", 2));
    receiver.set(Mode::Take);
    let enabled = ask(&server, "PUT", &format!("/{id}"), &chief, json!({"enabled": true, "justification": "a test"}));
    assert_eq!(enabled.status, 200, "{:?}", enabled.json);
    let heard = receiver.until_taken(told[1]);
    assert_eq!(once(&heard, "derby", "score_event"), told);
    // One that says it is gone is believed at once.
    receiver.set(Mode::Refuse(410));
    goal(&server, &token, "derby", 3);
    let start = Instant::now();
    until("it is gone", || state("enabled") == false);
    assert!(start.elapsed() < LIMIT && state("disabled_why").as_str().expect("why").contains("410"));
}

/// Takes posts by TLS with this certificate, and keeps the bodies.
fn secure_receiver(pair: &Pair) -> (SocketAddr, Arc<Mutex<Vec<Value>>>) {
    let certificate = CertificateDer::from_pem_file(&pair.certificate).expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(&pair.key).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("a pair");
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (addr, heard) = (listener.local_addr().expect("an address"), Arc::<Mutex<Vec<Value>>>::default());
    let kept = heard.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let session = ServerConnection::new(config.clone()).expect("a session");
            let mut stream = BufReader::new(StreamOwned::new(session, stream));
            let mut length = 0;
            let mut line = String::new();
            // Who does not believe the certificate says nothing more.
            while stream.read_line(&mut line).is_ok_and(|n| n > 2) {
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().expect("a length");
                }
                line.clear();
            }
            let mut body = vec![0; length];
            if length > 0 && stream.read_exact(&mut body).is_ok() {
                kept.lock().expect("nobody panics with it").push(serde_json::from_slice(&body).expect("JSON"));
                let _ = stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
                let _ = stream.get_mut().flush();
            }
        }
    });
    (addr, heard)
}

#[test]
fn a_receiver_by_tls_is_told_when_its_certificate_is_believed_and_not_otherwise() {
    let folder = tempfile::tempdir().expect("a folder");
    let pair = self_signed(folder.path(), "hooks");
    let (addr, heard) = secure_receiver(&pair);
    let ca = pair.certificate.display().to_string();
    for believed in [false, true] {
        let mut env = vec![("GRANDSTAND_WEBHOOKS_ALLOW", "127.0.0.0/8")];
        if believed {
            env.push(("GRANDSTAND_WEBHOOKS_CA_FILE", &ca));
        }
        let server = Server::start(&[], &env);
        let (token, chief) = (server.token("ann", &["backend"]), server.token("op", &["admin"]));
        let url = format!("https://localhost:{}/hook", addr.port());
        put_up(&server, &chief, json!({"url": url, "events": ["score_event"], "justification": "a test"}));
        let id = goal(&server, &token, "derby", 1);
        let is_told = || heard.lock().expect("nobody panics with it").iter().any(|e| e["data"]["event_id"] == id);
        if believed {
            until("it is told", is_told);
        } else {
            until("it fails", || !listed(&server, &chief)[0]["last_failure"].is_null());
            assert!(!is_told(), "an event went to a stranger: {heard:?}");
        }
    }
}

#[test]
fn an_address_that_nobody_allowed_is_refused_by_its_rule_and_what_is_wrong_is_named() {
    let server = Server::start(&[], &[]);
    let (fan, chief) = (server.token("ann", &["publisher"]), server.token("op", &["admin"]));
    let why = "a test";
    for url in [
        "http://127.0.0.1:1/hook",
        "https://127.0.0.1/hook",
        "https://169.254.169.254/latest/meta-data",
        "https://[::1]/",
        "https://[::ffff:10.0.0.1]/",
        "https://2130706433/",
        "http://hooks.example.com/",
        "https://user@hooks.example.com/",
        "https://hooks.example.com/#x",
        "ftp://hooks.example.com/",
        "",
    ] {
        let answer = ask(&server, "POST", "", &chief, json!({"url": url, "justification": why}));
        assert_eq!((answer.status, answer.json["code"].as_str()), (422, Some("bad_field")), "{url}: {:?}", answer.json);
        assert_eq!(answer.json["fields"][0]["field"], "url", "{url}: {:?}", answer.json);
    }
    let good = "https://hooks.example.com/x";
    for (body, field) in [
        (json!({"justification": why}), "url"),
        (json!({"url": good}), "justification"),
        (json!({"url": good, "rooms": ["Bad Room"], "justification": why}), "rooms"),
        (json!({"url": good, "rooms": [], "justification": why}), "rooms"),
        (json!({"url": good, "events": ["comment"], "justification": why}), "events"),
    ] {
        let answer = ask(&server, "POST", "", &chief, body.clone());
        assert_eq!(
            (answer.status, answer.json["fields"][0]["field"].as_str()),
            (422, Some(field)),
            "{body} {:?}",
            answer.json
        );
    }
    assert_eq!(ask(&server, "POST", "", &fan, json!({"url": good, "justification": why})).status, 403);
    assert_eq!(
        ask(&server, "PUT", "/wh-0123456789ab", &chief, json!({"enabled": true, "justification": why})).status,
        404
    );
    for n in 0..16 {
        put_up(&server, &chief, json!({"url": format!("{good}{n}"), "justification": why}));
    }
    let full = ask(&server, "POST", "", &chief, json!({"url": good, "justification": why}));
    assert_eq!((full.status, full.json["code"].as_str()), (503, Some("overloaded")), "{:?}", full.json);
    // A place in the file is no secret of others, and the file is its owner's alone.
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(server.data().join("webhooks.json")).expect("the file").permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
}
