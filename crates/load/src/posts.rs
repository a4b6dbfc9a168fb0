//! What is posted by HTTP: score events, gifts, and comments of runs with more rooms than there can be streams. A thread a connection, one
//! request at a time on it; a request's time is when it was due, so a server that stalls is charged for all it held up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use hdrhistogram::Histogram;

use crate::clock::micros;
use crate::event;
use crate::http::Http;
use crate::pattern::Due;
use crate::publishers::said;
use crate::report::new_histogram;
use crate::run::Settings;

/// What one or all of the threads did.
pub struct Posted {
    pub sent: u64,
    /// Room and id of each that was taken.
    pub acked: Vec<(usize, u64)>,
    pub refused: BTreeMap<String, u64>,
    /// Answers that asked for patience.
    pub waits: u64,
    /// Due to answered.
    pub micros: Histogram<u64>,
}

impl Posted {
    fn new() -> Posted {
        Posted { sent: 0, acked: Vec::new(), refused: BTreeMap::new(), waits: 0, micros: new_histogram() }
    }

    fn add(mut self, other: Posted) -> Posted {
        self.sent += other.sent;
        self.acked.extend(other.acked);
        other.refused.into_iter().for_each(|(why, n)| *self.refused.entry(why).or_default() += n);
        self.waits += other.waits;
        self.micros.add(other.micros).expect("histograms of one shape");
        self
    }
}

/// Threads at work.
pub struct Posting(Vec<JoinHandle<Result<Posted>>>);

impl Posting {
    fn start(n: u32, name: &str, work: impl Fn(u32) -> Result<Posted> + Clone + Send + 'static) -> Result<Posting> {
        let one = |k| {
            let work = work.clone();
            std::thread::Builder::new().name(format!("{name}-{k}")).spawn(move || work(k))
        };
        Ok(Posting((0..n).map(one).collect::<Result<_, _>>().context("starting a thread")?))
    }

    /// Every score event of the run, by its schedule. A room's are posted by one connection, in order.
    pub fn scores(settings: &Arc<Settings>, start_us: u64, stop: &Arc<AtomicBool>) -> Result<Posting> {
        Posting::paced(settings, "scores", settings.score_rate, start_us, stop, score)
    }

    /// Every gift of the run, by its schedule.
    pub fn gifts(settings: &Arc<Settings>, start_us: u64, stop: &Arc<AtomicBool>) -> Result<Posting> {
        Posting::paced(settings, "gifts", settings.gift_rate, start_us, stop, gift)
    }

    fn paced(
        settings: &Arc<Settings>,
        name: &str,
        rate: f64,
        start_us: u64,
        stop: &Arc<AtomicBool>,
        request: fn(u64, u64, &str, u64) -> Request,
    ) -> Result<Posting> {
        let (settings, stop) = (settings.clone(), stop.clone());
        let of = settings.scorers.clamp(1, settings.rooms.len() as u32);
        Posting::start(of, name, move |k| {
            let turn = Turn { k: k as usize, of: of as usize, rate, start_us };
            post_paced(&settings, &turn, settings.seconds, &stop, request)
        })
    }

    /// Every banner of the run, by one connection.
    pub fn banners(settings: &Arc<Settings>, start_us: u64, stop: &Arc<AtomicBool>) -> Result<Posting> {
        let (settings, stop) = (settings.clone(), stop.clone());
        let turn = Turn { k: 0, of: 1, rate: settings.banner_rate, start_us };
        let from_us = (settings.banners_from * 1e6) as u64;
        Posting::start(1, "banners", move |_| {
            let turn = Turn { start_us: turn.start_us + from_us, ..turn };
            let seconds = settings.seconds - settings.banners_from;
            post_paced(&settings, &turn, seconds, &stop, banner)
        })
    }

    /// Every comment that is due, by its schedule, each by whichever connection's turn it is.
    pub fn comments(settings: &Arc<Settings>, due: Arc<Vec<Due>>, start_us: u64) -> Result<Posting> {
        let settings = settings.clone();
        let n = settings.posters;
        Posting::start(n, "comments", move |k| post_comments(&settings, &due, k as usize, n as usize, start_us))
    }

    pub fn is_finished(&self) -> bool {
        self.0.iter().all(JoinHandle::is_finished)
    }

    /// Waits for the end. Errors: of any thread.
    pub fn join(self) -> Result<Posted> {
        let mut all = Posted::new();
        for thread in self.0 {
            all = all.add(thread.join().map_err(|_| anyhow!("a posting thread panicked"))??);
        }
        Ok(all)
    }
}

/// How long an answer asks to wait; `None` when it does not.
fn patience(status: u16, answer: &[u8]) -> Option<Duration> {
    let told = event::number(answer, "retry_after_ms").unwrap_or(500);
    matches!(status, 429 | 503).then(|| Duration::from_millis(told))
}

fn wait_until(at_us: u64) {
    std::thread::sleep(Duration::from_micros(at_us.saturating_sub(micros())));
}

fn post_comments(settings: &Settings, due: &[Due], k: usize, of: usize, start_us: u64) -> Result<Posted> {
    let mut http = Http::new(settings, Some(&settings.token))?;
    let mut posted = Posted::new();
    for (key, one) in due.iter().enumerate().skip(k).step_by(of) {
        let at = start_us + one.at_us;
        wait_until(at);
        posted.sent += 1;
        let body = format!("{{{}}}", said(key as u64, at, Some(one), settings));
        let target = format!("/v1/rooms/{}/comments", settings.rooms[one.room as usize]);
        loop {
            let (status, answer) = http.call("POST", &target, "", &body)?;
            if status == 200 {
                posted.micros.saturating_record(micros().saturating_sub(at).max(1));
                let id = event::number(&answer, "event_id").context("an ack without an id")?;
                posted.acked.push((one.room as usize, id));
                break;
            }
            let Some(wait) = patience(status, &answer) else {
                let code = event::text(&answer, "code").unwrap_or_default();
                let code = format!("{status} {}", String::from_utf8_lossy(code));
                *posted.refused.entry(code).or_default() += 1;
                break;
            };
            posted.waits += 1;
            std::thread::sleep(wait);
        }
    }
    Ok(posted)
}

/// What is posted at a rate, in turn to each room: a request's target, headers and body.
struct Request {
    target: String,
    headers: &'static str,
    body: String,
    /// Posted once more with the same identity, as shops and feeds do; it has to be answered like the first.
    twice: bool,
}

fn score(n: u64, at: u64, name: &str, nth_of_room: u64) -> Request {
    let goals = nth_of_room % 90;
    Request {
        target: format!("/v1/score-event?room={name}"),
        headers: "X-Provider-Id: load\r\n",
        body: format!(
            r#"{{"match_id":"{name}","event_id":"l-{at}-{n}","provider":"load","kind":"goal","score":{{"home":{goals},"away":0}},"minute":"{goals}"}}"#
        ),
        twice: false,
    }
}

/// Each is a user's own, so that none is part of another's combo; every second one comes by two roads.
fn gift(n: u64, at: u64, name: &str, _: u64) -> Request {
    let (count, micros) = (1 + n % 9, 100_000 * (1 + n % 50));
    Request {
        target: format!("/v1/rooms/{name}/gifts"),
        headers: "",
        body: format!(
            r#"{{"gift_id":"l-{at}-{n}","user":{{"id":"load-giver-{n}"}},"item":"rose","count":{count},"amount_micros":{micros},"currency":"EUR"}}"#
        ),
        twice: n.is_multiple_of(2),
    }
}

/// It stands for as long as the slowest stream may wait for it, and no more than the site has room for.
fn banner(_: u64, at: u64, _: &str, _: u64) -> Request {
    Request {
        target: "/admin/banners".to_owned(),
        headers: "",
        body: format!(r#"{{"body":"l {at}","seconds":15,"justification":"a load run"}}"#),
        twice: false,
    }
}

/// Connection `k` of `of`: the rooms whose turn it is by their place.
#[derive(Clone, Copy)]
struct Turn {
    k: usize,
    of: usize,
    rate: f64,
    start_us: u64,
}

fn post_paced(
    settings: &Settings,
    turn: &Turn,
    seconds: f64,
    stop: &AtomicBool,
    request: fn(u64, u64, &str, u64) -> Request,
) -> Result<Posted> {
    let mut http = Http::new(settings, Some(&settings.token))?;
    let mut posted = Posted::new();
    let rooms = settings.rooms.len() as u64;
    let mut n = 0_u64;
    loop {
        let at = turn.start_us + (n as f64 / turn.rate * 1e6) as u64;
        if (at - turn.start_us) as f64 >= seconds * 1e6 || stop.load(Ordering::Relaxed) {
            return Ok(posted);
        }
        let (event, room) = (n, (n % rooms) as usize);
        n += 1;
        if room % turn.of != turn.k {
            continue;
        }
        wait_until(at);
        let ask = request(event, at, &settings.rooms[room], event / rooms);
        posted.sent += 1;
        let id = taken(&mut http, &ask, &mut posted.waits)?;
        posted.micros.saturating_record(micros().saturating_sub(at).max(1));
        if ask.twice {
            let again = taken(&mut http, &ask, &mut posted.waits)?;
            ensure!(again == id, "what was posted twice was taken twice: {id} and {again}");
        }
        posted.acked.push((room, id));
    }
}

/// Posts until it is taken; the event's id.
fn taken(http: &mut Http, ask: &Request, waits: &mut u64) -> Result<u64> {
    loop {
        let (status, answer) = http.call("POST", &ask.target, ask.headers, &ask.body)?;
        if (200..300).contains(&status) {
            let banner = event::text(&answer, "banner_id").and_then(|id| std::str::from_utf8(id).ok()?.parse().ok());
            let own = if ask.target == "/admin/banners" { banner } else { event::number(&answer, "event_id") };
            return own.context("an answer without an id");
        }
        let Some(wait) = patience(status, &answer) else {
            bail!("{} was refused with {status}: {}", ask.target, String::from_utf8_lossy(&answer));
        };
        *waits += 1;
        std::thread::sleep(wait);
    }
}
