//! Whether the providers of matches are there, and whether they agree.
//!
//! Like an editor with two telephones: a line on which nothing was said for too long is told to the readers, and told again when
//! it speaks; two lines that say different scores for too long are brought to somebody who decides. Whatever a provider signs is a
//! sign of life, for all of its matches. Nothing of it is kept: after a restart each provider has the whole time once more.
//!
//! It must never call a provider silent that was heard, or a difference one that lasted less than told: between two goals every pair
//! of providers differs for a while.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::names::{Key, RoomId};
use crate::time::{Mono, Wall};

/// Providers remembered: more than any site has.
pub const PROVIDERS_MAX: usize = 1_024;
/// Rooms told of a silent provider at one time; about as much as half a megabyte to each gateway.
pub const TOLD_MAX: usize = 1_024;
/// That a provider is back is said for so long, so that it reaches whoever could not be told at once.
pub const BACK_FOR: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// A provider that is silent for so long is told of; `None`: never.
    pub stale_after: Option<Duration>,
    /// Two that differ for so long disagree.
    pub differ_after: Duration,
}

/// A match that is shown from a primary provider, as it is now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fed {
    pub match_id: Key,
    /// Those of the rooms that show it which are live.
    pub rooms: Vec<RoomId>,
    pub primary: Key,
    pub stand_by: Option<Key>,
    /// The score as the two have it, where each has said anything.
    pub score: Option<(u32, u32)>,
    pub other: Option<(u32, u32)>,
}

/// What a room's viewers are told of a match.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Silence {
    pub room: RoomId,
    pub match_id: Key,
    pub provider: Key,
    /// When it was heard last.
    pub since: Wall,
    /// It is back.
    pub ended: bool,
}

struct Silent {
    provider: Key,
    since: Wall,
    rooms: Vec<RoomId>,
    back: Option<Mono>,
}

struct Differ {
    since: Mono,
    since_wall: Wall,
    counted: bool,
}

pub struct Watch {
    settings: Settings,
    began: (Mono, Wall),
    heard: BTreeMap<Key, (Mono, Wall)>,
    silent: BTreeMap<Key, Silent>,
    differ: BTreeMap<Key, Differ>,
    n_silences: u64,
    n_disagreements: u64,
}

impl Watch {
    pub fn new(settings: Settings, now: Mono, wall: Wall) -> Watch {
        let (heard, silent, differ) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Watch { settings, began: (now, wall), heard, silent, differ, n_silences: 0, n_disagreements: 0 }
    }

    /// A provider has said something.
    pub fn hear(&mut self, provider: &Key, now: Mono, wall: Wall) {
        if self.heard.len() >= PROVIDERS_MAX && !self.heard.contains_key(provider) {
            let oldest = self.heard.iter().min_by_key(|(_, (at, _))| *at).map(|(name, _)| name.clone());
            if let Some(name) = oldest {
                self.heard.remove(&name);
            }
        }
        self.heard.insert(provider.clone(), (now, wall));
    }

    /// Holds all matches that are shown from a provider against what was heard. In order of their ids.
    pub fn look(&mut self, matches: &[Fed], now: Mono, wall: Wall) {
        let heard = |id: &Key| self.heard.get(id).copied().unwrap_or(self.began);
        let stale_after = self.settings.stale_after;
        let is_silent = |id: &Key| stale_after.is_some_and(|limit| now.since(heard(id).0) >= limit);
        for fed in matches {
            let primary_silent = is_silent(&fed.primary);
            let mut known = self.silent.get_mut(&fed.match_id).filter(|silent| silent.back.is_none());
            if let Some(silent) = known.take_if(|silent| silent.provider != fed.primary) {
                // Another one is shown now.
                silent.back = Some(now);
            }
            match known {
                Some(silent) if primary_silent && !fed.rooms.is_empty() => silent.rooms.clone_from(&fed.rooms),
                None if primary_silent && !fed.rooms.is_empty() => {
                    self.n_silences += 1;
                    let (provider, rooms) = (fed.primary.clone(), fed.rooms.clone());
                    let silent = Silent { provider, since: heard(&fed.primary).1, rooms, back: None };
                    self.silent.insert(fed.match_id.clone(), silent);
                }
                Some(silent) => silent.back = Some(now),
                None => {}
            }
            // Who is silent says nothing of the score: that it is silent is told.
            let both = !primary_silent && fed.stand_by.as_ref().is_some_and(|id| !is_silent(id));
            match (fed.score, fed.other) {
                (Some(one), Some(other)) if one != other && both => {
                    let first = Differ { since: now, since_wall: wall, counted: false };
                    let differ = self.differ.entry(fed.match_id.clone()).or_insert(first);
                    if !differ.counted && now.since(differ.since) >= self.settings.differ_after {
                        differ.counted = true;
                        self.n_disagreements += 1;
                    }
                }
                _ => drop(self.differ.remove(&fed.match_id)),
            }
        }
        let named = |id: &Key| matches.binary_search_by(|fed| fed.match_id.cmp(id)).is_ok();
        for (id, silent) in &mut self.silent {
            // Nobody is shown of it any more, or it is shown nowhere.
            if silent.back.is_none() && !named(id) {
                silent.back = Some(now);
            }
        }
        self.silent.retain(|_, silent| silent.back.is_none_or(|at| now.since(at) < BACK_FOR));
        self.differ.retain(|id, _| named(id));
    }

    /// What rooms are to be told, in their order; at most [`TOLD_MAX`].
    pub fn told(&self) -> Vec<Silence> {
        let each = |(match_id, silent): (&Key, &Silent)| {
            let (match_id, provider, since) = (match_id.clone(), silent.provider.clone(), silent.since);
            let ended = silent.back.is_some();
            let one = move |room: &RoomId| Silence {
                room: room.clone(),
                match_id: match_id.clone(),
                provider: provider.clone(),
                since,
                ended,
            };
            silent.rooms.iter().map(one).collect::<Vec<_>>()
        };
        let mut told: Vec<Silence> = self.silent.iter().flat_map(each).collect();
        told.sort();
        told.truncate(TOLD_MAX);
        told
    }

    /// When a provider was heard last.
    pub fn heard(&self, provider: &Key) -> Option<Wall> {
        self.heard.get(provider).map(|(_, wall)| *wall)
    }

    /// Since when nothing came for a match.
    pub fn silent_since(&self, match_id: &Key) -> Option<Wall> {
        self.silent.get(match_id).filter(|silent| silent.back.is_none()).map(|silent| silent.since)
    }

    /// Since when the two of a match disagree.
    pub fn differs_since(&self, match_id: &Key) -> Option<Wall> {
        self.differ.get(match_id).filter(|differ| differ.counted).map(|differ| differ.since_wall)
    }

    /// Matches of which nothing comes, and how often that began.
    pub fn silences(&self) -> (u64, u64) {
        (self.silent.values().filter(|silent| silent.back.is_none()).count() as u64, self.n_silences)
    }

    /// Matches whose providers disagree, and how often that began.
    pub fn disagreements(&self) -> (u64, u64) {
        (self.differ.values().filter(|differ| differ.counted).count() as u64, self.n_disagreements)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{BACK_FOR, Fed, Settings, Watch};
    use crate::names::{Key, RoomId};
    use crate::time::{Mono, Wall};

    fn key(text: &str) -> Key {
        Key::parse(text).unwrap()
    }

    fn fed(score: u32, other: Option<u32>) -> Fed {
        Fed {
            match_id: key("m"),
            rooms: vec![RoomId::parse("r").unwrap()],
            primary: key("p"),
            stand_by: Some(key("q")),
            score: Some((score, 0)),
            other: other.map(|n| (n, 0)),
        }
    }

    struct Stage(Watch);

    impl Stage {
        fn new() -> Stage {
            let settings =
                Settings { stale_after: Some(Duration::from_secs(20)), differ_after: Duration::from_secs(10) };
            Stage(Watch::new(settings, Mono(0), Wall(0)))
        }
        fn at(&mut self, seconds: u64, fed: &[Fed]) -> Vec<(bool, u64)> {
            self.0.look(fed, Mono(seconds * 1_000_000), Wall(seconds * 1_000));
            self.0.told().iter().map(|told| (told.ended, told.since.0)).collect()
        }
        fn hear(&mut self, seconds: u64) {
            self.hear_of("p", seconds);
        }
        fn hear_of(&mut self, id: &str, seconds: u64) {
            self.0.hear(&key(id), Mono(seconds * 1_000_000), Wall(seconds * 1_000));
        }
    }

    #[test]
    fn a_silent_provider_is_told_of_and_told_again_when_it_is_back() {
        let mut stage = Stage::new();
        let one = [fed(0, None)];
        assert_eq!(stage.at(19, &one), []);
        stage.hear(19);
        assert_eq!(stage.at(38, &one), []);
        assert_eq!(stage.at(39, &one), [(false, 19_000)]);
        assert_eq!(stage.0.silences(), (1, 1));
        stage.hear(50);
        assert_eq!(stage.at(51, &one), [(true, 19_000)]);
        stage.hear(70);
        assert_eq!(stage.at(51 + BACK_FOR.as_secs(), &one), [], "then nothing is left to be told");
        assert_eq!(stage.0.silences(), (0, 1));
        assert_eq!(stage.at(90, &one), [(false, 70_000)], "and it may fall silent once more");
    }

    #[test]
    fn a_match_that_is_not_live_any_more_is_not_told_of() {
        let mut stage = Stage::new();
        let quiet = Fed { rooms: Vec::new(), ..fed(0, None) };
        assert_eq!(stage.at(60, std::slice::from_ref(&quiet)), []);
        assert_eq!(stage.at(61, &[fed(0, None)]), [(false, 0)]);
        assert_eq!(stage.at(62, std::slice::from_ref(&quiet)), [(true, 0)]);
        assert_eq!(stage.at(63, &[fed(0, None)]), [(false, 0)]);
        assert_eq!(stage.at(64, &[]), [(true, 0)]);
    }

    #[test]
    fn providers_that_differ_for_long_disagree_once() {
        let mut stage = Stage::new();
        let mut at = |seconds, one, other| {
            stage.hear_of("p", seconds);
            if seconds < 60 {
                stage.hear_of("q", seconds);
            }
            stage.at(seconds, &[fed(one, other)]);
            stage.0.disagreements()
        };
        assert_eq!(at(0, 1, Some(0)), (0, 0));
        assert_eq!(at(9, 1, Some(0)), (0, 0), "the other one is only slower");
        assert_eq!(at(9, 1, Some(1)), (0, 0));
        assert_eq!(at(10, 2, Some(1)), (0, 0));
        assert_eq!(at(20, 2, Some(1)), (1, 1));
        assert_eq!(at(30, 2, Some(0)), (1, 1));
        assert_eq!(at(31, 2, Some(2)), (0, 1));
        assert_eq!(at(50, 2, None), (0, 1), "who has said nothing does not disagree");
        assert_eq!(at(59, 3, Some(2)), (0, 1));
        assert_eq!(at(70, 3, Some(2)), (1, 2));
        assert_eq!(at(80, 3, Some(2)), (0, 2), "nor does who is silent");
    }
}
