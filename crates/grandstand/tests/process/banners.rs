//! Banners from a gift or an operator to every open stream: once, on every rung, whatever is killed in between.

use serde_json::{Value, json};

use crate::processes::{self, metric};
use crate::support::{Answer, Server};
use crate::viewer::{RUNGS, Rung, Viewer, open_at};

pub fn call(server: &Server, method: &str, path: &str, token: &str, body: &Value) -> Answer {
    server.call_until_there(method, path, Some(token), Some(body).filter(|body| !body.is_null()))
}

fn rocket(gift_id: &str, user: &str) -> Value {
    json!({"gift_id": gift_id, "user": {"id": user, "name": "Ada"}, "item": "rocket", "count": 2,
        "amount_micros": 9_000_000, "currency": "EUR"})
}

fn give(server: &Server, token: &str, room: &str, gift: &Value) -> Value {
    let answer = call(server, "POST", &format!("/v1/rooms/{room}/gifts"), token, gift);
    assert_eq!(answer.status, 200, "{:?}", answer.json);
    answer.json
}

/// A room whose rockets are worth a banner, and the shop's token and an operator's.
fn shop(server: &Server, room: &str, change: Value) -> (String, String) {
    let admin = server.token("ops", &["region-ops"]);
    let mut settings = json!({"banner_items": ["rocket"], "banner_seconds": 600, "combo_seconds": 0});
    settings.as_object_mut().expect("an object").extend(change.as_object().expect("an object").clone());
    server.put_room(room, &admin, settings);
    (server.token("shop", &["backend"]), admin)
}

fn banners(events: &[Value]) -> Vec<&Value> {
    events.iter().filter(|e| e["type"] == "banner").collect()
}

#[test]
fn a_gift_s_banner_reaches_viewers_of_every_room_on_every_rung_once() {
    for args in [&[][..], &["--gateways", "2"]] {
        let server = Server::start(args, &[]);
        let (token, _) = shop(&server, "shop", json!({}));
        let before = server.published("elsewhere", &token, "k1", "before");
        let mut viewers: Vec<Viewer> =
            (0..6).map(|n| open_at(&server, RUNGS[n % 3], "elsewhere", Some(before))).collect();
        // A poll that was answered once is known, and waits for what comes.
        viewers.iter_mut().for_each(|viewer| drop(viewer.next_or_answer()));
        let answer = give(&server, &token, "shop", &rocket("pay-1", "ann"));
        let id = answer["banner_id"].as_str().expect("it is worth one").to_owned();
        assert!(give(&server, &token, "shop", &rocket("pay-1", "ann")).get("banner_id").is_none(), "a repeat has none");
        for viewer in &mut viewers {
            let seen = viewer.until(|e| e["type"] == "banner");
            let banner = seen.last().expect("a banner");
            assert_eq!(banner["banner_id"], id.as_str(), "{banner}");
            assert_eq!((&banner["item"], &banner["count"]), (&json!("rocket"), &json!(2)), "{banner}");
            assert_eq!((&banner["source_room_id"], &banner["user"]["display"]), (&json!("shop"), &json!("Ada")));
            assert!(banner.get("room_id").is_none() && banner.get("event_id").is_none(), "{banner}");
        }
        let last = server.published("elsewhere", &token, "k2", "after");
        for viewer in &mut viewers {
            assert!(banners(&viewer.until_id(last)).is_empty(), "once");
        }
        // Who comes later finds it standing, and in the snapshot.
        for rung in [Rung::WebSocket, Rung::Sse] {
            let hello = open_at(&server, rung, "shop", None).next().expect("hello");
            assert_eq!(hello["banners"][0]["banner_id"], id.as_str(), "{hello}");
        }
        let snapshot = server.http().call("GET", "/v1/rooms/elsewhere/snapshot", None, None).expect("an answer");
        assert_eq!(snapshot.json["banners"][0]["banner_id"], id.as_str(), "{:?}", snapshot.json);
    }
}

#[test]
fn an_operator_s_banner_is_told_audited_and_taken_down() {
    let server = Server::start(&[], &[]);
    let (token, ops) = shop(&server, "shop", json!({}));
    let body = json!({"body": "the final starts at 20:00", "seconds": 600, "source_room_id": "shop", "justification": "asked by the desk"});
    assert_eq!(call(&server, "POST", "/admin/banners", &token, &body).status, 403);
    let unexplained = json!({"body": "x", "seconds": 1});
    assert_eq!(call(&server, "POST", "/admin/banners", &ops, &unexplained).status, 422);
    let mut viewers: Vec<Viewer> = RUNGS.map(|rung| open_at(&server, rung, "shop", None)).into();
    viewers.iter_mut().for_each(|viewer| drop(viewer.next_or_answer()));
    let answer = call(&server, "POST", "/admin/banners", &ops, &body);
    assert_eq!(answer.status, 200, "{:?}", answer.json);
    let id = answer.json["banner_id"].as_str().expect("an id").to_owned();
    for viewer in &mut viewers {
        let seen = viewer.until(|e| e["type"] == "banner");
        assert_eq!(seen.last().expect("one")["body"], "the final starts at 20:00");
    }
    let listed = server.http().call("GET", "/admin/banners", Some(&ops), None).expect("an answer");
    assert_eq!(listed.json["banners"][0]["banner_id"], id.as_str(), "{:?}", listed.json);
    let path = format!("/admin/banners/{id}");
    let why = json!({"justification": "over"});
    assert_eq!(call(&server, "DELETE", &path, &ops, &why).status, 200);
    assert_eq!(call(&server, "DELETE", &path, &ops, &why).status, 404, "once");
    for viewer in &mut viewers {
        let seen = viewer.until(|e| e["type"] == "banner");
        let end = seen.last().expect("its end");
        assert_eq!((&end["banner_id"], &end["ended"]), (&json!(id), &json!(true)));
    }
    let hello = open_at(&server, Rung::WebSocket, "shop", None).next().expect("hello");
    assert_eq!(hello["banners"], json!([]), "{hello}");
    let audit = std::fs::read_to_string(server.data().join("audit.jsonl")).expect("the audit");
    assert!(audit.contains("asked by the desk") && audit.contains("\"banner end\""), "{audit}");
}

#[test]
fn gifts_over_the_room_s_cap_have_no_banner_and_are_told_so() {
    let server = Server::start(&[], &[]);
    let (token, _) = shop(&server, "shop", json!({"banner_rate": 2, "banner_amounts": {"JPY": 1}}));
    let answers: Vec<Value> =
        (0..4).map(|n| give(&server, &token, "shop", &rocket(&format!("pay-{n}"), "ann"))).collect();
    let shown = answers.iter().filter(|a| a["banner_id"].is_string()).count();
    let capped = answers.iter().filter(|a| a["banner_capped"] == "room").count();
    assert_eq!((shown, capped), (2, 2), "{answers:?}");
    assert_eq!(metric(&server, "grandstand_banners_capped_total{cap=\"room\"}"), 2);
    assert_eq!(metric(&server, "grandstand_banners_total{of=\"gift\"}"), 2);
    // One a second to each viewer; both come.
    let hello = open_at(&server, Rung::WebSocket, "shop", None).next().expect("hello");
    assert!(hello["banners"].as_array().is_some_and(|b| b.len() <= 2), "{hello}");
}

#[test]
fn a_banner_survives_a_kill_between_its_gift_and_its_viewers() {
    for args in [&[][..], &["--gateways", "2"]] {
        let mut server = Server::start(args, &[]);
        let (token, ops) = shop(&server, "shop", json!({}));
        let mut viewers = Vec::new();
        if !args.is_empty() {
            viewers.extend([Rung::WebSocket, Rung::Sse].map(|rung| open_at(&server, rung, "shop", None)));
            viewers.iter_mut().for_each(|viewer| drop(viewer.next()));
        }
        let id = give(&server, &token, "shop", &rocket("pay-1", "ann"))["banner_id"].as_str().expect("one").to_owned();
        // Half a second passes before it would go alone: whoever was told nothing yet is told by what comes after.
        if args.is_empty() {
            server.kill();
            server.restart();
            viewers.extend([Rung::WebSocket, Rung::Sse].map(|rung| open_at(&server, rung, "shop", None)));
        } else {
            processes::kill(processes::shard_pid(&server));
        }
        let again = give(&server, &token, "shop", &rocket("pay-1", "ann"));
        assert_eq!(again["duplicate"], true, "{again}");
        for viewer in &mut viewers {
            let told = |e: &Value| {
                let of = |b: &Value| b["banner_id"] == id.as_str();
                e["type"] == "banner" && of(e) || e["banners"].as_array().is_some_and(|all| all.iter().any(of))
            };
            viewer.until(told);
        }
        let listed = call(&server, "GET", "/admin/banners", &ops, &Value::Null).json;
        let ids: Vec<&Value> = listed["banners"].as_array().expect("a list").iter().map(|b| &b["banner_id"]).collect();
        assert_eq!(ids, [&json!(id)], "{listed}");
    }
}

#[test]
fn banners_go_out_one_a_second_and_none_is_lost() {
    let server = Server::start(&[], &[]);
    let (_, ops) = shop(&server, "shop", json!({}));
    let mut viewers: Vec<Viewer> = RUNGS.map(|rung| open_at(&server, rung, "shop", None)).into();
    viewers.iter_mut().for_each(|viewer| drop(viewer.next_or_answer()));
    let asked: Vec<String> = (0..3)
        .map(|n| {
            let body = json!({"body": format!("notice {n}"), "seconds": 600, "justification": "test"});
            let answer = call(&server, "POST", "/admin/banners", &ops, &body);
            answer.json["banner_id"].as_str().expect("an id").to_owned()
        })
        .collect();
    for viewer in &mut viewers {
        let mut told: Vec<String> = Vec::new();
        while told.len() < asked.len() {
            let seen = viewer.until(|e| e["type"] == "banner");
            told.extend(banners(&seen).iter().filter_map(|b| b["banner_id"].as_str()).map(str::to_owned));
        }
        assert_eq!(told, asked);
    }
    assert!(metric(&server, "grandstand_gateway_banners_told_total") >= 9);
    for hop in ["queue", "turn"] {
        let dropped = format!("grandstand_gateway_banners_dropped_total{{lane=\"site\",hop=\"{hop}\"}}");
        assert_eq!(metric(&server, &dropped), 0, "{hop}");
    }
}
