//! The real binary, started, killed, starved and restarted; what its clients were told is held against what its log holds.
#![forbid(unsafe_code)]

mod access;
mod admin;
mod admin_moderates;
mod admin_reach;
mod admission;
mod banners;
mod bans;
mod blackout;
mod certificates;
mod contract;
mod crash;
mod edges;
mod fan;
mod gifts;
mod hostile;
mod http2;
mod http2_raw;
mod likes;
mod limits;
mod metrics;
mod moderated;
mod processes;
mod processes_load;
mod processes_shared;
mod resume;
mod sampled;
mod scenarios;
mod signals;
mod splice;
mod states;
mod storm;
mod support;
mod tls;
mod viewer;
mod wide;
