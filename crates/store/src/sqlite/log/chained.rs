//! The chain of the log's file: a link beside each row, made when the row is appended, and held against the rows on demand.
//!
//! A log from before there was a chain has none for its first rows; its chain begins with the next. What retention deletes leaves its
//! last link behind, so that the rest can be held against it.

use std::time::Instant;

use grandstand_core::ids::Position;
use grandstand_wire::chain::{BEGIN, Chain, LINK_BYTES, Link};
use grandstand_wire::record;
use rusqlite::{Connection, OptionalExtension, params};

use super::{Halt, View, event_id, id_number, position};
use crate::log::{PAGE_TIME_MAX, Verified, follows};

/// Priority records that are erased.
const LOST: &str = "CREATE INDEX IF NOT EXISTS log_lost ON log (room) WHERE lost = 1";

/// Adds what a log of before lacks.
pub(super) fn prepare(conn: &Connection) -> rusqlite::Result<()> {
    for (table, column, holds) in [("log", "link", "BLOB"), ("state", "floor_link", "BLOB"), ("log", "lost", "INTEGER")]
    {
        let there: Option<i64> = conn
            .query_row("SELECT 1 FROM pragma_table_info(?1) WHERE name = ?2", [table, column], |row| row.get(0))
            .optional()?;
        if there.is_none() {
            conn.execute_batch(&format!("ALTER TABLE {table} ADD COLUMN {column} {holds}"))?;
        }
    }
    conn.execute(LOST, [])?;
    Ok(())
}

/// The link of the head.
pub(super) fn last(conn: &Connection) -> rusqlite::Result<Link> {
    let newest = conn
        .query_row("SELECT link FROM log ORDER BY id DESC LIMIT 1", [], |row| row.get::<_, Option<Link>>(0))
        .optional()?;
    Ok(newest.flatten().unwrap_or(BEGIN))
}

/// The link of one row.
pub(super) fn link(conn: &Connection, id: i64) -> rusqlite::Result<Option<Link>> {
    let mut row = conn.prepare_cached("SELECT link FROM log WHERE id = ?1")?;
    Ok(row.query_row([id], |row| row.get(0)).optional()?.flatten())
}

/// Everything up to this row is about to be deleted.
pub(super) fn keep_floor(conn: &Connection, upto: i64) -> rusqlite::Result<()> {
    let link = link(conn, upto)?;
    conn.prepare_cached("UPDATE state SET floor_link = ?1")?.execute([link])?;
    Ok(())
}

/// A link as it stands in a row. Errors: it is none; then the row does not fit.
fn read_link(row: &rusqlite::Row<'_>) -> rusqlite::Result<Result<Option<Link>, ()>> {
    let stored: Option<Vec<u8>> = row.get(2)?;
    Ok(stored.map(|bytes| <[u8; LINK_BYTES]>::try_from(bytes).map_err(|_| ())).transpose())
}

pub(super) fn verify(
    view: &View<'_>,
    chain: &Chain,
    from: Option<(Position, Link)>,
    rows: usize,
) -> Result<Verified, Halt> {
    let (floor, floor_link): (i64, Option<Link>) = view
        .conn
        .prepare_cached("SELECT floor, floor_link FROM state")?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let from_floor = (position(view.file, floor).map_err(Halt::Fault)?, floor_link.unwrap_or(BEGIN));
    // What retention has deleted meanwhile is behind whoever looks.
    let (at, link) = from.filter(|(at, _)| *at >= from_floor.0).unwrap_or(from_floor);
    let head = view.head()?;
    let mut found = Verified { upto: (at, link), n: 0, n_before: 0, broken: None, more: false };
    let begun = Instant::now();
    let mut page = view.conn.prepare_cached("SELECT id, bytes, link FROM log WHERE id > ?1 ORDER BY id LIMIT ?2")?;
    let mut cursor = page.query(params![at.value() as i64, rows as i64])?;
    while let Some(row) = cursor.next()? {
        let id: i64 = row.get(0)?;
        let event = event_id(view.file, id)?;
        match fits(chain, found.upto, id, row)? {
            Fit::Chained(link) => {
                found.n += 1;
                found.upto = (event.position(), link);
            }
            Fit::Before => {
                found.n_before += 1;
                found.upto = (event.position(), BEGIN);
            }
            Fit::Not(why) => {
                found.broken = Some((event, why));
                return Ok(found);
            }
        }
        if begun.elapsed() > PAGE_TIME_MAX {
            break;
        }
    }
    found.more = found.upto.0 < head;
    Ok(found)
}

enum Fit {
    Chained(Link),
    /// From before there was a chain.
    Before,
    Not(String),
}

fn fits(chain: &Chain, (at, before): (Position, Link), id: i64, row: &rusqlite::Row<'_>) -> Result<Fit, Halt> {
    let not = |why: &str| Ok(Fit::Not(why.to_owned()));
    let bytes: Vec<u8> = row.get(1)?;
    let Ok(stored) = read_link(row)? else { return not("its link is damaged") };
    let record = match record::decode(&bytes) {
        Ok(record) => record,
        Err(fault) => return Ok(Fit::Not(fault.to_string())),
    };
    if id_number(&record) != id {
        return not("another record stands in its place");
    }
    // Before the floor nothing is known but the link.
    if at > Position::START && !follows(at, &record) {
        return not("records before it are missing");
    }
    match (stored, chain.next(&before, &bytes)) {
        (None, Ok(_)) if before == BEGIN => Ok(Fit::Before),
        (None, _) => not("its link is missing"),
        (Some(stored), Ok(Some(link))) if stored == link => Ok(Fit::Chained(link)),
        (Some(_), Ok(None)) => not("it does not tell any more what its link is made of"),
        (Some(_), _) => not("its link is not made of it and of what stands before"),
    }
}
