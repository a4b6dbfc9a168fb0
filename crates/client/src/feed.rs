//! A followed room: events in order, over WebSocket or SSE, for as long as the server wants to be asked.
//!
//! Like a reader with a bookmark: the cursor is moved by every event given out, and each new connection starts at it. The
//! caller sees one sequence; `hello` events tell it where a connection began, and whether it was a resume.

use std::collections::VecDeque;
use std::pin::Pin;
use std::time::{Duration, Instant};

use grandstand_wire::sse;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::addresses::{Addresses, Told, is_elsewhere};
use crate::event::Event;
use crate::http::read_head;
use crate::retry::{End, Next, Retry};
use crate::socket::{Open, Socket, Turn, Waits, refused};
use crate::{Endpoint, Fault, seeded, segment, tls};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    WebSocket,
    Sse,
}

/// One room, followed.
pub struct Feed {
    addresses: Addresses,
    room: String,
    token: Option<String>,
    transport: Transport,
    waits: Waits,
    cursor: Option<u64>,
    link: Option<Link>,
    /// A stream that is being opened.
    opening: Option<Opening>,
    queue: VecDeque<Event>,
    retry: Retry,
    ended: Option<End>,
    /// Until then no new stream is opened.
    again_at: Option<tokio::time::Instant>,
    n_connections: u64,
}

/// What [`Feed::turn`] came back with.
#[expect(
    clippy::large_enum_variant,
    reason = "an event is what comes almost every time; a box of each would be for the cuts"
)]
#[derive(Clone, Debug)]
pub enum Happening {
    Event(Event),
    /// The stream ended; the next turn opens another after this wait.
    Cut {
        end: End,
        wait: Duration,
    },
}

type Opening = Pin<Box<dyn Future<Output = Result<Link, Fault>> + Send>>;

enum Link {
    WebSocket(Box<Socket>),
    Sse(Box<Stream>),
}

struct Stream {
    stream: tls::Stream,
    input: Vec<u8>,
    body: Body,
    reader: sse::Reader,
    items: Vec<sse::Item>,
    silence_max: Duration,
    heard_at: tokio::time::Instant,
}

/// How the bytes of an event stream are wrapped.
enum Body {
    Plain,
    /// Bytes left of the chunk being read.
    Chunked(usize),
}

/// The largest event of a stream, with room to spare.
const EVENT_BYTES_MAX: usize = 4 << 20;

impl Feed {
    /// `cursor`: where to go on from; `None` begins at the head.
    pub fn new(
        endpoint: &Endpoint,
        room: &str,
        token: Option<&str>,
        transport: Transport,
        cursor: Option<u64>,
    ) -> Feed {
        Feed {
            addresses: Addresses::new(endpoint),
            room: room.to_owned(),
            token: token.map(str::to_owned),
            transport,
            waits: Waits::default(),
            cursor,
            link: None,
            opening: None,
            queue: VecDeque::new(),
            retry: Retry::new(seeded()),
            ended: None,
            again_at: None,
            n_connections: 0,
        }
    }

    /// Takes the `endpoints` of a snapshot, before the first stream says them itself.
    pub fn take_endpoints(&mut self, told: Option<&Told>) {
        self.addresses.take(told);
    }

    /// Where to go on from, before the first stream is opened; `None` is the head.
    pub fn go_on_from(&mut self, cursor: Option<u64>) {
        assert!(
            self.link.is_none() && self.opening.is_none() && self.n_connections == 0,
            "a stream that is open goes on by itself"
        );
        self.cursor = cursor;
    }

    /// Other waits than the usual ones, from the next stream on.
    pub fn set_waits(&mut self, waits: Waits) {
        self.waits = waits;
    }

    /// Another token, with which the next stream is opened: a room that needs one ends its stream when the token ends.
    pub fn set_token(&mut self, token: Option<&str>) {
        self.token = token.map(str::to_owned);
    }

    /// Everything up to here has been given out.
    pub fn cursor(&self) -> Option<u64> {
        self.cursor
    }

    /// How often a stream was opened.
    pub fn n_connections(&self) -> u64 {
        self.n_connections
    }

    /// The next event, however often the stream has to be opened again. May be dropped at any await and called again.
    ///
    /// Errors: only those a retry cannot change: a 40xx close, or an HTTP refusal other than 429 and 5xx.
    pub async fn next(&mut self) -> Result<Event, Fault> {
        loop {
            if let Happening::Event(event) = self.turn().await? {
                return Ok(event);
            }
        }
    }

    /// The next event, or that the stream was cut: for whoever shows that it is. May be dropped at any await and called again; a wait, an
    /// opening and a silence that have begun go on. Errors: as of [`Feed::next`].
    pub async fn turn(&mut self) -> Result<Happening, Fault> {
        loop {
            if let Some(event) = self.queue.pop_front() {
                if let Some(position) = event.position() {
                    self.cursor = Some(position);
                }
                self.retry.progress();
                return Ok(Happening::Event(event));
            }
            if let Some(end) = self.ended.take() {
                match self.retry.after(end.clone(), Instant::now()) {
                    Next::Stop { code, reason } => {
                        self.ended = Some(end);
                        return Err(Fault::Closed { code, reason });
                    }
                    Next::Wait(wait) => {
                        self.again_at = Some(tokio::time::Instant::now() + wait);
                        return Ok(Happening::Cut { end, wait });
                    }
                }
            }
            if let Some(at) = self.again_at {
                tokio::time::sleep_until(at).await;
                self.again_at = None;
            }
            self.step().await?;
        }
    }

    async fn step(&mut self) -> Result<(), Fault> {
        let outcome = match &mut self.link {
            None => match self.opened().await {
                Ok(link) => {
                    self.link = Some(link);
                    self.n_connections += 1;
                    return Ok(());
                }
                Err(fault) => Err(fault),
            },
            Some(Link::WebSocket(socket)) => match socket.turn().await {
                Ok(Turn::Text(text)) => Event::parse_frame(&text).map_err(|e| Fault::Protocol(e.to_string())),
                Ok(Turn::Wrote) => return Ok(()),
                Ok(Turn::Closed(code, reason)) => {
                    self.link = None;
                    self.ended = Some(code.map_or(End::Broken, |code| End::Code {
                        code,
                        reason,
                        retry_after: None,
                        spread: None,
                    }));
                    return Ok(());
                }
                Err(fault) => Err(fault),
            },
            Some(Link::Sse(stream)) => stream.turn().await,
        };
        match outcome {
            Ok(events) => {
                for event in events {
                    if event.kind() == "close"
                        && let Some(end) = event.end()
                    {
                        self.link = None;
                        self.ended = Some(end);
                    }
                    if event.kind() == "hello" {
                        self.addresses.take(event.members.endpoints.as_ref());
                    }
                    self.queue.push_back(event);
                }
                Ok(())
            }
            Err(Fault::Connection(_)) => {
                self.link = None;
                self.ended = Some(End::Broken);
                Ok(())
            }
            Err(Fault::Refused { status: 429 | 500.., retry_after, spread, .. }) => {
                self.ended = Some(End::Refused { retry_after, spread });
                Ok(())
            }
            Err(fault) => Err(fault),
        }
    }

    /// The stream that is being opened, or a new one.
    async fn opened(&mut self) -> Result<Link, Fault> {
        let opening = match &mut self.opening {
            Some(opening) => opening,
            none => {
                let all: Vec<Endpoint> = match self.transport {
                    Transport::WebSocket => self.addresses.websocket(self.n_connections).cloned().collect(),
                    Transport::Sse => self.addresses.sse(self.n_connections).cloned().collect(),
                };
                let (room, token) = (segment(&self.room), self.token.clone());
                none.insert(Box::pin(connect(all, self.transport, room, token, self.cursor, self.waits)))
            }
        };
        let opened = opening.await;
        self.opening = None;
        opened
    }
}

/// A stream at the first of these that can be reached.
async fn connect(
    all: Vec<Endpoint>,
    transport: Transport,
    room: String,
    token: Option<String>,
    cursor: Option<u64>,
    waits: Waits,
) -> Result<Link, Fault> {
    let open = Open { token: token.as_deref(), last_event_id: cursor, waits };
    let mut unreached = None;
    for endpoint in &all {
        let opened = match transport {
            Transport::WebSocket => {
                let socket = Socket::open(endpoint, &format!("/v1/rooms/{room}/stream"), &open).await;
                socket.map(|socket| Link::WebSocket(Box::new(socket)))
            }
            Transport::Sse => Stream::open(endpoint, &format!("/v1/rooms/{room}/sse"), &open).await.map(Link::Sse),
        };
        match opened {
            Err(fault) if is_elsewhere(&fault) => unreached = Some(fault),
            opened => return opened,
        }
    }
    Err(unreached.expect("home is always tried"))
}

impl Stream {
    async fn open(endpoint: &Endpoint, path: &str, open: &Open<'_>) -> Result<Box<Stream>, Fault> {
        tokio::time::timeout(open.waits.opening, Stream::open_now(endpoint, path, open))
            .await
            .map_err(|_| Fault::Connection(std::io::ErrorKind::TimedOut.into()))?
    }

    async fn open_now(endpoint: &Endpoint, path: &str, open: &Open<'_>) -> Result<Box<Stream>, Fault> {
        let mut head =
            format!("GET {path} HTTP/1.1\r\nHost: {}\r\nAccept: text/event-stream\r\n", endpoint.authority());
        if let Some(token) = open.token {
            head.push_str(&format!("Authorization: Bearer {token}\r\n"));
        }
        if let Some(id) = open.last_event_id {
            head.push_str(&format!("Last-Event-ID: {id}\r\n"));
        }
        head.push_str("\r\n");
        let mut stream = endpoint.connect().await?;
        stream.write_all(head.as_bytes()).await?;
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
        if status != 200 {
            return Err(refused(stream, input, status, &headers, used).await);
        }
        input.drain(..used);
        let chunked = headers.iter().any(|(n, v)| n == "transfer-encoding" && v.eq_ignore_ascii_case("chunked"));
        let body = if chunked { Body::Chunked(0) } else { Body::Plain };
        let reader = sse::Reader::new(EVENT_BYTES_MAX);
        let (silence_max, heard_at) = (open.waits.silence, tokio::time::Instant::now());
        Ok(Box::new(Stream { stream, input, body, reader, items: Vec::new(), silence_max, heard_at }))
    }

    async fn turn(&mut self) -> Result<Vec<Event>, Fault> {
        let broken = |kind: std::io::ErrorKind| Fault::Connection(kind.into());
        if self.input.is_empty() || !self.unwrap()? {
            let silent_until = self.heard_at + self.silence_max;
            let read = tokio::time::timeout_at(silent_until, self.stream.read_buf(&mut self.input)).await;
            self.heard_at = tokio::time::Instant::now();
            if read.map_err(|_| broken(std::io::ErrorKind::TimedOut))?? == 0 {
                return Err(broken(std::io::ErrorKind::UnexpectedEof));
            }
            self.unwrap()?;
        }
        let mut events = Vec::new();
        for item in self.items.drain(..) {
            if let sse::Item::Event(event) = item {
                events.push(Event::parse(&event.data).map_err(|e| Fault::Protocol(e.to_string()))?);
            }
        }
        Ok(events)
    }

    /// Feeds what is readable of the body; false when the input ended before anything was.
    fn unwrap(&mut self) -> Result<bool, Fault> {
        let long = |_| Fault::Protocol("an event that long".to_owned());
        let mut fed = false;
        loop {
            match &mut self.body {
                Body::Plain => {
                    self.reader.feed(&self.input, &mut self.items).map_err(long)?;
                    fed |= !self.input.is_empty();
                    self.input.clear();
                    return Ok(fed);
                }
                Body::Chunked(0) => {
                    // Each chunk but the first follows the line end of the one before.
                    let start = if self.input.starts_with(b"\r\n") { 2 } else { 0 };
                    let Some(end) = self.input[start..].windows(2).position(|w| w == b"\r\n") else { return Ok(fed) };
                    let size = std::str::from_utf8(&self.input[start..start + end]).unwrap_or_default();
                    let size = usize::from_str_radix(size.split(';').next().unwrap_or_default().trim(), 16);
                    let size = size.map_err(|_| Fault::Protocol("a malformed chunk".to_owned()))?;
                    if size == 0 {
                        return Err(Fault::Connection(std::io::ErrorKind::UnexpectedEof.into()));
                    }
                    self.input.drain(..start + end + 2);
                    self.body = Body::Chunked(size);
                }
                Body::Chunked(left) => {
                    let take = (*left).min(self.input.len());
                    if take == 0 {
                        return Ok(fed);
                    }
                    self.reader.feed(&self.input[..take], &mut self.items).map_err(long)?;
                    self.input.drain(..take);
                    *left -= take;
                    fed = true;
                }
            }
        }
    }
}
