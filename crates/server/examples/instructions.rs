//! What the hot paths cost, in instructions: `instructions CASE` makes one case's calls inside [`counted`], for callgrind to
//! count; `instructions` alone names the cases with the calls of each. `cargo xtask instructions` runs and compares them.
//!
//! Nothing here may depend on the machine or the hour: fixed ids, fixed times, a seeded random source, no hash tables.

#[path = "../../wire/examples/sample/comment.rs"]
mod sample;

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use grandstand_classifier::{Links, Lists, Rules, Words};
use grandstand_core::hash::Seeded;
use grandstand_core::ids::{Epoch, EventId, Position, Pseq};
use grandstand_core::likes::{self, Frame, Gatherer, RoomLikes, Round};
use grandstand_core::names::{LikeKind, RoomId, UserId};
use grandstand_core::owner::{Owner, Settings};
use grandstand_core::record::{Audience, Body, Lane, Verdict};
use grandstand_core::rng::Rng;
use grandstand_core::sampler::pick::{ViewerKey, WindowNumber};
use grandstand_core::sampler::silence::GivenAt;
use grandstand_core::sampler::window::{self, Window};
use grandstand_core::sampler::{self, Candidate};
use grandstand_core::time::{Mono, Wall};
use grandstand_core::viewer::merge::{Leave, MergeWindow};
use grandstand_core::viewer::ring::{self, Entry, Ring};
use grandstand_core::viewer::session::{Action, Credential, Op, Session, Start};
use grandstand_core::viewer::walk::{self, Place, Step, Walk};
use grandstand_server::gateway::frames::{self, Out, Rides};
use grandstand_server::gateway::parts::{self, Cap, Parts, Taste, Who};
use grandstand_server::link::{Piece, Won};
use grandstand_server::metrics::Transport;
use grandstand_wire::{event, op, record};

use sample::{comment, frame as frame_of_comment};

/// Events in the ring of the walks and in the merged frames: 100 ms at 400 a second.
const N_EVENTS: u64 = 40;

/// A case: its name, how many calls it makes, and what makes it ready to be called.
type Case = (&'static str, u32, fn() -> Box<dyn FnMut()>);

const CASES: &[Case] = &[
    ("frame-websocket-one", 1_000, || frame(Transport::WebSocket, 1)),
    ("frame-websocket-forty", 200, || frame(Transport::WebSocket, N_EVENTS)),
    ("frame-sse-forty", 200, || frame(Transport::Sse, N_EVENTS)),
    ("merge-event", 2_000, merge),
    ("session-publish", 2_000, session),
    ("walk-same-place", 5_000, || walk(true)),
    ("walk-own-place", 2_000, || walk(false)),
    ("walk-wide-chat", 5_000, || walk_wide(5, None)),
    ("walk-wide-danmaku", 5_000, || walk_wide(50, None)),
    ("walk-wide-followed", 5_000, || walk_wide(5, Some(taste()))),
    ("wide-window", 500, wide_window),
    ("window-offer", 2_000, window_offer),
    ("window-close", 50, window_close),
    ("fold-short", 2_000, || fold("GOOOOOAAL!!")),
    ("fold-hundred", 500, || fold(sample::TEXT)),
    ("ring-push", 2_000, push),
    ("op-parse", 1_000, parse),
    ("event-json", 1_000, event_json),
    ("record-encode", 200, record_encode),
    ("like-take", 2_000, like_take),
    ("like-flush", 50, like_flush),
    ("classifier-plain", 1_000, || classifier("what a goal that was, never seen the like of it", false)),
    ("classifier-disguised", 1_000, || classifier("wh4t a g0al th@t w.a.s, never seen the l1ke of it", false)),
    ("classifier-strict", 200, || classifier("what a goal that was, never seen the like of it", true)),
];

fn main() -> ExitCode {
    let Some(name) = std::env::args().nth(1) else {
        CASES.iter().for_each(|(name, calls, _)| println!("{name} {calls}"));
        return ExitCode::SUCCESS;
    };
    let Some((_, calls, ready)) = CASES.iter().find(|(known, ..)| *known == name) else {
        eprintln!("no case is called {name}");
        return ExitCode::FAILURE;
    };
    let mut call = ready();
    // Buffers grow and pages are touched before anything is counted.
    (0..10).for_each(|_| call());
    counted(*calls, &mut *call);
    ExitCode::SUCCESS
}

/// Callgrind counts in here and nowhere else.
#[inline(never)]
fn counted(calls: u32, call: &mut dyn FnMut()) {
    (0..calls).for_each(|_| call());
}

fn piece(seq: u64) -> Arc<Piece> {
    let record = comment(seq);
    let mut json = Vec::new();
    event::write_event(&record, &mut json);
    Arc::new(Piece {
        id: record.event_id(),
        lane: Lane::Comment,
        closes_window: false,
        pseq: None,
        ts: record.ts,
        kind: "comment",
        json: json.into_boxed_slice(),
        author: record.user.clone().map(|user| (user, record.client_msg_id.clone())),
        audience: Audience::Everyone,
        unallowed: false,
        retracts: None,
        won: None,
    })
}

/// A tap of a user who has tapped in this round: the table's usual work.
fn like_take() -> Box<dyn FnMut()> {
    let mut gatherer = Gatherer::new(Seeded(1));
    let limit = likes::limit(likes::RATE_MAX, Duration::ZERO);
    let rooms: Vec<RoomId> = (0..10).filter_map(|n| RoomId::parse(&format!("room-{n}"))).collect();
    let users: Vec<UserId> = (0..500).filter_map(|n| UserId::parse(&format!("user-{n}"))).collect();
    let (kind, mut n, mut now) = (LikeKind::plain(), 0usize, Mono(0));
    Box::new(move || {
        n += 1;
        now = now + Duration::from_micros(40);
        let taken = gatherer.like(&rooms[n % 10], &kind, &users[n % 500], 1, limit, now);
        assert_eq!(black_box(taken), Ok(()));
    })
}

/// One comment held against a thousand entries, and in a strict room against the English list too.
fn classifier(text: &'static str, strict: bool) -> Box<dyn FnMut()> {
    let entries: String = (0..1_000).map(|n| format!("w{n}rd{}\n", n * 7_919 % 1_000)).collect();
    let words = Words::read(Lists { block: &entries, flag: "*dumb*\nkill yourself", allow: "plumdumb" });
    let words = words.expect("every line is an entry");
    let rules = Rules { words, links: Links::Deny(vec!["example.com".into()]), english: true };
    Box::new(move || {
        assert_eq!(black_box(rules.judge(text, strict)).verdict, Verdict::Allow);
    })
}

/// A tick of an owner: 500 users liked in ten rooms, five times each.
fn like_flush() -> Box<dyn FnMut()> {
    let (mut now, mut wall) = (Mono(0), Wall(1_779_048_873_122));
    let mut owner = Owner::new(Settings { create_on_use: true, ..Settings::default() }, now, wall);
    owner.start(Epoch::new(25_560).expect("a valid epoch"));
    let of_room = |room: usize| RoomLikes {
        room: RoomId::parse(&format!("room-{room}")).expect("a room"),
        kinds: vec![(
            LikeKind::plain(),
            (0..50).filter_map(|n| Some((UserId::parse(&format!("user-{n:02}"))?, 5))).collect(),
        )],
    };
    let rooms: Arc<[RoomLikes]> = (0..10).map(of_room).collect();
    Box::new(move || {
        now = now + Duration::from_secs(1);
        wall = wall + Duration::from_secs(1);
        owner.take_likes(Frame { from: None, round: Round { span: likes::TICK, rooms: rooms.clone() } }, now, wall);
        assert!(black_box(owner.seal(now, wall)).is_some(), "a tick is due");
        owner.on_committed(now, wall);
        while owner.poll().is_some() {}
    })
}

fn frame(transport: Transport, n: u64) -> Box<dyn FnMut()> {
    let pieces: Vec<_> = (1..=n).map(piece).collect();
    Box::new(move || {
        let events: Vec<Out<'_>> = pieces.iter().map(|piece| Out::of(piece, None)).collect();
        black_box(frames::encode(transport, black_box(&events)));
    })
}

/// 400 events a second into a room of 2 000: most wait, one in forty walks.
fn merge() -> Box<dyn FnMut()> {
    let mut merge = MergeWindow::new(None);
    let mut now = Mono(1_000_000);
    Box::new(move || {
        now = Mono(now.0 + 2_500);
        merge.set_viewers(2_000);
        if merge.deadline().is_some_and(|at| at <= now) {
            merge.on_walk(now);
        }
        if black_box(merge.on_events(false, now)) == Leave::Now {
            merge.on_walk(now);
        }
    })
}

fn session() -> Box<dyn FnMut()> {
    let room = RoomId::parse("match:2022-final").expect("a valid room");
    let credential = Credential {
        user: UserId::parse("u_q9z").expect("a valid user"),
        exp: Wall(1_779_048_873_122),
        may_publish: true,
        exempt: false,
    };
    let start = Start {
        room: room.clone(),
        credential: Some(credential),
        offers_subprotocol: false,
        anonymous_view: true,
        cursor: Position::START,
    };
    let mut rng = Rng::new(7);
    let mut now = Mono(1_000_000);
    let (mut session, _) = Session::new(start, now, &mut rng).expect("a credential");
    Box::new(move || {
        now = Mono(now.0 + 50_000);
        let said = session.on_op(Op::Publish { room: None }, now, &mut rng);
        assert!(matches!(black_box(said), Action::Publish { .. }));
    })
}

fn entry(piece: &Arc<Piece>, at: Mono) -> Entry<Arc<Piece>> {
    Entry {
        id: piece.id,
        lane: piece.lane,
        closes_window: piece.closes_window,
        private: false,
        pseq: piece.pseq,
        won: None,
        at,
        bytes: piece.json.len() as u32,
        payload: piece.clone(),
    }
}

/// One viewer's step of a walk over forty fresh comments: where all others stand, or at a place of its own.
fn walk(same: bool) -> Box<dyn FnMut()> {
    let now = Mono(1_000_000);
    let pieces: Vec<_> = (2..2 + N_EVENTS).map(piece).collect();
    let before = comment(1).event_id();
    let ring: &'static mut Ring<_> =
        Box::leak(Box::new(Ring::new(before.position(), Pseq(0), ring::Limits::default())));
    for piece in &pieces {
        ring.push(entry(piece, now));
    }
    let ring: &'static Ring<_> = ring;
    let mut walk = Walk::new(ring, walk::Limits::default(), now);
    let mut n = 0;
    Box::new(move || {
        n += 1;
        let at = if same { before } else { pieces[n % (pieces.len() - 1)].id };
        let mut place = Place::live(at.position());
        match black_box(walk.step(&place)) {
            Step::Send(plan) => place.advance(&plan),
            other => panic!("{other:?}"),
        }
        black_box(place);
    })
}

/// A ring that holds one window of 64 winners.
fn wide_ring(at: Mono) -> Ring<Arc<Piece>> {
    let before = comment(1).event_id();
    let mut ring = Ring::new(before.position(), Pseq(0), ring::Limits::default());
    for seq in 2..66 {
        let won = Won {
            window: WindowNumber(8_900_000_001),
            of: 64,
            weight: 1,
            by_right: false,
            addressee: None,
            reply_to: None,
        };
        let piece = Arc::into_inner(piece(seq)).expect("just made");
        let author = UserId::parse(&format!("user-{seq}")).map(|user| (user, None));
        let piece = Arc::new(Piece { won: Some(won), author, ..piece });
        ring.push(Entry { won: parts::lot(&piece, 5_000), ..entry(&piece, at) });
    }
    ring
}

/// What a viewer more of a wide room costs beside its socket's write: its step, its part, and the frame of it. To be held
/// against `walk-same-place`.
fn walk_wide(cap: u32, taste: Option<Taste>) -> Box<dyn FnMut()> {
    let now = Mono(1_000_000);
    let ring: &'static Ring<Arc<Piece>> = Box::leak(Box::new(wide_ring(now)));
    let mut walk = Walk::new(ring, walk::Limits::default(), now);
    let cap = Cap { milli: u64::from(cap) * 1_000 };
    let mut parts = Parts::new(cap, now);
    let mut keys = Rng::new(7);
    Box::new(move || {
        let who = Who::new(ViewerKey(keys.next()), true);
        let mut place = Place::live(ring.floor());
        let Step::Send(plan) = black_box(walk.step(&place)) else { panic!("the ring holds something") };
        let reader = parts::reader(who, taste.as_ref(), cap);
        let rides = Rides { latest: false, banner: false };
        let part = parts.find(&walk, &plan, rides, &reader, Some(GivenAt::new(now)), |_| ());
        black_box(parts.frame(part.frame));
        place.advance(&plan);
        black_box(place);
    })
}

/// Twenty followed users, one of whom is among the winners.
fn taste() -> Taste {
    Taste::of(
        (60..80)
            .step_by(19)
            .chain(200..218)
            .filter_map(|n| Some(ViewerKey::of_user(&UserId::parse(&format!("user-{n}"))?))),
    )
}

/// What a window costs a worker once, however many viewers it has.
fn wide_window() -> Box<dyn FnMut()> {
    let now = Mono(1_000_000);
    let ring: &'static Ring<Arc<Piece>> = Box::leak(Box::new(wide_ring(now)));
    Box::new(move || {
        let mut walk = Walk::new(ring, walk::Limits::default(), now);
        let Step::Send(plan) = walk.step(&Place::live(ring.floor())) else { panic!("the ring holds something") };
        let mut given = Vec::new();
        let cap = Cap { milli: 5_000 };
        let mut windows = walk.winners(&plan);
        windows.pick(&parts::reader(Who::new(ViewerKey(1), true), None, cap), &mut given);
        black_box(given);
    })
}

/// Something to say for each of many authors, all of it different.
fn candidates(n: u64) -> Vec<Candidate> {
    let of = |n: u64| {
        let mut record = comment(n);
        record.user = UserId::parse(&format!("user-{n}"));
        if let Body::Comment(comment) = &mut record.body {
            comment.text = format!("{n}: {}", comment.text).into();
        }
        Candidate::new(Arc::new(record), None, Mono(1_000_000))
    };
    (0..n).filter_map(of).collect()
}

/// A comment that comes to a full window: of 250 000 a second most of what is said.
fn window_offer() -> Box<dyn FnMut()> {
    let mut window = Window::new(window::Settings::default(), 7);
    let mut said = candidates(3_000).into_iter();
    said.by_ref().take(300).for_each(|one| _ = window.offer(one, Mono(1_000_000)));
    Box::new(move || {
        let one = said.next().expect("there are more than calls");
        black_box(window.offer(one, Mono(1_000_000)));
        black_box(window.take_gone());
    })
}

/// A window of ninety-six comments that came to an empty one, from the first to its winners.
fn window_close() -> Box<dyn FnMut()> {
    let all = candidates(96);
    let now = Mono(1_000_000);
    Box::new(move || {
        let mut window = Window::new(window::Settings::default(), 7);
        all.iter().for_each(|one| _ = window.offer(one.clone(), now));
        black_box(window.close(now));
        black_box(window.take_gone());
    })
}

fn fold(text: &'static str) -> Box<dyn FnMut()> {
    Box::new(move || drop(black_box(sampler::fold::fold(black_box(text)))))
}

fn push() -> Box<dyn FnMut()> {
    let first = comment(1).event_id();
    let mut ring = Ring::new(first.position(), Pseq(0), ring::Limits::default());
    let known = piece(2);
    let mut n = 0;
    Box::new(move || {
        n += 1;
        let id = EventId::new(first.value() + n).expect("a valid id");
        let at = Mono(n * 2_500);
        ring.push(Entry { id, ..entry(&known, at) });
        ring.trim(at);
    })
}

fn parse() -> Box<dyn FnMut()> {
    let frame = frame_of_comment();
    Box::new(move || {
        black_box(op::parse(black_box(&frame)).expect("a valid frame"));
    })
}

fn event_json() -> Box<dyn FnMut()> {
    let comment = comment(123_456);
    let mut out = Vec::new();
    Box::new(move || {
        out.clear();
        event::write_event(black_box(&comment), &mut out);
        black_box(&out);
    })
}

fn record_encode() -> Box<dyn FnMut()> {
    let comment = comment(123_456);
    let mut out = Vec::new();
    Box::new(move || {
        out.clear();
        record::encode(black_box(&comment), &mut out);
        black_box(&out);
    })
}
