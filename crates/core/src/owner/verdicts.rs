//! Verdicts: what the classifier's word does to a comment, before it has an id and after.
//!
//! Like a steward at the door with a list, and one in the stand: the first decides who comes in, the second takes out whom the list
//! names only later. Each question to the classifier has a number of its own that never comes again, so a word that comes late is
//! never taken for one about another comment.
//!
//! It must never let a strict room show what has no allow, keep a comment waiting past its deadline, or forget what it has held or
//! refused: both are records, and the author is answered when they are durable.
//!
//! The awkward case is the word that comes between a comment's deadline and its commit: it is kept with the question until the
//! comment has an id that can be taken back.

use std::sync::Arc;
use std::time::Duration;

use crate::dedupe::{KEYS_MAX_BACKEND, Road};
use crate::ids::EventId;
use crate::moderation::{HELD_MAX, NO_VERDICT, Ruling, SHOWN_MAX};
use crate::names::{ClientMsgId, RoomId, UserId};
use crate::owner::Owner;
use crate::owner::admit::may_comment;
use crate::owner::answer::{Answer, Output};
use crate::owner::command::Tag;
use crate::owner::draft::Draft;
use crate::owner::seal::{Becomes, Comment, Waiting};
use crate::owner::view::RoomView;
use crate::planted::planted;
use crate::record::{
    Audience, Audit, Blocked, Body, Comment as Said, End, HELD, Held, HeldEnd, Policy, RAW, Record, RetractTarget,
    Source, Verdict,
};
use crate::reject::{Code, Reject};
use crate::time::{Mono, Wall};

/// Questions are numbered above any command's tag.
pub(super) const QUESTION: Tag = 1 << 63;
/// How long the classifier has for what is shown already.
const SHOWN_WITHIN: Duration = Duration::from_millis(500);
/// After a crash what was shown so long before it is asked about again.
const ASKED_AGAIN: Duration = Duration::from_secs(60);
/// What the author of a flagged comment is told to wait while the room's queue is full.
const FULL_WAIT: Duration = Duration::from_secs(5);
/// The reason of a retract that moderation makes, and who is named for it in the audit.
const REASON: &str = "moderation";

/// Shown without a verdict, or before it.
pub(super) struct Shown {
    at: usize,
    /// `None` until its commit.
    event_id: Option<EventId>,
    /// A block that came before that, with its rule.
    block: Option<Option<Arc<str>>>,
}

impl Owner {
    /// The classifier's word on what [`Output::NeedVerdict`] asked; `None` when it has none to give. Unknown: ignored.
    pub fn on_verdict(&mut self, tag: Tag, ruling: Option<Ruling>, now: Mono, wall: Wall) {
        self.tick(now, wall);
        if let Some(comment) = self.judging.remove(&tag) {
            self.judge_comment(tag, comment, ruling);
        } else if !self.judge_winner(tag, ruling.clone()) {
            self.judge_shown(tag, ruling);
        }
    }

    /// The next question's number.
    pub(super) fn question(&mut self) -> Tag {
        self.questions += 1;
        QUESTION | self.questions
    }

    fn judge_comment(&mut self, question: Tag, mut comment: Comment, ruling: Option<Ruling>) {
        let strict = comment.policy == Policy::PreModerateStrict;
        match ruling {
            Some(ruling) => {
                let holds = self.slots[comment.at].view.as_ref().is_some_and(|view| view.settings.hold_flagged);
                comment.becomes = match ruling.verdict {
                    Verdict::Block => Becomes::Blocked,
                    Verdict::Flag if holds => Becomes::Held,
                    Verdict::Flag if strict => Becomes::Blocked,
                    _ => Becomes::Event,
                };
                comment.ruling = ruling;
            }
            None if strict && !planted(71) => {
                let pending = Answer::Pending { retry_after: self.settings.retry_after };
                return self.settle_comment(comment.tag, comment.held(), pending);
            }
            None => {
                // Without a word in time the room's policy lets it pass, and takes it back if the word is a block.
                comment.ruling = Ruling::of(Verdict::Flag, NO_VERDICT);
                comment.question = Some(question);
                self.watch_shown(question, comment.at, None);
            }
        }
        self.waiting.push_back(Waiting::Comment(comment));
    }

    // ---- what is shown already ----

    /// The question stays open, the oldest of too many excepted.
    pub(super) fn watch_shown(&mut self, question: Tag, at: usize, event_id: Option<EventId>) {
        self.shown.insert(question, Shown { at, event_id, block: None });
        while self.shown.len() > SHOWN_MAX {
            self.shown.pop_first();
        }
    }

    fn judge_shown(&mut self, question: Tag, ruling: Option<Ruling>) {
        let Some(shown) = self.shown.get_mut(&question) else { return };
        let block = ruling.filter(|ruling| ruling.verdict == Verdict::Block && !planted(73)).map(|ruling| ruling.rule);
        match (block, shown.event_id) {
            (Some(rule), Some(event_id)) => {
                self.take_backs.insert(event_id, (shown.at, rule));
                self.shown.remove(&question);
            }
            (Some(rule), None) => shown.block = Some(rule),
            (None, _) => drop(self.shown.remove(&question)),
        }
    }

    /// What became of a comment that did not wait for its verdict.
    pub(super) fn shown_as(&mut self, question: Tag, answer: &Answer) {
        match answer {
            Answer::Published { event_id, .. } => self.was_shown(question, *event_id),
            _ => drop(self.shown.remove(&question)),
        }
    }

    pub(super) fn was_shown(&mut self, question: Tag, id: EventId) {
        let Some(shown) = self.shown.get_mut(&question) else { return };
        shown.event_id = Some(id);
        if let Some(rule) = shown.block.take() {
            self.take_backs.insert(id, (shown.at, rule));
            self.shown.remove(&question);
        }
    }

    /// Asks about what a batch shows unjudged, where the room's policy is to judge it then.
    pub(super) fn ask_after(&mut self, records: &[Arc<Record>], now: Mono) {
        for record in records {
            let Some(&at) = record.room.as_ref().and_then(|room| self.index.get(room)) else { continue };
            let policy = self.slots[at].view.as_ref().map(|view| view.settings.moderation_policy);
            if policy == Some(Policy::PostModerateFast) && record.verdict == Verdict::Unjudged {
                self.ask_about(at, record, now);
            }
        }
    }

    fn ask_about(&mut self, at: usize, record: &Record, now: Mono) {
        let Body::Comment(comment) = &record.body else { return };
        if record.audience == Audience::Nobody {
            return;
        }
        let (question, room) = (self.question(), self.slots[at].room.clone());
        self.watch_shown(question, at, Some(record.event_id()));
        let (text, deadline) = (comment.text.clone(), now + SHOWN_WITHIN);
        self.out.push_back(Output::NeedVerdict { tag: question, room, text, deadline, strict: false });
    }

    /// Recovery: questions died with the process that asked them.
    pub(super) fn start_verdicts(&mut self) {
        for (at, slot) in self.slots.iter().enumerate() {
            let Some(view) = &slot.view else { continue };
            let is_open = |record: &&Arc<Record>| {
                let Body::Comment(comment) = &record.body else { return false };
                let is_late = comment.rule.as_deref() == Some(NO_VERDICT);
                let is_unjudged = record.verdict == Verdict::Unjudged;
                let policy = view.settings.moderation_policy;
                (is_late || is_unjudged && policy == Policy::PostModerateFast) && self.ts.since(record.ts) < ASKED_AGAIN
            };
            self.unasked.extend(view.recent.iter().filter(is_open).map(|record| (at, record.clone())));
        }
    }

    pub(super) fn ask_again(&mut self, now: Mono) {
        for (at, record) in std::mem::take(&mut self.unasked) {
            self.ask_about(at, &record, now);
        }
    }

    /// Takes back what was shown and is blocked. It stays on the list until the retract is durable.
    pub(super) fn seal_take_backs(&mut self, draft: &mut Draft) {
        for (event_id, (at, rule)) in self.take_backs.clone() {
            let (room, n) = (self.slots[at].room.clone(), draft.records.len());
            let sealed = self.seal_retract(draft, room, RetractTarget::Event(event_id), REASON.into());
            if sealed.is_err() || draft.records.len() == n {
                // Somebody else has taken it back.
                self.take_backs.remove(&event_id);
                continue;
            }
            let audit = Audit { what: "moderation: retract".into(), justification: rule.unwrap_or_else(|| "".into()) };
            self.push_private(draft, at, |r| r.body = Body::Audit(audit));
        }
    }

    // ---- what is refused or held ----

    /// Logs a refused comment. `raw`: the id it was said under in a wide room.
    pub(super) fn log_blocked(
        &self,
        draft: &mut Draft,
        at: usize,
        user: UserId,
        (comment, client_msg_id): (Said, Option<ClientMsgId>),
        verdict: Verdict,
        raw: Option<EventId>,
    ) {
        if self.drafted(draft, at).is_none() {
            return;
        }
        self.push_private(draft, at, |r| {
            r.user = Some(user);
            r.verdict = verdict;
            r.source = raw.map(|id| Source { log: RAW.into(), id });
            r.body = Body::Blocked(Blocked { comment, client_msg_id });
        });
    }

    /// Logs a comment that waits for a human's word.
    /// Errors: the room's queue is full, and the author is to come back.
    pub(super) fn log_held(
        &self,
        draft: &mut Draft,
        at: usize,
        user: UserId,
        (comment, client_msg_id): (Said, ClientMsgId),
        verdict: Verdict,
    ) -> Result<Answer, Answer> {
        self.drafted(draft, at).expect("the room of a comment was made before it");
        let view = &draft.views[&at];
        let hold = Duration::from_secs(view.settings.hold_seconds.into());
        if view.held.len() >= HELD_MAX {
            let is_banned = |user: &UserId| self.is_banned_in(draft, at, user);
            let Some(dead) = view.held.values().find(|held| is_dead(view, held, is_banned)).cloned() else {
                return Err(Answer::Pending { retry_after: FULL_WAIT });
            };
            self.log_end(draft, at, &dead, End::Denied);
        }
        let until = draft.ts + hold;
        let record = self.push_private(draft, at, |r| {
            r.user = Some(user);
            r.verdict = verdict;
            r.body = Body::Held(Held { comment, client_msg_id, until });
        });
        Ok(Answer::Held { held_id: record.event_id() })
    }

    /// What a moderator may decide about in a room, oldest first; `None`: there is no such room.
    pub fn held(&mut self, room: &RoomId, now: Mono, wall: Wall) -> Option<Vec<Arc<Record>>> {
        let log_now = self.log_time(now, wall);
        let at = *self.index.get(room)?;
        let view = self.slots[at].view.as_ref()?;
        let is_banned = |user: &UserId| self.is_silenced(at, user, log_now);
        Some(view.held.values().filter(|held| !is_dead(view, held, is_banned)).cloned().collect())
    }

    /// A human's word. `Done` names the event it is shown as, or the end of its wait; nothing when no such comment waits.
    pub(super) fn seal_decision(
        &self,
        draft: &mut Draft,
        room: &RoomId,
        held: EventId,
        approve: bool,
    ) -> Result<Answer, Answer> {
        let (at, view) = self.drafted_for_use(draft, room)?;
        let view = &*view;
        let Some(record) = view.held.get(&held).cloned() else { return Ok(Answer::Done { event_id: None }) };
        let (Body::Held(body), Some(user)) = (&record.body, &record.user) else {
            unreachable!("a view holds held comments of users")
        };
        if let Some(shown) = view.approved.get(&held).copied() {
            self.log_end(draft, at, &record, End::Approved(shown));
            return Ok(Answer::Done { event_id: Some(shown) });
        }
        if !approve {
            return Ok(Answer::Done { event_id: Some(self.log_end(draft, at, &record, End::Denied)) });
        }
        let (open, taken_back) = (may_comment(&view.settings), view.retracted.holds(held, record.ts, Some(user)));
        // By the same batch too.
        let taken_back = taken_back || draft.takes_back(at, &record) && !planted(136);
        let version = self.policy_version_in(draft, at);
        if self.is_banned_in(draft, at, user) {
            return Err(Answer::Reject(Reject::new(Code::Banned, "its author is banned")));
        }
        if taken_back {
            return Err(Answer::Reject(Reject::new(Code::NotAllowed, "it was taken back")));
        }
        open?;
        let shadowed = self.is_shadowed_in(draft, at, user);
        let shown = draft.push(Some(room), |r| {
            r.user = Some(user.clone());
            r.client_msg_id = Some(body.client_msg_id.clone());
            r.audience = if shadowed { Audience::Author } else { Audience::Everyone };
            r.verdict = Verdict::Allow;
            r.policy_version = version;
            r.source = Some(Source { log: HELD.into(), id: held });
            r.body = Body::Comment(Said { rule: Some("review".into()), shadowed, ..body.comment.clone() });
        });
        let event_id = shown.event_id();
        self.log_end(draft, at, &record, End::Approved(event_id));
        Ok(Answer::Done { event_id: Some(event_id) })
    }

    pub(super) fn seal_held_end(&self, draft: &mut Draft, at: usize, held: EventId) {
        let Some(view) = self.drafted(draft, at) else { return };
        if let Some(record) = view.held.get(&held).cloned() {
            self.log_end(draft, at, &record, End::Expired);
        }
    }

    /// The end of a wait. What is shown already was approved, whatever is said of it later: a torn batch may end with the comment.
    fn log_end(&self, draft: &mut Draft, at: usize, held: &Record, end: End) -> EventId {
        let Body::Held(body) = &held.body else { unreachable!("a view holds held comments") };
        let (held_id, client_msg_id) = (held.event_id(), body.client_msg_id.clone());
        let shown = self.drafted(draft, at).and_then(|view| view.approved.get(&held_id).copied());
        let end = shown.map_or(end, End::Approved);
        let record = self.push_private(draft, at, |r| {
            r.user = held.user.clone();
            r.body = Body::HeldEnd(HeldEnd { held: held_id, client_msg_id, end });
        });
        record.event_id()
    }

    /// Held comments that nobody has decided about by `log_now`.
    pub(super) fn queue_held_ends(&mut self, log_now: Wall) {
        while let Some(&(end, at, held)) = self.held_ends.first().filter(|(end, ..)| *end <= log_now) {
            self.held_ends.remove(&(end, at, held));
            self.waiting.push_back(Waiting::HeldEnd { at, held });
        }
    }

    pub(super) fn index_held(&mut self, at: usize, held: EventId) {
        let record = self.slots[at].view.as_ref().and_then(|view| view.held.get(&held));
        if let Some(Body::Held(body)) = record.map(|record| &record.body) {
            self.held_ends.insert((body.until, at, held));
        }
    }

    /// After a room was taken from a checkpoint.
    pub(super) fn index_all_held(&mut self, at: usize) {
        let held: Vec<EventId> = self.slots[at].view.iter().flat_map(|view| view.held.keys().copied()).collect();
        for id in held {
            self.index_held(at, id);
        }
    }

    // ---- what the log says ----

    /// The effect of one valid record beside its room's view. `decided`: the held comment whose wait it ends.
    pub(super) fn take_in_verdicts(&mut self, at: usize, record: &Arc<Record>, decided: Option<Arc<Record>>) {
        match &record.body {
            Body::Held(_) => self.index_held(at, record.event_id()),
            Body::HeldEnd(HeldEnd { held, end, .. }) => {
                let Some(decided) = decided else { return };
                if let Body::Held(body) = &decided.body {
                    self.held_ends.remove(&(body.until, at, *held));
                }
                if self.epoch.is_some() {
                    self.out.push_back(Output::Decided { held_id: *held, record: decided, end: *end });
                }
            }
            Body::Retract(retract) => {
                if let RetractTarget::Event(id) = retract.target {
                    self.take_backs.remove(&id);
                }
            }
            _ => {}
        }
    }

    /// What a retry and slow mode must know of a comment that is no event.
    pub(super) fn take_moderated_keys(&mut self, record: &Record) {
        let (Some(room), Some(author)) = (&record.room, &record.user) else { return };
        let at = match &record.body {
            Body::Blocked(_) | Body::Held(_) | Body::HeldEnd(_) => self.slot_of(room),
            _ => return,
        };
        let (said, key, road) = match &record.body {
            Body::Blocked(Blocked { comment, client_msg_id: Some(key) }) => (comment, key, Road::Blocked),
            Body::Blocked(_) => {
                if let Some(raw_id) = record.raw_id().filter(|_| self.epoch.is_none()) {
                    self.recover_blocked(at, raw_id);
                }
                return;
            }
            Body::Held(Held { comment, client_msg_id, .. }) => (comment, client_msg_id, Road::Held),
            Body::HeldEnd(HeldEnd { held, client_msg_id, end: End::Denied | End::Expired }) => {
                if let Some(user) = self.slots[at].users.get_mut(author) {
                    user.keys.decided(client_msg_id, *held, *held, Road::Blocked);
                }
                return;
            }
            _ => return,
        };
        let digest = Some(self.comment_digest(&said.text, said.reply_to));
        let forgets = self.epoch.is_none() && (planted(3) || planted(75));
        let user = self.user_of(at, author, record.ts);
        if road == Road::Held {
            user.slow.accept(record.ts);
        }
        if !forgets {
            user.keys.insert(key, digest, (record.event_id(), road), record.ts, KEYS_MAX_BACKEND);
        }
    }
}

/// Whether there is nothing to decide about a held comment: it was taken back, its author was banned since, or it is shown.
fn is_dead(view: &RoomView, held: &Record, is_banned: impl Fn(&UserId) -> bool) -> bool {
    let (id, user) = (held.event_id(), held.user.as_ref());
    view.approved.contains_key(&id) || view.retracted.holds(id, held.ts, user) || user.is_some_and(is_banned)
}
