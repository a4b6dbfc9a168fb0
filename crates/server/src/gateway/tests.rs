//! The gateway on real sockets, with a shard and a control made for the test.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use grandstand_core::ids::{Epoch, EventId, Position, Pseq, Seq};
use grandstand_core::names::{RoomId, UserId};
use grandstand_core::owner::answer::Answer;
use grandstand_core::owner::command::Command;
use grandstand_core::record::{Audience, Lane, Room};
use grandstand_core::routing::partition_of;
use grandstand_core::sampler::switch::Sampling;
use grandstand_core::time::Mono;
use grandstand_core::viewer::resume;
use grandstand_wire::ws::{self, FrameReader, Incoming, Limits, Opcode, Side};
use serde_json::{Value, json};
use tokio::sync::mpsc;

mod admission;
mod away;
mod banners;
mod deflate;
mod full;
mod half_open;
mod holders;
mod lanes;
mod parts;
mod refill;

use super::{Deps, Gateway, Settings, StreamLimits};
use crate::admission::Admission;
use crate::auth::keys::SigningKey;
use crate::auth::ticket::Tickets;
use crate::auth::token::{Claims, Verifier};
use crate::clock;
use crate::link::bundles::{Bundles, Limits as StreamLimit};
use crate::link::{
    Batch, Delay, Fetch, HttpPart, HttpRequest, NoRoom, Page, Past, Piece, ReadRefused, ReplyTo, Resumed, RoomInfo,
    ShardHandle, ShardStatus, Tallies, ToOwner, ToReader, ToWorker, WorkerId, Workers,
};
use crate::metrics::Metrics;

const WAIT: Duration = Duration::from_secs(10);

// ---- a shard ---------------------------------------------------------------------------------------------------------

#[derive(Default)]
struct Log {
    epoch: u32,
    seq: u64,
    /// Pages of their rooms' past that rings asked for.
    n_past: usize,
    /// Cursors that were judged by the log, each for itself.
    n_alone: usize,
    /// How old what is appended is said to be.
    age: Duration,
    /// Those who ask are told this.
    fails: Option<ReadRefused>,
    rooms: HashMap<RoomId, Vec<Arc<Piece>>>,
    pseq: HashMap<RoomId, u64>,
    subscribers: HashMap<RoomId, Vec<WorkerId>>,
    /// Those of the shard that went away.
    before: HashMap<RoomId, Vec<WorkerId>>,
    settings: HashMap<RoomId, Room>,
}

impl Log {
    fn id(&self) -> EventId {
        EventId::at(Epoch::new(self.epoch).unwrap(), Seq::new(self.seq).unwrap())
    }
    fn head(&self) -> Position {
        self.id().position()
    }
    fn info(&self, room: &RoomId) -> RoomInfo {
        let settings = self.settings.get(room).cloned().unwrap_or_else(|| Room::fresh("t"));
        let last_event = self.rooms.get(room).and_then(|r| r.last()).map_or(Position::START, |p| p.id.position());
        RoomInfo {
            room: room.clone(),
            head: self.head(),
            epochs: [].into(),
            last_event,
            pseq: Pseq(self.pseq.get(room).copied().unwrap_or(0)),
            config_json: r#"{"slow_mode_seconds":0}"#.into(),
            likes: Default::default(),
            pinned_json: "[]".into(),
            wide: settings.sampling.when == Sampling::Always,
            settings: Arc::new(settings),
        }
    }
}

struct Stage {
    gateway: Option<Gateway>,
    status: Arc<ShardStatus>,
    address: SocketAddr,
    log: Arc<Mutex<Log>>,
    workers: Workers,
    key: SigningKey,
    tickets: Arc<Tickets>,
    tallies: Tallies,
    metrics: Arc<Metrics>,
    admission: Arc<Admission>,
    over: Arc<AtomicBool>,
    _dir: tempfile::TempDir,
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(gateway) = self.gateway.take() {
            gateway.stop();
        }
    }
}

fn room(id: &str) -> RoomId {
    RoomId::parse(id).unwrap()
}

fn stage() -> Stage {
    stage_with(2, StreamLimits { each: StreamLimit { per_user: 3, per_address: 64 }, total: None, per_room: None })
}

fn stage_with(n_workers: u16, stream_limits: StreamLimits) -> Stage {
    stage_behind(n_workers, stream_limits, &[], false)
}

/// A gateway that agrees to compression, or not.
fn stage_of(n_workers: u16, deflate: bool) -> Stage {
    let limits = StreamLimits { each: StreamLimit { per_user: 3, per_address: 64 }, total: None, per_room: None };
    stage_set(n_workers, limits, &[], false, deflate)
}

/// A gateway behind trusted proxies.
fn stage_behind(n_workers: u16, stream_limits: StreamLimits, trusted: &[&str], proxy_protocol: bool) -> Stage {
    stage_set(n_workers, stream_limits, trusted, proxy_protocol, true)
}

fn stage_set(
    n_workers: u16,
    stream_limits: StreamLimits,
    trusted: &[&str],
    proxy_protocol: bool,
    deflate: bool,
) -> Stage {
    let place = (u64::MAX / 2, false);
    stage_full(n_workers, stream_limits, trusted, proxy_protocol, deflate, place)
}

/// `full`: so many sockets, and whether others accept on the port.
fn stage_full(
    n_workers: u16,
    stream_limits: StreamLimits,
    trusted: &[&str],
    proxy_protocol: bool,
    deflate: bool,
    full: (u64, bool),
) -> Stage {
    let (shard, ends) = ShardHandle::new();
    let workers = Workers::new(n_workers);
    let log = Arc::new(Mutex::new(Log { epoch: 7, seq: 1, ..Log::default() }));
    let over = Arc::new(AtomicBool::new(false));
    ends.status.set_ready(true);
    let status = ends.status.clone();
    {
        let (log, workers, over, owner) = (log.clone(), workers.clone(), over.clone(), ends.owner.clone());
        std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let lanes = owner.take(Some(Instant::now() + Duration::from_millis(50)), || false);
                for link in lanes.links {
                    if let ToOwner::Subscribe { worker, room } = link {
                        let mut log = log.lock().unwrap();
                        let subscribers = log.subscribers.entry(room.clone()).or_default();
                        if !subscribers.contains(&worker) {
                            subscribers.push(worker);
                        }
                        let found = match room.as_str().starts_with("no-") {
                            true => Err(NoRoom),
                            false => Ok(Arc::new(log.info(&room))),
                        };
                        workers.send(worker, ToWorker::Room { room, found }).ok().unwrap();
                    }
                }
                for (reply, command) in lanes.publishes {
                    let (Command::Publish(p), ReplyTo::Conn { conn, request }) = (command, reply) else { continue };
                    let author = Some((p.author.user.clone(), Some(p.client_msg_id.clone())));
                    let body = json!({"body": &*p.text, "user": {"id": p.author.user.as_str()}});
                    let id = append(&log, &workers, &p.room, Lane::Comment, "comment", body, author);
                    let offset = id.seq();
                    let partition = partition_of(&p.room);
                    let answer = Answer::Published { event_id: id, partition, offset, duplicate: false };
                    workers.send(conn.worker, ToWorker::Answer { conn, request, answer }).ok().unwrap();
                }
            }
        });
    }
    {
        let (log, workers, readers) = (log.clone(), workers.clone(), ends.readers.clone());
        std::thread::spawn(move || {
            while let Some(jobs) = readers.take(1) {
                for job in jobs {
                    read(&log, &workers, job);
                }
            }
        });
    }
    let (control, mut requests) = mpsc::channel::<HttpRequest>(64);
    {
        let workers = workers.clone();
        std::thread::spawn(move || {
            while let Some(request) = requests.blocking_recv() {
                control_answer(&workers, request);
            }
        });
    }
    let dir = tempfile::tempdir().unwrap();
    let key = SigningKey::in_folder(dir.path()).unwrap();
    let verifier = Arc::new(Verifier::new(Some(&key), vec![], None, None, vec![], Arc::default()).unwrap());
    let tickets = Arc::new(Tickets::new(&[7; 32], clock::wall()));
    let metrics = Arc::new(Metrics::new());
    let tallies = Tallies::default();
    let admission = Arc::new(Admission::new(None, clock::mono()));
    let bundles = Bundles::alone(stream_limits.each, StreamLimit { per_user: 2, per_address: 3 }).into();
    let settings = Settings {
        listen: "127.0.0.1:0".parse().unwrap(),
        edges: vec![],
        irc: crate::edge::Irc::default(),
        endpoints: None,
        origins: vec![crate::auth::door::Origin::parse("https://listed.example").unwrap()],
        development: true,
        stream_limits,
        exempt: vec![],
        deflate,
        tls: None,
        http2: None,
        trusted_proxies: trusted.iter().map(|n| crate::auth::door::Network::parse(n).unwrap()).collect(),
        places: Arc::default(),
        proxy_protocol,
        sockets_max: full.0,
        shares_address: full.1,
        drain: Delay { retry_after: Duration::from_millis(500), spread: Duration::from_secs(10) },
    };
    let deps = Deps {
        shard,
        workers: workers.clone(),
        control: control.into(),
        verifier,
        tickets: tickets.clone(),
        metrics: metrics.clone(),
        admission: admission.clone(),
        tallies: tallies.clone(),
        bundles,
    };
    let gateway = super::start(settings, deps).unwrap();
    let address = gateway.address;
    let gateway = Some(gateway);
    Stage { gateway, status, address, log, workers, key, tickets, tallies, metrics, admission, over, _dir: dir }
}

fn append(
    log: &Mutex<Log>,
    workers: &Workers,
    room: &RoomId,
    lane: Lane,
    kind: &'static str,
    body: Value,
    author: Option<(UserId, Option<grandstand_core::names::ClientMsgId>)>,
) -> EventId {
    let mut log = log.lock().unwrap();
    log.seq += 1;
    let id = log.id();
    let mut event = json!({"type": kind, "room_id": room.as_str(), "event_id": id.value()});
    event.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
    let pseq = (lane == Lane::Priority).then(|| {
        let n = log.pseq.entry(room.clone()).or_default();
        *n += 1;
        Pseq(*n)
    });
    if let Some(pseq) = pseq {
        event["pseq"] = pseq.0.into();
    }
    let piece = Arc::new(Piece {
        id,
        lane,
        ts: crate::clock::wall() - log.age,
        closes_window: lane == Lane::Priority,
        pseq,
        kind,
        json: serde_json::to_vec(&event).unwrap().into(),
        author,
        audience: Audience::Everyone,
        unallowed: false,
        retracts: None,
        won: None,
    });
    log.rooms.entry(room.clone()).or_default().push(piece.clone());
    let batch = Arc::new(Batch { room: room.clone(), pieces: vec![piece], said: 0 });
    for worker in log.subscribers.get(room).cloned().unwrap_or_default() {
        workers.send(worker, ToWorker::Batch(batch.clone())).ok().unwrap();
    }
    id
}

/// Pages of three events, so that there are several.
fn page(log: &Log, room: &RoomId, after: Position) -> Page {
    let all = log.rooms.get(room).cloned().unwrap_or_default();
    let pieces: Vec<_> = all.into_iter().filter(|p| p.id.position() > after).take(3).collect();
    let upto = if pieces.len() == 3 { pieces[2].id.position() } else { log.head() };
    Page { pieces, upto }
}

fn read(log: &Mutex<Log>, workers: &Workers, job: ToReader) {
    let mut log = log.lock().unwrap();
    match job {
        ToReader::Fetch(Fetch::Resume { conn, request, room, cursor }) => {
            log.n_alone += 1;
            let pseq = log.info(&room).pseq;
            let answer = if cursor > log.head() {
                resume::Answer::SnapshotRequired { reason: resume::Reason::UnknownCursor, from: log.head(), pseq }
            } else {
                let pseq = Pseq(0);
                let until = log.head();
                resume::Answer::Resumed { from: cursor, pseq, comments_after: cursor, skipped: None, until }
            };
            let answer = Resumed { answer, first: page(&log, &room, cursor) };
            workers.send(conn.worker, ToWorker::Resume { conn, request, room, answer: Ok(answer) }).ok().unwrap();
        }
        ToReader::Fetch(Fetch::Page { conn, request, room, after, .. }) => {
            let answer = Ok(page(&log, &room, after));
            workers.send(conn.worker, ToWorker::Page { conn, request, room, answer }).ok().unwrap();
        }
        ToReader::Fetch(Fetch::Past { worker, request, room, upto, .. }) => {
            log.n_past += 1;
            let all = log.rooms.get(&room).cloned().unwrap_or_default();
            let mut pieces: Vec<_> = all.into_iter().rev().filter(|p| p.id.position() <= upto).take(3).collect();
            pieces.reverse();
            let first = pieces.first().filter(|_| pieces.len() == 3);
            let after = first.map_or(Position::START, |p| Position::new(p.id.value() - 1).unwrap());
            let answer = log.fails.map_or(Ok(Past { pieces, after }), Err);
            workers.send(worker, ToWorker::Past { room, request, answer }).ok().unwrap();
        }
        ToReader::Older { .. }
        | ToReader::Export { .. }
        | ToReader::Archive { .. }
        | ToReader::Scan { .. }
        | ToReader::Past { .. }
        | ToReader::Audit { .. } => {}
        ToReader::Verify { .. } | ToReader::Link { .. } => {}
    }
}

/// More than the sockets of both sides hold.
const LARGE: usize = 400_000;

/// `/chunks` comes in three chunks, `/large` at once, `/echo` gives the body back, anything else says its method and path.
fn control_answer(workers: &Workers, request: HttpRequest) {
    let HttpRequest { request, conn, flow, .. } = request;
    let send = |part| {
        // The connection may be gone with its worker.
        let _ = workers.send(conn.worker, ToWorker::Http { conn, part });
    };
    let (head, ()) = http::Response::new(()).into_parts();
    match request.uri().path() {
        "/chunks" => {
            send(HttpPart::Head(head));
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            for n in 0..3 {
                if runtime.block_on(flow.next()).is_err() {
                    return;
                }
                send(HttpPart::Chunk(Bytes::from(vec![b'a' + n; 70_000])));
            }
            send(HttpPart::End);
        }
        "/echo" => send(HttpPart::Whole { head, body: request.into_body() }),
        "/large" => send(HttpPart::Whole { head, body: vec![b'x'; LARGE].into() }),
        path => {
            let body = format!("{} {path}", request.method());
            send(HttpPart::Whole { head, body: body.into() });
        }
    }
}

// ---- clients -----------------------------------------------------------------------------------------------------------

impl Stage {
    fn token(&self, sub: &str) -> String {
        self.key.mint(&Claims::new(sub, clock::wall(), Duration::from_secs(600)))
    }
    fn score(&self, id: &str, home: u64) -> EventId {
        append(&self.log, &self.workers, &room(id), Lane::Priority, "score_event", json!({"home": home}), None)
    }
    fn comment(&self, id: &str, body: &str) -> EventId {
        append(&self.log, &self.workers, &room(id), Lane::Comment, "comment", json!({"body": body}), None)
    }
    /// Until the room has so many viewers seated.
    fn seated(&self, id: &str, n: i64) {
        let tally = self.tallies.of(&room(id));
        let began = Instant::now();
        while tally.viewers.load(Ordering::Relaxed) != n {
            assert!(began.elapsed() < WAIT, "the viewers were never seated");
            std::thread::yield_now();
        }
    }
    fn socket(&self) -> TcpStream {
        let socket = TcpStream::connect(self.address).unwrap();
        socket.set_read_timeout(Some(WAIT)).unwrap();
        socket.set_nodelay(true).unwrap();
        socket
    }
    fn say(&self, text: &str) -> Http {
        let mut http = Http { socket: self.socket(), buf: Vec::new() };
        http.say(text);
        http
    }
    fn ws(&self, id: &str, fields: &str) -> Ws {
        Ws::open(self.socket(), &format!("/v1/rooms/{id}/stream"), fields)
    }
    fn ws_as_from(&self, id: &str, sub: &str, cursor: u64) -> Ws {
        let token = self.token(sub);
        self.ws(id, &format!("Authorization: Bearer {token}\r\nLast-Event-ID: {cursor}\r\n"))
    }
    fn ws_as(&self, id: &str, sub: &str) -> Ws {
        self.ws(id, &format!("Authorization: Bearer {}\r\n", self.token(sub)))
    }
}

struct Http {
    socket: TcpStream,
    buf: Vec<u8>,
}

struct Answered {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answered {
    fn header(&self, name: &str) -> Option<String> {
        let name = format!("{name}: ");
        self.head.lines().find_map(|l| l.strip_prefix(&name).map(str::to_owned))
    }
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

impl Http {
    fn say(&mut self, text: &str) {
        self.socket.write_all(text.as_bytes()).unwrap();
    }
    fn get(&mut self, target: &str, fields: &str) {
        self.say(&format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n"));
    }
    fn fill(&mut self) -> bool {
        let mut chunk = [0; 16 * 1024];
        let n = self.socket.read(&mut chunk).unwrap_or(0);
        self.buf.extend_from_slice(&chunk[..n]);
        n > 0
    }
    fn until(&mut self, end: &[u8]) -> Vec<u8> {
        loop {
            if let Some(at) = self.buf.windows(end.len()).position(|w| w == end) {
                return self.buf.drain(..at + end.len()).collect();
            }
            assert!(self.fill(), "the connection ended: {:?}", String::from_utf8_lossy(&self.buf));
        }
    }
    fn exactly(&mut self, n: usize) -> Vec<u8> {
        while self.buf.len() < n {
            assert!(self.fill(), "the connection ended early");
        }
        self.buf.drain(..n).collect()
    }
    fn head(&mut self) -> Answered {
        let head = String::from_utf8(self.until(b"\r\n\r\n")).unwrap();
        let status = head[9..12].parse().unwrap();
        Answered { status, head, body: Vec::new() }
    }
    fn answer(&mut self) -> Answered {
        let mut answered = self.head();
        if answered.header("transfer-encoding").as_deref() == Some("chunked") {
            loop {
                let len = String::from_utf8(self.until(b"\r\n")).unwrap();
                let len = usize::from_str_radix(len.trim(), 16).unwrap();
                let chunk = self.exactly(len + 2);
                answered.body.extend_from_slice(&chunk[..len]);
                if len == 0 {
                    return answered;
                }
            }
        }
        let len = answered.header("content-length").map_or(0, |l| l.parse().unwrap());
        answered.body = self.exactly(len);
        answered
    }
    fn ends(&mut self) -> bool {
        while self.fill() {}
        true
    }
    /// The next SSE event as (kind, id, data); comments and retries are skipped.
    fn event(&mut self) -> (String, Option<u64>, Value) {
        loop {
            let text = String::from_utf8(self.until(b"\n\n")).unwrap();
            let field = |name: &str| text.lines().find_map(|l| l.strip_prefix(name).map(str::to_owned));
            if let Some(kind) = field("event: ").filter(|kind| kind != "counters") {
                let data = serde_json::from_str(&field("data: ").unwrap()).unwrap();
                return (kind, field("id: ").map(|id| id.parse().unwrap()), data);
            }
        }
    }
}

struct Ws {
    http: Http,
    head: String,
    reader: FrameReader,
    events: std::collections::VecDeque<Value>,
}

impl Ws {
    fn open(socket: TcpStream, target: &str, fields: &str) -> Ws {
        let mut http = Http { socket, buf: Vec::new() };
        http.get(
            target,
            &format!(
                "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                 Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{fields}"
            ),
        );
        let answered = http.head();
        assert_eq!(answered.status, 101, "{}", answered.head);
        assert_eq!(answered.header("sec-websocket-accept").as_deref(), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        Ws { http, head: answered.head, reader: FrameReader::new(), events: Default::default() }
    }
    fn op(&mut self, op: Value) {
        self.frame(Opcode::Text, op.to_string().as_bytes());
    }
    fn frame(&mut self, opcode: Opcode, body: &[u8]) {
        let mut out = Vec::new();
        ws::write_masked_frame(opcode, true, body, [1, 2, 3, 4], &mut out);
        self.http.socket.write_all(&out).unwrap();
    }
    fn incoming(&mut self) -> Option<Incoming> {
        let limits = Limits { message_bytes: 1 << 24, ..Limits::FROM_CLIENT };
        loop {
            let mut input = &self.http.buf[..];
            let got = self.reader.next(Side::Client, &limits, &mut input, Mono(0)).unwrap();
            let left = input.to_vec();
            self.http.buf = left;
            if got.is_some() {
                return got;
            }
            if !self.http.fill() {
                return None;
            }
        }
    }
    fn next(&mut self) -> Value {
        loop {
            if let Some(event) = self.events.pop_front() {
                // The number of viewers comes when it comes.
                if event["type"] == "counters" {
                    continue;
                }
                return event;
            }
            match self.incoming() {
                Some(Incoming::Text(text)) => match serde_json::from_str(&text).unwrap() {
                    Value::Array(events) => self.events.extend(events),
                    event => self.events.push_back(event),
                },
                Some(Incoming::Ping(body)) => self.frame(Opcode::Pong, &body),
                other => panic!("wanted an event, got {other:?}"),
            }
        }
    }
    fn next_of(&mut self, kind: &str) -> Value {
        loop {
            let event = self.next();
            if event["type"] == kind {
                return event;
            }
        }
    }
    /// Reads to the end and gives the code of the close event and of the close frame.
    fn closed(&mut self) -> (u64, u16) {
        let close = self.next_of("close");
        loop {
            match self.incoming() {
                Some(Incoming::Close(Some(code), _)) => return (close["code"].as_u64().unwrap(), code),
                Some(_) => {}
                None => panic!("no close frame"),
            }
        }
    }
}

// ---- the tests ---------------------------------------------------------------------------------------------------------

#[test]
fn a_comment_reaches_every_transport_and_its_author_knows_it_again() {
    let stage = stage();
    let mut author = stage.ws_as("a", "ann");
    let mut other = stage.ws_as("a", "bob");
    let mut sse = stage.say("GET /v1/rooms/a/sse HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(author.next()["type"], "hello");
    let hello = other.next();
    assert_eq!((&hello["type"], &hello["resumed"], &hello["room_id"]), (&json!("hello"), &json!(false), &json!("a")));
    assert_eq!(sse.head().header("content-type").as_deref(), Some("text/event-stream"));
    let (kind, id, data) = sse.event();
    assert_eq!((kind.as_str(), id), ("hello", data["cursor"].as_u64()));
    author.op(json!({"op": "publish", "client_msg_id": "k1", "body": "goal ⚽"}));
    let (mut ack, mut own) = (author.next(), author.next());
    if ack["type"] == "comment" {
        std::mem::swap(&mut ack, &mut own);
    }
    assert_eq!((&ack["type"], &ack["client_msg_id"]), (&json!("publish_ack"), &json!("k1")));
    assert_eq!(
        (&own["type"], &own["client_msg_id"], &own["body"]),
        (&json!("comment"), &json!("k1"), &json!("goal ⚽"))
    );
    let seen = other.next();
    assert_eq!((&seen["event_id"], seen.get("client_msg_id")), (&ack["event_id"], None));
    let (kind, id, data) = sse.event();
    assert_eq!((kind.as_str(), id, &data["body"]), ("comment", ack["event_id"].as_u64(), &json!("goal ⚽")));
}

#[test]
fn hello_is_waited_for_when_the_subprotocol_is_offered_without_credentials() {
    let stage = stage();
    let mut viewer = stage.ws("a", "Sec-WebSocket-Protocol: grandstand.v1\r\n");
    assert!(viewer.head.contains("sec-websocket-protocol: grandstand.v1\r\n"));
    viewer.op(json!({"op": "hello", "token": stage.token("ann")}));
    assert_eq!(viewer.next()["type"], "hello");
    viewer.op(json!({"op": "publish", "client_msg_id": "k", "body": "x"}));
    assert_eq!(viewer.next_of("publish_ack")["client_msg_id"], "k");
    let mut hasty = stage.ws("a", "Sec-WebSocket-Protocol: grandstand.v1\r\n");
    hasty.op(json!({"op": "ping"}));
    assert_eq!(hasty.closed(), (4000, 4000));
}

#[test]
fn a04_the_subprotocol_carries_a_token_and_only_the_name_comes_back() {
    let stage = stage();
    let fields = format!("Sec-WebSocket-Protocol: grandstand.v1, bearer.{}\r\n", stage.token("ann"));
    let mut viewer = stage.ws("a", &fields);
    assert!(viewer.head.contains("sec-websocket-protocol: grandstand.v1\r\n") && !viewer.head.contains("bearer"));
    assert_eq!(viewer.next()["type"], "hello");
}

#[test]
fn refusals_a_client_must_read_are_given_on_the_stream() {
    let stage = stage();
    let mut bad = stage.ws("a", "Authorization: Bearer nonsense\r\n");
    assert_eq!(bad.closed(), (4003, 4003));
    let mut expired =
        stage.key.mint(&Claims::new("u", clock::wall() - Duration::from_secs(900), Duration::from_secs(60)));
    expired = format!("Authorization: Bearer {expired}\r\n");
    assert_eq!(stage.ws("a", &expired).closed(), (4101, 4101));
    assert_eq!(stage.ws("no-such", "").closed(), (4004, 4004));
    let mut sse = stage.say("GET /v1/rooms/no-such/sse HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(sse.answer().status, 404);
    sse.get("/v1/rooms/a/sse", &expired);
    assert_eq!(sse.head().status, 200);
    let text = String::from_utf8(sse.until(b"\n\n")).unwrap();
    assert!(text.starts_with("retry: "), "{text}");
    assert_eq!(sse.event().2["code"], 4101);
    assert!(sse.ends());
    let mut poll = stage.say("GET /v1/rooms/no-such/poll HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(poll.answer().status, 404);
}

#[test]
fn a_room_without_anonymous_viewers_wants_credentials_before_the_upgrade() {
    let stage = stage();
    let closed = Room { anonymous_view: false, ..Room::fresh("t") };
    stage.log.lock().unwrap().settings.insert(room("closed"), closed);
    for rung in ["sse", "poll", "stream"] {
        let up = if rung == "stream" {
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        } else {
            ""
        };
        let text = format!("GET /v1/rooms/closed/{rung} HTTP/1.1\r\nHost: localhost\r\n{up}\r\n");
        assert_eq!(stage.say(&text).answer().status, 401, "{rung}");
    }
    assert_eq!(stage.ws_as("closed", "ann").next()["type"], "hello");
}

#[test]
fn bad_requests_for_streams_are_answered_by_their_status() {
    let stage = stage();
    for (target, fields, status) in [
        ("/v1/rooms/A/sse", "", 400),
        ("/v1/rooms/a/stream", "", 426),
        ("/v1/rooms/a/sse?last_event_id=-1", "", 400),
        ("/v1/rooms/a/sse?last_event_id=9007199254740992", "", 400),
        ("/v1/rooms/a/sse", "Last-Event-ID: 1e9\r\n", 400),
        ("/v1/rooms/a/poll?since=01", "", 400),
        ("/v1/rooms/a/poll?timeout=x", "", 400),
        ("/v1/rooms/a/sse?token=x", "", 400),
        ("/v1/rooms/a/sse", "Origin: https://evil.example\r\n", 403),
        ("/v1/rooms/a/sse", "Origin: null\r\n", 403),
    ] {
        let text = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
        assert_eq!(stage.say(&text).answer().status, status, "{target} {fields}");
    }
    let foreign = stage.say("GET /v1/rooms/a/sse HTTP/1.1\r\nHost: evil.example\r\n\r\n").answer();
    assert_eq!(foreign.status, 403);
    let mut post = stage.say("POST /v1/rooms/a/sse HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(post.answer().status, 405);
    let mut listed =
        stage.say("GET /v1/rooms/a/sse HTTP/1.1\r\nHost: localhost\r\nOrigin: https://listed.example\r\n\r\n");
    assert_eq!(listed.head().header("access-control-allow-origin").as_deref(), Some("https://listed.example"));
}

#[test]
fn one_connection_fetches_a_page_then_chunks_then_becomes_a_stream() {
    let stage = stage();
    let mut http = stage.say("GET /page HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(http.answer().body, b"GET /page");
    http.get("/chunks", "");
    let chunks = http.answer();
    assert_eq!((chunks.body.len(), chunks.body[0], chunks.body[209_999]), (210_000, b'a', b'c'));
    http.say("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhelloGET /x HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(http.answer().body, b"hello");
    assert_eq!(http.answer().body, b"GET /x");
    let mut ws = Ws::open(http.socket.try_clone().unwrap(), "/v1/rooms/a/stream", "");
    assert_eq!(ws.next()["type"], "hello");
    let mut http = stage.say("GET /page HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(http.answer().status, 200);
    http.get("/v1/rooms/a/sse", "");
    assert_eq!(http.head().status, 200);
    assert_eq!(http.event().0, "hello");
}

#[test]
fn a_head_that_comes_byte_by_byte_is_read_and_http_1_0_ends_with_its_connection() {
    let stage = stage();
    let mut http = Http { socket: stage.socket(), buf: Vec::new() };
    for byte in "GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n".bytes() {
        http.socket.write_all(&[byte]).unwrap();
    }
    assert_eq!(http.answer().body, b"GET /slow");
    let mut old = stage.say("GET /chunks HTTP/1.0\r\nHost: localhost\r\n\r\n");
    let head = old.head();
    assert_eq!((head.header("connection").as_deref(), head.header("transfer-encoding")), (Some("close"), None));
    assert!(old.ends());
    assert_eq!(old.buf.len(), 210_000);
}

#[test]
fn a18_a34_what_could_be_two_requests_is_answered_once_and_closed() {
    let stage = stage();
    const UP: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                      Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    for (text, status) in [
        (format!("GET /v1/rooms/a/stream HTTP/1.1\r\nHost: localhost\r\n{UP}\r\nGET /x HTTP/1.1\r\nHost: localhost\r\n\r\n"), 400),
        (format!("GET /v1/rooms/a/stream HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n{UP}\r\nabc"), 400),
        (format!("GET /v1/rooms/a/stream HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n{UP}\r\n0\r\n\r\n"), 411),
        (format!("GET /v1/rooms/a/stream HTTP/1.0\r\nHost: localhost\r\n{UP}\r\n"), 400),
        ("POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /y HTTP/1.1\r\nHost: localhost\r\n\r\n".into(), 411),
        ("POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nabGET /y HTTP/1.1\r\n\r\n".into(), 400),
        ("GET /x HTTP/1.1\nHost: localhost\n\nGET /y HTTP/1.1\r\nHost: localhost\r\n\r\n".into(), 400),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(), 505),
        (format!("GET /{} HTTP/1.1\r\n", "x".repeat(9_000)), 431),
    ] {
        let mut http = stage.say(&text);
        let answered = http.answer();
        assert_eq!(answered.status, status, "{text:?}");
        assert_eq!(answered.header("connection").as_deref(), Some("close"));
        assert!(http.ends());
        assert!(http.buf.is_empty(), "something followed: {:?}", String::from_utf8_lossy(&http.buf));
    }
}

#[test]
fn websocket_rules_are_kept_on_the_wire() {
    let stage = stage();
    let end = |bytes: &[u8]| {
        let mut ws = stage.ws("a", "");
        assert_eq!(ws.next()["type"], "hello");
        ws.http.socket.write_all(bytes).unwrap();
        loop {
            match ws.incoming() {
                Some(Incoming::Close(code, _)) => return code.unwrap_or(0),
                Some(_) => {}
                None => return 1,
            }
        }
    };
    assert_eq!(end(&[0x81, 0x01, b'x']), 1002);
    assert_eq!(end(&[0xc1, 0x80, 0, 0, 0, 0]), 1002);
    assert_eq!(end(&[0x81, 0xff, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]), 1009);
    assert_eq!(end(&[0x81, 0x81, 0, 0, 0, 0, 0xff]), 1007);
    assert_eq!(end(&[0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe8]), 1000);
    assert_eq!(end(&[0x88, 0x80, 0, 0, 0, 0]), 0);
    let mut ws = stage.ws("a", "");
    assert_eq!(ws.next()["type"], "hello");
    ws.frame(Opcode::Ping, b"are you there");
    assert_eq!(ws.incoming(), Some(Incoming::Pong(b"are you there".into())));
    for bad in ["{", "[]", r#"{"op":"dance"}"#, r#"{"op":"ping","op":"ping"}"#] {
        ws.frame(Opcode::Text, bad.as_bytes());
        assert_eq!(ws.next()["type"], "error", "{bad}");
    }
    ws.op(json!({"op": "ping"}));
    assert_eq!(ws.next()["type"], "pong");
    ws.op(json!({"op": "publish", "client_msg_id": "k", "body": "x"}));
    let error = ws.next();
    assert_eq!((&error["code"], &error["client_msg_id"]), (&json!("not_allowed"), &json!("k")));
}

#[test]
fn a_viewer_resumes_from_the_ring_without_loss() {
    let stage =
        stage_with(1, StreamLimits { each: StreamLimit { per_user: 3, per_address: 64 }, total: None, per_room: None });
    let mut first = stage.ws_as("a", "ann");
    let cursor = first.next()["cursor"].as_u64().unwrap();
    let ids: Vec<u64> = (0..5).map(|n| stage.score("a", n).value()).collect();
    for id in &ids {
        assert_eq!(first.next()["event_id"], *id);
    }
    drop(first);
    let mut again = stage.ws("a", &format!("Last-Event-ID: {}\r\n", ids[1]));
    let hello = again.next();
    assert_eq!((&hello["resumed"], &hello["cursor"], &hello["pseq"]), (&json!(true), &json!(ids[1]), &json!(2)));
    assert_eq!((2..5).map(|_| again.next()["pseq"].as_u64().unwrap()).collect::<Vec<_>>(), [3, 4, 5]);
    let mut sse = stage.say(&format!("GET /v1/rooms/a/sse?last_event_id={cursor} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    sse.head();
    assert_eq!(sse.event().2["resumed"], true);
    assert_eq!((0..5).map(|_| sse.event().1.unwrap()).collect::<Vec<_>>(), ids);
}

#[test]
fn a_viewer_older_than_the_ring_reads_the_log_page_by_page_and_then_lives_on() {
    let stage = stage();
    let cursor = stage.log.lock().unwrap().head().value();
    let mut ids: Vec<u64> = (0..10).map(|n| stage.score("a", n).value()).collect();
    let mut viewer = stage.ws("a", &format!("Last-Event-ID: {cursor}\r\n"));
    let hello = viewer.next();
    assert_eq!((&hello["resumed"], &hello["cursor"]), (&json!(true), &json!(cursor)));
    ids.push(stage.score("a", 10).value());
    assert_eq!((0..11).map(|_| viewer.next()["event_id"].as_u64().unwrap()).collect::<Vec<_>>(), ids);
    let beyond = EventId::at(Epoch::new(8).unwrap(), Seq::START).value();
    let mut lost = stage.ws("a", &format!("Last-Event-ID: {beyond}\r\n"));
    let hello = lost.next();
    assert_eq!(hello["resumed"], false);
    let required = lost.next();
    assert_eq!((&required["type"], &required["reason"]), (&json!("snapshot_required"), &json!("unknown_cursor")));
    assert_eq!(required["cursor"], hello["cursor"]);
    stage.score("a", 11);
    assert_eq!(lost.next()["type"], "score_event");
}

#[test]
fn a_poll_goes_round() {
    let stage = stage();
    let mut http = stage.say("GET /v1/rooms/a/poll?tab=1 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let first = http.answer();
    assert_eq!((first.status, first.header("cache-control").as_deref()), (200, Some("no-store")));
    let first = first.json();
    assert_eq!(first["events"][0]["type"], "hello");
    let since = first["next_since"].as_u64().unwrap();
    let began = Instant::now();
    http.get(&format!("/v1/rooms/a/poll?since={since}&timeout=20&tab=1"), "");
    let id = stage.score("a", 1).value();
    let answered = http.answer().json();
    assert_eq!((&answered["events"][0]["event_id"], &answered["next_since"]), (&json!(id), &json!(id)));
    assert!(began.elapsed() >= Duration::from_millis(900), "at least a second between two answers");
    http.get(&format!("/v1/rooms/a/poll?since={id}&timeout=1&tab=1"), "");
    let empty = http.answer().json();
    assert_eq!((&empty["events"], empty["next_since"].as_u64() >= Some(id)), (&json!([]), true));
    http.get(&format!("/v1/rooms/a/poll?since={since}&timeout=20"), "");
    assert_eq!(http.answer().json()["events"][0]["event_id"], id);
    let beyond = EventId::at(Epoch::new(8).unwrap(), Seq::START).value();
    http.get(&format!("/v1/rooms/a/poll?since={beyond}"), "");
    let answered = http.answer().json();
    assert_eq!(answered["events"][0]["type"], "snapshot_required");
    assert_eq!(answered["next_since"], answered["events"][0]["cursor"]);
}

#[test]
fn a_request_behind_a_waiting_poll_is_not_left_unanswered_on_an_open_connection() {
    let stage = stage();
    let call = "GET /v1/rooms/a/poll?tab=1 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut http = stage.say(&format!("{call}{call}"));
    let first = http.answer();
    assert_eq!((first.status, first.header("connection").as_deref()), (200, Some("close")));
    assert!(http.ends() && http.buf.is_empty(), "one answer, then the end");
}

/// A caller whose socket holds little, so that the rest of an answer waits in the server.
fn narrow(stage: &Stage, request: &str) -> Http {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    socket.connect(&stage.address.into()).unwrap();
    let socket: TcpStream = socket.into();
    socket.set_read_timeout(Some(WAIT)).unwrap();
    let mut http = Http { socket, buf: Vec::new() };
    http.say(request);
    http
}

#[test]
fn a25_a_half_closed_caller_is_given_its_whole_answer() {
    let stage = stage();
    for fields in ["", "Connection: close\r\n"] {
        let mut http = narrow(&stage, &format!("GET /large HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n"));
        http.socket.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(http.answer().body.len(), LARGE, "{fields:?}");
        assert!(http.ends() && http.buf.is_empty());
    }
}

#[test]
fn the_last_answer_of_a_connection_is_not_cut_short_for_a_slow_caller() {
    let stage = stage();
    let mut http = narrow(&stage, "GET /large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert!(http.fill(), "the answer has begun");
    // The caller's own slowness, longer than a connection lingers once all is written.
    std::thread::sleep(super::worker::LINGER + Duration::from_millis(500));
    assert_eq!(http.answer().body.len(), LARGE);
    assert!(http.ends() && http.buf.is_empty());
}

#[test]
fn a82_asking_for_rooms_that_are_not_there_leaves_nothing_behind() {
    let stage = stage();
    for n in 0..20 {
        let mut http = stage.say(&format!("GET /v1/rooms/no-{n}/sse HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        assert_eq!(http.answer().status, 404);
    }
    let began = Instant::now();
    while !stage.tallies.all().is_empty() {
        assert!(began.elapsed() < WAIT, "tallies are left of {:?}", stage.tallies.all().keys());
        std::thread::yield_now();
    }
}

#[test]
fn a11_a_flood_of_pings_or_pongs_closes_its_connection() {
    let stage = stage();
    let until = |ws: &mut Ws, said: &str| loop {
        match ws.incoming() {
            Some(Incoming::Text(text)) if text.contains(said) => return,
            Some(_) => {}
            None => panic!("it ended before {said}"),
        }
    };
    for opcode in [Opcode::Ping, Opcode::Pong] {
        let mut ws = stage.ws("a", "");
        assert_eq!(ws.next()["type"], "hello");
        for _ in 0..100 {
            ws.frame(opcode, b"x");
        }
        ws.op(json!({"op": "ping"}));
        until(&mut ws, "\"pong\"");
        for _ in 0..200 {
            ws.frame(opcode, b"x");
        }
        until(&mut ws, "4129");
    }
}

#[test]
fn a_newer_poll_of_a_tab_ends_the_older_one() {
    let stage = stage();
    let bearer = format!("Authorization: Bearer {}\r\n", stage.token("ann"));
    let mut first = stage.say(&format!("GET /v1/rooms/a/poll?tab=1 HTTP/1.1\r\nHost: localhost\r\n{bearer}\r\n"));
    let since = first.answer().json()["next_since"].as_u64().unwrap();
    let target =
        |tab: u32| format!("GET /v1/rooms/a/poll?since={since}&tab={tab} HTTP/1.1\r\nHost: localhost\r\n{bearer}\r\n");
    let mut older = stage.say(&target(1));
    stage.seated("a", 1);
    let mut elsewhere = stage.say(&target(2));
    stage.seated("a", 2);
    let mut newer = stage.say(&target(1));
    assert_eq!(older.answer().status, 204);
    stage.seated("a", 2);
    let id = stage.score("a", 1).value();
    for poll in [&mut newer, &mut elsewhere] {
        assert_eq!(poll.answer().json()["next_since"], id);
    }
}

#[test]
fn a26_a_users_streams_are_counted_over_transports_and_given_back() {
    let stage = stage();
    let mut held: Vec<Ws> = (0..2).map(|_| stage.ws_as("a", "ann")).collect();
    held.iter_mut().for_each(|ws| assert_eq!(ws.next()["type"], "hello"));
    let bearer = format!("Authorization: Bearer {}\r\n", stage.token("ann"));
    let mut sse = stage.say(&format!("GET /v1/rooms/b/sse HTTP/1.1\r\nHost: localhost\r\n{bearer}\r\n"));
    sse.head();
    sse.event();
    assert_eq!(stage.ws_as("a", "ann").closed(), (4129, 4129));
    let mut poll = stage.say(&format!("GET /v1/rooms/a/poll HTTP/1.1\r\nHost: localhost\r\n{bearer}\r\n"));
    let refused = poll.answer();
    assert_eq!((refused.status, &refused.json()["code"]), (429, &json!(4129)));
    assert_eq!(stage.ws_as("a", "bob").next()["type"], "hello");
    let mut gone = held.remove(0);
    gone.frame(Opcode::Close, &ws::close_body(1000, ""));
    assert!(matches!(gone.incoming(), Some(Incoming::Close(Some(1000), _))));
    assert_eq!(stage.ws_as("a", "ann").next()["type"], "hello");
}

#[test]
fn a_ticket_opens_one_stream() {
    let stage = stage();
    let identity = Claims::new("ann", clock::wall(), Duration::from_secs(600)).identity().unwrap();
    let ticket = stage.tickets.sell(&identity, &room("a"), clock::wall());
    let get = |fields: &str| {
        stage.say(&format!("GET /v1/rooms/a/sse?ticket={ticket} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n"))
    };
    let mut first = get("");
    first.head();
    assert_eq!(first.event().0, "hello");
    let mut second = get("");
    second.head();
    assert_eq!(second.event().2["code"], 4101);
    let head = stage.log.lock().unwrap().head().value();
    let mut resumed = get(&format!("Last-Event-ID: {head}\r\n"));
    resumed.head();
    assert_eq!(resumed.event().2["resumed"], true);
}

#[test]
fn a_stream_that_cannot_speak_is_given_a_new_token_over_http() {
    let stage = stage();
    let bearer = format!("Authorization: Bearer {}\r\n", stage.token("ann"));
    let mut sse = stage.say(&format!("GET /v1/rooms/a/sse HTTP/1.1\r\nHost: localhost\r\n{bearer}\r\n"));
    sse.head();
    let session = sse.event().2["session"].as_str().unwrap().to_owned();
    let renew = |session: &str, token: &str| {
        let body = json!({"session": session, "token": token}).to_string();
        let len = body.len();
        let head = format!("POST /v1/rooms/a/auth HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len}\r\n\r\n");
        let mut http = stage.say(&(head + &body));
        http.answer().status
    };
    assert_eq!(renew(&session, &stage.token("ann")), 204);
    assert_eq!(renew(&session, &stage.token("bob")), 403);
    assert_eq!(renew(&session, "nonsense"), 401);
    assert_eq!(renew("nonsense", &stage.token("ann")), 404);
    let last = if session.ends_with('0') { '1' } else { '0' };
    assert_eq!(renew(&format!("{}{last}", &session[..35]), &stage.token("ann")), 404);
    sse.socket.shutdown(std::net::Shutdown::Both).unwrap();
    stage.seated("a", 0);
    assert_eq!(renew(&session, &stage.token("ann")), 404);
}

#[test]
fn rooms_are_joined_and_left_on_one_connection() {
    let stage = stage();
    let mut ws = stage.ws_as("a", "ann");
    assert_eq!(ws.next()["room_id"], "a");
    ws.op(json!({"op": "join", "room_id": "b"}));
    let hello = ws.next();
    assert_eq!((&hello["type"], &hello["room_id"]), (&json!("hello"), &json!("b")));
    ws.op(json!({"op": "join", "room_id": "no-such"}));
    assert_eq!(ws.next()["code"], "no_such_room");
    let (in_a, in_b) = (stage.score("a", 1).value(), stage.score("b", 1).value());
    let mut got = [ws.next()["event_id"].as_u64().unwrap(), ws.next()["event_id"].as_u64().unwrap()];
    got.sort();
    assert_eq!(got, [in_a, in_b]);
    ws.op(json!({"op": "publish", "client_msg_id": "k", "body": "x"}));
    assert_eq!(ws.next()["code"], "bad_room");
    ws.op(json!({"op": "leave", "room_id": "a"}));
    assert_eq!(ws.next()["type"], "left");
    stage.score("a", 2);
    let id = stage.score("b", 2).value();
    assert_eq!(ws.next()["event_id"], id);
}

#[test]
fn a_viewer_that_does_not_read_is_told_what_it_missed_and_loses_no_score() {
    let stage =
        stage_with(1, StreamLimits { each: StreamLimit { per_user: 3, per_address: 64 }, total: None, per_room: None });
    let mut slow = stage.ws_as("a", "ann");
    let cursor = slow.next()["cursor"].as_u64().unwrap();
    let body = "x".repeat(1_500);
    let (mut sent, mut scores, mut last) = (Vec::new(), 0, 0);
    let began = Instant::now();
    // 3.5 s, so that some of what the socket could not take is past the 2 s of a comment.
    while began.elapsed() < Duration::from_millis(3_500) {
        for _ in 0..4 {
            sent.push(stage.comment("a", &body).value());
        }
        last = stage.score("a", scores).value();
        scores += 1;
        std::thread::sleep(Duration::from_millis(10));
    }
    let (mut got, mut skipped, mut pseq, mut newest) = (0, 0, 0, cursor);
    loop {
        let event = slow.next();
        match event["type"].as_str().unwrap() {
            "skipped" => skipped += event["count"].as_u64().unwrap(),
            kind => {
                let id = event["event_id"].as_u64().unwrap();
                assert!(id > newest, "ids never go back");
                newest = id;
                if kind == "comment" {
                    got += 1;
                } else {
                    pseq += 1;
                    assert_eq!(event["pseq"], pseq);
                }
            }
        }
        if newest == last {
            break;
        }
    }
    assert_eq!((got + skipped, pseq), (sent.len() as u64, scores));
    assert!(skipped > 0, "the socket took everything; nothing was tested");
}

#[test]
fn a_score_that_cannot_be_given_in_ten_seconds_closes_its_viewer_which_resumes_whole() {
    let stage =
        stage_with(1, StreamLimits { each: StreamLimit { per_user: 3, per_address: 64 }, total: None, per_room: None });
    let mut slow = stage.ws_as("a", "ann");
    let mut cursor = slow.next()["cursor"].as_u64().unwrap();
    let body = "x".repeat(1_500);
    // More than the sockets of both sides hold, less than the ring does.
    for _ in 0..1_500 {
        stage.comment("a", &body);
    }
    let scores: Vec<u64> = (0..3).map(|n| stage.score("a", n).value()).collect();
    let began = Instant::now();
    let closed = || stage.metrics.closed.iter().map(crate::metrics::read).sum::<u64>();
    while closed() == 0 {
        assert!(began.elapsed() < Duration::from_secs(20), "the slow viewer was never closed");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(began.elapsed() > Duration::from_secs(9), "a priority event waits ten seconds");
    loop {
        let event = slow.next();
        if event["type"] == "close" {
            assert_eq!(event["code"], 4200);
            break;
        }
        cursor = event["event_id"].as_u64().unwrap_or(cursor);
    }
    let mut again = stage.ws_as_from("a", "ann", cursor);
    assert_eq!(again.next()["resumed"], true);
    let got: Vec<u64> = scores.iter().map(|_| again.next_of("score_event")["event_id"].as_u64().unwrap()).collect();
    assert_eq!(got, scores);
}

#[test]
fn the_number_of_viewers_is_told_when_it_changes() {
    let stage = stage();
    let mut sse = stage.say("GET /v1/rooms/a/sse HTTP/1.1\r\nHost: localhost\r\n\r\n");
    sse.head();
    assert_eq!(sse.event().2["counters"]["viewers"], 1);
    let _others = [stage.ws("a", ""), stage.ws("a", "")];
    loop {
        let text = String::from_utf8(sse.until(b"\n\n")).unwrap();
        assert!(!text.contains("id: "), "counters never move the cursor");
        if text.contains("event: counters\n") && text.contains("\"viewers\":3") {
            break;
        }
    }
}

#[test]
fn a_drain_tells_everyone_when_to_come_back() {
    let mut stage = stage();
    let mut ws = stage.ws("a", "");
    assert_eq!(ws.next()["type"], "hello");
    let mut sse = stage.say("GET /v1/rooms/a/sse HTTP/1.1\r\nHost: localhost\r\n\r\n");
    sse.head();
    sse.event();
    let mut poll = stage.say("GET /v1/rooms/a/poll HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let since = poll.answer().json()["next_since"].as_u64().unwrap();
    poll.get(&format!("/v1/rooms/a/poll?since={since}"), "");
    stage.seated("a", 3);
    stage.gateway.take().unwrap().stop();
    let close = ws.next_of("close");
    assert_eq!(
        (&close["code"], &close["retry_after_ms"], &close["spread_ms"]),
        (&json!(4112), &json!(500), &json!(10_000))
    );
    assert_eq!(sse.event().2["code"], 4112);
    assert!(sse.ends());
    let told = poll.answer();
    assert_eq!((told.status, &told.json()["code"]), (503, &json!(4112)));
}
