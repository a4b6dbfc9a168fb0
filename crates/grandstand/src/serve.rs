//! `grandstand serve`: the server as a process, its settings, its log lines and its signals.
//!
//! The first SIGTERM or SIGINT drains: viewers are told to come back, what was admitted is finished, exit code 0 within ten
//! seconds. A second one ends the process at once; every acknowledged event is in the log by then. SIGXFSZ is caught so that
//! a file-size limit comes back as the write's own error, which the server answers with `no_space`. SIGHUP reads the certificate
//! and the word lists again; word lists are also read again when they change.
//!
//! With `--gateways` this process is the supervisor of [`processes`], and every process it starts runs [`run`] again with its
//! share of the server.

mod breath;
mod processes;

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use grandstand_server::config::{Config, LogFormat};
use grandstand_server::edge::Serves;
use grandstand_server::kernel;
use grandstand_server::process::Share;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;

use crate::settings;

/// How often word lists are looked at.
const LISTS_EVERY: Duration = Duration::from_secs(2);

/// A drain that takes longer is ended, a little before whoever sent the signal loses patience at 10 s.
const STOP: Duration = Duration::from_millis(9_500);

#[derive(clap::Args)]
pub struct Args {
    /// Settings in TOML. Without a file the server is in development mode: loopback, rooms on first use, guests.
    #[arg(long, env = "GRANDSTAND_CONFIG")]
    config: Option<PathBuf>,
    /// Folder of the log, the catalog and the keys; made when it does not exist.
    #[arg(long)]
    data: Option<PathBuf>,
    /// Address to listen on; port 0 takes a free one.
    #[arg(long)]
    listen: Option<String>,
    /// Any other setting, as in `config reference`: `--set durability=none`. May be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Gateway processes beside the one that holds the log. Without it, all is one process.
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=i64::from(grandstand_server::link::PROCESSES_MAX)))]
    gateways: Option<u8>,
    /// Which share of the server this process is; given by its supervisor.
    #[arg(long, hide = true, value_parser = share, conflicts_with = "gateways")]
    share: Option<Share>,
}

/// `shard`, or `gateway:0/4`.
fn share(text: &str) -> Result<Share, String> {
    let parse = || {
        if text == "shard" {
            return Some(Share::Shard);
        }
        let (process, of) = text.strip_prefix("gateway:")?.split_once('/')?;
        Some(Share::Gateway { process: process.parse().ok()?, of: of.parse().ok()? })
    };
    parse().ok_or_else(|| "`shard`, or `gateway:NUMBER/ALL`".to_owned())
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let mut flags = Vec::new();
    for set in &args.set {
        let (key, value) = set.split_once('=').with_context(|| format!("--set {set}: expected KEY=VALUE"))?;
        flags.push((key.to_owned(), value.to_owned()));
    }
    flags.extend(args.data.iter().map(|d| ("data".to_owned(), d.display().to_string())));
    flags.extend(args.listen.iter().map(|l| ("listen".to_owned(), l.clone())));
    let config = match settings::load(flags, args.config.as_deref()) {
        Ok(config) => config,
        Err(faults) => return Ok(settings::tell(&faults)),
    };
    // Before they are compared, and for those that a supervisor starts: they have what it has.
    kernel::raise_descriptors();
    // A supervisor says it for all of its processes.
    if args.share.is_none() {
        warn(&config, args.gateways);
    }
    if let Some(n) = args.gateways {
        return processes::supervise(args, &config, n);
    }
    log_to_stderr(&config)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(config, args.share.unwrap_or(Share::All)))
}

/// What an operator must know. Not by the log: no filter hides it.
fn warn(config: &Config, gateways: Option<u8>) {
    for warning in config.warnings() {
        eprintln!("warning: {warning}");
    }
    // A laptop in development mode is not to hold ten thousand viewers.
    if !config.development || config.connections_max.is_some() {
        for limit in kernel::limits(config.connections_max, gateways).iter().filter(|limit| limit.is_too_low()) {
            eprintln!("warning: {limit} (docs/operate/sizing.md)");
        }
    }
}

async fn serve(config: Config, share: Share) -> Result<ExitCode> {
    let sealed = config.internal_tls.is_some();
    // Before the server: a signal during a long recovery is not lost.
    let mut stop = Stop::new(share)?;
    // Only with something to read again: without it, whoever hangs up a terminal ends its server, as ever.
    let lists = &config.moderation;
    // A supervisor passes the signal on to all of its processes.
    let has_files = share != Share::All
        || config.tls.is_some()
        || [&lists.block, &lists.flag, &lists.allow].into_iter().any(Option::is_some);
    let mut reload = has_files.then(|| signal(SignalKind::hangup())).transpose()?;
    let _file_limit = signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?;
    let starting = tokio::task::spawn_blocking(move || grandstand_server::process::start_share(config, share));
    let running = tokio::select! {
        started = starting => started??,
        name = stop.next() => {
            eprintln!("{name} before the server was ready");
            // The recovery writes nothing that the next start does not read.
            std::process::exit(0);
        }
    };
    let mut out = std::io::stdout();
    let scheme = if running.certificates.is_some() { "https" } else { "http" };
    for edge in &running.edges {
        let transport = match edge.serves {
            Serves::All => "everything",
            Serves::Only(transport) => transport.name(),
        };
        eprintln!("{transport} alone on {scheme}://{}", edge.address);
    }
    for (by, address) in &running.irc {
        let sealed = if running.certificates.is_some() { " with TLS" } else { "" };
        eprintln!("irc over {by}{sealed} on {address}");
    }
    match running.address {
        Some(address) => writeln!(out, "ready {scheme}://{address}")?,
        None => writeln!(out, "ready")?,
    }
    out.flush()?;
    if let Some(internal) = running.internal {
        let scheme = if sealed { "https" } else { "http" };
        eprintln!("metrics on {scheme}://{internal}/metrics");
    }

    let rules = running.rules.clone().filter(|rules| rules.has_lists());
    let mut look = tokio::time::interval(LISTS_EVERY);
    let name = loop {
        let hung_up = async {
            match &mut reload {
                Some(signal) => signal.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            name = stop.next() => break name,
            _ = hung_up => {}
            _ = look.tick(), if rules.is_some() => {
                // A file is read here: this thread has nothing else to do.
                rules.iter().for_each(|rules| rules.reload_if_changed());
                continue;
            }
        }
        if let Some(rules) = &rules {
            // Told on the log there.
            let _ = rules.reload();
        }
        if let Some(certificates) = &running.certificates {
            let file = certificates.files().certificate.display();
            match certificates.reload() {
                Ok(()) => tracing::info!(%file, "the certificate was read again; new connections are shown it"),
                Err(fault) => tracing::error!(%fault, "the certificate was not replaced; the old one is shown on"),
            }
        }
    };
    tracing::info!(signal = name, "draining");
    let stopping = tokio::task::spawn_blocking(move || running.stop());
    tokio::select! {
        stopped = stopping => {
            stopped?;
            Ok(ExitCode::SUCCESS)
        }
        name = stop.next() => {
            eprintln!("{name} again: ending at once");
            std::process::exit(1);
        }
        () = tokio::time::sleep(STOP) => {
            eprintln!("not drained within {} s: ending", STOP.as_secs());
            std::process::exit(1);
        }
    }
}

struct Stop {
    terminate: Signal,
    interrupt: Signal,
    /// Says so when the supervisor is gone; `None` for a process that has none.
    left: Option<tokio::sync::oneshot::Receiver<()>>,
}

impl Stop {
    fn new(share: Share) -> Result<Stop> {
        let left = (share != Share::All).then(processes::supervisor_left).transpose()?;
        Ok(Stop { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())?, left })
    }

    async fn next(&mut self) -> &'static str {
        let left = async {
            match &mut self.left {
                Some(left) => drop(left.await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            () = left => {
                // Once is enough: what follows is the patience of a drain.
                self.left = None;
                "the supervisor's end"
            }
        }
    }
}

fn log_to_stderr(config: &Config) -> Result<()> {
    let filter =
        EnvFilter::try_new(&config.log_filter).with_context(|| format!("log.filter = {:?}", config.log_filter))?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let done = match config.log_format {
        LogFormat::Full => log.try_init(),
        LogFormat::Compact => log.compact().try_init(),
    };
    done.map_err(|e| anyhow::anyhow!("starting the log: {e}"))
}
