//! The fault wrapper fails only as the port allows, and fails the same way for the same seed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use grandstand_core::ids::Position;
use grandstand_core::record::Record;
use grandstand_store::conformance::{self, Pen};
use grandstand_store::fault::WriteFault;
use grandstand_store::faulty::{Director, Faults, Faulty, Made};
use grandstand_store::log::{Log, LogReader, PAGE_ROWS_MAX};
use grandstand_store::memory::{MemoryDisk, MemoryLog};
use grandstand_store::sqlite::{DataDir, Durability, SqliteLog};
use proptest::prelude::{ProptestConfig, any, proptest};

const WRITES: Faults = Faults {
    delay: 100,
    delay_max: Duration::from_millis(20),
    no_space: 100,
    fail: 100,
    fail_after_success: 50,
    lost: 50,
    torn: 50,
    ..Faults::OFF
};

/// An owner that restarts after every unknown outcome. Returns the log at the end, the faults made and the time delayed.
fn run(seed: u64) -> (Vec<Arc<Record>>, Made, u64) {
    let delayed = Arc::new(AtomicU64::new(0));
    let clock = delayed.clone();
    let count = move |d: Duration| {
        clock.fetch_add(d.as_micros() as u64, Ordering::Relaxed);
    };
    let director = Director::new(WRITES, seed, count);
    let disk = MemoryDisk::default();
    let open = || Faulty::new(MemoryLog::open(&disk), &director);
    let (mut log, mut pen, mut acked) = (open(), Pen::new(1), Vec::new());
    for _ in 0..300 {
        let before = pen.clone();
        let batch = pen.batch(&["a", "b"], 5);
        let head = log.head();
        match log.append(&batch) {
            Ok(()) => acked.extend(batch),
            Err(fault) if fault.certainly_not_durable() => {
                assert_eq!(log.head(), head, "{fault} left nothing");
                pen = before;
            }
            Err(fault) => {
                let again = log.append(&batch).unwrap_err();
                assert!(matches!(again, WriteFault::Failed(_)), "after {fault} the handle writes no more: {again}");
                drop(log);
                log = open();
                let there = read_all(&mut *MemoryLog::open(&disk).reader().unwrap());
                assert_eq!(there[..acked.len()], acked, "{fault} took nothing that was acknowledged");
                let rest = &there[acked.len()..];
                assert_eq!(*rest, batch[..rest.len()], "{fault} left a prefix of its batch");
                acked = there;
                pen.start(log.head().event_id().map_or(1, |id| id.epoch().value() + 1));
            }
        }
    }
    let there = read_all(&mut *MemoryLog::open(&disk).reader().unwrap());
    assert_eq!(there, acked);
    (there, director.made(), delayed.load(Ordering::Relaxed))
}

#[test]
fn every_fault_is_one_the_port_allows() {
    let (_, made, delayed) = run(11);
    let kinds = [made.delays, made.no_space, made.failed, made.after_success, made.lost, made.torn];
    assert!(kinds.iter().all(|n| *n > 0) && delayed > 0, "every kind came: {made:?}");
}

#[test]
fn the_same_seed_makes_the_same_faults() {
    assert_eq!(run(5), run(5));
    assert_ne!(run(5).1, run(6).1);
}

#[test]
fn a_stale_reader_is_behind_and_never_wrong() {
    let director = Director::new(Faults { stale_read: 500, read_fail: 100, ..Faults::OFF }, 3, |_| {});
    let mut log = Faulty::new(MemoryLog::new(), &director);
    let mut reader = log.reader().unwrap();
    let (mut pen, mut all) = (Pen::new(1), Vec::new());
    let room = grandstand_core::names::RoomId::parse("a").unwrap();
    for _ in 0..200 {
        let batch = pen.batch(&["a"], 3);
        log.append(&batch).unwrap();
        all.extend(batch);
        let Ok(page) = reader.room_page(&room, Position::START, PAGE_ROWS_MAX) else { continue };
        assert!(page.head <= log.head());
        assert!(page.upto <= page.head);
        let expected: Vec<_> =
            all.iter().filter(|r| r.room.is_some() && r.event_id().position() <= page.upto).cloned().collect();
        assert_eq!(page.records, expected, "a page is whole up to where it says");
    }
    let made = director.made();
    assert!(made.stale_reads > 20 && made.read_failures > 5, "{made:?}");
}

fn read_all(reader: &mut dyn LogReader) -> Vec<Arc<Record>> {
    let (mut all, mut after) = (Vec::new(), Position::START);
    loop {
        let page = reader.scan(after, PAGE_ROWS_MAX).unwrap();
        let Some(last) = page.last() else { return all };
        after = last.event_id().position();
        all.extend(page);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn memory_and_sqlite_agree_with_a_vector(seed in any::<u64>(), steps in 1..80_usize) {
        let disk = MemoryDisk::default();
        conformance::a_model_agrees(&mut (Box::new(|| Box::new(MemoryLog::open(&disk)) as Box<dyn Log>) as _), seed, steps);
        let tmp = tempfile::tempdir().unwrap();
        let dir = DataDir::open(tmp.path()).unwrap();
        let open = || Box::new(SqliteLog::open(&dir, Durability::Fsync).unwrap()) as Box<dyn Log>;
        conformance::a_model_agrees(&mut (Box::new(open) as _), seed, steps);
    }
}
