//! What the formats of the hot path cost: `cargo run --release -p grandstand-wire --example speed`.

use std::hint::black_box;
use std::time::Instant;

use grandstand_core::ids::{Epoch, Seq};
use grandstand_core::names::{ClientMsgId, RoomId, UserId};
use grandstand_core::record::{Audience, Body, Comment, Record, Verdict};
use grandstand_core::time::Wall;
use grandstand_wire::{event, op, record};

fn main() {
    let text =
        "a comment of one hundred bytes, as a viewer of a lively room might write it after the first goal, or so";
    let frame =
        format!(r#"{{"op":"publish","client_msg_id":"b1f9c2d4-17","room_id":"match:2022-final","body":"{text}"}}"#);
    let comment = Record {
        epoch: Epoch::new(25_560).expect("a valid epoch"),
        seq: Seq::new(123_456).expect("a valid seq"),
        room: RoomId::parse("match:2022-final"),
        ts: Wall(1_779_048_873_122),
        region: "local".into(),
        user: UserId::parse("u_q9z"),
        client_msg_id: ClientMsgId::parse("b1f9c2d4-17"),
        pseq: None,
        verdict: Verdict::Unjudged,
        policy_version: 1,
        audience: Audience::Everyone,
        source: None,
        body: Body::Comment(Comment {
            display: "Ada".into(),
            badges: ["sub".into()].into(),
            text: text.into(),
            reply_to: None,
            won: None,
        }),
    };
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
