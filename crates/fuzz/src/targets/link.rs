//! The link between gateway processes and the one with the log: every message read as its writer meant it, or refused.
//!
//! The other reading knows each message as a table of shapes and walks it byte by byte; it makes no value. What it takes the
//! link's reader must take, and nothing else. What lies behind a tag or a number of a list that this table does not know yet
//! it does not judge: there only the way back is checked. Whoever adds a field to a message adds its shape here.

use grandstand_core::names::{ClientMsgId, Key, RoomId, UserId};
use grandstand_core::regions::Region;
use grandstand_core::rng::Rng;
use grandstand_server::link::codec::{FRAME_MAX, Fault, Frames, read_down, read_up, write_down, write_up};

use crate::bytes::{number, outcome, text, ways, word};

/// What follows in a message.
enum Shape {
    /// So many bytes that may be anything.
    Any(usize),
    /// 0 or 1.
    Flag,
    /// A place in a list that has so many.
    Below(u8),
    /// Eight bytes, little-endian, of a number with a rule.
    Rule(fn(u64) -> bool),
    /// Four bytes of an epoch; with `true`, or of none.
    Epoch(bool),
    /// Two bytes of an HTTP status.
    Status,
    Bytes,
    Text(Words),
    Opt(&'static [Shape]),
    List(&'static [Shape]),
    /// A tag, and what follows each.
    One(&'static [(u8, &'static [Shape])]),
    Of(&'static [Shape]),
    HeaderName,
    HeaderValue,
    /// Rising numbers of four bytes, at most 1 024.
    Marks,
    /// 4 096 bytes, none above 53.
    Registers,
}

#[derive(Clone, Copy)]
enum Words {
    Any,
    Room,
    User,
    Key,
    ClientMsgId,
    LikeKind,
    Region,
    /// What names a session or a key.
    Token,
    Peer,
    Method,
    Target,
}

use Shape::{
    Any, Below, Bytes, Epoch, Flag, HeaderName, HeaderValue, List, Marks, Of, One, Opt, Registers, Rule, Status, Text,
};

const LIMIT: u64 = 1 << 53;
const POSITION: Shape = Rule(|n| n < LIMIT);
/// Twenty bits of epoch, not 0, above 33 of seq, at most 2^32.
const ID: Shape = Rule(|n| n < LIMIT && n >> 33 >= 1 && n & ((1 << 33) - 1) <= 1 << 32);
const SEQ: Shape = Rule(|n| n <= 1 << 32);
const WORKER: Shape = Any(2);
const CONN: Shape = Any(10);
const U32: Shape = Any(4);
const U64: Shape = Any(8);
const ROOM: Shape = Text(Words::Room);
const USER: Shape = Text(Words::User);
const WORDS: Shape = Text(Words::Any);

const HEADERS: Shape = List(&[HeaderName, HeaderValue]);
const KIND: Shape = Text(Words::LikeKind);
const TOTALS: Shape = List(&[KIND, U64]);
const SEEN: Shape = Of(&[U32, U32, One(&[(0, &[Marks]), (1, &[Registers])])]);
const ORDER: &[Shape] =
    &[One(&[(0, &[Opt(&[U32, U32])]), (1, &[U64]), (2, &[Opt(&[U64, U64]), Opt(&[U64])])]), USER, WORDS, U64];
const SHARE: &[Shape] = &[U32, U32, Opt(ORDER), U32, Flag];
const PUBLISH: &[Shape] = &[ROOM, USER, WORDS, List(&[WORDS]), Below(3), Text(Words::ClientMsgId), WORDS, Opt(&[ID])];
const SETTINGS: &[Shape] = &[
    WORDS,
    Below(4),
    List(&[Text(Words::Key)]),
    Flag,
    Flag,
    Flag,
    Any(16),
    Opt(&[U32]),
    Opt(&[U32]),
    Any(12),
    Opt(&[U64]),
    Below(4),
    List(&[ID]),
    Below(3),
    U32,
    U32,
    Below(2),
    Opt(&[U32]),
    Any(12),
    List(&[WORDS, U32]),
    List(&[WORDS]),
    List(&[WORDS, U64]),
    Any(16),
    Flag,
    Flag,
    Flag,
    Opt(&[WORDS]),
    List(&[ID, U64]),
    List(&[Text(Words::Region)]),
    U32,
    Opt(&[U64]),
    U64,
];
const TERM: Shape = Any(16);
const TOKEN: Shape = Text(Words::Token);
const ACCESS: &[Shape] = &[List(&[One(&[(0, &[USER]), (1, &[TOKEN]), (2, &[TOKEN])]), TERM]), Opt(&[TERM])];
const SILENT: &[Shape] = &[ROOM, Text(Words::Key), Text(Words::Key), U64, Flag];
const INFO: &[Shape] =
    &[ROOM, Of(SETTINGS), POSITION, List(&[Epoch(false), SEQ]), POSITION, U64, TOTALS, WORDS, WORDS, Flag];
const PIECE: &[Shape] = &[
    ID,
    Below(4),
    U64,
    Flag,
    Opt(&[U64]),
    Below(6),
    Bytes,
    Opt(&[USER, Opt(&[Text(Words::ClientMsgId)])]),
    Below(3),
    Flag,
    Opt(&[One(&[(0, &[ID]), (1, &[USER]), (2, &[]), (3, &[USER, U64])])]),
    Opt(&[U64, U32, U32, Flag, Opt(&[USER]), Opt(&[ID])]),
];
const PAGE: &[Shape] = &[List(PIECE), POSITION];
const RESUME: &[Shape] = &[One(&[
    (0, &[POSITION, U64]),
    (1, &[POSITION, U64, POSITION, Opt(&[U64, ID, ID]), POSITION]),
    (2, &[Below(2), POSITION, U64]),
])];
const ANSWER: &[Shape] = &[One(&[
    (0, &[ID, Any(2), SEQ, Flag]),
    (1, &[Flag, ID, U32, Flag, Flag, ROOM]),
    (2, &[U64, Of(SETTINGS)]),
    (3, &[Opt(&[ID])]),
    (4, &[U64]),
    (5, &[Below(26), WORDS, Opt(&[U64]), List(&[WORDS, WORDS])]),
    (20, &[ID, Any(2), Flag, Opt(&[One(&[(0, &[]), (1, &[ID])])])]),
    (45, &[ID]),
])];
const HEAD: &[Shape] = &[Status, HEADERS];
const PART: &[Shape] = &[One(&[(0, &[Of(HEAD), Bytes]), (1, HEAD), (2, &[Bytes]), (3, &[]), (4, &[])])];
const PEER: &[(u8, &[Shape])] =
    &[(32, &[CONN, U64, ROOM, WORDS, CONN, U64]), (33, &[CONN, U64, Opt(&[Flag])]), (34, &[U64])];
const MAIL: &[Shape] = &[One(&[
    (1, &[ROOM, Opt(INFO)]),
    (2, &[ROOM, List(PIECE), U32]),
    (3, INFO),
    (4, INFO),
    (5, &[CONN, U64, ROOM, One(&[(0, &[Of(RESUME), Of(PAGE)]), (1, &[]), (2, &[]), (3, &[U64, U64]), (4, &[])])]),
    (6, &[CONN, U64, ROOM, One(&[(0, PAGE), (1, &[]), (2, &[]), (3, &[U64, U64]), (4, &[])])]),
    (7, &[CONN, U64, Of(ANSWER)]),
    (8, &[CONN, Of(PART)]),
    (9, &[ROOM, U64, One(&[(0, PAGE), (1, &[]), (2, &[]), (3, &[U64, U64]), (4, &[])])]),
    (10, &[List(&[ROOM, TOTALS])]),
    (11, &[U64, U64]),
    (20, &[U64, List(&[ID, U64, U64, Bytes]), Of(ACCESS), List(&[USER, Opt(&[U64])]), List(SILENT)]),
    (40, &[CONN, ROOM, Text(Words::ClientMsgId), Opt(&[ID])]),
    (45, &[CONN, ROOM, Text(Words::ClientMsgId)]),
    (50, &[ROOM, USER, Opt(&[U64])]),
    (51, &[ROOM, ID]),
    (PEER[0].0, PEER[0].1),
    (PEER[1].0, PEER[1].1),
    (PEER[2].0, PEER[2].1),
])];
const UP: &[Shape] = &[One(&[
    (1, &[U32, WORDS, Any(6), Opt(ORDER), Opt(ORDER)]),
    (2, &[WORKER, ROOM]),
    (3, &[ROOM]),
    (4, &[CONN, U64, Of(PUBLISH)]),
    (5, &[CONN, U64, ROOM, POSITION]),
    (6, &[CONN, U64, ROOM, POSITION, POSITION]),
    (7, &[CONN, Text(Words::Peer), Text(Words::Method), Text(Words::Target), HEADERS, Bytes]),
    (8, &[CONN]),
    (9, &[CONN]),
    (10, &[List(&[U64]), Any(56), Any(40), List(&[ROOM, U32, U32, U64, U64, U64, SEEN])]),
    (11, &[WORKER, U64, ROOM, POSITION, POSITION]),
    (12, &[U64, U64, U64, List(&[ROOM, List(&[KIND, List(&[USER, U32])])])]),
    (20, &[ROOM, USER, ID]),
    (50, &[ROOM, USER, ID, WORDS]),
    (32, &[One(&[(0, &[]), (1, &[WORKER])]), One(PEER)]),
    (60, &[U32, Flag]),
    (61, &[List(&[Below(4), U64, U32, Flag])]),
])];
const DOWN: &[Shape] = &[One(&[
    (1, SHARE),
    (2, &[WORDS]),
    (3, &[WORKER, Of(MAIL)]),
    (4, &[Flag, Flag, POSITION, Epoch(true), Below(4)]),
    (5, &[List(&[ROOM, U32, U32, U32, U32])]),
    (6, ORDER),
    (7, SHARE),
    (8, &[List(&[Below(4), U64, Opt(&[U32])])]),
])];

// ---- the other reading -----------------------------------------------------------------------------------------------

/// Why the other reading went no further.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stop {
    Wrong,
    /// Newer than its table.
    Unknown,
}

fn take<'a>(bytes: &mut &'a [u8], n: usize) -> Result<&'a [u8], Stop> {
    let (front, rest) = bytes.split_at_checked(n).ok_or(Stop::Wrong)?;
    *bytes = rest;
    Ok(front)
}

fn little(bytes: &mut &[u8], n: usize) -> Result<u64, Stop> {
    Ok(take(bytes, n)?.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

fn holds(yes: bool) -> Result<(), Stop> {
    if yes { Ok(()) } else { Err(Stop::Wrong) }
}

fn walk(shapes: &[Shape], bytes: &mut &[u8]) -> Result<(), Stop> {
    for shape in shapes {
        match shape {
            Any(n) => drop(take(bytes, *n)?),
            Flag => holds(little(bytes, 1)? < 2)?,
            Below(n) if little(bytes, 1)? < u64::from(*n) => {}
            Below(_) => return Err(Stop::Unknown),
            Rule(rule) => holds(rule(little(bytes, 8)?))?,
            Epoch(or_none) => {
                let n = little(bytes, 4)?;
                holds((1..1 << 20).contains(&n) || (n == 0 && *or_none))?;
            }
            Status => holds((100..1_000).contains(&little(bytes, 2)?))?,
            Bytes => {
                let n = little(bytes, 4)?;
                take(bytes, n as usize)?;
            }
            Text(words) => {
                let n = little(bytes, 4)?;
                let said = std::str::from_utf8(take(bytes, n as usize)?).map_err(|_| Stop::Wrong)?;
                judge(*words, said)?;
            }
            HeaderName => {
                let n = little(bytes, 4)?;
                let name = take(bytes, n as usize)?;
                holds(!name.is_empty() && name.len() < 65_536 && name.iter().all(|b| is_token(*b)))?;
            }
            HeaderValue => {
                let n = little(bytes, 4)?;
                let value = take(bytes, n as usize)?;
                holds(value.iter().all(|b| *b == b'\t' || (*b >= b' ' && *b != 0x7f)))?;
            }
            Opt(inside) => match little(bytes, 1)? {
                0 => {}
                1 => walk(inside, bytes)?,
                _ => return Err(Stop::Wrong),
            },
            List(item) => {
                for _ in 0..little(bytes, 4)? {
                    walk(item, bytes)?;
                }
            }
            One(known) => {
                let tag = little(bytes, 1)?;
                let (_, inside) = known.iter().find(|(known, _)| u64::from(*known) == tag).ok_or(Stop::Unknown)?;
                walk(inside, bytes)?;
            }
            Of(inside) => walk(inside, bytes)?,
            Marks => {
                let (n, mut least) = (little(bytes, 4)?, 0);
                for _ in 0..n {
                    let mark = little(bytes, 4)?;
                    holds(mark >= least)?;
                    least = mark + 1;
                }
                holds(n <= 1_024)?;
            }
            Registers => {
                let n = little(bytes, 4)? as usize;
                let registers = take(bytes, n)?;
                holds(n == 4_096 && registers.iter().all(|rank| *rank <= 53))?;
            }
        }
    }
    Ok(())
}

/// Source: RFC 9110, 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn judge(words: Words, said: &str) -> Result<(), Stop> {
    holds(match words {
        Words::Any => true,
        Words::Room => RoomId::parse(said).is_some(),
        Words::User => UserId::parse(said).is_some(),
        Words::Key => Key::parse(said).is_some(),
        Words::ClientMsgId => ClientMsgId::parse(said).is_some(),
        Words::LikeKind => {
            let mut bytes = said.bytes();
            let word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
            said.len() <= 16 && bytes.next().is_some_and(|b| b.is_ascii_lowercase()) && bytes.all(word)
        }
        Words::Region => Region::parse(said).is_some(),
        Words::Token => (1..=256).contains(&said.len()) && !said.chars().any(char::is_control),
        Words::Peer => said.parse::<std::net::SocketAddr>().is_ok(),
        Words::Method => !said.is_empty() && said.bytes().all(is_token),
        // Which texts are URIs is the library's to say: a plain path is one.
        Words::Target => {
            let plain = |b: u8| b.is_ascii_alphanumeric() || b"/._~-".contains(&b);
            if said.starts_with('/') && said.len() < 60_000 && said.bytes().all(plain) {
                return Ok(());
            }
            return Err(Stop::Unknown);
        }
    })
}

// ---- inputs ----------------------------------------------------------------------------------------------------------

/// A byte that says who speaks, then frames.
pub fn generate(rng: &mut Rng) -> Vec<u8> {
    let up = rng.chance(1, 2);
    let mut out = vec![u8::from(up)];
    for _ in 0..1 + rng.below(3) {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        make(if up { UP } else { DOWN }, rng, &mut out);
        let len = (out.len() - start - 4) as u32;
        out[start..start + 4].copy_from_slice(&len.to_le_bytes());
    }
    out
}

/// Makes the first frame as long as all that is there, so that it is read.
pub fn mend(bytes: &mut [u8], rng: &mut Rng) {
    if bytes.len() >= 5 && rng.chance(3, 4) {
        let len = (bytes.len() - 5) as u32;
        bytes[1..5].copy_from_slice(&len.to_le_bytes());
    }
}

fn make(shapes: &[Shape], rng: &mut Rng, out: &mut Vec<u8>) {
    let put = |out: &mut Vec<u8>, bytes: &[u8]| {
        out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        out.extend_from_slice(bytes);
    };
    for shape in shapes {
        match shape {
            Any(n) => out.extend((0..*n).map(|_| rng.next() as u8)),
            Flag => out.push(rng.below(2) as u8),
            Below(n) => out.push(rng.below(u64::from(*n)) as u8),
            Rule(rule) => {
                let n = [number(rng), 1 << 33 | rng.below(1 << 32), 7 << 33].into_iter().find(|n| rule(*n));
                out.extend_from_slice(&n.unwrap_or(0).to_le_bytes());
            }
            Epoch(or_none) => {
                let n = if *or_none { 0 } else { 1 };
                out.extend_from_slice(&(n + rng.below(99) as u32).to_le_bytes());
            }
            Status => out.extend_from_slice(&(100 + rng.below(900) as u16).to_le_bytes()),
            Bytes => put(out, &(0..rng.below(9)).map(|_| rng.next() as u8).collect::<Vec<_>>()),
            Text(words) => {
                let said = match words {
                    Words::Any => text(rng, 3),
                    Words::Room => ["a", "match:2022-final"][rng.below(2) as usize].to_owned(),
                    Words::User => ["u_q9z", "ü"][rng.below(2) as usize].to_owned(),
                    Words::Key | Words::ClientMsgId => "goal:5512".to_owned(),
                    Words::LikeKind => ["like", "a", "heart_2"][rng.below(3) as usize].to_owned(),
                    Words::Region => ["GB", "GB-SCT", "de"][rng.below(3) as usize].to_owned(),
                    Words::Token => ["s-7", "idp-2026"][rng.below(2) as usize].to_owned(),
                    Words::Peer => ["127.0.0.1:9", "[2001:db8::1]:443"][rng.below(2) as usize].to_owned(),
                    Words::Method => ["GET", "POST", "QUERY"][rng.below(3) as usize].to_owned(),
                    Words::Target => ["/v1/rooms", "/v1/rooms/a/snapshot?min=7", "*"][rng.below(3) as usize].to_owned(),
                };
                put(out, said.as_bytes());
            }
            HeaderName => put(out, [&b"host"[..], b"x", b"Vary"][rng.below(3) as usize]),
            HeaderValue => put(out, [&b"a"[..], b"", b"\xff b"][rng.below(3) as usize]),
            Opt(inside) => {
                let there = rng.chance(1, 2);
                out.push(u8::from(there));
                if there {
                    make(inside, rng, out);
                }
            }
            List(item) => {
                let n = rng.below(4) as u32;
                out.extend_from_slice(&n.to_le_bytes());
                for _ in 0..n {
                    make(item, rng, out);
                }
            }
            One(known) => {
                let (tag, inside) = &known[rng.below(known.len() as u64) as usize];
                out.push(*tag);
                make(inside, rng, out);
            }
            Of(inside) => make(inside, rng, out),
            Marks => {
                let n = rng.below(5) as u32;
                out.extend_from_slice(&n.to_le_bytes());
                (0..n).for_each(|mark| out.extend_from_slice(&(mark * 7 + rng.below(7) as u32).to_le_bytes()));
            }
            Registers => put(out, &(0..4_096).map(|_| rng.below(54) as u8).collect::<Vec<_>>()),
        }
    }
}

// ---- the check -------------------------------------------------------------------------------------------------------

/// Reads a frame and writes it again, without its length.
fn again(up: bool, frame: &[u8]) -> Result<Vec<u8>, Fault> {
    let mut out = Vec::new();
    match up {
        true => write_up(&read_up(frame)?, &mut out)?,
        false => write_down(&read_down(frame)?, &mut out)?,
    }
    Ok(out.split_off(4))
}

/// The frames of a stream as the link cuts them out, fed in these pieces, and whether it ends in one that is too long.
fn framed(pieces: &[&[u8]]) -> (Vec<Vec<u8>>, bool) {
    let (mut frames, mut found) = (Frames::default(), Vec::new());
    for mut piece in pieces.iter().copied() {
        while !piece.is_empty() {
            frames.fill(&mut piece).expect("memory can be read");
            loop {
                match frames.whole() {
                    Ok(Some(frame)) => found.push(frame.to_vec()),
                    Ok(None) => break,
                    Err(fault) => {
                        assert_eq!(fault, Fault::TooLong);
                        return (found, true);
                    }
                }
            }
        }
    }
    (found, false)
}

/// The same, by hand.
fn framed_slowly(mut bytes: &[u8]) -> (Vec<Vec<u8>>, bool) {
    let mut found = Vec::new();
    while let Some((len, rest)) = bytes.split_first_chunk::<4>() {
        let len = len.iter().rev().fold(0usize, |sum, byte| sum << 8 | usize::from(*byte));
        if len > FRAME_MAX {
            return (found, true);
        }
        let Some(frame) = rest.get(..len) else { break };
        found.push(frame.to_vec());
        bytes = &rest[len..];
    }
    (found, false)
}

pub fn check(input: &[u8]) -> u64 {
    let Some((who, stream)) = input.split_first() else { return 0 };
    let up = who & 1 == 1;
    let (frames, too_long) = framed_slowly(stream);
    for way in ways(stream) {
        assert_eq!(framed(&way), (frames.clone(), too_long), "cut in other places");
    }
    let mut ends = vec![u64::from(up), u64::from(too_long)];
    for frame in &frames {
        let mut rest = &frame[..];
        let slow = walk(if up { UP } else { DOWN }, &mut rest).and_then(|()| holds(rest.is_empty()));
        let fast = again(up, frame);
        match slow {
            Ok(()) => assert!(fast.is_ok(), "{fast:?} of {}", frame.escape_ascii()),
            Err(Stop::Wrong) => assert!(fast.is_err(), "it is taken: {}", frame.escape_ascii()),
            Err(Stop::Unknown) => {}
        }
        if let Ok(written) = &fast {
            // A header's name, a URI, a region, a room's table of amounts or of pins and the list of what is revoked may be written in
            // another way than they came; then that is the way. Mail with rooms' settings: their facts, changes of them, answers.
            let may_differ = if up { frame[0] == 7 } else { frame[0] == 3 && [1, 3, 4, 7, 8, 20].contains(&frame[3]) };
            if !may_differ {
                assert_eq!(written.escape_ascii().to_string(), frame.escape_ascii().to_string(), "written again");
            }
            assert_eq!(again(up, written).as_ref(), Ok(written), "written twice");
        }
        let tag = |at: usize| frame.get(at).copied().map_or(0, u64::from);
        ends.push(match fast {
            Ok(_) => 1_000 + tag(0) * 256 + if up { 0 } else { tag(3) },
            Err(fault) => word(&fault.to_string()),
        });
    }
    ends.truncate(4);
    outcome(&ends)
}
