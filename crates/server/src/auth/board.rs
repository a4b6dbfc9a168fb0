//! What the log says of tokens, where every door of a process can read it.
//!
//! Like the board behind the gates' desk: the shard writes on it what was committed, a gateway process copies it from there, and
//! whoever judges a token looks at it each time, so that nothing that was verified before outlives a word on it.

use std::sync::{Arc, RwLock};

use grandstand_core::access::{Access, Standing};
use grandstand_core::time::Wall;

use super::Identity;

#[derive(Default)]
pub struct Board(RwLock<Arc<Access>>);

/// What becomes of somebody whose token was good once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Word {
    Stays,
    /// The token ran out, and an outage lets it go on as this.
    Late(Box<Identity>),
    Expired,
    /// `by_key`: its key is not taken any more; who holds it may come with another.
    Revoked {
        by_key: bool,
    },
}

impl Board {
    pub fn read(&self) -> Arc<Access> {
        self.0.read().expect("no holder of this lock can panic").clone()
    }

    pub fn write(&self, access: Arc<Access>) {
        *self.0.write().expect("no holder of this lock can panic") = access;
    }

    pub fn judge(&self, who: &Identity, now: Wall) -> Word {
        let access = self.read();
        match access.judge(&who.pass(&who.key.text()), now) {
            Standing::Good => Word::Stays,
            Standing::Late => {
                let until = access.ends_at(who.exp, now);
                if who.is_late() && who.ends_at() == until {
                    Word::Stays
                } else {
                    Word::Late(Box::new(who.late(until)))
                }
            }
            Standing::Expired => Word::Expired,
            Standing::Revoked { by_key } => Word::Revoked { by_key },
        }
    }
}
