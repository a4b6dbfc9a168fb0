//! Every event a server sends, as kept in tests/golden/events. The TypeScript SDK reads the same files.

#[path = "common/samples.rs"]
mod common;

use common::{golden, id, key, record, room, samples};
use grandstand_core::banners::Site;
use grandstand_core::ids::{Partition, Position, Pseq, Seq};
use grandstand_core::names::{ClientMsgId, LikeKind};
use grandstand_core::record::{Audience, Body, Comment, Room};
use grandstand_core::time::Wall;
use grandstand_wire::codes::{CloseCode, ErrorCode, RateReason};
use grandstand_wire::event::{
    AckId, Close, Counters, Endpoints, ErrorEvent, FeedPaused, FeedStale, Hello, Left, ModerationFailed,
    ModerationPending, Pong, PublishAck, PublishCommit, RateLimited, Skipped, SnapshotRequired, TokenExpiring,
    ended_banner, kind, with_client_msg_id, write_banner, write_banners, write_config, write_event, write_pinned,
};
use proptest::prelude::{any, prop_assert_eq, proptest};
use serde_json::Value;

fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    String::from_utf8(out).unwrap()
}

/// Holds the event against its file, after a reader that is not ours has taken it for one object of one line.
#[track_caller]
fn keep(name: &str, kind: &str, json: &str) -> Value {
    let value: Value = serde_json::from_str(json).unwrap_or_else(|e| panic!("{name}: {e}: {json}"));
    assert_eq!(value["type"], kind, "{name}");
    assert!(!json.contains(['\n', '\r']), "{name}");
    golden(&format!("events/{name}.json"), &format!("{json}\n"));
    value
}

#[test]
fn events_of_the_log_are_written_as_they_always_were() {
    for (name, record) in samples() {
        let mut out = Vec::new();
        let got = write_event(&record, &mut out);
        assert_eq!(got, kind(&record), "{name}");
        let Some(kind) = got else {
            assert!(out.is_empty(), "{name} is nobody's event");
            continue;
        };
        let value = keep(name, kind, std::str::from_utf8(&out).unwrap());
        assert_eq!(value["event_id"], record.event_id().value(), "{name}");
        assert_eq!(value["room_id"], room().as_str(), "{name}");
        assert_eq!(value["pseq"].as_u64(), record.pseq.map(|p| p.0), "{name}");
        assert!(value.get("client_msg_id").is_none(), "{name}: the key is the author's alone");
    }
}

#[test]
fn the_author_s_copy_has_the_key_at_its_end() {
    let (_, comment) = &samples()[1];
    let json = written(|out| {
        write_event(comment, out);
    });
    let own = written(|out| with_client_msg_id(json.as_bytes(), &ClientMsgId::parse("a\"b\\").unwrap(), out));
    let value = keep("comment_own", "comment", &own);
    assert_eq!(value["client_msg_id"], "a\"b\\");
}

#[test]
fn a_record_for_nobody_is_no_event() {
    let (_, comment) = &samples()[1];
    let mut hidden = comment.clone();
    hidden.audience = Audience::Nobody;
    let mut out = Vec::new();
    assert_eq!(write_event(&hidden, &mut out), None);
    assert!(out.is_empty());
}

#[test]
fn events_of_one_connection_are_written_as_they_always_were() {
    let room = &room();
    let own = &ClientMsgId::parse("abc123").unwrap();
    let cursor = id(7).position();
    let counters = Counters {
        room,
        likes: &["heart", "fire"]
            .map(|kind| LikeKind::parse(kind).unwrap())
            .map(|kind| (kind.clone(), u64::from(kind.as_str() == "heart") * 12)),
        viewers: 48_213,
        keep_millionths: Some(20),
        as_of: Wall(1_779_048_873_122),
    };
    let mut settings = Room::fresh("Final");
    settings.pinned = vec![id(2), id(3)];
    let hello = Hello {
        room,
        session: "s-4f1c",
        cursor,
        pseq: Pseq(5),
        resumed: true,
        comments_all: false,
        config: &written(|out| write_config(&settings, true, out)),
        counters: &written(|out| counters.write_values(out)),
        pinned: &written(|out| write_pinned(&settings, out)),
        banners: "[]",
        endpoints: None,
    };
    keep("hello", "hello", &written(|out| hello.write(out)));
    let asks = Room { emote_only: true, unique_comment: true, members_only: Some("sub".into()), ..settings.clone() };
    let asks = written(|out| write_config(&asks, false, out));
    keep("hello_asks", "hello", &written(|out| Hello { config: &asks, ..hello.clone() }.write(out)));
    let sse = ["https://sse-1.example.com".to_owned(), "https://sse-2.example.com:8443".to_owned()];
    let endpoints = Endpoints {
        websocket: Some("wss://ws.example.com"),
        sse: &sse,
        poll: Some("https://poll.example.com"),
        api: Some("https://live.example.com"),
    };
    let endpoints = written(|out| endpoints.write(out));
    keep("hello_endpoints", "hello", &written(|out| Hello { endpoints: Some(&endpoints), ..hello.clone() }.write(out)));
    keep("counters", "counters", &written(|out| counters.write(out)));
    let all = Counters { likes: &[], keep_millionths: Some(1_000_000), ..counters };
    keep("counters_unsampled", "counters", &written(|out| all.write(out)));

    let ack = PublishAck {
        room,
        client_msg_id: own,
        id: AckId::Event(id(8)),
        partition: Partition(512),
        offset: Seq::new(8).unwrap(),
        duplicate: false,
    };
    keep("publish_ack", "publish_ack", &written(|out| ack.write(out)));
    let again = PublishAck { duplicate: true, ..ack.clone() };
    keep("publish_ack_duplicate", "publish_ack", &written(|out| again.write(out)));
    let decided = |event_id| AckId::Decided { raw_id: id(8), event_id };
    for (name, id) in [
        ("publish_ack_wide", AckId::Raw(id(8))),
        ("publish_ack_wide_shown", decided(Some(id(9)))),
        ("publish_ack_wide_unshown", decided(None)),
    ] {
        let wide = PublishAck { id, ..ack.clone() };
        keep(name, "publish_ack", &written(|out| wide.write(out)));
    }
    for (name, event_id) in [("publish_commit", Some(id(8))), ("publish_commit_unshown", None)] {
        let commit = PublishCommit { room, client_msg_id: own, event_id };
        keep(name, "publish_commit", &written(|out| commit.write(out)));
    }

    let error = ErrorEvent {
        room: Some(room),
        code: ErrorCode::Overloaded.name(),
        message: "the writer's queue is full",
        client_msg_id: Some(own),
        retry_after_ms: Some(500),
    };
    keep("error", "error", &written(|out| error.write(out)));
    let bare = ErrorEvent { room: None, client_msg_id: None, retry_after_ms: None, ..error };
    keep("error_bare", "error", &written(|out| bare.write(out)));
    let limited = RateLimited { room, client_msg_id: Some(own), retry_after_ms: 30_000, reason: RateReason::SlowMode };
    keep("rate_limited", "rate_limited", &written(|out| limited.write(out)));
    let pending = ModerationPending { room, client_msg_id: own, retry_after_ms: Some(2_000) };
    keep("moderation_pending", "moderation_pending", &written(|out| pending.write(out)));
    let failed = ModerationFailed { room, client_msg_id: own, reason: "policy.toxicity" };
    keep("moderation_failed", "moderation_failed", &written(|out| failed.write(out)));

    let skipped = Skipped { room, count: 17, from: id(9), to: id(40) };
    keep("skipped", "skipped", &written(|out| skipped.write(out)));
    let required = SnapshotRequired { room, reason: "too_old", cursor, pseq: Pseq(5) };
    keep("snapshot_required", "snapshot_required", &written(|out| required.write(out)));
    keep(
        "token_expiring",
        "token_expiring",
        &written(|out| TokenExpiring { room: Some(room), in_ms: 120_000 }.write(out)),
    );
    keep("pong", "pong", &written(|out| Pong { room: Some(room) }.write(out)));
    keep("left", "left", &written(|out| Left { room }.write(out)));
    let paused = FeedPaused { room, reason: "regional_failover", retry_after_ms: 5_000, spread_ms: 60_000 };
    keep("feed_paused", "feed_paused", &written(|out| paused.write(out)));
    let (match_id, provider, since) = (&key("final"), &key("sportradar"), Wall(1_779_048_873_122));
    let stale = FeedStale { room, match_id, provider, since, ended: false };
    keep("feed_stale", "feed_stale", &written(|out| stale.write(out)));
    keep("feed_stale_ended", "feed_stale", &written(|out| FeedStale { ended: true, ..stale.clone() }.write(out)));
    let mut site = Site::default();
    for (_, record) in samples() {
        if !matches!(record.body, Body::BannerEnd(_)) {
            site.take(&record);
        }
    }
    let of = |seq| &site.active[&id(seq)].banner;
    let (of_gift, of_operator) = (of(30), of(31));
    let gift = written(|out| write_banner(id(30), of_gift, out));
    keep("banner", "banner", &gift);
    let operator = written(|out| write_banner(id(31), of_operator, out));
    keep("banner_of_an_operator", "banner", &operator);
    keep("banner_ended", "banner", &written(|out| out.extend(ended_banner(id(31), of_operator.until))));
    let both = written(|out| write_banners([gift.as_bytes(), operator.as_bytes()].into_iter(), out));
    assert_eq!(serde_json::from_str::<Value>(&both).unwrap().as_array().map(Vec::len), Some(2));
}

#[test]
fn every_close_code_has_its_event_with_its_default_delays() {
    for code in CloseCode::ALL {
        let json = written(|out| Close::of(*code, Some(&room())).write(out));
        let value = keep(&format!("close_{}", code.code()), "close", &json);
        assert_eq!(value["code"], code.code());
        assert_eq!(value["reason"], code.reason());
        assert_eq!(value.get("retry_after_ms").is_some(), code.retry().is_some(), "{code:?}");
        assert_eq!(value.get("spread_ms").is_some(), code.retry().is_some(), "{code:?}");
    }
}

proptest! {
    #[test]
    fn any_text_a_person_writes_comes_out_as_it_went_in(display in any::<String>(), badge in any::<String>(), text in any::<String>()) {
        let body = Comment { display: (*display).into(), badges: [(*badge).into()].into(), text: (*text).into(), reply_to: None, won: None, rule: None, shadowed: false };
        let json = written(|out| {
            write_event(&record(9, Body::Comment(body)), out);
        });
        let value: Value = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(value["user"]["display"].as_str(), Some(&*display));
        prop_assert_eq!(value["user"]["badges"][0].as_str(), Some(&*badge));
        prop_assert_eq!(value["body"].as_str(), Some(&*text));
    }

    #[test]
    fn every_fraction_is_the_number_it_stands_for(millionths in 0..=1_000_000u32) {
        let keep_millionths = Some(millionths);
        let counters = Counters { room: &room(), likes: &[], viewers: 0, keep_millionths, as_of: Wall(0) };
        let json = written(|out| counters.write(out));
        let value: Value = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(value["keep_fraction"].as_f64().unwrap(), f64::from(millionths) / 1e6);
    }
}

#[test]
fn a_snapshot_url_carries_the_cursor_it_must_reach() {
    let start = Position::START;
    let required = SnapshotRequired { room: &room(), reason: "unknown_cursor", cursor: start, pseq: Pseq(0) };
    let json = written(|out| required.write(out));
    assert!(json.contains("\"snapshot_url\":\"/v1/rooms/match:2022-final/snapshot?min=0\""), "{json}");
}
