//! `grandstand tail ROOM`: a room in a terminal, followed like a file.
//!
//! Snapshot first, then the stream from where it ends; a cut is told and the stream goes on from its cursor. On a terminal the score stands
//! on the first line while everything else moves under it; into a pipe only the lines go. Whatever others wrote passes [`crate::plain`].
//!
//! It is a client like any other: what it is not given (by a cursor too old) it says, and takes a new snapshot.

mod lines;
mod screen;

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, anyhow};
use clap::ValueEnum;
use grandstand_client::addresses::Told;
use grandstand_client::feed::{Feed, Happening, Transport};
use grandstand_client::http::Http;
use grandstand_client::tls::Trust;
use grandstand_client::{Endpoint, Fault, room};
use grandstand_core::names::RoomId;
use grandstand_core::time::Wall;
use grandstand_wire::stamp;
use lines::Board;
use screen::Screen;
use serde::Deserialize as _;
use serde_json::Value;

use crate::credentials::now;
use crate::plain::{plain, plain_json};

#[derive(clap::Args)]
#[command(
    after_help = "Exit codes: 0 ended by a signal or its reader, 1 the room ended the stream or refused it, 2 wrong usage.\n\nExamples:\n  grandstand tail derby\n  grandstand tail derby --since 10m | grep -i goal\n  grandstand tail derby --json --since 8589934601 >> derby.jsonl"
)]
pub struct Args {
    room: String,
    /// Address of the server.
    #[arg(long, env = "GRANDSTAND_URL", default_value = "http://127.0.0.1:8080")]
    url: String,
    /// A token, where the room is not for anybody to watch.
    #[arg(long, env = "GRANDSTAND_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// With https: believe the authorities of this PEM file, and no others, instead of the system's.
    #[arg(long, env = "GRANDSTAND_CA", value_name = "FILE")]
    ca: Option<PathBuf>,
    /// With https: believe any certificate. For a server of one's own, on one's own machine.
    #[arg(long, conflicts_with = "ca")]
    insecure: bool,
    /// Where to begin: an event id, after which everything follows that the room's resume window still has; or a time such as 10m, of which
    /// the comments are shown first. Without it the last comments.
    #[arg(long, value_name = "ID|TIME", value_parser = since)]
    since: Option<Since>,
    /// Comments shown before the stream begins; 0 to 50.
    #[arg(long, short = 'n', default_value_t = 10, value_parser = clap::value_parser!(u8).range(0..=50), conflicts_with = "since")]
    lines: u8,
    /// Each event as one line of JSON, as the server sends it; nothing else on stdout.
    #[arg(long)]
    json: bool,
    #[arg(long, value_enum, default_value = "ws")]
    transport: Way,
    /// Colours: `auto` gives them to a terminal, unless NO_COLOR is set.
    #[arg(long, value_enum, default_value = "auto")]
    color: When,
}

#[derive(Clone, Copy, ValueEnum)]
enum Way {
    Ws,
    Sse,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum When {
    Auto,
    Always,
    Never,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Since {
    Id(u64),
    Ago(Duration),
}

fn since(text: &str) -> Result<Since, String> {
    match text.parse::<u64>() {
        Ok(id) if (1..1 << 53).contains(&id) => Ok(Since::Id(id)),
        Ok(_) => Err("an event id is above 0 and below 2^53".to_owned()),
        Err(_) => crate::token::ttl(text).map(Since::Ago),
    }
}

/// Comments that `--since` a time shows at most.
const PAST_MAX: usize = 5_000;
/// Of one page back. Source: docs/protocol.md, limits.
const PAGE: usize = 200;
/// A snapshot is fetched again at most this often, whatever the server asks.
const AGAIN: Duration = Duration::from_secs(30);
/// Most often the first line is drawn.
const DRAW_EVERY: Duration = Duration::from_millis(250);

pub fn run(args: &Args) -> Result<ExitCode> {
    if RoomId::parse(&args.room).is_none() {
        eprintln!("error: {}: {}", plain(&args.room), RoomId::RULE);
        return Ok(ExitCode::from(2));
    }
    let trust = match &args.ca {
        _ if args.insecure => Trust::Anyone,
        Some(file) => Trust::File(file.clone()),
        None => Trust::System,
    };
    let endpoint = Endpoint::trusting(&args.url, &trust)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(Tail::new(args, endpoint).run())
}

struct Tail<'a> {
    args: &'a Args,
    http: Http,
    feed: Feed,
    board: Board,
    screen: Screen,
    /// The newest comment that was printed, so that a snapshot's are not printed twice.
    newest: u64,
    refetched: Option<tokio::time::Instant>,
}

/// Whether to go on.
enum Go {
    On,
    /// Whoever read stdout has gone.
    Away,
}

impl<'a> Tail<'a> {
    fn new(args: &'a Args, endpoint: Endpoint) -> Tail<'a> {
        let is_terminal = std::io::stdout().is_terminal();
        let colour = match args.color {
            When::Always => !args.json,
            When::Never => false,
            // https://no-color.org: set and not empty.
            When::Auto => is_terminal && !args.json && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()),
        };
        let transport = match args.transport {
            Way::Ws => Transport::WebSocket,
            Way::Sse => Transport::Sse,
        };
        let cursor = match args.since {
            Some(Since::Id(id)) => Some(id),
            _ => None,
        };
        Tail {
            http: Http::new(&endpoint, args.token.as_deref()),
            feed: Feed::new(&endpoint, &args.room, args.token.as_deref(), transport, cursor),
            board: Board::new(&args.room, colour),
            screen: Screen::new(is_terminal && !args.json),
            newest: 0,
            refetched: None,
            args,
        }
    }

    async fn run(mut self) -> Result<ExitCode> {
        let ended = self.follow().await;
        self.screen.leave();
        match ended {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(why) => {
                eprintln!("error: {}", plain(&crate::in_words(&why)));
                Ok(ExitCode::FAILURE)
            }
        }
    }

    async fn follow(&mut self) -> Result<()> {
        use tokio::signal::unix::{SignalKind, signal};
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let begin = tokio::select! {
            begun = self.begin() => begun?,
            _ = interrupt.recv() => Go::Away,
            _ = terminate.recv() => Go::Away,
        };
        if matches!(begin, Go::Away) {
            return Ok(());
        }
        let mut draw = tokio::time::interval(DRAW_EVERY);
        draw.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                happening = self.feed.turn() => {
                    let go = match happening.map_err(|fault| anyhow!(fault))? {
                        Happening::Event(event) => self.take(&event.json, event.kind()).await?,
                        Happening::Cut { wait, .. } => self.cut(wait),
                    };
                    if matches!(go, Go::Away) {
                        return Ok(());
                    }
                }
                _ = draw.tick() => self.screen.draw(&self.board.status()),
                _ = interrupt.recv() => return Ok(()),
                _ = terminate.recv() => return Ok(()),
            }
        }
    }

    /// Up to where the stream begins.
    async fn begin(&mut self) -> Result<Go> {
        self.screen.enter();
        // After an id everything comes by the stream, and what it cannot give is told there.
        if matches!(self.args.since, Some(Since::Id(_))) || self.args.json && self.args.since.is_none() {
            return Ok(Go::On);
        }
        let snapshot = room::snapshot(&self.http, &self.args.room, None).await.map_err(told)?;
        let cursor = self.board.take_snapshot(&snapshot);
        let told: Option<Told> = snapshot.get("endpoints").and_then(|told| Told::deserialize(told).ok());
        self.feed.take_endpoints(told.as_ref());
        self.feed.go_on_from(cursor.filter(|cursor| *cursor > 0));
        let recent = comments(&snapshot);
        let shown = match self.args.since {
            Some(Since::Ago(ago)) => self.past(recent, now() - ago, cursor).await?,
            _ => {
                let skip = recent.len().saturating_sub(usize::from(self.args.lines));
                recent.into_iter().skip(skip).collect()
            }
        };
        for comment in &shown {
            if let Go::Away = self.say_comment(comment) {
                return Ok(Go::Away);
            }
        }
        Ok(Go::On)
    }

    /// The room's comments from a time on, oldest first: what a snapshot has, and pages back from there.
    async fn past(&mut self, mut shown: Vec<Value>, from: Wall, cursor: Option<u64>) -> Result<Vec<Value>> {
        let is_old = |comment: &Value| at(comment).is_none_or(|at| at < from);
        let mut more = true;
        while more && shown.len() < PAST_MAX && !shown.first().is_some_and(is_old) {
            let before = shown.first().and_then(|first| first["event_id"].as_u64()).or(cursor.map(|c| c + 1));
            let Some(before) = before else { break };
            let page;
            (page, more) = room::older(&self.http, &self.args.room, before, PAGE).await.map_err(told)?;
            more &= !page.is_empty();
            drop(shown.splice(0..0, page));
        }
        if more && !shown.first().is_some_and(is_old) {
            let notice = format!("older comments than the last {} are not shown", shown.len());
            self.notice(&notice);
        }
        shown.retain(|comment| !is_old(comment));
        Ok(shown)
    }

    async fn take(&mut self, json: &str, kind: &str) -> Result<Go> {
        let event: Value = serde_json::from_str(json).unwrap_or_default();
        let line = self.board.take(&event, json, now());
        self.newest = self.newest.max(event["event_id"].as_u64().filter(|_| kind == "comment").unwrap_or(0));
        let go = match self.args.json {
            true => self.screen.print(&plain_json(json)),
            false => line.is_none_or(|line| self.screen.print(&line)),
        };
        if !go {
            return Ok(Go::Away);
        }
        if kind == "hello" {
            self.screen.draw(&self.board.status());
        }
        if kind == "snapshot_required" && !self.args.json {
            return self.refetch(event["cursor"].as_u64()).await;
        }
        Ok(Go::On)
    }

    /// What the stream could not give is taken from a new snapshot.
    async fn refetch(&mut self, min: Option<u64>) -> Result<Go> {
        if self.refetched.is_some_and(|at| at.elapsed() < AGAIN) {
            return Ok(Go::On);
        }
        self.refetched = Some(tokio::time::Instant::now());
        let snapshot = match room::snapshot(&self.http, &self.args.room, min).await {
            Ok(snapshot) => snapshot,
            // The stream goes on without it.
            Err(fault) => {
                self.notice(&format!("no snapshot could be had: {}", plain(&fault.to_string())));
                return Ok(Go::On);
            }
        };
        self.board.take_snapshot(&snapshot);
        for comment in comments(&snapshot) {
            if comment["event_id"].as_u64().is_some_and(|id| id > self.newest)
                && matches!(self.say_comment(&comment), Go::Away)
            {
                return Ok(Go::Away);
            }
        }
        Ok(Go::On)
    }

    fn say_comment(&mut self, comment: &Value) -> Go {
        self.newest = self.newest.max(comment["event_id"].as_u64().unwrap_or(0));
        let json = comment.to_string();
        let said = match self.args.json {
            true => self.screen.print(&plain_json(&json)),
            false => self.board.take(comment, &json, now()).is_none_or(|line| self.screen.print(&line)),
        };
        if said { Go::On } else { Go::Away }
    }

    fn cut(&mut self, wait: Duration) -> Go {
        if self.board.cut() {
            let from = self.feed.cursor().map_or_else(|| "the head".to_owned(), |cursor| cursor.to_string());
            self.notice(&format!(
                "the stream was cut; it goes on from {from} in {:.1} s at the latest",
                wait.as_secs_f64()
            ));
        }
        self.screen.draw(&self.board.status());
        Go::On
    }

    /// About the stream, not of it: on stderr where stdout is for a program.
    fn notice(&mut self, text: &str) {
        if self.screen.is_terminal() {
            self.screen.print(&self.board.notice(text));
        } else {
            eprintln!("-- {text}");
        }
    }
}

fn comments(snapshot: &Value) -> Vec<Value> {
    snapshot["recent_comments"].as_array().cloned().unwrap_or_default()
}

fn at(comment: &Value) -> Option<Wall> {
    stamp::parse(comment["ts"].as_str()?)
}

fn told(fault: Fault) -> anyhow::Error {
    match fault {
        Fault::Connection(why) => anyhow!("the server cannot be reached: {why}"),
        other => anyhow!(other),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Since, since};

    #[test]
    fn since_is_an_id_or_a_time() {
        assert_eq!(since("8589934601"), Ok(Since::Id(8_589_934_601)));
        assert_eq!(since("10m"), Ok(Since::Ago(Duration::from_secs(600))));
        for bad in ["", "0", "9007199254740992", "yesterday", "-1"] {
            assert!(since(bad).is_err(), "{bad:?}");
        }
    }
}
