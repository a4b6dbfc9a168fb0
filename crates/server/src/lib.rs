//! The three roles of a Grandstand server: gateway (sockets), shard (the log's owner), control (HTTP API and operators).
//!
//! The roles never import each other; they meet in [`link`] alone.
#![forbid(unsafe_code)]

pub mod admission;
pub mod auth;
mod changes;
pub mod clock;
pub mod config;
pub mod control;
pub mod early;
pub mod edge;
pub mod failpoint;
pub mod gateway;
pub mod kernel;
pub mod link;
pub mod memory;
pub mod metrics;
pub mod moderation;
pub mod process;
pub mod shard;
pub mod shedding;
pub mod tls;
