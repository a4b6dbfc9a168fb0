//! Project tasks. `cargo xtask test` is the one command that proves the product; `cargo xtask tidy` holds the structure.

mod fuzz;
mod instructions;
mod sdk;
mod sim;
mod suites;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "xtask", about = "Project tasks")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Floors, module borders, forbidden dependencies, document rules.
    Tidy,
    /// Every test: format, tidy, lints, unit and property tests, simulator, process tests, the SDK, real clients, browser, replay.
    Test {
        /// Run only these suites (names as printed).
        #[arg(long)]
        only: Vec<String>,
    },
    /// Instruction counts of the hot paths against tests/bench/instructions.json.
    Instructions {
        /// Write the baseline anew.
        #[arg(long)]
        renew: bool,
    },
    /// The simulator: `--seed N --seconds S`, or any of its own flags.
    Sim {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Hostile bytes for every reader: `--target T --seconds N --seed S`, or `--target T --input FILE`.
    Fuzz {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Builds the packages of web/ and writes what is kept of them: the bundles that the server embeds, the reference.
    Sdk {
        /// Write nothing; fail where what is kept is not what its sources make.
        #[arg(long)]
        check: bool,
    },
    /// The README's picture: a room page as Chromium shows it.
    Picture,
    /// The long forms of the proofs (hours); results go to docs/benchmarks.md by hand.
    Long {
        /// Run only these suites (names as printed).
        #[arg(long)]
        only: Vec<String>,
        /// Kills of the shard's process, each some 13 s.
        #[arg(long, default_value_t = 100)]
        kills: u32,
        /// Kills of a server under load (kill-nine), each some 2 s.
        #[arg(long, default_value_t = 1_000)]
        rounds: u32,
    },
    /// The figures of docs/benchmarks.md, one by one.
    Bench {
        #[arg(long)]
        only: Vec<String>,
    },
}

fn main() -> ExitCode {
    let root = root();
    let done = match Args::parse().task {
        Task::Tidy => tidy::run(&root),
        Task::Test { only } => suites::test(&root, &only),
        Task::Instructions { renew: false } => instructions::run(&root),
        Task::Instructions { renew: true } => instructions::renew(&root),
        Task::Sim { args } => sim::run(&root, &args),
        Task::Fuzz { args } => fuzz::run(&root, &args),
        Task::Sdk { check } => sdk::build(&root, check).map(drop),
        Task::Picture => suites::picture(&root),
        Task::Long { only, kills, rounds } => suites::long(&root, &only, kills, rounds),
        Task::Bench { only } => suites::bench(&root, &only),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("error: {fault:#}");
            ExitCode::FAILURE
        }
    }
}

/// Cargo tells a running task where its package is now; what was compiled in is where it was when the target folder was made.
fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&manifest).parent().expect("xtask lives in the workspace").to_path_buf()
}
