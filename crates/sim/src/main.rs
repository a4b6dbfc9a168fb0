//! `grandstand-sim`: runs seeds, saved scenarios, and the proof that planted bugs are caught.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use grandstand_sim::options::{Fault, Options};
use grandstand_sim::world::Survived;
use grandstand_sim::{Outcome, run, scenarios, shrink};

const USAGE: &str = "grandstand-sim [--seed N | --seeds A..B] [--seconds S] [--planted N] [--shrink] [--trace]
                [--clients N] [--without FAULT]…
grandstand-sim scenarios            every saved run
grandstand-sim meta --seeds A..B    the same seed twice is the same run
grandstand-sim planted [--seeds A..B] [--seconds S]
                                    the seeds hold, and each planted bug is caught (build with --features planted)";

struct Args {
    command: Option<String>,
    seeds: std::ops::Range<u64>,
    seconds: u64,
    planted: u32,
    shrink: bool,
    trace: bool,
    base: Options,
}

fn main() -> ExitCode {
    let done = parse().and_then(|args| match args.command.as_deref() {
        None => seeds(&args),
        Some("scenarios") => saved(),
        Some("meta") => meta(&args),
        Some("planted") => planted(&args),
        Some(other) => bail!("no command is called {other}\n{USAGE}"),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why:#}");
            ExitCode::FAILURE
        }
    }
}

fn parse() -> Result<Args> {
    let mut args = Args {
        command: None,
        seeds: 1..201,
        seconds: 20,
        planted: 0,
        shrink: false,
        trace: false,
        base: Options::new(0, 20),
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} needs a value\n{USAGE}"));
        match word.as_str() {
            "--seed" => {
                let seed: u64 = value()?.parse()?;
                args.seeds = seed..seed + 1;
            }
            "--seeds" => {
                let text = value()?;
                let (from, to) = text.split_once("..").context("--seeds is A..B, B not included")?;
                args.seeds = from.parse()?..to.parse()?;
            }
            "--seconds" => args.seconds = value()?.parse()?,
            "--planted" => args.planted = value()?.parse()?,
            "--clients" => args.base.clients_max = value()?.parse()?,
            "--without" => {
                let name = value()?;
                args.base.off.insert(Fault::parse(&name).with_context(|| format!("no fault is called {name}"))?);
            }
            "--shrink" => args.shrink = true,
            "--trace" => args.trace = true,
            "--help" => bail!("{USAGE}"),
            name if !name.starts_with('-') && args.command.is_none() => args.command = Some(name.to_owned()),
            other => bail!("{other} is not understood\n{USAGE}"),
        }
    }
    ensure!(args.planted == 0 || cfg!(feature = "planted"), "planted bugs need --features planted");
    ensure!(args.seconds > 0 && !args.seeds.is_empty(), "nothing to run");
    Ok(args)
}

impl Args {
    fn options(&self, seed: u64) -> Options {
        Options { seed, seconds: self.seconds, ..self.base.clone() }
    }
}

/// Runs `work` for every seed on all cores; the results come in order of seed.
fn on_all_cores<T: Send>(seeds: std::ops::Range<u64>, work: impl Fn(u64) -> T + Sync) -> Vec<(u64, T)> {
    let next = AtomicU64::new(seeds.start);
    let done = Mutex::new(BTreeMap::new());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let result = work(seed);
                    done.lock().unwrap_or_else(PoisonError::into_inner).insert(seed, result);
                }
            });
        }
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().collect()
}

fn quiet_panics() {
    std::panic::set_hook(Box::new(|_| {}));
}

fn seeds(args: &Args) -> Result<()> {
    let start = Instant::now();
    let single = args.seeds.end - args.seeds.start == 1;
    if !single {
        quiet_panics();
    }
    let outcomes =
        on_all_cores(args.seeds.clone(), |seed| run(&args.options(seed), args.planted, args.trace && single));
    let mut failed = 0;
    let mut made: BTreeMap<Fault, u64> = BTreeMap::new();
    let (mut survived, mut paused) = (Survived::default(), 0);
    let (mut wide, mut said, mut won, mut shed) = (0, 0, 0, 0);
    let (mut acks, mut resumes, mut snapshots, mut skipped, mut delivered, mut epochs, mut slow, mut totals) =
        (0, 0, 0, 0, 0, 0, 0, 0);
    for (seed, outcome) in &outcomes {
        outcome.made.iter().for_each(|(fault, n)| *made.entry(*fault).or_default() += n);
        acks += outcome.weight.acks;
        resumes += outcome.weight.resumes;
        snapshots += outcome.weight.snapshots;
        skipped += outcome.weight.skipped;
        delivered += outcome.weight.delivered;
        epochs += outcome.weight.epochs;
        slow += outcome.weight.slow;
        totals += outcome.weight.totals;
        paused += outcome.weight.paused;
        survived += outcome.weight.survived;
        wide += outcome.weight.wide;
        said += outcome.weight.said;
        won += outcome.weight.won;
        shed += outcome.weight.shed;
        if !outcome.passed() {
            failed += 1;
            tell(&args.options(*seed), outcome);
            if args.shrink && !outcome.violations.is_empty() {
                let less = shrink(&args.options(*seed), args.planted);
                println!("  shrunk to {less}");
                run(&less, args.planted, false).violations.iter().take(5).for_each(|v| println!("    {v}"));
            }
        }
        if single {
            println!("trace {:016x} {:?}", outcome.trace, outcome.weight);
        }
    }
    println!(
        "{} runs, {failed} failed, {:.1} s: {acks} acks, {delivered} events given, {skipped} told as skipped, \
         {resumes} resumes, {snapshots} snapshots required, {slow} closed as slow, {totals} tellings of likes, {epochs} epochs",
        outcomes.len(),
        start.elapsed().as_secs_f64()
    );
    let Survived { viewers, joined, whole, pages, given_up, waited } = survived;
    println!(
        "owners that died alone: {viewers} viewers stayed, {paused} were told, {whole} rings were whole, {joined} were joined to the \
         log, {pages} pages, {given_up} given up; {waited} cursors waited for a ring"
    );
    println!(
        "wide rooms: turned wide {wide} times, {said} comments said, {won} shown, {shed} walks of viewers under a lowered cap"
    );
    let faults: Vec<String> = made.iter().map(|(fault, n)| format!("{} {n}", fault.name())).collect();
    println!("faults: {}", faults.join(", "));
    ensure!(failed == 0, "{failed} runs failed");
    Ok(())
}

fn tell(options: &Options, outcome: &Outcome) {
    println!("FAILED {options}");
    if let Some(void) = &outcome.void {
        println!("  void: {void}");
    }
    outcome.violations.iter().take(6).for_each(|violation| println!("  {violation}"));
    if outcome.violations.len() > 6 {
        println!("  and {} more", outcome.violations.len() - 6);
    }
}

fn saved() -> Result<()> {
    let all = scenarios::all();
    ensure!(!all.is_empty(), "no scenario is saved");
    let mut failed = 0;
    for scenario in &all {
        let outcome = run(&scenario.options, 0, false);
        // A shrunk run may be too small to weigh anything; it is kept for what it once broke.
        let passed = outcome.violations.is_empty();
        println!("{} {}: {}", if passed { "held  " } else { "FAILED" }, scenario.name, scenario.found);
        if !passed {
            failed += 1;
            tell(&scenario.options, &outcome);
        }
    }
    ensure!(failed == 0, "{failed} of {} scenarios failed", all.len());
    Ok(())
}

fn meta(args: &Args) -> Result<()> {
    let pairs = on_all_cores(args.seeds.clone(), |seed| {
        let options = args.options(seed);
        (run(&options, 0, false).trace, run(&options, 0, false).trace)
    });
    let differ: Vec<u64> = pairs.iter().filter(|(_, (a, b))| a != b).map(|(seed, _)| *seed).collect();
    ensure!(differ.is_empty(), "two runs of one seed differ: {differ:?}");
    println!("{} seeds, each the same run twice", pairs.len());
    Ok(())
}

/// Of the log's file.
#[cfg(feature = "planted")]
const STORE_SEEDS: u64 = 12;

/// The log's file as it is, in a folder of the run's own.
#[cfg(feature = "planted")]
mod store {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use grandstand_core::planted::plant;
    use grandstand_store::conformance::{OpenLog, erases_retention_and_restarts_agree_in_any_order};
    use grandstand_store::log::Log;
    use grandstand_store::sqlite::{DataDir, Durability, SqliteLog};

    const STEPS: usize = 120;

    /// Appends, erases, retention and restarts by `seed`; what was found wrong.
    pub fn run(seed: u64, planted: u32) -> Option<String> {
        let path = std::env::temp_dir().join(format!("grandstand-sim-{}-{planted}-{seed}", std::process::id()));
        plant(planted);
        let done = catch_unwind(AssertUnwindSafe(|| {
            let dir = DataDir::open(&path).expect("a folder for it");
            let open = || Box::new(SqliteLog::open(&dir, Durability::None).expect("the log opens")) as Box<dyn Log>;
            let mut open: OpenLog<'_> = Box::new(open);
            erases_retention_and_restarts_agree_in_any_order(&mut open, seed, STEPS);
        }));
        plant(0);
        drop(std::fs::remove_dir_all(&path));
        let panic = done.err()?;
        let said = panic.downcast_ref::<String>().cloned();
        Some(said.or(panic.downcast_ref::<&str>().map(|said| (*said).to_owned())).unwrap_or_default())
    }
}

/// Each planted bug must be caught within the seeds. A bug that escapes shows a hole in the checks.
#[cfg(feature = "planted")]
fn planted(args: &Args) -> Result<()> {
    quiet_panics();
    let start = Instant::now();
    // What fails without a bug would pass for having caught one.
    let clean = on_all_cores(args.seeds.clone(), |seed| run(&args.options(seed), 0, false));
    let failed: Vec<_> = clean.iter().filter(|(_, outcome)| !outcome.passed()).collect();
    failed.iter().take(3).for_each(|(seed, outcome)| tell(&args.options(*seed), outcome));
    ensure!(failed.is_empty(), "{} of {} seeds fail without any bug planted", failed.len(), clean.len());
    let mut escaped = 0;
    println!("{} seeds hold without a bug", clean.len());
    println!("bug  seeds  first sign");
    for (n, what) in grandstand_core::planted::ALL {
        let n = *n;
        let caught = args.seeds.clone().find_map(|seed| {
            let outcome = run(&args.options(seed), n, false);
            outcome.violations.first().map(|sign| (seed - args.seeds.start + 1, sign.clone()))
        });
        match caught {
            Some((tried, sign)) => {
                println!("{n:>3}  {tried:>5}  {what}: {}", sign.chars().take(110).collect::<String>())
            }
            None => {
                escaped += 1;
                println!("{n:>3}      -  {what}: ESCAPED");
            }
        }
    }
    for (n, what) in
        std::iter::once(&(0, "erases race retention in the log's file")).chain(grandstand_core::planted::STORE)
    {
        let caught = (1..STORE_SEEDS + 1).find_map(|seed| Some((seed, store::run(seed, *n)?)));
        match caught {
            Some((seed, sign)) if *n == 0 => bail!("without any bug planted, {what}, seed {seed}: {sign}"),
            Some((tried, sign)) => {
                println!("{n:>3}  {tried:>5}  {what}: {}", sign.chars().take(110).collect::<String>())
            }
            None if *n == 0 => println!("{STORE_SEEDS} seeds hold in which {what}"),
            None => {
                escaped += 1;
                println!("{n:>3}      -  {what}: ESCAPED");
            }
        }
    }
    println!("{:.1} s", start.elapsed().as_secs_f64());
    ensure!(escaped == 0, "{escaped} planted bugs escaped");
    Ok(())
}

#[cfg(not(feature = "planted"))]
fn planted(_args: &Args) -> Result<()> {
    bail!("planted bugs are in the build with --features planted only")
}
