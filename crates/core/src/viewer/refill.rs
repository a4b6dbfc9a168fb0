//! A ring that lacks a part of its room's past, and how the log fills it: page by page, the newest first.
//!
//! ```text
//!            old ring            read backwards            new ring
//! ─── floor ────────── head ┆ ◄─ page ◄─ page ◄─ page ─┆ head ── live ─►
//! ```
//!
//! A ring that lost touch with its room begins anew at the room's head, where what is live joins it, and the log fills what lies
//! between it and the old one ([`Refill::rejoin`]). So the ring never has a hole: it ends earlier. The same road serves cursors
//! from before the floor: the ring is given a past as far back as the lowest that waits ([`Refill::of_past`]).
//!
//! It never joins what does not join: a priority number that does not lead up to the next, or a page for a ring that has let go
//! of something meanwhile, ends the attempt, and so does a past heavier or older than a ring may be.
//!
//! Who reads the log, and what becomes of those who wait, is the shell's: of a gateway (`gateway/refill.rs`) and of the
//! simulator.

use std::time::Duration;

use crate::ids::{Position, Pseq};
use crate::time::{Mono, Wall};
use crate::viewer::ring::{self, Entry, Limits, Rejoin, Ring};

/// What was read for many is kept for those who are still to come.
const PAST_KEPT: Duration = Duration::from_secs(30);

/// A ring that is being filled.
#[derive(Clone, Debug)]
pub struct Refill<P> {
    request: u64,
    asked_at: Mono,
    /// The asked page ends here, at the ring's floor.
    upto: Position,
    /// The newest place the ring was ever given.
    seen: Position,
    /// To be joined in the end.
    old: Option<Ring<P>>,
    /// The last page brought the ring no further.
    came_to_nothing: bool,
}

/// A room as its log says it stands: head, last event that viewers are sent, priority number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stand {
    pub head: Position,
    pub last_event: Position,
    pub pseq: Pseq,
}

/// What is asked of the log: one page, backwards from `upto`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    pub upto: Position,
    /// A log that does not know this place is another one.
    pub seen: Position,
}

/// What became of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Took {
    /// It does not join the ring: the attempt is over.
    Broken,
    Page,
    /// The ring reaches what it was before its break. `whole`: the two are one now, else they do not join.
    Joined {
        whole: bool,
    },
}

/// What follows on a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Everyone who waits is served by the ring.
    Done,
    Ask,
    /// No more will come: those before the floor resume for themselves.
    GiveUp,
}

impl<P> Refill<P> {
    /// A ring that was out of touch with its room hears how it stands. `last` is the last event it was given. Where events
    /// came meanwhile, it begins anew and is to be filled.
    pub fn rejoin(
        ring: &mut Ring<P>,
        last: &mut Position,
        stand: Stand,
        limits: Limits,
        now: Mono,
    ) -> (Rejoin, Option<Refill<P>>) {
        let how = ring::rejoin(ring, *last, stand.head, stand.last_event, stand.pseq);
        if how == Rejoin::Whole {
            ring.advance(stand.head);
            return (how, None);
        }
        let old = std::mem::replace(ring, Ring::new(stand.head, stand.pseq, limits));
        *last = stand.last_event;
        let refill = (how == Rejoin::Gap).then(|| Refill::new(old.head(), Some(old), now));
        (how, refill)
    }

    /// A ring whose floor lies above a cursor that waits.
    pub fn of_past(ring: &Ring<P>, now: Mono) -> Refill<P> {
        Refill::new(ring.head(), None, now)
    }

    fn new(seen: Position, old: Option<Ring<P>>, now: Mono) -> Refill<P> {
        Refill { request: 0, asked_at: now, upto: seen, seen, old, came_to_nothing: false }
    }

    /// The next page is asked for, under this number.
    pub fn ask(&mut self, ring: &Ring<P>, request: u64, now: Mono) -> Ask {
        (self.request, self.asked_at, self.upto) = (request, now, ring.floor());
        Ask { upto: self.upto, seen: self.seen }
    }

    /// Whether an answer under this number is to the last question.
    pub fn awaits(&self, request: u64) -> bool {
        self.request == request
    }

    /// Whether the answer is later than any reader is.
    pub fn is_late(&self, wait: Duration, now: Mono) -> bool {
        now.since(self.asked_at) > wait
    }

    /// The ring lost touch with its room and is not joined to what it was.
    pub fn is_gap(&self) -> bool {
        self.old.is_some()
    }

    /// When an event of a page counts as come: what nobody was given is new to everyone; what lies further back is as old as
    /// it is.
    pub fn came_at(&self, ts: Wall, wall: Wall, now: Mono) -> Mono {
        if self.is_gap() { now } else { Mono(now.0.saturating_sub(wall.since(ts).as_micros() as u64)) }
    }

    /// Takes a page: every event of the room after `after` and up to where it was asked from, oldest first.
    pub fn take(&mut self, ring: &mut Ring<P>, after: Position, past: Vec<Entry<P>>, now: Mono) -> Took {
        self.came_to_nothing = after >= self.upto;
        // A ring that let go of something meanwhile is too full to be given more.
        if ring.floor() != self.upto || !ring.extend_back(after, past) {
            return Took::Broken;
        }
        ring.keep_until(now + PAST_KEPT);
        match self.old.take_if(|old| old.head() >= after) {
            Some(old) => Took::Joined { whole: ring.join(old) },
            None => Took::Page,
        }
    }

    /// `waiting`: the cursors of those who wait for this ring.
    pub fn next(&self, ring: &Ring<P>, mut waiting: impl Iterator<Item = Position>, now: Mono) -> Next {
        let floor = ring.floor();
        if !self.is_gap() && waiting.all(|cursor| cursor >= floor) {
            Next::Done
        } else if self.came_to_nothing || !ring.takes_past(now) {
            Next::GiveUp
        } else {
            Next::Ask
        }
    }
}

/// Whether a cursor that the ring does not hold waits until it does; else it is answered from the log by itself.
pub fn waits_for_past<P>(ring: &Ring<P>, refill: Option<&Refill<P>>, cursor: Position, now: Mono) -> bool {
    cursor < ring.floor() && (refill.is_some() || ring.takes_past(now))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Next, Refill, Stand, Took, waits_for_past};
    use crate::ids::{Epoch, EventId, Position, Pseq, Seq};
    use crate::record::Lane;
    use crate::time::{Mono, Wall};
    use crate::viewer::ring::{Entry, Limits, Rejoin, Ring};

    fn id(seq: u64) -> EventId {
        EventId::at(Epoch::new(7).unwrap(), Seq::new(seq).unwrap())
    }

    fn at(seq: u64) -> Position {
        id(seq).position()
    }

    fn entry(seq: u64) -> Entry<u64> {
        let (lane, at) = (Lane::Comment, Mono(seq));
        Entry {
            id: id(seq),
            lane,
            closes_window: false,
            private: false,
            pseq: None,
            won: None,
            at,
            bytes: 10,
            payload: seq,
        }
    }

    fn ring(from: u64, upto: u64) -> Ring<u64> {
        let mut ring = Ring::new(at(from), Pseq(0), Limits::default());
        for seq in from + 1..=upto {
            ring.push(entry(seq));
        }
        ring
    }

    fn entries(ring: &Ring<u64>) -> Vec<u64> {
        ring.after(ring.floor()).unwrap().map(|entry| entry.payload).collect()
    }

    fn broken(upto: u64) -> (Ring<u64>, Option<Refill<u64>>) {
        let mut ring = ring(0, 10);
        let mut last = at(10);
        let stand = Stand { head: at(upto), last_event: at(upto), pseq: Pseq(0) };
        let (how, refill) = Refill::rejoin(&mut ring, &mut last, stand, Limits::default(), Mono(100));
        assert_eq!((how == Rejoin::Gap, last), (upto > 10, at(upto)));
        (ring, refill)
    }

    #[test]
    fn a_ring_that_missed_nothing_goes_on_and_one_that_did_is_joined_by_pages() {
        assert!(broken(10).1.is_none());
        let (mut ring, refill) = broken(14);
        let mut refill = refill.unwrap();
        assert_eq!((ring.floor(), entries(&ring)), (at(14), vec![]));
        ring.push(entry(15));
        let ask = refill.ask(&ring, 1, Mono(101));
        assert_eq!((ask.upto, ask.seen), (at(14), at(10)));
        assert!(refill.awaits(1) && !refill.awaits(2) && refill.is_gap());
        assert_eq!(refill.take(&mut ring, at(12), vec![entry(13), entry(14)], Mono(102)), Took::Page);
        assert_eq!(refill.next(&ring, [].into_iter(), Mono(102)), Next::Ask);
        assert_eq!(refill.ask(&ring, 2, Mono(103)).upto, at(12));
        let took = refill.take(&mut ring, at(9), vec![entry(10), entry(11), entry(12)], Mono(104));
        assert_eq!(took, Took::Joined { whole: true });
        assert_eq!(refill.next(&ring, [].into_iter(), Mono(104)), Next::Done);
        assert_eq!(entries(&ring), (1..=15).collect::<Vec<_>>());
    }

    #[test]
    fn a_log_that_does_not_know_what_was_given_ends_all_that_the_ring_held() {
        let mut ring = ring(0, 10);
        let mut last = at(10);
        let stand = Stand { head: at(8), last_event: at(8), pseq: Pseq(0) };
        let (how, refill) = Refill::rejoin(&mut ring, &mut last, stand, Limits::default(), Mono(1));
        assert!(how == Rejoin::Lost && refill.is_none() && ring.is_empty() && last == at(8));
    }

    #[test]
    fn cursors_from_before_the_floor_wait_until_the_ring_reaches_the_lowest() {
        let mut ring = ring(20, 22);
        let waiting = || [at(21), at(11)].into_iter();
        assert!(waits_for_past(&ring, None, at(11), Mono(1)) && !waits_for_past(&ring, None, at(20), Mono(1)));
        let mut refill = Refill::of_past(&ring, Mono(1));
        assert_eq!(refill.ask(&ring, 1, Mono(1)).seen, at(22));
        assert_eq!(refill.take(&mut ring, at(15), (16..=20).map(entry).collect(), Mono(2)), Took::Page);
        assert_eq!(refill.next(&ring, waiting(), Mono(2)), Next::Ask);
        refill.ask(&ring, 2, Mono(2));
        assert_eq!(refill.take(&mut ring, at(11), (12..=15).map(entry).collect(), Mono(3)), Took::Page);
        assert_eq!(refill.next(&ring, waiting(), Mono(3)), Next::Done);
    }

    #[test]
    fn a_page_that_brings_nothing_or_does_not_join_ends_the_attempt() {
        let mut ring = ring(20, 22);
        let mut refill = Refill::of_past(&ring, Mono(1));
        refill.ask(&ring, 1, Mono(1));
        assert_eq!(refill.take(&mut ring, at(20), vec![], Mono(2)), Took::Page);
        assert_eq!(refill.next(&ring, [at(1)].into_iter(), Mono(2)), Next::GiveUp);
        refill.ask(&ring, 2, Mono(2));
        assert_eq!(refill.take(&mut ring, at(18), vec![entry(18), entry(19)], Mono(2)), Took::Broken);
        // The ring let go of its oldest between question and answer.
        ring.keep_newest(10);
        assert_eq!(refill.take(&mut ring, at(18), vec![entry(19), entry(20)], Mono(2)), Took::Broken);
        assert!(
            refill.is_late(Duration::from_secs(5), Mono(6_000_000)) && !refill.is_late(Duration::from_secs(5), Mono(7))
        );
    }

    #[test]
    fn what_nobody_was_given_is_new_and_an_older_past_is_as_old_as_it_is() {
        let now = Mono(10_000_000);
        let gap = broken(14).1.unwrap();
        assert_eq!(gap.came_at(Wall(1_000), Wall(3_000), now), now);
        let past = Refill::of_past(&ring(20, 22), now);
        assert_eq!(past.came_at(Wall(1_000), Wall(3_000), now), Mono(8_000_000));
    }
}
