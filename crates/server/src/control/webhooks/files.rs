//! The two files: receivers as operators put them up, and how far each was told.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

use grandstand_core::ids::Position;
use grandstand_core::names::RoomId;
use grandstand_core::webhooks::Track;
use serde::{Deserialize, Serialize};

use super::{EVENTS, Filter};
use crate::auth::RoomPattern;
use crate::auth::files::replace;

const RECEIVERS: &str = "webhooks.json";
const STATE: &str = "webhooks-state.json";
const VERSION: u32 = 1;

#[derive(Clone, Serialize, Deserialize)]
pub struct Receiver {
    pub id: String,
    pub url: String,
    /// As receivers are given it: `whsec_` and Base64.
    pub secret: String,
    /// The one before, which signs beside it until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_secret: Option<OldSecret>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rooms: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<Vec<String>>,
    pub created_ms: u64,
    pub by: String,
    /// The log's head when it was put up.
    pub from: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<Disabled>,
}

#[derive(Clone, Serialize, Deserialize)]
pub struct OldSecret {
    pub secret: String,
    pub until_ms: u64,
}

#[derive(Clone, Serialize, Deserialize)]
pub struct Disabled {
    pub at_ms: u64,
    pub why: String,
}

impl Receiver {
    /// Errors: `None` for what is no filter.
    pub(super) fn filter(&self) -> Option<Filter> {
        let patterns =
            |rooms: &Vec<String>| rooms.iter().map(|text| RoomPattern::parse(text)).collect::<Option<Vec<_>>>();
        let known = |name: &String| EVENTS.iter().find(|known| *known == name).copied();
        Some(Filter {
            rooms: self.rooms.as_ref().map(patterns).map_or(Some(None), |all| all.map(Some))?,
            events: self
                .events
                .as_ref()
                .map(|all| all.iter().map(known).collect::<Option<Vec<_>>>())
                .map_or(Some(None), |all| all.map(Some))?,
        })
    }
}

/// How far a receiver was told.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Saved {
    pub base: u64,
    /// Rooms (null: of no room) of which something is not delivered yet, and up to where they are.
    pub tracks: Vec<(Option<String>, u64)>,
    pub failing_since_ms: Option<u64>,
    pub delivered: u64,
    pub failed: u64,
    pub passed_over: u64,
    pub last_success_ms: Option<u64>,
}

impl Saved {
    /// Errors: `None` for what is no place in a log.
    pub fn places(&self) -> Option<(Position, Vec<(Track, Position)>)> {
        let track = |(room, at): &(Option<String>, u64)| {
            let room = room.as_deref().map_or(Some(None), |room| RoomId::parse(room).map(Some))?;
            Some((room, Position::new(*at)?))
        };
        Some((Position::new(self.base)?, self.tracks.iter().map(track).collect::<Option<Vec<_>>>()?))
    }
}

#[derive(Serialize, Deserialize)]
struct Receivers {
    version: u32,
    receivers: Vec<Receiver>,
}

/// Every receiver with its place, where there is one. Errors: `None`, told on the log, for a file of receivers that cannot be read; places that
/// cannot be read are those of the beginning.
pub fn read(data: &Path) -> Option<Vec<(Receiver, Option<Saved>)>> {
    let Some(file) = of_file::<Receivers>(&data.join(RECEIVERS)).ok()? else { return Some(Vec::new()) };
    if file.version != VERSION {
        tracing::error!(version = file.version, "webhooks.json is of another version; no receiver is told");
        return None;
    }
    let mut state = of_file::<BTreeMap<String, Saved>>(&data.join(STATE)).ok().flatten().unwrap_or_default();
    let placed = file.receivers.into_iter().map(|receiver| {
        let saved = state.remove(&receiver.id);
        (receiver, saved)
    });
    Some(placed.collect())
}

/// `None` where there is no such file. Errors: told on the log.
fn of_file<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<Option<T>, io::Error> {
    let told = |fault: &io::Error| tracing::error!(%fault, path = %path.display(), "a file of webhooks cannot be read");
    match fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(io::Error::from).inspect_err(told),
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(fault) => Err(fault).inspect_err(told),
    }
}

/// Durable on `Ok`.
pub fn write_receivers<'a>(data: &Path, receivers: impl Iterator<Item = &'a Receiver>) -> io::Result<()> {
    let file = Receivers { version: VERSION, receivers: receivers.cloned().collect() };
    replace(&data.join(RECEIVERS), &serde_json::to_vec_pretty(&file)?)
}

/// Durable on `Ok`.
pub fn write_state(data: &Path, state: &BTreeMap<String, Saved>) -> io::Result<()> {
    replace(&data.join(STATE), &serde_json::to_vec(state)?)
}

#[cfg(test)]
pub mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt as _;

    use super::{Receiver, Saved, read, write_receivers, write_state};

    pub fn receiver(id: &str) -> Receiver {
        Receiver {
            id: id.to_owned(),
            url: "https://hooks.example.com/".to_owned(),
            secret: "whsec_x".to_owned(),
            old_secret: None,
            rooms: Some(vec!["match:*".to_owned()]),
            events: None,
            created_ms: 1,
            by: "ann".to_owned(),
            from: 7,
            disabled: None,
        }
    }

    #[test]
    fn what_was_written_is_read_again_by_nobody_else() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read(folder.path()).unwrap().is_empty());
        write_receivers(folder.path(), [receiver("a"), receiver("b")].iter()).unwrap();
        let saved = Saved { base: 9, tracks: vec![(Some("match:1".to_owned()), 8), (None, 3)], ..Saved::default() };
        write_state(folder.path(), &BTreeMap::from([("a".to_owned(), saved)])).unwrap();
        let all = read(folder.path()).unwrap();
        assert_eq!(
            all.iter().map(|(e, s)| (e.id.as_str(), s.is_some())).collect::<Vec<_>>(),
            [("a", true), ("b", false)]
        );
        let (base, tracks) = all[0].1.as_ref().unwrap().places().unwrap();
        assert_eq!((base.value(), tracks.len(), tracks[1].0.is_none()), (9, 2, true));
        let mode = std::fs::metadata(folder.path().join("webhooks.json")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(all[0].0.filter().is_some_and(|filter| filter.rooms.is_some() && filter.events.is_none()));
        let wrong = Receiver { events: Some(vec!["comment".to_owned()]), ..receiver("c") };
        assert!(wrong.filter().is_none());
    }

    #[test]
    fn a_file_that_is_damaged_is_no_receiver_and_no_place() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("webhooks.json"), "{\"version\":1,").unwrap();
        assert!(read(folder.path()).is_none());
        assert!(Saved { base: u64::MAX, ..Saved::default() }.places().is_none());
        assert!(Saved { tracks: vec![(Some("Bad Room".to_owned()), 1)], ..Saved::default() }.places().is_none());
    }
}
