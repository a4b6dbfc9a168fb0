//! When a room's waiting events leave: the merge window of one room on one worker.
//!
//! A lift that waits a moment for more people when the house is full, and leaves at once when it is not. A score does not
//! wait: it takes everyone who stands in the lift with it, and they get out before it. Twenty such calls within a second are
//! an abuse of the button, and the next one waits 50 ms.
//!
//! It never lets an event wait longer than one window, and with a window it never starts more than one walk a window over
//! any longer time (plus [`BURST`], plus the flushes). The awkward case is a room at the edge of two sizes: the window shrinks
//! only when the room is a fifth below the edge.
//!
//! Numbers: 0 ms to 100 viewers, 50 ms to 10 000, 100 ms above; 20 flushes a second (docs/decisions/0005-numbers.md).

use std::collections::VecDeque;
use std::time::Duration;

use crate::planted::planted;
use crate::time::Mono;

/// Walks a quiet room may start without waiting: two comments close together both leave at once.
const BURST: u32 = 2;
const FLUSHES: usize = 20;
const FLUSH_SPAN: Duration = Duration::from_secs(1);
const FLUSH_WAIT: Duration = Duration::from_millis(50);
/// Largest number of viewers of each window but the last.
const SIZES: [(u64, Duration); 2] = [(100, Duration::ZERO), (10_000, Duration::from_millis(50))];
const WIDEST: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leave {
    /// Walk now.
    Now,
    /// Walk at the deadline, if nothing walks before.
    At(Mono),
}

#[derive(Clone, Debug)]
pub struct MergeWindow {
    fixed: Option<Duration>,
    window: Duration,
    /// When walks at one a window, the first free one having been taken, would have caught up (a leaky bucket's clock).
    due: Mono,
    deadline: Option<Mono>,
    /// Times of the last flushes, oldest first.
    flushes: VecDeque<Mono>,
    /// A flush waits for the deadline.
    flushing: bool,
}

/// The window of a room with so many viewers.
pub fn window_at(viewers: u64) -> Duration {
    SIZES.iter().find(|(most, _)| viewers <= *most).map_or(WIDEST, |(_, window)| *window)
}

impl MergeWindow {
    /// `fixed` is the room's own setting; without it the window follows the room's size.
    pub fn new(fixed: Option<Duration>) -> MergeWindow {
        MergeWindow {
            fixed,
            window: fixed.unwrap_or(Duration::ZERO),
            due: Mono(0),
            deadline: None,
            flushes: VecDeque::new(),
            flushing: false,
        }
    }

    pub fn set_fixed(&mut self, fixed: Option<Duration>, viewers: u64) {
        self.fixed = fixed;
        match fixed {
            Some(window) => self.window = window,
            None => {
                self.window = Duration::ZERO;
                self.set_viewers(viewers);
            }
        }
    }

    /// The room has this many viewers.
    pub fn set_viewers(&mut self, viewers: u64) {
        if self.fixed.is_some() {
            return;
        }
        let (now, if_larger) = (window_at(viewers), window_at(viewers + viewers / 4));
        // Grows at the edge; shrinks only when a room a quarter larger would have the smaller window too.
        if now > self.window {
            self.window = now;
        } else if if_larger < self.window {
            self.window = if_larger;
        }
    }

    pub fn window(&self) -> Duration {
        self.window
    }

    /// Events came into the ring; `closes` when one of them closes the window.
    pub fn on_events(&mut self, closes: bool, now: Mono) -> Leave {
        if self.window.is_zero() {
            return Leave::Now;
        }
        if closes {
            while self.flushes.front().is_some_and(|at| now.since(*at) >= FLUSH_SPAN) {
                self.flushes.pop_front();
            }
            self.flushing = true;
            if self.flushes.len() < FLUSHES {
                return Leave::Now;
            }
            return self.wait_until(now + FLUSH_WAIT);
        }
        let ahead = self.due.since(now);
        let room = self.window * (BURST - 1);
        if self.deadline.is_none() && ahead <= room {
            return Leave::Now;
        }
        let wait = ahead.saturating_sub(room).min(self.window);
        self.wait_until(now + wait)
    }

    /// The room was walked: nothing waits any more.
    pub fn on_walk(&mut self, now: Mono) {
        if std::mem::take(&mut self.flushing) {
            if self.flushes.len() == FLUSHES {
                self.flushes.pop_front();
            }
            self.flushes.push_back(now);
        }
        self.deadline = None;
        self.due = self.due.max(now) + self.window;
        // Flushes are not held against the comments that come after them for longer than one window.
        self.due = self.due.min(now + self.window * BURST);
    }

    /// When to walk what waits.
    pub fn deadline(&self) -> Option<Mono> {
        self.deadline
    }

    fn wait_until(&mut self, at: Mono) -> Leave {
        let at = self.deadline.map_or(at, |known| known.min(at));
        self.deadline = Some(at).filter(|_| !planted(28));
        Leave::At(at)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Leave, MergeWindow};
    use crate::time::Mono;

    const MS: u64 = 1_000;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// Walk times in ms when comments come at these times.
    fn walks(window: u64, comments: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let mut merge = MergeWindow::new(Some(ms(window)));
        let mut walks = Vec::new();
        let fire = |merge: &mut MergeWindow, upto: u64, walks: &mut Vec<u64>| {
            if let Some(at) = merge.deadline().filter(|at| at.0 <= upto * MS) {
                merge.on_walk(at);
                walks.push(at.0 / MS);
            }
        };
        for at in comments {
            fire(&mut merge, at, &mut walks);
            if merge.on_events(false, Mono(at * MS)) == Leave::Now {
                merge.on_walk(Mono(at * MS));
                walks.push(at);
            }
        }
        fire(&mut merge, u64::MAX / MS, &mut walks);
        walks
    }

    #[test]
    fn below_one_event_a_window_each_leaves_at_once() {
        assert_eq!(walks(100, [0, 100, 250, 400, 420, 600]), [0, 100, 250, 400, 420, 600]);
    }

    #[test]
    fn a_busy_room_walks_once_a_window_and_nothing_waits_longer() {
        let seen = walks(100, (0..1_000).map(|n| n * 3));
        assert!(seen.len() <= 32, "{seen:?}");
        assert!(seen.windows(2).skip(2).all(|w| w[1] - w[0] <= 103), "{seen:?}");
    }

    #[test]
    fn the_window_follows_the_size_with_slack_on_the_way_down() {
        let mut merge = MergeWindow::new(None);
        let mut at = |n| {
            merge.set_viewers(n);
            merge.window().as_millis()
        };
        let sizes = [100, 101, 95, 81, 80, 10_000, 10_001, 9_000, 8_000, 20_000, 3];
        assert_eq!(sizes.map(&mut at), [0, 50, 50, 50, 0, 50, 100, 100, 50, 100, 0]);
    }

    #[test]
    fn a_fixed_window_ignores_the_size() {
        let mut merge = MergeWindow::new(Some(ms(30)));
        merge.set_viewers(1_000_000);
        assert_eq!(merge.window(), ms(30));
        merge.set_fixed(None, 1_000_000);
        assert_eq!(merge.window(), ms(100));
    }

    #[test]
    fn a_score_takes_what_waits_and_twenty_within_a_second_make_the_next_wait() {
        let mut merge = MergeWindow::new(Some(ms(100)));
        for n in 0..20 {
            let now = Mono(n * 10 * MS);
            merge.on_events(false, now);
            assert_eq!(merge.on_events(true, now), Leave::Now, "{n}");
            merge.on_walk(now);
            assert_eq!(merge.deadline(), None);
        }
        let now = Mono(200 * MS);
        assert_eq!(merge.on_events(true, now), Leave::At(now + ms(50)));
        assert_eq!(merge.on_events(true, now + ms(20)), Leave::At(now + ms(50)));
        merge.on_walk(now + ms(50));
        assert_eq!(merge.on_events(true, Mono(5_000 * MS)), Leave::Now);
    }

    #[test]
    fn a_small_room_never_waits() {
        let mut merge = MergeWindow::new(None);
        for n in 0..50 {
            assert_eq!(merge.on_events(n % 2 == 0, Mono(n)), Leave::Now);
            merge.on_walk(Mono(n));
        }
    }
}
