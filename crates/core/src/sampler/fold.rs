//! When two texts say the same: what a crowd repeats is shown once, with a count.
//!
//! Case, width, invisible characters, spaces and the length of a run of one character make no difference; digits do, because
//! "100" is not "10" and scores are what a crowd talks about. The awkward case is an emoji of several characters: its joiners
//! go, as in every text, so that it still folds into itself.

use unicode_normalization::UnicodeNormalization;

/// The text that all texts saying the same have in common. Never longer in characters than the NFKC form of `text`.
pub fn fold(text: &str) -> Box<str> {
    let mut folded = String::with_capacity(text.len());
    let mut last = None;
    let mut put = |c: char| {
        let c = if c.is_whitespace() { ' ' } else { c };
        if last == Some(c) && !c.is_numeric() || last.is_none() && c == ' ' {
            return;
        }
        last = Some(c);
        folded.push(c);
    };
    if text.is_ascii() {
        text.bytes().for_each(|b| put(char::from(b.to_ascii_lowercase())));
    } else {
        text.nfkc().filter(|c| !is_invisible(*c)).flat_map(char::to_lowercase).for_each(&mut put);
    }
    folded.truncate(folded.trim_end_matches(' ').len());
    folded.into()
}

/// Joiners, marks of direction, variation selectors, tags and fillers: nothing of them is seen by itself.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}' | '\u{ffa0}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::fold;

    #[test]
    fn what_a_crowd_repeats_is_one_text() {
        for (one, other) in [
            ("GOOOOAL!!!", "goal!"),
            ("ｇｏａｌ", "GOAL"),
            ("go\u{200b}al", "goal"),
            ("  what   a\ngoal ", "what a goal"),
            ("草草草草", "草"),
            ("😂😂😂", "😂"),
            ("❤\u{fe0f}", "❤"),
            ("ÉÉ", "é"),
        ] {
            assert_eq!(fold(one), fold(other), "{one:?} and {other:?}");
        }
    }

    #[test]
    fn what_differs_stays_apart() {
        for (one, other) in [("100", "10"), ("2-1", "1-2"), ("goal", "goat"), ("ab", "a b")] {
            assert_ne!(fold(one), fold(other), "{one:?} and {other:?}");
        }
    }

    #[test]
    fn a_text_of_nothing_visible_folds_to_nothing() {
        assert_eq!(&*fold(" \u{200b}\u{fe0f} "), "");
    }
}
