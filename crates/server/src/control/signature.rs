//! The signature of a score provider: who sent these bytes here, just now.
//!
//! `X-Signature: t=<unix>,kid=<k>,v1=<hex HMAC-SHA256 of method\npath\nt\nsha256(body)>`. The time is inside, so that an old
//! body is not valid for ever; method and path are inside, so that it is not valid elsewhere. Compared in constant time, and
//! a request without a known key costs the same work as one with a wrong signature. Source: docs/protocol.md, score ingress.

use std::time::Duration;

use aws_lc_rs::{digest, hmac};
use grandstand_core::time::Wall;

use crate::config::ProviderKey;

/// A signature is good this long before and after its time.
pub const AGE_MAX: Duration = Duration::from_secs(300);

/// Why a request is not the provider's. Told to nobody but the log: outside, all of them are one answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    #[error("X-Signature is not t=…,kid=…,v1=…")]
    Malformed,
    #[error("the time of the signature is more than 300 s away")]
    Stale,
    #[error("no such provider and key, or the signature is wrong")]
    Wrong,
}

/// Checks a request's signature; the provider's name on success.
pub fn check<'a>(
    keys: &'a [ProviderKey],
    provider: &str,
    signature: &str,
    (method, path, body): (&str, &str, &[u8]),
    now: Wall,
) -> Result<&'a str, Fault> {
    let parts = parse(signature).ok_or(Fault::Malformed)?;
    let t = Wall(parts.t.checked_mul(1000).ok_or(Fault::Malformed)?);
    let known = keys.iter().find(|k| k.provider == provider && k.kid == parts.kid);
    let secret = known.map_or(&[0u8; 32][..], |k| &k.key);
    let body = hex(digest::digest(&digest::SHA256, body).as_ref());
    let signed = format!("{method}\n{path}\n{}\n{body}", parts.t);
    let holds = hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, secret), signed.as_bytes(), &parts.v1).is_ok();
    match known {
        Some(key) if holds => {
            let away = now.since(t).max(t.since(now));
            if away > AGE_MAX { Err(Fault::Stale) } else { Ok(&key.provider) }
        }
        _ => Err(Fault::Wrong),
    }
}

struct Parts<'a> {
    t: u64,
    kid: &'a str,
    v1: [u8; 32],
}

/// Exactly these three, in this order, each once.
fn parse(text: &str) -> Option<Parts<'_>> {
    let mut parts = text.split(',');
    let (t, kid, v1) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let t = t.strip_prefix("t=")?;
    if t.is_empty() || t.len() > 12 || !t.bytes().all(|b| b.is_ascii_digit()) || (t.len() > 1 && t.starts_with('0')) {
        return None;
    }
    let kid = kid.strip_prefix("kid=").filter(|k| !k.is_empty())?;
    Some(Parts { t: t.parse().ok()?, kid, v1: unhex(v1.strip_prefix("v1=")?)? })
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Errors: `None` for anything but 64 digits.
pub(super) fn unhex(text: &str) -> Option<[u8; 32]> {
    let digits: Vec<u8> = text.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect::<Option<_>>()?;
    let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    (digits.len() == 64).then(|| bytes.try_into().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use grandstand_core::time::Wall;

    use super::{Fault, check, hex};
    use crate::config::ProviderKey;

    const T: u64 = 1_700_000_000;
    const NOW: Wall = Wall(T * 1000);
    // printf 'POST\n/v1/score-event\n1700000000\n%s' "$(printf '{}' | sha256sum | cut -d' ' -f1)" | openssl dgst -sha256 -hmac secret
    const GOLDEN: &str = "t=1700000000,kid=k1,v1=b9835f8f81db00b49a608e219473c0a72f63dd1f3f4aa1f140939a879ce7fbd2";

    fn keys() -> Vec<ProviderKey> {
        let key = |provider: &str, kid: &str, key: &[u8]| ProviderKey {
            provider: provider.into(),
            kid: kid.into(),
            key: key.to_vec(),
            certificate: None,
        };
        vec![key("feed", "k1", b"secret"), key("feed", "k2", b"newer secret"), key("other", "k1", b"others secret")]
    }

    fn checked(provider: &str, signature: &str, what: (&str, &str, &[u8]), now: Wall) -> Result<String, Fault> {
        check(&keys(), provider, signature, what, now).map(str::to_owned)
    }

    const WHAT: (&str, &str, &[u8]) = ("POST", "/v1/score-event", b"{}");

    #[test]
    fn the_golden_signature_holds() {
        assert_eq!(checked("feed", GOLDEN, WHAT, NOW), Ok("feed".into()));
    }

    #[test]
    fn it_holds_for_nothing_but_its_method_path_body_and_owner() {
        for what in [("PUT", WHAT.1, WHAT.2), (WHAT.0, "/v1/score-events", WHAT.2), (WHAT.0, WHAT.1, &b"{ }"[..])] {
            assert_eq!(checked("feed", GOLDEN, what, NOW), Err(Fault::Wrong));
        }
        assert_eq!(checked("other", GOLDEN, WHAT, NOW), Err(Fault::Wrong), "another provider's key of the same kid");
        assert_eq!(checked("nobody", GOLDEN, WHAT, NOW), Err(Fault::Wrong));
        for kid in ["k2", "k3", "K1"] {
            assert_eq!(checked("feed", &GOLDEN.replace("k1", kid), WHAT, NOW), Err(Fault::Wrong), "{kid}");
        }
        let flipped = GOLDEN.replace("v1=b9", "v1=b8");
        assert_eq!(checked("feed", &flipped, WHAT, NOW), Err(Fault::Wrong));
    }

    #[test]
    fn it_is_good_for_300_seconds_on_either_side() {
        let at = |s: i64| Wall(NOW.0.saturating_add_signed(s * 1000));
        for near in [-300, 0, 300] {
            assert_eq!(checked("feed", GOLDEN, WHAT, at(near)), Ok("feed".into()));
        }
        for far in [-301, 301, 86_400] {
            assert_eq!(checked("feed", GOLDEN, WHAT, at(far)), Err(Fault::Stale), "{far}");
        }
        let later = GOLDEN.replace("1700000000", "1700000100");
        assert_eq!(
            checked("feed", &later, WHAT, NOW + Duration::from_secs(100)),
            Err(Fault::Wrong),
            "the time is signed"
        );
    }

    #[test]
    fn other_forms_are_not_guessed_at() {
        let v1 = &GOLDEN[GOLDEN.len() - 64..];
        for bad in [
            String::new(),
            v1.to_owned(),
            format!("v1={v1},t=1700000000,kid=k1"),
            format!("t=1700000000,kid=k1,v1={v1},v1={v1}"),
            format!("t=+1700000000,kid=k1,v1={v1}"),
            format!("t=01700000000,kid=k1,v1={v1}"),
            format!("t=99999999999999999999,kid=k1,v1={v1}"),
            format!("t=,kid=k1,v1={v1}"),
            format!("t=1700000000,kid=,v1={v1}"),
            format!("t=1700000000,kid=k1,v1={}", &v1[..62]),
            format!("t=1700000000,kid=k1,v1={}zz", &v1[..62]),
            format!("t=1700000000, kid=k1, v1={v1}"),
        ] {
            assert_eq!(checked("feed", &bad, WHAT, NOW), Err(Fault::Malformed), "{bad}");
        }
    }

    #[test]
    fn hex_is_lower_case() {
        assert_eq!(hex(&[0, 0xab]), "00ab");
    }
}
