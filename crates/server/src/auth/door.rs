//! What a request's `Origin`, `Host` and address say, as pure functions on their text.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A web origin, normalised: lower case, the port always given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    scheme: Scheme,
    host: String,
    port: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Scheme {
    Http,
    Https,
}

impl Origin {
    /// Reads `scheme://host[:port]`, nothing more.
    /// Errors: `None` for `null`, another scheme, a path, user info, a trailing dot or characters outside a host's.
    pub fn parse(text: &str) -> Option<Origin> {
        let (scheme, rest) = text.split_once("://")?;
        let scheme = match scheme {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return None,
        };
        let (host, port) = split_authority(rest)?;
        Some(Origin { scheme, host, port: port.unwrap_or(scheme.port()) })
    }

    /// Whether this origin is the server that `Host` names. A proxy may end TLS, so the scheme only gives the default port.
    pub fn is_host(&self, host: &str) -> bool {
        split_authority(host)
            .is_some_and(|(name, port)| name == self.host && port.unwrap_or(self.scheme.port()) == self.port)
    }
}

/// As a policy of a page names it.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
        };
        write!(f, "{scheme}://{}:{}", self.host, self.port)
    }
}

impl Scheme {
    fn port(self) -> u16 {
        match self {
            Scheme::Http => 80,
            Scheme::Https => 443,
        }
    }
}

/// Headers that let a page of this origin read the answer.
pub fn readable_by(origin: &str) -> [(&'static str, &str); 3] {
    [("access-control-allow-origin", origin), ("access-control-expose-headers", "retry-after"), ("vary", "Origin")]
}

/// Whether a request with these `Origin` headers may come in: none is fine, one must be the server's own or listed, more
/// than one is a forgery. Pass every `Origin` header there is.
pub fn may_enter<'a>(origins: impl IntoIterator<Item = &'a [u8]>, host: Option<&str>, listed: &[Origin]) -> bool {
    let mut origins = origins.into_iter();
    let Some(first) = origins.next() else { return true };
    if origins.next().is_some() {
        return false;
    }
    let Some(origin) = std::str::from_utf8(first).ok().and_then(Origin::parse) else { return false };
    host.is_some_and(|h| origin.is_host(h)) || listed.contains(&origin)
}

/// Whether a `Host` value names this machine's loopback: what development mode insists on, against DNS rebinding.
pub fn is_loopback_host(host: &str) -> bool {
    let Some((name, _)) = split_authority(host) else { return false };
    match name.strip_prefix('[').and_then(|n| n.strip_suffix(']')) {
        Some(v6) => v6.parse::<Ipv6Addr>().is_ok_and(|a| a.is_loopback()),
        None => name == "localhost" || name.parse::<Ipv4Addr>().is_ok_and(|a| a.is_loopback()),
    }
}

/// What limits per address count by: an IPv4 address, or the /64 an IPv6 address is in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AddressKey {
    V4(u32),
    V6Prefix(u64),
}

/// IPv4-mapped IPv6 addresses count as the IPv4 address they are.
pub fn address_key(peer: IpAddr) -> AddressKey {
    match peer.to_canonical() {
        IpAddr::V4(a) => AddressKey::V4(a.to_bits()),
        IpAddr::V6(a) => AddressKey::V6Prefix((a.to_bits() >> 64) as u64),
    }
}

/// A range of addresses: `10.0.0.0/8`, `2001:db8::/32`, or one address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    base: IpAddr,
    bits: u8,
}

impl Network {
    /// Errors: `None` for anything else, a prefix too long, host bits set, or an IPv4-mapped IPv6 range, which would
    /// mean something other than it looks like.
    pub fn parse(text: &str) -> Option<Network> {
        let (addr, bits) = match text.split_once('/') {
            Some((addr, bits)) => (addr.parse::<IpAddr>().ok()?, Some(bits.parse::<u8>().ok()?)),
            None => (text.parse::<IpAddr>().ok()?, None),
        };
        let most = if addr.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        if bits > most || matches!(addr, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()) {
            return None;
        }
        let network = Network { base: addr, bits };
        (masked(addr, bits) == Some(addr)).then_some(network)
    }
    pub fn contains(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        peer.is_ipv4() == self.base.is_ipv4() && masked(peer, self.bits) == Some(self.base)
    }
}

/// Whose request this is: the peer's, or where a trusted proxy hands it over, the right-most hop of `X-Forwarded-For` that
/// is no trusted proxy. Hops further left were written by whoever that is. Pass the values of every such header in order.
///
/// A hop that is no address ends the walk: the last one that was known stands for it.
pub fn client<'a>(peer: IpAddr, forwarded: impl DoubleEndedIterator<Item = &'a [u8]>, trusted: &[Network]) -> IpAddr {
    let mut client = peer.to_canonical();
    for hop in forwarded.rev().flat_map(|value| value.rsplit(|b| *b == b',')) {
        if !is_trusted(client, trusted) {
            break;
        }
        let Some(hop) = std::str::from_utf8(hop).ok().and_then(hop_address) else { break };
        client = hop.to_canonical();
    }
    client
}

/// An address, as proxies write it: bare, with a port, or IPv6 in brackets.
fn hop_address(text: &str) -> Option<IpAddr> {
    let text = text.trim_matches([' ', '\t']);
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address);
    }
    if let Some(v6) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
        return v6.parse::<Ipv6Addr>().ok().map(IpAddr::V6);
    }
    text.parse::<SocketAddr>().ok().map(|a| a.ip())
}

/// Whether a peer's PROXY header is believed.
pub fn is_trusted(peer: IpAddr, trusted: &[Network]) -> bool {
    trusted.iter().any(|n| n.contains(peer))
}

/// Loopback and the networks of `limits.exempt` have no address limit.
pub fn is_exempt(client: IpAddr, exempt: &[Network]) -> bool {
    client.to_canonical().is_loopback() || exempt.iter().any(|n| n.contains(client))
}

fn masked(addr: IpAddr, bits: u8) -> Option<IpAddr> {
    Some(match addr {
        IpAddr::V4(a) => {
            IpAddr::V4(Ipv4Addr::from_bits(a.to_bits() & u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0)))
        }
        IpAddr::V6(a) => {
            IpAddr::V6(Ipv6Addr::from_bits(a.to_bits() & u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0)))
        }
    })
}

/// `host[:port]` → the host in lower case (IPv6 in its brackets) and the port.
fn split_authority(text: &str) -> Option<(String, Option<u16>)> {
    let (name, port) = if text.starts_with('[') {
        let end = text.find(']')?;
        text[1..end].parse::<Ipv6Addr>().ok()?;
        (&text[..=end], &text[end + 1..])
    } else {
        let end = text.find(':').unwrap_or(text.len());
        (&text[..end], &text[end..])
    };
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    if !name.starts_with('[') && (name.is_empty() || name.ends_with('.') || !name.bytes().all(plain)) {
        return None;
    }
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => None,
        Some(digits) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => Some(digits.parse().ok()?),
        _ => return None,
    };
    Some((name.to_ascii_lowercase(), port))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::{AddressKey, Network, Origin, address_key, client, is_exempt, is_loopback_host, may_enter};

    fn enters(origin: &str) -> bool {
        let listed = [Origin::parse("https://live.example.com").unwrap()];
        may_enter([origin.as_bytes()], Some("stand.example:8080"), &listed)
    }

    #[test]
    fn only_the_own_host_and_listed_origins_enter() {
        for good in [
            "https://live.example.com",
            "https://live.example.com:443",
            "https://LIVE.example.com",
            "http://stand.example:8080",
            "https://stand.example:8080",
        ] {
            assert!(enters(good), "{good}");
        }
        for bad in [
            "null",
            "",
            "https://live.example.com.evil",
            "https://live.example.com.",
            "https://live.example.com:444",
            "http://live.example.com",
            "https://live.example.com/",
            "https://user@live.example.com",
            "https://evil.com#live.example.com",
            "file://live.example.com",
            "http://stand.example",
            "https://xn--lve-goa.example.com",
        ] {
            assert!(!enters(bad), "{bad}");
        }
    }

    #[test]
    fn no_origin_is_fine_and_two_are_not() {
        assert!(may_enter([], Some("a"), &[]));
        assert!(!may_enter([&b"http://a"[..], &b"http://a"[..]], Some("a"), &[]));
        assert!(!may_enter([&b"http://a"[..]], None, &[]));
    }

    #[test]
    fn development_mode_knows_its_own_machine() {
        for good in ["localhost", "localhost:8080", "LOCALHOST:1", "127.0.0.1:80", "127.9.9.9", "[::1]:80", "[::1]"] {
            assert!(is_loopback_host(good), "{good}");
        }
        for bad in [
            "localhost.",
            "localhost.evil",
            "evil",
            "0.0.0.0",
            "127.0.0.1.evil",
            "[::2]",
            "::1",
            "",
            "127.1",
            "2130706433",
        ] {
            assert!(!is_loopback_host(bad), "{bad}");
        }
    }

    #[test]
    fn ipv6_addresses_of_one_64_are_one_and_mapped_ones_are_ipv4() {
        let key = |a: &str| address_key(a.parse().unwrap());
        assert_eq!(key("2001:db8:1:2::1"), key("2001:db8:1:2:ffff::9"));
        assert_ne!(key("2001:db8:1:2::1"), key("2001:db8:1:3::1"));
        assert_eq!(key("::ffff:10.0.0.1"), AddressKey::V4(0x0a00_0001));
    }

    #[test]
    fn a_network_means_what_it_looks_like() {
        let inside = |n: &str, a: &str| Network::parse(n).unwrap().contains(a.parse::<IpAddr>().unwrap());
        assert!(inside("10.0.0.0/8", "10.255.0.1") && !inside("10.0.0.0/8", "11.0.0.1"));
        assert!(
            inside("10.0.0.0/8", "::ffff:10.1.2.3") && inside("0.0.0.0/0", "1.2.3.4") && !inside("0.0.0.0/0", "::1")
        );
        assert!(inside("2001:db8::/32", "2001:db8:5::1") && inside("192.0.2.7", "192.0.2.7"));
        for bad in ["10.0.0.1/8", "10.0.0.0/33", "::ffff:10.0.0.0/104", "x", "10.0.0.0/", "2001:db8::/129"] {
            assert!(Network::parse(bad).is_none(), "{bad}");
        }
        assert!(is_exempt("127.0.0.9".parse().unwrap(), &[]));
        assert!(!is_exempt("10.0.0.9".parse().unwrap(), &[]));
    }

    #[test]
    fn a72_the_client_is_the_right_most_hop_that_is_no_trusted_proxy() {
        let trusted: Vec<Network> = ["10.0.0.0/8", "2001:db8:ffff::/48"].map(|n| Network::parse(n).unwrap()).into();
        let table: &[(&str, &[&str], &str)] = &[
            // No header, or a peer whose word is not taken.
            ("10.0.0.1", &[], "10.0.0.1"),
            ("203.0.113.9", &["198.51.100.1"], "203.0.113.9"),
            ("203.0.113.9", &["10.0.0.1"], "203.0.113.9"),
            // One honest hop.
            ("10.0.0.1", &["203.0.113.9"], "203.0.113.9"),
            ("::ffff:10.0.0.1", &["203.0.113.9"], "203.0.113.9"),
            ("2001:db8:ffff::1", &["2001:db8::9"], "2001:db8::9"),
            // What the client wrote itself is left of what the proxy saw.
            ("10.0.0.1", &["127.0.0.1, 203.0.113.9"], "203.0.113.9"),
            ("10.0.0.1", &["10.9.9.9, 203.0.113.9"], "203.0.113.9"),
            ("10.0.0.1", &["127.0.0.1", "203.0.113.9"], "203.0.113.9"),
            // Several proxies in a row.
            ("10.0.0.1", &["198.51.100.1, 203.0.113.9, 10.0.0.2"], "203.0.113.9"),
            ("10.0.0.1", &["198.51.100.1, 203.0.113.9", "10.0.0.3,10.0.0.2"], "203.0.113.9"),
            ("10.0.0.1", &["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
            // Ports, brackets, blanks, mapped addresses.
            ("10.0.0.1", &["203.0.113.9:4711"], "203.0.113.9"),
            ("10.0.0.1", &["[2001:db8::9]"], "2001:db8::9"),
            ("10.0.0.1", &["[2001:db8::9]:4711"], "2001:db8::9"),
            ("10.0.0.1", &["\t203.0.113.9 "], "203.0.113.9"),
            ("10.0.0.1", &["::ffff:203.0.113.9"], "203.0.113.9"),
            ("10.0.0.1", &["203.0.113.9, ::ffff:10.0.0.2"], "203.0.113.9"),
            // No address: the last that is known, never anything left of it.
            ("10.0.0.1", &["unknown"], "10.0.0.1"),
            ("10.0.0.1", &["203.0.113.9, unknown"], "10.0.0.1"),
            ("10.0.0.1", &["203.0.113.9,"], "10.0.0.1"),
            ("10.0.0.1", &[""], "10.0.0.1"),
            ("10.0.0.1", &["203.0.113.9, _hidden, 10.0.0.2"], "10.0.0.2"),
            ("10.0.0.1", &["203.0.113.009"], "10.0.0.1"),
            ("10.0.0.1", &["3405803785"], "10.0.0.1"),
            ("10.0.0.1", &["0xcb.0.0x71.9"], "10.0.0.1"),
            ("10.0.0.1", &["for=203.0.113.9"], "10.0.0.1"),
            ("10.0.0.1", &["\u{ff11}.2.3.4"], "10.0.0.1"),
        ];
        for (peer, headers, expected) in table {
            let peer: IpAddr = peer.parse().unwrap();
            let expected: IpAddr = expected.parse().unwrap();
            assert_eq!(client(peer, headers.iter().map(|h| h.as_bytes()), &trusted), expected, "{peer} {headers:?}");
        }
        assert_eq!(client(table[3].0.parse().unwrap(), [&b"203.0.113.9"[..]].into_iter(), &[]).to_string(), "10.0.0.1");
    }

    #[test]
    fn a72_a_range_of_mapped_addresses_is_refused_because_it_would_trust_everyone() {
        for text in ["::ffff:10.0.0.0/8", "::ffff:0:0/96", "::ffff:10.0.0.1", "::ffff:10.0.0.0/104"] {
            assert_eq!(Network::parse(text), None, "{text}");
        }
    }
}
