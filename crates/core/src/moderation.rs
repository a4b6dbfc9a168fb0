//! What moderation says of a comment, and why.

pub mod breaker;
pub mod desk;

use std::sync::Arc;

use crate::record::Verdict;

/// A verdict with the rule it comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ruling {
    pub verdict: Verdict,
    /// Names the rule, at most [`RULE_BYTES_MAX`] bytes on one line; `None` for what no rule spoke against.
    pub rule: Option<Arc<str>>,
}

/// How long a held comment waits for a human's word unless its room says otherwise, and the longest a room may say.
pub const HOLD_SECONDS: u32 = 3_600;
pub const HOLD_SECONDS_MAX: u32 = 604_800;
/// Comments of one room that wait for review; past it a flagged comment is told to come back.
pub const HELD_MAX: usize = 512;
/// Comments that were shown without a verdict, or before it, and may still be taken back, over all rooms. The oldest goes first.
pub const SHOWN_MAX: usize = 65_536;
/// The rule of a comment that was shown because no verdict came in time.
pub const NO_VERDICT: &str = "no verdict in time";

/// A rule's name is cut to this where it comes from outside.
pub const RULE_BYTES_MAX: usize = 100;

impl Ruling {
    pub const ALLOW: Ruling = Ruling { verdict: Verdict::Allow, rule: None };

    pub fn of(verdict: Verdict, rule: &str) -> Ruling {
        Ruling { verdict, rule: Some(named(rule)) }
    }

    /// Without a rule.
    pub fn plain(verdict: Verdict) -> Ruling {
        Ruling { verdict, rule: None }
    }

    /// The sterner of two.
    pub fn or(self, other: Ruling) -> Ruling {
        if other.weight() > self.weight() { other } else { self }
    }

    fn weight(&self) -> u8 {
        match self.verdict {
            Verdict::Unjudged => 0,
            Verdict::Allow => 1,
            Verdict::Flag => 2,
            Verdict::Block => 3,
        }
    }
}

/// The rule's name on one line, cut at a character's end.
fn named(rule: &str) -> Arc<str> {
    let mut end = rule.len().min(RULE_BYTES_MAX);
    while !rule.is_char_boundary(end) {
        end -= 1;
    }
    rule[..end].chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use super::{RULE_BYTES_MAX, Ruling};
    use crate::record::Verdict;

    #[test]
    fn the_sterner_ruling_holds_and_the_first_of_two_equal_ones() {
        let (flag, block) = (Ruling::of(Verdict::Flag, "a"), Ruling::of(Verdict::Block, "b"));
        assert_eq!(Ruling::ALLOW.or(flag.clone()), flag);
        assert_eq!(block.clone().or(flag.clone()), block);
        assert_eq!(flag.clone().or(Ruling::of(Verdict::Flag, "c")), flag);
    }

    #[test]
    fn a_name_from_outside_is_one_short_line() {
        let long = Ruling::of(Verdict::Flag, &format!("a\nb{}", "é".repeat(200))).rule.unwrap();
        assert!(long.starts_with("a b") && long.len() <= RULE_BYTES_MAX);
    }
}
