//! The suite `instructions`: what the hot paths cost, counted by callgrind and held against a committed baseline.
//!
//! Instructions are the same on a busy and an idle machine, so a rise is the code's own. They are not the same for two
//! compilers: the baseline names the one it was counted with, and another one fails until it is renewed.
//!
//! `cargo xtask instructions --renew` writes the baseline anew; the commit that does says why.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::suites::{call, install, missing, target};

const BASELINE: &str = "tests/bench/instructions.json";
/// Of the baseline's count, in percent.
const RISE_MAX: u64 = 5;
const RENEW: &str = "cargo xtask instructions --renew";

pub fn run(root: &Path) -> Result<()> {
    compare(root, &rustc()?)
}

/// Counts and writes the baseline.
pub fn renew(root: &Path) -> Result<()> {
    let counts = count(root)?;
    let text = serde_json::to_string_pretty(&json!({ "rustc": rustc()?, "instructions_per_call": counts }))?;
    fs::write(root.join(BASELINE), text + "\n")?;
    counts.iter().for_each(|(name, n)| println!("{name:<24} {n:>9}"));
    Ok(())
}

fn compare(root: &Path, rustc: &str) -> Result<()> {
    let text = fs::read_to_string(root.join(BASELINE)).with_context(|| format!("{BASELINE}: make it by `{RENEW}`"))?;
    let baseline: Value = serde_json::from_str(&text).context(BASELINE)?;
    let counted_with = baseline["rustc"].as_str().unwrap_or_default();
    ensure!(
        counted_with == rustc,
        "{BASELINE} was counted with `{counted_with}`, this is `{rustc}`: the counts cannot be compared; renew it by `{RENEW}`"
    );
    let known = baseline["instructions_per_call"].as_object().context(BASELINE)?;
    let known: BTreeMap<_, _> = known.iter().filter_map(|(name, n)| Some((name.clone(), n.as_u64()?))).collect();
    let counts = count(root)?;
    println!("{:<24} {:>9} {:>9} {:>8}", "instructions a call", "baseline", "now", "change");
    for (name, now) in &counts {
        if let Some(before) = known.get(name) {
            println!("{name:<24} {before:>9} {now:>9} {:>+7.1} %", change(*before, *now));
        }
    }
    let faults = faults(&known, &counts);
    ensure!(faults.is_empty(), "{}; where that is meant, renew by `{RENEW}`", faults.join("; "));
    Ok(())
}

/// In percent.
fn change(before: u64, now: u64) -> f64 {
    (now as f64 / before.max(1) as f64 - 1.0) * 100.0
}

/// What is wrong with the counts, each with its numbers.
fn faults(known: &BTreeMap<String, u64>, counts: &BTreeMap<String, u64>) -> Vec<String> {
    let of = |(name, now): (&String, &u64)| match known.get(name) {
        None => Some(format!("{name} has no baseline")),
        Some(before) if now * 100 > before * (100 + RISE_MAX) => {
            Some(format!("{name} rose from {before} to {now} ({:+.1} %)", change(*before, *now)))
        }
        Some(_) => None,
    };
    let gone = known.keys().filter(|name| !counts.contains_key(*name));
    let gone = gone.map(|name| format!("{name} is in the baseline and is not counted any more"));
    counts.iter().filter_map(of).chain(gone).collect()
}

/// Instructions of one call of each case.
fn count(root: &Path) -> Result<BTreeMap<String, u64>> {
    valgrind()?;
    let build = ["build", "--profile", "ci", "--locked", "-q", "-p", "grandstand-server", "--example", "instructions"];
    // Built in parts it is inlined otherwise, and is another program.
    call(Command::new("cargo").current_dir(root).args(build).env("CARGO_INCREMENTAL", "0"))?;
    let program = target(root).join("ci/examples/instructions");
    let listed = Command::new(&program).output().with_context(|| program.display().to_string())?;
    let mut counts = BTreeMap::new();
    for line in String::from_utf8(listed.stdout)?.lines() {
        let (name, calls) = line.split_once(' ').context("a case and its calls")?;
        counts.insert(name.to_owned(), callgrind(&program, name)? / calls.parse::<u64>()?);
    }
    ensure!(!counts.is_empty(), "nothing was counted");
    Ok(counts)
}

fn callgrind(program: &PathBuf, case: &str) -> Result<u64> {
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=*instructions*counted*"])
        // The C library picks its memory routines by the processor; all machines are to run the same ones.
        .env("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW,-AVX2,-AVX,-ERMS,-FSRM")
        .arg(program)
        .arg(case)
        .output()
        .context("valgrind")?;
    let said = String::from_utf8_lossy(&run.stderr);
    ensure!(run.status.success(), "{case} under valgrind: {}\n{said}", run.status);
    let n = said.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok());
    match n {
        Some(n) if n > 0 => Ok(n),
        _ => bail!("valgrind counted nothing in {case}:\n{said}"),
    }
}

fn valgrind() -> Result<()> {
    if missing("valgrind") {
        install("valgrind");
    }
    ensure!(
        !missing("valgrind"),
        "valgrind is missing and could not be installed (Debian package valgrind, as root): instructions are counted with it"
    );
    Ok(())
}

fn rustc() -> Result<String> {
    let said = Command::new("rustc").arg("-V").output().context("rustc")?;
    Ok(String::from_utf8(said.stdout)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::faults;

    fn counts(of: &[(&str, u64)]) -> BTreeMap<String, u64> {
        of.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect()
    }

    #[test]
    fn a_rise_of_more_than_five_percent_is_a_fault_with_its_numbers_and_a_fall_is_none() {
        let known = counts(&[("merge", 1_000), ("walk", 1_000), ("pick", 1_000), ("old", 7)]);
        let now = counts(&[("merge", 1_050), ("walk", 1_051), ("pick", 10), ("new", 7)]);
        assert_eq!(
            faults(&known, &now),
            [
                "new has no baseline",
                "walk rose from 1000 to 1051 (+5.1 %)",
                "old is in the baseline and is not counted any more"
            ]
        );
        assert_eq!(faults(&known, &known), Vec::<String>::new());
    }
}
