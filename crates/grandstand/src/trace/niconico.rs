//! Niconico comments as JSON Lines: `vpos` is the place in the video in hundredths of a second, authors are withheld.

use serde::Deserialize;

use super::{Format, MALFORMED, Order, Rows, Trace, author, lines};

#[derive(Deserialize)]
struct Row {
    vpos: i64,
    content: String,
    #[serde(default)]
    owner: bool,
    #[serde(default)]
    premium: bool,
    #[serde(default)]
    user_id: Option<String>,
    #[serde(default)]
    deleted: Option<i64>,
}

pub(super) fn read(bytes: &[u8]) -> Trace {
    let mut rows = Rows::new();
    for line in lines(bytes) {
        let Some(row) = line.ok().and_then(|l| serde_json::from_str::<Row>(l).ok()) else {
            rows.skip(MALFORMED);
            continue;
        };
        if row.deleted.is_some_and(|d| d != 0) {
            rows.skip("moderation");
            continue;
        }
        let badges = [("owner", row.owner), ("premium", row.premium)];
        let badges = badges.iter().filter(|(_, has)| *has).map(|(name, _)| (*name).to_owned()).collect();
        let by = author("nico", row.user_id.as_deref(), None, badges, rows.entry());
        rows.comment(row.vpos.checked_mul(10_000), by, &row.content);
    }
    rows.trace(Format::Niconico, Order::ByTime)
}

#[cfg(test)]
mod tests {
    use super::read;
    use crate::trace::Act;

    #[test]
    fn the_sample_is_ordered_by_its_place_in_the_video() {
        let trace = read(include_bytes!("../../samples/niconico.jsonl"));
        let got = trace.steps.iter().map(|s| match &s.act {
            Act::Comment(c) => (s.at.as_millis(), c.text.as_str(), c.author.badges.len()),
            Act::Score(_) | Act::Gift(_) | Act::Moderate(_) => panic!("a comment"),
        });
        let got: Vec<_> = got.collect();
        assert_eq!(got, [(0, "はじまり", 0), (150, "8888", 1), (2_500, "二行\nあります", 0)]);
        assert_eq!(trace.skipped["malformed"], 1);
        assert_eq!(trace.skipped["moderation"], 1);
    }
}
