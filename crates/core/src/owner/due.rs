//! When something of each room comes due by itself on log time: a slow mode's end, a pin's, a combo's next word.

use std::collections::{BTreeMap, BTreeSet};

use crate::time::Wall;

/// One time for each room that has one.
#[derive(Default)]
pub(super) struct Due {
    by_time: BTreeSet<(Wall, usize)>,
    of_room: BTreeMap<usize, Wall>,
}

impl Due {
    /// Puts the room's time in place of the one it had. `None`: nothing of it comes due.
    pub fn set(&mut self, at: usize, due: Option<Wall>) {
        let old = match due {
            Some(due) => self.of_room.insert(at, due),
            None => self.of_room.remove(&at),
        };
        if old != due {
            if let Some(old) = old {
                self.by_time.remove(&(old, at));
            }
            self.by_time.extend(due.map(|due| (due, at)));
        }
    }

    pub fn first(&self) -> Option<Wall> {
        self.by_time.first().map(|(due, _)| *due)
    }

    /// The next room whose time has come, without it from then on.
    pub fn take(&mut self, log_now: Wall) -> Option<(Wall, usize)> {
        let (due, at) = *self.by_time.first().filter(|(due, _)| *due <= log_now)?;
        self.set(at, None);
        Some((due, at))
    }
}

#[cfg(test)]
mod tests {
    use super::Due;
    use crate::time::Wall;

    #[test]
    fn a_room_has_one_time_and_is_taken_once_it_has_come() {
        let mut due = Due::default();
        due.set(1, Some(Wall(30)));
        due.set(2, Some(Wall(20)));
        due.set(1, Some(Wall(10)));
        due.set(1, Some(Wall(10)));
        due.set(3, Some(Wall(5)));
        due.set(3, None);
        assert_eq!((due.first(), due.take(Wall(9))), (Some(Wall(10)), None));
        assert_eq!(due.take(Wall(20)), Some((Wall(10), 1)));
        assert_eq!((due.take(Wall(20)), due.take(Wall(20)), due.first()), (Some((Wall(20), 2)), None, None));
        due.set(1, Some(Wall(10)));
        assert_eq!(due.take(Wall(10)), Some((Wall(10), 1)), "what was taken may be due again");
    }
}
