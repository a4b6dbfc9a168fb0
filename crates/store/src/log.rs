//! The port to one ordered log: append in batches, read in pages.
//!
//! A log is like a ledger with one pen. What it must never do: return `Ok` for what a power cut could still take (unless
//! the operator chose so, [`crate::sqlite::Durability`]), show a reader what is not durable, or accept an id that is not the next.

use std::sync::Arc;
use std::time::Duration;

use grandstand_core::ids::{EpochSpan, EventId, Position, Pseq, Seq};
use grandstand_core::names::{RoomId, UserId};
use grandstand_core::record::{Body, Record};
use grandstand_core::time::Wall;
use grandstand_wire::chain::Link;

use crate::fault::{Fault, Refusal, WriteFault};

/// Most records one page holds, and the longest one page may keep a read open.
pub const PAGE_ROWS_MAX: usize = 1_000;
pub const PAGE_TIME_MAX: Duration = Duration::from_millis(50);
/// Most rows one commit of [`Log::retain`] or [`Log::erase`] changes, so that an append never waits long behind it.
pub const RETAIN_ROWS_MAX: usize = 1_000;
/// [`RoomFacts::n_comments`] is exact up to here. A count is one page's worth of time at most.
pub const COMMENTS_COUNTED_MAX: u64 = 250_000;

/// The writing side. One per log; whoever holds it is the one writer.
pub trait Log: Send {
    /// Writes one batch, all or nothing (see *unknown* for the one exception).
    ///
    /// Shape: the first record is the one after [`Log::head`] (next seq, or an EpochStart of a higher epoch with seq 0), each
    /// other follows the one before it in the same way. An empty batch is `Ok` and writes nothing.
    /// Durable on `Ok`: every record, by the setting of the log (`fsync`: also after a power cut), and every reader sees it.
    /// Not to be assumed: that anything of the batch is seen before `Ok`.
    /// Errors: *refused* `NoSpace`, or `Stale` when the first id is not above the head. *Failed*: nothing is written. *Unknown*:
    /// any prefix of the batch, none and all of it included, may be durable; no later append of this handle succeeds.
    /// Panics when ids leave a hole: that is a bug of the caller, and the log must not contain it.
    fn append(&mut self, records: &[Arc<Record>]) -> Result<(), WriteFault>;

    /// Id of the last durable record, or START.
    fn head(&self) -> Position;

    /// A reader of its own, for another thread.
    fn reader(&self) -> Result<Box<dyn LogReader>, Fault>;

    /// Told when nothing waits: time for upkeep that would delay an append. Errors as for `append`; space that is missing
    /// for upkeep is not an error.
    fn idle(&mut self) -> Result<(), WriteFault>;

    /// Takes body and salt from these records (at most [`RETAIN_ROWS_MAX`]); headers and checksums stay. Ids that are not
    /// there, erased already or an EpochStart's are passed over. Returns how many were erased, durably, in one commit. Errors as for `append`.
    fn erase(&mut self, ids: &[EventId]) -> Result<usize, WriteFault>;

    /// Users whose erase stands in the log ([`Body::EraseUser`]) and is not done, oldest first.
    fn erasures(&self) -> Result<Vec<Erasure>, Fault>;

    /// One step of the erase that this record asks for: of every record before it nothing is left that names the user, then of the
    /// record itself, then in no unused byte of what the log is kept in. At most [`RETAIN_ROWS_MAX`] rows change in one commit.
    /// Durable: what a step did; a crash loses none of it but work. Call again until `Done`; of an erase that is not there it is at
    /// once. The caller sees to it that no recovery needs what is erased: a checkpoint that stands at the record or after it.
    /// Errors: as for `append`.
    fn erase_user(&mut self, id: EventId) -> Result<Step, WriteFault>;

    /// One step of retention, at most [`RETAIN_ROWS_MAX`] rows in one commit. Call again while `more`. The head's record is
    /// never deleted, so that the log never forgets where it stands. Errors as for `append`.
    fn retain(&mut self, rule: &Retention<'_>) -> Result<Retained, WriteFault>;

    /// Bytes the log occupies, free pages inside it included.
    fn size_bytes(&self) -> u64;

    /// Appends that would make the log larger than this are refused with `NoSpace`; `None` lifts the limit. Takes effect with
    /// the next append; what is there already stays.
    fn limit_bytes(&mut self, limit: Option<u64>) -> Result<(), Fault>;
}

/// The reading side. Every call is one page: it opens a view, answers and lets go. A reader may be behind the writer (a
/// replica); `head` of an answer tells what the answer covers. It is never ahead of what is durable.
pub trait LogReader: Send {
    /// Every record after `after`, in id order, at most `rows` (and [`PAGE_ROWS_MAX`]). Empty: nothing after it.
    /// Errors: `Damaged` when a record does not match its checksum.
    fn scan(&mut self, after: Position, rows: usize) -> Result<Vec<Arc<Record>>, Fault>;

    /// Every record of one room after `after`, oldest first: those that no viewer is sent and erased ones too. The cost is the
    /// room's part of the log, whatever else the log holds. Errors: as of [`LogReader::scan`].
    fn room_scan(&mut self, room: &RoomId, after: Position, rows: usize) -> Result<RoomPage, Fault>;

    /// The records of one room that viewers are sent ([`Record::lane`] is set), after `after`, oldest first.
    fn room_page(&mut self, room: &RoomId, after: Position, rows: usize) -> Result<RoomPage, Fault>;

    /// The newest records of one room that viewers are sent and that are before `before`, oldest first. `upto` is the position
    /// below which to go on, or START when the room has nothing older.
    fn room_page_back(&mut self, room: &RoomId, before: Position, rows: usize) -> Result<RoomPage, Fault>;

    /// The newest records of one room before `before`, oldest first: all that [`LogReader::room_scan`] gives. `upto`: as of
    /// [`LogReader::room_page_back`].
    fn room_scan_back(&mut self, room: &RoomId, before: Position, rows: usize) -> Result<RoomPage, Fault>;

    /// The newest records before `before` that belong to a room and that no viewer is sent, of one room or of all, oldest
    /// first, erased ones left out: operators' changes are among them. `upto`: as of [`LogReader::room_page_back`]; of all rooms a page may hold
    /// nothing and still go on, because it ends with its time.
    fn others_back(&mut self, room: Option<&RoomId>, before: Position, rows: usize) -> Result<RoomPage, Fault>;

    /// What a cursor at `after` needs to be answered, all read in one view. Records past `upto` are as if not there.
    fn room_facts(&mut self, room: &RoomId, after: Position, upto: Position) -> Result<RoomFacts, Fault>;

    /// Id and log time of the newest comments of one room after `after` and up to `upto`, oldest first, at most `rows`.
    fn newest_comments(
        &mut self,
        room: &RoomId,
        after: Position,
        upto: Position,
        rows: usize,
    ) -> Result<Vec<(EventId, Wall)>, Fault>;

    /// Position such that everything after it has `ts` or later, and everything up to it is older.
    fn before_ts(&mut self, ts: Wall) -> Result<Position, Fault>;

    /// Id of the last record this reader sees, or START.
    fn head(&mut self) -> Result<Position, Fault>;

    /// The log is complete after this position; START when nothing was ever deleted.
    fn floor(&mut self) -> Result<Position, Fault>;

    /// Holds the records after `from` against the chain, at most `rows` and [`PAGE_TIME_MAX`]. `from`: where an earlier look came to;
    /// `None`: from the log's floor. Errors: a fault that is no damage of a record; damage is an answer.
    fn verify(&mut self, from: Option<(Position, Link)>, rows: usize) -> Result<Verified, Fault>;

    /// The link of the record at this position; `None`: there is no such record, or it has none.
    fn link(&mut self, at: Position) -> Result<Option<Link>, Fault>;

    /// Every epoch with its last seq, oldest first; the last one is the epoch of the head.
    fn epochs(&mut self) -> Result<Vec<EpochSpan>, Fault>;
}

#[derive(Clone, PartialEq, Debug)]
pub struct RoomPage {
    pub records: Vec<Arc<Record>>,
    /// Forward: the page holds everything of the room after the asked position up to here; equal to `head` when the room has
    /// no more. Backward: see [`LogReader::room_page_back`].
    pub upto: Position,
    pub head: Position,
}

/// How far the chain of a log holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verified {
    /// The newest record looked at that fits, and its link.
    pub upto: (Position, Link),
    /// Records that fit.
    pub n: u64,
    /// Records from before there was a chain, at its begin alone.
    pub n_before: u64,
    /// The first that does not fit, and why.
    pub broken: Option<(EventId, String)>,
    pub more: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RoomFacts {
    pub head: Position,
    /// The log is complete after this.
    pub floor: Position,
    /// The room's last record that viewers are sent, or START.
    pub last_event: Position,
    /// The first priority record after the position (erased ones included: something of value was there).
    pub first_priority: Option<(EventId, Pseq, Wall)>,
    /// The last priority record after the position that is erased: whoever lacks it can be given it by nobody.
    pub last_lost: Option<EventId>,
    pub first_comment: Option<(EventId, Wall)>,
    /// Comments after the position; exact up to [`COMMENTS_COUNTED_MAX`], which also stands for "or more".
    pub n_comments: u64,
}

/// A user who is being erased.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Erasure {
    /// The record that says so.
    pub id: EventId,
    /// `None`: no record names the user any more, and unused bytes may.
    pub user: Option<UserId>,
}

/// What a step came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Call again, after so many records were erased.
    More(usize),
    /// Something is in the way: call again in a while.
    Later,
    Done,
}

/// What is too old. Times are log time.
pub struct Retention<'a> {
    /// Bodies of a room's events older than this are erased.
    pub bodies_before: &'a dyn Fn(&RoomId) -> Wall,
    /// Records older than this are deleted, header and all.
    pub headers_before: Wall,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Retained {
    pub erased: usize,
    pub deleted: usize,
    /// There is more to do now.
    pub more: bool,
}

/// Whether it is among what [`LogReader::others_back`] gives of its room.
pub(crate) fn is_other(record: &Record) -> bool {
    record.lane().is_none() && !matches!(record.body, Body::Erased)
}

/// Whether `record` may stand directly after `head`: the next seq of its epoch, or the start of a higher one.
pub(crate) fn follows(head: Position, record: &Record) -> bool {
    let starts_epoch = record.seq == Seq::START && matches!(record.body, Body::EpochStart);
    match head.event_id() {
        None => starts_epoch,
        Some(last) if record.epoch == last.epoch() => last.seq().next() == Some(record.seq),
        Some(last) => record.epoch > last.epoch() && starts_epoch,
    }
}

/// The boundary check of every append: stale is an answer, a hole is a bug.
pub(crate) fn check_batch(head: Position, records: &[Arc<Record>]) -> Result<(), Refusal> {
    let Some(first) = records.first() else { return Ok(()) };
    let first_id = first.event_id().position();
    if first_id <= head {
        return Err(Refusal::Stale { head, first: first_id });
    }
    let mut last = head;
    for record in records {
        assert!(follows(last, record), "record {:?} leaves a hole after {last:?}", record.event_id());
        last = record.event_id().position();
    }
    Ok(())
}
