//! An audience that does as protocol.md asks of clients, and a publisher that does not let go: what each saw, and when.
//!
//! Every viewer has a thread of its own: it waits as it is told, comes back with its cursor, and tells all it sees. The test
//! holds the other end, waits for what shall come, and at the end holds each viewer's events against the log.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Answer, Http, LIMIT, Server};
use crate::viewer::{Rung, Viewer, ids};

/// Between two publishes, and before one that was refused is tried again: sooner than a client may, to see when it is over.
const PACE: Duration = Duration::from_millis(20);
/// Before a connection that was cut without a word is made again.
const CUT_WAIT: Duration = Duration::from_millis(100);

/// What came to the test.
enum Said {
    Event(usize, Instant, Value),
    /// The viewer has a stream, for the first time or again.
    Open(usize, Instant),
    /// The stream ended; what it was told of it.
    Cut(usize, Instant, Value),
    Acked(Ack),
    Refused(Instant, u16, Value),
}

pub struct Ack {
    pub id: u64,
    /// When its key was sent for the first time.
    pub sent: Instant,
}

/// All that one viewer saw.
#[derive(Default)]
pub struct Track {
    pub events: Vec<(Instant, Value)>,
    pub opened: Vec<Instant>,
    pub cut: Vec<(Instant, Value)>,
}

impl Track {
    /// The first event from `since` on that `wanted` takes.
    pub fn first(&self, since: Instant, wanted: impl Fn(&Value) -> bool) -> Option<Instant> {
        let later = self.events.iter().rev().take_while(|(at, _)| *at >= since);
        later.filter(|(_, event)| wanted(event)).map(|(at, _)| *at).last()
    }
}

pub struct Fans {
    said: Receiver<Said>,
    pub tracks: Vec<Track>,
    pub acks: Vec<Ack>,
    pub refused: Vec<(Instant, u16, Value)>,
}

impl Fans {
    /// Takes what comes until `done` says so. Panics with `what` after the limit.
    pub fn wait(&mut self, what: &str, mut done: impl FnMut(&Fans) -> bool) {
        let start = Instant::now();
        while !done(self) {
            let Ok(said) = self.said.recv_timeout(LIMIT.saturating_sub(start.elapsed())) else {
                let tails: Vec<_> = self.tracks.iter().map(|t| (t.events.last(), t.cut.last())).collect();
                let refused = self.refused.last();
                panic!("{what}: not within {LIMIT:?}; the publisher was last told {refused:?}; {tails:#?}")
            };
            self.take(said);
            // What is waited for may take its time to ask: all that was said by then is heard before it is asked again.
            while let Ok(said) = self.said.try_recv() {
                self.take(said);
            }
        }
    }

    /// Takes what comes for so long: the load goes on.
    pub fn run_until(&mut self, until: Instant) {
        while let Ok(said) = self.said.recv_timeout(until.saturating_duration_since(Instant::now())) {
            self.take(said);
        }
    }

    fn take(&mut self, said: Said) {
        match said {
            Said::Event(n, at, event) => self.tracks[n].events.push((at, event)),
            Said::Open(n, at) => self.tracks[n].opened.push(at),
            Said::Cut(n, at, why) => self.tracks[n].cut.push((at, why)),
            Said::Acked(ack) => self.acks.push(ack),
            Said::Refused(at, status, json) => self.refused.push((at, status, json)),
        }
    }

    /// Waits until an event that was published for the first time after `since` has reached every viewer.
    /// When it reached the last one.
    pub fn all_live(&mut self, since: Instant) -> Instant {
        self.wait("an event published after", |fans| fans.acks.last().is_some_and(|ack| ack.sent >= since));
        let id = self.acks.iter().find(|ack| ack.sent >= since).expect("it was waited for").id;
        let reached = |track: &Track| track.first(since, |e| e["event_id"].as_u64() == Some(id));
        self.wait("it reaches everyone", |fans| fans.tracks.iter().all(|track| reached(track).is_some()));
        self.tracks.iter().filter_map(reached).max().expect("there are viewers")
    }

    /// When each viewer was told of the pause that began at `since`: by the event, or by the refusal of a poll that came
    /// while it lasted.
    pub fn all_paused(&mut self, since: Instant) -> Vec<Instant> {
        let told = |track: &Track| {
            let refused = track.cut.iter().rev().take_while(|(at, _)| *at >= since);
            let refused = refused.filter(|(_, why)| why["code"] == 4153).map(|(at, _)| *at).last();
            track.first(since, |e| e["type"] == "feed_paused").into_iter().chain(refused).min()
        };
        self.wait("everyone is told of the pause", |fans| fans.tracks.iter().all(|track| told(track).is_some()));
        self.tracks.iter().filter_map(told).collect()
    }

    /// Each viewer saw the room's log, whole and in order, each event once.
    fn nothing_lost_or_doubled(&self, log: &[u64]) {
        let last = *self.acks.iter().map(|ack| &ack.id).max().expect("something was published");
        let log: Vec<u64> = log.iter().copied().filter(|id| *id <= last).collect();
        for ack in &self.acks {
            assert!(log.binary_search(&ack.id).is_ok(), "{} was acked and is not in the log", ack.id);
        }
        for (n, track) in self.tracks.iter().enumerate() {
            let events: Vec<Value> = track.events.iter().map(|(_, e)| e.clone()).collect();
            let mut seen = ids(&events);
            seen.retain(|id| *id <= last);
            let at_all: BTreeSet<u64> = seen.iter().copied().collect();
            let missing: Vec<_> = log.iter().filter(|id| !at_all.contains(id)).collect();
            assert!(missing.is_empty(), "viewer {n} misses {missing:?}; {:?}", track.cut);
            assert_eq!(seen, log, "viewer {n}: doubled or out of order; {:?}", track.cut);
        }
    }
}

/// Runs `test` before an audience of one room, `rungs` each a viewer, while somebody publishes comments and goals to it.
/// `accept` is asked of each new publisher's connection: whether it is one to keep.
pub fn with_fans(
    server: &Server,
    room: &str,
    rungs: &[Rung],
    accept: impl Fn(&Http) -> bool + Sync,
    test: impl FnOnce(&mut Fans),
) {
    let token = server.token("backend", &["backend", "region-ops"]);
    let (tell, said) = channel();
    let stop = [AtomicBool::new(false), AtomicBool::new(false)];
    let [stop_publisher, stop_viewers] = &stop;
    let tracks = rungs.iter().map(|_| Track::default()).collect();
    let mut fans = Fans { said, tracks, acks: Vec::new(), refused: Vec::new() };
    thread::scope(|scope| {
        for (n, rung) in rungs.iter().enumerate() {
            let tell = tell.clone();
            scope.spawn(move || follow(server, n, *rung, room, &tell, stop_viewers));
        }
        // A test that fails must not wait for those who have nothing to wait for.
        let _ends = Ends(&stop);
        fans.wait("everyone is in", |fans| fans.tracks.iter().all(|track| !track.opened.is_empty()));
        let publisher = scope.spawn(|| publish(server, room, &token, &tell, stop_publisher, &accept));
        fans.all_live(Instant::now());
        test(&mut fans);
        fans.all_live(Instant::now());
        stop_publisher.store(true, Ordering::Relaxed);
        publisher.join().expect("the publisher");
        fans.run_until(Instant::now());
        let last = fans.acks.iter().map(|ack| ack.id).max();
        let has_last = |track: &Track| track.events.iter().rev().any(|(_, e)| e["event_id"].as_u64() == last);
        fans.wait("everyone has the last event", |fans| fans.tracks.iter().all(has_last));
        let checker = server.token("checker", &["backend", "admin"]);
        fans.nothing_lost_or_doubled(&ids(&server.export(room, &checker)));
        stop_viewers.store(true, Ordering::Relaxed);
        // Whoever waits for an event gets one.
        server.published(room, &token, "the end", "the end");
    });
}

struct Ends<'a>(&'a [AtomicBool]);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.iter().for_each(|stop| stop.store(true, Ordering::Relaxed));
        }
    }
}

fn follow(server: &Server, n: usize, rung: Rung, room: &str, tell: &Sender<Said>, stop: &AtomicBool) {
    let mut cursor: Option<u64> = None;
    while !stop.load(Ordering::Relaxed) {
        let start = cursor.map(|c| c.to_string());
        let opened = Viewer::try_open(server, rung, room, start.as_deref(), None);
        let mut why = match opened {
            Err(fault) => json!({"fault": fault.to_string()}),
            Ok(Err(refused)) => refused.json,
            Ok(Ok(mut viewer)) => {
                let mut is_open = false;
                let mut why = json!({"end": "without a word"});
                while let Some(event) = viewer.next() {
                    let at = Instant::now();
                    // A stream that is refused is opened first, and then closed.
                    if event["type"] == "close" {
                        why = event;
                        continue;
                    }
                    if !std::mem::replace(&mut is_open, true) {
                        let _ = tell.send(Said::Open(n, at));
                    }
                    let is_hello = event["type"] == "hello";
                    let moved =
                        if is_hello { event["cursor"].as_u64() } else { ids(std::slice::from_ref(&event)).pop() };
                    if moved.is_some() && (cursor.is_none() || !is_hello) {
                        cursor = moved;
                    }
                    let _ = tell.send(Said::Event(n, at, event));
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                }
                if let Some(Answer { json, .. }) = viewer.refused.take() {
                    why = json;
                }
                cursor = viewer.since.or(cursor);
                why
            }
        };
        let wait = match (why["retry_after_ms"].as_u64(), why["spread_ms"].as_u64()) {
            // Each draws another part of the spread.
            (Some(wait), spread) => Duration::from_millis(wait + spread.unwrap_or(0) * (n as u64 * 37 % 100) / 100),
            (None, _) => CUT_WAIT,
        };
        why["waits_ms"] = json!(wait.as_millis() as u64);
        let _ = tell.send(Said::Cut(n, Instant::now(), why));
        let until = Instant::now() + wait;
        while Instant::now() < until && !stop.load(Ordering::Relaxed) {
            thread::park_timeout(until.saturating_duration_since(Instant::now()).min(PACE));
        }
    }
}

fn publish(
    server: &Server,
    room: &str,
    token: &str,
    tell: &Sender<Said>,
    stop: &AtomicBool,
    accept: &(impl Fn(&Http) -> bool + Sync),
) {
    let mut http: Option<Http> = None;
    let mut n = 0;
    while !stop.load(Ordering::Relaxed) {
        n += 1;
        let sent = Instant::now();
        let (path, body) = if n % 4 == 0 {
            let goal = json!({"match_id": format!("m-{room}"), "event_id": format!("e{n}"), "provider": "desk",
                "kind": "goal", "score": {"home": n % 100, "away": 0}, "minute": "1"});
            (format!("/v1/score-event?room={room}"), goal)
        } else {
            (format!("/v1/rooms/{room}/comments"), json!({"client_msg_id": format!("k{n}"), "body": format!("no {n}")}))
        };
        // The same key until it is taken: whether it was before is not known.
        while !stop.load(Ordering::Relaxed) {
            let start = Instant::now();
            let answer = match http.as_mut() {
                Some(http) => http.call("POST", &path, Some(token), Some(&body)),
                None => match server.try_http() {
                    Ok(new) => {
                        http = accept(&new).then_some(new);
                        continue;
                    }
                    Err(fault) => Err(fault),
                },
            };
            let done = match answer {
                Ok(Answer { status: 200 | 202, json, .. }) => {
                    let id = json["event_id"].as_u64().expect("an id");
                    let _ = tell.send(Said::Acked(Ack { id, sent }));
                    true
                }
                Ok(Answer { status, json, .. }) => {
                    let _ = tell.send(Said::Refused(Instant::now(), status, json));
                    false
                }
                Err(_) => {
                    http = None;
                    false
                }
            };
            thread::park_timeout(PACE.saturating_sub(start.elapsed()));
            if done {
                break;
            }
        }
    }
}
