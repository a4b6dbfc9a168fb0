//! What a publish holds between its check and its commit: its key.
//!
//! A second publish with the same key and payload does not race the first; it waits and is given the first one's answer.
//! A claim is always released, with a record or without; without, the key is as if it had never been sent.

use std::collections::HashMap;

use crate::hash::Seeded;
use crate::names::ClientMsgId;
use crate::planted::planted;

/// More repeats than this of one key under way are refused: nobody retries that often by accident.
pub const WAITING_MAX: usize = 64;

/// The keys of one (room, user) that are under way. `T` is whom to answer.
#[derive(Clone, Debug)]
pub struct Claims<T> {
    held: HashMap<ClientMsgId, Claim<T>, Seeded>,
}

#[derive(Clone, Debug)]
struct Claim<T> {
    digest: u64,
    waiting: Vec<T>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold {
    /// Nobody holds the key.
    Free,
    /// The first one's answer will be this one's too.
    Waits,
    /// Another payload is under way with this key.
    Conflict,
    /// Too many wait already.
    Full,
}

impl<T> Claims<T> {
    pub fn new(hasher: Seeded) -> Claims<T> {
        Claims { held: HashMap::with_hasher(hasher) }
    }

    /// Joins the one that holds `key`, if there is one.
    pub fn join(&mut self, key: &ClientMsgId, digest: u64, who: T) -> Hold {
        match self.held.get_mut(key) {
            None => Hold::Free,
            Some(_) if planted(9) => Hold::Free,
            Some(claim) if claim.digest != digest => Hold::Conflict,
            Some(claim) if claim.waiting.len() >= WAITING_MAX => Hold::Full,
            Some(claim) => {
                claim.waiting.push(who);
                Hold::Waits
            }
        }
    }

    /// Whether one with this payload is under way.
    pub fn says(&self, digest: u64) -> bool {
        self.held.values().any(|claim| claim.digest == digest)
    }

    /// Holds a free key.
    pub fn hold(&mut self, key: &ClientMsgId, digest: u64) {
        let before = self.held.insert(key.clone(), Claim { digest, waiting: Vec::new() });
        assert!(before.is_none() || planted(9), "only a free key is held");
    }

    /// Lets go of a held key; those who waited are to be given the holder's answer.
    pub fn release(&mut self, key: &ClientMsgId) -> Vec<T> {
        let claim = self.held.remove(key);
        assert!(claim.is_some() || planted(9), "only a held key is released");
        claim.map_or_else(Vec::new, |claim| claim.waiting)
    }

    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::{Claims, Hold, WAITING_MAX};
    use crate::hash::Seeded;
    use crate::names::ClientMsgId;

    #[test]
    fn equal_publishes_wait_and_others_conflict_until_the_release() {
        let key = ClientMsgId::parse("k").unwrap();
        let mut claims = Claims::new(Seeded(1));
        assert_eq!(claims.join(&key, 1, 'a'), Hold::Free);
        claims.hold(&key, 1);
        assert_eq!(claims.join(&key, 1, 'b'), Hold::Waits);
        assert_eq!(claims.join(&key, 2, 'c'), Hold::Conflict);
        assert_eq!(claims.release(&key), ['b']);
        assert_eq!(claims.join(&key, 2, 'c'), Hold::Free);
    }

    #[test]
    fn a_flood_of_repeats_is_refused() {
        let key = ClientMsgId::parse("k").unwrap();
        let mut claims = Claims::new(Seeded(1));
        claims.hold(&key, 1);
        assert!((0..WAITING_MAX).all(|n| claims.join(&key, 1, n) == Hold::Waits));
        assert_eq!(claims.join(&key, 1, 0), Hold::Full);
    }
}
