//! A fixture list of openfootball as a stream of score events, match after match.
//!
//! The file says who scored in which minute and what the score was at each period's end. A provider's feed says more: a
//! goal is first reported, then confirmed, and a wrong attribution is put right. So a match's first goal and every own
//! goal go out provisional and are followed by their second revision, and a period score that disagrees with the goals
//! before it is followed by a `correction` with the file's own figure. These extra steps are counted as derived.
//!
//! Minutes come as `90` with `offset: 9`, or as text, `"90+9"`. Score fields: `ht`, `ft`, `et`, `p`.
//! Source: openfootball/worldcup.json, CC0.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::{Act, Format, Score, Step, Trace};

/// Between the last whistle and the next kick-off.
const INTERVAL: Duration = Duration::from_secs(60);
/// Between a provisional report and its confirmation.
const REVIEW: Duration = Duration::from_secs(20);

#[derive(Deserialize)]
struct File {
    matches: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct Match {
    date: String,
    team1: Team,
    team2: Team,
    #[serde(default)]
    score: Option<Periods>,
    #[serde(default)]
    goals1: Option<Vec<Goal>>,
    #[serde(default)]
    goals2: Option<Vec<Goal>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Team {
    Name(String),
    Object { name: String },
}

impl Team {
    fn name(&self) -> &str {
        match self {
            Team::Name(name) | Team::Object { name } => name,
        }
    }
}

#[derive(Deserialize, Default)]
struct Periods {
    ht: Option<[u32; 2]>,
    ft: Option<[u32; 2]>,
    et: Option<[u32; 2]>,
    p: Option<[u32; 2]>,
}

#[derive(Deserialize)]
struct Goal {
    minute: Minute,
    #[serde(default)]
    offset: u32,
    #[serde(default)]
    penalty: bool,
    #[serde(default)]
    owngoal: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Minute {
    Number(u32),
    Text(String),
}

/// A minute of play: 90 and 6 for "90+6". Ordered as played.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Played {
    minute: u32,
    added: u32,
}

impl Played {
    fn of(goal: &Goal) -> Option<Played> {
        match &goal.minute {
            Minute::Number(minute) => Some(Played { minute: *minute, added: goal.offset }),
            Minute::Text(text) => {
                let text = text.trim().trim_end_matches('\'');
                let (minute, added) = text.split_once('+').unwrap_or((text, "0"));
                Some(Played { minute: minute.trim().parse().ok()?, added: added.trim().parse().ok()? })
            }
        }
    }

    fn text(self) -> String {
        if self.added == 0 { self.minute.to_string() } else { format!("{}+{}", self.minute, self.added) }
    }
}

pub(super) fn recognise(bytes: &[u8]) -> bool {
    serde_json::from_slice::<File>(bytes).is_ok_and(|f| {
        f.matches.iter().any(|m| m.get("team1").is_some() && m.get("team2").is_some() && m.get("date").is_some())
    })
}

/// Errors: `None` when the whole is not a fixture list.
pub fn read(bytes: &[u8]) -> Option<Trace> {
    let file: File = serde_json::from_slice(bytes).ok()?;
    let mut out = Fixtures { trace: empty(), start: Duration::ZERO };
    for value in file.matches {
        match serde_json::from_value::<Match>(value) {
            Ok(one) => out.play(&one),
            Err(_) => out.skip(super::MALFORMED),
        }
    }
    Some(out.trace)
}

fn empty() -> Trace {
    Trace { format: Format::Openfootball, read: 0, steps: Vec::new(), derived: 0, skipped: BTreeMap::new() }
}

struct Fixtures {
    trace: Trace,
    /// Kick-off of the match being played.
    start: Duration,
}

/// What happens in a match, in the order of play.
struct Moment {
    played: Played,
    /// At the same minute: goals first, in the file's order, then the whistle.
    whistle: bool,
    what: What,
}

enum What {
    Goal { home: bool, kind: &'static str },
    Whistle { kind: &'static str, score: [u32; 2], check: bool },
}

impl Fixtures {
    fn skip(&mut self, why: &str) {
        self.trace.read += 1;
        *self.trace.skipped.entry(why.to_owned()).or_default() += 1;
    }

    fn play(&mut self, one: &Match) {
        let Some(periods) = &one.score else {
            return self.skip("match without a result");
        };
        let mut moments = Vec::new();
        for (home, goals) in [(true, &one.goals1), (false, &one.goals2)] {
            for goal in goals.iter().flatten() {
                let Some(played) = Played::of(goal) else {
                    self.skip(super::MALFORMED);
                    continue;
                };
                let kind = match (goal.owngoal, goal.penalty) {
                    (true, _) => "own_goal",
                    (_, true) => "penalty",
                    _ => "goal",
                };
                moments.push(Moment { played, whistle: false, what: What::Goal { home, kind } });
            }
        }
        // Half-time is after every first-half minute however much was added, so the whistles carry the largest of all.
        let mut whistle = |minute, kind, score: Option<[u32; 2]>, check| {
            let played = Played { minute, added: u32::MAX };
            moments.extend(score.map(|score| Moment {
                played,
                whistle: true,
                what: What::Whistle { kind, score, check },
            }));
        };
        whistle(45, "half_time", periods.ht, true);
        whistle(90, if periods.et.is_some() { "extra_time" } else { "full_time" }, periods.ft, true);
        whistle(120, if periods.p.is_some() { "penalty_shootout" } else { "full_time" }, periods.et, true);
        // The shoot-out decides who goes on; the match's own score stays that of play.
        let of_play = periods.et.or(periods.ft).unwrap_or_default();
        whistle(121, "full_time", periods.p.map(|_| of_play), false);
        moments.sort_by_key(|m| (m.played, m.whistle));

        let slug = |team: &Team| team.name().to_lowercase().replace(|c: char| c.is_whitespace(), "-");
        let match_id = format!("{}:{}:{}", one.date, slug(&one.team1), slug(&one.team2));
        let teams = format!("{} - {}", one.team1.name(), one.team2.name());
        let step = |at, entry, event: &str, revision, kind, state, [home, away]: [u32; 2], minute: String| Step {
            at,
            entry,
            act: Act::Score(Score {
                match_id: match_id.clone(),
                event: event.to_owned(),
                revision,
                kind,
                state,
                home,
                away,
                minute,
                teams: teams.clone(),
            }),
        };

        let mut steps = Vec::new();
        let mut score = [0, 0];
        let mut at = self.start;
        self.trace.read += 1;
        steps.push(step(at, self.trace.read, "kick-off", 1, "kick_off", "confirmed", score, "0".to_owned()));
        // Stoppage moves everything after it: a whistle comes after the last goal of its period.
        let mut stoppage = Duration::ZERO;
        let mut n_goals = 0;
        for moment in moments {
            self.trace.read += 1;
            let entry = self.trace.read;
            let nominal = self.start + Duration::from_secs(u64::from(moment.played.minute) * 60) + stoppage;
            match moment.what {
                What::Goal { home, kind } => {
                    let added = Duration::from_secs(u64::from(moment.played.added) * 60);
                    // Two goals of one minute keep their order and leave room for a review between them.
                    at = (nominal + added).max(at + Duration::from_secs(1));
                    n_goals += 1;
                    score[usize::from(!home)] += 1;
                    let event = format!("goal-{n_goals}");
                    let minute = moment.played.text();
                    if n_goals == 1 || kind == "own_goal" {
                        let first = if kind == "own_goal" { "goal" } else { kind };
                        steps.push(step(at, entry, &event, 1, first, "provisional", score, minute.clone()));
                        at += REVIEW;
                        self.trace.derived += 1;
                        steps.push(step(at, entry, &event, 2, kind, "confirmed", score, minute));
                    } else {
                        steps.push(step(at, entry, &event, 1, kind, "confirmed", score, minute));
                    }
                }
                What::Whistle { kind, score: said, check } => {
                    at = nominal.max(at + Duration::from_secs(1));
                    stoppage += at - nominal;
                    let minute = moment.played.minute.min(120).to_string();
                    steps.push(step(at, entry, kind, 1, kind, "confirmed", score, minute.clone()));
                    if check && said != score {
                        self.trace.derived += 1;
                        let event = format!("{kind}-score");
                        at += Duration::from_secs(1);
                        steps.push(step(at, entry, &event, 1, "correction", "confirmed", said, minute));
                    }
                }
            }
        }
        self.start = at + INTERVAL;
        self.trace.steps.append(&mut steps);
    }
}

#[cfg(test)]
mod tests {
    use super::read;
    use crate::trace::{Act, Score, Trace};

    fn sample() -> Trace {
        read(include_bytes!("../../samples/openfootball.json")).unwrap()
    }

    fn of_match<'a>(trace: &'a Trace, prefix: &str) -> Vec<&'a Score> {
        let scores =
            trace.steps.iter().map(|s| if let Act::Score(score) = &s.act { score } else { panic!("scores only") });
        scores.filter(|s| s.match_id.starts_with(prefix)).collect()
    }

    fn line(score: &Score) -> String {
        format!("{}' {} {}-{} {} r{}", score.minute, score.kind, score.home, score.away, score.state, score.revision)
    }

    #[test]
    fn a_match_is_told_in_the_order_of_play() {
        let trace = sample();
        let told: Vec<String> = of_match(&trace, "2030-06-01").into_iter().map(line).collect();
        assert_eq!(
            told,
            [
                "0' kick_off 0-0 confirmed r1",
                "31' penalty 0-1 provisional r1",
                "31' penalty 0-1 confirmed r2",
                "45+2' goal 1-1 confirmed r1",
                "45' half_time 1-1 confirmed r1",
                "46' goal 2-1 confirmed r1",
                "90+9' goal 2-2 provisional r1",
                "90+9' own_goal 2-2 confirmed r2",
                "90' full_time 2-2 confirmed r1",
            ]
        );
    }

    #[test]
    fn extra_time_and_penalties_follow_full_time() {
        let trace = sample();
        let told: Vec<String> = of_match(&trace, "2030-06-02").into_iter().map(line).collect();
        assert_eq!(
            told,
            [
                "0' kick_off 0-0 confirmed r1",
                "45' half_time 0-0 confirmed r1",
                "90' extra_time 0-0 confirmed r1",
                "105+1' goal 1-0 provisional r1",
                "105+1' goal 1-0 confirmed r2",
                "119' goal 1-1 confirmed r1",
                "120' penalty_shootout 1-1 confirmed r1",
                "120' full_time 1-1 confirmed r1",
            ]
        );
    }

    #[test]
    fn a_period_score_that_disagrees_is_corrected() {
        let trace = sample();
        let told: Vec<String> = of_match(&trace, "2030-06-03").into_iter().map(line).collect();
        assert!(told.contains(&"45' half_time 0-0 confirmed r1".to_owned()), "{told:?}");
        assert!(told.contains(&"45' correction 0-1 confirmed r1".to_owned()), "{told:?}");
    }

    #[test]
    fn matches_follow_each_other_and_unplayed_ones_are_told() {
        let trace = sample();
        assert!(trace.steps.windows(2).all(|w| w[0].at <= w[1].at));
        assert_eq!(trace.skipped["match without a result"], 1);
        assert_eq!(trace.skipped["malformed"], 1);
    }
}
