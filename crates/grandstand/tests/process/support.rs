//! A server process with a data folder of its own, and the smallest HTTP client that can talk to it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use serde_json::{Value, json};

/// Longest any single wait may take before the test fails.
pub const LIMIT: Duration = Duration::from_secs(30);

pub struct Server {
    child: Option<Child>,
    pub addr: SocketAddr,
    folder: tempfile::TempDir,
    args: Vec<String>,
    env: Vec<(String, String)>,
    /// With it, this server is spoken to by TLS.
    pub trust: Option<Arc<ClientConfig>>,
}

impl Server {
    pub fn start(args: &[&str], env: &[(&str, &str)]) -> Server {
        let mut server = Server::unstarted(args, env);
        server.restart();
        server
    }

    pub fn unstarted(args: &[&str], env: &[(&str, &str)]) -> Server {
        Server {
            child: None,
            addr: SocketAddr::from(([127, 0, 0, 1], 0)),
            folder: tempfile::tempdir().expect("a temporary folder"),
            args: args.iter().map(|a| (*a).to_owned()).collect(),
            env: env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            trust: None,
        }
    }

    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn set_env(&mut self, env: &[(&str, &str)]) {
        self.env = env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    }

    pub fn set_args(&mut self, args: &[&str]) {
        self.args = args.iter().map(|a| (*a).to_owned()).collect();
    }

    pub fn command(&self, program: &[&str]) -> Command {
        let mut words: Vec<String> = program.iter().map(|p| (*p).to_owned()).collect();
        words.push(env!("CARGO_BIN_EXE_grandstand").to_owned());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg("serve").arg("--data").arg(self.data());
        command.args(["--listen", &self.addr.to_string()]).args(&self.args).envs(self.env.iter().cloned());
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.folder.path().join("stderr.txt"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log.expect("the log can be opened"));
        command
    }

    /// Starts the process, on the port it had before, and waits until it says that it accepts.
    pub fn restart(&mut self) {
        self.restart_under(&[]);
    }

    /// The same below another program, such as `prlimit`.
    pub fn restart_under(&mut self, program: &[&str]) {
        assert!(self.child.is_none(), "the server is still there");
        let mut child = self.command(program).spawn().expect("the binary can be started");
        let stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let start = if self.trust.is_some() { "ready https://" } else { "ready http://" };
        let ready = stdout.lines().map_while(Result::ok).find_map(|l| l.strip_prefix(start).map(str::to_owned));
        let Some(ready) = ready else { panic!("the server did not become ready:\n{}", self.stderr()) };
        self.addr = ready.trim().parse().expect("the address of the server");
        self.child = Some(child);
    }

    pub fn stderr(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("stderr.txt")).unwrap_or_default()
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the server runs").id()
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("the server runs");
        child.kill().expect("the server can be killed");
        child.wait().expect("the server has ended");
    }

    pub fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    /// Waits for the end; panics after `limit`.
    pub fn ended(&mut self, limit: Duration) -> ExitStatus {
        let mut child = self.child.take().expect("the server runs");
        let start = Instant::now();
        loop {
            if let Some(status) = child.try_wait().expect("the server can be waited for") {
                return status;
            }
            if start.elapsed() > limit {
                let _ = child.kill();
                panic!("the server did not end within {limit:?}:\n{}", self.stderr());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// SIGTERM, and the end within ten seconds with exit code 0.
    pub fn stop(&mut self) {
        self.signal("TERM");
        let status = self.ended(Duration::from_secs(10));
        assert!(status.success(), "exit status {status}:\n{}", self.stderr());
    }

    pub fn token(&self, sub: &str, roles: &[&str]) -> String {
        self.token_in(sub, roles, &[])
    }

    /// A token for some rooms alone; a moderator's must name them.
    pub fn token_in(&self, sub: &str, roles: &[&str], rooms: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_grandstand"));
        command.arg("token").arg("--data").arg(self.data()).args(["--sub", sub, "--ttl", "2h"]);
        for role in roles {
            command.args(["--role", role]);
        }
        for room in rooms {
            command.args(["--rooms", room]);
        }
        let out = command.output().expect("the binary can be started");
        assert!(out.status.success(), "token: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).expect("a token is text").trim().to_owned()
    }

    pub fn http(&self) -> Http {
        self.try_http().expect("the server accepts")
    }

    /// Errors: the server is not there.
    pub fn try_http(&self) -> std::io::Result<Http> {
        match &self.trust {
            None => Http::connect(self.addr),
            Some(trust) => Ok(Http::over(Wire::tls(self.addr, trust)?)),
        }
    }

    /// Publishes one comment as `token`; the answer's status and body.
    pub fn publish(&self, room: &str, token: &str, key: &str, text: &str) -> Answer {
        let body = json!({"client_msg_id": key, "body": text});
        self.http().call("POST", &format!("/v1/rooms/{room}/comments"), Some(token), Some(&body)).expect("an answer")
    }

    pub fn published(&self, room: &str, token: &str, key: &str, text: &str) -> u64 {
        let answer = self.publish(room, token, key, text);
        assert_eq!(answer.status, 200, "{:?}", answer.json);
        answer.json["event_id"].as_u64().expect("an ack names its event")
    }

    pub fn put_room(&self, room: &str, token: &str, mut change: Value) -> Value {
        change["justification"] = json!("process test");
        let answer =
            self.http().call("PUT", &format!("/admin/rooms/{room}"), Some(token), Some(&change)).expect("an answer");
        assert!(answer.status == 200 || answer.status == 201, "{} {:?}", answer.status, answer.json);
        answer.json
    }

    /// Asks again, with the same words, while the shard may be away: each gateway finds it again by itself.
    pub fn call_until_there(&self, method: &str, path: &str, token: Option<&str>, body: Option<&Value>) -> Answer {
        let end = Instant::now() + LIMIT;
        loop {
            let answer = self.http().call(method, path, token, body).expect("an answer");
            if answer.status != 503 {
                return answer;
            }
            assert!(Instant::now() < end, "{:?}", answer.json);
        }
    }

    /// The room's whole log as the export gives it, every page.
    pub fn export(&self, room: &str, token: &str) -> Vec<Value> {
        self.export_with(room, token, "control")
    }

    pub fn export_with(&self, room: &str, token: &str, include: &str) -> Vec<Value> {
        let path = format!("/admin/rooms/{room}/export?include={include}");
        let answer = self.http().call("GET", &path, Some(token), None).expect("an answer");
        assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
        String::from_utf8(answer.body).expect("text").lines().map(|l| serde_json::from_str(l).expect(l)).collect()
    }
}

pub fn signal(pid: u32, name: &str) {
    let done = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status();
    assert!(done.expect("kill can be called").success());
}

/// Waits for what comes by itself.
pub fn until(what: &str, holds: impl FnMut() -> bool) {
    until_within(LIMIT, what, holds);
}

/// [`until`], where the time itself is promised.
pub fn until_within(limit: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::yield_now();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            let log = self.stderr();
            eprintln!("--- the server said:\n{}", &log[log.floor_char_boundary(log.len().saturating_sub(4000))..]);
        }
    }
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
    /// The body where it is JSON, else null.
    pub json: Value,
}

/// The bytes of a connection, by TLS or as they are.
pub enum Wire {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Wire {
    /// Shakes hands. Errors: the socket's, and as `InvalidData` what either side has against the other.
    pub fn tls(addr: SocketAddr, trust: &Arc<ClientConfig>) -> std::io::Result<Wire> {
        let mut socket = connected(addr)?;
        let name = ServerName::try_from("localhost").expect("a name");
        let mut session = ClientConnection::new(trust.clone(), name).map_err(std::io::Error::other)?;
        while session.is_handshaking() {
            session.complete_io(&mut socket)?;
        }
        Ok(Wire::Tls(Box::new(StreamOwned::new(session, socket))))
    }

    pub fn socket(&self) -> &TcpStream {
        match self {
            Wire::Plain(socket) => socket,
            Wire::Tls(tls) => &tls.sock,
        }
    }
}

impl Read for Wire {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Wire::Plain(socket) => socket.read(buf),
            Wire::Tls(tls) => tls.read(buf),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Wire::Plain(socket) => socket.write(bytes),
            Wire::Tls(tls) => tls.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Wire::Plain(socket) => socket.flush(),
            Wire::Tls(tls) => tls.flush(),
        }
    }
}

pub fn connected(addr: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpStream::connect(addr)?;
    socket.set_read_timeout(Some(LIMIT))?;
    socket.set_nodelay(true)?;
    Ok(socket)
}

/// One keep-alive connection.
pub struct Http {
    pub stream: BufReader<Wire>,
}

impl Http {
    pub fn connect(addr: SocketAddr) -> std::io::Result<Http> {
        Ok(Http::over(Wire::Plain(connected(addr)?)))
    }

    pub fn over(wire: Wire) -> Http {
        Http { stream: BufReader::new(wire) }
    }

    /// This end's port.
    pub fn port(&self) -> u16 {
        self.stream.get_ref().socket().local_addr().expect("it is connected").port()
    }

    pub fn send(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> std::io::Result<()> {
        let host = self.stream.get_ref().socket().peer_addr()?;
        let mut request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n");
        for (name, value) in headers {
            request += &format!("{name}: {value}\r\n");
        }
        if !body.is_empty() {
            request += &format!("Content-Length: {}\r\n", body.len());
        }
        request += "\r\n";
        let mut bytes = request.into_bytes();
        bytes.extend_from_slice(body);
        self.stream.get_mut().write_all(&bytes)
    }

    pub fn head(&mut self) -> std::io::Result<(u16, BTreeMap<String, String>)> {
        let line = self.line()?;
        let status = line.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
        Ok((status, self.headers()?))
    }

    /// What follows the first line of a head, names in lower case.
    pub fn headers(&mut self) -> std::io::Result<BTreeMap<String, String>> {
        let mut head = BTreeMap::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Ok(head);
            }
            if let Some((name, value)) = line.split_once(':') {
                head.insert(name.to_ascii_lowercase(), value.trim().to_owned());
            }
        }
    }

    /// One line without its end. Errors: the connection ended.
    pub fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end_matches(['\r', '\n']).to_owned())
    }

    pub fn answer(&mut self) -> std::io::Result<Answer> {
        let (status, head) = self.head()?;
        let mut body = Vec::new();
        if head.get("transfer-encoding").is_some_and(|t| t == "chunked") {
            loop {
                let size = usize::from_str_radix(&self.line()?, 16).map_err(|_| std::io::ErrorKind::InvalidData)?;
                let start = body.len();
                body.resize(start + size, 0);
                self.stream.read_exact(&mut body[start..])?;
                self.line()?;
                if size == 0 {
                    break;
                }
            }
        } else if let Some(len) = head.get("content-length").and_then(|l| l.parse::<usize>().ok()) {
            body.resize(len, 0);
            self.stream.read_exact(&mut body)?;
        }
        let json = serde_json::from_slice(&body).unwrap_or(Value::Null);
        Ok(Answer { status, body, json })
    }

    pub fn call(
        &mut self,
        method: &str,
        path: &str,
        token: Option<&str>,
        body: Option<&Value>,
    ) -> std::io::Result<Answer> {
        let bearer = token.map(|t| format!("Bearer {t}"));
        let mut headers: Vec<(&str, &str)> = Vec::new();
        if let Some(bearer) = &bearer {
            headers.push(("Authorization", bearer));
        }
        let body = body.map(|b| b.to_string().into_bytes()).unwrap_or_default();
        if !body.is_empty() {
            headers.push(("Content-Type", "application/json"));
        }
        self.send(method, path, &headers, &body)?;
        self.answer()
    }
}
