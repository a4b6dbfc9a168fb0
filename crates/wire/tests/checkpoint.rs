//! Checkpoints: a room made by its log is the room that its bytes give back.

#[path = "common/samples.rs"]
mod common;

use std::fmt::Write;
use std::sync::Arc;

use common::{golden, record, room, samples, score};
use grandstand_core::access::Access;
use grandstand_core::banners::Site;
use grandstand_core::ids::{Epoch, EpochSpan, EventId, Revision, Seq};
use grandstand_core::likes::Counted;
use grandstand_core::names::{LikeKind, UserId};
use grandstand_core::owner::checkpoint::{LogCheckpoint, RoomCheckpoint};
use grandstand_core::owner::view::RoomView;
use grandstand_core::record::{Body, Retract, RetractTarget, Room, Score};
use grandstand_core::time::Wall;
use grandstand_wire::checkpoint::{Fault, VERSION, decode_log, decode_room, encode_log, encode_room};
use proptest::collection::vec;
use proptest::prelude::{any, prop_assert, proptest};

fn log() -> LogCheckpoint {
    let spans = [(0, 0), (1, Seq::MAX), (2, 77)];
    let epochs = spans
        .map(|(more, seq)| EpochSpan { epoch: Epoch::new(25_560 + more).unwrap(), last_seq: Seq::new(seq).unwrap() });
    let last = EventId::at(epochs[2].epoch, epochs[2].last_seq);
    let senders = vec![(7, Counted { number: 12, at: Wall(1_779_048_873_000) })];
    LogCheckpoint {
        position: last.position(),
        epochs: epochs.to_vec(),
        ts: Wall(1_779_048_873_122),
        senders,
        site: site(),
        access: access(),
    }
}

fn access() -> Access {
    let mut access = Access::default();
    for (name, sample) in samples() {
        if name != "outage_end" {
            access.take(&sample);
        }
    }
    assert!(access.revoked.len() == 2 && access.outage.is_some());
    access
}

fn site() -> Site {
    let mut site = Site::default();
    for (_, sample) in samples() {
        if !matches!(sample.body, Body::BannerEnd(_)) {
            site.take(&sample);
        }
    }
    assert!(site.active.len() == 2 && site.recent.len() == 1);
    site
}

/// A room that has lived through every kind of record, twice where that matters.
fn lived() -> RoomCheckpoint {
    let mut view = RoomView::new(room(), Arc::new(Room::fresh("before")));
    let mut seq = 0;
    let mut live = |view: &mut RoomView, body: Body| {
        seq += 1;
        let mut next = record(seq, body);
        next.room = Some(room());
        view.apply(&Arc::new(next));
    };
    for (_, sample) in samples() {
        live(&mut view, sample.body);
    }
    for (_, sample) in samples() {
        if matches!(sample.body, Body::Comment(_) | Body::Room(_) | Body::Ban(_)) {
            live(&mut view, sample.body);
        }
    }
    // The second and the third comment of the second round: one is taken back, one is pinned.
    let comments: Vec<EventId> = view.recent.iter().map(|comment| comment.event_id()).collect();
    let take_back = |target| Body::Retract(Retract { target, reason: "spam".into() });
    live(&mut view, take_back(RetractTarget::Event(comments[1])));
    live(&mut view, take_back(RetractTarget::User(UserId::parse("somebody").unwrap())));
    for ts in [1_779_048_000_000, 1_779_048_500_000] {
        live(&mut view, take_back(RetractTarget::Since(UserId::parse("purged").unwrap(), Wall(ts))));
    }
    let pin = Room { pinned: vec![comments[2]], ..Room::fresh("pinned") };
    let matches = view.settings.matches.clone();
    live(&mut view, Body::Room(Arc::new(Room { matches, ..pin })));
    let third = Score { revision: Revision(3), historical: true, ..score() };
    live(&mut view, Body::Score(third));
    view.take_totals(&[(LikeKind::parse("heart").unwrap(), 7), (LikeKind::plain(), 1 << 40)].into());
    assert!(!view.recent.is_empty() && !view.pinned.is_empty() && !view.scores.is_empty() && !view.bound.is_empty());
    assert!(!view.bans.is_empty() && !view.gifts.by_key.is_empty() && !view.combos.open().is_empty());
    assert!(!view.retracted.events.is_empty() && !view.retracted.users.is_empty() && view.retracted.all.is_some());
    RoomCheckpoint { view }
}

fn bytes_of_room(room: &RoomCheckpoint) -> Vec<u8> {
    let mut out = Vec::new();
    encode_room(room, &mut out);
    out
}

fn bytes_of_log(log: &LogCheckpoint) -> Vec<u8> {
    let mut out = Vec::new();
    encode_log(log, &mut out);
    out
}

#[test]
fn a_checkpoint_gives_back_what_it_was_made_from() {
    assert_eq!(decode_log(&bytes_of_log(&log())), Ok(log()));
    assert_eq!(decode_room(&bytes_of_room(&lived())), Ok(lived()));
    let fresh = RoomCheckpoint { view: RoomView::new(room(), Arc::new(Room::fresh(""))) };
    assert_eq!(decode_room(&bytes_of_room(&fresh)), Ok(fresh));
}

#[test]
fn checkpoints_have_the_bytes_they_always_had() {
    let hex = |bytes: Vec<u8>| {
        bytes.iter().fold(String::new(), |mut hex, b| {
            write!(hex, "{b:02x}").unwrap();
            hex
        })
    };
    golden("checkpoints.txt", &format!("log {}\nroom {}\n", hex(bytes_of_log(&log())), hex(bytes_of_room(&lived()))));
}

#[test]
fn every_flip_and_every_cut_is_found() {
    for whole in [bytes_of_log(&log()), bytes_of_room(&lived())] {
        for i in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[i] ^= 0x10;
            assert_eq!(decode_log(&damaged), Err(Fault::Damaged), "byte {i}");
            assert_eq!(decode_room(&damaged), Err(Fault::Damaged), "byte {i}");
            assert_eq!(decode_room(&whole[..i]), Err(Fault::Damaged), "cut to {i}");
        }
    }
}

#[test]
fn another_kind_and_another_version_are_named() {
    assert_eq!(decode_room(&bytes_of_log(&log())), Err(Fault::Malformed("kind")));
    let mut newer = bytes_of_log(&log());
    newer[4] = VERSION + 1;
    let end = newer.len() - 4;
    let checksum = crc32fast::hash(&newer[..end]);
    newer[end..].copy_from_slice(&checksum.to_le_bytes());
    assert_eq!(decode_log(&newer), Err(Fault::Version(VERSION + 1)));
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in vec(any::<u8>(), 0..200), kind in 1..=2u8) {
        // Sealed, so that the content is really read.
        let mut sealed = [b"GSCP", &[VERSION, kind][..], &bytes].concat();
        let checksum = crc32fast::hash(&sealed);
        sealed.extend_from_slice(&checksum.to_le_bytes());
        prop_assert!(decode_room(&sealed).is_err());
        let _ = decode_log(&sealed);
    }
}
