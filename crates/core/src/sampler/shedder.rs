//! The shedder: what an overloaded gateway may take from a sampled room's viewers on top of the sampling itself.
//!
//! A second, separate thing with its own switch: it engages only when the walks are late AND the workers' own time is used up,
//! each for three seconds, so that neither a burst nor a slow disk alone makes it cut. It halves the cap and never more, unless
//! an operator says so with a reason and an end. While comments arrive each viewer gets at least one every two seconds.
//!
//! Where memory is short it does the same at once ([`Shedder::press`]): comments are what a gateway gives up first.
//!
//! A missing signal is calm. Source: docs/decisions/0005-numbers.md (250 ms, 85 %, 3 s).

use std::time::Duration;

use crate::planted::planted;
use crate::time::Mono;

const LATE: Duration = Duration::from_millis(250);
const BUSY_PERMILLE: u32 = 850;
const ENGAGE_AFTER: Duration = Duration::from_secs(3);
/// Either signal has to be below this share of its mark so long before it lets go.
const CALM_PERCENT: u32 = 80;
const RELEASE_AFTER: Duration = Duration::from_secs(10);
/// One every two seconds, in comments a thousand seconds.
pub const SILENCE_FLOOR_MILLI: u64 = 500;
/// The longest an override may stand.
pub const OVERRIDE_MAX: Duration = Duration::from_secs(15 * 60);

/// What a gateway measures of itself over the last second.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Signals {
    /// The age of the oldest walk that is not finished.
    pub late: Option<Duration>,
    /// The workers' own CPU time, of all they could have.
    pub busy_permille: Option<u32>,
}

/// An operator's word: a lower cap than the shedder may choose, until then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Override {
    pub cap_milli: u64,
    pub until: Mono,
}

#[derive(Clone, Debug, Default)]
pub struct Shedder {
    engaged: bool,
    pressed: bool,
    since: Option<Mono>,
    order: Option<Override>,
}

impl Shedder {
    pub fn is_engaged(&self) -> bool {
        self.engaged
    }

    /// Whether memory is short.
    pub fn press(&mut self, pressed: bool) {
        self.pressed = pressed;
    }

    /// Errors: false when `until` is more than [`OVERRIDE_MAX`] away; nothing is changed then.
    pub fn order(&mut self, order: Option<Override>, now: Mono) -> bool {
        let holds = order.is_none_or(|o| o.until.since(now) <= OVERRIDE_MAX);
        if holds {
            self.order = order;
        }
        holds
    }

    /// Called once a second.
    pub fn on_tick(&mut self, signals: Signals, now: Mono) {
        let (late, busy) = (signals.late.unwrap_or_default(), signals.busy_permille.unwrap_or_default());
        let (other, after) = if self.engaged {
            (late < LATE * CALM_PERCENT / 100 || busy < BUSY_PERMILLE * CALM_PERCENT / 100, RELEASE_AFTER)
        } else {
            (late > LATE && busy >= BUSY_PERMILLE, ENGAGE_AFTER)
        };
        if !other {
            self.since = None;
        } else if now.since(*self.since.get_or_insert(now)) >= after {
            self.engaged = !self.engaged;
            self.since = None;
        }
    }

    /// The cap in force, in comments a thousand seconds a viewer: never above `cap_milli`, never silent.
    pub fn cap_milli(&self, cap_milli: u64, now: Mono) -> u64 {
        let part = if planted(142) { 8 } else { 2 };
        let halved = if self.engaged || self.pressed { cap_milli / part } else { cap_milli };
        let ordered = self.order.filter(|o| o.until > now || planted(144)).map_or(halved, |o| o.cap_milli.min(halved));
        ordered.max(SILENCE_FLOOR_MILLI).min(cap_milli.max(SILENCE_FLOOR_MILLI))
    }
}

#[cfg(test)]
mod tests {
    use super::{OVERRIDE_MAX, Override, SILENCE_FLOOR_MILLI, Shedder, Signals};
    use crate::time::Mono;
    use std::time::Duration;

    fn seconds(n: u64) -> Mono {
        Mono(n * 1_000_000)
    }

    fn run(shedder: &mut Shedder, from: u64, n: u64, late_ms: u64, busy: u32) -> Option<u64> {
        let before = shedder.is_engaged();
        (from..from + n).find(|s| {
            let signals = Signals { late: Some(Duration::from_millis(late_ms)), busy_permille: Some(busy) };
            shedder.on_tick(signals, seconds(*s));
            shedder.is_engaged() != before
        })
    }

    #[test]
    fn one_signal_alone_never_engages_it() {
        assert_eq!(run(&mut Shedder::default(), 0, 100, 5_000, 100), None, "late walks alone");
        assert_eq!(run(&mut Shedder::default(), 0, 100, 0, 1_000), None, "busy workers alone");
        let mut blind = Shedder::default();
        for s in 0..100 {
            blind.on_tick(Signals { late: Some(Duration::from_secs(9)), busy_permille: None }, seconds(s));
        }
        assert!(!blind.is_engaged(), "a missing signal is calm");
    }

    #[test]
    fn both_engage_it_after_three_seconds_and_ten_calm_ones_release_it() {
        let mut shedder = Shedder::default();
        assert_eq!(run(&mut shedder, 0, 100, 300, 900), Some(3));
        assert_eq!(run(&mut shedder, 4, 100, 240, 900), None, "below the mark, above four fifths of it");
        assert_eq!(run(&mut shedder, 200, 100, 190, 900), Some(210));
    }

    #[test]
    fn it_takes_half_and_never_more() {
        let mut shedder = Shedder::default();
        assert_eq!(shedder.cap_milli(5_000, seconds(0)), 5_000);
        run(&mut shedder, 0, 10, 300, 900);
        assert_eq!(shedder.cap_milli(5_000, seconds(10)), 2_500);
    }

    #[test]
    fn short_memory_takes_half_at_once_as_long_as_it_is_short() {
        let mut shedder = Shedder::default();
        shedder.press(true);
        assert_eq!(shedder.cap_milli(5_000, seconds(0)), 2_500);
        run(&mut shedder, 0, 10, 300, 900);
        assert_eq!(shedder.cap_milli(5_000, seconds(10)), 2_500, "half, for whatever reasons");
        let mut shedder = Shedder::default();
        shedder.press(true);
        shedder.press(false);
        assert_eq!(shedder.cap_milli(5_000, seconds(0)), 5_000);
    }

    #[test]
    fn an_order_goes_lower_until_its_end_and_never_silent() {
        let mut shedder = Shedder::default();
        let order = |cap_milli, minutes: u64| Some(Override { cap_milli, until: seconds(minutes * 60) });
        assert!(!shedder.order(order(1_000, OVERRIDE_MAX.as_secs() / 60 + 1), seconds(0)), "too long");
        assert_eq!(shedder.cap_milli(5_000, seconds(1)), 5_000);
        assert!(shedder.order(order(0, 5), seconds(0)));
        assert_eq!(shedder.cap_milli(5_000, seconds(1)), SILENCE_FLOOR_MILLI);
        assert_eq!(shedder.cap_milli(5_000, seconds(300)), 5_000, "the order is over");
    }
}
