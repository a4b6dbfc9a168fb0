//! IRC, as Twitch speaks it: a thread beside the workers that ends it and speaks HTTP to their loops, by pipes.
//!
//! ```text
//! client ─► socket (TCP or WebSocket, with TLS where the server has a certificate) ─► this thread ─► pipes ─► the workers' loops
//! ```
//!
//! It is a client of this server that happens to live in its process: a channel is a room's event stream, a line that is said is a publish, a
//! moderator's command is a call of the operators' API. So nothing is decided here about a room, a token, a ban, a region or a limit of users and
//! addresses, and there is no second road by which a room could be shown (docs/decisions/0043-irc.md). What is decided here is what only IRC has: lines,
//! names, and how many of either one client may hold.
//!
//! The awkward case is a drain: who is in a room is sent away by its stream, in the drain's own slices; who is in none is told at once.

mod call;
mod connection;
mod deeds;
mod session;
mod told;
mod voice;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use grandstand_wire::codes::ErrorCode;
use grandstand_wire::http::{self, Head, Scan};
use grandstand_wire::proxy;
use grandstand_wire::ws::FrameReader;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::time::{interval, sleep, timeout};
use tokio_rustls::TlsAcceptor;

use self::call::Client;
use self::connection::Framing;
use super::conn::Caller;
use super::pipe::{self, Bell};
use super::{ListenFault, Shared, web};
use crate::auth::door::{self, AddressKey};
use crate::auth::files;
use crate::edge::Serves;
use crate::metrics::add;

/// From the socket's arrival to the first byte of IRC: PROXY header, TLS, the WebSocket's request.
const HANDSHAKE_WAIT: Duration = Duration::from_secs(5);
/// For what connections still write after the workers have ended.
const END_WAIT: Duration = Duration::from_millis(500);
/// A listener that could not accept, or be opened again, tries again then.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often a listener looks whether this gateway is being emptied.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The name by which clients ask for IRC in a WebSocket. Source: Twitch's own clients, tmi.js.
const SUBPROTOCOL: &str = "irc";

/// By what a listener is spoken to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    Tcp,
    WebSocket,
}

impl By {
    pub fn name(self) -> &'static str {
        match self {
            By::Tcp => "tcp",
            By::WebSocket => "websocket",
        }
    }
}

/// What all connections share.
struct Hall {
    shared: Arc<Shared>,
    /// One for each worker; connections take turns.
    bells: Vec<Arc<Bell>>,
    next: AtomicUsize,
    task_bell: Arc<Bell>,
    open: AtomicUsize,
    by_address: Mutex<HashMap<AddressKey, u32>>,
}

/// The thread, and how it is told.
pub struct Irc {
    /// Where it accepts.
    pub listens: Vec<(By, SocketAddr)>,
    leave: watch::Sender<()>,
    /// Falls with the workers.
    alive: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Irc {
    /// Nobody new; who is in no room is sent away.
    pub fn drain(&self) {
        self.leave.send_replace(());
    }

    /// The workers have ended: what is left is written.
    pub fn stop(self) {
        drop((self.leave, self.alive));
        // A thread that ended by a panic has said so already.
        let _ = self.thread.join();
    }
}

/// Opens the listeners and starts the thread; `bells` ring the workers. `None` where no listener is asked for.
/// Errors: an address cannot be had.
pub(super) fn start(shared: Arc<Shared>, bells: Vec<Arc<Bell>>) -> Result<Option<Irc>, ListenFault> {
    let settings = &shared.settings;
    let wanted = settings.irc.tcp.iter().map(|address| (By::Tcp, *address));
    let wanted = wanted.chain(settings.irc.websocket.iter().map(|address| (By::WebSocket, *address)));
    let (mut listens, mut listeners) = (Vec::new(), Vec::new());
    for (by, address) in wanted {
        let fault = |fault| ListenFault(address, fault);
        let listener = super::listener(address, settings.shares_address).map_err(fault)?;
        listens.push((by, listener.local_addr().map_err(fault)?));
        listeners.push((by, listener));
    }
    let Some(first) = listens.first().map(|(_, address)| *address) else { return Ok(None) };
    let at_first = |fault| ListenFault(first, fault);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(at_first)?;
    let (task_bell, wakes) = pipe::task_bell();
    let (leave, leaving) = watch::channel(());
    let (alive, is_alive) = oneshot::channel();
    let hall = Arc::new(Hall {
        shared,
        bells,
        next: AtomicUsize::new(0),
        task_bell,
        open: AtomicUsize::new(0),
        by_address: Mutex::default(),
    });
    let run = move || runtime.block_on(run(hall, wakes, listeners, leaving, is_alive));
    let thread = std::thread::Builder::new().name("irc".to_owned()).spawn(run).map_err(at_first)?;
    Ok(Some(Irc { listens, leave, alive, thread }))
}

async fn run(
    hall: Arc<Hall>,
    wakes: impl Future<Output = ()> + Send + 'static,
    listeners: Vec<(By, std::net::TcpListener)>,
    leaving: watch::Receiver<()>,
    alive: oneshot::Receiver<()>,
) {
    // It ends with the runtime, like the listeners.
    tokio::spawn(wakes);
    for (by, listener) in listeners {
        tokio::spawn(listen(hall.clone(), by, listener, leaving.clone()));
    }
    // The other end falls and never speaks.
    let _ = alive.await;
    let emptied = async {
        while hall.open.load(Ordering::Relaxed) > 0 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    let _ = timeout(END_WAIT, emptied).await;
}

/// Takes who comes, until a drain. While an operator empties this gateway and others take streams on the port, the listener is closed.
async fn listen(hall: Arc<Hall>, by: By, listener: std::net::TcpListener, mut leaving: watch::Receiver<()>) {
    let Ok(address) = listener.local_addr() else { return };
    let mut listener = Some(listener);
    let mut look = interval(LOOK_EVERY);
    loop {
        let opened = match listener.take() {
            Some(listener) => TcpListener::from_std(listener),
            None => super::listener(address, true).and_then(TcpListener::from_std),
        };
        let open = match opened {
            Ok(open) => open,
            Err(fault) => {
                tracing::warn!(%fault, %address, "an IRC listener cannot be opened again yet");
                sleep(LOOK_EVERY).await;
                continue;
            }
        };
        while !hall.is_leaving() {
            tokio::select! {
                accepted = open.accept() => match accepted {
                    Ok((socket, peer)) => hall.take_in(by, socket, peer, &leaving),
                    Err(_) => {
                        add(&hall.shared.metrics.accept_failed, 1);
                        sleep(ACCEPT_PAUSE).await;
                    }
                },
                // The sender speaks once, and falls with the workers.
                _ = leaving.changed() => return,
                _ = look.tick() => {}
            }
        }
        drop(open);
        while hall.is_leaving() {
            look.tick().await;
        }
    }
}

/// A place of the process, given back when it falls.
struct Place(Arc<Hall>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
        let metrics = &self.0.shared.metrics;
        metrics.irc_connections.fetch_sub(1, Ordering::Relaxed);
        metrics.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A place of its client's address, given back when it falls.
struct AddressPlace<'h>(&'h Hall, AddressKey);

impl Drop for AddressPlace<'_> {
    fn drop(&mut self) {
        let mut held = self.0.by_address.lock().expect("no holder of this lock can panic");
        if let Some(n) = held.get_mut(&self.1) {
            *n -= 1;
            if *n == 0 {
                held.remove(&self.1);
            }
        }
    }
}

impl Hall {
    fn is_leaving(&self) -> bool {
        let (settings, admission) = (&self.shared.settings, &self.shared.admission);
        settings.shares_address && admission.is_draining() && admission.has_others()
    }

    /// The bell of the worker whose turn it is.
    fn next_bell(&self) -> Arc<Bell> {
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        self.bells[n % self.bells.len()].clone()
    }

    /// A number that no other connection has, in no process.
    fn nonce(&self) -> u64 {
        u64::from_le_bytes(files::random())
    }

    fn take_in(self: &Arc<Hall>, by: By, socket: TcpStream, peer: SocketAddr, leaving: &watch::Receiver<()>) {
        let (metrics, settings) = (&self.shared.metrics, &self.shared.settings);
        add(&metrics.accepted, 1);
        let n_sockets = metrics.connections.load(Ordering::Relaxed).max(0) as u64;
        if self.open.load(Ordering::Relaxed) >= settings.irc.connections_max as usize
            || n_sockets >= settings.sockets_max
        {
            // Whom there is no place for is not spoken to: its client comes back by itself.
            add(&metrics.irc_refused, 1);
            return;
        }
        self.open.fetch_add(1, Ordering::Relaxed);
        metrics.irc_connections.fetch_add(1, Ordering::Relaxed);
        metrics.connections.fetch_add(1, Ordering::Relaxed);
        let place = Place(self.clone());
        let leaving = leaving.clone();
        tokio::spawn(async move { meet(&place.0, by, socket, peer, leaving).await });
    }

    /// A place for one more of this address. Errors: it has as many as it may.
    fn address_place(&self, client: IpAddr) -> Result<Option<AddressPlace<'_>>, ()> {
        let settings = &self.shared.settings;
        if door::is_exempt(client, &settings.exempt) {
            return Ok(None);
        }
        let key = door::address_key(client);
        let mut held = self.by_address.lock().expect("no holder of this lock can panic");
        let n = held.entry(key).or_default();
        if *n >= settings.stream_limits.each.per_address {
            add(&self.shared.metrics.irc_refused, 1);
            return Err(());
        }
        *n += 1;
        Ok(Some(AddressPlace(self, key)))
    }
}

/// What comes before TLS, then TLS.
async fn meet(hall: &Hall, by: By, mut socket: TcpStream, mut peer: SocketAddr, leaving: watch::Receiver<()>) {
    let settings = &hall.shared.settings;
    let trusted = &settings.trusted_proxies;
    let mut rest = Vec::new();
    if settings.proxy_protocol && door::is_trusted(peer.ip(), trusted) {
        match timeout(HANDSHAKE_WAIT, named_by_proxy(&mut socket)).await {
            Ok(Some((client, after))) => {
                peer = client.unwrap_or(peer);
                rest = after;
            }
            Ok(None) | Err(_) => return,
        }
    }
    // Whose word counts for where its clients are says so in the WebSocket's request. Everybody else has a place of its address from here
    // on: one that never shakes hands holds no more of them than one that does.
    let at_request = by == By::WebSocket && door::is_trusted(peer.ip(), trusted);
    let _place = match at_request {
        true => None,
        false => match hall.address_place(peer.ip()) {
            Ok(place) => place,
            Err(()) => return,
        },
    };
    let Some(tls) = &settings.tls else { return enter(hall, by, socket, peer, rest, leaving).await };
    // No header is taken before TLS (`proxy_protocol` of the configuration).
    assert!(rest.is_empty(), "nothing was read before the handshake");
    match timeout(HANDSHAKE_WAIT, TlsAcceptor::from(tls.clone()).accept(socket)).await {
        Ok(Ok(session)) => {
            let resumed = session.get_ref().1.handshake_kind() == Some(rustls::HandshakeKind::Resumed);
            add(&hall.shared.metrics.handshakes[usize::from(resumed)], 1);
            enter(hall, by, session, peer, rest, leaving).await;
        }
        Ok(Err(_)) | Err(_) => add(&hall.shared.metrics.handshakes_failed, 1),
    }
}

/// Reads a PROXY protocol header: whom it names, and what came after it. `None`: there is none.
async fn named_by_proxy(socket: &mut TcpStream) -> Option<(Option<SocketAddr>, Vec<u8>)> {
    let mut bytes = Vec::new();
    loop {
        match proxy::scan(&bytes) {
            proxy::Scan::Whole { len, client } => return Some((client, bytes.split_off(len))),
            proxy::Scan::More => {}
            proxy::Scan::Refused(_) => return None,
        }
        if socket.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}

async fn enter<S: AsyncRead + AsyncWrite + Unpin>(
    hall: &Hall,
    by: By,
    mut socket: S,
    peer: SocketAddr,
    rest: Vec<u8>,
    leaving: watch::Receiver<()>,
) {
    let caller = Caller { peer, serves: Serves::All };
    let (client, framing, rest) = match by {
        By::Tcp => (Client::default(), Framing::Raw, rest),
        By::WebSocket => match timeout(HANDSHAKE_WAIT, upgraded(hall, &mut socket, rest)).await {
            Ok(Ok(Some((client, rest)))) => (client, Framing::WebSocket(FrameReader::new()), rest),
            Ok(Ok(None) | Err(_)) | Err(_) => return,
        },
    };
    let trusted = &hall.shared.settings.trusted_proxies;
    let _place = match by == By::WebSocket && door::is_trusted(peer.ip(), trusted) {
        true => {
            let forwarded = client.said.iter().filter(|(name, _)| name == FORWARDED).map(|(_, value)| &**value);
            let Ok(place) = hall.address_place(door::client(peer.ip(), forwarded, trusted)) else { return };
            place
        }
        // It has one already.
        false => None,
    };
    connection::attend(hall, socket, caller, client, framing, rest, leaving).await;
}

const FORWARDED: &str = "x-forwarded-for";

/// Answers the request of a WebSocket. `None`: it was refused. Errors: the socket's.
async fn upgraded<S: AsyncRead + AsyncWrite + Unpin>(
    hall: &Hall,
    socket: &mut S,
    mut bytes: Vec<u8>,
) -> io::Result<Option<(Client, Vec<u8>)>> {
    let mut seen = 0;
    let len = loop {
        match http::scan(&bytes, seen) {
            Scan::Whole(len) => break len,
            Scan::More => seen = bytes.len(),
            Scan::Refused(refusal) => return refuse(socket, ErrorCode::BadRequest, refusal.reason).await,
        }
        if socket.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
    };
    let rest = bytes.split_off(len);
    let head = match Head::parse(&bytes) {
        Ok(head) => head,
        Err(refusal) => return refuse(socket, ErrorCode::BadRequest, refusal.reason).await,
    };
    let settings = &hall.shared.settings;
    let host = head.header("host");
    let origins = head.headers().filter(|h| h.name.eq_ignore_ascii_case("origin")).map(|h| h.value);
    if !door::may_enter(origins, host, &settings.origins) {
        return refuse(socket, ErrorCode::BadOrigin, "this page may not connect").await;
    }
    if settings.development && !host.is_some_and(door::is_loopback_host) {
        return refuse(socket, ErrorCode::BadOrigin, "development mode is reached by a loopback name").await;
    }
    let upgrade = match http::upgrade(&head) {
        Ok(Some(upgrade)) => upgrade,
        Ok(None) => {
            let rule = "this listener serves IRC in a WebSocket alone (irc.websocket.listen)";
            return refuse(socket, ErrorCode::WrongListener, rule).await;
        }
        Err(refusal) => return refuse(socket, ErrorCode::BadRequest, refusal.reason).await,
    };
    let mut answer = Vec::with_capacity(192);
    http::write_status(101, &mut answer);
    http::write_header("upgrade", b"websocket", &mut answer);
    http::write_header("connection", b"Upgrade", &mut answer);
    http::write_header("sec-websocket-accept", upgrade.accept.as_bytes(), &mut answer);
    // Clients that offer a name hang up when it is not said back.
    if head.list("sec-websocket-protocol").any(|offered| offered == SUBPROTOCOL) {
        http::write_header("sec-websocket-protocol", SUBPROTOCOL.as_bytes(), &mut answer);
    }
    http::end_head(&mut answer);
    socket.write_all(&answer).await?;
    socket.flush().await?;
    let of_place = settings.places.header();
    let tells =
        |name: &str| [Some(FORWARDED), of_place].into_iter().flatten().any(|own| name.eq_ignore_ascii_case(own));
    let said = head.headers().filter(|h| tells(h.name)).map(|h| (h.name.to_ascii_lowercase(), h.value.to_vec()));
    Ok(Some((Client { said: said.collect(), host: host.map(str::to_owned) }, rest)))
}

async fn refuse<S: AsyncWrite + Unpin, T>(socket: &mut S, code: ErrorCode, detail: &str) -> io::Result<Option<T>> {
    socket.write_all(&web::problem(code, detail, false, &[])).await?;
    socket.shutdown().await?;
    Ok(None)
}
