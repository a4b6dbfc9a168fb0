//! TikTok live events as JSON Lines: `{"event": name, "data": {…}}`. Of them chat and gifts are played.
//!
//! A gift that is tapped again and again comes as one event after another with a growing `repeatCount`, the last with
//! `repeatEnd`: each is played as what it adds to the one before it.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Format, Gift, MALFORMED, NO_TEXT, Order, Rows, Trace, author, lines};

/// The platform's own coin.
const CURRENCY: &str = "diamond";

pub(super) fn recognise(row: &Value) -> bool {
    row.get("event").is_some_and(Value::is_string) && row.get("data").is_some_and(Value::is_object)
}

pub(super) fn read(bytes: &[u8]) -> Trace {
    let mut rows = Rows::new();
    // How far each tapped gift has come.
    let mut runs: BTreeMap<(String, u64), u64> = BTreeMap::new();
    for line in lines(bytes) {
        let row = line.ok().and_then(|l| serde_json::from_str::<Value>(l).ok()).filter(recognise);
        let Some(row) = row else {
            rows.skip(MALFORMED);
            continue;
        };
        let (event, data) = (row["event"].as_str().unwrap_or_default(), &row["data"]);
        let text = |name: &str| data.get(name).and_then(Value::as_str);
        let millis = text("createTime").and_then(|t| t.parse::<i64>().ok());
        let at_us = millis.map(|ms| ms.saturating_mul(1_000));
        let by = author("tiktok", text("userId"), text("nickname"), Vec::new(), rows.entry());
        match event {
            "chat" => match text("comment") {
                Some(said) => rows.comment(at_us, by, said),
                None => rows.skip(NO_TEXT),
            },
            "gift" => {
                let number = |name: &str| data.get(name).and_then(Value::as_u64);
                let (Some(gift_id), Some(count)) = (number("giftId"), number("repeatCount")) else {
                    rows.skip(MALFORMED);
                    continue;
                };
                // Without a group it stands alone, under its message's id.
                let group = text("groupId").or_else(|| text("msgId")).unwrap_or_default().to_owned();
                let before = runs.insert((format!("{}:{group}", by.id), gift_id), count).unwrap_or(0);
                let added = count.saturating_sub(before);
                let Some(count) = u32::try_from(added).ok().filter(|n| *n > 0) else {
                    rows.skip("a gift's end that adds nothing");
                    continue;
                };
                let item = text("giftName").map_or_else(|| format!("gift {gift_id}"), str::to_owned);
                let price = number("diamondCount").unwrap_or(0);
                rows.gift(
                    at_us,
                    Gift {
                        key: format!("{}:{group}:{gift_id}:{}", by.id, before + added),
                        author: by,
                        item,
                        count,
                        amount_micros: price.saturating_mul(added).saturating_mul(1_000_000),
                        currency: CURRENCY.to_owned(),
                    },
                    None,
                );
            }
            other => rows.skip(&format!("{other}: no comment and no gift")),
        }
    }
    rows.trace(Format::Tiktok, Order::AsWritten)
}

#[cfg(test)]
mod tests {
    use super::read;
    use crate::trace::Act;

    #[test]
    fn a_tapped_gift_is_what_each_event_adds() {
        let trace = read(include_bytes!("../../samples/tiktok.jsonl"));
        let gifts = trace.steps.iter().filter_map(|step| match &step.act {
            Act::Gift(gift) => Some((gift.item.as_str(), gift.count, gift.amount_micros)),
            _ => None,
        });
        assert_eq!(
            gifts.collect::<Vec<_>>(),
            [("rose", 1, 1_000_000), ("rose", 4, 4_000_000), ("galaxy", 1, 1_000_000_000)]
        );
        assert!(matches!(&trace.steps[0].act, Act::Comment(c) if c.text == "hello"));
        assert_eq!(trace.skipped["a gift's end that adds nothing"], 1);
        assert_eq!(trace.skipped["like: no comment and no gift"], 1);
    }
}
