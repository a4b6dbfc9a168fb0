//! Where clients reach this server: the addresses it listens on, and the base URLs that clients are told.
//!
//! The public listener serves everything. A transport may have listeners and base URLs of its own beside it, as fire exits
//! beside the main door: when the proxy, the name or the port of one is gone, clients still come in by the others. A listener of
//! one transport serves its stream and what a viewer needs beside it, and nothing for operators, providers or pages.

use std::net::SocketAddr;

use grandstand_wire::event;

use crate::auth::door::Origin;
use crate::metrics::Transport;

/// What a listener's connections may ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Serves {
    All,
    /// This transport's streams and the viewers' API.
    Only(Transport),
}

/// One address to listen on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listen {
    pub address: SocketAddr,
    pub serves: Serves,
}

impl Serves {
    /// `stream`: the transport of which the path is the stream.
    pub fn takes(self, path: &str, stream: Option<Transport>) -> bool {
        match (self, stream) {
            (Serves::All, _) => true,
            (Serves::Only(own), Some(wanted)) => own == wanted,
            (Serves::Only(_), None) => is_for_viewers(path),
        }
    }

    /// Told to who asked for something else.
    pub fn rule(self) -> &'static str {
        match self {
            Serves::All => "everything is served here",
            Serves::Only(Transport::WebSocket) => {
                "this listener serves /v1/rooms/{room}/stream and the viewers' API alone (transport.websocket.listen)"
            }
            Serves::Only(Transport::Sse) => {
                "this listener serves /v1/rooms/{room}/sse and the viewers' API alone (transport.sse.listen)"
            }
            Serves::Only(Transport::Poll) => {
                "this listener serves /v1/rooms/{room}/poll and the viewers' API alone (transport.poll.listen)"
            }
        }
    }
}

/// Where IRC is spoken. Without an address it is not.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Irc {
    pub tcp: Vec<SocketAddr>,
    pub websocket: Vec<SocketAddr>,
    /// Connections of a process.
    pub connections_max: u32,
}

/// Snapshot, comments, renewal, tickets, guests, the list of rooms, and the health that a proxy in front asks for.
fn is_for_viewers(path: &str) -> bool {
    matches!(path, "/v1/rooms" | "/v1/guest" | "/v1/ticket" | "/healthz/live" | "/healthz/ready")
        || path.starts_with("/v1/rooms/")
}

/// What a base URL must be, for a fault's message.
pub const RULE: &str = "scheme://host[:port] without a path, a query, a user or a slash at the end";

/// A base URL in the form that is told to clients: the scheme as given, the host in lower case.
/// Errors: `None` for another scheme than `schemes`, or what breaks [`RULE`].
pub fn base_url(text: &str, schemes: [&str; 2]) -> Option<String> {
    let (scheme, authority) = text.split_once("://")?;
    if !schemes.contains(&scheme) {
        return None;
    }
    // Host and port of a ws URL are written as those of an http one.
    Origin::parse(&format!("http://{authority}"))?;
    Some(format!("{scheme}://{}", authority.to_ascii_lowercase()))
}

/// What clients are told of base URLs.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Endpoints {
    pub websocket: Option<String>,
    pub sse: Vec<String>,
    pub poll: Option<String>,
    /// The public one.
    pub api: Option<String>,
}

impl Endpoints {
    /// The JSON object of `hello` and snapshot; `None` where no transport has a base URL of its own.
    pub fn json(&self) -> Option<String> {
        self.urls().next()?;
        let mut out = Vec::new();
        event::Endpoints {
            websocket: self.websocket.as_deref(),
            sse: &self.sse,
            poll: self.poll.as_deref(),
            api: self.api.as_deref(),
        }
        .write(&mut out);
        Some(String::from_utf8(out).expect("JSON that was just written"))
    }

    /// The transports' own.
    pub fn urls(&self) -> impl Iterator<Item = &str> {
        self.websocket.iter().chain(&self.sse).chain(&self.poll).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::{Endpoints, Serves, base_url};
    use crate::metrics::Transport;

    #[test]
    fn a_transports_listener_takes_its_stream_and_the_viewers_api_alone() {
        let sse = Serves::Only(Transport::Sse);
        assert!(sse.takes("/v1/rooms/r/sse", Some(Transport::Sse)));
        assert!(!sse.takes("/v1/rooms/r/poll", Some(Transport::Poll)));
        for path in ["/v1/rooms/r/snapshot", "/v1/rooms/r/comments", "/v1/rooms/r/auth", "/v1/ticket", "/healthz/ready"]
        {
            assert!(sse.takes(path, None), "{path}");
        }
        for path in
            ["/", "/rooms/r", "/admin/rooms/r", "/v1/score-event", "/v1/demo", "/metrics", "/v1/roomsx", "/v1/ticket/"]
        {
            assert!(!sse.takes(path, None) && Serves::All.takes(path, None), "{path}");
        }
    }

    #[test]
    fn a_base_url_is_a_scheme_a_host_and_a_port() {
        let ws = |text| base_url(text, ["ws", "wss"]);
        assert_eq!(ws("wss://Edge.Example.com:8443").as_deref(), Some("wss://edge.example.com:8443"));
        assert_eq!(ws("ws://[::1]:80").as_deref(), Some("ws://[::1]:80"));
        for bad in [
            "https://edge.example.com",
            "WSS://edge.example.com",
            "wss://edge.example.com/",
            "wss://edge.example.com/rooms",
            "wss://edge.example.com?x",
            "wss://edge.example.com#x",
            "wss://user@edge.example.com",
            "wss://edge.example.com.",
            "wss://edge.example.com:99999",
            "wss://edge.example.com:",
            "wss://",
            "edge.example.com",
            "wss://edge example",
            "wss://edge.example.com\\@other.example",
        ] {
            assert_eq!(ws(bad), None, "{bad}");
        }
    }

    #[test]
    fn nothing_is_told_where_the_public_address_serves_all() {
        let api = Some("https://live.example.com".to_owned());
        assert_eq!(Endpoints { api: api.clone(), ..Endpoints::default() }.json(), None);
        let sse = vec!["https://a.example".to_owned(), "https://b.example".to_owned()];
        assert_eq!(
            Endpoints { sse, api, ..Endpoints::default() }.json().as_deref(),
            Some(r#"{"sse":["https://a.example","https://b.example"],"api":"https://live.example.com"}"#)
        );
    }
}
