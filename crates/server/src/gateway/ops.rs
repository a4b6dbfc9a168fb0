//! What a connected client says, and what becomes of it: frames in, operations judged by the session, answers out.
//!
//! The session says what may be done; this carries it out. A publish goes to the owner with a number; the answer comes back
//! with it and is said under the client's own key.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use grandstand_core::ids::EventId;
use grandstand_core::names::{ClientMsgId, RoomId};
use grandstand_core::owner::answer::Answer;
use grandstand_core::owner::command::{Author, Command, Publish, React, ReportIn, Standing};
use grandstand_core::reject::{Code, Reject};
use grandstand_core::reports::Report;
use grandstand_core::text;
use grandstand_core::viewer::session::{self, Action, Close, Op, TokenFault};
use grandstand_wire::codes::{CloseCode, ErrorCode, RateReason};
use grandstand_wire::op::{self, Op as WireOp};
use grandstand_wire::ws::{self, Incoming, Limits, Opcode, Side};
use grandstand_wire::{event, sse};

use super::conn::Kind;
use super::frames::{self, Out};
use super::said::event_error;
use super::stream::credential;
use super::viewer::{Asked, PONG_WAIT};
use super::worker::Worker;
use crate::auth::{self, Identity};
use crate::link::{Overloaded, ReplyTo};
use crate::metrics::{Transport, add};

/// Publishes a viewer may say before its room's facts are here; a session's burst of operations.
const EARLY_MAX: usize = 64;
/// Pings of one read that are answered each; of more, those after the last multiple of it.
const PONGS_A_READ: usize = 16;

impl Worker {
    pub(super) fn on_viewer_bytes(&mut self, slot: usize, bytes: &[u8]) {
        let now = self.now;
        let Some(viewer) = self.viewer(slot) else { return };
        if viewer.transport != Transport::WebSocket {
            // Nobody speaks on an event stream; what comes is read away so that its end is noticed.
            return;
        }
        if std::mem::take(&mut viewer.pinged) {
            let ping = self.next_ping(Transport::WebSocket);
            if let Some(viewer) = self.viewer(slot) {
                viewer.alive_at = ping;
            }
        }
        let mut input = bytes;
        // A flood of pings is answered by the newest alone.
        let mut pings: Vec<Vec<u8>> = Vec::new();
        loop {
            let Some(viewer) = self.viewer(slot) else { return };
            let limits = Limits { deflate: viewer.reach.is_agreed(), ..Limits::FROM_CLIENT };
            let incoming = match viewer.reader.next(Side::Server, &limits, &mut input, now) {
                Ok(Some(Incoming::Deflated(packed))) => self.inflater.open(packed, limits.message_bytes).map(Some),
                incoming => incoming,
            };
            let Some(viewer) = self.viewer(slot) else { return };
            match incoming {
                Ok(None) => break,
                Ok(Some(Incoming::Text(text))) => self.on_text(slot, &text),
                Ok(Some(Incoming::Binary(_))) => {
                    let error = event_error(None, ErrorCode::BadJson, "frames are text", None);
                    self.judge(slot, Op::Malformed, None, Some(error));
                }
                Ok(Some(Incoming::Ping(_) | Incoming::Pong(_))) if viewer.floods(now) => {
                    return self.close(slot, CloseCode::TooMany);
                }
                Ok(Some(Incoming::Ping(body))) => {
                    if pings.len() == PONGS_A_READ {
                        pings.clear();
                    }
                    pings.push(body);
                }
                Ok(Some(Incoming::Pong(_) | Incoming::Deflated(_))) => {}
                Ok(Some(Incoming::Close(code, _))) => return self.on_close_frame(slot, code),
                Err(fault) => return self.fail(slot, fault),
            }
        }
        let mut pongs = Vec::new();
        for body in pings {
            ws::write_frame(Opcode::Pong, &body, &mut pongs);
        }
        self.send(slot, pongs.into());
        self.schedule_live(slot);
    }

    /// The client says goodbye: the same code back, then the end of our side.
    fn on_close_frame(&mut self, slot: usize, code: Option<u16>) {
        let mut bytes = Vec::with_capacity(4);
        let body = code.map_or_else(Vec::new, |code| ws::close_body(code, ""));
        ws::write_frame(Opcode::Close, &body, &mut bytes);
        self.finish_stream(slot, bytes.into());
    }

    /// The frame stream cannot be read on: the close frame alone tells, there is no room event to it.
    fn fail(&mut self, slot: usize, fault: ws::Fault) {
        if let Some(code) = CloseCode::find(fault.code()) {
            self.shared.metrics.add_closed(code);
        }
        let mut bytes = Vec::with_capacity(64);
        ws::write_frame(Opcode::Close, &ws::close_body(fault.code(), fault.reason()), &mut bytes);
        self.finish_stream(slot, bytes.into());
    }

    fn on_text(&mut self, slot: usize, frame: &str) {
        add(&self.shared.metrics.ops, 1);
        let wall_op = op::parse(frame);
        let (op, payload, error) = match wall_op {
            Err(fault) => {
                add(&self.shared.metrics.ops_refused, 1);
                let error = event_error(None, fault.code, &fault.text, fault.client_msg_id.as_ref());
                (Op::Malformed, None, Some(error))
            }
            Ok(WireOp::Hello { token, last_event_id }) => {
                let verified = token.map(|token| self.verify(&token)).transpose();
                let credential = self.note_identity(slot, verified);
                (Op::Hello { credential, cursor: last_event_id.unwrap_or_default() }, None, None)
            }
            Ok(WireOp::Auth { token }) => {
                let verified = self.verify(&token);
                let credential = verified.map(|id| (credential(&id), id)).map_err(token_fault);
                let (credential, identity) = match credential {
                    Ok((credential, identity)) => (Ok(credential), Some(identity)),
                    Err(fault) => (Err(fault), None),
                };
                (Op::Auth { credential }, identity.map(Payload::Identity), None)
            }
            Ok(WireOp::Publish(publish)) => {
                (Op::Publish { room: publish.room.clone() }, Some(Payload::Publish(publish)), None)
            }
            Ok(WireOp::React { room, event_id, .. }) => (Op::React { room }, Some(Payload::React(event_id)), None),
            Ok(WireOp::Like(like)) => (Op::Like { room: like.room.clone() }, Some(Payload::Like(like)), None),
            Ok(WireOp::Report { room, event_id, reason }) => {
                let report = Report { event: event_id, reason: reason.into() };
                (Op::Report { room }, Some(Payload::Report(report)), None)
            }
            Ok(WireOp::Join { room, last_event_id }) => {
                (Op::Join { room, cursor: last_event_id.unwrap_or_default() }, None, None)
            }
            Ok(WireOp::Leave { room }) => (Op::Leave { room: Some(room) }, None, None),
            Ok(WireOp::Follow { user }) => {
                self.judge(slot, Op::Follow { user }, None, None);
                return self.renew_taste(slot, None);
            }
            Ok(WireOp::Unfollow { user }) => {
                self.judge(slot, Op::Unfollow { user }, None, None);
                return self.renew_taste(slot, None);
            }
            Ok(WireOp::Ping) => (Op::Ping, None, None),
        };
        self.judge(slot, op, payload, error);
    }

    /// Remembers who a first `hello` is from; the session says whether that counts.
    fn note_identity(
        &mut self,
        slot: usize,
        verified: Result<Option<Arc<Identity>>, CloseCode>,
    ) -> Result<Option<session::Credential>, TokenFault> {
        match verified {
            Err(code) => Err(token_fault(code)),
            Ok(identity) => {
                let credential = identity.as_deref().map(credential);
                if let Some(viewer) = self.viewer(slot)
                    && !viewer.session.is_live()
                {
                    viewer.identity = identity;
                }
                Ok(credential)
            }
        }
    }

    fn judge(&mut self, slot: usize, op: Op, payload: Option<Payload>, error: Option<Out<'static>>) {
        let now = self.now;
        let Some(Kind::Viewer(viewer)) = self.conns.get_mut(slot).map(|c| &mut c.kind) else { return };
        let action = viewer.session.on_op(op, now, &mut self.rng);
        if action == Action::Malformed {
            if let Some(error) = error {
                self.say(slot, error);
            }
            return;
        }
        self.act(slot, action, payload);
    }

    /// Does what the session said.
    pub(super) fn act(&mut self, slot: usize, action: Action, payload: Option<Payload>) {
        match action {
            Action::Quiet | Action::Malformed => {}
            Action::Wait => self.await_hello(slot),
            Action::Greet { room, cursor } => self.join(slot, room, cursor),
            Action::Publish { room } => {
                if let Some(Payload::Publish(publish)) = payload {
                    self.publish(slot, &room, publish);
                }
            }
            Action::Like { room } => {
                if let Some(Payload::Like(like)) = payload {
                    self.like(slot, &room, &like);
                }
            }
            Action::React { room } => {
                if let Some(Payload::React(target)) = payload {
                    self.react(slot, &room, target);
                }
            }
            Action::Report { room } => {
                if let Some(Payload::Report(report)) = payload {
                    self.report(slot, room, report);
                }
            }
            Action::Left { room } => self.on_leave(slot, &room),
            Action::Pong => {
                let mut json = Vec::new();
                event::Pong { room: None }.write(&mut json);
                self.say(slot, Out::loose("pong", json));
            }
            Action::Refuse(refusal) => {
                add(&self.shared.metrics.ops_refused, 1);
                let (code, message) = refusal.said();
                let key = match &payload {
                    Some(Payload::Publish(publish)) => Some(&publish.client_msg_id),
                    _ => None,
                };
                let code = ErrorCode::find(code).unwrap_or(ErrorCode::NotAllowed);
                self.say(slot, event_error(None, code, message, key));
            }
            Action::TokenExpiring { in_ms } => {
                let mut json = Vec::new();
                event::TokenExpiring { room: None, in_ms }.write(&mut json);
                self.say(slot, Out::loose("token_expiring", json));
            }
            Action::ReadOnly => {}
            Action::Renewed => {
                if let (Some(Payload::Identity(identity)), Some(viewer)) = (payload, self.viewer(slot)) {
                    viewer.identity = Some(identity);
                }
            }
            Action::Close(close) => {
                let code = match close {
                    Close::BadRequest => CloseCode::BadRequest,
                    Close::NotAllowed => CloseCode::NotAllowed,
                    Close::TokenExpired => CloseCode::TokenExpired,
                    Close::TooMany => CloseCode::TooMany,
                    Close::NotReady => CloseCode::NotReady,
                };
                self.close(slot, code);
            }
        }
    }

    /// Switches the protocol, so that the client can say hello.
    fn await_hello(&mut self, slot: usize) {
        let head = self.answer_head(slot);
        self.send(slot, head.into());
    }

    fn on_leave(&mut self, slot: usize, room: &RoomId) {
        if let Some(&idx) = self.room_ids.get(room)
            && let Some(viewer) = self.viewer(slot)
            && let Some(member) = viewer.member_of(idx)
        {
            self.leave_member(slot, member);
        }
        let mut json = Vec::new();
        event::Left { room }.write(&mut json);
        self.say(slot, Out::loose("left", json));
    }

    // ---- publish ---------------------------------------------------------------------------------------------

    fn publish(&mut self, slot: usize, room: &RoomId, publish: op::Publish) {
        let key = publish.client_msg_id.clone();
        let refuse = |w: &mut Worker, code: ErrorCode, message: &str| {
            add(&w.shared.metrics.ops_refused, 1);
            w.say(slot, event_error(Some(room), code, message, Some(&key)));
        };
        if self.away {
            return self.refuse_publish(slot, room, &key);
        }
        let settings = self.room_ids.get(room).and_then(|&idx| self.rooms[idx].info.clone());
        let Some(settings) = settings else {
            // A client that says hello need not wait for the answer before it speaks.
            let Some(viewer) = self.viewer(slot) else { return };
            if viewer.rare().early.len() >= EARLY_MAX {
                return refuse(self, ErrorCode::Overloaded, "the room is still being joined");
            }
            return viewer.rare().early.push((room.clone(), publish));
        };
        let Some(viewer) = self.viewer(slot) else { return };
        let who = viewer.identity.clone();
        let limit = viewer.asked_max();
        if viewer.rare.as_ref().is_some_and(|rare| rare.asked.len() >= limit) {
            return refuse(self, ErrorCode::Overloaded, "too many publishes are unanswered");
        }
        if self.draining {
            return refuse(self, ErrorCode::NotReady, "the server is going away");
        }
        if auth::may_publish(who.as_deref(), room, &settings.settings).is_err() {
            return refuse(self, ErrorCode::NotAllowed, "publishing in this room is not open to you");
        }
        let Some(who) = who else { return };
        let author = match publish.speak_as {
            None => author_of(&who, room),
            Some(_) if auth::may_act_as_backend(Some(&who), room).is_err() => {
                return refuse(self, ErrorCode::NotAllowed, "as is for the backend role");
            }
            Some(other) => Author {
                user: other.id,
                display: other.name.into(),
                badges: other.badges.into_iter().map(Arc::from).collect(),
                standing: Standing::Backend,
            },
        };
        if author.standing != Standing::Backend {
            let (from, now) = (self.conns[slot].client.ip(), self.now);
            if let Err(reject) = self.early.may_publish(room, &author.user, from, now) {
                add(&self.shared.metrics.ops_refused, 1);
                return self.say(slot, said(room, &key, Answer::Reject(reject)));
            }
        }
        let text = match text::check(&publish.text) {
            Ok(text) => Arc::from(&*text),
            Err(fault) => {
                let code = ErrorCode::find(fault.code().name()).unwrap_or(ErrorCode::BadText);
                return refuse(self, code, &fault.to_string());
            }
        };
        self.n_requests += 1;
        let request = self.n_requests;
        let answered = publish.reply_to;
        let command = Command::Publish(Publish {
            room: room.clone(),
            author,
            client_msg_id: key.clone(),
            text,
            reply_to: publish.reply_to,
        });
        let reply = ReplyTo::Conn { conn: self.key(slot), request };
        match self.shared.shard.command(reply, command) {
            Ok(()) => {
                if answered.is_some() {
                    self.renew_taste(slot, answered);
                }
                if let Some(viewer) = self.viewer(slot) {
                    viewer.rare().asked.push_back(Asked { request, room: room.clone(), client_msg_id: key });
                }
            }
            Err(Overloaded(delay)) => {
                let mut json = Vec::new();
                event::ErrorEvent {
                    room: Some(room),
                    code: ErrorCode::Overloaded.name(),
                    message: "the writer's queue is full",
                    client_msg_id: Some(&key),
                    retry_after_ms: Some(delay.retry_after.as_millis() as u64),
                }
                .write(&mut json);
                self.say(slot, Out::loose("error", json));
            }
        }
    }

    /// The facts of a room are here: what was said meanwhile is asked now, in order.
    pub(super) fn publish_early(&mut self, slot: usize) {
        let Some(viewer) = self.viewer(slot) else { return };
        let Some(rare) = &mut viewer.rare else { return };
        for (room, publish) in std::mem::take(&mut rare.early) {
            self.publish(slot, &room, publish);
        }
    }

    pub(super) fn on_answer(&mut self, slot: usize, request: u64, answer: Answer) {
        let now = self.now;
        let Some(viewer) = self.viewer(slot) else { return };
        let max = viewer.asked_max();
        let who = viewer.identity.clone();
        let Some(rare) = &mut viewer.rare else { return };
        // Answers come in the order of asking, all but those that moderation holds.
        let Some(at) = rare.asked.iter().position(|a| a.request == request) else { return };
        let Some(Asked { room, client_msg_id, .. }) = rare.asked.remove(at) else { return };
        if rare.asked.is_empty() {
            rare.asked = VecDeque::new();
        }
        let mut events = Vec::with_capacity(2);
        let fate = match &answer {
            Answer::Raw { raw_id, fate: None, .. } => {
                rare.wait_for(room.clone(), client_msg_id.clone(), *raw_id, max);
                None
            }
            Answer::Raw { fate, .. } => *fate,
            _ => None,
        };
        if let Some(who) = who.filter(|who| !who.is_backend()) {
            self.early.note(&room, &who.user, &answer, now);
        }
        events.push(said(&room, &client_msg_id, answer));
        events.extend(fate.map(|fate| committed(&room, &client_msg_id, fate.event_id())));
        let bytes = frames::encode(Transport::WebSocket, &events);
        // A commit answers many at once: what one connection is told goes out in one write.
        self.answers.entry(slot as u32).or_default().extend_from_slice(&bytes);
    }

    /// A comment of a wide room is decided.
    pub(super) fn on_fate(&mut self, slot: usize, room: &RoomId, key: &ClientMsgId, event_id: Option<EventId>) {
        if let Some(viewer) = self.viewer(slot) {
            if let Some(rare) = &mut viewer.rare {
                rare.awaited.remove(&(room.clone(), key.clone()));
            }
            let bytes = frames::encode(Transport::WebSocket, &[committed(room, key, event_id)]);
            self.answers.entry(slot as u32).or_default().extend_from_slice(&bytes);
        }
    }

    /// A comment that was held is not shown.
    pub(super) fn on_refused(&mut self, slot: usize, room: &RoomId, key: &ClientMsgId) {
        if self.viewer(slot).is_some() {
            let mut json = Vec::with_capacity(128);
            event::ModerationFailed { room, client_msg_id: key, reason: "the comment was not accepted" }
                .write(&mut json);
            let bytes = frames::encode(Transport::WebSocket, &[Out::loose("moderation_failed", json)]);
            self.answers.entry(slot as u32).or_default().extend_from_slice(&bytes);
        }
    }

    /// Whoever may speak may react, at a user's rate. Nobody is answered but who is refused.
    fn react(&mut self, slot: usize, room: &RoomId, target: EventId) {
        let info = self.room_ids.get(room).and_then(|&idx| self.rooms[idx].info.clone());
        // Before the room's facts are here nothing of it was seen to react to.
        let Some(info) = info else { return };
        let who = self.viewer(slot).and_then(|viewer| viewer.identity.clone());
        let who = who.filter(|who| auth::may_publish(Some(who), room, &info.settings).is_ok());
        let Some(who) = who else {
            let what = "reacting in this room is not open to you";
            return self.say(slot, event_error(Some(room), ErrorCode::NotAllowed, what, None));
        };
        if let Err(refused) = self.shared.shard.likes().react(room, &who.user, self.now) {
            return self.refuse_counted(slot, room, refused);
        }
        if !self.away {
            let react = React { room: room.clone(), user: who.user.clone(), target };
            // A full queue loses it: nothing is kept of a reaction, and nobody is told of one.
            let _ = self.shared.shard.command(ReplyTo::Nobody, Command::React(react));
        }
    }

    /// Whoever has a name may report. Nobody is answered but who may not.
    fn report(&mut self, slot: usize, room: RoomId, report: Report) {
        let info = self.room_ids.get(&room).and_then(|&idx| self.rooms[idx].info.clone());
        // Before the room's facts are here nothing of it was seen to report.
        let Some(info) = info else { return };
        let who = self.viewer(slot).and_then(|viewer| viewer.identity.clone());
        let place = self.regions.get(&(slot as u32)).copied();
        let may = |who: &Arc<Identity>| auth::permit::may_view(Some(who), place, &room, &info.settings).is_ok();
        let who = who.filter(may);
        let Some(who) = who else {
            let what = "only users with a name may report";
            return self.say(slot, event_error(Some(&room), ErrorCode::NotAllowed, what, None));
        };
        if !self.away {
            let report = ReportIn { room, user: who.user.clone(), report };
            // A full queue loses it, as it would a reaction: the viewer can report again.
            let _ = self.shared.shard.command(ReplyTo::Nobody, Command::Report(report));
        }
    }

    /// Writes the answers of this round.
    pub(super) fn send_answers(&mut self) {
        for (slot, bytes) in std::mem::take(&mut self.answers) {
            let slot = slot as usize;
            self.guarded(slot, |w| {
                w.send(slot, bytes.into());
                if w.draining && w.viewer(slot).is_some_and(|v| !v.awaits_answers()) {
                    w.close(slot, CloseCode::Drain);
                }
            });
        }
    }

    // ---- time ------------------------------------------------------------------------------------------------

    pub(super) fn on_viewer_timer(&mut self, slot: usize) {
        let (now, wall) = (self.now, self.wall);
        let Some(viewer) = self.viewer(slot) else { return };
        if viewer.reader.half_read_since().is_some_and(|since| now.since(since) > Limits::FROM_CLIENT.assembly) {
            return self.fail(slot, ws::Fault::TooSlow);
        }
        if viewer.transport == Transport::Poll {
            self.pass_holds(slot);
            return self.answer_poll_if_due(slot);
        }
        self.let_late(slot);
        loop {
            let Some(viewer) = self.viewer(slot) else { return };
            match viewer.session.on_deadline(now, wall) {
                Action::Quiet => break,
                action => self.act(slot, action, None),
            }
        }
        self.pass_holds(slot);
        self.check_late(slot);
        self.keep_alive(slot);
    }

    /// A viewer that takes nothing: closed when a priority event has waited too long for it.
    fn check_late(&mut self, slot: usize) {
        let Some(conn) = self.conns.get(slot) else { return };
        if !conn.blocked && conn.out.is_empty() {
            return;
        }
        let Some(viewer) = self.viewer(slot) else { return };
        let seats: Vec<(usize, usize)> = viewer
            .members()
            .filter(|m| m.seat != super::viewer::NOWHERE)
            .map(|m| (m.room as usize, m.seat as usize))
            .collect();
        for (room, seat) in seats {
            if self.conns.get(slot).is_some_and(|c| matches!(c.kind, Kind::Viewer(_))) {
                self.bring(room, seat);
            }
        }
    }

    fn keep_alive(&mut self, slot: usize) {
        let now = self.now;
        let Some(conn) = self.conns.get_mut(slot) else { return };
        let held_up = conn.blocked || !conn.out.is_empty();
        let Kind::Viewer(viewer) = &mut conn.kind else { return };
        if now < viewer.alive_at || viewer.opening.is_some() {
            return;
        }
        match viewer.transport {
            Transport::WebSocket if viewer.pinged => {
                // Nothing was heard since the ping: half open, or as good as that.
                self.drop_conn(slot);
            }
            Transport::WebSocket => {
                viewer.pinged = true;
                viewer.alive_at = now + PONG_WAIT;
                if !held_up {
                    let mut ping = Vec::with_capacity(2);
                    ws::write_frame(Opcode::Ping, b"", &mut ping);
                    self.send(slot, ping.into());
                }
            }
            Transport::Sse => {
                let next = self.next_ping(Transport::Sse);
                if let Some(viewer) = self.viewer(slot) {
                    viewer.alive_at = next;
                }
                if held_up {
                    return;
                }
                let mut line = Vec::with_capacity(16);
                sse::comment("keepalive", &mut line);
                self.send(slot, Bytes::from(line));
            }
            Transport::Poll => {}
        }
    }
}

/// What comes with an operation and is no business of the session.
pub(super) enum Payload {
    Publish(op::Publish),
    Like(op::Like),
    /// To this event.
    React(EventId),
    Report(Report),
    Identity(Arc<Identity>),
}

fn token_fault(code: CloseCode) -> TokenFault {
    match code {
        CloseCode::TokenExpired => TokenFault::Expired,
        CloseCode::NotReady => TokenFault::Unsure,
        _ => TokenFault::Bad,
    }
}

/// Who speaks, as the owner judges them.
fn author_of(who: &Identity, room: &RoomId) -> Author {
    let standing = if who.is_backend() {
        Standing::Backend
    } else if auth::may_moderate(Some(who), room).is_ok() {
        Standing::Moderator
    } else {
        Standing::Viewer
    };
    Author { user: who.user.clone(), display: who.display(), badges: who.badges(), standing }
}

/// The owner's answer as the client is told it.
fn said(room: &RoomId, key: &ClientMsgId, answer: Answer) -> Out<'static> {
    let mut json = Vec::with_capacity(192);
    let millis = |d: Duration| d.as_millis() as u64;
    let kind = match answer {
        Answer::Published { event_id, partition, offset, duplicate } => {
            let ids = event::AckId::Event(event_id);
            event::PublishAck { room, client_msg_id: key, id: ids, partition, offset, duplicate }.write(&mut json);
            "publish_ack"
        }
        Answer::Raw { raw_id, partition, duplicate, .. } => {
            let (id, offset) = (event::AckId::Raw(raw_id), raw_id.seq());
            event::PublishAck { room, client_msg_id: key, id, partition, offset, duplicate }.write(&mut json);
            "publish_ack"
        }
        // No time to come back after: what becomes of it is told.
        Answer::Held { .. } => {
            event::ModerationPending { room, client_msg_id: key, retry_after_ms: None }.write(&mut json);
            "moderation_pending"
        }
        Answer::Pending { retry_after } => {
            event::ModerationPending { room, client_msg_id: key, retry_after_ms: Some(millis(retry_after)) }
                .write(&mut json);
            "moderation_pending"
        }
        Answer::Reject(Reject { code, message, retry_after, .. }) => {
            let retry_after_ms = retry_after.map(millis);
            match rate(code) {
                Some(reason) => {
                    let retry_after_ms = retry_after_ms.unwrap_or(1_000);
                    event::RateLimited { room, client_msg_id: Some(key), retry_after_ms, reason }.write(&mut json);
                    "rate_limited"
                }
                None if code == Code::ModerationFailed => {
                    event::ModerationFailed { room, client_msg_id: key, reason: &message }.write(&mut json);
                    "moderation_failed"
                }
                None => {
                    let code = code.name();
                    event::ErrorEvent {
                        room: Some(room),
                        code,
                        message: &message,
                        client_msg_id: Some(key),
                        retry_after_ms,
                    }
                    .write(&mut json);
                    "error"
                }
            }
        }
        // Answers to what no publish asks.
        Answer::Score { .. }
        | Answer::Gift { .. }
        | Answer::Banner { .. }
        | Answer::Match { .. }
        | Answer::Room { .. }
        | Answer::Done { .. } => {
            event::ErrorEvent {
                room: Some(room),
                code: ErrorCode::ServerFault.name(),
                message: "an answer to something else",
                client_msg_id: Some(key),
                retry_after_ms: None,
            }
            .write(&mut json);
            "error"
        }
    };
    Out::loose(kind, json)
}

fn committed(room: &RoomId, key: &ClientMsgId, event_id: Option<EventId>) -> Out<'static> {
    let mut json = Vec::with_capacity(128);
    event::PublishCommit { room, client_msg_id: key, event_id }.write(&mut json);
    Out::loose("publish_commit", json)
}

fn rate(code: Code) -> Option<RateReason> {
    match code {
        Code::SlowMode => Some(RateReason::SlowMode),
        Code::UserRate => Some(RateReason::UserRate),
        Code::RoomRate => Some(RateReason::RoomRate),
        Code::IpRate => Some(RateReason::IpRate),
        _ => None,
    }
}
