//! Rates at the door, one bucket a key. Source: GCRA, a bucket is one instant.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Mutex;
use std::time::Duration;

use grandstand_core::time::Mono;

/// Keys remembered; a full map forgets the ones that are full again, and then refuses new ones.
const KEYS_MAX: usize = 16 * 1024;

#[derive(Clone, Copy, Debug)]
pub struct Rate {
    pub per_second: f64,
    pub burst: u32,
}

pub struct Buckets<K> {
    every: Duration,
    burst: u32,
    /// When the bucket will be full again.
    full_at: Mutex<HashMap<K, Mono>>,
}

impl<K: Hash + Eq> Buckets<K> {
    pub fn new(rate: Rate) -> Buckets<K> {
        assert!(rate.per_second > 0.0, "a rate lets something through");
        Buckets {
            every: Duration::from_secs_f64(1.0 / rate.per_second),
            burst: rate.burst.max(1),
            full_at: Mutex::new(HashMap::new()),
        }
    }

    /// Takes one. Errors: how long to wait for the next.
    pub fn take(&self, key: K, now: Mono) -> Result<(), Duration> {
        let mut buckets = self.full_at.lock().expect("no holder of this lock can panic");
        if buckets.len() >= KEYS_MAX && !buckets.contains_key(&key) {
            buckets.retain(|_, full_at| *full_at > now);
            if buckets.len() >= KEYS_MAX {
                return Err(self.every);
            }
        }
        let full_at = buckets.entry(key).or_insert(now);
        let next = (*full_at).max(now) + self.every;
        let most = now + self.every * self.burst;
        if next > most {
            return Err(next.since(most));
        }
        *full_at = next;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use grandstand_core::time::Mono;

    use super::{Buckets, KEYS_MAX, Rate};

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let buckets = Buckets::new(Rate { per_second: 20.0, burst: 100 });
        let t0 = Mono(1_000_000);
        assert!((0..100).all(|_| buckets.take("m", t0).is_ok()));
        assert_eq!(buckets.take("m", t0), Err(Duration::from_millis(50)));
        assert!(buckets.take("other", t0).is_ok());
        assert!(buckets.take("m", t0 + Duration::from_millis(50)).is_ok());
        assert!(buckets.take("m", t0 + Duration::from_millis(50)).is_err());
    }

    #[test]
    fn a_flood_of_keys_is_bounded_and_recovers() {
        let buckets = Buckets::new(Rate { per_second: 1.0, burst: 1 });
        let t0 = Mono(1_000_000);
        assert!((0..KEYS_MAX).all(|k| buckets.take(k, t0).is_ok()));
        assert!(buckets.take(KEYS_MAX, t0).is_err());
        assert!(buckets.take(KEYS_MAX, t0 + Duration::from_secs(2)).is_ok());
    }
}
