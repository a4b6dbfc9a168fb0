//! One timer a connection, for any number of connections: a wheel of ticks.
//!
//! A kitchen timer with 1 024 notches of 50 ms. A connection has at most one notch that counts; what lies further away than
//! one turn is put on the last notch and put on again from there. Setting, moving and forgetting cost nothing more than a
//! push: a notch that no longer counts is found out when it fires, by its tick and generation.

use std::time::Duration;

use grandstand_core::time::Mono;

pub const TICK: Duration = Duration::from_millis(50);
const NOTCHES: usize = 1_024;
/// Timers that a notch keeps room for: 10 000 connections that are looked at every 25 s make 20.
const KEPT: usize = 32;

/// A tick of the wheel since the worker's clock began; wraps after 6 years.
pub type Tick = u32;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timer {
    pub slot: u32,
    pub generation: u32,
    pub at: Tick,
}

pub struct Wheel {
    notches: Vec<Vec<Timer>>,
    now: Tick,
    n: usize,
}

impl Wheel {
    pub fn new(now: Mono) -> Wheel {
        Wheel { notches: (0..NOTCHES).map(|_| Vec::new()).collect(), now: tick_of(now), n: 0 }
    }

    /// Puts a timer at the first tick not before `at`, at most one turn away; returns where it was put.
    pub fn put(&mut self, slot: u32, generation: u32, at: Mono) -> Tick {
        let tick = tick_after(at).clamp(self.now + 1, self.now + NOTCHES as u32 - 1);
        self.notches[tick as usize % NOTCHES].push(Timer { slot, generation, at: tick });
        self.n += 1;
        tick
    }

    /// Moves the wheel to `now` and takes what fired, earliest first.
    pub fn turn(&mut self, now: Mono, fired: &mut Vec<Timer>) {
        let to = tick_of(now);
        while self.now < to {
            self.now += 1;
            let notch = &mut self.notches[self.now as usize % NOTCHES];
            self.n -= notch.len();
            fired.append(notch);
            // A burst of connections must not leave its capacity behind for ever, in each of the notches it passed.
            notch.shrink_to(KEPT);
        }
    }

    /// When to look again; `None` when nothing is set.
    pub fn next(&self) -> Option<Mono> {
        let ahead = (1..NOTCHES as u32).find(|n| !self.notches[(self.now + n) as usize % NOTCHES].is_empty());
        ahead.filter(|_| self.n > 0).map(|n| Mono(u64::from(self.now + n) * TICK.as_micros() as u64))
    }
}

fn tick_of(at: Mono) -> Tick {
    (at.0 / TICK.as_micros() as u64) as Tick
}

fn tick_after(at: Mono) -> Tick {
    at.0.div_ceil(TICK.as_micros() as u64) as Tick
}

#[cfg(test)]
mod tests {
    use grandstand_core::time::Mono;

    use super::{Timer, Wheel};

    fn ms(n: u64) -> Mono {
        Mono(n * 1_000)
    }

    fn fired(wheel: &mut Wheel, at: Mono) -> Vec<u32> {
        let mut out = Vec::new();
        wheel.turn(at, &mut out);
        out.into_iter().map(|t: Timer| t.slot).collect()
    }

    #[test]
    fn timers_fire_in_order_and_never_early() {
        let mut wheel = Wheel::new(ms(0));
        wheel.put(1, 0, ms(120));
        wheel.put(2, 0, ms(60));
        wheel.put(3, 0, ms(0));
        assert_eq!(wheel.next(), Some(ms(50)));
        assert_eq!(fired(&mut wheel, ms(99)), [3]);
        assert_eq!(wheel.next(), Some(ms(100)));
        assert_eq!(fired(&mut wheel, ms(149)), [2]);
        assert_eq!(fired(&mut wheel, ms(150)), [1]);
        assert_eq!(wheel.next(), None);
    }

    #[test]
    fn what_is_further_than_a_turn_fires_once_at_the_end_of_the_turn() {
        let mut wheel = Wheel::new(ms(0));
        wheel.put(1, 0, ms(10_000_000));
        assert!(fired(&mut wheel, ms(51_000)).is_empty());
        assert_eq!(fired(&mut wheel, ms(51_200)), [1]);
    }
}
