//! Named places where a process test may hold or end the server. Inert unless the process was started with them.
//!
//! `GRANDSTAND_FAILPOINTS=name=action(;name=action)*`, read once. Actions: `pause:FILE` holds whoever reaches the place until
//! FILE exists; `abort` ends the process there. With `GRANDSTAND_FAILPOINTS_REACHED=FILE` that file appears when a place first
//! holds somebody, so that a test knows it was not passed by. A worker never sleeps in one: it asks [`holds`] again on a timer.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

static ACTIVE: AtomicBool = AtomicBool::new(false);
static REACHED: OnceLock<PathBuf> = OnceLock::new();
static PLACES: OnceLock<HashMap<String, Action>> = OnceLock::new();

/// Every place there is; a name outside this list refuses to start.
pub const NAMES: [&str; 5] = [
    "resume.before_subscribe",
    "resume.before_read",
    "resume.between_pages",
    "resume.between_last_page_and_live",
    "walk.slice",
];

#[derive(Clone, PartialEq, Eq, Debug)]
enum Action {
    Pause(PathBuf),
    Abort,
}

/// Reads the environment. Errors: the first unknown name or action.
pub fn init() -> Result<(), String> {
    match std::env::var("GRANDSTAND_FAILPOINTS") {
        Ok(text) if !text.is_empty() => {
            let places = parse(&text)?;
            if let Some(file) = std::env::var_os("GRANDSTAND_FAILPOINTS_REACHED") {
                REACHED.get_or_init(|| file.into());
            }
            if PLACES.set(places).is_ok() {
                ACTIVE.store(true, Ordering::Release);
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// True while whoever reached this place must wait; ask again later. Ends the process where that is the action.
pub fn holds(name: &'static str) -> bool {
    is_active() && reached(name)
}

/// Whether this process runs with failpoints at all.
pub fn is_active() -> bool {
    ACTIVE.load(Ordering::Relaxed)
}

/// Waits here until the place lets go. For threads that may sleep; a worker asks [`holds`].
pub fn wait(name: &'static str) {
    while holds(name) {
        std::thread::sleep(POLL);
    }
}

/// How often a held place looks for its file.
pub const POLL: Duration = Duration::from_millis(20);

#[cold]
fn reached(name: &'static str) -> bool {
    debug_assert!(NAMES.contains(&name), "failpoint {name} is not in the list");
    match PLACES.get().and_then(|places| places.get(name)) {
        None => false,
        Some(Action::Pause(file)) => {
            let holds = !Path::exists(file);
            if holds && let Some(reached) = REACHED.get() {
                // A test that cannot see it fails by its own time limit.
                let _ = std::fs::write(reached, name);
            }
            holds
        }
        Some(Action::Abort) => std::process::abort(),
    }
}

fn parse(text: &str) -> Result<HashMap<String, Action>, String> {
    text.split(';').map(str::trim).filter(|part| !part.is_empty()).map(parse_one).collect()
}

fn parse_one(part: &str) -> Result<(String, Action), String> {
    let (name, action) = part.split_once('=').ok_or_else(|| format!("failpoint without an action: {part}"))?;
    if !NAMES.contains(&name) {
        return Err(format!("unknown failpoint: {name}"));
    }
    let action = match action.split_once(':') {
        Some(("pause", file)) if !file.is_empty() => Action::Pause(file.into()),
        None if action == "abort" => Action::Abort,
        _ => return Err(format!("unknown failpoint action: {action}")),
    };
    Ok((name.to_owned(), action))
}

#[cfg(test)]
mod tests {
    use super::{Action, holds, parse};

    #[test]
    fn places_and_actions_are_closed_lists() {
        let places = parse("resume.before_read=pause:/x/y; walk.slice=abort").unwrap();
        assert_eq!(places["resume.before_read"], Action::Pause("/x/y".into()));
        assert_eq!(places["walk.slice"], Action::Abort);
        for bad in ["walk.slice", "nowhere=abort", "walk.slice=sleep", "walk.slice=pause:", "walk.slice=abort:1"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn nothing_holds_without_being_asked_for() {
        assert!(!holds("walk.slice"));
    }
}
