//! One signed POST to a receiver: a name is resolved, each address is judged, and what was judged is what is dialled.
//!
//! A receiver's URL is an operator's word, and a name's addresses are anybody's: without a look at them a webhook is a way to make this
//! server talk to what only it can reach (a cloud's secrets, a database without a password). So only public addresses are dialled, and those that
//! `webhooks.allow` names; a redirect is a failure; and of an answer nothing but its status is read.
//!
//! The signature is that of Standard Webhooks: HMAC-SHA256 over `id.timestamp.body`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use grandstand_core::time::Wall;
use grandstand_wire::stamp;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::auth::door::Network;
use crate::auth::fetch::{self, Url};
use crate::clock;

/// From the first look-up to the status.
const WITHIN: Duration = Duration::from_secs(15);
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Addresses of a name that are looked at.
const ADDRESSES_MAX: usize = 16;
/// Before the Base64 of a secret.
const SECRET_PREFIX: &str = "whsec_";

/// Why an event was not taken.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("no answer within 15 s")]
    Late,
    #[error("its name leads to no address that may be posted to")]
    Address,
    #[error("{0}")]
    Socket(#[from] io::Error),
    #[error("the certificates of authorities cannot be read: {0}")]
    Roots(String),
    #[error("its answer is no HTTP")]
    Answer,
    #[error("it answered with status {0}")]
    Status(u16),
    /// 429 or 503.
    #[error("it answered with status {status} and asks to be left alone for {} s", again_after.as_secs())]
    Later { status: u16, again_after: Duration },
}

pub struct Poster {
    allow: Vec<Network>,
    ca_file: Option<PathBuf>,
    /// Read when one is needed first; why there are none is told then.
    trust: OnceLock<Result<Arc<ClientConfig>, String>>,
}

/// What is posted.
pub struct Letter {
    pub id: String,
    /// Unix seconds.
    pub at: u64,
    pub body: Vec<u8>,
    pub secrets: Vec<String>,
}

impl Poster {
    pub fn new(allow: Vec<Network>, ca_file: Option<&Path>) -> Poster {
        Poster { allow, ca_file: ca_file.map(Path::to_owned), trust: OnceLock::new() }
    }

    /// Whether a receiver may have this URL. What a name leads to is judged each time it is dialled.
    /// Errors: the rule that it breaks.
    pub fn check(&self, url: &Url) -> Result<(), &'static str> {
        match url.host().parse::<IpAddr>() {
            Ok(ip) if !self.may_reach(ip, url.is_secure()) => Err(
                "leads to an address that is not public; webhooks.allow of the configuration names those that may be posted to",
            ),
            Err(_) if !url.is_secure() && self.allow.is_empty() => {
                Err("must be https: plain http goes to networks of webhooks.allow alone, and none are named")
            }
            _ => Ok(()),
        }
    }

    fn may_reach(&self, ip: IpAddr, is_secure: bool) -> bool {
        self.allow.iter().any(|network| network.contains(ip)) || is_secure && is_public(ip)
    }

    /// Errors: anything but a 2xx in time.
    pub async fn post(&self, url: &Url, letter: &Letter) -> Result<(), Failure> {
        tokio::time::timeout(WITHIN, self.post_now(url, letter)).await.unwrap_or(Err(Failure::Late))
    }

    async fn post_now(&self, url: &Url, letter: &Letter) -> Result<(), Failure> {
        let stream = self.dial(url).await?;
        stream.set_nodelay(true)?;
        let request = request(url, letter);
        let status = if url.is_secure() {
            let read = || fetch::roots(self.ca_file.as_deref()).map_err(|fault| fault.to_string());
            let trust = self.trust.get_or_init(read).as_ref().map_err(|why| Failure::Roots(why.clone()))?;
            let name = ServerName::try_from(url.host().to_owned()).map_err(|_| Failure::Address)?;
            let session = tokio_rustls::TlsConnector::from(trust.clone()).connect(name, stream).await?;
            exchange(session, &request).await?
        } else {
            exchange(stream, &request).await?
        };
        match status {
            (200..300, _) => Ok(()),
            (status @ (429 | 503), Some(again_after)) => Err(Failure::Later { status, again_after }),
            (status, _) => Err(Failure::Status(status)),
        }
    }

    async fn dial(&self, url: &Url) -> Result<TcpStream, Failure> {
        let mut last = Failure::Address;
        let found: Vec<SocketAddr> =
            tokio::net::lookup_host((url.host(), url.port())).await?.take(ADDRESSES_MAX).collect();
        for address in found.into_iter().filter(|address| self.may_reach(address.ip(), url.is_secure())) {
            match tokio::time::timeout(CONNECT_WITHIN, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(fault)) => last = Failure::Socket(fault),
                Err(_) => last = Failure::Late,
            }
        }
        Err(last)
    }
}

fn request(url: &Url, letter: &Letter) -> Vec<u8> {
    let host = if url.host().contains(':') { format!("[{}]", url.host()) } else { url.host().to_owned() };
    let usual = if url.is_secure() { 443 } else { 80 };
    let authority = if url.port() == usual { host } else { format!("{host}:{}", url.port()) };
    let signatures: Vec<String> = letter.secrets.iter().filter_map(|secret| sign(secret, letter)).collect();
    let mut request = format!(
        "POST {} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: Grandstand/{}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         webhook-id: {}\r\nwebhook-timestamp: {}\r\nwebhook-signature: {}\r\nConnection: close\r\n\r\n",
        url.target(),
        env!("CARGO_PKG_VERSION"),
        letter.body.len(),
        letter.id,
        letter.at,
        signatures.join(" "),
    )
    .into_bytes();
    request.extend_from_slice(&letter.body);
    request
}

/// `v1,` and Base64. Errors: `None` for what is no secret.
fn sign(secret: &str, letter: &Letter) -> Option<String> {
    let key = STANDARD.decode(secret.strip_prefix(SECRET_PREFIX)?).ok()?;
    let mut signer = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &key));
    signer.update(format!("{}.{}.", letter.id, letter.at).as_bytes());
    signer.update(&letter.body);
    Some(format!("v1,{}", STANDARD.encode(signer.sign())))
}

/// A secret nobody has had.
pub fn fresh_secret() -> String {
    format!("{SECRET_PREFIX}{}", STANDARD.encode(crate::auth::files::random::<32>()))
}

/// The status of the answer, and for how long it asks to be left alone.
async fn exchange(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    request: &[u8],
) -> Result<(u16, Option<Duration>), Failure> {
    stream.write_all(request).await?;
    stream.flush().await?;
    let mut input = Vec::with_capacity(1_024);
    loop {
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut head = httparse::Response::new(&mut headers);
        match head.parse(&input).map_err(|_| Failure::Answer)? {
            // Interim answers say nothing.
            httparse::Status::Complete(used) if head.code.is_some_and(|code| code < 200) => drop(input.drain(..used)),
            httparse::Status::Complete(_) => {
                let asks = head.headers.iter().find(|header| header.name.eq_ignore_ascii_case("retry-after"));
                let asked = asks.and_then(|header| retry_after(header.value, clock::wall()));
                return head.code.map(|code| (code, asked)).ok_or(Failure::Answer);
            }
            httparse::Status::Partial if input.len() > HEAD_BYTES_MAX => return Err(Failure::Answer),
            httparse::Status::Partial if stream.read_buf(&mut input).await? == 0 => {
                return Err(Failure::Socket(io::ErrorKind::UnexpectedEof.into()));
            }
            httparse::Status::Partial => {}
        }
    }
}

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// What `Retry-After` asks for: seconds, or a date such as `Sun, 06 Nov 1994 08:49:37 GMT`. Source: RFC 9110, 10.2.3.
fn retry_after(value: &[u8], now: Wall) -> Option<Duration> {
    let text = std::str::from_utf8(value).ok()?.trim();
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    let parts: Vec<&str> = text.split(' ').collect();
    let [_, day, month, year, time, "GMT"] = parts[..] else { return None };
    let month = MONTHS.iter().position(|name| *name == month)? + 1;
    let at = stamp::parse(&format!("{year}-{month:02}-{day}T{time}.000Z"))?;
    Some(at.since(now))
}

/// Whether an address is one of the whole internet's. Source: IANA's registries of special-purpose addresses.
fn is_public(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    let shared = a == 100 && (64..128).contains(&b);
    let protocols = a == 192 && b == 0 && c == 0 || a == 192 && b == 88 && c == 99;
    let benchmarks = a == 198 && (18..20).contains(&b);
    !(a == 0
        || a >= 224
        || shared
        || protocols
        || benchmarks
        || ip.is_loopback()
        || ip.is_private()
        || ip.is_link_local()
        || ip.is_documentation())
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    let s = ip.segments();
    // An IPv4 address in the clothes of a translator is that address.
    if s[..6] == [0x64, 0xff9b, 0, 0, 0, 0] {
        let [.., a, b, c, d] = ip.octets();
        return is_public_v4(Ipv4Addr::new(a, b, c, d));
    }
    // 2000::/3 is all that is given out; in it are Teredo and its neighbours (2001::/23), documentation and 6to4.
    let given_out = s[0] & 0xe000 == 0x2000;
    let special = match s[0] {
        0x2001 => s[1] < 0x200 || s[1] == 0xdb8,
        0x3fff => s[1] < 0x1000,
        first => first == 0x2002,
    };
    given_out && !special
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::Duration;

    use grandstand_core::time::Wall;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::{Failure, Letter, Poster, is_public, retry_after, sign};
    use crate::auth::door::Network;
    use crate::auth::fetch::Url;

    fn letter() -> Letter {
        Letter {
            id: "msg_p5jXN8AQM9LWM0D4loKWxJek".to_owned(),
            at: 1_614_265_330,
            body: br#"{"test": 2432232314}"#.to_vec(),
            secrets: vec!["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned()],
        }
    }

    fn poster(allow: &[&str]) -> Poster {
        Poster::new(allow.iter().map(|text| Network::parse(text).unwrap()).collect(), None)
    }

    #[test]
    fn a_signature_is_that_of_the_standards_own_example() {
        // Source: the test vector of the Standard Webhooks libraries.
        assert_eq!(
            sign("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", &letter()).unwrap(),
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
        );
        assert_eq!(sign("MfKQ", &letter()), None);
    }

    #[test]
    fn a61_only_what_the_whole_internet_reaches_is_public() {
        for ip in ["93.184.216.34", "8.8.8.8", "2606:2800:220:1::1", "64:ff9b::808:808", "::ffff:8.8.8.8"] {
            assert!(is_public(ip.parse::<IpAddr>().unwrap()), "{ip}");
        }
        for ip in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::7f00:1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:a00:1::1",
            "3fff::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(ip.parse::<IpAddr>().unwrap()), "{ip}");
        }
    }

    #[test]
    fn a61_an_url_that_leads_inwards_is_refused_before_it_is_dialled() {
        let check = |allow: &[&str], url: &str| poster(allow).check(&Url::parse_any(url).unwrap()).is_ok();
        assert!(check(&[], "https://hooks.example.com/x") && check(&[], "https://8.8.8.8/"));
        for url in [
            "https://127.0.0.1/",
            "https://169.254.169.254/latest",
            "https://[::1]/",
            "http://hooks.example.com/",
            "http://8.8.8.8/",
        ] {
            assert!(!check(&[], url), "{url}");
        }
        assert!(check(&["127.0.0.0/8"], "http://127.0.0.1:9/") && !check(&["127.0.0.0/8"], "http://10.0.0.1/"));
    }

    #[tokio::test]
    async fn a61_a_name_that_leads_inwards_is_not_dialled() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        for allow in [&[][..], &["10.0.0.0/8"]] {
            for url in [format!("https://localhost:{port}/"), format!("http://localhost:{port}/")] {
                let failure = poster(allow).post(&Url::parse_any(&url).unwrap(), &letter()).await.unwrap_err();
                assert!(matches!(failure, Failure::Address), "{url}: {failure}");
            }
        }
    }

    /// What becomes of a letter that is answered so.
    async fn answered(answer: &'static [u8]) -> (Result<(), Failure>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = Url::parse_any(&format!("http://{}/hook?a=1", listener.local_addr().unwrap())).unwrap();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut seen = Vec::new();
            while !seen.ends_with(b"2432232314}") {
                stream.read_buf(&mut seen).await.unwrap();
            }
            stream.write_all(answer).await.unwrap();
            String::from_utf8(seen).unwrap()
        });
        let poster = poster(&["127.0.0.1"]);
        let outcome = poster.post(&url, &letter()).await;
        (outcome, server.await.unwrap())
    }

    #[test]
    fn a_receiver_says_when_to_come_back_in_seconds_or_by_a_date() {
        // 1994-11-06T08:49:07Z
        let now = Wall(784_111_747_000);
        let asked = |text: &str| retry_after(text.as_bytes(), now).map(|asked| asked.as_secs());
        assert_eq!(
            (asked("120"), asked(" 0 "), asked("Sun, 06 Nov 1994 08:49:37 GMT")),
            (Some(120), Some(0), Some(30))
        );
        assert_eq!(asked("Sun, 06 Nov 1994 08:00:00 GMT"), Some(0), "it has been");
        for nothing in [
            "",
            "soon",
            "-1",
            "1.5",
            "Sun, 06 Nox 1994 08:49:37 GMT",
            "Sun, 99 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
        ] {
            assert_eq!(asked(nothing), None, "{nothing}");
        }
        assert_eq!(retry_after(b"\xff", now), None);
        assert_eq!(asked("99999999999999999999"), Some(Duration::MAX.as_secs()));
    }

    #[tokio::test]
    async fn a61_a_redirect_is_a_failure_and_of_an_answer_only_its_status_counts() {
        let (taken, request) = answered(b"HTTP/1.1 204 No Content\r\n\r\n").await;
        assert!(taken.is_ok());
        assert!(request.starts_with("POST /hook?a=1 HTTP/1.1\r\nHost: 127.0.0.1:"), "{request}");
        assert!(request.contains("\r\nwebhook-id: msg_p5jXN8AQM9LWM0D4loKWxJek\r\nwebhook-timestamp: 1614265330\r\nwebhook-signature: v1,g0hM9SsE"));
        assert!(answered(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n").await.0.is_ok());
        let (redirect, _) = answered(b"HTTP/1.1 307 Moved\r\nLocation: http://127.0.0.1/\r\n\r\n").await;
        assert!(matches!(redirect, Err(Failure::Status(307))));
        assert!(matches!(answered(b"HTTP/1.1 500 No\r\n\r\n").await.0, Err(Failure::Status(500))));
        for (asks, seconds) in [("7", 7), ("99999999999999999999", u64::MAX)] {
            let answer = format!("HTTP/1.1 429 Slow down\r\nRetry-After: {asks}\r\n\r\n").leak().as_bytes();
            let failure = answered(answer).await.0.unwrap_err();
            let Failure::Later { status: 429, again_after } = failure else { panic!("{failure}") };
            assert_eq!(again_after.as_secs(), seconds);
        }
        let (redirect, _) = answered(b"HTTP/1.1 307 Moved\r\nRetry-After: 7\r\n\r\n").await;
        assert!(matches!(redirect, Err(Failure::Status(307))), "only who is busy or away is waited for");
        assert!(matches!(answered(b"nonsense\r\n\r\n").await.0, Err(Failure::Answer)));
        assert!(matches!(answered(b"").await.0, Err(Failure::Socket(_))));
    }
}
