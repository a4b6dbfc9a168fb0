//! Who is shown of a match: whatever two providers say, in any order, and whoever is primary, viewers end with the primary's score.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any};
use proptest::{option, prop_assert, prop_assert_eq, prop_oneof, proptest};

use grandstand_core::ids::{Epoch, Position, Revision};
use grandstand_core::names::{Key, RoomId, UserId};
use grandstand_core::owner::answer::{Answer, Output};
use grandstand_core::owner::command::{Command, TypedScore};
use grandstand_core::owner::{Owner, Settings};
use grandstand_core::record::{Audience, Audit, Body, Record, Score, ScoreKind, ScoreState};
use grandstand_core::reject::Code;
use grandstand_core::revision::{Ledger, OPERATOR, ScoreIn};
use grandstand_core::rooms::RoomChange;
use grandstand_core::time::{Mono, Wall};

const NOW: Mono = Mono(1);
const WALL: Wall = Wall(1_000);

fn key(text: &str) -> Key {
    Key::parse(text).unwrap()
}
fn room(text: &str) -> RoomId {
    RoomId::parse(text).unwrap()
}

fn score(provider: &str, event: &str, revision: Option<u32>, home: u32, away: u32) -> ScoreIn {
    ScoreIn {
        match_id: key("m"),
        provider: key(provider),
        event: key(event),
        revision: revision.map(Revision),
        kind: ScoreKind::Goal,
        state: ScoreState::Confirmed,
        home,
        away,
        minute: None,
        historical: false,
        digest: [(home * 16 + away) as u8; 16],
        data: None,
        room: None,
    }
}

struct Stage {
    owner: Owner,
    log: Vec<std::sync::Arc<Record>>,
}

impl Stage {
    fn new(rooms: &[&str]) -> Stage {
        let mut owner = Owner::new(Settings::default(), NOW, WALL);
        owner.start(Epoch::new(1).unwrap());
        let mut stage = Stage { owner, log: Vec::new() };
        rooms.iter().for_each(|r| stage.bind(r));
        stage
    }

    fn bind(&mut self, r: &str) {
        let change = RoomChange { matches: Some(vec![key("m")]), ..RoomChange::default() };
        self.ask(Command::PutRoom { room: room(r), change: change.into(), if_version: None });
    }

    fn ask(&mut self, command: Command) -> Answer {
        self.owner.submit(1, command, NOW, WALL);
        if self.owner.seal(NOW, WALL).is_some() {
            self.owner.on_committed(NOW, WALL);
        }
        let mut answer = None;
        while let Some(output) = self.owner.poll() {
            match output {
                Output::Answer { answer: given, .. } => answer = Some(given),
                Output::Committed(record) => self.log.push(record),
                _ => {}
            }
        }
        answer.expect("a command is answered")
    }

    fn say(&mut self, score: ScoreIn) -> bool {
        match self.ask(Command::Score(score)) {
            Answer::Score { shown, .. } => shown,
            other => panic!("{other:?}"),
        }
    }

    fn operate(&mut self, command: Command) -> Answer {
        let by = UserId::parse("ops").unwrap();
        let audit = Audit { what: "desk".into(), justification: "a test".into() };
        self.ask(Command::Audited { by, audit, command: command.into() })
    }

    fn feed(&mut self, primary: &str, stand_by: Option<&str>) -> Answer {
        let (match_id, primary, stand_by) = (key("m"), key(primary), stand_by.map(key));
        self.operate(Command::SetFeed { match_id, primary, stand_by, if_version: None })
    }

    fn typed(&mut self, event: &str, home: u32, away: u32, state: ScoreState) -> Answer {
        let typed = TypedScore {
            match_id: key("m"),
            event: key(event),
            kind: ScoreKind::Goal,
            state,
            home,
            away,
            minute: None,
            digest: [0; 16],
        };
        self.operate(Command::TypeScore { typed, if_version: None })
    }

    fn ledger(&self, r: &str) -> &Ledger {
        &self.owner.room(&room(r)).unwrap().scores[&key("m")]
    }

    fn shown(&self) -> Option<(u32, u32)> {
        let view = self.owner.room(&room("a")).unwrap();
        view.current_scores().first().map(|s| (s.home, s.away))
    }

    /// What a viewer of the room makes of all that it was sent: of each key the highest revision.
    fn board(&self, r: &str) -> BTreeMap<Key, Score> {
        let mut board: BTreeMap<Key, Score> = BTreeMap::new();
        for record in self.log.iter().filter(|record| record.room == Some(room(r))) {
            let (Body::Score(score), Audience::Everyone) = (&record.body, record.audience) else { continue };
            let (name, revision) = score.shown_as();
            match board.get(name) {
                Some(known) if known.shown_as().1 >= revision => {}
                _ => drop(board.insert(name.clone(), score.clone())),
            }
        }
        board
    }
}

#[test]
fn a_stand_by_is_written_down_and_not_shown() {
    let mut stage = Stage::new(&["a"]);
    stage.feed("p", Some("q"));
    assert!(stage.say(score("p", "1", None, 1, 0)));
    assert!(!stage.say(score("q", "1", None, 1, 0)));
    assert!(!stage.say(score("other", "1", None, 7, 7)));
    assert_eq!(stage.board("a").len(), 1);
    assert_eq!(stage.shown(), Some((1, 0)));
    assert_eq!(stage.ledger("a").score_of(&key("q")), Some((1, 0)));
    assert!(!stage.say(score("q", "1", None, 1, 0)), "a repeat is told the same");
}

#[test]
fn two_providers_with_one_event_id_are_two_rows() {
    let mut stage = Stage::new(&["a"]);
    assert!(stage.say(score("p", "1", None, 1, 0)));
    assert!(stage.say(score("q", "1", None, 2, 0)));
    let board = stage.board("a");
    let names: Vec<&str> = board.keys().map(Key::as_str).collect();
    assert_eq!(names, ["1", "q:1"]);
}

#[test]
fn a_switch_over_tells_the_difference_and_no_more() {
    let mut stage = Stage::new(&["a"]);
    stage.feed("p", Some("q"));
    for (provider, event, home, away) in [("p", "p1", 1, 0), ("q", "q1", 1, 0), ("p", "p2", 2, 0), ("q", "q2", 1, 1)] {
        stage.say(score(provider, event, None, home, away));
    }
    let before = stage.log.len();
    stage.feed("q", Some("p"));
    let told: Vec<String> = stage.log[before..]
        .iter()
        .filter_map(|record| match &record.body {
            Body::Score(s) => {
                let (name, revision) = s.shown_as();
                Some(format!("{name} {} {}-{} {}", revision.0, s.home, s.away, s.state.name()))
            }
            _ => None,
        })
        .collect();
    assert_eq!(told, ["q2 1 1-1 confirmed", "p2 2 2-0 withdrawn"], "what both saw is not told again");
    assert_eq!(stage.shown(), Some((1, 1)));
    // What both saw goes on under the name it was told by, and its revisions only rise.
    stage.say(ScoreIn { state: ScoreState::Withdrawn, digest: [255; 16], ..score("q", "q1", None, 1, 0) });
    let row = &stage.board("a")[&key("p1")];
    assert_eq!((row.shown_as().1, row.state), (Revision(2), ScoreState::Withdrawn));
    assert!(!stage.say(score("p", "p3", None, 9, 9)), "who was primary is not shown any more");
}

#[test]
fn who_takes_over_without_having_spoken_is_joined_to_what_is_there() {
    let mut stage = Stage::new(&["a"]);
    stage.feed("p", None);
    stage.say(score("p", "p1", None, 1, 0));
    stage.say(score("p", "p2", None, 2, 0));
    stage.feed("q", None);
    assert_eq!(stage.shown(), Some((2, 0)), "nothing is taken back");
    for (event, home) in [("q1", 1), ("q2", 2), ("q3", 3)] {
        assert!(stage.say(score("q", event, None, home, 0)));
    }
    let board = stage.board("a");
    assert_eq!(board.keys().map(Key::as_str).collect::<Vec<_>>(), ["p1", "p2", "q3"], "no goal twice");
    assert_eq!(stage.shown(), Some((3, 0)));
}

#[test]
fn an_operators_word_is_the_next_revision_and_a_providers_news_the_one_after() {
    let mut stage = Stage::new(&["a"]);
    stage.feed("p", None);
    stage.say(score("p", "p1", Some(5), 1, 0));
    stage.typed("p1", 0, 1, ScoreState::Confirmed);
    assert_eq!(stage.shown(), Some((0, 1)));
    assert_eq!(stage.board("a")[&key("p1")].shown_as().1, Revision(6));
    stage.say(score("p", "p1", Some(4), 4, 4));
    assert_eq!(stage.shown(), Some((0, 1)), "a lower revision that comes late says nothing");
    stage.say(score("p", "p1", Some(6), 1, 1));
    assert_eq!(stage.board("a")[&key("p1")].shown_as().1, Revision(7));
    assert_eq!(stage.shown(), Some((1, 1)));
    stage.typed("p1", 1, 1, ScoreState::Withdrawn);
    stage.typed("new", 2, 2, ScoreState::Confirmed);
    assert_eq!(stage.shown(), Some((2, 2)));
    stage.typed("new", 2, 2, ScoreState::Withdrawn);
    assert_eq!(stage.shown(), Some((0, 0)));
    assert_eq!(stage.board("a")[&key("new")].shown_as().1, Revision(2));
}

#[test]
fn a_change_against_an_older_match_is_refused() {
    let mut stage = Stage::new(&["a"]);
    stage.say(score("p", "p1", None, 1, 0));
    let shown = stage.ledger("a").version();
    let set = |if_version| Command::SetFeed { match_id: key("m"), primary: key("p"), stand_by: None, if_version };
    stage.say(score("p", "p2", None, 2, 0));
    let stale = |answer: Answer| matches!(answer, Answer::Reject(reject) if reject.code == Code::Stale);
    assert!(stale(stage.operate(set(Some(shown)))));
    let now = stage.ledger("a").version();
    assert!(matches!(stage.operate(set(Some(now))), Answer::Match { .. }));
    assert!(stale(stage.operate(set(Some(now)))), "the change itself is one");
    let nothing = Command::SetFeed { match_id: key("none"), primary: key("p"), stand_by: None, if_version: None };
    assert!(matches!(stage.operate(nothing), Answer::Reject(reject) if reject.code == Code::UnknownMatch));
}

#[test]
fn a_room_that_shows_a_match_later_shows_it_from_the_same_provider() {
    let mut stage = Stage::new(&["a"]);
    stage.feed("p", Some("q"));
    stage.bind("b");
    assert!(!stage.say(score("q", "q1", None, 5, 5)));
    assert!(stage.say(score("p", "p1", None, 1, 0)));
    assert_eq!(stage.board("b").len(), 1);
    assert_eq!(stage.ledger("b").feed.as_ref().unwrap().primary, key("p"));
    let start = Position::START;
    assert_ne!(stage.ledger("b").version(), start);
}

#[derive(Clone, Debug)]
enum Step {
    /// A provider, its event, a revision or none, and what it says.
    Say(u8, u8, Option<u32>, u8, bool, bool),
    Feed(u8),
    Type(u8, u8),
}

fn step() -> impl Strategy<Value = Step> {
    let say = (0..2u8, 0..5u8, option::weighted(0.5, 1..=4u32), 0..5u8, any::<(bool, bool)>());
    prop_oneof![
        16 => say.prop_map(|(p, e, r, goals, (gone, old))| Step::Say(p, e, r, goals, gone && goals > 1, old && goals > 2)),
        3 => (0..2u8).prop_map(Step::Feed),
        1 => (0..5u8, 0..5u8).prop_map(|(e, goals)| Step::Type(e, goals)),
        1 => Just(Step::Feed(0)),
    ]
}

proptest! {
    #![proptest_config(proptest::test_runner::Config { cases: 1024, failure_persistence: None, ..Default::default() })]

    /// Rows are what viewers have, numbers rise and never come twice, nobody but the primary is shown, and the score is the
    /// primary's wherever nothing that is not its own stands.
    #[test]
    fn whoever_is_primary_its_score_is_shown(steps in vec(step(), 1..40)) {
        let mut stage = Stage::new(&["a", "b"]);
        stage.feed("p", Some("q"));
        for one in steps {
            match one {
                Step::Say(provider, event, revision, goals, gone, historical) => {
                    let provider = ["p", "q"][usize::from(provider)];
                    let event = format!("e{event}");
                    let mut said = score(provider, &event, revision, u32::from(goals), 0);
                    said.historical = historical;
                    if gone {
                        said.state = ScoreState::Withdrawn;
                        said.digest = [255; 16];
                    }
                    let _ = stage.ask(Command::Score(said));
                }
                Step::Feed(provider) => {
                    let (primary, other) = if provider == 0 { ("p", "q") } else { ("q", "p") };
                    let answer = stage.feed(primary, Some(other));
                    let done = matches!(answer, Answer::Match { .. });
                    prop_assert!(done);
                }
                Step::Type(event, goals) => {
                    stage.typed(&format!("e{event}"), u32::from(goals), 0, ScoreState::Confirmed);
                }
            }
            for r in ["a", "b"] {
                let board = stage.board(r);
                let Some(ledger) = stage.owner.room(&room(r)).unwrap().scores.get(&key("m")) else { continue };
                let rows: BTreeMap<Key, Score> =
                    ledger.rows.iter().map(|(key, row)| (key.clone(), row.score().clone())).collect();
                prop_assert_eq!(&board, &rows);
                let feed = ledger.feed.clone().unwrap();
                let typed = ledger.rows.values().any(|row| row.score().provider.as_str() == OPERATOR);
                let others = ledger.rows.values().any(|row| row.stands() && row.of.0 != feed.primary);
                if typed || others {
                    continue;
                }
                if let Some(own) = ledger.score_of(&feed.primary) {
                    let shown = ledger.current(&key("m")).map(|s| (s.home, s.away));
                    prop_assert_eq!(shown.unwrap_or((0, 0)), own);
                }
            }
        }
        let mut given: BTreeMap<(RoomId, Key), Vec<Revision>> = BTreeMap::new();
        for record in &stage.log {
            let (Body::Score(score), Audience::Everyone, Some(r)) = (&record.body, record.audience, &record.room) else {
                continue;
            };
            let (name, revision) = score.shown_as();
            let all = given.entry((r.clone(), name.clone())).or_default();
            prop_assert!(!all.contains(&revision), "{} {} came twice", name, revision.0);
            prop_assert!(score.shown.is_none() || all.iter().all(|before| *before < revision));
            all.push(revision);
        }
    }
}
