//! A gateway process's end of its link to the shard's process.
//!
//! Like the porter of a house with many tenants: one paper comes to the house, and he knows which of them read it. A room is
//! asked for when its first worker wants it and given up after its last; a batch is decoded once and the same `Arc` goes to
//! each worker that watches the room. While the shard is away he says so at once and keeps nothing for later: who asks is told
//! when to ask again.
//!
//! It must never let a worker miss a batch without telling it: a worker whose mailbox is full is given the room's facts anew,
//! and when the link was lost every worker is told that the shard is away, and that it is back: it asks for its rooms again.
//!
//! The awkward case is what was asked of control and not answered when the link broke: it is answered 503 where nothing of the
//! answer was written yet, else the connection is closed. What was asked of the shard its worker knows.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io::{ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::thread;
use std::time::{Duration, Instant};

use grandstand_core::likes::{self, Sender};
use grandstand_core::names::RoomId;
use grandstand_core::owner::command::Command;
use grandstand_wire::codes::ErrorCode;
use grandstand_wire::http::retry_after;
use grandstand_wire::problem;
use http::HeaderValue;

use super::bundles::Bundles;
use super::codec::{self, Down, Elsewhere, Frames, Hello, LinkNumbers, Order, Ordered, Report, RoomNumbers, Share, Up};
use super::host::SILENCE;
use super::likes::{LikeBox, RoomTotals};
use super::{
    AskFate, ConnKey, Delay, Fetch, HttpPart, HttpRequest, OVERLOADED, Overloaded, Piece, ReplyTo, Seen, Served,
    ShardStatus, SiteList, Tallies, ToWorker, Unheard, WorkerId, Workers,
};
use crate::admission::{self, Admission};
use crate::auth::board::Board;
use crate::auth::door::{self, Origin};
use crate::clock;
use crate::kernel::{self, Taken};
use crate::metrics::{Metrics, add};

/// What may wait to be written: past it, what is asked is refused.
const OUT_BYTES_MAX: usize = 32 << 20;
const CONNECT_WAIT: Duration = Duration::from_secs(2);
/// From a lost link to the next try, and between two tries.
const RETRY: Duration = Duration::from_millis(50);
/// Between two tries of a mailbox that is full.
const FULL_WAIT: Duration = Duration::from_millis(5);
const REPORT: Duration = Duration::from_secs(1);
/// While the shard's process is away, clients come back after it is most likely there again.
pub const AWAY: Delay = Delay { retry_after: Duration::from_secs(1), spread: Duration::from_secs(5) };

/// What a hub is made with.
pub struct Settings {
    /// The shard's socket.
    pub path: PathBuf,
    /// This process's number, and its workers.
    pub process: u8,
    pub n_workers: u8,
    /// Whose pages may read answers.
    pub origins: Vec<Origin>,
    /// Where what is said of tokens is written for this process.
    pub board: Arc<Board>,
    /// What its users and addresses hold.
    pub bundles: Arc<Bundles>,
}

pub struct Hub {
    settings: Settings,
    workers: Workers,
    status: Arc<ShardStatus>,
    metrics: Arc<Metrics>,
    tallies: Tallies,
    admission: Arc<Admission>,
    /// The last that operators asked of this gateway, and of all: a new process with the log learns it from here.
    orders: Mutex<(Option<Order>, Option<Order>)>,
    state: Mutex<State>,
    /// Something is to be written, or the link's state changed.
    came: Condvar,
    stop: AtomicBool,
    likes: LikeBox,
    batches: AtomicU64,
    useless: AtomicU64,
    bytes: AtomicU64,
    joined: AtomicU64,
}

struct State {
    /// The link is there, and its hello was taken.
    up: bool,
    /// Whole frames to be written.
    out: Vec<u8>,
    rooms: HashMap<RoomId, Vec<Watch>>,
    /// Requests to control whose answer is not complete.
    requests: HashMap<ConnKey, Asked>,
    /// Numbers the rounds of likes, and keeps those that the shard has not settled.
    sender: Sender,
    /// The box holds something.
    likes_wait: bool,
    /// Not before this the box is emptied.
    likes_at: Instant,
    /// The site's list, and the workers that have not had it.
    site: Option<(Arc<SiteList>, Vec<WorkerId>)>,
}

impl State {
    /// When the next round of likes leaves.
    fn likes_due(&self) -> Option<Instant> {
        (self.up && self.likes_wait && self.sender.may_send()).then_some(self.likes_at)
    }
}

struct Asked {
    /// The answer's head was given to the connection.
    begun: bool,
    /// The page that asks, where it may read the answer.
    origin: Option<String>,
}

/// One worker's interest in a room.
struct Watch {
    worker: WorkerId,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Waits for the room's facts: batches before them are not for it.
    Joining,
    Watching,
}

/// The running hub.
pub struct Running {
    hub: Arc<Hub>,
    thread: thread::JoinHandle<()>,
}

impl Running {
    /// Leaves the shard, after what waits was written, at most for a second.
    pub fn stop(self) {
        self.hub.stop.store(true, Ordering::Release);
        self.hub.came.notify_all();
        let _ = self.thread.join();
    }
}

/// Starts the hub's thread, which joins the shard as soon as it is there.
pub fn start(
    settings: Settings,
    workers: Workers,
    metrics: Arc<Metrics>,
    tallies: Tallies,
    admission: Arc<Admission>,
) -> std::io::Result<(Arc<Hub>, Running)> {
    let draw = || BuildHasher::hash_one(&RandomState::new(), std::process::id());
    let state = State {
        up: false,
        out: Vec::new(),
        rooms: HashMap::new(),
        requests: HashMap::new(),
        sender: Sender::new(draw()),
        likes_wait: false,
        likes_at: Instant::now(),
        site: None,
    };
    let hub = Arc::new_cyclic(|hub: &Weak<Hub>| Hub {
        likes: {
            let hub = hub.clone();
            LikeBox::new(draw(), move || {
                if let Some(hub) = hub.upgrade() {
                    hub.state().likes_wait = true;
                    hub.came.notify_all();
                }
            })
        },
        status: Arc::new(ShardStatus::new(settings.board.clone())),
        settings,
        workers,
        metrics,
        tallies,
        admission,
        orders: Mutex::default(),
        state: Mutex::new(state),
        came: Condvar::new(),
        stop: AtomicBool::new(false),
        batches: AtomicU64::new(0),
        useless: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        joined: AtomicU64::new(0),
    });
    hub.workers.set_beyond(&hub);
    let run = hub.clone();
    let thread = thread::Builder::new().name("link-hub".to_owned()).spawn(move || run.run())?;
    Ok((hub.clone(), Running { hub, thread }))
}

impl Hub {
    pub fn status(&self) -> &Arc<ShardStatus> {
        &self.status
    }

    /// The process's likes. While the shard is away they are kept, as many as a round holds.
    pub fn likes(&self) -> &LikeBox {
        &self.likes
    }

    /// Waits until the shard takes commands. Errors: it does not within `limit`.
    pub fn wait_ready(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let mut state = self.state();
        while !self.status.ready() {
            let Some(left) = until.checked_duration_since(Instant::now()) else { return false };
            state = self.came.wait_timeout(state, left).expect("no holder of this lock can panic").0;
        }
        true
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock can panic")
    }

    // ---- what workers ask -------------------------------------------------------------------------------------

    /// Puts a frame in line. The state's lock is held, so lines are in the order of what they say.
    fn write(&self, state: &mut State, up: &Up) -> bool {
        if !state.up || codec::write_up(up, &mut state.out).is_err() {
            return false;
        }
        self.came.notify_all();
        true
    }

    /// [`Hub::write`] for what may be refused.
    fn ask(&self, state: &mut State, up: &Up) -> Result<(), Overloaded> {
        if !state.up {
            return Err(Overloaded(AWAY));
        }
        if state.out.len() > OUT_BYTES_MAX || !self.write(state, up) {
            return Err(Overloaded(OVERLOADED));
        }
        Ok(())
    }

    /// [`Hub::ask`], where nothing else is looked at.
    pub(super) fn ask_raw(&self, up: &Up) -> Result<(), Overloaded> {
        let mut state = self.state();
        self.ask(&mut state, up)
    }

    pub fn subscribe(&self, worker: WorkerId, room: RoomId) {
        let mut state = self.state();
        let watches = state.rooms.entry(room.clone()).or_default();
        watches.retain(|w| w.worker != worker);
        watches.push(Watch { worker, stage: Stage::Joining });
        // While the shard is away the worker is about to hear so, and asks again when it is back.
        self.write(&mut state, &Up::Subscribe { worker, room });
    }

    /// While the shard is away the worker is about to hear so, and asks again when it is back.
    pub fn ask_fate(&self, asked: AskFate) {
        self.write(&mut self.state(), &Up::AskFate(asked));
    }

    /// The last word is what is said, whichever of several that change it comes here first.
    pub fn say_places(&self) {
        let mut state = self.state();
        let word = self.admission.places();
        self.write(&mut state, &Up::Places(word));
    }

    pub fn unsubscribe(&self, worker: WorkerId, room: &RoomId) {
        let mut state = self.state();
        let Some(watches) = state.rooms.get_mut(room) else { return };
        watches.retain(|w| w.worker != worker);
        if watches.is_empty() {
            self.forget(&mut state, room);
        }
    }

    fn forget(&self, state: &mut State, room: &RoomId) {
        state.rooms.remove(room);
        self.write(state, &Up::Unsubscribe { room: room.clone() });
    }

    pub fn command(&self, reply: ReplyTo, command: Command) -> Result<(), Overloaded> {
        let up = match (reply, command) {
            (ReplyTo::Conn { conn, request }, Command::Publish(publish)) => {
                Up::Publish { conn, request, publish: Box::new(publish) }
            }
            (ReplyTo::Nobody, Command::React(react)) => Up::React(react),
            (ReplyTo::Nobody, Command::Report(report)) => Up::Told(Box::new(report)),
            _ => unreachable!("a gateway asks for publishes and reactions; all else is control's, beside the shard"),
        };
        self.ask_raw(&up)
    }

    pub fn fetch(&self, fetch: Fetch) -> Result<(), Overloaded> {
        self.ask_raw(&Up::Fetch(fetch))
    }

    pub fn http(&self, request: HttpRequest) -> Result<(), Unheard> {
        let HttpRequest { request, peer, conn, .. } = request;
        let origin = reader_of(request.headers(), &self.settings.origins);
        let mut state = self.state();
        if !state.up {
            return Err(Unheard::Away(AWAY));
        }
        self.ask(&mut state, &Up::Http { conn, peer, request: Box::new(request) }).map_err(|_| Unheard::Busy)?;
        state.requests.insert(conn, Asked { begun: false, origin });
        Ok(())
    }

    pub fn http_left(&self, conn: ConnKey) {
        self.write(&mut self.state(), &Up::HttpLeft { conn });
    }

    pub fn http_gone(&self, conn: ConnKey) {
        let mut state = self.state();
        if state.requests.remove(&conn).is_some() {
            self.write(&mut state, &Up::HttpGone { conn });
        }
    }

    // ---- the link ---------------------------------------------------------------------------------------------

    fn run(self: Arc<Hub>) {
        let mut said_away = false;
        while !self.stop.load(Ordering::Acquire) {
            let joined = match self.join() {
                Ok(mut joined) => {
                    said_away = false;
                    let result = self.live(&mut joined);
                    self.lost();
                    result
                }
                Err(fault) => Err(fault),
            };
            if let Err(fault) = joined
                && !std::mem::replace(&mut said_away, true)
                && !self.stop.load(Ordering::Acquire)
            {
                tracing::warn!(%fault, "the shard's process is away; it is looked for until it is back");
            }
            let state = self.state();
            if !self.stop.load(Ordering::Acquire) {
                drop(self.came.wait_timeout(state, RETRY).expect("no holder of this lock can panic"));
            }
        }
    }

    fn join(&self) -> std::io::Result<(UnixStream, Frames)> {
        let mut socket = UnixStream::connect(&self.settings.path)?;
        socket.set_read_timeout(Some(CONNECT_WAIT))?;
        socket.set_write_timeout(Some(SILENCE))?;
        let (order, whole) = self.orders.lock().expect("no holder of this lock can panic").clone();
        let hello = Hello {
            version: codec::VERSION,
            build: env!("CARGO_PKG_VERSION").to_owned(),
            process: self.settings.process,
            n_workers: self.settings.n_workers,
            pid: std::process::id(),
            order,
            whole,
        };
        let mut out = Vec::new();
        codec::write_up(&Up::Hello(hello), &mut out).map_err(broken)?;
        socket.write_all(&out)?;
        let mut frames = Frames::default();
        loop {
            if frames.fill(&mut socket)? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let Some(frame) = frames.whole().map_err(broken)? else { continue };
            match codec::read_down(frame).map_err(broken)? {
                Down::Welcome(share) => {
                    self.admission.join(self.taken(share), clock::mono());
                    break;
                }
                Down::Refused(why) => return Err(std::io::Error::new(ErrorKind::InvalidData, why)),
                _ => return Err(std::io::Error::new(ErrorKind::InvalidData, "something before the welcome")),
            }
        }
        socket.set_read_timeout(Some(SILENCE))?;
        Ok((socket, frames))
    }

    /// Reads until the link is lost; a second thread writes.
    fn live(self: &Arc<Hub>, (socket, frames): &mut (UnixStream, Frames)) -> std::io::Result<()> {
        add(&self.joined, 1);
        {
            let mut state = self.state();
            state.up = true;
            state.out.clear();
            // What an earlier link may have lost comes again under its number.
            let unsettled: Vec<_> = state.sender.unsettled().cloned().collect();
            for frame in unsettled {
                self.write(&mut state, &Up::Likes(frame));
            }
            let word = self.admission.places();
            self.write(&mut state, &Up::Places(word));
        }
        // Nothing was ever asked of it before its workers were told of an earlier one's end.
        if self.joined.load(Ordering::Relaxed) > 1 {
            self.tell_all(|| ToWorker::Back);
        }
        let writer = {
            let (hub, mut socket) = (self.clone(), socket.try_clone()?);
            thread::Builder::new().name("link-writer".to_owned()).spawn(move || {
                let _ = hub.write_out(&mut socket);
                // Ends the reader as well.
                let _ = socket.shutdown(std::net::Shutdown::Both);
            })?
        };
        let result = self.read(socket, frames);
        self.state().up = false;
        self.came.notify_all();
        let _ = socket.shutdown(std::net::Shutdown::Both);
        let _ = writer.join();
        result
    }

    fn read(&self, socket: &mut UnixStream, frames: &mut Frames) -> std::io::Result<()> {
        loop {
            while let Some(frame) = frames.whole().map_err(broken)? {
                let down = codec::read_down(frame).map_err(broken)?;
                self.heard(down);
            }
            let n = frames.fill(socket)?;
            if n == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            add(&self.bytes, n as u64);
        }
    }

    /// Writes what workers ask, and a report every second, while the link is there.
    fn write_out(&self, socket: &mut UnixStream) -> std::io::Result<()> {
        let mut reporter = Reporter::default();
        let mut report_at = Instant::now();
        let mut out = Vec::new();
        loop {
            let now = Instant::now();
            let report = (now >= report_at).then(|| {
                report_at = now + REPORT;
                (self.report(&mut reporter), self.settings.bundles.news())
            });
            let mut state = self.state();
            if let Some((report, bundles)) = report {
                self.write(&mut state, &Up::Report(report));
                if !bundles.is_empty() {
                    self.write(&mut state, &Up::Bundles(bundles));
                }
            }
            self.send_likes(&mut state);
            while state.out.is_empty() && state.up && !self.stop.load(Ordering::Acquire) {
                let until = state.likes_due().map_or(report_at, |at| at.min(report_at));
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                state = self.came.wait_timeout(state, left).expect("no holder of this lock can panic").0;
            }
            let ends = !state.up || (state.out.is_empty() && self.stop.load(Ordering::Acquire));
            out.clear();
            std::mem::swap(&mut out, &mut state.out);
            drop(state);
            if ends {
                return Ok(());
            }
            socket.write_all(&out)?;
            if out.capacity() > 1 << 20 {
                out = Vec::new();
            }
        }
    }

    /// Hands on what was gathered, once a tick; at the end without waiting for it.
    fn send_likes(&self, state: &mut State) {
        let (now, stops) = (Instant::now(), self.stop.load(Ordering::Acquire));
        if !state.likes_due().is_some_and(|at| stops || at <= now) {
            return;
        }
        state.likes_wait = false;
        state.likes_at = now + likes::TICK;
        let frame = state.sender.send(self.likes.take(clock::mono()));
        self.write(state, &Up::Likes(frame));
    }

    fn report(&self, reporter: &mut Reporter) -> Report {
        Report {
            numbers: self.metrics.numbers(),
            link: LinkNumbers {
                batches: self.batches.load(Ordering::Relaxed),
                useless: self.useless.load(Ordering::Relaxed),
                bytes: self.bytes.load(Ordering::Relaxed),
                joined: self.joined.load(Ordering::Relaxed),
                undelivered: self.status.undelivered(),
                dropped: self.status.dropped(),
            },
            taken: Taken { memory_permille: self.admission.memory.permille(), ..kernel::taken() },
            rooms: reporter.changed(&self.tallies),
        }
    }

    /// The link is gone: everyone who waits for something of it is told.
    fn lost(&self) {
        self.status.set_ready(false);
        // Nobody says any more whether there are others: whoever comes is told here that the server is not ready.
        self.admission.alone();
        self.settings.bundles.lost();
        self.workers.look_at_port();
        let requests = {
            let mut state = self.state();
            state.up = false;
            state.out = Vec::new();
            state.rooms.clear();
            std::mem::take(&mut state.requests)
        };
        self.tell_all(|| ToWorker::Away);
        for (conn, Asked { begun, origin }) in requests {
            let part = if begun {
                HttpPart::Broken
            } else {
                refused_answer(ErrorCode::NotReady, AWAY_WORDS, AWAY, origin.as_deref())
            };
            self.deliver(conn.worker, ToWorker::Http { conn, part });
        }
    }

    /// What every worker must hear, however full its mailbox is.
    fn tell_all(&self, mail: impl Fn() -> ToWorker) {
        for worker in self.workers.ids() {
            while self.workers.send(worker, mail()).is_err() && !self.stop.load(Ordering::Acquire) {
                thread::sleep(FULL_WAIT);
            }
        }
    }

    // ---- what the shard says ------------------------------------------------------------------------------------

    /// What a share says to this gateway; the order in it is kept.
    fn taken(&self, share: Share) -> admission::Share {
        let limit = share.limit();
        let taken = admission::Share { of: share.of, others: share.others, limit, port: share.port };
        self.orders.lock().expect("no holder of this lock can panic").1 = share.whole;
        taken
    }

    fn heard(&self, down: Down) {
        match down {
            // Said once, at the start.
            Down::Welcome(_) | Down::Refused(_) => {}
            Down::Share(share) => {
                let left = self.admission.leaves_port();
                self.admission.share(self.taken(share), clock::mono());
                if self.admission.leaves_port() != left {
                    self.workers.look_at_port();
                }
            }
            Down::Status(status) => {
                self.give_site(&mut self.state());
                self.status.set_durability(status.durability);
                self.status.set_head(status.head);
                if let Some(epoch) = status.epoch {
                    self.status.set_epoch(epoch);
                }
                self.status.set_no_space(status.no_space);
                if self.status.ready() != status.ready {
                    self.status.set_ready(status.ready);
                    self.came.notify_all();
                }
            }
            Down::Elsewhere(rooms) => {
                for Elsewhere { room, viewers, held, people, counted } in rooms {
                    if let Some(tally) = self.tallies.find(&room) {
                        tally.elsewhere.store(viewers, Ordering::Relaxed);
                        tally.held_elsewhere.store(held, Ordering::Relaxed);
                        tally.set_people(people.into(), counted.into());
                    }
                }
            }
            Down::Bundles(news) => self.settings.bundles.hear(&news),
            Down::Order(order) => {
                // A cap of shedding ends by itself, before long.
                if !matches!(order.what, Ordered::Shedding(_)) {
                    self.orders.lock().expect("no holder of this lock can panic").0 = Some(order.clone());
                }
                let Order { what, change } = order;
                let now = clock::mono();
                match what {
                    Ordered::Admission(limit) => self.admission.change(limit, change, now),
                    Ordered::Drain(over) => self.admission.start_drain(over, change, now),
                    Ordered::Shedding(order) => {
                        // Control has held it against the same limits.
                        self.admission.shedding.order(order, change, now, &self.metrics);
                    }
                }
            }
            Down::Mail(worker, mail) => self.mail(worker, mail),
        }
    }

    fn mail(&self, worker: WorkerId, mail: ToWorker) {
        match mail {
            ToWorker::Batch(batch) => {
                add(&self.batches, 1);
                let wanted = self.give(&batch.room, || ToWorker::Batch(batch.clone()), &batch.pieces);
                add(&self.useless, u64::from(!wanted));
            }
            ToWorker::Settings(info) => {
                self.give(&info.room, || ToWorker::Settings(info.clone()), &[]);
            }
            ToWorker::Banned(ban) => {
                self.give(&ban.room, || ToWorker::Banned(ban.clone()), &[]);
            }
            ToWorker::Forget { room, upto } => {
                self.give(&room, || ToWorker::Forget { room: room.clone(), upto }, &[]);
            }
            // The shard could not give this process a batch: every worker that watched has a hole now.
            ToWorker::Resync(info) => {
                self.give(&info.room, || ToWorker::Resync(info.clone()), &[]);
            }
            ToWorker::LikesSettled { sender, number } => {
                let mut state = self.state();
                if state.sender.id() == sender {
                    state.sender.settled(number);
                    self.came.notify_all();
                }
            }
            ToWorker::Tally(rooms) => self.give_totals(&rooms),
            ToWorker::Room { room, found } => {
                let mut state = self.state();
                // First: whoever is greeted in the room reads it there. One that came before the workers ran was never theirs.
                self.give_site(&mut state);
                let watches = state.rooms.get_mut(&room).map(Vec::as_mut_slice).unwrap_or_default();
                let Some(watch) = watches.iter_mut().find(|w| w.worker == worker) else { return };
                let is_there = found.is_ok();
                // One that has the facts already joins them to what it holds.
                if self.workers.send(worker, ToWorker::Room { room: room.clone(), found }).is_err() {
                    self.status.add_undelivered();
                    watch.stage = Stage::Joining;
                    self.write(&mut state, &Up::Subscribe { worker, room });
                    return;
                }
                watch.stage = Stage::Watching;
                if !is_there {
                    // The worker forgets such a room without a word.
                    let watches = state.rooms.get_mut(&room).expect("it was there a moment ago");
                    watches.retain(|w| w.worker != worker);
                    if watches.is_empty() {
                        self.forget(&mut state, &room);
                    }
                }
            }
            ToWorker::Http { conn, ref part } => {
                {
                    let mut state = self.state();
                    match part {
                        HttpPart::Head(_) => {
                            if let Some(asked) = state.requests.get_mut(&conn) {
                                asked.begun = true;
                            }
                        }
                        HttpPart::Chunk(_) => {}
                        HttpPart::Whole { .. } | HttpPart::End | HttpPart::Broken => {
                            state.requests.remove(&conn);
                        }
                    }
                }
                self.deliver(worker, mail);
            }
            ToWorker::Site(list) => {
                self.status.board().write(list.access.clone());
                let mut state = self.state();
                state.site = Some((list, self.workers.ids().collect()));
                self.give_site(&mut state);
            }
            mail => self.deliver(worker, mail),
        }
    }

    /// Gives the site's list to the workers that have not had it; one that is too full, or does not run yet, has it with
    /// the shard's next word or its first room.
    fn give_site(&self, state: &mut State) {
        let Some((list, owed)) = &mut state.site else { return };
        owed.retain(|worker| self.workers.send(*worker, ToWorker::Site(list.clone())).is_err());
        if owed.is_empty() {
            state.site = None;
        }
    }

    /// Gives one item to every worker that watches the room; whether there is one, or one about to. A worker that cannot take
    /// it gets the room's facts once more instead.
    fn give(&self, room: &RoomId, mail: impl Fn() -> ToWorker, pieces: &[Arc<Piece>]) -> bool {
        let mut state = self.state();
        let Some(watches) = state.rooms.get_mut(room) else { return false };
        let mut again = Vec::new();
        for watch in watches.iter_mut().filter(|watch| watch.stage == Stage::Watching) {
            if self.workers.send(watch.worker, mail()).is_err() {
                self.status.add_undelivered();
                self.status.add_dropped(pieces);
                watch.stage = Stage::Joining;
                again.push(watch.worker);
            }
        }
        for worker in again {
            self.write(&mut state, &Up::Subscribe { worker, room: room.clone() });
        }
        true
    }

    /// Gives each worker the totals of the rooms it watches. Who cannot take them gets those rooms' facts once more instead.
    fn give_totals(&self, rooms: &[RoomTotals]) {
        let mut state = self.state();
        for worker in self.workers.ids() {
            let watches = |room: &RoomId| {
                let mut watches = state.rooms.get(room).into_iter().flatten();
                watches.any(|w| w.worker == worker && w.stage == Stage::Watching)
            };
            let own: Vec<_> = rooms.iter().filter(|(room, _)| watches(room)).cloned().collect();
            if own.is_empty() {
                continue;
            }
            let own = Arc::new(own);
            if self.workers.send(worker, ToWorker::Tally(own.clone())).is_ok() {
                continue;
            }
            self.status.add_undelivered();
            for (room, _) in own.iter() {
                let watches = state.rooms.get_mut(room).into_iter().flatten();
                watches.filter(|w| w.worker == worker).for_each(|w| w.stage = Stage::Joining);
                self.write(&mut state, &Up::Subscribe { worker, room: room.clone() });
            }
        }
    }

    fn deliver(&self, worker: WorkerId, mail: ToWorker) {
        // A worker that is so far behind lets its clients ask again.
        if self.workers.send(worker, mail).is_err() {
            self.status.add_undelivered();
        }
    }
}

pub const AWAY_WORDS: &str = "the server's log is away for a moment";

/// The `Origin` of a request whose page may read the answer.
fn reader_of(headers: &http::HeaderMap, listed: &[Origin]) -> Option<String> {
    let host = headers.get("host").and_then(|host| host.to_str().ok());
    let origins = headers.get_all("origin");
    let welcome = door::may_enter(origins.iter().map(HeaderValue::as_bytes), host, listed);
    headers.get("origin").filter(|_| welcome).and_then(|origin| Some(origin.to_str().ok()?.to_owned()))
}

/// A problem document, as control answers; `origin`: the page that may read it.
pub fn refused_answer(code: ErrorCode, detail: &str, delay: Delay, origin: Option<&str>) -> HttpPart {
    let mut body = Vec::with_capacity(192);
    problem::write(code.status(), code, detail, Some(delay.wait()), &mut body);
    let (mut head, ()) = http::Response::new(()).into_parts();
    head.status = http::StatusCode::from_u16(code.status()).expect("the table holds statuses");
    let fixed = [("content-type", "application/problem+json"), ("cache-control", "no-store")];
    for (name, value) in fixed.into_iter().chain(origin.map(door::readable_by).into_iter().flatten()) {
        head.headers.insert(name, HeaderValue::from_str(value).expect("an origin that may enter is a URL"));
    }
    head.headers.insert("retry-after", HeaderValue::from(retry_after(delay.wait().retry_after_ms)));
    HttpPart::Whole { head, body: body.into() }
}

fn broken(fault: codec::Fault) -> std::io::Error {
    std::io::Error::new(ErrorKind::InvalidData, fault)
}

/// What was reported of each room, so that only changes are.
#[derive(Default)]
struct Reporter {
    told: HashMap<RoomId, (Figures, Seen)>,
}

/// Viewers, those that count against a limit, and what they were given.
type Figures = (u32, u32, Served);

/// What one report says of who watches: the rest is in the next one. A frame holds four times as much.
const SEEN_BYTES_MAX: usize = 4 << 20;

impl Reporter {
    fn changed(&mut self, tallies: &Tallies) -> Vec<RoomNumbers> {
        let all = tallies.all();
        let mut changed = Vec::new();
        let mut bytes = 0;
        for (room, tally) in &all {
            let now = (tally.here() as u32, tally.held.load(Ordering::Relaxed), tally.served());
            let seen = tally.seen();
            let told = self.told.get(room);
            let news = match told {
                Some(told) => (told.0, &told.1) != (now, &seen),
                None => (now, &seen) != (Figures::default(), &Seen::default()),
            };
            if news && bytes < SEEN_BYTES_MAX {
                bytes += match seen.users.parts() {
                    Ok(marks) => 4 * marks.len(),
                    Err(registers) => registers.len(),
                };
                self.told.insert(room.clone(), (now, seen.clone()));
                let (viewers, held, served) = now;
                changed.push(RoomNumbers { room: room.clone(), viewers, held, served, seen });
            }
        }
        // A room whose tally was given up holds nobody and counted nothing.
        self.told.retain(|room, (told, _)| {
            let stays = all.contains_key(room);
            if !stays && (told.0 > 0 || told.1 > 0) {
                changed.push(RoomNumbers {
                    room: room.clone(),
                    viewers: 0,
                    held: 0,
                    served: told.2,
                    seen: Seen::default(),
                });
            }
            stays
        });
        changed
    }
}
