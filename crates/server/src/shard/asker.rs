//! A classifier behind HTTP: asked by a thread of its own beside the shard, so that the owner never waits for it.
//!
//! ```text
//! owner ── Question ──► asker (the line, the breaker) ── POST ──► the operator's classifier
//! owner ◄── ToOwner::Verdict ──────┘
//! ```
//!
//! Who is asked when is decided by [`Desk`]; here are the sockets. The request and the answer are in docs/operate/moderation.md.
//! Whatever is not an answer as it is written there is a failure, and a failure is no verdict: the room's policy decides.
//!
//! The awkward case: a strict room whose author comes back for a comment that was answered too late. Late verdicts are kept for a
//! minute by their text.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use grandstand_core::moderation::Ruling;
use grandstand_core::moderation::breaker::{self, State};
use grandstand_core::moderation::desk::{Asked, Desk, Limits, Turn};
use grandstand_core::names::RoomId;
use grandstand_core::owner::command::Tag;
use grandstand_core::record::Verdict;
use grandstand_core::time::Mono;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::clock;
use crate::link::OwnerBox;
use crate::link::moderated::Asking;
use crate::moderation::Http;

/// Questions between the owner and the asker: a second of a full room; past it there is no verdict.
const QUESTIONS_MAX: usize = 4_096;
/// An answer's head and body at most.
const HEAD_MAX: usize = 8 << 10;
const BODY_MAX: usize = 16 << 10;
/// Verdicts that are kept by their text, and for how long.
const KEPT_MAX: usize = 4_096;
const KEPT_FOR: Duration = Duration::from_secs(60);
/// How often the line is looked at when nothing comes: the breaker's time may be over.
const LOOK: Duration = Duration::from_millis(100);

/// One comment to be judged.
pub struct Question {
    pub tag: Tag,
    pub room: RoomId,
    pub text: Arc<str>,
    pub deadline: Mono,
    pub strict: bool,
    /// What the built-in rules say.
    pub ruling: Ruling,
}

impl Question {
    /// What there is without an answer: what the built-in rules have against it stands without the other's word.
    fn unanswered(&self) -> Option<Ruling> {
        Some(&self.ruling).filter(|own| own.verdict == Verdict::Flag).cloned()
    }
}

/// The owner's end.
pub struct Asker {
    to: mpsc::Sender<Question>,
}

impl Asker {
    /// Errors: no answer comes, and this is what there is without one.
    pub fn ask(&self, question: Question) -> Result<(), Option<Ruling>> {
        self.to.try_send(question).map_err(|refused| refused.into_inner().unanswered())
    }
}

/// Starts the thread; it ends when the owner's end is dropped. Errors: the thread or its runtime cannot be had.
pub fn start(http: Http, mail: Arc<OwnerBox>, counts: Arc<Asking>) -> std::io::Result<Asker> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (to, questions) = mpsc::channel(QUESTIONS_MAX);
    std::thread::Builder::new().name("classifier".to_owned()).spawn(move || {
        runtime.block_on(Task::new(http, mail, counts).run(questions));
    })?;
    Ok(Asker { to })
}

type Connection = TcpStream;
/// When it was asked, what, the connection if it may be used again, and the answer.
type Done = (Mono, Question, Option<Connection>, Result<Ruling, Failure>);

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("no answer in time")]
    Late,
    #[error("its name leads to no address that may be asked")]
    Address,
    #[error("{0}")]
    Socket(std::io::Error),
    #[error("it answered with status {0}")]
    Status(u16),
    #[error("its answer is no verdict: {0}")]
    Answer(&'static str),
}

struct Task {
    http: Http,
    mail: Arc<OwnerBox>,
    counts: Arc<Asking>,
    desk: Desk<Question>,
    idle: Vec<Connection>,
    kept: Kept,
    was: State,
}

impl Task {
    fn new(http: Http, mail: Arc<OwnerBox>, counts: Arc<Asking>) -> Task {
        let desk = Desk::new(Limits::of(http.at_once.into()), breaker::Settings::default(), clock::mono());
        Task { http, mail, counts, desk, idle: Vec::new(), kept: Kept::default(), was: State::Closed }
    }

    async fn run(mut self, mut questions: mpsc::Receiver<Question>) {
        let mut under_way: JoinSet<Done> = JoinSet::new();
        let mut look = tokio::time::interval(LOOK);
        loop {
            tokio::select! {
                question = questions.recv() => match question {
                    Some(question) => self.offer(question),
                    None => return,
                },
                Some(done) = under_way.join_next() => match done {
                    Ok(done) => self.done(done),
                    // A question's task does not panic; a desk that counted wrong would stand still.
                    Err(fault) => panic!("a question to the classifier was lost: {fault}"),
                },
                _ = look.tick() => {}
            }
            while let Some(Asked { question, at }) = self.desk.next(clock::mono()) {
                let (http, idle) = (self.http.clone(), self.idle.pop());
                under_way.spawn(async move {
                    let asked = tokio::time::timeout(http.timeout, ask(&http, idle, &question)).await;
                    match asked {
                        Ok(Ok((connection, ruling))) => (at, question, connection, Ok(ruling)),
                        Ok(Err(failure)) => (at, question, None, Err(failure)),
                        Err(_) => (at, question, None, Err(Failure::Late)),
                    }
                });
            }
            self.tell_state();
        }
    }

    fn offer(&mut self, question: Question) {
        let now = clock::mono();
        if let Some(ruling) = self.kept.find(&question.text, question.strict, now) {
            self.counts.add_kept();
            return self.answer(question.tag, Some(question.ruling.or(ruling)));
        }
        let (tag, deadline, unanswered) = (question.tag, question.deadline, question.unanswered());
        if self.desk.offer(question, deadline, true, now) == Turn::Passed {
            self.counts.add_passed();
            self.answer(tag, unanswered);
        }
    }

    fn done(&mut self, (at, question, connection, answer): Done) {
        let now = clock::mono();
        self.desk.done(answer.is_ok(), at, now);
        self.counts.add_answer(answer.is_ok(), now.since(at));
        self.idle.extend(connection);
        match answer {
            Ok(ruling) => {
                self.kept.keep(&question.text, question.strict, &ruling, now);
                self.answer(question.tag, Some(question.ruling.or(ruling)));
            }
            Err(failure) => {
                tracing::debug!(%failure, "the classifier gave no verdict");
                self.answer(question.tag, question.unanswered());
            }
        }
    }

    fn answer(&self, tag: Tag, ruling: Option<Ruling>) {
        self.mail.send_verdict(tag, ruling);
    }

    fn tell_state(&mut self) {
        let state = self.desk.state(clock::mono());
        if state != std::mem::replace(&mut self.was, state) {
            match state {
                State::Open => {
                    tracing::error!(url = self.http.url.as_str(), "the classifier fails: it is not asked for a while")
                }
                State::Trying => tracing::info!("the classifier is tried again"),
                State::Closed => tracing::info!("the classifier answers again"),
            }
            self.counts.set_state(state);
        }
    }
}

/// Asks on a connection that is there, or on a new one.
async fn ask(
    http: &Http,
    idle: Option<Connection>,
    question: &Question,
) -> Result<(Option<Connection>, Ruling), Failure> {
    let body =
        json!({"version": 1, "room_id": question.room.as_str(), "text": &*question.text, "strict": question.strict});
    let body = body.to_string();
    let head = format!(
        "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nAccept: application/json\r\nContent-Length: {}\r\n\r\n",
        http.path,
        http.authority,
        body.len()
    );
    let request = head + &body;
    if let Some(connection) = idle {
        // It may have been closed since; a request that changes nothing may be made twice.
        if let Ok(answered) = exchange(connection, &request).await {
            return read(answered);
        }
    }
    let connection = dial(&http.authority).await?;
    connection.set_nodelay(true).map_err(Failure::Socket)?;
    read(exchange(connection, &request).await.map_err(Failure::Socket)?)
}

/// Connects to the first address of the name that may be asked and answers: what a name leads to is judged each time.
async fn dial(authority: &str) -> Result<Connection, Failure> {
    let mut last = Failure::Address;
    for address in tokio::net::lookup_host(authority).await.map_err(Failure::Socket)? {
        if !Http::may_ask(address.ip()) {
            continue;
        }
        match TcpStream::connect(address).await {
            Ok(connection) => return Ok(connection),
            Err(fault) => last = Failure::Socket(fault),
        }
    }
    Err(last)
}

/// The connection, whether it stays open, the status and the body.
type Exchanged = (Connection, bool, u16, Vec<u8>);

async fn exchange(mut connection: Connection, request: &str) -> std::io::Result<Exchanged> {
    let broken = |why: &'static str| std::io::Error::new(std::io::ErrorKind::InvalidData, why);
    connection.write_all(request.as_bytes()).await?;
    let mut bytes = Vec::with_capacity(1_024);
    loop {
        if connection.read_buf(&mut bytes).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let mut headers = [httparse::EMPTY_HEADER; 32];
        let mut head = httparse::Response::new(&mut headers);
        let parsed = head.parse(&bytes).map_err(|_| broken("not an HTTP answer"))?;
        let httparse::Status::Complete(end) = parsed else {
            if bytes.len() > HEAD_MAX {
                return Err(broken("the head of the answer is too long"));
            }
            continue;
        };
        let named = |name: &str| head.headers.iter().find(|h| h.name.eq_ignore_ascii_case(name));
        let text = |name: &str| named(name).and_then(|h| std::str::from_utf8(h.value).ok()).map(str::trim);
        let status = head.code.ok_or_else(|| broken("an answer without a status"))?;
        let len = text("content-length").and_then(|len| len.parse::<usize>().ok());
        let chunked = text("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked"));
        let stays = head.version == Some(1) && !text("connection").is_some_and(|v| v.eq_ignore_ascii_case("close"));
        let mut body = bytes.split_off(end);
        loop {
            let whole = match (len, chunked) {
                (Some(len), false) if body.len() >= len => Some(body[..len].to_vec()),
                (_, true) => unchunked(&body).map_err(broken)?,
                _ => None,
            };
            if let Some(whole) = whole {
                return Ok((connection, stays, status, whole));
            }
            if body.len() > BODY_MAX || len.is_some_and(|len| len > BODY_MAX) {
                return Err(broken("the answer is too long"));
            }
            if connection.read_buf(&mut body).await? == 0 {
                // Without a length the end of the connection is the body's.
                return match len.is_none() && !chunked {
                    true => Ok((connection, false, status, body)),
                    false => Err(std::io::ErrorKind::UnexpectedEof.into()),
                };
            }
        }
    }
}

/// A chunked body, once it is whole. Errors: it is not chunked as HTTP says.
fn unchunked(mut bytes: &[u8]) -> Result<Option<Vec<u8>>, &'static str> {
    let mut body = Vec::new();
    loop {
        let (start, size) = match httparse::parse_chunk_size(bytes) {
            Ok(httparse::Status::Complete(found)) => found,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err("a chunk of the answer is malformed"),
        };
        if size > BODY_MAX as u64 || body.len() > BODY_MAX {
            return Err("the answer is too long");
        }
        let end = start + size as usize;
        if bytes.len() < end + 2 {
            return Ok(None);
        }
        if size == 0 {
            return Ok(Some(body));
        }
        body.extend_from_slice(&bytes[start..end]);
        bytes = &bytes[end + 2..];
    }
}

/// Errors: anything but the answer that is documented.
fn read((connection, stays, status, body): Exchanged) -> Result<(Option<Connection>, Ruling), Failure> {
    if status != 200 {
        return Err(Failure::Status(status));
    }
    let answer: Value = serde_json::from_slice(&body).map_err(|_| Failure::Answer("not JSON"))?;
    let verdict = match answer["verdict"].as_str() {
        Some("allow") => Verdict::Allow,
        Some("flag") => Verdict::Flag,
        Some("block") => Verdict::Block,
        _ => return Err(Failure::Answer("verdict must be allow, flag or block")),
    };
    let ruling = match (&answer["rule"], verdict) {
        (_, Verdict::Allow) => Ruling::ALLOW,
        (Value::String(rule), _) => Ruling::of(verdict, &format!("classifier: {rule}")),
        (Value::Null, _) => Ruling::of(verdict, "classifier"),
        _ => return Err(Failure::Answer("rule must be text")),
    };
    Ok((stays.then_some(connection), ruling))
}

/// The newest verdicts by their text.
#[derive(Default)]
struct Kept {
    hasher: RandomState,
    by_text: HashMap<u64, (Ruling, Mono)>,
    order: VecDeque<u64>,
}

impl Kept {
    fn name(&self, text: &str, strict: bool) -> u64 {
        self.hasher.hash_one((text, strict))
    }

    fn find(&self, text: &str, strict: bool, now: Mono) -> Option<Ruling> {
        let (ruling, at) = self.by_text.get(&self.name(text, strict))?;
        (now.since(*at) < KEPT_FOR).then(|| ruling.clone())
    }

    fn keep(&mut self, text: &str, strict: bool, ruling: &Ruling, now: Mono) {
        let name = self.name(text, strict);
        if self.by_text.insert(name, (ruling.clone(), now)).is_none() {
            self.order.push_back(name);
        }
        if self.order.len() > KEPT_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_text.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use grandstand_core::moderation::Ruling;
    use grandstand_core::owner::command::Tag;
    use grandstand_core::time::Mono;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::{Failure, Question, ask, dial};
    use crate::moderation::Http;

    fn question() -> Question {
        let tag = Tag::default();
        let room = grandstand_core::names::RoomId::parse("r").unwrap();
        Question { tag, room, text: Arc::from("a text"), deadline: Mono(0), strict: false, ruling: Ruling::ALLOW }
    }

    /// What is made of an answer; its last part is said again and again until nobody listens.
    async fn answered(head: Vec<u8>, endless: &'static [u8]) -> Result<Ruling, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/judge", listener.local_addr().unwrap());
        let http = Http::parse(&url, Duration::from_secs(9), 1).unwrap();
        let classifier = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut seen = vec![0; 4096];
            assert!(stream.read(&mut seen).await.unwrap() > 0);
            let mut alive = stream.write_all(&head).await.is_ok();
            while alive && !endless.is_empty() {
                alive = stream.write_all(endless).await.is_ok();
            }
        });
        let ruling = ask(&http, None, &question()).await.map(|(_, ruling)| ruling);
        // An endless answer was hung up on: otherwise this does not end.
        classifier.await.unwrap();
        ruling
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn a61_a_huge_or_endless_answer_is_no_verdict_and_a_redirect_is_not_followed() {
        runtime().block_on(async {
            let whole = b"HTTP/1.1 200 OK\r\nContent-Length: 19\r\n\r\n{\"verdict\":\"allow\"}".to_vec();
            assert_eq!(answered(whole, b"").await.unwrap(), Ruling::ALLOW);
            for (head, endless) in [
                (&b"HTTP/1.1 200 OK\r\nContent-Length: 16385\r\n\r\n"[..], &b""[..]),
                (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", b""),
                (b"HTTP/1.1 200 OK\r\n\r\n", b"{\"verdict\":\"allow\"}"),
                (b"HTTP/1.1 200 OK\r\n", b"X: and so on\r\n"),
                (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"5\r\n{\"ver\r\n"),
                (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffff\r\n", b""),
                (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfish\r\n", b""),
                (b"HTTP/1.1 500 No\r\nContent-Length: 19\r\n\r\n{\"verdict\":\"allow\"}", b""),
                (b"nonsense\r\n\r\n", b""),
                (b"", b""),
            ] {
                assert!(answered(head.to_vec(), endless).await.is_err(), "{}", head.escape_ascii());
            }

            let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = other.local_addr().unwrap();
            let was_asked = Arc::new(AtomicBool::new(false));
            let asked = was_asked.clone();
            let elsewhere = tokio::spawn(async move {
                let _ = other.accept().await;
                asked.store(true, Ordering::SeqCst);
            });
            let head = format!("HTTP/1.1 307 Go\r\nLocation: http://{address}/judge\r\nContent-Length: 0\r\n\r\n");
            assert!(matches!(answered(head.into_bytes(), b"").await, Err(Failure::Status(307))));
            assert!(!was_asked.load(Ordering::SeqCst), "nobody is asked but whom the operator named");
            elsewhere.abort();
        });
    }

    #[test]
    fn a60_a_classifier_is_asked_at_the_address_its_name_leads_to_only_where_one_may_be() {
        let parsed = |url: &str| Http::parse(url, Duration::from_secs(1), 1).is_some();
        for good in [
            "http://127.0.0.1:9000/judge",
            "http://[::1]:9000/judge?v=1",
            "http://localhost/judge",
            "http://classifier:9000",
            "http://10.1.2.3/judge",
            "http://judge.example.com/",
        ] {
            assert!(parsed(good), "{good}");
        }
        for bad in [
            "https://judge.example.com/",
            "file:///etc/passwd",
            "gopher://127.0.0.1/",
            "http:///judge",
            "http://user@127.0.0.1/judge",
            "http://127.0.0.1:0/judge",
            "http://127.0.0.1/judge#x",
            "http://127.0.0.1/a b",
            "http://127.0.0.1\\@169.254.169.254/",
            "http://169.254.169.254/latest/meta-data",
            "http://[::ffff:169.254.169.254]/latest/meta-data",
            "http://[fe80::1]/judge",
            "http://0.0.0.0/judge",
            "http://[::]/judge",
            "http://224.0.0.1/judge",
            "http://255.255.255.255/judge",
            "http://2852039166/latest/meta-data",
            "http://0251.0376.0251.0376/latest/meta-data",
        ] {
            assert!(!parsed(bad), "{bad}");
        }
        // As a name would that leads there: it is judged when it is dialled.
        runtime().block_on(async {
            for leads in ["169.254.169.254:80", "[::ffff:169.254.169.254]:80", "0.0.0.0:80", "0xa9fea9fe:80"] {
                assert!(matches!(dial(leads).await, Err(Failure::Address | Failure::Socket(_))), "{leads}");
            }
            assert!(matches!(dial("169.254.169.254:80").await, Err(Failure::Address)));
        });
    }
}
