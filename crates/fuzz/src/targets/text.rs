//! The text rule: what it lets through holds every promise it makes, and passes again unchanged.

use grandstand_core::rng::Rng;
use grandstand_core::text::{BYTES_MAX, NAME_BYTES_MAX, check as check_text, check_name};

use crate::bytes::{number, outcome, text, word};

pub fn generate(rng: &mut Rng) -> Vec<u8> {
    let mut out = text(rng, 20);
    if rng.chance(1, 10) {
        out += &text(rng, 1).repeat(number(rng).min(3_000) as usize);
    }
    out.into_bytes()
}

pub fn check(input: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(input);
    let comment = match check_text(&text) {
        Ok(clean) => {
            assert!((1..=BYTES_MAX).contains(&clean.len()));
            assert!(!clean.chars().any(|c| (c.is_control() && c != '\n') || is_bidi(c)), "{clean:?}");
            assert_eq!(check_text(&clean).as_deref(), Ok(&*clean), "a clean text is clean");
            1 + u64::from(*clean == *text)
        }
        Err(fault) => word(&format!("{:?}", fault.rule)),
    };
    let name = match check_name(&text) {
        Ok(clean) => {
            assert!((1..=NAME_BYTES_MAX).contains(&clean.len()));
            assert!(!clean.chars().any(|c| c.is_control() || is_bidi(c) || matches!(c, '\u{2028}' | '\u{2029}')));
            assert_eq!(clean.trim(), &*clean);
            let unseen = ['\u{200b}', '\u{2060}', '\u{feff}', '\u{ad}', '\u{3164}'];
            assert!(!clean.contains(unseen) && !clean.ends_with('\u{200d}'), "{clean:?}");
            assert_eq!(check_name(&clean).as_deref(), Ok(&*clean), "a clean name is clean");
            1
        }
        Err(fault) => word(&format!("{:?}", fault.rule)),
    };
    outcome(&[comment, name])
}

fn is_bidi(c: char) -> bool {
    [0x61c, 0x200e, 0x200f].contains(&u32::from(c))
        || ('\u{202a}'..='\u{202e}').contains(&c)
        || ('\u{2066}'..='\u{2069}').contains(&c)
}
