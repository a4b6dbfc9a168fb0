//! The keys of the last ten minutes of one user in one room: a retry gets the first answer again.
//!
//! The window is a function of the log: ten minutes of log time, at most so many keys, the oldest going first. A key whose
//! text was erased remembers no digest and matches any payload.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::hash::Seeded;
use crate::ids::EventId;
use crate::names::ClientMsgId;
use crate::time::Wall;

pub const WINDOW: Duration = Duration::from_secs(600);
/// Keys kept for one (room, user).
pub const KEYS_MAX: usize = 1_024;
/// As above, for role `backend`.
pub const KEYS_MAX_BACKEND: usize = 65_536;

const _: () = assert!(WINDOW.as_secs() == crate::slow_mode::SECONDS_MAX as u64);

#[derive(Clone, Debug)]
pub struct Window {
    keys: HashMap<ClientMsgId, Kept, Seeded>,
    /// Log time and key, oldest first; the same keys as in `keys`.
    order: VecDeque<(Wall, ClientMsgId)>,
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    digest: Option<u64>,
    event_id: EventId,
    road: Road,
    ts: Wall,
}

/// How a comment went into the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Road {
    /// As the event viewers get.
    Direct,
    /// As a raw comment of a wide room, which a window let win under the second id, if any.
    Raw(Option<EventId>),
    /// Not as an event: moderation refused it.
    Blocked,
    /// As one that waits for a human's word.
    Held,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// Not seen in the window.
    Fresh,
    /// The same payload was published under this id, on this road.
    Same(EventId, Road),
    /// Another payload was published under this key.
    Conflict,
}

impl Window {
    pub fn new(hasher: Seeded) -> Window {
        Window { keys: HashMap::with_hasher(hasher), order: VecDeque::new() }
    }

    pub fn find(&self, key: &ClientMsgId, digest: u64, log_now: Wall) -> Found {
        match self.keys.get(key) {
            Some(kept) if log_now.since(kept.ts) < WINDOW => match kept.digest {
                Some(first) if first != digest => Found::Conflict,
                _ => Found::Same(kept.event_id, kept.road),
            },
            _ => Found::Fresh,
        }
    }

    /// How long the user must wait until it may say this once more, having said it within the window.
    pub fn said(&self, digest: u64, log_now: Wall) -> Option<Duration> {
        let newest = self.order.iter().rev().find(|(_, key)| self.keys[key].digest == Some(digest))?;
        let free_at = newest.0 + WINDOW;
        (log_now < free_at).then(|| free_at.since(log_now))
    }

    /// A window let the raw comment under this key win. Nothing happens when the key is forgotten.
    pub fn won(&mut self, key: &ClientMsgId, raw_id: EventId, event_id: EventId) {
        if let Some(kept) = self.keys.get_mut(key).filter(|kept| kept.event_id == raw_id) {
            kept.road = Road::Raw(Some(event_id));
        }
    }

    /// What was held under this key is on its last road. Nothing happens when the key is forgotten.
    pub fn decided(&mut self, key: &ClientMsgId, held_id: EventId, event_id: EventId, road: Road) {
        if let Some(kept) = self.keys.get_mut(key).filter(|kept| kept.event_id == held_id) {
            (kept.event_id, kept.road) = (event_id, road);
        }
    }

    /// Remembers a published key; the oldest beyond `keys_max` and those out of the window at `ts` go. A key that is there
    /// already keeps its first event.
    pub fn insert(
        &mut self,
        key: &ClientMsgId,
        digest: Option<u64>,
        (event_id, road): (EventId, Road),
        ts: Wall,
        keys_max: usize,
    ) {
        self.expire(ts);
        if self.keys.contains_key(key) {
            return;
        }
        self.keys.insert(key.clone(), Kept { digest, event_id, road, ts });
        self.order.push_back((ts, key.clone()));
        self.keep_newest(keys_max);
    }

    /// Drops the oldest keys beyond `keys_max`.
    pub fn keep_newest(&mut self, keys_max: usize) {
        while self.order.len() > keys_max {
            self.drop_oldest();
        }
    }

    /// Drops what is out of the window at `log_now`.
    pub fn expire(&mut self, log_now: Wall) {
        while self.order.front().is_some_and(|(ts, _)| log_now.since(*ts) >= WINDOW) {
            self.drop_oldest();
        }
    }

    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Key, digest and event of each kept key, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (&ClientMsgId, Option<u64>, EventId)> {
        self.order.iter().map(|(_, key)| (key, self.keys[key].digest, self.keys[key].event_id))
    }

    fn drop_oldest(&mut self) {
        if let Some((_, key)) = self.order.pop_front() {
            self.keys.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Found, KEYS_MAX, Road, Window};
    use crate::hash::Seeded;
    use crate::ids::EventId;
    use crate::names::ClientMsgId;
    use crate::time::Wall;

    fn key(n: usize) -> ClientMsgId {
        ClientMsgId::parse(&format!("k{n}")).unwrap()
    }
    fn id(n: u64) -> EventId {
        EventId::new(1 << 33 | n).unwrap()
    }

    #[test]
    fn a_repeat_gets_the_first_id_and_another_payload_conflicts() {
        let mut window = Window::new(Seeded(1));
        window.insert(&key(1), Some(7), (id(1), Road::Direct), Wall(0), KEYS_MAX);
        assert_eq!(window.find(&key(1), 7, Wall(599_999)), Found::Same(id(1), Road::Direct));
        assert_eq!(window.find(&key(1), 8, Wall(599_999)), Found::Conflict);
        assert_eq!(window.find(&key(2), 7, Wall(0)), Found::Fresh);
    }

    #[test]
    fn a_key_is_forgotten_after_ten_minutes_of_log_time() {
        let mut window = Window::new(Seeded(1));
        window.insert(&key(1), Some(7), (id(1), Road::Direct), Wall(0), KEYS_MAX);
        assert_eq!(window.find(&key(1), 8, Wall(600_000)), Found::Fresh);
        window.insert(&key(1), Some(8), (id(2), Road::Direct), Wall(600_000), KEYS_MAX);
        assert_eq!(window.find(&key(1), 8, Wall(600_001)), Found::Same(id(2), Road::Direct));
        assert_eq!(window.len(), 1);
    }

    #[test]
    fn the_oldest_key_goes_when_the_window_is_full() {
        let mut window = Window::new(Seeded(1));
        for n in 0..=KEYS_MAX {
            window.insert(&key(n), Some(0), (id(n as u64), Road::Direct), Wall(n as u64), KEYS_MAX);
        }
        assert_eq!(window.len(), KEYS_MAX);
        assert_eq!(window.find(&key(0), 0, Wall(2_000)), Found::Fresh);
        assert_eq!(window.find(&key(1), 0, Wall(2_000)), Found::Same(id(1), Road::Direct));
    }

    #[test]
    fn a_raw_comment_is_found_with_what_became_of_it() {
        let mut window = Window::new(Seeded(1));
        window.insert(&key(1), Some(7), (id(1), Road::Raw(None)), Wall(0), KEYS_MAX);
        assert_eq!(window.find(&key(1), 7, Wall(1)), Found::Same(id(1), Road::Raw(None)));
        window.won(&key(1), id(2), id(9));
        assert_eq!(window.find(&key(1), 7, Wall(1)), Found::Same(id(1), Road::Raw(None)), "another comment won");
        window.won(&key(1), id(1), id(9));
        assert_eq!(window.find(&key(1), 7, Wall(1)), Found::Same(id(1), Road::Raw(Some(id(9)))));
    }

    #[test]
    fn an_erased_text_matches_any_payload() {
        let mut window = Window::new(Seeded(1));
        window.insert(&key(1), None, (id(1), Road::Direct), Wall(0), KEYS_MAX);
        assert_eq!(window.find(&key(1), 99, Wall(1)), Found::Same(id(1), Road::Direct));
    }
}
