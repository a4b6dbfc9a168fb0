//! The load generator: many checked viewers, some publishers, and what the server spent on them.
//!
//! ```text
//! grandstand load ── settings, go, totals ──► viewers   one process per 18 000 sockets, one mio loop each
//!                 ── settings, go ──────────► publishers one process: a mio loop, and a thread for score events
//!                 ── settings, go ──────────► likers     one process, where there are any
//! ```
//!
//! The generator shares its machine with the server it measures, so it has to be cheaper than the server: an idle viewer
//! is 100-odd bytes, a frame that is equal to the one before is read once, and nothing is allocated per delivery.
//!
//! Every viewer checks what it was given: ids rise, priority numbers are contiguous, and at the end the number (and, when
//! nothing was skipped, the sum) of the ids is exactly that of the acked ones. A check that fails is an exit code.
#![forbid(unsafe_code)]

mod addresses;
mod books;
mod clock;
mod event;
mod frames;
mod http;
mod likers;
mod link;
mod pattern;
mod posts;
mod process;
mod publishers;
mod report;
mod run;
pub mod scenario;
mod speaker;
mod storm;
mod viewers;

pub use report::{Check, Report};
pub use run::{Settings, Slow, Transport, run, worker};
pub use storm::Plan;
