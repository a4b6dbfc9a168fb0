//! A WebSocket that says back what it hears: the frame reader and writer alone, for conformance tests.
//!
//! Conformance suites need an echo, and a room is none. The route exists only in a process that was started with
//! `GRANDSTAND_TEST_ECHO` set, and takes larger messages than a viewer may send, because the cases do.

use std::time::Duration;

use bytes::Bytes;
use grandstand_wire::http::{self, Head};
use grandstand_wire::ws::{self, FrameReader, Incoming, Limits, Opcode, Side};

use super::conn::Kind;
use super::worker::{LINGER, Worker};

pub const PATH: &str = "/v1/test/echo";
const LIMITS: Limits = Limits { message_bytes: 1 << 20, fragments: 1_024, assembly: Duration::from_secs(30) };

pub fn is_asked_for() -> bool {
    std::env::var_os("GRANDSTAND_TEST_ECHO").is_some_and(|v| !v.is_empty())
}

impl Worker {
    pub(super) fn open_echo(&mut self, slot: usize, head: &Head<'_>) {
        let upgrade = match http::upgrade(head) {
            Ok(Some(upgrade)) => upgrade,
            Ok(None) => return self.refuse_request(slot, http::Refusal { status: 426, reason: "this is a WebSocket" }),
            Err(refusal) => return self.refuse_request(slot, refusal),
        };
        let mut out = Vec::new();
        http::write_status(101, &mut out);
        http::write_header("upgrade", b"websocket", &mut out);
        http::write_header("connection", b"Upgrade", &mut out);
        http::write_header("sec-websocket-accept", upgrade.accept.as_bytes(), &mut out);
        http::end_head(&mut out);
        self.conns[slot].kind = Kind::Echo(Box::default());
        self.send(slot, out.into());
    }

    pub(super) fn on_echo_bytes(&mut self, slot: usize, mut input: &[u8]) {
        let now = self.now;
        loop {
            let Some(Kind::Echo(reader)) = self.conns.get_mut(slot).map(|c| &mut c.kind) else { return };
            let reader: &mut FrameReader = reader;
            let (opcode, body) = match reader.next(Side::Server, &LIMITS, &mut input, now) {
                Ok(None) => return,
                Ok(Some(Incoming::Text(text))) => (Opcode::Text, text.into_bytes()),
                Ok(Some(Incoming::Binary(body))) => (Opcode::Binary, body),
                Ok(Some(Incoming::Ping(body))) => (Opcode::Pong, body),
                Ok(Some(Incoming::Pong(_))) => continue,
                Ok(Some(Incoming::Close(code, reason))) => {
                    let body = code.map_or_else(Vec::new, |code| ws::close_body(code, &reason));
                    return self.end_echo(slot, &body);
                }
                Err(fault) => return self.end_echo(slot, &ws::close_body(fault.code(), fault.reason())),
            };
            let mut out = Vec::with_capacity(body.len() + 10);
            ws::write_frame(opcode, &body, &mut out);
            self.send(slot, out.into());
        }
    }

    fn end_echo(&mut self, slot: usize, body: &[u8]) {
        let mut out = Vec::new();
        ws::write_frame(Opcode::Close, body, &mut out);
        self.send(slot, Bytes::from(out));
        self.linger(slot, LINGER);
    }
}
