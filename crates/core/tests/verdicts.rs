//! What a verdict does to a comment, before it is shown and after, one rule a test.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use grandstand_core::ids::{Epoch, EventId};
use grandstand_core::moderation::{HELD_MAX, NO_VERDICT, Ruling};
use grandstand_core::names::{ClientMsgId, RoomId, UserId};
use grandstand_core::owner::answer::{Answer, Failure, Output};
use grandstand_core::owner::checkpoint::RoomCheckpoint;
use grandstand_core::owner::command::{Author, Command, Publish, Standing, Tag};
use grandstand_core::owner::{Owner, Settings};
use grandstand_core::reader::Reading;
use grandstand_core::record::{Ban, Blocked, Body, Comment, End, HeldEnd, Policy, Record, RetractTarget, Verdict};
use grandstand_core::regions::Region;
use grandstand_core::reject::Code;
use grandstand_core::rooms::RoomChange;
use grandstand_core::time::{Mono, Wall};

const BUDGET: Duration = Duration::from_millis(80);
const WALL: u64 = 1_781_000_000_000;

fn room() -> RoomId {
    RoomId::parse("r").unwrap()
}

struct Stand {
    owner: Owner,
    now: Mono,
    epoch: u32,
    tags: Tag,
    log: Vec<Arc<Record>>,
    /// Questions that were asked, oldest first.
    asked: Vec<(Tag, Arc<str>, bool)>,
    decided: Vec<(EventId, End)>,
    saved: BTreeMap<RoomId, RoomCheckpoint>,
}

impl Stand {
    fn new(change: RoomChange) -> Stand {
        let now = Mono(1_000_000);
        let mut owner = Owner::new(Settings::default(), now, Wall(WALL));
        owner.start(Epoch::new(1).unwrap());
        let mut stand = Stand {
            owner,
            now,
            epoch: 1,
            tags: 0,
            log: Vec::new(),
            asked: Vec::new(),
            decided: Vec::new(),
            saved: BTreeMap::new(),
        };
        stand.ask(Command::PutRoom { room: room(), change: Box::new(change), if_version: None });
        stand
    }

    fn with(policy: Policy) -> Stand {
        Stand::new(RoomChange { moderation_policy: Some(policy), ..RoomChange::default() })
    }

    fn holding(policy: Policy) -> Stand {
        Stand::new(RoomChange { moderation_policy: Some(policy), hold_flagged: Some(true), ..RoomChange::default() })
    }

    fn wall(&self) -> Wall {
        Wall(WALL) + self.now.since(Mono(1_000_000))
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.owner.on_deadline(self.now, self.wall());
    }

    fn submit(&mut self, command: Command) -> Tag {
        self.tags += 1;
        self.owner.submit(self.tags, command, self.now, self.wall());
        self.tags
    }

    fn say(&mut self, user: &str, key: &str, text: &str) -> Tag {
        let author = Author {
            user: UserId::parse(user).unwrap(),
            display: user.into(),
            badges: [].into(),
            standing: Standing::Viewer,
        };
        let client_msg_id = ClientMsgId::parse(key).unwrap();
        let publish = Publish { room: room(), author, client_msg_id, text: text.into(), reply_to: None };
        self.submit(Command::Publish(publish))
    }

    fn drain(&mut self) -> Vec<(Tag, Answer)> {
        let mut answers = Vec::new();
        while let Some(output) = self.owner.poll() {
            match output {
                Output::Answer { tag, answer } => answers.push((tag, answer)),
                Output::NeedVerdict { tag, text, strict, .. } => self.asked.push((tag, text, strict)),
                Output::Decided { held_id, end, .. } => self.decided.push((held_id, end)),
                Output::Committed(record) => self.log.push(record),
                Output::LikesSettled { .. } | Output::Fate { .. } => {}
            }
        }
        answers
    }

    fn commit(&mut self) -> Vec<(Tag, Answer)> {
        let mut answers = self.drain();
        if self.owner.seal(self.now, self.wall()).is_some() {
            self.owner.on_committed(self.now, self.wall());
        }
        answers.extend(self.drain());
        answers
    }

    fn ask(&mut self, command: Command) -> Answer {
        let tag = self.submit(command);
        self.commit().into_iter().find(|(t, _)| *t == tag).expect("an answer").1
    }

    fn answer_to(&mut self, tag: Tag) -> Answer {
        self.commit().into_iter().find(|(t, _)| *t == tag).expect("an answer").1
    }

    /// The classifier's word on the oldest question.
    fn judge(&mut self, verdict: Verdict) {
        self.drain();
        let (tag, ..) = self.asked.remove(0);
        self.owner.on_verdict(tag, Some(Ruling::of(verdict, "a rule")), self.now, self.wall());
    }

    /// Somebody says what is held; the id it waits under.
    fn hold(&mut self, user: &str, key: &str) -> EventId {
        let tag = self.say(user, key, "odd");
        self.judge(Verdict::Flag);
        held(&self.answer_to(tag))
    }

    fn kill(&mut self) {
        let mut owner = Owner::new(Settings::default(), self.now, self.wall());
        self.log.iter().for_each(|record| assert_eq!(owner.replay(record), Reading::Valid));
        self.epoch += 1;
        owner.start(Epoch::new(self.epoch).unwrap());
        self.owner = owner;
        self.asked.clear();
        self.commit();
    }

    fn kill_at_a_checkpoint(&mut self) {
        let (log, rooms) = self.owner.take_checkpoint();
        self.saved.extend(rooms.into_iter().map(|room| (room.view.room.clone(), room)));
        let mut owner = Owner::new(Settings::default(), self.now, self.wall());
        owner.restore_log(log);
        self.saved.values().for_each(|room| owner.restore_room(room.clone()));
        self.log.iter().for_each(|record| owner.replay_keys(record));
        self.epoch += 1;
        owner.start(Epoch::new(self.epoch).unwrap());
        self.owner = owner;
        self.asked.clear();
        self.commit();
    }

    fn bodies(&self) -> Vec<&Body> {
        self.log.iter().map(|record| &record.body).collect()
    }

    fn n(&self, is: impl Fn(&Body) -> bool) -> usize {
        self.bodies().into_iter().filter(|body| is(body)).count()
    }

    fn retracted(&self) -> Vec<RetractTarget> {
        let target = |body: &&Body| if let Body::Retract(r) = body { Some(r.target.clone()) } else { None };
        self.bodies().iter().filter_map(target).collect()
    }

    fn decide(&mut self, held: EventId, approve: bool) -> Answer {
        self.ask(Command::Decide { room: room(), held, approve })
    }
}

fn published(answer: &Answer) -> EventId {
    match answer {
        Answer::Published { event_id, .. } => *event_id,
        other => panic!("not published: {other:?}"),
    }
}

fn held(answer: &Answer) -> EventId {
    match answer {
        Answer::Held { held_id } => *held_id,
        other => panic!("not held: {other:?}"),
    }
}

fn code(answer: &Answer) -> Option<Code> {
    if let Answer::Reject(reject) = answer { Some(reject.code) } else { None }
}

#[test]
fn without_a_word_in_time_it_is_shown_flagged_and_a_later_block_takes_it_back_once() {
    let mut stand = Stand::with(Policy::PreModerate);
    let tag = stand.say("u", "k", "hi");
    stand.pass(BUDGET);
    let id = published(&stand.answer_to(tag));
    let record = stand.log.iter().find(|r| r.event_id() == id).unwrap();
    let Body::Comment(Comment { rule, .. }) = &record.body else { panic!("a comment") };
    assert_eq!((record.verdict, rule.as_deref()), (Verdict::Flag, Some(NO_VERDICT)));
    stand.judge(Verdict::Block);
    stand.commit();
    assert_eq!(stand.retracted(), [RetractTarget::Event(id)]);
    assert!(stand.owner.room(&room()).unwrap().recent.is_empty());
    let audit = |body: &Body| matches!(body, Body::Audit(a) if &*a.justification == "a rule");
    assert_eq!(stand.n(audit), 1);
    assert_eq!(stand.owner.seal(stand.now, stand.wall()), None, "once");
}

#[test]
fn a_later_allow_leaves_it_and_a_word_about_another_comment_never_reaches_it() {
    let mut stand = Stand::with(Policy::PreModerate);
    let first = stand.say("u", "k1", "hi");
    stand.pass(BUDGET);
    published(&stand.answer_to(first));
    // The caller's tags are used again; questions are not.
    stand.tags -= 1;
    let second = stand.say("u", "k2", "ho");
    assert_eq!(first, second);
    stand.drain();
    assert_ne!(stand.asked[0].0, stand.asked[1].0);
    stand.judge(Verdict::Allow);
    stand.judge(Verdict::Block);
    assert_eq!(code(&stand.answer_to(second)), Some(Code::ModerationFailed));
    assert!(stand.retracted().is_empty());
}

#[test]
fn a_block_between_the_deadline_and_the_commit_is_not_lost() {
    let mut stand = Stand::with(Policy::PreModerate);
    let tag = stand.say("u", "k", "hi");
    stand.drain();
    stand.pass(BUDGET);
    let batch = stand.owner.seal(stand.now, stand.wall());
    assert!(batch.is_some());
    stand.judge(Verdict::Block);
    stand.owner.on_committed(stand.now, stand.wall());
    let id = published(&stand.drain().into_iter().find(|(t, _)| *t == tag).unwrap().1);
    stand.commit();
    assert_eq!(stand.retracted(), [RetractTarget::Event(id)]);
}

#[test]
fn a_take_back_outlives_a_batch_that_fails() {
    let mut stand = Stand::with(Policy::PostModerateFast);
    let tag = stand.say("u", "k", "hi");
    let id = published(&stand.answer_to(tag));
    stand.judge(Verdict::Block);
    assert!(stand.owner.seal(stand.now, stand.wall()).is_some());
    stand.owner.on_failed(Failure::Overloaded, stand.now, stand.wall());
    assert!(stand.retracted().is_empty());
    stand.commit();
    assert_eq!(stand.retracted(), [RetractTarget::Event(id)]);
}

#[test]
fn what_a_moderator_took_back_meanwhile_is_not_taken_back_again() {
    let mut stand = Stand::with(Policy::PostModerateFast);
    let tag = stand.say("u", "k", "hi");
    let id = published(&stand.answer_to(tag));
    stand.ask(Command::Retract { room: room(), target: RetractTarget::Event(id), reason: "".into() });
    stand.judge(Verdict::Block);
    stand.commit();
    assert_eq!(stand.retracted().len(), 1);
    assert_eq!(stand.owner.seal(stand.now, stand.wall()), None);
}

#[test]
fn after_a_crash_what_was_shown_before_its_verdict_is_asked_about_again() {
    for policy in [Policy::PostModerateFast, Policy::PreModerate] {
        let mut stand = Stand::with(policy);
        let tag = stand.say("u", "k", "hi");
        stand.drain();
        stand.pass(BUDGET);
        let id = published(&stand.answer_to(tag));
        stand.kill();
        assert_eq!(stand.owner.next_deadline(), Some(stand.now), "{policy:?}");
        stand.pass(Duration::ZERO);
        stand.judge(Verdict::Block);
        stand.commit();
        assert_eq!(stand.retracted(), [RetractTarget::Event(id)], "{policy:?}");
    }
}

#[test]
fn a_refused_comment_is_one_record_and_its_author_has_paid_for_it() {
    for (policy, verdict) in [
        (Policy::PreModerate, Verdict::Block),
        (Policy::PreModerateStrict, Verdict::Block),
        (Policy::PreModerateStrict, Verdict::Flag),
    ] {
        let change = RoomChange {
            moderation_policy: Some(policy),
            user_rate: Some(1),
            user_burst: Some(1),
            ..RoomChange::default()
        };
        let mut stand = Stand::new(change);
        let tag = stand.say("u", "k", "bad");
        stand.drain();
        stand.judge(verdict);
        let before = stand.log.len();
        assert!(stand.drain().is_empty(), "its author is told when it is durable");
        assert_eq!(code(&stand.answer_to(tag)), Some(Code::ModerationFailed));
        let Body::Blocked(Blocked { comment, client_msg_id }) = &stand.log[before].body else { panic!("{policy:?}") };
        assert_eq!((&*comment.text, comment.rule.as_deref()), ("bad", Some("a rule")));
        assert_eq!((client_msg_id.as_ref().map(ClientMsgId::as_str), stand.log[before].verdict), (Some("k"), verdict));
        assert!(stand.log[before].is_said() && stand.log[before].lane().is_none() && !stand.log[before].is_raw());
        for kill in [Stand::kill, Stand::kill_at_a_checkpoint] {
            let again = stand.say("u", "k", "bad");
            assert_eq!(code(&stand.answer_to(again)), Some(Code::ModerationFailed));
            let other = stand.say("u", "k", "other");
            assert_eq!(code(&stand.answer_to(other)), Some(Code::IdempotencyConflict));
            kill(&mut stand);
        }
        assert_eq!(stand.n(|body| matches!(body, Body::Blocked(_))), 1);
    }
    let change = RoomChange {
        moderation_policy: Some(Policy::PreModerate),
        user_rate: Some(1),
        user_burst: Some(1),
        ..RoomChange::default()
    };
    let mut stand = Stand::new(change);
    let tag = stand.say("u", "k1", "bad");
    stand.judge(Verdict::Block);
    stand.answer_to(tag);
    let next = stand.say("u", "k2", "bad");
    assert_eq!(code(&stand.answer_to(next)), Some(Code::UserRate), "lists are not probed for free");
}

#[test]
fn a_held_comment_is_shown_under_a_new_id_or_refused_and_its_author_is_told() {
    for policy in [Policy::PreModerate, Policy::PreModerateStrict] {
        let mut stand = Stand::holding(policy);
        let mut ids = Vec::new();
        for key in ["k1", "k2", "k3"] {
            ids.push(stand.hold("u", key));
            let again = stand.say("u", key, "odd");
            assert_eq!(held(&stand.answer_to(again)), ids[ids.len() - 1]);
        }
        assert!(stand.owner.room(&room()).unwrap().recent.is_empty());
        stand.kill();
        stand.kill_at_a_checkpoint();
        let Answer::Done { event_id: Some(shown) } = stand.decide(ids[0], true) else { panic!("it waits") };
        assert!(matches!(stand.decide(ids[1], false), Answer::Done { event_id: Some(_) }));
        assert_eq!(stand.decided, [(ids[0], End::Approved(shown)), (ids[1], End::Denied)]);
        assert_eq!(stand.decide(ids[0], false), Answer::Done { event_id: None }, "it is decided");
        let record = stand.log.iter().find(|r| r.event_id() == shown).unwrap();
        assert_eq!((record.verdict, record.held_id(), record.lane().is_some()), (Verdict::Allow, Some(ids[0]), true));
        stand.pass(Duration::from_secs(3_600));
        stand.commit();
        assert_eq!(stand.decided[2], (ids[2], End::Expired));
        assert_eq!(stand.n(|body| matches!(body, Body::HeldEnd(HeldEnd { .. }))), 3);
    }
}

#[test]
fn a_key_finds_what_became_of_a_held_comment_across_a_crash() {
    for kill in [Stand::kill, Stand::kill_at_a_checkpoint] {
        let mut stand = Stand::holding(Policy::PreModerate);
        let ids = ["k1", "k2"].map(|key| stand.hold("u", key));
        let Answer::Done { event_id: Some(shown) } = stand.decide(ids[0], true) else { panic!("it waits") };
        stand.decide(ids[1], false);
        for _ in 0..2 {
            let tag = stand.say("u", "k1", "odd");
            assert_eq!(published(&stand.answer_to(tag)), shown);
            let tag = stand.say("u", "k2", "odd");
            assert_eq!(code(&stand.answer_to(tag)), Some(Code::ModerationFailed));
            kill(&mut stand);
        }
    }
}

#[test]
fn a_held_comment_of_somebody_who_was_banned_or_taken_back_is_not_shown() {
    let mut stand = Stand::holding(Policy::PreModerate);
    let id = stand.hold("u", "k");
    let user = UserId::parse("u").unwrap();
    let ban = Ban { user: user.clone(), until: None, reason: "".into(), shadow: false };
    stand.ask(Command::Ban { room: room(), ban, purge: None });
    assert_eq!(code(&stand.decide(id, true)), Some(Code::Banned));
    stand.ask(Command::Unban { room: room(), user: user.clone() });
    stand.ask(Command::Retract { room: room(), target: RetractTarget::User(user), reason: "".into() });
    assert_eq!(code(&stand.decide(id, true)), Some(Code::NotAllowed));
    assert_eq!(stand.n(|body| matches!(body, Body::Comment(_))), 0);
}

#[test]
fn what_is_taken_back_in_the_batch_of_its_approval_is_not_shown() {
    for n in 0..4 {
        let mut stand = Stand::holding(Policy::PreModerate);
        let id = stand.hold("u", "k");
        let user = UserId::parse("u").unwrap();
        let target = match n {
            0 => RetractTarget::Event(id),
            1 => RetractTarget::User(user),
            2 => RetractTarget::Since(user, Wall(WALL)),
            _ => RetractTarget::All,
        };
        stand.submit(Command::Retract { room: room(), target: target.clone(), reason: "".into() });
        let tag = stand.submit(Command::Decide { room: room(), held: id, approve: true });
        assert_eq!(code(&stand.answer_to(tag)), Some(Code::NotAllowed), "{target:?}");
        assert_eq!(stand.n(|body| matches!(body, Body::Comment(_))), 0, "{target:?}");
    }
}

#[test]
fn the_id_that_a_comment_was_held_under_takes_back_what_is_shown_of_it() {
    for kill in [Stand::kill, Stand::kill_at_a_checkpoint] {
        let mut stand = Stand::holding(Policy::PreModerate);
        let ids = ["k1", "k2"].map(|key| stand.hold("u", key));
        let retract = |id| Command::Retract { room: room(), target: RetractTarget::Event(id), reason: "".into() };
        let Answer::Done { event_id: Some(first) } = stand.decide(ids[0], true) else { panic!("it waits") };
        kill(&mut stand);
        let Answer::Done { event_id: Some(by) } = stand.ask(retract(ids[0])) else { panic!("it is shown") };
        assert_eq!(stand.retracted(), [RetractTarget::Event(first)], "viewers know it by the id it is shown under");
        assert!(stand.owner.room(&room()).unwrap().recent.is_empty());
        assert_eq!(stand.ask(retract(first)), Answer::Done { event_id: Some(by) }, "it is the same");
        // In the batch that shows it.
        stand.submit(Command::Decide { room: room(), held: ids[1], approve: true });
        stand.submit(retract(ids[1]));
        stand.commit();
        let shown = stand.owner.room(&room()).unwrap().approved[&ids[1]];
        assert_eq!(stand.retracted(), [RetractTarget::Event(first), RetractTarget::Event(shown)]);
        assert!(stand.owner.room(&room()).unwrap().recent.is_empty());
    }
}

#[test]
fn what_is_shown_of_a_held_comment_ends_its_wait_though_the_end_was_torn_off() {
    let mut stand = Stand::holding(Policy::PreModerate);
    let ids = ["k1", "k2", "k3", "k4"].map(|key| stand.hold("u", key));
    let mut shown = Vec::new();
    for id in ids {
        // Of the batch the comment was written, and its end was not.
        stand.decide(id, true);
        assert!(matches!(stand.log.pop().expect("the end of its wait").body, Body::HeldEnd(_)));
        shown.push(stand.log.last().expect("what is shown").event_id());
        stand.kill();
    }
    assert_eq!(stand.owner.held(&room(), stand.now, stand.wall()), Some(Vec::new()), "nothing is left to decide");
    assert_eq!(stand.decide(ids[0], true), Answer::Done { event_id: Some(shown[0]) }, "it is shown once");
    assert!(matches!(stand.decide(ids[1], false), Answer::Done { event_id: Some(_) }), "it is shown already");
    let retract = Command::Retract { room: room(), target: RetractTarget::Event(ids[2]), reason: "".into() };
    stand.ask(retract);
    assert_eq!(stand.retracted(), [RetractTarget::Event(shown[2])], "viewers know it by the id it is shown under");
    stand.pass(Duration::from_secs(3_600));
    stand.commit();
    let ends = stand.bodies().into_iter().filter_map(|body| match body {
        Body::HeldEnd(end) => Some((end.held, end.end)),
        _ => None,
    });
    let ends: BTreeMap<EventId, End> = ends.collect();
    let approved = ids.into_iter().zip(shown).map(|(id, shown)| (id, End::Approved(shown)));
    assert_eq!(ends, approved.collect(), "one row for each");
    assert_eq!(stand.n(|body| matches!(body, Body::HeldEnd(_))), 4);
    assert_eq!(stand.n(|body| matches!(body, Body::Comment(_))), 4);
}

#[test]
fn a_full_queue_sends_authors_away_and_their_keys_stay_free() {
    let mut stand = Stand::holding(Policy::PreModerate);
    for n in 0..HELD_MAX {
        stand.hold(&format!("u{n}"), "k");
    }
    let tag = stand.say("late", "k", "odd");
    stand.judge(Verdict::Flag);
    assert_eq!(stand.answer_to(tag), Answer::Pending { retry_after: Duration::from_secs(5) });
    let oldest = *stand.owner.room(&room()).unwrap().held.keys().next().unwrap();
    stand.decide(oldest, false);
    stand.hold("late", "k");
}

#[test]
fn what_was_under_way_when_the_policy_came_is_judged_by_it() {
    for policy in [Policy::PreModerate, Policy::PreModerateStrict] {
        let mut stand = Stand::with(Policy::Off);
        let change = RoomChange { moderation_policy: Some(policy), ..RoomChange::default() };
        stand.submit(Command::PutRoom { room: room(), change: Box::new(change), if_version: None });
        let tag = stand.say("u", "k", "hi");
        assert!(matches!(stand.answer_to(tag), Answer::Pending { .. }), "{policy:?}");
        let again = stand.say("u", "k", "hi");
        stand.judge(Verdict::Allow);
        published(&stand.answer_to(again));
        assert_eq!(stand.asked.len(), 0);
    }
}

#[test]
fn an_allow_of_an_older_policy_opens_no_strict_room() {
    let mut stand = Stand::with(Policy::PreModerateStrict);
    let tag = stand.say("u", "k", "hi");
    for policy in [Policy::PreModerate, Policy::PreModerateStrict] {
        let change = RoomChange { moderation_policy: Some(policy), ..RoomChange::default() };
        stand.ask(Command::PutRoom { room: room(), change: Box::new(change), if_version: None });
    }
    stand.judge(Verdict::Allow);
    assert!(matches!(stand.answer_to(tag), Answer::Pending { .. }));
    assert_eq!(stand.n(|body| matches!(body, Body::Comment(_))), 0);
}

#[test]
fn an_allow_from_before_a_ban_of_the_site_or_a_blackout_opens_no_strict_room() {
    let site_ban = || {
        let ban = Ban { user: UserId::parse("v").unwrap(), until: None, reason: "".into(), shadow: false };
        Command::SiteBan { by: UserId::parse("op").unwrap(), ban, purge: None }
    };
    let blackout = || {
        let change = RoomChange { blackout_regions: Some(vec![Region::parse("GB").unwrap()]), ..RoomChange::default() };
        Command::PutRoom { room: room(), change: Box::new(change), if_version: None }
    };
    for (rule, in_one_batch) in [(site_ban(), false), (site_ban(), true), (blackout(), false), (blackout(), true)] {
        let mut stand = Stand::with(Policy::PreModerateStrict);
        let before = stand.owner.policy_version(&room());
        let tag = stand.say("u", "k", "hi");
        stand.submit(rule.clone());
        if !in_one_batch {
            stand.commit();
        }
        stand.judge(Verdict::Allow);
        assert!(matches!(stand.answer_to(tag), Answer::Pending { .. }), "{rule:?}");
        assert_eq!(stand.owner.policy_version(&room()), before + 1, "{rule:?}");
        for kill in [Stand::kill, Stand::kill_at_a_checkpoint] {
            kill(&mut stand);
            assert_eq!(stand.owner.policy_version(&room()), before + 1, "{rule:?}");
        }
        let tag = stand.say("u", "k", "hi");
        stand.judge(Verdict::Allow);
        let id = published(&stand.answer_to(tag));
        let record = stand.log.iter().find(|record| record.event_id() == id).unwrap();
        assert_eq!(record.policy_version, before + 1, "{rule:?}");
    }
}
