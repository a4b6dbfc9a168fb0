//! Who is shown of a match, read anew from the log: nobody but its primary and the operators, numbers that rise, operators' changes
//! against what they were shown, and the primary's score wherever nothing that is not its own stands.

use std::collections::BTreeMap;
use std::sync::Arc;

use grandstand_core::ids::{EventId, Revision};
use grandstand_core::names::{Key, RoomId};
use grandstand_core::record::{Audience, Body, Record, Score, ScoreState};

use super::{Violations, Weight};

/// Begins the audit of an operator's change of a match; the newest record of the match that it was made against follows.
pub const AUDIT: &str = "desk";
const OPERATOR: &str = "operator";

/// What one provider said of one event, or viewers were shown of it: its place, and the highest revision.
struct Told<'a> {
    first: EventId,
    revision: Revision,
    score: &'a Score,
}

/// A match in one room.
#[derive(Default)]
struct Match<'a> {
    primary: Option<&'a Key>,
    lines: BTreeMap<(&'a Key, &'a Key), Told<'a>>,
    rows: BTreeMap<&'a Key, Told<'a>>,
    /// Whose line a row shows.
    of: BTreeMap<&'a Key, &'a Key>,
    newest: u64,
    /// Before the change that is being read.
    before: u64,
    /// The primary had something to say when it was made that.
    knows: bool,
    /// The change is in the log to its end. A torn batch may hold the beginning alone; asked for again, it is made whole.
    whole: bool,
    /// Its audit is still to come.
    feeding: bool,
    /// What followed the last event may have been torn off with its batch; the primary's next event puts it right.
    torn: bool,
}

pub fn check(valid: &[&Arc<Record>], found: &mut Violations, weight: &mut Weight) {
    let mut matches: BTreeMap<(&RoomId, &Key), Match<'_>> = BTreeMap::new();
    let mut last: Option<(&RoomId, &Key)> = None;
    for record in valid {
        let id = record.event_id();
        let again = matches!(&record.body, Body::Score(score) if score.shown.as_ref().is_some_and(|shown| shown.again));
        if !again && let Some(of) = last.take() {
            match record.body {
                Body::EpochStart => matches.entry(of).or_default().torn = true,
                _ => matches[&of].judge(of.0, id, found),
            }
        }
        let Some(room) = &record.room else { continue };
        match &record.body {
            Body::Score(score) => {
                let of = matches.entry((room, &score.match_id)).or_default();
                if score.provider.as_str() == OPERATOR && !again {
                    of.before = of.newest;
                    of.feeding = false;
                }
                of.take(record, score, again, found);
                of.newest = id.value();
                last = Some((room, &score.match_id));
            }
            Body::Feed(feed) => {
                let of = matches.entry((room, &feed.match_id)).or_default();
                of.before = of.newest;
                of.newest = id.value();
                weight.switches += u64::from(of.primary.is_some_and(|primary| *primary != feed.primary));
                let mut own = of.lines.iter().filter(|((provider, _), _)| **provider == feed.primary);
                of.knows = own.any(|(_, told)| told.score.state != ScoreState::Withdrawn);
                (of.whole, of.feeding, of.torn) = (false, true, false);
                of.primary = Some(&feed.primary);
                for (_, key) in &feed.twins {
                    of.of.insert(key, &feed.primary);
                }
                last = Some((room, &feed.match_id));
            }
            Body::Audit(audit) if &*audit.what == AUDIT => {
                let mut mine = matches.iter_mut().filter(|((of, _), _)| *of == room).map(|(_, of)| of);
                let shown = audit.justification.parse().unwrap_or(u64::MAX);
                let Some(of) = mine.next() else { continue };
                of.whole |= std::mem::take(&mut of.feeding);
                if of.before != shown {
                    found.push(format!(
                        "feeds: a change of {room} is made against {shown}, the match was at {}",
                        of.before
                    ));
                }
            }
            _ => {}
        }
    }
    if let Some((room, name)) = last {
        let end = valid.last().expect("something was said").event_id();
        matches[&(room, name)].judge(room, end, found);
    }
}

impl<'a> Match<'a> {
    fn take(&mut self, record: &'a Record, score: &'a Score, again: bool, found: &mut Violations) {
        let id = record.event_id();
        let told = |revision| Told { first: id, revision, score };
        let line = self.lines.entry((&score.provider, &score.event)).or_insert_with(|| told(score.revision));
        let late = score.revision < line.revision;
        if score.revision > line.revision {
            (line.revision, line.score) = (score.revision, score);
        }
        if record.audience != Audience::Everyone {
            if !late && self.primary.is_none_or(|primary| *primary == score.provider) {
                found.push(format!("feeds: {} is not shown at {id:?}, and is the one to be shown", score.provider));
            }
            return;
        }
        let typed = score.provider.as_str() == OPERATOR;
        if !again && !typed && self.primary.is_some_and(|primary| *primary != score.provider) {
            found.push(format!("feeds: {} is shown at {id:?}, and only stands by", score.provider));
        }
        self.torn &= again || self.primary != Some(&score.provider);
        let (key, revision) = score.shown_as();
        let known = self.rows.get(key).map(|row| row.revision);
        if score.shown.is_some() && known.is_some_and(|known| known >= revision) {
            found.push(format!("I-13: {key} is numbered {} at {id:?}, after {known:?}", revision.0));
        }
        if !typed || known.is_none() {
            self.of.insert(key, &score.provider);
        }
        let row = self.rows.entry(key).or_insert_with(|| told(revision));
        if revision > row.revision {
            (row.revision, row.score) = (revision, score);
        }
    }

    fn judge(&self, room: &RoomId, at: EventId, found: &mut Violations) {
        let Some(primary) = self.primary else { return };
        let stands = |told: &Told<'_>| told.score.state != ScoreState::Withdrawn;
        let typed = |told: &Told<'_>| told.score.provider.as_str() == OPERATOR;
        let is_other = |key: &&Key| self.of.get(*key).is_some_and(|of| *of != primary);
        let mut standing = self.rows.iter().filter(|(_, row)| stands(row) && !typed(row));
        if let Some((key, _)) = standing.find(|(key, _)| is_other(key)) {
            if self.whole && self.knows {
                found.push(format!("feeds: before {at:?} {room} shows {key}, which {primary} knows nothing of"));
            }
            return;
        }
        if !self.whole || self.torn || self.rows.values().any(typed) {
            return;
        }
        let score_of = |told: Option<&Told<'_>>| told.map_or((0, 0), |told| (told.score.home, told.score.away));
        let newest = |told: &&Told<'a>| (!told.score.historical, told.first);
        let own = self.lines.iter().filter(|((provider, _), line)| *provider == primary && stands(line));
        let own = own.map(|(_, line)| line).max_by_key(newest);
        let shown = self.rows.values().filter(|row| stands(row)).max_by_key(newest);
        if self.lines.keys().any(|(provider, _)| *provider == primary) && score_of(own) != score_of(shown) {
            let (own, shown) = (score_of(own), score_of(shown));
            found.push(format!("feeds: before {at:?} {room} shows {shown:?}, {primary} says {own:?}"));
        }
    }
}
