//! A room's way through an evening: what each state takes, and the last step, which the room takes by itself.

use serde_json::json;

use crate::support::{Server, until};
use crate::viewer::{Rung, open_at};

#[test]
fn a_settling_room_tells_its_viewers_that_it_closes_and_does_so_across_a_restart() {
    for args in [&[][..], &["--gateways", "2"]] {
        let mut server = Server::start(args, &[]);
        let (ops, backend) = (server.token("ops", &["region-ops"]), server.token("pub", &["backend"]));
        server.put_room("final", &ops, json!({"settle_seconds": 1}));
        let mut viewer = open_at(&server, Rung::WebSocket, "final", None);
        viewer.until(|e| e["type"] == "hello");
        let room = server.put_room("final", &ops, json!({"state": "settling"}));
        assert!(room["settles_until_ts"].is_string(), "{room}");
        viewer.until(|e| e["type"] == "config" && e["state"] == "settling");
        viewer.until(|e| e["type"] == "config" && e["state"] == "closed");
        let late = server.publish("final", &backend, "k1", "too late");
        assert_eq!((late.status, &late.json["code"]), (409, &json!("room_state")), "{:?}", late.json);
        // It settles while nobody is there to close it.
        server.put_room("second", &ops, json!({"settle_seconds": 2, "state": "settling"}));
        server.published("second", &backend, "k1", "the last word");
        server.stop();
        server.restart();
        let ops = server.token("ops", &["region-ops"]);
        let state = |room: &str| {
            let answer = server.http().call("GET", &format!("/admin/rooms/{room}"), Some(&ops), None);
            answer.ok().map(|answer| (answer.json["state"].clone(), answer.json["settles_until_ts"].is_null()))
        };
        until("it closes by itself", || state("second") == Some((json!("closed"), true)));
        assert_eq!(state("final"), Some((json!("closed"), true)), "and stays so");
    }
}
