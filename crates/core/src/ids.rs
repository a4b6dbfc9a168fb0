//! Positions in a log and the numbers made from them.
//!
//! An event id is `epoch << 33 | seq`, below 2^53, so a JSON number holds it exactly. It is the resume cursor on every
//! transport. A [`Position`] is "everything up to here has been served"; 0 means nothing has.

use std::fmt;

/// Incarnation of a log's writer. Grows with each take-over; 1 ..= 2^20 - 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Epoch(u32);

/// Place within an epoch, contiguous from 0 (the EpochStart record). 0 ..= 2^32.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Seq(u64);

/// `epoch << 33 | seq`. Strictly increasing per room, never reused, holes allowed. 0 < id < 2^53.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(u64);

/// A place in a log that a viewer has been served up to: an event id, or 0 for "from the very start". 0 ..< 2^53.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position(u64);

/// Contiguous number of a priority event within its room, from 1; 0 means none yet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Pseq(pub u64);

/// Version of one score event as its provider (or arrival order) numbers it. 1 ..= 1 000 000.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Revision(pub u32);

/// One of the 1 024 fixed partitions that rooms hash to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Partition(pub u16);

/// One epoch of a log and the last record it has (so far, for the newest).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpochSpan {
    pub epoch: Epoch,
    pub last_seq: Seq,
}

impl Epoch {
    /// Largest epoch: 53 bits of id less the 33 of seq.
    pub const MAX: u32 = (1 << 20) - 1;

    /// Errors: `None` outside 1 ..= [`Epoch::MAX`].
    pub fn new(value: u32) -> Option<Epoch> {
        (1..=Epoch::MAX).contains(&value).then_some(Epoch(value))
    }
    pub fn value(self) -> u32 {
        self.0
    }
}

impl Seq {
    pub const START: Seq = Seq(0);
    /// At 2^32 a new epoch starts.
    pub const MAX: u64 = 1 << 32;

    pub fn new(value: u64) -> Option<Seq> {
        (value <= Seq::MAX).then_some(Seq(value))
    }
    pub fn value(self) -> u64 {
        self.0
    }
    /// Errors: `None` at the end of the epoch.
    pub fn next(self) -> Option<Seq> {
        Seq::new(self.0 + 1)
    }
}

impl EventId {
    pub const SEQ_BITS: u32 = 33;
    /// Ids are below this: 2^53.
    pub const LIMIT: u64 = 1 << 53;

    pub fn at(epoch: Epoch, seq: Seq) -> EventId {
        EventId(u64::from(epoch.0) << EventId::SEQ_BITS | seq.0)
    }
    /// Errors: `None` when 0, at or above 2^53, or when its epoch part is 0.
    pub fn new(value: u64) -> Option<EventId> {
        (value < EventId::LIMIT && value >> EventId::SEQ_BITS > 0 && value & ((1 << EventId::SEQ_BITS) - 1) <= Seq::MAX)
            .then_some(EventId(value))
    }
    pub fn value(self) -> u64 {
        self.0
    }
    pub fn epoch(self) -> Epoch {
        Epoch((self.0 >> EventId::SEQ_BITS) as u32)
    }
    pub fn seq(self) -> Seq {
        Seq(self.0 & ((1 << EventId::SEQ_BITS) - 1))
    }
    pub fn position(self) -> Position {
        Position(self.0)
    }
}

impl Position {
    pub const START: Position = Position(0);

    /// Errors: `None` at or above 2^53.
    pub fn new(value: u64) -> Option<Position> {
        (value < EventId::LIMIT).then_some(Position(value))
    }
    /// Reads decimal text as clients send it: digits only, no sign, no leading zeros but "0" itself.
    /// Errors: `None` for anything else or at or above 2^53.
    pub fn parse(text: &str) -> Option<Position> {
        let plain = !text.is_empty() && text.len() <= 16 && text.bytes().all(|b| b.is_ascii_digit());
        (plain && (text == "0" || !text.starts_with('0'))).then(|| text.parse().ok()).flatten().and_then(Position::new)
    }
    pub fn value(self) -> u64 {
        self.0
    }
    /// The event id at this position, where it can be one.
    pub fn event_id(self) -> Option<EventId> {
        EventId::new(self.0)
    }
}

impl Pseq {
    pub fn next(self) -> Pseq {
        Pseq(self.0 + 1)
    }
}

impl fmt::Debug for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.epoch().0, self.seq().0)
    }
}

impl fmt::Debug for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.event_id() {
            Some(id) => write!(f, "{id:?}"),
            None => write!(f, "{}", self.0),
        }
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::{Epoch, EventId, Position, Seq};

    #[test]
    fn an_id_gives_back_its_parts_and_orders_by_epoch_first() {
        let old = EventId::at(Epoch::new(7).unwrap(), Seq::new(Seq::MAX).unwrap());
        let new = EventId::at(Epoch::new(8).unwrap(), Seq::START);
        assert_eq!((old.epoch().value(), old.seq().value()), (7, Seq::MAX));
        assert!(old < new);
    }

    #[test]
    fn the_largest_id_is_below_two_to_the_53() {
        let id = EventId::at(Epoch::new(Epoch::MAX).unwrap(), Seq::new(Seq::MAX).unwrap());
        assert!(id.value() < EventId::LIMIT);
        assert_eq!(EventId::new(id.value()), Some(id));
    }

    #[test]
    fn cursors_are_plain_decimals_below_two_to_the_53() {
        for bad in ["", "-1", "+1", "1e9", "01", " 1", "9007199254740992", "18446744073709551616", "0x1", "１"] {
            assert_eq!(Position::parse(bad), None, "{bad:?}");
        }
        assert_eq!(Position::parse("0"), Some(Position::START));
        assert_eq!(Position::parse("9007199254740991").map(Position::value), Some((1 << 53) - 1));
    }
}
