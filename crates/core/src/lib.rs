//! The pure rules of a live room.
//!
//! Everything here is synchronous, takes `now` and a seeded random source, and returns decisions. It links neither tokio
//! nor serde, reads no clock and does no I/O, so the embedded server, a cluster and the simulator run the same rules.
#![forbid(unsafe_code)]

pub mod access;
pub mod admission;
pub mod banners;
pub mod bans;
pub mod bundles;
pub mod claims;
pub mod combos;
pub mod dedupe;
pub mod feed;
pub mod hash;
pub mod ids;
pub mod likes;
pub mod moderation;
pub mod names;
pub mod owner;
pub mod places;
pub mod planted;
pub mod pressure;
pub mod rate;
pub mod reader;
pub mod record;
pub mod refusals;
pub mod regions;
pub mod reject;
pub mod reports;
pub mod revision;
pub mod rng;
pub mod rooms;
pub mod routing;
pub mod sampler;
pub mod slow_mode;
pub mod speech;
pub mod text;
pub mod time;
pub mod viewer;
pub mod watch;
pub mod webhooks;
