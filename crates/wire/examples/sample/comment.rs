//! The comment that examples measure with: one hundred bytes by a subscriber, as most are.

use grandstand_core::ids::{Epoch, Seq};
use grandstand_core::names::{ClientMsgId, RoomId, UserId};
use grandstand_core::record::{Audience, Body, Comment, Record, Verdict};
use grandstand_core::time::Wall;

pub const TEXT: &str =
    "a comment of one hundred bytes, as a viewer of a lively room might write it after the first goal, or so";

pub fn comment(seq: u64) -> Record {
    Record {
        epoch: Epoch::new(25_560).expect("a valid epoch"),
        seq: Seq::new(seq).expect("a valid seq"),
        room: RoomId::parse("match:2022-final"),
        ts: Wall(1_779_048_873_122 + seq),
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
            text: TEXT.into(),
            reply_to: None,
            won: None,
            rule: None,
            shadowed: false,
        }),
    }
}

/// As a client publishes it on a WebSocket.
pub fn frame() -> String {
    format!(r#"{{"op":"publish","client_msg_id":"b1f9c2d4-17","room_id":"match:2022-final","body":"{TEXT}"}}"#)
}
