//! What moderation promises, read from the log and from what the classifier was heard to say.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use grandstand_core::ids::EventId;
use grandstand_core::names::{ClientMsgId, RoomId, UserId};
use grandstand_core::owner::view::RoomView;
use grandstand_core::record::{Audience, Body, End, HeldEnd, Policy, Record, RetractTarget, Room, Verdict};
use grandstand_core::regions::Region;

use super::{Log, Violations};
use crate::history::{Line, Seen};

/// The policy in force, and how often it changed.
struct Force {
    policy: Policy,
    blackouts: Vec<Region>,
    version: u32,
}

impl Force {
    fn begin() -> Force {
        Force { policy: Policy::Off, blackouts: Vec::new(), version: 1 }
    }

    fn changes(&self, settings: &Room) -> bool {
        settings.moderation_policy != self.policy || settings.blackout_regions != self.blackouts
    }
}

pub(super) fn check(log: &Log<'_>, history: &[Line], found: &mut Violations) {
    let mut allowed: BTreeSet<(&RoomId, &Arc<str>, u32)> = BTreeSet::new();
    let mut must_go: BTreeSet<EventId> = BTreeSet::new();
    for line in history {
        match &line.seen {
            Seen::Judged { room, text, version, verdict: Verdict::Allow } => {
                allowed.insert((room, text, *version));
            }
            Seen::MustGo(id) => drop(must_go.insert(*id)),
            _ => {}
        }
    }
    let mut forces: BTreeMap<&RoomId, Force> = BTreeMap::new();
    let mut held: BTreeMap<EventId, &Arc<Record>> = BTreeMap::new();
    let mut approved: BTreeMap<EventId, EventId> = BTreeMap::new();
    let mut shown_of: BTreeMap<EventId, EventId> = BTreeMap::new();
    let mut rows: BTreeSet<(&RoomId, &UserId, &ClientMsgId)> = BTreeSet::new();
    // Bans of the site raise the version of every room, of those to come too.
    let mut raised = 0;
    for record in &log.valid {
        raised += u32::from(matches!(record.body, Body::SiteBan(_)));
        if let Some(user) = record.erases() {
            held.retain(|_, record| record.user.as_ref() != Some(user));
            rows.retain(|(_, whose, _)| *whose != user);
        }
        let (id, Some(room)) = (record.event_id(), &record.room) else { continue };
        let force = forces.entry(room).or_insert_with(Force::begin);
        match &record.body {
            Body::Room(settings) if force.changes(settings) => {
                let blackouts = settings.blackout_regions.clone();
                *force = Force { policy: settings.moderation_policy, blackouts, version: force.version + 1 };
            }
            Body::Comment(comment)
                if record.audience == Audience::Everyone
                    || record.audience == Audience::Author && record.held_id().is_some() =>
            {
                if let Some(held_id) = record.held_id() {
                    if !held.contains_key(&held_id) {
                        found.push(format!("I-09: {id:?} shows {held_id:?}, which is not held"));
                    }
                    approved.insert(id, held_id);
                } else if force.policy == Policy::PreModerateStrict {
                    if record.verdict != Verdict::Allow {
                        found.push(format!("I-09: {id:?} is shown in a strict room as {:?}", record.verdict));
                    } else if !allowed.contains(&(room, &comment.text, force.version + raised)) {
                        let version = force.version + raised;
                        found.push(format!("I-09: {id:?} has no allow under version {version}"));
                    }
                }
                if record.source.is_none()
                    && let (Some(user), Some(key)) = (&record.user, &record.client_msg_id)
                    && !rows.insert((room, user, key))
                {
                    found.push(format!("I-10: {id:?} is a second record of its key"));
                }
            }
            Body::Blocked(blocked) => {
                if let (Some(user), Some(key)) = (&record.user, &blocked.client_msg_id)
                    && !rows.insert((room, user, key))
                {
                    found.push(format!("I-10: {id:?} refuses what has a record already"));
                }
            }
            Body::Held(one) => {
                if let Some(user) = &record.user
                    && !rows.insert((room, user, &one.client_msg_id))
                {
                    found.push(format!("I-10: {id:?} holds what has a record already"));
                }
                held.insert(id, record);
            }
            Body::HeldEnd(HeldEnd { held: held_id, end, .. }) => {
                if held.remove(held_id).is_none() {
                    found.push(format!("I-09: {id:?} ends {held_id:?}, which does not wait"));
                }
                if let End::Approved(shown) = end
                    && approved.remove(shown) != Some(*held_id)
                {
                    found.push(format!("I-09: {id:?} says that {held_id:?} is shown as {shown:?}"));
                }
                if let End::Approved(shown) = end {
                    shown_of.insert(*held_id, *shown);
                }
            }
            // A verdict of before does not hold after either: what was judged may be by whom, or what, was taken away.
            Body::Ban(_) => force.version += 1,
            Body::Retract(retract) => {
                force.version += 1;
                match &retract.target {
                    RetractTarget::Event(target) => {
                        must_go.remove(target);
                        if let Some(shown) = shown_of.get(target) {
                            found.push(format!("I-11: {id:?} takes back {target:?}, which viewers know as {shown:?}"));
                        }
                    }
                    RetractTarget::User(user) => must_go.retain(|id| {
                        *id > record.event_id() || log.by_id.get(id).is_some_and(|r| r.user.as_ref() != Some(user))
                    }),
                    RetractTarget::Since(user, from) => must_go.retain(|id| {
                        let said = log.by_id.get(id).filter(|r| r.user.as_ref() == Some(user) && r.ts >= *from);
                        *id > record.event_id() || said.is_none()
                    }),
                    RetractTarget::All => must_go.retain(|id| *id > record.event_id()),
                }
            }
            _ => {}
        }
    }
    for id in must_go {
        found.push(format!("I-09: {id:?} was blocked after it was shown, and stays"));
    }
}

/// What waits for a human at the end of a run is what the log holds, and nothing else.
pub fn check_held(valid: &[&Arc<Record>], rooms: &[RoomView], found: &mut Violations) {
    let mut held: BTreeMap<EventId, (&RoomId, &Arc<Record>)> = BTreeMap::new();
    for record in valid {
        match (&record.body, &record.room) {
            (Body::Held(_), Some(room)) => drop(held.insert(record.event_id(), (room, record))),
            (Body::HeldEnd(end), _) => drop(held.remove(&end.held)),
            (Body::EraseUser(user), _) => held.retain(|_, (_, record)| !record.names(user)),
            _ => {}
        }
    }
    for view in rooms {
        let wanted: Vec<EventId> =
            held.iter().filter(|(_, (room, _))| **room == view.room).map(|(id, _)| *id).collect();
        if !view.held.keys().eq(&wanted) {
            let waits: Vec<&EventId> = view.held.keys().collect();
            found.push(format!("I-16: {waits:?} wait in {} at the end, the log holds {wanted:?}", view.room));
        }
    }
}
