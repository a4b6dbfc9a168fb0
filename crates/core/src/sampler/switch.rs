//! When a room is wide.
//!
//! A crowd that talks faster than anyone reads, before more eyes than the gateways can serve one by one. Both have to hold: a
//! small busy room and a large quiet one are never sampled, merging carries them. So what a room costs is counted in frames, as
//! they leave when comments of one merge window go together, and a comment more in a frame is a small part of one. It widens after three seconds and narrows
//! after thirty, so that a goal does not make it flap.
//!
//! Numbers: docs/decisions/0005-numbers.md; the 50 000 viewers are the seed's own figure.

use std::time::Duration;

use crate::time::Mono;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sampling {
    Auto,
    /// Never wide; viewers past the room's cost are refused instead.
    None,
    Always,
}

impl Sampling {
    pub const ALL: [(Sampling, &'static str); 3] =
        [(Sampling::Auto, "auto"), (Sampling::None, "none"), (Sampling::Always, "always")];

    pub fn name(self) -> &'static str {
        Sampling::ALL[self as usize].1
    }
    pub fn parse(name: &str) -> Option<Sampling> {
        Sampling::ALL.iter().find(|(_, n)| *n == name).map(|(s, _)| *s)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Accepted comments a second above which a room may be wide.
    pub rate: u32,
    pub viewers: u64,
    /// Frames a second that the gateways can send.
    pub sends: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { rate: 20, viewers: 50_000, sends: 150_000 }
    }
}

/// How fast a room talks, a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pace {
    pub comments: u32,
    /// What the comments leave in when those of one merge window go together; see [`Merged`].
    pub frames: u32,
}

/// Counts the frames that comments leave in, one a merge window in which anything was said.
#[derive(Clone, Debug, Default)]
pub struct Merged {
    frames: u32,
    open_until: Mono,
}

impl Merged {
    pub fn on_comments(&mut self, n: u32, window: Duration, now: Mono) {
        if window.is_zero() {
            self.frames = self.frames.saturating_add(n);
        } else if n > 0 && now >= self.open_until {
            self.frames = self.frames.saturating_add(1);
            self.open_until = now + window;
        }
    }

    /// Those since it was last asked.
    pub fn take(&mut self) -> u32 {
        std::mem::take(&mut self.frames)
    }
}

/// A comment more in a frame costs a part of the frame's own send: about a seventieth of its CPU (docs/benchmarks.md, 39 comments a
/// frame against one), and more of the network, of which ten gigabits carry this many times the sends.
const COMMENTS_A_SEND: u64 = 32;

const WIDE_AFTER: Duration = Duration::from_secs(3);
const NARROW_AFTER: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    Widen,
    Narrow,
}

/// One room's switch. The owner makes a record of each change and tells it here with [`Switch::set`].
#[derive(Clone, Debug, Default)]
pub struct Switch {
    wide: bool,
    /// Since when the other state has been asked for without a break.
    since: Option<Mono>,
}

impl Switch {
    pub fn is_wide(&self) -> bool {
        self.wide
    }

    /// The record of the change is durable (or was read from the log).
    pub fn set(&mut self, wide: bool) {
        self.wide = wide;
        self.since = None;
    }

    /// Called at least once a second. `pace`: accepted comments over the last second.
    /// Returns the change that is due; it is asked for again until [`Switch::set`] is called.
    pub fn on_tick(
        &mut self,
        sampling: Sampling,
        limits: &Limits,
        pace: Pace,
        viewers: u64,
        now: Mono,
    ) -> Option<Change> {
        let wanted = match sampling {
            Sampling::None => return self.wide.then_some(Change::Narrow),
            Sampling::Always => return (!self.wide).then_some(Change::Widen),
            Sampling::Auto if self.wide => {
                // Half of either mark is calm: a room whose crowd left needs no sampling however fast the rest types.
                let busy = 2 * u64::from(pace.comments) > u64::from(limits.rate)
                    && (2 * viewers > limits.viewers || 2 * cost(pace, viewers) > limits.sends);
                !busy
            }
            Sampling::Auto => {
                let crowded = viewers >= limits.viewers || cost(pace, viewers) > limits.sends;
                pace.comments > limits.rate && crowded
            }
        };
        if !wanted {
            self.since = None;
            return None;
        }
        let since = *self.since.get_or_insert(now);
        let (after, change) = if self.wide { (NARROW_AFTER, Change::Narrow) } else { (WIDE_AFTER, Change::Widen) };
        (now.since(since) >= after).then_some(change)
    }
}

/// Whether a room that is never sampled takes one more viewer: what it costs to send everything to everyone stays within the
/// sends. `viewers` without the new one.
pub fn takes_viewer(sampling: Sampling, limits: &Limits, pace: Pace, viewers: u64) -> bool {
    sampling != Sampling::None || cost(pace, viewers + 1) <= limits.sends
}

/// What it takes to send everything to everyone, in frames a second.
pub fn cost(pace: Pace, viewers: u64) -> u64 {
    let more = viewers.saturating_mul(u64::from(pace.comments.saturating_sub(pace.frames))) / COMMENTS_A_SEND;
    viewers.saturating_mul(u64::from(pace.frames)).saturating_add(more)
}

#[cfg(test)]
mod tests {
    use super::{Change, Limits, Merged, Pace, Sampling, Switch, cost, takes_viewer};
    use crate::time::Mono;
    use crate::viewer::merge::window_at;

    /// So many comments a second, one after another.
    fn evenly(rate: u32, viewers: u64) -> Pace {
        in_bursts(rate, 1, viewers)
    }

    fn in_bursts(rate: u32, burst: u32, viewers: u64) -> Pace {
        let mut merged = Merged::default();
        let n = rate / burst;
        (0..n)
            .for_each(|i| merged.on_comments(burst, window_at(viewers), Mono(u64::from(i) * 1_000_000 / u64::from(n))));
        Pace { comments: rate, frames: merged.take() }
    }

    fn ticks(switch: &mut Switch, from: u64, seconds: u64, rate: u32, viewers: u64) -> Option<(u64, Change)> {
        paced(switch, from, seconds, evenly(rate, viewers), viewers)
    }

    fn paced(switch: &mut Switch, from: u64, seconds: u64, pace: Pace, viewers: u64) -> Option<(u64, Change)> {
        (from..from + seconds).find_map(|s| {
            let now = Mono(s * 1_000_000);
            switch.on_tick(Sampling::Auto, &Limits::default(), pace, viewers, now).map(|change| (s, change))
        })
    }

    #[test]
    fn a_fast_crowd_makes_a_room_wide_after_three_seconds() {
        assert_eq!(ticks(&mut Switch::default(), 10, 10, 21, 50_000), Some((13, Change::Widen)));
    }

    #[test]
    fn neither_speed_nor_a_crowd_alone_makes_it_wide() {
        assert_eq!(ticks(&mut Switch::default(), 0, 100, 2_000, 70), None, "a busy small room");
        assert_eq!(ticks(&mut Switch::default(), 0, 100, 400, 2_000), None, "merging carries a busy room of some size");
        assert_eq!(ticks(&mut Switch::default(), 0, 100, 20, 5_000_000), None, "a quiet large room");
    }

    #[test]
    fn what_the_gateways_can_send_makes_it_wide_below_the_seed_s_viewers() {
        assert_eq!(ticks(&mut Switch::default(), 0, 10, 500, 10_000), Some((3, Change::Widen)));
        assert_eq!(ticks(&mut Switch::default(), 0, 10, 5_000, 15_000), Some((3, Change::Widen)), "the seed's barrage");
    }

    #[test]
    fn bursts_leave_in_few_frames_and_do_not_make_it_wide() {
        let pace = in_bursts(50, 25, 8_000);
        assert_eq!((pace, cost(pace, 8_000)), (Pace { comments: 50, frames: 2 }, 28_000));
        assert_eq!(paced(&mut Switch::default(), 0, 100, pace, 8_000), None, "the seed's busy room");
        assert_eq!(cost(evenly(50, 8_000), 8_000), 144_250);
    }

    #[test]
    fn a_second_of_calm_begins_the_three_seconds_anew() {
        let mut switch = Switch::default();
        assert_eq!(ticks(&mut switch, 0, 3, 100, 50_000), None);
        assert_eq!(ticks(&mut switch, 3, 1, 5, 50_000), None);
        assert_eq!(ticks(&mut switch, 4, 10, 100, 50_000), Some((7, Change::Widen)));
    }

    #[test]
    fn it_narrows_after_thirty_seconds_below_half_and_not_before() {
        let mut switch = Switch::default();
        switch.set(true);
        assert_eq!(ticks(&mut switch, 0, 100, 15, 60_000), None, "above half");
        assert_eq!(ticks(&mut switch, 100, 100, 10, 60_000), Some((130, Change::Narrow)));
    }

    #[test]
    fn it_narrows_when_the_crowd_has_left() {
        let mut switch = Switch::default();
        switch.set(true);
        assert_eq!(ticks(&mut switch, 0, 100, 2_000, 10), Some((30, Change::Narrow)));
    }

    #[test]
    fn only_a_room_that_is_never_sampled_refuses_viewers_for_their_cost() {
        let takes =
            |sampling, rate, viewers| takes_viewer(sampling, &Limits::default(), evenly(rate, viewers), viewers);
        assert!(takes(Sampling::None, 10, 14_999) && !takes(Sampling::None, 10, 15_000));
        assert!(takes(Sampling::None, 0, 5_000_000), "a quiet room costs nothing");
        assert!(takes(Sampling::Auto, 250_000, 5_000_000) && takes(Sampling::Always, 250_000, 5_000_000));
    }

    #[test]
    fn an_operator_s_word_holds_at_once() {
        let mut switch = Switch::default();
        let tick = |s: &mut Switch, sampling| s.on_tick(sampling, &Limits::default(), Pace::default(), 0, Mono(0));
        assert_eq!(tick(&mut switch, Sampling::Always), Some(Change::Widen));
        switch.set(true);
        assert_eq!(tick(&mut switch, Sampling::Always), None);
        assert_eq!(tick(&mut switch, Sampling::None), Some(Change::Narrow));
    }
}
