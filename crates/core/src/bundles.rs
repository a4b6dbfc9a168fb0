//! How many streams one user or address holds over several gateways, each of which counts its own alone.
//!
//! Like the pharmacies of a town and a medicine of which nobody may have more than so much: a pharmacy names a customer to the
//! others only once it has sold him a fair part of it. Whoever has had the whole has had a part somewhere, so nobody is missed
//! who matters, and of all the others nobody says a word.
//!
//! A *bundle* is what one of them holds under one limit. A gateway tells the keeper of each that holds a [`part`] of its limit.
//! The keeper lets all gateways watch it: each says how much it holds of it, however little, and is told what the others hold.
//! A gateway takes one more as long as both together are below the limit.
//!
//! What it promises: when nothing has changed for two rounds of words, nobody takes one more of a bundle that is at its limit,
//! and nobody refuses one of a bundle that is below it. What came in between is not taken back. The awkward case is a limit that is not
//! above the number of gateways: one stream alone is never told (most users have one), so such a bundle may come to one for each
//! gateway and one more.

use std::collections::{BTreeMap, BTreeSet};

/// What is limited.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Limited {
    UserStreams,
    AddressStreams,
    /// Long-polls that wait.
    UserPolls,
    AddressPolls,
}

pub const LIMITED: [Limited; 4] =
    [Limited::UserStreams, Limited::AddressStreams, Limited::UserPolls, Limited::AddressPolls];

/// A bundle: under which limit, and a hash of whose it is, the same in all gateways.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Bundle {
    pub limited: Limited,
    pub key: u64,
}

/// What a gateway says of a bundle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Here {
    pub bundle: Bundle,
    /// 0: it says no more of it.
    pub n: u32,
    /// It is a part of the limit or more.
    pub many: bool,
}

/// What a gateway is told of a bundle that is watched: what all others hold. `None`: it is not watched any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct There {
    pub bundle: Bundle,
    pub n: Option<u32>,
}

/// Bundles that a gateway tells of: past it, another is counted by itself alone. 16 384 are 512 KiB.
pub const TOLD_MAX: usize = 16_384;

/// From how many on one of so many gateways tells of a bundle.
pub fn part(limit: u32, gateways: u32) -> u32 {
    limit.div_ceil(gateways.max(1)).max(2)
}

/// A gateway's end: what it said, and what is watched.
#[derive(Default, Debug)]
pub struct Gateway {
    said: BTreeMap<Bundle, (u32, bool)>,
    watched: BTreeSet<Bundle>,
}

impl Gateway {
    /// What there is to say. `many`: all bundles of which it holds a part of their limit; `n`: how much it holds of one.
    pub fn news(&mut self, many: &BTreeMap<Bundle, u32>, n: impl Fn(Bundle) -> u32) -> Vec<Here> {
        let watched = self.watched.iter().filter(|bundle| !many.contains_key(bundle));
        let few = watched.map(|bundle| (*bundle, n(*bundle))).filter(|(_, n)| *n > 0);
        let now: BTreeMap<Bundle, (u32, bool)> = many
            .iter()
            .map(|(bundle, n)| (*bundle, (*n, true)))
            .chain(few.map(|(bundle, n)| (bundle, (n, false))))
            .collect();
        let mut news = Vec::new();
        self.said.retain(|bundle, _| {
            let stays = now.contains_key(bundle);
            if !stays {
                news.push(Here { bundle: *bundle, n: 0, many: false });
            }
            stays
        });
        for (bundle, (n, many)) in now {
            let is_known = self.said.contains_key(&bundle);
            if self.said.get(&bundle) != Some(&(n, many)) && (is_known || self.said.len() < TOLD_MAX) {
                self.said.insert(bundle, (n, many));
                news.push(Here { bundle, n, many });
            }
        }
        news
    }

    pub fn hear(&mut self, there: There) {
        match there.n {
            Some(_) => self.watched.insert(there.bundle),
            None => self.watched.remove(&there.bundle),
        };
    }
}

/// What the keeper knows of one gateway.
#[derive(Default, Debug)]
pub struct Kept {
    says: BTreeMap<Bundle, (u32, bool)>,
    told: BTreeMap<Bundle, u32>,
}

impl Kept {
    pub fn hear(&mut self, here: Here) {
        match here.n {
            0 => drop(self.says.remove(&here.bundle)),
            n => drop(self.says.insert(here.bundle, (n, here.many))),
        }
    }

    /// It was told this.
    pub fn tell(&mut self, news: &[There]) {
        for there in news {
            match there.n {
                Some(n) => drop(self.told.insert(there.bundle, n)),
                None => drop(self.told.remove(&there.bundle)),
            }
        }
    }
}

/// What there is to tell each of the gateways.
pub fn news(gateways: &[&Kept]) -> Vec<Vec<There>> {
    let mut sums: BTreeMap<Bundle, (u32, bool)> = BTreeMap::new();
    for (bundle, (n, many)) in gateways.iter().flat_map(|kept| &kept.says) {
        let sum = sums.entry(*bundle).or_default();
        *sum = (sum.0.saturating_add(*n), sum.1 | many);
    }
    sums.retain(|_, (_, watched)| *watched);
    let of = |kept: &&Kept| {
        let over = kept.told.keys().filter(|bundle| !sums.contains_key(bundle));
        let over = over.map(|bundle| There { bundle: *bundle, n: None });
        let others = sums.iter().map(|(bundle, (sum, _))| {
            let own = kept.says.get(bundle).map_or(0, |(n, _)| *n);
            There { bundle: *bundle, n: Some(sum.saturating_sub(own)) }
        });
        over.chain(others.filter(|there| kept.told.get(&there.bundle).copied() != there.n)).collect()
    };
    gateways.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Bundle, Gateway, Here, Kept, Limited, TOLD_MAX, There, news, part};
    use crate::rng::Rng;

    fn bundle(key: u64) -> Bundle {
        Bundle { limited: Limited::UserStreams, key }
    }

    /// One gateway with what it holds and what it was told of the others.
    #[derive(Default)]
    struct One {
        gateway: Gateway,
        holds: BTreeMap<Bundle, u32>,
        elsewhere: BTreeMap<Bundle, u32>,
    }

    struct Town {
        limit: u32,
        each: Vec<One>,
        kept: Vec<Kept>,
    }

    impl Town {
        fn new(gateways: usize, limit: u32) -> Town {
            let each = (0..gateways).map(|_| One::default()).collect();
            Town { limit, each, kept: (0..gateways).map(|_| Kept::default()).collect() }
        }

        fn comes(&mut self, at: usize, of: Bundle) -> bool {
            let one = &mut self.each[at];
            let elsewhere = one.elsewhere.get(&of).copied().unwrap_or(0);
            let here = one.holds.entry(of).or_default();
            let fits = *here + elsewhere < self.limit;
            *here += u32::from(fits);
            fits
        }

        fn says(&mut self, at: usize) -> usize {
            let part = part(self.limit, self.each.len() as u32);
            let One { gateway, holds, .. } = &mut self.each[at];
            let many = holds.iter().filter(|(_, n)| **n >= part).map(|(bundle, n)| (*bundle, *n)).collect();
            let said = gateway.news(&many, |bundle| holds.get(&bundle).copied().unwrap_or(0));
            said.iter().for_each(|here| self.kept[at].hear(*here));
            said.len()
        }

        fn is_told(&mut self) -> usize {
            let news = news(&self.kept.iter().collect::<Vec<_>>());
            for ((one, kept), news) in self.each.iter_mut().zip(&mut self.kept).zip(&news) {
                kept.tell(news);
                for there in news {
                    one.gateway.hear(*there);
                    match there.n {
                        Some(n) => drop(one.elsewhere.insert(there.bundle, n)),
                        None => drop(one.elsewhere.remove(&there.bundle)),
                    }
                }
            }
            news.iter().map(Vec::len).sum()
        }

        /// Words until nobody has one.
        fn rest(&mut self) {
            let mut rounds = 0;
            while (0..self.each.len()).map(|at| self.says(at)).sum::<usize>() + self.is_told() > 0 {
                rounds += 1;
                assert!(rounds <= 3, "two rounds, and one in which nothing is new to the last");
            }
        }

        fn total(&self, of: Bundle) -> u32 {
            self.each.iter().map(|one| one.holds.get(&of).copied().unwrap_or(0)).sum()
        }
    }

    #[test]
    fn a_part_is_an_nth_rounded_up_and_no_stream_alone() {
        assert_eq!((part(16, 4), part(17, 4), part(64, 6), part(16, 1)), (4, 5, 11, 16));
        assert_eq!((part(2, 4), part(1, 8), part(9, 0)), (2, 2, 9));
    }

    #[test]
    fn whoever_comes_slowly_holds_exactly_the_limit_wherever_each_stream_is_let_in() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let gateways = 1 + rng.below(6) as usize;
            let limit = gateways as u32 + 1 + rng.below(20) as u32;
            let mut town = Town::new(gateways, limit);
            let mut inside = 0;
            for _ in 0..200 {
                inside += u32::from(town.comes(rng.below(gateways as u64) as usize, bundle(1)));
                town.rest();
            }
            assert_eq!((inside, town.total(bundle(1))), (limit, limit), "seed {seed}");
        }
    }

    #[test]
    fn where_the_limit_is_not_above_the_gateways_there_is_one_each_and_one_more_at_most() {
        for limit in 1..=4 {
            let mut town = Town::new(4, limit);
            for n in 0..40 {
                town.comes(n % 4, bundle(1));
                town.rest();
            }
            assert!((limit..=5).contains(&town.total(bundle(1))), "{limit}: {}", town.total(bundle(1)));
        }
    }

    #[test]
    fn at_rest_what_is_full_takes_nobody_and_what_is_not_refuses_nobody() {
        let (mut n_full, mut n_open) = (0, 0);
        for seed in 0..300 {
            let mut rng = Rng::new(seed);
            let gateways = 2 + rng.below(4) as usize;
            let limit = gateways as u32 + 1 + rng.below(9) as u32;
            let mut town = Town::new(gateways, limit);
            for _ in 0..40 {
                for _ in 0..rng.below(30) {
                    let (at, of) = (rng.below(gateways as u64) as usize, bundle(rng.below(3)));
                    if rng.below(3) > 0 {
                        town.comes(at, of);
                    } else if let Some(n) = town.each[at].holds.get_mut(&of) {
                        *n = n.saturating_sub(1);
                    }
                    if rng.below(4) == 0 {
                        town.says(at);
                    }
                    if rng.below(6) == 0 {
                        town.is_told();
                    }
                }
                // One of them dies with all that it holds and comes back.
                if rng.below(8) == 0 {
                    let at = rng.below(gateways as u64) as usize;
                    (town.each[at], town.kept[at]) = (One::default(), Kept::default());
                }
                town.rest();
                for of in (0..3).map(bundle) {
                    let is_full = town.total(of) >= limit;
                    for at in 0..gateways {
                        let fits = town.comes(at, of);
                        assert_eq!(fits, !is_full, "seed {seed}: {} of {limit}", town.total(of));
                        if fits {
                            *town.each[at].holds.get_mut(&of).unwrap() -= 1;
                        }
                    }
                    n_full += u32::from(is_full);
                    n_open += u32::from(!is_full);
                }
            }
        }
        assert!(n_full > 1_000 && n_open > 1_000, "{n_full} full, {n_open} not: this shows little");
    }

    #[test]
    fn of_those_with_a_stream_or_two_nobody_says_a_word_and_what_is_over_is_forgotten() {
        let mut town = Town::new(4, 16);
        for key in 0..500 {
            (0..3).for_each(|_| assert!(town.comes(key as usize % 4, bundle(key))));
        }
        town.rest();
        assert!(town.kept.iter().all(|kept| kept.says.is_empty() && kept.told.is_empty()));
        town.comes(0, bundle(0));
        assert!(town.comes(1, bundle(0)));
        town.rest();
        assert_eq!(town.each[1].elsewhere, BTreeMap::from([(bundle(0), 4)]));
        town.each[0].holds.clear();
        town.rest();
        assert!(town.kept.iter().all(|kept| kept.says.is_empty() && kept.told.is_empty()));
        assert!(town.each.iter().all(|one| one.elsewhere.is_empty() && one.gateway.watched.is_empty()));
    }

    #[test]
    fn a_gateway_tells_of_so_many_and_of_no_more() {
        let mut gateway = Gateway::default();
        let many: BTreeMap<Bundle, u32> = (0..TOLD_MAX as u64 + 9).map(|key| (bundle(key), 5)).collect();
        assert_eq!(gateway.news(&many, |_| 0).len(), TOLD_MAX);
        assert_eq!(gateway.news(&many, |_| 0), []);
        let fewer: BTreeMap<Bundle, u32> = many.into_iter().skip(1).collect();
        let news = gateway.news(&fewer, |_| 0);
        assert_eq!(news[0], Here { bundle: bundle(0), n: 0, many: false });
        assert_eq!(news[1..], [Here { bundle: bundle(TOLD_MAX as u64), n: 5, many: true }]);
        gateway.hear(There { bundle: bundle(0), n: Some(3) });
        assert_eq!(gateway.news(&fewer, |_| 1), [], "there is no place to tell of it");
    }
}
