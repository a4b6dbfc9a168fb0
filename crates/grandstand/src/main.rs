//! The one binary of Grandstand: the server and its tools.
#![forbid(unsafe_code)]

mod adapt;
mod admin;
mod credentials;
mod plain;
mod plan;
mod replay;
mod serve;
mod settings;
mod tail;
mod token;
mod trace;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::{Args, Parser, Subcommand, ValueEnum};
use grandstand_client::Endpoint;
use grandstand_client::tls::Trust;
use grandstand_core::names::RoomId;

#[derive(Parser)]
#[command(name = "grandstand", version, about = "Self-hosted server for live rooms, and its tools")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the server. Prints `ready http://ADDRESS` (with TLS `https://`) when it takes requests.
    ///
    /// Settings: flags, then GRANDSTAND_ variables, then the file, then defaults; see `config reference`.
    Serve(serve::Args),
    /// Print a signed token, and nothing else, to stdout.
    Token(token::Args),
    /// Follow a room in the terminal: comments, scores, gifts. A cut is made good from the cursor.
    Tail(tail::Args),
    /// Moderate rooms and run the server: everything its API does, with the same audit.
    Admin(admin::Args),
    /// Print or check the server's settings.
    Config {
        #[command(subcommand)]
        what: settings::What,
    },
    /// What a score provider really sends, as score events: one line of JSON each, or sent to the server with `--post`.
    ///
    /// Sportradar's Unified Odds Feed (odds_change, fixtures), Datafactory's match events, openfootball. For all others there is `--schema`.
    Adapt(adapt::Args),
    /// Play recorded chat and real matches into a room and account for every line.
    ///
    /// Reads, by content: Twitch IRC logs, chat-downloader and Twitch VOD JSON Lines, Bilibili XML, Niconico JSON Lines, openfootball JSON.
    /// Several files are played at the same time. Exits with 1 when the account does not close.
    Replay(ReplayArgs),
    /// Generate viewers and publishers, check every sequence, and measure latency and the server's cost.
    ///
    /// Exits with 1 when a check fails.
    Load(LoadArgs),
    /// What an evening needs: gateways, shards, bandwidth, memory, capacity to have ready, from measured costs.
    ///
    /// Asks no server. The costs and where they were measured are in the JSON and in docs/benchmarks.md.
    Plan(plan::Args),
    /// One process of a load run; started by `load` itself.
    #[command(hide = true)]
    LoadWorker,
}

/// Which server, and how to be let in.
#[derive(Args)]
struct ServerArgs {
    /// Address of the server.
    #[arg(long, env = "GRANDSTAND_URL", default_value = "http://127.0.0.1:8080")]
    url: String,
    /// A token with role `backend` (and `region-ops`, to set rooms up).
    #[arg(long, env = "GRANDSTAND_TOKEN", hide_env_values = true, conflicts_with = "data")]
    token: Option<String>,
    /// The server's data folder, whose signing key makes a token; without `--token` this is used.
    #[arg(long, env = "GRANDSTAND_DATA", default_value = "grandstand-data")]
    data: PathBuf,
    /// With https: believe the authorities of this PEM file, and no others, instead of the system's.
    #[arg(long, env = "GRANDSTAND_CA", value_name = "FILE")]
    ca: Option<PathBuf>,
    /// With https: believe any certificate. For a server of one's own, on one's own machine.
    #[arg(long, conflicts_with = "ca")]
    insecure: bool,
}

impl ServerArgs {
    fn endpoint(&self) -> Result<Endpoint> {
        let trust = match &self.ca {
            _ if self.insecure => Trust::Anyone,
            Some(file) => Trust::File(file.clone()),
            None => Trust::System,
        };
        Ok(Endpoint::trusting(&self.url, &trust)?)
    }

    /// The given token, or one made with the data folder's key.
    fn token(&self) -> Result<String> {
        match &self.token {
            Some(token) => Ok(token.clone()),
            None => credentials::tool_token(&self.data),
        }
    }
}

#[derive(Args)]
struct ReplayArgs {
    /// Recordings; recognised by content.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The room to play into; made when it does not exist.
    #[arg(long)]
    room: String,
    #[command(flatten)]
    server: ServerArgs,
    /// Times the recording's own pace, or `max`.
    #[arg(long, default_value = "1")]
    speed: replay::Speed,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
    /// Publishing connections; an author keeps to one.
    #[arg(long, default_value_t = 4)]
    connections: usize,
    /// Comments in flight on each of them.
    #[arg(long, default_value_t = 128)]
    inflight: usize,
    /// Sign score events as this provider, as a server with a configuration demands; with `--kid` and `--key-file`.
    #[arg(long, requires = "kid", requires = "key_file")]
    provider: Option<String>,
    /// The name of the provider's key.
    #[arg(long, requires = "provider")]
    kid: Option<String>,
    /// A file whose bytes are the provider's key.
    #[arg(long, requires = "provider")]
    key_file: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Transport {
    Ws,
    Sse,
    Poll,
    Mix,
}

#[derive(Args)]
struct LoadArgs {
    /// An evening with a name, each promise of it judged: quiet, match-night, barrage, brim, busy-room, likes, banner-storm, raid, long-tail, scores.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["rooms", "viewers", "rate", "seconds", "transport", "publishers", "score_rate", "idle", "publish_only", "inflight", "body_bytes", "merge_ms", "burst", "slow_share", "storm", "like_rate", "likers"])]
    scenario: Option<String>,
    /// Fewer viewers and rooms of the scenario, slower rates, shorter times; below 1, times are told and not judged.
    #[arg(long, default_value_t = 1.0, requires = "scenario")]
    scale: f64,
    /// Rooms; viewers and publishers are spread over them.
    #[arg(long, default_value_t = 1)]
    rooms: u32,
    /// Viewers over all rooms.
    #[arg(long, default_value_t = 100)]
    viewers: u32,
    /// Comments a second over all rooms.
    #[arg(long, default_value_t = 10.0)]
    rate: f64,
    /// How long to publish (or to hold, with `--idle`).
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    #[arg(long, value_enum, default_value = "ws")]
    transport: Transport,
    /// Publishing connections; at least one a room.
    #[arg(long, default_value_t = 1)]
    publishers: u32,
    /// Score events a second over all rooms; their latency is measured apart.
    #[arg(long, default_value_t = 0.0)]
    score_rate: f64,
    /// Likes a second over all rooms, by `--likers` users of their own.
    #[arg(long, default_value_t = 0.0, conflicts_with_all = ["token", "storm", "idle"])]
    like_rate: f64,
    /// Connections that like.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    likers: u32,
    #[command(flatten)]
    server: ServerArgs,
    /// A process of the server, for its CPU and memory; may be given several times.
    #[arg(long)]
    pid: Vec<u32>,
    /// Connect and hold; publish nothing.
    #[arg(long, conflicts_with_all = ["publish_only", "inflight"])]
    idle: bool,
    /// No viewers: every publisher in a room of its own, paced by the answers.
    #[arg(long)]
    publish_only: bool,
    /// Comments in flight on each publisher's connection, instead of a rate.
    #[arg(long)]
    inflight: Option<u32>,
    /// Bytes of a comment's body.
    #[arg(long, default_value_t = 60)]
    body_bytes: u32,
    /// A fixed merge window for the rooms, instead of one by their size.
    #[arg(long)]
    merge_ms: Option<u32>,
    /// WebSocket viewers offer permessage-deflate, as browsers do.
    #[arg(long)]
    deflate: bool,
    /// So many comments due at one moment, at the same rate.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    burst: u32,
    /// Each viewer is a user of its own, by a token made with the key of `--data`; without it, viewers are anonymous.
    #[arg(long, conflicts_with_all = ["token", "scenario"])]
    distinct_users: bool,
    /// This share of the viewers reads slowly while comments are published: 0.1 is one in ten.
    #[arg(long, default_value_t = 0.0)]
    slow_share: f64,
    /// What a slow viewer reads: `none`, or bytes a second.
    #[arg(long, default_value = "none", value_parser = slow_kind)]
    slow_kind: SlowKind,
    /// Instead of a time: drop everyone at once, without a word, and see all come back with their cursors.
    #[arg(long, conflicts_with_all = ["idle", "publish_only", "inflight", "seconds", "slow_share"])]
    storm: bool,
    /// Storms in a row.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000), requires = "storm")]
    storms: u32,
    /// This share of the viewers is not dropped, and its latency is measured while the others come back.
    #[arg(long, default_value_t = 0.05, requires = "storm")]
    stay_share: f64,
    /// Seconds before the first storm and after each.
    #[arg(long, default_value_t = 3.0, requires = "storm")]
    steady: f64,
    /// Viewers that connect a second at the beginning; 0 is as fast as it goes.
    #[arg(long, default_value_t = 0.0)]
    connect_rate: f64,
    /// Loopback addresses that viewers connect from, 127.0.0.2 on; 0 is one for each 2 000. One address has about 28 000 ports
    /// towards one server.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=250))]
    source_addresses: u32,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// Bytes a second.
#[derive(Clone, Copy)]
struct SlowKind(u32);

fn slow_kind(text: &str) -> Result<SlowKind, String> {
    match text {
        "none" => Ok(SlowKind(0)),
        _ => text.parse().map(SlowKind).map_err(|_| "`none`, or bytes a second".to_owned()),
    }
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(fault) => {
            eprintln!("error: {}", in_words(&fault));
            ExitCode::FAILURE
        }
    }
}

/// A fault with its causes, each said once: many name their cause themselves.
fn in_words(fault: &anyhow::Error) -> String {
    let mut said = fault.to_string();
    for cause in fault.chain().skip(1).map(ToString::to_string) {
        if !said.contains(&cause) {
            said += ": ";
            said += &cause;
        }
    }
    said
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Serve(args) => serve::run(&args),
        Command::Token(args) => token::run(&args),
        Command::Tail(args) => tail::run(&args),
        Command::Admin(args) => admin::run(&args),
        Command::Config { what } => settings::run(&what),
        Command::Adapt(args) => adapt::run(&args),
        Command::Replay(args) => replay(args),
        Command::Load(args) => load(&args),
        Command::Plan(args) => plan::run(&args),
        Command::LoadWorker => grandstand_load::worker().map(|()| ExitCode::SUCCESS),
    }
}

fn replay(args: ReplayArgs) -> Result<ExitCode> {
    ensure!(RoomId::parse(&args.room).is_some(), "--room: {}", RoomId::RULE);
    let signer = match (&args.provider, &args.kid, &args.key_file) {
        (Some(provider), Some(kid), Some(file)) => Some(credentials::signer(provider, kid, file)?),
        _ => None,
    };
    replay::run(replay::Settings {
        endpoint: args.server.endpoint()?,
        token: args.server.token()?,
        files: args.files,
        room: args.room,
        speed: args.speed,
        json: args.json,
        connections: args.connections,
        inflight: args.inflight,
        signer,
    })
}

fn load(args: &LoadArgs) -> Result<ExitCode> {
    ensure!(
        args.seconds > 0.0 && args.seconds <= Duration::from_secs(86_400).as_secs_f64(),
        "--seconds is more than 0 and at most a day"
    );
    ensure!(args.rate >= 0.0 && args.rate.is_finite(), "--rate is 0 or more");
    ensure!((0.0..1.0).contains(&args.slow_share), "--slow-share is 0 or more and less than 1");
    ensure!((0.0..1.0).contains(&args.stay_share), "--stay-share is 0 or more and less than 1");
    ensure!((0.0..=3_600.0).contains(&args.steady), "--steady is 0 to 3600 seconds");
    ensure!(args.connect_rate >= 0.0 && args.connect_rate.is_finite(), "--connect-rate is 0 or more");
    ensure!(
        !args.storm || args.rate + args.score_rate > 0.0,
        "--storm needs --rate or --score-rate: an event after its greeting shows that a viewer is back"
    );
    let scenario = args.scenario.as_deref().map(grandstand_load::scenario::find).transpose()?;
    let viewer_tokens = match args.distinct_users {
        true => credentials::viewer_tokens(&args.server.data, args.viewers)?,
        false => Vec::new(),
    };
    ensure!(args.like_rate >= 0.0 && args.like_rate.is_finite(), "--like-rate is 0 or more");
    let liker_tokens = match args.like_rate > 0.0 {
        true => credentials::liker_tokens(&args.server.data, args.likers)?,
        false => Vec::new(),
    };
    let base = grandstand_load::Settings::new(&args.server.endpoint()?, &args.server.token()?)?;
    let this = std::env::current_exe().context("finding this binary")?;
    let command = [this.display().to_string(), "load-worker".to_owned()];
    if let Some(scenario) = scenario {
        let measured = grandstand_load::Settings {
            deflate: args.deflate,
            connect_rate: args.connect_rate,
            source_addresses: args.source_addresses,
            pids: args.pid.clone(),
            liker_tokens: match scenario.likers(args.scale) {
                0 => Vec::new(),
                some => credentials::liker_tokens(&args.server.data, some)?,
            },
            ..base
        };
        let (settings, rooms) = scenario.settings(measured, args.scale)?;
        let report = grandstand_load::run(settings, rooms, &command, args.json)?;
        return shown(&report.of(scenario, args.scale), args.json);
    }
    let settings = grandstand_load::Settings {
        viewers: if args.publish_only { 0 } else { args.viewers },
        transport: match args.transport {
            Transport::Ws => grandstand_load::Transport::Ws,
            Transport::Sse => grandstand_load::Transport::Sse,
            Transport::Poll => grandstand_load::Transport::Poll,
            Transport::Mix => grandstand_load::Transport::Mix,
        },
        publishers: args.publishers,
        rate: args.rate,
        inflight: args.inflight.or(args.publish_only.then_some(4)),
        score_rate: args.score_rate,
        seconds: args.seconds,
        body_bytes: args.body_bytes,
        idle: args.idle,
        merge_ms: args.merge_ms,
        deflate: args.deflate,
        burst: args.burst,
        viewer_tokens,
        like_rate: args.like_rate,
        liker_tokens,
        slow: (args.slow_share > 0.0)
            .then_some(grandstand_load::Slow { share: args.slow_share, bytes_per_second: args.slow_kind.0 }),
        storm: args.storm.then_some(grandstand_load::Plan {
            storms: args.storms,
            stay: args.stay_share,
            steady_seconds: args.steady,
        }),
        connect_rate: args.connect_rate,
        source_addresses: args.source_addresses,
        pids: args.pid.clone(),
        ..base
    };
    // A publisher sees its own room's comments; alone in it, that is one for each it publishes.
    let rooms = if args.publish_only { args.rooms.max(args.publishers) } else { args.rooms };
    shown(&grandstand_load::run(settings, rooms, &command, args.json)?, args.json)
}

fn shown(report: &grandstand_load::Report, json: bool) -> Result<ExitCode> {
    if json {
        println!("{}", serde_json::to_string(report)?);
    } else {
        report.print();
    }
    Ok(if report.passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
