//! The thread that writes checkpoints, so that neither the owner nor the log waits for them.
//!
//! A checkpoint is a bookmark: losing one costs time at the next start and nothing else, so a failure is told and the next
//! one tries again. It carries every room that changed since the last one that was *saved*: what a failed save held stays
//! pending and goes with the next.
//!
//! After a user was erased a checkpoint is also to leave nothing of older ones behind: the file is written anew, and only then may
//! the log let go of what the user said.

use std::collections::BTreeMap;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use grandstand_core::ids::Position;
use grandstand_core::names::RoomId;
use grandstand_core::owner::checkpoint::{LogCheckpoint, RoomCheckpoint};
use grandstand_store::catalog::{Catalog, Checkpoint};
use grandstand_store::fault::Fault;
use grandstand_store::log::LogReader;
use grandstand_wire::chain::{LINK_BYTES, Link};
use grandstand_wire::checkpoint;

use crate::link::ShardStatus;

pub enum Keep {
    Checkpoint {
        log: LogCheckpoint,
        rooms: Vec<RoomCheckpoint>,
        /// Nothing of older ones may be left.
        scrub: bool,
    },
}

/// Runs until the sender is gone; then everything sent has been tried.
pub fn run(
    mut catalog: Box<dyn Catalog>,
    mut log_reader: Box<dyn LogReader>,
    work: &Receiver<Keep>,
    status: &ShardStatus,
) {
    let (spent, erasing) = (status.checkpoints(), status.erasing());
    let mut pending: BTreeMap<RoomId, Vec<u8>> = BTreeMap::new();
    while let Ok(Keep::Checkpoint { log, rooms, scrub }) = work.recv() {
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
                keep_link(&mut *catalog, &mut *log_reader, whole.at, status);
                if scrub {
                    match catalog.scrub() {
                        Ok(()) => erasing.cleaned(whole.at),
                        Err(fault) => {
                            tracing::warn!(%fault, "checkpoints still name who was erased; the next one tries again")
                        }
                    }
                }
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

/// Where a catalog keeps what it knows of the log's chain.
const CHAIN: &str = "chain";

/// The chain's link at the checkpoint, so that a log whose end was cut off can be told.
fn keep_link(catalog: &mut dyn Catalog, log: &mut dyn LogReader, at: Position, status: &ShardStatus) {
    match log.link(at) {
        Ok(Some(link)) => {
            let bytes = [&at.value().to_be_bytes()[..], &link].concat();
            match catalog.put_meta(CHAIN, &bytes) {
                Ok(()) => status.set_chained(at, link),
                Err(fault) => tracing::warn!(%fault, "the chain's link was not saved"),
            }
        }
        Ok(None) => {}
        Err(fault) => tracing::warn!(%fault, "the chain's link could not be read"),
    }
}

/// What the catalog knows of the log's chain.
pub fn kept_link(catalog: &mut dyn Catalog) -> Result<Option<(Position, Link)>, Fault> {
    let Some(bytes) = catalog.meta(CHAIN)? else { return Ok(None) };
    let (at, link) = bytes.split_at_checked(8).unwrap_or_default();
    let at = at.try_into().ok().map(u64::from_be_bytes).and_then(Position::new);
    let link: Option<Link> = <[u8; LINK_BYTES]>::try_from(link).ok();
    Ok(at.zip(link))
}
