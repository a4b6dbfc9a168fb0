//! A client of a live room: publish, follow with resume, post score events, set up rooms.
//!
//! ```text
//! Endpoint   where the server is, and for https whose certificates are believed
//! Addresses  where each transport is reached, as the server tells it
//! Http       one keep-alive connection for calls: snapshot, score-event, room PUT
//! Admin      what operators and moderators do
//! Feed       one followed room; reconnects by the close-range rules and resumes from its cursor
//! Publisher  one connection that publishes; retries with the same key until each comment is answered
//! Scores     what a room's score is, from its events
//! ```
//!
//! What it must never do: give a comment a second key, or resume from anywhere but the last cursor it was given.
//!
//! # Following a room
//!
//! Snapshot first, then the stream from where it ends: nothing in between is missed, and what both have is joined by its id. A [`feed::Feed`]
//! is one sequence however often its connection breaks; [`feed::Feed::turn`] says when it does.
//!
//! ```no_run
//! use grandstand_client::feed::{Feed, Transport};
//! use grandstand_client::http::Http;
//! use grandstand_client::{Endpoint, Fault, room};
//!
//! async fn follow(url: &str, room: &str) -> Result<(), Fault> {
//!     let server = Endpoint::parse(url)?;
//!     let snapshot = room::snapshot(&Http::new(&server, None), room, None).await?;
//!     let cursor = snapshot["as_of_event_id"].as_u64().filter(|id| *id > 0);
//!     let mut feed = Feed::new(&server, room, None, Transport::WebSocket, cursor);
//!     loop {
//!         // Errors only where no retry helps: a 40xx close, a refusal.
//!         let event = feed.next().await?;
//!         match event.kind() {
//!             // The cursor was too old: take a snapshot that is no older than this, and go on.
//!             "snapshot_required" => drop(room::snapshot(&Http::new(&server, None), room, event.members.cursor).await?),
//!             _ => println!("{}", event.json),
//!         }
//!     }
//! }
//! ```
//!
//! # Publishing
//!
//! Each comment has a key that its caller makes once and keeps: whatever happens to the connection, it is one comment, and its answer is
//! definite. The same key again is always safe.
//!
//! ```no_run
//! use grandstand_client::Endpoint;
//! use grandstand_client::publisher::{Comment, Outcome, Publisher};
//!
//! async fn say(server: &Endpoint, token: &str) -> Outcome {
//!     let (publisher, _task) = Publisher::open(server, "derby", token, 16);
//!     let comment =
//!         Comment { client_msg_id: "my-own-key-1".to_owned(), body: "what a goal".to_owned(), reply_to: None, author: None };
//!     publisher.publish(comment).await.await.unwrap_or(Outcome::Unanswered)
//! }
//! ```
//!
//! # Reading scores
//!
//! Events come more than once and corrections come late; [`scores::Scores`] is the protocol's rule for what the score is.
//!
//! ```
//! use grandstand_client::scores::Scores;
//!
//! let goal = |key: &str, revision: u32, home: u32| {
//!     format!(
//!         r#"{{"type":"score_event","match_id":"m1","key":"{key}","revision":{revision},"kind":"goal",
//!             "state":"confirmed","score":{{"home":{home},"away":0}},"minute":"78"}}"#
//!     )
//! };
//! let mut scores = Scores::default();
//! assert!(scores.take(&goal("g1", 1, 1)).is_some());
//! assert!(scores.take(&goal("g2", 1, 2)).is_some());
//! assert!(scores.take(&goal("g1", 2, 1)).is_some()); // a late correction of the first goal
//! assert!(scores.take(&goal("g1", 1, 1)).is_none()); // a repeat
//! assert_eq!(scores.current()[0].score.home, 2);
//! ```
//!
//! # Addresses of transports
//!
//! A server may tell that WebSockets and SSE have addresses of their own (`endpoints` of `hello` and snapshot). Feed and publisher open their next
//! stream there first, and at the address they were given when that cannot be reached. An address in the clear is not used where the first was
//! https.
//!
//! # Operators
//!
//! [`admin::Admin`] has every call of the operators' API, each with its justification; a refusal is the server's problem document
//! ([`admin::Problem`]).
#![forbid(unsafe_code)]

pub mod addresses;
pub mod admin;
pub mod event;
pub mod feed;
pub mod gift;
pub mod http;
pub mod publisher;
pub mod retry;
pub mod room;
pub mod scores;
pub mod sign;
pub mod socket;
pub mod tls;

use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use tokio::net::TcpStream;

use crate::tls::{Stream, Trust};

/// Where a server listens. With `https` every connection is TLS, and each later one begins with a ticket of an earlier one.
#[derive(Clone, Debug)]
pub struct Endpoint {
    host: String,
    port: u16,
    tls: Option<Tls>,
}

#[derive(Clone, Debug)]
struct Tls {
    trust: Trust,
    config: Arc<ClientConfig>,
}

/// What a client could not do.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("not a server address: {0} (expected http://HOST:PORT or https://HOST:PORT)")]
    Address(String),
    #[error("certificates to believe: {0}")]
    Trust(String),
    #[error("the connection failed")]
    Connection(#[from] std::io::Error),
    #[error("the server broke the protocol: {0}")]
    Protocol(String),
    /// The server said no. With 429 and 5xx it may say yes later: after `retry_after`, where it says so, and a draw from `spread`.
    #[error("refused with {status}: {message}")]
    Refused { status: u16, message: String, retry_after: Option<Duration>, spread: Option<Duration> },
    /// The stream was closed with a code of the 40xx range.
    #[error("the stream ended with {code}: {reason}")]
    Closed { code: u16, reason: String },
}

/// Opening a connection takes at most this, and so does opening a stream on it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);

impl Endpoint {
    /// Reads `http://HOST[:PORT]`, `https://HOST[:PORT]` (the system's authorities are believed), or `HOST:PORT` alone.
    pub fn parse(url: &str) -> Result<Endpoint, Fault> {
        Endpoint::trusting(url, &Trust::System)
    }

    /// The same; with `https`, `trust` says whose certificates are believed.
    pub fn trusting(url: &str, trust: &Trust) -> Result<Endpoint, Fault> {
        let fault = || Fault::Address(url.to_owned());
        let (rest, usual) = match url.strip_prefix("https://") {
            Some(rest) => (rest, 443),
            None => (url.strip_prefix("http://").unwrap_or(url), 80),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.is_empty() || rest.contains("://") || rest.contains(['/', '@', '?', '#', ' ']) {
            return Err(fault());
        }
        let (host, port) = match rest.rsplit_once(':') {
            // An IPv6 host stands in brackets; a colon inside them is no port.
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().map_err(|_| fault())?),
            _ => (rest, usual),
        };
        let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        if bare.is_empty() {
            return Err(fault());
        }
        let tls = if usual == 443 {
            tls::name(bare)?;
            Some(Tls { trust: trust.clone(), config: tls::config(trust)? })
        } else {
            None
        };
        Ok(Endpoint { host: bare.to_owned(), port, tls })
    }

    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// As a `Host` header holds it.
    pub fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Whose certificates are believed, where connections are TLS.
    pub fn trust(&self) -> Option<&Trust> {
        self.tls.as_ref().map(|tls| &tls.trust)
    }

    pub(crate) async fn connect(&self) -> Result<Stream, std::io::Error> {
        tokio::time::timeout(PATIENCE, self.connect_now()).await.map_err(|_| std::io::ErrorKind::TimedOut)?
    }

    async fn connect_now(&self) -> Result<Stream, std::io::Error> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        stream.set_nodelay(true)?;
        match &self.tls {
            None => Ok(Stream::Plain(stream)),
            Some(Tls { config, .. }) => {
                let name = tls::name(&self.host).map_err(std::io::Error::other)?;
                let session = tokio_rustls::TlsConnector::from(config.clone()).connect(name, stream).await?;
                Ok(Stream::Tls(Box::new(session)))
            }
        }
    }
}

/// A room id or user id as one path segment.
pub fn segment(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for b in text.bytes() {
        match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b':' => out.push(char::from(b)),
            b => out.push_str(&format!("%{b:02X}")),
        }
    }
    out
}

/// A random source for waits and masks; nothing secret comes from it.
pub(crate) fn seeded() -> grandstand_core::rng::Rng {
    use std::hash::{BuildHasher as _, Hasher as _};
    let hasher = std::collections::hash_map::RandomState::new().build_hasher();
    grandstand_core::rng::Rng::new(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::{Endpoint, Trust, segment};

    #[test]
    fn addresses_are_read_as_people_write_them() {
        for (url, host, port, authority) in [
            ("http://127.0.0.1:7400", "127.0.0.1", 7400, "127.0.0.1:7400"),
            ("http://localhost/", "localhost", 80, "localhost:80"),
            ("room.example:81", "room.example", 81, "room.example:81"),
            ("http://[::1]:7400", "::1", 7400, "[::1]:7400"),
            ("http://[::1]", "::1", 80, "[::1]:80"),
        ] {
            let endpoint = Endpoint::parse(url).unwrap();
            assert_eq!((endpoint.host(), endpoint.port(), endpoint.authority().as_str()), (host, port, authority));
        }
        let safe = Endpoint::trusting("https://room.example", &Trust::Anyone).unwrap();
        assert_eq!((safe.host(), safe.port(), safe.trust()), ("room.example", 443, Some(&Trust::Anyone)));
        for bad in
            ["", "http://", "https://", "https://a/b", "http://a/b", "http://a:b", "ftp://a", "http://u@a", "http://:1"]
        {
            assert!(Endpoint::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_path_segment_holds_no_separator() {
        assert_eq!(segment("match:2022-final"), "match:2022-final");
        assert_eq!(segment("a/b c?é"), "a%2Fb%20c%3F%C3%A9");
    }
}
