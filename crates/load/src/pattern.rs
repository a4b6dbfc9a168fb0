//! When whom says what: the arrivals of a scenario, drawn from a seed, before anything is sent.
//!
//! An envelope over time (a base rate, and a moment that multiplies it within seconds and fades), people's comments under it in
//! clumps, as real ones come, and texts that are mostly somebody else's. The same pattern and seed give the same list.
//!
//! Shapes and shares: real chats of 2 to 16 comments a second, in which a moment is 2 to 10 times the median, arrivals come in
//! clumps of 2 to 3 seconds, 50 to 70 % of texts repeat another, and one writer in a hundred writes a tenth.

use grandstand_core::rng::Rng;
use serde::{Deserialize, Serialize};

/// A moment everyone talks about.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Moment {
    /// Seconds after the beginning.
    pub at: f64,
    /// Of the base rate, at the top.
    pub times: f64,
    /// Seconds from the first to the top.
    pub onset: f64,
    /// Seconds until half of what it added is left.
    pub half_life: f64,
}

impl Moment {
    /// How much of it is felt at this time: 0 to 1.
    fn felt(&self, at: f64) -> f64 {
        let since = at - self.at;
        if since <= 0.0 {
            0.0
        } else if since < self.onset {
            since / self.onset
        } else {
            0.5_f64.powf((since - self.onset) / self.half_life)
        }
    }
}

/// How comments lie under their rate.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub enum Arrivals {
    /// Alike in time.
    Even,
    /// So many at one moment.
    Bursts(u32),
    /// All of two to three seconds within a fifth of them.
    Clumps,
}

#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Pattern {
    /// Comments a second over all rooms, without the moment.
    pub rate: f64,
    pub moment: Option<Moment>,
    pub arrivals: Arrivals,
    /// The share of texts that are one of the crowd's phrases.
    pub repeats: f64,
    /// The share of comments that goes where viewers are, a room by its viewers; the rest goes to all rooms alike.
    pub follow: f64,
    /// Who writes: a hundredth of them writes a tenth of all.
    pub writers: u32,
    pub body_bytes: u32,
}

/// One comment to come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Due {
    /// Microseconds after the beginning.
    pub at_us: u64,
    pub room: u32,
    pub writer: u32,
    /// One of [`PHRASES`]; a text of its own where there is none.
    pub phrase: Option<u16>,
}

/// What a crowd says, most said first: Zipf's law over these, so that the first is some 22 % of repeats.
pub const PHRASES: [&str; 50] = [
    "GOOOOAL",
    "lol",
    "what a goal",
    "no way",
    "unreal",
    "VAMOS",
    "offside??",
    "W",
    "hahaha",
    "let's go",
    "草",
    "gg",
    "what",
    "ref!!!",
    "penalty",
    "omg",
    "nooo",
    "how",
    "come on",
    "he's back",
    "siuuu",
    "ヤバい",
    "ㅋㅋㅋㅋ",
    "clap clap",
    "💀",
    "🔥🔥🔥",
    "😂😂😂",
    "L",
    "bro",
    "insane",
    "again!",
    "var please",
    "yes yes yes",
    "what a pass",
    "he missed",
    "wow",
    "finally",
    "never a foul",
    "corner",
    "save of the year",
    "nah",
    "ez",
    "rip",
    "sub him",
    "time to go",
    "extra time",
    "golaço",
    "allez",
    "tor tor tor",
    "88888888",
];

impl Pattern {
    /// Comments a second at this time.
    pub fn rate_at(&self, at: f64) -> f64 {
        self.rate * self.moment.map_or(1.0, |m| 1.0 + (m.times - 1.0) * m.felt(at))
    }

    /// All comments of so many seconds, by time. `viewers_of` has the viewers of each room; it is not empty.
    pub fn draw(&self, seconds: f64, viewers_of: &[u32], seed: u64) -> Vec<Due> {
        let mut rng = Rng::new(seed);
        let zipf = cumulated((1..=PHRASES.len()).map(|n| 1.0 / n as f64));
        let crowd = cumulated(viewers_of.iter().map(|n| f64::from(*n)));
        let mut times = self.times(seconds);
        self.gather(&mut times, seconds, &mut rng);
        let mut all = Vec::with_capacity(times.len());
        for at in times {
            let follows = chance(&mut rng) < self.follow && crowd.last().is_some_and(|sum| *sum > 0.0);
            let room = match follows {
                true => drawn(&crowd, &mut rng),
                false => rng.below(viewers_of.len() as u64) as u32,
            };
            let loud = (self.writers / 100).max(1);
            let writer = match chance(&mut rng) < 0.1 {
                true => rng.below(u64::from(loud)) as u32,
                false => rng.below(u64::from(self.writers.max(1))) as u32,
            };
            let phrase = (chance(&mut rng) < self.repeats).then(|| drawn(&zipf, &mut rng) as u16);
            all.push(Due { at_us: (at * 1e6) as u64, room, writer, phrase });
        }
        all
    }

    /// Where the envelope's area passes a whole number.
    fn times(&self, seconds: f64) -> Vec<f64> {
        // Finer than any room's window.
        const STEP: f64 = 0.005;
        let mut times = Vec::new();
        let mut area = 0.0;
        for n in 0..(seconds / STEP) as u64 {
            let at = n as f64 * STEP;
            let more = self.rate_at(at) * STEP;
            let first = area as u64 + 1;
            let last = (area + more) as u64;
            times.extend((first..=last).map(|whole| at + (whole as f64 - area) / more * STEP));
            area += more;
        }
        times
    }

    fn gather(&self, times: &mut [f64], seconds: f64, rng: &mut Rng) {
        match self.arrivals {
            Arrivals::Even => {}
            Arrivals::Bursts(n) => {
                for burst in times.chunks_mut(n.max(1) as usize) {
                    let at = burst[0];
                    burst.fill(at);
                }
            }
            Arrivals::Clumps => {
                let (mut begin, mut end) = (0.0, 0.0);
                for at in times.iter_mut() {
                    while *at >= end {
                        begin = end;
                        end = begin + 2.0 + chance(rng);
                    }
                    *at = (begin + (*at - begin) / 5.0).min(seconds);
                }
            }
        }
    }
}

/// 0 to 1.
fn chance(rng: &mut Rng) -> f64 {
    (rng.next() >> 11) as f64 / (1_u64 << 53) as f64
}

fn cumulated(weights: impl Iterator<Item = f64>) -> Vec<f64> {
    weights
        .scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        })
        .collect()
}

/// The place that a draw over the cumulated weights falls into.
fn drawn(cumulated: &[f64], rng: &mut Rng) -> u32 {
    let at = chance(rng) * cumulated.last().copied().unwrap_or(0.0);
    cumulated.partition_point(|sum| *sum <= at).min(cumulated.len() - 1) as u32
}

/// Viewers of each room: the first has most, the n-th an n-th of it, none more than `most`, `viewers` in all.
pub fn long_tail(rooms: u32, viewers: u32, most: u32) -> Vec<u32> {
    let sum = |top: u32| (1..=u64::from(rooms)).map(|n| (u64::from(top) / n).min(u64::from(most))).sum::<u64>();
    // The largest first room that does not need more viewers than there are.
    let (mut low, mut high) = (0, viewers);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if sum(middle) <= u64::from(viewers) { low = middle } else { high = middle - 1 }
    }
    let mut of: Vec<u32> = (1..=rooms).map(|n| (low / n).min(most)).collect();
    let mut left = viewers - of.iter().sum::<u32>();
    // Who is left over is one more in rooms that have room, from the first empty one on.
    let empty = of.iter().position(|n| *n == 0).unwrap_or(0);
    for n in (0..of.len()).map(|n| (n + empty) % rooms as usize).cycle().take(of.len() * (most as usize + 1)) {
        if left == 0 {
            break;
        }
        if of[n] < most {
            of[n] += 1;
            left -= 1;
        }
    }
    of
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use super::{Arrivals, Due, Moment, PHRASES, Pattern, long_tail};

    const CALM: Pattern = Pattern {
        rate: 10.0,
        moment: None,
        arrivals: Arrivals::Even,
        repeats: 0.0,
        follow: 0.0,
        writers: 1_000,
        body_bytes: 60,
    };

    fn counted(all: &[Due], from: f64, to: f64) -> usize {
        all.iter().filter(|d| (from..to).contains(&(d.at_us as f64 / 1e6))).count()
    }

    #[test]
    fn an_even_rate_is_its_rate_in_every_second() {
        let all = CALM.draw(20.0, &[5], 1);
        assert!((199..=200).contains(&all.len()), "{}", all.len());
        for second in 1..19 {
            let n = counted(&all, f64::from(second), f64::from(second + 1));
            assert!((9..=11).contains(&n), "{n} in second {second}");
        }
    }

    #[test]
    fn a_goal_is_ten_times_the_rate_within_three_seconds_and_fades() {
        let moment = Some(Moment { at: 20.0, times: 10.0, onset: 3.0, half_life: 15.0 });
        let all = Pattern { moment, ..CALM }.draw(80.0, &[5], 1);
        // A comment on the border may fall on either side of it.
        let before = counted(&all, 10.0, 20.0);
        assert!((99..=101).contains(&before), "{before} in ten seconds before");
        let top = counted(&all, 23.0, 25.0);
        assert!((190..=205).contains(&top), "{top} in two seconds at the top");
        let later = counted(&all, 38.0, 39.0);
        assert!((50..=56).contains(&later), "{later} a half-life later");
    }

    #[test]
    fn clumps_leave_nothing_out_and_are_followed_by_silence() {
        let all = Pattern { rate: 100.0, arrivals: Arrivals::Clumps, ..CALM }.draw(60.0, &[5], 1);
        assert!((5_999..=6_000).contains(&all.len()), "{}", all.len());
        assert!(all.is_sorted_by_key(|d| d.at_us));
        let silent = all.windows(2).filter(|two| two[1].at_us - two[0].at_us > 1_500_000).count();
        assert!((20..=30).contains(&silent), "{silent} silences in a minute");
    }

    #[test]
    fn a_burst_is_one_moment() {
        let all = Pattern { rate: 50.0, arrivals: Arrivals::Bursts(25), ..CALM }.draw(10.0, &[5], 1);
        let mut at: BTreeMap<u64, usize> = BTreeMap::new();
        all.iter().for_each(|d| *at.entry(d.at_us).or_default() += 1);
        assert_eq!(at.len(), 20);
        assert!(at.values().rev().skip(1).all(|n| *n == 25), "{at:?}");
    }

    #[test]
    fn repeats_are_as_many_as_asked_and_the_first_phrase_leads() {
        let all = Pattern { rate: 1_000.0, repeats: 0.6, ..CALM }.draw(20.0, &[5], 1);
        let phrases: Vec<u16> = all.iter().filter_map(|d| d.phrase).collect();
        let share = phrases.len() as f64 / all.len() as f64;
        assert!((0.58..0.62).contains(&share), "{share}");
        let first = phrases.iter().filter(|p| **p == 0).count() as f64 / phrases.len() as f64;
        assert!((0.19..0.26).contains(&first), "{first}");
        assert!(phrases.iter().all(|p| usize::from(*p) < PHRASES.len()));
    }

    #[test]
    fn a_hundredth_of_the_writers_writes_a_tenth() {
        let all = Pattern { rate: 1_000.0, ..CALM }.draw(20.0, &[5], 1);
        let loud = all.iter().filter(|d| d.writer < 10).count() as f64 / all.len() as f64;
        assert!((0.09..0.13).contains(&loud), "{loud}");
    }

    #[test]
    fn comments_follow_viewers_where_they_are_told_to() {
        let rooms = [900, 100, 0, 0];
        let all = Pattern { rate: 1_000.0, follow: 1.0, ..CALM }.draw(20.0, &rooms, 1);
        let mut of: HashMap<u32, usize> = HashMap::new();
        all.iter().for_each(|d| *of.entry(d.room).or_default() += 1);
        assert!(of[&0] > 8 * of[&1] && !of.contains_key(&2), "{of:?}");
        let alike = Pattern { rate: 1_000.0, ..CALM }.draw(20.0, &rooms, 1);
        assert_eq!(alike.iter().map(|d| d.room).collect::<std::collections::BTreeSet<_>>().len(), 4);
    }

    #[test]
    fn the_same_seed_gives_the_same_list() {
        let pattern = Pattern { arrivals: Arrivals::Clumps, repeats: 0.5, ..CALM };
        assert_eq!(pattern.draw(10.0, &[1, 2], 7), pattern.draw(10.0, &[1, 2], 7));
        assert_ne!(pattern.draw(10.0, &[1, 2], 7), pattern.draw(10.0, &[1, 2], 8));
    }

    #[test]
    fn a_long_tail_has_all_its_viewers_and_most_rooms_have_none() {
        for (rooms, viewers, most) in [(50_000, 15_000, 2_000), (5_000, 1_500, 200), (10, 100, 2_000), (3, 6, 2)] {
            let of = long_tail(rooms, viewers, most);
            assert_eq!((of.len(), of.iter().sum::<u32>()), (rooms as usize, viewers));
            assert!(of.iter().all(|n| *n <= most), "{rooms} {viewers} {most}");
        }
        let of = long_tail(50_000, 15_000, 2_000);
        assert!(of[0] > 1_500 && of.iter().filter(|n| **n == 0).count() > 40_000, "{}", of[0]);
    }
}
