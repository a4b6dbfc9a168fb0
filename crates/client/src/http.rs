//! HTTP/1.1 calls over one keep-alive connection.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Mutex;

use crate::tls::Stream;
use crate::{Endpoint, Fault};

/// A whole answer is at most this long; exports are paged well below it.
const BODY_BYTES_MAX: usize = 64 << 20;
const HEAD_BYTES_MAX: usize = 64 << 10;
/// A call that was not answered by then is broken.
const PATIENCE: Duration = Duration::from_secs(40);

/// Calls to one server, one at a time, with one token.
pub struct Http {
    endpoint: Endpoint,
    token: Option<String>,
    idle: Mutex<Option<Connection>>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// `Retry-After` in seconds, or the body's `retry_after_ms`.
    pub fn retry_after(&self) -> Option<Duration> {
        let told = serde_json::from_slice::<serde_json::Value>(&self.body).ok();
        let ms = told.as_ref().and_then(|b| b.get("retry_after_ms")?.as_u64()).map(Duration::from_millis);
        ms.or_else(|| self.header("retry-after")?.trim().parse().ok().map(Duration::from_secs))
    }

    pub fn json(&self) -> Result<serde_json::Value, Fault> {
        serde_json::from_slice(&self.body).map_err(|e| Fault::Protocol(format!("the answer is not JSON: {e}")))
    }

    /// The answer itself when it is 2xx, else what the server said was wrong.
    pub fn success(self) -> Result<Reply, Fault> {
        if (200..300).contains(&self.status) { Ok(self) } else { Err(self.refusal()) }
    }

    /// What the server said was wrong.
    pub fn refusal(&self) -> Fault {
        let told = serde_json::from_slice::<serde_json::Value>(&self.body).ok();
        let member = |name: &str| told.as_ref()?.get(name)?.as_str().map(str::to_owned);
        let message = ["detail", "message", "title", "code"].iter().find_map(|n| member(n));
        let message = message.unwrap_or_else(|| String::from_utf8_lossy(&self.body).trim().to_owned());
        let spread = told.as_ref().and_then(|body| body.get("spread_ms")?.as_u64()).map(Duration::from_millis);
        Fault::Refused { status: self.status, message, retry_after: self.retry_after(), spread }
    }
}

/// How long a caller goes on asking where it is asked for patience.
pub struct Patience {
    begun: tokio::time::Instant,
    most: Duration,
}

impl Patience {
    /// From now on.
    pub fn of(most: Duration) -> Patience {
        Patience { begun: tokio::time::Instant::now(), most }
    }

    /// Waits as long as the answer says, if the call is to be made again: on 429 and 503, and on a 202 that names a wait (no verdict
    /// yet; the same key asks for it).
    pub async fn again(&self, reply: &Reply) -> bool {
        let wait = reply.retry_after();
        let is_asked = matches!(reply.status, 429 | 503) || reply.status == 202 && wait.is_some();
        if !is_asked || self.begun.elapsed() >= self.most {
            return false;
        }
        tokio::time::sleep(wait.unwrap_or(Duration::from_millis(500))).await;
        true
    }
}

struct Connection {
    stream: Stream,
    input: Vec<u8>,
}

impl Http {
    pub fn new(endpoint: &Endpoint, token: Option<&str>) -> Http {
        Http { endpoint: endpoint.clone(), token: token.map(str::to_owned), idle: Mutex::new(None) }
    }

    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub async fn get(&self, target: &str) -> Result<Reply, Fault> {
        self.call("GET", target, &[], None).await
    }

    /// A `GET` of any length, on a connection of its own: a body of 2xx is handed to `out` as it comes, and is empty in the reply.
    ///
    /// Errors: no whole answer came (what was handed over stays handed over), or `out` failed.
    pub async fn get_into(
        &self,
        target: &str,
        out: &mut (dyn FnMut(&[u8]) -> std::io::Result<()> + Send),
    ) -> Result<Reply, Fault> {
        let request = self.head("GET", target, &[], None);
        let mut fresh = Connection { stream: self.endpoint.connect().await?, input: Vec::new() };
        let begin = async {
            fresh.stream.write_all(request.as_bytes()).await?;
            fresh.stream.flush().await?;
            fresh.read_final_head().await
        };
        let (status, headers) = patiently(begin).await?;
        if !(200..300).contains(&status) {
            let (body, _) = patiently(fresh.read_body(status, &headers)).await?;
            return Ok(Reply { status, headers, body });
        }
        if !is_chunked(&headers) {
            let (body, _) = patiently(fresh.read_body(status, &headers)).await?;
            out(&body)?;
            return Ok(Reply { status, headers, body: Vec::new() });
        }
        while let Some(chunk) = patiently(fresh.read_chunk()).await? {
            out(&chunk)?;
        }
        Ok(Reply { status, headers, body: Vec::new() })
    }

    /// One call. `target` is the path with its query; a body is sent as JSON.
    ///
    /// Errors: only when no whole answer came; every status is an answer. A kept connection that the server closed
    /// meanwhile is replaced once: every call of this protocol may be repeated (keys, `If-Match`, identities).
    pub async fn call(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: Option<&[u8]>,
    ) -> Result<Reply, Fault> {
        let mut bytes = self.head(method, target, headers, body).into_bytes();
        bytes.extend_from_slice(body.unwrap_or_default());

        let mut idle = self.idle.lock().await;
        if let Some(mut kept) = idle.take()
            && let Ok((reply, keep)) = kept.exchange(&bytes).await
        {
            *idle = keep.then_some(kept);
            return Ok(reply);
        }
        let mut fresh = Connection { stream: self.endpoint.connect().await?, input: Vec::new() };
        let (reply, keep) = fresh.exchange(&bytes).await?;
        *idle = keep.then_some(fresh);
        Ok(reply)
    }

    fn head(&self, method: &str, target: &str, headers: &[(&str, &str)], body: Option<&[u8]>) -> String {
        let mut request = format!("{method} {target} HTTP/1.1\r\nHost: {}\r\n", self.endpoint.authority());
        if let Some(token) = &self.token {
            request.push_str(&format!("Authorization: Bearer {token}\r\n"));
        }
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(body) = body {
            request.push_str(&format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len()));
        } else if method != "GET" && method != "HEAD" {
            request.push_str("Content-Length: 0\r\n");
        }
        request.push_str("\r\n");
        request
    }
}

async fn patiently<T>(what: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    tokio::time::timeout(PATIENCE, what).await.map_err(|_| Fault::Connection(std::io::ErrorKind::TimedOut.into()))?
}

fn header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
}

fn is_chunked(headers: &[(String, String)]) -> bool {
    header(headers, "transfer-encoding").is_some_and(|t| t.to_ascii_lowercase().contains("chunked"))
}

impl Connection {
    async fn exchange(&mut self, request: &[u8]) -> Result<(Reply, bool), Fault> {
        let whole = async {
            self.stream.write_all(request).await?;
            self.stream.flush().await?;
            self.read_reply().await
        };
        patiently(whole).await
    }

    async fn read_reply(&mut self) -> Result<(Reply, bool), Fault> {
        let (status, headers) = self.read_final_head().await?;
        let (body, keep) = self.read_body(status, &headers).await?;
        Ok((Reply { status, headers, body }, keep))
    }

    async fn read_final_head(&mut self) -> Result<(u16, Vec<(String, String)>), Fault> {
        loop {
            if let Some((status, headers, used)) = read_head(&self.input)? {
                self.input.drain(..used);
                if status != 100 {
                    return Ok((status, headers));
                }
                continue;
            }
            self.more().await?;
        }
    }

    /// The whole body, and whether the connection lives on.
    async fn read_body(&mut self, status: u16, headers: &[(String, String)]) -> Result<(Vec<u8>, bool), Fault> {
        let header = |name: &str| header(headers, name);
        let mut keep = !header("connection").is_some_and(|c| c.to_ascii_lowercase().contains("close"));
        let length = header("content-length").and_then(|l| l.parse::<usize>().ok());
        let body = if status == 204 || status == 304 {
            Vec::new()
        } else if is_chunked(headers) {
            self.read_chunks().await?
        } else if let Some(length) = length {
            if length > BODY_BYTES_MAX {
                return Err(Fault::Protocol("an answer that long".to_owned()));
            }
            while self.input.len() < length {
                self.more().await?;
            }
            self.input.drain(..length).collect()
        } else {
            keep = false;
            while self.more().await.is_ok() {}
            std::mem::take(&mut self.input)
        };
        Ok((body, keep))
    }

    async fn read_chunks(&mut self) -> Result<Vec<u8>, Fault> {
        let mut body = Vec::new();
        while let Some(chunk) = self.read_chunk().await? {
            if body.len() + chunk.len() > BODY_BYTES_MAX {
                return Err(Fault::Protocol("an answer that long".to_owned()));
            }
            body.extend(chunk);
        }
        Ok(body)
    }

    /// `None`: the body ended.
    async fn read_chunk(&mut self) -> Result<Option<Vec<u8>>, Fault> {
        let line = self.read_line().await?;
        let size = line.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16).map_err(|_| Fault::Protocol("a malformed chunk".to_owned()))?;
        if size > BODY_BYTES_MAX {
            return Err(Fault::Protocol("a chunk that long".to_owned()));
        }
        if size == 0 {
            while !self.read_line().await?.is_empty() {}
            return Ok(None);
        }
        while self.input.len() < size + 2 {
            self.more().await?;
        }
        let chunk = self.input.drain(..size).collect();
        self.input.drain(..2);
        Ok(Some(chunk))
    }

    async fn read_line(&mut self) -> Result<String, Fault> {
        loop {
            if let Some(end) = self.input.windows(2).position(|w| w == b"\r\n") {
                let line = String::from_utf8_lossy(&self.input[..end]).into_owned();
                self.input.drain(..end + 2);
                return Ok(line);
            }
            self.more().await?;
        }
    }

    async fn more(&mut self) -> Result<(), Fault> {
        if self.stream.read_buf(&mut self.input).await? == 0 {
            return Err(Fault::Connection(std::io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(())
    }
}

/// Status, headers (names in lower case), bytes used.
pub type Head = (u16, Vec<(String, String)>, usize);

/// Reads the head of an answer; `None` while it is not whole.
pub fn read_head(bytes: &[u8]) -> Result<Option<Head>, Fault> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    match response.parse(bytes) {
        Ok(httparse::Status::Partial) if bytes.len() > HEAD_BYTES_MAX => {
            Err(Fault::Protocol("an endless head".to_owned()))
        }
        Ok(httparse::Status::Partial) => Ok(None),
        Ok(httparse::Status::Complete(used)) => {
            let status = response.code.expect("a complete response has a code");
            let headers = response.headers.iter();
            let headers = headers.map(|h| (h.name.to_ascii_lowercase(), String::from_utf8_lossy(h.value).into_owned()));
            Ok(Some((status, headers.collect(), used)))
        }
        Err(e) => Err(Fault::Protocol(format!("not an HTTP answer: {e}"))),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use std::time::Duration;

    use super::{Http, Patience};
    use crate::Endpoint;

    async fn answered(answers: Vec<&'static str>) -> Http {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut seen = [0; 4096];
                let _ = stream.read(&mut seen).await.unwrap();
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        Http::new(&Endpoint::parse(&address.to_string()).unwrap(), None)
    }

    #[tokio::test]
    async fn chunked_and_plain_bodies_are_read_whole() {
        let http = answered(vec![
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n4\r\n{\"a\"\r\n3\r\n:1}\r\n0\r\n\r\n",
            "HTTP/1.1 429 No\r\nContent-Length: 2\r\nRetry-After: 3\r\n\r\n{}",
        ])
        .await;
        let reply = http.get("/").await.unwrap();
        assert_eq!(reply.json().unwrap()["a"], 1);
        let reply = http.get("/").await.unwrap();
        assert_eq!((reply.status, reply.retry_after().unwrap().as_secs()), (429, 3));
    }

    #[tokio::test]
    async fn who_is_asked_for_patience_asks_again_and_in_the_end_no_more() {
        let wait = "HTTP/1.1 503 No\r\nContent-Length: 20\r\nConnection: close\r\n\r\n{\"retry_after_ms\":1}";
        let pending = "HTTP/1.1 202 Yes\r\nContent-Length: 20\r\nConnection: close\r\n\r\n{\"retry_after_ms\":1}";
        let held = "HTTP/1.1 202 Yes\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
        let http = answered(vec![wait, pending, held, wait]).await;
        let (patience, none) = (Patience::of(Duration::from_secs(60)), Patience::of(Duration::ZERO));
        for again in [true, true, false] {
            assert_eq!(patience.again(&http.get("/").await.unwrap()).await, again);
        }
        assert!(!none.again(&http.get("/").await.unwrap()).await);
    }

    #[tokio::test]
    async fn a_long_body_is_handed_on_as_it_comes_and_a_refusal_is_not() {
        let http = answered(vec![
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{\"a\"\r\n3\r\n:1}\r\n0\r\n\r\n",
            "HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\n{}",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n4\r\n{\"a\"\r\n",
        ])
        .await;
        let mut got = Vec::new();
        let mut out = |bytes: &[u8]| {
            got.push(bytes.to_vec());
            Ok(())
        };
        let reply = http.get_into("/", &mut out).await.unwrap();
        assert_eq!((reply.status, reply.body.len()), (200, 0));
        assert_eq!(http.get_into("/", &mut out).await.unwrap().body, b"{}");
        assert!(http.get_into("/", &mut out).await.is_err(), "an answer that broke off is none");
        assert_eq!(got, [b"{\"a\"".to_vec(), b":1}".to_vec(), b"{\"a\"".to_vec()]);
    }

    #[tokio::test]
    async fn a_kept_connection_that_died_is_replaced_once() {
        let ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
        let http = answered(vec![ok, ok]).await;
        assert_eq!(http.get("/").await.unwrap().status, 200);
        assert_eq!(http.get("/").await.unwrap().status, 200);
    }
}
