//! Transports with listeners and base URLs of their own: each works alone, and one that cannot be had says which.

use std::net::{SocketAddr, TcpListener};

use serde_json::{Value, json};

use crate::support::{Http, Server};
use crate::viewer::{RUNGS, Rung, Viewer};

/// Where the server says that one transport alone is served.
fn edge(server: &Server, transport: &str) -> SocketAddr {
    let start = format!("{transport} alone on http://");
    let said = server.stderr();
    let line = said.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or_else(|| panic!("{start}: {said}"));
    line.parse().expect("an address")
}

fn name(rung: Rung) -> &'static str {
    match rung {
        Rung::WebSocket => "websocket",
        Rung::Sse => "sse",
        Rung::Poll => "poll",
    }
}

const EACH: [&str; 6] = [
    "--set",
    "transport.websocket.listen=127.0.0.1:0",
    "--set",
    "transport.sse.listen=127.0.0.1:0",
    "--set",
    "transport.poll.listen=127.0.0.1:0",
];

#[test]
fn each_rung_is_watched_at_its_own_port_and_at_the_public_one() {
    let mut server = Server::start(&EACH, &[]);
    let token = server.token("pub", &["publisher"]);
    let public = server.addr;
    let mut viewers = Vec::new();
    for rung in RUNGS {
        for address in [public, edge(&server, name(rung))] {
            server.addr = address;
            let mut viewer = Viewer::open(&server, rung, "r", None, None).expect("a stream");
            assert_eq!(viewer.next().expect("hello")["type"], "hello");
            viewers.push(viewer);
        }
    }
    // By the poll's edge to viewers of all.
    server.addr = edge(&server, "poll");
    server.published("r", &token, "k", "by the side door");
    for viewer in &mut viewers {
        let events = viewer.until(|e| e["type"] == "comment");
        assert_eq!(events.last().expect("the comment")["body"], "by the side door");
    }
}

#[test]
fn a_rungs_own_port_serves_nothing_else_and_says_so() {
    let server = Server::start(&EACH, &[]);
    let streams = [("websocket", "stream"), ("sse", "sse"), ("poll", "poll")];
    for (own, _) in streams {
        let mut http = Http::connect(edge(&server, own)).expect("it accepts");
        let others = streams.iter().filter(|(name, _)| *name != own).map(|(_, path)| format!("/v1/rooms/r/{path}"));
        let closed = ["/", "/rooms/r", "/admin/gateways", "/metrics", "/openapi.json", "/v1/score-event"];
        for path in others.chain(closed.iter().map(|p| (*p).to_owned())) {
            let answer = http.call("GET", &path, None, None).expect("an answer");
            assert_eq!((answer.status, &answer.json["code"]), (421, &json!("wrong_listener")), "{own} {path}");
            let detail = answer.json["detail"].as_str().expect("a detail");
            assert!(detail.contains(&format!("transport.{own}.listen")), "{detail}");
        }
        http.send("HEAD", "/", &[], &[]).expect("sent");
        assert_eq!(http.head().expect("an answer").0, 421);
        for path in ["/v1/rooms", "/healthz/live", "/healthz/ready"] {
            assert_eq!(http.call("GET", path, None, None).expect("an answer").status, 200, "{own} {path}");
        }
    }
}

#[test]
fn base_urls_are_told_in_hello_and_snapshot_and_their_pages_may_enter() {
    let mut server = Server::unstarted(&[], &[]);
    let config = server.folder().join("stand.toml");
    let text = "rooms.create_on_use = true\npublic_url = \"https://live.example.com\"\n\
                [transport.websocket]\nurl = \"wss://ws.example.com\"\n\
                [transport.sse]\nlisten = [\"127.0.0.1:0\"]\nurls = [\"https://a.example.com\", \"https://b.example.com:8443\"]\n";
    std::fs::write(&config, text).expect("written");
    server.set_args(&["--config", config.to_str().expect("a path")]);
    server.restart();
    let ops = server.token("ops", &["region-ops"]);
    server.put_room("r", &ops, json!({"anonymous_view": true}));
    let told = json!({
        "websocket": "wss://ws.example.com", "sse": ["https://a.example.com", "https://b.example.com:8443"],
        "api": "https://live.example.com",
    });
    for rung in RUNGS {
        let mut viewer = Viewer::open(&server, rung, "r", None, None).expect("a stream");
        assert_eq!(viewer.next().expect("hello")["endpoints"], told, "{rung:?}");
    }
    let snapshot = server.http().call("GET", "/v1/rooms/r/snapshot", None, None).expect("an answer");
    assert_eq!(snapshot.json["endpoints"], told);
    let mut http = server.http();
    http.send("GET", "/", &[], &[]).expect("sent");
    let policy = http.head().expect("an answer").1["content-security-policy"].clone();
    assert!(
        policy.ends_with("connect-src 'self' wss://ws.example.com https://a.example.com https://b.example.com:8443"),
        "{policy}"
    );

    let enters = |origin: &str| {
        let mut http = Http::connect(edge(&server, "sse")).expect("it accepts");
        http.send("GET", "/v1/rooms/r/sse", &[("Origin", origin)], &[]).expect("sent");
        let (status, head) = http.head().expect("an answer");
        (status, head.get("access-control-allow-origin").cloned())
    };
    assert_eq!(enters("https://live.example.com"), (200, Some("https://live.example.com".to_owned())));
    assert_eq!(enters("https://other.example.com"), (403, None));
}

#[test]
fn a_transports_address_that_is_taken_is_named_at_start() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address");
    let server = Server::unstarted(&["--set", &format!("transport.sse.listen={address}")], &[]);
    let out = server.command(&[]).output().expect("it ran");
    assert!(!out.status.success());
    assert!(server.stderr().contains(&format!("cannot listen on {address}")), "{}", server.stderr());
    let free = Server::start(&[], &[]);
    let snapshot = free.http().call("GET", "/v1/rooms/x/snapshot", None, None).expect("an answer");
    assert_eq!((snapshot.status, snapshot.json.get("endpoints")), (200, None::<&Value>), "one address tells nothing");
}
