//! Deterministic simulation of the pure rules under faults.
//!
//! A run is one seed: real owner, rings, walks and sessions in a world that loses, doubles, delays, tears and kills, with
//! model clients whose histories a checker holds against the log. A run in which nothing went wrong proves nothing and is void.
#![forbid(unsafe_code)]

pub mod checker;
pub mod history;
pub mod options;
pub mod process;
pub mod scenarios;
pub mod world;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use checker::Weight;
use options::{Fault, Options};
use world::World;

/// Fewer acknowledged wishes than this prove nothing.
const ACKS_MIN: u64 = 20;

/// What one run came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Hash of everything that happened, in order.
    pub trace: u64,
    /// Broken invariants; empty when all held.
    pub violations: Vec<String>,
    /// Why the run proves nothing.
    pub void: Option<String>,
    pub weight: Weight,
    pub made: BTreeMap<Fault, u64>,
}

impl Outcome {
    pub fn passed(&self) -> bool {
        self.violations.is_empty() && self.void.is_none()
    }
}

/// Runs one seed, with one planted bug (0 for none). A panic of a rule is a violation like any other.
///
/// Panics: `planted` other than 0 in a build without planted bugs.
pub fn run(options: &Options, planted: u32, print: bool) -> Outcome {
    plant(planted);
    let ran = catch_unwind(AssertUnwindSafe(|| judge(options, print)));
    plant(0);
    ran.unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().cloned();
        let said = said.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        Outcome {
            trace: 0,
            violations: vec![format!("assertion: {}", said.unwrap_or_else(|| "a panic without words".into()))],
            void: None,
            weight: Weight::default(),
            made: BTreeMap::new(),
        }
    })
}

fn judge(options: &Options, print: bool) -> Outcome {
    let mut world = World::new(options, print);
    let trace = world.run();
    let clocks_jump = world.made.contains_key(&Fault::ClockJump);
    let cut_off = [Fault::Zombie, Fault::GatewaySurvives].iter().any(|fault| world.made.contains_key(fault));
    let of_no_room = world.final_of_no_room();
    let (mut violations, mut weight) =
        checker::check(&world.storage, &world.history, &world.final_tops(), of_no_room.as_ref(), clocks_jump, cut_off);
    if let Some((head, rooms)) = world.final_rooms() {
        checker::check_rooms(&world.storage, head, &rooms, &mut violations);
    }
    violations.append(&mut world.broken);
    weight.slow = world.n_slow;
    weight.survived = world.survived;
    let void = if weight.acks < ACKS_MIN {
        Some(format!("only {} acknowledged", weight.acks))
    } else if world.made.is_empty() {
        Some("no fault came".into())
    } else if weight.resumes == 0 {
        Some("nobody resumed".into())
    } else {
        None
    };
    Outcome { trace, violations, void, weight, made: world.made }
}

/// Takes away what the failure does not need: faults, clients, time. The result still fails.
pub fn shrink(options: &Options, planted: u32) -> Options {
    let fails = |options: &Options| !run(options, planted, false).violations.is_empty();
    let mut best = options.clone();
    for (fault, _) in Fault::ALL {
        let mut less = best.clone();
        if less.off.insert(fault) && fails(&less) {
            best = less;
        }
    }
    for clients_max in [1, 2, 4] {
        let less = Options { clients_max, ..best.clone() };
        if (best.clients_max == 0 || clients_max < best.clients_max) && fails(&less) {
            best = less;
            break;
        }
    }
    while best.seconds > 1 {
        let less = Options { seconds: best.seconds * 3 / 4, ..best.clone() };
        if !fails(&less) {
            break;
        }
        best = less;
    }
    best
}

#[cfg(feature = "planted")]
fn plant(n: u32) {
    grandstand_core::planted::plant(n);
}

#[cfg(not(feature = "planted"))]
fn plant(n: u32) {
    assert_eq!(n, 0, "planted bugs are in the build with feature `planted` only");
}

#[cfg(test)]
mod tests {
    use super::run;
    use crate::options::Options;

    #[test]
    fn the_same_seed_is_the_same_run() {
        for seed in 1..6 {
            let options = Options::new(seed, 8);
            let (a, b) = (run(&options, 0, false), run(&options, 0, false));
            assert_eq!((a.trace, a.weight, a.made), (b.trace, b.weight, b.made), "seed {seed}");
        }
    }

    #[test]
    fn different_seeds_are_different_runs() {
        let trace = |seed| run(&Options::new(seed, 5), 0, false).trace;
        assert_ne!(trace(1), trace(2));
    }
}
