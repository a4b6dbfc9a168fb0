//! HTTP/1.1 heads: one strict reading of a request's, and the writing of a response's.
//!
//! Everything two parsers could read differently is refused here and closes the connection: a `Transfer-Encoding` on a request,
//! two lengths, two hosts, a bare line feed, a folded header, a body where none belongs. So a proxy in front can never see
//! another border between requests than this server does.
//!
//! A head is looked at once: bytes are only searched for its end as they come, and parsed when it is there, so a head that comes
//! byte by byte costs no more than one that comes at once.
//!
//! Numbers: docs/decisions/0005-numbers.md.

use crate::deflate::{self, Agreed};

/// Bytes of one request head, the empty line included.
pub const HEAD_BYTES_MAX: usize = 8 * 1024;
pub const HEADERS_MAX: usize = 64;
pub const BODY_BYTES_MAX: usize = 64 * 1024;

/// How far a head has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scan {
    More,
    /// The head is the first so many bytes.
    Whole(usize),
    Refused(Refusal),
}

/// Why a request is not read: a status and what to tell. The connection closes after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    pub status: u16,
    pub reason: &'static str,
}

const fn refuse(status: u16, reason: &'static str) -> Refusal {
    Refusal { status, reason }
}

/// A request head, borrowed from the bytes it was read from.
#[derive(Debug)]
pub struct Head<'b> {
    pub method: &'b str,
    /// Path and query as sent; starts with `/`.
    pub target: &'b str,
    /// HTTP/1.0 or 1.1.
    pub minor: u8,
    headers: Headers<'b>,
    pub body_len: usize,
    pub keep_alive: bool,
    pub expects_continue: bool,
}

#[derive(Debug)]
struct Headers<'b> {
    list: [httparse::Header<'b>; HEADERS_MAX],
    n: usize,
}

/// Looks for the end of a head in `bytes`, of which the first `seen` were looked at before.
pub fn scan(bytes: &[u8], seen: usize) -> Scan {
    let from = seen.saturating_sub(3);
    for (at, &b) in bytes.iter().enumerate().skip(from).take(HEAD_BYTES_MAX.saturating_sub(from)) {
        match b {
            b'\n' if at == 0 || bytes[at - 1] != b'\r' => return Scan::Refused(refuse(400, "bare line feed")),
            b'\n' if at >= 3 && bytes[at - 3..at] == *b"\r\n\r" => return Scan::Whole(at + 1),
            0 => return Scan::Refused(refuse(400, "a nul byte")),
            _ => {}
        }
    }
    if bytes.len() >= HEAD_BYTES_MAX { Scan::Refused(refuse(431, "head over 8 KiB")) } else { Scan::More }
}

impl<'b> Head<'b> {
    /// Reads one whole head as [`scan`] found it.
    pub fn parse(bytes: &'b [u8]) -> Result<Head<'b>, Refusal> {
        if matches!(bytes.first(), Some(b'\r' | b'\n')) {
            return Err(refuse(400, "an empty request line"));
        }
        if bytes.windows(3).any(|w| w[0] == b'\n' && matches!(w[1], b' ' | b'\t')) {
            return Err(refuse(400, "folded header"));
        }
        let mut list = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut list);
        match request.parse(bytes) {
            Ok(httparse::Status::Complete(n)) if n == bytes.len() => {}
            Ok(_) => return Err(refuse(400, "head ends elsewhere")),
            Err(httparse::Error::TooManyHeaders) => return Err(refuse(431, "over 64 headers")),
            Err(httparse::Error::Version) => return Err(refuse(505, "not HTTP/1.1")),
            Err(_) => return Err(refuse(400, "malformed head")),
        }
        let (Some(method), Some(target), Some(minor)) = (request.method, request.path, request.version) else {
            return Err(refuse(400, "malformed head"));
        };
        let n = request.headers.len();
        let mut head = Head {
            method,
            target,
            minor,
            headers: Headers { list, n },
            body_len: 0,
            keep_alive: false,
            expects_continue: false,
        };
        head.judge()?;
        Ok(head)
    }

    /// The first header of that name. Values that are not visible ASCII or UTF-8 count as absent.
    pub fn header(&self, name: &str) -> Option<&'b str> {
        self.headers().find(|h| h.name.eq_ignore_ascii_case(name)).and_then(|h| std::str::from_utf8(h.value).ok())
    }

    pub fn count(&self, name: &str) -> usize {
        self.headers().filter(|h| h.name.eq_ignore_ascii_case(name)).count()
    }

    pub fn headers(&self) -> impl Iterator<Item = &httparse::Header<'b>> {
        self.headers.list[..self.headers.n].iter()
    }

    /// The comma-separated values of every header of that name, trimmed.
    pub fn list<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'b str> + 's {
        self.headers()
            .filter(move |h| h.name.eq_ignore_ascii_case(name))
            .filter_map(|h| std::str::from_utf8(h.value).ok())
            .flat_map(|v| v.split(','))
            // What is space in Unicode alone is a part of the token.
            .map(|v| v.trim_matches([' ', '\t']))
            .filter(|v| !v.is_empty())
    }

    pub fn path(&self) -> &'b str {
        self.target.split_once('?').map_or(self.target, |(path, _)| path)
    }

    pub fn query(&self) -> &'b str {
        self.target.split_once('?').map_or("", |(_, query)| query)
    }

    fn judge(&mut self) -> Result<(), Refusal> {
        if self.headers().any(|h| h.name.is_empty() || std::str::from_utf8(h.value).is_err()) {
            return Err(refuse(400, "header value is not utf-8"));
        }
        if !matches!(self.method, "GET" | "HEAD" | "POST" | "PUT" | "DELETE" | "OPTIONS" | "PATCH") {
            return Err(refuse(405, "method"));
        }
        if !self.target.starts_with('/') || self.target.contains('#') || !self.target.is_ascii() {
            return Err(refuse(400, "the target is not a path"));
        }
        if self.count("transfer-encoding") > 0 {
            return Err(refuse(411, "a body needs Content-Length"));
        }
        match (self.count("host"), self.minor) {
            (1, _) | (0, 0) => {}
            (0, _) => return Err(refuse(400, "no Host")),
            _ => return Err(refuse(400, "more than one Host")),
        }
        if self.header("host").is_some_and(|h| h.contains([',', ' ', '/', '@', '?', '#'])) {
            return Err(refuse(400, "malformed Host"));
        }
        self.body_len = match (self.count("content-length"), self.header("content-length")) {
            (0, _) => 0,
            (1, Some(len)) => read_length(len)?,
            _ => return Err(refuse(400, "more than one Content-Length")),
        };
        if self.body_len > 0 && matches!(self.method, "GET" | "HEAD") {
            return Err(refuse(400, "a body where none belongs"));
        }
        if self.list("content-encoding").any(|e| !e.eq_ignore_ascii_case("identity")) {
            return Err(refuse(415, "request bodies are not decoded"));
        }
        let continues = |h: &httparse::Header<'_>| h.value.eq_ignore_ascii_case(b"100-continue");
        if self.headers().any(|h| h.name.eq_ignore_ascii_case("expect") && !continues(h)) {
            return Err(refuse(417, "expectation"));
        }
        self.expects_continue = self.minor == 1 && self.count("expect") > 0;
        let has = |token: &str| self.list("connection").any(|t| t.eq_ignore_ascii_case(token));
        self.keep_alive = if self.minor == 1 { !has("close") } else { has("keep-alive") && !has("close") };
        Ok(())
    }
}

fn read_length(text: &str) -> Result<usize, Refusal> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(refuse(400, "malformed Content-Length"));
    }
    match text.parse::<u64>() {
        Ok(n) if n <= BODY_BYTES_MAX as u64 => Ok(n as usize),
        _ => Err(refuse(413, "body over 64 KiB")),
    }
}

/// What a WebSocket upgrade request asks for.
#[derive(Debug, PartialEq, Eq)]
pub struct Upgrade {
    /// Value for `Sec-WebSocket-Accept`.
    pub accept: String,
    /// The first offer of permessage-deflate that can be met.
    pub deflate: Option<Agreed>,
}

/// Reads the fields of a WebSocket upgrade; `None` when the request asks for none.
/// Errors: 400 for a malformed one, 426 for another version than 13.
pub fn upgrade(head: &Head<'_>) -> Result<Option<Upgrade>, Refusal> {
    let asks = head.list("upgrade").any(|u| u.eq_ignore_ascii_case("websocket"));
    if !asks {
        return Ok(None);
    }
    if head.method != "GET" || head.minor != 1 || head.body_len > 0 || head.count("content-length") > 0 {
        return Err(refuse(400, "an upgrade is a GET of HTTP/1.1 without a body"));
    }
    if !head.list("connection").any(|c| c.eq_ignore_ascii_case("upgrade")) {
        return Err(refuse(400, "an upgrade needs Connection: Upgrade"));
    }
    if head.count("sec-websocket-version") != 1 || head.header("sec-websocket-version") != Some("13") {
        return Err(refuse(426, "WebSocket version 13 only"));
    }
    let key = match (head.count("sec-websocket-key"), head.header("sec-websocket-key")) {
        (1, Some(key)) => key,
        _ => return Err(refuse(400, "an upgrade has one Sec-WebSocket-Key")),
    };
    let accept = crate::ws::accept_key(key).ok_or(refuse(400, "malformed Sec-WebSocket-Key"))?;
    Ok(Some(Upgrade { accept, deflate: deflate::agree(head)? }))
}

/// The value of `key` in a query, percent-decoded. Errors: `None` when absent or not UTF-8 after decoding.
pub fn query_value(query: &str, key: &str) -> Option<String> {
    query.split('&').find_map(|pair| {
        let (k, v) = pair.split_once('=').unwrap_or((pair, ""));
        (k == key).then(|| percent_decode(v)).flatten()
    })
}

/// Errors: `None` for a broken escape or bytes that are not UTF-8.
pub fn percent_decode(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(b) = bytes.next() {
        out.push(match b {
            b'+' => b' ',
            b'%' => {
                let high = char::from(bytes.next()?).to_digit(16)?;
                let low = char::from(bytes.next()?).to_digit(16)?;
                (high * 16 + low) as u8
            }
            b => b,
        });
    }
    String::from_utf8(out).ok()
}

/// `Retry-After` for a wait in milliseconds: whole seconds, rounded up so that nobody comes too early, at least one.
pub fn retry_after(ms: u64) -> u64 {
    ms.div_ceil(1_000).max(1)
}

/// Appends a status line; headers and the empty line follow by [`write_header`] and [`end_head`].
pub fn write_status(status: u16, out: &mut Vec<u8>) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.to_string().as_bytes());
    out.push(b' ');
    out.extend_from_slice(phrase(status).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends one header. A value that could end the line is a bug of ours and panics.
pub fn write_header(name: &str, value: &[u8], out: &mut Vec<u8>) {
    assert!(!value.iter().any(|b| matches!(b, b'\r' | b'\n' | 0)), "a header value holds no line end");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

pub fn end_head(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\r\n");
}

/// Appends a chunk of a chunked body; an empty one would end the body and is left out.
pub fn write_chunk(bytes: &[u8], out: &mut Vec<u8>) {
    if !bytes.is_empty() {
        out.extend_from_slice(format!("{:x}\r\n", bytes.len()).as_bytes());
        out.extend_from_slice(bytes);
        out.extend_from_slice(b"\r\n");
    }
}

pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

fn phrase(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        408 => "Request Timeout",
        409 => "Conflict",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ => "Status",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::{HEAD_BYTES_MAX, Head, Refusal, Scan, percent_decode, query_value, scan, upgrade};

    fn read(text: &[u8]) -> Result<Head<'_>, Refusal> {
        let mut seen = 0;
        for n in 1..=text.len() {
            match scan(&text[..n], seen) {
                Scan::More => seen = n,
                Scan::Whole(len) => return Head::parse(&text[..len]),
                Scan::Refused(r) => return Err(r),
            }
        }
        panic!("no head in {:?}", String::from_utf8_lossy(text));
    }

    fn refused(text: &str, status: u16) {
        match read(text.as_bytes()) {
            Err(r) => assert_eq!(r.status, status, "{text:?}: {}", r.reason),
            Ok(_) => panic!("{text:?} was accepted"),
        }
    }

    #[test]
    fn a_plain_request_is_read() {
        let head =
            read(b"GET /v1/rooms/a/sse?x=1&since=%37 HTTP/1.1\r\nHost: a\r\nAccept: b, c\r\naccept:d\r\n\r\n").unwrap();
        assert_eq!((head.method, head.path(), head.body_len, head.keep_alive), ("GET", "/v1/rooms/a/sse", 0, true));
        assert_eq!(head.list("Accept").collect::<Vec<_>>(), ["b", "c", "d"]);
        assert_eq!(query_value(head.query(), "since").as_deref(), Some("7"));
    }

    #[test]
    fn keep_alive_follows_the_version_and_the_header() {
        let keeps = |text: &[u8]| read(text).unwrap().keep_alive;
        assert!(keeps(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert!(!keeps(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\n\r\n"));
        assert!(!keeps(b"GET / HTTP/1.0\r\n\r\n"));
        assert!(keeps(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
        assert!(keeps("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\u{a0}\r\n\r\n".as_bytes()));
    }

    #[test]
    fn a34_what_two_parsers_could_read_differently_is_refused() {
        let host = "Host: a\r\n";
        for (fields, status) in [
            ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", 411),
            ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", 411),
            ("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", 411),
            ("Transfer-Encoding: xchunked\r\n", 411),
            ("Transfer-Encoding:\tchunked\r\n", 411),
            ("Transfer-Encoding : chunked\r\n", 400),
            ("Content-Length: 5\r\nContent-Length: 5\r\n", 400),
            ("Content-Length: 5\r\nContent-Length: 6\r\n", 400),
            ("Content-Length: 5, 5\r\n", 400),
            ("Content-Length: +5\r\n", 400),
            ("Content-Length: -1\r\n", 400),
            ("Content-Length: 0x5\r\n", 400),
            ("Content-Length: 5 5\r\n", 400),
            ("Content-Length:\r\n", 400),
            ("Content-Length: 18446744073709551617\r\n", 413),
            ("Content-Length: 65537\r\n", 413),
            ("X: a\r\n folded\r\n", 400),
            ("X: a\r\n\tfolded\r\n", 400),
            (" X: a\r\n", 400),
            ("X: a\nY: b\r\n", 400),
            ("X: a\rY: b\r\n", 400),
            ("X: a\0b\r\n", 400),
            ("X: \u{1}\r\n", 400),
            ("X y: b\r\n", 400),
            (": b\r\n", 400),
            ("Host: b\r\n", 400),
            ("Content-Encoding: gzip\r\n", 415),
            ("Expect: 200-ok\r\n", 417),
            ("Expect: 100-continue\r\nExpect: 200-ok\r\n", 417),
        ] {
            refused(&format!("POST / HTTP/1.1\r\n{host}{fields}\r\n"), status);
        }
        refused("POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\n", 400);
        refused("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n", 400);
        refused("GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 411);
        for host in ["a, b", "a b", "a/b", "x@a"] {
            refused(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"), 400);
        }
        for line in [
            "GET  / HTTP/1.1",
            "GET / HTTP/1.1 x",
            "GET http://a/ HTTP/1.1",
            "GET * HTTP/1.1",
            "GET /#x HTTP/1.1",
            "GET /é HTTP/1.1",
            "GET /?a=\u{1f600} HTTP/1.1",
        ] {
            refused(&format!("{line}\r\nHost: a\r\n\r\n"), 400);
        }
        refused("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505);
        refused("GET / HTTP/1.1\nHost: a\r\n\r\n", 400);
        refused("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400);
    }

    #[test]
    fn a38_methods_are_a_closed_list() {
        for method in ["TRACE", "CONNECT", "get", "TRACK", "PROPFIND", "PRI"] {
            refused(&format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n"), 405);
        }
    }

    #[test]
    fn a17_large_heads_are_refused_before_they_are_kept() {
        refused(&format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(HEAD_BYTES_MAX)), 431);
        let many: String = (0..64).map(|n| format!("X{n}: 1\r\n")).collect();
        refused(&format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n"), 431);
        let most: String = (0..63).map(|n| format!("X{n}: 1\r\n")).collect();
        assert!(read(format!("GET / HTTP/1.1\r\nHost: a\r\n{most}\r\n").as_bytes()).is_ok());
    }

    fn asked(fields: &str) -> Result<bool, u16> {
        let text = format!("GET /s HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        upgrade(&read(text.as_bytes()).unwrap()).map(|u| u.is_some()).map_err(|r| r.status)
    }

    #[test]
    fn a20_an_upgrade_has_exactly_its_fields() {
        const KEY: &str = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        const UP: &str = "Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n";
        const V: &str = "Sec-WebSocket-Version: 13\r\n";
        assert_eq!(asked(""), Ok(false));
        assert_eq!(asked(&format!("{UP}{KEY}{V}")), Ok(true));
        assert_eq!(asked(&format!("{UP}{KEY}")), Err(426));
        assert_eq!(asked(&format!("{UP}{KEY}Sec-WebSocket-Version: 12\r\n")), Err(426));
        assert_eq!(asked(&format!("{UP}{KEY}{V}{V}")), Err(426));
        assert_eq!(asked(&format!("{UP}{V}")), Err(400));
        assert_eq!(asked(&format!("{UP}{KEY}{KEY}{V}")), Err(400));
        assert_eq!(asked(&format!("{UP}{V}Sec-WebSocket-Key: c2hvcnQ=\r\n")), Err(400));
        assert_eq!(asked(&format!("Upgrade: websocket\r\n{KEY}{V}")), Err(400));
        assert_eq!(asked(&format!("{UP}{KEY}{V}Content-Length: 0\r\n")), Err(400));
    }

    #[test]
    fn a18_an_upgrade_of_http_1_0_is_refused() {
        let text = b"GET /s HTTP/1.0\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        assert_eq!(upgrade(&read(text).unwrap()).map_err(|r| r.status), Err(400));
    }

    #[test]
    fn escapes_decode_once_or_not_at_all() {
        assert_eq!(percent_decode("a%2fb+c%C3%A9").as_deref(), Some("a/b cé"));
        for bad in ["%", "%2", "%zz", "%ff"] {
            assert_eq!(percent_decode(bad), None, "{bad}");
        }
        assert_eq!(query_value("a&b=1&b=2", "b").as_deref(), Some("1"));
        assert_eq!(query_value("a&b=1", "a").as_deref(), Some(""));
        assert_eq!(query_value("ab=1", "b"), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_head_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Scan::Whole(n) = scan(&bytes, 0) {
                let _ = Head::parse(&bytes[..n]).map(|h| upgrade(&h));
            }
        }
    }
}
