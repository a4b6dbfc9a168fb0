//! A wide room's two roads, step by step: what is said, what wins, what is told, and the switch between the roads.

use std::sync::Arc;
use std::time::Duration;

use grandstand_core::ids::{Epoch, EventId};
use grandstand_core::moderation::Ruling;
use grandstand_core::names::{ClientMsgId, RoomId, UserId};
use grandstand_core::owner::answer::{Answer, Failure, Fate, Known, Output};
use grandstand_core::owner::command::{Author, Command, Publish, React, Standing};
use grandstand_core::owner::{Owner, Settings};
use grandstand_core::record::{Audience, Ban, Body, Comment, Record, RetractTarget, Verdict, Won};
use grandstand_core::reject::Code;
use grandstand_core::rooms::RoomChange;
use grandstand_core::sampler::switch::Sampling;
use grandstand_core::sampler::window;
use grandstand_core::time::{Mono, Wall};

const WALL: u64 = 1_781_000_000_000;

fn room() -> RoomId {
    RoomId::parse("r").unwrap()
}
fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}
fn key(text: &str) -> ClientMsgId {
    ClientMsgId::parse(text).unwrap()
}

fn ban(name: &str, shadow: bool) -> Command {
    let ban = Ban { user: user(name), until: None, reason: "rude".into(), shadow };
    Command::Ban { room: room(), ban, purge: None }
}

struct Stand {
    owner: Owner,
    now: Mono,
    log: Vec<Arc<Record>>,
    fates: Vec<(EventId, Fate)>,
    asked: Vec<u64>,
    tag: u64,
    /// The clock of the wall stands still at this.
    stuck: Wall,
}

impl Stand {
    fn new(winners: usize) -> Stand {
        let mut owner = Owner::new(Stand::settings(winners), Mono(0), Wall(WALL));
        owner.start(Epoch::new(1).unwrap());
        Stand {
            owner,
            now: Mono(0),
            log: Vec::new(),
            fates: Vec::new(),
            asked: Vec::new(),
            tag: 0,
            stuck: Wall(u64::MAX),
        }
    }

    fn settings(winners: usize) -> Settings {
        let window = window::Settings { winners, ..window::Settings::default() };
        Settings { create_on_use: true, window, ..Settings::default() }
    }

    /// A room that is wide by its operator's word.
    fn wide(winners: usize) -> Stand {
        let mut stand = Stand::new(winners);
        stand.put(RoomChange { sampling: Some(Sampling::Always), user_rate: Some(1_000), ..RoomChange::default() });
        assert!(stand.is_wide(), "an operator's word holds at once");
        stand
    }

    /// The same log in the hands of the next owner.
    fn crash(self, winners: usize) -> Stand {
        let mut owner = Owner::new(Stand::settings(winners), self.now, self.wall());
        for record in &self.log {
            owner.replay(record);
        }
        owner.start(Epoch::new(self.log.last().unwrap().epoch.value() + 1).unwrap());
        let mut stand = Stand { owner, fates: Vec::new(), asked: Vec::new(), ..self };
        stand.commit();
        stand
    }

    /// The next owner begins from the rooms as the last one left them, and reads nothing.
    fn crash_at_a_checkpoint(mut self, winners: usize) -> Stand {
        let (log, rooms) = self.owner.take_checkpoint();
        let mut owner = Owner::new(Stand::settings(winners), self.now, self.wall());
        owner.restore_log(log);
        rooms.into_iter().for_each(|room| owner.restore_room(room));
        owner.start(Epoch::new(self.log.last().unwrap().epoch.value() + 1).unwrap());
        let mut stand = Stand { owner, fates: Vec::new(), asked: Vec::new(), ..self };
        stand.commit();
        stand
    }

    fn is_wide(&self) -> bool {
        self.owner.room(&room()).is_some_and(|view| view.wide)
    }
    fn wall(&self) -> Wall {
        Wall(WALL + self.now.0 / 1_000).min(self.stuck)
    }

    /// Whatever waits is written; the answers come out.
    fn commit(&mut self) -> Vec<(u64, Answer)> {
        let mut answers = self.drain();
        while let Some(batch) = self.owner.seal(self.now, self.wall()) {
            self.log.extend(batch.iter().cloned());
            self.owner.on_committed(self.now, self.wall());
            answers.extend(self.drain());
        }
        answers.extend(self.drain());
        answers
    }

    fn drain(&mut self) -> Vec<(u64, Answer)> {
        let mut answers = Vec::new();
        while let Some(output) = self.owner.poll() {
            match output {
                Output::Answer { tag, answer } => answers.push((tag, answer)),
                Output::Fate { raw_id, fate, .. } => self.fates.push((raw_id, fate)),
                Output::NeedVerdict { tag, .. } => self.asked.push(tag),
                Output::Committed(_) | Output::LikesSettled { .. } | Output::Decided { .. } => {}
            }
        }
        answers
    }

    fn submit(&mut self, command: Command) -> u64 {
        self.tag += 1;
        self.owner.submit(self.tag, command, self.now, self.wall());
        self.tag
    }

    fn ask(&mut self, command: Command) -> Answer {
        let tag = self.submit(command);
        self.commit().into_iter().find(|(of, _)| *of == tag).expect("it is answered").1
    }

    fn put(&mut self, change: RoomChange) {
        let answer = self.ask(Command::PutRoom { room: room(), change: change.into(), if_version: None });
        assert!(matches!(answer, Answer::Room { .. }), "{answer:?}");
    }

    fn say(&mut self, who: &str, k: &str, text: &str, reply_to: Option<EventId>) -> Answer {
        self.ask(publish(who, k, text, reply_to))
    }

    /// Says it in a wide room; its raw id.
    fn raw(&mut self, who: &str, k: &str, text: &str) -> EventId {
        match self.say(who, k, text, None) {
            Answer::Raw { raw_id, duplicate: false, fate: None, .. } => raw_id,
            other => panic!("{other:?}"),
        }
    }

    /// Time passes, a deadline at a time.
    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(due) = self.owner.next_deadline().filter(|due| *due <= until) {
            self.now = self.now.max(due);
            self.owner.on_deadline(self.now, self.wall());
            self.commit();
        }
        self.now = until;
    }

    fn fate(&self, raw_id: EventId) -> Option<Fate> {
        let told: Vec<Fate> = self.fates.iter().filter(|(id, _)| *id == raw_id).map(|(_, fate)| *fate).collect();
        assert!(told.len() <= 1, "{raw_id:?} is told once: {told:?}");
        told.first().copied()
    }

    /// What viewers were given, in order: the text and how it won.
    fn shown(&self) -> Vec<(&str, Option<&Won>)> {
        let shown = self.log.iter().filter(|record| record.lane().is_some());
        shown
            .filter_map(|record| match &record.body {
                Body::Comment(Comment { text, won, .. }) => Some((&**text, won.as_deref())),
                _ => None,
            })
            .collect()
    }

    fn texts(&self) -> Vec<&str> {
        self.shown().into_iter().map(|(text, _)| text).collect()
    }

    fn retract(&mut self, target: RetractTarget) -> Option<EventId> {
        match self.ask(Command::Retract { room: room(), target, reason: "rude".into() }) {
            Answer::Done { event_id } => event_id,
            other => panic!("{other:?}"),
        }
    }

    fn record(&self, id: EventId) -> &Record {
        self.log.iter().find(|record| record.event_id() == id).expect("it is in the log")
    }
}

fn publish(who: &str, k: &str, text: &str, reply_to: Option<EventId>) -> Command {
    let author = Author { user: user(who), display: who.into(), badges: [].into(), standing: Standing::Viewer };
    Command::Publish(Publish { room: room(), author, client_msg_id: key(k), text: text.into(), reply_to })
}

const WINDOW: Duration = Duration::from_millis(200);

#[test]
fn a_comment_of_a_wide_room_is_answered_when_it_is_durable_and_shown_when_its_window_closes() {
    let mut stand = Stand::wide(8);
    let raw_id = stand.raw("ann", "k", "hello");
    assert!(stand.record(raw_id).is_raw() && stand.record(raw_id).lane().is_none());
    assert_eq!((stand.texts(), stand.fate(raw_id)), (vec![], None));
    stand.pass(WINDOW);
    let Some(Fate::Shown(event_id)) = stand.fate(raw_id) else { panic!("{:?}", stand.fates) };
    let winner = stand.record(event_id);
    assert_eq!((winner.raw_id(), &winner.client_msg_id), (Some(raw_id), &Some(key("k"))));
    let won = stand.shown()[0].1.expect("it won");
    assert_eq!((won.weight, won.repeats, won.by_right), (1, 0, false));
    assert_eq!(won.window.0, winner.ts.0 / 200, "windows are numbered by the log's time");
    assert_eq!(stand.owner.room(&room()).unwrap().accepted, 1, "it was said once");
}

#[test]
fn a_retry_gets_the_first_answer_whichever_road_it_took_and_what_became_of_it() {
    let mut stand = Stand::wide(8);
    let raw_id = stand.raw("ann", "k", "hello");
    let again = |stand: &mut Stand| stand.say("ann", "k", "hello", None);
    assert!(matches!(again(&mut stand), Answer::Raw { raw_id: id, duplicate: true, fate: None, .. } if id == raw_id));
    stand.pass(WINDOW);
    let Some(shown) = stand.fate(raw_id) else { panic!("it is decided") };
    assert!(matches!(again(&mut stand), Answer::Raw { fate: Some(fate), .. } if fate == shown));
    stand.put(RoomChange { sampling: Some(Sampling::None), ..RoomChange::default() });
    assert!(!stand.is_wide());
    assert!(
        matches!(again(&mut stand), Answer::Raw { raw_id: id, fate: Some(fate), .. } if id == raw_id && fate == shown)
    );
    let Answer::Reject(reject) = stand.say("ann", "k", "other", None) else { panic!("another text") };
    assert_eq!(reject.code, Code::IdempotencyConflict);
    let Answer::Published { event_id, .. } = stand.say("ann", "k2", "direct", None) else {
        panic!("the room is narrow")
    };
    stand.put(RoomChange { sampling: Some(Sampling::Always), ..RoomChange::default() });
    let answer = stand.say("ann", "k2", "direct", None);
    assert!(matches!(answer, Answer::Published { event_id: id, duplicate: true, .. } if id == event_id));
    let mut stand = stand.crash(8);
    assert!(
        matches!(again(&mut stand), Answer::Raw { raw_id: id, fate: Some(fate), .. } if id == raw_id && fate == shown)
    );
}

#[test]
fn slow_mode_counts_what_was_said_and_not_when_it_was_shown() {
    let mut stand = Stand::wide(8);
    stand.put(RoomChange { slow_mode_seconds: Some(10), ..RoomChange::default() });
    stand.raw("ann", "k1", "one");
    let Answer::Reject(reject) = stand.say("ann", "k2", "two", None) else { panic!("slow mode is on") };
    assert_eq!(reject.code, Code::SlowMode);
    stand.pass(Duration::from_secs(10));
    assert_eq!(stand.texts(), ["one"]);
    stand.raw("ann", "k2", "two");
}

#[test]
fn those_that_lose_wait_and_are_told_when_they_go() {
    let mut stand = Stand::wide(1);
    let ids: Vec<EventId> = (0..9).map(|n| stand.raw(&format!("u{n}"), "k", &format!("text {n}"))).collect();
    stand.pass(WINDOW);
    assert_eq!((stand.texts().len(), stand.fates.len()), (1, 1), "the others wait to be lifted");
    // One window a fifth of a second: of those that wait one takes the place that is free until they are 600 ms old.
    stand.pass(WINDOW * 9);
    assert_eq!((stand.texts().len(), stand.fates.len()), (2, 2), "and the others may still be lifted");
    stand.pass(Duration::from_secs(4));
    let gone = ids.iter().filter(|id| stand.fate(**id) == Some(Fate::NotShown)).count();
    assert_eq!((stand.texts().len(), gone), (2, 7));

    let mut crowd = Stand::wide(1);
    let ids: Vec<EventId> = (0..60).map(|n| crowd.raw(&format!("u{n}"), "k", &format!("text {n}"))).collect();
    crowd.pass(Duration::from_secs(6));
    let shown = ids.iter().filter(|id| matches!(crowd.fate(**id), Some(Fate::Shown(_)))).count();
    let gone = ids.iter().filter(|id| crowd.fate(**id) == Some(Fate::NotShown)).count();
    assert_eq!((shown, gone), (2, 58), "nobody is left without a word");
}

#[test]
fn a_text_that_is_repeated_is_counted_and_its_authors_are_told() {
    let mut stand = Stand::wide(8);
    let first = stand.raw("ann", "k", "GOAL!");
    let same = stand.raw("bob", "k", "gooooal!!!");
    assert_eq!(stand.fate(same), Some(Fate::NotShown));
    stand.pass(WINDOW);
    assert!(matches!(stand.fate(first), Some(Fate::Shown(_))));
    assert_eq!(
        stand.shown().iter().map(|(text, won)| (*text, won.unwrap().repeats)).collect::<Vec<_>>(),
        [("GOAL!", 1)]
    );
}

#[test]
fn replies_and_reactions_lift_what_waits_once_a_user() {
    let mut stand = Stand::wide(1);
    let ids: Vec<EventId> = (0..9).map(|n| stand.raw(&format!("u{n}"), "k", &format!("text {n}"))).collect();
    stand.pass(WINDOW);
    let waiting = *ids.iter().find(|id| stand.fate(**id).is_none()).unwrap();
    let react = |stand: &mut Stand, who: &str| {
        let react = React { room: room(), user: user(who), target: waiting };
        assert_eq!(stand.ask(Command::React(react)), Answer::Done { event_id: None });
    };
    for n in 0..40 {
        react(&mut stand, &format!("fan{n}"));
        react(&mut stand, &format!("fan{n}"));
    }
    let author = stand.record(waiting).user.clone().unwrap();
    react(&mut stand, author.as_str());
    stand.say("rita", "k", "an answer to it", Some(waiting));
    stand.say("rita", "k2", "and another one", Some(waiting));
    stand.pass(WINDOW);
    let Some(Fate::Shown(id)) = stand.fate(waiting) else {
        panic!("forty-one lift it above the others: {:?}", stand.fates)
    };
    let Body::Comment(Comment { won: Some(won), .. }) = &stand.record(id).body else { panic!("a winner") };
    assert_eq!(won.weight, 1 + 40 * 2 + 5, "each user counts once, its author not at all");
}

#[test]
fn who_answers_or_names_somebody_here_wins_by_right() {
    let mut stand = Stand::wide(1);
    let first = stand.raw("ann", "k", "a question");
    stand.pass(WINDOW);
    let Some(Fate::Shown(question)) = stand.fate(first) else { panic!("alone it wins") };
    for n in 0..9 {
        stand.raw(&format!("u{n}"), "k", &format!("text {n}"));
    }
    stand.say("bob", "k", "an answer", Some(question));
    stand.say("cid", "k", "hello @u3!", None);
    stand.say("dan", "k", "another answer", Some(question));
    stand.pass(WINDOW);
    let by_right: Vec<_> = stand
        .shown()
        .into_iter()
        .filter_map(|(text, won)| won.filter(|won| won.by_right).map(|won| (text, won.addressee.clone())))
        .collect();
    assert_eq!(by_right, [("an answer", Some(user("ann"))), ("hello @u3!", Some(user("u3")))], "one a second for each");
}

#[test]
fn a_winner_whose_author_was_banned_or_who_was_taken_back_meanwhile_is_not_shown() {
    let mut stand = Stand::wide(8);
    let banned = stand.raw("ann", "k", "one");
    let taken = stand.raw("bob", "k", "two");
    let of_user = stand.raw("cid", "k", "three");
    let stays = stand.raw("dan", "k", "four");
    stand.ask(ban("ann", false));
    assert_eq!(stand.fate(banned), Some(Fate::NotShown), "what waits of a banned user takes nobody's place");
    let by = stand.retract(RetractTarget::Event(taken)).expect("it is logged");
    assert!(stand.record(by).lane().is_none() && stand.record(by).pseq.is_none(), "nobody saw it, nobody is told");
    assert_eq!(stand.fate(taken), Some(Fate::NotShown), "it left the window");
    let by = stand.retract(RetractTarget::User(user("cid"))).expect("it is logged");
    assert!(stand.record(by).pseq.is_some(), "of a user something may have been seen");
    stand.pass(WINDOW);
    assert_eq!(stand.texts(), ["four"]);
    assert_eq!([banned, of_user].map(|id| stand.fate(id)), [Some(Fate::NotShown); 2]);
    assert!(matches!(stand.fate(stays), Some(Fate::Shown(_))));
}

#[test]
fn what_waited_when_its_author_was_purged_is_not_shown_by_the_next_owner_either() {
    let mut stand = Stand::wide(8);
    let raw_id = stand.raw("ann", "k", "one");
    stand.pass(Duration::from_millis(10));
    // It was said before the time that is purged, and would be shown after it.
    let ban = Ban { user: user("ann"), until: None, reason: "rude".into(), shadow: false };
    stand.ask(Command::Ban { room: room(), ban, purge: Some(Duration::from_millis(1)) });
    let mut stand = stand.crash(8);
    stand.ask(Command::Unban { room: room(), user: user("ann") });
    stand.pass(WINDOW);
    assert_eq!(stand.texts(), [""; 0]);
    assert_eq!(stand.fate(raw_id), Some(Fate::NotShown));
}

#[test]
fn a_shadow_banned_user_in_a_wide_room_is_drawn_for_itself_alone_and_takes_nobodys_place() {
    let mut stand = Stand::wide(1);
    stand.ask(ban("eve", true));
    let apart = stand.raw("eve", "k", "buy this");
    assert_eq!(stand.fate(apart), None, "it waits as anybody does");
    let other = stand.raw("ann", "k", "hello");
    stand.pass(WINDOW);
    let (Some(Fate::Shown(shown)), Some(Fate::Shown(_))) = (stand.fate(apart), stand.fate(other)) else {
        panic!("one place, and both have theirs: {:?}", stand.fates)
    };
    let record = stand.record(shown);
    assert_eq!((record.audience, record.raw_id()), (Audience::Author, Some(apart)));
    let recent = &stand.owner.room(&room()).unwrap().recent;
    assert!(recent.iter().all(|r| r.user == Some(user("ann"))));
    let again = stand.say("eve", "k", "buy this", None);
    assert!(matches!(again, Answer::Raw { fate: Some(Fate::Shown(id)), duplicate: true, .. } if id == shown));
}

#[test]
fn what_stands_apart_goes_when_its_author_is_heard_again_so_that_nothing_changes_places() {
    let mut stand = Stand::wide(1);
    stand.ask(ban("eve", true));
    let apart = stand.raw("eve", "k1", "one");
    stand.ask(Command::Unban { room: room(), user: user("eve") });
    let heard = stand.raw("eve", "k2", "two");
    assert_eq!(stand.fate(apart), Some(Fate::NotShown));
    let waits = stand.raw("ann", "k1", "three");
    stand.ask(ban("ann", true));
    stand.raw("ann", "k2", "four");
    assert_eq!(stand.fate(waits), Some(Fate::NotShown), "the other way round too");
    stand.pass(WINDOW);
    assert!(matches!(stand.fate(heard), Some(Fate::Shown(_))));
}

#[test]
fn what_stands_apart_survives_a_failed_batch_and_a_crash_and_goes_with_a_retract() {
    let mut stand = Stand::wide(1);
    stand.ask(ban("eve", true));
    let failed = stand.raw("eve", "k1", "one");
    stand.now = stand.owner.next_deadline().unwrap();
    stand.owner.on_deadline(stand.now, stand.wall());
    stand.owner.seal(stand.now, stand.wall()).expect("it was drawn");
    stand.owner.on_failed(Failure::Overloaded, stand.now, stand.wall());
    stand.commit();
    assert!(matches!(stand.fate(failed), Some(Fate::Shown(_))), "{:?}", stand.fates);
    let kept = stand.raw("eve", "k2", "two");
    let mut stand = stand.crash(1);
    stand.pass(WINDOW);
    assert!(matches!(stand.fate(kept), Some(Fate::Shown(_))), "{:?}", stand.fates);
    let gone = stand.raw("eve", "k3", "three");
    stand.retract(RetractTarget::User(user("eve")));
    assert_eq!(stand.fate(gone), Some(Fate::NotShown));
}

#[test]
fn a_winner_is_taken_back_under_either_of_its_ids_and_viewers_are_told_the_one_they_know() {
    let mut stand = Stand::wide(8);
    let raw_id = stand.raw("ann", "k", "one");
    stand.pass(WINDOW);
    let Some(Fate::Shown(event_id)) = stand.fate(raw_id) else { panic!("it is shown") };
    let by = stand.retract(RetractTarget::Event(raw_id)).expect("it is logged");
    let Body::Retract(retract) = &stand.record(by).body else { panic!("a retract") };
    assert_eq!((&retract.target, stand.record(by).lane().is_some()), (&RetractTarget::Event(event_id), true));
    assert!(stand.owner.room(&room()).unwrap().recent.is_empty());
    assert_eq!(stand.retract(RetractTarget::Event(event_id)), Some(by), "it is done already");
}

#[test]
fn in_a_moderated_wide_room_only_winners_are_judged_and_a_block_makes_room_for_the_next() {
    let mut stand = Stand::wide(1);
    let strict = grandstand_core::record::Policy::PreModerateStrict;
    stand.put(RoomChange { moderation_policy: Some(strict), ..RoomChange::default() });
    for n in 0..4 {
        stand.raw(&format!("u{n}"), "k", &format!("text {n}"));
    }
    assert!(stand.asked.is_empty(), "nothing is judged before it has won");
    stand.now = stand.now + WINDOW;
    stand.owner.on_deadline(stand.now, stand.wall());
    stand.commit();
    assert_eq!((stand.asked.len(), stand.texts().len()), (1, 0));
    let judge = |stand: &mut Stand, word| {
        let tag = stand.asked.pop().unwrap();
        stand.owner.on_verdict(tag, Some(Ruling::plain(word)), stand.now, stand.wall());
        stand.commit();
    };
    judge(&mut stand, Verdict::Block);
    assert_eq!((stand.asked.len(), stand.texts().len(), stand.fates.len()), (1, 0, 0), "a window is shown whole");
    judge(&mut stand, Verdict::Allow);
    assert_eq!((stand.texts().len(), stand.fates.len()), (1, 2));
    let refused: Vec<_> = stand.log.iter().filter(|r| matches!(r.body, Body::Blocked(_))).collect();
    assert_eq!((refused.len(), refused[0].verdict), (1, Verdict::Block));
    let winners: Vec<_> = stand.log.iter().filter(|r| r.raw_id().is_some() && r.lane().is_some()).collect();
    assert!(winners.iter().all(|r| r.verdict == Verdict::Allow && r.raw_id() != refused[0].raw_id()));
}

/// A wide room whose winners are judged before they are shown.
fn strict(winners: usize) -> Stand {
    let mut stand = Stand::wide(winners);
    let strict = grandstand_core::record::Policy::PreModerateStrict;
    stand.put(RoomChange { moderation_policy: Some(strict), ..RoomChange::default() });
    stand
}

impl Stand {
    fn close_window(&mut self) {
        self.now = self.now + WINDOW;
        self.owner.on_deadline(self.now, self.wall());
        self.commit();
    }

    /// The oldest question is answered.
    fn judge(&mut self, word: Verdict) {
        let tag = self.asked.remove(0);
        self.owner.on_verdict(tag, Some(Ruling::plain(word)), self.now, self.wall());
        self.commit();
    }
}

#[test]
fn a_block_among_winners_does_not_make_two_windows_of_one() {
    let mut stand = strict(5);
    for who in ["ann", "bob", "cid", "dan", "eve"] {
        stand.raw(who, "k", &format!("{who} says this"));
    }
    stand.close_window();
    for word in [Verdict::Allow, Verdict::Allow, Verdict::Block, Verdict::Allow, Verdict::Allow] {
        stand.judge(word);
    }
    let shown = stand.shown();
    assert_eq!(shown.len(), 4);
    // A viewer picks its share of a window, and would of each half.
    assert!(shown.iter().all(|(_, won)| won.is_some_and(|won| won.of == 4)), "{shown:?}");
}

#[test]
fn who_replaces_a_blocked_winner_passes_nothing_that_its_author_said_before() {
    let mut stand = strict(1);
    stand.raw("mia", "k", "hi");
    stand.close_window();
    stand.judge(Verdict::Allow);
    stand.raw("bob", "k", "rude");
    stand.close_window();
    // Ann's first waits by right and her second by lot: it is the only one that could take bob's place.
    stand.raw("ann", "k1", "@mia hello");
    let second = stand.raw("ann", "k2", "again");
    stand.judge(Verdict::Block);
    assert!(stand.asked.is_empty(), "nobody is there to take the place");
    stand.close_window();
    while !stand.asked.is_empty() {
        stand.judge(Verdict::Allow);
    }
    assert_eq!(stand.texts(), ["hi", "@mia hello"]);
    assert_eq!(stand.fate(second), Some(Fate::NotShown), "one winner an author");
}

#[test]
fn who_replaces_a_blocked_winner_has_not_won_in_the_same_window() {
    let mut stand = strict(2);
    stand.raw("ann", "k1", "one");
    stand.raw("bob", "k", "rude");
    stand.close_window();
    assert_eq!(stand.asked.len(), 2);
    stand.raw("ann", "k2", "two");
    // In the order of their ids: ann's stands, bob's is replaced.
    stand.judge(Verdict::Allow);
    stand.judge(Verdict::Block);
    assert_eq!((stand.asked.len(), stand.texts()), (0, vec!["one"]), "ann has her winner of this window");
    stand.close_window();
    stand.judge(Verdict::Allow);
    assert_eq!(stand.texts(), ["one", "two"]);
    let windows: Vec<_> = stand.shown().into_iter().map(|(_, won)| won.unwrap().window).collect();
    assert!(windows[0] < windows[1], "{windows:?}");
}

#[test]
fn an_operators_narrow_waits_for_verdicts_no_longer_than_one_may_take() {
    let mut stand = strict(1);
    for n in 0..10 {
        stand.raw(&format!("u{n}"), "k", &format!("text {n}"));
    }
    stand.close_window();
    assert_eq!(stand.asked.len(), 1, "one is being judged");
    let change = RoomChange { sampling: Some(Sampling::None), ..RoomChange::default() };
    stand.put(change);
    assert!(stand.is_wide(), "who is judged has the time it was given");
    // The classifier says nothing: each would be replaced by the next, who would be waited for as well.
    stand.pass(Settings::default().verdict_within);
    assert!(!stand.is_wide());
    let n_asked = stand.asked.len();
    stand.submit(publish("u0", "k2", "direct", None));
    stand.commit();
    assert_eq!(stand.asked.len(), n_asked + 1, "what is said now is judged by itself");
}

#[test]
fn the_next_owner_knows_what_became_of_what_was_said_to_the_one_before() {
    let mut stand = Stand::wide(1);
    let won = stand.raw("ann", "k", "one");
    stand.pass(WINDOW);
    let Some(Fate::Shown(event_id)) = stand.fate(won) else { panic!("alone in its window it wins") };
    let folded = [stand.raw("bob", "k", "two"), stand.raw("cat", "k", "two")];
    assert_eq!(folded.map(|id| stand.owner.fate(&room(), id)), [Known::Waits, Known::Decided(Fate::NotShown)]);
    let mut stand = stand.crash(1);
    let known = |stand: &Stand, id| stand.owner.fate(&room(), id);
    assert_eq!(known(&stand, won), Known::Decided(Fate::Shown(event_id)));
    assert_eq!(known(&stand, folded[0]), Known::Waits, "it is offered again");
    stand.pass(WINDOW);
    assert!(matches!(known(&stand, folded[0]), Known::Decided(Fate::Shown(_))));
    assert_eq!(known(&stand, folded[1]), Known::Decided(Fate::NotShown));
    assert_eq!(known(&stand, event_id), Known::Forgotten, "nothing was said under the id it was shown as");
    // Long after, nobody can tell, and nobody is told what may be wrong.
    stand.put(RoomChange { sampling: Some(Sampling::None), ..RoomChange::default() });
    stand.pass(Duration::from_secs(601));
    assert_eq!(known(&stand, won), Known::Forgotten);
}

#[test]
fn what_a_room_held_while_it_was_wide_is_let_go_when_no_retract_can_name_it() {
    let mut stand = Stand::wide(2);
    let raw_id = stand.raw("ann", "k", "one");
    stand.pass(WINDOW);
    let turn = |stand: &mut Stand, when| {
        stand.put(RoomChange { sampling: Some(when), ..RoomChange::default() });
    };
    turn(&mut stand, Sampling::None);
    assert_eq!(stand.owner.n_kept_wide(), 1);
    stand.pass(Duration::from_secs(599));
    turn(&mut stand, Sampling::Always);
    stand.pass(Duration::from_secs(60));
    assert_eq!(stand.owner.n_kept_wide(), 1, "it is wide again");
    turn(&mut stand, Sampling::None);
    stand.pass(Duration::from_secs(599));
    let by = stand.retract(RetractTarget::Event(raw_id)).expect("it is known still");
    let Body::Retract(retract) = &stand.record(by).body else { panic!("a retract") };
    let RetractTarget::Event(shown) = retract.target else { panic!("an event") };
    assert_eq!(stand.fate(raw_id), Some(Fate::Shown(shown)));
    let mut again = stand.crash(2);
    assert_eq!(again.owner.n_kept_wide(), 1);
    again.pass(Duration::from_secs(1));
    assert_eq!(again.owner.n_kept_wide(), 1, "the next owner counts from where it began");
    again.pass(Duration::from_secs(600));
    assert_eq!(again.owner.n_kept_wide(), 0);
}

#[test]
fn before_a_room_is_narrow_everyone_in_its_window_wins_or_goes() {
    let mut stand = Stand::wide(2);
    let ids: Vec<EventId> = (0..5).map(|n| stand.raw(&format!("u{n}"), "k", &format!("text {n}"))).collect();
    // In one batch with the switch: it is said in a narrow room already.
    let narrow = RoomChange { sampling: Some(Sampling::None), ..RoomChange::default() };
    stand.put(narrow);
    assert!(ids.iter().all(|id| stand.fate(*id).is_some()), "nobody waits behind the switch: {:?}", stand.fates);
    let Answer::Published { .. } = stand.say("u0", "k2", "direct", None) else { panic!("the room is narrow") };
    let texts = stand.texts();
    assert_eq!((texts.len(), texts.last()), (3, Some(&"direct")));
    stand.pass(Duration::from_secs(10));
    assert_eq!(stand.texts().len(), 3, "and nothing comes after");
    let told: Vec<_> = stand
        .log
        .iter()
        .filter_map(|r| match &r.body {
            Body::Config(config) => config.sampled.map(|sampled| (sampled, config.cap)),
            _ => None,
        })
        .collect();
    assert_eq!(told, [(true, Some(5)), (false, Some(5))], "viewers are told of both turns");
}

#[test]
fn winners_of_a_failed_batch_keep_their_places() {
    let mut stand = Stand::wide(8);
    let ids: Vec<EventId> = (0..5).map(|n| stand.raw(&format!("u{n}"), "k", &format!("text {n}"))).collect();
    stand.now = stand.now + WINDOW;
    stand.owner.on_deadline(stand.now, stand.wall());
    for _ in 0..3 {
        stand.owner.seal(stand.now, stand.wall()).expect("there are winners");
        stand.owner.on_failed(Failure::NoSpace, stand.now, stand.wall());
        stand.drain();
        assert!(matches!(stand.owner.room(&room()), Some(view) if view.recent.is_empty()));
    }
    stand.commit();
    assert_eq!(stand.texts(), ["text 0", "text 1", "text 2", "text 3", "text 4"]);
    assert!(ids.iter().all(|id| matches!(stand.fate(*id), Some(Fate::Shown(_)))));
}

#[test]
fn what_waits_in_a_window_survives_a_crash_and_nothing_is_shown_twice() {
    let mut stand = Stand::wide(1);
    for n in 0..5 {
        stand.raw(&format!("u{n}"), "k", &format!("text {n}"));
    }
    stand.pass(WINDOW);
    assert_eq!(stand.texts().len(), 1);
    let mut stand = stand.crash(8);
    assert!(stand.is_wide());
    stand.pass(WINDOW);
    let mut texts = stand.texts();
    texts.sort_unstable();
    assert_eq!(texts, ["text 0", "text 1", "text 2", "text 3", "text 4"]);
    let mut stand = stand.crash(8);
    stand.pass(Duration::from_secs(1));
    assert_eq!(stand.texts().len(), 5);
}

#[test]
fn no_window_of_the_next_owner_has_the_number_of_one_before_though_the_clock_stands_still() {
    let mut stand = Stand::wide(1);
    stand.stuck = stand.wall();
    for owner in 0..4 {
        for n in 0..3 {
            stand.raw(&format!("u{n}"), &format!("k{owner}"), &format!("text {n} of owner {owner}"));
            stand.pass(WINDOW);
        }
        stand = if owner % 2 == 0 { stand.crash(1) } else { stand.crash_at_a_checkpoint(1) };
    }
    let windows: Vec<u64> = stand.shown().iter().map(|(_, won)| won.expect("it won").window.0).collect();
    assert_eq!(windows.len(), 12);
    assert!(windows.is_sorted_by(|a, b| a < b), "{windows:?}");
}

#[test]
fn a_crowd_turns_a_room_wide_and_its_leaving_narrow() {
    let mut stand = Stand::new(64);
    stand.put(RoomChange { user_rate: Some(1_000), user_burst: Some(10_000), ..RoomChange::default() });
    stand.owner.set_viewers(&room(), 60_000);
    let mut n = 0;
    let mut second = |stand: &mut Stand, rate: u32| {
        for _ in 0..rate {
            n += 1;
            stand.say(&format!("u{n}"), "k", &format!("text {n}"), None);
            stand.pass(Duration::from_secs(1) / rate);
        }
    };
    (0..3).for_each(|_| second(&mut stand, 25));
    assert!(!stand.is_wide(), "three seconds of it are asked for");
    (0..2).for_each(|_| second(&mut stand, 25));
    assert!(stand.is_wide());
    stand.owner.set_viewers(&room(), 10);
    stand.pass(Duration::from_secs(29));
    assert!(stand.is_wide());
    stand.pass(Duration::from_secs(4));
    assert!(!stand.is_wide());
    let crowds: Vec<_> = stand
        .log
        .iter()
        .filter_map(|r| match r.body {
            Body::Wide(crowd) | Body::Narrow(crowd) => Some((crowd.rate, crowd.viewers)),
            _ => None,
        })
        .collect();
    assert_eq!(crowds.len(), 2, "{crowds:?}");
    assert!(crowds[0].0 >= 24 && crowds[0].1 == 60_000 && crowds[1] == (0, 10), "{crowds:?}");
}
