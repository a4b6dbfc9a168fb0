//! `grandstand admin`: what operators and moderators do, from a terminal. Each command is one call of the server's API, with the
//! same token, the same rules and the same audit as the console.

mod lists;
mod moderate;
mod providers;
mod show;
mod site;
mod terminal;
mod webhooks;

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::{Subcommand, ValueEnum};
use grandstand_client::admin::{Admin, ArchiveAsked, AuditAsked, NotDone, RoomsAsked};
use grandstand_client::http::Http;
use grandstand_client::tls::Trust;
use grandstand_client::{Endpoint, Fault};
use serde_json::{Map, Value, json};
use terminal::{Declined, Terminal};

use crate::plain::{plain, plain_lines};

#[derive(clap::Args)]
#[command(
    after_help = "Exit codes: 0 done, 1 refused by a rule, 2 wrong usage, 3 not allowed or no valid token, 4 no such room or thing, 5 changed meanwhile, 6 not now (try again), 7 the server cannot be reached, 8 the question at the terminal was not answered with yes.\n\nExamples:\n  grandstand admin rooms --order viewers\n  grandstand admin ban derby u17 --for 10m --justification spam\n  grandstand admin audit --action ban --from 2026-05-17T18:00:00.000Z --json"
)]
pub struct Args {
    /// Address of the server.
    #[arg(long, env = "GRANDSTAND_URL", default_value = "http://127.0.0.1:8080", global = true)]
    url: String,
    /// An operator's token (role room-mod, region-ops or admin; for `export` and `archive` admin or backend).
    #[arg(long, env = "GRANDSTAND_TOKEN", hide_env_values = true, global = true)]
    token: Option<String>,
    /// With https: believe the authorities of this PEM file, and no others, instead of the system's.
    #[arg(long, env = "GRANDSTAND_CA", value_name = "FILE", global = true)]
    ca: Option<PathBuf>,
    /// With https: believe any certificate. For a server of one's own, on one's own machine.
    #[arg(long, conflicts_with = "ca", global = true)]
    insecure: bool,
    /// Print the server's answer as one line of JSON; of a refusal, its problem document on stderr.
    #[arg(long, global = true)]
    json: bool,
    /// Why it is done, for the audit: 1 to 200 bytes. Every change needs it.
    #[arg(long, short, env = "GRANDSTAND_JUSTIFICATION", global = true)]
    justification: Option<String>,
    /// Change nothing: print each change as the call that it would be.
    #[arg(long, global = true)]
    dry_run: bool,
    /// Do not ask first. What cannot be taken back, or reaches the whole site, is asked about where stdin is a terminal.
    #[arg(long, short, global = true)]
    yes: bool,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// The rooms the token may act in, with viewers and counters.
    Rooms {
        /// Part of an id or a title.
        #[arg(long)]
        q: Option<String>,
        #[arg(long, value_enum, default_value = "name")]
        order: Order,
        /// Rooms to print; of those by name, 500 at a time are asked for.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        limit: u32,
    },
    /// One room's settings.
    Room {
        #[command(subcommand)]
        what: RoomWhat,
    },
    /// One comment a user in so many seconds; 0 ends it.
    SlowMode {
        room: String,
        #[arg(value_parser = clap::value_parser!(u32))]
        seconds: u32,
        /// How long it holds: 90s, 15m, 2h. Without it, until it is ended.
        #[arg(long = "for", value_parser = crate::token::ttl)]
        lasts: Option<Duration>,
    },
    /// scheduled, live, settling or closed.
    State { room: String, state: String },
    #[command(flatten)]
    Moderate(moderate::What),
    #[command(flatten)]
    Site(site::What),
    /// Receivers of your own that are told what happens: scores, gifts, banners, moderation.
    Webhook {
        #[command(subcommand)]
        what: webhooks::What,
    },
    /// Notices to the whole site.
    Banner {
        #[command(subcommand)]
        what: BannerWhat,
    },
    /// Each gateway's load, admission and drain.
    Gateways,
    /// New streams a second of a gateway, or of `all`; ends a drain. Without a rate: as configured.
    Admission {
        gateway: String,
        rate: Option<u32>,
        #[arg(long, requires = "rate")]
        burst: Option<u32>,
    },
    /// Sends a gateway's viewers away over so many seconds, and takes nobody until the next `admission`.
    Drain { gateway: String, seconds: u64 },
    /// Viewers of sampled rooms are given at most so many comments a second for a while. Without anything: what was set ends.
    Shedding {
        gateway: String,
        #[arg(long, requires = "lasts")]
        cap: Option<u32>,
        /// How long the cap holds: at most 15m.
        #[arg(long = "for", requires = "cap", value_parser = crate::token::ttl)]
        lasts: Option<Duration>,
        /// How long shedding is no surprise: at most 12h.
        #[arg(long, value_parser = crate::token::ttl)]
        expected: Option<Duration>,
    },
    /// What a room's gifts come to, by currency and user, one answer of JSON a line.
    Gifts {
        room: String,
        /// First id.
        #[arg(long)]
        from: Option<u64>,
        /// Last id.
        #[arg(long)]
        to: Option<u64>,
        /// This user's alone.
        #[arg(long)]
        user: Option<String>,
        /// Of this currency alone.
        #[arg(long)]
        currency: Option<String>,
    },
    /// Providers of score events: their keys by name, what they are of, and when each was heard; and the keys they sign with.
    Providers {
        #[command(subcommand)]
        what: Option<providers::What>,
    },
    /// The matches that rooms show.
    Matches,
    /// One match: from whom it is shown, what was said of it, and what operators type.
    Match {
        id: String,
        #[command(subcommand)]
        what: MatchWhat,
    },
    /// What operators changed, newest first.
    Audit {
        #[arg(long)]
        room: Option<String>,
        #[arg(long)]
        operator: Option<String>,
        /// ban, "shadow ban", unban, retract, pin, unpin, "slow mode", state, "put room", "held: approve", "held: deny", "site ban", "site unban",
        /// revoke, "revoke end", "auth outage", "auth outage end", "provider key", "provider key end", admission, drain, shedding, banner,
        /// "banner end", webhook, "webhook change", "webhook test", "webhook end".
        #[arg(long)]
        action: Option<String>,
        /// At this time or later, such as 2026-05-17T20:14:33.122Z.
        #[arg(long)]
        from: Option<String>,
        /// Before this time.
        #[arg(long)]
        to: Option<String>,
        /// Changes to print.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        limit: u32,
    },
    /// What a user said and gave in a room and what was done about it, newest first.
    History {
        room: String,
        user: String,
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        limit: u32,
    },
    /// A user is erased: nothing of before keeps its name, its id or what it said. It cannot be undone, and is no ban.
    Erase {
        user: String,
        /// Do not wait until it is done.
        #[arg(long)]
        no_wait: bool,
    },
    /// What was decided in a room, newest first, one row for each; or, of `verify`, whether the log is what was written.
    Ledger {
        /// A room, or `verify`: the whole log against its chain, naming the first record that does not fit.
        room: String,
        #[arg(long)]
        user: Option<String>,
        /// allow, flag, block or none.
        #[arg(long)]
        verdict: Option<String>,
        /// comment, blocked, held, held_end, admin, override, action or erased.
        #[arg(long)]
        kind: Option<String>,
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        limit: u32,
    },
    /// The room's comments as danmaku players read them: Bilibili's XML or DPlayer's JSON.
    Archive {
        room: String,
        #[arg(long, value_parser = ["bilibili", "dplayer"])]
        format: String,
        /// When the recording begins, such as 2026-05-17T20:14:33.122Z: comments are placed from there.
        #[arg(long)]
        start: String,
        /// Comments of this time or later; without it from the start.
        #[arg(long)]
        from: Option<String>,
        /// Comments before this time.
        #[arg(long)]
        to: Option<String>,
        /// The room may not be shown everywhere; you see to that.
        #[arg(long)]
        blacked_out: bool,
        /// Write to this file instead of stdout; it must not be there yet.
        #[arg(long, short)]
        output: Option<PathBuf>,
    },
    /// The room's log as JSON Lines.
    Export {
        room: String,
        /// First id.
        #[arg(long)]
        from: Option<u64>,
        /// Last id.
        #[arg(long)]
        to: Option<u64>,
        /// Also what no viewer is sent: `control`, `raw`.
        #[arg(long, value_delimiter = ',', value_parser = ["control", "raw"])]
        include: Vec<String>,
        /// Write to this file instead of stdout; it must not be there yet.
        #[arg(long, short)]
        output: Option<PathBuf>,
    },
}

#[derive(Subcommand)]
enum RoomWhat {
    /// Prints every setting.
    Get { room: String },
    /// Changes settings and leaves the others; makes the room when there is none.
    Put {
        room: String,
        /// Settings, each as `name=value`; what is JSON is taken as JSON, anything else as text.
        #[arg(required_unless_present = "file", value_parser = setting)]
        set: Vec<(String, Value)>,
        /// An object of settings, as `room get --json` prints it; `-` is stdin.
        #[arg(long, conflicts_with = "set")]
        file: Option<PathBuf>,
        /// Only if the room's version is still this one.
        #[arg(long)]
        if_version: Option<u64>,
    },
}

#[derive(Subcommand)]
enum MatchWhat {
    /// From whom it is shown, and what each provider says the score is.
    Providers,
    /// Shows it from this provider. Says what viewers would be told, and does it with --confirm.
    Set {
        primary: String,
        /// Written down and compared.
        #[arg(long)]
        stand_by: Option<String>,
        #[command(flatten)]
        confirm: Confirm,
    },
    /// What is shown, and every revision that was said, newest first.
    Scores {
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        limit: u32,
    },
    /// A score event of your own, or a correction of what is shown under --key. Says what viewers would be told, and does it with
    /// --confirm.
    Type {
        /// What is corrected; without it, a new event.
        #[arg(long)]
        key: Option<String>,
        /// goal, penalty, red_card, …; of a correction what is left out stays.
        #[arg(long)]
        kind: Option<String>,
        /// confirmed, provisional, under_review, withdrawn.
        #[arg(long)]
        state: Option<String>,
        /// As 2-1.
        #[arg(long, value_parser = goals)]
        score: Option<(u32, u32)>,
        #[arg(long)]
        minute: Option<String>,
        #[command(flatten)]
        confirm: Confirm,
    },
    /// Takes back what is shown under a key. Says what viewers would be told, and does it with --confirm.
    Withdraw {
        key: String,
        #[command(flatten)]
        confirm: Confirm,
    },
}

#[derive(clap::Args)]
struct Confirm {
    /// Does what the call without it showed.
    #[arg(long, value_name = "TOKEN")]
    confirm: Option<String>,
}

#[derive(Subcommand)]
enum BannerWhat {
    /// Those that stand.
    List,
    /// Puts one up, on every open stream of the site.
    Put {
        text: String,
        /// How long it stands: 30s, 5m, 24h.
        #[arg(long = "for", value_parser = crate::token::ttl)]
        lasts: Option<Duration>,
        /// The room it leads to.
        #[arg(long)]
        room: Option<String>,
    },
    /// Takes one down before its time.
    End { banner_id: String },
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Order {
    Name,
    Viewers,
}

/// Something is missing from the command, or is no such thing.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Usage(String);

/// Longest answer of the API's lists.
const PAGE: usize = 500;

/// An erase has a minute; one of a very large log takes longer, and goes on by itself.
const ERASED_WITHIN: Duration = Duration::from_secs(90);

pub fn run(args: &Args) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match runtime.block_on(perform(args)) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(failure) => {
            if let Some(usage) = failure.downcast_ref::<Usage>() {
                eprintln!("error: {usage}");
                return Ok(ExitCode::from(2));
            }
            if failure.is::<Declined>() {
                eprintln!("{failure}");
                return Ok(ExitCode::from(8));
            }
            let Some(not_done) = failure.downcast_ref::<NotDone>() else { return Err(failure) };
            match not_done {
                NotDone::Refused(problem) if args.json && !problem.document.is_null() => {
                    eprintln!("{}", problem.document)
                }
                NotDone::Refused(problem) => eprintln!("refused: {}", plain_lines(&problem.to_string())),
                NotDone::Fault(fault) => eprintln!("error: {}", crate::in_words(&anyhow!("{}", told(fault)))),
            }
            Ok(ExitCode::from(code(not_done)))
        }
    }
}

fn told(fault: &Fault) -> String {
    match fault {
        Fault::Connection(why) => format!("the server cannot be reached: {why}"),
        other => other.to_string(),
    }
}

fn code(why: &NotDone) -> u8 {
    match why {
        NotDone::Refused(problem) => match problem.status {
            401 | 403 => 3,
            404 => 4,
            409 | 412 => 5,
            429 | 503 => 6,
            _ => 1,
        },
        NotDone::Fault(_) => 7,
    }
}

async fn perform(args: &Args) -> Result<()> {
    let trust = match &args.ca {
        _ if args.insecure => Trust::Anyone,
        Some(file) => Trust::File(file.clone()),
        None => Trust::System,
    };
    let endpoint = Endpoint::trusting(&args.url, &trust).map_err(|fault| Usage(fault.to_string()))?;
    let missing =
        "--token is missing, or GRANDSTAND_TOKEN; `grandstand token --role admin` makes one with a data folder's key";
    let token = args.token.as_deref().ok_or_else(|| Usage(missing.to_owned()))?;
    let admin = Admin::new(Http::new(&endpoint, Some(token)));
    let admin = if args.dry_run { admin.dry() } else { admin };
    let terminal = Terminal { admin: &admin, args };
    let why = || terminal.why();
    let done = |what: &str, answer: &Value| terminal.done(what, answer);
    match &args.what {
        What::Rooms { q, order, limit } => {
            let rooms = rooms(&admin, q.clone(), *order == Order::Viewers, *limit as usize).await?;
            terminal.show(&json!({"rooms": rooms}), show::rooms);
        }
        What::Room { what: RoomWhat::Get { room } } => {
            terminal.show(&admin.room(room).await?, show::settings);
        }
        What::Room { what: RoomWhat::Put { room, set, file, if_version } } => {
            let why = why()?;
            let change = match file {
                Some(file) => settings_of(file)?,
                None => set.iter().cloned().collect(),
            };
            terminal.show(&admin.put_room(room, change, *if_version, why).await?, show::settings);
        }
        What::SlowMode { room, seconds, lasts } => {
            let lasts = lasts.map(|d| d.as_millis() as u64);
            done(&format!("slow mode of {room}: {seconds} s"), &admin.slow_mode(room, *seconds, lasts, why()?).await?);
        }
        What::State { room, state } => done(&format!("{room} is {state}"), &admin.state(room, state, why()?).await?),
        What::Moderate(what) => moderate::perform(what, &terminal).await?,
        What::Site(what) => site::perform(what, &terminal).await?,
        What::Webhook { what } => webhooks::perform(what, &terminal).await?,
        What::Banner { what: BannerWhat::List } => {
            terminal.show(&admin.banners().await?, show::banners);
        }
        What::Banner { what: BannerWhat::Put { text, lasts, room } } => {
            let answer = admin.banner(text, lasts.map(|d| d.as_secs()), room.as_deref(), why()?).await?;
            done("the banner stands", &answer);
        }
        What::Banner { what: BannerWhat::End { banner_id } } => {
            done("the banner is ended", &admin.end_banner(banner_id, why()?).await?);
        }
        What::Gateways => {
            terminal.show(&admin.gateways().await?, show::gateways);
        }
        What::Admission { gateway, rate, burst } => {
            let answer = admin.admission(gateway, *rate, *burst, why()?).await?;
            let set = rate.map_or("as configured".to_owned(), |rate| format!("{rate} a second"));
            done(&format!("admission of {gateway}: {set}"), &answer);
        }
        What::Drain { gateway, seconds } => {
            let answer = admin.drain(gateway, *seconds, why()?).await?;
            done(&format!("{gateway} is drained over {seconds} s"), &answer);
        }
        What::Shedding { gateway, cap, lasts, expected } => {
            let cap = cap.zip(lasts.map(|d| d.as_secs()));
            let answer = admin.shedding(gateway, cap, expected.map(|d| d.as_secs()), why()?).await?;
            let set = cap.map_or("as it was".to_owned(), |(cap, seconds)| format!("at most {cap}/s for {seconds} s"));
            done(&format!("shedding of {gateway}: {set}"), &answer);
        }
        What::Gifts { room, from, to, user, currency } => {
            let mut from = *from;
            loop {
                let part = admin.gifts(room, (from, *to), user.as_deref(), currency.as_deref()).await?;
                println!("{part}");
                // Parts add up: each says where it ends.
                match part["upto"].as_u64().filter(|_| part["more"] == true) {
                    Some(upto) => from = Some(upto + 1),
                    None => break,
                }
            }
        }
        What::Providers { what } => providers::perform(what.as_ref(), &terminal).await?,
        What::Matches => {
            let matches = matches(&admin).await?;
            terminal.show(&json!({"matches": matches}), show::matches);
        }
        What::Match { id, what } => match what {
            MatchWhat::Providers => {
                terminal.show(&admin.match_providers(id).await?, show::match_providers);
            }
            MatchWhat::Scores { limit } => {
                terminal.show(&scores(&admin, id, *limit as usize).await?, show::scores);
            }
            MatchWhat::Set { primary, stand_by, confirm } => {
                let ask = async |confirmed: Option<(&str, &str)>| {
                    admin.set_match_providers(id, primary, stand_by.as_deref(), confirmed).await
                };
                in_two_steps(&terminal, confirm, &format!("{id} is shown from {primary}"), ask).await?;
            }
            MatchWhat::Type { key, kind, state, score, minute, confirm } => {
                let mut body = Map::new();
                for (name, value) in [("key", key), ("kind", kind), ("state", state), ("minute", minute)] {
                    body.extend(value.as_ref().map(|value| (name.to_owned(), value.clone().into())));
                }
                if let Some((home, away)) = score {
                    body.insert("score".to_owned(), json!({"home": home, "away": away}));
                }
                let ask = async |confirmed: Option<(&str, &str)>| admin.type_score(id, body.clone(), confirmed).await;
                in_two_steps(&terminal, confirm, &format!("it is told to the viewers of {id}"), ask).await?;
            }
            MatchWhat::Withdraw { key, confirm } => {
                let body =
                    Map::from_iter([("key".to_owned(), key.clone().into()), ("state".to_owned(), "withdrawn".into())]);
                let ask = async |confirmed: Option<(&str, &str)>| admin.type_score(id, body.clone(), confirmed).await;
                in_two_steps(&terminal, confirm, &format!("{key} is taken back from the viewers of {id}"), ask).await?;
            }
        },
        What::Audit { room, operator, action, from, to, limit } => {
            let (room, operator, action) = (room.clone(), operator.clone(), action.clone());
            let asked =
                AuditAsked { room, operator, action, from: from.clone(), to: to.clone(), ..AuditAsked::default() };
            let rows = audit(&admin, asked, *limit as usize).await?;
            terminal.show(&json!({"audit": rows}), show::audit);
        }
        What::History { room, user, limit } => {
            let events = history(&admin, room, user, *limit as usize).await?;
            terminal.show(&json!({"events": events}), show::history);
        }
        What::Erase { user, no_wait } => {
            let why = why()?;
            let effect = format!("Nothing of before keeps {user}, in any room, and it cannot be undone.");
            terminal.sure(None, &[effect]).await?;
            let answer = admin.erase(user, why).await?;
            if !no_wait && !args.dry_run {
                erased(&admin, &answer["event_id"]).await?;
            }
            done(if *no_wait { "the erase is under way" } else { "the user is erased" }, &answer);
        }
        What::Ledger { room, .. } if room == "verify" => verify(&admin, args.json).await?,
        What::Ledger { room, user, verdict, kind, limit } => {
            let (mut rows, mut before): (Vec<Value>, _) = (Vec::new(), None);
            while rows.len() < *limit as usize {
                let n = PAGE.min(*limit as usize - rows.len());
                let answer = admin.ledger(room, [user, verdict, kind], Some(n), before).await?;
                rows.extend(answer["rows"].as_array().cloned().unwrap_or_default());
                before = answer["next"].as_u64();
                if before.is_none() {
                    break;
                }
            }
            terminal.show(&json!({"rows": rows}), show::ledger);
        }
        What::Archive { room, format, start, from, to, blacked_out, output } => {
            let asked = ArchiveAsked {
                format: format.clone(),
                start: start.clone(),
                from: from.clone(),
                to: to.clone(),
                blacked_out: *blacked_out,
            };
            let mut out = sink(output.as_deref())?;
            admin.archive(room, &asked, &mut |bytes| out.write_all(bytes)).await?;
            out.flush()?;
        }
        What::Export { room, from, to, include, output } => {
            let ids = (*from, *to);
            let mut out = sink(output.as_deref())?;
            let head = admin.export(room, ids, &include.join(","), &mut |bytes| out.write_all(bytes)).await?;
            out.flush()?;
            if let Some(head) = head {
                // Beside the lines: they are the log's alone.
                eprintln!("chain head: {head}");
            }
        }
    }
    Ok(())
}

/// Goes through the whole log. Errors: a record does not fit.
async fn verify(admin: &Admin, as_json: bool) -> Result<()> {
    let (mut from, mut records, mut before_chain) = (None, 0, 0);
    loop {
        let mut answer = admin.verify(from).await?;
        records += answer["records"].as_u64().unwrap_or_default();
        before_chain += answer["before_chain"].as_u64().unwrap_or_default();
        let link = answer["link"].as_str().unwrap_or_default().to_owned();
        if answer["more"] == true {
            from = Some((answer["upto"].as_u64().unwrap_or_default(), link));
            continue;
        }
        (answer["records"], answer["before_chain"]) = (records.into(), before_chain.into());
        if as_json {
            println!("{answer}");
        }
        let broken = &answer["broken"];
        if !broken.is_null() {
            let why = broken["why"].as_str().unwrap_or_default();
            bail!(
                "the log is not what was written: epoch {} seq {} (event {}): {}",
                broken["epoch"],
                broken["seq"],
                broken["event_id"],
                plain(why)
            );
        }
        if !as_json {
            println!("{records} records fit, up to {} with the link {link}", answer["upto"]);
            if before_chain > 0 {
                println!("{before_chain} records are from before there was a chain");
            }
        }
        return Ok(());
    }
}

/// Waits until this erase is done.
async fn erased(admin: &Admin, event_id: &Value) -> Result<()> {
    let begun = std::time::Instant::now();
    loop {
        let erasures = admin.erasures().await?;
        if !erasures["pending"].as_array().is_some_and(|pending| pending.contains(event_id)) {
            return Ok(());
        }
        if begun.elapsed() > ERASED_WITHIN {
            bail!("the erase {event_id} is still under way: `GET /admin/erasures` tells when it is done");
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Stdout, or a new file.
fn sink(output: Option<&Path>) -> Result<Box<dyn std::io::Write + Send>> {
    let Some(path) = output else { return Ok(Box::new(std::io::stdout())) };
    let file = std::fs::OpenOptions::new().write(true).create_new(true).open(path);
    Ok(Box::new(file.with_context(|| path.display().to_string())?))
}

async fn rooms(admin: &Admin, text: Option<String>, by_viewers: bool, limit: usize) -> Result<Vec<Value>> {
    if by_viewers && limit > PAGE {
        return Err(Usage(format!("of the most watched rooms at most {PAGE} are told: lower --limit")).into());
    }
    let mut rooms: Vec<Value> = Vec::new();
    loop {
        let after = rooms.last().and_then(|room| room["room_id"].as_str()).map(str::to_owned);
        let ask = RoomsAsked { text: text.clone(), by_viewers, after, limit: Some(PAGE.min(limit - rooms.len())) };
        let answer = admin.rooms(&ask).await?;
        rooms.extend(answer["rooms"].as_array().cloned().unwrap_or_default());
        if by_viewers || rooms.len() >= limit || answer["more"] != true {
            return Ok(rooms);
        }
    }
}

/// Asks what would be done, and does it where it is confirmed: by the token of an earlier asking, or at once by `--yes`.
async fn in_two_steps(
    terminal: &Terminal<'_>,
    confirm: &Confirm,
    what: &str,
    ask: impl AsyncFn(Option<(&str, &str)>) -> Result<Value, NotDone>,
) -> Result<()> {
    let at_once = terminal.args.yes;
    let token = match &confirm.confirm {
        Some(token) => token.clone(),
        None => {
            if at_once {
                terminal.why()?;
            }
            let shown = ask(None).await?;
            // One answer a call is JSON: with --yes the last one.
            if !(at_once && terminal.args.json) {
                match shown["dry_run"] == true {
                    true => terminal.done(what, &shown),
                    false => terminal.show(&shown, |shown| show::preview(shown, at_once)),
                }
            }
            if !at_once || shown["dry_run"] == true {
                return Ok(());
            }
            shown["confirm"].as_str().unwrap_or_default().to_owned()
        }
    };
    let answer = ask(Some((&token, terminal.why()?))).await?;
    terminal.done(what, &answer);
    Ok(())
}

async fn matches(admin: &Admin) -> Result<Vec<Value>> {
    let mut matches: Vec<Value> = Vec::new();
    let mut after = None;
    loop {
        let answer = admin.matches(after.as_deref(), PAGE).await?;
        matches.extend(answer["matches"].as_array().cloned().unwrap_or_default());
        after = answer["next"].as_str().map(str::to_owned);
        if after.is_none() {
            return Ok(matches);
        }
    }
}

/// The first answer, with the revisions of those that follow.
async fn scores(admin: &Admin, id: &str, limit: usize) -> Result<Value> {
    let mut whole = admin.match_scores(id, PAGE.min(limit), None).await?;
    loop {
        let said = whole["revisions"].as_array().map_or(0, Vec::len);
        let Some(before) = whole["next"].as_u64().filter(|_| said < limit) else { return Ok(whole) };
        let mut more = admin.match_scores(id, PAGE.min(limit - said), Some(before)).await?;
        let rows = more["revisions"].as_array_mut().map(std::mem::take).unwrap_or_default();
        if let Some(revisions) = whole["revisions"].as_array_mut() {
            revisions.extend(rows);
        }
        (whole["next"], whole["more"]) = (more["next"].take(), more["more"].take());
    }
}

async fn audit(admin: &Admin, mut asked: AuditAsked, limit: usize) -> Result<Vec<Value>> {
    let mut rows = Vec::new();
    loop {
        asked.limit = Some(PAGE.min(limit - rows.len()));
        let answer = admin.audit(&asked).await?;
        rows.extend(answer["audit"].as_array().cloned().unwrap_or_default());
        asked.before = answer["next"].as_str().map(str::to_owned);
        if rows.len() >= limit || asked.before.is_none() {
            return Ok(rows);
        }
    }
}

async fn history(admin: &Admin, room: &str, user: &str, limit: usize) -> Result<Vec<Value>> {
    let (mut events, mut before) = (Vec::new(), None);
    loop {
        let answer = admin.history(room, user, Some(PAGE.min(limit - events.len())), before).await?;
        events.extend(answer["events"].as_array().cloned().unwrap_or_default());
        before = answer["next"].as_u64();
        if events.len() >= limit || before.is_none() {
            return Ok(events);
        }
    }
}

fn settings_of(file: &PathBuf) -> Result<Map<String, Value>> {
    let mut text = String::new();
    match file.as_os_str() == "-" {
        true => drop(std::io::stdin().read_to_string(&mut text)?),
        false => text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?,
    }
    match serde_json::from_str(&text).with_context(|| file.display().to_string())? {
        Value::Object(settings) => Ok(settings),
        _ => bail!("{}: settings are one JSON object", file.display()),
    }
}

/// `2-1`
fn goals(text: &str) -> Result<(u32, u32), String> {
    let both = text.split_once('-').and_then(|(home, away)| Some((home.parse().ok()?, away.parse().ok()?)));
    both.ok_or_else(|| "a score is home and away, as 2-1".to_owned())
}

/// `name=value`; a value that is JSON is that, another is text.
fn setting(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or("a setting is name=value")?;
    Ok((name.to_owned(), serde_json::from_str(value).unwrap_or_else(|_| value.into())))
}

#[cfg(test)]
mod tests {
    use grandstand_client::Fault;
    use grandstand_client::admin::{NotDone, Problem};
    use serde_json::{Value, json};

    use super::{code, setting};

    #[test]
    fn a_setting_is_json_where_it_can_be_and_text_where_not() {
        for (text, name, value) in [
            ("title=Cup final", "title", json!("Cup final")),
            ("slow_mode_seconds=10", "slow_mode_seconds", json!(10)),
            ("cap=null", "cap", json!(null)),
            ("matches=[\"m1\"]", "matches", json!(["m1"])),
            ("title=a=b", "title", json!("a=b")),
            ("title=\"10\"", "title", json!("10")),
        ] {
            assert_eq!(setting(text), Ok((name.to_owned(), value)), "{text}");
        }
        assert!(setting("title").is_err() && setting("=1").is_err());
    }

    #[test]
    fn an_exit_code_says_what_kind_of_no_it_was() {
        let refused = |status| {
            NotDone::Refused(Box::new(Problem {
                status,
                code: String::new(),
                detail: String::new(),
                fields: Vec::new(),
                retry_after_ms: None,
                document: Value::Null,
            }))
        };
        for (status, wanted) in
            [(401, 3), (403, 3), (404, 4), (409, 5), (412, 5), (422, 1), (429, 6), (503, 6), (500, 1)]
        {
            assert_eq!(code(&refused(status)), wanted, "{status}");
        }
        assert_eq!(code(&NotDone::Fault(Fault::Connection(std::io::ErrorKind::ConnectionRefused.into()))), 7);
    }
}
