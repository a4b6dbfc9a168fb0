//! The keys of an identity provider that publishes them at an address.
//!
//! Like a list of signatures that a clerk fetches every few minutes: he keeps the last one with the time on it, sealed, in the
//! drawer, and works by it while the office does not answer, for a day. A signature that is not on the list sends him once, and
//! who showed it is asked to come back; he never holds up the queue. What he must never do: work by a list nobody sealed, or by
//! one older than a day. The awkward case is a start while the office is away: the drawer's list is taken if its seal and its age
//! hold, and without one nobody is let in by these keys.
//!
//! Numbers: every five minutes, once in 30 s for an unknown key (threats A-41), 24 h without an answer.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::thread;
use std::time::Duration;

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use grandstand_core::time::Wall;
use rustls::ClientConfig;
use serde::{Deserialize, Serialize};

use super::fetch::{self, Url};
use super::keys::{JWKS_BYTES_MAX, KeyFault, TrustedKey, parse_published};
use crate::clock;
use crate::metrics::{Metrics, add};

/// Between two fetches that nothing asked for.
const EVERY: Duration = Duration::from_secs(300);
/// Between two that an unknown key asked for, and after one that failed.
pub const ASKED_EVERY: Duration = Duration::from_secs(30);
/// How long the last set holds while no newer one can be had.
pub const OFFLINE_MAX: Duration = Duration::from_secs(24 * 3600);
/// The sealed set in the data folder.
pub const PIN: &str = "jwks.pin";

/// Where it is published, and whose certificate is believed there.
#[derive(Clone)]
pub struct Source {
    pub url: Url,
    /// The address as it was given: a sealed set is of this one alone.
    pub text: String,
    pub trust: Option<Arc<ClientConfig>>,
}

pub struct KeySet {
    source: Source,
    pin: PathBuf,
    seal: hmac::Key,
    state: Mutex<State>,
    came: Condvar,
    /// Grows when the keys change.
    generation: AtomicU64,
    metrics: Arc<Metrics>,
}

#[derive(Default)]
struct State {
    keys: Arc<HashMap<String, TrustedKey>>,
    /// When they were fetched; none yet.
    fetched: Option<Wall>,
    /// When a fetch was tried last, and whether one is under way or asked for.
    tried: Option<Wall>,
    wanted: bool,
    /// The last try came to nothing.
    failed: bool,
}

impl State {
    /// How long until a fetch is due by itself.
    fn left(&self, now: Wall) -> Duration {
        let every = if self.fetched.is_some() && !self.failed { EVERY } else { ASKED_EVERY };
        self.tried.map_or(Duration::ZERO, |at| every.saturating_sub(now.since(at)))
    }
}

/// What a set says of a key's name.
#[derive(Clone)]
pub enum Found {
    Key(TrustedKey),
    /// It is not in a set that is fresh enough to say so.
    Unknown,
    /// A newer set is being fetched: ask again in a moment.
    Unsure,
}

#[derive(Serialize, Deserialize)]
struct Pinned {
    url: String,
    fetched: u64,
    document: String,
}

impl KeySet {
    /// Takes the sealed set of the data folder, if there is one that holds. [`KeySet::keep`] fetches.
    pub fn new(source: Source, data: &Path, secret: &[u8; 32], now: Wall, metrics: Arc<Metrics>) -> KeySet {
        // The secret seals for one purpose at a time, and says which.
        let derived = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), b"grandstand key set v1");
        let seal = hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref());
        let set = KeySet {
            source,
            pin: data.join(PIN),
            seal,
            state: Mutex::default(),
            came: Condvar::new(),
            generation: AtomicU64::new(0),
            metrics,
        };
        set.take_pin(now);
        set
    }

    /// Fetches now and then, on a thread that ends with the set.
    pub fn keep(self: &Arc<KeySet>) -> std::io::Result<()> {
        let set = Arc::downgrade(self);
        thread::Builder::new().name("key-set".to_owned()).spawn(move || while keep_once(&set) {})?;
        Ok(())
    }

    /// The key of exactly this name. An unknown one asks for a fetch.
    pub fn find(&self, kid: &str, now: Wall) -> Found {
        let mut state = self.state();
        if let Some(key) = state.keys.get(kid)
            && state.fetched.is_some_and(|at| now.since(at) <= OFFLINE_MAX)
        {
            return Found::Key(key.clone());
        }
        if !state.wanted && state.tried.is_none_or(|at| now.since(at) >= ASKED_EVERY) {
            state.wanted = true;
            self.came.notify_all();
        }
        if state.wanted || state.fetched.is_none() { Found::Unsure } else { Found::Unknown }
    }

    /// Moves when keys changed: what was verified before is to be verified again.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// How old the set is; `None` without one.
    pub fn age(&self, now: Wall) -> Option<Duration> {
        self.state().fetched.map(|at| now.since(at))
    }

    /// Takes a document that was fetched at `now` and seals it. Errors: it holds no key that can be used; the old set stays.
    pub fn take(&self, document: &[u8], now: Wall) -> Result<(), KeyFault> {
        self.take_in(document, now)?;
        if let Err(fault) = self.seal_pin(document, now) {
            tracing::warn!(path = %self.pin.display(), %fault, "the key set could not be kept for a restart");
        }
        Ok(())
    }

    fn take_in(&self, document: &[u8], fetched: Wall) -> Result<(), KeyFault> {
        let mut keys = HashMap::new();
        for key in parse_published(document)? {
            if let Some(twice) = keys.insert(key.kid.clone(), key) {
                return Err(KeyFault::Twice(twice.kid));
            }
        }
        let mut state = self.state();
        (state.keys, state.fetched) = (Arc::new(keys), Some(fetched));
        drop(state);
        self.generation.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    fn take_pin(&self, now: Wall) {
        let Ok(text) = fs::read_to_string(&self.pin) else { return };
        match self.open_pin(text.trim(), now) {
            Ok(()) => tracing::info!("the key set of the last run holds until a newer one is fetched"),
            Err(why) => tracing::warn!(path = %self.pin.display(), why, "the kept key set is not taken"),
        }
    }

    fn open_pin(&self, text: &str, now: Wall) -> Result<(), &'static str> {
        let (body, tag) = text.split_once('.').ok_or("it is cut short")?;
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| "it is damaged");
        let (body, tag) = (decode(body)?, decode(tag)?);
        hmac::verify(&self.seal, &body, &tag).map_err(|_| "its seal is not this folder's")?;
        let pinned: Pinned = serde_json::from_slice(&body).map_err(|_| "it is damaged")?;
        if pinned.url != self.source.text {
            return Err("it is of another address");
        }
        let fetched = Wall(pinned.fetched);
        if fetched > now || now.since(fetched) > OFFLINE_MAX {
            return Err("it is older than a day");
        }
        self.take_in(pinned.document.as_bytes(), fetched).map_err(|_| "it holds no key that can be used")
    }

    /// Puts the set into its place whole: a reader finds the old one or the new one.
    fn seal_pin(&self, document: &[u8], now: Wall) -> std::io::Result<()> {
        let document = String::from_utf8_lossy(document).into_owned();
        let pinned = Pinned { url: self.source.text.clone(), fetched: now.0, document };
        let body = serde_json::to_vec(&pinned).expect("a sealed set is plain data");
        let tag = hmac::sign(&self.seal, &body);
        let text = format!("{}.{}\n", URL_SAFE_NO_PAD.encode(&body), URL_SAFE_NO_PAD.encode(tag.as_ref()));
        // Each gateway process fetches for itself; the last one's set stands.
        let scratch = self.pin.with_extension(format!("pin.{}", std::process::id()));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&scratch)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&scratch, &self.pin)
    }

    fn fetch(&self) {
        self.state().tried = Some(clock::wall());
        add(&self.metrics.key_set_reads, 1);
        let got = fetch::get(&self.source.url, self.source.trust.as_ref(), JWKS_BYTES_MAX as usize);
        let now = clock::wall();
        let failed = got.map_err(|e| e.to_string()).and_then(|body| self.take(&body, now).map_err(|e| e.to_string()));
        if let Err(fault) = &failed {
            add(&self.metrics.key_set_failures, 1);
            let age_s = self.age(now).map(|age| age.as_secs());
            tracing::warn!(fault, age_s, "the key set could not be fetched; the last one holds for a day");
        }
        let failed = failed.is_err();
        let mut state = self.state();
        // From its end: who asked while it was under way was answered by it.
        (state.tried, state.wanted, state.failed) = (Some(clock::wall()), false, failed);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock can panic")
    }

    /// Waits until a fetch is due or asked for.
    fn wait(&self) {
        let state = self.state();
        let left = state.left(clock::wall());
        if !state.wanted && !left.is_zero() {
            // In parts, so that the thread ends soon after the set.
            let _ = self.came.wait_timeout(state, left.min(Duration::from_secs(1)));
        }
    }

    fn is_due(&self) -> bool {
        let state = self.state();
        state.wanted || state.left(clock::wall()).is_zero()
    }
}

/// One round of the clerk. `false` when nobody asks any more.
fn keep_once(set: &Weak<KeySet>) -> bool {
    let Some(set) = set.upgrade() else { return false };
    if set.is_due() {
        set.fetch();
    } else {
        set.wait();
    }
    true
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use grandstand_core::time::Wall;
    use serde_json::json;

    use super::{ASKED_EVERY, Found, KeySet, OFFLINE_MAX, PIN, Source, Url};
    use crate::auth::keys::SigningKey;
    use crate::auth::token::{AuthFault, Verifier};

    const T0: Wall = Wall(1_800_000_000_000);

    /// A set of a provider that is never asked.
    fn set(data: &Path, now: Wall) -> KeySet {
        let text = "http://127.0.0.1:9/jwks.json".to_owned();
        let source = Source { url: Url::parse(&text).unwrap(), text, trust: None };
        KeySet::new(source, data, &[7; 32], now, Arc::default())
    }

    /// The document that publishes this key under these names.
    fn published(key: &SigningKey, kids: &[&str]) -> Vec<u8> {
        let public = key.verifying_key();
        let x = URL_SAFE_NO_PAD.encode(public.key.try_get_as_bytes().unwrap());
        let keys: Vec<_> = kids.iter().map(|kid| json!({"kty": "OKP", "crv": "Ed25519", "kid": kid, "x": x})).collect();
        json!({"keys": keys}).to_string().into_bytes()
    }

    fn token(key: &SigningKey, kid: &str) -> String {
        let exp = T0.0 / 1000 + 10 * 86_400;
        let parts = [json!({"alg": "EdDSA", "kid": kid}), json!({"sub": "u", "exp": exp})];
        let message = parts.map(|part| URL_SAFE_NO_PAD.encode(part.to_string())).join(".");
        let signature = key.pair.sign(message.as_bytes());
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }

    fn is_known(set: &KeySet, kid: &str, now: Wall) -> bool {
        matches!(set.find(kid, now), Found::Key(_))
    }

    #[test]
    fn a47_old_and_new_keys_hold_while_both_are_published_and_a_withdrawn_one_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let key = SigningKey::in_folder(dir.path()).unwrap();
        let set = Arc::new(set(dir.path(), T0));
        let verifier = Verifier::new(None, vec![], None, None, vec![], Arc::default()).unwrap();
        let verifier = verifier.with_key_set(Some(set.clone()));
        let [old, new] = ["old", "new"].map(|kid| token(&key, kid));
        let check = |token: &str, now: Wall| verifier.verify(token, now).map(|_| ());
        assert_eq!(check(&old, T0), Err(AuthFault::Unsure), "nothing was fetched yet");
        set.take(&published(&key, &["old"]), T0).unwrap();
        assert_eq!(check(&old, T0), Ok(()));
        set.take(&published(&key, &["old", "new"]), T0).unwrap();
        assert_eq!((check(&old, T0), check(&new, T0)), (Ok(()), Ok(())));
        set.take(&published(&key, &["new"]), T0).unwrap();
        assert!(check(&old, T0).is_err(), "what was remembered of it is forgotten");
        assert_eq!(check(&new, T0), Ok(()));
        assert!(set.take(b"<html>an error page</html>", T0).is_err());
        assert_eq!(check(&new, T0), Ok(()), "what cannot be used takes no place");
        assert_eq!(check(&new, T0 + OFFLINE_MAX), Ok(()));
        let late = T0 + OFFLINE_MAX + Duration::from_secs(1);
        assert!(check(&new, late).is_err(), "a remembered token does not outlive its set's day");
    }

    #[test]
    fn a47_the_last_set_holds_for_a_day_over_a_restart_and_no_longer() {
        let dir = tempfile::tempdir().unwrap();
        let key = SigningKey::in_folder(dir.path()).unwrap();
        set(dir.path(), T0).take(&published(&key, &["k"]), T0).unwrap();
        let at = |hours: u64| T0 + Duration::from_secs(hours * 3600);
        assert!(is_known(&set(dir.path(), at(23)), "k", at(23)));
        assert!(!is_known(&set(dir.path(), at(23)), "k", at(25)), "its day began when it was fetched");
        assert!(!is_known(&set(dir.path(), at(25)), "k", at(25)));
        assert!(!is_known(&set(dir.path(), Wall(T0.0 - 1)), "k", T0), "a set from the future is no set");
        let pin = dir.path().join(PIN);
        let sealed = std::fs::read_to_string(&pin).unwrap();
        let mut forged = sealed.clone().into_bytes();
        forged[40] ^= 1;
        std::fs::write(&pin, &forged).unwrap();
        assert!(!is_known(&set(dir.path(), at(1)), "k", at(1)), "whose seal does not hold");
        std::fs::write(&pin, &sealed).unwrap();
        assert!(is_known(&set(dir.path(), at(1)), "k", at(1)));
        let other = Source { text: "http://127.0.0.1:9/other.json".to_owned(), ..set(dir.path(), T0).source };
        let other = KeySet::new(other, dir.path(), &[7; 32], at(1), Arc::default());
        assert!(!is_known(&other, "k", at(1)), "it is of another address");
    }

    #[test]
    fn a41_an_unknown_key_asks_for_one_fetch_in_30_seconds() {
        let dir = tempfile::tempdir().unwrap();
        let key = SigningKey::in_folder(dir.path()).unwrap();
        let set = set(dir.path(), T0);
        set.take(&published(&key, &["k"]), T0).unwrap();
        assert!(matches!(set.find("new", T0), Found::Unsure), "it may be in a newer one");
        assert!(set.is_due());
        // The provider is not there: the fetch comes to nothing, at this moment.
        set.fetch();
        let now = crate::clock::wall();
        for n in 0..1_000 {
            assert!(matches!(set.find(&format!("../../{n}"), now), Found::Unknown), "nobody is asked for each");
        }
        assert!(!set.is_due());
        assert!(matches!(set.find("new", now + ASKED_EVERY), Found::Unsure));
    }
}
