//! Hostile bytes for every reader that takes bytes from outside, on stable Rust, from one seed.
//!
//! ```text
//! grandstand-fuzz                          every target, the short run of the test command
//! grandstand-fuzz --target ws --seconds 60 one target at length
//! grandstand-fuzz --target ws --input F    one kept input
//! ```
//!
//! A target is a generator that knows the shape of what it makes, and a check that panics. The check is mostly another
//! reading of the same format, written to be simple, and the same bytes cut in other places. What failed once is kept in
//! `corpus/<target>/` and is tried first for ever.
#![forbid(unsafe_code)]

mod bytes;
mod run;
mod targets;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Parser;

use run::{Budget, Report};
use targets::{TARGETS, Target};

#[derive(Parser)]
#[command(name = "grandstand-fuzz", about = "Hostile bytes for every reader, from one seed")]
struct Args {
    /// Only this target; every one without it.
    #[arg(long)]
    target: Option<String>,
    /// How long each target runs; without it, the short run's number of executions.
    #[arg(long)]
    seconds: Option<u64>,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run this one input of `--target` and nothing else.
    #[arg(long, requires = "target")]
    input: Option<PathBuf>,
    /// Where failing inputs are saved.
    #[arg(long, default_value = "target/fuzz")]
    save: PathBuf,
}

fn main() -> ExitCode {
    match all(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("error: {fault:#}");
            ExitCode::FAILURE
        }
    }
}

fn all(args: &Args) -> Result<()> {
    let wanted = |t: &&Target| args.target.as_ref().is_none_or(|name| t.name == name);
    let targets: Vec<&Target> = TARGETS.iter().filter(wanted).collect();
    if targets.is_empty() {
        bail!("no target is called so; there are: {}", TARGETS.iter().map(|t| t.name).collect::<Vec<_>>().join(", "));
    }
    run::quiet_panics();
    if let Some(path) = &args.input {
        let input = std::fs::read(path).with_context(|| path.display().to_string())?;
        return match run::one(targets[0], &input) {
            Ok(outcome) => {
                println!("{}: passed, outcome {outcome:016x}", targets[0].name);
                Ok(())
            }
            Err(said) => bail!("{}: {said}", targets[0].name),
        };
    }
    println!(
        "{:<12} {:>10} {:>12} {:>10} {:>9} {:>7}",
        "target", "seed", "executions", "a second", "outcomes", "corpus"
    );
    let mut n_failed = 0;
    for target in targets {
        let budget = args.seconds.map_or(Budget::Executions(target.short), Budget::Seconds);
        let report = run::target(target, budget, args.seed, &args.save)?;
        tell(target, args.seed, &report);
        n_failed += u32::from(report.failure.is_some());
    }
    if n_failed > 0 {
        bail!("{n_failed} targets failed");
    }
    println!("peak memory {} MB", run::memory_peak_mb());
    Ok(())
}

fn tell(target: &Target, seed: u64, report: &Report) {
    let per_second = report.executions as f64 / report.took.as_secs_f64().max(1e-9);
    println!(
        "{:<12} {seed:>10} {:>12} {per_second:>10.0} {:>9} {:>7}",
        target.name, report.executions, report.outcomes, report.corpus
    );
    if let Some(failure) = &report.failure {
        println!("  FAILED: {}", failure.said);
        println!(
            "  input ({} of {} bytes): {}",
            failure.input.len(),
            failure.found.len(),
            failure.input.escape_ascii()
        );
        if let Some(path) = &failure.saved {
            println!("  replay: cargo xtask fuzz --target {} --input {}", target.name, path.display());
            println!("  when it is mended, keep it: crates/fuzz/corpus/{}/", target.name);
        }
    }
}
