//! Danmaku archives: what is in them and what is not, read by a parser of XML and one of JSON.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use quick_xml::Reader;
use quick_xml::events::Event;
use serde_json::{Value, json};

use crate::support::{Answer, Server};

/// One comment of an archive: seconds, the author's hash, the row where there is one, and the text.
#[derive(Clone, PartialEq, Debug)]
struct Row {
    at: f64,
    user: String,
    row: Option<u64>,
    text: String,
}

fn of_xml(bytes: &[u8]) -> Vec<Row> {
    let mut reader = Reader::from_reader(bytes);
    let (mut rows, mut open) = (Vec::new(), None::<Row>);
    loop {
        match reader.read_event().expect("well-formed XML") {
            Event::Start(tag) if tag.name().as_ref() == b"d" => {
                let attribute = tag.attributes().map(|a| a.expect("an attribute")).find(|a| a.key.as_ref() == b"p");
                let p = attribute.expect("p").unescape_value().expect("text").into_owned();
                let p: Vec<&str> = p.split(',').collect();
                assert_eq!((p.len(), p[1], p[2], p[3], p[5]), (8, "1", "25", "16777215", "0"), "{p:?}");
                assert!(p[4].parse::<u64>().expect("a time") > 1_700_000_000, "{p:?}");
                let at = p[0].parse().expect("seconds");
                open = Some(Row { at, user: p[6].to_owned(), row: p[7].parse().ok(), text: String::new() });
            }
            Event::Text(text) => {
                if let Some(row) = &mut open {
                    row.text += &text.decode().expect("text");
                }
            }
            Event::GeneralRef(name) => {
                if let Some(row) = &mut open {
                    let name = name.decode().expect("text");
                    row.text += quick_xml::escape::resolve_predefined_entity(&name).expect("one of the five");
                }
            }
            Event::End(tag) if tag.name().as_ref() == b"d" => rows.extend(open.take()),
            Event::Eof => return rows,
            _ => {}
        }
    }
}

fn of_json(bytes: &[u8]) -> Vec<Row> {
    let whole: Value = serde_json::from_slice(bytes).expect("JSON");
    assert_eq!(whole["code"], 0);
    let row = |row: &Value| {
        assert_eq!((&row[1], &row[2], row.as_array().map(Vec::len)), (&json!(0), &json!(16_777_215), Some(5)));
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        Row { at: row[0].as_f64().expect("seconds"), user: text(&row[3]), row: None, text: text(&row[4]) }
    };
    whole["data"].as_array().expect("rows").iter().map(row).collect()
}

fn archive(server: &Server, token: &str, query: &str) -> Answer {
    server.http().call("GET", &format!("/admin/rooms/derby/archive?{query}"), Some(token), None).expect("an answer")
}

fn texts(rows: &[Row]) -> Vec<&str> {
    rows.iter().map(|row| row.text.as_str()).collect()
}

/// When the log has this event.
fn ts(export: &[Value], id: u64) -> String {
    let record = export.iter().find(|record| record["event_id"] == id).expect("it is in the log");
    record["ts"].as_str().expect("a time").to_owned()
}

fn admin(server: &Server, token: &str, path: &str, body: &Value) -> Answer {
    let answer =
        server.http().call("POST", &format!("/admin/rooms/derby{path}"), Some(token), Some(body)).expect("an answer");
    assert_eq!(answer.status, 200, "{:?}", answer.json);
    answer
}

#[test]
fn an_archive_holds_what_anybody_may_still_be_shown_and_nobodys_name() {
    let server = Server::start(&["--set", "region.header=x-where", "--set", "trusted_proxies=127.0.0.0/8"], &[]);
    let (token, chief) = (server.token("ann", &["backend"]), server.token("op", &["admin"]));
    let first = server.published("derby", &token, "k0", "kick-off & <b>go</b> \"'\n]]>");
    let say = |user: &str, key: &str, text: &str| {
        let body = json!({"client_msg_id": key, "body": text, "as": {"id": user, "name": user}});
        server.http().call("POST", "/v1/rooms/derby/comments", Some(&token), Some(&body)).expect("an answer")
    };
    let gone = server.published("derby", &token, "k1", "taken back");
    admin(&server, &chief, "/retract", &json!({"event_id": gone, "justification": "a test"}));
    admin(&server, &chief, "/bans", &json!({"user_id": "troll", "shadow": true, "justification": "a test"}));
    assert_eq!(say("troll", "t1", "under a shadow").status, 200);
    assert_eq!(say("purged", "p1", "said by somebody who is purged").status, 200);
    admin(&server, &chief, "/retract", &json!({"user_id": "purged", "justification": "a test"}));
    assert_eq!(say("zoe", "z1", "日本 👩‍👩‍👧").status, 200);
    // The log's times are whole milliseconds: what ends a range must be later than what is in it.
    let moment = || SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock past 1970").as_millis();
    let said = moment();
    while moment() <= said {
        std::hint::spin_loop();
    }
    assert_eq!(say("zoe", "z2", "again").status, 200);

    let log = server.export("derby", &token);
    let start = ts(&log, first);
    let xml = archive(&server, &token, &format!("format=bilibili&start={start}"));
    assert_eq!(xml.status, 200, "{:?}", xml.json);
    let rows = of_xml(&xml.body);
    assert_eq!(texts(&rows), ["kick-off & <b>go</b> \"'\n]]>", "日本 👩‍👩‍👧", "again"]);
    assert_eq!((rows[0].at, rows[0].row), (0.0, Some(first)));
    assert!(rows.is_sorted_by(|a, b| a.at <= b.at && a.row < b.row), "{rows:?}");
    assert!(rows[1].user == rows[2].user && rows[0].user != rows[1].user, "one author, one hash: {rows:?}");
    let raw = String::from_utf8_lossy(&xml.body);
    assert!(!raw.contains("zoe") && !raw.contains("ann"), "no name of anybody: {raw}");

    let dplayer = archive(&server, &token, &format!("format=dplayer&start={start}"));
    let told = of_json(&dplayer.body);
    // DPlayer puts texts into its page as they are.
    assert_eq!(told[0].text, "kick-off &amp; &lt;b&gt;go&lt;/b&gt; &quot;&apos;\n]]&gt;");
    let same = |row: &Row| (row.at.to_string(), row.user.clone());
    assert_eq!(told.iter().map(same).collect::<Vec<_>>(), rows.iter().map(same).collect::<Vec<_>>());

    let last = ts(&log, rows[2].row.expect("a row"));
    let part = archive(
        &server,
        &token,
        &format!("format=bilibili&start={start}&from={}&to={last}", ts(&log, rows[1].row.expect("a row"))),
    );
    assert_eq!(of_xml(&part.body), rows[1..2], "from is in it, to is not, and offsets are from the start");

    // Who was erased is nobody's any more.
    assert_eq!(say("leaving", "l1", "said by somebody who leaves").status, 200);
    let why = json!({"justification": "a request of the person"});
    let erased = server.http().call("DELETE", "/admin/users/leaving", Some(&chief), Some(&why)).expect("an answer");
    assert_eq!(erased.status, 202, "{:?}", erased.json);
    let after = archive(&server, &token, &format!("format=bilibili&start={start}"));
    assert_eq!(of_xml(&after.body), rows, "what an erased user said is in no archive");

    server.put_room("derby", &chief, json!({"blackout_regions": ["GB"]}));
    let refused = archive(&server, &token, &format!("format=bilibili&start={start}"));
    assert_eq!((refused.status, refused.json["code"].as_str()), (451, Some("blackout")), "a file knows no region");
    let seen_to = archive(&server, &token, &format!("format=bilibili&start={start}&include=blacked_out"));
    assert_eq!(of_xml(&seen_to.body), rows);

    for (who, query, status) in [
        (server.token("fan", &["publisher"]), format!("format=bilibili&start={start}"), 403),
        (server.token_in("mod", &["room-mod"], &["derby"]), format!("format=bilibili&start={start}"), 403),
        (token.clone(), format!("format=ass&start={start}"), 400),
        (token.clone(), "format=bilibili".to_owned(), 400),
        (token.clone(), "format=bilibili&start=yesterday".to_owned(), 400),
        (token.clone(), format!("format=bilibili&start={start}&from=2020-01-01T00:00:00.000Z"), 400),
        (token.clone(), format!("format=bilibili&start={start}&include=everything"), 400),
    ] {
        assert_eq!(archive(&server, &who, &query).status, status, "{query}");
    }
}

#[test]
fn an_archive_of_many_pages_is_whole_by_the_terminal_and_what_is_held_is_not_in_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let list = folder.path().join("flag.txt");
    std::fs::write(&list, "dubious\n").expect("a list");
    let server = Server::start(&[], &[("GRANDSTAND_MODERATION_FLAG_FILE", &list.display().to_string())]);
    let (token, chief) = (server.token("ann", &["backend"]), server.token("op", &["admin"]));
    server.put_room("derby", &chief, json!({"moderation_policy": "pre-moderate", "hold_flagged": true}));
    let held = server.publish("derby", &token, "h1", "a dubious word");
    assert_eq!((held.status, held.json["type"].as_str()), (202, Some("moderation_pending")), "{:?}", held.json);
    let n = 1_200;
    let mut http = server.http();
    for i in 0..n {
        let body = json!({"client_msg_id": format!("k{i}"), "body": format!("comment {i}")});
        let answer = http.call("POST", "/v1/rooms/derby/comments", Some(&token), Some(&body)).expect("an answer");
        assert_eq!(answer.status, 200, "{:?}", answer.json);
    }
    let start =
        ts(&server.export("derby", &token), server.export("derby", &token)[0]["event_id"].as_u64().expect("an id"));
    for (format, read) in [("bilibili", of_xml as fn(&[u8]) -> Vec<Row>), ("dplayer", of_json as fn(&[u8]) -> Vec<Row>)]
    {
        let file = folder.path().join(format);
        let mut command = Command::new(env!("CARGO_BIN_EXE_grandstand"));
        command.args(["admin", "archive", "derby", "--format", format, "--start", &start, "-o"]).arg(&file);
        command.env("GRANDSTAND_URL", format!("http://{}", server.addr)).env("GRANDSTAND_TOKEN", &token);
        let out = command.output().expect("it starts");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let rows = read(&std::fs::read(&file).expect("the file"));
        let wanted: Vec<String> = (0..n).map(|i| format!("comment {i}")).collect();
        assert_eq!(texts(&rows), wanted, "{format}");
    }
}
