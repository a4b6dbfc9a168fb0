//! What a connection reads from and writes to: the socket itself, or a TLS session around it.
//!
//! Bytes mean the same on both: a write takes what it can and says how much, a read says whether more may wait. With TLS there
//! is one more place where bytes can lie: records that are sealed and that the socket did not take. They belong to the frame
//! being written; until they have left, the connection counts as held up, as if the frame's end were still in the outbox.
//!
//! The awkward case: a caller that speaks no TLS, or breaks its handshake. What it is told goes out as it is, and nothing it
//! says is read as anything any more.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;

use mio::net::TcpStream;
use rustls::{HandshakeKind, ServerConfig, ServerConnection};

/// Sealed bytes that wait for one socket; also what is sealed at once. One record is at most 16 KiB of a frame.
const SEALED_MAX: usize = 16 * 1024;
/// The first byte of every ClientHello's record. Source: RFC 8446, 5.1.
const HANDSHAKE_RECORD: u8 = 22;

pub enum Socket {
    Plain(TcpStream),
    Tls(Box<Tls>),
}

pub struct Tls {
    socket: TcpStream,
    session: ServerConnection,
    phase: Phase,
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
        let mut session = ServerConnection::new(config.clone())?;
        session.set_buffer_limit(Some(SEALED_MAX));
        Ok(Socket::Tls(Box::new(Tls { socket, session, phase: Phase::New })))
    }

    /// For the poll's registry.
    pub fn source(&mut self) -> &mut TcpStream {
        match self {
            Socket::Plain(socket) => socket,
            Socket::Tls(tls) => &mut tls.socket,
        }
    }

    /// Errors: as of a socket; `WouldBlock` only when nothing was read.
    #[inline]
    pub fn read(&mut self, buf: &mut [u8]) -> io::Result<Got> {
        match self {
            Socket::Plain(socket) => socket.read(buf).map(|n| Got { n, more: n == buf.len() }),
            Socket::Tls(tls) => tls.read(buf),
        }
    }

    /// How many bytes of `bytes` are the socket's business now. Errors: `WouldBlock` when none.
    #[inline]
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Plain(socket) => socket.write(bytes),
            Socket::Tls(tls) => tls.write(bytes),
        }
    }

    /// Whether sealed bytes wait for the socket.
    #[inline]
    pub fn holds_bytes(&self) -> bool {
        match self {
            Socket::Plain(_) => false,
            Socket::Tls(tls) => tls.holds_bytes(),
        }
    }

    /// Writes the sealed bytes that wait; whether all have left.
    #[inline]
    pub fn flush(&mut self) -> io::Result<bool> {
        match self {
            Socket::Plain(_) => Ok(true),
            Socket::Tls(tls) => tls.flush(),
        }
    }

    /// Our side ends, said in the session's own words first.
    pub fn shutdown(&mut self) -> io::Result<()> {
        self.take_leave();
        self.source().shutdown(Shutdown::Write)
    }

    /// Says that the end is an end and no cut, when the socket takes it. Nothing for a plain socket.
    pub fn take_leave(&mut self) {
        if let Socket::Tls(tls) = self
            && tls.phase == Phase::Open
        {
            tls.session.send_close_notify();
            // Who cannot be told any more sees a cut; the answer's own length tells it what it has.
            let _ = tls.flush();
        }
    }

    #[inline]
    pub fn is_handshaking(&self) -> bool {
        match self {
            Socket::Plain(_) => false,
            Socket::Tls(tls) => matches!(tls.phase, Phase::New | Phase::Handshake),
        }
    }

    /// Whether the handshake began with a ticket of ours. `None` before its end.
    pub fn is_resumed(&self) -> Option<bool> {
        match self {
            Socket::Plain(_) => None,
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
            Socket::Plain(_) => None,
        }
    }
}

impl Tls {
    fn holds_bytes(&self) -> bool {
        self.session.wants_write() && !matches!(self.phase, Phase::Raw(_))
    }

    fn read(&mut self, buf: &mut [u8]) -> io::Result<Got> {
        match self.phase {
            Phase::Raw(_) => return self.socket.read(buf).map(|n| Got { n, more: n == buf.len() }),
            Phase::New => self.meet()?,
            Phase::Handshake | Phase::Open => {}
        }
        let mut n = 0;
        loop {
            // All that is opened is taken before more is read: the session keeps nothing.
            while n < buf.len() {
                match self.session.reader().read(&mut buf[n..]) {
                    // The end was said, or came without a word. What came before it is given first.
                    Ok(0) => return Ok(Got { n, more: n > 0 }),
                    Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(Got { n, more: n > 0 }),
                    Ok(some) => n += some,
                    Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                    Err(e) => return Err(e),
                }
            }
            if n == buf.len() {
                return Ok(Got { n, more: true });
            }
            match self.session.read_tls(&mut self.socket) {
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == ErrorKind::WouldBlock && n > 0 => return Ok(Got { n, more: false }),
                Err(e) => return Err(e),
            }
            if let Err(fault) = self.session.process_new_packets() {
                // The alert; who does not take it is gone anyway.
                let _ = self.flush();
                self.phase = Phase::Raw(Why::Broken);
                return Err(io::Error::new(ErrorKind::InvalidData, fault));
            }
            if self.phase == Phase::Handshake && !self.session.is_handshaking() {
                self.phase = Phase::Open;
            }
            // Our part of the handshake, tickets, answers to key updates; what does not leave waits for the socket.
            self.flush()?;
        }
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

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if matches!(self.phase, Phase::Raw(_)) {
            return self.socket.write(bytes);
        }
        if !self.flush()? {
            return Err(ErrorKind::WouldBlock.into());
        }
        let mut taken = 0;
        loop {
            let n = self.session.writer().write(&bytes[taken..])?;
            taken += n;
            let left = self.flush()?;
            if taken == bytes.len() || !left {
                return Ok(taken);
            }
            assert!(n > 0, "a session without waiting bytes takes some");
        }
    }

    fn flush(&mut self) -> io::Result<bool> {
        while self.holds_bytes() {
            match self.session.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }
}
