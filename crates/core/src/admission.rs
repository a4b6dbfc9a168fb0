//! How fast a gateway lets new streams in, and how long it tells the rest to stay away.
//!
//! A turnstile with a jar of tokens: the jar fills at the rate, holds no more than its size, and whoever comes in takes one.
//! Over any time `t` it lets in at most `burst + rate * t`. Whoever finds it empty is given a place in a line that nobody
//! stands in: the moment at which the turnstile will have got to it, and a little chance beside it. So a crowd comes back as
//! fast as it is let in, however it came, and the last of it waits no longer than everybody before it takes. One who comes at
//! its moment and is not let in, because somebody else came first, goes to the end of what is left of the line.
//!
//! The line is as long as those who may be coming, and no longer: one that comes again and again without waiting takes place
//! after place, and the others' wait must not grow with that. Past it a wait is drawn from the whole of that length.
//!
//! It must never let in more because its clock went back or its rate was changed. The awkward case is a room whose viewers
//! were all dropped at once: it holds nobody, and everybody is coming. [`Demand`] therefore remembers how many it held.
//!
//! Several gateways may share one limit: each has a jar of its own that fills at its part of the rate and holds its part of the
//! burst, so that all of them together let in what one would. A part's jar never holds what another part has: a gateway that
//! joins begins with an empty one.
//!
//! Numbers: a jar of 1.2 × the rate; a spread of 1 s to 5 min; the line moves at 1 / 1.05 of the rate, so that who comes
//! beside it, and chance, find a token as well.

use std::time::Duration;

use crate::time::Mono;

/// One token in the bucket's own unit: a microsecond at one a second.
const TOKEN: u64 = 1_000_000;
/// A client that was refused waits at least this, so that one that ignores the spread cannot spin.
pub const RETRY_LEAST: Duration = Duration::from_millis(500);
const SPREAD_LEAST: Duration = Duration::from_secs(1);
const SPREAD_MOST: Duration = Duration::from_secs(300);
/// Nobody is let in and nobody knows until when.
const CLOSED_RETRY: Duration = Duration::from_secs(10);
const CLOSED_SPREAD: Duration = Duration::from_secs(60);

/// New streams a second, and how many at once. A rate of 0 lets nobody in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limit {
    pub per_second: u32,
    pub burst: u32,
}

impl Limit {
    /// A rate with the usual jar, 1.2 times the rate.
    pub fn steady(per_second: u32) -> Limit {
        let burst = u64::from(per_second) * 12;
        Limit { per_second, burst: u32::try_from(burst.div_ceil(10)).unwrap_or(u32::MAX) }
    }
}

/// What one of several gateways has of a limit: the same as each of the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    pub limit: Limit,
    of: u32,
}

impl Part {
    pub fn whole(limit: Limit) -> Part {
        Part::one_of(1, limit)
    }

    /// One of `of` equal parts; 0 is taken for 1.
    pub fn one_of(of: u32, limit: Limit) -> Part {
        Part { limit, of: of.max(1) }
    }

    pub fn of(self) -> u32 {
        self.of
    }

    /// What one stream costs, in the unit in which the whole jar fills.
    fn token(self) -> u64 {
        TOKEN * u64::from(self.of)
    }

    /// What the jar holds at most: a whole token at least, or a small burst would let in nobody ever.
    fn most(self) -> u64 {
        (u64::from(self.limit.burst) * TOKEN).max(self.token())
    }

    /// From one place in line to the next.
    fn step(self) -> Duration {
        let per_second = u64::from(self.limit.per_second.max(1));
        Duration::from_micros(self.token().saturating_mul(105) / (100 * per_second))
    }

    /// The time in which `sockets` come back at no more than this.
    pub fn spread(self, sockets: u64) -> Duration {
        spread(sockets.saturating_mul(u64::from(self.of)), self.limit.per_second)
    }
}

/// The wait of one who was not let in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused {
    pub retry_after: Duration,
    pub spread: Duration,
}

/// The jar. It starts full.
#[derive(Clone, Debug)]
pub struct Bucket {
    /// Places in line are given out up to here.
    line: Mono,
    /// Those who were sent away.
    refused: Window,
    part: Part,
    /// In millionths of what one stream costs an only gateway.
    held: u64,
    at: Mono,
}

impl Bucket {
    pub fn new(part: Part, now: Mono) -> Bucket {
        Bucket { line: now, refused: Window::default(), part, held: part.most(), at: now }
    }

    pub fn part(&self) -> Part {
        self.part
    }

    /// Another rate or part from now on. The streams that the jar is good for stay, up to its new size.
    pub fn change(&mut self, part: Part, now: Mono) {
        self.fill(now);
        let held = self.held / u64::from(self.part.of) * u64::from(part.of);
        // Who has a place keeps its moment; who comes after them waits for as many as they are.
        let n_waiting = self.line.since(now).as_micros() / self.part.step().as_micros().max(1);
        self.line = now + part.step().saturating_mul(n_waiting.try_into().unwrap_or(u32::MAX)).min(SPREAD_MOST);
        self.part = part;
        self.held = held.min(part.most());
    }

    /// What is in the jar is somebody else's.
    pub fn empty(&mut self, now: Mono) {
        self.fill(now);
        self.held = 0;
    }

    /// Lets one in. `sockets` is how many may be coming, [`Demand::sockets`].
    /// Errors: how long to stay away; nothing is taken then.
    pub fn take(&mut self, sockets: u64, now: Mono) -> Result<(), Refused> {
        self.fill(now);
        let per_second = self.part.limit.per_second;
        if per_second == 0 {
            return Err(Refused { retry_after: CLOSED_RETRY, spread: CLOSED_SPREAD });
        }
        let token = self.part.token();
        if self.held >= token {
            self.held -= token;
            return Ok(());
        }
        let until_one = Duration::from_micros((token - self.held).div_ceil(u64::from(per_second)));
        Err(self.line_up(until_one, sockets, now))
    }

    /// The wait of one who finds the jar empty, in which there is a whole token after `until_one`.
    fn line_up(&mut self, until_one: Duration, sockets: u64, now: Mono) -> Refused {
        self.refused.count(REFUSED_FOR, now);
        let crowd = sockets.max(self.refused.sum());
        let longest = self.part.spread(crowd.saturating_add(crowd / 4 + 1));
        let place = self.line.max(now + until_one);
        let wait = place.since(now);
        if wait > longest {
            return Refused { retry_after: until_one.max(RETRY_LEAST), spread: longest };
        }
        self.line = place + self.part.step();
        Refused { retry_after: wait.max(RETRY_LEAST), spread: (wait / 10).max(SPREAD_LEAST) }
    }

    fn fill(&mut self, now: Mono) {
        let passed = now.since(self.at).as_micros() as u64;
        self.at = self.at.max(now);
        let more = passed.saturating_mul(u64::from(self.part.limit.per_second));
        self.held = self.held.saturating_add(more).min(self.part.most());
    }
}

/// The time in which `sockets` come back at no more than `per_second`.
pub fn spread(sockets: u64, per_second: u32) -> Duration {
    if per_second == 0 {
        return CLOSED_SPREAD;
    }
    let millis = sockets.saturating_mul(1_000).div_ceil(u64::from(per_second));
    Duration::from_millis(millis).clamp(SPREAD_LEAST, SPREAD_MOST)
}

/// How many sockets a room may have coming: those it held lately, or those it holds and those it sent away just now.
#[derive(Clone, Default, Debug)]
pub struct Demand {
    held: Window,
    refused: Window,
}

/// Whoever was dropped comes back within the usual resume window, or has left.
const HELD_FOR: Duration = Duration::from_secs(300);
/// Who is sent away again is counted again: a short memory keeps that small.
const REFUSED_FOR: Duration = Duration::from_secs(10);

impl Demand {
    /// The room holds `viewers` now.
    pub fn held(&mut self, viewers: u64, now: Mono) {
        self.held.turn(HELD_FOR, now);
        self.held.current = self.held.current.max(viewers);
    }

    /// One more was sent away.
    pub fn refused(&mut self, now: Mono) {
        self.refused.count(REFUSED_FOR, now);
    }

    pub fn sockets(&mut self, viewers: u64, now: Mono) -> u64 {
        self.held.turn(HELD_FOR, now);
        self.refused.turn(REFUSED_FOR, now);
        let held = self.held.current.max(self.held.last);
        held.max(viewers + self.refused.sum())
    }
}

/// A value of this period and of the one before it.
#[derive(Clone, Default, Debug)]
struct Window {
    began: Mono,
    current: u64,
    last: u64,
}

impl Window {
    fn turn(&mut self, length: Duration, now: Mono) {
        let passed = now.since(self.began);
        if passed < length {
            return;
        }
        self.last = if passed < length * 2 { self.current } else { 0 };
        self.current = 0;
        self.began = now;
    }

    /// One more.
    fn count(&mut self, length: Duration, now: Mono) {
        self.turn(length, now);
        self.current += 1;
    }

    fn sum(&self) -> u64 {
        self.current + self.last
    }
}

/// An emptying of a gateway, paced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drain {
    pub began: Mono,
    pub over: Duration,
}

impl Drain {
    /// When one of many is sent away that drew this lot, in millionths of the time.
    pub fn moment(&self, lot: u32) -> Mono {
        let micros = u64::try_from(self.over.as_micros()).unwrap_or(u64::MAX);
        self.began + Duration::from_micros((u128::from(micros) * u128::from(lot) / 1_000_000) as u64)
    }

    /// How many of `left` viewers are sent away now, when the next look is `step` later: the same share each time, and all
    /// of them at the end.
    pub fn slice(&self, left: usize, step: Duration, now: Mono) -> usize {
        let remaining = (self.began + self.over).since(now);
        if remaining < step {
            return left;
        }
        let looks = (remaining.as_micros() / step.as_micros().max(1)).max(1) as usize + 1;
        left.div_ceil(looks)
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;
    use std::time::Duration;

    use super::{Bucket, Demand, Drain, Limit, Part, RETRY_LEAST, spread};
    use crate::rng::Rng;
    use crate::time::Mono;

    const RATE: u32 = 200;

    fn at(millis: u64) -> Mono {
        Mono(1_000_000 + millis * 1_000)
    }

    #[test]
    fn a_full_jar_passes_at_once_and_then_the_rate_holds() {
        let limit = Limit::steady(RATE);
        assert_eq!(limit.burst, 240);
        let mut bucket = Bucket::new(Part::whole(limit), at(0));
        assert_eq!((0..500).filter(|_| bucket.take(0, at(0)).is_ok()).count(), 240);
        assert_eq!((0..500).filter(|_| bucket.take(0, at(100)).is_ok()).count(), 20);
        assert_eq!((0..500).filter(|_| bucket.take(0, at(60_000)).is_ok()).count(), 240);
    }

    #[test]
    fn no_stretch_of_time_lets_in_more_than_the_jar_and_the_rate() {
        let mut rng = Rng::new(7);
        for _ in 0..20 {
            let limit = Limit::steady(1 + rng.below(400) as u32);
            let mut bucket = Bucket::new(Part::whole(limit), at(0));
            let mut passed = Vec::new();
            let mut now = 0;
            for _ in 0..600 {
                now += rng.below(20);
                if bucket.take(0, at(now)).is_ok() {
                    passed.push(now);
                }
            }
            for (i, from) in passed.iter().enumerate() {
                for (j, to) in passed.iter().enumerate().skip(i) {
                    let most = u64::from(limit.burst) + u64::from(limit.per_second) * (to - from) / 1_000;
                    assert!((j - i) as u64 <= most, "{limit:?}: {} from {from} to {to}", j - i + 1);
                }
            }
        }
    }

    /// Gateways that come and go, as they are told of it: whoever joins begins with an empty jar.
    #[test]
    fn parts_together_let_in_no_more_than_one_would_whoever_comes_and_goes() {
        let mut rng = Rng::new(11);
        for _ in 0..40 {
            let limit = Limit::steady(1 + rng.below(300) as u32);
            let join = |of, now| {
                let mut bucket = Bucket::new(Part::one_of(of, limit), now);
                bucket.empty(now);
                bucket
            };
            let mut parts = vec![join(1, at(0))];
            let (mut passed, mut now) = (Vec::new(), 0);
            for _ in 0..2_000 {
                now += rng.below(10);
                let of = match rng.below(60) {
                    0 if parts.len() < 6 => {
                        parts.push(join(parts.len() as u32 + 1, at(now)));
                        Some(parts.len())
                    }
                    1 if parts.len() > 1 => {
                        parts.swap_remove(rng.below(parts.len() as u64) as usize);
                        Some(parts.len())
                    }
                    _ => None,
                };
                for part in parts.iter_mut().filter(|_| of.is_some()) {
                    let of = of.expect("filtered") as u32;
                    part.change(Part::one_of(of, limit), at(now));
                }
                let one = rng.below(parts.len() as u64) as usize;
                if parts[one].take(0, at(now)).is_ok() {
                    passed.push(now);
                }
            }
            assert!(passed.len() > 10, "{limit:?}: nobody came in");
            for (i, from) in passed.iter().enumerate() {
                for (j, to) in passed.iter().enumerate().skip(i) {
                    // A jar holds a whole token at least: six parts of a small burst are more than it.
                    let most = u64::from(limit.burst).max(6) + u64::from(limit.per_second) * (to - from) / 1_000 + 1;
                    assert!((j - i) as u64 <= most, "{limit:?}: {} from {from} to {to}", j - i + 1);
                }
            }
        }
    }

    #[test]
    fn a_part_of_a_small_rate_lets_somebody_in_now_and_then() {
        let mut part = Bucket::new(Part::one_of(4, Limit::steady(2)), at(0));
        part.empty(at(0));
        // A half of one a second.
        assert!(part.take(0, at(1_999)).is_err() && part.take(0, at(2_000)).is_ok());
        let refused = part.take(3, at(2_000)).unwrap_err();
        assert_eq!((refused.retry_after.as_secs(), refused.spread.as_secs()), (2, 1));
    }

    #[test]
    fn a_rate_of_zero_lets_nobody_in_and_says_to_stay_away_long() {
        let mut bucket = Bucket::new(Part::whole(Limit::steady(0)), at(0));
        let refused = bucket.take(10, at(0)).unwrap_err();
        assert!(bucket.take(10, at(3_600_000)).is_err());
        assert_eq!((refused.retry_after.as_secs(), refused.spread.as_secs()), (10, 60));
    }

    #[test]
    fn a_clock_going_back_or_a_new_rate_lets_in_nobody_extra() {
        let mut bucket = Bucket::new(Part::whole(Limit::steady(RATE)), at(10_000));
        for _ in 0..240 {
            bucket.take(0, at(10_000)).unwrap();
        }
        assert!(bucket.take(0, at(1_000)).is_err());
        assert!(bucket.take(0, at(10_000)).is_err());
        bucket.change(Part::whole(Limit::steady(10_000)), at(10_000));
        assert!(bucket.take(0, at(10_000)).is_err());
        bucket.change(Part::whole(Limit::steady(1)), at(20_000));
        assert_eq!((0..100).filter(|_| bucket.take(0, at(20_000)).is_ok()).count(), 2);
    }

    #[test]
    fn r32_the_spread_is_the_rooms_sockets_over_the_rate() {
        assert_eq!(spread(1_000_000, 16_700), Duration::from_millis(59_881));
        assert_eq!(spread(2_000, 200), Duration::from_secs(10));
        assert_eq!(spread(3, 200), Duration::from_secs(1));
        assert_eq!(spread(u64::MAX, 1), Duration::from_secs(300));
    }

    #[test]
    fn a_room_that_lost_everyone_still_knows_how_many_come_back() {
        let mut demand = Demand::default();
        demand.held(2_000, at(0));
        assert_eq!(demand.sockets(0, at(1_000)), 2_000);
        assert_eq!(demand.sockets(0, at(299_000)), 2_000);
        assert_eq!(demand.sockets(40, at(700_000)), 40);
    }

    #[test]
    fn those_sent_away_just_now_are_counted_until_they_had_time_to_return() {
        let mut demand = Demand::default();
        for _ in 0..500 {
            demand.refused(at(0));
        }
        assert_eq!(demand.sockets(240, at(1)), 740);
        assert_eq!(demand.sockets(740, at(30_000)), 740);
    }

    /// Clients of one crowd: how many, how fast they come, to how many rooms and gateways, and how many of a hundred do not
    /// come back once they were sent away.
    #[derive(Clone, Copy, Debug)]
    struct Crowd {
        n: u64,
        within_ms: u64,
        rooms: u64,
        gateways: u64,
        leave: u64,
        known: bool,
    }

    impl Crowd {
        const ONE_ROOM: Crowd = Crowd { n: 2_000, within_ms: 200, rooms: 1, gateways: 1, leave: 0, known: true };

        /// The crowd comes and does as it is told; when the last was let in, and how often one was sent away at most.
        fn comes(self, limit: Limit, rng: &mut Rng) -> (Duration, u32) {
            let of = self.gateways as u32;
            let mut buckets: Vec<_> = (0..of).map(|_| Bucket::new(Part::one_of(of, limit), at(0))).collect();
            let mut rooms = vec![(Demand::default(), 0); (self.rooms * self.gateways) as usize];
            if self.known {
                let each = self.n.div_ceil(self.rooms * self.gateways);
                rooms.iter_mut().for_each(|(demand, _)| demand.held(each, at(0)));
            }
            let mut coming: BinaryHeap<_> =
                (0..self.n).map(|_| Reverse((at(rng.below(self.within_ms)), 0_u32))).collect();
            let (mut passed, mut most) = (Vec::new(), 0);
            while let Some(Reverse((now, tries))) = coming.pop() {
                let gateway = rng.below(self.gateways) as usize;
                let room = gateway * self.rooms as usize + rng.below(self.rooms) as usize;
                let (demand, inside) = &mut rooms[room];
                demand.held(*inside, now);
                match buckets[gateway].take(demand.sockets(*inside, now), now) {
                    Ok(()) => {
                        *inside += 1;
                        passed.push(now);
                        most = most.max(tries);
                    }
                    Err(refused) => {
                        assert!(refused.retry_after >= RETRY_LEAST);
                        demand.refused(now);
                        if rng.below(100) >= self.leave {
                            let drawn = Duration::from_millis(rng.below(refused.spread.as_millis() as u64 + 1));
                            coming.push(Reverse((now + refused.retry_after + drawn, tries + 1)));
                        }
                    }
                }
            }
            // A jar holds a whole token at least.
            let burst = u64::from(limit.burst.max(of));
            for (n, now) in passed.iter().enumerate() {
                let most = burst + u64::from(limit.per_second) * now.since(at(0)).as_millis() as u64 / 1_000 + 1;
                assert!((n as u64) < most, "{self:?} {limit:?}: {} at {now:?}", n + 1);
            }
            (passed.last().expect("some come in").since(at(0)), most)
        }

        /// What the crowd takes at best.
        fn at_best(self, limit: Limit) -> Duration {
            let late = Duration::from_millis(self.within_ms);
            Duration::from_millis(self.n * 1_000 / u64::from(limit.per_second)).max(late)
        }
    }

    #[test]
    fn a_crowd_is_in_within_what_its_rate_takes_and_a_fifth_and_three_seconds() {
        let mut rng = Rng::new(5);
        for n in 0..120 {
            let limit = Limit::steady(50 + rng.below(500) as u32);
            let crowd = Crowd {
                n: 200 + rng.below(5_000),
                within_ms: 1 + rng.below(3_000),
                rooms: [1, 1, 20][n % 3],
                gateways: 1 + rng.below(4),
                leave: [0, 0, 0, 30][n % 4],
                known: n % 2 == 0,
            };
            let (took, _) = crowd.comes(limit, &mut rng);
            let best = crowd.at_best(limit);
            assert!(took <= best * 12 / 10 + Duration::from_secs(3), "{crowd:?} {limit:?}: {took:?}, at best {best:?}");
        }
    }

    #[test]
    fn hardly_anybody_is_sent_away_again_and_again() {
        let mut rng = Rng::new(6);
        for _ in 0..20 {
            let (_, tries) = Crowd::ONE_ROOM.comes(Limit::steady(RATE), &mut rng);
            assert!(tries <= 5, "{tries} times");
        }
    }

    #[test]
    fn the_line_moves_at_the_rate_and_is_no_longer_than_who_may_come() {
        let limit = Limit { per_second: 100, burst: 1 };
        let mut bucket = Bucket::new(Part::whole(limit), at(0));
        bucket.take(1_000, at(0)).unwrap();
        let waits: Vec<_> = (0..1_000).map(|_| bucket.take(1_000, at(0)).unwrap_err()).collect();
        // The hundredth waits for a hundred.
        assert_eq!(waits[99].retry_after, Duration::from_micros(10_000 + 99 * 10_500));
        assert!(waits.is_sorted_by_key(|w| w.retry_after));
        assert!(waits.iter().all(|w| w.spread >= Duration::from_secs(1)));
        let last = waits[999].retry_after;
        assert!(last > Duration::from_secs(10) && last < Duration::from_millis(10_600), "{last:?}");
        // One that comes on and on lengthens nobody's wait above what the crowd it seems to be takes.
        for _ in 0..2_000 {
            bucket.take(1_000, at(0)).unwrap_err();
        }
        let refused = bucket.take(1_000, at(0)).unwrap_err();
        assert!(refused.retry_after + refused.spread <= Duration::from_secs(42), "{refused:?}");
        // And is forgotten.
        let later = bucket.take(1_000, at(100_000)).and_then(|()| bucket.take(1_000, at(100_000))).unwrap_err();
        assert!(later.retry_after + later.spread <= Duration::from_secs(2), "{later:?}");
    }

    #[test]
    fn another_rate_moves_the_line_for_who_comes_next() {
        let limit = |per_second| Part::whole(Limit { per_second, burst: 1 });
        let mut bucket = Bucket::new(limit(100), at(0));
        bucket.take(1_000, at(0)).unwrap();
        for _ in 0..500 {
            bucket.take(1_000, at(0)).unwrap_err();
        }
        bucket.change(limit(1_000), at(0));
        let wait = bucket.take(1_000, at(0)).unwrap_err().retry_after;
        assert!(wait > Duration::from_millis(500) && wait < Duration::from_millis(600), "{wait:?}");
        bucket.change(limit(0), at(0));
        bucket.change(limit(100), at(0));
        let refused = bucket.take(1_000, at(0)).unwrap_err();
        assert!(refused.retry_after + refused.spread <= Duration::from_secs(13), "{refused:?}");
    }

    #[test]
    fn a_drain_sends_away_equal_slices_and_everyone_by_its_end() {
        let drain = Drain { began: at(0), over: Duration::from_secs(10) };
        let step = Duration::from_millis(100);
        let (mut left, mut most) = (1_000, 0);
        for look in 0..=100 {
            let slice = drain.slice(left, step, at(look * 100));
            most = most.max(slice);
            left -= slice;
            assert!(look >= 95 || left > 0, "nobody left after {look} looks");
        }
        assert_eq!(left, 0);
        assert!(most <= 12, "{most} at once");
        assert_eq!(drain.slice(7, step, at(60_000)), 7);
    }
}
