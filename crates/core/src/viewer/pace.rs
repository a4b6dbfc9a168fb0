//! How often a room's latest values are told, and how long they wait to travel with events.
//!
//! A notice that is handed in with the next post: only when no post goes out for a while is somebody sent with it alone. In
//! a larger room each such errand costs more, so there are fewer of them and they wait longer.
//!
//! The awkward case is a room at the edge of two sizes, as for the merge window: the pace slows at the edge and quickens
//! only when a room a quarter larger would have the quicker one too.
//!
//! Numbers: the number of viewers every 1 s to 1 000 viewers, 2 s to 10 000, 5 s above; alone after 100 ms, 250 ms, 1 s
//! (docs/decisions/0005-numbers.md).

use std::time::Duration;

/// Largest number of viewers, time between two tellings, and how long one waits for a frame to ride in; the last is for
/// rooms of any size.
const SIZES: [(u64, Duration, Duration); 3] = [
    (1_000, Duration::from_secs(1), Duration::from_millis(100)),
    (10_000, Duration::from_secs(2), Duration::from_millis(250)),
    (u64::MAX, Duration::from_secs(5), Duration::from_secs(1)),
];

/// The pace of one room's latest values.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Pace {
    /// Index into `SIZES`.
    size: u8,
}

impl Pace {
    /// The room has this many viewers.
    pub fn set_viewers(&mut self, viewers: u64) {
        let size_at = |n: u64| SIZES.iter().position(|(most, ..)| n <= *most).unwrap_or(SIZES.len() - 1) as u8;
        let if_larger = size_at(viewers.saturating_add(viewers / 4));
        self.size = self.size.clamp(size_at(viewers), if_larger);
    }

    /// Values are told at most so often.
    pub fn every(self) -> Duration {
        SIZES[usize::from(self.size)].1
    }

    /// A value that no frame of events took along goes alone after this.
    pub fn alone_after(self) -> Duration {
        SIZES[usize::from(self.size)].2
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop_assert, proptest};

    use super::Pace;

    #[test]
    fn the_pace_follows_the_size_with_slack_on_the_way_down() {
        let mut pace = Pace::default();
        let mut at = |n| {
            pace.set_viewers(n);
            (pace.every().as_secs(), pace.alone_after().as_millis() as u64)
        };
        let (quick, middle, slow) = ((1, 100), (2, 250), (5, 1_000));
        let sizes = [1_000, 1_001, 999, 801, 800, 10_000, 10_001, 9_999, 8_001, 8_000, 3, u64::MAX, 0];
        let paces = [quick, middle, middle, middle, quick, middle, slow, slow, slow, middle, quick, slow, quick];
        assert_eq!(sizes.map(&mut at), paces);
    }

    proptest! {
        #[test]
        fn a_room_that_hovers_at_an_edge_changes_its_pace_once(edge in 0usize..2, hover in proptest::collection::vec(0u64..=10, 2..50)) {
            let edge = [1_000u64, 10_000][edge];
            let mut pace = Pace::default();
            pace.set_viewers(edge + 1);
            let first = pace;
            for percent in hover {
                // Ten percent below the edge to the edge itself.
                pace.set_viewers(edge - edge * percent / 100 + 1);
                prop_assert!(pace == first, "{pace:?}");
            }
        }
    }
}
