//! One connection's manners: what its client may say, when, and how much.
//!
//! A doorkeeper with a watch: knows who came in and until when the pass is good, which rooms the guest has entered, and counts how often
//! it interrupts. It carries no payloads: each operation is judged by its head and answered by exactly one [`Action`]; the
//! worker does what the action says with what the client sent.
//!
//! It never lets anything past before `hello` where one is owed, never changes a user under an open stream, and never lets
//! an expired token write. The awkward case is the pass that runs out in a room that anyone may watch: the viewer stays, and
//! only its voice goes, until a renewal by the same user gives it back.
//!
//! Numbers: hello 5 s, 128 rooms, 200 follows, warning 120 s ± 60 s before expiry, 30 s of grace (docs/protocol.md); 20
//! operations a second with a burst of 60 is ten times what a person does and a tenth of what a worker minds.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::ids::Position;
use crate::names::{RoomId, UserId};
use crate::rng::Rng;
use crate::time::{Mono, Wall};

pub const HELLO_WAIT: Duration = Duration::from_secs(5);
pub const ROOMS_MAX: usize = 128;
pub const FOLLOWS_MAX: usize = 200;
pub const EXPIRY_GRACE: Duration = Duration::from_secs(30);
const WARN_BEFORE_MS: u64 = 60_000;
const WARN_SPREAD_MS: u64 = 120_000;
/// One operation each 50 ms on average …
const OP_COST: Duration = Duration::from_millis(50);
/// … and 60 at once.
const OP_BURST: u32 = 60;

/// What a verified token says, as far as a session cares.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Credential {
    pub user: UserId,
    pub exp: Wall,
    /// Role `publisher` or above.
    pub may_publish: bool,
    /// Role `backend`: no rate is counted.
    pub exempt: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TokenFault {
    Expired,
    /// Not ours, not readable, or not for this room.
    Bad,
    /// It cannot be said yet.
    Unsure,
}

/// How a connection begins.
#[derive(Clone, Debug)]
pub struct Start {
    pub room: RoomId,
    /// Of the request; `None` when it brought no credentials.
    pub credential: Option<Credential>,
    /// The request offered `grandstand.v1`: without credentials, a `hello` is waited for.
    pub offers_subprotocol: bool,
    /// The room may be watched without a token.
    pub anonymous_view: bool,
    /// START for none.
    pub cursor: Position,
}

/// One client frame, parsed and with its token verified, without its payload. `room` is `None` where it was left out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    Hello {
        credential: Result<Option<Credential>, TokenFault>,
        cursor: Position,
    },
    Publish {
        room: Option<RoomId>,
    },
    React {
        room: Option<RoomId>,
    },
    Like {
        room: Option<RoomId>,
    },
    Report {
        room: Option<RoomId>,
    },
    Join {
        room: RoomId,
        cursor: Position,
    },
    Leave {
        room: Option<RoomId>,
    },
    Follow {
        user: UserId,
    },
    Unfollow {
        user: UserId,
    },
    Auth {
        credential: Result<Credential, TokenFault>,
    },
    Ping,
    /// Unknown op, bad JSON or a broken rule: the worker has the error event ready.
    Malformed,
}

/// What the worker does. Exactly one for each input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Nothing to say.
    Quiet,
    /// A `hello` is owed by the client: wait for it.
    Wait,
    /// Subscribe this room from this cursor and greet with its `hello`.
    Greet {
        room: RoomId,
        cursor: Position,
    },
    Publish {
        room: RoomId,
    },
    React {
        room: RoomId,
    },
    Like {
        room: RoomId,
    },
    Report {
        room: RoomId,
    },
    /// Unsubscribe the room and send `left`.
    Left {
        room: RoomId,
    },
    Pong,
    /// The error event prepared for a malformed frame.
    Malformed,
    Refuse(Refusal),
    TokenExpiring {
        in_ms: u64,
    },
    /// The token ran out; the stream goes on without a voice.
    ReadOnly,
    /// The token was renewed; a lost voice is back.
    Renewed,
    /// Send `close` and close.
    Close(Close),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// `bad_op`: a second hello.
    AlreadyGreeted,
    /// `bad_room`: left out while the connection has none or several.
    RoomUnclear,
    /// `bad_room`: not one of the connection's.
    NotJoined,
    /// `bad_room`: joined already.
    AlreadyJoined,
    /// `too_many`: [`ROOMS_MAX`].
    TooManyRooms,
    /// `too_many`: [`FOLLOWS_MAX`].
    TooManyFollows,
    /// `not_allowed`: anonymous, a token without the role, or one that ran out.
    NoVoice,
    /// `not_allowed`: a renewal must be for the same user.
    OtherUser,
    /// `bad_token`: the token of an `auth` does not hold; the old one stays in force.
    BadToken,
}

impl Refusal {
    /// The `code` and text of the `error` event.
    pub fn said(self) -> (&'static str, &'static str) {
        match self {
            Refusal::AlreadyGreeted => ("bad_op", "hello comes once, first"),
            Refusal::RoomUnclear => ("bad_room", "room_id is needed on this connection"),
            Refusal::NotJoined => ("bad_room", "this connection has not joined that room"),
            Refusal::AlreadyJoined => ("bad_room", "this connection has joined that room already"),
            Refusal::TooManyRooms => ("too_many", "a connection joins at most 128 rooms"),
            Refusal::TooManyFollows => ("too_many", "a connection follows at most 200 users"),
            Refusal::NoVoice => ("not_allowed", "a token with role publisher is needed"),
            Refusal::OtherUser => ("not_allowed", "a renewal is for the same user"),
            Refusal::BadToken => ("bad_token", "the token does not hold"),
        }
    }
}

/// Why a session ends; the number is the close code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Close {
    BadRequest = 4000,
    NotAllowed = 4003,
    TokenExpired = 4101,
    TooMany = 4129,
    NotReady = 4153,
}

impl Close {
    pub fn code(self) -> u16 {
        self as u16
    }
}

/// No credentials where some are needed and no `hello` can come: HTTP 401.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unauthenticated;

/// Shape: 80 bytes and no heap for a connection that is in one room and follows nobody: there are a million of them.
#[derive(Clone, Debug)]
pub struct Session {
    /// The `hello` that the client owes, before anything else.
    owed: Option<Box<Owed>>,
    /// The pass; kept after it ran out so that the same user can renew it.
    pass: Option<Pass>,
    rooms: Rooms,
    #[expect(clippy::box_collection, reason = "one word for those who follow nobody")]
    follows: Option<Box<Vec<UserId>>>,
    /// When the operations so far will have been paid for.
    ops_due: Mono,
    closed: bool,
    anonymous_view: bool,
}

/// A `hello` that is waited for.
#[derive(Clone, Copy, Debug)]
struct Owed {
    until: Mono,
    /// What the request said.
    cursor: Position,
}

/// The rooms of a connection, the URL's first.
#[derive(Clone, Debug)]
enum Rooms {
    One(RoomId),
    #[expect(clippy::box_collection, reason = "fits where the name of one room fits")]
    Some(Box<Vec<RoomId>>),
}

impl Rooms {
    fn as_slice(&self) -> &[RoomId] {
        match self {
            Rooms::One(room) => std::slice::from_ref(room),
            Rooms::Some(rooms) => rooms,
        }
    }

    fn push(&mut self, room: RoomId) {
        match self {
            Rooms::One(first) => *self = Rooms::Some(Box::new(vec![first.clone(), room])),
            Rooms::Some(rooms) => rooms.push(room),
        }
    }

    fn remove(&mut self, room: &RoomId) {
        match self {
            Rooms::One(only) if only == room => *self = Rooms::Some(Box::default()),
            Rooms::One(_) => {}
            Rooms::Some(rooms) => rooms.retain(|joined| joined != room),
        }
    }
}

#[derive(Clone, Debug)]
struct Pass {
    user: UserId,
    exp: Wall,
    /// How many milliseconds before its end `token_expiring` is due; `None` once it was sent.
    warn_before: Option<NonZeroU32>,
    may_publish: bool,
    exempt: bool,
    spent: bool,
}

impl Session {
    /// Errors: [`Unauthenticated`] when the request must be answered 401.
    pub fn new(start: Start, now: Mono, rng: &mut Rng) -> Result<(Session, Action), Unauthenticated> {
        let Start { room, credential, offers_subprotocol, anonymous_view, cursor } = start;
        let mut session = Session {
            owed: None,
            pass: None,
            rooms: Rooms::One(room),
            follows: None,
            ops_due: Mono(0),
            closed: false,
            anonymous_view,
        };
        if credential.is_none() && offers_subprotocol {
            session.owed = Some(Box::new(Owed { until: now + HELLO_WAIT, cursor }));
            return Ok((session, Action::Wait));
        }
        if credential.is_none() && !anonymous_view {
            return Err(Unauthenticated);
        }
        session.pass = credential.map(|credential| Pass::new(credential, rng));
        let action = session.greet(cursor);
        Ok((session, action))
    }

    pub fn on_op(&mut self, op: Op, now: Mono, rng: &mut Rng) -> Action {
        if self.floods(now) {
            return self.close(Close::TooMany);
        }
        if self.closed {
            return Action::Quiet;
        }
        if let Some(Owed { cursor, .. }) = self.owed.as_deref() {
            return self.on_first(op, *cursor, rng);
        }
        match op {
            Op::Hello { .. } => Action::Refuse(Refusal::AlreadyGreeted),
            Op::Publish { room } => self.speak(room, |room| Action::Publish { room }),
            Op::React { room } => self.speak(room, |room| Action::React { room }),
            Op::Like { room } => self.speak(room, |room| Action::Like { room }),
            Op::Report { room } => self.speak(room, |room| Action::Report { room }),
            Op::Join { room, cursor } => self.on_join(room, cursor),
            Op::Leave { room } => match self.resolve(room) {
                Ok(room) => {
                    self.forget(&room);
                    Action::Left { room }
                }
                Err(refusal) => Action::Refuse(refusal),
            },
            Op::Follow { user } => self.on_follow(user),
            Op::Unfollow { user } => self.on_unfollow(&user),
            Op::Auth { credential } => self.on_auth(credential, rng),
            Op::Ping => Action::Pong,
            Op::Malformed => Action::Malformed,
        }
    }

    /// When to call [`Session::on_deadline`]. The token's times are wall times: the timer is set to what they are from here
    /// and asked again when it fires.
    pub fn next_deadline(&self, now: Mono, wall: Wall) -> Option<Mono> {
        if self.closed {
            return None;
        }
        if let Some(owed) = &self.owed {
            return Some(owed.until);
        }
        let pass = self.pass.as_ref().filter(|pass| !pass.spent)?;
        let at = pass.warn_at().unwrap_or(pass.exp + EXPIRY_GRACE);
        Some(now + at.since(wall))
    }

    /// One action of what is due; call until it is [`Action::Quiet`].
    pub fn on_deadline(&mut self, now: Mono, wall: Wall) -> Action {
        if self.closed {
            return Action::Quiet;
        }
        if let Some(owed) = &self.owed {
            return if now >= owed.until { self.close(Close::BadRequest) } else { Action::Quiet };
        }
        let anonymous_view = self.anonymous_view;
        let Some(pass) = self.pass.as_mut().filter(|pass| !pass.spent) else { return Action::Quiet };
        let exp = pass.exp;
        if wall >= exp + EXPIRY_GRACE {
            if !anonymous_view {
                return self.close(Close::TokenExpired);
            }
            pass.spent = true;
            return Action::ReadOnly;
        }
        if pass.warn_at().is_some_and(|at| wall >= at) {
            pass.warn_before = None;
            return Action::TokenExpiring { in_ms: exp.since(wall).as_millis() as u64 };
        }
        Action::Quiet
    }

    /// Takes back a room that turned out not to be there, or that ended.
    pub fn forget(&mut self, room: &RoomId) {
        self.rooms.remove(room);
    }

    /// The token ends at another time than it says: an outage was declared or is over. A voice that was lost is back if that is
    /// later than now was.
    pub fn ends(&mut self, at: Wall) {
        let Some(pass) = &mut self.pass else { return };
        let exp = Wall(at.0.saturating_sub(EXPIRY_GRACE.as_millis() as u64));
        if pass.exp != exp {
            pass.spent &= exp < pass.exp;
            pass.exp = exp;
            // It could not be renewed, or it need not be yet.
            pass.warn_before = None;
        }
    }

    /// Whether every room of the connection may be watched without a token.
    pub fn set_anonymous_view(&mut self, allowed: bool) {
        self.anonymous_view = allowed;
    }

    /// Who speaks on this connection; `None` while nobody may.
    pub fn user(&self) -> Option<&UserId> {
        self.pass.as_ref().filter(|pass| !pass.spent).map(|pass| &pass.user)
    }
    pub fn rooms(&self) -> &[RoomId] {
        self.rooms.as_slice()
    }
    /// In order.
    pub fn follows(&self) -> &[UserId] {
        self.follows.as_deref().map_or(&[], Vec::as_slice)
    }
    pub fn is_live(&self) -> bool {
        !self.closed && self.owed.is_none()
    }

    /// The first frame must be `hello`.
    fn on_first(&mut self, op: Op, asked: Position, rng: &mut Rng) -> Action {
        let Op::Hello { credential, cursor } = op else { return self.close(Close::BadRequest) };
        match credential {
            Err(TokenFault::Expired) => return self.close(Close::TokenExpired),
            Err(TokenFault::Bad) => return self.close(Close::NotAllowed),
            Err(TokenFault::Unsure) => return self.close(Close::NotReady),
            Ok(None) if !self.anonymous_view => return self.close(Close::NotAllowed),
            Ok(credential) => self.pass = credential.map(|credential| Pass::new(credential, rng)),
        }
        self.owed = None;
        self.greet(if cursor == Position::START { asked } else { cursor })
    }

    fn greet(&self, cursor: Position) -> Action {
        Action::Greet { room: self.rooms.as_slice()[0].clone(), cursor }
    }

    fn speak(&self, room: Option<RoomId>, action: impl FnOnce(RoomId) -> Action) -> Action {
        match self.resolve(room) {
            Err(refusal) => Action::Refuse(refusal),
            Ok(_) if !self.pass.as_ref().is_some_and(|p| !p.spent && p.may_publish) => Action::Refuse(Refusal::NoVoice),
            Ok(room) => action(room),
        }
    }

    fn resolve(&self, room: Option<RoomId>) -> Result<RoomId, Refusal> {
        match (room, self.rooms.as_slice()) {
            (None, [only]) => Ok(only.clone()),
            (None, _) => Err(Refusal::RoomUnclear),
            (Some(room), joined) if joined.contains(&room) => Ok(room),
            (Some(_), _) => Err(Refusal::NotJoined),
        }
    }

    fn on_join(&mut self, room: RoomId, cursor: Position) -> Action {
        if self.rooms().contains(&room) {
            return Action::Refuse(Refusal::AlreadyJoined);
        }
        if self.rooms().len() >= ROOMS_MAX {
            return Action::Refuse(Refusal::TooManyRooms);
        }
        self.rooms.push(room.clone());
        Action::Greet { room, cursor }
    }

    fn on_follow(&mut self, user: UserId) -> Action {
        let follows = self.follows.get_or_insert_default();
        match follows.binary_search(&user) {
            Ok(_) => Action::Quiet,
            Err(_) if follows.len() >= FOLLOWS_MAX => Action::Refuse(Refusal::TooManyFollows),
            Err(idx) => {
                follows.insert(idx, user);
                Action::Quiet
            }
        }
    }

    fn on_unfollow(&mut self, user: &UserId) -> Action {
        if let Some(follows) = &mut self.follows
            && let Ok(idx) = follows.binary_search(user)
        {
            follows.remove(idx);
        }
        Action::Quiet
    }

    fn on_auth(&mut self, credential: Result<Credential, TokenFault>, rng: &mut Rng) -> Action {
        let Ok(credential) = credential else { return Action::Refuse(Refusal::BadToken) };
        if self.pass.as_ref().is_none_or(|pass| pass.user != credential.user) {
            return Action::Refuse(Refusal::OtherUser);
        }
        self.pass = Some(Pass::new(credential, rng));
        Action::Renewed
    }

    /// A leaky bucket: an operation adds its cost to a clock that may run ahead of `now` by the burst.
    fn floods(&mut self, now: Mono) -> bool {
        if self.pass.as_ref().is_some_and(|pass| pass.exempt) {
            return false;
        }
        let due = self.ops_due.max(now) + OP_COST;
        if due.since(now) > OP_COST * OP_BURST {
            return true;
        }
        self.ops_due = due;
        false
    }

    fn close(&mut self, close: Close) -> Action {
        self.closed = true;
        Action::Close(close)
    }
}

impl Pass {
    fn new(credential: Credential, rng: &mut Rng) -> Pass {
        // 120 s ± 60 s before it ends, so that a crowd that came together does not renew together.
        let before = WARN_BEFORE_MS + rng.below(WARN_SPREAD_MS);
        let warn_before = NonZeroU32::new(before as u32);
        let Credential { user, exp, may_publish, exempt } = credential;
        Pass { user, exp, warn_before, may_publish, exempt, spent: false }
    }

    fn warn_at(&self) -> Option<Wall> {
        self.warn_before.map(|before| self.exp - Duration::from_millis(before.get().into()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Action, Close, Credential, Op, ROOMS_MAX, Refusal, Session, Start, TokenFault, Unauthenticated};
    use crate::ids::Position;
    use crate::names::{RoomId, UserId};
    use crate::rng::Rng;
    use crate::time::{Mono, Wall};

    const WALL: Wall = Wall(1_700_000_000_000);

    fn room(name: &str) -> RoomId {
        RoomId::parse(name).unwrap()
    }
    fn credential(user: &str, ttl_s: u64) -> Credential {
        Credential {
            user: UserId::parse(user).unwrap(),
            exp: WALL + Duration::from_secs(ttl_s),
            may_publish: true,
            exempt: false,
        }
    }
    fn start(credential: Option<Credential>, offers_subprotocol: bool, anonymous_view: bool) -> Start {
        Start { room: room("a"), credential, offers_subprotocol, anonymous_view, cursor: Position::START }
    }
    fn open(credential: Option<Credential>) -> Session {
        Session::new(start(credential, false, true), Mono(0), &mut Rng::new(1)).unwrap().0
    }
    fn op(session: &mut Session, op: Op) -> Action {
        session.on_op(op, Mono(10_000_000), &mut Rng::new(2))
    }
    fn s(n: u64) -> Mono {
        Mono(n * 1_000_000)
    }

    #[test]
    fn credentials_are_served_at_once_and_nobody_without_them_where_they_are_needed() {
        let (_, action) = Session::new(start(Some(credential("u", 900)), true, false), s(0), &mut Rng::new(1)).unwrap();
        assert_eq!(action, Action::Greet { room: room("a"), cursor: Position::START });
        let refused = Session::new(start(None, false, false), s(0), &mut Rng::new(1));
        assert_eq!(refused.err(), Some(Unauthenticated));
    }

    #[test]
    fn with_the_subprotocol_and_no_credentials_hello_is_owed_within_five_seconds() {
        let wait = |first: Option<Op>| {
            let (mut session, action) = Session::new(start(None, true, false), s(0), &mut Rng::new(1)).unwrap();
            assert_eq!((action, session.next_deadline(s(0), WALL)), (Action::Wait, Some(s(5))));
            match first {
                Some(first) => session.on_op(first, s(1), &mut Rng::new(1)),
                None => session.on_deadline(s(5), WALL),
            }
        };
        let hello = |credential| Some(Op::Hello { credential, cursor: Position::new(77).unwrap() });
        assert_eq!(wait(None), Action::Close(Close::BadRequest));
        assert_eq!(wait(Some(Op::Ping)), Action::Close(Close::BadRequest));
        assert_eq!(wait(Some(Op::Malformed)), Action::Close(Close::BadRequest));
        assert_eq!(wait(hello(Ok(None))), Action::Close(Close::NotAllowed));
        assert_eq!(wait(hello(Err(TokenFault::Bad))), Action::Close(Close::NotAllowed));
        assert_eq!(wait(hello(Err(TokenFault::Expired))), Action::Close(Close::TokenExpired));
        let greeted = wait(hello(Ok(Some(credential("u", 900)))));
        assert_eq!(greeted, Action::Greet { room: room("a"), cursor: Position::new(77).unwrap() });
    }

    #[test]
    fn rooms_are_named_only_where_it_is_needed() {
        let mut session = open(Some(credential("u", 900)));
        assert_eq!(op(&mut session, Op::Publish { room: None }), Action::Publish { room: room("a") });
        let join = Op::Join { room: room("b"), cursor: Position::START };
        assert_eq!(op(&mut session, join.clone()), Action::Greet { room: room("b"), cursor: Position::START });
        assert_eq!(op(&mut session, join), Action::Refuse(Refusal::AlreadyJoined));
        assert_eq!(op(&mut session, Op::Publish { room: None }), Action::Refuse(Refusal::RoomUnclear));
        assert_eq!(op(&mut session, Op::Publish { room: Some(room("c")) }), Action::Refuse(Refusal::NotJoined));
        assert_eq!(op(&mut session, Op::Leave { room: Some(room("a")) }), Action::Left { room: room("a") });
        assert_eq!(op(&mut session, Op::Like { room: None }), Action::Like { room: room("b") });
    }

    #[test]
    fn rooms_and_follows_are_bounded() {
        let mut session = open(Some(Credential { exempt: true, ..credential("u", 900) }));
        for n in 1..ROOMS_MAX {
            op(&mut session, Op::Join { room: room(&format!("r{n}")), cursor: Position::START });
        }
        let more = Op::Join { room: room("more"), cursor: Position::START };
        assert_eq!(op(&mut session, more), Action::Refuse(Refusal::TooManyRooms));
        let user = |n: u32| UserId::parse(&format!("u{n}")).unwrap();
        for n in 0..200 {
            assert_eq!(op(&mut session, Op::Follow { user: user(n) }), Action::Quiet);
        }
        assert_eq!(op(&mut session, Op::Follow { user: user(7) }), Action::Quiet);
        assert_eq!(op(&mut session, Op::Follow { user: user(200) }), Action::Refuse(Refusal::TooManyFollows));
        op(&mut session, Op::Unfollow { user: user(7) });
        assert_eq!(op(&mut session, Op::Follow { user: user(200) }), Action::Quiet);
    }

    #[test]
    fn the_anonymous_watch_and_do_not_speak() {
        let mut session = open(None);
        assert_eq!(op(&mut session, Op::Publish { room: None }), Action::Refuse(Refusal::NoVoice));
        let auth = Op::Auth { credential: Ok(credential("u", 900)) };
        assert_eq!(op(&mut session, auth), Action::Refuse(Refusal::OtherUser));
        assert_eq!(op(&mut session, Op::Ping), Action::Pong);
    }

    #[test]
    fn a_flood_closes_after_sixty_and_twenty_a_second_are_fine() {
        let mut session = open(Some(credential("u", 900)));
        for _ in 0..60 {
            assert_eq!(session.on_op(Op::Ping, s(1), &mut Rng::new(1)), Action::Pong);
        }
        assert_eq!(session.on_op(Op::Ping, s(1), &mut Rng::new(1)), Action::Close(Close::TooMany));
        let mut steady = open(Some(credential("u", 900)));
        for n in 0..2_000 {
            assert_eq!(steady.on_op(Op::Ping, Mono(n * 50_000), &mut Rng::new(1)), Action::Pong);
        }
    }

    #[test]
    fn an_expiring_token_is_told_once_and_its_end_closes_or_silences() {
        for (seed, anonymous_view) in [(1, true), (2, false), (3, true), (4, false)] {
            let start = start(Some(credential("u", 900)), false, anonymous_view);
            let (mut session, _) = Session::new(start, s(0), &mut Rng::new(seed)).unwrap();
            let due = session.next_deadline(s(0), WALL).unwrap();
            assert!((s(720)..=s(840)).contains(&due), "{due:?}");
            let wall = WALL + due.since(s(0));
            assert_eq!(session.on_deadline(s(0), WALL), Action::Quiet);
            let in_ms = 900_000 - wall.since(WALL).as_millis() as u64;
            assert_eq!(session.on_deadline(due, wall), Action::TokenExpiring { in_ms });
            assert_eq!(session.on_deadline(due, wall), Action::Quiet);
            let end = session.next_deadline(due, wall).unwrap();
            assert_eq!(end, s(930));
            let last = session.on_deadline(end, WALL + Duration::from_secs(930));
            if anonymous_view {
                assert_eq!((last, session.user()), (Action::ReadOnly, None));
                assert_eq!(op(&mut session, Op::Publish { room: None }), Action::Refuse(Refusal::NoVoice));
                let other = Op::Auth { credential: Ok(credential("v", 9_000)) };
                assert_eq!(op(&mut session, other), Action::Refuse(Refusal::OtherUser));
                assert_eq!(op(&mut session, Op::Auth { credential: Ok(credential("u", 9_000)) }), Action::Renewed);
                assert_eq!(op(&mut session, Op::Publish { room: None }), Action::Publish { room: room("a") });
            } else {
                assert_eq!(last, Action::Close(Close::TokenExpired));
                assert_eq!(op(&mut session, Op::Ping), Action::Quiet);
            }
        }
    }

    #[test]
    fn a_renewal_must_hold_and_be_for_the_same_user() {
        let mut session = open(Some(credential("u", 900)));
        let bad = Op::Auth { credential: Err(TokenFault::Bad) };
        assert_eq!(op(&mut session, bad), Action::Refuse(Refusal::BadToken));
        assert_eq!(
            op(&mut session, Op::Auth { credential: Ok(credential("v", 9)) }),
            Action::Refuse(Refusal::OtherUser)
        );
        assert_eq!(
            op(&mut session, Op::Hello { credential: Ok(None), cursor: Position::START }),
            Action::Refuse(Refusal::AlreadyGreeted)
        );
    }

    #[test]
    fn a_session_is_small() {
        assert!(size_of::<Session>() <= 80, "{}", size_of::<Session>());
    }
}
