//! Every byte format of a live room: log records, JSON operations and events, SSE, WebSocket frames, HTTP heads and bodies,
//! and the tables of codes and limits that servers, clients and the documentation share.
//!
//! Nothing here does I/O or decides anything: bytes in, values out, and back. Readers are strict and bounded, because all
//! that they read comes from outside or from a disk.
#![forbid(unsafe_code)]

pub mod amount;
pub mod archive;
pub mod chain;
pub mod checkpoint;
pub mod codes;
pub mod deflate;
pub mod event;
pub mod export;
pub mod http;
pub mod irc;
pub mod json;
pub mod limits;
pub mod op;
pub mod problem;
mod proto;
pub mod proxy;
pub mod record;
pub mod sse;
pub mod stamp;
pub mod ws;
