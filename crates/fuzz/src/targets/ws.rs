//! The WebSocket frame stream: cut anywhere it reads the same, and the same as a slow reading of RFC 6455.
//!
//! Input: one byte of choice (bit 0: which side reads; bit 1: small limits; bit 2: permessage-deflate was agreed on), then the
//! stream.

use grandstand_core::rng::Rng;
use grandstand_core::time::Mono;
use grandstand_wire::deflate::{Deflater, Inflater};
use grandstand_wire::ws::{Fault, FrameReader, Incoming, Limits, Packed, Side};

use crate::bytes::{number, outcome, text, ways};

const SMALL: Limits = Limits { message_bytes: 40, fragments: 3, ..Limits::FROM_CLIENT };

pub fn generate(rng: &mut Rng) -> Vec<u8> {
    let choice = if rng.chance(1, 2) { 0 } else { rng.below(8) as u8 };
    let masked = choice & 1 == 0;
    let mut out = vec![choice];
    let mut open = false;
    for _ in 0..=rng.below(8) {
        let control = rng.chance(1, 3);
        let (mut opcode, mut fin) = if control {
            (8 + rng.below(3) as u8 * u8::from(!rng.chance(1, 4)), true)
        } else if open {
            (0, rng.chance(1, 2))
        } else {
            (1 + rng.below(2) as u8, rng.chance(2, 3))
        };
        if !control {
            open = !fin;
        }
        let mut rsv = 0;
        if rng.chance(1, 30) {
            opcode = rng.below(16) as u8;
        }
        if rng.chance(1, 30) {
            fin = !fin;
        }
        if rng.chance(1, 30) {
            rsv = 0x10 << rng.below(3);
        }
        if choice & 4 != 0 && matches!(opcode, 1 | 2) && rng.chance(1, 2) {
            rsv = 0x40;
        }
        let body = body(opcode, rng);
        frame(opcode | rsv | if fin { 0x80 } else { 0 }, &body, masked != rng.chance(1, 40), rng, &mut out);
    }
    out
}

fn body(opcode: u8, rng: &mut Rng) -> Vec<u8> {
    let mut body = match opcode {
        8 => {
            let codes = [1000u16, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1015, 2999, 3000, 4000, 4999, 5000, 0];
            let mut body = codes[rng.below(codes.len() as u64) as usize].to_be_bytes().to_vec();
            body.extend(text(rng, 3).into_bytes());
            body
        }
        2 => vec![rng.next() as u8; number(rng).min(70_000) as usize * usize::from(rng.chance(1, 6))],
        _ if rng.chance(1, 12) => "é".repeat(number(rng).min(9_000) as usize).into_bytes(),
        _ => text(rng, 12).into_bytes(),
    };
    if rng.chance(1, 4) {
        // A character may be cut by a frame's end.
        body.truncate(rng.below(body.len() as u64 + 1) as usize);
    }
    body
}

fn frame(first: u8, body: &[u8], masked: bool, rng: &mut Rng, out: &mut Vec<u8>) {
    let declared = if rng.chance(1, 25) { number(rng) } else { body.len() as u64 };
    let mask_bit = if masked { 0x80 } else { 0 };
    out.push(first);
    match (declared, rng.below(30)) {
        (0..=125, 1..) => out.push(declared as u8 | mask_bit),
        (0..=0xffff, 1..) | (0..=125, 0) => {
            out.push(126 | mask_bit);
            out.extend((declared as u16).to_be_bytes());
        }
        _ => {
            out.push(127 | mask_bit);
            out.extend(declared.to_be_bytes());
        }
    }
    let key = [0u8; 4].map(|_| if rng.chance(1, 2) { 0 } else { rng.next() as u8 });
    if masked {
        out.extend(key);
    }
    let hidden = body.iter().zip(key.iter().cycle()).map(|(b, k)| if masked { b ^ k } else { *b });
    out.extend(hidden);
}

/// What a reader gave back, and the close code of the fault it ended at.
type Read = (Vec<Incoming>, Option<u16>);

pub fn check(input: &[u8]) -> u64 {
    let (choice, stream) = input.split_first().map_or((0, input), |(c, s)| (*c, s));
    let side = if choice & 1 == 0 { Side::Server } else { Side::Client };
    let limits = Limits { deflate: choice & 4 != 0, ..if choice & 2 == 0 { Limits::FROM_CLIENT } else { SMALL } };
    let (want, idle) = plain(stream, side, &limits);
    for way in ways(stream) {
        let (got, half) = read(&way, side, &limits);
        assert_eq!(got, want, "in {} pieces", way.len());
        assert!(got.1.is_some() || half != idle, "half read: {half}, idle: {idle}");
    }
    let kinds = want.0.iter().fold(0u64, |n, i| {
        let kind = [
            matches!(i, Incoming::Text(_)),
            matches!(i, Incoming::Binary(_)),
            matches!(i, Incoming::Ping(_)),
            matches!(i, Incoming::Pong(_)),
            matches!(i, Incoming::Close(..)),
            matches!(i, Incoming::Deflated(_)),
        ];
        n | 1 << kind.iter().position(|is| *is).expect("one of them")
    });
    outcome(&[u64::from(choice & 7), kinds, u64::from(want.1.unwrap_or(0)), u64::from(idle)])
}

fn read(pieces: &[&[u8]], side: Side, limits: &Limits) -> (Read, bool) {
    let mut reader = FrameReader::new();
    let mut got = Vec::new();
    for piece in pieces {
        let mut rest = *piece;
        loop {
            match reader.next(side, limits, &mut rest, Mono(0)) {
                Ok(Some(incoming)) => got.push(incoming),
                Ok(None) => {
                    assert!(rest.is_empty(), "what is not used up is more to read");
                    break;
                }
                Err(fault) => return ((got, Some(fault.code())), false),
            }
        }
    }
    ((got, None), reader.half_read_since().is_some())
}

/// RFC 6455, section 5, in the order of its sentences; whole bytes, no state but the open message.
/// Returns also whether nothing is half read at the end.
fn plain(mut rest: &[u8], side: Side, limits: &Limits) -> (Read, bool) {
    plain_with(&mut rest, side, limits, limits.fragments)
}

fn plain_with(rest: &mut &[u8], side: Side, limits: &Limits, fragments_max: u16) -> (Read, bool) {
    let mut got = Vec::new();
    let mut open: Option<Open> = None;
    loop {
        if rest.len() < 2 {
            return ((got, None), rest.is_empty() && open.is_none());
        }
        let (first, second) = (rest[0], rest[1]);
        let (fin, rsv, opcode) = (first & 0x80 != 0, first >> 4 & 7, first & 15);
        let (masked, short) = (second & 0x80 != 0, second & 0x7f);
        let control = opcode >= 8;
        // RFC 7692: the first bit of a message's first frame, where that was agreed on.
        let packed = limits.deflate && matches!(opcode, 1 | 2) && rsv == 4;
        let broken = (rsv != 0 && !packed)
            || !matches!(opcode, 0..=2 | 8..=10)
            || masked != (side == Side::Server)
            || (control && (!fin || short > 125))
            || (opcode == 0 && open.is_none())
            || (matches!(opcode, 1 | 2) && open.is_some());
        if broken {
            return ((got, Some(1002)), false);
        }
        let (len_bytes, key_bytes) = (
            if short == 126 {
                2
            } else if short == 127 {
                8
            } else {
                0
            },
            if masked { 4 } else { 0 },
        );
        let head = 2 + len_bytes + key_bytes;
        if rest.len() < head {
            return ((got, None), false);
        }
        let declared = rest[2..2 + len_bytes].iter().fold(0u64, |n, b| n << 8 | u64::from(*b));
        let len = if len_bytes == 0 { u64::from(short) } else { declared };
        let least = [0, 126, 65_536][len_bytes.div_ceil(4)];
        if len < least || len > i64::MAX as u64 {
            return ((got, Some(1002)), false);
        }
        let before = open.as_ref().map_or(0, |open| open.message.len() as u64);
        if !control && before + len > limits.message_bytes as u64 {
            return ((got, Some(1009)), false);
        }
        if !control {
            let open =
                open.get_or_insert_with(|| Open { is_text: opcode == 1, packed, message: Vec::new(), fragments: 0 });
            open.fragments += 1;
            if open.fragments > fragments_max {
                return ((got, Some(1009)), false);
            }
        }
        let there = (rest.len() - head).min(len as usize);
        let key: [u8; 4] = std::array::from_fn(|i| if masked { rest[2 + len_bytes + i] } else { 0 });
        let body: Vec<u8> = rest[head..head + there].iter().enumerate().map(|(i, b)| b ^ key[i % 4]).collect();
        let whole = there as u64 == len;
        if !control {
            let open = open.as_mut().expect("opened above");
            open.message.extend(&body);
            let bad = open.is_text
                && !open.packed
                && std::str::from_utf8(&open.message).is_err_and(|e| e.error_len().is_some());
            if bad {
                return ((got, Some(1007)), false);
            }
        }
        if !whole {
            return ((got, None), false);
        }
        *rest = &rest[head + there..];
        match opcode {
            8 => match close(&body) {
                Ok(close) => got.push(close),
                Err(code) => return ((got, Some(code)), false),
            },
            9 => got.push(Incoming::Ping(body)),
            10 => got.push(Incoming::Pong(body)),
            _ if !fin => {}
            _ => {
                let Open { is_text, packed, message, .. } = open.take().expect("opened above");
                if packed {
                    got.push(Incoming::Deflated(Packed { is_text, body: message }));
                    continue;
                }
                match (is_text, String::from_utf8(message)) {
                    (true, Ok(text)) => got.push(Incoming::Text(text)),
                    (true, Err(_)) => return ((got, Some(1007)), false),
                    (false, Ok(text)) => got.push(Incoming::Binary(text.into_bytes())),
                    (false, Err(e)) => got.push(Incoming::Binary(e.into_bytes())),
                }
            }
        }
    }
}

/// A message that has begun.
struct Open {
    is_text: bool,
    packed: bool,
    message: Vec<u8>,
    fragments: u16,
}

fn close(body: &[u8]) -> Result<Incoming, u16> {
    if body.is_empty() {
        return Ok(Incoming::Close(None, String::new()));
    }
    if body.len() == 1 {
        return Err(1002);
    }
    let code = u16::from(body[0]) << 8 | u16::from(body[1]);
    // 7.4: 1004 to 1006 and 1015 are never sent; 1016 to 2999 are not given out; below 1000 and above 4999 are no codes.
    if code < 1000 || (1004..=1006).contains(&code) || (1015..3000).contains(&code) || code > 4999 {
        return Err(1002);
    }
    String::from_utf8(body[2..].to_vec()).map(|reason| Incoming::Close(Some(code), reason)).map_err(|_| 1007)
}

/// A packed body: packed here and broken in places, or made up.
pub fn generate_packed(rng: &mut Rng) -> Vec<u8> {
    let mut body = text(rng, 40).into_bytes();
    if rng.chance(1, 4) {
        body = body.repeat(1 + rng.below(2_000) as usize);
    }
    body.truncate(1 << 17);
    Deflater::default().pack(&body, 1 << 17).map_or(body.clone(), <[u8]>::to_vec)
}

/// Whatever a packed body says is at most as long as it may be, the same each time, and survives being packed again.
pub fn check_packed(input: &[u8]) -> u64 {
    const BYTES_MAX: usize = 16 << 10;
    let packed = || Packed { is_text: input.len().is_multiple_of(2), body: input.to_vec() };
    let mut inflater = Inflater::default();
    let opened = inflater.open(packed(), BYTES_MAX);
    assert_eq!(inflater.open(packed(), BYTES_MAX), opened, "the second time");
    let said = match &opened {
        Err(fault) => {
            assert!(matches!(fault, Fault::Protocol(_) | Fault::NotUtf8 | Fault::TooLarge), "{fault:?}");
            return outcome(&[1, u64::from(fault.code())]);
        }
        Ok(Incoming::Text(text)) => text.as_bytes(),
        Ok(Incoming::Binary(bytes)) => bytes,
        Ok(other) => panic!("{other:?} out of a packed body"),
    };
    assert!(said.len() <= BYTES_MAX);
    let mut deflater = Deflater::default();
    if let Some(again) = deflater.pack(said, BYTES_MAX * 2) {
        let again = Packed { is_text: packed().is_text, body: again.to_vec() };
        assert_eq!(inflater.open(again, BYTES_MAX), opened, "packed again");
    }
    outcome(&[2, u64::from(packed().is_text), u64::from(said.len().checked_ilog2().unwrap_or(0))])
}

#[cfg(test)]
mod tests {
    use grandstand_core::rng::Rng;
    use grandstand_wire::ws::{Limits, Side};

    use super::{generate, plain_with, read};

    #[test]
    fn a_reader_that_counts_one_fragment_more_is_told_from_ours() {
        let mut rng = Rng::new(1);
        let limits = Limits { fragments: 3, ..Limits::FROM_CLIENT };
        let differs = (0..40_000).any(|_| {
            let input = generate(&mut rng);
            let stream = &input[1..];
            plain_with(&mut &*stream, Side::Server, &limits, 4).0 != read(&[stream], Side::Server, &limits).0
        });
        assert!(differs, "the generator makes no message in four fragments");
    }
}
