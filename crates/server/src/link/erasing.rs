//! Who is being erased, between the record that says so and the moment that nothing names the user any more.
//!
//! A list on the wall of the shard's process: the owner puts a name on it, the keeper notes from where on checkpoints are free of it,
//! the writer takes it off. While a name is on it, readers of the log are given what will be left and not what still stands there.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use grandstand_core::ids::{EventId, Position};
use grandstand_core::names::UserId;
use grandstand_core::record::Record;

#[derive(Default)]
pub struct Erasing {
    /// How many are on the list, so that nobody waits for the lock while it is empty, as it almost always is.
    n: AtomicUsize,
    list: Mutex<Vec<Pending>>,
    /// Every checkpoint at or after this position, and the file it is in, is free of who was erased up to there.
    clean: AtomicU64,
    done: AtomicU64,
}

#[derive(Clone)]
struct Pending {
    id: EventId,
    /// `None`: no record names the user any more.
    user: Option<UserId>,
}

impl Erasing {
    /// The record that erases this user is in the log. Again: ignored.
    pub fn begin(&self, id: EventId, user: Option<UserId>) {
        let mut list = self.list();
        if list.iter().all(|pending| pending.id != id) {
            list.push(Pending { id, user });
        }
        self.n.store(list.len(), Ordering::Release);
    }

    /// A checkpoint at this position was saved, and nothing of older ones is left in any byte.
    pub fn cleaned(&self, upto: Position) {
        self.clean.fetch_max(upto.value(), Ordering::AcqRel);
    }

    /// Whether the log may let go of what this record erases: no start needs it.
    pub fn may_go(&self, id: EventId) -> bool {
        id.value() <= self.clean.load(Ordering::Acquire)
    }

    /// Whether a checkpoint is wanted for one of them.
    pub fn wants_checkpoint(&self) -> bool {
        self.n.load(Ordering::Acquire) > 0 && self.list().iter().any(|pending| !self.may_go(pending.id))
    }

    pub fn end(&self, id: EventId) {
        let mut list = self.list();
        let n = list.len();
        list.retain(|pending| pending.id != id);
        self.done.fetch_add((n - list.len()) as u64, Ordering::Relaxed);
        self.n.store(list.len(), Ordering::Release);
    }

    /// The newest whose user records still name. `None`: there is no such record.
    pub fn newest_named(&self) -> Option<EventId> {
        if self.n.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.list().iter().filter(|pending| pending.user.is_some()).map(|pending| pending.id).max()
    }

    /// Those that are not done, oldest first.
    pub fn pending(&self) -> Vec<EventId> {
        let mut ids: Vec<EventId> = self.list().iter().map(|pending| pending.id).collect();
        ids.sort_unstable();
        ids
    }

    /// Erases that were done since the process started.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Leaves of each record what will be left of it.
    pub fn veil(&self, records: &mut [Arc<Record>]) {
        if self.n.load(Ordering::Acquire) == 0 {
            return;
        }
        let list = self.list().clone();
        for record in records {
            for Pending { id, user } in &list {
                let left = user.as_ref().filter(|_| record.event_id() < *id).and_then(|user| record.without(user));
                if let Some(left) = left {
                    *record = Arc::new(left);
                }
            }
        }
    }

    fn list(&self) -> MutexGuard<'_, Vec<Pending>> {
        self.list.lock().expect("no holder of this lock can panic")
    }
}
