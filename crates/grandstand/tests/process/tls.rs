//! The public listener with a certificate: every rung over TLS, coming back by a ticket, a new certificate while viewers watch,
//! and callers that break the handshake, stretch it or never heard of it.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::version::TLS12;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion};
use serde_json::json;

use crate::storm::{load, report};
use crate::support::{Http, LIMIT, Server, Wire, connected};
use crate::viewer::{RUNGS, Rung, Viewer, ids};

/// How many handshakes cost a signature.
const FULL: &str = "grandstand_gateway_tls_handshakes_total{session=\"full\"}";

pub struct Pair {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// A certificate for localhost that vouches for itself, with its key.
pub fn self_signed(folder: &Path, name: &str) -> Pair {
    let pair = Pair { certificate: folder.join(format!("{name}.pem")), key: folder.join(format!("{name}.key")) };
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30"])
        .args(["-subj", &format!("/CN={name}"), "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout"])
        .arg(&pair.key)
        .arg("-out")
        .arg(&pair.certificate)
        .output()
        .expect("openssl is installed");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    pair
}

/// A client that believes this certificate alone, and keeps tickets.
fn trusting(certificate: &Path) -> Arc<ClientConfig> {
    client_of(certificate, rustls::DEFAULT_VERSIONS)
}

fn client_of(certificate: &Path, versions: &[&'static SupportedProtocolVersion]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate).expect("a certificate")).expect("a root");
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(versions)
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

/// A server that shows the certificate `shown` of its folder.
pub fn secure(args: &[&str]) -> Server {
    let mut server = Server::unstarted(&[], &[]);
    let pair = self_signed(server.folder(), "shown");
    let files = [format!("tls.certificate={}", pair.certificate.display()), format!("tls.key={}", pair.key.display())];
    let mut all = vec!["--set", &files[0], "--set", &files[1]];
    all.extend(args);
    server.set_args(&all);
    server.trust = Some(trusting(&pair.certificate));
    server.restart();
    server
}

pub fn metric(server: &Server, line: &str) -> u64 {
    let answer = server.http().call("GET", "/metrics", None, None).expect("an answer");
    let text = String::from_utf8(answer.body).expect("text");
    let value = text.lines().find_map(|l| l.strip_prefix(line)).unwrap_or_else(|| panic!("no {line} in {text}"));
    value.trim().parse().expect("a number")
}

/// Waits until the server has said so.
fn says(server: &Server, text: &str) {
    let start = Instant::now();
    while !server.stderr().contains(text) {
        assert!(start.elapsed() < LIMIT, "it never said {text:?}:\n{}", server.stderr());
        std::thread::yield_now();
    }
}

#[test]
fn every_rung_watches_resumes_and_is_told_the_end_over_tls() {
    let mut server = secure(&[]);
    let token = server.token("backend", &["backend"]);
    let first = server.published("safe", &token, "k1", "first");
    let second = server.published("safe", &token, "k2", "second");
    for rung in RUNGS {
        let mut viewer =
            Viewer::open(&server, rung, "safe", Some(&first.to_string()), None).unwrap_or_else(|a| panic!("{a:?}"));
        assert_eq!(ids(&viewer.until_id(second)), [second], "{rung:?} from the ring");
        let live = server.published("safe", &token, &format!("{rung:?}"), "live");
        viewer.until_id(live);
    }
    // From the log of a new process, whose tickets the client does not have.
    server.stop();
    server.restart();
    let third = server.published("safe", &token, "k3", "third");
    for rung in RUNGS {
        let mut viewer =
            Viewer::open(&server, rung, "safe", Some(&first.to_string()), None).unwrap_or_else(|a| panic!("{a:?}"));
        let seen = ids(&viewer.until_id(third));
        assert_eq!((seen.first(), seen.last(), seen.len()), (Some(&second), Some(&third), 5), "{rung:?} from the log");
    }
    let mut watching = Viewer::open(&server, Rung::WebSocket, "safe", None, None).unwrap_or_else(|a| panic!("{a:?}"));
    server.signal("TERM");
    let close = watching.until(|e| e["type"] == "close").pop().expect("a close");
    assert_eq!(close["code"], 4112, "{close}");
    assert!(server.ended(Duration::from_secs(10)).success());
}

#[test]
fn who_comes_back_resumes_by_its_ticket_on_any_worker_and_after_a_new_certificate() {
    let server = secure(&["--set", "workers=2"]);
    for _ in 0..6 {
        // The ticket comes with the first answer.
        let answer = server.http().call("GET", "/healthz/live", None, None).expect("an answer");
        assert_eq!(answer.status, 200);
    }
    assert_eq!(metric(&server, FULL), 1, "one signature for seven connections");
    server.signal("HUP");
    says(&server, "read again");
    assert_eq!(metric(&server, FULL), 1);
}

#[test]
fn a_new_certificate_is_shown_on_sighup_and_a_bad_one_never() {
    let mut server = secure(&[]);
    let token = server.token("backend", &["backend"]);
    let mut watching = Viewer::open(&server, Rung::Sse, "cert", None, None).unwrap_or_else(|a| panic!("{a:?}"));
    let (shown, key) = (server.folder().join("shown.pem"), server.folder().join("shown.key"));
    let old = trusting(&shown);
    let fresh = self_signed(server.folder(), "fresh");
    std::fs::copy(&fresh.certificate, &shown).expect("copied");

    // Half of the change is a certificate without its key.
    server.signal("HUP");
    says(&server, "do not belong together");
    Wire::tls(server.addr, &old).expect("the old one is shown on");

    std::fs::copy(&fresh.key, &key).expect("copied");
    server.signal("HUP");
    says(&server, "read again");
    let fault = Wire::tls(server.addr, &trusting_again(&old)).err().expect("the old one is gone");
    assert_eq!(fault.kind(), std::io::ErrorKind::InvalidData, "{fault}");
    server.trust = Some(trusting(&fresh.certificate));
    let id = server.published("cert", &token, "k", "after the change");
    watching.until_id(id);

    std::fs::write(&shown, "not a certificate").expect("written");
    server.signal("HUP");
    says(&server, "holds no certificate in PEM");
    server.published("cert", &token, "k2", "still served");
}

#[test]
fn f28_where_no_file_can_be_opened_a_new_certificate_is_not_read_and_the_old_one_is_shown_on() {
    let server = secure(&[]);
    let (shown, key) = (server.folder().join("shown.pem"), server.folder().join("shown.key"));
    let old = trusting(&shown);
    let fresh = self_signed(server.folder(), "fresh");
    std::fs::copy(&fresh.certificate, &shown).expect("copied");
    std::fs::copy(&fresh.key, &key).expect("copied");
    // Every number that is free is above it.
    let allow = |n: &str| {
        let set =
            Command::new("prlimit").args(["--pid", &server.pid().to_string(), &format!("--nofile={n}:")]).status();
        assert!(set.expect("prlimit is installed").success());
    };
    allow("3");
    server.signal("HUP");
    says(&server, "Too many open files");
    allow("1000");
    Wire::tls(server.addr, &old).expect("the old one is shown on");
    server.signal("HUP");
    says(&server, "read again");
    assert!(Wire::tls(server.addr, &trusting_again(&old)).is_err(), "the new one is shown");
}

/// The same trust without the tickets, so that a certificate is asked for.
fn trusting_again(config: &Arc<ClientConfig>) -> Arc<ClientConfig> {
    let mut config = ClientConfig::clone(config);
    config.resumption = rustls::client::Resumption::disabled();
    Arc::new(config)
}

#[test]
fn a_certificate_that_cannot_be_used_refuses_to_start_and_says_why() {
    let server = Server::unstarted(&[], &[]);
    let folder = server.folder();
    let (one, other) = (self_signed(folder, "one"), self_signed(folder, "other"));
    let junk = folder.join("junk.pem");
    std::fs::write(&junk, "-----BEGIN CERTIFICATE-----\nnonsense").expect("written");
    let gone = folder.join("gone.pem");
    let cases: [(Option<&Path>, Option<&Path>, &str); 7] = [
        (Some(&one.certificate), None, "tls.certificate: needs tls.key as well"),
        (None, Some(&one.key), "tls.key: needs tls.certificate as well"),
        (Some(&one.certificate), Some(&other.key), "do not belong together"),
        (Some(&gone), Some(&one.key), "gone.pem cannot be read"),
        (Some(&one.key), Some(&one.key), "one.key holds no certificate in PEM"),
        (Some(&one.certificate), Some(&one.certificate), "one.pem holds no unencrypted private key in PEM"),
        (Some(&junk), Some(&one.key), "junk.pem is not PEM"),
    ];
    for (n, (certificate, key, why)) in cases.into_iter().enumerate() {
        let file = folder.join(format!("{n}.toml"));
        let mut text = String::from("listen = \"127.0.0.1:0\"\n[tls]\n");
        for (name, path) in [("certificate", certificate), ("key", key)] {
            // Paths of a file are relative to it.
            let name_of = |p: &Path| p.file_name().and_then(|f| f.to_str()).map(str::to_owned).expect("a name");
            text += &path.map_or_else(String::new, |p| format!("{name} = {:?}\n", name_of(p)));
        }
        std::fs::write(&file, text).expect("written");
        for words in [&["config", "check"][..], &["serve", "--config"]] {
            let out = Command::new(env!("CARGO_BIN_EXE_grandstand")).args(words).arg(&file).output().expect("started");
            let said = String::from_utf8_lossy(&out.stderr);
            assert!(!out.status.success() && said.contains(why), "{words:?} case {n}: {said}");
            assert!(out.stdout.is_empty(), "{words:?} case {n} never said ready or ok");
        }
    }
}

#[test]
fn plain_http_on_the_tls_port_is_told_so_and_the_connection_ends() {
    let server = secure(&[]);
    let mut http = Http::connect(server.addr).expect("the kernel accepts");
    let answer = http.call("GET", "/v1/rooms/a/sse", None, None).expect("an answer");
    assert_eq!((answer.status, answer.json["code"].as_str()), (400, Some("bad_request")));
    assert!(answer.json["detail"].as_str().is_some_and(|d| d.contains("https://")), "{:?}", answer.json);
    assert_eq!(http.stream.read(&mut [0]).expect("an end, not a reset"), 0);

    // Neither HTTP nor TLS, and a handshake's first byte with nonsense after it: an alert, then the end.
    // The same after the beginning of a ClientHello in a record of its own.
    let mut begun = client_hello(&server).1;
    begun.truncate(5 + 40);
    begun[3..5].copy_from_slice(&[0, 40]);
    begun.extend_from_slice(&[99; 40]);
    for nonsense in [&[0, 1, 2, 3][..], &[22, 9, 9, 9, 9, 9, 9, 9, 9], &begun] {
        let mut socket = connected(server.addr).expect("the kernel accepts");
        socket.write_all(nonsense).expect("sent");
        let mut said = Vec::new();
        socket.read_to_end(&mut said).expect("an end, not a reset");
    }
    assert_eq!(metric(&server, "grandstand_gateway_tls_failed_total"), 4);
    assert_eq!(metric(&server, "grandstand_gateway_assertions_failed_total"), 0);
}

#[test]
fn a_handshake_that_takes_longer_than_five_seconds_is_closed() {
    let server = secure(&[]);
    let hello = client_hello(&server).1;
    let start = Instant::now();
    let mut stalled: Vec<_> = [0, 1, 40]
        .into_iter()
        .map(|n| {
            let mut socket = connected(server.addr).expect("the kernel accepts");
            socket.write_all(&hello[..n]).expect("sent");
            socket
        })
        .collect();
    for socket in &mut stalled {
        let mut said = Vec::new();
        // A reset is an end as well: what it said was never read to its end.
        let _ = socket.read_to_end(&mut said);
        assert!(said.is_empty(), "nothing was to be answered");
    }
    let took = start.elapsed();
    assert!(took > Duration::from_millis(4_500) && took < Duration::from_secs(8), "{took:?}");
}

/// A client's session and its first record.
pub fn client_hello(server: &Server) -> (ClientConnection, Vec<u8>) {
    let trust = server.trust.clone().expect("the server speaks TLS");
    let name = ServerName::try_from("localhost").expect("a name");
    let mut session = ClientConnection::new(trust, name).expect("a session");
    let mut hello = Vec::new();
    session.write_tls(&mut hello).expect("written to memory");
    (session, hello)
}

#[test]
fn a_client_hello_in_many_records_and_single_bytes_is_understood() {
    let server = secure(&[]);
    let (session, hello) = client_hello(&server);
    let mut socket = connected(server.addr).expect("the kernel accepts");
    // A record's head is its type, version and length: 5 bytes.
    let (head, body) = hello.split_at(5);
    for part in body.chunks(13) {
        let mut record = head[..3].to_vec();
        record.extend_from_slice(&(part.len() as u16).to_be_bytes());
        record.extend_from_slice(part);
        for byte in record {
            socket.write_all(&[byte]).expect("sent");
        }
    }
    let mut http = Http::over(Wire::Tls(Box::new(StreamOwned::new(session, socket))));
    assert_eq!(http.call("GET", "/healthz/live", None, None).expect("an answer").status, 200);
}

#[test]
fn tls_1_2_is_spoken_only_where_it_is_asked_for() {
    for asked in [false, true] {
        let mut server = secure(if asked { &["--set", "tls.version_min=1.2"] } else { &[] });
        let old = client_of(&server.folder().join("shown.pem"), &[&TLS12]);
        if !asked {
            let fault = Wire::tls(server.addr, &old).err().expect("refused");
            assert!(fault.to_string().contains("ProtocolVersion"), "{fault}");
            continue;
        }
        server.trust = Some(old);
        let token = server.token("backend", &["backend"]);
        let first = server.published("old", &token, "k", "by the old way");
        for rung in RUNGS {
            let mut viewer =
                Viewer::open(&server, rung, "old", Some(&first.to_string()), None).unwrap_or_else(|a| panic!("{a:?}"));
            let live = server.published("old", &token, &format!("{rung:?}"), "live");
            viewer.until_id(live);
        }
        assert_eq!(metric(&server, FULL), 1, "it comes back by a ticket as well");
    }
}

#[test]
fn bodies_of_many_records_new_keys_and_pages_longer_than_the_socket_come_whole() {
    let server = secure(&["--set", "durability=none"]);
    let token = server.token("backend", &["backend"]);
    let mut http = server.http();
    for n in 0..5 {
        // Longer than one read, in records of 16 KiB; refused for its length alone after all of it was read.
        let body = json!({"client_msg_id": "long", "body": "x".repeat(60_000)});
        let answer = http.call("POST", "/v1/rooms/long/comments", Some(&token), Some(&body)).expect("an answer");
        let counted = (answer.json["code"].as_str(), answer.json["count"].as_u64());
        assert_eq!(counted, (Some("too_long"), Some(60_000)), "{n}: {:?}", answer.json);
        let Wire::Tls(tls) = http.stream.get_mut() else { panic!("it speaks TLS") };
        tls.conn.refresh_traffic_keys().expect("TLS 1.3 has new keys");
    }
    let text = "y".repeat(300);
    for n in 0..1_000 {
        let body = json!({"client_msg_id": format!("k{n}"), "body": text});
        let answer = http.call("POST", "/v1/rooms/long/comments", Some(&token), Some(&body)).expect("an answer");
        assert_eq!(answer.status, 200, "{:?}", answer.json);
    }
    let operator = server.token("op", &["admin", "backend"]);
    let comments = server.export("long", &operator).iter().filter(|line| line["body"] == text.as_str()).count();
    assert_eq!(comments, 1_000);
}

#[test]
fn an_end_in_words_of_the_session_ends_the_connection_in_the_same_words() {
    let server = secure(&[]);
    let mut http = server.http();
    assert_eq!(http.call("GET", "/healthz/live", None, None).expect("an answer").status, 200);
    let Wire::Tls(tls) = http.stream.get_mut() else { panic!("it speaks TLS") };
    tls.conn.send_close_notify();
    tls.flush().expect("sent");
    assert_eq!(tls.read(&mut [0]).expect("close_notify: a cut would be an error"), 0);

    // With the request before it in one segment: answered first.
    let mut http = server.http();
    let Wire::Tls(tls) = http.stream.get_mut() else { panic!("it speaks TLS") };
    tls.conn.writer().write_all(b"GET /healthz/live HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sealed");
    tls.conn.send_close_notify();
    tls.flush().expect("sent");
    tls.sock.shutdown(Shutdown::Write).expect("half closed");
    assert_eq!(http.answer().expect("an answer").status, 200);
}

#[test]
fn who_does_not_read_over_tls_is_told_what_it_missed_and_misses_nothing_else() {
    // 5 000 comments of 600 bytes as events: the sockets of both sides hold some 300 KB of them, the ring 4 MB.
    const N_BEHIND: usize = 5_000;
    let server = secure(&["--set", "durability=none"]);
    let token = server.token("backend", &["backend"]);
    let mut slow = Viewer::open(&server, Rung::WebSocket, "slow", None, None).unwrap_or_else(|a| panic!("{a:?}"));
    assert_eq!(slow.next().expect("hello")["type"], "hello");
    let mut http = server.http();
    let text = "x".repeat(400);
    let (start, mut published) = (Instant::now(), Vec::new());
    while published.len() < N_BEHIND {
        let body = json!({"client_msg_id": format!("k{}", published.len()), "body": text});
        let answer = http.call("POST", "/v1/rooms/slow/comments", Some(&token), Some(&body)).expect("an answer");
        assert_eq!(answer.status, 200, "{:?}", answer.json);
        published.push(answer.json["event_id"].as_u64().expect("an id"));
        assert!(start.elapsed() < LIMIT, "too slow to be of use");
    }
    // Comments younger than 2 s wait for a slow viewer: the server's own clock has to pass over them.
    std::thread::sleep(Duration::from_millis(2_500));
    published.push(server.published("slow", &token, "last", "young enough to be shown"));
    let events = slow.until_id(*published.last().expect("some"));
    let seen = ids(&events);
    let n_skipped: u64 =
        events.iter().filter(|e| e["type"] == "skipped").map(|e| e["count"].as_u64().expect("a count")).sum();
    assert!(n_skipped > 0, "nothing was skipped: the test could not have failed");
    assert!(seen.is_sorted(), "ids never go back");
    assert_eq!(seen.len() as u64 + n_skipped, published.len() as u64, "seen or told");
}

#[test]
fn the_tools_speak_tls_come_back_by_tickets_and_believe_only_whom_they_are_told_to() {
    let server = secure(&[]);
    let (url, ca) = (format!("https://{}", server.addr), server.folder().join("shown.pem"));
    let ca = ca.to_str().expect("a path of text");
    let words = ["--viewers", "120", "--transport", "mix", "--rate", "5", "--score-rate", "5"];
    let storm = ["--storm", "--storms", "1", "--steady", "0.5"];
    let report = report(&load(&server, &url, &[&words[..], &storm, &["--ca", ca]].concat()));
    let round = &report["storms"][0];
    assert_eq!((&round["dropped"], &round["back"]), (&114.into(), &114.into()));
    assert!(round["told"]["tls_resumed"].as_u64().is_some_and(|n| n >= 114), "one ticket each: {round}");

    let stranger = self_signed(server.folder(), "stranger");
    for ca in [&[][..], &["--ca", stranger.certificate.to_str().expect("a path of text")]] {
        let out = load(&server, &url, &[&["--viewers", "1"], ca].concat());
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!out.status.success() && said.contains("certificate"), "{said}");
    }
    assert!(load(&server, &url, &["--viewers", "1", "--seconds", "1", "--insecure"]).status.success());

    let recording = server.folder().join("chat.txt");
    std::fs::write(&recording, ":ana!a@h PRIVMSG #c :hello\n:ben!b@h PRIVMSG #c :hello to you\n").expect("written");
    let mut replay = Command::new(env!("CARGO_BIN_EXE_grandstand"));
    replay.arg("replay").arg(&recording).args(["--room", "safe", "--url", &url, "--ca", ca, "--json", "--data"]);
    let out = replay.arg(server.data()).output().expect("the binary can be started");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let account: serde_json::Value = serde_json::from_slice(&out.stdout).expect("one JSON object");
    assert_eq!(account["acked"], 2, "{account}");
}
