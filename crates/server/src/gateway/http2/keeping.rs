//! How long one HTTP/2 connection is kept, and when it is told to go.
//!
//! A connection is looked at now and then. One that says nothing is asked whether anybody is there, and ends when nothing comes
//! back; one without a stream is told to go, as one of HTTP/1.1 is between two requests. While an operator empties the gateway
//! each connection goes at a moment of its own: at once they would all come back elsewhere at once. A drain that is taken back
//! before that moment is none.
//!
//! The clock is the caller's. What a connection is told here it is told once: after [`Act::Go`] it lives as long as its
//! streams, which the loop ends in the drain's own slices.

use std::time::Duration;

use grandstand_core::admission::Drain;
use grandstand_core::time::Mono;

/// A connection that says nothing for the first is asked whether it is there, and ends after the second.
const QUIET_ASK: Duration = Duration::from_secs(15);
const QUIET_MAX: Duration = Duration::from_secs(35);
/// A connection without a stream ends, as one of HTTP/1.1 does between two requests.
const IDLE_WAIT: Duration = Duration::from_secs(75);
/// How often a connection looks at its clock, and whether there is a drain.
const TICK: Duration = Duration::from_secs(5);

/// What a look at the clock comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    Wait,
    /// A PING is sent.
    Ask,
    /// GOAWAY: it ends with its last stream.
    Go,
    /// Nobody is there.
    End,
}

/// What a connection did, as of now.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Bytes that ever came.
    pub heard: u64,
    pub has_streams: bool,
    pub drain: Option<Drain>,
}

pub struct Keeping {
    /// Where in a drain this connection goes, in millionths.
    lot: u32,
    heard: u64,
    heard_at: Mono,
    asked: bool,
    busy_at: Mono,
    goes: bool,
}

impl Keeping {
    /// `lot`: drawn by chance, below a million.
    pub fn new(lot: u32, now: Mono) -> Keeping {
        Keeping { lot, heard: 0, heard_at: now, asked: false, busy_at: now, goes: false }
    }

    /// A stream was opened.
    pub fn busy(&mut self, now: Mono) {
        self.busy_at = now;
    }

    /// It was told to go for another reason. Whether it had not been before.
    pub fn go(&mut self) -> bool {
        !std::mem::replace(&mut self.goes, true)
    }

    pub fn look(&mut self, seen: Seen, now: Mono) -> Act {
        if seen.heard != self.heard {
            (self.heard, self.heard_at, self.asked) = (seen.heard, now, false);
        }
        if seen.has_streams {
            self.busy_at = now;
        }
        let quiet = now.since(self.heard_at);
        if quiet >= QUIET_MAX {
            return Act::End;
        }
        let idle = now.since(self.busy_at) >= IDLE_WAIT;
        let leaves = seen.drain.is_some_and(|drain| now >= drain.moment(self.lot));
        if (idle || leaves) && self.go() {
            return Act::Go;
        }
        if quiet >= QUIET_ASK && !self.asked {
            self.asked = true;
            return Act::Ask;
        }
        Act::Wait
    }

    /// From now to the next look.
    pub fn next(&self, drain: Option<Drain>, now: Mono) -> Duration {
        let moment = drain.filter(|_| !self.goes).map(|drain| drain.moment(self.lot));
        moment.filter(|at| *at > now).map_or(TICK, |at| at.since(now).min(TICK))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use grandstand_core::admission::Drain;
    use grandstand_core::time::Mono;

    use super::{Act, Keeping, Seen};

    fn at(seconds: u64) -> Mono {
        Mono(1_000_000 * (1_000 + seconds))
    }

    fn seen(heard: u64, has_streams: bool) -> Seen {
        Seen { heard, has_streams, drain: None }
    }

    #[test]
    fn a_connection_without_a_stream_is_told_once_to_go_after_75_seconds() {
        let mut keeping = Keeping::new(0, at(0));
        // It answers every PING, so it is there.
        let mut heard = 0;
        let mut look = |keeping: &mut Keeping, second, has_streams| {
            heard += 1;
            keeping.look(seen(heard, has_streams), at(second))
        };
        assert_eq!(look(&mut keeping, 60, true), Act::Wait);
        for second in (65..135).step_by(5) {
            assert_eq!(look(&mut keeping, second, false), Act::Wait, "{second}");
        }
        assert_eq!(look(&mut keeping, 135, false), Act::Go);
        assert_eq!(look(&mut keeping, 140, false), Act::Wait);
        // One that is opened between two looks counts as well.
        let mut keeping = Keeping::new(0, at(0));
        keeping.busy(at(70));
        assert_eq!(look(&mut keeping, 75, false), Act::Wait);
        assert_eq!(look(&mut keeping, 145, false), Act::Go);
    }

    #[test]
    fn a_peer_that_is_silent_is_asked_after_15_seconds_and_left_after_35() {
        let mut keeping = Keeping::new(0, at(0));
        let mut looks: Vec<Act> = Vec::new();
        for second in (5..=35).step_by(5) {
            // Its stream is open: that alone does not keep it.
            looks.push(keeping.look(seen(9, true), at(second)));
        }
        // What it said before the first look was heard then.
        let wait = Act::Wait;
        assert_eq!(looks, [wait, wait, wait, Act::Ask, wait, wait, wait]);
        assert_eq!(keeping.look(seen(9, true), at(39)), wait);
        assert_eq!(keeping.look(seen(9, true), at(40)), Act::End);
    }

    #[test]
    fn a_peer_that_answers_is_asked_again_and_stays() {
        let mut keeping = Keeping::new(0, at(0));
        for round in 0..10 {
            let start = round * 20;
            assert_eq!(keeping.look(seen(round + 1, true), at(start)), Act::Wait);
            assert_eq!(keeping.look(seen(round + 1, true), at(start + 15)), Act::Ask);
        }
    }

    #[test]
    fn connections_are_told_of_a_drain_one_after_another_and_all_by_its_end() {
        let drain = Drain { began: at(0), over: Duration::from_secs(100) };
        let draining = |now| Seen { heard: now, has_streams: true, drain: Some(drain) };
        let mut all: Vec<Keeping> = (0..100).map(|n| Keeping::new(n * 10_000, at(0))).collect();
        let mut n_gone = 0;
        for second in 0..=100 {
            let acts = all.iter_mut().map(|keeping| keeping.look(draining(second), at(second)));
            let now = acts.filter(|act| *act == Act::Go).count();
            assert!(now <= 1, "{now} at {second} s");
            n_gone += now;
        }
        assert_eq!(n_gone, 100);
        // The moment is not slept through.
        let keeping = Keeping::new(72_000, at(0));
        assert_eq!(keeping.next(Some(drain), at(5)), Duration::from_millis(2_200));
        assert_eq!(keeping.next(Some(drain), at(0)), Duration::from_secs(5));
        assert_eq!(keeping.next(None, at(0)), Duration::from_secs(5));
    }

    #[test]
    fn a_drain_that_is_taken_back_before_a_connections_moment_is_none() {
        let drain = Drain { began: at(0), over: Duration::from_secs(100) };
        let mut keeping = Keeping::new(500_000, at(0));
        let look = |drain, second| Seen { heard: second, has_streams: true, drain };
        assert_eq!(keeping.look(look(Some(drain), 49), at(49)), Act::Wait);
        assert_eq!(keeping.look(look(None, 60), at(60)), Act::Wait);
        assert_eq!(keeping.look(look(Some(drain), 61), at(61)), Act::Go);
    }
}
