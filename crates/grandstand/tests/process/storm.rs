//! Everyone is dropped at once and comes back, by the load generator's own account; the rules are judged, not the speed.

use std::process::{Command, Output};

use serde_json::Value;

use crate::support::Server;

/// `grandstand load` against the server, with its signing key.
pub fn load(server: &Server, url: &str, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_grandstand"));
    command.args(["load", "--url", url, "--json", "--pid", &server.pid().to_string(), "--data"]).arg(server.data());
    command.args(args).output().expect("the binary can be started")
}

/// The report of a run whose checks all held.
pub fn report(out: &Output) -> Value {
    assert!(out.status.success(), "{}\n{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).expect("one JSON object")
}

const N_WORKERS: u64 = 2;
/// Pages of 500 events that fill the rings of both workers back, at 8 events a second and a few seconds of absence.
const SHARED_READS: u64 = 8;

#[test]
fn r32_two_storms_leave_nobody_behind_nothing_missing_and_the_limit_unbroken() {
    let workers = format!("workers={N_WORKERS}");
    let server = Server::start(&["--set", &workers], &[("GRANDSTAND_ADMISSION_RATE", "400")]);
    let words = ["--viewers", "1000", "--transport", "mix", "--rate", "4", "--score-rate", "4", "--distinct-users"];
    let storm = ["--storm", "--storms", "2", "--stay-share", "0.1", "--steady", "0.5"];
    let report = report(&load(&server, &format!("http://{}", server.addr), &[&words[..], &storm].concat()));
    let rounds = report["storms"].as_array().expect("storms");
    assert_eq!(rounds.len(), 2);
    for round in rounds {
        assert_eq!((&round["stayed"], &round["dropped"], &round["back"]), (&100.into(), &900.into(), &900.into()));
        let told = &round["told"];
        assert_eq!((&told["rate"], &told["burst"], &told["over_limit"]), (&400.into(), &480.into(), &0.into()));
        // A storm that the limit did not feel proves nothing about it.
        assert!(round["closes"]["4129"].as_u64().is_some_and(|n| n > 0), "{round}");
        let (ring, log) = (told["ring"].as_u64().expect("a count"), told["log"].as_u64().expect("a count"));
        assert!(ring + log >= 900 && ring >= (ring + log) * 95 / 100, "{round}");
        // No key set and no room's settings are read for a connection, and cursors that wait share their reads of the log.
        let reads = |what: &str| told[what].as_u64().unwrap_or_else(|| panic!("no {what}: {round}"));
        assert_eq!(reads("key_set_reads"), 0, "{round}");
        assert!(reads("rooms_asked") <= N_WORKERS, "{round}");
        assert!(reads("log_reads") <= log + SHARED_READS, "{round}");
        assert!(round["stayers_scores"]["n"].as_u64().is_some_and(|n| n > 0), "{round}");
    }
    assert_eq!(report["checks"].as_array().expect("checks").iter().filter(|c| c["failed"] != 0).count(), 0);
}
