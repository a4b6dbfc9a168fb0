//! The last events of one room as one gateway worker holds them, shared by all its viewers.
//!
//! A conveyor belt with numbered places: entries come in at the head in id order and fall off behind by age or weight. The
//! belt is complete after its `floor`; what lies at or before the floor it does not know, and never pretends to. A hole in
//! the feed (a priority number that does not follow) empties the belt: the viewers before it read the log.
//!
//! The belt can be made longer at its far end: what was there before the floor, read again from the log, is put back piece by
//! piece ([`Ring::extend_back`]). So a belt that lost touch with its room begins anew at the room's head and is joined to the
//! old one, and one that has only begun is given a past. A stretch that does not join exactly is refused.
//!
//! Numbers: 30 s and 4 MB a room (docs/decisions/0005-numbers.md).

use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use crate::ids::{EventId, Position, Pseq};
use crate::planted::planted;
use crate::record::Lane;
use crate::sampler::pick::WindowNumber;
use crate::time::Mono;
use crate::viewer::part::Lot;

/// One event as the ring needs to know it; the payload is whatever the worker sends.
#[derive(Clone, Debug)]
pub struct Entry<P> {
    pub id: EventId,
    pub lane: Lane,
    /// Flushes what waits in the merge window before it.
    pub closes_window: bool,
    /// Only its author's connections are sent it. Never counted as passed over: the author has its ack.
    pub private: bool,
    pub pseq: Option<Pseq>,
    /// Of a wide room's winner: each viewer is given a part of them.
    pub won: Option<Lot>,
    /// When this worker was given it.
    pub at: Mono,
    /// What it weighs on the wire.
    pub bytes: u32,
    pub payload: P,
}

/// No cursor takes a ring further back than this: a storm of resumes lasts a minute, and who was away for longer comes alone.
pub const PAST_AGE: Duration = Duration::from_secs(90);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    pub age: Duration,
    pub bytes: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { age: Duration::from_secs(30), bytes: 4 << 20 }
    }
}

/// What became of an entry offered to a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pushed {
    Fits,
    /// At or before the head: it came twice and was ignored.
    Repeat,
    /// A priority event before it is missing. The ring holds nothing before this entry any more.
    Hole,
}

/// Running totals of everything that was pushed before an entry, so that any stretch is measured by one subtraction.
#[derive(Clone, Copy, Default, Debug)]
struct Totals {
    /// Comments that everyone is sent.
    comments: u64,
    /// Winners, of which each viewer is given a part.
    won: u64,
    /// Thousandths of comments that a viewer is sent of both, about.
    shares: u64,
    private: u64,
    bytes: u64,
    /// Bytes that a viewer is sent, about.
    load: u64,
}

impl Totals {
    /// What one entry adds.
    fn of<P>(entry: &Entry<P>) -> Totals {
        let comment = u64::from(entry.lane == Lane::Comment && !entry.private);
        let share = entry.won.map_or(1_000, |lot| u64::from(lot.share_milli));
        Totals {
            comments: if entry.won.is_none() { comment } else { 0 },
            won: u64::from(entry.won.is_some()),
            shares: comment * share,
            private: u64::from(entry.private),
            bytes: u64::from(entry.bytes),
            load: (u64::from(entry.bytes) * share).div_ceil(1_000),
        }
    }

    fn plus(self, other: Totals) -> Totals {
        self.each(other, |a, b| a + b)
    }

    fn minus(self, other: Totals) -> Totals {
        self.each(other, |a, b| a - b)
    }

    fn each(self, other: Totals, of: impl Fn(u64, u64) -> u64) -> Totals {
        Totals {
            comments: of(self.comments, other.comments),
            won: of(self.won, other.won),
            shares: of(self.shares, other.shares),
            private: of(self.private, other.private),
            bytes: of(self.bytes, other.bytes),
            load: of(self.load, other.load),
        }
    }
}

#[derive(Clone, Debug)]
struct Slot<P> {
    before: Totals,
    entry: Entry<P>,
}

/// Places and totals begin here, so that a past can be put before the first entry. A ring is never given more of it than it
/// may hold, some megabytes.
const BEGIN: u64 = 1 << 32;
const TOTALS_BEGIN: Totals =
    Totals { comments: BEGIN, won: BEGIN, shares: BEGIN, private: BEGIN, bytes: BEGIN, load: BEGIN };

/// What a ring that was out of touch with its room for a while is worth, now that the room's facts are known again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rejoin {
    /// Nothing happened meanwhile.
    Whole,
    /// Events came that the ring was not given: they lie after its head.
    Gap,
    /// The ring was given what the room does not know of: everyone resumes.
    Lost,
}

/// Compares what a ring was given, up to its `last` event, with the room's facts: the log's head, the room's last event and
/// priority number.
pub fn rejoin<P>(ring: &Ring<P>, last: Position, head: Position, last_event: Position, pseq: Pseq) -> Rejoin {
    if head < ring.head() || last_event < last || pseq < ring.pseq() {
        return Rejoin::Lost;
    }
    let same = (last_event == last && pseq == ring.pseq()) || planted(33);
    if same { Rejoin::Whole } else { Rejoin::Gap }
}

/// Places are numbered in the order of entries; `first` is the number of the oldest still here.
#[derive(Clone, Debug)]
pub struct Ring<P> {
    limits: Limits,
    slots: VecDeque<Slot<P>>,
    first: u64,
    /// Places of the priority entries still here.
    priority: VecDeque<u64>,
    totals: Totals,
    floor: Position,
    head: Position,
    pseq: Pseq,
    /// Nothing falls off by age before then.
    kept_until: Mono,
    crowded_out: CrowdedOut,
}

/// Entries that fell off by weight, before their age.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CrowdedOut {
    pub comments: u64,
    pub priority: u64,
}

#[derive(Clone, Copy)]
enum Falls {
    ByAge,
    ByWeight,
}

impl<P> Ring<P> {
    /// A ring that is complete after `head` and holds nothing yet. `pseq` is the room's newest priority number there.
    pub fn new(head: Position, pseq: Pseq, limits: Limits) -> Ring<P> {
        Ring {
            limits,
            slots: VecDeque::new(),
            first: BEGIN,
            priority: VecDeque::new(),
            totals: TOTALS_BEGIN,
            floor: head,
            head,
            pseq,
            kept_until: Mono(0),
            crowded_out: CrowdedOut::default(),
        }
    }

    /// Takes the next event of the room, in log order.
    pub fn push(&mut self, entry: Entry<P>) -> Pushed {
        let repeat = entry.id.position() <= self.head;
        if repeat && (self.is_empty() || !planted(30)) {
            return Pushed::Repeat;
        }
        let hole = entry.pseq.is_some_and(|pseq| pseq != self.pseq.next()) && !planted(30);
        if hole {
            self.first += self.slots.len() as u64;
            self.slots.clear();
            self.priority.clear();
            // Complete after the place just before this entry, and no further back.
            self.floor = Position::new(entry.id.value() - 1).expect("one less than an id is a position");
        }
        self.head = entry.id.position();
        self.pseq = entry.pseq.unwrap_or(self.pseq);
        let before = self.totals;
        self.totals = before.plus(Totals::of(&entry));
        if entry.lane == Lane::Priority {
            self.priority.push_back(self.end());
        }
        self.slots.push_back(Slot { before, entry });
        if hole { Pushed::Hole } else { Pushed::Fits }
    }

    /// Takes what lies before the floor: every event of the room after `after` and up to the floor, oldest first. They count as
    /// no younger than what follows them.
    /// Errors: `false` when they do not join (ids out of order, a priority number that does not lead up to the next); nothing
    /// is changed then.
    pub fn extend_back(&mut self, after: Position, mut past: Vec<Entry<P>>) -> bool {
        if planted(32) {
            past.pop();
        }
        let ids = past.iter().map(|entry| entry.id.position());
        let ordered = ids.clone().zip(ids.skip(1)).all(|(a, b)| a < b);
        let inside = past.first().is_none_or(|e| e.id.position() > after)
            && past.last().is_none_or(|e| e.id.position() <= self.floor);
        let mut pseq = self.pseq_at_floor();
        let mut joined = true;
        for number in past.iter().rev().filter_map(|entry| entry.pseq) {
            joined &= number == pseq && number > Pseq(0);
            pseq = Pseq(number.0.saturating_sub(1));
        }
        if after > self.floor || !ordered || !inside || !joined {
            return false;
        }
        let mut oldest = self.slots.front().map(|slot| slot.entry.at);
        for mut entry in past.into_iter().rev() {
            entry.at = oldest.map_or(entry.at, |at| at.min(entry.at));
            oldest = Some(entry.at);
            let before = self.totals_before(self.first).minus(Totals::of(&entry));
            self.first -= 1;
            if entry.lane == Lane::Priority {
                self.priority.push_front(self.first);
            }
            self.slots.push_front(Slot { before, entry });
        }
        self.floor = after;
        true
    }

    /// Puts what an older ring of the room holds before the floor, where the two meet or overlap.
    /// Errors: `false` when they do not.
    pub fn join(&mut self, old: Ring<P>) -> bool {
        if old.head < self.floor {
            return false;
        }
        let floor = self.floor;
        let past = old.slots.into_iter().map(|slot| slot.entry).filter(|e| e.id.position() <= floor).collect();
        old.floor >= floor || self.extend_back(old.floor, past)
    }

    /// Nothing falls off by age before `until`: many are about to ask for what is old.
    pub fn keep_until(&mut self, until: Mono) {
        self.kept_until = self.kept_until.max(until);
    }

    /// The room's priority number at the floor.
    fn pseq_at_floor(&self) -> Pseq {
        let first = self.priority.front().and_then(|place| self.at(*place).pseq);
        first.map_or(self.pseq, |pseq| Pseq(pseq.0 - 1))
    }

    /// The log went on to `head` with nothing for this room in between.
    pub fn advance(&mut self, head: Position) {
        self.head = self.head.max(head);
    }

    /// Lets go of what is past the limits. Cost: what falls off.
    pub fn trim(&mut self, now: Mono) {
        let Limits { age, bytes } = self.limits;
        self.let_go(|ring, oldest| {
            let old = now >= ring.kept_until && now.since(oldest.entry.at) >= age;
            let heavy = ring.totals.bytes - oldest.before.bytes > bytes;
            if old { Some(Falls::ByAge) } else { heavy.then_some(Falls::ByWeight) }
        });
    }

    /// Lets go of everything up to `upto`.
    pub fn forget(&mut self, upto: Position) {
        self.let_go(|_, oldest| (oldest.entry.id.position() <= upto).then_some(Falls::ByAge));
    }

    /// Lets go of the oldest until at most `bytes` are held.
    pub fn keep_newest(&mut self, bytes: u64) {
        self.let_go(|ring, oldest| (ring.totals.bytes - oldest.before.bytes > bytes).then_some(Falls::ByWeight));
    }

    /// What fell off by weight since this was asked last.
    pub fn take_crowded_out(&mut self) -> CrowdedOut {
        std::mem::take(&mut self.crowded_out)
    }

    /// A window falls off whole: of a part of it nothing could be picked any more.
    fn let_go(&mut self, falls: impl Fn(&Ring<P>, &Slot<P>) -> Option<Falls>) {
        let mut broken: Option<(WindowNumber, Falls)> = None;
        while let Some(oldest) = self.slots.front()
            && let window = oldest.entry.won.map(|lot| lot.window)
            && let Some(why) =
                falls(self, oldest).or(broken.filter(|(begun, _)| Some(*begun) == window).map(|(_, why)| why))
        {
            broken = window.map(|window| (window, why));
            if let Falls::ByWeight = why {
                self.crowded_out.comments += u64::from(oldest.entry.lane == Lane::Comment);
                self.crowded_out.priority += u64::from(oldest.entry.lane == Lane::Priority);
            }
            self.floor = oldest.entry.id.position();
            if self.priority.front() == Some(&self.first) {
                self.priority.pop_front();
            }
            self.slots.pop_front();
            self.first += 1;
        }
    }

    /// Every event of the room after here is held.
    pub fn floor(&self) -> Position {
        self.floor
    }
    /// The newest place of the log this ring knows of.
    pub fn head(&self) -> Position {
        self.head
    }
    /// The newest priority number of the room.
    pub fn pseq(&self) -> Pseq {
        self.pseq
    }
    pub fn len(&self) -> usize {
        self.slots.len()
    }
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
    pub fn bytes(&self) -> u64 {
        self.totals.bytes - self.totals_before(self.first).bytes
    }
    /// Whether it may be given more of its room's past: it has room, and holds nothing of before [`PAST_AGE`].
    pub fn takes_past(&self, now: Mono) -> bool {
        let oldest = self.after(self.floor).and_then(|mut entries| entries.next());
        self.bytes() < self.limits.bytes && oldest.is_none_or(|e| now.since(e.at) < PAST_AGE)
    }

    /// Whether winners of a wide room follow `position`, as far as the ring knows.
    pub fn holds_won(&self, position: Position) -> bool {
        self.won_in(self.place_after(position)..self.end()) > 0
    }

    /// The newest event held.
    pub fn last(&self) -> Option<&Entry<P>> {
        self.slots.back().map(|slot| &slot.entry)
    }

    /// Every entry after `position`, oldest first.
    /// Errors: `None` when `position` is below the floor, so that something before the first entry is not known.
    pub fn after(&self, position: Position) -> Option<impl DoubleEndedIterator<Item = &Entry<P>>> {
        (position >= self.floor).then(|| self.span(self.place_after(position)..self.end()))
    }

    /// The first place after `position`. Cost: O(log n), O(1) at the head.
    pub(super) fn place_after(&self, position: Position) -> u64 {
        if position >= self.head {
            return self.end();
        }
        self.first + self.slots.partition_point(|slot| slot.entry.id.position() <= position) as u64
    }

    /// The first place whose entry is at most `age` old.
    pub(super) fn place_younger(&self, age: Duration, now: Mono) -> u64 {
        self.first + self.slots.partition_point(|slot| now.since(slot.entry.at) > age) as u64
    }

    /// The oldest place still here.
    pub(super) fn begin(&self) -> u64 {
        self.first
    }

    /// One past the newest place.
    pub(super) fn end(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    pub(super) fn at(&self, place: u64) -> &Entry<P> {
        &self.slots[(place - self.first) as usize].entry
    }

    pub(super) fn span(&self, places: Range<u64>) -> impl DoubleEndedIterator<Item = &Entry<P>> {
        let range = (places.start - self.first) as usize..(places.end - self.first) as usize;
        self.slots.range(range).map(|slot| &slot.entry)
    }

    /// Places of the priority entries within `places`, oldest first.
    pub(super) fn priority_in(&self, places: Range<u64>) -> impl DoubleEndedIterator<Item = u64> {
        let from = self.priority.partition_point(|place| *place < places.start);
        let to = self.priority.partition_point(|place| *place < places.end).max(from);
        self.priority.range(from..to).copied()
    }

    /// Winners within `places`.
    pub(super) fn won_in(&self, places: Range<u64>) -> u64 {
        self.totals_before(places.end).won - self.totals_before(places.start).won
    }

    /// The smallest start of a stretch up to the head of which a viewer is sent at most `n` comments, about.
    pub(super) fn newest_given(&self, n: u64) -> u64 {
        let spared = self.totals.shares.saturating_sub(n * 1_000);
        self.first + self.slots.partition_point(|slot| slot.before.shares < spared) as u64
    }

    /// Comments within `places` that everyone is sent.
    pub(super) fn comments_in(&self, places: Range<u64>) -> u64 {
        self.totals_before(places.end).comments - self.totals_before(places.start).comments
    }

    pub(super) fn private_in(&self, places: Range<u64>) -> u64 {
        self.totals_before(places.end).private - self.totals_before(places.start).private
    }

    /// What of `places` a viewer is sent weighs, about.
    pub(super) fn load_in(&self, places: Range<u64>) -> u64 {
        self.totals_before(places.end).load - self.totals_before(places.start).load
    }

    /// The largest end of a stretch from `start` of which a viewer is sent at most `bytes`, about; at least one entry long.
    pub(super) fn end_within(&self, places: Range<u64>, bytes: u64) -> u64 {
        if places.is_empty() {
            return places.end;
        }
        let limit = self.totals_before(places.start).load + bytes;
        let fits = self.slots.partition_point(|slot| slot.before.plus(Totals::of(&slot.entry)).load <= limit) as u64;
        (self.first + fits).clamp(places.start + 1, places.end)
    }

    fn totals_before(&self, place: u64) -> Totals {
        self.slots.get((place - self.first) as usize).map_or(self.totals, |slot| slot.before)
    }
}

/// Keeps all rings together within `bytes_max`: the largest gives half of what it holds, until they fit. A viewer below a
/// floor reads the log, as after any other trim.
pub fn keep_within<'r, P: 'r>(rings: impl Iterator<Item = &'r mut Ring<P>>, bytes_max: u64) {
    let mut rings: Vec<&mut Ring<P>> = rings.collect();
    let mut total: u64 = rings.iter().map(|r| r.bytes()).sum();
    if total <= bytes_max {
        return;
    }
    let mut sizes: BinaryHeap<(u64, usize)> = rings.iter().enumerate().map(|(idx, r)| (r.bytes(), idx)).collect();
    while total > bytes_max {
        let (held, largest) = sizes.pop().expect("something holds the bytes");
        rings[largest].keep_newest(held / 2);
        let left = rings[largest].bytes();
        total -= held - left;
        sizes.push((left, largest));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{CrowdedOut, Entry, Limits, Pushed, Rejoin, Ring, keep_within, rejoin};
    use crate::ids::{EventId, Position, Pseq};
    use crate::record::Lane;
    use crate::time::Mono;

    const BASE: u64 = 7 << 33;

    fn id(n: u64) -> EventId {
        EventId::new(BASE + n).unwrap()
    }
    fn comment(n: u64, at: u64) -> Entry<()> {
        let at = Mono(at);
        Entry {
            id: id(n),
            lane: Lane::Comment,
            closes_window: false,
            private: false,
            pseq: None,
            won: None,
            at,
            bytes: 100,
            payload: (),
        }
    }
    fn score(n: u64, pseq: u64, at: u64) -> Entry<()> {
        Entry { lane: Lane::Priority, closes_window: true, pseq: Some(Pseq(pseq)), ..comment(n, at) }
    }
    fn ring(bytes: u64) -> Ring<()> {
        let limits = Limits { bytes, ..Limits::default() };
        Ring::new(id(10).position(), Pseq(3), limits)
    }

    #[test]
    fn it_is_complete_after_its_floor_and_refuses_to_guess_below() {
        let mut ring = ring(1_000);
        for n in 11..31 {
            ring.push(comment(n, 0));
        }
        ring.trim(Mono(0));
        assert_eq!((ring.len(), ring.bytes(), ring.floor()), (10, 1_000, id(20).position()));
        assert!(ring.after(id(19).position()).is_none());
        assert_eq!(ring.after(id(20).position()).unwrap().next().unwrap().id, id(21));
        assert_eq!(ring.after(id(25).position()).unwrap().count(), 5);
        assert_eq!(ring.after(id(99).position()).unwrap().count(), 0);
    }

    #[test]
    fn what_falls_off_by_weight_is_counted_by_lane_and_what_is_old_is_not() {
        let mut ring = ring(400);
        let old = Duration::from_secs(40).as_micros() as u64;
        ring.push(comment(11, 0));
        for n in [12, 14, 15, 16, 17] {
            ring.push(comment(n, old));
        }
        ring.push(score(18, 4, old));
        ring.trim(Mono(old));
        assert_eq!((ring.len(), ring.take_crowded_out()), (4, CrowdedOut { comments: 2, priority: 0 }));
        ring.keep_newest(0);
        assert_eq!(ring.take_crowded_out(), CrowdedOut { comments: 3, priority: 1 });
        assert_eq!(ring.take_crowded_out(), CrowdedOut::default());
    }

    #[test]
    fn rings_that_are_too_much_together_give_from_the_largest() {
        let (mut small, mut large) = (ring(1 << 20), ring(1 << 20));
        (11..14).for_each(|n| assert_eq!(small.push(comment(n, 0)), Pushed::Fits));
        (11..51).for_each(|n| assert_eq!(large.push(comment(n, 0)), Pushed::Fits));
        keep_within([&mut small, &mut large].into_iter(), 4_300);
        assert_eq!((small.len(), large.len()), (3, 40), "what fits is left alone");
        keep_within([&mut small, &mut large].into_iter(), 2_000);
        assert_eq!((small.len(), large.len(), large.floor()), (3, 10, id(40).position()));
        keep_within([&mut small, &mut large].into_iter(), 0);
        assert_eq!((small.len(), large.len(), large.floor()), (0, 0, id(50).position()));
    }

    #[test]
    fn age_lets_go_after_thirty_seconds() {
        let mut ring = ring(1 << 20);
        ring.push(comment(11, 0));
        ring.push(score(12, 4, 5_000_000));
        ring.trim(Mono(29_999_999));
        assert_eq!(ring.len(), 2);
        ring.trim(Mono(30_000_000));
        assert_eq!((ring.len(), ring.floor()), (1, id(11).position()));
        ring.trim(Mono(0) + Duration::from_secs(60));
        assert_eq!((ring.len(), ring.floor(), ring.head()), (0, id(12).position(), id(12).position()));
    }

    #[test]
    fn a_repeat_is_ignored_and_a_missing_priority_event_empties_the_ring() {
        let mut ring = ring(1 << 20);
        assert_eq!(ring.push(score(11, 4, 0)), Pushed::Fits);
        assert_eq!(ring.push(score(11, 4, 0)), Pushed::Repeat);
        assert_eq!(ring.push(comment(9, 0)), Pushed::Repeat);
        assert_eq!(ring.push(score(14, 6, 0)), Pushed::Hole);
        assert_eq!((ring.len(), ring.floor().value(), ring.pseq()), (1, BASE + 13, Pseq(6)));
        assert!(ring.after(id(11).position()).is_none());
    }

    #[test]
    fn a_past_is_put_before_the_floor_and_counts_like_what_was_pushed() {
        let mut ring = ring(1 << 20);
        ring.push(comment(11, 5));
        ring.push(score(12, 4, 6));
        assert!(ring.extend_back(id(4).position(), vec![comment(6, 9), score(8, 3, 9), comment(10, 9)]));
        let held: Vec<_> = ring.after(id(4).position()).unwrap().map(|e| (e.id.value() - BASE, e.at.0)).collect();
        assert_eq!(held, [(6, 5), (8, 5), (10, 5), (11, 5), (12, 6)]);
        assert_eq!(
            (ring.bytes(), ring.floor(), ring.head(), ring.pseq()),
            (500, id(4).position(), id(12).position(), Pseq(4))
        );
        let all = ring.place_after(id(4).position())..ring.end();
        assert_eq!((ring.comments_in(all.clone()), ring.priority_in(all).count()), (3, 2));
        ring.keep_newest(250);
        assert_eq!((ring.len(), ring.floor()), (2, id(10).position()));
        assert!(
            ring.extend_back(id(4).position(), vec![comment(6, 0), score(8, 3, 0), comment(10, 0)]),
            "and once more"
        );
        assert_eq!(ring.bytes(), 500);
    }

    #[test]
    fn a_past_that_does_not_join_is_refused_and_changes_nothing() {
        let mut ring = ring(1 << 20);
        ring.push(score(12, 4, 0));
        for (after, past) in [
            (4, vec![score(8, 2, 0)]),
            (4, vec![score(8, 4, 0)]),
            (4, vec![score(7, 1, 0), score(8, 3, 0)]),
            (4, vec![comment(9, 0), comment(8, 0)]),
            (4, vec![comment(11, 0)]),
            (4, vec![comment(4, 0)]),
            (11, vec![]),
        ] {
            assert!(!ring.extend_back(id(after).position(), past.clone()), "{after} {past:?}");
            assert_eq!((ring.len(), ring.floor()), (1, id(10).position()));
        }
        assert!(ring.extend_back(id(9).position(), vec![]));
        assert_eq!(ring.floor(), id(9).position());
    }

    #[test]
    fn a_ring_begun_anew_is_joined_to_the_old_one() {
        let mut old = ring(1 << 20);
        old.push(score(11, 4, 0));
        old.push(comment(12, 1));
        let begun = || {
            let mut new = Ring::new(id(20).position(), Pseq(5), Limits::default());
            new.push(comment(21, 7));
            new
        };
        assert_eq!(rejoin(&old, id(12).position(), id(20).position(), id(15).position(), Pseq(5)), Rejoin::Gap);
        let mut new = begun();
        assert!(!new.join(old.clone()), "what lies between is not known");
        assert!(new.extend_back(id(12).position(), vec![score(15, 5, 6)]));
        assert!(new.join(old.clone()));
        let ids: Vec<_> = new.after(id(10).position()).unwrap().map(|e| e.id.value() - BASE).collect();
        assert_eq!((ids, new.floor()), (vec![11, 12, 15, 21], id(10).position()));
        let mut new = begun();
        assert!(new.extend_back(id(11).position(), vec![comment(12, 6), score(15, 5, 6)]));
        assert!(new.join(old.clone()), "the two may overlap");
        assert_eq!(new.len(), 4);
        let mut new = begun();
        assert!(new.extend_back(id(3).position(), vec![score(11, 4, 6), comment(12, 6), score(15, 5, 6)]));
        assert!(new.join(old), "there is nothing left to add");
        assert_eq!((new.len(), new.floor()), (4, id(3).position()));
    }

    #[test]
    fn a_ring_is_whole_only_when_nothing_at_all_came() {
        let ring = ring(1 << 20);
        let ask = |head, last_event, pseq| {
            rejoin(&ring, id(9).position(), id(head).position(), id(last_event).position(), Pseq(pseq))
        };
        assert_eq!(ask(30, 9, 3), Rejoin::Whole);
        assert_eq!(ask(30, 10, 3), Rejoin::Gap);
        assert_eq!(ask(30, 12, 4), Rejoin::Gap);
        for (head, last_event, pseq) in [(9, 9, 3), (30, 8, 3), (30, 12, 2)] {
            assert_eq!(ask(head, last_event, pseq), Rejoin::Lost);
        }
    }

    #[test]
    fn what_is_kept_for_many_falls_off_by_weight_alone() {
        let mut ring = ring(1_000);
        ring.keep_until(Mono(60_000_000));
        ring.push(comment(11, 0));
        ring.trim(Mono(59_000_000));
        assert_eq!(ring.len(), 1);
        (12..30).for_each(|n| assert_eq!(ring.push(comment(n, 0)), Pushed::Fits));
        ring.trim(Mono(59_000_000));
        assert_eq!(ring.len(), 10);
        ring.trim(Mono(60_000_000));
        assert!(ring.is_empty());
    }

    #[test]
    fn the_head_moves_on_without_events() {
        let mut ring = ring(1 << 20);
        ring.advance(id(50).position());
        ring.advance(Position::START);
        assert_eq!(ring.head(), id(50).position());
        assert_eq!(ring.push(comment(50, 0)), Pushed::Repeat);
        assert_eq!(ring.push(comment(51, 0)), Pushed::Fits);
    }
}
