//! What the formats of the hot path cost: `cargo run --release -p grandstand-wire --example speed`.

#[path = "sample/comment.rs"]
mod sample;

use std::hint::black_box;
use std::time::Instant;

use grandstand_wire::{event, op, record};

use sample::{comment, frame};

fn main() {
    let (frame, comment) = (frame(), comment(123_456));
    let mut stored = Vec::new();
    record::encode(&comment, &mut stored);
    let mut out = Vec::new();

    measure("op::parse", || {
        black_box(op::parse(black_box(&frame)).expect("a valid frame"));
    });
    measure("event::write_event", || {
        out.clear();
        event::write_event(black_box(&comment), &mut out);
        black_box(&out);
    });
    let mut out = Vec::new();
    measure("record::encode", || {
        out.clear();
        record::encode(black_box(&comment), &mut out);
        black_box(&out);
    });
    measure("record::decode", || {
        black_box(record::decode(black_box(&stored)).expect("a valid record"));
    });
}

/// The best of ten runs, so that a neighbour's work on the machine is not counted.
fn measure(name: &str, mut run: impl FnMut()) {
    const CALLS: u32 = 100_000;
    let best = (0..10).map(|_| {
        let start = Instant::now();
        (0..CALLS).for_each(|_| run());
        start.elapsed() / CALLS
    });
    println!("{name:20} {:>6} ns", best.min().expect("ten runs").as_nanos());
}
