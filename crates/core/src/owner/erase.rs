//! A user who is erased: one record of the log, and all that the owner holds of that user let go.
//!
//! Like a name struck out of every page of a ledger that stays: viewers are told to take back what they were shown, in one batch with
//! the record that says so, and from its commit on nothing that is kept in memory or goes into a checkpoint names the user. The rows of
//! the log are the writer's to go through; the record stands in the log until that is done, so a crash forgets nothing.
//!
//! It is no ban: what the user says afterwards is new, and so is who it is. Bans, revocations and slow mode of before are forgotten with
//! the rest. The awkward case is what was said before and has no place yet (a wide room's window, the queue for review): it never gets one.

use std::sync::Arc;

use crate::dedupe;
use crate::names::UserId;
use crate::owner::Owner;
use crate::owner::answer::{Answer, Output};
use crate::owner::draft::Draft;
use crate::planted::planted;
use crate::record::{Body, End, Record, Retract, RetractTarget};

impl Owner {
    /// A retract of all of the user in every room where viewers may have something of it on their screens, then the record itself.
    pub(super) fn seal_erase_user(&self, draft: &mut Draft, by: UserId, user: UserId) -> Answer {
        for at in 0..self.slots.len() {
            if self.may_be_on_screens(draft, at, &user) && self.drafted(draft, at).is_some() && !planted(110) {
                let target = RetractTarget::User(user.clone());
                self.log_priority(draft, at, |r| r.body = Body::Retract(Retract { target, reason: "".into() }));
            }
        }
        let record = self.push_site(draft, by, Body::EraseUser(user));
        if let Some(access) = &mut draft.access {
            access.take(&record);
        }
        Answer::Done { event_id: Some(record.event_id()) }
    }

    /// Whether the user did anything in the room in the last ten minutes, or is shown there still.
    fn may_be_on_screens(&self, draft: &Draft, at: usize, user: &UserId) -> bool {
        let is_shown = |record: &Arc<Record>| record.is_of(user);
        self.slots[at].users.contains_key(user)
            || self.view_in(draft, at).is_some_and(|view| {
                view.recent.iter().chain(&view.pinned).any(is_shown) || view.combos.open().keys().any(|k| k.0 == *user)
            })
    }

    /// The record is in the log: from here on the owner knows nothing of who the user was.
    pub(super) fn forget_user(&mut self, user: &UserId) {
        let live = self.epoch.is_some();
        if planted(111) && !live {
            return;
        }
        self.forget_said(user);
        for at in 0..self.slots.len() {
            if !planted(113) {
                self.take_from_window(at, &RetractTarget::User(user.clone()));
                self.forget_in_line(at, user);
            }
            let slot = &mut self.slots[at];
            let Some(view) = &mut slot.view else { continue };
            let (found, held) = view.forget(user);
            if !found {
                continue;
            }
            slot.changed = true;
            self.index_combos(at);
            for record in held {
                if let Body::Held(body) = &record.body {
                    self.held_ends.remove(&(body.until, at, record.event_id()));
                }
                if live {
                    let held_id = record.event_id();
                    self.out.push_back(Output::Decided { held_id, record, end: End::Denied });
                }
            }
        }
        self.unasked.retain(|(_, record)| !record.names(user));
        let drawn = std::mem::take(&mut self.apart_drawn);
        for (at, raw) in drawn {
            if raw.is_of(user) && !planted(113) {
                self.tell_fate(at, raw);
            } else {
                self.apart_drawn.push_back((at, raw));
            }
        }
    }

    /// Its keys, and what a crash would give back to a window. A key whose comment is under way stays claimed.
    pub(super) fn forget_said(&mut self, user: &UserId) {
        let hasher = self.hasher;
        for slot in &mut self.slots {
            match slot.users.get_mut(user) {
                Some(known) if known.claims.is_empty() => drop(slot.users.remove(user)),
                Some(known) => known.keys = dedupe::Window::new(hasher),
                None => {}
            }
        }
        let slots = &self.slots;
        self.quiet.retain(|(_, at, who)| who != user || slots[*at].users.contains_key(user));
        for said in self.recovered.values_mut() {
            said.retain(|raw| !raw.is_of(user));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::ids::Epoch;
    use crate::names::{ClientMsgId, RoomId, UserId};
    use crate::owner::command::{Author, Command, Publish, Standing};
    use crate::owner::{Owner, Settings};
    use crate::time::{Mono, Wall};

    #[test]
    fn who_was_erased_is_in_no_line_to_be_forgotten_and_speaks_again_as_somebody_new() {
        let (now, wall, ann) = (Mono(1), Wall(1_781_000_000_000), UserId::parse("ann").unwrap());
        let mut owner = Owner::new(Settings { create_on_use: true, ..Settings::default() }, now, wall);
        owner.start(Epoch::new(1).unwrap());
        let mut ask = |tag, command| {
            owner.submit(tag, command, now, wall);
            assert!(owner.seal(now, wall).is_some());
            owner.on_committed(now, wall);
            owner.quiet.iter().filter(|(_, _, user)| *user == ann).count()
        };
        let say = |key| {
            let author =
                Author { user: ann.clone(), display: "Ann".into(), badges: [].into(), standing: Standing::Viewer };
            let (room, client_msg_id) = (RoomId::parse("a").unwrap(), ClientMsgId::parse(key).unwrap());
            Command::Publish(Publish { room, author, client_msg_id, text: "hello".into(), reply_to: None })
        };
        assert_eq!(ask(1, say("k1")), 1);
        assert_eq!(ask(2, Command::EraseUser { by: UserId::parse("ops").unwrap(), user: ann.clone() }), 0);
        assert_eq!(ask(3, say("k2")), 1);
    }
}
