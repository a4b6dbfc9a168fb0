//! HTTP/2: a thread beside each worker that ends it and speaks HTTP/1.0 to the loop, one pipe for each request.
//!
//! ```text
//! worker: whole ClientHello, offers h2 ─► this thread: handshake ─► frames ─► a stream ─► pipe ─► the same worker's loop
//! ```
//!
//! Nothing is decided here about a room, a token, an origin or a limit of users and addresses: what the loop answers is what a
//! stream says. What is decided here is what only HTTP/2 has: how many streams, how large a head, how often resets and pings,
//! how long one may stand still. All of it is in the table below. WebSocket over HTTP/2 (RFC 8441) is not offered.
//!
//! The awkward case is a crowd that comes back: signatures take their turn one by one between everything else, so those
//! who stayed are served meanwhile.
//!
//! Why this way: docs/decisions/0018-http2.md.

mod exchange;
mod keeping;

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use grandstand_core::rng::Rng;
use h2::server::{Connection, SendResponse};
use h2::{Ping, PingPong, Reason, RecvStream};
use rustls::server::Acceptor;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::LazyConfigAcceptor;

use self::keeping::{Act, Keeping, Seen};
use super::Shared;
use super::conn::Caller;
use super::meter::{Gauge, Metered};
use super::pipe::{self, Bell};
use crate::clock;
use crate::metrics::add;

/// Handshakes begun and not done, those on their way from the loop among them: with 0.3 ms for a signature all are answered
/// long before their time is over. One more is spoken to in HTTP/1.1 by the loop, when it can be.
const HANDSHAKES_MAX: usize = 512;
/// From the socket's arrival to the client's first frame. Source: threats, table of limits (TLS handshake 5 s).
const HANDSHAKE_WAIT: Duration = Duration::from_secs(5);
/// Streams of one connection at once; each also counts for its address and user. Source: threats, table of limits.
const STREAMS_MAX: u32 = 64;
/// Names and values of a request, unpacked; the loop then takes 8 KiB as text. Source: threats, table of limits.
const HEAD_LIST_BYTES_MAX: u32 = 16 * 1024;
/// A body (64 KiB at most) and a frame's worth, so that one that is too long is seen without asking for more.
const STREAM_WINDOW: u32 = 80 * 1024;
/// Bodies that are on their way on one connection, together: what it can make us hold.
const CONNECTION_WINDOW: u32 = 256 * 1024;
/// Of one stream's answer, ahead of the socket; the pipe before it holds as much again.
const STREAM_AHEAD_BYTES: usize = 16 * 1024;
/// Streams that were reset are remembered, so that what was on its way to them is no fault: so many, so long. Source: h2's own.
const RESET_STREAMS_KEPT: usize = 50;
/// Streams reset before they were looked at, and resets that a client's faults made us send. Source: h2's own; `meter.rs`
/// counts both over time.
const RESET_UNSEEN_MAX: usize = 20;
const RESET_BY_FAULT_MAX: usize = 100;
/// Small DATA frames nobody has read yet, by their overhead. Source: RUSTSEC-2026-0258; h2's own.
const SMALL_DATA_BUDGET: usize = 25_600;
/// For the last frames of a connection that ends against its peer's will.
const LEAVE_WAIT: Duration = Duration::from_secs(2);
/// For what connections still write after the workers have ended.
const END_WAIT: Duration = Duration::from_millis(500);

/// A socket whose ClientHello offers HTTP/2; nothing was read from it yet, and it is counted as open.
pub struct Arrival {
    pub socket: std::net::TcpStream,
    pub caller: Caller,
    /// Given back when the handshake is over.
    pub place: OwnedSemaphorePermit,
}

/// A worker's way to its thread.
pub struct Http2 {
    /// Closed by a drain.
    arrivals: Option<mpsc::Sender<Arrival>>,
    places: Arc<Semaphore>,
    /// Falls with the worker.
    _alive: oneshot::Sender<()>,
}

/// What all connections of a thread share.
struct Hall {
    shared: Arc<Shared>,
    tls: Arc<rustls::ServerConfig>,
    loop_bell: Arc<Bell>,
    task_bell: Arc<Bell>,
    /// One signature at a time.
    turns: Semaphore,
}

impl Http2 {
    /// A place for one more; `None` when too many are shaking hands, or the gateway drains.
    pub fn place(&self) -> Option<OwnedSemaphorePermit> {
        self.arrivals.as_ref()?;
        self.places.clone().try_acquire_owned().ok()
    }

    /// The other thread takes it from here.
    pub fn send(&self, arrival: Arrival) {
        if let Some(arrivals) = &self.arrivals {
            // Whoever has a place finds one in the channel, unless its thread is gone, and the process with it.
            let _ = arrivals.try_send(arrival);
        }
    }

    /// Nobody new; everybody is told to go when their streams have ended.
    pub fn drain(&mut self) {
        self.arrivals = None;
    }
}

/// Starts the thread beside worker `idx`; `loop_bell` rings that worker. Errors: no thread or no descriptors.
pub fn start(
    idx: usize,
    shared: Arc<Shared>,
    tls: Arc<rustls::ServerConfig>,
    loop_bell: Arc<Bell>,
) -> io::Result<(Http2, JoinHandle<()>)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (arrivals, from_loop) = mpsc::channel(HANDSHAKES_MAX);
    let (_alive, alive) = oneshot::channel();
    let (task_bell, wakes) = pipe::task_bell();
    let hall = Hall { shared, tls, loop_bell, task_bell, turns: Semaphore::new(1) };
    let run = move || runtime.block_on(run(Arc::new(hall), wakes, from_loop, alive));
    let thread = std::thread::Builder::new().name(format!("http2-{idx}")).spawn(run)?;
    let places = Arc::new(Semaphore::new(HANDSHAKES_MAX));
    Ok((Http2 { arrivals: Some(arrivals), places, _alive }, thread))
}

async fn run(
    hall: Arc<Hall>,
    wakes: impl Future<Output = ()> + Send + 'static,
    mut arrivals: mpsc::Receiver<Arrival>,
    alive: oneshot::Receiver<()>,
) {
    // It ends with the runtime.
    tokio::spawn(wakes);
    let (leave, leaving) = watch::channel(());
    while let Some(arrival) = arrivals.recv().await {
        tokio::spawn(attend(hall.clone(), arrival, leaving.clone()));
    }
    drop(leaving);
    // Marks the value as changed.
    let _ = leave.send(());
    tokio::select! {
        () = leave.closed() => {}
        _ = alive => {
            let _ = timeout(END_WAIT, leave.closed()).await;
        }
    }
}

/// One connection, from its handshake to its end.
async fn attend(hall: Arc<Hall>, arrival: Arrival, leaving: watch::Receiver<()>) {
    let metrics = &hall.shared.metrics;
    metrics.http2_connections.fetch_add(1, Ordering::Relaxed);
    let shaken = timeout(HANDSHAKE_WAIT, shake_hands(&hall, arrival.socket)).await;
    drop(arrival.place);
    match shaken {
        Ok(Ok((connection, gauge))) => converse(&hall, connection, arrival.caller, &gauge, leaving).await,
        Ok(Err(fault)) => {
            add(&metrics.handshakes_failed, 1);
            tracing::debug!(peer = %arrival.caller.peer, %fault, "an HTTP/2 handshake failed");
        }
        Err(_) => add(&metrics.handshakes_failed, 1),
    }
    metrics.http2_connections.fetch_sub(1, Ordering::Relaxed);
    metrics.connections.fetch_sub(1, Ordering::Relaxed);
}

type Wire = Metered<tokio_rustls::server::TlsStream<TcpStream>>;

/// TLS, then HTTP/2's preface. Errors: the peer's part of either is broken.
async fn shake_hands(hall: &Hall, socket: std::net::TcpStream) -> io::Result<(Connection<Wire, Bytes>, Arc<Gauge>)> {
    let socket = TcpStream::from_std(socket)?;
    let hello = LazyConfigAcceptor::new(Acceptor::default(), socket).await?;
    let turn = hall.turns.acquire().await.map_err(io::Error::other)?;
    // The signature is made here; then everyone else has a turn before the next.
    let answer = hello.into_stream(hall.tls.clone());
    tokio::task::yield_now().await;
    drop(turn);
    let stream = answer.await?;
    let resumed = stream.get_ref().1.handshake_kind() == Some(rustls::HandshakeKind::Resumed);
    add(&hall.shared.metrics.handshakes[usize::from(resumed)], 1);
    let gauge = Arc::new(Gauge::default());
    let connection = h2::server::Builder::new()
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEAD_LIST_BYTES_MAX)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buffer_size(STREAM_AHEAD_BYTES)
        .max_concurrent_reset_streams(RESET_STREAMS_KEPT)
        .max_pending_accept_reset_streams(RESET_UNSEEN_MAX)
        .max_local_error_reset_streams(Some(RESET_BY_FAULT_MAX))
        .data_frame_budget(SMALL_DATA_BUDGET)
        .handshake(Metered::new(stream, gauge.clone()))
        .await
        .map_err(io::Error::other)?;
    Ok((connection, gauge))
}

/// A budget of `meter.rs` is spent.
struct Over;

async fn converse(
    hall: &Arc<Hall>,
    mut connection: Connection<Wire, Bytes>,
    caller: Caller,
    gauge: &Gauge,
    mut leaving: watch::Receiver<()>,
) {
    let mut pings = connection.ping_pong().expect("it is taken once");
    // One more holder for each stream.
    let streams = Arc::new(());
    let mut leaves = false;
    let admission = &hall.shared.admission;
    let began = clock::mono();
    // Ports and moments differ; the lots of a crowd need no more.
    let lot = Rng::new(began.0 ^ u64::from(caller.peer.port()) << 40).below(1_000_000) as u32;
    let mut keeping = Keeping::new(lot, began);
    let mut look = pin!(sleep(Duration::ZERO));
    loop {
        tokio::select! {
            next = next(&mut connection, &mut pings, gauge) => match next {
                Ok(Some((request, respond))) => {
                    keeping.busy(clock::mono());
                    tokio::spawn(exchange::carry(hall.clone(), caller, request, respond, streams.clone()));
                }
                Ok(None) => return,
                Err(Over) => {
                    add(&hall.shared.metrics.http2_calmed, 1);
                    tracing::debug!(peer = %caller.peer, "an HTTP/2 peer asks for more than it may");
                    connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                    let _ = timeout(LEAVE_WAIT, poll_fn(|cx| connection.poll_closed(cx))).await;
                    return;
                }
            },
            changed = leaving.changed(), if !leaves => {
                // The sender falls after it has spoken.
                let _ = changed;
                leaves = true;
                if keeping.go() {
                    connection.graceful_shutdown();
                }
            }
            () = &mut look => {
                let (now, drain) = (clock::mono(), admission.drain().filter(|_| admission.is_draining()));
                let has_streams = Arc::strong_count(&streams) > 1;
                match keeping.look(Seen { heard: gauge.heard(), has_streams, drain }, now) {
                    Act::Wait => {}
                    // One that is still on its way is answered like a new one.
                    Act::Ask => drop(pings.send_ping(Ping::opaque())),
                    Act::Go => connection.graceful_shutdown(),
                    Act::End => return,
                }
                look.as_mut().reset(Instant::now() + keeping.next(drain, now));
            }
        }
    }
}

/// The next request; `None` when the connection is over.
async fn next(
    connection: &mut Connection<Wire, Bytes>,
    pings: &mut PingPong,
    gauge: &Gauge,
) -> Result<Option<(http::Request<RecvStream>, SendResponse<Bytes>)>, Over> {
    poll_fn(|cx| {
        let accepted = connection.poll_accept(cx);
        if gauge.is_over() {
            return Poll::Ready(Err(Over));
        }
        if let Poll::Ready(next) = accepted {
            return Poll::Ready(Ok(next.and_then(Result::ok)));
        }
        // Takes the answer off its place, so that the next ping can be sent; that it came was heard already.
        let _ = pings.poll_pong(cx);
        Poll::Pending
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::{Semaphore, mpsc, oneshot};

    use super::{HANDSHAKES_MAX, Http2};

    #[test]
    fn handshakes_have_512_places_and_none_in_a_drain() {
        let (arrivals, _from_loop) = mpsc::channel(HANDSHAKES_MAX);
        let (_alive, _) = oneshot::channel();
        let places = Arc::new(Semaphore::new(HANDSHAKES_MAX));
        let mut http2 = Http2 { arrivals: Some(arrivals), places, _alive };
        let mut held: Vec<_> = (0..512).map(|n| http2.place().unwrap_or_else(|| panic!("no place {n}"))).collect();
        assert!(http2.place().is_none());
        drop(held.pop());
        assert!(http2.place().is_some());
        http2.drain();
        assert!(http2.place().is_none());
    }
}
