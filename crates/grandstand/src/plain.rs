//! Text of others, made harmless for a terminal.
//!
//! What users, providers and a server that is not one's own wrote is printed beside what the operator trusts, and a terminal obeys what it
//! reads: an escape can move the cursor, rename the window, or paste an answer into the shell. So nothing of others is printed but by
//! these functions. Invisible direction marks are taken out too: they could swap what an author said with who said it.

/// A text on one line: control characters (a terminal's escapes among them, and the eight-bit ones) as spaces, without direction marks.
pub fn plain(text: &str) -> String {
    text.chars().filter(|c| !is_direction(*c)).map(|c| if breaks(c) { ' ' } else { c }).collect()
}

/// The same, line by line.
pub fn plain_lines(text: &str) -> String {
    text.lines().map(plain).collect::<Vec<_>>().join("\n")
}

/// JSON as it came, with every character that a terminal might obey as its escape: the same value, and one line.
pub fn plain_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            // Below U+0020 nothing may stand in a JSON string: it is white space between members.
            '\n' | '\r' | '\t' => out.push(' '),
            c if breaks(c) || is_direction(c) => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

fn breaks(c: char) -> bool {
    // The line and paragraph separators end a line in some terminals.
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')
}

fn is_direction(c: char) -> bool {
    matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::{plain, plain_json, plain_lines};

    #[test]
    fn nothing_that_a_terminal_obeys_is_left_of_a_text() {
        assert_eq!(plain("a\u{1b}]0;owned\u{7}b\u{9b}31mc\r\nd"), "a ]0;owned b 31mc  d");
        assert_eq!(plain("x\u{202e}lla\u{2069}\u{200f}y"), "xllay");
        assert_eq!(plain("één 👩‍👩‍👧 日本\u{2028}!"), "één 👩‍👩‍👧 日本 !");
        assert_eq!(plain_lines("a\u{1b}c\nb\u{8}"), "a c\nb ");
    }

    #[test]
    fn json_stays_the_same_value_on_one_line() {
        let json = "{\"body\":\"a\\u001b[2J\u{9b}\u{7f}\u{202e}b\",\n\t\"n\":1}";
        let safe = plain_json(json);
        assert!(safe.chars().all(|c| !c.is_control()), "{safe}");
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(value(&safe), value(json));
    }
}
