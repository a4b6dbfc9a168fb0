//! What viewers report of a room, for its moderators: each user counts once for an event.
//!
//! Like a box of slips beside the door: a slip with a name that is in the box already is not taken, and when the box is full the
//! events that nobody has reported for longest leave it. It is read from the log, so a restart forgets no slip.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::ids::EventId;
use crate::names::UserId;
use crate::rate::Limit;
use crate::record::RetractTarget;
use crate::time::Wall;

/// Events of a room whose reports are kept.
pub const EVENTS_MAX: usize = 1_024;
/// Users told apart of one event. Nobody needs the 257th to see what is wrong; it is not logged.
pub const REPORTERS_MAX: usize = 256;
/// Different reasons counted of one event; the rest are one.
pub const REASONS_MAX: usize = 8;
/// Under what reasons beyond that are counted.
pub const OTHER: &str = "other";
/// What one user may report in one room.
pub const RATE: Limit = Limit { per_second: 1, burst: 20 };
pub const REASON_BYTES_MAX: usize = 200;

/// One user's report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    pub event: EventId,
    pub reason: Arc<str>,
}

/// The reports of one room.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reports {
    pub events: BTreeMap<EventId, Reported>,
}

/// The reports of one event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reported {
    pub users: BTreeSet<UserId>,
    pub reasons: BTreeMap<Arc<str>, u32>,
    pub first: Wall,
    pub last: Wall,
}

impl Reports {
    /// Whether this user's report of this event would change anything.
    pub fn counts(&self, event: EventId, user: &UserId) -> bool {
        self.events.get(&event).is_none_or(|known| known.users.len() < REPORTERS_MAX && !known.users.contains(user))
    }

    /// Takes in a report of the log.
    pub fn take(&mut self, report: &Report, user: &UserId, ts: Wall) {
        if !self.counts(report.event, user) {
            return;
        }
        if self.events.len() >= EVENTS_MAX && !self.events.contains_key(&report.event) {
            let oldest = self.events.iter().min_by_key(|(id, known)| (known.last, **id)).map(|(id, _)| *id);
            if let Some(oldest) = oldest {
                self.events.remove(&oldest);
            }
        }
        let fresh = || Reported { users: BTreeSet::new(), reasons: BTreeMap::new(), first: ts, last: ts };
        let known = self.events.entry(report.event).or_insert_with(fresh);
        known.users.insert(user.clone());
        known.last = ts;
        let full = known.reasons.len() >= REASONS_MAX && !known.reasons.contains_key(&report.reason);
        let reason = if full { OTHER.into() } else { report.reason.clone() };
        *known.reasons.entry(reason).or_default() += 1;
    }

    /// Whether this user reported anything.
    pub fn name(&self, user: &UserId) -> bool {
        self.events.values().any(|known| known.users.contains(user))
    }

    /// Forgets who reported; an event that nobody else did is reported no more. Reasons were counted without names.
    pub fn forget(&mut self, user: &UserId) {
        self.events.retain(|_, known| !known.users.remove(user) || !known.users.is_empty());
    }

    /// Whether a retract says something of what is reported here.
    pub fn is_told(&self, target: &RetractTarget) -> bool {
        matches!(target, RetractTarget::Event(id) if self.events.contains_key(id))
            || *target == RetractTarget::All && !self.events.is_empty()
    }

    /// What was taken back needs nobody's eye any more.
    pub fn retract(&mut self, target: &RetractTarget) {
        match target {
            RetractTarget::Event(id) => drop(self.events.remove(id)),
            RetractTarget::All => self.events.clear(),
            // Whose the events are is not known here.
            RetractTarget::User(_) | RetractTarget::Since(..) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{EVENTS_MAX, OTHER, REASONS_MAX, REPORTERS_MAX, Report, Reports};
    use crate::ids::EventId;
    use crate::names::UserId;
    use crate::record::RetractTarget;
    use crate::time::Wall;

    fn id(n: u64) -> EventId {
        EventId::new(1 << 33 | n).unwrap()
    }
    fn user(n: usize) -> UserId {
        UserId::parse(&format!("u{n}")).unwrap()
    }
    fn report(n: u64, reason: &str) -> Report {
        Report { event: id(n), reason: reason.into() }
    }

    #[test]
    fn a_user_counts_once_for_an_event_and_once_for_another() {
        let mut reports = Reports::default();
        for n in [1, 1, 2] {
            reports.take(&report(n, "spam"), &user(1), Wall(n));
        }
        reports.take(&report(1, "rude"), &user(2), Wall(9));
        let one = &reports.events[&id(1)];
        assert_eq!((one.users.len(), one.reasons["spam"], one.reasons["rude"]), (2, 1, 1));
        assert_eq!((one.first, one.last), (Wall(1), Wall(9)));
        assert_eq!(reports.events[&id(2)].users.len(), 1);
    }

    #[test]
    fn everything_of_it_is_bounded() {
        let mut reports = Reports::default();
        for n in 0..2 * REPORTERS_MAX {
            reports.take(&report(7, &format!("reason {n}")), &user(n), Wall(n as u64));
        }
        let known = &reports.events[&id(7)];
        assert_eq!((known.users.len(), known.reasons.len()), (REPORTERS_MAX, REASONS_MAX + 1));
        assert_eq!(known.reasons[OTHER] as usize, REPORTERS_MAX - REASONS_MAX);
        for n in 0..EVENTS_MAX as u64 {
            reports.take(&report(100 + n, "spam"), &user(0), Wall(1_000 + n));
        }
        assert_eq!(reports.events.len(), EVENTS_MAX);
        assert!(!reports.events.contains_key(&id(7)), "the one that is longest untouched goes");
    }

    #[test]
    fn what_was_taken_back_is_reported_no_more() {
        let mut reports = Reports::default();
        for n in 1..4 {
            reports.take(&report(n, "spam"), &user(1), Wall(n));
        }
        assert!(reports.is_told(&RetractTarget::Event(id(2))) && !reports.is_told(&RetractTarget::Event(id(9))));
        reports.retract(&RetractTarget::Event(id(2)));
        assert_eq!(reports.events.len(), 2);
        reports.retract(&RetractTarget::All);
        assert!(reports.events.is_empty());
    }
}
