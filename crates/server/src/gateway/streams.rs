//! How many streams a user and an address hold, over all workers and transports.
//!
//! A table of counters behind sixteen locks, touched when a stream opens and when it ends, never while it runs.
//! Numbers: docs/protocol.md (16 a user, 64 an IPv4 address or IPv6 /64; loopback has no address limit).

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Mutex;

use grandstand_core::names::UserId;
use grandstand_core::routing::stable_hash;

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
}

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub per_user: u32,
    pub per_address: u32,
}

/// What one open stream holds; given back with [`StreamTable::leave`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Held {
    user: Option<UserId>,
    address: Option<Prefix>,
}

pub struct StreamTable {
    limits: Limits,
    users: [Mutex<HashMap<UserId, u32>>; SHARDS],
    addresses: [Mutex<HashMap<Prefix, u32>>; SHARDS],
}

impl StreamTable {
    pub fn new(limits: Limits) -> StreamTable {
        StreamTable { limits, users: Default::default(), addresses: Default::default() }
    }

    /// Counts a new stream. `user` is `None` for anonymous viewers and users without a limit; `address` is `None` for
    /// addresses without one.
    /// Errors: the limit that is reached; nothing is counted then.
    pub fn enter(&self, user: Option<UserId>, address: Option<IpAddr>) -> Result<Held, Full> {
        let address = address.map(Prefix::of);
        if let Some(prefix) = address {
            let shard = &self.addresses[prefix.0 as usize % SHARDS];
            if !add(shard, prefix, self.limits.per_address) {
                return Err(Full::Address);
            }
        }
        if let Some(user) = &user
            && !add(&self.users[user_shard(user)], user.clone(), self.limits.per_user)
        {
            self.leave(&Held { user: None, address });
            return Err(Full::User);
        }
        Ok(Held { user, address })
    }

    pub fn leave(&self, held: &Held) {
        if let Some(user) = &held.user {
            remove(&self.users[user_shard(user)], user);
        }
        if let Some(prefix) = &held.address {
            remove(&self.addresses[prefix.0 as usize % SHARDS], prefix);
        }
    }
}

fn user_shard(user: &UserId) -> usize {
    stable_hash(user.as_str().as_bytes()) as usize % SHARDS
}

fn add<K: Hash + Eq>(shard: &Mutex<HashMap<K, u32>>, key: K, limit: u32) -> bool {
    let mut counts = shard.lock().expect("no holder of this lock can panic");
    let n = counts.entry(key).or_default();
    let fits = *n < limit;
    *n += u32::from(fits);
    fits
}

fn remove<K: Hash + Eq>(shard: &Mutex<HashMap<K, u32>>, key: &K) {
    let mut counts = shard.lock().expect("no holder of this lock can panic");
    if let Some(n) = counts.get_mut(key) {
        *n -= 1;
        if *n == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use grandstand_core::names::UserId;

    use super::{Full, Limits, StreamTable};

    fn table() -> StreamTable {
        StreamTable::new(Limits { per_user: 2, per_address: 3 })
    }
    fn user(name: &str) -> Option<UserId> {
        UserId::parse(name)
    }
    fn address(text: &str) -> Option<IpAddr> {
        text.parse().ok()
    }

    #[test]
    fn a26_a_user_and_an_address_each_have_their_limit() {
        let table = table();
        let first = table.enter(user("a"), address("10.0.0.1")).unwrap();
        table.enter(user("a"), address("10.0.0.1")).unwrap();
        assert_eq!(table.enter(user("a"), address("10.0.0.1")), Err(Full::User));
        table.enter(None, address("::ffff:10.0.0.1")).unwrap();
        assert_eq!(table.enter(user("b"), address("10.0.0.1")), Err(Full::Address));
        table.leave(&first);
        table.enter(user("a"), address("10.0.0.1")).unwrap();
    }

    #[test]
    fn a73_one_slash_64_is_one_address() {
        let table = table();
        for host in ["2001:db8::1", "2001:db8::2", "2001:db8:0:0:ffff::"] {
            table.enter(None, address(host)).unwrap();
        }
        assert_eq!(table.enter(None, address("2001:db8::9")), Err(Full::Address));
        assert!(table.enter(None, address("2001:db8:0:1::9")).is_ok());
    }
}
