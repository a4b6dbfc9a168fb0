//! What a viewer is told in its transport's words: the greeting, single events, and the last word.
//!
//! A close is said on the stream where a client must be able to read it; a bare status is kept for what nobody should repeat.
//! Whatever a stream held of limits, tickets and seats is given back before its end can be heard.

use crate::auth::permit::Permit;
use std::time::Duration;

use bytes::Bytes;
use grandstand_core::ids::{Position, Pseq};
use grandstand_core::names::RoomId;
use grandstand_core::time::Mono;
use grandstand_core::viewer::walk::Skipped;
use grandstand_wire::codes::{CloseCode, ErrorCode};
use grandstand_wire::ws::{self, Opcode};
use grandstand_wire::{event, http, limits, sse};

use super::conn::Kind;
use super::frames::{self, Out};
use super::renewal::session_name;
use super::stream::cors;
use super::viewer::{Member, Rare};
use super::web;
use super::worker::{LINGER, Worker};
use crate::link::Delay;
use crate::metrics::Transport;

/// Of a room that nobody is in.
const DRAIN_SPREAD_LEAST: Duration = Duration::from_secs(1);

impl Worker {
    /// Answers the request, where that is still due, and says hello.
    pub(super) fn greet(&mut self, slot: usize, idx: usize, greeting: Greeting) {
        let Some(info) = self.rooms[idx].info.clone() else { return };
        let mut events = vec![self.hello(slot, idx, &greeting)];
        if let Some(reason) = greeting.snapshot {
            events.push(snapshot_required(&info.room, reason, greeting.from, greeting.pseq));
        }
        if let Some(skipped) = &greeting.skipped {
            events.push(skipped_event(&info.room, skipped));
        }
        events.extend(self.rooms[idx].silent_events());
        let Some(viewer) = self.viewer(slot) else { return };
        let transport = viewer.transport;
        let mut bytes = self.answer_head(slot);
        // Each its own frame: a client reads hello before it knows that arrays may come.
        for one in &events {
            bytes.extend_from_slice(&frames::encode(transport, std::slice::from_ref(one)));
        }
        self.send(slot, bytes.into());
        let ping = self.next_ping(transport);
        if let Some(viewer) = self.viewer(slot) {
            viewer.alive_at = ping;
        }
        self.schedule_live(slot);
    }

    pub(super) fn hello(&mut self, slot: usize, idx: usize, greeting: &Greeting) -> Out<'static> {
        let room = &self.rooms[idx];
        let info = room.info.clone().expect("a room greets when its facts are here");
        // The one who is greeted is not seated yet.
        let viewers = room.tally.people() + 1;
        let nonce = self.viewer(slot).map_or(0, |v| v.nonce);
        let mut counters = Vec::new();
        self.rooms[idx].counters(viewers, self.wall).write_values(&mut counters);
        let mut json = Vec::with_capacity(640);
        event::Hello {
            room: &info.room,
            session: &session_name(self.key(slot), nonce),
            cursor: greeting.from,
            pseq: greeting.pseq,
            resumed: greeting.resumed,
            comments_all: greeting.skipped.is_none() && !greeting.sampled,
            config: &info.config_json,
            counters: std::str::from_utf8(&counters).expect("JSON that was just written"),
            pinned: &info.pinned_json,
            banners: &self.site.standing_json(self.now),
            endpoints: self.shared.settings.endpoints.as_deref(),
        }
        .write(&mut json);
        let heard = self.site.version();
        if let Some(viewer) = self.viewer(slot).filter(|viewer| viewer.opening.is_some()) {
            viewer.site = heard;
        }
        Out { kind: "hello", id: Some(greeting.from.value()), json: json.into() }
    }

    /// The head of the stream's answer, when it has not been written yet.
    pub(super) fn answer_head(&mut self, slot: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(768);
        let Some(viewer) = self.viewer(slot) else { return out };
        let Some(opening) = viewer.opening.take() else { return out };
        match viewer.transport {
            Transport::WebSocket => {
                http::write_status(101, &mut out);
                http::write_header("upgrade", b"websocket", &mut out);
                http::write_header("connection", b"Upgrade", &mut out);
                let accept = opening.accept.as_deref().unwrap_or_default();
                http::write_header("sec-websocket-accept", accept.as_bytes(), &mut out);
                if opening.offered {
                    http::write_header("sec-websocket-protocol", b"grandstand.v1", &mut out);
                }
                if let Some(agreed) = opening.deflate {
                    http::write_header("sec-websocket-extensions", agreed.answer().as_bytes(), &mut out);
                }
            }
            Transport::Sse => {
                http::write_status(200, &mut out);
                http::write_header("content-type", b"text/event-stream", &mut out);
                http::write_header("cache-control", b"no-cache, no-transform", &mut out);
                http::write_header("x-accel-buffering", b"no", &mut out);
                http::write_header("connection", b"close", &mut out);
                for (name, value) in cors(opening.origin.as_deref()) {
                    http::write_header(name, value.as_bytes(), &mut out);
                }
            }
            Transport::Poll => unreachable!("a poll is answered whole"),
        }
        http::end_head(&mut out);
        // What came before this answer may be read now.
        if self.conns[slot].unread {
            self.again.push_back(slot as u32);
        }
        out
    }

    /// Says one event to a viewer whose stream is open.
    pub(super) fn say(&mut self, slot: usize, event: Out<'_>) {
        let Some(viewer) = self.viewer(slot) else { return };
        if viewer.transport == Transport::Poll || viewer.opening.is_some() {
            return;
        }
        let bytes = frames::encode(viewer.transport, &[event]);
        self.send(slot, bytes);
    }

    pub(super) fn next_ping(&mut self, transport: Transport) -> Mono {
        let wait = match transport {
            Transport::Sse => limits::KEEPALIVE,
            _ => {
                let spread = (limits::PING_MAX - limits::PING_MIN).as_millis() as u64;
                limits::PING_MIN + Duration::from_millis(self.rng.below(spread))
            }
        };
        self.now + wait
    }

    // ---- the way out -----------------------------------------------------------------------------------------

    /// Answers an unanswered stream request with a bare status: nobody should repeat it.
    pub(super) fn refuse_stream(&mut self, slot: usize, code: ErrorCode, detail: &str) {
        let Some(viewer) = self.viewer(slot) else { return };
        let Some(opening) = viewer.opening.take() else { return };
        let keep_alive = opening.keep_alive;
        let mut headers = cors(opening.origin.as_deref());
        if code.status() == 401 {
            headers.push(("www-authenticate", "Bearer"));
        }
        let answer = web::problem(code, detail, keep_alive, &headers);
        if let Some(call) = &opening.poll {
            self.shared.polls.leave(call.line, self.key(slot), false, self.now);
        }
        self.forget_viewer(slot);
        self.conns[slot].kind = Kind::Http(Box::new(web::Http::idle(self.now, Vec::new())));
        self.answer(slot, answer, keep_alive);
    }

    /// The room is not there.
    pub(super) fn refuse_room(&mut self, slot: usize, idx: usize) {
        let Some(viewer) = self.viewer(slot) else { return };
        let Some(member) = viewer.member_of(idx) else { return };
        if member == 0 {
            return self.close(slot, CloseCode::NoRoom);
        }
        let room = self.rooms[idx].id.clone();
        if let Some(viewer) = self.viewer(slot) {
            viewer.session.forget(&room);
        }
        self.say(slot, event_error(Some(&room), ErrorCode::NoRoom, "there is no such room", None));
        self.leave_member(slot, member);
    }

    /// Takes one of several rooms off a connection.
    pub(super) fn leave_member(&mut self, slot: usize, member: usize) {
        let Some(viewer) = self.viewer(slot) else { return };
        let left = if member == 0 {
            std::mem::replace(&mut viewer.first, Member::nowhere())
        } else {
            viewer.rare().others.remove(member - 1)
        };
        self.unseat(&left);
    }

    pub(super) fn close(&mut self, slot: usize, code: CloseCode) {
        let delay = (code == CloseCode::Drain).then(|| {
            let room = self.viewer(slot).and_then(|viewer| viewer.session.rooms().first().cloned());
            self.drain_delay(room.as_ref())
        });
        self.close_with(slot, code, delay);
    }

    /// When one who is sent away comes back. An operator's drain of one gateway process sends its viewers to the others, which
    /// are there: they take no longer than the room's size asks for.
    pub(super) fn drain_delay(&self, room: Option<&RoomId>) -> Delay {
        if self.draining || !self.shared.settings.shares_address {
            return self.drain;
        }
        let idx = room.and_then(|room| self.room_ids.get(room));
        let sized = idx.map_or(DRAIN_SPREAD_LEAST, |&idx| self.pause(idx).spread);
        Delay { spread: sized.min(self.drain.spread), ..self.drain }
    }

    /// Tells a viewer why it ends, in the words of its transport, and ends it.
    pub(super) fn close_with(&mut self, slot: usize, code: CloseCode, delay: Option<Delay>) {
        let wait = self.rng.next();
        if self.viewer(slot).is_some() {
            self.shared.metrics.add_closed(code);
        }
        let Some(viewer) = self.viewer(slot) else { return };
        let room = match viewer.n_members() == 1 {
            true => viewer.session.rooms().first().cloned(),
            false => None,
        };
        let mut close = event::Close::of(code, room.as_ref());
        if let Some(Delay { retry_after, spread }) = delay {
            close.retry = Some((retry_after.as_millis() as u64, spread.as_millis() as u64));
        }
        let mut json = Vec::with_capacity(160);
        close.write(&mut json);
        let transport = viewer.transport;
        let unanswered = viewer.opening.is_some();
        if unanswered && code != CloseCode::Drain {
            self.shared.metrics.add_denied(error_of(code));
        }
        match transport {
            Transport::WebSocket => {
                let mut bytes = self.answer_head(slot);
                ws::write_frame(Opcode::Text, &json, &mut bytes);
                ws::write_frame(Opcode::Close, &ws::close_body(code.code(), code.reason()), &mut bytes);
                self.finish_stream(slot, bytes.into());
            }
            Transport::Sse if unanswered && code.range() == grandstand_wire::codes::Range::Stop => {
                self.refuse_stream(slot, error_of(code), code.meaning());
            }
            Transport::Sse => {
                let mut bytes = self.answer_head(slot);
                if let Some((retry, spread)) = close.retry {
                    let drawn = if spread == 0 { 0 } else { wait % (spread + 1) };
                    sse::retry(Duration::from_millis(retry + drawn), &mut bytes);
                }
                sse::write("close", None, &json, &mut bytes);
                self.finish_stream(slot, bytes.into());
            }
            Transport::Poll => self.refuse_poll(slot, code, &json, close.retry),
        }
    }

    fn refuse_poll(&mut self, slot: usize, code: CloseCode, json: &[u8], retry: Option<(u64, u64)>) {
        let error = error_of(code);
        if code.range() == grandstand_wire::codes::Range::Stop {
            return self.refuse_stream(slot, error, code.meaning());
        }
        let status = match code {
            CloseCode::TooMany => 429,
            CloseCode::TokenExpired => 401,
            _ => 503,
        };
        let Some(viewer) = self.viewer(slot) else { return };
        let Some(mut opening) = viewer.opening.take() else { return };
        let seconds = retry.map_or(1, |(after, _)| http::retry_after(after)).to_string();
        let mut headers = cors(opening.origin.as_deref());
        headers.push(("cache-control", "no-store"));
        headers.push(("retry-after", &seconds));
        // A connection that stays here would find no place either.
        opening.keep_alive &= !(code == CloseCode::TooMany && self.shared.admission.leaves_port());
        let answer = web::whole(status, "application/json", json, opening.keep_alive, &headers);
        self.end_call(slot, *opening, answer, false);
    }

    /// Writes the last bytes of a stream and waits for the other side's end.
    pub(super) fn finish_stream(&mut self, slot: usize, bytes: Bytes) {
        // Who hears the end may come back at once, to another worker: its place is free by then.
        self.give_back(slot);
        self.send(slot, bytes);
        if self.conns.contains(slot) {
            self.forget_viewer(slot);
            self.linger(slot, LINGER);
        }
    }

    /// What a stream held of its user's, its address's and its ticket's limits.
    fn give_back(&mut self, slot: usize) {
        let wall = self.wall;
        let Some(viewer) = self.viewer(slot) else { return };
        let held = std::mem::take(&mut viewer.counted).then(|| std::mem::take(&mut viewer.held));
        let stub = viewer.rare.as_mut().and_then(|rare| rare.stub.take());
        let line = viewer.rare.as_mut().and_then(|rare| rare.held_line.take());
        if let Some(held) = held {
            self.shared.streams.leave(&held);
            self.look_at_places();
        }
        if let Some(stub) = stub {
            self.shared.tickets.ended(stub, wall);
        }
        if let Some(line) = line {
            self.shared.holders.leave(line);
        }
    }

    /// Takes a viewer out of rooms, limits and tables. Its connection stays.
    pub(super) fn forget_viewer(&mut self, slot: usize) {
        self.give_back(slot);
        self.regions.remove(&(slot as u32));
        let key = self.key(slot);
        let now = self.now;
        let Some(viewer) = self.viewer(slot) else { return };
        let transport = viewer.transport;
        let first = std::mem::replace(&mut viewer.first, Member::nowhere());
        let Rare { others, .. } = viewer.rare.take().map_or_else(Rare::default, |rare| *rare);
        let line = viewer.opening.as_ref().and_then(|o| o.poll.as_ref()).map(|call| call.line);
        for member in std::iter::once(&first).chain(&others) {
            self.unseat(member);
        }
        if let Some(line) = line {
            self.shared.polls.leave(line, key, false, now);
        }
        self.count_stream(transport, -1);
        // Its connection goes on as something else, or ends; either way this viewer is over.
        self.conns[slot].kind = Kind::Lingering { until: now + limits::HELLO_WAIT };
    }
}

pub struct Greeting {
    /// A greeting says what is pinned and how the room is.
    pub _permit: Permit,
    pub from: Position,
    pub pseq: Pseq,
    pub resumed: bool,
    pub skipped: Option<Skipped>,
    /// Of the comments that follow the viewer is given a part.
    pub sampled: bool,
    pub snapshot: Option<&'static str>,
}

pub fn skipped_event(room: &RoomId, skipped: &Skipped) -> Out<'static> {
    let mut json = Vec::with_capacity(128);
    event::Skipped { room, count: skipped.count, from: skipped.from, to: skipped.to }.write(&mut json);
    Out::loose("skipped", json)
}

pub fn snapshot_required(room: &RoomId, reason: &'static str, cursor: Position, pseq: Pseq) -> Out<'static> {
    let mut json = Vec::with_capacity(192);
    event::SnapshotRequired { room, reason, cursor, pseq }.write(&mut json);
    Out { kind: "snapshot_required", id: Some(cursor.value()), json: json.into() }
}

pub fn event_error(
    room: Option<&RoomId>,
    code: ErrorCode,
    message: &str,
    client_msg_id: Option<&grandstand_core::names::ClientMsgId>,
) -> Out<'static> {
    event_error_after(room, code, message, client_msg_id, None)
}

pub fn event_error_after(
    room: Option<&RoomId>,
    code: ErrorCode,
    message: &str,
    client_msg_id: Option<&grandstand_core::names::ClientMsgId>,
    retry_after: Option<Duration>,
) -> Out<'static> {
    let retry_after_ms = retry_after.map(|after| after.as_millis() as u64);
    let mut json = Vec::with_capacity(160);
    event::ErrorEvent { room, code: code.name(), message, client_msg_id, retry_after_ms }.write(&mut json);
    Out::loose("error", json)
}

/// The HTTP face of a close that comes before any stream.
fn error_of(code: CloseCode) -> ErrorCode {
    match code {
        CloseCode::BadRequest => ErrorCode::BadRequest,
        CloseCode::NoRoom => ErrorCode::NoRoom,
        CloseCode::TokenExpired => ErrorCode::BadToken,
        CloseCode::TooMany => ErrorCode::TooMany,
        CloseCode::NotReady | CloseCode::Drain => ErrorCode::NotReady,
        CloseCode::NotAllowed => ErrorCode::NotAllowed,
        CloseCode::Blackout => ErrorCode::Blackout,
        _ => ErrorCode::ServerFault,
    }
}
