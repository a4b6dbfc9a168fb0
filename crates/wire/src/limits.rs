//! The numbers of the protocol, each once; those that a rule decides by are the rule's own. docs/protocol.md is generated from [`all`].

use std::time::Duration;

use grandstand_core::owner::view;
use grandstand_core::refusals::ADDRESS;
use grandstand_core::viewer::{resume, session};
use grandstand_core::{likes, reports, revision, rooms, slow_mode, text};

pub const ROOM_ID_BYTES_MAX: usize = 128;
pub const USER_ID_BYTES_MAX: usize = 64;
pub const DISPLAY_BYTES_MAX: usize = text::NAME_BYTES_MAX;
pub const DISPLAY_CLUSTERS_MAX: usize = text::NAME_CLUSTERS_MAX;
pub const BADGES_MAX: usize = 8;
pub const BADGE_BYTES_MAX: usize = rooms::BADGE_BYTES_MAX;
pub const CLIENT_MSG_ID_BYTES_MAX: usize = 64;
pub const COMMENT_CLUSTERS_MAX: usize = text::CLUSTERS_MAX;
pub const COMMENT_BYTES_MAX: usize = text::BYTES_MAX;
pub const COMMENT_MARKS_PER_CLUSTER_MAX: usize = text::MARKS_MAX;
pub const JSON_DEPTH_MAX: usize = 16;

pub const CLIENT_FRAME_BYTES_MAX: usize = 16 << 10;
pub const HTTP_HEAD_BYTES_MAX: usize = 8 << 10;
pub const HTTP_HEADERS_MAX: usize = 64;
pub const HTTP_BODY_BYTES_MAX: usize = 64 << 10;
pub const TOKEN_BYTES_MAX: usize = 4 << 10;
pub const SCORE_BODY_BYTES_MAX: usize = 16 << 10;

pub const JOINS_MAX: usize = session::ROOMS_MAX;
pub const FOLLOWS_MAX: usize = session::FOLLOWS_MAX;
pub const LIKES_PER_OP_MAX: u64 = likes::PER_OP_MAX as u64;
pub const STREAMS_PER_USER: usize = 16;
pub const STREAMS_PER_ADDRESS: usize = 64;
pub const POLLS_PER_USER: usize = 2;
pub const POLLS_PER_ADDRESS: usize = 32;

pub const USER_RATE: u32 = 2;
pub const USER_BURST: u32 = 40;
pub const ROOM_RATE: u32 = 2_000;
pub const SCORE_RATE: u32 = 20;
pub const SCORE_BURST: u32 = 100;

pub const DEDUPE_WINDOW: Duration = Duration::from_secs(600);
pub const HELLO_WAIT: Duration = session::HELLO_WAIT;
pub const KEEPALIVE: Duration = Duration::from_secs(15);
pub const PING_MIN: Duration = Duration::from_secs(20);
pub const PING_MAX: Duration = Duration::from_secs(25);
pub const PONG_WAIT: Duration = Duration::from_secs(10);
pub const POLL_TIMEOUT_MIN: Duration = Duration::from_secs(1);
pub const POLL_TIMEOUT_MAX: Duration = Duration::from_secs(30);
pub const POLL_TIMEOUT_DEFAULT: Duration = Duration::from_secs(25);
pub const RESUME_WINDOW: Duration = Duration::from_secs(300);
pub const RESUME_COMMENTS_MAX: usize = resume::COMMENTS_MAX;
pub const COMMENT_AGE_MAX: Duration = Duration::from_secs(2);
pub const PRIORITY_AGE_MAX: Duration = Duration::from_secs(10);
pub const TICKET_TTL: Duration = Duration::from_secs(30);
pub const TICKET_RESUME: Duration = Duration::from_secs(120);
pub const GUEST_TTL: Duration = Duration::from_secs(12 * 3600);
pub const TOKEN_LEEWAY: Duration = session::EXPIRY_GRACE;

pub const SNAPSHOT_COMMENTS_MAX: usize = view::RECENT_MAX;
pub const PAGE_COMMENTS_MAX: usize = 200;

pub const REVISION_MAX: u32 = revision::REVISION_MAX;
pub const GOALS_MAX: u32 = revision::GOALS_MAX;
/// Items of one gift.
pub const GIFT_COUNT_MAX: u32 = 1_000_000;
/// A thousand million of any currency: nine of them still add up below 2^53.
pub const GIFT_MICROS_MAX: u64 = 1_000_000_000_000_000;
pub const CURRENCY_BYTES_MAX: usize = 16;
pub const SIGNATURE_AGE_MAX: Duration = Duration::from_secs(300);

pub const TITLE_BYTES_MAX: usize = rooms::TITLE_BYTES_MAX;
pub const ROOM_MATCHES_MAX: usize = rooms::MATCHES_MAX;
pub const ROOM_PINNED_MAX: usize = rooms::PINNED_MAX;
pub const SLOW_MODE_SECONDS_MAX: u32 = slow_mode::SECONDS_MAX;
pub const REASON_BYTES_MAX: usize = 200;

/// What is bounded, and by how much: the table of docs/protocol.md.
pub fn all() -> Vec<(&'static str, String)> {
    let seconds = |d: Duration| format!("{} s", d.as_secs());
    let kib = |n: usize| format!("{} KiB", n >> 10);
    vec![
        ("room id", format!("{ROOM_ID_BYTES_MAX} bytes")),
        ("user id", format!("{USER_ID_BYTES_MAX} bytes")),
        ("display name", format!("{DISPLAY_BYTES_MAX} bytes, {DISPLAY_CLUSTERS_MAX} grapheme clusters")),
        ("badges of a user", format!("{BADGES_MAX} of {BADGE_BYTES_MAX} bytes")),
        ("`client_msg_id`", format!("{CLIENT_MSG_ID_BYTES_MAX} printable ASCII characters")),
        ("`client_msg_id` stays unique for", seconds(DEDUPE_WINDOW)),
        ("comment", format!("{COMMENT_CLUSTERS_MAX} grapheme clusters and {COMMENT_BYTES_MAX} bytes")),
        ("combining marks of a grapheme cluster", COMMENT_MARKS_PER_CLUSTER_MAX.to_string()),
        ("nesting of JSON", JSON_DEPTH_MAX.to_string()),
        ("client frame", kib(CLIENT_FRAME_BYTES_MAX)),
        ("HTTP request head", format!("{}, {HTTP_HEADERS_MAX} headers", kib(HTTP_HEAD_BYTES_MAX))),
        ("HTTP request body", kib(HTTP_BODY_BYTES_MAX)),
        ("token", kib(TOKEN_BYTES_MAX)),
        ("score event body", kib(SCORE_BODY_BYTES_MAX)),
        ("rooms of a WebSocket", JOINS_MAX.to_string()),
        ("followed users of a connection", FOLLOWS_MAX.to_string()),
        ("streams of a user", STREAMS_PER_USER.to_string()),
        ("streams of an IPv4 address or IPv6 /64", STREAMS_PER_ADDRESS.to_string()),
        ("long-polls of a user that wait", POLLS_PER_USER.to_string()),
        ("long-polls of an IPv4 address or IPv6 /64 that wait", POLLS_PER_ADDRESS.to_string()),
        ("comments of a user (default)", format!("{USER_RATE}/s, burst {USER_BURST}")),
        (
            "comments of an address at a door, not loopback",
            format!("{}/s, burst {}", ADDRESS.per_second, ADDRESS.burst),
        ),
        ("reports of a user in a room", format!("{}/s, burst {}", reports::RATE.per_second, reports::RATE.burst)),
        ("comments of a room (default)", format!("{ROOM_RATE}/s")),
        ("likes of an operation", LIKES_PER_OP_MAX.to_string()),
        (
            "likes of a user in a room (default)",
            format!("{}/s, burst {}", likes::RATE, likes::limit(likes::RATE, Duration::ZERO).burst),
        ),
        ("kinds of likes of a room", likes::KINDS_MAX.to_string()),
        (
            "reactions of a user in a room",
            format!("{}/s, burst {}", likes::REACTIONS.per_second, likes::REACTIONS.burst),
        ),
        ("score events of a match", format!("{SCORE_RATE}/s, burst {SCORE_BURST}")),
        ("wait for `hello`", seconds(HELLO_WAIT)),
        ("SSE keepalive", seconds(KEEPALIVE)),
        (
            "WebSocket ping",
            format!("every {} to {}, pong within {}", PING_MIN.as_secs(), seconds(PING_MAX), seconds(PONG_WAIT)),
        ),
        (
            "long-poll timeout",
            format!(
                "{} to {}, default {}",
                POLL_TIMEOUT_MIN.as_secs(),
                seconds(POLL_TIMEOUT_MAX),
                seconds(POLL_TIMEOUT_DEFAULT)
            ),
        ),
        ("resume window (default)", seconds(RESUME_WINDOW)),
        ("comments of a resume", RESUME_COMMENTS_MAX.to_string()),
        ("age at which a comment is passed over for a slow viewer (default)", seconds(COMMENT_AGE_MAX)),
        ("age of an unsent priority event that closes a slow viewer", seconds(PRIORITY_AGE_MAX)),
        ("ticket", format!("{}, and {} after its stream breaks", seconds(TICKET_TTL), seconds(TICKET_RESUME))),
        ("guest token", format!("{} h", GUEST_TTL.as_secs() / 3600)),
        ("leeway of `exp`", seconds(TOKEN_LEEWAY)),
        ("comments of a snapshot", SNAPSHOT_COMMENTS_MAX.to_string()),
        ("comments of a page back", PAGE_COMMENTS_MAX.to_string()),
        ("score revision", format!("1 to {REVISION_MAX}")),
        ("age of a score signature", seconds(SIGNATURE_AGE_MAX)),
        ("items of a gift", format!("1 to {GIFT_COUNT_MAX}")),
        ("`amount_micros` of a gift", format!("0 to {GIFT_MICROS_MAX}")),
        ("`currency`", format!("{CURRENCY_BYTES_MAX} of A-Z a-z 0-9 _ -")),
        ("matches of a room", ROOM_MATCHES_MAX.to_string()),
        ("pinned events of a room", ROOM_PINNED_MAX.to_string()),
        ("slow mode", format!("{SLOW_MODE_SECONDS_MAX} s")),
    ]
}
