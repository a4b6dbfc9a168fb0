//! What a process gives up as its memory runs short, so that the kernel never has to end it.
//!
//! Like a boat that takes water: first the ballast goes over board, then nobody else is let on. Comments go first, because a room
//! can do with fewer of them; then new viewers and new comments are turned away. Scores and gifts go on, and nobody who is
//! here is sent away: an ending would make them all come back at once.
//!
//! What is used may jump up and down with each look, so a mark that was crossed is left only well below it, and only after some
//! calm. A look that came to nothing (a file that cannot be read) is no sign of calm and none of danger.
//!
//! Numbers: 80 % and 90 % of the limit, left at 75 % and 85 % for five seconds. The last tenth is for what is under way.

use std::time::Duration;

use crate::time::Mono;

/// Thousandths of the limit at which each level begins, and below which it ends.
const MARKS: [(Level, u64, u64); 2] = [(Level::Sheds, 800, 750), (Level::Refuses, 900, 850)];
const CALM: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum Level {
    #[default]
    Calm,
    /// Viewers are given fewer comments, and less of what was is kept.
    Sheds,
    /// And new streams and comments are refused.
    Refuses,
}

/// One thing that is limited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Use {
    pub bytes: u64,
    pub limit: u64,
}

impl Use {
    pub fn permille(self) -> u64 {
        u64::try_from(u128::from(self.bytes) * 1_000 / u128::from(self.limit.max(1))).unwrap_or(u64::MAX)
    }
}

#[derive(Clone, Copy, Default, Debug)]
pub struct Pressure {
    level: Level,
    /// Since when what is used asks for less than the level.
    calm: Option<Mono>,
}

impl Pressure {
    pub fn level(&self) -> Level {
        self.level
    }

    /// What is used now; of several limits the nearest counts. Nothing is known without one.
    pub fn look(&mut self, used: &[Use], now: Mono) -> Level {
        let Some(permille) = used.iter().map(|used| used.permille()).max() else { return self.level };
        let asks = |mark: fn(&(Level, u64, u64)) -> u64| {
            let reached = MARKS.iter().filter(|marks| permille >= mark(marks)).map(|marks| marks.0);
            reached.max().unwrap_or(Level::Calm)
        };
        let (rises_to, falls_to) = (asks(|marks| marks.1), asks(|marks| marks.2));
        if rises_to > self.level {
            *self = Pressure { level: rises_to, calm: None };
        } else if falls_to < self.level {
            let calm = *self.calm.get_or_insert(now);
            if now.since(calm) >= CALM {
                *self = Pressure { level: falls_to, calm: None };
            }
        } else {
            self.calm = None;
        }
        self.level
    }
}

#[cfg(test)]
mod tests {
    use super::{Level, Pressure, Use};
    use crate::time::Mono;

    fn s(n: u64) -> Mono {
        Mono(n * 1_000_000)
    }
    fn at(permille: u64) -> [Use; 1] {
        [Use { bytes: permille << 20, limit: 1_000 << 20 }]
    }

    #[test]
    fn comments_go_at_four_fifths_and_nobody_comes_in_at_nine_tenths_at_once() {
        let mut pressure = Pressure::default();
        let levels = [799, 800, 899, 900, 2_000].map(|permille| pressure.look(&at(permille), s(1)));
        assert_eq!(levels, [Level::Calm, Level::Sheds, Level::Sheds, Level::Refuses, Level::Refuses]);
        assert_eq!(Pressure::default().look(&at(950), s(1)), Level::Refuses, "both marks at once");
    }

    #[test]
    fn a_level_is_left_well_below_its_mark_and_after_five_calm_seconds() {
        let mut pressure = Pressure::default();
        pressure.look(&at(900), s(0));
        for second in 1..100 {
            assert_eq!(pressure.look(&at(851), s(second)), Level::Refuses, "not well below");
        }
        for second in 100..=120 {
            let calm = second % 4 != 0;
            assert_eq!(pressure.look(&at(if calm { 700 } else { 870 }), s(second)), Level::Refuses, "not calm");
        }
        let levels: Vec<_> = (121..134).map(|second| pressure.look(&at(800), s(second))).collect();
        assert_eq!(levels[..5], [Level::Refuses; 5]);
        assert_eq!(levels[5..], [Level::Sheds; 8]);
        let levels: Vec<_> = (140..147).map(|second| pressure.look(&at(100), s(second))).collect();
        assert_eq!((levels[4], levels[5]), (Level::Sheds, Level::Calm));
    }

    #[test]
    fn the_nearest_of_several_limits_counts_and_none_changes_nothing() {
        let mut pressure = Pressure::default();
        let far = Use { bytes: 1, limit: u64::MAX };
        assert_eq!(pressure.look(&[far, at(850)[0]], s(0)), Level::Sheds);
        assert_eq!(pressure.look(&[], s(100)), Level::Sheds);
        assert_eq!(Pressure::default().look(&[], s(0)), Level::Calm);
        assert_eq!(Use { bytes: u64::MAX, limit: 0 }.permille(), u64::MAX);
    }
}
