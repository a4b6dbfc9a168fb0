//! `/metrics` in Prometheus' text format.
//!
//! Names are `grandstand_<part>_<what>_<unit>`; counters end in `_total`, times are seconds. Each family has its HELP, TYPE and
//! UNIT lines (the last is a comment to readers of the text format). Labels come from closed lists of the code, so nothing a
//! client sends makes a series; there is no room label. What is usual for a process has the usual names (`process_…`).

use std::fmt::Write;
use std::sync::atomic::Ordering;

use grandstand_core::banners::Capped;
use grandstand_wire::codes::{CloseCode, ErrorCode};

use super::{Control, gateways};
use crate::admission::LOCAL;
use crate::clock;
use crate::kernel::{self, Taken};
use crate::link::moderated::{ENDS, RULINGS, STATES};
use crate::link::{Read, UNCOUNTED};
use crate::metrics::{
    BOUNDS, BannerHop, Histogram, Hop, LANES, LANES_TIMED, Refused, Resumed, RoomSize, TRIES, Transport, read,
};

const COUNTER: &str = "counter";
const GAUGE: &str = "gauge";

/// Everything this process counts.
pub fn text(control: &Control) -> String {
    let mut page = Page(String::with_capacity(32 * 1024));
    shard(control, &mut page);
    moderation(control, &mut page);
    scores(control, &mut page);
    webhooks(control, &mut page);
    checkpoints(control, &mut page);
    link(control, &mut page);
    sockets(control, &mut page);
    rooms(control, &mut page);
    times(control, &mut page);
    let answered = control.answered.iter().zip(["1xx", "2xx", "3xx", "4xx", "5xx"]);
    page.family("grandstand_control_answers_total", COUNTER, "answers", "Requests answered by control, by status.");
    for (n, class) in answered {
        page.line("grandstand_control_answers_total", &[("status", class)], read(n));
    }
    page.one(
        "grandstand_control_panics_total",
        COUNTER,
        "panics",
        "Handlers and tasks that panicked; a handler cost its own request, a task was begun anew.",
        read(&control.panics),
    );
    processes(control, &mut page);
    page.0
}

fn scores(control: &Control, page: &mut Page) {
    let watch = control.feeds.watch();
    let ((silent, silences), (differ, disagreements)) = (watch.silences(), watch.disagreements());
    drop(watch);
    for (name, kind, unit, help, n) in [
        (
            "grandstand_score_feeds_silent",
            GAUGE,
            "matches",
            "Live matches of whose primary provider nothing comes: their viewers are told.",
            silent,
        ),
        ("grandstand_score_feeds_silent_total", COUNTER, "matches", "How often that began.", silences),
        (
            "grandstand_score_feeds_differ",
            GAUGE,
            "matches",
            "Matches whose primary and stand-by say different scores for longer than is usual.",
            differ,
        ),
        (
            "grandstand_score_disagreements_total",
            COUNTER,
            "matches",
            "How often that began. Anything but 0 is a page.",
            disagreements,
        ),
        (
            "grandstand_score_not_highest_total",
            COUNTER,
            "events",
            "Score events that were shown as the newest and were not the highest revision. Anything but 0 is a page.",
            control.deps.shard.status().not_highest(),
        ),
    ] {
        page.one(name, kind, unit, help, n);
    }
}

fn webhooks(control: &Control, page: &mut Page) {
    let [delivered, failed, passed_over, given_up] = control.webhooks.counts();
    let (states, longest) = control.webhooks.states(clock::wall());
    let name = "grandstand_webhook_posts_total";
    page.family(
        name,
        COUNTER,
        "posts",
        "Events posted to receivers of webhooks by whether they were taken; what was not is posted again.",
    );
    for (result, n) in [("delivered", delivered), ("failed", failed)] {
        page.line(name, &[("result", result)], n);
    }
    let name = "grandstand_webhook_receivers";
    page.family(name, GAUGE, "receivers", "Receivers of webhooks: told, failing, disabled.");
    for (state, n) in ["told", "failing", "disabled"].into_iter().zip(states) {
        page.line(name, &[("state", state)], n);
    }
    for (name, kind, unit, help, n) in [
        (
            "grandstand_webhook_passed_over_total",
            COUNTER,
            "events",
            "Events that a receiver never took while it took others. Anything but 0 is to be looked at.",
            passed_over,
        ),
        (
            "grandstand_webhook_given_up_total",
            COUNTER,
            "receivers",
            "Receivers that were disabled because nothing was delivered for too long, or because they said that they are gone.",
            given_up,
        ),
        (
            "grandstand_webhook_failing_seconds",
            GAUGE,
            "seconds",
            "For how long the receiver that fails longest has taken nothing.",
            longest,
        ),
    ] {
        page.one(name, kind, unit, help, n);
    }
}

fn moderation(control: &Control, page: &mut Page) {
    let counts = control.deps.shard.status().moderation();
    let mut by = |name, unit, help, label, names: &[&str], numbers: &[u64]| {
        page.family(name, COUNTER, unit, help);
        for (value, n) in names.iter().zip(numbers) {
            page.line(name, &[(label, *value)], *n);
        }
    };
    by(
        "grandstand_moderation_verdicts_total",
        "verdicts",
        "Words of the classifiers; none: it gave none.",
        "verdict",
        &RULINGS,
        &counts.rulings(),
    );
    by(
        "grandstand_moderation_held_ends_total",
        "comments",
        "Held comments by how their wait ended.",
        "end",
        &ENDS,
        &counts.ends(),
    );
    for (name, help, n) in [
        ("grandstand_moderation_blocked_total", "Comments that were refused.", counts.blocked()),
        ("grandstand_moderation_held_total", "Comments that were put into a queue for review.", counts.held()),
        (
            "grandstand_moderation_taken_back_total",
            "Comments that were taken back by a verdict that came after they were shown.",
            counts.taken_back(),
        ),
        (
            "grandstand_moderation_strict_unallowed_total",
            "Comments that a strict room showed without an allow. Anything but 0 is a page.",
            counts.unallowed(),
        ),
    ] {
        page.one(name, COUNTER, "comments", help, n);
    }
    let name = "grandstand_moderation_reloads_total";
    page.family(name, COUNTER, "reloads", "Word lists read again, and those that were refused.");
    for (result, n) in ["taken", "refused"].into_iter().zip(counts.reloads()) {
        page.line(name, &[("result", result)], n);
    }
    let asking = counts.asking();
    let name = "grandstand_moderation_classifier_answers_total";
    page.family(name, COUNTER, "answers", "Questions to the HTTP classifier by whether they were answered.");
    for (result, n) in ["verdict", "failed"].into_iter().zip(asking.answers()) {
        page.line(name, &[("result", result)], n);
    }
    page.family("grandstand_moderation_classifier_seconds_total", COUNTER, "seconds", "Time that these took.");
    page.line("grandstand_moderation_classifier_seconds_total", &[], asking.took().as_secs_f64());
    page.one(
        "grandstand_moderation_classifier_passed_total",
        COUNTER,
        "questions",
        "Comments whose policy decided at once, because the HTTP classifier would not have answered in time.",
        asking.passed(),
    );
    page.one(
        "grandstand_moderation_classifier_kept_total",
        COUNTER,
        "questions",
        "Comments judged by an answer of the last minute about the same text.",
        asking.kept(),
    );
    let name = "grandstand_moderation_breaker_state";
    page.family(name, GAUGE, "state", "1 for the state of the breaker before the HTTP classifier.");
    for (place, state) in STATES.into_iter().enumerate() {
        page.line(name, &[("state", state)], u64::from(place == asking.state()));
    }
}

fn shard(control: &Control, page: &mut Page) {
    let status = control.deps.shard.status();
    let (commits, records, took) = status.commits();
    page.family("grandstand_build_info", GAUGE, "info", "The version, as a label.");
    page.line("grandstand_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    page.family("grandstand_durability_info", GAUGE, "info", "What an ack means, as a label.");
    page.line("grandstand_durability_info", &[("durability", status.durability())], 1);
    page.one("grandstand_ready", GAUGE, "yes", "1 when commands are taken.", u64::from(status.ready()));
    page.one(
        "grandstand_no_space",
        GAUGE,
        "yes",
        "1 while publishes are refused because the store is full.",
        u64::from(status.no_space()),
    );
    let epoch = status.epoch().map_or(0, |e| u64::from(e.value()));
    page.one("grandstand_log_epoch", GAUGE, "epoch", "The log's epoch.", epoch);
    page.one("grandstand_log_size_bytes", GAUGE, "bytes", "Size of the log on the disk.", status.log_bytes());
    page.one("grandstand_log_records_total", COUNTER, "records", "Records made durable.", records);
    page.one("grandstand_log_commits_total", COUNTER, "commits", "Commits of the log.", commits);
    page.family("grandstand_log_commit_seconds_total", COUNTER, "seconds", "Time spent in commits.");
    page.line("grandstand_log_commit_seconds_total", &[], took.as_secs_f64());
    page.one(
        "grandstand_accepted_total",
        COUNTER,
        "commands",
        "Comments, scores and operator changes accepted.",
        status.accepted(),
    );
    // Of the shard's own mailboxes, and of those behind the links.
    let came = control.deps.host.as_ref().map(|host| host.crossed().came).unwrap_or_default();
    page.one(
        "grandstand_link_undelivered_total",
        COUNTER,
        "items",
        "Answers and batches that found a full worker mailbox.",
        status.undelivered() + came.undelivered,
    );
    page.family(
        "grandstand_link_dropped_total",
        COUNTER,
        "events",
        "Events a full worker mailbox did not take, by lane; the worker reads them from the log.",
    );
    for ((_, lane), (n, behind)) in LANES.iter().zip(status.dropped().into_iter().zip(came.dropped)) {
        page.line("grandstand_link_dropped_total", &[("lane", lane)], n + behind);
    }
    let (likes, tallies) = status.likes();
    page.one("grandstand_likes_total", COUNTER, "likes", "Likes made durable in rooms' totals.", likes);
    page.one("grandstand_likes_tallies_total", COUNTER, "records", "Tallies that totals were written with.", tallies);
    let name = "grandstand_likes_uncounted_total";
    page.family(name, COUNTER, "likes", "Likes that came to the owner and were not counted, by why.");
    for (reason, n) in UNCOUNTED.iter().zip(status.uncounted()) {
        page.line(name, &[("reason", reason)], n);
    }
    let pending = status.erasing().pending().len() as u64;
    page.one("grandstand_pending_erasures", GAUGE, "erasures", "Users whose erase is not done.", pending);
    page.one("grandstand_wide_rooms", GAUGE, "rooms", "Rooms that are wide.", status.wide());
    let name = "grandstand_wide_comments_total";
    page.family(name, COUNTER, "comments", "Comments of wide rooms by what became of them.");
    let (shown, not_shown) = status.fates();
    page.line(name, &[("fate", "shown")], shown);
    page.line(name, &[("fate", "not_shown")], not_shown);
    let rooms = control.deps.tallies.all();
    page.one(
        "grandstand_people",
        GAUGE,
        "people",
        "Who watches, each user once in each room, all rooms together.",
        rooms.values().map(|room| room.people()).sum::<u64>(),
    );
    page.one(
        "grandstand_viewers",
        GAUGE,
        "viewers",
        "Viewers of all rooms together: a connection once in each room it is in.",
        rooms.values().map(|room| room.viewers()).sum::<u64>(),
    );
    page.one("grandstand_gifts_total", COUNTER, "gifts", "Gifts made durable.", status.gifts());
    page.family("grandstand_banners_total", COUNTER, "banners", "Banners made durable, by what made them.");
    for (what, n) in ["gift", "operator"].into_iter().zip(status.banners()) {
        page.line("grandstand_banners_total", &[("of", what)], n);
    }
    page.family(
        "grandstand_banners_capped_total",
        COUNTER,
        "gifts",
        "Gifts that were worth a banner and got none, by whose cap; their senders were told.",
    );
    for ((_, why), n) in Capped::ALL.iter().zip(status.capped()) {
        page.line("grandstand_banners_capped_total", &[("cap", why)], n);
    }
    page.family("grandstand_log_reads_total", COUNTER, "reads", "Reads of the log, by what they were for.");
    for what in Read::ALL {
        page.line("grandstand_log_reads_total", &[("purpose", what.name())], status.reads(what));
    }
}

fn checkpoints(control: &Control, page: &mut Page) {
    let made = control.deps.shard.status().checkpoints();
    let (saved, rooms) = made.saved();
    page.one("grandstand_checkpoints_total", COUNTER, "checkpoints", "Checkpoints saved.", saved);
    page.one("grandstand_checkpoint_rooms_total", COUNTER, "rooms", "Rooms in them: those that had changed.", rooms);
    let parts = [("copy", made.copy.read()), ("save", made.save.read())];
    let about = "Time that checkpoints took: the owner's copy, which holds up its rooms, and the save beside it.";
    page.family("grandstand_checkpoint_seconds_total", COUNTER, "seconds", about);
    for (part, (all, _)) in &parts {
        page.line("grandstand_checkpoint_seconds_total", &[("part", part)], all.as_secs_f64());
    }
    page.family("grandstand_checkpoint_longest_seconds", GAUGE, "seconds", "The longest one since the start, by part.");
    for (part, (_, longest)) in &parts {
        page.line("grandstand_checkpoint_longest_seconds", &[("part", part)], longest.as_secs_f64());
    }
}

/// Only where gateways are processes of their own.
fn link(control: &Control, page: &mut Page) {
    let Some(host) = &control.deps.host else { return };
    let crossed = host.crossed();
    page.one("grandstand_link_processes", GAUGE, "processes", "Gateway processes that are linked.", crossed.processes);
    page.one("grandstand_link_joined_total", COUNTER, "links", "Links to gateway processes made.", crossed.joined);
    page.one(
        "grandstand_link_batches_total",
        COUNTER,
        "batches",
        "Batches of events given to gateway processes, each once to a process that has a viewer of the room.",
        crossed.batches,
    );
    page.one(
        "grandstand_link_useless_batches_total",
        COUNTER,
        "batches",
        "Batches that came to a process where no worker wanted them.",
        crossed.came.useless,
    );
    page.one(
        "grandstand_link_resets_total",
        COUNTER,
        "links",
        "Links given up because the process was more than 5 s behind.",
        crossed.resets,
    );
}

fn sockets(control: &Control, page: &mut Page) {
    let m = &*control.metrics();
    let gauge = |n: i64| n.max(0) as u64;
    let open = gauge(m.connections.load(Ordering::Relaxed));
    page.one("grandstand_gateway_connections", GAUGE, "connections", "Open sockets.", open);
    let http2 = gauge(m.http2_connections.load(Ordering::Relaxed));
    page.family(
        "grandstand_gateway_protocol_connections",
        GAUGE,
        "connections",
        "Open sockets by what is spoken: http1 is WebSocket too.",
    );
    let irc = gauge(m.irc_connections.load(Ordering::Relaxed));
    for (protocol, n) in [("http1", open.saturating_sub(http2 + irc)), ("http2", http2), ("irc", irc)] {
        page.line("grandstand_gateway_protocol_connections", &[("protocol", protocol)], n);
    }
    page.one(
        "grandstand_gateway_http2_streams",
        GAUGE,
        "streams",
        "Open requests over HTTP/2, streams to viewers among them.",
        gauge(m.http2_streams.load(Ordering::Relaxed)),
    );
    page.one(
        "grandstand_gateway_http2_calmed_total",
        COUNTER,
        "connections",
        "HTTP/2 connections ended with ENHANCE_YOUR_CALM: more resets, pings, settings or empty frames than anybody needs.",
        read(&m.http2_calmed),
    );
    let irc = [
        (
            "grandstand_gateway_irc_refused_total",
            "connections",
            "IRC callers that there was no place for.",
            &m.irc_refused,
        ),
        (
            "grandstand_gateway_irc_stalled_total",
            "connections",
            "IRC connections ended because they did not take what they were sent.",
            &m.irc_stalled,
        ),
        ("grandstand_gateway_irc_lines_total", "lines", "Lines of IRC that clients sent.", &m.irc_lines),
        ("grandstand_gateway_irc_bytes_total", "bytes", "Bytes of lines of IRC that were written.", &m.irc_bytes),
    ];
    for (name, unit, help, counter) in irc {
        page.one(name, COUNTER, unit, help, read(counter));
    }
    page.one(
        "grandstand_gateway_ports_left",
        GAUGE,
        "workers",
        "Workers whose listeners are closed: their process is full or being emptied, and others take whoever comes.",
        gauge(m.ports_left.load(Ordering::Relaxed)),
    );
    page.family(
        "grandstand_memory_short",
        GAUGE,
        "processes",
        "Processes whose memory is short: those that shed comments, and those of them that refuse new streams and comments.",
    );
    for (does, n) in ["shed", "refuse"].into_iter().zip(&m.memory_short) {
        page.line("grandstand_memory_short", &[("does", does)], gauge(n.load(Ordering::Relaxed)));
    }
    page.one(
        "grandstand_gateway_connections_accepted_total",
        COUNTER,
        "connections",
        "Sockets accepted.",
        read(&m.accepted),
    );
    page.one(
        "grandstand_gateway_connections_accept_failed_total",
        COUNTER,
        "connections",
        "Sockets that could not be accepted (descriptors, memory).",
        read(&m.accept_failed),
    );
    page.family(
        "grandstand_gateway_tls_handshakes_total",
        COUNTER,
        "handshakes",
        "TLS handshakes that ended well, by how the session began.",
    );
    for (begun, n) in ["full", "resumed"].into_iter().zip(&m.handshakes) {
        page.line("grandstand_gateway_tls_handshakes_total", &[("session", begun)], read(n));
    }
    page.one(
        "grandstand_gateway_tls_failed_total",
        COUNTER,
        "handshakes",
        "Callers of the TLS port whose handshake failed or was none.",
        read(&m.handshakes_failed),
    );
    page.one("grandstand_gateway_http_requests_total", COUNTER, "requests", "Requests read.", read(&m.http_requests));
    page.one(
        "grandstand_gateway_http_refused_total",
        COUNTER,
        "requests",
        "Requests that could not be read without doubt.",
        read(&m.http_refused),
    );
    page.one(
        "grandstand_gateway_streams_requested_total",
        COUNTER,
        "requests",
        "Requests for a stream; each poll is one.",
        read(&m.requested),
    );
    page.family(
        "grandstand_gateway_streams_refused_total",
        COUNTER,
        "requests",
        "Those of them that ended before their hello, by reason; without those of a drain.",
    );
    for (n, code) in m.denied.0.iter().zip(ErrorCode::ALL) {
        page.line("grandstand_gateway_streams_refused_total", &[("reason", code.name())], read(n));
    }
    page.family(
        "grandstand_gateway_client_attempts_total",
        COUNTER,
        "attempts",
        "Attempts at streams whose clients say which one it is and what ended the last.",
    );
    // Most of the 63 never happen: what did is told, and the first of them always.
    let told = m.attempts.each().enumerate().filter(|(nth, (.., n))| *nth == 0 || *n > 0);
    for (_, (transport, tries, failure, n)) in told {
        let labels = [("transport", transport.name()), ("attempt", TRIES[tries]), ("failure", failure.name())];
        page.line("grandstand_gateway_client_attempts_total", &labels, n);
    }
    page.family("grandstand_gateway_streams", GAUGE, "streams", "Open streams by transport.");
    for transport in Transport::ALL {
        let n = gauge(m.streams[transport as usize].load(Ordering::Relaxed));
        page.line("grandstand_gateway_streams", &[("transport", transport.name())], n);
    }
    page.by_transport("grandstand_gateway_streams_opened_total", "streams", "Streams begun by transport.", |t| {
        read(&m.opened[t as usize])
    });
    page.family(
        "grandstand_gateway_streams_closed_total",
        COUNTER,
        "streams",
        "Streams closed by the server, by code.",
    );
    for (n, code) in m.closed.iter().zip(CloseCode::ALL) {
        page.line("grandstand_gateway_streams_closed_total", &[("code", &code.code().to_string())], read(n));
    }
    page.one(
        "grandstand_gateway_streams_admitted_total",
        COUNTER,
        "streams",
        "New streams let into a room, as the rate counts them: a backend and a poll that goes on take no place.",
        read(&m.admitted),
    );
    page.family(
        "grandstand_gateway_streams_limited_total",
        COUNTER,
        "streams",
        "Streams refused by a limit of the gateway, by limit.",
    );
    for why in Refused::ALL {
        page.line("grandstand_gateway_streams_limited_total", &[("limit", why.name())], read(&m.refused[why as usize]));
    }
    if let Some(limit) = control.rate() {
        let help = "New streams taken a second; absent where there is no limit.";
        page.family("grandstand_gateway_admission_rate", GAUGE, "streams", help);
        page.line("grandstand_gateway_admission_rate", &[], limit.per_second);
        let help = "New streams taken at once, and after a pause; absent where there is no limit.";
        page.family("grandstand_gateway_admission_burst", GAUGE, "streams", help);
        page.line("grandstand_gateway_admission_burst", &[], limit.burst);
    }
    let name = "grandstand_gateway_shedding";
    let help = "Gateway processes in which the shedder takes comments, in which an operator's order does, where it is expected, and in which \
                something is taken that is not.";
    page.family(name, GAUGE, "gateways", help);
    for (by, n) in ["shedder", "order", "expected", "unannounced"].into_iter().zip(&m.shedding) {
        page.line(name, &[("by", by)], n.load(Ordering::Relaxed).max(0) as u64);
    }
    let draining = u64::from(control.is_draining());
    page.one("grandstand_gateway_draining", GAUGE, "yes", "1 while viewers are sent away.", draining);
    page.family("grandstand_gateway_resumes_total", COUNTER, "cursors", "Cursors by how they were answered.");
    for how in Resumed::ALL {
        page.line("grandstand_gateway_resumes_total", &[("answer", how.name())], read(&m.resumed[how as usize]));
    }
    page.one(
        "grandstand_gateway_rooms_asked_total",
        COUNTER,
        "rooms",
        "Rooms whose settings were asked of the shard: once for each worker with viewers of one.",
        read(&m.rooms_asked),
    );
    page.family("grandstand_auth_tokens_total", COUNTER, "tokens", "Tokens taken, by what they were checked against.");
    for (from, n) in [("cache", &m.tokens_cached), ("signature", &m.tokens_checked)] {
        page.line("grandstand_auth_tokens_total", &[("from", from)], read(n));
    }
    page.one(
        "grandstand_auth_key_set_reads_total",
        COUNTER,
        "reads",
        "Times the key set was read or fetched, the start included.",
        read(&m.key_set_reads),
    );
    page.one(
        "grandstand_auth_key_set_failures_total",
        COUNTER,
        "fetches",
        "Fetches of the key set that came to nothing.",
        read(&m.key_set_failures),
    );
    let now = clock::wall();
    let age = control.deps.verifier.key_set().and_then(|set| set.age(now)).unwrap_or_default();
    let help =
        "How old the fetched key set is in the process with the log; above 86400 its keys do not hold. 0 without one.";
    page.one("grandstand_auth_key_set_age_seconds", GAUGE, "seconds", help, age.as_secs());
    let access = control.deps.verifier.board().read().at(now);
    page.one(
        "grandstand_auth_revocations",
        GAUGE,
        "revocations",
        "Revocations that hold.",
        access.revoked.len() as u64,
    );
    let help = "1 while an outage of the identity provider is declared.";
    page.one("grandstand_auth_outage", GAUGE, "yes", help, u64::from(access.outage.is_some()));
    page.one("grandstand_gateway_ops_total", COUNTER, "operations", "Operations of clients.", read(&m.ops));
    page.one(
        "grandstand_gateway_ops_refused_total",
        COUNTER,
        "operations",
        "Operations refused.",
        read(&m.ops_refused),
    );
    page.one(
        "grandstand_gateway_likes_total",
        COUNTER,
        "likes",
        "Likes taken from sockets at the door; those by POST are not among them.",
        read(&m.likes),
    );
    page.one(
        "grandstand_gateway_assertions_failed_total",
        COUNTER,
        "assertions",
        "Assertions that ended one connection.",
        read(&m.assertions_failed),
    );
}

fn rooms(control: &Control, page: &mut Page) {
    let m = &*control.metrics();
    page.by_transport("grandstand_gateway_frames_total", "frames", "Frames with room events given to sockets.", |t| {
        read(&m.frames[t as usize])
    });
    page.by_transport("grandstand_gateway_frame_bytes_total", "bytes", "Bytes of those frames.", |t| {
        read(&m.bytes[t as usize])
    });
    page.one(
        "grandstand_gateway_frames_encoded_total",
        COUNTER,
        "frames",
        "Frames encoded; the difference is what sharing saved.",
        read(&m.encoded),
    );
    page.one(
        "grandstand_gateway_frames_deflated_total",
        COUNTER,
        "frames",
        "Frames that went compressed; their bytes above are the compressed ones.",
        read(&m.packed),
    );
    page.one(
        "grandstand_gateway_deflate_saved_bytes_total",
        COUNTER,
        "bytes",
        "Bytes that compressing kept off the wire.",
        read(&m.saved),
    );
    let name = "grandstand_gateway_deflate_seconds_total";
    page.family(name, COUNTER, "seconds", "Time that compressing took; each frame once for all who share it.");
    page.line(name, &[], read(&m.packing_ns) as f64 / 1e9);
    let name = "grandstand_gateway_delivered_total";
    page.family(name, COUNTER, "events", "Room events given to viewers, by lane and by where they came from.");
    for hop in Hop::ALL {
        for ((_, lane), n) in LANES.iter().zip(m.delivered(hop)) {
            page.line(name, &[("lane", lane), ("hop", hop.name())], n);
        }
    }
    let name = "grandstand_gateway_skipped_total";
    page.family(name, COUNTER, "events", "Comments passed over for a viewer, each told; other lanes are never.");
    for hop in Hop::ALL {
        page.line(name, &[("lane", "comment"), ("hop", hop.name())], read(&m.skipped[hop as usize]));
    }
    let name = "grandstand_gateway_sampled_total";
    page.family(
        name,
        COUNTER,
        "events",
        "Comments of wide rooms that were not among a viewer's picks; viewers are told the cap and the keep fraction.",
    );
    for hop in Hop::ALL {
        page.line(name, &[("lane", "comment"), ("hop", hop.name())], read(&m.sampled[hop as usize]));
    }
    let name = "grandstand_gateway_ring_crowded_out_total";
    page.family(
        name,
        COUNTER,
        "events",
        "Events that left a ring before their age for want of room; the log has them.",
    );
    for ((_, lane), n) in LANES.iter().zip(&m.crowded_out) {
        page.line(name, &[("lane", lane)], read(n));
    }
    page.one(
        "grandstand_gateway_banners_told_total",
        COUNTER,
        "banners",
        "Banners given to streams and polls.",
        read(&m.banners_told),
    );
    let name = "grandstand_gateway_banners_dropped_total";
    let help =
        "Banners not told: a worker's queue of them was full, or they were over before their turn of one a second.";
    page.family(name, COUNTER, "banners", help);
    for hop in BannerHop::ALL {
        page.line(name, &[("lane", "site"), ("hop", hop.name())], read(&m.banners_dropped[hop as usize]));
    }
    page.one(
        "grandstand_gateway_priority_lost_total",
        COUNTER,
        "events",
        "Priority events that were missing on their way to a worker. More than none is a bug.",
        read(&m.priority_lost),
    );
    page.one(
        "grandstand_gateway_strict_unallowed_total",
        COUNTER,
        "comments",
        "Comments that a worker gave to viewers of a strict room without an allow. Anything but 0 is a page.",
        read(&m.unallowed),
    );
}

fn times(control: &Control, page: &mut Page) {
    let m = &*control.metrics();
    let name = "grandstand_gateway_loop_seconds";
    page.family(name, "histogram", "seconds", "Time from a worker's wake to its next wait.");
    page.histogram(name, &[], &m.lag);
    let name = "grandstand_gateway_walk_seconds";
    page.family(
        name,
        "histogram",
        "seconds",
        "Time from the first seat of a room to the last, by viewers of the room.",
    );
    for size in RoomSize::ALL {
        page.histogram(name, &[("room", size.name())], &m.walks[size as usize]);
    }
    let name = "grandstand_gateway_banner_seconds";
    let help = "Time from a banner's id to the end of the round that gave it to a worker's streams.";
    page.family(name, "histogram", "seconds", help);
    page.histogram(name, &[], &m.banner_delivery);
    let name = "grandstand_gateway_delivery_seconds";
    page.family(
        name,
        "histogram",
        "seconds",
        "Time from an event's id, of the lane latest from the first change not told yet, to the end of the walk that gave it to a worker's viewers, by lane and viewers of the room.",
    );
    for (lane, lane_name) in LANES_TIMED {
        for size in RoomSize::ALL {
            if let Some(histogram) = m.delivery(lane, size) {
                page.histogram(name, &[("lane", lane_name), ("room", size.name())], histogram);
            }
        }
    }
}

/// What the kernel says of each process of the server. Those with the usual names are of the one that answers, which holds the
/// log; `process` is 0 for that one and a gateway's number and one for the others, `name` as operators know it.
fn processes(control: &Control, page: &mut Page) {
    let own = Taken { memory_permille: control.deps.admission.memory.permille(), ..kernel::taken() };
    let seconds = |taken: Taken| taken.cpu_micros as f64 / 1e6;
    page.family("process_cpu_seconds_total", COUNTER, "seconds", "CPU time, user and system.");
    page.line("process_cpu_seconds_total", &[], seconds(own));
    page.one("process_resident_memory_bytes", GAUGE, "bytes", "Resident memory.", own.resident_bytes);
    page.one("process_open_fds", GAUGE, "fds", "Open descriptors.", own.descriptors);
    page.one("process_max_fds", GAUGE, "fds", "Descriptors this process may open.", own.descriptors_max);
    let gateways = control.deps.host.as_ref().map(|host| host.gateways()).unwrap_or_default();
    let name_of_first = if control.deps.host.is_some() { "shard" } else { LOCAL };
    let mut all = vec![("0".to_owned(), name_of_first.to_owned(), own)];
    // At most PROCESSES_MAX, each number once: the newer link of a process ends the older.
    all.extend(gateways.iter().map(|g| ((u32::from(g.process) + 1).to_string(), gateways::name(g.process), g.taken)));
    let mut each = |name: &str, kind: &str, unit: &str, help: &str, value: &dyn Fn(Taken) -> f64| {
        page.family(name, kind, unit, help);
        for (number, called, taken) in &all {
            page.line(name, &[("process", number.as_str()), ("name", called.as_str())], value(*taken));
        }
    };
    let cpu = "CPU time of each process of the server, user and system.";
    each("grandstand_process_cpu_seconds_total", COUNTER, "seconds", cpu, &seconds);
    let memory = "Resident memory of each process of the server.";
    each("grandstand_process_resident_memory_bytes", GAUGE, "bytes", memory, &|taken| taken.resident_bytes as f64);
    let ratio =
        "Memory used of the limit that is nearest, of each process: its own or a control group's. 0 without a limit.";
    each("grandstand_process_memory_ratio", GAUGE, "ratio", ratio, &|taken| taken.memory_permille as f64 / 1e3);
    let open = "Open descriptors of each process of the server.";
    each("grandstand_process_open_fds", GAUGE, "fds", open, &|taken| taken.descriptors as f64);
    let most = "Descriptors that each process of the server may open.";
    each("grandstand_process_max_fds", GAUGE, "fds", most, &|taken| taken.descriptors_max as f64);
}

struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, unit: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n# UNIT {name} {unit}");
    }
    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        self.0.push_str(name);
        for (i, (label, text)) in labels.iter().enumerate() {
            let _ = write!(self.0, "{}{label}=\"{text}\"", if i == 0 { "{" } else { "," });
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }
    fn one(&mut self, name: &str, kind: &str, unit: &str, help: &str, value: u64) {
        self.family(name, kind, unit, help);
        self.line(name, &[], value);
    }
    fn by_transport(&mut self, name: &str, unit: &str, help: &str, value: impl Fn(Transport) -> u64) {
        self.family(name, COUNTER, unit, help);
        for transport in Transport::ALL {
            self.line(name, &[("transport", transport.name())], value(transport));
        }
    }
    fn histogram(&mut self, name: &str, labels: &[(&str, &str)], histogram: &Histogram) {
        let cumulated = histogram.cumulated();
        let bounds = BOUNDS.iter().map(|bound| format!("{}", *bound as f64 / 1e6)).chain(["+Inf".to_owned()]);
        for (n, bound) in cumulated.iter().zip(bounds) {
            let all: Vec<(&str, &str)> = labels.iter().copied().chain([("le", bound.as_str())]).collect();
            self.line(&format!("{name}_bucket"), &all, n);
        }
        self.line(&format!("{name}_sum"), labels, histogram.sum().as_secs_f64());
        self.line(&format!("{name}_count"), labels, cumulated[BOUNDS.len()]);
    }
}
