//! The pick: which of a window's winners one viewer is given.
//!
//! A pure function of (viewer, window): the same viewer who resumes is picked the same again, on any gateway. The winners lie
//! side by side on a line, each as long as its chance; a viewer lays a comb of so many teeth over it, one hash saying how far
//! it is shifted, and is given what the teeth touch. No winner is longer than the gap between two teeth, so none is touched
//! twice and every tooth counts. Who follows an author or a thread finds it four times as long.
//!
//! It promises exactly [`quota`] picks of a window that has as many winners, which over any whole second is the cap. A window of
//! n winners has at most n different sets of picks, however many viewers there are: that is what makes frames shareable. The
//! awkward case is a cap below one a window: the windows in which a viewer is given one are spread by the viewer's key, so that
//! not everybody is served in the same window.
//!
//! Source: systematic sampling with chances in proportion to size, Madow 1949; docs/decisions/0026-comb.md says why not an
//! alias table.

use crate::names::UserId;
use crate::planted::planted;
use crate::rng::Rng;
use crate::routing::stable_hash;

/// How much likelier a followed winner is.
pub const FOLLOWED: u32 = 4;
/// How long a window is. Source: docs/decisions/0005-numbers.md.
pub const WINDOW_MS: u64 = 200;
/// The most picks of one window: the `danmaku` cap of 50 a second at the longest window.
pub const PICKS_MAX: usize = 64;

/// Who a viewer is to the pick: 54 bits of a hash of the user id, or of an anonymous viewer's first session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ViewerKey(pub u64);

impl ViewerKey {
    /// A seat of the gateway has no more for it.
    pub const BITS: u32 = 54;

    pub fn of_user(user: &UserId) -> ViewerKey {
        ViewerKey::of(user.as_str())
    }
    /// Of an anonymous viewer, by the name of its first session.
    pub fn of_session(session: &str) -> ViewerKey {
        ViewerKey::of(session)
    }
    fn of(text: &str) -> ViewerKey {
        ViewerKey(stable_hash(text.as_bytes()) & ((1 << ViewerKey::BITS) - 1))
    }
}

/// A window's number in its room.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WindowNumber(pub u64);

/// How many comments a viewer is given in this window.
///
/// `cap_milli`: comments a thousand seconds; `window_ms`: the window's length. The sum over consecutive windows of any
/// length differs from `cap × time` by less than one.
pub fn quota(viewer: ViewerKey, window: WindowNumber, cap_milli: u64, window_ms: u64) -> usize {
    const UNIT: u64 = 1_000_000;
    let a_window = cap_milli * window_ms + if planted(141) { UNIT } else { 0 };
    if a_window.is_multiple_of(UNIT) {
        // The same in every window, whatever the phase.
        return ((a_window / UNIT) as usize).min(PICKS_MAX);
    }
    let phase = u128::from(mix(viewer, WindowNumber(u64::MAX)) % UNIT);
    let given = |n: u64| (u128::from(n) * u128::from(a_window) + phase) / u128::from(UNIT);
    let n = (given(window.0 + 1) - given(window.0)) as usize;
    n.min(PICKS_MAX)
}

fn mix(viewer: ViewerKey, window: WindowNumber) -> u64 {
    Rng::new(viewer.0 ^ window.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)).next()
}

/// The winners of one window, as long as their chances, for one number of picks.
#[derive(Clone, Debug)]
pub struct Line {
    window: WindowNumber,
    /// Where each winner ends, in 2⁻³² of a gap between two teeth; ascending. The last is the number of picks.
    ends: Vec<u64>,
}

const GAP: u64 = 1 << 32;

impl Line {
    /// `weights` of the winners, in their order in the log; each at least 1. With no more winners than `quota` all are picked.
    pub fn new(window: WindowNumber, weights: &[u32], quota: usize) -> Line {
        assert!(weights.iter().all(|w| *w > 0), "a winner without weight could not win");
        let mut heavy: Vec<usize> = (0..weights.len()).collect();
        heavy.sort_by_key(|i| std::cmp::Reverse(weights[*i]));
        let mut total: u64 = weights.iter().map(|w| u64::from(*w)).sum();
        let mut left = quota.min(weights.len()) as u64;
        let mut is_sure = vec![false; weights.len()];
        // Who would be longer than a gap is picked by everyone, and the others share what is left.
        for i in heavy {
            let weight = u64::from(weights[i]);
            if left == 0 || weight * left < total {
                break;
            }
            is_sure[i] = true;
            left -= 1;
            total -= weight;
        }
        let (mut n_sure, mut before) = (0, 0);
        let ends = weights.iter().zip(is_sure).map(|(weight, is_sure)| {
            if is_sure {
                n_sure += 1;
            } else {
                before += u64::from(*weight);
            }
            let shared = if total == 0 { 0 } else { u128::from(before) * u128::from(left * GAP) / u128::from(total) };
            n_sure * GAP + shared as u64
        });
        Line { window, ends: ends.collect() }
    }

    /// Calls `picked` with the place of each winner this viewer is given, ascending.
    pub fn pick(&self, viewer: ViewerKey, mut picked: impl FnMut(usize)) {
        let Some(&end) = self.ends.last() else { return };
        let mut tooth = mix(viewer, self.window) >> 32;
        let mut from = 0;
        while tooth < end {
            from += self.ends[from..].partition_point(|end| *end <= tooth);
            picked(from);
            tooth += GAP;
        }
    }
}

/// The winners of one window.
#[derive(Clone, Debug)]
pub struct Table {
    window: WindowNumber,
    weights: Vec<u32>,
    /// By the number of picks; a cap has one or two.
    lines: Vec<(usize, Line)>,
    /// The weights up to each winner, itself included; made for the first viewer who follows somebody.
    sums: Vec<u64>,
    heaviest: u64,
}

impl Table {
    /// `weights` of the winners, in their order in the log; each at least 1.
    pub fn new(window: WindowNumber, weights: Vec<u32>) -> Table {
        Table { window, weights, lines: Vec::new(), sums: Vec::new(), heaviest: 0 }
    }

    pub fn window(&self) -> WindowNumber {
        self.window
    }

    /// Calls `picked` with the places of `quota` winners for this viewer (all, when there are no more), ascending.
    pub fn pick(&mut self, viewer: ViewerKey, quota: usize, picked: impl FnMut(usize)) {
        if quota == 0 {
            return;
        }
        let at = match self.lines.iter().position(|(known, _)| *known == quota) {
            Some(at) => at,
            None => {
                self.lines.push((quota, Line::new(self.window, &self.weights, quota)));
                self.lines.len() - 1
            }
        };
        self.lines[at].1.pick(viewer, picked);
    }

    /// [`Table::pick`] for a viewer who follows the winners at these places, ascending. Cost: a search a pick, and a step for each of
    /// those followed; a line of its own only where somebody is so heavy that everyone is given it.
    pub fn pick_followed(
        &mut self,
        viewer: ViewerKey,
        quota: usize,
        followed: &[usize],
        mut picked: impl FnMut(usize),
    ) {
        if self.sums.is_empty() {
            let add = |sum: &mut u64, weight: &u32| {
                *sum += u64::from(*weight);
                Some(*sum)
            };
            self.sums = self.weights.iter().scan(0, add).collect();
            self.heaviest = self.weights.iter().copied().max().unwrap_or(0).into();
        }
        let Some(plain) = self.sums.last() else { return };
        let left = quota.min(self.weights.len()) as u64;
        let more = |place: usize| u64::from(self.weights[place] * (FOLLOWED - 1));
        let total = plain + followed.iter().map(|place| more(*place)).sum::<u64>();
        let longest = followed.iter().map(|place| u64::from(self.weights[*place] * FOLLOWED)).max().unwrap_or(0);
        if longest.max(self.heaviest) * left >= total {
            let longer = |(place, weight): (usize, &u32)| match followed.binary_search(&place) {
                Ok(_) => *weight * FOLLOWED,
                Err(_) => *weight,
            };
            let weights: Vec<u32> = self.weights.iter().enumerate().map(longer).collect();
            return Line::new(self.window, &weights, quota).pick(viewer, picked);
        }
        let (first, mut from, mut lifted) = (mix(viewer, self.window) >> 32, 0, 0);
        let mut ahead = followed.iter().copied().peekable();
        for n in 0..left {
            // As far along the weights as the tooth is along the line: what ends there or behind it is touched.
            let along = u128::from(first + n * GAP + 1) * u128::from(total);
            let along = along.div_ceil(u128::from(left * GAP)) as u64;
            while let Some(place) = ahead.next_if(|place| self.sums[*place] + lifted + more(*place) < along) {
                lifted += more(place);
                from = place + 1;
            }
            let to = ahead.peek().copied().unwrap_or(self.sums.len());
            from += self.sums[from..to].partition_point(|sum| sum + lifted < along);
            picked(from);
        }
    }
}
