//! The built-in classifier as the server runs it: its lists from files, read again when they change.
//!
//! A list that cannot be read when the server starts keeps it from starting. One that cannot be read later leaves the rules as they
//! were, is told on the log and counted: a slip of an editor's must not open a room.

use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use grandstand_classifier::{Links, Lists, Rules, Words};
use grandstand_core::moderation::Ruling;
use rustls::pki_types::ServerName;

/// A list file is at most this long: 100 000 entries of some 40 bytes.
pub const LIST_BYTES_MAX: u64 = 4 << 20;

/// A classifier behind HTTP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Http {
    /// As it was given.
    pub url: String,
    /// Host and port, and what of the URL follows them.
    pub authority: String,
    pub path: String,
    /// After so long there is no verdict.
    pub timeout: Duration,
    /// Questions at a time.
    pub at_once: u16,
}

impl Http {
    pub const RULE: &str = "is not http://host[:port]/path of a host that may be asked (no user, no fragment, no link-local address): \
                            what speaks TLS is reached by a proxy beside this server";

    /// Errors: `None` for what is no plain HTTP URL, or names an address that [`Http::may_ask`] refuses.
    pub fn parse(url: &str, timeout: Duration, at_once: u16) -> Option<Http> {
        let rest = url.strip_prefix("http://")?;
        let (authority, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
        let uri: http::Uri = url.parse().ok()?;
        let host = uri.host()?.trim_start_matches('[').trim_end_matches(']');
        if authority.contains(['@', '?', '\\']) || url.contains('#') || uri.port_u16() == Some(0) {
            return None;
        }
        // A name of digits is an address in a spelling that only some programs read.
        if ServerName::try_from(host).is_err() || host.parse().is_ok_and(|ip| !Http::may_ask(ip)) {
            return None;
        }
        let authority = if uri.port_u16().is_some() { authority.to_owned() } else { format!("{authority}:80") };
        Some(Http { url: url.to_owned(), authority, path: path.to_owned(), timeout, at_once })
    }

    /// Whether a classifier may be at this address: this machine, a network of the operator's, or any host. Never what answers on
    /// every link to whoever asks (169.254.169.254 gives a cloud's secrets), nor what is nobody's or everybody's. Asked of what a
    /// URL says, and again of what its name leads to when it is dialled.
    pub fn may_ask(ip: IpAddr) -> bool {
        match ip.to_canonical() {
            IpAddr::V4(v4) => !(v4.is_link_local() || v4.is_unspecified() || v4.is_multicast() || v4.is_broadcast()),
            IpAddr::V6(v6) => !(v6.is_unicast_link_local() || v6.is_unspecified() || v6.is_multicast()),
        }
    }
}

/// What the rules are made from.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Source {
    pub block: Option<PathBuf>,
    pub flag: Option<PathBuf>,
    pub allow: Option<PathBuf>,
    pub links: Links,
    pub english: bool,
    /// Asked about what the rules do not block.
    pub http: Option<Http>,
}

/// Why the lists are not read.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("{0} cannot be read: {1}")]
    Read(PathBuf, #[source] std::io::Error),
    #[error("{0} is above 4 MiB")]
    TooLong(PathBuf),
    #[error("{path}:{line}: {what}")]
    Entry { path: PathBuf, line: usize, what: &'static str },
}

/// When each list was written last, and how long it is; `None` for one that is not there.
type Stamps = [Option<(SystemTime, u64)>; 3];

/// The rules in force.
pub struct Live {
    source: Source,
    /// Read for each comment, written once a reload.
    rules: RwLock<Arc<Rules>>,
    stamps: Mutex<Stamps>,
    /// Reloads since the start: taken, refused.
    reloads: [AtomicU64; 2],
}

impl Live {
    /// Rules without lists: they speak against nothing.
    pub fn empty() -> Live {
        Live {
            source: Source::default(),
            rules: RwLock::default(),
            stamps: Mutex::default(),
            reloads: Default::default(),
        }
    }

    /// Errors: a list cannot be read.
    pub fn read(source: Source) -> Result<Live, Fault> {
        let stamps = stamps(&source);
        let rules = RwLock::new(Arc::new(rules(&source)?));
        Ok(Live { source, rules, stamps: Mutex::new(stamps), reloads: Default::default() })
    }

    /// What the rules say of a text; `None` when they failed at it, which is counted as no verdict.
    pub fn judge(&self, text: &str, strict: bool) -> Option<Ruling> {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner).clone();
        // A text that brings the classifier down must not bring the owner down: the policy decides about it.
        let judged = catch_unwind(AssertUnwindSafe(|| rules.judge(text, strict)));
        if judged.is_err() {
            tracing::error!(bytes = text.len(), "the built-in classifier failed at a text");
        }
        judged.ok()
    }

    /// The classifier that is asked beside the rules.
    pub fn http(&self) -> Option<&Http> {
        self.source.http.as_ref()
    }

    /// Reads the lists again. Errors: one cannot be read, and the rules are as they were.
    pub fn reload(&self) -> Result<(), Fault> {
        *self.stamps.lock().unwrap_or_else(PoisonError::into_inner) = stamps(&self.source);
        match rules(&self.source) {
            Ok(fresh) => {
                *self.rules.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(fresh);
                self.reloads[0].fetch_add(1, Ordering::Relaxed);
                tracing::info!(entries = self.n_entries(), "the word lists were read again");
                Ok(())
            }
            Err(fault) => {
                self.reloads[1].fetch_add(1, Ordering::Relaxed);
                tracing::error!(%fault, "the word lists were not replaced; the old ones hold on");
                Err(fault)
            }
        }
    }

    /// As [`Live::reload`], when a list was written since it was read.
    pub fn reload_if_changed(&self) {
        let changed = *self.stamps.lock().unwrap_or_else(PoisonError::into_inner) != stamps(&self.source);
        if changed {
            // Told and counted there.
            let _ = self.reload();
        }
    }

    /// Whether there is a file to be looked after.
    pub fn has_lists(&self) -> bool {
        self.source.files().into_iter().flatten().next().is_some()
    }

    pub fn n_entries(&self) -> usize {
        self.rules.read().unwrap_or_else(PoisonError::into_inner).words.len()
    }

    /// Reloads that were taken and that were refused.
    pub fn reloads(&self) -> [u64; 2] {
        self.reloads.each_ref().map(|n| n.load(Ordering::Relaxed))
    }
}

impl Source {
    fn files(&self) -> [Option<&PathBuf>; 3] {
        [self.block.as_ref(), self.flag.as_ref(), self.allow.as_ref()]
    }
}

fn stamps(source: &Source) -> Stamps {
    source.files().map(|path| {
        let metadata = std::fs::metadata(path?).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    })
}

fn rules(source: &Source) -> Result<Rules, Fault> {
    let [block, flag, allow] = source.files().map(|path| path.map_or_else(|| Ok(String::new()), |path| text(path)));
    let (block, flag, allow) = (block?, flag?, allow?);
    let words = Words::read(Lists { block: &block, flag: &flag, allow: &allow }).map_err(|(list, fault)| {
        let path = match list {
            "flag" => &source.flag,
            "allow" => &source.allow,
            _ => &source.block,
        };
        Fault::Entry { path: path.clone().unwrap_or_default(), line: fault.line, what: fault.what }
    })?;
    Ok(Rules { words, links: source.links.clone(), english: source.english })
}

fn text(path: &Path) -> Result<String, Fault> {
    let read = |fault| Fault::Read(path.to_owned(), fault);
    if std::fs::metadata(path).map_err(read)?.len() > LIST_BYTES_MAX {
        return Err(Fault::TooLong(path.to_owned()));
    }
    std::fs::read_to_string(path).map_err(read)
}

#[cfg(test)]
mod tests {
    use super::{Fault, Live, Source};
    use grandstand_core::record::Verdict;

    #[test]
    fn a_list_that_changed_is_read_again_and_a_broken_one_leaves_the_old_rules() {
        let folder = tempfile::tempdir().unwrap();
        let block = folder.path().join("block.txt");
        std::fs::write(&block, "idiot\n").unwrap();
        let live = Live::read(Source { block: Some(block.clone()), ..Source::default() }).unwrap();
        let verdict = |text: &str| live.judge(text, false).unwrap().verdict;
        assert_eq!((verdict("idiot"), verdict("moron")), (Verdict::Block, Verdict::Allow));
        live.reload_if_changed();
        assert_eq!(live.reloads(), [0, 0]);
        std::fs::write(&block, "idiot\nmoron\n").unwrap();
        live.reload_if_changed();
        assert_eq!((verdict("moron"), live.reloads()), (Verdict::Block, [1, 0]));
        std::fs::write(&block, "fine\n\nb*d\n").unwrap();
        live.reload_if_changed();
        assert_eq!((verdict("moron"), live.reloads()), (Verdict::Block, [1, 1]));
        assert!(matches!(live.reload().unwrap_err(), Fault::Entry { line: 3, .. }));
    }
}
