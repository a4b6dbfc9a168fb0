//! A worker driven by hand, its clock moved: sockets whose other end vanished without a word are given up within 35 s.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use grandstand_core::time::Mono;
use socket2::SockRef;
use tokio::sync::mpsc;

use super::{Log, room};
use crate::admission::Admission;
use crate::auth::ticket::Tickets;
use crate::auth::token::Verifier;
use crate::clock;
use crate::gateway::worker::Worker;
use crate::gateway::{Deps, Serves, Settings, Shared, StreamLimits, listener};
use crate::link::bundles;
use crate::link::{Delay, HttpPart, ShardEnds, ShardHandle, Tallies, ToOwner, ToWorker, WorkerId, Workers};
use crate::metrics::Metrics;

/// What docs/protocol.md lets a client rely on.
const GONE_WITHIN: Duration = Duration::from_secs(35);

struct Still {
    worker: Worker,
    address: SocketAddr,
    ends: ShardEnds,
    _requests: mpsc::Receiver<crate::link::HttpRequest>,
    began: Mono,
}

fn still() -> Still {
    let (shard, ends) = ShardHandle::new();
    ends.status.set_ready(true);
    let (control, requests) = mpsc::channel(1);
    let each = bundles::Limits { per_user: 9, per_address: 9 };
    let settings = Settings {
        listen: "127.0.0.1:0".parse().unwrap(),
        edges: vec![],
        irc: crate::edge::Irc::default(),
        endpoints: None,
        origins: vec![],
        development: true,
        stream_limits: StreamLimits { each, total: None, per_room: None },
        exempt: vec![],
        trusted_proxies: vec![],
        places: Arc::default(),
        proxy_protocol: false,
        drain: Delay { retry_after: Duration::ZERO, spread: Duration::ZERO },
        sockets_max: 99,
        shares_address: false,
        deflate: true,
        http2: None,
        tls: None,
    };
    let deps = Deps {
        shard,
        workers: Workers::new(1),
        control: control.into(),
        verifier: Arc::new(Verifier::new(None, vec![], None, None, vec![], Arc::default()).unwrap()),
        tickets: Arc::new(Tickets::new(&[7; 32], clock::wall())),
        metrics: Arc::new(Metrics::new()),
        tallies: Tallies::default(),
        admission: Arc::new(Admission::new(None, clock::mono())),
        bundles: Arc::new(bundles::Bundles::alone(each, each)),
    };
    let listener: TcpListener = listener(settings.listen, false).unwrap();
    let address = listener.local_addr().unwrap();
    let listeners = vec![(mio::net::TcpListener::from_std(listener), Serves::All)];
    let worker = Worker::new(WorkerId(0), listeners, Arc::new(Shared::new(settings, deps))).unwrap();
    let began = worker.now;
    Still { worker, address, ends, _requests: requests, began }
}

impl Still {
    /// A client that asked for a stream and was greeted; from here on it is silent.
    fn viewer(&mut self, request: &str) -> TcpStream {
        let socket = self.caller(request);
        for link in self.ends.owner.take(Some(std::time::Instant::now()), || true).links {
            if let ToOwner::Subscribe { room, .. } = link {
                let log = Log { epoch: 7, seq: 1, ..Log::default() };
                let found = Ok(Arc::new(log.info(&room)));
                self.worker.on_mail(ToWorker::Room { room, found });
            }
        }
        socket
    }

    /// A client that said this.
    fn caller(&mut self, request: &str) -> TcpStream {
        let mut socket = TcpStream::connect(self.address).unwrap();
        socket.write_all(request.as_bytes()).unwrap();
        while self.worker.conns.is_empty() {
            self.worker.accept(0);
        }
        let slot = self.worker.conns.iter().next().unwrap().0;
        // The request is in the socket: loopback hands it over within the write.
        self.worker.turn(slot, true, true, false);
        socket
    }

    /// Moves the clock until the worker holds no socket; after how long.
    fn gone_after(&mut self) -> Duration {
        let mut passed = Duration::ZERO;
        while !self.worker.conns.is_empty() {
            assert!(passed < GONE_WITHIN * 2, "it is held for ever");
            passed += Duration::from_millis(50);
            self.worker.now = self.began + passed;
            self.worker.on_time();
        }
        passed
    }
}

#[test]
fn a_websocket_that_does_not_answer_its_ping_is_gone_within_35_seconds() {
    for _ in 0..20 {
        let mut still = still();
        let _socket = still.viewer(
            "GET /v1/rooms/r/stream HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
        );
        assert_eq!(still.worker.room_ids.len(), 1, "it was let in");
        let gone = still.gone_after();
        assert!(gone >= Duration::from_secs(30) && gone <= GONE_WITHIN + Duration::from_millis(100), "{gone:?}");
        assert_eq!(still.worker.rooms[still.worker.room_ids[&room("r")]].seats.len(), 0, "its seat is free");
    }
}

#[test]
fn what_is_written_to_a_vanished_stream_is_given_up_by_the_kernel_in_time() {
    let mut still = still();
    let mut socket = still.viewer("GET /v1/rooms/r/sse HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut said = [0; 4096];
    let n = socket.read(&mut said).unwrap();
    assert!(said[..n].starts_with(b"HTTP/1.1 200"));
    let mut passed = Duration::ZERO;
    socket.set_nonblocking(true).unwrap();
    let said_again = |socket: &mut TcpStream| socket.read(&mut [0; 4096]).is_ok_and(|n| n > 0);
    while !said_again(&mut socket) {
        passed += Duration::from_millis(50);
        assert!(passed <= Duration::from_secs(16), "an event stream speaks every 15 s");
        still.worker.now = still.began + passed;
        still.worker.on_time();
    }
    let conn = still.worker.conns.iter_mut().next().unwrap().1;
    let accepted = SockRef::from(&*conn.socket.source().expect("a socket of its own"));
    let unacked = accepted.tcp_user_timeout().unwrap().expect("a limit");
    assert!(passed + unacked <= GONE_WITHIN + Duration::from_millis(100), "{passed:?} and {unacked:?}");
    // Who waits in silence, as a poll does, is probed by the kernel.
    assert!(accepted.keepalive().unwrap());
    let probes = accepted.tcp_keepalive_time().unwrap() + accepted.tcp_keepalive_interval().unwrap();
    assert!(probes >= unacked && probes <= GONE_WITHIN, "{probes:?}: the second look finds {unacked:?} passed");
}

#[test]
fn f31_a_turn_that_fails_costs_its_own_connection_and_no_other() {
    let mut still = still();
    let mut broken = still.viewer("GET /v1/rooms/r/sse HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let slot = still.worker.conns.iter().next().unwrap().0;
    let mut other = TcpStream::connect(still.address).unwrap();
    while still.worker.conns.len() < 2 {
        still.worker.accept(0);
    }
    let beside = still.worker.conns.iter().map(|(slot, _)| slot).find(|other| *other != slot).unwrap();
    still.worker.guarded(slot, |_| panic!("an assertion that does not hold"));
    assert!(!still.worker.conns.contains(slot), "its socket is closed");
    assert_eq!(still.worker.rooms[still.worker.room_ids[&room("r")]].seats.len(), 0, "its seat is free");
    assert_eq!(still.worker.shared.metrics.assertions_failed.load(std::sync::atomic::Ordering::Relaxed), 1);
    broken.read_to_end(&mut Vec::new()).unwrap();
    other.write_all(b"GET /v1/rooms/r/sse HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    still.worker.turn(beside, true, true, false);
    let mut said = [0; 12];
    other.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"HTTP/1.1 200");
}

#[test]
fn a_long_answer_to_a_caller_on_this_machine_leaves_at_once_and_its_buffer_is_given_back() {
    let answer = |n_bytes: usize| {
        let (head, ()) = http::Response::new(()).into_parts();
        HttpPart::Whole { head, body: vec![b'x'; n_bytes].into() }
    };
    let mut still = still();
    let mut socket = still.caller("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let slot = still.worker.conns.iter().next().unwrap().0;
    still.worker.on_http_part(slot, answer(100_000));
    let conn = &mut still.worker.conns[slot];
    assert!(conn.out.is_empty(), "{} bytes wait for the caller to read", conn.out.len());
    let accepted = SockRef::from(&*conn.socket.source().expect("a socket of its own"));
    assert_eq!(accepted.send_buffer_size().unwrap(), 64 * 1024, "what comes next on it is bounded as ever");
    let mut said = vec![0; 100_000];
    socket.read_exact(&mut said).unwrap();
    assert!(said.starts_with(b"HTTP/1.1 200"));
}

#[test]
fn an_accepted_socket_has_what_the_listener_was_given() {
    let mut still = still();
    let _socket = still.viewer("GET /v1/rooms/r/sse HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let conn = still.worker.conns.iter_mut().next().unwrap().1;
    let accepted = SockRef::from(&*conn.socket.source().expect("a socket of its own"));
    assert!(accepted.tcp_nodelay().unwrap(), "an event leaves when it is written");
    assert_eq!(accepted.tcp_notsent_lowat().unwrap(), 16 * 1024, "a slow viewer's place in the ring is known");
    // The kernel counts its own bookkeeping in, and tells twice what was asked for.
    assert_eq!(accepted.send_buffer_size().unwrap(), 64 * 1024, "a stalled phone holds no more");
    assert_eq!(accepted.tcp_user_timeout().unwrap(), Some(Duration::from_secs(20)));
    assert_eq!(accepted.tcp_keepalive_time().unwrap(), Duration::from_secs(17));
    assert_eq!(accepted.tcp_keepalive_interval().unwrap(), Duration::from_secs(5));
}

#[test]
fn a_room_with_many_scores_waits_in_the_queue_of_urgent_rooms_once() {
    let mut still = still();
    let (large, small) = (still.worker.room_place(&room("large")), still.worker.room_place(&room("small")));
    for idx in [large, large, small, large, small] {
        still.worker.queue_walk_as(idx, true);
    }
    assert_eq!(Vec::from(still.worker.urgent.clone()), [large, small]);
}
