//! One viewer on any of the three rungs, seen the same way: events in the order they came.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

use grandstand_core::time::Mono;
use grandstand_wire::ws::{FrameReader, Incoming, Limits, Opcode, Side, write_masked_frame};
use serde_json::Value;

use crate::support::{Answer, Http, LIMIT, Server, until};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rung {
    WebSocket,
    Sse,
    Poll,
}

pub const RUNGS: [Rung; 3] = [Rung::WebSocket, Rung::Sse, Rung::Poll];

const LIMITS: Limits =
    Limits { message_bytes: 1 << 24, fragments: 64, assembly: Duration::from_secs(30), deflate: false };

pub struct Viewer {
    rung: Rung,
    http: Http,
    frames: FrameReader,
    bytes: Vec<u8>,
    waiting: VecDeque<Value>,
    room: String,
    token: Option<String>,
    /// Poll's cursor, as the last answer gave it.
    pub since: Option<u64>,
    pub closed: Option<u16>,
    /// The answer to a poll that ended its stream.
    pub refused: Option<Answer>,
}

impl Viewer {
    /// Opens a stream. `cursor` is sent as it is, so that bad ones can be tried.
    /// Errors: the HTTP answer when it is not the start of a stream.
    pub fn open(
        server: &Server,
        rung: Rung,
        room: &str,
        cursor: Option<&str>,
        token: Option<&str>,
    ) -> Result<Viewer, Answer> {
        Viewer::try_open(server, rung, room, cursor, token).expect("the server answers")
    }

    /// Opens streams until one greets, where each gateway process hears by itself that it may.
    pub fn greeted(server: &Server, rung: Rung, room: &str, token: Option<&str>) -> Viewer {
        let mut greeted = None;
        until("a stream greets", || {
            let mut viewer = Viewer::open(server, rung, room, None, token).expect("a stream");
            let hello = viewer.next().is_some_and(|e| e["type"] == "hello");
            greeted = hello.then_some(viewer);
            hello
        });
        greeted.expect("it greeted")
    }

    /// The same where the server may go away meanwhile. Errors: the connection's own.
    pub fn try_open(
        server: &Server,
        rung: Rung,
        room: &str,
        cursor: Option<&str>,
        token: Option<&str>,
    ) -> std::io::Result<Result<Viewer, Answer>> {
        let http = server.try_http()?;
        let mut viewer = Viewer {
            rung,
            http,
            frames: FrameReader::new(),
            bytes: Vec::new(),
            waiting: VecDeque::new(),
            room: room.to_owned(),
            token: token.map(str::to_owned),
            since: None,
            closed: None,
            refused: None,
        };
        let bearer = token.map(|t| format!("Bearer {t}"));
        let mut headers: Vec<(&str, &str)> = bearer.iter().map(|b| ("Authorization", b.as_str())).collect();
        match rung {
            Rung::WebSocket => {
                headers.extend([
                    ("Connection", "Upgrade"),
                    ("Upgrade", "websocket"),
                    ("Sec-WebSocket-Version", "13"),
                    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
                ]);
                headers.extend(cursor.map(|c| ("Last-Event-ID", c)));
                viewer.http.send("GET", &format!("/v1/rooms/{room}/stream"), &headers, &[])?;
                let (status, head) = viewer.http.head()?;
                if status != 101 {
                    return Ok(Err(viewer.refusal(status, head)?));
                }
            }
            Rung::Sse => {
                headers.extend(cursor.map(|c| ("Last-Event-ID", c)));
                viewer.http.send("GET", &format!("/v1/rooms/{room}/sse"), &headers, &[])?;
                let (status, head) = viewer.http.head()?;
                if status != 200 {
                    return Ok(Err(viewer.refusal(status, head)?));
                }
            }
            Rung::Poll => {
                let answer = viewer.poll_once(cursor.map(str::to_owned), 1)?;
                if answer.status != 200 {
                    return Ok(Err(answer));
                }
                viewer.take_poll(answer);
            }
        }
        Ok(Ok(viewer))
    }

    fn refusal(&mut self, status: u16, head: std::collections::BTreeMap<String, String>) -> std::io::Result<Answer> {
        let len = head.get("content-length").and_then(|l| l.parse().ok()).unwrap_or(0);
        let mut body = vec![0; len];
        self.http.stream.read_exact(&mut body)?;
        let json = serde_json::from_slice(&body).unwrap_or(Value::Null);
        Ok(Answer { status, body, json })
    }

    fn poll_once(&mut self, since: Option<String>, timeout: u32) -> std::io::Result<Answer> {
        let query = since.map_or_else(String::new, |s| format!("?since={s}&timeout={timeout}"));
        let path = format!("/v1/rooms/{}/poll{query}", self.room);
        let token = self.token.clone();
        self.http.call("GET", &path, token.as_deref(), None)
    }

    fn take_poll(&mut self, answer: Answer) {
        let next = answer.json["next_since"].as_u64().expect("every answer names the next cursor");
        assert!(self.since.is_none_or(|s| next >= s), "next_since fell from {:?} to {next}", self.since);
        self.since = Some(next);
        self.waiting.extend(answer.json["events"].as_array().expect("events").iter().cloned());
    }

    /// The next event; waits for it. Errors: `None` when the stream has ended.
    pub fn next(&mut self) -> Option<Value> {
        let start = Instant::now();
        while self.waiting.is_empty() {
            assert!(start.elapsed() < LIMIT, "no event within {LIMIT:?}");
            if self.closed.is_some() || !self.fill() {
                return None;
            }
        }
        self.waiting.pop_front()
    }

    /// The greeting; of a poll that was opened, nothing is waited for.
    pub fn next_or_answer(&mut self) -> Option<Value> {
        if self.rung == Rung::Poll { self.waiting.pop_front() } else { self.next() }
    }

    /// Reads once; false at the end of the stream.
    fn fill(&mut self) -> bool {
        match self.rung {
            Rung::Poll => {
                let since = self.since.map(|s| s.to_string());
                let Ok(answer) = self.poll_once(since, 5) else { return false };
                if answer.status != 200 {
                    self.refused = Some(answer);
                    return false;
                }
                self.take_poll(answer);
                true
            }
            Rung::Sse => {
                let mut kind = String::new();
                loop {
                    let Ok(line) = self.http.line() else { return false };
                    if let Some(value) = line.strip_prefix("event: ") {
                        kind = value.to_owned();
                    } else if let Some(data) = line.strip_prefix("data: ") {
                        let event: Value = serde_json::from_str(data).expect(data);
                        assert_eq!(event["type"], kind.as_str(), "event: names the type");
                        self.waiting.push_back(event);
                    } else if line.is_empty() && !self.waiting.is_empty() {
                        return true;
                    }
                }
            }
            Rung::WebSocket => {
                let mut chunk = [0; 65536];
                let Ok(n) = self.http.stream.read(&mut chunk) else { return false };
                if n == 0 {
                    return false;
                }
                self.bytes.extend_from_slice(&chunk[..n]);
                let bytes = std::mem::take(&mut self.bytes);
                let mut input = &bytes[..];
                while let Some(got) = self.frames.next(Side::Client, &LIMITS, &mut input, Mono(0)).expect("good frames")
                {
                    match got {
                        Incoming::Text(text) => match serde_json::from_str(&text).expect("JSON") {
                            Value::Array(events) => self.waiting.extend(events),
                            event => self.waiting.push_back(event),
                        },
                        Incoming::Ping(body) => self.write(Opcode::Pong, &body),
                        Incoming::Close(code, _) => self.closed = Some(code.unwrap_or(1005)),
                        Incoming::Pong(_) | Incoming::Binary(_) | Incoming::Deflated(_) => {}
                    }
                }
                self.bytes = input.to_vec();
                true
            }
        }
    }

    fn write(&mut self, opcode: Opcode, body: &[u8]) {
        let mut out = Vec::new();
        write_masked_frame(opcode, true, body, [1, 2, 3, 4], &mut out);
        let _ = self.http.stream.get_mut().write_all(&out);
    }

    /// This end's port, by which the server's end is found.
    pub fn port(&self) -> u16 {
        self.http.port()
    }

    /// Says one operation. Errors: the connection is closed.
    pub fn say(&mut self, op: &Value) -> std::io::Result<()> {
        let mut out = Vec::new();
        write_masked_frame(Opcode::Text, true, op.to_string().as_bytes(), [1, 2, 3, 4], &mut out);
        self.http.stream.get_mut().write_all(&out)
    }

    /// Reads until an event of this type; all events up to and with it.
    pub fn until(&mut self, mut wanted: impl FnMut(&Value) -> bool) -> Vec<Value> {
        let mut seen = Vec::new();
        loop {
            let Some(event) = self.next() else {
                panic!("the stream ended ({:?}, {:?}); seen: {seen:?}", self.closed, self.refused)
            };
            let done = wanted(&event);
            seen.push(event);
            if done {
                return seen;
            }
        }
    }

    /// The same of a stream that may be let go as too slow, with a code after which a client comes back at once: `None`.
    pub fn until_id_or_let_go(&mut self, id: u64) -> Option<Vec<Value>> {
        let mut seen = Vec::new();
        while let Some(event) = self.next() {
            let done = event["event_id"].as_u64() == Some(id);
            seen.push(event);
            if done {
                return Some(seen);
            }
        }
        assert_eq!(self.closed, Some(4_200), "the stream ended ({:?}); seen: {seen:?}", self.refused);
        None
    }

    /// Reads until the event with this id.
    pub fn until_id(&mut self, id: u64) -> Vec<Value> {
        self.until(|e| e["event_id"].as_u64() == Some(id))
    }
}

/// Ids of the events that move the cursor, in the order they came.
pub fn ids(events: &[Value]) -> Vec<u64> {
    let ordered = ["comment", "score_event", "retract", "config", "gift"];
    let moves = |e: &&Value| e["type"].as_str().is_some_and(|t| ordered.contains(&t));
    events.iter().filter(moves).filter_map(|e| e["event_id"].as_u64()).collect()
}

/// A stream without a token, from this cursor.
pub fn open_at(server: &Server, rung: Rung, room: &str, cursor: Option<u64>) -> Viewer {
    let cursor = cursor.map(|c| c.to_string());
    Viewer::open(server, rung, room, cursor.as_deref(), None).unwrap_or_else(|a| panic!("{rung:?}: {a:?}"))
}
