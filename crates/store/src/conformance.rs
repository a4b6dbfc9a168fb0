//! What every implementation of a port must do, as functions to be run against it.
//!
//! A suite is told how to make fresh storage and, through it, how to open that storage again: dropping a handle and opening the
//! next is the death and the restart of a process. Each function panics with the sentence that was broken.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use grandstand_core::ids::{Epoch, EpochSpan, EventId, Position, Pseq, Revision, Seq};
use grandstand_core::names::{ClientMsgId, Key, RoomId, UserId};
use grandstand_core::record::{
    Audience, Ban, Body, Comment, Lane, Record, Retract, RetractTarget, Room, Score, ScoreKind, ScoreState, Verdict,
};
use grandstand_core::rng::Rng;
use grandstand_core::time::Wall;

use crate::catalog::{Catalog, Checkpoint, RoomRow};
use crate::fault::{Refusal, WriteFault};
use crate::log::{
    COMMENTS_COUNTED_MAX, Erasure, Log, LogReader, PAGE_ROWS_MAX, Retained, Retention, RoomFacts, RoomPage, Step,
};

/// Opens one storage, as often as it is called; the handle before must be dropped first, except by the zombie.
pub type OpenLog<'a> = Box<dyn FnMut() -> Box<dyn Log> + 'a>;
pub type OpenCatalog<'a> = Box<dyn FnMut() -> Box<dyn Catalog> + 'a>;

/// Every promise of [`Log`] and [`LogReader`] against `fresh` storage.
pub fn log(fresh: &mut dyn FnMut() -> OpenLog<'static>) {
    appended_records_are_read_back_in_order_by_every_reader(&mut fresh());
    a_log_goes_on_where_it_stood_after_a_restart(&mut fresh());
    a_repeat_and_a_lower_epoch_are_refused_as_stale(&mut fresh());
    a_zombie_is_refused_by_the_log_itself(&mut fresh());
    a_hole_is_a_bug_and_is_not_written(&mut fresh());
    pages_hold_one_room_without_gaps(&mut fresh());
    pages_go_back_too(&mut fresh());
    all_of_a_room_is_read_back_too(&mut fresh());
    a_scan_of_a_room_holds_all_of_it_and_nothing_else(&mut fresh());
    facts_agree_with_the_records(&mut fresh());
    a_time_finds_its_position(&mut fresh());
    a_full_log_refuses_and_goes_on_when_there_is_room(&mut fresh());
    erased_bodies_are_gone_and_headers_stay(&mut fresh());
    retention_erases_then_deletes_and_keeps_the_head(&mut fresh());
    who_is_erased_is_named_nowhere_and_the_rest_stays(&mut fresh());
    an_erase_goes_on_after_a_restart(&mut fresh());
    for seed in 0..8 {
        a_model_agrees(&mut fresh(), seed, 60);
        erases_retention_and_restarts_agree_in_any_order(&mut fresh(), seed, 120);
    }
}

fn appended_records_are_read_back_in_order_by_every_reader(open: &mut OpenLog<'_>) {
    let mut log = open();
    let mut early = log.reader().unwrap();
    assert_eq!((log.head(), early.head().unwrap()), (Position::START, Position::START));
    log.append(&[]).unwrap();
    let mut pen = Pen::new(5);
    let (first, second) = (pen.batch(&["a", "b"], 7), pen.batch(&["a"], 2_500));
    log.append(&first).unwrap();
    log.append(&second).unwrap();
    let all: Vec<_> = first.iter().chain(&second).cloned().collect();
    assert_eq!(log.head(), all.last().unwrap().event_id().position());
    assert_eq!(read_all(&mut *early), all, "a reader opened before sees every append");
    assert_eq!(read_all(&mut *log.reader().unwrap()), all);
    let page = early.scan(first[3].event_id().position(), 2).unwrap();
    assert_eq!(page, all[4..6], "a page begins after the position and holds no more than asked");
    assert_eq!(early.scan(Position::START, usize::MAX).unwrap().len(), PAGE_ROWS_MAX, "a page is bounded");
    assert_eq!(early.scan(log.head(), 10).unwrap(), []);
}

fn a_log_goes_on_where_it_stood_after_a_restart(open: &mut OpenLog<'_>) {
    let mut pen = Pen::new(1);
    let mut all = Vec::new();
    for epoch in [1, 2, 9] {
        let mut log = open();
        assert_eq!(log.head(), all.last().map_or(Position::START, |r: &Arc<Record>| r.event_id().position()));
        pen.start(epoch);
        for _ in 0..3 {
            let batch = pen.batch(&["a", "b", "c"], 5);
            log.append(&batch).unwrap();
            all.extend(batch);
        }
        assert_eq!(read_all(&mut *log.reader().unwrap()), all);
    }
    let span = |epoch, last_seq| EpochSpan { epoch: Epoch::new(epoch).unwrap(), last_seq: Seq::new(last_seq).unwrap() };
    let spans = open().reader().unwrap().epochs().unwrap();
    assert_eq!(spans, [span(1, 15), span(2, 15), span(9, 15)], "every epoch is known with its last seq");
}

fn a_repeat_and_a_lower_epoch_are_refused_as_stale(open: &mut OpenLog<'_>) {
    let mut log = open();
    let mut pen = Pen::new(3);
    let batch = pen.batch(&["a"], 4);
    log.append(&batch).unwrap();
    let older = Pen::new(2).batch(&["a"], 1);
    for stale in [&batch[..], &batch[4..], &older[..]] {
        let fault = log.append(stale).unwrap_err();
        let first = stale[0].event_id().position();
        assert!(
            matches!(&fault, WriteFault::Refused(Refusal::Stale { head, first: f }) if *head == log.head() && *f == first),
            "{fault}"
        );
    }
    assert_eq!(read_all(&mut *log.reader().unwrap()), batch);
    log.append(&pen.batch(&["a"], 1)).unwrap();
}

fn a_zombie_is_refused_by_the_log_itself(open: &mut OpenLog<'_>) {
    let mut zombie = open();
    let mut old = Pen::new(1);
    zombie.append(&old.batch(&["a"], 2)).unwrap();
    let mut successor = open();
    let mut pen = Pen::new(2);
    successor.append(&pen.batch(&["a"], 1)).unwrap();
    let fault = zombie.append(&old.batch(&["a"], 1)).unwrap_err();
    assert!(matches!(fault, WriteFault::Refused(Refusal::Stale { .. })), "{fault}");
    let read = read_all(&mut *successor.reader().unwrap());
    assert_eq!(read.len(), 5, "2 comments and a start, then a start and a comment: {read:?}");
    successor.append(&pen.batch(&["a"], 1)).unwrap();
}

fn a_hole_is_a_bug_and_is_not_written(open: &mut OpenLog<'_>) {
    let mut log = open();
    let mut pen = Pen::new(1);
    let batch = pen.batch(&["a"], 3);
    log.append(&batch).unwrap();
    let next = pen.batch(&["a"], 3);
    let without_start = Pen { epoch: Epoch::new(2).unwrap(), seq: 7, ..Pen::new(1) }.batch(&["a"], 1);
    let torn: Vec<_> = [&next[0], &next[2]].map(Arc::clone).into();
    for holed in [&next[1..], &torn[..], &without_start[..]] {
        let outcome = catch_unwind(AssertUnwindSafe(|| log.append(holed)));
        assert!(outcome.is_err(), "a hole must not be accepted: {outcome:?}");
    }
    assert_eq!(read_all(&mut *log.reader().unwrap()), batch);
    log.append(&next).unwrap();
}

fn pages_hold_one_room_without_gaps(open: &mut OpenLog<'_>) {
    let mut log = open();
    let all = mixed(&mut *log, 400);
    let mut reader = log.reader().unwrap();
    for room in ["a", "b", "quiet", "never"].map(room) {
        let expected: Vec<_> = all.iter().filter(|r| r.room.as_ref() == Some(&room) && r.lane().is_some()).collect();
        for rows in [1, 7, 1_000] {
            let (mut got, mut after) = (Vec::new(), Position::START);
            loop {
                let page = reader.room_page(&room, after, rows).unwrap();
                assert!(page.records.len() <= rows, "a page holds no more than asked");
                assert!(page.records.iter().all(|r| (after..=page.upto).contains(&r.event_id().position())));
                got.extend(page.records);
                assert!(page.upto > after || page.upto == page.head, "a page that is not the last moves on");
                after = page.upto;
                if after == page.head {
                    break;
                }
            }
            assert_eq!(got.iter().collect::<Vec<_>>(), expected, "pages of {rows} of {room}");
        }
    }
    let beyond = Position::new(log.head().value() + 5).unwrap();
    let page = reader.room_page(&room("a"), beyond, 10).unwrap();
    assert_eq!((page.records.len(), page.upto), (0, beyond), "beyond the head there is nothing, and no way back");
}

fn a_scan_of_a_room_holds_all_of_it_and_nothing_else(open: &mut OpenLog<'_>) {
    let mut log = open();
    let mut pen = Pen::new(3);
    log.append(&pen.rooms(&["a", "b"])).unwrap();
    let erased = pen.comment("a");
    log.append(&[erased.clone(), pen.ban("a"), pen.unseen("a"), pen.comment("b"), pen.score("a")]).unwrap();
    log.append(&pen.batch(&["b"], 2_000)).unwrap();
    log.append(&[pen.retract("a")]).unwrap();
    log.erase(&[erased.event_id()]).unwrap();
    let mut reader = log.reader().unwrap();
    let all = read_all(&mut *reader);
    for name in ["a", "b", "quiet"] {
        let of_room: Vec<_> = all.iter().filter(|r| r.room == Some(room(name))).cloned().collect();
        let (mut found, mut after, mut n_pages) = (Vec::new(), Position::START, 0);
        while after < log.head() {
            let page = reader.room_scan(&room(name), after, 3).unwrap();
            assert!(page.records.len() <= 3 && page.head == log.head(), "a page holds no more than asked");
            assert!(page.upto > after, "a page of {name} goes on");
            (after, n_pages) = (page.upto, n_pages + 1);
            found.extend(page.records);
        }
        assert_eq!(found, of_room, "{name}");
        assert_eq!(n_pages, of_room.len().div_ceil(3).max(1), "what other rooms hold costs no page");
    }
    assert_eq!(reader.room_scan(&room("b"), Position::START, usize::MAX).unwrap().records.len(), PAGE_ROWS_MAX);
    let past = reader.room_scan(&room("a"), log.head(), 3).unwrap();
    assert_eq!((past.records.len(), past.upto), (0, log.head()));
}

fn all_of_a_room_is_read_back_too(open: &mut OpenLog<'_>) {
    let mut log = open();
    let mut pen = Pen::new(3);
    log.append(&pen.rooms(&["a", "b"])).unwrap();
    let erased = pen.comment("a");
    log.append(&[erased.clone(), pen.ban("a"), pen.unseen("a"), pen.comment("b"), pen.score("a")]).unwrap();
    log.append(&pen.batch(&["b"], 200)).unwrap();
    log.append(&[pen.ban("b"), pen.retract("a")]).unwrap();
    log.erase(&[erased.event_id()]).unwrap();
    let mut reader = log.reader().unwrap();
    let all = read_all(&mut *reader);
    let end = Position::new(EventId::LIMIT - 1).unwrap();
    type Page<'a> = dyn FnMut(Position) -> RoomPage + 'a;
    let back = |page: &mut Page<'_>| {
        let (mut got, mut before) = (Vec::new(), end);
        while before != Position::START {
            let page = page(before);
            assert!(page.records.len() <= 3 && page.upto < before, "a page back moves on");
            got.splice(0..0, page.records);
            before = page.upto;
        }
        got
    };
    let other = |r: &Record| r.lane().is_none() && !matches!(r.body, Body::Erased);
    for name in ["a", "b", "quiet"] {
        let of_room = || all.iter().filter(|r| r.room == Some(room(name)));
        let got = back(&mut |before| reader.room_scan_back(&room(name), before, 3).unwrap());
        assert_eq!(got, of_room().cloned().collect::<Vec<_>>(), "{name}");
        let got = back(&mut |before| reader.others_back(Some(&room(name)), before, 3).unwrap());
        assert_eq!(got, of_room().filter(|r| other(r)).cloned().collect::<Vec<_>>(), "others of {name}");
    }
    let got = back(&mut |before| reader.others_back(None, before, 3).unwrap());
    let others: Vec<_> = all.iter().filter(|r| r.room.is_some() && other(r)).cloned().collect();
    assert_eq!(got, others, "others of every room");
    assert!(others.len() > 3, "more than a page");
}

fn pages_go_back_too(open: &mut OpenLog<'_>) {
    let mut log = open();
    let all = mixed(&mut *log, 200);
    let mut reader = log.reader().unwrap();
    let room = room("a");
    let expected: Vec<_> =
        all.iter().filter(|r| r.room.as_ref() == Some(&room) && r.lane().is_some()).cloned().collect();
    let (mut got, mut before) = (Vec::new(), Position::new(EventId::LIMIT - 1).unwrap());
    while before != Position::START {
        let page = reader.room_page_back(&room, before, 9).unwrap();
        assert!(page.records.len() <= 9);
        got.splice(0..0, page.records);
        assert!(page.upto < before, "a page back moves on");
        before = page.upto;
    }
    assert_eq!(got, expected);
}

fn facts_agree_with_the_records(open: &mut OpenLog<'_>) {
    let mut log = open();
    let all = mixed(&mut *log, 1_500);
    let mut reader = log.reader().unwrap();
    for room in ["a", "b", "quiet", "never"].map(room) {
        let positions = || all.iter().map(|r| r.event_id().position()).chain([Position::START, log.head()]);
        for (after, upto) in positions().step_by(97).flat_map(|a| positions().step_by(301).map(move |u| (a, u))) {
            let facts = reader.room_facts(&room, after, upto).unwrap();
            assert_eq!(facts, facts_of(&all, &room, after, upto), "{room} in {after} .. {upto}");
            let comments = comments_of(&all, &room, after, upto);
            let newest = reader.newest_comments(&room, after, upto, 20).unwrap();
            assert_eq!(newest, comments[comments.len().saturating_sub(20)..], "{room} in {after} .. {upto}");
        }
    }
}

fn a_time_finds_its_position(open: &mut OpenLog<'_>) {
    let mut log = open();
    assert_eq!(log.reader().unwrap().before_ts(Wall(u64::MAX >> 1)).unwrap(), Position::START);
    let all = mixed(&mut *log, 300);
    let mut reader = log.reader().unwrap();
    for ts in (all[0].ts.0 - 2..all.last().unwrap().ts.0 + 3).map(Wall) {
        let older = all.iter().rfind(|r| r.ts < ts).map_or(Position::START, |r| r.event_id().position());
        assert_eq!(reader.before_ts(ts).unwrap(), older, "before {ts:?}");
    }
}

fn a_full_log_refuses_and_goes_on_when_there_is_room(open: &mut OpenLog<'_>) {
    let mut log = open();
    let mut pen = Pen::new(1);
    let mut all = pen.batch(&["a"], 10);
    log.append(&all).unwrap();
    log.limit_bytes(Some(log.size_bytes())).unwrap();
    let mut n_refused = 0;
    // What is free inside the pages may still be used, so the first refusal may take some appends to come.
    for _ in 0..200 {
        let kept = pen.clone();
        let batch = pen.batch(&["a", "new-room"], 20);
        match log.append(&batch) {
            Ok(()) => all.extend(batch),
            Err(WriteFault::Refused(Refusal::NoSpace)) => {
                (pen, n_refused) = (kept, n_refused + 1);
                if n_refused == 3 {
                    break;
                }
            }
            Err(other) => panic!("a full log refuses, and nothing else: {other}"),
        }
    }
    assert_eq!(n_refused, 3, "a log at its limit refuses");
    assert_eq!(
        read_all(&mut *log.reader().unwrap()),
        all,
        "what was refused left nothing, what was there stays readable"
    );
    log.limit_bytes(None).unwrap();
    let batch = pen.batch(&["a", "new-room"], 20);
    log.append(&batch).unwrap();
    all.extend(batch);
    assert_eq!(read_all(&mut *log.reader().unwrap()), all, "the ids of what was refused are given to what comes next");
    let page = log.reader().unwrap().room_page(&room("new-room"), Position::START, 1_000).unwrap();
    assert!(!page.records.is_empty(), "a room whose first batch was refused is found by its second");
}

fn erased_bodies_are_gone_and_headers_stay(open: &mut OpenLog<'_>) {
    let mut log = open();
    let all = mixed(&mut *log, 50);
    let comments: Vec<_> = all.iter().filter(|r| r.lane() == Some(Lane::Comment)).take(5).collect();
    let ids: Vec<_> = comments.iter().map(|r| r.event_id()).collect();
    assert_eq!(log.erase(&ids).unwrap(), 5);
    assert_eq!(log.erase(&ids).unwrap(), 0, "what is erased is not erased again");
    drop(log);
    let log = open();
    let mut reader = log.reader().unwrap();
    for (was, is) in all.iter().zip(read_all(&mut *reader)) {
        let erased = ids.contains(&was.event_id());
        let expected = if erased { Record { body: Body::Erased, ..(**was).clone() } } else { (**was).clone() };
        assert_eq!(*is, expected, "an erase takes the body and nothing else");
    }
    for room in ["a", "b", "quiet"].map(room) {
        let page = reader.room_page(&room, Position::START, 1_000).unwrap();
        assert!(page.records.iter().all(|r| !ids.contains(&r.event_id())), "no viewer is sent an erased record");
    }
    drop(reader);
    let mut log = log;
    let score = all.iter().find(|r| r.lane() == Some(Lane::Priority)).expect("a priority event").clone();
    log.erase(&[score.event_id()]).unwrap();
    let of_room = score.room.as_ref().expect("it is of a room");
    let mut reader = log.reader().unwrap();
    let page = reader.room_page(of_room, Position::START, 1_000).unwrap();
    let lost = page.records.iter().filter(|r| r.is_lost()).map(|r| r.event_id());
    assert!(lost.eq([score.event_id()]), "of a priority event that is erased it is known that it is missing");
    let place = score.event_id().position();
    let before = Position::new(place.value() - 1).expect("ids begin above START");
    let mut lost_between = |after, upto| reader.room_facts(of_room, after, upto).unwrap().last_lost;
    assert_eq!(lost_between(before, place), Some(score.event_id()));
    assert_eq!(
        lost_between(Position::START, page.records.last().expect("a page").event_id().position()),
        Some(score.event_id())
    );
    assert_eq!((lost_between(place, place), lost_between(Position::START, before)), (None, None));
}

fn who_is_erased_is_named_nowhere_and_the_rest_stays(open: &mut OpenLog<'_>) {
    let mut log = open();
    let (mut rng, mut pen) = (Rng::new(5), Pen::new(3));
    let mut all = Vec::new();
    while all.len() < 3_000 {
        let batch = pen.mixed_batch(&mut rng, 200);
        log.append(&batch).unwrap();
        all.extend(batch);
    }
    let user = UserId::parse("user-17").expect("a user id");
    assert_eq!(log.erasures().unwrap(), []);
    let erase = pen.erase(&user);
    // Said after it, so it stays.
    let again = Arc::new(Record { user: Some(user.clone()), ..(*pen.comment("a")).clone() });
    log.append(&[erase.clone(), again.clone()]).unwrap();
    let id = erase.event_id();
    assert_eq!(log.erasures().unwrap(), [Erasure { id, user: Some(user.clone()) }]);
    assert_eq!(erased(&mut *log, id), all.iter().filter(|r| r.names(&user)).count());
    assert_eq!(log.erase_user(id).unwrap(), Step::Done, "what is done is not done again");
    assert_eq!(log.erasures().unwrap(), []);
    let left = |r: &Record| r.without(&user).unwrap_or_else(|| r.clone());
    let mut expected: Vec<Record> = all.iter().map(|r| left(r)).collect();
    expected.push(Record { body: Body::Erased, ..(*erase).clone() });
    expected.push((*again).clone());
    drop(log);
    let log = open();
    let found = read_all(&mut *log.reader().unwrap());
    assert_eq!(found.iter().map(|r| (**r).clone()).collect::<Vec<_>>(), expected);
}

fn an_erase_goes_on_after_a_restart(open: &mut OpenLog<'_>) {
    let mut log = open();
    let all = mixed(&mut *log, 2_500);
    let last = all.last().expect("records");
    let mut pen = Pen { epoch: last.epoch, seq: last.seq.value() + 1, ts: last.ts.0, ..Pen::new(1) };
    let users = ["user-17", "user-18"].map(|name| UserId::parse(name).expect("a user id"));
    let erases = users.each_ref().map(|user| pen.erase(user));
    log.append(&erases).unwrap();
    // Dropped between any two steps.
    for erase in &erases {
        loop {
            let step = log.erase_user(erase.event_id()).unwrap();
            drop(log);
            log = open();
            if step == Step::Done {
                break;
            }
        }
    }
    assert_eq!(log.erasures().unwrap(), []);
    let found = read_all(&mut *log.reader().unwrap());
    assert!(found.iter().all(|r| users.iter().all(|user| !r.names(user))), "a restart forgets no part of an erase");
    assert_eq!(found.len(), all.len() + 2);
}

/// Appends, erases of users, retention and restarts by `seed`, a step at a time: in the end nobody who was erased is named before it,
/// nothing else is missing than what retention took, and the chain holds. For property tests too.
pub fn erases_retention_and_restarts_agree_in_any_order(open: &mut OpenLog<'_>, seed: u64, steps: usize) {
    let mut rng = Rng::new(seed);
    let mut log = open();
    let mut pen = Pen::new(1);
    let mut all: Vec<Arc<Record>> = Vec::new();
    let mut erased: Vec<(EventId, UserId)> = Vec::new();
    // Of `a` bodies older than this may be gone, and of all headers older than that.
    let (mut bodies, mut headers) = (Wall(0), Wall(0));
    for _ in 0..steps {
        match rng.below(12) {
            0 => {
                drop(log);
                log = open();
            }
            1 if pen.seq > 0 => {
                let user = UserId::parse(&format!("user-{}", rng.below(200))).expect("a user id");
                let record = pen.erase(&user);
                erased.push((record.event_id(), user));
                log.append(std::slice::from_ref(&record)).unwrap();
                all.push(record);
            }
            2..=4 => {
                if let Some(erasure) = log.erasures().unwrap().first() {
                    log.erase_user(erasure.id).unwrap();
                }
            }
            5 if !all.is_empty() => {
                let older = |rng: &mut Rng| all[rng.below(all.len() as u64) as usize].ts;
                (bodies, headers) =
                    (bodies.max(older(&mut rng)), headers.max(Wall(older(&mut rng).0.min(all[all.len() / 4].ts.0))));
                let of_a = room("a");
                let bodies_before = |of: &RoomId| if *of == of_a { bodies } else { Wall(0) };
                log.retain(&Retention { bodies_before: &bodies_before, headers_before: headers }).unwrap();
            }
            6 => log.idle().unwrap(),
            _ => {
                let batch = pen.mixed_batch(&mut rng, 60);
                log.append(&batch).unwrap();
                all.extend(batch);
            }
        }
    }
    while let Some(erasure) = log.erasures().unwrap().first() {
        log.erase_user(erasure.id).unwrap();
    }
    let mut reader = log.reader().unwrap();
    let found = read_all(&mut *reader);
    let floor = reader.floor().unwrap();
    let kept: Vec<_> = all.iter().filter(|r| r.event_id().position() > floor).collect();
    assert_eq!(found.len(), kept.len(), "only what is older than the floor is deleted");
    for (was, is) in kept.into_iter().zip(&found) {
        let id = was.event_id();
        let gone = erased.iter().filter(|(by, _)| id < *by).any(|(_, user)| was.names(user));
        let of_user = erased.iter().filter(|(by, _)| id < *by).any(|(_, user)| was.is_of(user));
        assert_eq!(is.event_id(), id);
        assert!(!of_user || is.user.is_none() && is.client_msg_id.is_none(), "{was:?} is still somebody's: {is:?}");
        assert!(!gone || matches!(is.body, Body::Erased), "{was:?} still names who was erased: {is:?}");
        let may_be_old = was.is_said() && was.room == Some(room("a")) && was.ts < bodies;
        let is_erase = matches!(was.body, Body::EraseUser(_));
        assert!(gone || may_be_old || is_erase || **is == **was, "{was:?} was to stay: {is:?}");
    }
    let mut from = None;
    loop {
        let verified = reader.verify(from, 50).unwrap();
        assert_eq!(verified.broken, None, "the chain holds");
        from = Some(verified.upto);
        if !verified.more {
            return;
        }
    }
}

/// Every step of an erase until it is done; records erased.
fn erased(log: &mut dyn Log, id: EventId) -> usize {
    let mut n = 0;
    loop {
        match log.erase_user(id).unwrap() {
            Step::More(erased) => n += erased,
            Step::Later => {}
            Step::Done => return n,
        }
    }
}

fn retention_erases_then_deletes_and_keeps_the_head(open: &mut OpenLog<'_>) {
    let mut log = open();
    let all = mixed(&mut *log, 1_300);
    let (middle, end) = (all[all.len() / 2].ts, all.last().unwrap().ts + std::time::Duration::from_secs(9));
    let quiet = room("quiet");
    let bodies_before = |of: &RoomId| if *of == quiet { Wall(0) } else { middle };
    let never = Wall(0);
    let erased: usize =
        all_of(&mut *log, &Retention { bodies_before: &bodies_before, headers_before: never }).map(|r| r.erased).sum();
    let due = |r: &Record| r.is_said() && r.room.as_ref() != Some(&quiet) && r.ts < middle;
    assert_eq!(erased, all.iter().filter(|r| due(r)).count());
    for (was, is) in all.iter().zip(read_all(&mut *log.reader().unwrap())) {
        assert_eq!(matches!(is.body, Body::Erased), due(was), "{was:?}");
    }
    let again = all_of(&mut *log, &Retention { bodies_before: &bodies_before, headers_before: never }).last();
    assert_eq!(again, Some(Retained::default()), "what is done is not done again");

    let gone: usize = all_of(&mut *log, &Retention { bodies_before: &bodies_before, headers_before: middle })
        .map(|r| r.deleted)
        .sum();
    let kept: Vec<_> = all.iter().filter(|r| r.ts >= middle).map(|r| r.event_id()).collect();
    assert_eq!(gone, all.len() - kept.len());
    let mut reader = log.reader().unwrap();
    assert_eq!(read_all(&mut *reader).iter().map(|r| r.event_id()).collect::<Vec<_>>(), kept);
    assert_eq!(reader.floor().unwrap(), all[gone - 1].event_id().position(), "the log says from where it is complete");
    assert_eq!(reader.before_ts(Wall(0)).unwrap(), reader.floor().unwrap());

    all_of(&mut *log, &Retention { bodies_before: &|_| end, headers_before: end }).for_each(drop);
    drop((reader, log));
    let mut log = open();
    let head = all.last().unwrap().event_id();
    assert_eq!(log.head(), head.position(), "a log never forgets where it stands");
    assert_eq!(log.reader().unwrap().scan(Position::START, 10).unwrap().len(), 1);
    let mut pen = Pen { epoch: head.epoch(), seq: head.seq().value() + 1, ts: end.0, ..Pen::new(1) };
    log.append(&pen.batch(&["a"], 3)).unwrap();
}

/// Appends, restarts and erases by `seed`, compared with a plain vector after each step. For property tests too.
pub fn a_model_agrees(open: &mut OpenLog<'_>, seed: u64, steps: usize) {
    let mut rng = Rng::new(seed);
    let mut log = open();
    let mut pen = Pen::new(1);
    let mut model: Vec<Arc<Record>> = Vec::new();
    for _ in 0..steps {
        match rng.below(12) {
            0 => {
                drop(log);
                log = open();
                pen.start(pen.epoch.value() + 1 + rng.below(3) as u32);
            }
            1 if !model.is_empty() => {
                let at = rng.below(model.len() as u64) as usize;
                let erasable = !matches!(model[at].body, Body::Erased | Body::EpochStart);
                assert_eq!(log.erase(&[model[at].event_id()]).unwrap(), usize::from(erasable));
                if erasable {
                    model[at] = Arc::new(Record { body: Body::Erased, ..(*model[at]).clone() });
                }
            }
            2 => log.idle().unwrap(),
            _ => {
                let batch = pen.mixed_batch(&mut rng, 12);
                log.append(&batch).unwrap();
                model.extend(batch);
            }
        }
        let mut reader = log.reader().unwrap();
        let head = model.last().map_or(Position::START, |r| r.event_id().position());
        assert_eq!((log.head(), reader.head().unwrap()), (head, head));
        let after = match model.len() {
            0 => Position::START,
            n => model[rng.below(n as u64) as usize].event_id().position(),
        };
        let rows = rng.below(40) as usize + 1;
        let expected: Vec<_> = model.iter().filter(|r| r.event_id().position() > after).take(rows).cloned().collect();
        assert_eq!(reader.scan(after, rows).unwrap(), expected);
        let room = room(["a", "b", "quiet"][rng.below(3) as usize]);
        let page = reader.room_page(&room, after, rows).unwrap();
        let expected: Vec<_> = model
            .iter()
            .filter(|r| r.room.as_ref() == Some(&room) && r.lane().is_some())
            .filter(|r| r.event_id().position() > after && r.event_id().position() <= page.upto)
            .cloned()
            .collect();
        assert_eq!(page.records, expected);
        let page = reader.room_scan(&room, after, rows).unwrap();
        let expected: Vec<_> = model
            .iter()
            .filter(|r| r.room.as_ref() == Some(&room))
            .filter(|r| r.event_id().position() > after && r.event_id().position() <= page.upto)
            .cloned()
            .collect();
        assert_eq!(page.records, expected, "all of the room, erased and control records too");
        assert!(page.upto == head || !page.records.is_empty(), "it goes on");
    }
    assert_eq!(read_all(&mut *log.reader().unwrap()), model);
}

/// Every promise of [`Catalog`] against `fresh` storage.
pub fn catalog(fresh: &mut dyn FnMut() -> OpenCatalog<'static>) {
    rooms_are_replaced_by_higher_versions_only(&mut fresh());
    a_checkpoint_is_read_back_whole_after_a_restart(&mut fresh());
    facts_are_kept(&mut fresh());
}

fn rooms_are_replaced_by_higher_versions_only(open: &mut OpenCatalog<'_>) {
    let mut catalog = open();
    let row = |name: &str, version, settings: &[u8]| RoomRow { room: room(name), version, settings: settings.into() };
    assert_eq!((catalog.rooms().unwrap(), catalog.room(&room("a")).unwrap()), (vec![], None));
    for row in [row("b", 1, b"x"), row("a", 1, b""), row("b", 3, &[0, 255])] {
        catalog.put_room(&row).unwrap();
    }
    for lower in [row("b", 3, b"other"), row("b", 2, b"other")] {
        let fault = catalog.put_room(&lower).unwrap_err();
        let refused = Refusal::OldVersion { stored: 3, given: lower.version };
        assert!(matches!(&fault, WriteFault::Refused(r) if *r == refused), "{fault}");
    }
    drop(catalog);
    let mut catalog = open();
    assert_eq!(catalog.rooms().unwrap(), [row("a", 1, b""), row("b", 3, &[0, 255])]);
    assert_eq!(catalog.room(&room("b")).unwrap(), Some(row("b", 3, &[0, 255])));
}

fn a_checkpoint_is_read_back_whole_after_a_restart(open: &mut OpenCatalog<'_>) {
    let mut catalog = open();
    let at = |seq| EventId::at(Epoch::new(4).unwrap(), Seq::new(seq).unwrap()).position();
    let part = |name: &str, bytes: &[u8]| (room(name), bytes.to_vec());
    assert_eq!(catalog.load_checkpoint().unwrap(), None);
    catalog
        .save_checkpoint(&Checkpoint { at: at(9), log: b"one".into(), rooms: vec![part("b", b"b1"), part("a", b"a1")] })
        .unwrap();
    catalog.save_checkpoint(&Checkpoint { at: at(20), log: b"two".into(), rooms: vec![part("b", b"b2")] }).unwrap();
    let fault = catalog.save_checkpoint(&Checkpoint { at: at(19), log: b"no".into(), rooms: vec![] }).unwrap_err();
    assert!(matches!(fault, WriteFault::Refused(Refusal::Stale { .. })), "{fault}");
    drop(catalog);
    let mut catalog = open();
    let newest = Checkpoint { at: at(20), log: b"two".into(), rooms: vec![part("a", b"a1"), part("b", b"b2")] };
    assert_eq!(catalog.load_checkpoint().unwrap(), Some(newest), "rooms that did not change keep their part");
    catalog.forget_checkpoints().unwrap();
    assert_eq!(catalog.load_checkpoint().unwrap(), None);
    catalog.save_checkpoint(&Checkpoint { at: at(1), log: vec![], rooms: vec![] }).unwrap();
    assert_eq!(catalog.load_checkpoint().unwrap().unwrap().rooms, [], "forgotten parts do not come back");
}

fn facts_are_kept(open: &mut OpenCatalog<'_>) {
    let mut catalog = open();
    assert_eq!(catalog.meta("k").unwrap(), None);
    catalog.put_meta("k", b"1").unwrap();
    catalog.put_meta("k", &[0, 1, 2]).unwrap();
    drop(catalog);
    assert_eq!(open().meta("k").unwrap(), Some(vec![0, 1, 2]));
}

/// Writes records with the ids that come next, as an owner would.
#[derive(Clone)]
pub struct Pen {
    pub epoch: Epoch,
    pub seq: u64,
    /// Log time of the next record; every third record moves it by one.
    pub ts: u64,
    pseq: BTreeMap<RoomId, u64>,
}

impl Pen {
    pub fn new(epoch: u32) -> Pen {
        let epoch = Epoch::new(epoch).expect("an epoch in range");
        Pen { epoch, seq: 0, ts: 1_800_000_000_000, pseq: BTreeMap::new() }
    }

    /// The next record is the start of this epoch.
    pub fn start(&mut self, epoch: u32) {
        (self.epoch, self.seq) = (Epoch::new(epoch).expect("an epoch in range"), 0);
    }

    /// `n` comments spread over `rooms`, with an EpochStart before them where one is due.
    pub fn batch(&mut self, rooms: &[&str], n: usize) -> Vec<Arc<Record>> {
        let mut records = self.due_start();
        records.extend((0..n).map(|i| self.comment(rooms[i % rooms.len()])));
        records
    }

    /// Up to `n` records of every kind in rooms `a`, `b` and (seldom) `quiet`.
    pub fn mixed_batch(&mut self, rng: &mut Rng, n: u64) -> Vec<Arc<Record>> {
        let mut records = self.due_start();
        for _ in 0..rng.below(n + 1) {
            let room = ["a", "b", "quiet"][[0, 0, 0, 0, 1, 1, 1, 2][rng.below(8) as usize]];
            records.push(match rng.below(10) {
                0 => self.score(room),
                1 => self.ban(room),
                2 => self.unseen(room),
                3 => self.retract(room),
                _ => self.comment(room),
            });
        }
        records
    }

    /// The records of rooms being made, with an EpochStart before them where one is due.
    pub fn rooms(&mut self, rooms: &[&str]) -> Vec<Arc<Record>> {
        let mut records = self.due_start();
        for room in rooms {
            let settings = Room { version: 1, ..Room::fresh(room) };
            records.push(Arc::new(self.next(Some(room), Body::Room(Arc::new(settings)))));
        }
        records
    }

    pub fn comment(&mut self, room: &str) -> Arc<Record> {
        let n = self.seq;
        let comment = Comment {
            display: format!("Viewer {}", n % 17).into(),
            badges: if n.is_multiple_of(5) { ["sub/12".into()].into() } else { [].into() },
            text: format!("comment {n} of {room}, as long as people write them: ⚽ what a save!").into(),
            reply_to: None,
            won: None,
            rule: None,
            shadowed: false,
        };
        let user = UserId::parse(&format!("user-{}", n % 200));
        let key = ClientMsgId::parse(&format!("key-{:?}-{n}", self.epoch.value()));
        Arc::new(Record { user, client_msg_id: key, ..self.next(Some(room), Body::Comment(comment)) })
    }

    pub fn score(&mut self, room: &str) -> Arc<Record> {
        let key = |text: &str| Key::parse(text).expect("a key");
        let score = Score {
            match_id: key("2022-final"),
            provider: key("opta"),
            event: key(&format!("e{}", self.seq)),
            revision: Revision(1),
            kind: ScoreKind::Goal,
            state: ScoreState::Confirmed,
            home: 3,
            away: 2,
            minute: Some("90+2".into()),
            superseded: false,
            historical: false,
            digest: [7; 16],
            data: None,
            shown: None,
        };
        self.priority(room, Body::Score(score))
    }

    fn retract(&mut self, room: &str) -> Arc<Record> {
        let target = EventId::at(self.epoch, Seq::new(self.seq / 2).expect("a lower seq"));
        self.priority(room, Body::Retract(Retract { target: RetractTarget::Event(target), reason: "rude".into() }))
    }

    fn priority(&mut self, room: &str, body: Body) -> Arc<Record> {
        let pseq = self.pseq.entry(RoomId::parse(room).expect("a room id")).or_default();
        *pseq += 1;
        let pseq = Some(Pseq(*pseq));
        Arc::new(Record { pseq, ..self.next(Some(room), body) })
    }

    /// Erases a user.
    pub fn erase(&mut self, user: &UserId) -> Arc<Record> {
        let by = UserId::parse("operator");
        Arc::new(Record { user: by, audience: Audience::Nobody, ..self.next(None, Body::EraseUser(user.clone())) })
    }

    fn ban(&mut self, room: &str) -> Arc<Record> {
        let user = UserId::parse("troll").expect("a user id");
        Arc::new(self.next(Some(room), Body::Ban(Ban { user, until: None, reason: "spam".into(), shadow: false })))
    }

    fn unseen(&mut self, room: &str) -> Arc<Record> {
        let comment = self.comment(room);
        Arc::new(Record { audience: Audience::Nobody, ..(*comment).clone() })
    }

    fn due_start(&mut self) -> Vec<Arc<Record>> {
        if self.seq > 0 { Vec::new() } else { vec![Arc::new(self.next(None, Body::EpochStart))] }
    }

    fn next(&mut self, room: Option<&str>, body: Body) -> Record {
        let seq = Seq::new(self.seq).expect("a test does not use up an epoch");
        self.seq += 1;
        self.ts += u64::from(self.seq.is_multiple_of(3));
        Record {
            epoch: self.epoch,
            seq,
            room: room.map(|r| RoomId::parse(r).expect("a room id")),
            ts: Wall(self.ts),
            region: "local".into(),
            user: None,
            client_msg_id: None,
            pseq: None,
            verdict: Verdict::Unjudged,
            policy_version: 1,
            audience: Audience::Everyone,
            source: None,
            body,
        }
    }
}

/// Appends batches of every kind of record, over two epochs, until there are `n`.
fn mixed(log: &mut dyn Log, n: usize) -> Vec<Arc<Record>> {
    let (mut rng, mut pen) = (Rng::new(n as u64), Pen::new(3));
    let mut all = Vec::new();
    while all.len() < n {
        if pen.epoch.value() == 3 && all.len() > n / 2 {
            pen.start(4);
        }
        let batch = pen.mixed_batch(&mut rng, 60);
        log.append(&batch).unwrap();
        all.extend(batch);
    }
    all
}

fn facts_of(all: &[Arc<Record>], room: &RoomId, after: Position, upto: Position) -> RoomFacts {
    let there = all.iter().filter(|r| r.room.as_ref() == Some(room) && r.event_id().position() <= upto);
    let served: Vec<_> = there.filter(|r| r.lane().is_some()).collect();
    let mut later = served.iter().filter(|r| r.event_id().position() > after);
    let comments = comments_of(all, room, after, upto);
    RoomFacts {
        head: all.last().map_or(Position::START, |r| r.event_id().position()),
        floor: Position::START,
        last_event: served.last().map_or(Position::START, |r| r.event_id().position()),
        first_priority: later
            .find(|r| r.lane() == Some(Lane::Priority))
            .map(|r| (r.event_id(), r.pseq.expect("priority records are numbered"), r.ts)),
        last_lost: None,
        first_comment: comments.first().copied(),
        n_comments: (comments.len() as u64).min(COMMENTS_COUNTED_MAX),
    }
}

fn comments_of(all: &[Arc<Record>], room: &RoomId, after: Position, upto: Position) -> Vec<(EventId, Wall)> {
    let of_room = all.iter().filter(|r| r.room.as_ref() == Some(room) && r.lane() == Some(Lane::Comment));
    of_room.map(|r| (r.event_id(), r.ts)).filter(|(id, _)| id.position() > after && id.position() <= upto).collect()
}

/// Every step of a retention until there is no more to do.
fn all_of<'a>(log: &'a mut dyn Log, rule: &'a Retention<'a>) -> impl Iterator<Item = Retained> + 'a {
    let mut more = true;
    std::iter::from_fn(move || {
        let step = more.then(|| log.retain(rule).unwrap())?;
        more = step.more;
        Some(step)
    })
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

fn room(name: &str) -> RoomId {
    RoomId::parse(name).expect("a room id")
}
