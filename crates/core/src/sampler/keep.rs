//! The keep fraction: what part of what was said one viewer is shown, as viewers are told it.

use std::collections::VecDeque;
use std::time::Duration;

use crate::time::Mono;

/// Over this time, so that one burst does not make the figure jump.
const OVER: Duration = Duration::from_secs(10);
const SLOT: Duration = Duration::from_secs(1);

pub const WHOLE_MILLIONTHS: u32 = 1_000_000;

/// Of `said` comments a second a viewer is shown `cap`: in millionths, rounded to the nearest.
///
/// 250 000 a second with a cap of 5 is 20 millionths (2·10⁻⁵).
pub fn millionths(cap: u64, said: u64) -> u32 {
    if cap >= said {
        return WHOLE_MILLIONTHS;
    }
    ((u128::from(cap) * 1_000_000 + u128::from(said) / 2) / u128::from(said)) as u32
}

/// Whether a figure is so far from the one that was told that it is told anew: by a twentieth.
pub fn is_news(told: u32, now: u32) -> bool {
    u64::from(told.abs_diff(now)) * 20 > u64::from(told)
}

/// Measures it over the last ten seconds: comments said, comments one viewer was given of them, and the frames all would leave in.
#[derive(Clone, Debug, Default)]
pub struct Keep {
    /// Oldest first.
    slots: VecDeque<Slot>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    begin: Mono,
    said: u64,
    given: u64,
    frames: u64,
}

impl Keep {
    /// `frames`: see [`super::switch::Merged`].
    pub fn add(&mut self, said: u64, given: u64, frames: u32, now: Mono) {
        self.forget(now);
        match self.slots.back_mut() {
            Some(slot) if now.since(slot.begin) < SLOT => {
                slot.said += said;
                slot.given += given;
                slot.frames += u64::from(frames);
            }
            _ => self.slots.push_back(Slot { begin: now, said, given, frames: frames.into() }),
        }
    }

    /// [`WHOLE_MILLIONTHS`] when nothing was said.
    pub fn millionths(&mut self, now: Mono) -> u32 {
        self.forget(now);
        let (said, given) = self.slots.iter().fold((0, 0), |(s, g), slot| (s + slot.said, g + slot.given));
        millionths(given, said)
    }

    /// What was said a second, over the last ten; of what [`Keep::add`] was given, rounded up.
    pub fn said_a_second(&mut self, now: Mono) -> u64 {
        self.forget(now);
        let said: u64 = self.slots.iter().map(|slot| slot.said).sum();
        said.div_ceil(OVER.as_secs())
    }

    /// As [`Keep::said_a_second`], of frames.
    pub fn frames_a_second(&mut self, now: Mono) -> u64 {
        self.forget(now);
        let frames: u64 = self.slots.iter().map(|slot| slot.frames).sum();
        frames.div_ceil(OVER.as_secs())
    }

    fn forget(&mut self, now: Mono) {
        while self.slots.front().is_some_and(|slot| now.since(slot.begin) >= OVER) {
            self.slots.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Keep, WHOLE_MILLIONTHS, is_news, millionths};
    use crate::time::Mono;

    #[test]
    fn the_seed_s_stadium_keeps_two_in_a_hundred_thousand() {
        assert_eq!(millionths(5, 250_000), 20);
    }

    #[test]
    fn who_is_shown_all_is_told_all() {
        assert_eq!(millionths(5, 5), WHOLE_MILLIONTHS);
        assert_eq!(millionths(5, 0), WHOLE_MILLIONTHS);
    }

    #[test]
    fn a_figure_is_told_anew_when_it_moved_by_a_twentieth() {
        assert!(!is_news(WHOLE_MILLIONTHS, WHOLE_MILLIONTHS) && !is_news(1_000, 1_050) && !is_news(20, 21));
        assert!(is_news(1_000, 1_051) && is_news(1_000, 949) && is_news(0, 1));
    }

    #[test]
    fn ten_seconds_are_measured_and_older_ones_forgotten() {
        let mut keep = Keep::default();
        let second = |n: u64| Mono(n * 1_000_000);
        (0..10).for_each(|s| keep.add(1_000, 5, 10, second(s)));
        assert_eq!((keep.millionths(second(9)), keep.said_a_second(second(9))), (5_000, 1_000));
        assert_eq!(keep.frames_a_second(second(9)), 10);
        (10..20).for_each(|s| keep.add(10, 5, 1, second(s)));
        assert_eq!(keep.millionths(second(19)), 500_000);
        assert_eq!(keep.millionths(second(40)), WHOLE_MILLIONTHS);
    }
}
