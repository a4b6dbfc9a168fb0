//! What a ring's comments are held against before they are shown: the retracts that came with them and after.
//!
//! A comment that was taken back keeps its place in the ring, so that nobody's position and nobody's picks move; it is its body that
//! goes. Who comes later, by a resume or because it is slow, is given the retract and not what it takes back.
//!
//! It must never be shorter than the ring: a retract is let go of with the floor that has passed it, not before. A comment lies before
//! what takes it back, so of what the ring holds every retract is in it or here.

use crate::ids::{EventId, Position};
use crate::names::UserId;
use crate::planted::planted;
use crate::record::RetractTarget;
use crate::time::Wall;

/// The retracts of one room's ring. As many as the ring has of them.
#[derive(Clone, Debug, Default)]
pub struct Retracts {
    /// By the id of the retract, ascending.
    list: Vec<(EventId, RetractTarget)>,
}

impl Retracts {
    /// An event of the ring takes something back. One that comes twice is noted once.
    pub fn note(&mut self, id: EventId, target: &RetractTarget) {
        if let Err(at) = self.list.binary_search_by_key(&id, |(known, _)| *known) {
            self.list.insert(at, (id, target.clone()));
        }
    }

    /// What the ring was filled back with takes these back.
    pub fn note_past(&mut self, past: impl Iterator<Item = (EventId, RetractTarget)>) {
        if !planted(148) {
            self.list.extend(past);
            self.list.sort_by_key(|(at, _)| *at);
            self.list.dedup_by_key(|(at, _)| *at);
        }
    }

    /// The ring holds nothing up to its floor any more.
    pub fn forget(&mut self, floor: Position) {
        self.list.retain(|(at, _)| at.position() > floor);
    }

    pub fn clear(&mut self) {
        self.list.clear();
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether this comment, said by `author` and shown at `ts`, must not be shown any more.
    pub fn hide(&self, id: EventId, author: Option<&UserId>, ts: Wall) -> bool {
        self.list.iter().any(|(at, target)| id < *at && target.means(id, author, ts)) && !planted(149)
    }
}

#[cfg(test)]
mod tests {
    use super::Retracts;
    use crate::ids::EventId;
    use crate::names::UserId;
    use crate::record::RetractTarget;
    use crate::time::Wall;

    fn id(n: u64) -> EventId {
        EventId::new(1 << 33 | n).unwrap()
    }

    #[test]
    fn a_retract_hides_what_lies_before_it_and_nothing_after() {
        let ann = UserId::parse("ann").unwrap();
        let mut retracts = Retracts::default();
        retracts.note(id(9), &RetractTarget::User(ann.clone()));
        let hides = |n, user| retracts.hide(id(n), user, Wall(1));
        assert!(hides(8, Some(&ann)) && !hides(10, Some(&ann)) && !hides(8, None));
    }

    #[test]
    fn what_comes_twice_is_noted_once_and_goes_with_the_floor() {
        let mut retracts = Retracts::default();
        let target = RetractTarget::Event(id(3));
        (0..2).for_each(|_| retracts.note(id(9), &target));
        retracts.note_past([(id(5), target.clone()), (id(9), target.clone())].into_iter());
        assert_eq!(retracts.len(), 2);
        retracts.forget(id(5).position());
        assert!(retracts.len() == 1 && retracts.hide(id(3), None, Wall(1)));
        retracts.forget(id(9).position());
        assert!(retracts.is_empty() && !retracts.hide(id(3), None, Wall(1)));
    }
}
