//! What the server counts about itself: plain atomics, written where things happen, read by `/metrics`.
//!
//! Labels are closed lists, so no client can make a new series.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use grandstand_wire::codes::CloseCode;

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
    FromLog,
    TooOld,
    UnknownCursor,
}

impl Resumed {
    pub const ALL: [Resumed; 5] =
        [Resumed::Live, Resumed::FromRing, Resumed::FromLog, Resumed::TooOld, Resumed::UnknownCursor];

    pub fn name(self) -> &'static str {
        match self {
            Resumed::Live => "live",
            Resumed::FromRing => "ring",
            Resumed::FromLog => "log",
            Resumed::TooOld => "too_old",
            Resumed::UnknownCursor => "unknown_cursor",
        }
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
}

impl Refused {
    pub const ALL: [Refused; 7] = [
        Refused::Rate,
        Refused::Closed,
        Refused::Drain,
        Refused::User,
        Refused::Address,
        Refused::Connections,
        Refused::Room,
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
        }
    }
}

/// Upper bounds of the loop-lag buckets in microseconds; above the last is the rest.
pub const LAG_BOUNDS: [u64; 8] = [500, 1_000, 2_000, 5_000, 10_000, 50_000, 250_000, 1_000_000];

/// Counters of all gateway workers of this process.
#[derive(Default)]
pub struct Metrics {
    /// Sockets now open, whatever they do.
    pub connections: AtomicI64,
    pub accepted: AtomicU64,
    /// `accept` failed (descriptors, memory).
    pub accept_failed: AtomicU64,
    /// TLS handshakes that ended well: full, resumed by a ticket.
    pub handshakes: [AtomicU64; 2],
    /// Callers of the TLS port whose handshake, or record before a stream, was broken or was none.
    pub handshakes_failed: AtomicU64,
    /// Sockets that were accepted by a spare descriptor and sent away, because there was no other.
    pub accept_refused: AtomicU64,
    pub http_requests: AtomicU64,
    /// Requests that could not be read without doubt; their connections were closed.
    pub http_refused: AtomicU64,
    /// Streams now open, by transport.
    pub streams: [AtomicI64; 3],
    /// Streams ever opened, by transport.
    pub opened: [AtomicU64; 3],
    /// Streams ended by the server, by close code in the order of `CloseCode::ALL`.
    pub closed: [AtomicU64; CloseCode::ALL.len()],
    pub resumed: [AtomicU64; 5],
    /// Streams let in: each took its place in the rate of new streams, where there is one.
    pub admitted: AtomicU64,
    /// Streams refused by a limit, in the order of `Refused::ALL`.
    pub refused: [AtomicU64; Refused::ALL.len()],
    /// Frames with room events, the events in them, their bytes: written or kept as the rest of one frame.
    pub frames: AtomicU64,
    pub delivered: AtomicU64,
    pub delivered_bytes: AtomicU64,
    /// Comments passed over for slow viewers; each was told.
    pub skipped: AtomicU64,
    /// Frames encoded; the difference to `frames` is what sharing saved.
    pub encoded: AtomicU64,
    pub ops: AtomicU64,
    pub ops_refused: AtomicU64,
    /// Assertions that failed and ended one connection.
    pub assertions_failed: AtomicU64,
    /// Time from a worker's wake to its next wait.
    pub lag: [AtomicU64; LAG_BOUNDS.len() + 1],
    pub lag_micros: AtomicU64,
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

    pub fn add_resumed(&self, how: Resumed) {
        add(&self.resumed[how as usize], 1);
    }

    pub fn add_refused(&self, why: Refused) {
        add(&self.refused[why as usize], 1);
    }

    pub fn add_lag(&self, micros: u64) {
        let bucket = LAG_BOUNDS.iter().position(|bound| micros <= *bound).unwrap_or(LAG_BOUNDS.len());
        add(&self.lag[bucket], 1);
        add(&self.lag_micros, micros);
    }
}

pub fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

pub fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
