//! `grandstand adapt`: what providers really send, as the score events of the protocol.
//!
//! Like an interpreter beside the telephone: hears one document, says it again in the house's words, and says what there was no word
//! for. An adapter is a function of one document's bytes; it remembers nothing, because the server does: what was said before is a
//! repeat, what changed is the event's next revision. So a provider's document may simply be sent again and again.
//!
//! Documents come from outside: each reader is bounded, and what is hostile is refused by name. What is merely unknown is passed
//! over and counted, because providers add to their formats.

mod datafactory;
mod openfootball;
mod uof;
mod xml;

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use grandstand_client::http::Http;
use grandstand_client::room::{self, Posted, ScoreEvent};
use serde::Serialize;

use crate::credentials;
use crate::replay::PATIENCE;

/// A document is no longer; the largest seen of a live match is 0.6 MiB.
pub const DOCUMENT_BYTES_MAX: usize = 4 << 20;
/// Score events of one document.
pub const EVENTS_MAX: usize = 10_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Format {
    /// Sportradar Unified Odds Feed, XML: `odds_change` and fixtures.
    Uof,
    /// Datafactory match events, JSON, with deleted incidents.
    Datafactory,
    /// A fixture list of openfootball, JSON.
    Openfootball,
}

/// A match that is to come, or was.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Fixture {
    pub match_id: String,
    pub home: String,
    pub away: String,
    /// As the provider writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
}

/// What one document says.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Adapted {
    /// In the order of the match.
    pub events: Vec<ScoreEvent>,
    pub fixtures: Vec<Fixture>,
    /// What there is no event for, by what it is.
    pub skipped: BTreeMap<String, u64>,
}

impl Adapted {
    fn skip(&mut self, what: impl Into<String>) {
        // Names come from the document: past so many they are one.
        const NAMES_MAX: usize = 64;
        let what = what.into();
        let known = self.skipped.len() < NAMES_MAX || self.skipped.contains_key(&what);
        *self.skipped.entry(if known { what } else { "others".to_owned() }).or_default() += 1;
    }
}

/// Why a document is not read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    #[error("the document is above 4 MiB")]
    TooLong,
    #[error("the document is not UTF-8")]
    NotUtf8,
    #[error("the document is not {0}")]
    NotOf(&'static str),
    #[error("it is not well-formed XML: {0}")]
    Xml(String),
    #[error("it has a document type, which is never read")]
    Doctype,
    #[error("it has a processing instruction, which is never read")]
    Instruction,
    #[error("it uses the entity {0:?}; only the five of XML and character references are known")]
    Entity(String),
    #[error("its encoding is {0:?}; only UTF-8 is read")]
    Encoding(String),
    #[error("it is above a limit: {0}")]
    Limit(&'static str),
    #[error("it is not JSON: {0}")]
    Json(String),
    #[error("{0} is missing, or not as the format has it")]
    Field(&'static str),
}

/// Reads one document.
///
/// Errors: hostile, malformed, or of another format.
pub fn adapt(format: Format, bytes: &[u8], provider: &str) -> Result<Adapted, Fault> {
    if bytes.len() > DOCUMENT_BYTES_MAX {
        return Err(Fault::TooLong);
    }
    let adapted = match format {
        Format::Uof => uof::adapt(bytes, provider)?,
        Format::Datafactory => datafactory::adapt(bytes, provider)?,
        Format::Openfootball => openfootball::adapt(bytes, provider)?,
    };
    if adapted.events.len() > EVENTS_MAX {
        return Err(Fault::Limit("10000 events"));
    }
    Ok(adapted)
}

/// The JSON schema of a score event, for providers without an adapter.
pub const SCHEMA: &str = include_str!("adapt/score-event.schema.json");

#[derive(clap::Args)]
pub struct Args {
    /// What the documents are.
    #[arg(required_unless_present = "schema")]
    format: Option<Format>,
    /// In the order they came; `-` is stdin.
    #[arg(required_unless_present = "schema")]
    files: Vec<PathBuf>,
    /// Print the JSON schema of a score event instead.
    #[arg(long, conflicts_with_all = ["format", "files", "post"])]
    schema: bool,
    /// The provider whose events they are.
    #[arg(long, default_value = "replay")]
    provider: String,
    /// Send them to the server, instead of printing them.
    #[arg(long)]
    post: bool,
    /// Bind the matches to this room; a server in development mode only.
    #[arg(long, requires = "post")]
    room: Option<String>,
    /// Sign as the provider; with `--key-file`. Without, they are posted by the token, to a server in development mode.
    #[arg(long, requires = "key_file", requires = "post")]
    kid: Option<String>,
    /// A file whose bytes are the provider's key.
    #[arg(long, requires = "kid")]
    key_file: Option<PathBuf>,
    #[command(flatten)]
    server: crate::ServerArgs,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let Some(format) = args.format.filter(|_| !args.schema) else {
        print!("{SCHEMA}");
        return Ok(ExitCode::SUCCESS);
    };
    let mut events = Vec::new();
    let mut said = BTreeMap::new();
    for file in &args.files {
        let bytes = read(file)?;
        let adapted = adapt(format, &bytes, &args.provider).with_context(|| file.display().to_string())?;
        for (what, n) in &adapted.skipped {
            eprintln!("{}: passed over {n} × {what}", file.display());
        }
        for fixture in &adapted.fixtures {
            println!("{}", serde_json::json!({"fixture": fixture}));
        }
        events.extend(adapted.events.into_iter().filter(|event| is_news(&mut said, event)));
    }
    if !args.post {
        for event in &events {
            println!("{}", serde_json::to_string(event)?);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(post(args, &events))
}

/// Whether the event says something else than it said last in this run. What it carries for nobody's eyes does not count.
fn is_news(said: &mut BTreeMap<(String, String), ScoreEvent>, event: &ScoreEvent) -> bool {
    let told = ScoreEvent { data: None, ..event.clone() };
    let before = said.insert((event.match_id.clone(), event.event_id.clone()), told.clone());
    before.is_none_or(|before| before != told)
}

/// At most a byte more than is read: that it is too long is the adapter's word.
fn read(file: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = DOCUMENT_BYTES_MAX as u64 + 1;
    match file.as_os_str() == "-" {
        true => std::io::stdin().take(most).read_to_end(&mut bytes),
        false => std::fs::File::open(file).and_then(|file| file.take(most).read_to_end(&mut bytes)),
    }
    .with_context(|| file.display().to_string())?;
    Ok(bytes)
}

async fn post(args: &Args, events: &[ScoreEvent]) -> Result<ExitCode> {
    let signer = match (&args.kid, &args.key_file) {
        (Some(kid), Some(file)) => Some(credentials::signer(&args.provider, kid, file)?),
        _ => None,
    };
    let token = match signer {
        Some(_) => None,
        None => Some(args.server.token()?),
    };
    let http = Http::new(&args.server.endpoint()?, token.as_deref());
    let (mut accepted, mut repeated) = (0, 0);
    for event in events {
        match room::post_score(&http, event, args.room.as_deref(), signer.as_ref(), PATIENCE).await? {
            Posted::Accepted { .. } => accepted += 1,
            Posted::Repeated { .. } => repeated += 1,
            Posted::Refused { status, code, message } => {
                bail!("{} of {}: refused with {status} {code}: {message}", event.event_id, event.match_id)
            }
        }
    }
    println!("{accepted} accepted, {repeated} known");
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use grandstand_core::record::{ScoreKind, ScoreState};
    use serde_json::Value;

    use super::{Adapted, DOCUMENT_BYTES_MAX, Fault, Format, SCHEMA, adapt};
    use crate::trace::recordings;

    fn line(adapted: &Adapted, at: usize) -> String {
        let e = &adapted.events[at];
        let minute = e.minute.as_deref().unwrap_or("-");
        let state = e.state.as_deref().unwrap_or("confirmed");
        format!("{} {} {}-{} {minute} {state}", e.event_id, e.kind, e.score.home, e.score.away)
    }

    /// The recordings of matches, where they are.
    fn sports() -> Option<PathBuf> {
        Some(recordings::folder()?.join("sports"))
    }

    #[test]
    fn a_real_odds_change_is_one_score_and_a_real_fixture_a_match() {
        let Some(folder) = sports() else { return };
        let read = |name: &str| std::fs::read(folder.join("uof_go_sdk").join(name)).expect(name);
        let odds = adapt(Format::Uof, &read("odds_change-0.xml"), "sportradar").unwrap();
        assert_eq!(odds.events.len(), 1);
        assert_eq!(
            (odds.events[0].match_id.as_str(), line(&odds, 0).as_str()),
            ("sr:match:123", "status score 2-2 - confirmed")
        );
        assert_eq!(odds.events[0].data, Some(serde_json::json!({"timestamp": 1234})));
        assert!(odds.skipped.contains_key("market"), "{:?}", odds.skipped);
        let fixture = adapt(Format::Uof, &read("fixture-0.xml"), "sportradar").unwrap();
        let one = &fixture.fixtures[0];
        assert_eq!(
            (&*one.match_id, &*one.home, &*one.away),
            ("sr:match:18001015", "Ajax Amsterdam", "Tottenham Hotspur")
        );
        assert_eq!(adapt(Format::Uof, &read("fixture-1.xml"), "p").unwrap().fixtures[0].home, "IK Oddevold");
        for other in ["bet_settlement.xml", "bet_cancel.xml", "rollback_bet_cancel.xml", "markets-0.xml"] {
            let fault = adapt(Format::Uof, &read(other), "p").unwrap_err();
            assert!(matches!(fault, Fault::NotOf(_)), "{other}: {fault}");
        }
    }

    #[test]
    fn a_real_match_of_datafactory_ends_4_2_and_its_deleted_incidents_are_withdrawn() {
        let Some(folder) = sports() else { return };
        let bytes = std::fs::read(folder.join("datafactory_events_trimmed.json")).expect("the recording");
        let adapted = adapt(Format::Datafactory, &bytes, "datafactory").unwrap();
        let lines: Vec<String> = (0..adapted.events.len()).map(|at| line(&adapted, at)).collect();
        let standing = || adapted.events.iter().filter(|e| e.state.is_none());
        let goals: Vec<(u32, u32)> = standing()
            .filter(|e| matches!(&*e.kind, "goal" | "own_goal" | "penalty"))
            .map(|e| (e.score.home, e.score.away))
            .collect();
        assert_eq!(goals, [(1, 0), (1, 1), (2, 1), (3, 1), (4, 1), (4, 2)], "{lines:#?}");
        assert_eq!(lines[1], "22094688 own_goal 1-0 18:02 confirmed");
        let last = standing().next_back().expect("some");
        assert_eq!((&*last.kind, last.score.home, last.score.away), ("full_time", 4, 2), "{lines:#?}");
        let gone: Vec<&str> = adapted.events.iter().filter(|e| e.state.is_some()).map(|e| &*e.event_id).collect();
        assert_eq!(gone, ["22094476", "22094664", "22094716", "22095107", "22095116"]);
        assert!(adapted.skipped["throwIn"] >= 40, "{:?}", adapted.skipped);
    }

    #[test]
    fn a_real_fixture_list_is_its_goals() {
        let Some(folder) = sports() else { return };
        let bytes = std::fs::read(folder.join("openfootball_worldcup_2022.json")).expect("the recording");
        let adapted = adapt(Format::Openfootball, &bytes, "openfootball").unwrap();
        let goals = adapted.events.iter().filter(|e| e.event_id.starts_with("goal-") && e.revision == Some(1)).count();
        assert_eq!(goals, 172);
    }

    #[test]
    fn hostile_documents_are_refused_by_name() {
        let uof = |text: &str| adapt(Format::Uof, text.as_bytes(), "p").unwrap_err();
        let status = r#"<odds_change event_id="m"><sport_event_status home_score="1" away_score="0"/></odds_change>"#;
        assert!(adapt(Format::Uof, status.as_bytes(), "p").is_ok());
        assert_eq!(uof(&format!("<!DOCTYPE x [<!ENTITY a \"b\">]>{status}")), Fault::Doctype);
        assert_eq!(uof(&format!("<?php x?>{status}")), Fault::Instruction);
        assert!(matches!(uof("<odds_change event_id=\"&xxe;\"/>"), Fault::Entity(_)));
        assert!(matches!(uof("<odds_change>&xxe;</odds_change>"), Fault::Entity(_)));
        assert!(matches!(uof(&format!("<?xml version=\"1.0\" encoding=\"UTF-16\"?>{status}")), Fault::Encoding(_)));
        assert!(matches!(uof("<odds_change event_id=\"m\">"), Fault::Xml(_)));
        assert!(matches!(uof("<odds_change a=\"1\" a=\"2\"/>"), Fault::Xml(_)));
        assert!(matches!(uof(&format!("{status}{status}")), Fault::Xml(_)));
        assert_eq!(uof(&"<a>".repeat(40)), Fault::Limit("16 levels of elements"));
        assert_eq!(
            uof(&format!("<odds_change event_id=\"{}\"/>", "x".repeat(2_000))),
            Fault::Limit("1024 bytes of an attribute")
        );
        assert_eq!(
            uof(&format!("<odds_change>{}</odds_change>", "<b/>".repeat(60_000))),
            Fault::Limit("50000 elements")
        );
        assert_eq!(adapt(Format::Uof, b"<a \xff=\"1\"/>", "p"), Err(Fault::NotUtf8));
        assert_eq!(adapt(Format::Uof, &vec![b' '; DOCUMENT_BYTES_MAX + 1], "p"), Err(Fault::TooLong));
        for (from, to) in [
            ("home_score=\"1\"", "home_score=\"-1\""),
            ("home_score=\"1\"", "home_score=\"99999\""),
            ("home_score=\"1\"", "home_score=\"1.5\""),
        ] {
            assert_eq!(uof(&status.replace(from, to)), Fault::Field("home_score"));
        }
        for (text, fault) in
            [("[]", Fault::NotOf("a match of Datafactory")), ("{\"match\":{}}", Fault::Field("matchId"))]
        {
            assert_eq!(adapt(Format::Datafactory, text.as_bytes(), "p"), Err(fault), "{text}");
        }
        let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
        assert!(matches!(adapt(Format::Datafactory, deep.as_bytes(), "p"), Err(Fault::Json(_))));
    }

    #[test]
    fn a_score_that_goes_back_is_news_and_one_that_stays_is_not() {
        let mut said = std::collections::BTreeMap::new();
        let mut told = Vec::new();
        for (at, home) in [(1, 0), (2, 1), (3, 1), (4, 0)] {
            let text = format!(
                r#"<odds_change event_id="m" timestamp="{at}"><sport_event_status home_score="{home}" away_score="0"/></odds_change>"#
            );
            let adapted = adapt(Format::Uof, text.as_bytes(), "p").unwrap();
            told.extend(adapted.events.into_iter().filter(|event| super::is_news(&mut said, event)));
        }
        let told: Vec<_> =
            told.iter().map(|e| (e.score.home, e.data.clone().unwrap()["timestamp"].as_u64().unwrap())).collect();
        assert_eq!(told, [(0, 1), (1, 2), (0, 4)]);
    }

    #[test]
    fn the_schema_names_what_the_server_takes() {
        let schema: Value = serde_json::from_str(SCHEMA).unwrap();
        let names = |member: &str| {
            let of = schema["properties"][member]["enum"].as_array().expect(member);
            of.iter().map(|name| name.as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names("kind"), ScoreKind::ALL.map(|(_, name)| name.to_owned()));
        assert_eq!(names("state"), ScoreState::ALL.map(|(_, name)| name.to_owned()));
        assert_eq!(schema["required"], serde_json::json!(["match_id", "event_id", "provider", "kind", "score"]));
    }
}
