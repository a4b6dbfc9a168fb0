//! Who somebody is and what that lets them do: one place for both, used by every door.
//!
//! A door (a stream, a publish, an operator's call) turns credentials into an [`Identity`] by [`token::Verifier`] or
//! [`ticket::Tickets`], and asks one of the `may_*` functions here. Everything is denied that no function allows.
//! No function here knows a path or a header: resources come typed, after routing.

pub mod board;
pub mod certificate;
pub mod door;
pub mod fetch;
pub mod files;
pub mod key_set;
pub mod keys;
pub mod permit;
pub mod place;
pub mod provider_keys;
pub mod remembered;
pub mod ticket;
pub mod token;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use grandstand_core::access::LEEWAY;
use grandstand_core::access::Pass;
use grandstand_core::names::{RoomId, UserId};
use grandstand_core::record::{Policy, Room};
use grandstand_core::text;
use grandstand_core::time::Wall;

use self::keys::KeyName;
use self::remembered::TokenHash;

/// A stream is not opened on a token that would end it sooner than this.
pub const STREAM_LEAST: Duration = Duration::from_secs(10);
/// `sub` of guests starts with it; no other token may carry it.
pub const GUEST_PREFIX: &str = "guest:";
pub const GUEST_TTL: Duration = Duration::from_secs(12 * 3600);

/// A verified user: what a token said, checked and typed.
///
/// Shape: 72 bytes and the user id for most. Every stream holds one, so what few tokens say hangs off it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    pub user: UserId,
    /// The token's `name`; see [`Identity::display`].
    pub name: Option<Arc<str>>,
    pub more: Option<Box<More>>,
    pub roles: Roles,
    /// The token's end, without leeway.
    pub exp: Wall,
    /// The token's `iat` in seconds, until 2106; 0 when it has none.
    pub issued: u32,
    /// The key that signed it.
    pub key: KeyName,
    /// The token it was verified by; none for a ticket.
    pub token: TokenHash,
}

/// What only some tokens say.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct More {
    pub badges: Arc<[Arc<str>]>,
    /// `None`: every room (but a `room-mod` moderates only rooms that are named).
    pub rooms: Option<Box<[RoomPattern]>>,
    pub follows: Box<[UserId]>,
    /// The token's `sid`.
    pub session: Option<Box<str>>,
    /// The token ran out, and a declared outage lets it go on until then: see [`Identity::late`].
    pub late_until: Option<Wall>,
}

impl Identity {
    /// Shown beside the user's comments: the token's `name`, else the user id.
    pub fn display(&self) -> Arc<str> {
        self.name.clone().unwrap_or_else(|| self.user.shared())
    }
    pub fn badges(&self) -> Arc<[Arc<str>]> {
        self.more.as_ref().map(|more| more.badges.clone()).unwrap_or_default()
    }
    /// See [`More::rooms`].
    pub fn rooms(&self) -> Option<&[RoomPattern]> {
        self.more.as_ref()?.rooms.as_deref()
    }
    pub fn follows(&self) -> &[UserId] {
        self.more.as_ref().map_or(&[], |more| &more.follows)
    }
    pub fn is_guest(&self) -> bool {
        self.user.as_str().starts_with(GUEST_PREFIX)
    }
    /// When a stream opened with this identity must have been renewed.
    pub fn ends_at(&self) -> Wall {
        self.late_until().unwrap_or(self.exp + LEEWAY)
    }
    fn late_until(&self) -> Option<Wall> {
        self.more.as_ref()?.late_until
    }
    /// The token ran out while an outage stands.
    pub fn is_late(&self) -> bool {
        self.late_until().is_some()
    }
    /// What is left of this identity when its token ran out and an outage lets it go on `until` then: watching, and speaking where
    /// the room is not strict. Whatever else its roles gave it has ended.
    pub fn late(&self, until: Wall) -> Identity {
        let more = self.more.as_deref().cloned().unwrap_or_default();
        let more = Some(Box::new(More { late_until: Some(until), ..more }));
        Identity { more, roles: self.roles.of_late(), ..self.clone() }
    }
    /// What the rules of access go by; `key` is its key's name.
    pub fn pass<'a>(&'a self, key: &'a str) -> Pass<'a> {
        Pass {
            user: &self.user,
            session: self.more.as_ref().and_then(|more| more.session.as_deref()),
            key,
            issued: (self.issued != 0).then_some(Wall(u64::from(self.issued) * 1000)),
            exp: self.exp,
        }
    }
    /// Whether a stream opened at `now` would live long enough to be worth it.
    pub fn may_open_stream(&self, now: Wall) -> bool {
        now + STREAM_LEAST <= self.ends_at()
    }
    /// Whether the token's `rooms` cover `room`.
    pub fn covers(&self, room: &RoomId) -> bool {
        self.rooms().is_none_or(|patterns| patterns.iter().any(|p| p.matches(room)))
    }
    /// Exempt from every rate, cap, slow mode and stream limit.
    pub fn is_backend(&self) -> bool {
        self.roles.has(Role::Backend)
    }
}

/// A room id, or the start of room ids followed by `*`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RoomPattern {
    text: Box<str>,
    prefix: bool,
}

impl RoomPattern {
    /// Errors: `None` unless it is a room id, `*`, or room id characters followed by one `*`.
    pub fn parse(text: &str) -> Option<RoomPattern> {
        match text.strip_suffix('*') {
            Some("") => Some(RoomPattern { text: "".into(), prefix: true }),
            Some(start) => RoomId::parse(start).map(|_| RoomPattern { text: start.into(), prefix: true }),
            None => RoomId::parse(text).map(|_| RoomPattern { text: text.into(), prefix: false }),
        }
    }
    pub fn matches(&self, room: &RoomId) -> bool {
        if self.prefix { room.as_str().starts_with(&*self.text) } else { room.as_str() == &*self.text }
    }
}

impl fmt::Display for RoomPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.text, if self.prefix { "*" } else { "" })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Role {
    Viewer = 1,
    Publisher = 2,
    RoomMod = 4,
    RegionOps = 8,
    Admin = 16,
    Backend = 32,
}

impl Role {
    pub const ALL: [(Role, &'static str); 6] = [
        (Role::Viewer, "viewer"),
        (Role::Publisher, "publisher"),
        (Role::RoomMod, "room-mod"),
        (Role::RegionOps, "region-ops"),
        (Role::Admin, "admin"),
        (Role::Backend, "backend"),
    ];
    pub fn parse(name: &str) -> Option<Role> {
        Role::ALL.iter().find(|(_, n)| *n == name).map(|(r, _)| *r)
    }
}

/// The roles a token carries. A token without a `roles` claim is a publisher; with an empty one, a viewer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Roles(u8);

impl Roles {
    pub fn of(roles: &[Role]) -> Roles {
        Roles(roles.iter().fold(Role::Viewer as u8, |all, role| all | *role as u8))
    }
    /// Those that outlive a token in an outage.
    fn of_late(self) -> Roles {
        Roles(self.0 & (Role::Viewer as u8 | Role::Publisher as u8))
    }
    pub fn has(self, role: Role) -> bool {
        self.0 & role as u8 != 0
    }
}

/// Why something is not allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Denied {
    /// Credentials would be needed (401).
    NeedsToken,
    /// The credentials do not reach (403 `not_allowed`).
    NotAllowed,
    /// The room may not be shown where the viewer is (451 `blackout`).
    Blackout,
}

pub fn may_publish(who: Option<&Identity>, room: &RoomId, settings: &Room) -> Result<(), Denied> {
    let id = who.ok_or(Denied::NeedsToken)?;
    let writes = id.roles.has(Role::Publisher) || id.roles.has(Role::Backend) || may_moderate(who, room).is_ok();
    // In a strict room nobody speaks of whom nobody could say today that he may.
    let strict = settings.moderation_policy == Policy::PreModerateStrict;
    allowed(writes && id.covers(room) && (!id.is_guest() || settings.anonymous_publish) && !(id.is_late() && strict))
}

/// Publish in another user's name, gifts, export.
pub fn may_act_as_backend(who: Option<&Identity>, room: &RoomId) -> Result<(), Denied> {
    let id = who.ok_or(Denied::NeedsToken)?;
    allowed(id.is_backend() && id.covers(room))
}

/// Slow mode, bans, retract, pin and state of this room.
pub fn may_moderate(who: Option<&Identity>, room: &RoomId) -> Result<(), Denied> {
    let id = who.ok_or(Denied::NeedsToken)?;
    let in_named_rooms = id.roles.has(Role::RoomMod) && id.rooms().is_some() && id.covers(room);
    allowed(in_named_rooms || may_configure(who).is_ok())
}

/// Create rooms and change any of their settings.
pub fn may_configure(who: Option<&Identity>) -> Result<(), Denied> {
    let id = who.ok_or(Denied::NeedsToken)?;
    allowed(id.roles.has(Role::RegionOps) || id.roles.has(Role::Admin))
}

/// What only an admin may, an operator of a region not: hand out secrets, call a key in, erase users, hold the log against its chain.
pub fn may_administer(who: Option<&Identity>) -> Result<(), Denied> {
    let id = who.ok_or(Denied::NeedsToken)?;
    allowed(id.roles.has(Role::Admin))
}

pub fn may_export(who: Option<&Identity>, room: &RoomId) -> Result<(), Denied> {
    let id = who.ok_or(Denied::NeedsToken)?;
    allowed(may_act_as_backend(who, room).is_ok() || id.roles.has(Role::Admin))
}

fn allowed(yes: bool) -> Result<(), Denied> {
    if yes { Ok(()) } else { Err(Denied::NotAllowed) }
}

/// A name as it is shown: the rule of comments' authors, the same on every road. Surrounding spaces are removed.
/// Errors: `None` when the rule is broken.
pub fn display_name(name: &str) -> Option<Arc<str>> {
    text::check_name(name).ok().map(|name| name.as_ref().into())
}

#[cfg(test)]
mod tests {
    use grandstand_core::names::{RoomId, UserId};
    use grandstand_core::record::{Policy, Room};
    use grandstand_core::regions::Region;
    use grandstand_core::time::Wall;

    use super::{
        Denied, Identity, KeyName, More, Role, Roles, RoomPattern, TokenHash, display_name, may_act_as_backend,
        may_configure, may_export, may_moderate, may_publish, permit,
    };

    fn who(sub: &str, roles: &[Role], rooms: Option<&[&str]>) -> Identity {
        let rooms = rooms.map(|r| r.iter().map(|p| RoomPattern::parse(p).unwrap()).collect());
        Identity {
            user: UserId::parse(sub).unwrap(),
            name: None,
            more: Some(Box::new(More { rooms, ..More::default() })),
            roles: Roles::of(roles),
            exp: Wall(10_000_000),
            issued: 0,
            key: KeyName::default(),
            token: TokenHash::default(),
        }
    }

    fn room(id: &str) -> RoomId {
        RoomId::parse(id).unwrap()
    }

    #[test]
    fn a_pattern_is_a_room_or_the_start_of_rooms() {
        let hit = |p: &str, r: &str| RoomPattern::parse(p).unwrap().matches(&room(r));
        assert!(hit("a", "a") && !hit("a", "ab") && hit("a*", "ab") && hit("*", "x") && !hit("match:*", "match"));
        for bad in ["", "**", "*a", "A*", "a/*", "a*b"] {
            assert!(RoomPattern::parse(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn anonymous_viewers_need_the_rooms_leave() {
        let may_view = |who: Option<&Identity>, room: &RoomId, settings: &Room| {
            permit::may_view(who, None, room, settings).map(|_| ())
        };
        let open = Room::fresh("t");
        let closed = Room { anonymous_view: false, ..Room::fresh("t") };
        assert_eq!(may_view(None, &room("a"), &open), Ok(()));
        assert_eq!(may_view(None, &room("a"), &closed), Err(Denied::NeedsToken));
        assert_eq!(may_view(Some(&who("u", &[], None)), &room("a"), &closed), Ok(()));
        assert_eq!(may_view(Some(&who("u", &[], Some(&["b"]))), &room("a"), &open), Err(Denied::NotAllowed));
    }

    #[test]
    fn a_blackout_is_asked_after_the_token_and_holds_for_all_but_backends() {
        let [gb, sct, de] = ["GB", "GB-SCT", "DE"].map(|text| Region::parse(text).unwrap());
        let out = Room { blackout_regions: vec![gb], anonymous_view: false, ..Room::fresh("t") };
        let asked = |who: Option<&Identity>, place| permit::may_view(who, place, &room("a"), &out).map(|_| ());
        let viewer = who("u", &[Role::Admin], None);
        for (place, answer) in [(Some(de), Ok(())), (Some(sct), Err(Denied::Blackout)), (None, Err(Denied::Blackout))] {
            assert_eq!(asked(Some(&viewer), place), answer);
        }
        assert_eq!(asked(None, Some(de)), Err(Denied::NeedsToken));
        assert_eq!(asked(Some(&who("b", &[Role::Backend], None)), None), Ok(()));
        assert_eq!(asked(Some(&who("b", &[Role::Backend], Some(&["b"]))), None), Err(Denied::NotAllowed));
    }

    #[test]
    fn what_is_kept_of_a_room_is_read_by_those_who_look_after_it_wherever_they_sit() {
        let may = |who: Option<&Identity>, of: Option<&str>| permit::may_review(who, of.map(room).as_ref()).map(|_| ());
        let moderator = who("m", &[Role::RoomMod], Some(&["a"]));
        let backend = who("b", &[Role::Backend], Some(&["a"]));
        let admin = who("o", &[Role::Admin], None);
        for reader in [&moderator, &backend, &admin] {
            assert_eq!(may(Some(reader), Some("a")), Ok(()));
        }
        assert_eq!(
            (may(Some(&moderator), Some("b")), may(Some(&backend), None)),
            (Err(Denied::NotAllowed), Err(Denied::NotAllowed))
        );
        assert_eq!((may(Some(&admin), None), may(None, Some("a"))), (Ok(()), Err(Denied::NeedsToken)));
        assert_eq!(may(Some(&who("u", &[Role::Publisher], None)), Some("a")), Err(Denied::NotAllowed));
    }

    #[test]
    fn publishing_needs_the_role_the_room_and_for_guests_the_rooms_leave() {
        let open = Room::fresh("t");
        let strict = Room { anonymous_publish: false, ..Room::fresh("t") };
        let a = room("a");
        assert_eq!(may_publish(None, &a, &open), Err(Denied::NeedsToken));
        assert_eq!(may_publish(Some(&who("u", &[], None)), &a, &open), Err(Denied::NotAllowed));
        assert_eq!(may_publish(Some(&who("u", &[Role::Publisher], None)), &a, &strict), Ok(()));
        assert_eq!(may_publish(Some(&who("guest:1", &[Role::Publisher], None)), &a, &open), Ok(()));
        assert_eq!(may_publish(Some(&who("guest:1", &[Role::Publisher], None)), &a, &strict), Err(Denied::NotAllowed));
        assert_eq!(may_publish(Some(&who("u", &[Role::Publisher], Some(&["b*"]))), &a, &open), Err(Denied::NotAllowed));
    }

    #[test]
    fn a_late_token_speaks_where_the_room_is_not_strict_and_has_no_other_role() {
        let strict = Room { moderation_policy: Policy::PreModerateStrict, ..Room::fresh("t") };
        let all = who("u", &[Role::Publisher, Role::Admin, Role::Backend, Role::RoomMod], Some(&["a"]));
        let late = all.late(Wall(20_000_000));
        assert!(late.is_late() && late.ends_at() == Wall(20_000_000));
        for (moderation_policy, _) in Policy::ALL {
            let of = Room { moderation_policy, ..Room::fresh("t") };
            let closed = moderation_policy == Policy::PreModerateStrict;
            let answer = if closed { Err(Denied::NotAllowed) } else { Ok(()) };
            assert_eq!(may_publish(Some(&late), &room("a"), &of), answer, "{moderation_policy:?}");
        }
        assert_eq!(may_publish(Some(&all), &room("a"), &strict), Ok(()));
        assert_eq!(may_configure(Some(&late)), Err(Denied::NotAllowed));
        assert_eq!(may_moderate(Some(&late), &room("a")), Err(Denied::NotAllowed));
        assert_eq!(may_act_as_backend(Some(&late), &room("a")), Err(Denied::NotAllowed));
        assert_eq!(may_publish(Some(&late), &room("b"), &Room::fresh("t")), Err(Denied::NotAllowed));
    }

    #[test]
    fn a_moderator_of_one_room_is_nobody_in_another_and_never_an_operator() {
        let moderator = who("m", &[Role::RoomMod], Some(&["a"]));
        assert_eq!(may_moderate(Some(&moderator), &room("a")), Ok(()));
        assert_eq!(may_moderate(Some(&moderator), &room("b")), Err(Denied::NotAllowed));
        assert_eq!(may_configure(Some(&moderator)), Err(Denied::NotAllowed));
        assert_eq!(may_export(Some(&moderator), &room("a")), Err(Denied::NotAllowed));
        let unnamed = who("m", &[Role::RoomMod], None);
        assert_eq!(may_moderate(Some(&unnamed), &room("a")), Err(Denied::NotAllowed));
        assert_eq!(may_moderate(None, &room("a")), Err(Denied::NeedsToken));
    }

    #[test]
    fn only_a_backend_speaks_for_others_and_an_admin_may_read_the_log() {
        let admin = who("a", &[Role::Admin], None);
        let backend = who("b", &[Role::Backend], Some(&["a"]));
        assert_eq!(may_act_as_backend(Some(&admin), &room("a")), Err(Denied::NotAllowed));
        assert_eq!(may_act_as_backend(Some(&backend), &room("a")), Ok(()));
        assert_eq!(may_act_as_backend(Some(&backend), &room("b")), Err(Denied::NotAllowed));
        assert_eq!(may_configure(Some(&backend)), Err(Denied::NotAllowed));
        assert_eq!(may_export(Some(&admin), &room("a")), Ok(()));
    }

    #[test]
    fn names_to_be_shown_are_short_and_plain() {
        assert_eq!(display_name("  north stand ").as_deref(), Some("north stand"));
        assert_eq!(display_name("a\u{202e}b").as_deref(), Some("ab"));
        for bad in ["", "   ", "a\nb", &"x".repeat(33)] {
            assert!(display_name(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn a_stream_is_not_opened_on_a_token_that_would_end_it_at_once() {
        let id = who("u", &[], None);
        assert!(id.may_open_stream(Wall(10_000_000 + 20_000)));
        assert!(!id.may_open_stream(Wall(10_000_000 + 20_001)));
    }
}
