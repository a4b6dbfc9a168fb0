//! A wide room at the gateway: each viewer's part of the winners, on every rung, again after a resume.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use grandstand_core::ids::{EventId, Pseq};
use grandstand_core::names::UserId;
use grandstand_core::record::{Audience, Lane, RetractTarget, Room};
use grandstand_core::sampler::pick::WindowNumber;
use grandstand_core::sampler::switch::Sampling;
use grandstand_core::sampler::{Preset, Rules};
use serde_json::{Value, json};

use super::{Http, Stage, WAIT, Ws, room, stage, stage_of, stage_with};
use crate::gateway::StreamLimits;
use crate::link::bundles::Limits as StreamLimit;
use crate::link::{Batch, Piece, ToWorker, Won};
use crate::metrics::{Hop, read};

fn set(stage: &Stage, id: &str, rules: Rules) {
    stage.log.lock().unwrap().settings.insert(room(id), Room { sampling: rules, ..Room::fresh("t") });
}

fn wide(stage: &Stage, id: &str, preset: Preset) {
    set(stage, id, Rules { when: Sampling::Always, preset, ..Rules::default() });
}

/// One window of `of` winners, called `NUMBER:PLACE`, in one batch, of so many that were said.
fn window(stage: &Stage, id: &str, number: u64, of: u32, said: u32, change: impl Fn(u32, &mut Won)) -> Vec<EventId> {
    let mut log = stage.log.lock().unwrap();
    let mut pieces = Vec::new();
    for place in 0..of {
        log.seq += 1;
        let event_id = log.id();
        let body = format!("{number}:{place}");
        let event = json!({"type": "comment", "room_id": id, "event_id": event_id.value(), "body": body});
        let window = WindowNumber(number);
        let mut won = Won { window, of, weight: 1, by_right: false, addressee: None, reply_to: None };
        change(place, &mut won);
        pieces.push(Arc::new(Piece {
            id: event_id,
            lane: Lane::Comment,
            ts: crate::clock::wall() - log.age,
            closes_window: false,
            pseq: None,
            kind: "comment",
            json: serde_json::to_vec(&event).unwrap().into(),
            author: UserId::parse(&format!("author-{place}")).map(|user| (user, None)),
            audience: Audience::Everyone,
            unallowed: false,
            retracts: None,
            won: Some(won),
        }));
    }
    log.rooms.entry(room(id)).or_default().extend(pieces.iter().cloned());
    let ids = pieces.iter().map(|p| p.id).collect();
    let batch = Arc::new(Batch { room: room(id), pieces, said });
    for worker in log.subscribers.get(&room(id)).cloned().unwrap_or_default() {
        stage.workers.send(worker, ToWorker::Batch(batch.clone())).ok().unwrap();
    }
    ids
}

fn retract(stage: &Stage, id: &str, target: EventId) {
    let mut log = stage.log.lock().unwrap();
    log.seq += 1;
    let pseq = {
        let n = log.pseq.entry(room(id)).or_default();
        *n += 1;
        Pseq(*n)
    };
    let event_id = log.id();
    let event = json!({"type": "retract", "room_id": id, "event_id": event_id.value(), "pseq": pseq.0});
    let piece = Arc::new(Piece {
        id: event_id,
        lane: Lane::Priority,
        ts: crate::clock::wall(),
        closes_window: true,
        pseq: Some(pseq),
        kind: "retract",
        json: serde_json::to_vec(&event).unwrap().into(),
        author: None,
        audience: Audience::Everyone,
        unallowed: false,
        retracts: Some(RetractTarget::Event(target)),
        won: None,
    });
    log.rooms.entry(room(id)).or_default().push(piece.clone());
    let batch = Arc::new(Batch { room: room(id), pieces: vec![piece], said: 0 });
    for worker in log.subscribers.get(&room(id)).cloned().unwrap_or_default() {
        stage.workers.send(worker, ToWorker::Batch(batch.clone())).ok().unwrap();
    }
}

fn plain(_: u32, _: &mut Won) {}

fn body(event: &Value) -> String {
    event["body"].as_str().unwrap().to_owned()
}

/// The comments up to the next score.
fn until_score(mut next: impl FnMut() -> Value) -> Vec<String> {
    let mut bodies = Vec::new();
    loop {
        let event = next();
        match event["type"].as_str().unwrap() {
            "comment" => bodies.push(body(&event)),
            "score_event" => return bodies,
            other => panic!("{other}"),
        }
    }
}

/// The same of a poller, and where it stands then.
fn poll(stage: &Stage, id: &str, fields: &str, query: &str, mut since: u64) -> (Vec<String>, u64) {
    let mut bodies = Vec::new();
    loop {
        let mut http = Http { socket: stage.socket(), buf: Vec::new() };
        http.get(&format!("/v1/rooms/{id}/poll?since={since}&timeout=5&tab=t{query}"), fields);
        let answer = http.answer().json();
        since = answer["next_since"].as_u64().unwrap();
        assert_eq!(answer["comments"], "some", "as a stream's hello says it");
        for event in answer["events"].as_array().unwrap() {
            match event["type"].as_str().unwrap() {
                "comment" => bodies.push(body(event)),
                "score_event" => return (bodies, since),
                "counters" => {}
                other => panic!("{other}"),
            }
        }
    }
}

fn bearer(stage: &Stage, sub: &str) -> String {
    format!("Authorization: Bearer {}\r\n", stage.token(sub))
}

#[test]
fn every_rung_is_given_the_same_part_and_scores_are_given_to_all() {
    for (preset, a_window) in [(Preset::Chat, 1), (Preset::Danmaku, 10)] {
        let stage = stage();
        wide(&stage, "a", preset);
        let mut ws = stage.ws_as("a", "ann");
        let mut sse =
            stage.say(&format!("GET /v1/rooms/a/sse HTTP/1.1\r\nHost: localhost\r\n{}\r\n", bearer(&stage, "ann")));
        let mut other = stage.ws_as("a", "bob");
        sse.head();
        let since = ws.next()["cursor"].as_u64().unwrap();
        assert_eq!((other.next()["type"].as_str(), sse.event().0.as_str()), (Some("hello"), "hello"));
        stage.seated("a", 3);
        for number in 1..=5 {
            window(&stage, "a", number, 64, 64, plain);
        }
        stage.score("a", 1);
        let of_ws = until_score(|| ws.next());
        let of_sse = until_score(|| sse.event().2);
        let (of_poll, _) = poll(&stage, "a", &bearer(&stage, "ann"), "", since);
        assert_eq!(of_ws.len(), 5 * a_window, "{of_ws:?}");
        assert_eq!((&of_ws, &of_ws), (&of_sse, &of_poll));
        assert_ne!(of_ws, until_score(|| other.next()), "another viewer has another part");
        let sampled: u64 = stage.metrics.sampled.iter().map(read).sum();
        assert_eq!(sampled, 4 * 5 * (64 - a_window as u64), "what was not picked is counted");
        assert_eq!(stage.metrics.skipped.iter().map(read).sum::<u64>(), 0, "and not told as skipped");
    }
}

#[test]
fn a_resume_is_given_the_same_part_again_and_hello_says_some() {
    let stage = stage_of(1, false);
    wide(&stage, "a", Preset::Chat);
    let mut live = stage.ws_as("a", "ann");
    let cursor = live.next()["cursor"].as_u64().unwrap();
    stage.seated("a", 1);
    for number in 1..=8 {
        window(&stage, "a", number, 64, 64, plain);
    }
    stage.score("a", 1);
    let given = until_score(|| live.next());
    let mut again = stage.ws_as_from("a", "ann", cursor);
    let hello = again.next();
    assert_eq!((&hello["resumed"], &hello["comments"]), (&json!(true), &json!("some")));
    assert_eq!(until_score(|| again.next()), given, "out of the ring");
    assert_eq!(poll(&stage, "a", &bearer(&stage, "ann"), "", cursor).0, given, "in the answer to a poll");
}

#[test]
fn the_log_gives_the_same_part_as_the_ring() {
    // Pages of the stage hold three events: each window is one.
    let stage = stage_of(1, false);
    wide(&stage, "a", Preset::Chat);
    let mut live = stage.ws_as("a", "ann");
    let cursor = live.next()["cursor"].as_u64().unwrap();
    stage.seated("a", 1);
    for number in 1..=20 {
        window(&stage, "a", number, 3, 3, plain);
    }
    stage.score("a", 1);
    let given = until_score(|| live.next());
    assert_eq!(given.len(), 20);
    // A gateway that knows nothing of it reads it back.
    let later = stage_of(1, false);
    *later.log.lock().unwrap() = std::mem::take(&mut *stage.log.lock().unwrap());
    later.log.lock().unwrap().subscribers.clear();
    let mut again = later.ws_as_from("a", "ann", cursor);
    assert_eq!(again.next()["comments"], "some");
    assert_eq!(until_score(|| again.next()), given);
}

#[test]
fn what_is_said_to_a_viewer_comes_beside_its_part() {
    let stage = stage();
    wide(&stage, "a", Preset::Chat);
    let (mut ann, mut bob) = (stage.ws_as("a", "ann"), stage.ws_as("a", "bob"));
    let since = ann.next()["cursor"].as_u64().unwrap();
    bob.next();
    stage.seated("a", 2);
    let to_ann = |place: u32, won: &mut Won| {
        if place < 2 {
            (won.addressee, won.by_right) = (UserId::parse("ann"), place == 0);
        }
    };
    for number in 1..=4 {
        window(&stage, "a", number, 64, 64, to_ann);
    }
    stage.score("a", 1);
    let (of_ann, of_bob) = (until_score(|| ann.next()), until_score(|| bob.next()));
    let by_right: BTreeSet<String> = (1..=4).map(|n| format!("{n}:0")).collect();
    assert!(by_right.iter().all(|b| of_ann.contains(b)), "{of_ann:?}");
    assert!((4..=8).contains(&of_ann.len()), "beside the cap, and no more than once: {of_ann:?}");
    assert_eq!(of_bob.len(), 4);
    assert_eq!(poll(&stage, "a", &bearer(&stage, "ann"), "", since).0, of_ann);
}

#[test]
fn a_followed_author_is_likelier_from_the_moment_one_follows() {
    let stage = stage_of(1, false);
    wide(&stage, "a", Preset::Chat);
    let mut ann = stage.ws_as("a", "ann");
    ann.next();
    let follows = (0..32).map(|n| format!("author-{n}"));
    for user in follows {
        ann.op(json!({"op": "follow", "user_id": user}));
    }
    ann.op(json!({"op": "ping"}));
    assert_eq!(ann.next()["type"], "pong");
    stage.seated("a", 1);
    for number in 1..=200 {
        window(&stage, "a", number, 64, 64, plain);
    }
    stage.score("a", 1);
    let given = until_score(|| ann.next());
    let followed = given.iter().filter(|b| b.split_once(':').unwrap().1.parse::<u32>().unwrap() < 32).count();
    // Four of five, within five standard deviations; without following one of two.
    assert_eq!(given.len(), 200, "no more than the cap");
    assert!((132..=188).contains(&followed), "{followed} of 200");
}

#[test]
fn viewers_with_the_same_part_share_a_frame() {
    let limits = StreamLimits { each: StreamLimit { per_user: 3, per_address: 200 }, total: None, per_room: None };
    let stage = stage_with(1, limits);
    wide(&stage, "a", Preset::Chat);
    let mut viewers: Vec<Ws> = (0..60).map(|n| stage.ws_as("a", &format!("viewer-{n}"))).collect();
    viewers.iter_mut().for_each(|v| assert_eq!(v.next()["type"], "hello"));
    stage.seated("a", 60);
    let before = read(&stage.metrics.encoded);
    window(&stage, "a", 1, 4, 4, plain);
    let given: BTreeSet<String> = viewers.iter_mut().map(|v| body(&v.next())).collect();
    assert_eq!(given.len(), 4, "{given:?}");
    let encoded = read(&stage.metrics.encoded) - before;
    assert!(encoded <= 4, "{encoded} frames for four parts");
}

#[test]
fn an_anonymous_viewer_is_its_first_session() {
    let stage = stage_of(1, false);
    wide(&stage, "a", Preset::Chat);
    let open = |query: &str, cursor: Option<u64>| {
        let fields = cursor.map_or(String::new(), |c| format!("Last-Event-ID: {c}\r\n"));
        let mut ws = Ws::open(stage.socket(), &format!("/v1/rooms/a/stream{query}"), &fields);
        let hello = ws.next();
        (ws, hello)
    };
    let (mut first, hello) = open("", None);
    let cursor = hello["cursor"].as_u64().unwrap();
    stage.seated("a", 1);
    for number in 1..=8 {
        window(&stage, "a", number, 64, 64, plain);
    }
    stage.score("a", 1);
    let given = until_score(|| first.next());
    let session = format!("?session={}", hello["session"].as_str().unwrap());
    let (mut known, _) = open(&session, Some(cursor));
    assert_eq!(until_score(|| known.next()), given);
    let (mut stranger, _) = open("", Some(cursor));
    assert_ne!(until_score(|| stranger.next()), given);
    assert_eq!(poll(&stage, "a", "", &session.replace('?', "&"), cursor).0, given);
    let long = format!("GET /v1/rooms/a/sse?session={} HTTP/1.1\r\nHost: localhost\r\n\r\n", "x".repeat(65));
    assert_eq!(stage.say(&long).answer().status, 400);
}

#[test]
fn a_retracted_winner_is_shown_to_nobody_and_moves_nobody_else_s_part() {
    let stage = stage_of(1, false);
    wide(&stage, "a", Preset::Danmaku);
    let mut live = stage.ws_as("a", "ann");
    let cursor = live.next()["cursor"].as_u64().unwrap();
    stage.seated("a", 1);
    window(&stage, "a", 1, 64, 64, plain);
    stage.score("a", 1);
    let given = until_score(|| live.next());
    let gone = given[3].clone();
    let target = {
        let log = stage.log.lock().unwrap();
        let found =
            log.rooms[&room("a")].iter().find(|p| String::from_utf8_lossy(&p.json).contains(&format!("\"{gone}\"")));
        found.unwrap().id
    };
    retract(&stage, "a", target);
    assert_eq!(live.next()["type"], "retract");
    let mut again = stage.ws_as_from("a", "ann", cursor);
    again.next();
    let left = until_score(|| again.next());
    assert_eq!(left, given.iter().filter(|b| **b != gone).cloned().collect::<Vec<_>>());
}

#[test]
fn a_comment_without_an_allow_is_counted_where_viewers_of_a_strict_room_are_given_it() {
    let stage = stage_of(1, false);
    let mut ann = stage.ws_as("a", "ann");
    ann.next();
    stage.seated("a", 1);
    stage.score("a", 1);
    ann.next_of("score_event");
    assert_eq!(read(&stage.metrics.unallowed), 0);
    let wrong = {
        let mut log = stage.log.lock().unwrap();
        log.seq += 1;
        let id = log.id();
        let event = json!({"type": "comment", "room_id": "a", "event_id": id.value(), "body": "rude"});
        Arc::new(Piece {
            id,
            lane: Lane::Comment,
            ts: crate::clock::wall(),
            closes_window: false,
            pseq: None,
            kind: "comment",
            json: serde_json::to_vec(&event).unwrap().into(),
            author: None,
            audience: Audience::Everyone,
            unallowed: true,
            retracts: None,
            won: None,
        })
    };
    let batch = Arc::new(Batch { room: room("a"), pieces: vec![wrong], said: 0 });
    let workers = stage.log.lock().unwrap().subscribers[&room("a")].clone();
    for worker in workers {
        stage.workers.send(worker, ToWorker::Batch(batch.clone())).ok().unwrap();
    }
    ann.next_of("comment");
    let began = Instant::now();
    while read(&stage.metrics.unallowed) == 0 {
        assert!(began.elapsed() < WAIT, "it was given and not counted");
        std::thread::yield_now();
    }
}

#[test]
fn the_keep_fraction_that_is_told_is_what_is_given() {
    let stage = stage_of(1, false);
    wide(&stage, "a", Preset::Chat);
    let mut ann = stage.ws_as("a", "ann");
    ann.next();
    stage.seated("a", 1);
    for number in 1..=10 {
        window(&stage, "a", number, 64, 200, plain);
    }
    stage.score("a", 1);
    let given = until_score(|| ann.next()).len() as f64;
    let measured = given / 2_000.0;
    let began = Instant::now();
    let told = loop {
        assert!(began.elapsed() < WAIT, "it was never told");
        let Some(grandstand_wire::ws::Incoming::Text(text)) = ann.incoming() else { continue };
        let event: Value = serde_json::from_str(&text).unwrap();
        if event["type"] == "counters" && event["keep_fraction"] != json!(1) && event["keep_fraction"] != json!(1.0) {
            break event["keep_fraction"].as_f64().unwrap();
        }
    };
    assert!((told - measured).abs() < measured / 10.0, "told {told}, measured {measured}");
}

#[test]
fn a_room_that_is_never_sampled_refuses_viewers_beyond_its_cost() {
    let stage = stage_of(1, false);
    set(&stage, "a", Rules { when: Sampling::None, ..Rules::default() });
    let mut first = stage.ws_as("a", "ann");
    assert_eq!(first.next()["type"], "hello");
    stage.seated("a", 1);
    // A hundred million within ten seconds in few frames, and two viewers.
    window(&stage, "a", 1, 1, 100_000_000, plain);
    first.next_of("comment");
    assert_eq!(stage.ws_as("a", "bob").closed(), (4129, 4129));
    let poll = format!("GET /v1/rooms/a/poll HTTP/1.1\r\nHost: localhost\r\n{}\r\n", bearer(&stage, "bob"));
    assert_eq!(stage.say(&poll).answer().status, 429);
    let refused = read(&stage.metrics.refused[crate::metrics::Refused::Cost as usize]);
    assert_eq!((refused, read(&stage.metrics.sampled[Hop::Walk as usize])), (2, 0));
}
