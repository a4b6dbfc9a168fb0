//! permessage-deflate on real sockets: who is sent what, and what may come in.

use std::io::Write;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use grandstand_core::time::Mono;
use grandstand_wire::deflate::{Deflater, Inflater};
use grandstand_wire::ws::{self, Incoming, Limits, Opcode, Side};
use serde_json::{Value, json};

use super::{Stage, WAIT, Ws, stage, stage_of};
use crate::metrics::{Transport, read};

const OFFER: &str = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n";
const AGREED: &str =
    "sec-websocket-extensions: permessage-deflate; server_no_context_takeover; client_no_context_takeover";
/// More than goes as it is.
const LONG: usize = 900;

/// The next message, and whether it came compressed.
fn next(ws: &mut Ws) -> (Incoming, bool) {
    let limits = Limits { message_bytes: 1 << 24, deflate: true, ..Limits::FROM_CLIENT };
    loop {
        let mut input = &ws.http.buf[..];
        let got = ws.reader.next(Side::Client, &limits, &mut input, Mono(0)).unwrap();
        ws.http.buf = input.to_vec();
        match got {
            Some(Incoming::Deflated(packed)) => return (Inflater::default().open(packed, 1 << 24).unwrap(), true),
            Some(incoming) => return (incoming, false),
            None => assert!(ws.http.fill(), "the connection ended"),
        }
    }
}

/// The next comment, and whether it came compressed. The number of viewers may ride with it.
fn comment(ws: &mut Ws) -> (Value, bool) {
    loop {
        let (Incoming::Text(text), packed) = next(ws) else { continue };
        let event = match serde_json::from_str(&text).unwrap() {
            Value::Array(mut events) => events.remove(0),
            event => event,
        };
        if event["type"] == "comment" {
            return (event, packed);
        }
    }
}

fn offering(stage: &Stage, id: &str, sub: &str) -> Ws {
    stage.ws(id, &format!("Authorization: Bearer {}\r\n{OFFER}", stage.token(sub)))
}

/// Sends one message, its body as it is to go over the wire.
fn send(ws: &mut Ws, first: u8, body: &[u8]) {
    let mut out = Vec::new();
    ws::write_masked_frame(Opcode::Text, true, body, [9, 8, 7, 6], &mut out);
    out[0] = first;
    ws.http.socket.write_all(&out).unwrap();
}

/// Until a walk that has written has counted, too.
fn counted(counter: &AtomicU64, n: u64) {
    let began = Instant::now();
    while read(counter) != n {
        assert!(began.elapsed() < WAIT, "{} instead of {n}", read(counter));
        std::thread::yield_now();
    }
}

fn close_code(ws: &mut Ws) -> u16 {
    loop {
        if let (Incoming::Close(code, _), _) = next(ws) {
            return code.unwrap_or(0);
        }
    }
}

#[test]
fn a_long_frame_goes_compressed_to_those_who_offered_and_says_the_same_to_all() {
    let stage = stage();
    let (mut with, mut without) = (offering(&stage, "a", "ann"), stage.ws("a", ""));
    assert!(with.head.contains(AGREED) && !without.head.contains("extensions"), "{}", with.head);
    stage.seated("a", 2);
    for (body, long) in [("short".to_owned(), false), ("long ".repeat(LONG / 5), true)] {
        stage.comment("a", &body);
        let ((one, packed), (other, plain)) = (comment(&mut with), comment(&mut without));
        assert_eq!((packed, plain), (long, false));
        assert_eq!(one, other);
    }
    let metrics = &stage.metrics;
    counted(&metrics.packed, 1);
    let (saved, sent) = (read(&metrics.saved), read(&metrics.bytes[Transport::WebSocket as usize]));
    assert!(saved > 700 && sent < 2_000, "{saved} bytes saved, {sent} sent");
    assert!(read(&metrics.packing_ns) > 0);
}

#[test]
fn one_compression_serves_everyone_on_a_worker() {
    let stage = stage_of(1, true);
    let mut viewers: Vec<Ws> = (0..5).map(|_| stage.ws("a", OFFER)).collect();
    stage.seated("a", 5);
    stage.comment("a", &"x".repeat(LONG));
    let seen: Vec<(Value, bool)> = viewers.iter_mut().map(comment).collect();
    assert!(seen.iter().all(|(event, packed)| *packed && event["event_id"] == seen[0].0["event_id"]));
    counted(&stage.metrics.packed, 5);
    // Twice where the number of viewers rides along for those who were not told it yet.
    assert!(read(&stage.metrics.encoded) <= 2);
}

#[test]
fn a_client_with_a_small_window_is_sent_only_what_fits_it_compressed() {
    let stage = stage();
    let fields = "Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=10\r\n";
    let mut viewer = stage.ws("a", fields);
    assert!(viewer.head.contains(&format!("{AGREED}; server_max_window_bits=10\r\n")), "{}", viewer.head);
    stage.seated("a", 1);
    for (len, packs) in [(800, true), (1_200, false)] {
        stage.comment("a", &"y".repeat(len));
        assert_eq!(comment(&mut viewer).1, packs, "{len} bytes");
    }
}

#[test]
fn what_a_client_compresses_is_read_and_its_author_still_knows_it_again() {
    let stage = stage();
    let mut author = offering(&stage, "a", "ann");
    let mut other = stage.ws("a", "");
    stage.seated("a", 2);
    let body = "goal ⚽".repeat(70);
    let publish = json!({"op": "publish", "client_msg_id": "k1", "body": body}).to_string();
    let packed = Deflater::default().pack(publish.as_bytes(), 1 << 14).unwrap().to_vec();
    send(&mut author, 0xc1, &packed);
    assert_eq!(comment(&mut other).0["body"], *body);
    let (own, _) = comment(&mut author);
    assert_eq!((&own["client_msg_id"], &own["body"]), (&json!("k1"), &json!(body)));
    // Not everything a client says has to be compressed.
    send(&mut author, 0x81, br#"{"op":"publish","client_msg_id":"k2","body":"plain"}"#);
    assert_eq!(comment(&mut other).0["body"], "plain");
}

#[test]
fn a13_compressed_frames_have_the_limits_of_others_and_are_refused_where_not_agreed_on() {
    let stage = stage();
    let pack = |body: &[u8]| Deflater::default().pack(body, 1 << 20).unwrap().to_vec();
    let end = |fields: &str, first: u8, body: &[u8]| {
        let mut viewer = stage.ws("a", fields);
        send(&mut viewer, first, body);
        close_code(&mut viewer)
    };
    assert_eq!(end("", 0xc1, &pack(b"{}")), 1002);
    assert_eq!(end(OFFER, 0xc9, b""), 1002);
    assert_eq!(end(OFFER, 0xe1, b""), 1002);
    assert_eq!(end(OFFER, 0xc1, &[0xff; 9]), 1002);
    assert_eq!(end(OFFER, 0xc1, &pack(b"\xff")), 1007);
    let bomb = pack(&vec![b' '; 1 << 20]);
    assert!(bomb.len() < 16 << 10);
    assert_eq!(end(OFFER, 0xc1, &bomb), 1009);
    assert_eq!(end(OFFER, 0xc1, &pack(&vec![b' '; (16 << 10) + 1])), 1009);
    // Over two frames, the second of which may not say it again.
    for (last, code) in [(0x80, 1009), (0xc0, 1002)] {
        let mut viewer = stage.ws("a", OFFER);
        let (one, two) = bomb.split_at(600);
        send(&mut viewer, 0x41, one);
        send(&mut viewer, last, two);
        assert_eq!(close_code(&mut viewer), code);
    }
}

#[test]
fn an_operation_costs_the_same_compressed_or_not() {
    let stage = stage();
    let mut viewer = offering(&stage, "a", "ann");
    let packed = Deflater::default().pack(br#"{"op":"ping"}"#, 1 << 10).unwrap().to_vec();
    // A flood of them ends like a flood of plain ones.
    for _ in 0..2_000 {
        let mut out = Vec::new();
        ws::write_masked_frame(Opcode::Text, true, &packed, [1, 2, 3, 4], &mut out);
        out[0] = 0xc1;
        if viewer.http.socket.write_all(&out).is_err() {
            break;
        }
    }
    assert_eq!(close_code(&mut viewer), 4129);
}

#[test]
fn a_server_that_is_told_not_to_agrees_to_nothing() {
    let stage = stage_of(1, false);
    let mut viewer = stage.ws("a", OFFER);
    assert!(!viewer.head.contains("extensions"));
    stage.seated("a", 1);
    stage.comment("a", &"x".repeat(LONG));
    assert!(!comment(&mut viewer).1);
    send(&mut viewer, 0xc1, b"");
    assert_eq!(close_code(&mut viewer), 1002);
}

#[test]
fn a_malformed_offer_is_refused_before_the_upgrade() {
    let stage = stage();
    let text = "GET /v1/rooms/a/stream HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                Sec-WebSocket-Extensions: permessage-deflate; =\r\n\r\n";
    assert_eq!(stage.say(text).answer().status, 400);
}
