//! Likes: counted, never kept one by one. What a gateway gathers between two ticks, and how it is handed on so that nothing
//! of it is counted twice.
//!
//! Like the collection in a church: each pew puts its coins into one bag, the bags are emptied once a round, and only the
//! sum is ever read out. A [`Gatherer`] is the bag: who gave how many of which kind in which room since the last round. A
//! [`Sender`] numbers the bags and keeps each until it is told that it was counted; the owner passes over a number it has
//! counted already. What is written into the log is the room's total, so reading it twice is reading it once.
//!
//! It never lets a user give more than the room's rate, and never takes more than a bounded table holds: past it a like is
//! refused, not forgotten. The awkward case is a link that broke behind a frame: the frame is sent again under its number.
//!
//! Numbers: 50 likes an operation, 20 a second and five seconds' worth at once for a user of a room (people tap 5 to 15 times
//! a second), 8 kinds a room, a tick of 100 ms (docs/decisions/0025-likes.md).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::hash::Seeded;
use crate::names::{LikeKind, RoomId, UserId};
use crate::rate::{Gcra, Limit};
use crate::routing::stable_hash;
use crate::time::{Mono, Wall};

/// Likes of one operation.
pub const PER_OP_MAX: u32 = 50;
/// Kinds that a room counts, the plain one among them; a further one is refused.
pub const KINDS_MAX: usize = 8;
/// Likes a second of one user in one room, where the room does not say otherwise.
pub const RATE: u32 = 20;
pub const RATE_MAX: u32 = 1_000;
/// So many seconds' worth may come at once.
const BURST_SECONDS: u32 = 5;
/// Reactions of one user in one room: as fast as a hand can, and no faster.
pub const REACTIONS: Limit = Limit { per_second: 10, burst: 20 };
/// Between two hand-overs of a gateway, and between two tallies of an owner.
pub const TICK: Duration = Duration::from_millis(100);
/// (room, kind, user) of one round: at 26 bytes an entry (short names in few rooms) a frame is below 2 MiB, at 232, the most, below 16.
pub const ENTRIES_MAX: usize = 65_536;
/// Users whose rate is remembered; each is forgotten when its likes are paid for.
pub const METERED_MAX: usize = 262_144;
/// Frames of a sender that are not settled yet. With one a tick that is a commit of most of a second.
pub const UNSETTLED_MAX: usize = 8;
/// Senders whose last number is remembered, the longest silent one going first.
pub const SENDERS_MAX: usize = 256;

/// A room's likes by kind, kinds in order.
pub type Totals = Arc<[(LikeKind, u64)]>;

/// What one user may give in a room with this setting. `burst` is stretched where frames come unevenly.
pub fn limit(like_rate: u32, stretch: Duration) -> Limit {
    let seconds = BURST_SECONDS + stretch.as_secs() as u32;
    Limit { per_second: like_rate.max(1), burst: (like_rate * seconds).max(PER_OP_MAX) }
}

/// The higher of two totals, kind by kind.
pub fn highest(one: &Totals, other: &Totals) -> Totals {
    if one.is_empty() {
        return other.clone();
    }
    let mut all: BTreeMap<LikeKind, u64> = one.iter().cloned().collect();
    for (kind, total) in other.iter() {
        let known = all.entry(kind.clone()).or_default();
        *known = (*known).max(*total);
    }
    all.into_iter().collect()
}

/// Whether likes of `kind` count in a room that has these kinds, each named once. The plain one always does: viewers choose the
/// others, and none of them is to take its place.
pub fn has_place<'k>(kind: &LikeKind, kinds: impl IntoIterator<Item = &'k LikeKind>) -> bool {
    let (mut is_known, mut n_others) = (kind.is_plain(), 0);
    for known in kinds {
        is_known |= known == kind;
        n_others += usize::from(!known.is_plain());
    }
    is_known || n_others < KINDS_MAX - 1
}

/// One room's likes of one round: for each kind, who gave how many. Kinds and users in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RoomLikes {
    pub room: RoomId,
    pub kinds: Vec<(LikeKind, Vec<(UserId, u32)>)>,
}

/// What was gathered between two hand-overs, all rooms, rooms in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Round {
    /// From its first like to its end: a tick, or as long as nobody took it.
    pub span: Duration,
    pub rooms: Arc<[RoomLikes]>,
}

/// One round of one gateway.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// The sender's own number and the frame's; `None` from within the owner's process, which ends with it.
    pub from: Option<(u64, u64)>,
    pub round: Round,
}

/// How far a sender's frames are counted, and when the last of them was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counted {
    pub number: u64,
    pub at: Wall,
}

/// Why likes are not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotTaken {
    /// The user's rate; wait so long.
    Rate(Duration),
    /// The table holds what it may.
    Full,
}

/// How much each user has given lately, in each room. A user and a room are told apart by a hash of 64 bits.
#[derive(Clone, Debug)]
pub struct Meter {
    rates: HashMap<u64, Gcra, Seeded>,
    /// When it holds so many, the idle ones are forgotten.
    sweep_at: usize,
    /// A full table was looked through and is not before this time again.
    full_until: Mono,
}

/// A look through a full table is 262 144 looks: not for each refused like.
const FULL_FOR: Duration = Duration::from_secs(1);

impl Meter {
    pub fn new(hasher: Seeded) -> Meter {
        Meter { rates: HashMap::with_hasher(hasher), sweep_at: 1_024, full_until: Mono(0) }
    }

    /// Takes all of `n` or nothing.
    pub fn take(&mut self, room: &RoomId, user: &UserId, n: u32, limit: Limit, now: Mono) -> Result<(), NotTaken> {
        let rate = self.rate(room, user, now).ok_or(NotTaken::Full)?;
        rate.take_many(n, limit, now).map_err(NotTaken::Rate)
    }

    /// Takes as many of `n` as the rate leaves to likes that came between `since` and `now`.
    pub fn take_upto(&mut self, (room, user): (&RoomId, &UserId), n: u32, limit: Limit, since: Mono, now: Mono) -> u32 {
        self.rate(room, user, now).map_or(0, |rate| rate.take_upto(n, limit, since, now))
    }

    fn rate(&mut self, room: &RoomId, user: &UserId, now: Mono) -> Option<&mut Gcra> {
        let key = stable_hash(room.as_str().as_bytes()) ^ stable_hash(user.as_str().as_bytes()).rotate_left(1);
        if self.rates.len() >= self.sweep_at && !self.rates.contains_key(&key) {
            if now < self.full_until {
                return None;
            }
            self.rates.retain(|_, rate| !rate.is_idle(now));
            if self.rates.len() >= METERED_MAX {
                self.full_until = now + FULL_FOR;
                return None;
            }
            // Twice what is left, so that sweeping costs each user a fixed number of looks.
            self.sweep_at = (2 * self.rates.len()).clamp(1_024, METERED_MAX);
        }
        Some(self.rates.entry(key).or_default())
    }
}

/// The likes of one round of one process.
#[derive(Clone, Debug)]
pub struct Gatherer {
    rooms: BTreeMap<RoomId, BTreeMap<LikeKind, BTreeMap<UserId, u32>>>,
    n_entries: usize,
    /// When the first of them came.
    since: Mono,
    meter: Meter,
}

impl Gatherer {
    pub fn new(hasher: Seeded) -> Gatherer {
        Gatherer { rooms: BTreeMap::new(), n_entries: 0, since: Mono(0), meter: Meter::new(hasher) }
    }

    /// `user` likes the room `n` times. Errors: nothing is taken.
    pub fn like(
        &mut self,
        room: &RoomId,
        kind: &LikeKind,
        user: &UserId,
        n: u32,
        limit: Limit,
        now: Mono,
    ) -> Result<(), NotTaken> {
        let kinds = self.rooms.get_mut(room);
        let given = kinds.and_then(|kinds| kinds.get_mut(kind)).and_then(|users| users.get_mut(user));
        if let Some(given) = given {
            self.meter.take(room, user, n, limit, now)?;
            *given = given.saturating_add(n);
            return Ok(());
        }
        if self.n_entries >= ENTRIES_MAX {
            return Err(NotTaken::Full);
        }
        self.meter.take(room, user, n, limit, now)?;
        if self.n_entries == 0 {
            self.since = now;
        }
        self.n_entries += 1;
        let kinds = self.rooms.entry(room.clone()).or_default();
        kinds.entry(kind.clone()).or_default().insert(user.clone(), n);
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.n_entries == 0
    }

    /// All that was gathered since the last call; rates stay.
    pub fn take(&mut self, now: Mono) -> Round {
        let span = if self.n_entries == 0 { Duration::ZERO } else { now.since(self.since) };
        self.n_entries = 0;
        let rooms = std::mem::take(&mut self.rooms).into_iter();
        let of_room = |(room, kinds): (RoomId, BTreeMap<LikeKind, BTreeMap<UserId, u32>>)| RoomLikes {
            room,
            kinds: kinds.into_iter().map(|(kind, users)| (kind, users.into_iter().collect())).collect(),
        };
        Round { span, rooms: rooms.map(of_room).collect() }
    }
}

/// A gateway process's end of the hand-over.
#[derive(Clone, Debug)]
pub struct Sender {
    /// What no other process ever has.
    id: u64,
    last: u64,
    unsettled: VecDeque<Frame>,
}

impl Sender {
    pub fn new(id: u64) -> Sender {
        Sender { id, last: 0, unsettled: VecDeque::new() }
    }

    pub fn id(&self) -> u64 {
        self.id
    }

    /// Whether one more frame may be under way.
    pub fn may_send(&self) -> bool {
        self.unsettled.len() < UNSETTLED_MAX
    }

    /// Numbers a round; it is kept until it is settled. Panics: when too many are under way already.
    pub fn send(&mut self, round: Round) -> Frame {
        assert!(self.may_send(), "a round waits until one before it is settled");
        self.last += 1;
        let frame = Frame { from: Some((self.id, self.last)), round };
        self.unsettled.push_back(frame.clone());
        frame
    }

    /// All up to this number are counted, or refused for good.
    pub fn settled(&mut self, number: u64) {
        while self.unsettled.front().is_some_and(|f| f.from.is_some_and(|(_, n)| n <= number)) {
            self.unsettled.pop_front();
        }
    }

    /// What a new link is given first, oldest first.
    pub fn unsettled(&self) -> impl Iterator<Item = &Frame> {
        self.unsettled.iter()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    use super::{
        ENTRIES_MAX, Gatherer, METERED_MAX, Meter, NotTaken, PER_OP_MAX, Round, Sender, Totals, has_place, highest,
        limit,
    };
    use crate::hash::Seeded;
    use crate::names::{LikeKind, RoomId, UserId};
    use crate::time::Mono;

    fn room(name: &str) -> RoomId {
        RoomId::parse(name).unwrap()
    }
    fn user(n: usize) -> UserId {
        UserId::parse(&format!("u{n}")).unwrap()
    }
    fn kind(name: &str) -> LikeKind {
        LikeKind::parse(name).unwrap()
    }
    fn totals(all: &[(&str, u64)]) -> Totals {
        all.iter().map(|(name, n)| (kind(name), *n)).collect()
    }

    #[test]
    fn a_round_holds_each_users_likes_once_and_leaves_nothing_behind() {
        let mut gatherer = Gatherer::new(Seeded(1));
        let limit = limit(20, Duration::ZERO);
        for (r, k, u, n) in [("b", "like", 1, 5), ("a", "like", 2, 1), ("b", "like", 1, 7), ("b", "heart", 1, 2)] {
            gatherer.like(&room(r), &kind(k), &user(u), n, limit, Mono(0)).unwrap();
        }
        let Round { span, rooms: round } = gatherer.take(Mono(70_000));
        assert_eq!(span, Duration::from_millis(70));
        let of = |at: usize| round[at].kinds.iter().map(|(k, u)| (k.as_str(), u.clone())).collect::<Vec<_>>();
        assert_eq!(of(0), [("like", vec![(user(2), 1)])]);
        assert_eq!(of(1), [("heart", vec![(user(1), 2)]), ("like", vec![(user(1), 12)])]);
        let next = gatherer.take(Mono(90_000));
        assert!(gatherer.is_empty() && next.rooms.is_empty() && next.span.is_zero());
    }

    #[test]
    fn a_full_table_refuses_new_entries_and_takes_more_of_those_it_has() {
        let mut gatherer = Gatherer::new(Seeded(1));
        let limit = limit(20, Duration::ZERO);
        let mut like = |n: usize| gatherer.like(&room("a"), &kind("like"), &user(n), 1, limit, Mono(0));
        for n in 0..ENTRIES_MAX {
            like(n).unwrap();
        }
        assert_eq!(like(ENTRIES_MAX), Err(NotTaken::Full));
        assert_eq!(like(7), Ok(()));
    }

    #[test]
    fn a_frame_is_kept_until_it_is_settled() {
        let mut sender = Sender::new(9);
        let round = Gatherer::new(Seeded(0)).take(Mono(0));
        let numbers: Vec<_> = (0..3).map(|_| sender.send(round.clone()).from).collect();
        assert_eq!(numbers, [Some((9, 1)), Some((9, 2)), Some((9, 3))]);
        sender.settled(2);
        assert_eq!(sender.unsettled().map(|f| f.from).collect::<Vec<_>>(), [Some((9, 3))]);
        sender.settled(1);
        assert_eq!(sender.unsettled().count(), 1);
    }

    #[test]
    fn the_plain_kind_has_a_place_whatever_others_viewers_chose() {
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "like"].map(kind);
        assert!(has_place(&kind("g"), &names[..6]));
        assert!(!has_place(&kind("h"), &names[..7]), "the last place is the plain one's");
        assert!(has_place(&kind("like"), &names[..7]));
        assert!(has_place(&kind("a"), &names[..7]), "one that is there stays");
        assert!(has_place(&kind("like"), &names[..8]), "in a room from before this rule too");
    }

    #[test]
    fn a_full_meter_is_looked_through_once_a_second() {
        let mut meter = Meter::new(Seeded(1));
        // One a second and fifty at once: after fifty a user is idle again fifty seconds later.
        let limit = limit(1, Duration::ZERO);
        for n in 0..METERED_MAX {
            meter.take(&room("a"), &user(n), 50, limit, Mono(0)).unwrap();
        }
        let second = |n: u64| Mono(n * 1_000_000);
        assert_eq!(meter.take(&room("a"), &user(METERED_MAX), 1, limit, second(49)), Err(NotTaken::Full));
        assert_eq!(meter.full_until, second(50));
        assert_eq!(meter.take(&room("a"), &user(METERED_MAX), 1, limit, Mono(49_900_000)), Err(NotTaken::Full));
        assert_eq!(meter.full_until, second(50), "nothing was looked through again");
        assert_eq!(meter.take(&room("a"), &user(METERED_MAX), 1, limit, second(120)), Ok(()));
    }

    #[test]
    fn totals_never_fall() {
        let one = totals(&[("heart", 4), ("like", 9)]);
        let other = totals(&[("fire", 1), ("like", 7)]);
        assert_eq!(highest(&one, &other), totals(&[("fire", 1), ("heart", 4), ("like", 9)]));
        assert_eq!(highest(&Totals::default(), &other), other);
    }

    #[test]
    fn an_operation_of_the_largest_size_passes_at_any_rate() {
        for rate in [1, 2, 20, 1_000] {
            let mut meter = Meter::new(Seeded(3));
            let all = meter.take(&room("a"), &user(1), PER_OP_MAX, limit(rate, Duration::ZERO), Mono(0));
            assert_eq!(all, Ok(()), "{rate}");
        }
    }

    proptest! {
        #[test]
        fn nobody_gives_more_than_the_rate_over_any_span(
            rate in 1u32..100,
            taps in proptest::collection::vec((1u32..=50, 0u64..2_000_000), 1..200),
            upto in proptest::prelude::any::<bool>(),
        ) {
            let mut meter = Meter::new(Seeded(1));
            let limit = limit(rate, Duration::ZERO);
            let (mut now, mut given) = (0u64, Vec::new());
            for (n, pause) in taps {
                now += pause;
                let taken = if upto {
                    meter.take_upto((&room("a"), &user(1)), n, limit, Mono(now), Mono(now))
                } else if meter.take(&room("a"), &user(1), n, limit, Mono(now)).is_ok() {
                    n
                } else {
                    0
                };
                prop_assert!(taken <= n);
                given.push((now, u64::from(taken)));
            }
            for from in 0..given.len() {
                let mut sum = 0;
                for (at, n) in &given[from..] {
                    sum += n;
                    // One more for the rounding of the interval to whole microseconds.
                    let may = u64::from(limit.burst) + (at - given[from].0) * u64::from(rate) / 999_000 + 1;
                    prop_assert!(sum <= may, "{sum} within {} us, at most {may}", at - given[from].0);
                }
            }
        }

        /// Whoever kept to the rate where it tapped is not cut where rounds are judged, however long they were kept.
        #[test]
        fn what_the_door_let_in_is_counted_whenever_its_rounds_come(
            rate in 1u32..50,
            taps in proptest::collection::vec((1u32..=20, 0u64..500_000, proptest::prelude::any::<bool>()), 1..150),
            late in 0u64..900_000,
        ) {
            let (mut door, mut owner) = (Gatherer::new(Seeded(1)), Meter::new(Seeded(2)));
            let (at_door, at_owner) = (limit(rate, Duration::ZERO), limit(rate, Duration::from_secs(1)));
            let (room, user, kind) = (room("a"), user(1), kind("like"));
            let mut now = 0u64;
            for (n, pause, ends) in taps {
                now += pause;
                let _ = door.like(&room, &kind, &user, n, at_door, Mono(now));
                if !ends {
                    continue;
                }
                let Round { span, rooms } = door.take(Mono(now));
                for given in rooms.iter().flat_map(|r| &r.kinds).flat_map(|(_, users)| users).map(|(_, n)| *n) {
                    let judged = Mono(now + late);
                    let since = Mono(judged.0.saturating_sub(span.as_micros() as u64));
                    prop_assert_eq!(owner.take_upto((&room, &user), given, at_owner, since, judged), given);
                }
            }
        }

        #[test]
        fn one_users_likes_never_take_anothers(n in 1usize..40) {
            let mut meter = Meter::new(Seeded(1));
            let limit = limit(20, Duration::ZERO);
            for u in 0..n {
                for r in ["a", "b"] {
                    prop_assert_eq!(meter.take_upto((&room(r), &user(u)), 1_000, limit, Mono(5), Mono(5)), limit.burst);
                }
            }
        }
    }
}
