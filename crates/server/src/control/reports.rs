//! `GET …/reports`: what viewers reported and still stands, the most reported first.
//!
//! A report names an event and does not say whose it is, so what was taken back with all of its author's comments is found by
//! looking the event up in the log: once for each event and each retract of a user, and for a bounded time a call, so that a flood of
//! reports does not keep the log's readers. What there was no time for is listed; the next call goes on from there. Nothing is
//! remembered of an event but its id, because what was said may have to be erased.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use grandstand_core::ids::EventId;
use grandstand_core::names::RoomId;
use grandstand_core::owner::view::Retracted;
use grandstand_core::reports::Reported;
use grandstand_wire::stamp;
use http::{Response, StatusCode};
use serde_json::json;

use super::answer::{Problem, json as answer_json};
use super::ask::Ask;
use super::audit::after;
use super::{Control, Shared};
use crate::auth;
use crate::clock;

/// A call looks into the log for so long.
const LOOK_FOR: Duration = Duration::from_millis(300);
/// Events of all rooms of which it is known whether they stand: four rooms with as many reports as a room keeps.
const KNOWN_MAX: usize = 4_096;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Known {
    /// For good: nothing shows again what was taken back.
    Gone,
    /// It stood when this was the newest retract of any user's comments.
    Stood(EventId),
}

#[derive(Default)]
pub struct Looked(Mutex<BTreeMap<(RoomId, EventId), Known>>);

impl Looked {
    fn of(&self, room: &RoomId, event: EventId) -> Option<Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&(room.clone(), event)).copied()
    }

    fn note(&self, room: &RoomId, event: EventId, known: Known) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert((room.clone(), event), known);
        while all.len() > KNOWN_MAX {
            all.pop_first();
        }
    }
}

/// The newest retract of what single users said.
fn newest_of_users(retracted: &Retracted) -> Option<EventId> {
    let purges = retracted.since.values().flatten().map(|(_, upto)| *upto);
    retracted.users.values().copied().chain(purges).max()
}

pub async fn list(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let room = ask.room()?;
    let who = ask.identity(&control)?;
    auth::may_moderate(who.as_deref(), &room)?;
    let detail = control.deps.shard.room(room.clone()).await?;
    let mut events: Vec<(&EventId, &Reported)> = detail.reports.events.iter().collect();
    events.sort_by_key(|(id, reported)| (Reverse(reported.users.len()), **id));
    let (started, newest) = (clock::mono(), newest_of_users(&detail.retracted));
    let mut reports = Vec::new();
    for (id, reported) in events {
        let may_look = clock::mono().since(started) < LOOK_FOR;
        if let Some(newest) = newest.filter(|newest| id < newest)
            && control.was_taken_back(&room, *id, &detail.retracted, newest, may_look).await?
        {
            continue;
        }
        let reasons: BTreeMap<&str, u32> = reported.reasons.iter().map(|(reason, n)| (&**reason, *n)).collect();
        reports.push(json!({"event_id": id.value(), "count": reported.users.len(), "reasons": reasons,
            "first_ts": stamp::text(reported.first), "last_ts": stamp::text(reported.last)}));
    }
    Ok(answer_json(StatusCode::OK, &json!({"room_id": room.as_str(), "reports": reports})))
}

impl Control {
    /// Whether a reported event went with its author's comments, as far as it is known or may be looked up. `newest`: as of
    /// [`newest_of_users`].
    async fn was_taken_back(
        &self,
        room: &RoomId,
        event: EventId,
        retracted: &Retracted,
        newest: EventId,
        may_look: bool,
    ) -> Result<bool, Problem> {
        match self.looked.of(room, event) {
            Some(Known::Gone) => return Ok(true),
            Some(Known::Stood(then)) if newest <= then => return Ok(false),
            _ if !may_look => return Ok(false),
            _ => {}
        }
        let page = self.deps.shard.past(room.clone(), after(event)).await?;
        let found = page.found.first().filter(|record| record.event_id() == event);
        let is_gone = found.is_some_and(|record| retracted.hides(record));
        self.looked.note(room, event, if is_gone { Known::Gone } else { Known::Stood(newest) });
        Ok(is_gone)
    }
}

#[cfg(test)]
mod tests {
    use grandstand_core::ids::EventId;
    use grandstand_core::names::RoomId;

    use super::{KNOWN_MAX, Known, Looked};

    #[test]
    fn what_is_known_of_events_is_bounded() {
        let looked = Looked::default();
        let room = RoomId::parse("a").unwrap();
        let id = |n: usize| EventId::new(1 << 33 | n as u64).unwrap();
        (0..KNOWN_MAX + 10).for_each(|n| looked.note(&room, id(n), Known::Stood(id(0))));
        assert_eq!(looked.of(&room, id(9)), None, "the oldest are looked up again");
        assert_eq!(looked.of(&room, id(10)), Some(Known::Stood(id(0))));
    }
}
