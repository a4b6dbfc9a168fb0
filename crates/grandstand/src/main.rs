//! The one binary of Grandstand.
#![forbid(unsafe_code)]

#[allow(dead_code)]
mod trace;

fn main() {}
