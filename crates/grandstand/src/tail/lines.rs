//! What a room's events look like as lines, and what the first line says. Pure: an event in, a line out.

use std::collections::VecDeque;

use grandstand_client::scores::Scores;
use grandstand_core::time::Wall;
use grandstand_wire::{amount, stamp};
use serde_json::Value;

use crate::plain::plain;

/// Comments of which it is remembered whose they are, so that a retract can name the author.
const REMEMBERED: usize = 1_000;

const BOLD: &str = "1";
const DIM: &str = "2";
const SCORE: &str = "1;33";
const GIFT: &str = "1;35";
const NOTICE: &str = "36";
/// Authors are told apart by these.
const AUTHORS: [&str; 6] = ["31", "32", "34", "35", "36", "33"];

pub struct Board {
    room: String,
    colour: bool,
    title: String,
    state: String,
    scores: Scores,
    viewers: Option<u64>,
    likes: u64,
    is_cut: bool,
    authors: VecDeque<(u64, String)>,
}

impl Board {
    pub fn new(room: &str, colour: bool) -> Board {
        Board {
            room: plain(room),
            colour,
            title: String::new(),
            state: String::new(),
            scores: Scores::default(),
            viewers: None,
            likes: 0,
            is_cut: false,
            authors: VecDeque::new(),
        }
    }

    /// Takes what stands, and gives the cursor at which the stream goes on.
    pub fn take_snapshot(&mut self, snapshot: &Value) -> Option<u64> {
        for score in snapshot["scores"].as_array().into_iter().flatten() {
            self.scores.take(&score.to_string());
        }
        self.configure(&snapshot["config"]);
        self.count(&snapshot["counters"]);
        snapshot["as_of_event_id"].as_u64()
    }

    /// The stream is cut. Returns whether that is news.
    pub fn cut(&mut self) -> bool {
        !std::mem::replace(&mut self.is_cut, true)
    }

    /// The line of an event; `None` for what is only counted. `now`: for events that carry no time.
    pub fn take(&mut self, event: &Value, json: &str, now: Wall) -> Option<String> {
        let text = |name: &str| plain(event[name].as_str().unwrap_or_default());
        let number = |name: &str| event[name].as_u64().unwrap_or_default();
        let at = event["ts"].as_str().and_then(stamp::parse).unwrap_or(now);
        self.is_cut = false;
        let kind = event["type"].as_str().unwrap_or_default();
        let what = match kind {
            "comment" => self.comment(event),
            "score_event" => {
                let news = self.scores.take(json)?;
                // A recovery tells what was: it moves the score and is no line of its own.
                if news.historical {
                    return None;
                }
                let correction =
                    if news.revision > 1 { format!(" (revision {})", news.revision) } else { String::new() };
                let state = match news.state.as_str() {
                    "confirmed" | "" => String::new(),
                    other => format!(" {}", plain(other)),
                };
                let minute = news.minute.as_deref().map(|minute| format!(" {}", minute_of(minute))).unwrap_or_default();
                let line = format!(
                    "{}{minute}  {} – {}  {}{state}{correction}",
                    plain(&news.kind).to_uppercase().replace('_', " "),
                    news.score.home,
                    news.score.away,
                    plain(&news.match_id),
                );
                self.paint(SCORE, &line)
            }
            "gift" | "gift_combo" => {
                let name = plain(event["user"]["display"].as_str().unwrap_or_default());
                let amount = format!("{} {}", amount::text(number("amount_micros")), text("currency"));
                let so_far = if kind == "gift_combo" { " in a row" } else { "" };
                self.paint(GIFT, &format!("{name} gives {} × {}{so_far} ({amount})", number("count"), text("item")))
            }
            "retract" => self.retract(event),
            "config" => {
                let said = self.configure(event);
                self.notice(&said?)
            }
            "banner" if event["ended"] != true => self.paint(BOLD, &format!("▎ {}", text("body"))),
            "skipped" => self.notice(&format!("{} comments were passed over", number("count"))),
            "hello" => {
                self.configure(&event["config"]);
                self.count(&event["counters"]);
                if event["resumed"] == true && event["comments"] == "some" {
                    self.notice("some comments of the gap are left out")
                } else {
                    return None;
                }
            }
            "counters" => {
                self.count(event);
                return None;
            }
            "snapshot_required" => self.notice(&format!("not everything since can be given: {}", text("reason"))),
            "feed_paused" => self.notice("the room stands still; it goes on by itself"),
            "feed_stale" if event["ended"] == true => self.notice(&format!("{} is heard again", text("provider"))),
            "feed_stale" => self.notice(&format!("nothing comes from {} of {}", text("provider"), text("match_id"))),
            "token_expiring" => self.notice(&format!("the token runs out in {} s", number("in_ms") / 1_000)),
            "error" => self.notice(&format!("{}: {}", text("code"), text("message"))),
            "close" => self.notice(&format!("the server ends the stream: {} ({})", text("reason"), number("code"))),
            _ => return None,
        };
        Some(format!("{} {what}", self.paint(DIM, &clock(at))))
    }

    /// The first line: plain text, no colour of its own.
    pub fn status(&self) -> String {
        let mut parts = vec![match self.title.is_empty() || self.title == self.room {
            true => self.room.clone(),
            false => format!("{} · {}", self.room, self.title),
        }];
        if !self.state.is_empty() && self.state != "live" {
            parts.push(self.state.clone());
        }
        for event in self.scores.current() {
            let minute = event.minute.as_deref().map(|minute| format!(" {}", minute_of(minute))).unwrap_or_default();
            let mark = match event.state.as_str() {
                "under_review" => " ?",
                "provisional" => " …",
                _ => "",
            };
            parts.push(format!("{} {}–{}{mark}{minute}", plain(&event.match_id), event.score.home, event.score.away));
        }
        if let Some(viewers) = self.viewers {
            parts.push(format!("{viewers} watching"));
        }
        if self.likes > 0 {
            parts.push(format!("{} likes", self.likes));
        }
        if self.is_cut {
            parts.push("cut, coming back".to_owned());
        }
        format!(" {} ", parts.join(" │ "))
    }

    fn comment(&mut self, event: &Value) -> String {
        let user = &event["user"];
        let id = user["id"].as_str().unwrap_or_default();
        let name = plain(user["display"].as_str().filter(|name| !name.is_empty()).unwrap_or(id));
        if let Some(event_id) = event["event_id"].as_u64() {
            if self.authors.len() == REMEMBERED {
                self.authors.pop_front();
            }
            self.authors.push_back((event_id, name.clone()));
        }
        let badges: Vec<String> =
            user["badges"].as_array().into_iter().flatten().filter_map(Value::as_str).map(plain).collect();
        let badges = if badges.is_empty() { String::new() } else { format!(" [{}]", badges.join(" ")) };
        let answers = if event["reply_to"].is_u64() { "↪ " } else { "" };
        let repeats = event["repeats"].as_u64().map(|n| format!(" (and {n} more)")).unwrap_or_default();
        let body = plain(event["body"].as_str().unwrap_or_default());
        let hash = id.bytes().fold(5_381_u32, |hash, b| hash.wrapping_mul(33) ^ u32::from(b));
        let colour = AUTHORS[hash as usize % AUTHORS.len()];
        format!("{}{} {answers}{body}{repeats}", self.paint(colour, &name), self.paint(DIM, &badges))
    }

    fn retract(&self, event: &Value) -> String {
        let reason = plain(event["reason"].as_str().unwrap_or_default());
        let why = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
        let whose = match (event["target_event_id"].as_u64(), event["user_id"].as_str()) {
            (Some(id), _) => match self.authors.iter().find(|(known, _)| *known == id) {
                Some((_, name)) => format!("a comment of {name}"),
                None => "a comment".to_owned(),
            },
            (None, Some(user)) => format!("what {} said", plain(user)),
            (None, None) => "everything said so far".to_owned(),
        };
        self.paint(DIM, &format!("taken back: {whose}{why}"))
    }

    /// Takes what is said of a room's settings; what is told of a change.
    fn configure(&mut self, config: &Value) -> Option<String> {
        let mut told = Vec::new();
        if let Some(title) = config["title"].as_str() {
            self.title = plain(title);
            told.push(format!("it is called {}", self.title));
        }
        if let Some(state) = config["state"].as_str() {
            self.state = plain(state);
            told.push(format!("it is {}", self.state));
        }
        match config["slow_mode_seconds"].as_u64() {
            Some(0) => told.push("no slow mode".to_owned()),
            Some(seconds) => told.push(format!("slow mode: {seconds} s")),
            None => {}
        }
        match config["sampled"].as_bool() {
            Some(true) => told.push("a part of what is said is shown".to_owned()),
            Some(false) => told.push("all that is said is shown".to_owned()),
            None => {}
        }
        for (key, on, off) in [
            ("emote_only", "it takes emotes alone", "it takes any text"),
            ("unique_comment", "nobody says the same twice", "the same may be said twice"),
        ] {
            told.extend(config[key].as_bool().map(|is_on| if is_on { on } else { off }.to_owned()));
        }
        match config.get("members_only") {
            Some(Value::String(badge)) => told.push(format!("comments are for {}", plain(badge))),
            Some(Value::Null) => told.push("comments are for anybody".to_owned()),
            _ => {}
        }
        (!told.is_empty()).then(|| format!("the room: {}", told.join(", ")))
    }

    fn count(&mut self, counters: &Value) {
        if let Some(viewers) = counters["viewers"].as_u64() {
            self.viewers = Some(viewers);
        }
        if let Some(likes) = counters["likes"].as_object() {
            self.likes = likes.values().filter_map(Value::as_u64).sum();
        }
    }

    /// A line about the stream.
    pub fn notice(&self, text: &str) -> String {
        self.paint(NOTICE, &format!("-- {text}"))
    }

    fn paint(&self, colour: &str, text: &str) -> String {
        match self.colour && !text.is_empty() {
            true => format!("\x1b[{colour}m{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }
}

/// `20:14:33`, UTC as all times of the protocol.
fn clock(at: Wall) -> String {
    stamp::text(at)[11..19].to_owned()
}

/// `78'`; words such as HT stand alone.
fn minute_of(minute: &str) -> String {
    let minute = plain(minute);
    if minute.starts_with(|c: char| c.is_ascii_digit()) { format!("{minute}'") } else { minute }
}

#[cfg(test)]
mod tests {
    use grandstand_core::time::Wall;
    use serde_json::{Value, json};

    use super::Board;

    const NOW: Wall = Wall(1_779_048_873_122);

    fn said(board: &mut Board, event: Value) -> Option<String> {
        board.take(&event, &event.to_string(), NOW)
    }

    fn goal(key: &str, revision: u32, home: u32, away: u32) -> Value {
        json!({"type": "score_event", "match_id": "m1", "key": key, "revision": revision, "kind": "goal", "state": "confirmed",
            "score": {"home": home, "away": away}, "minute": "78"})
    }

    #[test]
    fn nothing_that_others_wrote_reaches_the_terminal_as_an_order() {
        let evil = "x\u{1b}]52;c;aGk=\u{7}\u{9b}2J\u{202e}y\r\nz";
        let mut board = Board::new("derby", false);
        let user = json!({"id": evil, "display": evil, "badges": [evil]});
        let events = [
            json!({"type": "comment", "event_id": 9, "user": user, "body": evil, "ts": evil}),
            json!({"type": "score_event", "match_id": evil, "key": evil, "revision": 2, "kind": evil, "state": evil,
                "score": {"home": 1, "away": 0}, "minute": evil}),
            json!({"type": "gift", "user": user, "item": evil, "count": 1, "amount_micros": 1, "currency": evil}),
            json!({"type": "retract", "target_event_id": 9, "reason": evil}),
            json!({"type": "retract", "user_id": evil, "reason": evil}),
            json!({"type": "config", "title": evil, "state": evil, "members_only": evil}),
            json!({"type": "banner", "body": evil}),
            json!({"type": "snapshot_required", "reason": evil}),
            json!({"type": "feed_stale", "provider": evil, "match_id": evil}),
            json!({"type": "error", "code": evil, "message": evil}),
            json!({"type": "close", "code": 4001, "reason": evil}),
        ];
        for event in events {
            let line = said(&mut board, event.clone()).unwrap_or_else(|| panic!("{event} has a line"));
            let obeyed = |c: char| c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c);
            assert!(!line.contains(obeyed), "{line:?}");
            assert!(!board.status().contains(obeyed), "{:?}", board.status());
        }
    }

    #[test]
    fn the_score_stands_on_the_first_line_and_a_repeat_is_no_line() {
        let mut board = Board::new("derby", false);
        board.take_snapshot(&json!({"as_of_event_id": 5, "scores": [goal("a", 1, 1, 0)], "config": {"title": "Cup final", "state": "live"},
            "counters": {"viewers": 7, "likes": {"like": 3, "wow": 1}}}));
        assert_eq!(board.status(), " derby · Cup final │ m1 1–0 78' │ 7 watching │ 4 likes ");
        assert_eq!(said(&mut board, goal("b", 1, 2, 0)).unwrap(), "20:14:33 GOAL 78'  2 – 0  m1");
        assert_eq!(said(&mut board, goal("b", 1, 2, 0)), None);
        assert_eq!(said(&mut board, goal("b", 2, 1, 1)).unwrap(), "20:14:33 GOAL 78'  1 – 1  m1 (revision 2)");
        assert!(board.status().contains("m1 1–1"));
        assert!(board.cut() && !board.cut());
        assert!(board.status().contains("cut"));
        said(&mut board, json!({"type": "hello"}));
        assert!(!board.status().contains("cut"));
    }

    #[test]
    fn a_retract_names_whose_comment_it_takes_back() {
        let mut board = Board::new("derby", false);
        let comment = json!({"type": "comment", "event_id": 9, "user": {"id": "u1", "display": "Ana", "badges": ["mod"]}, "body": "hi",
            "ts": "2026-05-17T20:14:33.122Z", "repeats": 2});
        assert_eq!(said(&mut board, comment).unwrap(), "20:14:33 Ana [mod] hi (and 2 more)");
        let retract = json!({"type": "retract", "target_event_id": 9, "reason": "spam"});
        assert_eq!(said(&mut board, retract).unwrap(), "20:14:33 taken back: a comment of Ana (spam)");
    }

    #[test]
    fn what_a_room_asks_is_told_when_it_changes() {
        let mut board = Board::new("derby", false);
        let asks = json!({"type": "config", "emote_only": true, "unique_comment": false, "members_only": "vip"});
        assert_eq!(
            said(&mut board, asks).unwrap(),
            "20:14:33 -- the room: it takes emotes alone, the same may be said twice, comments are for vip"
        );
        let line = said(&mut board, json!({"type": "config", "members_only": null})).unwrap();
        assert_eq!(line, "20:14:33 -- the room: comments are for anybody");
        assert_eq!(said(&mut board, json!({"type": "config"})), None);
    }

    #[test]
    fn colours_are_only_there_when_they_are_wanted() {
        let (mut plain, mut painted) = (Board::new("derby", false), Board::new("derby", true));
        assert!(!said(&mut plain, goal("a", 1, 1, 0)).unwrap().contains('\u{1b}'));
        assert!(said(&mut painted, goal("a", 1, 1, 0)).unwrap().contains("\u{1b}[1;33mGOAL"));
    }

    #[test]
    fn money_is_told_in_units() {
        let mut board = Board::new("derby", false);
        for (micros, told) in [(2_500_000, "2.50 EUR"), (5_000_000, "5 EUR"), (1, "0.000001 EUR")] {
            let gift = json!({"type": "gift", "user": {"display": "Ana"}, "item": "rose", "count": 1, "amount_micros": micros,
                "currency": "EUR"});
            assert_eq!(said(&mut board, gift).unwrap(), format!("20:14:33 Ana gives 1 × rose ({told})"));
        }
    }
}
