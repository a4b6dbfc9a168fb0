//! The floor under a fan-out: accept, read, write, and then nothing but `send` over all sockets at a given pace.
//!
//! `cargo run --release -p grandstand-load --example bare_send -- ws|sse VIEWERS SENDS_A_SECOND SECONDS BYTES COMMENTS`
//!
//! It greets as a Grandstand server would and sends comments with rising ids, so that `grandstand load --idle` can be its
//! audience and reads exactly as it reads a real server. Each frame of BYTES bytes holds COMMENTS comments (an array, or as
//! many SSE events). Nothing is decided for anybody: what a real server costs above this is its own. When VIEWERS are
//! greeted it waits 2 s, sends, and prints its own CPU time a connection and a send as a line of JSON.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpListener as StdListener;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use grandstand_wire::ws::{Opcode, write_frame};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use rustix::time::{ClockId, clock_gettime};
use slab::Slab;
use socket2::{Domain, Protocol, Socket, Type};

const LISTENER: Token = Token(usize::MAX);
const HELLO: &str = r#"{"type":"hello","cursor":0,"pseq":0,"resumed":false,"comments":"all"}"#;
/// From the last greeting to the first send; and the audience stays this long after the last.
const PAUSE: Duration = Duration::from_secs(2);

struct Args {
    sse: bool,
    viewers: usize,
    per_second: f64,
    seconds: f64,
    bytes: usize,
    comments: usize,
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [transport, viewers, per_second, seconds, bytes, comments] = &args[..] else {
        anyhow::bail!("six arguments: ws|sse VIEWERS SENDS_A_SECOND SECONDS BYTES COMMENTS");
    };
    ensure!(transport == "ws" || transport == "sse", "the transport is ws or sse");
    let args = Args {
        sse: transport == "sse",
        viewers: viewers.parse()?,
        per_second: per_second.parse()?,
        seconds: seconds.parse()?,
        bytes: bytes.parse()?,
        comments: comments.parse()?,
    };
    let listener = listener()?;
    println!("ready http://{}", listener.local_addr()?);
    serve(&args, listener)
}

/// With the options of the real server's listener, which its connections inherit.
fn listener() -> Result<StdListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_send_buffer_size(32 * 1024)?;
    socket.set_tcp_notsent_lowat(16 * 1024)?;
    socket.set_tcp_user_timeout(Some(Duration::from_secs(20)))?;
    let any: std::net::SocketAddr = "127.0.0.1:0".parse()?;
    socket.bind(&any.into())?;
    socket.listen(4_096)?;
    Ok(socket.into())
}

/// CPU time of this process in microseconds.
fn cpu_us() -> f64 {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    spent.tv_sec as f64 * 1e6 + spent.tv_nsec as f64 / 1e3
}

struct Conn {
    stream: TcpStream,
    greeted: bool,
    /// Of a frame that the socket took only a part of.
    rest: Vec<u8>,
}

fn serve(args: &Args, listener: StdListener) -> Result<()> {
    let mut listener = TcpListener::from_std(listener);
    let mut poll = Poll::new()?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut events = Events::with_capacity(1_024);
    let mut conns: Slab<Conn> = Slab::new();
    let mut buffer = vec![0; 64 << 10];
    let greeting = greeting(args.sse);
    let (mut n_greeted, mut cpu_at_start) = (0, None);
    while n_greeted < args.viewers {
        poll.poll(&mut events, None)?;
        for event in &events {
            if event.token() == LISTENER {
                while let Ok((mut stream, _)) = listener.accept() {
                    let slot = conns.vacant_entry();
                    let interest = Interest::READABLE | Interest::WRITABLE;
                    poll.registry().register(&mut stream, Token(slot.key()), interest)?;
                    slot.insert(Conn { stream, greeted: false, rest: Vec::new() });
                }
            } else if event.is_readable() {
                let Some(conn) = conns.get_mut(event.token().0) else { continue };
                match conn.stream.read(&mut buffer) {
                    Ok(0) => drop(conns.remove(event.token().0)),
                    // The audience sets its room up first and asks where streams are served; that is not counted.
                    Ok(n) if asks_first(&buffer[..n]) => {
                        conn.stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")?;
                        cpu_at_start.get_or_insert_with(cpu_us);
                    }
                    Ok(_) if !conn.greeted => {
                        conn.stream.write_all(&greeting)?;
                        conn.greeted = true;
                        n_greeted += 1;
                    }
                    Ok(_) => {}
                    Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                    Err(_) => drop(conns.remove(event.token().0)),
                }
            }
        }
    }
    let accepted_us = (cpu_us() - cpu_at_start.context("no room was put")?) / n_greeted as f64;
    std::thread::sleep(PAUSE);
    let mut sent = Sent::default();
    let mut greeted: Vec<Conn> = conns.into_iter().map(|(_, conn)| conn).filter(|conn| conn.greeted).collect();
    // As many threads as the server has workers.
    let n_threads = std::thread::available_parallelism()?.get();
    let share = greeted.len().div_ceil(n_threads);
    let before = cpu_us();
    let start = Instant::now();
    std::thread::scope(|threads| {
        let running: Vec<_> =
            greeted.chunks_mut(share).map(|conns| threads.spawn(|| send(args, conns, start))).collect();
        for thread in running {
            let one = thread.join().expect("a sending thread does not panic");
            sent.frames += one.frames;
            sent.full += one.full;
            sent.gone += one.gone;
        }
    });
    let per_send = (cpu_us() - before) / sent.frames.max(1) as f64;
    ensure!(sent.gone <= sent.frames / 100, "{} sends met a viewer that had left", sent.gone);
    println!(
        r#"{{"cpu_us_per_connection":{accepted_us:.3},"cpu_us_per_send":{per_send:.4},"sends":{},"full":{},"seconds":{:.3}}}"#,
        sent.frames,
        sent.full,
        start.elapsed().as_secs_f64()
    );
    std::thread::sleep(PAUSE);
    Ok(())
}

#[derive(Clone, Copy, Default)]
struct Sent {
    frames: u64,
    /// Sockets that took nothing.
    full: u64,
    /// Viewers that had left.
    gone: u64,
}

/// The loop itself: each round all sockets, then nothing until the next is due.
fn send(args: &Args, conns: &mut [Conn], start: Instant) -> Sent {
    let mut sent = Sent::default();
    for round in 0..(args.seconds * args.per_second) as u64 {
        let at = Duration::from_secs_f64(round as f64 / args.per_second);
        std::thread::sleep(at.saturating_sub(start.elapsed()));
        let bytes = frame(args, round);
        for conn in &mut *conns {
            let bytes = if conn.rest.is_empty() { &bytes } else { &conn.rest };
            match conn.stream.write(bytes) {
                Ok(n) => {
                    sent.frames += u64::from(conn.rest.is_empty());
                    conn.rest = bytes[n..].to_vec();
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => sent.full += 1,
                Err(_) => sent.gone += 1,
            }
        }
    }
    sent
}

/// A call that opens no stream: the room's settings, or its snapshot.
fn asks_first(head: &[u8]) -> bool {
    let line = head.split(|b| *b == b'\r').next().unwrap_or_default();
    line.starts_with(b"PUT ") || line.ends_with(b"/snapshot HTTP/1.1")
}

fn greeting(sse: bool) -> Vec<u8> {
    let mut out = Vec::new();
    if sse {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n");
        grandstand_wire::sse::write("hello", Some(0), HELLO.as_bytes(), &mut out);
    } else {
        out.extend_from_slice(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n");
        write_frame(Opcode::Text, HELLO.as_bytes(), &mut out);
    }
    out
}

/// The bytes every viewer is sent in this round: of `args.bytes` in sum, or as few as the comments need.
fn frame(args: &Args, round: u64) -> Vec<u8> {
    // The audience's clock: microseconds since boot.
    let now = clock_gettime(ClockId::Monotonic);
    let now = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
    let share = args.bytes / args.comments;
    let comment = |n: usize| {
        let id = round * args.comments as u64 + n as u64 + 1;
        let head = format!(r#"{{"type":"comment","event_id":{id},"body":"{now} "#);
        // A frame's or an event's own bytes come to about 4 and 28.
        let around = if args.sse { 28 + head.len() } else { 4 + head.len() };
        format!("{head}{}\"}}", "x".repeat(share.saturating_sub(around)))
    };
    let mut out = Vec::new();
    if args.sse {
        for n in 0..args.comments {
            let id = round * args.comments as u64 + n as u64 + 1;
            grandstand_wire::sse::write("comment", Some(id), comment(n).as_bytes(), &mut out);
        }
    } else if args.comments == 1 {
        write_frame(Opcode::Text, comment(0).as_bytes(), &mut out);
    } else {
        let all: Vec<String> = (0..args.comments).map(comment).collect();
        write_frame(Opcode::Text, format!("[{}]", all.join(",")).as_bytes(), &mut out);
    }
    out
}
