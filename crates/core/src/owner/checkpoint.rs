//! The state of a log and its rooms at one place, from which recovery goes on.
//!
//! A room's checkpoint is its whole view, and the view knows how far it has read, so a record that both the checkpoint and
//! the tail hold is taken in once. Keys are not in it: they are read again from the last ten minutes of the log.

use crate::access::Access;
use crate::banners::Site;
use crate::ids::{EpochSpan, Position};
use crate::likes::Counted;
use crate::owner::Owner;
use crate::owner::view::RoomView;
use crate::time::Wall;

/// Where the log stood.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogCheckpoint {
    /// The newest record taken in.
    pub position: Position,
    /// Every epoch with its last valid seq, rising.
    pub epochs: Vec<EpochSpan>,
    /// Log time of the newest record.
    pub ts: Wall,
    /// Each sender of likes with its last frame that is counted, senders in order.
    pub senders: Vec<(u64, Counted)>,
    pub site: Site,
    pub access: Access,
}

/// One room at the log checkpoint's position.
#[derive(Clone, PartialEq, Debug)]
pub struct RoomCheckpoint {
    pub view: RoomView,
}

impl Owner {
    /// The log's place and every room changed since the last call. All of them are to be saved as one.
    pub fn take_checkpoint(&mut self) -> (LogCheckpoint, Vec<RoomCheckpoint>) {
        let senders = self.counting.senders();
        let log = LogCheckpoint {
            position: self.head(),
            epochs: self.epochs().to_vec(),
            ts: self.ts,
            senders,
            site: self.site.clone(),
            access: self.access.clone(),
        };
        let changed = self.order.values().filter_map(|&at| {
            let slot = &mut self.slots[at];
            let view = slot.view.as_ref().filter(|_| std::mem::take(&mut slot.changed))?;
            Some(RoomCheckpoint { view: view.clone() })
        });
        (log, changed.collect())
    }
}
