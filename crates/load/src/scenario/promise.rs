//! What a scenario says the server will do, held against what its viewers saw.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::report::{KeepTold, Latency, Report};

/// Seconds in which what was told can be held against the ten before them.
const KEEP_SECONDS: u64 = 2;

/// Milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    p50: f64,
    p99: f64,
    p999: f64,
}

/// A room of at most 1 000 viewers, and a score event in any room.
pub const SMALL: Limits = Limits { p50: 150.0, p99: 400.0, p999: 800.0 };
/// A room of 10 000.
pub const NORMAL: Limits = Limits { p50: 200.0, p99: 500.0, p999: 1_200.0 };

/// A sampled room, its window and moderation included.
pub const SAMPLED: Limits = Limits { p50: 800.0, p99: 2_000.0, p999: 5_000.0 };

#[derive(Clone, Copy, Debug)]
pub enum Promise {
    /// Publish to delivery. Long-polls are left out: they are answered at most once a second by contract.
    Comments(Limits),
    CommentsP99(f64),
    Scores(Limits),
    /// More than this share of what a viewer could have been given was given to it.
    Delivered(f64),
    /// Every viewer was told that it is shown a part, and was given so many comments a second: never more, and nobody four
    /// fifths of it or less. What is addressed to a viewer, at most one a second, comes on top.
    Sampled(f64),
    /// In each second the part of the comments that viewers are told is, but for this share of it, what they were given of what was
    /// acked in the ten seconds before. A figure is told anew when it moved by a twentieth, and a second lies a little elsewhere
    /// here than there.
    KeepTold(f64),
    /// Every score event reached every viewer.
    ScoresComplete,
    /// Every gift reached every viewer, once.
    PaidComplete,
    /// Every like was taken, and at least this share of the rate held. That viewers' totals never fall and end at what was given
    /// is checked in every run.
    Likes(f64),
    /// From a like to a total that holds it at p99, milliseconds.
    LikesShown(f64),
    /// More than this share of banners reached the streams that were open.
    Banners(f64),
    /// Of banners, milliseconds.
    BannersP99(f64),
    /// Of banners while the rooms have their moment, milliseconds.
    BannersInStorm(f64),
    /// While there are banners, comments are late at p99 by less than so many milliseconds more, or less than a quarter.
    Undisturbed(f64),
    /// Who comes in the middle is greeted within so many milliseconds.
    Greeted(f64),
    /// Memory of a room that nobody watches, bytes.
    IdleRoom(f64),
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

impl Promise {
    /// `like_rate`: likes a second that were asked for. `scaled`: what is a matter of time is told and not judged.
    pub fn judged(self, report: &Report, like_rate: f64, scaled: bool) -> Judged {
        let unpolled = |by: &BTreeMap<String, Latency>| -> Vec<(String, Latency)> {
            by.iter().filter(|(name, _)| *name != "poll").map(|(name, l)| (name.clone(), *l)).collect()
        };
        let (promise, got, held, of_time) = match self {
            Promise::Comments(limits) => limits.judged("comments", &unpolled(&report.comments_by)),
            Promise::Scores(limits) => limits.judged("score events", &unpolled(&report.scores_by)),
            Promise::CommentsP99(most) => p99("comments", &unpolled(&report.comments_by), most),
            Promise::Delivered(least) => share("comments delivered", report.comments_given, report.comments_due, least),
            Promise::Sampled(cap) => {
                let (least, most) = (report.comments_least as f64, report.comments_most as f64);
                let got = format!(
                    "{least} to {most} a viewer in {:.0} s of {} said, {} of {} told",
                    report.seconds, report.acked, report.told_sampled, report.viewers
                );
                // The first second passes before the switch turns; candidates that wait may win five seconds after the last.
                let (fewest, allowed) = (0.8 * cap * (report.seconds - 1.0), (cap + 1.0) * (report.seconds + 6.0));
                let told = report.viewers > 0 && report.told_sampled == report.viewers;
                let held = told && least > fewest && most <= allowed;
                (format!("a part for everyone, {cap} comments a second"), got, held, false)
            }
            Promise::KeepTold(most) => {
                let KeepTold { seconds, worst, told, measured } = report.keep_told;
                let got = format!(
                    "{:.1} % off at most in {seconds} s: {told:.6} told, {measured:.6} measured",
                    worst * 100.0
                );
                let held = seconds >= KEEP_SECONDS && worst <= most;
                // What is shared out by the seconds of a clock is a matter of time.
                (format!("the part told is the part given within {:.0} %", most * 100.0), got, held, true)
            }
            Promise::ScoresComplete => complete("score event", report.scores_given, report.scores_due),
            Promise::PaidComplete => complete("gift", report.gifts_given, report.gifts_due),
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
            Promise::Banners(least) => {
                share("banners to open streams", report.banners_given, report.banners_due, least)
            }
            Promise::BannersP99(most) => p99("banners", &unpolled(&report.banners_by), most),
            Promise::BannersInStorm(most) => {
                let by = [("the rooms' storm".to_owned(), report.banners_in_storm)];
                p99("banners in the rooms' storm", &by, most)
            }
            Promise::Undisturbed(most) => {
                let (calm, beside) = (report.calm, report.beside);
                let more = beside.p99_ms - calm.p99_ms;
                let held = calm.n > 0 && beside.n > 0 && (more < most || beside.p99_ms < 1.25 * calm.p99_ms);
                let got = format!("p99 {:.1} ms without, {:.1} with", calm.p99_ms, beside.p99_ms);
                (format!("comments later by less than a quarter or {most} ms while there are banners"), got, held, true)
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

/// What a promise says, what was got, whether it is kept, and whether it is a matter of time.
type Told = (String, String, bool, bool);

fn p99(what: &str, by: &[(String, Latency)], most: f64) -> Told {
    let held = !by.is_empty() && by.iter().all(|(_, l)| l.n > 0 && l.p99_ms < most);
    let got = by.iter().map(|(by, l)| format!("{by} {:.1} of {}", l.p99_ms, l.n)).collect::<Vec<_>>();
    (format!("{what} p99 < {most} ms"), got.join("; "), held, true)
}

fn share(what: &str, given: u64, due: u64, least: f64) -> Told {
    let share = given as f64 / due.max(1) as f64;
    let got = format!("{:.3} % of {due}", share * 100.0);
    (format!("more than {} % of {what}", least * 100.0), got, due > 0 && share > least, false)
}

fn complete(what: &str, given: u64, due: u64) -> Told {
    (format!("every {what} to every viewer"), format!("{given} of {due}"), due > 0 && given == due, false)
}

impl Limits {
    fn judged(self, what: &str, by: &[(String, Latency)]) -> Told {
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
    use super::{Promise, SMALL, Verdict};
    use crate::report::Report;

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
            Promise::Banners(0.999),
            Promise::BannersP99(1_500.0),
            Promise::BannersInStorm(1_500.0),
            Promise::Undisturbed(20.0),
            Promise::Sampled(5.0),
            Promise::KeepTold(0.1),
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
