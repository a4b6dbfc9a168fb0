//! Where the run's viewers connect: at their transport's own address, when the server tells one, else where the run was sent.
//!
//! A viewer whose own address is not reached goes to the other one from then on, as clients do (docs/protocol.md, endpoints).

use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};

use anyhow::{Context as _, Result};
use grandstand_client::Endpoint;
use grandstand_client::addresses::{Addresses, Told};
use serde::{Deserialize, Serialize};

use crate::http::Http;
use crate::link::{Door, Link};
use crate::run::{Secure, Settings, Transport};

/// A place to connect to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Address {
    pub addr: SocketAddr,
    /// The `Host` header.
    pub host: String,
    pub secure: Option<Secure>,
}

/// The transports' own.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Own {
    websocket: Vec<Address>,
    sse: Vec<Address>,
    poll: Vec<Address>,
}

impl Address {
    /// Errors: the host has no address.
    pub fn of(endpoint: &Endpoint) -> Result<Address> {
        let mut addrs = (endpoint.host(), endpoint.port()).to_socket_addrs()?;
        let secure = endpoint.trust().map(|trust| Secure { name: endpoint.host().to_owned(), trust: trust.clone() });
        Ok(Address { addr: addrs.next().context("the host has no address")?, host: endpoint.authority(), secure })
    }
}

impl Own {
    /// What the snapshot of the run's first room tells. Errors: as of [`Http::call`]; a told host without an address.
    pub fn told(settings: &Settings, http: &mut Http) -> Result<Own> {
        #[derive(Deserialize)]
        struct Snapshot {
            endpoints: Option<Told>,
        }
        let Some(room) = settings.rooms.first() else { return Ok(Own::default()) };
        let (status, body) = http.call("GET", &format!("/v1/rooms/{room}/snapshot"), "", "")?;
        if status != 200 {
            return Ok(Own::default());
        }
        let snapshot: Snapshot = serde_json::from_slice(&body).context("reading a snapshot")?;
        let home = match &settings.secure {
            None => Endpoint::parse(&format!("http://{}", settings.host)),
            Some(secure) => Endpoint::trusting(&format!("https://{}", settings.host), &secure.trust),
        };
        let mut addresses = Addresses::new(&home?);
        addresses.take(snapshot.endpoints.as_ref());
        let all = |own: &[Endpoint]| own.iter().map(Address::of).collect::<Result<Vec<_>>>();
        let own = addresses.own();
        Ok(Own { websocket: all(&own.websocket)?, sse: all(&own.sse)?, poll: all(&own.poll)? })
    }

    fn of(&self, transport: Transport) -> &[Address] {
        match transport {
            Transport::Ws | Transport::Mix => &self.websocket,
            Transport::Sse => &self.sse,
            Transport::Poll => &self.poll,
        }
    }
}

/// A process's ways to all of them.
pub struct Places {
    home: Place,
    own: [Vec<Place>; 3],
}

pub struct Place {
    pub addr: SocketAddr,
    pub host: String,
    pub door: Door,
}

impl Places {
    /// Errors: the certificates to believe cannot be read.
    pub fn new(settings: &Settings) -> Result<Places> {
        let place = |address: &Address| -> Result<Place> {
            let door = Door::to(settings, address.secure.as_ref())?;
            Ok(Place { addr: address.addr, host: address.host.clone(), door })
        };
        let mut own: [Vec<Place>; 3] = Default::default();
        for (places, transport) in own.iter_mut().zip(Transport::LADDER) {
            *places = settings.own.of(transport).iter().map(place).collect::<Result<_>>()?;
        }
        Ok(Places { home: place(&settings.home())?, own })
    }

    /// A WebSocket's connection for one who publishes: at its own address, else where the run was sent, and the `Host` there.
    /// Errors: neither is reached.
    pub fn connect(&self, n: usize) -> Result<(Link, &str)> {
        let mut place = self.of(Transport::Ws, n as u32, false);
        let connected = TcpStream::connect(place.addr).or_else(|_| {
            place = self.of(Transport::Ws, n as u32, true);
            TcpStream::connect(place.addr)
        });
        let stream = connected.context("connecting to the server")?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok((place.door.link(mio::net::TcpStream::from_std(stream))?, &place.host))
    }

    /// Where viewer `n` goes; `at_home`: its own address was not reached.
    pub fn of(&self, transport: Transport, n: u32, at_home: bool) -> &Place {
        let own = &self.own[transport.rung()];
        match own.get(n as usize % own.len().max(1)) {
            Some(place) if !at_home => place,
            _ => &self.home,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use grandstand_client::Endpoint;

    use super::{Own, Places};
    use crate::http::Http;
    use crate::run::{Settings, Transport};

    #[test]
    fn viewers_go_where_the_snapshot_sends_their_transport() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = Endpoint::parse(&listener.local_addr().unwrap().to_string()).unwrap();
        let server = std::thread::spawn(move || {
            let (mut peer, _) = listener.accept().unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                peer.read_exact(&mut byte).unwrap();
                head.push(byte[0]);
            }
            assert!(head.starts_with(b"GET /v1/rooms/r/snapshot "));
            let body =
                r#"{"endpoints":{"websocket":"ws://127.0.0.1:1","sse":["http://127.0.0.1:2","http://127.0.0.1:3"]}}"#;
            write!(peer, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        });
        let mut settings = Settings { rooms: vec!["r".into()], ..Settings::new(&endpoint, "t").unwrap() };
        let mut http = Http::new(&settings, None).unwrap();
        settings.own = Own::told(&settings, &mut http).unwrap();
        server.join().unwrap();
        let places = Places::new(&settings).unwrap();
        let port = |transport, n, at_home| places.of(transport, n, at_home).addr.port();
        assert_eq!((port(Transport::Ws, 7, false), port(Transport::Ws, 7, true)), (1, endpoint.port()));
        assert_eq!((port(Transport::Sse, 0, false), port(Transport::Sse, 1, false)), (2, 3));
        assert_eq!(port(Transport::Poll, 0, false), endpoint.port());
        assert_eq!(places.of(Transport::Sse, 1, false).host, "127.0.0.1:3");
    }
}
