//! A circuit breaker: whoever fails half of the time is left alone for a while, and then tried by one call at a time.
//!
//! Like a fuse with a clock: it blows when too much went wrong lately, and somebody carefully screws it in again after a while.
//!
//! The awkward case: an answer to what was asked before the fuse blew. It says nothing about now, and is not counted.

use std::collections::VecDeque;
use std::time::Duration;

use crate::time::Mono;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// How far back calls count.
    pub window: Duration,
    /// With fewer calls in the window nothing is said of them.
    pub calls_min: u32,
    /// How long nobody is asked.
    pub open: Duration,
    /// So many calls must be answered well in a row, one at a time.
    pub trials: u32,
}

impl Default for Settings {
    /// Half of at least 20 calls in 30 s. Source: docs/decisions/0005-numbers.md.
    fn default() -> Settings {
        Settings { window: Duration::from_secs(30), calls_min: 20, open: Duration::from_secs(5), trials: 3 }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// All are asked.
    Closed,
    /// Nobody is.
    Open,
    /// One at a time is.
    Trying,
}

#[derive(Clone, Debug)]
pub struct Breaker {
    settings: Settings,
    state: State,
    since: Mono,
    /// In [`State::Trying`]: one is asked now, and so many were answered well.
    trying: bool,
    good: u32,
    /// Seconds with their calls and the failed ones among them, oldest first: at most as many as the window has.
    calls: VecDeque<(u64, u32, u32)>,
}

impl Breaker {
    pub fn new(settings: Settings, now: Mono) -> Breaker {
        Breaker { settings, state: State::Closed, since: now, trying: false, good: 0, calls: VecDeque::new() }
    }

    pub fn state(&self, now: Mono) -> State {
        match self.state {
            State::Open if now >= self.since + self.settings.open => State::Trying,
            state => state,
        }
    }

    /// Whether somebody may be asked now. A yes is followed by [`Breaker::done`].
    pub fn may_ask(&mut self, now: Mono) -> bool {
        if self.state(now) != self.state {
            self.turn(State::Trying, now);
        }
        match self.state {
            State::Closed => true,
            State::Open => false,
            State::Trying => !std::mem::replace(&mut self.trying, true),
        }
    }

    /// How a call that was made at `asked` ended.
    pub fn done(&mut self, good: bool, asked: Mono, now: Mono) {
        if asked < self.since {
            return;
        }
        match self.state {
            State::Open => {}
            State::Trying if !good => self.turn(State::Open, now),
            State::Trying => {
                self.trying = false;
                self.good += 1;
                if self.good >= self.settings.trials {
                    self.turn(State::Closed, now);
                }
            }
            State::Closed => {
                let (calls, failed) = self.count(good, now);
                if calls >= self.settings.calls_min && failed * 2 >= calls {
                    self.turn(State::Open, now);
                }
            }
        }
    }

    fn turn(&mut self, state: State, now: Mono) {
        (self.state, self.since, self.trying, self.good) = (state, now, false, 0);
        self.calls.clear();
    }

    /// Calls and failures of the window, this one included.
    fn count(&mut self, good: bool, now: Mono) -> (u32, u32) {
        let second = now.since(Mono(0)).as_secs();
        if self.calls.back().is_none_or(|(last, ..)| *last < second) {
            self.calls.push_back((second, 0, 0));
        }
        let (_, calls, failed) = self.calls.back_mut().expect("it was just put there");
        *calls += 1;
        *failed += u32::from(!good);
        let window = self.settings.window.as_secs();
        while self.calls.front().is_some_and(|(first, ..)| first + window <= second) {
            self.calls.pop_front();
        }
        self.calls.iter().fold((0, 0), |(calls, failed), (_, c, f)| (calls + c, failed + f))
    }
}

#[cfg(test)]
mod tests {
    use super::{Breaker, Settings, State};
    use crate::time::Mono;
    use std::time::Duration;

    const SECOND: Duration = Duration::from_secs(1);

    fn asked(breaker: &mut Breaker, good: bool, now: Mono) {
        assert!(breaker.may_ask(now));
        breaker.done(good, now, now);
    }

    #[test]
    fn half_of_enough_calls_must_fail() {
        let mut now = Mono(1_000_000);
        let mut breaker = Breaker::new(Settings::default(), now);
        for n in 0..38 {
            asked(&mut breaker, n % 2 == 0 || n < 4, now);
        }
        assert_eq!(breaker.state(now), State::Closed, "17 of 38");
        for _ in 0..4 {
            assert_eq!(breaker.state(now), State::Closed);
            asked(&mut breaker, false, now);
        }
        assert_eq!(breaker.state(now), State::Open, "21 of 42");
        assert!(!breaker.may_ask(now));
        now = now + 5 * SECOND;
        assert_eq!(breaker.state(now), State::Trying);
        assert!(breaker.may_ask(now) && !breaker.may_ask(now), "one at a time");
        breaker.done(false, now, now);
        assert_eq!(breaker.state(now), State::Open);
        now = now + 5 * SECOND;
        for _ in 0..3 {
            asked(&mut breaker, true, now);
        }
        assert_eq!(breaker.state(now), State::Closed);
    }

    #[test]
    fn what_is_out_of_the_window_and_what_was_asked_before_is_not_counted() {
        let mut now = Mono(1_000_000);
        let mut breaker = Breaker::new(Settings::default(), now);
        for _ in 0..19 {
            asked(&mut breaker, false, now);
        }
        now = now + 31 * SECOND;
        asked(&mut breaker, false, now);
        assert_eq!(breaker.state(now), State::Closed, "they were long ago");
        let before = now;
        for _ in 0..19 {
            asked(&mut breaker, false, now);
        }
        assert_eq!(breaker.state(now), State::Open);
        now = now + 5 * SECOND;
        assert!(breaker.may_ask(now));
        breaker.done(true, before, now);
        assert!(!breaker.may_ask(now), "an old answer is no trial");
    }

    proptest::proptest! {
        #[test]
        fn it_is_closed_again_only_by_trials_and_never_asks_while_open(
            steps in proptest::collection::vec((0u64..3_000, proptest::bool::weighted(0.5)), 1..400)
        ) {
            let mut now = Mono(1_000_000);
            let mut breaker = Breaker::new(Settings::default(), now);
            let (mut in_a_row, mut was) = (0, State::Closed);
            for (ms, good) in steps {
                now = now + Duration::from_millis(ms);
                let state = breaker.state(now);
                if was == State::Open && state == State::Trying {
                    in_a_row = 0;
                }
                let may = breaker.may_ask(now);
                assert_eq!(may, state != State::Open);
                if may {
                    breaker.done(good, now, now);
                    in_a_row = if good { in_a_row + 1 } else { 0 };
                }
                let is = breaker.state(now);
                if state == State::Trying {
                    let wanted = match (good, in_a_row) {
                        (false, _) => State::Open,
                        (true, 3..) => State::Closed,
                        _ => State::Trying,
                    };
                    assert_eq!(is, wanted);
                }
                was = is;
            }
        }
    }
}
