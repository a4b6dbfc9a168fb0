//! Builds and runs the fuzz targets in the `ci` profile: overflow checks and assertions are on.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::suites::call;

/// Arguments go to the fuzzer as they are; without any, every target makes its short run.
pub fn run(root: &Path, args: &[String]) -> Result<()> {
    let cargo = ["run", "--quiet", "--profile", "ci", "--locked", "-p", "grandstand-fuzz", "--"];
    call(Command::new("cargo").current_dir(root).args(cargo).args(args))
}
