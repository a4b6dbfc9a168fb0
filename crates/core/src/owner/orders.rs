//! What providers, backends and operators ask, decided when the id is given.
//!
//! None of it is checked at the door but its shape: operators are few, and what they ask must see what was asked just
//! before.

use std::sync::Arc;

use crate::ids::EventId;
use crate::names::{Key, RoomId, UserId};
use crate::owner::Owner;
use crate::owner::answer::Answer;
use crate::owner::draft::Draft;
use crate::planted::planted;
use crate::record::{Body, Config, Record, Retract, RetractTarget, Room, RoomState, Score, ScoreKind, ScoreState};
use crate::reject::{Code, Reject};
use crate::revision::{Decision, Ledger, ScoreIn, Showing};
use crate::rooms::{self, Asks, RoomChange};
use crate::time::Wall;

impl Owner {
    pub(super) fn seal_score(&self, draft: &mut Draft, score: ScoreIn) -> Result<Answer, Answer> {
        let mut rooms = self.rooms_of(draft, &score.match_id);
        if let Some(room) = &score.room
            && self.settings.create_on_use
            && let Some(&at) = self.index.get(room)
            && !rooms.contains(&at)
        {
            self.bind(draft, room, &score.match_id)?;
            rooms.push(at);
        }
        let Some(&first) = rooms.first() else {
            let fields = vec![("match_id".into(), "a match that a room shows".into())];
            return Err(Answer::Reject(Reject::fields(Code::UnknownMatch, "no room shows this match", fields)));
        };
        let view = draft.views.get(&first).or(self.slots[first].view.as_ref()).expect("a bound room is there");
        let room = view.room.clone();
        let state = view.settings.state;
        let unknown = Decision::Fresh {
            revision: score.revision.unwrap_or(crate::ids::Revision(1)),
            superseded: false,
            known_event: false,
        };
        let decision = view.scores.get(&score.match_id).map_or(unknown, |ledger| ledger.decide(&score));
        let (revision, superseded, known_event) = match decision {
            Decision::Repeat(seen) => {
                let (event_id, revision, superseded) = (seen.event_id, seen.revision, seen.superseded);
                let shown = view.scores[&score.match_id].shows(&score.provider);
                return Ok(Answer::Score { accepted: false, event_id, revision, superseded, shown, room });
            }
            Decision::Conflict => {
                let text = "this revision was sent with another payload";
                return Err(Answer::Reject(Reject::new(Code::PayloadConflict, text)));
            }
            Decision::Fresh { revision, superseded, known_event } => (revision, superseded, known_event),
        };
        let corrects = known_event || score.kind == ScoreKind::Correction || score.state == ScoreState::Withdrawn;
        if !(state == RoomState::Live || state == RoomState::Settling && corrects) {
            let text = format!("the room is {}", state.name());
            return Err(Answer::Reject(Reject::new(Code::RoomState, text)));
        }
        let mut first = None;
        for &at in &rooms {
            let ledger = self.ledger_in(draft, at, &score.match_id);
            let showing = ledger.map_or(Showing::Plain, |ledger| ledger.showing(&score, revision));
            let told = score.clone().into_score(revision, superseded);
            let shown = showing != Showing::Hidden;
            let record = self.log_score(draft, at, told, showing);
            first.get_or_insert((record.event_id(), shown));
            if shown {
                self.settle_match(draft, at, &score.match_id);
            }
        }
        let (event_id, shown) = first.expect("there is a first room");
        Ok(Answer::Score { accepted: true, event_id, revision, superseded, shown, room })
    }

    /// Logs a revision as its room is to show it.
    pub(super) fn log_score(&self, draft: &mut Draft, at: usize, mut score: Score, showing: Showing) -> Arc<Record> {
        match showing {
            Showing::Plain => self.log_priority(draft, at, |r| r.body = Body::Score(score)),
            Showing::As(shown) => {
                // Of what viewers have it is the highest, whatever its provider said before.
                score.superseded = false;
                score.shown = Some(shown);
                self.log_priority(draft, at, |r| r.body = Body::Score(score))
            }
            Showing::Hidden => self.push_private(draft, at, |r| r.body = Body::Score(score)),
        }
    }

    pub(super) fn ledger_in<'a>(&'a self, draft: &'a Draft, at: usize, match_id: &Key) -> Option<&'a Ledger> {
        self.view_in(draft, at)?.scores.get(match_id).map(|ledger| &**ledger)
    }

    /// The rooms that show a match as this batch leaves them so far, the first bound first.
    pub(super) fn rooms_of(&self, draft: &Draft, match_id: &Key) -> Vec<usize> {
        let in_log = self.matches.get(match_id).into_iter().flatten().copied();
        let mut rooms: Vec<usize> = in_log.chain(draft.views.keys().copied()).collect();
        rooms.sort_unstable();
        rooms.dedup();
        let view = |at: usize| self.view_in(draft, at);
        let mut bound: Vec<(EventId, usize)> =
            rooms.into_iter().filter_map(|at| Some((*view(at)?.bound.get(match_id)?, at))).collect();
        bound.sort_unstable();
        bound.into_iter().map(|(_, at)| at).collect()
    }

    pub(super) fn bind(&self, draft: &mut Draft, room: &RoomId, match_id: &Key) -> Result<(), Answer> {
        let (at, view) = self.drafted_for_use(draft, room)?;
        let settings = view.settings.clone();
        let mut matches = settings.matches.clone();
        matches.push(match_id.clone());
        let wanted = RoomChange { matches: Some(matches), ..RoomChange::default() };
        self.change_room(draft, at, &settings, &wanted).map(|_| ())
    }

    /// Errors: `bad_field` with every broken field.
    pub(super) fn change_room(
        &self,
        draft: &mut Draft,
        at: usize,
        old: &Room,
        wanted: &RoomChange,
    ) -> Result<Arc<Room>, Answer> {
        let changed = rooms::change(old, wanted, draft.ts)
            .map_err(|f| Answer::Reject(Reject::fields(Code::BadField, "the room's settings are not valid", f)))?;
        let exists = self.view_in(draft, at).is_some();
        let mut settings = changed.room;
        if !exists {
            settings.version = 1;
        }
        let settings = Arc::new(settings);
        if !exists || *settings != *old {
            // Where a room is made by its first use it may be watched before its first record, as a fresh one. Elsewhere
            // nobody can be there, and there is nothing to be told.
            let watched = exists || self.settings.create_on_use;
            let config = if watched { changed.config } else { Config::default() };
            self.log_settings(draft, at, settings.clone(), config);
            for new in settings.matches.iter().filter(|m| !old.matches.contains(m)) {
                self.follow_feed(draft, at, new);
            }
        }
        Ok(settings)
    }

    pub(super) fn seal_room(
        &self,
        draft: &mut Draft,
        room: RoomId,
        change: RoomChange,
        if_version: Option<u64>,
    ) -> Result<Answer, Answer> {
        let at = self.index[&room];
        let old = self.view_in(draft, at).map(|v| v.settings.clone());
        let version = old.as_ref().map_or(0, |r| r.version);
        if if_version.is_some_and(|wanted| wanted != version) {
            let text = format!("the room is at version {version}");
            return Err(Answer::Reject(Reject::new(Code::Stale, text)));
        }
        let old = old.unwrap_or_else(|| Arc::new(Room { version: 0, ..Room::fresh(room.as_str()) }));
        let settings = self.change_room(draft, at, &old, &change)?;
        Ok(Answer::Room { version: settings.version, settings })
    }

    pub(super) fn seal_slow_mode_end(&self, draft: &mut Draft, at: usize, end: Wall) {
        let Some(view) = self.view_in(draft, at) else { return };
        let settings = view.settings.clone();
        if settings.slow_mode_until == Some(end) {
            let off = RoomChange { slow_mode_seconds: Some(0), ..RoomChange::default() };
            let changed = self.change_room(draft, at, &settings, &off);
            assert!(changed.is_ok(), "turning slow mode off is always allowed");
        }
    }

    pub(super) fn seal_pin_end(&self, draft: &mut Draft, at: usize) {
        let Some(view) = self.view_in(draft, at) else { return };
        let settings = view.settings.clone();
        if planted(134) {
            return;
        }
        let end = RoomChange::from(Asks { end_pins: true, ..Asks::default() });
        let changed = self.change_room(draft, at, &settings, &end);
        assert!(changed.is_ok(), "a pin may always end");
    }

    /// Closes a room that has settled, unless it was told something else meanwhile.
    pub(super) fn seal_settled(&self, draft: &mut Draft, at: usize) {
        let ts = draft.ts;
        let Some(view) = self.view_in(draft, at) else { return };
        let settings = view.settings.clone();
        if settings.settles_until.is_some_and(|end| end <= ts) && !planted(131) {
            let close = RoomChange { state: Some(RoomState::Closed), ..RoomChange::default() };
            let changed = self.change_room(draft, at, &settings, &close);
            assert!(changed.is_ok(), "a settling room may always be closed");
        }
    }

    pub(super) fn seal_unban(&self, draft: &mut Draft, room: RoomId, user: UserId) -> Result<Answer, Answer> {
        let (_, view) = self.drafted_for_use(draft, &room)?;
        if !view.bans.contains_key(&user) {
            return Ok(Answer::Done { event_id: None });
        }
        self.log_private(draft, &room, Body::Unban(user))
    }

    pub(super) fn seal_retract(
        &self,
        draft: &mut Draft,
        room: RoomId,
        target: RetractTarget,
        reason: Arc<str>,
    ) -> Result<Answer, Answer> {
        let head = self.head();
        let at = self.drafted_for_use(draft, &room)?.0;
        // An id that was never given out names nothing: silence, so that ids cannot be probed. What the caller names is held
        // against the log: a winner may be shown by this very batch.
        if matches!(target, RetractTarget::Event(id) if id.position() > head) {
            return Ok(Answer::Done { event_id: None });
        }
        // Viewers know a winner, and what was held, by the id it was shown under, and what never won not at all.
        let (target, is_raw) = self.retract_of(draft, at, target);
        let view = self.drafted(draft, at).expect("it was drafted above");
        if let RetractTarget::Event(id) = target {
            let before = view.retracted.events.get(&id).copied();
            if let Some(event_id) = before.or(draft.retracts.get(&(at, id)).copied()) {
                return Ok(Answer::Done { event_id: Some(event_id) });
            }
        }
        let body = Body::Retract(Retract { target: target.clone(), reason });
        let record = match is_raw {
            true => self.push_private(draft, at, |r| r.body = body),
            false => self.log_priority(draft, at, |r| r.body = body),
        };
        if let RetractTarget::Event(id) = target {
            draft.retracts.insert((at, id), record.event_id());
        }
        Ok(Answer::Done { event_id: Some(record.event_id()) })
    }
}
