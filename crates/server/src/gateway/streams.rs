//! How many streams a user, an address, a room and the whole gateway hold, over all workers and transports.
//!
//! Counted when a stream opens and when it ends, never while it runs. Users and addresses are counted by
//! `link/bundles.rs`, with what other gateway processes hold of them.
//!
//! Numbers: docs/protocol.md (16 a user, 64 an IPv4 address or IPv6 /64; loopback has no address limit).

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use grandstand_core::bundles::Limited;
use grandstand_core::names::UserId;
use grandstand_core::places::Taken;

use crate::link::RoomTally;
use crate::link::bundles::{self, Bundles, Key};

/// Which limit a new stream met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Full {
    User,
    Address,
    /// `connections_max`.
    Total,
    /// `connections_per_room_max`.
    Room,
    /// Long-polls that wait, of a user or an address.
    Polls,
}

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Held by [`Bundles`], over all gateway processes.
    pub each: bundles::Limits,
    /// `None`: unlimited.
    pub total: Option<u32>,
    pub per_room: Option<u32>,
}

/// What one open stream holds; given back with [`StreamTable::leave`].
#[derive(Debug, Default)]
pub struct Held {
    pub(super) user: Option<Key>,
    pub(super) address: Option<Key>,
    room: Option<Arc<RoomTally>>,
}

pub struct StreamTable {
    limits: Limits,
    total: AtomicU32,
    bundles: Arc<Bundles>,
}

impl StreamTable {
    pub fn new(limits: Limits, bundles: Arc<Bundles>) -> StreamTable {
        StreamTable { limits, total: AtomicU32::new(0), bundles }
    }

    /// Counts a new stream of `room`. `user` is `None` for anonymous viewers and users without a limit; `address` is `None`
    /// for addresses without one. What has no limit is not held.
    /// Errors: the limit that is reached; nothing is counted then.
    pub fn enter(&self, user: Option<&UserId>, address: Option<IpAddr>, room: &Arc<RoomTally>) -> Result<Held, Full> {
        if let Some(limit) = self.limits.total {
            take(&self.total, limit).ok_or(Full::Total)?;
        }
        let mut held = Held::default();
        if let Err(full) = self.count(&mut held, user, address, room) {
            self.leave(&held);
            return Err(full);
        }
        Ok(held)
    }

    fn count(
        &self,
        held: &mut Held,
        user: Option<&UserId>,
        address: Option<IpAddr>,
        room: &Arc<RoomTally>,
    ) -> Result<(), Full> {
        if let Some(limit) = self.limits.per_room {
            let elsewhere = room.held_elsewhere.load(Ordering::Relaxed);
            take(&room.held, limit.saturating_sub(elsewhere)).ok_or(Full::Room)?;
            held.room = Some(room.clone());
        }
        if let Some(key) = address.map(|address| self.bundles.address(address)) {
            self.bundles.add(Limited::AddressStreams, key).ok_or(Full::Address)?;
            held.address = Some(key);
        }
        if let Some(key) = user.map(|user| self.bundles.user(user)) {
            self.bundles.add(Limited::UserStreams, key).ok_or(Full::User)?;
            held.user = Some(key);
        }
        Ok(())
    }

    /// What is taken of `connections_max`, where there is one.
    pub fn taken(&self) -> Option<Taken> {
        Some(Taken { n: self.total.load(Ordering::Relaxed).into(), most: self.limits.total?.into() })
    }

    /// Whether [`StreamTable::enter`] would hold anything of a stream without user and address.
    pub fn counts_all(&self) -> bool {
        self.limits.total.is_some() || self.limits.per_room.is_some()
    }

    /// Whether a room that is joined beside another is full. Such a place is not held, so this is near, not exact.
    pub fn is_room_full(&self, room: &RoomTally) -> bool {
        let viewers = room.viewers();
        self.limits.per_room.is_some_and(|limit| viewers >= u64::from(limit))
    }

    /// Gives back what [`StreamTable::enter`] returned.
    pub fn leave(&self, held: &Held) {
        if self.limits.total.is_some() {
            self.total.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(room) = &held.room {
            room.held.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(key) = held.user {
            self.bundles.remove(Limited::UserStreams, key);
        }
        if let Some(key) = held.address {
            self.bundles.remove(Limited::AddressStreams, key);
        }
    }
}

/// One more, up to the limit.
fn take(n: &AtomicU32, limit: u32) -> Option<u32> {
    n.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < limit).then_some(n + 1)).ok()
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::Arc;

    use grandstand_core::names::UserId;

    use super::{Full, Limits, StreamTable};
    use crate::link::bundles::{self, Bundles};

    fn table_of(limits: Limits) -> StreamTable {
        StreamTable::new(limits, Arc::new(Bundles::alone(limits.each, limits.each)))
    }
    fn table() -> StreamTable {
        table_of(Limits { each: bundles::Limits { per_user: 2, per_address: 3 }, total: None, per_room: None })
    }
    fn user(name: &str) -> Option<UserId> {
        UserId::parse(name)
    }
    fn address(text: &str) -> Option<IpAddr> {
        text.parse().ok()
    }

    #[test]
    fn a26_a_user_and_an_address_each_have_their_limit() {
        let (table, room) = (table(), Arc::default());
        let first = table.enter(user("a").as_ref(), address("10.0.0.1"), &room).unwrap();
        table.enter(user("a").as_ref(), address("10.0.0.1"), &room).unwrap();
        assert_eq!(table.enter(user("a").as_ref(), address("10.0.0.1"), &room).unwrap_err(), Full::User);
        table.enter(None, address("::ffff:10.0.0.1"), &room).unwrap();
        assert_eq!(table.enter(user("b").as_ref(), address("10.0.0.1"), &room).unwrap_err(), Full::Address);
        table.leave(&first);
        table.enter(user("a").as_ref(), address("10.0.0.1"), &room).unwrap();
    }

    #[test]
    fn a73_one_slash_64_is_one_address() {
        let (table, room) = (table(), Arc::default());
        for host in ["2001:db8::1", "2001:db8::2", "2001:db8:0:0:ffff::"] {
            table.enter(None, address(host), &room).unwrap();
        }
        assert_eq!(table.enter(None, address("2001:db8::9"), &room).unwrap_err(), Full::Address);
        assert!(table.enter(None, address("2001:db8:0:1::9"), &room).is_ok());
    }

    #[test]
    fn the_gateway_and_a_room_each_have_their_limit_and_a_refusal_holds_nothing() {
        let each = bundles::Limits { per_user: 1, per_address: 9 };
        let table = table_of(Limits { each, total: Some(3), per_room: Some(2) });
        let (full, other) = (Arc::default(), Arc::default());
        let first = table.enter(user("a").as_ref(), None, &full).unwrap();
        assert_eq!(table.enter(user("a").as_ref(), None, &full).unwrap_err(), Full::User);
        table.enter(None, None, &full).unwrap();
        assert_eq!(table.enter(None, None, &full).unwrap_err(), Full::Room);
        table.enter(None, None, &other).unwrap();
        assert_eq!(table.enter(None, None, &other).unwrap_err(), Full::Total);
        table.leave(&first);
        table.enter(user("a").as_ref(), None, &full).unwrap();
    }
}
