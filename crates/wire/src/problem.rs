//! Problem documents: how a refused request is told why. Source: RFC 9457; codes and statuses from [`crate::codes`].

use crate::codes::ErrorCode;
use crate::json;

/// How long to wait before the request is repeated, and over how long the callers are spread: milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait {
    pub retry_after_ms: u64,
    pub spread_ms: u64,
}

/// Appends one. `status` is the response's own, mostly the code's.
pub fn write(status: u16, code: ErrorCode, detail: &str, wait: Option<Wait>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"type\":\"about:blank\",\"title\":");
    json::write_str(code.meaning(), out);
    out.extend_from_slice(b",\"status\":");
    json::write_u64(u64::from(status), out);
    out.extend_from_slice(b",\"code\":");
    json::write_str(code.name(), out);
    out.extend_from_slice(b",\"detail\":");
    json::write_str(detail, out);
    if let Some(Wait { retry_after_ms, spread_ms }) = wait {
        out.extend_from_slice(b",\"retry_after_ms\":");
        json::write_u64(retry_after_ms, out);
        out.extend_from_slice(b",\"spread_ms\":");
        json::write_u64(spread_ms, out);
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::{Wait, write};
    use crate::codes::ErrorCode;

    #[test]
    fn a_problem_says_what_and_for_how_long() {
        let mut out = Vec::new();
        write(503, ErrorCode::NotReady, "a \"word\"", Some(Wait { retry_after_ms: 1_000, spread_ms: 5 }), &mut out);
        let whole = r#"{"type":"about:blank","title":"the server is starting or stopping; safe to retry with the same key","status":503,"code":"not_ready","detail":"a \"word\"","retry_after_ms":1000,"spread_ms":5}"#;
        assert_eq!(String::from_utf8(out).unwrap(), whole);
        let mut out = Vec::new();
        write(404, ErrorCode::NoRoom, "no", None, &mut out);
        assert_eq!(out, br#"{"type":"about:blank","title":"there is no such room","status":404,"code":"no_such_room","detail":"no"}"#);
    }
}
