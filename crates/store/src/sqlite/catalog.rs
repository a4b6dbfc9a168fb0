//! The catalog in one SQLite file: rooms, the parts of the newest checkpoint, and small facts.
//!
//! A checkpoint's parts carry a sum over name and bytes, so that a changed one is seen and made again from the log.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use grandstand_core::ids::Position;
use grandstand_core::names::RoomId;
use grandstand_core::routing::stable_hash;
use rusqlite::{Connection, OptionalExtension, params};

use super::{DataDir, Durability, Stage, io_fault, open, set_schema, sql_fault, write_fault};
use crate::catalog::{Catalog, Checkpoint, RoomRow};
use crate::fault::{Fault, Refusal, WriteFault};

const SCHEMA: &str = "
    CREATE TABLE rooms (room TEXT PRIMARY KEY, version INTEGER NOT NULL, settings BLOB NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE checkpoint (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        at INTEGER NOT NULL,
        parts INTEGER NOT NULL,
        sum INTEGER NOT NULL,
        bytes BLOB NOT NULL
    ) STRICT;
    CREATE TABLE parts (room TEXT PRIMARY KEY, sum INTEGER NOT NULL, bytes BLOB NOT NULL) STRICT;
    CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;
";
const VERSION: i64 = 1;

pub struct SqliteCatalog {
    conn: Connection,
    file: PathBuf,
    poisoned: bool,
    _lock: Arc<File>,
}

impl SqliteCatalog {
    /// Opens the catalog of a data folder, or creates it.
    pub fn open(dir: &DataDir) -> Result<SqliteCatalog, Fault> {
        let file = dir.catalog_file();
        let conn = open(&file, Durability::Fsync)?;
        set_schema(&conn, &file, VERSION, SCHEMA)?;
        Ok(SqliteCatalog { conn, file, poisoned: false, _lock: dir.lock() })
    }

    fn read<T>(&self, body: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, Fault> {
        body(&self.conn).map_err(|e| sql_fault(&self.file, "reading it", e))
    }

    /// One write transaction; `body` may refuse it.
    fn commit(
        &mut self,
        doing: &'static str,
        body: impl FnOnce(&Connection) -> rusqlite::Result<Result<(), Refusal>>,
    ) -> Result<(), WriteFault> {
        if self.poisoned {
            return Err(WriteFault::Failed(Fault::Poisoned { file: self.file.clone() }));
        }
        let begun = self.conn.execute_batch("BEGIN IMMEDIATE");
        let fault = match begun.and_then(|()| body(&self.conn)) {
            Ok(Ok(())) => match self.conn.execute_batch("COMMIT") {
                Ok(()) => return Ok(()),
                Err(e) => write_fault(&self.file, doing, Stage::Commit, e),
            },
            Ok(Err(refusal)) => refusal.into(),
            Err(e) => write_fault(&self.file, doing, Stage::Before, e),
        };
        let rolled_back = self.conn.is_autocommit() || self.conn.execute_batch("ROLLBACK").is_ok();
        self.poisoned = matches!(fault, WriteFault::Unknown(_)) || !rolled_back;
        Err(fault)
    }

    fn damaged(&self, what: String) -> Fault {
        Fault::Damaged { file: self.file.clone(), what }
    }

    fn row(&self, (room, version, settings): (String, i64, Vec<u8>)) -> Result<RoomRow, Fault> {
        let room = RoomId::parse(&room).ok_or_else(|| self.damaged(format!("room {room:?}")))?;
        Ok(RoomRow { room, version: version as u64, settings })
    }
}

impl Catalog for SqliteCatalog {
    fn rooms(&mut self) -> Result<Vec<RoomRow>, Fault> {
        let rows = self.read(|conn| {
            conn.prepare_cached("SELECT room, version, settings FROM rooms ORDER BY room")?
                .query_map([], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?)))?
                .collect::<rusqlite::Result<Vec<_>>>()
        })?;
        rows.into_iter().map(|row| self.row(row)).collect()
    }

    fn room(&mut self, room: &RoomId) -> Result<Option<RoomRow>, Fault> {
        let row = self.read(|conn| {
            conn.prepare_cached("SELECT room, version, settings FROM rooms WHERE room = ?1")?
                .query_row([room.as_str()], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?)))
                .optional()
        })?;
        row.map(|row| self.row(row)).transpose()
    }

    fn put_room(&mut self, row: &RoomRow) -> Result<(), WriteFault> {
        self.commit("putting a room", |conn| {
            let stored: Option<i64> = conn
                .prepare_cached("SELECT version FROM rooms WHERE room = ?1")?
                .query_row([row.room.as_str()], |r| r.get(0))
                .optional()?;
            if let Some(stored) = stored.map(|v| v as u64).filter(|stored| *stored >= row.version) {
                return Ok(Err(Refusal::OldVersion { stored, given: row.version }));
            }
            conn.prepare_cached("INSERT OR REPLACE INTO rooms (room, version, settings) VALUES (?1, ?2, ?3)")?
                .execute(params![row.room.as_str(), row.version as i64, row.settings])?;
            Ok(Ok(()))
        })
    }

    fn save_checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<(), WriteFault> {
        self.commit("saving a checkpoint", |conn| {
            let there: Option<i64> =
                conn.prepare_cached("SELECT at FROM checkpoint")?.query_row([], |r| r.get(0)).optional()?;
            let head = there.and_then(|at| Position::new(at as u64)).unwrap_or(Position::START);
            if checkpoint.at < head {
                return Ok(Err(Refusal::Stale { head, first: checkpoint.at }));
            }
            let mut put = conn.prepare_cached("INSERT OR REPLACE INTO parts (room, sum, bytes) VALUES (?1, ?2, ?3)")?;
            for (room, bytes) in &checkpoint.rooms {
                put.execute(params![room.as_str(), sum_of(room.as_str(), bytes), bytes])?;
            }
            let parts: i64 = conn.query_row("SELECT count(*) FROM parts", [], |r| r.get(0))?;
            let at = checkpoint.at.value() as i64;
            conn.prepare_cached(
                "INSERT OR REPLACE INTO checkpoint (one, at, parts, sum, bytes) VALUES (1, ?1, ?2, ?3, ?4)",
            )?
            .execute(params![
                at,
                parts,
                sum_of(&format!("{at}/{parts}"), &checkpoint.log),
                checkpoint.log
            ])?;
            Ok(Ok(()))
        })
    }

    fn load_checkpoint(&mut self) -> Result<Option<Checkpoint>, Fault> {
        let found = self.read(|conn| {
            conn.query_row("SELECT at, parts, sum, bytes FROM checkpoint", [], |r| {
                Ok((r.get::<_, i64>(0)?, r.get::<_, i64>(1)?, r.get::<_, i64>(2)?, r.get::<_, Vec<u8>>(3)?))
            })
            .optional()
        })?;
        let Some((at, n_parts, sum, log)) = found else { return Ok(None) };
        let position = u64::try_from(at).ok().and_then(Position::new);
        let position = position.ok_or_else(|| self.damaged(format!("checkpoint at {at}")))?;
        if sum != sum_of(&format!("{at}/{n_parts}"), &log) {
            return Err(self.damaged(format!("the checkpoint at {at} does not match its sum")));
        }
        let parts = self.read(|conn| {
            conn.prepare("SELECT room, sum, bytes FROM parts")?
                .query_map([], |r| Ok((r.get::<_, String>(0)?, r.get::<_, i64>(1)?, r.get::<_, Vec<u8>>(2)?)))?
                .collect::<rusqlite::Result<Vec<_>>>()
        })?;
        if parts.len() as i64 != n_parts {
            return Err(self.damaged(format!("the checkpoint at {at} has {} of {n_parts} rooms", parts.len())));
        }
        let mut rooms = BTreeMap::new();
        for (name, sum, bytes) in parts {
            let room = RoomId::parse(&name).filter(|_| sum == sum_of(&name, &bytes));
            let room =
                room.ok_or_else(|| self.damaged(format!("the checkpoint of room {name:?} does not match its sum")))?;
            rooms.insert(room, bytes);
        }
        Ok(Some(Checkpoint { at: position, log, rooms: rooms.into_iter().collect() }))
    }

    fn forget_checkpoints(&mut self) -> Result<(), WriteFault> {
        self.commit("dropping checkpoints", |conn| {
            conn.execute_batch("DELETE FROM checkpoint; DELETE FROM parts;")?;
            Ok(Ok(()))
        })
    }

    fn scrub(&mut self) -> Result<(), WriteFault> {
        if self.poisoned {
            return Err(WriteFault::Failed(Fault::Poisoned { file: self.file.clone() }));
        }
        // Every page is written anew from what is in use: a page may keep what was moved out of it, which no secure delete sees.
        let vacuumed = self.conn.execute_batch("VACUUM");
        let copied: rusqlite::Result<i64> =
            vacuumed.and_then(|()| self.conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)));
        match copied {
            Ok(0) => Ok(()),
            Ok(_) => {
                let held = io::Error::other("a reader holds the WAL");
                Err(WriteFault::Failed(io_fault(&self.file, "copying its WAL", held)))
            }
            Err(e) => {
                let fault = write_fault(&self.file, "writing its pages anew", Stage::Commit, e);
                self.poisoned = matches!(fault, WriteFault::Unknown(_));
                Err(fault)
            }
        }
    }

    fn meta(&mut self, key: &str) -> Result<Option<Vec<u8>>, Fault> {
        self.read(|conn| {
            conn.prepare_cached("SELECT value FROM meta WHERE key = ?1")?.query_row([key], |r| r.get(0)).optional()
        })
    }

    fn put_meta(&mut self, key: &str, value: &[u8]) -> Result<(), WriteFault> {
        self.commit("putting a fact", |conn| {
            conn.prepare_cached("INSERT OR REPLACE INTO meta (key, value) VALUES (?1, ?2)")?
                .execute(params![key, value])?;
            Ok(Ok(()))
        })
    }
}

/// Not against an attacker: against a disk.
fn sum_of(name: &str, bytes: &[u8]) -> i64 {
    (stable_hash(name.as_bytes()) ^ stable_hash(bytes).rotate_left(1)) as i64
}
