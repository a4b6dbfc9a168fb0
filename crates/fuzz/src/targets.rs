//! What is fuzzed: one generator and one check each.

mod http;
mod irc;
mod json;
mod link;
mod log;
mod proxy;
mod sse;
mod text;
mod ws;

use grandstand_core::rng::Rng;

pub struct Target {
    pub name: &'static str,
    /// Makes an input with the format's own shape, broken in places.
    pub generate: fn(&mut Rng) -> Vec<u8>,
    /// Mends what a mutation broke for sure, such as a checksum, so that what is behind it is reached.
    pub mend: Option<fn(&mut [u8], &mut Rng)>,
    /// Panics on a fault; else says which kind of end the input came to.
    pub check: fn(&[u8]) -> u64,
    /// Executions of the short run.
    pub short: u64,
    /// Kinds of ends that the short run is known to see; a run that sees fewer is void.
    pub outcomes_min: usize,
}

pub const TARGETS: &[Target] = &[
    Target { name: "http", generate: http::generate, mend: None, check: http::check, short: 40_000, outcomes_min: 45 },
    Target { name: "ws", generate: ws::generate, mend: None, check: ws::check, short: 40_000, outcomes_min: 300 },
    Target {
        name: "deflate",
        generate: ws::generate_packed,
        mend: None,
        check: ws::check_packed,
        short: 5_000,
        outcomes_min: 12,
    },
    Target { name: "json", generate: json::generate, mend: None, check: json::check, short: 40_000, outcomes_min: 20 },
    Target {
        name: "op",
        generate: json::generate_op,
        mend: None,
        check: json::check_op,
        short: 40_000,
        outcomes_min: 50,
    },
    Target {
        name: "proxy",
        generate: proxy::generate,
        mend: None,
        check: proxy::check,
        short: 40_000,
        outcomes_min: 9,
    },
    Target { name: "irc", generate: irc::generate, mend: None, check: irc::check, short: 20_000, outcomes_min: 180 },
    Target { name: "sse", generate: sse::generate, mend: None, check: sse::check, short: 10_000, outcomes_min: 70 },
    Target { name: "text", generate: text::generate, mend: None, check: text::check, short: 20_000, outcomes_min: 12 },
    Target {
        name: "record",
        generate: log::generate_record,
        mend: Some(log::mend_record),
        check: log::check_record,
        short: 30_000,
        outcomes_min: 40,
    },
    Target {
        name: "checkpoint",
        generate: log::generate_checkpoint,
        mend: Some(log::mend_checkpoint),
        check: log::check_checkpoint,
        short: 15_000,
        outcomes_min: 80,
    },
    Target {
        name: "link",
        generate: link::generate,
        mend: Some(link::mend),
        check: link::check,
        short: 30_000,
        outcomes_min: 1_000,
    },
];
