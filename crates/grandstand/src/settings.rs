//! `grandstand config`: every key of the server's settings, and whether a file is right.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use grandstand_server::config::{Config, Fault, Sources};

#[derive(Subcommand)]
pub enum What {
    /// Print every key with its meaning and default, as a file that could be used.
    Reference,
    /// Read a file as `serve` would, say everything that is wrong with it, and start nothing.
    Check {
        /// The file; without it, the environment alone.
        file: Option<PathBuf>,
    },
}

pub fn run(what: &What) -> Result<ExitCode> {
    match what {
        What::Reference => {
            print!("{}", Config::reference());
            Ok(ExitCode::SUCCESS)
        }
        What::Check { file } => match load(Vec::new(), file.as_deref()) {
            Ok(config) => {
                for warning in config.warnings() {
                    eprintln!("warning: {warning}");
                }
                println!("ok");
                Ok(ExitCode::SUCCESS)
            }
            Err(faults) => Ok(tell(&faults)),
        },
    }
}

pub fn load(flags: Vec<(String, String)>, file: Option<&Path>) -> Result<Config, Vec<Fault>> {
    Config::load(&Sources::of_process(flags, file)?)
}

/// Says everything that is wrong.
pub fn tell(faults: &[Fault]) -> ExitCode {
    for fault in faults {
        eprintln!("error: {fault}");
    }
    ExitCode::FAILURE
}
