//! What a room asks of a comment beside its length: that it is not said twice, that it is emotes alone, that its author is a
//! member. Moderators and backends are asked nothing.
//!
//! An emote is an emoji as the reader sees it, or a name between colons (`:clap:`), which a client may show as a picture. A
//! comment is emotes alone when nothing but spaces stands beside them.

use crate::record::Room;
use crate::reject::{Code, Reject};

/// Bytes of the badge that makes a member.
pub const BADGE_BYTES_MAX: usize = crate::rooms::BADGE_BYTES_MAX;
/// Letters of a name between colons.
const NAME_MAX: usize = 32;

/// What the room has against this comment, its uniqueness aside.
/// Errors: the reject, by name; no waiting helps.
pub fn check<'b>(room: &Room, text: &str, badges: impl IntoIterator<Item = &'b str>) -> Result<(), Reject> {
    if let Some(badge) = &room.members_only
        && !badges.into_iter().any(|b| b == &**badge)
    {
        return Err(Reject::new(Code::MembersOnly, format!("only members with the badge {badge} may comment here")));
    }
    if room.emote_only && !is_emotes(text) {
        return Err(Reject::new(Code::EmoteOnly, "only emotes may be said here: emoji, or names like :clap:"));
    }
    Ok(())
}

/// Whether nothing but emotes is said.
pub fn is_emotes(text: &str) -> bool {
    let mut words = text.split_whitespace().peekable();
    words.peek().is_some() && words.all(is_emote_word)
}

/// Emotes written together are one word.
fn is_emote_word(mut word: &str) -> bool {
    let mut seen = false;
    while let Some(c) = word.chars().next() {
        let rest = match c {
            ':' => named(&word[1..]),
            c if is_pictograph(c) => Some(after_emoji(&word[c.len_utf8()..])),
            '0'..='9' | '#' | '*' => keycap(&word[1..]),
            _ => None,
        };
        let Some(rest) = rest else { return false };
        (word, seen) = (rest, true);
    }
    seen
}

/// What follows `name:`.
fn named(word: &str) -> Option<&str> {
    let (name, rest) = word.split_once(':')?;
    let ok = (1..=NAME_MAX).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    ok.then_some(rest)
}

fn keycap(word: &str) -> Option<&str> {
    word.strip_prefix('\u{fe0f}').unwrap_or(word).strip_prefix('\u{20e3}')
}

/// What follows the marks of an emoji, and what it is joined to.
fn after_emoji(word: &str) -> &str {
    let is_mark = |c: char| matches!(c, '\u{fe0e}' | '\u{fe0f}' | '\u{20e3}' | '\u{1f3fb}'..='\u{1f3ff}' | '\u{e0020}'..='\u{e007f}');
    let rest = word.trim_start_matches(is_mark);
    match rest.strip_prefix('\u{200d}') {
        Some(joined) => match joined.chars().next() {
            Some(c) if is_pictograph(c) => after_emoji(&joined[c.len_utf8()..]),
            _ => rest,
        },
        None => rest,
    }
}

/// The blocks that hold emoji. Wider than the list of emoji by some signs, and by no letter or digit of any script.
fn is_pictograph(c: char) -> bool {
    matches!(c,
        '\u{1f000}'..='\u{1faff}' | '\u{2600}'..='\u{27bf}' | '\u{2b00}'..='\u{2bff}' | '\u{2300}'..='\u{23ff}'
        | '\u{2190}'..='\u{21ff}' | '\u{25a0}'..='\u{25ff}' | '\u{a9}' | '\u{ae}' | '\u{203c}' | '\u{2049}' | '\u{2122}'
        | '\u{3030}' | '\u{303d}' | '\u{3297}' | '\u{3299}')
        && !matches!(c, '\u{1f100}'..='\u{1f16f}' | '\u{1f172}'..='\u{1f17d}' | '\u{1f180}'..='\u{1f18d}')
        || matches!(c, '\u{1f170}' | '\u{1f171}' | '\u{1f17e}' | '\u{1f17f}' | '\u{1f18e}')
}

#[cfg(test)]
mod tests {
    use super::{check, is_emotes};
    use crate::record::Room;
    use crate::reject::Code;

    #[test]
    fn emoji_and_names_between_colons_are_emotes_and_words_are_not() {
        for good in
            ["🔥", "🔥🔥 🎉", ":clap:", ":clap::clap: ❤️", "👩‍👩‍👧", "👍🏽", "1️⃣", "🇦🇷", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", " ⚽ \n ⚽ ", ":GG_2-a:"]
        {
            assert!(is_emotes(good), "{good:?}");
        }
        for bad in
            ["", "  ", "gol", "🔥gol", "a 🔥", "1", ":", "::", ":clap", "clap:", ":a b:", "!", "‍", "é", "①", "🅰🅐", "٣"]
        {
            assert!(!is_emotes(bad), "{bad:?}");
        }
    }

    #[test]
    fn members_are_known_by_their_badge() {
        let room = Room { members_only: Some("sub".into()), ..Room::fresh("r") };
        assert!(check(&room, "hi", ["vip", "sub"]).is_ok());
        assert_eq!(check(&room, "hi", ["vip"]).unwrap_err().code, Code::MembersOnly);
        let both = Room { emote_only: true, ..room };
        assert_eq!(check(&both, "hi", ["sub"]).unwrap_err().code, Code::EmoteOnly);
        assert!(check(&Room::fresh("r"), "hi", []).is_ok());
    }
}
