//! Which long-poll holds the line of a (user, room, tab), over all workers.
//!
//! One phone line a tab: a newer call ends the older with 204, and a caller that was just answered waits a second before the
//! next answer, whichever worker took the call. Anonymous callers are told apart by their address.
//! Numbers: docs/protocol.md (≥ 1 s between a viewer's answers).

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use grandstand_core::ids::EventId;
use grandstand_core::routing::stable_hash;
use grandstand_core::time::Mono;

use crate::link::ConnKey;

/// Between two answers to one viewer.
pub const ANSWER_GAP: Duration = Duration::from_secs(1);
/// A line nobody called on for so long is forgotten.
const FORGET: Duration = Duration::from_secs(60);
const SHARDS: usize = 16;

/// Who calls: a 64-bit hash over user (or address), room and tab.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Line(u64);

impl Line {
    pub fn of(caller: &str, room: &str, tab: &str) -> Line {
        // None of the three holds a control character.
        Line(stable_hash(format!("{caller}\n{room}\n{tab}").as_bytes()))
    }

    /// The same in every process.
    pub fn number(self) -> u64 {
        self.0
    }
    pub fn numbered(number: u64) -> Line {
        Line(number)
    }
}

/// What a call on a line finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Called {
    /// Who held it before and must be ended.
    pub older: Option<ConnKey>,
    /// When the next answer may leave.
    pub not_before: Mono,
    /// The numbers that the caller knows.
    pub heard: Option<Heard>,
    pub banners: Known,
    /// Nobody called on it here lately: another process may have it.
    pub is_new: bool,
}

/// The room's numbers as a caller was told them last, as digests: it has no seat between two calls.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Heard {
    /// Of likes and the share that is shown: a change of them is worth an answer.
    pub numbers: u64,
    /// Told with the next answer.
    pub viewers: u64,
}

/// Which of the site's banners a caller knows, on whichever worker it calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Known {
    /// The newest of them.
    pub newest: Option<EventId>,
    /// When it was answered last, where that is remembered.
    pub answered: Option<Mono>,
    pub called: Mono,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    heard: Option<Heard>,
    banner: Option<EventId>,
    by: Option<ConnKey>,
    answered: Option<Mono>,
    touched: Mono,
}

pub struct Polls([Mutex<HashMap<Line, Held>>; SHARDS]);

impl Polls {
    pub fn new() -> Polls {
        Polls(Default::default())
    }

    /// `by` calls on the line.
    pub fn call(&self, line: Line, by: ConnKey, now: Mono) -> Called {
        let mut lines = self.shard(line);
        if lines.len() >= 1_024 && lines.len().is_power_of_two() {
            lines.retain(|_, held| held.by.is_some() || now.since(held.touched) < FORGET);
        }
        let is_new = !lines.contains_key(&line);
        let held =
            lines.entry(line).or_insert(Held { heard: None, banner: None, by: None, answered: None, touched: now });
        let older = held.by.replace(by).filter(|older| *older != by);
        held.touched = now;
        let not_before = held.answered.map_or(now, |at| at + ANSWER_GAP).max(now);
        let banners = Known { newest: held.banner, answered: held.answered, called: now };
        Called { older, not_before, heard: held.heard, banners, is_new }
    }

    /// Another process has the line now: who holds it here, and must be ended.
    pub fn give_up(&self, line: Line) -> Option<ConnKey> {
        self.shard(line).remove(&line)?.by
    }

    /// The caller is told these numbers.
    pub fn tell(&self, line: Line, heard: Heard) {
        if let Some(held) = self.shard(line).get_mut(&line) {
            held.heard = Some(heard);
        }
    }

    /// The caller is told all banners up to this one.
    pub fn tell_banners(&self, line: Line, newest: Option<EventId>) {
        if let Some(held) = self.shard(line).get_mut(&line) {
            held.banner = held.banner.max(newest);
        }
    }

    /// Whether the line was answered lately: a call on it goes on with a stream that was let in before.
    pub fn goes_on(&self, line: Line, now: Mono) -> bool {
        let lines = self.shard(line);
        lines.get(&line).and_then(|held| held.answered).is_some_and(|at| now.since(at) < FORGET)
    }

    /// `by` was answered or is gone.
    pub fn leave(&self, line: Line, by: ConnKey, answered: bool, now: Mono) {
        let mut lines = self.shard(line);
        if let Some(held) = lines.get_mut(&line) {
            held.touched = now;
            if answered {
                held.answered = Some(now);
            }
            if held.by == Some(by) {
                held.by = None;
            }
        }
    }

    fn shard(&self, line: Line) -> std::sync::MutexGuard<'_, HashMap<Line, Held>> {
        self.0[line.0 as usize % SHARDS].lock().expect("no holder of this lock can panic")
    }
}

#[cfg(test)]
mod tests {
    use grandstand_core::time::Mono;

    use super::{Heard, Line, Polls};
    use crate::link::{ConnKey, WorkerId};

    fn conn(slot: u32) -> ConnKey {
        ConnKey { worker: WorkerId(0), slot, generation: 1 }
    }

    #[test]
    fn a_newer_call_ends_the_older_and_waits_a_second_after_the_last_answer() {
        let polls = Polls::new();
        let line = Line::of("u", "r", "t");
        let call = |line, by, now| {
            let called = polls.call(line, conn(by), Mono(now));
            (called.older, called.not_before, called.heard)
        };
        assert_eq!(call(line, 1, 0), (None, Mono(0), None));
        let heard = Heard { numbers: 1, viewers: 2 };
        polls.tell(line, heard);
        assert_eq!(call(line, 2, 5), (Some(conn(1)), Mono(5), Some(heard)));
        polls.leave(line, conn(1), false, Mono(6));
        assert_eq!(call(Line::of("u", "r", "t2"), 3, 6).0, None);
        polls.leave(line, conn(2), true, Mono(7));
        assert_eq!(call(line, 4, 8), (None, Mono(1_000_007), Some(heard)));
    }

    #[test]
    fn a_line_that_another_process_has_is_given_up_and_new_again() {
        let polls = Polls::new();
        let line = Line::of("u", "r", "t");
        assert!(polls.call(line, conn(1), Mono(0)).is_new);
        assert!(!polls.call(line, conn(2), Mono(1)).is_new);
        assert_eq!(polls.give_up(Line::numbered(line.number())), Some(conn(2)));
        assert_eq!(polls.give_up(line), None);
        // The one that was ended says so once more.
        polls.leave(line, conn(2), false, Mono(2));
        assert!(polls.call(line, conn(3), Mono(3)).is_new);
    }
}
