//! The embedded engine: a log and a catalog, each in an SQLite file of its own, in a data folder that one process owns.
//!
//! SQLite is the notary here: it stamps one batch at a time and says `Ok` when the stamp is dry. Its write-ahead log (WAL)
//! is synced once a commit and copied into the database file when there is time. What this module must never do: trust an
//! I/O error to have done nothing, or open a file it was led to by a link.
//!
//! The process has to ignore SIGXFSZ, so that a file-size limit is an error of a write and not the end of the process.

use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, ffi};

use crate::fault::{Fault, Refusal, WriteFault};

mod catalog;
mod data_dir;
mod log;
mod wal;

pub use catalog::SqliteCatalog;
pub use data_dir::{DataDir, DataDirFault, next_epoch};
pub use log::SqliteLog;

/// What `Ok` of an append means. Printed at start and shown as a metric, because everything else rests on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// Survives a power cut.
    #[default]
    Fsync,
    /// Survives the death of the process; a power cut takes at most what was appended in this time, provided that
    /// [`crate::log::Log::idle`] is called at least as often.
    Interval(Duration),
    /// Survives the death of the process; after a power cut even older records may be missing.
    None,
}

/// Opens or creates `path` for reading and writing, 0600, in WAL mode, without following a link.
fn open(path: &Path, durability: Durability) -> Result<Connection, Fault> {
    create_private(path).map_err(|e| io_fault(path, "creating it", e))?;
    let conn = connect(path)?;
    let synchronous = match durability {
        Durability::Fsync => "FULL",
        Durability::Interval(_) => "NORMAL",
        Durability::None => "OFF",
    };
    let setup = || -> rusqlite::Result<String> {
        // 8 KiB pages: fewer of them for a batch of comments, each still one write.
        conn.pragma_update(None, "page_size", 8192)?;
        let mode: String = conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
        conn.pragma_update(None, "synchronous", synchronous)?;
        // What retention erased must not be readable in the file.
        conn.query_row("PRAGMA secure_delete = ON", [], |_| Ok(()))?;
        conn.pragma_update(None, "cache_size", -32_768)?;
        Ok(mode)
    };
    let mode = setup().map_err(|e| sql_fault(path, "opening it", e))?;
    match mode.as_str() {
        "wal" => Ok(conn),
        other => Err(io_fault(path, "switching to WAL mode", io::Error::other(format!("the mode stayed {other}")))),
    }
}

/// A connection to a file that exists.
fn connect(path: &Path) -> Result<Connection, Fault> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connect = || -> rusqlite::Result<Connection> {
        let conn = Connection::open_with_flags(path, flags)?;
        conn.busy_timeout(Duration::from_secs(5))?;
        conn.set_prepared_statement_cache_capacity(64);
        conn.pragma_update(None, "trusted_schema", "OFF")?;
        conn.pragma_update(None, "cell_size_check", "ON")?;
        conn.pragma_update(None, "temp_store", "MEMORY")?;
        Ok(conn)
    };
    connect().map_err(|e| sql_fault(path, "opening it", e))
}

/// SQLite gives its WAL and index the mode of the database file, so that file has to be private from its first moment.
fn create_private(path: &Path) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32);
    match options.open(path) {
        Ok(file) => {
            file.sync_all()?;
            path.parent().map_or(Ok(()), sync_dir)
        }
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(e) => Err(e),
    }
}

fn sync_dir(path: &Path) -> io::Result<()> {
    fs::File::open(path)?.sync_all()
}

/// Brings a fresh file to `version` by `schema`; refuses a file of any other version.
fn set_schema(conn: &Connection, path: &Path, version: i64, schema: &str) -> Result<(), Fault> {
    let there: i64 = conn
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .map_err(|e| sql_fault(path, "reading its version", e))?;
    match there {
        0 => conn
            .execute_batch(&format!("BEGIN IMMEDIATE; {schema} PRAGMA user_version = {version}; COMMIT;"))
            .map_err(|e| sql_fault(path, "creating its tables", e)),
        v if v == version => Ok(()),
        v => {
            Err(Fault::Damaged { file: path.into(), what: format!("format {v}, this program reads format {version}") })
        }
    }
}

fn wal_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

fn file_bytes(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |m| m.len())
}

fn io_fault(path: &Path, doing: &'static str, source: io::Error) -> Fault {
    Fault::Io { doing, file: path.into(), source: source.into() }
}

fn sql_fault(path: &Path, doing: &'static str, source: rusqlite::Error) -> Fault {
    match source.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            Fault::Damaged { file: path.into(), what: format!("{source} while {doing}") }
        }
        _ => Fault::Io { doing, file: path.into(), source: source.into() },
    }
}

/// Where in a write transaction an error came.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Before,
    Commit,
}

/// What an error of a write means for the caller. The transaction is rolled back by whoever asks.
///
/// A commit writes its frames to the WAL in order, the frame that makes them valid last, then syncs, then shows them. So a
/// write that fell short (`FULL`; `IOERR_WRITE` at a file-size limit) left no valid commit, and everything else may have.
fn write_fault(path: &Path, doing: &'static str, stage: Stage, error: rusqlite::Error) -> WriteFault {
    let (code, extended) = match &error {
        rusqlite::Error::SqliteFailure(e, _) => (Some(e.code), e.extended_code),
        _ => (None, 0),
    };
    match (code, stage) {
        (Some(ErrorCode::DiskFull), _) => Refusal::NoSpace.into(),
        (Some(ErrorCode::SystemIoFailure), _) if extended == ffi::SQLITE_IOERR_WRITE && at_file_limit(path) => {
            Refusal::NoSpace.into()
        }
        // A file that cannot be trusted is for the next start to judge, not for a retry.
        (Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase), _) => {
            WriteFault::Unknown(sql_fault(path, doing, error))
        }
        (_, Stage::Commit) => WriteFault::Unknown(sql_fault(path, doing, error)),
        (_, Stage::Before) => WriteFault::Failed(sql_fault(path, doing, error)),
    }
}

/// Whether the database or its WAL has come near to the process's file-size limit. SQLite reports that limit as any failed
/// write, and the number the system gave is not passed on.
fn at_file_limit(path: &Path) -> bool {
    // One batch of 8 192 records of 2 KiB is the most that one commit adds.
    const NEAR: u64 = 16 << 20;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    limit.is_some_and(|limit| file_bytes(path).max(file_bytes(&wal_path(path))).saturating_add(NEAR) > limit)
}
