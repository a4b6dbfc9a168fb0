//! Bytes with a bias: what mutation puts in, where streams are cut, and numbers near every border.

use grandstand_core::rng::Rng;

/// Words that mean something to one of the readers.
const WORDS: &[&[u8]] = &[
    b"\r\n",
    b"\n",
    b"\r",
    b"\r\n\r\n",
    b"\0",
    b" ",
    b"\t",
    b":",
    b",",
    b"HTTP/1.1",
    b"HTTP/1.0",
    b"Transfer-Encoding: chunked\r\n",
    b"Content-Length: 5\r\n",
    b"Host: b\r\n",
    b"Upgrade",
    b"data:",
    b"id:",
    b"event:",
    b"retry:",
    b"\xef\xbb\xbf",
    b"\xe2\x80\xa8",
    b"\xe2\x80\x8b",
    b"\xf0\x9f\x98\x80",
    b"\xed\xa0\x80",
    b"\xc0\x80",
    b"\xff",
    b"\"",
    b"\\u0000",
    b"\\ud800",
    b"{\"a\":1,\"a\":1}",
    b"[[[[[[[[[[[[[[[[[",
    b"9007199254740992",
    b"18446744073709551616",
    b"1e400",
    b"-0",
    b"\x81\x80\0\0\0\0",
    b"\x88\x82\0\0\0\0\x03\xe8",
    b"\x7f\xff\xff\xff\xff\xff\xff\xff",
];

/// Changes `input` in one to eight places; `other` is what it may be crossed with.
pub fn mutate(input: &mut Vec<u8>, other: &[u8], rng: &mut Rng) {
    for _ in 0..=rng.below(8) {
        let len = input.len() as u64;
        let at = rng.below(len + 1) as usize;
        match rng.below(9) {
            0 if len > 0 => {
                let at = rng.below(len) as usize;
                input[at] ^= 1 << rng.below(8);
            }
            1 if len > 0 => {
                let at = rng.below(len) as usize;
                input[at] = [0, 1, 0x7f, 0x80, 0xff, rng.next() as u8][rng.below(6) as usize];
            }
            2 => {
                let to = (at + 1 + rng.below(16) as usize).min(input.len());
                input.drain(at..to.max(at));
            }
            3 => input.truncate(at),
            4 | 5 => {
                let word = WORDS[rng.below(WORDS.len() as u64) as usize];
                input.splice(at..at, word.iter().copied());
            }
            6 if len > 0 => {
                let from = rng.below(len) as usize;
                let to = (from + 1 + rng.below(32) as usize).min(input.len());
                let run = input[from..to].to_vec();
                let times = if rng.chance(1, 20) { 200 } else { 1 + rng.below(3) as usize };
                input.splice(at..at, run.repeat(times));
            }
            7 if !other.is_empty() => {
                let from = rng.below(other.len() as u64) as usize;
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            _ => {
                let byte = rng.next() as u8;
                input.insert(at, byte);
            }
        }
    }
}

/// Where a stream of `len` bytes is cut: ascending, within it. The same for the same input.
pub fn cuts(input: &[u8], turn: u64) -> Vec<usize> {
    let mut rng = Rng::new(u64::from(crc32fast::hash(input)) << 8 | turn);
    let mut cuts: Vec<usize> = (0..=rng.below(6)).map(|_| rng.below(input.len() as u64 + 1) as usize).collect();
    cuts.sort_unstable();
    cuts.push(input.len());
    cuts
}

/// The same bytes in pieces, in the ways each stream is tried: at once, in random pieces, and (short ones) byte by byte.
pub fn ways(input: &[u8]) -> Vec<Vec<&[u8]>> {
    let mut ways = vec![vec![input]];
    for turn in 0..2 {
        let mut from = 0;
        let mut pieces = Vec::new();
        for cut in cuts(input, turn) {
            pieces.push(&input[from..cut]);
            from = cut;
        }
        ways.push(pieces);
    }
    if input.len() <= 2_048 {
        ways.push(input.chunks(1).collect());
    }
    ways
}

pub fn pick<'a, T: ?Sized>(from: &[&'a T], rng: &mut Rng) -> &'a T {
    from[rng.below(from.len() as u64) as usize]
}

/// A number at or near a border that some reader has.
pub fn number(rng: &mut Rng) -> u64 {
    const BORDERS: &[u64] = &[
        0,
        1,
        8,
        16,
        64,
        125,
        126,
        127,
        128,
        1_024,
        4_096,
        8_192,
        16_384,
        65_535,
        65_536,
        (1 << 31) - 1,
        1 << 32,
        1 << 33,
        (1 << 53) - 1,
        1 << 53,
        (1 << 63) - 1,
        u64::MAX,
    ];
    match rng.below(4) {
        0 => rng.next() >> rng.below(64),
        1 => BORDERS[rng.below(BORDERS.len() as u64) as usize].wrapping_add(1),
        2 => BORDERS[rng.below(BORDERS.len() as u64) as usize].wrapping_sub(1),
        _ => BORDERS[rng.below(BORDERS.len() as u64) as usize],
    }
}

/// Text with what texts are attacked by.
pub fn text(rng: &mut Rng, pieces_max: u64) -> String {
    const PIECES: &[&str] = &[
        "a",
        "goal",
        " ",
        "\n",
        "\r\n",
        "\t",
        "\0",
        "é",
        "e\u{301}",
        "\u{489}",
        "\u{200b}",
        "\u{200d}",
        "\u{202e}",
        "\u{2066}",
        "\u{feff}",
        "\u{ad}",
        "\u{2028}",
        "\u{2060}",
        "😀",
        "👩\u{200d}❤\u{fe0f}\u{200d}👨",
        "🇫🇷",
        "\u{e0067}",
        "\u{fe0f}",
        "<b>",
        "\"",
        "\\",
        "'",
        "null",
        "\u{fffe}",
        "\u{10ffff}",
        "data: x",
        "あ",
        "\u{1b}[31m",
        "\u{85}",
    ];
    (0..rng.below(pieces_max + 1)).map(|_| pick(PIECES, rng)).collect()
}

/// One outcome out of several numbers.
pub fn outcome(parts: &[u64]) -> u64 {
    parts.iter().fold(0xcbf2_9ce4_8422_2325, |hash, part| (hash ^ part).wrapping_mul(0x100_0000_01b3).rotate_left(23))
}

/// The words of a rule or a kind as a part of an outcome.
pub fn word(text: &str) -> u64 {
    u64::from(crc32fast::hash(text.as_bytes()))
}
