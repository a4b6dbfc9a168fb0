//! A room's comments as the files that players of danmaku read: Bilibili's XML and DPlayer's JSON.
//!
//! ```text
//! <d p="time,mode,size,colour,sent,pool,user,row">text</d>       seconds, 1, 25, 16777215, unix seconds, 0, 8 hex digits, event id
//! {"code":0,"data":[[time,type,colour,user,text],…]}             seconds, 0, 16777215, 8 hex digits
//! ```
//!
//! Both are written piece by piece, so that a whole match fits through one page of the log. Who reads them is somebody else's page, so
//! nothing in a text may become markup there: XML is escaped by its five names alone (one of the readers knows no others), what XML cannot hold
//! is left out, and DPlayer's texts are escaped as HTML, because DPlayer puts them into the page as they are.
//!
//! Sources: the comment XML of Bilibili's players; `v3/` of DPlayer's `api`; their readers in DPlayer 1.27 and artplayer-plugin-danmuku 5.3.

use grandstand_core::names::RoomId;
use grandstand_core::time::Wall;

use crate::json::{write_str, write_u64};

/// A comment that scrolls from the right, as all of this server's do.
const MODE_SCROLL: &str = "1";
const SIZE: &str = "25";
const WHITE: &str = "16777215";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    Bilibili,
    Dplayer,
}

/// One comment of an archive.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    /// Since the archive's start.
    pub offset_ms: u64,
    pub sent: Wall,
    /// Stands for the author: never the user id.
    pub user: &'a str,
    pub event_id: u64,
    pub text: &'a str,
}

impl Format {
    pub const ALL: [(Format, &'static str); 2] = [(Format::Bilibili, "bilibili"), (Format::Dplayer, "dplayer")];

    pub fn parse(name: &str) -> Option<Format> {
        Format::ALL.iter().find(|(_, n)| *n == name).map(|(format, _)| *format)
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Format::Bilibili => "application/xml",
            Format::Dplayer => "application/json",
        }
    }

    /// What stands before the first entry.
    pub fn begin(self, room: &RoomId, out: &mut Vec<u8>) {
        match self {
            Format::Bilibili => {
                out.extend_from_slice(
                    b"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<i><chatserver>grandstand</chatserver><chatid>",
                );
                escape(room.as_str(), out);
                out.extend_from_slice(b"</chatid><mission>0</mission><state>0</state><source>k-v</source>\n");
            }
            Format::Dplayer => out.extend_from_slice(b"{\"code\":0,\"data\":["),
        }
    }

    /// `first`: none stands before it.
    pub fn entry(self, entry: &Entry<'_>, first: bool, out: &mut Vec<u8>) {
        match self {
            Format::Bilibili => {
                out.extend_from_slice(b"<d p=\"");
                seconds(entry.offset_ms, out);
                out.extend_from_slice(format!(",{MODE_SCROLL},{SIZE},{WHITE},").as_bytes());
                write_u64(entry.sent.0 / 1_000, out);
                out.extend_from_slice(b",0,");
                escape(entry.user, out);
                out.push(b',');
                write_u64(entry.event_id, out);
                out.extend_from_slice(b"\">");
                escape(entry.text, out);
                out.extend_from_slice(b"</d>\n");
            }
            Format::Dplayer => {
                out.extend_from_slice(if first { b"\n[" } else { b",\n[" });
                seconds(entry.offset_ms, out);
                out.extend_from_slice(format!(",0,{WHITE},").as_bytes());
                write_str(entry.user, out);
                out.push(b',');
                let mut text = Vec::with_capacity(entry.text.len() + 16);
                escape(entry.text, &mut text);
                write_str(std::str::from_utf8(&text).expect("text with marks is text"), out);
                out.push(b']');
            }
        }
    }

    /// What stands behind the last entry.
    pub fn end(self, out: &mut Vec<u8>) {
        match self {
            Format::Bilibili => out.extend_from_slice(b"</i>\n"),
            Format::Dplayer => out.extend_from_slice(b"\n]}\n"),
        }
    }
}

/// Seconds with milliseconds: `23.826`.
fn seconds(ms: u64, out: &mut Vec<u8>) {
    write_u64(ms / 1_000, out);
    out.extend_from_slice(format!(".{:03}", ms % 1_000).as_bytes());
}

/// Text as XML and HTML hold it, in an element or a quoted attribute. What XML 1.0 cannot hold at all is left out, and so is a carriage return,
/// which a reader would change into a line feed.
fn escape(text: &str, out: &mut Vec<u8>) {
    for c in text.chars() {
        match c {
            '&' => out.extend_from_slice(b"&amp;"),
            '<' => out.extend_from_slice(b"&lt;"),
            '>' => out.extend_from_slice(b"&gt;"),
            '"' => out.extend_from_slice(b"&quot;"),
            '\'' => out.extend_from_slice(b"&apos;"),
            '\t' | '\n' => out.push(c as u8),
            // Source: XML 1.0, 2.2. The C1 controls are allowed there and discouraged; no text needs them.
            '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}' => {}
            c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use grandstand_core::names::RoomId;
    use grandstand_core::time::Wall;

    use super::{Entry, Format};

    fn written(format: Format, texts: &[&str]) -> String {
        let mut out = Vec::new();
        format.begin(&RoomId::parse("derby").unwrap(), &mut out);
        for (i, text) in texts.iter().enumerate() {
            let entry = Entry {
                offset_ms: 23_826 + i as u64,
                sent: Wall(1_779_048_873_122),
                user: "057075e9",
                event_id: 8_589_934_592 + i as u64,
                text,
            };
            format.entry(&entry, i == 0, &mut out);
        }
        format.end(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_comment_is_written_as_players_read_it() {
        assert_eq!(
            written(Format::Bilibili, &["goal & <b>more</b> \"'"]),
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<i><chatserver>grandstand</chatserver><chatid>derby</chatid><mission>0</mission><state>0</state><source>k-v</source>\n\
             <d p=\"23.826,1,25,16777215,1779048873,0,057075e9,8589934592\">goal &amp; &lt;b&gt;more&lt;/b&gt; &quot;&apos;</d>\n</i>\n"
        );
        assert_eq!(
            written(Format::Dplayer, &["a", "<img src=x onerror=alert(1)>\n\\"]),
            "{\"code\":0,\"data\":[\n[23.826,0,16777215,\"057075e9\",\"a\"],\n[23.827,0,16777215,\"057075e9\",\"&lt;img src=x onerror=alert(1)&gt;\\n\\\\\"]\n]}\n"
        );
    }

    #[test]
    fn what_xml_cannot_hold_is_left_out_and_everything_else_stays() {
        let text = "a\0\u{1}\u{8}\u{b}\u{c}\r\u{1f}\u{7f}\u{85}\u{9f}\u{fffe}\u{ffff}b\tc\nd 👩‍👩‍👧 日本 \u{10ffff}]]>";
        let xml = written(Format::Bilibili, &[text]);
        assert!(xml.contains(">ab\tc\nd 👩‍👩‍👧 日本 \u{10ffff}]]&gt;</d>"), "{xml}");
    }

    #[test]
    fn an_archive_without_comments_is_whole() {
        assert_eq!(written(Format::Dplayer, &[]), "{\"code\":0,\"data\":[\n]}\n");
        assert!(written(Format::Bilibili, &[]).ends_with("</source>\n</i>\n"));
    }
}
