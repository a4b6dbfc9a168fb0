//! The process that publishes: connections on one mio loop, paced by a schedule or by answers, and threads for what is posted.
//!
//! Paced by a schedule, a comment's time is when it was due, not when it could be written: a server that stalls is charged
//! for everything that should have been sent meanwhile. Paced by answers, each connection keeps so many in flight.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result, bail};
use grandstand_core::rng::Rng;
use hdrhistogram::Histogram;
use mio::{Events, Poll, Token, Waker};
use serde::{Deserialize, Serialize};

use crate::addresses::Places;
use crate::clock::micros;
use crate::event::{self, Kind};
use crate::pattern::{Due, PHRASES};
use crate::posts::Posting;
use crate::report::{Buckets, new_histogram};
use crate::run::{Settings, ToWorker, say};
use crate::speaker::{self, Speaker};
use crate::viewers::Total;

const WAKE: Token = Token(usize::MAX);
/// Without an answer for so long, what is in flight counts as unanswered.
const QUIET: Duration = Duration::from_secs(20);
/// A connection that ended is made anew after so long, and again for as long as this.
const RETURN_WAIT: Duration = Duration::from_millis(250);
const RETURN_WITHIN: Duration = Duration::from_secs(30);
/// Users that comments are spread over.
const USERS: u64 = 1_000;
/// Of the scenarios' schedules: the same in every run, so that two runs can be compared.
const SEED: u64 = 20_260_711;

/// What the publishers did and heard.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Published {
    pub sent: u64,
    pub acked: u64,
    pub duplicates: u64,
    pub refused: BTreeMap<String, u64>,
    pub unanswered: u64,
    /// Connections that ended and were made anew; what had no answer was said again on them.
    pub returns: u64,
    pub rate_limited: u64,
    pub seconds: f64,
    /// Due (or written, when paced by answers) to acked.
    pub acks: Buckets,
    pub scores_sent: u64,
    pub scores_acked: u64,
    pub score_acks: Buckets,
    pub gifts_sent: u64,
    pub gifts_acked: u64,
    pub gift_acks: Buckets,
    pub banners: u64,
    pub totals: Vec<Total>,
    /// Comments acked, by the second of the clock; of those said on streams.
    pub acked_at: BTreeMap<u64, u64>,
}

struct Connection {
    speaker: Speaker,
    /// Set from the connection's end until another is open in its place.
    lost: Option<Lost>,
    room: usize,
    /// Due time of each unanswered comment by its key.
    waiting: HashMap<u64, u64>,
}

struct Lost {
    since: Instant,
    /// When another is tried; `None` while one is being opened.
    again: Option<Instant>,
}

pub struct Publishers {
    settings: Arc<Settings>,
    places: Places,
    poll: Poll,
    connections: Vec<Connection>,
    /// Who says what when, where a pattern says so; the key of a comment is its place in it.
    schedule: Arc<Vec<Due>>,
    /// Comments waiting out a refusal: when, connection, key.
    later: BinaryHeap<Reverse<(Instant, usize, u64)>>,
    next_key: u64,
    acks: Histogram<u64>,
    done: Published,
    scratch: Vec<u8>,
    last_answer: Instant,
}

impl Publishers {
    pub fn new(settings: Arc<Settings>) -> Result<(Publishers, Waker)> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKE)?;
        let totals = vec![Total::default(); settings.rooms.len()];
        let schedule = match &settings.pattern {
            Some(pattern) => pattern.draw(settings.seconds, &settings.viewers_of(), SEED),
            None => Vec::new(),
        };
        let made = Publishers {
            schedule: Arc::new(schedule),
            places: Places::new(&settings)?,
            settings,
            poll,
            connections: Vec::new(),
            later: BinaryHeap::new(),
            next_key: 0,
            acks: new_histogram(),
            done: Published { totals, ..Published::default() },
            scratch: vec![0; 256 << 10],
            last_answer: Instant::now(),
        };
        Ok((made, waker))
    }

    /// Connects, says `ready`, publishes from `go` for the set time, hears the last answer, and gives the account.
    pub fn run(mut self, orders: &Receiver<ToWorker>) -> Result<Published> {
        self.connect()?;
        say(&serde_json::json!({ "ready": self.connections.len() }));
        let mut events = Events::with_capacity(1024);
        let mut go: Option<(Instant, u64)> = None;
        let mut due = 0_u64;
        let (mut scores, mut gifts, mut banners, mut posts) = (None, None, None, None);
        let stop = Arc::new(AtomicBool::new(false));
        loop {
            let now = Instant::now();
            while let Ok(order) = orders.try_recv() {
                if matches!(order, ToWorker::Stop) {
                    stop.store(true, Ordering::Relaxed);
                    self.last_answer = now;
                    self.done.seconds = go.map_or(0.0, |(start, _)| now.duration_since(start).as_secs_f64());
                }
                if matches!(order, ToWorker::Go) && go.is_none() {
                    let start_us = micros();
                    go = Some((now, start_us));
                    self.last_answer = now;
                    if self.settings.score_rate > 0.0 {
                        scores = Some(Posting::scores(&self.settings, start_us, &stop)?);
                    }
                    if self.settings.gift_rate > 0.0 {
                        gifts = Some(Posting::gifts(&self.settings, start_us, &stop)?);
                    }
                    if self.settings.banner_rate > 0.0 {
                        banners = Some(Posting::banners(&self.settings, start_us, &stop)?);
                    }
                    if self.settings.posters > 0 {
                        posts = Some(Posting::comments(&self.settings, self.schedule.clone(), start_us)?);
                    }
                }
            }
            let mut wait = Duration::from_millis(100);
            if let Some((start, start_us)) = go {
                let stopped = stop.load(Ordering::Relaxed);
                let over = stopped || now.duration_since(start).as_secs_f64() >= self.settings.seconds;
                if !over {
                    wait = self.publish_due(start_us, &mut due);
                }
                while let Some(Reverse((at, slot, key))) = self.later.peek().copied()
                    && at <= now
                {
                    self.later.pop();
                    self.write_comment(slot, key);
                }
                let waiting: usize = self.connections.iter().map(|c| c.waiting.len()).sum();
                let posted = posts.as_ref().is_none_or(Posting::is_finished);
                if over && posted && (waiting == 0 || self.last_answer.elapsed() > QUIET) {
                    self.done.unanswered = waiting as u64;
                    if !stopped {
                        self.done.seconds = self.settings.seconds;
                    }
                    break;
                }
                wait = wait.min(Duration::from_millis(if over { 5 } else { 100 }));
            }
            for slot in 0..self.connections.len() {
                self.flush(slot, now)?;
            }
            match self.poll.poll(&mut events, Some(wait)) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            }
            for event in &events {
                if event.token() != WAKE {
                    let slot = event.token().0;
                    if event.is_writable() {
                        self.connections[slot].speaker.set_writable();
                    }
                    if event.is_readable() {
                        self.hear(slot)?;
                    }
                }
            }
        }
        if let Some(scores) = scores {
            let posted = scores.join()?;
            self.done.scores_sent = posted.sent;
            self.done.score_acks = Buckets::of(&posted.micros);
            self.done.scores_acked = posted.acked.len() as u64;
            posted.acked.into_iter().for_each(|(room, id)| self.done.totals[room].score(id));
        }
        if let Some(gifts) = gifts {
            let posted = gifts.join()?;
            self.done.gifts_sent = posted.sent;
            self.done.gift_acks = Buckets::of(&posted.micros);
            self.done.gifts_acked = posted.acked.len() as u64;
            posted.acked.into_iter().for_each(|(room, id)| self.done.totals[room].gift(id));
        }
        if let Some(banners) = banners {
            self.done.banners = banners.join()?.acked.len() as u64;
            self.done.totals.iter_mut().for_each(|total| total.banners = self.done.banners);
        }
        if let Some(posts) = posts {
            let posted = posts.join()?;
            self.done.sent += posted.sent;
            self.done.acked += posted.acked.len() as u64;
            self.done.rate_limited += posted.waits;
            posted.refused.into_iter().for_each(|(why, n)| *self.done.refused.entry(why).or_default() += n);
            self.acks.add(posted.micros).context("histograms of one shape")?;
            posted.acked.into_iter().for_each(|(room, id)| self.done.totals[room].comment(id));
        }
        if self.settings.late.is_none() {
            // Only who comes in the middle has to know which ids came after it.
            self.done.totals.iter_mut().for_each(Total::forget_ids);
        }
        self.done.totals.iter_mut().for_each(Total::sort);
        self.done.acks = Buckets::of(&self.acks);
        Ok(self.done)
    }

    fn connect(&mut self) -> Result<()> {
        for slot in 0..self.settings.publishers as usize {
            let room = slot % self.settings.rooms.len();
            let speaker = self.speaker(slot, room)?;
            self.connections.push(Connection { speaker, lost: None, room, waiting: HashMap::new() });
        }
        let mut events = Events::with_capacity(1024);
        let start = Instant::now();
        while self.connections.iter().any(|c| !c.speaker.is_open()) {
            self.poll.poll(&mut events, Some(Duration::from_millis(100)))?;
            for event in &events {
                if event.token() != WAKE && event.is_readable() {
                    self.read(event.token().0)?;
                }
            }
            if start.elapsed() > Duration::from_secs(30) {
                bail!("the publishers could not connect within 30 s");
            }
        }
        Ok(())
    }

    fn speaker(&self, slot: usize, room: usize) -> Result<Speaker> {
        let (settings, at) = (&self.settings, (&self.places, &self.poll));
        Speaker::connect("publisher", at, settings, slot, room, &settings.token)
    }

    /// Writes what waits, or tries for another connection where this one's time has come.
    fn flush(&mut self, slot: usize, now: Instant) -> Result<()> {
        let connection = &mut self.connections[slot];
        let room = connection.room;
        let done = match connection.lost.as_mut().and_then(|lost| lost.again.as_mut()) {
            Some(again) if *again > now => return Ok(()),
            Some(_) => self.speaker(slot, room).map(|speaker| {
                let connection = &mut self.connections[slot];
                connection.speaker = speaker;
                connection.lost.as_mut().expect("it was lost").again = None;
            }),
            None => connection.speaker.flush(),
        };
        done.or_else(|why| self.lose(slot, why))
    }

    fn hear(&mut self, slot: usize) -> Result<()> {
        let tried = |lost: &Lost| lost.again.is_some();
        if self.connections[slot].lost.as_ref().is_some_and(tried) {
            return Ok(());
        }
        if let Err(why) = self.read(slot) {
            return self.lose(slot, why);
        }
        let connection = &mut self.connections[slot];
        if connection.speaker.is_open() && connection.lost.take().is_some() {
            self.done.returns += 1;
            self.last_answer = Instant::now();
            let mut unanswered: Vec<u64> = connection.waiting.keys().copied().collect();
            unanswered.sort_unstable();
            unanswered.into_iter().for_each(|key| self.write_comment(slot, key));
        }
        Ok(())
    }

    /// The connection ended. Errors: not by a fault of its own, or none could be had for too long.
    fn lose(&mut self, slot: usize, why: Error) -> Result<()> {
        let (now, lost) = (Instant::now(), &mut self.connections[slot].lost);
        let since = lost.as_ref().map_or(now, |lost| lost.since);
        if !why.is::<io::Error>() || now.duration_since(since) > RETURN_WITHIN {
            return Err(why);
        }
        *lost = Some(Lost { since, again: Some(now + RETURN_WAIT) });
        Ok(())
    }

    /// Writes all that is due and gives the time until the next one is.
    fn publish_due(&mut self, start_us: u64, due: &mut u64) -> Duration {
        if let Some(inflight) = self.settings.inflight {
            for slot in 0..self.connections.len() {
                while self.connections[slot].waiting.len() < inflight as usize {
                    self.publish(slot, micros());
                }
            }
            return Duration::from_millis(10);
        }
        if self.settings.posters > 0 {
            return Duration::from_millis(100);
        }
        if self.settings.pattern.is_some() {
            return self.publish_scheduled(start_us, due);
        }
        if self.settings.rate <= 0.0 {
            return Duration::from_millis(100);
        }
        loop {
            let burst = u64::from(self.settings.burst.max(1));
            let at = start_us + ((*due / burst * burst) as f64 / self.settings.rate * 1e6) as u64;
            let now = micros();
            if at > now {
                return Duration::from_micros(at - now);
            }
            let slot = (*due % self.connections.len() as u64) as usize;
            *due += 1;
            self.publish(slot, at);
        }
    }

    /// The same by the pattern's schedule.
    fn publish_scheduled(&mut self, start_us: u64, due: &mut u64) -> Duration {
        loop {
            let Some(next) = self.schedule.get(*due as usize) else { return Duration::from_millis(100) };
            let (at, now) = (start_us + next.at_us, micros());
            if at > now {
                return Duration::from_micros(at - now);
            }
            // Connection n is in room n mod rooms.
            let rooms = self.settings.rooms.len();
            let in_turn = *due as usize % (self.connections.len() / rooms);
            let slot = next.room as usize + rooms * in_turn;
            *due += 1;
            self.publish(slot, at);
        }
    }

    fn publish(&mut self, slot: usize, at_us: u64) {
        let key = self.next_key;
        self.next_key += 1;
        self.done.sent += 1;
        self.connections[slot].waiting.insert(key, at_us);
        self.write_comment(slot, key);
    }

    fn write_comment(&mut self, slot: usize, key: u64) {
        let connection = &mut self.connections[slot];
        let Some(at_us) = connection.waiting.get(&key) else { return };
        if connection.lost.is_some() {
            // Said with all that has no answer when another connection is open.
            return;
        }
        let said = said(key, *at_us, self.schedule.get(key as usize), &self.settings);
        let frame = format!(r#"{{"op":"publish",{said}}}"#);
        connection.speaker.say(&frame, (key as u32 | 0x0101_0101).to_le_bytes());
    }

    fn read(&mut self, slot: usize) -> Result<()> {
        while let Some(input) = self.connections[slot].speaker.read(&mut self.scratch)? {
            let mut at = 0;
            while let Some(text) = self.connections[slot].speaker.hear(&input, &mut at)? {
                self.answers(slot, text)?;
            }
            self.connections[slot].speaker.keep(input, at);
        }
        Ok(())
    }

    fn answers(&mut self, slot: usize, text: &[u8]) -> Result<()> {
        for object in event::Objects(text) {
            let object = object.context("a frame that is no event")?;
            let answer = matches!(
                event::text(object, "type"),
                Some(b"publish_ack" | b"rate_limited" | b"error" | b"moderation_failed" | b"close")
            );
            if !answer {
                // The room's own events come by here as well; viewers check those.
                continue;
            }
            let mut read = Vec::with_capacity(1);
            event::read(object, &mut read).context("an answer that is no event")?;
            let key = event::text(object, "client_msg_id").and_then(|k| k.strip_prefix(b"l-"));
            let key = key.and_then(|k| std::str::from_utf8(k).ok()?.parse::<u64>().ok());
            self.last_answer = Instant::now();
            let connection = &mut self.connections[slot];
            let Some(key) = key else {
                if let Kind::Close { code, .. } = read[0].kind {
                    return Err(speaker::closed("publisher", Some(code)));
                }
                *self.done.refused.entry("an error without a key".to_owned()).or_default() += 1;
                continue;
            };
            let wait = match read[0].kind {
                Kind::Ack { duplicate } => {
                    if let Some(at_us) = connection.waiting.remove(&key) {
                        self.acks.saturating_record(micros().saturating_sub(at_us).max(1));
                        self.done.acked += 1;
                        *self.done.acked_at.entry(micros() / 1_000_000).or_default() += 1;
                        self.done.duplicates += u64::from(duplicate);
                        self.done.totals[connection.room].comment(read[0].id);
                    }
                    continue;
                }
                Kind::RateLimited { retry_ms } => retry_ms,
                Kind::Error { retry_ms: Some(retry_ms) } => retry_ms,
                _ => {
                    if connection.waiting.remove(&key).is_some() {
                        let code =
                            event::text(object, "code").or_else(|| event::text(object, "type")).unwrap_or_default();
                        *self.done.refused.entry(String::from_utf8_lossy(code).into_owned()).or_default() += 1;
                    }
                    continue;
                }
            };
            self.done.rate_limited += 1;
            self.later.push(Reverse((Instant::now() + Duration::from_millis(wait), slot, key)));
        }
        Ok(())
    }
}

/// The members of a comment: its key, text and author. The time it was due is in the text, or, where the text is a phrase that
/// others say too, in the author's name.
pub fn said(key: u64, at_us: u64, due: Option<&Due>, settings: &Settings) -> String {
    let bytes = |n: u32| (n as usize).saturating_sub(18).min(480);
    let (user, text, name) = match due {
        Some(Due { phrase: Some(phrase), writer, .. }) => {
            (u64::from(*writer), PHRASES[usize::from(*phrase)].to_owned(), format!("l {at_us}"))
        }
        Some(Due { writer, .. }) => {
            let body_bytes = settings.pattern.map_or(settings.body_bytes, |p| p.body_bytes);
            (u64::from(*writer), format!("{at_us} {}", words(key, bytes(body_bytes))), format!("Load {writer}"))
        }
        None => {
            let user = key % USERS;
            (user, format!("{at_us} {}", words(key, bytes(settings.body_bytes))), format!("Load {user}"))
        }
    };
    format!(r#""client_msg_id":"l-{key}","body":"{text}","as":{{"id":"load-{user}","name":"{name}","badges":[]}}"#)
}

const WORDS: [&str; 64] = [
    "what", "a", "goal", "that", "was", "never", "offside", "the", "keeper", "had", "no", "chance", "come", "on",
    "referee", "penalty", "lol", "still", "time", "for", "one", "more", "how", "did", "he", "miss", "from", "there",
    "unreal", "pass", "best", "game", "of", "season", "so", "far", "everyone", "is", "singing", "here", "var", "again",
    "please", "not", "extra", "get", "him", "off", "who", "else", "watching", "at", "work", "my", "heart", "cannot",
    "take", "this", "corner", "now", "left", "wing", "wide", "open",
];

/// So many bytes of words, other ones for each key: comments that are alike would flatter a server that compresses.
fn words(key: u64, bytes: usize) -> String {
    let mut rng = Rng::new(key);
    let mut text = String::with_capacity(bytes + 12);
    while text.len() < bytes {
        text.push_str(WORDS[rng.below(WORDS.len() as u64) as usize]);
        text.push(' ');
    }
    text.truncate(bytes);
    text
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::sync::{Arc, mpsc};

    use grandstand_client::Endpoint;
    use grandstand_wire::ws::{Opcode, write_frame};

    use super::Publishers;
    use crate::run::{Settings, ToWorker};

    /// Opens a stream, and gives what the other side said first.
    fn first_word(peer: &mut TcpStream) -> Vec<u8> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            peer.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        peer.write_all(b"HTTP/1.1 101 Switching Protocols\r\n\r\n").unwrap();
        let mut word = vec![0; 4096];
        let n = peer.read(&mut word).unwrap();
        word.truncate(n);
        word
    }

    #[test]
    fn a_publisher_whose_connection_ends_says_again_what_had_no_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = Endpoint::parse(&listener.local_addr().unwrap().to_string()).unwrap();
        let server = std::thread::spawn(move || {
            let said = first_word(&mut listener.accept().unwrap().0);
            let (mut peer, _) = listener.accept().unwrap();
            let again = first_word(&mut peer);
            let ack = br#"[{"type":"publish_ack","client_msg_id":"l-0","event_id":12,"duplicate":true}]"#;
            let mut frame = Vec::new();
            write_frame(Opcode::Text, ack, &mut frame);
            peer.write_all(&frame).unwrap();
            (said, again, peer)
        });
        // One is due at once, the next one after the end.
        let settings =
            Settings { rooms: vec!["r".into()], rate: 1.0, seconds: 0.9, ..Settings::new(&endpoint, "t").unwrap() };
        let (publishers, _) = Publishers::new(Arc::new(settings)).unwrap();
        let (orders, listen) = mpsc::channel();
        orders.send(ToWorker::Go).unwrap();
        let done = publishers.run(&listen).unwrap();
        let (said, again, _) = server.join().unwrap();
        assert_eq!(said, again);
        assert_eq!((done.sent, done.acked, done.unanswered, done.returns), (1, 1, 0, 1));
    }
}
