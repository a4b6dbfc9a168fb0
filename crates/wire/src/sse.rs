//! Server-sent events, both ways: the writer of the server, and the reader of clients and tests.
//!
//! Format: WHATWG HTML, "Server-sent events". A line ends with CR LF, CR or LF, so text that is split at LF alone lets a CR
//! start a forged field; the writer splits data at all three and takes event names and ids from closed alphabets.

use std::time::Duration;

use crate::json::write_u64;

/// Appends one event: `event:` = the kind, `id:` when given, `data:` = the JSON object.
///
/// `kind` is lower case letters and `_`; anything else is a bug and panics.
pub fn write(kind: &str, id: Option<u64>, json: &[u8], out: &mut Vec<u8>) {
    assert!(
        !kind.is_empty() && kind.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
        "event names come from a closed alphabet"
    );
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(kind.as_bytes());
    if let Some(id) = id {
        out.extend_from_slice(b"\nid: ");
        write_u64(id, out);
    }
    out.push(b'\n');
    lines(b"data: ", json, out);
    out.push(b'\n');
}

/// Appends a comment line, which readers skip: `: keepalive`.
pub fn comment(text: &str, out: &mut Vec<u8>) {
    lines(b": ", text.as_bytes(), out);
    out.push(b'\n');
}

/// Appends the wait before a reader reconnects by itself.
pub fn retry(after: Duration, out: &mut Vec<u8>) {
    out.extend_from_slice(b"retry: ");
    write_u64(after.as_millis() as u64, out);
    out.extend_from_slice(b"\n\n");
}

fn lines(prefix: &[u8], text: &[u8], out: &mut Vec<u8>) {
    let mut rest = text;
    loop {
        out.extend_from_slice(prefix);
        match rest.iter().position(|&b| b == b'\n' || b == b'\r') {
            None => {
                out.extend_from_slice(rest);
                out.push(b'\n');
                return;
            }
            Some(end) => {
                out.extend_from_slice(&rest[..end]);
                out.push(b'\n');
                rest = &rest[end + if rest[end..].starts_with(b"\r\n") { 2 } else { 1 }..];
            }
        }
    }
}

/// One event as a reader sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// `message` when the stream named none.
    pub kind: String,
    pub data: String,
    /// The last id of the stream so far, this event's included; empty when there was none.
    pub last_id: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Item {
    Event(Event),
    /// A comment line (keepalive).
    Comment(String),
    Retry(Duration),
}

/// One line or one event is above the reader's bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooLong;

/// Reads a stream as it comes, in chunks cut anywhere. Holds at most `bytes_max` of one unfinished event.
#[derive(Debug)]
pub struct Reader {
    bytes_max: usize,
    line: Vec<u8>,
    /// The last byte was CR: an LF right after it belongs to the same line end.
    after_cr: bool,
    started: bool,
    kind: String,
    data: String,
    has_data: bool,
    last_id: String,
}

impl Reader {
    pub fn new(bytes_max: usize) -> Reader {
        Reader {
            bytes_max,
            line: Vec::new(),
            after_cr: false,
            started: false,
            kind: String::new(),
            data: String::new(),
            has_data: false,
            last_id: String::new(),
        }
    }

    /// Takes the next bytes and appends what they completed to `items`.
    ///
    /// Errors: the stream is not to be read further.
    pub fn feed(&mut self, bytes: &[u8], items: &mut Vec<Item>) -> Result<(), TooLong> {
        let mut rest = bytes;
        while !rest.is_empty() {
            if std::mem::take(&mut self.after_cr) && rest[0] == b'\n' {
                rest = &rest[1..];
                continue;
            }
            let end = rest.iter().position(|&b| b == b'\n' || b == b'\r');
            let part = &rest[..end.unwrap_or(rest.len())];
            if self.line.len() + self.data.len() + part.len() > self.bytes_max {
                return Err(TooLong);
            }
            self.line.extend_from_slice(part);
            let Some(end) = end else { break };
            self.after_cr = rest[end] == b'\r';
            rest = &rest[end + 1..];
            let line = std::mem::take(&mut self.line);
            self.line(&line, items);
            self.line = line;
            self.line.clear();
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8], items: &mut Vec<Item>) {
        let text = String::from_utf8_lossy(line);
        let mut text = &*text;
        if !std::mem::replace(&mut self.started, true) {
            text = text.strip_prefix('\u{feff}').unwrap_or(text);
        }
        if text.is_empty() {
            return self.dispatch(items);
        }
        let (field, value) = text.split_once(':').unwrap_or((text, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "" => items.push(Item::Comment(value.to_owned())),
            "event" => value.clone_into(&mut self.kind),
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push('\n');
                }
                self.data.push_str(value);
            }
            "id" if !value.contains('\0') => value.clone_into(&mut self.last_id),
            "retry" if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) => {
                // A number too large to hold is as good as none.
                if let Ok(ms) = value.parse() {
                    items.push(Item::Retry(Duration::from_millis(ms)));
                }
            }
            _ => {}
        }
    }

    fn dispatch(&mut self, items: &mut Vec<Item>) {
        let kind = std::mem::take(&mut self.kind);
        let data = std::mem::take(&mut self.data);
        if std::mem::take(&mut self.has_data) {
            let kind = if kind.is_empty() { "message".to_owned() } else { kind };
            items.push(Item::Event(Event { kind, data, last_id: self.last_id.clone() }));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::collection::vec;
    use proptest::prelude::{any, prop_assert_eq, proptest};

    use super::{Event, Item, Reader, TooLong, comment, retry, write};

    fn read(bytes: &[u8]) -> Vec<Item> {
        let mut items = Vec::new();
        Reader::new(1 << 20).feed(bytes, &mut items).unwrap();
        items
    }

    fn event(kind: &str, data: &str, id: &str) -> Item {
        Item::Event(Event { kind: kind.into(), data: data.into(), last_id: id.into() })
    }

    #[test]
    fn an_event_has_its_kind_its_id_and_its_data() {
        let mut out = Vec::new();
        write("score_event", Some(8_589_934_599), b"{\"a\":1}", &mut out);
        assert_eq!(out, b"event: score_event\nid: 8589934599\ndata: {\"a\":1}\n\n");
        out.clear();
        comment("keepalive", &mut out);
        retry(Duration::from_millis(1500), &mut out);
        write("counters", None, b"{}", &mut out);
        assert_eq!(out, b": keepalive\n\nretry: 1500\n\nevent: counters\ndata: {}\n\n");
        assert_eq!(
            read(&out),
            [Item::Comment("keepalive".into()), Item::Retry(Duration::from_millis(1500)), event("counters", "{}", "")]
        );
    }

    #[test]
    fn no_line_end_in_data_or_comments_starts_a_field() {
        let mut out = Vec::new();
        write("comment", Some(9), "a\rid: 7\r\nevent: x\ndata: y\r\r\n\u{2028}\u{85}".as_bytes(), &mut out);
        comment("a\rid: 8\ndata: z", &mut out);
        let items = read(&out);
        assert_eq!(items[0], event("comment", "a\nid: 7\nevent: x\ndata: y\n\n\u{2028}\u{85}", "9"));
        assert_eq!(items[1..], ["a", "id: 8", "data: z"].map(|c| Item::Comment(c.into())));
    }

    #[test]
    #[should_panic(expected = "closed alphabet")]
    fn an_event_name_with_a_line_end_is_a_bug() {
        write("comment\nid", None, b"{}", &mut Vec::new());
    }

    #[test]
    fn the_reader_follows_the_standard() {
        assert_eq!(
            read(b"\xef\xbb\xbfdata\n\ndata:  x\r\rid:7\r\nid:a\0b\nretry:-1\nretry:\nwhat: ever\n\ndata:1\n\n"),
            [event("message", "", ""), event("message", " x", ""), event("message", "1", "7")]
        );
        assert_eq!(read(b"event: lost\n\ndata: cut"), []);
    }

    #[test]
    fn one_event_is_bounded() {
        let mut reader = Reader::new(100);
        let mut items = Vec::new();
        assert_eq!(reader.feed(&[b'x'; 101], &mut items), Err(TooLong));
        let mut reader = Reader::new(100);
        let lines = b"data: 0123456789\n".repeat(12);
        assert_eq!(reader.feed(&lines, &mut items), Err(TooLong));
    }

    proptest! {
        #[test]
        fn every_cut_of_a_stream_reads_the_same(
            datas in vec("[a-c\r\n: \u{2028}é]{0,12}", 1..6), cuts in vec(any::<u8>(), 0..8)
        ) {
            let mut out = Vec::new();
            for (i, data) in datas.iter().enumerate() {
                write("comment", Some(i as u64), data.as_bytes(), &mut out);
            }
            let whole = read(&out);
            prop_assert_eq!(whole.len(), datas.len());
            for (item, data) in whole.iter().zip(&datas) {
                let Item::Event(e) = item else { panic!("{item:?}") };
                prop_assert_eq!(&e.data, &data.replace("\r\n", "\n").replace('\r', "\n"));
            }
            let mut cuts: Vec<usize> = cuts.iter().map(|c| usize::from(*c) % (out.len() + 1)).collect();
            cuts.push(out.len());
            cuts.sort_unstable();
            let (mut reader, mut items, mut from) = (Reader::new(1 << 20), Vec::new(), 0);
            for cut in cuts {
                reader.feed(&out[from..cut], &mut items).unwrap();
                from = cut;
            }
            prop_assert_eq!(items, whole);
        }

        #[test]
        fn no_stream_panics(bytes in vec(any::<u8>(), 0..200)) {
            read(&bytes);
        }
    }
}
