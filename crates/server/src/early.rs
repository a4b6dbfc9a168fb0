//! Publishes that are refused where they arrive: by the owner's last word on their user, and by the rate of their address.
//!
//! The rule is the core's (`refusals`). Each worker and the control role have a door of their own, so that nothing is shared; an
//! address that uses several has as many rates. Loopback and `limits.exempt` have none.

use std::net::IpAddr;

use grandstand_core::hash::Seeded;
use grandstand_core::names::{RoomId, UserId};
use grandstand_core::owner::answer::Answer;
use grandstand_core::refusals::{ADDRESS, Rates, Refusals};
use grandstand_core::reject::{Code, Reject};
use grandstand_core::time::Mono;

use crate::auth::door::{self, Network};

pub struct Early {
    refusals: Refusals,
    addresses: Rates,
    exempt: Vec<Network>,
}

impl Early {
    pub fn new(exempt: Vec<Network>) -> Early {
        // Which names share a place is nobody's business outside.
        let seed = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0);
        let hasher = Seeded(seed);
        Early { refusals: Refusals::new(hasher), addresses: Rates::new(hasher, ADDRESS), exempt }
    }

    /// Whether the owner is asked. Not for backends: they have no rate.
    pub fn may_publish(&mut self, room: &RoomId, user: &UserId, from: IpAddr, now: Mono) -> Result<(), Reject> {
        self.refusals.may_ask(room, user, now)?;
        if door::is_exempt(from, &self.exempt) {
            return Ok(());
        }
        let took = self.addresses.take(door::address_key(from), now);
        took.map_err(|wait| Reject::after(Code::IpRate, "too many comments from this address", wait))
    }

    /// What the owner said to a publish.
    pub fn note(&mut self, room: &RoomId, user: &UserId, answer: &Answer, now: Mono) {
        if let Answer::Reject(reject) = answer {
            self.refusals.note(room, user, reject, now);
        }
    }
}
