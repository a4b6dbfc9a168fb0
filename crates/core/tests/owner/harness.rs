//! Drives an owner through a script of inputs, faults and crashes, and holds what it did against the log alone.
//!
//! The log kept here is the only truth: every promise is checked by reading it again with plain code that shares nothing
//! with the owner but the record's type.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use grandstand_core::ids::{Epoch, EventId, Pseq, Revision, Seq};
use grandstand_core::moderation::Ruling;
use grandstand_core::names::{ClientMsgId, Key, RoomId, UserId};
use grandstand_core::owner::answer::{Answer, Failure, Output};
use grandstand_core::owner::checkpoint::{LogCheckpoint, RoomCheckpoint};
use grandstand_core::owner::command::{Author, Command, GiftIn, Publish, Standing, Tag};
use grandstand_core::owner::view::RoomView;
use grandstand_core::owner::{Owner, Settings};
use grandstand_core::reader::{Reader, Reading};
use grandstand_core::record::{
    Audit, Ban, Blocked, Body, Gift, Policy, Record, RetractTarget, Room, RoomState, ScoreKind, ScoreState, Verdict,
};
use grandstand_core::reject::Code;
use grandstand_core::revision::ScoreIn;
use grandstand_core::rooms::RoomChange;
use grandstand_core::time::{Mono, Wall};

#[derive(Clone, Debug)]
pub enum Step {
    Publish {
        room: u8,
        user: u8,
        key: u8,
        text: u8,
    },
    Score {
        event: u8,
        revision: Option<u8>,
        payload: u8,
    },
    Gift {
        room: u8,
        user: u8,
        gift: u8,
    },
    Ban {
        room: u8,
        user: u8,
        seconds: Option<u8>,
    },
    Unban {
        room: u8,
        user: u8,
    },
    RetractNewest {
        room: u8,
    },
    RetractUser {
        room: u8,
        user: u8,
    },
    Policy {
        room: u8,
        strict: u8,
    },
    Slow {
        room: u8,
        seconds: u8,
        lasts: Option<u8>,
    },
    State {
        room: u8,
        closed: bool,
    },
    Verdict {
        nth: u8,
        word: u8,
    },
    Seal,
    Commit,
    Fail,
    Pass {
        ms: u16,
    },
    WallBack {
        ms: u16,
    },
    Checkpoint,
    /// The process dies; its batch in flight is in the log, is not, or comes when the next owner has written already.
    Crash {
        batch: Fate,
    },
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Fate {
    Landed,
    Lost,
    Late,
}

/// Why a script failed.
pub type Broken = String;

pub struct Harness {
    owner: Owner,
    settings: Settings,
    now: Mono,
    wall: Wall,
    /// How far the wall clock was set back, all in all.
    stepped_back: Duration,
    epoch: u32,
    log: Vec<Arc<Record>>,
    flight: Option<Arc<[Arc<Record>]>>,
    /// What a dead owner's write will still add to the log.
    late: Vec<Arc<Record>>,
    /// Versions of the room's settings that a comment was sent under.
    sent_under: BTreeMap<(RoomId, UserId, ClientMsgId), BTreeSet<u64>>,
    is_probing: bool,
    committed_seen: usize,
    tags: Tag,
    asked: BTreeMap<Tag, Command>,
    answers: BTreeMap<Tag, Answer>,
    judging: Vec<Tag>,
    checkpoint: (Option<LogCheckpoint>, BTreeMap<RoomId, RoomCheckpoint>),
    pub n_published: usize,
    pub n_recovered: usize,
}

pub fn room(n: u8) -> RoomId {
    RoomId::parse(&format!("r{}", n % 2)).unwrap()
}
pub fn user(n: u8) -> UserId {
    UserId::parse(&format!("u{}", n % 3)).unwrap()
}
pub fn key(n: u8) -> ClientMsgId {
    ClientMsgId::parse(&format!("k{}", n % 4)).unwrap()
}
pub fn name(text: &str) -> Key {
    Key::parse(text).unwrap()
}

pub fn publish(room: RoomId, user: UserId, key: ClientMsgId, text: &str) -> Command {
    let author = Author { user, display: "n".into(), badges: [].into(), standing: Standing::Viewer };
    Command::Publish(Publish { room, author, client_msg_id: key, text: text.into(), reply_to: None })
}

pub fn score(event: u8, revision: Option<u8>, payload: u8) -> ScoreIn {
    ScoreIn {
        match_id: name("m"),
        provider: name("p"),
        event: name(&format!("e{}", event % 2)),
        revision: revision.map(|r| Revision(1 + u32::from(r % 4))),
        kind: ScoreKind::Goal,
        state: ScoreState::Confirmed,
        home: u32::from(payload % 3),
        away: 0,
        minute: None,
        historical: false,
        digest: [payload % 3; 16],
        data: None,
        room: Some(room(0)),
    }
}

impl Harness {
    pub fn new(settings: Settings) -> Harness {
        let (now, wall) = (Mono(1_000_000), Wall(1_700_000_000_000));
        let mut owner = Owner::new(settings.clone(), now, wall);
        owner.start(Epoch::new(1).unwrap());
        Harness {
            owner,
            settings,
            now,
            wall,
            stepped_back: Duration::ZERO,
            epoch: 1,
            log: Vec::new(),
            flight: None,
            late: Vec::new(),
            sent_under: BTreeMap::new(),
            is_probing: false,
            committed_seen: 0,
            tags: 0,
            asked: BTreeMap::new(),
            answers: BTreeMap::new(),
            judging: Vec::new(),
            checkpoint: (None, BTreeMap::new()),
            n_published: 0,
            n_recovered: 0,
        }
    }

    pub fn run(&mut self, steps: &[Step]) -> Result<(), Broken> {
        for step in steps {
            self.step(step)?;
            self.drain()?;
        }
        self.finish()?;
        self.check_log()
    }

    fn submit(&mut self, command: Command) {
        self.tags += 1;
        self.asked.insert(self.tags, command.clone());
        if let Command::Publish(p) = &command
            && !self.is_probing
        {
            let version = self.owner.room(&p.room).map_or(0, |v| v.settings.version);
            let key = (p.room.clone(), p.author.user.clone(), p.client_msg_id.clone());
            self.sent_under.entry(key).or_default().insert(version);
        }
        self.owner.submit(self.tags, command, self.now, self.wall);
    }

    fn put(&mut self, room: RoomId, change: RoomChange) {
        self.submit(Command::PutRoom { room, change: change.into(), if_version: None });
    }

    fn step(&mut self, step: &Step) -> Result<(), Broken> {
        match *step {
            Step::Publish { room: r, user: u, key: k, text } => {
                self.submit(publish(room(r), user(u), key(k), ["one", "two"][usize::from(text % 2)]));
            }
            Step::Score { event, revision, payload } => self.submit(Command::Score(score(event, revision, payload))),
            Step::Gift { room: r, user: u, gift } => {
                let gift_id = name(&format!("g{}", gift % 3));
                let gift = Gift {
                    gift_id,
                    display: "n".into(),
                    item: "rose".into(),
                    count: 1,
                    amount_micros: 1,
                    currency: "EUR".into(),
                    banner_until: None,
                };
                self.submit(Command::Gift(GiftIn { room: room(r), user: user(u), gift }));
            }
            Step::Ban { room: r, user: u, seconds } => {
                let until = seconds.map(|s| self.wall + Duration::from_secs(u64::from(s)));
                let ban = Ban { user: user(u), until, reason: "".into(), shadow: false };
                let ban = Command::Ban { room: room(r), ban, purge: None };
                let audit = Audit { what: "ban".into(), justification: "rude".into() };
                self.submit(Command::Audited { by: UserId::parse("mod").unwrap(), audit, command: ban.into() });
            }
            Step::Unban { room: r, user: u } => self.submit(Command::Unban { room: room(r), user: user(u) }),
            Step::RetractNewest { room: r } => {
                let newest = self.owner.room(&room(r)).and_then(|v| v.recent.back().map(|c| c.event_id()));
                let Some(id) = newest else { return Ok(()) };
                let target = RetractTarget::Event(id);
                self.submit(Command::Retract { room: room(r), target, reason: "".into() });
            }
            Step::RetractUser { room: r, user: u } => {
                let target = RetractTarget::User(user(u));
                self.submit(Command::Retract { room: room(r), target, reason: "".into() });
            }
            Step::Policy { room: r, strict } => {
                let policy = Policy::ALL[usize::from(strict % 4)].0;
                self.put(room(r), RoomChange { moderation_policy: Some(policy), ..RoomChange::default() });
            }
            Step::Slow { room: r, seconds, lasts } => self.put(
                room(r),
                RoomChange {
                    slow_mode_seconds: Some(u32::from(seconds % 4)),
                    slow_mode_for: lasts.map(|s| Duration::from_secs(u64::from(s % 8))),
                    ..RoomChange::default()
                },
            ),
            Step::State { room: r, closed } => {
                let state = Some(if closed { RoomState::Closed } else { RoomState::Live });
                self.put(room(r), RoomChange { state, ..RoomChange::default() });
            }
            Step::Verdict { nth, word } => {
                if !self.judging.is_empty() {
                    let tag = self.judging.remove(usize::from(nth) % self.judging.len());
                    let verdict =
                        [Some(Verdict::Allow), Some(Verdict::Block), Some(Verdict::Flag), None][usize::from(word % 4)];
                    self.owner.on_verdict(tag, verdict.map(Ruling::plain), self.now, self.wall);
                }
            }
            Step::Seal => self.seal(),
            Step::Commit => self.commit()?,
            Step::Fail => {
                if self.flight.take().is_some() {
                    self.owner.on_failed(Failure::Overloaded, self.now, self.wall);
                }
            }
            Step::Pass { ms } => {
                self.now = self.now + Duration::from_millis(u64::from(ms));
                self.wall = self.wall + Duration::from_millis(u64::from(ms));
                self.owner.on_deadline(self.now, self.wall);
            }
            Step::WallBack { ms } => {
                let back = Duration::from_millis(u64::from(ms));
                self.wall = self.wall - back;
                self.stepped_back += back;
            }
            Step::Checkpoint => {
                let (log, rooms) = self.owner.take_checkpoint();
                self.checkpoint.0 = Some(log);
                self.checkpoint.1.extend(rooms.into_iter().map(|r| (r.view.room.clone(), r)));
            }
            Step::Crash { batch } => self.crash(batch)?,
        }
        Ok(())
    }

    fn seal(&mut self) {
        if let Some(batch) = self.owner.seal(self.now, self.wall) {
            assert!(self.flight.is_none(), "one batch at a time");
            self.flight = Some(batch);
        }
    }

    fn commit(&mut self) -> Result<(), Broken> {
        if let Some(batch) = self.flight.take() {
            self.log.extend(batch.iter().cloned());
            self.owner.on_committed(self.now, self.wall);
            self.drain()?;
            self.log.append(&mut self.late);
            self.committed_seen = self.log.len();
        }
        Ok(())
    }

    /// The log's valid records, by the reader rule.
    fn valid(&self) -> Vec<Arc<Record>> {
        let mut reader = Reader::new();
        self.log.iter().filter(|r| reader.read(r) == Reading::Valid).cloned().collect()
    }

    fn drain(&mut self) -> Result<(), Broken> {
        while let Some(output) = self.owner.poll() {
            match output {
                Output::NeedVerdict { tag, .. } => self.judging.push(tag),
                // No room of these scripts is wide.
                Output::Fate { .. } | Output::Decided { .. } => {}
                Output::LikesSettled { .. } => {}
                Output::Committed(record) => {
                    if self.log.get(self.committed_seen) != Some(&record) {
                        return Err(format!("{:?} came out, out of the log's order", record.event_id()));
                    }
                    self.committed_seen += 1;
                }
                Output::Answer { tag, answer } => {
                    self.judge_answer(tag, &answer)?;
                    if self.answers.insert(tag, answer).is_some() {
                        return Err(format!("command {tag} was answered twice"));
                    }
                }
            }
        }
        Ok(())
    }

    /// An answer may speak of nothing that is not in the log.
    fn judge_answer(&mut self, tag: Tag, answer: &Answer) -> Result<(), Broken> {
        let Some(asked) = self.asked.get(&tag) else { return Err(format!("{tag} was never asked")) };
        let valid = self.valid();
        let find = |id: EventId| valid.iter().find(|r| r.event_id() == id);
        match (asked, answer) {
            (Command::Publish(p), Answer::Published { event_id, .. }) => {
                let Some(record) = find(*event_id) else { return Err(format!("{event_id:?} is acked and not there")) };
                let Body::Comment(comment) = &record.body else { return Err("an ack of no comment".into()) };
                let same = record.room.as_ref() == Some(&p.room)
                    && record.user.as_ref() == Some(&p.author.user)
                    && record.client_msg_id.as_ref() == Some(&p.client_msg_id)
                    && comment.text == p.text;
                if !same {
                    return Err(format!("{event_id:?} is another's comment"));
                }
                self.n_published += 1;
            }
            (Command::Publish(p), Answer::Reject(reject)) if reject.code == Code::ModerationFailed => {
                let is_it = |record: &&Arc<Record>| {
                    matches!(&record.body, Body::Blocked(b) if b.client_msg_id.as_ref() == Some(&p.client_msg_id))
                        && record.room.as_ref() == Some(&p.room)
                        && record.user.as_ref() == Some(&p.author.user)
                };
                if !valid.iter().any(|record| is_it(&record)) {
                    return Err(format!("{:?} was refused without a record", p.client_msg_id));
                }
            }
            (Command::Score(s), Answer::Score { event_id, revision, .. }) => {
                let record = find(*event_id).ok_or_else(|| format!("{event_id:?} is acked and not there"))?;
                let Body::Score(logged) = &record.body else { return Err("an ack of no score".into()) };
                if logged.event != s.event || logged.revision != *revision || logged.digest != s.digest {
                    return Err(format!("{event_id:?} is another score"));
                }
            }
            (Command::Gift(g), Answer::Gift { event_id, .. }) => {
                let record = find(*event_id).ok_or_else(|| format!("{event_id:?} is acked and not there"))?;
                if !matches!(&record.body, Body::Gift(logged) if *logged == g.gift) {
                    return Err(format!("{event_id:?} is another gift"));
                }
            }
            (_, Answer::Done { event_id: Some(id) }) if find(*id).is_none() => {
                return Err(format!("{id:?} is acked and not there"));
            }
            _ => {}
        }
        Ok(())
    }

    fn crash(&mut self, fate: Fate) -> Result<(), Broken> {
        let lived: Vec<RoomView> = self.owner.rooms().cloned().collect();
        let head = self.owner.head();
        if let Some(batch) = self.flight.take() {
            match fate {
                Fate::Landed => self.log.extend(batch.iter().cloned()),
                // An epoch that ends of itself is followed by the next number, which the successor has taken: only a lease
                // can tell them apart, so a late write meets whole epochs only.
                Fate::Late if self.settings.seq_max == Seq::MAX => self.late.extend(batch.iter().cloned()),
                Fate::Late | Fate::Lost => {}
            }
        }
        let unanswered: Vec<Tag> = self.asked.keys().filter(|t| !self.answers.contains_key(t)).copied().collect();
        for tag in unanswered {
            self.asked.remove(&tag);
        }
        self.judging.clear();
        let mut owner = self.recovered(true, self.log.len());
        // The same log, read as far as the dead owner had: the same rooms.
        let upto = self.log.iter().take_while(|r| r.event_id().position() <= head).count();
        let before = self.recovered(true, upto);
        if before.rooms().cloned().collect::<Vec<_>>() != lived {
            return Err("recovery from the checkpoint gives other rooms than were lived".into());
        }
        let plain = self.recovered(false, upto);
        if plain.rooms().cloned().collect::<Vec<_>>() != lived {
            return Err("recovery from the whole log gives other rooms than were lived".into());
        }
        self.epoch = self.log.last().map_or(0, |r| r.epoch.value()).max(self.epoch) + 1;
        owner.start(Epoch::new(self.epoch).unwrap());
        self.owner = owner;
        self.committed_seen = self.log.len();
        self.n_recovered += 1;
        Ok(())
    }

    /// An owner that read the first `upto` records, from the newest checkpoint or from nothing.
    fn recovered(&self, use_checkpoint: bool, upto: usize) -> Owner {
        let mut owner = Owner::new(self.settings.clone(), self.now, self.wall);
        let from = self.checkpoint.0.as_ref().filter(|_| use_checkpoint);
        let position = from.map_or(0, |c| c.position.value());
        if let Some(checkpoint) = from {
            owner.restore_log(checkpoint.clone());
            for room in self.checkpoint.1.values() {
                owner.restore_room(room.clone());
            }
        }
        for record in &self.log[..upto] {
            if record.event_id().value() <= position {
                owner.replay_keys(record);
            } else {
                owner.replay(record);
            }
        }
        owner
    }

    /// Lets everything come to an end: every command has its answer, and no key is held by anything.
    fn finish(&mut self) -> Result<(), Broken> {
        for _ in 0..4 {
            self.commit()?;
            self.drain()?;
            self.now = self.now + Duration::from_secs(30);
            self.wall = self.wall + Duration::from_secs(30);
            self.owner.on_deadline(self.now, self.wall);
            self.drain()?;
            self.seal();
            self.drain()?;
        }
        self.commit()?;
        self.drain()?;
        if let Some(tag) = self.asked.keys().find(|t| !self.answers.contains_key(t)) {
            return Err(format!("command {tag} never got an answer"));
        }
        if self.owner.n_pending() != 0 {
            return Err("something is pending for ever".into());
        }
        self.probe_keys()
    }

    /// Every key in the log answers its first event; every other key is free.
    fn probe_keys(&mut self) -> Result<(), Broken> {
        self.is_probing = true;
        for r in 0..2 {
            self.put(
                room(r),
                RoomChange {
                    moderation_policy: Some(Policy::Off),
                    slow_mode_seconds: Some(0),
                    state: Some(RoomState::Live),
                    ..RoomChange::default()
                },
            );
            for u in 0..3 {
                self.submit(Command::Unban { room: room(r), user: user(u) });
            }
        }
        self.seal();
        self.commit()?;
        self.drain()?;
        let logged: BTreeMap<(RoomId, UserId, ClientMsgId), (EventId, Arc<str>)> = self
            .valid()
            .iter()
            .filter_map(|r| {
                let Body::Comment(c) = &r.body else { return None };
                Some(((r.room.clone()?, r.user.clone()?, r.client_msg_id.clone()?), (r.event_id(), c.text.clone())))
            })
            .collect();
        let refused: BTreeMap<(RoomId, UserId, ClientMsgId), Arc<str>> = self
            .valid()
            .iter()
            .filter_map(|r| {
                let Body::Blocked(b) = &r.body else { return None };
                Some(((r.room.clone()?, r.user.clone()?, b.client_msg_id.clone()?), b.comment.text.clone()))
            })
            .collect();
        for (r, u, k) in (0..2).flat_map(|r| (0..3).flat_map(move |u| (0..4).map(move |k| (r, u, k)))) {
            let known = logged.get(&(room(r), user(u), key(k)));
            let blocked = refused.get(&(room(r), user(u), key(k)));
            let text = known.map(|(_, text)| text).or(blocked).map_or("one", |text| text);
            self.submit(publish(room(r), user(u), key(k), text));
            let tag = self.tags;
            self.drain()?;
            match (known, self.answers.get(&tag)) {
                (Some((id, _)), Some(Answer::Published { event_id, duplicate: true, .. })) if id == event_id => {}
                (None, Some(Answer::Reject(reject))) if blocked.is_some() && reject.code == Code::ModerationFailed => {}
                (None, None) if blocked.is_none() => {}
                (known, got) => return Err(format!("a retry of {known:?} got {got:?}")),
            }
        }
        self.seal();
        self.commit()?;
        self.drain()?;
        match self.asked.keys().find(|t| !self.answers.contains_key(t)) {
            Some(tag) => Err(format!("probe {tag} never got an answer")),
            None => Ok(()),
        }
    }

    /// Reads the log again with plain code and holds the owner's promises against it.
    fn check_log(&self) -> Result<(), Broken> {
        let mut reader = Reader::new();
        let mut pseqs: BTreeMap<RoomId, Pseq> = BTreeMap::new();
        let mut keys = BTreeSet::new();
        let mut bans: BTreeMap<(RoomId, UserId), Option<Wall>> = BTreeMap::new();
        let mut policies: BTreeMap<RoomId, Policy> = BTreeMap::new();
        let mut slow: BTreeMap<RoomId, Arc<Room>> = BTreeMap::new();
        let mut spoke: BTreeMap<(RoomId, UserId), Wall> = BTreeMap::new();
        let mut tops: BTreeMap<(RoomId, Key), (Revision, EventId)> = BTreeMap::new();
        let mut gone: BTreeSet<EventId> = BTreeSet::new();
        let mut ts = Wall(0);
        let log = self.valid();
        for (i, record) in log.iter().enumerate() {
            let id = record.event_id();
            assert_eq!(reader.read(record), Reading::Valid, "valid records alone are a valid log");
            if record.seq == Seq::START && record.body != Body::EpochStart {
                return Err(format!("{id:?} opens an epoch and is no EpochStart"));
            }
            if record.ts < ts {
                return Err(format!("log time goes back at {id:?}"));
            }
            ts = record.ts;
            let Some(room) = record.room.clone() else { continue };
            if let Some(pseq) = record.pseq {
                let last = pseqs.entry(room.clone()).or_default();
                if pseq != last.next() {
                    return Err(format!("{pseq:?} follows {last:?}"));
                }
                *last = pseq;
            }
            let banned = |user: &UserId| {
                bans.get(&(room.clone(), user.clone())).is_some_and(|until| until.is_none_or(|until| ts < until))
            };
            // What is told of an earlier gift is not said by its giver.
            let says = !matches!(record.body, Body::Combo(_));
            if says && record.user.as_ref().is_some_and(banned) {
                return Err(format!("{id:?} is by a banned user"));
            }
            match &record.body {
                Body::Comment(_) => {
                    let user = record.user.clone().unwrap();
                    if !keys.insert((room.clone(), user.clone(), record.client_msg_id.clone())) {
                        return Err(format!("{id:?} is a second event of its key"));
                    }
                    if policies.get(&room) == Some(&Policy::PreModerateStrict) && record.verdict != Verdict::Allow {
                        return Err(format!("{id:?} is unjudged in a strict room"));
                    }
                    // Slow mode is checked at the door; a comment sent under other settings may pass. A clock that is set
                    // back between the door and the seal makes the log's distance shorter than the door's.
                    let key = (room.clone(), user.clone(), record.client_msg_id.clone().unwrap());
                    if let Some(mode) = slow.get(&room)
                        && self.sent_under.get(&key).is_some_and(|under| under.iter().eq([&mode.version]))
                        && let Some(last) = spoke.get(&(room.clone(), user.clone()))
                        && mode.slow_mode_until.is_none_or(|until| ts < until)
                        && ts.since(*last) + self.stepped_back < Duration::from_secs(u64::from(mode.slow_mode_seconds))
                    {
                        return Err(format!("{id:?} comes too soon in slow mode"));
                    }
                    spoke.insert((room.clone(), user), ts);
                }
                Body::Ban(ban) => {
                    bans.insert((room.clone(), ban.user.clone()), ban.until);
                }
                Body::Unban(user) => {
                    bans.remove(&(room.clone(), user.clone()));
                }
                Body::Room(settings) => {
                    policies.insert(room.clone(), settings.moderation_policy);
                    slow.insert(room.clone(), settings.clone());
                }
                Body::Score(score) => {
                    let line = tops.entry((room.clone(), score.event.clone())).or_insert((score.revision, id));
                    if score.revision > line.0 {
                        *line = (score.revision, id);
                    }
                }
                Body::Retract(retract) => gone.extend(log[..i].iter().filter_map(|r| {
                    let hit = match &retract.target {
                        RetractTarget::Event(target) => r.event_id() == *target,
                        RetractTarget::User(user) => r.user.as_ref() == Some(user),
                        RetractTarget::Since(user, from) => r.user.as_ref() == Some(user) && *from <= r.ts,
                        RetractTarget::All => true,
                    };
                    (hit && r.room.as_ref() == Some(&room)).then(|| r.event_id())
                })),
                Body::EpochStart | Body::Gift(_) | Body::Config(_) | Body::Audit(_) | Body::Erased => {}
                Body::Wide(_) | Body::Narrow(_) | Body::Tally(_) => {}
                Body::Combo(_) | Body::Banner(_) | Body::BannerEnd(_) => {}
                Body::SiteBan(_) | Body::SiteUnban(_) | Body::Report(_) => {}
                Body::Blocked(Blocked { client_msg_id, .. }) => {
                    let user = record.user.clone().unwrap();
                    if !keys.insert((room.clone(), user, client_msg_id.clone())) {
                        return Err(format!("{id:?} is a second record of its key"));
                    }
                }
                // No room of these scripts holds.
                Body::Held(_) | Body::HeldEnd(_) => return Err(format!("{id:?} was held")),
                Body::Revoke(..) | Body::RevokeEnd(_) | Body::Outage(_) | Body::Feed(_) => {}
                // No script erases anybody.
                Body::EraseUser(_) => return Err(format!("{id:?} erases a user")),
            }
        }
        for view in self.owner.rooms() {
            if view.pseq != pseqs.get(&view.room).copied().unwrap_or_default() {
                return Err("a view's pseq is not the log's".into());
            }
            if let Some(shown) = view.recent.iter().find(|r| gone.contains(&r.event_id())) {
                return Err(format!("{:?} was retracted and is shown", shown.event_id()));
            }
            for top in view.top_scores() {
                let Body::Score(score) = &top.body else { return Err("a score that is none".into()) };
                if tops[&(view.room.clone(), score.event.clone())].1 != top.event_id() {
                    return Err(format!("{:?} is not the highest revision", top.event_id()));
                }
            }
        }
        Ok(())
    }
}
