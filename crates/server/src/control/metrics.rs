//! `/metrics` in Prometheus' text format.
//!
//! Names are `grandstand_<what>_<unit>`; counters end in `_total`, times are seconds. Labels come from closed lists of the
//! code, so nothing a client sends makes a series; there is no room label.

use std::fmt::Write;
use std::sync::atomic::Ordering;

use grandstand_wire::codes::CloseCode;

use super::Control;
use crate::metrics::{LAG_BOUNDS, Refused, Resumed, Transport, read};

/// Everything this process counts.
pub fn text(control: &Control) -> String {
    let mut page = Page(String::with_capacity(8 * 1024));
    shard(control, &mut page);
    gateway(control, &mut page);
    let answered = control.answered.iter().zip(["1xx", "2xx", "3xx", "4xx", "5xx"]);
    page.family("control_answers_total", "counter", "Requests answered by control, by status.");
    for (n, class) in answered {
        page.line("control_answers_total", &[("status", class)], read(n));
    }
    page.one(
        "control_panics_total",
        "counter",
        "Handlers that panicked; each cost its own request.",
        read(&control.panics),
    );
    page.0
}

fn shard(control: &Control, page: &mut Page) {
    let status = control.deps.shard.status();
    let (commits, records, took) = status.commits();
    page.family("build_info", "gauge", "The version, as a label.");
    page.line("build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    page.family("durability_info", "gauge", "What an ack means, as a label.");
    page.line("durability_info", &[("durability", status.durability())], 1);
    page.one("ready", "gauge", "1 when commands are taken.", u64::from(status.ready()));
    page.one(
        "no_space",
        "gauge",
        "1 while publishes are refused because the store is full.",
        u64::from(status.no_space()),
    );
    page.one("log_epoch", "gauge", "The log's epoch.", status.epoch().map_or(0, |e| u64::from(e.value())));
    page.one("log_bytes", "gauge", "Size of the log on the disk.", status.log_bytes());
    page.one("log_records_total", "counter", "Records made durable.", records);
    page.one("log_commits_total", "counter", "Commits of the log.", commits);
    page.family("log_commit_seconds_total", "counter", "Time spent in commits.");
    page.line("log_commit_seconds_total", &[], took.as_secs_f64());
    page.one("accepted_total", "counter", "Comments, scores and operator changes accepted.", status.accepted());
    page.one(
        "link_undelivered_total",
        "counter",
        "Answers and batches that found a full worker mailbox.",
        status.undelivered(),
    );
}

fn gateway(control: &Control, page: &mut Page) {
    let m = &control.deps.metrics;
    let gauge = |n: i64| n.max(0) as u64;
    page.one("connections", "gauge", "Open sockets.", gauge(m.connections.load(Ordering::Relaxed)));
    page.one("connections_accepted_total", "counter", "Sockets accepted.", read(&m.accepted));
    page.one(
        "connections_accept_failed_total",
        "counter",
        "Sockets that could not be accepted.",
        read(&m.accept_failed),
    );
    page.family("tls_handshakes_total", "counter", "TLS handshakes that ended well, by how the session began.");
    for (begun, n) in ["full", "resumed"].into_iter().zip(&m.handshakes) {
        page.line("tls_handshakes_total", &[("session", begun)], read(n));
    }
    page.one(
        "tls_failed_total",
        "counter",
        "Callers of the TLS port whose handshake failed or was none.",
        read(&m.handshakes_failed),
    );
    page.one(
        "connections_refused_total",
        "counter",
        "Sockets sent away with 503 because descriptors had run out.",
        read(&m.accept_refused),
    );
    page.one("http_requests_total", "counter", "Requests read.", read(&m.http_requests));
    page.one("http_refused_total", "counter", "Requests that could not be read without doubt.", read(&m.http_refused));
    page.family("streams", "gauge", "Open streams by transport.");
    for transport in Transport::ALL {
        let n = gauge(m.streams[transport as usize].load(Ordering::Relaxed));
        page.line("streams", &[("transport", transport.name())], n);
    }
    page.family("streams_opened_total", "counter", "Streams opened by transport.");
    for transport in Transport::ALL {
        page.line("streams_opened_total", &[("transport", transport.name())], read(&m.opened[transport as usize]));
    }
    page.family("streams_closed_total", "counter", "Streams closed by the server, by code.");
    for (n, code) in m.closed.iter().zip(CloseCode::ALL) {
        page.line("streams_closed_total", &[("code", &code.code().to_string())], read(n));
    }
    page.one("streams_admitted_total", "counter", "Streams let into a room.", read(&m.admitted));
    page.family("streams_refused_total", "counter", "Streams refused by a limit of the gateway, by reason.");
    for why in Refused::ALL {
        page.line("streams_refused_total", &[("reason", why.name())], read(&m.refused[why as usize]));
    }
    let limit = control.deps.admission.view().limit;
    page.family("admission_rate", "gauge", "New streams taken a second; absent where there is no limit.");
    if let Some(limit) = limit {
        page.line("admission_rate", &[], limit.per_second);
    }
    page.one("draining", "gauge", "1 while viewers are sent away.", u64::from(control.deps.admission.is_draining()));
    page.family("resumes_total", "counter", "Cursors by how they were answered.");
    for how in Resumed::ALL {
        page.line("resumes_total", &[("answer", how.name())], read(&m.resumed[how as usize]));
    }
    page.one("frames_total", "counter", "Frames with room events written to viewers.", read(&m.frames));
    page.one(
        "frames_encoded_total",
        "counter",
        "Frames encoded; the difference is what sharing saved.",
        read(&m.encoded),
    );
    page.one("delivered_total", "counter", "Events written to viewers.", read(&m.delivered));
    page.one("delivered_bytes_total", "counter", "Bytes of the frames written.", read(&m.delivered_bytes));
    page.one("skipped_total", "counter", "Comments passed over for slow viewers, each told.", read(&m.skipped));
    page.one("ops_total", "counter", "Operations of clients.", read(&m.ops));
    page.one("ops_refused_total", "counter", "Operations refused.", read(&m.ops_refused));
    page.one("assertions_failed_total", "counter", "Assertions that ended one connection.", read(&m.assertions_failed));
    page.family("loop_seconds", "histogram", "Time from a worker's wake to its next wait.");
    let mut below = 0;
    for (n, bound) in m.lag.iter().zip(LAG_BOUNDS) {
        below += read(n);
        page.line("loop_seconds_bucket", &[("le", &format!("{}", bound as f64 / 1e6))], below);
    }
    below += read(&m.lag[LAG_BOUNDS.len()]);
    page.line("loop_seconds_bucket", &[("le", "+Inf")], below);
    page.line("loop_seconds_sum", &[], read(&m.lag_micros) as f64 / 1e6);
    page.line("loop_seconds_count", &[], below);
}

struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP grandstand_{name} {help}\n# TYPE grandstand_{name} {kind}");
    }
    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let _ = write!(self.0, "grandstand_{name}");
        for (i, (label, text)) in labels.iter().enumerate() {
            let _ = write!(self.0, "{}{label}=\"{text}\"", if i == 0 { "{" } else { "," });
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }
    fn one(&mut self, name: &str, kind: &str, help: &str, value: u64) {
        self.family(name, kind, help);
        self.line(name, &[], value);
    }
}
