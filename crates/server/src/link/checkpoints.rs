//! What checkpoints cost: the owner's copy of what changed, which holds up its rooms, and the save beside it, which does not.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Of one of the two parts, since the process started.
#[derive(Default)]
pub struct Spent {
    micros: AtomicU64,
    longest: AtomicU64,
}

impl Spent {
    pub fn add(&self, took: Duration) {
        let micros = took.as_micros() as u64;
        self.micros.fetch_add(micros, Ordering::Relaxed);
        self.longest.fetch_max(micros, Ordering::Relaxed);
    }

    /// In all, and the longest one.
    pub fn read(&self) -> (Duration, Duration) {
        let of = |n: &AtomicU64| Duration::from_micros(n.load(Ordering::Relaxed));
        (of(&self.micros), of(&self.longest))
    }
}

#[derive(Default)]
pub struct Checkpoints {
    pub copy: Spent,
    pub save: Spent,
    saved: AtomicU64,
    rooms: AtomicU64,
}

impl Checkpoints {
    /// A checkpoint with so many rooms is durable.
    pub fn add_saved(&self, n_rooms: u64) {
        self.saved.fetch_add(1, Ordering::Relaxed);
        self.rooms.fetch_add(n_rooms, Ordering::Relaxed);
    }

    /// Checkpoints saved, and the rooms in them.
    pub fn saved(&self) -> (u64, u64) {
        (self.saved.load(Ordering::Relaxed), self.rooms.load(Ordering::Relaxed))
    }
}
