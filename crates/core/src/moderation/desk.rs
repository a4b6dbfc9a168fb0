//! The line before a classifier that takes its time: who is asked now, who waits, and who is told that no word comes.
//!
//! Like a counter with so many clerks: whoever would not be served before the time is up is sent on at once, and looked at later
//! when a clerk is free. Nobody ever waits in line past the deadline, so a budget is spent by the classifier alone.
//!
//! The awkward case: how long a clerk takes is not known before; it is what the last ones took.

use std::collections::VecDeque;
use std::time::Duration;

use crate::moderation::breaker::{self, Breaker, State};
use crate::time::Mono;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Questions under way at a time.
    pub at_once: usize,
    /// Questions in line; past it one is sent on.
    pub line: usize,
    /// Questions to be asked when there is time; past it the oldest is given up.
    pub later: usize,
    /// For so long they are worth asking.
    pub later_for: Duration,
}

impl Limits {
    pub fn of(at_once: usize) -> Limits {
        Limits { at_once, line: 1_024, later: 4_096, later_for: Duration::from_secs(60) }
    }
}

/// What becomes of a question that is offered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// It is in line: [`Desk::next`] gives it, before its deadline or later.
    Waits,
    /// No word comes before its deadline. It may come later.
    Passed,
}

/// A question that is under way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Asked<T> {
    pub question: T,
    pub at: Mono,
}

#[derive(Debug)]
pub struct Desk<T> {
    limits: Limits,
    breaker: Breaker,
    under_way: usize,
    /// With their deadlines.
    line: VecDeque<(T, Mono)>,
    /// With the time until which they are worth asking, oldest first.
    later: VecDeque<(T, Mono)>,
    /// What the last questions took, the newest weighing most.
    took: Duration,
}

impl<T> Desk<T> {
    pub fn new(limits: Limits, breaker: breaker::Settings, now: Mono) -> Desk<T> {
        Desk {
            limits,
            breaker: Breaker::new(breaker, now),
            under_way: 0,
            line: VecDeque::new(),
            later: VecDeque::new(),
            took: Duration::ZERO,
        }
    }

    /// `is_worth_later`: a word that comes after the deadline is of use.
    pub fn offer(&mut self, question: T, deadline: Mono, is_worth_later: bool, now: Mono) -> Turn {
        let rounds = (self.under_way + self.line.len()) / self.limits.at_once.max(1);
        let wait = self.took * (rounds as u32 + 1);
        let in_time = now + wait <= deadline && now < deadline;
        if in_time && self.line.len() < self.limits.line && self.breaker.state(now) == State::Closed {
            self.line.push_back((question, deadline));
            return Turn::Waits;
        }
        // While it is tried, a question that waits for nobody is the one to try it with.
        if self.breaker.state(now) == State::Trying && self.under_way == 0 && self.line.is_empty() {
            self.line.push_back((question, deadline));
            return Turn::Waits;
        }
        if is_worth_later {
            self.put_later(question, now);
        }
        Turn::Passed
    }

    fn put_later(&mut self, question: T, now: Mono) {
        self.later.push_back((question, now + self.limits.later_for));
        if self.later.len() > self.limits.later {
            self.later.pop_front();
        }
    }

    /// The next one to be asked now. A question that it gives is followed by [`Desk::done`].
    pub fn next(&mut self, now: Mono) -> Option<Asked<T>> {
        while self.later.front().is_some_and(|(_, until)| *until <= now) {
            self.later.pop_front();
        }
        // Their policies have decided without a word by now; they are asked when there is time.
        while self.line.front().is_some_and(|(_, deadline)| *deadline <= now) {
            let (question, _) = self.line.pop_front().expect("it was looked at");
            self.put_later(question, now);
        }
        if self.under_way >= self.limits.at_once || (self.line.is_empty() && self.later.is_empty()) {
            return None;
        }
        if !self.breaker.may_ask(now) {
            return None;
        }
        let (question, _) = self.line.pop_front().or_else(|| self.later.pop_front()).expect("one of them has some");
        self.under_way += 1;
        Some(Asked { question, at: now })
    }

    /// A question that was asked `at` has its answer, or none.
    pub fn done(&mut self, good: bool, at: Mono, now: Mono) {
        assert!(self.under_way > 0, "only what is under way ends");
        self.under_way -= 1;
        self.breaker.done(good, at, now);
        // A quarter of the newest: a few slow ones are felt, one is not the rule.
        self.took = (self.took * 3 + now.since(at)) / 4;
    }

    pub fn state(&self, now: Mono) -> State {
        self.breaker.state(now)
    }

    pub fn under_way(&self) -> usize {
        self.under_way
    }

    /// Questions in line, and those that are asked when there is time.
    pub fn waiting(&self) -> (usize, usize) {
        (self.line.len(), self.later.len())
    }
}

#[cfg(test)]
mod tests {
    use super::{Desk, Limits, Turn};
    use crate::moderation::breaker::{Settings, State};
    use crate::time::Mono;
    use proptest::prelude::{Strategy, any, prop_oneof};
    use std::time::Duration;

    const BUDGET: Duration = Duration::from_millis(80);

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn whoever_would_not_be_served_in_time_is_sent_on_at_once() {
        let mut now = Mono(1_000_000);
        let mut desk = Desk::new(Limits::of(2), Settings::default(), now);
        // What one takes is learnt first.
        for n in 0..20 {
            assert_eq!(desk.offer(n, now + BUDGET, true, now), Turn::Waits);
            let asked = desk.next(now).unwrap();
            now = now + ms(30);
            desk.done(true, asked.at, now);
        }
        let turns: Vec<Turn> = (0..8).map(|n| desk.offer(n, now + BUDGET, true, now)).collect();
        // Two rounds of 30 ms fit into the budget, a third does not.
        assert_eq!(turns.iter().filter(|turn| **turn == Turn::Waits).count(), 4, "{turns:?}");
        assert_eq!(desk.waiting(), (4, 4));
        let first: Vec<_> = std::iter::from_fn(|| desk.next(now)).map(|asked| asked.question).collect();
        assert_eq!(first, [0, 1], "no more than two at once, in order");
    }

    #[test]
    fn what_was_sent_on_is_asked_when_there_is_time_and_not_for_ever() {
        let mut now = Mono(1_000_000);
        let limits = Limits { line: 1, later: 2, ..Limits::of(1) };
        let mut desk = Desk::new(limits, Settings::default(), now);
        assert_eq!(desk.offer(0, now + BUDGET, true, now), Turn::Waits);
        for n in 1..4 {
            assert_eq!(desk.offer(n, now + BUDGET, true, now), Turn::Passed);
        }
        assert_eq!(desk.offer(9, now + BUDGET, false, now), Turn::Passed, "nobody would hear it");
        let asked = desk.next(now).unwrap();
        desk.done(true, asked.at, now);
        let asked = desk.next(now).unwrap();
        assert_eq!(asked.question, 2, "the oldest of three was given up");
        now = now + Duration::from_secs(60);
        desk.done(true, asked.at, now);
        assert_eq!(desk.next(now), None);
    }

    #[test]
    fn while_the_breaker_is_open_nobody_waits() {
        let mut now = Mono(1_000_000);
        let mut desk = Desk::new(Limits::of(4), Settings::default(), now);
        for n in 0..20 {
            desk.offer(n, now + BUDGET, true, now);
            let asked = desk.next(now).unwrap();
            desk.done(false, asked.at, now);
        }
        assert_eq!(desk.state(now), State::Open);
        assert_eq!((desk.offer(21, now + BUDGET, true, now), desk.next(now)), (Turn::Passed, None));
        now = now + Duration::from_secs(5);
        // Those that were sent on are what it is tried with.
        for _ in 0..3 {
            let asked = desk.next(now).or_else(|| {
                desk.offer(30, now + BUDGET, true, now);
                desk.next(now)
            });
            desk.done(true, asked.unwrap().at, now);
        }
        assert_eq!((desk.state(now), desk.offer(22, now + BUDGET, true, now)), (State::Closed, Turn::Waits));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Offer,
        Done(bool),
        Pass(u64),
    }

    proptest::proptest! {
        #[test]
        fn nobody_is_asked_from_the_line_past_the_deadline_and_everything_is_bounded(
            steps in proptest::collection::vec(prop_oneof![
                3 => proptest::strategy::Just(Step::Offer),
                2 => any::<bool>().prop_map(Step::Done),
                2 => (0u64..200).prop_map(Step::Pass),
            ], 1..500)
        ) {
            let mut now = Mono(1_000_000);
            let limits = Limits { line: 8, later: 8, ..Limits::of(3) };
            let mut desk = Desk::new(limits, Settings::default(), now);
            let (mut n, mut under_way, mut deadlines) = (0usize, Vec::new(), Vec::new());
            for step in steps {
                match step {
                    Step::Offer => {
                        deadlines.push((now + BUDGET, desk.offer(n, now + BUDGET, true, now)));
                        n += 1;
                    }
                    Step::Done(good) => if let Some(at) = under_way.pop() {
                        desk.done(good, at, now);
                    },
                    Step::Pass(millis) => now = now + ms(millis),
                }
                while let Some(asked) = desk.next(now) {
                    let (deadline, _) = deadlines[asked.question];
                    assert!(now < deadline || desk.waiting().0 == 0, "a late one comes after all who are in time");
                    under_way.push(asked.at);
                }
                assert!(desk.under_way() <= 3 && desk.under_way() == under_way.len());
                assert!(desk.waiting().0 <= 9 && desk.waiting().1 <= 8);
            }
        }
    }
}
