//! Tokens that were verified before: the faces a doorkeeper has seen tonight.
//!
//! A token is known again by the first half of its SHA-256, so a second stream, a resume or a whole crowd that comes back
//! costs a look-up and no signature. What is known again is what the token said, never that it still holds: the caller looks
//! at its end each time. It is bounded by two generations: when the young one is full it becomes the old one, whose faces
//! are forgotten unless they are seen again.
//!
//! Shape: nine bytes a token in the table; the rest is the [`Identity`] itself, which its streams share.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use aws_lc_rs::digest;

use super::Identity;

/// Verified tokens of one generation: at about 150 bytes each, five megabytes.
const GENERATION: usize = 32 * 1024;

/// Which token somebody came with: 128 bits of its hash. To meet another's by chance or by work takes more tokens than can
/// be made. Zero is none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct TokenHash([u8; 16]);

impl TokenHash {
    pub fn of(token: &str) -> TokenHash {
        let hash = digest::digest(&digest::SHA256, token.as_bytes());
        TokenHash(hash.as_ref()[..16].try_into().expect("SHA-256 gives 32 bytes"))
    }
}

#[derive(Default)]
pub struct Remembered {
    young: HashSet<Face>,
    old: HashSet<Face>,
    /// How often all were forgotten.
    age: Age,
}

/// Between two times that all were forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Age(u64);

/// An identity, found by its token.
struct Face(Arc<Identity>);

impl Borrow<TokenHash> for Face {
    fn borrow(&self) -> &TokenHash {
        &self.0.token
    }
}
impl Hash for Face {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.token.hash(state);
    }
}
impl PartialEq for Face {
    fn eq(&self, other: &Face) -> bool {
        self.0.token == other.0.token
    }
}
impl Eq for Face {}

impl Remembered {
    pub fn find(&mut self, token: TokenHash) -> Option<Arc<Identity>> {
        if let Some(Face(identity)) = self.young.get(&token) {
            return Some(identity.clone());
        }
        let Face(identity) = self.old.take(&token)?;
        self.insert(identity.clone());
        Some(identity)
    }

    pub fn age(&self) -> Age {
        self.age
    }

    /// Forgets all: what they were checked by does not hold any more.
    pub fn forget(&mut self) {
        *self = Remembered { age: Age(self.age.0 + 1), ..Remembered::default() };
    }

    /// Remembers who came with `identity.token`, unless all were forgotten since `checked`, when its check began.
    pub fn insert_of(&mut self, checked: Age, identity: Arc<Identity>) {
        if self.age == checked {
            self.insert(identity);
        }
    }

    fn insert(&mut self, identity: Arc<Identity>) {
        debug_assert_ne!(identity.token, TokenHash::default(), "it came with a token");
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(Face(identity));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use grandstand_core::time::Wall;

    use super::{GENERATION, Remembered, TokenHash};
    use crate::auth::Identity;
    use crate::auth::token::Claims;

    fn identity(token: usize) -> Arc<Identity> {
        let claims = Claims::new("u", Wall(0), Duration::from_secs(60));
        Arc::new(Identity { token: TokenHash::of(&token.to_string()), ..claims.identity().unwrap() })
    }

    #[test]
    fn a_token_whose_check_began_before_all_were_forgotten_is_not_remembered() {
        let mut remembered = Remembered::default();
        let before = remembered.age();
        remembered.insert_of(before, identity(1));
        remembered.forget();
        remembered.insert_of(before, identity(2));
        remembered.insert_of(remembered.age(), identity(3));
        let found = [1, 2, 3].map(|token: usize| remembered.find(TokenHash::of(&token.to_string())).is_some());
        assert_eq!(found, [false, false, true]);
    }

    #[test]
    fn what_is_seen_again_stays_and_the_rest_is_forgotten_after_two_generations() {
        let mut remembered = Remembered::default();
        let of = |token: usize| TokenHash::of(&token.to_string());
        for token in 0..=GENERATION {
            remembered.insert(identity(token));
        }
        assert!(remembered.find(of(1)).is_some_and(|found| found.token == of(1)));
        for token in GENERATION + 1..2 * GENERATION {
            remembered.insert(identity(token));
        }
        assert!(remembered.find(of(1)).is_some());
        assert!(remembered.find(of(2)).is_none());
        assert!(remembered.young.len() + remembered.old.len() <= 2 * GENERATION);
    }
}
