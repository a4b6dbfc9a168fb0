//! Export lines: one for every record, as kept in tests/golden/export.jsonl.

#[path = "common/samples.rs"]
mod common;

use common::{golden, samples};
use grandstand_wire::{event, export, stamp};
use serde_json::Value;

#[test]
fn every_record_is_one_line_that_says_what_viewers_saw_and_when() {
    let mut out = Vec::new();
    for (name, record) in samples() {
        let start = out.len();
        export::write_line(&record, &mut out);
        let line = std::str::from_utf8(&out[start..]).unwrap();
        assert_eq!(line.matches('\n').count(), 1, "{name}");
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["event_id"], record.event_id().value(), "{name}");
        assert_eq!(
            (&line["epoch"], &line["seq"]),
            (&record.epoch.value().into(), &record.seq.value().into()),
            "{name}"
        );
        assert_eq!(line["ts"].as_str().and_then(stamp::parse), Some(record.ts), "{name}");

        // Whatever viewers were sent is in the line, unchanged.
        let mut sent = Vec::new();
        let viewers = event::write_event(&record, &mut sent);
        let (kind, control) = export::kind(&record);
        assert_eq!(line["type"], kind, "{name}");
        assert!(!(control && viewers.is_some()), "{name}");
        if viewers.is_some() {
            let sent: Value = serde_json::from_slice(&sent).unwrap();
            for (key, value) in sent.as_object().unwrap() {
                assert_eq!(&line[key], value, "{name}: {key}");
            }
        }
    }
    golden("export.jsonl", std::str::from_utf8(&out).unwrap());
}
