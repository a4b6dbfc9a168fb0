//! IRC lines, both ways: tags, source, verb, parameters. Source: RFC 1459, 2.3; IRCv3 message tags.
//!
//! A line is the only frame there is, so a line end in a text would be a second line, said in somebody else's name. The writer
//! has one door for each part, and none of them lets a line end, a NUL, or what would end the part itself, through.
//!
//! Names of users are an alphabet of their own ([`nick`]): a user id may be any text, a nick is lower case and has no space, and
//! clients fold it before they send it back. The awkward case is a line that never ends: of it nothing is kept past the limit, and
//! when it ends it is one refusal.
//!
//! Numbers: RFC 1459 gives a line 512 bytes, which is less than a comment (2 000 bytes) or a token (4 KiB) need.

use std::borrow::Cow;

/// Tags with their `@` and space. Source: IRCv3 message tags, "size limit".
pub const TAGS_BYTES_MAX: usize = 8_191;
/// The rest of a line without its end: a token of 4 KiB and its verb.
pub const REST_BYTES_MAX: usize = 4_608;

/// Why a line is not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Over [`TAGS_BYTES_MAX`] or [`REST_BYTES_MAX`].
    TooLong,
    NotUtf8,
    /// A NUL, which no line may hold.
    Nul,
    /// Nothing is left beside tags and source.
    NoVerb,
}

impl Fault {
    pub fn rule(self) -> &'static str {
        match self {
            Fault::TooLong => "a line has at most 8191 bytes of tags and 4608 beside them",
            Fault::NotUtf8 => "a line is UTF-8",
            Fault::Nul => "a line holds no NUL",
            Fault::NoVerb => "a line has a command",
        }
    }
}

/// Cuts bytes into lines, at CR, LF or both; empty ones are nothing. Keeps at most one unfinished line.
#[derive(Debug, Default)]
pub struct Reader {
    line: Vec<u8>,
    /// The line is over the limit: the rest of it is passed over.
    too_long: bool,
}

impl Reader {
    pub fn new() -> Reader {
        Reader::default()
    }

    /// Takes the next bytes and appends the lines they completed to `lines`.
    pub fn feed(&mut self, bytes: &[u8], lines: &mut Vec<Result<String, Fault>>) {
        let mut rest = bytes;
        loop {
            let end = rest.iter().position(|b| matches!(b, b'\r' | b'\n'));
            let part = &rest[..end.unwrap_or(rest.len())];
            if self.line.len() + part.len() > TAGS_BYTES_MAX + REST_BYTES_MAX {
                self.too_long = true;
                self.line = Vec::new();
            }
            if !self.too_long {
                self.line.extend_from_slice(part);
            }
            let Some(end) = end else { return };
            rest = &rest[end + 1..];
            let line = std::mem::take(&mut self.line);
            if std::mem::take(&mut self.too_long) {
                lines.push(Err(Fault::TooLong));
            } else if !line.is_empty() {
                lines.push(judge(line));
            }
        }
    }
}

fn judge(line: Vec<u8>) -> Result<String, Fault> {
    let tags = match line.first() {
        Some(b'@') => line.iter().position(|b| *b == b' ').map_or(line.len(), |at| at + 1),
        _ => 0,
    };
    if tags > TAGS_BYTES_MAX || line.len() - tags > REST_BYTES_MAX {
        return Err(Fault::TooLong);
    }
    if line.contains(&0) {
        return Err(Fault::Nul);
    }
    String::from_utf8(line).map_err(|_| Fault::NotUtf8)
}

/// One line in its parts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line<'a> {
    /// In the order of the line; of a key that is there twice the last counts.
    pub tags: Vec<(&'a str, Cow<'a, str>)>,
    pub source: Option<&'a str>,
    pub verb: &'a str,
    pub params: Vec<&'a str>,
}

impl<'a> Line<'a> {
    /// Reads a line without its end. Parts are separated by one space or several.
    /// Errors: [`Fault::NoVerb`].
    pub fn parse(line: &'a str) -> Result<Line<'a>, Fault> {
        let mut rest = line;
        let mut tags = Vec::new();
        if let Some(tagged) = rest.strip_prefix('@') {
            let (all, after) = tagged.split_once(' ').unwrap_or((tagged, ""));
            tags.extend(all.split(';').filter(|tag| !tag.is_empty()).map(|tag| {
                let (key, value) = tag.split_once('=').unwrap_or((tag, ""));
                (key, unescape(value))
            }));
            rest = after.trim_start_matches(' ');
        }
        let mut source = None;
        if let Some(sourced) = rest.strip_prefix(':') {
            let (named, after) = sourced.split_once(' ').unwrap_or((sourced, ""));
            source = Some(named);
            rest = after;
        }
        rest = rest.trim_start_matches(' ');
        let (verb, mut rest) = rest.split_once(' ').unwrap_or((rest, ""));
        if verb.is_empty() {
            return Err(Fault::NoVerb);
        }
        let mut params = Vec::new();
        loop {
            rest = rest.trim_start_matches(' ');
            if rest.is_empty() {
                break;
            }
            if let Some(last) = rest.strip_prefix(':') {
                params.push(last);
                break;
            }
            let (param, after) = rest.split_once(' ').unwrap_or((rest, ""));
            params.push(param);
            rest = after;
        }
        Ok(Line { tags, source, verb, params })
    }

    /// The value of a tag; empty for one without.
    pub fn tag(&self, key: &str) -> Option<&str> {
        self.tags.iter().rev().find(|(k, _)| *k == key).map(|(_, value)| &**value)
    }

    pub fn param(&self, idx: usize) -> Option<&'a str> {
        self.params.get(idx).copied()
    }
}

/// A tag's value as it is meant. A backslash before anything that needs none, or at the end, is nothing.
fn unescape(value: &str) -> Cow<'_, str> {
    if !value.contains('\\') {
        return value.into();
    }
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        let meant = match c {
            '\\' => chars.next().map(|escaped| match escaped {
                ':' => ';',
                's' => ' ',
                'r' => '\r',
                'n' => '\n',
                other => other,
            }),
            c => Some(c),
        };
        out.extend(meant);
    }
    out.into()
}

/// Where a line comes from: `nick!user@host`, all but the first perhaps missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Source<'a> {
    pub nick: &'a str,
    pub user: &'a str,
    pub host: &'a str,
}

impl<'a> Source<'a> {
    pub fn split(text: &'a str) -> Source<'a> {
        let (rest, host) = text.split_once('@').unwrap_or((text, ""));
        let (nick, user) = rest.split_once('!').unwrap_or((rest, ""));
        Source { nick, user, host }
    }
}

/// Writes one line, part by part, in their order: tags, source and verb, parameters, an end.
#[must_use = "a line that is not ended runs into the next"]
pub struct Writer<'o> {
    out: &'o mut Vec<u8>,
    tagged: bool,
}

impl<'o> Writer<'o> {
    pub fn new(out: &'o mut Vec<u8>) -> Writer<'o> {
        Writer { out, tagged: false }
    }

    /// `key` is of letters, digits, `-`, `.` and `/`.
    pub fn tag(mut self, key: &str, value: &str) -> Writer<'o> {
        self.key(key);
        self.out.push(b'=');
        for b in value.bytes() {
            match b {
                b';' => self.out.extend_from_slice(b"\\:"),
                b' ' => self.out.extend_from_slice(b"\\s"),
                b'\\' => self.out.extend_from_slice(b"\\\\"),
                b'\r' => self.out.extend_from_slice(b"\\r"),
                b'\n' => self.out.extend_from_slice(b"\\n"),
                0 => {}
                b => self.out.push(b),
            }
        }
        self
    }

    /// A tag without a value, which is not the same as one with an empty one.
    pub fn flag(mut self, key: &str) -> Writer<'o> {
        self.key(key);
        self
    }

    fn key(&mut self, key: &str) {
        self.out.push(if self.tagged { b';' } else { b'@' });
        self.tagged = true;
        self.word(key);
    }

    /// The verb, with where the line comes from when it says so.
    pub fn verb(mut self, source: Option<&str>, verb: &str) -> Writer<'o> {
        if self.tagged {
            self.out.push(b' ');
        }
        if let Some(source) = source {
            self.out.push(b':');
            self.word(source);
            self.out.push(b' ');
        }
        self.word(verb);
        self
    }

    /// A parameter that is one word: never empty, and nothing that begins with a colon.
    pub fn param(mut self, word: &str) -> Writer<'o> {
        assert!(!word.is_empty() && !word.starts_with(':'), "only the last parameter may be any text");
        self.out.push(b' ');
        self.word(word);
        self
    }

    /// The last parameter, any text, and the end. What would end the line is a space.
    pub fn text(self, text: &str) {
        self.out.extend_from_slice(b" :");
        self.out.extend(text.bytes().map(|b| if matches!(b, b'\r' | b'\n' | 0) { b' ' } else { b }));
        self.end();
    }

    pub fn end(self) {
        self.out.extend_from_slice(b"\r\n");
    }

    /// What would end a word is an underscore.
    fn word(&mut self, word: &str) {
        let ends = |b: &u8| matches!(b, b' ' | b'\r' | b'\n' | 0);
        self.out.extend(word.bytes().map(|b| if ends(&b) { b'_' } else { b }));
    }
}

/// A user id as a nick: `a-z 0-9 _ - . | :` stand for themselves (a colon not at the front), every other byte is `^` and its two hex digits. So a
/// nick that is folded to lower case still names one user and no other.
pub fn nick(user: &str) -> String {
    let mut out = String::with_capacity(user.len());
    for (idx, b) in user.bytes().enumerate() {
        if stands_for_itself(b) && (b != b':' || idx > 0) {
            out.push(char::from(b));
        } else {
            let digit = |n: u8| char::from_digit(u32::from(n), 16).expect("below 16");
            out.extend(['^', digit(b >> 4), digit(b & 15)]);
        }
    }
    out
}

/// The user id of a nick, in any case. Errors: `None` when [`nick`] makes no such name.
pub fn user_of(nick: &str) -> Option<String> {
    let mut out = Vec::with_capacity(nick.len());
    let mut bytes = nick.bytes().map(|b| b.to_ascii_lowercase());
    while let Some(b) = bytes.next() {
        out.push(match b {
            b'^' => {
                let high = char::from(bytes.next()?).to_digit(16)?;
                let low = char::from(bytes.next()?).to_digit(16)?;
                (high * 16 + low) as u8
            }
            b if stands_for_itself(b) => b,
            _ => return None,
        });
    }
    String::from_utf8(out).ok().filter(|user| !user.is_empty())
}

fn stands_for_itself(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-' | b'.' | b'|' | b':')
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{any, prop_assert_eq, proptest};

    use super::{Fault, Line, REST_BYTES_MAX, Reader, TAGS_BYTES_MAX, Writer, nick, user_of};

    fn read(bytes: &[u8]) -> Vec<Result<String, Fault>> {
        let mut lines = Vec::new();
        Reader::new().feed(bytes, &mut lines);
        lines
    }

    #[test]
    fn a_line_ends_at_cr_lf_or_both_and_an_empty_one_is_nothing() {
        let line = |text: &str| Ok(text.to_owned());
        assert_eq!(read(b"PING\r\n\r\nPONG\nNICK a\rcut"), [line("PING"), line("PONG"), line("NICK a")]);
    }

    #[test]
    fn a_line_over_its_limit_is_one_refusal_and_the_next_is_read() {
        let longest = "x".repeat(REST_BYTES_MAX);
        let tags = |n: usize| format!("@{} PING\n", "t".repeat(n - 2));
        assert_eq!(
            read(format!("{longest}\n{longest}x\nPING\n").as_bytes()),
            [Ok(longest.clone()), Err(Fault::TooLong), Ok("PING".to_owned())]
        );
        assert!(read(tags(TAGS_BYTES_MAX).as_bytes())[0].is_ok());
        assert_eq!(read(tags(TAGS_BYTES_MAX + 1).as_bytes()), [Err(Fault::TooLong)]);
        // One that never ends costs no more than a line.
        let mut reader = Reader::new();
        let mut lines = Vec::new();
        for _ in 0..100 {
            reader.feed(&[b'x'; 4_096], &mut lines);
            assert!(reader.line.len() <= TAGS_BYTES_MAX + REST_BYTES_MAX);
        }
        reader.feed(b"\nPING\n", &mut lines);
        assert_eq!(lines, [Err(Fault::TooLong), Ok("PING".to_owned())]);
    }

    #[test]
    fn nul_and_broken_utf8_are_refused_by_name() {
        assert_eq!(read(b"a\0b\n\xff\n"), [Err(Fault::Nul), Err(Fault::NotUtf8)]);
        for empty in ["@a", ":src", "@a=b :src ", " "] {
            assert_eq!(Line::parse(empty), Err(Fault::NoVerb), "{empty:?}");
        }
    }

    #[test]
    fn no_text_starts_a_line() {
        let evil = "a\r\nQUIT :x\0;y z\\";
        let mut out = Vec::new();
        Writer::new(&mut out).tag("t", evil).verb(Some(evil), "PRIVMSG").param(evil).text(evil);
        let lines = read(&out);
        let [Ok(line)] = &lines[..] else { panic!("{lines:?}") };
        let line = Line::parse(line).expect("a line");
        assert_eq!(line.tag("t"), Some("a\r\nQUIT :x;y z\\"));
        assert_eq!(line.source, Some("a__QUIT_:x_;y_z\\"));
        assert_eq!(line.params, ["a__QUIT_:x_;y_z\\", "a  QUIT :x ;y z\\"]);
    }

    #[test]
    fn a_nick_is_lower_case_and_names_one_user() {
        for (user, name) in [
            ("alice", "alice"),
            ("guest:3f_a-1", "guest:3f_a-1"),
            ("auth0|42", "auth0|42"),
            ("Bob", "^42ob"),
            (":a", "^3aa"),
            ("a b!@#", "a^20b^21^40^23"),
            ("é^", "^c3^a9^5e"),
        ] {
            assert_eq!(nick(user), name);
            assert_eq!(user_of(name).as_deref(), Some(user));
            assert_eq!(user_of(&name.to_uppercase()).as_deref(), Some(user));
        }
        for bad in ["", "^", "^4", "^zz", "a b", "a!b", "^ff", "é"] {
            assert_eq!(user_of(bad), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            tags in vec(("[a-z/.-]{1,8}", "\\PC{0,12}"), 0..4), words in vec("[a-z#][^ \r\n\0]{0,8}", 0..4), text in "[^\r\n\0]{0,40}"
        ) {
            let mut out = Vec::new();
            let mut writer = Writer::new(&mut out);
            for (key, value) in &tags {
                writer = writer.tag(key, value);
            }
            let mut writer = writer.verb(Some("a!b@c"), "PRIVMSG");
            for word in &words {
                writer = writer.param(word);
            }
            writer.text(&text);
            let lines = read(&out);
            let line = Line::parse(lines[0].as_ref().unwrap()).unwrap();
            prop_assert_eq!((line.source, line.verb), (Some("a!b@c"), "PRIVMSG"));
            let mut params: Vec<&str> = words.iter().map(String::as_str).collect();
            params.push(&text);
            prop_assert_eq!(&line.params, &params);
            for (key, _) in &tags {
                let last = tags.iter().rev().find(|(k, _)| k == key).map(|(_, v)| v.as_str());
                prop_assert_eq!(line.tag(key), last);
            }
        }

        #[test]
        fn every_cut_of_a_stream_reads_the_same(bytes in vec(any::<u8>(), 0..300), cut in any::<u16>()) {
            let cut = usize::from(cut) % (bytes.len() + 1);
            let (mut reader, mut lines) = (Reader::new(), Vec::new());
            reader.feed(&bytes[..cut], &mut lines);
            reader.feed(&bytes[cut..], &mut lines);
            prop_assert_eq!(lines, read(&bytes));
        }

        #[test]
        fn every_user_id_comes_back_from_its_nick(user in "\\PC{1,24}") {
            prop_assert_eq!(user_of(&nick(&user)), Some(user));
        }
    }
}
