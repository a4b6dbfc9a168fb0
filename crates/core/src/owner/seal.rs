//! Giving ids: all that waits becomes one batch, in order of arrival.
//!
//! What was checked at the door is checked once more where it must be exact: against the log's state **and** what the same
//! batch already holds. A batch's effects exist only in its [`Draft`]s until the commit returns; the draft is then thrown
//! away and the records are taken in like any others.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::ids::EventId;
use crate::moderation::Ruling;
use crate::names::{ClientMsgId, UserId};
use crate::owner::Owner;
use crate::owner::admit::{banned, may_comment, published, refused};
use crate::owner::answer::Answer;
use crate::owner::command::{Command, Publish, Tag};
use crate::owner::commit::{Flight, Settle};
use crate::owner::draft::Draft;
use crate::owner::likes::Sealed;
use crate::planted::planted;
use crate::record::{Audience, Audit, Body, Comment as CommentBody, MatchFeed, Policy, Record, Verdict, count_winners};
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
    /// A pin's end has come; viewers are told.
    PinEnd {
        at: usize,
    },
    /// A settling room's end has come: it closes.
    Settled {
        at: usize,
    },
    /// Something of the room's combos is to be told.
    Combos {
        at: usize,
    },
    /// Nobody has decided about a held comment.
    HeldEnd {
        at: usize,
        held: EventId,
    },
}

/// What a comment is to be in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Becomes {
    /// An event, or a raw comment where its room is wide.
    Event,
    Blocked,
    Held,
}

/// A comment that holds its claims.
pub(super) struct Comment {
    pub tag: Tag,
    pub at: usize,
    pub publish: Publish,
    pub ruling: Ruling,
    pub becomes: Becomes,
    /// The question that it did not wait for any longer.
    pub question: Option<Tag>,
    /// The policy it was judged under.
    pub policy: Policy,
    pub policy_version: u32,
    /// For the verdict.
    pub deadline: Mono,
    /// The room was wide: it was not to be judged.
    pub was_wide: bool,
}

/// The claims of one comment.
#[derive(Clone)]
pub(super) struct Held {
    pub at: usize,
    pub user: UserId,
    pub key: ClientMsgId,
    /// Paid for from the rates.
    pub paid: bool,
    /// As [`Comment::question`].
    pub question: Option<Tag>,
}

impl Comment {
    pub fn held(&self) -> Held {
        Held {
            at: self.at,
            user: self.publish.author.user.clone(),
            key: self.publish.client_msg_id.clone(),
            paid: self.publish.author.standing != super::command::Standing::Backend,
            question: self.question,
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
        let tally = self.tally_due().is_some_and(|at| at <= now);
        let is_idle = self.waiting.is_empty() && !self.has_wide_work() && !tally && self.take_backs.is_empty();
        if self.flight.is_some() || (is_idle && begun.is_some()) {
            return None;
        }
        let mut draft = Draft {
            epoch: begun.map_or(epoch, |n| n.epoch),
            seq: begun.map_or(0, |n| n.last_seq.value() + 1 + self.leaked()),
            seq_max: self.settings.seq_max,
            ts: self.log_now(),
            region: self.settings.region.clone(),
            records: Vec::with_capacity(self.waiting.len() + 1),
            settles: Vec::with_capacity(self.waiting.len()),
            views: BTreeMap::new(),
            gifts: BTreeMap::new(),
            site: None,
            access: None,
            retracts: BTreeMap::new(),
            taken_back: Vec::new(),
            winners: Vec::new(),
            apart: Vec::new(),
            reports: BTreeSet::new(),
            won: BTreeMap::new(),
        };
        // What an owner before this one may still have written is read with the start of the epoch: nothing that this one
        // decides by itself, from what it knew before, stands in the same batch.
        let is_first = begun.is_none();
        if is_first {
            draft.begin();
        } else {
            self.seal_wide(&mut draft);
            self.seal_take_backs(&mut draft);
        }
        let mut waiting = std::mem::take(&mut self.waiting);
        let mut later = VecDeque::new();
        let mut erasures = Vec::new();
        for one in waiting.drain(..) {
            match one {
                Waiting::SlowModeEnd { .. }
                | Waiting::PinEnd { .. }
                | Waiting::Settled { .. }
                | Waiting::Combos { .. }
                | Waiting::HeldEnd { .. }
                    if is_first =>
                {
                    later.push_back(one);
                }
                Waiting::Comment(comment) => self.seal_comment(&mut draft, comment),
                Waiting::Other { tag, command: Command::EraseUser { by, user } } => erasures.push((tag, by, user)),
                Waiting::Other { tag, command } => {
                    let answer = self.seal_other(&mut draft, command);
                    draft.settles.push(Settle { tag, answer: answer.unwrap_or_else(|reject| reject), held: None });
                }
                Waiting::SlowModeEnd { at, end } => self.seal_slow_mode_end(&mut draft, at, end),
                Waiting::PinEnd { at } => self.seal_pin_end(&mut draft, at),
                Waiting::Settled { at } => self.seal_settled(&mut draft, at),
                Waiting::Combos { at } => self.seal_combos(&mut draft, at),
                Waiting::HeldEnd { at, held } => self.seal_held_end(&mut draft, at, held),
            }
        }
        waiting.append(&mut later);
        self.waiting = waiting;
        // Behind all else that is said and done in the batch, so that nothing of it is about a user who is gone.
        for (tag, by, user) in erasures {
            let answer = self.seal_erase_user(&mut draft, by, user);
            draft.settles.push(Settle { tag, answer, held: None });
        }
        // Last: what the same batch says of bans and rooms holds for the likes in it.
        let likes = if tally && !is_first { self.seal_likes(&mut draft, now) } else { Sealed::default() };
        let Draft { records, settles, winners, apart, .. } = draft;
        let mut records = records;
        count_winners(&mut records);
        if records.is_empty() {
            // Nothing depends on a commit: the answers rest on what is in the log.
            self.index_waiting_combos();
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
        self.flight = Some(Flight { records: records.clone(), settles, likes, winners, apart });
        Some(records)
    }

    fn seal_other(&self, draft: &mut Draft, command: Command) -> Result<Answer, Answer> {
        match command {
            Command::Score(score) => self.seal_score(draft, score),
            Command::Gift(gift) => self.seal_gift(draft, gift),
            Command::Banner(banner) => self.seal_banner(draft, banner),
            Command::BannerEnd { by, id } => Ok(self.seal_banner_end(draft, by, id)),
            Command::Revoke { by, what, lasts } => self.seal_revoke(draft, by, what, lasts),
            Command::RevokeEnd { by, what } => Ok(self.seal_revoke_end(draft, by, what)),
            Command::Outage { by, lasts } => Ok(self.seal_outage(draft, by, lasts)),
            Command::PutRoom { room, change, if_version } => self.seal_room(draft, room, *change, if_version),
            Command::Ban { room, ban, purge } => self.seal_ban(draft, &room, ban, purge),
            Command::Report(report) => self.seal_report(draft, report),
            Command::SiteBan { by, ban, purge } => self.seal_site_ban(draft, by, ban, purge),
            Command::SiteUnban { by, user } => Ok(self.seal_site_unban(draft, by, user)),
            Command::Unban { room, user } => self.seal_unban(draft, room, user),
            Command::Retract { room, target, reason } => self.seal_retract(draft, room, target, reason),
            Command::Decide { room, held, approve } => self.seal_decision(draft, &room, held, approve),
            Command::SetFeed { match_id, primary, stand_by, if_version } => {
                self.seal_feed(draft, MatchFeed { match_id, primary, stand_by, twins: Vec::new() }, if_version)
            }
            Command::TypeScore { typed, if_version } => self.seal_typed(draft, &typed, if_version),
            Command::Audited { by, audit, command } => self.seal_audited(draft, by, audit, *command),
            Command::EraseUser { .. } => unreachable!("users are erased at the end of a batch"),
            Command::Publish(_) | Command::React(_) => {
                unreachable!("a comment waits as a comment, a reaction not at all")
            }
        }
    }

    fn seal_audited(&self, draft: &mut Draft, by: UserId, audit: Audit, command: Command) -> Result<Answer, Answer> {
        let room = match &command {
            Command::PutRoom { room, .. }
            | Command::Ban { room, .. }
            | Command::Unban { room, .. }
            | Command::Retract { room, .. }
            | Command::Decide { room, .. } => Some(room.clone()),
            // The room that decides about the match keeps it.
            Command::SetFeed { .. } | Command::TypeScore { .. } => None,
            other => unreachable!("no operator's write: {other:?}"),
        };
        let answer = self.seal_other(draft, command)?;
        let room = match (&room, &answer) {
            (Some(room), _) | (None, Answer::Match { room, .. }) => room,
            (None, other) => unreachable!("a match's change is not answered by {other:?}"),
        };
        self.log_audit(draft, room, by, audit);
        Ok(answer)
    }

    fn seal_comment(&self, draft: &mut Draft, comment: Comment) {
        let held = comment.held();
        let tag = comment.tag;
        let answer = self.comment_record(draft, comment).unwrap_or_else(|reject| reject);
        draft.settles.push(Settle { tag, answer, held: Some(held) });
    }

    fn comment_record(&self, draft: &mut Draft, comment: Comment) -> Result<Answer, Answer> {
        let Comment { at, publish, ruling, becomes, policy, policy_version, was_wide, .. } = comment;
        let judged_first = policy.judges_first();
        self.make_room_if_missing(draft, at);
        let view = self.view_in(draft, at).expect("the room was made above");
        let author = publish.author;
        if self.is_banned_in(draft, at, &author.user) && !planted(6) {
            return Err(banned());
        }
        let shadowed = self.is_shadowed_in(draft, at, &author.user);
        may_comment(&view.settings)?;
        let (wide, version) = (view.wide, self.policy_version_in(draft, at));
        let said = CommentBody {
            display: author.display,
            badges: author.badges,
            text: publish.text,
            reply_to: publish.reply_to,
            won: None,
            rule: ruling.rule.clone(),
            shadowed,
        };
        let (room, user, key) = (publish.room, author.user, publish.client_msg_id);
        match becomes {
            Becomes::Event => {}
            Becomes::Blocked => {
                self.log_blocked(draft, at, user, (said, Some(key)), ruling.verdict, None);
                return Ok(refused());
            }
            Becomes::Held => return self.log_held(draft, at, user, (said, key), ruling.verdict),
        }
        if !wide {
            let policy = view.settings.moderation_policy;
            let strict = policy == Policy::PreModerateStrict;
            // It came when the room was wide, where only winners are judged, or when nobody was to be judged first.
            if policy.judges_first() && (was_wide || !judged_first)
                || strict
                    && (ruling.verdict != Verdict::Allow && !planted(71) || policy_version != version && !planted(72))
            {
                return Err(Answer::Pending { retry_after: self.settings.retry_after });
            }
        }
        let record = draft.push(Some(&room), |r| {
            r.user = Some(user);
            r.client_msg_id = Some(key);
            r.audience = match (wide, shadowed && !planted(91)) {
                // In a wide room it is kept as it was said, for the window.
                (true, _) => Audience::Nobody,
                (false, true) => Audience::Author,
                (false, false) => Audience::Everyone,
            };
            r.verdict = ruling.verdict;
            r.policy_version = version;
            r.body = Body::Comment(said);
        });
        Ok(match wide {
            true => {
                Answer::Raw { raw_id: record.event_id(), partition: record.partition(), duplicate: false, fate: None }
            }
            false => published(&room, record.event_id(), false),
        })
    }
}
