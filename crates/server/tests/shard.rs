//! The shard with real threads: what is answered and shown, when, and what a restart keeps.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use grandstand_core::ids::{EventId, Position, Pseq};
use grandstand_core::names::{ClientMsgId, Key, RoomId, UserId};
use grandstand_core::owner::answer::Answer;
use grandstand_core::owner::command::{Author, Command, Publish, Standing};
use grandstand_core::record::{Lane, Record, RetractTarget, ScoreKind, ScoreState};
use grandstand_core::reject::Code;
use grandstand_core::revision::ScoreIn;
use grandstand_core::rooms::RoomChange;
use grandstand_core::sampler::switch::Sampling;
use grandstand_core::viewer::resume;
use grandstand_server::link::{
    Batch, ConnKey, Fetch, Mailbox, Page, Past, Piece, Read, ReadRefused, ReplyTo, Resumed, RoomInfo, ShardHandle,
    ToWorker, WorkerId, Workers,
};
use grandstand_server::shard::{self, OnFatal, ShardConfig, ShardJoin, Stores};
use grandstand_store::fault::{Fault, Refusal, WriteFault};
use grandstand_store::log::{Erasure, Log, LogReader, Retained, Retention, Step};
use grandstand_store::sqlite::{DataDir, Durability};

#[test]
fn a_publish_is_acked_and_reaches_each_subscribed_worker_once_in_id_order() {
    for stores in both_stores() {
        let shard = Shard::start(stores.open());
        shard.subscribe(0, "a");
        shard.subscribe(1, "a");
        shard.subscribe(1, "b");
        let first = shard.publish("a", "ann", "k1");
        let second = shard.publish("a", "bob", "k1");
        let other = shard.publish("b", "ann", "k1");
        let (zero, one) = (shard.batches(0, 2), shard.batches(1, 3));
        assert_eq!(ids(&zero), [first, second]);
        assert_eq!(ids(&one), [first, second, other]);
        let shared = one.iter().any(|batch| Arc::ptr_eq(batch, &zero[0]));
        assert!(shared, "workers share one batch");
        assert!(zero.iter().all(|batch| batch.room.as_str() == "a"), "a worker gets only the rooms it has viewers of");
        shard.join.stop();
    }
}

#[test]
fn a_subscription_is_answered_with_a_head_and_every_later_event_follows() {
    let shard = Shard::start(Stores::memory());
    let before = shard.publish("a", "ann", "k1");
    let info = shard.subscribe(0, "a");
    assert_eq!((info.head, info.last_event), (before.position(), before.position()));
    let after = shard.publish("a", "ann", "k2");
    assert_eq!(ids(&shard.batches(0, 1)), [after]);
    shard.handle.unsubscribe(WorkerId(0), room("a"));
    shard.publish("a", "ann", "k3");
    shard.settle();
    assert!(shard.taken(0).is_empty(), "nothing follows after the last viewer left");
    shard.join.stop();
}

#[test]
fn nothing_is_answered_or_shown_before_the_commit_returned() {
    let (log, gate) = gated();
    let shard = Shard::start(log);
    shard.subscribe(0, "a");
    let mut answer = shard.ask(publish("a", "ann", "k1"));
    gate.entered();
    // A query answered after the append began: whatever the owner would have sent is sent by then.
    shard.settle();
    assert!(answer.try_recv().is_err(), "no ack before the commit");
    assert!(shard.taken(0).is_empty(), "no batch before the commit");
    assert_eq!(shard.block(shard.handle.snapshot(room("a"), Position::START)).unwrap().recent.len(), 0);
    gate.finish(Ok(()));
    let id = published(&answer.blocking_recv().unwrap());
    assert_eq!(ids(&shard.batches(0, 1)), [id]);
    drop(gate);
    shard.join.stop();
}

#[test]
fn what_comes_while_a_commit_runs_leaves_in_one_batch_after_it() {
    let (log, gate) = gated();
    let shard = Shard::start(log);
    shard.subscribe(0, "a");
    let first = shard.ask(publish("a", "ann", "k1"));
    gate.entered();
    let rest: Vec<_> = (0..50).map(|n| shard.ask(publish("a", &format!("u{n}"), "k"))).collect();
    shard.settle();
    gate.finish(Ok(()));
    gate.entered();
    gate.finish(Ok(()));
    published(&first.blocking_recv().unwrap());
    let ids_acked: Vec<EventId> = rest.into_iter().map(|a| published(&a.blocking_recv().unwrap())).collect();
    let batches = shard.batches(0, 51);
    assert_eq!(batches.len(), 2, "the second commit held all that waited");
    assert_eq!(ids(&batches[1..]), ids_acked);
    drop(gate);
    shard.join.stop();
}

#[test]
fn a_full_store_refuses_with_no_space_serves_reads_and_takes_publishes_again_when_there_is_room() {
    let (log, gate) = gated();
    let mut config = config();
    config.times.probe = Duration::ZERO;
    let shard = Shard::start_with(log, config);
    let answer = shard.ask(publish("a", "ann", "k1"));
    gate.entered();
    gate.finish(Ok(()));
    let first = published(&answer.blocking_recv().unwrap());
    let answer = shard.ask(publish("a", "ann", "k2"));
    gate.entered();
    gate.finish(Err(WriteFault::Refused(Refusal::NoSpace)));
    assert_eq!(refused(&answer.blocking_recv().unwrap()), Code::NoSpace);
    assert!(shard.handle.status().no_space());
    assert_eq!(shard.block(shard.handle.snapshot(room("a"), Position::START)).unwrap().recent.len(), 1);
    assert_eq!(page_ids(&shard.resume("a", before(first)).unwrap().first), [first]);
    let answer = shard.ask(publish("a", "ann", "k2"));
    gate.entered();
    gate.finish(Ok(()));
    let second = published(&answer.blocking_recv().unwrap());
    assert_eq!(second.seq().value(), first.seq().value() + 1, "the refused commit left no hole");
    assert!(!shard.handle.status().no_space());
    drop(gate);
    shard.join.stop();
}

#[test]
fn a_failed_commit_is_refused_as_overloaded_and_the_same_key_may_come_again() {
    let (log, gate) = gated();
    let shard = Shard::start(log);
    let answer = shard.ask(publish("a", "ann", "k1"));
    gate.entered();
    gate.finish(Err(WriteFault::Failed(Fault::Injected("once"))));
    assert_eq!(refused(&answer.blocking_recv().unwrap()), Code::Overloaded);
    let answer = shard.ask(publish("a", "ann", "k1"));
    gate.entered();
    gate.finish(Ok(()));
    assert!(matches!(answer.blocking_recv().unwrap(), Answer::Published { duplicate: false, .. }));
    drop(gate);
    shard.join.stop();
}

#[test]
fn an_unknown_outcome_is_fatal_and_nobody_is_told_anything() {
    let (log, gate) = gated();
    let (said, heard) = mpsc::channel();
    let mut config = config();
    config.on_fatal = Arc::new(move |why: &str| said.send(why.to_owned()).unwrap()) as OnFatal;
    let shard = Shard::start_with(log, config);
    shard.subscribe(0, "a");
    let answer = shard.ask(publish("a", "ann", "k1"));
    gate.entered();
    gate.finish(Err(WriteFault::Unknown(Fault::Injected("fsync"))));
    assert!(heard.recv().unwrap().contains("reads its log again"));
    assert!(answer.blocking_recv().is_err(), "the outcome is not known, so none is told");
    assert!(shard.taken(0).is_empty());
    assert!(!shard.handle.status().ready());
    drop(gate);
    shard.join.stop();
}

#[test]
fn a_restart_keeps_ids_keys_slow_mode_and_scores() {
    for checkpointed in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let open = || open(dir.path());
        let mut config = config();
        if checkpointed {
            config.times.checkpoint_records = 1;
        }
        let shard = Shard::start_with(open(), config.clone());
        let slow = RoomChange { slow_mode_seconds: Some(600), matches: Some(vec![key("m")]), ..RoomChange::default() };
        let first = shard.publish("a", "ann", "k1");
        shard.answer(Command::PutRoom { room: room("a"), change: slow.into(), if_version: None });
        let slowed = shard.publish("a", "bob", "k1");
        let Answer::Score { accepted: true, event_id: goal, .. } = shard.answer(Command::Score(goal())) else {
            panic!("a first score is new")
        };
        shard.join.stop();

        let shard = Shard::start_with(open(), config.clone());
        let Answer::Published { event_id, duplicate, .. } = shard.answer(publish("a", "ann", "k1")) else {
            panic!("a repeated key gets the first answer")
        };
        assert_eq!((event_id, duplicate), (first, true));
        assert_eq!(refused(&shard.answer(publish("a", "bob", "k2"))), Code::SlowMode);
        let Answer::Score { accepted: false, event_id, .. } = shard.answer(Command::Score(goal_again())) else {
            panic!("a repeated score is answered as before")
        };
        assert_eq!(event_id, goal);
        let snapshot = shard.block(shard.handle.snapshot(room("a"), Position::START)).unwrap();
        assert_eq!(snapshot.scores.iter().map(|r| r.event_id()).collect::<Vec<_>>(), [goal]);
        assert_eq!(snapshot.recent.iter().map(|r| r.event_id()).collect::<Vec<_>>(), [first, slowed]);
        let next = shard.publish("b", "ann", "k1");
        assert!(next.epoch() > first.epoch(), "each start has its own epoch, so no id can come twice");
        shard.join.stop();
    }
}

#[test]
fn a_cursor_is_answered_from_the_log_with_all_that_follows_it() {
    for stores in both_stores() {
        let shard = Shard::start(stores.open());
        let sent: Vec<EventId> = (0..5).map(|n| shard.publish("a", &format!("u{n}"), "k")).collect();
        shard.publish("b", "ann", "k");
        let resumed = shard.resume("a", sent[1].position()).unwrap();
        assert!(matches!(resumed.answer, resume::Answer::Resumed { skipped: None, .. }));
        assert_eq!(page_ids(&resumed.first), sent[2..]);
        let again = shard.page("a", resumed.first.upto).unwrap();
        assert!(again.pieces.is_empty());
        let beyond = Position::new(sent[4].value() + 100).unwrap();
        let answer = shard.resume("a", beyond).unwrap().answer;
        assert!(matches!(answer, resume::Answer::SnapshotRequired { reason: resume::Reason::UnknownCursor, .. }));
        shard.join.stop();
    }
}

#[test]
fn a_ring_is_given_its_rooms_past_and_told_when_it_saw_what_the_log_does_not_hold() {
    for stores in both_stores() {
        let shard = Shard::start(stores.open());
        let start = shard.handle.status().head();
        let sent: Vec<EventId> = (0..5).map(|n| shard.publish("a", &format!("u{n}"), "k")).collect();
        let head = shard.publish("b", "ann", "k").position();
        let past = shard.past("a", sent[3].position(), head).unwrap();
        let ids: Vec<EventId> = past.pieces.iter().map(|piece| piece.id).collect();
        assert_eq!((&ids[..], past.after), (&sent[..4], Position::START), "the room has nothing older");
        let none = shard.past("a", start, head).unwrap();
        assert!(none.pieces.is_empty());
        let beyond = Position::new(head.value() + 1).unwrap();
        assert_eq!(shard.past("a", sent[3].position(), beyond).unwrap_err(), ReadRefused::Unknown);
        assert_eq!(shard.past("a", beyond, head).unwrap_err(), ReadRefused::Unknown);
        assert_eq!(shard.handle.status().reads(Read::Past), 2);
        shard.join.stop();
    }
}

#[test]
fn a_rooms_past_comes_in_pages_that_meet() {
    let shard = Shard::start(Stores::memory());
    let asked: Vec<_> = (0..1_100).map(|n| shard.ask(publish("a", &format!("u{n}"), "k"))).collect();
    let sent: Vec<EventId> = asked.into_iter().map(|a| published(&a.blocking_recv().unwrap())).collect();
    let (mut upto, head) = (sent[1_099].position(), shard.handle.status().head());
    let (mut seen, mut n_pages) = (Vec::new(), 0);
    while upto > Position::START {
        let past = shard.past("a", upto, head).unwrap();
        seen.extend(past.pieces.iter().rev().map(|piece| piece.id));
        upto = past.after;
        n_pages += 1;
    }
    seen.reverse();
    assert_eq!((seen, n_pages), (sent, 3));
    shard.join.stop();
}

#[test]
fn a_page_that_is_asked_from_within_a_window_holds_the_window_whole() {
    for kind in both_stores() {
        let shard = Shard::start(kind.open());
        let wide = RoomChange { sampling: Some(Sampling::Always), ..RoomChange::default() };
        shard.answer(Command::PutRoom { room: room("a"), change: wide.into(), if_version: None });
        // Five authors in flight together: they are in one window, or in few.
        let asked: Vec<_> = (0..5).map(|n| shard.ask(say("a", &format!("u{n}"), "k", &format!("text {n}")))).collect();
        for answer in asked {
            assert!(matches!(answer.blocking_recv().unwrap(), Answer::Raw { fate: None, .. }));
        }
        let winners = |page: &Page| -> Vec<(EventId, Option<u64>)> {
            page.pieces.iter().filter_map(|p| Some((p.id, Some(p.won.as_ref()?.window.0)))).collect()
        };
        let begun = Instant::now();
        let all = loop {
            let all = winners(&shard.page("a", Position::START).unwrap());
            if all.len() == 5 {
                break all;
            }
            assert!(begun.elapsed() < PATIENCE, "only {} of five are shown", all.len());
            std::thread::yield_now();
        };
        for (n, (id, window)) in all.iter().enumerate() {
            let is_within = all.get(n + 1).is_some_and(|(_, next)| next == window);
            let from = if is_within { all.iter().position(|(_, w)| w == window).unwrap() } else { n + 1 };
            let after = id.position();
            for told in [Position::START, after] {
                let page = winners(&shard.page_from("a", after, told).unwrap());
                assert_eq!(page, all[from..], "after the winner at {n}, told {told:?}");
            }
            // What was told otherwise is needed for the pick all the same.
            let page = winners(&shard.page_from("a", before(all[0].0), after).unwrap());
            assert_eq!(page, all[from..], "told up to the winner at {n}");
        }
        shard.join.stop();
    }
}

#[test]
fn a_retracted_comment_is_in_no_page_no_snapshot_and_no_older_page_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let open = || open(dir.path());
    let check = |shard: &Shard, kept: EventId, cursor: Position| {
        let resumed = shard.resume("a", cursor).unwrap();
        let comments = resumed.first.pieces.iter().filter(|p| p.lane == Lane::Comment).map(|p| p.id);
        assert_eq!(comments.collect::<Vec<_>>(), [kept]);
        let snapshot = shard.block(shard.handle.snapshot(room("a"), Position::START)).unwrap();
        assert_eq!(snapshot.recent.iter().map(|r| r.event_id()).collect::<Vec<_>>(), [kept]);
        let older = shard.block(shard.handle.older(room("a"), shard.handle.status().head(), 50)).unwrap();
        assert_eq!(older.iter().map(|p| p.id).collect::<Vec<_>>(), [kept]);
    };
    let shard = Shard::start(open());
    let cursor = shard.publish("b", "ann", "k").position();
    let gone = shard.publish("a", "ann", "k1");
    shard.publish("a", "bob", "k1");
    shard.publish("a", "bob", "k2");
    let kept = shard.publish("a", "cy", "k1");
    for target in [RetractTarget::Event(gone), RetractTarget::User(user("bob"))] {
        let answer = shard.answer(Command::Retract { room: room("a"), target, reason: "rules".into() });
        assert!(matches!(answer, Answer::Done { .. }), "{answer:?}");
    }
    check(&shard, kept, cursor);
    shard.join.stop();
    let shard = Shard::start(open());
    check(&shard, kept, cursor);
    shard.join.stop();
}

#[test]
fn an_export_holds_every_record_of_the_room_and_of_no_other() {
    for stores in both_stores() {
        let shard = Shard::start(stores.open());
        let mut sent = vec![shard.publish("a", "ann", "k1")];
        shard.publish("b", "ann", "k1");
        sent.push(shard.publish("a", "bob", "k1"));
        let page = shard.block(shard.handle.export(room("a"), Position::START)).unwrap();
        let comments = page.records.iter().filter(|r| r.lane() == Some(Lane::Comment)).map(|r| r.event_id());
        assert_eq!(comments.collect::<Vec<_>>(), sent);
        assert_eq!(page.upto, page.head);
        assert!(page.records.iter().all(|r| r.room == Some(room("a"))));
        shard.join.stop();
    }
}

#[test]
fn a_snapshot_is_never_older_than_asked() {
    let (log, gate) = gated();
    let shard = Shard::start(log);
    let answer = shard.ask(publish("a", "ann", "k1"));
    gate.entered();
    let min = Position::new(shard.handle.status().head().value() + 1).unwrap();
    let handle = shard.handle.clone();
    let asked = std::thread::spawn(move || block(handle.snapshot(room("a"), min)));
    shard.settle();
    gate.finish(Ok(()));
    let id = published(&answer.blocking_recv().unwrap());
    let snapshot = asked.join().unwrap().unwrap();
    assert_eq!(snapshot.as_of, id.position());
    drop(gate);
    shard.join.stop();
}

#[test]
fn a_room_that_nobody_made_is_not_there_where_rooms_are_not_made_on_use() {
    let mut config = config();
    config.create_on_use = false;
    let shard = Shard::start_with(Stores::memory(), config);
    shard.handle.subscribe(WorkerId(0), room("a"));
    assert!(matches!(shard.next(0), ToWorker::Room { found: Err(_), .. }));
    assert_eq!(refused(&shard.answer(publish("a", "ann", "k1"))), Code::NoRoom);
    assert_eq!(shard.resume("a", Position::START).unwrap_err(), ReadRefused::NoRoom);
    shard.join.stop();
}

#[test]
fn a_changed_setting_reaches_the_workers_after_the_batch_that_carries_it() {
    let shard = Shard::start(Stores::memory());
    shard.subscribe(0, "a");
    shard.publish("a", "ann", "k1");
    shard.batches(0, 1);
    assert!(matches!(shard.next(0), ToWorker::Settings(_)), "the first comment made the room");
    let change = RoomChange { slow_mode_seconds: Some(7), ..RoomChange::default() };
    let answer = shard.answer(Command::PutRoom { room: room("a"), change: change.into(), if_version: None });
    assert!(matches!(answer, Answer::Room { .. }), "{answer:?}");
    let ToWorker::Batch(batch) = shard.next(0) else { panic!("the event comes first") };
    assert_eq!((batch.pieces[0].kind, batch.pieces[0].pseq), ("config", Some(Pseq(1))));
    let ToWorker::Settings(info) = shard.next(0) else { panic!("then the settings") };
    assert_eq!((info.settings.slow_mode_seconds, info.pseq), (7, Pseq(1)));
    shard.join.stop();
}

#[test]
fn a_worker_that_missed_a_batch_is_told_to_resync_before_anything_newer() {
    let shard = Shard::start(Stores::memory());
    shard.subscribe(2, "a");
    // Worker 2's mailbox holds two items.
    for n in 0..4 {
        shard.publish("a", "ann", &format!("k{n}"));
    }
    shard.settle();
    let kept = shard.taken(2);
    assert_eq!(kept.len(), 2);
    let ToWorker::Resync(info) = shard.next(2) else { panic!("a resync follows what was kept") };
    assert_eq!(info.head, shard.handle.status().head());
    let after = shard.publish("a", "ann", "k9");
    let ToWorker::Batch(batch) = shard.next(2) else { panic!("batches go on after the resync") };
    assert_eq!(batch.pieces[0].id, after);
    shard.join.stop();
}

#[test]
fn a_subscription_that_found_a_full_mailbox_is_answered_when_there_is_room() {
    let shard = Shard::start(Stores::memory());
    for name in ["a", "b"] {
        shard.handle.subscribe(WorkerId(2), room(name));
    }
    shard.settle();
    // The site's banners and the first answer fill the mailbox.
    assert_eq!(shard.taken(2).len(), 2);
    let ToWorker::Room { room: answered, found: Ok(_) } = shard.next(2) else { panic!("the second answer comes late") };
    assert_eq!(answered, room("b"));
    shard.join.stop();
}

#[test]
fn without_publishes_a_full_store_is_taken_to_have_room_again_after_a_while() {
    let (log, gate) = gated();
    let mut config = config();
    config.times.probe = Duration::ZERO;
    config.times.probe_quiet = Duration::ZERO;
    let shard = Shard::start_with(log, config);
    let answer = shard.ask(publish("a", "ann", "k1"));
    gate.entered();
    gate.finish(Err(WriteFault::Refused(Refusal::NoSpace)));
    assert_eq!(refused(&answer.blocking_recv().unwrap()), Code::NoSpace);
    shard.settle();
    assert!(!shard.handle.status().no_space());
    drop(gate);
    shard.join.stop();
}

#[test]
fn stopping_finishes_what_was_admitted_and_refuses_the_rest() {
    let (log, gate) = gated();
    let shard = Shard::start(log);
    let admitted = shard.ask(publish("a", "ann", "k1"));
    gate.entered();
    let handle = shard.handle.clone();
    let stopping = std::thread::spawn(move || shard.join.stop());
    while handle.status().ready() {
        std::thread::yield_now();
    }
    gate.finish(Ok(()));
    drop(gate);
    published(&admitted.blocking_recv().unwrap());
    stopping.join().unwrap();
    assert!(block(handle.ask(publish("a", "ann", "k2"))).is_err(), "a stopped shard takes nothing");
}

// ---- the setting ------------------------------------------------------------------------------------------------

struct Shard {
    handle: ShardHandle,
    join: ShardJoin,
    boxes: Vec<WorkerBox>,
}

/// A worker's mailbox, its waker's other end, and what was taken out and not looked at.
type WorkerBox = (Arc<Mailbox<ToWorker>>, mpsc::Receiver<()>, Mutex<VecDeque<ToWorker>>);

const PATIENCE: Duration = Duration::from_secs(20);

impl Shard {
    fn start(stores: Stores) -> Shard {
        Shard::start_with(stores, config())
    }

    fn start_with(stores: Stores, config: ShardConfig) -> Shard {
        let workers = Workers::new(3);
        let boxes = (0..3).map(|n| {
            let (wake, woken) = mpsc::channel();
            let wake = Mutex::new(wake);
            let limit = if n == 2 { 2 } else { 10_000 };
            let mailbox = Arc::new(Mailbox::new(limit, move || {
                let _ = wake.lock().unwrap().send(());
            }));
            workers.set(WorkerId(n), mailbox.clone());
            (mailbox, woken, Mutex::new(VecDeque::new()))
        });
        let boxes = boxes.collect();
        let (handle, join) = shard::start(stores, config, workers).unwrap();
        Shard { handle, join, boxes }
    }

    /// What worker `n` has been sent and not been given out by `next`, without waiting.
    fn taken(&self, n: usize) -> VecDeque<ToWorker> {
        let mut items = std::mem::take(&mut *self.boxes[n].2.lock().unwrap());
        items.extend(self.boxes[n].0.take());
        items
    }

    fn next(&self, n: usize) -> ToWorker {
        let (mailbox, woken, held) = &self.boxes[n];
        loop {
            let mut held = held.lock().unwrap();
            held.extend(mailbox.take());
            if let Some(item) = held.pop_front() {
                return item;
            }
            drop(held);
            woken.recv_timeout(PATIENCE).expect("something comes");
        }
    }

    fn subscribe(&self, n: u32, name: &str) -> Arc<RoomInfo> {
        self.handle.subscribe(WorkerId(n), room(name));
        loop {
            if let ToWorker::Room { room: answered, found } = self.next(n as usize)
                && answered == room(name)
            {
                return found.unwrap();
            }
        }
    }

    /// Batches up to `n` events.
    fn batches(&self, worker: usize, n: usize) -> Vec<Arc<Batch>> {
        let mut batches: Vec<Arc<Batch>> = Vec::new();
        while batches.iter().map(|b| b.pieces.len()).sum::<usize>() < n {
            if let ToWorker::Batch(batch) = self.next(worker) {
                batches.push(batch);
            }
        }
        batches
    }

    fn ask(&self, command: Command) -> tokio::sync::oneshot::Receiver<Answer> {
        let (reply, answer) = tokio::sync::oneshot::channel();
        self.handle.command(ReplyTo::Oneshot(reply), command).unwrap();
        answer
    }

    fn answer(&self, command: Command) -> Answer {
        self.ask(command).blocking_recv().unwrap()
    }

    fn publish(&self, room: &str, user: &str, key: &str) -> EventId {
        published(&self.answer(publish(room, user, key)))
    }

    /// The owner has read all its mail up to here, and sent what it was to send.
    fn settle(&self) {
        for _ in 0..2 {
            let _ = self.block(self.handle.rooms());
        }
    }

    fn block<T>(&self, future: impl Future<Output = T>) -> T {
        block(future)
    }

    fn resume(&self, name: &str, cursor: Position) -> Result<Resumed, ReadRefused> {
        let conn = ConnKey { worker: WorkerId(0), slot: 0, generation: 0 };
        self.handle.fetch(Fetch::Resume { conn, request: 7, room: room(name), cursor }).unwrap();
        loop {
            if let ToWorker::Resume { request: 7, answer, .. } = self.next(0) {
                return answer;
            }
        }
    }

    fn past(&self, name: &str, upto: Position, seen: Position) -> Result<Past, ReadRefused> {
        self.handle.fetch(Fetch::Past { worker: WorkerId(0), request: 9, room: room(name), upto, seen }).unwrap();
        loop {
            if let ToWorker::Past { request: 9, answer, .. } = self.next(0) {
                return answer;
            }
        }
    }

    fn page(&self, name: &str, after: Position) -> Result<Page, ReadRefused> {
        self.page_from(name, after, Position::START)
    }

    fn page_from(&self, name: &str, after: Position, comments_from: Position) -> Result<Page, ReadRefused> {
        let conn = ConnKey { worker: WorkerId(0), slot: 0, generation: 0 };
        self.handle.fetch(Fetch::Page { conn, request: 8, room: room(name), after, comments_from }).unwrap();
        loop {
            if let ToWorker::Page { request: 8, answer, .. } = self.next(0) {
                return answer;
            }
        }
    }
}

fn block<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn open(path: &std::path::Path) -> Stores {
    Stores::open(&DataDir::open(path).unwrap(), Durability::Fsync, None).unwrap()
}

enum Kind {
    Memory,
    Sqlite(tempfile::TempDir),
}

impl Kind {
    fn open(&self) -> Stores {
        match self {
            Kind::Memory => Stores::memory(),
            Kind::Sqlite(dir) => open(dir.path()),
        }
    }
}

fn both_stores() -> [Kind; 2] {
    [Kind::Memory, Kind::Sqlite(tempfile::tempdir().unwrap())]
}

fn config() -> ShardConfig {
    let mut config = ShardConfig::embedded(true);
    config.on_fatal = Arc::new(|why: &str| panic!("{why}"));
    config
}

fn room(name: &str) -> RoomId {
    RoomId::parse(name).unwrap()
}

fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

fn key(name: &str) -> Key {
    Key::parse(name).unwrap()
}

fn before(id: EventId) -> Position {
    Position::new(id.value() - 1).unwrap()
}

fn publish(in_room: &str, by: &str, with_key: &str) -> Command {
    say(in_room, by, with_key, "hello")
}

fn say(in_room: &str, by: &str, with_key: &str, text: &str) -> Command {
    let author = Author { user: user(by), display: by.into(), badges: Arc::new([]), standing: Standing::Viewer };
    let client_msg_id = ClientMsgId::parse(with_key).unwrap();
    Command::Publish(Publish { room: room(in_room), author, client_msg_id, text: text.into(), reply_to: None })
}

fn goal() -> ScoreIn {
    ScoreIn {
        match_id: key("m"),
        provider: key("p"),
        event: key("g1"),
        revision: None,
        kind: ScoreKind::Goal,
        state: ScoreState::Confirmed,
        home: 1,
        away: 0,
        minute: Some("12".into()),
        historical: false,
        digest: [7; 16],
        data: None,
        room: None,
    }
}

fn goal_again() -> ScoreIn {
    goal()
}

fn published(answer: &Answer) -> EventId {
    match answer {
        Answer::Published { event_id, .. } => *event_id,
        other => panic!("not published: {other:?}"),
    }
}

fn refused(answer: &Answer) -> Code {
    match answer {
        Answer::Reject(reject) => reject.code,
        other => panic!("not refused: {other:?}"),
    }
}

fn ids(batches: &[Arc<Batch>]) -> Vec<EventId> {
    batches.iter().flat_map(|batch| batch.pieces.iter().map(|p| p.id)).collect()
}

fn page_ids(page: &Page) -> Vec<EventId> {
    page.pieces.iter().map(|piece: &Arc<Piece>| piece.id).collect()
}

/// A log whose every append but the first (EpochStart) waits for the test's word.
struct Gated {
    log: Box<dyn Log>,
    begun: bool,
    entered: mpsc::Sender<()>,
    finish: mpsc::Receiver<Result<(), WriteFault>>,
}

struct Gate {
    entered: mpsc::Receiver<()>,
    finish: mpsc::Sender<Result<(), WriteFault>>,
}

impl Gate {
    fn entered(&self) {
        self.entered.recv_timeout(PATIENCE).expect("an append begins");
    }
    fn finish(&self, result: Result<(), WriteFault>) {
        self.finish.send(result).unwrap();
    }
}

fn gated() -> (Stores, Gate) {
    let (to_test, entered) = mpsc::channel();
    let (finish, from_test) = mpsc::channel();
    let mut stores = Stores::memory();
    stores.log = Box::new(Gated { log: stores.log, begun: false, entered: to_test, finish: from_test });
    (stores, Gate { entered, finish })
}

impl Log for Gated {
    fn append(&mut self, records: &[Arc<Record>]) -> Result<(), WriteFault> {
        if std::mem::replace(&mut self.begun, true) {
            let _ = self.entered.send(());
            // Without a test that still speaks, the log is as any other.
            if let Ok(Err(fault)) = self.finish.recv() {
                return Err(fault);
            }
        }
        self.log.append(records)
    }
    fn head(&self) -> Position {
        self.log.head()
    }
    fn reader(&self) -> Result<Box<dyn LogReader>, Fault> {
        self.log.reader()
    }
    fn idle(&mut self) -> Result<(), WriteFault> {
        self.log.idle()
    }
    fn erase(&mut self, ids: &[EventId]) -> Result<usize, WriteFault> {
        self.log.erase(ids)
    }
    fn erasures(&self) -> Result<Vec<Erasure>, Fault> {
        self.log.erasures()
    }
    fn erase_user(&mut self, id: EventId) -> Result<Step, WriteFault> {
        self.log.erase_user(id)
    }
    fn retain(&mut self, rule: &Retention<'_>) -> Result<Retained, WriteFault> {
        self.log.retain(rule)
    }
    fn size_bytes(&self) -> u64 {
        self.log.size_bytes()
    }
    fn limit_bytes(&mut self, limit: Option<u64>) -> Result<(), Fault> {
        self.log.limit_bytes(limit)
    }
}
