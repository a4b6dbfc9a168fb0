//! The packages of web/: built with tools of npm below target, the bundles that the server embeds kept in the repository, so
//! that building the server needs Rust alone. The suite holds the kept bundles against their sources.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use crate::suites::{self, call};

/// What npm installs for building, and where the packages come out.
fn folders(root: &Path) -> Result<(PathBuf, PathBuf)> {
    Ok((suites::npm(root, &root.join("web"), "web")?, suites::target(root).join("web")))
}

/// Builds every package, and writes what is kept of them; with `check` says what differs instead.
pub fn build(root: &Path, check: bool) -> Result<PathBuf> {
    let (tools, out) = folders(root)?;
    let mut command = Command::new("node");
    command.arg(root.join("web/tools/build.mjs")).arg(root).arg(tools).arg(&out);
    if check {
        command.arg("--check");
    }
    call(&mut command)?;
    Ok(out)
}

/// The kept bundles are fresh and small enough; every package's own tests pass, and the client does against the real binary,
/// in Node and in Deno.
/// `runs`: how many random networks its model test goes through.
pub fn test(root: &Path, runs: Option<u32>) -> Result<()> {
    let out = build(root, true)?;
    let mut tests: Vec<PathBuf> = Vec::new();
    for package in std::fs::read_dir(root.join("web"))? {
        let folder = package?.path().join("test");
        if folder.is_dir() {
            let files = std::fs::read_dir(folder)?.map(|f| f.map(|f| f.path())).collect::<Result<Vec<_>, _>>()?;
            tests.extend(files.into_iter().filter(|f| f.to_string_lossy().ends_with(".test.mjs")));
        }
    }
    ensure!(!tests.is_empty(), "the packages of web/ have no tests");
    tests.sort();
    let clients = suites::node(root)?;
    // Each runtime that the package names: Deno is npm's, beside the programs that other clients' tests need.
    let mut node = Command::new("node");
    node.arg("--test");
    let mut deno = self::deno(&clients);
    deno.args(["test", "--allow-all", "--no-check", "--no-lock"]);
    for mut command in [node, deno] {
        if let Some(runs) = runs {
            command.env("RUNS", runs.to_string());
        }
        call(command.env("BUILT", &out).args(&tests))?;
    }
    let mut deno = self::deno(&clients);
    deno.args(["run", "--allow-all", "--no-lock"]);
    for mut command in [Command::new("node"), deno] {
        command.arg(root.join("tests/clients/sdk.mjs")).arg(suites::binary(root)?).arg(out.join("sdk/dist"));
        call(command.env("NODE_PATH", clients.join("node_modules")))?;
    }
    Ok(())
}

/// Deno, as npm installed it; what it keeps for itself stays below target.
fn deno(clients: &Path) -> Command {
    let mut command = Command::new("node");
    command.arg(clients.join("node_modules/deno/bin.cjs"));
    command.env("DENO_DIR", clients.join("deno")).env("DENO_NO_UPDATE_CHECK", "1");
    command
}
