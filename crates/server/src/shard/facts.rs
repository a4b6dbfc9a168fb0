//! What reader threads may know of rooms without asking the owner: written by the owner after each commit, read by readers.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use grandstand_core::ids::{EpochSpan, Position};
use grandstand_core::names::RoomId;
use grandstand_core::owner::view::RoomView;
use grandstand_core::record::Record;

/// The rooms of one log as of `head`. The lock is held for look-ups only, never across I/O or encoding.
#[derive(Default)]
pub struct Facts(RwLock<Inner>);

#[derive(Default)]
struct Inner {
    head: Position,
    epochs: Arc<[EpochSpan]>,
    rooms: HashMap<RoomId, RoomView>,
}

/// One moment of the log for one room.
#[derive(Clone)]
pub struct Moment {
    pub head: Position,
    pub epochs: Arc<[EpochSpan]>,
    /// `None`: the log holds nothing of the room.
    pub view: Option<RoomView>,
}

impl Facts {
    pub fn head(&self) -> Position {
        self.0.read().expect("no holder of this lock can panic").head
    }

    pub fn moment(&self, room: &RoomId) -> Moment {
        let inner = self.0.read().expect("no holder of this lock can panic");
        Moment { head: inner.head, epochs: inner.epochs.clone(), view: inner.rooms.get(room).cloned() }
    }

    /// Leaves only what viewers may still be sent: no retracted comment.
    /// Every retract up to the head is known here, so a page below the head cannot show what was retracted before it.
    pub fn without_retracted(&self, room: &RoomId, records: &mut Vec<Arc<Record>>) {
        let inner = self.0.read().expect("no holder of this lock can panic");
        let Some(view) = inner.rooms.get(room) else { return };
        records.retain(|record| !view.hides(record));
    }

    /// Of each record whether it is a comment that nobody may be shown any more.
    pub fn retracted(&self, room: &RoomId, records: &[Arc<Record>]) -> Vec<bool> {
        let inner = self.0.read().expect("no holder of this lock can panic");
        let view = inner.rooms.get(room);
        records.iter().map(|record| view.is_some_and(|view| view.hides(record))).collect()
    }

    /// The log's state after a commit and the views of the rooms it touched.
    pub fn advance<'a>(&self, head: Position, epochs: &[EpochSpan], views: impl Iterator<Item = &'a RoomView>) {
        let mut inner = self.0.write().expect("no holder of this lock can panic");
        inner.head = head;
        if *inner.epochs != *epochs {
            inner.epochs = epochs.into();
        }
        for view in views {
            // A map that is shared is copied with its next change. Readers ask nothing of gifts.
            let view = view.without_gifts();
            drop(inner.rooms.insert(view.room.clone(), view));
        }
    }
}
