//! A viewer's way in: request, credentials, room, cursor, hello; and its way out.
//!
//! ```text
//! request ─► (hello) ─► room's facts ─► allowed? counted? ─► cursor: ring │ log's pages ─► hello ─► roster
//! ```
//!
//! The room is subscribed before the cursor is judged, so whatever is committed meanwhile waits in the ring: pages of the log
//! and the ring overlap, never gap. What a client must be able to read is said on the stream; a bare HTTP status is kept for
//! what nobody should repeat.
//!
//! The awkward case is the wait for the room's facts: until they are here nothing was written, so a missing token can still
//! be answered by 401.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use grandstand_core::ids::{Position, Pseq};
use grandstand_core::names::RoomId;
use grandstand_core::record::Lane;
use grandstand_core::time::Mono;
use grandstand_core::viewer::resume::{self, Answer};
use grandstand_core::viewer::session::{Credential, Session, Start};
use grandstand_core::viewer::walk::{Place, Skipped};
use grandstand_wire::codes::{CloseCode, ErrorCode};
use grandstand_wire::http::{self, Head};
use grandstand_wire::limits;
use grandstand_wire::ws::{self, FrameReader, Opcode};
use grandstand_wire::{event, sse};

use super::conn::Kind;
use super::frames::{self, Out};
use super::polls::Line;
use super::renewal::session_name;
use super::streams;
use super::viewer::{Hold, Joining, Member, NOWHERE, Opening, PollCall, Rare, Stage, Viewer};
use super::web;
use super::worker::{LINGER, Worker};
use crate::admission;
use crate::auth::token::AuthFault;
use crate::auth::{self, Denied, Identity, Role, door};
use crate::failpoint;
use crate::link::{Delay, Page, Piece, ReadRefused, Resumed};
use crate::metrics::{self, ByLane, Hop, Transport};

/// Whether a path is one of the streams' routes.
pub fn is_stream_path(path: &str) -> bool {
    split(path).is_some()
}

fn split(path: &str) -> Option<(&str, Route)> {
    let (room, rung) = path.strip_prefix("/v1/rooms/")?.split_once('/')?;
    let route = match rung {
        "stream" => Route::Stream(Transport::WebSocket),
        "sse" => Route::Stream(Transport::Sse),
        "poll" => Route::Stream(Transport::Poll),
        "auth" => Route::Renewal,
        _ => return None,
    };
    Some((room, route))
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Route {
    Stream(Transport),
    /// A new token for a stream that cannot speak.
    Renewal,
}

/// Who a request is from, or why that cannot be said.
enum Who {
    Nobody,
    Known(Arc<Identity>),
    Ticket(crate::auth::ticket::Admitted),
    Refused(CloseCode),
}

impl Worker {
    /// A request for a stream route. `more`: bytes follow it that were sent before the answer.
    pub(super) fn open_stream(&mut self, slot: usize, head: &Head<'_>, body: &[u8], more: bool) {
        let keep_alive = head.keep_alive;
        let Some((room, route)) = split(head.path()) else { return };
        let is_stream = matches!(route, Route::Stream(_)) && head.method == "GET";
        if is_stream {
            metrics::add(&self.shared.metrics.requested, 1);
        }
        // An answer to HEAD has no body, whatever it says: one would be read as the start of the next answer.
        let bodiless = head.method == "HEAD";
        let deny = |w: &mut Worker, code: ErrorCode, detail: &str, headers: &[(&str, &str)]| {
            if is_stream {
                w.shared.metrics.add_denied(code);
            }
            let whole = web::problem(code, detail, keep_alive, headers);
            w.answer(slot, if bodiless { web::head_of(&whole) } else { whole }, keep_alive);
        };
        let origins = head.headers().filter(|h| h.name.eq_ignore_ascii_case("origin")).map(|h| h.value);
        let host = head.header("host");
        if !door::may_enter(origins, host, &self.shared.settings.origins) {
            return deny(self, ErrorCode::BadOrigin, "this page may not connect", &[]);
        }
        if self.shared.settings.development && !host.is_some_and(door::is_loopback_host) {
            return deny(self, ErrorCode::BadOrigin, "development mode is reached by a loopback name", &[]);
        }
        // A page of another origin, listed; it must be named in the answer for the browser to hand it over.
        let origin = head.header("origin").map(str::to_owned);
        let refuse = |w: &mut Worker, code: ErrorCode, detail: &str| deny(w, code, detail, &cors(origin.as_deref()));
        if head.method == "OPTIONS" && route != Route::Stream(Transport::WebSocket) {
            return self.answer(slot, preflight(origin.as_deref(), keep_alive), keep_alive);
        }
        let method = if route == Route::Renewal { "POST" } else { "GET" };
        if head.method != method {
            let mut headers = cors(origin.as_deref());
            headers.push(("allow", method));
            return deny(self, ErrorCode::BadMethod, "not by this method", &headers);
        }
        let Some(room) = RoomId::parse(room) else { return refuse(self, ErrorCode::BadRoom, RoomId::RULE) };
        let transport = match route {
            Route::Stream(transport) => transport,
            Route::Renewal => return self.ask_renewal(slot, room, body, origin.as_deref(), keep_alive),
        };
        let mut accept = None;
        if transport == Transport::WebSocket {
            match http::upgrade(head) {
                // Nothing may come between the request and its answer; what did is not guessed at.
                Ok(Some(_)) if more => {
                    let refusal = http::Refusal { status: 400, reason: "bytes before the upgrade's answer" };
                    return self.refuse_request(slot, refusal);
                }
                Ok(Some(upgrade)) => accept = Some(upgrade.accept),
                Ok(None) => {
                    let refusal = http::Refusal { status: 426, reason: "this route is a WebSocket" };
                    return self.refuse_request(slot, refusal);
                }
                Err(refusal) => return self.refuse_request(slot, refusal),
            }
        }
        let query = head.query();
        if http::query_value(query, "token").is_some() || http::query_value(query, "access_token").is_some() {
            return refuse(self, ErrorCode::BadRequest, "a token does not belong in a URL; ask for a ticket");
        }
        let cursor_text = match transport {
            Transport::Poll => http::query_value(query, "since"),
            _ => head
                .header("last-event-id")
                .filter(|text| !text.is_empty())
                .map(str::to_owned)
                .or_else(|| http::query_value(query, "last_event_id")),
        };
        let Ok(cursor) = cursor_text.as_deref().map(|t| Position::parse(t).ok_or(())).transpose() else {
            return refuse(self, ErrorCode::BadCursor, "a cursor is a decimal integer from 0 to 2^53 - 1");
        };
        let timeout = match http::query_value(query, "timeout").map(|t| t.parse::<u64>()) {
            None => limits::POLL_TIMEOUT_DEFAULT,
            Some(Ok(seconds)) => Duration::from_secs(seconds).clamp(limits::POLL_TIMEOUT_MIN, limits::POLL_TIMEOUT_MAX),
            Some(Err(_)) => return refuse(self, ErrorCode::BadRequest, "timeout is 1 to 30 seconds"),
        };
        let tab = http::query_value(query, "tab").unwrap_or_default();
        if tab.len() > 64 || tab.chars().any(char::is_control) {
            return refuse(self, ErrorCode::BadRequest, "tab is at most 64 bytes");
        }
        let offered = head.list("sec-websocket-protocol").any(|p| p == "grandstand.v1");
        let (identity, stub, refused) = match self.who(head, &room, cursor.is_some()) {
            Who::Nobody => (None, None, None),
            Who::Known(identity) => (Some(identity), None, None),
            Who::Ticket(admitted) => (Some(admitted.identity), Some(admitted.stub), None),
            Who::Refused(code) => (None, None, Some(code)),
        };
        let now = self.now;
        let start = Start {
            room: room.clone(),
            credential: identity.as_deref().map(credential),
            offers_subprotocol: offered && transport == Transport::WebSocket,
            // Asked of the room's own settings when they are here.
            anonymous_view: true,
            cursor: cursor.unwrap_or_default(),
        };
        let Ok((session, action)) = Session::new(start, now, &mut self.rng) else {
            return refuse(self, ErrorCode::NoToken, "credentials are needed here");
        };
        let client = self.conns[slot].client;
        let poll = (transport == Transport::Poll).then(|| {
            let caller = match &identity {
                Some(who) => format!("u{}", who.user),
                None => format!("a{client}"),
            };
            // Anonymous callers without a tab may be many behind one address: each is its own line.
            let own = if identity.is_none() && tab.is_empty() { self.rng.next().to_string() } else { String::new() };
            PollCall {
                since: cursor,
                line: Line::of(&format!("{caller}{own}"), room.as_str(), &tab),
                skipped: None,
                not_before: now,
                until: now + timeout,
            }
        });
        // A call that waits keeps no bytes of a next request: its answer says that the caller must ask again.
        let keep_alive = keep_alive && !more;
        let nonce = self.rng.next();
        let viewer = Viewer {
            transport,
            session,
            identity,
            nonce,
            reader: FrameReader::new(),
            held: None,
            rare: stub.map(|stub| Box::new(Rare { stub: Some(stub), ..Rare::default() })),
            first: Member::nowhere(),
            opening: Some(Box::new(Opening { accept, offered, origin, keep_alive, poll })),
            alive_at: now + limits::PING_MAX,
            pinged: false,
            control: now,
            session_at: None,
        };
        self.conns[slot].kind = Kind::Viewer(Box::new(viewer));
        self.count_stream(transport, 1);
        if let Some(code) = refused {
            return self.close(slot, code);
        }
        if self.draining || self.shared.admission.is_draining() {
            self.shared.metrics.add_refused(metrics::Refused::Drain);
            return self.close(slot, CloseCode::Drain);
        }
        if !self.shared.shard.status().ready() {
            return self.close(slot, CloseCode::NotReady);
        }
        self.act(slot, action, None);
        self.schedule_live(slot);
    }

    /// Reads the credentials of a request: header, subprotocol, ticket; the first that is there counts.
    fn who(&mut self, head: &Head<'_>, room: &RoomId, resumes: bool) -> Who {
        let bearer = head.header("authorization").map(|value| {
            let (scheme, token) = value.split_once(' ').unwrap_or((value, ""));
            if scheme.eq_ignore_ascii_case("bearer") { token.trim() } else { "" }
        });
        let token = bearer.or_else(|| head.list("sec-websocket-protocol").find_map(|p| p.strip_prefix("bearer.")));
        if let Some(token) = token {
            return match self.verify(token) {
                Ok(identity) => Who::Known(identity),
                Err(code) => Who::Refused(code),
            };
        }
        let Some(ticket) = http::query_value(head.query(), "ticket") else { return Who::Nobody };
        match self.shared.tickets.admit(&ticket, room, resumes, self.wall) {
            Ok(admitted) => Who::Ticket(admitted),
            Err(auth::ticket::Fault::Full) => Who::Refused(CloseCode::TooMany),
            Err(auth::ticket::Fault::Spent) => Who::Refused(CloseCode::TokenExpired),
            Err(_) => Who::Refused(CloseCode::NotAllowed),
        }
    }

    /// Errors: the close code a refused token is answered with.
    pub(super) fn verify(&self, token: &str) -> Result<Arc<Identity>, CloseCode> {
        match self.shared.verifier.verify(token, self.wall) {
            Ok(identity) if identity.may_open_stream(self.wall) => Ok(identity),
            Ok(_) | Err(AuthFault::Expired) => Err(CloseCode::TokenExpired),
            Err(_) => Err(CloseCode::NotAllowed),
        }
    }

    // ---- into a room -----------------------------------------------------------------------------------------

    /// Sends a viewer on its way into a room.
    pub(super) fn join(&mut self, slot: usize, room: RoomId, cursor: Position) {
        let Some(viewer) = self.viewer(slot) else { return };
        let member = if viewer.first.room == NOWHERE && viewer.first.joining.is_none() {
            0
        } else {
            viewer.rare().others.push(Member::nowhere());
            viewer.n_members() - 1
        };
        let stage = Stage::Held(Hold::BeforeSubscribe);
        viewer.member_mut(member).joining = Some(Box::new(Joining { room, cursor, stage, page: None, skipped: None }));
        self.pass_hold(slot, member);
    }

    /// Goes on behind a failpoint, unless it still holds.
    fn pass_hold(&mut self, slot: usize, member: usize) {
        let Some(viewer) = self.viewer(slot) else { return };
        let Some(joining) = &viewer.member_mut(member).joining else { return };
        let Stage::Held(hold) = joining.stage else { return };
        if failpoint::holds(hold.name()) {
            return self.schedule(slot);
        }
        match hold {
            Hold::BeforeSubscribe => self.subscribe(slot, member),
            Hold::BeforeRead => self.ask_resume(slot, member),
            Hold::BetweenPages { place, .. } | Hold::BeforeLive { place } if self.is_poll(slot) => {
                self.give_poll_page(slot, place);
            }
            Hold::BetweenPages { place, comments_from } => self.ask_page(slot, member, place, comments_from),
            Hold::BeforeLive { place } => self.go_live(slot, member, place),
        }
    }

    fn subscribe(&mut self, slot: usize, member: usize) {
        let Some(viewer) = self.viewer(slot) else { return };
        let Some(joining) = &mut viewer.member_mut(member).joining else { return };
        joining.stage = Stage::Room;
        let room = joining.room.clone();
        let idx = self.room_place(&room);
        let generation = self.conns[slot].generation;
        let Some(viewer) = self.viewer(slot) else { return };
        viewer.member_mut(member).room = idx as u32;
        let place = &mut self.rooms[idx];
        place.n_members += 1;
        if place.info.is_some() {
            self.admit(slot, idx);
        } else {
            place.waiting.push((slot as u32, generation));
        }
    }

    /// The room's facts are here: may this viewer come in, and from where?
    pub(super) fn admit(&mut self, slot: usize, idx: usize) {
        let Some(info) = self.rooms[idx].info.clone() else { return };
        let Some(viewer) = self.viewer(slot) else { return };
        let Some(member) = viewer.member_of(idx) else { return };
        let opens = viewer.opening.is_some();
        match auth::may_view(viewer.identity.as_deref(), &info.room, &info.settings) {
            Ok(()) => {}
            Err(denied) if member == 0 => {
                let unanswered = viewer.opening.as_ref().is_some_and(|o| o.accept.is_some() || o.poll.is_some());
                let sse_unanswered = viewer.transport == Transport::Sse && opens;
                if denied == Denied::NeedsToken && (unanswered || sse_unanswered) {
                    self.shared.metrics.add_denied(ErrorCode::NoToken);
                    return self.refuse_stream(slot, ErrorCode::NoToken, "credentials are needed here");
                }
                return self.close(slot, CloseCode::NotAllowed);
            }
            Err(_) => {
                let error = event_error(Some(&info.room), ErrorCode::NotAllowed, "the room is not open to you", None);
                self.say(slot, error);
                if let Some(viewer) = self.viewer(slot) {
                    viewer.session.forget(&info.room);
                }
                return self.leave_member(slot, member);
            }
        }
        if member == 0 {
            let anonymous_view = info.settings.anonymous_view;
            viewer.session.set_anonymous_view(anonymous_view);
            if let Err(full) = self.count_in(slot, idx) {
                self.shared.metrics.add_refused(match full {
                    streams::Full::User => metrics::Refused::User,
                    streams::Full::Address => metrics::Refused::Address,
                    streams::Full::Total => metrics::Refused::Connections,
                    streams::Full::Room => metrics::Refused::Room,
                });
                return self.close(slot, CloseCode::TooMany);
            }
            if let Err(refused) = self.take_turn(slot, idx) {
                self.shared.metrics.add_refused(match refused.closed {
                    true => metrics::Refused::Closed,
                    false => metrics::Refused::Rate,
                });
                return self.close_with(slot, CloseCode::TooMany, Some(refused.delay));
            }
            metrics::add(&self.shared.metrics.admitted, 1);
        } else if !viewer.identity.as_ref().is_some_and(|who| who.is_backend())
            && self.shared.streams.is_room_full(&self.rooms[idx].tally)
        {
            self.shared.metrics.add_refused(metrics::Refused::Room);
            let error = event_error(Some(&info.room), ErrorCode::TooMany, "the room is full", None);
            self.say(slot, error);
            if let Some(viewer) = self.viewer(slot) {
                viewer.session.forget(&info.room);
            }
            return self.leave_member(slot, member);
        }
        self.judge_cursor(slot, member, idx);
        self.publish_early(slot);
    }

    /// Takes the new stream's place in the rate of new streams. A backend has no limit; a poll on a line that was answered
    /// lately is no new stream.
    /// Errors: how long the client stays away.
    fn take_turn(&mut self, slot: usize, idx: usize) -> Result<(), admission::Refused> {
        let now = self.now;
        let Some(viewer) = self.viewer(slot) else { return Ok(()) };
        let backend = viewer.identity.as_ref().is_some_and(|who| who.is_backend());
        let line = viewer.opening.as_ref().and_then(|o| o.poll.as_ref()).map(|call| call.line);
        if backend || line.is_some_and(|line| self.shared.polls.goes_on(line, now)) {
            return Ok(());
        }
        let tally = &self.rooms[idx].tally;
        let viewers = tally.viewers.load(Ordering::Relaxed).max(0) as u64;
        self.shared.admission.admit(&tally.demand, viewers, now)
    }

    /// Counts the stream against its user's, its address's, its room's and the gateway's limits.
    /// Errors: the limit that is reached.
    fn count_in(&mut self, slot: usize, idx: usize) -> Result<(), streams::Full> {
        let client = self.conns[slot].client;
        let exempt = door::is_exempt(client, &self.shared.settings.exempt);
        let Some(viewer) = self.viewer(slot) else { return Ok(()) };
        if viewer.held.is_some() {
            return Ok(());
        }
        let who = viewer.identity.as_ref();
        let backend = who.is_some_and(|w| w.is_backend());
        let user = who.filter(|_| !backend).map(|w| w.user.clone());
        let address = (!exempt && !backend).then_some(client);
        // Who has no limit at all takes no memory for one.
        if backend || (user.is_none() && address.is_none() && !self.shared.streams.counts_all()) {
            return Ok(());
        }
        let held = self.shared.streams.enter(user, address, &self.rooms[idx].tally)?;
        if let Some(viewer) = self.viewer(slot) {
            viewer.held = Some(Box::new(held));
        }
        Ok(())
    }

    fn judge_cursor(&mut self, slot: usize, member: usize, idx: usize) {
        let now = self.now;
        let Some(viewer) = self.viewer(slot) else { return };
        let Some(joining) = &viewer.member_mut(member).joining else { return };
        let cursor = joining.cursor;
        let room = &self.rooms[idx];
        let window =
            Duration::from_secs(room.info.as_ref().map_or(300, |i| u64::from(i.settings.resume_window_seconds)));
        let answer = if cursor == Position::START {
            Some(Answer::Live { from: room.ring.head(), pseq: room.ring.pseq() })
        } else {
            resume::from_ring(&room.ring, cursor, window, now)
        };
        match answer {
            Some(answer) => {
                if matches!(answer, Answer::Resumed { .. }) {
                    self.shared.metrics.add_resumed(metrics::Resumed::FromRing);
                }
                self.begin(slot, member, idx, &answer, None);
            }
            None => {
                if let Some(viewer) = self.viewer(slot)
                    && let Some(joining) = &mut viewer.member_mut(member).joining
                {
                    joining.stage = Stage::Held(Hold::BeforeRead);
                }
                self.pass_hold(slot, member);
            }
        }
    }

    fn ask_resume(&mut self, slot: usize, member: usize) {
        self.n_requests += 1;
        let request = self.n_requests;
        let key = self.key(slot);
        let Some(viewer) = self.viewer(slot) else { return };
        let Some(joining) = &mut viewer.member_mut(member).joining else { return };
        joining.stage = Stage::Resume { request };
        let (room, cursor) = (joining.room.clone(), joining.cursor);
        if self.shared.shard.resume(key, request, room, cursor).is_err() {
            self.close(slot, CloseCode::NotReady);
        }
    }

    pub(super) fn on_resume(&mut self, slot: usize, request: u64, room: &RoomId, answer: Result<Resumed, ReadRefused>) {
        let Some(&idx) = self.room_ids.get(room) else { return };
        let Some(viewer) = self.viewer(slot) else { return };
        let Some(member) = viewer.member_of(idx) else { return };
        let Some(joining) = &viewer.member_mut(member).joining else { return };
        if !matches!(joining.stage, Stage::Resume { request: asked } if asked == request) {
            return;
        }
        match answer {
            Ok(Resumed { answer, first }) => {
                if matches!(answer, Answer::Resumed { .. }) {
                    self.shared.metrics.add_resumed(metrics::Resumed::FromLog);
                }
                self.begin(slot, member, idx, &answer, Some(&first));
            }
            Err(refused) => self.read_refused(slot, refused),
        }
    }

    /// The cursor was judged: hello, and what follows it. `first` is the log's first page, when the ring does not reach back.
    fn begin(&mut self, slot: usize, member: usize, idx: usize, answer: &Answer, first: Option<&Page>) {
        let snapshot = match answer {
            Answer::SnapshotRequired { reason, .. } => Some(reason.name()),
            _ => None,
        };
        match answer {
            Answer::Live { .. } => self.shared.metrics.add_resumed(metrics::Resumed::Live),
            Answer::SnapshotRequired { reason: resume::Reason::TooOld, .. } => {
                self.shared.metrics.add_resumed(metrics::Resumed::TooOld);
            }
            Answer::SnapshotRequired { .. } => self.shared.metrics.add_resumed(metrics::Resumed::UnknownCursor),
            // Counted where it is known from what.
            Answer::Resumed { .. } => {}
        }
        if let Answer::Resumed { skipped: Some(skipped), .. } = answer {
            metrics::add(&self.shared.metrics.skipped[Hop::Log as usize], skipped.count);
        }
        let (from, pseq) = answer.baseline();
        let place = answer.place();
        // What did not follow is told by hello's `some`; the page reader leaves the same comments out.
        let (resumed, skipped, comments_from) = match answer {
            Answer::Resumed { skipped, comments_after, .. } => (true, *skipped, *comments_after),
            _ => (false, None, from),
        };
        let page = first.filter(|_| resumed && place.position < self.rooms[idx].ring.head());
        if self.is_poll(slot) {
            let Some(page) = page else {
                return self.start_poll(slot, idx, place, snapshot.map(|reason| (reason, pseq)), skipped);
            };
            let joins = page.upto >= self.rooms[idx].ring.floor();
            let hold = if joins { Hold::BeforeLive { place } } else { Hold::BetweenPages { place, comments_from } };
            if let Some(viewer) = self.viewer(slot)
                && let Some(joining) = &mut viewer.member_mut(member).joining
            {
                joining.stage = Stage::Held(hold);
                joining.page = Some(Box::new(page.clone()));
                joining.skipped = skipped;
            }
            return self.pass_hold(slot, member);
        }
        self.greet(slot, idx, Greeting { from, pseq, resumed, skipped, snapshot });
        match page {
            Some(page) => self.take_page(slot, member, idx, place, comments_from, page),
            None => self.go_live(slot, member, place),
        }
    }

    fn read_refused(&mut self, slot: usize, refused: ReadRefused) {
        match refused {
            ReadRefused::NoRoom => self.close(slot, CloseCode::NoRoom),
            ReadRefused::Fault => self.close(slot, CloseCode::ServerFault),
            ReadRefused::Busy(delay) => self.close_with(slot, CloseCode::NotReady, Some(delay)),
        }
    }

    fn ask_page(&mut self, slot: usize, member: usize, place: Place, comments_from: Position) {
        self.n_requests += 1;
        let request = self.n_requests;
        let key = self.key(slot);
        let Some(viewer) = self.viewer(slot) else { return };
        let Some(joining) = &mut viewer.member_mut(member).joining else { return };
        joining.stage = Stage::Pages { place, comments_from, request: Some(request) };
        let room = joining.room.clone();
        if self.shared.shard.page(key, request, room, place.position, comments_from).is_err() {
            self.close(slot, CloseCode::NotReady);
        }
    }

    pub(super) fn on_page(&mut self, slot: usize, request: u64, room: &RoomId, answer: Result<Page, ReadRefused>) {
        let Some(&idx) = self.room_ids.get(room) else { return };
        let Some(viewer) = self.viewer(slot) else { return };
        let Some(member) = viewer.member_of(idx) else { return };
        let Some(joining) = &viewer.member_mut(member).joining else { return };
        let Stage::Pages { place, comments_from, request: Some(asked) } = joining.stage else { return };
        if asked != request {
            return;
        }
        match answer {
            Ok(page) => self.take_page(slot, member, idx, place, comments_from, &page),
            Err(refused) => self.read_refused(slot, refused),
        }
    }

    /// Writes one page of the log; what follows waits until it has left.
    fn take_page(
        &mut self,
        slot: usize,
        member: usize,
        idx: usize,
        mut place: Place,
        comments_from: Position,
        page: &Page,
    ) {
        assert!(page.upto >= place.position, "a page never goes back");
        let room = &self.rooms[idx];
        let Some(Kind::Viewer(viewer)) = self.conns.get_mut(slot).map(|c| &mut c.kind) else { return };
        let transport = viewer.transport;
        let reader = viewer.identity.clone();
        let reader = reader.as_ref().map(|who| &who.user);
        let is_given = |p: &Piece| place.wants(p.id, p.lane) && !(p.lane == Lane::Comment && room.is_retracted(p));
        let events: Vec<Out<'_>> = page.pieces.iter().filter(|p| is_given(p)).map(|p| Out::of(p, reader)).collect();
        let bytes = frames::encode(transport, &events);
        let mut n_events = ByLane::default();
        for piece in page.pieces.iter().filter(|p| is_given(p)) {
            n_events.add(piece.lane, 1);
        }
        let came_to_nothing = page.upto == place.position;
        place.advance_page(page.upto);
        if let Some(joining) = &mut viewer.member_mut(member).joining {
            joining.stage = Stage::Pages { place, comments_from, request: None };
        }
        let metrics = &self.shared.metrics;
        metrics.add_delivered(Hop::Log, n_events);
        if !bytes.is_empty() {
            metrics::add(&metrics.frames[transport as usize], 1);
            metrics::add(&metrics.bytes[transport as usize], bytes.len() as u64);
        }
        self.rooms[idx].tally.delivered.fetch_add(n_events.total(), Ordering::Relaxed);
        if came_to_nothing && page.upto < self.rooms[idx].ring.floor() {
            // The log ends before the ring begins and has nothing more to give: the two do not join.
            tracing::error!(room = %self.rooms[idx].id, upto = %page.upto, "the log does not reach the ring");
            return self.close(slot, CloseCode::ServerFault);
        }
        self.send(slot, bytes);
        if self.conns.get(slot).is_some_and(|c| c.out.is_empty()) {
            self.page_left(slot, member);
        }
    }

    /// A page has left: the next one, or the ring from here on.
    fn page_left(&mut self, slot: usize, member: usize) {
        let Some(viewer) = self.viewer(slot) else { return };
        let place_in = viewer.member_mut(member);
        let Some(joining) = &mut place_in.joining else { return };
        let Stage::Pages { place, comments_from, request: None } = joining.stage else { return };
        let idx = place_in.room as usize;
        let joins = place.position >= self.rooms[idx].ring.floor();
        let hold = if joins { Hold::BeforeLive { place } } else { Hold::BetweenPages { place, comments_from } };
        let Some(viewer) = self.viewer(slot) else { return };
        if let Some(joining) = &mut viewer.member_mut(member).joining {
            joining.stage = Stage::Held(hold);
        }
        self.pass_hold(slot, member);
    }

    fn go_live(&mut self, slot: usize, member: usize, place: Place) {
        let Some(viewer) = self.viewer(slot) else { return };
        let idx = viewer.member_mut(member).room as usize;
        // While a failpoint held, the ring may have moved on past this place.
        if place.position < self.rooms[idx].ring.floor() {
            let comments_from = place.catch_up.map_or(place.position, |c| c.comments_after);
            if let Some(viewer) = self.viewer(slot)
                && let Some(joining) = &mut viewer.member_mut(member).joining
            {
                joining.stage = Stage::Held(Hold::BetweenPages { place, comments_from });
            }
            return self.pass_hold(slot, member);
        }
        self.seat(slot, member, place);
        if failpoint::is_active() {
            // By a walk, so that a test can stop it there.
            return self.queue_walk(idx);
        }
        self.bring_member(slot, member);
    }

    fn bring_member(&mut self, slot: usize, member: usize) {
        let Some(viewer) = self.viewer(slot) else { return };
        let place_in = viewer.member_mut(member);
        if place_in.seat != NOWHERE {
            let (room, seat) = (place_in.room as usize, place_in.seat as usize);
            self.bring(room, seat);
        }
    }

    /// A catching-up viewer fell out of the ring: it reads the log again from its place.
    pub(super) fn back_to_the_log(&mut self, slot: usize, idx: usize) {
        let Some(viewer) = self.viewer(slot) else { return };
        let Some(member) = viewer.member_of(idx) else { return };
        let seat = viewer.member_mut(member).seat;
        if seat == NOWHERE {
            return;
        }
        let place = self.rooms[idx].seats[seat as usize].place;
        let room = self.rooms[idx].id.clone();
        let comments_from = place.catch_up.map_or(place.position, |c| c.comments_after);
        self.leave_seat(slot, member, idx);
        let Some(viewer) = self.viewer(slot) else { return };
        let stage = Stage::Held(Hold::BetweenPages { place, comments_from });
        viewer.member_mut(member).joining =
            Some(Box::new(Joining { room, cursor: place.position, stage, page: None, skipped: None }));
        self.pass_hold(slot, member);
    }

    /// Takes a viewer off the roster but not out of the room.
    fn leave_seat(&mut self, slot: usize, member: usize, idx: usize) {
        let Some(viewer) = self.viewer(slot) else { return };
        let place_in = viewer.member_mut(member);
        let left = Member { room: place_in.room, seat: place_in.seat, joining: None };
        place_in.seat = NOWHERE;
        self.rooms[idx].n_members += 1;
        self.unseat(&left);
    }

    /// All that was written to a viewer has left: it is brought to the head everywhere.
    pub(super) fn on_viewer_drained(&mut self, slot: usize) {
        let Some(viewer) = self.viewer(slot) else { return };
        for member in 0..viewer.n_members() {
            let Some(conn) = self.conns.get(slot) else { return };
            if !conn.out.is_empty() || conn.blocked {
                return;
            }
            let Some(viewer) = self.viewer(slot) else { return };
            if viewer.n_members() <= member {
                return;
            }
            let place_in = viewer.member_mut(member);
            if place_in.seat != NOWHERE {
                self.bring_member(slot, member);
            } else if place_in.joining.is_some() {
                self.page_left(slot, member);
            }
        }
    }

    /// Goes on behind failpoints that have let go.
    pub(super) fn pass_holds(&mut self, slot: usize) {
        let Some(viewer) = self.viewer(slot) else { return };
        for member in 0..viewer.n_members() {
            self.pass_hold(slot, member);
        }
    }

    // ---- what is said ----------------------------------------------------------------------------------------

    /// Answers the request, where that is still due, and says hello.
    fn greet(&mut self, slot: usize, idx: usize, greeting: Greeting) {
        let Some(info) = self.rooms[idx].info.clone() else { return };
        let mut events = vec![self.hello(slot, idx, &greeting)];
        if let Some(reason) = greeting.snapshot {
            events.push(snapshot_required(&info.room, reason, greeting.from, greeting.pseq));
        }
        let Some(viewer) = self.viewer(slot) else { return };
        if let Some(skipped) = &greeting.skipped {
            events.push(skipped_event(&info.room, skipped));
        }
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
        let viewers = room.tally.viewers.load(Ordering::Relaxed).max(0) as u64;
        let nonce = self.viewer(slot).map_or(0, |v| v.nonce);
        let mut counters = Vec::new();
        // The one who is greeted is not seated yet.
        event::Counters {
            room: &info.room,
            likes: &[],
            viewers: viewers + 1,
            keep_millionths: 1_000_000,
            as_of: self.wall,
        }
        .write_values(&mut counters);
        let mut json = Vec::with_capacity(640);
        event::Hello {
            room: &info.room,
            session: &session_name(self.key(slot), nonce),
            cursor: greeting.from,
            pseq: greeting.pseq,
            resumed: greeting.resumed,
            comments_all: greeting.skipped.is_none(),
            config: &info.config_json,
            counters: std::str::from_utf8(&counters).expect("JSON that was just written"),
            pinned: &info.pinned_json,
            banners: &info.banners_json,
        }
        .write(&mut json);
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
        self.again.push_back(slot as u32);
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
    fn refuse_stream(&mut self, slot: usize, code: ErrorCode, detail: &str) {
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
        let delay = (code == CloseCode::Drain).then_some(self.drain);
        self.close_with(slot, code, delay);
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
        let Some(opening) = viewer.opening.take() else { return };
        let seconds = retry.map_or(1, |(after, _)| after.div_ceil(1_000).max(1)).to_string();
        let mut headers = cors(opening.origin.as_deref());
        headers.push(("cache-control", "no-store"));
        headers.push(("retry-after", &seconds));
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
        let (held, stub) = (viewer.held.take(), viewer.rare.as_mut().and_then(|rare| rare.stub.take()));
        if let Some(held) = held {
            self.shared.streams.leave(&held);
        }
        if let Some(stub) = stub {
            self.shared.tickets.ended(stub, wall);
        }
    }

    /// Takes a viewer out of rooms, limits and tables. Its connection stays.
    pub(super) fn forget_viewer(&mut self, slot: usize) {
        self.give_back(slot);
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
    pub from: Position,
    pub pseq: Pseq,
    pub resumed: bool,
    pub skipped: Option<Skipped>,
    pub snapshot: Option<&'static str>,
}

/// What a session needs to know of an identity.
pub fn credential(identity: &Identity) -> Credential {
    let roles = identity.roles;
    let may_publish = [Role::Publisher, Role::RoomMod, Role::RegionOps, Role::Admin, Role::Backend]
        .into_iter()
        .any(|role| roles.has(role));
    Credential { user: identity.user.clone(), exp: identity.exp, may_publish, exempt: identity.is_backend() }
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
    let mut json = Vec::with_capacity(160);
    event::ErrorEvent { room, code: code.name(), message, client_msg_id, retry_after_ms: None }.write(&mut json);
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
        _ => ErrorCode::ServerFault,
    }
}

/// Headers that let a listed page read the answer.
pub fn cors(origin: Option<&str>) -> Vec<(&'static str, &str)> {
    origin.map_or_else(Vec::new, |origin| {
        vec![
            ("access-control-allow-origin", origin),
            ("access-control-expose-headers", "retry-after"),
            ("vary", "Origin"),
        ]
    })
}

fn preflight(origin: Option<&str>, keep_alive: bool) -> Bytes {
    let mut headers = cors(origin);
    headers.push(("access-control-allow-methods", "GET, POST"));
    headers.push(("access-control-allow-headers", "authorization, content-type, last-event-id, cache-control"));
    headers.push(("access-control-max-age", "600"));
    web::whole(204, "", &[], keep_alive, &headers)
}
