//! What a run measured, and whether its checks hold.

use std::collections::{BTreeMap, BTreeSet};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::likers::Given;
use crate::process::Usage;
use crate::publishers::Published;
use crate::scenario::{Evening, Scenario};
use crate::storm::{self, Round};
use crate::viewers::{Parts, Seen, SlowSeen};

/// A histogram as it goes from one process to another: value in microseconds, count.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Buckets(Vec<(u64, u64)>);

impl Buckets {
    pub fn of(histogram: &Histogram<u64>) -> Buckets {
        Buckets(histogram.iter_recorded().map(|v| (v.value_iterated_to(), v.count_at_value())).collect())
    }

    fn add_to(&self, sum: &mut Histogram<u64>) {
        for (value, count) in &self.0 {
            sum.saturating_record_n(*value, *count);
        }
    }
}

pub fn new_histogram() -> Histogram<u64> {
    // 1 µs to 10 min at three digits.
    Histogram::new_with_bounds(1, 600_000_000, 3).expect("valid bounds")
}

/// Milliseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Latency {
    pub n: u64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
}

impl Latency {
    pub fn of<'a>(parts: impl Iterator<Item = &'a Buckets>) -> Latency {
        let mut sum = new_histogram();
        parts.for_each(|p| p.add_to(&mut sum));
        let at = |q| sum.value_at_quantile(q) as f64 / 1_000.0;
        Latency {
            n: sum.len(),
            p50_ms: at(0.5),
            p99_ms: at(0.99),
            p999_ms: at(0.999),
            max_ms: sum.max() as f64 / 1_000.0,
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Check {
    pub name: &'static str,
    pub failed: u64,
}

/// The server's CPU and memory over a run.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Server {
    pub before: Usage,
    /// With every viewer connected, before the first comment.
    pub connected: Usage,
    pub after: Usage,
    /// Of the time in which comments were published.
    pub cpu_us: u64,
    pub cpu_percent: f64,
    pub cpu_us_per_delivery: f64,
    /// What each viewer added, in bytes.
    pub rss_per_viewer: f64,
    pub rss_anon_per_viewer: f64,
    /// What each room added before anybody came, in bytes.
    pub rss_anon_per_room: f64,
}

/// The part of the comments that viewers were told, beside what they were given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct KeepTold {
    /// Seconds of the run that could be compared.
    pub seconds: u64,
    /// The most that was told beside what was measured, as a share of it; and both of that second.
    pub worst: f64,
    pub told: f64,
    pub measured: f64,
}

/// The figure is of so many seconds.
const KEEP_OVER: u64 = 10;
/// Until it is of the run alone: those ten, the second before it is measured, and the two ends.
const KEEP_FROM: u64 = KEEP_OVER + 3;

impl KeepTold {
    fn of(seen: &[Seen], acked_at: &BTreeMap<u64, u64>) -> KeepTold {
        let mut parts: BTreeMap<u64, Parts> = BTreeMap::new();
        for (second, one) in seen.iter().flat_map(|s| &s.parts) {
            let sum = parts.entry(*second).or_default();
            sum.viewers += one.viewers;
            sum.given += one.given;
            sum.told += one.told;
            sum.told_sum += one.told_sum;
        }
        let mut all = KeepTold::default();
        let viewers = parts.values().map(|one| one.viewers).max().unwrap_or(0).max(1);
        let (Some(first), Some(last)) = (acked_at.keys().next(), acked_at.keys().next_back()) else { return all };
        for second in first + KEEP_FROM..*last {
            let Some(now) = parts.get(&second).filter(|now| now.told > 0) else { continue };
            let before = second - KEEP_OVER..second;
            let acked: u64 = acked_at.range(before.clone()).map(|(_, n)| n).sum();
            let given: u64 = parts.range(before).map(|(_, one)| one.given).sum();
            let measured = given as f64 / viewers as f64 / acked.max(1) as f64;
            let told = now.told_sum as f64 / now.told as f64 / 1e6;
            all.seconds += 1;
            let off = (told - measured).abs() / measured.max(f64::MIN_POSITIVE);
            if off > all.worst {
                (all.worst, all.told, all.measured) = (off, told, measured);
            }
        }
        all
    }
}

/// What was given in likes, and how it was told.
#[derive(Clone, Debug, Serialize)]
pub struct Likes {
    pub given: u64,
    /// Given, until the last of them was taken.
    pub per_second: f64,
    pub refused: u64,
    /// Given and not in the rooms' totals.
    pub dropped: u64,
    /// Values that viewers were told.
    pub told: u64,
    /// Likes for each value told: what one write for each like and viewer would have taken instead.
    pub per_telling: f64,
    /// From a like to the first value that holds it, the longest wait of each value.
    pub staleness: Latency,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    pub run: String,
    pub rooms: usize,
    pub viewers_wanted: u64,
    pub viewers: u64,
    pub processes: usize,
    pub transport: &'static str,
    pub seconds: f64,
    pub published: u64,
    pub acked: u64,
    pub acks_per_second: f64,
    pub refused: BTreeMap<String, u64>,
    pub unanswered: u64,
    pub rate_limited: u64,
    pub acks: Latency,
    pub scores_published: u64,
    pub scores_acked: u64,
    pub score_acks: Latency,
    pub gifts_published: u64,
    pub gift_acks: Latency,
    pub delivered: u64,
    pub deliveries_per_second: f64,
    pub skipped: u64,
    pub frames: u64,
    pub bytes: u64,
    /// Publish to delivery over all viewers, then by transport: a long-poll is answered at most once a second.
    pub comments: Latency,
    pub scores: Latency,
    pub comments_by: BTreeMap<String, Latency>,
    pub scores_by: BTreeMap<String, Latency>,
    pub gifts_by: BTreeMap<String, Latency>,
    /// Over all viewers: what was acked after they were greeted, and what of it they were given.
    pub comments_due: u64,
    pub comments_given: u64,
    pub scores_due: u64,
    pub scores_given: u64,
    pub gifts_due: u64,
    pub gifts_given: u64,
    pub banners_by: BTreeMap<String, Latency>,
    pub banners_due: u64,
    pub banners_given: u64,
    /// Comments from before the first banner, and from then until the rooms' own moment.
    pub calm: Latency,
    pub beside: Latency,
    /// Banners of that moment.
    pub banners_in_storm: Latency,
    pub told_sampled: u64,
    pub comments_least: u64,
    pub comments_most: u64,
    pub keep_told: KeepTold,
    /// Viewers that came in the middle, and how long they waited for their greeting.
    pub late: u64,
    pub entered: Latency,
    /// Seconds that putting the rooms took.
    pub rooms_put_s: f64,
    pub reconnects: u64,
    /// Publishers' connections that ended and were made anew.
    pub publisher_returns: u64,
    pub slow: SlowSeen,
    pub storms: Vec<Round>,
    pub closes: BTreeMap<u16, u64>,
    pub faults: BTreeMap<String, u64>,
    pub server: Option<Server>,
    pub likes: Option<Likes>,
    pub checks: Vec<Check>,
    pub evening: Option<Evening>,
    pub passed: bool,
}

fn by_transport(seen: &[Seen], member: fn(&Seen) -> &BTreeMap<String, Buckets>) -> BTreeMap<String, Latency> {
    let names: BTreeSet<&String> = seen.iter().flat_map(|s| member(s).keys()).collect();
    let of = |name: &String| Latency::of(seen.iter().filter_map(|s| member(s).get(name)));
    names.into_iter().map(|name| (name.clone(), of(name))).collect()
}

/// Usage of the server's processes at the moments of a run, and the deliveries between the two middle ones.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Before the rooms were put.
    pub bare: Usage,
    pub before: Usage,
    pub connected: Usage,
    /// When the last comment had been published.
    pub published: Usage,
    pub deliveries: u64,
    pub seconds: f64,
}

impl Report {
    pub fn new(
        run: &str,
        rooms: usize,
        viewers_wanted: u64,
        transport: &'static str,
        seen: &[Seen],
        published: &Published,
        measured: Option<Measured>,
        storms: Vec<Round>,
    ) -> Report {
        let sum = |member: fn(&Seen) -> u64| seen.iter().map(member).sum::<u64>();
        let viewers = sum(|s| s.viewers);
        let seconds = published.seconds.max(f64::MIN_POSITIVE);
        let mut closes = BTreeMap::new();
        let mut faults = BTreeMap::new();
        for one in seen {
            one.closes.iter().for_each(|(code, n)| *closes.entry(*code).or_default() += n);
            one.faults.iter().for_each(|(what, n)| *faults.entry(what.clone()).or_default() += n);
        }
        let mut checks = vec![
            Check { name: "viewers that could not watch", failed: viewers_wanted - viewers.min(viewers_wanted) },
            Check { name: "events delivered twice or out of order", failed: sum(|s| s.duplicates) },
            Check { name: "missing priority numbers", failed: sum(|s| s.missing_pseq) },
            Check { name: "viewers whose events are not the acked ones", failed: sum(|s| s.wrong_viewers) },
            Check { name: "events lost without a word", failed: sum(|s| s.lost) },
            Check { name: "gaps told without a count", failed: sum(|s| s.cut) },
            Check { name: "comments of a sampled room above a viewer's cap", failed: sum(|s| s.over_cap) },
            Check { name: "viewers of a sampled room left in silence", failed: sum(|s| s.silent) },
            Check { name: "slow viewers not complete at the end", failed: sum(|s| s.slow.viewers - s.slow.complete) },
            Check { name: "broken protocol", failed: faults.values().sum() },
            Check { name: "comments without an answer", failed: published.unanswered },
            Check { name: "comments refused", failed: published.refused.values().sum() },
            Check { name: "score events not taken", failed: published.scores_sent - published.scores_acked },
            Check { name: "gifts not taken", failed: published.gifts_sent - published.gifts_acked },
        ];
        if !storms.is_empty() {
            checks.extend(storm::checks(&storms, rooms as u64));
        }
        let server = measured.map(|m| {
            let cpu_us = m.published.cpu_us.saturating_sub(m.connected.cpu_us);
            let per = |kb: u64, base: u64| (kb as f64 - base as f64) * 1024.0 / (viewers.max(1)) as f64;
            Server {
                before: m.before,
                connected: m.connected,
                after: m.published,
                cpu_us,
                cpu_percent: if m.seconds > 0.0 { cpu_us as f64 / m.seconds / 1e4 } else { 0.0 },
                cpu_us_per_delivery: if m.deliveries > 0 { cpu_us as f64 / m.deliveries as f64 } else { 0.0 },
                rss_per_viewer: per(m.connected.rss_kb, m.before.rss_kb),
                rss_anon_per_viewer: per(m.connected.rss_anon_kb, m.before.rss_anon_kb),
                rss_anon_per_room: (m.before.rss_anon_kb as f64 - m.bare.rss_anon_kb as f64) * 1024.0 / rooms as f64,
            }
        });
        Report {
            run: run.to_owned(),
            rooms,
            viewers_wanted,
            viewers,
            processes: seen.len() + 1,
            transport,
            seconds: published.seconds,
            published: published.sent,
            acked: published.acked,
            acks_per_second: published.acked as f64 / seconds,
            refused: published.refused.clone(),
            unanswered: published.unanswered,
            rate_limited: published.rate_limited,
            acks: Latency::of(std::iter::once(&published.acks)),
            scores_published: published.scores_sent,
            scores_acked: published.scores_acked,
            score_acks: Latency::of(std::iter::once(&published.score_acks)),
            gifts_published: published.gifts_sent,
            gift_acks: Latency::of(std::iter::once(&published.gift_acks)),
            delivered: sum(|s| s.delivered),
            deliveries_per_second: sum(|s| s.delivered) as f64 / seconds,
            skipped: sum(|s| s.skipped),
            frames: sum(|s| s.frames),
            bytes: sum(|s| s.bytes),
            comments: Latency::of(seen.iter().flat_map(|s| s.comments.values())),
            scores: Latency::of(seen.iter().flat_map(|s| s.scores.values())),
            comments_by: by_transport(seen, |s| &s.comments),
            scores_by: by_transport(seen, |s| &s.scores),
            gifts_by: by_transport(seen, |s| &s.gifts),
            comments_due: sum(|s| s.comments_due),
            comments_given: sum(|s| s.comments_given),
            scores_due: sum(|s| s.scores_due),
            scores_given: sum(|s| s.scores_given),
            gifts_due: sum(|s| s.gifts_due),
            gifts_given: sum(|s| s.gifts_given),
            banners_by: by_transport(seen, |s| &s.banners),
            banners_due: sum(|s| s.banners_due),
            banners_given: sum(|s| s.banners_given),
            calm: Latency::of(seen.iter().map(|s| &s.calm)),
            beside: Latency::of(seen.iter().map(|s| &s.beside)),
            banners_in_storm: Latency::of(seen.iter().map(|s| &s.in_storm)),
            told_sampled: sum(|s| s.told_sampled),
            comments_least: seen.iter().map(|s| s.comments_least).min().unwrap_or(0),
            comments_most: seen.iter().map(|s| s.comments_most).max().unwrap_or(0),
            keep_told: KeepTold::of(seen, &published.acked_at),
            late: sum(|s| s.late),
            entered: Latency::of(seen.iter().map(|s| &s.entered)),
            rooms_put_s: 0.0,
            reconnects: sum(|s| s.reconnects),
            publisher_returns: published.returns,
            slow: SlowSeen {
                viewers: sum(|s| s.slow.viewers),
                closed: sum(|s| s.slow.closed),
                complete: sum(|s| s.slow.complete),
                skipped: sum(|s| s.slow.skipped),
            },
            storms,
            closes,
            faults,
            server,
            likes: None,
            passed: checks.iter().all(|c| c.failed == 0),
            checks,
            evening: None,
        }
    }

    /// The same, held against more.
    pub fn with(mut self, more: impl Iterator<Item = Check>) -> Report {
        self.checks.extend(more);
        self.passed = self.checks.iter().all(|c| c.failed == 0);
        self
    }

    /// The same, with the promises of the scenario that it was a run of.
    pub fn of(self, scenario: &Scenario, scale: f64) -> Report {
        let (name, about, promises) = (scenario.name, scenario.about, scenario.judged(&self, scale));
        let evening = Evening { scenario: name, about, scale, promises };
        Report { passed: self.passed && evening.broken() == 0, evening: Some(evening), ..self }
    }

    /// The same with its likes, held against what viewers were told and against the rooms' totals.
    pub fn with_likes(mut self, given: &Given, counted: u64, seen: &[Seen]) -> Report {
        let mut waits = new_histogram();
        for (room, at, before) in seen.iter().flat_map(|s| &s.likes.waits) {
            if let Some(since) = given.at(*room as usize, before + 1) {
                waits.saturating_record(at.saturating_sub(since).max(1));
            }
        }
        let told = seen.iter().map(|s| s.likes.told).sum::<u64>();
        // A viewer of a room would be written to for each like of it.
        let each = given.sent as f64 * self.viewers as f64 / self.rooms.max(1) as f64;
        self.likes = Some(Likes {
            given: given.sent,
            per_second: given.sent as f64 / given.seconds.max(f64::MIN_POSITIVE),
            refused: given.refused,
            dropped: given.sent.abs_diff(counted),
            told,
            per_telling: each / told.max(1) as f64,
            staleness: Latency::of(std::iter::once(&Buckets::of(&waits))),
        });
        let sum = |member: fn(&Seen) -> u64| seen.iter().map(member).sum::<u64>();
        self.with(
            [
                Check { name: "likes refused", failed: given.refused },
                Check { name: "likes dropped, or counted twice", failed: given.sent.abs_diff(counted) },
                Check { name: "likers without a last answer", failed: given.unanswered },
                Check { name: "totals of likes that fell", failed: sum(|s| s.likes.fell) },
                Check { name: "viewers whose likes are not those given", failed: sum(|s| s.likes.wrong) },
            ]
            .into_iter(),
        )
    }

    /// For people, on stdout.
    pub fn print(&self) {
        println!(
            "run {}: {} rooms, {} of {} viewers by {}, {} processes, {:.1} s",
            self.run, self.rooms, self.viewers, self.viewers_wanted, self.transport, self.processes, self.seconds
        );
        println!("published {} acked {} ({:.0}/s)", self.published, self.acked, self.acks_per_second);
        if self.rate_limited > 0 {
            println!("  {} waits for a rate", self.rate_limited);
        }
        for (why, n) in &self.refused {
            println!("  refused {n}: {why}");
        }
        println!(
            "delivered {} ({:.0}/s) in {} frames, {:.1} MB; skipped {}",
            self.delivered,
            self.deliveries_per_second,
            self.frames,
            self.bytes as f64 / 1e6,
            self.skipped
        );
        if self.reconnects > 0 {
            println!("  {} reconnects, closes by code {:?}", self.reconnects, self.closes);
        }
        if self.publisher_returns > 0 {
            println!("  publishers came back {} times", self.publisher_returns);
        }
        if self.slow.viewers > 0 {
            let SlowSeen { viewers, closed, complete, skipped } = self.slow;
            println!(
                "  {viewers} slow viewers: {closed} closed, {skipped} comments passed over, {complete} complete at the end"
            );
        }
        for (n, round) in self.storms.iter().enumerate() {
            println!("  storm {}: {}", n + 1, round.line());
        }
        for (what, n) in &self.faults {
            println!("  fault {n}: {what}");
        }
        if let Some(likes) = &self.likes {
            println!(
                "likes {} ({:.0}/s, {} dropped), told {} times; one write for each like and viewer would be {:.0} times as many",
                likes.given, likes.per_second, likes.dropped, likes.told, likes.per_telling
            );
        }
        println!("\n{:<28} {:>10} {:>9} {:>9} {:>9} {:>9}", "latency, ms", "n", "p50", "p99", "p99.9", "max");
        let mut rows = vec![("comment: publish to ack".to_owned(), self.acks)];
        rows.extend(self.comments_by.iter().map(|(by, l)| (format!("comment: to delivery by {by}"), *l)));
        rows.push(("score: post to ack".to_owned(), self.score_acks));
        rows.extend(self.likes.iter().map(|l| ("like: to the total shown".to_owned(), l.staleness)));
        rows.extend(self.scores_by.iter().map(|(by, l)| (format!("score: to delivery by {by}"), *l)));
        rows.push(("gift: post to ack".to_owned(), self.gift_acks));
        rows.extend(self.gifts_by.iter().map(|(by, l)| (format!("gift: to delivery by {by}"), *l)));
        rows.extend(self.banners_by.iter().map(|(by, l)| (format!("banner: to delivery by {by}"), *l)));
        for (name, l) in rows {
            if l.n > 0 {
                println!(
                    "{name:<28} {:>10} {:>9.1} {:>9.1} {:>9.1} {:>9.1}",
                    l.n, l.p50_ms, l.p99_ms, l.p999_ms, l.max_ms
                );
            }
        }
        if let Some(s) = &self.server {
            println!(
                "\nserver CPU {:.2} s while publishing ({:.0} % of a core), {:.3} µs per delivery",
                s.cpu_us as f64 / 1e6,
                s.cpu_percent,
                s.cpu_us_per_delivery
            );
            for (name, u) in [("before", s.before), ("connected", s.connected), ("after", s.after)] {
                println!("  {name:<10} RSS {:>9} kB, RssAnon {:>9} kB", u.rss_kb, u.rss_anon_kb);
            }
            println!("  each viewer {:.0} bytes RSS, {:.0} bytes RssAnon", s.rss_per_viewer, s.rss_anon_per_viewer);
            println!("  each room {:.0} bytes RssAnon, put within {:.1} s", s.rss_anon_per_room, self.rooms_put_s);
        }
        println!();
        for check in &self.checks {
            println!("{} {}: {}", if check.failed == 0 { "ok  " } else { "FAIL" }, check.name, check.failed);
        }
        if let Some(evening) = &self.evening {
            evening.print();
        }
    }
}
