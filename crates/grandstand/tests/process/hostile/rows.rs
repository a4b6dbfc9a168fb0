//! The table: each attack with its number, what is sent, and what must become of it.

use std::io::{Read, Write};
use std::time::Duration;

use grandstand_wire::ws::{Incoming, Opcode, write_masked_frame};
use serde_json::json;

use grandstand_server::auth::keys::SigningKey;

use super::stage::{Attack, End, Row, Stage, field, half_close, reset};

pub const ROOM: &str = "arena";
const KEY: &str = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
const VERSION: &str = "Sec-WebSocket-Version: 13\r\n";
const ASKS: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\n";

/// A good upgrade with these header lines more.
pub fn upgrade(more: &str) -> Vec<u8> {
    format!("GET /v1/rooms/{ROOM}/stream HTTP/1.1\r\nHost: {{host}}\r\n{ASKS}{KEY}{VERSION}{more}\r\n").into_bytes()
}

/// An upgrade of nothing but these header lines.
fn bare_upgrade(lines: &str) -> Vec<u8> {
    format!("GET /v1/rooms/{ROOM}/stream HTTP/1.1\r\nHost: {{host}}\r\n{lines}\r\n").into_bytes()
}

fn get(path: &str, more: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: {{host}}\r\n{more}\r\n").into_bytes()
}

fn post(path: &str, more: &str, body: &str) -> Vec<u8> {
    format!("POST {path} HTTP/1.1\r\nHost: {{host}}\r\n{more}\r\n{body}").into_bytes()
}

/// Its type and its length are told; `more`: header lines before them.
fn post_json(path: &str, more: &str, body: &str) -> Vec<u8> {
    post(path, &format!("{more}Content-Type: application/json\r\nContent-Length: {}\r\n", body.len()), body)
}

/// A comment of whoever has the token.
fn comment(token: &str, body: &str) -> Vec<u8> {
    let path = format!("/v1/rooms/{ROOM}/comments");
    post_json(&path, &format!("Authorization: Bearer {token}\r\n"), body)
}

fn frame(first: u8, body: &[u8]) -> Vec<u8> {
    let key = [0x12, 0x9f, 0, 0xe3];
    let mut out = vec![first];
    match body.len() {
        n @ 0..=125 => out.push(0x80 | n as u8),
        n => {
            out.push(0x80 | 126);
            out.extend((n as u16).to_be_bytes());
        }
    }
    out.extend(key);
    out.extend(body.iter().zip(key.iter().cycle()).map(|(b, k)| b ^ k));
    out
}

fn text(body: &str) -> Vec<u8> {
    frame(0x81, body.as_bytes())
}

/// A frame's head alone: its first byte and a length as it is written.
fn declared(first: u8, len: &[u8]) -> Vec<u8> {
    [&[first], len, &[1, 2, 3, 4]].concat()
}

struct Rows(Vec<Row>);

impl Rows {
    fn add(&mut self, a: u8, title: &'static str, attack: Attack, end: End) {
        self.0.push(Row { a, title, attack, end, plain_only: false });
    }
    fn plain(&mut self, a: u8, title: &'static str, attack: Attack, end: End) {
        self.0.push(Row { a, title, attack, end, plain_only: true });
    }
    fn bytes(&mut self, a: u8, title: &'static str, bytes: Vec<u8>, end: End) {
        self.add(a, title, Attack::Bytes(bytes), end);
    }
    fn frames(&mut self, a: u8, title: &'static str, frames: &[Vec<u8>], end: End) {
        self.add(a, title, Attack::Frames(frames.concat()), end);
    }
    fn script(&mut self, a: u8, title: &'static str, script: fn(&Stage) -> Result<(), String>) {
        self.add(a, title, Attack::Script(script), End::Scripted);
    }
}

pub fn rows() -> Vec<Row> {
    let mut rows = Rows(Vec::new());
    origins(&mut rows);
    framing(&mut rows);
    closes(&mut rows);
    slow(&mut rows);
    heads(&mut rows);
    upgrades(&mut rows);
    operations(&mut rows);
    streams(&mut rows);
    requests(&mut rows);
    texts(&mut rows);
    tokens(&mut rows);
    rows.0
}

/// A token of a good one's claims with another header; its signature is the good one's.
fn bent(good: &str, header: &str) -> String {
    let (_, rest) = good.split_once('.').expect("three parts");
    format!("{}.{rest}", base64url(header.as_bytes()))
}

fn base64url(bytes: &[u8]) -> String {
    const SIGNS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let bits = |chunk: &[u8]| chunk.iter().fold(0u32, |all, b| all << 8 | u32::from(*b)) << (8 * (3 - chunk.len()));
    let each = |chunk: &[u8]| {
        let n = bits(chunk);
        (0..=chunk.len()).map(move |i| char::from(SIGNS[(n >> (18 - 6 * i) & 63) as usize])).collect::<String>()
    };
    bytes.chunks(3).map(each).collect()
}

/// What every door says of a token that is none: the API 401, a stream 4003.
fn is_refused(stage: &Stage, what: &str, token: &str) -> Result<(), String> {
    let request = get("/v1/rooms", &format!("Authorization: Bearer {token}\r\n"));
    let (status, _, body) = stage.asked(&request)?;
    if status != 401 {
        return Err(format!("{what}: {status} {}", String::from_utf8_lossy(&body)));
    }
    let mut socket = stage.upgraded(&format!("Authorization: Bearer {token}\r\n"))?;
    let close = socket.until(|e| e["type"] == "close" || e["type"] == "hello")?;
    if close["code"] == 4003 { Ok(()) } else { Err(format!("{what}: {close}")) }
}

fn tokens(rows: &mut Rows) {
    rows.script(42, "a token that brings its own key, or says where one is", |stage| {
        let good = stage.server.token("u", &["publisher"]);
        for header in [
            r#"{"alg":"EdDSA","kid":"own","jku":"http://127.0.0.1:1/keys"}"#,
            r#"{"alg":"EdDSA","kid":"own","x5u":"file:///etc/passwd"}"#,
            r#"{"alg":"EdDSA","kid":"own","jwk":{"kty":"OKP","crv":"Ed25519","x":"AA"}}"#,
            r#"{"alg":"EdDSA","kid":"own","crit":["exp"]}"#,
            r#"{"alg":"HS256","kid":"own"}"#,
            r#"{"alg":"none"}"#,
            r#"{"alg":"EdDSA","kid":"../../dev/null"}"#,
            r#"{"alg":"EdDSA","kid":"' OR 1=1 --"}"#,
        ] {
            is_refused(stage, header, &bent(&good, header))?;
        }
        Ok(())
    });
    rows.script(44, "times that are no times", |stage| {
        for exp in [r#""9999999999""#, "-1", "1e10", "99999999999999999999", "null", "[9999999999]"] {
            let claims = format!(r#"{{"sub":"u","exp":{exp}}}"#);
            is_refused(stage, &claims, &signed(stage, &claims))?;
        }
        is_refused(stage, "no exp", &signed(stage, r#"{"sub":"u"}"#))
    });
}

/// A token of the server's own key that says exactly this.
fn signed(stage: &Stage, claims: &str) -> String {
    let key = SigningKey::in_folder(&stage.server.data()).expect("the server made it");
    key.sign_text(claims)
}

fn origins(rows: &mut Rows) {
    for rung in ["sse", "poll"] {
        let path = format!("/v1/rooms/{ROOM}/{rung}");
        rows.bytes(1, "a foreign page", get(&path, "Origin: https://evil.example\r\n"), End::Next(403));
    }
    let cookie = "Origin: https://evil.example\r\nCookie: session=victim\r\n";
    rows.bytes(1, "a foreign page with a cookie", upgrade(cookie), End::Next(403));
    rows.script(1, "a cookie is nobody", |stage| {
        let token = stage.server.token("victim", &["publisher"]);
        let mut socket = stage.upgraded(&format!("Cookie: token={token}; Authorization=Bearer {token}\r\n"))?;
        socket.say(r#"{"op":"publish","client_msg_id":"k","body":"as the victim"}"#)?;
        let error = socket.until(|e| e["type"] == "error" || e["type"] == "publish_ack")?;
        if error["code"] == "not_allowed" { Ok(()) } else { Err(error.to_string()) }
    });
    for origin in [
        "null",
        "",
        "http://{host}.evil.example",
        "http://{host}/",
        "http://{host}.",
        "HTTP://{host}",
        "http://user@{host}",
        "file://{host}",
        "http://xn--127-0-0-1.example",
        "http://127.0.0.1:1",
        "http://{host}, http://{host}",
        "{host}",
        "http://{host}\\@evil.example",
        "http://{host}#evil",
    ] {
        rows.bytes(2, "an origin that is nearly ours", upgrade(&format!("Origin: {origin}\r\n")), End::Next(403));
    }
    let twice = "Origin: http://{host}\r\nOrigin: http://{host}\r\n";
    rows.bytes(2, "two origins", upgrade(twice), End::Next(403));
    rows.script(2, "the own origin, and none, come in", |stage| {
        stage.upgraded("")?.lives()?;
        stage.upgraded(&format!("Origin: http://{}\r\n", stage.server.addr))?.lives()
    });
    for path in ["stream", "sse", "poll"] {
        for name in ["token", "access_token"] {
            let bytes =
                get(&format!("/v1/rooms/{ROOM}/{path}?{name}=secret-in-a-url"), &format!("{ASKS}{KEY}{VERSION}"));
            rows.bytes(3, "a token in the address of a stream", bytes, End::Next(400));
        }
    }
    rows.bytes(3, "a token in the address of a page", get("/v1/rooms?token=secret-in-a-url", ""), End::Next(400));
    rows.script(4, "the token offered as a subprotocol does not come back", |stage| {
        let token = stage.server.token("ann", &["publisher"]);
        let offer = format!("Sec-WebSocket-Protocol: grandstand.v1, bearer.{token}\r\n");
        let mut wire = stage.connect();
        wire.write_all(&stage.filled(&upgrade(&offer))).map_err(|e| e.to_string())?;
        let (status, head, _) = super::stage::read_head(&mut wire)?;
        match (status, field(&head, "sec-websocket-protocol")) {
            (101, Some("grandstand.v1")) if !head.contains(&token) => Ok(()),
            _ => Err(head),
        }
    });
}

fn framing(rows: &mut Rows) {
    rows.frames(5, "an unmasked frame", &[vec![0x81, 2, b'h', b'i']], End::Closed(1002));
    let zero_key = [&[0x81, 0x80 | 13, 0, 0, 0, 0][..], br#"{"op":"ping"}"#].concat();
    rows.frames(5, "a mask of zeros", &[zero_key], End::Lives);
    for bit in [0x40, 0x20, 0x10] {
        rows.frames(6, "a reserved bit of a text", &[frame(0x81 | bit, b"x")], End::Closed(1002));
        rows.frames(6, "a reserved bit of a ping", &[frame(0x89 | bit, b"x")], End::Closed(1002));
    }
    for opcode in (3..8).chain(11..16) {
        rows.frames(6, "a reserved opcode", &[frame(0x80 | opcode, b"")], End::Closed(1002));
    }
    for (len, code) in [
        ([&[0xff][..], &(1u64 << 63).to_be_bytes()].concat(), 1002),
        ([&[0xff][..], &u64::MAX.to_be_bytes()].concat(), 1002),
        ([&[0xff][..], &(u64::MAX >> 1).to_be_bytes()].concat(), 1009),
        ([&[0xff][..], &(1u64 << 40).to_be_bytes()].concat(), 1009),
        ([&[0xff][..], &65_535u64.to_be_bytes()].concat(), 1002),
        (vec![0xfe, 0, 125], 1002),
        (vec![0xfe, 0x40, 1], 1009),
    ] {
        rows.frames(7, "a length", &[declared(0x81, &len)], End::Closed(code));
    }
    let most = "x".repeat(16 * 1024);
    rows.frames(7, "the longest frame", &[text(&most)], End::Told("bad_json"));
    rows.frames(
        7,
        "a message over the limit in two parts",
        &[frame(1, most.as_bytes()), frame(0x80, b"y")],
        End::Closed(1009),
    );
    let empty: Vec<Vec<u8>> = [vec![frame(1, b"")], vec![frame(0, b""); 100_000]].concat();
    rows.frames(8, "a hundred thousand empty fragments", &empty, End::Closed(1009));
    let single: Vec<Vec<u8>> = [vec![frame(1, b"a")], vec![frame(0, b"a"); 8]].concat();
    rows.frames(8, "nine fragments of one byte", &single, End::Closed(1009));
    rows.frames(9, "a text inside a message", &[frame(1, b"a"), text("b")], End::Closed(1002));
    rows.frames(9, "a continuation of nothing", &[frame(0x80, b"b")], End::Closed(1002));
    rows.frames(
        9,
        "control frames inside a message",
        &[frame(1, br#"{"op":"#), frame(0x89, b"p"), frame(0x8a, b"q"), frame(0x80, br#""ping"}"#)],
        End::Lives,
    );
    for opcode in [8, 9, 10] {
        rows.frames(10, "a control frame of 126 bytes", &[frame(0x80 | opcode, &[0; 126])], End::Closed(1002));
        rows.frames(10, "a control frame in parts", &[frame(opcode, b"x")], End::Closed(1002));
    }
    rows.frames(11, "a flood of pings", &vec![frame(0x89, b"p"); 10_000], End::Closed(4129));
    rows.frames(11, "a flood of pongs", &vec![frame(0x8a, b"p"); 10_000], End::Closed(4129));
    rows.script(14, "offers of compression are met, passed over or refused", |stage| {
        for (offer, agreed) in [
            ("permessage-deflate", true),
            ("permessage-deflate; unknown, permessage-deflate; client_max_window_bits", true),
            ("permessage-deflate; level=9", false),
            ("permessage-deflate; server_max_window_bits=7", false),
            ("permessage-deflate; client_no_context_takeover; client_no_context_takeover", false),
            ("x-webkit-deflate-frame", false),
        ] {
            let mut wire = stage.connect();
            let asked = upgrade(&format!("Sec-WebSocket-Extensions: {offer}\r\n"));
            wire.write_all(&stage.filled(&asked)).map_err(|e| e.to_string())?;
            let (status, head, _) = super::stage::read_head(&mut wire)?;
            if status != 101 || field(&head, "sec-websocket-extensions").is_some() != agreed {
                return Err(format!("{offer}: {head}"));
            }
        }
        Ok(())
    });
    for offer in ["permessage-deflate;", "permessage-deflate; a=", "permessage/deflate"] {
        rows.bytes(
            14,
            "an offer that is none",
            upgrade(&format!("Sec-WebSocket-Extensions: {offer}\r\n")),
            End::Last(400),
        );
    }
    rows.frames(13, "compressed without having been agreed", &[frame(0xc1, b"\x4b\x4c\x04\x00")], End::Closed(1002));
    for bad in [
        &b"\x80"[..],
        b"\xc0\x80",
        b"\xe0\x80\x80",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xf5\x80\x80\x80",
        b"\xce\xbaa\xff",
        b"\xe2\x82",
    ] {
        rows.frames(15, "a text that is not UTF-8", &[frame(0x81, bad)], End::Closed(1007));
        rows.frames(15, "the same cut in two", &[frame(1, &bad[..1]), frame(0x80, &bad[1..])], End::Closed(1007));
    }
}

fn closes(rows: &mut Rows) {
    for code in [0u16, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65_535] {
        rows.frames(12, "a code that is never sent", &[frame(0x88, &code.to_be_bytes())], End::Closed(1002));
    }
    rows.frames(12, "a close of one byte", &[frame(0x88, &[3])], End::Closed(1002));
    rows.frames(12, "a reason that is not UTF-8", &[frame(0x88, &[3, 0xe8, 0xff])], End::Closed(1007));
    rows.frames(12, "a close without a code", &[frame(0x88, &[])], End::Closed(1005));
    rows.frames(12, "the longest reason", &[frame(0x88, &[&[3, 0xe8][..], &[b'x'; 123]].concat())], End::Closed(1000));
    let after = [frame(0x88, &[3, 0xe8]), text(r#"{"op":"ping"}"#), vec![0xff; 64]];
    rows.frames(12, "data behind a close is not read", &after, End::Closed(1000));
    rows.script(12, "who never answers a close is cut off", |stage| {
        let mut socket = stage.upgraded("")?;
        socket.wire.write_all(&[0x81, 0]).map_err(|e| e.to_string())?;
        let code = socket.closed()?;
        // Our side stays open and goes on: the server's patience is two seconds, then nobody takes it any more.
        let start = std::time::Instant::now();
        while socket.wire.write_all(&frame(0x8a, b"still here")).and_then(|()| socket.wire.flush()).is_ok() {
            if start.elapsed() > Duration::from_secs(30) {
                return Err("it still takes what is said".into());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        if code == 1002 { Ok(()) } else { Err(format!("closed with {code}")) }
    });
}

fn slow(rows: &mut Rows) {
    let second = Duration::from_secs(1);
    let head = get("/v1/rooms", "");
    rows.add(16, "nothing at all", Attack::Bytes(Vec::new()), End::Silence);
    rows.add(16, "a head that drips", Attack::Drip(Vec::new(), vec![b'G'; 60], second / 2), End::Silence);
    rows.add(16, "a head without its last byte", Attack::Bytes(head[..head.len() - 1].to_vec()), End::Silence);
    rows.add(16, "empty lines that drip", Attack::Drip(Vec::new(), b"\r\n".repeat(40), second / 3), End::Last(400));
    rows.add(16, "one empty line and no more", Attack::Bytes(b"\r\n".to_vec()), End::Silence);
    let body = post(&format!("/v1/rooms/{ROOM}/comments"), "Content-Length: 1000\r\n", "{");
    rows.add(16, "a body that drips", Attack::Drip(body, vec![b' '; 60], second), End::Silence);
    rows.add(
        16,
        "a frame that drips",
        Attack::FrameDrip(vec![0x81, 0xfe, 0, 200], vec![0; 60], second / 2),
        End::Closed(1008),
    );
    let message = frame(1, b"a");
    rows.add(16, "a message that is never finished", Attack::Frames(message), End::Closed(1008));
    rows.script(16, "a hello that never comes", |stage| {
        let mut socket = stage.upgraded("Sec-WebSocket-Protocol: grandstand.v1\r\n")?;
        match socket.closed()? {
            4000 => Ok(()),
            other => Err(format!("closed with {other}")),
        }
    });
    rows.script(16, "two hundred that drip a head", |stage| {
        let mut crowd: Vec<_> = (0..200).map(|_| stage.connect()).collect();
        for (n, wire) in crowd.iter_mut().enumerate() {
            wire.write_all(&b"GET / HTTP/1.1\r\nHost: a\r\nX: "[..n % 24]).map_err(|e| e.to_string())?;
        }
        for wire in &mut crowd {
            let mut said = Vec::new();
            // A head that broke no rule yet is ended without a word.
            let ended = wire.read_to_end(&mut said);
            if !said.is_empty() || ended.is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock) {
                return Err(format!("one was told {:?}", said.escape_ascii().to_string()));
            }
        }
        Ok(())
    });
}

fn heads(rows: &mut Rows) {
    rows.bytes(17, "a line of a megabyte", get(&format!("/{}", "x".repeat(1 << 20)), ""), End::Last(431));
    rows.bytes(17, "a value of a megabyte", get("/", &format!("X: {}\r\n", "x".repeat(1 << 20))), End::Last(431));
    rows.bytes(17, "two thousand headers", get("/v1/rooms", &"X: 1\r\n".repeat(2_000)), End::Last(431));
    rows.bytes(17, "65 headers", get("/v1/rooms", &"X: 1\r\n".repeat(64)), End::Last(431));
    rows.bytes(17, "64 headers", get("/v1/rooms", &"X: 1\r\n".repeat(63)), End::Next(200));
    rows.script(17, "a head of 8 KiB in single bytes", |stage| {
        let mut wire = stage.connect();
        let head = stage.filled(&get("/v1/rooms", &format!("X: {}\r\n", "x".repeat(8_000))));
        for byte in &head {
            wire.write_all(&[*byte]).map_err(|e| e.to_string())?;
        }
        match super::stage::read_head(&mut wire)?.0 {
            200 => Ok(()),
            other => Err(format!("answered by {other}")),
        }
    });
}

fn upgrades(rows: &mut Rows) {
    let body = [bare_upgrade(&format!("{ASKS}{KEY}{VERSION}Content-Length: 5\r\n")), b"hello".to_vec()].concat();
    rows.bytes(18, "an upgrade with a body", body, End::Last(400));
    rows.bytes(
        18,
        "an upgrade with an empty body",
        bare_upgrade(&format!("{ASKS}{KEY}{VERSION}Content-Length: 0\r\n")),
        End::Last(400),
    );
    rows.bytes(18, "a request behind an upgrade", [upgrade(""), get("/v1/rooms", "")].concat(), End::Last(400));
    rows.bytes(18, "frames before the answer", [upgrade(""), text(r#"{"op":"ping"}"#)].concat(), End::Last(400));
    let chunked = "Transfer-Encoding: chunked\r\n";
    rows.bytes(18, "an upgrade in chunks", upgrade(&format!("{chunked}Content-Length: 5\r\n")), End::Last(411));
    let old = format!("GET /v1/rooms/{ROOM}/stream HTTP/1.0\r\nHost: {{host}}\r\n{ASKS}{KEY}{VERSION}\r\n");
    rows.bytes(18, "an upgrade of HTTP/1.0", old.into_bytes(), End::Last(400));
    let post = format!("POST /v1/rooms/{ROOM}/stream HTTP/1.1\r\nHost: {{host}}\r\n{ASKS}{KEY}{VERSION}\r\n");
    rows.bytes(18, "an upgrade by POST", post.into_bytes(), End::Next(405));
    rows.bytes(18, "an upgrade where none is", get("/v1/rooms", &format!("{ASKS}{KEY}{VERSION}")), End::Next(200));
    let h2c = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n";
    rows.bytes(19, "an upgrade to h2c is passed over", get("/v1/rooms", h2c), End::Next(200));
    rows.plain(
        19,
        "HTTP/2 without having been agreed",
        Attack::Bytes(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec()),
        End::Last(505),
    );
    for (lines, status) in [
        (format!("{ASKS}{VERSION}"), 400),
        (format!("{ASKS}{VERSION}{KEY}{KEY}"), 400),
        (format!("{ASKS}{VERSION}Sec-WebSocket-Key: c2hvcnQ=\r\n"), 400),
        (format!("{ASKS}{VERSION}Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZR==\r\n"), 400),
        (format!("{ASKS}{KEY}"), 426),
        (format!("{ASKS}{KEY}Sec-WebSocket-Version: 12\r\n"), 426),
        (format!("{ASKS}{KEY}{VERSION}{VERSION}"), 426),
        (format!("Upgrade: websocket\r\n{KEY}{VERSION}"), 400),
        (String::new(), 426),
        (format!("{ASKS}{KEY}{VERSION}Sec-WebSocket-Protocol: a\rb\r\n"), 400),
        (format!("{ASKS}{KEY}{VERSION}Sec-WebSocket-Protocol: a\u{1}b\r\n"), 400),
    ] {
        rows.bytes(20, "a field of the upgrade", bare_upgrade(&lines), End::Last(status));
    }
}

fn operations(rows: &mut Rows) {
    rows.script(21, "anything before hello", |stage| {
        for first in [
            r#"{"op":"publish","client_msg_id":"k","body":"x"}"#,
            r#"{"op":"join","room_id":"b"}"#,
            r#"{"op":"auth","token":"a.b.c"}"#,
        ] {
            let mut socket = stage.upgraded("Sec-WebSocket-Protocol: grandstand.v1\r\n")?;
            socket.say(first)?;
            match socket.closed()? {
                4000 => {}
                other => return Err(format!("{first}: closed with {other}")),
            }
        }
        Ok(())
    });
    rows.frames(21, "a second hello", &[text(r#"{"op":"hello"}"#)], End::Told("bad_op"));
    rows.script(21, "a renewal by another user", |stage| {
        let (ann, bob) = (stage.server.token("ann", &["publisher"]), stage.server.token("bob", &["publisher"]));
        let mut socket = stage.upgraded(&format!("Authorization: Bearer {ann}\r\n"))?;
        socket.say(&json!({"op": "auth", "token": bob}).to_string())?;
        let error = socket.until(|e| e["type"] == "error")?;
        if error["code"] != "not_allowed" {
            return Err(error.to_string());
        }
        socket.lives()
    });
    let churn: Vec<Vec<u8>> = (0..500)
        .flat_map(|n| {
            [
                text(&format!(r#"{{"op":"join","room_id":"churn-{n}"}}"#)),
                text(&format!(r#"{{"op":"leave","room_id":"churn-{n}"}}"#)),
            ]
        })
        .collect();
    rows.frames(22, "joining and leaving a thousand times", &churn, End::Closed(4129));
    for bomb in [
        "[".repeat(16_000),
        "{\"a\":".repeat(3_000),
        format!("{{\"op\":\"ping\",{}\"k7\":1}}", (0..1_500).map(|n| format!("\"k{n}\":0,")).collect::<String>()),
        r#"{"op":"ping","op":"ping"}"#.to_owned(),
        r#"{"op":"ping","\u006fp":"hello"}"#.to_owned(),
        r#"{"op":NaN}"#.to_owned(),
        "\u{feff}{\"op\":\"ping\"}".to_owned(),
        r#"{"op":"ping"} {"op":"ping"}"#.to_owned(),
        r#"{"op":"\ud800"}"#.to_owned(),
        "[]".to_owned(),
        "null".to_owned(),
    ] {
        rows.frames(23, "JSON that is none", &[text(&bomb)], End::Told("bad_json"));
        let path = format!("/v1/rooms/{ROOM}/comments");
        // Who asks is judged first: without a token none of it is read.
        rows.bytes(23, "the same by HTTP, from nobody", post_json(&path, "", &bomb), End::Next(401));
    }
    rows.script(23, "the same by HTTP, from somebody", |stage| {
        let token = stage.server.token("ann", &["publisher"]);
        for bomb in
            ["[".repeat(16_000), r#"{"client_msg_id":"k","client_msg_id":"k","body":"x"}"#.to_owned(), "{}x".to_owned()]
        {
            let (status, _, body) = stage.asked(&comment(&token, &bomb))?;
            if status != 400 {
                return Err(format!("{status} {}", body.escape_ascii()));
            }
        }
        Ok(())
    });
    for number in ["1e400", "-1", "9007199254740992", "1.0", "1e3", &"9".repeat(10_000)] {
        let join = format!(r#"{{"op":"join","room_id":"b","last_event_id":{number}}}"#);
        rows.frames(81, "a cursor in an operation", &[text(&join)], End::Told("bad_cursor"));
    }
    rows.frames(67, "a binary frame", &[frame(0x82, b"\0\xff")], End::Told("bad_json"));
}

fn streams(rows: &mut Rows) {
    rows.script(24, "seventy thousand questions whose answers nobody reads", |stage| {
        let mut wire = stage.connect();
        wire.socket().set_write_timeout(Some(Duration::from_secs(1))).map_err(|e| e.to_string())?;
        let many = stage.filled(&get("/openapi.json", "").repeat(1_000));
        for _ in 0..70 {
            // They are not taken for ever: the pipe is full at some time.
            if wire.write_all(&many).is_err() {
                break;
            }
        }
        // Others are answered meanwhile, and what is owed to this one does not grow.
        for _ in 0..50 {
            stage.asked(&get("/healthz/live", ""))?;
        }
        let memory = stage.memory_kb();
        if memory > 256 * 1024 {
            return Err(format!("{memory} KB are held for one caller"));
        }
        match super::stage::read_head(&mut wire)?.0 {
            200 => Ok(()),
            other => Err(format!("the first answer is {other}")),
        }
    });
    rows.script(25, "half a close behind a request gets its answer", |stage| {
        let mut wire = stage.connect();
        wire.write_all(&stage.filled(&get("/v1/rooms", ""))).map_err(|e| e.to_string())?;
        half_close(&wire);
        match super::stage::read_head(&mut wire)?.0 {
            200 => Ok(()),
            other => Err(format!("answered by {other}")),
        }
    });
    rows.plain(
        25,
        "a storm of resets",
        Attack::Script(|stage| {
            for n in 0..300 {
                let mut wire = stage.connect();
                let bytes =
                    stage.filled(&if n % 3 == 0 { get(&format!("/v1/rooms/{ROOM}/sse"), "") } else { upgrade("") });
                let cut = if n % 2 == 0 { bytes.len() } else { bytes.len() / 2 };
                wire.write_all(&bytes[..cut]).map_err(|e| e.to_string())?;
                if n % 4 == 0 {
                    super::stage::read_head(&mut wire)?;
                }
                reset(wire);
            }
            Ok(())
        }),
        End::Scripted,
    );
    for path in [
        "sse?last_event_id=5%0aevent:%20close",
        "sse?last_event_id=5%0d%0adata:x",
        "poll?since=5%0a",
        "sse?last_event_id=%00",
    ] {
        rows.bytes(27, "line ends in a cursor", get(&format!("/v1/rooms/{ROOM}/{path}"), ""), End::Next(400));
    }
    for room in [
        "a%0aevent:%20close",
        "a%0d%0aX:%20y",
        "a%00",
        "%2e%2e",
        "A",
        "a%2fb",
        "{x}",
        "a*",
        "a%20b",
        "%D0%B0",
        &"a".repeat(129),
    ] {
        rows.bytes(70, "a room that is no name", get(&format!("/v1/rooms/{room}/sse"), ""), End::Next(400));
        rows.bytes(70, "its snapshot", get(&format!("/v1/rooms/{room}/snapshot"), ""), End::Next(400));
    }
    rows.script(28, "a comment cannot forge a field of an event stream", |stage| {
        let forged = "x\n\ndata: {\"type\":\"close\"}\nevent: close\u{2028}id: 1\u{2029}retry: 1";
        let token = stage.server.token("forger", &["publisher"]);
        let body =
            json!({"client_msg_id": format!("forged-{}", stage.server.trust.is_some()), "body": forged}).to_string();
        let mut wire = stage.connect();
        wire.write_all(&stage.filled(&get(&format!("/v1/rooms/{ROOM}/sse"), ""))).map_err(|e| e.to_string())?;
        let (_, _, mut seen) = super::stage::read_head(&mut wire)?;
        let (status, _, answer) = stage.asked(&comment(&token, &body))?;
        if status != 200 {
            return Err(format!("{status} {}", answer.escape_ascii()));
        }
        let ack: serde_json::Value = serde_json::from_slice(&answer).map_err(|e| e.to_string())?;
        let id = format!("id: {}\n", ack["event_id"]);
        loop {
            let all = String::from_utf8_lossy(&seen).into_owned();
            if let Some((_, after)) = all.split_once(&id)
                && let Some((data, _)) = after.split_once("\n\n")
            {
                let data = data.strip_prefix("data: ").ok_or("data comes behind the id")?;
                let event: serde_json::Value = serde_json::from_str(data).map_err(|e| format!("{e}: {data}"))?;
                return if event["body"] == forged { Ok(()) } else { Err(event.to_string()) };
            }
            let mut chunk = [0; 4096];
            match wire.read(&mut chunk) {
                Ok(n) if n > 0 => seen.extend_from_slice(&chunk[..n]),
                other => return Err(format!("{other:?}")),
            }
        }
    });
    for since in ["9007199254740992", "18446744073709551616", "-1", "1e9", "01", "+1", "%20", &"9".repeat(5_000)] {
        rows.bytes(35, "a poll's cursor", get(&format!("/v1/rooms/{ROOM}/poll?since={since}"), ""), End::Next(400));
        rows.bytes(
            81,
            "an event stream's cursor",
            get(&format!("/v1/rooms/{ROOM}/sse?last_event_id={since}"), ""),
            End::Next(400),
        );
        rows.bytes(
            81,
            "a snapshot's least cursor",
            get(&format!("/v1/rooms/{ROOM}/snapshot?min={since}"), ""),
            End::Next(400),
        );
    }
    for timeout in ["-1", "x", "1.5", ""] {
        rows.bytes(
            35,
            "a poll's timeout",
            get(&format!("/v1/rooms/{ROOM}/poll?timeout={timeout}"), ""),
            End::Next(400),
        );
    }
    rows.script(35, "a cursor beyond the head needs a snapshot", |stage| {
        let path = format!("/v1/rooms/{ROOM}/poll?since=9007199254740991");
        let (status, _, body) = stage.asked(&get(&path, ""))?;
        let answer: serde_json::Value = serde_json::from_slice(&body).map_err(|e| e.to_string())?;
        let told = answer["events"].as_array().is_some_and(|e| e.iter().any(|e| e["reason"] == "unknown_cursor"));
        if status == 200 && told { Ok(()) } else { Err(format!("{status} {answer}")) }
    });
    rows.script(35, "ten polls of one tab leave one", |stage| {
        let token = stage.server.token(if stage.server.trust.is_some() { "tabs" } else { "tab" }, &["viewer"]);
        // Of a room where nothing happens, so that none is answered by an event.
        let path = "/v1/rooms/quiet/poll?tab=one&timeout=3".to_owned();
        let first = get(&path, &format!("Authorization: Bearer {token}\r\n"));
        let (_, _, body) = stage.asked(&first)?;
        let answer: serde_json::Value = serde_json::from_slice(&body).map_err(|e| e.to_string())?;
        let next =
            get(&format!("{path}&since={}", answer["next_since"]), &format!("Authorization: Bearer {token}\r\n"));
        let mut polls: Vec<_> = (0..10).map(|_| stage.connect()).collect();
        for poll in &mut polls {
            poll.write_all(&stage.filled(&next)).map_err(|e| e.to_string())?;
        }
        let mut counts = std::collections::BTreeMap::new();
        for poll in &mut polls {
            *counts.entry(super::stage::read_head(poll)?.0).or_insert(0) += 1;
        }
        if counts == [(200, 1), (204, 9)].into() { Ok(()) } else { Err(format!("{counts:?}")) }
    });
}

fn requests(rows: &mut Rows) {
    let path = format!("/v1/rooms/{ROOM}/comments");
    for (lines, status) in [
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", 411),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", 411),
        ("Transfer-Encoding: chunked\r\n", 411),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", 411),
        ("Transfer-Encoding: xchunked\r\n", 411),
        ("Transfer-Encoding:\u{b}chunked\r\n", 400),
        ("Transfer-Encoding : chunked\r\n", 400),
        ("Transfer-Encoding\u{a0}: chunked\r\n", 400),
        ("Content-Length: 5\r\nContent-Length: 5\r\n", 400),
        ("Content-Length: 5\r\ncontent-length: 6\r\n", 400),
        ("Content-Length: 5, 5\r\n", 400),
        ("Content-Length: +5\r\n", 400),
        ("Content-Length: 0x5\r\n", 400),
        ("Content-Length: 5 \u{b}\r\n", 400),
        ("Content-Length: 18446744073709551621\r\n", 413),
        ("Content-Length: 65537\r\n", 413),
        ("X: a\r\n folded\r\nContent-Length: 5\r\n", 400),
        ("X: a\nContent-Length: 5\r\n", 400),
        ("X: a\rContent-Length: 5\r\n", 400),
        ("X\r\n", 400),
        ("Host: other\r\n", 400),
        ("Content-Encoding: gzip\r\nContent-Length: 5\r\n", 415),
        ("Expect: 200-ok\r\nContent-Length: 5\r\n", 417),
        ("Expect: 100-continue\r\nExpect: 200-ok\r\nContent-Length: 5\r\n", 417),
    ] {
        let smuggled = "0\r\n\r\nGET /v1/rooms HTTP/1.1\r\nHost: {host}\r\n\r\n";
        let a = if status == 415 { 39 } else { 34 };
        rows.bytes(a, "what two readers would cut in two places", post(&path, lines, smuggled), End::Last(status));
    }
    let chunks = |body: &str| post(&path, "Transfer-Encoding: chunked\r\n", body);
    rows.bytes(34, "a chunk's extension", chunks("5;x=y\r\nhello\r\n0\r\n\r\n"), End::Last(411));
    rows.bytes(34, "a chunk of 2^64 bytes", chunks("10000000000000000\r\nhello"), End::Last(411));
    rows.bytes(34, "a GET with a body", get("/v1/rooms", "Content-Length: 5\r\n"), End::Last(400));
    rows.bytes(
        34,
        "a bare line feed before a request",
        b"\n\nGET / HTTP/1.1\r\nHost: {host}\r\n\r\n".to_vec(),
        End::Last(400),
    );
    rows.bytes(
        34,
        "two empty lines before a request",
        b"\r\n\r\nGET / HTTP/1.1\r\nHost: {host}\r\n\r\n".to_vec(),
        End::Last(400),
    );
    rows.bytes(
        34,
        "one empty line before a request",
        b"\r\nGET /v1/rooms HTTP/1.1\r\nHost: {host}\r\n\r\n".to_vec(),
        End::Next(200),
    );
    rows.bytes(34, "no host", b"GET / HTTP/1.1\r\n\r\n".to_vec(), End::Last(400));
    rows.bytes(34, "a whole address as target", get("http://{host}/v1/rooms", ""), End::Last(400));
    rows.bytes(34, "letters beyond ASCII in a target", get("/v1/rooms/\u{e9}", ""), End::Last(400));
    rows.bytes(34, "garbage", vec![0xff; 512], End::Silence);
    for (target, status) in [
        (format!("/v1/rooms/{ROOM}/snapshot/x.css"), 404),
        (format!("/V1/rooms/{ROOM}/snapshot"), 404),
        (format!("/v1/rooms/{ROOM}%2fsnapshot"), 404),
        (format!("/v1//rooms/{ROOM}/snapshot"), 404),
        (format!("/v1/rooms/{ROOM}/snapshot/"), 404),
        (format!("/v1/rooms/{ROOM}/snapshot;x.css"), 404),
        (format!("/v1/rooms/{ROOM}/../{ROOM}/snapshot"), 404),
        (format!("/x/%2e%2e/v1/rooms/{ROOM}/snapshot"), 404),
        (format!("/admin/../v1/rooms/{ROOM}/snapshot"), 404),
        (format!("/v1/rooms/{ROOM}/Stream"), 404),
    ] {
        rows.bytes(36, "a path that is nearly a route", get(&target, ""), End::Next(status));
    }
    for host in ["evil.example", "127.0.0.1.evil.example", "{host}.evil.example"] {
        let bytes = format!("GET /v1/rooms/{ROOM}/sse HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes();
        rows.bytes(36, "another host", bytes, End::Next(403));
    }
    rows.script(37, "an origin that is not listed is not named in an answer", |stage| {
        for path in ["/v1/rooms".to_owned(), format!("/v1/rooms/{ROOM}/snapshot"), format!("/v1/rooms/{ROOM}/sse")] {
            let (_, head, _) = stage.asked(&get(&path, "Origin: https://evil.example\r\n"))?;
            if head.to_ascii_lowercase().contains("access-control") {
                return Err(head);
            }
        }
        Ok(())
    });
    for method in ["TRACE", "TRACK", "CONNECT", "PROPFIND", "get"] {
        let bytes = format!("{method} /v1/rooms HTTP/1.1\r\nHost: {{host}}\r\n\r\n").into_bytes();
        rows.bytes(38, "a method that is none", bytes, End::Last(405));
    }
    for (method, target) in
        [("DELETE", "/v1/rooms"), ("PUT", "/v1/guest"), ("POST", "/v1/rooms"), ("PATCH", "/v1/ticket")]
    {
        let bytes = format!("{method} {target} HTTP/1.1\r\nHost: {{host}}\r\n\r\n").into_bytes();
        rows.bytes(38, "a method that this route does not have", bytes, End::Next(405));
    }
    rows.script(38, "HEAD of a stream is answered without a body", |stage| {
        for rung in ["stream", "sse", "poll"] {
            let mut wire = stage.connect();
            for _ in 0..2 {
                let head = format!("HEAD /v1/rooms/{ROOM}/{rung} HTTP/1.1\r\nHost: {{host}}\r\n\r\n");
                wire.write_all(&stage.filled(head.as_bytes())).map_err(|e| e.to_string())?;
                match super::stage::read_head(&mut wire)? {
                    (405, _, more) if more.is_empty() => {}
                    (status, _, more) => return Err(format!("{rung}: {status} {}", more.escape_ascii())),
                }
            }
        }
        Ok(())
    });
    let overridden = post("/v1/rooms", "X-HTTP-Method-Override: GET\r\nX-HTTP-Method: GET\r\n", "");
    rows.bytes(38, "a method in a header", overridden, End::Next(405));
    rows.bytes(38, "a range is passed over", get("/v1/rooms", "Range: bytes=0-1\r\n"), End::Next(200));
    rows.bytes(
        40,
        "a token of algorithm none",
        get(
            &format!("/v1/rooms/{ROOM}/sse"),
            "Authorization: Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIiwiZXhwIjo5OTk5OTk5OTk5fQ.\r\n",
        ),
        End::Next(403),
    );
    for token in ["", "a", "a.b", "a.b.c", "a.b.c.d", "..", "%00", "eyJ.eyJ.x="] {
        let more = format!("Authorization: Bearer {token}\r\n");
        rows.bytes(
            45,
            "a token that is none, to a stream",
            get(&format!("/v1/rooms/{ROOM}/sse"), &more),
            End::Next(403),
        );
        rows.bytes(
            45,
            "a token that is none, to an operator's route",
            get(&format!("/admin/rooms/{ROOM}"), &more),
            End::Next(401),
        );
    }
    let long = format!("Authorization: Bearer {}\r\n", "a".repeat(5_000));
    rows.bytes(45, "a token of five thousand bytes", get(&format!("/v1/rooms/{ROOM}/sse"), &long), End::Next(403));
    rows.bytes(46, "an operator's route without a token", get(&format!("/admin/rooms/{ROOM}"), ""), End::Next(401));
    rows.script(46, "a viewer's token opens no operator's route", |stage| {
        let token = stage.server.token("ann", &["publisher"]);
        for path in [
            format!("/admin/rooms/{ROOM}"),
            format!("/admin/rooms/{ROOM}/export"),
            format!("/admin/rooms/{ROOM}/history?user=ann"),
            format!("/admin/audit?room={ROOM}"),
            "/admin/audit".to_owned(),
            "/admin/rooms".to_owned(),
            "/admin/gateways".to_owned(),
        ] {
            let (status, ..) = stage.asked(&get(&path, &format!("Authorization: Bearer {token}\r\n")))?;
            if status != 403 {
                return Err(format!("{path}: {status}"));
            }
        }
        Ok(())
    });
    for target in [
        format!("/Admin/rooms/{ROOM}"),
        format!("/admin//rooms/{ROOM}"),
        format!("/admin/rooms/..;/rooms/{ROOM}"),
        format!("/%61dmin/rooms/{ROOM}/x"),
    ] {
        rows.bytes(55, "a way round an operator's route", get(&target, ""), End::Next(404));
    }
    let proxied = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x01\x02\x03\x04\x7f\0\0\x01\0\x01\0\x50GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".to_vec();
    rows.plain(72, "a PROXY header of version 2 from nobody trusted", Attack::Bytes(proxied), End::Last(400));
    let first = b"PROXY TCP4 1.2.3.4 127.0.0.1 1 80\r\nGET / HTTP/1.1\r\nHost: {host}\r\n\r\n".to_vec();
    rows.bytes(72, "a PROXY header of version 1", first, End::Last(505));
    let forwarded = get("/v1/rooms", "X-Forwarded-For: 10.0.0.1, ::ffff:127.0.0.1, x\r\nForwarded: for=1.2.3.4\r\n");
    rows.bytes(72, "a forwarded address from nobody trusted", forwarded, End::Next(200));
    rows.plain(
        91,
        "a handshake of TLS 1.3 to a plain port",
        Attack::Bytes(b"\x16\x03\x01\x00\xf4\x01\x00\x00\xf0\x03\x03".to_vec()),
        End::Last(400),
    );
}

fn texts(rows: &mut Rows) {
    rows.script(67, "controls, surrogates and long texts are refused by name", |stage| {
        let token = stage.server.token("texts", &["publisher"]);
        for (n, (body, code)) in [
            (r#""a\u0000b""#, 422),
            (r#""a\u0007b""#, 422),
            (r#""a\u0085b""#, 422),
            (r#""a\r\nb""#, 422),
            (r#""\ud800""#, 400),
            (r#""""#, 422),
            (&format!("\"{}\"", "x".repeat(501)), 422),
            (&format!("\"h{}\"", "\u{489}".repeat(11)), 422),
            ("7", 400),
        ]
        .into_iter()
        .enumerate()
        {
            let body = format!("{{\"client_msg_id\":\"text-{n}\",\"body\":{body}}}");
            let (status, _, answer) = stage.asked(&comment(&token, &body))?;
            if status != code {
                return Err(format!("{body}: {status} {}", answer.escape_ascii()));
            }
        }
        Ok(())
    });
    rows.script(64, "a guest's name shows what it is", |stage| {
        for (name, shown) in
            [("Ann\u{200b}", Some("Ann")), ("a\u{202e}b", Some("ab")), ("\u{2060}", None), ("\u{200d}", None)]
        {
            let body = json!({"name": name}).to_string();
            let (status, _, answer) = stage.asked(&post_json("/v1/guest", "", &body))?;
            let told: serde_json::Value = serde_json::from_slice(&answer).map_err(|e| e.to_string())?;
            if (status, told["user"]["display"].as_str()) != (if shown.is_some() { 200 } else { 422 }, shown) {
                return Err(format!("{name:?}: {status} {told}"));
            }
        }
        Ok(())
    });
    rows.script(66, "a guest may be called like a moderator and is shown as a guest", |stage| {
        // Cyrillic and fullwidth letters, a sign that looks like a badge. Names are not compared: what somebody is, is told by the
        // id and the badges, which a token brings and a name cannot.
        for (n, name) in ["\u{410}dmin", "\u{ff2d}oderator", "ann \u{2714}", "referee [mod]"].into_iter().enumerate() {
            let body = json!({"name": name}).to_string();
            let (status, _, answer) = stage.asked(&post_json("/v1/guest", "", &body))?;
            let told: serde_json::Value = serde_json::from_slice(&answer).map_err(|e| e.to_string())?;
            let body = json!({"client_msg_id": format!("name-{n}"), "body": format!("I am {name}")}).to_string();
            let token = told["token"].as_str().ok_or_else(|| format!("{status} {told}"))?;
            let (status, _, answer) = stage.asked(&comment(token, &body))?;
            if status != 200 {
                return Err(format!("{name}: {status} {}", answer.escape_ascii()));
            }
            let told_id: serde_json::Value = serde_json::from_slice(&answer).map_err(|e| e.to_string())?;
            // Without it one of a tenth of a second ago may come.
            let path = format!("/v1/rooms/{ROOM}/snapshot?min={}", told_id["event_id"]);
            let (_, _, answer) = stage.asked(&get(&path, ""))?;
            let shown: serde_json::Value = serde_json::from_slice(&answer).map_err(|e| e.to_string())?;
            let id = told["user"]["id"].as_str().unwrap_or_default();
            let comments = shown["recent_comments"].as_array().cloned().unwrap_or_default();
            let own: Vec<_> = comments.iter().filter(|c| c["user"]["id"] == id).collect();
            if !id.starts_with("guest:")
                || own.is_empty()
                || own.iter().any(|c| c["user"]["badges"].as_array().is_none_or(|b| !b.is_empty()))
            {
                return Err(format!("{name}: {told} {own:?}"));
            }
        }
        Ok(())
    });
    rows.script(68, "line ends and escapes in any field stay out of the log", |stage| {
        for bytes in [get("/\u{1b}[31mforged", ""), get("/%0aforged-line", "User-Agent: \u{1b}[31mforged\r\n")] {
            let _ = stage.asked(&bytes);
        }
        if stage.server.stderr().contains('\u{1b}') { Err(stage.server.stderr()) } else { Ok(()) }
    });
    rows.script(11, "pings of one write are answered up to the newest", |stage| {
        let mut socket = stage.upgraded("")?;
        let mut all = Vec::new();
        for n in 0..8u8 {
            write_masked_frame(Opcode::Ping, true, &[n], [1, 2, 3, 4], &mut all);
        }
        socket.wire.write_all(&all).map_err(|e| e.to_string())?;
        let mut newest = None;
        while newest != Some(7) {
            match socket.next()? {
                Some(Incoming::Pong(body)) => newest = body.first().copied(),
                Some(Incoming::Close(code, _)) => return Err(format!("closed with {code:?}")),
                None => return Err("ended".into()),
                Some(_) => {}
            }
        }
        socket.lives()
    });
}
