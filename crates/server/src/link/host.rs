//! The shard's end of the links to gateway processes.
//!
//! Like a post office with one bag for each town: whatever is for any worker of a process goes into that process's bag, a
//! room's batch once however many of its workers watch the room, and a van takes the bag away when it can. Whoever brings mail
//! never waits: a bag has a size. When it is nearly full, batches of comments are refused, which the owner counts and makes good
//! by a resync; a bag whose oldest item has waited for five seconds is given up with its van, and the process comes back and
//! reads every room from where it stands.
//!
//! The awkward case is a process that comes back before its old link is known to be dead: the old one is taken out first, and
//! each link has a serial of its own in the names of its workers, so that nothing of the old one reaches the new.
//!
//! Two threads a link: one reads, one writes. For all links together one accepts and one keeps time.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use grandstand_core::bundles::{self, Kept};
use grandstand_core::names::RoomId;
use grandstand_core::owner::answer::Answer;
use grandstand_core::owner::command::Command;
use grandstand_core::places;
use grandstand_core::record::Lane;
use grandstand_core::reject::{Code, Reject};
use grandstand_core::time::Mono;
use grandstand_wire::codes::ErrorCode;

use super::codec::{self, Down, Elsewhere, Frames, Hello, LinkNumbers, Order, Report, RoomNumbers, Status, Up};
use super::share::{Asked, Orders};
use super::{
    AskFate, ConnKey, Full, HttpFlow, HttpPart, HttpRequest, PROCESSES_MAX, Piece, ReadRefused, ReplyTo, Seen, Served,
    ShardHandle, Tallies, ToWorker, WORKERS_A_PROCESS_MAX, WorkerId,
};
use crate::admission::Admission;
use crate::clock;
use crate::kernel::Taken;
use crate::metrics::Metrics;

/// The socket's name in the data folder.
pub const SOCKET: &str = "gateways.sock";
/// What `sockaddr_un` holds, less its final zero.
const PATH_BYTES_MAX: usize = 107;

/// What may wait for one process. Comments are refused above a quarter of the bytes: the rest is for scores and answers.
const BAG_ITEMS_MAX: usize = 65_536;
const BAG_BYTES_MAX: usize = 64 << 20;
/// A link whose oldest item is this late is given up. Source: docs/decisions/0005-numbers.md.
const LATE: Duration = Duration::from_secs(5);
/// Both ends say something at least this often.
pub const BEAT: Duration = Duration::from_millis(250);
/// A link that says nothing for this long is dead.
pub const SILENCE: Duration = Duration::from_secs(5);
const HELLO_WAIT: Duration = Duration::from_secs(2);
/// One write takes about so much.
const WRITE_BYTES: usize = 256 * 1024;

/// The place of a process that stands for all its workers.
const HOME: u32 = 0xff;

/// Where batches for a worker's process go.
pub fn home_of(worker: WorkerId) -> WorkerId {
    WorkerId(worker.0 | HOME)
}

fn serial_of(worker: WorkerId) -> u16 {
    (worker.0 >> 16) as u16
}

/// The socket's path for a data folder. Errors: it does not fit into an address.
pub fn socket_path(data: &Path) -> std::io::Result<PathBuf> {
    let path = data.join(SOCKET);
    let len = path.as_os_str().len();
    if len > PATH_BYTES_MAX {
        let why = format!(
            "{} has {len} bytes and a local socket's path at most {PATH_BYTES_MAX}: \
             several gateway processes need a data folder with a shorter path",
            path.display()
        );
        return Err(std::io::Error::new(ErrorKind::InvalidInput, why));
    }
    Ok(path)
}

/// All links of the shard's process.
#[derive(Default)]
pub struct Host {
    links: RwLock<HashMap<u16, Arc<Link>>>,
    serial: AtomicU64,
    /// What processes that are gone had counted.
    past: Mutex<Past>,
    batches: AtomicU64,
    resets: AtomicU64,
    orders: Mutex<Orders>,
    /// A process went: the others are told at once what is left.
    went: AtomicBool,
    beating: OnceLock<thread::Thread>,
}

/// A room over all processes.
#[derive(Clone, Copy, Default)]
struct Sum {
    viewers: u32,
    held: u32,
    people: u32,
    counted: u32,
}

#[derive(Default)]
struct Past {
    numbers: Vec<u64>,
    link: LinkNumbers,
    /// By number, processes that lost their link and may live: they come back with all they ever counted.
    left: HashMap<u8, Left>,
}

struct Left {
    pid: u32,
    numbers: Vec<u64>,
    link: LinkNumbers,
    counted: HashMap<RoomId, Served>,
}

/// What the links came to since the start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Crossed {
    /// Processes linked now.
    pub processes: u64,
    /// Links that were ever there.
    pub joined: u64,
    /// Batches given to links: each once to a process.
    pub batches: u64,
    /// What came over the links, by the processes' own count.
    pub came: LinkNumbers,
    /// Links given up because they were too far behind.
    pub resets: u64,
}

/// A gateway process as operators see it.
pub struct Gateway {
    pub process: u8,
    pub pid: u32,
    /// As of its last report.
    pub metrics: Metrics,
    pub taken: Taken,
    /// It has no place for one more viewer.
    pub full: bool,
    /// The last thing an operator asked of it, and when.
    pub order: Option<(Order, Mono)>,
    /// The same of shedding, which stands beside it.
    pub shedding: Option<(Order, Mono)>,
}

/// The process is not linked, or too far behind to be told anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Away;

/// One process, linked.
pub struct Link {
    serial: u16,
    hello: Hello,
    shard: ShardHandle,
    socket: UnixStream,
    bag: Mutex<Bag>,
    came: Condvar,
    gone: AtomicBool,
    flows: Mutex<HashMap<ConnKey, Arc<HttpFlow>>>,
    reported: Mutex<Reported>,
    places: Mutex<places::Word>,
    bundles: Mutex<Kept>,
}

#[derive(Default)]
struct Bag {
    items: VecDeque<(Instant, usize, Down)>,
    bytes: usize,
    /// When the first item of what is being written was put in.
    writing: Option<Instant>,
    closed: bool,
}

#[derive(Default)]
struct Reported {
    report: Report,
    rooms: HashMap<RoomId, RoomNumbers>,
    /// What it was told of the others.
    told: HashMap<RoomId, (u32, u32, u32, u32)>,
    /// Of every room it ever delivered to.
    counted: HashMap<RoomId, Served>,
}

/// What the links need of the shard's process.
#[derive(Clone)]
pub struct Deps {
    pub shard: ShardHandle,
    pub control: tokio::sync::mpsc::Sender<HttpRequest>,
    pub tallies: Tallies,
    /// Of this process: there is no worker here that looks at its memory.
    pub admission: Arc<Admission>,
    pub metrics: Arc<Metrics>,
}

#[cfg(test)]
impl Deps {
    /// Without limits.
    pub fn alone(shard: ShardHandle, control: tokio::sync::mpsc::Sender<HttpRequest>, tallies: Tallies) -> Deps {
        let admission = Arc::new(Admission::new(None, clock::mono()));
        Deps { shard, control, tallies, admission, metrics: Arc::new(Metrics::new()) }
    }
}

/// The running end.
pub struct Running {
    host: Arc<Host>,
    path: PathBuf,
    stop: Arc<AtomicBool>,
    threads: [thread::JoinHandle<()>; 2],
}

impl Running {
    /// Waits for the processes to leave, at most for `wait`, then lets go of those that are still here.
    pub fn stop(self, wait: Duration) {
        let until = Instant::now() + wait;
        while Instant::now() < until && !self.host.all().is_empty() {
            thread::sleep(Duration::from_millis(10));
        }
        self.stop.store(true, Ordering::Release);
        // One waits for a caller, the other for its time.
        let _ = UnixStream::connect(&self.path);
        for thread in self.threads {
            thread.thread().unpark();
            let _ = thread.join();
        }
        for link in self.host.all() {
            self.host.give_up(&link);
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Makes the socket anew and takes gateway processes.
/// Errors: the socket cannot be made.
pub fn start(host: Arc<Host>, data: &Path, deps: Deps) -> std::io::Result<Running> {
    let path = socket_path(data)?;
    match std::fs::remove_file(&path) {
        // Whoever left it there is dead: the data folder has one owner.
        Ok(()) => {}
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    let listener = UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    let stop = Arc::new(AtomicBool::new(false));
    let accept = {
        let (host, deps, stop) = (host.clone(), deps.clone(), stop.clone());
        thread::Builder::new().name("link-accept".to_owned()).spawn(move || host.accept(&listener, &deps, &stop))?
    };
    let beat = {
        let (host, stop) = (host.clone(), stop.clone());
        thread::Builder::new().name("link-beat".to_owned()).spawn(move || host.beat(&deps, &stop))?
    };
    let _ = host.beating.set(beat.thread().clone());
    Ok(Running { host, path, stop, threads: [accept, beat] })
}

impl Host {
    pub fn new() -> Arc<Host> {
        Arc::default()
    }

    pub(super) fn all(&self) -> Vec<Arc<Link>> {
        sorted(&self.links.read().expect("no holder of this lock can panic"))
    }

    fn link(&self, worker: WorkerId) -> Option<Arc<Link>> {
        self.links.read().expect("no holder of this lock can panic").get(&serial_of(worker)).cloned()
    }

    /// Puts mail for a worker, or for all of its process that want it, into the process's bag. Mail for one that is gone is
    /// nobody's.
    /// Errors: the bag is too full for this kind.
    #[expect(clippy::result_large_err, reason = "the item itself comes back, as from a mailbox")]
    pub fn send(&self, worker: WorkerId, mail: ToWorker) -> Result<(), Full<ToWorker>> {
        let Some(link) = self.link(worker) else { return Ok(()) };
        let (is_batch, is_end) = match &mail {
            ToWorker::Batch(_) => (true, None),
            ToWorker::Http { conn, part: HttpPart::Whole { .. } | HttpPart::End | HttpPart::Broken } => {
                (false, Some(*conn))
            }
            _ => (false, None),
        };
        match link.put(Down::Mail(worker, mail)) {
            Ok(()) => {}
            Err(Full(Down::Mail(_, mail))) => return Err(Full(mail)),
            Err(Full(_)) => unreachable!("what was put comes back"),
        }
        if let Some(conn) = is_end {
            link.flows().remove(&conn);
        }
        self.batches.fetch_add(u64::from(is_batch), Ordering::Relaxed);
        Ok(())
    }

    fn accept(self: &Arc<Host>, listener: &UnixListener, deps: &Deps, stop: &AtomicBool) {
        for socket in listener.incoming() {
            if stop.load(Ordering::Acquire) {
                return;
            }
            match socket {
                Ok(socket) => self.greet(socket, deps),
                Err(e) => {
                    tracing::warn!(error = %e, "a gateway process could not be accepted");
                    thread::sleep(Duration::from_millis(100));
                }
            }
        }
    }

    /// Tells every process that the shard lives, and gives up who is too late.
    fn beat(&self, deps: &Deps, stop: &AtomicBool) {
        let mut n_beats = 0u64;
        while !stop.load(Ordering::Acquire) {
            thread::park_timeout(BEAT);
            n_beats += 1;
            deps.admission.look_at_memory(deps.shard.status(), &deps.metrics, clock::mono());
            let links = self.all();
            if self.went.swap(false, Ordering::AcqRel) || n_beats.is_multiple_of(4) {
                self.share_rooms(&links, &deps.tallies);
            }
            share_bundles(&links);
            let now = Instant::now();
            for link in links {
                if link.is_late(now) {
                    self.resets.fetch_add(1, Ordering::Relaxed);
                    tracing::warn!(
                        process = link.hello.process,
                        "a gateway process is more than 5 s behind: its link is made anew"
                    );
                    self.give_up(&link);
                    continue;
                }
                // A bag that is full has other things to be late with.
                let _ = link.put(Down::Status(status_of(&deps.shard)));
            }
        }
    }

    /// Reads a hello on a thread of its own, which becomes the link's reader.
    fn greet(self: &Arc<Host>, socket: UnixStream, deps: &Deps) {
        let (host, deps) = (self.clone(), deps.clone());
        let spawned = thread::Builder::new().name("link-reader".to_owned()).spawn(move || {
            if let Err(fault) = host.serve(socket, &deps) {
                tracing::warn!(%fault, "a link to a gateway process ended");
            }
        });
        if let Err(fault) = spawned {
            tracing::error!(%fault, "no thread for a gateway process");
        }
    }

    fn serve(self: &Arc<Host>, mut socket: UnixStream, deps: &Deps) -> std::io::Result<()> {
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(HELLO_WAIT))?;
        socket.set_write_timeout(Some(LATE))?;
        let mut frames = Frames::default();
        let hello = loop {
            if frames.fill(&mut socket)? == 0 {
                return Ok(());
            }
            if let Some(frame) = frames.whole().map_err(broken)? {
                match codec::read_up(frame).map_err(broken)? {
                    Up::Hello(hello) => break hello,
                    _ => return Err(std::io::Error::new(ErrorKind::InvalidData, "something before the hello")),
                }
            }
        };
        if let Some(why) = refusal(&hello) {
            let mut out = Vec::new();
            codec::write_down(&Down::Refused(why.clone()), &mut out).map_err(broken)?;
            socket.write_all(&out)?;
            return Err(std::io::Error::new(ErrorKind::InvalidData, why));
        }
        socket.set_read_timeout(Some(SILENCE))?;
        // The one before it may not know yet that it is dead.
        for old in self.all().into_iter().filter(|old| old.hello.process == hello.process) {
            self.give_up(&old);
        }
        let link = self.join(hello, &socket, deps)?;
        deps.shard.came(link.home());
        let result = self.read(&mut socket, &mut frames, &link, deps);
        let said = !link.gone.load(Ordering::Acquire);
        self.give_up(&link);
        // Whoever gave it up before may have been followed by what was still read.
        deps.shard.gone(link.home());
        link.close_flows();
        // An end without a word is how a process dies; the reason is its own.
        if said { result } else { Ok(()) }
    }

    fn join(self: &Arc<Host>, hello: Hello, socket: &UnixStream, deps: &Deps) -> std::io::Result<Arc<Link>> {
        let mut links = self.links.write().expect("no holder of this lock can panic");
        let serial = loop {
            // 0 is for workers of this process; after 65 535 links the numbers of dead ones are taken again.
            let serial = (self.serial.fetch_add(1, Ordering::Relaxed) % 65_535 + 1) as u16;
            if !links.contains_key(&serial) {
                break serial;
            }
        };
        tracing::info!(process = hello.process, pid = hello.pid, serial, "a gateway process is linked");
        let (ours, writers) = (socket.try_clone()?, socket.try_clone()?);
        let reported = self.past().back(&hello);
        let link = Arc::new(Link {
            serial,
            hello,
            shard: deps.shard.clone(),
            socket: ours,
            bag: Mutex::default(),
            came: Condvar::new(),
            gone: AtomicBool::new(false),
            flows: Mutex::default(),
            reported: Mutex::new(reported),
            places: Mutex::default(),
            bundles: Mutex::default(),
        });
        let writer = (self.clone(), link.clone(), writers);
        thread::Builder::new().name("link-writer".to_owned()).spawn(move || {
            let (host, link, mut socket) = writer;
            if link.write(&mut socket).is_err() {
                host.give_up(&link);
            }
        })?;
        links.insert(serial, link.clone());
        // Nobody else can find it yet, so this is the first it hears.
        self.welcome(&sorted(&links), &link);
        let _ = link.put(Down::Status(status_of(&deps.shard)));
        Ok(link)
    }

    fn read(&self, socket: &mut UnixStream, frames: &mut Frames, link: &Arc<Link>, deps: &Deps) -> std::io::Result<()> {
        loop {
            while let Some(frame) = frames.whole().map_err(broken)? {
                let up = codec::read_up(frame).map_err(broken)?;
                self.heard(link, up, deps).map_err(broken)?;
            }
            if frames.fill(socket)? == 0 {
                return Ok(());
            }
        }
    }

    /// Does what a gateway process asks for. Errors: it names a worker that is none of its own.
    fn heard(&self, link: &Arc<Link>, up: Up, deps: &Deps) -> Result<(), codec::Fault> {
        let own = |worker: WorkerId| link.own(worker);
        let key = |conn: ConnKey| Ok(ConnKey { worker: link.own(conn.worker)?, ..conn });
        match up {
            Up::Hello(_) => return Err(codec::Fault::Field),
            Up::Subscribe { worker, room } => deps.shard.subscribe(own(worker)?, room),
            Up::Unsubscribe { room } => deps.shard.unsubscribe(link.home(), room),
            Up::Publish { conn, request, publish } => {
                let conn = key(conn)?;
                let reply = ReplyTo::Conn { conn, request };
                if let Err(overloaded) = deps.shard.command(reply, Command::Publish(*publish)) {
                    let wait = overloaded.0.retry_after;
                    let reject = Reject::after(Code::Overloaded, "the writer's queue is full", wait);
                    let answer = Answer::Reject(reject);
                    let _ = link.put(Down::Mail(conn.worker, ToWorker::Answer { conn, request, answer }));
                }
            }
            Up::AskFate(asked) => deps.shard.ask_fate(AskFate { conn: key(asked.conn)?, ..asked }),
            // One that finds the owner's queue full is lost, as it would be in one process.
            Up::React(react) => drop(deps.shard.command(ReplyTo::Nobody, Command::React(react))),
            Up::Told(report) => drop(deps.shard.command(ReplyTo::Nobody, Command::Report(*report))),
            Up::Fetch(mut fetch) => {
                let worker = fetch.worker_mut();
                *worker = own(*worker)?;
                if let Err(overloaded) = deps.shard.fetch(fetch.clone()) {
                    let (worker, mail) = fetch.refused(ReadRefused::Busy(overloaded.0));
                    let _ = link.put(Down::Mail(worker, mail));
                }
            }
            Up::Http { conn, peer, request } => {
                let conn = key(conn)?;
                let flow = Arc::new(HttpFlow::new());
                link.flows().insert(conn, flow.clone());
                let request = HttpRequest { request: *request, peer, conn, flow };
                if deps.control.try_send(request).is_err() {
                    link.flows().remove(&conn);
                    let part = super::hub::refused_answer(
                        ErrorCode::Overloaded,
                        "too many requests wait",
                        super::OVERLOADED,
                        None,
                    );
                    let _ = link.put(Down::Mail(conn.worker, ToWorker::Http { conn, part }));
                }
            }
            Up::HttpLeft { conn } => {
                if let Some(flow) = link.flows().get(&key(conn)?) {
                    flow.left();
                }
            }
            Up::HttpGone { conn } => {
                if let Some(flow) = link.flows().remove(&key(conn)?) {
                    flow.close();
                }
            }
            // After its end it has no home to settle them with: the gateway sends them again.
            Up::Likes(frame) if !link.gone.load(Ordering::Acquire) => deps.shard.take_likes(link.home(), frame),
            Up::Likes(_) => {}
            Up::Pass { to, mail } => self.pass(link, to, mail),
            Up::Places(word) => {
                *link.places.lock().expect("no holder of this lock can panic") = word;
                self.share_out();
            }
            Up::Bundles(news) => {
                let mut kept = link.bundles();
                news.into_iter().for_each(|here| kept.hear(here));
            }
            Up::Report(report) => {
                let mut reported = link.reported();
                // After its end it is counted as it was then.
                if !link.gone.load(Ordering::Acquire) {
                    reported.take(report, &deps.tallies);
                }
            }
        }
        Ok(())
    }

    /// Takes a link out of everything it is part of. Done once, whoever comes first.
    fn give_up(&self, link: &Arc<Link>) {
        if link.gone.swap(true, Ordering::AcqRel) {
            return;
        }
        {
            // Together, so that no sum misses it or counts it twice.
            let mut links = self.links.write().expect("no holder of this lock can panic");
            links.remove(&link.serial);
            self.past().leave(link);
        }
        let _ = link.socket.shutdown(std::net::Shutdown::Both);
        link.close();
        self.share_out();
        link.shard.gone(link.home());
        link.close_flows();
        self.went.store(true, Ordering::Release);
        if let Some(beating) = self.beating.get() {
            beating.unpark();
        }
        tracing::info!(process = link.hello.process, serial = link.serial, "a gateway process is not linked any more");
    }

    /// Sums the viewers of every room over all processes, and tells each what the others hold.
    fn share_rooms(&self, links: &[Arc<Link>], tallies: &Tallies) {
        let mut sums: HashMap<RoomId, (u32, u32, Seen)> = HashMap::new();
        for link in links {
            for (room, n) in &link.reported().rooms {
                let sum = sums.entry(room.clone()).or_default();
                sum.0 = sum.0.saturating_add(n.viewers);
                sum.1 = sum.1.saturating_add(n.held);
                sum.2.join(&n.seen);
            }
        }
        let sums: HashMap<RoomId, Sum> = sums
            .into_iter()
            .map(|(room, (viewers, held, seen))| {
                let people = u32::try_from(seen.people()).unwrap_or(u32::MAX);
                (room, Sum { viewers, held, people, counted: seen.viewers })
            })
            .collect();
        for link in links {
            let mut reported = link.reported();
            let mut changed = Vec::new();
            for (room, own) in &reported.rooms {
                let Some(sum) = sums.get(room) else { continue };
                let (viewers, held) = (sum.viewers.saturating_sub(own.viewers), sum.held.saturating_sub(own.held));
                let now = (viewers, held, sum.people, sum.counted);
                if reported.told.get(room).copied().unwrap_or_default() != now {
                    let (people, counted) = (sum.people, sum.counted);
                    changed.push(Elsewhere { room: room.clone(), viewers, held, people, counted });
                }
            }
            let told: Vec<_> =
                changed.iter().map(|e| (e.room.clone(), (e.viewers, e.held, e.people, e.counted))).collect();
            // What finds no place now is told the next time.
            if !changed.is_empty() && link.put(Down::Elsewhere(changed)).is_ok() {
                reported.told.extend(told);
            }
        }
        // The shard's own process holds no viewer: its tallies are the sums.
        for (room, tally) in tallies.all() {
            let Sum { viewers, held, people, counted } = sums.get(&room).copied().unwrap_or_default();
            tally.elsewhere.store(viewers, Ordering::Relaxed);
            tally.held_elsewhere.store(held, Ordering::Relaxed);
            tally.set_people(people.into(), counted.into());
            if viewers == 0 && held == 0 {
                tallies.leave(&room, tally);
            }
        }
        for (room, Sum { viewers, held, people, counted }) in sums {
            let tally = tallies.of(&room);
            tally.elsewhere.store(viewers, Ordering::Relaxed);
            tally.held_elsewhere.store(held, Ordering::Relaxed);
            tally.set_people(people.into(), counted.into());
        }
    }

    /// The processes that are linked, in order.
    pub fn gateways(&self) -> Vec<Gateway> {
        let links = self.all();
        let orders = self.orders();
        let gateway = |link: Arc<Link>| {
            let Hello { process, pid, .. } = link.hello;
            let order = |what| orders.of(what, &link.hello).map(|(order, since)| (order.clone(), since));
            let reported = link.reported();
            let metrics = Metrics::of_numbers(&reported.report.numbers);
            let taken = reported.report.taken;
            let full = link.places().full;
            let (order, shedding) = (order(Asked::Streams), order(Asked::Shedding));
            Gateway { process, pid, metrics, taken, full, order, shedding }
        };
        links.into_iter().map(gateway).collect()
    }

    pub(super) fn orders(&self) -> std::sync::MutexGuard<'_, Orders> {
        self.orders.lock().expect("no holder of this lock can panic")
    }

    /// What this process and all gateway processes counted, those that are gone too, in the order of `Metrics::numbers`.
    pub fn numbers(&self, own: &Metrics) -> Vec<u64> {
        let links = self.links.read().expect("no holder of this lock can panic");
        let past = self.past();
        let mut all = own.numbers();
        add_all(&mut all, &past.numbers);
        for left in past.left.values() {
            add_all(&mut all, &left.numbers);
        }
        for link in links.values() {
            add_all(&mut all, &link.reported().report.numbers);
        }
        all
    }

    fn past(&self) -> std::sync::MutexGuard<'_, Past> {
        self.past.lock().expect("no holder of this lock can panic")
    }

    pub fn crossed(&self) -> Crossed {
        let links = self.links.read().expect("no holder of this lock can panic");
        let past = self.past();
        let mut came = past.link;
        let there = links.values().map(|l| l.reported().report.link);
        for numbers in past.left.values().map(|left| left.link).chain(there) {
            came.add(&numbers);
        }
        Crossed {
            processes: links.values().map(|l| l.hello.process).collect::<HashSet<_>>().len() as u64,
            joined: self.serial.load(Ordering::Relaxed),
            batches: self.batches.load(Ordering::Relaxed),
            came,
            resets: self.resets.load(Ordering::Relaxed),
        }
    }
}

/// Tells every process what the others hold of the users and addresses that are near a limit.
fn share_bundles(links: &[Arc<Link>]) {
    let mut kept: Vec<_> = links.iter().map(|link| link.bundles()).collect();
    let news = bundles::news(&kept.iter().map(|kept| &**kept).collect::<Vec<_>>());
    for ((link, kept), news) in links.iter().zip(&mut kept).zip(news) {
        // What finds no place now is told the next time.
        if !news.is_empty() && link.put(Down::Bundles(news.clone())).is_ok() {
            kept.tell(&news);
        }
    }
}

/// By process.
fn sorted(links: &HashMap<u16, Arc<Link>>) -> Vec<Arc<Link>> {
    let mut all: Vec<_> = links.values().cloned().collect();
    all.sort_by_key(|link| link.hello.process);
    all
}

fn add_all(sums: &mut Vec<u64>, numbers: &[u64]) {
    if sums.len() < numbers.len() {
        sums.resize(numbers.len(), 0);
    }
    for (sum, n) in sums.iter_mut().zip(numbers) {
        // A gauge may stand below zero for a moment, as a two's complement: its sum over all processes does not.
        *sum = sum.wrapping_add(*n);
    }
}

fn broken(fault: codec::Fault) -> std::io::Error {
    std::io::Error::new(ErrorKind::InvalidData, fault)
}

/// Why a process is not one of ours.
fn refusal(hello: &Hello) -> Option<String> {
    let ours = (codec::VERSION, env!("CARGO_PKG_VERSION"));
    if (hello.version, hello.build.as_str()) != ours {
        let theirs = (hello.version, &hello.build);
        return Some(format!("the gateway process is of another build: link {theirs:?}, this is {ours:?}"));
    }
    if hello.process >= PROCESSES_MAX || hello.n_workers == 0 || hello.n_workers > WORKERS_A_PROCESS_MAX {
        return Some("the gateway process has a number that no process has".to_owned());
    }
    None
}

fn status_of(shard: &ShardHandle) -> Status {
    let status = shard.status();
    Status {
        ready: status.ready(),
        no_space: status.no_space(),
        head: status.head(),
        epoch: status.epoch(),
        durability: status.durability(),
    }
}

impl Past {
    /// Keeps what a link's process has counted.
    fn leave(&mut self, link: &Link) {
        let reported = link.reported();
        let left = Left {
            pid: link.hello.pid,
            numbers: Metrics::counted(&reported.report.numbers),
            link: reported.report.link,
            counted: reported.counted.clone(),
        };
        drop(reported);
        if let Some(earlier) = self.left.insert(link.hello.process, left) {
            self.end(&earlier);
        }
    }

    /// A process that is linked again goes on where it left; of another one of its number nothing more comes.
    fn back(&mut self, hello: &Hello) -> Reported {
        match self.left.remove(&hello.process) {
            Some(left) if left.pid == hello.pid => {
                let report = Report { numbers: left.numbers, link: left.link, ..Report::default() };
                Reported { report, counted: left.counted, ..Reported::default() }
            }
            Some(left) => {
                self.end(&left);
                Reported::default()
            }
            None => Reported::default(),
        }
    }

    fn end(&mut self, left: &Left) {
        self.link.add(&left.link);
        add_all(&mut self.numbers, &left.numbers);
    }
}

impl Link {
    fn close_flows(&self) {
        for (_, flow) in self.flows().drain() {
            flow.close();
        }
    }

    fn flows(&self) -> std::sync::MutexGuard<'_, HashMap<ConnKey, Arc<HttpFlow>>> {
        self.flows.lock().expect("no holder of this lock can panic")
    }

    fn bundles(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.bundles.lock().expect("no holder of this lock can panic")
    }

    fn reported(&self) -> std::sync::MutexGuard<'_, Reported> {
        self.reported.lock().expect("no holder of this lock can panic")
    }

    fn home(&self) -> WorkerId {
        WorkerId(u32::from(self.serial) << 16 | WorkerId::of(self.hello.process, 0).0 | HOME)
    }

    pub(super) fn hello(&self) -> &Hello {
        &self.hello
    }

    /// What the process said of its places last.
    pub(super) fn places(&self) -> places::Word {
        *self.places.lock().expect("no holder of this lock can panic")
    }

    /// The first worker of the process.
    pub(super) fn first(&self) -> WorkerId {
        WorkerId(u32::from(self.serial) << 16 | WorkerId::of(self.hello.process, 0).0)
    }

    /// A worker as the process names it, as this one does. Errors: it is none of the process.
    pub(super) fn own(&self, worker: WorkerId) -> Result<WorkerId, codec::Fault> {
        let place = worker.0 as u8;
        if worker.process() != self.hello.process || place >= self.hello.n_workers {
            return Err(codec::Fault::Field);
        }
        Ok(WorkerId(u32::from(self.serial) << 16 | u32::from(worker.number())))
    }

    /// Errors: no place for this kind.
    #[expect(clippy::result_large_err, reason = "the item itself comes back, as from a mailbox")]
    pub(super) fn put(&self, down: Down) -> Result<(), Full<Down>> {
        let bytes = weight(&down);
        // What may be passed over goes first when it gets tight.
        let share = if is_comments(&down) { 4 } else { 1 };
        let mut bag = self.bag.lock().expect("no holder of this lock can panic");
        if bag.closed {
            return Ok(());
        }
        if bag.items.len() >= BAG_ITEMS_MAX / share || bag.bytes + bytes > BAG_BYTES_MAX / share {
            return Err(Full(down));
        }
        let sleeps = bag.items.is_empty();
        bag.bytes += bytes;
        bag.items.push_back((Instant::now(), bytes, down));
        drop(bag);
        if sleeps {
            self.came.notify_one();
        }
        Ok(())
    }

    fn close(&self) {
        let mut bag = self.bag.lock().expect("no holder of this lock can panic");
        bag.closed = true;
        bag.items.clear();
        bag.bytes = 0;
        drop(bag);
        self.came.notify_one();
    }

    fn is_late(&self, now: Instant) -> bool {
        let bag = self.bag.lock().expect("no holder of this lock can panic");
        bag.writing.is_some_and(|since| now.duration_since(since) > LATE)
    }

    /// Writes until the link is given up. Errors: the socket's own.
    fn write(&self, socket: &mut UnixStream) -> std::io::Result<()> {
        let mut out = Vec::new();
        loop {
            let mut bag = self.bag.lock().expect("no holder of this lock can panic");
            bag.writing = None;
            while bag.items.is_empty() && !bag.closed {
                bag = self.came.wait(bag).expect("no holder of this lock can panic");
            }
            if bag.closed {
                return Ok(());
            }
            let mut taken = Vec::new();
            let mut n = 0;
            bag.writing = bag.items.front().map(|(at, ..)| *at);
            while n < WRITE_BYTES
                && let Some((_, bytes, down)) = bag.items.pop_front()
            {
                n += bytes;
                bag.bytes -= bytes;
                taken.push(down);
            }
            drop(bag);
            out.clear();
            for down in &taken {
                if let Err(fault) = codec::write_down(down, &mut out) {
                    tracing::error!(%fault, "something is too long for the link");
                    // An answer of control breaks off, and its connection is told so. Of anything else nobody would learn
                    // that it is missing: the link is made anew, and rooms go on from the log.
                    let Down::Mail(worker, ToWorker::Http { conn, .. }) = down else { return Err(broken(fault)) };
                    let mail = Down::Mail(*worker, ToWorker::Http { conn: *conn, part: HttpPart::Broken });
                    codec::write_down(&mail, &mut out).expect("this is short");
                }
            }
            drop(taken);
            socket.write_all(&out)?;
            if out.capacity() > 8 * WRITE_BYTES {
                out = Vec::new();
            }
        }
    }
}

impl Reported {
    fn take(&mut self, mut report: Report, tallies: &Tallies) {
        for room in report.rooms.drain(..) {
            let before = self.counted.get(&room.room).copied().unwrap_or_default();
            if before != room.served {
                tallies.of(&room.room).add_served(room.served.since(before));
                self.counted.insert(room.room.clone(), room.served);
            }
            if room.viewers == 0 && room.held == 0 {
                self.rooms.remove(&room.room);
                self.told.remove(&room.room);
            } else {
                self.rooms.insert(room.room.clone(), room);
            }
        }
        self.report = report;
    }
}

/// What an item takes in memory and on the link, near enough for a bound.
fn weight(down: &Down) -> usize {
    const BASE: usize = 128;
    let pieces = |pieces: &[Arc<Piece>]| pieces.iter().map(|p| p.json.len() + BASE).sum::<usize>();
    match down {
        Down::Mail(_, ToWorker::Batch(batch)) => pieces(&batch.pieces) + BASE,
        Down::Mail(_, ToWorker::Page { answer: Ok(page), .. }) => pieces(&page.pieces) + BASE,
        Down::Mail(_, ToWorker::Resume { answer: Ok(resumed), .. }) => pieces(&resumed.first.pieces) + BASE,
        Down::Mail(_, ToWorker::Past { answer: Ok(past), .. }) => pieces(&past.pieces) + BASE,
        Down::Mail(_, ToWorker::Http { part: HttpPart::Whole { body, .. }, .. }) => body.len() + 4 * BASE,
        Down::Mail(_, ToWorker::Http { part: HttpPart::Chunk(body), .. }) => body.len() + BASE,
        Down::Mail(_, ToWorker::Room { .. } | ToWorker::Settings(_) | ToWorker::Resync(_)) => 8 * BASE,
        Down::Elsewhere(rooms) => rooms.len() * BASE,
        Down::Mail(_, ToWorker::Tally(rooms)) => rooms.len() * 2 * BASE,
        _ => 2 * BASE,
    }
}

/// Whether it is a batch that holds nothing but comments.
fn is_comments(down: &Down) -> bool {
    match down {
        Down::Mail(_, ToWorker::Batch(batch)) => batch.pieces.iter().all(|p| p.lane == Lane::Comment),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use std::time::{Duration, Instant};

    use grandstand_core::ids::{Epoch, EventId, Seq};
    use grandstand_core::names::RoomId;
    use grandstand_core::record::{Audience, Lane};
    use grandstand_core::time::Wall;

    use super::codec::{self, Hello, LinkNumbers, Report, RoomNumbers, Up};
    use super::{Deps, HOME, Host, Running, SOCKET, start};
    use crate::link::{Batch, Piece, Seen, Served, ShardEnds, ShardHandle, Tallies, ToWorker, WorkerId};
    use crate::metrics::Metrics;

    struct Stage {
        host: Arc<Host>,
        tallies: Tallies,
        _ends: ShardEnds,
        _running: Running,
    }

    fn stage(folder: &Path) -> Stage {
        let (shard, _ends) = ShardHandle::new();
        let (control, _) = tokio::sync::mpsc::channel(1);
        let (host, tallies) = (Host::new(), Tallies::default());
        let _running = start(host.clone(), folder, Deps::alone(shard, control, tallies.clone())).unwrap();
        Stage { host, tallies, _ends, _running }
    }

    /// Process 0 as `pid`, which says what it counted since it started.
    fn link(folder: &Path, pid: u32, accepted: u64, viewers: u32) -> UnixStream {
        let build = env!("CARGO_PKG_VERSION").to_owned();
        let (order, whole) = (None, None);
        let hello = Hello { version: codec::VERSION, build, process: 0, n_workers: 1, pid, order, whole };
        let metrics = Metrics::new();
        metrics.accepted.store(accepted, Ordering::Relaxed);
        let room = RoomId::parse("a").unwrap();
        let report = Report {
            numbers: metrics.numbers(),
            link: LinkNumbers { useless: accepted, ..LinkNumbers::default() },
            rooms: vec![RoomNumbers {
                room,
                viewers,
                held: 0,
                served: Served { delivered: accepted, ..Served::default() },
                seen: Seen::default(),
            }],
            ..Report::default()
        };
        let mut out = Vec::new();
        codec::write_up(&Up::Hello(hello), &mut out).unwrap();
        codec::write_up(&Up::Report(report), &mut out).unwrap();
        let mut socket = UnixStream::connect(folder.join(SOCKET)).unwrap();
        socket.write_all(&out).unwrap();
        socket
    }

    fn until(what: &str, mut holds: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(30);
        while !holds() {
            assert!(Instant::now() < end, "{what}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_a_process_counted_is_counted_once_however_often_its_link_breaks() {
        let folder = tempfile::tempdir().unwrap();
        let stage = stage(folder.path());
        let delivered = || {
            let tally = stage.tallies.find(&RoomId::parse("a").unwrap());
            tally.map_or(0, |tally| tally.served().delivered)
        };
        let sums = || {
            (
                Metrics::of_numbers(&stage.host.numbers(&Metrics::new())).accepted.into_inner(),
                stage.host.crossed().came.useless,
            )
        };
        // The same process three times, and another one in its place.
        for (pid, accepted, sum) in [(1, 5, 5), (1, 6, 6), (1, 9, 9), (2, 1, 10)] {
            let socket = link(folder.path(), pid, accepted, 1);
            until(&format!("{sums:?} {pid} {accepted}", sums = sums()), || sums() == (sum, sum) && delivered() == sum);
            drop(socket);
            until("it is gone", || stage.host.crossed().processes == 0);
            assert_eq!((sums(), delivered()), ((sum, sum), sum));
        }
    }

    #[test]
    fn a_batch_that_no_frame_holds_ends_the_link_instead_of_going_missing() {
        let folder = tempfile::tempdir().unwrap();
        let stage = stage(folder.path());
        let _socket = link(folder.path(), 1, 1, 1);
        until("it is linked", || stage.host.crossed().processes == 1);
        let piece = Piece {
            id: EventId::at(Epoch::new(1).unwrap(), Seq::START),
            lane: Lane::Priority,
            ts: Wall(0),
            closes_window: true,
            pseq: None,
            kind: "config",
            json: vec![b' '; codec::FRAME_MAX].into(),
            author: None,
            audience: Audience::Everyone,
            unallowed: false,
            retracts: None,
            won: None,
        };
        let batch = Batch { room: RoomId::parse("a").unwrap(), pieces: vec![Arc::new(piece)], said: 0 };
        let home = WorkerId(1 << 16 | HOME);
        assert!(stage.host.send(home, ToWorker::Batch(Arc::new(batch))).is_ok());
        until("the link is given up", || stage.host.crossed().processes == 0);
    }

    #[test]
    fn names_of_rooms_that_nobody_watches_any_more_cost_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let stage = stage(folder.path());
        let watched = || stage.tallies.find(&RoomId::parse("a").unwrap()).is_some();
        let socket = link(folder.path(), 1, 0, 1);
        until("the room is watched", watched);
        drop(socket);
        until("the room is forgotten", || !watched());
    }
}
