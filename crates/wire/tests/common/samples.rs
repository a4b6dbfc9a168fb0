//! Golden files: what was written once must be written for ever. `GOLDEN=write` renews them on purpose.

use std::path::PathBuf;

use grandstand_core::access::Revoked;
use grandstand_core::ids::{Epoch, EventId, Pseq, Revision, Seq};
use grandstand_core::names::{ClientMsgId, Key, LikeKind, RoomId, UserId};
use grandstand_core::record::{
    Audience, Audit, Ban, Banner, Blocked, Body, ComboUpdate, Comment, Config, Crowd, End, Gift, HELD, Held, HeldEnd,
    MatchFeed, Policy, RAW, Record, Retract, RetractTarget, Room, RoomState, Score, ScoreKind, ScoreState, Shown,
    Source, Tally, Verdict, Won,
};
use grandstand_core::reports::Report;
use grandstand_core::sampler::pick::WindowNumber;
use grandstand_core::sampler::switch::Sampling;
use grandstand_core::sampler::{Preset, Rules, Weights};
use grandstand_core::time::Wall;

pub fn golden(name: &str, written: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("GOLDEN").is_some_and(|v| v == "write") {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, written).unwrap();
        return;
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert_eq!(written, kept, "{} is not what is written today", path.display());
}

pub fn room() -> RoomId {
    RoomId::parse("match:2022-final").unwrap()
}

pub fn key(text: &str) -> Key {
    Key::parse(text).unwrap()
}

pub fn id(seq: u64) -> EventId {
    EventId::at(Epoch::new(25_560).unwrap(), Seq::new(seq).unwrap())
}

pub fn record(seq: u64, body: Body) -> Record {
    let pseq = match body {
        Body::Score(_) | Body::Gift(_) | Body::Combo(_) | Body::Retract(_) | Body::Config(_) => Some(Pseq(seq)),
        _ => None,
    };
    let author = matches!(body, Body::Comment(_) | Body::Gift(_));
    let moderated = matches!(body, Body::Blocked(_) | Body::Held(_) | Body::HeldEnd(_));
    Record {
        epoch: id(seq).epoch(),
        seq: id(seq).seq(),
        room: (!matches!(body, Body::EpochStart)).then(room),
        ts: Wall(1_779_048_873_122 + seq),
        region: "local".into(),
        user: (author || moderated).then(|| UserId::parse("u_q9z").unwrap()),
        client_msg_id: author.then(|| ClientMsgId::parse("abc123").unwrap()),
        pseq,
        verdict: if author { Verdict::Allow } else { Verdict::Unjudged },
        policy_version: 3,
        audience: Audience::Everyone,
        source: None,
        body,
    }
}

pub fn score() -> Score {
    Score {
        match_id: key("worldcup:ARG-FRA:2022-12-18"),
        provider: key("openfootball"),
        event: key("goal:5512"),
        revision: Revision(1),
        kind: ScoreKind::Goal,
        state: ScoreState::Confirmed,
        home: 3,
        away: 2,
        minute: Some("108".into()),
        superseded: false,
        historical: false,
        digest: *b"0123456789abcdef",
        data: None,
        shown: None,
    }
}

fn rocket(gift_id: &str) -> Gift {
    Gift {
        gift_id: key(gift_id),
        display: "Ada".into(),
        item: "rocket".into(),
        count: 3,
        amount_micros: 4_990_000,
        currency: "EUR".into(),
        banner_until: None,
    }
}

/// A match that changes hands.
fn feeds() -> [(&'static str, Record); 4] {
    let mut hidden = record(45, Body::Score(Score { provider: key("second"), ..score() }));
    (hidden.audience, hidden.pseq) = (Audience::Nobody, None);
    let twins = vec![(key("goal:5512"), key("goal:5512"))];
    let (match_id, primary) = (score().match_id, key("second"));
    let feed = MatchFeed { match_id, primary, stand_by: Some(key("openfootball")), twins };
    let mut feed = record(46, Body::Feed(feed.into()));
    (feed.audience, feed.pseq) = (Audience::Nobody, None);
    let renumbered = Some(Shown { key: key("goal:5512"), revision: Revision(3), again: false });
    let goes_on = Score { provider: key("second"), revision: Revision(2), shown: renumbered, ..score() };
    let given_back = Some(Shown { key: key("second:card"), revision: Revision(1), again: true });
    let again = Score { provider: key("second"), event: key("card"), shown: given_back, ..score() };
    [
        ("score_event_hidden", hidden),
        ("feed", feed),
        ("score_event_goes_on", record(47, Body::Score(goes_on))),
        ("score_event_again", record(48, Body::Score(again))),
    ]
}

/// One record of every body, and of every shape a body has.
pub fn samples() -> Vec<(&'static str, Record)> {
    let comment = Comment {
        display: "Ada \"the\" Countess".into(),
        badges: ["sub".into(), "vip".into()].into(),
        text: "no way 😀\n<b>\u{2028}\u{202f}\\".into(),
        reply_to: Some(id(1)),
        won: None,
        rule: None,
        shadowed: false,
    };
    let bare = Comment {
        display: "a".into(),
        badges: [].into(),
        text: "x".into(),
        reply_to: None,
        won: None,
        rule: None,
        shadowed: false,
    };
    let late = Score {
        revision: Revision(2),
        kind: ScoreKind::Correction,
        state: ScoreState::Withdrawn,
        minute: None,
        superseded: true,
        historical: true,
        data: Some("{\"var\":true}".into()),
        ..score()
    };
    let retract = |target| Body::Retract(Retract { target, reason: "policy.toxicity".into() });
    let mut settings = Room::fresh("Final");
    settings.matches = vec![key("worldcup:ARG-FRA:2022-12-18")];
    settings.pinned = vec![id(2), id(3)];
    settings.merge_ms = Some(0);
    settings.slow_mode_until = Some(Wall(0));
    settings.version = 9;
    let quiet = Room { like_rate: 0, version: 11, ..settings.clone() };
    let short = Room { comment_age_ms: Some(500), version: 10, ..settings.clone() };
    let mut from_raw = record(4, Body::Comment(bare.clone()));
    from_raw.source = Some(Source { log: "raw".into(), id: id(77) });
    from_raw.audience = Audience::Author;
    let mut raw = record(19, Body::Comment(bare.clone()));
    raw.client_msg_id = ClientMsgId::parse("b1f9c2d4-18");
    raw.audience = Audience::Nobody;
    let won = Won {
        window: WindowNumber(8_900_000_001),
        of: 64,
        weight: 6,
        repeats: 41,
        by_right: true,
        addressee: UserId::parse("u_q9z"),
    };
    let mut winner = record(20, Body::Comment(Comment { won: Some(won.into()), ..bare.clone() }));
    winner.source = Some(Source { log: RAW.into(), id: id(19) });
    let lot = Won { window: WindowNumber(0), of: 1, weight: 1, repeats: 0, by_right: false, addressee: None };
    let lot = record(21, Body::Comment(Comment { won: Some(lot.into()), ..bare.clone() }));
    let private = |seq, body| Record { audience: Audience::Nobody, ..record(seq, body) };
    let wide = private(22, Body::Wide(Crowd { rate: 21, viewers: 50_000 }));
    let narrow = private(23, Body::Narrow(Crowd::default()));
    let mut sampled = Room { version: 11, ..settings.clone() };
    sampled.sampling = Rules {
        when: Sampling::Always,
        rate: 5,
        viewers: 100,
        preset: Preset::Danmaku,
        cap: Some(20),
        weights: Weights {
            base: 2,
            per_reply: 0,
            per_reaction: 3,
            badges: vec![("v\"ip".into(), 7), ("mod".into(), 0)],
        },
    };
    let mut audit = record(17, Body::Audit(Audit { what: "ban".into(), justification: "third warning".into() }));
    audit.user = UserId::parse("mod_1");
    audit.audience = Audience::Nobody;
    let kind = |name| LikeKind::parse(name).unwrap();
    let mut tally = record(
        27,
        Body::Tally(Tally {
            rooms: vec![
                (RoomId::parse("a").unwrap(), [(kind("like"), 1)].into()),
                (room(), [(kind("heart"), 48_213), (kind("like"), 1 << 40)].into()),
            ],
            senders: vec![(7, 1), (u64::MAX, 300)],
        }),
    );
    tally.room = None;
    tally.audience = Audience::Nobody;
    let mut shop = Room { version: 11, banner_rate: 0, banner_seconds: 30, combo_seconds: 5, ..settings.clone() };
    shop.banner_items = vec!["rocket".into(), "小心心".into()];
    shop.banner_amounts = [("EUR".into(), 50_000_000), ("gold_coin".into(), 0)].into();
    let combo = |seq, ended| {
        let (display, item, currency) = ("Ada".into(), "rose".into(), "EUR".into());
        let update = ComboUpdate {
            first: id(7),
            display,
            item,
            currency,
            gifts: 12,
            count: 36,
            amount_micros: 12_000_000,
            ended,
        };
        let mut combo = record(seq, Body::Combo(update));
        combo.user = UserId::parse("u_q9z");
        combo
    };
    let ruled = |rule: &str| Comment { rule: Some(rule.into()), ..bare.clone() };
    let judged = |seq, verdict, body| {
        let user = UserId::parse("u_q9z");
        Record { audience: Audience::Nobody, user, verdict, ..record(seq, body) }
    };
    let msg_id = |text| ClientMsgId::parse(text).unwrap();
    let flagged = Record { verdict: Verdict::Flag, ..record(36, Body::Comment(ruled("flag: *dumb*"))) };
    let blocked = Blocked { comment: ruled("block: idiot"), client_msg_id: Some(msg_id("k-37")) };
    let blocked = judged(37, Verdict::Block, Body::Blocked(blocked));
    let blocked_raw = Blocked { comment: ruled("link: evil.net"), client_msg_id: None };
    let mut blocked_raw = judged(38, Verdict::Block, Body::Blocked(blocked_raw));
    blocked_raw.source = Some(Source { log: RAW.into(), id: id(19) });
    let (until, key) = (Wall(1_779_052_473_161), msg_id("k-39"));
    let held = Held { comment: ruled("flag: *dumb*"), client_msg_id: key.clone(), until };
    let held = judged(39, Verdict::Flag, Body::Held(held));
    let mut approved = record(40, Body::Comment(ruled("review")));
    approved.source = Some(Source { log: HELD.into(), id: id(39) });
    let end = |seq, end| {
        let end = HeldEnd { held: id(39), client_msg_id: key.clone(), end };
        judged(seq, Verdict::Unjudged, Body::HeldEnd(end))
    };
    let holding = Room { version: 11, hold_flagged: true, hold_seconds: 60, ..settings.clone() };
    let mut part = record(29, Body::Gift(rocket("pay:2")));
    (part.audience, part.pseq) = (Audience::Nobody, None);
    let until = Wall(1_779_048_903_122);
    let shown = record(30, Body::Gift(Gift { banner_until: Some(until), ..rocket("pay:3") }));
    let mut of_operator =
        record(31, Body::Banner(Banner { text: "maintenance at 03:00".into(), gift: None, room: None, until }));
    let mut banner_end = record(32, Body::BannerEnd(id(31)));
    let revoked = |seq, what| record(seq, Body::Revoke(what, until));
    let mut revoke_user = revoked(40, Revoked::User(UserId::parse("u_q9z").unwrap()));
    let mut revoke_session = revoked(41, Revoked::Session("s-7".into()));
    let mut revoke_end = record(42, Body::RevokeEnd(Revoked::Key("idp-2026".into())));
    let mut outage = record(43, Body::Outage(Some(until)));
    let mut outage_end = record(44, Body::Outage(None));
    let mut erase_user = record(49, Body::EraseUser(UserId::parse("u_gone").unwrap()));
    for record in
        [&mut revoke_user, &mut revoke_session, &mut revoke_end, &mut outage, &mut outage_end, &mut erase_user]
    {
        (record.room, record.user, record.audience) = (None, UserId::parse("ops_1"), Audience::Nobody);
    }
    for record in [&mut of_operator, &mut banner_end] {
        (record.room, record.user, record.audience) = (None, UserId::parse("ops_1"), Audience::Nobody);
    }
    let said = Comment { shadowed: true, won: None, ..bare.clone() };
    let mut shadowed = record(36, Body::Comment(said));
    shadowed.audience = Audience::Author;
    let ban = |shadow| Ban { user: UserId::parse("u_q9z").unwrap(), until: None, reason: "ads".into(), shadow };
    let mut site_ban = record(38, Body::SiteBan(ban(false)));
    let mut site_unban = record(39, Body::SiteUnban(UserId::parse("u_q9z").unwrap()));
    for record in [&mut site_ban, &mut site_unban] {
        (record.room, record.user, record.audience) = (None, UserId::parse("ops_1"), Audience::Nobody);
    }
    let mut asks = Room { version: 12, unique_comment: true, emote_only: true, ..settings.clone() };
    (asks.members_only, asks.pin_ends) = (Some("sub".into()), [(id(2), Wall(1_779_049_473_000))].into());
    let mut report = record(42, Body::Report(Report { event: id(2), reason: "spam".into() }));
    (report.user, report.audience) = (UserId::parse("u_q9z"), Audience::Nobody);
    let since = RetractTarget::Since(UserId::parse("u_q9z").unwrap(), Wall(1_779_048_873_000));
    vec![
        ("epoch_start", record(0, Body::EpochStart)),
        ("comment", record(2, Body::Comment(comment))),
        ("comment_bare", record(3, Body::Comment(bare))),
        ("comment_from_raw", from_raw),
        ("score_event", record(5, Body::Score(score()))),
        ("score_event_late", record(6, Body::Score(late))),
        ("gift", record(7, Body::Gift(rocket("pay:1")))),
        ("retract_event", record(8, retract(RetractTarget::Event(id(2))))),
        ("retract_user", record(9, retract(RetractTarget::User(UserId::parse("u_q9z").unwrap())))),
        ("retract_all", record(10, retract(RetractTarget::All))),
        (
            "config",
            record(
                11,
                Body::Config(Config {
                    title: Some("Final".into()),
                    state: Some(RoomState::Settling),
                    slow_mode_seconds: Some(30),
                    until_ts: Some(Some(Wall(1_779_049_473_000))),
                    moderation_policy: Some(Policy::PreModerate),
                    pinned: Some([id(2)].into()),
                    ..Config::default()
                }),
            ),
        ),
        (
            "config_open_ended",
            record(12, Body::Config(Config { slow_mode_seconds: Some(0), until_ts: Some(None), ..Config::default() })),
        ),
        ("room", record(13, Body::Room(settings.into()))),
        (
            "ban",
            record(
                14,
                Body::Ban(Ban {
                    user: UserId::parse("u_q9z").unwrap(),
                    until: Some(Wall(1_779_049_473_000)),
                    reason: "spam".into(),
                    shadow: false,
                }),
            ),
        ),
        ("unban", record(15, Body::Unban(UserId::parse("u_q9z").unwrap()))),
        ("erased", record(16, Body::Erased)),
        ("audit", audit),
        ("room_comment_age", record(18, Body::Room(short.into()))),
        ("comment_raw", raw),
        ("comment_won_by_right", winner),
        ("comment_won_by_lot", lot),
        ("wide", wide),
        ("narrow", narrow),
        (
            "config_sampled",
            record(24, Body::Config(Config { sampled: Some(false), cap: Some(50), ..Config::default() })),
        ),
        (
            "config_asks",
            record(
                24,
                Body::Config(Config {
                    emote_only: Some(true),
                    unique_comment: Some(false),
                    members_only: Some(Some("sub".into())),
                    ..Config::default()
                }),
            ),
        ),
        ("config_asks_nobody", record(24, Body::Config(Config { members_only: Some(None), ..Config::default() }))),
        ("room_sampling", record(25, Body::Room(sampled.into()))),
        ("room_like_rate", record(26, Body::Room(quiet.into()))),
        ("tally", tally),
        ("room_gifts", record(33, Body::Room(shop.into()))),
        ("gift_combo", combo(34, false)),
        ("gift_combo_ended", combo(35, true)),
        ("gift_of_a_combo", part),
        ("gift_with_a_banner", shown),
        ("banner_of_an_operator", of_operator),
        ("banner_end", banner_end),
        ("comment_flagged", flagged),
        ("blocked", blocked),
        ("blocked_of_a_wide_room", blocked_raw),
        ("held", held),
        ("comment_approved", approved),
        ("held_end_approved", end(41, End::Approved(id(40)))),
        ("held_end_denied", end(42, End::Denied)),
        ("held_end_expired", end(43, End::Expired)),
        ("room_holding", record(44, Body::Room(holding.into()))),
        ("comment_shadowed", shadowed),
        ("shadow_ban", record(37, Body::Ban(ban(true)))),
        ("site_ban", site_ban),
        ("site_unban", site_unban),
        ("retract_since", record(40, retract(since))),
        ("report", report),
        ("room_asks", record(41, Body::Room(asks.into()))),
        ("revoke_user", revoke_user),
        ("revoke_session", revoke_session),
        ("revoke_end", revoke_end),
        ("outage", outage),
        ("outage_end", outage_end),
    ]
    .into_iter()
    .chain(feeds())
    .chain([("erase_user", erase_user)])
    .collect()
}
