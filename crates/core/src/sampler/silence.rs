//! Nobody hears nothing: what a live viewer of a wide room is given when its cap is below one comment a window.
//!
//! With such a cap a viewer has a right to something in some windows only, and those may be the empty ones. Like a waiter who
//! looks at the tables that were not served for a while: who has waited two seconds is given one of the window that is there,
//! and it stands for the next that its cap would have given it.
//!
//! It promises that while comments are shown a viewer waits two seconds and a window at most, and that its cap is not exceeded for
//! it. A resume is not its business: what was promised is the same part again, whatever was given since.

use crate::planted::planted;
use crate::sampler::pick;
use crate::time::Mono;

/// A viewer that is given fewer than one comment a window has waited long after so many windows: two seconds.
pub const WINDOWS_MAX: u8 = 10;
const WINDOW_MICROS: u64 = pick::WINDOW_MS * 1_000;

/// When a viewer was last given a comment of a wide room, in windows, and whether only because it had waited; wraps after 25 s.
/// A seat of the gateway has eight bits for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GivenAt(pub u8);

impl GivenAt {
    const WINDOWS: u8 = 0x7f;
    const HAD_WAITED: u8 = 0x80;

    pub fn new(now: Mono) -> GivenAt {
        GivenAt((now.0 / WINDOW_MICROS) as u8 & GivenAt::WINDOWS)
    }
    fn after_a_wait(now: Mono) -> GivenAt {
        GivenAt(GivenAt::new(now).0 | GivenAt::HAD_WAITED)
    }
    fn windows_ago(self, now: Mono) -> u8 {
        GivenAt::new(now).0.wrapping_sub(self.0) & GivenAt::WINDOWS
    }
    fn had_waited(self) -> bool {
        self.0 & GivenAt::HAD_WAITED != 0
    }
}

/// What a live viewer is given of a walk's windows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    /// What its cap gives it, as after a resume.
    Part,
    /// As [`Due::Part`], and one where that is nothing: the windows it had a right to were empty.
    Word,
    /// Nothing: the word it was given stands for what its cap would give it now.
    Nothing,
}

/// `cap_milli`: the cap in force, comments a thousand seconds; `given`: when a live viewer was given its last comment.
pub fn due(cap_milli: u64, given: Option<GivenAt>, now: Mono) -> Due {
    let a_window = cap_milli * pick::WINDOW_MS;
    let Some(given) = given.filter(|_| (1..1_000_000).contains(&a_window)) else { return Due::Part };
    let ago = given.windows_ago(now);
    if ago >= WINDOWS_MAX && !planted(143) {
        Due::Word
    } else if given.had_waited() && u64::from(ago) * a_window < 1_000_000 {
        Due::Nothing
    } else {
        Due::Part
    }
}

impl Due {
    /// What a viewer to whom this was due, and who was given something, is to remember. `before`: what it remembered.
    pub fn given_at(self, before: Option<GivenAt>, now: Mono) -> GivenAt {
        match self {
            Due::Part => GivenAt::new(now),
            Due::Word => GivenAt::after_a_wait(now),
            // What is addressed to it comes on top: its wait goes on.
            Due::Nothing => before.expect("nothing is due only to one who waited"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Due, GivenAt, WINDOW_MICROS, WINDOWS_MAX, due};
    use crate::sampler::pick::{self, ViewerKey, WindowNumber};
    use crate::time::Mono;

    /// The windows in which a live viewer is given something, of so many; `is_empty` has no winners.
    fn given(cap_milli: u64, n_windows: u64, is_empty: impl Fn(u64) -> bool) -> Vec<u64> {
        let viewer = ViewerKey(7);
        let mut at = GivenAt::new(Mono(0));
        let mut given = Vec::new();
        for n in 0..n_windows {
            let now = Mono(n * WINDOW_MICROS);
            let quota = pick::quota(viewer, WindowNumber(n), cap_milli, pick::WINDOW_MS);
            let due = due(cap_milli, Some(at), now);
            let (n_given, due) = match due {
                Due::Word if quota == 0 => (1, due),
                Due::Part | Due::Word => (quota, Due::Part),
                Due::Nothing => (0, due),
            };
            if n_given > 0 && !is_empty(n) {
                given.extend(std::iter::repeat_n(n, n_given));
                at = due.given_at(Some(at), now);
            }
        }
        given
    }

    const CAPS_MILLI: [u64; 8] = [500, 1_000, 1_500, 2_000, 2_500, 3_000, 4_000, 5_000];

    #[test]
    fn every_cap_is_given_whole_and_never_more() {
        for cap_milli in CAPS_MILLI {
            let n = given(cap_milli, 5_000, |_| false).len() as u64;
            assert!(n.abs_diff(cap_milli) <= 1, "{n} in a thousand seconds at {cap_milli}");
        }
    }

    #[test]
    fn whoever_waited_is_given_a_word_and_no_more_than_the_cap_with_it() {
        for cap_milli in CAPS_MILLI {
            // Three windows in four seconds have winners, so that a viewer's own are often empty.
            let given = given(cap_milli, 50_000, |n| !matches!(n % 20, 0 | 7 | 13));
            let seconds = cap_milli.div_ceil(1_000) as usize;
            for (at, n) in given.iter().enumerate() {
                let of_a_second = given[at..].iter().take_while(|later| **later - n < 5).count();
                assert!(of_a_second <= seconds, "{of_a_second} within a second at {cap_milli}");
            }
            let longest = given.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
            // The first window with winners once two seconds are over.
            assert!(longest <= u64::from(WINDOWS_MAX) + 7, "{longest} windows without a word at {cap_milli}");
        }
    }

    #[test]
    fn what_was_given_long_ago_is_long_ago() {
        for windows in 0..100 {
            assert_eq!(GivenAt::after_a_wait(Mono(0)).windows_ago(Mono(windows * WINDOW_MICROS)), windows as u8);
        }
    }
}
