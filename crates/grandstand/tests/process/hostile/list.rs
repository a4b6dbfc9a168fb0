//! Every attack of the threat model by its number, and where it is tried. None can be forgotten in silence: the numbers have
//! no hole, a test that is named exists, and what is not tried says why.

use std::collections::BTreeSet;
use std::path::Path;

use super::rows::rows;

enum Place {
    /// Rows of the table.
    Table,
    /// A test elsewhere: file and name.
    Test(&'static str, &'static str),
    /// Nothing here could be attacked so.
    Absent(&'static str),
}
use Place::{Absent, Table, Test};

const SOCKET: &str = "crates/wire/src/ws.rs";
const HEAD: &str = "crates/wire/src/http.rs";
const GATEWAY: &str = "crates/server/src/gateway/tests.rs";
const DOORS: &str = "crates/server/src/gateway/tests/admission.rs";
const TOKEN: &str = "crates/server/src/auth/token.rs";
const CONTROL: &str = "crates/server/tests/control.rs";
const SIGNATURE: &str = "crates/server/src/control/signature.rs";
const SCORES: &str = "crates/server/src/control/scores.rs";
const TLS: &str = "crates/grandstand/tests/process/tls.rs";
const HERE: &str = "crates/grandstand/tests/process/hostile.rs";
const HTTP2: &str = "crates/grandstand/tests/process/http2.rs";
const KEYS: &str = "crates/server/src/auth/keys.rs";
const KEY_SET: &str = "crates/server/src/auth/key_set.rs";
const FETCH: &str = "crates/server/src/auth/fetch.rs";
const ACCESS: &str = "crates/grandstand/tests/process/access.rs";
const CERTIFICATES: &str = "crates/grandstand/tests/process/certificates.rs";
const ASKER: &str = "crates/server/src/shard/asker.rs";
const POST: &str = "crates/server/src/control/webhooks/post.rs";
const WEBHOOKS: &str = "crates/grandstand/tests/process/webhooks.rs";
const BANS: &str = "crates/grandstand/tests/process/bans.rs";
const MODERATED: &str = "crates/grandstand/tests/process/moderated.rs";
const WORDS: &str = "crates/classifier/src/lib.rs";
const REPORTS: &str = "crates/core/src/reports.rs";
const TEXT: &str = "crates/core/src/text.rs";

fn list() -> Vec<(u8, &'static str, Vec<Place>)> {
    vec![
        (1, "socket opened by a foreign page", vec![Table]),
        (
            2,
            "origins that are nearly ours",
            vec![Table, Test("crates/server/src/auth/door.rs", "only_the_own_host_and_listed_origins_enter")],
        ),
        (3, "token in an address", vec![Table]),
        (
            4,
            "token echoed as a subprotocol",
            vec![Table, Test(GATEWAY, "a04_the_subprotocol_carries_a_token_and_only_the_name_comes_back")],
        ),
        (5, "masks", vec![Table, Test(SOCKET, "a05_an_unmasked_frame_is_refused_and_a_zero_key_is_fine")]),
        (6, "reserved bits and opcodes", vec![Table, Test(SOCKET, "a06_reserved_bits_and_opcodes_are_refused")]),
        (7, "lengths", vec![Table, Test(SOCKET, "a07_lengths_are_minimal_and_never_allocated_for")]),
        (8, "fragments without end", vec![Table, Test(SOCKET, "a08_a_message_that_trickles_is_ended")]),
        (9, "frames inside a message", vec![Table, Test(SOCKET, "a09_data_may_not_interleave_but_control_frames_may")]),
        (10, "long and cut control frames", vec![Table, Test(SOCKET, "a10_control_frames_are_short_and_whole")]),
        (
            11,
            "floods of control frames",
            vec![Table, Test(GATEWAY, "a11_a_flood_of_pings_or_pongs_closes_its_connection")],
        ),
        (12, "closes", vec![Table, Test(SOCKET, "a12_close_frames_carry_a_legal_code_and_reason")]),
        (
            13,
            "compressed bombs",
            vec![
                Table,
                Test(
                    "crates/server/src/gateway/tests/deflate.rs",
                    "a13_compressed_frames_have_the_limits_of_others_and_are_refused_where_not_agreed_on",
                ),
                Test("crates/wire/src/deflate.rs", "a13_a_bomb_is_ended_at_the_limit"),
            ],
        ),
        (
            14,
            "negotiation of compression",
            vec![
                Table,
                Test("crates/wire/src/deflate.rs", "an_offer_with_a_parameter_that_breaks_its_rule_is_passed_over"),
            ],
        ),
        (15, "text that is not UTF-8", vec![Table, Test(SOCKET, "a15_text_must_be_utf8_wherever_it_is_cut")]),
        (
            16,
            "slow callers",
            vec![
                Table,
                Test(HERE, "a16_five_thousand_that_drip_a_head_are_gone_in_time_and_nobody_else_notices"),
                Test(TLS, "a_handshake_that_takes_longer_than_five_seconds_is_closed"),
            ],
        ),
        (17, "large heads", vec![Table, Test(HEAD, "a17_large_heads_are_refused_before_they_are_kept")]),
        (
            18,
            "smuggling by an upgrade",
            vec![Table, Test(GATEWAY, "a18_a34_what_could_be_two_requests_is_answered_once_and_closed")],
        ),
        (
            19,
            "upgrade over HTTP/2",
            vec![Table, Test(HTTP2, "a19_a31_requests_that_http1_could_not_say_are_refused_one_by_one")],
        ),
        (20, "fields of an upgrade", vec![Table, Test(HEAD, "a20_an_upgrade_has_exactly_its_fields")]),
        (21, "before and after hello", vec![Table]),
        (
            22,
            "floods of operations",
            vec![Table, Test(HERE, "a22_a_flood_of_operations_closes_its_connection_and_no_other")],
        ),
        (23, "JSON bombs", vec![Table, Test("crates/wire/src/json.rs", "nesting_stops_at_sixteen")]),
        (
            24,
            "a socket that never reads",
            vec![
                Table,
                Test(GATEWAY, "a_viewer_that_does_not_read_is_told_what_it_missed_and_loses_no_score"),
                Test(TLS, "who_does_not_read_over_tls_is_told_what_it_missed_and_misses_nothing_else"),
            ],
        ),
        (
            25,
            "half closes and resets",
            vec![Table, Test(GATEWAY, "a25_a_half_closed_caller_is_given_its_whole_answer")],
        ),
        (
            26,
            "all connections taken",
            vec![
                Test(HERE, "a26_without_descriptors_those_inside_are_served_and_everyone_outside_is_told"),
                Test(GATEWAY, "a26_a_users_streams_are_counted_over_transports_and_given_back"),
                Test(DOORS, "a26_a_stream_beyond_the_rate_is_refused_readably_on_every_rung"),
            ],
        ),
        (27, "line ends in a cursor or a room", vec![Table]),
        (
            28,
            "forged fields of an event stream",
            vec![Table, Test("crates/wire/src/sse.rs", "an_event_name_with_a_line_end_is_a_bug")],
        ),
        (29, "HTTP/2 streams reset in haste", vec![Test(HTTP2, "a29_to_a32_floods_end_their_connection_and_no_other")]),
        (
            30,
            "HTTP/2 resets that we are made to send",
            vec![Test(HTTP2, "a29_to_a32_floods_end_their_connection_and_no_other")],
        ),
        (
            31,
            "HTTP/2 heads without end",
            vec![Test(HTTP2, "a19_a31_requests_that_http1_could_not_say_are_refused_one_by_one")],
        ),
        (32, "HTTP/2 floods of small frames", vec![Test(HTTP2, "a29_to_a32_floods_end_their_connection_and_no_other")]),
        (
            33,
            "a thousand streams of one HTTP/2 connection",
            vec![Test(HTTP2, "a33_streams_of_one_connection_count_as_sockets")],
        ),
        (34, "smuggling by lengths", vec![Table, Test(HEAD, "a34_what_two_parsers_could_read_differently_is_refused")]),
        (35, "cursors and times of a poll", vec![Table, Test(GATEWAY, "a_newer_poll_of_a_tab_ends_the_older_one")]),
        (36, "paths that deceive a cache", vec![Table]),
        (
            37,
            "answers for any origin",
            vec![Table, Test(CONTROL, "listed_origins_are_answered_by_name_and_may_ask_first")],
        ),
        (38, "methods", vec![Table, Test(HEAD, "a38_methods_are_a_closed_list")]),
        (39, "compressed request bodies", vec![Table]),
        (
            40,
            "algorithms chosen by a token",
            vec![
                Table,
                Test(TOKEN, "algorithms_cannot_be_chosen_by_the_token"),
                Test(TOKEN, "a_public_key_is_never_taken_as_an_hmac_secret"),
                Test(KEYS, "a40_signatures_hold_exactly_where_wycheproof_says_so"),
            ],
        ),
        (
            41,
            "key names that are no names",
            vec![
                Test(TOKEN, "a_kid_is_looked_up_exactly"),
                Test(TOKEN, "a_key_set_file_is_read_again_for_an_unknown_kid_but_not_for_each"),
                Test(KEY_SET, "a41_an_unknown_key_asks_for_one_fetch_in_30_seconds"),
            ],
        ),
        (42, "tokens that bring a key", vec![Table, Test(TOKEN, "headers_that_bring_their_own_key_are_refused")]),
        (43, "key addresses from a token", vec![Test(FETCH, "a60_an_address_that_could_lead_elsewhere_is_refused")]),
        (44, "times of the wrong type", vec![Table, Test(TOKEN, "times_are_required_and_typed")]),
        (45, "large and bent tokens", vec![Table, Test(TOKEN, "anything_but_a_small_strict_compact_jws_is_refused")]),
        (
            46,
            "a token for another audience",
            vec![Table, Test(TOKEN, "audience_and_issuer_must_be_the_configured_ones")],
        ),
        (
            47,
            "a key server that misbehaves",
            vec![
                Test(FETCH, "a47_only_a_whole_short_document_is_taken_and_no_redirect_is_followed"),
                Test(KEY_SET, "a47_old_and_new_keys_hold_while_both_are_published_and_a_withdrawn_one_does_not"),
                Test(KEY_SET, "a47_the_last_set_holds_for_a_day_over_a_restart_and_no_longer"),
            ],
        ),
        (
            48,
            "timing of a signature's compare",
            vec![Absent(
                "HMAC is verified by aws-lc's constant-time verify; a statistic on a shared machine proves nothing",
            )],
        ),
        (49, "a body sent again", vec![Test(SIGNATURE, "it_is_good_for_300_seconds_on_either_side")]),
        (
            50,
            "two spellings of one payload",
            vec![Test(SCORES, "spelling_does_not_make_another_payload_but_content_does")],
        ),
        (
            51,
            "another provider's certificate",
            vec![
                Test(CERTIFICATES, "a51_a_provider_is_its_signature_and_its_certificate_together"),
                Test("crates/server/src/auth/certificate.rs", "a51_a_holder_is_named_whole_and_never_by_a_wildcard"),
            ],
        ),
        (
            52,
            "weak provider keys, and retired ones",
            vec![
                Test("crates/server/src/config.rs", "everything_that_is_wrong_is_told_at_once"),
                Test(
                    "crates/grandstand/tests/process/provider_keys.rs",
                    "a52_a_provider_changes_over_without_a_gap_and_its_old_key_is_refused_at_once_and_after_a_kill",
                ),
            ],
        ),
        (
            53,
            "a provider in a loop",
            vec![
                Test(CONTROL, "a_provider_in_a_loop_is_slowed_at_the_door"),
                Test("crates/core/tests/revisions.rs", "fields_out_of_bounds_are_named"),
            ],
        ),
        (54, "markup in a score", vec![Test(SCORES, "everything_is_typed_closed_and_bounded")]),
        (
            55,
            "ways round an operator's route",
            vec![
                Table,
                Test(CONTROL, "a_moderator_of_one_room_changes_what_moderators_may_there_and_nothing_elsewhere"),
            ],
        ),
        (
            56,
            "an operator's browser used by another page",
            vec![Test(CONTROL, "foreign_pages_foreign_hosts_and_tokens_in_addresses_are_refused")],
        ),
        (
            57,
            "writes without a reason",
            vec![
                Test(CONTROL, "a_change_of_a_gateway_needs_its_role_a_reason_and_a_sane_number"),
                Test(ACCESS, "a57_a_declared_outage_lets_late_tokens_watch_and_ends_when_it_is_said_to"),
            ],
        ),
        (
            58,
            "metrics on the public listener",
            vec![
                Test(CONTROL, "the_internal_address_serves_health_and_metrics_and_nothing_else"),
                Test(CERTIFICATES, "a58_the_internal_port_speaks_to_those_it_names_alone"),
            ],
        ),
        (59, "one tenant reading another", vec![Absent("a server has one tenant")]),
        (
            60,
            "calls to addresses of a client's choice",
            vec![
                Test(FETCH, "a60_an_address_that_could_lead_elsewhere_is_refused"),
                Test(ASKER, "a60_a_classifier_is_asked_at_the_address_its_name_leads_to_only_where_one_may_be"),
                Test(POST, "a61_an_url_that_leads_inwards_is_refused_before_it_is_dialled"),
                Test(POST, "a61_a_name_that_leads_inwards_is_not_dialled"),
            ],
        ),
        (
            61,
            "slow receivers of calls",
            vec![
                Test(ASKER, "a61_a_huge_or_endless_answer_is_no_verdict_and_a_redirect_is_not_followed"),
                Test(POST, "a61_a_redirect_is_a_failure_and_of_an_answer_only_its_status_counts"),
                Test(
                    WEBHOOKS,
                    "a_receiver_that_refuses_hangs_and_comes_back_was_told_everything_though_the_server_was_killed",
                ),
                Test(MODERATED, "without_a_classifier_s_word_a_strict_room_shows_nothing_and_says_come_back"),
                Test(
                    MODERATED,
                    "without_a_word_in_time_the_default_policy_shows_it_flagged_and_takes_it_back_on_a_later_block",
                ),
            ],
        ),
        (
            62,
            "signatures of calls",
            vec![
                Test(POST, "a_signature_is_that_of_the_standards_own_example"),
                Test(WEBHOOKS, "what_happens_is_told_in_order_and_signed_and_no_comment_is"),
            ],
        ),
        (
            63,
            "scripts in a page",
            vec![
                Test(CONTROL, "pages_come_with_a_policy_that_runs_nothing_else"),
                Test("crates/server/src/control/pages.rs", "pages_use_embedded_files_only_and_no_inline_script"),
            ],
        ),
        (
            64,
            "characters that turn or hide a text",
            vec![Table, Test(TEXT, "text_is_normalised_and_loses_its_bidi_controls")],
        ),
        (65, "stacked marks", vec![Test(TEXT, "ten_marks_may_stack_and_eleven_may_not")]),
        (66, "names that look like another's", vec![Table]),
        (67, "controls and surrogates", vec![Table, Test(TEXT, "the_limits_are_told_with_their_counts")]),
        (68, "line ends and escapes in the log", vec![Table]),
        (
            69,
            "labels without end",
            vec![Test("crates/grandstand/tests/process/metrics.rs", "every_metric_says_what_it_is_and_in_which_unit")],
        ),
        (
            70,
            "room names that are none",
            vec![Table, Test("crates/core/src/names.rs", "room_ids_are_a_closed_alphabet")],
        ),
        (
            71,
            "words hidden from a filter",
            vec![
                Test(WORDS, "an_entry_is_found_through_every_disguise"),
                Test("crates/classifier/src/fold.rs", "width_accents_look_alikes_and_what_shows_nothing_are_folded"),
                Test(MODERATED, "a_blocked_comment_is_refused_on_each_road_and_shown_to_nobody"),
            ],
        ),
        (
            72,
            "addresses that a client makes up",
            vec![
                Table,
                Test(DOORS, "a72_a_proxy_header_of_anyone_else_is_a_malformed_request"),
                Test("crates/wire/src/proxy.rs", "a72_hostile_fronts_are_refused_at_their_first_wrong_byte"),
                Test(
                    "crates/grandstand/tests/process/blackout.rs",
                    "a72_an_edge_is_believed_about_regions_and_a_client_is_not",
                ),
            ],
        ),
        (
            73,
            "one caller with many addresses",
            vec![Test("crates/server/src/gateway/streams.rs", "a73_one_slash_64_is_one_address")],
        ),
        (
            74,
            "slow mode by many sockets",
            vec![Test("crates/core/tests/owner.rs", "every_promise_holds_in_any_interleaving")],
        ),
        (
            75,
            "ways round a ban",
            vec![
                Test(CONTROL, "a_banned_user_is_told_so_until_the_ban_is_lifted"),
                Test(BANS, "a_banned_users_open_streams_are_told_and_a_ban_of_the_site_closes_them"),
                Test(BANS, "what_a_shadow_banned_user_says_is_seen_by_itself_and_moderators_on_every_rung"),
                Test(ACCESS, "a75_a_revoked_user_is_sent_away_from_every_stream_and_does_not_come_back"),
            ],
        ),
        (
            76,
            "another's key of a comment",
            vec![Test(CONTROL, "a_backend_publishes_as_its_users_and_the_key_is_theirs")],
        ),
        (
            77,
            "likes without end",
            vec![
                Test("crates/core/tests/likes.rs", "a_user_by_many_gateways_gives_no_more_than_the_rate_and_its_slack"),
                Test("crates/core/tests/wide.rs", "replies_and_reactions_lift_what_waits_once_a_user"),
            ],
        ),
        (
            78,
            "reports without end",
            vec![
                Test(REPORTS, "a_user_counts_once_for_an_event_and_once_for_another"),
                Test(REPORTS, "everything_of_it_is_bounded"),
                Test(CONTROL, "a_report_counts_once_a_user_and_says_nothing_of_what_is_there"),
            ],
        ),
        (79, "raids", vec![Absent("raid mode is not built")]),
        (80, "games with the sampler", vec![Test("crates/core/tests/sampler.rs", "saying_more_is_no_better_chance")]),
        (
            81,
            "numbers at their borders",
            vec![Table, Test("crates/core/src/ids.rs", "cursors_are_plain_decimals_below_two_to_the_53")],
        ),
        (82, "rooms without end", vec![Test(GATEWAY, "a82_asking_for_rooms_that_are_not_there_leaves_nothing_behind")]),
        (
            83,
            "keys kept without end",
            vec![Test("crates/core/src/dedupe.rs", "the_oldest_key_goes_when_the_window_is_full")],
        ),
        (84, "bans kept without end", vec![Test("crates/core/tests/door.rs", "a_ban_ends_by_itself_in_log_time")]),
        (
            85,
            "lengths in records",
            vec![Test("crates/wire/tests/record.rs", "lengths_of_gigabytes_and_endless_varints_are_refused_unread")],
        ),
        (86, "stores that answer garbage", vec![Absent("the store is embedded; the cluster's stores are not built")]),
        (
            87,
            "files replaced and linked",
            vec![Test("crates/store/tests/crash.rs", "files_are_private_and_a_link_is_not_followed")],
        ),
        (
            88,
            "panics by input",
            vec![Table, Test("crates/fuzz/src/run.rs", "a_planted_fault_is_found_and_made_as_small_as_it_is")],
        ),
        (
            89,
            "erased text that comes back",
            vec![Test("crates/store/tests/crash.rs", "erased_text_is_not_in_any_file")],
        ),
        (90, "secrets in answers and logs", vec![Table]),
        (91, "downgrades of TLS", vec![Table, Test(TLS, "tls_1_2_is_spoken_only_where_it_is_asked_for")]),
        (92, "QUIC", vec![Absent("QUIC is not spoken")]),
        (93, "advisories", vec![Absent("cargo deny reads them where they can be reached; deny.toml is the rule")]),
        (
            94,
            "pages from elsewhere",
            vec![Test("crates/server/src/control/pages.rs", "pages_use_embedded_files_only_and_no_inline_script")],
        ),
    ]
}

#[test]
fn every_attack_of_the_threat_model_is_tried_somewhere_or_says_why_not() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let list = list();
    let numbers: Vec<u8> = list.iter().map(|(a, ..)| *a).collect();
    assert_eq!(numbers, (1..=94).collect::<Vec<u8>>(), "each number once, in order");
    let in_table: BTreeSet<u8> = rows().iter().map(|row| row.a).chain([88, 90]).collect();
    let mut listed = BTreeSet::new();
    for (a, title, places) in &list {
        assert!(!title.is_empty() && !places.is_empty(), "A-{a:02} has no place");
        for place in places {
            match place {
                Table => drop(listed.insert(*a)),
                Test(file, name) => {
                    let text =
                        std::fs::read_to_string(root.join(file)).unwrap_or_else(|e| panic!("A-{a:02}: {file}: {e}"));
                    assert!(text.contains(&format!("fn {name}(")), "A-{a:02}: there is no {name} in {file}");
                }
                Absent(why) => assert!(!why.is_empty() && places.len() == 1, "A-{a:02}"),
            }
        }
    }
    assert_eq!(listed, in_table, "the rows of the table and the numbers that point to it");
}
