//! Builds and runs the simulator in the `ci` profile.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

/// Arguments go to the simulator as they are; `planted` needs the build that carries the planted bugs.
pub fn run(root: &Path, args: &[String]) -> Result<()> {
    let planted = args.iter().any(|a| a.starts_with("planted") || a.starts_with("--planted"));
    let mut cargo = Command::new("cargo");
    cargo.current_dir(root).args(["run", "--quiet", "--profile", "ci", "-p", "grandstand-sim"]);
    if planted {
        cargo.args(["--features", "planted"]);
    }
    let status = cargo.arg("--").args(args).status()?;
    ensure!(status.success(), "the simulator failed: {status}");
    Ok(())
}
