//! A connection of the run: the socket itself, or a TLS session around it.
//!
//! The caller sees no difference. What is written before a handshake's end waits in the session and leaves behind it; a read
//! gives opened bytes or says `WouldBlock`. A session that waits owns no buffer: records are opened in the thread's own desk, and only the
//! beginning of one whose end has not come stays with it.
//!
//! Tickets are kept as many as there are viewers, each used once: a crowd that comes back resumes as a crowd of browsers would.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use mio::net::TcpStream;
use rustls::client::{
    ClientConnectionData, ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue,
    UnbufferedClientConnection,
};
use rustls::pki_types::ServerName;
use rustls::unbuffered::{ConnectionState, EncodeTlsData, UnbufferedStatus};
use rustls::{ClientConfig, ClientConnection, NamedGroup, StreamOwned};

use crate::run::{Secure, Settings};

/// How much is sealed at once: one record. Source: RFC 8446, 5.1.
const PART_BYTES: usize = 16 * 1024;
/// A record on the wire: what it holds, its head, and what the cipher adds. Source: RFC 8446, 5.2.
const RECORD_MAX: usize = PART_BYTES + 5 + 2_048;
/// One read takes at most this, with what was kept before it.
const COMING_BYTES: usize = 256 * 1024;

/// How connections to the server are made.
#[derive(Clone)]
pub struct Door {
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

impl Door {
    /// Errors: the certificates to believe cannot be read.
    pub fn new(settings: &Settings) -> Result<Door> {
        Door::to(settings, settings.secure.as_ref())
    }

    /// The same, to another address of the server.
    pub fn to(settings: &Settings, secure: Option<&Secure>) -> Result<Door> {
        let tls = match secure {
            None => None,
            Some(secure) => {
                let mut config = (*grandstand_client::tls::config(&secure.trust)?).clone();
                config.resumption = Resumption::store(Arc::new(Tickets {
                    most: settings.viewers as usize + 64,
                    kept: Mutex::default(),
                    group: Mutex::default(),
                }));
                Some((Arc::new(config), grandstand_client::tls::name(&secure.name)?))
            }
        };
        Ok(Door { tls })
    }

    pub fn link(&self, socket: TcpStream) -> io::Result<Link> {
        let Some((config, name)) = &self.tls else { return Ok(Link::Plain(socket)) };
        let session = UnbufferedClientConnection::new(config.clone(), name.clone()).map_err(io::Error::other)?;
        Ok(Link::Tls(Box::new(Tls {
            socket,
            session,
            open: false,
            ended: false,
            half: Vec::new(),
            early: Vec::new(),
            sealed: Vec::new(),
        })))
    }

    /// For a thread that may wait.
    pub fn blocking(&self, socket: std::net::TcpStream) -> io::Result<Blocking> {
        let Some((config, name)) = &self.tls else { return Ok(Blocking::Plain(socket)) };
        let session = ClientConnection::new(config.clone(), name.clone()).map_err(io::Error::other)?;
        Ok(Blocking::Tls(Box::new(StreamOwned::new(session, socket))))
    }
}

pub enum Blocking {
    Plain(std::net::TcpStream),
    Tls(Box<StreamOwned<ClientConnection, std::net::TcpStream>>),
}

impl Read for Blocking {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Blocking::Plain(stream) => stream.read(buf),
            Blocking::Tls(stream) => stream.read(buf),
        }
    }
}

impl Write for Blocking {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Blocking::Plain(stream) => stream.write(bytes),
            Blocking::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Blocking::Plain(stream) => stream.flush(),
            Blocking::Tls(stream) => stream.flush(),
        }
    }
}

/// TLS 1.3 alone: a ticket is used once, whoever got it.
#[derive(Debug)]
struct Tickets {
    most: usize,
    kept: Mutex<VecDeque<Tls13ClientSessionValue>>,
    group: Mutex<Option<NamedGroup>>,
}

impl ClientSessionStore for Tickets {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        *self.group.lock().unwrap_or_else(PoisonError::into_inner) = Some(group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        *self.group.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= self.most {
            kept.pop_front();
        }
        kept.push_back(ticket);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

pub enum Link {
    Plain(TcpStream),
    Tls(Box<Tls>),
}

pub struct Tls {
    socket: TcpStream,
    session: UnbufferedClientConnection,
    /// The handshake has ended.
    open: bool,
    /// The other side said its end, or the socket ended.
    ended: bool,
    /// Records whose end has not come.
    half: Vec<u8>,
    /// Written before the handshake's end.
    early: Vec<u8>,
    /// Records that the socket did not take.
    sealed: Vec<u8>,
}

thread_local! {
    /// What comes and what goes of the session whose turn it is.
    static DESK: RefCell<Desk> = RefCell::new(Desk { coming: vec![0; COMING_BYTES], going: vec![0; 2 * RECORD_MAX] });
}

struct Desk {
    coming: Vec<u8>,
    going: Vec<u8>,
}

/// What one read brought.
pub struct Got {
    /// 0 is the other side's end.
    pub n: usize,
    /// More may wait: no event will say so.
    pub more: bool,
}

impl Link {
    /// The socket under it, for the poll's registry.
    pub fn socket(&mut self) -> &mut TcpStream {
        match self {
            Link::Plain(socket) => socket,
            Link::Tls(tls) => &mut tls.socket,
        }
    }

    /// Takes at most `most` bytes from the socket; `buf` holds at least what a desk does. Errors: `WouldBlock` when nothing
    /// whole came.
    pub fn read(&mut self, buf: &mut [u8], most: usize) -> io::Result<Got> {
        match self {
            Link::Plain(socket) => {
                let room = buf.len().min(most);
                socket.read(&mut buf[..room]).map(|n| Got { n, more: n == buf.len() })
            }
            Link::Tls(tls) => tls.read(buf, most),
        }
    }

    /// How many of the bytes are the connection's business now. Errors: `WouldBlock` when none.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Link::Plain(socket) => socket.write(bytes),
            Link::Tls(tls) => tls.write(bytes),
        }
    }

    /// Writes sealed bytes that the socket had no room for.
    pub fn flush(&mut self) -> io::Result<()> {
        match self {
            Link::Plain(_) => Ok(()),
            Link::Tls(tls) => tls.flush(),
        }
    }

    /// Gone without a word, as a phone in a tunnel or a killed program: the other side gets a reset.
    pub fn cut(mut self) {
        // A socket that ended already has nothing to reset.
        let _ = socket2::SockRef::from(&*self.socket()).set_linger(Some(std::time::Duration::ZERO));
    }
}

impl Tls {
    fn read(&mut self, buf: &mut [u8], most: usize) -> io::Result<Got> {
        assert!(buf.len() >= COMING_BYTES, "what is opened has its place");
        let mut left = most;
        loop {
            if self.ended {
                return Ok(Got { n: 0, more: false });
            }
            let got = DESK.with_borrow_mut(|desk| {
                let kept = self.half.len();
                let room = (COMING_BYTES - kept).min(left);
                if room == 0 {
                    return Err(if left == 0 {
                        ErrorKind::WouldBlock.into()
                    } else {
                        io::Error::new(ErrorKind::InvalidData, "a record that long")
                    });
                }
                desk.coming[..kept].copy_from_slice(&self.half);
                let came = self.socket.read(&mut desk.coming[kept..kept + room])?;
                left -= came;
                if came == 0 {
                    self.ended = true;
                    return Ok(Got { n: 0, more: false });
                }
                let n = self.open(&mut desk.coming[..kept + came], &mut desk.going, buf)?;
                Ok(Got { n, more: came == room })
            });
            match got {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                // A part of the handshake or of a record: on until the socket is empty.
                Ok(Got { n: 0, .. }) if !self.ended => {}
                // The end is told by the next read, with what came before it given first.
                Ok(Got { n, more }) => return Ok(Got { n, more: more || (n > 0 && self.ended) }),
                Err(e) => return Err(e),
            }
        }
    }

    /// Gives the session what came, puts what it opens at the front of `out`, and answers what has to be answered.
    fn open(&mut self, coming: &mut [u8], going: &mut [u8], out: &mut [u8]) -> io::Result<usize> {
        let (mut at, mut n) = (0, 0);
        loop {
            let UnbufferedStatus { discard, state } = self.session.process_tls_records(&mut coming[at..]);
            let mut done = false;
            match state.map_err(|e| io::Error::new(ErrorKind::InvalidData, e))? {
                ConnectionState::ReadTraffic(mut traffic) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record.map_err(|e| io::Error::new(ErrorKind::InvalidData, e))?;
                        out[n..n + record.payload.len()].copy_from_slice(record.payload);
                        n += record.payload.len();
                    }
                }
                ConnectionState::EncodeTlsData(data) => encode(data, &mut self.sealed),
                ConnectionState::TransmitTlsData(data) => data.done(),
                ConnectionState::PeerClosed => self.ended = true,
                ConnectionState::Closed => (self.ended, done) = (true, true),
                ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_) => done = true,
                _ => return Err(io::Error::new(ErrorKind::InvalidData, "a state that no client asked for")),
            }
            at += discard;
            if done {
                break;
            }
        }
        self.half = if at == coming.len() || self.ended { Vec::new() } else { coming[at..].to_vec() };
        if !self.open && !self.session.is_handshaking() {
            self.open = true;
            let early = std::mem::take(&mut self.early);
            self.seal(&early, going)?;
        }
        self.flush()?;
        Ok(n)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.open {
            self.flush()?;
            if !self.sealed.is_empty() {
                return Err(ErrorKind::WouldBlock.into());
            }
            DESK.with_borrow_mut(|desk| self.seal(bytes, &mut desk.going))?;
            self.flush()?;
        } else {
            if self.early.is_empty() {
                // The first word is the session's own.
                DESK.with_borrow_mut(|desk| self.open(&mut [], &mut desk.going, &mut []))?;
            }
            self.early.extend_from_slice(bytes);
        }
        Ok(bytes.len())
    }

    /// Puts the bytes, sealed, behind what waits.
    fn seal(&mut self, bytes: &[u8], going: &mut [u8]) -> io::Result<()> {
        for part in bytes.chunks(PART_BYTES) {
            loop {
                // What is kept is not whole, so there is nothing to discard.
                match self.session.process_tls_records(&mut self.half).state.map_err(io::Error::other)? {
                    ConnectionState::WriteTraffic(mut traffic) => {
                        let n = traffic.encrypt(part, going).map_err(io::Error::other)?;
                        self.sealed.extend_from_slice(&going[..n]);
                        break;
                    }
                    ConnectionState::EncodeTlsData(data) => encode(data, &mut self.sealed),
                    ConnectionState::TransmitTlsData(data) => data.done(),
                    ConnectionState::PeerClosed => self.ended = true,
                    _ => return Err(ErrorKind::NotConnected.into()),
                }
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut n = 0;
        while n < self.sealed.len() {
            match self.socket.write(&self.sealed[n..]) {
                Ok(some) => n += some,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            }
        }
        self.sealed.drain(..n);
        if self.sealed.is_empty() {
            self.sealed = Vec::new();
        }
        Ok(())
    }
}

/// Puts one record of the session's own behind what waits.
fn encode(mut data: EncodeTlsData<'_, ClientConnectionData>, sealed: &mut Vec<u8>) {
    let start = sealed.len();
    sealed.resize(start + RECORD_MAX, 0);
    let n = data.encode(&mut sealed[start..]).expect("a record is no longer than a record may be");
    sealed.truncate(start + n);
}
