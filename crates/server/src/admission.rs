//! Who may come in at this gateway now: the shared state behind `POST /admin/gateways/{id}/…`.
//!
//! Workers ask it once for each new stream, control changes it, readiness reads it. One lock, held for a few additions.
//! The rules are `grandstand_core::admission`'s; nothing here decides.
//!
//! With several gateway processes each has one of these, and is told by the shard's process how many share the rate.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use grandstand_core::admission::{self, Bucket, Demand, Drain, Limit, Part};
use grandstand_core::names::UserId;
use grandstand_core::places::{self, Places, Taken};
use grandstand_core::time::{Mono, Wall};

use crate::link::{Delay, ShardStatus};
use crate::memory::Memory;
use crate::metrics::Metrics;
use crate::shedding::Shedding;

/// The one gateway of this process.
pub const LOCAL: &str = "local";

/// New streams a second that a gateway is good for whose operator set no rate: a TLS session resumed and a cursor served
/// from the ring are about 0.2 ms of one core.
const UNLIMITED: u32 = 5_000;

/// The last change an operator made.
#[derive(Clone, Debug)]
pub struct Change {
    pub by: UserId,
    pub justification: String,
    pub at: Wall,
}

/// Everything there is to say about it.
#[derive(Clone, Debug)]
pub struct View {
    /// `None`: unlimited.
    pub limit: Option<Limit>,
    /// How many gateways have it together.
    pub shared_by: u32,
    pub configured: Option<Limit>,
    pub drain: Option<Drain>,
    pub changed: Option<Change>,
}

/// A gateway's place among all of a server, as the shard's process tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// Gateways that take streams at the server's rate.
    pub of: u32,
    /// Gateways beside this one that take streams.
    pub others: u32,
    /// The server's rate; `None`: the configured one.
    pub limit: Option<Limit>,
    /// Whether it leaves the port to them.
    pub port: places::Answer,
}

impl Share {
    /// A gateway that knows of no other.
    pub const ALONE: Share = Share { of: 1, others: 0, limit: None, port: places::Answer { number: 0, leaves: false } };
}

struct State {
    share: Share,
    /// What an operator gave this gateway alone.
    own: Option<Limit>,
    bucket: Option<Bucket>,
    drain: Option<Drain>,
    changed: Option<Change>,
}

pub struct Admission {
    /// What operators set of a gateway beside it.
    pub shedding: Shedding,
    pub memory: Memory,
    configured: Option<Limit>,
    state: Mutex<State>,
    /// A copy of `state.drain.is_some()`, for a look without the lock.
    draining: AtomicBool,
    /// A copy of `state.share.others > 0`.
    has_others: AtomicBool,
    places: Mutex<Places>,
    /// Copies of what `places` says: it is full, it leaves the port to others.
    full: AtomicBool,
    leaves_port: AtomicBool,
}

/// A new stream is not taken now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused {
    /// Nobody is taken: the rate is 0.
    pub closed: bool,
    pub delay: Delay,
}

impl Admission {
    /// `None`: unlimited.
    pub fn new(configured: Option<Limit>, now: Mono) -> Admission {
        let bucket = configured.map(|limit| Bucket::new(Part::whole(limit), now));
        let state = State { share: Share::ALONE, own: None, bucket, drain: None, changed: None };
        Admission {
            shedding: Shedding::default(),
            memory: Memory::default(),
            configured,
            state: Mutex::new(state),
            draining: AtomicBool::new(false),
            has_others: AtomicBool::new(false),
            places: Mutex::default(),
            full: AtomicBool::new(false),
            leaves_port: AtomicBool::new(false),
        }
    }

    pub fn with_memory(self, memory: Memory) -> Admission {
        Admission { memory, ..self }
    }

    /// Looks at the memory of this process and does what is to be done about it.
    pub fn look_at_memory(&self, status: &ShardStatus, metrics: &Metrics, now: Mono) {
        if self.memory.look(now, metrics).is_some() {
            self.shedding.press(self.memory.sheds(), now, metrics);
            status.set_short(self.memory.refuses());
        }
    }

    /// Takes one new stream of a room that holds `viewers`.
    /// Errors: how long to stay away, by the room's size.
    pub fn admit(&self, demand: &Mutex<Demand>, viewers: u64, now: Mono) -> Result<(), Refused> {
        let mut demand = demand.lock().expect("no holder of this lock can panic");
        let mut state = self.state.lock().expect("no holder of this lock can panic");
        demand.held(viewers, now);
        let Some(bucket) = &mut state.bucket else { return Ok(()) };
        let sockets = demand.sockets(viewers, now);
        bucket.take(sockets, now).map_err(|refused| {
            demand.refused(now);
            let delay = Delay { retry_after: refused.retry_after, spread: refused.spread };
            Refused { closed: bucket.part().limit.per_second == 0, delay }
        })
    }

    /// The time over which a room's clients come back: as fast as they are let in, or as a gateway without a limit can take
    /// them.
    pub fn spread(&self, demand: &Mutex<Demand>, viewers: u64, now: Mono) -> Duration {
        let sockets = demand.lock().expect("no holder of this lock can panic").sockets(viewers, now);
        let part = self.state.lock().expect("no holder of this lock can panic").bucket.as_ref().map(Bucket::part);
        part.map_or_else(|| admission::spread(sockets, UNLIMITED), |part| part.spread(sockets))
    }

    /// Whether viewers are being sent away.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Whether there are gateways that take those who are sent away.
    pub fn has_others(&self) -> bool {
        self.has_others.load(Ordering::Acquire)
    }

    /// So many places are taken now. Whether the others must be told.
    pub fn look_at_places(&self, taken: &[Taken]) -> bool {
        if !Places::changes(self.full.load(Ordering::Acquire), taken) {
            return false;
        }
        self.with_places(|places| places.look(taken).is_some())
    }

    fn with_places<T>(&self, change: impl FnOnce(&mut Places) -> T) -> T {
        let mut places = self.places.lock().expect("no holder of this lock can panic");
        let changed = change(&mut places);
        self.full.store(places.word().full, Ordering::Release);
        self.leaves_port.store(places.leaves(), Ordering::Release);
        changed
    }

    /// What this gateway says of its places.
    pub fn places(&self) -> places::Word {
        self.places.lock().expect("no holder of this lock can panic").word()
    }

    /// Whether it is full and others on its port are not: whoever comes is theirs.
    pub fn leaves_port(&self) -> bool {
        self.leaves_port.load(Ordering::Acquire)
    }

    /// Nothing is known of the others any more.
    pub fn alone(&self) {
        self.with_places(Places::lost);
    }

    pub fn drain(&self) -> Option<Drain> {
        self.state.lock().expect("no holder of this lock can panic").drain
    }

    pub fn view(&self) -> View {
        let state = self.state.lock().expect("no holder of this lock can panic");
        View {
            limit: state.bucket.as_ref().map(|bucket| bucket.part().limit),
            shared_by: state.bucket.as_ref().map_or(1, |bucket| bucket.part().of()),
            configured: self.configured,
            drain: state.drain,
            changed: state.changed.clone(),
        }
    }

    /// Another rate for this gateway alone from now on, the server's when `limit` is `None`; ends a drain.
    pub fn change(&self, limit: Option<Limit>, change: Change, now: Mono) {
        let mut state = self.state.lock().expect("no holder of this lock can panic");
        state.own = limit;
        state.set_rate(self.configured, now);
        state.drain = None;
        state.changed = Some(change);
        self.draining.store(false, Ordering::Release);
    }

    /// Another share of the server's rate from now on.
    pub fn share(&self, share: Share, now: Mono) {
        let mut state = self.state.lock().expect("no holder of this lock can panic");
        state.share = share;
        state.set_rate(self.configured, now);
        self.has_others.store(share.others > 0, Ordering::Release);
        drop(state);
        self.with_places(|places| places.hear(share.port));
    }

    /// This gateway takes part from now on: what it was good for before is not counted twice.
    pub fn join(&self, share: Share, now: Mono) {
        self.share(share, now);
        if let Some(bucket) = &mut self.state.lock().expect("no holder of this lock can panic").bucket {
            bucket.empty(now);
        }
    }

    /// Sends everyone away within `over` and takes nobody new.
    pub fn start_drain(&self, over: Duration, change: Change, now: Mono) {
        let mut state = self.state.lock().expect("no holder of this lock can panic");
        state.drain = Some(Drain { began: now, over });
        state.changed = Some(change);
        self.draining.store(true, Ordering::Release);
    }
}

impl State {
    fn set_rate(&mut self, configured: Option<Limit>, now: Mono) {
        let of_server = self.share.limit.or(configured).map(|limit| Part::one_of(self.share.of, limit));
        match (self.own.map(Part::whole).or(of_server), &mut self.bucket) {
            (None, bucket) => *bucket = None,
            (Some(part), Some(bucket)) => bucket.change(part, now),
            (Some(part), bucket) => *bucket = Some(Bucket::new(part, now)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use grandstand_core::admission::{Demand, Limit};
    use grandstand_core::names::UserId;
    use grandstand_core::time::{Mono, Wall};

    use super::{Admission, Change, Share};

    fn change() -> Change {
        Change { by: UserId::parse("ops").unwrap(), justification: "a test".to_owned(), at: Wall(1) }
    }

    #[test]
    fn a_rate_is_changed_closed_and_given_back_while_it_runs() {
        let demand = Mutex::new(Demand::default());
        let admission = Admission::new(None, Mono(0));
        assert!((0..1_000).all(|_| admission.admit(&demand, 0, Mono(0)).is_ok()));
        admission.change(Some(Limit::steady(10)), change(), Mono(0));
        assert_eq!((0..100).filter(|_| admission.admit(&demand, 0, Mono(0)).is_ok()).count(), 12);
        admission.change(Some(Limit::steady(0)), change(), Mono(0));
        assert!(admission.admit(&demand, 0, Mono(60_000_000)).is_err_and(|r| r.closed));
        admission.change(None, change(), Mono(0));
        assert!((0..1_000).all(|_| admission.admit(&demand, 0, Mono(0)).is_ok()));
    }

    #[test]
    fn a_gateway_among_others_takes_its_part_of_the_servers_rate_or_its_own() {
        let demand = Mutex::new(Demand::default());
        let admission = Admission::new(Some(Limit::steady(100)), Mono(0));
        let admitted = |now| (0..1_000).filter(|_| admission.admit(&demand, 0, Mono(now)).is_ok()).count();
        admission.join(Share { of: 4, others: 3, limit: None, ..Share::ALONE }, Mono(0));
        assert_eq!((admitted(0), admitted(1_000_000)), (0, 25));
        assert!(admission.has_others());
        // The server's rate is changed; then one gateway goes away.
        admission.share(Share { of: 4, others: 3, limit: Some(Limit::steady(40)), ..Share::ALONE }, Mono(1_000_000));
        assert_eq!(admitted(2_000_000), 10);
        admission.share(Share { of: 2, others: 1, limit: Some(Limit::steady(40)), ..Share::ALONE }, Mono(2_000_000));
        assert_eq!(admitted(3_000_000), 20);
        // A rate of its own is no part of the server's.
        admission.change(Some(Limit::steady(5)), change(), Mono(3_000_000));
        admission.share(Share { of: 1, others: 1, limit: None, ..Share::ALONE }, Mono(3_000_000));
        assert_eq!((admitted(4_000_000), admission.view().shared_by), (5, 1));
        admission.change(None, change(), Mono(4_000_000));
        assert_eq!(admitted(5_000_000), 100);
    }

    #[test]
    fn a_drain_holds_until_the_next_admission_call() {
        let admission = Admission::new(Some(Limit::steady(5)), Mono(0));
        admission.start_drain(Duration::from_secs(30), change(), Mono(7));
        assert!(admission.is_draining());
        assert_eq!(admission.drain().map(|d| d.began), Some(Mono(7)));
        admission.change(None, change(), Mono(9));
        assert!(!admission.is_draining() && admission.drain().is_none());
        assert_eq!(admission.view().limit, Some(Limit::steady(5)));
    }
}
