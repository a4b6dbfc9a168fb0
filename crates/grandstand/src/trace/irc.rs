//! Twitch chat as raw IRC lines with tags.
//!
//! Tags may be absent, the last parameter may come without its colon, tag values are escaped, and the wire line is longer than the text. `PRIVMSG` is a comment; a `USERNOTICE` is one when its sender wrote
//! something. Source: IRCv3 message tags; dev.twitch.tv/docs/chat/irc.

use super::{Author, Format, MALFORMED, NO_TEXT, Order, Rows, Trace, author, lines};

/// One IRC line in its parts; borrowed, tag values still escaped.
#[derive(Debug, PartialEq, Eq)]
pub struct Line<'a> {
    tags: &'a str,
    nick: Option<&'a str>,
    pub command: &'a str,
    params: Vec<&'a str>,
}

impl<'a> Line<'a> {
    /// Errors: `None` when it is not a line of the protocol.
    pub fn parse(line: &'a str) -> Option<Line<'a>> {
        let mut rest = line;
        let mut tags = "";
        if let Some(tagged) = rest.strip_prefix('@') {
            (tags, rest) = tagged.split_once(' ')?;
            rest = rest.trim_start_matches(' ');
        }
        let mut nick = None;
        if let Some(prefixed) = rest.strip_prefix(':') {
            let (prefix, after) = prefixed.split_once(' ')?;
            nick = prefix.split_once('!').map(|(nick, _)| nick);
            rest = after.trim_start_matches(' ');
        }
        let (command, mut rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let named = (2..=20).contains(&command.len()) && command.bytes().all(|b| b.is_ascii_uppercase());
        let numeric = command.len() == 3 && command.bytes().all(|b| b.is_ascii_digit());
        if !named && !numeric {
            return None;
        }
        let mut params = Vec::new();
        loop {
            if let Some(trailing) = rest.strip_prefix(':') {
                params.push(trailing);
                break;
            }
            let (param, after) = rest.split_once(' ').unwrap_or((rest, ""));
            if param.is_empty() && after.is_empty() {
                break;
            }
            if !param.is_empty() {
                params.push(param);
            }
            rest = after;
        }
        Some(Line { tags, nick, command, params })
    }

    /// A tag's value unescaped; `None` when absent or empty.
    fn tag(&self, name: &str) -> Option<String> {
        let value = self.tags.split(';').find_map(|tag| tag.strip_prefix(name)?.strip_prefix('='))?;
        let mut out = String::with_capacity(value.len());
        let mut chars = value.chars();
        while let Some(c) = chars.next() {
            match (c, if c == '\\' { chars.next() } else { None }) {
                ('\\', Some(':')) => out.push(';'),
                ('\\', Some('s')) => out.push(' '),
                ('\\', Some('r')) => out.push('\r'),
                ('\\', Some('n')) => out.push('\n'),
                ('\\', Some(other)) => out.push(other),
                ('\\', None) => {}
                (c, _) => out.push(c),
            }
        }
        (!out.is_empty()).then_some(out)
    }

    /// Everything after the channel, joined as it was: an uncoloned last parameter is text as well.
    fn text(&self) -> Option<String> {
        let text = self.params.get(1..)?.join(" ");
        (!text.trim().is_empty()).then_some(text)
    }

    fn at_us(&self) -> Option<i64> {
        let ms: i64 = self.tag("rm-received-ts").or_else(|| self.tag("tmi-sent-ts"))?.parse().ok()?;
        ms.checked_mul(1_000)
    }

    fn author(&self, entry: u64) -> Author {
        let login = self.nick.map(str::to_owned).or_else(|| self.tag("login"));
        let id = self.tag("user-id").or_else(|| login.clone());
        let name = self.tag("display-name").or(login);
        let badges = self.tag("badges").unwrap_or_default();
        // "subscriber/36" is the badge and its version; the product knows badges by name.
        let badges = badges.split(',').filter_map(|b| b.split('/').next()).filter(|b| !b.is_empty());
        author("twitch", id.as_deref(), name.as_deref(), badges.map(str::to_owned).collect(), entry)
    }
}

pub(super) fn recognise(line: &str) -> bool {
    Line::parse(line).is_some_and(|l| !l.tags.is_empty() || line.starts_with(':') || l.command == "PING")
}

pub(super) fn read(bytes: &[u8]) -> Trace {
    let mut rows = Rows::new();
    for line in lines(bytes) {
        let Some(line) = line.ok().and_then(Line::parse) else {
            rows.skip(MALFORMED);
            continue;
        };
        match (line.command, line.text()) {
            ("PRIVMSG", Some(text)) => rows.comment(line.at_us(), line.author(rows.entry()), &text),
            ("PRIVMSG", None) => rows.skip(NO_TEXT),
            ("USERNOTICE", Some(text)) if !line.tags.is_empty() => {
                rows.comment(line.at_us(), line.author(rows.entry()), &text);
            }
            ("USERNOTICE", _) => rows.skip("notice without a user's text"),
            ("CLEARCHAT" | "CLEARMSG", _) => rows.skip("moderation"),
            (command, _) => rows.skip(&format!("not a comment: {command}")),
        }
    }
    rows.trace(Format::TwitchIrc, Order::AsWritten)
}

#[cfg(test)]
mod tests {
    use super::{Line, read};
    use crate::trace::{Act, Comment, Trace};

    fn comments(trace: &Trace) -> Vec<&Comment> {
        trace.steps.iter().map(|s| if let Act::Comment(c) = &s.act { c } else { panic!("only comments") }).collect()
    }

    #[test]
    fn the_sample_reads_as_written() {
        let trace = read(include_bytes!("../../samples/twitch.irc"));
        let comments = comments(&trace);
        let texts: Vec<_> = comments.iter().map(|c| c.text.as_str()).collect();
        assert_eq!(texts, ["what a save", "waves at the goalkeeper", "go", "first: sub here", "no tags at all"]);
        assert_eq!(comments[0].author.id, "twitch:1001");
        assert_eq!(comments[0].author.name, "Anna Example");
        assert_eq!(comments[0].author.badges, ["subscriber", "premium"]);
        assert_eq!(comments[4].author.id, "twitch:plain");
        assert_eq!(trace.steps[1].at.as_millis(), 1_500);
        assert_eq!(trace.skipped["malformed"], 1);
        assert_eq!(trace.skipped["moderation"], 2);
        assert_eq!(trace.skipped["notice without a user's text"], 1);
        assert_eq!(trace.skipped["not a comment: PING"], 1);
    }

    #[test]
    fn a_last_parameter_needs_no_colon() {
        let line = Line::parse(":n!u@h PRIVMSG #c word").unwrap();
        assert_eq!(line.text().as_deref(), Some("word"));
    }

    #[test]
    fn lines_cut_anywhere_never_panic() {
        let whole = "@a=b\\s;user-id=1 :n!u@h PRIVMSG #c :\u{1}ACTION héllo\u{1}";
        for end in (0..=whole.len()).filter(|i| whole.is_char_boundary(*i)) {
            read(&whole.as_bytes()[..end]);
            read(&whole.as_bytes()[end..]);
        }
    }
}
