//! A text as its words are compared: what makes one word look like another spelling of it is taken away.
//!
//! Like reading a scribbled note with half-closed eyes: the shapes stay, the ornaments go. [`letters`] brings a text to plain
//! small letters (width, accents, look-alikes of other scripts, what shows nothing). From them two views are made, each a
//! line of words with single spaces between: [`plain`] takes the text at its word, and [`disguised`] reads digits and signs as
//! the letters they stand for and joins what punctuation or spaces pull apart. Runs of one letter are one letter in both, with
//! the count beside it, so that a stretched word is found and a word that merely lacks a double letter is not.
//!
//! The awkward case: 1 is as often an `i` as an `l`. The disguised view is made once for each where it matters.

use std::ops::Range;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;
use unicode_security::confusable_detection::skeleton;

/// One view of a text.
#[derive(Default, PartialEq, Eq, Debug)]
pub struct Folded {
    /// Words with one space between.
    pub text: String,
    /// For each byte of the text: at a letter's first byte how often it stands there in a row, at others 0.
    runs: Vec<u8>,
    /// As `runs`: what stood between this letter and the one before was passed over.
    joints: Vec<bool>,
}

impl Folded {
    fn push(&mut self, c: char, joint: bool) {
        if let Some((at, last)) = self.text.char_indices().next_back()
            && last == c
        {
            if c != ' ' {
                self.runs[at] = self.runs[at].saturating_add(1);
            }
            return;
        }
        if c == ' ' && self.text.is_empty() {
            return;
        }
        self.text.push(c);
        self.runs.push(1);
        self.joints.push(joint);
        self.runs.resize(self.text.len(), 0);
        self.joints.resize(self.text.len(), false);
    }

    /// As an entry of a list, without a space at its end.
    pub fn trimmed(mut self) -> Folded {
        let len = self.text.trim_end().len();
        self.text.truncate(len);
        self.runs.truncate(len);
        self.joints.truncate(len);
        self
    }

    /// Whether what stands at `span` is `pattern` as somebody would stretch it.
    pub fn is_stretched(&self, span: Range<usize>, pattern: &Folded) -> bool {
        pattern.text.char_indices().all(|(at, letter)| {
            let (wanted, stands) = (pattern.runs[at], self.runs[span.start + at]);
            // No word has a letter three times, and only some have these twice.
            let twice = matches!(letter, 'a' | 'h' | 'i' | 'j' | 'k' | 'q' | 'u'..='y') || is_picture(letter);
            stands == wanted || stands > wanted && (stands >= 3 || twice)
        })
    }

    /// Whether a word begins here.
    pub fn begins(&self, at: usize) -> bool {
        part(self.text[..at].chars().next_back(), self.text[at..].chars().next())
    }

    /// Whether a word ends here.
    pub fn ends(&self, at: usize) -> bool {
        self.begins(at)
    }

    /// Whether something was passed over inside the span.
    pub fn is_joined(&self, span: Range<usize>) -> bool {
        self.joints[span].iter().skip(1).any(|joint| *joint)
    }
}

/// Whether a word may end between the two.
fn part(before: Option<char>, after: Option<char>) -> bool {
    let (Some(before), Some(after)) = (before, after) else { return true };
    let alone = |c: char| c == ' ' || is_picture(c) || is_unspaced(c);
    alone(before) || alone(after) || before.is_numeric() != after.is_numeric()
}

/// Small letters without accents, of full width, in place of their look-alikes; what shows nothing is gone.
pub fn letters(text: &str) -> Vec<char> {
    if text.is_ascii() {
        return text.bytes().map(|b| char::from(b.to_ascii_lowercase())).collect();
    }
    let shown: Vec<char> = text.nfkd().filter(|c| !is_combining_mark(*c) && !shows_nothing(*c)).collect();
    let mut letters = Vec::with_capacity(shown.len());
    for (at, &c) in shown.iter().enumerate() {
        if c.is_ascii() {
            letters.push(c.to_ascii_lowercase());
            continue;
        }
        // A capital that looks like another letter than its small one does so where it stands in for that letter, not in a word of
        // its own script, which is one word in either case.
        let beside = |at: usize| shown.get(at).is_some_and(char::is_ascii_alphabetic);
        let stands_in = beside(at.wrapping_sub(1)) || beside(at + 1);
        let capital = || if stands_in { look_alike(c) } else { None };
        letters.extend(c.to_lowercase().map(|small| look_alike(small).or_else(capital).unwrap_or(small)));
    }
    letters
}

/// The ASCII letter that it is taken for.
fn look_alike(c: char) -> Option<char> {
    if c.is_ascii() {
        return Some(c);
    }
    // Pictures and the scripts of half of the world have none: not worth a look.
    if is_picture(c) || is_unspaced(c) {
        return None;
    }
    let mut bytes = [0; 4];
    let mut prototype = skeleton(c.encode_utf8(&mut bytes));
    match (prototype.next(), prototype.next()) {
        (Some(p), None) if p.is_ascii_alphanumeric() => Some(p.to_ascii_lowercase()),
        _ => None,
    }
}

/// Letters and digits as they are; all else parts words, but an apostrophe.
pub fn plain(letters: &[char]) -> Folded {
    let mut view = Folded::default();
    for &c in letters {
        if is_word(c) {
            view.push(c, false);
        } else if !is_apostrophe(c) {
            view.push(' ', false);
        }
    }
    view
}

/// The view in which a disguise is taken for what it hides; `None` when that is the plain one. `one`: what 1 stands for.
pub fn disguised(letters: &[char], one: char) -> Option<Folded> {
    let mut view = Folded::default();
    let mut differs = false;
    // Single letters, each a word: together they may be one.
    let mut singles: Vec<char> = Vec::new();
    let spaced = |view: &mut Folded, singles: &mut Vec<char>, differs: &mut bool| {
        let together = singles.len() >= SPACED_MIN;
        for (i, c) in singles.drain(..).enumerate() {
            if i > 0 && !together {
                view.push(' ', false);
            }
            view.push(c, together && i > 0);
        }
        *differs |= together;
        view.push(' ', false);
    };
    for word in letters.split(|c| c.is_whitespace()).filter(|word| !word.is_empty()) {
        let read = unmask(word, one, &mut differs);
        if let [(single, _)] = read[..]
            && single.is_alphabetic()
        {
            singles.push(single);
            continue;
        }
        spaced(&mut view, &mut singles, &mut differs);
        for (c, joint) in read {
            view.push(c, joint);
        }
        view.push(' ', false);
    }
    spaced(&mut view, &mut singles, &mut differs);
    differs.then_some(view)
}

/// So many single letters in a row are spelling, not words.
const SPACED_MIN: usize = 3;

/// One word with its disguise off; `true` beside a letter before which something was passed over.
fn unmask(word: &[char], one: char, differs: &mut bool) -> Vec<(char, bool)> {
    let masks = word.iter().any(|c| c.is_alphabetic() || matches!(c, '@' | '$'));
    let last = word.iter().rposition(|c| is_word(*c) || matches!(c, '@' | '$'));
    let Some(last) = last else { return Vec::new() };
    let mut out: Vec<(char, bool)> = Vec::with_capacity(word.len());
    let mut joint = false;
    for &c in &word[..=last] {
        let read = if masks { stands_for(c, one) } else { None };
        *differs |= read.is_some();
        match read.or(Some(c).filter(|c| is_word(*c))) {
            Some(c) => {
                out.push((c, joint && !out.is_empty()));
                joint = false;
            }
            None if is_apostrophe(c) => {}
            None => {
                joint = true;
                *differs |= !out.is_empty();
            }
        }
    }
    out
}

/// Whether a 1, or what looks like it, may be either of two letters here.
pub fn is_ambiguous(letters: &[char]) -> bool {
    letters.iter().any(|c| matches!(c, '1' | '!' | '|')) && letters.iter().any(|c| c.is_alphabetic())
}

fn stands_for(c: char, one: char) -> Option<char> {
    Some(match c {
        '0' => 'o',
        '1' | '!' | '|' => one,
        '3' | '€' => 'e',
        '4' | '@' => 'a',
        '5' | '$' => 's',
        '6' | '9' => 'g',
        '7' | '+' => 't',
        '8' => 'b',
        _ => return None,
    })
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || is_picture(c)
}

fn is_apostrophe(c: char) -> bool {
    matches!(c, '\'' | '’' | '`' | '´' | 'ʼ')
}

/// Emoji and other signs that are words of their own. Source: blocks of the Unicode standard.
fn is_picture(c: char) -> bool {
    matches!(c, '\u{2190}'..='\u{2bff}' | '\u{1f000}'..='\u{1faff}')
}

/// Scripts that put no space between words. Source: Unicode line breaking classes SA and ID.
fn is_unspaced(c: char) -> bool {
    matches!(c, '\u{0e00}'..='\u{0eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' | '\u{3040}'..='\u{30ff}'
        | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

/// Source: Unicode property Default_Ignorable_Code_Point (DerivedCoreProperties.txt).
fn shows_nothing(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::{disguised, letters, plain};

    fn both(text: &str) -> (String, Option<String>) {
        let letters = letters(text);
        (plain(&letters).text.trim().to_owned(), disguised(&letters, 'i').map(|view| view.text.trim().to_owned()))
    }

    #[test]
    fn width_accents_look_alikes_and_what_shows_nothing_are_folded() {
        for text in ["idiot", "IDIOT", "ｉｄｉｏｔ", "ídïøt", "іdіоt", "id\u{200b}io\u{ad}t", "𝓲𝓭𝓲𝓸𝓽", "iiidiooot"]
        {
            assert_eq!(both(text).0.replace('ø', "o"), "idiot", "{text}");
        }
    }

    #[test]
    fn a_plain_text_has_no_disguise() {
        assert_eq!(both("What a goal, 3:1!"), ("what a goal 3 1".into(), Some("what a goal 31".into())));
        assert_eq!(both("hello there").1, None);
        assert_eq!(both("it is what it is!!!").1, None);
    }

    #[test]
    fn signs_dots_and_spaces_are_read_through() {
        for text in ["1d10t", "i.d.i.o.t", "i d i o t", "i-d-i-0-t", "!diot", "id|ot"] {
            assert_eq!(both(text).1.as_deref(), Some("idiot"), "{text}");
        }
        assert_eq!(both("say i d i o t now").1.as_deref(), Some("say idiot now"));
        assert_eq!(both("I a").1, None, "two single letters are words");
        assert_eq!(both("1488").1, None, "a number is a number");
        assert_eq!(both("idiot!!!").1, None);
    }
}
