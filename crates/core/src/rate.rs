//! How many a second, with a burst: the generic cell rate algorithm.
//!
//! One number per limited thing: the time at which it would be empty again. Each admission moves it one interval on; an
//! admission that would move it further ahead of `now` than the burst allows is refused, and told exactly how long.
//!
//! It never admits sooner than it told, and a clock that goes back admits nothing extra.

use std::time::Duration;

use crate::time::Mono;

/// `per_second` on average, `burst` at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    pub per_second: u32,
    pub burst: u32,
}

/// Theoretical arrival time, microseconds. Source: ITU-T I.371, GCRA (virtual scheduling form).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Gcra {
    empty_at: u64,
}

impl Limit {
    fn interval(self) -> u64 {
        1_000_000 / u64::from(self.per_second.max(1))
    }
}

impl Gcra {
    /// Takes one. Errors: how long to wait until one is free; nothing is taken then.
    pub fn take(&mut self, limit: Limit, now: Mono) -> Result<(), Duration> {
        self.take_many(1, limit, now)
    }

    /// Takes all of `n` or nothing. Errors: how long to wait until they are free; more than the burst never are.
    pub fn take_many(&mut self, n: u32, limit: Limit, now: Mono) -> Result<(), Duration> {
        let interval = limit.interval();
        let filled = self.empty_at.max(now.0) + interval * u64::from(n);
        let most = now.0 + interval * u64::from(limit.burst.max(1));
        if filled > most {
            return Err(Duration::from_micros(filled - most));
        }
        self.empty_at = filled;
        Ok(())
    }

    /// Takes as many of `n` as are free, and says how many those were. They came between `since` and `now`, nobody knows when:
    /// what would have been free in that time is.
    pub fn take_upto(&mut self, n: u32, limit: Limit, since: Mono, now: Mono) -> u32 {
        let interval = limit.interval();
        let from = self.empty_at.max(since.min(now).0);
        let most = now.0 + interval * u64::from(limit.burst.max(1));
        let free = most.saturating_sub(from) / interval;
        let taken = u64::from(n).min(free);
        self.empty_at = from + interval * taken;
        // At most `n`.
        taken as u32
    }

    /// Nothing of it is taken any more: it may be forgotten.
    pub fn is_idle(&self, now: Mono) -> bool {
        self.empty_at <= now.0
    }

    /// Gives one back that was taken for nothing.
    pub fn give_back(&mut self, limit: Limit) {
        self.empty_at = self.empty_at.saturating_sub(limit.interval());
    }
}

#[cfg(test)]
mod tests {
    use super::{Gcra, Limit};
    use crate::time::Mono;
    use std::time::Duration;

    const LIMIT: Limit = Limit { per_second: 2, burst: 40 };

    #[test]
    fn a_burst_passes_and_then_the_rate_holds() {
        let mut rate = Gcra::default();
        let now = Mono(5_000_000);
        assert!((0..40).all(|_| rate.take(LIMIT, now).is_ok()));
        assert_eq!(rate.take(LIMIT, now), Err(Duration::from_millis(500)));
        assert_eq!(rate.take(LIMIT, now + Duration::from_millis(499)), Err(Duration::from_millis(1)));
        assert!(rate.take(LIMIT, now + Duration::from_millis(500)).is_ok());
    }

    #[test]
    fn a_clock_going_back_admits_nothing_extra() {
        let mut rate = Gcra::default();
        for _ in 0..40 {
            rate.take(LIMIT, Mono(60_000_000)).unwrap();
        }
        assert!(rate.take(LIMIT, Mono(1_000_000)).is_err());
    }

    #[test]
    fn what_is_given_back_can_be_taken_again_once() {
        let mut rate = Gcra::default();
        let now = Mono(0);
        for _ in 0..40 {
            rate.take(LIMIT, now).unwrap();
        }
        rate.give_back(LIMIT);
        assert!(rate.take(LIMIT, now).is_ok());
        assert!(rate.take(LIMIT, now).is_err());
    }
}
