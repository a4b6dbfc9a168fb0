//! One log in one SQLite file: a row a record, keyed by its event id.
//!
//! Beside the encoded record a row has what readers select by: the time, the room as a number of the `rooms` table, and the lane
//! (0 priority, 1 comment, NULL for what no viewer is sent). A room's page is a walk over two partial indexes, all of a room one
//! over three; what a cursor needs is answered from them without touching a record.
//!
//! The awkward case is a full disk: a commit that did not fit leaves no trace, and the same batch is written when there is room.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use grandstand_core::ids::{Epoch, EpochSpan, EventId, Position, Seq};
use grandstand_core::names::RoomId;
use grandstand_core::record::{Lane, Record};
use grandstand_core::time::Wall;
use grandstand_wire::chain::{Chain, Link};
use grandstand_wire::record;
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, params};

mod chained;
mod erase;

use super::{
    DataDir, Durability, Stage, connect, file_bytes, io_fault, open, set_schema, sql_fault, wal, wal_path, write_fault,
};
use crate::fault::{Fault, Refusal, WriteFault};
use crate::log::{
    COMMENTS_COUNTED_MAX, Erasure, Log, LogReader, PAGE_ROWS_MAX, PAGE_TIME_MAX, RETAIN_ROWS_MAX, Retained, Retention,
    RoomFacts, RoomPage, Step, Verified, check_batch, is_other,
};

const SCHEMA: &str = "
    CREATE TABLE log (
        id INTEGER PRIMARY KEY,
        ts INTEGER NOT NULL,
        room INTEGER,
        lane INTEGER,
        bytes BLOB NOT NULL
    ) STRICT;
    CREATE INDEX log_priority ON log (room) WHERE lane = 0;
    CREATE INDEX log_comments ON log (room) WHERE lane = 1;
    CREATE TABLE rooms (n INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, erased INTEGER NOT NULL DEFAULT 0) STRICT;
    CREATE TABLE ended_epochs (epoch INTEGER PRIMARY KEY, last_seq INTEGER NOT NULL) STRICT;
    CREATE TABLE state (one INTEGER PRIMARY KEY CHECK (one = 1), floor INTEGER NOT NULL) STRICT;
    INSERT INTO state VALUES (1, 0);
";
const VERSION: i64 = 1;
/// For the rest of a room. Made where it is missing, so that a log from before there was one has it too; a comment's or a
/// score event's append does not touch it.
const OTHERS: &str = "CREATE INDEX IF NOT EXISTS log_others ON log (room) WHERE lane IS NULL AND room IS NOT NULL";

/// The WAL is copied into the database past this size: small enough that the copy delays one batch by milliseconds.
const WAL_BYTES_CHECKPOINT: u64 = 8 << 20;
/// After a copy that failed for want of space or because a reader held the WAL.
const CHECKPOINT_AGAIN: Duration = Duration::from_secs(1);
/// Rooms one step of retention looks at.
const RETAIN_ROOMS: usize = 256;

pub struct SqliteLog {
    conn: Connection,
    file: PathBuf,
    durability: Durability,
    head: Position,
    rooms: HashMap<RoomId, i64>,
    /// Encoded records of the batch being written.
    scratch: Vec<u8>,
    poisoned: bool,
    synced: Instant,
    unsynced: bool,
    checkpoint_not_before: Option<Instant>,
    /// Room at which the next step of retention goes on.
    retain_next: i64,
    pages: erase::Pages,
    chain: Arc<Chain>,
    /// Of the head.
    link: Link,
    _lock: Arc<File>,
}

/// What ends a write transaction early.
enum Halt {
    Sql(rusqlite::Error),
    Refused(Refusal),
    Fault(Fault),
}

impl From<rusqlite::Error> for Halt {
    fn from(e: rusqlite::Error) -> Halt {
        Halt::Sql(e)
    }
}

impl SqliteLog {
    /// Opens the log of a data folder, or creates it.
    /// Errors: `Damaged`, naming the file, when its WAL is damaged before its end or the file is not such a log.
    pub fn open(dir: &DataDir, durability: Durability) -> Result<SqliteLog, Fault> {
        let file = dir.log_file();
        if durability == Durability::Fsync {
            wal::inspect(&wal_path(&file))?;
        }
        let conn = open(&file, durability)?;
        set_schema(&conn, &file, VERSION, SCHEMA)?;
        let setup = || -> rusqlite::Result<i64> {
            conn.pragma_update(None, "wal_autocheckpoint", 0)?;
            conn.execute(OTHERS, [])?;
            conn.execute(erase::ERASURES, [])?;
            chained::prepare(&conn)?;
            conn.query_row(HEAD, [], |row| row.get(0))
        };
        let head = setup().map_err(|e| sql_fault(&file, "reading its head", e))?;
        let link = chained::last(&conn).map_err(|e| sql_fault(&file, "reading its head", e))?;
        let key = dir.chain_key().map_err(|e| io_fault(&file, "reading its chain's key", io::Error::other(e)))?;
        Ok(SqliteLog {
            head: position(&file, head)?,
            conn,
            file,
            durability,
            rooms: HashMap::new(),
            scratch: Vec::new(),
            poisoned: false,
            synced: Instant::now(),
            unsynced: false,
            checkpoint_not_before: None,
            retain_next: 0,
            pages: erase::Pages::new(),
            chain: Arc::new(Chain::new(&key)),
            link,
            _lock: dir.lock(),
        })
    }

    /// One write transaction around `body`; what it returns is durable when this returns it.
    fn commit<T>(
        &mut self,
        doing: &'static str,
        body: impl FnOnce(&mut SqliteLog) -> Result<T, Halt>,
    ) -> Result<T, WriteFault> {
        if self.poisoned {
            return Err(WriteFault::Failed(Fault::Poisoned { file: self.file.clone() }));
        }
        let begun = self.conn.prepare_cached("BEGIN IMMEDIATE").and_then(|mut s| s.execute([]));
        let done = match begun {
            Err(e) => Err(Halt::Sql(e)),
            Ok(_) => body(self),
        };
        let fault = match done {
            Ok(value) => match self.conn.prepare_cached("COMMIT").and_then(|mut s| s.execute([])) {
                Ok(_) => return Ok(value),
                Err(e) => write_fault(&self.file, doing, Stage::Commit, e),
            },
            Err(Halt::Sql(e)) => write_fault(&self.file, doing, Stage::Before, e),
            Err(Halt::Refused(refusal)) => refusal.into(),
            Err(Halt::Fault(fault)) => WriteFault::Unknown(fault),
        };
        let rolled_back = self.conn.is_autocommit() || self.conn.execute_batch("ROLLBACK").is_ok();
        let fault = match fault {
            WriteFault::Failed(cause) if !rolled_back => WriteFault::Unknown(cause),
            other => other,
        };
        self.poisoned = matches!(fault, WriteFault::Unknown(_)) || !rolled_back;
        Err(fault)
    }

    fn write_batch(&mut self, records: &[Arc<Record>]) -> Result<(), WriteFault> {
        let mut new_rooms: Vec<RoomId> = Vec::new();
        let wrote = self.commit("appending", |log| {
            // Read again inside the transaction: another writer on the same file would have moved it.
            let head: i64 = log.conn.prepare_cached(HEAD)?.query_row([], |row| row.get(0))?;
            let head = position(&log.file, head).map_err(Halt::Fault)?;
            check_batch(head, records).map_err(Halt::Refused)?;
            let mut insert = log
                .conn
                .prepare_cached("INSERT INTO log (id, ts, room, lane, bytes, link) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
            let (mut last, mut link) = (head, log.link);
            for record in records {
                if let Some(before) = last.event_id().filter(|id| id.epoch() < record.epoch) {
                    log.conn
                        .prepare_cached("INSERT INTO ended_epochs (epoch, last_seq) VALUES (?1, ?2)")?
                        .execute(params![before.epoch().value(), before.seq().value() as i64])?;
                }
                let room = match &record.room {
                    None => None,
                    Some(room) => Some(match log.rooms.get(room) {
                        Some(n) => *n,
                        None => {
                            let n = number_room(&log.conn, room)?;
                            log.rooms.insert(room.clone(), n);
                            new_rooms.push(room.clone());
                            n
                        }
                    }),
                };
                log.scratch.clear();
                record::encode(record, &mut log.scratch);
                let lane = record.lane().map(lane_number);
                link = log.chain.next_own(&link, &log.scratch);
                insert.execute(params![id_number(record), record.ts.0 as i64, room, lane, log.scratch, link])?;
                if record.erases().is_some() {
                    log.conn.prepare_cached(erase::BEGIN)?.execute([id_number(record)])?;
                }
                last = record.event_id().position();
            }
            Ok((last, link))
        });
        match wrote {
            Ok((last, link)) => {
                (self.head, self.link) = (last, link);
                Ok(())
            }
            Err(fault) => {
                // Their numbers went with the transaction.
                for room in &new_rooms {
                    self.rooms.remove(room);
                }
                Err(fault)
            }
        }
    }

    /// What `interval` promises: at most so long unsynced while appends or idle times come.
    fn sync_if_due(&mut self) -> Result<(), WriteFault> {
        let Durability::Interval(interval) = self.durability else { return Ok(()) };
        if !self.unsynced || self.synced.elapsed() < interval {
            return Ok(());
        }
        let synced = File::open(wal_path(&self.file)).and_then(|wal| wal.sync_data());
        if let Err(e) = synced {
            self.poisoned = true;
            return Err(WriteFault::Unknown(io_fault(&self.file, "syncing its WAL", e)));
        }
        (self.synced, self.unsynced) = (Instant::now(), false);
        Ok(())
    }

    /// Copies the WAL into the database and empties it. Too little space or a reader in the way is tried again later; what was
    /// acknowledged stays in the WAL meanwhile. Any other error may have lost pages in the system's cache: the process has to end.
    fn checkpoint(&mut self) -> Result<(), WriteFault> {
        let done: rusqlite::Result<i64> = self
            .conn
            .prepare_cached("PRAGMA wal_checkpoint(TRUNCATE)")
            .and_then(|mut s| s.query_row([], |row| row.get(0)));
        let fault = match done {
            Ok(0) => {
                self.checkpoint_not_before = None;
                return Ok(());
            }
            Ok(_) => None,
            Err(e) => Some(write_fault(&self.file, "copying its WAL", Stage::Commit, e)),
        };
        self.checkpoint_not_before = Some(Instant::now() + CHECKPOINT_AGAIN);
        match fault {
            None | Some(WriteFault::Refused(_)) => Ok(()),
            Some(fault) => {
                self.poisoned = true;
                Err(fault)
            }
        }
    }

    fn may_checkpoint(&self) -> bool {
        self.checkpoint_not_before.is_none_or(|t| Instant::now() >= t)
    }

    fn wal_bytes(&self) -> u64 {
        file_bytes(&wal_path(&self.file))
    }

    fn row(&self, id: i64) -> Result<Option<(i64, Vec<u8>)>, Halt> {
        let mut row = self.conn.prepare_cached("SELECT id, bytes FROM log WHERE id = ?1")?;
        Ok(row.query_row([id], |row| Ok((row.get(0)?, row.get(1)?))).optional()?)
    }

    fn erase_rows(&self, rows: impl IntoIterator<Item = (i64, Vec<u8>)>) -> Result<usize, Halt> {
        self.rewrite(rows, |bytes| record::erase(bytes).map(Some))
    }

    /// Puts what is left of each row in its place; `None`: all of it. How many have less than before.
    fn rewrite(
        &self,
        rows: impl IntoIterator<Item = (i64, Vec<u8>)>,
        left: impl Fn(&[u8]) -> Result<Option<Vec<u8>>, record::Fault>,
    ) -> Result<usize, Halt> {
        let mut update = self.conn.prepare_cached(ERASE_ROW)?;
        let mut n = 0;
        for (id, bytes) in rows {
            let left = left(&bytes).map_err(|e| damaged(&self.file, format!("record {id}: {e}")))?;
            if let Some(left) = left.filter(|left| *left != bytes) {
                n += update.execute(params![id, left])?;
            }
        }
        Ok(n)
    }
}

impl Log for SqliteLog {
    fn append(&mut self, records: &[Arc<Record>]) -> Result<(), WriteFault> {
        check_batch(self.head, records)?;
        if records.is_empty() {
            return Ok(());
        }
        let mut wrote = self.write_batch(records);
        // The WAL may have taken the space that the database itself still has.
        if let Err(WriteFault::Refused(Refusal::NoSpace)) = wrote
            && self.may_checkpoint()
            && self.wal_bytes() > 0
        {
            self.checkpoint()?;
            wrote = self.write_batch(records);
        }
        wrote?;
        self.unsynced = true;
        self.sync_if_due()?;
        if self.wal_bytes() > WAL_BYTES_CHECKPOINT && self.may_checkpoint() {
            self.checkpoint()?;
        }
        Ok(())
    }

    fn head(&self) -> Position {
        self.head
    }

    fn reader(&self) -> Result<Box<dyn LogReader>, Fault> {
        Ok(Box::new(SqliteReader::open(&self.file, self.chain.clone())?))
    }

    fn idle(&mut self) -> Result<(), WriteFault> {
        if self.poisoned {
            return Err(WriteFault::Failed(Fault::Poisoned { file: self.file.clone() }));
        }
        self.sync_if_due()?;
        if self.wal_bytes() > 0 && self.may_checkpoint() {
            self.checkpoint()?;
        }
        Ok(())
    }

    fn erase(&mut self, ids: &[EventId]) -> Result<usize, WriteFault> {
        assert!(ids.len() <= RETAIN_ROWS_MAX, "one commit erases at most {RETAIN_ROWS_MAX}");
        self.commit("erasing", |log| {
            let mut rows = Vec::with_capacity(ids.len());
            for id in ids {
                rows.extend(log.row(id.value() as i64)?);
            }
            log.erase_rows(rows)
        })
    }

    fn erasures(&self) -> Result<Vec<Erasure>, Fault> {
        self.unfinished()
    }

    fn erase_user(&mut self, id: EventId) -> Result<Step, WriteFault> {
        self.erase_step(id.value() as i64)
    }

    fn retain(&mut self, rule: &Retention<'_>) -> Result<Retained, WriteFault> {
        let head = self.head.value() as i64;
        self.commit("retaining", |log| {
            let mut retained = Retained::default();
            let old: Vec<(i64, i64)> = log
                .conn
                .prepare_cached("SELECT id, ts FROM log WHERE id < ?1 ORDER BY id LIMIT ?2")?
                .query_map(params![head, RETAIN_ROWS_MAX as i64], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect::<rusqlite::Result<_>>()?;
            let old =
                old.partition_point(|(_, ts)| (*ts as u64) < rule.headers_before.0).checked_sub(1).map(|i| old[i].0);
            if let Some(upto) = old {
                chained::keep_floor(&log.conn, upto)?;
                retained.deleted = log.conn.prepare_cached("DELETE FROM log WHERE id <= ?1")?.execute([upto])?;
                log.conn.prepare_cached("UPDATE state SET floor = ?1")?.execute([upto])?;
            }
            if retained.deleted == RETAIN_ROWS_MAX {
                return Ok(Retained { more: true, ..retained });
            }
            let rooms: Vec<(i64, String, i64)> = log
                .conn
                .prepare_cached("SELECT n, name, erased FROM rooms WHERE n >= ?1 ORDER BY n LIMIT ?2")?
                .query_map(params![log.retain_next, RETAIN_ROOMS as i64], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?)))?
                .collect::<rusqlite::Result<_>>()?;
            let mut limits: BTreeMap<Wall, i64> = BTreeMap::new();
            let mut n_read = 0;
            for (n, name, erased) in &rooms {
                let budget = RETAIN_ROWS_MAX - retained.deleted - n_read;
                if budget == 0 {
                    log.retain_next = *n;
                    return Ok(Retained { more: true, ..retained });
                }
                let room = RoomId::parse(name).ok_or_else(|| damaged(&log.file, format!("room {name:?}")))?;
                let before = (rule.bodies_before)(&room);
                let limit = match limits.get(&before) {
                    Some(limit) => *limit,
                    None => *limits.entry(before).or_insert(before_ts(&log.conn, before)?),
                };
                if *erased >= limit {
                    continue;
                }
                let rows: Vec<(i64, Vec<u8>)> = log
                    .conn
                    .prepare_cached(&format!("{ROOM_SCAN} LIMIT ?4"))?
                    .query_map(params![n, erased, limit, budget as i64], |row| Ok((row.get(0)?, row.get(1)?)))?
                    .collect::<rusqlite::Result<_>>()?;
                if rows.is_empty() {
                    continue;
                }
                n_read += rows.len();
                let full = rows.len() == budget;
                let upto = if full { rows.last().map_or(limit, |(id, _)| *id) } else { limit };
                let mut said = Vec::with_capacity(rows.len());
                for (id, bytes) in rows {
                    let record = record::decode(&bytes).map_err(|e| damaged(&log.file, format!("record {id}: {e}")))?;
                    if record.is_said() {
                        said.push((id, bytes));
                    }
                }
                retained.erased += log.erase_rows(said)?;
                log.conn.prepare_cached("UPDATE rooms SET erased = ?2 WHERE n = ?1")?.execute(params![n, upto])?;
                if full {
                    log.retain_next = *n;
                    return Ok(Retained { more: true, ..retained });
                }
            }
            let more = rooms.len() == RETAIN_ROOMS;
            log.retain_next = if more { rooms.last().map_or(0, |(n, ..)| n + 1) } else { 0 };
            Ok(Retained { more, ..retained })
        })
    }

    fn size_bytes(&self) -> u64 {
        let pages = |name: &str| self.conn.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0));
        match (pages("page_count"), pages("page_size")) {
            (Ok(count), Ok(size)) => (count * size) as u64,
            _ => file_bytes(&self.file),
        }
    }

    fn limit_bytes(&mut self, limit: Option<u64>) -> Result<(), Fault> {
        let set = || -> rusqlite::Result<()> {
            let page: i64 = self.conn.query_row("PRAGMA page_size", [], |row| row.get(0))?;
            // SQLite's own largest count lifts the limit; one below what is there already is raised by it to that.
            let pages = limit.map_or(0xffff_fffe, |bytes| (bytes / page as u64).clamp(1, 0xffff_fffe));
            self.conn.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))
        };
        set().map_err(|e| sql_fault(&self.file, "limiting its size", e))
    }
}

struct SqliteReader {
    conn: Connection,
    file: PathBuf,
    rooms: HashMap<RoomId, i64>,
    chain: Arc<Chain>,
}

const HEAD: &str = "SELECT coalesce(max(id), 0) FROM log";
/// Everything viewers of room ?1 are sent with an id in ( ?2, ?3 ], oldest first: the two indexes merged, never sorted.
const ROOM_PAGE: &str = "
    SELECT id, bytes FROM log INDEXED BY log_priority WHERE room = ?1 AND lane = 0 AND id > ?2 AND id <= ?3
    UNION ALL
    SELECT id, bytes FROM log INDEXED BY log_comments WHERE room = ?1 AND lane = 1 AND id > ?2 AND id <= ?3
    ORDER BY id";
/// The same with all that no viewer is sent.
const ROOM_SCAN: &str = "
    SELECT id, bytes FROM log INDEXED BY log_priority WHERE room = ?1 AND lane = 0 AND id > ?2 AND id <= ?3
    UNION ALL
    SELECT id, bytes FROM log INDEXED BY log_comments WHERE room = ?1 AND lane = 1 AND id > ?2 AND id <= ?3
    UNION ALL
    SELECT id, bytes FROM log INDEXED BY log_others
        WHERE room = ?1 AND room IS NOT NULL AND lane IS NULL AND id > ?2 AND id <= ?3
    ORDER BY id";
/// All of every room that no viewer is sent, the newest first. The table itself is walked: no index has them in order.
const OTHERS_BACK: &str = "SELECT id, bytes FROM log
    WHERE id >= ?1 AND id < ?2 AND lane IS NULL AND room IS NOT NULL ORDER BY id DESC LIMIT ?3";
const ROOM_OTHERS_BACK: &str = "SELECT id, bytes FROM log INDEXED BY log_others
    WHERE room = ?1 AND room IS NOT NULL AND lane IS NULL AND id < ?2 ORDER BY id DESC LIMIT ?3";
/// The id that many rows before another.
const ROWS_BEFORE: &str = "SELECT id FROM log WHERE id < ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2";
/// Rows one statement walks over at most, a few milliseconds, before the clock is read again.
const WALKED_ROWS: i64 = 10_000;
const LAST_PRIORITY: &str = "SELECT max(id) FROM log INDEXED BY log_priority WHERE room = ?1 AND lane = 0 AND id <= ?2";
const LAST_COMMENT: &str = "SELECT max(id) FROM log INDEXED BY log_comments WHERE room = ?1 AND lane = 1 AND id <= ?2";
const LAST_LOST: &str =
    "SELECT max(id) FROM log INDEXED BY log_lost WHERE room = ?1 AND lost = 1 AND id > ?2 AND id <= ?3";
const ERASE_ROW: &str = "UPDATE log SET bytes = ?2, lost = iif(lane = 0, 1, NULL) WHERE id = ?1";
const FIRST_PRIORITY: &str = "SELECT id, bytes FROM log INDEXED BY log_priority
    WHERE room = ?1 AND lane = 0 AND id > ?2 AND id <= ?3 ORDER BY id LIMIT 1";
const FIRST_COMMENT: &str = "SELECT id, ts FROM log INDEXED BY log_comments
    WHERE room = ?1 AND lane = 1 AND id > ?2 AND id <= ?3 ORDER BY id LIMIT 1";
const COMMENTS_BETWEEN: &str = "SELECT count(*) FROM
    (SELECT 1 FROM log INDEXED BY log_comments WHERE room = ?1 AND lane = 1 AND id > ?2 AND id <= ?3 LIMIT ?4)";
const NEWEST_COMMENTS: &str = "SELECT id, ts FROM log INDEXED BY log_comments
    WHERE room = ?1 AND lane = 1 AND id > ?2 AND id <= ?3 ORDER BY id DESC LIMIT ?4";

impl SqliteReader {
    fn open(file: &Path, chain: Arc<Chain>) -> Result<SqliteReader, Fault> {
        let conn = connect(file)?;
        conn.pragma_update(None, "query_only", "ON").map_err(|e| sql_fault(file, "opening it to read", e))?;
        Ok(SqliteReader { conn, file: file.into(), rooms: HashMap::new(), chain })
    }

    /// One view of the log, let go when `body` returns.
    fn view<T>(&mut self, body: impl FnOnce(&mut View<'_>) -> Result<T, Halt>) -> Result<T, Fault> {
        let SqliteReader { conn, file, rooms, .. } = self;
        let view = || -> Result<T, Halt> {
            let transaction = conn.unchecked_transaction()?;
            let value = body(&mut View { conn, file, rooms })?;
            transaction.commit()?;
            Ok(value)
        };
        view().map_err(|halt| read_fault(file, "reading it", halt))
    }
}

struct View<'a> {
    conn: &'a Connection,
    file: &'a Path,
    rooms: &'a mut HashMap<RoomId, i64>,
}

impl View<'_> {
    fn head(&self) -> Result<Position, Halt> {
        let head: i64 = self.conn.prepare_cached(HEAD)?.query_row([], |row| row.get(0))?;
        position(self.file, head).map_err(Halt::Fault)
    }

    fn floor(&self) -> Result<Position, Halt> {
        let floor: i64 = self.conn.prepare_cached("SELECT floor FROM state")?.query_row([], |row| row.get(0))?;
        position(self.file, floor).map_err(Halt::Fault)
    }

    fn room(&mut self, room: &RoomId) -> Result<Option<i64>, Halt> {
        if let Some(n) = self.rooms.get(room) {
            return Ok(Some(*n));
        }
        let n = room_number(self.conn, room)?;
        if let Some(n) = n {
            self.rooms.insert(room.clone(), n);
        }
        Ok(n)
    }

    /// The newest of what no viewer is sent in any room, newest first, and the position below which to go on.
    fn others_back(&self, before: Position, rows: usize) -> Result<(Vec<Arc<Record>>, Position), Halt> {
        let begun = Instant::now();
        let (mut records, mut end) = (Vec::new(), before.value() as i64);
        while end > 0 && records.len() < rows && begun.elapsed() < PAGE_TIME_MAX {
            let floor: Option<i64> =
                self.conn.prepare_cached(ROWS_BEFORE)?.query_row([end, WALKED_ROWS], |row| row.get(0)).optional()?;
            let (floor, wanted) = (floor.unwrap_or(0), rows - records.len());
            let mut others = self.conn.prepare_cached(OTHERS_BACK)?;
            let (found, ended) = self.records(&mut others, params![floor, end, wanted as i64 + 1], wanted)?;
            end = match ended {
                Ended::Whole => floor,
                Ended::Early => found.last().map_or(end, |r| id_number(r)),
            };
            records.extend(found);
        }
        Ok((records, position(self.file, end).map_err(Halt::Fault)?))
    }

    /// Decodes rows of `(id, bytes)`, at most `rows` and for at most one page's time.
    fn records(
        &self,
        statement: &mut CachedStatement<'_>,
        args: &[&dyn rusqlite::ToSql],
        rows: usize,
    ) -> Result<(Vec<Arc<Record>>, Ended), Halt> {
        let begun = Instant::now();
        let mut found = Vec::new();
        let mut cursor = statement.query(args)?;
        while let Some(row) = cursor.next()? {
            // The clock is read every 32 rows: decoding them takes well under a millisecond.
            if found.len() == rows || (found.len() % 32 == 31 && begun.elapsed() > PAGE_TIME_MAX) {
                return Ok((found, Ended::Early));
            }
            found.push(decode_row(self.file, row)?);
        }
        Ok((found, Ended::Whole))
    }
}

/// Whether a page ended because there was no more, or before that.
#[derive(PartialEq, Eq)]
enum Ended {
    Whole,
    Early,
}

/// Where a page of records, newest first, leaves off.
fn went_back_to(records: &[Arc<Record>], ended: &Ended, before: Position) -> Position {
    match ended {
        Ended::Whole => Position::START,
        Ended::Early => records.last().map_or(before, |r| r.event_id().position()),
    }
}

impl LogReader for SqliteReader {
    fn scan(&mut self, after: Position, rows: usize) -> Result<Vec<Arc<Record>>, Fault> {
        let rows = rows.min(PAGE_ROWS_MAX);
        self.view(|view| {
            let mut scan = view.conn.prepare_cached("SELECT id, bytes FROM log WHERE id > ?1 ORDER BY id LIMIT ?2")?;
            let (records, _) = view.records(&mut scan, params![after.value() as i64, rows as i64], rows)?;
            Ok(records)
        })
    }

    fn room_scan(&mut self, room: &RoomId, after: Position, rows: usize) -> Result<RoomPage, Fault> {
        let rows = rows.min(PAGE_ROWS_MAX);
        self.view(|view| {
            let head = view.head()?;
            let Some(n) = view.room(room)? else {
                return Ok(RoomPage { records: Vec::new(), upto: head.max(after), head });
            };
            let mut scan = view.conn.prepare_cached(&format!("{ROOM_SCAN} LIMIT ?4"))?;
            let (records, ended) =
                view.records(&mut scan, params![n, after.value() as i64, i64::MAX, rows as i64 + 1], rows)?;
            let upto = match ended {
                Ended::Whole => head.max(after),
                Ended::Early => records.last().map_or(after, |r| r.event_id().position()),
            };
            Ok(RoomPage { records, upto, head })
        })
    }

    fn room_page(&mut self, room: &RoomId, after: Position, rows: usize) -> Result<RoomPage, Fault> {
        let rows = rows.min(PAGE_ROWS_MAX);
        self.view(|view| {
            let head = view.head()?;
            let Some(n) = view.room(room)? else {
                return Ok(RoomPage { records: Vec::new(), upto: head.max(after), head });
            };
            let mut page = view.conn.prepare_cached(&format!("{ROOM_PAGE} LIMIT ?4"))?;
            let args = params![n, after.value() as i64, i64::MAX, rows as i64 + 1];
            let (mut records, ended) = view.records(&mut page, args, rows)?;
            let upto = match ended {
                Ended::Whole => head.max(after),
                Ended::Early => records.last().map_or(after, |r| r.event_id().position()),
            };
            records.retain(|r| r.lane().is_some());
            Ok(RoomPage { records, upto, head })
        })
    }

    fn room_page_back(&mut self, room: &RoomId, before: Position, rows: usize) -> Result<RoomPage, Fault> {
        let rows = rows.min(PAGE_ROWS_MAX);
        self.view(|view| {
            let head = view.head()?;
            let Some(n) = view.room(room)? else {
                return Ok(RoomPage { records: Vec::new(), upto: Position::START, head });
            };
            let mut page = view.conn.prepare_cached(&format!("{ROOM_PAGE} DESC LIMIT ?4"))?;
            let args = params![n, 0, before.value() as i64 - 1, rows as i64 + 1];
            let (mut records, ended) = view.records(&mut page, args, rows)?;
            let upto = went_back_to(&records, &ended, before);
            records.reverse();
            records.retain(|r| r.lane().is_some());
            Ok(RoomPage { records, upto, head })
        })
    }

    fn room_scan_back(&mut self, room: &RoomId, before: Position, rows: usize) -> Result<RoomPage, Fault> {
        let rows = rows.min(PAGE_ROWS_MAX);
        self.view(|view| {
            let head = view.head()?;
            let Some(n) = view.room(room)? else {
                return Ok(RoomPage { records: Vec::new(), upto: Position::START, head });
            };
            let mut scan = view.conn.prepare_cached(&format!("{ROOM_SCAN} DESC LIMIT ?4"))?;
            let args = params![n, 0, before.value() as i64 - 1, rows as i64 + 1];
            let (mut records, ended) = view.records(&mut scan, args, rows)?;
            let upto = went_back_to(&records, &ended, before);
            records.reverse();
            Ok(RoomPage { records, upto, head })
        })
    }

    fn others_back(&mut self, room: Option<&RoomId>, before: Position, rows: usize) -> Result<RoomPage, Fault> {
        let rows = rows.min(PAGE_ROWS_MAX);
        self.view(|view| {
            let head = view.head()?;
            let (mut records, upto) = match room {
                None => view.others_back(before, rows)?,
                Some(room) => match view.room(room)? {
                    None => (Vec::new(), Position::START),
                    Some(n) => {
                        let mut others = view.conn.prepare_cached(ROOM_OTHERS_BACK)?;
                        let args = params![n, before.value() as i64, rows as i64 + 1];
                        let (records, ended) = view.records(&mut others, args, rows)?;
                        let upto = went_back_to(&records, &ended, before);
                        (records, upto)
                    }
                },
            };
            records.reverse();
            records.retain(|record| is_other(record));
            Ok(RoomPage { records, upto, head })
        })
    }

    fn room_facts(&mut self, room: &RoomId, after: Position, upto: Position) -> Result<RoomFacts, Fault> {
        self.view(|view| {
            let mut facts = RoomFacts {
                head: view.head()?,
                floor: view.floor()?,
                last_event: Position::START,
                first_priority: None,
                last_lost: None,
                first_comment: None,
                n_comments: 0,
            };
            let Some(n) = view.room(room)? else { return Ok(facts) };
            let (conn, file, after, upto) = (view.conn, view.file, after.value() as i64, upto.value() as i64);
            for last in [LAST_PRIORITY, LAST_COMMENT] {
                let id: Option<i64> = conn.prepare_cached(last)?.query_row([n, upto], |row| row.get(0))?;
                facts.last_event = facts.last_event.max(position(file, id.unwrap_or(0)).map_err(Halt::Fault)?);
            }
            let mut priority = conn.prepare_cached(FIRST_PRIORITY)?;
            let mut rows = priority.query([n, after, upto])?;
            if let Some(row) = rows.next()? {
                let record = decode_row(file, row)?;
                facts.first_priority = Some((record.event_id(), record.pseq.unwrap_or_default(), record.ts));
            }
            let lost: Option<i64> = conn.prepare_cached(LAST_LOST)?.query_row([n, after, upto], |row| row.get(0))?;
            facts.last_lost = lost.map(|id| event_id(file, id)).transpose()?;
            let comment: Option<(i64, i64)> = conn
                .prepare_cached(FIRST_COMMENT)?
                .query_row([n, after, upto], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()?;
            facts.first_comment = comment.map(|row| id_and_ts(file, row)).transpose()?;
            let count: i64 = conn
                .prepare_cached(COMMENTS_BETWEEN)?
                .query_row([n, after, upto, COMMENTS_COUNTED_MAX as i64], |row| row.get(0))?;
            facts.n_comments = count as u64;
            Ok(facts)
        })
    }

    fn newest_comments(
        &mut self,
        room: &RoomId,
        after: Position,
        upto: Position,
        rows: usize,
    ) -> Result<Vec<(EventId, Wall)>, Fault> {
        let rows = rows.min(PAGE_ROWS_MAX) as i64;
        self.view(|view| {
            let Some(n) = view.room(room)? else { return Ok(Vec::new()) };
            let mut newest: Vec<(i64, i64)> = view
                .conn
                .prepare_cached(NEWEST_COMMENTS)?
                .query_map([n, after.value() as i64, upto.value() as i64, rows], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect::<rusqlite::Result<_>>()?;
            newest.reverse();
            newest.into_iter().map(|row| id_and_ts(view.file, row)).collect()
        })
    }

    fn before_ts(&mut self, ts: Wall) -> Result<Position, Fault> {
        self.view(|view| {
            let found = before_ts(view.conn, ts)?;
            position(view.file, found).map_err(Halt::Fault)
        })
    }

    fn head(&mut self) -> Result<Position, Fault> {
        self.view(|view| view.head())
    }

    fn floor(&mut self) -> Result<Position, Fault> {
        self.view(|view| view.floor())
    }

    fn verify(&mut self, from: Option<(Position, Link)>, rows: usize) -> Result<Verified, Fault> {
        let chain = self.chain.clone();
        self.view(|view| chained::verify(view, &chain, from, rows.min(PAGE_ROWS_MAX)))
    }

    fn link(&mut self, at: Position) -> Result<Option<Link>, Fault> {
        self.view(|view| Ok(chained::link(view.conn, at.value() as i64)?))
    }

    fn epochs(&mut self) -> Result<Vec<EpochSpan>, Fault> {
        self.view(|view| {
            let mut ended = view.conn.prepare_cached("SELECT epoch, last_seq FROM ended_epochs ORDER BY epoch")?;
            let rows: Vec<(i64, i64)> =
                ended.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<rusqlite::Result<_>>()?;
            let span = |(epoch, last_seq): (i64, i64)| {
                let epoch = u32::try_from(epoch).ok().and_then(Epoch::new)?;
                Some(EpochSpan { epoch, last_seq: Seq::new(u64::try_from(last_seq).ok()?)? })
            };
            let mut spans = Vec::with_capacity(rows.len() + 1);
            for row in rows {
                spans.push(span(row).ok_or_else(|| damaged(view.file, format!("ended epoch {row:?}")))?);
            }
            let head = view.head()?.event_id();
            spans.extend(head.map(|id| EpochSpan { epoch: id.epoch(), last_seq: id.seq() }));
            Ok(spans)
        })
    }
}

fn lane_number(lane: Lane) -> i64 {
    match lane {
        Lane::Priority => 0,
        Lane::Comment => 1,
        Lane::Latest | Lane::Site => unreachable!("latest values and banners are not records"),
    }
}

fn id_number(record: &Record) -> i64 {
    record.event_id().value() as i64 // below 2^53
}

fn room_number(conn: &Connection, room: &RoomId) -> rusqlite::Result<Option<i64>> {
    conn.prepare_cached("SELECT n FROM rooms WHERE name = ?1")?.query_row([room.as_str()], |row| row.get(0)).optional()
}

fn number_room(conn: &Connection, room: &RoomId) -> rusqlite::Result<i64> {
    match room_number(conn, room)? {
        Some(n) => Ok(n),
        None => conn.prepare_cached("INSERT INTO rooms (name) VALUES (?1)")?.insert([room.as_str()]),
    }
}

/// Log time never falls from one record to the next, so a time is found by halving the range of ids.
fn before_ts(conn: &Connection, ts: Wall) -> rusqlite::Result<i64> {
    let mut older: i64 = conn.prepare_cached("SELECT floor FROM state")?.query_row([], |row| row.get(0))?;
    let mut upto: i64 = conn.prepare_cached(HEAD)?.query_row([], |row| row.get(0))?;
    let mut next = conn.prepare_cached("SELECT id, ts FROM log WHERE id > ?1 AND id <= ?2 ORDER BY id LIMIT 1")?;
    // Every record up to `older` is older than `ts`, every one after `upto` is not.
    while older < upto {
        let middle = older + (upto - older) / 2;
        let found: Option<(i64, i64)> =
            next.query_row([middle, upto], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        match found {
            Some((id, at)) if (at as u64) < ts.0 => older = id,
            _ => upto = middle,
        }
    }
    Ok(older)
}

fn decode_row(file: &Path, row: &Row<'_>) -> Result<Arc<Record>, Halt> {
    let id: i64 = row.get(0)?;
    let value = row.get_ref(1)?;
    let bytes = value.as_blob().map_err(|e| damaged(file, format!("record {id}: {e}")))?;
    let record = record::decode(bytes).map_err(|e| damaged(file, format!("record {id}: {e}")))?;
    if id_number(&record) != id {
        return Err(damaged(file, format!("record {id} says it is {}", record.event_id())));
    }
    Ok(Arc::new(record))
}

fn position(file: &Path, id: i64) -> Result<Position, Fault> {
    let position = u64::try_from(id).ok().and_then(Position::new);
    position.ok_or_else(|| Fault::Damaged { file: file.into(), what: format!("{id} is no event id") })
}

fn id_and_ts(file: &Path, (id, ts): (i64, i64)) -> Result<(EventId, Wall), Halt> {
    Ok((event_id(file, id)?, Wall(ts as u64)))
}

fn event_id(file: &Path, id: i64) -> Result<EventId, Halt> {
    let found = u64::try_from(id).ok().and_then(EventId::new);
    found.ok_or_else(|| damaged(file, format!("{id} is no event id")))
}

fn read_fault(file: &Path, doing: &'static str, halt: Halt) -> Fault {
    match halt {
        Halt::Sql(e) => sql_fault(file, doing, e),
        Halt::Fault(fault) => fault,
        Halt::Refused(_) => unreachable!("reading refuses nothing"),
    }
}

fn damaged(file: &Path, what: String) -> Halt {
    Halt::Fault(Fault::Damaged { file: file.into(), what })
}
