//! The two clocks a rule may be told: one for durations, one for people.

use std::ops::{Add, Sub};
use std::time::Duration;

/// Microseconds on a clock that never goes back and counts suspend; its zero is arbitrary (process start, scenario start).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Mono(pub u64);

/// Milliseconds since 1970 UTC. Log time is this, kept by the owner so that it never falls within a log and never stands still.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Wall(pub u64);

impl Mono {
    /// Time passed since `earlier`; zero when `earlier` is later.
    pub fn since(self, earlier: Mono) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Mono {
    type Output = Mono;
    fn add(self, d: Duration) -> Mono {
        Mono(self.0.saturating_add(d.as_micros() as u64))
    }
}

impl Wall {
    pub fn since(self, earlier: Wall) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Wall {
    type Output = Wall;
    fn add(self, d: Duration) -> Wall {
        Wall(self.0.saturating_add(d.as_millis() as u64))
    }
}

impl Sub<Duration> for Wall {
    type Output = Wall;
    fn sub(self, d: Duration) -> Wall {
        Wall(self.0.saturating_sub(d.as_millis() as u64))
    }
}
