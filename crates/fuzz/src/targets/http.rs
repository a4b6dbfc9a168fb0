//! Request heads: found at the same place however they come, and read as a plain reading of RFC 9112 reads them.
//!
//! The plain reading knows every rule that the server adds to the RFC's grammar, and no other: what it refuses must be
//! refused, what it takes must be taken, with the same method, target, fields and length.

use grandstand_core::rng::Rng;
use grandstand_wire::http::{BODY_BYTES_MAX, HEAD_BYTES_MAX, HEADERS_MAX, Head, Scan, scan, upgrade};

use crate::bytes::{cuts, outcome, pick, text, word};

pub fn generate(rng: &mut Rng) -> Vec<u8> {
    let mut out = Vec::new();
    let methods =
        ["GET", "GET", "GET", "POST", "PUT", "HEAD", "OPTIONS", "DELETE", "PATCH", "TRACE", "get", "G\tT", ""];
    let targets = [
        "/",
        "/v1/rooms/a/stream",
        "/v1/rooms/a/sse?last_event_id=5",
        "/v1/rooms/a/poll?since=%31&tab=x",
        "/v1/rooms/%2e%2e/sse",
        "http://a/",
        "*",
        "//",
        "/a b",
        "/\u{e9}",
        "/#x",
        "/\"<>\\^`{|}",
        "",
    ];
    let versions =
        ["HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/1.2", "http/1.1", "HTTP/1.1 "];
    let target = if rng.chance(2, 3) { pick(&targets[..4], rng) } else { pick(&targets, rng) };
    let method = pick(&methods, rng);
    let space = if rng.chance(1, 30) { pick(&["  ", "\t", ""], rng) } else { " " };
    out.extend([method, space, target, space, pick(&versions, rng)].concat().into_bytes());
    end(&mut out, rng);
    if rng.chance(9, 10) {
        out.extend(b"Host: a");
        end(&mut out, rng);
    }
    if rng.chance(1, 3) {
        for line in [
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        ] {
            if rng.chance(14, 15) {
                out.extend(line.as_bytes());
                end(&mut out, rng);
            }
        }
    }
    let many = if rng.chance(1, 40) { 70 } else { 5 };
    for _ in 0..rng.below(many) {
        field(&mut out, rng);
        end(&mut out, rng);
    }
    if rng.chance(1, 60) {
        out.extend(b"X: ");
        out.extend(vec![b'x'; rng.below(9_000) as usize]);
        end(&mut out, rng);
    }
    end(&mut out, rng);
    if rng.chance(1, 3) {
        out.extend(text(rng, 6).into_bytes());
    }
    out
}

fn end(out: &mut Vec<u8>, rng: &mut Rng) {
    let end: &[u8] =
        if rng.chance(1, 60) { pick(&[&b"\n"[..], b"\r", b"\r\r\n", b"\r\n ", b"\r\n\t", b""], rng) } else { b"\r\n" };
    out.extend(end);
}

fn field(out: &mut Vec<u8>, rng: &mut Rng) {
    let names = [
        "Content-Length",
        "content-length",
        "Transfer-Encoding",
        "Host",
        "Connection",
        "Upgrade",
        "Expect",
        "Origin",
        "Content-Encoding",
        "Sec-WebSocket-Key",
        "Sec-WebSocket-Version",
        "Sec-WebSocket-Protocol",
        "X-Forwarded-For",
        "Last-Event-ID",
        "Authorization",
        "X",
        "X y",
        "",
        "X\u{e9}",
        "X(",
        "Cookie",
    ];
    let values = [
        "0",
        "5",
        "+5",
        "-1",
        "5, 5",
        "0x5",
        "00",
        "65536",
        "65537",
        "18446744073709551617",
        "chunked",
        "identity",
        "gzip",
        "close",
        "keep-alive",
        "keep-alive, close",
        "close\u{a0}",
        "\u{85}close",
        "Upgrade",
        "websocket",
        "WebSocket, x",
        "h2c",
        "13",
        "12",
        "a",
        "a, b",
        "a b",
        "a/b",
        "x@a",
        "[::1]:80",
        "",
        "100-continue",
        "200-ok",
        "grandstand.v1, bearer.x",
        "dGhlIHNhbXBsZSBub25jZQ==",
        "c2hvcnQ=",
        "null",
        "https://evil.example",
    ];
    let name = pick(&names, rng);
    let space = if rng.chance(3, 4) { " " } else { pick(&["", "  ", "\t", "\u{b}", " \r\n "], rng) };
    let before = if rng.chance(1, 40) { " " } else { "" };
    let value = if rng.chance(4, 5) { pick(&values, rng).to_owned() } else { text(rng, 3).replace(['\r', '\n'], "") };
    let after = if rng.chance(1, 10) { " \t" } else { "" };
    out.extend([name, before, ":", space, &value, after].concat().into_bytes());
    if rng.chance(1, 60) {
        out.push([0x80, 0xff, 0x7f, 0x01, 0x0b][rng.below(5) as usize]);
    }
}

pub fn check(input: &[u8]) -> u64 {
    let whole = scan(input, 0);
    for turn in 0..2 {
        assert_eq!(pieces(input, &cuts(input, turn)), whole);
    }
    if input.len() <= 2_048 {
        assert_eq!(pieces(input, &(1..=input.len()).collect::<Vec<_>>()), whole);
    }
    let plain = plain(input);
    let n = match whole {
        Scan::More => {
            assert!(plain == Plain::More, "{plain:?} where more must come");
            return outcome(&[1]);
        }
        Scan::Refused(refusal) => {
            assert!(plain == Plain::Refused, "{plain:?} was refused: {refusal:?}");
            return outcome(&[2, word(refusal.reason)]);
        }
        Scan::Whole(n) => n,
    };
    assert!(n <= HEAD_BYTES_MAX);
    let head = match Head::parse(&input[..n]) {
        Ok(head) => head,
        Err(refusal) => {
            assert!((400..=599).contains(&refusal.status));
            assert!(plain == Plain::Refused, "{plain:?} was refused: {refusal:?}");
            return outcome(&[3, word(refusal.reason)]);
        }
    };
    let fields: Vec<(String, String)> = head
        .headers()
        .map(|h| (h.name.to_owned(), String::from_utf8(h.value.to_vec()).expect("a head's values are UTF-8")))
        .collect();
    let asked = match upgrade(&head) {
        Ok(asked) => u64::from(asked.is_some()),
        Err(refusal) => word(refusal.reason),
    };
    let ours = Plain::Head {
        len: n,
        method: head.method.to_owned(),
        target: head.target.to_owned(),
        minor: head.minor,
        fields,
        body_len: head.body_len,
        keep_alive: head.keep_alive,
        expects: head.expects_continue,
        upgrade: asked == 1,
    };
    // An upgrade that is malformed is read as a head and refused by its own words.
    let asks_badly = asked > 1;
    match plain {
        Plain::Head { ref upgrade, .. } if asks_badly => assert!(!upgrade, "a good upgrade was refused"),
        plain => assert_eq!(ours, plain),
    }
    outcome(&[
        4,
        asked,
        word(head.method),
        u64::from(head.keep_alive),
        u64::from(head.body_len > 0),
        u64::from(head.minor),
    ])
}

fn pieces(input: &[u8], cuts: &[usize]) -> Scan {
    let mut seen = 0;
    let mut last = Scan::More;
    for &cut in cuts {
        last = scan(&input[..cut], seen);
        if last != Scan::More {
            break;
        }
        seen = cut;
    }
    last
}

#[derive(PartialEq, Eq, Debug)]
enum Plain {
    More,
    Refused,
    Head {
        len: usize,
        method: String,
        target: String,
        minor: u8,
        fields: Vec<(String, String)>,
        body_len: usize,
        keep_alive: bool,
        expects: bool,
        upgrade: bool,
    },
}

fn plain(input: &[u8]) -> Plain {
    let within = &input[..input.len().min(HEAD_BYTES_MAX)];
    let end = within.windows(4).position(|w| w == b"\r\n\r\n").map(|at| at + 4);
    let looked_at = &within[..end.unwrap_or(within.len())];
    let bare = looked_at.iter().enumerate().any(|(at, b)| *b == b'\n' && (at == 0 || looked_at[at - 1] != b'\r'));
    if bare || looked_at.contains(&0) {
        return Plain::Refused;
    }
    match end {
        None if input.len() >= HEAD_BYTES_MAX => Plain::Refused,
        None => Plain::More,
        Some(len) => head(&looked_at[..len - 2], len).unwrap_or(Plain::Refused),
    }
}

/// Lines that each end in CR LF.
fn head(lines: &[u8], len: usize) -> Option<Plain> {
    let text = std::str::from_utf8(lines).ok()?;
    let mut lines = text.strip_suffix("\r\n")?.split("\r\n");
    let [method, target, version] = lines.next()?.split(' ').collect::<Vec<_>>()[..] else { return None };
    let minor = match version {
        "HTTP/1.1" => 1,
        "HTTP/1.0" => 0,
        _ => return None,
    };
    if !["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"].contains(&method) {
        return None;
    }
    if !target.starts_with('/') || !target.bytes().all(|b| (0x21..0x7f).contains(&b) && b != b'#') {
        return None;
    }
    let mut fields = Vec::new();
    for line in lines {
        let (name, value) = line.split_once(':')?;
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if name.is_empty() || !name.bytes().all(token) {
            return None;
        }
        if value.bytes().any(|b| (b < 0x20 && b != b'\t') || b == 0x7f) {
            return None;
        }
        fields.push((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()));
    }
    if fields.len() > HEADERS_MAX {
        return None;
    }
    let all = |wanted: &str| {
        let wanted = wanted.to_owned();
        fields.iter().filter(move |(name, _)| name.eq_ignore_ascii_case(&wanted)).map(|(_, value)| value.as_str())
    };
    let tokens = |name: &str| {
        let lists: Vec<String> = all(name).map(str::to_ascii_lowercase).collect();
        let split = lists.iter().flat_map(|l| l.split(',')).map(|t| t.trim_matches([' ', '\t']).to_owned());
        split.filter(|t| !t.is_empty()).collect::<Vec<String>>()
    };
    let hosts: Vec<&str> = all("host").collect();
    let lengths: Vec<&str> = all("content-length").collect();
    let one_host = hosts.len() == 1 || (hosts.is_empty() && minor == 0);
    if all("transfer-encoding").next().is_some()
        || !one_host
        || hosts.iter().any(|h| h.contains([',', ' ', '/', '@', '?', '#']))
    {
        return None;
    }
    let body_len = match lengths[..] {
        [] => 0,
        [digits] if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => {
            digits.bytes().try_fold(0usize, |n, d| {
                let n = n * 10 + usize::from(d - b'0');
                (n <= BODY_BYTES_MAX).then_some(n)
            })?
        }
        _ => return None,
    };
    if body_len > 0 && matches!(method, "GET" | "HEAD") {
        return None;
    }
    if tokens("content-encoding").iter().any(|e| e != "identity") {
        return None;
    }
    let expects: Vec<String> = all("expect").map(str::to_ascii_lowercase).collect();
    if expects.iter().any(|e| e != "100-continue") {
        return None;
    }
    let connection = tokens("connection");
    let has = |token: &str| connection.iter().any(|t| t == token);
    let good_key = |key: &str| {
        key.len() == 24
            && key.ends_with("==")
            && key[..22].bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/'))
    };
    let keys: Vec<&str> = all("sec-websocket-key").collect();
    let upgrade = tokens("upgrade").iter().any(|u| u == "websocket")
        && has("upgrade")
        && method == "GET"
        && minor == 1
        && lengths.is_empty()
        && all("sec-websocket-version").collect::<Vec<_>>() == ["13"]
        // Sixteen bytes end in a digit of two bits.
        && matches!(keys[..], [key] if good_key(key) && b"AQgw".contains(&key.as_bytes()[21]));
    let keep_alive = if minor == 1 { !has("close") } else { has("keep-alive") && !has("close") };
    Some(Plain::Head {
        len,
        method: method.to_owned(),
        target: target.to_owned(),
        minor,
        body_len,
        keep_alive,
        expects: !expects.is_empty() && minor == 1,
        upgrade,
        fields,
    })
}
