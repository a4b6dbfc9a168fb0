//! Records and checkpoints: what is read is exactly what the writer makes, and nothing on a disk makes a reader panic.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use grandstand_core::access::{Access, Revoked, Term};
use grandstand_core::banners::{Site, Standing};
use grandstand_core::ids::{Epoch, EpochSpan, EventId, Pseq, Revision, Seq};
use grandstand_core::likes::Counted;
use grandstand_core::names::{ClientMsgId, Key, LikeKind, RoomId, UserId};
use grandstand_core::owner::checkpoint::{LogCheckpoint, RoomCheckpoint};
use grandstand_core::owner::view::RoomView;
use grandstand_core::record::{
    Audience, Audit, Ban, Banner, BannerGift, Blocked, Body, ComboUpdate, Comment, Config, Crowd, End, Gift, Held,
    HeldEnd, MatchFeed, Policy, Record, Retract, RetractTarget, Room, RoomState, Score, ScoreKind, ScoreState, Shown,
    Source, Tally, Verdict, Won,
};
use grandstand_core::regions::Region;
use grandstand_core::rng::Rng;
use grandstand_core::sampler::pick::WindowNumber;
use grandstand_core::time::Wall;
use grandstand_wire::checkpoint::{decode_log, decode_room, encode_log, encode_room};
use grandstand_wire::event::write_event;
use grandstand_wire::export::write_line;
use grandstand_wire::record::{Salt, decode, encode_salted, erase};

use crate::bytes::{number, outcome, text, word};

pub fn generate_record(rng: &mut Rng) -> Vec<u8> {
    let mut out = Vec::new();
    let salt: Salt = std::array::from_fn(|_| rng.next() as u8);
    encode_salted(&record(rng), &salt, &mut out);
    if rng.chance(1, 10) { erase(&out).expect("a record that was just written") } else { out }
}

fn record(rng: &mut Rng) -> Record {
    let room = RoomId::parse(["a", "match:2022-final"][rng.below(2) as usize]);
    let body = body(rng);
    let author = matches!(body, Body::Comment(_) | Body::Gift(_));
    Record {
        epoch: Epoch::new(1 + rng.below(90_000) as u32).expect("within an epoch's range"),
        seq: Seq::new(rng.below(1 << 20)).expect("within a seq's range"),
        room: if matches!(body, Body::EpochStart | Body::Tally(_)) { None } else { room },
        ts: Wall(number(rng) >> 12),
        region: ["local", "eu"][rng.below(2) as usize].into(),
        user: if author { UserId::parse("u_q9z") } else { None },
        client_msg_id: if author { ClientMsgId::parse("abc 123") } else { None },
        pseq: rng.chance(1, 2).then(|| Pseq(rng.below(1 << 40))),
        verdict: [Verdict::Unjudged, Verdict::Allow, Verdict::Flag, Verdict::Block][rng.below(4) as usize],
        policy_version: rng.below(1 << 32) as u32,
        audience: [Audience::Everyone, Audience::Author, Audience::Nobody][rng.below(3) as usize],
        source: rng.chance(1, 5).then(|| Source { log: "raw".into(), id: id(rng) }),
        body,
    }
}

fn id(rng: &mut Rng) -> EventId {
    EventId::at(Epoch::new(1 + rng.below(9) as u32).expect("small"), Seq::new(rng.below(99)).expect("small"))
}

fn key(rng: &mut Rng) -> Key {
    Key::parse(["goal:5512", "m", "openfootball"][rng.below(3) as usize]).expect("a key")
}

fn user(rng: &mut Rng) -> UserId {
    UserId::parse(["u_q9z", "ü", "x"][rng.below(3) as usize]).expect("a user")
}

fn body(rng: &mut Rng) -> Body {
    let said = text(rng, 6);
    match rng.below(20) {
        0 => Body::EpochStart,
        1 | 2 => Body::Comment(Comment {
            display: "Ada".into(),
            badges: (0..rng.below(3)).map(|_| "vip".into()).collect(),
            text: said.into(),
            reply_to: rng.chance(1, 2).then(|| id(rng)),
            rule: rng.chance(1, 4).then(|| "link: evil.net".into()),
            won: rng.chance(1, 2).then(|| {
                Box::new(Won {
                    window: WindowNumber(number(rng)),
                    of: rng.below(1 << 32) as u32,
                    weight: rng.below(1 << 32) as u32,
                    repeats: rng.below(3) as u32,
                    by_right: rng.chance(1, 2),
                    addressee: rng.chance(1, 2).then(|| user(rng)),
                })
            }),
            shadowed: rng.chance(1, 4),
        }),
        3 => Body::Score(score(rng)),
        4 => Body::Gift(Gift {
            gift_id: key(rng),
            display: "Ada".into(),
            item: said.into(),
            count: rng.below(1 << 32) as u32,
            amount_micros: number(rng) >> 12,
            currency: "EUR".into(),
            banner_until: rng.chance(1, 2).then(|| Wall(number(rng) >> 12)),
        }),
        5 => Body::Retract(Retract {
            target: match rng.below(4) {
                0 => RetractTarget::Event(id(rng)),
                3 => RetractTarget::Since(user(rng), Wall(number(rng) >> 12)),
                1 => RetractTarget::User(user(rng)),
                _ => RetractTarget::All,
            },
            reason: said.into(),
        }),
        6 => Body::Config(Config {
            title: rng.chance(1, 2).then(|| said.into()),
            state: rng.chance(1, 2).then_some(RoomState::Settling),
            slow_mode_seconds: rng.chance(1, 2).then(|| rng.below(600) as u32),
            until_ts: rng.chance(1, 2).then(|| rng.chance(1, 2).then(|| Wall(number(rng) >> 12))),
            moderation_policy: rng.chance(1, 2).then_some(Policy::PreModerate),
            pinned: rng.chance(1, 2).then(|| [id(rng)].into()),
            sampled: rng.chance(1, 2).then(|| rng.chance(1, 2)),
            cap: rng.chance(1, 2).then(|| rng.below(1 << 32) as u32),
            emote_only: rng.chance(1, 2).then(|| rng.chance(1, 2)),
            unique_comment: rng.chance(1, 2).then(|| rng.chance(1, 2)),
            members_only: rng.chance(1, 2).then(|| rng.chance(1, 2).then(|| "vip".into())),
        }),
        7 => {
            let mut room = Room::fresh(&said);
            room.matches = vec![key(rng)];
            room.pinned = vec![id(rng)];
            room.merge_ms = rng.chance(1, 2).then(|| rng.below(1_000) as u32);
            room.like_rate = rng.below(40) as u32;
            room.version = rng.below(99);
            room.banner_items = (0..rng.below(3)).map(|_| "rocket".into()).collect();
            room.banner_amounts = [("EUR".into(), number(rng))].into();
            (room.banner_rate, room.banner_seconds) = (rng.below(9) as u32, rng.below(20) as u32);
            room.combo_seconds = rng.below(6) as u32;
            (room.hold_flagged, room.hold_seconds) = (rng.chance(1, 2), rng.below(9_000) as u32);
            room.settle_seconds = rng.below(9_000) as u32;
            room.settles_until = rng.chance(1, 2).then(|| Wall(number(rng) >> 12));
            (room.unique_comment, room.emote_only) = (rng.chance(1, 2), rng.chance(1, 2));
            room.members_only = rng.chance(1, 2).then(|| "vip".into());
            room.pin_ends = (0..rng.below(3)).map(|_| (id(rng), Wall(number(rng) >> 12))).collect();
            room.blackout_regions = (0..rng.below(3)).filter_map(|_| Region::parse("GB-SCT")).collect();
            room.sampling.cap = rng.chance(1, 2).then(|| rng.below(100) as u32);
            room.sampling.rate = rng.below(1 << 32) as u32;
            room.sampling.weights.badges = (0..rng.below(3)).map(|_| ("vip".into(), rng.below(9) as u32)).collect();
            Body::Room(Arc::new(room))
        }
        8 => Body::Ban(Ban {
            user: user(rng),
            until: rng.chance(1, 2).then(|| Wall(number(rng) >> 12)),
            reason: said.into(),
            shadow: rng.chance(1, 2),
        }),
        9 => Body::Unban(user(rng)),
        10 => Body::Wide(Crowd { rate: rng.below(1 << 32) as u32, viewers: number(rng) }),
        11 => Body::Narrow(Crowd { rate: rng.below(1 << 32) as u32, viewers: number(rng) }),
        12 => Body::Tally(Tally {
            rooms: vec![(RoomId::parse("a").expect("a room"), [(LikeKind::plain(), number(rng))].into())],
            senders: vec![(number(rng), number(rng))],
        }),
        13 => Body::Banner(banner(rng)),
        14 => match rng.below(6) {
            0 => Body::BannerEnd(id(rng)),
            3 => Body::Feed(Arc::new(MatchFeed {
                match_id: key(rng),
                primary: key(rng),
                stand_by: rng.chance(1, 2).then(|| key(rng)),
                twins: (0..rng.below(3)).map(|_| (key(rng), key(rng))).collect(),
            })),
            4 => Body::EraseUser(user(rng)),
            1 => Body::Revoke(revoked(rng), Wall(number(rng) >> 12)),
            2 => Body::RevokeEnd(revoked(rng)),
            _ => Body::Outage(rng.chance(1, 2).then(|| Wall(number(rng) >> 12))),
        },
        15 => Body::Combo(ComboUpdate {
            first: id(rng),
            display: "Ada".into(),
            item: said.into(),
            currency: "EUR".into(),
            gifts: rng.below(1 << 32) as u32,
            count: number(rng),
            amount_micros: number(rng),
            ended: rng.chance(1, 2),
        }),
        16 => Body::Blocked(Blocked {
            comment: bare(said),
            client_msg_id: rng.chance(1, 2).then(|| ClientMsgId::parse("k-1").expect("a key")),
        }),
        17 => Body::Held(Held {
            comment: bare(said),
            client_msg_id: ClientMsgId::parse("k-1").expect("a key"),
            until: Wall(number(rng) >> 12),
        }),
        18 => Body::HeldEnd(HeldEnd {
            held: id(rng),
            client_msg_id: ClientMsgId::parse("k-1").expect("a key"),
            end: [End::Denied, End::Expired, End::Approved(id(rng))][rng.below(3) as usize],
        }),
        _ => Body::Audit(Audit { what: "ban".into(), justification: said.into() }),
    }
}

fn bare(text: String) -> Comment {
    let (display, rule) = ("Ada".into(), Some("block: x".into()));
    Comment { display, badges: [].into(), text: text.into(), reply_to: None, won: None, rule, shadowed: false }
}

fn revoked(rng: &mut Rng) -> Revoked {
    match rng.below(3) {
        0 => Revoked::User(user(rng)),
        1 => Revoked::Session("s-7".into()),
        _ => Revoked::Key("idp-2026".into()),
    }
}

fn banner(rng: &mut Rng) -> Banner {
    Banner {
        text: text(rng, 6).into(),
        gift: rng.chance(1, 2).then(|| BannerGift {
            user: user(rng),
            display: "Ada".into(),
            item: "rocket".into(),
            count: rng.below(1 << 32) as u32,
        }),
        room: rng.chance(1, 2).then(|| RoomId::parse("a").expect("a room")),
        until: Wall(number(rng) >> 12),
    }
}

fn score(rng: &mut Rng) -> Score {
    Score {
        match_id: key(rng),
        provider: key(rng),
        event: key(rng),
        revision: Revision(1 + rng.below(5) as u32),
        kind: [ScoreKind::Goal, ScoreKind::Correction][rng.below(2) as usize],
        state: [ScoreState::Confirmed, ScoreState::Withdrawn][rng.below(2) as usize],
        home: rng.below(9) as u32,
        away: rng.below(9) as u32,
        minute: rng.chance(1, 2).then(|| "90+2".into()),
        superseded: rng.chance(1, 2),
        historical: rng.chance(1, 2),
        digest: std::array::from_fn(|_| rng.next() as u8),
        data: rng.chance(1, 2).then(|| r#"{"var":true}"#.into()),
        shown: rng.chance(1, 4).then(|| Shown {
            key: key(rng),
            revision: Revision(rng.below(9) as u32),
            again: rng.chance(1, 2),
        }),
    }
}

/// A field of Protobuf: its number and where its value lies.
struct Field {
    number: u64,
    start: usize,
    value: std::ops::Range<usize>,
}

/// The fields of a message in the order they come, as far as they can be told.
fn fields(bytes: &[u8]) -> Vec<Field> {
    let mut found = Vec::new();
    let mut at = 0;
    let varint = |at: &mut usize| -> Option<u64> {
        let mut n = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = *bytes.get(*at)?;
            *at += 1;
            n |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(n);
            }
        }
        None
    };
    while at < bytes.len() {
        let start = at;
        let Some(tag) = varint(&mut at) else { break };
        let len = match tag & 7 {
            0 => {
                let from = at;
                if varint(&mut at).is_none() {
                    break;
                }
                found.push(Field { number: tag >> 3, start, value: from..at });
                continue;
            }
            2 => varint(&mut at),
            5 => Some(4),
            _ => None,
        };
        let Some(end) =
            len.and_then(|len| at.checked_add(usize::try_from(len).ok()?)).filter(|end| *end <= bytes.len())
        else {
            break;
        };
        found.push(Field { number: tag >> 3, start, value: at..end });
        at = end;
    }
    found
}

/// Makes hash and checksum right again, so that a changed header or content is read.
pub fn mend_record(bytes: &mut [u8], rng: &mut Rng) {
    if rng.chance(1, 4) {
        return;
    }
    let of = |all: &[Field], number: u64| all.iter().find(|f| f.number == number).map(|f| f.value.clone());
    let all = fields(bytes);
    if let (Some(hash), Some(salt), Some(body)) = (of(&all, 18), of(&all, 19), of(&all, 20))
        && hash.len() == 32
    {
        let salted = [&bytes[salt], &bytes[body]].concat();
        bytes[hash].copy_from_slice(digest(&SHA256, &salted).as_ref());
    }
    let header_end = all.iter().find(|f| f.number > 18).map(|f| f.start);
    if let (Some(end), Some(checksum)) = (header_end, of(&all, 21).filter(|c| c.len() == 4)) {
        let right = crc32fast::hash(&bytes[..end]).to_le_bytes();
        bytes[checksum].copy_from_slice(&right);
    }
}

pub fn check_record(input: &[u8]) -> u64 {
    let erased = erase(input);
    let record = match decode(input) {
        Ok(record) => record,
        Err(fault) => return outcome(&[1, word(&fault.to_string()), u64::from(erased.is_ok())]),
    };
    let erased = erased.expect("what is a record can be erased");
    assert_eq!(erase(&erased).as_ref(), Ok(&erased), "erased twice is erased once");
    let left = decode(&erased).expect("an erased record is a record");
    assert_eq!(
        (left.epoch, left.seq, &left.room, left.ts, left.pseq),
        (record.epoch, record.seq, &record.room, record.ts, record.pseq)
    );
    assert!(matches!(left.body, Body::Erased | Body::EpochStart));
    // What was read is what is written: with its own salt, to the byte.
    if !matches!(record.body, Body::Erased) {
        let salt = fields(input).into_iter().find(|f| f.number == 19).map(|f| input[f.value].to_vec());
        let salt: Salt = salt.and_then(|s| s.try_into().ok()).unwrap_or_default();
        let mut again = Vec::new();
        encode_salted(&record, &salt, &mut again);
        assert_eq!(again.escape_ascii().to_string(), input.escape_ascii().to_string(), "written again");
    }
    // Whoever is sent it, or exports it, is sent JSON.
    let mut json = Vec::new();
    if write_event(&record, &mut json).is_some() {
        serde_json::from_slice::<serde_json::Value>(&json).expect("an event is JSON");
    }
    json.clear();
    write_line(&record, &mut json);
    serde_json::from_slice::<serde_json::Value>(&json).expect("a line of an export is JSON");
    outcome(&[2, word(&format!("{:?}", std::mem::discriminant(&record.body))), u64::from(record.source.is_some())])
}

pub fn generate_checkpoint(rng: &mut Rng) -> Vec<u8> {
    let mut out = Vec::new();
    if rng.chance(1, 4) {
        let span = |n: u64, rng: &mut Rng| EpochSpan {
            epoch: Epoch::new(n as u32 + 1).expect("small"),
            last_seq: Seq::new(rng.below(1 << 20)).expect("small"),
        };
        let epochs: Vec<EpochSpan> = (0..1 + rng.below(4)).map(|n| span(n, rng)).collect();
        let last = epochs.last().expect("at least one");
        let position = EventId::at(last.epoch, last.last_seq).position();
        let senders = match rng.chance(1, 2) {
            true => vec![(number(rng) >> 1, Counted { number: number(rng), at: Wall(number(rng) >> 12) })],
            false => Vec::new(),
        };
        let mut site = Site::default();
        if rng.chance(1, 2) {
            let standing = Standing { since: Wall(number(rng) >> 12), banner: banner(rng) };
            site.active.insert(id(rng), standing);
            site.recent.push_back((Wall(number(rng) >> 12), RoomId::parse("a").expect("a room")));
        }
        let mut access = Access::default();
        if rng.chance(1, 2) {
            let term = |rng: &mut Rng| Term { since: Wall(number(rng) >> 12), until: Wall(number(rng) >> 12) };
            access.revoked.insert(revoked(rng), term(rng));
            access.outage = rng.chance(1, 2).then(|| term(rng));
        }
        encode_log(&LogCheckpoint { position, ts: Wall(number(rng) >> 12), epochs, senders, site, access }, &mut out);
        return out;
    }
    let room = RoomId::parse("a").expect("a room");
    let mut view = RoomView::new(room.clone(), Arc::new(Room::fresh("t")));
    for seq in 1..=rng.below(12) {
        let mut next = record(rng);
        next.room = Some(room.clone());
        (next.epoch, next.seq) = (Epoch::new(7).expect("small"), Seq::new(seq).expect("small"));
        if !matches!(next.body, Body::EpochStart) {
            view.apply(&Arc::new(next));
        }
    }
    encode_room(&RoomCheckpoint { view }, &mut out);
    out
}

pub fn mend_checkpoint(bytes: &mut [u8], rng: &mut Rng) {
    if bytes.len() < 4 || rng.chance(1, 4) {
        return;
    }
    let end = bytes.len() - 4;
    let right = crc32fast::hash(&bytes[..end]).to_le_bytes();
    bytes[end..].copy_from_slice(&right);
}

pub fn check_checkpoint(input: &[u8]) -> u64 {
    let log = match decode_log(input) {
        Ok(log) => {
            let mut again = Vec::new();
            encode_log(&log, &mut again);
            assert_eq!(again.escape_ascii().to_string(), input.escape_ascii().to_string(), "written again");
            1
        }
        Err(fault) => word(&fault.to_string()),
    };
    let room = match decode_room(input) {
        Ok(room) => {
            let mut again = Vec::new();
            encode_room(&room, &mut again);
            let back = decode_room(&again).expect("what was written is read");
            let mut twice = Vec::new();
            encode_room(&back, &mut twice);
            assert_eq!(twice, again, "written twice");
            1
        }
        Err(fault) => word(&fault.to_string()),
    };
    outcome(&[log, room])
}
