//! JSON Web Tokens: read with suspicion, written plainly.
//!
//! Like a ticket office with a list of printers it knows ([`super::keys`]): the token names a key (`kid`), the list says which
//! one algorithm that key signs with, and nothing inside the token can change either. What it must never do: take a key, an address or
//! an algorithm from the token, or read a claim of the wrong type as absent. The awkward case is a key that is replaced
//! while tokens of the old one live: both are in the file, and an unknown `kid` re-reads the file at most every 30 s.
//! Source: RFC 7515, RFC 7519, RFC 8725.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use grandstand_core::access::Revoked;
use grandstand_core::names::UserId;
use grandstand_core::time::Wall;
use grandstand_wire::limits::BADGE_BYTES_MAX;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

use super::board::{Board, Word};
use super::key_set::{Found, KeySet};
use super::keys::{Algorithms, KeyFault, KeyName, SigningKey, TrustedKey, load_keys};
use super::remembered::{Remembered, TokenHash};
use super::{GUEST_PREFIX, Identity, LEEWAY, More, Role, Roles, RoomPattern, display_name, files};
use crate::metrics::{Metrics, add};

/// Larger tokens are refused unread.
pub const TOKEN_BYTES_MAX: usize = 4096;
/// An unknown `kid` makes the key set file be read again at most this often.
const RELOAD_EVERY: Duration = Duration::from_secs(30);
/// Why a token is refused. None of it tells more than the token's holder knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AuthFault {
    #[error("the token is larger than 4 KiB")]
    TooLarge,
    #[error("the token is not a compact JWS")]
    Malformed,
    #[error("the token's header holds what is not accepted: {0}")]
    Header(&'static str),
    #[error("the token is signed by a key that is not known here")]
    UnknownKey,
    #[error("the token's algorithm is not its key's")]
    Algorithm,
    #[error("the token's signature is wrong")]
    Signature,
    #[error("the token's claim {0} is missing or not of its type")]
    Claim(&'static str),
    #[error("the token has expired")]
    Expired,
    #[error("the token is not valid yet")]
    NotYet,
    /// Its key may be in a newer set, which is being fetched: it may be good in a moment.
    #[error("the token's key is not known here yet")]
    Unsure,
    /// `by_key`: all of its key are; its holder may come with another.
    #[error("the token is revoked")]
    Revoked { by_key: bool },
}

/// What a token says, as it stands in it. Seconds since 1970 UTC.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Claims {
    pub sub: String,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "typed")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "typed")]
    pub badges: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "typed")]
    pub rooms: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "typed")]
    pub follows: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "typed")]
    pub roles: Option<Vec<String>>,
    pub exp: u64,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "typed")]
    pub iat: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "typed")]
    pub nbf: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "typed")]
    pub iss: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "audience")]
    pub aud: Option<Vec<String>>,
    /// The session it belongs to, by which it can be revoked.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "typed")]
    pub sid: Option<String>,
}

impl Claims {
    /// A token's claims for `sub`, ending `ttl` after `now`.
    pub fn new(sub: &str, now: Wall, ttl: Duration) -> Claims {
        Claims {
            sub: sub.to_owned(),
            name: None,
            badges: None,
            rooms: None,
            follows: None,
            roles: None,
            exp: (now + ttl).0 / 1000,
            iat: Some(now.0 / 1000),
            nbf: None,
            iss: None,
            aud: None,
            sid: None,
        }
    }

    /// A fresh guest's claims: a random `sub`, role publisher, 12 hours.
    /// Errors: `None` when the name breaks the rule of [`display_name`].
    pub fn guest(name: &str, now: Wall) -> Option<Claims> {
        let name = display_name(name)?;
        let sub = format!("{GUEST_PREFIX}{}", URL_SAFE_NO_PAD.encode(files::random::<12>()));
        let roles = Some(vec!["publisher".to_owned()]);
        Some(Claims { name: Some(name.to_string()), roles, ..Claims::new(&sub, now, super::GUEST_TTL) })
    }

    /// Checks every claim but the times.
    /// Errors: the claim at fault.
    pub fn identity(&self) -> Result<Identity, AuthFault> {
        let user = UserId::parse(&self.sub).ok_or(AuthFault::Claim("sub"))?;
        let name = match &self.name {
            Some(name) => Some(display_name(name).ok_or(AuthFault::Claim("name"))?),
            None => None,
        };
        let badges = list(&self.badges, 8, "badges", |b| display_name(b).filter(|b| b.len() <= BADGE_BYTES_MAX))?;
        let follows = list(&self.follows, 200, "follows", UserId::parse)?;
        let rooms = match &self.rooms {
            Some(_) => Some(list(&self.rooms, 128, "rooms", RoomPattern::parse)?.into()),
            None => None,
        };
        let session = match &self.sid {
            Some(sid) if !Revoked::is_name(sid) => return Err(AuthFault::Claim("sid")),
            sid => sid.as_deref().map(Box::from),
        };
        let says_more = !badges.is_empty() || rooms.is_some() || !follows.is_empty() || session.is_some();
        let more = More { badges: badges.into(), rooms, follows: follows.into(), session, late_until: None };
        let more = says_more.then(|| Box::new(more));
        let roles = match &self.roles {
            Some(_) => Roles::of(&list(&self.roles, 16, "roles", Role::parse)?),
            None => Roles::of(&[Role::Publisher]),
        };
        // Beyond the year 9999 a time is a mistake, and times 1 000 it must stay far from overflow.
        let exp = (self.exp <= 253_402_300_799).then(|| Wall(self.exp * 1000)).ok_or(AuthFault::Claim("exp"))?;
        let issued = u32::try_from(self.iat.unwrap_or(0)).unwrap_or(u32::MAX);
        let key = KeyName::default();
        Ok(Identity { user, name, more, roles, exp, issued, key, token: TokenHash::default() })
    }
}

/// Turns tokens into identities; shared by every door and thread.
pub struct Verifier {
    fixed: Vec<TrustedKey>,
    jwks_file: Option<PathBuf>,
    issuer: Option<String>,
    audience: Vec<String>,
    keys: RwLock<Arc<HashMap<String, TrustedKey>>>,
    reloaded: Mutex<Wall>,
    remembered: Mutex<Remembered>,
    board: Arc<Board>,
    /// Keys that an identity provider publishes at an address, and of which of its states tokens are remembered.
    key_set: Option<Arc<KeySet>>,
    remembered_of: AtomicU64,
    /// Names of keys that are not believed, whoever publishes them.
    denied: Vec<String>,
    algorithms: Algorithms,
    metrics: Arc<Metrics>,
}

impl Verifier {
    /// Shape: the server's own key, keys of the configuration, and a JWKS file, any of which may be absent.
    /// `issuer` and `audience` must match when given; a token with an `aud` is refused when none is configured.
    pub fn new(
        own: Option<&SigningKey>,
        mut fixed: Vec<TrustedKey>,
        jwks_file: Option<PathBuf>,
        issuer: Option<String>,
        audience: Vec<String>,
        metrics: Arc<Metrics>,
    ) -> Result<Verifier, KeyFault> {
        fixed.extend(own.map(SigningKey::verifying_key));
        let keys = load_keys(&fixed, jwks_file.as_deref())?;
        add(&metrics.key_set_reads, u64::from(jwks_file.is_some()));
        Ok(Verifier {
            fixed,
            jwks_file,
            issuer,
            audience,
            keys: RwLock::new(Arc::new(keys)),
            reloaded: Mutex::new(Wall(0)),
            remembered: Mutex::default(),
            board: Arc::default(),
            key_set: None,
            remembered_of: AtomicU64::new(0),
            denied: Vec::new(),
            algorithms: Algorithms::default(),
            metrics,
        })
    }

    /// With keys that are published at an address.
    pub fn with_key_set(self, key_set: Option<Arc<KeySet>>) -> Verifier {
        Verifier { key_set, ..self }
    }

    /// Believing no key of these names, and none of another algorithm.
    pub fn with_rules(self, denied: Vec<String>, algorithms: Algorithms) -> Verifier {
        Verifier { denied, algorithms, ..self }
    }

    /// With what the log says of tokens; without it nothing is said.
    pub fn with_board(self, board: Arc<Board>) -> Verifier {
        Verifier { board, ..self }
    }

    /// Checks a token and returns who it is for.
    ///
    /// Units: `now` is wall time; `exp` has 30 s of leeway, and more while an outage is declared.
    /// Errors: why it is refused; never panics whatever the bytes.
    pub fn verify(&self, token: &str, now: Wall) -> Result<Arc<Identity>, AuthFault> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(AuthFault::TooLarge);
        }
        self.forget_if_keys_changed();
        let hash = TokenHash::of(token);
        let (found, age) = {
            let mut remembered = self.remembered();
            (remembered.find(hash), remembered.age())
        };
        if let Some(identity) = found {
            add(&self.metrics.tokens_cached, 1);
            // The set it was verified by may be too old by now.
            self.key(Some(&identity.key.text()), now)?;
            return self.hold(identity, now);
        }
        let identity = Arc::new(Identity { token: hash, ..self.read(token, now)? });
        add(&self.metrics.tokens_checked, 1);
        // A key that is withdrawn meanwhile must not leave a token behind.
        self.remembered().insert_of(age, identity.clone());
        self.hold(identity, now)
    }

    /// Holds a token that is signed well against the time and the board.
    fn hold(&self, identity: Arc<Identity>, now: Wall) -> Result<Arc<Identity>, AuthFault> {
        match self.board.judge(&identity, now) {
            Word::Stays => Ok(identity),
            Word::Late(late) => Ok(Arc::from(late)),
            Word::Expired => Err(AuthFault::Expired),
            Word::Revoked { by_key } => Err(AuthFault::Revoked { by_key }),
        }
    }

    /// What the log says of tokens.
    pub fn board(&self) -> &Board {
        &self.board
    }

    fn remembered(&self) -> MutexGuard<'_, Remembered> {
        self.remembered.lock().expect("no holder of this lock can panic")
    }

    fn read(&self, token: &str, now: Wall) -> Result<Identity, AuthFault> {
        let mut parts = token.split('.');
        let (Some(head), Some(body), Some(signature), None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(AuthFault::Malformed);
        };
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| AuthFault::Malformed);
        let (header, payload) = (decode(head)?, decode(body)?);
        decode(signature)?;
        let header: Header = serde_json::from_slice(&header).map_err(|_| AuthFault::Malformed)?;
        header.check()?;
        let key = self.key(header.kid.as_deref(), now)?;
        if header.alg != format!("{:?}", key.algorithm) {
            return Err(AuthFault::Algorithm);
        }
        let message = &token.as_bytes()[..head.len() + 1 + body.len()];
        if !key.signed(message, signature) {
            return Err(AuthFault::Signature);
        }
        // Nothing of the payload is looked at before this line.
        let claims: Claims = serde_json::from_slice(&payload).map_err(|e| AuthFault::Claim(claim_at_fault(&e)))?;
        let identity = Identity { key: key.name, ..claims.identity()? };
        if identity.is_guest() && !key.own {
            return Err(AuthFault::Claim("sub"));
        }
        // Tokens made here carry neither claim: the key itself says where they come from and where they go.
        if !(key.own && claims.iss.is_none() && claims.aud.is_none()) {
            self.check_audience(&claims)?;
        }
        let soon = (now + LEEWAY).0 / 1000;
        if claims.nbf.is_some_and(|t| t > soon) || claims.iat.is_some_and(|t| t > soon) {
            return Err(AuthFault::NotYet);
        }
        Ok(identity)
    }

    fn check_audience(&self, claims: &Claims) -> Result<(), AuthFault> {
        if self.issuer.is_some() && claims.iss != self.issuer {
            return Err(AuthFault::Claim("iss"));
        }
        match &claims.aud {
            None if self.audience.is_empty() => Ok(()),
            Some(aud) if aud.iter().any(|a| self.audience.contains(a)) => Ok(()),
            _ => Err(AuthFault::Claim("aud")),
        }
    }

    /// The key of exactly this `kid`; without one, the only key there is.
    /// Errors: there is none, it is not believed any more, or a newer key set is just being fetched.
    fn key(&self, kid: Option<&str>, now: Wall) -> Result<TrustedKey, AuthFault> {
        if kid.is_some_and(|kid| self.denied.iter().any(|denied| denied == kid)) {
            return Err(AuthFault::Revoked { by_key: true });
        }
        let find = || {
            let keys = self.keys.read().expect("no holder of the keys can panic").clone();
            match kid {
                Some(kid) => keys.get(kid).cloned(),
                None if keys.len() == 1 && self.key_set.is_none() => keys.values().next().cloned(),
                None => None,
            }
        };
        let found = match (find(), kid, &self.key_set) {
            (Some(key), ..) => Some(key),
            (None, Some(kid), Some(set)) => match set.find(kid, now) {
                Found::Key(key) => Some(key),
                Found::Unsure => return Err(AuthFault::Unsure),
                Found::Unknown => None,
            },
            (None, Some(_), None) if self.reload(now) => find(),
            _ => None,
        };
        let key = found.ok_or(AuthFault::UnknownKey)?;
        if key.is_of(self.algorithms) || key.own { Ok(key) } else { Err(AuthFault::Algorithm) }
    }

    fn forget_if_keys_changed(&self) {
        let Some(set) = &self.key_set else { return };
        let generation = set.generation();
        if self.remembered_of.swap(generation, Ordering::AcqRel) != generation {
            // A withdrawn key's tokens must not live on here.
            self.remembered().forget();
        }
    }

    /// The keys that are published at an address.
    pub fn key_set(&self) -> Option<&KeySet> {
        self.key_set.as_deref()
    }

    /// Reads the key set file again, at most every 30 s. A file that became unreadable leaves the keys as they are.
    fn reload(&self, now: Wall) -> bool {
        if self.jwks_file.is_none() {
            return false;
        }
        {
            let mut reloaded = self.reloaded.lock().expect("no holder of the time can panic");
            if now.since(*reloaded) < RELOAD_EVERY {
                return false;
            }
            *reloaded = now;
        }
        add(&self.metrics.key_set_reads, 1);
        match load_keys(&self.fixed, self.jwks_file.as_deref()) {
            Ok(keys) => {
                *self.keys.write().expect("no holder of the keys can panic") = Arc::new(keys);
                // A withdrawn key's tokens must not live on here.
                self.remembered().forget();
                true
            }
            Err(fault) => {
                tracing::warn!(%fault, "the key set file could not be read again");
                false
            }
        }
    }
}

/// The parts of a JOSE header that decide something; the others say nothing that is used.
#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default, deserialize_with = "typed")]
    kid: Option<String>,
    #[serde(default, deserialize_with = "typed")]
    typ: Option<String>,
    #[serde(default, deserialize_with = "present")]
    jku: bool,
    #[serde(default, deserialize_with = "present")]
    jwk: bool,
    #[serde(default, deserialize_with = "present")]
    x5u: bool,
    #[serde(default, deserialize_with = "present")]
    x5c: bool,
    #[serde(default, deserialize_with = "present")]
    crit: bool,
    #[serde(default, deserialize_with = "present")]
    b64: bool,
    #[serde(default, deserialize_with = "present")]
    enc: bool,
    #[serde(default, deserialize_with = "present")]
    zip: bool,
    #[serde(default, deserialize_with = "present")]
    cty: bool,
}

impl Header {
    fn check(&self) -> Result<(), AuthFault> {
        let refused = [
            (self.jku, "jku"),
            (self.jwk, "jwk"),
            (self.x5u, "x5u"),
            (self.x5c, "x5c"),
            (self.crit, "crit"),
            (self.b64, "b64"),
            (self.enc, "enc"),
            (self.zip, "zip"),
            (self.cty, "cty"),
        ];
        if let Some((_, name)) = refused.iter().find(|(there, _)| *there) {
            return Err(AuthFault::Header(name));
        }
        match self.typ.as_deref() {
            None => Ok(()),
            Some(typ) if typ.eq_ignore_ascii_case("jwt") || typ.eq_ignore_ascii_case("at+jwt") => Ok(()),
            Some(_) => Err(AuthFault::Header("typ")),
        }
    }
}

/// A member that is there must be of its type; `null` is not "absent".
fn typed<'de, D: Deserializer<'de>, T: Deserialize<'de>>(d: D) -> Result<Option<T>, D::Error> {
    T::deserialize(d).map(Some)
}

fn present<'de, D: Deserializer<'de>>(d: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(d).map(|_| true)
}

fn audience<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Vec<String>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMany {
        One(String),
        Many(Vec<String>),
    }
    Ok(Some(match OneOrMany::deserialize(d)? {
        OneOrMany::One(one) => vec![one],
        OneOrMany::Many(many) => many,
    }))
}

fn list<T>(
    given: &Option<Vec<String>>,
    most: usize,
    claim: &'static str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>, AuthFault> {
    let given = given.as_deref().unwrap_or(&[]);
    if given.len() > most {
        return Err(AuthFault::Claim(claim));
    }
    given.iter().map(|text| parse(text).ok_or(AuthFault::Claim(claim))).collect()
}

/// serde tells a missing or repeated field by name, and a wrong type without: the common one is named.
fn claim_at_fault(error: &serde_json::Error) -> &'static str {
    let text = error.to_string();
    ["sub", "exp"].into_iter().find(|name| text.contains(&format!("`{name}`"))).unwrap_or("(one of them)")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;
    use std::time::Duration;

    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use grandstand_core::time::Wall;
    use serde_json::{Value, json};

    use super::{AuthFault, Claims, SigningKey, TrustedKey, Verifier};
    use crate::auth::Role;
    use crate::auth::keys::OWN_KID;

    const NOW: Wall = Wall(1_800_000_000_000);

    struct Office {
        key: SigningKey,
        verifier: Verifier,
        _dir: tempfile::TempDir,
    }

    fn office() -> Office {
        let dir = tempfile::tempdir().unwrap();
        let key = SigningKey::in_folder(dir.path()).unwrap();
        let verifier = Verifier::new(Some(&key), vec![], None, None, vec![], Arc::default()).unwrap();
        Office { key, verifier, _dir: dir }
    }

    impl Office {
        fn sign(&self, header: &Value, claims: &str) -> String {
            let head = URL_SAFE_NO_PAD.encode(header.to_string());
            let message = format!("{head}.{}", URL_SAFE_NO_PAD.encode(claims));
            let signature = self.key.pair.sign(message.as_bytes());
            format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
        }
        fn check(&self, token: &str) -> Result<String, AuthFault> {
            self.verifier.verify(token, NOW).map(|id| id.user.to_string())
        }
        fn check_claims(&self, claims: &str) -> Result<String, AuthFault> {
            self.check(&self.sign(&json!({"alg": "EdDSA", "kid": OWN_KID}), claims))
        }
    }

    fn good() -> String {
        json!({"sub": "u", "exp": NOW.0 / 1000 + 60}).to_string()
    }

    #[test]
    fn a_minted_token_is_believed_and_says_what_was_put_in() {
        let office = office();
        let mut claims = Claims::new("u", NOW, Duration::from_secs(60));
        claims.name = Some("Northstand".into());
        claims.badges = Some(vec!["member".into()]);
        claims.rooms = Some(vec!["match:*".into()]);
        claims.roles = Some(vec!["room-mod".into()]);
        let id = office.verifier.verify(&office.key.mint(&claims), NOW).unwrap();
        assert_eq!((&*id.display(), &*id.badges()[0]), ("Northstand", "member"));
        assert!(id.roles.has(Role::RoomMod) && id.roles.has(Role::Viewer) && !id.roles.has(Role::Publisher));
    }

    #[test]
    fn algorithms_cannot_be_chosen_by_the_token() {
        let office = office();
        for alg in ["none", "None", "NONE", "HS256", "RS256", "ES256", "PS256", "eddsa", ""] {
            let token = office.sign(&json!({"alg": alg, "kid": OWN_KID}), &good());
            assert_eq!(office.check(&token), Err(AuthFault::Algorithm), "{alg}");
            let unsigned = format!("{}.", token.rsplit_once('.').unwrap().0);
            assert!(office.check(&unsigned).is_err(), "{alg} unsigned");
        }
    }

    #[test]
    fn a_public_key_is_never_taken_as_an_hmac_secret() {
        let office = office();
        let public = office.key.verifying_key();
        let secret = public.key.try_get_as_bytes().unwrap();
        let head = URL_SAFE_NO_PAD.encode(json!({"alg": "HS256", "kid": OWN_KID}).to_string());
        let message = format!("{head}.{}", URL_SAFE_NO_PAD.encode(good()));
        let tag =
            aws_lc_rs::hmac::sign(&aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, secret), message.as_bytes());
        let token = format!("{message}.{}", URL_SAFE_NO_PAD.encode(tag.as_ref()));
        assert_eq!(office.check(&token), Err(AuthFault::Algorithm));
    }

    #[test]
    fn a_kid_is_looked_up_exactly() {
        let office = office();
        for kid in ["../../dev/null", "own ", "OWN", "' or 1=1", "", "\u{0}", &"k".repeat(1000)] {
            let token = office.sign(&json!({"alg": "EdDSA", "kid": kid}), &good());
            assert_eq!(office.check(&token), Err(AuthFault::UnknownKey), "{kid}");
        }
        assert_eq!(office.check(&office.sign(&json!({"alg": "EdDSA", "kid": 7}), &good())), Err(AuthFault::Malformed));
        assert_eq!(office.check(&office.sign(&json!({"alg": "EdDSA"}), &good())), Ok("u".into()), "the only key");
    }

    #[test]
    fn headers_that_bring_their_own_key_are_refused() {
        let office = office();
        for name in ["jku", "jwk", "x5u", "x5c", "crit", "b64", "enc", "zip", "cty"] {
            for value in [json!("https://evil.example"), json!(null), json!([])] {
                let token = office.sign(&json!({"alg": "EdDSA", "kid": OWN_KID, name: value}), &good());
                assert_eq!(office.check(&token), Err(AuthFault::Header(name)), "{name}");
            }
        }
        let token = office.sign(&json!({"alg": "EdDSA", "kid": OWN_KID, "typ": "ticket"}), &good());
        assert_eq!(office.check(&token), Err(AuthFault::Header("typ")));
    }

    #[test]
    fn times_are_required_and_typed() {
        let office = office();
        for exp in [
            "\"1900000000\"",
            "-1",
            "1900000000.5",
            "1e20",
            "100000000000000000000",
            "null",
            "true",
            "[]",
            "18446744073709551615",
        ] {
            let claims = format!(r#"{{"sub":"u","exp":{exp}}}"#);
            assert!(matches!(office.check_claims(&claims), Err(AuthFault::Claim(_))), "exp {exp}");
            for name in ["iat", "nbf"] {
                let claims = format!(r#"{{"sub":"u","exp":1900000000,"{name}":{exp}}}"#);
                assert!(office.check_claims(&claims).is_err(), "{name} {exp}");
            }
        }
        assert_eq!(office.check_claims(r#"{"sub":"u"}"#), Err(AuthFault::Claim("exp")));
        assert_eq!(office.check_claims(r#"{"exp":1900000000}"#), Err(AuthFault::Claim("sub")));
        assert_eq!(office.check_claims(r#"{"sub":"u","exp":1,"exp":1900000000}"#), Err(AuthFault::Claim("exp")));
    }

    #[test]
    fn a_token_lives_from_nbf_to_exp_with_30_seconds_of_leeway() {
        let office = office();
        let s = NOW.0 / 1000;
        let exp = |t: u64| office.check_claims(&json!({"sub": "u", "exp": t}).to_string());
        assert_eq!(exp(s - 30), Ok("u".into()));
        assert_eq!(exp(s - 31), Err(AuthFault::Expired));
        let nbf = |name: &str, t: u64| office.check_claims(&json!({"sub": "u", "exp": s + 99, name: t}).to_string());
        for name in ["nbf", "iat"] {
            assert_eq!(nbf(name, s + 30), Ok("u".into()));
            assert_eq!(nbf(name, s + 31), Err(AuthFault::NotYet));
        }
    }

    #[test]
    fn a_remembered_token_still_expires() {
        let office = office();
        let token = office.key.mint(&Claims::new("u", NOW, Duration::from_secs(60)));
        office.verifier.verify(&token, NOW).unwrap();
        let later = NOW + Duration::from_secs(91);
        assert_eq!(office.verifier.verify(&token, later).unwrap_err(), AuthFault::Expired);
    }

    #[test]
    fn anything_but_a_small_strict_compact_jws_is_refused() {
        let office = office();
        let token = office.sign(&json!({"alg": "EdDSA", "kid": OWN_KID}), &good());
        let (message, signature) = token.rsplit_once('.').unwrap();
        for bad in [
            String::new(),
            ".".into(),
            "..".into(),
            "a.b.c.d.e".into(),
            format!("{token}."),
            format!("{token}="),
            format!("{message}.{signature}\n"),
            format!(" {token}"),
            format!("{message}.{}", signature.replace('-', "+").replace('_', "/") + "="),
        ] {
            assert!(office.check(&bad).is_err(), "{bad}");
        }
        // The last character of 64 bytes in base64 carries 2 bits; any other spelling of it is another token.
        let last = signature.chars().last().unwrap();
        for other in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".chars().filter(|c| *c != last) {
            let bad = format!("{message}.{}{other}", &signature[..signature.len() - 1]);
            assert!(office.check(&bad).is_err(), "{bad}");
        }
        let wide = json!({"sub": "u", "exp": NOW.0 / 1000 + 60, "x": "y".repeat(4000)}).to_string();
        assert_eq!(office.check_claims(&wide), Err(AuthFault::TooLarge));
    }

    #[test]
    fn a_changed_payload_does_not_verify() {
        let office = office();
        let token = office.sign(&json!({"alg": "EdDSA", "kid": OWN_KID}), &good());
        let mut parts: Vec<&str> = token.split('.').collect();
        let other = URL_SAFE_NO_PAD.encode(json!({"sub": "admin", "exp": NOW.0 / 1000 + 60}).to_string());
        parts[1] = &other;
        assert_eq!(office.check(&parts.join(".")), Err(AuthFault::Signature));
    }

    #[test]
    fn audience_and_issuer_must_be_the_configured_ones() {
        let office = office();
        let s = NOW.0 / 1000 + 60;
        let with = |aud: Value| office.check_claims(&json!({"sub": "u", "exp": s, "aud": aud}).to_string());
        assert_eq!(with(json!("other")), Err(AuthFault::Claim("aud")), "a token for somebody else");
        let foreign = TrustedKey { own: false, ..office.key.verifying_key() };
        let strict =
            Verifier::new(None, vec![foreign], None, Some("idp".into()), vec!["stand".into()], Arc::default()).unwrap();
        let check = |claims: Value| {
            strict.verify(&office.sign(&json!({"alg": "EdDSA", "kid": OWN_KID}), &claims.to_string()), NOW).map(|_| ())
        };
        assert_eq!(check(json!({"sub": "u", "exp": s, "iss": "idp", "aud": ["x", "stand"]})), Ok(()));
        assert_eq!(check(json!({"sub": "u", "exp": s, "iss": "idp"})), Err(AuthFault::Claim("aud")));
        assert_eq!(check(json!({"sub": "u", "exp": s, "iss": "IDP", "aud": "stand"})), Err(AuthFault::Claim("iss")));
        assert_eq!(check(json!({"sub": "u", "exp": s, "aud": "stand"})), Err(AuthFault::Claim("iss")));
    }

    #[test]
    fn claims_of_the_wrong_type_or_content_are_not_taken_as_absent() {
        let office = office();
        for extra in [
            r#""roles":"admin""#,
            r#""roles":["root"]"#,
            r#""roles":null"#,
            r#""rooms":"*""#,
            r#""rooms":["A"]"#,
            r#""name":7"#,
            r#""name":"a\nb""#,
            r#""badges":[1]"#,
            r#""follows":[""]"#,
        ] {
            let claims = format!(r#"{{"sub":"u","exp":1900000000,{extra}}}"#);
            assert!(matches!(office.check_claims(&claims), Err(AuthFault::Claim(_))), "{extra}");
        }
    }

    #[test]
    fn guests_are_made_here_only() {
        let office = office();
        let claims = Claims::guest(" Curva ", NOW).unwrap();
        let id = office.verifier.verify(&office.key.mint(&claims), NOW).unwrap();
        assert!(id.is_guest() && id.roles.has(Role::Publisher));
        assert_eq!(&*id.display(), "Curva");
        assert!(Claims::guest("", NOW).is_none());
        let foreign = TrustedKey { own: false, ..office.key.verifying_key() };
        let verifier = Verifier::new(None, vec![foreign], None, None, vec![], Arc::default()).unwrap();
        assert_eq!(verifier.verify(&office.key.mint(&claims), NOW).unwrap_err(), AuthFault::Claim("sub"));
    }

    fn jwks_of(office: &Office, kid: &str) -> String {
        let public = office.key.verifying_key();
        let x = URL_SAFE_NO_PAD.encode(public.key.try_get_as_bytes().unwrap());
        json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": kid, "use": "sig", "alg": "EdDSA", "x": x}]})
            .to_string()
    }

    #[test]
    fn a_key_set_file_is_read_again_for_an_unknown_kid_but_not_for_each() {
        let office = office();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("jwks.json");
        fs::write(&path, jwks_of(&office, "old")).unwrap();
        let verifier = Verifier::new(None, vec![], Some(path.clone()), None, vec![], Arc::default()).unwrap();
        let token = office.sign(&json!({"alg": "EdDSA", "kid": "new"}), &good());
        assert_eq!(verifier.verify(&token, NOW).unwrap_err(), AuthFault::UnknownKey);
        fs::write(&path, jwks_of(&office, "new")).unwrap();
        let later = |s| NOW + Duration::from_secs(s);
        assert_eq!(verifier.verify(&token, later(29)).unwrap_err(), AuthFault::UnknownKey);
        verifier.verify(&token, later(30)).unwrap();
        let old = office.sign(&json!({"alg": "EdDSA", "kid": "old"}), &good());
        assert_eq!(verifier.verify(&old, later(31)).unwrap_err(), AuthFault::UnknownKey);
    }

    #[test]
    fn a_p256_key_of_the_configuration_verifies_es256() {
        use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
        use aws_lc_rs::rand::SystemRandom;
        use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};

        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        let der: PublicKeyX509Der<'_> = pair.public_key().as_der().unwrap();
        let pem = crate::auth::files::der_to_pem(der.as_ref(), "PUBLIC KEY");
        let key = TrustedKey::from_pem("idp", "ES256", pem.as_bytes()).unwrap();
        let verifier = Verifier::new(None, vec![key], None, None, vec![], Arc::default()).unwrap();
        let head = URL_SAFE_NO_PAD.encode(json!({"alg": "ES256", "kid": "idp"}).to_string());
        let message = format!("{head}.{}", URL_SAFE_NO_PAD.encode(good()));
        let signature = pair.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
        let token = format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()));
        assert_eq!(verifier.verify(&token, NOW).unwrap().user.as_str(), "u");
    }
}
