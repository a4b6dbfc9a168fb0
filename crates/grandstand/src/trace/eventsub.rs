//! Twitch's moderation events as JSON Lines: what a channel's moderators and its automatic moderation did.
//!
//! A catalogue rather than a capture: hardly a line has a time, and each was taken by itself. What a server of this kind can do is a
//! deed; what only Twitch has (raids, followers-only chat, word lists kept by the platform) is skipped under its own name.

use grandstand_wire::stamp;
use serde_json::Value;

use super::{Author, Comment, Deed, Format, MALFORMED, Order, Rows, Trace, author, lines};

/// A time-out of which the recording does not say when it began.
const TIMEOUT_SECONDS: u64 = 600;

pub(super) fn recognise(row: &Value) -> bool {
    let kind = row.get("type").and_then(Value::as_str).unwrap_or_default();
    (kind.starts_with("automod.") || kind.starts_with("channel.")) && row.get("event").is_some_and(Value::is_object)
}

pub(super) fn read(bytes: &[u8]) -> Trace {
    let mut rows = Rows::new();
    for line in lines(bytes) {
        let row = line.ok().and_then(|l| serde_json::from_str::<Value>(l).ok()).filter(recognise);
        match row {
            None => rows.skip(MALFORMED),
            Some(row) => event(&mut rows, row["type"].as_str().unwrap_or_default(), &row["event"]),
        }
    }
    rows.trace(Format::TwitchEventsub, Order::AsWritten)
}

fn event(rows: &mut Rows, kind: &str, event: &Value) {
    match kind {
        "automod.message.hold" | "channel.chat.user_message_hold" => hold(rows, event),
        "automod.message.update" | "channel.chat.user_message_update" => {
            let id = event["message_id"].as_str().unwrap_or_default().to_owned();
            match event["status"].as_str() {
                Some("approved") => rows.deed(None, Deed::Decide { id, approve: true }),
                Some("denied") => rows.deed(None, Deed::Decide { id, approve: false }),
                // The room's own time ends it.
                Some("expired") => rows.skip("a wait that ended by itself"),
                _ => rows.skip("an update without a status"),
            }
        }
        "channel.ban" => {
            let until = event["ends_at"].as_str();
            ban(rows, event, event["banned_at"].as_str().zip(until), until.is_some());
        }
        "channel.moderate" => moderate(rows, event),
        "channel.suspicious_user.message" => match event["message"]["text"].as_str() {
            Some(text) => rows.comment(None, by(rows, event), text),
            None => rows.skip(MALFORMED),
        },
        other => rows.skip(&format!("of Twitch alone: {other}")),
    }
}

fn moderate(rows: &mut Rows, event: &Value) {
    let action = event["action"].as_str().unwrap_or_default();
    // What was done in a channel that shares its chat is done in this one too.
    let what = action.strip_prefix("shared_chat_").unwrap_or(action);
    let about = &event[action];
    let put = |member, value| Deed::Put { member, value };
    match what {
        "ban" => ban(rows, about, None, false),
        "timeout" => ban(rows, about, event["__timestamp"].as_str().zip(about["expires_at"].as_str()), true),
        "unban" | "untimeout" => rows.deed(None, Deed::Unban(by(rows, about).id)),
        "approve_unban_request" => rows.deed(None, Deed::Unban(by(rows, &event["unban_request"]).id)),
        "delete" => rows.retract(None, about["message_id"].as_str()),
        "clear" => rows.deed(None, Deed::RetractAll),
        "slow" => rows.deed(None, Deed::SlowMode(about["wait_time_seconds"].as_u64().unwrap_or(0).min(600) as u32)),
        "slowoff" => rows.deed(None, Deed::SlowMode(0)),
        "emoteonly" | "emoteonlyoff" => rows.deed(None, put("emote_only", (what == "emoteonly").into())),
        "uniquechat" | "uniquechatoff" => rows.deed(None, put("unique_comment", (what == "uniquechat").into())),
        "subscribers" => rows.deed(None, put("members_only", "subscriber".into())),
        "subscribersoff" => rows.deed(None, put("members_only", Value::Null)),
        other => rows.skip(&format!("of Twitch alone: {other}")),
    }
}

/// `times`: when it began and when it ends.
fn ban(rows: &mut Rows, about: &Value, times: Option<(&str, &str)>, ends: bool) {
    let lasts = times.and_then(|(from, to)| Some(stamp::parse(to)?.since(stamp::parse(from)?)));
    // Twitch counts it from a moment before it says so.
    let seconds = ends.then(|| lasts.map_or(TIMEOUT_SECONDS, |lasts| lasts.as_millis().div_ceil(1_000).max(1) as u64));
    rows.deed(None, Deed::Ban { user: by(rows, about).id, seconds });
}

fn hold(rows: &mut Rows, event: &Value) {
    let (Some(id), Some(text)) = (event["message_id"].as_str(), event["message"]["text"].as_str()) else {
        return rows.skip(MALFORMED);
    };
    let said = Comment { author: by(rows, event), text: text.to_owned(), id: Some(id.to_owned()) };
    rows.deed(None, Deed::Hold(said));
}

fn by(rows: &Rows, event: &Value) -> Author {
    let text = |key: &str| event.get(key).and_then(Value::as_str);
    author("twitch", text("user_id"), text("user_name"), Vec::new(), rows.entry())
}

#[cfg(test)]
mod tests {
    use super::{Deed, read};
    use crate::trace::Act;

    #[test]
    fn the_sample_reads_as_written() {
        let trace = read(include_bytes!("../../samples/twitch_eventsub.jsonl"));
        let deeds: Vec<&Deed> = trace
            .steps
            .iter()
            .filter_map(|s| if let Act::Moderate(deed) = &s.act { Some(deed) } else { None })
            .collect();
        assert_eq!(deeds.len(), 9);
        assert!(matches!(deeds[0], Deed::Hold(held) if held.text == "rude word" && held.author.id == "twitch:7"));
        assert_eq!(*deeds[1], Deed::Decide { id: "m-1".into(), approve: true });
        assert_eq!(*deeds[2], Deed::Ban { user: "twitch:8".into(), seconds: None });
        assert_eq!(*deeds[3], Deed::Ban { user: "twitch:8".into(), seconds: Some(600) });
        assert_eq!(*deeds[4], Deed::Unban("twitch:8".into()));
        assert_eq!(*deeds[5], Deed::SlowMode(10));
        assert_eq!(*deeds[6], Deed::Put { member: "emote_only", value: true.into() });
        assert_eq!(*deeds[7], Deed::Put { member: "emote_only", value: false.into() });
        assert_eq!(*deeds[8], Deed::RetractAll);
        let skipped: Vec<(&str, u64)> = trace.skipped.iter().map(|(why, n)| (why.as_str(), *n)).collect();
        assert_eq!(
            skipped,
            [("a deletion of what the recording does not hold", 1), ("malformed", 1), ("of Twitch alone: raid", 1)]
        );
    }
}
