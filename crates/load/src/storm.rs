//! Storms: nearly everyone is dropped at once and comes back, several times in a row, while comments and scores go on.
//!
//! ```text
//! steady ── drop ──► all come at once ──► refused ones wait what they were told ──► all back ── steady ── usage ── drop …
//! ```
//!
//! Held against the server's promises: everyone comes back; the streams let in never exceed burst + rate · t; most gaps come from
//! the ring; those who stayed are served on; ten storms leave memory, descriptors and threads where the first left them. The
//! completeness of every viewer over all storms is checked like in any run.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::books::Page;
use crate::clock::micros;
use crate::http::Http;
use crate::process::Usage;
use crate::publishers::Published;
use crate::report::{Check, Latency};
use crate::run::{Alarm, Process, Ready, Settings, ToWorker};
use crate::viewers::storm::Returned;

/// How often the server's count of admitted streams is read.
const WATCH_EVERY: Duration = Duration::from_millis(100);
/// Memory may differ by so much between the storms without being a drift: allocators round.
const DRIFT_KB: u64 = 4 * 1024;
/// Connections of control and of the generator itself that may come and go.
const DRIFT_FILES: u64 = 8;
/// Each worker asks for a room once a storm, and a key set is read again when a key is unknown: a machine has fewer workers.
const READS_BESIDE: u64 = 64;

#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Plan {
    pub storms: u32,
    /// Of all viewers, spread evenly: 0 or more, below 1.
    pub stay: f64,
    /// Before the first storm and after each.
    pub steady_seconds: f64,
}

/// One storm.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Round {
    pub stayed: u64,
    pub dropped: u64,
    pub back: u64,
    /// Seconds until half, 95 % and all of the dropped were back; absent when they never were.
    pub half_s: Option<f64>,
    pub most_s: Option<f64>,
    pub all_s: Option<f64>,
    /// Closes and refusals by code.
    pub closes: BTreeMap<u16, u64>,
    pub broke: u64,
    /// The most that were let in within one second, by their greetings.
    pub admitted_in_a_second: u64,
    /// What the server says of itself; absent when it does not show its metrics.
    pub told: Option<Told>,
    pub stayers_comments: Latency,
    pub stayers_scores: Latency,
    /// Of the server's processes, some time after everyone was back.
    pub usage: Option<Usage>,
}

/// From the server's metrics, over one storm.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Told {
    pub admitted: u64,
    /// Streams a second, and at once; 0 where there is no limit.
    pub rate: u64,
    pub burst: u64,
    /// By how many streams the limit was exceeded at worst.
    pub over_limit: u64,
    /// Cursors answered from the ring, and from the log.
    pub ring: u64,
    pub log: u64,
    pub tls_full: u64,
    pub tls_resumed: u64,
    /// What a connection may not cost: reads of the key set, rooms asked of the shard, and reads of the log for cursors and rings.
    pub key_set_reads: u64,
    pub rooms_asked: u64,
    pub log_reads: u64,
}

impl Told {
    /// Reads of key set and rooms above what a storm costs however many come back.
    fn reads_over(&self, rooms: u64) -> u64 {
        self.key_set_reads.saturating_sub(READS_BESIDE) + self.rooms_asked.saturating_sub(READS_BESIDE * rooms)
    }

    /// Of the gaps, those served from the ring.
    pub fn ring_share(&self) -> f64 {
        if self.ring + self.log == 0 { 1.0 } else { self.ring as f64 / (self.ring + self.log) as f64 }
    }
}

/// The server's counters at one moment, which lies between asking and having read the answer.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    asked_us: u64,
    read_us: u64,
    admitted: u64,
    rate: u64,
    burst: u64,
    ring: u64,
    log: u64,
    tls_full: u64,
    tls_resumed: u64,
    key_set_reads: u64,
    rooms_asked: u64,
    log_reads: u64,
}

/// Makes the storms while publishers publish; their account of all of it.
pub fn run(
    settings: &Settings,
    plan: Plan,
    command: &[String],
    alarm: &Alarm,
    viewers: &mut [Process],
    rounds: &mut Vec<Round>,
    measure: &dyn Fn() -> Result<Option<Usage>>,
    note: &dyn Fn(String),
) -> Result<Published> {
    let mut publishers = Process::start(
        command,
        &Settings { publishes: true, viewer_tokens: Vec::new(), seconds: f64::from(u32::MAX), ..settings.clone() },
        alarm,
    )?;
    publishers.hear::<Ready>()?;
    for process in viewers.iter_mut() {
        process.tell(&ToWorker::Go)?;
    }
    publishers.tell(&ToWorker::Go)?;
    let steady = Duration::from_secs_f64(plan.steady_seconds);
    std::thread::sleep(steady);
    for n in 0..plan.storms {
        let (returned, samples) = watched(settings, || {
            for process in viewers.iter_mut() {
                process.tell(&ToWorker::Storm(plan.stay))?;
            }
            viewers.iter_mut().map(Process::hear::<Returned>).collect::<Result<Vec<_>>>()
        })?;
        std::thread::sleep(steady);
        let round = Round { usage: measure()?, ..Round::of(&returned, &samples) };
        note(format!("storm {}: {}", n + 1, round.line()));
        rounds.push(round);
    }
    publishers.tell(&ToWorker::Stop)?;
    publishers.hear()
}

/// Does something while the server's counters are read again and again, for the first time before it is begun: who comes back
/// at once is counted, too.
fn watched<T>(settings: &Settings, work: impl FnOnce() -> Result<T>) -> Result<(T, Vec<Sample>)> {
    let done = &AtomicBool::new(false);
    let (first, read) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let watcher = scope.spawn(move || -> Result<Vec<Sample>> {
            let mut http = Http::new(settings, Some(&settings.token))?;
            let mut samples = Vec::new();
            loop {
                let last = done.load(Ordering::Relaxed);
                let asked_us = micros();
                let Some(page) = Page::read(&mut http)? else { return Ok(Vec::new()) };
                samples.push(Sample::of(&page, asked_us, micros()));
                let _ = first.send(());
                if last {
                    return Ok(samples);
                }
                std::thread::sleep(WATCH_EVERY);
            }
        });
        // A watcher that could not read says so at the end.
        let _ = read.recv();
        let made = work();
        done.store(true, Ordering::Relaxed);
        let samples = watcher.join().map_err(|_| anyhow::anyhow!("the watcher panicked"))?;
        Ok((made?, samples.context("reading the server's metrics")?))
    })
}

impl Sample {
    fn of(page: &Page, asked_us: u64, read_us: u64) -> Sample {
        Sample {
            asked_us,
            read_us,
            admitted: page.count("grandstand_gateway_streams_admitted_total", ""),
            rate: page.count("grandstand_gateway_admission_rate", ""),
            burst: page.count("grandstand_gateway_admission_burst", ""),
            ring: page.count("grandstand_gateway_resumes_total", "answer=\"ring\""),
            log: page.count("grandstand_gateway_resumes_total", "answer=\"log\""),
            tls_full: page.count("grandstand_gateway_tls_handshakes_total", "session=\"full\""),
            tls_resumed: page.count("grandstand_gateway_tls_handshakes_total", "session=\"resumed\""),
            key_set_reads: page.count("grandstand_auth_key_set_reads_total", ""),
            rooms_asked: page.count("grandstand_gateway_rooms_asked_total", ""),
            log_reads: ["resume", "page", "past"]
                .map(|what| page.count("grandstand_log_reads_total", &format!("purpose=\"{what}\"")))
                .iter()
                .sum(),
        }
    }
}

/// By how many streams a bucket of this size was overdrawn between any two samples. What the first shows had happened at the
/// latest when it was asked for, what the second shows not before it was read.
fn over_limit(samples: &[Sample], rate: u64, burst: u64) -> u64 {
    let mut worst = 0;
    for (i, from) in samples.iter().enumerate() {
        for to in &samples[i + 1..] {
            let may = burst + (rate as f64 * (to.read_us - from.asked_us) as f64 / 1e6).ceil() as u64;
            worst = worst.max((to.admitted - from.admitted).saturating_sub(may));
        }
    }
    worst
}

/// The most of the sorted moments that fall into one second.
fn most_in_a_second(moments_us: &[u64]) -> u64 {
    let mut first = 0;
    let mut most = 0;
    for (n, at) in moments_us.iter().enumerate() {
        while at - moments_us[first] >= 1_000_000 {
            first += 1;
        }
        most = most.max(n + 1 - first);
    }
    most as u64
}

impl Round {
    fn of(returned: &[Returned], samples: &[Sample]) -> Round {
        let sum = |member: fn(&Returned) -> u64| returned.iter().map(member).sum::<u64>();
        let mut back: Vec<u32> = returned.iter().flat_map(|r| r.back_ms.iter().copied()).collect();
        back.sort_unstable();
        let mut greeted: Vec<u64> = returned.iter().flat_map(|r| r.admitted.iter().map(|a| a.1)).collect();
        greeted.sort_unstable();
        let mut closes = BTreeMap::new();
        for (code, n) in returned.iter().flat_map(|r| &r.closes) {
            *closes.entry(*code).or_default() += n;
        }
        let dropped = sum(|r| r.dropped);
        // The moment at which so much of the dropped was back.
        let at = |share: f64| {
            let nth = (dropped as f64 * share).ceil() as usize;
            back.get(nth.max(1) - 1).map(|ms| f64::from(*ms) / 1e3)
        };
        let told = samples.first().zip(samples.last()).map(|(first, last)| Told {
            admitted: last.admitted - first.admitted,
            rate: last.rate,
            burst: last.burst,
            over_limit: if last.rate == 0 { 0 } else { over_limit(samples, last.rate, last.burst) },
            ring: last.ring - first.ring,
            log: last.log - first.log,
            tls_full: last.tls_full - first.tls_full,
            tls_resumed: last.tls_resumed - first.tls_resumed,
            key_set_reads: last.key_set_reads - first.key_set_reads,
            rooms_asked: last.rooms_asked - first.rooms_asked,
            log_reads: last.log_reads - first.log_reads,
        });
        Round {
            stayed: sum(|r| r.stayed),
            dropped,
            back: back.len() as u64,
            half_s: at(0.5),
            most_s: at(0.95),
            all_s: at(1.0),
            closes,
            broke: sum(|r| r.broke),
            admitted_in_a_second: most_in_a_second(&greeted),
            told,
            stayers_comments: Latency::of(returned.iter().map(|r| &r.comments)),
            stayers_scores: Latency::of(returned.iter().map(|r| &r.scores)),
            usage: None,
        }
    }

    /// For people.
    pub fn line(&self) -> String {
        let s = |time: Option<f64>| time.map_or("never".to_owned(), |t| format!("{t:.2} s"));
        let mut line = format!(
            "{} dropped, {} back: 50 % {}, 95 % {}, all {}; {} let in within a second, closes {:?}, {} broke; stayers' score p99 {:.0} ms",
            self.dropped,
            self.back,
            s(self.half_s),
            s(self.most_s),
            s(self.all_s),
            self.admitted_in_a_second,
            self.closes,
            self.broke,
            self.stayers_scores.p99_ms
        );
        if let Some(told) = &self.told {
            line += &format!("; {:.1} % of {} gaps from the ring", told.ring_share() * 100.0, told.ring + told.log);
            let Told { log_reads, rooms_asked, key_set_reads, .. } = told;
            line += &format!("; {log_reads} reads of the log, {rooms_asked} of a room, {key_set_reads} of the key set");
            if told.rate > 0 {
                line += &format!("; limit {}/s + {}, exceeded by {}", told.rate, told.burst, told.over_limit);
            }
        }
        if let Some(u) = &self.usage {
            line += &format!("; RssAnon {} kB, {} files, {} threads", u.rss_anon_kb, u.files, u.threads);
        }
        line
    }
}

/// What the rounds, in so many rooms, prove beside every viewer's own account. Speed is told and not judged.
pub fn checks(rounds: &[Round], rooms: u64) -> Vec<Check> {
    let mut checks = vec![
        Check { name: "viewers that never came back", failed: rounds.iter().map(|r| r.dropped - r.back).sum() },
        Check {
            name: "streams let in above the limit",
            failed: rounds.iter().filter_map(|r| r.told).map(|t| t.over_limit).max().unwrap_or(0),
        },
        Check {
            name: "key sets and rooms read for connections",
            failed: rounds.iter().filter_map(|r| r.told).map(|t| t.reads_over(rooms)).max().unwrap_or(0),
        },
    ];
    let usages: Vec<Usage> = rounds.iter().filter_map(|r| r.usage).collect();
    // The first storm grows tables and pools to their size; from the second on nothing may.
    if let [_, settled, .., last] = usages[..] {
        let more = |first: u64, last: u64, slack: u64| last.saturating_sub(first + slack);
        let memory = settled.rss_anon_kb / 20 + DRIFT_KB;
        checks.extend([
            Check {
                name: "kB of memory more after the last storm",
                failed: more(settled.rss_anon_kb, last.rss_anon_kb, memory),
            },
            Check {
                name: "descriptors more after the last storm",
                failed: more(settled.files, last.files, DRIFT_FILES),
            },
            Check { name: "threads more after the last storm", failed: more(settled.threads, last.threads, 0) },
        ]);
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::{Round, Sample, Told, checks, most_in_a_second, over_limit};
    use crate::process::Usage;
    use crate::viewers::storm::Returned;

    fn sample(asked_ms: u64, read_ms: u64, admitted: u64) -> Sample {
        Sample { asked_us: asked_ms * 1_000, read_us: read_ms * 1_000, admitted, ..Sample::default() }
    }

    #[test]
    fn a_limit_is_exceeded_by_what_no_moment_within_the_samples_explains() {
        let within = [sample(0, 10, 0), sample(100, 110, 30), sample(1_100, 1_110, 130)];
        assert_eq!(over_limit(&within, 100, 20), 0);
        // 31 at once with a jar of 20, and 110 ms at 100/s in which one may come anyway.
        let above = [sample(0, 10, 0), sample(100, 110, 41)];
        assert_eq!(over_limit(&above, 100, 20), 10);
    }

    #[test]
    fn a_second_begins_anywhere() {
        assert_eq!(most_in_a_second(&[]), 0);
        assert_eq!(most_in_a_second(&[0, 600_000, 999_999, 1_000_000, 1_599_999, 1_600_000]), 4);
    }

    #[test]
    fn who_never_came_back_is_missing_and_leaves_no_time_for_all() {
        let returned = Returned { dropped: 4, back_ms: vec![900, 100, 200], ..Returned::default() };
        let round = Round::of(&[returned], &[]);
        assert_eq!((round.half_s, round.most_s, round.all_s), (Some(0.2), None, None));
        assert_eq!(checks(&[round], 1)[0].failed, 1);
    }

    #[test]
    fn reads_that_grow_with_the_connections_fail_and_those_of_each_worker_do_not() {
        let round = |key_set_reads, rooms_asked| Round {
            dropped: 900,
            back: 900,
            told: Some(Told { key_set_reads, rooms_asked, ..Told::default() }),
            ..Round::default()
        };
        assert_eq!(checks(&[round(1, 8)], 1)[2].failed, 0);
        assert_eq!(checks(&[round(1, 8), round(0, 900)], 1)[2].failed, 900 - 64);
        assert_eq!(checks(&[round(900, 0)], 1)[2].failed, 900 - 64);
        assert_eq!(checks(&[round(0, 600)], 10)[2].failed, 0, "ten rooms of each worker");
    }

    #[test]
    fn growth_after_the_second_storm_is_a_drift() {
        let round = |rss_anon_kb, files, threads| Round {
            usage: Some(Usage { rss_anon_kb, files, threads, ..Usage::default() }),
            ..Round::default()
        };
        let failed = |rounds: &[Round]| checks(rounds, 1).iter().map(|c| c.failed).collect::<Vec<_>>();
        let flat = [round(10_000, 50, 9), round(40_000, 60, 9), round(45_000, 66, 9), round(44_000, 62, 9)];
        assert_eq!(failed(&flat), [0, 0, 0, 0, 0, 0]);
        let grows = [round(10_000, 50, 9), round(40_000, 60, 9), round(60_000, 100, 11)];
        assert_eq!(failed(&grows), [0, 0, 0, 60_000 - 42_000 - 4_096, 32, 2]);
    }
}
