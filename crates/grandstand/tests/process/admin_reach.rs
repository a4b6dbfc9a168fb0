//! Whether the terminal does all that the API has: the API's description is walked, and what no command asks for is named.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::support::{Http, Wire};

const OPENAPI: &str = include_str!("../../../server/src/control/openapi.json");

/// Operations that no command asks for, and why.
const NOT_BY_COMMAND: &[(&str, &str, &str)] = &[];

/// Members of a body that no command gives, and why.
const NOT_GIVEN: &[(&str, &str, &str, &str)] = &[];

/// One of each kind, so that together they make every call with every member of its body.
const COMMANDS: &[&str] = &[
    "rooms --q x --order viewers",
    "room get derby",
    "room put derby title=x",
    "slow-mode derby 10 --for 5m",
    "state derby live",
    "ban derby u1 --for 10m --purge 5m --reason spam",
    "ban derby u1 --shadow",
    "timeout derby u1 10m",
    "unban derby u1",
    "bans derby",
    "retract derby 7 --reason spam",
    "retract derby --user u1",
    "retract derby --all",
    "held list derby",
    "held approve derby 7",
    "held deny derby 7",
    "reports derby",
    "pin derby 7",
    "pin derby 7 --for 5m",
    "pin derby 7 --off",
    "unique-comment derby on",
    "emote-only derby off",
    "members-only derby subscriber",
    "blackout derby GB IE",
    "site bans --user u1",
    "site ban u1 --for 7d --purge 5m --reason spam",
    "site ban u1 --shadow",
    "site unban u1",
    "access list",
    "access revoke --user u1 --for 1d",
    "access revoke --session s1",
    "access revoke --key k1",
    "access restore --user u1",
    "access restore --session s1",
    "access restore --key k1",
    "access outage 1h",
    "access outage-end",
    "banner list",
    "banner put soon --for 5m --room derby",
    "banner end 7",
    "webhook list",
    "webhook put https://hooks.example.com/x --rooms match:* --events score_event,gift",
    "webhook change wh-0123456789ab --receiver https://hooks.example.com/y --rooms derby --all-events --enable --new-secret",
    "webhook test wh-0123456789ab",
    "webhook end wh-0123456789ab",
    "gateways",
    "providers",
    "providers keys feed",
    "providers keys feed add --kid k2",
    "providers keys feed remove k1",
    "matches",
    "match m1 providers",
    "match m1 set one --stand-by two --yes",
    "match m1 set one --confirm 1-0123456789abcdef",
    "match m1 scores --limit 5",
    "match m1 type --key k --kind goal --state confirmed --score 2-1 --minute 55 --yes",
    "match m1 withdraw k --yes",
    "admission local 500 --burst 700",
    "drain local 60",
    "shedding local --cap 2 --for 5m --expected 1h",
    "gifts derby --from 1 --to 9 --user u1 --currency EUR",
    "erase u1",
    "ledger derby --user u1",
    "ledger verify",
    "audit --room derby",
    "history derby u1",
    "archive derby --format bilibili --start 2026-05-17T20:14:33.122Z",
    "export derby --include control",
];

/// A call as it came.
struct Call {
    method: String,
    path: String,
    members: BTreeSet<String>,
}

/// A server that agrees to everything and remembers what it was asked.
fn agreeing() -> (SocketAddr, Arc<Mutex<Vec<Call>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (addr, heard) = (listener.local_addr().expect("an address"), Arc::<Mutex<Vec<Call>>>::default());
    let calls = heard.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let calls = calls.clone();
            std::thread::spawn(move || drop(agree(stream, &calls)));
        }
    });
    (addr, heard)
}

/// Until the caller goes.
fn agree(stream: TcpStream, heard: &Mutex<Vec<Call>>) -> std::io::Result<()> {
    let mut http = Http::over(Wire::Plain(stream));
    loop {
        let line = http.line()?;
        let mut words = line.split(' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let headers = http.headers()?;
        let length = headers.get("content-length").map_or(0, |value| value.parse().expect("a length"));
        let mut body = vec![0; length];
        http.stream.read_exact(&mut body)?;
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let members = body.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect();
        let path = target.split('?').next().unwrap_or_default().to_owned();
        heard.lock().expect("nobody panics with it").push(Call { method: method.to_owned(), path, members });
        let answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
        http.stream.get_mut().write_all(answer)?;
    }
}

fn command(addr: SocketAddr, words: &str, more: &[&str]) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_grandstand"));
    command.arg("admin").args(words.split(' ')).args(more).args(["-j", "a test", "--json"]);
    command.env("GRANDSTAND_URL", format!("http://{addr}")).env("GRANDSTAND_TOKEN", "a.b.c");
    command.output().expect("the binary can be started")
}

/// The path of the description that this one is.
fn described<'a>(paths: &'a serde_json::Map<String, Value>, path: &str) -> Option<&'a str> {
    let is = |template: &str| {
        let (mut of, mut said) = (template.split('/'), path.split('/'));
        loop {
            match (of.next(), said.next()) {
                (None, None) => return true,
                (Some(of), Some(said)) if of == said || of.starts_with('{') && !said.is_empty() => {}
                _ => return false,
            }
        }
    };
    // A word of its own is more than a placeholder.
    let fits = paths.keys().filter(|template| is(template));
    fits.min_by_key(|template| template.matches('{').count()).map(String::as_str)
}

#[test]
fn every_operation_of_the_operators_api_is_made_by_some_command_with_every_member() {
    let (addr, heard) = agreeing();
    for words in COMMANDS {
        let out = command(addr, words, &[]);
        assert!(out.status.success(), "{words}: {}", String::from_utf8_lossy(&out.stderr));
    }
    let document: Value = serde_json::from_str(OPENAPI).expect("it is JSON");
    let paths = document["paths"].as_object().expect("paths");
    let mut made: BTreeMap<(String, &str), BTreeSet<String>> = BTreeMap::new();
    for call in heard.lock().expect("nobody panics with it").iter() {
        let path = described(paths, &call.path);
        let path = path.unwrap_or_else(|| panic!("{} {} is not described", call.method, call.path));
        made.entry((call.method.clone(), path)).or_default().extend(call.members.iter().cloned());
    }
    let mut lacking = Vec::new();
    for (path, item) in paths.iter().filter(|(path, _)| path.starts_with("/admin/")) {
        for (method, operation) in item.as_object().expect("operations") {
            let method = method.to_ascii_uppercase();
            let excused = NOT_BY_COMMAND.iter().any(|(m, p, why)| *m == method && p == path && !why.is_empty());
            let given = made.get(&(method.clone(), path.as_str()));
            match (given, excused) {
                (None, false) => lacking.push(format!("{method} {path}: no command asks for it")),
                (Some(_), true) => {
                    lacking.push(format!("{method} {path}: a command asks for it, so it needs no excuse"))
                }
                _ => {}
            }
            // A room's settings are given by name, whatever they are called: `room put`.
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"]["properties"];
            for name in schema.as_object().into_iter().flatten().map(|(name, _)| name) {
                let excused = NOT_GIVEN.iter().any(|(m, p, n, _)| *m == method && p == path && n == name);
                if given.is_some_and(|given| !given.contains(name)) && !excused {
                    lacking.push(format!("{method} {path}: no command gives {name}"));
                }
            }
        }
    }
    for (method, path, _) in NOT_BY_COMMAND {
        if paths.get(*path).is_none_or(|item| item.get(method.to_ascii_lowercase()).is_none()) {
            lacking.push(format!("{method} {path} is excused and not described"));
        }
    }
    assert!(lacking.is_empty(), "{}", lacking.join("\n"));
}

#[test]
fn a_dry_run_of_any_command_changes_nothing() {
    let (addr, heard) = agreeing();
    for words in COMMANDS {
        let out = command(addr, words, &["--dry-run"]);
        assert!(out.status.success(), "{words}: {}", String::from_utf8_lossy(&out.stderr));
    }
    let changed: Vec<String> = heard
        .lock()
        .expect("nobody panics with it")
        .iter()
        .filter(|call| call.method != "GET")
        .map(|call| format!("{} {}", call.method, call.path))
        .collect();
    assert!(changed.is_empty(), "{changed:?}");
}
