//! Server-sent events: the reader against the standard's own words, and the writer against the reader.

use grandstand_core::rng::Rng;
use grandstand_wire::sse::{Event, Item, Reader, TooLong, write};

use crate::bytes::{outcome, pick, text, ways};

const BYTES_MAX: usize = 4_096;

pub fn generate(rng: &mut Rng) -> Vec<u8> {
    let mut out = String::new();
    for _ in 0..rng.below(16) {
        let field = pick(&["data", "event", "id", "retry", "", "datax", " data", "\u{feff}data", "ID"], rng);
        let colon = pick(&[":", ": ", ":  ", "", "::"], rng);
        let value = if field == "retry" && rng.chance(2, 3) { rng.below(1 << 40).to_string() } else { text(rng, 4) };
        let end = pick(&["\n", "\r", "\r\n", "\n\n", "\r\r", "\r\n\r\n", "\n\r"], rng);
        out += &[field, colon, &value, end].concat();
        if rng.chance(1, 100) {
            out += &"data: xxxxxxxxxxxxxxxxxxxx\n".repeat(rng.below(400) as usize);
        }
    }
    out.into_bytes()
}

pub fn check(input: &[u8]) -> u64 {
    let want = read(&[input]);
    for way in ways(input) {
        assert_eq!(read(&way), want, "in {} pieces", way.len());
    }
    let whole = want.1.is_ok();
    if whole {
        assert_eq!(want.0, plain(&String::from_utf8_lossy(input)));
    }
    // What is written as data comes back as that data, whatever is in it, in one event.
    let data = String::from_utf8_lossy(input);
    let id = Some(input.len() as u64);
    let mut out = Vec::new();
    write("comment", id, data.as_bytes(), &mut out);
    let mut items = Vec::new();
    assert_eq!(Reader::new(out.len()).feed(&out, &mut items), Ok(()));
    let lines = data.replace("\r\n", "\n").replace('\r', "\n");
    let event = Event { kind: "comment".into(), data: lines, last_id: input.len().to_string() };
    assert_eq!(items, [Item::Event(event)]);
    let kinds = want.0.iter().fold(0u64, |n, item| {
        n | match item {
            Item::Event(e) => {
                1 | u64::from(e.kind != "message") << 3
                    | u64::from(!e.last_id.is_empty()) << 4
                    | u64::from(e.data.contains('\n')) << 5
            }
            Item::Comment(_) => 2,
            Item::Retry(_) => 4,
        }
    });
    outcome(&[kinds, u64::from(whole), want.0.len().min(3) as u64])
}

fn read(pieces: &[&[u8]]) -> (Vec<Item>, Result<(), TooLong>) {
    let mut reader = Reader::new(BYTES_MAX);
    let mut items = Vec::new();
    for piece in pieces {
        if let Err(long) = reader.feed(piece, &mut items) {
            return (items, Err(long));
        }
    }
    (items, Ok(()))
}

/// WHATWG HTML, "Interpreting an event stream", on the whole text.
fn plain(text: &str) -> Vec<Item> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut lines: Vec<&str> = text.split('\n').collect();
    // What has no line end is not a line yet.
    lines.pop();
    let (mut items, mut kind, mut data, mut last_id) = (Vec::new(), String::new(), Vec::<&str>::new(), String::new());
    for line in lines {
        if line.is_empty() {
            if !data.is_empty() {
                let kind = if kind.is_empty() { "message".to_owned() } else { kind.clone() };
                items.push(Item::Event(Event { kind, data: data.join("\n"), last_id: last_id.clone() }));
            }
            (kind, data) = (String::new(), Vec::new());
            continue;
        }
        let (field, value) = match line.find(':') {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (line, ""),
        };
        let value = if let Some(rest) = value.strip_prefix(' ') { rest } else { value };
        match field {
            "" => items.push(Item::Comment(value.to_owned())),
            "event" => kind = value.to_owned(),
            "data" => data.push(value),
            "id" if !value.contains('\0') => last_id = value.to_owned(),
            "retry" if !value.is_empty() && value.chars().all(|c| c.is_ascii_digit()) => {
                if let Ok(ms) = value.parse() {
                    items.push(Item::Retry(std::time::Duration::from_millis(ms)));
                }
            }
            _ => {}
        }
    }
    items
}
