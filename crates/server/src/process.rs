//! One server process: the three roles, or its share of them, started in the order in which they can be reached and ended the other way round.
//!
//! Start: data folder and its lock, keys, the log (recovered before anyone may ask), control, sockets last: who can connect
//! finds everything there. Stop: sockets take nobody new and send everyone away, control answers what it took, the owner
//! finishes what was admitted, the workers write what is left.
//!
//! With several gateway processes ([`Share`]) one holds shard and control and the others a gateway each; they meet over the
//! local socket of `link`. Only the shard's process locks the data folder; the others read its keys.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use grandstand_core::places;
use grandstand_store::sqlite::{DataDir, DataDirFault, Durability as StoreDurability};
use tokio::sync::mpsc;

use crate::admission::Admission;
use crate::auth::board::Board;
use crate::auth::files;
use crate::auth::key_set::KeySet;
use crate::auth::keys::{KeyFault, SigningKey};
use crate::auth::place::{self, Places};
use crate::auth::provider_keys::{self, ProviderKeys};
use crate::auth::ticket::Tickets;
use crate::auth::token::Verifier;
use crate::config::{Config, Durability};
use crate::edge::Listen;
use crate::gateway::{self, Gateway};
use crate::link::bundles::{self, Bundles};
use crate::link::host::{self, Host};
use crate::link::hub;
use crate::link::{ControlHandle, Delay, PROCESSES_MAX, ShardHandle, Tallies, WORKERS_A_PROCESS_MAX, Workers};
use crate::memory::Memory;
use crate::metrics::Metrics;
use crate::moderation;
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
    #[error("while reading the word lists: {0}")]
    Lists(#[from] moderation::Fault),
    #[error("while reading the certificate: {0}")]
    Certificate(#[from] tls::Fault),
    #[error("{0}")]
    Failpoints(String),
    #[error("while reading the database of regions: {0}")]
    Places(#[from] place::Fault),
    #[error("while starting the thread that fetches keys: {0}")]
    KeySet(#[source] std::io::Error),
    #[error("while reading the keys of providers: {0}")]
    ProviderKeys(#[from] provider_keys::LoadFault),
    #[error("while starting control on {0:?}: {1}")]
    Control(Option<SocketAddr>, #[source] std::io::Error),
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, #[source] std::io::Error),
    #[error("while making the folder of torn tickets: {0}")]
    Tickets(#[source] std::io::Error),
    #[error("while making the socket of the gateway processes: {0}")]
    Link(#[source] std::io::Error),
    #[error(
        "a gateway process has 1 to {WORKERS_A_PROCESS_MAX} workers, and there are at most {PROCESSES_MAX} of them"
    )]
    Processes,
}

/// What of the server a process is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Share {
    /// All three roles.
    All,
    /// Shard and control; gateways are processes of their own.
    Shard,
    /// One gateway of `of`.
    Gateway { process: u8, of: u8 },
}

/// A running process.
pub struct Running {
    /// Where it accepts; `None` without a gateway.
    pub address: Option<SocketAddr>,
    /// Where the transports' own listeners accept.
    pub edges: Vec<Listen>,
    /// Where IRC is spoken: by what, and the address.
    pub irc: Vec<(&'static str, SocketAddr)>,
    /// Where `/metrics` and `/healthz/ready` are, when they have an address of their own.
    pub internal: Option<SocketAddr>,
    /// Whether commands are taken, and what the log stands at.
    pub shard: ShardHandle,
    /// What is shown to clients, when the listener speaks TLS.
    pub certificates: Option<Arc<tls::Certificates>>,
    /// The built-in classifier; `None` in a gateway's process.
    pub rules: Option<Arc<moderation::Live>>,
    gateway: Option<Gateway>,
    control: Option<control::Running>,
    join: Option<ShardJoin>,
    host: Option<host::Running>,
    hub: Option<hub::Running>,
}

/// What a client that is sent away waits: long enough that a restart is over, spread so that they do not come at once, and
/// back within ten seconds all the same.
const DRAIN: Delay = Delay { retry_after: Duration::from_millis(500), spread: Duration::from_secs(9) };
/// A gateway process whose shard is not there begins without it after this.
const SHARD_WAIT: Duration = Duration::from_secs(10);
/// The folder of torn tickets in the data folder.
const TORN: &str = "tickets";
/// The shard waits for its gateways to leave at most this long.
const LEAVE_WAIT: Duration = Duration::from_secs(5);

/// Starts everything. On return connections are accepted and the log takes commands.
pub fn start(config: Config) -> Result<Running, StartFault> {
    start_share(config, Share::All)
}

/// Starts a process's share. On return a shard takes commands, and a gateway connections.
pub fn start_share(config: Config, share: Share) -> Result<Running, StartFault> {
    failpoint::init().map_err(StartFault::Failpoints)?;
    match share {
        Share::All => start_all(config),
        Share::Shard => start_shard(config),
        Share::Gateway { process, of } => start_gateway(config, process, of),
    }
}

/// What every process needs of the configuration, the same in all of them.
struct Basis {
    config: Arc<Config>,
    signing: Arc<SigningKey>,
    verifier: Arc<Verifier>,
    tickets: Arc<Tickets>,
    metrics: Arc<Metrics>,
    tallies: Tallies,
    admission: Arc<Admission>,
    bundles: Arc<Bundles>,
    places: Arc<Places>,
}

impl Basis {
    /// `board`: what the shard's log says of tokens, written there by whoever hears it in this process.
    fn new(config: Config, share: Share, tallies: Tallies, board: Arc<Board>) -> Result<Basis, StartFault> {
        let signing = Arc::new(SigningKey::in_folder(&config.data)?);
        let secret = files::secret(&config.data)?;
        let metrics = Arc::new(Metrics::new());
        let key_set = config
            .jwks
            .clone()
            .map(|source| Arc::new(KeySet::new(source, &config.data, &secret, clock::wall(), metrics.clone())));
        if let Some(key_set) = &key_set {
            key_set.keep().map_err(StartFault::KeySet)?;
        }
        let verifier = Verifier::new(
            Some(&signing),
            config.keys.clone(),
            config.jwks_file.clone(),
            config.issuer.clone(),
            config.audience.clone(),
            metrics.clone(),
        )?
        .with_board(board.clone())
        .with_rules(config.denied_keys.clone(), config.algorithms)
        .with_key_set(key_set.clone());
        let database = config.region_database.as_deref();
        let places = Places::new(config.region_header.as_deref(), &config.trusted_proxies, database)?;
        let tickets = match share {
            Share::Gateway { .. } => {
                Tickets::shared(&secret, clock::wall(), config.data.join(TORN)).map_err(StartFault::Tickets)?
            }
            Share::All | Share::Shard => Tickets::new(&secret, clock::wall()),
        };
        let (streams, polls) = (stream_limits(&config), poll_limits(&config));
        let bundles = match share {
            Share::Gateway { of, .. } => Bundles::shared(&secret, streams, polls, of.into()),
            Share::All | Share::Shard => Bundles::alone(streams, polls),
        };
        Ok(Basis {
            signing,
            verifier: Arc::new(verifier),
            tickets: Arc::new(tickets.with_board(board)),
            metrics,
            tallies,
            admission: Arc::new(
                Admission::new(config.admission, clock::mono()).with_memory(Memory::new(config.memory_bytes)),
            ),
            bundles: Arc::new(bundles),
            places: Arc::new(places),
            config: Arc::new(config),
        })
    }

    fn control(
        &self,
        shard: &ShardHandle,
        workers: &Workers,
        host: Option<Arc<Host>>,
    ) -> Result<control::Deps, StartFault> {
        let provider_keys = ProviderKeys::open(&self.config.data, &self.config.providers)?;
        Ok(control::Deps {
            config: self.config.clone(),
            shard: shard.clone(),
            workers: workers.clone(),
            verifier: self.verifier.clone(),
            signing: Some(self.signing.clone()),
            tickets: self.tickets.clone(),
            tallies: self.tallies.clone(),
            metrics: self.metrics.clone(),
            admission: self.admission.clone(),
            provider_keys: Arc::new(provider_keys),
            host,
        })
    }

    fn gateway(
        &self,
        shard: ShardHandle,
        workers: Workers,
        control: ControlHandle,
        tls: Option<Arc<rustls::ServerConfig>>,
        shares_address: bool,
    ) -> Result<Gateway, StartFault> {
        let config = &self.config;
        let settings = gateway::Settings {
            listen: config.listen,
            edges: config.edges.clone(),
            irc: config.irc.clone(),
            endpoints: config.endpoints.json().map(Arc::from),
            origins: config.origins.clone(),
            development: config.development,
            stream_limits: gateway::StreamLimits {
                each: stream_limits(config),
                total: config.connections_max,
                per_room: config.connections_per_room_max,
            },
            exempt: config.exempt.clone(),
            trusted_proxies: config.trusted_proxies.clone(),
            places: self.places.clone(),
            proxy_protocol: config.proxy_protocol,
            sockets_max: gateway::sockets_max(),
            drain: DRAIN,
            deflate: config.deflate,
            shares_address,
            http2: tls.as_deref().filter(|_| config.http2).map(tls::for_http2),
            tls,
        };
        let deps = gateway::Deps {
            shard,
            workers,
            control,
            verifier: self.verifier.clone(),
            tickets: self.tickets.clone(),
            metrics: self.metrics.clone(),
            tallies: self.tallies.clone(),
            admission: self.admission.clone(),
            bundles: self.bundles.clone(),
        };
        gateway::start(settings, deps)
            .map_err(|gateway::ListenFault(address, fault)| StartFault::Listen(address, fault))
    }
}

fn stream_limits(config: &Config) -> bundles::Limits {
    bundles::Limits { per_user: config.streams_per_user, per_address: config.streams_per_address }
}

fn poll_limits(config: &Config) -> bundles::Limits {
    bundles::Limits { per_user: config.polls_per_user, per_address: config.polls_per_address }
}

fn irc_listens(gateway: &Gateway) -> Vec<(&'static str, SocketAddr)> {
    let listens = gateway.irc.iter().flat_map(|irc| &irc.listens);
    listens.map(|(by, address)| (by.name(), *address)).collect()
}

type Tls = (Option<Arc<tls::Certificates>>, Option<Arc<rustls::ServerConfig>>);

fn read_tls(config: &Config) -> Result<Tls, StartFault> {
    let certificates = config.tls.clone().map(tls::Certificates::read).transpose()?.map(Arc::new);
    let clients = config.tls_clients.as_ref().map(|clients| clients.verifier(false)).transpose()?;
    let tls = certificates.clone().map(|shown| tls::server_config(shown, clients)).transpose()?;
    Ok((certificates, tls))
}

fn internal_tls(config: &Config) -> Result<Option<Arc<rustls::ServerConfig>>, StartFault> {
    let Some((files, clients)) = config.internal_tls.clone() else { return Ok(None) };
    let certificates = Arc::new(tls::Certificates::read(files)?);
    Ok(Some(tls::server_config(certificates, Some(clients.verifier(true)?))?))
}

fn n_cores() -> u16 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u16)
}

fn open_shard(
    config: &Config,
    tallies: &Tallies,
    workers: &Workers,
    rules: &Arc<moderation::Live>,
) -> Result<(ShardHandle, ShardJoin), StartFault> {
    let folder = DataDir::open(&config.data)?;
    let durability = match config.durability {
        Durability::Fsync => StoreDurability::Fsync,
        Durability::Interval(every) => StoreDurability::Interval(every),
        Durability::None => StoreDurability::None,
    };
    let stores = Stores::open(&folder, durability, config.store_bytes_max)?;
    let shard_config = ShardConfig {
        retention_days: config.retention_days,
        retention_header_days: config.retention_header_days,
        tallies: tallies.clone(),
        rules: rules.clone(),
        ..ShardConfig::embedded(config.create_on_use)
    };
    Ok(shard::start(stores, shard_config, workers.clone())?)
}

fn start_all(config: Config) -> Result<Running, StartFault> {
    let (certificates, tls) = read_tls(&config)?;
    let workers = Workers::new(if config.workers == 0 { n_cores() } else { config.workers });
    let tallies = Tallies::default();
    let rules = Arc::new(moderation::Live::read(config.moderation.clone())?);
    let (shard, join) = open_shard(&config, &tallies, &workers, &rules)?;
    let basis = Basis::new(config, Share::All, tallies, shard.status().board().clone())?;
    let (requests, from_gateway) = mpsc::channel(control::REQUESTS_MAX);
    let control = control::start(basis.control(&shard, &workers, None)?, from_gateway, internal_tls(&basis.config)?)
        .map_err(|fault| StartFault::Control(basis.config.internal_listen, fault))?;
    let gateway = basis.gateway(shard.clone(), workers, requests.into(), tls, false)?;
    Ok(Running {
        address: Some(gateway.address),
        edges: gateway.edges.clone(),
        irc: irc_listens(&gateway),
        internal: control.internal,
        shard,
        certificates,
        rules: Some(rules),
        gateway: Some(gateway),
        control: Some(control),
        join: Some(join),
        host: None,
        hub: None,
    })
}

fn start_shard(config: Config) -> Result<Running, StartFault> {
    let host = Host::new();
    let workers = Workers::there(host.clone());
    let tallies = Tallies::default();
    let rules = Arc::new(moderation::Live::read(config.moderation.clone())?);
    let (shard, join) = open_shard(&config, &tallies, &workers, &rules)?;
    let basis = Basis::new(config, Share::Shard, tallies, shard.status().board().clone())?;
    let (requests, from_gateways) = mpsc::channel(control::REQUESTS_MAX);
    let deps = host::Deps {
        shard: shard.clone(),
        control: requests,
        tallies: basis.tallies.clone(),
        admission: basis.admission.clone(),
        metrics: basis.metrics.clone(),
    };
    let control = control::start(
        basis.control(&shard, &workers, Some(host.clone()))?,
        from_gateways,
        internal_tls(&basis.config)?,
    )
    .map_err(|fault| StartFault::Control(basis.config.internal_listen, fault))?;
    // Last: who joins finds everything there.
    let host = host::start(host, &basis.config.data, deps).map_err(StartFault::Link)?;
    Ok(Running {
        address: None,
        edges: Vec::new(),
        irc: Vec::new(),
        internal: control.internal,
        shard,
        certificates: None,
        rules: Some(rules),
        gateway: None,
        control: Some(control),
        join: Some(join),
        host: Some(host),
        hub: None,
    })
}

fn start_gateway(mut config: Config, process: u8, of: u8) -> Result<Running, StartFault> {
    let n_workers = match config.workers {
        0 => (n_cores() / u16::from(of.max(1))).max(1),
        n => n,
    };
    let n_workers =
        u8::try_from(n_workers).ok().filter(|n| *n <= WORKERS_A_PROCESS_MAX).ok_or(StartFault::Processes)?;
    if of > PROCESSES_MAX || process >= of {
        return Err(StartFault::Processes);
    }
    // All of them together hold no more than what is configured.
    config.connections_max = config.connections_max.map(|n| places::part(n, of.into(), process.into()));
    let (certificates, tls) = read_tls(&config)?;
    let board = Arc::new(Board::default());
    let basis = Basis::new(config, Share::Gateway { process, of }, Tallies::default(), board.clone())?;
    let workers = Workers::of_process(process, n_workers);
    let path = host::socket_path(&basis.config.data).map_err(StartFault::Link)?;
    let (origins, bundles) = (basis.config.origins.clone(), basis.bundles.clone());
    let settings = hub::Settings { path, process, n_workers, origins, board, bundles };
    let (hub, running) =
        hub::start(settings, workers.clone(), basis.metrics.clone(), basis.tallies.clone(), basis.admission.clone())
            .map_err(StartFault::Link)?;
    // A shard that is still reading its log is waited for; one that is away will be back, and clients are told so.
    hub.wait_ready(SHARD_WAIT);
    let shard = ShardHandle::there(hub.clone());
    let gateway = basis.gateway(shard.clone(), workers, ControlHandle::There(hub), tls, true)?;
    Ok(Running {
        address: Some(gateway.address),
        edges: gateway.edges.clone(),
        irc: irc_listens(&gateway),
        internal: None,
        shard,
        certificates,
        rules: None,
        gateway: Some(gateway),
        control: None,
        join: None,
        host: None,
        hub: Some(running),
    })
}

impl Running {
    /// Sends everyone away, finishes what was admitted, and ends. Takes a few seconds at most.
    pub fn stop(self) {
        if let Some(gateway) = &self.gateway {
            gateway.drain();
        }
        // Gateway processes drain at the same time, and need control and the shard until they have.
        if let Some(host) = self.host {
            host.stop(LEAVE_WAIT);
        }
        if let Some(control) = self.control {
            control.stop();
        }
        if let Some(join) = self.join {
            join.stop();
        }
        if let Some(gateway) = self.gateway {
            gateway.stop();
        }
        if let Some(hub) = self.hub {
            hub.stop();
        }
    }
}
