//! One worker: the loop that turns sockets, the mailbox, timers and walks into one another.
//!
//! ```text
//! wait ─► sockets ─► mailbox ─► timers ─► walks (≤ 2 ms) ─► wait
//! ```
//!
//! A turn of a connection never waits and never fails another: an assertion that breaks in it ends that connection alone and
//! is counted. Long work is cut: a walk into slices, a reader's bytes into a few reads, so that everyone gets their turn.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use grandstand_core::names::RoomId;
use grandstand_core::regions::Region;
use grandstand_core::rng::Rng;
use grandstand_core::time::{Mono, Wall};
use grandstand_core::watch::Silence;
use grandstand_wire::codes::{CloseCode, ErrorCode};
use grandstand_wire::deflate::{Deflater, Inflater};
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token, Waker};
use slab::Slab;

use super::Shared;
use super::conn::{Caller, Conn, Kind, Sent};
use super::full;
use super::http2::{Arrival, Http2};
use super::pipe::{Bell, Pipe};
use super::roster::Room;
use super::site::Site;
use super::socket::{Got, Socket, Why};
use super::sweep::Sweep;
use super::viewer::Viewer;
use super::web::{self, Http};
use super::wheel::{Timer, Wheel};
use crate::auth::door;
use crate::clock;
use crate::early::Early;
use crate::edge::Serves;
use crate::link::{ConnKey, Delay, Mailbox, ToWorker, WorkerId};
use crate::metrics::{Transport, add};
use crate::shedding::OwnTime;

const WAKER: Token = Token(0);
pub(super) const FIRST_LISTENER: usize = 1;
const FIRST_CONN: usize = FIRST_LISTENER + LISTENERS_MAX;
/// The public one and those of transports; the settings' own limit is below it.
pub(super) const LISTENERS_MAX: usize = 63;

/// What may wait for a worker: at 10 000 answers and batches a second, six seconds of it.
const MAILBOX_LIMIT: usize = 65_536;
/// One read takes at most this, one turn a few of them.
const READ_BYTES: usize = 64 * 1024;
const READS_A_TURN: usize = 4;
const ACCEPTS_A_TURN: usize = 128;
/// Steps of handshakes between two walks: a full one is about 0.3 ms of signing.
const HANDSHAKES_A_TURN: u32 = 16;
/// For the other side's end after our last word. Source: threats A-12.
pub(super) const LINGER: Duration = Duration::from_secs(2);
/// From a stop to the end of the worker, whatever is unwritten.
const STOP_WAIT: Duration = Duration::from_secs(3);
/// Between two slices of a paced drain.
const SLICE: Duration = Duration::from_millis(100);
const HOUSEKEEPING: Duration = Duration::from_secs(1);
/// A listener that could not accept tries again then.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Those who are being refused leave within moments.
const CROWD_PAUSE: Duration = Duration::from_millis(20);
/// One who is only to be refused has this long to ask.
const OVER_WAIT: Duration = Duration::from_secs(2);
/// Whoever fills the descriptors must not fill the log as well.
const ACCEPT_SAID_EVERY: Duration = Duration::from_secs(5);

pub(super) struct Worker {
    pub id: WorkerId,
    pub shared: Arc<Shared>,
    poll: Poll,
    /// Each with what its connections may ask for. Empty: nobody new is taken.
    pub listeners: Vec<(TcpListener, Serves)>,
    /// Listeners that were closed because others take whoever comes.
    pub shut: Vec<(SocketAddr, Serves)>,
    mailbox: Arc<Mailbox<ToWorker>>,
    /// Pipes of HTTP/2 streams that did something.
    pub bell: Arc<Bell>,
    /// Where sockets go that speak HTTP/2, when it is offered.
    pub http2: Option<Http2>,
    pub conns: Slab<Conn>,
    generation: u32,
    pub rooms: Slab<Room>,
    pub room_ids: HashMap<RoomId, usize>,
    pub site: Site,
    /// Providers of which nothing comes, as the shard's list says, by room.
    pub silent: Arc<[Silence]>,
    pub sweep: Sweep,
    /// Where viewers are, as their requests said, by slot; of the others nobody knows.
    pub regions: HashMap<u32, Region>,
    /// Rooms with a merge window that ends then.
    pub windows: BTreeSet<(Mono, usize)>,
    /// Rooms to walk: those with waiting scores first.
    pub urgent: VecDeque<usize>,
    pub due: VecDeque<usize>,
    /// Rooms whose ring was filled as far as it will be for cursors that wait.
    pub filled: VecDeque<usize>,
    /// Connections whose socket may hold unread bytes.
    pub again: VecDeque<u32>,
    /// What the owner's answers of this round say to each connection.
    pub answers: HashMap<u32, Vec<u8>>,
    /// A walk is held by a failpoint until then.
    pub walk_at: Option<Mono>,
    wheel: Wheel,
    pub now: Mono,
    pub wall: Wall,
    pub rng: Rng,
    buffer: Vec<u8>,
    /// For all of its connections, one body at a time.
    pub deflater: Deflater,
    pub inflater: Inflater,
    pub n_requests: u64,
    /// What is refused without asking the owner.
    pub early: Early,
    pub draining: bool,
    /// The shard is away: nothing of it comes and nothing is asked.
    pub away: bool,
    pub drain: Delay,
    /// When the next slice of a paced drain is sent away.
    slice_at: Option<Mono>,
    stop_at: Option<Mono>,
    housekeeping_at: Mono,
    pub(super) accept_at: Option<Mono>,
    /// Until then who queues at a listener that is left is answered.
    pub(super) leave_by: Option<Mono>,
    /// When a failed accept was logged last.
    accept_said: Mono,
    /// Steps of handshakes that this turn may still make.
    handshakes: u32,
    /// The longest walk since housekeeping looked, from its cause to its last seat.
    pub late: Duration,
    own_time: Option<OwnTime>,
}

impl Worker {
    pub fn new(
        id: WorkerId,
        mut listeners: Vec<(TcpListener, Serves)>,
        shared: Arc<Shared>,
    ) -> std::io::Result<Worker> {
        let poll = Poll::new()?;
        assert!(listeners.len() <= LISTENERS_MAX, "a listener's token would be a connection's");
        for (idx, (listener, _)) in listeners.iter_mut().enumerate() {
            poll.registry().register(listener, Token(FIRST_LISTENER + idx), Interest::READABLE)?;
        }
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        let ringer = waker.clone();
        let mailbox = Arc::new(Mailbox::new(MAILBOX_LIMIT, move || {
            // An eventfd that cannot be written is full, which wakes as well.
            let _ = waker.wake();
        }));
        let bell = Arc::new(Bell::new(usize::MAX, move || {
            let _ = ringer.wake();
        }));
        shared.workers.set(id, mailbox.clone());
        let now = clock::mono();
        let seed = clock::wall().0 ^ (u64::from(id.0) << 48) ^ now.0.rotate_left(20) ^ u64::from(std::process::id());
        let drain = shared.settings.drain;
        let early = Early::new(shared.settings.exempt.clone());
        Ok(Worker {
            id,
            shared,
            poll,
            listeners,
            shut: Vec::new(),
            mailbox,
            bell,
            http2: None,
            conns: Slab::new(),
            generation: 0,
            rooms: Slab::new(),
            room_ids: HashMap::new(),
            site: Site::default(),
            silent: Arc::default(),
            sweep: Sweep::default(),
            regions: HashMap::new(),
            windows: BTreeSet::new(),
            urgent: VecDeque::new(),
            due: VecDeque::new(),
            filled: VecDeque::new(),
            again: VecDeque::new(),
            answers: HashMap::new(),
            walk_at: None,
            wheel: Wheel::new(now),
            now,
            wall: clock::wall(),
            rng: Rng::new(seed),
            buffer: vec![0; READ_BYTES],
            deflater: Deflater::default(),
            inflater: Inflater::default(),
            n_requests: 0,
            early,
            draining: false,
            away: false,
            drain,
            slice_at: None,
            stop_at: None,
            housekeeping_at: now,
            accept_at: None,
            leave_by: None,
            accept_said: Mono(0),
            handshakes: HANDSHAKES_A_TURN,
            late: Duration::ZERO,
            own_time: None,
        })
    }

    pub fn run(&mut self) {
        let mut events = Events::with_capacity(1_024);
        loop {
            match self.poll.poll(&mut events, self.wait()) {
                Ok(()) => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => panic!("a worker cannot wait: {e}"),
            }
            self.tick();
            let woke = self.now;
            self.handshakes = HANDSHAKES_A_TURN;
            for event in &events {
                match event.token() {
                    WAKER => {}
                    Token(t) if t < FIRST_CONN => self.accept(t - FIRST_LISTENER),
                    Token(t) => {
                        let slot = t - FIRST_CONN;
                        let (readable, ended) = (event.is_readable(), event.is_read_closed() || event.is_error());
                        let writable = event.is_writable();
                        self.guarded(slot, |w| w.turn(slot, readable, writable, ended));
                    }
                }
            }
            for mail in self.mailbox.take() {
                self.on_mail(mail);
            }
            self.send_answers();
            for pipe in self.bell.take() {
                self.on_bell(&pipe);
            }
            for _ in 0..self.again.len() {
                let Some(slot) = self.again.pop_front() else { break };
                self.guarded(slot as usize, |w| w.read(slot as usize));
            }
            self.on_time();
            self.judge_filled();
            self.walk_rooms();
            self.walk_site();
            self.go_on_sweeping();
            self.shared.metrics.lag.observe(clock::mono().since(woke));
            if self.stop_at.is_some_and(|at| self.conns.is_empty() || self.now >= at) {
                break;
            }
        }
        for slot in self.conns.iter().map(|(slot, _)| slot).collect::<Vec<_>>() {
            self.drop_conn(slot);
        }
    }

    pub fn registry(&self) -> &mio::Registry {
        self.poll.registry()
    }

    pub fn tick(&mut self) {
        self.now = clock::mono();
        self.wall = clock::wall();
    }

    fn wait(&self) -> Option<Duration> {
        let walks = !(self.urgent.is_empty() && self.due.is_empty()) && self.walk_at.is_none();
        if !self.again.is_empty() || !self.filled.is_empty() || walks || self.site.goes_round() || self.sweep.goes_on()
        {
            return Some(Duration::ZERO);
        }
        let window = self.windows.first().map(|(at, _)| *at);
        let next = [self.wheel.next(), window, Some(self.housekeeping_at), self.accept_at, self.stop_at, self.walk_at];
        let next = next.into_iter().chain([self.slice_at, self.site.deadline()]);
        let next = next.flatten().min();
        // Rounded up by the kernel's own granularity: a wake just before a deadline would spin.
        next.map(|at| at.since(clock::mono()))
    }

    /// Runs one connection's turn; a failed assertion ends that connection alone.
    pub fn guarded(&mut self, slot: usize, turn: impl FnOnce(&mut Worker)) {
        if catch_unwind(AssertUnwindSafe(|| turn(self))).is_err() {
            add(&self.shared.metrics.assertions_failed, 1);
            tracing::error!(slot, "an assertion failed; its connection is closed");
            if catch_unwind(AssertUnwindSafe(|| self.drop_conn(slot))).is_err() {
                tracing::error!(slot, "a broken connection could not be taken apart");
                if self.conns.contains(slot) {
                    self.conns.remove(slot);
                }
            }
        }
        if self.buffer.is_empty() {
            self.buffer = vec![0; READ_BYTES];
        }
    }

    /// Takes who waits at a listener, up to a turn's share.
    pub(super) fn accept(&mut self, idx: usize) {
        for _ in 0..ACCEPTS_A_TURN {
            let Some((listener, serves)) = self.listeners.get(idx) else { return };
            let serves = *serves;
            let room = full::room(self.n_sockets(), &self.shared.settings);
            if room == full::Room::Crowded {
                self.accept_at = Some(self.now + CROWD_PAUSE);
                return;
            }
            let (mut stream, peer) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return self.look_at_places(),
                Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => continue,
                Err(e) if full::is_out_of_descriptors(&e) && self.refuse_by_spare(idx) => continue,
                Err(e) => {
                    // Out of descriptors without a spare, or of memory: the queue is left to wait, everyone else is served.
                    add(&self.shared.metrics.accept_failed, 1);
                    if self.now >= self.accept_said + ACCEPT_SAID_EVERY {
                        self.accept_said = self.now;
                        tracing::warn!(error = %e, "accepting failed; tried again until it succeeds");
                    }
                    self.accept_at = Some(self.now + ACCEPT_PAUSE);
                    return;
                }
            };
            let entry = self.conns.vacant_entry();
            let slot = entry.key();
            let interest = Interest::READABLE | Interest::WRITABLE;
            if self.poll.registry().register(&mut stream, Token(slot + FIRST_CONN), interest).is_err() {
                add(&self.shared.metrics.accept_failed, 1);
                continue;
            }
            let socket = match &self.shared.settings.tls {
                None => Socket::Plain(stream),
                Some(config) => match Socket::tls(stream, config) {
                    Ok(socket) => socket,
                    Err(_) => {
                        add(&self.shared.metrics.accept_failed, 1);
                        continue;
                    }
                },
            };
            self.generation = self.generation.wrapping_add(1);
            let settings = &self.shared.settings;
            let mut http = Http::new(self.now);
            if room == full::Room::Full {
                http.over = true;
                http.deadline = self.now + OVER_WAIT;
            }
            http.awaits_proxy = settings.proxy_protocol && door::is_trusted(peer.ip(), &settings.trusted_proxies);
            entry.insert(Conn::new(socket, self.generation, Caller { peer, serves }, http));
            add(&self.shared.metrics.accepted, 1);
            self.shared.metrics.connections.fetch_add(1, Ordering::Relaxed);
            self.schedule(slot);
        }
        // More wait; edge-triggered, so no event will say it again.
        self.accept_at = Some(self.now);
    }

    /// An HTTP/2 stream did something: it is new, it took what waited, or it is gone.
    fn on_bell(&mut self, pipe: &Arc<Pipe>) {
        let rung = pipe.answer();
        if let Some((slot, generation)) = rung.place {
            if self.conns.get(slot).is_some_and(|c| c.generation == generation) {
                self.guarded(slot, |w| w.turn(slot, false, rung.has_room, rung.ended));
            }
            return;
        }
        let entry = self.conns.vacant_entry();
        let slot = entry.key();
        self.generation = self.generation.wrapping_add(1);
        let Some(near) = pipe.take_in((slot, self.generation)) else { return };
        entry.insert(Conn::new(Socket::Pipe(near), self.generation, pipe.caller, Http::new(self.now)));
        self.schedule(slot);
        self.guarded(slot, |w| w.read(slot));
    }

    /// A socket that speaks HTTP/2 goes to the thread that does, before a byte was read. Whether it went.
    fn hand_over(&mut self, slot: usize) -> bool {
        // One that came over the limit is refused here, in HTTP/1.1.
        if matches!(&self.conns[slot].kind, Kind::Http(http) if http.over) {
            return false;
        }
        let Some(http2) = &self.http2 else { return false };
        let Some(place) = http2.place() else { return false };
        let mut conn = self.conns.remove(slot);
        if let Some(source) = conn.socket.source() {
            // A descriptor that epoll keeps would only wake us for nothing.
            let _ = self.poll.registry().deregister(source);
        }
        if let Some(socket) = conn.socket.into_tcp() {
            let peer = SocketAddr::new(conn.peer.ip(), conn.peer_port);
            http2.send(Arrival { socket: socket.into(), caller: Caller { peer, serves: conn.serves }, place });
        }
        true
    }

    pub(super) fn turn(&mut self, slot: usize, readable: bool, writable: bool, ended: bool) {
        if !self.conns.contains(slot) {
            return;
        }
        if ended {
            self.conns[slot].ended = true;
        }
        if writable {
            self.on_writable(slot);
        }
        if (readable || ended) && self.conns.contains(slot) {
            self.read(slot);
        }
    }

    fn on_writable(&mut self, slot: usize) {
        let conn = &mut self.conns[slot];
        let held = conn.blocked || !conn.out.is_empty();
        if !held {
            return;
        }
        match conn.flush() {
            Sent::Broken => self.drop_conn(slot),
            Sent::All => match &self.conns[slot].kind {
                Kind::Http(_) => self.on_http_drained(slot),
                Kind::Viewer(_) => self.on_viewer_drained(slot),
                Kind::Echo(_) => {}
                Kind::Lingering { .. } => self.shut(slot),
            },
            Sent::Some | Sent::Nothing => {}
        }
    }

    /// Reads what the socket has, in a few bites.
    fn read(&mut self, slot: usize) {
        for bite in 0..READS_A_TURN {
            let Some(conn) = self.conns.get_mut(slot) else { return };
            if !conn.reads() {
                conn.unread = true;
                // A caller that hung up is not answered; of a response on its way the rest may still arrive.
                if conn.ended && matches!(conn.kind, Kind::Viewer(_)) {
                    self.drop_conn(slot);
                }
                return;
            }
            // The next request may have come with the last one.
            let waits = bite == 0 && matches!(&conn.kind, Kind::Http(http) if http.holds_bytes());
            if waits {
                self.on_http_bytes(slot, &[]);
                let goes_on = self.conns.get(slot).is_some_and(|c| matches!(c.kind, Kind::Http(_)) && c.reads());
                if !goes_on {
                    return;
                }
            }
            let Some(conn) = self.conns.get_mut(slot) else { return };
            conn.unread = false;
            let shaking = conn.socket.is_handshaking();
            if shaking && self.http2.is_some() {
                match conn.socket.offers_http2() {
                    None => return,
                    Some(true) if self.hand_over(slot) => return,
                    Some(_) => {}
                }
            }
            let Some(conn) = self.conns.get_mut(slot) else { return };
            if shaking {
                if self.handshakes == 0 {
                    // Walks go first; the socket is looked at again in the next turn.
                    return self.again.push_back(slot as u32);
                }
                self.handshakes -= 1;
            }
            let got = conn.read(&mut self.buffer);
            if shaking {
                self.on_handshake(slot);
            }
            match got {
                Ok(Got { n: 0, .. }) => return self.on_end(slot),
                Ok(Got { n, more }) => {
                    let buffer = std::mem::take(&mut self.buffer);
                    self.on_bytes(slot, &buffer[..n]);
                    self.buffer = buffer;
                    // A short read emptied the socket, unless the end is all that is left in it.
                    if !more && !self.conns.get(slot).is_some_and(|c| c.ended) {
                        return;
                    }
                    if bite + 1 == READS_A_TURN {
                        self.again.push_back(slot as u32);
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return self.on_broken(slot),
            }
        }
    }

    /// A step of a handshake was made: when it was the last, the caller has its time for a first request.
    fn on_handshake(&mut self, slot: usize) {
        let Some(resumed) = self.conns[slot].socket.is_resumed() else { return };
        add(&self.shared.metrics.handshakes[usize::from(resumed)], 1);
        let until = self.now + web::HEAD_WAIT;
        if let Kind::Http(http) = &mut self.conns[slot].kind {
            http.deadline = until;
        }
    }

    /// A caller whose session failed is told so, where it can still hear it; a broken socket is dropped.
    fn on_broken(&mut self, slot: usize) {
        let conn = &self.conns[slot];
        let fresh = matches!(&conn.kind, Kind::Http(http) if http.reads()) && conn.out.is_empty();
        match conn.socket.why_raw() {
            Some(why) if fresh => {
                add(&self.shared.metrics.handshakes_failed, 1);
                match why {
                    Why::NotTls => {
                        let said = "this port speaks TLS: use https:// or wss://";
                        let answer = web::problem(ErrorCode::BadRequest, said, false, &[]);
                        self.answer(slot, answer, false);
                    }
                    // The alert has left; it is not lost to a reset while the rest of what came is read away.
                    Why::Broken => self.linger(slot, LINGER),
                }
            }
            _ => self.drop_conn(slot),
        }
    }

    fn on_bytes(&mut self, slot: usize, bytes: &[u8]) {
        match &mut self.conns[slot].kind {
            Kind::Http(_) => self.on_http_bytes(slot, bytes),
            Kind::Viewer(_) => self.on_viewer_bytes(slot, bytes),
            Kind::Echo(_) => self.on_echo_bytes(slot, bytes),
            Kind::Lingering { .. } => {}
        }
    }

    fn on_end(&mut self, slot: usize) {
        let conn = &mut self.conns[slot];
        conn.ended = true;
        match &conn.kind {
            // Half closed by a client that waits for its answer, or for the rest of it.
            Kind::Http(http) if http.response.is_some() || !conn.out.is_empty() => {}
            Kind::Lingering { .. } if !conn.out.is_empty() => {}
            _ => self.drop_conn(slot),
        }
    }

    /// Gives bytes to a connection; a broken or overfull one is dropped.
    pub fn send(&mut self, slot: usize, bytes: Bytes) {
        let Some(conn) = self.conns.get_mut(slot) else { return };
        if bytes.is_empty() {
            return;
        }
        let sent = match conn.kind {
            Kind::Http(_) => conn.send_answer(bytes),
            _ => conn.send(bytes),
        };
        // A page is as long as it is; a viewer is told little by little and has no claim to more.
        let overfull = matches!(conn.kind, Kind::Viewer(_)) && conn.out.len() > super::conn::UNWRITTEN_MAX;
        if sent == Sent::Broken || overfull {
            self.drop_conn(slot);
        }
    }

    /// The last word was given: write it out, for at most `writing`, then wait for the other side's end.
    pub fn linger(&mut self, slot: usize, writing: Duration) {
        let now = self.now;
        let Some(conn) = self.conns.get_mut(slot) else { return };
        let written = conn.out.is_empty();
        conn.kind = Kind::Lingering { until: now + if written { LINGER } else { writing } };
        if written {
            self.shut(slot);
        }
        if self.conns.contains(slot) {
            self.schedule(slot);
            self.again.push_back(slot as u32);
        }
    }

    /// All is written: our side ends.
    fn shut(&mut self, slot: usize) {
        let until = self.now + LINGER;
        let conn = &mut self.conns[slot];
        if conn.ended || conn.socket.shutdown().is_err() {
            return self.drop_conn(slot);
        }
        conn.kind = Kind::Lingering { until };
        self.schedule(slot);
    }

    /// Takes a connection out of everything it is part of and closes its socket.
    pub fn drop_conn(&mut self, slot: usize) {
        if !self.conns.contains(slot) {
            return;
        }
        if matches!(self.conns[slot].kind, Kind::Viewer(_)) {
            self.forget_viewer(slot);
        }
        let mut conn = self.conns.remove(slot);
        self.answers.remove(&(slot as u32));
        if let Kind::Http(http) = &conn.kind {
            http.close();
        }
        conn.socket.take_leave();
        // Closing the descriptor takes it out of epoll as well.
        if conn.socket.source().is_some() {
            self.shared.metrics.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub fn key(&self, slot: usize) -> ConnKey {
        ConnKey { worker: self.id, slot: slot as u32, generation: self.conns[slot].generation }
    }

    fn is_here(&self, conn: ConnKey) -> bool {
        self.conns.get(conn.slot as usize).is_some_and(|c| c.generation == conn.generation)
    }

    pub fn viewer(&mut self, slot: usize) -> Option<&mut Viewer> {
        match self.conns.get_mut(slot).map(|c| &mut c.kind) {
            Some(Kind::Viewer(viewer)) => Some(viewer),
            _ => None,
        }
    }

    // ---- time ------------------------------------------------------------------------------------------------

    /// Sees to it that the connection is looked at when its next deadline comes.
    pub fn schedule(&mut self, slot: usize) {
        let conn = &mut self.conns[slot];
        let at = match &conn.kind {
            Kind::Http(http) => Some(http.deadline),
            Kind::Viewer(viewer) => viewer.deadline(conn.blocked || !conn.out.is_empty(), self.now, self.wall),
            Kind::Echo(_) => None,
            Kind::Lingering { until } => Some(*until),
        };
        let Some(at) = at else { return };
        let sooner = conn.timer == 0 || Mono(u64::from(conn.timer) * super::wheel::TICK.as_micros() as u64) > at;
        if sooner {
            conn.timer = self.wheel.put(slot as u32, conn.generation, at);
        }
    }

    /// [`Worker::schedule`], where the connection may be gone.
    pub fn schedule_live(&mut self, slot: usize) {
        if self.conns.contains(slot) {
            self.schedule(slot);
        }
    }

    pub(super) fn on_time(&mut self) {
        let mut fired = Vec::new();
        self.wheel.turn(self.now, &mut fired);
        for Timer { slot, generation, at } in fired {
            let slot = slot as usize;
            let counts = self.conns.get(slot).is_some_and(|c| c.generation == generation && c.timer == at);
            if counts {
                self.conns[slot].timer = 0;
                self.guarded(slot, |w| w.on_timer(slot));
            }
        }
        while let Some(&(at, room)) = self.windows.first()
            && at <= self.now
        {
            self.windows.pop_first();
            self.rooms[room].deadline = None;
            self.queue_walk(room);
        }
        if self.accept_at.is_some_and(|at| at <= self.now) {
            self.accept_at = None;
            for idx in 0..self.listeners.len() {
                self.accept(idx);
            }
            // One that leaves had a queue to answer first.
            if self.leave_by.is_some() {
                self.keep_listeners();
            }
        }
        if self.now >= self.housekeeping_at {
            self.housekeeping_at = self.now + HOUSEKEEPING;
            self.keep_listeners();
            self.say_load();
            self.keep_refills();
            self.keep_rooms();
            if self.slice_at.is_none() && self.shared.admission.is_draining() {
                self.slice_at = Some(self.now);
            }
        }
        if self.slice_at.is_some_and(|at| at <= self.now) {
            self.send_slice_away();
        }
        if self.site.deadline().is_some_and(|at| at <= self.now) {
            self.cry_banner();
        }
    }

    /// Once a second: how late this worker's walks were, and how much of a core it used.
    fn say_load(&mut self) {
        let (now, late) = (self.now, self.take_late());
        // Its first second is not measured: the thread that made it is another.
        let busy = self.own_time.get_or_insert_with(|| OwnTime::new(now)).permille(now);
        let Shared { admission, metrics, .. } = &*self.shared;
        admission.shedding.say(usize::from(self.id.number()), late, busy, now, metrics);
        admission.look_at_memory(self.shared.shard.status(), metrics, now);
    }

    fn on_timer(&mut self, slot: usize) {
        let now = self.now;
        match &self.conns[slot].kind {
            Kind::Http(http) if now >= http.deadline => {
                let late_part = http.response.is_some();
                if self.give_up_renewal(slot) {
                    return self.schedule_live(slot);
                }
                if late_part {
                    tracing::warn!("a response did not come or did not leave in time");
                }
                return self.drop_conn(slot);
            }
            Kind::Lingering { until } if now >= *until => return self.drop_conn(slot),
            Kind::Viewer(_) => self.on_viewer_timer(slot),
            _ => {}
        }
        self.schedule_live(slot);
    }

    // ---- mail ------------------------------------------------------------------------------------------------

    pub(super) fn on_mail(&mut self, mail: ToWorker) {
        match mail {
            ToWorker::Room { room, found } => self.on_room(&room, found),
            ToWorker::Batch(batch) => self.on_batch(&batch),
            ToWorker::Settings(info) => self.on_settings(info),
            ToWorker::Tally(rooms) => self.on_tally(&rooms),
            ToWorker::Site(list) => self.on_site(&list),
            ToWorker::Banned(ban) => self.on_ban(&ban),
            ToWorker::Forget { room, upto } => self.on_forget(&room, upto),
            ToWorker::Resync(info) => self.on_resync(info),
            ToWorker::Away => self.on_away(),
            ToWorker::Back => self.on_back(),
            ToWorker::Past { room, request, answer } => self.on_past(&room, request, answer),
            ToWorker::Resume { conn, request, room, answer } if self.is_here(conn) => {
                let slot = conn.slot as usize;
                self.guarded(slot, |w| w.on_resume(slot, request, &room, answer));
            }
            ToWorker::Page { conn, request, room, answer } if self.is_here(conn) => {
                let slot = conn.slot as usize;
                self.guarded(slot, |w| w.on_page(slot, request, &room, answer));
            }
            ToWorker::Answer { conn, request, answer } if self.is_here(conn) => {
                let slot = conn.slot as usize;
                self.guarded(slot, |w| w.on_answer(slot, request, answer));
            }
            ToWorker::Fate { conn, room, client_msg_id, event_id } if self.is_here(conn) => {
                self.on_fate(conn.slot as usize, &room, &client_msg_id, event_id);
            }
            ToWorker::Refused { conn, room, client_msg_id } if self.is_here(conn) => {
                self.on_refused(conn.slot as usize, &room, &client_msg_id);
            }
            ToWorker::Http { conn, part } if self.is_here(conn) => {
                let slot = conn.slot as usize;
                self.guarded(slot, |w| w.on_http_part(slot, part));
            }
            ToWorker::Renew { conn, nonce, room, token, reply, request } => {
                let slot = conn.slot as usize;
                let taken = if self.is_here(conn) { self.renew(slot, nonce, &room, &token) } else { None };
                // A worker that cannot hear it lets the request time out.
                let _ = self.shared.workers.send(reply.worker, ToWorker::Renewed { conn: reply, request, taken });
            }
            ToWorker::Renewed { conn, request, taken } if self.is_here(conn) => {
                let slot = conn.slot as usize;
                self.guarded(slot, |w| w.answer_renewal(slot, request, taken));
            }
            ToWorker::EndLine { line } => self.end_line(line),
            ToWorker::Port => self.keep_listeners(),
            ToWorker::EndPoll { conn } if self.is_here(conn) => {
                let slot = conn.slot as usize;
                self.guarded(slot, |w| w.end_poll(slot));
            }
            // For connections that are gone.
            ToWorker::Resume { .. }
            | ToWorker::Page { .. }
            | ToWorker::Answer { .. }
            | ToWorker::Fate { .. }
            | ToWorker::Refused { .. }
            | ToWorker::Http { .. }
            | ToWorker::Renewed { .. }
            | ToWorker::EndPoll { .. } => {}
            // Its process's hub has heard it.
            ToWorker::LikesSettled { .. } => {}
            ToWorker::Drain(delay) => self.on_drain(delay),
            ToWorker::Stop => {
                if !self.draining {
                    self.on_drain(self.drain);
                }
                self.stop_at = Some(self.now + STOP_WAIT);
            }
        }
    }

    /// Nobody new; everybody here is told when to come back. A viewer whose publishes were admitted waits for their answers.
    fn on_drain(&mut self, delay: Delay) {
        self.draining = true;
        self.drain = delay;
        self.listeners.clear();
        if let Some(http2) = &mut self.http2 {
            http2.drain();
        }
        self.shut.clear();
        for slot in self.conns.iter().map(|(slot, _)| slot).collect::<Vec<_>>() {
            match &self.conns[slot].kind {
                Kind::Viewer(viewer) if viewer.awaits_answers() => {}
                Kind::Viewer(_) => self.guarded(slot, |w| w.close(slot, CloseCode::Drain)),
                Kind::Http(http) if http.response.is_none() => self.drop_conn(slot),
                Kind::Http(_) | Kind::Echo(_) | Kind::Lingering { .. } => {}
            }
        }
    }

    /// Closes the next part of this worker's viewers, while an operator's drain stands.
    fn send_slice_away(&mut self) {
        let Some(drain) = self.shared.admission.drain() else {
            self.slice_at = None;
            return;
        };
        self.slice_at = Some(self.now + SLICE);
        let viewers = self.conns.iter().filter_map(|(slot, conn)| match &conn.kind {
            Kind::Viewer(viewer) => Some((slot, viewer.awaits_answers())),
            _ => None,
        });
        let viewers: Vec<(usize, bool)> = viewers.collect();
        let n = drain.slice(viewers.len(), SLICE, self.now);
        // One whose publishes were admitted hears their answers first: it goes with a later slice.
        for (slot, _) in viewers.into_iter().filter(|(_, waits)| !waits).take(n) {
            self.guarded(slot, |w| w.close(slot, CloseCode::Drain));
        }
    }

    pub fn count_stream(&self, transport: Transport, n: i64) {
        self.shared.metrics.streams[transport as usize].fetch_add(n, Ordering::Relaxed);
        if n > 0 {
            add(&self.shared.metrics.opened[transport as usize], n as u64);
        }
    }
}
