//! How many streams a user, an address, a room and the whole gateway hold, over all workers and transports.
//!
//! A table of counters behind sixteen locks, touched when a stream opens and when it ends, never while it runs.
//!
//! Users and addresses are counted by a 64-bit hash under a secret of the process: 13 bytes an entry instead of the name, and
//! nobody can find two users that share a counter. Among a million of them some two do with a chance of 1 in 37 million;
//! those would share one limit.
//!
//! Numbers: docs/protocol.md (16 a user, 64 an IPv4 address or IPv6 /64; loopback has no address limit).

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use grandstand_core::names::UserId;
use grandstand_core::places::Taken;

use crate::link::RoomTally;

const SHARDS: usize = 16;

/// An IPv4 address, or the /64 of an IPv6 one: what shares one limit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Prefix(u64);

impl Prefix {
    pub fn of(address: IpAddr) -> Prefix {
        match address.to_canonical() {
            IpAddr::V4(v4) => Prefix(u64::from(u32::from(v4))),
            IpAddr::V6(v6) => Prefix((u128::from(v6) >> 64) as u64),
        }
    }
}

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
    pub per_user: u32,
    pub per_address: u32,
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

/// Whose counter it is: the two halves of a hash, so that an entry with its counter takes twelve bytes and not sixteen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Key {
    high: u32,
    low: NonZeroU32,
}

pub struct StreamTable {
    limits: Limits,
    total: AtomicU32,
    secret: RandomState,
    users: Counters,
    addresses: Counters,
}

#[derive(Default)]
pub(super) struct Counters([Mutex<HashMap<Key, u32>>; SHARDS]);

impl StreamTable {
    pub fn new(limits: Limits) -> StreamTable {
        let (users, addresses) = (Counters::default(), Counters::default());
        StreamTable { limits, total: AtomicU32::new(0), secret: RandomState::new(), users, addresses }
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
        if let Some(key) = address.map(|address| Key::of(self.secret.hash_one(Prefix::of(address)))) {
            self.addresses.add(key, self.limits.per_address).ok_or(Full::Address)?;
            held.address = Some(key);
        }
        if let Some(key) = user.map(|user| Key::of(self.secret.hash_one(user))) {
            self.users.add(key, self.limits.per_user).ok_or(Full::User)?;
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
            self.users.remove(key);
        }
        if let Some(key) = held.address {
            self.addresses.remove(key);
        }
    }
}

impl Key {
    fn of(hash: u64) -> Key {
        Key { high: (hash >> 32) as u32, low: NonZeroU32::new(hash as u32).unwrap_or(NonZeroU32::MIN) }
    }
}

impl Counters {
    /// Errors: `None` at the limit.
    pub fn add(&self, key: Key, limit: u32) -> Option<()> {
        let mut counts = self.shard(key);
        let n = counts.entry(key).or_default();
        let fits = *n < limit;
        *n += u32::from(fits);
        fits.then_some(())
    }

    pub fn remove(&self, key: Key) {
        let mut counts = self.shard(key);
        if let Some(n) = counts.get_mut(&key) {
            *n -= 1;
            if *n == 0 {
                counts.remove(&key);
            }
        }
    }

    fn shard(&self, key: Key) -> MutexGuard<'_, HashMap<Key, u32>> {
        self.0[key.high as usize % SHARDS].lock().expect("no holder of this lock can panic")
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

    fn table() -> StreamTable {
        StreamTable::new(Limits { per_user: 2, per_address: 3, total: None, per_room: None })
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
        let limits = Limits { per_user: 1, per_address: 9, total: Some(3), per_room: Some(2) };
        let table = StreamTable::new(limits);
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
