//! Resume, ring and walk together against a model: whatever happens to the viewers, each can account for every event.
//!
//! The model is the whole list of events. Each frame a viewer is given must, with what it tells as skipped, cover exactly what
//! lies between its old place and its new one. Lost frames are resumed from what the client really has.

use std::collections::BTreeSet;
use std::time::Duration;

use grandstand_core::ids::{Epoch, EpochSpan, EventId, Position, Pseq, Seq};
use grandstand_core::record::Lane;
use grandstand_core::time::Mono;
use grandstand_core::viewer::resume::{self, Answer, COMMENTS_MAX, Facts, Priority, Reason};
use grandstand_core::viewer::ring::{self, Entry, Rejoin, Ring};
use grandstand_core::viewer::walk::{Limits, Place, Skipped, Step, Walk};
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::test_runner::{Config, TestRunner};

const WINDOW: Duration = Duration::from_secs(20);
const VIEWERS: usize = 3;
const PAGE_ROWS: usize = 5;

#[derive(Clone, Debug)]
enum Act {
    Comments(u16),
    Private,
    Priority {
        closes: bool,
    },
    OtherRoom,
    NewEpoch,
    /// Milliseconds.
    Wait(u32),
    /// Up to this many frames leave for one viewer.
    Serve(usize, u8),
    /// The connection breaks; the last so many frames never arrived.
    Break(usize, u8),
    Resume(usize),
    Follow(usize),
    /// The ring is given so many events of its past.
    Back(u8),
    /// So many events never reach the ring, which then begins anew and is joined to what it was, a page at a time.
    Missed(u8, u8),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let viewer = 0..VIEWERS;
    let act = prop_oneof![
        6 => (1u16..4).prop_map(Act::Comments),
        1 => (100u16..700).prop_map(Act::Comments),
        1 => Just(Act::Private),
        4 => any::<bool>().prop_map(|closes| Act::Priority { closes }),
        2 => Just(Act::OtherRoom),
        1 => Just(Act::NewEpoch),
        5 => (0u32..3_000).prop_map(Act::Wait),
        1 => (9_000u32..40_000).prop_map(Act::Wait),
        8 => (viewer.clone(), 1u8..5).prop_map(|(v, n)| Act::Serve(v, n)),
        3 => (viewer.clone(), 0u8..3).prop_map(|(v, n)| Act::Break(v, n)),
        4 => viewer.clone().prop_map(Act::Resume),
        2 => viewer.prop_map(Act::Follow),
        2 => (1u8..60).prop_map(Act::Back),
        2 => (0u8..30, 1u8..12).prop_map(|(n, rows)| Act::Missed(n, rows)),
    ];
    proptest::collection::vec(act, 1..120)
}

#[derive(Clone, Debug)]
struct Event {
    id: EventId,
    lane: Lane,
    private: bool,
    pseq: Option<Pseq>,
    at: Mono,
}

impl Event {
    fn is_public_comment(&self) -> bool {
        self.lane == Lane::Comment && !self.private
    }
}

/// What the client of one viewer has of one frame: the events, and the comments it was told about.
#[derive(Clone, Debug)]
struct Frame {
    events: Vec<EventId>,
    told: Vec<EventId>,
    cursor: Position,
}

#[derive(Clone, Debug, Default)]
struct Viewer {
    place: Option<Place>,
    begun: Option<Position>,
    frames: Vec<Frame>,
    /// (from, to]: what a snapshot stands for.
    jumped: Vec<(Position, Position)>,
}

struct World {
    now: Mono,
    epoch: u32,
    seq: u64,
    ended: Vec<EpochSpan>,
    pseq: Pseq,
    events: Vec<Event>,
    ring: Ring<()>,
    limits: Limits,
    viewers: Vec<Viewer>,
}

fn entry(event: &Event) -> Entry<()> {
    let Event { id, lane, private, pseq, at } = *event;
    Entry { id, lane, closes_window: false, private, pseq, won: None, at, bytes: 100, payload: () }
}

impl World {
    fn new() -> World {
        let mut world = World {
            now: Mono(0),
            epoch: 7,
            seq: 3,
            ended: Vec::new(),
            pseq: Pseq(0),
            events: Vec::new(),
            ring: Ring::new(Position::START, Pseq(0), ring::Limits::default()),
            // Small frames, so that plans are cut.
            limits: Limits { plan_bytes: 1_000, ..Limits::default() },
            viewers: vec![Viewer::default(); VIEWERS],
        };
        let limits = ring::Limits { bytes: 20_000, ..ring::Limits::default() };
        world.ring = Ring::new(world.head(), Pseq(0), limits);
        world
    }

    fn id(&self) -> EventId {
        EventId::at(Epoch::new(self.epoch).unwrap(), Seq::new(self.seq).unwrap())
    }
    fn head(&self) -> Position {
        self.id().position()
    }
    fn span(&self) -> EpochSpan {
        EpochSpan { epoch: self.id().epoch(), last_seq: self.id().seq() }
    }

    fn append(&mut self, lane: Lane, private: bool, closes_window: bool) {
        self.record(lane, private);
        let event = self.events.last().expect("it was just recorded");
        self.ring.push(Entry { closes_window, ..entry(event) });
    }

    fn record(&mut self, lane: Lane, private: bool) {
        self.seq += 1;
        let pseq = (lane == Lane::Priority).then(|| self.pseq.next());
        self.pseq = pseq.unwrap_or(self.pseq);
        let (id, at) = (self.id(), self.now);
        self.events.push(Event { id, lane, private, pseq, at });
    }

    /// The ring's past, a page of so many events.
    fn back(&mut self, rows: usize) {
        let floor = self.ring.floor();
        let known = &self.events[..self.events.partition_point(|e| e.id.position() <= floor)];
        let page = &known[known.len().saturating_sub(rows)..];
        let before = |e: &Event| Position::new(e.id.value() - 1).expect("one less than an id is a position");
        let after = page.first().filter(|_| page.len() == rows).map_or(Position::START, before);
        let page: Vec<_> = page.iter().map(entry).collect();
        assert!(self.ring.extend_back(after, page), "the log's own past joins");
    }

    fn miss(&mut self, n: u8, rows: usize) {
        let last = self.events.last().map_or(Position::START, |e| e.id.position());
        for n in 0..n {
            self.record(if n % 3 == 0 { Lane::Priority } else { Lane::Comment }, n % 5 == 4);
        }
        let newest = self.events.last().map_or(Position::START, |e| e.id.position());
        let how = ring::rejoin(&self.ring, last, self.head(), newest, self.pseq);
        assert_eq!(how, if n == 0 { Rejoin::Whole } else { Rejoin::Gap });
        let limits = ring::Limits { bytes: 20_000, ..ring::Limits::default() };
        let anew = Ring::new(self.head(), self.pseq, limits);
        let old = std::mem::replace(&mut self.ring, anew);
        while self.ring.floor() > old.head() {
            assert!(!self.ring.join(old.clone()), "it would leave a hole");
            self.back(rows);
        }
        let floor = self.ring.floor().min(old.floor());
        assert!(self.ring.join(old));
        assert_eq!(self.ring.floor(), floor);
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Comments(n) => (0..n).for_each(|_| self.append(Lane::Comment, false, false)),
            Act::Private => self.append(Lane::Comment, true, false),
            Act::Priority { closes } => self.append(Lane::Priority, false, closes),
            Act::OtherRoom => {
                self.seq += 1;
                self.ring.advance(self.head());
            }
            Act::NewEpoch => {
                self.ended.push(self.span());
                (self.epoch, self.seq) = (self.epoch + 1, 0);
            }
            Act::Wait(ms) => {
                self.now = self.now + Duration::from_millis(ms.into());
                self.ring.trim(self.now);
            }
            Act::Serve(v, frames) => self.serve(v, frames.into()),
            Act::Break(v, lost) => {
                let viewer = &mut self.viewers[v];
                viewer.place = None;
                // The first frame of a stream is its hello: without it there is no stream to break.
                let keep = viewer.frames.len().saturating_sub(lost.into()).max(1.min(viewer.frames.len()));
                viewer.frames.truncate(keep);
            }
            Act::Resume(v) => self.resume(v),
            Act::Follow(v) => self.follow(v),
            Act::Back(rows) => self.back(rows.into()),
            Act::Missed(n, rows) => self.miss(n, rows.into()),
        }
    }

    /// A viewer that never was here comes in without a cursor.
    fn follow(&mut self, v: usize) {
        if self.viewers[v].begun.is_some() {
            return;
        }
        let answer = resume::resume_from(Position::START, &self.facts(Position::START, &self.epochs()), Vec::new);
        assert_eq!(answer, Answer::Live { from: self.head(), pseq: self.pseq });
        let cursor = self.head();
        self.viewers[v] = Viewer {
            place: Some(answer.place()),
            begun: Some(cursor),
            frames: vec![Frame { events: vec![], told: vec![], cursor }],
            jumped: vec![],
        };
    }

    fn epochs(&self) -> Vec<EpochSpan> {
        self.ended.iter().copied().chain([self.span()]).collect()
    }

    fn after(&self, position: Position) -> &[Event] {
        &self.events[self.events.partition_point(|e| e.id.position() <= position)..]
    }

    fn facts<'e>(&self, cursor: Position, epochs: &'e [EpochSpan]) -> Facts<'e> {
        let after = self.after(cursor);
        let age = |e: &Event| self.now.since(e.at);
        let mut comments = after.iter().filter(|e| e.is_public_comment());
        let n_comments = comments.clone().count() as u64;
        let first = after.iter().find(|e| e.lane == Lane::Priority);
        Facts {
            head: self.head(),
            epochs,
            complete_after: Position::START,
            last_event: self.events.last().map_or(Position::START, |e| e.id.position()),
            pseq: self.pseq,
            first_priority: first.map(|e| Priority { id: e.id, pseq: e.pseq.unwrap(), age: age(e) }),
            first_comment: comments.next().map(|e| (e.id, age(e))),
            n_comments,
            window: WINDOW,
            wide_from: None,
        }
    }

    fn resume(&mut self, v: usize) {
        if self.viewers[v].place.is_some() || self.viewers[v].begun.is_none() {
            return;
        }
        let cursor = self.viewers[v].frames.last().expect("a hello came").cursor;
        let newest = || {
            let all: Vec<_> = self.after(cursor).iter().filter(|e| e.is_public_comment()).collect();
            let from = all.len().saturating_sub(COMMENTS_MAX + 1);
            all[from..].iter().map(|e| (e.id, self.now.since(e.at))).collect()
        };
        let by_log = resume::resume_from(cursor, &self.facts(cursor, &self.epochs()), newest);
        if let Some(by_ring) = resume::from_ring(&self.ring, cursor, WINDOW, self.now, &self.ended) {
            // The ring's head may be behind the log's by records of other rooms; else the two agree.
            assert_eq!(by_ring.baseline().1, by_log.baseline().1, "ring and log agree on the baseline");
            assert_eq!(
                matches!(by_ring, Answer::Resumed { .. }),
                matches!(by_log, Answer::Resumed { .. }),
                "ring and log agree: {by_ring:?} {by_log:?}"
            );
        }
        let mut told = Vec::new();
        match by_log {
            Answer::Live { .. } => panic!("a cursor was given"),
            Answer::Resumed { from, pseq, comments_after, skipped, .. } => {
                assert_eq!(from, cursor);
                let newest_before =
                    self.events.iter().filter(|e| e.id.position() <= cursor).filter_map(|e| e.pseq).max();
                assert_eq!(pseq, newest_before.unwrap_or_default());
                let gone =
                    self.after(cursor).iter().filter(|e| e.is_public_comment() && e.id.position() <= comments_after);
                told = gone.map(|e| e.id).collect();
                check_skipped(&told, skipped);
                let follow = self.after(comments_after).iter().filter(|e| e.is_public_comment()).count();
                assert!(follow <= COMMENTS_MAX);
            }
            Answer::SnapshotRequired { reason, from, .. } => {
                assert_eq!(reason, Reason::TooOld, "every cursor a client has is known");
                let old = |e: &Event| e.lane == Lane::Priority && self.now.since(e.at) > WINDOW;
                assert!(self.after(cursor).iter().any(old), "nobody is sent to a snapshot for less");
                self.viewers[v].jumped.push((cursor, from));
            }
        }
        let place = by_log.place();
        self.viewers[v].place = Some(place);
        self.viewers[v].frames.push(Frame { events: vec![], told, cursor: place.position });
    }

    fn serve(&mut self, v: usize, frames: usize) {
        for _ in 0..frames {
            let Some(mut place) = self.viewers[v].place else { return };
            let before = place;
            let mut walk = Walk::new(&self.ring, self.limits, self.now);
            let (ids, skipped) = match walk.step(&place) {
                Step::AtHead => {
                    place.rest(walk.head());
                    self.viewers[v].place = Some(place);
                    return;
                }
                Step::Late => {
                    assert!(place.catch_up.is_none());
                    let late = |e: &Event| e.lane == Lane::Priority && self.now.since(e.at) > Duration::from_secs(10);
                    assert!(self.after(place.position).iter().any(late));
                    self.viewers[v].place = None;
                    return;
                }
                Step::BelowFloor if place.catch_up.is_none() => {
                    self.viewers[v].place = None;
                    return;
                }
                Step::BelowFloor => {
                    let rest = self.after(place.position);
                    let page = &rest[..rest.len().min(PAGE_ROWS)];
                    let upto = if rest.len() > PAGE_ROWS { page[PAGE_ROWS - 1].id.position() } else { self.head() };
                    let ids: Vec<_> = page.iter().filter(|e| place.wants(e.id, e.lane)).map(|e| e.id).collect();
                    place.advance_page(upto);
                    (ids, None)
                }
                Step::Send(plan) => {
                    let ids: Vec<_> = walk.entries_given(&plan, &[]).map(|e| e.id).collect();
                    assert!(ids.len() <= 10, "a plan keeps to its bytes");
                    assert_eq!(plan.empty, ids.is_empty() && plan.skipped.is_none());
                    place.advance(&plan);
                    (ids, plan.skipped)
                }
            };
            let told = self.account(before, place.position, &ids, skipped);
            let viewer = &mut self.viewers[v];
            let last = viewer.frames.last().expect("a hello came").cursor;
            let cursor = ids.last().map_or(last, |id| id.position());
            viewer.place = Some(place);
            viewer.frames.push(Frame { events: ids, told, cursor });
        }
    }

    /// Between two places, everything is sent, or is a comment that is told now, or one that the resume has told.
    fn account(&self, from: Place, to: Position, ids: &[EventId], skipped: Option<Skipped>) -> Vec<EventId> {
        assert!(ids.is_sorted_by(|a, b| a < b));
        assert!(ids.iter().all(|id| id.position() > from.position && id.position() <= to));
        let sent: BTreeSet<_> = ids.iter().collect();
        let resumed = from.catch_up.map_or(Position::START, |c| c.comments_after);
        let mut told = Vec::new();
        for event in self.after(from.position).iter().take_while(|e| e.id.position() <= to) {
            if sent.contains(&event.id) {
                continue;
            }
            assert_eq!(event.lane, Lane::Comment, "{:?} was passed over", event.id);
            if !event.private && event.id.position() > resumed {
                assert!(self.now.since(event.at) > Duration::from_secs(2), "a fresh comment is sent");
                told.push(event.id);
            }
        }
        check_skipped(&told, skipped);
        told
    }

    /// Everybody reconnects and is served to the end; then each client's own account must close.
    fn finish(&mut self) {
        for v in 0..VIEWERS {
            for _ in 0..10_000 {
                if self.viewers[v].place.is_none() {
                    self.resume(v);
                }
                self.serve(v, 1);
                if self.viewers[v].place.is_some_and(|p| p.catch_up.is_none() && p.position >= self.ring.head()) {
                    break;
                }
            }
            let viewer = &self.viewers[v];
            let Some(begun) = viewer.begun else { continue };
            let events: Vec<_> = viewer.frames.iter().flat_map(|f| f.events.iter().copied()).collect();
            assert!(events.is_sorted_by(|a, b| a < b), "ids never go backwards and none comes twice");
            let told: BTreeSet<_> = viewer.frames.iter().flat_map(|f| f.told.iter().copied()).collect();
            let given: BTreeSet<_> = events.into_iter().collect();
            for event in self.after(begun) {
                let at = event.id.position();
                let jumped = viewer.jumped.iter().any(|(from, to)| at > *from && at <= *to);
                let known =
                    given.contains(&event.id) || jumped || (event.lane == Lane::Comment && told.contains(&event.id));
                assert!(known || event.private, "{event:?} is missing");
            }
        }
    }
}

fn check_skipped(told: &[EventId], skipped: Option<Skipped>) {
    let expect = told.first().map(|from| Skipped { count: told.len() as u64, from: *from, to: *told.last().unwrap() });
    assert_eq!(skipped, expect);
}

fn run(acts: Vec<Act>) {
    let mut world = World::new();
    for v in 0..VIEWERS {
        world.follow(v);
    }
    acts.into_iter().for_each(|act| world.act(act));
    world.finish();
}

#[test]
fn every_viewer_can_account_for_every_event() {
    let mut runner = TestRunner::new(Config { cases: 400, failure_persistence: None, ..Config::default() });
    runner
        .run(&acts(), |acts| {
            run(acts);
            Ok(())
        })
        .unwrap();
}
