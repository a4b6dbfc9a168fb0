//! The port to the catalog: checkpoints of the log's state, the rooms as last set, and small facts of the deployment.
//!
//! Everything about rooms in here can be made again from the log; a catalog is a bookmark, not a second truth. What it must
//! never do: give back a checkpoint that was only half saved, or one whose bytes changed.

use grandstand_core::ids::Position;
use grandstand_core::names::RoomId;

use crate::fault::{Fault, WriteFault};

pub trait Catalog: Send {
    /// Every room, by id.
    fn rooms(&mut self) -> Result<Vec<RoomRow>, Fault>;

    fn room(&mut self, room: &RoomId) -> Result<Option<RoomRow>, Fault>;

    /// Durable on `Ok`. Errors: as for every write; *refused* `OldVersion` when the version is not above the stored one.
    fn put_room(&mut self, row: &RoomRow) -> Result<(), WriteFault>;

    /// Replaces the log's part and the parts of the rooms given; the parts of other rooms stay. All or nothing, durable on `Ok`.
    /// *Refused* `Stale` when `at` is before the checkpoint already there.
    fn save_checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<(), WriteFault>;

    /// The newest whole checkpoint with every room's part, rooms by id. `None`: there is none.
    /// Errors: `Damaged` when one is there but cannot be trusted; the log can make it again.
    fn load_checkpoint(&mut self) -> Result<Option<Checkpoint>, Fault>;

    /// Drops every checkpoint, so that the next recovery reads the log from its start. Durable on `Ok`.
    fn forget_checkpoints(&mut self) -> Result<(), WriteFault>;

    /// Sees to it that nothing of what was replaced or dropped before is left in any byte of what the catalog is kept in. Errors: as
    /// for every write; what is there stays as it is.
    fn scrub(&mut self) -> Result<(), WriteFault>;

    fn meta(&mut self, key: &str) -> Result<Option<Vec<u8>>, Fault>;

    /// Durable on `Ok`.
    fn put_meta(&mut self, key: &str, value: &[u8]) -> Result<(), WriteFault>;
}

/// A room's settings as last set; `settings` is bytes of the caller's format.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RoomRow {
    pub room: RoomId,
    pub version: u64,
    pub settings: Vec<u8>,
}

/// State of a log's reducer up to `at`, in bytes of the caller's format.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checkpoint {
    pub at: Position,
    pub log: Vec<u8>,
    pub rooms: Vec<(RoomId, Vec<u8>)>,
}
