//! The keys of score providers, changed while the real binary runs: a rotation without a gap, a key that is refused at once, and
//! what a restart and several gateway processes make of both.

use std::os::unix::fs::PermissionsExt as _;
use std::time::SystemTime;

use grandstand_client::sign::Signer;
use serde_json::{Value, json};

use crate::admin::{admin, ok, said};
use crate::banners::call;
use crate::processes::{kill, shard_pid};
use crate::support::Server;

const KEYS: &str = "/admin/providers/feed/keys";

/// The status of a score event that is signed so.
fn score(server: &Server, kid: &str, key: &str, event: &str) -> u16 {
    let body = json!({"match_id": "m1", "event_id": event, "provider": "feed", "kind": "goal", "score": {"home": 1, "away": 0}});
    let body = body.to_string().into_bytes();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs();
    let signature = Signer::new("feed", kid, key.as_bytes()).signature("POST", "/v1/score-event", now, &body);
    let mut http = server.http();
    let headers = [("Content-Type", "application/json"), ("X-Provider-Id", "feed"), ("X-Signature", &*signature)];
    http.send("POST", "/v1/score-event", &headers, &body).expect("it is sent");
    http.answer().expect("an answer").status
}

fn text<'a>(answer: &'a Value, name: &str) -> &'a str {
    answer[name].as_str().unwrap_or_else(|| panic!("{name} of {answer}"))
}

#[test]
fn a52_a_provider_changes_over_without_a_gap_and_its_old_key_is_refused_at_once_and_after_a_kill() {
    for args in [&[][..], &["--gateways", "2"]] {
        let mut server = Server::unstarted(&[], &[]);
        let config = server.folder().join("grandstand.toml");
        std::fs::write(&config, "[[provider]]\nid = \"feed\"\nkid = \"2026-1\"\nkey = \"sixteen bytes of a key\"\n")
            .expect("written");
        let config = config.display().to_string();
        server.set_args(&[&["--config", &*config], args].concat());
        server.restart();
        let root = server.token("root", &["admin"]);
        server.put_room("final", &root, json!({"matches": ["m1"]}));
        assert_eq!(score(&server, "2026-1", "sixteen bytes of a key", "e1"), 202);

        let made = call(&server, "POST", KEYS, &root, &json!({"kid": "2026-2", "justification": "yearly change"}));
        assert_eq!(made.status, 200, "{:?}", made.json);
        let secret = text(&made.json, "key").to_owned();
        assert_eq!(score(&server, "2026-2", &secret, "e2"), 202, "the new one");
        assert_eq!(score(&server, "2026-1", "sixteen bytes of a key", "e3"), 202, "and the old one");
        assert_eq!(score(&server, "2026-2", "sixteen bytes of a key", "e4"), 401, "each by its own secret");
        let both = call(&server, "GET", KEYS, &root, &Value::Null).json;
        let from: Vec<_> =
            both["keys"].as_array().expect("keys").iter().map(|k| (text(k, "kid"), text(k, "from"))).collect();
        assert_eq!(from, [("2026-1", "configuration"), ("2026-2", "api")]);

        let gone =
            call(&server, "DELETE", &format!("{KEYS}/2026-1"), &root, &json!({"justification": "it is changed"}));
        assert_eq!(gone.status, 200, "{:?}", gone.json);
        assert_eq!(score(&server, "2026-1", "sixteen bytes of a key", "e5"), 401, "the very next request");
        // The process that checks signatures dies.
        if args.is_empty() {
            server.kill();
            server.restart();
        } else {
            kill(shard_pid(&server));
        }
        let listed = server.call_until_there("GET", "/admin/providers", Some(&root), None).json;
        assert_eq!(listed["providers"][0]["kids"], json!(["2026-2"]));
        assert_eq!(score(&server, "2026-1", "sixteen bytes of a key", "e6"), 401, "though the configuration has it");
        assert_eq!(score(&server, "2026-2", &secret, "e7"), 202);

        // The secret was told once, and lies in one file that nobody else can read.
        let audit = call(&server, "GET", "/admin/audit", &root, &Value::Null).json;
        let of =
            |action: &str| audit["audit"].as_array().expect("rows").iter().find(|row| row["action"] == action).cloned();
        let line = of("provider key").expect("it is audited");
        assert_eq!((&line["operator"], &line["given"]["kid"]), (&json!("root"), &json!("2026-2")));
        assert_eq!(of("provider key end").expect("it is audited")["justification"], "it is changed");
        let listed = call(&server, "GET", KEYS, &root, &Value::Null).json;
        assert_eq!(text(&listed["taken_back"][0], "kid"), "2026-1");
        let holding: Vec<String> = std::fs::read_dir(server.data())
            .expect("the folder")
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| path.is_file())
            .filter(|path| std::fs::read(path).expect("a file").windows(secret.len()).any(|w| w == secret.as_bytes()))
            .map(|path| path.file_name().expect("a name").to_string_lossy().into_owned())
            .collect();
        assert_eq!(holding, ["provider-keys.json"]);
        let file = server.data().join("provider-keys.json");
        assert_eq!(std::fs::metadata(file).expect("it").permissions().mode() & 0o777, 0o600);
        assert!(!audit.to_string().contains(&secret) && !listed.to_string().contains(&secret));
        assert!(!server.stderr().contains(&secret), "not in what is logged either");
    }
}

#[test]
fn keys_are_an_admins_to_hand_out_and_every_refusal_names_its_rule() {
    let server = Server::start(&[], &[]);
    let (root, ops) = (server.token("root", &["admin"]), server.token("olive", &["region-ops"]));
    let of = |token: &str, method: &str, path: &str, body: Value| {
        let body = Some(&body).filter(|body| !body.is_null());
        let answer = server.http().call(method, path, Some(token), body).expect("an answer");
        (answer.status, answer.json["code"].as_str().unwrap_or_default().to_owned())
    };
    let why = || json!({"justification": "x"});
    assert_eq!(of(&ops, "POST", KEYS, why()), (403, "not_allowed".into()));
    assert_eq!(of(&ops, "DELETE", &format!("{KEYS}/a"), why()), (403, "not_allowed".into()));
    assert_eq!(of(&ops, "GET", KEYS, Value::Null).0, 200, "their names are no secret");
    assert_eq!(of(&server.token("v", &["viewer"]), "GET", KEYS, Value::Null).0, 403);
    assert_eq!(of(&root, "POST", KEYS, json!({})), (422, "bad_field".into()));
    for kid in ["", "a,b", "a=b"] {
        assert_eq!(
            of(&root, "POST", KEYS, json!({"kid": kid, "justification": "x"})),
            (422, "bad_field".into()),
            "{kid}"
        );
    }
    assert_eq!(of(&root, "POST", "/admin/providers/operator/keys", why()), (400, "bad_request".into()));
    for n in 0..4 {
        let body = json!({"kid": format!("k{n}"), "justification": "x"});
        assert_eq!(of(&root, "POST", KEYS, body.clone()).0, 200);
        assert_eq!(of(&root, "POST", KEYS, body), (422, "bad_field".into()), "twice");
    }
    assert_eq!(of(&root, "POST", KEYS, why()), (422, "bad_field".into()), "five of one provider");
    assert_eq!(of(&root, "DELETE", &format!("{KEYS}/nobody"), why()), (404, "not_found".into()));
}

#[test]
fn a_terminal_makes_a_key_into_a_file_signs_with_it_and_takes_it_back() {
    let server = Server::start(&[], &[]);
    let root = server.token("root", &["admin"]);
    server.put_room("final", &root, json!({"matches": ["m1"]}));
    let file = server.folder().join("feed.key");
    let path = file.display().to_string();
    let add = ["providers", "keys", "feed", "add", "--kid", "k1", "-o", &path, "-j", "a new provider"];
    let told = ok(&server, &root, &add);
    assert_eq!((&told["kid"], &told["key"]), (&json!("k1"), &Value::Null));
    assert_eq!(std::fs::metadata(&file).expect("it").permissions().mode() & 0o777, 0o600);
    let secret = std::fs::read_to_string(&file).expect("a secret is text");
    assert_eq!(score(&server, "k1", &secret, "e1"), 202);
    let again = admin(&server, Some(&root), &add);
    assert!(!again.status.success(), "nothing is written over");
    let out = admin(&server, Some(&root), &["providers", "keys", "feed", "add", "-j", "a second one"]);
    assert_eq!(said(&out).lines().last().map(str::len), Some(64), "the secret: {}", said(&out));
    let listed = said(&admin(&server, Some(&root), &["providers", "keys", "feed"]));
    assert!(listed.contains("k1") && listed.contains("root") && !listed.contains(&secret), "{listed}");
    assert!(said(&admin(&server, Some(&root), &["providers"])).contains("feed"));
    ok(&server, &root, &["providers", "keys", "feed", "remove", "k1", "-j", "it was lost"]);
    assert_eq!(score(&server, "k1", &secret, "e2"), 401);
    let code = admin(&server, Some(&root), &["providers", "keys", "feed", "remove", "k1", "-j", "again"]).status.code();
    assert_eq!(code, Some(4));
}
