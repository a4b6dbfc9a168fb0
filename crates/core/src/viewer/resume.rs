//! What a cursor from before a disconnect is still worth.
//!
//! A coat check: the ticket is good as long as we can prove that nothing of value handed in after it is missing. Any number
//! the log has ever given out is a ticket; one from the future, or from a part of the log that is gone, is not ours.
//!
//! It never claims continuity it cannot prove: every priority event after the cursor follows, or the answer is
//! `snapshot_required`. Nobody is sent to a snapshot because of comments. The awkward cases: a quiet room (nothing after the
//! cursor, however old, is a perfect resume), a cursor of another room of the log (as good as any), and one beyond the last
//! record of its epoch (it saw what the log lost).
//!
//! One function for ring, log and memory: they differ only in where the facts come from.
//!
//! Numbers: 500 comments, the room's resume window, 5 min unless set (docs/protocol.md, streams).

use std::time::Duration;

use super::ring::Ring;
use super::walk::{CatchUp, Place, Skipped};
use crate::ids::{EpochSpan, EventId, Position, Pseq};
use crate::planted::planted;
use crate::record::Lane;
use crate::time::Mono;

/// Comments a resume sends at most.
pub const COMMENTS_MAX: usize = 500;
/// So far back the log is read for a viewer's part of a wide room: as far as a ring reaches. All winners of that time are read
/// for each cursor, a hundred times what the viewer is given.
pub const WIDE_PAST_MAX: Duration = Duration::from_secs(30);

/// How old the winners of a wide room may be that a resume from the log picks from. `cap`: comments a second, `window`: the
/// room's resume window.
pub fn wide_past(cap: u32, window: Duration) -> Duration {
    window.min(WIDE_PAST_MAX).min(Duration::from_secs(COMMENTS_MAX as u64) / cap.max(1))
}

/// What is known of a room and its log at the moment a cursor is judged. Ages are log time passed since the event.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// The log's newest record: live events follow from here.
    pub head: Position,
    /// Every epoch the log has had, oldest first.
    pub epochs: &'a [EpochSpan],
    /// The room's records are complete after here (START when none was ever removed).
    pub complete_after: Position,
    /// The room's newest event that viewers are sent.
    pub last_event: Position,
    /// The room's newest priority number.
    pub pseq: Pseq,
    /// The room's first priority event after the cursor.
    pub first_priority: Option<Priority>,
    /// The room's first comment after the cursor, and how many follow the cursor in all.
    pub first_comment: Option<(EventId, Duration)>,
    pub n_comments: u64,
    /// The room's resume window.
    pub window: Duration,
    /// Of a wide room: its comments up to here do not follow, and nobody is told how many they are ([`wide_past`]).
    pub wide_from: Option<Position>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Priority {
    pub id: EventId,
    pub pseq: Pseq,
    pub age: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// No cursor: from the head on.
    Live { from: Position, pseq: Pseq },
    /// Every priority event after `from` follows, and the comments after `comments_after`.
    Resumed {
        from: Position,
        /// The room's priority number at `from`: the next one sent is one higher.
        pseq: Pseq,
        comments_after: Position,
        /// The comments after `from` that do not follow; `None` is the `all` of hello.
        skipped: Option<Skipped>,
        /// The head of this answer.
        until: Position,
    },
    /// The stream goes on live from `from`; the snapshot must not be older than it.
    SnapshotRequired { reason: Reason, from: Position, pseq: Pseq },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    TooOld,
    UnknownCursor,
}

impl Reason {
    pub fn name(self) -> &'static str {
        match self {
            Reason::TooOld => "too_old",
            Reason::UnknownCursor => "unknown_cursor",
        }
    }
}

impl Answer {
    /// Where the viewer's stream begins.
    pub fn place(&self) -> Place {
        match *self {
            Answer::Live { from, .. } | Answer::SnapshotRequired { from, .. } => Place::live(from),
            Answer::Resumed { from, comments_after, until, .. } => {
                let comments_after = if planted(26) { until } else { comments_after };
                Place { position: from, catch_up: (from < until).then_some(CatchUp { comments_after, until }) }
            }
        }
    }

    /// hello's `cursor` and `pseq`.
    pub fn baseline(&self) -> (Position, Pseq) {
        match *self {
            Answer::Live { from, pseq }
            | Answer::Resumed { from, pseq, .. }
            | Answer::SnapshotRequired { from, pseq, .. } => (from, pseq),
        }
    }
}

/// Judges a cursor. `newest` is asked only when not all comments can follow: the newest [`COMMENTS_MAX`] + 1 comments of the
/// room after the cursor (fewer when there are fewer), oldest first, with their ages.
pub fn resume_from(cursor: Position, facts: &Facts, newest: impl FnOnce() -> Vec<(EventId, Duration)>) -> Answer {
    if cursor == Position::START {
        return Answer::Live { from: facts.head, pseq: facts.pseq };
    }
    if !is_known(cursor, facts.head, facts.epochs) {
        return Answer::SnapshotRequired { reason: Reason::UnknownCursor, from: facts.head, pseq: facts.pseq };
    }
    let all = facts.n_comments <= COMMENTS_MAX as u64 && facts.first_comment.is_none_or(|(_, age)| age <= facts.window);
    let first = facts.first_comment.filter(|_| !all);
    resume_known(cursor, facts, || {
        if let Some(to) = facts.wide_from {
            return (to > cursor).then_some(Cut { to: to.min(facts.head), skipped: None });
        }
        let (first, _) = first?;
        let newest = newest();
        let by_count = newest.len().saturating_sub(COMMENTS_MAX);
        let by_age = newest.partition_point(|(_, age)| *age > facts.window);
        let kept_from = by_count.max(by_age);
        let to = newest[kept_from.checked_sub(1)?].0;
        let count = facts.n_comments - (newest.len() - kept_from) as u64;
        Some(Cut { to: to.position(), skipped: Some(Skipped { count, from: first, to }) })
    })
}

/// The comments of a gap that do not follow.
struct Cut {
    /// They are up to here.
    to: Position,
    /// Those of them that are told.
    skipped: Option<Skipped>,
}

/// Judges a cursor that the log has given out.
fn resume_known(cursor: Position, facts: &Facts, cut: impl FnOnce() -> Option<Cut>) -> Answer {
    let resumed = |pseq, comments_after, skipped| Answer::Resumed {
        from: cursor,
        pseq,
        comments_after,
        skipped,
        until: facts.head,
    };
    if facts.last_event <= cursor {
        return resumed(facts.pseq, cursor, None);
    }
    // What was removed from the log is older than any window; whether it held priority events cannot be told any more.
    let trimmed = facts.first_priority.is_some_and(|first| first.age > facts.window);
    if trimmed || cursor < facts.complete_after {
        return Answer::SnapshotRequired { reason: Reason::TooOld, from: facts.head, pseq: facts.pseq };
    }
    let before = |first: Priority| if planted(29) { facts.pseq } else { Pseq(first.pseq.0 - 1) };
    let pseq = facts.first_priority.map_or(facts.pseq, before);
    match cut() {
        None => resumed(pseq, cursor, None),
        Some(Cut { to, skipped }) => resumed(pseq, to, skipped),
    }
}

/// Answers from the ring alone. `None` when the ring cannot tell: the log is asked. `epochs` are some of the log's, as they were
/// at some time: a place one of them had is known.
pub fn from_ring<P>(
    ring: &Ring<P>,
    cursor: Position,
    window: Duration,
    now: Mono,
    epochs: &[EpochSpan],
) -> Option<Answer> {
    let (floor, head) = (ring.floor(), ring.head());
    let epoch = |p: Position| p.event_id().map(EventId::epoch);
    let start = ring.place_after(cursor);
    // Within the newest epoch each number up to the head was given out; before it, only those the ring has seen and those of
    // an epoch it was told of are sure.
    let told = |id: EventId| epochs.iter().any(|span| span.epoch == id.epoch() && id.seq() <= span.last_seq);
    let sure =
        cursor.event_id().is_some_and(told) || epoch(cursor) == epoch(head) || cursor == floor || cursor == head || {
            start > ring.place_after(floor) && ring.at(start - 1).id.position() == cursor
        };
    if cursor == Position::START || (cursor < floor && !planted(31)) || cursor > head || !sure {
        return None;
    }
    let places = start..ring.end();
    let comment = |e: &&super::ring::Entry<P>| e.lane == Lane::Comment && !e.private;
    let first_priority = ring.priority_in(places).next().map(|place| {
        let entry = ring.at(place);
        let pseq = entry.pseq.expect("every priority entry has its number");
        Priority { id: entry.id, pseq, age: now.since(entry.at) }
    });
    let facts = Facts {
        head,
        epochs: &[],
        complete_after: floor,
        last_event: ring.last().map_or(floor, |last| last.id.position()),
        pseq: ring.pseq(),
        first_priority,
        // Nothing is cut by them here.
        first_comment: None,
        n_comments: 0,
        window,
        wide_from: None,
    };
    // Of a wide room's winners only the picks count, and what was never picked is not told.
    let cut = || {
        let by_age = ring.place_younger(window, now);
        let kept_from = ring.newest_given(COMMENTS_MAX as u64).max(by_age).clamp(start, ring.end());
        let gone = || ring.span(start..kept_from).filter(comment);
        let told = || gone().filter(|e| e.won.is_none());
        let count = ring.comments_in(start..kept_from);
        let skipped = told().next().zip(told().next_back());
        let skipped = skipped.map(|(first, last)| Skipped { count, from: first.id, to: last.id });
        Some(Cut { to: gone().next_back()?.id.position(), skipped })
    };
    Some(resume_known(cursor, &facts, cut))
}

/// Whether the log has given out everything up to `cursor`.
pub fn is_known(cursor: Position, head: Position, epochs: &[EpochSpan]) -> bool {
    if cursor > head {
        return false;
    }
    // Ids before the oldest epoch are merely old.
    let Some(id) = cursor.event_id().filter(|id| epochs.first().is_some_and(|oldest| id.epoch() >= oldest.epoch))
    else {
        return true;
    };
    epochs.iter().any(|span| span.epoch == id.epoch() && id.seq() <= span.last_seq)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Answer, COMMENTS_MAX, Facts, Priority, Reason, from_ring, resume_from, wide_past};
    use crate::ids::{Epoch, EpochSpan, EventId, Position, Pseq, Seq};
    use crate::record::Lane;
    use crate::time::Mono;
    use crate::viewer::ring::{Entry, Limits, Ring};
    use crate::viewer::walk::{CatchUp, Skipped};

    fn at(epoch: u32, seq: u64) -> EventId {
        EventId::at(Epoch::new(epoch).unwrap(), Seq::new(seq).unwrap())
    }
    fn span(epoch: u32, last: u64) -> EpochSpan {
        EpochSpan { epoch: Epoch::new(epoch).unwrap(), last_seq: Seq::new(last).unwrap() }
    }
    fn s(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    /// Epoch 5 ends at 100, epoch 7 is at 50; the room's newest event is 7@40, its window 300 s.
    fn facts(epochs: &[EpochSpan]) -> Facts<'_> {
        Facts {
            head: at(7, 50).position(),
            epochs,
            complete_after: Position::START,
            last_event: at(7, 40).position(),
            pseq: Pseq(9),
            first_priority: None,
            first_comment: None,
            n_comments: 0,
            window: s(300),
            wide_from: None,
        }
    }

    fn judge(cursor: Position, change: impl FnOnce(&mut Facts)) -> Answer {
        let epochs = [span(5, 100), span(7, 50)];
        let mut facts = facts(&epochs);
        change(&mut facts);
        resume_from(cursor, &facts, Vec::new)
    }

    #[test]
    fn of_a_wide_room_the_newest_winners_follow_and_nobody_counts_the_others() {
        let many = |facts: &mut Facts| {
            facts.n_comments = 96_000;
            facts.first_comment = Some((at(7, 11), s(200)));
        };
        let judged = judge(at(7, 10).position(), |facts| {
            many(facts);
            facts.wide_from = Some(at(7, 30).position());
        });
        let Answer::Resumed { comments_after, skipped, .. } = judged else { panic!("{judged:?}") };
        assert_eq!((comments_after, skipped), (at(7, 30).position(), None));
        // All of the gap is young.
        let judged = judge(at(7, 35).position(), |facts| {
            many(facts);
            facts.wide_from = Some(at(7, 30).position());
        });
        let Answer::Resumed { comments_after, skipped, .. } = judged else { panic!("{judged:?}") };
        assert_eq!((comments_after, skipped), (at(7, 35).position(), None));
    }

    #[test]
    fn a_wide_rooms_past_is_as_long_as_what_a_viewer_may_be_given_of_it() {
        assert_eq!(wide_past(5, s(300)), s(30), "no further than a ring");
        assert_eq!(wide_past(50, s(300)), s(10), "500 comments");
        assert_eq!(wide_past(1, s(20)), s(20), "no further than the room's window");
    }

    #[test]
    fn no_cursor_is_live_from_the_head() {
        assert_eq!(judge(Position::START, |_| ()), Answer::Live { from: at(7, 50).position(), pseq: Pseq(9) });
    }

    #[test]
    fn nothing_after_it_is_resumed_however_old() {
        for cursor in [at(7, 40), at(7, 50)] {
            let answer = judge(cursor.position(), |f| f.window = s(0));
            assert!(matches!(answer, Answer::Resumed { skipped: None, pseq: Pseq(9), .. }), "{answer:?}");
        }
        let quiet = judge(at(5, 3).position(), |f| f.last_event = at(5, 2).position());
        assert!(matches!(quiet, Answer::Resumed { skipped: None, .. }), "{quiet:?}");
    }

    #[test]
    fn a_cursor_that_was_never_given_out_is_unknown() {
        for cursor in [at(7, 51), at(8, 0), at(5, 101), at(6, 0)] {
            let answer = judge(cursor.position(), |f| f.last_event = Position::START);
            let expect =
                Answer::SnapshotRequired { reason: Reason::UnknownCursor, from: at(7, 50).position(), pseq: Pseq(9) };
            assert_eq!(answer, expect, "{cursor:?}");
        }
    }

    #[test]
    fn a_goal_older_than_the_window_is_too_old_and_a_younger_one_resumes() {
        let goal = |age| Some(Priority { id: at(7, 3), pseq: Pseq(8), age: s(age) });
        let answer = judge(at(5, 3).position(), |f| f.first_priority = goal(301));
        assert!(matches!(answer, Answer::SnapshotRequired { reason: Reason::TooOld, .. }), "{answer:?}");
        let answer = judge(at(5, 3).position(), |f| f.first_priority = goal(300));
        assert!(matches!(answer, Answer::Resumed { pseq: Pseq(7), .. }), "{answer:?}");
    }

    #[test]
    fn what_was_removed_from_the_log_cannot_be_proven() {
        let answer = judge(at(5, 3).position(), |f| f.complete_after = at(5, 50).position());
        assert!(matches!(answer, Answer::SnapshotRequired { reason: Reason::TooOld, .. }), "{answer:?}");
    }

    #[test]
    fn comments_are_trimmed_by_count_and_by_the_window_and_told() {
        let epochs = [span(7, 5_000)];
        let all: Vec<_> = (1..=600).map(|n| (at(7, n), s(if n < 200 { 400 } else { 10 }))).collect();
        let told = |n: usize| {
            let list = all[..n].to_vec();
            let facts = Facts {
                head: at(7, 4_000).position(),
                last_event: at(7, 700).position(),
                first_comment: list.first().copied(),
                n_comments: list.len() as u64,
                ..facts(&epochs)
            };
            let newest = move || list[list.len().saturating_sub(COMMENTS_MAX + 1)..].to_vec();
            match resume_from(at(7, 0).position(), &facts, newest) {
                Answer::Resumed { skipped, comments_after, .. } => (skipped, comments_after.event_id().unwrap()),
                other => panic!("{other:?}"),
            }
        };
        let gone = |count, to| Some(Skipped { count, from: at(7, 1), to: at(7, to) });
        assert_eq!(told(600), (gone(199, 199), at(7, 199)));
        assert_eq!(told(300), (gone(199, 199), at(7, 199)));
        assert_eq!(told(100), (gone(100, 100), at(7, 100)));
    }

    #[test]
    fn the_ring_answers_only_what_it_can_tell() {
        let mut ring = Ring::new(at(5, 90).position(), Pseq(0), Limits::default());
        for (id, lane) in [(at(5, 95), Lane::Comment), (at(7, 3), Lane::Priority), (at(7, 9), Lane::Comment)] {
            let pseq = (lane == Lane::Priority).then_some(Pseq(1));
            ring.push(Entry {
                id,
                lane,
                closes_window: false,
                private: false,
                pseq,
                won: None,
                at: Mono(0),
                bytes: 1,
                payload: (),
            });
        }
        let ask = |cursor: EventId| from_ring(&ring, cursor.position(), s(300), Mono(0), &[]);
        for unsure in [at(5, 89), at(5, 93), at(7, 10), at(6, 0)] {
            assert_eq!(ask(unsure), None, "{unsure:?}");
        }
        let until = at(7, 9).position();
        for (cursor, pseq) in [(at(5, 90), 0), (at(5, 95), 0), (at(7, 2), 0), (at(7, 3), 1)] {
            let answer = ask(cursor).unwrap();
            assert_eq!(answer.baseline(), (cursor.position(), Pseq(pseq)));
            let catch_up = CatchUp { comments_after: cursor.position(), until };
            assert_eq!(answer.place().catch_up, Some(catch_up));
        }
        assert_eq!(ask(at(7, 9)).unwrap().place().catch_up, None);
        let told = |cursor: EventId| from_ring(&ring, cursor.position(), s(300), Mono(0), &[span(5, 96)]);
        assert!(told(at(5, 96)).is_some() && told(at(5, 97)).is_none() && told(at(5, 89)).is_none());
        let short = from_ring(&ring, at(5, 95).position(), s(1), Mono(2_000_000), &[]);
        assert!(matches!(short, Some(Answer::SnapshotRequired { reason: Reason::TooOld, .. })), "{short:?}");
    }
}
