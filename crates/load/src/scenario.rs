//! Evenings with a name: who comes, who says what, and what the server has promised for it.
//!
//! A scenario is a row of the table below and nothing else; one engine runs them all. Its promises are held against what the
//! viewers saw, beside the checks of every run (order, numbers without a hole, nothing lost without a word). A promise of which
//! nothing was measured is broken, not kept.
//!
//! At a scale below 1 there are fewer viewers and rooms, slower rates and shorter times. Then what is a matter of time is told and not
//! judged: a tenth shows that it runs, and a busy machine is no proof.

use anyhow::{Result, bail, ensure};
use serde::Serialize;

use crate::pattern::{Arrivals, Moment, Pattern, long_tail};
use crate::report::{Latency, Report};
use crate::run::{Late, Settings, Transport};

/// Milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    p50: f64,
    p99: f64,
    p999: f64,
}

/// A room of at most 1 000 viewers, and a score event in any room.
const SMALL: Limits = Limits { p50: 150.0, p99: 400.0, p999: 800.0 };
/// A room of 10 000.
const NORMAL: Limits = Limits { p50: 200.0, p99: 500.0, p999: 1_200.0 };

#[derive(Clone, Copy, Debug)]
enum Promise {
    /// Publish to delivery. Long-polls are left out: they are answered at most once a second by contract.
    Comments(Limits),
    CommentsP99(f64),
    Scores(Limits),
    /// More than this share of what a viewer could have been given was given to it.
    Delivered(f64),
    /// Every score event reached every viewer.
    ScoresComplete,
    /// Every gift reached every viewer, once.
    PaidComplete,
    /// Every like was taken, and at least this share of the rate held. That viewers' totals never fall and end at what was given
    /// is checked in every run.
    Likes(f64),
    /// From a like to a total that holds it at p99, milliseconds.
    LikesShown(f64),
    /// Who comes in the middle is greeted within so many milliseconds.
    Greeted(f64),
    /// Memory of a room that nobody watches, bytes.
    IdleRoom(f64),
}

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
    /// The rooms' setting `sampling`; the server's default where there is none.
    sampling: Option<&'static str>,
    seconds: f64,
    promises: &'static [Promise],
}

const CHAT: Pattern = Pattern {
    rate: 1.0,
    moment: None,
    arrivals: Arrivals::Clumps,
    repeats: 0.5,
    follow: 0.0,
    writers: 1_000,
    body_bytes: 60,
};

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "quiet",
        about: "a hundred viewers of every transport, a comment every other second, a score now and then",
        rooms: 1,
        audience: Audience::Even,
        viewers: 100,
        raid: None,
        transport: Transport::Mix,
        comments: Pattern { rate: 0.5, arrivals: Arrivals::Even, writers: 50, ..CHAT },
        by: By::Streams(1),
        scores: (0.2, 1),
        gifts: 0.1,
        likes: (0.0, 0),
        sampling: None,
        seconds: 60.0,
        promises: &[
            Promise::Comments(SMALL),
            Promise::Scores(SMALL),
            Promise::Delivered(0.999),
            Promise::ScoresComplete,
            Promise::PaidComplete,
        ],
    },
    Scenario {
        name: "match-night",
        about: "3 000 viewers and a goal: ten times the comments within 3 s, in clumps, 60 % of them repeats",
        rooms: 1,
        audience: Audience::Even,
        viewers: 3_000,
        raid: None,
        transport: Transport::Ws,
        comments: Pattern {
            rate: 4.0,
            // The fifth score event is the goal.
            moment: Some(Moment { at: 20.0, times: 10.0, onset: 3.0, half_life: 15.0 }),
            repeats: 0.6,
            ..CHAT
        },
        by: By::Streams(2),
        scores: (0.2, 1),
        gifts: 0.5,
        likes: (0.0, 0),
        sampling: None,
        seconds: 60.0,
        promises: &[
            Promise::Comments(NORMAL),
            Promise::Scores(SMALL),
            Promise::Delivered(0.9),
            Promise::ScoresComplete,
            Promise::PaidComplete,
        ],
    },
    Scenario {
        name: "busy-room",
        about: "8 000 viewers, 50 comments a second in bursts of 25, everything for everyone",
        rooms: 1,
        audience: Audience::Even,
        viewers: 8_000,
        raid: None,
        transport: Transport::Ws,
        comments: Pattern { rate: 50.0, arrivals: Arrivals::Bursts(25), ..CHAT },
        by: By::Streams(2),
        scores: (0.2, 1),
        gifts: 1.0,
        likes: (0.0, 0),
        sampling: Some("none"),
        seconds: 40.0,
        promises: &[
            Promise::CommentsP99(1_000.0),
            Promise::Scores(SMALL),
            Promise::Delivered(0.9),
            Promise::ScoresComplete,
            Promise::PaidComplete,
        ],
    },
    Scenario {
        name: "likes",
        about: "500 users give 23 000 likes a second in ten rooms that 5 000 viewers watch by SSE",
        rooms: 10,
        audience: Audience::Even,
        viewers: 5_000,
        raid: None,
        transport: Transport::Sse,
        comments: Pattern { rate: 10.0, ..CHAT },
        by: By::Streams(10),
        scores: (1.0, 1),
        gifts: 0.0,
        likes: (23_000.0, 500),
        sampling: None,
        seconds: 40.0,
        promises: &[
            Promise::Likes(0.95),
            // A tick of the gateway, one of the owner, the pace of a room of 500, and a walk.
            Promise::LikesShown(350.0),
            Promise::Scores(SMALL),
            Promise::Delivered(0.9),
            Promise::ScoresComplete,
        ],
    },
    Scenario {
        name: "raid",
        about: "a room of 1 000 is joined by 4 000 more within ten seconds, who all say the same few things",
        rooms: 1,
        audience: Audience::Even,
        viewers: 5_000,
        raid: Some((4_000, 10.0, 10.0)),
        transport: Transport::Ws,
        comments: Pattern {
            rate: 3.0,
            moment: Some(Moment { at: 10.0, times: 8.0, onset: 10.0, half_life: 20.0 }),
            repeats: 0.8,
            ..CHAT
        },
        by: By::Streams(2),
        scores: (0.2, 1),
        gifts: 0.2,
        likes: (0.0, 0),
        sampling: None,
        seconds: 40.0,
        promises: &[
            Promise::Comments(NORMAL),
            Promise::Scores(SMALL),
            Promise::Greeted(5_000.0),
            Promise::Delivered(0.9),
            Promise::ScoresComplete,
            Promise::PaidComplete,
        ],
    },
    Scenario {
        name: "long-tail",
        about: "50 000 live rooms of 0 to 2 000 viewers, 15 000 viewers in all, 2 000 comments a second to any of them",
        rooms: 50_000,
        audience: Audience::LongTail(2_000),
        viewers: 15_000,
        raid: None,
        transport: Transport::Ws,
        // One in twenty is said where the viewers are: the first room is then a busy one.
        comments: Pattern { rate: 2_000.0, arrivals: Arrivals::Even, follow: 0.05, writers: 100_000, ..CHAT },
        by: By::Posts(48),
        scores: (0.0, 1),
        gifts: 0.0,
        likes: (0.0, 0),
        sampling: None,
        seconds: 40.0,
        promises: &[Promise::Comments(NORMAL), Promise::Delivered(0.9), Promise::IdleRoom(2_048.0)],
    },
    Scenario {
        name: "scores",
        about: "120 matches at once, 200 score events a second, a hundred viewers each",
        rooms: 120,
        audience: Audience::Even,
        viewers: 12_000,
        raid: None,
        transport: Transport::Ws,
        comments: Pattern { rate: 12.0, ..CHAT },
        by: By::Posts(4),
        scores: (200.0, 16),
        gifts: 0.0,
        likes: (0.0, 0),
        sampling: None,
        seconds: 40.0,
        promises: &[Promise::Scores(SMALL), Promise::ScoresComplete],
    },
];

/// Scenarios whose feature the server does not have yet, and the feature.
pub const NOT_BUILT: &[(&str, &str)] = &[("barrage", "sampling"), ("banner-storm", "banners")];

/// Errors: there is none of that name, or what it is about is not built.
pub fn find(name: &str) -> Result<&'static Scenario> {
    if let Some((_, feature)) = NOT_BUILT.iter().find(|(n, _)| *n == name) {
        bail!("scenario {name}: {feature}: not built");
    }
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
        let about_memory = self.promises.iter().any(|p| matches!(p, Promise::IdleRoom(_)));
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
            sampling: self.sampling.map(str::to_owned),
            scorers: self.scores.1,
            seconds: (self.seconds * times).max(6.0),
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

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Kept,
    Broken,
    /// A matter of time at a scale below 1.
    Told,
}

#[derive(Clone, Debug, Serialize)]
pub struct Judged {
    pub promise: String,
    pub got: String,
    pub verdict: Verdict,
}

/// A run's scenario and its promises.
#[derive(Clone, Debug, Serialize)]
pub struct Evening {
    pub scenario: &'static str,
    pub scale: f64,
    pub promises: Vec<Judged>,
}

impl Evening {
    pub fn broken(&self) -> usize {
        self.promises.iter().filter(|p| p.verdict == Verdict::Broken).count()
    }

    /// For people, on stdout.
    pub fn print(&self) {
        println!("\nscenario {} at scale {}", self.scenario, self.scale);
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

impl Promise {
    fn judged(self, report: &Report, like_rate: f64, scaled: bool) -> Judged {
        let unpolled = |by: &std::collections::BTreeMap<String, Latency>| -> Vec<(String, Latency)> {
            by.iter().filter(|(name, _)| *name != "poll").map(|(name, l)| (name.clone(), *l)).collect()
        };
        let (promise, got, held, of_time) = match self {
            Promise::Comments(limits) => limits.judged("comments", &unpolled(&report.comments_by)),
            Promise::Scores(limits) => limits.judged("score events", &unpolled(&report.scores_by)),
            Promise::CommentsP99(most) => {
                let all = unpolled(&report.comments_by);
                let held = !all.is_empty() && all.iter().all(|(_, l)| l.n > 0 && l.p99_ms < most);
                let got = all.iter().map(|(by, l)| format!("{by} {:.1} of {}", l.p99_ms, l.n)).collect::<Vec<_>>();
                (format!("comments p99 < {most} ms"), got.join("; "), held, true)
            }
            Promise::Delivered(least) => {
                let share = report.comments_given as f64 / report.comments_due.max(1) as f64;
                let got = format!("{:.3} % of {}", share * 100.0, report.comments_due);
                let held = report.comments_due > 0 && share > least;
                (format!("more than {} % of comments delivered", least * 100.0), got, held, false)
            }
            Promise::ScoresComplete => {
                let got = format!("{} of {}", report.scores_given, report.scores_due);
                let held = report.scores_due > 0 && report.scores_given == report.scores_due;
                ("every score event to every viewer".to_owned(), got, held, false)
            }
            Promise::PaidComplete => {
                let got = format!("{} of {}", report.gifts_given, report.gifts_due);
                let held = report.gifts_due > 0 && report.gifts_given == report.gifts_due;
                ("every gift to every viewer".to_owned(), got, held, false)
            }
            Promise::Likes(least) => {
                let share = report.likes.as_ref().map_or(0.0, |l| l.per_second / like_rate);
                let got = report.likes.as_ref().map(|l| format!("{:.0} a second, {} refused", l.per_second, l.refused));
                let held = report.likes.as_ref().is_some_and(|l| l.given > 0 && l.refused == 0) && share > least;
                let promise = format!("every like taken, at more than {} % of the rate", least * 100.0);
                (promise, got.unwrap_or_else(|| "none given".to_owned()), held, true)
            }
            Promise::LikesShown(most) => {
                let l = report.likes.as_ref().map(|l| l.staleness).unwrap_or_default();
                let got = format!("p50 {:.1}, p99 {:.1} ms of {}", l.p50_ms, l.p99_ms, l.n);
                (format!("totals that are p99 < {most} ms old"), got, l.n > 0 && l.p99_ms < most, true)
            }
            Promise::Greeted(most) => {
                let l = report.entered;
                let got = format!("p50 {:.1}, p99 {:.1}, max {:.1} ms of {}", l.p50_ms, l.p99_ms, l.max_ms, l.n);
                let late = report.late;
                (
                    format!("all {late} who come later greeted within {most} ms"),
                    got,
                    l.n == late && l.max_ms < most,
                    true,
                )
            }
            Promise::IdleRoom(most) => {
                let bytes = report.server.as_ref().map(|s| s.rss_anon_per_room);
                let got = bytes.map_or("not measured".to_owned(), |b| format!("{b:.0} bytes"));
                (format!("at most {most} bytes a room"), got, bytes.is_some_and(|b| b <= most), false)
            }
        };
        let verdict = match held {
            _ if of_time && scaled => Verdict::Told,
            true => Verdict::Kept,
            false => Verdict::Broken,
        };
        Judged { promise, got, verdict }
    }
}

impl Limits {
    fn judged(self, what: &str, by: &[(String, Latency)]) -> (String, String, bool, bool) {
        let held = |l: &Latency| l.n > 0 && l.p50_ms < self.p50 && l.p99_ms < self.p99 && l.p999_ms < self.p999;
        let one = |(name, l): &(String, Latency)| {
            format!("{name} {:.1} / {:.1} / {:.1} of {}", l.p50_ms, l.p99_ms, l.p999_ms, l.n)
        };
        let promise = format!("{what} p50 < {}, p99 < {}, p99.9 < {} ms", self.p50, self.p99, self.p999);
        let got = by.iter().map(one).collect::<Vec<_>>().join("; ");
        let got = if by.is_empty() { "none measured".to_owned() } else { got };
        (promise, got, !by.is_empty() && by.iter().all(|(_, l)| held(l)), true)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use grandstand_client::Endpoint;

    use super::{NOT_BUILT, Promise, SCENARIOS, SMALL, Verdict, find};
    use crate::report::Report;
    use crate::run::Settings;

    fn base() -> Settings {
        let made = Settings::new(&Endpoint::parse("http://127.0.0.1:9").unwrap(), "t").unwrap();
        Settings { pids: vec![1], ..made }
    }

    #[test]
    fn names_are_unique_and_an_unknown_one_is_told_the_known() {
        let names: BTreeSet<&str> = SCENARIOS.iter().map(|s| s.name).chain(NOT_BUILT.iter().map(|n| n.0)).collect();
        assert_eq!(names.len(), SCENARIOS.len() + NOT_BUILT.len());
        let said = find("carnival").unwrap_err().to_string();
        assert!(said.contains("quiet") && said.contains("scores"), "{said}");
    }

    #[test]
    fn what_is_not_built_is_refused_by_name() {
        for (name, feature) in NOT_BUILT {
            let said = find(name).unwrap_err().to_string();
            assert!(said.contains(name) && said.contains(feature) && said.contains("not built"), "{said}");
        }
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

    #[test]
    fn a_promise_of_which_nothing_was_measured_is_broken() {
        let report = Report::default();
        for promise in [
            Promise::Comments(SMALL),
            Promise::CommentsP99(1_000.0),
            Promise::Scores(SMALL),
            Promise::Delivered(0.9),
            Promise::ScoresComplete,
            Promise::PaidComplete,
            Promise::Likes(0.95),
            Promise::LikesShown(350.0),
            Promise::IdleRoom(2_048.0),
        ] {
            assert_eq!(promise.judged(&report, 1.0, false).verdict, Verdict::Broken, "{promise:?}");
        }
    }

    #[test]
    fn at_a_tenth_times_are_told_and_completeness_is_judged() {
        let report = Report { scores_due: 10, scores_given: 9, ..Report::default() };
        assert_eq!(Promise::Scores(SMALL).judged(&report, 1.0, true).verdict, Verdict::Told);
        assert_eq!(Promise::ScoresComplete.judged(&report, 1.0, true).verdict, Verdict::Broken);
        let report = Report { scores_given: 10, ..report };
        assert_eq!(Promise::ScoresComplete.judged(&report, 1.0, true).verdict, Verdict::Kept);
    }
}
