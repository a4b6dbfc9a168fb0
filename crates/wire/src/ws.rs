//! WebSocket frames (RFC 6455), read and written without a socket.
//!
//! The reader is fed whatever bytes arrived and gives back whole messages and control frames; the writer makes frames. One
//! reader serves both sides: a server demands masked frames, a client refuses them.
//!
//! It never allocates by a declared length, only by bytes that came, and it judges a frame by its head before the first byte
//! of its body is kept. Text is checked as it arrives, across fragments, so a bad byte ends the connection at once.
//!
//! The awkward case is a frame that trickles: what is half read lives in one box which exists only while something is half
//! read, so an idle connection owns no buffer. The number of fragments and the time a message may take are bounded too, because
//! a bound on bytes alone lets a million empty fragments through.
//!
//! A message that came compressed (RFC 7692) is given back as it came, within the same limits; [`crate::deflate`] opens it.
//! So no connection owns an inflater.
//!
//! Numbers: docs/protocol.md (16 KiB a client frame), RFC 6455 sections 5 and 7.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use grandstand_core::time::Mono;

/// Which end of the connection reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Reads masked frames.
    Server,
    /// Reads unmasked frames.
    Client,
}

/// What one message may cost its reader.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of one whole message.
    pub message_bytes: usize,
    /// Frames one message may come in.
    pub fragments: u16,
    /// From the first byte of a frame or message to its last.
    pub assembly: Duration,
    /// permessage-deflate was agreed on: a message's first frame may say that it is compressed.
    pub deflate: bool,
}

impl Limits {
    /// What a client of the server may send. Source: docs/protocol.md (16 KiB), 8 fragments, 5 seconds.
    pub const FROM_CLIENT: Limits =
        Limits { message_bytes: 16 * 1024, fragments: 8, assembly: Duration::from_secs(5), deflate: false };
}

/// Something whole that the other side sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Incoming {
    Text(String),
    Binary(Vec<u8>),
    /// Text or binary, still compressed: for [`crate::deflate::Inflater::open`].
    Deflated(Packed),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    /// The code is absent when the frame was empty.
    Close(Option<u16>, String),
}

/// A compressed message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packed {
    pub is_text: bool,
    /// Without the four bytes that every one would end with (RFC 7692 section 7.2.1).
    pub body: Vec<u8>,
}

/// Why a connection cannot go on. [`Fault::code`] is the close code to answer with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A rule of framing was broken; the text names it.
    Protocol(&'static str),
    /// Text or a close reason is not UTF-8.
    NotUtf8,
    /// A message is larger than it may be, or comes in too many pieces.
    TooLarge,
    /// A message took longer than it may.
    TooSlow,
}

impl Fault {
    pub fn code(self) -> u16 {
        match self {
            Fault::Protocol(_) => 1002,
            Fault::NotUtf8 => 1007,
            Fault::TooLarge => 1009,
            Fault::TooSlow => 1008,
        }
    }

    pub fn reason(self) -> &'static str {
        match self {
            Fault::Protocol(rule) => rule,
            Fault::NotUtf8 => "not utf-8",
            Fault::TooLarge => "too large",
            Fault::TooSlow => "a frame took too long",
        }
    }
}

/// The three bits of a frame's first byte that an extension may give a meaning, and the one that permessage-deflate took.
const RESERVED: u8 = 0x70;
const DEFLATED: u8 = 0x40;

/// Reads frames from one direction of one connection. Idle, it is one empty pointer.
#[derive(Debug, Default)]
pub struct FrameReader {
    partial: Option<Box<Partial>>,
}

impl FrameReader {
    pub fn new() -> FrameReader {
        FrameReader::default()
    }

    /// Takes bytes from the front of `input` until one whole thing has come.
    ///
    /// Shape: `Ok(None)` means `input` is used up and more is needed; otherwise call again with what is left of it.
    /// Errors: the first broken rule; the reader is of no use after that.
    pub fn next(
        &mut self,
        side: Side,
        limits: &Limits,
        input: &mut &[u8],
        now: Mono,
    ) -> Result<Option<Incoming>, Fault> {
        let mut state = self.partial.take().map_or_else(Partial::default, |boxed| *boxed);
        let got = state.read(side, limits, input)?;
        if !state.is_idle() {
            let since = *state.since.get_or_insert(now);
            if now.since(since) > limits.assembly {
                return Err(Fault::TooSlow);
            }
            self.partial = Some(Box::new(state));
        }
        Ok(got)
    }

    /// Since when something has been half read, for a timer that must end a trickle.
    pub fn half_read_since(&self) -> Option<Mono> {
        self.partial.as_ref().and_then(|p| p.since)
    }
}

#[derive(Debug, Default)]
struct Partial {
    head: [u8; 14],
    head_len: u8,
    frame: Option<Frame>,
    /// Kind of the fragmented message that is open.
    open: Option<Kind>,
    /// Its first frame said that it is compressed.
    deflated: bool,
    message: Vec<u8>,
    control: Vec<u8>,
    fragments: u16,
    utf8: Utf8,
    since: Option<Mono>,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    fin: bool,
    opcode: Opcode,
    left: usize,
    mask: Option<[u8; 4]>,
    mask_at: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Text,
    Binary,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opcode {
    Continuation,
    Text,
    Binary,
    Close,
    Ping,
    Pong,
}

impl Opcode {
    fn read(bits: u8) -> Option<Opcode> {
        Some(match bits {
            0 => Opcode::Continuation,
            1 => Opcode::Text,
            2 => Opcode::Binary,
            8 => Opcode::Close,
            9 => Opcode::Ping,
            10 => Opcode::Pong,
            _ => return None,
        })
    }

    fn bits(self) -> u8 {
        match self {
            Opcode::Continuation => 0,
            Opcode::Text => 1,
            Opcode::Binary => 2,
            Opcode::Close => 8,
            Opcode::Ping => 9,
            Opcode::Pong => 10,
        }
    }

    fn is_control(self) -> bool {
        self.bits() >= 8
    }
}

impl Partial {
    fn is_idle(&self) -> bool {
        self.head_len == 0 && self.frame.is_none() && self.open.is_none()
    }

    fn read(&mut self, side: Side, limits: &Limits, input: &mut &[u8]) -> Result<Option<Incoming>, Fault> {
        loop {
            if self.frame.is_none() && !self.read_head(side, limits, input)? {
                return Ok(None);
            }
            let Some(frame) = self.frame.as_mut() else { return Ok(None) };
            let take = frame.left.min(input.len());
            let (bytes, rest) = input.split_at(take);
            *input = rest;
            let into = if frame.opcode.is_control() { &mut self.control } else { &mut self.message };
            let start = into.len();
            into.extend_from_slice(bytes);
            if let Some(mask) = frame.mask {
                apply_mask(&mut into[start..], mask, frame.mask_at);
                frame.mask_at = (frame.mask_at + take) % 4;
            }
            frame.left -= take;
            let frame = *frame;
            if !frame.opcode.is_control() && self.open == Some(Kind::Text) && !self.deflated {
                self.utf8.feed(&self.message[start..])?;
            }
            if frame.left > 0 {
                return Ok(None);
            }
            self.frame = None;
            self.head_len = 0;
            if let Some(done) = self.finish(frame)? {
                return Ok(Some(done));
            }
        }
    }

    /// Reads the 2 to 14 bytes before a body; false when `input` ended first.
    fn read_head(&mut self, side: Side, limits: &Limits, input: &mut &[u8]) -> Result<bool, Fault> {
        loop {
            let have = usize::from(self.head_len);
            let need = if have < 2 { 2 } else { self.judge_start(side, limits)? };
            if have >= need && have >= 2 {
                break;
            }
            let take = (need - have).min(input.len());
            if take == 0 {
                return Ok(false);
            }
            let (bytes, rest) = input.split_at(take);
            *input = rest;
            self.head[have..have + take].copy_from_slice(bytes);
            self.head_len += take as u8;
        }
        let frame = self.judge_head(limits)?;
        self.frame = Some(frame);
        Ok(true)
    }

    /// What the first two bytes already tell: how long the head is, or which rule is broken.
    fn judge_start(&self, side: Side, limits: &Limits) -> Result<usize, Fault> {
        let [first, second] = [self.head[0], self.head[1]];
        let opcode = Opcode::read(first & 0x0f).ok_or(Fault::Protocol("reserved opcode"))?;
        let may_be_deflated = limits.deflate && matches!(opcode, Opcode::Text | Opcode::Binary);
        if first & RESERVED & !(if may_be_deflated { DEFLATED } else { 0 }) != 0 {
            return Err(Fault::Protocol("reserved bits"));
        }
        let fin = first & 0x80 != 0;
        let masked = second & 0x80 != 0;
        match (side, masked) {
            (Side::Server, false) => return Err(Fault::Protocol("unmasked frame")),
            (Side::Client, true) => return Err(Fault::Protocol("masked frame")),
            _ => {}
        }
        let len = second & 0x7f;
        if opcode.is_control() {
            if !fin {
                return Err(Fault::Protocol("fragmented control frame"));
            }
            if len > 125 {
                return Err(Fault::Protocol("control frame over 125 bytes"));
            }
        }
        match (opcode, self.open) {
            (Opcode::Continuation, None) => return Err(Fault::Protocol("continuation of nothing")),
            (Opcode::Text | Opcode::Binary, Some(_)) => return Err(Fault::Protocol("new data inside a message")),
            _ => {}
        }
        let len_bytes = match len {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        Ok(2 + len_bytes + if masked { 4 } else { 0 })
    }

    fn judge_head(&mut self, limits: &Limits) -> Result<Frame, Fault> {
        let short = self.head[1] & 0x7f;
        let (len, mask_at) = match short {
            126 => (u64::from(u16::from_be_bytes([self.head[2], self.head[3]])), 4),
            127 => (u64::from_be_bytes(self.head[2..10].try_into().expect("eight bytes of fourteen")), 10),
            len => (u64::from(len), 2),
        };
        let minimal = match short {
            126 => len > 125,
            127 => len > 0xffff,
            _ => true,
        };
        if !minimal {
            return Err(Fault::Protocol("length not minimal"));
        }
        if len >> 63 != 0 {
            return Err(Fault::Protocol("length over 63 bits"));
        }
        let opcode = Opcode::read(self.head[0] & 0x0f).ok_or(Fault::Protocol("reserved opcode"))?;
        if !opcode.is_control() {
            let room = limits.message_bytes.saturating_sub(self.message.len());
            if len > room as u64 {
                return Err(Fault::TooLarge);
            }
            let kind = match opcode {
                Opcode::Text => Some(Kind::Text),
                Opcode::Binary => Some(Kind::Binary),
                _ => None,
            };
            if kind.is_some() {
                self.open = kind;
                self.deflated = self.head[0] & DEFLATED != 0;
            }
            self.fragments += 1;
            if self.fragments > limits.fragments {
                return Err(Fault::TooLarge);
            }
        }
        let mask = (self.head[1] & 0x80 != 0)
            .then(|| self.head[mask_at..mask_at + 4].try_into().expect("four bytes of fourteen"));
        Ok(Frame { fin: self.head[0] & 0x80 != 0, opcode, left: len as usize, mask, mask_at: 0 })
    }

    fn finish(&mut self, frame: Frame) -> Result<Option<Incoming>, Fault> {
        match frame.opcode {
            Opcode::Ping => Ok(Some(Incoming::Ping(std::mem::take(&mut self.control)))),
            Opcode::Pong => Ok(Some(Incoming::Pong(std::mem::take(&mut self.control)))),
            Opcode::Close => read_close(&std::mem::take(&mut self.control)).map(Some),
            Opcode::Continuation | Opcode::Text | Opcode::Binary => {
                if !frame.fin {
                    return Ok(None);
                }
                let kind = self.open.take().ok_or(Fault::Protocol("continuation of nothing"))?;
                let message = std::mem::take(&mut self.message);
                self.fragments = 0;
                self.since = None;
                if std::mem::take(&mut self.deflated) {
                    return Ok(Some(Incoming::Deflated(Packed { is_text: kind == Kind::Text, body: message })));
                }
                match kind {
                    Kind::Binary => Ok(Some(Incoming::Binary(message))),
                    Kind::Text => {
                        self.utf8.end()?;
                        String::from_utf8(message).map(|t| Some(Incoming::Text(t))).map_err(|_| Fault::NotUtf8)
                    }
                }
            }
        }
    }
}

fn read_close(body: &[u8]) -> Result<Incoming, Fault> {
    match body {
        [] => Ok(Incoming::Close(None, String::new())),
        [_] => Err(Fault::Protocol("close body of one byte")),
        [a, b, reason @ ..] => {
            let code = u16::from_be_bytes([*a, *b]);
            if !may_be_sent(code) {
                return Err(Fault::Protocol("close code"));
            }
            let reason = std::str::from_utf8(reason).map_err(|_| Fault::NotUtf8)?;
            Ok(Incoming::Close(Some(code), reason.to_owned()))
        }
    }
}

/// Whether a close code may be on the wire. Source: RFC 6455 section 7.4, IANA registry (1012 to 1014).
pub fn may_be_sent(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}

/// UTF-8 checked byte by byte, so that text may be cut anywhere. Source: Unicode 15, table 3-7.
#[derive(Clone, Copy, Debug, Default)]
struct Utf8 {
    /// Continuation bytes still due, and the range of the next one.
    due: u8,
    low: u8,
    high: u8,
}

impl Utf8 {
    fn feed(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        if self.due == 0 && bytes.is_ascii() {
            return Ok(());
        }
        for &b in bytes {
            if self.due > 0 {
                if b < self.low || b > self.high {
                    return Err(Fault::NotUtf8);
                }
                (self.due, self.low, self.high) = (self.due - 1, 0x80, 0xbf);
                continue;
            }
            (self.due, self.low, self.high) = match b {
                0x00..=0x7f => (0, 0, 0),
                0xc2..=0xdf => (1, 0x80, 0xbf),
                0xe0 => (2, 0xa0, 0xbf),
                0xe1..=0xec | 0xee..=0xef => (2, 0x80, 0xbf),
                0xed => (2, 0x80, 0x9f),
                0xf0 => (3, 0x90, 0xbf),
                0xf1..=0xf3 => (3, 0x80, 0xbf),
                0xf4 => (3, 0x80, 0x8f),
                _ => return Err(Fault::NotUtf8),
            };
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), Fault> {
        if self.due > 0 { Err(Fault::NotUtf8) } else { Ok(()) }
    }
}

fn apply_mask(bytes: &mut [u8], mask: [u8; 4], at: usize) {
    let turned = [mask[at % 4], mask[(at + 1) % 4], mask[(at + 2) % 4], mask[(at + 3) % 4]];
    let mut words = bytes.chunks_exact_mut(4);
    for word in &mut words {
        for (b, m) in word.iter_mut().zip(turned) {
            *b ^= m;
        }
    }
    for (b, m) in words.into_remainder().iter_mut().zip(turned) {
        *b ^= m;
    }
}

/// Appends the head of an unmasked, final frame with a body of `len` bytes: what a server writes.
pub fn write_head(opcode: Opcode, len: usize, out: &mut Vec<u8>) {
    write_head_with(opcode, true, len, false, out);
}

/// Appends an unmasked, final frame.
pub fn write_frame(opcode: Opcode, body: &[u8], out: &mut Vec<u8>) {
    write_head(opcode, body.len(), out);
    out.extend_from_slice(body);
}

/// Appends an unmasked, final frame whose body is compressed.
pub fn write_deflated_frame(opcode: Opcode, packed: &[u8], out: &mut Vec<u8>) {
    let at = out.len();
    write_head(opcode, packed.len(), out);
    out[at] |= DEFLATED;
    out.extend_from_slice(packed);
}

/// The body of a frame that [`write_frame`] or [`write_head`] began.
pub fn body_of(frame: &[u8]) -> &[u8] {
    let head = match frame.get(1).map_or(0, |len| len & 0x7f) {
        126 => 4,
        127 => 10,
        _ => 2,
    };
    frame.get(head..).unwrap_or_default()
}

/// Appends a masked frame: what a client writes. `fin` false begins or goes on with a fragmented message.
pub fn write_masked_frame(opcode: Opcode, fin: bool, body: &[u8], mask: [u8; 4], out: &mut Vec<u8>) {
    write_head_with(opcode, fin, body.len(), true, out);
    out.extend_from_slice(&mask);
    let start = out.len();
    out.extend_from_slice(body);
    apply_mask(&mut out[start..], mask, 0);
}

/// The body of a close frame. `reason` is cut at a character so that the frame stays within 125 bytes.
pub fn close_body(code: u16, reason: &str) -> Vec<u8> {
    debug_assert!(may_be_sent(code), "close code {code} may not be on the wire");
    let mut body = code.to_be_bytes().to_vec();
    body.extend_from_slice(&reason.as_bytes()[..reason.floor_char_boundary(123)]);
    body
}

fn write_head_with(opcode: Opcode, fin: bool, len: usize, masked: bool, out: &mut Vec<u8>) {
    out.push(opcode.bits() | if fin { 0x80 } else { 0 });
    let mask = if masked { 0x80 } else { 0 };
    match len {
        0..=125 => out.push(len as u8 | mask),
        126..=0xffff => {
            out.push(126 | mask);
            out.extend_from_slice(&(len as u16).to_be_bytes());
        }
        _ => {
            out.push(127 | mask);
            out.extend_from_slice(&(len as u64).to_be_bytes());
        }
    }
}

/// `Sec-WebSocket-Accept` for a `Sec-WebSocket-Key`. Source: RFC 6455 section 4.2.2.
/// Errors: `None` when the key is not the base64 of 16 bytes.
pub fn accept_key(key: &str) -> Option<String> {
    let raw = STANDARD.decode(key).ok()?;
    (raw.len() == 16).then(|| accept_of(key))
}

fn accept_of(key: &str) -> String {
    use aws_lc_rs::digest;
    let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    context.update(key.as_bytes());
    context.update(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    STANDARD.encode(context.finish())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use grandstand_core::time::Mono;
    use proptest::prelude::{any, prop_assert_eq, proptest};

    use super::{
        Fault, FrameReader, Incoming, Limits, Opcode, Packed, Side, accept_key, body_of, close_body,
        write_deflated_frame, write_frame, write_masked_frame,
    };

    const LIMITS: Limits = Limits::FROM_CLIENT;
    const KEY: [u8; 4] = [0x12, 0x9f, 0x00, 0xe3];

    fn masked(first: u8, body: &[u8]) -> Vec<u8> {
        let mut out = vec![first];
        match body.len() {
            n @ 0..=125 => out.push(0x80 | n as u8),
            n => {
                out.push(0x80 | 126);
                out.extend_from_slice(&(n as u16).to_be_bytes());
            }
        }
        out.extend_from_slice(&KEY);
        out.extend(body.iter().zip(KEY.iter().cycle()).map(|(b, k)| b ^ k));
        out
    }

    fn read_in_steps(bytes: &[u8], step: usize) -> Result<Vec<Incoming>, Fault> {
        let mut reader = FrameReader::new();
        let mut got = Vec::new();
        for chunk in bytes.chunks(step.max(1)) {
            let mut input = chunk;
            while let Some(incoming) = reader.next(Side::Server, &LIMITS, &mut input, Mono(0))? {
                got.push(incoming);
            }
        }
        Ok(got)
    }

    /// The same answer whatever the cut.
    fn check(frames: &[Vec<u8>], want: Result<Vec<Incoming>, Fault>) {
        let bytes = frames.concat();
        for step in [1, 2, 3, 7, bytes.len()] {
            assert_eq!(read_in_steps(&bytes, step), want, "cut every {step}");
        }
    }

    fn text(t: &str) -> Incoming {
        Incoming::Text(t.into())
    }

    fn refused(frames: &[Vec<u8>], code: u16) {
        let bytes = frames.concat();
        for step in [1, 2, 3, 7, bytes.len()] {
            assert_eq!(read_in_steps(&bytes, step).map_err(Fault::code), Err(code), "cut every {step}: {bytes:x?}");
        }
    }

    #[test]
    fn a_text_frame_is_read_whole() {
        check(&[masked(0x81, "goal ⚽".as_bytes())], Ok(vec![text("goal ⚽")]));
        check(&[masked(0x81, b""), masked(0x82, b"\xff\0")], Ok(vec![text(""), Incoming::Binary(vec![0xff, 0])]));
    }

    #[test]
    fn a05_an_unmasked_frame_is_refused_and_a_zero_key_is_fine() {
        refused(&[vec![0x81, 0x02, b'h', b'i']], 1002);
        check(&[vec![0x81, 0x82, 0, 0, 0, 0, b'h', b'i']], Ok(vec![text("hi")]));
    }

    #[test]
    fn a05_a_client_refuses_a_masked_frame() {
        let mut input = &masked(0x81, b"hi")[..];
        let got = FrameReader::new().next(Side::Client, &LIMITS, &mut input, Mono(0));
        assert_eq!(got, Err(Fault::Protocol("masked frame")));
        let mut plain = Vec::new();
        write_frame(Opcode::Text, b"hi", &mut plain);
        let got = FrameReader::new().next(Side::Client, &LIMITS, &mut &plain[..], Mono(0));
        assert_eq!(got, Ok(Some(text("hi"))));
    }

    #[test]
    fn a06_reserved_bits_and_opcodes_are_refused() {
        for bit in [0x40, 0x20, 0x10] {
            refused(&[masked(0x81 | bit, b"x")], 1002);
            refused(&[masked(0x89 | bit, b"x")], 1002);
        }
        for opcode in (3..8).chain(11..16) {
            refused(&[masked(0x80 | opcode, b"")], 1002);
        }
    }

    fn read_deflating(frames: &[Vec<u8>]) -> Result<Vec<Incoming>, u16> {
        let limits = Limits { deflate: true, ..LIMITS };
        let bytes = frames.concat();
        let read = |step: usize| {
            let (mut reader, mut got) = (FrameReader::new(), Vec::new());
            for mut input in bytes.chunks(step) {
                while let Some(incoming) =
                    reader.next(Side::Server, &limits, &mut input, Mono(0)).map_err(Fault::code)?
                {
                    got.push(incoming);
                }
            }
            Ok(got)
        };
        let whole = read(bytes.len());
        assert!([1, 2, 3, 7].iter().all(|step| read(*step) == whole), "the same answer whatever the cut");
        whole
    }

    #[test]
    fn a06_the_first_frame_of_a_message_may_say_that_it_is_compressed_where_that_was_agreed_on() {
        let packed = |is_text, body: &[u8]| Incoming::Deflated(Packed { is_text, body: body.to_vec() });
        let got = read_deflating(&[masked(0xc1, b"\xff\xfe"), masked(0xc2, b"b"), masked(0x81, b"plain")]);
        assert_eq!(got, Ok(vec![packed(true, b"\xff\xfe"), packed(false, b"b"), text("plain")]));
        let parts =
            [masked(0x41, b"\xff"), masked(0x89, b"p"), masked(0x00, b"\xfe"), masked(0x80, b""), masked(0x81, b"x")];
        assert_eq!(read_deflating(&parts), Ok(vec![Incoming::Ping(b"p".into()), packed(true, b"\xff\xfe"), text("x")]));
        // Not later frames, control frames or the other bits; and a plain message is checked as ever.
        for frames in [
            vec![masked(0x41, b"a"), masked(0xc0, b"b")],
            vec![masked(0x01, b"a"), masked(0xc0, b"b")],
            vec![masked(0xc9, b"")],
            vec![masked(0xca, b"")],
            vec![masked(0xc8, b"")],
            vec![masked(0xe1, b"")],
            vec![masked(0xd1, b"")],
            vec![masked(0xc3, b"")],
        ] {
            assert_eq!(read_deflating(&frames), Err(1002), "{frames:x?}");
        }
        assert_eq!(read_deflating(&[masked(0xc1, b""), masked(0x81, b"\xff")]), Err(1007));
    }

    #[test]
    fn a13_a_compressed_message_has_the_limits_of_any_other_before_it_is_opened() {
        assert_eq!(read_deflating(&[masked(0xc1, &vec![0; 16 * 1024 + 1])]), Err(1009));
        assert_eq!(read_deflating(&[masked(0x41, &vec![0; 16 * 1024]), masked(0x80, b"y")]), Err(1009));
        let bomb: Vec<Vec<u8>> = std::iter::once(masked(0x41, b"")).chain((0..8).map(|_| masked(0x00, b""))).collect();
        assert_eq!(read_deflating(&bomb), Err(1009));
    }

    #[test]
    fn the_body_of_a_written_frame_is_found_again() {
        for len in [0, 125, 126, 65_535, 65_536] {
            let (mut frame, mut deflated) = (Vec::new(), Vec::new());
            write_frame(Opcode::Text, &vec![7; len], &mut frame);
            write_deflated_frame(Opcode::Text, &vec![7; len], &mut deflated);
            assert!(body_of(&frame) == vec![7; len] && body_of(&deflated) == vec![7; len]);
            assert_eq!((frame[0], deflated[0]), (0x81, 0xc1));
        }
        assert!(body_of(&[]).is_empty() && body_of(&[0x81, 126]).is_empty());
    }

    #[test]
    fn a07_lengths_are_minimal_and_never_allocated_for() {
        for declared in [1u64 << 63, u64::MAX] {
            refused(&[[&[0x81, 0xff][..], &declared.to_be_bytes(), &KEY].concat()], 1002);
        }
        for declared in [(1u64 << 63) - 1, 1 << 40, (16 * 1024 + 1) << 8] {
            refused(&[[&[0x82, 0xff][..], &declared.to_be_bytes(), &KEY].concat()], 1009);
        }
        refused(&[[&[0x81, 0xfe, 0, 125][..], &KEY, &[0; 125]].concat()], 1002);
        refused(&[[&[0x81, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff][..], &KEY].concat()], 1002);
        refused(&[masked(0x81, &vec![b'x'; 16 * 1024 + 1])], 1009);
        check(&[masked(0x81, &vec![b'x'; 16 * 1024])], Ok(vec![text(&"x".repeat(16 * 1024))]));
    }

    #[test]
    fn a07_a_message_in_parts_has_the_limit_of_a_whole_one() {
        refused(&[masked(0x01, &vec![b'x'; 16 * 1024]), masked(0x80, b"y")], 1009);
    }

    #[test]
    fn a08_fragments_are_counted_even_when_empty() {
        let bomb: Vec<Vec<u8>> = std::iter::once(masked(0x01, b"")).chain((0..8).map(|_| masked(0x00, b""))).collect();
        refused(&bomb, 1009);
        let fine: Vec<Vec<u8>> =
            std::iter::once(masked(0x01, b"a")).chain((0..6).map(|_| masked(0x00, b"a"))).collect();
        check(&[fine.concat(), masked(0x80, b"a")], Ok(vec![text("aaaaaaaa")]));
    }

    #[test]
    fn a08_a_message_that_trickles_is_ended() {
        let mut reader = FrameReader::new();
        let at = |s: u64| Mono(s * 1_000_000);
        assert_eq!(reader.next(Side::Server, &LIMITS, &mut &masked(0x01, b"a")[..], at(10)), Ok(None));
        assert_eq!(reader.half_read_since(), Some(at(10)));
        assert_eq!(reader.next(Side::Server, &LIMITS, &mut &masked(0x00, b"a")[..], at(15)), Ok(None));
        assert_eq!(reader.next(Side::Server, &LIMITS, &mut &[0x00][..], at(16)), Err(Fault::TooSlow));
        assert!(LIMITS.assembly == Duration::from_secs(5));
    }

    #[test]
    fn an_idle_reader_owns_nothing() {
        let mut reader = FrameReader::new();
        let mut input = &masked(0x81, b"hi")[..];
        assert!(reader.next(Side::Server, &LIMITS, &mut input, Mono(0)).is_ok());
        assert!(reader.partial.is_none());
        assert_eq!(size_of::<FrameReader>(), size_of::<usize>());
    }

    #[test]
    fn a09_data_may_not_interleave_but_control_frames_may() {
        refused(&[masked(0x01, b"a"), masked(0x81, b"b")], 1002);
        refused(&[masked(0x01, b"a"), masked(0x02, b"b")], 1002);
        refused(&[masked(0x80, b"b")], 1002);
        refused(&[masked(0x00, b"b")], 1002);
        check(
            &[masked(0x01, b"a"), masked(0x89, b"p"), masked(0x8a, b"q"), masked(0x80, b"b")],
            Ok(vec![Incoming::Ping(b"p".into()), Incoming::Pong(b"q".into()), text("ab")]),
        );
    }

    #[test]
    fn a10_control_frames_are_short_and_whole() {
        for opcode in [0x8, 0x9, 0xa] {
            refused(&[masked(0x80 | opcode, &[0; 126])], 1002);
            refused(&[masked(opcode, b"x")], 1002);
        }
        check(&[masked(0x89, &[7; 125])], Ok(vec![Incoming::Ping(vec![7; 125])]));
    }

    #[test]
    fn a12_close_frames_carry_a_legal_code_and_reason() {
        for code in [0u16, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535] {
            refused(&[masked(0x88, &code.to_be_bytes())], 1002);
        }
        for code in [1000u16, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999] {
            let body = close_body(code, "bye");
            check(&[masked(0x88, &body)], Ok(vec![Incoming::Close(Some(code), "bye".into())]));
        }
        refused(&[masked(0x88, &[3])], 1002);
        refused(&[masked(0x88, &[3, 0xe8, 0xff])], 1007);
        check(&[masked(0x88, &[])], Ok(vec![Incoming::Close(None, String::new())]));
    }

    #[test]
    fn a15_text_must_be_utf8_wherever_it_is_cut() {
        let bad: [&[u8]; 9] = [
            b"\x80",
            b"\xc0\x80",
            b"\xe0\x80\x80",
            b"\xed\xa0\x80",
            b"\xf0\x80\x80\x80",
            b"\xf4\x90\x80\x80",
            b"\xf5\x80\x80\x80",
            b"\xce\xbaa\xff",
            b"\xe2\x82",
        ];
        for bytes in bad {
            refused(&[masked(0x81, bytes)], 1007);
            for cut in 0..=bytes.len() {
                refused(&[masked(0x01, &bytes[..cut]), masked(0x80, &bytes[cut..])], 1007);
            }
        }
        let good = "aé€𝄞\u{10ffff}".as_bytes();
        for cut in 0..=good.len() {
            check(
                &[masked(0x01, &good[..cut]), masked(0x80, &good[cut..])],
                Ok(vec![text(std::str::from_utf8(good).unwrap())]),
            );
        }
    }

    #[test]
    fn a15_a_bad_byte_is_refused_before_the_message_ends() {
        let mut reader = FrameReader::new();
        let whole = masked(0x81, b"abc\xffdef");
        let mut input = &whole[..10];
        assert_eq!(reader.next(Side::Server, &LIMITS, &mut input, Mono(0)), Err(Fault::NotUtf8));
    }

    #[test]
    fn the_accept_key_is_that_of_the_rfc() {
        assert_eq!(accept_key("dGhlIHNhbXBsZSBub25jZQ==").as_deref(), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        for bad in ["", "dGhlIHNhbXBsZSBub25jZQ", "AAAA", "dGhlIHNhbXBsZSBub25jZTE=", "%%%%"] {
            assert_eq!(accept_key(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_close_reason_is_cut_at_a_character() {
        assert_eq!(close_body(4200, &"é".repeat(80)).len(), 2 + 122);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            bodies in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..400), 1..6),
            mask: [u8; 4],
            step in 1usize..50,
        ) {
            let mut bytes = Vec::new();
            for body in &bodies {
                write_masked_frame(Opcode::Binary, true, body, mask, &mut bytes);
            }
            let got = read_in_steps(&bytes, step).unwrap();
            prop_assert_eq!(got, bodies.into_iter().map(Incoming::Binary).collect::<Vec<_>>());
        }

        #[test]
        fn no_bytes_can_make_it_panic_or_keep_more_than_the_limit(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let mut reader = FrameReader::new();
            let mut input = &bytes[..];
            while let Ok(Some(_)) = reader.next(Side::Server, &LIMITS, &mut input, Mono(0)) {}
            let kept = reader.partial.map_or(0, |p| p.message.capacity() + p.control.capacity());
            assert!(kept <= 2 * LIMITS.message_bytes);
        }
    }
}
