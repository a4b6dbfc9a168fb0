//! HTTP/2 on the TLS port: curl as any viewer and caller, beside WebSockets on the same port; one connection's streams beside
//! each other; and the inputs of threats, from a client without manners.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use serde_json::{Value, json};

use crate::http2_raw::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, GOAWAY, HEADERS, PING, PRIORITY, RST_STREAM, Raw,
    SETTINGS, STREAM_WINDOW, WINDOW_UPDATE, frame, header,
};
use crate::processes::{kill, shard_pid};
use crate::support::{LIMIT, Server, Wire, connected};
use crate::tls::{metric, secure};
use crate::viewer::{Rung, Viewer};

fn with_http2(args: &[&str]) -> Server {
    let mut all = vec!["--set", "http2=true"];
    all.extend(args);
    secure(&all)
}

/// curl, believing the server's certificate and speaking HTTP/2 where it can.
fn curl(server: &Server, args: &[&str], path: &str) -> Command {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--http2", "--max-time", "60", "--cacert"]);
    command.arg(server.folder().join("shown.pem")).args(args);
    command.arg(format!("https://localhost:{}{path}", server.addr.port()));
    command.stdout(Stdio::piped());
    command
}

/// What curl got: version of HTTP, status, body.
fn called(server: &Server, args: &[&str], path: &str) -> (String, u16, String) {
    let mut all = vec!["--write-out", "\n%{http_version} %{http_code}"];
    all.extend(args);
    let out = curl(server, &all, path).output().expect("curl is installed");
    assert!(out.status.success(), "curl {path}: {}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).expect("text");
    let (body, last) = text.rsplit_once('\n').expect("the last line");
    let (version, status) = last.split_once(' ').expect("both");
    (version.to_owned(), status.parse().expect("a status"), body.to_owned())
}

/// A viewer by SSE that is a curl of its own.
struct Watching {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Watching {
    fn open(server: &Server, room: &str, args: &[&str]) -> Watching {
        let mut all = vec!["--no-buffer"];
        all.extend(args);
        let mut child = curl(server, &all, &format!("/v1/rooms/{room}/sse")).spawn().expect("curl is installed");
        let lines = BufReader::new(child.stdout.take().expect("piped"));
        Watching { child, lines }
    }

    /// The events up to the first that is wanted.
    fn until(&mut self, mut wanted: impl FnMut(&Value) -> bool) -> Vec<Value> {
        let mut seen = Vec::new();
        let mut line = String::new();
        while self.lines.read_line(&mut line).expect("text") > 0 {
            if let Some(data) = line.trim_end().strip_prefix("data: ") {
                seen.push(serde_json::from_str(data).expect(data));
                if wanted(seen.last().expect("just put there")) {
                    return seen;
                }
            }
            line.clear();
        }
        panic!("the stream ended; seen: {seen:?}");
    }

    fn until_id(&mut self, id: u64) -> Vec<Value> {
        self.until(|e| e["event_id"].as_u64() == Some(id))
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn curl_watches_resumes_polls_publishes_and_renews_over_http2() {
    let server = with_http2(&[]);
    let backend = server.token("backend", &["backend"]);
    let mut watching = Watching::open(&server, "two", &[]);
    assert_eq!(watching.until(|e| e["type"] == "hello").len(), 1);
    let (bearer, kind) = (format!("Authorization: Bearer {backend}"), "Content-Type: application/json");
    let body = json!({"client_msg_id": "k1", "body": "by two"}).to_string();
    let args = ["-H", &bearer, "-H", kind, "--data", &body];
    let (version, status, answer) = called(&server, &args, "/v1/rooms/two/comments");
    assert_eq!((version.as_str(), status), ("2", 200), "{answer}");
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    let first = answer["event_id"].as_u64().expect("an id");
    watching.until_id(first);
    let second = server.published("two", &backend, "k2", "by one");
    watching.until_id(second);

    let cursor = format!("Last-Event-ID: {first}");
    let mut resumed = Watching::open(&server, "two", &["-H", &cursor]);
    let seen = resumed.until_id(second);
    assert_eq!(seen[0]["resumed"], true, "{seen:?}");
    assert!(!seen.iter().any(|e| e["event_id"] == first), "{seen:?}");

    let (version, status, body) = called(&server, &[], &format!("/v1/rooms/two/poll?since={first}&timeout=1"));
    let body: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!((version.as_str(), status), ("2", 200));
    assert_eq!(body["events"][0]["event_id"], second, "{body}");

    // A token of the same user, for a stream that cannot speak.
    let viewer = server.token("ana", &["viewer"]);
    let mut hers = Watching::open(&server, "two", &["-H", &format!("Authorization: Bearer {viewer}")]);
    let hello = hers.until(|e| e["type"] == "hello").pop().expect("a hello");
    let renewal = json!({"session": hello["session"], "token": server.token("ana", &["viewer"])}).to_string();
    let (version, status, answer) = called(&server, &["-H", kind, "--data", &renewal], "/v1/rooms/two/auth");
    assert_eq!((version.as_str(), status, answer.as_str()), ("2", 204, ""));

    // What is no stream and no room, and answers without a body or with a long one.
    let (_, status, answer) = called(&server, &[], "/v1/rooms/two/stream");
    assert!(status == 426 && answer.contains("this route is a WebSocket"), "{status} {answer}");
    assert_eq!(called(&server, &[], "/nowhere").1, 404);
    assert_eq!(called(&server, &["--head"], "/v1/rooms").1, 200);
    let (version, status, page) = called(&server, &[], "/assets/grandstand.css");
    assert!(version == "2" && status == 200 && page.len() > 1_000, "{version} {status}");
    let long = json!({"client_msg_id": "k", "body": "x".repeat(70_000)}).to_string();
    let (_, status, answer) = called(&server, &["-H", &bearer, "-H", kind, "--data", &long], "/v1/rooms/two/comments");
    assert_eq!(status, 413, "{answer}");
}

#[test]
fn websockets_and_clients_of_http1_are_served_on_the_same_port() {
    let server = with_http2(&["--set", "workers=2"]);
    let backend = server.token("backend", &["backend"]);
    let mut by_two = Watching::open(&server, "both", &[]);
    by_two.until(|e| e["type"] == "hello");
    let mut by_one = Viewer::open(&server, Rung::Sse, "both", None, None).unwrap_or_else(|a| panic!("{a:?}"));
    let mut socket = Viewer::open(&server, Rung::WebSocket, "both", None, None).unwrap_or_else(|a| panic!("{a:?}"));
    assert_eq!(called(&server, &["--http1.1"], "/v1/rooms").0, "1.1");
    assert_eq!(metric(&server, "grandstand_gateway_protocol_connections{protocol=\"http2\"}"), 1);
    assert_eq!(metric(&server, "grandstand_gateway_http2_streams"), 1);
    let id = server.published("both", &backend, "k", "to all");
    by_two.until_id(id);
    by_one.until_id(id);
    socket.until_id(id);
}

#[test]
fn several_gateway_processes_serve_http2_and_its_streams_outlive_the_shard() {
    let mut server = with_http2(&["--gateways", "2"]);
    let backend = server.token("backend", &["backend"]);
    let mut watching: Vec<Watching> = (0..6).map(|_| Watching::open(&server, "two", &[])).collect();
    for viewer in &mut watching {
        viewer.until(|e| e["type"] == "hello");
    }
    assert_eq!(called(&server, &[], "/v1/rooms").0, "2");
    let first = server.published("two", &backend, "k1", "first");
    kill(shard_pid(&server));
    for viewer in &mut watching {
        viewer.until_id(first);
        viewer.until(|e| e["type"] == "feed_paused");
    }
    let start = Instant::now();
    let second = loop {
        let answer = server.publish("two", &backend, "k2", "second");
        if answer.status == 200 {
            break answer.json["event_id"].as_u64().expect("an id");
        }
        assert!(answer.status == 503 && start.elapsed() < LIMIT, "{} {:?}", answer.status, answer.json);
    };
    for viewer in &mut watching {
        viewer.until_id(second);
    }
    server.stop();
}

#[test]
fn without_the_setting_nobody_is_offered_http2_and_without_tls_it_refuses_to_start() {
    let server = secure(&[]);
    assert_eq!(called(&server, &[], "/v1/rooms").0, "1.1");
    let plain = Server::unstarted(&["--set", "http2=true"], &[]);
    let out = plain.command(&[]).stderr(Stdio::piped()).output().expect("it can be started");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && said.contains("http2: is chosen in the TLS handshake"), "{said}");
}

/// What is spoken with one who offers both.
fn agreed(server: &Server) -> Option<Vec<u8>> {
    let mut trust = ClientConfig::clone(server.trust.as_ref().expect("the server speaks TLS"));
    trust.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    match Wire::tls(server.addr, &Arc::new(trust)).expect("the server accepts") {
        Wire::Tls(tls) => tls.conn.alpn_protocol().map(<[u8]>::to_vec),
        Wire::Plain(_) => None,
    }
}

#[test]
fn who_comes_while_512_handshakes_are_under_way_is_spoken_to_in_http1() {
    // One worker: each has its own places.
    let server = with_http2(&["--set", "workers=1"]);
    assert_eq!(agreed(&server).as_deref(), Some(&b"h2"[..]));
    // A hello that offers HTTP/2, and no word after it.
    let mut trust = ClientConfig::clone(server.trust.as_ref().expect("the server speaks TLS"));
    trust.alpn_protocols = vec![b"h2".to_vec()];
    let name = ServerName::try_from("localhost").expect("a name");
    let mut hello = Vec::new();
    ClientConnection::new(Arc::new(trust), name).expect("a session").write_tls(&mut hello).expect("bytes");
    let mut stalled = Vec::new();
    let end = Instant::now() + LIMIT;
    // Each loses its place after a while: others take it.
    while agreed(&server).as_deref() != Some(&b"http/1.1"[..]) {
        assert!(Instant::now() < end, "{} stalled handshakes take no place", stalled.len());
        for _ in 0..64 {
            let mut socket = connected(server.addr).expect("a connection");
            socket.write_all(&hello).expect("sent");
            stalled.push(socket);
        }
    }
    assert!(stalled.len() >= 512, "after {} already", stalled.len());
    drop(stalled);
    while agreed(&server).as_deref() != Some(&b"h2"[..]) {
        assert!(Instant::now() < end, "places are not given back");
    }
}

#[test]
fn a_drained_server_tells_each_stream_and_ends_each_connection() {
    let mut server = with_http2(&[]);
    let mut watching = Watching::open(&server, "bye", &[]);
    watching.until(|e| e["type"] == "hello");
    let mut raw = Raw::open(&server, &[]);
    raw.get(1, "/v1/rooms/bye/sse");
    raw.until_said(1, "event: hello");
    server.signal("TERM");
    let close = watching.until(|e| e["type"] == "close").pop().expect("a close");
    assert_eq!(close["code"], 4112, "{close}");
    let mut rest = String::new();
    watching.lines.read_to_string(&mut rest).expect("text");
    assert!(watching.child.wait().expect("it ends").success(), "an end, not a cut");
    let (mut ended, mut away) = (false, None);
    while let Some(frame) = raw.next() {
        ended |= frame.stream == 1 && frame.kind == DATA && frame.flags & END_STREAM != 0;
        if frame.kind == GOAWAY {
            away = Some(frame.error());
        }
    }
    assert!(ended && away == Some(0) && raw.said[&1].contains("4112"), "{ended} {away:?} {:?}", raw.said);
    assert!(server.ended(Duration::from_secs(10)).success());
}

#[test]
fn a_stream_whose_client_gives_it_no_window_holds_up_no_other_and_ends() {
    let server = with_http2(&["--set", "durability=none"]);
    let backend = server.token("backend", &["backend"]);
    let mut raw = Raw::open(&server, &[(STREAM_WINDOW, 1_000)]);
    raw.stalled.push(1);
    raw.get(1, "/v1/rooms/stall/sse");
    raw.get(3, "/v1/rooms/stall/sse");
    raw.until_said(1, "event: hello");
    raw.until_said(3, "event: hello");
    let text = "z".repeat(500);
    let mut last = 0;
    for n in 0..200 {
        last = server.published("stall", &backend, &format!("k{n}"), &text);
    }
    // More than the pipe, the buffers and the window of the one that stalls; the other has all of it.
    raw.until_said(3, &format!("id: {last}\n"));
    let stalled = raw.said[&1].len();
    assert!(stalled <= 1_000, "{stalled} bytes went without a window");
    // Either it is told to resume when it reads again, or its place is taken away.
    raw.until(|f| f.kind == RST_STREAM && f.stream == 1);
    let id = server.published("stall", &backend, "after", "after");
    raw.until_said(3, &format!("id: {id}\n"));
}

#[test]
fn a33_streams_of_one_connection_count_as_sockets() {
    let server = with_http2(&[]);
    let token = server.token("ana", &["viewer"]);
    let bearer = format!("Bearer {token}");
    let mut raw = Raw::open(&server, &[]);
    // Longer than this client's strings; sent in the query of a ticket's place it would be refused.
    let path = "/v1/rooms/many/sse";
    for n in 0..17 {
        let mut block = Vec::new();
        for (name, value) in [(":method", "GET"), (":scheme", "https"), (":authority", "localhost"), (":path", path)] {
            block.extend(header(name, value));
        }
        block.extend_from_slice(&[0, 13]);
        block.extend_from_slice(b"authorization");
        // An integer of HPACK with a prefix of 7 bits. Source: RFC 7541, 5.1.
        let mut rest = bearer.len() - 127;
        block.push(127);
        while rest >= 128 {
            block.push((rest % 128 + 128) as u8);
            rest /= 128;
        }
        block.push(rest as u8);
        block.extend_from_slice(bearer.as_bytes());
        raw.send(&frame(HEADERS, END_STREAM | END_HEADERS, 1 + 2 * n, &block)).expect("the server reads");
    }
    for n in 0..16 {
        raw.until_said(1 + 2 * n, "event: hello");
    }
    raw.until_said(33, "4129");
    // Anonymous ones are refused by the connection's own limit.
    let mut many = Raw::open(&server, &[]);
    for n in 0..1_000 {
        many.get(1 + 2 * n, path);
    }
    let refused = many.until(|f| f.kind == RST_STREAM);
    assert_eq!(refused.error(), 7, "REFUSED_STREAM");
    assert!(metric(&server, "grandstand_gateway_http2_streams") <= 16 + 64);
}

/// How a hostile client is answered.
#[derive(PartialEq, Debug)]
enum Ends {
    /// GOAWAY with this error.
    Away(u32),
    /// Any GOAWAY: the library's own limits say which.
    AnyAway,
}

struct Hostile {
    threat: &'static str,
    name: &'static str,
    n: usize,
    part: fn(&Raw, usize) -> Vec<u8>,
    ends: Ends,
}

/// A head of 8 MB in 6 KB: one header of 4 KB remembered, then named 2 000 times. Source: RFC 7541, 5.1 and 6.
fn bomb() -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in [(":method", "GET"), (":scheme", "https"), (":authority", "localhost"), (":path", "/")] {
        block.extend(header(name, value));
    }
    block.extend_from_slice(&[0x40, 1, b'x', 127, 0x81, 0x1e]);
    block.extend(std::iter::repeat_n(b'y', 127 + 1 + 30 * 128));
    block.extend(std::iter::repeat_n(0x80 | 62, 2_000));
    block
}

fn stream(i: usize) -> u32 {
    1 + 2 * i as u32
}

fn asked(raw: &Raw, i: usize) -> Vec<u8> {
    raw.request(stream(i), END_STREAM, "GET", "/v1/rooms/h/sse", &[])
}

/// A request, and something that makes the server reset it.
fn provoked(raw: &Raw, i: usize, by: Vec<u8>) -> Vec<u8> {
    let mut bytes = asked(raw, i);
    bytes.extend(by);
    bytes
}

const TABLE: &[Hostile] = &[
    Hostile {
        threat: "A-29",
        name: "rapid reset",
        n: 20_000,
        part: |raw, i| provoked(raw, i, frame(RST_STREAM, 0, stream(i), &[0, 0, 0, 8])),
        ends: Ends::AnyAway,
    },
    Hostile {
        threat: "A-30",
        name: "made to reset by an update of nothing",
        n: 2_000,
        part: |raw, i| provoked(raw, i, frame(WINDOW_UPDATE, 0, stream(i), &[0; 4])),
        ends: Ends::AnyAway,
    },
    Hostile {
        threat: "A-30",
        name: "made to reset by a window that overflows",
        n: 2_000,
        part: |raw, i| provoked(raw, i, frame(WINDOW_UPDATE, 0, stream(i), &[0x7f, 0xff, 0xff, 0xff])),
        ends: Ends::AnyAway,
    },
    Hostile {
        threat: "A-30",
        name: "made to reset by data after the end",
        n: 2_000,
        part: |raw, i| provoked(raw, i, frame(DATA, 0, stream(i), b"x")),
        ends: Ends::AnyAway,
    },
    Hostile {
        threat: "A-30",
        name: "made to reset by a second head",
        n: 2_000,
        part: |raw, i| provoked(raw, i, asked(raw, i)),
        ends: Ends::AnyAway,
    },
    Hostile {
        threat: "A-30",
        name: "made to reset by a priority of the wrong length",
        n: 2_000,
        part: |raw, i| provoked(raw, i, frame(PRIORITY, 0, stream(i), &[0; 4])),
        ends: Ends::AnyAway,
    },
    Hostile {
        threat: "A-30",
        name: "made to reset by a stream that depends on itself",
        n: 2_000,
        part: |raw, i| {
            let mut payload = stream(i).to_be_bytes().to_vec();
            payload.push(16);
            provoked(raw, i, frame(PRIORITY, 0, stream(i), &payload))
        },
        ends: Ends::AnyAway,
    },
    Hostile {
        threat: "A-31",
        name: "CONTINUATION without end",
        n: 20_000,
        part: |_, i| match i {
            0 => frame(HEADERS, END_STREAM, 1, &header(":method", "GET")),
            _ => frame(CONTINUATION, 0, 1, &header("x", "y")),
        },
        ends: Ends::AnyAway,
    },
    Hostile {
        threat: "A-31",
        name: "CONTINUATION of nothing",
        n: 20_000,
        part: |_, i| match i {
            0 => frame(HEADERS, END_STREAM, 1, &header(":method", "GET")),
            _ => frame(CONTINUATION, 0, 1, &[]),
        },
        ends: Ends::AnyAway,
    },
    Hostile {
        threat: "A-31",
        name: "a head that unpacks to a thousand times its length",
        n: 1,
        part: |_, _| frame(HEADERS, END_STREAM | END_HEADERS, 1, &bomb()),
        ends: Ends::AnyAway,
    },
    Hostile {
        threat: "A-32",
        name: "empty DATA",
        n: 20_000,
        part: |raw, i| match i {
            0 => raw.request(1, 0, "POST", "/v1/rooms/h/comments", &[]),
            _ => frame(DATA, 0, 1, &[]),
        },
        ends: Ends::AnyAway,
    },
    Hostile {
        threat: "A-32",
        name: "settings",
        n: 2_000,
        part: |_, _| frame(SETTINGS, 0, 0, &[]),
        ends: Ends::Away(ENHANCE_YOUR_CALM),
    },
    Hostile {
        threat: "A-32",
        name: "pings",
        n: 2_000,
        part: |_, _| frame(PING, 0, 0, &[7; 8]),
        ends: Ends::Away(ENHANCE_YOUR_CALM),
    },
    Hostile {
        threat: "A-32",
        name: "updates of the connection's window",
        n: 2_000,
        part: |_, _| frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]),
        ends: Ends::Away(ENHANCE_YOUR_CALM),
    },
    Hostile {
        threat: "A-32",
        name: "priorities",
        n: 2_000,
        part: |_, _| frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 1]),
        ends: Ends::Away(ENHANCE_YOUR_CALM),
    },
    Hostile {
        threat: "A-32",
        name: "frames of a kind nobody knows",
        n: 2_000,
        part: |_, _| frame(0xee, 0, 0, b"?"),
        ends: Ends::Away(ENHANCE_YOUR_CALM),
    },
];

#[test]
fn a29_to_a32_floods_end_their_connection_and_no_other() {
    let server = with_http2(&[]);
    let backend = server.token("backend", &["backend"]);
    let mut calm = Watching::open(&server, "h", &[]);
    calm.until(|e| e["type"] == "hello");
    for Hostile { threat, name, n, part, ends } in TABLE {
        let mut raw = Raw::open(&server, &[]);
        let away = raw.flood(*n, part);
        match ends {
            Ends::Away(error) => assert_eq!(away, Some(*error), "{threat} {name}"),
            Ends::AnyAway => assert!(away.is_some_and(|error| error != 0), "{threat} {name}: {away:?}"),
        }
        let id = server.published("h", &backend, name, name);
        calm.until_id(id);
    }
    assert!(metric(&server, "grandstand_gateway_http2_calmed_total") >= 5);
    assert_eq!(metric(&server, "grandstand_gateway_assertions_failed_total"), 0);
}

#[test]
fn a19_a31_requests_that_http1_could_not_say_are_refused_one_by_one() {
    let server = with_http2(&[]);
    let authority = "localhost";
    let block = |headers: &[(&str, &str)]| {
        let mut block = Vec::new();
        headers.iter().for_each(|(name, value)| block.extend(header(name, value)));
        block
    };
    let get = [(":method", "GET"), (":scheme", "https"), (":authority", authority), (":path", "/v1/rooms")];
    let with = |more: &[(&str, &str)]| block(&[&get[..], more].concat());
    let cases: Vec<(&str, Vec<u8>)> = vec![
        (
            "A-19 an upgrade by extended CONNECT",
            block(&[
                (":method", "CONNECT"),
                (":protocol", "websocket"),
                (":scheme", "https"),
                (":authority", authority),
                (":path", "/v1/rooms/a/stream"),
            ]),
        ),
        ("A-19 CONNECT", block(&[(":method", "CONNECT"), (":authority", "localhost:22")])),
        ("a host that is not the authority", with(&[("host", "evil.example")])),
        ("two hosts", block(&[get[0], get[1], get[3], ("host", "a"), ("host", "b")])),
        ("no host", block(&[get[0], get[1], get[3]])),
        ("a name with capitals", with(&[("X-Y", "z")])),
        ("a value with a line's end", with(&[("x", "a\r\nhost: evil")])),
        ("a name with a line's end", with(&[("x\r\ny", "a")])),
        ("a path with a blank", block(&[get[0], get[1], get[2], (":path", "/v1/rooms HTTP/1.1")])),
        ("a path with a line's end", block(&[get[0], get[1], get[2], (":path", "/\r\nx: y")])),
        ("transfer-encoding", with(&[("transfer-encoding", "chunked")])),
        ("connection", with(&[("connection", "upgrade")])),
        ("a length that is not there", with(&[("content-length", "5")])),
        ("a user in the authority", block(&[get[0], get[1], (":authority", "a:b@localhost"), get[3]])),
        ("another machine's name", block(&[get[0], get[1], (":authority", "evil.example"), get[3]])),
        ("a page of another origin", with(&[("origin", "https://evil.example")])),
        ("two origins", with(&[("origin", "https://localhost"), ("origin", "https://localhost")])),
    ];
    for (name, block) in &cases {
        let mut raw = Raw::open(&server, &[]);
        raw.send(&frame(HEADERS, END_STREAM | END_HEADERS, 1, block)).expect("the server reads");
        let end = raw.until(|f| match f.kind {
            GOAWAY | RST_STREAM => true,
            _ => f.stream == 1 && f.flags & END_STREAM != 0,
        });
        let said = raw.said.remove(&1).unwrap_or_default();
        match end.kind {
            GOAWAY | RST_STREAM => assert!(end.error() != 0 && said.is_empty(), "{name}: {end:?} {said}"),
            _ => assert!(said.contains("\"status\":4"), "{name} was let in: {said}"),
        }
    }
    assert_eq!(metric(&server, "grandstand_gateway_assertions_failed_total"), 0);
}
