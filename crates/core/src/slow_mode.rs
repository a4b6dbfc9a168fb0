//! Slow mode: at most one comment of a user in so many seconds of log time.
//!
//! Decided at the owner from the log alone, so that many tabs are one user and a restart forgets nothing. A comment
//! between its check and its commit holds the user's slot: the next one is refused, not queued.

use std::time::Duration;

use crate::planted::planted;
use crate::time::Wall;

/// The longest slow mode is the dedupe window, so that both are rebuilt from the same ten minutes of log.
pub const SECONDS_MAX: u32 = 600;

/// One user's comments as slow mode sees them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Clock {
    /// Log time of the newest comment in the log.
    last: Option<Wall>,
    /// Comments between check and commit.
    held: u32,
}

/// A room's slow mode: seconds (0 = off) and the log time it ends by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlowMode {
    pub seconds: u32,
    pub until: Option<Wall>,
}

impl SlowMode {
    pub fn is_on(self, log_now: Wall) -> bool {
        self.seconds > 0 && self.until.is_none_or(|until| log_now < until)
    }
}

impl Clock {
    /// How long the user must still wait; `None` when a comment may pass at `log_now`.
    pub fn wait(&self, mode: SlowMode, log_now: Wall) -> Option<Duration> {
        if !mode.is_on(log_now) {
            return None;
        }
        let seconds = Duration::from_secs(u64::from(mode.seconds));
        let free_at = if self.held > 0 && !planted(13) { log_now + seconds } else { self.last? + seconds };
        let free_at = mode.until.map_or(free_at, |until| until.min(free_at));
        (free_at > log_now).then(|| free_at.since(log_now))
    }

    /// A comment has passed its check and is on its way to the log.
    pub fn hold(&mut self) {
        self.held += 1;
    }

    /// A held comment's fate is known, whichever it was.
    pub fn release(&mut self) {
        assert!(self.held > 0, "only a held slot is released");
        self.held -= 1;
    }

    /// A comment is in the log at `ts`.
    pub fn accept(&mut self, ts: Wall) {
        self.last = self.last.max(Some(ts));
    }

    pub fn is_quiet(&self, log_now: Wall) -> bool {
        let longest = Duration::from_secs(u64::from(SECONDS_MAX));
        self.held == 0 && self.last.is_none_or(|last| last + longest <= log_now)
    }
}

#[cfg(test)]
mod tests {
    use super::{Clock, SlowMode};
    use crate::time::Wall;
    use std::time::Duration;

    const ON: SlowMode = SlowMode { seconds: 30, until: None };

    #[test]
    fn the_next_comment_waits_from_the_last_ones_log_time() {
        let mut clock = Clock::default();
        assert_eq!(clock.wait(ON, Wall(1_000)), None);
        clock.accept(Wall(1_000));
        assert_eq!(clock.wait(ON, Wall(11_000)), Some(Duration::from_secs(20)));
        assert_eq!(clock.wait(ON, Wall(31_000)), None);
    }

    #[test]
    fn a_held_slot_refuses_until_it_is_released() {
        let mut clock = Clock::default();
        clock.hold();
        assert_eq!(clock.wait(ON, Wall(0)), Some(Duration::from_secs(30)));
        clock.release();
        assert_eq!(clock.wait(ON, Wall(0)), None);
    }

    #[test]
    fn it_ends_by_itself_and_never_tells_a_longer_wait() {
        let mode = SlowMode { seconds: 30, until: Some(Wall(10_000)) };
        let mut clock = Clock::default();
        clock.accept(Wall(5_000));
        assert_eq!(clock.wait(mode, Wall(6_000)), Some(Duration::from_secs(4)));
        assert_eq!(clock.wait(mode, Wall(10_000)), None);
    }
}
