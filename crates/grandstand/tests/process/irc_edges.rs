//! IRC where its connection is the matter: behind a proxy and by TLS, slow, cut off in the middle of a word, with a token that ends and a shard that dies.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};

use grandstand_wire::ws::Opcode;
use serde_json::json;

use crate::access::{minted, now};
use crate::irc::{Irc, WebSocket, address, tag};
use crate::processes::{kill, metric, shard_pid};
use crate::support::{Server, Wire, connected, until};
use crate::tls::secure;

const TCP: [&str; 2] = ["--set", "irc.tcp.listen=127.0.0.1:0"];

const UPGRADE: &[u8] =
    b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// A PROXY header that names this client. Source: HAProxy, proxy protocol, 2.2.
fn header(client: [u8; 4]) -> Vec<u8> {
    let mut bytes = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
    bytes.extend([0x21, 0x11, 0, 12]);
    bytes.extend(client);
    bytes.extend([127, 0, 0, 1, 0x30, 0x39, 0x1a, 0x0b]);
    bytes
}

/// A client whose first bytes arrive together with the proxy's.
fn behind_proxy(at: SocketAddr, client: [u8; 4], said: &[u8]) -> Irc {
    let mut socket = connected(at).expect("it accepts");
    socket.write_all(&[&header(client), said].concat()).expect("sent");
    Irc::over(Wire::Plain(socket))
}

#[test]
fn behind_a_proxy_the_client_is_the_one_that_is_named_and_its_places_are_counted() {
    let proxied = ["--set", "proxy_protocol=true", "--set", "trusted_proxies=127.0.0.0/8"];
    let bounded = ["--set", "limits.streams_per_address=2"];
    let by_page = ["--set", "irc.websocket.listen=127.0.0.1:0"];
    let server = Server::start(&[&TCP[..], &by_page, &proxied, &bounded].concat(), &[]);
    let (at, websocket) = (address(&server, "tcp"), address(&server, "websocket"));
    let ann = server.token("ann", &["publisher"]);
    let mut bot = behind_proxy(at, [203, 0, 113, 5], b"").logged_in(Some(&ann));
    bot.join("r");
    let mut guest = behind_proxy(at, [203, 0, 113, 6], b"NICK justinfan7\r\nJOIN #r\r\n");
    guest.hears(" 366 ");
    bot.say("PRIVMSG #r :by way of a proxy");
    assert!(guest.hears("PRIVMSG").ends_with(" PRIVMSG #r :by way of a proxy\r\n"));
    // Each of the two has its address: a third connection of one of them is one too many.
    let _second = behind_proxy(at, [203, 0, 113, 6], b"").logged_in(None);
    assert_eq!(behind_proxy(at, [203, 0, 113, 6], b"").rest(), Vec::<String>::new());
    drop(behind_proxy(at, [203, 0, 113, 7], b"").logged_in(None));
    // A socket that never gets as far as IRC has a place as well.
    let _silent = [(); 2].map(|()| behind_proxy(websocket, [203, 0, 113, 8], b"GET / HT"));
    until("both are there", || behind_proxy(websocket, [203, 0, 113, 8], UPGRADE).rest().is_empty());
    // And who has no header at all is nobody's client.
    let mut bare = Irc::connect(at);
    bare.say("NICK justinfan1");
    assert_eq!(bare.rest(), Vec::<String>::new());
}

#[test]
fn by_tls_a_client_is_let_in_and_one_that_never_shakes_hands_is_let_go() {
    let server = secure(&[&TCP[..], &["--set", "irc.websocket.listen=127.0.0.1:0"]].concat());
    let at = address(&server, "tcp");
    let trust = server.trust.clone().expect("it speaks TLS");
    let by_tls = || Irc::over(Wire::tls(at, &trust).expect("it shakes hands"));
    let mut silent = Irc::connect(at);
    let mut bot = by_tls().logged_in(Some(&server.token("ann", &["publisher"])));
    bot.join("r");
    let mut guest = by_tls().logged_in(None);
    guest.join("r");
    bot.say("PRIVMSG #r :in confidence");
    assert!(guest.hears("PRIVMSG").ends_with(" PRIVMSG #r :in confidence\r\n"));
    let mut clear = Irc::connect(at);
    clear.say("NICK justinfan1");
    assert!(!clear.rest().iter().any(|line| line.contains(" 001 ")), "nothing is said in the clear");
    assert_eq!(silent.next(), None);
}

#[test]
fn what_was_said_before_the_client_left_is_said() {
    let server = Server::start(&[&TCP[..], &["--set", "irc.websocket.listen=127.0.0.1:0"]].concat(), &[]);
    let (tcp, websocket) = (address(&server, "tcp"), address(&server, "websocket"));
    let token = server.token("ann", &["publisher"]);
    let lines = |name: &str| {
        let said: Vec<String> = (0..8).map(|n| format!("PRIVMSG #r :{name} {n}\r\n")).collect();
        format!("PASS oauth:{token}\r\nNICK x\r\n{}", said.concat())
    };
    let mut quits = Irc::connect(tcp);
    quits.say(&format!("{}QUIT", lines("quits")));
    assert!(quits.rest().iter().any(|line| line.starts_with("ERROR")));
    // A line of a shell: it ends without a word.
    let mut ends = connected(tcp).expect("it accepts");
    ends.write_all(lines("ends").as_bytes()).expect("sent");
    ends.shutdown(std::net::Shutdown::Write).expect("it is open");
    let mut page = WebSocket::open(websocket, &[]);
    page.write(&[(Opcode::Text, lines("closes").as_bytes()), (Opcode::Close, &1_000_u16.to_be_bytes())]);
    until("all of it is in the room", || {
        let snapshot = server.http().call("GET", "/v1/rooms/r/snapshot", None, None).expect("an answer");
        let all = snapshot.json["recent_comments"].as_array().expect("a list").clone();
        let of = |name: &str| -> Vec<String> {
            let bodies = all.iter().filter_map(|comment| comment["body"].as_str());
            bodies.filter(|body| body.starts_with(name)).map(str::to_owned).collect()
        };
        ["quits", "ends", "closes"].iter().all(|name| {
            let said = of(name);
            assert!(said.is_sorted(), "in their order: {said:?}");
            said.len() == 8
        })
    });
}

#[test]
fn who_reads_slowly_is_told_what_it_missed_and_given_every_score_and_who_reads_nothing_is_let_go() {
    let server = Server::start(&TCP, &[]);
    let at = address(&server, "tcp");
    let (admin, shop) = (server.token("ops", &["admin"]), server.token("shop", &["backend"]));
    server.put_room("r", &admin, json!({"comment_age_ms": 500, "matches": ["final"]}));
    let (mut slow, _dead) = (Irc::joined(at, None, "r"), Irc::joined(at, None, "r"));
    let goal = json!({"match_id": "final", "event_id": "e1", "provider": "p", "kind": "goal", "score": {"home": 1, "away": 0}, "minute": "9"});
    // 2 000 bytes.
    let long = "🏟".repeat(500);
    let mut http = server.http();
    let mut n = 0;
    let mut say = |text: &str| {
        n += 1;
        let body = json!({"client_msg_id": format!("k{n}"), "body": text});
        let answer = http.call("POST", "/v1/rooms/r/comments", Some(&shop), Some(&body)).expect("an answer");
        assert_eq!(answer.status, 200, "{:?}", answer.json);
    };
    let skipped = || metric(&server, "grandstand_gateway_skipped_total{lane=\"comment\",hop=\"walk\"}");
    // What both sides' kernels hold, the server, and the pipe, are full with a quarter of a megabyte.
    (0..160).for_each(|_| say(&long));
    let mut heard = Vec::new();
    until("comments are passed over", || {
        // It takes half of what is said: it falls behind, and is never seen to take nothing for long.
        for _ in 0..20 {
            say(&long);
            say(&long);
            heard.extend(slow.next());
        }
        skipped() > 0
    });
    let posted = server.http().call("POST", "/v1/score-event", Some(&shop), Some(&goal)).expect("an answer");
    assert_eq!(posted.status, 202, "{:?}", posted.json);
    say("the last");
    heard.extend(slow.until(" :the last\r\n"));
    assert!(heard.iter().any(|line| line.starts_with("@msg-id=skipped ")), "{} lines", heard.len());
    assert!(heard.iter().any(|line| line.contains(";msg-param-home=1;")), "the score was left out");
    let connections = || metric(&server, "grandstand_gateway_protocol_connections{protocol=\"irc\"}");
    until("who took nothing is gone", || connections() == 1);
    say("goes on");
    slow.hears("goes on");
}

#[test]
fn a_token_that_ends_takes_its_channel_unless_a_newer_one_came_in_time() {
    let server = Server::start(&TCP, &[]);
    let at = address(&server, "tcp");
    let admin = server.token("ops", &["admin"]);
    server.put_room("closed", &admin, json!({"anonymous_view": false}));
    // It ends 30 s after its `exp`, and a stream is opened while it has 10 s left.
    let ends_soon = |user: &str| {
        minted(&server, user, |claims| {
            (claims.exp, claims.roles) = (now().0 / 1_000 - 17, Some(vec!["publisher".into()]));
        })
    };
    let mut ann = Irc::joined(at, Some(&ends_soon("ann")), "closed");
    let mut bob = Irc::joined(at, Some(&ends_soon("bob")), "closed");
    let newer = server.token("bob", &["publisher"]);
    bob.say(&format!("PASS oauth:{newer}"));
    let rest = ann.rest();
    assert!(rest.iter().any(|line| line.contains("NOTICE * :Login authentication failed")), "{rest:?}");
    assert!(rest.last().is_some_and(|line| line.starts_with("ERROR :Closing link: the token has ended")), "{rest:?}");
    bob.say("PRIVMSG #closed :still here");
    assert!(bob.hears("USERSTATE").contains(";id="));
    // What ended opens nothing either.
    let late = minted(&server, "ann", |claims| claims.exp = now().0 / 1_000 - 60);
    let mut again = Irc::connect(at);
    again.say(&format!("PASS oauth:{late}\r\nNICK ann"));
    assert!(again.rest()[0].contains("Login authentication failed"));
}

#[test]
fn clients_of_a_shard_that_dies_stay_and_hear_what_is_said_after() {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port");
    let listen = format!("irc.tcp.listen={free}");
    let server = Server::start(&["--gateways", "2", "--set", &listen], &[]);
    let (ann, shop) = (server.token("ann", &["publisher"]), server.token("shop", &["backend"]));
    let mut bots: Vec<Irc> = (0..4).map(|_| Irc::joined(free, Some(&ann), "r")).collect();
    let mut told = Vec::new();
    for round in 0..2 {
        kill(shard_pid(&server));
        for bot in &mut bots {
            assert_eq!(tag(&bot.hears("NOTICE #r"), "msg-id"), "feed_paused");
        }
        let body = json!({"client_msg_id": format!("k{round}"), "body": format!("after {round}")});
        let answer = server.call_until_there("POST", "/v1/rooms/r/comments", Some(&shop), Some(&body));
        assert_eq!(answer.status, 200, "{:?}", answer.json);
        told.push(answer.json["event_id"].to_string());
        for bot in &mut bots {
            let lines = bot.until(" PRIVMSG #r :");
            assert_eq!(tag(lines.last().expect("it"), "id"), told[round]);
            assert!(!lines.iter().any(|line| line.contains("RECONNECT")), "{lines:?}");
        }
    }
    // And they are heard: each says something on the connection it had all along.
    bots[0].say("PRIVMSG #r :I was here all along");
    bots[0].hears("USERSTATE");
    bots[1].hears("I was here all along");
}
