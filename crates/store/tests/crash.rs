//! What a log is after the process died, the disk lied or a bit flipped: the acknowledged batches, or a refusal to start.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use grandstand_core::ids::{EventId, Position};
use grandstand_core::record::Record;
use grandstand_core::rng::Rng;
use grandstand_store::catalog::{Catalog, Checkpoint};
use grandstand_store::conformance::Pen;
use grandstand_store::fault::Fault;
use grandstand_store::log::{Log, PAGE_ROWS_MAX};
use grandstand_store::sqlite::{DataDir, Durability, SqliteCatalog, SqliteLog};

type Batch = Vec<Arc<Record>>;

/// A log that was written and never closed, as a folder of files to be copied.
struct Crashed {
    tmp: tempfile::TempDir,
    batches: Vec<Batch>,
    _open: SqliteLog,
}

fn crashed(n_batches: usize) -> Crashed {
    let tmp = tempfile::tempdir().unwrap();
    let mut log = SqliteLog::open(&DataDir::open(tmp.path()).unwrap(), Durability::Fsync).unwrap();
    let mut pen = Pen::new(1);
    let batches: Vec<_> = (0..n_batches).map(|_| pen.batch(&["a", "b"], 30)).collect();
    batches.iter().for_each(|b| log.append(b).unwrap());
    Crashed { tmp, batches, _open: log }
}

impl Crashed {
    /// What a process that starts on a copy of the files finds, when the WAL was changed meanwhile.
    fn restart(&self, change: impl FnOnce(&mut Vec<u8>)) -> Result<Vec<Arc<Record>>, Fault> {
        let copy = tempfile::tempdir().unwrap();
        fs::copy(self.tmp.path().join("log.db"), copy.path().join("log.db")).unwrap();
        let mut wal = self.wal();
        change(&mut wal);
        fs::write(copy.path().join("log.db-wal"), wal).unwrap();
        let log = SqliteLog::open(&DataDir::open(copy.path()).unwrap(), Durability::Fsync)?;
        read_all(&log)
    }

    fn wal(&self) -> Vec<u8> {
        fs::read(self.tmp.path().join("log.db-wal")).unwrap()
    }

    fn records(&self, n_batches: usize) -> Vec<Arc<Record>> {
        self.batches[..n_batches].iter().flatten().cloned().collect()
    }

    /// Where in the WAL each commit ends. A frame is 24 bytes and a page; the mark of a commit is its second word.
    fn commit_ends(&self) -> Vec<usize> {
        let wal = self.wal();
        let word = |at: usize| u32::from_be_bytes(wal[at..at + 4].try_into().unwrap());
        let frame = 24 + word(8) as usize;
        (32..wal.len()).step_by(frame).filter(|at| word(at + 4) != 0).map(|at| at + frame).collect()
    }
}

fn read_all(log: &SqliteLog) -> Result<Vec<Arc<Record>>, Fault> {
    let (mut reader, mut all, mut after) = (log.reader()?, Vec::new(), Position::START);
    loop {
        let page = reader.scan(after, PAGE_ROWS_MAX)?;
        let Some(last) = page.last() else { return Ok(all) };
        after = last.event_id().position();
        all.extend(page);
    }
}

#[test]
fn every_acknowledged_batch_is_there_after_a_crash() {
    let crashed = crashed(20);
    assert_eq!(crashed.restart(|_| {}).unwrap(), crashed.records(20));
}

#[test]
fn a_wal_cut_in_its_last_commit_loses_that_commit_and_nothing_else() {
    let crashed = crashed(6);
    let ends = crashed.commit_ends();
    let (last, before) = (ends[ends.len() - 1], ends[ends.len() - 2]);
    for cut in (before..last).step_by(509).chain([last - 1]) {
        assert_eq!(crashed.restart(|wal| wal.truncate(cut)).unwrap(), crashed.records(5), "cut at {cut}");
    }
    assert_eq!(crashed.restart(|wal| wal.truncate(last)).unwrap(), crashed.records(6));
}

#[test]
fn pages_of_a_last_commit_that_never_reached_the_disk_take_only_that_commit() {
    let crashed = crashed(6);
    let ends = crashed.commit_ends();
    let (last, before) = (ends[ends.len() - 1], ends[ends.len() - 2]);
    // The commit's own frame is there, one before it is not: what a power cut in the sync may leave.
    let lost = crashed.restart(|wal| wal[before..before + 512].fill(0)).unwrap();
    assert_eq!(lost, crashed.records(5));
    assert!(last - before > 2 * 512, "the last commit has more than one frame");
}

#[test]
fn a_bit_flipped_before_the_last_commit_refuses_the_start_and_names_the_file() {
    let crashed = crashed(12);
    let ends = crashed.commit_ends();
    let before_last = ends[ends.len() - 2];
    let mut rng = Rng::new(7);
    for _ in 0..200 {
        let (at, bit) = (rng.below(before_last as u64) as usize, rng.below(8));
        // The WAL's sequence number and the frame's own place in the file are told by its checksum too.
        match crashed.restart(|wal| wal[at] ^= 1 << bit) {
            Err(Fault::Damaged { file, .. }) => assert!(file.ends_with("log.db-wal"), "{}", file.display()),
            other => panic!("bit {bit} of byte {at}: {:?}", other.map(|records| records.len())),
        }
    }
}

#[test]
fn a_bit_flipped_in_the_last_commit_takes_at_most_that_commit() {
    let crashed = crashed(6);
    let ends = crashed.commit_ends();
    let (last, before) = (ends[ends.len() - 1], ends[ends.len() - 2]);
    let mut rng = Rng::new(8);
    for _ in 0..60 {
        let at = before + rng.below((last - before) as u64) as usize;
        assert_eq!(crashed.restart(|wal| wal[at] ^= 0x10).unwrap(), crashed.records(5), "byte {at}");
    }
}

#[test]
fn a_changed_record_is_told_with_its_file_and_id() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = DataDir::open(tmp.path()).unwrap();
    let mut log = SqliteLog::open(&dir, Durability::Fsync).unwrap();
    let batch = Pen::new(1).batch(&["a"], 50);
    log.append(&batch).unwrap();
    drop(log);
    let mut bytes = fs::read(dir.log_file()).unwrap();
    let text = b"comment 33 of a";
    let at = bytes.windows(text.len()).position(|w| w == text).unwrap();
    bytes[at + 3] ^= 1;
    fs::write(dir.log_file(), bytes).unwrap();
    let log = SqliteLog::open(&dir, Durability::Fsync).unwrap();
    let fault = read_all(&log).unwrap_err();
    assert!(matches!(&fault, Fault::Damaged { file, .. } if file.ends_with("log.db")), "{fault}");
    let id = batch[33].event_id();
    assert!(fault.to_string().contains(&id.to_string()), "{fault}");
}

#[test]
fn erased_text_is_not_in_any_file() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = DataDir::open(tmp.path()).unwrap();
    let mut log = SqliteLog::open(&dir, Durability::Fsync).unwrap();
    let batch = Pen::new(1).batch(&["a"], 50);
    log.append(&batch).unwrap();
    log.idle().unwrap();
    assert!(found(tmp.path(), b"comment 33 of a"), "the text is there to begin with");
    log.erase(&[batch[33].event_id()]).unwrap();
    log.idle().unwrap();
    assert!(!found(tmp.path(), b"comment 33 of a"));
    assert!(found(tmp.path(), b"comment 34 of a"));
}

fn found(dir: &Path, text: &[u8]) -> bool {
    let files = fs::read_dir(dir).unwrap().map(|f| fs::read(f.unwrap().path()).unwrap());
    files.into_iter().any(|bytes| bytes.windows(text.len()).any(|w| w == text))
}

#[test]
fn a_changed_checkpoint_is_told_and_never_given() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = DataDir::open(tmp.path()).unwrap();
    let whole = Checkpoint {
        at: Position::new(EventId::LIMIT - 1).unwrap(),
        log: b"the state of the log".into(),
        rooms: vec![(grandstand_core::names::RoomId::parse("a").unwrap(), b"the state of the room".into())],
    };
    for text in ["the state of the log", "the state of the room"] {
        let mut catalog = SqliteCatalog::open(&dir).unwrap();
        catalog.forget_checkpoints().unwrap();
        catalog.save_checkpoint(&whole).unwrap();
        drop(catalog);
        let mut bytes = fs::read(dir.catalog_file()).unwrap();
        let places: Vec<_> =
            (0..bytes.len() - text.len()).filter(|at| bytes[*at..].starts_with(text.as_bytes())).collect();
        assert!(!places.is_empty(), "{text} is in the file");
        places.iter().for_each(|at| bytes[*at] ^= 4);
        fs::write(dir.catalog_file(), bytes).unwrap();
        let mut catalog = SqliteCatalog::open(&dir).unwrap();
        let fault = catalog.load_checkpoint().unwrap_err();
        assert!(matches!(&fault, Fault::Damaged { file, .. } if file.ends_with("catalog.db")), "{fault}");
    }
}

#[test]
fn files_are_private_and_a_link_is_not_followed() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let tmp = tempfile::tempdir().unwrap();
    let dir = DataDir::open(tmp.path()).unwrap();
    let mut log = SqliteLog::open(&dir, Durability::Fsync).unwrap();
    let _catalog = SqliteCatalog::open(&dir).unwrap();
    log.append(&Pen::new(1).batch(&["a"], 1)).unwrap();
    for file in fs::read_dir(dir.path()).unwrap().map(Result::unwrap) {
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", file.file_name());
    }
    let other = tempfile::tempdir().unwrap();
    let linked = DataDir::open(other.path()).unwrap();
    symlink(dir.log_file(), linked.log_file()).unwrap();
    assert!(SqliteLog::open(&linked, Durability::Fsync).is_err());
}
