//! A user who was erased: viewers were told, and nothing that comes after stands for what was said before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use grandstand_core::ids::EventId;
use grandstand_core::names::{RoomId, UserId};
use grandstand_core::owner::view::RoomView;
use grandstand_core::record::{Audience, Body, HeldEnd, Record, Retract, RetractTarget};
use grandstand_core::time::Wall;

use super::Violations;

/// Who spoke so lately is known to the owner, whatever the room shows.
const KNOWN: Duration = Duration::from_secs(500);

/// Where each user was erased, as often as it was.
#[derive(Default)]
pub struct Erased<'a>(BTreeMap<&'a UserId, Vec<EventId>>);

impl<'a> Erased<'a> {
    pub fn of(valid: &[&'a Arc<Record>]) -> Erased<'a> {
        let mut all = Erased::default();
        for record in valid {
            if let Some(user) = record.erases() {
                all.0.entry(user).or_default().push(record.event_id());
            }
        }
        all
    }

    /// Whether the user was erased at all.
    pub fn holds(&self, user: &UserId) -> bool {
        self.0.contains_key(user)
    }

    /// Whether the user was erased between the two, so that the later one knows nothing of the earlier.
    pub fn parts(&self, user: &UserId, earlier: EventId, later: EventId) -> bool {
        self.0.get(user).is_some_and(|ids| ids.iter().any(|id| earlier < *id && *id < later))
    }
}

pub fn check(valid: &[&Arc<Record>], found: &mut Violations) {
    let erased = Erased::of(valid);
    let mut shown: BTreeMap<(&RoomId, &UserId), (EventId, Wall)> = BTreeMap::new();
    let mut told: BTreeMap<(&RoomId, &UserId), EventId> = BTreeMap::new();
    for record in valid {
        let id = record.event_id();
        if let Some(user) = record.erases() {
            for ((room, _), (last, _)) in
                shown.iter().filter(|((_, who), (_, ts))| *who == user && record.ts.since(*ts) < KNOWN)
            {
                if told.get(&(*room, user)).is_none_or(|told| told < last) {
                    found.push(format!("R-52: {user} is erased at {id:?}, and nobody is told to take back {last:?}"));
                }
            }
        }
        let Some(room) = &record.room else { continue };
        match (&record.body, &record.user) {
            (Body::Comment(_), Some(user)) if record.audience == Audience::Everyone => {
                shown.insert((room, user), (id, record.ts));
            }
            (Body::Retract(Retract { target: RetractTarget::User(user), .. }), _) => {
                told.insert((room, user), id);
            }
            (Body::Retract(Retract { target: RetractTarget::All, .. }), _) => {
                shown.retain(|(of, _), _| *of != room);
            }
            _ => {}
        }
        let Some(user) = &record.user else { continue };
        let stands_for = match &record.body {
            Body::HeldEnd(HeldEnd { held, .. }) => Some(*held),
            Body::Combo(combo) => Some(combo.first),
            _ => record.source.as_ref().map(|source| source.id),
        };
        if let Some(before) = stands_for.filter(|before| record.is_of(user) && erased.parts(user, *before, id)) {
            found.push(format!("R-52: {id:?} stands for {before:?}, whose {user} was erased"));
        }
    }
}

/// Rooms at the end of a run know nothing of a user that stands before the newest erase.
pub fn check_rooms(valid: &[&Arc<Record>], rooms: &[RoomView], found: &mut Violations) {
    let mut erased: BTreeMap<&UserId, EventId> = BTreeMap::new();
    // Bans that stand after the erase of whom they are of.
    let mut banned: BTreeSet<(&RoomId, &UserId)> = BTreeSet::new();
    for record in valid {
        match (&record.body, &record.room) {
            (Body::EraseUser(user), _) => {
                erased.insert(user, record.event_id());
                banned.retain(|(_, whose)| *whose != user);
            }
            (Body::Ban(ban), Some(room)) => drop(banned.insert((room, &ban.user))),
            _ => {}
        }
    }
    for view in rooms {
        for (user, id) in &erased {
            let shows = view.recent.iter().chain(&view.pinned).any(|r| r.event_id() < *id && r.names(user));
            let takes_back = view.retracted.users.get(*user).is_some_and(|upto| upto < id)
                || view.retracted.since.get(*user).is_some_and(|purges| purges.iter().any(|(_, upto)| upto < id));
            let bans = view.bans.contains_key(*user) && !banned.contains(&(&view.room, *user));
            for (what, is_known) in [("shows", shows), ("takes back", takes_back), ("bans", bans)] {
                if is_known {
                    found.push(format!("R-52: {} {what} {user} at the end, who was erased at {id:?}", view.room));
                }
            }
        }
    }
}
