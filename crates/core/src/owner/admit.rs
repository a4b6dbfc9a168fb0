//! The checks at the door, in their order: room and ban, idempotency, load, slow mode and rates, moderation.
//!
//! They read the log's state and the claims of what is under way. A repeat is recognised before anything can refuse it, so
//! that a retry of what was accepted is free.

use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

use crate::claims::Hold;
use crate::dedupe::{self, Found, Road};
use crate::ids::EventId;
use crate::moderation::Ruling;
use crate::owner::answer::{Answer, Output};
use crate::owner::bans::policy_version_of;
use crate::owner::command::{Command, Publish, Standing, Tag};
use crate::owner::seal::{Becomes, Comment, Waiting};
use crate::owner::{Owner, fresh_room};
use crate::planted::planted;
use crate::rate::Limit;
use crate::record::{Policy, Room, RoomState, Verdict};
use crate::reject::{Code, Reject};
use crate::routing::partition_of_raw;
use crate::slow_mode::SlowMode;
use crate::speech;
use crate::time::{Mono, Wall};

impl Owner {
    /// Takes a command. Its one answer comes out of [`Owner::poll`], now or after a commit.
    pub fn submit(&mut self, tag: Tag, command: Command, now: Mono, wall: Wall) {
        self.tick(now, wall);
        let outcome = match command {
            Command::Publish(publish) => self.admit_comment(tag, publish, now),
            Command::React(react) => Err(self.react(&react)),
            other => self.admit_other(tag, other),
        };
        if let Err(answer) = outcome {
            self.out.push_back(Output::Answer { tag, answer });
        }
    }

    /// Verdicts that are late, slow modes that ended, combos to be told, windows that close.
    pub fn on_deadline(&mut self, now: Mono, wall: Wall) {
        self.tick(now, wall);
        let late: Vec<Tag> = self.judging.iter().filter(|(_, c)| c.deadline <= now).map(|(tag, _)| *tag).collect();
        for tag in late {
            self.on_verdict(tag, None, now, wall);
        }
        let log_now = self.log_now();
        while let Some((end, at)) = self.slow_ends.take(log_now) {
            self.waiting.push_back(Waiting::SlowModeEnd { at, end });
        }
        while let Some((_, at)) = self.pin_ends.take(log_now) {
            self.waiting.push_back(Waiting::PinEnd { at });
        }
        while let Some((_, at)) = self.settle_ends.take(log_now) {
            self.waiting.push_back(Waiting::Settled { at });
        }
        self.queue_held_ends(log_now);
        self.ask_again(now);
        self.queue_combos(log_now);
        self.on_wide_deadline(now);
    }

    /// Queues a comment with its claims held, or gives the answer. A repeat of one under way waits: `Ok` too.
    fn admit_comment(&mut self, tag: Tag, publish: Publish, now: Mono) -> Result<(), Answer> {
        let log_now = self.log_now();
        let at = self.room_for_use(&publish.room)?;
        let author = &publish.author;
        let is_wide = self.slots[at].is_wide();
        let view = self.slots[at].view.as_ref();
        let policy_version = policy_version_of(view, &self.site);
        let (settings, slow_mode) = match view {
            _ if self.is_silenced(at, &author.user, log_now) => return Err(banned()),
            Some(view) => (view.settings.clone(), view.slow_mode()),
            None => (fresh_room(&publish.room), SlowMode { seconds: 0, until: None }),
        };
        let digest = self.comment_digest(&publish.text, publish.reply_to);
        let load = (self.n_comments >= self.settings.pending_max).then_some(self.settings.retry_after);
        let head = self.head();
        let user = self.user_of(at, &author.user, log_now);
        match user.keys.find(&publish.client_msg_id, digest, log_now) {
            Found::Same(event_id, Road::Direct) => return Err(published(&publish.room, event_id, true)),
            Found::Same(raw_id, Road::Raw(won)) => {
                let fate = self.slots[at].fate_of(raw_id, won);
                let partition = partition_of_raw(&publish.room, &author.user);
                return Err(Answer::Raw { raw_id, partition, duplicate: true, fate });
            }
            Found::Same(_, Road::Blocked) => return Err(refused()),
            Found::Same(held_id, Road::Held) => return Err(Answer::Held { held_id }),
            Found::Conflict => return Err(conflict()),
            Found::Fresh => {}
        }
        match user.claims.join(&publish.client_msg_id, digest, tag) {
            Hold::Waits => return Ok(()),
            Hold::Conflict => return Err(conflict()),
            Hold::Full => return Err(overloaded(Duration::from_millis(500))),
            Hold::Free => {}
        }
        if let Some(wait) = load {
            return Err(overloaded(wait));
        }
        may_comment(&settings)?;
        if publish.reply_to.is_some_and(|id| id.position() > head) {
            return Err(Answer::Reject(Reject::new(Code::NoEvent, "there is no such event to reply to")));
        }
        let user_limit = Limit { per_second: settings.user_rate, burst: settings.user_burst };
        let standing = author.standing;
        if standing == Standing::Viewer {
            let asked = speech::check(&settings, &publish.text, author.badges.iter().map(|b| &**b));
            asked.or_else(|reject| if planted(137) { Ok(()) } else { Err(Answer::Reject(reject)) })?;
            let again = match settings.unique_comment && !planted(133) {
                true if user.claims.says(digest) => Some(dedupe::WINDOW),
                true => user.keys.said(digest, log_now),
                false => None,
            };
            if let Some(wait) = again {
                let text = "the same was said within ten minutes, and this room takes nothing twice";
                return Err(Answer::Reject(Reject::after(Code::NotUnique, text, wait)));
            }
        }
        if standing == Standing::Viewer
            && let Some(wait) = user.slow.wait(slow_mode, log_now)
        {
            return Err(Answer::Reject(Reject::after(Code::SlowMode, "slow mode is on", wait)));
        }
        if standing != Standing::Backend {
            let too_many = |code, wait| Answer::Reject(Reject::after(code, "too many comments", wait));
            user.rate.take(user_limit, now).map_err(|wait| too_many(Code::UserRate, wait))?;
            let slot = &mut self.slots[at];
            if let Err(wait) = slot.rate.take(room_limit(&settings), now) {
                if let Some(user) = slot.users.get_mut(&author.user) {
                    user.rate.give_back(user_limit);
                }
                return Err(too_many(Code::RoomRate, wait));
            }
        }
        let user = self.user_of(at, &author.user, log_now);
        user.claims.hold(&publish.client_msg_id, digest);
        user.slow.hold();
        self.n_comments += 1;
        let deadline = now + self.settings.verdict_within;
        let policy = settings.moderation_policy;
        let comment = Comment {
            tag,
            at,
            publish,
            ruling: Ruling::plain(Verdict::Unjudged),
            becomes: Becomes::Event,
            question: None,
            policy,
            policy_version,
            deadline,
            was_wide: is_wide,
        };
        // In a wide room only what wins is judged.
        if policy.judges_first() && !is_wide {
            let (room, text) = (comment.publish.room.clone(), comment.publish.text.clone());
            let question = self.question();
            let strict = policy == Policy::PreModerateStrict;
            self.out.push_back(Output::NeedVerdict { tag: question, room, text, deadline, strict });
            self.judging.insert(question, comment);
        } else {
            self.waiting.push_back(Waiting::Comment(comment));
        }
        Ok(())
    }

    /// Queues what is decided wholly when its id is given.
    fn admit_other(&mut self, tag: Tag, command: Command) -> Result<(), Answer> {
        if self.n_priority >= self.settings.pending_priority_max {
            return Err(overloaded(self.settings.retry_after));
        }
        self.check_other(&command)?;
        self.n_priority += 1;
        self.waiting.push_back(Waiting::Other { tag, command });
        Ok(())
    }

    fn check_other(&mut self, command: &Command) -> Result<(), Answer> {
        match command {
            Command::Publish(_) | Command::React(_) => unreachable!("comments and reactions have their own door"),
            Command::Audited { command, .. } => self.check_other(command)?,
            Command::Score(score) => {
                score
                    .check()
                    .map_err(|f| Answer::Reject(Reject::fields(Code::BadField, "the score is not valid", f)))?;
                if let Some(room) = &score.room
                    && self.settings.create_on_use
                {
                    self.room_for_use(room)?;
                }
            }
            Command::PutRoom { room, .. } => {
                self.slot_of(room);
            }
            Command::Gift(gift) => {
                self.room_for_use(&gift.room)?;
            }
            Command::Banner(_) | Command::BannerEnd { .. } => {}
            Command::SetFeed { .. } | Command::TypeScore { .. } => {}
            Command::SiteBan { .. } | Command::SiteUnban { .. } => {}
            Command::Report(report) => self.check_report(report)?,
            Command::Revoke { .. } | Command::RevokeEnd { .. } | Command::Outage { .. } | Command::EraseUser { .. } => {
            }
            Command::Ban { room, .. }
            | Command::Unban { room, .. }
            | Command::Retract { room, .. }
            | Command::Decide { room, .. } => {
                self.room_for_use(room)?;
            }
        }
        Ok(())
    }

    /// The slot of a room that is there, or may be made by its first use.
    pub(super) fn room_for_use(&mut self, room: &crate::names::RoomId) -> Result<usize, Answer> {
        if let Some(&at) = self.index.get(room)
            && (self.slots[at].view.is_some() || self.settings.create_on_use)
        {
            return Ok(at);
        }
        if !self.settings.create_on_use {
            return Err(Answer::Reject(Reject::new(Code::NoRoom, "there is no such room")));
        }
        if self.slots.len() >= self.settings.rooms_max {
            return Err(overloaded(self.settings.retry_after));
        }
        Ok(self.slot_of(room))
    }

    /// Tells two payloads under one key apart, within this process: recovery computes it again from the log.
    pub(super) fn comment_digest(&self, text: &str, reply_to: Option<EventId>) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write_u64(reply_to.map_or(0, EventId::value));
        hasher.write(text.as_bytes());
        hasher.finish()
    }
}

pub(super) fn room_limit(settings: &Room) -> Limit {
    Limit { per_second: settings.rate, burst: settings.rate }
}

pub(super) fn may_comment(settings: &Room) -> Result<(), Answer> {
    match settings.state {
        RoomState::Closed => Err(Answer::Reject(Reject::new(Code::RoomState, "the room is closed"))),
        RoomState::Scheduled | RoomState::Live | RoomState::Settling => Ok(()),
    }
}

pub(super) fn published(room: &crate::names::RoomId, event_id: EventId, duplicate: bool) -> Answer {
    let partition = crate::routing::partition_of(room);
    Answer::Published { event_id, partition, offset: event_id.seq(), duplicate }
}

pub(super) fn banned() -> Answer {
    Answer::Reject(Reject::new(Code::Banned, "you are banned in this room"))
}

/// Moderation's no. The rule is the room's own business.
pub(super) fn refused() -> Answer {
    Answer::Reject(Reject::new(Code::ModerationFailed, "the comment was not accepted"))
}

fn conflict() -> Answer {
    Answer::Reject(Reject::new(Code::IdempotencyConflict, "another comment was sent with this client_msg_id"))
}

pub(super) fn overloaded(wait: Duration) -> Answer {
    Answer::Reject(Reject::after(Code::Overloaded, "too much is under way", wait))
}
