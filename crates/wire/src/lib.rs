//! Every byte format.
#![forbid(unsafe_code)]

pub mod http;
pub mod ws;
