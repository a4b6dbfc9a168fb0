//! permessage-deflate (RFC 7692) without context takeover: what is agreed on, and the packing of one body at a time.
//!
//! Each packed body stands alone, so one packed copy serves every client that agreed, and neither side keeps anything between
//! two of them: a server needs one [`Deflater`] and one [`Inflater`] a thread, whatever the number of its connections. An
//! offer that can be met is always met, with `server_no_context_takeover` and `client_no_context_takeover`.
//!
//! An inflater writes no byte over the limit it is given: 16 KiB can hold 16 MB.
//!
//! The awkward case is a client that wants a smaller window than packing uses. A body never refers back farther than it is
//! long, so such a client is sent packed what is not longer than its window, and the rest as it is: a sender may leave any
//! body unpacked.
//!
//! Numbers: docs/decisions/0019-deflate.md (window, level).

use std::borrow::Cow;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use crate::http::{Head, Refusal};
use crate::ws::{Fault, Incoming, Packed};

/// Packing looks back 4 KiB. What is alike in room frames lies close by: the widest window would save less than 1 % more, and
/// clients that have 4 KiB to spare are often those that say so.
const WINDOW_BITS: u8 = 12;
const WINDOW_BITS_MAX: u8 = 15;
const LEVEL: Compression = Compression::new(2);
/// What every body that was flushed ends with; it is left out on the wire. Source: RFC 7692 section 7.2.1.
const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];

const HEADER: &str = "sec-websocket-extensions";
const NAME: &str = "permessage-deflate";

/// What client and server have agreed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Agreed {
    /// The client's limit of the server's window, where it named one: 8 to 15.
    server_bits: Option<u8>,
}

impl Agreed {
    /// Value of the answer's `Sec-WebSocket-Extensions`.
    pub fn answer(self) -> String {
        let mut answer = format!("{NAME}; server_no_context_takeover; client_no_context_takeover");
        if let Some(bits) = self.server_bits {
            answer.push_str(&format!("; server_max_window_bits={bits}"));
        }
        answer
    }

    /// The largest body that may be sent packed.
    pub fn reach(self) -> Reach {
        Reach(self.server_bits.unwrap_or(WINDOW_BITS_MAX))
    }
}

/// How long a body a client takes packed, in the bits of its window; the default is none at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reach(u8);

impl Reach {
    /// Whether packed bodies may be sent, and may come, at all.
    pub fn is_agreed(self) -> bool {
        self.0 > 0
    }

    /// Whether a body of `len` bytes may be sent as [`Deflater::default`] packs it.
    pub fn holds(self, len: usize) -> bool {
        self.0 >= WINDOW_BITS || (self.is_agreed() && len <= 1 << self.0)
    }
}

/// Takes the first offer of a request that can be met; `None` when there is none.
/// Errors: 400 when the header does not follow its grammar (RFC 6455 section 9.1).
pub fn agree(head: &Head<'_>) -> Result<Option<Agreed>, Refusal> {
    let mut agreed = None;
    for header in head.headers().filter(|h| h.name.eq_ignore_ascii_case(HEADER)) {
        let value = std::str::from_utf8(header.value).unwrap_or("\0");
        let offers = read_offers(value).ok_or(Refusal { status: 400, reason: "malformed Sec-WebSocket-Extensions" })?;
        agreed = agreed.or_else(|| offers.iter().find_map(judge));
    }
    Ok(agreed)
}

/// One extension a client offers, with its parameters.
struct Offer<'h> {
    name: &'h str,
    params: Vec<(&'h str, Option<Cow<'h, str>>)>,
}

/// Whether an offer can be met. One with a parameter that is unknown, named twice or out of its range is not
/// (RFC 7692 section 7.1).
fn judge(offer: &Offer<'_>) -> Option<Agreed> {
    if offer.name != NAME {
        return None;
    }
    let mut agreed = Agreed { server_bits: None };
    for (idx, (name, value)) in offer.params.iter().enumerate() {
        if offer.params[..idx].iter().any(|(other, _)| other == name) {
            return None;
        }
        match (*name, value.as_deref()) {
            ("server_no_context_takeover" | "client_no_context_takeover" | "client_max_window_bits", None) => {}
            ("client_max_window_bits", Some(bits)) => drop(read_bits(bits)?),
            ("server_max_window_bits", Some(bits)) => agreed.server_bits = Some(read_bits(bits)?),
            _ => return None,
        }
    }
    Some(agreed)
}

fn read_bits(text: &str) -> Option<u8> {
    (8..=WINDOW_BITS_MAX).find(|bits| bits.to_string() == text)
}

/// Reads one header value. Errors: `None` when it does not follow the grammar.
fn read_offers(value: &str) -> Option<Vec<Offer<'_>>> {
    let mut text = Text { rest: value };
    let mut offers = Vec::new();
    loop {
        // A list may have empty places (RFC 9110 section 5.6.1).
        while text.take(',') {}
        if text.rest.is_empty() {
            return Some(offers);
        }
        let mut offer = Offer { name: text.token()?, params: Vec::new() };
        while text.take(';') {
            let name = text.token()?;
            let value = match text.take('=') {
                false => None,
                true if text.rest.starts_with('"') => Some(text.quoted()?),
                true => Some(Cow::Borrowed(text.token()?)),
            };
            offer.params.push((name, value));
        }
        offers.push(offer);
        if !text.rest.is_empty() && !text.rest.starts_with(',') {
            return None;
        }
    }
}

struct Text<'h> {
    rest: &'h str,
}

impl<'h> Text<'h> {
    /// Passes over `c` and the white space around it, when it is next.
    fn take(&mut self, c: char) -> bool {
        self.skip();
        let Some(rest) = self.rest.strip_prefix(c) else { return false };
        self.rest = rest;
        self.skip();
        true
    }

    fn skip(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
    }

    fn token(&mut self) -> Option<&'h str> {
        let (token, rest) = self.rest.split_at(self.rest.find(|c| !is_token(c)).unwrap_or(self.rest.len()));
        self.rest = rest;
        (!token.is_empty()).then_some(token)
    }

    /// A quoted string whose content is a token, as RFC 6455 demands.
    fn quoted(&mut self) -> Option<Cow<'h, str>> {
        let mut content = String::new();
        let mut chars = self.rest.strip_prefix('"')?.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    self.rest = &self.rest[at + 2..];
                    return (!content.is_empty()).then_some(content.into());
                }
                '\\' => content.push(chars.next().map(|(_, c)| c).filter(|c| is_token(*c))?),
                c if is_token(c) => content.push(c),
                _ => return None,
            }
        }
        None
    }
}

fn is_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c)
}

/// Packs bodies, each by itself. Owns nothing before the first.
pub struct Deflater {
    bits: u8,
    state: Option<Compress>,
    out: Vec<u8>,
}

impl Default for Deflater {
    fn default() -> Deflater {
        Deflater { bits: WINDOW_BITS, state: None, out: Vec::new() }
    }
}

impl Deflater {
    /// One whose bodies a client of this reach takes whatever their length. A window of 8 bits is made with 9, of which
    /// deflate looks back 2^9 - 262 bytes, which are fewer than 2^8.
    pub fn within(reach: Reach) -> Deflater {
        Deflater { bits: reach.0.clamp(9, WINDOW_BITS), ..Deflater::default() }
    }

    /// The body packed, for a frame that says so; `None` when that would not be shorter.
    pub fn pack_shorter(&mut self, body: &[u8]) -> Option<&[u8]> {
        self.pack(body, body.len().saturating_sub(1))
    }

    /// The body packed into at most `bytes_max` bytes, for a frame that says so.
    pub fn pack(&mut self, body: &[u8], bytes_max: usize) -> Option<&[u8]> {
        let state = self.state.get_or_insert_with(|| Compress::new_with_window_bits(LEVEL, false, self.bits));
        state.reset();
        self.out.clear();
        // Whatever fills this up is longer, whether it came to its end or not.
        self.out.reserve_exact(bytes_max + TAIL.len() + 1);
        let status = state.compress_vec(body, &mut self.out, FlushCompress::Sync).ok()?;
        let whole = status == Status::Ok && state.total_in() == body.len() as u64;
        self.out.strip_suffix(&TAIL).filter(|packed| whole && packed.len() <= bytes_max)
    }
}

/// Opens packed bodies, each by itself. Owns nothing before the first.
#[derive(Default)]
pub struct Inflater {
    state: Option<Decompress>,
}

impl Inflater {
    /// What a packed body says, at most `bytes_max` long.
    /// Errors: 1009 when it is longer, 1002 when it is not deflate data, 1007 for text that is not UTF-8.
    pub fn open(&mut self, packed: Packed, bytes_max: usize) -> Result<Incoming, Fault> {
        let Packed { is_text, mut body } = packed;
        body.extend_from_slice(&TAIL);
        let out = self.inflate(&body, bytes_max)?;
        match is_text {
            false => Ok(Incoming::Binary(out)),
            true => String::from_utf8(out).map(Incoming::Text).map_err(|_| Fault::NotUtf8),
        }
    }

    fn inflate(&mut self, body: &[u8], bytes_max: usize) -> Result<Vec<u8>, Fault> {
        const BROKEN: Fault = Fault::Protocol("broken deflate data");
        let state = self.state.get_or_insert_with(|| Decompress::new_with_window_bits(false, WINDOW_BITS_MAX));
        state.reset(false);
        // One byte more than may be, so that a longer one is seen; less at first, for most are short.
        let mut out = Vec::with_capacity((4 * body.len()).min(bytes_max + 1));
        loop {
            let rest = &body[state.total_in() as usize..];
            let before = (rest.len(), out.len());
            let status = state.decompress_vec(rest, &mut out, FlushDecompress::Sync).map_err(|_| BROKEN)?;
            let rest = &body[state.total_in() as usize..];
            if out.len() > bytes_max {
                return Err(Fault::TooLarge);
            }
            let full = out.len() == out.capacity();
            match status {
                // A last block may be followed by one zero byte in place of a flush (RFC 7692 section 7.2.3.5).
                Status::StreamEnd if rest.len() <= TAIL.len() || (rest.len() == TAIL.len() + 1 && rest[0] == 0) => {
                    break;
                }
                Status::StreamEnd => return Err(BROKEN),
                Status::Ok | Status::BufError if rest.is_empty() && !full => break,
                Status::Ok | Status::BufError if full => {
                    out.reserve_exact(out.len().max(64).min(bytes_max + 1 - out.len()));
                }
                Status::Ok | Status::BufError if (rest.len(), out.len()) == before => return Err(BROKEN),
                Status::Ok | Status::BufError => {}
            }
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use flate2::{Compress, Compression, FlushCompress};
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    use super::{Agreed, Deflater, Inflater, Reach, TAIL, agree};
    use crate::http::Head;
    use crate::ws::{Fault, Incoming, Packed};

    /// The answer to a request with these header lines; `Err` is the refusal's status.
    fn answer(lines: &[&str]) -> Result<Option<String>, u16> {
        let fields: String = lines.iter().map(|l| format!("Sec-WebSocket-Extensions: {l}\r\n")).collect();
        let text = format!("GET / HTTP/1.1\r\nHost: x\r\n{fields}\r\n");
        agree(&Head::parse(text.as_bytes()).unwrap()).map(|a| a.map(Agreed::answer)).map_err(|r| r.status)
    }

    const PLAIN: &str = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";

    fn agreed(offer: &str, more: &str) {
        assert_eq!(answer(&[offer]), Ok(Some(format!("{PLAIN}{more}"))), "{offer}");
    }

    #[test]
    fn what_clients_offer_is_agreed_to_without_context_takeover() {
        agreed("permessage-deflate", "");
        // Chromium and PyPI websockets; npm ws; the RFC's own examples.
        agreed("permessage-deflate; client_max_window_bits", "");
        agreed("permessage-deflate; server_no_context_takeover; client_max_window_bits=12", "");
        agreed("permessage-deflate;client_max_window_bits ;\tserver_max_window_bits=10", "; server_max_window_bits=10");
        agreed("permessage-deflate; server_max_window_bits=\"1\\5\"", "; server_max_window_bits=15");
        agreed(
            "permessage-deflate; client_no_context_takeover; server_max_window_bits=8",
            "; server_max_window_bits=8",
        );
    }

    #[test]
    fn the_first_offer_that_can_be_met_counts_over_all_lines() {
        agreed("permessage-deflate; server_max_window_bits=10, permessage-deflate", "; server_max_window_bits=10");
        agreed("permessage-deflate; unknown, , permessage-deflate; client_max_window_bits", "");
        agreed("x-webkit-deflate-frame, permessage-bzip2; level=\"9\", permessage-deflate", "");
        let lines = ["other; a=b", "permessage-deflate; server_max_window_bits=9", "permessage-deflate"];
        assert_eq!(answer(&lines), Ok(Some(format!("{PLAIN}; server_max_window_bits=9"))));
    }

    #[test]
    fn an_offer_with_a_parameter_that_breaks_its_rule_is_passed_over() {
        for offer in [
            "permessage-deflate; level=9",
            "permessage-deflate; server_no_context_takeover=1",
            "permessage-deflate; client_no_context_takeover; client_no_context_takeover",
            "permessage-deflate; server_max_window_bits=9; server_max_window_bits=9",
            "permessage-deflate; client_max_window_bits; client_max_window_bits=9",
            "permessage-deflate; server_max_window_bits",
            "permessage-deflate; server_max_window_bits=7",
            "permessage-deflate; server_max_window_bits=16",
            "permessage-deflate; server_max_window_bits=09",
            "permessage-deflate; client_max_window_bits=0",
            "permessage-deflate; client_max_window_bits=\"1x\"",
            "Permessage-Deflate",
            "",
        ] {
            assert_eq!(answer(&[offer]), Ok(None), "{offer}");
        }
        assert_eq!(answer(&[]), Ok(None));
    }

    #[test]
    fn a_header_that_breaks_its_grammar_is_refused() {
        for value in [
            "permessage-deflate;",
            "permessage-deflate; =9",
            "permessage-deflate; a=",
            "permessage-deflate; a=\"\"",
            "permessage-deflate; a=\"b c\"",
            "permessage-deflate; a=\"b",
            "permessage-deflate; a=\"b\\",
            "permessage-deflate other",
            "; permessage-deflate",
            "permessage/deflate",
            "permessage-deflate; größe",
        ] {
            assert_eq!(answer(&[value]), Err(400), "{value}");
            assert_eq!(answer(&["permessage-deflate", value]), Err(400), "{value}");
        }
    }

    #[test]
    fn a_small_window_takes_only_what_is_not_longer_than_it() {
        let reach = |bits| Agreed { server_bits: Some(bits) }.reach();
        assert!(!Reach::default().is_agreed() && !Reach::default().holds(1));
        assert!(reach(8).holds(256) && !reach(8).holds(257));
        assert!(reach(11).holds(2048) && !reach(11).holds(2049));
        assert!(reach(12).holds(1 << 20) && Agreed { server_bits: None }.reach().holds(1 << 20));
    }

    fn open(body: &[u8], bytes_max: usize) -> Result<Vec<u8>, Fault> {
        match Inflater::default().open(Packed { is_text: false, body: body.to_vec() }, bytes_max)? {
            Incoming::Binary(out) => Ok(out),
            other => panic!("binary became {other:?}"),
        }
    }

    #[test]
    fn the_examples_of_the_rfc_are_read() {
        // RFC 7692 sections 7.2.3.1, .3, .4 and .5, and a message of nothing.
        for body in [
            &[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00][..],
            &[0x00, 0x05, 0x00, 0xfa, 0xff, 0x48, 0x65, 0x6c, 0x6c, 0x6f, 0x00],
            &[0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00],
            &[0xf2, 0x48, 0x05, 0x00, 0x00, 0x00, 0xff, 0xff, 0xca, 0xc9, 0xc9, 0x07, 0x00],
        ] {
            assert_eq!(open(body, 5).as_deref(), Ok(&b"Hello"[..]), "{body:x?}");
        }
        assert_eq!(open(&[0x00], 5).as_deref(), Ok(&b""[..]));
    }

    #[test]
    fn each_body_stands_alone() {
        let body = b"the same words, the same words".repeat(30);
        let (mut deflater, mut inflater) = (Deflater::default(), Inflater::default());
        let first = deflater.pack_shorter(&body).unwrap().to_vec();
        assert_eq!(deflater.pack_shorter(b"x"), None, "nothing is gained");
        assert_eq!(deflater.pack_shorter(&body).unwrap(), first);
        for _ in 0..2 {
            let opened = inflater.open(Packed { is_text: false, body: first.clone() }, 1 << 14);
            assert_eq!(opened, Ok(Incoming::Binary(body.clone())));
            // A fault of one body is not the next one's.
            assert!(inflater.open(Packed { is_text: false, body: vec![0xff; 9] }, 1 << 14).is_err());
        }
        // What refers to an earlier body is broken.
        let mut state = Compress::new(Compression::best(), false);
        let mut pack = |out: &mut Vec<u8>| drop(state.compress_vec(&body, out, FlushCompress::Sync));
        let (mut one, mut two) = (Vec::with_capacity(2048), Vec::with_capacity(2048));
        pack(&mut one);
        pack(&mut two);
        assert_eq!(open(one.strip_suffix(&TAIL).unwrap(), 1 << 14), Ok(body.clone()));
        assert_eq!(open(two.strip_suffix(&TAIL).unwrap(), 1 << 14).map_err(Fault::code), Err(1002));
    }

    #[test]
    fn a13_a_bomb_is_ended_at_the_limit() {
        let zeros = vec![0; 16 << 20];
        let mut deflater = Deflater::default();
        let bomb = deflater.pack_shorter(&zeros).unwrap().to_vec();
        assert!(bomb.len() <= 128 << 10, "{} bytes", bomb.len());
        assert_eq!(open(&bomb, 16 << 10).map_err(Fault::code), Err(1009));
        let whole = deflater.pack_shorter(&zeros[..16 << 10]).unwrap().to_vec();
        assert_eq!(open(&whole, 16 << 10).map(|out| out.len()), Ok(16 << 10));
        let one_more = deflater.pack_shorter(&zeros[..(16 << 10) + 1]).unwrap().to_vec();
        assert_eq!(open(&one_more, 16 << 10).map_err(Fault::code), Err(1009));
    }

    #[test]
    fn what_is_no_deflate_data_is_a_fault_and_text_is_checked() {
        for body in
            [&[0xff; 40][..], &[0x07], &[0x01, 0x05, 0x00, 0x00, 0x00], &[0x03, 0x00, 0x03, 0x00, 0x03, 0x00, 9]]
        {
            assert_eq!(open(body, 100).map_err(Fault::code), Err(1002), "{body:x?}");
        }
        let mut deflater = Deflater::default();
        let body = deflater.pack(b"\xff\xfe", 64).unwrap().to_vec();
        let opened = Inflater::default().open(Packed { is_text: true, body }, 100);
        assert_eq!(opened.map_err(Fault::code), Err(1007));
    }

    proptest! {
        #[test]
        fn what_is_packed_is_read_back_in_every_window(
            words in proptest::collection::vec("[a-f]{1,9}", 0..2_000),
            noise in proptest::collection::vec(any::<u8>(), 0..300),
            bits in 8u8..=15,
        ) {
            let body = [words.join(" ").as_bytes(), &noise].concat();
            let reach = Agreed { server_bits: Some(bits) }.reach();
            let mut deflater = Deflater::within(reach);
            let packed = deflater.pack(&body, body.len() + body.len() / 8 + 64).expect("it fits").to_vec();
            // Read with a window no wider than agreed on: zlib's own bound for 8 bits is 9.
            let mut narrow = flate2::Decompress::new_with_window_bits(false, bits.max(9));
            let mut out = Vec::with_capacity(body.len() + 1);
            let whole = [&packed[..], &TAIL].concat();
            narrow.decompress_vec(&whole, &mut out, flate2::FlushDecompress::Sync).unwrap();
            prop_assert_eq!(&out, &body);
            prop_assert_eq!(open(&packed, body.len()), Ok(body.clone()));
            if let Some(shorter) = Deflater::default().pack_shorter(&body) {
                prop_assert!(shorter.len() < body.len());
                prop_assert_eq!(open(shorter, body.len()), Ok(body));
            }
        }

        #[test]
        fn no_bytes_can_make_it_panic_or_say_more_than_the_limit(
            bytes in proptest::collection::vec(any::<u8>(), 0..600),
            bytes_max in 0usize..3_000,
        ) {
            if let Ok(out) = open(&bytes, bytes_max) {
                prop_assert!(out.len() <= bytes_max);
            }
        }

        #[test]
        fn a_broken_body_never_panics_and_never_says_more_than_the_limit(
            words in proptest::collection::vec("[a-f]{1,9}", 1..400),
            at: u16,
            byte: u8,
            cut: u16,
        ) {
            let body = words.join(" ").into_bytes();
            let mut packed = Deflater::default().pack(&body, body.len() + 64).unwrap().to_vec();
            let n = packed.len();
            packed[usize::from(at) % n] = byte;
            packed.truncate(n - usize::from(cut) % n);
            if let Ok(out) = open(&packed, body.len()) {
                prop_assert!(out.len() <= body.len());
            }
        }

        #[test]
        fn no_header_can_make_it_panic(value in "[ -~]{0,80}") {
            let _ = answer(&[value.as_str()]);
        }
    }
}
