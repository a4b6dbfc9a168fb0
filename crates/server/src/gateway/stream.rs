//! A viewer's way in: request, credentials, room, limits.
//!
//! ```text
//! request ─► (hello) ─► room's facts ─► allowed? counted? ─► cursor (catch_up)
//! ```
//!
//! The room is subscribed before the cursor is judged, so whatever is committed meanwhile waits in the ring: pages of the log
//! and the ring overlap, never gap. What a client must be able to read is said on the stream; a bare HTTP status is kept for
//! what nobody should repeat.
//!
//! The awkward case is the wait for the room's facts: until they are here nothing was written, so a missing token can still
//! be answered by 401.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use grandstand_core::ids::Position;
use grandstand_core::names::RoomId;
use grandstand_core::regions::Region;
use grandstand_core::sampler::pick::ViewerKey;
use grandstand_core::viewer::session::{Credential, Session, Start};
use grandstand_wire::codes::{CloseCode, ErrorCode};
use grandstand_wire::deflate::{Agreed, Reach};
use grandstand_wire::http::{self, Head};
use grandstand_wire::limits;
use grandstand_wire::ws::FrameReader;

use super::conn::Kind;
use super::full::PLACES_ELSEWHERE;
use super::parts;
use super::polls::{Heard, Known, Line};
use super::renewal::session_name;
use super::said::event_error;
use super::streams::{self, Held};
use super::viewer::{Hold, Joining, Member, NOWHERE, Opening, PollCall, Rare, Stage, Viewer};
use super::web;
use super::worker::Worker;
use crate::admission;
use crate::auth::permit::{self, Permit};
use crate::auth::token::AuthFault;
use crate::auth::{self, Denied, Identity, Role, door};
use crate::failpoint;
use crate::metrics::{self, LastFailure, Transport};

const SESSION_BYTES_MAX: usize = 64;

/// Whether a path is one of the streams' routes.
pub fn is_stream_path(path: &str) -> bool {
    split(path).is_some()
}

/// The transport of which a path is the stream.
pub fn transport_of(path: &str) -> Option<Transport> {
    match split(path)?.1 {
        Route::Stream(transport) => Some(transport),
        Route::Renewal => None,
    }
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

/// A room id as it stands in a path: of its characters clients write the colon alone as a percent code.
fn room_id(segment: &str) -> Cow<'_, str> {
    match segment.contains('%') {
        false => segment.into(),
        true => segment.replace("%3A", ":").replace("%3a", ":").into(),
    }
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
    /// A request for a stream route. `more`: bytes follow it that were sent before the answer. `over`: the process holds no
    /// more sockets.
    pub(super) fn open_stream(&mut self, slot: usize, head: &Head<'_>, body: &[u8], more: bool, over: bool) {
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
        let Some(room) = self.room_named(&room_id(room)) else { return refuse(self, ErrorCode::BadRoom, RoomId::RULE) };
        let transport = match route {
            Route::Stream(transport) => transport,
            Route::Renewal => return self.ask_renewal(slot, room, body, origin.as_deref(), keep_alive),
        };
        let (mut accept, mut deflate) = (None, None);
        if transport == Transport::WebSocket {
            match http::upgrade(head) {
                // Nothing may come between the request and its answer; what did is not guessed at.
                Ok(Some(_)) if more => {
                    let refusal = http::Refusal { status: 400, reason: "bytes before the upgrade's answer" };
                    return self.refuse_request(slot, refusal);
                }
                Ok(Some(upgrade)) => {
                    accept = Some(upgrade.accept);
                    deflate = upgrade.deflate.filter(|_| self.shared.settings.deflate);
                }
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
        // A client that does not count, or counts wrongly, is not counted: it is no reason to refuse it.
        if let Some(attempt) = http::query_value(query, "attempt").and_then(|n| n.parse::<u64>().ok()) {
            let failure = LastFailure::said(http::query_value(query, "failure").as_deref());
            self.shared.metrics.attempts.add(transport, attempt, failure);
        }
        let first_session = http::query_value(query, "session").filter(|name| !name.is_empty());
        if first_session
            .as_ref()
            .is_some_and(|s| s.len() > SESSION_BYTES_MAX || !s.bytes().all(|b| b.is_ascii_graphic()))
        {
            return refuse(self, ErrorCode::BadRequest, "session is at most 64 visible ASCII characters");
        }
        let first_session = first_session.map(|name| ViewerKey::of_session(&name));
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
        let client = self.conns[slot].client.ip();
        let poll = (transport == Transport::Poll).then(|| {
            let caller = match &identity {
                Some(who) => format!("u{}", who.user),
                None => format!("a{client}"),
            };
            // Anonymous callers without a tab may be many behind one address: each is its own line.
            let is_shared = identity.is_some() || !tab.is_empty();
            let own = if is_shared { String::new() } else { self.rng.next().to_string() };
            PollCall {
                is_shared,
                since: cursor,
                line: Line::of(&format!("{caller}{own}"), room.as_str(), &tab),
                skipped: None,
                sampled: false,
                heard: None,
                found: Heard::default(),
                banners: Known { newest: None, answered: None, called: now },
                not_before: now,
                until: now + timeout,
            }
        });
        // A call that waits keeps no bytes of a next request: its answer says that the caller must ask again.
        let keep_alive = keep_alive && !more;
        let nonce = self.rng.next();
        let place = self.place_of(slot, head);
        let first_session = first_session.filter(|_| identity.is_none());
        let rare = stub.is_some() || first_session.is_some();
        let rare = rare.then(|| Box::new(Rare { stub, first_session, ..Rare::default() }));
        let viewer = Viewer {
            transport,
            session,
            identity,
            nonce,
            reader: FrameReader::new(),
            reach: deflate.map_or(Reach::default(), Agreed::reach),
            counted: false,
            held: Held::default(),
            rare,
            first: Member::nowhere(),
            opening: Some(Box::new(Opening { accept, offered, deflate, origin, keep_alive, poll })),
            alive_at: now + limits::PING_MAX,
            pinged: false,
            site: 0,
            control: now,
        };
        match place {
            Some(region) => drop(self.regions.insert(slot as u32, region)),
            None => drop(self.regions.remove(&(slot as u32))),
        }
        self.conns[slot].kind = Kind::Viewer(Box::new(viewer));
        self.count_stream(transport, 1);
        if let Some(code) = refused {
            return self.close(slot, code);
        }
        if self.refuse_over(slot, &room, over) {
            return;
        }
        if self.draining || self.shared.admission.is_draining() {
            self.shared.metrics.add_refused(metrics::Refused::Drain);
            let delay = self.drain_delay(Some(&room));
            return self.close_with(slot, CloseCode::Drain, Some(delay));
        }
        if self.refuse_for_memory(slot, &room) {
            return;
        }
        if self.away || !self.shared.shard.status().ready() {
            return self.refuse_unready(slot, &room);
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
            Err(auth::ticket::Fault::Spent | auth::ticket::Fault::Revoked { by_key: true }) => {
                Who::Refused(CloseCode::TokenExpired)
            }
            Err(_) => Who::Refused(CloseCode::NotAllowed),
        }
    }

    /// Errors: the close code a refused token is answered with.
    pub(super) fn verify(&self, token: &str) -> Result<Arc<Identity>, CloseCode> {
        match self.shared.verifier.verify(token, self.wall) {
            Ok(identity) if identity.may_open_stream(self.wall) => Ok(identity),
            Ok(_) | Err(AuthFault::Expired | AuthFault::Revoked { by_key: true }) => Err(CloseCode::TokenExpired),
            // It may be good when the newer key set is here.
            Err(AuthFault::Unsure) => Err(CloseCode::NotReady),
            Err(_) => Err(CloseCode::NotAllowed),
        }
    }

    // ---- into a room -----------------------------------------------------------------------------------------

    /// Sends a viewer on its way into a room.
    pub(super) fn join(&mut self, slot: usize, room: RoomId, cursor: Position) {
        let who = self.who_sits(slot);
        let Some(viewer) = self.viewer(slot) else { return };
        let member = if viewer.first.room == NOWHERE && viewer.first.joining.is_none() {
            0
        } else {
            viewer.rare().others.push(Member::nowhere());
            viewer.n_members() - 1
        };
        let stage = Stage::Held(Hold::BeforeSubscribe);
        viewer.member_mut(member).joining =
            Some(Box::new(Joining { room, cursor, stage, who, page: None, skipped: None }));
        self.pass_hold(slot, member);
    }

    /// Who a viewer is to the pick: its user; without one its first session, which is the one it names, the one it had in its
    /// first room, or this.
    fn who_sits(&mut self, slot: usize) -> parts::Who {
        let key = self.key(slot);
        let Some(Kind::Viewer(viewer)) = self.conns.get_mut(slot).map(|c| &mut c.kind) else {
            unreachable!("only viewers join")
        };
        let named = viewer.rare.as_ref().and_then(|rare| rare.first_session);
        let seated = (viewer.first.seat != NOWHERE).then_some((viewer.first.room as usize, viewer.first.seat as usize));
        let nonce = viewer.nonce;
        let user = viewer.identity.as_ref().map(|who| &who.user);
        let rooms = &self.rooms;
        parts::key_of(user, || {
            let seated = || seated.map(|(room, seat)| rooms[room].seats[seat].who.key());
            named.or_else(seated).unwrap_or_else(|| ViewerKey::of_session(&session_name(key, nonce)))
        })
    }

    /// Goes on behind a failpoint, unless it still holds.
    pub(super) fn pass_hold(&mut self, slot: usize, member: usize) {
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
        let now = self.now;
        let Some(info) = self.rooms[idx].info.clone() else { return };
        let Some(viewer) = self.viewer(slot) else { return };
        let Some(member) = viewer.member_of(idx) else { return };
        let barred = viewer.identity.clone().is_some_and(|who| self.site.bars(&who.user, self.wall));
        if barred {
            return self.refuse_view(slot, member, idx, Denied::NotAllowed);
        }
        if self.permit(slot, member, idx).is_none() {
            return;
        }
        let Some(viewer) = self.viewer(slot) else { return };
        let backend = viewer.identity.as_ref().is_some_and(|who| who.is_backend());
        let affords = backend || self.rooms[idx].takes_viewer(now);
        let Some(viewer) = self.viewer(slot) else { return };
        if member == 0 {
            let anonymous_view = info.settings.anonymous_view;
            viewer.session.set_anonymous_view(anonymous_view);
            if let Err(full) = self.count_in(slot, idx) {
                self.shared.metrics.add_refused(match full {
                    streams::Full::User => metrics::Refused::User,
                    streams::Full::Address => metrics::Refused::Address,
                    streams::Full::Total => metrics::Refused::Connections,
                    streams::Full::Room => metrics::Refused::Room,
                    streams::Full::Polls => metrics::Refused::Polls,
                });
                // Who has too many itself is nobody's crowd.
                let delay = match full {
                    streams::Full::Total if self.shared.admission.leaves_port() => Some(PLACES_ELSEWHERE),
                    streams::Full::Total | streams::Full::Room => Some(self.full_delay(idx)),
                    streams::Full::User | streams::Full::Address | streams::Full::Polls => None,
                };
                return self.close_with(slot, CloseCode::TooMany, delay);
            }
            if !affords {
                self.shared.metrics.add_refused(metrics::Refused::Cost);
                let delay = self.pause(idx);
                return self.close_with(slot, CloseCode::TooMany, Some(delay));
            }
            if let Err(refused) = self.take_turn(slot, idx) {
                self.shared.metrics.add_refused(match refused.closed {
                    true => metrics::Refused::Closed,
                    false => metrics::Refused::Rate,
                });
                return self.close_with(slot, CloseCode::TooMany, Some(refused.delay));
            }
        } else if !affords || !backend && self.shared.streams.is_room_full(&self.rooms[idx].tally) {
            self.shared.metrics.add_refused(if affords { metrics::Refused::Room } else { metrics::Refused::Cost });
            let error = event_error(Some(&info.room), ErrorCode::TooMany, "the room is full", None);
            self.say(slot, error);
            if let Some(viewer) = self.viewer(slot) {
                viewer.session.forget(&info.room);
            }
            return self.leave_member(slot, member);
        }
        self.judge_cursor(slot, member, idx, false);
        self.publish_early(slot);
    }

    /// Whether a viewer may be shown a room whose facts are here.
    pub(super) fn may_view(&mut self, slot: usize, idx: usize) -> Result<Permit, Denied> {
        let info = self.rooms[idx].info.clone().ok_or(Denied::NotAllowed)?;
        let place = self.regions.get(&(slot as u32)).copied();
        let viewer = self.viewer(slot).ok_or(Denied::NotAllowed)?;
        permit::may_view(viewer.identity.as_deref(), place, &info.room, &info.settings)
    }

    /// Leave to show a viewer one of its rooms; without it the viewer is told, and is out of the room.
    pub(super) fn permit(&mut self, slot: usize, member: usize, idx: usize) -> Option<Permit> {
        match self.may_view(slot, idx) {
            Ok(permit) => Some(permit),
            Err(denied) => {
                self.refuse_view(slot, member, idx, denied);
                None
            }
        }
    }

    pub(super) fn refuse_view(&mut self, slot: usize, member: usize, idx: usize, denied: Denied) {
        let room = self.rooms[idx].id.clone();
        let Some(viewer) = self.viewer(slot) else { return };
        if member == 0 {
            let opens = viewer.opening.is_some();
            let unanswered = viewer.opening.as_ref().is_some_and(|o| o.accept.is_some() || o.poll.is_some());
            let sse_unanswered = viewer.transport == Transport::Sse && opens;
            if denied == Denied::NeedsToken && (unanswered || sse_unanswered) {
                self.shared.metrics.add_denied(ErrorCode::NoToken);
                return self.refuse_stream(slot, ErrorCode::NoToken, "credentials are needed here");
            }
            let code = if denied == Denied::Blackout { CloseCode::Blackout } else { CloseCode::NotAllowed };
            return self.close(slot, code);
        }
        let error = match denied {
            Denied::Blackout => {
                event_error(Some(&room), ErrorCode::Blackout, "the room may not be shown where you are", None)
            }
            _ => event_error(Some(&room), ErrorCode::NotAllowed, "the room is not open to you", None),
        };
        self.say(slot, error);
        if let Some(viewer) = self.viewer(slot) {
            viewer.session.forget(&room);
        }
        self.leave_member(slot, member);
    }

    /// Where the client of a request is.
    pub(super) fn place_of(&self, slot: usize, head: &Head<'_>) -> Option<Region> {
        let places = &self.shared.settings.places;
        let conn = &self.conns[slot];
        let said = head.headers().filter(|h| places.header().is_some_and(|name| h.name.eq_ignore_ascii_case(name)));
        places.place(conn.peer.ip(), conn.client.ip(), said.map(|h| h.value))
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
        self.shared.admission.admit(&tally.demand, tally.here(), now)?;
        metrics::add(&self.shared.metrics.admitted, 1);
        Ok(())
    }

    /// Counts the stream against its user's, its address's, its room's and the gateway's limits.
    /// Errors: the limit that is reached.
    fn count_in(&mut self, slot: usize, idx: usize) -> Result<(), streams::Full> {
        let client = self.conns[slot].client.ip();
        let exempt = door::is_exempt(client, &self.shared.settings.exempt);
        let Some(viewer) = self.viewer(slot) else { return Ok(()) };
        if viewer.counted {
            return Ok(());
        }
        let who = viewer.identity.as_ref();
        let backend = who.is_some_and(|w| w.is_backend());
        let user = who.filter(|_| !backend).map(|w| w.user.clone());
        let address = (!exempt && !backend).then_some(client);
        let line = viewer.opening.as_ref().and_then(|o| o.poll.as_ref()).map(|call| call.line);
        let line = line.filter(|_| user.is_some() || address.is_some());
        // Who has no limit at all takes no memory for one.
        if backend || (user.is_none() && address.is_none() && !self.shared.streams.counts_all()) {
            return Ok(());
        }
        let entered = self.shared.streams.enter(user.as_ref(), address, &self.rooms[idx].tally);
        self.look_at_places();
        let held = entered?;
        if let Some(line) = line {
            if let Err(full) = self.shared.holders.enter(line, &held) {
                self.shared.streams.leave(&held);
                self.look_at_places();
                return Err(full);
            }
            if let Some(viewer) = self.viewer(slot) {
                viewer.rare().held_line = Some(line);
            }
        }
        if let Some(viewer) = self.viewer(slot) {
            (viewer.counted, viewer.held) = (true, held);
        }
        Ok(())
    }
}

/// What a session needs to know of an identity.
pub fn credential(identity: &Identity) -> Credential {
    let roles = identity.roles;
    let may_publish = [Role::Publisher, Role::RoomMod, Role::RegionOps, Role::Admin, Role::Backend]
        .into_iter()
        .any(|role| roles.has(role));
    // A late one ends when the outage lets it.
    let exp = identity.ends_at() - auth::LEEWAY;
    Credential { user: identity.user.clone(), exp, may_publish, exempt: identity.is_backend() }
}

/// Headers that let a listed page read the answer.
pub fn cors(origin: Option<&str>) -> Vec<(&'static str, &str)> {
    origin.map_or_else(Vec::new, |origin| door::readable_by(origin).to_vec())
}

fn preflight(origin: Option<&str>, keep_alive: bool) -> Bytes {
    let mut headers = cors(origin);
    headers.push(("access-control-allow-methods", "GET, POST"));
    headers.push(("access-control-allow-headers", "authorization, content-type, last-event-id, cache-control"));
    headers.push(("access-control-max-age", "600"));
    web::whole(204, "", &[], keep_alive, &headers)
}
