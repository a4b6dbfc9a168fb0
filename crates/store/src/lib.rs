//! Where records become durable: the ports to a log and a catalog, and what stands behind them.
//!
//! [`log::Log`] keeps what was decided, in order; [`catalog::Catalog`] keeps what can be made again from it (checkpoints) and
//! what belongs to the deployment. [`memory`] holds both in memory.
#![forbid(unsafe_code)]

pub mod catalog;
pub mod fault;
pub mod log;
pub mod memory;
