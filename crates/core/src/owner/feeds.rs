//! The score desk: from whom a match is shown, and what operators type, decided when the id is given.
//!
//! A match may be shown by several rooms, each with a ledger of its own; the first bound decides, as with score events, and each
//! room is told what its own ledger makes of it.

use std::sync::Arc;

use crate::feed::{Feed, SWITCH_MAX, Switch};
use crate::ids::{EventId, Position};
use crate::names::Key;
use crate::owner::Owner;
use crate::owner::answer::Answer;
use crate::owner::command::TypedScore;
use crate::owner::draft::Draft;
use crate::planted::planted;
use crate::record::{Body, MatchFeed, RoomState, Score};
use crate::reject::{Code, Reject};
use crate::revision::{GOALS_MAX, Ledger, MINUTE_RULE, Showing, is_minute, is_operator, operator};

impl Owner {
    pub(super) fn seal_feed(
        &self,
        draft: &mut Draft,
        feed: MatchFeed,
        if_version: Option<Position>,
    ) -> Result<Answer, Answer> {
        let rooms = self.rooms_to_change(draft, &feed.match_id, if_version)?;
        if is_operator(&feed.primary) || feed.stand_by.as_ref().is_some_and(is_operator) {
            return Err(bad_field("primary", "operator is no provider's name"));
        }
        if feed.stand_by.as_ref() == Some(&feed.primary) {
            return Err(bad_field("stand_by", "must be another provider than the primary"));
        }
        let switches: Vec<Switch> = rooms.iter().map(|&at| self.switch_in(draft, at, &feed)).collect();
        if switches.iter().any(|switch| switch.told.len() > SWITCH_MAX) {
            return Err(bad_field("primary", "differs in more than 1000 events from what is shown"));
        }
        let mut newest = None;
        for (&at, switch) in rooms.iter().zip(switches) {
            let last = self.log_switch(draft, at, &feed, switch);
            newest.get_or_insert((last, self.slots[at].room.clone()));
        }
        let (event_id, room) = newest.expect("there is a first room");
        Ok(Answer::Match { event_id, room })
    }

    /// A room that shows a match from now on shows it from the same provider as those that do.
    pub(super) fn follow_feed(&self, draft: &mut Draft, at: usize, match_id: &Key) {
        let others = self.rooms_of(draft, match_id).into_iter().filter(|&other| other != at);
        let feed = |at: usize| self.ledger_in(draft, at, match_id)?.feed.clone();
        let Some(theirs) = others.into_iter().find_map(feed) else { return };
        let same = |own: Feed| (own.primary, own.stand_by) == (theirs.primary.clone(), theirs.stand_by.clone());
        if feed(at).is_some_and(same) {
            return;
        }
        let (primary, stand_by) = (theirs.primary, theirs.stand_by);
        let feed = MatchFeed { match_id: match_id.clone(), primary, stand_by, twins: Vec::new() };
        let mut switch = self.switch_in(draft, at, &feed);
        // What it showed of the match before, it showed when nobody asked: beyond the limit it stays as it was.
        switch.told.truncate(SWITCH_MAX);
        self.log_switch(draft, at, &feed, switch);
    }

    /// What the change does to what the room shows.
    fn switch_in(&self, draft: &Draft, at: usize, feed: &MatchFeed) -> Switch {
        // Also where it is the primary already: a change of which a torn batch kept the beginning alone is made whole by asking again.
        self.ledger_in(draft, at, &feed.match_id).map(|ledger| ledger.switch_to(&feed.primary)).unwrap_or_default()
    }

    /// The newest record of it comes back.
    fn log_switch(&self, draft: &mut Draft, at: usize, feed: &MatchFeed, switch: Switch) -> EventId {
        let body = Body::Feed(Arc::new(MatchFeed { twins: switch.twins, ..feed.clone() }));
        let said = self.push_private(draft, at, |r| r.body = body).event_id();
        let told = self.log_scores(draft, at, switch.told);
        self.settle_match(draft, at, &feed.match_id).or(told).unwrap_or(said)
    }

    /// Tells what must be told so that the newest event's score is the score; the last record of it comes back.
    pub(super) fn settle_match(&self, draft: &mut Draft, at: usize, match_id: &Key) -> Option<EventId> {
        let told = self.ledger_in(draft, at, match_id).map(Ledger::settle).unwrap_or_default();
        self.log_scores(draft, at, told)
    }

    /// The last record of them comes back.
    fn log_scores(&self, draft: &mut Draft, at: usize, told: Vec<Score>) -> Option<EventId> {
        let mut last = None;
        for score in told {
            last = Some(self.log_priority(draft, at, |r| r.body = Body::Score(score)).event_id());
        }
        last
    }

    pub(super) fn seal_typed(
        &self,
        draft: &mut Draft,
        typed: &TypedScore,
        if_version: Option<Position>,
    ) -> Result<Answer, Answer> {
        let rooms = self.rooms_to_change(draft, &typed.match_id, if_version)?;
        if typed.home > GOALS_MAX || typed.away > GOALS_MAX {
            return Err(bad_field("score", "home and away are 0 to 10000"));
        }
        if !typed.minute.as_deref().is_none_or(is_minute) {
            return Err(bad_field("minute", MINUTE_RULE));
        }
        let first = rooms[0];
        let state = self.view_in(draft, first).expect("a bound room is there").settings.state;
        if !matches!(state, RoomState::Live | RoomState::Settling) {
            let text = format!("the room is {}", state.name());
            return Err(Answer::Reject(Reject::new(Code::RoomState, text)));
        }
        let mut newest = None;
        for at in rooms {
            let none = Ledger::default();
            let ledger = self.ledger_in(draft, at, &typed.match_id).unwrap_or(&none);
            let (revision, showing) = ledger.showing_typed(&typed.event);
            let score = Score {
                match_id: typed.match_id.clone(),
                provider: operator(),
                event: typed.event.clone(),
                revision,
                kind: typed.kind,
                state: typed.state,
                home: typed.home,
                away: typed.away,
                minute: typed.minute.clone(),
                superseded: false,
                historical: false,
                digest: typed.digest,
                data: None,
                shown: None,
            };
            assert!(showing != Showing::Hidden, "an operator's word is always shown");
            let record = self.log_score(draft, at, score, showing);
            newest.get_or_insert((record.event_id(), self.slots[at].room.clone()));
        }
        let (event_id, room) = newest.expect("there is a first room");
        Ok(Answer::Match { event_id, room })
    }

    /// The rooms that show the match. Errors: none does, or it has changed since an operator was shown it.
    fn rooms_to_change(
        &self,
        draft: &Draft,
        match_id: &Key,
        if_version: Option<Position>,
    ) -> Result<Vec<usize>, Answer> {
        let rooms = self.rooms_of(draft, match_id);
        let Some(&first) = rooms.first() else {
            let fields = vec![("match_id".into(), "a match that a room shows".into())];
            return Err(Answer::Reject(Reject::fields(Code::UnknownMatch, "no room shows this match", fields)));
        };
        let now = self.ledger_in(draft, first, match_id).map_or(Position::START, Ledger::version);
        if if_version.is_some_and(|shown| shown != now) && !planted(124) {
            let text = "the match has changed since you were shown it: look again";
            return Err(Answer::Reject(Reject::new(Code::Stale, text)));
        }
        Ok(rooms)
    }
}

fn bad_field(field: &str, rule: &'static str) -> Answer {
    let fields = vec![(field.to_owned(), rule.to_owned())];
    Answer::Reject(Reject::fields(Code::BadField, "the change is not valid", fields))
}
