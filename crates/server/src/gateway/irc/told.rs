//! What a room's stream tells, as IRC lines.
//!
//! A comment is a `PRIVMSG`; gifts, scores and banners are `USERNOTICE`s, or notices in words for plain clients; a retract is
//! `CLEARMSG` or `CLEARCHAT`; slow mode is `ROOMSTATE`. What is retracted is not said again: a `CLEARMSG` names the comment and does
//! not repeat it, as Twitch's does.
//!
//! The awkward case is what a line needs and an event does not say: who wrote the comment that is taken back or answered. The last
//! few authors of a room are kept for that; of an older one nothing is made up.

use std::collections::VecDeque;

use grandstand_core::names::RoomId;
use grandstand_core::time::Wall;
use grandstand_wire::{amount, stamp};
use serde_json::Value;

use super::voice::{SERVER, Tags, Voice, badges, channel, flag, nick_of, source};

/// Comments of a room whose authors are remembered: what is answered or taken back is seldom older (about 25 KB at most).
const RECENT_MAX: usize = 64;
/// Twitch's word for a purge: a timeout that is over at once.
const PURGE_SECONDS: &str = "1";

/// Who wrote a comment.
struct Said {
    id: u64,
    user: Box<str>,
    display: Box<str>,
}

#[derive(Default)]
pub struct Recent(VecDeque<Said>);

impl Recent {
    fn note(&mut self, id: u64, user: &str, display: &str) {
        if self.0.len() == RECENT_MAX {
            self.0.pop_front();
        }
        self.0.push_back(Said { id, user: user.into(), display: display.into() });
    }

    fn find(&self, id: u64) -> Option<&Said> {
        self.0.iter().rev().find(|said| said.id == id)
    }
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}

/// To whom something is told, of which room, and when.
#[derive(Clone, Copy)]
pub struct To<'a> {
    pub voice: Voice,
    pub room: &'a RoomId,
    pub now: Wall,
}

impl To<'_> {
    /// The `tmi-sent-ts` of an event: its own time, or now for one that says none.
    fn sent(self, event: &Value) -> String {
        stamp::parse(text(event, "ts")).unwrap_or(self.now).0.to_string()
    }
}

/// The tags that tell of a user.
fn of_user(user: &Value, tags: &mut Tags<'_>) {
    let list: Vec<&str> = user["badges"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let has = |names: &[&str]| list.iter().any(|badge| names.contains(&badge.split('/').next().unwrap_or_default()));
    let is_mod = has(&["moderator", "mod"]);
    tags.extend([
        ("badge-info", String::new()),
        ("badges", badges(list.iter().copied())),
        ("color", String::new()),
        ("display-name", text(user, "display").to_owned()),
        ("emotes", String::new()),
        ("flags", String::new()),
        ("mod", flag(is_mod)),
        ("subscriber", flag(has(&["subscriber"]))),
        ("turbo", flag(false)),
        ("user-id", text(user, "id").to_owned()),
        ("user-type", if is_mod { "mod" } else { "" }.to_owned()),
    ]);
}

/// A comment, unless it is this connection's own: who says something is not told that it did.
pub fn comment(to: To<'_>, event: &Value, own: &str, recent: &mut Recent, out: &mut Vec<u8>) {
    let user = &event["user"];
    let id = event["event_id"].as_u64().unwrap_or_default();
    recent.note(id, text(user, "id"), text(user, "display"));
    if text(event, "client_msg_id").starts_with(own) {
        return;
    }
    let mut tags = Tags::new();
    of_user(user, &mut tags);
    tags.push(("id", id.to_string()));
    if let Some(parent) = event["reply_to"].as_u64() {
        tags.push(("reply-parent-msg-id", parent.to_string()));
        if let Some(said) = recent.find(parent) {
            tags.push(("reply-parent-user-id", said.user.to_string()));
            tags.push(("reply-parent-user-login", nick_of(&said.user)));
            tags.push(("reply-parent-display-name", said.display.to_string()));
        }
    }
    if let Some(repeats) = event["repeats"].as_u64() {
        tags.push(("repeats", repeats.to_string()));
    }
    tags.push(("room-id", to.room.to_string()));
    tags.push(("tmi-sent-ts", to.sent(event)));
    let from = source(&nick_of(text(user, "id")));
    to.voice.line(&tags, &from, "PRIVMSG", out).param(&channel(to.room)).text(text(event, "body"));
}

/// A notice that has tags of its own, or is told in words.
struct Notice<'a> {
    /// Twitch's `msg-id`, or one of our own.
    id: &'a str,
    user: Value,
    event_id: String,
    words: String,
    params: Tags<'a>,
    /// A text beside the words, as an announcement has one.
    body: Option<String>,
    sent: String,
}

impl Notice<'_> {
    fn write(self, to: To<'_>, out: &mut Vec<u8>) {
        if !to.voice.commands {
            return to.voice.notice(Some(to.room), "", &self.words, out);
        }
        let mut tags = Tags::new();
        of_user(&self.user, &mut tags);
        tags.extend([
            ("id", self.event_id),
            ("login", nick_of(text(&self.user, "id"))),
            ("msg-id", self.id.to_owned()),
        ]);
        tags.extend(self.params);
        tags.extend([("room-id", to.room.to_string()), ("system-msg", self.words), ("tmi-sent-ts", self.sent)]);
        let line = to.voice.line(&tags, SERVER, "USERNOTICE", out).param(&channel(to.room));
        match self.body {
            Some(body) => line.text(&body),
            None => line.end(),
        }
    }
}

/// In whose name scores and banners are told. No user can say a `USERNOTICE`, so none can say one in this name.
fn service() -> Value {
    serde_json::json!({"id": "grandstand", "display": "Grandstand", "badges": []})
}

/// `gift` and `gift_combo`.
pub fn gift(to: To<'_>, event: &Value, out: &mut Vec<u8>) {
    let is_combo = text(event, "type") == "gift_combo";
    let (item, count) = (text(event, "item"), event["count"].as_u64().unwrap_or_default());
    let (micros, currency) = (event["amount_micros"].as_u64().unwrap_or_default(), text(event, "currency"));
    let name = text(&event["user"], "display");
    let gave = if is_combo { "has given" } else { "gave" };
    let mut params: Tags<'_> = vec![
        ("msg-param-amount-micros", micros.to_string()),
        ("msg-param-count", count.to_string()),
        ("msg-param-currency", currency.to_owned()),
        ("msg-param-item", item.to_owned()),
    ];
    if is_combo {
        params.push(("msg-param-combo-id", event["combo_id"].as_u64().unwrap_or_default().to_string()));
        params.push(("msg-param-ended", flag(event["ended"].as_bool().unwrap_or_default())));
        params.push(("msg-param-gifts", event["gifts"].as_u64().unwrap_or_default().to_string()));
    } else {
        params.push(("msg-param-gift-id", text(event, "gift_id").to_owned()));
    }
    let notice = Notice {
        id: if is_combo { "gift-combo" } else { "gift" },
        user: event["user"].clone(),
        event_id: event["event_id"].as_u64().unwrap_or_default().to_string(),
        words: format!("{name} {gave} {count} x {item} ({} {currency})", amount::text(micros)),
        params,
        body: None,
        sent: to.sent(event),
    };
    notice.write(to, out);
}

/// A score, as an announcement: stock clients show one, and a bot reads the numbers from its tags.
pub fn score(to: To<'_>, event: &Value, out: &mut Vec<u8>) {
    let (home, away) = (&event["score"]["home"], &event["score"]["away"]);
    let (home, away) = (home.as_u64().unwrap_or_default(), away.as_u64().unwrap_or_default());
    let (kind, state, minute) = (text(event, "kind"), text(event, "state"), text(event, "minute"));
    let mut words = format!("{} {home}:{away}, {kind}", text(event, "match_id"));
    if !minute.is_empty() {
        words += &format!(" ({minute})");
    }
    if state != "confirmed" {
        words += &format!(", {state}");
    }
    let is = |key: &str| event[key].as_bool().unwrap_or_default();
    if is("superseded") {
        words += ", superseded";
    }
    let params = vec![
        ("msg-param-away", away.to_string()),
        ("msg-param-color", "PRIMARY".to_owned()),
        ("msg-param-historical", flag(is("historical"))),
        ("msg-param-home", home.to_string()),
        ("msg-param-key", text(event, "key").to_owned()),
        ("msg-param-kind", kind.to_owned()),
        ("msg-param-match-id", text(event, "match_id").to_owned()),
        ("msg-param-minute", minute.to_owned()),
        ("msg-param-revision", event["revision"].as_u64().unwrap_or_default().to_string()),
        ("msg-param-state", state.to_owned()),
        ("msg-param-superseded", flag(is("superseded"))),
    ];
    let notice = Notice {
        id: "announcement",
        user: service(),
        event_id: event["event_id"].as_u64().unwrap_or_default().to_string(),
        body: Some(words.clone()),
        words,
        params,
        sent: to.sent(event),
    };
    notice.write(to, out);
}

/// A banner of the site, as an announcement. One that ended is not told: nothing of IRC can take it down.
pub fn banner(to: To<'_>, event: &Value, out: &mut Vec<u8>) {
    let body = text(event, "body");
    if body.is_empty() || event["ended"].as_bool().unwrap_or_default() {
        return;
    }
    let notice = Notice {
        id: "announcement",
        user: service(),
        event_id: text(event, "banner_id").to_owned(),
        body: Some(body.to_owned()),
        words: body.to_owned(),
        params: vec![
            ("msg-param-banner-id", text(event, "banner_id").to_owned()),
            ("msg-param-color", "ORANGE".to_owned()),
        ],
        sent: to.sent(event),
    };
    notice.write(to, out);
}

/// Comments are taken back. A plain client is not told: it cannot take a line off a screen.
pub fn retract(to: To<'_>, event: &Value, recent: &Recent, out: &mut Vec<u8>) {
    if !to.voice.commands {
        return;
    }
    let mut tags: Tags<'_> = vec![("room-id", to.room.to_string()), ("tmi-sent-ts", to.sent(event))];
    if let Some(target) = event["target_event_id"].as_u64() {
        let login = recent.find(target).map_or_else(String::new, |said| nick_of(&said.user));
        tags.extend([("login", login), ("target-msg-id", target.to_string())]);
        return to.voice.line(&tags, SERVER, "CLEARMSG", out).param(&channel(to.room)).text("(deleted)");
    }
    let user = text(event, "user_id");
    if user.is_empty() {
        return to.voice.line(&tags, SERVER, "CLEARCHAT", out).param(&channel(to.room)).end();
    }
    // Viewers are not told who is banned: what is told is that what this user said is gone.
    tags.extend([("ban-duration", PURGE_SECONDS.to_owned()), ("target-user-id", user.to_owned())]);
    to.voice.line(&tags, SERVER, "CLEARCHAT", out).param(&channel(to.room)).text(&nick_of(user));
}

/// What `ROOMSTATE` has a tag for: the tag, and the setting's own name.
const STATES: [(&str, &str); 4] = [
    ("emote-only", "emote_only"),
    ("r9k", "unique_comment"),
    ("slow", "slow_mode_seconds"),
    ("subs-only", "members_only"),
];

fn state(value: &Value) -> String {
    match value {
        Value::Number(seconds) => seconds.to_string(),
        // The badge that may comment.
        Value::String(_) => flag(true),
        value => flag(value.as_bool().unwrap_or_default()),
    }
}

/// The whole state of a room, when it is joined.
pub fn room_state(to: To<'_>, config: &Value, out: &mut Vec<u8>) {
    if !to.voice.commands {
        return;
    }
    // There are no followers: -1 is off.
    let mut tags = vec![("followers-only", "-1".to_owned()), ("room-id", to.room.to_string())];
    tags.extend(STATES.map(|(tag, key)| (tag, state(&config[key]))));
    tags.sort();
    to.voice.line(&tags, SERVER, "ROOMSTATE", out).param(&channel(to.room)).end();
}

/// What of a room's settings changed, as far as IRC has words for it.
pub fn config(to: To<'_>, event: &Value, out: &mut Vec<u8>) {
    // Each in a line of its own, as on Twitch: tmi.js takes one with several for a JOIN's.
    for (tag, key) in STATES.iter().filter(|_| to.voice.commands) {
        let Some(value) = event.get(key) else { continue };
        let tags = vec![("room-id", to.room.to_string()), (*tag, state(value))];
        to.voice.line(&tags, SERVER, "ROOMSTATE", out).param(&channel(to.room)).end();
    }
    if let Some(sampled) = event["sampled"].as_bool() {
        self::sampled(to, sampled, out);
    }
    if let Some(state) = event["state"].as_str() {
        to.voice.notice(Some(to.room), "room_state", &format!("This room is {state} now."), out);
    }
}

/// Told once; from then on there are fewer lines, and nobody is told of each that is not there.
pub fn sampled(to: To<'_>, on: bool, out: &mut Vec<u8>) {
    let (id, words) = match on {
        true => ("sampled_on", "More is said here than anybody reads: you are shown a part of it."),
        false => ("sampled_off", "You are shown everything that is said here."),
    };
    to.voice.notice(Some(to.room), id, words, out);
}

#[cfg(test)]
mod tests {
    use grandstand_core::names::RoomId;
    use grandstand_core::time::Wall;
    use grandstand_wire::irc::Line;
    use serde_json::{Value, json};

    use super::{Recent, To, banner, comment, config, gift, retract, room_state, score};
    use crate::gateway::irc::voice::Voice;

    const NOW: Wall = Wall(1_000);

    thread_local! {
        static ROOM: &'static RoomId = Box::leak(Box::new(RoomId::parse("final").expect("a room")));
    }

    fn all() -> To<'static> {
        To { voice: Voice { tags: true, commands: true }, room: ROOM.with(|room| *room), now: NOW }
    }

    fn plain() -> To<'static> {
        To { voice: Voice::default(), ..all() }
    }

    fn said(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).expect("text")
    }

    fn says(id: u64, body: &str) -> Value {
        json!({"type": "comment", "event_id": id, "user": {"id": "u1", "display": "Ann B", "badges": ["moderator"]},
            "body": body, "ts": "2026-05-17T20:14:33.122Z"})
    }

    #[test]
    fn a_comment_is_a_privmsg_with_the_tags_that_clients_ask_for() {
        let line = said(|out| comment(all(), &says(7, "hi there"), "irc-1-", &mut Recent::default(), out));
        let line = Line::parse(line.trim_end()).expect("a line");
        assert_eq!((line.source, line.verb), (Some("u1!u1@u1.tmi.twitch.tv"), "PRIVMSG"));
        assert_eq!(line.params, ["#final", "hi there"]);
        for (key, value) in [
            ("id", "7"),
            ("display-name", "Ann B"),
            ("badges", "moderator/1"),
            ("color", ""),
            ("emotes", ""),
            ("mod", "1"),
            ("tmi-sent-ts", "1779048873122"),
            ("room-id", "final"),
            ("user-id", "u1"),
            ("user-type", "mod"),
        ] {
            assert_eq!(line.tag(key), Some(value), "{key}");
        }
        let words = said(|out| comment(plain(), &says(7, "hi"), "irc-1-", &mut Recent::default(), out));
        assert_eq!(words, ":u1!u1@u1.tmi.twitch.tv PRIVMSG #final :hi\r\n");
    }

    #[test]
    fn no_comment_can_forge_a_line() {
        let evil = says(7, "a\nPING :x\r\n:tmi.twitch.tv RECONNECT");
        let line = said(|out| comment(all(), &evil, "irc-1-", &mut Recent::default(), out));
        assert_eq!(line.matches(['\r', '\n']).count(), 2, "{line:?}");
        assert!(line.ends_with(" PRIVMSG #final :a PING :x  :tmi.twitch.tv RECONNECT\r\n"), "{line:?}");
        let mut evil = says(8, "x");
        evil["user"] = json!({"id": "a b!c\u{1}", "display": "x;mod=1 \\", "badges": ["a;b c"]});
        let line = said(|out| comment(all(), &evil, "irc-1-", &mut Recent::default(), out));
        let line = Line::parse(line.trim_end()).expect("a line");
        assert_eq!((line.tag("display-name"), line.tag("mod")), (Some("x;mod=1 \\"), Some("0")));
        assert_eq!(line.source, Some("a^20b^21c^01!a^20b^21c^01@a^20b^21c^01.tmi.twitch.tv"));
    }

    #[test]
    fn an_answer_names_whom_it_answers_and_a_retract_whose_comment_goes() {
        let mut recent = Recent::default();
        said(|out| comment(all(), &says(7, "hi"), "irc-1-", &mut recent, out));
        let mut answer = says(8, "yes");
        answer["reply_to"] = json!(7);
        let line = said(|out| comment(all(), &answer, "irc-1-", &mut recent, out));
        let line = Line::parse(line.trim_end()).expect("a line");
        assert_eq!((line.tag("reply-parent-msg-id"), line.tag("reply-parent-user-login")), (Some("7"), Some("u1")));
        let taken = |event: Value, to| said(|out| retract(to, &event, &recent, out));
        assert_eq!(
            taken(json!({"target_event_id": 7}), all()),
            "@room-id=final;tmi-sent-ts=1000;login=u1;target-msg-id=7 :tmi.twitch.tv CLEARMSG #final :(deleted)\r\n"
        );
        assert_eq!(
            taken(json!({"user_id": "U2"}), all()),
            "@room-id=final;tmi-sent-ts=1000;ban-duration=1;target-user-id=U2 :tmi.twitch.tv CLEARCHAT #final :^552\r\n"
        );
        assert_eq!(
            taken(json!({"all": true}), all()),
            "@room-id=final;tmi-sent-ts=1000 :tmi.twitch.tv CLEARCHAT #final\r\n"
        );
        assert_eq!(taken(json!({"all": true}), plain()), "");
    }

    #[test]
    fn who_says_something_on_this_connection_is_not_told_so() {
        let mut own = says(7, "hi");
        own["client_msg_id"] = json!("irc-1-44");
        assert_eq!(said(|out| comment(all(), &own, "irc-1-", &mut Recent::default(), out)), "");
        assert_ne!(said(|out| comment(all(), &own, "irc-2-", &mut Recent::default(), out)), "");
    }

    #[test]
    fn gifts_scores_and_banners_have_tags_or_words() {
        let present = json!({"type": "gift", "event_id": 9, "gift_id": "g", "user": {"id": "u1", "display": "Ann", "badges": []},
            "item": "rose", "count": 3, "amount_micros": 2_500_000, "currency": "EUR"});
        let words = said(|out| gift(plain(), &present, out));
        assert_eq!(words, ":tmi.twitch.tv NOTICE #final :Ann gave 3 x rose (2.50 EUR)\r\n");
        let line = said(|out| gift(all(), &present, out));
        let line = Line::parse(line.trim_end()).expect("a line");
        assert_eq!((line.verb, line.tag("msg-id"), line.tag("login")), ("USERNOTICE", Some("gift"), Some("u1")));
        assert_eq!(
            (line.tag("msg-param-count"), line.tag("system-msg")),
            (Some("3"), Some("Ann gave 3 x rose (2.50 EUR)"))
        );
        let goal = json!({"type": "score_event", "event_id": 10, "match_id": "m", "key": "k", "revision": 2, "kind": "goal",
            "state": "under_review", "score": {"home": 1, "away": 0}, "minute": "78"});
        let words = said(|out| score(plain(), &goal, out));
        assert_eq!(words, ":tmi.twitch.tv NOTICE #final :m 1:0, goal (78), under_review\r\n");
        let line = said(|out| score(all(), &goal, out));
        let line = Line::parse(line.trim_end()).expect("a line");
        assert_eq!((line.tag("msg-id"), line.tag("msg-param-home")), (Some("announcement"), Some("1")));
        let notice = json!({"type": "banner", "banner_id": "5", "body": "to all"});
        assert!(said(|out| banner(all(), &notice, out)).ends_with(" USERNOTICE #final :to all\r\n"));
        assert_eq!(said(|out| banner(all(), &json!({"banner_id": "5", "ended": true}), out)), "");
    }

    #[test]
    fn a_rooms_state_is_told_whole_and_then_what_changed() {
        let whole = json!({"slow_mode_seconds": 5, "emote_only": true, "members_only": "vip", "unique_comment": false});
        assert_eq!(
            said(|out| room_state(all(), &whole, out)),
            "@emote-only=1;followers-only=-1;r9k=0;room-id=final;slow=5;subs-only=1 :tmi.twitch.tv ROOMSTATE #final\r\n"
        );
        assert_eq!(
            said(|out| config(all(), &json!({"slow_mode_seconds": 0}), out)),
            "@room-id=final;slow=0 :tmi.twitch.tv ROOMSTATE #final\r\n"
        );
        assert_eq!(
            said(|out| config(
                all(),
                &json!({"emote_only": true, "unique_comment": false, "members_only": "vip", "slow_mode_seconds": 5}),
                out
            )),
            "@room-id=final;emote-only=1 :tmi.twitch.tv ROOMSTATE #final\r\n@room-id=final;r9k=0 :tmi.twitch.tv ROOMSTATE #final\r\n\
             @room-id=final;slow=5 :tmi.twitch.tv ROOMSTATE #final\r\n@room-id=final;subs-only=1 :tmi.twitch.tv ROOMSTATE #final\r\n"
        );
        assert!(said(|out| config(all(), &json!({"members_only": null}), out)).contains(";subs-only=0 "));
        assert!(said(|out| config(all(), &json!({"sampled": true}), out)).contains("msg-id=sampled_on"));
        assert_eq!(said(|out| config(all(), &json!({"title": "x"}), out)), "");
    }
}
