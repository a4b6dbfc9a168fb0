//! Which records of a log are valid: the one reader rule, the same for owner, store, replay and checker.
//!
//! A log may hold more than its valid records: a paused writer of an older epoch may append after its successor took
//! over, a retried append may land twice, a lost one leaves a hole. Like page numbers with a new title page for each
//! printing: a page of an older printing found behind a newer title page is thrown away, and after a missing page the rest
//! of that printing is not trusted.
//!
//! - A higher epoch's EpochStart moves the epoch.
//! - A lower epoch's record is void.
//! - A repeated seq is ignored.
//! - A hole voids the rest of its epoch and raises an alarm.

use crate::ids::{Epoch, EpochSpan, EventId, Position, Seq};
use crate::planted::planted;
use crate::record::{Body, Record};

/// What the rule says of one record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reading {
    /// Part of the log. An EpochStart is valid too.
    Valid,
    /// Of a lower epoch, or behind a hole.
    Void,
    /// Seen before.
    Duplicate,
    /// A record is missing before it: void, and someone must be told.
    Hole,
}

/// The rule's memory: the spans of the epochs read so far.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reader {
    spans: Vec<EpochSpan>,
    /// The newest epoch has a hole behind its last valid record.
    holed: bool,
}

impl Reader {
    pub fn new() -> Reader {
        Reader::default()
    }

    /// Goes on after a checkpoint: everything in `spans` has been read. The spans are in rising order of epoch.
    pub fn after(spans: Vec<EpochSpan>) -> Reader {
        assert!(spans.is_sorted_by(|a, b| a.epoch < b.epoch), "a checkpoint's epochs rise");
        Reader { spans, holed: false }
    }

    /// The place of the newest valid record; START when there is none.
    pub fn head(&self) -> Position {
        self.spans.last().map_or(Position::START, |s| EventId::at(s.epoch, s.last_seq).position())
    }

    /// The epochs read so far, rising, each with its last valid seq.
    pub fn spans(&self) -> &[EpochSpan] {
        &self.spans
    }

    /// Whether a record at `id` was read as valid.
    pub fn holds(&self, id: EventId) -> bool {
        let found = self.spans.binary_search_by_key(&id.epoch(), |s| s.epoch);
        found.is_ok_and(|i| id.seq() <= self.spans[i].last_seq)
    }

    /// Judges the next record in log order.
    pub fn read(&mut self, record: &Record) -> Reading {
        self.judge(record.epoch, record.seq, matches!(record.body, Body::EpochStart))
    }

    /// As [`Reader::read`], of a record's header alone.
    pub fn judge(&mut self, epoch: Epoch, seq: Seq, is_start: bool) -> Reading {
        let begins = is_start && seq == Seq::START;
        let Some(newest) = self.spans.last_mut().filter(|newest| epoch <= newest.epoch) else {
            // The record's epoch is higher than any read so far.
            if begins {
                self.spans.push(EpochSpan { epoch, last_seq: seq });
                self.holed = false;
                return Reading::Valid;
            }
            return Reading::Hole;
        };
        if epoch < newest.epoch {
            return if planted(8) { Reading::Valid } else { Reading::Void };
        }
        if seq <= newest.last_seq {
            return Reading::Duplicate;
        }
        if self.holed {
            return Reading::Void;
        }
        if newest.last_seq.next() == Some(seq) && !is_start {
            newest.last_seq = seq;
            return Reading::Valid;
        }
        if planted(12) {
            newest.last_seq = seq;
            return Reading::Valid;
        }
        self.holed = true;
        Reading::Hole
    }
}

#[cfg(test)]
mod tests {
    use super::Reading::{Duplicate, Hole, Valid, Void};
    use super::{Reader, Reading};
    use crate::ids::{Epoch, EventId, Seq};

    /// Reads `(epoch, seq)` in order, seq 0 being the EpochStart.
    fn check(log: &[(u32, u64)], want: &[Reading]) -> Reader {
        let mut reader = Reader::new();
        let got: Vec<Reading> =
            log.iter().map(|&(e, s)| reader.judge(Epoch::new(e).unwrap(), Seq::new(s).unwrap(), s == 0)).collect();
        assert_eq!(got, want);
        reader
    }

    #[test]
    fn a_plain_log_is_valid() {
        check(&[(1, 0), (1, 1), (1, 2), (4, 0), (4, 1)], &[Valid; 5]);
    }

    #[test]
    fn a_zombies_record_after_the_take_over_is_void() {
        check(&[(1, 0), (1, 1), (2, 0), (1, 2), (2, 1)], &[Valid, Valid, Valid, Void, Valid]);
    }

    #[test]
    fn a_late_epoch_start_of_a_lower_epoch_is_void() {
        check(&[(2, 0), (1, 0), (1, 1), (2, 1)], &[Valid, Void, Void, Valid]);
    }

    #[test]
    fn a_repeat_is_ignored() {
        check(&[(1, 0), (1, 1), (1, 1), (1, 0), (1, 2)], &[Valid, Valid, Duplicate, Duplicate, Valid]);
    }

    #[test]
    fn a_hole_voids_the_rest_of_its_epoch_only() {
        let log = [(1, 0), (1, 2), (1, 1), (1, 3), (2, 0), (2, 1)];
        let reader = check(&log, &[Valid, Hole, Void, Void, Valid, Valid]);
        assert!(!reader.holds(EventId::at(Epoch::new(1).unwrap(), Seq::new(1).unwrap())));
        assert!(reader.holds(EventId::at(Epoch::new(2).unwrap(), Seq::new(1).unwrap())));
    }

    #[test]
    fn an_epoch_without_its_start_is_a_hole_and_moves_nothing() {
        check(&[(1, 0), (2, 1), (1, 1)], &[Valid, Hole, Valid]);
    }
}
