//! One WebSocket to a room's stream: opened, read, written; pings are answered inside.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use grandstand_core::rng::Rng;
use grandstand_core::time::Mono;
use grandstand_wire::ws::{self, FrameReader, Incoming, Limits, Opcode, Side};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf};

use crate::http::{Reply, read_head};
use crate::tls::Stream;
use crate::{Endpoint, Fault, PATIENCE, seeded};

/// What a server may send in one frame: a catch-up page of events is the largest.
pub const FROM_SERVER: Limits =
    Limits { message_bytes: 16 << 20, fragments: 1024, assembly: Duration::from_secs(60), deflate: false };

/// When a server that says nothing is taken for gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waits {
    /// From connecting to the answer that opens a stream.
    pub opening: Duration,
    /// On a stream that is open.
    pub silence: Duration,
}

impl Default for Waits {
    fn default() -> Waits {
        // The server pings every 20 to 25 s: a stream silent for twice that is dead.
        Waits { opening: PATIENCE, silence: Duration::from_secs(55) }
    }
}

/// What a stream is opened with.
#[derive(Clone, Debug, Default)]
pub struct Open<'a> {
    pub token: Option<&'a str>,
    pub last_event_id: Option<u64>,
    pub waits: Waits,
}

pub struct Socket {
    read: ReadHalf<Stream>,
    write: WriteHalf<Stream>,
    reader: FrameReader,
    input: Vec<u8>,
    used: usize,
    out: Vec<u8>,
    /// A session may have taken what its socket has not.
    flushed: bool,
    rng: Rng,
    start: Instant,
    silence_max: Duration,
    heard_at: tokio::time::Instant,
}

/// What [`Socket::turn`] came back with.
#[derive(Debug)]
pub enum Turn {
    Text(String),
    /// The server's close frame, or the end of the connection.
    Closed(Option<u16>, String),
    /// Bytes went out; there may be room for more.
    Wrote,
}

impl Socket {
    /// Errors: [`Fault::Refused`] for an answer other than 101.
    pub async fn open(endpoint: &Endpoint, path: &str, open: &Open<'_>) -> Result<Socket, Fault> {
        tokio::time::timeout(open.waits.opening, Socket::open_now(endpoint, path, open))
            .await
            .map_err(|_| Fault::Connection(std::io::ErrorKind::TimedOut.into()))?
    }

    async fn open_now(endpoint: &Endpoint, path: &str, open: &Open<'_>) -> Result<Socket, Fault> {
        let mut rng = seeded();
        let mut stream = endpoint.connect().await?;
        let key: Vec<u8> = (0..16).map(|_| rng.next() as u8).collect();
        let key = STANDARD.encode(key);
        stream.write_all(upgrade(endpoint, path, open, &key).as_bytes()).await?;
        stream.flush().await?;
        let mut input = Vec::with_capacity(16 << 10);
        let (status, headers, used) = loop {
            if let Some(head) = read_head(&input)? {
                break head;
            }
            if stream.read_buf(&mut input).await? == 0 {
                return Err(Fault::Connection(std::io::ErrorKind::UnexpectedEof.into()));
            }
        };
        if status != 101 {
            return Err(refused(stream, input, status, &headers, used).await);
        }
        let accept = headers.iter().find(|(n, _)| n == "sec-websocket-accept").map(|(_, v)| v.as_str());
        if accept != ws::accept_key(&key).as_deref() {
            return Err(Fault::Protocol("a wrong Sec-WebSocket-Accept".to_owned()));
        }
        let (read, write) = tokio::io::split(stream);
        let reader = FrameReader::new();
        let (start, heard_at) = (Instant::now(), tokio::time::Instant::now());
        let (out, silence_max) = (Vec::new(), open.waits.silence);
        Ok(Socket { read, write, reader, input, used, out, flushed: true, rng, start, silence_max, heard_at })
    }

    /// Queues one text frame; it leaves with the next [`Socket::turn`].
    pub fn send(&mut self, text: &str) {
        self.frame(Opcode::Text, text.as_bytes());
    }

    /// Bytes queued and not yet taken by the connection.
    pub fn unsent(&self) -> usize {
        self.out.len()
    }

    pub fn close(&mut self) {
        self.frame(Opcode::Close, &ws::close_body(1000, ""));
    }

    fn frame(&mut self, opcode: Opcode, body: &[u8]) {
        let mask = (self.rng.next() as u32).to_le_bytes();
        ws::write_masked_frame(opcode, true, body, mask, &mut self.out);
    }

    /// Reads and writes until something is worth telling. May be dropped at any await and called again; a silence goes on.
    ///
    /// Errors: a broken connection or protocol; a silence of [`Waits::silence`] is a broken connection.
    pub async fn turn(&mut self) -> Result<Turn, Fault> {
        loop {
            let now = Mono(self.start.elapsed().as_micros() as u64);
            let mut rest = &self.input[self.used..];
            let got = self.reader.next(Side::Client, &FROM_SERVER, &mut rest, now);
            self.used = self.input.len() - rest.len();
            if rest.is_empty() {
                self.input.clear();
                self.used = 0;
            }
            match got.map_err(|f| Fault::Protocol(f.reason().to_owned()))? {
                Some(Incoming::Text(text)) => return Ok(Turn::Text(text)),
                Some(Incoming::Close(code, reason)) => return Ok(Turn::Closed(code, reason)),
                Some(Incoming::Ping(body)) => {
                    self.frame(Opcode::Pong, &body);
                    continue;
                }
                Some(Incoming::Binary(_) | Incoming::Deflated(_)) => {
                    return Err(Fault::Protocol("a binary frame".to_owned()));
                }
                Some(Incoming::Pong(_)) => continue,
                None => {}
            }
            tokio::select! {
                read = tokio::time::timeout_at(self.heard_at + self.silence_max, self.read.read_buf(&mut self.input)) => {
                    self.heard_at = tokio::time::Instant::now();
                    match read {
                        Err(_) => return Err(Fault::Connection(std::io::ErrorKind::TimedOut.into())),
                        Ok(Ok(0)) => return Ok(Turn::Closed(None, "the connection ended".to_owned())),
                        Ok(read) => drop(read?),
                    }
                }
                wrote = write_or_flush(&mut self.write, &self.out), if !self.out.is_empty() || !self.flushed => {
                    self.flushed = self.out.is_empty();
                    self.out.drain(..wrote?);
                    if !self.flushed {
                        return Ok(Turn::Wrote);
                    }
                }
            }
        }
    }
}

/// How much was taken; with nothing to write, what was taken before leaves.
async fn write_or_flush(write: &mut WriteHalf<Stream>, out: &[u8]) -> std::io::Result<usize> {
    if out.is_empty() { write.flush().await.map(|()| 0) } else { write.write(out).await }
}

fn upgrade(endpoint: &Endpoint, path: &str, open: &Open<'_>, key: &str) -> String {
    let mut head = format!(
        "GET {path} HTTP/1.1\r\nHost: {}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n",
        endpoint.authority()
    );
    if let Some(token) = open.token {
        head.push_str(&format!("Authorization: Bearer {token}\r\n"));
    }
    if let Some(id) = open.last_event_id {
        head.push_str(&format!("Last-Event-ID: {id}\r\n"));
    }
    head.push_str("\r\n");
    head
}

/// What an answer in place of a stream says, its body read to the end.
pub(crate) async fn refused(
    mut stream: Stream,
    mut input: Vec<u8>,
    status: u16,
    headers: &[(String, String)],
    used: usize,
) -> Fault {
    let length = headers.iter().find(|(n, _)| n == "content-length").and_then(|(_, v)| v.parse::<usize>().ok());
    let want = used + length.unwrap_or(0).min(64 << 10);
    while input.len() < want && stream.read_buf(&mut input).await.is_ok_and(|n| n > 0) {}
    let body = input.split_off(used);
    match status {
        200..300 => Fault::Protocol(format!("{status} where a stream was due")),
        _ => Reply { status, headers: headers.to_vec(), body }.refusal(),
    }
}
