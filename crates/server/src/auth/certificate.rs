//! Who a client's certificate says it is, and whether that is who it should be.
//!
//! The handshake has checked the certificate already: its authority, its time, its use, its revocation. What is left is the question
//! whose it is. It is answered by a name that the authority put into it (a DNS name or a URI of its SAN, whole, never a wildcard and
//! never the subject) or by the certificate itself (SHA-256 of it).

use std::fmt;

use aws_lc_rs::digest;
use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

/// What a gateway tells control of a score provider's certificate: the whole of it, in base64url. A client's own header of the name
/// goes no further.
pub const HEADER: &str = "x-grandstand-certificate";
/// A certificate of a provider with an RSA key of 8 192 bits and a page of names; a longer one is not passed on.
pub const BYTES_MAX: usize = 8 * 1024;

/// Whose a certificate must be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Holder {
    Dns(String),
    Uri(String),
    Sha256([u8; 32]),
}

impl Holder {
    pub const RULE: &'static str =
        "must be dns:NAME or uri:URI as the certificate's SAN has it, without a wildcard, or sha256: and 64 hex digits";

    /// Errors: `None` when it breaks [`Holder::RULE`].
    pub fn parse(text: &str) -> Option<Holder> {
        let (kind, name) = text.split_once(':')?;
        let is_plain = !name.is_empty() && name.bytes().all(|b| b.is_ascii_graphic()) && !name.contains('*');
        match kind {
            "dns" if is_plain => Some(Holder::Dns(name.to_ascii_lowercase())),
            "uri" if is_plain => Some(Holder::Uri(name.to_owned())),
            "sha256" => {
                let digits: Vec<u8> = name.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect::<Option<_>>()?;
                let bytes: Vec<u8> = digits.chunks(2).map(|pair| pair.iter().fold(0, |all, d| all << 4 | d)).collect();
                (digits.len() == 64).then(|| bytes.try_into().ok()).flatten().map(Holder::Sha256)
            }
            _ => None,
        }
    }

    /// Whether a certificate, which the handshake has checked, is this holder's.
    pub fn holds(&self, certificate: &[u8]) -> bool {
        if let Holder::Sha256(wanted) = self {
            return digest::digest(&digest::SHA256, certificate).as_ref() == wanted;
        }
        let der = CertificateDer::from(certificate);
        let Ok(parsed) = EndEntityCert::try_from(&der) else { return false };
        match self {
            Holder::Dns(wanted) => parsed.valid_dns_names().any(|name| name.eq_ignore_ascii_case(wanted)),
            Holder::Uri(wanted) => parsed.valid_uri_names().any(|name| name == wanted),
            Holder::Sha256(_) => false,
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Holder::Dns(name) => write!(f, "dns:{name}"),
            Holder::Uri(name) => write!(f, "uri:{name}"),
            Holder::Sha256(hash) => {
                f.write_str("sha256:")?;
                hash.iter().try_for_each(|b| write!(f, "{b:02x}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Holder;

    #[test]
    fn a51_a_holder_is_named_whole_and_never_by_a_wildcard() {
        let hash = "0123456789abcdef".repeat(4);
        for good in ["dns:feed.example.com", "uri:spiffe://example.com/feed", &format!("sha256:{hash}")] {
            assert_eq!(Holder::parse(good).map(|h| h.to_string()).as_deref(), Some(good));
        }
        let short = format!("sha256:{}", &hash[1..]);
        for bad in ["", "dns:", "dns:*.example.com", "dns:a b", "cn:feed", "sha256:", &short, "feed.example.com"] {
            assert_eq!(Holder::parse(bad), None, "{bad}");
        }
        assert!(!Holder::parse("dns:a").unwrap().holds(b"no certificate"));
    }
}
