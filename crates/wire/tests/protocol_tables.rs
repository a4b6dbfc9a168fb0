//! docs/protocol.md says what the code does: its tables are written by the code. `GOLDEN=write` renews them.

use std::fmt::Write;
use std::path::PathBuf;

use grandstand_wire::codes::{CloseCode, ErrorCode, Range, RateReason};
use grandstand_wire::limits;

fn close_codes() -> String {
    let mut text = String::from("| code | reason | client | waits by default | meaning |\n|---|---|---|---|---|\n");
    let mut all = CloseCode::ALL.to_vec();
    all.sort_by_key(|c| (c.range() == Range::Standard, c.code()));
    for c in all {
        let wait = match c.retry() {
            Some((retry, spread)) => format!("{retry} ms + up to {spread} ms"),
            None => "–".to_owned(),
        };
        writeln!(text, "| {} | `{}` | {} | {wait} | {} |", c.code(), c.reason(), c.range().advice(), c.meaning())
            .unwrap();
    }
    text
}

fn error_codes() -> String {
    let mut text = String::from("| code | HTTP | meaning |\n|---|---|---|\n");
    for c in ErrorCode::ALL {
        writeln!(text, "| `{}` | {} | {} |", c.name(), c.status(), c.meaning()).unwrap();
    }
    text
}

fn rate_reasons() -> String {
    let mut text = String::from("| reason | meaning |\n|---|---|\n");
    for r in RateReason::ALL {
        writeln!(text, "| `{}` | {} |", r.name(), r.meaning()).unwrap();
    }
    text
}

fn bounds() -> String {
    let mut text = String::from("| what | at most |\n|---|---|\n");
    for (what, bound) in limits::all() {
        writeln!(text, "| {what} | {bound} |").unwrap();
    }
    text
}

#[test]
fn protocol_tables_are_current() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol.md");
    let mut page = std::fs::read_to_string(&path).unwrap();
    let tables = [
        ("close codes", close_codes()),
        ("error codes", error_codes()),
        ("rate reasons", rate_reasons()),
        ("limits", bounds()),
    ];
    let write = std::env::var_os("GOLDEN").is_some_and(|v| v == "write");
    for (name, table) in tables {
        let begin = format!("<!-- {name}: generated, begin -->\n");
        let end = format!("<!-- {name}: generated, end -->");
        let from = page.find(&begin).unwrap_or_else(|| panic!("docs/protocol.md lacks the mark {begin}")) + begin.len();
        let to = from + page[from..].find(&end).unwrap_or_else(|| panic!("docs/protocol.md lacks the mark {end}"));
        if write {
            page.replace_range(from..to, &table);
        } else {
            let kept = &page[from..to];
            assert_eq!(kept, table, "docs/protocol.md, {name}: the code says\n\n{table}\n(GOLDEN=write renews it)");
        }
    }
    if write {
        std::fs::write(&path, page).unwrap();
    }
}
