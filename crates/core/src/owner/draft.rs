//! A batch being made, and the rooms as it leaves them: what is decided in it sees what came before it in it.
//!
//! A draft is thrown away when the batch is sealed. Gifts and retracts are kept beside the drafted rooms, because a copy of
//! a room's map of them for each batch would be work without end.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use crate::access::Access;
use crate::banners::Site;
use crate::ids::{Epoch, EventId, Seq};
use crate::names::{Key, RoomId, UserId};
use crate::owner::answer::Answer;
use crate::owner::commit::Settle;
use crate::owner::view::RoomView;
use crate::owner::wide::Standing;
use crate::owner::{Owner, fresh_room};
use crate::planted::planted;
use crate::record::{Audience, Audit, Body, Config, Record, RetractTarget, Room, Verdict};
use crate::reject::{Code, Reject};
use crate::time::Wall;

/// A batch being made.
pub(super) struct Draft {
    pub epoch: Epoch,
    /// Of the next record.
    pub seq: u64,
    pub seq_max: u64,
    pub ts: Wall,
    pub region: Arc<str>,
    pub records: Vec<Arc<Record>>,
    pub settles: Vec<Settle>,
    /// Rooms that this batch changes in more than comments.
    pub views: BTreeMap<usize, RoomView>,
    pub gifts: BTreeMap<(usize, Key), (EventId, u64)>,
    pub retracts: BTreeMap<(usize, EventId), EventId>,
    /// What it takes back, and by which record.
    pub taken_back: Vec<(usize, RetractTarget, EventId)>,
    /// The site's banners, once this batch asked for them.
    pub site: Option<Site>,
    /// What is said of tokens, the same.
    pub access: Option<Access>,
    /// Winners of wide rooms in this batch, in order, and by what they were said under.
    pub winners: Vec<(usize, Standing)>,
    /// What of shadow-banned users stands in it, as it was said.
    pub apart: Vec<(usize, Arc<Record>)>,
    /// Reports in it.
    pub reports: crate::owner::reports::Drafted,
    pub won: BTreeMap<(usize, EventId), EventId>,
}

impl Draft {
    /// Gives the next id.
    pub fn push(&mut self, room: Option<&RoomId>, make: impl FnOnce(&mut Record)) -> Arc<Record> {
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

    /// A retract in it, which its room's view is not told before the commit.
    fn take_back(&mut self, at: usize, record: &Record) {
        if let Body::Retract(retract) = &record.body {
            self.taken_back.push((at, retract.target.clone(), record.event_id()));
        }
    }

    /// Whether it takes back what was said before.
    pub fn takes_back(&self, at: usize, said: &Record) -> bool {
        let id = said.event_id();
        let is_meant = |target: &RetractTarget| target.means(id, said.user.as_ref(), said.ts);
        self.taken_back.iter().any(|(room, target, by)| *room == at && id < *by && is_meant(target))
    }

    /// Opens the epoch.
    pub fn begin(&mut self) {
        let record = self.blank(None);
        self.seq += 1;
        self.records.push(Arc::new(record));
    }

    /// An EpochStart at the next place, for its maker to fill in.
    pub fn blank(&self, room: Option<&RoomId>) -> Record {
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
    /// The room as this batch leaves it so far, to be changed by it. `None` when there is no such room.
    pub(super) fn drafted<'a>(&self, draft: &'a mut Draft, at: usize) -> Option<&'a mut RoomView> {
        match draft.views.entry(at) {
            Entry::Occupied(there) => Some(there.into_mut()),
            Entry::Vacant(place) => self.slots[at].view.as_ref().map(|view| place.insert(view.clone())),
        }
    }

    /// As [`Owner::drafted`], of a room that may be made by its first use.
    pub(super) fn drafted_for_use<'a>(
        &self,
        draft: &'a mut Draft,
        room: &RoomId,
    ) -> Result<(usize, &'a mut RoomView), Answer> {
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

    /// The room as this batch leaves it so far; `None` when there is none.
    pub(super) fn view_in<'a>(&'a self, draft: &'a Draft, at: usize) -> Option<&'a RoomView> {
        draft.views.get(&at).or(self.slots[at].view.as_ref())
    }

    /// A room's first record comes before all others; the batch that was to bring it may have failed.
    pub(super) fn make_room_if_missing(&self, draft: &mut Draft, at: usize) {
        if self.view_in(draft, at).is_none() {
            self.make_room(draft, at);
        }
    }

    /// Logs a room's first record.
    pub(super) fn make_room(&self, draft: &mut Draft, at: usize) {
        let room = &self.slots[at].room;
        self.log_settings(draft, at, fresh_room(room), Config::default());
    }

    /// Logs a room's new settings and, when viewers must know, the change.
    pub(super) fn log_settings(&self, draft: &mut Draft, at: usize, settings: Arc<Room>, config: Config) {
        let room = &self.slots[at].room;
        let policy_version = self.policy_version_in(draft, at);
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
        if let Some(site) = &mut draft.site {
            site.take(&record);
        }
        if config != Config::default() {
            self.log_priority(draft, at, |r| r.body = Body::Config(config));
        }
    }

    /// Logs an event with the room's next priority number.
    pub(super) fn log_priority(&self, draft: &mut Draft, at: usize, make: impl FnOnce(&mut Record)) -> Arc<Record> {
        let view = self.drafted(draft, at).expect("a priority event is of a room that is there");
        let pseq = view.pseq.next();
        let room = view.room.clone();
        let policy_version = self.policy_version_in(draft, at);
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
                view.policy_version += u32::from(matches!(record.body, Body::Retract(_)));
                view.take_combo(&record);
            }
            _ => view.apply(&record),
        }
        draft.take_back(at, &record);
        record
    }

    pub(super) fn log_private(&self, draft: &mut Draft, room: &RoomId, body: Body) -> Result<Answer, Answer> {
        let (at, _) = self.drafted_for_use(draft, room)?;
        let record = self.push_private(draft, at, |r| r.body = body);
        Ok(Answer::Done { event_id: Some(record.event_id()) })
    }

    /// Logs who did what was just sealed in the room, and why.
    pub(super) fn log_audit(&self, draft: &mut Draft, room: &RoomId, by: UserId, audit: Audit) {
        let is_row = |record: &Arc<Record>| matches!(record.body, Body::Audit(_)) && record.room.as_ref() == Some(room);
        if planted(160) && draft.records.iter().any(is_row) {
            return;
        }
        self.push_private(draft, self.index[room], |r| {
            r.user = Some(by);
            r.body = Body::Audit(audit);
        });
    }

    /// Logs what no viewer of the room is sent.
    pub(super) fn push_private(&self, draft: &mut Draft, at: usize, make: impl FnOnce(&mut Record)) -> Arc<Record> {
        self.drafted(draft, at).expect("a private record is of a room that is there");
        let policy_version = self.policy_version_in(draft, at);
        let record = draft.push(Some(&self.slots[at].room), |r| {
            r.audience = Audience::Nobody;
            r.policy_version = policy_version;
            make(r);
        });
        let view = draft.views.get_mut(&at).expect("it was drafted above");
        match &record.body {
            Body::Retract(_) => {
                view.as_of = record.event_id().position();
                view.policy_version += 1;
            }
            // As above.
            Body::Report(_) => view.as_of = record.event_id().position(),
            Body::Gift(_) => {
                // As above.
                view.as_of = record.event_id().position();
                view.take_combo(&record);
            }
            _ => view.apply(&record),
        }
        draft.take_back(at, &record);
        record
    }
}
