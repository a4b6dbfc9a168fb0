//! `GET /admin/audit`: what operators changed, by whom and why, newest first; and what one user did in a room.
//!
//! Changes of a room are records of the log, those of gateways and of the whole site are lines of `audit.jsonl`. Both are read
//! back from their ends, each for a bounded time, so an answer may hold less than was asked for and still say that there is
//! more: its `next` is where both leave off.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use grandstand_core::ids::{EventId, Position};
use grandstand_core::names::{RoomId, UserId};
use grandstand_core::record::{self, Record, RetractTarget};
use grandstand_core::time::Wall;
use grandstand_wire::codes::ErrorCode;
use grandstand_wire::{export, stamp};
use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::Shared;
use super::answer::{Problem, json as answer_json};
use super::ask::Ask;
use crate::auth;
use crate::auth::permit::{self, Permit};
use crate::clock;
use crate::link::{AuditAsked, Audited};

/// Rows of one answer: 500 rows with whole settings are 1 MB.
const ROWS_MAX: usize = 500;
const ROWS: usize = 100;
/// A call reads the log for so long.
pub(super) const READ_FOR: Duration = Duration::from_millis(300);
/// A call reads so much of the file: some thousands of lines.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Looks back into the file for one kind of change: 4 MiB are some ten thousand changes.
const LOOKS_MAX: usize = 4;
/// No `what` of the audit is longer.
const ACTION_BYTES_MAX: usize = 64;

/// `GET /admin/audit?room=&operator=&action=&from=&to=&limit=&before=`.
pub async fn list(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let who = ask.identity(&control)?;
    let room = room_of(&ask)?;
    // Its moderators may see what was done in a room.
    if let Some(room) = &room {
        auth::may_moderate(who.as_deref(), room)?;
    }
    let permit = permit::may_review(who.as_deref(), room.as_ref())?;
    let by = user_of(&ask, "operator")?;
    let what = match ask.query("action")? {
        Some(text) if text.len() > ACTION_BYTES_MAX => {
            return Err(Problem::new(ErrorCode::BadRequest, format!("action is at most {ACTION_BYTES_MAX} bytes")));
        }
        what => what.map(Arc::from),
    };
    let (from, to) = (time(&ask, "from")?, time(&ask, "to")?);
    let limit = limit(&ask)?;
    let newest = Cursor { log: newest(), file: u64::MAX };
    let at = match ask.query("before")? {
        None => newest,
        Some(text) => Cursor::parse(text)
            .ok_or_else(|| Problem::new(ErrorCode::BadRequest, "before is the `next` of an earlier answer"))?,
    };
    if let Some(room) = &room {
        control.settings(room).await?;
    }

    let asked = AuditAsked { room: room.clone(), by, what, from, to, before: at.log, limit };
    let wanted = asked.clone();
    let of_file = match room {
        // A room's changes are in the log alone.
        Some(_) => Lines { rows: Vec::new(), upto: 0 },
        None => from_file(&control, move |path| file_rows(path, at.file, &wanted)).await?,
    };
    let (of_log, log_upto) = log_rows(&control, asked, permit).await?;

    // Both are newest first: what is over the limit is another answer's.
    let mut rows: Vec<Row> = of_log.into_iter().chain(of_file.rows).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.at));
    let mut next = Cursor { log: log_upto, file: of_file.upto };
    for row in rows.drain(rows.len().min(limit)..) {
        match row.place {
            Place::Log(id) => next.log = next.log.max(after(id)),
            Place::File(end) => next.file = next.file.max(end),
        }
    }
    let more = next != Cursor { log: Position::START, file: 0 };
    let rows: Vec<Value> = rows.into_iter().map(|row| row.told).collect();
    let next = more.then(|| next.text());
    Ok(answer_json(StatusCode::OK, &json!({"audit": rows, "more": more, "next": next})))
}

/// `GET /admin/rooms/{room}/history?user=&limit=&before=`: what a user said and gave here and what was done about it, newest
/// first.
pub async fn history(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let room = ask.room()?;
    let who = ask.identity(&control)?;
    let permit = permit::may_review(who.as_deref(), Some(&room))?;
    let user = user_of(&ask, "user")?
        .ok_or_else(|| Problem::new(ErrorCode::BadRequest, format!("user is missing: {}", UserId::RULE)))?;
    let limit = limit(&ask)?;
    let before = ask.cursor("before")?.unwrap_or_else(newest);
    control.settings(&room).await?;

    let mut gone = Retracted::default();
    let told = |record: &Record, permit: Permit| {
        gone.see(record);
        let mut row = is_about(record, &user).then(|| line_for(record, permit))?;
        if gone.holds(record) {
            row["retracted"] = true.into();
        }
        Some(row)
    };
    let (rows, next) = past_rows(&control, &room, before, limit, permit, told).await?;
    let body = json!({
        "room_id": room.as_str(), "user_id": user.as_str(), "events": rows, "more": next.is_some(), "next": next,
    });
    Ok(answer_json(StatusCode::OK, &body))
}

/// What `told` makes of a room's records before `before`, newest first: at most `limit` rows, and the `before` of those that follow;
/// `None`: there are no more records. `told` sees every record that is passed.
pub(super) async fn past_rows(
    control: &Shared,
    room: &RoomId,
    before: Position,
    limit: usize,
    permit: Permit,
    mut told: impl FnMut(&Record, Permit) -> Option<Value>,
) -> Result<(Vec<Value>, Option<u64>), Problem> {
    let started = clock::mono();
    let (mut upto, mut rows) = (before, Vec::new());
    'pages: while upto > Position::START && clock::mono().since(started) < READ_FOR {
        let page = control.deps.shard.past(room.clone(), upto).await?;
        upto = page.upto;
        for record in page.found {
            let Some(row) = told(&record, permit) else { continue };
            if rows.len() == limit {
                upto = after(record.event_id());
                break 'pages;
            }
            rows.push(row);
        }
    }
    Ok((rows, (upto > Position::START).then(|| upto.value())))
}

/// The newest changes of one kind that are lines of `audit.jsonl`, newest first, each as [`list`] tells it. Older ones than
/// [`LOOKS_MAX`] looks find are not among them. Errors: the file could not be read.
pub(super) async fn newest_lines(control: &Shared, what: &str) -> Result<Vec<Value>, Problem> {
    let asked = AuditAsked { what: Some(what.into()), limit: usize::MAX, ..AuditAsked::default() };
    let read = move |path: &Path| {
        let (mut end, mut found) = (u64::MAX, Vec::new());
        for _ in 0..LOOKS_MAX {
            let lines = file_rows(path, end, &asked)?;
            found.extend(lines.rows.into_iter().map(|row| row.told));
            end = lines.upto;
            if end == 0 {
                break;
            }
        }
        Ok(found)
    };
    from_file(control, read).await
}

/// What `read` finds in `audit.jsonl`, by a thread that may wait for the disk.
async fn from_file<T: Send + 'static>(
    control: &Shared,
    read: impl FnOnce(&Path) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let path = control.deps.config.data.join("audit.jsonl");
    let failed = |_| Problem::new(ErrorCode::ServerFault, "the audit could not be read");
    tokio::task::spawn_blocking(move || read(&path)).await.map_err(failed)?
}

/// Whether it is by a user, or was done about it. A winner of a window is what was said before, once more.
fn is_about(record: &Record, user: &UserId) -> bool {
    match &record.body {
        record::Body::Comment(_) => record.user.as_ref() == Some(user) && record.raw_id().is_none(),
        record::Body::Gift(_) | record::Body::Erased => record.user.as_ref() == Some(user),
        record::Body::Ban(ban) => ban.user == *user,
        record::Body::Unban(unbanned) => unbanned == user,
        record::Body::Retract(retract) => match &retract.target {
            RetractTarget::User(whose) | RetractTarget::Since(whose, _) => whose == user,
            RetractTarget::Event(_) | RetractTarget::All => false,
        },
        _ => false,
    }
}

/// What the retracts that were passed on the way back took away. Those before the way began are not among them.
#[derive(Default)]
struct Retracted {
    all: bool,
    users: BTreeSet<UserId>,
    /// The purge of a user that reaches back furthest.
    since: BTreeMap<UserId, Wall>,
    events: BTreeSet<EventId>,
}

impl Retracted {
    fn see(&mut self, record: &Record) {
        if let record::Body::Retract(retract) = &record.body {
            match &retract.target {
                RetractTarget::All => self.all = true,
                RetractTarget::User(user) => drop(self.users.insert(user.clone())),
                RetractTarget::Since(user, from) => {
                    let known = self.since.entry(user.clone()).or_insert(*from);
                    *known = (*known).min(*from);
                }
                RetractTarget::Event(id) => drop(self.events.insert(*id)),
            }
        }
    }

    fn holds(&self, record: &Record) -> bool {
        let purged = |user| self.since.get(user).is_some_and(|from| *from <= record.ts);
        let by_user = || record.user.as_ref().is_some_and(|user| self.users.contains(user) || purged(user));
        matches!(record.body, record::Body::Comment(_))
            && (self.all || self.events.contains(&record.event_id()) || by_user())
    }
}

/// Before it stands everything.
pub(super) fn newest() -> Position {
    Position::new(EventId::LIMIT - 1).expect("below the limit")
}

/// Before it stands everything up to `id`.
pub(super) fn after(id: EventId) -> Position {
    Position::new(id.value() + 1).unwrap_or_else(newest)
}

/// Where both sources leave off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cursor {
    log: Position,
    file: u64,
}

impl Cursor {
    fn text(self) -> String {
        format!("{}-{}", self.log.value(), self.file)
    }

    fn parse(text: &str) -> Option<Cursor> {
        let (log, file) = text.split_once('-')?;
        Some(Cursor { log: Position::parse(log)?, file: Position::parse(file)?.value() })
    }
}

enum Place {
    Log(EventId),
    /// Where its line ends.
    File(u64),
}

struct Row {
    at: Wall,
    place: Place,
    told: Value,
}

async fn log_rows(control: &Shared, mut asked: AuditAsked, _permit: Permit) -> Result<(Vec<Row>, Position), Problem> {
    let started = clock::mono();
    let (limit, mut rows) = (asked.limit, Vec::new());
    while asked.before > Position::START && rows.len() < limit && clock::mono().since(started) < READ_FOR {
        asked.limit = limit - rows.len();
        let page = control.deps.shard.audit(asked.clone()).await?;
        rows.extend(page.found.iter().map(of_record));
        asked.before = page.upto;
    }
    Ok((rows, asked.before))
}

fn of_record(audited: &Audited) -> Row {
    let record = &audited.audit;
    let (what, why) = match &record.body {
        record::Body::Audit(audit) => (&*audit.what, &*audit.justification),
        _ => ("", ""),
    };
    let told = json!({
        "ts": stamp::text(record.ts),
        "operator": record.user.as_ref().map(UserId::as_str),
        "action": what,
        "room_id": record.room.as_ref().map(|room| room.as_str()),
        "event_id": record.event_id().value(),
        "justification": why,
        "changes": audited.changes.iter().map(|change| line(change)).collect::<Vec<_>>(),
    });
    Row { at: record.ts, place: Place::Log(record.event_id()), told }
}

/// A record of a room's past, told to one who may read it.
pub(super) fn line_for(record: &Record, _permit: Permit) -> Value {
    line(record)
}

/// A record as an export has it.
fn line(record: &Record) -> Value {
    let mut out = Vec::new();
    export::write_line(record, &mut out);
    serde_json::from_slice(&out).expect("a line is written as JSON")
}

struct Lines {
    rows: Vec<Row>,
    /// Everything from here on was looked at; 0: there is no more.
    upto: u64,
}

/// The lines of the file that end at `end` or before, newest first. A file that is not there holds nothing.
fn file_rows(path: &Path, end: u64, asked: &AuditAsked) -> Result<Lines, Problem> {
    let failed = |fault: std::io::Error| {
        tracing::error!(%fault, "audit.jsonl could not be read");
        Problem::new(ErrorCode::ServerFault, "audit.jsonl could not be read")
    };
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(fault) if fault.kind() == ErrorKind::NotFound => return Ok(Lines { rows: Vec::new(), upto: 0 }),
        Err(fault) => return Err(failed(fault)),
    };
    let end = end.min(file.metadata().map_err(failed)?.len());
    let begin = end.saturating_sub(FILE_BYTES_MAX);
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(begin)).map_err(failed)?;
    file.take(end - begin).read_to_end(&mut bytes).map_err(failed)?;
    Ok(rows_of(&bytes, begin, asked))
}

/// `bytes` are those of the file from `begin` on; a line that begins before them is left for the next look.
fn rows_of(bytes: &[u8], begin: u64, asked: &AuditAsked) -> Lines {
    let first = match begin {
        0 => 0,
        _ => bytes.iter().position(|b| *b == b'\n').map_or(bytes.len(), |at| at + 1),
    };
    let (mut rows, mut to) = (Vec::new(), bytes.len());
    // No line is as long as a look: where none begins, what is there is nothing that was written here.
    let upto = if first == bytes.len() { begin } else { begin + first as u64 };
    while to > first {
        let from = bytes[first..to - 1].iter().rposition(|b| *b == b'\n').map_or(first, |at| first + at + 1);
        let (line, line_end) = (&bytes[from..to], begin + to as u64);
        to = from;
        let Some((at, told)) = file_row(line) else { continue };
        if asked.from.is_some_and(|least| at < least) {
            return Lines { rows, upto: 0 };
        }
        let is_by = asked.by.as_ref().is_none_or(|by| told["operator"] == by.as_str());
        let is_what = asked.what.as_ref().is_none_or(|what| told["action"] == **what);
        if is_by && is_what && asked.to.is_none_or(|most| at < most) {
            if rows.len() == asked.limit {
                return Lines { rows, upto: line_end };
            }
            rows.push(Row { at, place: Place::File(line_end), told });
        }
    }
    Lines { rows, upto }
}

/// One line as it is told; `None` for what is none (the half of a line after a full disk).
fn file_row(line: &[u8]) -> Option<(Wall, Value)> {
    let mut line: Value = serde_json::from_slice(line).ok()?;
    let at = stamp::parse(line["ts"].as_str()?)?;
    let mut take = |name: &str| line.get_mut(name).map(Value::take).unwrap_or_default();
    let told = json!({
        "ts": take("ts"), "operator": take("actor"), "action": take("what"), "target": take("gateway"),
        "given": take("given"), "justification": take("justification"),
    });
    Some((at, told))
}

fn room_of(ask: &Ask) -> Result<Option<RoomId>, Problem> {
    let room = ask.query("room")?;
    room.map(|text| RoomId::parse(text).ok_or_else(|| Problem::new(ErrorCode::BadRoom, RoomId::RULE))).transpose()
}

pub(super) fn user_of(ask: &Ask, name: &str) -> Result<Option<UserId>, Problem> {
    let wrong = || Problem::new(ErrorCode::BadRequest, format!("{name}: {}", UserId::RULE));
    ask.query(name)?.map(|text| UserId::parse(text).ok_or_else(wrong)).transpose()
}

pub(super) fn time(ask: &Ask, name: &str) -> Result<Option<Wall>, Problem> {
    let rule = "is a time such as 2026-05-17T20:14:33.122Z";
    let wrong = || Problem::new(ErrorCode::BadRequest, format!("{name} {rule}"));
    ask.query(name)?.map(|text| stamp::parse(text).ok_or_else(wrong)).transpose()
}

pub(super) fn limit(ask: &Ask) -> Result<usize, Problem> {
    let wrong = || Problem::new(ErrorCode::BadRequest, format!("limit is a whole number from 1 to {ROWS_MAX}"));
    let asked =
        ask.query("limit")?.map(|text| text.parse().ok().filter(|n| (1..=ROWS_MAX).contains(n)).ok_or_else(wrong));
    Ok(asked.transpose()?.unwrap_or(ROWS))
}

#[cfg(test)]
mod tests {
    use grandstand_core::names::UserId;
    use grandstand_core::time::Wall;
    use grandstand_wire::stamp;

    use super::{AuditAsked, Cursor, Lines, Place, rows_of};

    fn line(n: u64) -> String {
        let ts = stamp::text(Wall(1_000_000 + n));
        let actor = if n.is_multiple_of(2) { "ann" } else { "bo" };
        format!(
            "{{\"ts\":\"{ts}\",\"actor\":\"{actor}\",\"what\":\"drain\",\"gateway\":\"local\",\"given\":{{\"n\":{n}}},\"justification\":\"j\"}}\n"
        )
    }

    fn seen(lines: &Lines) -> Vec<u64> {
        lines.rows.iter().map(|row| row.told["given"]["n"].as_u64().unwrap()).collect()
    }

    #[test]
    fn a_file_is_read_back_line_by_line_however_it_is_cut() {
        let text: String = (0..20).map(line).collect();
        let all: Vec<u64> = (0..20).rev().collect();
        for (size, limit) in [(300, 500), (1_000, 500), (100_000, 500), (300, 1), (100_000, 3)] {
            let asked = AuditAsked { limit, ..AuditAsked::default() };
            let (mut end, mut got) = (text.len() as u64, Vec::new());
            while end > 0 {
                let begin = end.saturating_sub(size);
                let lines = rows_of(&text.as_bytes()[begin as usize..end as usize], begin, &asked);
                assert!(lines.upto < end, "it goes on");
                got.extend(seen(&lines));
                end = lines.upto;
            }
            assert_eq!(got, all, "{size} bytes, {limit} rows");
        }
    }

    #[test]
    fn half_a_line_is_passed_over_and_filters_hold() {
        let text = format!("{}{{\"ts\":\"2026\n{}{}", line(1), line(2), line(3));
        let asked = |a: AuditAsked| rows_of(text.as_bytes(), 0, &AuditAsked { limit: 9, ..a });
        assert_eq!(seen(&asked(AuditAsked::default())), [3, 2, 1]);
        assert_eq!(seen(&asked(AuditAsked { by: UserId::parse("bo"), ..AuditAsked::default() })), [3, 1]);
        assert_eq!(seen(&asked(AuditAsked { what: Some("ban".into()), ..AuditAsked::default() })), [0; 0]);
        let from = asked(AuditAsked { from: Some(Wall(1_000_002)), ..AuditAsked::default() });
        assert_eq!((seen(&from), from.upto), (vec![3, 2], 0), "older ones are not looked at");
        assert_eq!(seen(&asked(AuditAsked { to: Some(Wall(1_000_003)), ..AuditAsked::default() })), [2, 1]);
        assert!(matches!(asked(AuditAsked::default()).rows[2].place, Place::File(end) if end == line(1).len() as u64));
    }

    #[test]
    fn a_cursor_comes_back_as_it_was_given() {
        let cursor = Cursor::parse("8589934592-12").unwrap();
        assert_eq!(cursor.text(), "8589934592-12");
        for bad in ["", "1", "-", "1-", "-1", "1-2-3", "x-1", "1-99999999999999999999"] {
            assert!(Cursor::parse(bad).is_none(), "{bad:?}");
        }
    }
}
