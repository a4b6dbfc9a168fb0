//! The pick: which of a window's winners one viewer is given.
//!
//! A pure function of (viewer, window): the same viewer who resumes is picked the same again, on any gateway. The table is
//! made once a window; a viewer costs one hash a pick. Who follows an author or a thread finds it four times likelier.
//!
//! It promises at most [`quota`] picks a window, which over any whole second is the cap, and no winner twice. The awkward
//! case is a cap below one a window: the windows in which a viewer is given one are spread by the viewer's key, so that
//! not everybody is served in the same window.

use crate::rng::Rng;

/// How much likelier a followed winner is.
pub const FOLLOWED: u64 = 4;
/// The most picks of one window: the `danmaku` cap of 50 a second at the longest window.
pub const PICKS_MAX: usize = 64;

/// Who a viewer is to the pick: a hash of the user id, or of an anonymous viewer's first session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ViewerKey(pub u64);

/// A window's number in its room.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WindowNumber(pub u64);

/// How many comments a viewer is given in this window.
///
/// `cap_milli`: comments a thousand seconds; `window_ms`: the window's length. The sum over consecutive windows of any
/// length differs from `cap × time` by less than one.
pub fn quota(viewer: ViewerKey, window: WindowNumber, cap_milli: u64, window_ms: u64) -> usize {
    const UNIT: u128 = 1_000_000;
    let a_window = u128::from(cap_milli) * u128::from(window_ms);
    let phase = u128::from(mix(viewer, WindowNumber(u64::MAX)) % UNIT as u64);
    let given = |n: u64| (u128::from(n) * a_window + phase) / UNIT;
    let n = (given(window.0 + 1) - given(window.0)) as usize;
    n.min(PICKS_MAX)
}

fn mix(viewer: ViewerKey, window: WindowNumber) -> u64 {
    Rng::new(viewer.0 ^ window.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)).next()
}

/// The winners of one window, ready to be drawn from in constant time.
#[derive(Clone, Debug)]
pub struct Table {
    window: WindowNumber,
    weights: Vec<u32>,
    /// Of each column: the share of it that is its own, in 2⁻³² units, and whose the rest is.
    columns: Vec<(u64, u32)>,
    total: u64,
}

impl Table {
    /// `weights` of the winners, in their order in the log; each at least 1. At most 2^16 winners.
    pub fn new(window: WindowNumber, weights: Vec<u32>) -> Table {
        assert!(weights.len() <= 1 << 16, "a window has at most a few hundred winners");
        assert!(weights.iter().all(|w| *w > 0), "a winner without weight could not win");
        let n = weights.len() as u64;
        let total: u64 = weights.iter().map(|w| u64::from(*w)).sum();
        // Column i is as high as the average: in units of total / n, so that heights stay whole numbers.
        let mut heights: Vec<u64> = weights.iter().map(|w| u64::from(*w) * n).collect();
        let mut columns: Vec<(u64, u32)> = (0..weights.len()).map(|i| (1 << 32, i as u32)).collect();
        let (mut low, mut high): (Vec<usize>, Vec<usize>) = (0..weights.len()).partition(|i| heights[*i] < total);
        while let (Some(&small), Some(&large)) = (low.last(), high.last()) {
            low.pop();
            columns[small] = (((u128::from(heights[small]) << 32) / u128::from(total)) as u64, large as u32);
            heights[large] -= total - heights[small];
            if heights[large] < total {
                high.pop();
                low.push(large);
            }
        }
        Table { window, weights, columns, total }
    }

    pub fn window(&self) -> WindowNumber {
        self.window
    }

    pub fn n_winners(&self) -> usize {
        self.weights.len()
    }

    /// The places of at most `quota` winners for this viewer, ascending.
    ///
    /// `followed` are the places of winners whose author or thread the viewer follows, ascending, each once.
    pub fn pick(&self, viewer: ViewerKey, quota: usize, followed: &[u32]) -> Vec<u32> {
        let n = self.n_winners();
        if quota >= n {
            return (0..n as u32).collect();
        }
        let mut lots = Rng::new(mix(viewer, self.window));
        let mut picked: Vec<u32> = Vec::with_capacity(quota);
        // Three more tickets for each followed winner, beside the table.
        let extra = |place: &u32| u64::from(self.weights[*place as usize]) * (FOLLOWED - 1);
        let extras: u64 = followed.iter().map(extra).sum();
        // With a few picks of many winners a repeat is rare; the bound keeps the worst case short.
        for _ in 0..quota * 8 {
            if picked.len() == quota {
                break;
            }
            let at = lots.below(self.total + extras);
            let place = if at < self.total { self.draw(&mut lots) } else { place_of(followed, extra, at - self.total) };
            if !picked.contains(&place) {
                picked.push(place);
            }
        }
        // Repeats used up the draws: the rest by place from a drawn start, each once.
        let start = lots.below(n as u64) as u32;
        for place in (0..n as u32).map(|i| (start + i) % n as u32) {
            if picked.len() == quota {
                break;
            }
            if !picked.contains(&place) {
                picked.push(place);
            }
        }
        picked.sort_unstable();
        picked
    }

    fn draw(&self, lots: &mut Rng) -> u32 {
        let lot = lots.next();
        let column = ((u128::from(lot) * self.columns.len() as u128) >> 64) as usize;
        let (own, other) = self.columns[column];
        if lots.next() >> 32 < own { column as u32 } else { other }
    }
}

fn place_of(followed: &[u32], extra: impl Fn(&u32) -> u64, mut at: u64) -> u32 {
    for place in followed {
        let width = extra(place);
        if at < width {
            return *place;
        }
        at -= width;
    }
    unreachable!("a lot lies within the sum of its widths")
}
