//! What an operator may take from viewers of sampled rooms, by the real binary.

use std::time::Instant;

use serde_json::{Value, json};

use crate::processes::metric;
use crate::support::{LIMIT, Server};

#[test]
fn an_operator_lowers_the_cap_of_sampled_rooms_for_a_while_and_it_is_written_down() {
    for args in [&[][..], &["--gateways", "2"]] {
        let server = Server::start(args, &[]);
        let operator = server.token("op", &["region-ops"]);
        let gateway = if args.is_empty() { "local" } else { "g1" };
        let path = format!("/admin/gateways/{gateway}/shedding");
        let ask = |body: Value| server.http().call("POST", &path, Some(&operator), Some(&body)).expect("an answer");
        for wrong in [
            json!({"cap": 1, "justification": "no end"}),
            json!({"cap": 1, "seconds": 901, "justification": "too long"}),
            json!({"seconds": 60, "justification": "no cap"}),
            json!({"cap": 1, "seconds": 60}),
        ] {
            assert_eq!(ask(wrong.clone()).status, 422, "{wrong}");
        }
        let answer = ask(json!({"cap": 1, "seconds": 60, "expected_seconds": 3_600, "justification": "final"}));
        assert_eq!(answer.status, 200, "{:?}", answer.json);
        let told = &answer.json["shedding"];
        assert_eq!((&told["order"]["cap"], &told["changed"]["justification"]), (&json!(1), &json!("final")), "{told}");
        // A gateway process says so with its next report.
        let by = |by: &str| metric(&server, &format!("grandstand_gateway_shedding{{by=\"{by}\"}}"));
        let end = Instant::now() + LIMIT;
        while (by("order"), by("expected")) != (1, 1) {
            assert!(Instant::now() < end, "the order is never counted");
        }
        assert_eq!(by("shedder"), 0);
        assert_eq!(ask(json!({"justification": "over"})).status, 200);
        while (by("order"), by("expected")) != (0, 0) {
            assert!(Instant::now() < end, "the order never ends");
        }
        let audit = std::fs::read_to_string(server.data().join("audit.jsonl")).expect("an audit");
        let lines: Vec<Value> = audit.lines().map(|l| serde_json::from_str(l).expect(l)).collect();
        let written: Vec<_> = lines.iter().map(|l| (&l["what"], &l["justification"], &l["given"]["cap"])).collect();
        let what = json!("shedding");
        assert_eq!(written, [(&what, &json!("final"), &json!(1)), (&what, &json!("over"), &Value::Null)]);
    }
}
