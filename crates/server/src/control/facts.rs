//! What is known of rooms for those who only count there: likes and reactions by POST.
//!
//! A like by WebSocket is judged by what its worker knows of the room, and by the owner when it is counted. Here it is the same:
//! a room's facts are asked of the owner once a second, and not for each call. What was written through this control is
//! known at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use grandstand_core::likes::Totals;
use grandstand_core::names::RoomId;
use grandstand_core::record::Room;
use grandstand_core::time::Mono;

use super::Control;
use super::answer::Problem;
use crate::clock;

/// As long as a tally takes at most to be told to the viewers of a small room, and a change of settings to every worker.
const FRESH: Duration = Duration::from_secs(1);
/// Rooms that are known at a time; what is beyond them is asked for each time.
const ROOMS_MAX: usize = 4_096;

#[derive(Clone)]
pub struct Facts {
    pub settings: Arc<Room>,
    pub totals: Totals,
    as_of: Mono,
}

#[derive(Default)]
pub struct Known(Mutex<HashMap<RoomId, Facts>>);

impl Known {
    fn find(&self, room: &RoomId, now: Mono) -> Option<Facts> {
        let known = self.0.lock().expect("no holder of this lock can panic");
        known.get(room).filter(|facts| now.since(facts.as_of) < FRESH).cloned()
    }

    fn keep(&self, room: RoomId, facts: Facts, now: Mono) {
        let mut known = self.0.lock().expect("no holder of this lock can panic");
        if known.len() >= ROOMS_MAX && !known.contains_key(&room) {
            known.retain(|_, facts| now.since(facts.as_of) < FRESH);
            if known.len() >= ROOMS_MAX {
                return;
            }
        }
        known.insert(room, facts);
    }

    /// The room was changed.
    pub fn forget(&self, room: &RoomId) {
        self.0.lock().expect("no holder of this lock can panic").remove(room);
    }
}

impl Control {
    /// A room's settings and likes as they were within the last second; those of a fresh room where rooms are made on first use.
    pub async fn facts(&self, room: &RoomId) -> Result<Facts, Problem> {
        let now = clock::mono();
        if let Some(facts) = self.known.find(room, now) {
            return Ok(facts);
        }
        let (settings, totals) = self.room_or_fresh(room).await?;
        let facts = Facts { settings, totals, as_of: now };
        self.known.keep(room.clone(), facts.clone(), now);
        Ok(facts)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use grandstand_core::names::RoomId;
    use grandstand_core::record::Room;
    use grandstand_core::time::Mono;

    use super::{FRESH, Facts, Known, ROOMS_MAX};

    #[test]
    fn facts_are_kept_a_second_or_until_a_change_and_their_rooms_are_bounded() {
        let known = Known::default();
        let facts = |as_of| Facts { settings: Arc::new(Room::fresh("t")), totals: [].into(), as_of };
        let room = |n: usize| RoomId::parse(&format!("r{n}")).unwrap();
        known.keep(room(0), facts(Mono(0)), Mono(0));
        assert!(known.find(&room(0), Mono(999_999)).is_some() && known.find(&room(0), Mono(0) + FRESH).is_none());
        known.forget(&room(0));
        assert!(known.find(&room(0), Mono(1)).is_none());
        for n in 0..ROOMS_MAX + 1 {
            known.keep(room(n), facts(Mono(0)), Mono(0));
        }
        assert!(known.find(&room(ROOMS_MAX), Mono(1)).is_none(), "it is asked for each time");
        known.keep(room(ROOMS_MAX), facts(Mono(0) + FRESH), Mono(0) + FRESH);
        assert!(known.find(&room(ROOMS_MAX), Mono(0) + FRESH).is_some(), "the old ones went");
    }
}
