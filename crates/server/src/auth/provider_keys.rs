//! The keys of score providers: those of the configuration, and what operators made and took back since.
//!
//! Like the key cabinet beside the plan of the house: the plan says which keys there were when it was drawn, the book in the
//! cabinet says which were cut and which were called in afterwards, and the book is right. A secret has no business in a log that
//! is exported, so the book is a file of its own that only the server's user can read. It is written anew beside itself, synced
//! and renamed; what a crash leaves is the one book or the other. A key that was called in is refused from the moment the book
//! says so, and stays refused when the configuration still has it.
//!
//! Only the process with the control role reads it: no other is shown a signature of a provider. Source: docs/decisions/0040-provider-keys.md.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use grandstand_core::names::{Key, UserId};
use grandstand_core::revision::OPERATOR;
use grandstand_core::time::Wall;
use grandstand_wire::stamp;
use serde_json::{Value, json};

use super::files;
use crate::config::ProviderKey;

/// In the data folder.
pub const FILE: &str = "provider-keys.json";
/// Keys that operators made for one provider: one in use, one to come, and two that nobody dared to take back yet.
pub const MADE_OF_ONE_MAX: usize = 4;
/// Keys that operators made, and keys of the configuration that they took back: 256 of each are 100 KB of book.
pub const ENTRIES_MAX: usize = 256;
/// Of random bytes; told and used as hex, so that a secret can be pasted into a file.
const SECRET_BYTES: usize = 32;
/// More than a full book.
const FILE_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("the provider has a key of this kid")]
    Taken,
    #[error("there are {MADE_OF_ONE_MAX} keys of a provider, and {ENTRIES_MAX} in all, at most: take one back first")]
    TooMany,
    #[error("no such key is taken")]
    NotFound,
    #[error("the keys of providers cannot be written to {path}")]
    Io { path: PathBuf, source: io::Error },
}

/// Why the book cannot be read. A server does not start without it: it may say which keys are refused.
#[derive(Debug, thiserror::Error)]
pub enum LoadFault {
    #[error("cannot read {path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{path} must be a plain file that only its owner can read (chmod 600)")]
    TooOpen { path: PathBuf },
    #[error("{path} is not a list of provider keys")]
    Malformed { path: PathBuf },
}

/// A key that an operator made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Made {
    pub key: ProviderKey,
    pub at: Wall,
    pub by: UserId,
}

/// A key of the configuration that an operator took back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TakenBack {
    pub provider: String,
    pub kid: String,
    pub at: Wall,
    pub by: UserId,
}

#[derive(Clone, Default)]
struct Book {
    made: Vec<Made>,
    taken_back: Vec<TakenBack>,
}

/// Where a key comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Origin {
    Configured,
    Made { at: Wall, by: UserId },
}

/// The keys that hold now.
pub struct Live {
    pub keys: Vec<ProviderKey>,
    book: Book,
}

impl Live {
    fn of(configured: &[ProviderKey], book: Book) -> Live {
        let is_refused = |key: &ProviderKey| book.taken_back.iter().any(|back| back.is(&key.provider, &key.kid));
        let stays = configured.iter().filter(|key| !is_refused(key)).cloned();
        let keys = stays.chain(book.made.iter().map(|made| made.key.clone())).collect();
        Live { keys, book }
    }

    pub fn knows(&self, provider: &str) -> bool {
        self.keys.iter().any(|key| key.provider == provider)
    }

    fn find(&self, provider: &str, kid: &str) -> Option<&ProviderKey> {
        self.keys.iter().find(|key| key.provider == provider && key.kid == kid)
    }

    /// Kids of a provider, each with where its key comes from.
    pub fn of_provider(&self, provider: &str) -> Vec<(&str, Origin)> {
        let keys = self.keys.iter().filter(|key| key.provider == provider);
        let origin = |key: &ProviderKey| {
            let made = self.book.made.iter().find(|made| made.key == *key);
            made.map_or(Origin::Configured, |made| Origin::Made { at: made.at, by: made.by.clone() })
        };
        keys.map(|key| (key.kid.as_str(), origin(key))).collect()
    }

    pub fn taken_back(&self, provider: &str) -> impl Iterator<Item = &TakenBack> {
        self.book.taken_back.iter().filter(move |back| back.provider == provider)
    }
}

impl TakenBack {
    fn is(&self, provider: &str, kid: &str) -> bool {
        self.provider == provider && self.kid == kid
    }
}

pub struct ProviderKeys {
    path: PathBuf,
    configured: Vec<ProviderKey>,
    live: RwLock<Arc<Live>>,
    /// Held while the book is written: one writer at a time.
    writing: Mutex<()>,
}

impl ProviderKeys {
    /// Errors: there is a book and it cannot be read.
    pub fn open(folder: &Path, configured: &[ProviderKey]) -> Result<ProviderKeys, LoadFault> {
        let path = folder.join(FILE);
        let book = read(&path)?.unwrap_or_default();
        let live = RwLock::new(Arc::new(Live::of(configured, book)));
        Ok(ProviderKeys { path, configured: configured.to_vec(), live, writing: Mutex::new(()) })
    }

    pub fn live(&self) -> Arc<Live> {
        self.live.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes a key and tells its secret, which is told at no other time. `first` is done once nothing speaks against it, and
    /// before anything is: its refusal leaves all as it was.
    ///
    /// Errors: the kid is taken or was taken back, there are too many, `first` refused, or the book cannot be written.
    pub fn make<E: From<Fault>>(
        &self,
        provider: &Key,
        kid: &Key,
        (by, at): (UserId, Wall),
        first: impl FnOnce() -> Result<(), E>,
    ) -> Result<String, E> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let live = self.live();
        let (provider, kid) = (provider.as_str(), kid.as_str());
        if live.find(provider, kid).is_some() || live.taken_back(provider).any(|back| back.kid == kid) {
            return Err(Fault::Taken.into());
        }
        let of_one = live.book.made.iter().filter(|made| made.key.provider == provider).count();
        if of_one >= MADE_OF_ONE_MAX || live.book.made.len() >= ENTRIES_MAX {
            return Err(Fault::TooMany.into());
        }
        first()?;
        let secret = files::random_hex::<SECRET_BYTES>();
        let mut book = live.book.clone();
        let key = ProviderKey {
            provider: provider.to_owned(),
            kid: kid.to_owned(),
            key: secret.as_bytes().to_vec(),
            certificate: None,
        };
        book.made.push(Made { key, at, by });
        self.write(book)?;
        Ok(secret)
    }

    /// A key is refused from now on, wherever it comes from. `first` as of [`ProviderKeys::make`].
    ///
    /// Errors: there is none, too many were taken back, `first` refused, or the book cannot be written: then it is still taken.
    pub fn take_back<E: From<Fault>>(
        &self,
        provider: &str,
        kid: &str,
        (by, at): (UserId, Wall),
        first: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let live = self.live();
        if live.find(provider, kid).is_none() {
            return Err(Fault::NotFound.into());
        }
        let is_configured = self.configured.iter().any(|key| key.provider == provider && key.kid == kid);
        if is_configured && live.book.taken_back.len() >= ENTRIES_MAX {
            return Err(Fault::TooMany.into());
        }
        first()?;
        let mut book = live.book.clone();
        book.made.retain(|made| made.key.provider != provider || made.key.kid != kid);
        if is_configured {
            book.taken_back.push(TakenBack { provider: provider.to_owned(), kid: kid.to_owned(), at, by });
        }
        self.write(book)?;
        Ok(())
    }

    /// On return the book is on the disk and holds.
    fn write(&self, book: Book) -> Result<(), Fault> {
        let io = |source| Fault::Io { path: self.path.clone(), source };
        files::replace(&self.path, book.text().as_bytes()).map_err(io)?;
        // Renamed it is what the next start reads: it holds from here on, whatever becomes of the folder's sync.
        *self.live.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(Live::of(&self.configured, book));
        files::sync_folder(&self.path).map_err(io)
    }
}

/// Whether the text can be a provider's kid: it stands between a comma and an equals sign in the signature's header.
pub fn is_kid(kid: &str) -> bool {
    Key::parse(kid).is_some() && !kid.contains([',', '='])
}

pub const KID_RULE: &str = "must be 1 to 128 bytes without comma, equals sign, spaces and control characters";

/// Whether somebody may be a provider of this name.
pub fn is_provider(name: &str) -> bool {
    Key::parse(name).is_some() && name != OPERATOR
}

impl Book {
    fn text(&self) -> String {
        let made = self.made.iter().map(|made| {
            let key = std::str::from_utf8(&made.key.key).expect("a secret that was made is hex");
            json!({"provider": made.key.provider, "kid": made.key.kid, "key": key, "at_ts": stamp::text(made.at), "by": made.by.as_str()})
        });
        let taken_back = self.taken_back.iter().map(|back| {
            json!({"provider": back.provider, "kid": back.kid, "at_ts": stamp::text(back.at), "by": back.by.as_str()})
        });
        let book = json!({"made": made.collect::<Vec<_>>(), "taken_back": taken_back.collect::<Vec<_>>()});
        format!("{book:#}\n")
    }

    fn parse(text: &[u8]) -> Option<Book> {
        let book: Value = serde_json::from_slice(text).ok()?;
        let of = |entry: &Value| {
            let text = |name: &str| entry.get(name)?.as_str();
            let (provider, kid) = (text("provider").filter(|p| is_provider(p))?, text("kid").filter(|k| is_kid(k))?);
            Some((provider.to_owned(), kid.to_owned(), stamp::parse(text("at_ts")?)?, UserId::parse(text("by")?)?))
        };
        let made = |entry: &Value| {
            let (provider, kid, at, by) = of(entry)?;
            let key = entry.get("key")?.as_str().filter(|key| key.len() == 2 * SECRET_BYTES)?.as_bytes().to_vec();
            Some(Made { key: ProviderKey { provider, kid, key, certificate: None }, at, by })
        };
        let taken_back = |entry: &Value| {
            let (provider, kid, at, by) = of(entry)?;
            Some(TakenBack { provider, kid, at, by })
        };
        Some(Book {
            made: book.get("made")?.as_array()?.iter().map(made).collect::<Option<_>>()?,
            taken_back: book.get("taken_back")?.as_array()?.iter().map(taken_back).collect::<Option<_>>()?,
        })
    }
}

/// `None`: there is no book.
fn read(path: &Path) -> Result<Option<Book>, LoadFault> {
    match files::read_at_most(path, FILE_BYTES_MAX) {
        Ok(bytes) => Book::parse(&bytes).map(Some).ok_or_else(|| LoadFault::Malformed { path: path.to_owned() }),
        Err(files::Fault::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(files::Fault::Io { path, source }) => Err(LoadFault::Io { path, source }),
        Err(files::Fault::TooOpen { path }) => Err(LoadFault::TooOpen { path }),
        Err(files::Fault::Malformed { path }) => Err(LoadFault::Malformed { path }),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use grandstand_core::names::{Key, UserId};
    use grandstand_core::time::Wall;

    use super::{FILE, Fault, LoadFault, MADE_OF_ONE_MAX, Origin, ProviderKeys};
    use crate::config::ProviderKey;

    fn configured() -> Vec<ProviderKey> {
        let key = |kid: &str| ProviderKey {
            provider: "feed".into(),
            kid: kid.into(),
            key: b"0123456789abcdef".to_vec(),
            certificate: None,
        };
        vec![key("2026-1")]
    }

    fn key(text: &str) -> Key {
        Key::parse(text).unwrap()
    }

    fn who() -> (UserId, Wall) {
        (UserId::parse("olive").unwrap(), Wall(1_781_000_000_000))
    }

    fn go() -> Result<(), Fault> {
        Ok(())
    }

    fn kids(keys: &ProviderKeys) -> Vec<String> {
        keys.live().keys.iter().map(|key| format!("{} {}", key.provider, key.kid)).collect()
    }

    #[test]
    fn what_was_made_and_taken_back_is_known_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let keys = ProviderKeys::open(dir.path(), &configured()).unwrap();
        let secret = keys.make(&key("feed"), &key("2026-2"), who(), go).unwrap();
        assert_eq!(secret.len(), 64);
        assert_eq!(kids(&keys), ["feed 2026-1", "feed 2026-2"], "both hold while a provider changes over");
        keys.take_back("feed", "2026-1", who(), go).unwrap();
        let other = keys.make(&key("rival"), &key("a"), who(), go).unwrap();
        assert_ne!(other, secret);
        keys.take_back("rival", "a", who(), go).unwrap();
        for keys in [keys, ProviderKeys::open(dir.path(), &configured()).unwrap()] {
            let live = keys.live();
            assert_eq!(kids(&keys), ["feed 2026-2"]);
            assert_eq!(live.keys[0].key, secret.as_bytes());
            let (by, at) = who();
            assert_eq!(live.of_provider("feed"), [("2026-2", Origin::Made { at, by })]);
            assert_eq!(live.taken_back("feed").map(|back| back.kid.as_str()).collect::<Vec<_>>(), ["2026-1"]);
            assert!(live.knows("feed") && !live.knows("rival"));
        }
        let mode = fs::metadata(dir.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no scratch file stays");
    }

    #[test]
    fn a_kid_that_is_taken_or_was_taken_back_is_not_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let keys = ProviderKeys::open(dir.path(), &configured()).unwrap();
        let make = |kid: &str| keys.make(&key("feed"), &key(kid), who(), go);
        assert!(matches!(make("2026-1"), Err(Fault::Taken)));
        keys.take_back("feed", "2026-1", who(), go).unwrap();
        assert!(matches!(make("2026-1"), Err(Fault::Taken)), "the configuration has it still");
        assert!(matches!(keys.take_back("feed", "2026-1", who(), go), Err(Fault::NotFound)));
        for n in 0..MADE_OF_ONE_MAX {
            make(&format!("k{n}")).unwrap();
        }
        assert!(matches!(make("more"), Err(Fault::TooMany)));
        keys.take_back("feed", "k0", who(), go).unwrap();
        make("k0").expect("one that was made is forgotten when it is taken back, and its secret with it");
    }

    #[test]
    fn nothing_is_done_that_could_not_be_written_down_first_or_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let keys = ProviderKeys::open(dir.path(), &configured()).unwrap();
        let refuses = || Err(Fault::TooMany);
        keys.make(&key("feed"), &key("k"), who(), refuses).unwrap_err();
        keys.take_back("feed", "2026-1", who(), refuses).unwrap_err();
        assert_eq!(kids(&keys), ["feed 2026-1"]);
        // A folder in the way of the scratch file.
        fs::create_dir(dir.path().join("provider-keys.json.new")).unwrap();
        assert!(matches!(keys.make(&key("feed"), &key("k"), who(), go), Err(Fault::Io { .. })));
        assert_eq!(kids(&keys), ["feed 2026-1"]);
    }

    #[test]
    fn a_book_that_others_can_read_or_that_is_none_stops_the_start() {
        let dir = tempfile::tempdir().unwrap();
        let open = || ProviderKeys::open(dir.path(), &configured());
        let path = dir.path().join(FILE);
        fs::write(&path, "{\"made\": [], \"taken_back\": []}").unwrap();
        assert!(matches!(open(), Err(LoadFault::TooOpen { .. })));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(open().is_ok());
        for bad in [
            "",
            "{}",
            "[]",
            "{\"made\": [{}], \"taken_back\": []}",
            "{\"made\": [], \"taken_back\": [{\"provider\": \"operator\"}]}",
        ] {
            fs::write(&path, bad).unwrap();
            assert!(matches!(open(), Err(LoadFault::Malformed { .. })), "{bad}");
        }
    }
}
