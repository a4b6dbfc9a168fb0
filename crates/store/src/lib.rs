//! Where records become durable: the ports to a log and a catalog, and what stands behind them.
//!
//! [`log::Log`] keeps what was decided, in order; [`catalog::Catalog`] keeps what can be made again from it (checkpoints) and
//! what belongs to the deployment. Each port has an SQLite and an in-memory implementation and one suite in [`conformance`]
//! that both must pass; [`faulty`] makes any of them fail in the ways the ports allow.
#![forbid(unsafe_code)]

pub mod catalog;
pub mod conformance;
pub mod fault;
pub mod faulty;
pub mod log;
pub mod memory;
pub mod recover;
pub mod sqlite;
