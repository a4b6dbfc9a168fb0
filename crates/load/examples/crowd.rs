//! An audience that knows nothing of what it watches, so that servers of different protocols can be compared by the same one.
//!
//! `cargo run --release -p grandstand-load --example crowd -- HOST:PORT SETTINGS.json`, then commands on stdin, each answered by a
//! line of JSON:
//!
//! - `connect N`: opens connections until N are there, with the request of the settings, and waits until each was greeted;
//! - `publish RATE BURST SECONDS`: so many HTTP requests a second, BURST of them at once over as many connections, and counts
//!   what arrives until nothing more does;
//! - `listen SECONDS`: counts what arrives.
//!
//! Deliveries are counted by the marker `#!`, which every published body holds once: no protocol is parsed but for pings. It
//! reads as fast as it can with one thread, and never judges.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream as StdStream};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use grandstand_wire::ws::{Opcode, write_masked_frame};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

/// Connections that are not greeted yet: fewer than any listener's backlog.
const OPENING_MAX: usize = 200;
/// Nothing came for so long: all that was sent is here.
const QUIET: Duration = Duration::from_secs(1);
/// For a server to greet everyone, and for one answer to a publish: a server that cannot keep up is behind by all that was asked.
const PATIENCE: Duration = Duration::from_secs(300);
const MARKER: [u8; 2] = *b"#!";

#[derive(serde::Deserialize)]
struct Settings {
    /// The whole request a viewer sends.
    request: String,
    /// A WebSocket text frame sent when the head of the answer has come.
    #[serde(default)]
    then: String,
    /// A viewer is greeted when its bytes so far hold this.
    greeting: String,
    /// The head of a publish, without Content-Length and the empty line.
    #[serde(default)]
    publish_head: String,
    /// Its body; `{n}` is a number of its own each time.
    #[serde(default)]
    publish_body: String,
}

struct Conn {
    stream: TcpStream,
    asked: bool,
    /// What came before the greeting.
    before: Option<Vec<u8>>,
    said_then: bool,
    /// The last byte read: a marker may lie across two reads.
    last: u8,
}

#[derive(Default)]
struct Counted {
    delivered: u64,
    reads: u64,
    bytes: u64,
    gone: u64,
}

struct Crowd {
    settings: Settings,
    address: SocketAddr,
    poll: Poll,
    conns: HashMap<usize, Conn>,
    next: usize,
    greeted: usize,
    counted: Counted,
    heard: Instant,
    buffer: Vec<u8>,
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [address, settings] = &args[..] else { anyhow::bail!("two arguments: HOST:PORT SETTINGS.json") };
    let settings: Settings = serde_json::from_str(&std::fs::read_to_string(settings).context("the settings")?)?;
    let mut crowd = Crowd {
        settings,
        address: address.parse()?,
        poll: Poll::new()?,
        conns: HashMap::new(),
        next: 0,
        greeted: 0,
        counted: Counted::default(),
        heard: Instant::now(),
        buffer: vec![0; 256 << 10],
    };
    let (tell, commands) = mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if tell.send(line).is_err() {
                return;
            }
        }
    });
    while let Some(line) = crowd.wait_for(&commands)? {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["connect", n] => crowd.connect(n.parse()?)?,
            ["listen", seconds] => {
                crowd.counted = Counted::default();
                let until = Instant::now() + Duration::from_secs_f64(seconds.parse()?);
                while Instant::now() < until {
                    crowd.turn()?;
                }
                crowd.report(0, 0, seconds.parse()?);
            }
            ["publish", rate, burst, seconds] => crowd.publish(rate.parse()?, burst.parse()?, seconds.parse()?)?,
            _ => anyhow::bail!("unknown command: {line}"),
        }
    }
    Ok(())
}

impl Crowd {
    /// Reads what comes until there is a command. `None`: there will be none.
    fn wait_for(&mut self, commands: &Receiver<String>) -> Result<Option<String>> {
        loop {
            match commands.try_recv() {
                Ok(line) => return Ok(Some(line)),
                Err(TryRecvError::Disconnected) => return Ok(None),
                Err(TryRecvError::Empty) => self.turn()?,
            }
        }
    }

    fn connect(&mut self, n: usize) -> Result<()> {
        let start = Instant::now();
        while self.greeted < n {
            let (greeted, gone) = (self.greeted, self.counted.gone);
            ensure!(start.elapsed() < PATIENCE && gone <= n as u64, "{greeted} of {n} were greeted, {gone} gone");
            while self.conns.len() < n && self.conns.len() - self.greeted < OPENING_MAX {
                let mut stream = TcpStream::connect(self.address)?;
                let interest = Interest::READABLE | Interest::WRITABLE;
                self.poll.registry().register(&mut stream, Token(self.next), interest)?;
                let conn = Conn { stream, asked: false, before: Some(Vec::new()), said_then: false, last: 0 };
                self.conns.insert(self.next, conn);
                self.next += 1;
            }
            self.turn()?;
        }
        println!(r#"{{"connected":{},"seconds":{:.3}}}"#, self.greeted, start.elapsed().as_secs_f64());
        Ok(())
    }

    fn turn(&mut self) -> Result<()> {
        let mut events = Events::with_capacity(1_024);
        match self.poll.poll(&mut events, Some(Duration::from_millis(20))) {
            Err(e) if e.kind() == ErrorKind::Interrupted => return Ok(()),
            polled => polled?,
        }
        for event in &events {
            let key = event.token().0;
            let Some(conn) = self.conns.get_mut(&key) else { continue };
            if event.is_writable() && !conn.asked {
                conn.asked = true;
                // A fresh socket takes a request whole.
                if conn.stream.write_all(self.settings.request.as_bytes()).is_err() {
                    self.forget(key);
                    continue;
                }
            }
            if event.is_readable() || event.is_read_closed() {
                self.read(key);
            }
        }
        Ok(())
    }

    fn forget(&mut self, key: usize) {
        if let Some(conn) = self.conns.remove(&key) {
            self.greeted -= usize::from(conn.before.is_none());
            self.counted.gone += 1;
        }
    }

    fn read(&mut self, key: usize) {
        loop {
            let Some(conn) = self.conns.get_mut(&key) else { return };
            let n = match conn.stream.read(&mut self.buffer) {
                Ok(0) => return self.forget(key),
                Ok(n) => n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return self.forget(key),
            };
            let bytes = &self.buffer[..n];
            self.counted.reads += 1;
            self.counted.bytes += n as u64;
            self.heard = Instant::now();
            if let Some(before) = &mut conn.before {
                before.extend_from_slice(bytes);
                let holds = |text: &str| before.windows(text.len()).any(|w| w == text.as_bytes());
                let greeted = holds(&self.settings.greeting);
                if !conn.said_then && !self.settings.then.is_empty() && holds("\r\n\r\n") {
                    conn.said_then = true;
                    let mut frame = Vec::new();
                    write_masked_frame(Opcode::Text, true, self.settings.then.as_bytes(), [7, 7, 7, 7], &mut frame);
                    if conn.stream.write_all(&frame).is_err() {
                        return self.forget(key);
                    }
                }
                if greeted {
                    conn.before = None;
                    self.greeted += 1;
                }
                continue;
            }
            let across = conn.last == MARKER[0] && bytes[0] == MARKER[1];
            self.counted.delivered += u64::from(across) + bytes.windows(2).filter(|w| *w == MARKER).count() as u64;
            conn.last = bytes[n - 1];
            if let Some(answer) = answer_to_ping(bytes)
                && conn.stream.write_all(&answer).is_err()
            {
                return self.forget(key);
            }
            if n < self.buffer.len() {
                return;
            }
        }
    }

    fn publish(&mut self, rate: f64, burst: usize, seconds: f64) -> Result<()> {
        self.counted = Counted::default();
        let rounds = (rate * seconds / burst as f64).round() as usize;
        let every = Duration::from_secs_f64(burst as f64 / rate);
        let start = Instant::now() + Duration::from_millis(200);
        let threads: Vec<_> = (0..burst)
            .map(|one| {
                let (address, head, body) =
                    (self.address, self.settings.publish_head.clone(), self.settings.publish_body.clone());
                let each = (0..rounds).map(move |round| (start + every * round as u32, round * burst + one));
                std::thread::spawn(move || publish_at(address, &head, &body, each))
            })
            .collect();
        while !threads.iter().all(std::thread::JoinHandle::is_finished) {
            self.turn()?;
        }
        let took = start.elapsed().as_secs_f64();
        while self.heard.elapsed() < QUIET {
            self.turn()?;
        }
        let mut failed = 0;
        for thread in threads {
            failed += thread.join().expect("a publisher does not panic")?;
        }
        self.report(rounds * burst, failed, took);
        Ok(())
    }

    fn report(&self, published: usize, failed: usize, seconds: f64) {
        let Counted { delivered, reads, bytes, gone } = self.counted;
        println!(
            r#"{{"published":{published},"failed":{failed},"delivered":{delivered},"reads":{reads},"bytes":{bytes},"gone":{gone},"viewers":{},"seconds":{seconds:.3}}}"#,
            self.greeted
        );
    }
}

/// A WebSocket ping without a body, or Centrifugo's own, alone or at the end of what came.
fn answer_to_ping(bytes: &[u8]) -> Option<Vec<u8>> {
    let (opcode, text): (_, &[u8]) = if bytes.ends_with(&[0x89, 0]) {
        (Opcode::Pong, b"")
    } else if bytes.ends_with(&[0x81, 2, b'{', b'}']) {
        (Opcode::Text, b"{}")
    } else {
        return None;
    };
    let mut frame = Vec::new();
    write_masked_frame(opcode, true, text, [7, 7, 7, 7], &mut frame);
    Some(frame)
}

/// Publishes one after the other over one connection, each at its time; how many were not taken. A server that ends the
/// connection between two requests is asked again over a new one, as an HTTP client would.
fn publish_at(
    address: SocketAddr,
    head: &str,
    body: &str,
    each: impl Iterator<Item = (Instant, usize)>,
) -> Result<usize> {
    let mut stream = publisher(address)?;
    let mut failed = 0;
    for (at, n) in each {
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        let body = body.replace("{n}", &n.to_string());
        let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
        let taken = match ask(&mut stream, &request) {
            Ok(taken) => taken,
            Err(_) => {
                stream = publisher(address)?;
                ask(&mut stream, &request).with_context(|| format!("publish {n} was not answered"))?
            }
        };
        failed += usize::from(!taken);
    }
    Ok(failed)
}

fn publisher(address: SocketAddr) -> Result<BufReader<StdStream>> {
    let stream = StdStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(BufReader::new(stream))
}

fn ask(stream: &mut BufReader<StdStream>, request: &str) -> Result<bool> {
    stream.get_mut().write_all(request.as_bytes())?;
    is_taken(stream)
}

/// Reads one answer. Errors: the connection ended, or the answer has no length.
fn is_taken(stream: &mut BufReader<StdStream>) -> Result<bool> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let taken = line.split(' ').nth(1).is_some_and(|status| status.starts_with('2'));
    let mut len = None;
    loop {
        line.clear();
        ensure!(stream.read_line(&mut line)? > 0, "the server closed a publisher's connection");
        let text = line.trim_end();
        if text.is_empty() {
            break;
        }
        if let Some((name, value)) = text.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            len = Some(value.trim().parse::<usize>()?);
        }
    }
    let mut rest = vec![0; len.context("an answer without a length")?];
    stream.read_exact(&mut rest)?;
    Ok(taken)
}
