//! One GET of a small document: the key set of an identity provider.
//!
//! A plain blocking client of one request, for a thread that has time. It follows nobody: a redirect is a refusal, an address with
//! user info or a fragment is none, and plain HTTP goes to this machine alone. What it may be made to hold is bounded before it is
//! read, and so is its time.

use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// From the first look-up to the last byte.
const WITHIN: Duration = Duration::from_secs(10);
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Where systems keep the certificates of their authorities: Debian and Alpine, Fedora, others.
const SYSTEM: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("the certificates of authorities cannot be read: {0}")]
    Roots(String),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the answer is not the document: {0}")]
    Answer(String),
}

/// `https://host[:port]/path`, or `http://` to this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Url {
    secure: bool,
    host: String,
    port: u16,
    /// With the query.
    target: String,
}

impl Url {
    pub const RULE: &'static str = "must be https://host[:port]/path, or http:// to a loopback address";

    /// Errors: `None` when it breaks [`Url::RULE`].
    pub fn parse(text: &str) -> Option<Url> {
        let url = Url::parse_any(text)?;
        let is_loopback = url.host.parse::<IpAddr>().map_or(url.host == "localhost", |ip| ip.is_loopback());
        (url.secure || is_loopback).then_some(url)
    }

    pub fn is_secure(&self) -> bool {
        self.secure
    }

    /// A name or an address, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Path and query.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The same with plain HTTP to anywhere, for who judges the addresses that it leads to.
    pub fn parse_any(text: &str) -> Option<Url> {
        let (scheme, rest) = text.split_once("://")?;
        let secure = match scheme {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        if !rest.bytes().all(|b| b.is_ascii_graphic()) || rest.contains(['#', '@', '\\', '"', '<', '>']) {
            return None;
        }
        let (authority, target) = rest.split_at_checked(rest.find('/').unwrap_or(rest.len()))?;
        let (host, port) = match authority.strip_prefix('[').and_then(|v6| v6.split_once(']')) {
            Some((v6, port)) => (v6, port.strip_prefix(':')),
            None => match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        let default = if secure { 443 } else { 80 };
        let port = port.map_or(Some(default), |port| port.parse().ok())?;
        if host.is_empty() || port == 0 || ServerName::try_from(host).is_err() {
            return None;
        }
        let target = if target.is_empty() { "/" } else { target };
        Some(Url { secure, host: host.to_owned(), port, target: target.to_owned() })
    }
}

/// Whose certificates are believed: those of a PEM file, or the system's.
/// Errors: there are none.
pub fn roots(file: Option<&Path>) -> Result<Arc<ClientConfig>, Fault> {
    let path = match file {
        Some(path) => path.to_owned(),
        None => std::env::var_os("SSL_CERT_FILE")
            .map(PathBuf::from)
            .or_else(|| SYSTEM.iter().map(PathBuf::from).find(|path| path.exists()))
            .ok_or_else(|| Fault::Roots("the system has none; name a file".to_owned()))?,
    };
    let fault = |why: &dyn std::fmt::Display| Fault::Roots(format!("{}: {why}", path.display()));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(&path).map_err(|e| fault(&e))? {
        // A system's file may hold old kinds that are no use here.
        roots.add_parsable_certificates([certificate.map_err(|e| fault(&e))?]);
    }
    if roots.is_empty() {
        return Err(fault(&"no certificate of an authority in it"));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has suites for 1.3 and 1.2")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// The document's bytes, at most `most`.
/// Errors: it could not be had whole in time, or the answer is anything but 200.
pub fn get(url: &Url, trust: Option<&Arc<ClientConfig>>, most: usize) -> Result<Vec<u8>, Fault> {
    let until = Instant::now() + WITHIN;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (url.host.as_str(), url.port).to_socket_addrs()? {
        // A name of this machine that leads elsewhere is another machine's.
        if !url.secure && !address.ip().is_loopback() {
            continue;
        }
        match TcpStream::connect_timeout(&address, CONNECT_WITHIN) {
            Ok(stream) => return exchange(url, trust, stream, most, until),
            Err(e) => last = e,
        }
    }
    Err(last.into())
}

/// A socket whose every read ends in time.
struct Timed {
    stream: TcpStream,
    until: Instant,
}

impl Timed {
    fn left(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

impl Read for Timed {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(buf)
    }
}

impl Write for Timed {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(buf)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

fn exchange(
    url: &Url,
    trust: Option<&Arc<ClientConfig>>,
    stream: TcpStream,
    most: usize,
    until: Instant,
) -> Result<Vec<u8>, Fault> {
    let timed = Timed { stream, until };
    if !url.secure {
        return read_answer(url, timed, most);
    }
    let trust = trust.ok_or_else(|| Fault::Roots("none were read".to_owned()))?;
    let name = ServerName::try_from(url.host.clone()).map_err(|_| Fault::Answer("no such name".to_owned()))?;
    let session = ClientConnection::new(trust.clone(), name).map_err(io::Error::other)?;
    read_answer(url, StreamOwned::new(session, timed), most)
}

fn read_answer(url: &Url, mut stream: impl Read + Write, most: usize) -> Result<Vec<u8>, Fault> {
    let host = if url.host.contains(':') { format!("[{}]", url.host) } else { url.host.clone() };
    // HTTP/1.0: an answer without chunks, that ends with its length or its connection.
    let request =
        format!("GET {} HTTP/1.0\r\nHost: {host}:{}\r\nAccept: application/json\r\n\r\n", url.target, url.port);
    stream.write_all(request.as_bytes())?;
    stream.flush()?;
    let mut input = Vec::new();
    let mut chunk = [0; 4096];
    let wrong = |what: &str| Fault::Answer(what.to_owned());
    let (used, length) = loop {
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut response = httparse::Response::new(&mut headers);
        match response.parse(&input).map_err(|e| Fault::Answer(e.to_string()))? {
            httparse::Status::Complete(used) => {
                let code = response.code.unwrap_or_default();
                if code != 200 {
                    return Err(Fault::Answer(format!("status {code}")));
                }
                let header = |name: &str| {
                    let found = response.headers.iter().find(|h| h.name.eq_ignore_ascii_case(name));
                    found.map(|h| String::from_utf8_lossy(h.value).trim().to_owned())
                };
                if header("transfer-encoding").is_some() || header("content-encoding").is_some_and(|e| e != "identity")
                {
                    return Err(wrong("an encoded body in answer to HTTP/1.0"));
                }
                let length = header("content-length").map(|l| l.parse::<usize>()).transpose();
                break (used, length.map_err(|_| wrong("a length that is no number"))?);
            }
            httparse::Status::Partial if input.len() > HEAD_BYTES_MAX => return Err(wrong("an endless head")),
            httparse::Status::Partial => match stream.read(&mut chunk)? {
                0 => return Err(wrong("it ended in its head")),
                n => input.extend_from_slice(&chunk[..n]),
            },
        }
    };
    let mut body = input.split_off(used);
    if length.is_some_and(|length| length > most) {
        return Err(wrong("it is too long"));
    }
    while length.is_none_or(|length| body.len() < length) {
        if body.len() > most {
            return Err(wrong("it is too long"));
        }
        match stream.read(&mut chunk) {
            Ok(0) => break,
            Ok(n) => body.extend_from_slice(&chunk[..n]),
            // An end of TLS without its goodbye is an end when the length says that all is there.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Err(wrong("it broke off")),
            Err(e) => return Err(e.into()),
        }
    }
    match length {
        Some(length) if body.len() < length => Err(wrong("it broke off")),
        Some(length) => Ok(body[..length].to_vec()),
        None if body.len() > most => Err(wrong("it is too long")),
        None => Ok(body),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::thread;

    use super::{Url, get};

    /// What is made of one answer.
    fn answered(answer: &'static [u8]) -> Result<String, String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = Url::parse(&format!("http://{}/keys?v=1", listener.local_addr().unwrap())).unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut seen = [0; 1024];
            let n = stream.read(&mut seen).unwrap();
            stream.write_all(answer).unwrap();
            String::from_utf8_lossy(&seen[..n]).into_owned()
        });
        let got = get(&url, None, 16).map(|body| String::from_utf8(body).unwrap()).map_err(|e| e.to_string());
        assert!(server.join().unwrap().starts_with("GET /keys?v=1 HTTP/1.0\r\nHost: 127.0.0.1:"));
        got
    }

    #[test]
    fn a47_only_a_whole_short_document_is_taken_and_no_redirect_is_followed() {
        assert_eq!(answered(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nkeys").unwrap(), "keys");
        assert_eq!(answered(b"HTTP/1.1 200 OK\r\n\r\nto its end").unwrap(), "to its end");
        for refused in [
            &b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\n12345678901234567",
            b"HTTP/1.1 200 OK\r\n\r\n12345678901234567",
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nkeys",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nkeys\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\nkeys",
            b"nonsense\r\n\r\n",
            b"HTTP/1.1 200",
        ] {
            assert!(answered(refused).is_err(), "{}", String::from_utf8_lossy(refused));
        }
    }

    #[test]
    fn a60_an_address_that_could_lead_elsewhere_is_refused() {
        for good in ["https://id.example.com/keys", "https://id.example.com", "http://127.0.0.1:8/k", "http://[::1]/k"]
        {
            assert!(Url::parse(good).is_some(), "{good}");
        }
        for bad in [
            "http://id.example.com/keys",
            "http://169.254.169.254/latest",
            "file:///etc/passwd",
            "gopher://127.0.0.1/",
            "https://user@id.example.com/",
            "https://id.example.com:0/",
            "https:///keys",
            "https://id.example.com/#x",
            "https://id.example.com/a b",
            "http://2130706433/",
            "http://0177.0.0.1/",
            "http://[::ffff:10.0.0.1]/",
        ] {
            assert!(Url::parse(bad).is_none(), "{bad}");
        }
    }
}
