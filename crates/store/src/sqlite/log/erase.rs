//! A user taken out of the log's file, in steps between two appends.
//!
//! First the rows: those before the record that hold the user's id are looked into, and what names the user is written anew without
//! it. Then that record's own body. Then the pages: SQLite zeroes what it deletes (`secure_delete`), but a row that it moves from one
//! page to another may stay readable where it was, in the gap between a page's directory and its rows. A raw scan would find it, so
//! every gap is zeroed, in the file itself, while the write-ahead log (WAL) is empty: no reader ever looks into a gap, so nothing has
//! to be locked, and a write that a crash cuts short has changed nothing that counts.
//!
//! What must never happen is that a page of before comes back: what the writer's connection holds in its cache is let go in the same
//! call. The awkward case is a WAL that cannot be emptied because a reader holds it; then the step is tried again.
//!
//! Source of the page's form: sqlite.org/fileformat2.html, section 1.6.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use grandstand_core::names::UserId;
use grandstand_core::planted::planted;
use grandstand_core::record::Body;
use grandstand_wire::record;
use rusqlite::{OptionalExtension, params};
use rustix::fs::OFlags;

use super::{Halt, SqliteLog, damaged, event_id, read_fault};
use crate::fault::{Fault, WriteFault};
use crate::log::{Erasure, RETAIN_ROWS_MAX, Step};
use crate::sqlite::{io_fault, sql_fault};

pub(super) const ERASURES: &str = "CREATE TABLE IF NOT EXISTS erasures
    (id INTEGER PRIMARY KEY, upto INTEGER NOT NULL, named INTEGER NOT NULL) STRICT";
pub(super) const BEGIN: &str = "INSERT INTO erasures (id, upto, named) VALUES (?1, 0, 1)";

/// One step looks through rows for so long, then writes down how far it came.
const LOOK_FOR: Duration = Duration::from_millis(20);
/// Pages of one step, 4 MiB: some milliseconds.
const PAGES_A_STEP: u64 = 512;

/// The file behind the log's pages. Opened once and kept: closing any handle of a file takes this process's locks on it away.
pub(super) struct Pages {
    file: Option<File>,
    /// Where the next step goes on, and for which erase.
    next: (i64, u64),
}

impl Pages {
    pub(super) const fn new() -> Pages {
        Pages { file: None, next: (0, 0) }
    }
}

impl SqliteLog {
    pub(super) fn unfinished(&self) -> Result<Vec<Erasure>, Fault> {
        let list = || -> Result<Vec<Erasure>, Halt> {
            let mut rows = self.conn.prepare_cached("SELECT id, named FROM erasures ORDER BY id")?;
            let rows: Vec<(i64, bool)> =
                rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<rusqlite::Result<_>>()?;
            rows.into_iter()
                .map(|(id, named)| {
                    let user = if named { self.whom(id)? } else { None };
                    Ok(Erasure { id: event_id(&self.file, id)?, user })
                })
                .collect()
        };
        list().map_err(|halt| read_fault(&self.file, "reading who is being erased", halt))
    }

    pub(super) fn erase_step(&mut self, id: i64) -> Result<Step, WriteFault> {
        let state = "SELECT upto, named FROM erasures WHERE id = ?1";
        let found: rusqlite::Result<Option<(i64, bool)>> = self
            .conn
            .prepare_cached(state)
            .and_then(|mut s| s.query_row([id], |row| Ok((row.get(0)?, row.get(1)?))).optional());
        match found {
            Err(e) => Err(WriteFault::Failed(sql_fault(&self.file, "erasing a user", e))),
            Ok(None) => Ok(Step::Done),
            Ok(Some((upto, true))) => self.erase_from_rows(id, upto),
            Ok(Some((_, false))) => self.zero_gaps(id),
        }
    }

    /// Whom the record erases, while it says so.
    fn whom(&self, id: i64) -> Result<Option<UserId>, Halt> {
        let Some((_, bytes)) = self.row(id)? else { return Ok(None) };
        let record = record::decode(&bytes).map_err(|e| damaged(&self.file, format!("record {id}: {e}")))?;
        Ok(record.erases().cloned())
    }

    fn erase_from_rows(&mut self, id: i64, upto: i64) -> Result<Step, WriteFault> {
        self.commit("erasing a user", |log| {
            let Some(user) = log.whom(id)? else {
                // Nobody is named any more: retention has taken the record, or this is the second time.
                log.conn.prepare_cached("UPDATE erasures SET named = 0 WHERE id = ?1")?.execute([id])?;
                return Ok(Step::More(0));
            };
            let (begun, mut upto, mut n) = (Instant::now(), upto, 0);
            while n == 0 && begun.elapsed() < LOOK_FOR {
                let last: Option<i64> = log
                    .conn
                    .prepare_cached("SELECT id FROM log WHERE id > ?1 AND id < ?2 ORDER BY id LIMIT 1 OFFSET ?3")?
                    .query_row(params![upto, id, RETAIN_ROWS_MAX as i64 - 1], |row| row.get(0))
                    .optional()?;
                let end = last.unwrap_or(id - 1);
                n = log.erase_named(&user, upto, end)?;
                upto = end;
                if last.is_none() {
                    log.erase_rows(log.row(id)?)?;
                    log.conn.prepare_cached("UPDATE erasures SET named = 0 WHERE id = ?1")?.execute([id])?;
                    return Ok(Step::More(n));
                }
            }
            log.conn.prepare_cached("UPDATE erasures SET upto = ?2 WHERE id = ?1")?.execute([id, upto])?;
            Ok(Step::More(n))
        })
    }

    /// Takes the user out of the rows in ( after, upto ], at most [`RETAIN_ROWS_MAX`] of them.
    fn erase_named(&self, user: &UserId, after: i64, upto: i64) -> Result<usize, Halt> {
        // Whatever names the user holds the id as it is, in header or body.
        let mut holding = self
            .conn
            .prepare_cached("SELECT id, bytes FROM log WHERE id > ?1 AND id <= ?2 AND instr(bytes, ?3) > 0")?;
        let rows: Vec<(i64, Vec<u8>)> = holding
            .query_map(params![after, upto, user.as_str().as_bytes()], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<rusqlite::Result<_>>()?;
        let is_empty = |bytes: &[u8]| record::decode(bytes).is_ok_and(|record| matches!(record.body, Body::Erased));
        self.rewrite(
            rows,
            |bytes| {
                if planted(170) && is_empty(bytes) { Ok(None) } else { record::without_user(bytes, user) }
            },
        )
    }

    fn zero_gaps(&mut self, id: i64) -> Result<Step, WriteFault> {
        if self.wal_bytes() > 0 {
            if !self.may_checkpoint() {
                return Ok(Step::Later);
            }
            self.checkpoint()?;
        }
        if self.wal_bytes() > 0 {
            return Ok(Step::Later);
        }
        let pragma = |name: &str| self.conn.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0));
        let size = pragma("page_size").and_then(|size| Ok((size as u64, pragma("page_count")? as u64)));
        let (page, n_pages) = size.map_err(|e| WriteFault::Failed(sql_fault(&self.file, "looking at its pages", e)))?;
        let from = if self.pages.next.0 == id { self.pages.next.1 } else { 0 };
        let to = n_pages.min(from + PAGES_A_STEP);
        let is_last = to == n_pages;
        // Nothing of it counts, so whatever became of it, the same may be tried again.
        self.zero_pages(page, from..to, is_last)
            .map_err(|e| WriteFault::Failed(io_fault(&self.file, "zeroing its gaps", e)))?;
        // What the cache holds of before would be written back with the next change of its page.
        self.conn
            .execute_batch("PRAGMA shrink_memory")
            .map_err(|e| WriteFault::Failed(sql_fault(&self.file, "letting go of its pages", e)))?;
        self.pages.next = (id, to);
        if !is_last {
            return Ok(Step::More(0));
        }
        self.commit("ending an erase", |log| {
            log.conn.prepare_cached("DELETE FROM erasures WHERE id = ?1")?.execute([id])?;
            Ok(())
        })?;
        self.unsynced = true;
        self.pages.next = (0, 0);
        Ok(Step::Done)
    }

    fn zero_pages(&mut self, page: u64, pages: std::ops::Range<u64>, sync: bool) -> std::io::Result<()> {
        let file = match &mut self.pages.file {
            Some(file) => file,
            none => none.insert(open(&self.file)?),
        };
        let mut bytes = vec![0; page as usize];
        for n in pages {
            file.read_exact_at(&mut bytes, n * page)?;
            for gap in gaps(&bytes, if n == 0 { 100 } else { 0 }) {
                if bytes[gap.clone()].iter().any(|b| *b != 0) {
                    let zeroes = vec![0; gap.len()];
                    file.write_all_at(&zeroes, n * page + gap.start as u64)?;
                }
            }
        }
        if sync { file.sync_data() } else { Ok(()) }
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).custom_flags(OFlags::NOFOLLOW.bits() as i32).open(path)
}

/// Where a page of a table's or an index's tree holds bytes that stand for nothing: between its directory and its rows, and in the
/// blocks that were freed among those. Of a page of another kind, and of one that is not in order, nothing.
/// `at`: where its header begins.
fn gaps(page: &[u8], at: usize) -> Vec<std::ops::Range<usize>> {
    let number = |i: usize| page.get(i..i + 2).map_or(0, |b| usize::from(u16::from_be_bytes([b[0], b[1]])));
    let header = match page[at] {
        2 | 5 => 12,
        10 | 13 => 8,
        _ => return Vec::new(),
    };
    let directory_end = at + header + 2 * number(at + 3);
    let rows = match number(at + 5) {
        0 => 65_536,
        rows => rows,
    };
    if directory_end > rows || rows > page.len() {
        return Vec::new();
    }
    // Every entry of the directory lies among the rows; else this is a page of text that looks like one of ours.
    let entries = (at + header..directory_end).step_by(2);
    if entries.into_iter().any(|i| !(rows..page.len()).contains(&number(i))) {
        return Vec::new();
    }
    let mut found: Vec<_> = std::iter::once(directory_end..rows).collect();
    let mut block = number(at + 1);
    while block != 0 {
        let (next, size) = (number(block), number(block + 2));
        // They rise, the first two numbers of each are in use.
        if block < rows || size < 4 || block + size > page.len() || (next != 0 && next <= block) {
            return Vec::new();
        }
        found.push(block + 4..block + size);
        block = next;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::gaps;

    /// A leaf with two rows at 40 and 52, a freed block of 6 at 46, 58 bytes in all.
    fn leaf() -> Vec<u8> {
        let mut page = vec![7; 58];
        page[..12].copy_from_slice(&[13, 0, 46, 0, 2, 0, 40, 0, 0, 40, 0, 52]);
        page[46..50].copy_from_slice(&[0, 0, 0, 6]);
        page
    }

    #[test]
    fn a_page_has_a_gap_before_its_rows_and_one_in_each_freed_block() {
        assert_eq!(gaps(&leaf(), 0), [12..40, 50..52]);
        let first = [vec![0; 100], leaf()].concat();
        assert!(gaps(&first, 100).is_empty(), "the places of the first page count from its begin");
    }

    #[test]
    fn a_page_that_is_not_in_order_is_left_as_it_is() {
        for (at, with) in [(0, 0), (0, 7), (3, 1), (6, 59), (6, 11), (9, 39), (9, 58), (2, 20), (49, 3), (49, 13)] {
            let mut page = leaf();
            page[at] = with;
            assert!(gaps(&page, 0).is_empty(), "byte {at} is {with}");
        }
    }
}
