//! The signature of a score provider. Source: docs/protocol.md, score ingress (the body alone could be replayed).

use aws_lc_rs::{digest, hmac};

/// A provider's key, as the server's configuration names it.
#[derive(Clone)]
pub struct Signer {
    pub provider: String,
    pub kid: String,
    key: hmac::Key,
}

impl Signer {
    pub fn new(provider: &str, kid: &str, key: &[u8]) -> Signer {
        Signer { provider: provider.to_owned(), kid: kid.to_owned(), key: hmac::Key::new(hmac::HMAC_SHA256, key) }
    }

    /// The value of `X-Signature`: `t=<unix>,kid=<k>,v1=<hex HMAC-SHA256 of method\npath\nt\nsha256(body)>`.
    ///
    /// Units: `unix` in seconds. `path` is the request target's path, without its query.
    pub fn signature(&self, method: &str, path: &str, unix: u64, body: &[u8]) -> String {
        let body = hex(digest::digest(&digest::SHA256, body).as_ref());
        let tag = hmac::sign(&self.key, format!("{method}\n{path}\n{unix}\n{body}").as_bytes());
        format!("t={unix},kid={},v1={}", self.kid, hex(tag.as_ref()))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::Signer;

    #[test]
    fn the_signature_covers_method_path_time_and_body() {
        let signer = Signer::new("feed", "k1", b"secret");
        let base = signer.signature("POST", "/v1/score-event", 1_700_000_000, b"{}");
        // printf 'POST\n/v1/score-event\n1700000000\n%s' "$(printf '{}' | sha256sum | cut -d' ' -f1)" | openssl dgst -sha256 -hmac secret
        assert_eq!(base, GOLDEN);
        for other in [
            signer.signature("PUT", "/v1/score-event", 1_700_000_000, b"{}"),
            signer.signature("POST", "/v1/other", 1_700_000_000, b"{}"),
            signer.signature("POST", "/v1/score-event", 1_700_000_000, b"{ }"),
        ] {
            assert_ne!(other, base);
        }
    }

    const GOLDEN: &str = "t=1700000000,kid=k1,v1=b9835f8f81db00b49a608e219473c0a72f63dd1f3f4aa1f140939a879ce7fbd2";
}
