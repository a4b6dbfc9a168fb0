//! The PROXY header: judged the same however it comes, and as a plain reading of version 2 judges it.

use std::net::{IpAddr, SocketAddr};

use grandstand_core::rng::Rng;
use grandstand_wire::proxy::{BYTES_MAX, Scan, scan};

use crate::bytes::{outcome, word};

pub fn generate(rng: &mut Rng) -> Vec<u8> {
    let mut out = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
    out.push(if rng.chance(1, 8) { rng.next() as u8 } else { 0x20 | rng.below(2) as u8 });
    out.push(if rng.chance(1, 8) { rng.next() as u8 } else { [0x11, 0x21, 0x00, 0x31, 0x12][rng.below(5) as usize] });
    let body_max = if rng.chance(1, 20) { 1_100 } else { 60 };
    let body = rng.below(body_max) as usize;
    let declared = if rng.chance(1, 8) { rng.next() as u16 } else { body as u16 };
    out.extend(declared.to_be_bytes());
    out.extend((0..body).map(|_| if rng.chance(1, 3) { 0 } else { rng.next() as u8 }));
    out
}

pub fn check(input: &[u8]) -> u64 {
    let whole = scan(input);
    let mut answered = None;
    // A decision stands, whatever comes after it.
    for n in 0..=input.len().min(BYTES_MAX + 40) {
        let now = scan(&input[..n]);
        match answered {
            None if now != Scan::More => answered = Some(now),
            None => {}
            Some(before) => assert_eq!(now, before, "after {n} bytes"),
        }
    }
    if input.len() <= BYTES_MAX + 40 {
        assert_eq!(answered.unwrap_or(Scan::More), whole);
    }
    match (whole, plain(input)) {
        (Scan::Whole { len, client }, Some((plain_len, plain_client))) => {
            assert_eq!((len, client), (plain_len, plain_client));
        }
        (Scan::Whole { .. }, None) => panic!("taken: {whole:?}"),
        (Scan::More | Scan::Refused(_), plain) => assert_eq!(plain, None, "{whole:?}"),
    }
    match whole {
        Scan::More => outcome(&[1]),
        Scan::Whole { client, .. } => outcome(&[2, client.map_or(0, |c| 1 + u64::from(c.is_ipv6()))]),
        Scan::Refused(fault) => outcome(&[3, word(&format!("{fault:?}"))]),
    }
}

/// A whole, good header's length and client.
fn plain(bytes: &[u8]) -> Option<(usize, Option<SocketAddr>)> {
    let rest = bytes.strip_prefix(b"\x0d\x0a\x0d\x0a\x00\x0d\x0a\x51\x55\x49\x54\x0a")?;
    let [version_command, family, high, low, rest @ ..] = rest else { return None };
    let len = usize::from(*high) * 256 + usize::from(*low);
    let body = rest.get(..len)?;
    let known = matches!(version_command, 0x20 | 0x21) && family & 15 <= 2 && family >> 4 <= 3;
    if !known || 16 + len > BYTES_MAX {
        return None;
    }
    let client = match (version_command, family) {
        (0x21, 0x11) => {
            let four: [u8; 4] = body.get(..12)?[..4].try_into().ok()?;
            Some(SocketAddr::new(IpAddr::from(four), u16::from_be_bytes([body[8], body[9]])))
        }
        (0x21, 0x21) => {
            let sixteen: [u8; 16] = body.get(..36)?[..16].try_into().ok()?;
            Some(SocketAddr::new(IpAddr::from(sixteen).to_canonical(), u16::from_be_bytes([body[32], body[33]])))
        }
        _ => None,
    };
    Some((16 + len, client))
}
