//! The chain over a log: each record's link is made of the one before it and of what of the record is kept for ever.
//!
//! Like numbered receipts that each carry a stamp over the one before: who changes, takes out or swaps one has to make every later
//! stamp anew, and the stamp is in a drawer. What is stamped is the header, the hash of the content and a hash of whose it is, so an
//! erase changes no link. It must never depend on anything that an erase or retention takes away.
//!
//! The awkward case is a record that an earlier version erased: whose it was cannot be said any more, and it has no link either.
//! What the chain proves and what not: docs/decisions/0033-erase-and-chain.md.

use aws_lc_rs::hmac;

use crate::record::{self, Fault};

/// What a link is, in bytes.
pub const LINK_BYTES: usize = 32;
pub type Link = [u8; LINK_BYTES];

/// Before the first record of a chain.
pub const BEGIN: Link = [0; LINK_BYTES];

/// The stamp.
pub struct Chain(hmac::Key);

impl Chain {
    pub fn new(key: &[u8; 32]) -> Chain {
        Chain(hmac::Key::new(hmac::HMAC_SHA256, key))
    }

    /// A key for a new chain, by the system's chance.
    pub fn fresh_key() -> [u8; 32] {
        let mut key = [0; 32];
        aws_lc_rs::rand::fill(&mut key).expect("the system has a random source");
        key
    }

    /// The link of the record in `bytes`, whole or erased, after the one whose link is `before`. `None`: an earlier version erased it,
    /// and whose it was is not known.
    ///
    /// Errors: as of [`record::decode`].
    pub fn next(&self, before: &Link, bytes: &[u8]) -> Result<Option<Link>, Fault> {
        self.stamp(before, bytes, false)
    }

    /// The same of a record that was just encoded here: its sums are not made again.
    ///
    /// Panics: bytes that are no record.
    pub fn next_own(&self, before: &Link, bytes: &[u8]) -> Link {
        let link = self.stamp(before, bytes, true).expect("what was just encoded is a record");
        link.expect("a whole record tells whose it is")
    }

    fn stamp(&self, before: &Link, bytes: &[u8], is_own: bool) -> Result<Option<Link>, Fault> {
        let mut stamped = Vec::with_capacity(192);
        stamped.extend_from_slice(before);
        if !record::write_kept(bytes, is_own, &mut stamped)? {
            return Ok(None);
        }
        let tag = hmac::sign(&self.0, &stamped);
        Ok(Some(tag.as_ref().try_into().expect("HMAC-SHA-256 has 32 bytes")))
    }
}

/// As people compare it.
pub fn hex(link: &Link) -> String {
    link.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::{BEGIN, Chain, hex};

    #[test]
    fn a_link_is_read_as_hex() {
        assert_eq!(hex(&BEGIN), "0".repeat(64));
        assert_eq!(&hex(&[0xaf; 32])[..4], "afaf");
    }

    #[test]
    fn bytes_that_are_no_record_have_no_link() {
        assert!(Chain::new(&[1; 32]).next(&BEGIN, b"no record").is_err());
    }
}
