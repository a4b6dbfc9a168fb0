//! The gateway role: every socket, N worker threads, one loop each.
//!
//! Each worker is a room of its own: its listener, its connections, its rosters and rings. The kernel deals new connections
//! out to the listeners; batches and answers come through one mailbox and a waker. Workers share counters and nothing else, so
//! no viewer can hold up another worker's.
//!
//! It decides nothing about a room: what is said comes from the shard, what may be seen from the pure rules.

mod away;
mod bans;
mod calls;
mod catch_up;
mod conn;
mod counters;
mod echo;
pub mod frames;
mod full;
mod holders;
mod http2;
pub mod irc;
mod meter;
mod ops;
pub mod parts;
mod pipe;
mod polls;
mod refill;
mod renewal;
mod roster;
mod said;
mod silent;
mod site;
mod socket;
mod stream;
mod streams;
mod sweep;
#[cfg(test)]
mod tests;
mod viewer;
mod web;
mod wheel;
mod worker;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use grandstand_core::sampler::Preset;
use grandstand_core::time::Mono;
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

use crate::admission::Admission;
use crate::auth::door::{Network, Origin};
use crate::auth::place::Places;
use crate::auth::ticket::Tickets;
use crate::auth::token::Verifier;
use crate::edge::{self, Listen, Serves};
use crate::kernel;
use crate::link::bundles::Bundles;
use crate::link::{ControlHandle, Delay, RoomInfo, ShardHandle, Tallies, ToWorker, Workers};
use crate::metrics::Metrics;
use holders::Holders;
use parts::Cap;
use polls::Polls;
use streams::StreamTable;
use worker::Worker;

pub use full::sockets_max;
pub use streams::Limits as StreamLimits;

/// What a gateway is told at its start.
#[derive(Clone)]
pub struct Settings {
    /// Everything is served here. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// Listeners beside it, each for one transport.
    pub edges: Vec<Listen>,
    pub irc: edge::Irc,
    /// The `endpoints` object that viewers are told.
    pub endpoints: Option<Arc<str>>,
    pub origins: Vec<Origin>,
    /// Refuse a `Host` that is not loopback.
    pub development: bool,
    pub stream_limits: StreamLimits,
    /// Addresses without a limit; loopback never has one.
    pub exempt: Vec<Network>,
    /// Whose word on the client's address is taken.
    pub trusted_proxies: Vec<Network>,
    /// What says where clients are.
    pub places: Arc<Places>,
    /// Their connections begin with a PROXY protocol header.
    pub proxy_protocol: bool,
    /// How long a drained client waits before it comes back.
    pub drain: Delay,
    /// permessage-deflate is agreed to where a client offers it.
    pub deflate: bool,
    /// Sockets of this process: [`sockets_max`].
    pub sockets_max: u64,
    /// Other processes listen on the same address.
    pub shares_address: bool,
    /// `None`: plain HTTP.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// For clients that offer HTTP/2; only with `tls`.
    pub http2: Option<Arc<rustls::ServerConfig>>,
}

/// What a gateway needs of the other roles.
#[derive(Clone)]
pub struct Deps {
    pub shard: ShardHandle,
    pub workers: Workers,
    pub control: ControlHandle,
    pub verifier: Arc<Verifier>,
    pub tickets: Arc<Tickets>,
    pub metrics: Arc<Metrics>,
    pub tallies: Tallies,
    pub admission: Arc<Admission>,
    pub bundles: Arc<Bundles>,
}

/// What all workers of the process share.
struct Shared {
    settings: Settings,
    shard: ShardHandle,
    workers: Workers,
    control: ControlHandle,
    verifier: Arc<Verifier>,
    tickets: Arc<Tickets>,
    metrics: Arc<Metrics>,
    tallies: Tallies,
    admission: Arc<Admission>,
    streams: StreamTable,
    polls: Polls,
    holders: Holders,
    spare: full::Spare,
    /// The conformance route exists.
    echo: bool,
}

impl Shared {
    fn new(settings: Settings, deps: Deps) -> Shared {
        Shared {
            streams: StreamTable::new(settings.stream_limits, deps.bundles.clone()),
            polls: Polls::new(),
            holders: Holders::new(deps.bundles),
            spare: full::Spare::new(),
            echo: echo::is_asked_for(),
            shard: deps.shard,
            workers: deps.workers,
            control: deps.control,
            verifier: deps.verifier,
            tickets: deps.tickets,
            metrics: deps.metrics,
            tallies: deps.tallies,
            admission: deps.admission,
            settings,
        }
    }
}

impl Shared {
    /// What viewers of a room are given of its comments while it is wide.
    fn cap(&self, info: Option<&RoomInfo>, now: Mono) -> Cap {
        let own = info.map_or(Preset::Chat.cap(), |info| info.settings.sampling.cap());
        Cap { milli: self.admission.shedding.cap_milli(u64::from(own) * 1_000, now) }
    }
}

/// A running gateway.
pub struct Gateway {
    pub address: SocketAddr,
    /// Where the transports' own listeners accept.
    pub edges: Vec<Listen>,
    /// Where IRC is spoken, when it is.
    pub irc: Option<irc::Irc>,
    workers: Workers,
    drain: Delay,
    threads: Vec<JoinHandle<()>>,
}

/// Why a gateway does not start, and the address it is about.
#[derive(Debug)]
pub struct ListenFault(pub SocketAddr, pub io::Error);

/// Opens the listeners and starts one thread for each place in `deps.workers`.
/// Errors: an address cannot be had.
pub fn start(settings: Settings, deps: Deps) -> Result<Gateway, ListenFault> {
    let ids: Vec<_> = deps.workers.ids().collect();
    let shares = settings.shares_address || ids.len() > 1;
    let mut listens = vec![Listen { address: settings.listen, serves: Serves::All }];
    listens.extend(&settings.edges);
    let mut listeners = Vec::new();
    for _ in &ids {
        let mut own = Vec::with_capacity(listens.len());
        for listen in &mut listens {
            let fault = |fault| ListenFault(listen.address, fault);
            let listener = listener(listen.address, shares).map_err(fault)?;
            // A free port is the same one for all workers.
            listen.address = listener.local_addr().map_err(fault)?;
            own.push((mio::net::TcpListener::from_std(listener), listen.serves));
        }
        listeners.push(own);
    }
    let address = listens.remove(0).address;
    let at_address = |fault| ListenFault(address, fault);
    let drain = settings.drain;
    let workers = deps.workers.clone();
    let shared = Arc::new(Shared::new(settings, deps));
    let (mut threads, mut beside, mut bells) = (Vec::new(), Vec::new(), Vec::new());
    for (idx, (id, own)) in ids.into_iter().zip(listeners).enumerate() {
        let mut worker = Worker::new(id, own, shared.clone()).map_err(at_address)?;
        bells.push(worker.bell.clone());
        if let Some(tls) = &shared.settings.http2 {
            let (http2, thread) =
                http2::start(idx, shared.clone(), tls.clone(), worker.bell.clone()).map_err(at_address)?;
            worker.http2 = Some(http2);
            beside.push(thread);
        }
        let run = move || {
            // What fails outside a connection's turn concerns every viewer of the worker: a process that is half there would
            // keep them in the dark, one that ends sends them to resume elsewhere or here again.
            if catch_unwind(AssertUnwindSafe(|| worker.run())).is_err() {
                tracing::error!(worker = idx, "a gateway worker failed; the process ends");
                std::process::abort();
            }
        };
        threads.push(std::thread::Builder::new().name(format!("gateway-{idx}")).spawn(run).map_err(at_address)?);
    }
    // A worker ends before the thread beside it.
    threads.append(&mut beside);
    let irc = irc::start(shared, bells)?;
    Ok(Gateway { address, edges: listens, irc, workers, drain, threads })
}

impl Gateway {
    /// Closes every viewer with 4112 and takes nobody new; answers still go out.
    pub fn drain(&self) {
        for worker in self.workers.ids() {
            // A worker whose mailbox is full is told by `stop`, which tries again.
            let _ = self.workers.send(worker, ToWorker::Drain(self.drain));
        }
        if let Some(irc) = &self.irc {
            irc.drain();
        }
    }

    /// Ends the workers after what they hold was written, at the latest after 3 s.
    pub fn stop(self) {
        for worker in self.workers.ids() {
            for _ in 0..200 {
                if self.workers.send(worker, ToWorker::Stop).is_ok() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        for thread in self.threads {
            // A worker that ended by a panic has said so already; there is nothing left to stop.
            let _ = thread.join();
        }
        if let Some(irc) = self.irc {
            irc.stop();
        }
    }
}

const PROBED_AFTER: Duration = Duration::from_secs(17);
const PROBED_EVERY: Duration = Duration::from_secs(5);

/// A listener whose options its connections inherit.
fn listener(address: SocketAddr, shared: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if shared {
        socket.set_reuse_port(true)?;
    }
    socket.set_nonblocking(true)?;
    // A stalled phone holds no more than this (docs/decisions/0005-numbers.md). Inherited by accepted sockets, which saves
    // four calls a connection.
    socket.set_tcp_nodelay(true)?;
    socket.set_send_buffer_size(kernel::SEND_BUFFER as usize)?; // the kernel doubles it: 64 KiB
    socket.set_tcp_notsent_lowat(kernel::UNSENT_LOW)?;
    socket.set_tcp_user_timeout(Some(Duration::from_secs(20)))?;
    // Whoever is silent for 17 s is probed, and gone when 22 s have passed without a sign: a waiting poll or an idle caller whose
    // network vanished. An event stream speaks every 15 s and is never probed.
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(PROBED_AFTER).with_interval(PROBED_EVERY))?;
    socket.bind(&address.into())?;
    socket.listen(kernel::BACKLOG as i32)?;
    Ok(socket.into())
}
