//! The keys that tokens are signed by: the server's own, the configuration's, and a key set file's.
//!
//! Each has a name (`kid`) and the one algorithm it signs with. A key that could not verify safely is refused where it is read,
//! so that a mistake is seen at start and not at the first login.
//! Source: RFC 7517, RFC 8725.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, RwLock};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use grandstand_core::access::Revoked;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;

use super::files;
use super::token::Claims;

/// Larger key set files are refused.
pub const JWKS_BYTES_MAX: u64 = 64 * 1024;
/// The key made in the data folder.
pub const OWN_KID: &str = "own";

/// A `kid` this process was ever told of, in two bytes: every stream's identity carries one. 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct KeyName(u16);

/// All of them, in the order they came. Key sets hold a handful and change every few months.
static NAMES: RwLock<Vec<Arc<str>>> = RwLock::new(Vec::new());

impl KeyName {
    /// Errors: `None` when it is empty, longer than 256 bytes or holds control characters, or after 65 535 of them.
    pub fn of(kid: &str) -> Option<KeyName> {
        if !Revoked::is_name(kid) {
            return None;
        }
        let mut names = NAMES.write().expect("no holder of this lock can panic");
        let at = names.iter().position(|name| **name == *kid).unwrap_or_else(|| {
            if names.len() < usize::from(u16::MAX) {
                names.push(kid.into());
            }
            names.len() - 1
        });
        (*names[at] == *kid).then(|| KeyName(at as u16 + 1))
    }

    /// Empty for none.
    pub fn text(self) -> Arc<str> {
        let names = NAMES.read().expect("no holder of this lock can panic");
        let at = usize::from(self.0).checked_sub(1);
        at.and_then(|at| names.get(at)).cloned().unwrap_or_default()
    }
}

/// The key tokens are signed with: made in the data folder at first start.
pub struct SigningKey {
    pub(super) pair: Ed25519KeyPair,
}

impl SigningKey {
    /// Reads `dir/signing.key`, making it when it is not there.
    pub fn in_folder(dir: &Path) -> Result<SigningKey, files::Fault> {
        let fresh = || {
            let pair = Ed25519KeyPair::generate().expect("the system's random source works");
            let der = pair.to_pkcs8v1().expect("a fresh key pair can be written down");
            files::der_to_pem(der.as_ref(), "PRIVATE KEY").into_bytes()
        };
        let text = files::read_or_make(dir, files::SIGNING_KEY, fresh)?;
        files::pem_to_der(&text, "PRIVATE KEY")
            .and_then(|der| Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der).ok())
            .map(|pair| SigningKey { pair })
            .ok_or_else(|| files::Fault::Malformed { path: dir.join(files::SIGNING_KEY) })
    }

    /// A signed token.
    pub fn mint(&self, claims: &Claims) -> String {
        self.sign_text(&serde_json::to_string(claims).expect("claims are plain data"))
    }

    /// A token that says exactly this, whatever it is.
    pub fn sign_text(&self, claims: &str) -> String {
        let header = format!(r#"{{"alg":"EdDSA","kid":"{OWN_KID}","typ":"JWT"}}"#);
        let mut token = URL_SAFE_NO_PAD.encode(header);
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(claims, &mut token);
        let signature = self.pair.sign(token.as_bytes());
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature.as_ref(), &mut token);
        token
    }

    pub(super) fn verifying_key(&self) -> TrustedKey {
        TrustedKey {
            kid: OWN_KID.to_owned(),
            name: KeyName::of(OWN_KID).expect("it is a name, and the first"),
            algorithm: Algorithm::EdDSA,
            key: DecodingKey::from_ed_der(self.pair.public_key().as_ref()),
            own: true,
        }
    }
}

/// A key whose tokens are believed, with the one algorithm it signs by.
#[derive(Clone)]
pub struct TrustedKey {
    pub(super) kid: String,
    pub(super) name: KeyName,
    pub(super) algorithm: Algorithm,
    pub(super) key: DecodingKey,
    /// Made here: only such a key signs guests.
    pub(super) own: bool,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyFault {
    #[error("algorithm {0:?} is not one of RS256, ES256, EdDSA")]
    Algorithm(String),
    #[error("the public key is not a PEM public key for its algorithm")]
    Pem,
    #[error("kid is empty, longer than 256 bytes or no plain text")]
    Kid,
    #[error("the RSA key is shorter than 2 048 bits")]
    Weak,
    #[error("two keys have the kid {0:?}")]
    Twice(String),
    #[error("the key set is not a JWKS document of at most 64 KiB")]
    NotJwks,
    #[error("the key set holds a key that cannot verify tokens (kid {0:?}): {1}")]
    Unusable(String, &'static str),
    #[error("the key set file cannot be read: {0}")]
    Io(String),
}

impl TrustedKey {
    /// A key from the configuration.
    pub fn from_pem(kid: &str, algorithm: &str, pem: &[u8]) -> Result<TrustedKey, KeyFault> {
        let name = KeyName::of(kid).ok_or(KeyFault::Kid)?;
        let bad = |_| KeyFault::Pem;
        let (algorithm, key) = match algorithm {
            "RS256" => (Algorithm::RS256, DecodingKey::from_rsa_pem(pem).map_err(bad)?),
            "ES256" => (Algorithm::ES256, DecodingKey::from_ec_pem(pem).map_err(bad)?),
            "EdDSA" => (Algorithm::EdDSA, DecodingKey::from_ed_pem(pem).map_err(bad)?),
            other => return Err(KeyFault::Algorithm(other.to_owned())),
        };
        let n_bytes = key.try_get_as_bytes().map_or(0, <[u8]>::len);
        match algorithm {
            // DER of a 2 048 bit RSA public key: 256 bytes of modulus and its wrapping.
            Algorithm::RS256 if n_bytes < 256 => return Err(KeyFault::Weak),
            // An uncompressed P-256 point.
            Algorithm::ES256 if n_bytes != 65 => return Err(KeyFault::Pem),
            Algorithm::EdDSA if n_bytes != 32 => return Err(KeyFault::Pem),
            _ => {}
        }
        Ok(TrustedKey { kid: kid.to_owned(), name, algorithm, key, own: false })
    }

    fn from_jwk(jwk: &Jwk) -> Result<TrustedKey, KeyFault> {
        let kid = jwk.common.key_id.clone().unwrap_or_default();
        let unusable = |why| KeyFault::Unusable(kid.clone(), why);
        let name = KeyName::of(&kid).ok_or(KeyFault::Kid)?;
        if jwk.common.public_key_use.as_ref().is_some_and(|u| *u != PublicKeyUse::Signature) {
            return Err(unusable("its use is not sig"));
        }
        let algorithm = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => Algorithm::RS256,
            AlgorithmParameters::EllipticCurve(p) if p.curve == EllipticCurve::P256 => Algorithm::ES256,
            AlgorithmParameters::OctetKeyPair(p) if p.curve == EllipticCurve::Ed25519 => Algorithm::EdDSA,
            _ => return Err(unusable("only RSA, P-256 and Ed25519 keys are taken")),
        };
        if jwk.common.key_algorithm.is_some_and(|a| a.to_string() != format!("{algorithm:?}")) {
            return Err(unusable("only RS256, ES256 and EdDSA are taken"));
        }
        if let AlgorithmParameters::RSA(p) = &jwk.algorithm {
            let n_bytes = URL_SAFE_NO_PAD.decode(&p.n).map_err(|_| unusable("n is not base64url"))?.len();
            if n_bytes < 256 {
                return Err(KeyFault::Weak);
            }
        }
        let key = DecodingKey::from_jwk(jwk).map_err(|_| unusable("its numbers are malformed"))?;
        Ok(TrustedKey { kid, name, algorithm, key, own: false })
    }
}

/// Reads a JWKS document.
/// Errors: the first key that cannot be used, so that a typo is seen at start and not at the first login.
pub fn parse_jwks(bytes: &[u8]) -> Result<Vec<TrustedKey>, KeyFault> {
    if bytes.len() as u64 > JWKS_BYTES_MAX {
        return Err(KeyFault::NotJwks);
    }
    #[derive(Deserialize)]
    struct Set {
        keys: Vec<Jwk>,
    }
    let set: Set = serde_json::from_slice(bytes).map_err(|_| KeyFault::NotJwks)?;
    set.keys.iter().map(TrustedKey::from_jwk).collect()
}

/// Reads a JWKS document of somebody else's: what cannot verify tokens (keys for encryption, other curves) is passed over and said.
/// Errors: no key in it can be used.
pub fn parse_published(bytes: &[u8]) -> Result<Vec<TrustedKey>, KeyFault> {
    if bytes.len() as u64 > JWKS_BYTES_MAX {
        return Err(KeyFault::NotJwks);
    }
    #[derive(Deserialize)]
    struct Set {
        keys: Vec<serde_json::Value>,
    }
    let set: Set = serde_json::from_slice(bytes).map_err(|_| KeyFault::NotJwks)?;
    let read = |value| serde_json::from_value::<Jwk>(value).map_err(|_| KeyFault::NotJwks);
    let (good, bad): (Vec<_>, Vec<_>) = set
        .keys
        .into_iter()
        .map(|value| read(value).and_then(|jwk| TrustedKey::from_jwk(&jwk)))
        .partition(Result::is_ok);
    let mut bad =
        bad.into_iter().filter_map(Result::err).inspect(|why| tracing::debug!(%why, "a published key is passed over"));
    let first = bad.next();
    bad.for_each(drop);
    let good: Vec<TrustedKey> = good.into_iter().filter_map(Result::ok).collect();
    if good.is_empty() { Err(first.unwrap_or(KeyFault::NotJwks)) } else { Ok(good) }
}

/// Which algorithms' keys are believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Algorithms(u8);

impl Default for Algorithms {
    fn default() -> Algorithms {
        Algorithms(0b111)
    }
}

impl Algorithms {
    const ALL: [(&'static str, Algorithm); 3] =
        [("EdDSA", Algorithm::EdDSA), ("ES256", Algorithm::ES256), ("RS256", Algorithm::RS256)];

    /// Errors: `None` for an empty list, and for a name that is not EdDSA, ES256 or RS256.
    pub fn of(names: &[String]) -> Option<Algorithms> {
        let bit = |name: &String| Algorithms::ALL.iter().position(|(known, _)| known == name).map(|at| 1 << at);
        let bits = names.iter().map(bit).collect::<Option<Vec<u8>>>()?;
        let all = bits.into_iter().fold(0, |all, bit| all | bit);
        (all != 0).then_some(Algorithms(all))
    }

    pub(super) fn has(self, algorithm: Algorithm) -> bool {
        Algorithms::ALL.iter().enumerate().any(|(at, (_, known))| *known == algorithm && self.0 & 1 << at != 0)
    }
}

impl TrustedKey {
    /// Whether a list of algorithms has this key's.
    pub fn is_of(&self, algorithms: Algorithms) -> bool {
        algorithms.has(self.algorithm)
    }
    pub fn kid(&self) -> &str {
        &self.kid
    }
    /// Whether the key signed the message; `signature` in base64url, as a token has it.
    pub(super) fn signed(&self, message: &[u8], signature: &str) -> bool {
        jsonwebtoken::crypto::verify(signature, message, &self.key, self.algorithm).unwrap_or(false)
    }
}

/// All keys there are. Errors: a key that cannot be used, or two of one name.
pub(super) fn load_keys(
    fixed: &[TrustedKey],
    jwks_file: Option<&Path>,
) -> Result<HashMap<String, TrustedKey>, KeyFault> {
    let mut all = fixed.to_vec();
    if let Some(path) = jwks_file {
        let meta = std::fs::metadata(path).map_err(|e| KeyFault::Io(e.to_string()))?;
        if meta.len() > JWKS_BYTES_MAX {
            return Err(KeyFault::NotJwks);
        }
        all.extend(parse_jwks(&std::fs::read(path).map_err(|e| KeyFault::Io(e.to_string()))?)?);
    }
    let mut keys = HashMap::new();
    for key in all {
        if let Some(twice) = keys.insert(key.kid.clone(), key) {
            return Err(KeyFault::Twice(twice.kid));
        }
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use serde_json::{Value, json};

    use super::{KeyFault, TrustedKey, parse_jwks, parse_published};

    /// The vectors' own format is told in their files.
    #[test]
    fn a40_signatures_hold_exactly_where_wycheproof_says_so() {
        let unhex = |text: &str| -> Vec<u8> {
            let digits: Vec<u8> =
                text.bytes().filter(|b| *b != b'-').map(|b| (b as char).to_digit(16).unwrap() as u8).collect();
            digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
        };
        for (name, text, n_valid, n_all) in [
            ("ed25519", include_str!("vectors/ed25519.txt"), 88, 151),
            ("p256", include_str!("vectors/p256.txt"), 173, 262),
            ("rsa2048", include_str!("vectors/rsa2048.txt"), 9, 63),
        ] {
            let (mut key, mut n) = (None, [0, 0]);
            for line in text.lines().filter(|line| !line.starts_with('#')) {
                if let Some(members) = line.strip_prefix("key ") {
                    let mut jwk: Value = serde_json::from_str(members).unwrap();
                    jwk["kid"] = json!("k");
                    key = parse_jwks(json!({"keys": [jwk]}).to_string().as_bytes()).unwrap().pop();
                    continue;
                }
                let mut words = line.splitn(4, ' ');
                let mut word = || words.next().unwrap();
                let (valid, message, signature, what) = (word() == "valid", unhex(word()), unhex(word()), word());
                let holds = key.as_ref().unwrap().signed(&message, &URL_SAFE_NO_PAD.encode(&signature));
                assert_eq!(holds, valid, "{name}: {what}");
                n[usize::from(valid)] += 1;
            }
            assert_eq!((n[1], n[0] + n[1]), (n_valid, n_all), "{name}: as many as there are");
        }
    }

    #[test]
    fn a_published_set_is_taken_without_what_cannot_verify_tokens() {
        let good = json!({"kty": "OKP", "crv": "Ed25519", "kid": "good", "x": URL_SAFE_NO_PAD.encode([1; 32])});
        let encrypts =
            json!({"kty": "RSA", "use": "enc", "kid": "b", "n": URL_SAFE_NO_PAD.encode([1; 256]), "e": "AQAB"});
        let odd = json!({"kty": "of another world", "kid": "c"});
        let set = |keys: Value| parse_published(json!({"keys": keys}).to_string().as_bytes());
        let kept = set(json!([encrypts, good, odd])).unwrap();
        assert_eq!(kept.iter().map(TrustedKey::kid).collect::<Vec<_>>(), ["good"]);
        assert!(set(json!([encrypts])).is_err() && set(json!([])).is_err(), "one at least");
    }

    #[test]
    fn keys_that_could_not_verify_safely_are_refused_at_start() {
        let fault = |keys: Value| parse_jwks(json!({"keys": [keys]}).to_string().as_bytes()).err();
        let oct = json!({"kty": "oct", "kid": "a", "k": "c2VjcmV0"});
        assert!(matches!(fault(oct), Some(KeyFault::Unusable(..))));
        let short = json!({"kty": "RSA", "kid": "a", "n": URL_SAFE_NO_PAD.encode([1; 128]), "e": "AQAB"});
        assert_eq!(fault(short), Some(KeyFault::Weak));
        let p384 = json!({"kty": "EC", "crv": "P-384", "kid": "a", "x": "AA", "y": "AA"});
        assert!(matches!(fault(p384), Some(KeyFault::Unusable(..))));
        let pss = json!({"kty": "RSA", "kid": "a", "alg": "PS256", "n": URL_SAFE_NO_PAD.encode([1; 256]), "e": "AQAB"});
        assert!(matches!(fault(pss), Some(KeyFault::Unusable(..))));
        let nameless = json!({"kty": "OKP", "crv": "Ed25519", "x": URL_SAFE_NO_PAD.encode([1; 32])});
        assert_eq!(fault(nameless), Some(KeyFault::Kid));
        assert!(matches!(TrustedKey::from_pem("a", "HS256", b"x"), Err(KeyFault::Algorithm(_))));
        assert_eq!(TrustedKey::from_pem("a", "EdDSA", b"x").err(), Some(KeyFault::Pem));
    }
}
