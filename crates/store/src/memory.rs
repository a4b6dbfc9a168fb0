//! A log and a catalog in memory: the simulator's store and the model the other implementations are compared with.
//!
//! A handle is a key to shared storage. Dropping the handle and opening another is a restart of the process on the same disk.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::{Arc, Mutex, MutexGuard};

use grandstand_core::ids::{EpochSpan, EventId, Position};
use grandstand_core::names::{RoomId, UserId};
use grandstand_core::record::{Body, Lane, Record};
use grandstand_core::time::Wall;
use grandstand_wire::chain::{BEGIN, Link};

use crate::catalog::{Catalog, Checkpoint, RoomRow};
use crate::fault::{Fault, Refusal, WriteFault};
use crate::log::{
    COMMENTS_COUNTED_MAX, Erasure, Log, LogReader, PAGE_ROWS_MAX, RETAIN_ROWS_MAX, Retained, Retention, RoomFacts,
    RoomPage, Step, Verified, check_batch, is_other,
};

/// A log that outlives its writers as long as one handle of any kind is left.
#[derive(Clone, Default)]
pub struct MemoryDisk(Arc<Mutex<Entries>>);

pub struct MemoryLog {
    disk: MemoryDisk,
}

struct MemoryReader {
    disk: MemoryDisk,
}

#[derive(Default)]
struct Entries {
    records: BTreeMap<u64, Entry>,
    rooms: HashMap<RoomId, Served>,
    bytes: u64,
    limit: Option<u64>,
    floor: Position,
    /// Epochs whose records may be deleted by now; the head's own is not among them.
    ended: Vec<EpochSpan>,
    /// Erases that are not done, by the id of their record, with the newest id they have come to.
    erasures: BTreeMap<u64, u64>,
}

struct Entry {
    record: Arc<Record>,
    bytes: u64,
}

/// Ids of what viewers of one room are sent, ascending.
#[derive(Default)]
struct Served {
    /// What viewers are sent, by lane and together.
    all: Vec<u64>,
    priority: Vec<u64>,
    comments: Vec<u64>,
    /// Every record of the room.
    every: Vec<u64>,
}

impl MemoryLog {
    pub fn new() -> MemoryLog {
        MemoryLog::open(&MemoryDisk::default())
    }

    /// A writer on storage that may hold records already.
    pub fn open(disk: &MemoryDisk) -> MemoryLog {
        MemoryLog { disk: disk.clone() }
    }
}

impl Default for MemoryLog {
    fn default() -> MemoryLog {
        MemoryLog::new()
    }
}

impl MemoryDisk {
    fn lock(&self) -> MutexGuard<'_, Entries> {
        // A holder panics only on a bug of the caller (a hole), before it changed anything.
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Log for MemoryLog {
    fn append(&mut self, records: &[Arc<Record>]) -> Result<(), WriteFault> {
        let mut entries = self.disk.lock();
        check_batch(entries.head(), records)?;
        let bytes: u64 = records.iter().map(|r| size_of_record(r)).sum();
        if entries.limit.is_some_and(|limit| entries.bytes + bytes > limit) {
            return Err(Refusal::NoSpace.into());
        }
        records.iter().for_each(|r| entries.push(r));
        Ok(())
    }

    fn head(&self) -> Position {
        self.disk.lock().head()
    }

    fn reader(&self) -> Result<Box<dyn LogReader>, Fault> {
        Ok(Box::new(MemoryReader { disk: self.disk.clone() }))
    }

    fn idle(&mut self) -> Result<(), WriteFault> {
        Ok(())
    }

    fn erase(&mut self, ids: &[EventId]) -> Result<usize, WriteFault> {
        assert!(ids.len() <= RETAIN_ROWS_MAX, "one commit erases at most {RETAIN_ROWS_MAX}");
        let mut entries = self.disk.lock();
        Ok(ids.iter().filter(|id| entries.erase(id.value())).count())
    }

    fn erasures(&self) -> Result<Vec<Erasure>, Fault> {
        let entries = self.disk.lock();
        let erasure = |id: &u64| Erasure { id: event(*id), user: entries.erases(*id) };
        Ok(entries.erasures.keys().map(erasure).collect())
    }

    fn erase_user(&mut self, id: EventId) -> Result<Step, WriteFault> {
        let mut entries = self.disk.lock();
        let id = id.value();
        let Some(&after) = entries.erasures.get(&id) else { return Ok(Step::Done) };
        let Some(user) = entries.erases(id) else {
            entries.erasures.remove(&id);
            return Ok(Step::Done);
        };
        let between = (Excluded(after), Excluded(id));
        let looked_at: Vec<u64> = entries.records.range(between).take(RETAIN_ROWS_MAX).map(|(id, _)| *id).collect();
        let n = looked_at.iter().filter(|id| entries.forget(**id, &user)).count();
        match looked_at.last() {
            Some(last) => drop(entries.erasures.insert(id, *last)),
            None => drop(entries.erase(id)),
        }
        Ok(Step::More(n))
    }

    fn retain(&mut self, rule: &Retention<'_>) -> Result<Retained, WriteFault> {
        let mut entries = self.disk.lock();
        let head = entries.head().value();
        let mut retained = Retained::default();
        let old: Vec<u64> = entries.records.range(..head).take(RETAIN_ROWS_MAX + 1).map(|(id, _)| *id).collect();
        for id in old.iter().take(RETAIN_ROWS_MAX) {
            if entries.records[id].record.ts >= rule.headers_before {
                break;
            }
            entries.delete(*id);
            retained.deleted += 1;
        }
        if retained.deleted == RETAIN_ROWS_MAX {
            return Ok(Retained { more: true, ..retained });
        }
        let mut due: Vec<u64> = Vec::new();
        for (id, entry) in &entries.records {
            let Some(room) = &entry.record.room else { continue };
            let erasable = entry.record.is_said() && !matches!(entry.record.body, Body::Erased);
            if erasable && entry.record.ts < (rule.bodies_before)(room) {
                due.push(*id);
            }
        }
        retained.more = due.len() > RETAIN_ROWS_MAX - retained.deleted;
        due.truncate(RETAIN_ROWS_MAX - retained.deleted);
        retained.erased = due.iter().filter(|id| entries.erase(**id)).count();
        Ok(retained)
    }

    fn size_bytes(&self) -> u64 {
        self.disk.lock().bytes
    }

    fn limit_bytes(&mut self, limit: Option<u64>) -> Result<(), Fault> {
        self.disk.lock().limit = limit;
        Ok(())
    }
}

impl LogReader for MemoryReader {
    fn scan(&mut self, after: Position, rows: usize) -> Result<Vec<Arc<Record>>, Fault> {
        let entries = self.disk.lock();
        let range = entries.records.range((Excluded(after.value()), Unbounded));
        Ok(range.take(rows.min(PAGE_ROWS_MAX)).map(|(_, e)| e.record.clone()).collect())
    }

    fn room_scan(&mut self, room: &RoomId, after: Position, rows: usize) -> Result<RoomPage, Fault> {
        let entries = self.disk.lock();
        let (head, rows) = (entries.head(), rows.min(PAGE_ROWS_MAX));
        let ids = entries.rooms.get(room).map_or(&[][..], |s| after_id(&s.every, after));
        let upto = if ids.len() > rows { ids[..rows].last().map_or(after, |id| at(*id)) } else { head.max(after) };
        let records = ids.iter().take(rows).map(|id| entries.records[id].record.clone()).collect();
        Ok(RoomPage { records, upto, head })
    }

    fn room_page(&mut self, room: &RoomId, after: Position, rows: usize) -> Result<RoomPage, Fault> {
        let entries = self.disk.lock();
        let (head, rows) = (entries.head(), rows.min(PAGE_ROWS_MAX));
        let ids = entries.rooms.get(room).map_or(&[][..], |s| after_id(&s.all, after));
        let upto = if ids.len() > rows { ids[..rows].last().map_or(after, |id| at(*id)) } else { head.max(after) };
        let records = entries.served(&ids[..rows.min(ids.len())]);
        Ok(RoomPage { records, upto, head })
    }

    fn room_page_back(&mut self, room: &RoomId, before: Position, rows: usize) -> Result<RoomPage, Fault> {
        let entries = self.disk.lock();
        let rows = rows.min(PAGE_ROWS_MAX);
        let ids = entries.rooms.get(room).map_or(&[][..], |s| before_id(&s.all, before));
        let from = ids.len().saturating_sub(rows);
        let upto = match from {
            0 => Position::START,
            _ => ids.get(from).map_or(before, |id| at(*id)),
        };
        Ok(RoomPage { records: entries.served(&ids[from..]), upto, head: entries.head() })
    }

    fn room_scan_back(&mut self, room: &RoomId, before: Position, rows: usize) -> Result<RoomPage, Fault> {
        let entries = self.disk.lock();
        let ids = entries.rooms.get(room).map_or(&[][..], |s| before_id(&s.every, before));
        Ok(entries.page_back(ids.iter().copied(), rows))
    }

    fn others_back(&mut self, room: Option<&RoomId>, before: Position, rows: usize) -> Result<RoomPage, Fault> {
        let entries = self.disk.lock();
        let of_room = |record: &Record| room.map_or(record.room.is_some(), |room| record.room.as_ref() == Some(room));
        let wanted = |record: &Record| is_other(record) && of_room(record);
        let ids = entries.records.range(..before.value()).filter(|(_, entry)| wanted(&entry.record)).map(|(id, _)| *id);
        Ok(entries.page_back(ids, rows))
    }

    fn room_facts(&mut self, room: &RoomId, after: Position, upto: Position) -> Result<RoomFacts, Fault> {
        let entries = self.disk.lock();
        let none = Served::default();
        let served = entries.rooms.get(room).unwrap_or(&none);
        let comments = between(&served.comments, after, upto);
        let priority = between(&served.priority, after, upto).first().map(|id| &entries.records[id].record);
        Ok(RoomFacts {
            head: entries.head(),
            floor: entries.floor,
            last_event: between(&served.all, Position::START, upto).last().map_or(Position::START, |id| at(*id)),
            first_priority: priority.map(|r| (r.event_id(), r.pseq.unwrap_or_default(), r.ts)),
            last_lost: between(&served.priority, after, upto)
                .iter()
                .rev()
                .find(|id| entries.records[*id].record.is_lost())
                .map(|id| event(*id)),
            first_comment: comments.first().map(|id| (event(*id), entries.records[id].record.ts)),
            n_comments: (comments.len() as u64).min(COMMENTS_COUNTED_MAX),
        })
    }

    fn newest_comments(
        &mut self,
        room: &RoomId,
        after: Position,
        upto: Position,
        rows: usize,
    ) -> Result<Vec<(EventId, Wall)>, Fault> {
        let entries = self.disk.lock();
        let comments = entries.rooms.get(room).map_or(&[][..], |s| between(&s.comments, after, upto));
        let from = comments.len().saturating_sub(rows.min(PAGE_ROWS_MAX));
        Ok(comments[from..].iter().map(|id| (event(*id), entries.records[id].record.ts)).collect())
    }

    fn before_ts(&mut self, ts: Wall) -> Result<Position, Fault> {
        let entries = self.disk.lock();
        let older = entries.records.iter().rev().find(|(_, e)| e.record.ts < ts);
        Ok(older.map_or(entries.floor, |(id, _)| at(*id)))
    }

    fn head(&mut self) -> Result<Position, Fault> {
        Ok(self.disk.lock().head())
    }

    fn floor(&mut self) -> Result<Position, Fault> {
        Ok(self.disk.lock().floor)
    }

    /// Nobody can get at what is in memory alone: no chain is kept of it, and all of it is from before one.
    fn verify(&mut self, from: Option<(Position, Link)>, rows: usize) -> Result<Verified, Fault> {
        let entries = self.disk.lock();
        let after = from.map_or(entries.floor, |(at, _)| at);
        let looked_at: Vec<u64> = entries
            .records
            .range((Excluded(after.value()), Unbounded))
            .take(rows.min(PAGE_ROWS_MAX))
            .map(|(id, _)| *id)
            .collect();
        let upto = looked_at.last().map_or(after, |id| at(*id));
        let more = upto < entries.head();
        Ok(Verified { upto: (upto, BEGIN), n: 0, n_before: looked_at.len() as u64, broken: None, more })
    }

    fn link(&mut self, _at: Position) -> Result<Option<Link>, Fault> {
        Ok(None)
    }

    fn epochs(&mut self) -> Result<Vec<EpochSpan>, Fault> {
        let entries = self.disk.lock();
        let head = entries.head().event_id().map(|id| EpochSpan { epoch: id.epoch(), last_seq: id.seq() });
        Ok(entries.ended.iter().copied().chain(head).collect())
    }
}

impl Entries {
    fn head(&self) -> Position {
        self.records.last_key_value().map_or(Position::START, |(id, _)| at(*id))
    }

    fn push(&mut self, record: &Arc<Record>) {
        if let Some(last) = self.head().event_id()
            && last.epoch() < record.epoch
        {
            self.ended.push(EpochSpan { epoch: last.epoch(), last_seq: last.seq() });
        }
        let (id, lane, bytes) = (record.event_id().value(), record.lane(), size_of_record(record));
        if let Some(room) = &record.room {
            let served = self.rooms.entry(room.clone()).or_default();
            served.every.push(id);
            if let Some(lane) = lane {
                served.all.push(id);
                if lane == Lane::Priority { &mut served.priority } else { &mut served.comments }.push(id);
            }
        }
        self.bytes += bytes;
        if record.erases().is_some() {
            self.erasures.insert(id, 0);
        }
        self.records.insert(id, Entry { record: record.clone(), bytes });
    }

    /// Whom the record under this id erases, while it says so.
    fn erases(&self, id: u64) -> Option<UserId> {
        self.records.get(&id)?.record.erases().cloned()
    }

    /// Takes out of a record what names the user. Whether it did.
    fn forget(&mut self, id: u64, user: &UserId) -> bool {
        let Some(entry) = self.records.get_mut(&id) else { return false };
        let Some(left) = entry.record.without(user) else { return false };
        entry.record = Arc::new(left);
        self.weigh(id);
        true
    }

    fn erase(&mut self, id: u64) -> bool {
        let Some(entry) = self.records.get_mut(&id) else { return false };
        if matches!(entry.record.body, Body::Erased | Body::EpochStart) {
            return false;
        }
        entry.record = Arc::new(Record { body: Body::Erased, ..(*entry.record).clone() });
        self.weigh(id);
        true
    }

    fn weigh(&mut self, id: u64) {
        if let Some(entry) = self.records.get_mut(&id) {
            let bytes = size_of_record(&entry.record);
            self.bytes = self.bytes - entry.bytes + bytes;
            entry.bytes = bytes;
        }
    }

    fn delete(&mut self, id: u64) {
        let entry = self.records.remove(&id).expect("the caller has just read it");
        self.bytes -= entry.bytes;
        self.floor = at(id);
        if let Some(served) = entry.record.room.as_ref().and_then(|room| self.rooms.get_mut(room)) {
            for ids in [&mut served.all, &mut served.priority, &mut served.comments, &mut served.every] {
                ids.retain(|i| *i != id);
            }
        }
    }

    /// The last `rows` of ids that ascend.
    fn page_back(&self, ids: impl DoubleEndedIterator<Item = u64>, rows: usize) -> RoomPage {
        let mut newest: Vec<u64> = ids.rev().take(rows.min(PAGE_ROWS_MAX) + 1).collect();
        let upto = match newest.len() > rows.min(PAGE_ROWS_MAX) {
            true => {
                newest.pop();
                newest.last().map_or(Position::START, |id| at(*id))
            }
            false => Position::START,
        };
        let records = newest.iter().rev().map(|id| self.records[id].record.clone()).collect();
        RoomPage { records, upto, head: self.head() }
    }

    fn served(&self, ids: &[u64]) -> Vec<Arc<Record>> {
        ids.iter().map(|id| self.records[id].record.clone()).filter(|r| r.lane().is_some()).collect()
    }
}

fn before_id(ids: &[u64], before: Position) -> &[u64] {
    &ids[..ids.partition_point(|id| *id < before.value())]
}

fn after_id(ids: &[u64], after: Position) -> &[u64] {
    &ids[ids.partition_point(|id| *id <= after.value())..]
}

/// The ids in (`after`, `upto`].
fn between(ids: &[u64], after: Position, upto: Position) -> &[u64] {
    let ids = &ids[..ids.partition_point(|id| *id <= upto.value())];
    after_id(ids, after)
}

fn at(id: u64) -> Position {
    Position::new(id).expect("an event id is a position")
}

fn event(id: u64) -> EventId {
    EventId::new(id).expect("ids in the log are event ids")
}

/// What a record weighs against the limit: near to its encoded size, and never less for a longer body.
fn size_of_record(record: &Record) -> u64 {
    let body = match &record.body {
        Body::Comment(c) => c.text.len() + c.display.len(),
        Body::Blocked(b) => b.comment.text.len() + b.comment.display.len(),
        Body::Held(h) => h.comment.text.len() + h.comment.display.len(),
        Body::HeldEnd(_) => 64,
        Body::Score(s) => 64 + s.data.as_ref().map_or(0, |d| d.len()),
        Body::Gift(g) => g.item.len() + g.display.len(),
        Body::Retract(r) => r.reason.len(),
        Body::Config(_) | Body::Room(_) => 128,
        Body::Audit(a) => a.what.len() + a.justification.len(),
        Body::Tally(t) => 256 * t.rooms.len() + 24 * t.senders.len(),
        Body::Banner(_) | Body::Combo(_) => 128,
        Body::Feed(f) => 128 + 64 * f.twins.len(),
        Body::EpochStart
        | Body::BannerEnd(_)
        | Body::Revoke(..)
        | Body::RevokeEnd(_)
        | Body::Outage(_)
        | Body::EraseUser(_)
        | Body::Ban(_)
        | Body::Unban(_)
        | Body::SiteBan(_)
        | Body::SiteUnban(_)
        | Body::Report(_)
        | Body::Wide(_)
        | Body::Narrow(_)
        | Body::Erased => 0,
    };
    128 + body as u64
}

/// A catalog's storage, shared by its handles.
#[derive(Clone, Default)]
pub struct MemoryCatalog(Arc<Mutex<Tables>>);

#[derive(Default)]
struct Tables {
    rooms: BTreeMap<RoomId, RoomRow>,
    checkpoint: Option<(Position, Vec<u8>)>,
    parts: BTreeMap<RoomId, Vec<u8>>,
    meta: BTreeMap<String, Vec<u8>>,
}

impl MemoryCatalog {
    pub fn new() -> MemoryCatalog {
        MemoryCatalog::default()
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().expect("no holder of the catalog's lock can panic")
    }
}

impl Catalog for MemoryCatalog {
    fn rooms(&mut self) -> Result<Vec<RoomRow>, Fault> {
        Ok(self.lock().rooms.values().cloned().collect())
    }

    fn room(&mut self, room: &RoomId) -> Result<Option<RoomRow>, Fault> {
        Ok(self.lock().rooms.get(room).cloned())
    }

    fn put_room(&mut self, row: &RoomRow) -> Result<(), WriteFault> {
        let mut tables = self.lock();
        if let Some(there) = tables.rooms.get(&row.room)
            && there.version >= row.version
        {
            return Err(Refusal::OldVersion { stored: there.version, given: row.version }.into());
        }
        tables.rooms.insert(row.room.clone(), row.clone());
        Ok(())
    }

    fn save_checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<(), WriteFault> {
        let mut tables = self.lock();
        if let Some((head, _)) = tables.checkpoint
            && checkpoint.at < head
        {
            return Err(Refusal::Stale { head, first: checkpoint.at }.into());
        }
        tables.checkpoint = Some((checkpoint.at, checkpoint.log.clone()));
        tables.parts.extend(checkpoint.rooms.iter().cloned());
        Ok(())
    }

    fn load_checkpoint(&mut self) -> Result<Option<Checkpoint>, Fault> {
        let tables = self.lock();
        let rooms = || tables.parts.iter().map(|(room, part)| (room.clone(), part.clone())).collect();
        Ok(tables.checkpoint.as_ref().map(|(at, log)| Checkpoint { at: *at, log: log.clone(), rooms: rooms() }))
    }

    fn forget_checkpoints(&mut self) -> Result<(), WriteFault> {
        let mut tables = self.lock();
        tables.checkpoint = None;
        tables.parts.clear();
        Ok(())
    }

    fn scrub(&mut self) -> Result<(), WriteFault> {
        Ok(())
    }

    fn meta(&mut self, key: &str) -> Result<Option<Vec<u8>>, Fault> {
        Ok(self.lock().meta.get(key).cloned())
    }

    fn put_meta(&mut self, key: &str, value: &[u8]) -> Result<(), WriteFault> {
        self.lock().meta.insert(key.into(), value.into());
        Ok(())
    }
}
