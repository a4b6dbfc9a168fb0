//! Bilibili danmaku as XML: video comments (`<d p="offset,mode,size,colour,time,pool,sender,id">`) and the recorder format
//! of live rooms, which adds `<sc>` (paid comment: a gift and its words), `<gift>` and `<guard>`.
//!
//! Offsets are floats with noise. Mode 7 bodies are a JSON array whose fifth element is the text; mode 8 is a script and
//! never text. Files may hold control characters; a broken element costs that element only.

use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesStart, Event};

use super::{Format, Gift, MALFORMED, Order, Rows, SUPERCHAT, Trace, author, money};

pub(super) fn recognise(bytes: &[u8]) -> bool {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(64 * 1024)]);
    head.contains("<i>") && (head.contains("<d ") || head.contains("<chatid>"))
}

pub(super) fn read(bytes: &[u8]) -> Trace {
    let mut rows = Rows::new();
    let mut xml = Reader::from_reader(bytes);
    xml.config_mut().check_end_names = false;
    xml.config_mut().allow_unmatched_ends = true;
    let mut open: Option<Element> = None;
    loop {
        let before = xml.buffer_position();
        match xml.read_event() {
            Ok(Event::Start(tag)) => open = Element::start(&tag, &mut rows),
            Ok(Event::Empty(tag)) => {
                if let Some(element) = Element::start(&tag, &mut rows) {
                    element.finish(&mut rows);
                }
            }
            Ok(Event::Text(text)) => {
                if let Some(element) = &mut open {
                    element.text.push_str(&String::from_utf8_lossy(&text));
                }
            }
            Ok(Event::CData(text)) => {
                if let Some(element) = &mut open {
                    element.text.push_str(&String::from_utf8_lossy(&text));
                }
            }
            Ok(Event::GeneralRef(reference)) => {
                if let Some(element) = &mut open {
                    let name = String::from_utf8_lossy(&reference).into_owned();
                    match (reference.resolve_char_ref(), resolve_predefined_entity(&name)) {
                        (Ok(Some(c)), _) => element.text.push(c),
                        (_, Some(text)) => element.text.push_str(text),
                        // An entity nobody defined stays what the viewer would have seen typed.
                        _ => element.text.push_str(&format!("&{name};")),
                    }
                }
            }
            Ok(Event::End(_)) => {
                if let Some(element) = open.take() {
                    element.finish(&mut rows);
                }
            }
            Ok(Event::Eof) => break,
            Ok(_) => {}
            Err(_) => {
                open = None;
                rows.skip(MALFORMED);
                if xml.buffer_position() == before {
                    break;
                }
            }
        }
    }
    if open.is_some() {
        rows.skip(MALFORMED);
    }
    rows.trace(Format::Bilibili, Order::ByTime)
}

/// One `<d>` or `<sc>` until its end tag.
struct Element {
    at_us: Option<i64>,
    mode: u32,
    sender: Option<String>,
    name: Option<String>,
    /// What was paid for it, in yuan.
    paid: Option<String>,
    text: String,
}

impl Element {
    /// `None` for an element that is no comment; those that are entries are counted as skipped.
    fn start(tag: &BytesStart<'_>, rows: &mut Rows) -> Option<Element> {
        let attribute = |name: &str| {
            let attribute =
                tag.attributes().with_checks(false).flatten().find(|a| a.key.as_ref() == name.as_bytes())?;
            Some(attribute.unescape_value().ok()?.into_owned())
        };
        let seconds = |text: &str| {
            let s: f64 = text.trim().parse().ok()?;
            s.is_finite().then_some((s * 1e6) as i64)
        };
        match tag.name().as_ref() {
            b"d" => {
                let p = attribute("p").unwrap_or_default();
                let p: Vec<&str> = p.split(',').collect();
                let (Some(at_us), Some(mode)) = (seconds(p[0]), p.get(1).and_then(|m| m.parse().ok())) else {
                    rows.skip(MALFORMED);
                    return None;
                };
                let sender = p.get(6).map(|s| (*s).to_owned());
                Some(Element {
                    at_us: Some(at_us),
                    mode,
                    sender,
                    name: attribute("user"),
                    paid: None,
                    text: String::new(),
                })
            }
            b"sc" => {
                let at_us = attribute("ts").and_then(|t| seconds(&t));
                Some(Element {
                    at_us,
                    mode: 1,
                    sender: attribute("uid"),
                    name: attribute("user"),
                    paid: Some(attribute("price").unwrap_or_default()),
                    text: String::new(),
                })
            }
            b"gift" => {
                let number = |name: &str| attribute(name).and_then(|n| n.trim().parse::<u64>().ok());
                let (Some(item), Some(count), Some(price)) =
                    (attribute("giftname"), number("giftcount"), number("price"))
                else {
                    rows.skip(MALFORMED);
                    return None;
                };
                let Some(count) = u32::try_from(count).ok().filter(|n| *n > 0) else {
                    rows.skip(MALFORMED);
                    return None;
                };
                // The coins that are bought and those that are given away; another is told by its own name's start.
                let currency = match attribute("cointype").as_deref() {
                    Some("金瓜子" | "gold") => "gold_seed",
                    Some("银瓜子" | "silver") => "silver_seed",
                    _ => "coin",
                };
                let amount = price.saturating_mul(u64::from(count)).saturating_mul(1_000_000);
                let at_us = attribute("ts").and_then(|t| seconds(&t));
                let uid = attribute("uid").filter(|uid| uid != "0");
                let name = attribute("user");
                let by = author("bili", uid.as_deref().or(name.as_deref()), name.as_deref(), Vec::new(), rows.entry());
                let key = format!("bili:gift:{}:{}", rows.entry(), by.id);
                let currency = currency.to_owned();
                rows.gift(at_us, Gift { key, author: by, item, count, amount_micros: amount, currency }, None);
                None
            }
            b"guard" => {
                rows.skip("membership");
                None
            }
            _ => None,
        }
    }

    fn finish(self, rows: &mut Rows) {
        let text = match self.mode {
            7 => match serde_json::from_str::<Vec<serde_json::Value>>(&self.text) {
                Ok(parts) => parts.get(4).and_then(|t| t.as_str()).unwrap_or_default().to_owned(),
                Err(_) => self.text,
            },
            8 | 9 => return rows.skip("script, not text"),
            _ => self.text,
        };
        let badges = if self.paid.is_some() { vec!["paid".to_owned()] } else { Vec::new() };
        let by = author("bili", self.sender.as_deref(), self.name.as_deref(), badges, rows.entry());
        match self.paid.as_deref().and_then(money::micros) {
            Some(amount_micros) => {
                let key = format!("bili:sc:{}:{}", rows.entry(), by.id);
                let (item, currency) = (SUPERCHAT.to_owned(), "CNY".to_owned());
                rows.gift(self.at_us, Gift { key, author: by, item, count: 1, amount_micros, currency }, Some(&text));
            }
            None => rows.comment(self.at_us, by, &text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::read;
    use crate::trace::Act;

    #[test]
    fn the_sample_reads_in_video_order() {
        let trace = read(include_bytes!("../../samples/bilibili.xml"));
        let got = trace.steps.iter().map(|s| match &s.act {
            Act::Comment(c) => (s.at.as_millis(), c.text.as_str(), c.author.id.as_str()),
            Act::Gift(g) => (s.at.as_millis(), g.item.as_str(), g.author.id.as_str()),
            Act::Score(_) | Act::Moderate(_) => panic!("a comment"),
        });
        let got: Vec<_> = got.collect();
        assert_eq!(
            got,
            [
                (0, "先到 & <第一>", "bili:aaaa0001"),
                (500, "positioned", "bili:aaaa0002"),
                (1_000, "flower", "bili:7"),
                (2_000, "superchat", "bili:42"),
                (2_000, "paid words", "bili:42"),
                (13_810, "later", "bili:aaaa0001"),
            ]
        );
        for (why, n) in [("malformed", 1), ("membership", 1), ("script, not text", 1), ("no text", 1)] {
            assert_eq!(trace.skipped[why], n, "{why}");
        }
    }

    #[test]
    fn files_cut_anywhere_never_panic() {
        let whole = include_bytes!("../../samples/bilibili.xml");
        for end in 0..whole.len() {
            read(&whole[..end]);
        }
    }
}
