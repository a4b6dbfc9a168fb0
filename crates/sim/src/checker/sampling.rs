//! How much of a wide room a viewer is given (I-14): never more than its cap in any second, at least half of it unless an operator
//! says otherwise, and a word every two seconds while anything is shown.
//!
//! A second is five windows that follow one another, by their numbers: what a viewer catches up with may come all at once. What is
//! addressed to it comes on top and is not counted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use grandstand_core::ids::EventId;
use grandstand_core::record::Record;
use grandstand_core::sampler::pick::{ViewerKey, WindowNumber};
use grandstand_core::time::Mono;

use super::Violations;
use crate::history::{ClientIdx, Picked};
use crate::process::{self, CAP_MILLI};

/// Windows of a second.
const SECOND: u64 = 5;
const WINDOW_MS: u64 = 1_000 / SECOND;
/// A wait is measured from walk to walk, in whole windows.
const SILENCE_MAX: Duration = Duration::from_millis(2_000 + WINDOW_MS);

/// What one viewer was given by lot.
#[derive(Default)]
pub struct Given {
    key: Option<ViewerKey>,
    by_window: BTreeMap<WindowNumber, BTreeSet<EventId>>,
    /// With what is addressed to it: a pick may fall on that.
    n_by_window: BTreeMap<WindowNumber, u64>,
    /// Stretches of the log that it was served under a lowered cap.
    pub shed: Vec<Picked>,
    /// Since when something was there and it was given nothing.
    silent_since: Option<Mono>,
}

impl Given {
    /// A connection begins.
    pub fn begin(&mut self, key: ViewerKey) {
        self.key = Some(key);
        self.silent_since = None;
    }

    pub fn take(&mut self, event: &Record) {
        let Some(lot) = process::lot(event) else { return };
        *self.n_by_window.entry(lot.window).or_default() += 1;
        if lot.addressee.is_none() || lot.addressee != self.key {
            self.by_window.entry(lot.window).or_default().insert(event.event_id());
        }
    }

    pub fn picked(&mut self, client: ClientIdx, at: Mono, picked: &Picked, found: &mut Violations) {
        let Picked { cap_milli, ordered, live, ref windows, n_given, .. } = *picked;
        if cap_milli < CAP_MILLI {
            self.shed.push(picked.clone());
        }
        if cap_milli < CAP_MILLI / 2 && !ordered {
            found.push(format!("I-14: client {client} has a cap of {cap_milli} that nobody ordered"));
        }
        if !live || n_given > 0 {
            self.silent_since = None;
        } else if !windows.is_empty() {
            let since = *self.silent_since.get_or_insert(at);
            if at.since(since) > SILENCE_MAX {
                found.push(format!("I-14: client {client} was given nothing for {:?}", at.since(since)));
                self.silent_since = None;
            }
        }
    }

    /// `left_out`: windows of which it may lack some for another reason.
    pub fn judge(&self, client: ClientIdx, left_out: &BTreeSet<WindowNumber>, found: &mut Violations) {
        // Where a cap is lowered and raised again a window more or less may count.
        let slack = u64::from(!self.shed.is_empty());
        for first in self.by_window.keys() {
            for n in [1, SECOND] {
                let n_given: usize =
                    self.by_window.range(first..&WindowNumber(first.0 + n)).map(|(_, given)| given.len()).sum();
                // Over consecutive windows it differs by less than one from the cap's share.
                let most = (n * CAP_MILLI * WINDOW_MS).div_ceil(1_000_000) + slack;
                if n_given as u64 > most {
                    let ms = n * WINDOW_MS;
                    let given = self.by_window.range(first..&WindowNumber(first.0 + n));
                    let given: Vec<_> = given.map(|(number, given)| (number.0 - first.0, given)).collect();
                    let which = format!("{ms} ms of {first:?}: {given:?}");
                    found.push(format!("I-14: client {client} is given {n_given} within {which}"));
                    return;
                }
            }
        }
        self.judge_floor(client, left_out, found);
    }

    /// The shedder alone takes no more than half.
    fn judge_floor(&self, client: ClientIdx, left_out: &BTreeSet<WindowNumber>, found: &mut Violations) {
        let other = |picked: &Picked| picked.ordered || !picked.live;
        // What was lost on the way may have been picked again, and otherwise.
        let again = self.shed.iter().filter(|picked| other(picked)).flat_map(|picked| picked.windows.iter());
        let again: BTreeSet<WindowNumber> = again.copied().collect();
        for stretch in self.shed.split(other) {
            let windows: BTreeSet<WindowNumber> = stretch.iter().flat_map(|picked| picked.windows.clone()).collect();
            let windows = windows.difference(left_out).filter(|window| !again.contains(window));
            let windows: Vec<WindowNumber> = windows.copied().collect();
            let jumps = windows.windows(2).filter(|pair| pair[0].0 + 1 != pair[1].0).count() as u64;
            let n_given: u64 = windows.iter().filter_map(|n| self.n_by_window.get(n)).sum();
            let owed = windows.len() as u64 * (CAP_MILLI / 2) * WINDOW_MS / 1_000_000;
            if n_given + 2 + jumps < owed {
                found.push(format!("I-14: client {client} is given {n_given} of {owed} in {} windows", windows.len()));
            }
        }
    }
}
