//! One HTTP/2 stream: its request as HTTP/1.0 text into a pipe, what the loop answers out of it under flow control.
//!
//! HTTP/1.0, because then an answer's body ends with its connection and there is no framing to undo. One pipe carries one
//! request, so a request that says something false of its own length can take nobody else's place.
//!
//! What must never happen: a header that means something between two hops (`Connection`, `Transfer-Encoding`, `Upgrade`) or
//! a length that was not counted here reaches the loop.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use grandstand_wire::http::{BODY_BYTES_MAX, HEADERS_MAX};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::header::{CONTENT_LENGTH, HOST, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use tokio::time::timeout;

use super::Hall;
use crate::gateway::conn::Caller;
use crate::gateway::pipe::{self, End, Far};

/// From the first byte of a body to its last, as for HTTP/1.1.
const BODY_WAIT: Duration = Duration::from_secs(20);
/// A stream whose client gives it no window ends: what TCP_USER_TIMEOUT is to a socket (`gateway.rs`).
const STALL_WAIT: Duration = Duration::from_secs(20);
/// At most this in one DATA frame.
const DATA_BYTES_MAX: usize = 16 * 1024;
/// Meant for one hop alone, or said anew by us. Source: RFC 9113, 8.2.2.
const NOT_CARRIED: [&str; 10] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// Why a stream ended before its answer did.
enum Broken {
    /// The client reset it, or its connection ended.
    Gone,
    /// We end it, and say so.
    Reset(Reason),
}

/// Carries a request in and its answer out. `_counted` is held as long as the stream is.
pub(super) async fn carry(
    hall: Arc<Hall>,
    caller: Caller,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    _counted: Arc<()>,
) {
    let metrics = &hall.shared.metrics;
    metrics.http2_streams.fetch_add(1, Ordering::Relaxed);
    match carried(&hall, caller, request, &mut respond).await {
        Ok(()) | Err(Broken::Gone) => {}
        Err(Broken::Reset(reason)) => respond.send_reset(reason),
    }
    metrics.http2_streams.fetch_sub(1, Ordering::Relaxed);
}

async fn carried(
    hall: &Hall,
    caller: Caller,
    request: Request<RecvStream>,
    respond: &mut SendResponse<Bytes>,
) -> Result<(), Broken> {
    let (parts, body) = request.into_parts();
    let (length, body) = received(&parts.headers, body, respond).await?;
    let text = request_text(&parts, length, &body);
    drop(body);
    let mut far = pipe::open(caller, text, hall.loop_bell.clone(), hall.task_bell.clone());
    let response = answer_head(&mut far, respond).await?;
    let mut left = response.headers().get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<usize>().ok());
    let bodiless = parts.method == Method::HEAD || left == Some(0) || matches!(response.status().as_u16(), 204 | 304);
    let mut out = respond.send_response(response, bodiless).map_err(|_| Broken::Gone)?;
    if bodiless {
        return Ok(());
    }
    loop {
        let n = match poll_fn(|cx| listening(cx, |cx| out.poll_reset(cx), |cx| far.poll_ready(cx, 0))).await? {
            Ok(n) => n,
            // Without a length, the end of the connection is the end of the body.
            Err(End::Said) if left.is_none() => return out.send_data(Bytes::new(), true).map_err(|_| Broken::Gone),
            Err(End::Said | End::Cut) => return Err(Broken::Reset(Reason::INTERNAL_ERROR)),
        };
        let most = n.min(DATA_BYTES_MAX).min(left.unwrap_or(usize::MAX));
        let (bytes, last) = far.take(room(&mut out, most).await?);
        left = left.map(|left| left - bytes.len());
        let ends = left.map_or(last, |left| left == 0);
        out.send_data(bytes, ends).map_err(|_| Broken::Gone)?;
        if ends {
            return Ok(());
        }
    }
}

/// Waits for `what`, and for the client's reset.
fn listening<T>(
    cx: &mut Context<'_>,
    mut reset: impl FnMut(&mut Context<'_>) -> Poll<Result<Reason, h2::Error>>,
    mut what: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> Poll<Result<T, Broken>> {
    if reset(cx).is_ready() {
        return Poll::Ready(Err(Broken::Gone));
    }
    what(cx).map(Ok)
}

/// Reads the body. Returns what the loop is told of its length, and what came: nothing when it is longer than any may be.
async fn received(
    headers: &HeaderMap,
    mut body: RecvStream,
    respond: &mut SendResponse<Bytes>,
) -> Result<(Option<usize>, Bytes), Broken> {
    if body.is_end_stream() {
        return Ok((headers.contains_key(CONTENT_LENGTH).then_some(0), Bytes::new()));
    }
    let whole = async {
        let mut whole = BytesMut::new();
        while let Some(part) = poll_fn(|cx| listening(cx, |cx| respond.poll_reset(cx), |cx| body.poll_data(cx))).await?
        {
            whole.extend_from_slice(&part.map_err(|_| Broken::Gone)?);
            if whole.len() > BODY_BYTES_MAX {
                // The loop says what it says of such a length.
                return Ok((Some(whole.len()), Bytes::new()));
            }
        }
        Ok((Some(whole.len()), whole.freeze()))
    };
    // Nothing is given back to the windows meanwhile: what a connection can make us hold is its window.
    timeout(BODY_WAIT, whole).await.unwrap_or(Err(Broken::Reset(Reason::CANCEL)))
}

/// The request as the loop reads it. What no text of HTTP/1 can say is said as badly as it was meant, and the loop refuses it:
/// an `:authority` that is not `Host` is two of them, CONNECT has no path.
fn request_text(parts: &http::request::Parts, length: Option<usize>, body: &Bytes) -> Vec<u8> {
    let target = match parts.uri.path_and_query() {
        Some(path) => path.as_str(),
        None => parts.uri.authority().map_or("", |authority| authority.as_str()),
    };
    let mut text = format!("{} {target} HTTP/1.0\r\n", parts.method).into_bytes();
    let mut line = |name: &str, value: &[u8]| {
        text.extend_from_slice(name.as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value);
        text.extend_from_slice(b"\r\n");
    };
    let authority = parts.uri.authority().map(|authority| authority.as_str());
    if let Some(authority) = authority {
        line("host", authority.as_bytes());
    }
    for host in parts.headers.get_all(HOST).iter().filter(|host| Some(host.as_bytes()) != authority.map(str::as_bytes))
    {
        line("host", host.as_bytes());
    }
    for (name, value) in parts.headers.iter().filter(|(name, _)| !NOT_CARRIED.contains(&name.as_str())) {
        line(name.as_str(), value.as_bytes());
    }
    if let Some(length) = length {
        line("content-length", length.to_string().as_bytes());
    }
    text.extend_from_slice(b"\r\n");
    text.extend_from_slice(body);
    text
}

/// Waits for the head of the loop's answer, and takes it.
async fn answer_head(far: &mut Far, respond: &mut SendResponse<Bytes>) -> Result<Response<()>, Broken> {
    let broken = Broken::Reset(Reason::INTERNAL_ERROR);
    let mut seen = 0;
    loop {
        seen = match poll_fn(|cx| listening(cx, |cx| respond.poll_reset(cx), |cx| far.poll_ready(cx, seen))).await? {
            Ok(n) => n,
            Err(End::Said | End::Cut) => return Err(broken),
        };
        match far.look(head_of) {
            Ok(Some((n, response))) => {
                far.take(n);
                return Ok(response);
            }
            Ok(None) => {}
            Err(()) => return Err(broken),
        }
    }
}

/// The head at the front of an answer, and its length. `None`: more must come. Errors: it is none.
fn head_of(bytes: &[u8]) -> Result<Option<(usize, Response<()>)>, ()> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Response::new(&mut headers);
    match head.parse(bytes) {
        Ok(httparse::Status::Complete(n)) => response(&head).map(|response| Some((n, response))).ok_or(()),
        Ok(httparse::Status::Partial) => Ok(None),
        Err(_) => Err(()),
    }
}

fn response(head: &httparse::Response<'_, '_>) -> Option<Response<()>> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(head.code?).ok()?;
    for header in &*head.headers {
        let name = HeaderName::from_bytes(header.name.as_bytes()).ok()?;
        if name == CONTENT_LENGTH || !NOT_CARRIED.contains(&name.as_str()) {
            response.headers_mut().append(name, HeaderValue::from_bytes(header.value).ok()?);
        }
    }
    Some(response)
}

/// Waits until the client takes more; how much, at most `want`.
async fn room(out: &mut SendStream<Bytes>, want: usize) -> Result<usize, Broken> {
    out.reserve_capacity(want);
    if out.capacity() > 0 {
        return Ok(out.capacity().min(want));
    }
    let more = poll_fn(|cx| {
        loop {
            match ready!(out.poll_capacity(cx)) {
                Some(Ok(0)) => {}
                Some(Ok(n)) => return Poll::Ready(Ok(n.min(want))),
                Some(Err(_)) | None => return Poll::Ready(Err(Broken::Gone)),
            }
        }
    });
    timeout(STALL_WAIT, more).await.unwrap_or(Err(Broken::Reset(Reason::CANCEL)))
}
