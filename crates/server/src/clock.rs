//! The two clocks of a running server, as the rules know them.

use std::time::{SystemTime, UNIX_EPOCH};

use grandstand_core::time::{Mono, Wall};
use rustix::time::{ClockId, clock_gettime};

/// Microseconds since boot; counts suspend, never goes back.
pub fn mono() -> Mono {
    let t = clock_gettime(ClockId::Boottime);
    Mono(t.tv_sec as u64 * 1_000_000 + t.tv_nsec as u64 / 1_000)
}

/// Milliseconds since 1970; zero when the machine's clock is set before that.
pub fn wall() -> Wall {
    Wall(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64))
}
