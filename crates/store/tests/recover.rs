//! An owner comes back to where its log stands, by the checkpoint or without it, and refuses what it cannot trust.

use std::time::Duration;

use grandstand_core::ids::{EventId, Position, Seq};
use grandstand_core::owner::{Owner, Settings};
use grandstand_core::reader::Reading;
use grandstand_core::time::{Mono, Wall};
use grandstand_store::catalog::{Catalog, Checkpoint};
use grandstand_store::conformance::Pen;
use grandstand_store::faulty::{Director, Faults, Faulty};
use grandstand_store::log::{Log, Retention};
use grandstand_store::memory::{MemoryCatalog, MemoryLog};
use grandstand_store::recover::{Behind, RecoverFault, Recovered, encode, recover};

fn owner() -> Owner {
    Owner::new(Settings { create_on_use: true, ..Settings::default() }, Mono(0), Wall(0))
}

/// A log of 40 batches over 20 minutes of log time, its live owner, and a checkpoint after the 30th.
fn lived() -> (MemoryLog, MemoryCatalog, Owner, Pen) {
    let (mut log, mut catalog, mut live, mut pen) = (MemoryLog::new(), MemoryCatalog::new(), owner(), Pen::new(3));
    for n in 0..40 {
        let mut batch = if n == 0 { pen.rooms(&["a", "b"]) } else { Vec::new() };
        batch.extend(pen.batch(&["a", "b"], 10));
        pen.ts += 30_000;
        log.append(&batch).unwrap();
        batch.iter().for_each(|record| assert_eq!(live.replay(record), Reading::Valid));
        if n % 10 == 9 && n < 39 {
            let (state, rooms) = live.take_checkpoint();
            catalog.save_checkpoint(&encode(&state, &rooms)).unwrap();
        }
    }
    (log, catalog, live, pen)
}

fn come_back(log: &MemoryLog, catalog: &mut dyn Catalog) -> Result<(Owner, Recovered), RecoverFault> {
    let mut back = owner();
    let recovered = recover(&mut back, &mut *log.reader().unwrap(), catalog, Behind::Refuse)?;
    Ok((back, recovered))
}

fn check_same(back: &mut Owner, live: &mut Owner) {
    assert_eq!(back.head(), live.head());
    assert_eq!(back.epochs(), live.epochs());
    let views = |owner: &Owner| owner.rooms().cloned().collect::<Vec<_>>();
    assert_eq!(views(live).len(), 2);
    assert_eq!(views(back), views(live));
}

#[test]
fn the_checkpoint_and_the_tail_are_the_whole() {
    let (log, mut catalog, mut live, _) = lived();
    let (mut back, recovered) = come_back(&log, &mut catalog).unwrap();
    check_same(&mut back, &mut live);
    assert_eq!((recovered.n_tail, recovered.n_void, recovered.n_holes), (100, 0, 0));
    // A batch every 30 s: ten minutes before the checkpoint are 20 or 21 of them.
    assert!((200..=210).contains(&recovered.n_keys), "{recovered:?}");
    assert_eq!(recovered.passed_over, None);
}

#[test]
fn the_log_alone_is_the_whole_too() {
    let (log, _, mut live, _) = lived();
    let (mut back, recovered) = come_back(&log, &mut MemoryCatalog::new()).unwrap();
    check_same(&mut back, &mut live);
    assert_eq!((recovered.checkpoint, recovered.n_tail, recovered.n_keys), (Position::START, 403, 0));
}

#[test]
fn a_damaged_checkpoint_costs_a_longer_read_and_nothing_else() {
    let (log, mut catalog, mut live, _) = lived();
    let whole = catalog.load_checkpoint().unwrap().unwrap();
    let mut damaged = whole.clone();
    damaged.rooms[0].1[9] ^= 1;
    let mut swapped = whole.clone();
    swapped.rooms[0].1 = whole.rooms[1].1.clone();
    let mut cut = whole.clone();
    cut.log.truncate(3);
    for bad in [damaged, swapped, cut] {
        catalog.forget_checkpoints().unwrap();
        catalog.save_checkpoint(&bad).unwrap();
        let (mut back, recovered) = come_back(&log, &mut catalog).unwrap();
        check_same(&mut back, &mut live);
        assert!(recovered.passed_over.is_some());
        assert_eq!(recovered.n_tail, 403);
    }
}

#[test]
fn a_log_that_ends_before_its_checkpoint_refuses_the_start() {
    let (log, mut catalog, mut live, mut pen) = lived();
    // The owner went on to a place that this log never reached.
    pen.batch(&["a"], 5).iter().for_each(|record| assert_eq!(live.replay(record), Reading::Valid));
    let ahead = live.head();
    let (state, rooms) = live.take_checkpoint();
    catalog.save_checkpoint(&encode(&state, &rooms)).unwrap();
    let fault = come_back(&log, &mut catalog).map(drop).unwrap_err();
    assert!(matches!(fault, RecoverFault::LogBehind { checkpoint, .. } if checkpoint == ahead), "{fault}");
    let mut back = owner();
    let recovered = recover(&mut back, &mut *log.reader().unwrap(), &mut catalog, Behind::ReadLog).unwrap();
    assert_eq!(recovered.highest, ahead, "the next epoch goes above what was lost");
    assert_eq!(recovered.head, log.head());
}

#[test]
fn another_logs_checkpoint_is_not_used() {
    let (log, mut catalog, mut live, _) = lived();
    let (mut other, mut owner_of_other) = (Pen::new(2), owner());
    other.batch(&["a"], 5).iter().for_each(|record| assert_eq!(owner_of_other.replay(record), Reading::Valid));
    let (state, rooms) = owner_of_other.take_checkpoint();
    catalog.forget_checkpoints().unwrap();
    catalog.save_checkpoint(&encode(&state, &rooms)).unwrap();
    let (mut back, recovered) = come_back(&log, &mut catalog).unwrap();
    check_same(&mut back, &mut live);
    assert!(recovered.passed_over.is_some());
}

#[test]
fn a_log_without_its_beginning_needs_a_checkpoint() {
    let (mut log, mut catalog, mut live, pen) = lived();
    let before = Wall(pen.ts) - Duration::from_secs(600);
    while log.retain(&Retention { bodies_before: &|_| Wall(0), headers_before: before }).unwrap().more {}
    let (mut back, _) = come_back(&log, &mut catalog).unwrap();
    check_same(&mut back, &mut live);
    catalog.forget_checkpoints().unwrap();
    let fault = come_back(&log, &mut catalog).map(drop).unwrap_err();
    assert!(matches!(fault, RecoverFault::NoCheckpoint { .. }), "{fault}");
}

#[test]
fn a_log_of_many_pages_is_read_to_its_end() {
    let (mut log, mut live, mut pen) = (MemoryLog::new(), owner(), Pen::new(1));
    let mut batch = pen.rooms(&["a", "b"]);
    for _ in 0..30 {
        batch.extend(pen.batch(&["a", "b"], 333));
        batch.iter().for_each(|record| assert_eq!(live.replay(record), Reading::Valid));
        log.append(&batch).unwrap();
        batch.clear();
    }
    let (mut back, recovered) = come_back(&log, &mut MemoryCatalog::new()).unwrap();
    check_same(&mut back, &mut live);
    assert_eq!(recovered.n_tail, 30 * 333 + 3);
}

#[test]
fn a_read_that_fails_half_way_stops_the_recovery() {
    let (mut log, mut pen) = (MemoryLog::new(), Pen::new(1));
    for _ in 0..10 {
        log.append(&pen.batch(&["a"], 1_000)).unwrap();
    }
    for seed in 0..20 {
        let director = Director::new(Faults { read_fail: 300, ..Faults::OFF }, seed, |_| {});
        let faulty = Faulty::new(log, &director);
        let done = recover(&mut owner(), &mut *faulty.reader().unwrap(), &mut MemoryCatalog::new(), Behind::Refuse);
        assert_eq!(done.is_err(), director.made().read_failures > 0, "{done:?}");
        log = faulty.into_inner();
    }
}

#[test]
fn an_empty_log_is_recovered_to_nothing() {
    let (back, recovered) = come_back(&MemoryLog::new(), &mut MemoryCatalog::new()).unwrap();
    assert_eq!((back.head(), recovered), (Position::START, Recovered::default()));
}

#[test]
fn a_checkpoint_is_bytes_of_its_position() {
    let (_, mut catalog, ..) = lived();
    let Checkpoint { at, rooms, .. } = catalog.load_checkpoint().unwrap().unwrap();
    assert_eq!(at.event_id().map(EventId::seq), Seq::new(302));
    assert_eq!(rooms.iter().map(|(room, _)| room.as_str()).collect::<Vec<_>>(), ["a", "b"]);
}
