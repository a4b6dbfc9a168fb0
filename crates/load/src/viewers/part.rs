//! What a viewer of a sampled room is promised, held against each comment as it comes: never more than the cap, and never nothing for
//! long.
//!
//! Both are judged by the comments' own `ts`, the log's time: how late a frame is on a busy machine is another promise. A second is five
//! windows of 200 ms. Windows that a slow commit has held up leave together with one time; what a viewer is given of them is held
//! against all the time since the comment before, so a log that stood still is no breach.

use std::collections::VecDeque;

/// A part of a cap: what one window gives at most.
fn share(cap: u64) -> u64 {
    cap.div_ceil(5)
}

/// Without a comment for longer than this, while others of the room are given some: two seconds, and the window that ends them.
pub const SILENCE_MS: u64 = 2_200;

/// One viewer's comments of a sampled room.
#[derive(Clone, Copy, Debug, Default)]
pub struct Part {
    /// Log time of the last, milliseconds; 0 before the first.
    pub last_ms: u64,
    /// Thousandths of comments above the cap.
    above: i64,
}

impl Part {
    /// It is shown a part from here on: what others were given before was not withheld from it.
    pub fn since(last_ms: u64) -> Part {
        Part { last_ms, above: 0 }
    }

    /// What others were given up to here was not withheld from it.
    pub fn excuse(&mut self, upto_ms: u64) {
        self.last_ms = self.last_ms.max(upto_ms);
    }

    /// A comment came. Gives how many above the cap that makes, where it is more than a window at each end of the time and one that
    /// was sealed a little late can explain.
    pub fn comment(&mut self, ts_ms: u64, cap: u64) -> Option<u64> {
        if ts_ms > self.last_ms {
            let since = i64::try_from((ts_ms - self.last_ms).min(3_600_000)).unwrap_or(0);
            self.above = self.above.max(0) - since * i64::try_from(cap).unwrap_or(i64::MAX / 3_600_000);
            self.last_ms = ts_ms;
        }
        self.above += 1_000;
        let most = i64::try_from(3 * share(cap) * 1_000).unwrap_or(i64::MAX);
        (self.above > most).then_some(self.above.unsigned_abs().div_ceil(1_000))
    }
}

/// The log times at which a room's viewers were given something, as far as one process knows: ascending, of the last 20 s.
#[derive(Debug, Default)]
pub struct Flow {
    times: VecDeque<u64>,
    /// The newest of them at the last two looks: what is older has had a second at least to reach everyone.
    looks: [u64; 2],
}

const KEPT_MS: u64 = 20_000;

impl Flow {
    pub fn note(&mut self, ts_ms: u64) {
        if self.times.back().is_none_or(|last| *last < ts_ms) {
            self.times.push_back(ts_ms);
            while self.times.front().is_some_and(|first| first + KEPT_MS < ts_ms) {
                self.times.pop_front();
            }
        }
    }

    pub fn newest(&self) -> u64 {
        self.times.back().copied().unwrap_or(0)
    }

    /// Once a second, before viewers are judged.
    pub fn look(&mut self) {
        self.looks = [self.looks[1], self.newest()];
    }

    /// How long others were given comments and a viewer whose last one is of `last_ms` was not, when that is too long.
    pub fn silence(&self, last_ms: u64) -> Option<u64> {
        let next = self.times.partition_point(|ts| *ts <= last_ms);
        let since = *self.times.get(next)?;
        let waited = self.looks[0].saturating_sub(since);
        (waited > SILENCE_MS).then_some(waited)
    }
}

#[cfg(test)]
mod tests {
    use super::{Flow, Part};

    fn breach(times: impl IntoIterator<Item = u64>, cap: u64) -> Option<u64> {
        let mut part = Part::default();
        times.into_iter().find_map(|ts| part.comment(ts, cap))
    }

    #[test]
    fn one_a_window_is_a_cap_of_five_for_as_long_as_it_goes() {
        assert_eq!(breach((0..10_000).map(|n| 1_000 + n * 200), 5), None);
        assert_eq!(breach((0..10_000).map(|n| 1_000 + n * 200 + n * 31 % 60), 5), None, "sealed sooner or later");
        assert_eq!(breach((0..1_000).flat_map(|n| [1_000 + n * 200; 10]), 50), None);
    }

    #[test]
    fn two_a_window_are_more_within_a_second_and_a_sixth_a_second_before_long() {
        fn at(mut times: impl Iterator<Item = u64>) -> Option<usize> {
            let mut part = Part::default();
            times.position(|ts| part.comment(ts, 5).is_some())
        }
        assert_eq!(at((0..).map(|n| 1_000 + n / 2 * 200)), Some(9));
        assert!(at((0..).map(|n| 1_000 + n * 1_000 / 6)).is_some_and(|n| n < 25));
    }

    #[test]
    fn what_a_log_that_stood_still_lets_leave_together_is_no_breach() {
        let stalled = (0..20).map(|n| 1_000 + n * 200).map(|ts| if (2_000..3_000).contains(&ts) { 3_000 } else { ts });
        assert_eq!(breach(stalled, 5), None);
    }

    #[test]
    fn who_is_given_nothing_while_others_are_is_silent_and_in_a_quiet_room_nobody_is() {
        let mut flow = Flow::default();
        for second in 0..6 {
            (0..5).for_each(|n| flow.note(10_000 + second * 1_000 + n * 200));
            flow.look();
        }
        // Two looks ago the newest was 14 800.
        assert_eq!((flow.silence(14_000), flow.silence(12_600)), (None, None));
        assert_eq!(flow.silence(10_000), Some(4_600));
        let mut quiet = Flow::default();
        quiet.note(10_000);
        quiet.note(60_000);
        (0..3).for_each(|_| quiet.look());
        assert_eq!(quiet.silence(10_000), None, "nothing was said meanwhile");
    }
}
