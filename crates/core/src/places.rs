//! Which of several gateways on one port leaves it to the others, because it is full.
//!
//! Like car parks that share a road and a signpost: one that fills up asks to be taken off the sign, and is, while another
//! still has places. When the last one fills, all are on it again: whoever comes must at least be told so, and being told is
//! spread over all of them.
//!
//! It must never be that all are off the sign. So a gateway leaves only when it was told to after it said that it is full, and
//! one that was told to stay never left: the keeper of the sign hears of them one after the other. The awkward case is a
//! gateway that fills, gets room and fills again while an older word of the keeper is still on its way: words are numbered, and
//! only an answer to the last one counts.
//!
//! Full is: no place of one kind is left. It ends below 95 %, so that the port is not left and taken again with each viewer.

/// Places of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken {
    pub n: u64,
    pub most: u64,
}

impl Taken {
    fn is_full(self, was_full: bool) -> bool {
        match was_full {
            true => self.n >= self.most || self.n.saturating_mul(100) >= self.most.saturating_mul(95),
            false => self.n >= self.most,
        }
    }
}

/// What a gateway says of itself. The first is that it has places.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Word {
    pub number: u32,
    pub full: bool,
}

/// What it is answered.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Answer {
    /// The last word that was heard.
    pub number: u32,
    pub leaves: bool,
}

/// A gateway's own knowledge of its places.
#[derive(Clone, Copy, Default, Debug)]
pub struct Places {
    word: Word,
    leaves: bool,
}

impl Places {
    /// Whether [`Places::look`] would have something to say.
    pub fn changes(was_full: bool, taken: &[Taken]) -> bool {
        taken.iter().any(|taken| taken.is_full(was_full)) != was_full
    }

    /// So many are taken now. `Some`: what the keeper is told.
    pub fn look(&mut self, taken: &[Taken]) -> Option<Word> {
        if !Places::changes(self.word.full, taken) {
            return None;
        }
        self.word = Word { number: self.word.number.wrapping_add(1), full: !self.word.full };
        self.leaves = false;
        Some(self.word)
    }

    /// The last word.
    pub fn word(&self) -> Word {
        self.word
    }

    pub fn hear(&mut self, answer: Answer) {
        self.leaves = answer.leaves && answer.number == self.word.number;
    }

    /// Nobody can be asked now.
    pub fn lost(&mut self) {
        self.leaves = false;
    }

    /// Whether the port is left to the others.
    pub fn leaves(&self) -> bool {
        self.leaves
    }
}

/// What each of the gateways is answered. `takes`: it takes streams at all; an operator may have said that it does not.
pub fn answers(gateways: &[(Word, bool)]) -> Vec<Answer> {
    let has_places = gateways.iter().any(|(word, takes)| !word.full && *takes);
    gateways.iter().map(|(word, _)| Answer { number: word.number, leaves: word.full && has_places }).collect()
}

/// A gateway's part of so many places, which together are exactly those.
pub fn part(most: u32, of: u32, number: u32) -> u32 {
    let of = of.max(1);
    most / of + u32::from(number < most % of)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::{Answer, Places, Taken, Word, answers, part};
    use crate::rng::Rng;

    #[test]
    fn parts_are_the_whole_whatever_it_is() {
        for (most, of) in [(1, 4), (7, 2), (8, 4), (100_003, 6), (u32::MAX, 16), (0, 3)] {
            let parts: Vec<u32> = (0..of).map(|number| part(most, of, number)).collect();
            assert_eq!(parts.iter().map(|n| u64::from(*n)).sum::<u64>(), u64::from(most));
            assert!(parts.iter().max().unwrap() - parts.iter().min().unwrap() <= 1);
        }
    }

    #[test]
    fn full_is_the_last_place_of_any_kind_and_ends_below_95_percent_of_each() {
        let mut places = Places::default();
        let streams = |n| [Taken { n, most: 100 }, Taken { n: n + 5, most: 1_000 }];
        assert_eq!(places.look(&streams(99)), None);
        assert_eq!(places.look(&streams(100)), Some(Word { number: 1, full: true }));
        assert_eq!(places.look(&streams(95)), None);
        assert_eq!(places.look(&streams(94)), Some(Word { number: 2, full: false }));
        let sockets = |n| [Taken { n: 0, most: 100 }, Taken { n, most: 10 }];
        assert_eq!(places.look(&sockets(10)).map(|word| word.full), Some(true));
        assert_eq!(places.look(&sockets(9)).map(|word| word.full), Some(false));
        // Nobody has a place where there is none, and it does not get one.
        let none = [Taken { n: 0, most: 0 }];
        assert_eq!(places.look(&none).map(|word| word.full), Some(true));
        assert_eq!(places.look(&none), None);
    }

    #[test]
    fn an_answer_to_an_older_word_does_not_count() {
        let mut places = Places::default();
        let at = |n| [Taken { n, most: 2 }];
        let first = places.look(&at(2)).unwrap();
        let late = Answer { number: first.number, leaves: true };
        places.hear(late);
        assert!(places.leaves());
        places.look(&at(1)).unwrap();
        assert!(!places.leaves());
        places.look(&at(2)).unwrap();
        places.hear(late);
        assert!(!places.leaves());
    }

    #[test]
    fn who_is_told_to_take_nobody_has_no_places_for_others() {
        let full = |full| Word { number: 1, full };
        let leaves = |gateways: &[(Word, bool)]| answers(gateways).iter().map(|a| a.leaves).collect::<Vec<_>>();
        assert_eq!(leaves(&[(full(true), true), (full(false), true)]), [true, false]);
        assert_eq!(leaves(&[(full(true), true), (full(false), false)]), [false, false]);
        assert_eq!(leaves(&[(full(true), true), (full(true), true)]), [false, false]);
    }

    /// Gateways and the keeper, with words that take their time. Whoever comes meets one of those on the port.
    #[test]
    fn somebody_is_always_on_the_port_and_at_rest_it_is_whoever_has_places_or_everyone() {
        let mut n_left = 0;
        for seed in 0..300 {
            let mut rng = Rng::new(seed);
            let n = 2 + rng.below(4) as usize;
            let most = rng.below(6);
            let mut gateways = vec![(Places::default(), 0_u64); n];
            let mut known = vec![(Word::default(), true); n];
            let mut up: Vec<VecDeque<Word>> = vec![VecDeque::new(); n];
            let mut down: Vec<VecDeque<Answer>> = vec![VecDeque::new(); n];
            let hears = |at: usize, word, known: &mut Vec<(Word, bool)>, down: &mut Vec<VecDeque<Answer>>| {
                known[at].0 = word;
                for (answer, to) in answers(known).into_iter().zip(down) {
                    to.push_back(answer);
                }
            };
            for _ in 0..400 {
                let at = rng.below(n as u64) as usize;
                match rng.below(5) {
                    // Somebody comes, to whoever is on the port; or tries one that is.
                    0 | 1 if !gateways[at].0.leaves() && gateways[at].1 < most => gateways[at].1 += 1,
                    2 if gateways[at].1 > 0 => gateways[at].1 -= 1,
                    3 => {
                        if let Some(word) = up[at].pop_front() {
                            hears(at, word, &mut known, &mut down);
                        }
                    }
                    4 => {
                        if let Some(answer) = down[at].pop_front() {
                            gateways[at].0.hear(answer);
                        }
                    }
                    _ => {}
                }
                let (places, n) = &mut gateways[at];
                up[at].extend(places.look(&[Taken { n: *n, most }]));
                let left = gateways.iter().filter(|(places, _)| places.leaves()).count();
                n_left += left;
                assert!(left < gateways.len(), "seed {seed}: nobody is on the port");
            }
            while let Some(at) = (0..n).find(|at| !up[*at].is_empty()) {
                let word = up[at].pop_front().unwrap();
                hears(at, word, &mut known, &mut down);
            }
            for (at, answers) in down.iter_mut().enumerate() {
                answers.drain(..).for_each(|answer| gateways[at].0.hear(answer));
            }
            let any = gateways.iter().any(|(places, _)| !places.word().full);
            for (places, _) in &gateways {
                assert_eq!(places.leaves(), places.word().full && any, "seed {seed}");
            }
        }
        assert!(n_left > 1_000, "hardly anybody left the port: this shows nothing");
    }
}
