//! From whom a match's score events are taken: one primary provider, and one that stands by.
//!
//! Like two reporters at one ground with one microphone between them: both write down what they see, one is heard. When the
//! microphone changes hands, what was said stays said: what both saw goes on under the name it was told by, what only the new one
//! saw is told now, as something that happened before, and what only the old one saw is taken back aloud. Nothing changes that no
//! event says, and when the switch is over the score is the new one's.
//!
//! It must never show two providers' tellings of one goal as two goals, or let the shown score fall without an event. The awkward
//! case is a provider that takes over before it has said anything: then everything stays, and what it tells later is joined to what
//! is there by what happened, one by one.
//!
//! Two tellings are of one event when they are of one class (whatever puts the score up is one class) and leave the same score:
//! minutes differ by seconds between providers, and two cards in one minute are told apart by their order.
//! Source: docs/decisions/0034-score-desk.md.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::ids::{EventId, Revision};
use crate::names::Key;
use crate::planted::planted;
use crate::record::{MatchFeed, Score, ScoreKind, ScoreState, Shown};
use crate::revision::{Ledger, Line, Row, ScoreIn, is_operator};

/// Events that one switch-over may show or take back in a room. More differ only where one of the two is no telling of this match.
pub const SWITCH_MAX: usize = 1_000;

/// Who is shown of a match.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Feed {
    pub primary: Key,
    pub stand_by: Option<Key>,
    /// The record that said so.
    pub since: EventId,
}

/// What a switch-over does to what one room shows.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Switch {
    /// Events of the new primary that go on with a row.
    pub twins: Vec<(Key, Key)>,
    /// What is told, in this order.
    pub told: Vec<Score>,
}

impl Row {
    fn retold(&self, key: &Key, score: &Score) -> Score {
        let next = if planted(121) { self.revision() } else { self.next() };
        again(score, key.clone(), next)
    }
}

/// What two providers can agree on of an event.
type Happened = (ScoreKind, u32, u32);

fn happened(kind: ScoreKind, home: u32, away: u32) -> Happened {
    let class = match kind {
        ScoreKind::Goal | ScoreKind::OwnGoal | ScoreKind::Penalty | ScoreKind::Score => ScoreKind::Goal,
        other => other,
    };
    (class, home, away)
}

impl Ledger {
    /// What follows when `primary` is shown from here on.
    pub fn switch_to(&self, primary: &Key) -> Switch {
        let mut lines: Vec<(&(Key, Key), &Line)> =
            self.lines.iter().filter(|(id, line)| id.0 == *primary && line.stands()).collect();
        lines.sort_by_key(|(_, line)| line.rank());
        let mut switch = Switch::default();
        for (key, row) in self.rows.iter().filter(|(_, row)| row.of.0 == *primary && row.stands() && !is_typed(row)) {
            // It took this back while nobody was shown it.
            let said = self.said_of(row);
            if !said.stands() {
                switch.told.push(row.retold(key, said));
            }
        }
        let Some(&(newest, _)) = lines.last() else { return switch };
        let joined = self.joined(primary, &lines);
        let mut keys: BTreeSet<Key> = BTreeSet::new();
        for (id, line) in &lines {
            let score = line.score();
            let Some(key) = joined.get(*id).copied() else {
                // Shown late: as history, but for what the score is.
                let key = self.free_key(id, &keys);
                keys.insert(key.clone());
                let told = Score { historical: *id != newest, ..score.clone() };
                switch.told.push(again(&told, key, score.revision));
                continue;
            };
            let row = &self.rows[key];
            if row.of != **id {
                switch.twins.push((id.1.clone(), key.clone()));
            }
            let told = Score { historical: row.score().historical, ..score.clone() };
            if !is_typed(row) && !tells_the_same(row.score(), &told) {
                switch.told.push(row.retold(key, &told));
            }
        }
        let kept: BTreeSet<&Key> = joined.values().copied().collect();
        for (key, row) in &self.rows {
            if row.stands() && row.of.0 != *primary && !is_typed(row) && !kept.contains(key) && !planted(122) {
                let gone = Score { state: ScoreState::Withdrawn, ..self.said_of(row).clone() };
                switch.told.push(row.retold(key, &gone));
            }
        }
        switch
    }

    /// The score that is shown once these were told; `None`: of nothing.
    pub fn score_after(&self, told: &[Score]) -> Option<(u32, u32)> {
        // By key: its rank, whether it stands, and its score.
        let shown = |score: &Score| (score.stands(), score.goals());
        let place = |row: &Row| (row.rank().0, row.first.value());
        let mut rows: BTreeMap<&Key, _> =
            self.rows.iter().map(|(key, row)| (key, (place(row), shown(row.score())))).collect();
        for (n, score) in (0u64..).zip(told) {
            let key = score.shown_as().0;
            let first = rows.get(key).map_or(u64::MAX / 2 + n, |((_, first), _)| *first);
            rows.insert(key, ((!score.historical, first), shown(score)));
        }
        let standing = rows.values().filter(|(_, (stands, _))| *stands).max_by_key(|(place, _)| *place);
        standing.map(|(_, (_, score))| *score).or((!rows.is_empty()).then_some((0, 0)))
    }

    /// What must be told, after a record of the primary, so that the score of the newest event is the score: two providers told
    /// the same events in another order, and a row's place is its first telling's. What leads wrongly becomes history.
    pub fn settle(&self) -> Vec<Score> {
        let Some(feed) = &self.feed else { return Vec::new() };
        // What another provider left standing may lead until it is taken up, or news comes.
        let left = |row: &Row| is_free(row, &feed.primary) && !is_typed(row);
        if self.rows.values().any(left) || planted(125) {
            return Vec::new();
        }
        let lines = self.lines.iter().filter(|(id, line)| id.0 == feed.primary && line.stands());
        let Some((id, line)) = lines.max_by_key(|(_, line)| line.rank()) else { return Vec::new() };
        let key = line.row.as_ref().unwrap_or(&id.1);
        let Some(lead) = self.rows.get(key).filter(|row| row.of == *id && row.stands()) else { return Vec::new() };
        let differs = |row: &Row| row.score().goals() != lead.score().goals();
        let leads = |row: &Row| row.stands() && !is_typed(row) && row.rank() > lead.rank() && differs(row);
        let wrong: Vec<(&Key, &Row)> = self.rows.iter().filter(|(_, row)| leads(row)).collect();
        let past = |row: &Row, historical| Score { historical, ..self.said_of(row).clone() };
        let news = wrong.iter().filter(|(_, row)| !row.score().historical);
        let mut told: Vec<Score> = news.map(|(key, row)| row.retold(key, &past(row, true))).collect();
        if lead.score().historical && !wrong.is_empty() {
            told.push(lead.retold(key, &past(lead, false)));
        }
        told
    }

    /// What the provider of a row says of it now. A row that changed hands may still show how another put the same.
    fn said_of<'a>(&'a self, row: &'a Row) -> &'a Score {
        self.lines.get(&row.of).map_or(row.score(), Line::score)
    }

    /// Which of a provider's lines go on with which row.
    fn joined<'a>(&'a self, primary: &Key, lines: &[(&'a (Key, Key), &'a Line)]) -> BTreeMap<&'a (Key, Key), &'a Key> {
        let mut joined = BTreeMap::new();
        for (id, line) in lines {
            let own = line.row.as_ref().unwrap_or(&id.1);
            if let Some((key, _)) = self.rows.get_key_value(own).filter(|(_, row)| row.of == **id) {
                joined.insert(*id, key);
            }
        }
        let mut rows: Vec<(&Key, &Row)> = self.rows.iter().filter(|(_, row)| is_free(row, primary)).collect();
        rows.sort_by_key(|(_, row)| row.first);
        let mut waiting: BTreeMap<Happened, VecDeque<&Key>> = BTreeMap::new();
        for (key, row) in rows {
            let score = row.score();
            waiting.entry(happened(score.kind, score.home, score.away)).or_default().push_back(key);
        }
        for (id, line) in lines {
            if joined.contains_key(id) {
                continue;
            }
            let score = line.score();
            let same = waiting.get_mut(&happened(score.kind, score.home, score.away));
            if let Some(key) = same.and_then(VecDeque::pop_front) {
                joined.insert(*id, key);
            }
        }
        joined
    }

    /// A row that a provider which is shown no more left standing, and that `score` is another telling of.
    pub(crate) fn left_for(&self, score: &ScoreIn) -> Option<(&Key, &Row)> {
        let feed = self.feed.as_ref().filter(|feed| feed.primary == score.provider)?;
        let same = |row: &Row| {
            let shown = row.score();
            happened(shown.kind, shown.home, shown.away) == happened(score.kind, score.home, score.away)
        };
        let rows = self.rows.iter().filter(|(_, row)| is_free(row, &feed.primary) && same(row));
        rows.min_by_key(|(_, row)| row.first)
    }

    /// Takes in who is shown from a record of the log.
    pub fn take_feed(&mut self, feed: &MatchFeed, since: EventId) {
        let MatchFeed { primary, stand_by, twins, .. } = feed;
        self.feed = Some(Feed { primary: primary.clone(), stand_by: stand_by.clone(), since });
        for (event, key) in twins {
            let id = (primary.clone(), event.clone());
            if let (Some(line), Some(row)) = (self.lines.get_mut(&id), self.rows.get_mut(key)) {
                line.row = Some(key.clone());
                row.of = id;
                row.numbered = true;
            }
        }
    }

    /// The score as one provider has it, shown or not; `None` while it has said nothing of the match.
    pub fn score_of(&self, provider: &Key) -> Option<(u32, u32)> {
        let mut lines = self.lines.iter().filter(|(id, _)| id.0 == *provider).map(|(_, line)| line).peekable();
        lines.peek()?;
        let newest = lines.filter(|line| line.stands()).max_by_key(|line| line.rank());
        Some(newest.map_or((0, 0), |line| line.score().goals()))
    }
}

/// One event that is shown once more, shown late, or taken back.
fn again(score: &Score, key: Key, revision: Revision) -> Score {
    let shown = Some(Shown { key, revision, again: true });
    Score { shown, superseded: false, data: None, ..score.clone() }
}

/// It stands, and is neither the operators' nor this provider's.
fn is_free(row: &Row, primary: &Key) -> bool {
    row.stands() && row.of.0 != *primary && !is_operator(&row.of.0)
}

/// An operator's word stands until an operator takes it back, or its provider says something newer.
fn is_typed(row: &Row) -> bool {
    is_operator(&row.score().provider)
}

fn tells_the_same(one: &Score, other: &Score) -> bool {
    let told = |s: &Score| (s.kind, s.state, s.goals(), s.historical);
    told(one) == told(other) && one.minute == other.minute
}
