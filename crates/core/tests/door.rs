//! What the owner's door answers, one rule a test.

use std::time::Duration;

use grandstand_core::ids::{Epoch, EventId, Seq};
use grandstand_core::moderation::Ruling;
use grandstand_core::names::{ClientMsgId, Key, RoomId, UserId};
use grandstand_core::owner::answer::{Answer, BannerFate, Failure, Output};
use grandstand_core::owner::command::{Author, Command, GiftIn, Publish, ReportIn, Standing, Tag};
use grandstand_core::owner::{Owner, Settings};
use grandstand_core::record::{Audience, Audit, Ban, Body, Comment, Gift, Policy, RetractTarget, RoomState, Verdict};
use grandstand_core::reject::Code;
use grandstand_core::reports::Report;
use grandstand_core::rooms::{Asks, RoomChange};
use grandstand_core::time::{Mono, Wall};

struct Door {
    owner: Owner,
    now: Mono,
    wall: Wall,
    tags: Tag,
}

fn room() -> RoomId {
    RoomId::parse("a").unwrap()
}
fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

impl Door {
    fn new(settings: Settings, change: RoomChange) -> Door {
        let (now, wall) = (Mono(1_000_000), Wall(1_000_000));
        let mut owner = Owner::new(settings, now, wall);
        owner.start(Epoch::new(1).unwrap());
        let mut door = Door { owner, now, wall, tags: 0 };
        assert!(matches!(door.put(change), Answer::Room { version: 1, .. }));
        door
    }

    fn plain() -> Door {
        Door::new(Settings::default(), RoomChange::default())
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.wall = self.wall + time;
    }

    fn log_time(&mut self) -> Wall {
        self.owner.log_time(self.now, self.wall)
    }

    fn submit(&mut self, command: Command) -> Tag {
        self.tags += 1;
        self.owner.submit(self.tags, command, self.now, self.wall);
        self.tags
    }

    fn commit(&mut self) {
        if self.owner.seal(self.now, self.wall).is_some() {
            self.owner.on_committed(self.now, self.wall);
        }
    }

    /// The question to the classifier that waits, and nothing before it.
    fn asked(&mut self) -> Tag {
        match self.owner.poll() {
            Some(Output::NeedVerdict { tag, .. }) => tag,
            other => panic!("no question but {other:?}"),
        }
    }

    /// Every answer waiting, by tag.
    fn answers(&mut self) -> Vec<(Tag, Answer)> {
        let outputs = std::iter::from_fn(|| self.owner.poll());
        let answer = |output| match output {
            Output::Answer { tag, answer } => Some((tag, answer)),
            Output::Committed(_)
            | Output::NeedVerdict { .. }
            | Output::LikesSettled { .. }
            | Output::Decided { .. }
            | Output::Fate { .. } => None,
        };
        outputs.filter_map(answer).collect()
    }

    fn ask(&mut self, command: Command) -> Answer {
        let tag = self.submit(command);
        self.commit();
        let mut answers = self.answers();
        assert_eq!(answers.len(), 1, "{answers:?}");
        assert_eq!(answers[0].0, tag);
        answers.remove(0).1
    }

    fn put(&mut self, change: RoomChange) -> Answer {
        self.ask(Command::PutRoom { room: room(), change: change.into(), if_version: None })
    }

    fn say(&mut self, who: &str, key: &str) -> Answer {
        self.ask(comment(who, key, "hi", Standing::Viewer))
    }
}

fn comment(who: &str, key: &str, text: &str, standing: Standing) -> Command {
    let author = Author { user: user(who), display: who.into(), badges: [].into(), standing };
    let client_msg_id = ClientMsgId::parse(key).unwrap();
    Command::Publish(Publish { room: room(), author, client_msg_id, text: text.into(), reply_to: None })
}

fn ban(who: &str, until: Option<Wall>) -> Command {
    Command::Ban { room: room(), ban: ban_of(who, until, false), purge: None }
}

fn ban_of(who: &str, until: Option<Wall>, shadow: bool) -> Ban {
    Ban { user: user(who), until, reason: "rude".into(), shadow }
}

fn id(answer: &Answer) -> EventId {
    match answer {
        Answer::Published { event_id, .. } => *event_id,
        Answer::Done { event_id: Some(event_id) } => *event_id,
        other => panic!("{other:?}"),
    }
}

fn refused(answer: &Answer) -> (Code, Option<Duration>) {
    match answer {
        Answer::Reject(reject) => (reject.code, reject.retry_after),
        other => panic!("{other:?}"),
    }
}

#[test]
fn nothing_is_answered_or_seen_before_the_commit() {
    let mut door = Door::plain();
    door.submit(comment("u", "k", "hi", Standing::Viewer));
    let batch = door.owner.seal(door.now, door.wall).unwrap();
    assert_eq!(batch.len(), 1);
    assert_eq!(door.owner.poll(), None);
    assert_eq!(door.owner.room(&room()).unwrap().accepted, 0);
    assert!(door.owner.seal(door.now, door.wall).is_none(), "one batch in flight");
    door.owner.on_committed(door.now, door.wall);
    assert_eq!(door.owner.room(&room()).unwrap().recent.len(), 1);
}

#[test]
fn a_failed_batch_is_refused_with_its_reason_and_its_ids_are_given_again() {
    let mut door = Door::plain();
    door.submit(comment("u", "k", "hi", Standing::Viewer));
    let lost = door.owner.seal(door.now, door.wall).unwrap();
    door.owner.on_failed(Failure::NoSpace, door.now, door.wall);
    let answers = door.answers();
    assert_eq!(refused(&answers[0].1).0, Code::NoSpace);
    assert!(refused(&answers[0].1).1.is_some());
    assert_eq!(id(&door.say("u", "k")), lost[0].event_id());
}

#[test]
fn a_second_publish_of_a_key_waits_for_the_first_and_gets_its_answer() {
    let mut door = Door::plain();
    let first = door.submit(comment("u", "k", "hi", Standing::Viewer));
    let second = door.submit(comment("u", "k", "hi", Standing::Viewer));
    let other = door.submit(comment("u", "k", "ho", Standing::Viewer));
    let answers = door.answers();
    assert_eq!((answers.len(), answers[0].0), (1, other));
    assert_eq!(refused(&answers[0].1).0, Code::IdempotencyConflict);
    door.commit();
    let answers: std::collections::BTreeMap<Tag, Answer> = door.answers().into_iter().collect();
    assert_eq!(id(&answers[&first]), id(&answers[&second]));
    assert!(matches!(answers[&first], Answer::Published { duplicate: false, .. }));
    assert!(matches!(answers[&second], Answer::Published { duplicate: true, .. }));
}

#[test]
fn a_user_has_a_burst_of_forty_and_retries_are_free() {
    let mut door = Door::plain();
    for n in 0..40 {
        id(&door.say("u", &format!("k{n}")));
        id(&door.say("u", "k0"));
    }
    assert_eq!(refused(&door.say("u", "k40")), (Code::UserRate, Some(Duration::from_millis(500))));
    id(&door.say("v", "k40"));
    door.pass(Duration::from_millis(500));
    id(&door.say("u", "k40"));
}

#[test]
fn a_room_has_a_rate_and_a_backend_has_none() {
    let mut door = Door::new(Settings::default(), RoomChange { rate: Some(3), ..RoomChange::default() });
    for who in ["a", "b", "c"] {
        id(&door.say(who, "k"));
    }
    assert_eq!(refused(&door.say("d", "k")).0, Code::RoomRate);
    for n in 0..100 {
        id(&door.ask(comment("d", &format!("b{n}"), "hi", Standing::Backend)));
    }
}

#[test]
fn slow_mode_is_told_in_log_time_and_its_end_is_an_event() {
    let mut door = Door::plain();
    let slow = RoomChange {
        slow_mode_seconds: Some(30),
        slow_mode_for: Some(Duration::from_secs(60)),
        ..RoomChange::default()
    };
    door.put(slow);
    id(&door.say("u", "k1"));
    door.pass(Duration::from_secs(10));
    assert_eq!(refused(&door.say("u", "k2")), (Code::SlowMode, Some(Duration::from_secs(20))));
    id(&door.ask(comment("m", "k1", "hi", Standing::Moderator)));
    id(&door.ask(comment("m", "k2", "hi", Standing::Moderator)));
    // Whether a crowd speaks is looked at each second, until one of silence.
    for _ in 0..2 {
        door.pass(Duration::from_secs(1));
        door.owner.on_deadline(door.now, door.wall);
    }
    assert_eq!(door.owner.next_deadline(), Some(door.now + Duration::from_secs(48)));
    door.pass(Duration::from_secs(48));
    door.owner.on_deadline(door.now, door.wall);
    let batch = door.owner.seal(door.now, door.wall).unwrap();
    let told = batch.iter().find_map(|r| match &r.body {
        Body::Config(config) => Some((config.slow_mode_seconds, config.until_ts)),
        _ => None,
    });
    assert_eq!(told, Some((Some(0), Some(None))));
    door.owner.on_failed(Failure::Overloaded, door.now, door.wall);
    assert!(door.owner.next_deadline().is_some_and(|at| at <= door.now), "an end that was not written is due again");
}

#[test]
fn a_ban_in_the_same_batch_refuses_what_waits_behind_it() {
    let mut door = Door::plain();
    let before = door.submit(comment("u", "k1", "hi", Standing::Viewer));
    door.submit(ban("u", None));
    let behind = door.submit(comment("u", "k2", "hi", Standing::Viewer));
    door.commit();
    let answers: std::collections::BTreeMap<Tag, Answer> = door.answers().into_iter().collect();
    id(&answers[&before]);
    assert_eq!(refused(&answers[&behind]).0, Code::Banned);
    assert_eq!(refused(&door.say("u", "k1")).0, Code::Banned, "ban comes before idempotency");
    door.ask(Command::Unban { room: room(), user: user("u") });
    id(&door.say("u", "k2"));
    assert_eq!(door.ask(Command::Unban { room: room(), user: user("u") }), Answer::Done { event_id: None });
}

#[test]
fn an_operators_write_is_in_the_log_with_who_did_it_and_why() {
    let mut door = Door::plain();
    let audited = |command, why: &str| Command::Audited {
        by: user("mod"),
        audit: Audit { what: "ban".into(), justification: why.into() },
        command: Box::new(command),
    };
    let ban = ban("u", None);
    let mut logged = |command| {
        let tag = door.submit(command);
        door.commit();
        let (mut answer, mut records) = (None, Vec::new());
        while let Some(output) = door.owner.poll() {
            match output {
                Output::Answer { tag: of, answer: said } if of == tag => answer = Some(said),
                Output::Committed(record) => records.push(record),
                _ => {}
            }
        }
        (answer.expect("a command is answered"), records)
    };

    let (answer, records) = logged(audited(ban.clone(), "third warning"));
    let [change, audit] = &records[..] else { panic!("{records:?}") };
    assert_eq!(answer, Answer::Done { event_id: Some(change.event_id()) });
    assert!(matches!(change.body, Body::Ban(_)));
    assert_eq!((audit.user.clone(), audit.lane()), (Some(user("mod")), None));
    assert_eq!(audit.body, Body::Audit(Audit { what: "ban".into(), justification: "third warning".into() }));

    // Also when there was nothing to change.
    let nobody = Command::Unban { room: room(), user: user("nobody") };
    let (answer, records) = logged(audited(nobody, "a mistake"));
    assert_eq!(answer, Answer::Done { event_id: None });
    assert!(matches!(&records[..], [only] if matches!(only.body, Body::Audit(_))));

    // What is refused is not in the log.
    let stale = Command::PutRoom { room: room(), change: RoomChange::default().into(), if_version: Some(77) };
    let (answer, records) = logged(audited(stale, "too late"));
    assert_eq!((refused(&answer).0, records), (Code::Stale, vec![]));
}

#[test]
fn a_ban_ends_by_itself_in_log_time() {
    let mut door = Door::plain();
    let until = Some(door.wall + Duration::from_secs(5));
    door.ask(ban("u", until));
    assert_eq!(refused(&door.say("u", "k")).0, Code::Banned);
    door.pass(Duration::from_secs(5));
    id(&door.say("u", "k"));
}

#[test]
fn a_purge_takes_back_what_was_said_in_its_time_and_nothing_older() {
    let mut door = Door::plain();
    door.say("u", "old");
    door.pass(Duration::from_secs(120));
    let new = id(&door.say("u", "new"));
    let other = id(&door.say("v", "other"));
    let before = door.owner.room(&room()).unwrap().policy_version;
    let purge = Some(Duration::from_secs(60));
    door.submit(Command::Ban { room: room(), ban: ban_of("u", None, false), purge });
    let batch = door.owner.seal(door.now, door.wall).unwrap();
    assert!(matches!(&*batch, [ban, retract] if matches!(ban.body, Body::Ban(_)) && retract.pseq.is_some()));
    door.owner.on_committed(door.now, door.wall);
    let view = door.owner.room(&room()).unwrap();
    let recent: Vec<EventId> = view.recent.iter().map(|r| r.event_id()).collect();
    assert!(!recent.contains(&new) && recent.contains(&other) && recent.len() == 2, "{recent:?}");
    assert_eq!(view.policy_version, before + 2, "a ban and a retract each raise it");
}

#[test]
fn more_purges_than_are_remembered_reach_further_back_and_never_less() {
    let mut door = Door::plain();
    let mut gone = Vec::new();
    for n in 0..12 {
        door.pass(Duration::from_secs(120));
        gone.push(id(&door.say("u", &format!("k{n}"))));
        let target = RetractTarget::Since(user("u"), door.wall);
        door.ask(Command::Retract { room: room(), target, reason: "".into() });
    }
    let view = door.owner.room(&room()).unwrap();
    assert!(view.recent.is_empty());
    assert_eq!(view.retracted.since[&user("u")].len(), grandstand_core::owner::view::PURGES_MAX);
    assert!(gone.iter().all(|id| view.retracted.holds(*id, door.wall, Some(&user("u")))));
    id(&door.say("u", "after"));
    assert_eq!(door.owner.room(&room()).unwrap().recent.len(), 1, "what is said afterwards is shown");
}

#[test]
fn a_ban_of_the_whole_site_holds_in_every_room_and_its_purge_reaches_all_of_them() {
    let mut door = Door::new(Settings { create_on_use: true, ..Settings::default() }, RoomChange::default());
    let in_room = |name: &str, who: &str, key: &str| match comment(who, key, "hi", Standing::Viewer) {
        Command::Publish(publish) => Command::Publish(Publish { room: RoomId::parse(name).unwrap(), ..publish }),
        other => other,
    };
    for name in ["a", "b", "c"] {
        id(&door.ask(in_room(name, "u", "k")));
    }
    let ban = Command::SiteBan { by: user("ops"), ban: ban_of("u", None, false), purge: Some(Duration::from_secs(60)) };
    let waits = door.submit(in_room("b", "u", "k2"));
    let banned = door.submit(ban);
    let behind = door.submit(in_room("c", "u", "k2"));
    door.commit();
    let answers: std::collections::BTreeMap<Tag, Answer> = door.answers().into_iter().collect();
    id(&answers[&waits]);
    id(&answers[&banned]);
    assert_eq!(refused(&answers[&behind]).0, Code::Banned);
    assert!(door.owner.rooms().all(|view| view.recent.is_empty()), "all of it was said within the minute");
    assert_eq!(refused(&door.ask(in_room("d", "u", "k"))).0, Code::Banned, "rooms that come later too");
    let unban = || Command::SiteUnban { by: user("ops"), user: user("u") };
    id(&door.ask(unban()));
    assert_eq!(door.ask(unban()), Answer::Done { event_id: None });
    id(&door.ask(in_room("d", "u", "k")));
}

#[test]
fn a_shadow_banned_user_is_answered_as_ever_and_shown_to_nobody_else() {
    let mut door = Door::plain();
    door.ask(Command::Ban { room: room(), ban: ban_of("u", None, true), purge: None });
    let tag = door.submit(comment("u", "k", "hi", Standing::Viewer));
    let batch = door.owner.seal(door.now, door.wall).unwrap();
    let [said] = &*batch else { panic!("{batch:?}") };
    assert_eq!(said.audience, Audience::Author);
    assert!(matches!(&said.body, Body::Comment(Comment { shadowed: true, .. })), "the log marks it");
    door.owner.on_committed(door.now, door.wall);
    assert!(matches!(&door.answers()[..], [(of, Answer::Published { duplicate: false, .. })] if *of == tag));
    let again = door.say("u", "k");
    assert!(matches!(again, Answer::Published { duplicate: true, .. }), "{again:?}");
    assert!(door.owner.room(&room()).unwrap().recent.is_empty());
    door.ask(ban("u", None));
    assert_eq!(refused(&door.say("u", "k3")).0, Code::Banned, "a plain ban takes its place");
}

#[test]
fn a_room_may_take_nothing_twice_and_retries_stay_free() {
    let mut door = Door::new(Settings::default(), Asks { unique_comment: Some(true), ..Asks::default() }.into());
    let said = |who, key| comment(who, key, "gol", Standing::Viewer);
    let first = door.submit(said("u", "k1"));
    let under_way = door.submit(said("u", "k2"));
    let early = door.answers();
    assert_eq!((early[0].0, refused(&early[0].1).0), (under_way, Code::NotUnique), "also while the first is under way");
    door.commit();
    assert_eq!(door.answers()[0].0, first);
    assert!(matches!(door.ask(said("u", "k1")), Answer::Published { duplicate: true, .. }));
    id(&door.ask(said("v", "k1")));
    door.pass(Duration::from_secs(590));
    assert_eq!(refused(&door.ask(said("u", "k3"))), (Code::NotUnique, Some(Duration::from_secs(10))));
    id(&door.ask(comment("u", "k4", "gol", Standing::Moderator)));
    door.pass(Duration::from_secs(600));
    id(&door.ask(said("u", "k5")));
}

#[test]
fn a_room_may_take_emotes_alone_and_members_alone() {
    let asks = Asks { emote_only: Some(true), members_only: Some(Some("sub".into())), ..Asks::default() };
    let mut door = Door::new(Settings::default(), asks.into());
    let said = |key: &str, text: &str, badge: &str| match comment("u", key, text, Standing::Viewer) {
        Command::Publish(mut publish) => {
            publish.author.badges = [badge.into()].into();
            Command::Publish(publish)
        }
        other => other,
    };
    assert_eq!(refused(&door.ask(said("k1", "⚽", "vip"))).0, Code::MembersOnly);
    assert_eq!(refused(&door.ask(said("k1", "gol ⚽", "sub"))).0, Code::EmoteOnly);
    id(&door.ask(said("k1", "⚽ :clap:", "sub")));
    for standing in [Standing::Moderator, Standing::Backend] {
        id(&door.ask(comment("m", &format!("{standing:?}"), "calm down", standing)));
    }
}

#[test]
fn each_state_takes_what_it_should_and_goes_where_it_may() {
    use RoomState::{Closed, Live, Scheduled, Settling};
    for (state, takes_comments) in [(Scheduled, true), (Live, true), (Settling, true), (Closed, false)] {
        let mut door = Door::new(Settings::default(), RoomChange { state: Some(state), ..RoomChange::default() });
        match (door.say("u", "k"), takes_comments) {
            (Answer::Published { .. }, true) => {}
            (answer, false) => assert_eq!(refused(&answer).0, Code::RoomState),
            (answer, _) => panic!("{state:?}: {answer:?}"),
        }
    }
    let from_to = |from, to| {
        let mut door = Door::new(Settings::default(), RoomChange { state: Some(from), ..RoomChange::default() });
        matches!(door.put(RoomChange { state: Some(to), ..RoomChange::default() }), Answer::Room { .. })
    };
    let all = RoomState::ALL.map(|(state, _)| state);
    for from in all {
        for to in all {
            let refused = to == Scheduled && matches!(from, Live | Settling);
            assert_eq!(from_to(from, to), !refused, "{from:?} to {to:?}");
        }
    }
}

#[test]
fn a_pin_ends_by_itself_and_viewers_are_told() {
    let mut door = Door::plain();
    let pinned = id(&door.say("u", "k"));
    let until = door.wall + Duration::from_secs(60);
    door.put(Asks { pin: Some((pinned, Some(until))), ..Asks::default() }.into());
    assert_eq!(door.owner.room(&room()).unwrap().pinned.len(), 1, "the snapshot shows it");
    door.pass(Duration::from_secs(60));
    assert!(door.owner.next_deadline().is_some_and(|at| at <= door.now));
    door.owner.on_deadline(door.now, door.wall);
    let batch = door.owner.seal(door.now, door.wall).unwrap();
    door.owner.on_failed(Failure::Overloaded, door.now, door.wall);
    assert!(door.owner.next_deadline().is_some_and(|at| at <= door.now), "an end that was not written is due again");
    let told = |batch: &[std::sync::Arc<grandstand_core::record::Record>]| {
        batch.iter().find_map(|r| match &r.body {
            Body::Config(config) => config.pinned.clone(),
            _ => None,
        })
    };
    assert_eq!(told(&batch).as_deref(), Some(&[][..]));
    door.owner.on_deadline(door.now, door.wall);
    door.commit();
    assert!(door.owner.room(&room()).unwrap().pinned.is_empty());
    assert!(door.owner.next_deadline().is_none_or(|at| at > door.now));
}

#[test]
fn a_settling_room_closes_by_itself_on_log_time_and_viewers_are_told() {
    let mut door = Door::plain();
    door.put(RoomChange { state: Some(RoomState::Settling), settle_seconds: Some(600), ..RoomChange::default() });
    id(&door.say("u", "k1"));
    // An owner that was not there when it began knows the end from the room's checkpoint.
    let (log, rooms) = door.owner.take_checkpoint();
    let mut owner = Owner::new(Settings::default(), door.now, door.wall);
    owner.restore_log(log);
    rooms.into_iter().for_each(|room| owner.restore_room(room));
    owner.start(Epoch::new(2).unwrap());
    door.owner = owner;
    door.commit();
    door.answers();
    door.pass(Duration::from_secs(599));
    door.owner.on_deadline(door.now, door.wall);
    id(&door.say("u", "k2"));
    door.pass(Duration::from_secs(1));
    assert!(door.owner.next_deadline().is_some_and(|at| at <= door.now));
    door.owner.on_deadline(door.now, door.wall);
    let batch = door.owner.seal(door.now, door.wall).unwrap();
    door.owner.on_failed(Failure::Overloaded, door.now, door.wall);
    assert!(door.owner.next_deadline().is_some_and(|at| at <= door.now), "an end that was not written is due again");
    let told = |body: &Body| matches!(body, Body::Config(config) if config.state == Some(RoomState::Closed));
    assert!(batch.iter().any(|record| told(&record.body)));
    door.owner.on_deadline(door.now, door.wall);
    door.commit();
    let settings = door.owner.room(&room()).unwrap().settings.clone();
    assert_eq!((settings.state, settings.settles_until, settings.version), (RoomState::Closed, None, 3));
    assert_eq!(refused(&door.say("u", "k3")).0, Code::RoomState);
    assert!(door.owner.next_deadline().is_none_or(|at| at > door.now));
}

#[test]
fn a_room_that_goes_on_in_the_batch_of_its_end_stays_open() {
    for change in [
        RoomChange { state: Some(RoomState::Live), ..RoomChange::default() },
        RoomChange { settle_seconds: Some(0), ..RoomChange::default() },
    ] {
        let mut door = Door::plain();
        door.put(RoomChange { state: Some(RoomState::Settling), settle_seconds: Some(1), ..RoomChange::default() });
        door.pass(Duration::from_secs(1));
        door.submit(Command::PutRoom { room: room(), change: change.clone().into(), if_version: None });
        door.owner.on_deadline(door.now, door.wall);
        door.commit();
        door.pass(Duration::from_secs(3_600));
        door.owner.on_deadline(door.now, door.wall);
        door.commit();
        assert_ne!(door.owner.room(&room()).unwrap().settings.state, RoomState::Closed, "{change:?}");
    }
}

#[test]
fn reports_are_in_the_log_once_and_leave_operators_their_place() {
    let mut door = Door::new(Settings { pending_priority_max: 4, ..Settings::default() }, RoomChange::default());
    let event = id(&door.say("u", "k"));
    let report = |who: &str, event| {
        let report = Report { event, reason: "spam".into() };
        Command::Report(ReportIn { room: room(), user: user(who), report })
    };
    for who in ["v", "v"] {
        door.submit(report(who, event));
    }
    let third = door.submit(report("w", event));
    let early = door.answers();
    assert_eq!((early[0].0, refused(&early[0].1).0), (third, Code::Overloaded), "half of the place is the operators'");
    let batch = door.owner.seal(door.now, door.wall).unwrap();
    assert_eq!(batch.len(), 1, "the same twice in one batch is one: {batch:?}");
    door.owner.on_committed(door.now, door.wall);
    door.answers();
    assert_eq!(door.ask(report("v", event)), Answer::Done { event_id: None });
    assert_eq!(door.owner.room(&room()).unwrap().reports.events[&event].users.len(), 1);
    door.ask(ban("v", None));
    assert_eq!(refused(&door.ask(report("v", event))).0, Code::Banned);
    let waits = (0..40).map(|_| door.ask(report("x", event))).find_map(|answer| match answer {
        Answer::Reject(reject) => Some((reject.code, reject.retry_after.is_some())),
        _ => None,
    });
    assert_eq!(waits, Some((Code::UserRate, true)));
}

#[test]
fn a_full_queue_refuses_comments_and_still_takes_operators() {
    let mut door =
        Door::new(Settings { pending_max: 2, pending_priority_max: 1, ..Settings::default() }, RoomChange::default());
    for n in 0..3 {
        door.submit(comment("u", &format!("k{n}"), "hi", Standing::Viewer));
    }
    for _ in 0..2 {
        door.submit(Command::Unban { room: room(), user: user("x") });
    }
    let early = door.answers();
    let codes: Vec<_> = early.iter().map(|(tag, answer)| (*tag, refused(answer).0)).collect();
    assert_eq!(codes, [(4, Code::Overloaded), (6, Code::Overloaded)]);
    assert!(early.iter().all(|(_, answer)| refused(answer).1.is_some()));
    door.commit();
    assert_eq!(door.answers().len(), 3);
    assert_eq!(door.owner.n_pending(), 0);
}

#[test]
fn a_strict_room_publishes_nothing_without_an_allow_of_the_policy_in_force() {
    let strict = || RoomChange { moderation_policy: Some(Policy::PreModerateStrict), ..RoomChange::default() };
    for verdict in [Some(Verdict::Allow), Some(Verdict::Flag), Some(Verdict::Block), None] {
        let mut door = Door::new(Settings::default(), strict());
        door.submit(comment("u", "k", "hi", Standing::Viewer));
        let question = door.asked();
        door.owner.on_verdict(question, verdict.map(Ruling::plain), door.now, door.wall);
        door.commit();
        let answers = door.answers();
        match verdict {
            Some(Verdict::Allow) => drop(id(&answers[0].1)),
            Some(_) => assert_eq!(refused(&answers[0].1).0, Code::ModerationFailed),
            None => assert!(matches!(answers[0].1, Answer::Pending { .. }), "{answers:?}"),
        }
        let shown = u64::from(verdict == Some(Verdict::Allow));
        assert_eq!(door.owner.room(&room()).unwrap().accepted, shown);
    }
    // Under way when the room is made strict: no verdict under this policy, not published, key free.
    let mut door = Door::plain();
    door.submit(Command::PutRoom { room: room(), change: strict().into(), if_version: None });
    door.submit(comment("u", "k", "hi", Standing::Viewer));
    door.commit();
    assert!(matches!(door.answers()[1].1, Answer::Pending { .. }));
    assert_eq!(door.owner.room(&room()).unwrap().accepted, 0);
}

#[test]
fn a_late_verdict_is_decided_by_the_policy_and_a_block_is_told() {
    let moderated = RoomChange { moderation_policy: Some(Policy::PreModerate), ..RoomChange::default() };
    let mut door = Door::new(Settings::default(), moderated);
    let blocked = door.submit(comment("u", "k1", "hi", Standing::Viewer));
    let question = door.asked();
    let late = door.submit(comment("u", "k2", "hi", Standing::Viewer));
    door.owner.on_verdict(question, Some(Ruling::plain(Verdict::Block)), door.now, door.wall);
    assert_eq!(door.owner.next_deadline(), Some(door.now + Duration::from_millis(80)));
    door.pass(Duration::from_millis(80));
    door.owner.on_deadline(door.now, door.wall);
    door.commit();
    let answers: std::collections::BTreeMap<Tag, Answer> = door.answers().into_iter().collect();
    assert_eq!(refused(&answers[&blocked]).0, Code::ModerationFailed);
    id(&answers[&late]);
}

#[test]
fn a_retract_hides_the_comment_once_and_an_unknown_id_is_silent() {
    let mut door = Door::plain();
    let shown = id(&door.say("u", "k1"));
    id(&door.say("v", "k1"));
    let retract = |target| Command::Retract { room: room(), target, reason: "".into() };
    let first = door.ask(retract(RetractTarget::Event(shown)));
    assert_eq!(door.ask(retract(RetractTarget::Event(shown))), first);
    assert_eq!(door.owner.room(&room()).unwrap().recent.len(), 1);
    let beyond = EventId::at(shown.epoch(), Seq::new(shown.seq().value() + 1_000).unwrap());
    assert_eq!(door.ask(retract(RetractTarget::Event(beyond))), Answer::Done { event_id: None });
    id(&door.ask(retract(RetractTarget::All)));
    assert!(door.owner.room(&room()).unwrap().recent.is_empty());
    id(&door.say("u", "k2"));
    assert_eq!(door.owner.room(&room()).unwrap().recent.len(), 1);
}

#[test]
fn a_gift_is_logged_once_by_its_id() {
    let mut door = Door::plain();
    let gift = |count| {
        let gift_id = Key::parse("pay-1").unwrap();
        let (display, item, currency) = ("u".into(), "rose".into(), "EUR".into());
        let gift = Gift { gift_id, display, item, count, amount_micros: 5, currency, banner_until: None };
        Command::Gift(GiftIn { room: room(), user: user("u"), gift })
    };
    let (one, two) = (door.submit(gift(1)), door.submit(gift(1)));
    door.commit();
    let answers: std::collections::BTreeMap<Tag, Answer> = door.answers().into_iter().collect();
    let Answer::Gift { event_id, duplicate: false, banner: BannerFate::Unsaid } = answers[&one] else {
        panic!("{:?}", answers[&one])
    };
    let again = Answer::Gift { event_id, duplicate: true, banner: BannerFate::Unsaid };
    assert_eq!(answers[&two], again);
    assert_eq!(door.ask(gift(1)), again);
    assert_eq!(refused(&door.ask(gift(2))).0, Code::IdempotencyConflict);
    assert_eq!(door.owner.room(&room()).unwrap().pseq.0, 1);
}

fn gift(id: &str, item: &str) -> Command {
    let (gift_id, item) = (Key::parse(id).unwrap(), item.into());
    let (display, currency) = ("u".into(), "EUR".into());
    let gift = Gift { gift_id, display, item, count: 1, amount_micros: 5, currency, banner_until: None };
    Command::Gift(GiftIn { room: room(), user: user("u"), gift })
}

/// Wakes the owner when it asks for it until it writes something; how long that took.
fn written_after(door: &mut Door, within: Duration) -> Duration {
    let start = door.now;
    for _ in 0..64 {
        let wait = door.owner.next_deadline().expect("something is due").since(door.now);
        door.pass(wait);
        door.owner.on_deadline(door.now, door.wall);
        let took = door.now.since(start);
        assert!(took <= within, "{took:?}");
        if door.owner.seal(door.now, door.wall).is_some() {
            door.owner.on_committed(door.now, door.wall);
            return took;
        }
    }
    panic!("woken again and again for nothing");
}

#[test]
fn a_clock_set_back_an_hour_doubles_what_is_to_last_seconds_and_no_more() {
    let worth = RoomChange { banner_items: Some(vec!["rocket".into()]), banner_rate: Some(1), ..RoomChange::default() };
    let mut door = Door::new(Settings::default(), worth);
    door.pass(Duration::from_secs(7_200));
    let Answer::Gift { banner: BannerFate::Shown(_), .. } = door.ask(gift("g1", "rocket")) else { panic!("a banner") };
    let before = door.log_time();
    door.wall = Wall(door.wall.0 - 3_600_000);
    door.pass(Duration::from_millis(200));
    assert!(matches!(door.ask(gift("g2", "rocket")), Answer::Gift { banner: BannerFate::Capped(_), .. }));
    // The sum a second after the first, the last word three after the newest.
    assert!(written_after(&mut door, Duration::from_secs(2)) > Duration::from_secs(1));
    assert!(written_after(&mut door, Duration::from_secs(6)) > Duration::from_secs(3));
    assert!(door.owner.room(&room()).unwrap().combos.open().is_empty());
    assert!(door.log_time() > before, "log time never goes back");
    door.pass(Duration::from_secs(120));
    let Answer::Gift { banner, .. } = door.ask(gift("g3", "rocket")) else { panic!("a gift") };
    assert!(matches!(banner, BannerFate::Shown(_)), "the minute is over: {banner:?}");
    door.pass(Duration::from_secs(7_200));
    id(&door.say("u", "k1"));
    assert_eq!(door.log_time(), door.wall, "the two have met");
}

#[test]
fn a_closed_room_takes_no_comment_and_a_stale_change_is_refused() {
    let mut door = Door::plain();
    let close = RoomChange { state: Some(RoomState::Closed), ..RoomChange::default() };
    let at = |version| Command::PutRoom { room: room(), change: close.clone().into(), if_version: Some(version) };
    let kept = id(&door.say("u", "k1"));
    assert_eq!(refused(&door.ask(at(7))).0, Code::Stale);
    assert!(matches!(door.ask(at(1)), Answer::Room { version: 2, .. }));
    assert!(matches!(door.ask(at(2)), Answer::Room { version: 2, .. }), "nothing to change is no new version");
    assert_eq!(refused(&door.say("u", "k2")).0, Code::RoomState);
    assert_eq!(id(&door.say("u", "k1")), kept, "a retry is answered in a closed room");
}

#[test]
fn a_room_that_is_not_there_is_told_so() {
    let mut owner = Owner::new(Settings::default(), Mono(0), Wall(0));
    owner.start(Epoch::new(1).unwrap());
    owner.submit(1, comment("u", "k", "hi", Standing::Viewer), Mono(0), Wall(0));
    let Some(Output::Answer { answer, .. }) = owner.poll() else { panic!("an answer") };
    assert_eq!(refused(&answer).0, Code::NoRoom);
}

#[test]
fn an_epoch_that_is_full_is_followed_by_the_next_one() {
    let mut door = Door::new(Settings { seq_max: 3, ..Settings::default() }, RoomChange::default());
    let ids: Vec<EventId> = (0..6).map(|n| id(&door.say("u", &format!("k{n}")))).collect();
    assert!(ids.is_sorted_by(|a, b| a < b));
    let epochs: Vec<(u32, u64)> = door.owner.epochs().iter().map(|s| (s.epoch.value(), s.last_seq.value())).collect();
    assert_eq!(epochs, [(1, 3), (2, 3), (3, 1)]);
}

#[test]
fn a_user_who_has_been_quiet_is_forgotten_and_nobody_else() {
    let mut door = Door::plain();
    id(&door.say("u", "k1"));
    door.pass(Duration::from_secs(599));
    id(&door.say("v", "k1"));
    door.pass(Duration::from_secs(1));
    let again = door.say("u", "k1");
    assert!(matches!(again, Answer::Published { duplicate: false, .. }), "ten minutes are over");
    assert!(matches!(door.say("v", "k1"), Answer::Published { duplicate: true, .. }));
}
