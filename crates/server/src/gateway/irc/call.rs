//! A request of this connection's client to the loop, by a pipe: a room's stream, or a call of the API.
//!
//! HTTP/1.0, as a stream of HTTP/2 speaks it (`http2/exchange.rs`): an answer ends with its pipe. The request carries the client's token, and
//! from the WebSocket's own request what trusted proxies said of the client, so that limits, places and bans are judged as of any request.
//!
//! What must never happen: text of the client in a head. Paths are made of room ids and escaped user ids, and a token that is no token
//! (`token_fits`) is sent nowhere.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use grandstand_core::names::RoomId;
use grandstand_wire::sse::{Item, Reader};
use serde_json::Value;

use super::deeds::{Answer, Call};
use crate::gateway::pipe::{End, Far};

/// One event of a stream. Source: the largest is a `hello` with 32 banners and a room's pins.
const EVENT_BYTES_MAX: usize = 256 * 1024;
/// An answer of the API: problem documents and ids.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// At most this of a stream in one turn.
const PART_BYTES: usize = 16 * 1024;
const HEADERS_MAX: usize = 32;

/// What every request of a connection says of its client.
#[derive(Clone, Default)]
pub struct Client {
    /// Headers of the WebSocket's request that say where its client is; they count where the peer is a trusted proxy.
    pub said: Vec<(String, Vec<u8>)>,
    /// The name it came by, where it said one.
    pub host: Option<String>,
}

/// Whether a token may stand in a header: visible ASCII, and no longer than a token is.
pub fn token_fits(token: &str) -> bool {
    !token.is_empty() && token.len() <= 4_096 && token.bytes().all(|b| b.is_ascii_graphic())
}

/// The request that opens a room's stream.
pub fn stream(room: &RoomId, token: Option<&str>, client: &Client) -> Vec<u8> {
    let mut text = head("GET", &format!("/v1/rooms/{room}/sse"), token, client);
    text.extend_from_slice(b"\r\n");
    text
}

/// The request of a call.
pub fn api(call: &Call, token: Option<&str>, client: &Client) -> Vec<u8> {
    let body = call.body.to_string();
    let mut text = head(call.method, &call.path, token, client);
    let length = format!("content-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
    text.extend_from_slice(length.as_bytes());
    text.extend_from_slice(body.as_bytes());
    text
}

fn head(method: &str, path: &str, token: Option<&str>, client: &Client) -> Vec<u8> {
    let host = client.host.as_deref().unwrap_or("localhost");
    let mut text = format!("{method} {path} HTTP/1.0\r\nhost: {host}\r\n").into_bytes();
    if let Some(token) = token {
        assert!(token_fits(token), "it was verified");
        text.extend_from_slice(format!("authorization: Bearer {token}\r\n").as_bytes());
    }
    for (name, value) in &client.said {
        text.extend_from_slice(name.as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value);
        text.extend_from_slice(b"\r\n");
    }
    text
}

/// An answer as it comes out of a pipe.
struct Response {
    far: Far,
    /// The status, and what is left of a body whose length was said.
    head: Option<(u16, Option<usize>)>,
}

/// What a response came to in one step.
enum Part {
    Bytes(Bytes),
    End,
    /// The pipe ended before the answer did.
    Cut,
}

impl Response {
    fn new(far: Far) -> Response {
        Response { far, head: None }
    }

    fn poll_status(&mut self, cx: &Context<'_>) -> Poll<Result<u16, ()>> {
        let mut seen = 0;
        loop {
            if let Some((status, _)) = self.head {
                return Poll::Ready(Ok(status));
            }
            let Ok(n) = ready!(self.far.poll_ready(cx, seen)) else { return Poll::Ready(Err(())) };
            seen = n;
            match self.far.look(head_of) {
                Ok(Some((n, status, left))) => {
                    self.far.take(n);
                    self.head = Some((status, left));
                }
                Ok(None) => {}
                Err(()) => return Poll::Ready(Err(())),
            }
        }
    }

    /// The next of the body, once the status is known.
    fn poll_body(&mut self, cx: &Context<'_>) -> Poll<Part> {
        let left = self.head.and_then(|(_, left)| left);
        if left == Some(0) {
            return Poll::Ready(Part::End);
        }
        match ready!(self.far.poll_ready(cx, 0)) {
            Ok(n) => {
                let (bytes, _) = self.far.take(n.min(left.unwrap_or(PART_BYTES)).min(PART_BYTES));
                if let Some((_, Some(left))) = &mut self.head {
                    *left -= bytes.len();
                }
                Poll::Ready(Part::Bytes(bytes))
            }
            Err(End::Said) if left.is_none() => Poll::Ready(Part::End),
            Err(End::Said | End::Cut) => Poll::Ready(Part::Cut),
        }
    }
}

type Head = (usize, u16, Option<usize>);

/// The head at the front of an answer: its length, the status, the body's length. `None`: more must come.
fn head_of(bytes: &[u8]) -> Result<Option<Head>, ()> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Response::new(&mut headers);
    let n = match head.parse(bytes).map_err(drop)? {
        httparse::Status::Complete(n) => n,
        httparse::Status::Partial => return Ok(None),
    };
    let status = head.code.ok_or(())?;
    let length = head.headers.iter().find(|h| h.name.eq_ignore_ascii_case("content-length"));
    let left = match length {
        Some(h) => Some(std::str::from_utf8(h.value).map_err(drop)?.parse().map_err(drop)?),
        None if matches!(status, 204 | 304) => Some(0),
        None => None,
    };
    Ok(Some((n, status, left)))
}

/// A room's stream.
pub struct Feed {
    response: Response,
    reader: Reader,
    /// What was said before the stream began, of one that was refused.
    refusal: Vec<u8>,
}

/// What a stream came to.
pub enum Heard {
    Items(Vec<Item>),
    /// It is none: an answer in its place.
    Refused(Answer),
    Ended,
}

impl Feed {
    pub fn new(far: Far) -> Feed {
        Feed { response: Response::new(far), reader: Reader::new(EVENT_BYTES_MAX), refusal: Vec::new() }
    }

    pub fn poll(&mut self, cx: &Context<'_>) -> Poll<Heard> {
        let Ok(status) = ready!(self.response.poll_status(cx)) else { return Poll::Ready(Heard::Ended) };
        loop {
            let part = ready!(self.response.poll_body(cx));
            if status != 200 {
                match gathered(&mut self.refusal, part) {
                    Some(body) => return Poll::Ready(Heard::Refused(Answer { status, body })),
                    None => continue,
                }
            }
            let Part::Bytes(bytes) = part else { return Poll::Ready(Heard::Ended) };
            let mut items = Vec::new();
            if self.reader.feed(&bytes, &mut items).is_err() {
                return Poll::Ready(Heard::Ended);
            }
            if !items.is_empty() {
                return Poll::Ready(Heard::Items(items));
            }
        }
    }
}

/// A call that is under way.
pub struct Asking {
    pub call: Box<Call>,
    response: Response,
    body: Vec<u8>,
}

impl Asking {
    pub fn new(call: Box<Call>, far: Far) -> Asking {
        Asking { call, response: Response::new(far), body: Vec::new() }
    }

    pub fn poll(&mut self, cx: &Context<'_>) -> Poll<Answer> {
        let Ok(status) = ready!(self.response.poll_status(cx)) else {
            // Nobody knows what became of it.
            return Poll::Ready(Answer { status: 0, body: Value::Null });
        };
        loop {
            let part = ready!(self.response.poll_body(cx));
            if let Some(body) = gathered(&mut self.body, part) {
                return Poll::Ready(Answer { status, body });
            }
        }
    }
}

/// Puts a body together. Once it is whole: as JSON, or nothing.
fn gathered(whole: &mut Vec<u8>, part: Part) -> Option<Value> {
    if let Part::Bytes(bytes) = part {
        whole.extend_from_slice(&bytes);
        if whole.len() <= ANSWER_BYTES_MAX {
            return None;
        }
        whole.clear();
    }
    Some(serde_json::from_slice(whole).unwrap_or(Value::Null))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    use grandstand_core::names::RoomId;
    use serde_json::json;

    use super::{Asking, Client, Feed, Heard, api, stream, token_fits};
    use crate::edge::Serves;
    use crate::gateway::conn::Caller;
    use crate::gateway::irc::deeds::{Call, Deed};
    use crate::gateway::pipe::{self, Bell, Far, Near};

    fn pipe(request: Vec<u8>) -> (Near, Far, Arc<Bell>) {
        let bell = || Arc::new(Bell::new(usize::MAX, || {}));
        let (loop_bell, task_bell) = (bell(), bell());
        let peer: SocketAddr = ([192, 0, 2, 1], 7).into();
        let far = pipe::open(Caller { peer, serves: Serves::All }, request, loop_bell.clone(), task_bell);
        let near = loop_bell.take().pop_front().and_then(|pipe| pipe.take_in((1, 1))).expect("the task is here");
        (near, far, loop_bell)
    }

    fn cx() -> Context<'static> {
        Context::from_waker(Waker::noop())
    }

    fn room() -> RoomId {
        RoomId::parse("r").expect("a room")
    }

    fn call() -> Call {
        Call { room: room(), method: "POST", path: "/x".into(), body: json!({"a": "é\r\n"}), deed: Deed::Clear }
    }

    #[test]
    fn a_request_says_who_its_client_is_and_no_text_gets_into_its_head() {
        let client = Client { said: vec![("x-forwarded-for".into(), b"192.0.2.9".to_vec())], host: Some("h:1".into()) };
        let text = String::from_utf8(api(&call(), Some("tok"), &client)).expect("text");
        assert_eq!(
            text,
            "POST /x HTTP/1.0\r\nhost: h:1\r\nauthorization: Bearer tok\r\nx-forwarded-for: 192.0.2.9\r\ncontent-type: application/json\r\n\
             content-length: 14\r\n\r\n{\"a\":\"é\\r\\n\"}"
        );
        assert_eq!(
            stream(&room(), None, &Client::default()),
            b"GET /v1/rooms/r/sse HTTP/1.0\r\nhost: localhost\r\n\r\n"
        );
        assert!(token_fits("a.b-c"));
        for bad in ["", "a b", "a\r\nx: y", "é", &"x".repeat(4_097)] {
            assert!(!token_fits(bad), "{bad}");
        }
    }

    #[test]
    fn a_stream_is_read_in_whatever_pieces_it_comes() {
        let (mut near, far, _bell) = pipe(Vec::new());
        let mut feed = Feed::new(far);
        let text = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\nevent: hello\ndata: {}\n\nevent: comment\ndata: {}\n\n";
        let mut kinds = Vec::new();
        for piece in text.chunks(7) {
            near.write(piece).expect("room");
            while let Poll::Ready(Heard::Items(items)) = feed.poll(&cx()) {
                kinds.extend(items.into_iter().map(|item| match item {
                    grandstand_wire::sse::Item::Event(event) => event.kind,
                    other => panic!("{other:?}"),
                }));
            }
        }
        assert_eq!(kinds, ["hello", "comment"]);
        drop(near);
        assert!(matches!(feed.poll(&cx()), Poll::Ready(Heard::Ended)));
    }

    #[test]
    fn a_stream_that_is_refused_is_an_answer() {
        let (mut near, far, _bell) = pipe(Vec::new());
        let mut feed = Feed::new(far);
        near.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 17\r\n\r\n{\"code\":").expect("room");
        assert!(feed.poll(&cx()).is_pending());
        near.write(b"\"no_r\"} ").expect("room");
        near.write(b" ").expect("room");
        let Poll::Ready(Heard::Refused(answer)) = feed.poll(&cx()) else { panic!("it is whole") };
        assert_eq!((answer.status, answer.body), (404, json!({"code": "no_r"})));
    }

    #[test]
    fn a_call_that_is_cut_off_has_an_unknown_end() {
        let (near, far, _bell) = pipe(Vec::new());
        let mut asking = Asking::new(Box::new(call()), far);
        assert!(asking.poll(&cx()).is_pending());
        drop(near);
        let Poll::Ready(answer) = asking.poll(&cx()) else { panic!("nobody answers any more") };
        assert_eq!(answer.status, 0);
    }
}
