//! The SQLite log and catalog keep the promises of their ports.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use grandstand_core::ids::Position;
use grandstand_core::names::{RoomId, UserId};
use grandstand_core::record::{Body, Record};
use grandstand_core::time::Wall;
use grandstand_store::catalog::{Catalog, Checkpoint};
use grandstand_store::conformance::{self, OpenCatalog, OpenLog, Pen};
use grandstand_store::faulty::{Director, Faults, Faulty};
use grandstand_store::log::{Log, Retention, Step};
use grandstand_store::sqlite::{DataDir, Durability, SqliteCatalog, SqliteLog};

/// A fresh data folder, removed when its last opener is dropped.
fn fresh() -> (Rc<tempfile::TempDir>, DataDir) {
    let tmp = tempfile::tempdir().unwrap();
    let dir = DataDir::open(tmp.path()).unwrap();
    (Rc::new(tmp), dir)
}

fn logs(durability: Durability) -> impl FnMut() -> OpenLog<'static> {
    move || {
        let (tmp, dir) = fresh();
        Box::new(move || -> Box<dyn Log> {
            let _kept = &tmp;
            Box::new(SqliteLog::open(&dir, durability).unwrap())
        })
    }
}

#[test]
fn the_log_keeps_its_promises() {
    conformance::log(&mut logs(Durability::Fsync));
}

#[test]
fn the_log_keeps_its_promises_when_synced_at_intervals_or_never() {
    conformance::log(&mut logs(Durability::Interval(Duration::ZERO)));
    conformance::log(&mut logs(Durability::None));
}

#[test]
fn the_catalog_keeps_its_promises() {
    conformance::catalog(&mut || -> OpenCatalog<'static> {
        let (tmp, dir) = fresh();
        Box::new(move || -> Box<dyn Catalog> {
            let _kept = &tmp;
            Box::new(SqliteCatalog::open(&dir).unwrap())
        })
    });
}

#[test]
fn a_wrapper_without_faults_changes_nothing() {
    let director = Director::new(Faults::OFF, 1, |_| panic!("no delay was asked for"));
    conformance::log(&mut || -> OpenLog<'static> {
        let ((tmp, dir), director) = (fresh(), director.clone());
        Box::new(move || -> Box<dyn Log> {
            let _kept = &tmp;
            Box::new(Faulty::new(SqliteLog::open(&dir, Durability::Fsync).unwrap(), &director))
        })
    });
}

/// Whether a file of the folder holds these bytes.
fn is_found(folder: &std::path::Path, needle: &str) -> bool {
    std::fs::read_dir(folder).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        path.is_file() && std::fs::read(&path).unwrap().windows(needle.len()).any(|w| w == needle.as_bytes())
    })
}

#[test]
fn no_byte_of_the_folder_is_left_of_who_was_erased_wherever_rows_were_moved_before() {
    let (tmp, dir) = fresh();
    let mut log = SqliteLog::open(&dir, Durability::Fsync).unwrap();
    let mut pen = Pen::new(3);
    let user = UserId::parse("marigold-7f3a").unwrap();
    let mut all: Vec<Arc<Record>> = Vec::new();
    for n in 0..60 {
        // Another's rows about each of the user's, of all lengths, so that pages are merged when they shrink.
        let mut batch = pen.batch(&["a", "b"], 40);
        for (at, record) in batch.iter_mut().enumerate().filter(|(at, _)| at % 7 == n % 7) {
            let mut said = (**record).clone();
            if let Body::Comment(comment) = &mut said.body {
                comment.text = "wintergreen ".repeat(1 + (at * n) % 900).into();
                comment.display = "Marigold".into();
                said.user = Some(user.clone());
            }
            *record = Arc::new(said);
        }
        log.append(&batch).unwrap();
        all.extend(batch);
    }
    // Retention shrinks half of what is there, and SQLite moves what is left of the user from page to page.
    let middle = all[all.len() / 2].ts;
    let of_a = RoomId::parse("a").unwrap();
    let bodies_before = |room: &RoomId| if *room == of_a { middle } else { Wall(0) };
    while log.retain(&Retention { bodies_before: &bodies_before, headers_before: all[100].ts }).unwrap().more {}
    let erase = pen.erase(&user);
    log.append(std::slice::from_ref(&erase)).unwrap();
    let needles = ["marigold-7f3a", "Marigold", "wintergreen"];
    assert!(needles.iter().all(|needle| is_found(tmp.path(), needle)));
    while log.erase_user(erase.event_id()).unwrap() != Step::Done {}
    log.idle().unwrap();
    for needle in needles {
        assert!(!is_found(tmp.path(), needle), "{needle} is found");
    }
    // The pages are whole, and the log goes on.
    log.append(&pen.batch(&["a"], 50)).unwrap();
    log.idle().unwrap();
    let integrity: String = rusqlite::Connection::open(dir.log_file())
        .unwrap()
        .query_row("PRAGMA integrity_check", [], |r| r.get(0))
        .unwrap();
    assert_eq!(integrity, "ok");
    assert!(!is_found(tmp.path(), "marigold-7f3a"));
}

#[test]
fn nothing_of_an_older_checkpoint_is_left_once_the_catalog_was_scrubbed() {
    let (tmp, dir) = fresh();
    let mut catalog = SqliteCatalog::open(&dir).unwrap();
    let part =
        |n: u64, text: &str| (RoomId::parse(&format!("r{n}")).unwrap(), text.repeat(1 + n as usize % 40).into_bytes());
    let at = |n: u64| Position::new(1 << 33 | n).unwrap();
    let rooms = |text: &str| (0..200).map(|n| part(n, text)).collect();
    catalog
        .save_checkpoint(&Checkpoint { at: at(1), log: b"wintergreen".to_vec(), rooms: rooms("wintergreen ") })
        .unwrap();
    catalog.save_checkpoint(&Checkpoint { at: at(2), log: b"x".to_vec(), rooms: rooms("x") }).unwrap();
    catalog.scrub().unwrap();
    assert!(!is_found(tmp.path(), "wintergreen"));
    assert_eq!(catalog.load_checkpoint().unwrap().unwrap().rooms.len(), 200);
}

/// Every stretch of a log held against its chain: how many records fit, and the first that does not.
fn verified(log: &SqliteLog) -> (u64, Option<u64>) {
    let (mut reader, mut from, mut n) = (log.reader().unwrap(), None, 0);
    loop {
        let found = reader.verify(from, 7).unwrap();
        (from, n) = (Some(found.upto), n + found.n);
        if !found.more || found.broken.is_some() {
            return (n, found.broken.map(|(id, _)| id.value()));
        }
    }
}

fn pen_after(last: &Record) -> Pen {
    let mut pen = Pen::new(1);
    (pen.epoch, pen.seq, pen.ts) = (last.epoch, last.seq.value() + 1, last.ts.0);
    pen
}

/// A log of 132 records, two of them starts of epochs in a folder of its own, closed.
fn chained() -> (Rc<tempfile::TempDir>, DataDir, Vec<Arc<Record>>) {
    let (tmp, dir) = fresh();
    let mut log = SqliteLog::open(&dir, Durability::Fsync).unwrap();
    let mut pen = Pen::new(3);
    let mut all = Vec::new();
    for n in [1, 39, 60] {
        let batch = pen.batch(&["a", "b"], n);
        log.append(&batch).unwrap();
        all.extend(batch);
    }
    pen.start(4);
    let batch = pen.batch(&["a"], 30);
    log.append(&batch).unwrap();
    all.extend(batch);
    log.idle().unwrap();
    (tmp, dir, all)
}

#[test]
fn the_chain_holds_over_restarts_erases_and_retention() {
    let (_tmp, dir, all) = chained();
    let mut log = SqliteLog::open(&dir, Durability::Fsync).unwrap();
    let n = all.len() as u64;
    assert_eq!(verified(&log), (n, None));
    log.erase(&[all[3].event_id(), all[50].event_id()]).unwrap();
    let mut pen = pen_after(all.last().unwrap());
    let user = all[60].user.clone().unwrap();
    let erase = pen.erase(&user);
    log.append(std::slice::from_ref(&erase)).unwrap();
    while log.erase_user(erase.event_id()).unwrap() != Step::Done {}
    assert_eq!(verified(&log), (n + 1, None), "what is rightly erased breaks no chain");
    let (all_bodies, some_headers) = (Wall(u64::MAX), all[40].ts);
    let rule = Retention { bodies_before: &|_| all_bodies, headers_before: some_headers };
    while log.retain(&rule).unwrap().more {}
    let (left, broken) = verified(&log);
    assert!(broken.is_none() && left < n && left > 60, "{left} of {n} are left: {broken:?}");
    drop(log);
    let mut log = SqliteLog::open(&dir, Durability::Fsync).unwrap();
    log.append(&pen.batch(&["a"], 5)).unwrap();
    assert_eq!(verified(&log), (left + 5, None));
}

#[test]
fn a_flipped_byte_a_row_taken_out_and_two_swapped_are_named_by_the_first_that_does_not_fit() {
    let id = |record: &Arc<Record>| record.event_id().value() as i64;
    type Row = (Vec<u8>, Vec<u8>);
    type Tamper = fn(&rusqlite::Connection, i64, i64);
    let tampers: [(&str, Tamper, usize); 6] = [
        ("a row is taken out", |db, a, _| assert_eq!(db.execute("DELETE FROM log WHERE id = ?1", [a]), Ok(1)), 21),
        (
            "two rows are swapped",
            |db, a, b| {
                let of = |id| {
                    db.query_row("SELECT bytes, link FROM log WHERE id = ?1", [id], |r| Ok((r.get(0)?, r.get(1)?)))
                };
                let (one, two): (Row, Row) = (of(a).unwrap(), of(b).unwrap());
                for (id, (bytes, link)) in [(a, two), (b, one)] {
                    let put = "UPDATE log SET bytes = ?2, link = ?3 WHERE id = ?1";
                    db.execute(put, rusqlite::params![id, bytes, link]).unwrap();
                }
            },
            20,
        ),
        (
            "a byte is flipped",
            |db, a, _| {
                let mut bytes: Vec<u8> =
                    db.query_row("SELECT bytes FROM log WHERE id = ?1", [a], |r| r.get(0)).unwrap();
                let at = bytes.len() / 2;
                bytes[at] ^= 1;
                db.execute("UPDATE log SET bytes = ?2 WHERE id = ?1", rusqlite::params![a, bytes]).unwrap();
            },
            20,
        ),
        (
            "another record is forged in its place",
            |db, a, _| {
                let bytes: Vec<u8> = db.query_row("SELECT bytes FROM log WHERE id = ?1", [a], |r| r.get(0)).unwrap();
                let mut forged = grandstand_wire::record::decode(&bytes).unwrap();
                if let Body::Comment(comment) = &mut forged.body {
                    comment.text = "what was never said".into();
                }
                let mut bytes = Vec::new();
                grandstand_wire::record::encode(&forged, &mut bytes);
                db.execute("UPDATE log SET bytes = ?2 WHERE id = ?1", rusqlite::params![a, bytes]).unwrap();
            },
            20,
        ),
        (
            "a link is taken off",
            |db, a, _| assert_eq!(db.execute("UPDATE log SET link = NULL WHERE id = ?1", [a]), Ok(1)),
            20,
        ),
        (
            "a link is cut short",
            |db, a, _| assert_eq!(db.execute("UPDATE log SET link = x'00' WHERE id = ?1", [a]), Ok(1)),
            20,
        ),
    ];
    for (what, tamper, first) in tampers {
        let (_tmp, dir, all) = chained();
        let db = rusqlite::Connection::open(dir.log_file()).unwrap();
        tamper(&db, id(&all[20]), id(&all[21]));
        drop(db);
        let log = SqliteLog::open(&dir, Durability::Fsync).unwrap();
        let (n, broken) = verified(&log);
        assert_eq!((n, broken), (first.min(20) as u64, Some(all[first].event_id().value())), "{what}");
    }
}

#[test]
fn a_log_from_before_there_was_a_chain_begins_one() {
    let (_tmp, dir, all) = chained();
    let db = rusqlite::Connection::open(dir.log_file()).unwrap();
    db.execute_batch("ALTER TABLE log DROP COLUMN link; ALTER TABLE state DROP COLUMN floor_link").unwrap();
    drop(db);
    let mut log = SqliteLog::open(&dir, Durability::Fsync).unwrap();
    let last = all.last().unwrap();
    let mut pen = pen_after(last);
    log.append(&pen.batch(&["a"], 9)).unwrap();
    assert_eq!(verified(&log), (9, None));
    drop(log);
    // A link cannot be taken off as if it had always been so.
    let db = rusqlite::Connection::open(dir.log_file()).unwrap();
    let after = last.event_id().value() as i64;
    db.execute("UPDATE log SET link = NULL WHERE id = ?1", [after + 3]).unwrap();
    drop(db);
    let log = SqliteLog::open(&dir, Durability::Fsync).unwrap();
    assert_eq!(verified(&log), (2, Some(after as u64 + 3)));
}
