//! What a match's provider has said so far, and what one more score event is to it.
//!
//! Identity is (match, provider, event, revision). A goal and its later correction are the same event with two revisions;
//! viewers keep the highest, whatever order they came in. The same identity with the same payload is a repeat and gets the
//! first answer; with another payload it is a conflict, never a silent change. A provider that sends no revisions has them
//! minted: each payload not seen before of an event is the next revision.
//!
//! A ledger is a function of the log's score records. It never forgets while its room shows the match.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ids::{EventId, Revision};
use crate::names::{Key, RoomId};
use crate::planted::planted;
use crate::record::{Body, Record, Score, ScoreKind, ScoreState};

pub const REVISION_MAX: u32 = 1_000_000;
pub const GOALS_MAX: u32 = 10_000;
pub const MINUTE_RULE: &str = "must be 78, 90+2, 78:14, or one of HT FT ET AET PEN";
pub const DATA_BYTES_MAX: usize = 16 * 1024;

/// One score event as it comes in, signature and shape checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScoreIn {
    pub match_id: Key,
    pub provider: Key,
    /// The provider's own event id.
    pub event: Key,
    /// `None` when the provider does not number: minted by arrival.
    pub revision: Option<Revision>,
    pub kind: ScoreKind,
    pub state: ScoreState,
    pub home: u32,
    pub away: u32,
    pub minute: Option<Arc<str>>,
    pub historical: bool,
    /// Of the canonical payload: equal for a repeat, different for anything else. Neither the identity nor `historical`
    /// is part of it: a recovery replay of what is known already is a repeat.
    pub digest: [u8; 16],
    /// Extra JSON; kept, never fanned out.
    pub data: Option<Arc<str>>,
    /// Development mode: the room that shows this match from now on.
    pub room: Option<RoomId>,
}

/// Every revision of the events of one match, as one room was given them.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Ledger {
    /// By provider and event.
    pub lines: BTreeMap<(Key, Key), Line>,
}

/// One event of a provider.
#[derive(Clone, PartialEq, Debug)]
pub struct Line {
    /// The room's id for the first revision that arrived: the event's place among the others.
    pub first: EventId,
    /// Rising by revision.
    pub seen: Vec<Seen>,
    /// The record of the highest revision.
    pub top: Arc<Record>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    pub revision: Revision,
    pub digest: [u8; 16],
    pub event_id: EventId,
    pub superseded: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Not known: to be logged as this revision. `known_event` when another revision of the event is there.
    Fresh { revision: Revision, superseded: bool, known_event: bool },
    /// The same payload was logged before.
    Repeat(Seen),
    /// Another payload was logged under this identity.
    Conflict,
}

/// The score of a match as a header shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CurrentScore {
    pub match_id: Key,
    pub home: u32,
    pub away: u32,
    pub state: ScoreState,
    pub minute: Option<Arc<str>>,
    /// The score event it comes from; `None` when everything was withdrawn.
    pub event_id: Option<EventId>,
}

impl ScoreIn {
    /// Errors: every field that breaks its rule, with the rule.
    pub fn check(&self) -> Result<(), Vec<(String, String)>> {
        let mut faults = Vec::new();
        let mut check = |field: &str, ok: bool, rule: &str| {
            if !ok {
                faults.push((field.to_owned(), rule.to_owned()));
            }
        };
        let revision_ok = self.revision.is_none_or(|r| (1..=REVISION_MAX).contains(&r.0));
        check("revision", revision_ok, "1 to 1000000");
        check("score", self.home <= GOALS_MAX && self.away <= GOALS_MAX, "home and away are 0 to 10000");
        check("minute", self.minute.as_deref().is_none_or(is_minute), MINUTE_RULE);
        check("data", self.data.as_ref().is_none_or(|d| d.len() <= DATA_BYTES_MAX), "at most 16 KiB");
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }

    pub fn into_score(self, revision: Revision, superseded: bool) -> Score {
        Score {
            match_id: self.match_id,
            provider: self.provider,
            event: self.event,
            revision,
            kind: self.kind,
            state: self.state,
            home: self.home,
            away: self.away,
            minute: self.minute,
            superseded,
            historical: self.historical,
            digest: self.digest,
            data: self.data,
        }
    }
}

/// Up to three digits, up to two of added time, two of seconds; or a phase of a closed list. At most ten bytes.
pub fn is_minute(text: &str) -> bool {
    let digits = |t: &str, most: usize| (1..=most).contains(&t.len()) && t.bytes().all(|b| b.is_ascii_digit());
    if matches!(text, "HT" | "FT" | "ET" | "AET" | "PEN") {
        return true;
    }
    let (minute, seconds) = text.split_once(':').unwrap_or((text, "00"));
    let (minute, added) = minute.split_once('+').unwrap_or((minute, "0"));
    digits(minute, 3) && digits(added, 2) && digits(seconds, 2) && seconds.len() == 2
}

impl Ledger {
    /// What `score` is to what has been logged.
    pub fn decide(&self, score: &ScoreIn) -> Decision {
        let Some(line) = self.lines.get(&(score.provider.clone(), score.event.clone())) else {
            let revision = score.revision.unwrap_or(Revision(1));
            return Decision::Fresh { revision, superseded: false, known_event: false };
        };
        let highest = line.seen.last().expect("a line has a revision").revision;
        let revision = match score.revision {
            None => match line.seen.iter().find(|s| s.digest == score.digest) {
                Some(seen) => return Decision::Repeat(*seen),
                None => Revision(highest.0 + 1),
            },
            Some(revision) => match line.seen.iter().find(|s| s.revision == revision) {
                Some(seen) if seen.digest == score.digest => return Decision::Repeat(*seen),
                Some(_) => return Decision::Conflict,
                None => revision,
            },
        };
        Decision::Fresh { revision, superseded: revision < highest, known_event: true }
    }

    /// Takes in a score record of the log.
    pub fn apply(&mut self, record: &Arc<Record>) {
        let Body::Score(score) = &record.body else { return };
        let seen = Seen {
            revision: score.revision,
            digest: score.digest,
            event_id: record.event_id(),
            superseded: score.superseded,
        };
        let key = (score.provider.clone(), score.event.clone());
        let line = self.lines.entry(key).or_insert_with(|| Line {
            first: record.event_id(),
            seen: Vec::new(),
            top: record.clone(),
        });
        let Err(place) = line.seen.binary_search_by_key(&score.revision, |s| s.revision) else { return };
        line.seen.insert(place, seen);
        let is_highest = place + 1 == line.seen.len();
        if if planted(10) { place == 0 } else { is_highest } {
            line.top = record.clone();
        }
    }

    /// The score as of the newest event that stands. An event keeps the place of its first revision, so that a late
    /// correction of the first goal does not take the second one back; what a provider replayed as history ranks before
    /// what was news.
    pub fn current(&self, match_id: &Key) -> Option<CurrentScore> {
        let scores = || self.lines.values().filter_map(|line| Some((line, score_of(&line.top)?)));
        let standing = scores()
            .filter(|(_, s)| s.state != ScoreState::Withdrawn)
            .max_by_key(|(line, s)| (!s.historical, line.first));
        let nothing = || {
            let (match_id, state) = (match_id.clone(), ScoreState::Withdrawn);
            CurrentScore { match_id, home: 0, away: 0, state, minute: None, event_id: None }
        };
        let shown = standing.map(|(line, s)| CurrentScore {
            match_id: match_id.clone(),
            home: s.home,
            away: s.away,
            state: s.state,
            minute: s.minute.clone(),
            event_id: Some(line.top.event_id()),
        });
        shown.or_else(|| scores().next().map(|_| nothing()))
    }
}

fn score_of(record: &Record) -> Option<&Score> {
    match &record.body {
        Body::Score(score) => Some(score),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::is_minute;

    #[test]
    fn minutes_have_a_few_forms() {
        for good in ["1", "78", "90+2", "78:14", "90+2:05", "120", "HT", "FT", "ET", "AET", "PEN"] {
            assert!(is_minute(good), "{good}");
        }
        for bad in ["", "+2", "90+", "78:1", "1234", "ht", "90+123", "-1", "7 8", "<b>", "78:14:00"] {
            assert!(!is_minute(bad), "{bad}");
        }
    }
}
