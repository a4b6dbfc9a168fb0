//! A batch's outcome: its records are taken in and its commands answered, or its claims are let go.

use std::sync::Arc;

use crate::dedupe::KEYS_MAX;
use crate::names::UserId;
use crate::owner::Owner;
use crate::owner::admit::room_limit;
use crate::owner::answer::{Answer, Failure, Output};
use crate::owner::command::Tag;
use crate::owner::likes::Sealed;
use crate::owner::seal::Held;
use crate::owner::wide::Standing;
use crate::planted::planted;
use crate::rate::Limit;
use crate::reader::Reading;
use crate::record::{Body, Record};
use crate::reject::{Code, Reject};
use crate::time::{Mono, Wall};

/// The batch whose outcome is awaited.
pub(super) struct Flight {
    pub records: Arc<[Arc<Record>]>,
    pub settles: Vec<Settle>,
    /// Taken back when the batch fails.
    pub likes: Sealed,
    /// Winners of wide rooms in it, in order.
    pub winners: Vec<(usize, Standing)>,
    /// What of shadow-banned users stands in it, as it was said.
    pub apart: Vec<(usize, Arc<Record>)>,
}

/// What one command is told when its batch is durable.
pub(super) struct Settle {
    pub tag: Tag,
    pub answer: Answer,
    /// A comment's claims.
    pub held: Option<Held>,
}

impl Owner {
    /// The batch in flight is durable. Its records come out in order, then its answers.
    ///
    /// Panics: when no batch is in flight.
    pub fn on_committed(&mut self, now: Mono, wall: Wall) {
        self.tick(now, wall);
        let flight = self.flight.take().expect("an outcome is of a batch in flight");
        for record in flight.records.iter() {
            let reading = self.reader.read(record);
            assert!(reading == Reading::Valid || planted(11) || planted(4), "an owner's own record is valid");
            self.take_in(record, true);
            self.out.push_back(Output::Committed(record.clone()));
        }
        self.likes_committed(&flight.likes);
        self.index_waiting_combos();
        for settle in flight.settles {
            if planted(1) {
                self.let_go(settle.held, true);
                self.n_priority = self.n_priority.saturating_sub(1);
                continue;
            }
            self.settle(settle.tag, settle.held, settle.answer);
        }
        // Whoever is erased in the batch is erased behind all that was said in it.
        let erased: Vec<&UserId> = flight.records.iter().filter_map(|record| record.erases()).collect();
        for record in flight.records.iter().filter(|record| record.is_raw()) {
            if erased.iter().any(|user| record.is_of(user)) && !planted(113) {
                let at = self.index[record.room.as_ref().expect("a raw comment has a room")];
                self.tell_fate(at, record.clone());
            } else {
                self.offer(record);
            }
        }
        self.winners_committed(flight.winners);
        self.ask_after(&flight.records, now);
        self.forget_quiet_users();
    }

    /// The batch in flight is certainly not durable: as if it had never been, its commands told to retry.
    ///
    /// Panics: when no batch is in flight.
    pub fn on_failed(&mut self, failure: Failure, now: Mono, wall: Wall) {
        self.tick(now, wall);
        let flight = self.flight.take().expect("an outcome is of a batch in flight");
        let wait = self.settings.retry_after;
        let reject = match failure {
            Failure::Overloaded => Reject::after(Code::Overloaded, "it could not be written now", wait),
            Failure::NoSpace => Reject::after(Code::NoSpace, "the store is full", wait),
            Failure::NotReady => Reject::after(Code::NotReady, "the store cannot be written now", wait),
        };
        self.plant_failure(&flight);
        self.likes_failed(flight.likes);
        self.index_waiting_combos();
        for record in flight.records.iter().filter(|r| matches!(r.body, Body::Room(_))) {
            // A slow mode's end that was on its way is due again.
            let at = self.index[record.room.as_ref().expect("settings are of a room")];
            self.index_room(at, &[]);
        }
        for record in flight.records.iter() {
            // A held comment that nobody decided about is due again.
            if let (Body::HeldEnd(end), Some(room)) = (&record.body, &record.room) {
                self.index_held(self.index[room], end.held);
            }
        }
        self.stand_again(flight.winners);
        self.wait_apart(flight.apart);
        for settle in flight.settles {
            let answer = match settle.answer {
                answer @ Answer::Published { .. } if planted(2) => answer,
                _ => Answer::Reject(reject.clone()),
            };
            self.settle(settle.tag, settle.held, answer);
        }
    }

    /// Answers a comment that never reached a batch.
    pub(super) fn settle_comment(&mut self, tag: Tag, held: Held, answer: Answer) {
        self.settle(tag, Some(held), answer);
    }

    /// Lets the claims go, and gives the answer to the command and to those that waited for it.
    pub(super) fn settle(&mut self, tag: Tag, held: Option<Held>, answer: Answer) {
        let is_comment = held.is_some();
        if let Some(question) = held.as_ref().and_then(|held| held.question) {
            self.shown_as(question, &answer);
        }
        let in_log = match &answer {
            Answer::Published { .. } | Answer::Raw { .. } | Answer::Held { .. } => true,
            // It is a record of its own, and its author has paid for it.
            Answer::Reject(reject) => reject.code == Code::ModerationFailed,
            _ => false,
        };
        let followers = self.let_go(held, in_log);
        if is_comment {
            self.n_comments -= 1;
        } else {
            self.n_priority -= 1;
        }
        for tag in followers {
            let answer = match answer.clone() {
                Answer::Published { event_id, partition, offset, .. } => {
                    Answer::Published { event_id, partition, offset, duplicate: true }
                }
                Answer::Raw { raw_id, partition, fate, .. } => Answer::Raw { raw_id, partition, duplicate: true, fate },
                other => other,
            };
            self.out.push_back(Output::Answer { tag, answer });
        }
        self.out.push_back(Output::Answer { tag, answer });
    }

    fn let_go(&mut self, held: Option<Held>, in_log: bool) -> Vec<Tag> {
        let Some(Held { at, user, key, paid, .. }) = held else { return Vec::new() };
        let slot = &mut self.slots[at];
        let user = slot.users.get_mut(&user).expect("a user with claims is kept");
        user.slow.release();
        if in_log && paid {
            user.keys.keep_newest(KEYS_MAX);
        }
        if !in_log && paid {
            // What was not published is not counted against its author.
            let settings = slot.view.as_ref().map_or_else(|| super::fresh_room(&slot.room), |v| v.settings.clone());
            user.rate.give_back(Limit { per_second: settings.user_rate, burst: settings.user_burst });
            slot.rate.give_back(room_limit(&settings));
        }
        if planted(5) && !in_log { Vec::new() } else { user.claims.release(&key) }
    }

    /// Drops users without keys, claims or a slow mode to wait for. Each is looked at once in ten minutes.
    fn forget_quiet_users(&mut self) {
        let log_now = self.log_now();
        // Two for each record that could have added one: the line cannot grow without end.
        for _ in 0..1_024 {
            let Some((_, at, user)) = self.quiet.pop_front_if(|(due, _, _)| *due <= log_now) else { return };
            let users = &mut self.slots[at].users;
            let Some(known) = users.get_mut(&user) else { continue };
            known.keys.expire(log_now);
            if known.keys.is_empty() && known.claims.is_empty() && known.slow.is_quiet(log_now) {
                users.remove(&user);
            } else {
                self.quiet.push_back((log_now + crate::dedupe::WINDOW, at, user));
            }
        }
    }

    #[cfg(feature = "planted")]
    fn plant_failure(&mut self, flight: &Flight) {
        if planted(7) {
            for record in flight.records.iter().filter(|r| r.pseq.is_some()) {
                let at = self.index[record.room.as_ref().expect("a priority event has a room")];
                if let Some(view) = &mut self.slots[at].view {
                    view.pseq = view.pseq.next();
                }
            }
        }
        if planted(11) {
            self.leaked += flight.records.len() as u64;
        }
    }

    #[cfg(feature = "planted")]
    pub(super) fn leaked(&self) -> u64 {
        self.leaked
    }

    #[cfg(not(feature = "planted"))]
    pub(super) const fn leaked(&self) -> u64 {
        0
    }

    #[cfg(not(feature = "planted"))]
    fn plant_failure(&mut self, _flight: &Flight) {}
}
