//! What a comment and a name may be made of, decided once where they enter.
//!
//! A comment is 1 to 500 extended grapheme clusters (what a reader counts as characters) and at most 2 000 bytes of NFC
//! text without control characters but the line feed, with at most 10 combining marks on one cluster. Bidirectional
//! controls are taken out, because they can make one text look like another; the joiners, variation selectors and tag
//! characters that emoji are made of stay. A name is 1 to 64 bytes, at most 32 clusters, on one line, and holds nothing that
//! shows nothing: a joiner, selector or tag stays only where it does its work, or two names could look the same and differ.
//!
//! Text over a limit is refused with the rule and the count, never cut.

use std::borrow::Cow;
use std::fmt;

use unicode_normalization::char::is_combining_mark;
use unicode_normalization::{UnicodeNormalization, is_nfc};
use unicode_segmentation::UnicodeSegmentation;

use crate::reject::Code;

pub const CLUSTERS_MAX: usize = 500;
pub const BYTES_MAX: usize = 2_000;
pub const MARKS_MAX: usize = 10;
pub const NAME_CLUSTERS_MAX: usize = 32;
pub const NAME_BYTES_MAX: usize = 64;

/// Which rule a text broke.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    Empty,
    Bytes,
    Clusters,
    Controls,
    Marks,
}

/// The rule, what was counted, and what is allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TextFault {
    pub rule: Rule,
    pub count: usize,
    pub limit: usize,
}

impl TextFault {
    pub fn code(self) -> Code {
        match self.rule {
            Rule::Bytes | Rule::Clusters => Code::TooLong,
            Rule::Empty | Rule::Controls | Rule::Marks => Code::BadText,
        }
    }
}

impl fmt::Display for TextFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TextFault { rule, count, limit } = self;
        match rule {
            Rule::Empty => write!(f, "the text is empty"),
            Rule::Bytes => write!(f, "the text has {count} bytes, at most {limit} are allowed"),
            Rule::Clusters => write!(f, "the text has {count} characters, at most {limit} are allowed"),
            Rule::Controls => write!(f, "the text has {count} control characters, none are allowed"),
            Rule::Marks => write!(f, "one character has {count} combining marks, at most {limit} are allowed"),
        }
    }
}

/// A comment's text as it is logged: the same text, or its normal form without bidirectional controls.
///
/// Errors: the first rule broken, in the order controls, bytes, empty, clusters, marks.
pub fn check(text: &str) -> Result<Cow<'_, str>, TextFault> {
    let controls = text.chars().filter(|c| c.is_control() && *c != '\n').count();
    refuse_if(controls > 0, Rule::Controls, controls, 0)?;
    let clean = normal(text, BYTES_MAX)?;
    bounded(&clean, BYTES_MAX, CLUSTERS_MAX)?;
    Ok(clean)
}

/// A display name as it is logged: as [`check`], on one line, without space around it.
pub fn check_name(name: &str) -> Result<Cow<'_, str>, TextFault> {
    let controls = name.chars().filter(|c| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')).count();
    refuse_if(controls > 0, Rule::Controls, controls, 0)?;
    let clean = match normal(name, NAME_BYTES_MAX)? {
        Cow::Borrowed(text) if text.is_ascii() => Cow::Borrowed(text.trim()),
        Cow::Borrowed(text) => shown(text),
        Cow::Owned(text) => Cow::Owned(shown(&text).into_owned()),
    };
    bounded(&clean, NAME_BYTES_MAX, NAME_CLUSTERS_MAX)?;
    Ok(clean)
}

/// The name without what shows nothing, and without space around it.
fn shown(name: &str) -> Cow<'_, str> {
    let stands = |c: char| !is_combining_mark(c) && !is_selector(c);
    let works = |at: usize, c: char, cluster: &str| {
        let before = cluster[..at].chars().next_back();
        match c {
            // Between the parts of an emoji or of a conjunct; at a cluster's end it joins nothing.
            '\u{200d}' => before.is_some() && cluster[at + c.len_utf8()..].chars().next().is_some_and(stands),
            // Keeps letters of Arabic and of Indic scripts from being joined.
            '\u{200c}' => before.is_some_and(|b| matches!(b, '\u{600}'..='\u{dff}')),
            // Chooses between text and emoji, or between the forms of an ideograph; of a letter there is one form.
            c if is_selector(c) => before.is_some_and(|b| !b.is_alphabetic() || b >= '\u{2e80}'),
            // The flags of regions.
            '\u{e0020}'..='\u{e007f}' => cluster.starts_with('\u{1f3f4}'),
            c => !is_ignorable(c),
        }
    };
    let all_works = |cluster: &str| cluster.char_indices().all(|(at, c)| works(at, c, cluster));
    let trimmed = name.trim();
    if trimmed.graphemes(true).all(all_works) {
        return Cow::Borrowed(trimmed);
    }
    let mut left = String::with_capacity(trimmed.len());
    for cluster in trimmed.graphemes(true) {
        left.extend(cluster.char_indices().filter(|(at, c)| works(*at, *c, cluster)).map(|(_, c)| c));
    }
    // What stood apart may have come together: again, until there is nothing to take out. Each turn takes out something.
    let composed: String = left.nfc().collect();
    Cow::Owned(shown(&composed).into_owned())
}

/// NFC without bidirectional controls. Text that is far over the limit is refused before it is worked on: NFC is at least a
/// third of its input, and a bidirectional control is three bytes of nothing.
fn normal(text: &str, bytes_max: usize) -> Result<Cow<'_, str>, TextFault> {
    refuse_if(text.len() > bytes_max * 8, Rule::Bytes, text.len(), bytes_max)?;
    if text.is_ascii() || (!text.chars().any(is_bidi_control) && is_nfc(text)) {
        return Ok(Cow::Borrowed(text));
    }
    Ok(Cow::Owned(text.chars().filter(|c| !is_bidi_control(*c)).nfc().collect()))
}

fn bounded(text: &str, bytes_max: usize, clusters_max: usize) -> Result<(), TextFault> {
    refuse_if(text.len() > bytes_max, Rule::Bytes, text.len(), bytes_max)?;
    refuse_if(text.is_empty(), Rule::Empty, 0, 1)?;
    if text.is_ascii() {
        // Without carriage returns every ASCII byte is a cluster of its own.
        return refuse_if(text.len() > clusters_max, Rule::Clusters, text.len(), clusters_max);
    }
    let (mut clusters, mut marks_most) = (0, 0);
    for cluster in text.graphemes(true) {
        clusters += 1;
        marks_most = marks_most.max(cluster.chars().filter(|c| is_combining_mark(*c) && !is_selector(*c)).count());
    }
    refuse_if(clusters > clusters_max, Rule::Clusters, clusters, clusters_max)?;
    refuse_if(marks_most > MARKS_MAX, Rule::Marks, marks_most, MARKS_MAX)
}

fn refuse_if(broken: bool, rule: Rule, count: usize, limit: usize) -> Result<(), TextFault> {
    if broken { Err(TextFault { rule, count, limit }) } else { Ok(()) }
}

/// Source: Unicode property Bidi_Control (PropList.txt).
fn is_bidi_control(c: char) -> bool {
    matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Characters that are not drawn, without those that [`shown`] judges by their place and those that are bidirectional controls.
/// Source: Unicode property Default_Ignorable_Code_Point (DerivedCoreProperties.txt).
fn is_ignorable(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{34f}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{200b}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Variation selectors are marks by category, but they choose a glyph and stack nothing.
fn is_selector(c: char) -> bool {
    matches!(c, '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}')
}

#[cfg(test)]
mod tests {
    use super::{Rule, TextFault, check, check_name};
    use crate::reject::Code;

    fn fault(text: &str) -> (Rule, usize) {
        let fault = check(text).unwrap_err();
        (fault.rule, fault.count)
    }

    #[test]
    fn plain_text_passes_as_it_is() {
        for text in ["a", "two\nlines", "¡olé!", "がんばれ", &"x".repeat(500)] {
            assert_eq!(check(text).unwrap(), *text);
        }
    }

    #[test]
    fn a_family_a_flag_and_a_tagged_flag_are_one_character_each_and_stay_whole() {
        let family = "👩\u{200d}❤\u{fe0f}\u{200d}💋\u{200d}👨";
        let scotland = "🏴\u{e0067}\u{e0062}\u{e0073}\u{e0063}\u{e0074}\u{e007f}";
        for emoji in [family, scotland, "🇫🇷", "👍🏽"] {
            assert_eq!(check(emoji).unwrap(), *emoji);
        }
        assert_eq!(check(&"🇫🇷".repeat(250)).unwrap(), "🇫🇷".repeat(250));
        assert_eq!(fault(&"🇫🇷".repeat(251)), (Rule::Bytes, 2008));
    }

    #[test]
    fn the_limits_are_told_with_their_counts() {
        assert_eq!(fault(""), (Rule::Empty, 0));
        assert_eq!(fault(&"x".repeat(501)), (Rule::Clusters, 501));
        assert_eq!(fault(&"é".repeat(501)), (Rule::Clusters, 501));
        assert_eq!(fault(&"あ".repeat(667)), (Rule::Bytes, 2001));
        assert_eq!(fault("a\tb\u{0}c\u{85}"), (Rule::Controls, 3));
        assert_eq!(fault("a\r\nb"), (Rule::Controls, 1));
        assert_eq!(fault(&"x".repeat(1 << 20)), (Rule::Bytes, 1 << 20));
    }

    #[test]
    fn ten_marks_may_stack_and_eleven_may_not() {
        let stacked = |n: usize| format!("h{}", "\u{0489}".repeat(n));
        assert!(check(&stacked(10)).is_ok());
        assert_eq!(fault(&stacked(11)), (Rule::Marks, 11));
    }

    #[test]
    fn text_is_normalised_and_loses_its_bidi_controls() {
        assert_eq!(check("e\u{301}").unwrap(), "é");
        assert_eq!(check("abc\u{202e}def\u{2069}").unwrap(), "abcdef");
        assert_eq!(fault("\u{202e}\u{200f}"), (Rule::Empty, 0));
    }

    #[test]
    fn a_name_is_one_short_line() {
        assert_eq!(check_name("  Zoë ").unwrap(), "Zoë");
        let rule = |name: &str| check_name(name).unwrap_err().rule;
        assert_eq!(rule("a\nb"), Rule::Controls);
        assert_eq!(rule("   "), Rule::Empty);
        assert_eq!(rule(&"x".repeat(33)), Rule::Clusters);
        assert_eq!(rule(&"あ".repeat(22)), Rule::Bytes);
    }

    #[test]
    fn a64_a_name_holds_nothing_that_shows_nothing() {
        for hidden in
            ["\u{200b}", "\u{2060}", "\u{feff}", "\u{ad}", "\u{200d}", "\u{200c}", "\u{fe0f}", "\u{e0061}", "\u{3164}"]
        {
            for name in
                [format!("Ann{hidden}"), format!("A{hidden}nn"), format!("{hidden}Ann"), format!(" {hidden} Ann")]
            {
                assert_eq!(check_name(&name).unwrap(), "Ann", "{name:?}");
            }
            assert_eq!(check_name(hidden).unwrap_err().rule, Rule::Empty, "{hidden:?}");
        }
        assert_eq!(check_name("n\u{200d}\u{301}").unwrap(), "ń");
        // What was kept apart by nothing is composed.
        assert_eq!(check_name("e\u{200b}\u{301}").unwrap(), "é");
        for shown in [
            "👩\u{200d}❤\u{fe0f}\u{200d}👨",
            "🏴\u{e0067}\u{e0062}\u{e0073}\u{e0063}\u{e0074}\u{e007f}",
            "1\u{fe0f}\u{20e3}",
            "❤\u{fe0f}",
            "می\u{200c}خواهم",
            "क्\u{200d}ष",
            "葛\u{e0100}",
        ] {
            assert_eq!(check_name(shown).unwrap(), *shown, "{shown:?}");
        }
    }

    #[test]
    fn too_long_and_bad_text_are_told_apart() {
        let code = |rule| TextFault { rule, count: 0, limit: 0 }.code();
        assert_eq!(code(Rule::Clusters), Code::TooLong);
        assert_eq!(code(Rule::Marks), Code::BadText);
    }
}
