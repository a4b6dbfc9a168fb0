//! Likes at the owner: what is counted, what is not, and that nothing is counted twice or lost but with its tick.

use std::sync::Arc;
use std::time::Duration;

use grandstand_core::ids::Epoch;
use grandstand_core::likes::{Frame, KINDS_MAX, RoomLikes, Round, TICK};
use grandstand_core::names::{LikeKind, RoomId, UserId};
use grandstand_core::owner::answer::{Failure, Output};
use grandstand_core::owner::command::Command;
use grandstand_core::owner::likes::Uncounted;
use grandstand_core::owner::{Owner, Settings};
use grandstand_core::record::{Ban, Body, Record, RoomState, Tally};
use grandstand_core::rooms::RoomChange;
use grandstand_core::time::{Mono, Wall};

struct Stage {
    owner: Owner,
    now: Mono,
    wall: Wall,
    /// All that is durable.
    log: Vec<Arc<Record>>,
    settled: Vec<(u64, u64)>,
    tags: u64,
}

fn room(name: &str) -> RoomId {
    RoomId::parse(name).unwrap()
}
fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}
fn kind(name: &str) -> LikeKind {
    LikeKind::parse(name).unwrap()
}

fn frame(from: Option<(u64, u64)>, likes: &[(&str, &str, &str, u32)]) -> Frame {
    let of = |(r, k, u, n): &(&str, &str, &str, u32)| RoomLikes {
        room: room(r),
        kinds: vec![(kind(k), vec![(user(u), *n)])],
    };
    Frame { from, round: Round { span: Duration::ZERO, rooms: likes.iter().map(of).collect() } }
}

impl Stage {
    fn new(create_on_use: bool) -> Stage {
        let (now, wall) = (Mono(1_000_000), Wall(1_000_000));
        let mut owner = Owner::new(Settings { create_on_use, ..Settings::default() }, now, wall);
        owner.start(Epoch::new(1).unwrap());
        let mut stage = Stage { owner, now, wall, log: Vec::new(), settled: Vec::new(), tags: 0 };
        stage.commit();
        stage
    }

    /// With a room that takes likes.
    fn plain() -> Stage {
        let mut stage = Stage::new(false);
        stage.put("a", RoomChange::default());
        stage
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.wall = self.wall + time;
    }

    fn ask(&mut self, command: Command) {
        self.tags += 1;
        self.owner.submit(self.tags, command, self.now, self.wall);
        self.commit();
    }

    fn put(&mut self, name: &str, change: RoomChange) {
        self.ask(Command::PutRoom { room: room(name), change: change.into(), if_version: None });
    }

    /// Seals what is due and makes it durable.
    fn commit(&mut self) -> Vec<Arc<Record>> {
        let Some(records) = self.owner.seal(self.now, self.wall) else { return Vec::new() };
        self.owner.on_committed(self.now, self.wall);
        self.log.extend(records.iter().cloned());
        while let Some(output) = self.owner.poll() {
            if let Output::LikesSettled { sender, number } = output {
                self.settled.push((sender, number));
            }
        }
        records.to_vec()
    }

    fn take(&mut self, frame: Frame) {
        self.owner.take_likes(frame, self.now, self.wall);
    }

    /// The next tick comes.
    fn tick(&mut self) -> Vec<Tally> {
        self.pass(TICK);
        let tally = |record: &Arc<Record>| match &record.body {
            Body::Tally(tally) => Some(tally.clone()),
            _ => None,
        };
        self.commit().iter().filter_map(tally).collect()
    }

    fn total(&self, name: &str, of: &str) -> u64 {
        let view = self.owner.room(&room(name));
        view.and_then(|v| v.likes.iter().find(|(k, _)| k.as_str() == of).map(|(_, n)| *n)).unwrap_or(0)
    }
}

#[test]
fn likes_of_a_tick_become_one_record_with_the_totals_of_the_rooms_that_changed() {
    let mut stage = Stage::plain();
    stage.put("b", RoomChange::default());
    stage.put("c", RoomChange::default());
    stage.take(frame(None, &[("a", "like", "u", 3), ("b", "heart", "u", 1)]));
    stage.take(frame(None, &[("a", "like", "v", 4)]));
    let first = stage.tick();
    let rooms = |tally: &Tally| {
        let room = |(room, totals): &(RoomId, grandstand_core::likes::Totals)| {
            (room.to_string(), totals.iter().map(|(k, n)| (k.to_string(), *n)).collect::<Vec<_>>())
        };
        tally.rooms.iter().map(room).collect::<Vec<_>>()
    };
    assert_eq!(first.len(), 1);
    let expected = [("a".to_owned(), vec![("like".to_owned(), 7)]), ("b".to_owned(), vec![("heart".to_owned(), 1)])];
    assert_eq!(rooms(&first[0]), expected);
    stage.take(frame(None, &[("a", "fire", "u", 2)]));
    let second = stage.tick();
    let fire_and_like = vec![("fire".to_owned(), 2), ("like".to_owned(), 7)];
    assert_eq!(rooms(&second[0]), [("a".to_owned(), fire_and_like)]);
    let record = stage.log.last().unwrap();
    assert_eq!((record.room.as_ref(), record.lane(), record.pseq), (None, None, None));
}

#[test]
fn tallies_come_once_a_tick_and_the_last_one_always() {
    let mut stage = Stage::plain();
    stage.take(frame(None, &[("a", "like", "u", 1)]));
    stage.commit();
    assert_eq!(stage.total("a", "like"), 1, "nothing was sealed lately: at once");
    stage.take(frame(None, &[("a", "like", "u", 1)]));
    assert_eq!(stage.owner.next_deadline(), Some(stage.now + TICK));
    stage.pass(TICK / 2);
    assert!(stage.commit().is_empty(), "half a tick is none");
    stage.pass(TICK / 2);
    assert_eq!(stage.commit().len(), 1);
    assert_eq!((stage.total("a", "like"), stage.owner.next_deadline()), (2, None));
}

#[test]
fn nothing_is_shown_or_settled_before_the_commit() {
    let mut stage = Stage::plain();
    stage.take(frame(Some((7, 1)), &[("a", "like", "u", 5)]));
    stage.owner.seal(stage.now, stage.wall).unwrap();
    assert_eq!((stage.total("a", "like"), stage.owner.poll()), (0, None));
    stage.owner.on_committed(stage.now, stage.wall);
    assert_eq!(stage.total("a", "like"), 5);
    let settled = std::iter::from_fn(|| stage.owner.poll()).any(|o| o == Output::LikesSettled { sender: 7, number: 1 });
    assert!(settled);
}

#[test]
fn a_frame_that_comes_again_counts_once_before_and_after_its_commit_and_after_recovery() {
    let mut stage = Stage::plain();
    let one = frame(Some((7, 1)), &[("a", "like", "u", 5)]);
    stage.take(one.clone());
    stage.take(one.clone());
    stage.tick();
    stage.take(one.clone());
    assert_eq!(stage.owner.poll(), Some(Output::LikesSettled { sender: 7, number: 1 }), "its sender is told again");
    stage.take(frame(Some((8, 1)), &[("a", "like", "u", 5)]));
    stage.tick();
    assert_eq!(stage.total("a", "like"), 10, "another sender counts by itself");
    let mut again = Owner::new(Settings::default(), stage.now, stage.wall);
    for record in &stage.log {
        again.replay(record);
    }
    again.start(Epoch::new(2).unwrap());
    stage.owner = again;
    stage.commit();
    stage.take(one);
    stage.take(frame(Some((7, 2)), &[("a", "like", "u", 1)]));
    stage.tick();
    assert_eq!(stage.total("a", "like"), 11);
}

#[test]
fn a_failed_batch_gives_its_likes_to_the_next() {
    let mut stage = Stage::plain();
    stage.take(frame(Some((7, 1)), &[("a", "like", "u", 5)]));
    stage.owner.seal(stage.now, stage.wall).unwrap();
    stage.owner.on_failed(Failure::NoSpace, stage.now, stage.wall);
    assert_eq!((stage.total("a", "like"), stage.owner.poll()), (0, None));
    stage.take(frame(Some((7, 1)), &[("a", "like", "u", 5)]));
    stage.take(frame(Some((7, 2)), &[("a", "like", "v", 2)]));
    stage.tick();
    assert_eq!((stage.total("a", "like"), stage.settled.last()), (7, Some(&(7, 2))));
}

#[test]
fn a_failed_batch_without_a_tally_loses_nothing_that_an_earlier_one_gave_back() {
    let mut stage = Stage::plain();
    stage.take(frame(Some((7, 1)), &[("a", "like", "u", 5)]));
    stage.owner.seal(stage.now, stage.wall).unwrap();
    stage.owner.on_failed(Failure::NoSpace, stage.now, stage.wall);
    let put = Command::PutRoom { room: room("b"), change: RoomChange::default().into(), if_version: None };
    stage.owner.submit(99, put, stage.now, stage.wall);
    let records = stage.owner.seal(stage.now, stage.wall).unwrap();
    assert!(!records.iter().any(|record| matches!(record.body, Body::Tally(_))));
    stage.owner.on_failed(Failure::NoSpace, stage.now, stage.wall);
    stage.tick();
    assert_eq!((stage.total("a", "like"), stage.settled.last()), (5, Some(&(7, 1))));
}

#[test]
fn a_checkpoint_holds_totals_and_senders() {
    let mut stage = Stage::plain();
    stage.take(frame(Some((7, 3)), &[("a", "like", "u", 5)]));
    stage.tick();
    let (log, rooms) = stage.owner.take_checkpoint();
    let mut again = Owner::new(Settings::default(), stage.now, stage.wall);
    rooms.into_iter().for_each(|room| again.restore_room(room));
    again.restore_log(log);
    again.start(Epoch::new(2).unwrap());
    stage.owner = again;
    stage.commit();
    assert_eq!(stage.total("a", "like"), 5);
    stage.take(frame(Some((7, 3)), &[("a", "like", "u", 5)]));
    stage.take(frame(Some((7, 4)), &[("a", "like", "u", 1)]));
    stage.tick();
    assert_eq!(stage.total("a", "like"), 6);
}

#[test]
fn a_banned_users_likes_are_not_counted_from_the_ban_on() {
    let mut stage = Stage::plain();
    stage.take(frame(None, &[("a", "like", "u", 1), ("a", "like", "v", 1)]));
    stage.tick();
    stage.take(frame(None, &[("a", "like", "u", 10), ("a", "like", "v", 1)]));
    let ban = Ban { user: user("u"), until: None, reason: "spam".into(), shadow: false };
    let ban = Command::Ban { room: room("a"), ban, purge: None };
    // The frame came before the ban, and its tally is sealed in the ban's own batch.
    stage.pass(TICK);
    stage.ask(ban);
    assert_eq!((stage.total("a", "like"), stage.owner.uncounted().banned), (3, 10));
}

#[test]
fn a_closed_room_and_one_that_takes_none_count_nothing() {
    let mut stage = Stage::plain();
    stage.put("off", RoomChange { like_rate: Some(0), ..RoomChange::default() });
    stage.put("shut", RoomChange { state: Some(RoomState::Closed), ..RoomChange::default() });
    let likes = [("off", "like", "u", 1), ("shut", "like", "u", 2), ("nowhere", "like", "u", 4), ("a", "like", "u", 8)];
    stage.take(frame(Some((7, 1)), &likes));
    stage.tick();
    let totals = ["off", "shut", "nowhere", "a"].map(|name| stage.total(name, "like"));
    assert_eq!((totals, stage.owner.uncounted()), ([0, 0, 0, 8], Uncounted { room: 7, ..Uncounted::default() }));
    assert!(stage.owner.room(&room("nowhere")).is_none());
}

#[test]
fn a_room_is_made_by_its_first_like_where_rooms_are_made_on_use() {
    let mut stage = Stage::new(true);
    stage.take(frame(None, &[("new", "like", "u", 2)]));
    stage.tick();
    assert_eq!(stage.total("new", "like"), 2);
}

#[test]
fn likes_of_a_room_whose_first_batch_failed_are_counted_with_the_next() {
    let mut stage = Stage::new(true);
    stage.take(frame(None, &[("new", "like", "u", 2)]));
    stage.owner.seal(stage.now, stage.wall).unwrap();
    stage.owner.on_failed(Failure::Overloaded, stage.now, stage.wall);
    stage.tick();
    assert_eq!(stage.total("new", "like"), 2);
}

#[test]
fn a_user_by_many_gateways_gives_no_more_than_the_rate_and_its_slack() {
    let mut stage = Stage::plain();
    for sender in 0..20 {
        stage.take(frame(Some((sender, 1)), &[("a", "like", "u", 100)]));
    }
    stage.tick();
    // 20 a second for six seconds.
    assert_eq!((stage.total("a", "like"), stage.owner.uncounted().over_rate), (120, 1_880));
}

#[test]
fn likes_that_were_kept_for_long_are_held_to_the_rate_of_that_time() {
    let mut stage = Stage::plain();
    stage.pass(Duration::from_secs(60));
    let mut kept = frame(Some((7, 1)), &[("a", "like", "u", 500)]);
    kept.round.span = Duration::from_secs(30);
    stage.take(kept);
    stage.tick();
    assert_eq!(stage.total("a", "like"), 500, "20 a second for half a minute would be 600");
    // And the next are held to what is left, not to the time before.
    stage.take(frame(Some((7, 2)), &[("a", "like", "u", 500)]));
    stage.tick();
    assert_eq!(stage.total("a", "like"), 620);
}

#[test]
fn kinds_beyond_those_a_room_counts_are_not_counted() {
    let mut stage = Stage::plain();
    let kinds: Vec<String> = (0..12).map(|n| format!("k{n:02}")).collect();
    let likes: Vec<_> = kinds.iter().map(|k| ("a", k.as_str(), "u", 1)).collect();
    stage.take(frame(None, &likes[..5]));
    stage.tick();
    stage.take(frame(None, &likes));
    stage.tick();
    assert_eq!(stage.owner.uncounted().kind, 5);
    stage.take(frame(None, &[("a", "like", "u", 1)]));
    stage.tick();
    let view = stage.owner.room(&room("a")).unwrap();
    assert_eq!(view.likes.len(), KINDS_MAX);
    assert_eq!(stage.total("a", "like"), 1, "the plain kind has a place of its own");
    assert_eq!(stage.total("a", "k00"), 2);
}

#[test]
fn very_many_rooms_are_told_in_several_records_of_one_batch() {
    let mut stage = Stage::new(true);
    let names: Vec<String> = (0..1_000).map(|n| format!("r{n:04}")).collect();
    let likes: Vec<_> = names.iter().map(|name| (name.as_str(), "like", "u", 1)).collect();
    stage.take(frame(Some((7, 1)), &likes));
    let tallies = stage.tick();
    assert_eq!(tallies.iter().map(|t| t.rooms.len()).collect::<Vec<_>>(), [400, 400, 200]);
    assert_eq!(tallies.iter().map(|t| t.senders.len()).collect::<Vec<_>>(), [0, 0, 1]);
}
