//! What a client does in a room, as a call of the API, and what it is told of the answer.
//!
//! A comment and a moderator's command are the same calls that a page or a terminal makes, with the client's own token: whoever decides there decides
//! here, and the audit names who it was. Nothing is decided in this file. Commands are those of Twitch, as clients still send them: a `PRIVMSG` that begins
//! with a slash.
//!
//! The awkward case is a command of Twitch's that this server has no such thing for: it is refused by name and never said aloud in the room.

use grandstand_core::ids::EventId;
use grandstand_core::names::RoomId;
use grandstand_wire::irc::{nick, user_of};
use serde_json::{Value, json};

use super::told::To;
use super::voice::SERVER;

/// Of a timeout that names no time, as on Twitch.
const TIMEOUT_SECONDS: u64 = 600;
/// Of slow mode that names none, as on Twitch.
const SLOW_SECONDS: u64 = 30;
/// What a banned user said within this goes with the ban: a day, the most that a purge takes.
const PURGE_MINUTES: u32 = 1_440;
/// The badge that subscribers-only asks for.
const SUBSCRIBER: &str = "subscriber";
/// Bytes of a reason and a justification. Source: docs/protocol.md, Operators.
const REASON_BYTES_MAX: usize = 200;

/// A call of the API in the client's name.
#[derive(Clone, PartialEq, Debug)]
pub struct Call {
    pub room: RoomId,
    pub method: &'static str,
    pub path: String,
    pub body: Value,
    pub deed: Deed,
}

/// What a call is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Deed {
    /// A comment, with the client's own mark for it.
    Say {
        nonce: Option<String>,
    },
    Ban {
        nick: String,
    },
    Timeout {
        nick: String,
        seconds: u64,
    },
    Unban {
        nick: String,
        timeout: bool,
    },
    Delete {
        id: u64,
    },
    Clear,
    Slow {
        seconds: u64,
    },
    /// `emote_only`, `unique_comment`, `members_only`.
    Mode {
        name: &'static str,
        on: bool,
    },
    /// A newer token for an open stream.
    Renew,
}

/// What a text in a room is.
#[derive(Clone, PartialEq, Debug)]
pub enum Meant<'a> {
    /// To be said.
    Text(&'a str),
    Call(Box<Call>),
    /// To be answered at once, with this `msg-id` and text.
    Refused(&'static str, String),
    /// The client asks to be let go.
    Leave,
}

/// Reads a text that a client says in a room.
pub fn meant<'a>(room: &RoomId, text: &'a str) -> Meant<'a> {
    // An action is its text: a comment has no such mark.
    if let Some(action) = text.strip_prefix("\u{1}ACTION ") {
        return Meant::Text(action.strip_suffix('\u{1}').unwrap_or(action));
    }
    let Some(command) = text.strip_prefix(['/', '.']) else { return Meant::Text(text) };
    let (name, rest) = command.split_once(' ').unwrap_or((command, ""));
    let name = name.to_ascii_lowercase();
    if name == "me" {
        return Meant::Text(rest);
    }
    match deed(room, &name, rest.trim()) {
        Some(meant) => meant,
        // A text may begin with a full stop; what begins with a slash was never meant to be read by everyone.
        None if text.starts_with('.') => Meant::Text(text),
        None => Meant::Refused("unrecognized_cmd", format!("Unrecognized command: /{name}")),
    }
}

/// `None`: there is no command of the name.
fn deed(room: &RoomId, name: &str, rest: &str) -> Option<Meant<'static>> {
    let mut words = rest.split_ascii_whitespace();
    let first = words.next();
    let usage = |id, words: &str| Meant::Refused(id, format!("Usage: {words}"));
    let mode = |member: &'static str, on: bool, value: Value| {
        let body = json!({member: value, "justification": format!("irc /{name}")});
        call(room, "PUT", "", body, Deed::Mode { name: member, on })
    };
    let post = |tail: &str, body, deed| call(room, "POST", tail, body, deed);
    Some(match name {
        "ban" => {
            let Some((user, nick)) = first.and_then(named) else {
                return Some(usage("usage_ban", "/ban <username> [reason]"));
            };
            let reason = line(words);
            let body = json!({"user_id": user, "purge_last_minutes": PURGE_MINUTES, "reason": reason, "justification": why(name, &reason)});
            post("/bans", body, Deed::Ban { nick })
        }
        "timeout" => {
            let Some((user, nick)) = first.and_then(named) else {
                return Some(usage("usage_timeout", "/timeout <username> [duration][time unit] [reason]"));
            };
            let mut words = words.peekable();
            let given = words.next_if(|word| word.starts_with(|c: char| c.is_ascii_digit()));
            let Some(seconds) = given.map_or(Some(TIMEOUT_SECONDS), seconds) else {
                return Some(usage("bad_timeout_duration", "/timeout <username> [duration][s m h d w] [reason]"));
            };
            let reason = line(words);
            let body = json!({"user_id": user, "seconds": seconds, "purge_last_minutes": PURGE_MINUTES, "reason": reason,
                "justification": why(name, &reason)});
            post("/bans", body, Deed::Timeout { nick, seconds })
        }
        "unban" | "untimeout" => {
            let timeout = name == "untimeout";
            let Some((user, nick)) = first.and_then(named) else {
                let id = if timeout { "usage_untimeout" } else { "usage_unban" };
                return Some(usage(id, &format!("/{name} <username>")));
            };
            let body = json!({"justification": why(name, "")});
            call(room, "DELETE", &format!("/bans/{}", escaped(&user)), body, Deed::Unban { nick, timeout })
        }
        "delete" => {
            let id = first.and_then(|id| id.parse().ok()).and_then(EventId::new);
            let Some(id) = id else { return Some(usage("usage_delete", "/delete <msg id>")) };
            let body = json!({"event_id": id.value(), "justification": why(name, "")});
            post("/retract", body, Deed::Delete { id: id.value() })
        }
        "clear" => post("/retract", json!({"all": true, "justification": why(name, "")}), Deed::Clear),
        "slow" | "slowoff" => {
            let given = first.filter(|_| name == "slow");
            let Some(seconds) = given.map_or(Some(if name == "slow" { SLOW_SECONDS } else { 0 }), seconds) else {
                return Some(usage("usage_slow_on", "/slow [seconds]"));
            };
            let body = json!({"seconds": seconds, "justification": why(name, "")});
            post("/slow-mode", body, Deed::Slow { seconds })
        }
        "emoteonly" => mode("emote_only", true, true.into()),
        "emoteonlyoff" => mode("emote_only", false, false.into()),
        "uniquechat" | "r9kbeta" => mode("unique_comment", true, true.into()),
        "uniquechatoff" | "r9kbetaoff" => mode("unique_comment", false, false.into()),
        "subscribers" => mode("members_only", true, SUBSCRIBER.into()),
        "subscribersoff" => mode("members_only", false, Value::Null),
        "disconnect" => Meant::Leave,
        "help" => Meant::Refused(
            "cmds_available",
            "Commands available here: /ban /unban /timeout /untimeout /delete /clear /slow /slowoff /emoteonly /emoteonlyoff /uniquechat /uniquechatoff \
             /subscribers /subscribersoff /me /disconnect"
                .to_owned(),
        ),
        "announce" | "block" | "color" | "commercial" | "followers" | "followersoff" | "host" | "marker" | "mod" | "mods" | "raid" | "shield" | "shieldoff"
        | "shoutout" | "unblock" | "unhost" | "unmod" | "unraid" | "unvip" | "vip" | "vips" | "w" | "whisper" => {
            Meant::Refused("unavailable_command", format!("There is no /{name} on this server."))
        }
        _ => return None,
    })
}

fn call(room: &RoomId, method: &'static str, tail: &str, body: Value, deed: Deed) -> Meant<'static> {
    let path = format!("/admin/rooms/{room}{tail}");
    Meant::Call(Box::new(Call { room: room.clone(), method, path, body, deed }))
}

/// A user as a command names it: the id, and the nick as it is told back.
fn named(word: &str) -> Option<(String, String)> {
    let user = user_of(word.trim_start_matches('@'))?;
    let nick = nick(&user);
    Some((user, nick))
}

/// `90`, `90s`, `5m`, `2h`, `3d`, `1w`.
fn seconds(text: &str) -> Option<u64> {
    let (digits, unit) = match text.char_indices().last()? {
        (at, 's') => (&text[..at], 1),
        (at, 'm') => (&text[..at], 60),
        (at, 'h') => (&text[..at], 3_600),
        (at, 'd') => (&text[..at], 86_400),
        (at, 'w') => (&text[..at], 604_800),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// What is left of a command as one line that is no longer than a reason may be.
fn line<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let mut line = words.collect::<Vec<_>>().join(" ");
    line.retain(|c| !c.is_control());
    cut(line)
}

/// Who did it is in the audit; this says by what.
fn why(name: &str, reason: &str) -> String {
    cut(if reason.is_empty() { format!("irc /{name}") } else { format!("irc /{name}: {reason}") })
}

fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(REASON_BYTES_MAX));
    text
}

/// A user id as a segment of a path.
fn escaped(user: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'~');
    let mut out = String::new();
    for b in user.bytes() {
        if plain(b) { out.push(char::from(b)) } else { out.push_str(&format!("%{b:02X}")) }
    }
    out
}

/// An answer of the API.
#[derive(Clone, PartialEq, Debug)]
pub struct Answer {
    pub status: u16,
    /// `Null` when it has none, or none that is JSON.
    pub body: Value,
}

/// Tells what became of a call.
pub fn answered(to: To<'_>, call: &Call, answer: &Answer, out: &mut Vec<u8>) {
    let mut notice = |id: &str, text: &str| to.voice.notice(Some(to.room), id, text, out);
    if !(200..300).contains(&answer.status) {
        let (id, text) = refusal(&call.deed, answer);
        return notice(id, &text);
    }
    match &call.deed {
        // The caller writes its USERSTATE.
        Deed::Say { .. } if answer.status == 200 => {}
        Deed::Say { .. } => match answer.body["retry_after_ms"].as_u64() {
            Some(ms) => notice(
                "msg_rejected",
                &format!(
                    "Nothing has judged your message yet and it has not been sent. Send it again in {} s.",
                    ms.div_ceil(1_000)
                ),
            ),
            None => notice("msg_rejected", "Hi! Your message is being checked by mods and has not been sent."),
        },
        Deed::Ban { nick } => notice("ban_success", &format!("{nick} is now banned from this channel.")),
        Deed::Timeout { nick, seconds } => {
            notice("timeout_success", &format!("{nick} has been timed out for {seconds} seconds."));
        }
        Deed::Unban { nick, .. } if answer.body["event_id"].is_null() => {
            notice("bad_unban_no_ban", &format!("{nick} is not banned from this channel."));
        }
        Deed::Unban { nick, timeout: true } => {
            notice("untimeout_success", &format!("{nick} is no longer timed out in this channel."));
        }
        Deed::Unban { nick, timeout: false } => {
            notice("unban_success", &format!("{nick} is no longer banned from this channel."));
        }
        Deed::Delete { id } => notice("delete_message_success", &format!("The message {id} is now deleted.")),
        // Told as a CLEARCHAT, like to everybody.
        Deed::Clear | Deed::Renew => {}
        Deed::Slow { seconds: 0 } => notice("slow_off", "This room is no longer in slow mode."),
        Deed::Slow { seconds } => {
            notice("slow_on", &format!("This room is now in slow mode. You may send messages every {seconds} seconds."))
        }
        Deed::Mode { name, on } => {
            let (id, text) = match (*name, *on) {
                ("emote_only", true) => ("emote_only_on", "This room is now in emote-only mode."),
                ("emote_only", false) => ("emote_only_off", "This room is no longer in emote-only mode."),
                ("unique_comment", true) => ("r9k_on", "This room is now in unique-chat mode."),
                ("unique_comment", false) => ("r9k_off", "This room is no longer in unique-chat mode."),
                (_, true) => ("subs_on", "This room is now in subscribers-only mode."),
                (_, false) => ("subs_off", "This room is no longer in subscribers-only mode."),
            };
            notice(id, text);
        }
    }
}

/// A refusal in the words that clients branch on; what Twitch has none for keeps our own code as `msg-id`.
fn refusal(deed: &Deed, answer: &Answer) -> (&'static str, String) {
    let code = answer.body["code"].as_str().unwrap_or_default();
    let detail = answer.body["detail"].as_str().unwrap_or("the server did not answer");
    let says = matches!(deed, Deed::Say { .. });
    let wait = answer.body["retry_after_ms"].as_u64().unwrap_or_default().div_ceil(1_000).max(1);
    let own = |text: &str| text.to_owned();
    match code {
        "rate_limited" if answer.body["reason"] == "slow_mode" => {
            let text = format!("This room is in slow mode. You may send a message in {wait} seconds.");
            ("msg_slowmode", text)
        }
        "rate_limited" => {
            ("msg_ratelimit", own("Your message was not sent because you are sending messages too quickly."))
        }
        "banned" => ("msg_banned", own("You are banned from talking in this channel.")),
        "moderation_failed" => (
            "msg_rejected_mandatory",
            own("Your message wasn't posted: it is against this channel's moderation settings."),
        ),
        "not_unique" => {
            ("msg_r9k", own("This room is in unique-chat mode and the message you attempted to send is not unique."))
        }
        "emote_only" => ("msg_emoteonly", own("This room is in emote-only mode.")),
        "members_only" => ("msg_subsonly", own("This room is in subscribers-only mode.")),
        "room_state" if says => ("msg_suspended", own("This room is closed.")),
        "bad_text" => ("msg_bad_characters", format!("Your message was not sent: {detail}.")),
        "too_long" => ("too_long", format!("Your message was not sent: {detail}.")),
        "no_such_room" => ("msg_room_not_found", own("There is no such channel.")),
        "blackout" => ("msg_channel_suspended", own("This channel may not be shown where you are.")),
        "not_allowed" | "no_token" if says => ("no_permission", own("You may not talk in this channel.")),
        "not_allowed" | "no_token" => ("no_permission", own("You don't have permission to perform that action.")),
        "bad_token" => {
            ("no_permission", own("Your token is not taken any more: send PASS with a newer one, or log in again."))
        }
        _ => (own_code(code), detail.to_owned()),
    }
}

/// Our own codes that may come of a comment or of moderation, as a `msg-id`.
fn own_code(code: &str) -> &'static str {
    const CODES: [&str; 12] = [
        "bad_field",
        "bad_reply",
        "bad_request",
        "idempotency_conflict",
        "no_space",
        "not_built",
        "not_found",
        "not_ready",
        "outcome_unknown",
        "overloaded",
        "room_state",
        "server_fault",
    ];
    CODES.into_iter().find(|known| *known == code).unwrap_or("server_fault")
}

/// What the user itself is told of itself in a room.
pub struct Own<'a> {
    pub badges: String,
    pub display: &'a str,
    pub moderates: bool,
    /// Of the comment that was said just now.
    pub said: Option<(String, Option<&'a str>)>,
}

impl Own<'_> {
    pub fn write(&self, to: To<'_>, out: &mut Vec<u8>) {
        if !to.voice.commands {
            return;
        }
        let mut tags = of_self(self.badges.clone(), self.display, self.moderates);
        if let Some((id, nonce)) = &self.said {
            tags.push(("id", id.clone()));
            if let Some(nonce) = nonce {
                tags.push(("client-nonce", (*nonce).to_owned()));
            }
        }
        to.voice.line(&tags, SERVER, "USERSTATE", out).param(&super::voice::channel(to.room)).end();
    }
}

pub fn of_self(badges: String, display: &str, moderates: bool) -> super::voice::Tags<'static> {
    vec![
        ("badge-info", String::new()),
        ("badges", badges),
        ("color", String::new()),
        ("display-name", display.to_owned()),
        ("emote-sets", "0".to_owned()),
        ("mod", super::voice::flag(moderates)),
        ("subscriber", super::voice::flag(false)),
        ("user-type", if moderates { "mod" } else { "" }.to_owned()),
    ]
}

#[cfg(test)]
mod tests {
    use grandstand_core::names::RoomId;
    use grandstand_core::time::Wall;
    use serde_json::{Value, json};

    use super::{Answer, Call, Deed, Meant, answered, meant};
    use crate::gateway::irc::told::To;
    use crate::gateway::irc::voice::Voice;

    fn room() -> RoomId {
        RoomId::parse("r").expect("a room")
    }

    fn asked(text: &str) -> Call {
        match meant(&room(), text) {
            Meant::Call(call) => *call,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn a_text_is_a_text_unless_it_begins_with_a_slash() {
        assert_eq!(meant(&room(), "hi /ban x"), Meant::Text("hi /ban x"));
        assert_eq!(meant(&room(), "...well"), Meant::Text("...well"));
        assert_eq!(meant(&room(), "/me waves"), Meant::Text("waves"));
        assert_eq!(meant(&room(), "\u{1}ACTION waves\u{1}"), Meant::Text("waves"));
        for unknown in ["/dance", "/ban2 x", "/"] {
            assert!(matches!(meant(&room(), unknown), Meant::Refused("unrecognized_cmd", _)), "{unknown}");
        }
        assert!(matches!(meant(&room(), "/followers 10m"), Meant::Refused("unavailable_command", _)));
        assert_eq!(meant(&room(), "/disconnect"), Meant::Leave);
    }

    #[test]
    fn commands_are_calls_of_the_operators_api() {
        let ban = asked("/ban @Alice being rude");
        assert_eq!((ban.method, &*ban.path), ("POST", "/admin/rooms/r/bans"));
        assert_eq!(
            ban.body,
            json!({"user_id": "alice", "purge_last_minutes": 1440, "reason": "being rude", "justification": "irc /ban: being rude"})
        );
        let timeout = asked(".timeout bob 5m");
        assert_eq!((&timeout.body["seconds"], &timeout.body["user_id"]), (&json!(300), &json!("bob")));
        assert_eq!(asked("/timeout bob").body["seconds"], 600);
        assert_eq!(asked("/timeout bob spam").body["reason"], "spam");
        let unban = asked("/unban ^42ob^2fx");
        assert_eq!((unban.method, &*unban.path), ("DELETE", "/admin/rooms/r/bans/Bob%2Fx"));
        assert_eq!(
            asked("/delete 8589934599").body,
            json!({"event_id": 8_589_934_599_u64, "justification": "irc /delete"})
        );
        assert_eq!(asked("/clear").body["all"], true);
        assert_eq!(
            (asked("/slow").body["seconds"].clone(), asked("/slow 5").body["seconds"].clone()),
            (30.into(), 5.into())
        );
        assert_eq!(asked("/slowoff").body["seconds"], 0);
        assert_eq!(
            asked("/subscribersoff").body,
            json!({"members_only": null, "justification": "irc /subscribersoff"})
        );
        assert_eq!(asked("/emoteonly").method, "PUT");
    }

    #[test]
    fn a_command_that_lacks_something_says_how_it_is_used() {
        for (text, id) in [
            ("/ban", "usage_ban"),
            ("/ban ^zz", "usage_ban"),
            ("/timeout", "usage_timeout"),
            ("/timeout bob 5y", "bad_timeout_duration"),
            ("/timeout bob 99999999999999999999", "bad_timeout_duration"),
            ("/timeout bob 30000000000000000000w", "bad_timeout_duration"),
            ("/unban", "usage_unban"),
            ("/untimeout", "usage_untimeout"),
            ("/delete x", "usage_delete"),
            ("/delete 0", "usage_delete"),
            ("/slow fast", "usage_slow_on"),
        ] {
            assert!(matches!(meant(&room(), text), Meant::Refused(found, _) if found == id), "{text}");
        }
    }

    #[test]
    fn a_reason_is_one_line_of_two_hundred_bytes() {
        let ban = asked(&format!("/ban bob {}\u{7}{}", "é".repeat(80), "é".repeat(80)));
        let reason = ban.body["reason"].as_str().expect("text");
        assert_eq!((reason.len(), reason.chars().all(|c| c == 'é')), (200, true));
        assert!(ban.body["justification"].as_str().is_some_and(|why| why.len() <= 200));
    }

    fn told(text: &str, status: u16, body: Value) -> String {
        let room = room();
        let to = To { voice: Voice { tags: true, commands: true }, room: &room, now: Wall(0) };
        let call = match text {
            "say" => Call { deed: Deed::Say { nonce: None }, ..asked("/clear") },
            text => asked(text),
        };
        let mut out = Vec::new();
        answered(to, &call, &Answer { status, body }, &mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn answers_are_notices_that_clients_branch_on() {
        let problem =
            |code: &str| json!({"code": code, "detail": "why", "reason": "user_rate", "retry_after_ms": 1_200});
        for (text, status, body, id) in [
            ("/ban bob", 200, json!({"event_id": 5}), "ban_success"),
            ("/timeout bob 1", 200, json!({}), "timeout_success"),
            ("/unban bob", 200, json!({"event_id": null}), "bad_unban_no_ban"),
            ("/unban bob", 200, json!({"event_id": 5}), "unban_success"),
            ("/delete 8589934599", 200, json!({"event_id": 6}), "delete_message_success"),
            ("/slow 5", 200, json!({"version": 6}), "slow_on"),
            ("/slowoff", 200, json!({"version": 6}), "slow_off"),
            ("/uniquechat", 200, json!({}), "r9k_on"),
            ("/ban bob", 403, problem("not_allowed"), "no_permission"),
            ("say", 403, problem("not_allowed"), "no_permission"),
            ("say", 403, problem("banned"), "msg_banned"),
            ("say", 429, problem("rate_limited"), "msg_ratelimit"),
            (
                "say",
                429,
                json!({"code": "rate_limited", "reason": "slow_mode", "retry_after_ms": 4_001}),
                "msg_slowmode",
            ),
            ("say", 422, problem("moderation_failed"), "msg_rejected_mandatory"),
            ("say", 202, json!({"type": "moderation_pending"}), "msg_rejected"),
            ("say", 422, problem("not_unique"), "msg_r9k"),
            ("say", 503, problem("overloaded"), "overloaded"),
            ("say", 599, problem("what is this"), "server_fault"),
            ("say", 0, Value::Null, "server_fault"),
        ] {
            let line = told(text, status, body);
            assert!(line.starts_with(&format!("@msg-id={id} :tmi.twitch.tv NOTICE #r :")), "{text} {status}: {line}");
        }
        assert!(
            told("say", 429, json!({"code": "rate_limited", "reason": "slow_mode", "retry_after_ms": 4_001}))
                .contains("in 5 seconds")
        );
        assert_eq!(told("say", 200, json!({"event_id": 5})), "");
        assert_eq!(told("/clear", 200, json!({"event_id": 5})), "");
    }
}
