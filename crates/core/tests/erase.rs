//! A user who is erased: viewers are told, and the owner, its checkpoints and whoever comes after it know nothing of the user.

use std::sync::Arc;
use std::time::Duration;

use grandstand_core::access::Revoked;
use grandstand_core::ids::{Epoch, EventId};
use grandstand_core::names::{ClientMsgId, Key, RoomId, UserId};
use grandstand_core::owner::answer::{Answer, Output};
use grandstand_core::owner::checkpoint::{LogCheckpoint, RoomCheckpoint};
use grandstand_core::owner::command::{Author, Command, GiftIn, Publish, ReportIn, Standing, Tag};
use grandstand_core::owner::{Owner, Settings};
use grandstand_core::reader::Reading;
use grandstand_core::record::{Ban, Body, Gift, Record, RetractTarget};
use grandstand_core::reports::Report;
use grandstand_core::rooms::RoomChange;
use grandstand_core::sampler::switch::Sampling;
use grandstand_core::time::{Mono, Wall};

const WALL: u64 = 1_781_000_000_000;

fn room(name: &str) -> RoomId {
    RoomId::parse(name).unwrap()
}
fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

struct Stand {
    owner: Owner,
    now: Mono,
    tags: Tag,
    log: Vec<Arc<Record>>,
}

impl Stand {
    fn new() -> Stand {
        let now = Mono(1_000_000);
        let settings = Settings { create_on_use: true, ..Settings::default() };
        let mut owner = Owner::new(settings, now, Wall(WALL));
        owner.start(Epoch::new(1).unwrap());
        Stand { owner, now, tags: 0, log: Vec::new() }
    }

    fn wall(&self) -> Wall {
        Wall(WALL) + self.now.since(Mono(1_000_000))
    }

    fn submit(&mut self, command: Command) -> Tag {
        self.tags += 1;
        self.owner.submit(self.tags, command, self.now, self.wall());
        self.tags
    }

    fn commit(&mut self) -> Vec<(Tag, Answer)> {
        let mut answers = Vec::new();
        let mut drain = |owner: &mut Owner, log: &mut Vec<Arc<Record>>| {
            while let Some(output) = owner.poll() {
                match output {
                    Output::Answer { tag, answer } => answers.push((tag, answer)),
                    Output::Committed(record) => log.push(record),
                    _ => {}
                }
            }
        };
        drain(&mut self.owner, &mut self.log);
        let wall = Wall(WALL) + self.now.since(Mono(1_000_000));
        if self.owner.seal(self.now, wall).is_some() {
            self.owner.on_committed(self.now, wall);
        }
        drain(&mut self.owner, &mut self.log);
        answers
    }

    fn ask(&mut self, command: Command) -> Answer {
        let tag = self.submit(command);
        self.commit().into_iter().find(|(t, _)| *t == tag).expect("an answer").1
    }

    fn say(&mut self, of: &str, who: &str, key: &str) -> Tag {
        let author = Author {
            user: user(who),
            display: format!("{who} of the north stand").into(),
            badges: [].into(),
            standing: Standing::Viewer,
        };
        let client_msg_id = ClientMsgId::parse(key).unwrap();
        let text = format!("{key} by {who}").into();
        self.submit(Command::Publish(Publish { room: room(of), author, client_msg_id, text, reply_to: None }))
    }

    fn erase(&mut self, who: &str) -> EventId {
        match self.ask(Command::EraseUser { by: user("ops"), user: user(who) }) {
            Answer::Done { event_id: Some(id) } => id,
            other => panic!("{other:?}"),
        }
    }

    fn take_checkpoint(&mut self) -> (LogCheckpoint, Vec<RoomCheckpoint>) {
        self.owner.take_checkpoint()
    }
}

/// Things of all kinds in which ann is named.
fn evening() -> Stand {
    let mut stand = Stand::new();
    for of in ["a", "b"] {
        stand.say(of, "bob", "k0");
        stand.say(of, "ann", "k1");
        stand.commit();
    }
    let target = stand.log.iter().find(|r| r.user == Some(user("bob"))).unwrap().event_id();
    let ban = Ban { user: user("ann"), until: None, reason: "rude".into(), shadow: false };
    let gift = Gift {
        gift_id: Key::parse("pay-1").unwrap(),
        display: "Ann".into(),
        item: "rose".into(),
        count: 1,
        amount_micros: 1,
        currency: "EUR".into(),
        banner_until: None,
    };
    for command in [
        Command::Gift(GiftIn { room: room("a"), user: user("ann"), gift }),
        Command::Report(ReportIn {
            room: room("a"),
            user: user("ann"),
            report: Report { event: target, reason: "spam".into() },
        }),
        Command::Retract { room: room("b"), target: RetractTarget::User(user("ann")), reason: "spam".into() },
        Command::Ban { room: room("b"), ban: ban.clone(), purge: Some(Duration::from_secs(60)) },
        Command::SiteBan { by: user("ops"), ban, purge: None },
        Command::Revoke { by: user("ops"), what: Revoked::User(user("ann")), lasts: Duration::from_secs(600) },
    ] {
        stand.submit(command);
        stand.commit();
    }
    stand
}

#[test]
fn viewers_are_told_in_each_room_where_the_user_was_and_nothing_in_memory_names_it() {
    let mut stand = evening();
    let before = stand.log.len();
    let id = stand.erase("ann");
    let batch = &stand.log[before..];
    let told: Vec<&str> = batch
        .iter()
        .filter(|r| matches!(&r.body, Body::Retract(retract) if retract.target == RetractTarget::User(user("ann"))))
        .map(|r| r.room.as_ref().unwrap().as_str())
        .collect();
    assert_eq!(told, ["a", "b"]);
    let last = batch.last().unwrap();
    assert_eq!((last.event_id(), &last.body, &last.user), (id, &Body::EraseUser(user("ann")), &Some(user("ops"))));
    let (log, rooms) = stand.take_checkpoint();
    let text = format!("{log:?} {rooms:?}");
    assert!(!text.contains("\"ann") && !text.contains("Ann"), "{text}");
    assert!(text.contains("bob"), "others stay");
}

#[test]
fn what_the_user_says_afterwards_is_new() {
    let mut stand = evening();
    stand.erase("ann");
    // The same key, from a user who was banned: nothing of it is known.
    let tag = stand.say("a", "ann", "k1");
    let answers = stand.commit();
    let answer = &answers.iter().find(|(t, _)| *t == tag).unwrap().1;
    assert!(matches!(answer, Answer::Published { duplicate: false, .. }), "{answer:?}");
}

#[test]
fn an_owner_that_comes_back_knows_as_little() {
    for erased_rows in [false, true] {
        let mut stand = evening();
        let id = stand.erase("ann");
        // From the whole log, as it stands before the rows are erased and after.
        let left = |record: &Arc<Record>| match record.without(&user("ann")) {
            Some(left) if erased_rows && record.event_id() < id => Arc::new(left),
            _ => record.clone(),
        };
        let mut back = Owner::new(Settings { create_on_use: true, ..Settings::default() }, stand.now, stand.wall());
        for record in stand.log.iter().map(left) {
            assert_eq!(back.replay(&record), Reading::Valid);
        }
        let (log, rooms) = back.take_checkpoint();
        let text = format!("{log:?} {rooms:?}");
        assert!(!text.contains("\"ann") && !text.contains("Ann"), "{text}");
        let (pseq, recent) = (
            |o: &Owner| o.rooms().map(|v| v.pseq).collect::<Vec<_>>(),
            |o: &Owner| {
                o.rooms().map(|v| v.recent.iter().map(|r| r.event_id()).collect::<Vec<_>>()).collect::<Vec<_>>()
            },
        );
        assert_eq!((pseq(&back), recent(&back)), (pseq(&stand.owner), recent(&stand.owner)));
    }
}

#[test]
fn what_waits_in_a_wide_room_is_not_shown_any_more() {
    let mut stand = Stand::new();
    let wide = RoomChange { sampling: Some(Sampling::Always), ..RoomChange::default() };
    stand.ask(Command::PutRoom { room: room("w"), change: wide.into(), if_version: None });
    stand.commit();
    stand.say("w", "bob", "k0");
    stand.say("w", "ann", "k1");
    stand.commit();
    // Said in the batch of the erase itself.
    stand.say("w", "ann", "k2");
    let id = stand.erase("ann");
    for _ in 0..40 {
        stand.now = stand.now + Duration::from_millis(200);
        let wall = stand.wall();
        stand.owner.on_deadline(stand.now, wall);
        stand.commit();
    }
    let shown: Vec<&UserId> =
        stand.log.iter().filter(|r| r.raw_id().is_some()).filter_map(|r| r.user.as_ref()).collect();
    assert_eq!(shown, [&user("bob")]);
    assert!(stand.log.iter().all(|r| r.event_id() <= id || !r.is_of(&user("ann"))));
}
