//! `serve --gateways N`: the supervisor of one shard process and N gateway processes.
//!
//! Like a stage manager: it plays no part, calls each actor on, and calls one who fell on again after a breath. It holds the
//! address (bound, never listening) so that port 0 means one port for all, and a pipe to each process: a process whose pipe ends
//! has lost its manager, drains, and ends by itself. Processes are in a group of their own, so that a terminal's Ctrl-C reaches
//! them through here, gateways first.
//!
//! The awkward case is a process that cannot start at all: at the first start that ends everything with the process's own
//! words, later it is tried again, ever more slowly.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use grandstand_server::config::Config;
use rustix::process::{Pid, Signal as Unix, kill_process};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::signal::unix::{SignalKind, signal};

use super::Args;
use super::breath::Breath;

/// Gateways drain at most this long, then the shard has the rest of the ten seconds.
const DRAIN: Duration = Duration::from_millis(5_500);
const SHARD_END: Duration = Duration::from_millis(3_500);

/// When the supervisor is gone: it never says a word, so the end of what it says is its own.
pub fn supervisor_left() -> Result<tokio::sync::oneshot::Receiver<()>> {
    let (tell, left) = tokio::sync::oneshot::channel();
    thread::Builder::new().name("supervisor".to_owned()).spawn(move || {
        let mut stdin = std::io::stdin().lock();
        let mut bytes = [0; 64];
        while !matches!(stdin.read(&mut bytes), Ok(0) | Err(_)) {}
        let _ = tell.send(());
    })?;
    Ok(left)
}

/// What the supervisor waits for.
enum News {
    /// A process printed its `ready` line.
    Ready(usize),
    /// Its output ended: so does it.
    Silent(usize, u64),
    Signal(&'static str),
    HangUp,
}

/// One place on the stage.
struct Place {
    /// For the command line and for people.
    share: String,
    running: Option<Running>,
    /// When it is started next.
    start_at: Option<Instant>,
    started: Instant,
    breath: Breath,
    /// Counts its processes, so that news of an earlier one is not taken for the next one's.
    n: u64,
    was_ready: bool,
}

struct Running {
    child: Child,
    /// Its end is ours.
    stdin: Option<ChildStdin>,
}

struct Stage {
    places: Vec<Place>,
    arguments: Vec<String>,
    news: Sender<News>,
}

const SHARD: usize = 0;

pub fn supervise(args: &Args, config: &Config, n: u8) -> Result<ExitCode> {
    let edges = config.edges.iter().map(|edge| edge.address);
    let mut own = edges.chain(config.irc.tcp.iter().chain(&config.irc.websocket).copied());
    if let Some(address) = own.find(|address| address.port() == 0) {
        anyhow::bail!("{address}: with several gateway processes a listener of its own needs a port");
    }
    let (listen, _held) = reserve(config.listen).with_context(|| format!("cannot listen on {}", config.listen))?;
    let (tell, news) = mpsc::channel();
    let mut places = vec![Place::new("shard".to_owned())];
    places.extend((0..n).map(|process| Place::new(format!("gateway:{process}/{n}"))));
    let mut stage = Stage { places, arguments: arguments(args, listen), news: tell.clone() };
    signals(tell)?;
    if let Some(code) = stage.first_start(&news)? {
        return Ok(code);
    }
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let mut out = std::io::stdout();
    writeln!(out, "ready {scheme}://{listen}")?;
    out.flush()?;
    stage.run(&news)
}

/// Binds the address for all processes, without taking anybody. The socket is kept as long as they live.
fn reserve(listen: SocketAddr) -> std::io::Result<(SocketAddr, Socket)> {
    let socket = Socket::new(Domain::for_address(listen), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.bind(&listen.into())?;
    let bound = socket.local_addr()?.as_socket().unwrap_or(listen);
    Ok((bound, socket))
}

/// The arguments of every process but its share: this one's own, with the address that was had.
fn arguments(args: &Args, listen: SocketAddr) -> Vec<String> {
    let mut all = vec!["serve".to_owned()];
    let mut add = |name: &str, value: String| all.extend([name.to_owned(), value]);
    if let Some(file) = &args.config {
        add("--config", file.display().to_string());
    }
    if let Some(data) = &args.data {
        add("--data", data.display().to_string());
    }
    for set in &args.set {
        add("--set", set.clone());
    }
    add("--listen", listen.to_string());
    all
}

/// Signals as news, on a thread of their own.
fn signals(tell: Sender<News>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut terminate, mut interrupt, mut hang_up) = {
        let _inside = runtime.enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?, signal(SignalKind::hangup())?)
    };
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        runtime.block_on(async {
            loop {
                let news = tokio::select! {
                    _ = terminate.recv() => News::Signal("SIGTERM"),
                    _ = interrupt.recv() => News::Signal("SIGINT"),
                    _ = hang_up.recv() => News::HangUp,
                };
                if tell.send(news).is_err() {
                    return;
                }
            }
        });
    })?;
    Ok(())
}

impl Place {
    fn new(share: String) -> Place {
        let now = Instant::now();
        Place { share, running: None, start_at: None, started: now, breath: Breath::default(), n: 0, was_ready: false }
    }
}

impl Stage {
    fn start(&mut self, at: usize) -> Result<()> {
        let this = std::env::current_exe().context("finding this binary")?;
        let place = &mut self.places[at];
        let mut command = Command::new(this);
        command.args(&self.arguments).args(["--share", &place.share]).stdin(Stdio::piped()).stdout(Stdio::piped());
        // A terminal's signals are for this process alone; it passes them on in its own order.
        let mut child = command.process_group(0).spawn().with_context(|| format!("starting {}", place.share))?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().expect("it is piped"));
        place.running = Some(Running { child, stdin });
        place.start_at = None;
        place.started = Instant::now();
        place.n += 1;
        let (n, tell) = (place.n, self.news.clone());
        thread::Builder::new().name(format!("watch {}", place.share)).spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if line.starts_with("ready") {
                    let _ = tell.send(News::Ready(at));
                }
            }
            let _ = tell.send(News::Silent(at, n));
        })?;
        Ok(())
    }

    /// Starts the shard, then all gateways. `Some` when that failed, or a signal came first.
    fn first_start(&mut self, news: &Receiver<News>) -> Result<Option<ExitCode>> {
        self.start(SHARD)?;
        loop {
            match news.recv()? {
                News::Ready(at) => {
                    self.places[at].was_ready = true;
                    if at == SHARD {
                        for at in 1..self.places.len() {
                            self.start(at)?;
                        }
                    }
                    if self.places.iter().all(|place| place.was_ready) {
                        return Ok(None);
                    }
                }
                News::Silent(at, _) => {
                    let status = self.reap(at);
                    eprintln!("error: {} did not start{}", self.places[at].share, in_words(status));
                    self.stop(news, "a failed start");
                    return Ok(Some(ExitCode::FAILURE));
                }
                News::Signal(name) => {
                    eprintln!("{name} before the server was ready");
                    self.stop(news, name);
                    return Ok(Some(ExitCode::SUCCESS));
                }
                News::HangUp => self.hang_up(),
            }
        }
    }

    fn run(&mut self, news: &Receiver<News>) -> Result<ExitCode> {
        loop {
            let next = self.places.iter().filter_map(|place| place.start_at).min();
            let item = match next {
                None => news.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(at) => news.recv_timeout(at.saturating_duration_since(Instant::now())),
            };
            match item {
                Ok(News::Ready(at)) => eprintln!("{} is back", self.places[at].share),
                Ok(News::Silent(at, n)) if n == self.places[at].n => {
                    let status = self.reap(at);
                    let place = &mut self.places[at];
                    eprintln!("{} ended{}; it is started again", place.share, in_words(status));
                    let now = Instant::now();
                    place.start_at = Some(now + place.breath.after(now - place.started, now));
                }
                Ok(News::Silent(..)) | Err(RecvTimeoutError::Timeout) => {}
                Ok(News::Signal(name)) => return Ok(self.stop(news, name)),
                Ok(News::HangUp) => self.hang_up(),
                Err(RecvTimeoutError::Disconnected) => unreachable!("this end is kept"),
            }
            for at in 0..self.places.len() {
                let place = &mut self.places[at];
                if place.start_at.is_some_and(|start_at| start_at <= Instant::now())
                    && let Err(fault) = self.start(at)
                {
                    let place = &mut self.places[at];
                    eprintln!("{fault:#}");
                    let now = Instant::now();
                    place.start_at = Some(now + place.breath.after(Duration::ZERO, now));
                }
            }
        }
    }

    /// Takes leave of a process whose output has ended. One that lives on without it is of no use.
    fn reap(&mut self, at: usize) -> Option<std::process::ExitStatus> {
        let mut running = self.places[at].running.take()?;
        let until = Instant::now() + Duration::from_secs(1);
        while Instant::now() < until {
            if let Ok(Some(status)) = running.child.try_wait() {
                return Some(status);
            }
            thread::sleep(Duration::from_millis(5));
        }
        let _ = running.child.kill();
        running.child.wait().ok()
    }

    fn hang_up(&self) {
        for place in &self.places {
            place.signal(Unix::HUP);
        }
    }

    /// Gateways first: they need the shard for what they have admitted.
    fn stop(&mut self, news: &Receiver<News>, why: &str) -> ExitCode {
        eprintln!("{why}: draining");
        let gateways: Vec<usize> = (1..self.places.len()).collect();
        let mut good = self.end(news, &gateways, DRAIN);
        good &= self.end(news, &[SHARD], SHARD_END);
        if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    /// Ends these processes; whether each ended well and in time.
    fn end(&mut self, news: &Receiver<News>, places: &[usize], limit: Duration) -> bool {
        for &at in places {
            if let Some(running) = &mut self.places[at].running {
                running.stdin = None;
            }
        }
        let until = Instant::now() + limit;
        let mut good = true;
        loop {
            let mut left = 0;
            for &at in places {
                let Some(running) = &mut self.places[at].running else { continue };
                match running.child.try_wait() {
                    Ok(Some(status)) => {
                        good &= status.success();
                        self.places[at].running = None;
                    }
                    Ok(None) => left += 1,
                    Err(_) => self.places[at].running = None,
                }
            }
            if left == 0 {
                return good;
            }
            match news.recv_timeout(Duration::from_millis(10)) {
                Ok(News::Signal(name)) => {
                    eprintln!("{name} again: ending at once");
                    return self.kill(places);
                }
                _ if Instant::now() >= until => {
                    eprintln!("not drained in time: ending");
                    return self.kill(places);
                }
                _ => {}
            }
        }
    }

    fn kill(&mut self, places: &[usize]) -> bool {
        for &at in places {
            if let Some(mut running) = self.places[at].running.take() {
                let _ = running.child.kill();
                let _ = running.child.wait();
            }
        }
        false
    }
}

impl Place {
    fn signal(&self, signal: Unix) {
        let Some(running) = &self.running else { return };
        // Its child is not waited for before `running` is taken, so the number is still its own.
        if let Some(pid) = i32::try_from(running.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal);
        }
    }
}

fn in_words(status: Option<std::process::ExitStatus>) -> String {
    status.map_or_else(String::new, |status| format!(" ({status})"))
}
