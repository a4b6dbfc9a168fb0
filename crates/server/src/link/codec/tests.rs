//! Every kind of message there and back; bytes from nowhere; lengths that lie.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use grandstand_core::access::{Access, Revoked, Term};
use grandstand_core::admission::Limit;
use grandstand_core::bundles::{Bundle, Here, LIMITED, There};
use grandstand_core::ids::{Epoch, EpochSpan, EventId, Partition, Position, Pseq, Revision, Seq};
use grandstand_core::likes::{Frame, RoomLikes, Round};
use grandstand_core::names::{ClientMsgId, Key, LikeKind, RoomId, UserId};
use grandstand_core::owner::answer::{Answer, Fate};
use grandstand_core::owner::command::{Author, Publish, React, ReportIn, Standing};
use grandstand_core::places;
use grandstand_core::record::{Audience, Lane, RetractTarget, Room};
use grandstand_core::regions::Region;
use grandstand_core::reject::{Code, Reject};
use grandstand_core::rng::Rng;
use grandstand_core::sampler::pick::WindowNumber;
use grandstand_core::sampler::switch::Sampling;
use grandstand_core::sampler::{Rules, Weights};
use grandstand_core::time::Wall;
use grandstand_core::viewer::people::People;
use grandstand_core::viewer::resume::{self, Reason};
use grandstand_core::viewer::walk::Skipped;
use grandstand_core::watch::Silence;

use super::{
    Down, Elsewhere, FRAME_MAX, Fault, Frames, Hello, LinkNumbers, Order, Ordered, Report, RoomNumbers, Share, Status,
    Up, VERSION, read_down, read_up, write_down, write_up,
};
use crate::admission::Change;
use crate::kernel::Taken;
use crate::link::peers::To;
use crate::link::{
    AskFate, Batch, ConnKey, Delay, Fetch, HttpPart, NoRoom, Page, Past, Piece, ReadRefused, Resumed, RoomBan,
    RoomInfo, Seen, Served, SiteBanner, SiteList, ToWorker, Won, WorkerId,
};
use crate::shedding;

fn room() -> RoomId {
    RoomId::parse("match:7").unwrap()
}
fn id(seq: u64) -> EventId {
    EventId::at(Epoch::new(25_560).unwrap(), Seq::new(seq).unwrap())
}
fn at(seq: u64) -> Position {
    id(seq).position()
}
fn conn() -> ConnKey {
    ConnKey { worker: WorkerId::of(3, 1), slot: 70_000, generation: u32::MAX }
}
fn delay() -> Delay {
    Delay { retry_after: Duration::from_millis(500), spread: Duration::from_secs(5) }
}

fn pieces() -> Vec<Arc<Piece>> {
    let user = UserId::parse("zoë").unwrap();
    let key = ClientMsgId::parse("k-1").unwrap();
    let plain = |seq, lane, kind| Piece {
        id: id(seq),
        lane,
        ts: Wall(1_800_000_000_000 + seq),
        closes_window: lane == Lane::Priority,
        pseq: (lane == Lane::Priority).then_some(Pseq(seq)),
        kind,
        json: format!("{{\"event_id\":{seq}}}").into_bytes().into(),
        author: None,
        audience: Audience::Everyone,
        unallowed: false,
        retracts: None,
        won: None,
    };
    let targets = [RetractTarget::Event(id(1)), RetractTarget::User(user.clone()), RetractTarget::All];
    let retracts = targets
        .into_iter()
        .enumerate()
        .map(|(n, target)| Piece { retracts: Some(target), ..plain(10 + n as u64, Lane::Priority, "retract") });
    let own = Piece { author: Some((user.clone(), Some(key))), unallowed: true, ..plain(1, Lane::Comment, "comment") };
    let keyless =
        Piece { author: Some((user, None)), audience: Audience::Author, ..plain(2, Lane::Comment, "comment") };
    let others = ["score_event", "gift", "config"].into_iter().zip(3..).map(|(kind, n)| plain(n, Lane::Priority, kind));
    let won = |addressee, reply_to| Won {
        window: WindowNumber(u64::MAX),
        of: 64,
        weight: 9,
        by_right: true,
        addressee,
        reply_to,
    };
    let by_right = Piece { won: Some(won(UserId::parse("zoë"), Some(id(3)))), ..plain(20, Lane::Comment, "comment") };
    let by_lot = Piece { won: Some(won(None, None)), ..plain(21, Lane::Comment, "comment") };
    [own, keyless, by_right, by_lot].into_iter().chain(others).chain(retracts).map(Arc::new).collect()
}

fn settings() -> Room {
    Room {
        matches: vec![Key::parse("m:1").unwrap()],
        merge_ms: Some(0),
        slow_mode_until: Some(Wall(9)),
        pinned: vec![id(4), id(5)],
        sampling: Rules {
            when: Sampling::Always,
            cap: Some(7),
            weights: Weights { badges: vec![("mod".into(), 9)], ..Weights::default() },
            ..Rules::default()
        },
        banner_items: vec!["rocket".into()],
        banner_amounts: [("EUR".into(), 50_000_000), ("gold".into(), 0)].into(),
        combo_seconds: 0,
        unique_comment: true,
        members_only: Some("vip".into()),
        pin_ends: [(id(5), Wall(7))].into(),
        blackout_regions: vec![Region::parse("GB-SCT").unwrap()],
        settle_seconds: 60,
        settles_until: Some(Wall(8)),
        version: u64::MAX,
        ..Room::fresh("Final ⚽")
    }
}

fn info() -> Arc<RoomInfo> {
    Arc::new(RoomInfo {
        room: room(),
        settings: Arc::new(settings()),
        head: at(9),
        epochs: vec![EpochSpan { epoch: Epoch::new(7).unwrap(), last_seq: Seq::new(3).unwrap() }].into(),
        last_event: Position::START,
        pseq: Pseq(3),
        config_json: "{}".into(),
        likes: [(LikeKind::plain(), u64::MAX)].into(),
        pinned_json: "[1]".into(),
        wide: true,
    })
}

fn head() -> http::response::Parts {
    let response = http::Response::builder().status(429).header("retry-after", "1").header("vary", "origin");
    response.header("vary", "accept").body(()).unwrap().into_parts().0
}

fn seen(n: u32) -> Seen {
    Seen { viewers: n + 2, anonymous: 2, users: People::of(0..n) }
}

fn ups() -> Vec<Up> {
    let publish = Publish {
        room: room(),
        author: Author {
            user: UserId::parse("u").unwrap(),
            display: "U ser".into(),
            badges: vec!["mod".into(), "".into()].into(),
            standing: Standing::Moderator,
        },
        client_msg_id: ClientMsgId::parse("k").unwrap(),
        text: "hello\nthere".into(),
        reply_to: Some(id(7)),
    };
    let request = http::Request::builder().method("POST").uri("/v1/guest?x=%20").header("host", "a").header("x", "1");
    let request = request.header("x", "2").body(Bytes::from_static(b"{\0}")).unwrap();
    let rooms = vec![RoomNumbers {
        room: room(),
        viewers: 1,
        held: 2,
        served: Served { delivered: u64::MAX, skipped: 0, sampled: 5 },
        seen: seen(3),
    }];
    let many = vec![RoomNumbers {
        room: room(),
        viewers: 1,
        held: 2,
        served: Served { delivered: 1, ..Served::default() },
        seen: seen(2_000),
    }];
    let users = vec![(UserId::parse("u").unwrap(), 7), (UserId::parse("zoë").unwrap(), u32::MAX)];
    let likes = [RoomLikes { room: room(), kinds: vec![(LikeKind::plain(), users)] }].into();
    let link = LinkNumbers { batches: 1, useless: 2, bytes: 3, joined: 4, undelivered: 5, dropped: [6, 7] };
    let taken =
        Taken { cpu_micros: 1, resident_bytes: 2, memory_permille: 9, descriptors: 3, descriptors_max: u64::MAX };
    vec![
        Up::Hello(hello(None, None)),
        Up::Hello(hello(Some(order(Ordered::Drain(Duration::ZERO))), Some(order(Ordered::Admission(None))))),
        Up::Subscribe { worker: WorkerId::of(63, 253), room: room() },
        Up::Unsubscribe { room: room() },
        Up::Publish { conn: conn(), request: 1, publish: Box::new(publish) },
        Up::Fetch(Fetch::Resume { conn: conn(), request: u64::MAX, room: room(), cursor: Position::START }),
        Up::Fetch(Fetch::Page { conn: conn(), request: 2, room: room(), after: at(1), comments_from: at(2) }),
        Up::Http { conn: conn(), peer: "[2001:db8::1]:443".parse().unwrap(), request: Box::new(request) },
        Up::Fetch(Fetch::Past { worker: WorkerId::of(0, 0), request: 3, room: room(), upto: at(8), seen: at(2) }),
        Up::Told(Box::new(ReportIn {
            room: room(),
            user: UserId::parse("u").unwrap(),
            report: grandstand_core::reports::Report { event: id(3), reason: "spam".into() },
        })),
        Up::React(React { room: room(), user: UserId::parse("u").unwrap(), target: id(3) }),
        Up::AskFate(AskFate {
            conn: conn(),
            room: room(),
            client_msg_id: ClientMsgId::parse("k").unwrap(),
            raw_id: id(3),
        }),
        Up::HttpLeft { conn: conn() },
        Up::HttpGone { conn: conn() },
        Up::Pass { to: To::Worker(WorkerId::of(1, 2)), mail: renew() },
        Up::Pass { to: To::Worker(WorkerId::of(1, 2)), mail: renewed(None) },
        Up::Pass { to: To::Others, mail: ToWorker::EndLine { line: 7 } },
        Up::Places(places::Word { number: u32::MAX, full: true }),
        Up::Bundles(LIMITED.map(|limited| Here { bundle: Bundle { limited, key: u64::MAX }, n: 3, many: true }).into()),
        Up::Bundles(vec![Here { bundle: Bundle { limited: LIMITED[0], key: 0 }, n: 0, many: false }]),
        Up::Report(Report { numbers: vec![0, u64::MAX], link, taken, rooms }),
        Up::Report(Report { numbers: vec![], link, taken, rooms: many }),
        Up::Likes(Frame { from: Some((u64::MAX, 1)), round: Round { span: Duration::from_millis(100), rooms: likes } }),
    ]
}

fn renew() -> ToWorker {
    ToWorker::Renew { conn: conn(), nonce: u64::MAX, room: room(), token: "a.b.c".into(), reply: conn(), request: 9 }
}

fn renewed(taken: Option<bool>) -> ToWorker {
    ToWorker::Renewed { conn: conn(), request: 9, taken }
}

fn mails() -> Vec<ToWorker> {
    let page = || Page { pieces: pieces(), upto: at(12) };
    let skipped = Some(Skipped { count: 3, from: id(1), to: id(3) });
    let resumes = [
        resume::Answer::Live { from: at(1), pseq: Pseq(0) },
        resume::Answer::Resumed { from: at(1), pseq: Pseq(2), comments_after: at(1), skipped, until: at(9) },
        resume::Answer::SnapshotRequired { reason: Reason::UnknownCursor, from: at(3), pseq: Pseq(9) },
    ];
    let refusals = [ReadRefused::NoRoom, ReadRefused::Fault, ReadRefused::Busy(delay()), ReadRefused::Unknown];
    let reject = Reject {
        retry_after: Some(Duration::from_millis(1_500)),
        ..Reject::fields(Code::BadField, "two members", vec![("a".into(), "b".into())])
    };
    let answers = [
        Answer::Published { event_id: id(1), partition: Partition(1_023), offset: Seq::START, duplicate: true },
        Answer::Score {
            accepted: true,
            event_id: id(2),
            revision: Revision(4),
            superseded: false,
            shown: true,
            room: room(),
        },
        Answer::Room { version: 3, settings: Arc::new(settings()) },
        Answer::Raw { raw_id: id(1), partition: Partition(7), duplicate: false, fate: None },
        Answer::Raw { raw_id: id(1), partition: Partition(7), duplicate: true, fate: Some(Fate::NotShown) },
        Answer::Raw { raw_id: id(1), partition: Partition(7), duplicate: true, fate: Some(Fate::Shown(id(2))) },
        Answer::Done { event_id: None },
        Answer::Done { event_id: Some(id(3)) },
        Answer::Pending { retry_after: Duration::from_secs(1) },
        Answer::Held { held_id: id(4) },
        Answer::Reject(reject),
    ];
    let parts = [
        HttpPart::Whole { head: head(), body: Bytes::from_static(b"\xff\0") },
        HttpPart::Head(head()),
        HttpPart::Chunk(Bytes::from_static(b"x")),
        HttpPart::End,
        HttpPart::Broken,
    ];
    let (conn, request) = (conn(), 5);
    let mut all = vec![
        ToWorker::Room { room: room(), found: Ok(info()) },
        ToWorker::Room { room: room(), found: Err(NoRoom) },
        ToWorker::Batch(Arc::new(Batch { room: room(), pieces: pieces(), said: u32::MAX })),
        ToWorker::Settings(info()),
        ToWorker::Resync(info()),
        ToWorker::Tally(Arc::new(vec![(room(), [(LikeKind::plain(), 1)].into())])),
        ToWorker::LikesSettled { sender: u64::MAX, number: 3 },
        ToWorker::Site(Arc::default()),
        ToWorker::Banned(Arc::new(RoomBan { room: room(), user: UserId::parse("u").unwrap(), until: Some(Wall(9)) })),
        ToWorker::Forget { room: room(), upto: id(6) },
        ToWorker::Site(Arc::new(SiteList {
            as_of: Wall(5),
            banners: vec![Arc::new(SiteBanner {
                id: id(6),
                ts: Wall(7),
                until: Wall(8),
                json: br#"{"type":"banner"}"#[..].into(),
            })],
            bans: [(UserId::parse("u").unwrap(), None), (UserId::parse("v").unwrap(), Some(Wall(7)))].into(),
            access: Arc::new(access()),
            silent: [Silence {
                room: room(),
                match_id: Key::parse("m").unwrap(),
                provider: Key::parse("p").unwrap(),
                since: Wall(9),
                ended: true,
            }]
            .into(),
        })),
        ToWorker::Page { conn, request, room: room(), answer: Ok(page()) },
    ];
    all.extend(refusals.map(|r| ToWorker::Page { conn, request, room: room(), answer: Err(r) }));
    all.extend(resumes.map(|answer| {
        let answer = Ok(Resumed { answer, first: page() });
        ToWorker::Resume { conn, request, room: room(), answer }
    }));
    all.extend(refusals.map(|r| ToWorker::Resume { conn, request, room: room(), answer: Err(r) }));
    all.extend(refusals.map(|r| ToWorker::Past { room: room(), request, answer: Err(r) }));
    all.push(ToWorker::Past { room: room(), request, answer: Ok(Past { pieces: pieces(), after: at(1) }) });
    all.extend([None, Some(id(5))].map(|event_id| ToWorker::Fate {
        conn,
        room: room(),
        client_msg_id: ClientMsgId::parse("k").unwrap(),
        event_id,
    }));
    let client_msg_id = ClientMsgId::parse("k").unwrap();
    all.push(ToWorker::Refused { conn, room: room(), client_msg_id });
    all.extend(answers.map(|answer| ToWorker::Answer { conn, request, answer }));
    all.extend([renew(), renewed(None), renewed(Some(true)), ToWorker::EndLine { line: u64::MAX }]);
    all.extend(parts.map(|part| ToWorker::Http { conn, part }));
    all
}

fn order(what: Ordered) -> Order {
    let change = Change { by: UserId::parse("ops").unwrap(), justification: "kick-off".into(), at: Wall(5) };
    Order { what, change }
}

fn hello(order: Option<Order>, whole: Option<Order>) -> Hello {
    Hello { version: VERSION, build: "0.1.0".into(), process: 63, n_workers: 254, pid: 7, order, whole }
}

fn downs() -> Vec<Down> {
    let status = Status { ready: true, no_space: false, head: at(3), epoch: None, durability: "interval" };
    let elsewhere = vec![Elsewhere { room: room(), viewers: u32::MAX, held: 0, people: 7, counted: 8 }];
    let fixed = [
        Down::Welcome(Share { of: 1, others: 0, whole: None, port: places::Answer::default() }),
        Down::Share(Share {
            of: u32::MAX,
            others: 3,
            whole: Some(order(Ordered::Admission(None))),
            port: places::Answer { number: u32::MAX, leaves: true },
        }),
        Down::Refused("another build".into()),
        Down::Status(Status { epoch: Epoch::new(7), ..status.clone() }),
        Down::Status(status),
        Down::Elsewhere(elsewhere),
        Down::Bundles(LIMITED.map(|limited| There { bundle: Bundle { limited, key: 7 }, n: Some(u32::MAX) }).into()),
        Down::Bundles(vec![There { bundle: Bundle { limited: LIMITED[0], key: 0 }, n: None }]),
        Down::Order(order(Ordered::Admission(None))),
        Down::Order(order(Ordered::Admission(Some(Limit { per_second: 0, burst: 1 })))),
        Down::Order(order(Ordered::Drain(Duration::from_secs(3_600)))),
        Down::Order(order(Ordered::Shedding(shedding::Order::default()))),
        Down::Order(order(Ordered::Shedding(shedding::Order {
            cap: Some((500, Duration::from_secs(900))),
            expected: Some(Duration::from_secs(1)),
        }))),
    ];
    fixed.into_iter().chain(mails().into_iter().map(|mail| Down::Mail(WorkerId::of(1, 2), mail))).collect()
}

/// All messages as frames, without their lengths: (from a gateway, bytes).
fn frames() -> Vec<(bool, Vec<u8>)> {
    let mut all = Vec::new();
    for up in ups() {
        let mut out = Vec::new();
        write_up(&up, &mut out).unwrap();
        all.push((true, out.split_off(4)));
    }
    for down in downs() {
        let mut out = Vec::new();
        write_down(&down, &mut out).unwrap();
        all.push((false, out.split_off(4)));
    }
    all
}

/// Reads a frame and writes it again.
fn again(up: bool, bytes: &[u8]) -> Result<Vec<u8>, Fault> {
    let mut out = Vec::new();
    match up {
        true => write_up(&read_up(bytes)?, &mut out)?,
        false => write_down(&read_down(bytes)?, &mut out)?,
    }
    Ok(out.split_off(4))
}

fn access() -> Access {
    let term = Term { since: Wall(9), until: Wall(u64::MAX) };
    let user = Revoked::User(UserId::parse("u").unwrap());
    let revoked = [user, Revoked::Session("s".into()), Revoked::Key("k".into())].map(|what| (what, term));
    Access { revoked: revoked.into(), outage: Some(term) }
}

#[test]
fn everything_that_is_said_is_heard_as_it_was_said() {
    for (up, bytes) in frames() {
        assert_eq!(again(up, &bytes).as_deref(), Ok(&bytes[..]), "{up} {:?}", &bytes[..bytes.len().min(64)]);
    }
}

#[test]
fn the_links_serial_stays_in_the_shards_process() {
    let mut out = Vec::new();
    let worker = WorkerId(0xabcd_0302);
    write_up(&Up::Subscribe { worker, room: room() }, &mut out).unwrap();
    let Ok(Up::Subscribe { worker, .. }) = read_up(&out[4..]) else { panic!("a subscription") };
    assert_eq!((worker, worker.process()), (WorkerId::of(3, 2), 3));
}

#[test]
fn a_frame_that_is_cut_or_goes_on_is_refused() {
    for (up, bytes) in frames() {
        for len in 0..bytes.len() {
            assert!(again(up, &bytes[..len]).is_err(), "{up} cut at {len} of {}", bytes.len());
        }
        let longer: Vec<u8> = bytes.iter().copied().chain([0]).collect();
        assert_eq!(again(up, &longer), Err(Fault::Long));
    }
}

#[test]
fn bytes_that_were_changed_are_refused_or_read_as_something_that_can_be_said() {
    let mut rng = Rng::new(41);
    let frames = frames();
    for _ in 0..20_000 {
        let (up, bytes) = &frames[rng.next() as usize % frames.len()];
        let mut bytes = bytes.clone();
        for _ in 0..1 + rng.next() % 4 {
            let at = rng.next() as usize % bytes.len();
            bytes[at] = match rng.next() % 3 {
                0 => rng.next() as u8,
                1 => 0xff,
                _ => bytes[at] ^ (1 << (rng.next() % 8)),
            };
        }
        if let Ok(written) = again(*up, &bytes) {
            // What was understood is understood the same way once more.
            assert_eq!(again(*up, &written).as_deref(), Ok(&written[..]));
        }
    }
}

#[test]
fn bytes_from_nowhere_never_panic() {
    let mut rng = Rng::new(43);
    for _ in 0..20_000 {
        let bytes: Vec<u8> =
            (0..rng.next() % 96).map(|n| if n == 0 { (rng.next() % 12) as u8 } else { rng.next() as u8 }).collect();
        let _ = (read_up(&bytes), read_down(&bytes));
    }
}

#[test]
fn a_list_that_promises_more_than_is_there_is_refused_before_it_is_made() {
    let mut out = Vec::new();
    write_up(&Up::Report(Report::default()), &mut out).unwrap();
    let mut bytes = out.split_off(4);
    bytes[1..5].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(again(true, &bytes), Err(Fault::Short));
}

#[test]
fn frames_come_out_whole_whatever_pieces_they_came_in() {
    let mut bytes = Vec::new();
    for up in ups() {
        write_up(&up, &mut bytes).unwrap();
    }
    for step in [1, 3, 7, 4_096] {
        let (mut frames, mut n) = (Frames::default(), 0);
        for mut piece in bytes.chunks(step) {
            frames.fill(&mut piece).unwrap();
            while let Some(frame) = frames.whole().unwrap() {
                read_up(frame).unwrap();
                n += 1;
            }
        }
        assert_eq!(n, ups().len(), "{step}");
    }
}

#[test]
fn a_frame_above_the_limit_is_neither_written_nor_waited_for() {
    let body = Bytes::from(vec![0; FRAME_MAX]);
    let mail = ToWorker::Http { conn: conn(), part: HttpPart::Chunk(body) };
    let mut out = vec![1];
    assert_eq!(write_down(&Down::Mail(WorkerId(0), mail), &mut out), Err(Fault::TooLong));
    assert_eq!(out, [1]);
    let mut frames = Frames::default();
    frames.fill(&mut &(FRAME_MAX as u32 + 1).to_le_bytes()[..]).unwrap();
    assert_eq!(frames.whole().unwrap_err(), Fault::TooLong);
}

#[test]
fn a_signal_does_not_end_a_link() {
    struct Signalled(u8);
    impl std::io::Read for Signalled {
        fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
            self.0 += 1;
            if self.0 < 3 {
                return Err(std::io::ErrorKind::Interrupted.into());
            }
            buf[0] = 7;
            Ok(1)
        }
    }
    assert_eq!(Frames::default().fill(&mut Signalled(0)).unwrap(), 1);
}
