//! An HTTP/2 client without manners: frames as they are given, and what comes back. It keeps no state that a server could
//! hold it to.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ClientConfig;

use crate::support::{LIMIT, Server, Wire};

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// SETTINGS_INITIAL_WINDOW_SIZE.
pub const STREAM_WINDOW: u16 = 4;

pub const ENHANCE_YOUR_CALM: u32 = 11;

#[derive(Debug)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Frame {
    /// The error of a RST_STREAM or GOAWAY.
    pub fn error(&self) -> u32 {
        let at = if self.kind == GOAWAY { 4 } else { 0 };
        u32::from_be_bytes(self.payload[at..at + 4].try_into().expect("four bytes"))
    }
}

pub struct Raw {
    wire: Wire,
    came: Vec<u8>,
    /// Bodies so far.
    pub said: BTreeMap<u32, String>,
    /// Gives back to the connection's window what came, and to the streams that are not in it.
    pub stalled: Vec<u32>,
}

/// A header that no table remembers, neither its name nor its value packed. Both are shorter than 127 bytes.
pub fn header(name: &str, value: &str) -> Vec<u8> {
    let mut out = vec![0, name.len() as u8];
    out.extend_from_slice(name.as_bytes());
    out.push(value.len() as u8);
    out.extend_from_slice(value.as_bytes());
    out
}

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
    out
}

impl Raw {
    /// TLS and the preface; with these settings.
    pub fn open(server: &Server, settings: &[(u16, u32)]) -> Raw {
        let mut trust = ClientConfig::clone(server.trust.as_ref().expect("the server speaks TLS"));
        trust.alpn_protocols = vec![b"h2".to_vec()];
        let wire = Wire::tls(server.addr, &Arc::new(trust)).expect("the server accepts");
        let mut raw = Raw { wire, came: Vec::new(), said: BTreeMap::new(), stalled: Vec::new() };
        let mut payload = Vec::new();
        for (name, value) in settings {
            payload.extend_from_slice(&name.to_be_bytes());
            payload.extend_from_slice(&value.to_be_bytes());
        }
        let mut first = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        first.extend(frame(SETTINGS, 0, 0, &payload));
        raw.send(&first).expect("the server reads");
        raw
    }

    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.wire.write_all(bytes)?;
        self.wire.flush()
    }

    /// The head of a request, as a frame.
    pub fn request(&self, stream: u32, flags: u8, method: &str, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
        let port = self.wire.socket().peer_addr().expect("connected").port();
        let mut block = Vec::new();
        block.extend(header(":method", method));
        block.extend(header(":scheme", "https"));
        block.extend(header(":authority", &format!("localhost:{port}")));
        block.extend(header(":path", path));
        more.iter().for_each(|(name, value)| block.extend(header(name, value)));
        frame(HEADERS, flags | END_HEADERS, stream, &block)
    }

    pub fn get(&mut self, stream: u32, path: &str) {
        let request = self.request(stream, END_STREAM, "GET", path, &[]);
        self.send(&request).expect("the server reads");
    }

    /// The next frame; settings and pings are answered, windows given back. `None`: the connection has ended.
    pub fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.cut() {
                self.answer(&frame);
                return Some(frame);
            }
            let mut chunk = [0; 16 * 1024];
            match self.wire.read(&mut chunk) {
                Ok(0) | Err(_) => return None,
                Ok(n) => self.came.extend_from_slice(&chunk[..n]),
            }
        }
    }

    fn cut(&mut self) -> Option<Frame> {
        let head = self.came.first_chunk::<9>()?;
        let len = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        if self.came.len() < 9 + len {
            return None;
        }
        let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
        let (kind, flags) = (head[3], head[4]);
        let payload = self.came.drain(..9 + len).skip(9).collect();
        Some(Frame { kind, flags, stream, payload })
    }

    fn answer(&mut self, got: &Frame) {
        let mut out = Vec::new();
        match got.kind {
            SETTINGS if got.flags & ACK == 0 => out = frame(SETTINGS, ACK, 0, &[]),
            PING if got.flags & ACK == 0 => out = frame(PING, ACK, 0, &got.payload),
            DATA => {
                self.said.entry(got.stream).or_default().push_str(&String::from_utf8_lossy(&got.payload));
                let n = (got.payload.len() as u32).to_be_bytes();
                if !got.payload.is_empty() {
                    out = frame(WINDOW_UPDATE, 0, 0, &n);
                    if !self.stalled.contains(&got.stream) && got.flags & END_STREAM == 0 {
                        out.extend(frame(WINDOW_UPDATE, 0, got.stream, &n));
                    }
                }
            }
            _ => {}
        }
        // Who has gone is noticed by the next read.
        let _ = self.send(&out);
    }

    /// Reads until a frame is wanted.
    pub fn until(&mut self, mut wanted: impl FnMut(&Frame) -> bool) -> Frame {
        let start = Instant::now();
        loop {
            assert!(start.elapsed() < LIMIT, "it did not come; said so far: {:?}", self.said);
            let Some(frame) = self.next() else { panic!("the connection ended; said so far: {:?}", self.said) };
            if wanted(&frame) {
                return frame;
            }
        }
    }

    /// Reads until the stream has said this.
    pub fn until_said(&mut self, stream: u32, text: &str) {
        while !self.said.get(&stream).is_some_and(|said| said.contains(text)) {
            self.until(|frame| frame.kind == DATA && frame.stream == stream);
        }
    }

    /// Sends a part again and again until the server says GOAWAY or ends the connection; the error of the GOAWAY.
    pub fn flood(&mut self, n: usize, mut part: impl FnMut(&Raw, usize) -> Vec<u8>) -> Option<u32> {
        for i in 0..n {
            let bytes = part(self, i);
            if self.send(&bytes).is_err() {
                break;
            }
            if i % 50 == 49 {
                self.wire.socket().set_read_timeout(Some(Duration::from_millis(1))).expect("a limit");
                while let Some(frame) = self.next() {
                    if frame.kind == GOAWAY {
                        return Some(frame.error());
                    }
                }
            }
        }
        self.wire.socket().set_read_timeout(Some(LIMIT)).expect("a limit");
        while let Some(frame) = self.next() {
            if frame.kind == GOAWAY {
                return Some(frame.error());
            }
        }
        None
    }
}
