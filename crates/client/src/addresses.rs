//! Where each transport of a server is reached: by its own base URL, when the server tells one, else where the client is.
//!
//! What `hello` and snapshot say under `endpoints` holds until the next one is read. An own address that cannot be reached, or
//! that serves another transport, is passed over for the address the client was given, which serves every one. An address that
//! is not as safe as that one is never used: a server does not ask for a token to be sent in the clear.

use serde::Deserialize;

use crate::tls::Trust;
use crate::{Endpoint, Fault};

/// The `endpoints` of `hello` and snapshot, as they came.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Told {
    pub websocket: Option<String>,
    pub sse: Vec<String>,
    pub poll: Option<String>,
    pub api: Option<String>,
}

/// Addresses used of one list at most; a server tells a handful.
const EACH_MAX: usize = 64;

/// Where to go, for each transport.
#[derive(Clone, Debug)]
pub struct Addresses {
    home: Endpoint,
    own: Own,
}

/// The transports' own addresses that may be used.
#[derive(Clone, Debug, Default)]
pub struct Own {
    pub websocket: Vec<Endpoint>,
    pub sse: Vec<Endpoint>,
    pub poll: Vec<Endpoint>,
    pub api: Vec<Endpoint>,
}

impl Addresses {
    /// Nothing was told yet.
    pub fn new(home: &Endpoint) -> Addresses {
        Addresses { home: home.clone(), own: Own::default() }
    }

    /// Takes what a `hello` or snapshot says; `None` is a server without addresses of transports.
    pub fn take(&mut self, told: Option<&Told>) {
        let one = |url: &Option<String>| url.iter().filter_map(|url| self.read(url)).collect();
        let told = told.cloned().unwrap_or_default();
        let (websocket, poll, api) = (one(&told.websocket), one(&told.poll), one(&told.api));
        let sse = told.sse.iter().take(EACH_MAX).filter_map(|url| self.read(url)).collect();
        self.own = Own { websocket, sse, poll, api };
    }

    pub fn own(&self) -> &Own {
        &self.own
    }

    /// Errors: `None` for what is no address, or is less safe than the one that told it.
    fn read(&self, url: &str) -> Option<Endpoint> {
        // A WebSocket's schemes are those of its upgrade.
        let url = match url.split_once("://")? {
            ("ws", rest) => format!("http://{rest}"),
            ("wss", rest) => format!("https://{rest}"),
            _ => url.to_owned(),
        };
        let trust = self.home.trust().cloned().unwrap_or(Trust::System);
        let endpoint = Endpoint::trusting(&url, &trust).ok()?;
        (endpoint.trust().is_some() || self.home.trust().is_none()).then_some(endpoint)
    }

    /// In the order in which they are tried. `turn` says where in a list of several to begin.
    pub fn websocket(&self, turn: u64) -> impl Iterator<Item = &Endpoint> {
        self.in_order(&self.own.websocket, turn)
    }
    pub fn sse(&self, turn: u64) -> impl Iterator<Item = &Endpoint> {
        self.in_order(&self.own.sse, turn)
    }
    pub fn poll(&self, turn: u64) -> impl Iterator<Item = &Endpoint> {
        self.in_order(&self.own.poll, turn)
    }
    /// For calls of a viewer: snapshot, older comments, comments by POST.
    pub fn api(&self, turn: u64) -> impl Iterator<Item = &Endpoint> {
        self.in_order(&self.own.api, turn)
    }

    /// One of the transport's own, then home.
    fn in_order<'a>(&'a self, own: &'a [Endpoint], turn: u64) -> impl Iterator<Item = &'a Endpoint> {
        let first = own.get((turn % own.len().max(1) as u64) as usize);
        first.into_iter().chain([&self.home])
    }
}

/// Whether another address may do what this one could not: it was not reached, or serves another transport.
pub fn is_elsewhere(fault: &Fault) -> bool {
    matches!(fault, Fault::Connection(_) | Fault::Refused { status: 421, .. })
}

#[cfg(test)]
mod tests {
    use super::{Addresses, Told};
    use crate::Endpoint;
    use crate::tls::Trust;

    fn told() -> Told {
        serde_json::from_str(
            r#"{"websocket":"wss://ws.example","sse":["https://a.example:1","https://b.example:2","http://c.example"],"later":1}"#,
        )
        .unwrap()
    }

    fn names<'a>(all: impl Iterator<Item = &'a Endpoint>) -> Vec<String> {
        all.map(Endpoint::authority).collect()
    }

    #[test]
    fn a_transports_own_address_is_tried_first_and_then_home() {
        let mut addresses = Addresses::new(&Endpoint::trusting("https://home.example", &Trust::Anyone).unwrap());
        assert_eq!(names(addresses.websocket(0)), ["home.example:443"]);
        addresses.take(Some(&told()));
        assert_eq!(names(addresses.websocket(7)), ["ws.example:443", "home.example:443"]);
        assert_eq!(names(addresses.sse(0)), ["a.example:1", "home.example:443"]);
        assert_eq!(names(addresses.sse(3)), ["b.example:2", "home.example:443"], "one in the clear is none");
        assert_eq!(names(addresses.poll(0)), ["home.example:443"]);
        assert!(addresses.websocket(0).all(|e| e.trust() == Some(&Trust::Anyone)));
        addresses.take(None);
        assert_eq!(names(addresses.websocket(0)), ["home.example:443"]);
    }

    #[test]
    fn what_is_no_address_is_passed_over() {
        let mut addresses = Addresses::new(&Endpoint::parse("http://home.example").unwrap());
        let told = Told {
            websocket: Some("ws.example".into()),
            poll: Some("ftp://p".into()),
            api: Some("x".into()),
            ..told()
        };
        addresses.take(Some(&told));
        assert_eq!(names(addresses.websocket(0)), ["home.example:80"]);
        assert_eq!(names(addresses.poll(0)), ["home.example:80"]);
        assert_eq!(names(addresses.api(0)), ["home.example:80"]);
        assert_eq!(names(addresses.sse(2)), ["c.example:80", "home.example:80"]);
    }
}
