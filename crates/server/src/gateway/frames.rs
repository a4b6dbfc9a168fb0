//! Room events as bytes for one transport: a WebSocket text frame, SSE events, or the body of a poll's answer.
//!
//! Several events on a WebSocket are one JSON array in id order; on SSE each is its own event in one write.

use std::borrow::Cow;

use bytes::Bytes;
use grandstand_core::ids::Position;
use grandstand_core::names::UserId;
use grandstand_core::sampler::pick::ViewerKey;
use grandstand_wire::deflate::{Deflater, Reach};
use grandstand_wire::ws::{self, Opcode};
use grandstand_wire::{event, json, sse};

use crate::link::Piece;
use crate::metrics::Transport;

/// One event on its way out.
#[derive(Clone)]
pub struct Out<'a> {
    pub kind: &'static str,
    pub id: Option<u64>,
    pub json: Cow<'a, [u8]>,
}

impl<'a> Out<'a> {
    /// A server event that has no place in the room's order.
    pub fn loose(kind: &'static str, json: Vec<u8>) -> Out<'a> {
        Out { kind, id: None, json: json.into() }
    }

    /// A room event as `reader` is sent it: its author's copy carries its `client_msg_id`.
    pub fn of(piece: &'a Piece, reader: Option<&UserId>) -> Out<'a> {
        let id = Some(piece.id.value());
        let own = match (&piece.author, reader) {
            (Some((author, Some(key))), Some(reader)) if author == reader => {
                let mut json = Vec::with_capacity(piece.json.len() + 96);
                event::with_client_msg_id(&piece.json, key, &mut json);
                Some(json)
            }
            _ => None,
        };
        let json = own.map_or(Cow::Borrowed(&*piece.json), Cow::Owned);
        Out { kind: piece.kind, id, json }
    }
}

/// What goes along with a room's events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rides {
    /// The room's latest values.
    pub latest: bool,
    /// The site's newest banner.
    pub banner: bool,
}

impl Rides {
    pub fn bits(self) -> u64 {
        u64::from(self.latest) | u64::from(self.banner) << 1
    }
}

/// Encodes events for a stream; empty for none.
pub fn encode(transport: Transport, events: &[Out<'_>]) -> Bytes {
    let mut out = Vec::new();
    match transport {
        Transport::WebSocket => {
            let Some((first, rest)) = events.split_first() else { return Bytes::new() };
            let array = if rest.is_empty() { 0 } else { 2 + rest.len() };
            let len = array + events.iter().map(|e| e.json.len()).sum::<usize>();
            out.reserve_exact(len + 10);
            ws::write_head(Opcode::Text, len, &mut out);
            if rest.is_empty() {
                out.extend_from_slice(&first.json);
            } else {
                write_array(events, &mut out);
            }
        }
        Transport::Sse => {
            out.reserve_exact(events.iter().map(|e| e.json.len() + 64).sum());
            for e in events {
                sse::write(e.kind, e.id, &e.json, &mut out);
            }
        }
        Transport::Poll => unreachable!("a poll is answered, not streamed to"),
    }
    out.into()
}

/// Bodies shorter than this go as they are: less than a tenth of a packet would be saved. Source: docs/decisions/0019-deflate.md.
const DEFLATE_FROM: usize = 512;

/// Whether a shared frame with a body of `len` bytes goes packed to a viewer.
pub fn is_worth_packing(len: usize, reach: Reach) -> bool {
    len >= DEFLATE_FROM && reach.holds(len)
}

/// A WebSocket frame with its body packed; `None` when that is not shorter.
pub fn pack(frame: &[u8], deflater: &mut Deflater) -> Option<Bytes> {
    let packed = deflater.pack_shorter(ws::body_of(frame))?;
    let mut out = Vec::with_capacity(packed.len() + 10);
    ws::write_deflated_frame(Opcode::Text, packed, &mut out);
    Some(out.into())
}

/// The body of a poll's answer. `some`: its comments are a part of what was shown.
pub fn poll_body(events: &[Out<'_>], next_since: Position, some: bool, next_timeout_ms: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + events.iter().map(|e| e.json.len() + 1).sum::<usize>());
    out.extend_from_slice(b"{\"events\":");
    write_array(events, &mut out);
    out.extend_from_slice(b",\"next_since\":");
    json::write_u64(next_since.value(), &mut out);
    out.extend_from_slice(b",\"next_timeout_ms\":");
    json::write_u64(next_timeout_ms, &mut out);
    out.extend_from_slice(if some { b",\"comments\":\"some\"}" } else { b",\"comments\":\"all\"}" });
    out
}

fn write_array(events: &[Out<'_>], out: &mut Vec<u8>) {
    out.push(b'[');
    for (idx, e) in events.iter().enumerate() {
        if idx > 0 {
            out.push(b',');
        }
        out.extend_from_slice(&e.json);
    }
    out.push(b']');
}

/// A user in four bytes, to ask quickly whether a frame may hold something of theirs. 0 is nobody.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UserMark(u32);

impl UserMark {
    pub fn of(user: &UserId) -> UserMark {
        UserMark::of_key(ViewerKey::of_user(user))
    }
    /// Of a user's key.
    pub fn of_key(key: ViewerKey) -> UserMark {
        UserMark(key.0 as u32 | 1)
    }

    /// `None` for nobody.
    pub fn bits(self) -> Option<u32> {
        Some(self.0).filter(|bits| *bits != 0)
    }
}

/// A set of marks that may claim too much, never too little: 64 bits, one a mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Marks(u64);

impl Marks {
    pub fn insert(&mut self, mark: UserMark) {
        self.0 |= Marks::bit(mark);
    }
    pub fn may_hold(self, mark: UserMark) -> bool {
        self.0 & Marks::bit(mark) != 0
    }
    fn bit(mark: UserMark) -> u64 {
        // The lowest bit only tells somebody from nobody.
        if mark == UserMark::default() { 0 } else { 1 << (mark.0 >> 26) }
    }
}
