//! A WebSocket that says back what it hears: the frame reader and writer alone, for conformance tests.
//!
//! Conformance suites need an echo, and a room is none. The route exists only in a process that was started with
//! `GRANDSTAND_TEST_ECHO` set, and takes larger messages than a viewer may send, because the cases do.

use std::time::Duration;

use bytes::Bytes;
use grandstand_wire::deflate::Deflater;
use grandstand_wire::http::{self, Head};
use grandstand_wire::ws::{self, FrameReader, Incoming, Limits, Opcode, Side};

use super::conn::Kind;
use super::worker::{LINGER, Worker};

pub const PATH: &str = "/v1/test/echo";
const LIMITS: Limits =
    Limits { message_bytes: 1 << 20, fragments: 1_024, assembly: Duration::from_secs(30), deflate: false };

/// One connection that is said back to.
pub struct Echo {
    reader: FrameReader,
    /// Where compression was agreed on. Its own, in the window this client asked for: what is said back is shared by nobody.
    deflater: Option<Deflater>,
}

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
        let deflate = upgrade.deflate.filter(|_| self.shared.settings.deflate);
        if let Some(agreed) = deflate {
            http::write_header("sec-websocket-extensions", agreed.answer().as_bytes(), &mut out);
        }
        http::end_head(&mut out);
        let deflater = deflate.map(|agreed| Deflater::within(agreed.reach()));
        self.conns[slot].kind = Kind::Echo(Box::new(Echo { reader: FrameReader::new(), deflater }));
        self.send(slot, out.into());
    }

    pub(super) fn on_echo_bytes(&mut self, slot: usize, mut input: &[u8]) {
        let now = self.now;
        loop {
            let Some(Kind::Echo(echo)) = self.conns.get_mut(slot).map(|c| &mut c.kind) else { return };
            let limits = Limits { deflate: echo.deflater.is_some(), ..LIMITS };
            let incoming = match echo.reader.next(Side::Server, &limits, &mut input, now) {
                Ok(Some(Incoming::Deflated(packed))) => self.inflater.open(packed, limits.message_bytes).map(Some),
                incoming => incoming,
            };
            let (opcode, body) = match incoming {
                Ok(None) => return,
                Ok(Some(Incoming::Text(text))) => (Opcode::Text, text.into_bytes()),
                Ok(Some(Incoming::Binary(body))) => (Opcode::Binary, body),
                Ok(Some(Incoming::Ping(body))) => (Opcode::Pong, body),
                Ok(Some(Incoming::Pong(_) | Incoming::Deflated(_))) => continue,
                Ok(Some(Incoming::Close(code, reason))) => {
                    let body = code.map_or_else(Vec::new, |code| ws::close_body(code, &reason));
                    return self.end_echo(slot, &body);
                }
                Err(fault) => return self.end_echo(slot, &ws::close_body(fault.code(), fault.reason())),
            };
            let mut out = Vec::with_capacity(body.len() + 10);
            let Some(Kind::Echo(echo)) = self.conns.get_mut(slot).map(|c| &mut c.kind) else { return };
            let deflater = echo.deflater.as_mut().filter(|_| opcode != Opcode::Pong);
            // Longer or not: the suites take no answer but a compressed one. Bytes that are like nothing grow by 5 in 16 KiB.
            match deflater.and_then(|d| d.pack(&body, body.len() + body.len() / 8 + 64)) {
                Some(packed) => ws::write_deflated_frame(opcode, packed, &mut out),
                None => ws::write_frame(opcode, &body, &mut out),
            }
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
