//! The owner's count of likes: frames wait for the tick, are judged when it is sealed, and become totals of the log.
//!
//! A frame is judged as a whole when its tally is sealed, against the log and what the same batch already holds: nobody's
//! likes are counted in a tally that lies behind their ban, and a closed room takes none. The user's rate is kept once more,
//! because one user may like by several gateways; it is a little wider here, because frames do not come evenly.
//!
//! A failed batch gives its sums back: they are in the next tally. Nothing is told as settled before its commit.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::hash::Seeded;
use crate::likes::{self, Counted, Frame, Meter, SENDERS_MAX, Totals};
use crate::names::{LikeKind, RoomId};
use crate::owner::Owner;
use crate::owner::answer::Output;
use crate::owner::draft::Draft;
use crate::planted::planted;
use crate::record::{Audience, Body, RoomState, Tally};
use crate::time::{Mono, Wall};

/// Rooms of one tally record: with eight kinds of 16 letters and names of 128 it is below 170 KiB, and a record holds 256.
const ROOMS_A_RECORD_MAX: usize = 400;
/// Frames come with a link's delay, of which their span says nothing; a user's burst is stretched by it.
const UNEVEN: Duration = Duration::from_secs(1);

/// Likes that were not counted, since the process started.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Uncounted {
    pub banned: u64,
    pub over_rate: u64,
    /// The room is not there, is closed, or takes no likes.
    pub room: u64,
    /// Of a kind beyond those the room counts.
    pub kind: u64,
}

pub(super) struct Counting {
    /// Taken and not judged yet.
    frames: Vec<Frame>,
    /// Judged, of batches that failed.
    back: Sealed,
    /// What is in the log of each sender.
    senders: BTreeMap<u64, Counted>,
    /// The newest frame of each sender that was taken.
    taken: BTreeMap<u64, u64>,
    meter: Meter,
    sealed_at: Option<Mono>,
    counted: u64,
    uncounted: Uncounted,
}

/// What one tally adds.
#[derive(Clone, Default, Debug)]
pub(super) struct Sealed {
    rooms: BTreeMap<usize, BTreeMap<LikeKind, u64>>,
    senders: BTreeMap<u64, u64>,
}

impl Counting {
    pub fn new(hasher: Seeded) -> Counting {
        Counting {
            frames: Vec::new(),
            back: Sealed::default(),
            senders: BTreeMap::new(),
            taken: BTreeMap::new(),
            meter: Meter::new(hasher),
            sealed_at: None,
            counted: 0,
            uncounted: Uncounted::default(),
        }
    }

    pub fn senders(&self) -> Vec<(u64, Counted)> {
        self.senders.iter().map(|(sender, counted)| (*sender, *counted)).collect()
    }

    pub fn restore(&mut self, senders: Vec<(u64, Counted)>) {
        if !planted(44) {
            self.senders = senders.into_iter().collect();
        }
    }

    fn count(&mut self, sender: u64, number: u64, at: Wall) {
        let known = self.senders.entry(sender).or_insert(Counted { number, at });
        *known = Counted { number: known.number.max(number), at: known.at.max(at) };
        if self.senders.len() > SENDERS_MAX
            && let Some(oldest) = self.senders.iter().min_by_key(|(_, c)| c.at).map(|(sender, _)| *sender)
        {
            self.senders.remove(&oldest);
            self.taken.remove(&oldest);
        }
    }
}

impl Owner {
    /// Takes a round of likes. One that was taken before is passed over; its sender is told where it is settled.
    pub fn take_likes(&mut self, frame: Frame, now: Mono, wall: Wall) {
        self.tick(now, wall);
        let counting = &mut self.counting;
        if let Some((sender, number)) = frame.from {
            let counted = counting.senders.get(&sender).map_or(0, |c| c.number);
            let taken = counting.taken.entry(sender).or_insert(counted);
            if number <= *taken && !planted(41) {
                if number <= counted {
                    self.out.push_back(Output::LikesSettled { sender, number: counted });
                }
                return;
            }
            *taken = number.max(*taken);
        }
        counting.frames.push(frame);
    }

    /// Likes in the log since the process started.
    pub fn likes_counted(&self) -> u64 {
        self.counting.counted
    }

    /// What waits is sealed with the next batch, whenever the last tally was: nothing comes any more.
    pub fn hurry_tally(&mut self) {
        self.counting.sealed_at = None;
    }

    /// Likes that were not counted, by why.
    pub fn uncounted(&self) -> Uncounted {
        self.counting.uncounted
    }

    /// When the next tally may be sealed, whether or not there is anything to count.
    pub fn next_tally(&self) -> Mono {
        self.counting.sealed_at.map_or(Mono(0), |at| at + likes::TICK)
    }

    /// When the next tally is sealed.
    pub(super) fn tally_due(&self) -> Option<Mono> {
        let counting = &self.counting;
        let waits = !counting.frames.is_empty() || !counting.back.rooms.is_empty() || !counting.back.senders.is_empty();
        (waits && self.flight.is_none()).then(|| self.next_tally())
    }

    /// Judges all that waits and logs the totals of the rooms it changes.
    pub(super) fn seal_likes(&mut self, draft: &mut Draft, now: Mono) -> Sealed {
        self.counting.sealed_at = Some(now);
        let mut sealed = std::mem::take(&mut self.counting.back);
        for at in sealed.rooms.keys().copied() {
            self.make_room_if_missing(draft, at);
        }
        for frame in std::mem::take(&mut self.counting.frames) {
            let since = Mono(now.0.saturating_sub(frame.round.span.as_micros() as u64));
            for likes in frame.round.rooms.iter() {
                self.judge(draft, likes, &mut sealed, (since, now));
            }
            if let Some((sender, number)) = frame.from {
                let known = sealed.senders.entry(sender).or_default();
                *known = number.max(*known);
            }
        }
        let rooms: BTreeMap<RoomId, Totals> =
            sealed.rooms.iter().map(|(at, added)| (self.slots[*at].room.clone(), self.totals(*at, added))).collect();
        let mut rooms: Vec<_> = rooms.into_iter().collect();
        let senders: Vec<_> = sealed.senders.iter().map(|(sender, number)| (*sender, *number)).collect();
        // The senders stand in the last record: whoever reads only some of them reads too little of the senders, not too much,
        // and a batch is durable as a whole anyway.
        while !rooms.is_empty() || !senders.is_empty() {
            let rest = rooms.split_off(rooms.len().min(ROOMS_A_RECORD_MAX));
            let last = rest.is_empty();
            let tally = Tally { rooms, senders: if last { senders.clone() } else { Vec::new() } };
            draft.push(None, |r| {
                r.audience = Audience::Nobody;
                r.body = Body::Tally(tally);
            });
            rooms = rest;
            if last {
                break;
            }
        }
        sealed
    }

    /// Adds what counts of one room's likes that came between the two times.
    fn judge(&mut self, draft: &mut Draft, likes: &likes::RoomLikes, sealed: &mut Sealed, (since, now): (Mono, Mono)) {
        let n_all = || likes.kinds.iter().flat_map(|(_, users)| users).map(|(_, n)| u64::from(*n)).sum::<u64>();
        let Ok(at) = self.room_for_use(&likes.room) else {
            self.counting.uncounted.room += n_all();
            return;
        };
        self.make_room_if_missing(draft, at);
        let view = draft.views.get(&at).or(self.slots[at].view.as_ref()).expect("the room was made above");
        if view.settings.like_rate == 0 || view.settings.state == RoomState::Closed {
            self.counting.uncounted.room += n_all();
            return;
        }
        let limit = likes::limit(view.settings.like_rate, UNEVEN);
        let added = sealed.rooms.entry(at).or_default();
        let counting = &mut self.counting;
        for (kind, users) in &likes.kinds {
            let in_log = view.likes.iter().map(|(kind, _)| kind);
            let is_new = |kind: &&LikeKind| !view.likes.iter().any(|(known, _)| known == *kind);
            let counts = likes::has_place(kind, in_log.chain(added.keys().filter(is_new)));
            for (user, n) in users {
                if !counts {
                    counting.uncounted.kind += u64::from(*n);
                } else if view.is_banned(user, draft.ts)
                    || draft.site.as_ref().unwrap_or(&self.site).is_banned(user, draft.ts)
                {
                    counting.uncounted.banned += u64::from(*n);
                } else {
                    let taken = counting.meter.take_upto((&likes.room, user), *n, limit, since, now);
                    counting.uncounted.over_rate += u64::from(*n - taken);
                    if taken > 0 {
                        *added.entry(kind.clone()).or_default() += u64::from(taken);
                    }
                }
            }
        }
        if added.is_empty() {
            sealed.rooms.remove(&at);
        }
    }

    fn totals(&self, at: usize, added: &BTreeMap<LikeKind, u64>) -> Totals {
        let mut all = added.clone();
        if let Some(view) = &self.slots[at].view
            && !planted(43)
        {
            for (kind, total) in view.likes.iter() {
                *all.entry(kind.clone()).or_default() += total;
            }
        }
        all.into_iter().collect()
    }

    /// The effect of a tally, live and in recovery.
    pub(super) fn take_tally(&mut self, tally: &Tally, ts: Wall) {
        for (room, totals) in &tally.rooms {
            let at = self.slot_of(room);
            let Some(view) = self.slots[at].view.as_mut() else { continue };
            if planted(43) {
                view.likes = totals.clone();
            }
            view.take_totals(totals);
            self.slots[at].changed = true;
        }
        for (sender, number) in &tally.senders {
            if self.epoch.is_some() || !planted(44) {
                self.counting.count(*sender, *number, ts);
            }
        }
    }

    pub(super) fn likes_committed(&mut self, sealed: &Sealed) {
        self.counting.counted += sealed.rooms.values().flat_map(BTreeMap::values).sum::<u64>();
        for (sender, number) in &sealed.senders {
            self.out.push_back(Output::LikesSettled { sender: *sender, number: *number });
        }
    }

    /// What was to be counted is counted with the next tally.
    pub(super) fn likes_failed(&mut self, sealed: Sealed) {
        if planted(42) {
            return;
        }
        // A batch without a tally fails with nothing in it, and what an earlier one gave back still waits.
        let back = &mut self.counting.back;
        for (at, added) in sealed.rooms {
            let known = back.rooms.entry(at).or_default();
            for (kind, n) in added {
                *known.entry(kind).or_default() += n;
            }
        }
        for (sender, number) in sealed.senders {
            let known = back.senders.entry(sender).or_default();
            *known = number.max(*known);
        }
    }
}
