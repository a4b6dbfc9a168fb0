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
const RISE_MAX: f64 = 5.0;
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
    let counts = count(root)?;
    let mut faults = Vec::new();
    println!("{:<24} {:>9} {:>9} {:>8}", "instructions a call", "baseline", "now", "change");
    for (name, now) in &counts {
        let Some(before) = known.get(name).and_then(Value::as_u64) else {
            faults.push(format!("{name} has no baseline"));
            continue;
        };
        let change = (*now as f64 / before.max(1) as f64 - 1.0) * 100.0;
        println!("{name:<24} {before:>9} {now:>9} {change:>+7.1} %");
        if change > RISE_MAX {
            faults.push(format!("{name} rose from {before} to {now} ({change:+.1} %)"));
        }
    }
    let gone = known.keys().filter(|name| !counts.contains_key(*name));
    faults.extend(gone.map(|name| format!("{name} is in the baseline and is not counted any more")));
    ensure!(faults.is_empty(), "{}; where that is meant, renew by `{RENEW}`", faults.join("; "));
    Ok(())
}

/// Instructions of one call of each case.
fn count(root: &Path) -> Result<BTreeMap<String, u64>> {
    valgrind()?;
    let build = ["build", "--profile", "ci", "--locked", "-q", "-p", "grandstand-server", "--example", "instructions"];
    call(Command::new("cargo").current_dir(root).args(build))?;
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
