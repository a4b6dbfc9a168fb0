//! One IRC connection as a state machine: lines of the client and events of its rooms in, lines and acts out.
//!
//! ```text
//! CAP, PASS, NICK ─► in ─► JOIN: Act::Open ─► the stream's hello: JOIN, 353, 366, USERSTATE, ROOMSTATE ─► events
//!                         PRIVMSG: Act::Call ─► the answer: USERSTATE or NOTICE
//! ```
//!
//! It is a translator who works for one client and holds no key to any door: every room is opened as a stream of this client's, with its token
//! and from its address, and every comment and command is a call of the API in its name. What a viewer may be shown and what a user may do is decided
//! there, as for anybody.
//!
//! The awkward case is the end of a room's stream. One that says "come back" is a `RECONNECT` of the whole connection, since that is the only word IRC
//! has for it; one that says "stop" takes this room off the connection and leaves the others.
//!
//! Numbers: Twitch lets an account join 20 channels in 10 s; dev.twitch.tv, "Chat & Chatbots: rate limits".

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use grandstand_core::names::RoomId;
use grandstand_core::time::{Mono, Wall};
use grandstand_wire::irc::{Line, Writer, nick};
use serde_json::{Value, json};

use super::deeds::{self, Answer, Call, Deed, Meant, Own};
use super::told::{self, Recent, To};
use super::voice::{SERVER, Voice, badges, channel, source};
use crate::auth::{self, Identity};

/// Rooms of a connection; each is a stream and counts for its user and address.
pub const CHANNELS_MAX: usize = 64;
/// Lines a second, and at once; past it the connection ends.
const LINE_COST: Duration = Duration::from_millis(50);
const LINES_BURST: Duration = Duration::from_secs(10);
/// JOINs: 20 in 10 s.
const JOIN_COST: Duration = Duration::from_millis(500);
const JOINS_BURST: Duration = Duration::from_secs(10);
/// From the first byte to NICK.
const LOGIN_WAIT: Duration = Duration::from_secs(10);
/// A client that says nothing for so long is asked whether it is there, and let go so long after that.
const QUIET: Duration = Duration::from_secs(60);
const PONG_WAIT: Duration = Duration::from_secs(30);
/// Banners that were told, so that each is told in one room.
const BANNERS_KEPT: usize = 64;
/// What clients may set beside their texts. Source: Twitch's client nonces are 32 hex digits.
const NONCE_BYTES_MAX: usize = 64;

/// What the session wants done.
#[derive(Clone, PartialEq, Debug)]
pub enum Act {
    /// A stream of this room, in the name of [`Session::token`].
    Open(RoomId),
    /// The room's stream is let go.
    Leave(RoomId),
    Call(Box<Call>),
    /// The connection ends when what was written has left.
    End,
}

/// Why a token is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    Bad,
    /// Its key may be in a newer key set that is being fetched.
    Later,
}

/// What a token comes to.
pub type Verified = Result<Arc<Identity>, Refused>;

struct User {
    identity: Arc<Identity>,
    token: Arc<str>,
}

enum Who {
    /// Not in yet; the token that PASS gave.
    Nobody(Option<Arc<str>>),
    /// Who only reads.
    Guest,
    User(User),
}

#[derive(Default)]
struct Channel {
    /// The name of its stream, once that has said hello.
    session: Option<String>,
    /// What its stream holds of this client's token.
    token: Option<Arc<str>>,
    recent: Recent,
    paused: bool,
    sampled: bool,
}

impl Channel {
    /// Gives its stream another token, unless it has it already. `None` too where the stream has not said hello: it is asked again then.
    fn renewal(&mut self, room: &RoomId, token: &Arc<str>) -> Option<Act> {
        let session = self.session.as_ref().filter(|_| self.token.as_ref() != Some(token))?;
        let body = json!({"session": session, "token": &**token});
        self.token = Some(token.clone());
        let path = format!("/v1/rooms/{room}/auth");
        Some(Act::Call(Box::new(Call { room: room.clone(), method: "POST", path, body, deed: Deed::Renew })))
    }
}

/// A leaky bucket: ahead of now by what was spent.
#[derive(Clone, Copy)]
struct Bucket(Mono);

impl Bucket {
    fn over(&mut self, cost: Duration, burst: Duration, now: Mono) -> bool {
        let next = self.0.max(now) + cost;
        let over = next.since(now) > burst;
        if !over {
            self.0 = next;
        }
        over
    }
}

/// The moment of a turn.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    pub mono: Mono,
    pub wall: Wall,
}

pub struct Session {
    voice: Voice,
    who: Who,
    nick: String,
    channels: BTreeMap<RoomId, Channel>,
    /// What the keys of this connection's comments begin with: no other connection's do.
    own: String,
    n_said: u64,
    banners: VecDeque<String>,
    lines: Bucket,
    joins: Bucket,
    began: Mono,
    heard_at: Mono,
    asked_at: Option<Mono>,
    ended: bool,
}

impl Session {
    /// `nonce`: a number no other connection has.
    pub fn new(nonce: u64, now: Mono) -> Session {
        Session {
            voice: Voice::default(),
            who: Who::Nobody(None),
            nick: "*".to_owned(),
            channels: BTreeMap::new(),
            own: format!("irc-{nonce:016x}-"),
            n_said: 0,
            banners: VecDeque::new(),
            lines: Bucket(now),
            joins: Bucket(now),
            began: now,
            heard_at: now,
            asked_at: None,
            ended: false,
        }
    }

    /// In whose name streams are opened and calls are made; `None` for who only reads.
    pub fn token(&self) -> Option<&Arc<str>> {
        match &self.who {
            Who::User(user) => Some(&user.token),
            Who::Nobody(_) | Who::Guest => None,
        }
    }

    fn is_in(&self) -> bool {
        !matches!(self.who, Who::Nobody(_))
    }

    // ---- time ------------------------------------------------------------------------------------------------

    /// When [`Session::on_time`] is to be asked again.
    pub fn deadline(&self) -> Mono {
        if !self.is_in() {
            return self.began + LOGIN_WAIT;
        }
        self.asked_at.map_or(self.heard_at + QUIET, |asked| asked + PONG_WAIT)
    }

    pub fn on_time(&mut self, now: Mono, out: &mut Vec<u8>, acts: &mut Vec<Act>) {
        if self.ended || now < self.deadline() {
            return;
        }
        if self.is_in() && self.asked_at.is_none() {
            self.asked_at = Some(now);
            return Writer::new(out).verb(None, "PING").text(SERVER);
        }
        self.end("timed out", out, acts);
    }

    fn end(&mut self, why: &str, out: &mut Vec<u8>, acts: &mut Vec<Act>) {
        if !std::mem::replace(&mut self.ended, true) {
            Writer::new(out).verb(None, "ERROR").text(&format!("Closing link: {why}"));
            acts.push(Act::End);
        }
    }

    /// The client is to come back by a new connection.
    pub fn send_away(&mut self, out: &mut Vec<u8>, acts: &mut Vec<Act>) {
        if !std::mem::replace(&mut self.ended, true) {
            Writer::new(out).verb(Some(SERVER), "RECONNECT").end();
            acts.push(Act::End);
        }
    }

    // ---- what the client says --------------------------------------------------------------------------------

    /// A line came. `verify` looks at a token.
    pub fn on_line(
        &mut self,
        line: Result<&str, &'static str>,
        verify: impl Fn(&str) -> Verified,
        now: Now,
        out: &mut Vec<u8>,
        acts: &mut Vec<Act>,
    ) {
        if self.ended {
            return;
        }
        (self.heard_at, self.asked_at) = (now.mono, None);
        if self.lines.over(LINE_COST, LINES_BURST, now.mono) {
            return self.end("more than 20 lines a second", out, acts);
        }
        let line = match line.and_then(|line| Line::parse(line).map_err(|fault| fault.rule())) {
            Ok(line) => line,
            Err(rule) => return self.voice.reply("417", &self.nick, &[], rule, out),
        };
        let (first, second) = (line.param(0), line.param(1));
        match &*line.verb.to_ascii_uppercase() {
            "PING" => self.pong(first, out),
            // It was heard, which is all that it is for.
            "PONG" | "USER" | "NOTICE" | "AWAY" => {}
            "CAP" => self.caps(first, second, out),
            "PASS" => self.pass(first, verify, out, acts),
            "NICK" => self.log_in(first, verify, out, acts),
            "QUIT" => self.end("you asked for it", out, acts),
            _ if !self.is_in() => self.voice.reply("451", &self.nick, &[], "You have not registered", out),
            "JOIN" => {
                // One refusal answers all that is left of a line.
                for name in first.unwrap_or_default().split(',') {
                    if !self.join(name, now.mono, out, acts) {
                        break;
                    }
                }
            }
            "PART" => {
                for name in first.unwrap_or_default().split(',') {
                    if let Some(room) = room_of(name).filter(|room| self.channels.contains_key(room)) {
                        self.leave(&room, out, acts);
                    }
                }
            }
            "PRIVMSG" => self.says(first, second, &line, now, out, acts),
            verb => self.asks(verb, first, second, out),
        }
    }

    fn pong(&self, said: Option<&str>, out: &mut Vec<u8>) {
        match said {
            Some(said) => Writer::new(out).verb(Some(SERVER), "PONG").param(SERVER).text(said),
            // tmi.js says PING without a word, and hears the answer only without a source.
            None => Writer::new(out).verb(None, "PONG").end(),
        }
    }

    fn caps(&mut self, what: Option<&str>, list: Option<&str>, out: &mut Vec<u8>) {
        let mut answer = |word: &str, list: &str| {
            Writer::new(out).verb(Some(SERVER), "CAP").param("*").param(word).text(list);
        };
        match what.map(str::to_ascii_uppercase).as_deref() {
            Some("LS") => answer("LS", &Voice::CAPS.join(" ")),
            Some("LIST") => {
                let tags = self.voice.tags.then_some("twitch.tv/tags");
                let commands = self.voice.commands.then_some("twitch.tv/commands");
                answer("LIST", &tags.into_iter().chain(commands).collect::<Vec<_>>().join(" "));
            }
            Some("REQ") => {
                let list = list.unwrap_or_default();
                let mut voice = self.voice;
                // All of them or none. Source: IRCv3 capability negotiation.
                let known = list.split_ascii_whitespace().all(|cap| voice.take(cap));
                if known {
                    self.voice = voice;
                }
                answer(if known { "ACK" } else { "NAK" }, list);
            }
            // END: nothing waited for it.
            _ => {}
        }
    }

    /// The token, before NICK; a newer one, after it.
    fn pass(&mut self, text: Option<&str>, verify: impl Fn(&str) -> Verified, out: &mut Vec<u8>, acts: &mut Vec<Act>) {
        let token = token_of(text.unwrap_or_default());
        match &mut self.who {
            Who::Nobody(kept) => *kept = Some(token),
            Who::Guest => {}
            Who::User(user) => match verify(&token) {
                Ok(identity) if identity.user == user.identity.user => {
                    (user.identity, user.token) = (identity, token.clone());
                    let renewals = self.channels.iter_mut().filter_map(|(room, own)| own.renewal(room, &token));
                    acts.extend(renewals);
                }
                _ => self.voice.notice(None, "no_permission", "That token is not yours, or is not taken.", out),
            },
        }
    }

    fn log_in(
        &mut self,
        name: Option<&str>,
        verify: impl Fn(&str) -> Verified,
        out: &mut Vec<u8>,
        acts: &mut Vec<Act>,
    ) {
        let Who::Nobody(token) = &self.who else { return };
        let token = token.clone();
        let name = name.unwrap_or_default().to_ascii_lowercase();
        let is_guest =
            name.strip_prefix("justinfan").is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()) && n.len() <= 20);
        let refuse = |session: &mut Session, text: &str, out: &mut Vec<u8>, acts: &mut Vec<Act>| {
            session.voice.notice(None, "", text, out);
            session.end("not logged in", out, acts);
        };
        // Guests send a PASS as well, and it is no token.
        if is_guest {
            (self.who, self.nick) = (Who::Guest, name);
        } else {
            let Some(token) = token.filter(|token| !token.is_empty()) else {
                return refuse(self, "Improperly formatted auth", out, acts);
            };
            match verify(&token) {
                Ok(identity) => {
                    // Who somebody is stands in the token; the name that was asked for is nobody's word.
                    self.nick = nick(identity.user.as_str());
                    self.who = Who::User(User { identity, token });
                }
                Err(Refused::Bad) => return refuse(self, "Login authentication failed", out, acts),
                Err(Refused::Later) => return self.send_away(out, acts),
            }
        }
        let (voice, nick) = (self.voice, self.nick.clone());
        voice.reply("001", &nick, &[], "Welcome, GLHF!", out);
        voice.reply("002", &nick, &[], &format!("Your host is {SERVER}"), out);
        voice.reply("003", &nick, &[], "This server is rather new", out);
        voice.reply("004", &nick, &[], "-", out);
        voice.reply("375", &nick, &[], "-", out);
        voice.reply("372", &nick, &[], "You are in a maze of twisty passages, all alike.", out);
        voice.reply("376", &nick, &[], ">", out);
        if let Who::User(user) = &self.who
            && voice.commands
        {
            let who = &user.identity;
            let display = who.display();
            let mut tags = deeds::of_self(own_badges(who, false), &display, false);
            tags.push(("user-id", who.user.to_string()));
            voice.line(&tags, SERVER, "GLOBALUSERSTATE", out).end();
        }
    }

    /// Whether one more may be asked for.
    fn join(&mut self, name: &str, now: Mono, out: &mut Vec<u8>, acts: &mut Vec<Act>) -> bool {
        if self.joins.over(JOIN_COST, JOINS_BURST, now) {
            let text = "At most 20 channels are joined in 10 seconds.";
            self.voice.notice(room_of(name).as_ref(), "msg_ratelimit", text, out);
            return false;
        }
        let Some(room) = room_of(name) else {
            self.no_such(name, out);
            return true;
        };
        if self.channels.contains_key(&room) {
            return true;
        }
        if self.channels.len() >= CHANNELS_MAX {
            let text = format!("A connection is in at most {CHANNELS_MAX} channels.");
            self.voice.notice(Some(&room), "too_many", &text, out);
            return false;
        }
        self.channels.insert(room.clone(), Channel { token: self.token().cloned(), ..Channel::default() });
        acts.push(Act::Open(room));
        true
    }

    fn no_such(&self, name: &str, out: &mut Vec<u8>) {
        self.voice.reply("403", &self.nick, &[name], "No such channel", out);
    }

    /// Takes a room off the connection, and says so where it was in.
    fn leave(&mut self, room: &RoomId, out: &mut Vec<u8>, acts: &mut Vec<Act>) {
        let Some(left) = self.channels.remove(room) else { return };
        if left.session.is_some() {
            Writer::new(out).verb(Some(&source(&self.nick)), "PART").param(&channel(room)).end();
        }
        acts.push(Act::Leave(room.clone()));
    }

    fn says(
        &mut self,
        target: Option<&str>,
        text: Option<&str>,
        line: &Line<'_>,
        now: Now,
        out: &mut Vec<u8>,
        acts: &mut Vec<Act>,
    ) {
        let target = target.unwrap_or_default();
        let Some(room) = room_of(target) else { return self.no_such(target, out) };
        let Some(text) = text.filter(|text| !text.is_empty()) else {
            return self.voice.reply("412", &self.nick, &[], "No text to send", out);
        };
        let to = To { voice: self.voice, room: &room, now: now.wall };
        let Who::User(_) = &self.who else {
            return to.voice.notice(Some(&room), "no_permission", "Log in to talk: PASS oauth:<token>.", out);
        };
        let text = match deeds::meant(&room, text) {
            Meant::Text(text) => text,
            Meant::Call(call) => return acts.push(Act::Call(call)),
            Meant::Refused(id, text) => return to.voice.notice(Some(&room), id, &text, out),
            Meant::Leave => return self.end("you asked for it", out, acts),
        };
        self.n_said += 1;
        let mut body = json!({"client_msg_id": format!("{}{}", self.own, self.n_said), "body": text});
        if let Some(parent) = line.tag("reply-parent-msg-id") {
            let Ok(parent) = parent.parse::<u64>() else {
                return to.voice.notice(Some(&room), "bad_reply", "There is no such message to answer.", out);
            };
            body["reply_to"] = parent.into();
        }
        let nonce = line.tag("client-nonce").filter(|nonce| nonce.len() <= NONCE_BYTES_MAX).map(str::to_owned);
        let path = format!("/v1/rooms/{room}/comments");
        acts.push(Act::Call(Box::new(Call { room, method: "POST", path, body, deed: Deed::Say { nonce } })));
    }

    /// What clients for people ask a server after a JOIN. There are no modes, no topics and no lists of who is here.
    fn asks(&self, verb: &str, first: Option<&str>, second: Option<&str>, out: &mut Vec<u8>) {
        let (voice, nick, about) = (self.voice, &self.nick, first.unwrap_or("*"));
        match (verb, second) {
            ("MODE", Some("b" | "+b")) => voice.reply("368", nick, &[about], "End of channel ban list", out),
            ("MODE", _) if about.starts_with('#') => voice.reply("324", nick, &[about], "+", out),
            ("MODE", _) => voice.reply("221", nick, &[], "+", out),
            ("WHO", _) => voice.reply("315", nick, &[about], "End of WHO list", out),
            ("WHOIS", _) => voice.reply("318", nick, &[about], "End of WHOIS list", out),
            ("NAMES", _) => voice.reply("366", nick, &[about], "End of /NAMES list", out),
            ("TOPIC", _) => voice.reply("331", nick, &[about], "No topic is set", out),
            ("LIST", _) => voice.reply("323", nick, &[], "End of LIST", out),
            _ => voice.reply("421", nick, &[verb], "Unknown command", out),
        }
    }

    // ---- what the rooms say ----------------------------------------------------------------------------------

    /// An event of a room's stream.
    pub fn on_event(
        &mut self,
        room: &RoomId,
        kind: &str,
        event: &Value,
        now: Now,
        out: &mut Vec<u8>,
        acts: &mut Vec<Act>,
    ) {
        if self.ended {
            return;
        }
        let Some(own) = self.channels.get_mut(room) else { return };
        let to = To { voice: self.voice, room, now: now.wall };
        // Whatever comes after a pause ends it.
        let was_paused = std::mem::replace(&mut own.paused, kind == "feed_paused");
        match kind {
            "hello" => self.greet(room, event, now, out, acts),
            "comment" => told::comment(to, event, &self.own, &mut own.recent, out),
            "gift" | "gift_combo" => told::gift(to, event, out),
            "score_event" => told::score(to, event, out),
            "retract" => told::retract(to, event, &own.recent, out),
            "config" => {
                own.sampled = event["sampled"].as_bool().unwrap_or(own.sampled);
                told::config(to, event, out);
            }
            "banner" => self.banner(room, event, now, out),
            "skipped" => {
                let n = event["count"].as_u64().unwrap_or_default();
                to.voice.notice(
                    Some(room),
                    "skipped",
                    &format!("{n} messages came too fast for you and were left out."),
                    out,
                );
            }
            "feed_paused" if !was_paused => {
                let text = "This room stands still for a moment and goes on by itself.";
                to.voice.notice(Some(room), "feed_paused", text, out);
            }
            "error" => {
                let (id, text) = match event["code"].as_str() {
                    Some("banned") => ("msg_banned", "You are banned from talking in this channel."),
                    _ => ("error", event["message"].as_str().unwrap_or("something was refused")),
                };
                to.voice.notice(Some(room), id, text, out);
            }
            "token_expiring" => {
                let text = "Your token ends soon: send PASS oauth:<token> with a newer one to stay.";
                to.voice.notice(Some(room), "token_expiring", text, out);
            }
            "close" => {
                let code = event["code"].as_u64().unwrap_or_default();
                let reason = event["reason"].as_str().unwrap_or_default();
                self.on_close(room, code, reason, out, acts);
            }
            // Counters and what belongs to them have no line in IRC; a pause has one.
            _ => {}
        }
    }

    /// The stream is open: now the client is in.
    fn greet(&mut self, room: &RoomId, hello: &Value, now: Now, out: &mut Vec<u8>, acts: &mut Vec<Act>) {
        let (voice, nick, token) = (self.voice, self.nick.clone(), self.token().cloned());
        let name = channel(room);
        let Some(own) = self.channels.get_mut(room) else { return };
        own.session = Some(hello["session"].as_str().unwrap_or_default().to_owned());
        // A newer token that came while the stream was being opened.
        acts.extend(token.and_then(|token| own.renewal(room, &token)));
        own.sampled = hello["config"]["sampled"].as_bool().unwrap_or_default();
        let is_sampled = own.sampled;
        Writer::new(out).verb(Some(&source(&nick)), "JOIN").param(&name).end();
        let host = format!("{nick}.{SERVER}");
        // Who is here is not told: a room may hold a million.
        Writer::new(out).verb(Some(&host), "353").param(&nick).param("=").param(&name).text(&nick);
        Writer::new(out).verb(Some(&host), "366").param(&nick).param(&name).text("End of /NAMES list");
        self.user_state(room, None, now, out);
        let to = To { voice, room, now: now.wall };
        told::room_state(to, &hello["config"], out);
        if is_sampled {
            told::sampled(to, true, out);
        }
        for banner in hello["banners"].as_array().into_iter().flatten() {
            self.banner(room, banner, now, out);
        }
    }

    /// `said`: the id of what was said just now, and the client's mark for it.
    fn user_state(&self, room: &RoomId, said: Option<(String, Option<&str>)>, now: Now, out: &mut Vec<u8>) {
        let Who::User(user) = &self.who else { return };
        let who = &user.identity;
        let moderates = auth::may_moderate(Some(who), room).is_ok();
        let display = who.display();
        let own = Own { badges: own_badges(who, moderates), display: &display, moderates, said };
        own.write(To { voice: self.voice, room, now: now.wall }, out);
    }

    /// A banner is the site's: it comes by each stream, and is told in the room whose stream brings it first.
    fn banner(&mut self, room: &RoomId, event: &Value, now: Now, out: &mut Vec<u8>) {
        let id = event["banner_id"].as_str().unwrap_or_default();
        if self.banners.iter().any(|known| known == id) {
            return;
        }
        if self.banners.len() == BANNERS_KEPT {
            self.banners.pop_front();
        }
        self.banners.push_back(id.to_owned());
        told::banner(To { voice: self.voice, room, now: now.wall }, event, out);
    }

    /// The hundreds digit of a close decides, as for every client.
    fn on_close(&mut self, room: &RoomId, code: u64, reason: &str, out: &mut Vec<u8>, acts: &mut Vec<Act>) {
        let (id, text) = match code {
            // Its holder can do nothing here but log in again.
            4101 => {
                self.voice.notice(None, "", "Login authentication failed", out);
                return self.end("the token has ended", out, acts);
            }
            4129 => (
                "msg_ratelimit",
                "You may not open more channels now: too many streams of yours, or of this room, are open.",
            ),
            4100.. => return self.send_away(out, acts),
            4004 => ("msg_room_not_found", "There is no such channel."),
            4051 => ("msg_channel_suspended", "This channel may not be shown where you are."),
            4003 => ("no_permission", "You may not be in this channel."),
            _ => ("no_permission", reason),
        };
        self.voice.notice(Some(room), id, text, out);
        self.leave(room, out, acts);
    }

    /// The room's stream was refused before it began.
    pub fn on_refused(&mut self, room: &RoomId, answer: &Answer, out: &mut Vec<u8>, acts: &mut Vec<Act>) {
        let code = match (answer.status, answer.body["code"].as_str()) {
            (_, Some("no_such_room")) | (404, _) => 4004,
            (451, _) => 4051,
            (429, _) => 4129,
            (500.., _) | (0, _) => 4150,
            (_, _) => 4003,
        };
        if self.channels.contains_key(room) && !self.ended {
            self.on_close(room, code, "the channel was refused", out, acts);
        }
    }

    /// The room's stream ended without a word: it is gone with what held it.
    pub fn on_cut(&mut self, room: &RoomId, out: &mut Vec<u8>, acts: &mut Vec<Act>) {
        if self.channels.contains_key(room) {
            self.send_away(out, acts);
        }
    }

    /// A call was answered.
    pub fn on_answer(&mut self, call: &Call, answer: &Answer, now: Now, out: &mut Vec<u8>) {
        deeds::answered(To { voice: self.voice, room: &call.room, now: now.wall }, call, answer, out);
        if let (Deed::Say { nonce }, 200) = (&call.deed, answer.status) {
            // In a wide room it has no event's id yet.
            let id = answer.body["event_id"].as_u64().or_else(|| answer.body["raw_id"].as_u64());
            let id = id.map_or_else(String::new, |id| id.to_string());
            self.user_state(&call.room, Some((id, nonce.as_deref())), now, out);
        }
    }
}

/// The badges of the token, and that of a moderator for who is one in this room.
fn own_badges(who: &Identity, moderates: bool) -> String {
    let mut list = badges(who.badges().iter().map(|badge| &**badge));
    if moderates && !list.split(',').any(|badge| badge.starts_with("moderator/")) {
        if !list.is_empty() {
            list.push(',');
        }
        list.push_str("moderator/1");
    }
    list
}

/// The token that PASS gives: as it is, or in hex, for clients that fold what they are given to lower case (tmi.js). A JWT has
/// full stops in it, so it is never taken for hex.
fn token_of(text: &str) -> Arc<str> {
    let text = text.strip_prefix("oauth:").unwrap_or(text);
    let digits: Option<Vec<u32>> = text.chars().map(|c| c.to_digit(16)).collect();
    let bytes = digits.filter(|digits| digits.len() % 2 == 0);
    let bytes = bytes.map(|digits| digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect());
    bytes.and_then(|bytes: Vec<u8>| String::from_utf8(bytes).ok()).map_or_else(|| text.into(), Arc::from)
}

/// The room of a channel's name. Upper case is folded, because clients show names so.
fn room_of(name: &str) -> Option<RoomId> {
    RoomId::parse(&name.strip_prefix('#')?.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use grandstand_core::names::RoomId;
    use grandstand_core::time::{Mono, Wall};
    use serde_json::{Value, json};

    use super::{Act, Now, Refused, Session, Verified};
    use crate::auth::token::Claims;
    use crate::gateway::irc::deeds::{Answer, Deed};

    const WALL: Wall = Wall(1_779_048_873_122);

    /// A session with a clock and a door that takes the tokens `ok-USER`, and `mod-USER` for a moderator of room `r`.
    struct Stage {
        session: Session,
        now: Mono,
        acts: Vec<Act>,
    }

    fn verify(token: &str) -> Verified {
        let (kind, user) = token.split_once('-').ok_or(Refused::Bad)?;
        let mut claims = Claims::new(user, WALL, Duration::from_secs(3_600));
        match kind {
            "ok" => claims.roles = Some(vec!["publisher".into()]),
            "mod" => {
                claims.roles = Some(vec!["room-mod".into()]);
                claims.rooms = Some(vec!["r".into()]);
            }
            "later" => return Err(Refused::Later),
            _ => return Err(Refused::Bad),
        }
        claims.identity().map(Arc::new).map_err(|_| Refused::Bad)
    }

    impl Stage {
        fn new() -> Stage {
            let now = Mono(1_000_000_000);
            Stage { session: Session::new(7, now), now, acts: Vec::new() }
        }

        fn entered(pass: &str) -> Stage {
            let mut stage = Stage::new();
            stage.says("CAP REQ :twitch.tv/tags twitch.tv/commands");
            stage.says(&format!("PASS oauth:{pass}"));
            stage.says("NICK x");
            stage
        }

        /// In `room`, with its stream open.
        fn joined(pass: &str, room: &str) -> Stage {
            let mut stage = Stage::entered(pass);
            stage.says(&format!("JOIN #{room}"));
            stage.told(room, "hello", json!({"session": "s1", "config": {"slow_mode_seconds": 0}}));
            stage.acts.clear();
            stage
        }

        fn turn(&mut self, turn: impl FnOnce(&mut Session, Now, &mut Vec<u8>, &mut Vec<Act>)) -> String {
            let mut out = Vec::new();
            turn(&mut self.session, Now { mono: self.now, wall: WALL }, &mut out, &mut self.acts);
            String::from_utf8(out).expect("text")
        }

        fn says(&mut self, line: &str) -> String {
            self.turn(|session, now, out, acts| session.on_line(Ok(line), verify, now, out, acts))
        }

        fn told(&mut self, room: &str, kind: &str, event: Value) -> String {
            let room = RoomId::parse(room).expect("a room");
            self.turn(|session, now, out, acts| session.on_event(&room, kind, &event, now, out, acts))
        }

        fn after(&mut self, seconds: u64) -> String {
            self.now = self.now + Duration::from_secs(seconds);
            self.turn(|session, now, out, acts| session.on_time(now.mono, out, acts))
        }

        fn opened(&mut self) -> Vec<String> {
            let acts = std::mem::take(&mut self.acts);
            acts.into_iter()
                .map(|act| if let Act::Open(room) = act { room.to_string() } else { panic!("{act:?}") })
                .collect()
        }
    }

    #[test]
    fn who_somebody_is_stands_in_the_token_and_not_in_the_nick() {
        let mut stage = Stage::new();
        stage.says("PASS oauth:ok-Ann");
        let welcome = stage.says("NICK admin");
        assert!(welcome.starts_with(":tmi.twitch.tv 001 ^41nn :") && welcome.contains(" 376 ^41nn :"), "{welcome}");
        assert!(!welcome.contains("GLOBALUSERSTATE"), "nobody asked for commands");
        assert_eq!(stage.session.token().map(|token| &**token), Some("ok-Ann"));
        assert!(Stage::entered("ok-ann").session.token().is_some());
    }

    #[test]
    fn a_token_may_be_in_hex_for_clients_that_fold_it() {
        let hex: String = "ok-Ann".bytes().map(|b| format!("{b:02x}")).collect();
        for pass in [hex.clone(), format!("oauth:{hex}"), format!("oauth:{}", hex.to_uppercase())] {
            let mut stage = Stage::new();
            stage.says(&format!("PASS {pass}"));
            assert!(stage.says("NICK x").contains(" 001 ^41nn "), "{pass}");
            assert_eq!(stage.session.token().map(|token| &**token), Some("ok-Ann"));
        }
        for broken in ["6f6", "ff", "6g"] {
            let mut stage = Stage::new();
            stage.says(&format!("PASS oauth:{broken}"));
            assert!(stage.says("NICK x").contains("Login authentication failed"), "{broken}");
        }
    }

    #[test]
    fn a_token_that_cannot_be_judged_yet_sends_its_client_away_to_come_back() {
        let mut stage = Stage::new();
        stage.says("PASS later-ann");
        assert_eq!(stage.says("NICK x"), ":tmi.twitch.tv RECONNECT\r\n");
        assert_eq!(stage.acts, [Act::End]);
        assert_eq!(stage.says("JOIN #r"), "", "an ended session says and does nothing");
    }

    #[test]
    fn capabilities_are_taken_all_or_none() {
        let mut stage = Stage::new();
        assert_eq!(stage.says("CAP REQ :twitch.tv/tags sasl"), ":tmi.twitch.tv CAP * NAK :twitch.tv/tags sasl\r\n");
        assert_eq!(stage.says("CAP LIST"), ":tmi.twitch.tv CAP * LIST :\r\n");
        assert_eq!(stage.says("CAP REQ twitch.tv/tags"), ":tmi.twitch.tv CAP * ACK :twitch.tv/tags\r\n");
        assert_eq!(stage.says("CAP LIST"), ":tmi.twitch.tv CAP * LIST :twitch.tv/tags\r\n");
        assert_eq!(stage.says("CAP END"), "");
    }

    #[test]
    fn a_channel_is_joined_when_its_stream_has_said_hello() {
        let mut stage = Stage::entered("mod-ann");
        assert_eq!(stage.says("JOIN #R,#r,#s"), "");
        assert_eq!(stage.opened(), ["r", "s"], "twice is once");
        let config = json!({"slow_mode_seconds": 3, "sampled": true});
        let banner = json!({"banner_id": "9", "body": "to all"});
        let hello = json!({"session": "s1", "config": config, "banners": [banner]});
        let lines = stage.told("r", "hello", hello.clone());
        let verbs: Vec<&str> = lines
            .lines()
            .map(|line| line.split(' ').find(|w| !w.starts_with(['@', ':'])).unwrap_or_default())
            .collect();
        assert_eq!(verbs, ["JOIN", "353", "366", "USERSTATE", "ROOMSTATE", "NOTICE", "USERNOTICE"]);
        assert!(lines.contains("mod=1") && lines.contains("slow=3") && lines.contains("msg-id=sampled_on"), "{lines}");
        // Of the other room she is no moderator, and the banner was told.
        let lines = stage.told("s", "hello", hello);
        assert!(lines.contains("mod=0") && !lines.contains("to all"), "{lines}");
        assert_eq!(stage.told("other", "comment", json!({})), "", "a stream that was let go");
    }

    #[test]
    fn joins_are_bounded_by_number_and_by_rate() {
        let mut stage = Stage::entered("ok-ann");
        for n in 0..64 {
            stage.now = stage.now + Duration::from_millis(500);
            assert_eq!(stage.says(&format!("JOIN #r{n}")), "");
        }
        assert!(stage.says("JOIN #more").contains("msg-id=too_many"));
        let mut stage = Stage::entered("ok-ann");
        let names: Vec<String> = (0..21).map(|n| format!("#r{n}")).collect();
        let told = stage.says(&format!("JOIN {}", names.join(",")));
        assert_eq!((stage.opened().len(), told.matches("msg-id=msg_ratelimit").count()), (20, 1));
        let names = vec!["#no/such"; 400].join(",");
        let told = Stage::entered("ok-ann").says(&format!("JOIN {names}"));
        assert_eq!(told.lines().count(), 21, "an answer is not a multiple of what was asked");
    }

    #[test]
    fn what_is_said_is_a_publish_with_a_key_of_the_connections_own() {
        let mut stage = Stage::joined("ok-ann", "r");
        stage.says("@client-nonce=n1;reply-parent-msg-id=41 PRIVMSG #r :hi\u{1}");
        stage.says("PRIVMSG #r :again");
        let [Act::Call(first), Act::Call(second)] = &stage.acts[..] else { panic!("{:?}", stage.acts) };
        assert_eq!((first.method, &*first.path), ("POST", "/v1/rooms/r/comments"));
        assert_eq!(first.body, json!({"client_msg_id": "irc-0000000000000007-1", "body": "hi\u{1}", "reply_to": 41}));
        assert_eq!(second.body["client_msg_id"], "irc-0000000000000007-2");
        let (first, answer) = (first.clone(), Answer { status: 200, body: json!({"event_id": 50}) });
        let told = stage.turn(|session, now, out, _| session.on_answer(&first, &answer, now, out));
        assert!(told.contains(";id=50;client-nonce=n1 :tmi.twitch.tv USERSTATE #r\r\n"), "{told}");
        // The room says it to everybody else.
        let said = json!({"event_id": 50, "user": {"id": "ann", "display": "ann", "badges": []}, "body": "hi", "client_msg_id": "irc-0000000000000007-1"});
        assert_eq!(stage.told("r", "comment", said), "");
    }

    #[test]
    fn a_newer_token_is_passed_on_to_every_open_stream_and_anothers_is_not() {
        let mut stage = Stage::joined("ok-ann", "r");
        stage.says("JOIN #asked");
        stage.acts.clear();
        assert!(stage.says("PASS oauth:ok-bob").contains("NOTICE"));
        assert_eq!(stage.says("PASS oauth:mod-ann"), "");
        let [Act::Call(renewal)] = &stage.acts[..] else { panic!("{:?}", stage.acts) };
        assert_eq!((&*renewal.path, &renewal.deed), ("/v1/rooms/r/auth", &Deed::Renew));
        assert_eq!(renewal.body, json!({"session": "s1", "token": "mod-ann"}));
        assert_eq!(stage.session.token().map(|token| &**token), Some("mod-ann"));
        // The stream that was being opened meanwhile was asked for with the older one.
        stage.acts.clear();
        stage.told("asked", "hello", json!({"session": "s2", "config": {}}));
        let [Act::Call(renewal)] = &stage.acts[..] else { panic!("{:?}", stage.acts) };
        assert_eq!(renewal.body, json!({"session": "s2", "token": "mod-ann"}));
        stage.says("PASS oauth:mod-ann");
        assert_eq!(stage.acts.len(), 1, "every stream has it");
    }

    #[test]
    fn a_close_that_says_come_back_is_a_reconnect_and_one_that_says_stop_takes_the_room() {
        for code in [4112, 4150, 4153, 4200, 4201] {
            let mut stage = Stage::joined("ok-ann", "r");
            assert_eq!(stage.told("r", "close", json!({"code": code})), ":tmi.twitch.tv RECONNECT\r\n", "{code}");
            assert_eq!(stage.acts, [Act::End]);
        }
        for (code, id) in [
            (4003, "no_permission"),
            (4004, "msg_room_not_found"),
            (4051, "msg_channel_suspended"),
            (4129, "msg_ratelimit"),
        ] {
            let mut stage = Stage::joined("ok-ann", "r");
            let told = stage.told("r", "close", json!({"code": code}));
            assert!(told.starts_with(&format!("@msg-id={id} ")) && told.contains(" PART #r"), "{told}");
            assert_eq!(stage.acts, [Act::Leave(RoomId::parse("r").expect("a room"))]);
            // And it may be tried again.
            stage.says("JOIN #r");
            assert!(matches!(stage.acts.last(), Some(Act::Open(_))));
        }
        let mut stage = Stage::joined("ok-ann", "r");
        assert!(stage.told("r", "close", json!({"code": 4101})).contains("Login authentication failed"));
        assert_eq!(stage.acts, [Act::End]);
    }

    #[test]
    fn a_stream_that_is_refused_is_told_by_what_refused_it() {
        let room = RoomId::parse("r").expect("a room");
        for (status, code, id) in [
            (404, "no_such_room", "msg_room_not_found"),
            (451, "blackout", "msg_channel_suspended"),
            (401, "no_token", "no_permission"),
            (403, "not_allowed", "no_permission"),
            (429, "too_many", "msg_ratelimit"),
        ] {
            let mut stage = Stage::entered("ok-ann");
            stage.says("JOIN #r");
            let answer = Answer { status, body: json!({"code": code}) };
            let told = stage.turn(|session, _, out, acts| session.on_refused(&room, &answer, out, acts));
            assert!(told.starts_with(&format!("@msg-id={id} ")) && !told.contains("PART"), "{told}");
        }
        let mut stage = Stage::entered("ok-ann");
        stage.says("JOIN #r");
        let answer = Answer { status: 503, body: Value::Null };
        assert!(
            stage.turn(|session, _, out, acts| session.on_refused(&room, &answer, out, acts)).contains("RECONNECT")
        );
    }

    #[test]
    fn a_pause_and_what_was_skipped_are_told_once_each() {
        let mut stage = Stage::joined("ok-ann", "r");
        assert!(stage.told("r", "feed_paused", json!({})).contains("msg-id=feed_paused"));
        assert_eq!(stage.told("r", "feed_paused", json!({})), "");
        assert!(stage.told("r", "skipped", json!({"count": 12})).contains(":12 messages"));
        assert!(stage.told("r", "feed_paused", json!({})).contains("msg-id=feed_paused"));
        assert!(stage.told("r", "error", json!({"code": "banned"})).contains("msg-id=msg_banned"));
        assert_eq!(stage.told("r", "counters", json!({"viewers": 3})), "");
    }

    #[test]
    fn who_does_not_log_in_or_is_silent_is_let_go() {
        let mut stage = Stage::new();
        assert_eq!(stage.after(9), "");
        assert_eq!(stage.after(1), "ERROR :Closing link: timed out\r\n");
        assert_eq!(stage.acts, [Act::End]);
        let mut stage = Stage::entered("ok-ann");
        assert_eq!(stage.after(59), "");
        assert_eq!(stage.after(1), "PING :tmi.twitch.tv\r\n");
        assert_eq!(stage.after(29), "");
        stage.says("PONG :tmi.twitch.tv");
        assert_eq!(stage.after(1), "");
        assert_eq!(stage.after(59), "PING :tmi.twitch.tv\r\n");
        assert_eq!(stage.after(30), "ERROR :Closing link: timed out\r\n");
    }

    #[test]
    fn twenty_lines_a_second_are_taken_and_two_hundred_at_once() {
        let mut stage = Stage::entered("ok-ann");
        stage.after(10);
        for n in 0..200 {
            assert!(stage.says("PING :x").contains("PONG"), "{n}");
        }
        assert!(stage.says("PING :x").starts_with("ERROR"));
        let mut stage = Stage::entered("ok-ann");
        for n in 0..10_000 {
            stage.now = stage.now + Duration::from_millis(50);
            assert!(stage.says("PING :x").contains("PONG"), "{n}");
        }
    }
}
