//! `/metrics` of the real binary: that it can be read, that it counts what happened, and that what is named in `deploy/` is there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::Server;
use crate::viewer::{RUNGS, Rung, Viewer};

#[derive(Default, Debug)]
struct Family {
    help: String,
    kind: String,
    unit: String,
    /// Labels as written, with the metric's own name before them, and values.
    samples: Vec<(String, BTreeMap<String, String>, f64)>,
}

/// Reads an exposition as strictly as the format is written down; families in order of their names.
fn read(text: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    let mut seen = BTreeSet::new();
    assert!(text.ends_with('\n'), "the last line has an end");
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (what, name, rest) = (words.next().unwrap(), words.next().expect(line), words.next().expect(line));
            let family = families.entry(name.to_owned()).or_default();
            let place = match what {
                "HELP" => {
                    name.clone_into(&mut current);
                    &mut family.help
                }
                "TYPE" => &mut family.kind,
                "UNIT" => &mut family.unit,
                _ => panic!("{line}"),
            };
            assert!(place.is_empty() && !rest.trim().is_empty() && family.samples.is_empty(), "{line}");
            assert_eq!(name, current, "the lines of a family stand together: {line}");
            rest.clone_into(place);
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect(line);
        assert!(seen.insert(series.to_owned()), "a series twice: {line}");
        let (name, labels) = match series.split_once('{') {
            Some((name, labels)) => (name, labels.strip_suffix('}').expect(line)),
            None => (series, ""),
        };
        let mut named = BTreeMap::new();
        for label in labels.split(',').filter(|l| !l.is_empty()) {
            let (key, text) = label.split_once('=').expect(line);
            let text = text.strip_prefix('"').and_then(|t| t.strip_suffix('"')).expect(line);
            assert!(!text.contains(['"', '\\']) && named.insert(key.to_owned(), text.to_owned()).is_none(), "{line}");
        }
        let family = families.get_mut(&current).expect("samples follow their family's lines");
        let suffix = name.strip_prefix(current.as_str()).unwrap_or_else(|| panic!("not of {current}: {line}"));
        let allowed: &[&str] = if family.kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        assert!(allowed.contains(&suffix), "{line}");
        family.samples.push((name.to_owned(), named, value.parse().expect(line)));
    }
    families
}

fn metrics(server: &Server) -> (String, BTreeMap<String, Family>) {
    let answer = server.http().call("GET", "/metrics", None, None).expect("an answer");
    assert_eq!(answer.status, 200);
    let text = String::from_utf8(answer.body).expect("text");
    let families = read(&text);
    (text, families)
}

/// The sum of a metric's series that carry these labels.
fn value(families: &BTreeMap<String, Family>, name: &str, labels: &[(&str, &str)]) -> f64 {
    let samples = families.values().flat_map(|f| &f.samples).filter(|(sample, ..)| sample == name);
    let fits = |named: &BTreeMap<String, String>| labels.iter().all(|(k, v)| named.get(*k).is_some_and(|n| n == v));
    let values: Vec<f64> = samples.filter(|(_, named, _)| fits(named)).map(|(.., value)| *value).collect();
    assert!(!values.is_empty(), "there is no {name} {labels:?}");
    values.iter().sum()
}

#[test]
fn every_metric_says_what_it_is_and_in_which_unit() {
    let server = Server::start(&["--set", "admission.rate=1000"], &[]);
    let (text, families) = metrics(&server);
    for (name, family) in &families {
        assert!(name.starts_with("grandstand_") || name.starts_with("process_"), "{name}");
        assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'), "{name}");
        assert!(!family.help.is_empty() && !family.unit.is_empty() && !family.samples.is_empty(), "{name}: {family:?}");
        let base = match family.kind.as_str() {
            "counter" => name.strip_suffix("_total").unwrap_or_else(|| panic!("{name} is a counter")),
            "gauge" | "histogram" => name,
            kind => panic!("{name} is a {kind}"),
        };
        assert!(family.kind == "counter" || !name.ends_with("_total"), "{name}");
        // What has a dimension has it in its name, in base units; all else is counted.
        let measured = ["seconds", "bytes", "info"].into_iter().find(|unit| *unit == family.unit);
        assert_eq!(
            measured,
            ["seconds", "bytes", "info"].into_iter().find(|u| base.ends_with(&format!("_{u}"))),
            "{name}"
        );
        if family.kind == "histogram" {
            is_a_histogram(name, family);
        }
    }
    assert!(text.lines().count() < 1_000, "a page that grows without a bound: {} lines", text.lines().count());
}

/// Each set of labels has rising bounds up to +Inf, numbers that never fall, and as many as it counts.
fn is_a_histogram(name: &str, family: &Family) {
    let mut bounds: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for (sample, labels, value) in &family.samples {
        let mut others = labels.clone();
        let le = others.remove("le");
        let bucket = bounds.entry(format!("{others:?}")).or_default();
        if sample.ends_with("_bucket") {
            bucket.push((le.expect("a bucket has a bound").parse().expect("a bound is a number"), *value));
        } else if sample.ends_with("_count") {
            assert_eq!(bucket.last(), Some(&(f64::INFINITY, *value)), "{name} {others:?}");
        }
    }
    for (labels, bucket) in bounds {
        assert!(bucket.len() > 10, "{name} {labels}");
        assert!(bucket.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{name} {labels}: {bucket:?}");
    }
}

#[test]
fn what_happened_is_counted_where_it_happened() {
    let server = Server::start(&[], &[]);
    let ann = server.token("ann", &["publisher"]);
    let mut viewers: Vec<Viewer> =
        RUNGS.iter().map(|rung| Viewer::open(&server, *rung, "counted", None, None).expect("a stream")).collect();
    for viewer in &mut viewers {
        assert_eq!(viewer.next().expect("hello")["type"], "hello");
    }
    let first = server.published("counted", &ann, "1", "one");
    let last = server.published("counted", &ann, "2", "two");
    for viewer in &mut viewers {
        viewer.until_id(last);
    }
    // From the log, because a process that starts has no ring.
    let mut server = server;
    let (_, before) = metrics(&server);
    let get = |name: &str, labels: &[(&str, &str)]| value(&before, &format!("grandstand_gateway_{name}"), labels);
    assert_eq!((get("streams", &[("transport", "websocket")]), get("streams", &[("transport", "sse")])), (1.0, 1.0));
    assert!(get("streams_requested_total", &[]) >= 3.0);
    assert_eq!(get("streams_refused_total", &[]), 0.0);
    assert_eq!(get("delivered_total", &[("lane", "comment"), ("hop", "walk")]), 4.0, "two comments to two streams");
    assert_eq!(get("delivered_total", &[("lane", "comment"), ("hop", "poll")]), 2.0);
    assert_eq!(get("delivered_total", &[("lane", "priority")]), 0.0);
    assert!(
        get("frames_total", &[("transport", "sse")]) >= 1.0
            && get("frame_bytes_total", &[("transport", "poll")]) > 100.0
    );
    // One observation for each event and worker that has viewers of the room, whatever their number.
    let seen = get("delivery_seconds_count", &[("lane", "comment"), ("room", "1k")]);
    assert!((2.0..=6.0).contains(&seen), "{seen}");
    assert_eq!(get("delivery_seconds_count", &[("lane", "comment")]), seen, "a room of three is a small one");
    assert!(get("walk_seconds_count", &[("room", "1k")]) >= 2.0 && get("loop_seconds_count", &[]) > 2.0);
    assert_eq!(get("priority_lost_total", &[]), 0.0);

    drop(viewers);
    server.stop();
    server.restart();
    let mut again =
        Viewer::open(&server, Rung::WebSocket, "counted", Some(&first.to_string()), None).expect("a stream");
    again.until_id(last);
    let mut http = server.http();
    for path in ["/v1/rooms/NOT-A-ROOM/sse", "/v1/rooms/counted/poll?since=x"] {
        assert_eq!(http.call("GET", path, None, None).expect("an answer").status, 400, "{path}");
    }
    let (_, after) = metrics(&server);
    let get = |name: &str, labels: &[(&str, &str)]| value(&after, &format!("grandstand_gateway_{name}"), labels);
    assert_eq!(get("resumes_total", &[("answer", "shared")]), 1.0, "the ring was filled back for it");
    assert_eq!(get("delivered_total", &[("lane", "comment"), ("hop", "walk")]), 1.0);
    assert_eq!(value(&after, "grandstand_log_reads_total", &[("purpose", "past")]), 1.0);
    assert_eq!(get("streams_refused_total", &[("reason", "bad_room")]), 1.0);
    assert_eq!(get("streams_refused_total", &[]), 2.0);
    assert_eq!(get("streams_requested_total", &[]), 3.0);
}

#[test]
fn likes_are_timed_in_their_own_lane_and_size() {
    let server = Server::start(&[], &[]);
    let ann = server.token("ann", &["publisher"]);
    let mut viewer = Viewer::open(&server, Rung::WebSocket, "liked", None, Some(&ann)).expect("a stream");
    assert_eq!(viewer.next().expect("hello")["type"], "hello");
    viewer.say(&json!({"op": "like", "room_id": "liked", "n": 3})).expect("sent");
    viewer.until(|e| e["type"] == "counters" && e["likes"]["like"] == 3);
    // The value is on the wire before the walk is noted.
    let until = Instant::now() + Duration::from_secs(5);
    loop {
        let (_, families) = metrics(&server);
        let count = |labels: &[(&str, &str)]| value(&families, "grandstand_gateway_delivery_seconds_count", labels);
        if count(&[("lane", "latest"), ("room", "1k")]) >= 1.0 {
            assert_eq!(count(&[("lane", "comment")]) + count(&[("lane", "priority")]), 0.0);
            break;
        }
        assert!(Instant::now() < until, "the likes were not timed");
        std::thread::yield_now();
    }
}

#[test]
fn an_attempt_is_counted_as_its_client_tells_it() {
    let server = Server::start(&[], &[]);
    let mut http = server.http();
    for (query, times) in [
        ("attempt=1", 2),
        ("attempt=2&failure=timeout", 1),
        ("attempt=900&failure=%3Cb%3E", 1),
        ("attempt=x", 1),
        ("", 1),
    ] {
        for _ in 0..times {
            let answer = http.call("GET", &format!("/v1/rooms/tried/poll?tab=t&{query}"), None, None);
            assert_eq!(answer.expect("an answer").status, 200, "{query}");
        }
    }
    let (_, families) = metrics(&server);
    let get = |labels: &[(&str, &str)]| value(&families, "grandstand_gateway_client_attempts_total", labels);
    assert_eq!(get(&[("transport", "poll"), ("attempt", "1"), ("failure", "none")]), 2.0);
    assert_eq!(get(&[("transport", "poll"), ("attempt", "2"), ("failure", "timeout")]), 1.0);
    assert_eq!(get(&[("transport", "poll"), ("attempt", "more"), ("failure", "other")]), 1.0);
    assert_eq!(get(&[]), 4.0, "who does not count is not counted");
}

#[test]
fn a_score_is_counted_in_its_own_lane() {
    let server = Server::start(&[], &[]);
    let ops = server.token("ops", &["region-ops"]);
    let mut viewer = Viewer::open(&server, Rung::WebSocket, "lanes", None, None).expect("a stream");
    assert_eq!(viewer.next().expect("hello")["type"], "hello");
    server.put_room("lanes", &ops, json!({"slow_mode_seconds": 7}));
    viewer.until(|e| e["type"] == "config");
    // The event is on the wire before the walk is noted.
    let until = Instant::now() + Duration::from_secs(5);
    loop {
        let (_, families) = metrics(&server);
        let get = |name: &str| value(&families, &format!("grandstand_gateway_{name}"), &[("lane", "priority")]);
        if (get("delivered_total"), get("delivery_seconds_count")) == (1.0, 1.0) {
            break;
        }
        assert!(Instant::now() < until, "{} {}", get("delivered_total"), get("delivery_seconds_count"));
        std::thread::yield_now();
    }
}

fn deploy(file: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Every metric named in a text, with the labels it is asked for by `=`.
fn named(text: &str) -> BTreeSet<(String, Vec<(String, String)>)> {
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == ':';
    let mut found = BTreeSet::new();
    for prefix in ["grandstand_", "process_"] {
        for (at, _) in text.match_indices(prefix) {
            if text[..at].chars().next_back().is_some_and(is_name) {
                continue;
            }
            let rest = &text[at..];
            let name = &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())];
            let labels = rest[name.len()..].strip_prefix('{').and_then(|r| r.split_once('}')).map_or("", |(l, _)| l);
            let labels = labels.split(',').filter_map(|l| l.split_once('=')).filter(|(_, v)| v.starts_with('"'));
            let own = |(key, _): &(&str, &str)| !matches!(*key, "job" | "instance");
            let labels = labels.filter(own).map(|(k, v)| (k.to_owned(), v.trim_matches('"').to_owned())).collect();
            found.insert((name.to_owned(), labels));
        }
    }
    found
}

#[test]
fn every_metric_of_the_dashboard_and_of_the_alerts_exists() {
    let server = Server::start(&["--set", "admission.rate=1000"], &[]);
    let (_, mut families) = metrics(&server);
    // What only a server of several processes has.
    let several = Server::start(&["--set", "admission.rate=1000", "--gateways", "2"], &[]);
    families.extend(metrics(&several).1);
    let dashboard: serde_json::Value = serde_json::from_str(&deploy("grafana/grandstand.json")).expect("JSON");
    let mut queries = vec![dashboard["templating"]["list"][1]["query"]["query"].as_str().expect("a query").to_owned()];
    for panel in dashboard["panels"].as_array().expect("panels") {
        for target in panel["targets"].as_array().expect("targets") {
            queries.push(target["expr"].as_str().expect("an expression").to_owned());
        }
    }
    let alerts = deploy("prometheus/alerts.yml");
    let rules = alerts.lines().filter(|l| !l.trim_start().starts_with('#')).collect::<Vec<_>>().join("\n");
    for (file, text) in [("dashboard", queries.join("\n")), ("alerts", rules.clone())] {
        let found = named(&text);
        assert!(found.len() > 10, "{file}: {found:?}");
        for (name, labels) in found {
            let labels: Vec<(&str, &str)> = labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            value(&families, &name, &labels);
        }
    }
    for recorded in queries.iter().flat_map(|q| q.split_whitespace()).filter(|q| q.starts_with("grandstand:")) {
        assert!(rules.contains(&format!("record: {recorded}\n")), "{recorded} is not recorded");
    }
    // What the dashboard does not show, nobody sees.
    let shown = queries.join("\n");
    for name in families.keys() {
        assert!(shown.contains(name.as_str()), "{name} is not on the dashboard");
    }
}

#[test]
fn every_alert_has_its_paragraph_and_no_other_has() {
    let rules = deploy("prometheus/alerts.yml");
    let page = deploy("../docs/operate/alerts.md");
    let alerts: BTreeSet<&str> = rules.lines().filter_map(|l| l.trim_start().strip_prefix("- alert: ")).collect();
    let paragraphs: BTreeSet<&str> = page.lines().filter_map(|l| l.strip_prefix("### ")).collect();
    assert_eq!(alerts, paragraphs);
    for alert in alerts {
        assert!(rules.contains(&format!("alerts.md#{}\n", alert.to_lowercase())), "{alert} names its paragraph");
    }
}

#[test]
fn limits_of_the_kernel_that_are_too_low_are_named_at_start() {
    let server = Server::start(&["--set", "limits.connections_max=4000000000"], &[]);
    let said = server.stderr();
    assert!(said.contains("warning: LimitNOFILE is ") && said.contains("4000000512 are needed"), "{said}");
    // 522 are needed: the soft limit is raised to the hard one first.
    let mut content = Server::unstarted(&["--set", "limits.connections_max=10"], &[]);
    content.restart_under(&["prlimit", "--nofile=100:2000"]);
    assert!(!content.stderr().contains("LimitNOFILE is"), "{}", content.stderr());
}

#[test]
fn limits_of_several_processes_are_held_against_the_share_of_each_after_they_were_raised() {
    // Two gateway processes with 1 000 streams each need 1 512 descriptors; the soft limit of 1 024 is raised to the hard one first.
    let words = ["--gateways", "2", "--set", "limits.connections_max=2000"];
    let mut server = Server::unstarted(&words, &[]);
    server.restart_under(&["prlimit", "--nofile=1024:1600"]);
    assert!(!server.stderr().contains("LimitNOFILE is"), "{}", server.stderr());
    server.stop();
    server.restart_under(&["prlimit", "--nofile=1024:1511"]);
    let said = server.stderr();
    assert!(said.contains("warning: LimitNOFILE is 1511, 1512 are needed: "), "{said}");
    assert_eq!(said.matches("LimitNOFILE is").count(), 1, "once for all processes: {said}");
}
