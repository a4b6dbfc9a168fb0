//! A storm of corrections: what a real push feed was measured to do to its events, at its worst.
//!
//! 2.9 revisions an event and never more than eight, 34 % of them at the moment of the one before, 16 % after one that was said
//! later, 4 % of events taken back at last, 6 % of revisions said twice. Nothing waits for an answer before the next is said, so
//! they overtake each other on the way too. Whatever it looks like meanwhile, what was said highest of each event is what is shown
//! in the end.

use std::collections::{BTreeMap, VecDeque};

use grandstand_core::ids::Revision;
use grandstand_core::names::{Key, RoomId};
use grandstand_core::owner::answer::Answer;
use grandstand_core::owner::command::Command;
use grandstand_core::record::{ScoreKind, ScoreState};
use grandstand_core::reject::Code;
use grandstand_core::revision::ScoreIn;
use grandstand_core::rng::Rng;
use grandstand_core::time::Mono;

use crate::history::{Seen, Wish};
use crate::options::Fault;
use crate::world::clients::{RETRY_AFTER, match_of, name};
use crate::world::{ActorIdx, Event, World};

/// Of a whole storm: 120 revisions or so, within the shortest of runs.
const EVENTS: u32 = 40;
const REVISIONS_MAX: u32 = 8;
/// What may be under way at a time.
const OPEN_MAX: usize = 16;
/// From one moment at which something is said to the next.
const PAUSE_MS: (u64, u64) = (20, 200);

/// One telling of one revision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Said {
    event: u32,
    revision: u32,
    is_withdrawn: bool,
    /// At the moment of the one before.
    beside: bool,
}

pub struct Storm {
    provider: Key,
    room: RoomId,
    second: bool,
    to_say: VecDeque<Said>,
    open: BTreeMap<u64, Open>,
    n_asks: u64,
    next: Mono,
}

struct Open {
    command: Command,
    wish: Wish,
    /// When it is asked again.
    due: Mono,
}

impl Storm {
    /// `second`: the provider that stands by, which tells of the same events under names of its own.
    pub fn new(rng: &mut Rng, room: RoomId, provider: Key, second: bool) -> Storm {
        let to_say = script(rng, EVENTS).into();
        Storm { provider, room, second, to_say, open: BTreeMap::new(), n_asks: 0, next: Mono(0) }
    }

    /// What is under way, if anything is.
    pub fn undecided(&self) -> Option<&Wish> {
        self.open.values().next().map(|open| &open.wish)
    }

    /// All that is said at the next moment.
    fn next_moment(&mut self) -> Vec<Said> {
        let first = self.to_say.pop_front();
        let mut together: Vec<Said> = first.into_iter().collect();
        while !together.is_empty() && self.to_say.front().is_some_and(|said| said.beside) {
            together.extend(self.to_say.pop_front());
        }
        together
    }

    fn telling(&self, said: Said) -> (Command, Wish) {
        let Said { event: which, revision, is_withdrawn, .. } = said;
        let match_id = match_of(&self.room);
        let event = name(Key::parse(&format!("{}{which}", if self.second { "s" } else { "goal-" })));
        let revision = Revision(revision);
        // Every fourth event it sees in its own way.
        let sees_more = self.second && which.is_multiple_of(4);
        let (home, away) = (which + u32::from(sees_more), revision.0 % 3);
        let score = ScoreIn {
            match_id: match_id.clone(),
            provider: self.provider.clone(),
            event: event.clone(),
            revision: Some(revision),
            kind: ScoreKind::Goal,
            state: if is_withdrawn { ScoreState::Withdrawn } else { ScoreState::Confirmed },
            home,
            away,
            minute: Some("78".into()),
            historical: false,
            digest: [which as u8 ^ (revision.0 as u8) << 4; 16],
            data: None,
            room: Some(self.room.clone()),
        };
        let wish = Wish::Score { room: self.room.clone(), match_id, event, revision, home };
        (Command::Score(score), wish)
    }
}

/// Every revision of every event in the order it is said.
fn script(rng: &mut Rng, n_events: u32) -> Vec<Said> {
    // By the place it is said at, in quarters of a telling.
    let mut tellings: Vec<(u64, Said)> = Vec::new();
    for event in 1..=n_events {
        let mut n_revisions = 1;
        // (1 - (2/3)^8) / (1/3) = 2.9 of them on average.
        while n_revisions < REVISIONS_MAX && rng.chance(2, 3) {
            n_revisions += 1;
        }
        let is_deleted = rng.chance(4, 100);
        for revision in 1..=n_revisions {
            let is_withdrawn = is_deleted && revision == n_revisions;
            let said = Said { event, revision, is_withdrawn, beside: false };
            let at = 4 * tellings.len() as u64;
            // After the one, two or three that are said next; of those some are late themselves.
            let late = if rng.chance(175, 1_000) { 4 * (1 + rng.below(3)) + 2 } else { 0 };
            tellings.push((at + late, said));
            if rng.chance(6, 100) {
                tellings.push((at + late + 1, said));
            }
        }
    }
    tellings.sort_by_key(|(at, _)| *at);
    let mut said: Vec<Said> = tellings.into_iter().map(|(_, said)| said).collect();
    said.iter_mut().skip(1).for_each(|said| said.beside = rng.chance(34, 100));
    said
}

impl World {
    pub(super) fn storm_tick(&mut self, actor: ActorIdx) {
        let (now, pause) = (self.now, self.draw(PAUSE_MS.0, PAUSE_MS.1));
        let Some(storm) = self.storms.get_mut(&actor) else { return };
        let mut asked: Vec<u64> = Vec::new();
        for (ask, open) in storm.open.iter_mut().filter(|(_, open)| now >= open.due) {
            open.due = now + RETRY_AFTER;
            asked.push(*ask);
        }
        if !self.healed && now >= storm.next && storm.open.len() < OPEN_MAX {
            storm.next = now + pause;
            let mut wishes = Vec::new();
            for said in storm.next_moment() {
                let (command, wish) = storm.telling(said);
                storm.n_asks += 1;
                storm.open.insert(storm.n_asks, Open { command, wish: wish.clone(), due: now + RETRY_AFTER });
                asked.push(storm.n_asks);
                wishes.push(wish);
            }
            wishes.into_iter().for_each(|wish| self.saw(Seen::Asked(wish)));
        }
        asked.into_iter().for_each(|ask| self.storm_ask(actor, ask));
    }

    fn storm_ask(&mut self, actor: ActorIdx, ask: u64) {
        let Some(process) = self.current else { return };
        let Some(open) = self.storms.get(&actor).and_then(|storm| storm.open.get(&ask)) else { return };
        let command = open.command.clone();
        let copies = 1 + u64::from(self.fault(Fault::DoubleRequest));
        for _ in 0..copies {
            let wait = self.draw(1, 30);
            self.after(wait, Event::Request { process, actor, ask, command: Box::new(command.clone()) });
        }
    }

    pub(super) fn storm_reply(&mut self, actor: ActorIdx, ask: u64, answer: Answer) {
        let now = self.now;
        let Some(storm) = self.storms.get_mut(&actor) else { return };
        let Some(open) = storm.open.get_mut(&ask) else { return };
        match answer {
            Answer::Score { event_id, accepted, .. } => {
                let wish = open.wish.clone();
                storm.open.remove(&ask);
                self.saw(Seen::Acked { wish, id: event_id, duplicate: !accepted });
            }
            Answer::Reject(reject) if matches!(reject.code, Code::Overloaded | Code::NoSpace | Code::NotReady) => {
                open.due = now + reject.retry_after.unwrap_or(RETRY_AFTER);
            }
            // The room takes none just now. A provider goes on with what comes next.
            Answer::Reject(_) => drop(storm.open.remove(&ask)),
            other => self.broken.push(format!("a score was answered {other:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use grandstand_core::rng::Rng;

    use super::script;

    #[test]
    fn a_storm_is_what_was_measured_of_a_real_feed() {
        let n_events = 20_000;
        let said = script(&mut Rng::new(7), n_events);
        let distinct: BTreeSet<(u32, u32)> = said.iter().map(|s| (s.event, s.revision)).collect();
        let (mut late, mut newest, mut seen) = (0, (0, 0), BTreeSet::new());
        for one in &said {
            let place = (one.event, one.revision);
            late += usize::from(seen.insert(place) && place < newest);
            newest = newest.max(place);
        }
        let percent = |n: usize, of: usize| n as f64 * 100.0 / of as f64;
        let gone: BTreeSet<u32> = said.iter().filter(|s| s.is_withdrawn).map(|s| s.event).collect();
        let beside = said.iter().filter(|s| s.beside).count();
        let revisions = distinct.len() as f64 / f64::from(n_events);
        assert!((2.8..3.0).contains(&revisions), "{revisions} revisions an event");
        for (what, got, expected) in [
            ("at the same moment", percent(beside, said.len()), 34.0),
            ("out of order", percent(late, distinct.len()), 16.0),
            ("deleted", percent(gone.len(), n_events as usize), 4.0),
            ("said twice", percent(said.len() - distinct.len(), distinct.len()), 6.0),
        ] {
            assert!((got - expected).abs() < 1.0, "{got:.1} % {what}, {expected} % were measured");
        }
    }
}
