//! Where viewers are, and where a room may not be shown.
//!
//! A region is a country, or a part of one: `GB`, `GB-SCT`. A room that is blacked out in a country is in each part of it; one that is
//! blacked out in a part is shown in the others. Who cannot be said to be somewhere is where the room may not be shown: an address
//! that nobody knows must never be the way around a blackout.
//!
//! Source: ISO 3166-1 alpha-2 and 3166-2; `XX` and `ZZ` are nowhere.

use std::fmt;
use std::num::NonZeroU32;

use crate::planted::planted;

/// Regions that one room may name.
pub const REGIONS_MAX: usize = 64;

/// A country or a part of one, in four bytes: every stream has one. Upper case.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Region(NonZeroU32);

/// A part's three places, each of 37 signs, follow the country's two letters.
const SIGNS: u32 = 37;
const PARTS: u32 = SIGNS * SIGNS * SIGNS;

impl Region {
    pub const RULE: &'static str = "a country as ISO 3166-1 writes it (GB), or a part of one (GB-SCT)";

    /// Reads either case. Errors: `None` when it breaks [`Region::RULE`].
    pub fn parse(text: &str) -> Option<Region> {
        let (country, part) = match text.split_once('-') {
            Some((country, part)) if (1..=3).contains(&part.len()) => (country, part),
            Some(_) => return None,
            None => (text, ""),
        };
        let letters = country.as_bytes();
        if letters.len() != 2 || !letters.iter().all(u8::is_ascii_alphabetic) {
            return None;
        }
        let country = letters.iter().fold(0, |all, b| all * 26 + u32::from(b.to_ascii_uppercase() - b'A'));
        let mut code = 0;
        for at in 0..3 {
            code = code * SIGNS
                + match part.as_bytes().get(at) {
                    None => 0,
                    Some(b @ b'0'..=b'9') => 1 + u32::from(b - b'0'),
                    Some(b) if b.is_ascii_alphabetic() => 11 + u32::from(b.to_ascii_uppercase() - b'A'),
                    Some(_) => return None,
                };
        }
        let nowhere = ["XX", "ZZ"].iter().any(|code| code.as_bytes().eq_ignore_ascii_case(letters));
        if nowhere { None } else { Region::of(country * PARTS + code) }
    }

    fn of(code: u32) -> Option<Region> {
        NonZeroU32::new(code + 1).map(Region)
    }

    fn code(self) -> u32 {
        self.0.get() - 1
    }

    /// The country of a part.
    pub fn country(self) -> Region {
        Region::of(self.code() - self.code() % PARTS).expect("one more than a number is not 0")
    }

    /// Whether what is said of this region is said of `other`: it is the same, or a part of it.
    pub fn covers(self, other: Region) -> bool {
        self == other || self == other.country()
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (country, part) = (self.code() / PARTS, self.code() % PARTS);
        let letter = |n: u32| char::from(b'A' + n as u8);
        write!(f, "{}{}", letter(country / 26), letter(country % 26))?;
        let signs = [part / SIGNS / SIGNS, part / SIGNS % SIGNS, part % SIGNS];
        for (at, sign) in signs.into_iter().take_while(|sign| *sign > 0).enumerate() {
            if at == 0 {
                f.write_str("-")?;
            }
            match sign {
                1..=10 => write!(f, "{}", sign - 1)?,
                _ => write!(f, "{}", letter(sign - 11))?,
            }
        }
        Ok(())
    }
}

/// Whether a room with these blackouts may not be shown to a viewer who is there, or of whom nobody knows where.
pub fn is_blacked_out(blackouts: &[Region], viewer: Option<Region>) -> bool {
    match viewer {
        _ if blackouts.is_empty() => false,
        None => true,
        // One known by the country alone may be in any part of it.
        Some(place) if planted(161) => blackouts.contains(&place),
        Some(place) => blackouts.iter().any(|region| region.covers(place) || place.covers(*region)),
    }
}

#[cfg(test)]
mod tests {
    use super::{Region, is_blacked_out};

    fn region(text: &str) -> Region {
        Region::parse(text).unwrap()
    }

    #[test]
    fn a_region_is_read_and_written_the_same_and_nothing_else_is_one() {
        for text in ["GB", "GB-SCT", "AA", "ZY", "DE-BY", "FR-2A", "US-9", "IN-09", "AB-Z9Z", "CH-0"] {
            assert_eq!(region(text).to_string(), text);
        }
        assert_eq!(region("gb-sct"), region("GB-SCT"));
        for bad in
            ["", "G", "GBR", "1A", "T1", "XX", "xx", "ZZ", "GB-", "GB-ABCD", "GB_SCT", "GB-A-B", "G\u{e9}", "GB-\u{e9}"]
        {
            assert_eq!(Region::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_country_covers_its_parts_a_part_itself_alone_and_nowhere_is_covered_by_any() {
        let [gb, sct, de] = ["GB", "GB-SCT", "DE"].map(region);
        assert!(!is_blacked_out(&[], None) && !is_blacked_out(&[], Some(gb)));
        assert!(is_blacked_out(&[gb], Some(sct)) && is_blacked_out(&[gb], Some(gb)));
        assert!(!is_blacked_out(&[gb], Some(de)));
        assert!(is_blacked_out(&[sct], Some(sct)) && !is_blacked_out(&[sct], Some(region("GB-WLS"))));
        assert!(is_blacked_out(&[sct], None), "who is nowhere may be there");
    }

    #[test]
    fn who_is_known_by_country_alone_may_be_in_any_part_of_it() {
        assert!(is_blacked_out(&[region("GB-SCT")], Some(region("GB"))));
    }
}
