//! What a match's provider has said so far, and what one more score event is to it.
//!
//! Identity is (match, provider, event, revision). A goal and its later correction are the same event with two revisions;
//! viewers keep the highest, whatever order they came in. The same identity with the same payload is a repeat and gets the
//! first answer; with another payload it is a conflict, never a silent change. A provider that sends no revisions has them
//! minted: each payload not seen before of an event is the next revision.
//!
//! What a provider says is a *line*; what viewers are shown is a *row*. They are the same until somebody comes between them: a
//! match with a feed ([`crate::feed`]) shows its primary provider alone, an operator's correction is one more revision of the row,
//! and after a switch-over another provider's line goes on with it. A row that was ever handled so is numbered by the server: its
//! revisions only rise, whoever they come from, and viewers need to know nothing but that the highest counts.
//!
//! A ledger is a function of the log's records. It never forgets while its room shows the match.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::feed::Feed;
use crate::ids::{EventId, Position, Revision};
use crate::names::{Key, RoomId};
use crate::planted::planted;
use crate::record::{Audience, Body, Record, Score, ScoreKind, ScoreState, Shown};
use crate::routing;

/// Whose what operators type is. No provider may have this name.
pub const OPERATOR: &str = "operator";

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
    /// What was said, by provider and event.
    pub lines: BTreeMap<(Key, Key), Line>,
    /// What is shown, by the key that viewers know it under.
    pub rows: BTreeMap<Key, Row>,
    /// Who is shown; `None`: everybody who sends.
    pub feed: Option<Feed>,
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
    /// The row it goes on with, where that is not the one of its own name.
    pub row: Option<Key>,
}

/// One event as viewers have it.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// The first record that was shown of it: its place among the others.
    pub first: EventId,
    /// The record of the highest revision that was shown.
    pub top: Arc<Record>,
    /// Whose line it shows.
    pub of: (Key, Key),
    /// By the server, whatever its provider counts.
    pub numbered: bool,
}

impl Line {
    pub fn score(&self) -> &Score {
        score_of(&self.top)
    }
    pub fn stands(&self) -> bool {
        self.score().stands()
    }
    /// The highest is the newest event: what a provider replayed as history ranks before what was news.
    pub fn rank(&self) -> (bool, EventId) {
        (!self.score().historical, self.first)
    }
}

impl Row {
    pub fn score(&self) -> &Score {
        score_of(&self.top)
    }
    pub fn stands(&self) -> bool {
        self.score().stands()
    }
    /// As of [`Line::rank`].
    pub fn rank(&self) -> (bool, EventId) {
        (!self.score().historical, self.first)
    }
    /// As viewers know it.
    pub fn revision(&self) -> Revision {
        self.score().shown_as().1
    }
    /// The number of what goes on with it.
    pub fn next(&self) -> Revision {
        Revision(self.revision().0 + 1)
    }
}

/// How a revision that was never seen goes to viewers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Showing {
    /// Under its own name and number.
    Plain,
    As(Shown),
    /// It is written down, and shown to nobody.
    Hidden,
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
        check("provider", !is_operator(&self.provider), "operator is no provider's name");
        check("revision", revision_ok, "1 to 1000000");
        check("score", self.home <= GOALS_MAX && self.away <= GOALS_MAX, "home and away are 0 to 10000");
        check("minute", self.minute.as_deref().is_none_or(is_minute), MINUTE_RULE);
        check("data", self.data.as_ref().is_none_or(|d| d.len() <= DATA_BYTES_MAX), "at most 16 KiB");
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }

    /// Of which event of which provider.
    pub fn line(&self) -> (Key, Key) {
        (self.provider.clone(), self.event.clone())
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
            shown: None,
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

    /// Whether viewers are shown what a provider says.
    pub fn shows(&self, provider: &Key) -> bool {
        self.feed.as_ref().is_none_or(|feed| *provider == feed.primary || is_operator(provider))
    }

    /// How `score` is shown, of which no revision like it was seen.
    pub fn showing(&self, score: &ScoreIn, revision: Revision) -> Showing {
        let line = score.line();
        if !self.shows(&line.0) && !planted(120) {
            return Showing::Hidden;
        }
        let known = self.lines.get(&line);
        let late = known.and_then(|known| known.seen.last()).is_some_and(|highest| revision < highest.revision);
        let own = known.and_then(|known| known.row.as_ref()).unwrap_or(&line.1);
        let next = |key: &Key, row: &Row| {
            let revision = if planted(121) { revision } else { row.next() };
            Showing::As(Shown { key: key.clone(), revision, again: false })
        };
        match self.rows.get(own) {
            Some(row) if row.of == line && !row.numbered => Showing::Plain,
            // Of what is numbered anew, and of what was never shown, a lower revision that comes late says nothing.
            _ if late => Showing::Hidden,
            Some(row) if row.of == line => next(own, row),
            other => match self.left_for(score) {
                Some((key, row)) => next(key, row),
                None if other.is_none() => Showing::Plain,
                None => Showing::As(Shown { key: self.free_key(&line, &BTreeSet::new()), revision, again: false }),
            },
        }
    }

    /// How an operator's word on a row, or on a new event, is shown, and which revision of the operators' own line it is.
    pub fn showing_typed(&self, event: &Key) -> (Revision, Showing) {
        let line = (operator(), event.clone());
        let said = self.lines.get(&line).and_then(|line| line.seen.last());
        let revision = Revision(said.map_or(0, |seen| seen.revision.0) + 1);
        let showing = self.rows.get(event).map_or(Showing::Plain, |row| {
            Showing::As(Shown { key: event.clone(), revision: row.next(), again: false })
        });
        (revision, showing)
    }

    /// A row's key for a line: its own name, or one made of its provider's and that, where another row or `taken` has it.
    pub(crate) fn free_key(&self, (provider, event): &(Key, Key), taken: &BTreeSet<Key>) -> Key {
        let whole = format!("{provider}:{event}");
        let hashed = format!("~{:016x}", routing::stable_hash(whole.as_bytes()));
        let mut names = [Some(event.clone()), Key::parse(&whole)].into_iter().flatten();
        let free = names.find(|key| !self.rows.contains_key(key) && !taken.contains(key));
        free.unwrap_or_else(|| Key::parse(&hashed).expect("17 visible characters are a key"))
    }

    /// The newest record of the match, or START: what an operator was shown is still all there is while this stands.
    pub fn version(&self) -> Position {
        let seen = self.lines.values().flat_map(|line| &line.seen).map(|seen| seen.event_id).max();
        let rows = self.rows.values().map(|row| row.top.event_id()).max();
        let newest = seen.max(rows).max(self.feed.as_ref().map(|feed| feed.since));
        newest.map_or(Position::START, EventId::position)
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
        let id = (score.provider.clone(), score.event.clone());
        let line = self.lines.entry(id.clone()).or_insert_with(|| Line {
            first: record.event_id(),
            seen: Vec::new(),
            top: record.clone(),
            row: None,
        });
        // One that is shown again was seen.
        if let Err(place) = line.seen.binary_search_by_key(&score.revision, |s| s.revision) {
            line.seen.insert(place, seen);
            if place + 1 == line.seen.len() {
                line.top = record.clone();
            }
        }
        if record.audience != Audience::Everyone {
            return;
        }
        let (key, revision) = score.shown_as();
        if score.shown.is_some() {
            line.row = Some(key.clone());
        }
        let row = self.rows.entry(key.clone()).or_insert_with(|| Row {
            first: record.event_id(),
            top: record.clone(),
            of: id.clone(),
            numbered: false,
        });
        if score.shown.is_some() {
            row.numbered = true;
            // What an operator corrects stays its provider's.
            if !is_operator(&score.provider) {
                row.of = id;
            }
        }
        let known = row.revision();
        if if planted(10) { revision < known } else { revision > known } {
            row.top = record.clone();
        }
    }

    /// The score as of the newest event that stands. An event keeps the place of its first revision, so that a late
    /// correction of the first goal does not take the second one back; what a provider replayed as history ranks before
    /// what was news.
    pub fn current(&self, match_id: &Key) -> Option<CurrentScore> {
        let standing = self.rows.values().filter(|row| row.stands()).max_by_key(|row| row.rank());
        let nothing = || {
            let (match_id, state) = (match_id.clone(), ScoreState::Withdrawn);
            CurrentScore { match_id, home: 0, away: 0, state, minute: None, event_id: None }
        };
        let shown = standing.map(|row| CurrentScore {
            match_id: match_id.clone(),
            home: row.score().home,
            away: row.score().away,
            state: row.score().state,
            minute: row.score().minute.clone(),
            event_id: Some(row.top.event_id()),
        });
        shown.or_else(|| (!self.rows.is_empty()).then(nothing))
    }

    /// Every row's newest revision, in order of first showing.
    pub fn tops(&self) -> impl Iterator<Item = &Arc<Record>> {
        let mut rows: Vec<&Row> = self.rows.values().collect();
        rows.sort_by_key(|row| row.first);
        rows.into_iter().map(|row| &row.top)
    }
}

/// The operators' name among providers.
pub fn operator() -> Key {
    Key::parse(OPERATOR).expect("it is a word")
}

pub fn is_operator(provider: &Key) -> bool {
    provider.as_str() == OPERATOR
}

fn score_of(record: &Record) -> &Score {
    match &record.body {
        Body::Score(score) => score,
        _ => unreachable!("a ledger takes in scores alone"),
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
