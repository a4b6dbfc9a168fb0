//! The client against a scripted server: what it sends after each thing that can happen to a stream.

use std::time::Duration;

use grandstand_client::Endpoint;
use grandstand_client::event::Event;
use grandstand_client::feed::{Feed, Happening, Transport};
use grandstand_client::publisher::{Comment, Outcome, Publisher};
use grandstand_client::socket::Waits;
use grandstand_core::time::Mono;
use grandstand_wire::ws::{FrameReader, Incoming, Limits, Opcode, Side, accept_key, close_body, write_frame};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// One accepted connection: its request head, and frames both ways.
struct Peer {
    stream: TcpStream,
    head: String,
    reader: FrameReader,
    input: Vec<u8>,
}

impl Peer {
    async fn accept(listener: &TcpListener) -> Peer {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        Peer { stream, head, reader: FrameReader::new(), input: Vec::new() }
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|l| l.split_once(": ").filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v))
    }

    async fn upgrade(listener: &TcpListener) -> Peer {
        let mut peer = Peer::accept(listener).await;
        let accept = accept_key(peer.header("sec-websocket-key").unwrap()).unwrap();
        let answer = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
        );
        peer.stream.write_all(answer.as_bytes()).await.unwrap();
        peer
    }

    async fn say(&mut self, event: Value) {
        let mut out = Vec::new();
        write_frame(Opcode::Text, event.to_string().as_bytes(), &mut out);
        self.stream.write_all(&out).await.unwrap();
    }

    async fn close(mut self, code: u16) {
        let mut out = Vec::new();
        write_frame(Opcode::Close, &close_body(code, ""), &mut out);
        self.stream.write_all(&out).await.unwrap();
    }

    /// The next text the client sent.
    async fn hear(&mut self) -> Value {
        loop {
            let mut rest = &self.input[..];
            let got = self.reader.next(Side::Server, &Limits::FROM_CLIENT, &mut rest, Mono(0)).unwrap();
            self.input = rest.to_vec();
            match got {
                Some(Incoming::Text(text)) => return serde_json::from_str(&text).unwrap(),
                Some(_) => {}
                None => assert!(self.stream.read_buf(&mut self.input).await.unwrap() > 0, "the client left"),
            }
        }
    }
}

async fn listener() -> (TcpListener, Endpoint) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = Endpoint::parse(&listener.local_addr().unwrap().to_string()).unwrap();
    (listener, endpoint)
}

fn comment(key: &str) -> Comment {
    Comment { client_msg_id: key.to_owned(), body: "b".to_owned(), reply_to: None, author: None }
}

#[tokio::test]
async fn a_feed_resumes_from_the_last_event_it_gave_out() {
    let (listener, endpoint) = listener().await;
    let server = tokio::spawn(async move {
        let mut first = Peer::upgrade(&listener).await;
        assert_eq!(first.header("last-event-id"), None);
        assert_eq!(first.header("authorization"), Some("Bearer t"));
        first.say(json!({"type": "hello", "cursor": 10})).await;
        first.say(json!([{"type": "comment", "event_id": 11}, {"type": "comment", "event_id": 12}])).await;
        first.say(json!({"type": "close", "code": 4200, "reason": "slow_consumer", "retry_after_ms": 0})).await;
        first.close(4200).await;
        let mut second = Peer::upgrade(&listener).await;
        assert_eq!(second.header("last-event-id"), Some("12"));
        second.say(json!({"type": "hello", "cursor": 12, "resumed": true})).await;
        second.say(json!({"type": "comment", "event_id": 13})).await;
        second.say(json!({"type": "close", "code": 4004, "reason": "no_such_room"})).await;
        second
    });
    let mut feed = Feed::new(&endpoint, "r", Some("t"), Transport::WebSocket, None);
    let mut got = Vec::new();
    let end = loop {
        match feed.next().await {
            Ok(event) => got.push((event.kind().to_owned(), event.members.event_id)),
            Err(fault) => break fault.to_string(),
        }
    };
    let ids: Vec<u64> = got.iter().filter(|(kind, _)| kind == "comment").filter_map(|(_, id)| *id).collect();
    assert_eq!(ids, [11, 12, 13]);
    assert!(end.contains("4004"), "{end}");
    assert_eq!(feed.n_connections(), 2);
    server.await.unwrap();
}

#[tokio::test]
async fn an_event_stream_in_chunks_resumes_by_its_cursor_too() {
    let (listener, endpoint) = listener().await;
    let server = tokio::spawn(async move {
        let mut first = Peer::accept(&listener).await;
        assert!(first.head.starts_with("GET /v1/rooms/r/sse "));
        let event = "event: comment\nid: 11\ndata: {\"type\":\"comment\",\"event_id\":11}\n\n";
        let body = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{event}\r\n", event.len());
        for piece in body.as_bytes().chunks(7) {
            first.stream.write_all(piece).await.unwrap();
        }
        drop(first);
        let mut second = Peer::accept(&listener).await;
        assert_eq!(second.header("last-event-id"), Some("11"));
        let plain = "HTTP/1.1 200 OK\r\n\r\ndata: {\"type\":\"comment\",\"event_id\":12}\n\n";
        second.stream.write_all(plain.as_bytes()).await.unwrap();
        second
    });
    let mut feed = Feed::new(&endpoint, "r", None, Transport::Sse, None);
    assert_eq!(feed.next().await.unwrap().members.event_id, Some(11));
    assert_eq!(feed.next().await.unwrap().members.event_id, Some(12));
    server.await.unwrap();
}

#[tokio::test]
async fn a_feed_comes_back_at_the_address_it_was_told_and_at_home_when_that_is_not_reached() {
    let (home, endpoint) = listener().await;
    let own = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", own.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let hello = json!({"type": "hello", "cursor": 10, "endpoints": {"websocket": url}});
        let mut first = Peer::upgrade(&home).await;
        first.say(hello.clone()).await;
        first.close(4200).await;
        let mut second = Peer::upgrade(&own).await;
        assert_eq!(second.header("last-event-id"), Some("10"));
        second.say(hello.clone()).await;
        // Nobody listens there any more.
        drop(own);
        second.close(4200).await;
        let mut third = Peer::upgrade(&home).await;
        third.say(json!({"type": "comment", "event_id": 11})).await;
        third
    });
    let mut feed = Feed::new(&endpoint, "r", None, Transport::WebSocket, None);
    while feed.next().await.unwrap().members.event_id != Some(11) {}
    assert_eq!(feed.n_connections(), 3);
    server.await.unwrap();
}

#[tokio::test]
async fn a_publisher_and_an_event_stream_follow_the_addresses_they_are_told() {
    let (home, endpoint) = listener().await;
    let own = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = own.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let told = json!({"websocket": format!("ws://{address}"), "sse": [format!("http://{address}")]});
        let hello = json!({"type": "hello", "cursor": 10, "endpoints": told});
        let mut first = Peer::upgrade(&home).await;
        first.say(hello.clone()).await;
        first.hear().await;
        drop(first);
        let mut second = Peer::upgrade(&own).await;
        let key = second.hear().await["client_msg_id"].clone();
        second.say(json!({"type": "publish_ack", "client_msg_id": key, "event_id": 5})).await;
        let mut third = Peer::accept(&home).await;
        let stream = format!("HTTP/1.1 200 OK\r\n\r\ndata: {hello}\n\n");
        third.stream.write_all(stream.as_bytes()).await.unwrap();
        drop(third);
        let mut fourth = Peer::accept(&own).await;
        assert!(fourth.head.starts_with("GET /v1/rooms/r/sse "));
        let event = "HTTP/1.1 200 OK\r\n\r\ndata: {\"type\":\"comment\",\"event_id\":12}\n\n";
        fourth.stream.write_all(event.as_bytes()).await.unwrap();
        (second, fourth)
    });
    let (publisher, _task) = Publisher::open(&endpoint, "r", "t", 4);
    let answer = publisher.publish(comment("k")).await.await.unwrap();
    assert!(matches!(answer, Outcome::Acked { event_id: Some(5), .. }), "{answer:?}");
    let mut feed = Feed::new(&endpoint, "r", None, Transport::Sse, None);
    while feed.next().await.unwrap().members.event_id != Some(12) {}
    server.await.unwrap();
}

#[tokio::test]
async fn a_refusal_that_asks_for_patience_is_repeated_with_the_same_key() {
    let (listener, endpoint) = listener().await;
    let server = tokio::spawn(async move {
        let mut peer = Peer::upgrade(&listener).await;
        for refusal in [
            json!({"type": "rate_limited", "client_msg_id": "k", "retry_after_ms": 1, "reason": "user_rate"}),
            json!({"type": "error", "code": "overloaded", "client_msg_id": "k", "retry_after_ms": 1}),
        ] {
            assert_eq!(peer.hear().await, json!({"op": "publish", "client_msg_id": "k", "body": "b"}));
            peer.say(refusal).await;
        }
        assert_eq!(peer.hear().await["client_msg_id"], "k");
        peer.say(json!({"type": "publish_ack", "client_msg_id": "k", "event_id": 5})).await;
        peer
    });
    let (publisher, task) = Publisher::open(&endpoint, "r", "t", 4);
    let answer = publisher.publish(comment("k")).await.await.unwrap();
    let Outcome::Acked { event_id: Some(5), retries: 2, .. } = answer else { panic!("{answer:?}") };
    drop(publisher);
    server.await.unwrap();
    assert_eq!(task.await.unwrap().unwrap().rate_limited, 1);
}

#[tokio::test]
async fn a_comment_without_a_verdict_is_sent_again_and_a_held_one_is_told_so() {
    let (listener, endpoint) = listener().await;
    let server = tokio::spawn(async move {
        let mut peer = Peer::upgrade(&listener).await;
        assert_eq!(peer.hear().await["client_msg_id"], "k");
        peer.say(json!({"type": "moderation_pending", "client_msg_id": "k", "retry_after_ms": 1})).await;
        assert_eq!(peer.hear().await["client_msg_id"], "k");
        peer.say(json!({"type": "moderation_pending", "client_msg_id": "k"})).await;
        peer
    });
    let (publisher, task) = Publisher::open(&endpoint, "r", "t", 4);
    assert_eq!(publisher.publish(comment("k")).await.await.unwrap(), Outcome::Held);
    drop(publisher);
    server.await.unwrap();
    task.await.unwrap().unwrap();
}

#[tokio::test]
async fn what_is_unanswered_when_a_connection_breaks_is_sent_again_with_its_key() {
    let (listener, endpoint) = listener().await;
    let server = tokio::spawn(async move {
        let mut first = Peer::upgrade(&listener).await;
        assert_eq!(first.hear().await["client_msg_id"], "a");
        assert_eq!(first.hear().await["client_msg_id"], "b");
        first.say(json!({"type": "publish_ack", "client_msg_id": "a", "event_id": 1})).await;
        drop(first);
        let mut second = Peer::upgrade(&listener).await;
        assert_eq!(second.hear().await["client_msg_id"], "b");
        second.say(json!({"type": "publish_ack", "client_msg_id": "b", "event_id": 2, "duplicate": true})).await;
        second
    });
    let (publisher, task) = Publisher::open(&endpoint, "r", "t", 4);
    let (a, b) = (publisher.publish(comment("a")).await, publisher.publish(comment("b")).await);
    assert!(matches!(a.await.unwrap(), Outcome::Acked { duplicate: false, .. }));
    assert!(matches!(b.await.unwrap(), Outcome::Acked { duplicate: true, event_id: Some(2), .. }));
    drop(publisher);
    server.await.unwrap();
    assert_eq!(task.await.unwrap().unwrap().connections, 2);
}

#[tokio::test]
async fn a_final_refusal_is_told_with_its_code_and_a_40xx_ends_the_rest() {
    let (listener, endpoint) = listener().await;
    let server = tokio::spawn(async move {
        let mut peer = Peer::upgrade(&listener).await;
        peer.hear().await;
        peer.say(json!({"type": "error", "code": "too_long", "message": "too long", "client_msg_id": "a"})).await;
        peer.hear().await;
        peer.say(json!({"type": "close", "code": 4003, "reason": "not_allowed"})).await;
        peer
    });
    let (publisher, task) = Publisher::open(&endpoint, "r", "t", 1);
    let refused = publisher.publish(comment("a")).await.await.unwrap();
    assert_eq!(refused, Outcome::Refused { code: "too_long".to_owned(), message: "too long".to_owned() });
    let last = publisher.publish(comment("b")).await;
    let last = tokio::time::timeout(Duration::from_secs(10), last).await.unwrap().unwrap();
    assert_eq!(last, Outcome::Unanswered);
    server.await.unwrap();
    assert!(task.await.unwrap().unwrap_err().to_string().contains("4003"));
}

#[tokio::test]
async fn a_wait_that_has_begun_goes_on_when_its_turn_is_dropped() {
    let (listener, endpoint) = listener().await;
    let server = tokio::spawn(async move {
        let mut first = Peer::upgrade(&listener).await;
        first.say(json!({"type": "close", "code": 4112, "reason": "drain", "retry_after_ms": 200})).await;
        first.close(4112).await;
        let mut second = Peer::upgrade(&listener).await;
        second.say(json!({"type": "comment", "event_id": 11})).await;
        second
    });
    let mut feed = Feed::new(&endpoint, "r", None, Transport::WebSocket, None);
    let mut cuts = 0;
    // Whoever shows a clock beside the room asks again and again, always for less than the wait.
    let found = tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            match tokio::time::timeout(Duration::from_millis(50), feed.turn()).await {
                Ok(Ok(Happening::Cut { wait, .. })) => {
                    assert_eq!(wait, Duration::from_millis(200));
                    cuts += 1;
                }
                Ok(Ok(Happening::Event(event))) if event.kind() == "comment" => return event,
                Ok(Ok(Happening::Event(_))) | Err(_) => {}
                Ok(Err(fault)) => panic!("{fault}"),
            }
        }
    });
    assert_eq!(found.await.expect("the wait ends").members.event_id, Some(11));
    assert_eq!(cuts, 1);
    server.await.unwrap();
}

/// Asks again and again, as whoever shows a clock beside the room does.
async fn asked_in_turns(feed: &mut Feed) -> Event {
    loop {
        match tokio::time::timeout(Duration::from_millis(20), feed.turn()).await {
            Ok(Ok(Happening::Event(event))) => return event,
            Ok(Ok(Happening::Cut { .. })) | Err(_) => {}
            Ok(Err(fault)) => panic!("{fault}"),
        }
    }
}

#[tokio::test]
async fn a_stream_that_takes_its_time_to_open_is_opened_though_its_turns_are_dropped() {
    for transport in [Transport::WebSocket, Transport::Sse] {
        let (listener, endpoint) = listener().await;
        let mut feed = Feed::new(&endpoint, "r", None, transport, None);
        for _ in 0..5 {
            let turn = tokio::time::timeout(Duration::from_millis(20), feed.turn()).await;
            assert!(turn.is_err(), "nobody has answered: {turn:?}");
        }
        let server = tokio::spawn(async move {
            if transport == Transport::WebSocket {
                let mut peer = Peer::upgrade(&listener).await;
                peer.say(json!({"type": "comment", "event_id": 11})).await;
                return peer;
            }
            let mut peer = Peer::accept(&listener).await;
            let plain = "HTTP/1.1 200 OK\r\n\r\ndata: {\"type\":\"comment\",\"event_id\":11}\n\n";
            peer.stream.write_all(plain.as_bytes()).await.unwrap();
            peer
        });
        // It is the first connection that is answered: whoever hung up would wait for another in vain.
        let event = tokio::time::timeout(Duration::from_secs(20), asked_in_turns(&mut feed)).await.expect("it opens");
        assert_eq!(event.members.event_id, Some(11));
        server.await.unwrap();
    }
}

#[tokio::test]
async fn a_stream_that_falls_silent_is_cut_though_its_turns_are_dropped() {
    for transport in [Transport::WebSocket, Transport::Sse] {
        let (listener, endpoint) = listener().await;
        let mut feed = Feed::new(&endpoint, "r", None, transport, None);
        feed.set_waits(Waits { silence: Duration::from_secs(1), ..Waits::default() });
        let server = tokio::spawn(async move {
            let mut peer = match transport {
                Transport::WebSocket => Peer::upgrade(&listener).await,
                Transport::Sse => Peer::accept(&listener).await,
            };
            let event = json!({"type": "hello", "cursor": 10});
            match transport {
                Transport::WebSocket => peer.say(event).await,
                Transport::Sse => {
                    let answer = format!("HTTP/1.1 200 OK\r\n\r\ndata: {event}\n\n");
                    peer.stream.write_all(answer.as_bytes()).await.unwrap();
                }
            }
            (peer, listener)
        });
        asked_in_turns(&mut feed).await;
        let _open = server.await.unwrap();
        let cut = async {
            loop {
                match tokio::time::timeout(Duration::from_millis(20), feed.turn()).await {
                    Ok(Ok(Happening::Cut { .. })) => return,
                    Ok(other) => panic!("{other:?}"),
                    Err(_) => {}
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(20), cut).await.expect("who is silent is not believed");
    }
}

#[tokio::test]
async fn a_server_that_accepts_and_says_nothing_is_given_up() {
    let (listener, endpoint) = listener().await;
    for transport in [Transport::WebSocket, Transport::Sse] {
        let mut feed = Feed::new(&endpoint, "r", None, transport, None);
        feed.set_waits(Waits { opening: Duration::from_millis(100), ..Waits::default() });
        let cut = tokio::time::timeout(Duration::from_secs(20), feed.turn()).await.expect("it is given up");
        assert!(matches!(cut, Ok(Happening::Cut { .. })), "{cut:?}");
    }
    drop(listener);
}

#[tokio::test]
async fn a_refusal_of_a_stream_is_waited_out_as_long_as_it_says() {
    for transport in [Transport::WebSocket, Transport::Sse] {
        let (listener, endpoint) = listener().await;
        let server = tokio::spawn(async move {
            let mut peer = Peer::accept(&listener).await;
            let body = json!({"code": "overloaded", "retry_after_ms": 7_000, "spread_ms": 500}).to_string();
            let head = format!("HTTP/1.1 503 Busy\r\nContent-Length: {}\r\n\r\n", body.len());
            // The body comes by itself.
            peer.stream.write_all(head.as_bytes()).await.unwrap();
            tokio::task::yield_now().await;
            peer.stream.write_all(body.as_bytes()).await.unwrap();
        });
        let mut feed = Feed::new(&endpoint, "r", None, transport, None);
        let Happening::Cut { wait, .. } = feed.turn().await.unwrap() else { panic!("it was refused") };
        assert!((7_000..=7_500).contains(&wait.as_millis()), "{transport:?}: {wait:?}");
        server.await.unwrap();
    }
}

#[tokio::test]
async fn a_newer_token_is_shown_when_the_stream_is_opened_again() {
    let (listener, endpoint) = listener().await;
    let server = tokio::spawn(async move {
        let mut first = Peer::upgrade(&listener).await;
        assert_eq!(first.header("authorization"), Some("Bearer old"));
        first.say(json!({"type": "close", "code": 4101, "reason": "bad_token", "retry_after_ms": 1})).await;
        first.close(4101).await;
        let mut second = Peer::upgrade(&listener).await;
        assert_eq!(second.header("authorization"), Some("Bearer new"));
        second.say(json!({"type": "comment", "event_id": 11})).await;
        second
    });
    let mut feed = Feed::new(&endpoint, "r", Some("old"), Transport::WebSocket, None);
    while !matches!(feed.turn().await.unwrap(), Happening::Cut { .. }) {}
    feed.set_token(Some("new"));
    assert_eq!(feed.next().await.unwrap().members.event_id, Some(11));
    server.await.unwrap();
}
