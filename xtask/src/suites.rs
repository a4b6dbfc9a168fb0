//! The suites of the one test command: each timed, each either passed or failed, none skipped.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fs};

use anyhow::{Context, Result, bail, ensure};

use crate::{fuzz, instructions, sdk, sim, tidy};

/// Seeds of the short simulator run; the long form takes twenty-five times as many, each three times as long.
const SIM_SEEDS_SHORT: u64 = 400;
const SIM_SEEDS_LONG: u64 = 10_000;

/// The test that kills the shard's process again and again, and what shows its figures.
const SHARD_KILLS: &[&str] = &["a_shard_killed_again_and_again", "--nocapture"];

/// The test that kills the server under load again and again.
const KILL_NINE: &[&str] = &["no_acked_publish_is_lost_or_doubled_by_kill_nine", "--nocapture"];

/// The test that turns a room wide and narrow again and again under load.
const FLIPS: &str = "a_room_that_turns_wide_and_narrow_under_load";

type Suite<'a> = (&'static str, &'a dyn Fn(&Path) -> Result<()>);

const TEST: &[Suite<'static>] = &[
    ("format", &format),
    ("tidy", &tidy::run),
    ("lints", &lints),
    ("build", &build),
    ("unit", &unit),
    ("fuzz", &|root| fuzz::run(root, &[])),
    ("instructions", &instructions::run),
    ("simulator", &simulator),
    ("planted", &planted),
    ("process", &process),
    ("sdk", &|root| sdk::test(root, None)),
    ("clients", &clients),
    ("conformance", &conformance),
    ("openapi", &openapi),
    ("edge", &|root| edge(root, &[])),
    ("browser", &browser),
    ("replay", &replay),
];

pub fn test(root: &Path, only: &[String]) -> Result<()> {
    run(root, TEST, only)
}

/// `kills`: how often the shard's process of several is killed; `rounds`: how often a server of one process is, under load.
pub fn long(root: &Path, only: &[String], kills: u32, rounds: u32) -> Result<()> {
    let kills_long = |root: &Path| process_long(root, SHARD_KILLS, &[("LONG_KILLS", &kills.to_string())]);
    let rounds_long = |root: &Path| process_long(root, KILL_NINE, &[("LONG_ROUNDS", &rounds.to_string())]);
    let rest = ["--skip", SHARD_KILLS[0], "--skip", KILL_NINE[0], "--skip", FLIPS];
    run(
        root,
        &[
            ("build", &build),
            ("simulator-long", &simulator_long),
            ("fuzz-long", &fuzz_long),
            ("sdk-long", &|root| sdk::test(root, Some(10_000))),
            ("edge-idle", &|root| edge(root, &["idle"])),
            // By name first: its figures are printed.
            ("shard-kills", &kills_long),
            ("kill-nine", &rounds_long),
            ("flips-long", &|root| process_long(root, &[FLIPS, "--nocapture"], &[])),
            ("process-long", &|root| process_long(root, &rest, &[])),
        ],
        only,
    )
}

pub fn bench(root: &Path, only: &[String]) -> Result<()> {
    // The wall is measured in a browser alone: no server is built for it.
    let (walls, only): (Vec<String>, Vec<String>) = only.iter().cloned().partition(|name| name == "danmaku");
    if !walls.is_empty() || only.is_empty() {
        call(&mut in_browser(root, "tests/bench/danmaku.cjs", root)?)?;
    }
    if !walls.is_empty() && only.is_empty() {
        return Ok(());
    }
    ensure!(
        Command::new("cargo").current_dir(root).args(["build", "--release", "-p", "grandstand"]).status()?.success()
    );
    let script = root.join("tests/bench/run.py");
    let mut python = Command::new("python3");
    call(python.current_dir(root).arg(script).args(only))
}

fn run(root: &Path, suites: &[Suite], only: &[String]) -> Result<()> {
    if let Some(unknown) = only.iter().find(|o| !suites.iter().any(|(name, _)| name == o)) {
        bail!("no suite is called {unknown}");
    }
    let mut rows: Vec<(&str, Duration, Option<String>)> = Vec::new();
    for (name, suite) in suites.iter().filter(|(name, _)| only.is_empty() || only.iter().any(|o| o == name)) {
        println!("\n== {name}");
        let start = Instant::now();
        let failed = suite(root).err().map(|e| format!("{e:#}"));
        let took = start.elapsed();
        println!("== {name}: {} in {:.1} s", if failed.is_none() { "passed" } else { "FAILED" }, took.as_secs_f64());
        rows.push((name, took, failed));
    }
    println!("\nsuite           seconds  result");
    for (name, took, failed) in &rows {
        println!("{name:<15} {:>7.1}  {}", took.as_secs_f64(), failed.as_deref().unwrap_or("passed"));
    }
    let n_failed = rows.iter().filter(|r| r.2.is_some()).count();
    println!("\n{} passed, {n_failed} failed", rows.len() - n_failed);
    if n_failed > 0 {
        bail!("{n_failed} suites failed");
    }
    Ok(())
}

fn cargo(root: &Path, args: &[&str]) -> Result<()> {
    call(Command::new("cargo").current_dir(root).args(args))
}

pub fn call(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{:?}", command.get_program()))?;
    ensure!(status.success(), "{:?} {:?}: {status}", command.get_program(), command.get_args());
    Ok(())
}

fn format(root: &Path) -> Result<()> {
    cargo(root, &["fmt", "--all", "--check"])
}

fn lints(root: &Path) -> Result<()> {
    cargo(root, &["clippy", "--workspace", "--all-targets", "--profile", "ci", "--locked", "--", "-D", "warnings"])
}

fn build(root: &Path) -> Result<()> {
    cargo(root, &["build", "--profile", "ci", "--locked", "-p", "grandstand", "-p", "grandstand-sim"])
}

/// Unit and property tests of every crate; the process tests of the binary are a suite of their own.
fn unit(root: &Path) -> Result<()> {
    let crates = ["core", "wire", "classifier", "store", "client", "server", "load", "sim", "fuzz"];
    let names: Vec<String> = crates.iter().map(|c| format!("grandstand-{c}")).collect();
    let mut args = vec!["test", "--profile", "ci", "--locked", "--no-fail-fast"];
    for name in &names {
        args.extend(["-p", name]);
    }
    cargo(root, &args)?;
    cargo(root, &["test", "--profile", "ci", "--locked", "-p", "grandstand", "-p", "xtask", "--bins"])
}

fn simulator(root: &Path) -> Result<()> {
    sim::run(root, &["--seeds".into(), format!("1..{}", SIM_SEEDS_SHORT + 1), "--seconds".into(), "20".into()])?;
    sim::run(root, &["scenarios".into()])?;
    sim::run(root, &["meta".into(), "--seeds".into(), "1..20".into()])
}

fn simulator_long(root: &Path) -> Result<()> {
    sim::run(root, &["--seeds".into(), format!("1..{}", SIM_SEEDS_LONG + 1), "--seconds".into(), "60".into()])
}

/// Ten minutes a target, of inputs that the short run does not make.
fn fuzz_long(root: &Path) -> Result<()> {
    fuzz::run(root, &["--seconds", "600", "--seed", "2"].map(String::from))
}

fn planted(root: &Path) -> Result<()> {
    sim::run(root, &["planted".into()])
}

fn process(root: &Path) -> Result<()> {
    cargo(
        root,
        &["test", "--profile", "ci", "--locked", "-p", "grandstand", "--test", "*", "--", "--test-threads", "2"],
    )
}

/// The process tests at length; `words` go to the test program.
fn process_long(root: &Path, words: &[&str], env: &[(&str, &str)]) -> Result<()> {
    let mut command = Command::new("cargo");
    command.current_dir(root).env("GRANDSTAND_LONG", "1").envs(env.iter().copied());
    command.args(["test", "--profile", "ci", "--locked", "-p", "grandstand", "--test", "*", "--"]);
    call(command.args(["--test-threads", "1"]).args(words))
}

/// Where cargo builds.
pub fn target(root: &Path) -> PathBuf {
    root.join(env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from))
}

/// The binary under test, built by the `build` suite.
pub fn binary(root: &Path) -> Result<PathBuf> {
    let path = target(root).join("ci/grandstand");
    ensure!(path.exists(), "{} is missing: the build suite makes it", path.display());
    Ok(path)
}

/// A folder for what the real clients install; inside the checkout, never committed.
fn tools(root: &Path) -> Result<PathBuf> {
    let folder = root.join("target/clients");
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

pub fn missing(program: &str) -> bool {
    !Command::new("sh").args(["-c", &format!("command -v {program} >/dev/null")]).status().is_ok_and(|s| s.success())
}

/// Tries Debian packages; whoever needs them looks again and says what is missing.
pub fn install(packages: &str) {
    if missing("apt-get") {
        return;
    }
    println!("installing {packages} by apt-get");
    let apt = "DEBIAN_FRONTEND=noninteractive apt-get";
    let script = format!("{apt} update -qq && {apt} install -y -qq --no-install-recommends {packages} >/dev/null");
    if let Err(fault) = call(Command::new("sh").args(["-c", &script])) {
        eprintln!("{fault:#}");
    }
}

/// A Python with the clients nobody here wrote.
fn python(root: &Path) -> Result<PathBuf> {
    ensure!(!missing("python3"), "python3 is missing: the real-client tests need it");
    let venv = tools(root)?.join("venv");
    let python = venv.join("bin/python");
    let requirements = root.join("tests/clients/requirements.txt");
    let wanted = fs::read_to_string(&requirements)?;
    // What is installed is written down, so that a new line of the list is installed too.
    if fs::read_to_string(venv.join("complete")).ok().as_ref() != Some(&wanted) {
        call(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
        call(
            Command::new(&python)
                .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"])
                .arg(requirements),
        )?;
        fs::write(venv.join("complete"), wanted)?;
    }
    Ok(python)
}

pub fn node(root: &Path) -> Result<PathBuf> {
    npm(root, &root.join("tests/clients"), "node")
}

/// What the lock file of `from` names, installed into a folder of that name.
pub fn npm(root: &Path, from: &Path, name: &str) -> Result<PathBuf> {
    ensure!(
        !missing("node") && !missing("npm"),
        "node and npm are missing: the tests of the SDK, of real clients and of pages need them"
    );
    let folder = tools(root)?.join(name);
    fs::create_dir_all(&folder)?;
    for file in ["package.json", "package-lock.json"] {
        fs::copy(from.join(file), folder.join(file)).with_context(|| file.to_owned())?;
    }
    let wanted = fs::read_to_string(folder.join("package-lock.json"))?;
    // What is installed is written down, so that a new version is installed too.
    let complete = folder.join("node_modules/.complete");
    if fs::read_to_string(&complete).ok().as_ref() != Some(&wanted) {
        call(Command::new("npm").current_dir(&folder).args(["ci", "--silent", "--no-audit", "--no-fund"]))?;
        fs::write(complete, wanted)?;
    }
    Ok(folder)
}

fn chromium() -> Result<String> {
    let found = || ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|p| !missing(p));
    if found().is_none() {
        install("chromium fonts-noto-core fonts-noto-cjk fonts-noto-color-emoji");
    }
    found().map(str::to_owned).context("chromium is missing and could not be installed: the browser test needs it")
}

fn clients(root: &Path) -> Result<()> {
    ensure!(!missing("curl"), "curl is missing: the real-client tests need it");
    if missing("irssi") {
        install("irssi");
    }
    ensure!(!missing("irssi"), "irssi is missing (Debian: irssi): the real-client tests need it");
    let (python, node) = (python(root)?, node(root)?);
    let mut command = Command::new(python);
    call(command.arg(root.join("tests/clients/run.py")).arg(binary(root)?).env("NODE_PATH", node.join("node_modules")))
}

fn conformance(root: &Path) -> Result<()> {
    let mut command = Command::new(python(root)?);
    call(command.arg(root.join("tests/clients/conformance.py")).arg(binary(root)?))
}

/// The API against its own description.
fn openapi(root: &Path) -> Result<()> {
    let mut command = Command::new(python(root)?);
    call(command.arg(root.join("tests/clients/openapi.py")).arg(binary(root)?))
}

/// Node, to run a script that drives Chromium; `first` is the script's first argument.
fn in_browser(root: &Path, script: &str, first: &Path) -> Result<Command> {
    let (chromium, node) = (chromium()?, node(root)?);
    let mut command = Command::new("node");
    command.env("NODE_PATH", node.join("node_modules")).env("CHROMIUM", chromium);
    command.arg(root.join(script)).arg(first);
    Ok(command)
}

/// Unicode's own test files, of Debian's package.
fn unicode() -> Result<&'static Path> {
    let folder = Path::new("/usr/share/unicode");
    let is_there = || folder.join("emoji/emoji-test.txt").exists() && folder.join("BidiCharacterTest.txt").exists();
    if !is_there() {
        install("unicode-data");
    }
    ensure!(is_there(), "Unicode's test files are missing (Debian: unicode-data) and could not be installed");
    Ok(folder)
}

fn browser(root: &Path) -> Result<()> {
    let unicode = unicode()?;
    call(in_browser(root, "tests/browser/run.cjs", &binary(root)?)?.env("UNICODE", unicode))
}

/// The README's picture.
pub fn picture(root: &Path) -> Result<()> {
    build(root)?;
    call(in_browser(root, "tests/browser/picture.cjs", &binary(root)?)?.arg(root.join("docs/room.png")))
}

/// The proxies and the checks of Debian's packages; installed where that is allowed, never done without.
/// `words`: `idle` is that part alone, at length.
fn edge(root: &Path, words: &[&str]) -> Result<()> {
    // Debian keeps servers out of the path of those who are not root.
    let wanted = [("nginx", "nginx"), ("haproxy", "haproxy"), ("promtool", "prometheus")];
    let lacking = || -> Vec<(&str, &str)> {
        let is_there = |program: &str| !missing(program) || Path::new("/usr/sbin").join(program).exists();
        wanted.into_iter().filter(|(program, _)| !is_there(program)).collect()
    };
    let packages: Vec<&str> = lacking().into_iter().map(|(_, package)| package).collect();
    if !packages.is_empty() && !missing("apt-get") {
        println!("installing {} by apt-get", packages.join(", "));
        let packages = packages.join(" ");
        let install = format!(
            "apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends {packages}"
        );
        // Who may not install is told below what is missing.
        let _ = Command::new("sh").args(["-c", &format!("{{ {install}; }} >/dev/null")]).status();
    }
    let lacking: Vec<String> =
        lacking().into_iter().map(|(program, package)| format!("{program} (Debian: {package})")).collect();
    ensure!(lacking.is_empty(), "missing and not to be installed: {}", lacking.join(", "));
    let mut command = Command::new(python(root)?);
    if !words.is_empty() {
        command.env("GRANDSTAND_LONG", "1");
    }
    call(command.arg(root.join("tests/clients/edge.py")).arg(binary(root)?).args(words))
}

fn replay(root: &Path) -> Result<()> {
    let mut command = Command::new("python3");
    call(command.arg(root.join("tests/clients/replay.py")).arg(binary(root)?))
}
