//! The thread that writes checkpoints, so that neither the owner nor the log waits for them.
//!
//! A checkpoint is a bookmark: losing one costs time at the next start and nothing else, so a failure is told and the next
//! one tries again. It carries every room that changed since the last one that was *saved*: what a failed save held stays
//! pending and goes with the next.

use std::collections::BTreeMap;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use grandstand_core::names::RoomId;
use grandstand_core::owner::checkpoint::{LogCheckpoint, RoomCheckpoint};
use grandstand_store::catalog::{Catalog, Checkpoint};
use grandstand_wire::checkpoint;

use crate::link::checkpoints::Checkpoints;

pub enum Keep {
    Checkpoint(LogCheckpoint, Vec<RoomCheckpoint>),
}

/// Runs until the sender is gone; then everything sent has been tried.
pub fn run(mut catalog: Box<dyn Catalog>, work: &Receiver<Keep>, spent: &Checkpoints) {
    let mut pending: BTreeMap<RoomId, Vec<u8>> = BTreeMap::new();
    while let Ok(Keep::Checkpoint(log, rooms)) = work.recv() {
        let start = Instant::now();
        for room in &rooms {
            let mut bytes = Vec::new();
            checkpoint::encode_room(room, &mut bytes);
            pending.insert(room.view.room.clone(), bytes);
        }
        let mut bytes = Vec::new();
        checkpoint::encode_log(&log, &mut bytes);
        let whole = Checkpoint { at: log.position, log: bytes, rooms: pending.into_iter().collect() };
        pending = match catalog.save_checkpoint(&whole) {
            Ok(()) => {
                spent.add_saved(whole.rooms.len() as u64);
                BTreeMap::new()
            }
            Err(fault) => {
                tracing::warn!(%fault, "a checkpoint was not saved; the next start reads more of the log");
                whole.rooms.into_iter().collect()
            }
        };
        spent.save.add(start.elapsed());
    }
}
