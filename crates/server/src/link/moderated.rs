//! What moderation came to, as anyone may read it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use grandstand_core::moderation::Ruling;
use grandstand_core::moderation::breaker::State;
use grandstand_core::record::{End, Verdict};

/// The words of a classifier, in the order of [`Moderated::rulings`].
pub const RULINGS: [&str; 4] = ["allow", "flag", "block", "none"];
/// How held comments ended, in the order of [`Moderated::ends`].
pub const ENDS: [&str; 3] = ["approved", "denied", "expired"];

/// Counts since the process started.
#[derive(Debug, Default)]
pub struct Moderated {
    rulings: [AtomicU64; RULINGS.len()],
    ends: [AtomicU64; ENDS.len()],
    blocked: AtomicU64,
    held: AtomicU64,
    taken_back: AtomicU64,
    unallowed: AtomicU64,
    asking: Arc<Asking>,
    /// Of the word lists: taken, refused.
    reloads: [AtomicU64; 2],
}

impl Moderated {
    pub fn rulings(&self) -> [u64; RULINGS.len()] {
        self.rulings.each_ref().map(read)
    }
    pub fn ends(&self) -> [u64; ENDS.len()] {
        self.ends.each_ref().map(read)
    }
    /// Comments that were refused, of which each is a record.
    pub fn blocked(&self) -> u64 {
        read(&self.blocked)
    }
    /// Comments that were put into a queue for review.
    pub fn held(&self) -> u64 {
        read(&self.held)
    }
    /// Comments that were taken back by a verdict that came after they were shown.
    pub fn taken_back(&self) -> u64 {
        read(&self.taken_back)
    }
    /// Comments that a strict room showed without an allow. Never, unless something is very wrong.
    pub fn unallowed(&self) -> u64 {
        read(&self.unallowed)
    }

    /// Of the HTTP classifier, where there is one.
    pub fn asking(&self) -> &Arc<Asking> {
        &self.asking
    }

    /// Word lists read again since the process started, and those that were refused.
    pub fn reloads(&self) -> [u64; 2] {
        self.reloads.each_ref().map(read)
    }
    pub fn set_reloads(&self, reloads: [u64; 2]) {
        for (place, n) in self.reloads.iter().zip(reloads) {
            place.store(n, Ordering::Relaxed);
        }
    }

    pub fn add_ruling(&self, ruling: Option<&Ruling>) {
        let place = match ruling.map(|ruling| ruling.verdict) {
            Some(Verdict::Allow) => 0,
            Some(Verdict::Flag) => 1,
            Some(Verdict::Block) => 2,
            Some(Verdict::Unjudged) | None => 3,
        };
        add(&self.rulings[place]);
    }
    pub fn add_end(&self, end: End) {
        let place = match end {
            End::Approved(_) => 0,
            End::Denied => 1,
            End::Expired => 2,
        };
        add(&self.ends[place]);
    }
    pub fn add_blocked(&self) {
        add(&self.blocked);
    }
    pub fn add_held(&self) {
        add(&self.held);
    }
    pub fn add_taken_back(&self) {
        add(&self.taken_back);
    }
    pub fn add_unallowed(&self) {
        add(&self.unallowed);
    }
}

/// States of the breaker before the HTTP classifier, in the order of [`Asking::state`].
pub const STATES: [&str; 3] = ["closed", "open", "trying"];

/// What asking the HTTP classifier came to since the process started.
#[derive(Debug, Default)]
pub struct Asking {
    /// Answers that were verdicts, and questions that got none.
    answers: [AtomicU64; 2],
    micros: AtomicU64,
    /// Sent on without being asked in time, and answered from what is kept by its text.
    passed: AtomicU64,
    kept: AtomicU64,
    state: AtomicU64,
}

impl Asking {
    pub fn answers(&self) -> [u64; 2] {
        self.answers.each_ref().map(read)
    }
    /// Time that all answers took together.
    pub fn took(&self) -> Duration {
        Duration::from_micros(read(&self.micros))
    }
    pub fn passed(&self) -> u64 {
        read(&self.passed)
    }
    pub fn kept(&self) -> u64 {
        read(&self.kept)
    }
    /// A place of [`STATES`].
    pub fn state(&self) -> usize {
        read(&self.state) as usize
    }

    pub fn add_answer(&self, good: bool, took: Duration) {
        add(&self.answers[usize::from(!good)]);
        self.micros.fetch_add(took.as_micros() as u64, Ordering::Relaxed);
    }
    pub fn add_passed(&self) {
        add(&self.passed);
    }
    pub fn add_kept(&self) {
        add(&self.kept);
    }
    pub fn set_state(&self, state: State) {
        let place = match state {
            State::Closed => 0,
            State::Open => 1,
            State::Trying => 2,
        };
        self.state.store(place, Ordering::Relaxed);
    }
}

fn read(n: &AtomicU64) -> u64 {
    n.load(Ordering::Relaxed)
}

fn add(n: &AtomicU64) {
    n.fetch_add(1, Ordering::Relaxed);
}
