//! One IRC connection's bytes: the socket on one side, pipes to the loop on the other, the session between them.
//!
//! ```text
//! socket ─► (WebSocket frames) ─► lines ─► session ─► acts: pipes to the loop
//! socket ◄─ (WebSocket frames) ◄─ lines ◄─ session ◄─ events of streams, answers of calls
//! ```
//!
//! Nothing is read from a stream while 64 KiB wait for the socket: then the pipe fills, and what the loop does with a viewer that does not take what it
//! is sent is done with this one: comments are passed over and told, and one whose scores and gifts wait for ten seconds is closed. Nothing is read from the client
//! meanwhile either, nor while its calls wait, so what a connection holds is bounded by what is below. Calls go one after another: what somebody says in a row stays in
//! that row.
//!
//! The awkward case is a client that takes a byte now and then: what was written and is still here after 20 s ends it, however much has left since.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use grandstand_core::names::RoomId;
use grandstand_core::time::Mono;
use grandstand_wire::irc;
use grandstand_wire::sse::Item;
use grandstand_wire::ws::{self, FrameReader, Incoming, Limits, Opcode, Side};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::Hall;
use super::call::{self, Asking, Client, Feed, Heard, token_fits};
use super::deeds::{Answer, Call};
use super::session::{Act, Now, Refused, Session, Verified};
use crate::auth::token::AuthFault;
use crate::clock;
use crate::gateway::conn::Caller;
use crate::gateway::pipe;
use crate::metrics::add;

/// What may wait for the socket before nothing more is taken from anywhere. One more event of a stream, and answers of one read, come on top.
const AHEAD_BYTES: usize = 64 * 1024;
/// Calls that wait for the one under way.
const CALLS_MAX: usize = 32;
const READ_BYTES: usize = 8 * 1024;
/// What was written is gone after this, or the client is.
const STALL_WAIT: Duration = Duration::from_secs(20);
/// For the last words.
const LEAVE_WAIT: Duration = Duration::from_secs(2);

/// How lines lie in what the socket carries.
pub enum Framing {
    Raw,
    WebSocket(FrameReader),
}

/// What waits for the socket.
#[derive(Default)]
struct Out {
    bytes: VecDeque<u8>,
    /// Ever written here, and ever taken by the socket.
    written: u64,
    taken: u64,
    /// Of what was written when it was looked at: it leaves within [`STALL_WAIT`].
    mark: u64,
    marked_at: Mono,
    /// A session of TLS may hold what it took.
    unflushed: bool,
}

impl Out {
    fn put(&mut self, bytes: &[u8], now: Mono) {
        if self.bytes.is_empty() {
            (self.mark, self.marked_at) = (self.written + bytes.len() as u64, now);
        }
        self.written += bytes.len() as u64;
        self.bytes.extend(bytes);
    }

    fn took(&mut self, n: usize, now: Mono) {
        self.bytes.drain(..n);
        self.taken += n as u64;
        self.unflushed = true;
        if self.taken >= self.mark {
            (self.mark, self.marked_at) = (self.written, now);
        }
    }

    /// When the client is gone, unless it takes something.
    fn deadline(&self) -> Option<Mono> {
        (!self.bytes.is_empty()).then(|| self.marked_at + STALL_WAIT)
    }
}

struct Connection<'h> {
    hall: &'h Hall,
    caller: Caller,
    client: Client,
    session: Session,
    framing: Framing,
    reader: irc::Reader,
    feeds: BTreeMap<RoomId, Feed>,
    /// The room that is listened to first in the next turn.
    turn: usize,
    calls: VecDeque<Box<Call>>,
    asking: Option<Asking>,
    out: Out,
    ends: bool,
}

enum Event {
    Read(io::Result<usize>),
    Pushed(io::Result<usize>),
    Heard(RoomId, Heard),
    Answered(Answer),
    Time,
    Leave,
}

/// Talks with one client until one of the two has enough. `rest`: bytes that came with the handshake.
pub async fn attend<S: AsyncRead + AsyncWrite + Unpin>(
    hall: &Hall,
    socket: S,
    caller: Caller,
    client: Client,
    framing: Framing,
    rest: Vec<u8>,
    mut leaving: watch::Receiver<()>,
) {
    let now = clock::mono();
    let mut c = Connection {
        hall,
        caller,
        client,
        session: Session::new(hall.nonce(), now),
        framing,
        reader: irc::Reader::new(),
        feeds: BTreeMap::new(),
        turn: 0,
        calls: VecDeque::new(),
        asking: None,
        out: Out::default(),
        ends: false,
    };
    let (mut reading, mut writing) = tokio::io::split(socket);
    let mut buf = [0; READ_BYTES];
    let mut leaves = false;
    c.on_bytes(&rest);
    while !c.ends {
        let has_room = c.out.bytes.len() < AHEAD_BYTES;
        let listens = has_room && c.calls.len() < CALLS_MAX;
        let pushes = !c.out.bytes.is_empty() || c.out.unflushed;
        let at = c.deadline();
        let event = tokio::select! {
            biased;
            pushed = push(&mut writing, &c.out), if pushes => Event::Pushed(pushed),
            event = poll_fn(|cx| poll_loop(&mut c.asking, &mut c.feeds, &mut c.turn, cx)), if has_room => event,
            read = reading.read(&mut buf), if listens => Event::Read(read),
            () = sleep_until(at) => Event::Time,
            _ = leaving.changed(), if !leaves => Event::Leave,
        };
        match event {
            Event::Pushed(Ok(0)) => c.out.unflushed = false,
            Event::Pushed(Ok(n)) => c.out.took(n, clock::mono()),
            Event::Read(Ok(n)) if n > 0 => c.on_bytes(&buf[..n]),
            // Who hangs up has said what it has said.
            Event::Read(_) | Event::Pushed(Err(_)) => break,
            Event::Heard(room, heard) => c.on_heard(&room, heard),
            Event::Answered(answer) => c.on_answer(&answer),
            Event::Time => {
                if c.is_stalled() {
                    add(&hall.shared.metrics.irc_stalled, 1);
                    return;
                }
                c.turn_of(|session, now, out, acts| session.on_time(now.mono, out, acts));
            }
            Event::Leave => {
                // Who is in a room is sent away by its stream, in the drain's own slices.
                leaves = true;
                if c.feeds.is_empty() {
                    c.turn_of(|session, _, out, acts| session.send_away(out, acts));
                }
            }
        }
    }
    let last = async {
        // A line before the end, or before the client hung up, is said like any other.
        while let Some(asking) = &mut c.asking {
            let answer = poll_fn(|cx| asking.poll(cx)).await;
            c.on_answer(&answer);
        }
        while !c.out.bytes.is_empty() {
            let n = push(&mut writing, &c.out).await?;
            c.out.took(n, clock::mono());
        }
        writing.shutdown().await?;
        // Bytes left unread would turn the end into a reset, which may overtake the last words.
        while reading.read(&mut buf).await? > 0 {}
        io::Result::Ok(())
    };
    // Who does not take the last words is gone anyway.
    let _ = timeout(LEAVE_WAIT, last).await;
}

/// Writes what the socket takes; 0 when nothing waits and all that a session of TLS held has left.
async fn push<W: AsyncWrite + Unpin>(writing: &mut W, out: &Out) -> io::Result<usize> {
    let (first, _) = out.bytes.as_slices();
    if first.is_empty() {
        writing.flush().await?;
        return Ok(0);
    }
    match writing.write(first).await? {
        0 => Err(io::ErrorKind::WriteZero.into()),
        n => Ok(n),
    }
}

/// What comes next of the loop: the answer to a call, or a part of one of the streams, each in its turn.
fn poll_loop(
    asking: &mut Option<Asking>,
    feeds: &mut BTreeMap<RoomId, Feed>,
    turn: &mut usize,
    cx: &Context<'_>,
) -> Poll<Event> {
    if let Some(call) = asking
        && let Poll::Ready(answer) = call.poll(cx)
    {
        return Poll::Ready(Event::Answered(answer));
    }
    // Who was heard last is asked last. While nobody has anything each is asked, so that each wakes this task.
    for (from, upto) in [(*turn, usize::MAX), (0, *turn)] {
        for (idx, (room, feed)) in feeds.iter_mut().enumerate().skip(from).take(upto - from) {
            if let Poll::Ready(part) = feed.poll(cx) {
                *turn = idx + 1;
                return Poll::Ready(Event::Heard(room.clone(), part));
            }
        }
    }
    Poll::Pending
}

impl Connection<'_> {
    fn deadline(&self) -> Instant {
        let at = self.out.deadline().into_iter().fold(self.session.deadline(), Mono::min);
        Instant::now() + at.since(clock::mono())
    }

    fn is_stalled(&self) -> bool {
        self.out.deadline().is_some_and(|at| clock::mono() >= at)
    }

    /// One turn of the session: what it says is written, what it wants is done.
    fn turn_of(&mut self, turn: impl FnOnce(&mut Session, Now, &mut Vec<u8>, &mut Vec<Act>)) {
        let now = Now { mono: clock::mono(), wall: clock::wall() };
        let (mut lines, mut acts) = (Vec::new(), Vec::new());
        turn(&mut self.session, now, &mut lines, &mut acts);
        if !lines.is_empty() {
            add(&self.hall.shared.metrics.irc_bytes, lines.len() as u64);
            self.write(&lines, now.mono);
        }
        for act in acts {
            self.act(act);
        }
    }

    fn write(&mut self, lines: &[u8], now: Mono) {
        // Nothing follows the last words.
        if self.ends {
            return;
        }
        match self.framing {
            Framing::Raw => self.out.put(lines, now),
            Framing::WebSocket(_) => {
                let mut frame = Vec::with_capacity(lines.len() + 10);
                ws::write_frame(Opcode::Text, lines, &mut frame);
                self.out.put(&frame, now);
            }
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Open(room) => {
                let token = self.session.token().map(|token| token.to_string());
                let request = call::stream(&room, token.as_deref(), &self.client);
                let far = self.pipe(request);
                self.feeds.insert(room, Feed::new(far));
            }
            Act::Leave(room) => drop(self.feeds.remove(&room)),
            Act::Call(call) => {
                self.calls.push_back(call);
                self.ask_next();
            }
            Act::End => {
                if std::mem::replace(&mut self.ends, true) {
                    return;
                }
                if let Framing::WebSocket(_) = self.framing {
                    let mut frame = Vec::new();
                    ws::write_frame(Opcode::Close, &ws::close_body(1000, ""), &mut frame);
                    self.out.put(&frame, clock::mono());
                }
            }
        }
    }

    fn pipe(&self, request: Vec<u8>) -> pipe::Far {
        pipe::open(self.caller, request, self.hall.next_bell(), self.hall.task_bell.clone())
    }

    /// The next call goes when the one before it was answered.
    fn ask_next(&mut self) {
        if self.asking.is_some() {
            return;
        }
        let Some(call) = self.calls.pop_front() else { return };
        let request = call::api(&call, self.session.token().map(|token| &**token), &self.client);
        let far = self.pipe(request);
        self.asking = Some(Asking::new(call, far));
    }

    fn on_answer(&mut self, answer: &Answer) {
        let Some(asking) = self.asking.take() else { return };
        self.turn_of(|session, now, out, _| session.on_answer(&asking.call, answer, now, out));
        self.ask_next();
    }

    fn on_heard(&mut self, room: &RoomId, heard: Heard) {
        match heard {
            Heard::Items(items) => self.turn_of(|session, now, out, acts| {
                for item in items {
                    let Item::Event(event) = item else { continue };
                    // What the server itself wrote a moment ago is JSON.
                    let json: Value = serde_json::from_str(&event.data).unwrap_or(Value::Null);
                    session.on_event(room, &event.kind, &json, now, out, acts);
                }
            }),
            Heard::Refused(answer) => {
                self.feeds.remove(room);
                self.turn_of(|session, _, out, acts| session.on_refused(room, &answer, out, acts));
            }
            Heard::Ended => {
                self.feeds.remove(room);
                self.turn_of(|session, _, out, acts| session.on_cut(room, out, acts));
            }
        }
    }

    /// Bytes of the client.
    fn on_bytes(&mut self, bytes: &[u8]) {
        let mut lines = Vec::new();
        let Framing::WebSocket(frames) = &mut self.framing else {
            self.reader.feed(bytes, &mut lines);
            return self.on_lines(lines);
        };
        let mut frames = std::mem::take(frames);
        let mut input = bytes;
        let limits = Limits { deflate: false, ..Limits::FROM_CLIENT };
        let now = clock::mono();
        let ends = loop {
            match frames.next(Side::Server, &limits, &mut input, now) {
                Ok(None) => break false,
                Ok(Some(Incoming::Text(text))) => {
                    self.reader.feed(text.as_bytes(), &mut lines);
                    // A message is whole lines, and clients leave out the end of the last.
                    self.reader.feed(b"\n", &mut lines);
                }
                Ok(Some(Incoming::Ping(body))) => {
                    // A flood of pings costs what a flood of lines does.
                    lines.push(Ok("PONG".to_owned()));
                    let mut frame = Vec::new();
                    ws::write_frame(Opcode::Pong, &body, &mut frame);
                    self.out.put(&frame, now);
                }
                Ok(Some(Incoming::Pong(_))) => lines.push(Ok("PONG".to_owned())),
                Ok(Some(Incoming::Close(..) | Incoming::Binary(_) | Incoming::Deflated(_))) | Err(_) => break true,
            }
        };
        self.framing = Framing::WebSocket(frames);
        self.on_lines(lines);
        if ends {
            self.act(Act::End);
        }
    }

    fn on_lines(&mut self, lines: Vec<Result<String, irc::Fault>>) {
        let hall = self.hall;
        add(&hall.shared.metrics.irc_lines, lines.len() as u64);
        for line in lines {
            let line = line.as_deref().map_err(|fault| fault.rule());
            self.turn_of(|session, now, out, acts| {
                session.on_line(line, |token| hall.verify(token), now, out, acts);
            });
        }
    }
}

impl Hall {
    fn verify(&self, token: &str) -> Verified {
        if !token_fits(token) {
            return Err(Refused::Bad);
        }
        let wall = clock::wall();
        match self.shared.verifier.verify(token, wall) {
            Ok(identity) if identity.may_open_stream(wall) => Ok(identity),
            Err(AuthFault::Unsure) => Err(Refused::Later),
            Ok(_) | Err(_) => Err(Refused::Bad),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use grandstand_core::time::Mono;

    use super::{Out, STALL_WAIT};

    #[test]
    fn what_was_written_leaves_within_twenty_seconds_however_slowly_the_rest_does() {
        let at = |seconds: u64| Mono(1_000_000) + Duration::from_secs(seconds);
        let mut out = Out::default();
        assert_eq!(out.deadline(), None);
        out.put(&[0; 100], at(0));
        assert_eq!(out.deadline(), Some(at(0) + STALL_WAIT));
        // More is written, and a byte now and then leaves: what was there first is still there.
        for second in 1..20 {
            out.put(&[0; 10], at(second));
            out.took(1, at(second));
        }
        assert_eq!(out.deadline(), Some(at(20)));
        out.took(80, at(19));
        assert_eq!(out.deadline(), Some(at(20)), "one of the hundred is left");
        out.took(1, at(19));
        assert_eq!(out.deadline(), Some(at(39)), "now the rest has its time");
        out.took(190, at(20));
        assert_eq!(out.deadline(), None);
    }
}
