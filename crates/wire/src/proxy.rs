//! The PROXY protocol, version 2: who the client behind a proxy is, said before its first byte.
//!
//! ```text
//! signature 12 │ version+command 1 │ family+transport 1 │ length 2 │ addresses and extras `length`
//! ```
//!
//! It is believed of whoever sends it, so the caller asks first whether the peer is a trusted proxy. A header is never read
//! in part and nothing in it is guessed: what is not exactly a header of version 2 is refused. Version 1 (text) is not taken.
//! Extras (TLVs) are passed over. Source: haproxy doc/proxy-protocol.txt, 2.2.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
const FIXED: usize = 16;
/// Addresses (36 bytes at most for what is taken) and extras; proxies send a few hundred bytes.
pub const BYTES_MAX: usize = 1_024;

/// What the front of a connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scan {
    /// A whole header of `len` bytes. `client` is `None` when the proxy speaks for itself (health checks) or of a kind
    /// that has no network address.
    Whole {
        len: usize,
        client: Option<SocketAddr>,
    },
    /// More bytes must come.
    More,
    Refused(Fault),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    NoSignature,
    /// Not 2.
    Version,
    /// Neither LOCAL nor PROXY.
    Command,
    /// A family or a transport that is not known.
    Family,
    /// The addresses do not fit into the length.
    Short,
    /// Above [`BYTES_MAX`].
    TooLong,
}

/// Reads the header at the front of `bytes`.
pub fn scan(bytes: &[u8]) -> Scan {
    let seen = bytes.len().min(SIGNATURE.len());
    if bytes[..seen] != SIGNATURE[..seen] {
        return Scan::Refused(Fault::NoSignature);
    }
    let Some(&version_command) = bytes.get(12) else { return Scan::More };
    if version_command >> 4 != 2 {
        return Scan::Refused(Fault::Version);
    }
    let proxied = match version_command & 0xf {
        0 => false,
        1 => true,
        _ => return Scan::Refused(Fault::Command),
    };
    let Some(&family) = bytes.get(13) else { return Scan::More };
    // Low half: unspecified, stream, datagram. High half: unspecified, IPv4, IPv6, Unix.
    if family >> 4 > 3 || family & 0xf > 2 {
        return Scan::Refused(Fault::Family);
    }
    let Some(&[high, low]) = bytes.get(14..FIXED) else { return Scan::More };
    let len = FIXED + usize::from(u16::from_be_bytes([high, low]));
    if len > BYTES_MAX {
        return Scan::Refused(Fault::TooLong);
    }
    let Some(addresses) = bytes.get(FIXED..len) else { return Scan::More };
    if !proxied {
        return Scan::Whole { len, client: None };
    }
    let client = match family {
        0x11 => addresses.first_chunk::<12>().map(|a| Some(v4(a))),
        0x21 => addresses.first_chunk::<36>().map(|a| Some(v6(a))),
        // A stream is what was accepted: datagrams and Unix sockets are no clients of it.
        _ => Some(None),
    };
    match client {
        Some(client) => Scan::Whole { len, client },
        None => Scan::Refused(Fault::Short),
    }
}

/// Source address 4, destination address 4, source port 2, destination port 2.
fn v4(a: &[u8; 12]) -> SocketAddr {
    let ip = Ipv4Addr::new(a[0], a[1], a[2], a[3]);
    SocketAddr::new(ip.into(), u16::from_be_bytes([a[8], a[9]]))
}

/// Source address 16, destination address 16, source port 2, destination port 2.
fn v6(a: &[u8; 36]) -> SocketAddr {
    let ip: [u8; 16] = *a.first_chunk().expect("36 is more than 16");
    SocketAddr::new(IpAddr::V6(Ipv6Addr::from(ip)).to_canonical(), u16::from_be_bytes([a[32], a[33]]))
}

#[cfg(test)]
mod tests {
    use super::{BYTES_MAX, Fault, SIGNATURE, Scan, scan};

    fn header(version_command: u8, family: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend([version_command, family]);
        bytes.extend((body.len() as u16).to_be_bytes());
        bytes.extend(body);
        bytes
    }

    const V4: [u8; 12] = [203, 0, 113, 9, 10, 0, 0, 1, 0x30, 0x39, 0, 80];

    fn v6(source: [u8; 16]) -> Vec<u8> {
        let mut body = source.to_vec();
        body.extend([0; 16]);
        body.extend([0x30, 0x39, 0, 80]);
        body
    }

    fn client(bytes: &[u8]) -> Option<String> {
        match scan(bytes) {
            Scan::Whole { len, client } => {
                assert!(len <= bytes.len());
                client.map(|c| c.to_string())
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_client_is_read_and_what_follows_is_left() {
        let mut bytes = header(0x21, 0x11, &V4);
        let len = bytes.len();
        bytes.extend(b"GET / HTTP/1.1\r\n");
        assert_eq!(scan(&bytes), Scan::Whole { len, client: Some("203.0.113.9:12345".parse().unwrap()) });
        let mut source = [0; 16];
        source[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
        source[15] = 7;
        assert_eq!(client(&header(0x21, 0x21, &v6(source))).as_deref(), Some("[2001:db8::7]:12345"));
    }

    #[test]
    fn a72_an_ipv4_mapped_client_is_the_ipv4_address_it_is() {
        let mut source = [0; 16];
        source[10..].copy_from_slice(&[0xff, 0xff, 203, 0, 113, 9]);
        assert_eq!(client(&header(0x21, 0x21, &v6(source))).as_deref(), Some("203.0.113.9:12345"));
    }

    #[test]
    fn the_proxy_itself_and_families_without_an_address_name_no_client() {
        assert_eq!(client(&header(0x20, 0x00, &[])), None);
        assert_eq!(client(&header(0x20, 0x11, &V4)), None);
        assert_eq!(client(&header(0x21, 0x00, &[])), None);
        assert_eq!(client(&header(0x21, 0x31, &[0; 216])), None);
        assert_eq!(client(&header(0x21, 0x12, &V4)), None);
    }

    #[test]
    fn extras_behind_the_addresses_are_passed_over_up_to_the_bound() {
        let mut body = V4.to_vec();
        body.extend([0x02, 0, 3, b'a', b'b', b'c']);
        assert_eq!(client(&header(0x21, 0x11, &body)).as_deref(), Some("203.0.113.9:12345"));
        body.resize(BYTES_MAX - 16, 0);
        assert!(matches!(scan(&header(0x21, 0x11, &body)), Scan::Whole { len: BYTES_MAX, .. }));
        body.push(0);
        assert_eq!(scan(&header(0x21, 0x11, &body)), Scan::Refused(Fault::TooLong));
    }

    #[test]
    fn a_header_in_pieces_waits_at_every_cut() {
        let bytes = header(0x21, 0x11, &V4);
        for cut in 0..bytes.len() {
            assert_eq!(scan(&bytes[..cut]), Scan::More, "{cut}");
        }
    }

    #[test]
    fn a72_hostile_fronts_are_refused_at_their_first_wrong_byte() {
        let with = |at: usize, byte: u8| {
            let mut bytes = header(0x21, 0x11, &V4);
            bytes[at] = byte;
            bytes
        };
        let mut endless = header(0x21, 0x11, &V4);
        endless[14..16].copy_from_slice(&[0xff, 0xff]);
        let table: Vec<(Vec<u8>, Fault)> = vec![
            (b"GET /v1/rooms".to_vec(), Fault::NoSignature),
            (b"PROXY TCP4 203.0.113.9 10.0.0.1 1 2\r\n".to_vec(), Fault::NoSignature),
            (b"\r\n\r\nGET".to_vec(), Fault::NoSignature),
            (b"\x16\x03\x01".to_vec(), Fault::NoSignature),
            (vec![0], Fault::NoSignature),
            (with(11, 0), Fault::NoSignature),
            (with(12, 0x11), Fault::Version),
            (with(12, 0x31), Fault::Version),
            (with(12, 0x01), Fault::Version),
            (with(12, 0x22), Fault::Command),
            (with(12, 0x2f), Fault::Command),
            (with(13, 0x41), Fault::Family),
            (with(13, 0x13), Fault::Family),
            (with(13, 0xff), Fault::Family),
            (with(15, 11), Fault::Short),
            (with(15, 0), Fault::Short),
            (header(0x21, 0x21, &V4), Fault::Short),
            (header(0x21, 0x21, &[0; 35]), Fault::Short),
            (endless, Fault::TooLong),
        ];
        for (bytes, fault) in table {
            assert_eq!(scan(&bytes), Scan::Refused(fault), "{bytes:02x?}");
        }
    }

    #[test]
    fn no_bytes_make_it_panic_or_take_more_than_it_was_given() {
        let mut rng = grandstand_core::rng::Rng::new(72);
        for _ in 0..20_000 {
            let mut bytes = header(0x21, [0x11, 0x21][rng.below(2) as usize], &vec![7; rng.below(64) as usize]);
            for _ in 0..rng.below(4) {
                let at = rng.below(bytes.len() as u64) as usize;
                bytes[at] = rng.next() as u8;
            }
            bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize);
            if let Scan::Whole { len, .. } = scan(&bytes) {
                assert!(len <= bytes.len());
            }
        }
    }
}
