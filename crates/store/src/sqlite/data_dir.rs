//! The data folder: whose it is, who has it open, what format it has.
//!
//! Like the key to a shop: one holder at a time, and who finds the door locked is told by whom. It must never follow a link
//! where a private file should be, and never open a folder of another format. The lock is on a file of its own, so that the
//! `sqlite3` shell can read a live log.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use grandstand_core::ids::{Epoch, Position};
use grandstand_core::routing::PARTITIONS;
use grandstand_core::time::Wall;
use grandstand_wire::chain::Chain;
use rustix::fs::{FlockOperation, OFlags};

/// An open data folder. The lock is held until the last log and catalog opened from it are dropped too.
#[derive(Clone, Debug)]
pub struct DataDir {
    path: PathBuf,
    lock: Arc<File>,
}

#[derive(Debug, thiserror::Error)]
pub enum DataDirFault {
    #[error("the data folder {} is in use by {}", path.display(), holder(*pid))]
    InUse { path: PathBuf, pid: Option<u32> },
    #[error("{}: {what}", path.display())]
    NotOurs { path: PathBuf, what: &'static str },
    #[error("{} has the format {found:?}, this program reads {expected:?}", path.display())]
    Format { path: PathBuf, found: String, expected: String },
    #[error("{} while {doing}: {source}", path.display())]
    Io { path: PathBuf, doing: &'static str, source: io::Error },
}

impl DataDir {
    /// Opens the folder, making it (0700) when it is not there, and takes its lock.
    /// Errors: `InUse` while another process has it; `NotOurs` when it is another user's, a private file in it is a link, or
    /// it is a folder that others use as well.
    pub fn open(path: &Path) -> Result<DataDir, DataDirFault> {
        let fault = |doing| move |source| DataDirFault::Io { path: path.into(), doing, source };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(fault("creating it"))?;
        let path = fs::canonicalize(path).map_err(fault("finding it"))?;
        let about = fs::metadata(&path).map_err(fault("looking at it"))?;
        if about.uid() != rustix::process::geteuid().as_raw() {
            return Err(DataDirFault::NotOurs { path, what: "belongs to another user" });
        }
        if about.mode() & 0o077 != 0 {
            // Closing a shared folder, such as `/tmp`, to everyone else would be the end of more than this program.
            if holds_other_things(&path).map_err(fault("looking into it"))? {
                let what = "holds other things and is open to others; a data folder is a folder of its own";
                return Err(DataDirFault::NotOurs { path, what });
            }
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).map_err(fault("making it private"))?;
        }
        let lock = Arc::new(take_lock(&path)?);
        check_format(&path)?;
        Ok(DataDir { path, lock })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The log's file. Its WAL stands beside it.
    pub fn log_file(&self) -> PathBuf {
        self.path.join("log.db")
    }

    /// The key of the log's chain, 32 bytes, made when it is not there. Whoever has it can make a chain that holds.
    pub fn chain_key(&self) -> Result<[u8; 32], DataDirFault> {
        let path = self.path.join("ledger.key");
        match read_private(&path) {
            Ok(bytes) => {
                bytes.try_into().map_err(|_| DataDirFault::NotOurs { path, what: "does not hold a key of 32 bytes" })
            }
            Err(DataDirFault::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                let key = Chain::fresh_key();
                let fault = |source| DataDirFault::Io { path: path.clone(), doing: "writing it", source };
                write_private(&path, &key).map_err(fault)?;
                Ok(key)
            }
            Err(other) => Err(other),
        }
    }

    pub fn catalog_file(&self) -> PathBuf {
        self.path.join("catalog.db")
    }

    pub(super) fn lock(&self) -> Arc<File> {
        self.lock.clone()
    }
}

/// Reads a private file.
/// Errors: `NotOurs` when it is a link, another user's, or readable by others.
fn read_private(path: &Path) -> Result<Vec<u8>, DataDirFault> {
    let read = || -> io::Result<(fs::Metadata, Vec<u8>)> {
        let mut file = no_follow().read(true).open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok((file.metadata()?, bytes))
    };
    match read() {
        Ok((about, _)) if about.uid() != rustix::process::geteuid().as_raw() => {
            Err(DataDirFault::NotOurs { path: path.into(), what: "belongs to another user" })
        }
        Ok((about, _)) if about.mode() & 0o077 != 0 => {
            Err(DataDirFault::NotOurs { path: path.into(), what: "can be read by other users (chmod 600 it)" })
        }
        Ok((_, bytes)) => Ok(bytes),
        Err(source) => Err(link_or(path, "reading it", source)),
    }
}

/// The epoch of a new writer: above the last one, and not below the hours since 2024-01-01, so that a restored backup does
/// not give ids again that were given after it was taken. `None`: the epochs are used up.
pub fn next_epoch(head: Position, wall: Wall) -> Option<Epoch> {
    const Y2024: u64 = 1_704_067_200_000;
    let last = head.event_id().map_or(0, |id| u64::from(id.epoch().value()));
    let hours = wall.0.saturating_sub(Y2024) / 3_600_000;
    // A clock far in the future must not use up the epochs: 2^19 hours are the year 2083.
    let hours = if hours < 1 << 19 { hours } else { 0 };
    Epoch::new(u32::try_from((last + 1).max(hours)).ok()?)
}

/// Whether a folder that is no data folder yet holds anything but keys and settings made for one, or the files of a restored
/// backup.
fn holds_other_things(dir: &Path) -> io::Result<bool> {
    if dir.join("format").exists() {
        return Ok(false);
    }
    for entry in fs::read_dir(dir)? {
        let name = PathBuf::from(entry?.file_name());
        let text = name.to_string_lossy();
        let database = text.starts_with("log.db") || text.starts_with("catalog.db");
        let expected = database
            || text == "lock"
            || text == "audit.jsonl"
            || name.extension().is_some_and(|e| e == "key" || e == "toml");
        if !expected {
            return Ok(true);
        }
    }
    Ok(false)
}

fn take_lock(dir: &Path) -> Result<File, DataDirFault> {
    let path = dir.join("lock");
    let mut file = no_follow()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(|source| link_or(&path, "opening it", source))?;
    if let Err(e) = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        if e != rustix::io::Errno::WOULDBLOCK {
            return Err(DataDirFault::Io { path, doing: "locking it", source: e.into() });
        }
        let mut text = String::new();
        let pid = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
        return Err(DataDirFault::InUse { path: dir.into(), pid });
    }
    // The pid is for people; the lock is the flock, which ends with the process. A full disk must not stop a start.
    let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(file)
}

fn check_format(dir: &Path) -> Result<(), DataDirFault> {
    let expected = format!("grandstand data folder\nformat 1\npartitions {PARTITIONS}\n");
    let path = dir.join("format");
    match read_private(&path) {
        Ok(found) if found == expected.as_bytes() => Ok(()),
        Ok(found) => Err(DataDirFault::Format { path, found: String::from_utf8_lossy(&found).into_owned(), expected }),
        Err(DataDirFault::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            write_private(&path, expected.as_bytes()).map_err(|source| DataDirFault::Io {
                path,
                doing: "writing it",
                source,
            })
        }
        Err(other) => Err(other),
    }
}

/// Writes beside and renames, so that the file is there whole or not at all.
fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = path.parent().expect("private files are in a folder");
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let _ = fs::remove_file(&beside);
    let mut file = no_follow().write(true).create_new(true).mode(0o600).open(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    super::sync_dir(dir)
}

fn no_follow() -> fs::OpenOptions {
    let mut options = fs::OpenOptions::new();
    options.custom_flags((OFlags::NOFOLLOW | OFlags::CLOEXEC).bits() as i32);
    options
}

fn link_or(path: &Path, doing: &'static str, source: io::Error) -> DataDirFault {
    match source.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) {
        true => {
            DataDirFault::NotOurs { path: path.into(), what: "is a link; private files are not followed through links" }
        }
        false => DataDirFault::Io { path: path.into(), doing, source },
    }
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or("another process".into(), |pid| format!("process {pid}"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use grandstand_core::ids::{Epoch, EventId, Position, Seq};
    use grandstand_core::time::Wall;

    use super::{DataDir, DataDirFault, next_epoch};

    #[test]
    fn the_folder_and_its_files_are_private() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = DataDir::open(&tmp.path().join("a/b")).unwrap();
        let mode = |p: &std::path::Path| fs::metadata(p).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(dir.path()), 0o700);
        for name in ["format", "lock"] {
            assert_eq!(mode(&dir.path().join(name)), 0o600, "{name}");
        }
    }

    #[test]
    fn a_second_holder_is_told_the_folder_and_the_pid() {
        let tmp = tempfile::tempdir().unwrap();
        let first = DataDir::open(tmp.path()).unwrap();
        let fault = DataDir::open(tmp.path()).unwrap_err();
        assert!(matches!(fault, DataDirFault::InUse { .. }));
        let text = fault.to_string();
        assert!(text.contains(&first.path().display().to_string()), "{text}");
        assert!(text.contains(&format!("process {}", std::process::id())), "{text}");
        drop(first);
        DataDir::open(tmp.path()).unwrap();
    }

    #[test]
    fn a_format_file_that_is_a_link_or_readable_by_others_is_refused() {
        let tmp = tempfile::tempdir().unwrap();
        drop(DataDir::open(tmp.path()).unwrap());
        let format = tmp.path().join("format");
        fs::set_permissions(&format, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(DataDir::open(tmp.path()), Err(DataDirFault::NotOurs { .. })));
        fs::set_permissions(&format, fs::Permissions::from_mode(0o600)).unwrap();
        fs::rename(&format, tmp.path().join("elsewhere")).unwrap();
        symlink(tmp.path().join("elsewhere"), &format).unwrap();
        assert!(matches!(DataDir::open(tmp.path()), Err(DataDirFault::NotOurs { .. })));
    }

    #[test]
    fn a_folder_of_another_format_is_refused() {
        let tmp = tempfile::tempdir().unwrap();
        drop(DataDir::open(tmp.path()).unwrap());
        fs::write(tmp.path().join("format"), "grandstand data folder\nformat 1\npartitions 512\n").unwrap();
        assert!(matches!(DataDir::open(tmp.path()), Err(DataDirFault::Format { .. })));
    }

    #[test]
    fn epochs_grow_with_every_start_and_never_below_the_hours() {
        let at = |epoch| EventId::at(Epoch::new(epoch).unwrap(), Seq::START).position();
        let hour = |n: u64| Wall(1_704_067_200_000 + n * 3_600_000);
        let next = |head, wall| next_epoch(head, wall).map(Epoch::value);
        assert_eq!(next(Position::START, Wall(0)), Some(1));
        assert_eq!(next(Position::START, hour(25_000)), Some(25_000));
        assert_eq!(next(at(25_000), hour(25_000)), Some(25_001));
        assert_eq!(next(at(30_000), hour(25_000)), Some(30_001));
        assert_eq!(next(at(7), Wall(u64::MAX)), Some(8), "a broken clock does not use up the epochs");
        assert_eq!(next(at(Epoch::MAX), hour(1)), None);
    }

    #[test]
    fn a_folder_that_others_use_is_refused_and_left_open_to_them() {
        let dir = tempfile::tempdir().unwrap();
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(dir.path(), open.clone()).unwrap();
        fs::write(dir.path().join("letter.txt"), "mine").unwrap();
        assert!(matches!(DataDir::open(dir.path()), Err(DataDirFault::NotOurs { .. })));
        assert_eq!(fs::metadata(dir.path()).unwrap().permissions().mode() & 0o777, 0o755);
        fs::remove_file(dir.path().join("letter.txt")).unwrap();
        fs::write(dir.path().join("signing.key"), "a key made before").unwrap();
        drop(DataDir::open(dir.path()).unwrap());
        fs::set_permissions(dir.path(), open).unwrap();
        drop(DataDir::open(dir.path()).unwrap());
        assert_eq!(fs::metadata(dir.path()).unwrap().permissions().mode() & 0o777, 0o700);
    }
}
