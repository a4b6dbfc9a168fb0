//! What a room's score is, from its score events: the rule of the protocol, for whoever shows one.
//!
//! Of one (match, key) the highest revision counts; a match's score is that of its newest event that is not withdrawn, by the first
//! revision that was seen of each, what is `historical` before all that is not. So a late correction of the first goal does not take the
//! second one back. The order in which events are given does not matter beyond that, and one that comes twice changes nothing.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Events kept of all matches of a room: seventeen kinds of a few dozen matches are far below.
const EVENTS_MAX: usize = 16_384;

/// A `score_event`, as far as a score is made from it.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct ScoreSeen {
    pub match_id: String,
    pub key: String,
    #[serde(default)]
    pub revision: u64,
    #[serde(default)]
    pub kind: String,
    #[serde(default)]
    pub state: String,
    pub score: Goals,
    pub minute: Option<String>,
    #[serde(default)]
    pub historical: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub struct Goals {
    pub home: u32,
    pub away: u32,
}

/// The scores of one room's matches.
#[derive(Clone, Default, Debug)]
pub struct Scores {
    /// By match and key, with the place of the first revision that was seen.
    events: BTreeMap<(String, String), (u64, ScoreSeen)>,
    seen: u64,
}

impl Scores {
    /// Takes an event's JSON. Gives what is news of it: nothing for a repeat, a lower revision, or what is no score event.
    pub fn take(&mut self, json: &str) -> Option<ScoreSeen> {
        let event: ScoreSeen = serde_json::from_str(json).ok()?;
        let name = (event.match_id.clone(), event.key.clone());
        if let Some((_, known)) = self.events.get_mut(&name) {
            if known.revision >= event.revision {
                return None;
            }
            *known = event.clone();
            return Some(event);
        }
        if self.events.len() >= EVENTS_MAX {
            return None;
        }
        self.seen += 1;
        self.events.insert(name, (self.seen, event.clone()));
        Some(event)
    }

    /// The event whose score each match has now, by match.
    pub fn current(&self) -> Vec<&ScoreSeen> {
        let mut by_match: BTreeMap<&str, (bool, u64, &ScoreSeen)> = BTreeMap::new();
        for (place, event) in self.events.values().filter(|(_, event)| event.state != "withdrawn") {
            let rank = (!event.historical, *place, event);
            let best = by_match.entry(&event.match_id).or_insert(rank);
            if (rank.0, rank.1) > (best.0, best.1) {
                *best = rank;
            }
        }
        by_match.into_values().map(|(.., event)| event).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Scores;

    fn event(key: &str, revision: u32, home: u32, away: u32, more: &str) -> String {
        format!(
            r#"{{"type":"score_event","match_id":"m","key":"{key}","revision":{revision},"kind":"goal","state":"confirmed","score":{{"home":{home},"away":{away}}},"minute":null{more}}}"#
        )
    }

    fn now(scores: &Scores) -> Vec<(u32, u32)> {
        scores.current().iter().map(|event| (event.score.home, event.score.away)).collect()
    }

    #[test]
    fn a_late_correction_of_the_first_goal_does_not_take_the_second_one_back() {
        let mut scores = Scores::default();
        assert_eq!(now(&scores), []);
        assert!(scores.take(&event("a", 1, 1, 0, "")).is_some());
        assert!(scores.take(&event("b", 1, 1, 1, "")).is_some());
        assert!(scores.take(&event("a", 2, 1, 0, "")).is_some(), "a correction is news");
        assert_eq!(now(&scores), [(1, 1)]);
        assert!(scores.take(&event("b", 1, 9, 9, "")).is_none(), "a repeat is none");
        assert!(scores.take(&event("b", 2, 1, 1, "").replace("confirmed", "withdrawn")).is_some());
        assert_eq!(now(&scores), [(1, 0)]);
    }

    #[test]
    fn history_that_comes_late_ranks_before_news() {
        let mut scores = Scores::default();
        assert!(scores.take(&event("b", 1, 2, 0, "")).is_some());
        assert!(scores.take(&event("a", 1, 1, 0, r#","historical":true"#)).is_some());
        assert_eq!(now(&scores), [(2, 0)]);
        assert!(scores.take(r#"{"type":"comment","body":"no score"}"#).is_none());
    }
}
