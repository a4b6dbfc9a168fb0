//! What a connection reads from and writes to: the socket itself, a TLS session around it, or the pipe of an HTTP/2 stream.
//!
//! Bytes mean the same on both: a write takes what it can and says how much, a read says whether more may wait. With TLS there
//! is one more place where bytes can lie: records that are sealed and that the socket did not take. They belong to the frame
//! being written; until they have left, the connection counts as held up, as if the frame's end were still in the outbox.
//!
//! A session that waits owns no buffer: what comes is opened in the thread's own, and only the beginning of a record whose end
//! has not come, or sealed bytes that did not leave, are kept with it.
//!
//! The awkward case: a caller that speaks no TLS, or breaks its handshake. What it is told goes out as it is, and nothing it
//! says is read as anything any more.

use std::cell::RefCell;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;

use mio::net::TcpStream;
use rustls::HandshakeKind;
use rustls::ServerConfig;
use rustls::server::{Acceptor, ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeTlsData, UnbufferedStatus};

use super::pipe::Near;

/// How much of a frame is sealed at once, and so at most ahead of the socket: one record. Source: RFC 8446, 5.1.
const PART_BYTES: usize = 16 * 1024;
/// A record on the wire: what it holds, its head, and what the cipher adds. Source: RFC 8446, 5.2; 1.2 adds up to 2 048 bytes.
const RECORD_MAX: usize = PART_BYTES + 5 + 2_048;
/// One read takes at most this, with what was kept before it.
const COMING_BYTES: usize = 32 * 1024;
/// Records that are not whole, and parts of one handshake message: one of the first, or more of the second than anybody needs.
const HALF_MAX: usize = COMING_BYTES - 4_096;
/// What a session says of its own accord: certificates, a ticket, alerts, answers to key updates.
const SEALED_MAX: usize = 256 * 1024;
/// The first byte of every ClientHello's record. Source: RFC 8446, 5.1.
const HANDSHAKE_RECORD: u8 = 22;
/// HTTP/2 in the list of protocols: its length, its name. Source: RFC 7301, 3.1; RFC 9113, 3.2.
const H2: &[u8] = b"\x02h2";

pub enum Socket {
    Plain(TcpStream),
    Tls(Box<Tls>),
    Pipe(Near),
}

pub struct Tls {
    socket: TcpStream,
    session: UnbufferedServerConnection,
    phase: Phase,
    /// The other side said its end, or the socket ended.
    ended: bool,
    /// Records whose end has not come.
    half: Vec<u8>,
    /// Records that the socket did not take, from `sealed_at` on.
    sealed: Vec<u8>,
    sealed_at: usize,
}

thread_local! {
    /// What comes and what goes of the session whose turn it is.
    static DESK: RefCell<Desk> = RefCell::new(Desk { coming: vec![0; COMING_BYTES], going: vec![0; 2 * RECORD_MAX] });
}

struct Desk {
    coming: Vec<u8>,
    /// A record, and what the session wants said before it.
    going: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing came yet.
    New,
    Handshake,
    Open,
    /// The session is over; bytes go as they are.
    Raw(Why),
}

/// Why a connection without a session is one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// It did not begin with a handshake.
    NotTls,
    /// Its handshake or one of its records was broken; the alert is written.
    Broken,
}

/// What one read brought.
pub struct Got {
    /// 0 is the other side's end.
    pub n: usize,
    /// More may wait: no event will say so.
    pub more: bool,
}

impl Socket {
    /// Errors: a session cannot be made (memory).
    pub fn tls(socket: TcpStream, config: &Arc<ServerConfig>) -> Result<Socket, rustls::Error> {
        let session = UnbufferedServerConnection::new(config.clone())?;
        let (half, sealed) = (Vec::new(), Vec::new());
        Ok(Socket::Tls(Box::new(Tls { socket, session, phase: Phase::New, ended: false, half, sealed, sealed_at: 0 })))
    }

    /// For the poll's registry. `None` for a pipe, which has a bell.
    pub fn source(&mut self) -> Option<&mut TcpStream> {
        match self {
            Socket::Plain(socket) => Some(socket),
            Socket::Tls(tls) => Some(&mut tls.socket),
            Socket::Pipe(_) => None,
        }
    }

    /// Looks whether the ClientHello that waits offers HTTP/2; takes nothing. `None`: it has not come whole.
    pub fn offers_http2(&self) -> Option<bool> {
        match self {
            Socket::Tls(tls) if tls.phase == Phase::New => tls.offers_http2(),
            _ => Some(false),
        }
    }

    /// The socket alone, for a session that nothing was said in.
    pub fn into_tcp(self) -> Option<TcpStream> {
        match self {
            Socket::Tls(tls) if tls.phase == Phase::New => Some(tls.socket),
            _ => None,
        }
    }

    /// `buf` has room for `COMING_BYTES`. Errors: as of a socket; `WouldBlock` only when nothing was read.
    #[inline]
    pub fn read(&mut self, buf: &mut [u8]) -> io::Result<Got> {
        match self {
            Socket::Plain(socket) => socket.read(buf).map(|n| Got { n, more: n == buf.len() }),
            Socket::Tls(tls) => tls.read(buf),
            Socket::Pipe(pipe) => pipe.read(buf).map(|n| Got { n, more: n == buf.len() }),
        }
    }

    /// How many bytes of `bytes` are the socket's business now. Errors: `WouldBlock` when none.
    #[inline]
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Plain(socket) => socket.write(bytes),
            Socket::Tls(tls) => tls.write(bytes),
            Socket::Pipe(pipe) => pipe.write(bytes),
        }
    }

    /// Whether sealed bytes wait for the socket.
    #[inline]
    pub fn holds_bytes(&self) -> bool {
        match self {
            Socket::Plain(_) | Socket::Pipe(_) => false,
            Socket::Tls(tls) => tls.holds_bytes(),
        }
    }

    /// Writes the sealed bytes that wait; whether all have left.
    #[inline]
    pub fn flush(&mut self) -> io::Result<bool> {
        match self {
            Socket::Plain(_) | Socket::Pipe(_) => Ok(true),
            Socket::Tls(tls) => tls.flush(),
        }
    }

    /// Our side ends, said in the session's own words first.
    pub fn shutdown(&mut self) -> io::Result<()> {
        self.take_leave();
        match self {
            Socket::Plain(socket) => socket.shutdown(Shutdown::Write),
            Socket::Tls(tls) => tls.socket.shutdown(Shutdown::Write),
            Socket::Pipe(pipe) => {
                pipe.shutdown();
                Ok(())
            }
        }
    }

    /// Says that the end is an end and no cut, when the socket takes it. Nothing for a plain socket.
    pub fn take_leave(&mut self) {
        if let Socket::Tls(tls) = self
            && tls.phase == Phase::Open
        {
            // Who cannot be told any more sees a cut; the answer's own length tells it what it has.
            let _ = tls.take_leave();
        }
    }

    #[inline]
    /// The certificate its client showed, when one was asked for and checked. A session that was resumed has that of its beginning.
    pub fn certificate(&self) -> Option<&[u8]> {
        match self {
            Socket::Tls(tls) => tls.session.peer_certificates()?.first().map(AsRef::as_ref),
            Socket::Plain(_) | Socket::Pipe(_) => None,
        }
    }

    pub fn is_handshaking(&self) -> bool {
        match self {
            Socket::Plain(_) | Socket::Pipe(_) => false,
            Socket::Tls(tls) => matches!(tls.phase, Phase::New | Phase::Handshake),
        }
    }

    /// Whether the handshake began with a ticket of ours. `None` before its end.
    pub fn is_resumed(&self) -> Option<bool> {
        match self {
            Socket::Plain(_) | Socket::Pipe(_) => None,
            Socket::Tls(tls) if tls.phase == Phase::Open => {
                Some(tls.session.handshake_kind() == Some(HandshakeKind::Resumed))
            }
            Socket::Tls(_) => None,
        }
    }

    /// Set when the session failed.
    pub fn why_raw(&self) -> Option<Why> {
        match self {
            Socket::Tls(tls) => match tls.phase {
                Phase::Raw(why) => Some(why),
                _ => None,
            },
            Socket::Plain(_) | Socket::Pipe(_) => None,
        }
    }
}

impl Tls {
    fn holds_bytes(&self) -> bool {
        !self.sealed.is_empty()
    }

    fn read(&mut self, buf: &mut [u8]) -> io::Result<Got> {
        assert!(buf.len() >= COMING_BYTES, "what is opened has its place");
        match self.phase {
            Phase::Raw(_) => return self.socket.read(buf).map(|n| Got { n, more: n == buf.len() }),
            Phase::New => self.meet()?,
            Phase::Handshake | Phase::Open => {}
        }
        let mut n = 0;
        // What comes out of records is shorter than they are.
        while !self.ended && buf.len() - n >= COMING_BYTES {
            let came: io::Result<Came> = DESK.with_borrow_mut(|desk| {
                let kept = self.half.len();
                desk.coming[..kept].copy_from_slice(&self.half);
                let came = self.socket.read(&mut desk.coming[kept..])?;
                if came == 0 {
                    self.ended = true;
                } else {
                    n += self.open(&mut desk.coming[..kept + came], &mut buf[n..])?;
                }
                Ok(if kept + came == COMING_BYTES { Came::More } else { Came::All })
            });
            match came {
                Ok(came) => {
                    // Our part of the handshake, a ticket, answers to key updates; what does not leave waits for the socket.
                    self.flush()?;
                    if came == Came::All && n > 0 && !self.ended {
                        return Ok(Got { n, more: false });
                    }
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock && n > 0 => return Ok(Got { n, more: false }),
                Err(e) => return Err(e),
            }
        }
        // What came before the end is given before it.
        Ok(Got { n, more: n > 0 })
    }

    fn offers_http2(&self) -> Option<bool> {
        DESK.with_borrow_mut(|desk| {
            let n = match self.socket.peek(&mut desk.coming) {
                Ok(n) => n,
                // An error is the reader's to find.
                Err(e) => return (e.kind() != ErrorKind::WouldBlock).then_some(false),
            };
            let came = &desk.coming[..n];
            let whole = match came {
                [HANDSHAKE_RECORD, _, _, high, low, rest @ ..] => {
                    rest.len() >= usize::from(u16::from_be_bytes([*high, *low]))
                }
                [first, ..] if *first != HANDSHAKE_RECORD => return Some(false),
                // The other side's end, or a hello that is longer than any reader's desk.
                [] => return Some(false),
                _ => false,
            };
            // Whoever speaks of HTTP/2 has its name in the hello; the rest need not be read twice.
            if whole && !came.windows(H2.len()).any(|bytes| bytes == H2) {
                return Some(false);
            }
            let hello = if whole { read_hello(came) } else { None };
            hello.or_else(|| (n == COMING_BYTES).then_some(false))
        })
    }

    /// Looks at the first byte, so that whoever speaks plain HTTP is answered in it.
    fn meet(&mut self) -> io::Result<()> {
        let mut first = [0];
        if self.socket.peek(&mut first)? == 1 && first[0] != HANDSHAKE_RECORD {
            self.phase = Phase::Raw(Why::NotTls);
            return Err(io::Error::new(ErrorKind::InvalidData, "no TLS handshake"));
        }
        self.phase = Phase::Handshake;
        Ok(())
    }

    /// Gives the session what came, puts what it opens at the front of `out` and keeps what is not whole.
    /// Returns the length of what was opened. Errors: the session is over, and its alert is written.
    fn open(&mut self, coming: &mut [u8], out: &mut [u8]) -> io::Result<usize> {
        let (mut at, mut n) = (0, 0);
        let fault = loop {
            let UnbufferedStatus { discard, state } = self.session.process_tls_records(&mut coming[at..]);
            let mut done = None;
            match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        match record {
                            Ok(record) => {
                                out[n..n + record.payload.len()].copy_from_slice(record.payload);
                                n += record.payload.len();
                            }
                            Err(fault) => done = Some(Some(fault)),
                        }
                    }
                }
                Ok(ConnectionState::EncodeTlsData(data)) => encode(data, &mut self.sealed),
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::PeerClosed) => self.ended = true,
                Ok(ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_)) => done = Some(None),
                Ok(ConnectionState::Closed) => {
                    self.ended = true;
                    done = Some(None);
                }
                Ok(other) => panic!("early data is not accepted: {other:?}"),
                Err(fault) => done = Some(Some(fault)),
            }
            if let Some(Some(fault)) = done {
                break Some(fault);
            }
            at += discard;
            if done.is_some() {
                break None;
            }
        };
        let half = &coming[at..];
        let fault = fault.map(io::Error::other).or_else(|| {
            let long = half.len() > HALF_MAX || self.sealed.len() > SEALED_MAX;
            long.then(|| io::Error::other("more than a handshake needs"))
        });
        if let Some(fault) = fault {
            self.give_up(&mut coming[at..]);
            return Err(io::Error::new(ErrorKind::InvalidData, fault));
        }
        self.half = if self.ended { Vec::new() } else { half.to_vec() };
        if self.phase == Phase::Handshake && !self.session.is_handshaking() {
            self.phase = Phase::Open;
        }
        Ok(n)
    }

    /// The session failed: its alert is written, if the socket takes it, and nothing after it. `rest` is what it was given
    /// last, with nothing discarded: it may remember where in it a message began.
    fn give_up(&mut self, rest: &mut [u8]) {
        // Asked once: the alert is all that waits, and a session that has said it must not be given bytes again.
        if let Ok(ConnectionState::EncodeTlsData(data)) = self.session.process_tls_records(rest).state {
            encode(data, &mut self.sealed);
        }
        // Who does not take it is gone anyway.
        let _ = self.flush();
        (self.sealed, self.half) = (Vec::new(), Vec::new());
        self.phase = Phase::Raw(Why::Broken);
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if matches!(self.phase, Phase::Raw(_)) {
            return self.socket.write(bytes);
        }
        if !self.flush()? {
            return Err(ErrorKind::WouldBlock.into());
        }
        let mut taken = 0;
        for part in bytes.chunks(PART_BYTES) {
            self.seal(Some(part))?;
            taken += part.len();
            if self.holds_bytes() {
                break;
            }
        }
        Ok(taken)
    }

    /// Says our end.
    fn take_leave(&mut self) -> io::Result<()> {
        self.flush()?;
        self.seal(None)
    }

    /// Seals a part of a frame, or our end, and writes it behind what waits; what the socket does not take waits with it.
    fn seal(&mut self, part: Option<&[u8]>) -> io::Result<()> {
        DESK.with_borrow_mut(|desk| {
            loop {
                // What is kept is not whole, so there is nothing to discard.
                match self.session.process_tls_records(&mut self.half).state.map_err(io::Error::other)? {
                    ConnectionState::WriteTraffic(mut traffic) => {
                        let sealed = match part {
                            Some(part) => traffic.encrypt(part, &mut desk.going),
                            None => traffic.queue_close_notify(&mut desk.going),
                        };
                        let sealed = &desk.going[..sealed.map_err(io::Error::other)?];
                        let written = if self.sealed.is_empty() { written(&mut self.socket, sealed)? } else { 0 };
                        self.sealed.extend_from_slice(&sealed[written..]);
                        return self.flush().map(|_| ());
                    }
                    ConnectionState::EncodeTlsData(data) => encode(data, &mut self.sealed),
                    ConnectionState::TransmitTlsData(data) => data.done(),
                    ConnectionState::PeerClosed => self.ended = true,
                    // Both ends are said, or nothing may be said yet.
                    _ => return Err(ErrorKind::NotConnected.into()),
                }
            }
        })
    }

    fn flush(&mut self) -> io::Result<bool> {
        if self.holds_bytes() {
            self.sealed_at += written(&mut self.socket, &self.sealed[self.sealed_at..])?;
            if self.sealed_at < self.sealed.len() {
                self.sealed.shrink_to_fit();
                return Ok(false);
            }
            (self.sealed, self.sealed_at) = (Vec::new(), 0);
        }
        Ok(true)
    }
}

/// Whether the ClientHello at the front of `came` offers HTTP/2. `None`: its end has not come.
fn read_hello(mut came: &[u8]) -> Option<bool> {
    let mut acceptor = Acceptor::default();
    // What is no hello is answered by the session that reads it.
    while !came.is_empty() {
        if acceptor.read_tls(&mut came).is_err() {
            return Some(false);
        }
        match acceptor.accept() {
            Ok(Some(hello)) => {
                let alpn = hello.client_hello().alpn();
                return Some(alpn.is_some_and(|mut offers| offers.any(|offer| offer == &H2[1..])));
            }
            Ok(None) => {}
            Err(_) => return Some(false),
        }
    }
    None
}

/// Whether the socket may hold more than one read took.
#[derive(PartialEq, Eq)]
enum Came {
    All,
    More,
}

/// Puts one record of the session's own behind what waits.
fn encode(mut data: EncodeTlsData<'_, ServerConnectionData>, sealed: &mut Vec<u8>) {
    let start = sealed.len();
    sealed.resize(start + RECORD_MAX, 0);
    let n = data.encode(&mut sealed[start..]).expect("a record is no longer than a record may be");
    sealed.truncate(start + n);
}

/// Writes until all is written or the socket is full; how much was.
fn written(socket: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
    let mut n = 0;
    while n < bytes.len() {
        match socket.write(&bytes[n..]) {
            Ok(some) => n += some,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => break,
            Err(e) => return Err(e),
        }
    }
    Ok(n)
}
