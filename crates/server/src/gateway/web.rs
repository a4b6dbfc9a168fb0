//! HTTP/1.1 on one connection: heads in, answers out, one request at a time.
//!
//! Stream routes turn the connection into a viewer; everything else goes to control as one [`HttpRequest`] and comes back in
//! parts, the next when the last has left. Between requests any route may follow, an upgrade too. A request that cannot be
//! read without doubt is answered and the connection closed, so nothing after it is ever taken for another request.
//!
//! Numbers: docs/decisions/0005-numbers.md.

use crate::auth::{certificate, place};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use grandstand_core::time::Mono;
use grandstand_wire::codes::ErrorCode;
use grandstand_wire::http::{self, Head, Refusal, Scan};
use grandstand_wire::problem;
use grandstand_wire::proxy::{self, Scan as Scanned};

use super::conn::{Address, Kind};
use super::worker::Worker;
use crate::auth::door;
use crate::link::{Delay, HttpFlow, HttpPart, HttpRequest, Unheard};
use crate::metrics::add;

/// From the first byte of a head to its end, and for a new connection to say anything.
pub(super) const HEAD_WAIT: Duration = Duration::from_secs(5);
const BODY_WAIT: Duration = Duration::from_secs(20);
/// Between two requests.
const IDLE_WAIT: Duration = Duration::from_secs(75);
/// A response whose next part does not come.
const PART_WAIT: Duration = Duration::from_secs(60);

pub struct Http {
    /// Bytes of the request being read, and of what came after it.
    buf: Vec<u8>,
    /// How many of them were searched for the head's end.
    seen: usize,
    /// Length of head and body, once the head is known.
    need: Option<usize>,
    pub deadline: Mono,
    /// The PROXY header comes first.
    pub awaits_proxy: bool,
    /// It came over the limit: its stream is refused, any other request is its last.
    pub over: bool,
    /// The response being written; no request is read meanwhile.
    pub response: Option<Response>,
    /// A renewal asked of another worker: its answer comes by mail.
    pub renewal: Option<Renewal>,
}

pub struct Renewal {
    /// What was asked.
    pub request: u64,
    pub origin: Option<String>,
    pub keep_alive: bool,
}

pub struct Response {
    flow: Arc<HttpFlow>,
    keep_alive: bool,
    /// HTTP/1.1: a body of unknown length goes in chunks; before that, to the connection's end.
    may_chunk: bool,
    /// HEAD: the body is left out.
    head_only: bool,
    chunked: bool,
    /// A part was written and control waits to hear that it left.
    owes_turn: bool,
}

impl Http {
    pub fn new(now: Mono) -> Http {
        Http {
            buf: Vec::new(),
            seen: 0,
            need: None,
            deadline: now + HEAD_WAIT,
            awaits_proxy: false,
            over: false,
            response: None,
            renewal: None,
        }
    }
    /// Ready for the next request; `buf` holds what came of it already.
    pub fn idle(now: Mono, buf: Vec<u8>) -> Http {
        Http { buf, deadline: now + IDLE_WAIT, ..Http::new(now) }
    }
    pub fn holds_bytes(&self) -> bool {
        !self.buf.is_empty()
    }
    pub fn close(&self) {
        if let Some(response) = &self.response {
            response.flow.close();
        }
    }
    /// Whether more may be read now: not while a response is written, but for noticing that the other side is gone.
    pub fn reads(&self) -> bool {
        self.response.is_none() && self.renewal.is_none()
    }
}

/// What is done with a request once it is whole.
enum Next {
    /// Wait for more.
    More,
    Again,
    Done,
}

impl Worker {
    pub(super) fn on_http_bytes(&mut self, slot: usize, bytes: &[u8]) {
        let now = self.now;
        let Kind::Http(http) = &mut self.conns[slot].kind else { return };
        if http.buf.is_empty() && http.need.is_none() && !bytes.is_empty() {
            http.deadline = now + HEAD_WAIT;
        }
        http.buf.extend_from_slice(bytes);
        while let Next::Again = self.next_request(slot) {}
        if let Some(Kind::Http(_)) = self.conns.get(slot).map(|c| &c.kind) {
            self.schedule(slot);
        }
    }

    /// Reads one request from what has come. The buffer is taken out while the request borrows from it.
    fn next_request(&mut self, slot: usize) -> Next {
        let Some(conn) = self.conns.get_mut(slot) else { return Next::Done };
        let Kind::Http(http) = &mut conn.kind else { return Next::Done };
        if !http.reads() || http.buf.is_empty() || !conn.out.is_empty() {
            return Next::More;
        }
        if http.awaits_proxy {
            match proxy::scan(&http.buf) {
                Scanned::More => return Next::More,
                Scanned::Whole { len, client } => {
                    http.awaits_proxy = false;
                    http.buf.drain(..len);
                    if let Some(client) = client {
                        (conn.peer, conn.peer_port) = (Address::of(client.ip()), client.port());
                    }
                    conn.client = conn.peer;
                    return Next::Again;
                }
                Scanned::Refused(fault) => {
                    // A trusted proxy that does not say who its client is, is set up otherwise than this server: no answer
                    // is sure to be read.
                    add(&self.shared.metrics.http_refused, 1);
                    tracing::debug!(peer = %conn.peer.ip(), ?fault, "no PROXY header");
                    self.drop_conn(slot);
                    return Next::Done;
                }
            }
        }
        let buf = std::mem::take(&mut http.buf);
        let after = self.judge_head(slot, &buf);
        let Some(conn) = self.conns.get_mut(slot) else { return Next::Done };
        match (after, &mut conn.kind) {
            (None, Kind::Http(http)) => {
                http.buf = buf;
                Next::More
            }
            (Some(used), Kind::Http(http)) => {
                http.seen = 0;
                http.need = None;
                http.buf = buf[used..].to_vec();
                if http.buf.is_empty() { Next::More } else { Next::Again }
            }
            _ => Next::Done,
        }
    }

    /// Looks at the front of `buf`; how many bytes of it a request took, or `None` when more must come.
    fn judge_head(&mut self, slot: usize, buf: &[u8]) -> Option<usize> {
        let Kind::Http(http) = &mut self.conns[slot].kind else { return Some(buf.len()) };
        if http.need.is_some_and(|need| buf.len() < need) {
            return None;
        }
        // RFC 9112 lets a server skip an empty line before a request, some clients send one after a body. It is a part of
        // what follows it: one alone is a request that has begun, so that a drip of them is no way to stay.
        let skipped = if buf.starts_with(b"\r\n") { 2 } else { 0 };
        let rest = &buf[skipped..];
        let head_len = match http::scan(rest, if http.need.is_some() { 0 } else { http.seen.saturating_sub(skipped) }) {
            Scan::Whole(n) => n,
            Scan::More => {
                http.seen = buf.len();
                return None;
            }
            Scan::Refused(refusal) => {
                self.refuse_request(slot, refusal);
                return Some(buf.len());
            }
        };
        let over = http.over;
        let head = match Head::parse(&rest[..head_len]) {
            Ok(mut head) => {
                head.keep_alive &= !over;
                head
            }
            Err(refusal) => {
                self.refuse_request(slot, refusal);
                return Some(buf.len());
            }
        };
        let need = skipped + head_len + head.body_len;
        if buf.len() < need {
            let first = http.need.replace(need).is_none();
            http.deadline = self.now + BODY_WAIT;
            if first && head.expects_continue {
                self.send(slot, Bytes::from_static(b"HTTP/1.1 100 Continue\r\n\r\n"));
            }
            return None;
        }
        add(&self.shared.metrics.http_requests, 1);
        let forwarded = head.headers().filter(|h| h.name.eq_ignore_ascii_case("x-forwarded-for"));
        let forwarded: Vec<&[u8]> = forwarded.map(|h| h.value).collect();
        let trusted = &self.shared.settings.trusted_proxies;
        let conn = &mut self.conns[slot];
        conn.client = Address::of(door::client(conn.peer.ip(), forwarded.into_iter(), trusted));
        let serves = conn.serves;
        if !serves.takes(head.path(), super::stream::transport_of(head.path())) {
            let answer = problem(ErrorCode::WrongListener, serves.rule(), head.keep_alive, &[]);
            let answer = if head.method == "HEAD" { head_of(&answer) } else { answer };
            self.answer(slot, answer, head.keep_alive);
        } else if super::stream::is_stream_path(head.path()) {
            let more = buf.len() > need;
            self.open_stream(slot, &head, &rest[head_len..head_len + head.body_len], more, over);
        } else if self.shared.echo && head.path() == super::echo::PATH {
            self.open_echo(slot, &head);
        } else {
            let body = Bytes::copy_from_slice(&rest[head_len..head_len + head.body_len]);
            self.forward(slot, &head, body);
        }
        Some(need)
    }

    fn forward(&mut self, slot: usize, head: &Head<'_>, body: Bytes) {
        let conn_key = self.key(slot);
        let place_of = self.place_of(slot, head);
        let conn = &mut self.conns[slot];
        let peer = SocketAddr::new(conn.client.ip(), conn.peer_port);
        let Kind::Http(http) = &mut conn.kind else { return };
        let mut builder = ::http::Request::builder().method(head.method).uri(head.target);
        // These are the gateway's own word.
        for header in head.headers().filter(|h| !place::is_own_word(h.name)) {
            builder = builder.header(header.name, header.value);
        }
        if let Some(region) = place_of {
            builder = builder.header(place::HEADER, region.to_string());
        }
        // Who sends scores may have to show one.
        let certificate = conn.socket.certificate().filter(|der| der.len() <= certificate::BYTES_MAX);
        if let Some(der) = certificate.filter(|_| head.path() == "/v1/score-event") {
            builder = builder.header(certificate::HEADER, URL_SAFE_NO_PAD.encode(der));
        }
        let request = match builder.body(body) {
            Ok(request) => request,
            Err(_) => return self.refuse_request(slot, Refusal { status: 400, reason: "malformed request" }),
        };
        let flow = self.shared.control.flow(conn_key);
        http.response = Some(Response {
            flow: flow.clone(),
            keep_alive: head.keep_alive,
            may_chunk: head.minor == 1,
            head_only: head.method == "HEAD",
            chunked: false,
            owes_turn: false,
        });
        http.deadline = self.now + PART_WAIT;
        let Err(unheard) = self.shared.control.send(HttpRequest { request, peer, conn: conn_key, flow }) else {
            return;
        };
        let keep_alive = head.keep_alive;
        if let Kind::Http(http) = &mut self.conns[slot].kind {
            http.response = None;
        }
        let answer = match unheard {
            Unheard::Busy => {
                problem(ErrorCode::Overloaded, "too many requests wait", keep_alive, &[("retry-after", "1")])
            }
            // The process that answers is away; this one lives, and is asked so by whoever watches over it.
            Unheard::Away(_) if head.path() == "/healthz/live" => {
                whole(200, "application/json", b"{\"live\":true}", keep_alive, &[])
            }
            Unheard::Away(delay) => self.away(head, delay),
        };
        let answer = if head.method == "HEAD" { head_of(&answer) } else { answer };
        self.answer(slot, answer, keep_alive);
    }

    /// 503 in place of control, readable by the pages that control would answer.
    fn away(&self, head: &Head<'_>, delay: Delay) -> Bytes {
        let origins = head.headers().filter(|h| h.name.eq_ignore_ascii_case("origin")).map(|h| h.value);
        let welcome = door::may_enter(origins, head.header("host"), &self.shared.settings.origins);
        let mut headers = super::stream::cors(head.header("origin").filter(|_| welcome));
        let seconds = http::retry_after(delay.wait().retry_after_ms).to_string();
        headers.extend([("retry-after", seconds.as_str()), ("cache-control", "no-store")]);
        problem_after(ErrorCode::NotReady, "the log is away for a moment", delay, head.keep_alive, &headers)
    }

    pub(super) fn on_http_part(&mut self, slot: usize, part: HttpPart) {
        let now = self.now;
        let Kind::Http(http) = &mut self.conns[slot].kind else { return };
        let Some(response) = &mut http.response else { return };
        http.deadline = now + PART_WAIT;
        let mut out = Vec::new();
        let mut ends = false;
        match part {
            HttpPart::Whole { head, body } => {
                response.chunked = false;
                write_response_head(&head, Some(body.len()), response, &mut out);
                if !response.head_only && may_have_body(head.status.as_u16()) {
                    out.extend_from_slice(&body);
                }
                ends = true;
            }
            HttpPart::Head(head) => write_response_head(&head, None, response, &mut out),
            HttpPart::Chunk(bytes) => {
                if response.head_only {
                    response.flow.left();
                } else {
                    response.owes_turn = true;
                    if response.chunked {
                        http::write_chunk(&bytes, &mut out);
                    } else {
                        out.extend_from_slice(&bytes);
                    }
                }
            }
            HttpPart::End => {
                if response.chunked && !response.head_only {
                    out.extend_from_slice(http::LAST_CHUNK);
                }
                ends = true;
            }
            HttpPart::Broken => return self.drop_conn(slot),
        }
        if ends {
            let keep_alive = response.keep_alive;
            http.response = None;
            self.answer(slot, out.into(), keep_alive);
        } else {
            self.send(slot, out.into());
            if self.conns.get(slot).is_some_and(|c| c.out.is_empty()) {
                self.on_http_drained(slot);
            }
            self.schedule_live(slot);
        }
    }

    /// All that was written has left: control may send the next part.
    pub(super) fn on_http_drained(&mut self, slot: usize) {
        let conn = &self.conns[slot];
        if conn.ended || conn.unread || matches!(&conn.kind, Kind::Http(http) if http.holds_bytes()) {
            // The caller's end, or its next request, came before the answer had left: it is looked at once more.
            self.again.push_back(slot as u32);
        }
        let Kind::Http(http) = &mut self.conns[slot].kind else { return };
        if let Some(response) = &mut http.response
            && std::mem::take(&mut response.owes_turn)
        {
            response.flow.left();
        }
    }

    /// Writes a whole answer; then the connection waits for the next request, or closes.
    pub(super) fn answer(&mut self, slot: usize, bytes: Bytes, keep_alive: bool) {
        let keep_alive = keep_alive && !self.draining;
        self.send(slot, bytes);
        let now = self.now;
        let Some(conn) = self.conns.get_mut(slot) else { return };
        if !keep_alive {
            return self.linger(slot, PART_WAIT);
        }
        match &mut conn.kind {
            Kind::Http(http) => http.deadline = now + IDLE_WAIT,
            _ => conn.kind = Kind::Http(Box::new(Http::idle(now, Vec::new()))),
        }
        // What the client sent meanwhile is looked at when this turn is over.
        self.again.push_back(slot as u32);
        self.schedule(slot);
    }

    pub(super) fn refuse_request(&mut self, slot: usize, refusal: Refusal) {
        add(&self.shared.metrics.http_refused, 1);
        let code = match refusal.status {
            405 => ErrorCode::BadMethod,
            411 => ErrorCode::LengthRequired,
            413 => ErrorCode::TooLarge,
            415 => ErrorCode::BadMedia,
            431 => ErrorCode::HeadTooLarge,
            _ => ErrorCode::BadRequest,
        };
        let more: &[(&str, &str)] = if refusal.status == 426 { &[("sec-websocket-version", "13")] } else { &[] };
        let answer = whole_problem(refusal.status, code, refusal.reason, None, false, more);
        self.answer(slot, answer, false);
    }
}

fn may_have_body(status: u16) -> bool {
    !matches!(status, 100..=199 | 204 | 304)
}

fn write_response_head(
    head: &::http::response::Parts,
    whole: Option<usize>,
    response: &mut Response,
    out: &mut Vec<u8>,
) {
    let status = head.status.as_u16();
    http::write_status(status, out);
    let mut length_known = false;
    for (name, value) in &head.headers {
        match name.as_str() {
            "transfer-encoding" | "connection" | "keep-alive" => continue,
            "content-length" if whole.is_some() && !response.head_only => continue,
            "content-length" => length_known = true,
            _ => {}
        }
        http::write_header(name.as_str(), value.as_bytes(), out);
    }
    if may_have_body(status) && !length_known {
        match whole {
            Some(len) => http::write_header("content-length", len.to_string().as_bytes(), out),
            None if response.may_chunk => {
                response.chunked = true;
                http::write_header("transfer-encoding", b"chunked", out);
            }
            None => response.keep_alive = false,
        }
    }
    http::write_header("connection", if response.keep_alive { b"keep-alive" } else { b"close" }, out);
    http::end_head(out);
}

/// A whole answer of RFC 9457 with the code's own status.
pub fn problem(code: ErrorCode, detail: &str, keep_alive: bool, headers: &[(&str, &str)]) -> Bytes {
    whole_problem(code.status(), code, detail, None, keep_alive, headers)
}

/// [`problem`], with how long to wait.
pub fn problem_after(code: ErrorCode, detail: &str, delay: Delay, keep_alive: bool, headers: &[(&str, &str)]) -> Bytes {
    whole_problem(code.status(), code, detail, Some(delay), keep_alive, headers)
}

fn whole_problem(
    status: u16,
    code: ErrorCode,
    detail: &str,
    delay: Option<Delay>,
    keep_alive: bool,
    headers: &[(&str, &str)],
) -> Bytes {
    let mut body = Vec::with_capacity(128);
    problem::write(status, code, detail, delay.map(Delay::wait), &mut body);
    whole(status, "application/problem+json", &body, keep_alive, headers)
}

/// A whole answer without its body: what HEAD is answered with.
pub fn head_of(whole: &Bytes) -> Bytes {
    let end = whole.windows(4).position(|four| four == b"\r\n\r\n").map_or(whole.len(), |at| at + 4);
    whole.slice(..end)
}

/// A whole answer with a body.
pub fn whole(status: u16, kind: &str, body: &[u8], keep_alive: bool, headers: &[(&str, &str)]) -> Bytes {
    let mut out = Vec::with_capacity(192 + body.len());
    http::write_status(status, &mut out);
    if may_have_body(status) {
        http::write_header("content-type", kind.as_bytes(), &mut out);
        http::write_header("content-length", body.len().to_string().as_bytes(), &mut out);
    }
    for (name, value) in headers {
        http::write_header(name, value.as_bytes(), &mut out);
    }
    http::write_header("connection", if keep_alive { b"keep-alive" } else { b"close" }, &mut out);
    http::end_head(&mut out);
    out.extend_from_slice(body);
    out.into()
}
