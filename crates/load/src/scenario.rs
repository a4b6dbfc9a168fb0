//! Evenings with a name: who comes, who says what, and what the server has promised for it.
//!
//! A scenario is a row of [`table`] and nothing else; one engine runs them all. Its promises ([`promise`]) are held against what the
//! viewers saw, beside the checks of every run (order, numbers without a hole, nothing lost without a word). What one viewer can
//! judge by itself, order, numbers, protocol, and of a sampled room its cap and its silence, it judges with each event, and the
//! first breach ends the evening. A promise of which nothing was measured is broken, not kept.
//!
//! At a scale below 1 there are fewer viewers and rooms, slower rates and shorter times. Then what is a matter of time is told and not
//! judged: a tenth shows that it runs, and a busy machine is no proof.
//!
//! What a server has not built it refuses by name, and the run with it: nothing here is passed over.

use anyhow::{Result, bail, ensure};
use serde::Serialize;

use crate::pattern::{Moment, Pattern, long_tail};
use crate::report::Report;
use crate::run::{Late, Settings, Transport};
use promise::{Judged, Promise, Verdict};
use table::SCENARIOS;

mod promise;
mod table;

#[derive(Clone, Copy, Debug)]
enum Audience {
    /// Each room as many.
    Even,
    /// The first room most, the n-th an n-th of it, most rooms nobody; none more than this.
    LongTail(u32),
}

#[derive(Clone, Copy, Debug)]
enum By {
    /// WebSocket connections that publish, at least one a room.
    Streams(u32),
    /// HTTP connections that post to any room.
    Posts(u32),
}

#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    pub name: &'static str,
    /// Who comes and what happens, in a sentence.
    pub about: &'static str,
    rooms: u32,
    audience: Audience,
    viewers: u32,
    /// So many of the viewers come later: from when on, and within how long.
    raid: Option<(u32, f64, f64)>,
    transport: Transport,
    comments: Pattern,
    by: By,
    /// Score events a second over all rooms, by so many connections.
    scores: (f64, u32),
    /// Gifts a second over all rooms; every second one comes by two roads.
    gifts: f64,
    /// Likes a second over all rooms, and the users who give them.
    likes: (f64, u32),
    /// Banners a second, and how many seconds later than everything else they begin.
    banners: (f64, f64),
    /// The rooms' setting `sampling`; the server's default where there is none.
    sampling: Option<&'static str>,
    seconds: f64,
    promises: &'static [Promise],
}

/// Errors: there is none of that name.
pub fn find(name: &str) -> Result<&'static Scenario> {
    let known = || SCENARIOS.iter().map(|s| s.name).collect::<Vec<_>>().join(", ");
    match SCENARIOS.iter().find(|s| s.name == name) {
        Some(scenario) => Ok(scenario),
        None => bail!("no scenario is called {name}; there are {}", known()),
    }
}

/// A rate at or below it costs little and stays as it is at any scale.
const RATE_KEPT: f64 = 100.0;
/// The share of its times that a scaled scenario keeps at least.
const TIMES_KEPT: f64 = 0.15;

fn share(n: u32, scale: f64) -> u32 {
    ((f64::from(n) * scale).round() as u32).max(1)
}

fn rate(full: f64, scale: f64) -> f64 {
    if full <= RATE_KEPT { full } else { (full * scale).max(RATE_KEPT) }
}

impl Scenario {
    /// The settings of a run and its number of rooms. `base` has the server and what is to be measured of it.
    ///
    /// Errors: the scale is not above 0 and at most 1, or a promise is about a process that was not named.
    pub fn settings(&self, base: Settings, scale: f64) -> Result<(Settings, u32)> {
        ensure!(scale > 0.0 && scale <= 1.0, "--scale is more than 0 and at most 1");
        let promises = |is: fn(&Promise) -> bool| self.promises.iter().any(is);
        let about_memory = promises(|p| matches!(p, Promise::IdleRoom(_)));
        ensure!(
            !about_memory || !base.pids.is_empty(),
            "{} promises memory: name the server's process by --pid",
            self.name
        );
        let times = scale.max(TIMES_KEPT);
        let (rooms, viewers) = (share(self.rooms, scale), share(self.viewers, scale));
        let room_of = match self.audience {
            Audience::Even => Vec::new(),
            Audience::LongTail(most) => {
                let of = long_tail(rooms, viewers, share(most, scale));
                (0_u32..).zip(of).flat_map(|(room, n)| std::iter::repeat_n(room, n as usize)).collect()
            }
        };
        let late = self.raid.map(|(n, at, over)| {
            let late = share(n, scale).min(viewers);
            Late { viewers: late, first: viewers - late, at: at * times, over: over * times }
        });
        // How fast it comes is the moment's own nature; when it comes and how long it lasts is the evening's.
        let moment = self.comments.moment.map(|m| Moment { at: m.at * times, half_life: m.half_life * times, ..m });
        let (publishers, posters) = match self.by {
            By::Streams(n) => (n, 0),
            By::Posts(n) => (0, n),
        };
        // What is told of ten seconds can be held against them for a few.
        let least = if promises(|p| matches!(p, Promise::KeepTold(_))) { 17.0 } else { 6.0 };
        let settings = Settings {
            viewers,
            room_of,
            late,
            transport: self.transport,
            pattern: Some(Pattern { rate: rate(self.comments.rate, scale), moment, ..self.comments }),
            publishers,
            posters,
            score_rate: rate(self.scores.0, scale),
            gift_rate: rate(self.gifts, scale),
            like_rate: rate(self.likes.0, scale),
            banner_rate: self.banners.0,
            banners_from: self.banners.1 * times,
            sampling: self.sampling.map(str::to_owned),
            scorers: self.scores.1,
            ends_at_breach: true,
            seconds: (self.seconds * times).max(least),
            ..base
        };
        Ok((settings, rooms))
    }

    /// The users who like in it; each needs a token of its own.
    pub fn likers(&self, scale: f64) -> u32 {
        if self.likes.1 == 0 { 0 } else { share(self.likes.1, scale) }
    }

    /// Every promise held against what was seen.
    pub fn judged(&self, report: &Report, scale: f64) -> Vec<Judged> {
        let like_rate = rate(self.likes.0, scale);
        self.promises.iter().map(|promise| promise.judged(report, like_rate, scale < 1.0)).collect()
    }
}

/// A run's scenario and its promises.
#[derive(Clone, Debug, Serialize)]
pub struct Evening {
    pub scenario: &'static str,
    pub about: &'static str,
    pub scale: f64,
    pub promises: Vec<Judged>,
}

impl Evening {
    pub fn broken(&self) -> usize {
        self.promises.iter().filter(|p| p.verdict == Verdict::Broken).count()
    }

    /// For people, on stdout.
    pub fn print(&self) {
        println!("\nscenario {} at scale {}: {}", self.scenario, self.scale, self.about);
        for Judged { promise, got, verdict } in &self.promises {
            let word = match verdict {
                Verdict::Kept => "kept  ",
                Verdict::Broken => "BROKEN",
                Verdict::Told => "told  ",
            };
            println!("{word} {promise}: {got}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use grandstand_client::Endpoint;

    use super::find;
    use crate::run::Settings;
    use crate::scenario::table::SCENARIOS;

    fn base() -> Settings {
        let made = Settings::new(&Endpoint::parse("http://127.0.0.1:9").unwrap(), "t").unwrap();
        Settings { pids: vec![1], ..made }
    }

    #[test]
    fn names_are_unique_and_an_unknown_one_is_told_the_known() {
        let names: BTreeSet<&str> = SCENARIOS.iter().map(|s| s.name).collect();
        assert_eq!(names.len(), SCENARIOS.len());
        let said = find("carnival").unwrap_err().to_string();
        assert!(said.contains("quiet") && said.contains("scores"), "{said}");
    }

    #[test]
    fn a_tenth_is_a_tenth_of_viewers_and_rooms_and_every_viewer_has_a_room() {
        for scenario in SCENARIOS {
            let (full, rooms_full) = scenario.settings(base(), 1.0).unwrap();
            let (tenth, rooms) = scenario.settings(base(), 0.1).unwrap();
            assert_eq!(tenth.viewers, full.viewers / 10, "{}", scenario.name);
            assert_eq!(rooms, (rooms_full / 10).max(1), "{}", scenario.name);
            assert!(tenth.seconds < full.seconds && tenth.seconds >= 6.0, "{}", scenario.name);
            if !full.room_of.is_empty() {
                assert_eq!(full.room_of.len(), full.viewers as usize, "{}", scenario.name);
                assert!(full.room_of.iter().all(|room| *room < rooms_full), "{}", scenario.name);
            }
        }
    }

    #[test]
    fn a_scale_out_of_bounds_and_memory_without_a_process_are_refused() {
        for scale in [0.0, -1.0, 1.5, f64::NAN] {
            let said = SCENARIOS[0].settings(base(), scale).unwrap_err().to_string();
            assert!(said.contains("--scale is more than 0 and at most 1"), "{said}");
        }
        let said = find("long-tail").unwrap().settings(Settings { pids: Vec::new(), ..base() }, 1.0).unwrap_err();
        assert!(said.to_string().contains("--pid"), "{said}");
    }
}
