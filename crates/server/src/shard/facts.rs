//! What reader threads may know of rooms without asking the owner: written by the owner after each commit, read by readers.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use grandstand_core::ids::{EpochSpan, Position, Pseq};
use grandstand_core::names::RoomId;
use grandstand_core::owner::view::{Retracted, RoomView};
use grandstand_core::record::{Record, Room};

/// The rooms of one log as of `head`. The lock is held for look-ups only, never across I/O or encoding.
#[derive(Default)]
pub struct Facts(RwLock<Inner>);

#[derive(Default)]
struct Inner {
    head: Position,
    epochs: Arc<[EpochSpan]>,
    rooms: HashMap<RoomId, Seen>,
}

/// What readers need of a room, and no more: there may be many rooms, and each commit copies those it touched.
#[derive(Clone)]
pub struct Seen {
    pub settings: Arc<Room>,
    pub last_event: Position,
    pub pseq: Pseq,
    pub wide: bool,
    retracted: Arc<Retracted>,
}

impl Seen {
    fn of(view: &RoomView) -> Seen {
        Seen {
            settings: view.settings.clone(),
            last_event: view.last_event,
            pseq: view.pseq,
            wide: view.wide,
            retracted: view.retracted.clone(),
        }
    }
}

/// One moment of the log for one room.
#[derive(Clone)]
pub struct Moment {
    pub head: Position,
    pub epochs: Arc<[EpochSpan]>,
    /// `None`: the log holds nothing of the room.
    pub room: Option<Seen>,
}

impl Facts {
    pub fn head(&self) -> Position {
        self.0.read().expect("no holder of this lock can panic").head
    }

    pub fn moment(&self, room: &RoomId) -> Moment {
        let inner = self.0.read().expect("no holder of this lock can panic");
        Moment { head: inner.head, epochs: inner.epochs.clone(), room: inner.rooms.get(room).cloned() }
    }

    /// Leaves only what viewers may still be sent: no retracted comment.
    /// Every retract up to the head is known here, so a page below the head cannot show what was retracted before it.
    pub fn without_retracted(&self, room: &RoomId, records: &mut Vec<Arc<Record>>) {
        let inner = self.0.read().expect("no holder of this lock can panic");
        let Some(seen) = inner.rooms.get(room) else { return };
        records.retain(|record| !seen.retracted.hides(record));
    }

    /// Of each record whether it is a comment that nobody may be shown any more.
    pub fn retracted(&self, room: &RoomId, records: &[Arc<Record>]) -> Vec<bool> {
        let inner = self.0.read().expect("no holder of this lock can panic");
        let seen = inner.rooms.get(room);
        records.iter().map(|record| seen.is_some_and(|seen| seen.retracted.hides(record))).collect()
    }

    /// The log's state after a commit and the views of the rooms it touched.
    pub fn advance<'a>(&self, head: Position, epochs: &[EpochSpan], views: impl Iterator<Item = &'a RoomView>) {
        let mut inner = self.0.write().expect("no holder of this lock can panic");
        inner.head = head;
        if *inner.epochs != *epochs {
            inner.epochs = epochs.into();
        }
        for view in views {
            match inner.rooms.get_mut(&view.room) {
                Some(seen) => *seen = Seen::of(view),
                None => drop(inner.rooms.insert(view.room.clone(), Seen::of(view))),
            }
        }
    }
}
