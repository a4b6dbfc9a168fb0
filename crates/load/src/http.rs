//! Blocking HTTP/1.1 over one keep-alive connection: room set-up and score events.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Result, bail};
use grandstand_client::http::read_head;

use crate::link::{Blocking, Door};
use crate::run::Settings;

/// Before a connection that was new and ended without an answer is made anew.
const AGAIN: Duration = Duration::from_millis(100);

pub struct Http {
    addr: SocketAddr,
    host: String,
    token: Option<String>,
    door: Door,
    stream: Option<Blocking>,
}

impl Http {
    /// Errors: as of [`Door::new`].
    pub fn new(settings: &Settings, token: Option<&str>) -> Result<Http> {
        let door = Door::new(settings)?;
        let (host, token) = (settings.host.clone(), token.map(str::to_owned));
        Ok(Http { addr: settings.addr, host, token, door, stream: None })
    }

    /// One call with a JSON body, whose repeat is the same call. A connection that ended meanwhile is made anew, and that once more: it may have
    /// met the port of a process that was about to leave it.
    pub fn call(&mut self, method: &str, target: &str, headers: &str, body: &str) -> Result<(u16, Vec<u8>)> {
        let token = self.token.as_ref().map(|t| format!("Authorization: Bearer {t}\r\n")).unwrap_or_default();
        let request = format!(
            "{method} {target} HTTP/1.1\r\nHost: {}\r\n{token}{headers}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.host,
            body.len()
        );
        if let Some(kept) = self.stream.take()
            && let Ok((answer, stream)) = exchange(kept, &request)
        {
            self.stream = stream;
            return Ok(answer);
        }
        let (answer, stream) = self.afresh(&request).or_else(|_| {
            std::thread::sleep(AGAIN);
            self.afresh(&request)
        })?;
        self.stream = stream;
        Ok(answer)
    }

    fn afresh(&self, request: &str) -> Result<Answer> {
        let fresh = TcpStream::connect(self.addr)?;
        fresh.set_nodelay(true)?;
        fresh.set_read_timeout(Some(Duration::from_secs(40)))?;
        exchange(self.door.blocking(fresh)?, request)
    }
}

type Answer = ((u16, Vec<u8>), Option<Blocking>);

fn exchange(mut stream: Blocking, request: &str) -> Result<Answer> {
    stream.write_all(request.as_bytes())?;
    stream.flush()?;
    let mut bytes = Vec::new();
    let mut buffer = [0; 16 << 10];
    loop {
        if let Some((status, headers, used)) = read_head(&bytes)? {
            let header = |name: &str| headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
            let length = header("content-length").and_then(|l| l.parse::<usize>().ok());
            let chunked = header("transfer-encoding").is_some();
            let close = header("connection").is_some_and(|c| c.eq_ignore_ascii_case("close"));
            let whole = match length {
                Some(length) => bytes.get(used..used + length).map(<[u8]>::to_vec),
                None if chunked => dechunk(&bytes[used..])?,
                None => Some(Vec::new()),
            };
            if let Some(body) = whole {
                return Ok(((status, body), (!close).then_some(stream)));
            }
        }
        let n = stream.read(&mut buffer)?;
        if n == 0 {
            bail!("the server ended the connection");
        }
        bytes.extend_from_slice(&buffer[..n]);
    }
}

/// The body of a chunked answer; `None` while it is not whole.
pub fn dechunk(mut bytes: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut body = Vec::new();
    loop {
        match crate::frames::chunk(bytes) {
            crate::frames::Cut::Text([], _) => return Ok(Some(body)),
            crate::frames::Cut::Text(part, used) => {
                body.extend_from_slice(part);
                bytes = &bytes[used..];
            }
            crate::frames::Cut::More => return Ok(None),
            _ => bail!("a malformed chunk"),
        }
    }
}
