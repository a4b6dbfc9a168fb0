//! What an overloaded gateway takes from the viewers of wide rooms on top of the sampling: the shared state behind
//! `POST /admin/gateways/{id}/shedding`.
//!
//! Workers say once a second how late their walks were and how much of their time they used; whichever is first in a new second
//! asks the rule (`grandstand_core::sampler::shedder`), which decides. Walks read the outcome; while nothing is taken that is one
//! load. Where memory is short the same is taken ([`Shedding::press`]). A worker that has not spoken for a while counts for nothing: a missing signal is calm.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use grandstand_core::sampler::shedder::{self, Override, Shedder, Signals};
use grandstand_core::time::Mono;
use rustix::time::{ClockId, clock_gettime};

use crate::admission::Change;
use crate::metrics::Metrics;

const TICK: Duration = Duration::from_secs(1);
/// A worker that is stuck in one turn for so long has no word to say.
const SILENT: Duration = Duration::from_secs(3);
/// The longest announcement: an evening with extra time.
pub const EXPECTED_MAX: Duration = Duration::from_secs(12 * 3_600);
pub const ORDERED_MAX: Duration = shedder::OVERRIDE_MAX;

/// What an operator says of shedding at one gateway. What is left out ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Order {
    /// A cap in thousandths of a comment a second, below what the shedder would choose, for so long.
    pub cap: Option<(u64, Duration)>,
    /// Shedding is no surprise for so long: the alert is silent.
    pub expected: Option<Duration>,
}

/// Everything there is to say about it.
#[derive(Clone, Debug)]
pub struct View {
    pub engaged: bool,
    /// And how long it still stands.
    pub cap: Option<(u64, Duration)>,
    pub expected: Option<Duration>,
    pub changed: Option<Change>,
}

#[derive(Clone, Copy)]
struct Said {
    at: Mono,
    late: Duration,
    busy_permille: u32,
}

#[derive(Default)]
struct State {
    shedder: Shedder,
    ticked: Mono,
    /// By the worker's place.
    said: BTreeMap<usize, Said>,
    ordered: Option<Override>,
    expected_until: Mono,
    pressed: bool,
    changed: Option<Change>,
}

#[derive(Default)]
pub struct Shedding {
    state: Mutex<State>,
    /// Something is taken: by the shedder, by an order, or for want of memory.
    takes: AtomicBool,
}

impl Shedding {
    /// The cap in force for a room with this one, in comments a thousand seconds.
    pub fn cap_milli(&self, own_milli: u64, now: Mono) -> u64 {
        if !self.takes.load(Ordering::Relaxed) {
            return own_milli;
        }
        self.state.lock().expect("no holder of this lock can panic").shedder.cap_milli(own_milli, now)
    }

    /// A worker's last second: its latest walk, and its share of a core.
    pub fn say(&self, worker: usize, late: Duration, busy_permille: u32, now: Mono, metrics: &Metrics) {
        let mut state = self.state.lock().expect("no holder of this lock can panic");
        state.said.insert(worker, Said { at: now, late, busy_permille });
        if now.since(state.ticked) < TICK {
            return;
        }
        state.ticked = now;
        let heard: Vec<Said> = state.said.values().filter(|s| now.since(s.at) < SILENT).copied().collect();
        let all = heard.len() == state.said.len();
        let busy: u32 = heard.iter().map(|s| s.busy_permille).sum();
        let signals = Signals {
            late: heard.iter().map(|s| s.late).max(),
            busy_permille: all.then_some(busy / heard.len().max(1) as u32),
        };
        let was = state.shedder.is_engaged();
        state.shedder.on_tick(signals, now);
        let engaged = state.shedder.is_engaged();
        if was != engaged {
            let late_ms = signals.late.unwrap_or_default().as_millis() as u64;
            let busy = signals.busy_permille;
            if engaged {
                tracing::warn!(late_ms, busy, "overloaded: viewers of wide rooms are given half of their comments");
            } else {
                tracing::info!(late_ms, busy, "viewers of wide rooms are given all of their comments again");
            }
        }
        self.settle(&mut state, now, metrics);
    }

    /// Whether memory is short.
    pub fn press(&self, pressed: bool, now: Mono, metrics: &Metrics) {
        let mut state = self.state.lock().expect("no holder of this lock can panic");
        state.pressed = pressed;
        state.shedder.press(pressed);
        self.settle(&mut state, now, metrics);
    }

    /// Errors: `false` when an order would stand for longer than it may; nothing is changed then.
    pub fn order(&self, order: Order, change: Change, now: Mono, metrics: &Metrics) -> bool {
        let mut state = self.state.lock().expect("no holder of this lock can panic");
        let ordered = order.cap.map(|(cap_milli, lasts)| Override { cap_milli, until: now + lasts });
        let fits = order.expected.is_none_or(|lasts| lasts <= EXPECTED_MAX);
        if !fits || !state.shedder.order(ordered, now) {
            return false;
        }
        state.ordered = ordered;
        state.expected_until = order.expected.map_or(Mono(0), |lasts| now + lasts);
        state.changed = Some(change);
        self.settle(&mut state, now, metrics);
        true
    }

    pub fn view(&self, now: Mono) -> View {
        let state = self.state.lock().expect("no holder of this lock can panic");
        let left = |until: Mono| (until > now).then(|| until.since(now));
        View {
            engaged: state.shedder.is_engaged(),
            cap: state.ordered.and_then(|o| Some((o.cap_milli, left(o.until)?))),
            expected: left(state.expected_until),
            changed: state.changed.clone(),
        }
    }

    fn settle(&self, state: &mut State, now: Mono, metrics: &Metrics) {
        let ordered = state.ordered.is_some_and(|o| o.until > now);
        let engaged = state.shedder.is_engaged();
        self.takes.store(engaged || ordered || state.pressed, Ordering::Relaxed);
        let set = |gauge: &AtomicI64, on: bool| gauge.store(i64::from(on), Ordering::Relaxed);
        let [of_shedder, of_order, of_announcement, unannounced] = &metrics.shedding;
        set(of_shedder, engaged);
        set(of_order, ordered);
        set(of_announcement, state.expected_until > now);
        // Said here, because what is added up over gateways does not tell whose announcement it was.
        set(unannounced, (engaged || ordered) && state.expected_until <= now);
    }
}

/// How much of one core the calling thread uses, from one asking to the next.
pub struct OwnTime {
    at: Mono,
    used: Duration,
}

impl OwnTime {
    pub fn new(now: Mono) -> OwnTime {
        OwnTime { at: now, used: used() }
    }

    /// Thousandths of a core since it was asked last.
    pub fn permille(&mut self, now: Mono) -> u32 {
        let last = std::mem::replace(self, OwnTime::new(now));
        let passed = now.since(last.at).as_micros().max(1);
        let spent = self.used.saturating_sub(last.used).as_micros();
        (spent * 1_000 / passed).min(1_000) as u32
    }
}

fn used() -> Duration {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use grandstand_core::names::UserId;
    use grandstand_core::time::{Mono, Wall};

    use super::{EXPECTED_MAX, ORDERED_MAX, Order, Shedding};
    use crate::admission::Change;
    use crate::metrics::Metrics;

    fn s(n: u64) -> Mono {
        Mono(n * 1_000_000)
    }
    fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }
    fn change() -> Change {
        Change { by: UserId::parse("ops").unwrap(), justification: "final".into(), at: Wall(1) }
    }

    /// Two workers say the same for so many seconds.
    fn run(shedding: &Shedding, from: u64, n: u64, late_ms: u64, busy: u32, metrics: &Metrics) {
        for second in from..from + n {
            for worker in 0..2 {
                shedding.say(worker, Duration::from_millis(late_ms), busy, s(second), metrics);
            }
        }
    }

    #[test]
    fn late_walks_of_busy_workers_halve_the_cap_and_either_alone_does_not() {
        let metrics = Metrics::new();
        for (late, busy, cap) in [(400, 900, 2_500), (400, 500, 5_000), (100, 1_000, 5_000)] {
            let shedding = Shedding::default();
            run(&shedding, 10, 6, late, busy, &metrics);
            assert_eq!(shedding.cap_milli(5_000, s(16)), cap, "{late} ms, {busy} permille");
        }
    }

    #[test]
    fn short_memory_takes_half_until_there_is_some_again() {
        let (shedding, metrics) = (Shedding::default(), Metrics::new());
        shedding.press(true, s(1), &metrics);
        assert_eq!(shedding.cap_milli(5_000, s(1)), 2_500);
        run(&shedding, 2, 5, 0, 0, &metrics);
        assert_eq!(shedding.cap_milli(5_000, s(7)), 2_500, "calm workers have no more memory");
        assert!(!shedding.view(s(7)).engaged);
        shedding.press(false, s(8), &metrics);
        assert_eq!(shedding.cap_milli(5_000, s(8)), 5_000);
    }

    #[test]
    fn a_worker_that_says_nothing_is_calm() {
        let (shedding, metrics) = (Shedding::default(), Metrics::new());
        shedding.say(1, secs(1), 1_000, s(9), &metrics);
        for second in 13..30 {
            shedding.say(0, secs(1), 1_000, s(second), &metrics);
        }
        assert!(!shedding.view(s(30)).engaged);
    }

    #[test]
    fn an_order_stands_until_its_end_and_is_seen() {
        let (shedding, metrics) = (Shedding::default(), Metrics::new());
        let order = Order { cap: Some((1_000, secs(60))), expected: Some(secs(3_600)) };
        assert!(shedding.order(order, change(), s(10), &metrics));
        assert_eq!(shedding.cap_milli(5_000, s(11)), 1_000);
        let shown = metrics.shedding.each_ref().map(|n| n.load(Ordering::Relaxed));
        assert_eq!(shown, [0, 1, 1, 0]);
        let view = shedding.view(s(20));
        assert_eq!((view.cap, view.expected), (Some((1_000, secs(50))), Some(secs(3_590))));
        run(&shedding, 71, 1, 0, 0, &metrics);
        assert_eq!(shedding.cap_milli(5_000, s(71)), 5_000);
        assert_eq!(metrics.shedding[1].load(Ordering::Relaxed), 0);
        assert!(shedding.order(Order::default(), change(), s(80), &metrics));
        assert_eq!(metrics.shedding[2].load(Ordering::Relaxed), 0, "the announcement is over");
    }

    #[test]
    fn what_nobody_announced_is_told_apart() {
        let (shedding, metrics) = (Shedding::default(), Metrics::new());
        let unannounced = || metrics.shedding[3].load(Ordering::Relaxed);
        run(&shedding, 10, 6, 400, 900, &metrics);
        assert_eq!(unannounced(), 1);
        let expected = Order { cap: None, expected: Some(secs(60)) };
        assert!(shedding.order(expected, change(), s(20), &metrics));
        assert_eq!(unannounced(), 0);
        run(&shedding, 90, 1, 400, 900, &metrics);
        assert_eq!(unannounced(), 1, "the evening is over and it still takes");
    }

    #[test]
    fn an_order_without_an_end_near_enough_changes_nothing() {
        let (shedding, metrics) = (Shedding::default(), Metrics::new());
        for order in [
            Order { cap: Some((1_000, ORDERED_MAX + secs(1))), expected: None },
            Order { cap: Some((1_000, secs(1))), expected: Some(EXPECTED_MAX + secs(1)) },
        ] {
            assert!(!shedding.order(order, change(), s(10), &metrics));
            assert_eq!(shedding.cap_milli(5_000, s(10)), 5_000);
            assert!(shedding.view(s(10)).changed.is_none());
        }
    }
}
