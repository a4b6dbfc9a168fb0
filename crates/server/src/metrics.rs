//! What the server counts about itself: plain atomics, written where things happen, read by `/metrics`.
//!
//! Labels are closed lists, so no client can make a new series. A walk counts into its own numbers and adds them here once;
//! times are observed once for each walk and piece, so that a viewer more costs nothing.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use grandstand_core::record::Lane;
use grandstand_wire::codes::{CloseCode, ErrorCode};

/// How a viewer is connected.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Transport {
    WebSocket,
    Sse,
    Poll,
}

impl Transport {
    pub const ALL: [Transport; 3] = [Transport::WebSocket, Transport::Sse, Transport::Poll];

    pub fn name(self) -> &'static str {
        match self {
            Transport::WebSocket => "websocket",
            Transport::Sse => "sse",
            Transport::Poll => "poll",
        }
    }
}

/// How a cursor was answered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Resumed {
    /// No cursor: live from the head.
    Live,
    FromRing,
    /// By the ring, once it was filled for all that waited.
    Shared,
    /// By a read of its own.
    FromLog,
    TooOld,
    UnknownCursor,
}

impl Resumed {
    pub const ALL: [Resumed; 6] =
        [Resumed::Live, Resumed::FromRing, Resumed::Shared, Resumed::FromLog, Resumed::TooOld, Resumed::UnknownCursor];

    pub fn name(self) -> &'static str {
        match self {
            Resumed::Live => "live",
            Resumed::FromRing => "ring",
            Resumed::Shared => "shared",
            Resumed::FromLog => "log",
            Resumed::TooOld => "too_old",
            Resumed::UnknownCursor => "unknown_cursor",
        }
    }
}

/// What ended a client's last attempt at a stream, as it says itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LastFailure {
    /// There was none: a first attempt, or one after a stream that held.
    Nothing,
    /// No stream was begun.
    Refused,
    /// No hello in time.
    Timeout,
    /// The stream fell silent.
    Silence,
    /// The stream ended without a word.
    Closed,
    /// A close of the server.
    Answer,
    /// A word that this version does not know.
    Other,
}

impl LastFailure {
    pub const ALL: [LastFailure; 7] = [
        LastFailure::Nothing,
        LastFailure::Refused,
        LastFailure::Timeout,
        LastFailure::Silence,
        LastFailure::Closed,
        LastFailure::Answer,
        LastFailure::Other,
    ];

    pub fn name(self) -> &'static str {
        match self {
            LastFailure::Nothing => "none",
            LastFailure::Refused => "refused",
            LastFailure::Timeout => "timeout",
            LastFailure::Silence => "silence",
            LastFailure::Closed => "closed",
            LastFailure::Answer => "answer",
            LastFailure::Other => "other",
        }
    }

    /// As a client says it; `None`: it says nothing.
    pub fn said(word: Option<&str>) -> LastFailure {
        let known = |word: &str| LastFailure::ALL.into_iter().find(|f| f.name() == word).unwrap_or(LastFailure::Other);
        word.map_or(LastFailure::Nothing, known)
    }
}

/// How often a client has tried, as it says itself: the first time, the second, more often.
pub const TRIES: [&str; 3] = ["1", "2", "more"];

/// Attempts at streams whose clients say which one it is: by transport, how often they have tried, and what failed before.
#[derive(Debug)]
pub struct Attempts([AtomicU64; Transport::ALL.len() * TRIES.len() * LastFailure::ALL.len()]);

impl Default for Attempts {
    fn default() -> Attempts {
        Attempts(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Attempts {
    /// `attempt`: from 1.
    pub fn add(&self, transport: Transport, attempt: u64, failure: LastFailure) {
        add(&self.0[Attempts::idx(transport, attempt.clamp(1, 3) as usize - 1, failure)], 1);
    }

    /// Each with its transport, the index of its [`TRIES`], and its failure.
    pub fn each(&self) -> impl Iterator<Item = (Transport, usize, LastFailure, u64)> + '_ {
        Transport::ALL.into_iter().flat_map(move |t| {
            (0..TRIES.len()).flat_map(move |tries| {
                LastFailure::ALL.into_iter().map(move |f| (t, tries, f, read(&self.0[Attempts::idx(t, tries, f)])))
            })
        })
    }

    fn idx(transport: Transport, tries: usize, failure: LastFailure) -> usize {
        (transport as usize * TRIES.len() + tries) * LastFailure::ALL.len() + failure as usize
    }
}

/// Why a new stream was refused by a limit of the gateway.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refused {
    /// The rate of new streams.
    Rate,
    /// The rate is 0.
    Closed,
    /// The gateway is being emptied.
    Drain,
    User,
    Address,
    /// `limits.connections_max`.
    Connections,
    /// `limits.connections_per_room_max`.
    Room,
    /// A room that is never sampled sends as much as it may.
    Cost,
    /// The process has no descriptor for it.
    Sockets,
    /// Long-polls of a user or an address that wait.
    Polls,
    /// There is hardly any memory.
    Memory,
}

impl Refused {
    pub const ALL: [Refused; 11] = [
        Refused::Rate,
        Refused::Closed,
        Refused::Drain,
        Refused::User,
        Refused::Address,
        Refused::Connections,
        Refused::Room,
        Refused::Cost,
        Refused::Sockets,
        Refused::Polls,
        Refused::Memory,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Refused::Rate => "rate",
            Refused::Closed => "closed",
            Refused::Drain => "drain",
            Refused::User => "user",
            Refused::Address => "address",
            Refused::Connections => "connections",
            Refused::Room => "room",
            Refused::Cost => "cost",
            Refused::Sockets => "sockets",
            Refused::Polls => "polls",
            Refused::Memory => "memory",
        }
    }
}

/// Where a banner is dropped on its way to viewers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BannerHop {
    /// A worker's queue was full.
    Queue,
    /// It was over before its turn of one a second.
    Turn,
}

impl BannerHop {
    pub const ALL: [BannerHop; 2] = [BannerHop::Queue, BannerHop::Turn];

    pub fn name(self) -> &'static str {
        match self {
            BannerHop::Queue => "queue",
            BannerHop::Turn => "turn",
        }
    }
}

/// Where a room event goes to a viewer, or is passed over.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Hop {
    /// Out of the ring, to an open stream.
    Walk,
    /// Out of the log, to a viewer that catches up.
    Log,
    /// In the answer to a long-poll.
    Poll,
}

impl Hop {
    pub const ALL: [Hop; 3] = [Hop::Walk, Hop::Log, Hop::Poll];

    pub fn name(self) -> &'static str {
        match self {
            Hop::Walk => "walk",
            Hop::Log => "log",
            Hop::Poll => "poll",
        }
    }
}

/// How large a room is, for the limits that differ by it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RoomSize {
    UpTo1K,
    UpTo10K,
    UpTo100K,
    Above,
}

impl RoomSize {
    pub const ALL: [RoomSize; 4] = [RoomSize::UpTo1K, RoomSize::UpTo10K, RoomSize::UpTo100K, RoomSize::Above];

    pub fn of(n_viewers: u64) -> RoomSize {
        match n_viewers {
            0..=1_000 => RoomSize::UpTo1K,
            1_001..=10_000 => RoomSize::UpTo10K,
            10_001..=100_000 => RoomSize::UpTo100K,
            _ => RoomSize::Above,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            RoomSize::UpTo1K => "1k",
            RoomSize::UpTo10K => "10k",
            RoomSize::UpTo100K => "100k",
            RoomSize::Above => "above",
        }
    }
}

/// The lanes whose events are counted one by one; of the others only the last value matters.
pub const LANES: [(Lane, &str); 2] = [(Lane::Priority, "priority"), (Lane::Comment, "comment")];

/// The lanes whose time on the way is measured: those, and the newest values of a room.
pub const LANES_TIMED: [(Lane, &str); 3] = [LANES[0], LANES[1], (Lane::Latest, "latest")];

/// A number for each of [`LANES`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ByLane([u64; LANES.len()]);

impl ByLane {
    pub fn add(&mut self, lane: Lane, n: u64) {
        if let Some(idx) = lane_idx(lane) {
            self.0[idx] += n;
        }
    }
    pub fn add_all(&mut self, other: ByLane) {
        for (sum, n) in self.0.iter_mut().zip(other.0) {
            *sum += n;
        }
    }
    pub fn of(self, lane: Lane) -> u64 {
        lane_idx(lane).map_or(0, |idx| self.0[idx])
    }
    pub fn total(self) -> u64 {
        self.0.iter().sum()
    }
}

fn lane_idx(lane: Lane) -> Option<usize> {
    LANES.iter().position(|(known, _)| *known == lane)
}

/// Upper bounds of every histogram in microseconds, one list for all so that they can be laid beside one another. The limits
/// of docs/operate/alerts.md (400 ms, 500 ms, 800 ms, 1 s, 1.2 s, 2 s, 5 s) are bounds, so a quantile is exact there.
pub const BOUNDS: [u64; 19] = [
    100, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 150_000, 200_000, 400_000, 500_000, 800_000,
    1_000_000, 1_200_000, 2_000_000, 5_000_000, 10_000_000,
];

/// How long something took, how often.
#[derive(Default)]
pub struct Histogram {
    /// The last is for what lies above every bound.
    buckets: [AtomicU64; BOUNDS.len() + 1],
    micros: AtomicU64,
}

impl Histogram {
    pub fn observe(&self, took: Duration) {
        let micros = took.as_micros() as u64;
        let bucket = BOUNDS.iter().position(|bound| micros <= *bound).unwrap_or(BOUNDS.len());
        add(&self.buckets[bucket], 1);
        add(&self.micros, micros);
    }

    /// How many were at most each bound; the last is how many there were.
    pub fn cumulated(&self) -> [u64; BOUNDS.len() + 1] {
        let mut below = 0;
        std::array::from_fn(|idx| {
            below += read(&self.buckets[idx]);
            below
        })
    }

    pub fn sum(&self) -> Duration {
        Duration::from_micros(read(&self.micros))
    }
}

/// Denials in the order of `ErrorCode::ALL`.
pub struct Denials(pub [AtomicU64; ErrorCode::ALL.len()]);

impl Default for Denials {
    fn default() -> Denials {
        Denials(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

/// Counters of all gateway workers of this process.
#[derive(Default)]
pub struct Metrics {
    /// Sockets now open, whatever they do.
    pub connections: AtomicI64,
    /// Those of them that speak HTTP/2, and the streams on those.
    pub http2_connections: AtomicI64,
    pub http2_streams: AtomicI64,
    /// Workers whose listeners are closed because other processes take whoever comes.
    pub ports_left: AtomicI64,
    /// Whether the process gives up comments for want of memory, and whether it refuses streams and comments; 1 for yes.
    pub memory_short: [AtomicI64; 2],
    /// HTTP/2 connections ended because their peer asked for more than it may.
    pub http2_calmed: AtomicU64,
    /// Sockets now open that speak IRC.
    pub irc_connections: AtomicI64,
    /// Callers of IRC that there was no place for, and connections that did not take what they were sent.
    pub irc_refused: AtomicU64,
    pub irc_stalled: AtomicU64,
    /// Lines of IRC that came, and bytes of those that were written.
    pub irc_lines: AtomicU64,
    pub irc_bytes: AtomicU64,
    /// Whether the shedder takes, an operator's order does, and an operator has said that it may; 1 for yes.
    pub shedding: [AtomicI64; 4],
    pub accepted: AtomicU64,
    /// `accept` failed (descriptors, memory).
    pub accept_failed: AtomicU64,
    /// TLS handshakes that ended well: full, resumed by a ticket.
    pub handshakes: [AtomicU64; 2],
    /// Callers of the TLS port whose handshake, or record before a stream, was broken or was none.
    pub handshakes_failed: AtomicU64,
    pub http_requests: AtomicU64,
    /// Requests that could not be read without doubt; their connections were closed.
    pub http_refused: AtomicU64,
    /// Requests for a stream.
    pub requested: AtomicU64,
    pub attempts: Attempts,
    /// Those of them that ended before their hello, without those of a drain.
    pub denied: Denials,
    /// Streams now open, by transport.
    pub streams: [AtomicI64; 3],
    /// Streams ever opened, by transport.
    pub opened: [AtomicU64; 3],
    /// Streams ended by the server, by close code in the order of `CloseCode::ALL`.
    pub closed: [AtomicU64; CloseCode::ALL.len()],
    pub resumed: [AtomicU64; Resumed::ALL.len()],
    /// Rooms whose facts were asked of the shard: one for each worker with viewers of the room, not for each viewer.
    pub rooms_asked: AtomicU64,
    /// Tokens found among those checked before, and those whose signature was checked and held.
    pub tokens_cached: AtomicU64,
    pub tokens_checked: AtomicU64,
    /// Times the key set file was read, the start included.
    pub key_set_reads: AtomicU64,
    /// Fetches of it that came to nothing.
    pub key_set_failures: AtomicU64,
    /// Streams let in: each took its place in the rate of new streams, where there is one.
    pub admitted: AtomicU64,
    /// Streams refused by a limit, in the order of `Refused::ALL`.
    pub refused: [AtomicU64; Refused::ALL.len()],
    /// Frames with room events and their bytes, by transport: written or kept as the rest of one frame.
    pub frames: [AtomicU64; 3],
    pub bytes: [AtomicU64; 3],
    /// Those of them that went compressed, the bytes that made them shorter, and the time the compressing took.
    pub packed: AtomicU64,
    pub saved: AtomicU64,
    pub packing_ns: AtomicU64,
    /// The events in them, by hop and lane.
    delivered: [[AtomicU64; LANES.len()]; 3],
    /// Comments passed over by hop; each was told.
    pub skipped: [AtomicU64; 3],
    /// Winners of wide rooms that were not among a viewer's picks, by hop.
    pub sampled: [AtomicU64; 3],
    /// Events that left a ring for want of room before their age, in the order of [`LANES`].
    pub crowded_out: [AtomicU64; LANES.len()],
    /// Priority events that were missing on the way from the shard to a ring. Each is a bug.
    pub priority_lost: AtomicU64,
    /// Comments without an allow of rooms that show none without, given to viewers. Each is a bug.
    pub unallowed: AtomicU64,
    /// Banners given to streams and polls, and banners that were not, in the order of [`BannerHop::ALL`].
    pub banners_told: AtomicU64,
    pub banners_dropped: [AtomicU64; BannerHop::ALL.len()],
    /// Frames encoded; the difference to `frames` is what sharing saved.
    pub encoded: AtomicU64,
    pub ops: AtomicU64,
    pub ops_refused: AtomicU64,
    /// Likes taken at the door, until the next tick.
    pub likes: AtomicU64,
    /// Assertions that failed and ended one connection.
    pub assertions_failed: AtomicU64,
    /// Time from a worker's wake to its next wait.
    pub lag: Histogram,
    /// From the first seat of a room to the last, by the room's size.
    pub walks: [Histogram; 4],
    /// From an event's time in the log, or from the moment a worker heard that a room's newest values are others, to the end of
    /// the walk that gave it to the worker's viewers, by lane in the order of [`LANES_TIMED`], and room size.
    delivery: [[Histogram; 4]; LANES_TIMED.len()],
    /// From a banner's time in the log to the end of the round that gave it to a worker's viewers.
    pub banner_delivery: Histogram,
}

impl Metrics {
    pub fn new() -> Metrics {
        Metrics::default()
    }

    pub fn add_closed(&self, code: CloseCode) {
        if let Some(idx) = CloseCode::ALL.iter().position(|c| *c == code) {
            add(&self.closed[idx], 1);
        }
    }

    pub fn add_denied(&self, code: ErrorCode) {
        if let Some(idx) = ErrorCode::ALL.iter().position(|c| *c == code) {
            add(&self.denied.0[idx], 1);
        }
    }

    pub fn add_resumed(&self, how: Resumed) {
        add(&self.resumed[how as usize], 1);
    }

    pub fn add_refused(&self, why: Refused) {
        add(&self.refused[why as usize], 1);
    }

    pub fn add_crowded_out(&self, lane: Lane, n: u64) {
        if let Some(idx) = lane_idx(lane) {
            add(&self.crowded_out[idx], n);
        }
    }

    pub fn add_banners(&self, n: u64) {
        if n > 0 {
            add(&self.banners_told, n);
        }
    }

    pub fn add_delivered(&self, hop: Hop, n: ByLane) {
        for (counter, n) in self.delivered[hop as usize].iter().zip(n.0).filter(|(_, n)| *n > 0) {
            add(counter, n);
        }
    }

    /// Events given to viewers, in the order of [`LANES`].
    pub fn delivered(&self, hop: Hop) -> [u64; LANES.len()] {
        self.delivered[hop as usize].each_ref().map(read)
    }

    /// One piece, or one state of a room's values, that a walk gave to its viewers.
    pub fn add_delivery(&self, lane: Lane, room: RoomSize, took: Duration) {
        if let Some(histogram) = self.delivery(lane, room) {
            histogram.observe(took);
        }
    }

    pub fn delivery(&self, lane: Lane, room: RoomSize) -> Option<&Histogram> {
        let idx = LANES_TIMED.iter().position(|(known, _)| *known == lane)?;
        Some(&self.delivery[idx][room as usize])
    }
}

/// How many of [`Metrics::numbers`] do not only grow.
const GAUGES: usize = 4 + 3 + 3 + 2;

impl Metrics {
    /// Every number in a fixed order, the gauges first, so that processes can be added up. A gauge below zero is its two's
    /// complement.
    pub fn numbers(&self) -> Vec<u64> {
        let mut all = Vec::with_capacity(512);
        self.each(&mut |gauge| all.push(gauge.load(Ordering::Relaxed) as u64), &mut |_| ());
        self.each(&mut |_| (), &mut |counter| all.push(read(counter)));
        all
    }

    /// The numbers of a process that has ended: its gauges are 0.
    pub fn counted(numbers: &[u64]) -> Vec<u64> {
        numbers.iter().enumerate().map(|(idx, n)| if idx < GAUGES { 0 } else { *n }).collect()
    }

    /// What [`Metrics::numbers`] gave, as a new one. Numbers that are missing are 0.
    pub fn of_numbers(numbers: &[u64]) -> Metrics {
        let metrics = Metrics::new();
        let numbers = std::cell::RefCell::new(numbers.iter().copied());
        let next = || numbers.borrow_mut().next().unwrap_or(0);
        metrics.each(&mut |gauge| gauge.store(next() as i64, Ordering::Relaxed), &mut |_| ());
        metrics.each(&mut |_| (), &mut |counter| counter.store(next(), Ordering::Relaxed));
        metrics
    }

    /// Each number once. Taken apart by name, so that one that is added cannot be left out.
    fn each(&self, gauge: &mut dyn FnMut(&AtomicI64), counter: &mut dyn FnMut(&AtomicU64)) {
        let Metrics {
            connections,
            shedding,
            accepted,
            accept_failed,
            http2_connections,
            http2_streams,
            ports_left,
            memory_short,
            http2_calmed,
            irc_connections,
            irc_refused,
            irc_stalled,
            irc_lines,
            irc_bytes,
            handshakes,
            handshakes_failed,
            http_requests,
            http_refused,
            requested,
            attempts,
            denied,
            streams,
            opened,
            closed,
            resumed,
            admitted,
            refused,
            frames,
            bytes,
            delivered,
            skipped,
            sampled,
            crowded_out,
            priority_lost,
            unallowed,
            banners_told,
            banners_dropped,
            encoded,
            ops,
            ops_refused,
            likes,
            assertions_failed,
            rooms_asked,
            tokens_cached,
            tokens_checked,
            key_set_reads,
            key_set_failures,
            packed,
            saved,
            packing_ns,
            lag,
            walks,
            delivery,
            banner_delivery,
        } = self;
        [connections, http2_connections, http2_streams, irc_connections, ports_left].into_iter().for_each(&mut *gauge);
        streams.iter().chain(shedding).chain(memory_short).for_each(gauge);
        let single = [
            accepted,
            accept_failed,
            http2_calmed,
            irc_refused,
            irc_stalled,
            irc_lines,
            irc_bytes,
            handshakes_failed,
            http_requests,
            http_refused,
            requested,
            admitted,
            priority_lost,
            unallowed,
            banners_told,
            encoded,
            ops,
            ops_refused,
            likes,
            assertions_failed,
            rooms_asked,
            tokens_cached,
            tokens_checked,
            key_set_reads,
            key_set_failures,
            packed,
            saved,
            packing_ns,
        ];
        let lists: [&[AtomicU64]; 13] = [
            handshakes,
            &attempts.0,
            &denied.0,
            opened,
            closed,
            resumed,
            refused,
            frames,
            bytes,
            skipped,
            sampled,
            crowded_out,
            banners_dropped,
        ];
        let histograms = walks.iter().chain(delivery.as_flattened()).chain([lag, banner_delivery]);
        let times = histograms.flat_map(|h| h.buckets.iter().chain([&h.micros]));
        let lists = lists.into_iter().flatten().chain(delivered.as_flattened());
        single.into_iter().chain(lists).chain(times).for_each(counter);
    }
}

pub fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

pub fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use std::sync::atomic::Ordering;

    use super::{BOUNDS, Histogram, Metrics, RoomSize, read};

    #[test]
    fn numbers_of_processes_are_told_and_added_up_without_losing_one() {
        let metrics = Metrics::new();
        let mut n = 0;
        let n = std::cell::RefCell::new(&mut n);
        let next = || {
            **n.borrow_mut() += 1;
            **n.borrow()
        };
        metrics.each(&mut |g| g.store(next(), Ordering::Relaxed), &mut |_| ());
        metrics.each(&mut |_| (), &mut |c| c.store(next() as u64, Ordering::Relaxed));
        let numbers = metrics.numbers();
        assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
        assert_eq!(Metrics::of_numbers(&numbers).numbers(), numbers);
        let ended = Metrics::of_numbers(&Metrics::counted(&numbers));
        assert_eq!((ended.connections.load(Ordering::Relaxed), read(&ended.accepted)), (0, read(&metrics.accepted)));
        // Every atomic of the struct is one of them.
        assert_eq!(numbers.len() * size_of::<u64>(), size_of::<Metrics>());
    }

    #[test]
    fn a_bound_belongs_to_its_bucket_and_the_rest_to_the_last() {
        let histogram = Histogram::default();
        for micros in [100, 101, 400_000, 20_000_000] {
            histogram.observe(Duration::from_micros(micros));
        }
        let cumulated = histogram.cumulated();
        let at = |micros| cumulated[BOUNDS.iter().position(|b| *b == micros).unwrap()];
        assert_eq!((at(100), at(500), at(200_000), at(400_000), at(10_000_000)), (1, 2, 2, 3, 3));
        assert_eq!((cumulated[BOUNDS.len()], histogram.sum()), (4, Duration::from_micros(20_400_201)));
        assert!(BOUNDS.is_sorted());
    }

    #[test]
    fn a_room_of_exactly_a_thousand_is_of_the_smallest_size() {
        let sizes = [0, 1_000, 1_001, 10_000, 10_001, 100_000, 100_001].map(|n| RoomSize::of(n).name());
        assert_eq!(sizes, ["1k", "1k", "10k", "10k", "100k", "100k", "above"]);
    }
}
