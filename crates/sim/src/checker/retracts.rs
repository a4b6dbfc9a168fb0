//! A retract reaches who may have seen what it takes back, and what was taken back is not given again (I-11).
//!
//! Each viewer is held to what a page would show: what it was given, less what it was told to show no more. A client knows only what it
//! is told: a retract of what was said in a wide room helps it when it names what was shown of it.

use std::collections::{BTreeMap, BTreeSet};

use grandstand_core::ids::{EventId, Position};
use grandstand_core::names::{RoomId, UserId};
use grandstand_core::record::{Audience, Body, Record, RetractTarget};

use super::{Log, TakenBack, Violations};
use crate::history::{ClientIdx, Snapshot};

/// What viewers of each room are told to show no more, in order.
pub struct Told<'a>(BTreeMap<&'a RoomId, Vec<(EventId, &'a RetractTarget)>>);

impl<'a> Told<'a> {
    pub fn of(log: &Log<'a>, found: &mut Violations) -> Told<'a> {
        let mut told: BTreeMap<&RoomId, Vec<(EventId, &RetractTarget)>> = BTreeMap::new();
        // Of who was erased nobody knows any more what was said and not shown.
        let mut erased: BTreeSet<&UserId> = BTreeSet::new();
        for record in &log.valid {
            if let Some(user) = record.erases() {
                erased.insert(user);
            }
            let (Some(room), Body::Retract(retract)) = (&record.room, &record.body) else { continue };
            if record.audience != Audience::Everyone {
                continue;
            }
            let is_known = |raw: &Record| raw.user.as_ref().is_some_and(|user| !erased.contains(user));
            let is_raw = |id: &EventId| log.by_id.get(id).is_some_and(|record| record.is_raw() && is_known(record));
            if let RetractTarget::Event(id) = &retract.target
                && is_raw(id)
            {
                found.push(format!("I-11: everyone of {room} is told of {id:?}, which nobody was shown"));
            }
            told.entry(room).or_default().push((record.event_id(), &retract.target));
        }
        Told(told)
    }

    /// Whether a comment was taken back by something up to `head`.
    fn takes(&self, comment: &Record, head: Position) -> bool {
        let (id, user) = (comment.event_id(), comment.user.as_ref());
        let told = comment.room.as_ref().and_then(|room| self.0.get(room)).map_or(&[][..], Vec::as_slice);
        let known = told.iter().take_while(|(by, _)| by.position() <= head);
        known.filter(|(by, _)| id < *by).any(|(_, target)| target.means(id, user, comment.ts))
    }
}

/// The comments that one viewer's page shows.
#[derive(Default)]
pub struct Page {
    shown: BTreeSet<EventId>,
    /// What it was told to show no more: a snapshot may be older.
    told: Vec<(EventId, RetractTarget)>,
}

impl Page {
    /// `head`: what was known where the event was chosen.
    pub fn take(
        &mut self,
        log: &Log<'_>,
        told: &Told<'_>,
        client: ClientIdx,
        event: &Record,
        head: Position,
        found: &mut Violations,
    ) {
        let id = event.event_id();
        match &event.body {
            Body::Comment(_) if told.takes(event, head) => {
                found.push(format!("I-11: client {client} was given {id:?}, which was taken back by then"));
            }
            Body::Comment(_) => drop(self.shown.insert(id)),
            Body::Retract(retract) => {
                self.told.push((id, retract.target.clone()));
                self.hide(log);
            }
            _ => {}
        }
    }

    /// A snapshot is begun with, and what came after it is added.
    pub fn begin(&mut self, log: &Log<'_>, shot: &Snapshot) {
        self.shown.retain(|id| id.position() > shot.as_of);
        self.shown.extend(shot.recent.iter().map(|comment| comment.event_id()));
        self.hide(log);
    }

    fn hide(&mut self, log: &Log<'_>) {
        let Page { shown, told } = self;
        let means = |comment: &Record| {
            let (id, user) = (comment.event_id(), comment.user.as_ref());
            told.iter().any(|(by, target)| id < *by && target.means(id, user, comment.ts))
        };
        shown.retain(|id| !log.by_id.get(id).is_some_and(|comment| means(comment)));
    }

    /// At the end nothing of it was taken back.
    pub fn judge(&self, log: &Log<'_>, taken: &TakenBack, client: ClientIdx, found: &mut Violations) {
        let shown = self.shown.iter().filter_map(|id| log.by_id.get(id));
        for comment in shown.filter(|comment| super::is_taken(taken, comment)) {
            found.push(format!("I-11: client {client} was never told that {:?} was taken back", comment.event_id()));
        }
    }
}
