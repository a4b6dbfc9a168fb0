//! One socket of a worker: what it is doing, and what it still has to write.
//!
//! A connection that waits owns a slot here and nothing else: reads go through the worker's buffer, and bytes are kept only
//! while the socket would not take them. What is kept is bounded: of room events the rest of one frame, of answers a few.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use bytes::{Buf, Bytes};
use grandstand_core::time::Mono;
use socket2::SockRef;

use super::echo::Echo;
use super::socket::{Got, Socket};
use super::viewer::Viewer;
use super::web::Http;
use super::wheel::Tick;
use crate::edge::Serves;
use crate::kernel::{SEND_BUFFER, UNSENT_LOW};

/// A socket that holds this much unwritten has stopped reading while it keeps asking: it is closed.
/// One page of the log (100 events, at most 240 KB) or one frame of the ring (64 KiB), and answers to a thousand operations.
pub const UNWRITTEN_MAX: usize = 512 * 1024;

pub struct Conn {
    pub socket: Socket,
    pub generation: u32,
    /// The tick that counts; timers of other ticks are stale. 0 is none.
    pub timer: Tick,
    /// The other end, or whom a trusted proxy's PROXY header named.
    pub peer: Address,
    pub peer_port: u16,
    /// Whose request the last one was: the peer, or whom a trusted proxy forwarded.
    pub client: Address,
    pub kind: Kind,
    pub out: Outbox,
    /// The last write found the socket full; a writable event comes.
    pub blocked: bool,
    /// Bytes may wait in the socket that were not read yet.
    pub unread: bool,
    /// The other side sends no more.
    pub ended: bool,
    /// What may be asked for here.
    pub serves: Serves,
}

/// Who connected, and to what.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    pub peer: SocketAddr,
    pub serves: Serves,
}

/// An address in sixteen bytes and no more: an IPv4 one as IPv6 writes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address(Ipv6Addr);

impl Address {
    pub fn of(ip: IpAddr) -> Address {
        match ip {
            IpAddr::V4(v4) => Address(v4.to_ipv6_mapped()),
            IpAddr::V6(v6) => Address(v6),
        }
    }
    pub fn ip(self) -> IpAddr {
        self.0.to_canonical()
    }
}

pub enum Kind {
    Http(Box<Http>),
    Viewer(Box<Viewer>),
    /// Says back what it hears; for conformance tests alone.
    Echo(Box<Echo>),
    /// Said its last word: reads to the other side's end, so that the word is not lost to a reset.
    Lingering {
        until: Mono,
    },
}

/// Bytes that the socket would not take yet. Not empty, without a part, while a session's sealed bytes wait for the socket.
#[derive(Default)]
pub struct Outbox(Option<Box<Rest>>);

struct Rest {
    parts: VecDeque<Bytes>,
    len: usize,
    /// When the oldest priority event among them came to this worker.
    priority_since: Option<Mono>,
}

/// What became of bytes given to a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// The socket has all of it.
    All,
    /// The socket has some; the rest is kept.
    Some,
    /// The socket took nothing, and nothing is kept.
    Nothing,
    /// The connection is broken.
    Broken,
}

impl Outbox {
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |rest| rest.len)
    }
    pub fn priority_since(&self) -> Option<Mono> {
        self.0.as_ref().and_then(|rest| rest.priority_since)
    }

    fn keep(&mut self, bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        let rest = self.held();
        rest.len += bytes.len();
        rest.parts.push_back(bytes);
    }

    fn held(&mut self) -> &mut Rest {
        self.0.get_or_insert_with(|| Box::new(Rest { parts: VecDeque::with_capacity(1), len: 0, priority_since: None }))
    }
}

impl Conn {
    pub fn new(socket: Socket, generation: u32, caller: Caller, http: Http) -> Conn {
        Conn {
            socket,
            generation,
            timer: 0,
            peer: Address::of(caller.peer.ip()),
            peer_port: caller.peer.port(),
            client: Address::of(caller.peer.ip()),
            kind: Kind::Http(Box::new(http)),
            out: Outbox::default(),
            blocked: false,
            unread: false,
            ended: false,
            serves: caller.serves,
        }
    }

    /// Whether bytes of the other side are wanted now. A caller that does not take its answers is not asked for more
    /// questions: what it is owed would grow by each.
    pub fn reads(&self) -> bool {
        match &self.kind {
            Kind::Http(http) => http.reads() && self.out.is_empty(),
            Kind::Viewer(viewer) => viewer.reads(),
            Kind::Echo(_) | Kind::Lingering { .. } => true,
        }
    }

    /// Writes a frame that nothing is kept of when the socket takes none of it. Only for an empty outbox.
    /// `priority_since` is when the oldest priority event in it came.
    pub fn try_send(&mut self, bytes: &Bytes, priority_since: Option<Mono>) -> Sent {
        debug_assert!(self.out.is_empty(), "the rest of the last frame goes first");
        match self.socket.write(bytes) {
            Ok(n) if n == bytes.len() && !self.socket.holds_bytes() => Sent::All,
            Ok(n) => {
                self.blocked = true;
                self.out.held().priority_since = priority_since;
                self.out.keep(bytes.slice(n..));
                Sent::Some
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                self.blocked = true;
                Sent::Nothing
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => self.try_send(bytes, priority_since),
            Err(_) => Sent::Broken,
        }
    }

    /// Writes, or keeps behind what is kept already. For answers and closes, which have no place to be fetched again from.
    pub fn send(&mut self, bytes: Bytes) -> Sent {
        if !self.out.is_empty() {
            self.out.keep(bytes);
            return Sent::Some;
        }
        match self.try_send(&bytes, None) {
            Sent::Nothing => {
                self.out.keep(bytes);
                Sent::Some
            }
            sent => sent,
        }
    }

    /// [`Conn::send`] of an answer to a request. A caller on this machine is given a long one at once: loopback's segments are as
    /// large as a send buffer, and one alone is acknowledged after 40 ms, which the rest would wait for. Its buffer is as small as
    /// before once the answer is in it, so who becomes a viewer after it holds no more than others.
    pub fn send_answer(&mut self, bytes: Bytes) -> Sent {
        let n_bytes = bytes.len();
        if n_bytes <= SEND_BUFFER as usize || !self.peer.ip().is_loopback() {
            return self.send(bytes);
        }
        // The kernel cuts it to `net.core.wmem_max`; what it does not grant is slow, and nothing else.
        self.allow_unsent(n_bytes, n_bytes as u32);
        let sent = self.send(bytes);
        self.allow_unsent(SEND_BUFFER as usize, UNSENT_LOW);
        sent
    }

    fn allow_unsent(&mut self, buffer: usize, low: u32) {
        if let Some(socket) = self.socket.source() {
            let socket = SockRef::from(&*socket);
            let _ = socket.set_send_buffer_size(buffer);
            let _ = socket.set_tcp_notsent_lowat(low);
        }
    }

    /// The socket may take more: writes what is kept.
    pub fn flush(&mut self) -> Sent {
        if let Some(held) = self.flush_socket() {
            return held;
        }
        let Some(rest) = &mut self.out.0 else {
            self.blocked = false;
            return Sent::All;
        };
        while let Some(first) = rest.parts.front_mut() {
            match self.socket.write(first) {
                Ok(n) => {
                    rest.len -= n;
                    first.advance(n);
                    if first.is_empty() {
                        rest.parts.pop_front();
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    self.blocked = true;
                    return Sent::Some;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Sent::Broken,
            }
        }
        if let Some(held) = self.flush_socket() {
            return held;
        }
        self.out.0 = None;
        self.blocked = false;
        Sent::All
    }

    /// What the socket itself holds goes first; how it stands when not all of it left.
    fn flush_socket(&mut self) -> Option<Sent> {
        match self.socket.flush() {
            Ok(true) => None,
            Ok(false) => {
                self.blocked = true;
                Some(Sent::Some)
            }
            Err(_) => Some(Sent::Broken),
        }
    }

    /// Reads what the socket has. What a session says of its own accord meanwhile may find the socket full.
    pub fn read(&mut self, buf: &mut [u8]) -> io::Result<Got> {
        let got = self.socket.read(buf);
        if self.socket.holds_bytes() {
            self.blocked = true;
        }
        got
    }
}
