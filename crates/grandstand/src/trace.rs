//! Recorded rooms: what a file of real chat or a list of real matches says happened, and when.
//!
//! A trace is a list of steps on one timeline, like the cue sheet of a play: each step has the time since the trace began
//! and what is then done (a comment by an author, a score event). Every format is recognised by its content, never by its
//! file name, because recorders name files as they like.
//!
//! A reader never fails because of one line: what is not a comment is skipped under a stated reason, what is not even the
//! format is counted as malformed. Only a file that is none of the known formats is a fault.
//!
//! The awkward case is time: clocks in recordings jump, run backwards for a moment (chunks arrive late) and lie idle for
//! days between two captures glued together. The timeline never goes back, and a gap above [`GAP_MAX`] counts as a cut.

pub mod bilibili;
pub mod chat_jsonl;
pub mod eventsub;
pub mod irc;
mod money;
pub mod niconico;
pub mod openfootball;
pub mod tiktok;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use grandstand_core::text::{NAME_BYTES_MAX, NAME_CLUSTERS_MAX, check_name};
use unicode_segmentation::UnicodeSegmentation as _;

/// A silence above this is where two recordings were joined, not a pause of the room.
pub const GAP_MAX: Duration = Duration::from_secs(10 * 60);
/// What is left of such a gap.
const GAP_CUT: Duration = Duration::from_secs(1);
/// Authors invented for recordings that carry none: wide enough that no single one floods.
const CROWD: u64 = 997;

/// The reason under which lines that are not even the format are counted.
pub const MALFORMED: &str = "malformed";
/// What a paid comment is as a gift.
pub(crate) const SUPERCHAT: &str = "superchat";
/// The reason under which entries without any text are counted.
pub const NO_TEXT: &str = "no text";
/// Of deletions whose target was said before the recording began, or somewhere else.
pub(crate) const NOT_HELD: &str = "a deletion of what the recording does not hold";
/// What stands for a comment of which the recording says only that it was held for review: a phrase for a server's list.
pub const HELD_TEXT: &str = "held for review";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    TwitchIrc,
    ChatJsonl,
    TwitchVod,
    Bilibili,
    Niconico,
    Tiktok,
    TwitchEventsub,
    Openfootball,
}

impl Format {
    pub fn name(self) -> &'static str {
        match self {
            Format::TwitchIrc => "twitch-irc",
            Format::ChatJsonl => "chat-jsonl",
            Format::TwitchVod => "twitch-vod",
            Format::Bilibili => "bilibili-xml",
            Format::Niconico => "niconico-jsonl",
            Format::Tiktok => "tiktok-jsonl",
            Format::TwitchEventsub => "twitch-eventsub",
            Format::Openfootball => "openfootball-json",
        }
    }
}

/// Invariant: `read == steps.len() - derived + the sum of skipped`.
#[derive(Clone, PartialEq, Debug)]
pub struct Trace {
    pub format: Format,
    /// Entries of the file: lines, XML elements, or the kick-offs, goals and period scores of a fixture list.
    pub read: u64,
    /// In the order they are played.
    pub steps: Vec<Step>,
    /// Steps that no entry stands for by itself: a provisional report before its confirmation, a corrected score, the words
    /// that came with a purchase.
    pub derived: u64,
    /// Entries that are no step, by reason.
    pub skipped: BTreeMap<String, u64>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Step {
    /// Since the trace began.
    pub at: Duration,
    /// The entry it comes from, counted from 1.
    pub entry: u64,
    pub act: Act,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Act {
    Comment(Comment),
    Score(Score),
    Gift(Gift),
    Moderate(Deed),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Comment {
    pub author: Author,
    /// As recorded; the server's text rule judges it.
    pub text: String,
    /// What the recording calls it, where something later may speak of it.
    pub id: Option<String>,
}

/// What was done to comments, users and the room. Users are [`Author::id`]s.
#[derive(Clone, PartialEq, Debug)]
pub enum Deed {
    /// The comment of this id, which was said before.
    Retract(String),
    RetractUser(String),
    RetractAll,
    /// For good without `seconds`.
    Ban {
        user: String,
        seconds: Option<u64>,
    },
    Unban(String),
    SlowMode(u32),
    /// A room's setting, as `PUT` takes it.
    Put {
        member: &'static str,
        value: serde_json::Value,
    },
    /// What was held for review; [`HELD_TEXT`] where the recording does not say what it was.
    Hold(Comment),
    /// A word on what was held under this id.
    Decide {
        id: String,
        approve: bool,
    },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Author {
    /// 1 to 64 bytes, the same for every comment of this author and in every run.
    pub id: String,
    pub name: String,
    pub badges: Vec<String>,
}

/// One purchase. Shown twice by its platform it is two steps with one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gift {
    /// The purchase's own: the same in every run and of every copy.
    pub key: String,
    pub author: Author,
    pub item: String,
    pub count: u32,
    /// Millionths of the currency, of all items together.
    pub amount_micros: u64,
    pub currency: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Score {
    pub match_id: String,
    /// The event within its match, the same for all of its revisions.
    pub event: String,
    pub revision: u32,
    pub kind: &'static str,
    pub state: &'static str,
    pub home: u32,
    pub away: u32,
    pub minute: String,
    /// Both teams, for people who read the log.
    pub teams: String,
}

#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error(
        "not a recording this tool reads (Twitch IRC, chat-downloader JSON Lines, Twitch VOD JSON Lines, Bilibili XML, Niconico JSON Lines, TikTok JSON Lines, Twitch EventSub JSON Lines, openfootball JSON)"
    )]
    UnknownFormat,
    #[error("the file holds nothing")]
    Empty,
}

/// Reads one file's bytes.
///
/// Errors: only a file of an unknown format or an empty one; single bad lines are counted in the trace.
pub fn read(bytes: &[u8]) -> Result<Trace, Fault> {
    match recognise(bytes)? {
        Format::TwitchIrc => Ok(irc::read(bytes)),
        Format::Bilibili => Ok(bilibili::read(bytes)),
        Format::Niconico => Ok(niconico::read(bytes)),
        Format::Tiktok => Ok(tiktok::read(bytes)),
        Format::TwitchEventsub => Ok(eventsub::read(bytes)),
        Format::Openfootball => openfootball::read(bytes).ok_or(Fault::UnknownFormat),
        format @ (Format::ChatJsonl | Format::TwitchVod) => Ok(chat_jsonl::read(bytes, format)),
    }
}

/// Decides the format from the first lines that tell it.
pub fn recognise(bytes: &[u8]) -> Result<Format, Fault> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let start = bytes.iter().position(|b| !b.is_ascii_whitespace()).ok_or(Fault::Empty)?;
    let bytes = &bytes[start..];
    if bytes[0] == b'<' {
        return if bilibili::recognise(bytes) { Ok(Format::Bilibili) } else { Err(Fault::UnknownFormat) };
    }
    if bytes[0] == b'{' && openfootball::recognise(bytes) {
        return Ok(Format::Openfootball);
    }
    // A recorder may have cut its first lines; fifty are enough to find a whole one.
    for line in lines(bytes).take(50) {
        let Ok(line) = line else { continue };
        if line.starts_with('{') {
            let Ok(row) = serde_json::from_str::<serde_json::Value>(line) else { continue };
            if eventsub::recognise(&row) {
                return Ok(Format::TwitchEventsub);
            }
            if tiktok::recognise(&row) {
                return Ok(Format::Tiktok);
            }
            if row.get("vpos").is_some() && row.get("content").is_some() {
                return Ok(Format::Niconico);
            }
            if row.get("commenter").is_some() && row.get("content_offset_seconds").is_some() {
                return Ok(Format::TwitchVod);
            }
            let typed = ["action_type", "message_type", "author", "author_id", "time_in_seconds"];
            if row.get("timestamp").is_some() && typed.iter().any(|k| row.get(k).is_some()) {
                return Ok(Format::ChatJsonl);
            }
        } else if irc::recognise(line) {
            return Ok(Format::TwitchIrc);
        }
    }
    Err(Fault::UnknownFormat)
}

/// The non-empty lines without their ends; one that is not UTF-8 is an error of its own.
pub(crate) fn lines(bytes: &[u8]) -> impl Iterator<Item = Result<&str, std::str::Utf8Error>> {
    bytes
        .split(|b| *b == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
        .filter(|line| !line.is_empty())
        .map(std::str::from_utf8)
}

/// In which order the entries of a file were said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// A live capture: the file's own order is the order of arrival.
    AsWritten,
    /// Comments on a video: sorted by their place in it.
    ByTime,
}

/// What a reader collects, entry by entry; [`Rows::trace`] lays it on one timeline.
pub(crate) struct Rows {
    read: u64,
    acts: Vec<(Option<i64>, u64, Act)>,
    derived: u64,
    skipped: BTreeMap<String, u64>,
    /// What was said under an id of the recording.
    said: BTreeSet<String>,
}

impl Rows {
    pub fn new() -> Rows {
        Rows { read: 0, acts: Vec::new(), derived: 0, skipped: BTreeMap::new(), said: BTreeSet::new() }
    }

    /// `at_us`: microseconds on the recording's own clock; `None` keeps the time of the entry before.
    pub fn comment(&mut self, at_us: Option<i64>, author: Author, text: &str) {
        self.comment_of(at_us, author, text, None);
    }

    /// `id`: what the recording calls it.
    pub fn comment_of(&mut self, at_us: Option<i64>, author: Author, text: &str, id: Option<&str>) {
        let text = &*spoken(text);
        if text.trim().is_empty() {
            return self.skip(NO_TEXT);
        }
        self.read += 1;
        let id = id.map(str::to_owned);
        self.said.extend(id.clone());
        self.acts.push((at_us, self.read, Act::Comment(Comment { author, text: text.to_owned(), id })));
    }

    pub fn deed(&mut self, at_us: Option<i64>, deed: Deed) {
        self.read += 1;
        self.acts.push((at_us, self.read, Act::Moderate(deed)));
    }

    /// One comment is taken back, if the recording has it.
    pub fn retract(&mut self, at_us: Option<i64>, id: Option<&str>) {
        match id.filter(|id| self.said.contains(*id)) {
            Some(id) => self.deed(at_us, Deed::Retract(id.to_owned())),
            None => self.skip(NOT_HELD),
        }
    }

    /// `words`: what its giver said with it, a comment of its own.
    pub fn gift(&mut self, at_us: Option<i64>, gift: Gift, words: Option<&str>) {
        self.read += 1;
        let author = gift.author.clone();
        self.acts.push((at_us, self.read, Act::Gift(gift)));
        if let Some(text) = words.map(spoken).filter(|text| !text.trim().is_empty()) {
            self.derived += 1;
            let said = Comment { author, text: text.into_owned(), id: None };
            self.acts.push((at_us, self.read, Act::Comment(said)));
        }
    }

    pub fn skip(&mut self, why: &str) {
        self.read += 1;
        *self.skipped.entry(why.to_owned()).or_default() += 1;
    }

    /// The number of the entry that comes next, from 1.
    pub fn entry(&self) -> u64 {
        self.read + 1
    }

    pub fn trace(mut self, format: Format, order: Order) -> Trace {
        if order == Order::ByTime {
            self.acts.sort_by_key(|(at, _, _)| *at);
        }
        let mut at = Duration::ZERO;
        let mut latest: Option<i64> = None;
        let mut steps = Vec::with_capacity(self.acts.len());
        for (at_us, entry, act) in self.acts {
            if let Some(us) = at_us {
                let gap = latest.map_or(Duration::ZERO, |l| Duration::from_micros(us.saturating_sub(l).max(0) as u64));
                at += if gap > GAP_MAX { GAP_CUT } else { gap };
                // A late chunk does not move the clock back; a jump back beyond the gap is another recording's clock.
                let joined = latest.is_some_and(|l| l.saturating_sub(us) > GAP_MAX.as_micros() as i64);
                latest = Some(if joined { us } else { latest.map_or(us, |l| l.max(us)) });
            }
            steps.push(Step { at, entry, act });
        }
        Trace { format, read: self.read, steps, derived: self.derived, skipped: self.skipped }
    }
}

/// The words of a recorded text, without what its platform or recorder wrapped around them.
///
/// An action's IRC wrapping goes, a tab (a layout of some danmaku) is a space, and text that some recorders encoded twice
/// (UTF-8 read as Latin-1) is decoded once more. Everything else stays for the server's text rule to judge.
fn spoken(text: &str) -> Cow<'_, str> {
    let inner = text.strip_prefix("\u{1}ACTION ").map_or(text, |inner| inner.trim_end_matches('\u{1}'));
    // Characters of U+0080 to U+009F are the second and third bytes of such text, and of nothing people type.
    let twice = inner.chars().any(|c| ('\u{80}'..='\u{9f}').contains(&c));
    let bytes = || inner.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect::<Option<Vec<u8>>>();
    let decoded = twice.then(bytes).flatten().and_then(|b| String::from_utf8(b).ok());
    let inner = decoded.map_or(Cow::Borrowed(inner), Cow::Owned);
    if inner.contains('\t') { Cow::Owned(inner.replace('\t', " ")) } else { inner }
}

/// An author under the platform's own id, cut to what the protocol lets a user have (64 bytes of id, eight badges of 32
/// bytes); one without an id becomes one of the crowd.
pub(crate) fn author(platform: &str, id: Option<&str>, name: Option<&str>, badges: Vec<String>, entry: u64) -> Author {
    let clean = |text: &str, bytes: usize| {
        let mut out: String = text.chars().filter(|c| !c.is_control()).collect();
        while out.len() > bytes {
            out.pop();
        }
        out
    };
    let id = id.map(|id| clean(id, 60 - platform.len())).filter(|id| !id.is_empty());
    // The server's rule for names decides; one that breaks it is cut at its 32 characters, or is the id.
    let short = |n: &str| n.graphemes(true).take(NAME_CLUSTERS_MAX).collect::<String>();
    let name = name.map(|n| clean(short(n.trim()).trim(), NAME_BYTES_MAX)).filter(|n| check_name(n).is_ok());
    let badges: Vec<String> = badges.iter().map(|b| clean(b, 32)).filter(|b| !b.is_empty()).take(8).collect();
    match id {
        Some(id) => {
            let name = name.unwrap_or_else(|| clean(&short(&id), NAME_BYTES_MAX));
            Author { id: format!("{platform}:{id}"), name, badges }
        }
        None => {
            let place = grandstand_core::routing::stable_hash(&entry.to_le_bytes()) % CROWD;
            let name = name.unwrap_or_else(|| format!("viewer {place}"));
            Author { id: format!("{platform}:crowd-{place}"), name, badges }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Act, Author, Fault, Format, GAP_MAX, Order, Rows, author, read, recognise, spoken};

    fn at_seconds(times: &[Option<i64>], order: Order) -> Vec<u64> {
        let mut rows = Rows::new();
        for t in times {
            let by = Author { id: "a".into(), name: "a".into(), badges: Vec::new() };
            rows.comment(t.map(|s| s * 1_000_000), by, "hi");
        }
        rows.trace(Format::ChatJsonl, order).steps.iter().map(|s| s.at.as_secs()).collect()
    }

    #[test]
    fn the_timeline_starts_at_zero_and_never_goes_back() {
        assert_eq!(at_seconds(&[Some(100), Some(103), Some(101), None, Some(104)], Order::AsWritten), [0, 3, 3, 3, 4]);
        assert_eq!(at_seconds(&[Some(9), Some(1), Some(4)], Order::ByTime), [0, 3, 8]);
    }

    #[test]
    fn a_gap_of_days_is_a_cut_forwards_and_backwards() {
        let day = 86_400;
        assert!(day > GAP_MAX.as_secs() as i64);
        assert_eq!(
            at_seconds(&[Some(0), Some(day), Some(day + 2), Some(5), Some(6)], Order::AsWritten),
            [0, 1, 3, 3, 4]
        );
    }

    #[test]
    fn an_author_without_an_id_is_the_same_one_of_the_crowd_in_every_run() {
        let first = author("yt", None, None, Vec::new(), 7);
        assert_eq!(first, author("yt", Some(""), None, Vec::new(), 7));
        assert!(first.id.starts_with("yt:crowd-"));
        assert!(
            grandstand_core::names::UserId::parse(&author("yt", Some(&"é".repeat(90)), None, vec![], 1).id).is_some()
        );
    }

    #[test]
    fn wrappings_of_platforms_and_recorders_are_taken_off() {
        assert_eq!(spoken("\u{1}ACTION waves\u{1}"), "waves");
        assert_eq!(spoken("a\tb"), "a b");
        assert_eq!(spoken("ã\u{81}\u{86}"), "う");
        for plain in ["café ÿ", "う", "\u{1}CTCP\u{1}", "bad \u{81}"] {
            assert_eq!(spoken(plain), plain);
        }
    }

    #[test]
    fn a_file_of_another_kind_is_refused() {
        for other in
            ["hello world\n", "{\"type\":\"automod\",\"event\":{}}\n", "<html></html>", "{\"a\":1}", "\u{1}\u{2}"]
        {
            assert!(matches!(recognise(other.as_bytes()), Err(Fault::UnknownFormat)), "{other:?}");
        }
        assert!(matches!(recognise(b" \n"), Err(Fault::Empty)));
    }

    #[test]
    fn every_format_is_recognised_by_its_content() {
        for (sample, format) in samples() {
            assert_eq!(recognise(sample).unwrap(), format);
        }
    }

    #[test]
    fn every_entry_of_a_sample_is_a_step_or_told_as_skipped() {
        for (sample, format) in samples() {
            let trace = read(sample).unwrap();
            let skipped: u64 = trace.skipped.values().sum();
            assert_eq!(trace.read, trace.steps.len() as u64 - trace.derived + skipped, "{format:?}");
            assert!(trace.steps.windows(2).all(|w| w[0].at <= w[1].at), "{format:?}");
            for step in &trace.steps {
                if let Act::Comment(comment) = &step.act {
                    assert!(grandstand_core::names::UserId::parse(&comment.author.id).is_some(), "{comment:?}");
                }
            }
        }
    }

    fn samples() -> [(&'static [u8], Format); 8] {
        [
            (include_bytes!("../samples/twitch.irc"), Format::TwitchIrc),
            (include_bytes!("../samples/youtube.jsonl"), Format::ChatJsonl),
            (include_bytes!("../samples/twitch_vod.jsonl"), Format::TwitchVod),
            (include_bytes!("../samples/bilibili.xml"), Format::Bilibili),
            (include_bytes!("../samples/niconico.jsonl"), Format::Niconico),
            (include_bytes!("../samples/tiktok.jsonl"), Format::Tiktok),
            (include_bytes!("../samples/twitch_eventsub.jsonl"), Format::TwitchEventsub),
            (include_bytes!("../samples/openfootball.json"), Format::Openfootball),
        ]
    }
}

/// The readers over the whole recordings, found by `GRANDSTAND_TRACES`; what they hold is in the folder's manifest.
#[cfg(test)]
pub mod recordings {
    use std::path::PathBuf;

    use super::{Act, Deed, Fault, MALFORMED, NOT_HELD, read};

    /// Where they are; a test without them says that it was not run.
    pub fn folder() -> Option<PathBuf> {
        let folder = std::env::var_os("GRANDSTAND_TRACES").filter(|v| !v.is_empty()).map(PathBuf::from);
        if folder.is_none() {
            println!("not run: GRANDSTAND_TRACES unset");
        }
        folder
    }

    /// File, format, entries, comments among them.
    const CHAT: [(&str, &str, u64, usize); 14] = [
        ("01_twitch_recent_nymn.irc", "twitch-irc", 800, 798),
        ("02_twitch_irc_zoo.irc", "twitch-irc", 337, 206),
        ("03_twitch_eventsub_moderation.jsonl", "twitch-eventsub", 100, 6),
        ("04_twitch_spike_2020-12-09.jsonl", "chat-jsonl", 3341, 3317),
        ("05_youtube_premiere_2020-08-29.jsonl", "chat-jsonl", 7413, 7413),
        ("06_youtube_live_moderation_2020-12-04.jsonl", "chat-jsonl", 1773, 1699),
        ("07_youtube_superchat_2020-09-17.jsonl", "chat-jsonl", 125, 60),
        ("08_youtube_live_ticker_delete_2020-12-06.jsonl", "chat-jsonl", 484, 352),
        ("11_bilibili_vod_ccl_comment.xml", "bilibili-xml", 1386, 1386),
        ("12_bilibili_vod_dfm_2017.xml", "bilibili-xml", 1239, 1239),
        ("13_bilibili_live_recorder_sample.xml", "bilibili-xml", 153, 126),
        ("14_niconico_vod.jsonl", "niconico-jsonl", 4630, 4630),
        ("15_twitch_vod_25min.jsonl", "twitch-vod", 1723, 1723),
        ("16_tiktok_event_samples.jsonl", "tiktok-jsonl", 15, 1),
    ];

    #[test]
    fn at_least_99_percent_of_every_recording_is_read() {
        let Some(folder) = folder() else { return };
        for (name, format, entries, comments) in CHAT {
            let bytes = std::fs::read(folder.join("chat").join(name)).expect(name);
            let trace = read(&bytes).expect(name);
            let malformed = trace.skipped.get(MALFORMED).copied().unwrap_or(0);
            let said = trace.steps.iter().filter(|step| matches!(step.act, Act::Comment(_))).count();
            println!("{name}: {} read, {said} comments, skipped {:?}", trace.read, trace.skipped);
            assert_eq!((trace.format.name(), trace.read), (format, entries), "{name}");
            assert!(malformed * 100 <= trace.read, "{name}: {malformed} malformed");
            assert_eq!(said, comments, "{name}");
        }
    }

    #[test]
    fn every_purchase_of_a_recording_is_a_gift_and_its_copy_has_the_same_key() {
        let Some(folder) = folder() else { return };
        // File, rows of purchases, purchases, currencies among them.
        for (name, rows, purchases, currencies) in [
            ("07_youtube_superchat_2020-09-17.jsonl", 125, 68, 13),
            ("13_bilibili_live_recorder_sample.xml", 30, 30, 2),
            ("16_tiktok_event_samples.jsonl", 1, 1, 1),
        ] {
            let trace = read(&std::fs::read(folder.join("chat").join(name)).expect(name)).expect(name);
            let gifts: Vec<_> = trace
                .steps
                .iter()
                .filter_map(|s| if let Act::Gift(gift) = &s.act { Some(gift) } else { None })
                .collect();
            let keys: std::collections::BTreeSet<_> = gifts.iter().map(|gift| &gift.key).collect();
            let kinds: std::collections::BTreeSet<_> = gifts.iter().map(|gift| &gift.currency).collect();
            assert_eq!((gifts.len(), keys.len(), kinds.len()), (rows, purchases, currencies), "{name}: {kinds:?}");
        }
    }

    #[test]
    fn every_goal_of_the_fixture_lists_is_played_and_some_are_corrected() {
        let Some(folder) = folder() else { return };
        for (year, matches, goals) in [(2018, 64, 169), (2022, 64, 172), (2026, 104, 308)] {
            let name = format!("openfootball_worldcup_{year}.json");
            let bytes = std::fs::read(folder.join("sports").join(&name)).expect(&name);
            let trace = read(&bytes).expect(&name);
            assert!(trace.skipped.is_empty(), "{name}: {:?}", trace.skipped);
            let scores =
                || trace.steps.iter().filter_map(|s| if let Act::Score(score) = &s.act { Some(score) } else { None });
            assert_eq!(scores().filter(|s| s.kind == "kick_off").count(), matches, "{name}");
            assert_eq!(scores().filter(|s| s.event.starts_with("goal-") && s.revision == 1).count(), goals, "{name}");
            assert_eq!(scores().filter(|s| s.kind == "full_time").count(), matches, "{name}");
            assert!(scores().any(|s| s.kind == "correction"), "{name}");
            assert!(scores().any(|s| s.revision == 2), "{name}");
        }
    }

    #[test]
    fn at_least_99_percent_of_every_recordings_comments_pass_the_servers_text_rule() {
        let Some(folder) = folder() else { return };
        for (name, _, _, comments) in CHAT {
            let trace = read(&std::fs::read(folder.join("chat").join(name)).expect(name)).expect(name);
            let broken = trace.steps.iter().filter_map(|step| match &step.act {
                Act::Comment(said) => grandstand_core::text::check(&said.text).err(),
                Act::Score(_) | Act::Gift(_) | Act::Moderate(_) => None,
            });
            let broken: Vec<_> = broken.collect();
            println!("{name}: {} of {comments} break it: {broken:?}", broken.len());
            assert!(broken.len() * 100 <= comments, "{name}");
        }
    }

    #[test]
    fn files_of_other_shapes_are_refused() {
        let Some(folder) = folder() else { return };
        let name = "sports/datafactory_events_trimmed.json";
        let bytes = std::fs::read(folder.join(name)).expect(name);
        assert!(matches!(read(&bytes), Err(Fault::UnknownFormat)), "{name}");
    }

    /// Single deletions and those of an author, and what was held; of the deletions those whose comment is not in the recording.
    #[test]
    fn every_deletion_and_every_held_comment_of_the_recordings_is_a_deed() {
        let Some(folder) = folder() else { return };
        for (name, [one, of_author, held, unknown]) in [
            ("06_youtube_live_moderation_2020-12-04.jsonl", [11, 36, 0, 25]),
            ("08_youtube_live_ticker_delete_2020-12-06.jsonl", [0, 6, 84, 2]),
        ] {
            let trace = read(&std::fs::read(folder.join("chat").join(name)).expect(name)).expect(name);
            let n = |is: fn(&Deed) -> bool| {
                trace.steps.iter().filter(|step| matches!(&step.act, Act::Moderate(deed) if is(deed))).count()
            };
            let found = [
                n(|deed| matches!(deed, Deed::Retract(_))),
                n(|deed| matches!(deed, Deed::RetractUser(_))),
                n(|deed| matches!(deed, Deed::Hold(_))),
            ];
            assert_eq!(found, [one, of_author, held], "{name}");
            assert_eq!(trace.skipped.get(NOT_HELD).copied(), Some(unknown as u64), "{name}");
        }
    }
}
