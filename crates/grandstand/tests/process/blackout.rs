//! A room that may not be shown somewhere: no road leads to it from there, and who watches when it is said is sent away.

use std::io::Read as _;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::access::{end_of, minted};
use crate::support::{Http, Server, until};
use crate::viewer::{RUNGS, Rung, Viewer, open_at};

/// Written as MaxMind's format says: a tree of address bits, the data its leaves point to, and what the whole is.
/// Source: the MaxMind DB file format, version 2.0.
fn database(networks: &[(Ipv4Addr, u8, &str, Option<&str>)]) -> Vec<u8> {
    fn text(text: &str) -> Vec<u8> {
        assert!(text.len() < 29);
        [&[2 << 5 | text.len() as u8], text.as_bytes()].concat()
    }
    fn map(members: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let mut out = vec![7 << 5 | members.len() as u8];
        members.iter().for_each(|(name, value)| out.extend([text(name), value.clone()].concat()));
        out
    }
    fn list(items: &[Vec<u8>]) -> Vec<u8> {
        [vec![items.len() as u8, 4], items.concat()].concat()
    }
    let number = |kind: u8, n: u32| [&[kind << 5 | 4][..], &n.to_be_bytes()].concat();
    #[derive(Clone, Copy)]
    enum To {
        Nowhere,
        Node(u32),
        Data(u32),
    }
    let (mut nodes, mut data) = (vec![[To::Nowhere; 2]], Vec::new());
    for (address, bits, country, part) in networks {
        let at = data.len() as u32;
        let mut members = vec![("country", map(&[("iso_code", text(country))]))];
        members.extend(part.map(|part| ("subdivisions", list(&[map(&[("iso_code", text(part))])]))));
        data.extend(map(&members));
        let mut node = 0;
        for bit in 0..*bits {
            let side = (address.to_bits() >> (31 - bit) & 1) as usize;
            if bit + 1 == *bits {
                nodes[node][side] = To::Data(at);
            } else if let To::Node(next) = nodes[node][side] {
                node = next as usize;
            } else {
                nodes.push([To::Nowhere; 2]);
                let next = nodes.len() - 1;
                nodes[node][side] = To::Node(next as u32);
                node = next;
            }
        }
    }
    let n = nodes.len() as u32;
    let mut out = Vec::new();
    for record in nodes.into_iter().flatten() {
        let to = match record {
            To::Nowhere => n,
            To::Node(at) => at,
            To::Data(at) => n + 16 + at,
        };
        out.extend(&to.to_be_bytes()[1..]);
    }
    out.extend([0; 16]);
    out.extend(data);
    out.extend(b"\xab\xcd\xefMaxMind.com");
    let short = |n: u16| [&[5 << 5 | 2][..], &n.to_be_bytes()].concat();
    out.extend(map(&[
        ("node_count", number(6, n)),
        ("record_size", short(24)),
        ("ip_version", short(4)),
        ("database_type", text("Test-City")),
        ("languages", list(&[text("en")])),
        ("binary_format_major_version", short(2)),
        ("binary_format_minor_version", short(0)),
        ("build_epoch", [&[8, 2][..], &1_800_000_000_u64.to_be_bytes()].concat()),
        ("description", map(&[("en", text("made by a test"))])),
    ]));
    out
}

/// A server whose clients, which all come from this machine, are in Scotland as its database says; or of whom it says nothing.
fn in_scotland(args: &[&str], known: bool) -> Server {
    let mut server = Server::unstarted(&[], &[]);
    let path: PathBuf = server.folder().join("regions.mmdb");
    let network = if known { Ipv4Addr::new(127, 0, 0, 0) } else { Ipv4Addr::new(10, 0, 0, 0) };
    std::fs::write(&path, database(&[(network, 8, "GB", Some("SCT"))])).expect("written");
    let setting = format!("region.database={}", path.display());
    let all: Vec<&str> = ["--set", &setting].into_iter().chain(args.iter().copied()).collect();
    server.set_args(&all);
    server.restart();
    server
}

fn get(server: &Server, path: &str, token: Option<&str>) -> (u16, Value) {
    let answer = server.http().call("GET", path, token, None).expect("an answer");
    (answer.status, answer.json)
}

/// Every road to the room's content, and what it answers.
fn roads(server: &Server, room: &str, token: Option<&str>, cursor: u64) -> Vec<(String, bool)> {
    let mut open = Vec::new();
    let ok = |(status, body): (u16, Value)| {
        assert!(status == 200 || (status, &body["code"]) == (451, &json!("blackout")), "{status} {body}");
        status == 200
    };
    for (rung, cursor) in RUNGS.into_iter().flat_map(|rung| [(rung, None), (rung, Some(cursor.to_string()))]) {
        let shown = match Viewer::open(server, rung, room, cursor.as_deref(), token) {
            // It waited, and there was nothing new to be shown.
            Err(quiet) if quiet.status == 204 => true,
            Err(refused) => {
                let code = &refused.json["code"];
                assert!([json!("blackout"), json!(4051)].contains(code), "{rung:?}: {refused:?}");
                false
            }
            Ok(_) if rung == Rung::Poll => true,
            Ok(mut viewer) => {
                let first = viewer.next().expect("a word");
                if first["type"] == "close" {
                    assert_eq!(first["code"], 4051, "{first}");
                }
                first["type"] == "hello"
            }
        };
        open.push((format!("{rung:?} from {cursor:?}"), shown));
    }
    open.push(("snapshot".into(), ok(get(server, &format!("/v1/rooms/{room}/snapshot"), token))));
    open.push(("older".into(), ok(get(server, &format!("/v1/rooms/{room}/snapshot?before={}", cursor + 1), token))));
    if let Some(token) = token {
        let answer = server.http().call("POST", "/v1/ticket", Some(token), Some(&json!({"room_id": room})));
        let answer = answer.expect("an answer");
        open.push(("ticket".into(), ok((answer.status, answer.json))));
    }
    let (_, listed) = get(server, "/v1/rooms", token);
    let listed = listed["rooms"].as_array().expect("rooms").iter().any(|row| row["room_id"] == room);
    open.push(("list".into(), listed));
    open
}

fn all(roads: &[(String, bool)], shown: bool) {
    assert!(roads.iter().all(|(_, open)| *open == shown), "all should be {shown}: {roads:?}");
}

#[test]
fn a_blackout_closes_every_road_from_its_region_and_ends_the_streams_that_are_open_there() {
    for args in [&[][..], &["--gateways", "2"]] {
        let mut server = in_scotland(args, true);
        let (ops, backend) = (server.token("ops", &["region-ops"]), server.token("pub", &["backend"]));
        let ann = minted(&server, "ann", |_| {});
        // It is not shown in Germany: nobody here minds.
        server.put_room("final", &ops, json!({"blackout_regions": ["DE"]}));
        let id = server.published("final", &backend, "k1", "kick-off");
        for token in [None, Some(&*ann)] {
            all(&roads(&server, "final", token, id), true);
        }
        let mut watching: Vec<Viewer> = (0..6).map(|n| open_at(&server, RUNGS[n % 2], "final", None)).collect();
        let mut of_backend =
            Viewer::open(&server, Rung::WebSocket, "final", None, Some(&backend)).unwrap_or_else(|a| panic!("{a:?}"));
        let mut elsewhere = open_at(&server, Rung::WebSocket, "other", None);
        watching
            .iter_mut()
            .chain([&mut of_backend, &mut elsewhere])
            .for_each(|v| drop(v.until(|e| e["type"] == "hello")));
        // A second room of a connection is left, the connection stays.
        elsewhere.say(&json!({"op": "join", "room_id": "final"})).expect("it is open");
        elsewhere.until(|e| e["type"] == "hello" && e["room_id"] == "final");
        let said = Instant::now();
        server.put_room("final", &ops, json!({"blackout_regions": ["GB", "DE"]}));
        for viewer in &mut watching {
            assert_eq!(end_of(viewer), 4051);
        }
        assert!(said.elapsed() < Duration::from_secs(10), "the promise is one second; this is a machine under test");
        let told = elsewhere.until(|e| e["type"] == "error").pop().expect("a word");
        assert_eq!((&told["code"], &told["room_id"]), (&json!("blackout"), &json!("final")), "{told}");
        for token in [None, Some(&*ann)] {
            all(&roads(&server, "final", token, id), false);
        }
        let second = server.published("final", &backend, "k2", "a goal that nobody here hears of");
        of_backend.until_id(second);
        let other = server.published("other", &backend, "k3", "still here");
        let seen = elsewhere.until_id(other);
        assert!(seen.iter().all(|e| e["event_id"] != second), "{seen:?}");
        server.stop();
        server.restart();
        all(&roads(&server, "final", None, id), false);
        let ops = server.token("ops", &["region-ops"]);
        // A part of a country alone: the whole of it is more than where these are.
        for (regions, shown) in [(json!(["GB-WLS"]), true), (json!(["GB-SCT"]), false), (json!([]), true)] {
            let room = server.put_room("final", &ops, json!({"blackout_regions": regions}));
            assert_eq!(room["blackout_regions"], regions);
            // A gateway hears of it a moment after the operator.
            let now = || roads(&server, "final", None, id);
            until("every road is as it was said", || now().iter().all(|(_, open)| *open == shown));
            all(&now(), shown);
        }
    }
}

#[test]
fn who_is_nowhere_is_refused_and_a_server_that_cannot_know_takes_no_blackout() {
    let server = in_scotland(&[], false);
    let (ops, backend) = (server.token("ops", &["region-ops"]), server.token("pub", &["backend"]));
    server.put_room("final", &ops, json!({"blackout_regions": ["DE"]}));
    let id = server.published("final", &backend, "k1", "kick-off");
    all(&roads(&server, "final", None, id), false);
    for bad in [json!(["Germany"]), json!(["XX"]), json!("DE"), json!([49])] {
        let change = json!({"blackout_regions": bad, "justification": "process test"});
        let answer = server.http().call("PUT", "/admin/rooms/final", Some(&ops), Some(&change)).expect("an answer");
        assert_eq!(answer.status, 422, "{bad}");
    }
    let blind = Server::start(&[], &[]);
    let ops = blind.token("ops", &["region-ops"]);
    let change = json!({"blackout_regions": ["DE"], "justification": "process test"});
    let answer = blind.http().call("PUT", "/admin/rooms/final", Some(&ops), Some(&change)).expect("an answer");
    assert_eq!((answer.status, &answer.json["code"]), (422, &json!("bad_field")), "{:?}", answer.json);
}

#[test]
fn a_banner_ends_everywhere_with_the_blackout_of_the_room_it_names() {
    for args in [&[][..], &["--gateways", "2"]] {
        let server = in_scotland(args, true);
        let (ops, backend) = (server.token("ops", &["region-ops"]), server.token("pub", &["backend"]));
        server.put_room("final", &ops, json!({"banner_items": ["rocket"], "banner_seconds": 600}));
        let mut elsewhere = open_at(&server, Rung::WebSocket, "other", None);
        elsewhere.until(|e| e["type"] == "hello");
        let gift = json!({"gift_id": "pay-1", "user": {"id": "ann", "name": "Ada"}, "item": "rocket", "count": 2,
            "amount_micros": 9_000_000, "currency": "EUR"});
        let given = server.call_until_there("POST", "/v1/rooms/final/gifts", Some(&backend), Some(&gift));
        let id = given.json["banner_id"].clone();
        let shown = elsewhere.until(|e| e["type"] == "banner").pop().expect("the banner");
        assert_eq!((&shown["banner_id"], shown["body"].is_string()), (&id, true), "{shown}");
        server.put_room("final", &ops, json!({"blackout_regions": ["DE"]}));
        let end = elsewhere.until(|e| e["type"] == "banner").pop().expect("its end");
        assert_eq!((&end["banner_id"], &end["ended"]), (&id, &json!(true)), "{end}");
        assert!(end["body"].is_null() && end["user"].is_null() && end["source_room_id"].is_null(), "{end}");
        for rung in [Rung::WebSocket, Rung::Sse] {
            // Each gateway process hears of it for itself.
            until("nobody who enters is shown it", || {
                let hello = open_at(&server, rung, "other", None).next().expect("hello");
                hello["banners"] == json!([])
            });
        }
        assert_eq!(get(&server, "/v1/rooms/other/snapshot", None).1["banners"], json!([]));
        let own = json!({"body": "watch it", "source_room_id": "final", "justification": "process test"});
        let refused = server.call_until_there("POST", "/admin/banners", Some(&ops), Some(&own));
        assert_eq!((refused.status, &refused.json["code"]), (422, &json!("bad_field")), "{:?}", refused.json);
    }
}

/// The status of one request with these headers.
fn status(server: &Server, path: &str, headers: &[(&str, &str)]) -> u16 {
    let mut http: Http = server.http();
    http.send("GET", path, headers, &[]).expect("it is sent");
    let (status, head) = http.head().expect("an answer");
    let len = head.get("content-length").and_then(|l| l.parse().ok()).unwrap_or(0);
    http.stream.read_exact(&mut vec![0; len]).expect("the body");
    status
}

#[test]
fn a72_an_edge_is_believed_about_regions_and_a_client_is_not() {
    let trusting = ["--set", "region.header=X-Viewer-Region", "--set", "trusted_proxies=127.0.0.0/8"];
    let server = Server::start(&trusting, &[]);
    let ops = server.token("ops", &["region-ops"]);
    server.put_room("final", &ops, json!({"blackout_regions": ["GB"]}));
    let paths = ["/v1/rooms/final/snapshot", "/v1/rooms/final/sse"];
    for path in paths {
        for (said, wanted) in
            [("DE", 200), ("de", 200), ("GB", 451), ("GB-SCT", 451), ("T1", 451), ("XX", 451), ("", 451)]
        {
            assert_eq!(status(&server, path, &[("X-Viewer-Region", said)]), wanted, "{path} of {said:?}");
        }
        assert_eq!(status(&server, path, &[]), 451, "{path}: the edge said nothing");
        let twice = [("X-Viewer-Region", "DE"), ("X-Viewer-Region", "DE")];
        assert_eq!(status(&server, path, &twice), 451, "{path}: one of them is the client's");
        assert_eq!(status(&server, path, &[("X-Grandstand-Place", "DE")]), 451, "{path}: the gateway's own word");
    }
    // The same header where nobody is trusted about the client: behind a proxy that is not this one.
    let elsewhere = ["--set", "region.header=X-Viewer-Region", "--set", "trusted_proxies=10.0.0.0/8"];
    let server = Server::start(&elsewhere, &[]);
    let ops = server.token("ops", &["region-ops"]);
    server.put_room("final", &ops, json!({"blackout_regions": ["GB"]}));
    for path in paths {
        assert_eq!(status(&server, path, &[("X-Viewer-Region", "DE")]), 451, "{path}");
    }
}
