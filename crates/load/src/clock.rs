//! One clock for every process of the machine: microseconds since boot, as comments carry it to their viewers.

use rustix::time::{ClockId, clock_gettime};

/// Microseconds of CLOCK_MONOTONIC.
pub fn micros() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1_000
}
