//! Score revisions: whatever order and repetition they come in, one final state; and each answer of the door.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::{option, prop_assert, prop_assert_eq, proptest};

use grandstand_core::ids::{Epoch, EventId, Revision};
use grandstand_core::names::{Key, RoomId};
use grandstand_core::owner::answer::{Answer, Failure, Output};
use grandstand_core::owner::command::Command;
use grandstand_core::owner::{Owner, Settings};
use grandstand_core::record::{Body, RoomState, ScoreKind, ScoreState};
use grandstand_core::reject::Code;
use grandstand_core::revision::ScoreIn;
use grandstand_core::rooms::RoomChange;
use grandstand_core::time::{Mono, Wall};

const NOW: Mono = Mono(1);
const WALL: Wall = Wall(1_000);

fn name(text: &str) -> Key {
    Key::parse(text).unwrap()
}
fn room(text: &str) -> RoomId {
    RoomId::parse(text).unwrap()
}

fn goal(event: &str, revision: Option<u32>, payload: u8) -> ScoreIn {
    ScoreIn {
        match_id: name("m"),
        provider: name("p"),
        event: name(event),
        revision: revision.map(Revision),
        kind: ScoreKind::Goal,
        state: ScoreState::Confirmed,
        home: u32::from(payload),
        away: 0,
        minute: Some("78".into()),
        historical: false,
        digest: [payload; 16],
        data: None,
        room: None,
    }
}

fn owner(rooms: &[&str]) -> Owner {
    let mut owner = Owner::new(Settings::default(), NOW, WALL);
    owner.start(Epoch::new(1).unwrap());
    for r in rooms {
        put(&mut owner, r, RoomChange { matches: Some(vec![name("m")]), ..RoomChange::default() });
    }
    owner
}

fn put(owner: &mut Owner, r: &str, change: RoomChange) -> Answer {
    ask(owner, Command::PutRoom { room: room(r), change: change.into(), if_version: None })
}

fn ask(owner: &mut Owner, command: Command) -> Answer {
    owner.submit(1, command, NOW, WALL);
    if owner.seal(NOW, WALL).is_some() {
        owner.on_committed(NOW, WALL);
    }
    let mut answers = std::iter::from_fn(|| owner.poll()).filter_map(|output| match output {
        Output::Answer { answer, .. } => Some(answer),
        Output::Committed(_)
        | Output::NeedVerdict { .. }
        | Output::LikesSettled { .. }
        | Output::Fate { .. }
        | Output::Decided { .. } => None,
    });
    let answer = answers.next().expect("a command is answered");
    assert_eq!(answers.next(), None);
    answer
}

fn send(owner: &mut Owner, score: ScoreIn) -> Answer {
    ask(owner, Command::Score(score))
}

fn accepted(answer: Answer) -> (bool, EventId, u32, bool) {
    match answer {
        Answer::Score { accepted, event_id, revision, superseded, .. } => (accepted, event_id, revision.0, superseded),
        other => panic!("{other:?}"),
    }
}

fn refused(answer: &Answer) -> Code {
    match answer {
        Answer::Reject(reject) => reject.code,
        other => panic!("{other:?}"),
    }
}

proptest! {
    #![proptest_config(proptest::test_runner::Config { cases: 512, failure_persistence: None, ..Default::default() })]

    /// Revisions 1 to 4 of two events, each with its own payload, in any order and any number of times.
    #[test]
    fn every_delivery_order_ends_in_the_highest_revision(order in vec((0..2usize, 1..=4u32), 1..24)) {
        let mut owner = owner(&["a", "b"]);
        let mut first: BTreeMap<(usize, u32), EventId> = BTreeMap::new();
        for &(event, revision) in &order {
            let highest = first.keys().filter(|k| k.0 == event).map(|k| k.1).max();
            let known = first.get(&(event, revision)).copied();
            let got = send(&mut owner, goal(["x", "y"][event], Some(revision), revision as u8));
            let (fresh, id, got_revision, superseded) = accepted(got);
            prop_assert_eq!(got_revision, revision);
            match known {
                Some(known) => prop_assert_eq!((fresh, id), (false, known)),
                None => {
                    prop_assert_eq!((fresh, superseded), (true, highest > Some(revision)));
                    first.insert((event, revision), id);
                }
            }
        }
        for r in ["a", "b"] {
            let view = owner.room(&room(r)).unwrap();
            prop_assert_eq!(view.pseq.0, first.len() as u64);
            for top in view.top_scores() {
                let Body::Score(score) = &top.body else { panic!("a score") };
                let event = usize::from(score.event == name("y"));
                let highest = first.keys().filter(|k| k.0 == event).map(|k| k.1).max();
                prop_assert_eq!(Some(score.revision.0), highest);
                prop_assert_eq!(score.home, score.revision.0);
            }
        }
    }

    /// Without revisions each different payload is the next one, and a payload seen before is a repeat.
    #[test]
    fn missing_revisions_are_minted_by_arrival(payloads in vec(0..4u8, 1..20), given in option::of(1..50u32)) {
        let mut owner = owner(&["a"]);
        let mut minted: Vec<(u8, u32, EventId)> = Vec::new();
        if let Some(given) = given {
            let (_, id, revision, _) = accepted(send(&mut owner, goal("x", Some(given), 9)));
            minted.push((9, revision, id));
        }
        for payload in payloads {
            let (fresh, id, revision, superseded) = accepted(send(&mut owner, goal("x", None, payload)));
            prop_assert!(!superseded);
            match minted.iter().find(|m| m.0 == payload) {
                Some(&(_, known, known_id)) => prop_assert_eq!((fresh, revision, id), (false, known, known_id)),
                None => {
                    prop_assert_eq!((fresh, revision), (true, minted.last().map_or(1, |m| m.1 + 1)));
                    minted.push((payload, revision, id));
                }
            }
        }
    }
}

#[test]
fn another_payload_under_the_same_revision_conflicts() {
    let mut owner = owner(&["a"]);
    accepted(send(&mut owner, goal("x", Some(2), 1)));
    assert_eq!(refused(&send(&mut owner, goal("x", Some(2), 2))), Code::PayloadConflict);
}

#[test]
fn repeats_and_conflicts_are_seen_within_one_batch_and_wait_for_its_commit() {
    let mut owner = owner(&["a"]);
    for (tag, payload) in [(1, 1), (2, 1), (3, 2)] {
        owner.submit(tag, Command::Score(goal("x", Some(1), payload)), NOW, WALL);
    }
    assert!(owner.seal(NOW, WALL).is_some());
    assert_eq!(owner.poll(), None);
    owner.on_failed(Failure::NoSpace, NOW, WALL);
    let codes: Vec<Code> = std::iter::from_fn(|| owner.poll())
        .map(|o| match o {
            Output::Answer { answer, .. } => refused(&answer),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(codes, [Code::NoSpace; 3]);
    assert!(accepted(send(&mut owner, goal("x", Some(1), 2))).0);
}

#[test]
fn a_match_that_no_room_shows_is_unknown() {
    assert_eq!(refused(&send(&mut owner(&[]), goal("x", None, 1))), Code::UnknownMatch);
}

#[test]
fn development_mode_binds_a_match_to_the_room_it_was_sent_for() {
    let mut owner = Owner::new(Settings { create_on_use: true, ..Settings::default() }, NOW, WALL);
    owner.start(Epoch::new(1).unwrap());
    assert!(accepted(send(&mut owner, ScoreIn { room: Some(room("new")), ..goal("x", None, 1) })).0);
    let view = owner.room(&room("new")).unwrap();
    assert_eq!(view.settings.matches, [name("m")]);
    assert_eq!(view.current_scores()[0].home, 1);
}

#[test]
fn a_room_takes_new_events_live_and_corrections_while_it_settles() {
    use RoomState::{Closed, Live, Scheduled, Settling};
    for (state, fresh_ok, correction_ok) in
        [(Scheduled, false, false), (Live, true, true), (Settling, false, true), (Closed, false, false)]
    {
        let mut owner = Owner::new(Settings::default(), NOW, WALL);
        owner.start(Epoch::new(1).unwrap());
        put(&mut owner, "a", RoomChange { matches: Some(vec![name("m")]), ..RoomChange::default() });
        accepted(send(&mut owner, goal("x", Some(1), 1)));
        for to in [Closed, state] {
            put(&mut owner, "a", RoomChange { state: Some(to), ..RoomChange::default() });
        }
        for (score, ok) in [(goal("y", Some(1), 1), fresh_ok), (goal("x", Some(2), 0), correction_ok)] {
            let answer = send(&mut owner, score);
            match ok {
                true => assert!(accepted(answer).0, "{state:?}"),
                false => assert_eq!(refused(&answer), Code::RoomState, "{state:?}"),
            }
        }
        assert!(!accepted(send(&mut owner, goal("x", Some(1), 1))).0, "a repeat is answered in any state");
    }
}

#[test]
fn the_first_room_bound_decides_and_the_next_takes_over_when_it_leaves() {
    let mut owner = owner(&["b", "a"]);
    let Answer::Score { room: decided, .. } = send(&mut owner, goal("x", Some(1), 1)) else { panic!("a score") };
    assert_eq!(decided, room("b"));
    put(&mut owner, "b", RoomChange { matches: Some(vec![]), ..RoomChange::default() });
    let Answer::Score { room: decided, accepted, .. } = send(&mut owner, goal("x", Some(1), 1)) else {
        panic!("a score")
    };
    assert_eq!((decided, accepted), (room("a"), false));
}

#[test]
fn the_current_score_follows_events_not_the_arrival_of_corrections() {
    let mut owner = owner(&["a"]);
    let current = |owner: &Owner| owner.room(&room("a")).unwrap().current_scores()[0].clone();
    accepted(send(&mut owner, goal("x", Some(1), 1)));
    accepted(send(&mut owner, goal("y", Some(1), 2)));
    accepted(send(&mut owner, ScoreIn { digest: [7; 16], ..goal("x", Some(2), 1) }));
    assert_eq!(current(&owner).home, 2);
    accepted(send(&mut owner, ScoreIn { state: ScoreState::UnderReview, ..goal("y", Some(2), 3) }));
    assert_eq!((current(&owner).home, current(&owner).state), (3, ScoreState::UnderReview));
    accepted(send(&mut owner, ScoreIn { state: ScoreState::Withdrawn, ..goal("y", Some(3), 4) }));
    assert_eq!((current(&owner).home, current(&owner).state), (1, ScoreState::Confirmed));
    accepted(send(&mut owner, ScoreIn { historical: true, ..goal("z", Some(1), 0) }));
    assert_eq!(current(&owner).home, 1);
}

#[test]
fn fields_out_of_bounds_are_named() {
    let mut owner = owner(&["a"]);
    let bad = ScoreIn { home: 10_001, minute: Some("late".into()), ..goal("x", Some(0), 1) };
    let Answer::Reject(reject) = send(&mut owner, bad) else { panic!("a reject") };
    assert_eq!(reject.code, Code::BadField);
    let fields: Vec<&str> = reject.fields.iter().map(|(f, _)| f.as_str()).collect();
    assert_eq!(fields, ["revision", "score", "minute"]);
}
