//! The process that likes: each connection a user of its own in one room, all paced by one clock.
//!
//! Likes are not answered, so each connection ends with a ping: its answer says that everything before it was taken. What was
//! given when is kept for each room, so that a total that a viewer is told can be held against the like it shows first.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use mio::{Events, Poll, Token, Waker};
use serde::{Deserialize, Serialize};

use crate::addresses::Places;
use crate::clock::micros;
use crate::event;
use crate::run::{Settings, ToWorker, say};
use crate::speaker::Speaker;

const WAKE: Token = Token(usize::MAX);
/// For the last answers.
const QUIET: Duration = Duration::from_secs(20);
/// Between two entries of a room's account.
const ACCOUNT_EVERY_US: u64 = 1_000;

/// What the likers gave.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Given {
    pub sent: u64,
    pub refused: u64,
    /// From the first like to the last connection's word that all of its were taken.
    pub seconds: f64,
    /// Connections whose last ping was not answered.
    pub unanswered: u64,
    /// Of each room, how many had been given by when (microseconds), rising.
    pub accounts: Vec<Vec<(u64, u64)>>,
}

impl Given {
    /// When a room's like with this number was given.
    pub fn at(&self, room: usize, number: u64) -> Option<u64> {
        let account = self.accounts.get(room)?;
        let idx = account.partition_point(|(_, given)| *given < number);
        account.get(idx).map(|(at, _)| *at)
    }

    pub fn total(&self, room: usize) -> u64 {
        self.accounts.get(room).and_then(|account| account.last()).map_or(0, |(_, given)| *given)
    }
}

struct Connection {
    speaker: Speaker,
    room: usize,
    greeted: bool,
    done: bool,
}

pub struct Likers {
    settings: Arc<Settings>,
    poll: Poll,
    connections: Vec<Connection>,
    given: Given,
    totals: Vec<u64>,
    scratch: Vec<u8>,
}

impl Likers {
    pub fn new(settings: Arc<Settings>) -> Result<(Likers, Waker)> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKE)?;
        let n_rooms = settings.rooms.len();
        let given = Given { accounts: vec![Vec::new(); n_rooms], ..Given::default() };
        let made = Likers {
            settings,
            poll,
            connections: Vec::new(),
            given,
            totals: vec![0; n_rooms],
            scratch: vec![0; 64 << 10],
        };
        Ok((made, waker))
    }

    /// Connects, says `ready`, likes from `go` for the set time, and gives the account.
    pub fn run(mut self, orders: &Receiver<ToWorker>) -> Result<Given> {
        self.connect()?;
        say(&serde_json::json!({ "ready": self.connections.len() }));
        let mut events = Events::with_capacity(1024);
        let mut go: Option<u64> = None;
        let (mut due, mut ended) = (0u64, None::<Instant>);
        loop {
            while let Ok(order) = orders.try_recv() {
                if matches!(order, ToWorker::Go) && go.is_none() {
                    go = Some(micros());
                }
            }
            let mut wait = Duration::from_millis(100);
            if let Some(start_us) = go {
                let over = (micros() - start_us) as f64 >= self.settings.seconds * 1e6;
                if !over {
                    wait = self.like_due(start_us, &mut due).min(wait);
                } else if ended.is_none() {
                    ended = Some(Instant::now());
                    self.connections.iter_mut().for_each(|c| c.speaker.say(r#"{"op":"ping"}"#, MASK));
                }
            }
            if let (Some(start_us), Some(ended)) = (go, ended) {
                self.given.seconds = (micros() - start_us) as f64 / 1e6;
                self.given.unanswered = self.connections.iter().filter(|c| !c.done).count() as u64;
                if self.given.unanswered == 0 || ended.elapsed() > QUIET {
                    break;
                }
            }
            for slot in 0..self.connections.len() {
                self.connections[slot].speaker.flush()?;
            }
            match self.poll.poll(&mut events, Some(wait)) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            }
            self.hear(&events)?;
        }
        let now = micros();
        for (account, total) in self.given.accounts.iter_mut().zip(&self.totals) {
            account.push((now, *total));
        }
        Ok(self.given)
    }

    fn connect(&mut self) -> Result<()> {
        let places = Places::new(&self.settings)?;
        for (slot, token) in self.settings.liker_tokens.iter().enumerate() {
            let room = slot % self.settings.rooms.len();
            let at = (&places, &self.poll);
            let speaker = Speaker::connect("liker", at, &self.settings, slot, room, token)?;
            self.connections.push(Connection { speaker, room, greeted: false, done: false });
        }
        let mut events = Events::with_capacity(1024);
        let start = Instant::now();
        while self.connections.iter().any(|c| !c.greeted) {
            self.poll.poll(&mut events, Some(Duration::from_millis(100)))?;
            self.hear(&events)?;
            ensure!(start.elapsed() < Duration::from_secs(30), "the likers could not connect within 30 s");
        }
        Ok(())
    }

    /// Gives all that is due, and the time until the next is.
    fn like_due(&mut self, start_us: u64, due: &mut u64) -> Duration {
        loop {
            let at = start_us + (*due as f64 / self.settings.like_rate * 1e6) as u64;
            let now = micros();
            if at > now {
                return Duration::from_micros(at - now);
            }
            let slot = (*due % self.connections.len() as u64) as usize;
            *due += 1;
            self.given.sent += 1;
            let connection = &mut self.connections[slot];
            connection.speaker.say(r#"{"op":"like","n":1}"#, MASK);
            let room = connection.room;
            self.totals[room] += 1;
            let account = &mut self.given.accounts[room];
            match account.last_mut() {
                Some((then, given)) if now - *then < ACCOUNT_EVERY_US => *given = self.totals[room],
                _ => account.push((now, self.totals[room])),
            }
        }
    }

    fn hear(&mut self, events: &Events) -> Result<()> {
        for event in events {
            if event.token() != WAKE {
                let slot = event.token().0;
                if event.is_writable() {
                    self.connections[slot].speaker.set_writable();
                }
                if event.is_readable() {
                    self.read(slot)?;
                }
            }
        }
        Ok(())
    }

    fn read(&mut self, slot: usize) -> Result<()> {
        let connection = &mut self.connections[slot];
        while let Some(input) = connection.speaker.read(&mut self.scratch)? {
            let mut at = 0;
            while let Some(text) = connection.speaker.hear(&input, &mut at)? {
                for object in event::Objects(text) {
                    let object = object.context("a frame that is no event")?;
                    match event::text(object, "type") {
                        Some(b"hello") => connection.greeted = true,
                        Some(b"pong") => connection.done = true,
                        Some(b"rate_limited" | b"error") => self.given.refused += 1,
                        Some(b"close") => bail!("the server closed a liker: {}", String::from_utf8_lossy(object)),
                        _ => {}
                    }
                }
            }
            connection.speaker.keep(input, at);
        }
        Ok(())
    }
}

/// Any bytes will do for a mask.
const MASK: [u8; 4] = [9, 8, 7, 6];

#[cfg(test)]
mod tests {
    use super::Given;

    #[test]
    fn a_like_is_found_by_its_number() {
        let given = Given { accounts: vec![vec![(10, 3), (20, 5), (30, 5)]], ..Given::default() };
        let at = [1, 3, 4, 5, 6].map(|number| given.at(0, number));
        assert_eq!(at, [Some(10), Some(10), Some(20), Some(20), None]);
        assert_eq!((given.total(0), given.total(1), given.at(1, 1)), (5, 0, None));
    }
}
