//! An owner on storage that fails in every way the port allows: what was acknowledged is in the log, once, where it was said
//! to be.
//!
//! The smallest server there is: an owner, a faulty log and a catalog of checkpoints, and a client that sends each comment
//! again under its key until it is acknowledged, and now and then after that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use grandstand_core::ids::{EventId, Position};
use grandstand_core::names::{ClientMsgId, RoomId, UserId};
use grandstand_core::owner::answer::{Answer, Failure, Output};
use grandstand_core::owner::command::{Author, Command, Publish, Standing};
use grandstand_core::owner::{Owner, Settings};
use grandstand_core::reader::{Reader, Reading};
use grandstand_core::record::{Body, Record};
use grandstand_core::rng::Rng;
use grandstand_core::time::{Mono, Wall};
use grandstand_store::catalog::Catalog;
use grandstand_store::faulty::{Director, Faults, Faulty, Made};
use grandstand_store::log::{Log, PAGE_ROWS_MAX};
use grandstand_store::memory::{MemoryCatalog, MemoryDisk, MemoryLog};
use grandstand_store::recover::{Behind, RecoverFault, encode, recover};
use grandstand_store::sqlite::next_epoch;

const FAULTS: Faults = Faults {
    delay: 50,
    delay_max: Duration::from_millis(20),
    no_space: 60,
    fail: 60,
    fail_after_success: 40,
    lost: 40,
    torn: 40,
    read_fail: 20,
    ..Faults::OFF
};
const ROUNDS: u64 = 400;
const NEW_A_ROUND: u64 = 3;

/// A process comes up; one whose recovery could not read is started again.
fn start(disk: &MemoryDisk, director: &Director, catalog: &mut dyn Catalog) -> (Owner, Faulty<MemoryLog>) {
    loop {
        let log = Faulty::new(MemoryLog::open(disk), director);
        let mut owner = Owner::new(Settings { create_on_use: true, ..Settings::default() }, Mono(0), Wall(0));
        let Ok(mut reader) = log.reader() else { continue };
        match recover(&mut owner, &mut *reader, catalog, Behind::Refuse) {
            Ok(recovered) => {
                owner.start(next_epoch(recovered.head, Wall(0)).expect("few epochs are used"));
                return (owner, log);
            }
            Err(RecoverFault::Read(_)) => {}
            Err(fault) => panic!("{fault}"),
        }
    }
}

fn comment(n: u64) -> Command {
    Command::Publish(Publish {
        room: RoomId::parse("a").unwrap(),
        author: Author {
            user: UserId::parse("u").unwrap(),
            display: "u".into(),
            badges: [].into(),
            standing: Standing::Backend,
        },
        client_msg_id: ClientMsgId::parse(&n.to_string()).unwrap(),
        text: format!("comment {n}").into(),
        reply_to: None,
    })
}

/// What was acknowledged, the whole log, the faults made and the restarts.
fn run(seed: u64) -> (BTreeMap<u64, EventId>, Vec<Arc<Record>>, Made, u64) {
    let (disk, mut catalog) = (MemoryDisk::default(), MemoryCatalog::new());
    let director = Director::new(FAULTS, seed, |_| {});
    let (mut owner, mut log) = start(&disk, &director, &mut catalog);
    let (mut rng, mut acked, mut n_restarts) = (Rng::new(seed), BTreeMap::<u64, EventId>::new(), 0);
    for round in 0..ROUNDS {
        let (now, wall) = (Mono(round * 50_000), Wall(round * 50));
        // The comment's number is its tag too: one command of it is under way at a time.
        let sent = NEW_A_ROUND * (round + 1);
        let again = rng.below(sent);
        for n in (0..sent).filter(|n| *n == again || !acked.contains_key(n)) {
            owner.submit(n, comment(n), now, wall);
        }
        if let Some(batch) = owner.seal(now, wall) {
            match log.append(&batch) {
                Ok(()) => owner.on_committed(now, wall),
                Err(fault) if fault.certainly_not_durable() => owner.on_failed(Failure::Overloaded, now, wall),
                Err(_) => {
                    // Only the log knows. Nobody was answered.
                    n_restarts += 1;
                    (owner, log) = start(&disk, &director, &mut catalog);
                    continue;
                }
            }
        }
        while let Some(output) = owner.poll() {
            if let Output::Answer { tag: n, answer: Answer::Published { event_id, .. } } = output {
                let first = *acked.entry(n).or_insert(event_id);
                assert_eq!(first, event_id, "comment {n} is acknowledged as one event");
            }
        }
        if round % 20 == 19 {
            let (state, rooms) = owner.take_checkpoint();
            catalog.save_checkpoint(&encode(&state, &rooms)).unwrap();
        }
    }
    let mut reader = MemoryLog::open(&disk).reader().unwrap();
    let (mut all, mut after) = (Vec::new(), Position::START);
    loop {
        let page = reader.scan(after, PAGE_ROWS_MAX).unwrap();
        let Some(last) = page.last() else { break };
        after = last.event_id().position();
        all.extend(page);
    }
    (acked, all, director.made(), n_restarts)
}

#[test]
fn what_is_acknowledged_is_in_the_log_once_and_where_it_was_said_to_be() {
    for seed in 1..=24 {
        let (acked, all, made, n_restarts) = run(seed);
        assert!(acked.len() as u64 > ROUNDS * NEW_A_ROUND / 2, "seed {seed}: only {} acks", acked.len());
        assert!(n_restarts > 5, "seed {seed}: only {n_restarts} restarts");
        let each = [made.no_space, made.failed, made.after_success, made.lost, made.torn, made.read_failures];
        assert!(each.iter().all(|n| *n > 0), "seed {seed}: {made:?}");

        let mut reader = Reader::new();
        let mut found = BTreeMap::new();
        for record in &all {
            assert_eq!(reader.read(record), Reading::Valid, "seed {seed}: one owner's log has no void record");
            if let (Body::Comment(_), Some(key)) = (&record.body, &record.client_msg_id) {
                let before = found.insert(key.as_str().parse::<u64>().unwrap(), record.event_id());
                assert_eq!(before, None, "seed {seed}: comment {key:?} is there twice");
            }
        }
        for (n, event_id) in &acked {
            assert_eq!(found.get(n), Some(event_id), "seed {seed}: comment {n}");
        }
    }
}
