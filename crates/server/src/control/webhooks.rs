//! Outgoing webhooks: what happens in rooms, posted to receivers of the operator's own.
//!
//! ```text
//! log ── scan ──► tracks (rules in the core) ── post, signed ──► receiver
//!                   └─ base and cursors ──► webhooks-state.json, once a second
//! ```
//!
//! What is told is a function of the log and of a place in it: nothing is queued but what is being told, so a room and its commits know nothing
//! of who is told. Which receivers there are is `webhooks.json` in the data folder, because a secret has no business in a log that is
//! exported; who put them up and why is in `audit.jsonl`. The places are a file of their own that may be a second old after a crash: then the last
//! second is told once more, under the same ids (docs/decisions/0044-webhooks.md).
//!
//! What it must never do: post to an address that nobody allowed, hold up the log, or tell an event of a room before the one before it was
//! taken.

mod calls;
mod files;
mod post;
mod pump;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use grandstand_core::names::RoomId;
use grandstand_core::record::{Audience, Record};
use grandstand_core::time::Wall;
use grandstand_core::webhooks::{Rules, Track, Tracks};
use grandstand_wire::export;
use tokio::sync::{Notify, Semaphore};

pub use calls::{change, delete, list, put_up, try_out};
pub use pump::run;

use self::files::{Receiver, Saved};
use crate::auth::RoomPattern;
use crate::auth::fetch::Url;
use crate::config;

/// Receivers of a server.
const RECEIVERS_MAX: usize = 16;
/// Receivers that are tried at a time.
const TRIED_MAX: usize = 4;
/// Patterns of rooms of a receiver.
const PATTERNS_MAX: usize = 64;

/// What a receiver may be told of; one of which nothing is said is told of all of it.
pub const EVENTS: [&str; 17] = [
    "score_event",
    "gift",
    "gift_combo",
    "banner",
    "banner_end",
    "retract",
    "config",
    "ban",
    "unban",
    "site_ban",
    "site_unban",
    "report",
    "blocked",
    "held",
    "held_end",
    "room",
    "audit",
];

/// Which events of which rooms.
#[derive(Clone, Debug, Default, PartialEq)]
struct Filter {
    /// `None`: every room, and what is of the site.
    rooms: Option<Vec<RoomPattern>>,
    /// `None`: all of [`EVENTS`].
    events: Option<Vec<&'static str>>,
}

impl Filter {
    fn takes(&self, record: &Record) -> bool {
        let (kind, _) = export::kind(record);
        // What a provider says that no viewer is shown is not told as a score; a gift inside a combo is a gift all the same.
        let is_hidden = kind == "score_event" && record.audience == Audience::Nobody;
        let is_wanted = match &self.events {
            None => EVENTS.contains(&kind),
            Some(events) => events.contains(&kind),
        };
        is_wanted && !is_hidden && self.takes_room(record.room.as_ref())
    }

    fn takes_room(&self, room: Option<&RoomId>) -> bool {
        match (&self.rooms, room) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(patterns), Some(room)) => patterns.iter().any(|pattern| pattern.matches(room)),
        }
    }
}

/// A receiver, and how far it was told.
struct Live {
    receiver: Receiver,
    url: Url,
    filter: Arc<Filter>,
    tracks: Tracks<Arc<Record>>,
    delivered: u64,
    failed: u64,
    passed_over: u64,
    last_success: Option<Wall>,
    last_failure: Option<(Wall, String)>,
}

impl Live {
    /// Errors: what the file holds is no receiver.
    fn of(receiver: Receiver, saved: Option<Saved>, rules: Rules) -> Option<Live> {
        let (url, filter) = (Url::parse_any(&receiver.url)?, Arc::new(receiver.filter()?));
        let saved = match saved {
            Some(saved) => saved,
            None => Saved { base: receiver.from, ..Saved::default() },
        };
        let (base, cursors) = saved.places()?;
        let failing_since = saved.failing_since_ms.map(Wall);
        Some(Live {
            url,
            filter,
            tracks: Tracks::new(rules, base, cursors, failing_since),
            delivered: saved.delivered,
            failed: saved.failed,
            passed_over: saved.passed_over,
            last_success: saved.last_success_ms.map(Wall),
            last_failure: None,
            receiver,
        })
    }

    /// What is posted at `now`, signed by its secret, and for a while by the one before.
    fn letter(&self, id: String, body: Vec<u8>, now: Wall) -> post::Letter {
        let old = self.receiver.old_secret.iter().filter(|old| now.0 < old.until_ms);
        let secrets = [&self.receiver.secret].into_iter().chain(old.map(|old| &old.secret));
        post::Letter { id, at: now.0 / 1_000, body, secrets: secrets.cloned().collect() }
    }

    fn saved(&self) -> Saved {
        let cursor = |(track, at): (&Track, grandstand_core::ids::Position)| {
            (track.as_ref().map(|room| room.as_str().to_owned()), at.value())
        };
        Saved {
            base: self.tracks.base().value(),
            tracks: self.tracks.cursors().map(cursor).collect(),
            failing_since_ms: self.tracks.failing_since().map(|at| at.0),
            delivered: self.delivered,
            failed: self.failed,
            passed_over: self.passed_over,
            last_success_ms: self.last_success.map(|at| at.0),
        }
    }
}

#[derive(Default)]
struct Book {
    live: BTreeMap<String, Live>,
    /// The file has what is not here: it is not written over.
    is_lost: bool,
    /// The places moved since they were written.
    moved: bool,
    /// Erases that had begun when what is held was let go last.
    erased: u64,
}

/// All receivers of this server.
pub struct Webhooks {
    data: PathBuf,
    rules: Rules,
    post: Arc<post::Poster>,
    book: Mutex<Book>,
    /// An operator did something about a receiver.
    changed: Arc<Notify>,
    /// Places for those who try a receiver.
    tries: Semaphore,
    /// Posts by how they ended: delivered, failed; events that were passed over; receivers that were given up.
    counts: [AtomicU64; 4],
}

impl Webhooks {
    /// Reads the data folder's receivers. A file that cannot be read is told on the log and left as it is: then nothing is told, and nothing
    /// can be put up over it.
    pub fn read(data: &Path, settings: &config::Webhooks) -> Webhooks {
        let rules = Rules { give_up: settings.give_up };
        let mut book = Book::default();
        let found = files::read(data);
        book.is_lost = found.is_none();
        for (receiver, saved) in found.into_iter().flatten() {
            let id = receiver.id.clone();
            if let Some(live) = Live::of(receiver, saved, rules) {
                book.live.insert(id, live);
            } else {
                tracing::error!(%id, "webhooks.json holds a receiver that is none");
                book.is_lost = true;
            }
        }
        Webhooks {
            data: data.to_owned(),
            rules,
            post: Arc::new(post::Poster::new(settings.allow.clone(), settings.ca_file.as_deref())),
            book: Mutex::new(book),
            changed: Arc::default(),
            tries: Semaphore::new(TRIED_MAX),
            counts: Default::default(),
        }
    }

    /// After a holder's fault it has to be put right by [`Webhooks::begin_anew`]; until then it is read as it stands.
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing is under way: each receiver is told from where it stands in the books.
    fn begin_anew(&self) {
        self.book.clear_poison();
        for live in self.book().live.values_mut() {
            if let Some(anew) = Live::of(live.receiver.clone(), Some(live.saved()), self.rules) {
                *live = Live { last_failure: live.last_failure.take(), ..anew };
            }
        }
    }

    /// Delivered, failed, passed over, given up since the start.
    pub fn counts(&self) -> [u64; 4] {
        self.counts.each_ref().map(crate::metrics::read)
    }

    /// Receivers that are told, that fail and that are disabled; and since when the longest failing one does, as of `now`.
    pub fn states(&self, now: Wall) -> ([u64; 3], u64) {
        let book = self.book();
        let (mut states, mut longest) = ([0; 3], 0);
        for live in book.live.values() {
            let state = match (&live.receiver.disabled, live.tracks.failing_since()) {
                (Some(_), _) => 2,
                (None, Some(since)) => {
                    longest = longest.max(now.since(since).as_secs());
                    1
                }
                (None, None) => 0,
            };
            states[state] += 1;
        }
        (states, longest)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::Duration;

    use grandstand_core::time::Mono;
    use grandstand_core::webhooks::Work;

    use super::Webhooks;
    use super::files::{Saved, tests::receiver, write_receivers, write_state};
    use crate::config;

    #[test]
    fn what_was_under_way_at_a_fault_is_told_again() {
        let folder = tempfile::tempdir().unwrap();
        write_receivers(folder.path(), [receiver("a")].iter()).unwrap();
        let saved = Saved { base: 9, tracks: vec![(Some("match:1".to_owned()), 8)], ..Saved::default() };
        write_state(folder.path(), &BTreeMap::from([("a".to_owned(), saved)])).unwrap();
        let settings = config::Webhooks { allow: Vec::new(), ca_file: None, give_up: Duration::from_secs(60) };
        let webhooks = Webhooks::read(folder.path(), &settings);
        let work = || webhooks.book().live.get_mut("a").unwrap().tracks.next(Mono(1));
        assert!(matches!(work(), Some(Work::Read { after, .. }) if after.value() == 8));
        assert!(work().is_none(), "it is under way");
        let held = catch_unwind(AssertUnwindSafe(|| {
            let _book = webhooks.book();
            panic!("a fault for this test");
        }));
        assert!(held.is_err());
        webhooks.begin_anew();
        assert!(matches!(work(), Some(Work::Read { after, .. }) if after.value() == 8));
    }
}
