//! Who is being erased, between the record that says so and the moment that nothing names the user any more.
//!
//! A list on the wall of the shard's process: the owner puts a name on it, the keeper notes from where on checkpoints are free of it,
//! the writer takes it off. While a name is on it, readers of the log are given what will be left and not what still stands there.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use grandstand_core::ids::{EventId, Position};
use grandstand_core::names::UserId;
use grandstand_core::record::Record;

#[derive(Default)]
pub struct Erasing {
    /// How many are on the list, so that nobody waits for the lock while it is empty, as it almost always is.
    n: AtomicUsize,
    list: Mutex<List>,
    begun: AtomicU64,
    /// Every checkpoint at or after this position, and the file it is in, is free of who was erased up to there.
    clean: AtomicU64,
    done: AtomicU64,
}

/// Users by the record that erases them; `None`: no record names the user any more.
pub type List = BTreeMap<EventId, Option<UserId>>;

impl Erasing {
    /// The record that erases this user is in the log. Again: ignored.
    pub fn begin(&self, id: EventId, user: Option<UserId>) {
        let mut list = self.list();
        list.entry(id).or_insert(user);
        self.n.store(list.len(), Ordering::Release);
        self.begun.fetch_add(1, Ordering::Release);
    }

    /// Moves with each erase, once readers are shown nothing of its user: what was read before is not kept.
    pub fn begun(&self) -> u64 {
        self.begun.load(Ordering::Acquire)
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
        self.n.load(Ordering::Acquire) > 0 && self.list().keys().any(|id| !self.may_go(*id))
    }

    pub fn end(&self, id: EventId) {
        let mut list = self.list();
        let was_there = list.remove(&id).is_some();
        self.done.fetch_add(was_there.into(), Ordering::Relaxed);
        self.n.store(list.len(), Ordering::Release);
    }

    /// The newest whose user records still name. `None`: there is no such record.
    pub fn newest_named(&self) -> Option<EventId> {
        self.now().into_iter().rev().find_map(|(id, user)| user.map(|_| id))
    }

    /// Those that are not done, oldest first.
    pub fn pending(&self) -> Vec<EventId> {
        self.list().keys().copied().collect()
    }

    /// Erases that were done since the process started.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Who is on the list.
    pub fn now(&self) -> List {
        match self.n.load(Ordering::Acquire) {
            0 => List::new(),
            _ => self.list().clone(),
        }
    }

    /// Leaves of each record what will be left of it. `before`: who was on the list before they were read; who was taken off it
    /// since may stand in them still.
    pub fn veil(&self, before: List, records: &mut [Arc<Record>]) {
        let mut list = before;
        list.extend(self.now());
        if list.is_empty() {
            return;
        }
        for record in records {
            for (id, user) in &list {
                let left = user.as_ref().filter(|_| record.event_id() < *id).and_then(|user| record.without(user));
                if let Some(left) = left {
                    *record = Arc::new(left);
                }
            }
        }
    }

    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().expect("no holder of this lock can panic")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use grandstand_core::ids::{Epoch, EventId, Seq};
    use grandstand_core::names::UserId;
    use grandstand_core::record::{Audience, Body, Record, Verdict};
    use grandstand_core::time::Wall;

    use super::Erasing;

    fn of(user: &UserId) -> Arc<Record> {
        Arc::new(Record {
            epoch: Epoch::new(1).unwrap(),
            seq: Seq::new(1).unwrap(),
            room: None,
            ts: Wall(1),
            region: "local".into(),
            user: Some(user.clone()),
            client_msg_id: None,
            pseq: None,
            verdict: Verdict::Unjudged,
            policy_version: 0,
            audience: Audience::Nobody,
            source: None,
            body: Body::EpochStart,
        })
    }

    #[test]
    fn who_comes_or_goes_while_a_page_is_read_is_not_in_it() {
        let ann = UserId::parse("ann").unwrap();
        let id = EventId::at(Epoch::new(1).unwrap(), Seq::new(2).unwrap());
        let erasing = Erasing::default();
        let is_veiled = |before| {
            let mut page = [of(&ann)];
            erasing.veil(before, &mut page);
            page[0].body == Body::Erased && page[0].user.is_none()
        };
        let before = erasing.now();
        assert!(!is_veiled(before.clone()));
        erasing.begin(id, Some(ann.clone()));
        assert!(is_veiled(before), "it was read before the record that erases it");
        let before = erasing.now();
        erasing.end(id);
        assert!(is_veiled(before), "it was read before the writer had come to its end");
        assert_eq!((erasing.now().len(), erasing.done()), (0, 1));
    }
}
