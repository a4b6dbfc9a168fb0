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

/// Measures it over the last ten seconds: comments said, what viewers were given of them, and the frames all would leave in.
///
/// What is told is counted: after each walk of a room, what those were given who stood where the walk before had left them. Only
/// while nobody stands in the room to be counted is it what the cap promises. Cost: four additions a batch and a walk.
#[derive(Clone, Debug, Default)]
pub struct Keep {
    /// Oldest first.
    slots: VecDeque<Slot>,
    /// Said since the last walk began.
    unwalked: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    begin: Mono,
    said: u64,
    /// What the cap gives one viewer of them, in millionths of a comment.
    promised: u64,
    frames: u64,
    /// Of what a walk was about: said, and given to one viewer on average, in millionths of a comment.
    walked: u64,
    given: u64,
}

impl Keep {
    /// A batch came from `said` comments, of which the cap gives one viewer so much, in millionths of a comment.
    /// `frames`: see [`super::switch::Merged`].
    pub fn said(&mut self, said: u64, promised: u64, frames: u32, now: Mono) {
        self.unwalked += said;
        let slot = self.slot(now);
        slot.said += said;
        slot.promised += promised;
        slot.frames += u64::from(frames);
    }

    /// A walk begins: how many comments it is about, for [`Keep::walked`].
    pub fn take_unwalked(&mut self) -> u64 {
        std::mem::take(&mut self.unwalked)
    }

    /// A walk has come to its last seat: of `said` comments so many were given in sum to so many viewers.
    pub fn walked(&mut self, said: u64, given: u64, viewers: u64, now: Mono) {
        if let Some(each) = (given * u64::from(WHOLE_MILLIONTHS)).checked_div(viewers) {
            let slot = self.slot(now);
            slot.walked += said;
            slot.given += each;
        }
    }

    fn slot(&mut self, now: Mono) -> &mut Slot {
        self.forget(now);
        if self.slots.back().is_none_or(|slot| now.since(slot.begin) >= SLOT) {
            self.slots.push_back(Slot { begin: now, ..Slot::default() });
        }
        self.slots.back_mut().expect("one was just made where none was")
    }

    /// [`WHOLE_MILLIONTHS`] when nothing was said.
    pub fn millionths(&mut self, now: Mono) -> u32 {
        self.forget(now);
        let sum = |of: fn(&Slot) -> u64| self.slots.iter().map(of).sum::<u64>();
        let whole = u64::from(WHOLE_MILLIONTHS);
        match sum(|slot| slot.walked) {
            0 => millionths(sum(|slot| slot.promised), sum(|slot| slot.said) * whole),
            walked => millionths(sum(|slot| slot.given), walked * whole),
        }
    }

    /// What was said a second, over the last ten; rounded up.
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

    fn second(n: u64) -> Mono {
        Mono(n * 1_000_000)
    }

    #[test]
    fn ten_seconds_are_measured_and_older_ones_forgotten() {
        let mut keep = Keep::default();
        (0..10).for_each(|s| keep.said(1_000, 5_000_000, 10, second(s)));
        assert_eq!((keep.millionths(second(9)), keep.said_a_second(second(9))), (5_000, 1_000));
        assert_eq!(keep.frames_a_second(second(9)), 10);
        (10..20).for_each(|s| keep.said(10, 5_000_000, 1, second(s)));
        assert_eq!(keep.millionths(second(19)), 500_000);
        assert_eq!(keep.millionths(second(40)), WHOLE_MILLIONTHS);
    }

    #[test]
    fn what_is_told_is_what_was_given_and_not_what_the_cap_promises() {
        let mut keep = Keep::default();
        for s in 0..10 {
            keep.said(1_000, 5_000_000, 1, second(s));
            // Forty of three viewers' comments: 13.3 each, where the cap says five.
            let said = keep.take_unwalked();
            keep.walked(said, 40, 3, second(s));
        }
        assert_eq!(keep.millionths(second(9)), 13_333);
        // A walk that nobody stood in tells nothing, and what was said before it is not said again.
        keep.walked(0, 0, 0, second(9));
        assert_eq!((keep.take_unwalked(), keep.millionths(second(9))), (0, 13_333));
    }

    #[test]
    fn who_is_given_everything_is_told_so_even_between_a_batch_and_its_walk() {
        let mut keep = Keep::default();
        keep.said(7, 7_000_000, 1, second(0));
        let said = keep.take_unwalked();
        keep.walked(said, 35, 5, second(0));
        keep.said(90, 90_000_000, 1, second(1));
        assert_eq!(keep.millionths(second(1)), WHOLE_MILLIONTHS);
    }

    #[test]
    fn a_stadium_of_millions_is_counted_to_the_millionth() {
        let mut keep = Keep::default();
        for window in 0..50 {
            let now = Mono(window * 200_000);
            keep.said(50_000, 1_000_000, 1, now);
            let said = keep.take_unwalked();
            // Every second of the viewers of one process is under half a cap.
            keep.walked(said, 15_000, 20_000, now);
        }
        assert_eq!(keep.millionths(Mono(9_900_000)), 15);
    }
}
