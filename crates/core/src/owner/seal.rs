//! Giving ids: all that waits becomes one batch, in order of arrival.
//!
//! What was checked at the door is checked once more where it must be exact: against the log's state **and** what the same
//! batch already holds. A batch's effects exist only in its [`Draft`]s until the commit returns; the draft is then thrown
//! away and the records are taken in like any others.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ids::{Epoch, EventId, Seq};
use crate::names::{ClientMsgId, Key, RoomId, UserId};
use crate::owner::admit::{banned, may_comment, published};
use crate::owner::answer::Answer;
use crate::owner::command::{Command, GiftIn, Publish, Tag};
use crate::owner::commit::{Flight, Settle};
use crate::owner::view::{RoomView, gift_digest};
use crate::owner::{Owner, fresh_room};
use crate::planted::planted;
use crate::record::{
    Audience, Ban, Body, Comment as CommentBody, Config, Policy, Record, Retract, RetractTarget, Room, RoomState,
    ScoreKind, ScoreState, Verdict,
};
use crate::reject::{Code, Reject};
use crate::revision::{Decision, ScoreIn};
use crate::rooms::{self, RoomChange};
use crate::time::{Mono, Wall};

/// A command that has passed the door.
pub(super) enum Waiting {
    Comment(Comment),
    Other {
        tag: Tag,
        command: Command,
    },
    /// A slow mode's end has come; viewers are told.
    SlowModeEnd {
        at: usize,
        end: Wall,
    },
}

/// A comment that holds its claims.
pub(super) struct Comment {
    pub tag: Tag,
    pub at: usize,
    pub publish: Publish,
    pub verdict: Verdict,
    /// The policy it was judged under.
    pub policy: Policy,
    pub policy_version: u32,
    /// For the verdict.
    pub deadline: Mono,
}

/// The claims of one comment.
#[derive(Clone)]
pub(super) struct Held {
    pub at: usize,
    pub user: UserId,
    pub key: ClientMsgId,
    /// Paid for from the rates.
    pub paid: bool,
}

impl Comment {
    pub fn held(&self) -> Held {
        Held {
            at: self.at,
            user: self.publish.author.user.clone(),
            key: self.publish.client_msg_id.clone(),
            paid: self.publish.author.standing != super::command::Standing::Backend,
        }
    }
}

/// A batch being made.
struct Draft {
    epoch: Epoch,
    /// Of the next record.
    seq: u64,
    seq_max: u64,
    ts: Wall,
    region: Arc<str>,
    records: Vec<Arc<Record>>,
    settles: Vec<Settle>,
    /// Rooms that this batch changes in more than comments.
    views: BTreeMap<usize, RoomView>,
    gifts: BTreeMap<(usize, Key), (EventId, u64)>,
    retracts: BTreeMap<(usize, EventId), EventId>,
}

impl Draft {
    /// Gives the next id.
    fn push(&mut self, room: Option<&RoomId>, make: impl FnOnce(&mut Record)) -> Arc<Record> {
        if self.seq > self.seq_max {
            self.epoch = Epoch::new(self.epoch.value() + 1).expect("2^20 epochs of 2^32 records outlast any log");
            self.seq = 0;
            self.begin();
        }
        let mut record = self.blank(room);
        make(&mut record);
        self.seq += 1;
        let record = Arc::new(record);
        self.records.push(record.clone());
        record
    }

    /// Opens the epoch.
    fn begin(&mut self) {
        let record = self.blank(None);
        self.seq += 1;
        self.records.push(Arc::new(record));
    }

    /// An EpochStart at the next place, for its maker to fill in.
    fn blank(&self, room: Option<&RoomId>) -> Record {
        Record {
            epoch: self.epoch,
            seq: Seq::new(self.seq).expect("it is at most the last seq of an epoch"),
            room: room.cloned(),
            ts: self.ts,
            region: self.region.clone(),
            user: None,
            client_msg_id: None,
            pseq: None,
            verdict: Verdict::Unjudged,
            policy_version: 0,
            audience: Audience::Everyone,
            source: None,
            body: Body::EpochStart,
        }
    }
}

impl Owner {
    /// Gives ids to all that waits; `None` when nothing does or a batch is in flight. The batch is to be appended as a whole
    /// and its outcome told by [`Owner::on_committed`] or [`Owner::on_failed`].
    ///
    /// Panics: before [`Owner::start`].
    pub fn seal(&mut self, now: Mono, wall: Wall) -> Option<Arc<[Arc<Record>]>> {
        self.tick(now, wall);
        let epoch = self.epoch.expect("an owner is started before it seals");
        let newest = self.reader.spans().last().copied();
        let begun = newest.filter(|n| n.epoch >= epoch);
        if self.flight.is_some() || (self.waiting.is_empty() && begun.is_some()) {
            return None;
        }
        let mut draft = Draft {
            epoch: begun.map_or(epoch, |n| n.epoch),
            seq: begun.map_or(0, |n| n.last_seq.value() + 1 + self.leaked()),
            seq_max: self.settings.seq_max,
            ts: self.log_now(wall),
            region: self.settings.region.clone(),
            records: Vec::with_capacity(self.waiting.len() + 1),
            settles: Vec::with_capacity(self.waiting.len()),
            views: BTreeMap::new(),
            gifts: BTreeMap::new(),
            retracts: BTreeMap::new(),
        };
        if begun.is_none() {
            draft.begin();
        }
        let mut waiting = std::mem::take(&mut self.waiting);
        for one in waiting.drain(..) {
            match one {
                Waiting::Comment(comment) => self.seal_comment(&mut draft, comment),
                Waiting::Other { tag, command } => {
                    let answer = match command {
                        Command::Score(score) => self.seal_score(&mut draft, score),
                        Command::Gift(gift) => self.seal_gift(&mut draft, gift),
                        Command::PutRoom { room, change, if_version } => {
                            self.seal_room(&mut draft, room, change, if_version)
                        }
                        Command::Ban { room, user, until, reason } => {
                            self.log_private(&mut draft, &room, Body::Ban(Ban { user, until, reason }))
                        }
                        Command::Unban { room, user } => self.seal_unban(&mut draft, room, user),
                        Command::Retract { room, target, reason } => {
                            self.seal_retract(&mut draft, room, target, reason)
                        }
                        Command::Publish(_) => unreachable!("a comment waits as a comment"),
                    };
                    draft.settles.push(Settle { tag, answer: answer.unwrap_or_else(|reject| reject), held: None });
                }
                Waiting::SlowModeEnd { at, end } => self.seal_slow_mode_end(&mut draft, at, end),
            }
        }
        self.waiting = waiting;
        let Draft { records, settles, .. } = draft;
        if records.is_empty() {
            // Nothing depends on a commit: the answers rest on what is in the log.
            for settle in settles {
                self.settle(settle.tag, settle.held, settle.answer);
            }
            return None;
        }
        let records: Arc<[Arc<Record>]> = records.into();
        if planted(1) {
            for settle in &settles {
                let (tag, answer) = (settle.tag, settle.answer.clone());
                self.out.push_back(super::answer::Output::Answer { tag, answer });
            }
        }
        self.flight = Some(Flight { records: records.clone(), settles });
        Some(records)
    }

    fn seal_comment(&self, draft: &mut Draft, comment: Comment) {
        let held = comment.held();
        let tag = comment.tag;
        let answer = self.comment_record(draft, comment).unwrap_or_else(|reject| reject);
        draft.settles.push(Settle { tag, answer, held: Some(held) });
    }

    fn comment_record(&self, draft: &mut Draft, comment: Comment) -> Result<Answer, Answer> {
        let Comment { at, publish, verdict, policy_version, .. } = comment;
        if draft.views.get(&at).or(self.slots[at].view.as_ref()).is_none() {
            self.make_room(draft, at);
        }
        let view = draft.views.get(&at).or(self.slots[at].view.as_ref()).expect("the room was made above");
        let author = publish.author;
        if view.is_banned(&author.user, draft.ts) && !planted(6) {
            return Err(banned());
        }
        may_comment(&view.settings)?;
        let strict = view.settings.moderation_policy == Policy::PreModerateStrict;
        if strict && (verdict != Verdict::Allow || policy_version != view.policy_version) {
            return Err(Answer::Pending { retry_after: self.settings.retry_after });
        }
        let version = view.policy_version;
        let room = publish.room;
        let record = draft.push(Some(&room), |r| {
            r.user = Some(author.user);
            r.client_msg_id = Some(publish.client_msg_id);
            r.verdict = verdict;
            r.policy_version = version;
            let reply_to = publish.reply_to;
            r.body = Body::Comment(CommentBody {
                display: author.display,
                badges: author.badges,
                text: publish.text,
                reply_to,
            });
        });
        Ok(published(&room, record.event_id(), false))
    }

    /// The room as this batch leaves it so far, to be changed by it. `None` when there is no such room.
    fn drafted<'a>(&self, draft: &'a mut Draft, at: usize) -> Option<&'a mut RoomView> {
        match draft.views.entry(at) {
            std::collections::btree_map::Entry::Occupied(there) => Some(there.into_mut()),
            std::collections::btree_map::Entry::Vacant(place) => {
                self.slots[at].view.as_ref().map(|view| place.insert(view.clone()))
            }
        }
    }

    /// As [`Owner::drafted`], of a room that may be made by its first use.
    fn drafted_for_use<'a>(&self, draft: &'a mut Draft, room: &RoomId) -> Result<(usize, &'a mut RoomView), Answer> {
        let no_room = || Answer::Reject(Reject::new(Code::NoRoom, "there is no such room"));
        let at = *self.index.get(room).ok_or_else(no_room)?;
        if self.drafted(draft, at).is_none() {
            if !self.settings.create_on_use {
                return Err(no_room());
            }
            self.make_room(draft, at);
        }
        Ok((at, draft.views.get_mut(&at).expect("it was drafted above")))
    }

    /// Logs a room's first record.
    fn make_room(&self, draft: &mut Draft, at: usize) {
        let room = &self.slots[at].room;
        self.log_settings(draft, at, fresh_room(room), Config::default());
    }

    /// Logs a room's new settings and, when viewers must know, the change.
    fn log_settings(&self, draft: &mut Draft, at: usize, settings: Arc<Room>, config: Config) {
        let room = &self.slots[at].room;
        let old = draft.views.get(&at).or(self.slots[at].view.as_ref());
        let policy_version = old.map_or(1, |v| v.policy_version);
        let record = draft.push(Some(room), |r| {
            r.audience = Audience::Nobody;
            r.policy_version = policy_version;
            r.body = Body::Room(settings.clone());
        });
        let view = match self.drafted(draft, at) {
            Some(view) => view,
            None => draft.views.entry(at).or_insert_with(|| RoomView::new(room.clone(), settings)),
        };
        view.apply(&record);
        if config != Config::default() {
            self.log_priority(draft, at, |r| r.body = Body::Config(config));
        }
    }

    /// Logs an event with the room's next priority number.
    fn log_priority(&self, draft: &mut Draft, at: usize, make: impl FnOnce(&mut Record)) -> Arc<Record> {
        let view = self.drafted(draft, at).expect("a priority event is of a room that is there");
        let pseq = view.pseq.next();
        let (room, policy_version) = (view.room.clone(), view.policy_version);
        let record = draft.push(Some(&room), |r| {
            r.pseq = Some(pseq);
            r.policy_version = policy_version;
            make(r);
        });
        let view = draft.views.get_mut(&at).expect("it was drafted above");
        match &record.body {
            // Kept beside the drafts: a copy of a big map for each of them would be work without end.
            Body::Gift(_) | Body::Retract(_) => {
                view.pseq = pseq;
                view.as_of = record.event_id().position();
            }
            _ => view.apply(&record),
        }
        record
    }

    fn seal_score(&self, draft: &mut Draft, score: ScoreIn) -> Result<Answer, Answer> {
        let mut rooms = self.rooms_of(draft, &score.match_id);
        if let Some(room) = &score.room
            && self.settings.create_on_use
            && let Some(&at) = self.index.get(room)
            && !rooms.contains(&at)
        {
            self.bind(draft, room, &score.match_id)?;
            rooms.push(at);
        }
        let Some(&first) = rooms.first() else {
            let fields = vec![("match_id".into(), "a match that a room shows".into())];
            return Err(Answer::Reject(Reject::fields(Code::UnknownMatch, "no room shows this match", fields)));
        };
        let view = draft.views.get(&first).or(self.slots[first].view.as_ref()).expect("a bound room is there");
        let room = view.room.clone();
        let state = view.settings.state;
        let unknown = Decision::Fresh {
            revision: score.revision.unwrap_or(crate::ids::Revision(1)),
            superseded: false,
            known_event: false,
        };
        let decision = view.scores.get(&score.match_id).map_or(unknown, |ledger| ledger.decide(&score));
        let (revision, superseded, known_event) = match decision {
            Decision::Repeat(seen) => {
                let (event_id, revision, superseded) = (seen.event_id, seen.revision, seen.superseded);
                return Ok(Answer::Score { accepted: false, event_id, revision, superseded, room });
            }
            Decision::Conflict => {
                let text = "this revision was sent with another payload";
                return Err(Answer::Reject(Reject::new(Code::PayloadConflict, text)));
            }
            Decision::Fresh { revision, superseded, known_event } => (revision, superseded, known_event),
        };
        let corrects = known_event || score.kind == ScoreKind::Correction || score.state == ScoreState::Withdrawn;
        if !(state == RoomState::Live || state == RoomState::Settling && corrects) {
            let text = format!("the room is {}", state.name());
            return Err(Answer::Reject(Reject::new(Code::RoomState, text)));
        }
        let body = Body::Score(score.into_score(revision, superseded));
        let mut event_id = None;
        for &at in &rooms {
            let record = self.log_priority(draft, at, |r| r.body = body.clone());
            event_id.get_or_insert(record.event_id());
        }
        let event_id = event_id.expect("there is a first room");
        Ok(Answer::Score { accepted: true, event_id, revision, superseded, room })
    }

    /// The rooms that show a match as this batch leaves them so far, the first bound first.
    fn rooms_of(&self, draft: &Draft, match_id: &Key) -> Vec<usize> {
        let in_log = self.matches.get(match_id).into_iter().flatten().copied();
        let mut rooms: Vec<usize> = in_log.chain(draft.views.keys().copied()).collect();
        rooms.sort_unstable();
        rooms.dedup();
        let view = |at: usize| draft.views.get(&at).or(self.slots[at].view.as_ref());
        let mut bound: Vec<(EventId, usize)> =
            rooms.into_iter().filter_map(|at| Some((*view(at)?.bound.get(match_id)?, at))).collect();
        bound.sort_unstable();
        bound.into_iter().map(|(_, at)| at).collect()
    }

    fn bind(&self, draft: &mut Draft, room: &RoomId, match_id: &Key) -> Result<(), Answer> {
        let (at, view) = self.drafted_for_use(draft, room)?;
        let settings = view.settings.clone();
        let mut matches = settings.matches.clone();
        matches.push(match_id.clone());
        let wanted = RoomChange { matches: Some(matches), ..RoomChange::default() };
        self.change_room(draft, at, &settings, &wanted).map(|_| ())
    }

    /// Errors: `bad_field` with every broken field.
    fn change_room(&self, draft: &mut Draft, at: usize, old: &Room, wanted: &RoomChange) -> Result<Arc<Room>, Answer> {
        let changed = rooms::change(old, wanted, draft.ts)
            .map_err(|f| Answer::Reject(Reject::fields(Code::BadField, "the room's settings are not valid", f)))?;
        let exists = draft.views.get(&at).or(self.slots[at].view.as_ref()).is_some();
        let mut settings = changed.room;
        if !exists {
            settings.version = 1;
        }
        let settings = Arc::new(settings);
        if !exists || *settings != *old {
            // Nobody can be watching a room before its first record: it has nothing to be told.
            let config = if exists { changed.config } else { Config::default() };
            self.log_settings(draft, at, settings.clone(), config);
        }
        Ok(settings)
    }

    fn seal_room(
        &self,
        draft: &mut Draft,
        room: RoomId,
        change: RoomChange,
        if_version: Option<u64>,
    ) -> Result<Answer, Answer> {
        let at = self.index[&room];
        let old = draft.views.get(&at).or(self.slots[at].view.as_ref()).map(|v| v.settings.clone());
        let version = old.as_ref().map_or(0, |r| r.version);
        if if_version.is_some_and(|wanted| wanted != version) {
            let text = format!("the room is at version {version}");
            return Err(Answer::Reject(Reject::new(Code::Stale, text)));
        }
        let old = old.unwrap_or_else(|| Arc::new(Room { version: 0, ..Room::fresh(room.as_str()) }));
        let settings = self.change_room(draft, at, &old, &change)?;
        Ok(Answer::Room { version: settings.version, settings })
    }

    fn seal_slow_mode_end(&self, draft: &mut Draft, at: usize, end: Wall) {
        let Some(view) = draft.views.get(&at).or(self.slots[at].view.as_ref()) else { return };
        let settings = view.settings.clone();
        if settings.slow_mode_until == Some(end) {
            let off = RoomChange { slow_mode_seconds: Some(0), ..RoomChange::default() };
            let changed = self.change_room(draft, at, &settings, &off);
            assert!(changed.is_ok(), "turning slow mode off is always allowed");
        }
    }

    fn seal_unban(&self, draft: &mut Draft, room: RoomId, user: UserId) -> Result<Answer, Answer> {
        let (_, view) = self.drafted_for_use(draft, &room)?;
        if !view.bans.contains_key(&user) {
            return Ok(Answer::Done { event_id: None });
        }
        self.log_private(draft, &room, Body::Unban(user))
    }

    fn log_private(&self, draft: &mut Draft, room: &RoomId, body: Body) -> Result<Answer, Answer> {
        let (at, view) = self.drafted_for_use(draft, room)?;
        let policy_version = view.policy_version;
        let record = draft.push(Some(room), |r| {
            r.audience = Audience::Nobody;
            r.policy_version = policy_version;
            r.body = body;
        });
        draft.views.get_mut(&at).expect("it was drafted above").apply(&record);
        Ok(Answer::Done { event_id: Some(record.event_id()) })
    }

    fn seal_gift(&self, draft: &mut Draft, gift: GiftIn) -> Result<Answer, Answer> {
        let ts = draft.ts;
        let (at, view) = self.drafted_for_use(draft, &gift.room)?;
        let digest = gift_digest(Some(&gift.user), &gift.gift);
        let is_banned = view.is_banned(&gift.user, ts);
        let closed = may_comment(&view.settings);
        let in_log = view.gifts.by_key.get(&gift.gift.gift_id).copied();
        let key = (at, gift.gift.gift_id.clone());
        if let Some((event_id, first)) = in_log.or(draft.gifts.get(&key).copied()) {
            if first != digest {
                let text = "another gift was sent with this gift_id";
                return Err(Answer::Reject(Reject::new(Code::IdempotencyConflict, text)));
            }
            return Ok(Answer::Done { event_id: Some(event_id) });
        }
        if is_banned {
            return Err(banned());
        }
        closed?;
        let record = self.log_priority(draft, at, |r| {
            r.user = Some(gift.user);
            r.body = Body::Gift(gift.gift);
        });
        draft.gifts.insert(key, (record.event_id(), digest));
        Ok(Answer::Done { event_id: Some(record.event_id()) })
    }

    fn seal_retract(
        &self,
        draft: &mut Draft,
        room: RoomId,
        target: RetractTarget,
        reason: Arc<str>,
    ) -> Result<Answer, Answer> {
        let head = self.head();
        let (at, view) = self.drafted_for_use(draft, &room)?;
        if let RetractTarget::Event(id) = target {
            // An id that was never given out names nothing: silence, so that ids cannot be probed.
            if id.position() > head {
                return Ok(Answer::Done { event_id: None });
            }
            let before = view.retracted.events.get(&id).copied();
            if let Some(event_id) = before.or(draft.retracts.get(&(at, id)).copied()) {
                return Ok(Answer::Done { event_id: Some(event_id) });
            }
        }
        let body = Body::Retract(Retract { target: target.clone(), reason });
        let record = self.log_priority(draft, at, |r| r.body = body);
        if let RetractTarget::Event(id) = target {
            draft.retracts.insert((at, id), record.event_id());
        }
        Ok(Answer::Done { event_id: Some(record.event_id()) })
    }
}
