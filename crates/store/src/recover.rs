//! Brings an owner back to where its log stands: newest good checkpoint, keys of the ten minutes before it, tail.
//!
//! Like finding one's place in a book: the bookmark saves time, the book decides. A checkpoint that cannot be read costs a
//! longer read. What it must never do: go on from less than was acknowledged without saying so. A log that ends before its own
//! checkpoint lost records; a log whose beginning was deleted cannot be read in place of a checkpoint.

use std::sync::{Arc, mpsc};

use grandstand_core::dedupe;
use grandstand_core::ids::Position;
use grandstand_core::owner::Owner;
use grandstand_core::owner::checkpoint::{LogCheckpoint, RoomCheckpoint};
use grandstand_core::reader::Reading;
use grandstand_core::record::Record;
use grandstand_wire::checkpoint;

use crate::catalog::{Catalog, Checkpoint};
use crate::fault::Fault;
use crate::log::{LogReader, PAGE_ROWS_MAX};

/// Pages decoded and not yet taken in: a megabyte or two.
const PAGES_AHEAD: usize = 4;

/// What to do about a log that ends before its checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Behind {
    /// A log that is synced at every commit cannot be: refuse to start.
    Refuse,
    /// One that is not can be, after a power cut: go on from the log.
    ReadLog,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Recovered {
    /// Position of the checkpoint used; START when the whole log was read.
    pub checkpoint: Position,
    pub head: Position,
    /// The highest position known to have existed: [`crate::sqlite::next_epoch`] goes on above it, so that no id comes twice.
    pub highest: Position,
    pub n_keys: u64,
    pub n_tail: u64,
    /// Records of older epochs behind a take-over, and repeats: void, and harmless.
    pub n_void: u64,
    /// Holes: something is missing that was sequenced. To be looked at by a person.
    pub n_holes: u64,
    /// Why a checkpoint that was there was not used.
    pub passed_over: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum RecoverFault {
    #[error("the log ends at {head}, its checkpoint says it reached {checkpoint}: acknowledged records are missing")]
    LogBehind { head: Position, checkpoint: Position },
    #[error("the log begins after {floor} and there is no checkpoint to go on from{}", because(why))]
    NoCheckpoint { floor: Position, why: Option<String> },
    #[error("reading the log or the catalog: {0}")]
    Read(#[from] Fault),
}

/// Restores `owner`, which must be new, and replays what the log holds. The caller then starts the next epoch.
///
/// Errors: `LogBehind` (with [`Behind::Refuse`]), `NoCheckpoint`, and `Read`, which names file and id when a record is damaged.
pub fn recover(
    owner: &mut Owner,
    log: &mut dyn LogReader,
    catalog: &mut dyn Catalog,
    behind: Behind,
) -> Result<Recovered, RecoverFault> {
    let head = log.head()?;
    let mut recovered = Recovered { head, highest: head, ..Recovered::default() };
    let saved = match load(catalog) {
        Ok(saved) => saved,
        Err(why) => {
            recovered.passed_over = Some(why);
            None
        }
    };
    if let Some(saved) = saved {
        let at = saved.log.position;
        recovered.highest = head.max(at);
        if at > head && behind == Behind::Refuse {
            return Err(RecoverFault::LogBehind { head, checkpoint: at });
        }
        if at > head {
            recovered.passed_over = Some(format!("it is at {at}, ahead of the log"));
        } else if !holds(log, at)? {
            recovered.passed_over = Some(format!("the log has no record {at}"));
        } else {
            recovered.checkpoint = at;
            recovered.n_keys = restore(owner, log, saved)?;
        }
    }
    let floor = log.floor()?;
    if recovered.checkpoint == Position::START && floor > Position::START {
        return Err(RecoverFault::NoCheckpoint { floor, why: recovered.passed_over });
    }
    let (n_tail, n_void, n_holes) = (&mut recovered.n_tail, &mut recovered.n_void, &mut recovered.n_holes);
    scan(log, recovered.checkpoint, head, |record| match owner.replay(record) {
        Reading::Valid => *n_tail += 1,
        Reading::Void | Reading::Duplicate => *n_void += 1,
        Reading::Hole => *n_holes += 1,
    })?;
    Ok(recovered)
}

/// The bytes of a checkpoint, ready to be saved.
pub fn encode(log: &LogCheckpoint, rooms: &[RoomCheckpoint]) -> Checkpoint {
    let mut bytes = Vec::new();
    checkpoint::encode_log(log, &mut bytes);
    let rooms = rooms.iter().map(|room| {
        let mut bytes = Vec::new();
        checkpoint::encode_room(room, &mut bytes);
        (room.view.room.clone(), bytes)
    });
    Checkpoint { at: log.position, log: bytes, rooms: rooms.collect() }
}

struct Saved {
    log: LogCheckpoint,
    rooms: Vec<RoomCheckpoint>,
}

/// Errors: why the checkpoint that is there cannot be used.
fn load(catalog: &mut dyn Catalog) -> Result<Option<Saved>, String> {
    let Some(saved) = catalog.load_checkpoint().map_err(|fault| fault.to_string())? else { return Ok(None) };
    let log = checkpoint::decode_log(&saved.log).map_err(|fault| fault.to_string())?;
    let rooms = saved.rooms.iter().map(|(room, bytes)| match checkpoint::decode_room(bytes) {
        Ok(part) if part.view.room == *room => Ok(part),
        Ok(_) => Err(format!("{room}'s part is another room's")),
        Err(fault) => Err(format!("{room}: {fault}")),
    });
    Ok(Some(Saved { log, rooms: rooms.collect::<Result<_, _>>()? }))
}

/// Whether the log has the record a checkpoint stands at, so that it is this log's checkpoint and not another's.
fn holds(log: &mut dyn LogReader, at: Position) -> Result<bool, Fault> {
    if at <= log.floor()? {
        return Ok(true);
    }
    let before = Position::new(at.value() - 1).expect("one below a position is one");
    Ok(log.scan(before, 1)?.first().is_some_and(|record| record.event_id().position() == at))
}

/// Returns how many records were read for their keys.
fn restore(owner: &mut Owner, log: &mut dyn LogReader, saved: Saved) -> Result<u64, Fault> {
    let (at, ts) = (saved.log.position, saved.log.ts);
    saved.rooms.into_iter().for_each(|room| owner.restore_room(room));
    owner.restore_log(saved.log);
    let mut n_keys = 0;
    let from = log.before_ts(ts - dedupe::WINDOW)?;
    scan(log, from, at, |record| {
        n_keys += 1;
        owner.replay_keys(record);
    })?;
    Ok(n_keys)
}

/// Every record after `after` up to `upto`, in order. Beyond one page, the next ones are read and decoded on a thread of their own
/// while the owner takes in the last: both are half of the work.
fn scan(
    log: &mut dyn LogReader,
    after: Position,
    upto: Position,
    mut each: impl FnMut(&Arc<Record>),
) -> Result<(), Fault> {
    let mut take = |page: &[Arc<Record>]| {
        page.iter().filter(|record| record.event_id().position() <= upto).for_each(&mut each);
        page.last().map(|last| last.event_id().position()).filter(|at| *at < upto)
    };
    if after >= upto {
        return Ok(());
    }
    let Some(mut at) = take(&log.scan(after, PAGE_ROWS_MAX)?) else { return Ok(()) };
    std::thread::scope(|scope| {
        let (pages, read) = mpsc::sync_channel(PAGES_AHEAD);
        scope.spawn(move || {
            loop {
                let page = log.scan(at, PAGE_ROWS_MAX);
                let next = page.as_ref().ok().and_then(|p| p.last()).map(|last| last.event_id().position());
                // The other side hangs up when it has met a fault.
                if pages.send(page).is_err() {
                    return;
                }
                match next.filter(|next| *next < upto) {
                    Some(next) => at = next,
                    None => return,
                }
            }
        });
        read.iter().try_for_each(|page| {
            take(&page?);
            Ok(())
        })
    })
}

fn because(why: &Option<String>) -> String {
    why.as_ref().map_or(String::new(), |why| format!(" ({why})"))
}
