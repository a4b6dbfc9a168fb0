//! What a door remembers of the owner's refusals, and what an address may send: so that a flood is turned away where it arrives.
//!
//! Like a doorman who was told "not this one for ten seconds": he does not run in to ask each time. A trickle is let through all
//! the same, because a retry of what was accepted is free and only the owner knows it. The owner stays the judge; what is
//! remembered here is its last word, in a table of fixed size, forgotten at a restart. Two users who share a place in the table
//! push each other's word out, and neither is refused for the other.

use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use crate::hash::Seeded;
use crate::names::{RoomId, UserId};
use crate::rate::{Gcra, Limit};
use crate::reject::{Code, Reject};
use crate::time::Mono;

/// Places: 16 384 of 32 bytes are half a mebibyte.
const PLACES: usize = 16_384;
/// What passes of one user while the owner's word is no.
const TRICKLE: Limit = Limit { per_second: 5, burst: 10 };
/// No word holds longer without being asked again: rooms open, bans are lifted.
const HOLDS_MAX: Duration = Duration::from_secs(2);
/// Of one address, over all users and rooms: as many streams as it may have, each at a user's rate. 64 x 2/s, 64 x 40 at once.
pub const ADDRESS: Limit = Limit { per_second: 128, burst: 2_560 };

#[derive(Clone, Copy, Default)]
struct Place {
    /// Of whom; 0 of nobody.
    mark: u64,
    until: Mono,
    /// When what was told is over.
    free_at: Mono,
    trickle: Gcra,
    code: Option<Code>,
}

/// The words of one door.
pub struct Refusals {
    hasher: Seeded,
    places: Box<[Place]>,
}

impl Refusals {
    pub fn new(hasher: Seeded) -> Refusals {
        Refusals { hasher, places: vec![Place::default(); PLACES].into() }
    }

    /// Whether the user may ask the owner now.
    /// Errors: the owner's last word, with what is left of the wait.
    pub fn may_ask(&mut self, room: &RoomId, user: &UserId, now: Mono) -> Result<(), Reject> {
        let (at, mark) = self.place_of(room, user);
        let place = &mut self.places[at];
        let Some(code) = place.code.filter(|_| place.mark == mark && now < place.until) else { return Ok(()) };
        place.trickle.take(TRICKLE, now).map_err(|wait| {
            let wait = place.free_at.since(now).max(wait);
            Reject::after(code, "refused a moment ago, and not asked again yet", wait)
        })
    }

    /// The owner refused the user in the room. Only what waiting helps is remembered.
    pub fn note(&mut self, room: &RoomId, user: &UserId, reject: &Reject, now: Mono) {
        let Some(wait) = reject.retry_after.filter(|_| matches!(reject.code, Code::SlowMode | Code::UserRate)) else {
            return;
        };
        let (at, mark) = self.place_of(room, user);
        let place = &mut self.places[at];
        if place.mark != mark {
            *place = Place { mark, ..Place::default() };
        }
        (place.code, place.free_at, place.until) = (Some(reject.code), now + wait, now + wait.min(HOLDS_MAX));
    }

    fn place_of(&self, room: &RoomId, user: &UserId) -> (usize, u64) {
        let mark = self.hasher.hash_one((room, user)) | 1;
        ((mark >> 32) as usize % PLACES, mark)
    }
}

/// Rates of many things in fixed memory: two places each, and what is refused was refused by both.
pub struct Rates {
    hasher: Seeded,
    limit: Limit,
    places: Box<[Gcra]>,
}

impl Rates {
    pub fn new(hasher: Seeded, limit: Limit) -> Rates {
        Rates { hasher, limit, places: vec![Gcra::default(); PLACES].into() }
    }

    /// Takes one of `what`. Errors: how long to wait.
    pub fn take(&mut self, what: impl Hash, now: Mono) -> Result<(), Duration> {
        let hash = self.hasher.hash_one(what);
        let first = self.places[hash as u32 as usize % PLACES].take(self.limit, now);
        let second = self.places[(hash >> 32) as usize % PLACES].take(self.limit, now);
        match (first, second) {
            (Err(a), Err(b)) => Err(a.min(b)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{ADDRESS, HOLDS_MAX, Rates, Refusals};
    use crate::hash::Seeded;
    use crate::names::{RoomId, UserId};
    use crate::reject::{Code, Reject};
    use crate::time::Mono;

    fn room(name: &str) -> RoomId {
        RoomId::parse(name).unwrap()
    }
    fn user(name: &str) -> UserId {
        UserId::parse(name).unwrap()
    }
    fn slow(seconds: u64) -> Reject {
        Reject::after(Code::SlowMode, "slow", Duration::from_secs(seconds))
    }

    #[test]
    fn a_refused_user_is_let_through_in_a_trickle_and_nobody_else_is_held_up() {
        let mut door = Refusals::new(Seeded(1));
        let (a, u) = (room("a"), user("u"));
        let now = Mono(5_000_000);
        assert!(door.may_ask(&a, &u, now).is_ok());
        door.note(&a, &u, &slow(30), now);
        let passed = (0..10_000).filter(|_| door.may_ask(&a, &u, now).is_ok()).count();
        assert_eq!(passed, 10);
        let told = door.may_ask(&a, &u, now).unwrap_err();
        assert_eq!((told.code, told.retry_after), (Code::SlowMode, Some(Duration::from_secs(30))));
        assert!(door.may_ask(&room("b"), &u, now).is_ok() && door.may_ask(&a, &user("v"), now).is_ok());
        assert!(door.may_ask(&a, &u, now + HOLDS_MAX).is_ok(), "the owner is asked again");
    }

    #[test]
    fn what_waiting_does_not_help_is_not_remembered() {
        let mut door = Refusals::new(Seeded(1));
        for code in [Code::BadText, Code::Banned, Code::RoomRate] {
            door.note(&room("a"), &user("u"), &Reject::after(code, "no", Duration::from_secs(9)), Mono(1));
        }
        assert!((0..100).all(|_| door.may_ask(&room("a"), &user("u"), Mono(1)).is_ok()));
    }

    #[test]
    fn an_address_has_its_rate_and_others_have_theirs() {
        let mut rates = Rates::new(Seeded(1), ADDRESS);
        let now = Mono(1);
        let passed = (0..100_000).filter(|_| rates.take(7_u64, now).is_ok()).count();
        assert_eq!(passed, ADDRESS.burst as usize);
        assert!(rates.take(7_u64, now).is_err_and(|wait| wait <= Duration::from_millis(8)));
        assert!((0..1_000_u64).filter(|n| *n != 7).all(|n| rates.take(n, now).is_ok()));
    }
}
