//! One process of viewers: a mio loop, a slab of small states, one read buffer.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use grandstand_client::http::read_head;
use grandstand_core::rng::Rng;
use grandstand_core::time::Wall;
use grandstand_wire::deflate::Inflater;
use grandstand_wire::stamp;
use grandstand_wire::ws::{Incoming, Opcode, Packed, write_masked_frame};
use hdrhistogram::Histogram;
use mio::{Events, Interest, Poll, Token, Waker};
use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, Socket, Type};

use crate::addresses::Places;
use crate::clock::micros;
use crate::event::{self, Event, Kind};
use crate::frames::{self, Cut};
use crate::link::{Got, Link};
use crate::report::{Buckets, new_histogram};
use crate::run::{Settings, ToWorker, Transport, say};
use crate::viewers::part::{Flow, Part};
use crate::viewers::storm::{Back, Storm};

mod part;
pub mod storm;

/// Connections being made at one time: below any listener's backlog.
const CONNECTING_MAX: usize = 256;
/// Viewers behind one source address: far below the ports one address has towards one server.
const PER_ADDRESS: usize = 2_000;
/// Everyone should be in by then.
const CONNECT_MAX: Duration = Duration::from_secs(120);
const WAKE: Token = Token(usize::MAX);
/// A viewer that gets nothing for so long after the last publish gets nothing more.
const QUIET: Duration = Duration::from_secs(15);
/// How often a slow viewer reads what it allows itself.
const SLOW_EVERY: Duration = Duration::from_millis(100);
/// What a slow viewer's kernel takes for it: as little as there is, so that the server feels it.
const SLOW_BUFFER: usize = 2_048;
/// One viewer of so many keeps how long likes waited.
const WAITS_OF_EVERY: u32 = 17;
/// A resume that a server asked for at once is tried this much later.
const AT_ONCE: Duration = Duration::from_millis(5);
/// Waits after a connection that broke without a word, milliseconds.
const BROKE_MIN: u16 = 250;
const BROKE_MAX: u16 = 10_000;

/// The parts of an evening with banners.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    Calm,
    Banners,
    /// The rooms have their own moment.
    Storm,
}

impl When {
    /// What was going on when this was said.
    fn of(settings: &Settings, go_us: Option<u64>, sent_us: u64) -> When {
        let Some(go) = go_us else { return When::Calm };
        let after = sent_us.saturating_sub(go) as f64 / 1e6;
        match settings.pattern.and_then(|pattern| pattern.moment) {
            Some(moment) if after >= moment.at => When::Storm,
            _ if after >= settings.banners_from => When::Banners,
            _ => When::Calm,
        }
    }
}

/// What one process of viewers has seen.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Seen {
    pub viewers: u64,
    /// Comments and score events given to viewers while the publishers ran and after.
    pub delivered: u64,
    pub skipped: u64,
    pub frames: u64,
    pub bytes: u64,
    /// Publish to delivery, by transport.
    pub comments: BTreeMap<String, Buckets>,
    pub scores: BTreeMap<String, Buckets>,
    pub gifts: BTreeMap<String, Buckets>,
    pub banners: BTreeMap<String, Buckets>,
    /// Comments from before the first banner, and from then until the rooms' own moment.
    pub calm: Buckets,
    pub beside: Buckets,
    /// Banners of that moment.
    pub in_storm: Buckets,
    /// Failed checks.
    pub duplicates: u64,
    pub missing_pseq: u64,
    /// Viewers whose count or sum of ids is not that of the acked ones, and the events they lack in sum.
    pub wrong_viewers: u64,
    pub lost: u64,
    /// Snapshots asked for: gaps that were told without a count.
    pub cut: u64,
    pub faults: BTreeMap<String, u64>,
    pub closes: BTreeMap<u16, u64>,
    pub reconnects: u64,
    pub slow: SlowSeen,
    /// Over all viewers: what was acked after they were greeted, and what of it they were given.
    pub comments_due: u64,
    pub comments_given: u64,
    pub scores_due: u64,
    pub scores_given: u64,
    pub gifts_due: u64,
    pub gifts_given: u64,
    pub banners_due: u64,
    pub banners_given: u64,
    /// Viewers that were told that they are shown a part, and since then the comments of who was given fewest and
    /// most.
    pub told_sampled: u64,
    pub comments_least: u64,
    pub comments_most: u64,
    /// Times that one of them was given more than its cap, or nothing for too long while others were given something.
    pub over_cap: u64,
    pub silent: u64,
    /// By the second of the clock: what they were given and told.
    pub parts: BTreeMap<u64, Parts>,
    pub late: u64,
    /// Of viewers that came in the middle: from when they were to come until they were greeted.
    pub entered: Buckets,
    pub likes: LikesSeen,
}

/// What viewers of sampled rooms were given within a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parts {
    /// As of a look at them in this second; 0 where nobody looked.
    pub viewers: u64,
    pub given: u64,
    /// Those that had been told what part of the comments it is, and the sum of what they were told, in millionths.
    pub told: u64,
    pub told_sum: u64,
}

/// A promise that a viewer saw broken while the run went on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Breach {
    pub breach: String,
}

/// Tellings of rooms' likes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LikesSeen {
    pub told: u64,
    /// Totals that were lower than the one before.
    pub fell: u64,
    /// Viewers whose last total is not the room's.
    pub wrong: u64,
    /// Of some viewers: room, when, the total before. The like behind that one had not been shown until then.
    pub waits: Vec<(u32, u64, u64)>,
}

/// What became of the slow viewers. Their events are checked like everybody's; their latency is not counted.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct SlowSeen {
    pub viewers: u64,
    /// That were closed, whether they could read the close code or not.
    pub closed: u64,
    /// That were watching and complete at the end.
    pub complete: u64,
    /// Comments they were told they had been passed over with.
    pub skipped: u64,
}

/// What was acked in one room: what each of its viewers must have got.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Total {
    pub comments: u64,
    pub scores: u64,
    pub gifts: u64,
    /// Of the whole site.
    pub banners: u64,
    /// Wrapping sum of all their ids.
    pub sum: u64,
    pub likes: u64,
    /// The ids by kind, ascending once sorted; empty where everybody was there from the beginning.
    comment_ids: Vec<u64>,
    score_ids: Vec<u64>,
    gift_ids: Vec<u64>,
}

/// What one viewer is owed, or was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Owed {
    comments: u64,
    scores: u64,
    gifts: u64,
}

impl Owed {
    fn all(self) -> u64 {
        self.comments + self.scores + self.gifts
    }
}

impl Total {
    pub fn comment(&mut self, id: u64) {
        self.comments += 1;
        self.sum = self.sum.wrapping_add(id);
        self.comment_ids.push(id);
    }

    pub fn score(&mut self, id: u64) {
        self.scores += 1;
        self.sum = self.sum.wrapping_add(id);
        self.score_ids.push(id);
    }

    pub fn gift(&mut self, id: u64) {
        self.gifts += 1;
        self.sum = self.sum.wrapping_add(id);
        self.gift_ids.push(id);
    }

    fn ids(&mut self) -> [&mut Vec<u64>; 3] {
        [&mut self.comment_ids, &mut self.score_ids, &mut self.gift_ids]
    }

    pub fn sort(&mut self) {
        self.ids().into_iter().for_each(|ids| ids.sort_unstable());
    }

    pub fn forget_ids(&mut self) {
        self.ids().into_iter().for_each(|ids| *ids = Vec::new());
    }

    /// What a viewer is owed that was greeted at this position.
    fn since(&self, position: u64) -> Owed {
        let after = |ids: &[u64], all: u64| match ids {
            [] => all,
            ids => (ids.len() - ids.partition_point(|id| *id <= position)) as u64,
        };
        Owed {
            comments: after(&self.comment_ids, self.comments),
            scores: after(&self.score_ids, self.scores),
            gifts: after(&self.gift_ids, self.gifts),
        }
    }

    /// The sum of those ids.
    fn sum_since(&self, position: u64) -> u64 {
        let all = self.comment_ids.iter().chain(&self.score_ids).chain(&self.gift_ids);
        let before = all.filter(|id| **id <= position);
        before.fold(self.sum, |sum, id| sum.wrapping_sub(*id))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Waits for its turn to connect.
    Away,
    Connecting,
    /// The request is out; the head of the answer is due.
    Head,
    Open,
    /// A 40xx, or no more tries.
    Ended,
}

/// Kept small: one of these and a socket is all a viewer is.
struct Viewer {
    socket: Option<Link>,
    rest: Vec<u8>,
    room: u32,
    n: u32,
    phase: Phase,
    transport: Transport,
    /// An SSE body in chunks.
    chunked: bool,
    greeted: bool,
    told_cut: bool,
    told_sampled: bool,
    slow: bool,
    /// The server ended it while it was slow.
    was_closed: bool,
    /// The cursor it was first greeted with.
    joined: u64,
    /// Its transport's own address was not reached.
    at_home: bool,
    cursor: u64,
    pseq: u64,
    given: Owed,
    /// Comments since it was told that it is shown a part.
    part: u64,
    /// Comments a second it is given at most, while it is shown a part.
    cap: Option<u32>,
    rate: Part,
    /// The part of the comments it was told, in millionths.
    keep: Option<u32>,
    /// Banners, and the newest of them.
    banners: u64,
    banner: u64,
    skipped: u64,
    sum: u64,
    likes: u64,
    last_42xx: Option<Instant>,
    /// Stays when the others are dropped.
    stays: bool,
    back: Back,
    /// When its last connection was asked for.
    asked_us: u64,
    /// The last wait for a connection that broke without a word.
    broke_ms: u16,
}

/// A frame's events as they were read the last time, kept for the viewers that get the same bytes.
#[derive(Default)]
struct Cached {
    bytes: Vec<u8>,
    events: Vec<Event>,
}

pub struct Viewers {
    settings: Arc<Settings>,
    places: Places,
    poll: Poll,
    viewers: Vec<Viewer>,
    cache: HashMap<u32, [Cached; 2]>,
    inflater: Inflater,
    /// The last compressed frame and what it says.
    opened: (Vec<u8>, Vec<u8>),
    /// When whom to connect (again).
    due: BinaryHeap<Reverse<(Instant, u32)>>,
    n_connecting: usize,
    n_open: usize,
    scratch: Vec<u8>,
    events: Vec<Event>,
    rng: Rng,
    comments: [Histogram<u64>; 3],
    scores: [Histogram<u64>; 3],
    gifts: [Histogram<u64>; 3],
    banners: [Histogram<u64>; 3],
    calm: Histogram<u64>,
    beside: Histogram<u64>,
    in_storm: Histogram<u64>,
    entered: Histogram<u64>,
    seen: Seen,
    last_delivery: Instant,
    /// When the publishers began, microseconds of the clock.
    go_us: Option<u64>,
    /// Slow viewers are slow now, and when they read next.
    slow_at: Option<Instant>,
    slow_bytes: f64,
    storm: Option<Storm>,
    connect_most: Duration,
    /// Of each room.
    flows: HashMap<u32, Flow>,
    /// When viewers of sampled rooms are looked at next, and until when they are judged: the rooms fall quiet then.
    look_at: Instant,
    ended: bool,
}

impl Viewers {
    pub fn new(settings: Arc<Settings>) -> Result<(Viewers, Waker)> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKE)?;
        let now = Instant::now();
        let places = Places::new(&settings)?;
        let mut due = BinaryHeap::new();
        let viewers: Vec<Viewer> = (settings.first_viewer..settings.first_viewer + settings.viewers)
            .map(|n| Viewer {
                socket: None,
                rest: Vec::new(),
                room: settings.room_of(n),
                n,
                joined: 0,
                phase: Phase::Away,
                transport: settings.transport_of(n),
                chunked: false,
                greeted: false,
                told_cut: false,
                told_sampled: false,
                slow: settings.slow.is_some_and(|slow| slow.is(n)),
                was_closed: false,
                at_home: false,
                cursor: 0,
                pseq: 0,
                given: Owed::default(),
                part: 0,
                cap: None,
                rate: Part::default(),
                keep: None,
                banners: 0,
                banner: 0,
                skipped: 0,
                sum: 0,
                likes: 0,
                last_42xx: None,
                stays: false,
                back: Back::Here,
                asked_us: 0,
                broke_ms: 0,
            })
            .collect();
        let is_late = |viewer: &Viewer| settings.late.is_some_and(|late| late.comes(viewer.n).is_some());
        for slot in (0..viewers.len()).filter(|slot| !is_late(&viewers[*slot])) {
            let paced = settings.connect_rate > 0.0;
            let wait = if paced { slot as f64 / settings.connect_rate } else { 0.0 };
            due.push(Reverse((now + Duration::from_secs_f64(wait), slot as u32)));
        }
        let patience = viewers.len() as f64 / settings.connect_rate.max(1.0);
        let made = Viewers {
            settings,
            places,
            poll,
            viewers,
            cache: HashMap::new(),
            inflater: Inflater::default(),
            opened: (Vec::new(), Vec::new()),
            due,
            n_connecting: 0,
            n_open: 0,
            scratch: vec![0; 256 << 10],
            events: Vec::new(),
            rng: Rng::new(micros()),
            comments: std::array::from_fn(|_| new_histogram()),
            scores: std::array::from_fn(|_| new_histogram()),
            gifts: std::array::from_fn(|_| new_histogram()),
            banners: std::array::from_fn(|_| new_histogram()),
            calm: new_histogram(),
            beside: new_histogram(),
            in_storm: new_histogram(),
            entered: new_histogram(),
            seen: Seen::default(),
            last_delivery: now,
            go_us: None,
            slow_at: None,
            slow_bytes: 0.0,
            storm: None,
            flows: HashMap::new(),
            look_at: now,
            ended: false,
            connect_most: CONNECT_MAX + Duration::from_secs_f64(patience),
        };
        Ok((made, waker))
    }

    /// Connects everyone, says `ready`, follows until the totals come, and gives what was seen.
    pub fn run(mut self, orders: &Receiver<ToWorker>) -> Result<Seen> {
        let mut events = Events::with_capacity(4096);
        let mut totals: Option<Vec<Total>> = None;
        let mut said_ready = false;
        let start = Instant::now();
        loop {
            self.connect_due()?;
            let wait = self.due.peek().filter(|_| self.n_connecting < self.connecting_most());
            let wait = wait.map_or(Duration::from_millis(250), |due| due.0.0.saturating_duration_since(Instant::now()));
            match self.poll.poll(&mut events, Some(wait.min(Duration::from_millis(250)))) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            }
            for event in &events {
                if event.token() != WAKE && !self.reads_slowly(event.token().0) {
                    self.ready(event.token().0, event.is_writable(), event.is_read_closed());
                }
            }
            self.read_slowly();
            self.look_at_parts();
            // Viewers that never get in are counted at the end; the others do not wait for them for ever.
            let settled = self.due.is_empty() && self.n_connecting == 0;
            if !said_ready && (settled || start.elapsed() > self.connect_most) {
                let n_greeted = self.viewers.iter().filter(|v| v.greeted).count();
                let n_ended = self.viewers.iter().filter(|v| v.phase == Phase::Ended && !v.greeted).count();
                let n_late = self.viewers.iter().filter(|v| self.settings.late.is_some_and(|l| l.comes(v.n).is_some()));
                if n_greeted + n_ended + n_late.count() == self.viewers.len() || start.elapsed() > self.connect_most {
                    said_ready = true;
                    say(&serde_json::json!({ "ready": n_greeted }));
                }
            }
            while let Ok(order) = orders.try_recv() {
                match order {
                    ToWorker::Go => {
                        self.last_delivery = Instant::now();
                        self.slow_at = self.settings.slow.map(|_| Instant::now());
                        self.expect_the_late();
                    }
                    ToWorker::Totals(all) => {
                        self.last_delivery = Instant::now();
                        totals = Some(all);
                        self.read_again();
                    }
                    ToWorker::Storm(stay) => self.drop_all_but(stay),
                    ToWorker::Stop => {}
                    ToWorker::Mark => {
                        self.ended = true;
                        say(&serde_json::json!({ "delivered": self.seen.delivered }));
                    }
                }
            }
            self.say_when_back();
            if let Some(all) = &totals
                && (self.viewers.iter().all(|v| v.has(all, self.settings.is_sampled()))
                    || self.last_delivery.elapsed() > QUIET)
            {
                break;
            }
        }
        Ok(self.finish(&totals.unwrap_or_default()))
    }

    fn finish(mut self, totals: &[Total]) -> Seen {
        for viewer in &self.viewers {
            let is_late = self.settings.late.is_some_and(|late| late.comes(viewer.n).is_some());
            self.seen.late += u64::from(is_late);
            let none = Total::default();
            let total = totals.get(viewer.room as usize).unwrap_or(&none);
            let (mut owed, given) = (total.since(viewer.joined), viewer.given);
            self.seen.told_sampled += u64::from(viewer.told_sampled);
            if self.settings.is_sampled() {
                // How many it is to be is the scenario's promise; which ones is the server's lot.
                owed.comments = given.comments;
            }
            let due = owed.all();
            self.seen.comments_due += owed.comments;
            self.seen.scores_due += owed.scores;
            self.seen.gifts_due += owed.gifts;
            self.seen.banners_due += total.banners;
            self.seen.banners_given += viewer.banners;
            self.seen.comments_given += given.comments;
            self.seen.scores_given += given.scores;
            self.seen.gifts_given += given.gifts;
            let has = given.all() + if self.settings.is_sampled() { 0 } else { viewer.skipped };
            let partial = (given.scores, given.gifts) != (owed.scores, owed.gifts);
            let wrong_sum =
                !self.settings.is_sampled() && viewer.skipped == 0 && viewer.sum != total.sum_since(viewer.joined);
            if !viewer.told_cut && (has != due || wrong_sum || partial) {
                self.seen.wrong_viewers += 1;
                self.seen.lost += due.saturating_sub(has);
            }
            self.seen.skipped += viewer.skipped;
            self.seen.likes.wrong += u64::from(viewer.likes != total.likes);
            if viewer.slow {
                let slow = &mut self.seen.slow;
                slow.viewers += 1;
                slow.closed += u64::from(viewer.was_closed);
                slow.complete += u64::from(viewer.phase == Phase::Open && has == due && !partial);
                slow.skipped += viewer.skipped;
            }
        }
        let parts = || self.viewers.iter().map(|v| v.part);
        self.seen.comments_least = parts().min().unwrap_or(0);
        self.seen.comments_most = parts().max().unwrap_or(0);
        self.seen.viewers = self.viewers.iter().filter(|v| v.greeted).count() as u64;
        let by_transport = |all: &[Histogram<u64>; 3]| {
            let named = Transport::LADDER.iter().map(|t| t.name().to_owned()).zip(all).filter(|(_, h)| !h.is_empty());
            named.map(|(name, histogram)| (name, Buckets::of(histogram))).collect()
        };
        self.seen.entered = Buckets::of(&self.entered);
        self.seen.comments = by_transport(&self.comments);
        self.seen.scores = by_transport(&self.scores);
        self.seen.gifts = by_transport(&self.gifts);
        self.seen.banners = by_transport(&self.banners);
        self.seen.calm = Buckets::of(&self.calm);
        self.seen.beside = Buckets::of(&self.beside);
        self.seen.in_storm = Buckets::of(&self.in_storm);
        self.seen
    }

    /// Once a second: who of a sampled room was given nothing while others were, and what all were given and told.
    fn look_at_parts(&mut self) {
        let at = Instant::now();
        if at < self.look_at {
            return;
        }
        // From here on: a process that stood still makes up for nothing, or two looks were one.
        self.look_at = at + Duration::from_secs(1);
        self.flows.values_mut().for_each(Flow::look);
        let mut parts = Parts::default();
        for viewer in self.viewers.iter_mut().filter(|v| v.phase == Phase::Open && v.cap.is_some()) {
            parts.viewers += 1;
            parts.told += u64::from(viewer.keep.is_some());
            parts.told_sum += u64::from(viewer.keep.unwrap_or(0));
            // A poll is answered at most once a second, and who is slow is told what it was not sent.
            if viewer.slow || self.ended || viewer.transport == Transport::Poll || viewer.back != Back::Here {
                continue;
            }
            let Some(flow) = self.flows.get(&viewer.room) else { continue };
            if let Some(ms) = flow.silence(viewer.rate.last_ms) {
                self.seen.silent += 1;
                let what = format!("nothing for {ms} ms while others were given something");
                breach(&self.settings, viewer, self.go_us, viewer.rate.last_ms, &what);
                viewer.rate.excuse(flow.newest());
            }
        }
        if parts.viewers > 0 {
            let of = self.seen.parts.entry(micros() / 1_000_000).or_default();
            *of = Parts { given: of.given, ..parts };
        }
    }

    /// Those who come in the middle have their time now.
    fn expect_the_late(&mut self) {
        self.go_us = Some(micros());
        let (now, Some(late)) = (Instant::now(), self.settings.late) else { return };
        for (slot, viewer) in self.viewers.iter().enumerate() {
            if let Some(after) = late.comes(viewer.n) {
                self.due.push(Reverse((now + Duration::from_secs_f64(after), slot as u32)));
            }
        }
    }

    fn reads_slowly(&self, slot: usize) -> bool {
        self.slow_at.is_some() && self.viewers[slot].slow && self.viewers[slot].phase == Phase::Open
    }

    /// Each slow viewer reads what has become due since the last time.
    fn read_slowly(&mut self) {
        let (Some(at), Some(slow)) = (self.slow_at, self.settings.slow) else { return };
        let now = Instant::now();
        if now < at || slow.bytes_per_second == 0 {
            return;
        }
        self.slow_bytes += f64::from(slow.bytes_per_second) * (now - at + SLOW_EVERY).as_secs_f64();
        self.slow_at = Some(now + SLOW_EVERY);
        let n = (self.slow_bytes.floor() as usize).min(self.scratch.len());
        if n == 0 {
            return;
        }
        self.slow_bytes -= n as f64;
        for slot in 0..self.viewers.len() {
            if self.reads_slowly(slot) {
                self.read(slot, n, false);
            }
        }
    }

    /// The slow ones are as quick as all others from here on, and find what waits for them.
    fn read_again(&mut self) {
        if self.slow_at.take().is_none() {
            return;
        }
        for slot in 0..self.viewers.len() {
            if self.viewers[slot].slow && self.viewers[slot].phase == Phase::Open {
                self.read(slot, usize::MAX, true);
            }
        }
    }

    fn connect_due(&mut self) -> Result<()> {
        let now = Instant::now();
        let mut n = 0;
        // A crowd is not made in one go: those who are in already are read between its parts.
        while n < CONNECTING_MAX
            && self.n_connecting < self.connecting_most()
            && let Some(Reverse((at, slot))) = self.due.peek().copied()
            && at <= now
        {
            n += 1;
            self.due.pop();
            self.connect(slot as usize).context("opening a socket")?;
        }
        Ok(())
    }

    fn connect(&mut self, slot: usize) -> Result<()> {
        let viewer = &mut self.viewers[slot];
        let place = self.places.of(viewer.transport, viewer.n, viewer.at_home);
        let socket = Socket::new(Domain::for_address(place.addr), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        if viewer.slow {
            socket.set_recv_buffer_size(SLOW_BUFFER)?;
        }
        if let (true, SocketAddr::V4(_)) = (place.addr.ip().is_loopback(), place.addr) {
            let host = match self.settings.source_addresses {
                0 => 2 + viewer.n as usize / PER_ADDRESS,
                some => 2 + viewer.n as usize % some as usize,
            };
            let source = Ipv4Addr::new(127, 0, (host >> 8) as u8, host as u8);
            socket.bind(&SocketAddr::new(IpAddr::V4(source), 0).into())?;
        }
        match socket.connect(&place.addr.into()) {
            Err(e) if e.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {
                *self.seen.faults.entry(format!("connect: {e}")).or_default() += 1;
                viewer.at_home = true;
                self.due.push(Reverse((Instant::now() + Duration::from_millis(500), slot as u32)));
                return Ok(());
            }
            _ => {}
        }
        let mut stream = place.door.link(mio::net::TcpStream::from_std(socket.into()))?;
        self.poll.registry().register(stream.socket(), Token(slot), Interest::READABLE | Interest::WRITABLE)?;
        viewer.socket = Some(stream);
        viewer.phase = Phase::Connecting;
        viewer.asked_us = micros();
        self.n_connecting += 1;
        Ok(())
    }

    fn ready(&mut self, slot: usize, writable: bool, read_closed: bool) {
        if self.viewers[slot].phase == Phase::Connecting && writable {
            let viewer = &mut self.viewers[slot];
            let Some(socket) = &mut viewer.socket else { return };
            let tcp = socket.socket();
            let failed = tcp.take_error().ok().flatten().is_some() || tcp.peer_addr().is_err();
            if failed {
                viewer.at_home = true;
                return self.broke(slot);
            }
            let request = self.settings.request(
                &self.places.of(viewer.transport, viewer.n, viewer.at_home).host,
                viewer.transport,
                viewer.room as usize,
                viewer.n,
                viewer.greeted.then_some(viewer.cursor),
            );
            // A fresh socket's buffer holds a request; one that does not is no use.
            if socket.write(request.as_bytes()).ok() != Some(request.len()) {
                return self.broke(slot);
            }
            viewer.phase = Phase::Head;
        } else if writable && self.viewers[slot].socket.as_mut().is_some_and(|s| s.flush().is_err()) {
            return self.broke(slot);
        }
        self.read(slot, usize::MAX, read_closed);
    }

    /// Reads a socket until it is empty, or once at most `most` bytes.
    fn read(&mut self, slot: usize, most: usize, read_closed: bool) {
        loop {
            let viewer = &mut self.viewers[slot];
            let Some(socket) = &mut viewer.socket else { return };
            match socket.read(&mut self.scratch, most) {
                Ok(Got { n: 0, .. }) => return self.broke(slot),
                Ok(Got { n, more }) => {
                    self.seen.bytes += n as u64;
                    let buffer = std::mem::take(&mut self.scratch);
                    let alive = self.take(slot, &buffer[..n]);
                    self.scratch = buffer;
                    // Fewer bytes than fit: the socket is empty until the next edge, unless its end has come too.
                    if !alive || !(more || read_closed) || most < usize::MAX {
                        return;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return self.broke(slot),
            }
        }
    }

    /// Reads what came; false when the connection is gone.
    fn take(&mut self, slot: usize, fresh: &[u8]) -> bool {
        let viewer = &mut self.viewers[slot];
        let mut whole = std::mem::take(&mut viewer.rest);
        let bytes = if whole.is_empty() {
            fresh
        } else {
            whole.extend_from_slice(fresh);
            &whole[..]
        };
        let mut at = 0;
        let mut alive = true;
        while alive && at < bytes.len() {
            match self.step(slot, &bytes[at..]) {
                Step::Used(n) => at += n,
                Step::More => break,
                Step::Gone => alive = false,
            }
        }
        if alive {
            // Only what is half read stays, and its buffer is given back when nothing is.
            self.viewers[slot].rest = if at == bytes.len() { Vec::new() } else { bytes[at..].to_vec() };
        }
        alive
    }

    fn step(&mut self, slot: usize, bytes: &[u8]) -> Step {
        let viewer = &self.viewers[slot];
        match (viewer.phase, viewer.transport) {
            (Phase::Head, _) | (Phase::Open, Transport::Poll) => self.head(slot, bytes),
            (Phase::Open, Transport::Ws) => {
                let cut = frames::websocket(bytes);
                self.cut(slot, cut)
            }
            (Phase::Open, _) if viewer.chunked => match frames::chunk(bytes) {
                Cut::Text(part, used) => {
                    let mut at = 0;
                    while at < part.len() {
                        // The server ends a chunk with an event's end, so what is left over is a fault of framing.
                        match frames::sse(&part[at..]) {
                            Cut::More => return self.fault(slot, "an event cut by a chunk"),
                            cut => match self.cut(slot, cut) {
                                Step::Used(n) => at += n,
                                other => return other,
                            },
                        }
                    }
                    Step::Used(used)
                }
                cut => self.cut(slot, cut),
            },
            (Phase::Open, _) => {
                let cut = frames::sse(bytes);
                self.cut(slot, cut)
            }
            _ => Step::Gone,
        }
    }

    /// The head of an answer: of the stream once, of every poll again with its body.
    fn head(&mut self, slot: usize, bytes: &[u8]) -> Step {
        let (status, headers, used) = match read_head(bytes) {
            Ok(Some(head)) => head,
            Ok(None) => return Step::More,
            Err(_) => return self.fault(slot, "not an HTTP answer"),
        };
        let header = |name: &str| headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
        let transport = self.viewers[slot].transport;
        if transport == Transport::Poll {
            let length = header("content-length").and_then(|l| l.parse::<usize>().ok());
            let Some(length) = length else { return self.fault(slot, "a poll without a length") };
            let Some(body) = bytes.get(used..used + length) else { return Step::More };
            return match status {
                200 => self.polled(slot, body, used + length),
                204 => self.ask_again(slot, used + length),
                _ => self.refused(slot, status, body),
            };
        }
        let right = if transport == Transport::Ws { 101 } else { 200 };
        if status != right {
            return self.refused(slot, status, &[]);
        }
        let viewer = &mut self.viewers[slot];
        viewer.chunked = header("transfer-encoding").is_some();
        viewer.phase = Phase::Open;
        self.n_connecting -= 1;
        self.n_open += 1;
        Step::Used(used)
    }

    fn polled(&mut self, slot: usize, body: &[u8], used: usize) -> Step {
        let Some(next) = event::number(body, "next_since") else {
            return self.fault(slot, "a poll without next_since");
        };
        let events = body.iter().position(|b| *b == b'[').map(|at| &body[at..]).unwrap_or_default();
        // The list ends where its brackets close; the members after it are no events.
        let list = match events.first() {
            Some(b'[') => match list_end(events) {
                Some(end) => &events[..end],
                None => return self.fault(slot, "a poll without its events"),
            },
            _ => return self.fault(slot, "a poll without its events"),
        };
        if self.viewers[slot].phase == Phase::Head {
            self.viewers[slot].phase = Phase::Open;
            self.n_connecting -= 1;
            self.n_open += 1;
        }
        // A poll that goes on from a cursor has no hello.
        self.greeted(slot);
        if !self.text(slot, list) {
            return Step::Gone;
        }
        let viewer = &mut self.viewers[slot];
        if next < viewer.cursor {
            return self.fault(slot, "next_since fell");
        }
        viewer.cursor = next;
        viewer.greeted = true;
        self.ask_again(slot, used)
    }

    fn ask_again(&mut self, slot: usize, used: usize) -> Step {
        let viewer = &mut self.viewers[slot];
        let host = &self.places.of(Transport::Poll, viewer.n, viewer.at_home).host;
        let request = self.settings.request(host, Transport::Poll, viewer.room as usize, viewer.n, Some(viewer.cursor));
        let sent = viewer.socket.as_mut().and_then(|s| s.write(request.as_bytes()).ok());
        if sent == Some(request.len()) {
            Step::Used(used)
        } else {
            self.broke(slot);
            Step::Gone
        }
    }

    /// `body` is a poll's, which says in it what streams say by their `close`.
    fn refused(&mut self, slot: usize, status: u16, body: &[u8]) -> Step {
        let mut told = Vec::new();
        if event::read(body, &mut told).is_some()
            && let [Event { kind: Kind::Close { code, retry_ms, spread_ms }, .. }] = told[..]
        {
            self.lost(slot, code, retry_ms, spread_ms);
            return Step::Gone;
        }
        *self.seen.faults.entry(format!("refused with {status}")).or_default() += 1;
        if matches!(status, 429 | 503) {
            self.broke(slot);
        } else {
            self.end(slot);
        }
        Step::Gone
    }

    fn cut(&mut self, slot: usize, cut: Cut<'_>) -> Step {
        match cut {
            Cut::More => Step::More,
            Cut::Nothing(used) => Step::Used(used),
            Cut::Text(text, used) => {
                if self.text(slot, text) {
                    Step::Used(used)
                } else {
                    Step::Gone
                }
            }
            Cut::Deflated(packed, used) => {
                let Some(text) = self.open(packed) else {
                    return self.fault(slot, "a compressed frame that cannot be read");
                };
                let alive = self.text(slot, &text);
                self.opened.1 = text;
                if alive { Step::Used(used) } else { Step::Gone }
            }
            Cut::Ping(body, used) => {
                let mut pong = Vec::new();
                write_masked_frame(Opcode::Pong, true, body, [1, 2, 3, 4], &mut pong);
                let socket = self.viewers[slot].socket.as_mut();
                if socket.and_then(|s| s.write(&pong).ok()) == Some(pong.len()) {
                    return Step::Used(used);
                }
                self.broke(slot);
                Step::Gone
            }
            Cut::Close(code, _) => {
                match code {
                    Some(code) => self.lost(slot, code, 250, 1_000),
                    None => self.broke(slot),
                }
                Step::Gone
            }
            Cut::Fault(what) => self.fault(slot, what),
        }
    }

    /// What a compressed frame says. The last one is kept: a frame comes to all viewers of a room with the same bytes.
    fn open(&mut self, packed: &[u8]) -> Option<Vec<u8>> {
        if self.opened.0 == packed {
            return Some(std::mem::take(&mut self.opened.1));
        }
        if !self.settings.deflate {
            return None;
        }
        let body = Packed { is_text: false, body: packed.to_vec() };
        let Ok(Incoming::Binary(text)) = self.inflater.open(body, 16 << 20) else { return None };
        self.opened.0 = packed.to_vec();
        Some(text)
    }

    fn fault(&mut self, slot: usize, what: &str) -> Step {
        *self.seen.faults.entry(what.to_owned()).or_default() += 1;
        let viewer = &self.viewers[slot];
        breach(&self.settings, viewer, self.go_us, viewer.rate.last_ms, what);
        self.end(slot);
        Step::Gone
    }

    /// Reads a frame's events and gives them to the viewer; false when it is gone after them.
    fn text(&mut self, slot: usize, text: &[u8]) -> bool {
        self.seen.frames += 1;
        let room = self.viewers[slot].room;
        let cached = self.cache.entry(room).or_default();
        let hit = cached.iter().position(|c| c.bytes == text);
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        match hit {
            Some(n) => events.extend_from_slice(&cached[n].events),
            None => {
                if event::read(text, &mut events).is_none() {
                    self.events = events;
                    self.fault(slot, "a frame that is no event");
                    return false;
                }
                // Two kept: while one frame spreads over the room, hellos and stragglers do not push it out.
                cached.swap(0, 1);
                cached[0].bytes.clear();
                cached[0].bytes.extend_from_slice(text);
                cached[0].events.clone_from(&events);
            }
        }
        let now = micros();
        let alive = events.iter().all(|event| self.event(slot, event, now));
        self.events = events;
        alive
    }

    fn event(&mut self, slot: usize, event: &Event, now: u64) -> bool {
        let viewer = &mut self.viewers[slot];
        let newest = |room: u32| self.flows.get(&room).map_or(0, Flow::newest);
        match event.kind {
            Kind::Hello { cursor, pseq, resumed, sampled, cap } => {
                viewer.told_sampled |= sampled;
                viewer.cap = cap.filter(|_| sampled);
                // What it was not here for it was not kept waiting for.
                viewer.rate.excuse(newest(viewer.room));
                // A resume that brings only some of the comments counts the others by `skipped`.
                if viewer.greeted && !resumed {
                    viewer.told_cut = true;
                    self.seen.cut += 1;
                }
                if !viewer.greeted {
                    (viewer.joined, viewer.cursor, viewer.pseq) = (cursor, cursor, pseq);
                    let late = self.settings.late.and_then(|late| late.comes(viewer.n));
                    if let (Some(after), Some(go)) = (late, self.go_us) {
                        let meant = go + (after * 1e6) as u64;
                        self.entered.saturating_record(now.saturating_sub(meant).max(1));
                    }
                }
                viewer.greeted = true;
                viewer.broke_ms = 0;
                self.greeted(slot);
            }
            Kind::SnapshotRequired { cursor, pseq } => {
                viewer.told_cut = true;
                self.seen.cut += 1;
                (viewer.cursor, viewer.pseq) = (cursor, pseq);
            }
            Kind::Comment { .. } | Kind::Score | Kind::Gift | Kind::Config { .. } | Kind::Priority => {
                if let Kind::Config { sampled: Some(sampled), cap } = event.kind {
                    viewer.told_sampled |= sampled;
                    viewer.cap = cap.filter(|_| sampled);
                    viewer.rate = Part::since(newest(viewer.room));
                }
                if event.id <= viewer.cursor {
                    self.seen.duplicates += 1;
                    let what = format!("event {} after {}", event.id, viewer.cursor);
                    breach(&self.settings, viewer, self.go_us, viewer.rate.last_ms, &what);
                    return true;
                }
                viewer.cursor = event.id;
                if event.pseq > 0 {
                    // Long-poll has no hello, so its first priority event is its baseline.
                    let baseline = viewer.pseq > 0 || viewer.transport != Transport::Poll;
                    if event.pseq != viewer.pseq + 1 && baseline {
                        self.seen.missing_pseq += 1;
                        let what = format!("priority event {} after {}", event.pseq, viewer.pseq);
                        breach(&self.settings, viewer, self.go_us, viewer.rate.last_ms, &what);
                    }
                    viewer.pseq = event.pseq;
                }
                let rung = viewer.transport.rung();
                let latency = match event.kind {
                    Kind::Comment { ts_ms } => {
                        viewer.given.comments += 1;
                        viewer.part += u64::from(viewer.told_sampled);
                        if let Some(cap) = viewer.cap.filter(|_| ts_ms > 0) {
                            self.seen.parts.entry(now / 1_000_000).or_default().given += 1;
                            self.flows.entry(viewer.room).or_default().note(ts_ms);
                            if let Some(above) = viewer.rate.comment(ts_ms, cap.into()) {
                                self.seen.over_cap += 1;
                                let what = format!("{above} comments above its cap of {cap} a second");
                                breach(&self.settings, viewer, self.go_us, ts_ms, &what);
                            }
                        }
                        &mut self.comments[rung]
                    }
                    Kind::Score => {
                        viewer.given.scores += 1;
                        &mut self.scores[rung]
                    }
                    Kind::Gift => {
                        viewer.given.gifts += 1;
                        &mut self.gifts[rung]
                    }
                    _ => return true,
                };
                viewer.sum = viewer.sum.wrapping_add(event.id);
                self.seen.delivered += 1;
                self.last_delivery = Instant::now();
                // What a viewer missed while it was away is not late; how long it was away is measured apart.
                if event.sent_us > 0 && !viewer.slow && viewer.back == Back::Here {
                    let took = now.saturating_sub(event.sent_us).max(1);
                    latency.saturating_record(took);
                    if matches!(event.kind, Kind::Comment { .. }) && self.settings.banner_rate > 0.0 {
                        match When::of(&self.settings, self.go_us, event.sent_us) {
                            When::Calm => self.calm.saturating_record(took),
                            When::Banners => self.beside.saturating_record(took),
                            When::Storm => {}
                        }
                    }
                    // A long-poll is answered at most once a second, whatever else happens.
                    let measures = viewer.stays && viewer.transport != Transport::Poll;
                    if measures && let Some(storm) = &mut self.storm {
                        storm.stayer(event.kind, took);
                    }
                }
                self.caught_up(slot, event.sent_us);
            }
            Kind::Banner => {
                // One that stands comes again in the hello of a stream that was dropped.
                if event.id > viewer.banner {
                    viewer.banner = event.id;
                    viewer.banners += 1;
                    let rung = viewer.transport.rung();
                    let took = now.saturating_sub(event.sent_us).max(1);
                    self.banners[rung].saturating_record(took);
                    let when = When::of(&self.settings, self.go_us, event.sent_us);
                    if viewer.transport != Transport::Poll && when == When::Storm {
                        self.in_storm.saturating_record(took);
                    }
                    self.last_delivery = Instant::now();
                }
            }
            Kind::Skipped { count } => {
                viewer.skipped += count;
                // It is slow, and was told so.
                viewer.rate.excuse(newest(viewer.room));
            }
            Kind::Close { code, retry_ms, spread_ms } => {
                self.lost(slot, code, retry_ms, spread_ms);
                return false;
            }
            Kind::Counters { likes, keep_millionths } => {
                viewer.keep = keep_millionths.or(viewer.keep);
                let (before, seen) = (viewer.likes, &mut self.seen.likes);
                seen.fell += u64::from(likes < before);
                viewer.likes = likes.max(before);
                if likes > before {
                    seen.told += 1;
                    self.last_delivery = Instant::now();
                    if viewer.n.is_multiple_of(WAITS_OF_EVERY) {
                        seen.waits.push((viewer.room, now, before));
                    }
                }
            }
            Kind::Ack { .. } | Kind::RateLimited { .. } | Kind::Error { .. } | Kind::Other => {}
        }
        true
    }

    /// The connection is gone without a word: the waits grow, and no two viewers' alike (decorrelated jitter).
    fn broke(&mut self, slot: usize) {
        let last = u64::from(self.viewers[slot].broke_ms.max(BROKE_MIN));
        let wait = (u64::from(BROKE_MIN) + self.rng.below(last * 3 - u64::from(BROKE_MIN))).min(u64::from(BROKE_MAX));
        self.viewers[slot].broke_ms = wait as u16;
        if let Some(storm) = &mut self.storm {
            storm.broke();
        }
        self.come_again(slot, Duration::from_millis(wait));
    }

    /// The server said the end; the close code's range decides what follows.
    fn lost(&mut self, slot: usize, code: u16, retry_ms: u64, spread_ms: u64) {
        *self.seen.closes.entry(code).or_default() += 1;
        if let Some(storm) = &mut self.storm {
            storm.refused(code);
        }
        if (4000..4100).contains(&code) {
            self.viewers[slot].was_closed |= self.viewers[slot].greeted;
            return self.end(slot);
        }
        let viewer = &mut self.viewers[slot];
        let now = Instant::now();
        let again = viewer.last_42xx.is_some_and(|t| now - t < Duration::from_secs(10));
        let wait = if (4200..4300).contains(&code) && !again {
            viewer.last_42xx = Some(now);
            AT_ONCE
        } else {
            Duration::from_millis(retry_ms + self.rng.below(spread_ms + 1))
        };
        self.come_again(slot, wait);
    }

    fn come_again(&mut self, slot: usize, wait: Duration) {
        self.drop_socket(slot);
        let viewer = &mut self.viewers[slot];
        viewer.was_closed |= viewer.greeted;
        viewer.phase = Phase::Away;
        self.seen.reconnects += 1;
        self.due.push(Reverse((Instant::now() + wait, slot as u32)));
    }

    fn end(&mut self, slot: usize) {
        self.drop_socket(slot);
        self.viewers[slot].phase = Phase::Ended;
        self.never_back(slot);
    }

    fn drop_socket(&mut self, slot: usize) -> Option<Link> {
        let viewer = &mut self.viewers[slot];
        match viewer.phase {
            Phase::Connecting | Phase::Head => self.n_connecting -= 1,
            Phase::Open => self.n_open -= 1,
            Phase::Away | Phase::Ended => {}
        }
        viewer.rest = Vec::new();
        if let Some(mut socket) = viewer.socket.take() {
            // Closing takes the socket out of the poll by itself; a failure to say so first changes nothing.
            let _ = self.poll.registry().deregister(socket.socket());
            return Some(socket);
        }
        None
    }
}

impl Viewer {
    /// Whether everything its room owes it has come or been told. Of a sampled room that is all but comments.
    fn has(&self, totals: &[Total], sampled: bool) -> bool {
        let total = totals.get(self.room as usize);
        let owed = total.map(|total| total.since(self.joined)).unwrap_or_default();
        let has = match sampled {
            true => self.given.scores >= owed.scores && self.given.gifts >= owed.gifts,
            false => self.given.all() + self.skipped >= owed.all(),
        };
        let (likes, banners) = total.map_or((0, 0), |total| (total.likes, total.banners));
        let has = (self.told_cut || (has && self.likes >= likes)) && self.banners >= banners;
        // A victim may have found all it lacked in its socket, and the socket ended: it is complete when it watches again.
        self.phase == Phase::Ended || (has && (!self.slow || self.phase == Phase::Open))
    }
}

/// Says at once, where the run wants it, which viewer saw a promise broken and when; `ts_ms`: after which comment of the log, where
/// that is known.
fn breach(settings: &Settings, viewer: &Viewer, go_us: Option<u64>, ts_ms: u64, what: &str) {
    if !settings.ends_at_breach {
        return;
    }
    let after = go_us.map_or(0.0, |go| micros().saturating_sub(go) as f64 / 1e6);
    let at = if ts_ms > 0 { format!(" ({})", stamp::text(Wall(ts_ms))) } else { String::new() };
    let room = &settings.rooms[viewer.room as usize];
    let breach = format!("viewer {} of room {room}, {after:.1} s after the beginning{at}: {what}", viewer.n);
    say(&Breach { breach });
}

enum Step {
    Used(usize),
    More,
    Gone,
}

/// One past the bracket that closes the list at the start of `text`.
fn list_end(text: &[u8]) -> Option<usize> {
    let (mut depth, mut quoted, mut escaped) = (0, false, false);
    for (at, b) in text.iter().enumerate() {
        match (quoted, *b) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => quoted = !quoted,
            (false, b'[') => depth += 1,
            (false, b']') => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::sync::{Arc, mpsc};

    use grandstand_client::Endpoint;
    use grandstand_wire::ws::{Opcode, write_frame};

    use super::{Seen, Total, Viewers, list_end};
    use crate::run::{Settings, ToWorker, Transport};

    #[test]
    fn a_list_ends_at_its_own_bracket() {
        assert_eq!(list_end(br#"[{"a":["]"]}],"next":[1]"#), Some(13));
        assert_eq!(list_end(b"[[]"), None);
    }

    /// What one viewer reports of a server that greets it and says `frames`, then ends it with 4010; acked were the
    /// comments 11 and 12 and the score event 13.
    fn watched(transport: Transport, frames: &[&str]) -> Seen {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = Endpoint::parse(&listener.local_addr().unwrap().to_string()).unwrap();
        let mut body = Vec::new();
        let hello = r#"{"type":"hello","cursor":10,"pseq":4,"resumed":false,"comments":"all"}"#;
        let close = r#"{"type":"close","code":4010,"reason":"room_ended"}"#;
        for text in std::iter::once(&hello).chain(frames).chain(std::iter::once(&close)) {
            match transport {
                Transport::Sse => body.extend(format!("event: x\ndata: {text}\n\n").bytes()),
                _ => write_frame(Opcode::Text, text.as_bytes(), &mut body),
            }
        }
        let server = std::thread::spawn(move || {
            let (mut peer, _) = listener.accept().unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                peer.read_exact(&mut byte).unwrap();
                head.push(byte[0]);
            }
            let answer: &[u8] = match transport {
                Transport::Sse => b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n",
                _ => b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n",
            };
            peer.write_all(answer).unwrap();
            // Cut anywhere: the reader keeps what is half read.
            for piece in body.chunks(23) {
                if peer.write_all(piece).is_err() {
                    // A viewer that met a fault leaves before the end.
                    return;
                }
            }
            // Until the viewer has gone by itself.
            let _ = peer.read(&mut [0; 64]);
        });
        let settings =
            Settings { rooms: vec!["r".into()], viewers: 1, transport, ..Settings::new(&endpoint, "t").unwrap() };
        let (viewers, _waker) = Viewers::new(Arc::new(settings)).unwrap();
        let (orders, receiver) = mpsc::channel();
        // The order may come first: a viewer that was ended owes nothing more.
        let running = std::thread::spawn(move || viewers.run(&receiver).unwrap());
        server.join().unwrap();
        orders.send(ToWorker::Totals(vec![Total { comments: 2, scores: 1, sum: 36, ..Total::default() }])).unwrap();
        running.join().unwrap()
    }

    const ALL: &str =
        r#"[{"type":"comment","event_id":11,"body":"1 a"},{"type":"comment","event_id":12,"body":"2 b"}]"#;
    const SCORE: &str = r#"{"type":"score_event","event_id":13,"pseq":5,"key":"l-3-0"}"#;

    #[test]
    fn a_viewer_that_got_everything_has_nothing_to_report() {
        for transport in [Transport::Ws, Transport::Sse] {
            let seen = watched(transport, &[ALL, SCORE]);
            assert_eq!((seen.viewers, seen.delivered, seen.wrong_viewers, seen.lost), (1, 3, 0, 0));
            assert_eq!((seen.duplicates, seen.missing_pseq, seen.skipped, seen.cut), (0, 0, 0, 0));
            assert!(seen.faults.is_empty() && seen.closes[&4010] == 1, "{seen:?}");
        }
    }

    #[test]
    fn a_lost_comment_is_found_and_one_that_was_told_is_not_lost() {
        let one = r#"{"type":"comment","event_id":11,"body":"1 a"}"#;
        let seen = watched(Transport::Ws, &[one, SCORE]);
        assert_eq!((seen.wrong_viewers, seen.lost), (1, 1));
        let told = watched(Transport::Ws, &[one, r#"{"type":"skipped","count":1,"from":12,"to":12}"#, SCORE]);
        assert_eq!((told.wrong_viewers, told.lost, told.skipped), (0, 0, 1));
    }

    #[test]
    fn another_event_in_the_place_of_an_acked_one_is_found() {
        let seen = watched(Transport::Ws, &[ALL, &SCORE.replace("13", "14")]);
        assert_eq!((seen.wrong_viewers, seen.lost), (1, 0));
    }

    #[test]
    fn a_repeated_or_late_event_is_found() {
        let seen = watched(Transport::Ws, &[ALL, ALL, SCORE]);
        assert_eq!(seen.duplicates, 2);
        let late = r#"[{"type":"comment","event_id":12,"body":"2 b"},{"type":"comment","event_id":11,"body":"1 a"}]"#;
        assert_eq!(watched(Transport::Ws, &[late, SCORE]).duplicates, 1);
    }

    #[test]
    fn a_missing_priority_number_is_found() {
        let seen = watched(Transport::Ws, &[ALL, &SCORE.replace("\"pseq\":5", "\"pseq\":6")]);
        assert_eq!(seen.missing_pseq, 1);
    }

    #[test]
    fn a_viewer_that_is_given_more_than_its_cap_is_found() {
        let given = |every_ms: u64| {
            let config = r#"{"type":"config","event_id":11,"pseq":5,"sampled":true,"cap":5}"#.to_owned();
            let comment = |n: u64| {
                let ms = n * every_ms;
                let ts = format!("2026-06-11T20:00:{:02}.{:03}Z", ms / 1_000, ms % 1_000);
                format!(r#"{{"type":"comment","event_id":{},"body":"1 a","ts":"{ts}"}}"#, 12 + n)
            };
            let frames: Vec<String> = std::iter::once(config).chain((0..40).map(comment)).collect();
            watched(Transport::Ws, &frames.iter().map(String::as_str).collect::<Vec<_>>())
        };
        assert_eq!(given(200).over_cap, 0);
        assert!(given(100).over_cap > 0);
    }

    #[test]
    fn a_frame_that_is_no_event_is_a_fault() {
        let seen = watched(Transport::Ws, &["[{]"]);
        assert_eq!(seen.faults.values().sum::<u64>(), 1, "{seen:?}");
    }
}
