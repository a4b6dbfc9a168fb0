//! The loop: inputs from corpus, generator and mutation; a panic is a finding, which is made small and saved.
//!
//! An input that came to an end no other came to is kept, the shortest of each, and mutated from: a poor relation of
//! coverage that needs no instrumented build. A run that saw fewer kinds of ends than the target is known to have could not
//! have failed where it matters, and fails.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use grandstand_core::rng::Rng;

use crate::bytes::mutate;
use crate::targets::Target;

/// An input is no longer; the largest message any reader takes is far below.
const INPUT_BYTES_MAX: usize = 256 << 10;
/// Ends that are remembered with their input.
const POOL_MAX: usize = 4_096;
/// Executions that making a finding small may take.
const SHRINKS_MAX: u32 = 50_000;
/// One execution that takes longer hangs: the process says so and ends.
const HANG: Duration = Duration::from_secs(60);

pub enum Budget {
    Executions(u64),
    Seconds(u64),
}

pub struct Report {
    pub executions: u64,
    pub took: Duration,
    /// Kinds of ends that were seen.
    pub outcomes: usize,
    pub corpus: usize,
    pub failure: Option<Failure>,
}

pub struct Failure {
    pub said: String,
    /// As small as it became.
    pub input: Vec<u8>,
    pub found: Vec<u8>,
    pub saved: Option<PathBuf>,
}

thread_local! {
    /// What a check said; `None` while none runs.
    static SAID: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Panics of a check are told by the report, once; all others as usual.
pub fn quiet_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        SAID.with_borrow_mut(|said| match said {
            Some(said) => *said = info.to_string(),
            None => usual(info),
        });
    }));
}

/// Errors: what the check said.
pub fn one(target: &Target, input: &[u8]) -> Result<u64, String> {
    SAID.set(Some(String::new()));
    let ended = catch_unwind(AssertUnwindSafe(|| (target.check)(input)));
    let said = SAID.take().unwrap_or_default();
    ended.map_err(|_| said)
}

pub fn target(target: &Target, budget: Budget, seed: u64, save: &Path) -> Result<Report> {
    let start = Instant::now();
    let corpus = corpus(target)?;
    let watch = Watch::start(target.name, save);
    let mut rng = Rng::new(seed ^ u64::from(crc32fast::hash(target.name.as_bytes())) << 20);
    let mut pool: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let mut report = Report { executions: 0, took: Duration::ZERO, outcomes: 0, corpus: corpus.len(), failure: None };
    let mut kept = corpus.iter();
    loop {
        let input = match kept.next() {
            Some(input) => input.clone(),
            None if is_over(&budget, report.executions, start) => break,
            None => next_input(target, &pool, &corpus, &mut rng),
        };
        watch.on(&input);
        report.executions += 1;
        match one(target, &input) {
            Ok(outcome) => {
                let room = pool.len() < POOL_MAX;
                let known = pool.get(&outcome);
                if known.map_or(room, |shortest| input.len() < shortest.len()) {
                    pool.insert(outcome, input);
                }
            }
            Err(said) => {
                let small = shrink(target, &input, &watch);
                let said = one(target, &small).err().unwrap_or(said);
                let saved = kept_at(save, target.name, &small)?;
                report.failure = Some(Failure { said, input: small, found: input, saved: Some(saved) });
                break;
            }
        }
    }
    report.outcomes = pool.len();
    report.took = start.elapsed();
    if report.failure.is_none() && pool.len() < target.outcomes_min {
        let said = format!("void: {} kinds of ends were seen, {} are known", pool.len(), target.outcomes_min);
        report.failure = Some(Failure { said, input: Vec::new(), found: Vec::new(), saved: None });
    }
    Ok(report)
}

fn is_over(budget: &Budget, executions: u64, start: Instant) -> bool {
    match budget {
        Budget::Executions(n) => executions >= *n,
        // The clock is asked rarely: some targets make a million executions a second.
        Budget::Seconds(s) => executions.is_multiple_of(64) && start.elapsed().as_secs() >= *s,
    }
}

fn next_input(target: &Target, pool: &BTreeMap<u64, Vec<u8>>, corpus: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut input = if pool.is_empty() || rng.chance(1, 2) {
        (target.generate)(rng)
    } else if !corpus.is_empty() && rng.chance(1, 4) {
        corpus[rng.below(corpus.len() as u64) as usize].clone()
    } else {
        picked(pool, rng).clone()
    };
    if rng.chance(2, 3) {
        let other = if pool.is_empty() { Vec::new() } else { picked(pool, rng).clone() };
        mutate(&mut input, &other, rng);
        if let Some(mend) = target.mend {
            mend(&mut input, rng);
        }
    }
    input.truncate(INPUT_BYTES_MAX);
    input
}

fn picked<'p>(pool: &'p BTreeMap<u64, Vec<u8>>, rng: &mut Rng) -> &'p Vec<u8> {
    let from = rng.next();
    pool.range(from..).next().or_else(|| pool.first_key_value()).expect("the pool is not empty").1
}

/// Leaves out runs of bytes, then makes bytes plain, while it still fails.
fn shrink(target: &Target, found: &[u8], watch: &Watch) -> Vec<u8> {
    let mut small = found.to_vec();
    let mut left = SHRINKS_MAX;
    let mut fails = |input: &[u8]| {
        watch.on(input);
        left = left.saturating_sub(1);
        left > 0 && one(target, input).is_err()
    };
    let mut run = small.len().div_ceil(2).max(1);
    loop {
        let mut at = 0;
        while at < small.len() {
            let mut shorter = small.clone();
            shorter.drain(at..(at + run).min(small.len()));
            if fails(&shorter) {
                small = shorter;
            } else {
                at += run;
            }
        }
        if run == 1 {
            break;
        }
        run = run.div_ceil(2);
    }
    for at in 0..small.len() {
        for plain in [b'a', b'0', 0] {
            let mut plainer = small.clone();
            plainer[at] = plain;
            if small[at] != plain && fails(&plainer) {
                small = plainer;
                break;
            }
        }
    }
    small
}

/// The inputs that failed once, in a fixed order.
fn corpus(target: &Target) -> Result<Vec<Vec<u8>>> {
    // Where cargo runs it, which is not where it was built when target folders are shared.
    let here = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let folder = Path::new(&here).join("corpus").join(target.name);
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let entries = std::fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let mut paths = entries.map(|e| Ok(e?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    paths.iter().map(|p| std::fs::read(p).with_context(|| p.display().to_string())).collect()
}

fn kept_at(save: &Path, name: &str, input: &[u8]) -> Result<PathBuf> {
    std::fs::create_dir_all(save).with_context(|| save.display().to_string())?;
    let path = save.join(format!("{name}-{:08x}", crc32fast::hash(input)));
    std::fs::write(&path, input).with_context(|| path.display().to_string())?;
    Ok(path)
}

/// What is executed now, so that one that never ends can be told and saved.
struct Watch(Arc<Mutex<(Vec<u8>, Option<Instant>)>>);

impl Watch {
    fn start(name: &'static str, save: &Path) -> Watch {
        let now = Arc::new(Mutex::new((Vec::new(), None)));
        let (weak, save) = (Arc::downgrade(&now), save.to_path_buf());
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(Duration::from_secs(1));
                let Some(now) = weak.upgrade() else { return };
                let now = now.lock().expect("nobody panics with it");
                let (input, since): &(Vec<u8>, Option<Instant>) = &now;
                if since.is_some_and(|since| since.elapsed() > HANG) {
                    println!("{name}: FAILED: one execution takes over {HANG:?}; its input: {:?}", {
                        kept_at(&save, name, input)
                    });
                    std::process::exit(1);
                }
            }
        });
        Watch(now)
    }

    fn on(&self, input: &[u8]) {
        let mut now = self.0.lock().expect("nobody panics with it");
        now.0.clear();
        now.0.extend_from_slice(input);
        now.1 = Some(Instant::now());
    }
}

/// The most memory this process ever held, in MB.
pub fn memory_peak_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
}

#[cfg(test)]
mod tests {
    use grandstand_core::rng::Rng;

    use super::{Budget, quiet_panics, target};
    use crate::targets::Target;

    fn toy(check: fn(&[u8]) -> u64, outcomes_min: usize) -> Target {
        let generate = |rng: &mut Rng| (0..rng.below(64)).map(|_| rng.next() as u8).collect();
        Target { name: "toy", generate, mend: None, check, short: 0, outcomes_min }
    }

    #[test]
    fn a_planted_fault_is_found_and_made_as_small_as_it_is() {
        quiet_panics();
        let toy = toy(
            |input| {
                let n = input.iter().filter(|b| **b == 7).count();
                assert!(n < 3, "three sevens");
                n as u64
            },
            1,
        );
        let folder = std::env::temp_dir().join(format!("grandstand-fuzz-{}", std::process::id()));
        let report = target(&toy, Budget::Executions(100_000), 1, &folder).unwrap();
        let failure = report.failure.expect("it is found");
        assert!(failure.said.contains("three sevens"), "{}", failure.said);
        assert_eq!(failure.input, [7, 7, 7]);
        assert_eq!(std::fs::read(failure.saved.unwrap()).unwrap(), [7, 7, 7]);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_run_that_saw_too_little_is_void() {
        let report = target(&toy(|_| 1, 2), Budget::Executions(100), 1, "unused".as_ref()).unwrap();
        assert!(report.failure.expect("void").said.starts_with("void"));
    }
}
