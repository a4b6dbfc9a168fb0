//! IRC lines: the reader and the parser against a plain reading of the whole text, the writer against both, and names there and back.

use grandstand_core::rng::Rng;
use grandstand_wire::irc::{Fault, Line, REST_BYTES_MAX, Reader, Source, TAGS_BYTES_MAX, Writer, nick, user_of};

use crate::bytes::{outcome, pick, text, ways};

pub fn generate(rng: &mut Rng) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..rng.below(8) {
        let mut line = String::new();
        if rng.chance(1, 2) {
            line.push('@');
            for _ in 0..rng.below(5) {
                let value = text(rng, 4).replace(' ', pick(&["\\s", "\\", " ", ""], rng));
                line += &[pick(&["id", "a/b", "+c", "", "msg-id"], rng), pick(&["=", "", "=="], rng), &value].concat();
                line += pick(&[";", ";;", "\\:", "\\"], rng);
            }
            line += pick(&[" ", "  ", ""], rng);
        }
        if rng.chance(1, 3) {
            line += &[":", &text(rng, 2), pick(&["!u@h", "@h", "", "!"], rng), pick(&[" ", "   "], rng)].concat();
        }
        line += pick(&["PRIVMSG", "privmsg", "JOIN", "001", "", ":", "@"], rng);
        for _ in 0..rng.below(4) {
            line += &[pick(&[" ", "  "], rng), pick(&["", ":", "#"], rng), &text(rng, 3)].concat();
        }
        if rng.chance(1, 60) {
            let n = [REST_BYTES_MAX, TAGS_BYTES_MAX, TAGS_BYTES_MAX + REST_BYTES_MAX][rng.below(3) as usize];
            line += &"x".repeat(n - 8 + rng.below(16) as usize);
        }
        out.extend_from_slice(line.as_bytes());
        if rng.chance(1, 12) {
            out.push(*[0, 0xff, 0xc3].get(rng.below(3) as usize).unwrap_or(&0));
        }
        out.extend_from_slice(pick(&["\r\n", "\n", "\r", "\n\n", "\n\r", ""], rng).as_bytes());
    }
    out
}

pub fn check(input: &[u8]) -> u64 {
    let want = read(&[input]);
    for way in ways(input) {
        assert_eq!(read(&way), want, "in {} pieces", way.len());
    }
    assert_eq!(want, plain(input));
    let (mut kinds, mut n_params) = (0u64, 0);
    for line in &want {
        match line {
            Err(Fault::TooLong) => kinds |= 1,
            Err(_) => kinds |= 2,
            Ok(line) => match Line::parse(line) {
                Err(fault) => {
                    assert_eq!((fault, parts(line)), (Fault::NoVerb, None));
                    kinds |= 4;
                }
                Ok(parsed) => {
                    compare(line, &parsed);
                    again(&parsed);
                    kinds |= 8 | u64::from(!parsed.tags.is_empty()) << 4 | u64::from(parsed.source.is_some()) << 5;
                    n_params = n_params.max(parsed.params.len());
                }
            },
        }
    }
    names(input);
    outcome(&[kinds, n_params.min(4) as u64, want.len().min(3) as u64])
}

fn read(pieces: &[&[u8]]) -> Vec<Result<String, Fault>> {
    let (mut reader, mut lines) = (Reader::new(), Vec::new());
    for piece in pieces {
        reader.feed(piece, &mut lines);
    }
    lines
}

/// The same on the whole text: what has no end is no line yet.
fn plain(input: &[u8]) -> Vec<Result<String, Fault>> {
    let mut lines: Vec<&[u8]> = input.split(|b| *b == b'\r' || *b == b'\n').collect();
    lines.pop();
    let judge = |line: &[u8]| {
        let tags = if line[0] == b'@' { line.split(|b| *b == b' ').next().map_or(0, <[u8]>::len) + 1 } else { 0 };
        let tags = tags.min(line.len());
        if line.len() > TAGS_BYTES_MAX + REST_BYTES_MAX || tags > TAGS_BYTES_MAX || line.len() - tags > REST_BYTES_MAX {
            Err(Fault::TooLong)
        } else if line.contains(&0) {
            Err(Fault::Nul)
        } else {
            std::str::from_utf8(line).map(str::to_owned).map_err(|_| Fault::NotUtf8)
        }
    };
    lines.into_iter().filter(|line| !line.is_empty()).map(judge).collect()
}

/// Tags as text, source, verb and parameters, by words.
type Parts<'a> = (&'a str, Option<&'a str>, &'a str, Vec<&'a str>);

/// RFC 1459, 2.3.1, with a cursor: `None` where there is no verb.
fn parts(line: &str) -> Option<Parts<'_>> {
    let end = |from: usize| line[from..].find(' ').map_or(line.len(), |n| from + n);
    let past = |mut at: usize| {
        while line[at..].starts_with(' ') {
            at += 1;
        }
        at
    };
    let (mut at, mut tags, mut source) = (0, "", None);
    if line.starts_with('@') {
        tags = &line[1..end(0)];
        at = past(end(0));
    }
    if line[at..].starts_with(':') {
        source = Some(&line[at + 1..end(at)]);
        at = end(at);
    }
    at = past(at);
    let verb = &line[at..end(at)];
    if verb.is_empty() {
        return None;
    }
    at = past(end(at));
    let mut params = Vec::new();
    while at < line.len() {
        if line[at..].starts_with(':') {
            params.push(&line[at + 1..]);
            break;
        }
        params.push(&line[at..end(at)]);
        at = past(end(at));
    }
    Some((tags, source, verb, params))
}

fn compare(line: &str, parsed: &Line<'_>) {
    let (tags, source, verb, params) = parts(line).expect("it has a verb");
    assert_eq!((parsed.source, parsed.verb, &parsed.params), (source, verb, &params), "{line:?}");
    let tags: Vec<&str> = tags.split(';').filter(|tag| !tag.is_empty()).collect();
    assert_eq!(tags.len(), parsed.tags.len(), "{line:?}");
    for (tag, (key, value)) in tags.iter().zip(&parsed.tags) {
        let (own, raw) = match tag.find('=') {
            Some(at) => (&tag[..at], &tag[at + 1..]),
            None => (*tag, ""),
        };
        let (mut meant, mut escaped) = (String::new(), false);
        for c in raw.chars() {
            match (escaped, c) {
                (false, '\\') => escaped = true,
                (false, c) => meant.push(c),
                (true, c) => {
                    meant.push(match c {
                        ':' => ';',
                        's' => ' ',
                        'r' => '\r',
                        'n' => '\n',
                        c => c,
                    });
                    escaped = false;
                }
            }
        }
        assert_eq!((*key, &**value), (own, &*meant), "{line:?}");
    }
}

/// What was read is written and read again as one line with the same parts.
fn again(line: &Line<'_>) {
    // Without tags and source, such a verb would be one of them.
    if line.tags.is_empty() && line.source.is_none() && line.verb.starts_with(['@', ':']) {
        return;
    }
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out);
    for (key, value) in &line.tags {
        writer = writer.tag(key, value);
    }
    let mut writer = writer.verb(line.source, line.verb);
    match line.params.split_last() {
        None => writer.end(),
        Some((last, words)) => {
            for word in words {
                writer = writer.param(word);
            }
            writer.text(last);
        }
    }
    let mut lines = Vec::new();
    Reader::new().feed(&out, &mut lines);
    match &lines[..] {
        [Ok(text)] => {
            let back = Line::parse(text).expect("it was written");
            let by_key =
                |line: &Line<'_>| line.tags.iter().map(|(k, v)| ((*k).to_owned(), v.to_string())).collect::<Vec<_>>();
            assert_eq!(by_key(&back), by_key(line));
            assert_eq!((back.source, back.verb, &back.params), (line.source, line.verb, &line.params));
        }
        // Escapes make tags longer than they were.
        [Err(Fault::TooLong)] => assert!(out.len() > REST_BYTES_MAX),
        other => panic!("{other:?} for {line:?}"),
    }
}

/// Any text is a user's id: its nick is a word, survives folding, and names nobody else.
fn names(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let user: String = text.chars().take(64).collect();
    let name = nick(&user);
    assert!(
        name.bytes().all(|b| b.is_ascii_graphic() && !b"!@#,*".contains(&b) && !b.is_ascii_uppercase()),
        "{name:?}"
    );
    assert_eq!(user_of(&name.to_uppercase()), Some(user.clone()).filter(|user| !user.is_empty()));
    let source = format!("{name}!{name}@{name}.host");
    let split = Source::split(&source);
    assert_eq!((split.nick, split.user), (&*name, &*name));
}
