//! A WebSocket connection that speaks, for publishers and likers: what is said waits until the socket takes it, and what is
//! heard is cut into the server's texts. Pings are answered here.
//!
//! A fault that is an [`io::Error`] at its root is the end of this connection alone: who speaks may come back. Any other is the server's.

use std::collections::VecDeque;
use std::io;

use anyhow::{Context as _, Error, Result, bail, ensure};
use grandstand_client::http::read_head;
use grandstand_wire::ws::{Opcode, write_masked_frame};
use mio::{Interest, Poll, Token};

use crate::addresses::Places;
use crate::frames::{self, Cut};
use crate::link::Link;
use crate::run::Settings;

/// A close by what its code asks for: who was sent elsewhere or was too slow comes back (docs/protocol.md, close codes).
pub fn closed(name: &str, code: Option<u16>) -> Error {
    let what = format!("the server closed a {name} with {code:?}");
    match code {
        Some(4_100..=4_299 | 1_001 | 1_006 | 1_012) => ended(what).into(),
        _ => Error::msg(what),
    }
}

fn ended(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, what)
}

pub struct Speaker {
    socket: Link,
    /// What a fault calls it.
    name: &'static str,
    input: Vec<u8>,
    out: VecDeque<u8>,
    open: bool,
    writable: bool,
}

impl Speaker {
    /// Asks for room `room` as the token's user; events come under `Token(slot)`.
    pub fn connect(
        name: &'static str,
        (places, poll): (&Places, &Poll),
        settings: &Settings,
        slot: usize,
        room: usize,
        token: &str,
    ) -> Result<Speaker> {
        let (mut socket, host) = places.connect(slot)?;
        poll.registry().register(socket.socket(), Token(slot), Interest::READABLE | Interest::WRITABLE)?;
        let request = settings.upgrade(host, room, Some(token));
        ensure!(socket.write(request.as_bytes())? == request.len(), "a fresh socket takes a request");
        Ok(Speaker { socket, name, input: Vec::new(), out: VecDeque::new(), open: false, writable: true })
    }

    /// The upgrade was answered.
    pub fn is_open(&self) -> bool {
        self.open
    }

    pub fn set_writable(&mut self) {
        self.writable = true;
    }

    pub fn say(&mut self, text: &str, mask: [u8; 4]) {
        self.frame(Opcode::Text, text.as_bytes(), mask);
    }

    fn frame(&mut self, opcode: Opcode, body: &[u8], mask: [u8; 4]) {
        let mut bytes = Vec::with_capacity(body.len() + 16);
        write_masked_frame(opcode, true, body, mask, &mut bytes);
        self.out.extend(bytes);
    }

    /// Writes what waits, as far as the socket takes it.
    pub fn flush(&mut self) -> Result<()> {
        self.socket.flush().context("writing to the server")?;
        while self.writable && !self.out.is_empty() {
            let (front, _) = self.out.as_slices();
            match self.socket.write(front) {
                Ok(n) => drop(self.out.drain(..n)),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.writable = false,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e).context("writing to the server"),
            }
        }
        Ok(())
    }

    /// One read: the bytes that wait to be heard, to be given back to [`Speaker::keep`]; `None` when nothing has come.
    pub fn read(&mut self, scratch: &mut [u8]) -> Result<Option<Vec<u8>>> {
        loop {
            match self.socket.read(scratch, usize::MAX).map(|got| got.n) {
                Ok(0) => return Err(ended(format!("the server ended a {}'s connection", self.name)).into()),
                Ok(n) => {
                    self.input.extend_from_slice(&scratch[..n]);
                    return Ok(Some(std::mem::take(&mut self.input)));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e).context("reading from the server"),
            }
        }
    }

    /// The next whole text of `input` from `at` on, which it moves past it; `None` when no other is there yet.
    pub fn hear<'i>(&mut self, input: &'i [u8], at: &mut usize) -> Result<Option<&'i [u8]>> {
        while *at < input.len() {
            let bytes = &input[*at..];
            if !self.open {
                let Some((status, _, used)) = read_head(bytes)? else { break };
                let body = String::from_utf8_lossy(&bytes[used..]);
                let refused = || format!("a {} was refused with {status}: {body}", self.name);
                if matches!(status, 429 | 503) {
                    return Err(ended(refused()).into());
                }
                ensure!(status == 101, refused());
                self.open = true;
                *at += used;
                continue;
            }
            match frames::websocket(bytes) {
                Cut::More => break,
                Cut::Nothing(used) => *at += used,
                Cut::Ping(body, used) => {
                    self.frame(Opcode::Pong, body, [1, 2, 3, 4]);
                    *at += used;
                }
                Cut::Text(text, used) => {
                    *at += used;
                    return Ok(Some(text));
                }
                Cut::Deflated(..) => bail!("a compressed frame that nobody asked for"),
                Cut::Close(code, _) => return Err(closed(self.name, code)),
                Cut::Fault(what) => bail!("{what}"),
            }
        }
        Ok(None)
    }

    /// Takes back what [`Speaker::read`] gave, less what was heard of it.
    pub fn keep(&mut self, mut input: Vec<u8>, heard: usize) {
        input.drain(..heard);
        self.input = input;
    }
}
