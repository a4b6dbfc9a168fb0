//! A tenth of every scenario of `grandstand load`: that it runs, and keeps what is not a matter of time.

use serde_json::Value;

use crate::storm::{load, report};
use crate::support::Server;

/// Runs a tenth; the report, in which no promise is broken and one at least was judged.
fn tenth(name: &str) -> Value {
    let server = Server::start(&[], &[]);
    let report = report(&load(&server, &format!("http://{}", server.addr), &["--scenario", name, "--scale", "0.1"]));
    let evening = &report["evening"];
    assert_eq!((&evening["scenario"], &evening["scale"]), (&name.into(), &0.1.into()));
    let promises = evening["promises"].as_array().expect("promises");
    let of = |verdict: &str| promises.iter().filter(|p| p["verdict"] == verdict).count();
    assert_eq!(of("broken"), 0, "{evening}");
    assert!(of("kept") > 0, "{evening}");
    report
}

#[test]
fn a_quiet_evening_gives_everything_to_everyone_on_every_transport() {
    let report = tenth("quiet");
    assert_eq!((&report["comments_given"], &report["skipped"]), (&report["comments_due"], &0.into()));
    for by in ["ws", "sse", "poll"] {
        assert!(report["comments_by"][by]["n"].as_u64().is_some_and(|n| n > 0), "{by}");
    }
}

#[test]
fn a_match_night_has_its_goal() {
    let report = tenth("match-night");
    assert!(report["acked"].as_u64().is_some_and(|n| n > 100), "the crowd spoke: {}", report["acked"]);
}

#[test]
fn a_busy_room_that_is_not_sampled_gives_nearly_all_to_everyone() {
    tenth("busy-room");
}

#[test]
fn a_raid_is_let_in_and_misses_nothing_from_its_greeting_on() {
    let report = tenth("raid");
    assert_eq!((&report["late"], &report["entered"]["n"]), (&400.into(), &400.into()));
}

#[test]
fn a_long_tail_of_rooms_is_served_and_costs_little_where_nobody_is() {
    let report = tenth("long-tail");
    assert_eq!((&report["rooms"], &report["viewers"]), (&5_000.into(), &1_500.into()));
}

#[test]
fn likes_are_all_taken_and_their_totals_end_where_they_should() {
    let report = tenth("likes");
    assert!(report["likes"]["given"].as_u64().is_some_and(|n| n > 0) && report["likes"]["refused"] == 0);
}

#[test]
fn a_barrage_is_sampled_alike_for_everyone_and_no_gift_or_score_is_missing() {
    let report = tenth("barrage");
    assert_eq!(report["told_sampled"], report["viewers"]);
}

#[test]
fn a_room_at_the_brim_shows_what_was_said_now_and_tells_the_part_it_gives() {
    let report = tenth("brim");
    assert_eq!(report["told_sampled"], report["viewers"]);
    let told = &report["keep_told"];
    assert!(told["seconds"].as_u64().is_some_and(|n| n >= 2), "{told}");
    // Each second's figure beside what viewers were given in the ten seconds before, of what was acked in them: a share of two counts,
    // which a slow machine changes alike. A figure that is not counted is off by far more; this one by a hundredth.
    assert!(told["worst"].as_f64().is_some_and(|worst| worst < 0.1), "{told}");
}

#[test]
fn banners_reach_every_open_stream_of_the_site() {
    let report = tenth("banner-storm");
    assert!(report["banners_due"].as_u64().is_some_and(|n| n > 0));
}

#[test]
fn scores_of_many_matches_reach_every_viewer() {
    let report = tenth("scores");
    assert!(report["scores_due"].as_u64().is_some_and(|n| n > 0));
}

#[test]
fn an_unknown_scenario_is_told_the_known_ones() {
    let server = Server::start(&[], &[]);
    let out = load(&server, &format!("http://{}", server.addr), &["--scenario", "carnival"]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && out.stdout.is_empty());
    assert!(said.contains("no scenario is called carnival; there are quiet, match-night, barrage"), "{said}");
}
