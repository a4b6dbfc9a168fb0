//! What a receiver of somebody else's is told of a log, at least once and in order of each room: the rules, without sockets.
//!
//! Like a postman with one bag a street: the log is read once (*scanned*), each room with something to tell gets a track, and of each track one
//! letter is out at a time. What is not signed for is carried there again, later and later; another room's letters do not wait for it.
//!
//! ```text
//! base     everything up to here has been read: it was delivered, or stands in a track
//! cursor   of a track: everything of its room up to here was delivered
//! ```
//!
//! Both are all that has to outlive a crash. A track that is longer than [`QUEUE_MAX`] forgets its rest and reads it from the log again, so a dead
//! receiver costs one cursor a room and nothing more; the log never waits for anybody.
//!
//! The awkward case: a receiver that takes everything but one letter. After [`Rules::give_up`] that one is passed over and counted, where others
//! were delivered meanwhile; where none was, the receiver is dead.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::time::Duration;

use crate::ids::Position;
use crate::names::RoomId;
use crate::rng::Rng;
use crate::time::{Mono, Wall};

/// Records that a track holds; what follows is read again.
pub const QUEUE_MAX: usize = 32;
/// Records that all tracks of a receiver hold.
pub const QUEUED_MAX: usize = 1_024;
/// Tracks with something to tell. With as many the log is read on when one is done.
pub const TRACKS_MAX: usize = 4_096;
/// Deliveries under way to one receiver; one while it fails.
pub const AT_ONCE: usize = 4;

const WAIT_MIN: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(300);
/// What a receiver may ask to be left alone for.
const ASKED_MAX: Duration = Duration::from_secs(3_600);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// After so long without a success a receiver is dead, and a record that alone fails is passed over.
    pub give_up: Duration,
}

/// A room's track, or that of what is of no room.
pub type Track = Option<RoomId>;

/// What is to be done for a receiver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Work<T> {
    /// Deliver it, and say how it went by [`Tracks::delivered`] or [`Tracks::failed`].
    Send { track: Track, at: Position, item: T },
    /// Read the track's records after this, and give them to [`Tracks::refilled`].
    Read { track: Track, after: Position },
}

/// What a failure leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failed {
    /// It is sent again.
    Again,
    /// Others were delivered and this one was not, for too long: the track goes on behind it.
    PassedOver,
    /// Nothing was delivered for too long.
    Dead,
}

#[derive(Clone, Debug)]
struct Waiting<T> {
    cursor: Position,
    /// Everything of the room up to here was delivered or is in `queue`.
    read: Position,
    queue: VecDeque<(Position, T)>,
    /// Something was scanned that is not in `queue`.
    is_behind: bool,
    is_out: bool,
    /// The log has let go of something since: what is held is let go too, once nothing of it is out.
    is_stale: bool,
    failures: u32,
    failing_since: Option<Wall>,
    not_before: Mono,
}

/// One receiver's letters.
#[derive(Clone, Debug)]
pub struct Tracks<T> {
    rules: Rules,
    base: Position,
    tracks: BTreeMap<Track, Waiting<T>>,
    queued: usize,
    out: usize,
    /// The first failure since the last success.
    failing_since: Option<Wall>,
    failures: u32,
    not_before: Mono,
    /// The track that was served last; the next one in order is looked at first.
    last: Track,
}

impl<T: Clone> Tracks<T> {
    /// Begins after `base`; `cursors` are tracks of which something is not delivered yet.
    pub fn new(
        rules: Rules,
        base: Position,
        cursors: impl IntoIterator<Item = (Track, Position)>,
        failing_since: Option<Wall>,
    ) -> Tracks<T> {
        let behind = |cursor: Position| Waiting { is_behind: true, ..Waiting::fresh(cursor.min(base)) };
        Tracks {
            rules,
            base,
            tracks: cursors.into_iter().map(|(track, cursor)| (track, behind(cursor))).collect(),
            queued: 0,
            out: 0,
            failing_since,
            failures: u32::from(failing_since.is_some()),
            not_before: Mono(0),
            last: None,
        }
    }

    pub fn base(&self) -> Position {
        self.base
    }

    /// Tracks with something that is not delivered yet.
    pub fn cursors(&self) -> impl Iterator<Item = (&Track, Position)> {
        self.tracks.iter().map(|(track, waiting)| (track, waiting.cursor))
    }

    pub fn n_tracks(&self) -> usize {
        self.tracks.len()
    }

    pub fn failing_since(&self) -> Option<Wall> {
        self.failing_since
    }

    /// Whether the log may be read on.
    pub fn may_scan(&self) -> bool {
        self.tracks.len() < TRACKS_MAX
    }

    /// Takes what was read of the log after [`Tracks::base`] up to `upto`, in order: places, rooms and records.
    pub fn scanned(&mut self, found: impl IntoIterator<Item = (Position, Track, T)>, upto: Position) {
        for (at, track, item) in found {
            // What a page holds beyond the last look was read before it.
            if at <= self.base {
                continue;
            }
            assert!(at <= upto, "a page holds what it says");
            let before = Position::new(at.value() - 1).expect("one less than a position");
            let waiting = self.tracks.entry(track).or_insert_with(|| Waiting::fresh(before));
            if waiting.is_behind || waiting.queue.len() >= QUEUE_MAX || self.queued >= QUEUED_MAX {
                waiting.is_behind = true;
                continue;
            }
            waiting.queue.push_back((at, item));
            waiting.read = at;
            self.queued += 1;
        }
        self.base = self.base.max(upto);
    }

    /// What to do next; `None`: nothing now.
    pub fn next(&mut self, now: Mono) -> Option<Work<T>> {
        let at_once = if self.failing_since.is_some() { 1 } else { AT_ONCE };
        if self.out >= at_once || now < self.not_before {
            return None;
        }
        let is_due = |waiting: &Waiting<T>| !waiting.is_out && waiting.not_before <= now;
        let after = self.tracks.range::<Track, _>((Bound::Excluded(&self.last), Bound::Unbounded));
        let track =
            after.chain(self.tracks.iter()).find(|(_, waiting)| is_due(waiting)).map(|(track, _)| track.clone())?;
        let waiting = self.tracks.get_mut(&track).expect("it was found just now");
        waiting.is_out = true;
        self.out += 1;
        self.last = track.clone();
        Some(match waiting.queue.front() {
            Some((at, item)) => Work::Send { track, at: *at, item: item.clone() },
            None => Work::Read { track, after: waiting.read },
        })
    }

    /// Something that may be held here is not to be told any more, for the log has let go of it or nobody asks for it: all of it is read again. What is out is not called back; if it is not
    /// taken, it is sent as the log has it then.
    pub fn forget(&mut self) {
        for waiting in self.tracks.values_mut() {
            match waiting.is_out {
                true => waiting.is_stale = true,
                false => self.queued -= waiting.let_go(),
            }
        }
    }

    /// What was read of a track that was behind, which is all of it up to `upto`; `None`: it could not be read, and is asked for again.
    pub fn refilled(&mut self, track: &Track, found: Option<(Vec<(Position, T)>, Position)>, now: Mono) {
        let base = self.base;
        if self.came_back(track) {
            return;
        }
        let waiting = self.tracks.get_mut(track).expect("a track stands while something of it is out");
        let Some((found, upto)) = found else {
            waiting.not_before = now + WAIT_MIN;
            return;
        };
        // What lies beyond the base is found there when the log is read on.
        let mut found = found.into_iter().filter(|(at, _)| *at <= base).peekable();
        // One at least, or a full house would never empty.
        let most = QUEUED_MAX.saturating_sub(self.queued).clamp(1, QUEUE_MAX);
        for (at, item) in found.by_ref().take(most) {
            waiting.read = at;
            waiting.queue.push_back((at, item));
            self.queued += 1;
        }
        if found.peek().is_none() {
            waiting.read = waiting.read.max(upto.min(base));
            waiting.is_behind = waiting.read < base;
        }
        self.drop_if_done(track);
    }

    /// It was delivered.
    pub fn delivered(&mut self, track: &Track) {
        (self.failing_since, self.failures) = (None, 0);
        self.pass(track);
    }

    /// It was not. `asked`: for how long the receiver asks to be left alone; an hour at most is granted.
    pub fn failed(&mut self, track: &Track, now: Mono, wall: Wall, asked: Option<Duration>, rng: &mut Rng) -> Failed {
        let since = *self.failing_since.get_or_insert(wall);
        self.failures = self.failures.saturating_add(1);
        // Another track's post, which was out as well, may have been told more.
        let left_alone = wait(self.failures, rng).max(asked.unwrap_or_default().min(ASKED_MAX));
        self.not_before = self.not_before.max(now + left_alone);
        let give_up = self.rules.give_up;
        let waiting = self.tracks.get_mut(track).expect("a track stands while something of it is out");
        let stuck = *waiting.failing_since.get_or_insert(wall);
        let is_dead = wall.since(since) >= give_up;
        if !is_dead && wall.since(stuck) >= give_up {
            self.pass(track);
            return Failed::PassedOver;
        }
        if !is_dead {
            waiting.failures = waiting.failures.saturating_add(1);
            waiting.not_before = now + wait(waiting.failures, rng);
        }
        self.came_back(track);
        if is_dead { Failed::Dead } else { Failed::Again }
    }

    /// An operator says that it is worth trying again.
    pub fn revive(&mut self) {
        (self.failing_since, self.failures, self.not_before) = (None, 0, Mono(0));
        for waiting in self.tracks.values_mut() {
            (waiting.failures, waiting.failing_since, waiting.not_before) = (0, None, Mono(0));
        }
    }

    /// The track's first record is done with.
    fn pass(&mut self, track: &Track) {
        let waiting = self.tracks.get_mut(track).expect("a track stands while something of it is out");
        let (at, _) = waiting.queue.pop_front().expect("what is out is the track's first");
        self.queued -= 1;
        waiting.cursor = at;
        (waiting.failures, waiting.failing_since, waiting.not_before) = (0, None, Mono(0));
        self.came_back(track);
        self.drop_if_done(track);
    }

    /// Nothing of the track is out any more. Returns whether what it held was let go.
    fn came_back(&mut self, track: &Track) -> bool {
        self.out -= 1;
        let waiting = self.tracks.get_mut(track).expect("a track stands while something of it is out");
        waiting.is_out = false;
        let was_stale = std::mem::take(&mut waiting.is_stale);
        if was_stale {
            self.queued -= waiting.let_go();
        }
        was_stale
    }

    fn drop_if_done(&mut self, track: &Track) {
        if self.tracks.get(track).is_some_and(|w| w.queue.is_empty() && !w.is_behind && !w.is_out) {
            self.tracks.remove(track);
        }
    }
}

impl<T> Waiting<T> {
    fn fresh(cursor: Position) -> Waiting<T> {
        Waiting {
            cursor,
            read: cursor,
            queue: VecDeque::new(),
            is_behind: false,
            is_out: false,
            is_stale: false,
            failures: 0,
            failing_since: None,
            not_before: Mono(0),
        }
    }

    /// Holds nothing of the log and is behind. Returns how many it held.
    fn let_go(&mut self) -> usize {
        (self.read, self.is_behind) = (self.cursor, true);
        std::mem::take(&mut self.queue).len()
    }
}

/// Doubling from a second to five minutes, of which the second half is drawn.
fn wait(failures: u32, rng: &mut Rng) -> Duration {
    let whole = (WAIT_MIN * 2u32.saturating_pow(failures.saturating_sub(1).min(16))).min(WAIT_MAX);
    whole / 2 + Duration::from_millis(rng.below(whole.as_millis() as u64 / 2 + 1))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::{AT_ONCE, Failed, QUEUE_MAX, QUEUED_MAX, Rules, Track, Tracks, Work};
    use crate::ids::Position;
    use crate::names::RoomId;
    use crate::rng::Rng;
    use crate::time::{Mono, Wall};

    const RULES: Rules = Rules { give_up: Duration::from_secs(1_000) };

    fn at(n: u64) -> Position {
        Position::new(n).unwrap()
    }

    fn room(n: u64) -> Track {
        (n > 0).then(|| RoomId::parse(&format!("r{n}")).unwrap())
    }

    /// A log: of each place the room; places without one hold nothing that is told.
    struct Log(BTreeMap<u64, Track>);

    impl Log {
        fn scan(&self, after: Position, rows: usize) -> (Vec<(Position, Track, u64)>, Position) {
            let found: Vec<_> = self.0.range(after.value() + 1..).take(rows).collect();
            let upto = found.last().map_or(after, |(n, _)| at(**n));
            (found.into_iter().map(|(n, track)| (at(*n), track.clone(), *n)).collect(), upto)
        }
        fn of(&self, track: &Track, after: Position) -> (Vec<(Position, u64)>, Position) {
            let of = self.0.range(after.value() + 1..).take(QUEUE_MAX * 2);
            let upto = of.clone().last().map_or(after, |(n, _)| at(*n));
            (of.filter(|(_, l)| *l == track).map(|(n, _)| (at(*n), *n)).collect(), upto)
        }
    }

    fn later(n: u64) -> (Mono, Wall) {
        (Mono(n * 1_000_000), Wall(n * 1_000))
    }

    #[test]
    fn of_each_room_one_is_out_at_a_time_and_rooms_do_not_wait_for_each_other() {
        let mut tracks = Tracks::new(RULES, at(0), [], None);
        tracks.scanned([(at(1), room(1), 1), (at(2), room(1), 2), (at(3), room(2), 3)], at(9));
        let (now, wall) = later(1);
        let sends = |tracks: &mut Tracks<u64>, now| match tracks.next(now) {
            Some(Work::Send { item, .. }) => Some(item),
            _ => None,
        };
        assert_eq!(
            (sends(&mut tracks, now), sends(&mut tracks, now), sends(&mut tracks, now)),
            (Some(1), Some(3), None)
        );
        tracks.delivered(&room(2));
        let mut rng = Rng::new(1);
        assert_eq!(tracks.failed(&room(1), now, wall, None, &mut rng), Failed::Again);
        assert_eq!(sends(&mut tracks, now), None, "not at once");
        let (now, _) = later(2);
        assert_eq!(sends(&mut tracks, now), Some(1), "the same again, not the next");
        tracks.delivered(&room(1));
        assert_eq!(tracks.cursors().collect::<Vec<_>>(), [(&room(1), at(1))]);
        assert_eq!(sends(&mut tracks, now), Some(2));
        tracks.delivered(&room(1));
        assert_eq!((tracks.n_tracks(), tracks.base()), (0, at(9)));
    }

    #[test]
    fn a_receiver_that_takes_nothing_for_too_long_is_dead_and_one_letter_that_it_does_not_take_is_passed_over() {
        let mut rng = Rng::new(1);
        let mut tracks = Tracks::new(RULES, at(0), [], None);
        tracks.scanned([(at(1), room(1), 1), (at(2), room(2), 2), (at(3), room(2), 3)], at(3));
        assert!(matches!(tracks.next(later(1).0), Some(Work::Send { item: 1, .. })));
        assert_eq!(tracks.failed(&room(1), later(1).0, later(1).1, None, &mut rng), Failed::Again);
        assert!(matches!(tracks.next(later(500).0), Some(Work::Send { item: 2, .. })));
        tracks.delivered(&room(2));
        assert!(matches!(tracks.next(later(600).0), Some(Work::Send { item: 1, .. })));
        assert!(matches!(tracks.next(later(600).0), Some(Work::Send { item: 3, .. })));
        tracks.delivered(&room(2));
        assert_eq!(tracks.failed(&room(1), later(600).0, later(600).1, None, &mut rng), Failed::Again);
        assert!(matches!(tracks.next(later(1_001).0), Some(Work::Send { item: 1, .. })));
        assert_eq!(tracks.failed(&room(1), later(1_001).0, later(1_001).1, None, &mut rng), Failed::PassedOver);
        assert_eq!(tracks.n_tracks(), 0);

        tracks.scanned([(at(4), room(1), 4)], at(4));
        tracks.revive();
        for (n, end) in [(2_000, Failed::Again), (2_500, Failed::Again), (3_000, Failed::Dead)] {
            assert!(matches!(tracks.next(later(n).0), Some(Work::Send { item: 4, .. })), "{n}");
            assert_eq!(tracks.failed(&room(1), later(n).0, later(n).1, None, &mut rng), end, "{n}");
        }
        assert_eq!(
            tracks.cursors().collect::<Vec<_>>(),
            [(&room(1), at(3))],
            "it goes on there when it is enabled again"
        );
    }

    #[test]
    fn a_receiver_that_asks_to_be_left_alone_is_for_an_hour_at_most() {
        let mut rng = Rng::new(1);
        let mut tracks = Tracks::new(RULES, at(0), [], None);
        tracks.scanned([(at(1), room(1), 1), (at(2), room(2), 2)], at(2));
        assert!(tracks.next(later(1).0).is_some() && tracks.next(later(1).0).is_some());
        let second = Duration::from_secs(1);
        assert_eq!(tracks.failed(&room(1), later(1).0, later(1).1, Some(90 * second), &mut rng), Failed::Again);
        // What was out as well and says nothing of it takes nothing back.
        assert_eq!(tracks.failed(&room(2), later(2).0, later(2).1, None, &mut rng), Failed::Again);
        assert_eq!(tracks.next(later(90).0), None);
        assert!(tracks.next(later(91).0).is_some());
        assert_eq!(tracks.failed(&room(1), later(91).0, later(91).1, Some(Duration::MAX), &mut rng), Failed::Again);
        assert_eq!(tracks.next(later(91 + 3_599).0), None);
        assert!(tracks.next(later(91 + 3_600).0).is_some());
    }

    #[test]
    fn a_dead_receiver_costs_a_cursor_a_room() {
        let mut tracks = Tracks::new(RULES, at(0), [], None);
        let all = (1..=10_000).map(|n| (at(n), room(1 + n % 100), n));
        tracks.scanned(all, at(10_000));
        assert!(tracks.queued <= QUEUED_MAX && tracks.tracks.values().all(|w| w.queue.len() <= QUEUE_MAX));
        assert_eq!(tracks.n_tracks(), 100);
        assert_eq!((0..20).filter_map(|_| tracks.next(later(1).0)).count(), AT_ONCE);
    }

    #[test]
    fn what_the_log_let_go_of_is_not_told_from_memory() {
        let mut rng = Rng::new(1);
        let mut tracks = Tracks::new(RULES, at(0), [(room(4), at(0))], None);
        tracks.scanned([(at(1), room(1), 1), (at(2), room(1), 2), (at(3), room(2), 3), (at(4), room(3), 4)], at(9));
        let (now, wall) = later(1);
        assert!(matches!(tracks.next(now), Some(Work::Send { item: 1, .. })));
        assert!(matches!(tracks.next(now), Some(Work::Send { item: 3, .. })));
        assert!(matches!(tracks.next(now), Some(Work::Send { item: 4, .. })));
        assert_eq!(tracks.next(now), Some(Work::Read { track: room(4), after: at(0) }));
        tracks.forget();
        // What was read before is not taken.
        tracks.refilled(&room(4), Some((vec![(at(5), 5)], at(9))), now);
        tracks.delivered(&room(1));
        tracks.delivered(&room(2));
        assert_eq!(tracks.failed(&room(3), now, wall, None, &mut rng), Failed::Again);
        assert_eq!(tracks.queued, 0);
        let mut again = Vec::new();
        for second in 2..10 {
            if let Some(work) = tracks.next(later(second).0) {
                let Work::Read { track, after } = work else { panic!("{work:?} is told from memory") };
                // The log has nothing of it any more.
                tracks.refilled(&track, Some((Vec::new(), at(9))), later(second).0);
                again.push((track, after));
            }
        }
        again.sort();
        assert_eq!(again, [(room(1), at(1)), (room(2), at(3)), (room(3), at(3)), (room(4), at(0))]);
        assert_eq!(tracks.n_tracks(), 0);
    }

    proptest! {
        /// Whatever fails, is cut, is let go and crashes: each record reaches the receiver, and of each room in order, repeats aside.
        #[test]
        fn everything_is_told_at_least_once_and_in_order_of_its_room(
            seed in any::<u64>(),
            rooms in prop::collection::vec(0u64..4, 1..200),
            fails in 0u64..60,
        ) {
            let mut rng = Rng::new(seed);
            let log = Log(rooms.iter().enumerate().map(|(n, r)| (n as u64 + 1, room(*r))).collect());
            let mut tracks: Tracks<u64> = Tracks::new(Rules { give_up: Duration::MAX }, at(0), [], None);
            let mut told: BTreeMap<Track, Vec<u64>> = BTreeMap::new();
            let mut saved = (at(0), Vec::new());
            let mut out: Vec<Work<u64>> = Vec::new();
            for step in 0..20_000u64 {
                let (now, wall) = later(step * 400);
                if rng.chance(1, 3) && tracks.may_scan() {
                    let (found, upto) = log.scan(tracks.base(), 1 + rng.below(80) as usize);
                    tracks.scanned(found, upto);
                }
                out.extend(tracks.next(now));
                if !out.is_empty() && rng.chance(2, 3) {
                    match out.swap_remove(rng.below(out.len() as u64) as usize) {
                        Work::Read { track, after } => {
                            let found = (!rng.chance(fails, 100)).then(|| log.of(&track, after));
                            tracks.refilled(&track, found, now);
                        }
                        Work::Send { track, item, .. } => {
                            // A failure may have been heard all the same.
                            let is_heard = !rng.chance(fails, 100);
                            if is_heard || rng.chance(1, 2) {
                                told.entry(track.clone()).or_default().push(item);
                            }
                            if is_heard {
                                tracks.delivered(&track);
                            } else {
                                tracks.failed(&track, now, wall, None, &mut rng);
                            }
                        }
                    }
                }
                if rng.chance(1, 50) {
                    tracks.forget();
                }
                if rng.chance(1, 20) {
                    saved = (tracks.base(), tracks.cursors().map(|(l, c)| (l.clone(), c)).collect());
                }
                if step < 10_000 && rng.chance(1, 400) {
                    out.clear();
                    tracks = Tracks::new(Rules { give_up: Duration::MAX }, saved.0, saved.1.clone(), None);
                }
                if step > 10_000 && tracks.n_tracks() == 0 && tracks.base() == at(rooms.len() as u64) {
                    break;
                }
            }
            for (track, told) in &told {
                let wanted: Vec<u64> = log.0.iter().filter(|(_, l)| *l == track).map(|(n, _)| *n).collect();
                // A crash and a failure go back to something that was told: never over something that was not.
                let mut next = 0;
                for item in told {
                    let place = wanted.iter().position(|w| w == item).expect("of this room");
                    prop_assert!(place <= next, "{track:?}: {item} after {told:?}");
                    next = next.max(place + 1);
                }
                prop_assert_eq!(next, wanted.len(), "{:?} is told whole", track);
            }
            prop_assert_eq!(told.len(), log.0.values().collect::<std::collections::BTreeSet<_>>().len());
        }
    }
}
