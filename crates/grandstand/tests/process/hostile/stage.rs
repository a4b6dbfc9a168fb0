//! How an attack of the table is made, and what its connection came to, over plain TCP and over TLS.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use grandstand_core::time::Mono;
use grandstand_wire::ws::{FrameReader, Incoming, Limits, Opcode, Side, write_masked_frame};
use serde_json::Value;

use crate::support::{Server, Wire, connected};

/// The longest deadline of the server that an attack runs into is 20 s (a body).
const PATIENCE: Duration = Duration::from_secs(40);
const LIMITS: Limits = Limits { message_bytes: 1 << 24, fragments: 64, assembly: PATIENCE, ..Limits::FROM_CLIENT };

pub struct Row {
    pub a: u8,
    pub title: &'static str,
    pub attack: Attack,
    pub end: End,
    /// Over TLS it would be another attack, or none.
    pub plain_only: bool,
}

pub enum Attack {
    /// These bytes on a fresh connection. `{host}` stands for the server's address.
    Bytes(Vec<u8>),
    /// These bytes behind a good upgrade, when its answer has come.
    Frames(Vec<u8>),
    /// The first at once, each of the others when a pause has passed, until the connection ends.
    Drip(Vec<u8>, Vec<u8>, Duration),
    /// As `Drip`, behind a good upgrade.
    FrameDrip(Vec<u8>, Vec<u8>, Duration),
    /// Anything else. Errors: what was not as it should be.
    Script(fn(&Stage) -> Result<(), String>),
}

/// What must become of the connection.
#[derive(Clone, Copy, Debug)]
pub enum End {
    /// One answer of this status, the end of the server's side, and not a byte more.
    Last(u16),
    /// An answer of this status; the connection takes the next request.
    Next(u16),
    /// A close frame of this code, and the end.
    Closed(u16),
    /// An `error` event of this code; the stream goes on.
    Told(&'static str),
    /// Nothing of note; the stream goes on.
    Lives,
    /// The end, without a byte.
    Silence,
    /// What the script says.
    Scripted,
}

/// A server and the way to it.
pub struct Stage<'s> {
    pub server: &'s Server,
}

impl Stage<'_> {
    pub fn connect(&self) -> Wire {
        match &self.server.trust {
            None => Wire::Plain(connected(self.server.addr).expect("the server accepts")),
            Some(trust) => Wire::tls(self.server.addr, trust).expect("the server accepts"),
        }
    }

    /// A WebSocket whose upgrade was answered by 101; `more` are header lines.
    pub fn upgraded(&self, more: &str) -> Result<Socket, String> {
        let mut wire = self.connect();
        wire.write_all(self.filled(&super::rows::upgrade(more)).as_slice()).map_err(|e| e.to_string())?;
        let (status, _, rest) = read_head(&mut wire)?;
        if status != 101 {
            return Err(format!("the upgrade was answered by {status}"));
        }
        Ok(Socket { wire, frames: FrameReader::new(), bytes: rest, waiting: Vec::new() })
    }

    pub fn filled(&self, bytes: &[u8]) -> Vec<u8> {
        let host = self.server.addr.to_string();
        let mut out = Vec::with_capacity(bytes.len());
        let mut rest = bytes;
        while let Some(at) = rest.windows(6).position(|w| w == b"{host}") {
            out.extend_from_slice(&rest[..at]);
            out.extend_from_slice(host.as_bytes());
            rest = &rest[at + 6..];
        }
        out.extend_from_slice(rest);
        out
    }

    /// One request on a connection of its own: status, head as text, body.
    pub fn asked(&self, request: &[u8]) -> Result<(u16, String, Vec<u8>), String> {
        let mut wire = self.connect();
        wire.write_all(&self.filled(request)).map_err(|e| e.to_string())?;
        let (status, head, rest) = read_head(&mut wire)?;
        let body = read_body(&mut wire, &head, rest)?;
        Ok((status, head, body))
    }

    pub fn memory_kb(&self) -> u64 {
        super::memory_kb(self.server)
    }

    pub fn play(&self, row: &Row) -> Result<(), String> {
        match &row.attack {
            Attack::Script(script) => script(self),
            Attack::Bytes(bytes) => {
                let mut wire = self.connect();
                // Whoever is refused in the middle of what it says may not get the rest of it across.
                let _ = wire.write_all(&self.filled(bytes));
                self.ends(wire, row.end)
            }
            Attack::Drip(first, each, pause) => {
                let mut wire = self.connect();
                let _ = wire.write_all(&self.filled(first));
                drip(&mut wire, each, *pause);
                self.ends(wire, row.end)
            }
            Attack::Frames(bytes) => {
                let mut socket = self.upgraded("")?;
                let _ = socket.wire.write_all(bytes);
                socket.ends(row.end)
            }
            Attack::FrameDrip(first, each, pause) => {
                let mut socket = self.upgraded("")?;
                let _ = socket.wire.write_all(first);
                drip(&mut socket.wire, each, *pause);
                socket.ends(row.end)
            }
        }
    }

    fn ends(&self, mut wire: Wire, end: End) -> Result<(), String> {
        match end {
            End::Silence => match rest(&mut wire) {
                Ok(bytes) if bytes.is_empty() => Ok(()),
                // Bytes that were never read reset the connection.
                Err(e) if matches!(e.kind(), ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof) => Ok(()),
                Ok(bytes) => Err(format!("it was answered: {}", bytes.escape_ascii())),
                Err(e) => Err(format!("it did not end: {e}")),
            },
            End::Last(status) => {
                let (got, head, more) = read_head(&mut wire)?;
                let body_len = length(&head);
                let all = [more, rest(&mut wire).map_err(|e| format!("{got}, and then {e}"))?].concat();
                if got != status {
                    return Err(format!("{got} instead of {status}: {}", all.escape_ascii()));
                }
                if all.len() != body_len {
                    return Err(format!("{} bytes follow the answer's head, {body_len} belong to it", all.len()));
                }
                Ok(())
            }
            End::Next(status) => {
                let (got, head, more) = read_head(&mut wire)?;
                let body = read_body(&mut wire, &head, more)?;
                if got != status {
                    return Err(format!("{got} instead of {status}: {}", body.escape_ascii()));
                }
                let again = "GET /healthz/live HTTP/1.1\r\nHost: {host}\r\n\r\n";
                wire.write_all(&self.filled(again.as_bytes())).map_err(|e| format!("no next request: {e}"))?;
                match read_head(&mut wire)? {
                    (200, ..) => Ok(()),
                    (other, ..) => Err(format!("the next request was answered by {other}")),
                }
            }
            other => Err(format!("{other:?} is no end of a request")),
        }
    }
}

/// A WebSocket of the table.
pub struct Socket {
    pub wire: Wire,
    frames: FrameReader,
    bytes: Vec<u8>,
    waiting: Vec<Incoming>,
}

impl Socket {
    pub fn say(&mut self, text: &str) -> Result<(), String> {
        let mut out = Vec::new();
        write_masked_frame(Opcode::Text, true, text.as_bytes(), [9, 8, 7, 6], &mut out);
        self.wire.write_all(&out).map_err(|e| e.to_string())
    }

    /// The next whole frame; `None` at the end of the stream.
    pub fn next(&mut self) -> Result<Option<Incoming>, String> {
        let start = Instant::now();
        while self.waiting.is_empty() {
            let bytes = std::mem::take(&mut self.bytes);
            let mut input = &bytes[..];
            while let Some(got) = self
                .frames
                .next(Side::Client, &LIMITS, &mut input, Mono(0))
                .map_err(|f| format!("bad frames: {f:?}"))?
            {
                self.waiting.push(got);
            }
            if !self.waiting.is_empty() {
                break;
            }
            if start.elapsed() > PATIENCE {
                return Err("nothing came".into());
            }
            let mut chunk = [0; 16 << 10];
            match self.wire.read(&mut chunk) {
                Ok(0) => return Ok(None),
                Ok(n) => self.bytes.extend_from_slice(&chunk[..n]),
                Err(e) => return Err(format!("while reading frames: {e}")),
            }
        }
        Ok(Some(self.waiting.remove(0)))
    }

    /// Events until one that is wanted. Errors: the end, or a close.
    pub fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Result<Value, String> {
        loop {
            match self.next()? {
                None => return Err("the stream ended".into()),
                Some(Incoming::Close(code, reason)) => return Err(format!("closed with {code:?} {reason}")),
                Some(Incoming::Text(text)) => {
                    let value: Value = serde_json::from_str(&text).map_err(|e| format!("{e}: {text}"))?;
                    let all = if let Value::Array(all) = value { all } else { vec![value] };
                    if let Some(found) = all.into_iter().find(&wanted) {
                        return Ok(found);
                    }
                }
                Some(_) => {}
            }
        }
    }

    /// Reads to the end; the close frame's code and whether anything came behind it.
    pub fn closed(&mut self) -> Result<u16, String> {
        loop {
            match self.next()? {
                None => return Err("it ended without a close frame".into()),
                Some(Incoming::Close(code, _)) => {
                    return match self.next() {
                        Ok(None) => Ok(code.unwrap_or(1005)),
                        // What was sent and not read any more may reset the connection behind the close.
                        Err(e) if e.contains("reset") || e.contains("eof") => Ok(code.unwrap_or(1005)),
                        other => Err(format!("behind the close {code:?}: {other:?}")),
                    };
                }
                Some(_) => {}
            }
        }
    }

    pub fn lives(&mut self) -> Result<(), String> {
        self.say(r#"{"op":"ping"}"#)?;
        self.until(|e| e["type"] == "pong").map(|_| ())
    }

    pub fn ends(mut self, end: End) -> Result<(), String> {
        match end {
            End::Closed(code) => match self.closed()? {
                got if got == code => Ok(()),
                got => Err(format!("closed with {got} instead of {code}")),
            },
            End::Told(code) => {
                let error = self.until(|e| e["type"] == "error")?;
                if error["code"] != code {
                    return Err(format!("{error} instead of {code}"));
                }
                self.lives()
            }
            End::Lives => self.lives(),
            other => Err(format!("{other:?} is no end of a WebSocket")),
        }
    }
}

/// Sends a byte at a time until the other side does not take it any more, or said its last word.
fn drip(wire: &mut Wire, bytes: &[u8], pause: Duration) {
    let start = Instant::now();
    for one in bytes {
        let socket = wire.socket();
        socket.set_read_timeout(Some(pause)).expect("a pause is a limit");
        let ended = match socket.peek(&mut [0]) {
            // An answer, or what a session says beside: the drip goes on until a write fails or the bytes are out.
            Ok(n) => n == 0,
            Err(e) => !matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        };
        if ended || start.elapsed() > PATIENCE || wire.write_all(&[*one]).and_then(|()| wire.flush()).is_err() {
            break;
        }
    }
    let _ = wire.socket().set_read_timeout(Some(PATIENCE));
}

/// Everything to the end.
fn rest(wire: &mut Wire) -> std::io::Result<Vec<u8>> {
    wire.socket().set_read_timeout(Some(PATIENCE))?;
    let mut all = Vec::new();
    wire.read_to_end(&mut all)?;
    Ok(all)
}

/// Status, head as it came, and what was read behind it.
pub fn read_head(wire: &mut Wire) -> Result<(u16, String, Vec<u8>), String> {
    wire.socket().set_read_timeout(Some(PATIENCE)).map_err(|e| e.to_string())?;
    let mut bytes = Vec::new();
    loop {
        if let Some(at) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            let rest = bytes.split_off(at + 4);
            let head = String::from_utf8_lossy(&bytes).into_owned();
            let status = head.strip_prefix("HTTP/1.1 ").and_then(|h| h.get(..3)?.parse().ok());
            return Ok((status.ok_or_else(|| format!("no status: {head}"))?, head, rest));
        }
        let mut chunk = [0; 16 << 10];
        match wire.read(&mut chunk) {
            Ok(0) => return Err(format!("the end instead of an answer, after {:?}", bytes.escape_ascii().to_string())),
            Ok(n) => bytes.extend_from_slice(&chunk[..n]),
            Err(e) => return Err(format!("{e} instead of an answer")),
        }
    }
}

pub fn field<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines().filter_map(|l| l.split_once(':')).find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.trim())
}

fn length(head: &str) -> usize {
    field(head, "content-length").and_then(|l| l.parse().ok()).unwrap_or(0)
}

fn read_body(wire: &mut Wire, head: &str, mut body: Vec<u8>) -> Result<Vec<u8>, String> {
    if field(head, "transfer-encoding").is_some() {
        while !body.ends_with(b"0\r\n\r\n") {
            let mut chunk = [0; 16 << 10];
            match wire.read(&mut chunk) {
                Ok(n) if n > 0 => body.extend_from_slice(&chunk[..n]),
                other => return Err(format!("{other:?} in the middle of a body")),
            }
        }
        return Ok(body);
    }
    let len = length(head);
    if body.len() > len {
        return Err(format!("{} bytes too many behind an answer", body.len() - len));
    }
    let have = body.len();
    body.resize(len, 0);
    wire.read_exact(&mut body[have..]).map_err(|e| e.to_string())?;
    Ok(body)
}

/// Closes without a word: what was sent is lost, the other side reads a reset.
pub fn reset(wire: Wire) {
    if let Wire::Plain(socket) = wire {
        rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::ZERO)).expect("linger can be set");
    }
}

pub fn half_close(wire: &Wire) {
    wire.socket().shutdown(Shutdown::Write).expect("half a close");
}
