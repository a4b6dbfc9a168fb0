//! The parent of a run: splits it over processes, tells them when, and puts their answers together.
//!
//! Children are this same binary, called again. They read orders and write answers as JSON lines; a child that ends
//! without its answer fails the run.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use grandstand_client::Endpoint;
use grandstand_client::tls::Trust;
use serde::{Deserialize, Serialize};

use crate::addresses::{Address, Own};
use crate::books::{Books, Page};
use crate::clock::micros;
use crate::http::Http;
use crate::likers::{Given, Likers};
use crate::pattern::Pattern;
use crate::process::{Usage, open_files_max, usage};
use crate::publishers::{Published, Publishers};
use crate::report::{Measured, Report};
use crate::storm::{self, Plan, Round};
use crate::viewers::{Breach, Seen, Total, Viewers};

/// Files a process needs beside its viewers' sockets.
const FILES_BESIDE: u64 = 100;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Transport {
    Ws,
    Sse,
    Poll,
    /// In turn: three WebSockets, two event streams, one long-poll.
    Mix,
}

impl Transport {
    /// Those a viewer can have.
    pub const LADDER: [Transport; 3] = [Transport::Ws, Transport::Sse, Transport::Poll];

    /// Its place in the ladder; a viewer has no mix.
    pub fn rung(self) -> usize {
        Transport::LADDER.iter().position(|t| *t == self).unwrap_or(0)
    }

    pub fn parse(text: &str) -> Option<Transport> {
        Some(match text {
            "ws" => Transport::Ws,
            "sse" => Transport::Sse,
            "poll" => Transport::Poll,
            "mix" => Transport::Mix,
            _ => return None,
        })
    }

    pub fn name(self) -> &'static str {
        match self {
            Transport::Ws => "ws",
            Transport::Sse => "sse",
            Transport::Poll => "poll",
            Transport::Mix => "mix",
        }
    }
}

/// Viewers that take less than they are given, while comments are published; afterwards they read like all others.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Slow {
    /// Of all viewers: above 0, below 1.
    pub share: f64,
    /// Bytes each reads a second; 0 reads nothing.
    pub bytes_per_second: u32,
}

impl Slow {
    /// Spread evenly over the viewers.
    pub(crate) fn is(self, viewer: u32) -> bool {
        let upto = |n: u32| (f64::from(n) * self.share).floor();
        upto(viewer + 1) > upto(viewer)
    }
}

/// Viewers that come in the middle of a run: the last ones of all.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Late {
    pub viewers: u32,
    /// The number of the first of them.
    pub first: u32,
    /// Seconds after the beginning, and how long until the last has come.
    pub at: f64,
    pub over: f64,
}

impl Late {
    /// Seconds after the beginning at which this viewer comes; `None` when it is there before.
    pub(crate) fn comes(self, viewer: u32) -> Option<f64> {
        let n = viewer.checked_sub(self.first)?;
        Some(self.at + self.over * f64::from(n) / f64::from(self.viewers))
    }
}

/// How the server is known where connections are TLS.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Secure {
    /// What its certificate has to say.
    pub name: String,
    pub trust: Trust,
}

/// A whole run, or one process's share of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settings {
    pub addr: SocketAddr,
    /// The `Host` header.
    pub host: String,
    pub secure: Option<Secure>,
    /// Where viewers of each transport connect first.
    #[serde(default)]
    pub own: Own,
    /// Role `backend` (and `region-ops` where rooms have to be put).
    pub token: String,
    pub rooms: Vec<String>,
    pub viewers: u32,
    pub first_viewer: u32,
    /// The room of each viewer, from `first_viewer` on; in turn where there is none.
    pub room_of: Vec<u32>,
    pub late: Option<Late>,
    pub transport: Transport,
    pub publishers: u32,
    /// Comments a second over all rooms, by the clock.
    pub rate: f64,
    /// So many of them are due at one moment, the next ones when the rate allows.
    pub burst: u32,
    /// Instead of a rate: so many in flight on each publisher's connection.
    pub inflight: Option<u32>,
    /// Score events a second over all rooms.
    pub score_rate: f64,
    /// Gifts a second over all rooms; every second one is posted twice.
    pub gift_rate: f64,
    /// Banners a second, put up by an operator.
    pub banner_rate: f64,
    /// The first of them, seconds after the beginning.
    pub banners_from: f64,
    /// The rooms' setting, where it is not to be the server's default.
    pub sampling: Option<String>,
    /// Instead of a rate: who says what when.
    pub pattern: Option<Pattern>,
    /// Comments are posted by so many HTTP connections, to any room, instead of said on streams.
    pub posters: u32,
    /// HTTP connections that score events are posted by, and as many for gifts.
    pub scorers: u32,
    pub seconds: f64,
    pub body_bytes: u32,
    /// Connect and hold; nothing is published.
    pub idle: bool,
    pub merge_ms: Option<u32>,
    /// WebSocket viewers offer permessage-deflate, as browsers do.
    pub deflate: bool,
    /// A viewer's token by its number, from `first_viewer` on; anonymous where there is none.
    pub viewer_tokens: Vec<String>,
    pub slow: Option<Slow>,
    /// Instead of a time: everyone is dropped and comes back, so often.
    pub storm: Option<Plan>,
    /// Viewers that connect a second; 0 is as fast as it goes.
    pub connect_rate: f64,
    /// Loopback addresses that viewers connect from; 0 is one for each 2 000.
    pub source_addresses: u32,
    /// The server's processes.
    pub pids: Vec<u32>,
    pub publishes: bool,
    /// Likes a second over all rooms, by connections that are users of their own, one a token.
    pub like_rate: f64,
    /// The first time that a viewer is given something twice, out of order, with a hole in its numbers or against the protocol, more
    /// than its cap, or nothing for long, ends the run.
    pub ends_at_breach: bool,
    pub liker_tokens: Vec<String>,
    pub likes: bool,
}

impl Settings {
    pub fn new(endpoint: &Endpoint, token: &str) -> Result<Settings> {
        let Address { addr, host, secure } = Address::of(endpoint)?;
        Ok(Settings {
            addr,
            host,
            secure,
            own: Own::default(),
            token: token.to_owned(),
            rooms: Vec::new(),
            viewers: 0,
            first_viewer: 0,
            room_of: Vec::new(),
            late: None,
            transport: Transport::Ws,
            publishers: 1,
            rate: 10.0,
            burst: 1,
            inflight: None,
            score_rate: 0.0,
            gift_rate: 0.0,
            banner_rate: 0.0,
            banners_from: 0.0,
            sampling: None,
            pattern: None,
            posters: 0,
            scorers: 1,
            seconds: 10.0,
            body_bytes: 60,
            idle: false,
            merge_ms: None,
            deflate: false,
            viewer_tokens: Vec::new(),
            slow: None,
            storm: None,
            connect_rate: 0.0,
            source_addresses: 0,
            pids: Vec::new(),
            publishes: false,
            like_rate: 0.0,
            ends_at_breach: false,
            liker_tokens: Vec::new(),
            likes: false,
        })
    }

    /// Whether viewers are owed a part of the comments, and everything else.
    pub(crate) fn is_sampled(&self) -> bool {
        self.sampling.as_deref() == Some("always")
    }

    /// Where the run was sent.
    pub(crate) fn home(&self) -> Address {
        Address { addr: self.addr, host: self.host.clone(), secure: self.secure.clone() }
    }

    pub(crate) fn transport_of(&self, viewer: u32) -> Transport {
        match self.transport {
            Transport::Mix => {
                [Transport::Ws, Transport::Ws, Transport::Ws, Transport::Sse, Transport::Sse, Transport::Poll]
                    [viewer as usize % 6]
            }
            one => one,
        }
    }

    pub(crate) fn room_of(&self, viewer: u32) -> u32 {
        let told = self.room_of.get((viewer - self.first_viewer) as usize);
        told.copied().unwrap_or(viewer % self.rooms.len() as u32)
    }

    /// Viewers of each room.
    pub(crate) fn viewers_of(&self) -> Vec<u32> {
        let mut of = vec![0; self.rooms.len()];
        (self.first_viewer..self.first_viewer + self.viewers).for_each(|n| of[self.room_of(n) as usize] += 1);
        of
    }

    pub(crate) fn upgrade(&self, host: &str, room: usize, token: Option<&str>) -> String {
        let token = token.map(|t| format!("Authorization: Bearer {t}\r\n")).unwrap_or_default();
        // The key is for the handshake alone and may be the same for all; RFC 6455's own example.
        format!(
            "GET /v1/rooms/{}/stream HTTP/1.1\r\nHost: {}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{token}\r\n",
            self.rooms[room], host
        )
    }

    /// What a viewer's connection begins with.
    pub(crate) fn request(
        &self,
        host: &str,
        transport: Transport,
        room: usize,
        viewer: u32,
        cursor: Option<u64>,
    ) -> String {
        let name = &self.rooms[room];
        let token = self.viewer_tokens.get((viewer - self.first_viewer) as usize).map(String::as_str);
        let resume = cursor.map(|c| format!("Last-Event-ID: {c}\r\n")).unwrap_or_default();
        let who = token.map(|t| format!("Authorization: Bearer {t}\r\n")).unwrap_or_default();
        match transport {
            Transport::Ws | Transport::Mix => {
                let upgrade = self.upgrade(host, room, token);
                let offer = match self.deflate {
                    true => "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n",
                    false => "",
                };
                format!("{}{offer}{resume}\r\n", upgrade.strip_suffix("\r\n").unwrap_or(&upgrade))
            }
            Transport::Sse => {
                format!(
                    "GET /v1/rooms/{name}/sse HTTP/1.1\r\nHost: {host}\r\nAccept: text/event-stream\r\n{who}{resume}\r\n"
                )
            }
            Transport::Poll => {
                let since = cursor.map(|c| format!("since={c}&")).unwrap_or_default();
                format!(
                    "GET /v1/rooms/{name}/poll?{since}timeout=25&tab=load-{viewer} HTTP/1.1\r\nHost: {host}\r\n{who}\r\n"
                )
            }
        }
    }
}

/// What a child is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToWorker {
    Go,
    /// Say how much has been delivered so far.
    Mark,
    /// Drop everyone but this share, and say when all are back.
    Storm(f64),
    /// Publish no more.
    Stop,
    Totals(Vec<Total>),
}

/// Says one line to the parent. A parent that is gone ends the child.
pub fn say(value: &impl Serialize) {
    let mut line = serde_json::to_string(value).expect("an answer serialises");
    line.push('\n');
    let mut out = io::stdout().lock();
    if out.write_all(line.as_bytes()).and_then(|()| out.flush()).is_err() {
        std::process::exit(1);
    }
}

/// The child's side: settings from stdin, then orders until its answer is said.
pub fn worker() -> Result<()> {
    let mut lines = BufReader::new(io::stdin()).lines();
    let settings = lines.next().context("no settings came")??;
    let settings: Arc<Settings> = Arc::new(serde_json::from_str(&settings)?);
    let listen = |waker: mio::Waker| -> Receiver<ToWorker> {
        let (orders, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(io::stdin()).lines() {
                let Some(order) = line.ok().and_then(|l| serde_json::from_str(&l).ok()) else { break };
                if orders.send(order).is_err() || waker.wake().is_err() {
                    return;
                }
            }
            // The parent is gone: so is the reason to go on.
            std::process::exit(1);
        });
        receiver
    };
    // The thread reads the same stdin, so nothing may be left in this buffer: the parent waits for `ready` first.
    drop(lines);
    if settings.likes {
        let (likers, waker) = Likers::new(settings)?;
        say(&likers.run(&listen(waker))?);
    } else if settings.publishes {
        let (publishers, waker) = Publishers::new(settings)?;
        say(&publishers.run(&listen(waker))?);
    } else {
        let (viewers, waker) = Viewers::new(settings)?;
        say(&viewers.run(&listen(waker))?);
    }
    Ok(())
}

/// What the first viewer said that saw a promise broken; every process of a run has the same.
#[derive(Clone, Default)]
pub(crate) struct Alarm(Arc<OnceLock<String>>);

impl Alarm {
    fn check(&self) -> Result<()> {
        match self.0.get() {
            Some(breach) => bail!("a promise was broken: {breach}"),
            None => Ok(()),
        }
    }
}

pub(crate) struct Process {
    child: Child,
    orders: ChildStdin,
    answers: Receiver<String>,
    alarm: Alarm,
}

/// How often a parent that waits for an answer looks whether a promise was broken elsewhere.
const LOOK_EVERY: Duration = Duration::from_millis(100);

impl Process {
    /// `command` is this binary with the words that lead to [`worker`].
    pub(crate) fn start(command: &[String], settings: &Settings, alarm: &Alarm) -> Result<Process> {
        let mut child = Command::new(&command[0])
            .args(&command[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting a process of the run")?;
        let orders = child.stdin.take().context("a child without stdin")?;
        let stdout = child.stdout.take().context("a child without stdout")?;
        let (to, answers) = mpsc::channel();
        let heard = alarm.clone();
        // Ends with its child.
        std::thread::spawn(move || listen(stdout, &heard, &to));
        let mut process = Process { child, orders, answers, alarm: alarm.clone() };
        process.tell(settings)?;
        Ok(process)
    }

    pub(crate) fn tell(&mut self, what: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_string(what)?;
        line.push('\n');
        self.orders.write_all(line.as_bytes())?;
        Ok(self.orders.flush()?)
    }

    pub(crate) fn hear<T: for<'de> Deserialize<'de>>(&mut self) -> Result<T> {
        loop {
            self.alarm.check()?;
            match self.answers.recv_timeout(LOOK_EVERY) {
                Ok(line) => return Ok(serde_json::from_str(&line)?),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    self.alarm.check()?;
                    bail!("a process of the run ended early")
                }
            }
        }
    }
}

/// Hands on what a child says, line by line, and sounds the alarm for what cannot wait.
fn listen(stdout: ChildStdout, alarm: &Alarm, to: &Sender<String>) {
    for line in BufReader::new(stdout).lines().map_while(Result::ok) {
        let Ok(Breach { breach }) = serde_json::from_str::<Breach>(&line) else {
            if to.send(line).is_err() {
                return;
            }
            continue;
        };
        // The first one is told; others come with it.
        let _ = alarm.0.set(breach);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A child that has answered has ended already; one of a failed run must not outlive it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Deserialize)]
pub(crate) struct Ready {
    pub(crate) ready: u64,
}

#[derive(Deserialize)]
struct Mark {
    delivered: u64,
}

/// Makes a run and measures it.
///
/// `n_rooms` rooms are named after the run; `command` is how this binary is called again as a [`worker`].
pub fn run(mut settings: Settings, n_rooms: u32, command: &[String], quiet: bool) -> Result<Report> {
    let run = format!("{:07x}", micros() & 0xfff_ffff);
    settings.rooms = (0..n_rooms.max(1)).map(|n| format!("load-{run}-{n}")).collect();
    if settings.posters == 0 {
        settings.publishers = settings.publishers.max(settings.rooms.len() as u32);
    }
    let note = |text: String| {
        if !quiet {
            eprintln!("{text}");
        }
    };
    let measure = || -> Result<Option<Usage>> {
        if settings.pids.is_empty() {
            return Ok(None);
        }
        usage(&settings.pids).context("a process given by --pid cannot be read").map(Some)
    };

    let mut http = Http::new(&settings, Some(&settings.token))?;
    settings.own = Own::told(&settings, &mut http)?;
    // Whoever names the server's processes says that this is a server with books.
    let books_before = match settings.pids.is_empty() {
        true => None,
        false => Page::read(&mut http)?.map(|page| Books::of(&page)),
    };
    let bare = measure()?;
    let put = Instant::now();
    put_rooms(&settings)?;
    let rooms_put_s = put.elapsed().as_secs_f64();
    let before = settle(&measure)?;
    let most = open_files_max().saturating_sub(FILES_BESIDE).clamp(1, 18_000) as u32;
    let alarm = Alarm::default();
    let mut viewers = Vec::new();
    let mut first = 0;
    while first < settings.viewers {
        let share = Settings {
            first_viewer: first,
            viewers: most.min(settings.viewers - first),
            viewer_tokens: settings.viewer_tokens.iter().skip(first as usize).take(most as usize).cloned().collect(),
            room_of: settings.room_of.iter().skip(first as usize).take(most as usize).copied().collect(),
            connect_rate: settings.connect_rate * f64::from(most.min(settings.viewers - first))
                / f64::from(settings.viewers),
            publishes: false,
            liker_tokens: Vec::new(),
            ..settings.clone()
        };
        first += share.viewers;
        viewers.push(Process::start(command, &share, &alarm)?);
    }
    let mut n_ready = 0;
    for process in &mut viewers {
        n_ready += process.hear::<Ready>()?.ready;
        note(format!("{n_ready} of {} viewers connected", settings.viewers));
    }
    let connected = settle(&measure)?;
    // Of several processes, a page may be one's own alone; then it is no book of this run.
    let covers = |page: &Page| page.count("grandstand_gateway_connections", "") >= n_ready;
    let books_before = books_before.filter(|_| matches!(Page::read(&mut http), Ok(Some(page)) if covers(&page)));

    let mut rounds: Vec<Round> = Vec::new();
    let mut given = Given::default();
    let (mut published, now_us, deliveries) = if let Some(plan) = settings.storm {
        let published = storm::run(&settings, plan, command, &alarm, &mut viewers, &mut rounds, &measure, &note)?;
        let delivered = delivered(&mut viewers)?;
        (published, measure()?, delivered)
    } else if settings.idle {
        note(format!("idle for {} s", settings.seconds));
        std::thread::sleep(Duration::from_secs_f64(settings.seconds));
        (
            Published {
                seconds: settings.seconds,
                totals: vec![Total::default(); settings.rooms.len()],
                ..Published::default()
            },
            measure()?,
            0,
        )
    } else {
        publish(&settings, command, &alarm, &mut viewers, &mut given, &measure, &note)?
    };
    for (room, total) in published.totals.iter_mut().enumerate() {
        total.likes = given.total(room);
    }
    let mut seen: Vec<Seen> = Vec::new();
    for process in &mut viewers {
        process.tell(&ToWorker::Totals(published.totals.clone()))?;
    }
    for process in &mut viewers {
        seen.push(process.hear()?);
    }
    let books = match books_before {
        Some(before) => Page::read(&mut http)?.map(|page| Books::checks(before, Books::of(&page), &seen)),
        None => None,
    };
    let measured = match (bare, before, connected, now_us) {
        (Some(bare), Some(before), Some(connected), Some(published_at)) => {
            Some(Measured { bare, before, connected, published: published_at, deliveries, seconds: published.seconds })
        }
        _ => None,
    };
    let name = settings.transport.name();
    let report =
        Report::new(&run, settings.rooms.len(), u64::from(settings.viewers), name, &seen, &published, measured, rounds);
    let report = Report { rooms_put_s, ..report }.with(books.into_iter().flatten());
    if settings.like_rate == 0.0 {
        return Ok(report);
    }
    Ok(report.with_likes(&given, counted(&settings, &mut http, given.sent)?, &seen))
}

/// Where nobody watches nobody has waited for the last tick.
const LAST_TICK: Duration = Duration::from_secs(5);

/// The likes in the rooms' totals, once they are all that were given or will not be.
fn counted(settings: &Settings, http: &mut Http, given: u64) -> Result<u64> {
    let deadline = Instant::now() + LAST_TICK;
    loop {
        let mut all = 0;
        for room in &settings.rooms {
            let (status, body) = http.call("GET", &format!("/v1/rooms/{room}/snapshot"), "", "")?;
            ensure!(status == 200, "the snapshot of {room} was answered {status}");
            let snapshot: serde_json::Value = serde_json::from_slice(&body)?;
            let kinds = snapshot["counters"]["likes"].as_object().context("a snapshot without likes")?;
            all += kinds.values().filter_map(serde_json::Value::as_u64).sum::<u64>();
        }
        if all >= given || Instant::now() > deadline {
            return Ok(all);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// What the publishers did, the server's usage when they were done, and what had been delivered by then.
fn publish(
    settings: &Settings,
    command: &[String],
    alarm: &Alarm,
    viewers: &mut [Process],
    given: &mut Given,
    measure: &dyn Fn() -> Result<Option<Usage>>,
    note: &dyn Fn(String),
) -> Result<(Published, Option<Usage>, u64)> {
    let mut publishers =
        Process::start(command, &Settings { publishes: true, viewer_tokens: Vec::new(), ..settings.clone() }, alarm)?;
    publishers.hear::<Ready>()?;
    let mut likers = None;
    if settings.like_rate > 0.0 {
        let mut process =
            Process::start(command, &Settings { likes: true, viewer_tokens: Vec::new(), ..settings.clone() }, alarm)?;
        process.hear::<Ready>()?;
        note(format!("{} likers, {} likes a second", settings.liker_tokens.len(), settings.like_rate));
        likers = Some(process);
    }
    note(format!("{} publishers for {} s", settings.publishers, settings.seconds));
    for process in viewers.iter_mut() {
        process.tell(&ToWorker::Go)?;
    }
    publishers.tell(&ToWorker::Go)?;
    if let Some(likers) = &mut likers {
        likers.tell(&ToWorker::Go)?;
    }
    let published: Published = publishers.hear()?;
    if let Some(likers) = &mut likers {
        *given = likers.hear()?;
    }
    let usage_now = measure()?;
    Ok((published, usage_now, delivered(viewers)?))
}

fn delivered(viewers: &mut [Process]) -> Result<u64> {
    let mut deliveries = 0;
    for process in viewers {
        process.tell(&ToWorker::Mark)?;
        deliveries += process.hear::<Mark>()?.delivered;
    }
    Ok(deliveries)
}

/// The server's usage once the last greeting is written and it has come to rest.
fn settle(measure: &dyn Fn() -> Result<Option<Usage>>) -> Result<Option<Usage>> {
    let Some(mut last) = measure()? else { return Ok(None) };
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(250));
        let Some(next) = measure()? else { return Ok(None) };
        if next.cpu_us.saturating_sub(last.cpu_us) <= 10_000 {
            return Ok(Some(next));
        }
        last = next;
    }
    Ok(Some(last))
}

/// Connections that rooms are put by where there are many.
const PUTTING: usize = 32;

fn put_rooms(settings: &Settings) -> Result<()> {
    let each = settings.rooms.len().div_ceil(PUTTING);
    std::thread::scope(|scope| {
        let parts = settings.rooms.chunks(each).map(|rooms| scope.spawn(move || put_some(settings, rooms)));
        let parts: Vec<_> = parts.collect();
        parts.into_iter().try_for_each(|part| part.join().map_err(|_| anyhow!("putting rooms panicked"))?)
    })
}

fn put_some(settings: &Settings, rooms: &[String]) -> Result<()> {
    let mut http = Http::new(settings, Some(&settings.token))?;
    for room in rooms {
        let mut change = serde_json::json!({ "justification": "a load run", "anonymous_view": true });
        if settings.score_rate > 0.0 {
            change["matches"] = serde_json::json!([room]);
        }
        if let Some(ms) = settings.merge_ms {
            change["merge_ms"] = ms.into();
        }
        if let Some(sampling) = &settings.sampling {
            change["sampling"] = sampling.as_str().into();
        }
        if settings.like_rate > 0.0 {
            change["like_rate"] = 1_000.into();
        }
        let (status, body) = http.call("PUT", &format!("/admin/rooms/{room}"), "", &change.to_string())?;
        // A token that may not put rooms is enough where rooms are made on first use.
        let plain = settings.merge_ms.is_none() && settings.sampling.is_none();
        let may_not = matches!(status, 401 | 403) && plain;
        ensure!(
            (200..300).contains(&status) || may_not,
            "putting room {room} was refused with {status}: {}",
            String::from_utf8_lossy(&body)
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use grandstand_client::Endpoint;

    use super::{Alarm, Process, Ready, Settings, Transport};

    #[test]
    fn a_resumed_request_carries_its_cursor_once_and_ends_its_head() {
        let mut settings = Settings::new(&Endpoint::parse("http://127.0.0.1:9").unwrap(), "t").unwrap();
        settings.rooms = vec!["r".into()];
        for (transport, mark) in [
            (Transport::Ws, "Last-Event-ID: 7\r\n"),
            (Transport::Sse, "Last-Event-ID: 7\r\n"),
            (Transport::Poll, "since=7&"),
        ] {
            let request = settings.request("h", transport, 0, 3, Some(7));
            assert_eq!(request.matches(mark).count(), 1, "{request}");
            assert!(request.ends_with("\r\n\r\n") && request.matches("\r\n\r\n").count() == 1, "{request}");
            assert!(!settings.request("h", transport, 0, 3, None).contains(mark));
        }
    }

    #[test]
    fn the_first_breach_that_a_viewer_tells_ends_the_wait_for_every_other_process() {
        let script = |script: &str| ["sh", "-c", script].map(str::to_owned);
        let settings = Settings::new(&Endpoint::parse("http://127.0.0.1:9").unwrap(), "t").unwrap();
        let alarm = Alarm::default();
        let viewers = script(r#"read settings; echo '{"breach":"viewer 7 of room r"}'; read order"#);
        let _viewers = Process::start(&viewers, &settings, &alarm).unwrap();
        // It has nothing to say, and would for long.
        let mut publishers = Process::start(&script("read settings; read order"), &settings, &alarm).unwrap();
        let said = publishers.hear::<Ready>().err().expect("a broken promise ends the run").to_string();
        assert!(said.contains("viewer 7 of room r"), "{said}");
    }

    #[test]
    fn a_mix_holds_every_transport() {
        let mut settings = Settings::new(&Endpoint::parse("127.0.0.1:9").unwrap(), "t").unwrap();
        settings.transport = Transport::Mix;
        let all: Vec<Transport> = (0..6).map(|n| settings.transport_of(n)).collect();
        assert!([Transport::Ws, Transport::Sse, Transport::Poll].iter().all(|t| all.contains(t)));
    }
}
