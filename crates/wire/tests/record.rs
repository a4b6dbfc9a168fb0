//! The record's bytes: golden, round trip, damage, erase.

#[path = "common/samples.rs"]
mod common;

use std::collections::BTreeSet;
use std::fmt::Write;

use common::{golden, samples};
use grandstand_core::access::Revoked;
use grandstand_core::ids::{Epoch, EventId, Pseq, Revision, Seq};
use grandstand_core::names::{ClientMsgId, Key, LikeKind, RoomId, UserId};
use grandstand_core::record::{
    Audience, Audit, Ban, Banner, BannerGift, Blocked, Body, ComboUpdate, Comment, Config, Crowd, End, Gift, Held,
    HeldEnd, MatchFeed, Policy, Record, Retract, RetractTarget, Room, RoomState, Score, ScoreKind, ScoreState, Shown,
    Source, Tally, Verdict, Won,
};
use grandstand_core::regions::Region;
use grandstand_core::reports::Report;
use grandstand_core::sampler::pick::WindowNumber;
use grandstand_core::sampler::switch::Sampling;
use grandstand_core::sampler::{Preset, Rules, Weights};
use grandstand_core::time::Wall;
use grandstand_wire::chain::{BEGIN, Chain};
use grandstand_wire::record::{Fault, RECORD_BYTES_MAX, decode, encode, encode_salted, erase, without_user};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::sample::select;

fn bytes(record: &Record) -> Vec<u8> {
    let mut out = Vec::new();
    encode_salted(record, b"0123456789abcdef", &mut out);
    out
}

#[test]
fn every_body_has_the_bytes_it_always_had() {
    let mut text = String::new();
    for (name, record) in samples() {
        let bytes = bytes(&record);
        let hex = bytes.iter().fold(String::new(), |mut hex, b| {
            write!(hex, "{b:02x}").unwrap();
            hex
        });
        writeln!(text, "{name} {hex}").unwrap();
        assert_eq!(decode(&bytes).as_ref(), Ok(&record), "{name}");
    }
    golden("records.txt", &text);
}

#[test]
fn two_encodings_of_one_record_differ_in_salt_and_hash_alone() {
    let (_, record) = &samples()[1];
    let (mut one, mut two) = (Vec::new(), Vec::new());
    encode(record, &mut one);
    encode(record, &mut two);
    assert_ne!(one, two);
    assert_eq!(one.len(), two.len());
    assert_eq!(decode(&one), decode(&two));
}

#[test]
fn an_erase_leaves_header_and_hash_and_no_byte_of_the_content() {
    for (name, record) in samples() {
        let whole = bytes(&record);
        let erased = erase(&whole).unwrap();
        let read = decode(&erased).unwrap();
        let body = if record.body == Body::EpochStart { Body::EpochStart } else { Body::Erased };
        assert_eq!(read, Record { body, ..record.clone() }, "{name}");
        assert_eq!(erase(&erased).as_ref(), Ok(&erased), "{name}: erasing twice is erasing once");
        let text = String::from_utf8_lossy(&erased).into_owned();
        for content in ["no way", "Ada", "rocket", "toxicity", "spam", "0123456789abcdef"] {
            assert!(!text.contains(content), "{name} keeps {content}");
        }
        // Field 18 with its length, and whose the record is behind it where it is somebody's.
        let is_named = record.user.is_some() || record.client_msg_id.is_some();
        let hash = if body_of(&record) { 35 + if is_named { 16 } else { 0 } } else { 0 };
        let header = erased.len() - 6 - hash;
        assert_eq!(erased[..header], whole[..header], "{name}");
    }
}

/// Whether its kind has a content.
fn body_of(record: &Record) -> bool {
    !matches!(record.body, Body::EpochStart | Body::Erased)
}

#[test]
fn who_is_erased_leaves_no_byte_in_what_they_said_and_what_was_said_of_them() {
    let user = UserId::parse("u_q9z").unwrap();
    let mut n_of = 0;
    for (name, record) in samples() {
        for before in [bytes(&record), erase(&bytes(&record)).unwrap()] {
            let record = decode(&before).unwrap();
            let Some(after) = without_user(&before, &user).unwrap() else {
                assert!(!record.names(&user), "{name}");
                continue;
            };
            let left = decode(&after).unwrap();
            assert_eq!(Some(&left), record.without(&user).as_ref(), "{name}");
            assert!(!after.windows(5).any(|w| w == b"u_q9z"), "{name} names its user");
            let key = record.client_msg_id.as_ref().filter(|_| record.is_of(&user));
            assert!(!key.is_some_and(|key| after.windows(key.as_str().len()).any(|w| w == key.as_str().as_bytes())));
            assert_eq!(without_user(&after, &user).unwrap(), None, "{name}: erasing twice is erasing once");
            assert_eq!(erase(&after).as_ref(), Ok(&after), "{name}");
            for i in 0..after.len() * 8 {
                let mut damaged = after.clone();
                damaged[i / 8] ^= 1 << (i % 8);
                assert!(decode(&damaged).is_err(), "{name}, bit {i}");
            }
            n_of += 1;
        }
    }
    assert!(n_of > 10, "{n_of}");
}

#[test]
fn a_content_may_go_before_its_user_does_and_the_same_is_left() {
    let user = UserId::parse("u_q9z").unwrap();
    for (name, record) in samples().into_iter().filter(|(_, record)| record.is_of(&user)) {
        let whole = bytes(&record);
        let at_once = without_user(&whole, &user).unwrap();
        let later = without_user(&erase(&whole).unwrap(), &user).unwrap();
        assert_eq!(at_once, later, "{name}");
    }
}

#[test]
fn a_link_is_the_same_whatever_was_erased_and_another_for_any_other_record() {
    let chain = Chain::new(&[7; 32]);
    let user = UserId::parse("u_q9z").unwrap();
    for (name, record) in samples() {
        let whole = bytes(&record);
        let link = chain.next_own(&BEGIN, &whole);
        let link_of = |bytes: &[u8]| chain.next(&BEGIN, bytes).unwrap();
        assert_eq!(link_of(&whole), Some(link), "{name}");
        let erased = erase(&whole).unwrap();
        assert_eq!(link_of(&erased), Some(link), "{name}: retention");
        for before in [whole, erased] {
            let left = without_user(&before, &user).unwrap();
            assert!(left.is_none_or(|left| link_of(&left) == Some(link)), "{name}: its user is erased");
        }
        assert_ne!(chain.next(&link, &bytes(&record)).unwrap(), Some(link), "{name}: what stands before counts");
        assert_ne!(Chain::new(&[8; 32]).next_own(&BEGIN, &bytes(&record)), link, "{name}: the key counts");
        let later = Record { ts: Wall(record.ts.0 + 1), ..record.clone() };
        assert_ne!(link_of(&bytes(&later)), Some(link), "{name}: the header counts");
        if record.user.is_some() && body_of(&record) {
            let others = Record { user: UserId::parse("u_other"), audience: Audience::Nobody, ..record.clone() };
            let own = Record { audience: Audience::Nobody, ..record.clone() };
            assert_ne!(link_of(&bytes(&others)), link_of(&bytes(&own)), "{name}: whose it is counts");
        }
    }
}

#[test]
fn what_was_erased_before_it_was_known_whose_it_is_is_read_for_ever() {
    let (_, record) = samples().into_iter().find(|(_, r)| r.user.is_some() && body_of(r)).unwrap();
    let whole = bytes(&record);
    // As an earlier version left it: the header alone.
    let salt = whole.windows(3).position(|w| w == [0x9a, 0x01, 16]).unwrap();
    let old = [&whole[..salt], &whole[whole.len() - 6..]].concat();
    assert_eq!(decode(&old).unwrap(), Record { body: Body::Erased, ..record.clone() });
    assert_eq!(erase(&old).as_ref(), Ok(&old));
    assert_eq!(Chain::new(&[7; 32]).next(&BEGIN, &old), Ok(None), "nobody can say whose it was");
    let user = record.user.as_ref().unwrap();
    let left = decode(&without_user(&old, user).unwrap().unwrap()).unwrap();
    assert_eq!((left.user, left.client_msg_id), (None, None));
}

#[test]
fn the_published_format_gives_no_number_twice_and_none_that_it_reserves() {
    let mut given = BTreeSet::new();
    for line in include_str!("../proto/record.proto").lines() {
        let said = line.split("//").next().unwrap_or_default().trim();
        if said.starts_with("message ") || said.starts_with("enum ") {
            given.clear();
        }
        let numbers = said.strip_prefix("reserved ").or_else(|| Some(said.rsplit_once(" = ")?.1));
        for number in numbers.unwrap_or_default().trim_end_matches(';').split(", ").filter(|n| !n.is_empty()) {
            assert!(given.insert(number), "{line}: {number} is taken");
        }
    }
    assert!(given.contains("1"), "the last of them begins with 1: the format was read");
}

#[test]
fn every_flipped_bit_is_found() {
    for (name, record) in samples() {
        for whole in [bytes(&record), erase(&bytes(&record)).unwrap()] {
            for i in 0..whole.len() * 8 {
                let mut damaged = whole.clone();
                damaged[i / 8] ^= 1 << (i % 8);
                assert!(decode(&damaged).is_err(), "{name}, bit {i}");
                assert!(erase(&damaged).is_err(), "{name}, bit {i}");
            }
        }
    }
}

#[test]
fn every_cut_and_every_addition_is_found() {
    for (name, record) in samples() {
        let whole = bytes(&record);
        for len in 0..whole.len() {
            assert!(decode(&whole[..len]).is_err(), "{name} cut to {len}");
        }
        assert!(decode(&[&whole[..], &[0]].concat()).is_err(), "{name}");
        assert!(decode(&[&whole[..], &whole[..]].concat()).is_err(), "{name}");
        // A field that this format does not have: number 22, varint 1.
        assert!(decode(&[&whole[..], &[0xb0, 1, 1]].concat()).is_err(), "{name}");
    }
}

#[test]
fn damage_of_header_and_of_content_are_told_apart() {
    let whole = bytes(&samples()[1].1);
    let at = |needle: &[u8]| whole.windows(needle.len()).position(|w| w == needle).unwrap();
    let damaged = |i: usize| {
        let mut damaged = whole.clone();
        damaged[i] ^= 1;
        decode(&damaged)
    };
    assert_eq!(damaged(at(b"u_q9z")), Err(Fault::Checksum));
    assert_eq!(damaged(at(b"no way")), Err(Fault::BodyHash));
    assert_eq!(damaged(at(b"0123456789abcdef")), Err(Fault::BodyHash));
    assert_eq!(damaged(whole.len() - 1), Err(Fault::Checksum));
}

#[test]
fn lengths_of_gigabytes_and_endless_varints_are_refused_unread() {
    assert_eq!(decode(&vec![0; RECORD_BYTES_MAX + 1]), Err(Fault::TooLong));
    assert_eq!(decode(&[0x22, 0xff, 0xff, 0xff, 0xff, 0x0f]), Err(Fault::Malformed("a length")));
    assert_eq!(
        decode(&[0x22, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]),
        Err(Fault::Malformed("a length"))
    );
    assert_eq!(
        decode(&[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]),
        Err(Fault::Malformed("a varint"))
    );
    assert_eq!(decode(&[0x08, 0x80, 0x00]), Err(Fault::Malformed("a varint")), "a longer form than need be");
    // Deep groups (wire type 3) are no field of this format.
    assert!(decode(&[0x0b; 1000]).is_err());
    assert!(decode(&[]).is_err());
}

fn text() -> impl Strategy<Value = std::sync::Arc<str>> {
    "\\PC{0,40}".prop_map(Into::into)
}

fn event_id() -> impl Strategy<Value = EventId> {
    (1..=Epoch::MAX, 0..=Seq::MAX).prop_map(|(e, s)| EventId::at(Epoch::new(e).unwrap(), Seq::new(s).unwrap()))
}

fn key() -> impl Strategy<Value = Key> {
    "[^\\pC]{1,30}".prop_map(|t| Key::parse(&t).unwrap())
}

fn user() -> impl Strategy<Value = UserId> {
    "[^\\pC]{1,16}".prop_map(|t| UserId::parse(&t).unwrap())
}

fn wall() -> impl Strategy<Value = Wall> {
    any::<u64>().prop_map(Wall)
}

fn comment() -> impl Strategy<Value = Comment> {
    let won = option::of((any::<(u64, u32, u32, u32, bool)>(), option::of(user())));
    (text(), vec(text(), 0..4), text(), option::of(event_id()), won, option::of(text()), any::<bool>()).prop_map(
        |(display, badges, text, reply_to, won, rule, shadowed)| {
            let won = won.map(|((window, of, weight, repeats, by_right), addressee)| {
                Box::new(Won { window: WindowNumber(window), of, weight, repeats, by_right, addressee })
            });
            Comment { display, badges: badges.into(), text, reply_to, won, rule, shadowed }
        },
    )
}

fn score() -> impl Strategy<Value = Body> {
    let ids = (key(), key(), key(), 1..=1_000_000u32);
    let state = (select(&ScoreKind::ALL[..]), select(&ScoreState::ALL[..]), any::<u32>(), any::<u32>());
    let shown = (key(), any::<u32>(), any::<bool>());
    let shown = option::of(shown.prop_map(|(key, n, again)| Shown { key, revision: Revision(n), again }));
    let more = (option::of(text()), shown);
    (ids, state, option::of(text()), any::<(bool, bool, [u8; 16])>(), more).prop_map(
        |(
            (match_id, provider, event, revision),
            (kind, state, home, away),
            minute,
            (superseded, historical, digest),
            (data, shown),
        )| {
            Body::Score(Score {
                match_id,
                provider,
                event,
                revision: Revision(revision),
                kind: kind.0,
                state: state.0,
                home,
                away,
                minute,
                superseded,
                historical,
                digest,
                data,
                shown,
            })
        },
    )
}

fn gift() -> impl Strategy<Value = Body> {
    (key(), text(), text(), any::<(u32, u64)>(), text(), option::of(wall())).prop_map(
        |(gift_id, display, item, (count, amount_micros), currency, banner_until)| {
            Body::Gift(Gift { gift_id, display, item, count, amount_micros, currency, banner_until })
        },
    )
}

fn banner() -> impl Strategy<Value = Body> {
    let gift = (user(), text(), text(), any::<u32>()).prop_map(|(user, display, item, count)| BannerGift {
        user,
        display,
        item,
        count,
    });
    let room = option::of("[a-z0-9][a-z0-9:_.-]{0,20}".prop_map(|t| RoomId::parse(&t).unwrap()));
    (text(), option::of(gift), room, wall())
        .prop_map(|(text, gift, room, until)| Body::Banner(Banner { text, gift, room, until }))
}

fn combo() -> impl Strategy<Value = Body> {
    (event_id(), text(), text(), text(), any::<(u32, u64, u64, bool)>()).prop_map(
        |(first, display, item, currency, (gifts, count, amount_micros, ended))| {
            Body::Combo(ComboUpdate { first, display, item, currency, gifts, count, amount_micros, ended })
        },
    )
}

fn ban() -> impl Strategy<Value = Ban> {
    (user(), option::of(wall()), text(), any::<bool>()).prop_map(|(user, until, reason, shadow)| Ban {
        user,
        until,
        reason,
        shadow,
    })
}

fn retract() -> impl Strategy<Value = Body> {
    let target = prop_oneof![
        event_id().prop_map(RetractTarget::Event),
        user().prop_map(RetractTarget::User),
        (user(), wall()).prop_map(|(user, from)| RetractTarget::Since(user, from)),
        Just(RetractTarget::All)
    ];
    (target, text()).prop_map(|(target, reason)| Body::Retract(Retract { target, reason }))
}

fn config() -> impl Strategy<Value = Body> {
    (
        option::of(text()),
        option::of(select(&RoomState::ALL[..])),
        any::<Option<u32>>(),
        option::of(option::of(wall())),
        option::of(select(&Policy::ALL[..])),
        option::of(vec(event_id(), 0..4)),
        any::<(Option<bool>, Option<u32>)>(),
        (any::<(Option<bool>, Option<bool>)>(), option::of(option::of(text()))),
    )
        .prop_map(|(title, state, slow_mode_seconds, until_ts, policy, pinned, (sampled, cap), asks)| {
            let ((emote_only, unique_comment), members_only) = asks;
            Body::Config(Config {
                title,
                state: state.map(|s| s.0),
                slow_mode_seconds,
                until_ts,
                moderation_policy: policy.map(|p| p.0),
                pinned: pinned.map(Into::into),
                sampled,
                cap,
                emote_only,
                unique_comment,
                members_only,
            })
        })
}

fn rules() -> impl Strategy<Value = Rules> {
    let numbers = any::<(u32, u32, Option<u32>, u32, u32, u32)>();
    let badges = vec((text(), any::<u32>()), 0..3);
    (select(&Sampling::ALL[..]), select(&Preset::ALL[..]), numbers, badges).prop_map(|(when, preset, n, badges)| {
        Rules {
            when: when.0,
            rate: n.0,
            viewers: n.1,
            preset: preset.0,
            cap: n.2,
            weights: Weights { base: n.3, per_reply: n.4, per_reaction: n.5, badges },
        }
    })
}

fn settings() -> impl Strategy<Value = Body> {
    let flags = any::<(bool, bool, bool)>();
    let numbers = any::<(u32, u32, u32, Option<u32>, u32, u32, u32, u64)>();
    let lists = (vec(key(), 0..4), vec(event_id(), 0..4));
    let times = (option::of(wall()), any::<Option<u32>>(), (rules(), any::<u32>()));
    let amounts = btree_map("[A-Z]{1,4}".prop_map(Into::into), any::<u64>(), 0..4);
    let banners = (vec(text(), 0..4), amounts, any::<(u32, u32, u32)>());
    let asks = (any::<bool>(), any::<bool>(), option::of(text()), btree_map(event_id(), wall(), 0..3));
    (text(), select(&RoomState::ALL[..]), select(&Policy::ALL[..]), flags, numbers, lists, times, (banners, asks))
        .prop_map(
            |(
                title,
                state,
                policy,
                flags,
                n,
                (matches, pinned),
                (slow_mode_until, comment_age_ms, (sampling, like_rate)),
                (banners, asks),
            )| {
                Body::Room(
                    Room {
                        title,
                        state: state.0,
                        matches,
                        anonymous_view: flags.0,
                        anonymous_publish: flags.1,
                        listed: flags.2,
                        rate: n.0,
                        user_rate: n.1,
                        user_burst: n.2,
                        like_rate,
                        merge_ms: n.3,
                        comment_age_ms,
                        resume_window_seconds: n.4,
                        retention_days: n.5,
                        slow_mode_seconds: n.6,
                        slow_mode_until,
                        moderation_policy: policy.0,
                        pinned,
                        sampling,
                        banner_items: banners.0,
                        banner_amounts: banners.1,
                        banner_rate: banners.2.0,
                        banner_seconds: banners.2.1,
                        combo_seconds: banners.2.2,
                        hold_flagged: flags.0,
                        hold_seconds: banners.2.0,
                        unique_comment: asks.0,
                        emote_only: asks.1,
                        members_only: asks.2,
                        pin_ends: asks.3,
                        settle_seconds: banners.2.1,
                        settles_until: slow_mode_until,
                        blackout_regions: if flags.0 { vec![] } else { ["DE", "GB-SCT"].map(region).into() },
                        version: n.7,
                    }
                    .into(),
                )
            },
        )
}

fn msg_id() -> impl Strategy<Value = ClientMsgId> {
    "[!-~]{1,20}".prop_map(|t| ClientMsgId::parse(&t).unwrap())
}

fn region(text: &str) -> Region {
    Region::parse(text).unwrap()
}

fn revoked() -> impl Strategy<Value = Revoked> {
    let name = "[!-~]{1,256}";
    prop_oneof![
        user().prop_map(Revoked::User),
        name.prop_map(|name| Revoked::Session(name.into())),
        name.prop_map(|name| Revoked::Key(name.into())),
    ]
}

fn tally() -> impl Strategy<Value = Body> {
    let room = "[a-z0-9][a-z0-9:_.-]{0,20}".prop_map(|t| RoomId::parse(&t).unwrap());
    let kind = "[a-z][a-z0-9_]{0,15}".prop_map(|t| LikeKind::parse(&t).unwrap());
    let totals = proptest::collection::btree_map(kind, any::<u64>(), 0..9);
    let rooms = proptest::collection::btree_map(room, totals, 0..5);
    (rooms, proptest::collection::btree_map(any::<u64>(), any::<u64>(), 0..5)).prop_map(|(rooms, senders)| {
        let rooms = rooms.into_iter().map(|(room, totals)| (room, totals.into_iter().collect())).collect();
        Body::Tally(Tally { rooms, senders: senders.into_iter().collect() })
    })
}

fn body() -> impl Strategy<Value = Body> {
    prop_oneof![
        Just(Body::EpochStart),
        Just(Body::Erased),
        comment().prop_map(Body::Comment),
        (comment(), option::of(msg_id()))
            .prop_map(|(comment, client_msg_id)| Body::Blocked(Blocked { comment, client_msg_id })),
        (comment(), msg_id(), wall()).prop_map(|(comment, client_msg_id, until)| Body::Held(Held {
            comment,
            client_msg_id,
            until
        })),
        (event_id(), msg_id(), prop_oneof![event_id().prop_map(End::Approved), Just(End::Denied), Just(End::Expired)])
            .prop_map(|(held, client_msg_id, end)| Body::HeldEnd(HeldEnd { held, client_msg_id, end })),
        score(),
        gift(),
        banner(),
        event_id().prop_map(Body::BannerEnd),
        (revoked(), wall()).prop_map(|(what, until)| Body::Revoke(what, until)),
        revoked().prop_map(Body::RevokeEnd),
        option::of(wall()).prop_map(Body::Outage),
        (key(), key(), option::of(key()), vec((key(), key()), 0..3)).prop_map(
            |(match_id, primary, stand_by, twins)| Body::Feed(MatchFeed { match_id, primary, stand_by, twins }.into())
        ),
        user().prop_map(Body::EraseUser),
        combo(),
        retract(),
        config(),
        settings(),
        any::<(u32, u64)>().prop_map(|(rate, viewers)| Body::Wide(Crowd { rate, viewers })),
        any::<(u32, u64)>().prop_map(|(rate, viewers)| Body::Narrow(Crowd { rate, viewers })),
        ban().prop_map(Body::Ban),
        ban().prop_map(Body::SiteBan),
        user().prop_map(Body::SiteUnban),
        (event_id(), text()).prop_map(|(event, reason)| Body::Report(Report { event, reason })),
        user().prop_map(Body::Unban),
        (text(), text()).prop_map(|(what, justification)| Body::Audit(Audit { what, justification })),
        tally(),
    ]
}

fn any_record() -> impl Strategy<Value = Record> {
    let names = (
        option::of("[a-z0-9][a-z0-9:_.-]{0,20}".prop_map(|t| RoomId::parse(&t).unwrap())),
        option::of(user()),
        option::of("[ -~]{1,20}".prop_map(|t| ClientMsgId::parse(&t).unwrap())),
        option::of((text(), event_id()).prop_map(|(log, id)| Source { log, id })),
    );
    let verdict = select(vec![Verdict::Unjudged, Verdict::Allow, Verdict::Flag, Verdict::Block]);
    let audience = select(vec![Audience::Everyone, Audience::Author, Audience::Nobody]);
    (event_id(), names, wall(), text(), option::of(1..u64::MAX), (verdict, any::<u32>(), audience), body()).prop_map(
        |(id, (room, user, client_msg_id, source), ts, region, pseq, (verdict, policy_version, audience), body)| {
            Record {
                epoch: id.epoch(),
                seq: id.seq(),
                room,
                ts,
                region,
                user,
                client_msg_id,
                pseq: pseq.map(Pseq),
                verdict,
                policy_version,
                audience,
                // A source without a name would be no source.
                source: source.filter(|s| !s.log.is_empty()),
                body,
            }
        },
    )
}

proptest! {
    #[test]
    fn every_record_survives_its_bytes(record in any_record()) {
        let mut out = b"before".to_vec();
        encode(&record, &mut out);
        prop_assert_eq!(&out[..6], b"before");
        prop_assert_eq!(decode(&out[6..]), Ok(record.clone()));
        let erased = decode(&erase(&out[6..]).unwrap()).unwrap();
        prop_assert_eq!(erased.event_id(), record.event_id());
        prop_assert!(matches!(erased.body, Body::Erased | Body::EpochStart));
    }

    #[test]
    fn damaged_bytes_never_read_as_valid(record in any_record(), at in any::<proptest::sample::Index>(), with in 1..=255u8) {
        let mut damaged = bytes(&record);
        let at = at.index(damaged.len());
        damaged[at] ^= with;
        prop_assert!(decode(&damaged).is_err());
    }

    #[test]
    fn no_bytes_panic(bytes in vec(any::<u8>(), 0..300)) {
        prop_assert!(decode(&bytes).is_err());
        prop_assert!(erase(&bytes).is_err());
    }
}
