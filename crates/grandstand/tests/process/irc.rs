//! IRC against the real binary, by lines: what a bot, a moderator and a guest are told, and what hostile ones are.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use grandstand_wire::ws::{Opcode, write_masked_frame};
use serde_json::{Value, json};

use crate::processes::metric;
use crate::support::{Server, Wire, connected, until};
use crate::viewer::{Rung, Viewer, open_at};

/// Off unless asked for.
const ON: [&str; 4] = ["--set", "irc.tcp.listen=127.0.0.1:0", "--set", "irc.websocket.listen=127.0.0.1:0"];

/// Where the server says that IRC is spoken.
pub fn address(server: &Server, by: &str) -> SocketAddr {
    let start = format!("irc over {by} ");
    let said = server.stderr();
    let line = said.lines().rev().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("{start}: {said}"));
    let (_, address) = line.rsplit_once(" on ").expect("where it is spoken");
    address.parse().expect("an address")
}

/// A client that says and hears lines.
pub struct Irc(BufReader<Wire>);

impl Irc {
    pub fn connect(at: SocketAddr) -> Irc {
        Irc::over(Wire::Plain(connected(at).expect("it accepts")))
    }

    pub fn over(wire: Wire) -> Irc {
        Irc(BufReader::new(wire))
    }

    /// As Twitch's clients log in; `None` as a guest.
    pub fn enter(at: SocketAddr, token: Option<&str>) -> Irc {
        Irc::connect(at).logged_in(token)
    }

    pub fn logged_in(mut self, token: Option<&str>) -> Irc {
        let irc = &mut self;
        irc.say("CAP REQ :twitch.tv/tags twitch.tv/commands");
        match token {
            Some(token) => irc.say(&format!("PASS oauth:{token}\r\nNICK somebody")),
            None => irc.say("PASS SCHMOOPIIE\r\nNICK justinfan42"),
        }
        irc.hears(" 376 ");
        self
    }

    pub fn joined(at: SocketAddr, token: Option<&str>, room: &str) -> Irc {
        let mut irc = Irc::enter(at, token);
        irc.join(room);
        irc
    }

    pub fn join(&mut self, room: &str) {
        self.say(&format!("JOIN #{room}"));
        self.hears(&format!(" ROOMSTATE #{room}"));
    }

    pub fn say(&mut self, lines: &str) {
        self.write(format!("{lines}\r\n").as_bytes());
    }

    pub fn write(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).expect("it is open");
    }

    /// The next line, its end included; `None` at the end of the connection.
    pub fn next(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.0.read_line(&mut line) {
            Ok(0) => None,
            Ok(_) => Some(line),
            Err(e) if matches!(e.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => None,
            Err(e) => panic!("{e}, waiting for a line"),
        }
    }

    /// The first line that holds `what`, and those before it.
    pub fn until(&mut self, what: &str) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        loop {
            let Some(line) = self.next() else { panic!("the end instead of {what:?} after {lines:#?}") };
            let found = line.contains(what);
            lines.push(line);
            if found {
                return lines;
            }
        }
    }

    pub fn hears(&mut self, what: &str) -> String {
        self.until(what).pop().expect("the line")
    }

    /// All that comes until the connection ends.
    pub fn rest(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.next()).collect()
    }
}

pub fn tag<'a>(line: &'a str, key: &str) -> &'a str {
    let tags = line.strip_prefix('@').and_then(|line| line.split(' ').next()).unwrap_or_default();
    let found = tags.split(';').find_map(|tag| tag.strip_prefix(key)?.strip_prefix('='));
    found.unwrap_or_else(|| panic!("no {key} in {line:?}"))
}

#[test]
fn irc_is_off_unless_it_is_asked_for() {
    let server = Server::start(&[], &[]);
    assert!(!server.stderr().contains("irc over"), "{}", server.stderr());
}

#[test]
fn a_client_logs_in_joins_reads_and_talks() {
    let server = Server::start(&ON, &[]);
    let at = address(&server, "tcp");
    let (ann, bob) = (server.token("ann", &["publisher"]), server.token("Bob", &["publisher"]));
    let mut bot = Irc::connect(at);
    bot.say(&format!("CAP LS 302\r\nCAP REQ :twitch.tv/membership twitch.tv/tags twitch.tv/commands\r\nPASS oauth:{ann}\r\nNICK Wrong\r\nUSER x 8 * :x"));
    let welcome = bot.until("GLOBALUSERSTATE");
    assert!(
        welcome[0].contains(" CAP * LS :") && welcome[1].contains(" CAP * ACK :twitch.tv/membership"),
        "{welcome:?}"
    );
    // The token says who it is.
    assert!(welcome.iter().any(|line| line.starts_with(":tmi.twitch.tv 001 ann :")), "{welcome:?}");
    bot.say("JOIN #R");
    let joined = bot.until("ROOMSTATE");
    assert_eq!(joined[0], ":ann!ann@ann.tmi.twitch.tv JOIN #r\r\n");
    assert!(joined[1].starts_with(":ann.tmi.twitch.tv 353 ann = #r :ann") && joined[2].contains(" 366 ann #r :"));
    assert!(
        joined[3].contains(" USERSTATE #r")
            && joined[4].starts_with("@emote-only=0;followers-only=-1;r9k=0;room-id=r;slow=0;subs-only=0 :")
    );

    let mut guest = Irc::joined(at, None, "r");
    let mut other = Irc::joined(at, Some(&bob), "r");
    let mut page = open_at(&server, Rung::WebSocket, "r", None);
    page.until(|e| e["type"] == "hello");
    bot.say("@client-nonce=abc;reply-parent-msg-id= PRIVMSG #r :no such parent");
    assert!(bot.hears("NOTICE").contains("msg-id=bad_reply"));
    bot.say("@client-nonce=abc PRIVMSG #r :hello from irc ⚽");
    // Who says it hears that it was said, and not what.
    let said = bot.hears("USERSTATE");
    assert_eq!(tag(&said, "client-nonce"), "abc");
    let id = tag(&said, "id").to_owned();
    for irc in [&mut guest, &mut other] {
        let line = irc.hears("PRIVMSG");
        assert!(line.ends_with(" :ann!ann@ann.tmi.twitch.tv PRIVMSG #r :hello from irc ⚽\r\n"), "{line}");
        assert_eq!((tag(&line, "id"), tag(&line, "user-id"), tag(&line, "room-id")), (&*id, "ann", "r"));
    }
    let shown = page.until(|e| e["type"] == "comment").pop().expect("a comment");
    assert_eq!((&shown["body"], shown["event_id"].to_string()), (&json!("hello from irc ⚽"), id.clone()));

    other.say(&format!("@reply-parent-msg-id={id} PRIVMSG #r :an answer"));
    for irc in [&mut bot, &mut guest] {
        let line = irc.hears("PRIVMSG");
        assert!(line.contains(" :^42ob!^42ob@^42ob.tmi.twitch.tv PRIVMSG #r :an answer"), "{line}");
        assert_eq!((tag(&line, "reply-parent-msg-id"), tag(&line, "reply-parent-user-login")), (&*id, "ann"));
    }
    guest.say("PRIVMSG #r :may I?");
    assert!(guest.hears("NOTICE").contains("msg-id=no_permission"));
    bot.say("PING :are you there");
    assert_eq!(bot.next().as_deref(), Some(":tmi.twitch.tv PONG tmi.twitch.tv :are you there\r\n"));
    bot.say("PING");
    assert_eq!(bot.next().as_deref(), Some("PONG\r\n"));
    bot.say("PART #r");
    assert_eq!(bot.next().as_deref(), Some(":ann!ann@ann.tmi.twitch.tv PART #r\r\n"));
    bot.say("QUIT");
    assert!(bot.rest().iter().any(|line| line.starts_with("ERROR")));
    drop(bot);
    until("two are left", || metric(&server, "grandstand_gateway_protocol_connections{protocol=\"irc\"}") == 2);
}

#[test]
fn who_shows_no_good_token_is_not_let_in() {
    let server = Server::start(&ON, &[]);
    let at = address(&server, "tcp");
    for (lines, answer) in [
        ("PASS oauth:nonsense\r\nNICK ann", "Login authentication failed"),
        ("PASS oauth:a b\r\nNICK ann", "Login authentication failed"),
        ("NICK ann", "Improperly formatted auth"),
        ("NICK justinfanx", "Improperly formatted auth"),
    ] {
        let mut irc = Irc::connect(at);
        irc.say(lines);
        let rest = irc.rest();
        assert!(rest[0].contains(answer) && rest.last().is_some_and(|line| line.starts_with("ERROR")), "{rest:?}");
    }
    let mut irc = Irc::connect(at);
    irc.say("JOIN #r");
    assert!(irc.hears(" 451 ").contains("not registered"));
    // A room that needs a token, and one that is not there.
    let admin = server.token("ops", &["admin"]);
    server.put_room("closed", &admin, json!({"anonymous_view": false}));
    let mut guest = Irc::enter(at, None);
    guest.say("JOIN #closed,#no/room");
    let told = guest.until(" 403 ");
    assert!(told.iter().any(|line| line.contains(" 403 justinfan42 #no/room :")), "{told:?}");
    let refused =
        told.into_iter().find(|line| line.contains("NOTICE #closed")).unwrap_or_else(|| guest.hears("NOTICE #closed"));
    assert_eq!(tag(&refused, "msg-id"), "no_permission");
}

#[test]
fn moderators_moderate_by_the_commands_of_twitch_and_nobody_else_does() {
    for args in [&[][..], &["--gateways", "2"]] {
        let (server, at) = started(args);
        let mod_token = server.token_in("mod", &["room-mod"], &["r"]);
        let (ann, admin) = (server.token("ann", &["publisher"]), server.token("ops", &["admin"]));
        server.put_room("r", &admin, json!({}));
        let mut moderator = Irc::enter(at, Some(&mod_token));
        moderator.say("JOIN #r");
        let state = moderator.hears(" USERSTATE #r");
        assert_eq!((tag(&state, "mod"), tag(&state, "badges"), tag(&state, "user-type")), ("1", "moderator/1", "mod"));
        moderator.hears("ROOMSTATE");
        let mut bot = Irc::joined(at, Some(&ann), "r");
        let mut guest = Irc::joined(at, None, "r");

        bot.say("PRIVMSG #r :/ban mod because I can");
        assert_eq!(tag(&bot.hears("NOTICE"), "msg-id"), "no_permission");
        bot.say("PRIVMSG #r :one");
        let one = tag(&guest.hears("PRIVMSG"), "id").to_owned();
        bot.say("PRIVMSG #r :two");
        guest.hears("PRIVMSG");

        moderator.say(&format!("PRIVMSG #r :/delete {one}"));
        assert_eq!(tag(&moderator.hears("NOTICE"), "msg-id"), "delete_message_success");
        let taken = guest.hears("CLEARMSG");
        assert_eq!((tag(&taken, "target-msg-id"), tag(&taken, "login")), (&*one, "ann"));
        assert!(!taken.contains("one"), "what is taken back is not said again: {taken}");

        moderator.say("PRIVMSG #r :/slow 60");
        assert_eq!(tag(&moderator.hears("NOTICE"), "msg-id"), "slow_on");
        assert_eq!(tag(&guest.hears("ROOMSTATE"), "slow"), "60");
        // Somebody of whom nothing else is asked: who was refused is refused at the door for a moment.
        let mut chatty = Irc::joined(at, Some(&server.token("cat", &["publisher"])), "r");
        chatty.say("PRIVMSG #r :three");
        chatty.hears("id=");
        chatty.say("PRIVMSG #r :four");
        assert_eq!(tag(&chatty.hears("NOTICE"), "msg-id"), "msg_slowmode");
        moderator.say("PRIVMSG #r :/slowoff");
        assert_eq!(tag(&moderator.hears("msg-id=slow"), "msg-id"), "slow_off");
        assert_eq!(tag(&guest.hears("ROOMSTATE"), "slow"), "0");

        moderator.say("PRIVMSG #r :/timeout Ann 10m stop it");
        assert_eq!(tag(&moderator.hears("NOTICE"), "msg-id"), "timeout_success");
        let cleared = guest.hears("CLEARCHAT");
        assert!(cleared.ends_with(" CLEARCHAT #r :ann\r\n"), "{cleared}");
        assert_eq!((tag(&cleared, "target-user-id"), tag(&cleared, "ban-duration")), ("ann", "1"));
        bot.say("PRIVMSG #r :five");
        assert_eq!(tag(&bot.hears("msg-id=msg_banned"), "msg-id"), "msg_banned");
        moderator.say("PRIVMSG #r :/untimeout ann\r\nPRIVMSG #r :/unban ann");
        let told: Vec<String> = (0..2).map(|_| moderator.hears("NOTICE")).collect();
        assert_eq!((tag(&told[0], "msg-id"), tag(&told[1], "msg-id")), ("untimeout_success", "bad_unban_no_ban"));
        bot.say("PRIVMSG #r :six");
        bot.hears("USERSTATE");
        moderator.say("PRIVMSG #r :/clear");
        assert!(guest.hears("CLEARCHAT").ends_with(" CLEARCHAT #r\r\n"));
        moderator.say("PRIVMSG #r :/followers\r\nPRIVMSG #r :/dance");
        assert_eq!(tag(&moderator.hears("NOTICE"), "msg-id"), "unavailable_command");
        assert_eq!(tag(&moderator.hears("NOTICE"), "msg-id"), "unrecognized_cmd");
        // The audit names who it was and by what.
        let audit =
            server.http().call("GET", "/admin/audit?room=r&operator=mod", Some(&admin), None).expect("an answer");
        let deeds: Vec<&Value> =
            audit.json["audit"].as_array().expect("rows").iter().map(|row| &row["justification"]).collect();
        assert!(deeds.contains(&&json!("irc /timeout: stop it")) && deeds.contains(&&json!("irc /clear")), "{deeds:?}");

        // Who is in is told of each change, and who comes later of what holds.
        for (command, id, state, value) in [
            ("/uniquechat", "r9k_on", "r9k", "1"),
            ("/uniquechatoff", "r9k_off", "r9k", "0"),
            ("/subscribers", "subs_on", "subs-only", "1"),
            ("/subscribersoff", "subs_off", "subs-only", "0"),
            ("/emoteonly", "emote_only_on", "emote-only", "1"),
        ] {
            moderator.say(&format!("PRIVMSG #r :{command}"));
            assert_eq!(tag(&moderator.hears("NOTICE"), "msg-id"), id);
            let told = guest.hears("ROOMSTATE");
            assert_eq!(told, format!("@room-id=r;{state}={value} :tmi.twitch.tv ROOMSTATE #r\r\n"));
        }
        let mut late = Irc::enter(at, Some(&ann));
        // Each gateway hears of it in its own time.
        until("the room's state is told", || {
            late.say("JOIN #r");
            let told = tag(&late.hears("ROOMSTATE"), "emote-only") == "1";
            late.say("PART #r");
            told
        });
        late.say("PRIVMSG #r :words");
        assert_eq!(tag(&late.hears("NOTICE"), "msg-id"), "msg_emoteonly");
    }
}

/// A server with IRC over TCP, and where.
fn started(args: &[&str]) -> (Server, SocketAddr) {
    // Several processes need a port that is known before.
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port");
    let listen = format!("irc.tcp.listen={free}");
    let all: Vec<&str> = ["--set", &listen].into_iter().chain(args.iter().copied()).collect();
    (Server::start(&all, &[]), free)
}

#[test]
fn gifts_scores_and_banners_are_told_with_tags_and_to_plain_clients_in_words() {
    let server = Server::start(&ON, &[]);
    let at = address(&server, "tcp");
    let (shop, admin) = (server.token("shop", &["backend"]), server.token("ops", &["admin"]));
    server.put_room("r", &admin, json!({"matches": ["final"], "state": "live"}));
    let mut bot = Irc::joined(at, None, "r");
    let mut plain = Irc::connect(at);
    plain.say("NICK justinfan7\r\nJOIN #r");
    plain.hears(" 366 ");
    let post = |path: &str, token: &str, body: &Value| {
        let answer = server.http().call("POST", path, Some(token), Some(body)).expect("an answer");
        assert!((200..300).contains(&answer.status), "{:?}", answer.json);
    };
    let gift = json!({"gift_id": "g1", "user": {"id": "Ann", "name": "Ann B"}, "item": "rocket", "count": 2,
        "amount_micros": 9_980_000, "currency": "EUR"});
    post("/v1/rooms/r/gifts", &shop, &gift);
    let line = bot.hears("USERNOTICE");
    assert_eq!((tag(&line, "msg-id"), tag(&line, "login"), tag(&line, "user-id")), ("gift", "^41nn", "Ann"));
    assert_eq!((tag(&line, "msg-param-item"), tag(&line, "msg-param-count")), ("rocket", "2"));
    assert_eq!((tag(&line, "msg-param-amount-micros"), tag(&line, "msg-param-currency")), ("9980000", "EUR"));
    assert_eq!(tag(&line, "system-msg"), "Ann\\sB\\sgave\\s2\\sx\\srocket\\s(9.98\\sEUR)");
    assert_eq!(plain.next().as_deref(), Some(":tmi.twitch.tv NOTICE #r :Ann B gave 2 x rocket (9.98 EUR)\r\n"));
    let goal = json!({"match_id": "final", "event_id": "e1", "provider": "p", "kind": "goal", "score": {"home": 1, "away": 0}, "minute": "9"});
    post("/v1/score-event", &shop, &goal);
    let line = bot.hears("msg-id=announcement");
    assert_eq!(
        (tag(&line, "msg-param-home"), tag(&line, "msg-param-away"), tag(&line, "msg-param-minute")),
        ("1", "0", "9")
    );
    assert!(line.ends_with(" USERNOTICE #r :final 1:0, goal (9)\r\n"), "{line}");
    assert!(plain.hears("NOTICE #r :final").ends_with(":final 1:0, goal (9)\r\n"));
    post("/admin/banners", &admin, &json!({"body": "to everyone", "justification": "test"}));
    assert!(bot.hears("to everyone").contains("msg-param-banner-id="));
    assert_eq!(plain.hears("everyone"), ":tmi.twitch.tv NOTICE #r :to everyone\r\n");
    // A second room of the same connection does not say it again.
    bot.say("JOIN #s");
    let joined = bot.until("ROOMSTATE #s");
    assert!(!joined.iter().any(|line| line.contains("everyone")), "{joined:?}");
}

#[test]
fn no_comment_forges_a_line_and_broken_lines_are_answered() {
    let server = Server::start(&ON, &[]);
    let at = address(&server, "tcp");
    let backend = server.token("shop", &["backend"]);
    let mut bot = Irc::joined(at, None, "r");
    let body = json!({"client_msg_id": "k1", "body": "hi\n:tmi.twitch.tv RECONNECT\nPING :x",
        "as": {"id": "a b!c;d", "name": "x;mod=1 y\\", "badges": ["q,moderator/1;mod=1"]}});
    let path = "/v1/rooms/r/comments";
    let answer = server.http().call("POST", path, Some(&backend), Some(&body)).expect("an answer");
    assert_eq!(answer.status, 200, "{:?}", answer.json);
    let line = bot.hears("PRIVMSG");
    assert!(line.ends_with(" PRIVMSG #r :hi :tmi.twitch.tv RECONNECT PING :x\r\n"), "{line}");
    assert_eq!((tag(&line, "mod"), tag(&line, "display-name")), ("0", "x\\:mod=1\\sy\\\\"));
    assert!(line.contains(" :a^20b^21c^3bd!"), "{line}");

    for (bytes, rule) in [
        (b"PRIVMSG #r :a\0b\r\n".to_vec(), "a line holds no NUL"),
        (b"PRIVMSG #r :\xff\r\n".to_vec(), "a line is UTF-8"),
        ([b"PRIVMSG #r :", &[b'x'; 20_000][..], b"\r\n"].concat(), "a line has at most"),
        (b"@tags=only\r\n".to_vec(), "a line has a command"),
    ] {
        bot.write(&bytes);
        assert!(bot.hears(" 417 ").contains(rule), "{rule}");
    }
    // It goes on after all of them.
    bot.say("PING :still");
    bot.hears("PONG tmi.twitch.tv :still");
}

#[test]
fn a_flood_of_lines_ends_its_connection_and_no_other() {
    let server = Server::start(&ON, &[]);
    let at = address(&server, "tcp");
    let mut calm = Irc::joined(at, None, "r");
    let mut flood = Irc::enter(at, None);
    // The server may have hung up before all of it is written.
    let _ = flood.0.get_mut().write_all(&b"PING :x\r\n".repeat(400));
    let rest = flood.rest();
    let n = rest.iter().filter(|line| line.contains("PONG")).count();
    assert!((150..=260).contains(&n), "{n}");
    assert!(
        rest.last().is_some_and(|line| line.starts_with("ERROR :Closing link: more than 20 lines a second")),
        "{rest:?}"
    );
    calm.say("PING :x");
    calm.hears("PONG");
    // Joins have a rate of their own.
    let mut eager = Irc::enter(at, None);
    let rooms: Vec<String> = (0..30).map(|n| format!("#room{n}")).collect();
    eager.say(&format!("JOIN {}", rooms.join(",")));
    assert_eq!(tag(&eager.hears("NOTICE #room2"), "msg-id"), "msg_ratelimit");
}

#[test]
fn a_blackout_and_a_ban_of_the_site_reach_those_who_are_in() {
    let server = Server::start(
        &[&ON[..], &["--set", "trusted_proxies=127.0.0.0/8", "--set", "region.header=x-where"]].concat(),
        &[],
    );
    let at = address(&server, "tcp");
    let (admin, ann) = (server.token("ops", &["admin"]), server.token("ann", &["publisher"]));
    server.put_room("r", &admin, json!({}));
    let mut bot = Irc::joined(at, Some(&ann), "r");
    bot.join("s");
    let mut page = WebSocket::open(address(&server, "websocket"), &[("x-where", "FR")]);
    page.say("NICK justinfan1\r\nCAP REQ :twitch.tv/commands twitch.tv/tags\r\nJOIN #r");
    page.hears("ROOMSTATE #r");
    server.put_room("r", &admin, json!({"blackout_regions": ["GB"]}));
    // Of whom nobody knows where they are is in every region; the other room stays.
    assert_eq!(tag(&bot.hears("NOTICE #r"), "msg-id"), "msg_channel_suspended");
    bot.hears("PART #r");
    bot.say("JOIN #r");
    assert_eq!(tag(&bot.hears("NOTICE #r"), "msg-id"), "msg_channel_suspended");
    // What a trusted proxy said of the WebSocket counts.
    let id = server.published("r", &admin_backend(&server), "k", "where it may be shown");
    assert_eq!(tag(&page.hears("PRIVMSG"), "id"), id.to_string());
    let ban = json!({"user_id": "ann", "justification": "in every room"});
    server.http().call("POST", "/admin/bans", Some(&admin), Some(&ban)).expect("an answer");
    assert_eq!(tag(&bot.hears("NOTICE #s"), "msg-id"), "no_permission");
    bot.hears("PART #s");
}

fn admin_backend(server: &Server) -> String {
    server.token("shop", &["backend"])
}

#[test]
fn who_is_drained_or_stopped_is_sent_away_to_come_back() {
    let mut server = Server::start(&ON, &[]);
    let at = address(&server, "tcp");
    let admin = server.token("ops", &["admin"]);
    let mut bot = Irc::joined(at, None, "r");
    let drain = json!({"seconds": 1, "justification": "test"});
    let answer =
        server.http().call("POST", "/admin/gateways/local/drain", Some(&admin), Some(&drain)).expect("an answer");
    assert_eq!(answer.status, 200, "{:?}", answer.json);
    bot.hears("RECONNECT");
    assert_eq!(bot.rest(), Vec::<String>::new());
    let again = json!({"justification": "test"});
    server.http().call("POST", "/admin/gateways/local/admission", Some(&admin), Some(&again)).expect("an answer");
    let mut bot = Irc::joined(at, None, "r");
    let mut idle = Irc::enter(at, None);
    server.stop();
    bot.hears("RECONNECT");
    idle.hears("RECONNECT");
}

#[test]
fn a_shadow_banned_user_hears_itself_alone() {
    let server = Server::start(&ON, &[]);
    let at = address(&server, "tcp");
    let (admin, ann) = (server.token("ops", &["admin"]), server.token("ann", &["publisher"]));
    server.put_room("r", &admin, json!({}));
    let mut bot = Irc::joined(at, Some(&ann), "r");
    let mut guest = Irc::joined(at, None, "r");
    let ban = json!({"user_id": "ann", "shadow": true, "justification": "test"});
    let answer = server.http().call("POST", "/admin/rooms/r/bans", Some(&admin), Some(&ban)).expect("an answer");
    assert_eq!(answer.status, 200, "{:?}", answer.json);
    bot.say("PRIVMSG #r :who hears me");
    bot.hears("USERSTATE");
    server.published("r", &admin_backend(&server), "k", "everybody");
    let heard = guest.until("everybody");
    assert!(!heard.iter().any(|line| line.contains("who hears me")), "{heard:?}");
}

#[test]
fn the_websockets_port_serves_irc_alone_and_no_foreign_page() {
    let server = Server::start(&ON, &[]);
    let mut http = crate::support::Http::connect(address(&server, "websocket")).expect("it accepts");
    let answer = http.call("GET", "/v1/rooms", None, None).expect("an answer");
    assert_eq!((answer.status, &answer.json["code"]), (421, &json!("wrong_listener")));
    let mut foreign = crate::support::Http::connect(address(&server, "websocket")).expect("it accepts");
    foreign.send("GET", "/", &[("origin", "https://evil.example")], &[]).expect("sent");
    assert_eq!(foreign.answer().expect("an answer").status, 403);
}

/// The same lines in a WebSocket.
pub struct WebSocket {
    socket: BufReader<TcpStream>,
    lines: Vec<String>,
}

impl WebSocket {
    pub fn open(at: SocketAddr, headers: &[(&str, &str)]) -> WebSocket {
        let mut http = crate::support::Http::connect(at).expect("it accepts");
        let fixed = [
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("sec-websocket-protocol", "irc"),
        ];
        http.send("GET", "/", &[&fixed[..], headers].concat(), &[]).expect("sent");
        let (status, head) = http.head().expect("an answer");
        assert_eq!((status, head["sec-websocket-protocol"].as_str()), (101, "irc"));
        let Wire::Plain(socket) = http.stream.into_inner() else { panic!("it is plain") };
        WebSocket { socket: BufReader::new(socket), lines: Vec::new() }
    }

    pub fn say(&mut self, lines: &str) {
        self.write(&[(Opcode::Text, lines.as_bytes())]);
    }

    /// Frames that arrive together.
    pub fn write(&mut self, frames: &[(Opcode, &[u8])]) {
        let mut bytes = Vec::new();
        for (opcode, body) in frames {
            write_masked_frame(*opcode, true, body, [1, 2, 3, 4], &mut bytes);
        }
        self.socket.get_mut().write_all(&bytes).expect("it is open");
    }

    pub fn hears(&mut self, what: &str) -> String {
        use std::io::Read;
        loop {
            if let Some(at) = self.lines.iter().position(|line| line.contains(what)) {
                let line = self.lines.remove(at);
                self.lines.drain(..at);
                return line;
            }
            let mut head = [0; 2];
            self.socket.read_exact(&mut head).expect("a frame");
            assert_eq!(head[0], 0x81, "one whole text frame");
            let len = match head[1] {
                126 => {
                    let mut long = [0; 2];
                    self.socket.read_exact(&mut long).expect("a length");
                    usize::from(u16::from_be_bytes(long))
                }
                n => usize::from(n),
            };
            let mut body = vec![0; len];
            self.socket.read_exact(&mut body).expect("a body");
            let text = String::from_utf8(body).expect("text");
            assert!(text.ends_with("\r\n"), "whole lines: {text:?}");
            self.lines.extend(text.split_inclusive("\r\n").map(str::to_owned));
        }
    }
}

#[test]
fn viewers_of_every_kind_hear_the_same_room() {
    let (server, at) = started(&["--gateways", "2"]);
    let backend = admin_backend(&server);
    let mut bots: Vec<Irc> = (0..6).map(|_| Irc::joined(at, None, "r")).collect();
    let mut viewer = Viewer::open(&server, Rung::Sse, "r", None, None).unwrap_or_else(|a| panic!("{a:?}"));
    viewer.until(|e| e["type"] == "hello");
    let ids: Vec<u64> =
        (0..20).map(|n| server.published("r", &backend, &format!("k{n}"), &format!("comment {n}"))).collect();
    viewer.until_id(ids[19]);
    for bot in &mut bots {
        let heard: Vec<String> = ids.iter().map(|_| tag(&bot.hears("PRIVMSG"), "id").to_owned()).collect();
        assert_eq!(heard, ids.iter().map(u64::to_string).collect::<Vec<_>>());
    }
}
