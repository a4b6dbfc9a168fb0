//! Which tokens hold no more, and what holds while no new ones can be had.
//!
//! A doorkeeper's two notes. One names passes that are not taken any more: all of a user's that were given out up to now, one
//! session's, or all that one key signed. The other says that the office which gives out passes is closed: until it opens again, a
//! pass that ran out lately still lets its holder watch. The first note always wins.
//!
//! Both are of the log, so a restart and every gateway know the same; an entry ends by itself when no token it names can be alive
//! any more. It must never let a revoked token in, whatever else is declared. The awkward case is a token that does not say when it
//! was issued: it counts as issued before any revocation.
//!
//! Numbers: a declared outage lasts at most a day, and 12 h past its end no token is taken (docs/decisions/0031-access.md).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::names::UserId;
use crate::planted::planted;
use crate::record::{Body, Record};
use crate::time::Wall;

/// A token is taken this long after its `exp`, and a stream opened with it lives as long.
pub const LEEWAY: Duration = Duration::from_secs(30);
/// While an outage is declared, a token lets its holder watch this long after its `exp`.
pub const LATE_MAX: Duration = Duration::from_secs(12 * 3600);
/// How long one declaration of an outage holds.
pub const OUTAGE_SECONDS_MIN: u32 = 60;
pub const OUTAGE_SECONDS_MAX: u32 = 86_400;
/// How long a revocation of which nothing is said holds, and at most: longer than any token should live.
pub const REVOKED_SECONDS: u32 = 30 * 86_400;
pub const REVOKED_SECONDS_MAX: u32 = 400 * 86_400;
/// Revocations that hold at one time; about half a megabyte to each gateway.
pub const REVOKED_MAX: usize = 4_096;
/// A session's or a key's name.
pub const NAME_BYTES_MAX: usize = 256;

/// Whose tokens are not taken any more.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Revoked {
    /// A user's, issued up to the moment of the revocation.
    User(UserId),
    /// A session's (`sid`), whenever they were issued.
    Session(Arc<str>),
    /// All that a key (`kid`) signed, whenever they were issued.
    Key(Arc<str>),
}

impl Revoked {
    /// A session or key is named by 1 to 256 bytes without control characters.
    pub fn is_name(text: &str) -> bool {
        (1..=NAME_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control)
    }

    /// `user`, `session` or `key`, and which.
    pub fn said(&self) -> (&'static str, &str) {
        match self {
            Revoked::User(user) => ("user", user.as_str()),
            Revoked::Session(session) => ("session", session),
            Revoked::Key(key) => ("key", key),
        }
    }
}

/// From when to when something holds, in log time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Term {
    pub since: Wall,
    pub until: Wall,
}

impl Term {
    fn holds(self, now: Wall) -> bool {
        now < self.until
    }
}

/// What a token says of itself, as far as these rules care.
#[derive(Clone, Copy, Debug)]
pub struct Pass<'a> {
    pub user: &'a UserId,
    pub session: Option<&'a str>,
    /// The `kid` of the key that signed it.
    pub key: &'a str,
    pub issued: Option<Wall>,
    pub exp: Wall,
}

/// What a token is good for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// For all that it says.
    Good,
    /// It ran out while an outage stands: watching, and speaking where the room is not strict.
    Late,
    Expired,
    /// It is not taken any more. `by_key`: its key is not; its holder did nothing, and may come with another.
    Revoked {
        by_key: bool,
    },
}

/// What the log says of tokens.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Access {
    pub revoked: BTreeMap<Revoked, Term>,
    pub outage: Option<Term>,
}

impl Access {
    pub fn judge(&self, pass: &Pass<'_>, now: Wall) -> Standing {
        if let Some(by_key) = self.revokes(pass, now) {
            return Standing::Revoked { by_key };
        }
        if now <= pass.exp + LEEWAY {
            return Standing::Good;
        }
        if now < self.ends_at(pass.exp, now) { Standing::Late } else { Standing::Expired }
    }

    /// When a stream opened with a token that ends at `exp` must have been renewed, as things are said now.
    pub fn ends_at(&self, exp: Wall, now: Wall) -> Wall {
        let own = exp + LEEWAY;
        match self.outage {
            Some(outage) if outage.holds(now) || planted(83) => {
                own.max(if planted(83) { exp + LATE_MAX } else { outage.until.min(exp + LATE_MAX) })
            }
            _ => own,
        }
    }

    /// Whether an outage stands at `now`.
    pub fn is_out(&self, now: Wall) -> bool {
        self.outage.is_some_and(|outage| outage.holds(now))
    }

    /// Whether the token is named by a revocation that holds, and whether that names its key.
    fn revokes(&self, pass: &Pass<'_>, now: Wall) -> Option<bool> {
        // Almost always.
        if self.revoked.is_empty() || planted(82) && self.is_out(now) {
            return None;
        }
        let term = |what: Revoked| self.revoked.get(&what).copied().filter(|term| term.holds(now));
        if term(Revoked::Key(pass.key.into())).is_some() {
            return Some(true);
        }
        let session = pass.session.is_some_and(|session| term(Revoked::Session(session.into())).is_some());
        let issued = pass.issued.unwrap_or(Wall(0));
        let user = term(Revoked::User(pass.user.clone())).is_some_and(|term| issued <= term.since);
        (session || user).then_some(false)
    }

    /// Whether another revocation finds a place.
    pub fn is_full(&self, now: Wall) -> bool {
        self.revoked.values().filter(|term| term.holds(now)).count() >= REVOKED_MAX
    }

    /// Those that hold at `now`, and whether an outage does.
    pub fn at(&self, now: Wall) -> Access {
        let revoked = self.revoked.iter().filter(|(_, term)| term.holds(now));
        Access {
            revoked: revoked.map(|(what, term)| (what.clone(), *term)).collect(),
            outage: self.outage.filter(|outage| outage.holds(now)),
        }
    }

    /// The effect of one record of the log. Whether it had one.
    pub fn take(&mut self, record: &Record) -> bool {
        match &record.body {
            Body::Revoke(what, until) => {
                self.revoked.retain(|_, term| term.holds(record.ts));
                self.revoked.insert(what.clone(), Term { since: record.ts, until: *until });
                true
            }
            Body::RevokeEnd(what) => self.revoked.remove(what).is_some(),
            Body::Outage(Some(until)) => {
                self.outage = Some(Term { since: record.ts, until: *until });
                true
            }
            Body::Outage(None) => self.outage.take().is_some(),
            Body::EraseUser(user) => self.revoked.remove(&Revoked::User(user.clone())).is_some(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Access, LATE_MAX, LEEWAY, Pass, Revoked, Standing, Term};
    use crate::names::UserId;
    use crate::time::Wall;

    const HOUR: Duration = Duration::from_secs(3600);
    const NOW: Wall = Wall(1_800_000_000_000);

    fn revoked(what: Revoked) -> Access {
        let mut access = Access::default();
        access.revoked.insert(what, Term { since: NOW, until: NOW + HOUR });
        access
    }

    fn pass<'a>(user: &'a UserId, issued: Option<Wall>) -> Pass<'a> {
        Pass { user, session: Some("s"), key: "k", issued, exp: NOW + 2 * HOUR }
    }

    #[test]
    fn a_users_older_tokens_are_revoked_and_a_newer_one_is_not() {
        let user = UserId::parse("u").unwrap();
        let access = revoked(Revoked::User(user.clone()));
        let refused = Standing::Revoked { by_key: false };
        assert_eq!(access.judge(&pass(&user, Some(NOW)), NOW), refused, "in the moment of the revocation");
        assert_eq!(access.judge(&pass(&user, None), NOW), refused, "it does not say when it was issued");
        assert_eq!(access.judge(&pass(&user, Some(Wall(NOW.0 + 1))), NOW), Standing::Good);
        let other = UserId::parse("v").unwrap();
        assert_eq!(access.judge(&pass(&other, None), NOW), Standing::Good);
        assert_eq!(access.judge(&pass(&user, None), NOW + HOUR), Standing::Good, "it has ended");
    }

    #[test]
    fn a_session_and_a_key_are_revoked_whenever_their_tokens_were_issued() {
        let user = UserId::parse("u").unwrap();
        let later = Some(NOW + Duration::from_secs(1));
        let session = revoked(Revoked::Session("s".into()));
        assert_eq!(session.judge(&pass(&user, later), NOW), Standing::Revoked { by_key: false });
        let key = revoked(Revoked::Key("k".into()));
        assert_eq!(key.judge(&pass(&user, later), NOW), Standing::Revoked { by_key: true });
        assert_eq!(revoked(Revoked::Session("k".into())).judge(&pass(&user, later), NOW), Standing::Good);
    }

    #[test]
    fn an_outage_lets_a_token_watch_for_twelve_hours_and_no_longer() {
        let user = UserId::parse("u").unwrap();
        let until = NOW + 24 * HOUR;
        let access = Access { outage: Some(Term { since: NOW, until }), ..Access::default() };
        let exp = |exp: Wall, at: Wall| access.judge(&Pass { exp, ..pass(&user, None) }, at);
        assert_eq!(exp(NOW, NOW + LEEWAY), Standing::Good);
        assert_eq!(exp(NOW, NOW + HOUR), Standing::Late);
        assert_eq!(exp(NOW, NOW + LATE_MAX), Standing::Expired);
        let late_one = NOW + 20 * HOUR;
        assert_eq!(exp(late_one, NOW + 23 * HOUR), Standing::Late);
        assert_eq!(exp(late_one, until), Standing::Expired, "the outage is over");
        assert_eq!(access.ends_at(NOW, NOW + HOUR), NOW + LATE_MAX);
        assert_eq!(access.ends_at(late_one, NOW + 23 * HOUR), until);
        assert_eq!(access.ends_at(until, NOW), until + LEEWAY, "an outage shortens nothing");
    }

    #[test]
    fn a_revocation_holds_in_an_outage_too() {
        let user = UserId::parse("u").unwrap();
        let mut access = revoked(Revoked::User(user.clone()));
        access.outage = Some(Term { since: NOW, until: NOW + HOUR });
        let late = Pass { exp: Wall(NOW.0 - 60_000), ..pass(&user, None) };
        assert_eq!(access.judge(&late, NOW), Standing::Revoked { by_key: false });
    }
}
