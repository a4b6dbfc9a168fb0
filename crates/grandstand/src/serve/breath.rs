//! How long the supervisor waits before it starts a process again.
//!
//! A process that was killed, once or twice, is started again at once: its viewers wait. One that keeps dying within moments of
//! its start is broken, and each start of it costs the machine something: from its third quick death within a minute the wait
//! doubles. One that lived for a while is no such case, however often it is killed.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The wait after a death, doubled from the third quick one on.
const LEAST: Duration = Duration::from_millis(50);
const MOST: Duration = Duration::from_secs(5);
/// Deaths that are remembered.
const WITHIN: Duration = Duration::from_secs(60);
/// A death is quick before this.
const STEADY: Duration = Duration::from_secs(10);
/// Quick deaths that are not waited longer for.
const FREE: usize = 2;
/// More deaths within a minute wait no longer: 50 ms doubled seven times is above 5 s.
const REMEMBERED: usize = FREE + 7;

#[derive(Default)]
pub struct Breath {
    /// Quick ones, oldest first.
    deaths: VecDeque<Instant>,
}

impl Breath {
    /// A process died that had lived for so long: when it is started again, from now.
    pub fn after(&mut self, lived: Duration, now: Instant) -> Duration {
        while self.deaths.front().is_some_and(|at| now.saturating_duration_since(*at) >= WITHIN) {
            self.deaths.pop_front();
        }
        if lived >= STEADY {
            self.deaths.clear();
            return LEAST;
        }
        self.deaths.push_back(now);
        if self.deaths.len() > REMEMBERED {
            self.deaths.pop_front();
        }
        let doubled = self.deaths.len().saturating_sub(FREE) as u32;
        (LEAST * 2u32.pow(doubled)).min(MOST)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::Breath;

    const QUICK: Duration = Duration::from_millis(300);

    #[test]
    fn two_quick_deaths_are_made_good_at_once_and_the_third_waits_longer() {
        let (mut breath, start) = (Breath::default(), Instant::now());
        let waits: Vec<u128> = (0..12).map(|n| breath.after(QUICK, start + QUICK * n).as_millis()).collect();
        assert_eq!(waits, [50, 50, 100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000, 5_000, 5_000]);
    }

    #[test]
    fn two_quick_deaths_a_minute_never_wait_longer() {
        let (mut breath, start) = (Breath::default(), Instant::now());
        for minute in 0..10 {
            for second in [0, 1] {
                let now = start + Duration::from_secs(minute * 61 + second);
                assert_eq!(breath.after(QUICK, now).as_millis(), 50, "{minute}:{second}");
            }
        }
    }

    #[test]
    fn a_process_that_had_lived_is_started_again_at_once() {
        let (mut breath, start) = (Breath::default(), Instant::now());
        for n in 0..5 {
            breath.after(QUICK, start + QUICK * n);
        }
        let now = start + Duration::from_secs(12);
        assert_eq!(breath.after(Duration::from_secs(10), now).as_millis(), 50);
        assert_eq!(breath.after(QUICK, now + QUICK).as_millis(), 50);
    }
}
