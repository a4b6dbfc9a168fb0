//! Datafactory's match events, JSON: incidents by id, the whole match in each document, and a list of ids that were deleted.
//!
//! An incident says who did what when, not what the score was: that is counted here, in the order of the match, an own goal for the
//! other side. When the count ends elsewhere than the document's own score, its score is told last, as a correction: an absolute
//! score is believed before a sum. A deleted incident is told withdrawn; whether it ever was known, the server knows.
//!
//! Types: status 1 kick-off, 17 half time, 18 second half, 2 full time; goals 9, 11 (header), 12 (free kick), 10 own goal, 13 penalty.
//! Shapes from PySport/kloppy.

use grandstand_client::room::{Score, ScoreEvent};
use grandstand_core::revision::GOALS_MAX;
use serde_json::{Map, Value};

use super::{Adapted, Fault};

/// Lists of incidents that are score events, and what each is.
const LISTS: [(&str, &str); 5] = [
    ("status", ""),
    ("goals", ""),
    ("yellowCards", "yellow_card"),
    ("redCards", "red_card"),
    ("substitutions", "substitution"),
];
/// Deleted incidents of a document that are told.
const DELETED_MAX: usize = 1_000;

/// One incident that is told.
struct Incident<'a> {
    /// Half, minute, second, and the id: the order of the match.
    at: (u64, u64, u64, &'a str),
    kind: &'static str,
    /// Whose it is.
    team: Option<u64>,
}

pub(super) fn adapt(bytes: &[u8], provider: &str) -> Result<Adapted, Fault> {
    let text = std::str::from_utf8(bytes).map_err(|_| Fault::NotUtf8)?;
    let document: Value = serde_json::from_str(text).map_err(|fault| Fault::Json(fault.to_string()))?;
    let of = document.get("match").and_then(Value::as_object).ok_or(Fault::NotOf("a match of Datafactory"))?;
    let match_id = id_of(of.get("matchId")).ok_or(Fault::Field("matchId"))?;
    let home = of.get("homeTeamId").and_then(Value::as_u64).ok_or(Fault::Field("homeTeamId"))?;
    let away = of.get("awayTeamId").and_then(Value::as_u64).ok_or(Fault::Field("awayTeamId"))?;
    let lists = document.get("incidences").and_then(Value::as_object).ok_or(Fault::Field("incidences"))?;

    let mut adapted = Adapted::default();
    let mut incidents = Vec::new();
    for (name, list) in lists {
        let Some(list) = list.as_object() else { continue };
        match LISTS.iter().find(|(known, _)| known == name) {
            Some((_, kind)) => {
                for (id, incident) in list {
                    match read(name, kind, id, incident)? {
                        Ok(incident) => incidents.push(incident),
                        Err(what) => adapted.skip(what),
                    }
                }
            }
            None if list.is_empty() => {}
            None => list.keys().for_each(|_| adapted.skip(name)),
        }
    }
    incidents.sort_by_key(|incident| incident.at);

    let event = |event_id: &str, kind: &str, score: Score| ScoreEvent {
        match_id: match_id.clone(),
        event_id: event_id.to_owned(),
        provider: provider.to_owned(),
        revision: None,
        kind: kind.to_owned(),
        score,
        minute: None,
        state: None,
        data: None,
    };
    let mut score = Score { home: 0, away: 0 };
    for Incident { at: (_, m, s, id), kind, team } in incidents {
        if matches!(kind, "goal" | "own_goal" | "penalty") {
            let by_home = match team {
                Some(team) if team == home => true,
                Some(team) if team == away => false,
                _ => return Err(Fault::Field("team of a goal")),
            };
            let for_home = by_home != (kind == "own_goal");
            let goals = if for_home { &mut score.home } else { &mut score.away };
            *goals += 1;
        }
        let minute = match kind {
            "half_time" => "HT".to_owned(),
            "full_time" => "FT".to_owned(),
            _ => format!("{m}:{s:02}"),
        };
        adapted.events.push(ScoreEvent { minute: Some(minute), ..event(id, kind, score) });
    }
    let side = |team: u64| {
        let goals = document.get("scoreStatus")?.get(team.to_string())?.get("score")?.as_u64()?;
        u32::try_from(goals).ok().filter(|n| *n <= GOALS_MAX)
    };
    if let (Some(home), Some(away)) = (side(home), side(away)) {
        let said = Score { home, away };
        if said != score {
            adapted.events.push(event("score", "correction", said));
        }
        score = said;
    }
    let deleted = document.get("deletedIncidences").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if deleted.len() > DELETED_MAX {
        return Err(Fault::Limit("1000 deleted incidents"));
    }
    for id in deleted {
        let id = id_of(Some(id)).ok_or(Fault::Field("deletedIncidences"))?;
        adapted.events.push(ScoreEvent { state: Some("withdrawn".to_owned()), ..event(&id, "correction", score) });
    }
    Ok(adapted)
}

/// An incident, or what there is no event for. Errors: it is not as the format has it.
fn read<'a>(
    list: &str,
    kind: &'static str,
    id: &'a str,
    incident: &'a Value,
) -> Result<Result<Incident<'a>, String>, Fault> {
    if !is_id(id) {
        return Err(Fault::Field("the id of an incident"));
    }
    let of = incident.as_object().ok_or(Fault::Field("an incident"))?;
    let number = |of: &Map<String, Value>, name: &str| of.get(name).and_then(Value::as_u64);
    let t = of.get("t").and_then(Value::as_object).ok_or(Fault::Field("t"))?;
    let time = |name: &str, most: u64| number(t, name).filter(|n| *n <= most).ok_or(Fault::Field("t"));
    let at = (time("half", 9)?, time("m", 999)?, time("s", 59)?, id);
    let which = number(of, "type").ok_or(Fault::Field("type"))?;
    let kind = match (list, which) {
        ("status", 1) => "kick_off",
        ("status", 17) => "half_time",
        ("status", 18) => "second_half",
        ("status", 2) => "full_time",
        ("goals", 9 | 11 | 12) => "goal",
        ("goals", 10) => "own_goal",
        ("goals", 13) => "penalty",
        ("status" | "goals", other) => return Ok(Err(format!("{list} of type {other}"))),
        _ => kind,
    };
    Ok(Ok(Incident { at, kind, team: number(of, "team") }))
}

/// Ids are numbers in one place and text in another.
fn id_of(value: Option<&Value>) -> Option<String> {
    let id = match value? {
        Value::String(text) => text.clone(),
        Value::Number(n) => n.as_u64()?.to_string(),
        _ => return None,
    };
    Some(id).filter(|id| is_id(id))
}

fn is_id(text: &str) -> bool {
    (1..=64).contains(&text.len()) && !text.chars().any(char::is_control)
}
