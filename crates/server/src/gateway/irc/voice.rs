//! How lines to one client are made: in Twitch's words, with the tags and commands it asked for.
//!
//! Who has asked for nothing is a plain IRC client: what has no line of its own there is a notice in words.

use grandstand_core::names::RoomId;
use grandstand_wire::irc::{Writer, nick};

/// Unmodified clients compare where a line comes from with this name.
pub const SERVER: &str = "tmi.twitch.tv";

/// What a client asked for by `CAP REQ`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Voice {
    pub tags: bool,
    /// `USERNOTICE`, `CLEARCHAT`, `ROOMSTATE` and the like.
    pub commands: bool,
}

/// Names and values, in the order in which they are written.
pub type Tags<'a> = Vec<(&'a str, String)>;

impl Voice {
    pub const CAPS: [&'static str; 3] = ["twitch.tv/commands", "twitch.tv/membership", "twitch.tv/tags"];

    /// Errors: `false` for a capability that there is not.
    pub fn take(&mut self, cap: &str) -> bool {
        match cap {
            "twitch.tv/tags" => self.tags = true,
            "twitch.tv/commands" => self.commands = true,
            // Nobody else's JOIN and PART is told: there is nothing to switch on.
            "twitch.tv/membership" => {}
            _ => return false,
        }
        true
    }

    /// A line with its tags, where they were asked for.
    pub fn line<'o>(self, tags: &Tags<'_>, source: &str, verb: &str, out: &'o mut Vec<u8>) -> Writer<'o> {
        let mut writer = Writer::new(out);
        if self.tags {
            for (key, value) in tags {
                writer = writer.tag(key, value);
            }
        }
        writer.verb(Some(source), verb)
    }

    /// A notice in a room, or to the connection.
    pub fn notice(self, room: Option<&RoomId>, id: &str, text: &str, out: &mut Vec<u8>) {
        let tags = if id.is_empty() { Tags::new() } else { vec![("msg-id", id.to_owned())] };
        let target = room.map_or_else(|| "*".to_owned(), channel);
        self.line(&tags, SERVER, "NOTICE", out).param(&target).text(text);
    }

    /// A reply with its number.
    pub fn reply(self, number: &str, to: &str, words: &[&str], text: &str, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out).verb(Some(SERVER), number).param(word(to));
        for w in words {
            writer = writer.param(word(w));
        }
        writer.text(text);
    }
}

pub fn channel(room: &RoomId) -> String {
    format!("#{room}")
}

/// Where a user's lines come from.
pub fn source(nick: &str) -> String {
    format!("{nick}!{nick}@{nick}.{SERVER}")
}

/// The nick of a user, when there is one.
pub fn nick_of(user: &str) -> String {
    if user.is_empty() { "*".to_owned() } else { nick(user) }
}

/// What a client said, as a parameter of an answer.
fn word(text: &str) -> &str {
    if text.is_empty() || text.starts_with(':') { "*" } else { text }
}

/// Badges as a tag: `name/1`, or as they are where a version stands in them.
pub fn badges<'a>(badges: impl IntoIterator<Item = &'a str>) -> String {
    let mut out = String::new();
    for badge in badges {
        if !out.is_empty() {
            out.push(',');
        }
        let clean = badge.replace([',', ' '], "-");
        match clean.split_once('/') {
            Some((name, version)) if !name.is_empty() && !version.is_empty() && !version.contains('/') => {
                out.push_str(&clean);
            }
            _ => {
                out.push_str(&clean.replace('/', "-"));
                out.push_str("/1");
            }
        }
    }
    out
}

pub fn flag(yes: bool) -> String {
    if yes { "1" } else { "0" }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::{Voice, badges};

    #[test]
    fn badges_have_a_version_and_none_can_forge_another() {
        assert_eq!(
            badges(["vip", "subscriber/12", "a,moderator/1", "x/", "a/b/c", "gold fan"]),
            "vip/1,subscriber/12,a-moderator/1,x-/1,a-b-c/1,gold-fan/1"
        );
        assert_eq!(badges([]), "");
    }

    #[test]
    fn who_asked_for_no_tags_is_sent_none() {
        let (mut plain, mut tagged) = (Vec::new(), Vec::new());
        Voice::default().notice(None, "x", "text", &mut plain);
        Voice { tags: true, commands: false }.notice(None, "x", "text", &mut tagged);
        assert_eq!(plain, b":tmi.twitch.tv NOTICE * :text\r\n");
        assert_eq!(tagged, b"@msg-id=x :tmi.twitch.tv NOTICE * :text\r\n");
    }
}
