//! Chat as JSON Lines: chat-downloader's rows (YouTube, Twitch) and Twitch's VOD comments.
//!
//! Rows differ by the recorder's version: the author may be `author` or `author_name`, times are microseconds,
//! milliseconds or seconds, offsets may be negative. A purchase is shown twice by YouTube, once in the chat and once in
//! the ticker: both are played, as gifts with one key; the ticker's copy is not a second comment.

use serde_json::Value;

use super::{
    Author, Comment, Deed, Format, Gift, HELD_TEXT, MALFORMED, NO_TEXT, Order, Rows, SUPERCHAT, Trace, author, lines,
    money,
};

pub(super) fn read(bytes: &[u8], format: Format) -> Trace {
    let mut rows = Rows::new();
    for line in lines(bytes) {
        let row = line.ok().and_then(|l| serde_json::from_str::<Value>(l).ok()).filter(Value::is_object);
        match row {
            None => rows.skip(MALFORMED),
            Some(row) if row.get("commenter").is_some() => vod_row(&mut rows, &row),
            Some(row) => downloader_row(&mut rows, &row),
        }
    }
    let order = if format == Format::TwitchVod { Order::ByTime } else { Order::AsWritten };
    rows.trace(format, order)
}

fn downloader_row(rows: &mut Rows, row: &Value) {
    let text_of = |key: &str| row.get(key).and_then(Value::as_str);
    let action = text_of("action_type").unwrap_or("add_chat_item");
    let kind = text_of("message_type").unwrap_or("");
    if action.starts_with("mark_chat_item") {
        let at_us = time_of(row);
        return match (text_of("target_id"), text_of("author_id")) {
            (None, Some(id)) => rows.deed(at_us, Deed::RetractUser(author("yt", Some(id), None, Vec::new(), 0).id)),
            (id, _) => rows.retract(at_us, id),
        };
    }
    let ticker = action == "add_live_chat_ticker_item" || row.get("ticker_duration").is_some();
    if let Some((currency, amount_micros)) = text_of("amount").and_then(money::parse) {
        return purchase(rows, row, ticker, currency, amount_micros);
    }
    if ticker {
        return rows.skip("ticker copy without an amount");
    }
    if action != "add_chat_item" || kind == "viewer_engagement_message" {
        return rows.skip("not a viewer's comment");
    }
    if kind == "placeholder_item" {
        let by = author("yt", None, None, Vec::new(), rows.entry());
        let said = Comment { author: by, text: HELD_TEXT.to_owned(), id: text_of("id").map(str::to_owned) };
        return rows.deed(time_of(row), Deed::Hold(said));
    }
    let at_us = time_of(row);
    let Some(text) = text_of("message") else {
        return rows.skip(NO_TEXT);
    };
    let platform = if row.get("author_id").is_some() || text_of("author").is_some() { "yt" } else { "chat" };
    let name = text_of("author").or_else(|| text_of("author_name"));
    let by = author(platform, text_of("author_id").or(name), name, badges(row), rows.entry());
    rows.comment_of(at_us, by, text, text_of("id"));
}

/// A paid message. YouTube shows it in the chat and in the ticker: two rows with one key, which the server counts once. Its
/// words are a comment, said by the first of them.
fn purchase(rows: &mut Rows, row: &Value, ticker: bool, currency: String, amount_micros: u64) {
    let text_of = |key: &str| row.get(key).and_then(Value::as_str);
    let name = text_of("author").or_else(|| text_of("author_name"));
    let by = author("yt", text_of("author_id").or(name), name, badges(row), rows.entry());
    let time = row.get("timestamp").and_then(Value::as_i64).unwrap_or_default();
    let key = format!("{}:{time}:{currency}:{amount_micros}", by.id);
    let gift = Gift { key, author: by, item: SUPERCHAT.to_owned(), count: 1, amount_micros, currency };
    rows.gift(time_of(row), gift, text_of("message").filter(|_| !ticker));
}

fn time_of(row: &Value) -> Option<i64> {
    let unix = row.get("timestamp").and_then(Value::as_i64).map(micros);
    unix.or_else(|| row.get("time_in_seconds").and_then(Value::as_f64).map(|s| (s * 1e6) as i64))
}

/// Unix time in whatever unit its size says: seconds, milliseconds or microseconds.
fn micros(value: i64) -> i64 {
    match value {
        1_000_000_000_000_000.. => value,
        1_000_000_000_000.. => value * 1_000,
        _ => value.saturating_mul(1_000_000),
    }
}

/// `author_badges: ["Owner", "Member (10 months)"]`, `badges: "Moderator"` or `badge_info: [{badge, version}]`.
fn badges(row: &Value) -> Vec<String> {
    let known = |label: &str| {
        let label = label.to_ascii_lowercase();
        ["owner", "moderator", "verified", "member"].iter().find(|k| label.starts_with(**k)).map(|k| (*k).to_owned())
    };
    let list = |key: &str| row.get(key).and_then(Value::as_array).into_iter().flatten();
    let mut out: Vec<String> = list("author_badges").filter_map(|b| known(b.as_str()?)).collect();
    out.extend(
        row.get("badges")
            .and_then(Value::as_str)
            .into_iter()
            .flat_map(|b| b.split(','))
            .filter_map(|b| known(b.trim())),
    );
    out.extend(list("badge_info").filter_map(|b| Some(b.get("badge")?.as_str()?.to_owned())));
    out
}

fn vod_row(rows: &mut Rows, row: &Value) {
    let commenter = &row["commenter"];
    let message = &row["message"];
    let at_us = row.get("content_offset_seconds").and_then(Value::as_f64).map(|s| (s * 1e6) as i64);
    let Some(text) = message.get("body").and_then(Value::as_str) else {
        return rows.skip(NO_TEXT);
    };
    let text_of = |key: &str| commenter.get(key).and_then(Value::as_str);
    let badges = message.get("user_badges").and_then(Value::as_array).into_iter().flatten();
    let badges = badges.filter_map(|b| Some(b.get("_id")?.as_str()?.to_owned())).collect();
    let id = text_of("_id").or_else(|| text_of("name"));
    let by: Author = author("twitch", id, text_of("display_name").or_else(|| text_of("name")), badges, rows.entry());
    rows.comment(at_us, by, text);
}

#[cfg(test)]
mod tests {
    use super::{micros, read};
    use crate::trace::{Act, Deed, Format, HELD_TEXT};

    #[test]
    fn the_youtube_sample_reads_as_written() {
        let trace = read(include_bytes!("../../samples/youtube.jsonl"), Format::ChatJsonl);
        let Act::Comment(first) = &trace.steps[0].act else { panic!("a comment") };
        assert_eq!((first.author.id.as_str(), first.author.name.as_str()), ("yt:UCexample1", "Eva Example"));
        assert_eq!(first.author.badges, ["moderator", "member"]);
        let n = |of: fn(&Act) -> bool| trace.steps.iter().filter(|step| of(&step.act)).count();
        assert_eq!((n(|act| matches!(act, Act::Comment(_))), n(|act| matches!(act, Act::Gift(_)))), (4, 2));
        let keys: Vec<&str> = trace
            .steps
            .iter()
            .filter_map(|s| if let Act::Gift(g) = &s.act { Some(g.key.as_str()) } else { None })
            .collect();
        assert_eq!(keys[0], keys[1], "the ticker's copy is the same purchase");
        assert_eq!(trace.steps[1].at.as_millis(), 2_250);
        for (why, n) in [("malformed", 2), ("no text", 2), ("not a viewer's comment", 1)] {
            assert_eq!(trace.skipped[why], n, "{why}");
        }
        let deeds: Vec<_> = trace
            .steps
            .iter()
            .filter_map(|s| if let Act::Moderate(deed) = &s.act { Some(deed) } else { None })
            .collect();
        assert!(matches!(deeds[..], [Deed::Hold(held), Deed::Retract(id)] if held.text == HELD_TEXT && id == "a2"));
    }

    #[test]
    fn a_row_without_author_gets_a_stable_one() {
        let trace = read(include_bytes!("../../samples/youtube.jsonl"), Format::ChatJsonl);
        let Some(Act::Comment(last)) = trace.steps.last().map(|step| &step.act) else { panic!("a comment") };
        assert!(last.author.id.starts_with("chat:crowd-"), "{last:?}");
    }

    #[test]
    fn the_vod_sample_is_ordered_by_its_offsets() {
        let trace = read(include_bytes!("../../samples/twitch_vod.jsonl"), Format::TwitchVod);
        let texts = trace.steps.iter().map(|s| match &s.act {
            Act::Comment(c) => (s.at.as_secs(), c.text.as_str(), c.author.id.as_str()),
            Act::Score(_) | Act::Gift(_) | Act::Moderate(_) => panic!("a comment"),
        });
        let texts: Vec<_> = texts.collect();
        assert_eq!(texts, [(0, "hello from the start", "twitch:7001"), (12, "and a goal <3", "twitch:7002")]);
    }

    #[test]
    fn the_unit_of_a_time_is_told_by_its_size() {
        assert_eq!(micros(1_700_000_000), 1_700_000_000_000_000);
        assert_eq!(micros(1_700_000_000_000), 1_700_000_000_000_000);
        assert_eq!(micros(1_700_000_000_000_000), 1_700_000_000_000_000);
    }
}
