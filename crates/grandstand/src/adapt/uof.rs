//! Sportradar's Unified Odds Feed: `odds_change` and fixtures, XML.
//!
//! The feed has no incidents. Each `odds_change` carries the score as it stands, absolute, so a match is one event, `status`, whose
//! next revision is the next score. A score that goes back must not be taken for the old one said once more, so each carries its
//! message's time as `data`; of messages that say the same one after the other, one run tells the first. The clock is left out: it
//! moves with every message. Only the phases that end something are told, as the event's minute.
//!
//! `match_status` of soccer: 31 half time, 100 ended, 110 ended after extra time, 120 after penalties. Others are play.
//! Source: the public description of the feed; shapes from minus5/go-uof-sdk.

use grandstand_client::room::{Score, ScoreEvent};
use grandstand_core::revision::GOALS_MAX;

use super::xml::{self, Element};
use super::{Adapted, Fault, Fixture};

pub(super) fn adapt(bytes: &[u8], provider: &str) -> Result<Adapted, Fault> {
    let elements = xml::elements(bytes)?;
    match elements.first().map(|root| root.name.as_str()) {
        Some("odds_change") => odds_change(&elements, provider),
        Some("fixtures_fixture" | "fixture") => fixtures(&elements),
        _ => Err(Fault::NotOf("an odds_change or a fixture of the Unified Odds Feed")),
    }
}

fn odds_change(elements: &[Element], provider: &str) -> Result<Adapted, Fault> {
    let mut adapted = Adapted::default();
    let match_id = elements[0].get("event_id").filter(|id| !id.is_empty()).ok_or(Fault::Field("event_id"))?;
    let timestamp = match elements[0].get("timestamp") {
        None => None,
        Some(text) => Some(text.parse::<u64>().map_err(|_| Fault::Field("timestamp"))?),
    };
    for element in &elements[1..] {
        match element.name.as_str() {
            "sport_event_status" if element.depth == 1 => {
                // A match that has not begun, or a sport without one, has no score.
                let (Some(_), Some(_)) = (element.get("home_score"), element.get("away_score")) else {
                    adapted.skip("sport_event_status without a score");
                    continue;
                };
                let score = Score { home: goals(element, "home_score")?, away: goals(element, "away_score")? };
                let minute = match element.get("match_status") {
                    Some("31") => Some("HT"),
                    Some("100") => Some("FT"),
                    Some("110") => Some("AET"),
                    Some("120") => Some("PEN"),
                    _ => None,
                };
                adapted.events.push(ScoreEvent {
                    match_id: match_id.to_owned(),
                    event_id: "status".to_owned(),
                    provider: provider.to_owned(),
                    revision: None,
                    kind: "score".to_owned(),
                    score,
                    minute: minute.map(str::to_owned),
                    state: None,
                    data: timestamp.map(|at| serde_json::json!({"timestamp": at})),
                });
            }
            // What is inside the status is summed up by it.
            "clock" | "period_scores" | "period_score" | "statistics" | "odds" | "outcome" | "market_metadata" => {}
            other => adapted.skip(other),
        }
    }
    Ok(adapted)
}

/// Some feeds write whole numbers as `2.0`.
fn goals(element: &Element, name: &'static str) -> Result<u32, Fault> {
    let text = element.get(name).ok_or(Fault::Field(name))?;
    let text = text.strip_suffix(".0").unwrap_or(text);
    let digits = (1..=5).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    let n = Some(text).filter(|_| digits).and_then(|text| text.parse().ok());
    n.filter(|n| *n <= GOALS_MAX).ok_or(Fault::Field(name))
}

fn fixtures(elements: &[Element]) -> Result<Adapted, Fault> {
    let mut adapted = Adapted::default();
    for element in elements {
        match element.name.as_str() {
            "fixture" => {
                let match_id = element.get("id").filter(|id| !id.is_empty()).ok_or(Fault::Field("id"))?;
                adapted.fixtures.push(Fixture {
                    match_id: match_id.to_owned(),
                    home: String::new(),
                    away: String::new(),
                    start: element.get("start_time").or(element.get("scheduled")).map(str::to_owned),
                    status: element.get("status").map(str::to_owned),
                });
            }
            "competitor" => {
                let name = element.get("name").unwrap_or_default();
                let Some(fixture) = adapted.fixtures.last_mut() else { continue };
                match element.get("qualifier") {
                    Some("home") => name.clone_into(&mut fixture.home),
                    Some("away") => name.clone_into(&mut fixture.away),
                    _ => adapted.skip("competitor without a side"),
                }
            }
            _ => {}
        }
    }
    if adapted.fixtures.is_empty() {
        return Err(Fault::Field("fixture"));
    }
    Ok(adapted)
}
