//! What a client does when a stream ends: the hundreds digit of the close code decides.
//!
//! 40xx: stop. 41xx: wait what the server said plus a draw from its spread. 42xx: resume at once, but a second time within
//! ten seconds is treated as 41xx. A refusal by 429 or 5xx: as 41xx. A connection that just broke: doubling waits with full jitter.
//! Source: docs/protocol.md, close codes.

use std::time::{Duration, Instant};

use grandstand_core::rng::Rng;

/// Waits of a client that was told none.
const WAIT_MIN: Duration = Duration::from_millis(250);
const WAIT_MAX: Duration = Duration::from_secs(10);
/// A server's word for a wait, or for its spread, counts up to this.
const TOLD_MAX: Duration = Duration::from_secs(3_600);
/// A second 42xx within this waits.
const AGAIN: Duration = Duration::from_secs(10);

/// How a stream ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// A `close` event or close frame; the waits are the server's.
    Code { code: u16, reason: String, retry_after: Option<Duration>, spread: Option<Duration> },
    /// It was refused before it began, by 429 or 5xx; the waits are the server's.
    Refused { retry_after: Option<Duration>, spread: Option<Duration> },
    /// The connection broke or could not be made.
    Broken,
}

/// What follows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next {
    Stop { code: u16, reason: String },
    Wait(Duration),
}

#[derive(Debug)]
pub struct Retry {
    rng: Rng,
    broken: u32,
    at_once: Option<Instant>,
}

impl Retry {
    pub fn new(rng: Rng) -> Retry {
        Retry { rng, broken: 0, at_once: None }
    }

    /// The stream carried something: the next break starts with a short wait.
    pub fn progress(&mut self) {
        self.broken = 0;
    }

    pub fn after(&mut self, end: End, now: Instant) -> Next {
        match end {
            End::Code { code: code @ 4000..=4099, reason, .. } => Next::Stop { code, reason },
            End::Code { code: 4200..=4299, .. } if self.at_once.is_none_or(|t| now.duration_since(t) > AGAIN) => {
                self.at_once = Some(now);
                Next::Wait(Duration::ZERO)
            }
            End::Code { retry_after: Some(wait), spread, .. } | End::Refused { retry_after: Some(wait), spread } => {
                Next::Wait(wait.min(TOLD_MAX) + self.draw(spread.unwrap_or_default().min(TOLD_MAX)))
            }
            End::Code { .. } | End::Refused { .. } | End::Broken => {
                let span = (WAIT_MIN * 2u32.saturating_pow(self.broken)).min(WAIT_MAX);
                self.broken = (self.broken + 1).min(16);
                Next::Wait(WAIT_MIN / 2 + self.draw(span))
            }
        }
    }

    /// Uniform in 0 ..= `span`.
    pub fn draw(&mut self, span: Duration) -> Duration {
        Duration::from_millis(self.rng.below(span.as_millis() as u64 + 1))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use grandstand_core::rng::Rng;

    use super::{End, Next, Retry};

    fn code(code: u16, retry_ms: u64, spread_ms: u64) -> End {
        let ms = |n| Some(Duration::from_millis(n));
        End::Code { code, reason: "r".into(), retry_after: ms(retry_ms), spread: ms(spread_ms) }
    }

    #[test]
    fn a_40xx_stops() {
        let mut retry = Retry::new(Rng::new(1));
        assert_eq!(retry.after(code(4004, 1, 1), Instant::now()), Next::Stop { code: 4004, reason: "r".into() });
    }

    #[test]
    fn a_41xx_waits_within_its_spread() {
        let mut retry = Retry::new(Rng::new(1));
        for _ in 0..100 {
            let Next::Wait(wait) = retry.after(code(4112, 500, 1_000), Instant::now()) else { panic!("waits") };
            assert!((500..=1_500).contains(&wait.as_millis()), "{wait:?}");
        }
    }

    #[test]
    fn a_refusal_is_waited_out_as_long_as_it_says_and_an_hour_at_most() {
        let mut retry = Retry::new(Rng::new(1));
        let refused = |wait: u64, spread: u64| {
            let ms = |n| Some(Duration::from_millis(n));
            End::Refused { retry_after: ms(wait), spread: ms(spread) }
        };
        let Next::Wait(wait) = retry.after(refused(3_000, 500), Instant::now()) else { panic!("waits") };
        assert!((3_000..=3_500).contains(&wait.as_millis()), "{wait:?}");
        let Next::Wait(wait) = retry.after(refused(u64::MAX, u64::MAX), Instant::now()) else { panic!("waits") };
        assert!((3_600..=7_200).contains(&wait.as_secs()), "{wait:?}");
        let untold = End::Refused { retry_after: None, spread: None };
        let Next::Wait(wait) = retry.after(untold, Instant::now()) else { panic!("waits") };
        assert!(wait < Duration::from_millis(400), "{wait:?}");
    }

    #[test]
    fn a_42xx_resumes_at_once_but_not_twice_in_ten_seconds() {
        let mut retry = Retry::new(Rng::new(1));
        let start = Instant::now();
        assert_eq!(retry.after(code(4200, 700, 0), start), Next::Wait(Duration::ZERO));
        assert_eq!(
            retry.after(code(4200, 700, 0), start + Duration::from_secs(9)),
            Next::Wait(Duration::from_millis(700))
        );
        assert_eq!(retry.after(code(4201, 700, 0), start + Duration::from_secs(11)), Next::Wait(Duration::ZERO));
    }

    #[test]
    fn a_broken_connection_waits_longer_each_time_and_progress_forgets_it() {
        let mut retry = Retry::new(Rng::new(7));
        let mut longest = Duration::ZERO;
        for _ in 0..12 {
            let Next::Wait(wait) = retry.after(End::Broken, Instant::now()) else { panic!("waits") };
            longest = longest.max(wait);
        }
        assert!(longest > Duration::from_secs(1), "{longest:?}");
        retry.progress();
        let Next::Wait(wait) = retry.after(End::Broken, Instant::now()) else { panic!("waits") };
        assert!(wait < Duration::from_millis(400), "{wait:?}");
    }
}
