//! The streams and waiting polls of each user and address in this process, and what of them other gateway processes hold.
//!
//! Tables of counters behind sixteen locks each, touched when a stream opens and when it ends, never while it runs. What the
//! processes say of them to one another, once a second, is the rule of `core/src/bundles.rs`: only what comes near its limit is
//! spoken of.
//!
//! Users and addresses are counted by a 64-bit hash under a secret: 13 bytes an entry instead of the name, and nobody can find two
//! users that share a counter. Among a million of them some two do with a chance of 1 in 37 million; those would share one limit.
//! The secret is the process's own, or of the data folder where several processes count the same users.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::{Mutex, MutexGuard};

use aws_lc_rs::hmac;
use grandstand_core::bundles::{Bundle, Gateway, Here, LIMITED, Limited, There, part};
use grandstand_core::names::UserId;

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

/// How many a user and an address may have, over all gateway processes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub per_user: u32,
    pub per_address: u32,
}

/// Whose counter it is: the two halves of a hash, so that an entry with its counter takes twelve bytes and not sixteen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Key {
    high: u32,
    low: NonZeroU32,
}

impl Key {
    fn of(hash: u64) -> Key {
        Key { high: (hash >> 32) as u32, low: NonZeroU32::new(hash as u32).unwrap_or(NonZeroU32::MIN) }
    }

    fn number(self) -> u64 {
        u64::from(self.high) << 32 | u64::from(self.low.get())
    }
}

enum Secret {
    Own(RandomState),
    Shared(Box<hmac::Key>),
}

pub struct Bundles {
    secret: Secret,
    /// By [`Limited`].
    tables: [Table; LIMITED.len()],
    /// This process's end of what is said of them; nothing where there is one process.
    said: Mutex<Gateway>,
}

struct Table {
    limit: u32,
    /// From how many on it is told of.
    part: u32,
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Default)]
struct Shard {
    here: HashMap<Key, u32>,
    /// Of those that are watched: what other processes hold.
    elsewhere: HashMap<Key, u32>,
}

impl Bundles {
    /// Of a process that has all streams.
    pub fn alone(streams: Limits, polls: Limits) -> Bundles {
        Bundles::new(Secret::Own(RandomState::new()), streams, polls, 1)
    }

    /// Of one of several gateway processes with the same secret.
    pub fn shared(secret: &[u8; 32], streams: Limits, polls: Limits, processes: u32) -> Bundles {
        let derived = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), b"grandstand bundles v1");
        let secret = Box::new(hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref()));
        Bundles::new(Secret::Shared(secret), streams, polls, processes)
    }

    fn new(secret: Secret, streams: Limits, polls: Limits, processes: u32) -> Bundles {
        let table = |limited| {
            let limit = match limited {
                Limited::UserStreams => streams.per_user,
                Limited::AddressStreams => streams.per_address,
                Limited::UserPolls => polls.per_user,
                Limited::AddressPolls => polls.per_address,
            };
            Table { limit, part: part(limit, processes), shards: Default::default() }
        };
        Bundles { secret, tables: LIMITED.map(table), said: Mutex::default() }
    }

    pub fn user(&self, user: &UserId) -> Key {
        match &self.secret {
            Secret::Own(secret) => Key::of(secret.hash_one(user)),
            Secret::Shared(secret) => signed(secret, user.as_str().as_bytes()),
        }
    }

    pub fn address(&self, address: IpAddr) -> Key {
        let prefix = Prefix::of(address);
        match &self.secret {
            Secret::Own(secret) => Key::of(secret.hash_one(prefix)),
            Secret::Shared(secret) => signed(secret, &prefix.0.to_le_bytes()),
        }
    }

    /// One more. Errors: `None` at the limit.
    pub fn add(&self, limited: Limited, key: Key) -> Option<()> {
        let table = self.table(limited);
        let mut shard = table.shard(key);
        let elsewhere = shard.elsewhere.get(&key).copied().unwrap_or(0);
        let n = shard.here.entry(key).or_default();
        let fits = n.saturating_add(elsewhere) < table.limit;
        *n += u32::from(fits);
        if *n == 0 {
            shard.here.remove(&key);
        }
        fits.then_some(())
    }

    pub fn remove(&self, limited: Limited, key: Key) {
        let mut shard = self.table(limited).shard(key);
        if let Some(n) = shard.here.get_mut(&key) {
            *n -= 1;
            if *n == 0 {
                shard.here.remove(&key);
            }
        }
    }

    /// What there is to tell the other processes.
    pub fn news(&self) -> Vec<Here> {
        let mut many = BTreeMap::new();
        for limited in LIMITED {
            let table = self.table(limited);
            for shard in &table.shards {
                let shard = shard.lock().expect("no holder of this lock can panic");
                let told = shard.here.iter().filter(|(_, n)| **n >= table.part);
                many.extend(told.map(|(key, n)| (Bundle { limited, key: key.number() }, *n)));
            }
        }
        let n = |bundle: Bundle| {
            let key = Key::of(bundle.key);
            self.table(bundle.limited).shard(key).here.get(&key).copied().unwrap_or(0)
        };
        self.said().news(&many, n)
    }

    /// What other processes hold.
    pub fn hear(&self, news: &[There]) {
        let mut said = self.said();
        for there in news {
            said.hear(*there);
            let key = Key::of(there.bundle.key);
            let mut shard = self.table(there.bundle.limited).shard(key);
            match there.n {
                Some(n) => drop(shard.elsewhere.insert(key, n)),
                None => drop(shard.elsewhere.remove(&key)),
            }
        }
    }

    /// Nobody tells of the other processes now; all is said anew to whoever comes next.
    pub fn lost(&self) {
        *self.said() = Gateway::default();
        for shard in self.tables.iter().flat_map(|table| &table.shards) {
            shard.lock().expect("no holder of this lock can panic").elsewhere = HashMap::new();
        }
    }

    fn table(&self, limited: Limited) -> &Table {
        &self.tables[limited as usize]
    }

    fn said(&self) -> MutexGuard<'_, Gateway> {
        self.said.lock().expect("no holder of this lock can panic")
    }
}

/// The first half of a quarter of a signature is as good as a hash of eight bytes.
fn signed(secret: &hmac::Key, bytes: &[u8]) -> Key {
    let tag = hmac::sign(secret, bytes);
    let eight = tag.as_ref().first_chunk().expect("a signature has 32 bytes");
    Key::of(u64::from_le_bytes(*eight))
}

impl Table {
    fn shard(&self, key: Key) -> MutexGuard<'_, Shard> {
        self.shards[key.high as usize % SHARDS].lock().expect("no holder of this lock can panic")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use grandstand_core::bundles::{self, Kept, Limited};
    use grandstand_core::names::UserId;

    use super::{Bundles, Key, Limits};

    const LIMITS: Limits = Limits { per_user: 6, per_address: 9 };

    fn shared() -> [Bundles; 2] {
        [(); 2].map(|()| Bundles::shared(&[7; 32], LIMITS, LIMITS, 2))
    }

    /// What both have to say, and what they are told of it.
    fn talk(processes: &[Bundles; 2], kept: &mut [Kept; 2]) {
        for (process, kept) in processes.iter().zip(kept.iter_mut()) {
            process.news().into_iter().for_each(|here| kept.hear(here));
        }
        let news = bundles::news(&[&kept[0], &kept[1]]);
        for ((process, kept), news) in processes.iter().zip(kept).zip(news) {
            kept.tell(&news);
            process.hear(&news);
        }
    }

    #[test]
    fn processes_of_one_data_folder_know_a_user_and_an_address_by_the_same_key() {
        let [a, b] = shared();
        let ann = UserId::parse("ann").unwrap();
        let at = "2001:db8::1".parse().unwrap();
        assert_eq!((a.user(&ann), a.address(at)), (b.user(&ann), b.address("2001:db8::2".parse().unwrap())));
        let other = Bundles::shared(&[8; 32], LIMITS, LIMITS, 2);
        assert_ne!(a.user(&ann), other.user(&ann), "the secret is not in the name");
        let all: BTreeSet<u64> =
            (0..10_000).map(|n| a.user(&UserId::parse(&format!("u{n}")).unwrap()).number()).collect();
        assert_eq!(all.len(), 10_000);
        assert!(all.iter().all(|n| Key::of(*n).number() == *n), "a key crosses the link whole");
    }

    #[test]
    fn a26_what_another_process_holds_counts_against_a_users_limit_and_an_addresses() {
        let processes = shared();
        let mut kept = <[Kept; 2]>::default();
        let [a, b] = &processes;
        let (ann, bob) = (a.user(&UserId::parse("ann").unwrap()), a.user(&UserId::parse("bob").unwrap()));
        for limited in [Limited::UserStreams, Limited::UserPolls] {
            (0..4).for_each(|_| a.add(limited, ann).unwrap());
            (0..2).for_each(|_| b.add(limited, ann).unwrap());
        }
        (0..2).for_each(|_| talk(&processes, &mut kept));
        for limited in [Limited::UserStreams, Limited::UserPolls] {
            assert_eq!((a.add(limited, ann), b.add(limited, ann)), (None, None));
            assert_eq!(b.add(limited, bob), Some(()));
        }
        assert_eq!(b.add(Limited::AddressStreams, ann), Some(()), "another limit, another table");
        // One leaves, and the other process hears of it.
        a.remove(Limited::UserStreams, ann);
        assert_eq!(b.add(Limited::UserStreams, ann), None);
        talk(&processes, &mut kept);
        assert_eq!(b.add(Limited::UserStreams, ann), Some(()));
        // Without a word from the others a process counts its own alone.
        b.lost();
        (0..3).for_each(|_| b.add(Limited::UserStreams, ann).unwrap());
        assert_eq!(b.add(Limited::UserStreams, ann), None);
        // What it had said is said again.
        kept[1] = Kept::default();
        talk(&processes, &mut kept);
        assert_eq!(a.add(Limited::UserStreams, ann), None);
    }

    #[test]
    fn a_refusal_leaves_nothing_behind() {
        let none = Limits { per_user: 0, per_address: 0 };
        let alone = Bundles::alone(none, none);
        let ann = alone.user(&UserId::parse("ann").unwrap());
        assert_eq!(alone.add(Limited::UserStreams, ann), None);
        alone.remove(Limited::UserStreams, ann);
        assert!(alone.news().is_empty());
    }
}
