//! The part of the Protobuf wire format that records and checkpoints use, strict: fields ascend, varints are shortest, and
//! only varint, length-delimited and fixed32 fields exist, so there is nothing to recurse into and nothing to skip.
//!
//! Source: protobuf.dev, "Encoding". Nested messages are byte strings that their own reader takes apart, one level deep.

/// Appends fields. Zero, false and empty values are left out, as proto3 does; the `_some` forms write them too.
pub(crate) struct Encoder<'a>(pub(crate) &'a mut Vec<u8>);

impl Encoder<'_> {
    #[inline]
    pub(crate) fn varint(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.0.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.0.push(n as u8);
    }

    pub(crate) fn number_some(&mut self, field: u32, n: u64) {
        self.varint(u64::from(field << 3));
        self.varint(n);
    }

    pub(crate) fn number(&mut self, field: u32, n: u64) {
        if n != 0 {
            self.number_some(field, n);
        }
    }

    pub(crate) fn bool(&mut self, field: u32, on: bool) {
        self.number(field, u64::from(on));
    }

    pub(crate) fn bytes_some(&mut self, field: u32, bytes: &[u8]) {
        self.varint(u64::from(field << 3 | 2));
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn bytes(&mut self, field: u32, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.bytes_some(field, bytes);
        }
    }

    pub(crate) fn text(&mut self, field: u32, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    pub(crate) fn fixed32(&mut self, field: u32, n: u32) {
        self.varint(u64::from(field << 3 | 5));
        self.0.extend_from_slice(&n.to_le_bytes());
    }
}

/// The bytes are not what the writer makes; says what was being read.
pub(crate) type Broken = &'static str;

const WRITTEN_OUT: Broken = "a default that is written out";

/// Takes fields off the front, in ascending order. A field that is asked for and not next is absent.
pub(crate) struct Decoder<'a> {
    pub(crate) rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Decoder<'a> {
        Decoder { rest: bytes }
    }

    /// Errors: a varint above 64 bits, cut short, or longer than it need be.
    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, Broken> {
        if let [b @ 0..0x80, rest @ ..] = self.rest {
            self.rest = rest;
            return Ok(u64::from(*b));
        }
        self.long_varint()
    }

    fn long_varint(&mut self) -> Result<u64, Broken> {
        let mut n = 0u64;
        for (i, &b) in self.rest.iter().take(10).enumerate() {
            let bits = u64::from(b & 0x7f);
            if i == 9 && b > 1 {
                break;
            }
            n |= bits << (7 * i);
            if b < 0x80 {
                if b == 0 && i > 0 {
                    break;
                }
                self.rest = &self.rest[i + 1..];
                return Ok(n);
            }
        }
        Err("a varint")
    }

    /// Takes the tag when it is this field's. Fields are below 2^8 here, so a tag is one or two bytes.
    #[inline]
    fn tag(&mut self, field: u32, wire: u32) -> bool {
        let tag = field << 3 | wire;
        let found = match self.rest {
            [one, rest @ ..] if tag < 0x80 && u32::from(*one) == tag => rest,
            [low, high, rest @ ..] if tag >= 0x80 && [*low, *high] == [tag as u8 | 0x80, (tag >> 7) as u8] => rest,
            _ => return false,
        };
        self.rest = found;
        true
    }

    #[inline]
    pub(crate) fn number_some(&mut self, field: u32) -> Result<Option<u64>, Broken> {
        if self.tag(field, 0) { self.varint().map(Some) } else { Ok(None) }
    }

    /// A field that is left out when zero. Errors: a zero that is written out, beside those of [`Self::number_some`].
    #[inline]
    pub(crate) fn number(&mut self, field: u32) -> Result<u64, Broken> {
        match self.number_some(field)? {
            Some(0) => Err(WRITTEN_OUT),
            n => Ok(n.unwrap_or_default()),
        }
    }

    pub(crate) fn number32(&mut self, field: u32) -> Result<u32, Broken> {
        u32::try_from(self.number(field)?).map_err(|_| "a 32-bit number")
    }

    pub(crate) fn bool(&mut self, field: u32) -> Result<bool, Broken> {
        match self.number(field)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err("a bool"),
        }
    }

    #[inline]
    pub(crate) fn bytes_some(&mut self, field: u32) -> Result<Option<&'a [u8]>, Broken> {
        if !self.tag(field, 2) {
            return Ok(None);
        }
        let len = self.varint()?;
        // A length beyond what is there is refused before anything is allocated.
        let len = usize::try_from(len).ok().filter(|n| *n <= self.rest.len()).ok_or("a length")?;
        let (bytes, rest) = self.rest.split_at(len);
        self.rest = rest;
        Ok(Some(bytes))
    }

    #[inline]
    pub(crate) fn text_some(&mut self, field: u32) -> Result<Option<&'a str>, Broken> {
        self.bytes_some(field)?.map(|b| std::str::from_utf8(b).map_err(|_| "a text")).transpose()
    }

    /// A field that is left out when empty. Errors: an empty one that is there, beside those of [`Self::text_some`].
    #[inline]
    pub(crate) fn text(&mut self, field: u32) -> Result<&'a str, Broken> {
        match self.text_some(field)? {
            Some("") => Err(WRITTEN_OUT),
            text => Ok(text.unwrap_or_default()),
        }
    }

    pub(crate) fn fixed32(&mut self, field: u32) -> Result<Option<u32>, Broken> {
        if !self.tag(field, 5) {
            return Ok(None);
        }
        let (four, rest) = self.rest.split_first_chunk::<4>().ok_or("a fixed32")?;
        self.rest = rest;
        Ok(Some(u32::from_le_bytes(*four)))
    }

    /// Errors: bytes are left, so there was a field this reader does not know, or one out of order.
    pub(crate) fn end(&self) -> Result<(), Broken> {
        if self.rest.is_empty() { Ok(()) } else { Err("an unknown field or one out of order") }
    }
}

#[cfg(test)]
mod tests {
    use super::{Decoder, Encoder, WRITTEN_OUT};

    #[test]
    fn a_default_is_read_where_it_is_left_out_and_refused_where_it_is_written() {
        let mut left_out = Vec::new();
        let mut e = Encoder(&mut left_out);
        e.number(1, 0);
        e.text(2, "");
        e.bool(3, false);
        assert!(left_out.is_empty());
        assert_eq!(Decoder::new(&[]).number(1), Ok(0));
        let mut written = Vec::new();
        Encoder(&mut written).number_some(1, 0);
        assert_eq!(Decoder::new(&written).number(1), Err(WRITTEN_OUT));
        assert_eq!(Decoder::new(&written).bool(1), Err(WRITTEN_OUT));
        assert_eq!(Decoder::new(&written).number_some(1), Ok(Some(0)));
        written.clear();
        Encoder(&mut written).bytes_some(2, b"");
        assert_eq!(Decoder::new(&written).text(2), Err(WRITTEN_OUT));
        assert_eq!(Decoder::new(&written).text_some(2), Ok(Some("")));
    }
}
