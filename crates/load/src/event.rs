//! Reads the few members of a server event that a check needs, without a JSON tree.
//!
//! A quote inside a JSON string is always escaped, so `"event_id":` can only be a member's name. Objects of an array are
//! told apart by depth. What cannot be read this way is no event of the protocol and counts as a fault.

use grandstand_wire::stamp;

/// What a viewer does with an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Hello {
        cursor: u64,
        pseq: u64,
        resumed: bool,
        sampled: bool,
        cap: Option<u32>,
    },
    /// Log time of it, milliseconds.
    Comment {
        ts_ms: u64,
    },
    Score,
    Gift,
    /// Of the whole site; its id is the `id`. One that was taken down early comes once more as [`Kind::Other`].
    Banner,
    /// What is said of sampling, where anything is.
    Config {
        sampled: Option<bool>,
        cap: Option<u32>,
    },
    /// Another event with a `pseq`: retract.
    Priority,
    Skipped {
        count: u64,
    },
    SnapshotRequired {
        cursor: u64,
        pseq: u64,
    },
    Close {
        code: u16,
        retry_ms: u64,
        spread_ms: u64,
    },
    Ack {
        duplicate: bool,
    },
    RateLimited {
        retry_ms: u64,
    },
    Error {
        retry_ms: Option<u64>,
    },
    /// A room's numbers: likes of the plain kind, and what part of its comments is shown.
    Counters {
        likes: u64,
        keep_millionths: Option<u32>,
    },
    Other,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    pub kind: Kind,
    pub id: u64,
    pub pseq: u64,
    /// When it was to be published, microseconds of [`crate::clock`]; 0 when it says nothing.
    pub sent_us: u64,
}

/// Reads all events of a frame: one object, or an array of them.
///
/// Errors: `None` when the text is not that.
pub fn read(text: &[u8], out: &mut Vec<Event>) -> Option<()> {
    for object in Objects(text) {
        out.push(one(object?)?);
    }
    Some(())
}

/// The value of a string member, still escaped.
pub fn text<'a>(object: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let value = after(object, name)?.strip_prefix(b"\"")?;
    let mut escaped = false;
    let end = value.iter().position(|b| {
        let done = *b == b'"' && !escaped;
        escaped = *b == b'\\' && !escaped;
        done
    })?;
    Some(&value[..end])
}

pub fn number(object: &[u8], name: &str) -> Option<u64> {
    digits(after(object, name)?)
}

fn flag(object: &[u8], name: &str) -> bool {
    after(object, name).is_some_and(|v| v.starts_with(b"true"))
}

fn after<'a>(object: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let name = name.as_bytes();
    let mut from = 0;
    loop {
        let at = from + find(&object[from..], name)?;
        let end = at + name.len();
        if at > 0 && object[at - 1] == b'"' && object[end..].starts_with(b"\":") {
            let value = &object[end + 2..];
            let space = value.iter().take_while(|b| **b == b' ').count();
            return Some(&value[space..]);
        }
        from = at + 1;
    }
}

fn find(hay: &[u8], needle: &[u8]) -> Option<usize> {
    let first = *needle.first()?;
    let mut from = 0;
    while let Some(at) = hay[from..].iter().position(|b| *b == first) {
        if hay[from + at..].starts_with(needle) {
            return Some(from + at);
        }
        from += at + 1;
    }
    None
}

fn digits(text: &[u8]) -> Option<u64> {
    let n = text.iter().take_while(|b| b.is_ascii_digit()).count();
    std::str::from_utf8(&text[..n]).ok()?.parse().ok()
}

fn cap(object: &[u8]) -> Option<u32> {
    number(object, "cap").and_then(|cap| u32::try_from(cap).ok())
}

/// A fraction of at most 1 in millionths: what is beyond the sixth digit is left out.
fn millionths(text: &[u8]) -> Option<u32> {
    let whole = u32::try_from(digits(text)?).ok().filter(|whole| *whole <= 1)?;
    let rest = text.iter().skip_while(|b| b.is_ascii_digit()).copied().collect::<Vec<_>>();
    let six = rest.strip_prefix(b".").unwrap_or_default().iter().copied().take_while(u8::is_ascii_digit);
    let six = six.chain(std::iter::repeat(b'0')).take(6);
    Some(six.fold(whole, |n, digit| n * 10 + u32::from(digit - b'0')))
}

fn one(object: &[u8]) -> Option<Event> {
    let kind = text(object, "type")?;
    let id = || number(object, "event_id").unwrap_or(0);
    let pseq = number(object, "pseq").unwrap_or(0);
    let retry = number(object, "retry_after_ms");
    let plain = |kind| Event { kind, id: 0, pseq: 0, sent_us: 0 };
    Some(match kind {
        b"comment" => {
            // A repeated text has no time in it; its author's name has.
            let named = text(object, "display").and_then(|name| digits(name.strip_prefix(b"l ")?));
            let sent_us = named.or_else(|| text(object, "body").and_then(digits)).unwrap_or(0);
            let ts = text(object, "ts").and_then(|ts| stamp::parse(std::str::from_utf8(ts).ok()?));
            let ts_ms = ts.map_or(0, |ts| ts.0);
            Event { kind: Kind::Comment { ts_ms }, id: id(), pseq: 0, sent_us }
        }
        b"score_event" => {
            let sent_us = text(object, "key").and_then(|k| digits(k.strip_prefix(b"l-")?)).unwrap_or(0);
            Event { kind: Kind::Score, id: id(), pseq, sent_us }
        }
        b"gift" => {
            let sent_us = text(object, "gift_id").and_then(|k| digits(k.strip_prefix(b"l-")?)).unwrap_or(0);
            Event { kind: Kind::Gift, id: id(), pseq, sent_us }
        }
        b"banner" if flag(object, "ended") => plain(Kind::Other),
        b"banner" => {
            let id = text(object, "banner_id").and_then(digits)?;
            let sent_us = text(object, "body").and_then(|body| digits(body.strip_prefix(b"l ")?)).unwrap_or(0);
            Event { kind: Kind::Banner, id, pseq: 0, sent_us }
        }
        b"config" => {
            let sampled = after(object, "sampled").map(|v| v.starts_with(b"true"));
            Event { kind: Kind::Config { sampled, cap: cap(object) }, id: id(), pseq, sent_us: 0 }
        }
        b"hello" => plain(Kind::Hello {
            cursor: number(object, "cursor")?,
            pseq,
            resumed: flag(object, "resumed"),
            sampled: flag(object, "sampled"),
            cap: cap(object),
        }),
        b"skipped" => plain(Kind::Skipped { count: number(object, "count")? }),
        b"snapshot_required" => plain(Kind::SnapshotRequired { cursor: number(object, "cursor")?, pseq }),
        b"close" => plain(Kind::Close {
            code: u16::try_from(number(object, "code")?).ok()?,
            retry_ms: retry.unwrap_or(0),
            spread_ms: number(object, "spread_ms").unwrap_or(0),
        }),
        b"publish_ack" => Event { id: id(), ..plain(Kind::Ack { duplicate: flag(object, "duplicate") }) },
        b"rate_limited" => plain(Kind::RateLimited { retry_ms: retry.unwrap_or(500) }),
        b"counters" => plain(Kind::Counters {
            likes: number(object, "like").unwrap_or(0),
            keep_millionths: after(object, "keep_fraction").and_then(millionths),
        }),
        b"error" => plain(Kind::Error { retry_ms: retry }),
        _ if pseq > 0 => Event { kind: Kind::Priority, id: id(), pseq, sent_us: 0 },
        _ => plain(Kind::Other),
    })
}

/// The objects of a frame in order; `None` once when the text is malformed.
pub struct Objects<'a>(pub &'a [u8]);

impl<'a> Iterator for Objects<'a> {
    type Item = Option<&'a [u8]>;

    fn next(&mut self) -> Option<Option<&'a [u8]>> {
        let start = self.0.iter().position(|b| !matches!(b, b' ' | b',' | b'[' | b']' | b'\n'))?;
        let rest = &self.0[start..];
        if rest[0] != b'{' {
            self.0 = &[];
            return Some(None);
        }
        let (mut depth, mut quoted, mut escaped) = (0, false, false);
        for (at, b) in rest.iter().enumerate() {
            match (quoted, *b) {
                (true, _) if escaped => escaped = false,
                (true, b'\\') => escaped = true,
                (_, b'"') => quoted = !quoted,
                (false, b'{') => depth += 1,
                (false, b'}') => {
                    depth -= 1;
                    if depth == 0 {
                        let (object, after) = rest.split_at(at + 1);
                        self.0 = after;
                        return Some(Some(object));
                    }
                }
                _ => {}
            }
        }
        self.0 = &[];
        Some(None)
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, Kind, read, text};

    fn events(text: &str) -> Vec<Event> {
        let mut out = Vec::new();
        read(text.as_bytes(), &mut out).expect("a frame of the protocol");
        out
    }

    #[test]
    fn a_frame_of_several_events_is_read_in_order() {
        let got = events(
            r#"[{"type":"comment","room_id":"r","event_id":7,"user":{"id":"u","display":"}\"{"},"body":"123 \"event_id\":9 }"},
                {"type":"score_event","event_id":8,"pseq":3,"key":"l-55-1","score":{"home":1,"away":0}},
                {"type":"skipped","count":4,"from":1,"to":6}]"#,
        );
        assert_eq!(
            got,
            [
                Event { kind: Kind::Comment { ts_ms: 0 }, id: 7, pseq: 0, sent_us: 123 },
                Event { kind: Kind::Score, id: 8, pseq: 3, sent_us: 55 },
                Event { kind: Kind::Skipped { count: 4 }, id: 0, pseq: 0, sent_us: 0 },
            ]
        );
    }

    #[test]
    fn a_repeated_text_tells_its_time_by_its_authors_name() {
        let got = events(r#"{"type":"comment","event_id":7,"user":{"id":"u","display":"l 55"},"body":"88888888"}"#);
        assert_eq!(got[0].sent_us, 55);
    }

    #[test]
    fn a_banner_is_read_by_its_own_id_and_a_taken_down_one_is_none() {
        let up = events(
            r#"{"type":"banner","banner_id":"219558728171551","body":"l 77","until_ts":"2026-05-17T20:15:03.122Z"}"#,
        );
        assert_eq!(up[0], Event { kind: Kind::Banner, id: 219_558_728_171_551, pseq: 0, sent_us: 77 });
        let down = events(r#"{"type":"banner","banner_id":"2","until_ts":"2026-05-17T20:15:03.122Z","ended":true}"#);
        assert_eq!(down[0].kind, Kind::Other);
    }

    #[test]
    fn hello_close_and_answers_are_told_apart() {
        let hello = events(
            r#"{"type":"hello","cursor":9,"pseq":2,"resumed":true,"comments":"some","config":{"sampled":true,"cap":5}}"#,
        );
        assert_eq!(hello[0].kind, Kind::Hello { cursor: 9, pseq: 2, resumed: true, sampled: true, cap: Some(5) });
        let config = events(
            r#"[{"type":"config","event_id":9,"pseq":3,"sampled":false},{"type":"config","event_id":10,"pseq":4,"title":"t"}]"#,
        );
        assert_eq!(
            [config[0].kind, config[1].kind],
            [Some(false), None].map(|sampled| Kind::Config { sampled, cap: None })
        );
        let close = events(r#"{"type":"close","code":4112,"reason":"drain","retry_after_ms":500,"spread_ms":10}"#);
        assert_eq!(close[0].kind, Kind::Close { code: 4112, retry_ms: 500, spread_ms: 10 });
        let ack = events(r#"{"type":"publish_ack","client_msg_id":"k","event_id":12,"duplicate":true}"#);
        assert_eq!((ack[0].kind, ack[0].id), (Kind::Ack { duplicate: true }, 12));
    }

    #[test]
    fn a_rooms_likes_are_read_of_its_counters() {
        let got = events(
            r#"{"type":"counters","room_id":"r","likes":{"heart":3,"like":48},"viewers":7,"keep_fraction":1,"as_of_ts":"x"}"#,
        );
        assert_eq!(got[0].kind, Kind::Counters { likes: 48, keep_millionths: Some(1_000_000) });
        let none = events(r#"{"type":"counters","room_id":"r","likes":{},"viewers":7}"#);
        assert_eq!(none[0].kind, Kind::Counters { likes: 0, keep_millionths: None });
    }

    #[test]
    fn a_fraction_is_read_to_the_millionth() {
        for (text, millionths) in [("0", 0), ("1", 1_000_000), ("0.5", 500_000), ("0.00002", 20), ("0.0000209", 20)] {
            let got = events(&format!(r#"{{"type":"counters","likes":{{}},"viewers":1,"keep_fraction":{text}}}"#));
            assert_eq!(got[0].kind, Kind::Counters { likes: 0, keep_millionths: Some(millionths) }, "{text}");
        }
    }

    #[test]
    fn a_comment_tells_the_logs_time() {
        let got = events(r#"{"type":"comment","event_id":7,"body":"1 a","ts":"1970-01-02T00:00:01.250Z"}"#);
        assert_eq!(got[0].kind, Kind::Comment { ts_ms: 86_401_250 });
    }

    #[test]
    fn text_that_is_no_event_is_a_fault() {
        for bad in ["x", "{", "[{\"type\":\"comment\"", "[1]", "{\"event_id\":1}"] {
            assert!(read(bad.as_bytes(), &mut Vec::new()).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_string_ends_at_its_own_quote() {
        assert_eq!(text(br#"{"a":"x\\","b":"\"y"}"#, "a"), Some(&br"x\\"[..]));
        assert_eq!(text(br#"{"a":"x\\","b":"\"y"}"#, "b"), Some(&br#"\"y"#[..]));
    }
}
