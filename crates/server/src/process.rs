//! One server process: the three roles, started in the order in which they can be reached and ended the other way round.
//!
//! Start: data folder and its lock, keys, the log (recovered before anyone may ask), control, sockets last: who can connect
//! finds everything there. Stop: sockets take nobody new and send everyone away, control answers what it took, the owner
//! finishes what was admitted, the workers write what is left.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use grandstand_store::sqlite::{DataDir, DataDirFault, Durability as StoreDurability};
use tokio::sync::mpsc;

use crate::admission::Admission;
use crate::auth::files;
use crate::auth::ticket::Tickets;
use crate::auth::token::{KeyFault, SigningKey, Verifier};
use crate::config::{Config, Durability};
use crate::edge::Listen;
use crate::gateway::{self, Gateway};
use crate::link::{Delay, ShardHandle, Tallies, Workers};
use crate::metrics::Metrics;
use crate::shard::{self, ShardConfig, ShardJoin, Stores};
use crate::{clock, control, failpoint, tls};

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartFault {
    #[error("{0}")]
    DataFolder(#[from] DataDirFault),
    #[error("{0}")]
    KeyFile(#[from] files::Fault),
    #[error("while reading the keys of tokens: {0}")]
    Keys(#[from] KeyFault),
    #[error("while opening the log: {0}")]
    Shard(#[from] shard::StartFault),
    #[error("while reading the certificate: {0}")]
    Certificate(#[from] tls::Fault),
    #[error("{0}")]
    Failpoints(String),
    #[error("while starting control on {0:?}: {1}")]
    Control(Option<SocketAddr>, #[source] std::io::Error),
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, #[source] std::io::Error),
}

/// A running server.
pub struct Running {
    /// Where it accepts.
    pub address: SocketAddr,
    /// Where the transports' own listeners accept.
    pub edges: Vec<Listen>,
    /// Where `/metrics` and `/healthz/ready` are, when they have an address of their own.
    pub internal: Option<SocketAddr>,
    /// Whether commands are taken, and what the log stands at.
    pub shard: ShardHandle,
    /// What is shown to clients, when the listener speaks TLS.
    pub certificates: Option<Arc<tls::Certificates>>,
    gateway: Gateway,
    control: control::Running,
    join: ShardJoin,
}

/// What a client that is sent away waits: long enough that a restart is over, spread so that they do not come at once.
const DRAIN: Delay = Delay { retry_after: Duration::from_millis(500), spread: Duration::from_secs(10) };

/// Starts everything. On return connections are accepted and the log takes commands.
pub fn start(config: Config) -> Result<Running, StartFault> {
    failpoint::init().map_err(StartFault::Failpoints)?;
    let certificates = config.tls.clone().map(tls::Certificates::read).transpose()?.map(Arc::new);
    let tls = certificates.clone().map(tls::server_config).transpose()?;
    let http2 = tls.as_deref().filter(|_| config.http2).map(tls::for_http2);
    let folder = DataDir::open(&config.data)?;
    let signing = Arc::new(SigningKey::in_folder(&config.data)?);
    let secret = files::secret(&config.data)?;
    let verifier = Verifier::new(
        Some(&signing),
        config.keys.clone(),
        config.jwks_file.clone(),
        config.issuer.clone(),
        config.audience.clone(),
    )?;

    let durability = match config.durability {
        Durability::Fsync => StoreDurability::Fsync,
        Durability::Interval(every) => StoreDurability::Interval(every),
        Durability::None => StoreDurability::None,
    };
    let n_workers = match config.workers {
        0 => std::thread::available_parallelism().map_or(1, |n| n.get() as u16),
        n => n,
    };
    let workers = Workers::new(n_workers);
    let stores = Stores::open(&folder, durability, config.store_bytes_max)?;
    let shard_config = ShardConfig {
        retention_days: config.retention_days,
        retention_header_days: config.retention_header_days,
        ..ShardConfig::embedded(config.create_on_use)
    };
    let (shard, join) = shard::start(stores, shard_config, workers.clone())?;

    let (requests, from_gateway) = mpsc::channel(control::REQUESTS_MAX);
    let config = Arc::new(config);
    let verifier = Arc::new(verifier);
    let tickets = Arc::new(Tickets::new(&secret, clock::wall()));
    let (metrics, tallies) = (Arc::new(Metrics::new()), Tallies::default());
    let admission = Arc::new(Admission::new(config.admission, clock::mono()));
    let deps = control::Deps {
        config: config.clone(),
        shard: shard.clone(),
        workers: workers.clone(),
        verifier: verifier.clone(),
        signing: Some(signing),
        tickets: tickets.clone(),
        tallies: tallies.clone(),
        metrics: metrics.clone(),
        admission: admission.clone(),
    };
    let control =
        control::start(deps, from_gateway).map_err(|fault| StartFault::Control(config.internal_listen, fault))?;

    let settings = gateway::Settings {
        listen: config.listen,
        edges: config.edges.clone(),
        endpoints: config.endpoints.json().map(Arc::from),
        origins: config.origins.clone(),
        development: config.development,
        stream_limits: gateway::StreamLimits {
            per_user: config.streams_per_user,
            per_address: config.streams_per_address,
            total: config.connections_max,
            per_room: config.connections_per_room_max,
        },
        exempt: config.exempt.clone(),
        trusted_proxies: config.trusted_proxies.clone(),
        proxy_protocol: config.proxy_protocol,
        sockets_max: gateway::sockets_max(),
        shares_address: false,
        drain: DRAIN,
        deflate: config.deflate,
        tls,
        http2,
    };
    let deps = gateway::Deps {
        shard: shard.clone(),
        workers,
        control: requests,
        verifier,
        tickets,
        metrics,
        tallies,
        admission,
    };
    let gateway = gateway::start(settings, deps)
        .map_err(|gateway::ListenFault(address, fault)| StartFault::Listen(address, fault))?;
    let (address, edges) = (gateway.address, gateway.edges.clone());
    Ok(Running { address, edges, internal: control.internal, shard, certificates, gateway, control, join })
}

impl Running {
    /// Sends everyone away, finishes what was admitted, and ends. Takes a few seconds at most.
    pub fn stop(self) {
        self.gateway.drain();
        self.control.stop();
        self.join.stop();
        self.gateway.stop();
    }
}
