//! The ledger: a room's log as its moderators' book, one row for each thing that was decided; and whether the log is what was written.
//!
//! A comment that was accepted is a row with its verdict, in a wide room as it was said (that it won a window is no second decision).
//! What moderation refused, held or let go, and what an operator or moderation itself did afterwards, are rows of their own. The records
//! that a change wrote stand directly before its audit and are its row's `changes`. What is erased is a row that keeps id, time and
//! verdict.

use axum::body::Body;
use axum::extract::State;
use grandstand_core::ids::{EventId, Position};
use grandstand_core::names::UserId;
use grandstand_core::record::{self, Record, Verdict};
use grandstand_wire::chain;
use grandstand_wire::codes::ErrorCode;
use grandstand_wire::stamp;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::Shared;
use super::answer::{Problem, json as answer_json};
use super::ask::Ask;
use super::audit;
use super::signature::unhex;
use crate::auth;
use crate::auth::permit::{self, Permit};
use crate::changes::{self, Part};
use crate::clock;

/// Rows by what they are of, as `kind` names them.
const KINDS: [&str; 8] = ["comment", "blocked", "held", "held_end", "admin", "override", "action", "erased"];

/// `GET /admin/rooms/{room}/ledger?user=&verdict=&kind=&limit=&before=`, newest first.
pub async fn room(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let room = ask.room()?;
    let who = ask.identity(&control)?;
    let permit = permit::may_review(who.as_deref(), Some(&room))?;
    let wanted = Wanted::read(&ask)?;
    let limit = audit::limit(&ask)?;
    let before = ask.cursor("before")?.unwrap_or_else(audit::newest);
    control.settings(&room).await?;

    let started = clock::mono();
    let mut book = Book { rows: Vec::new(), open: None, permit };
    let mut upto = before;
    // A row whose changes are not all read is read on for.
    'pages: while upto > Position::START && (clock::mono().since(started) < audit::READ_FOR || book.open.is_some()) {
        let page = control.deps.shard.past(room.clone(), upto).await?;
        upto = page.upto;
        for record in page.found {
            if book.takes(&record) {
                continue;
            }
            book.close(&wanted);
            if book.rows.len() == limit {
                upto = audit::after(record.event_id());
                break 'pages;
            }
            book.open(&record);
        }
    }
    book.close(&wanted);
    let more = upto > Position::START;
    let body = json!({
        "room_id": room.as_str(), "rows": book.rows, "more": more, "next": more.then(|| upto.value()),
    });
    Ok(answer_json(StatusCode::OK, &body))
}

/// Which rows are asked for.
struct Wanted {
    user: Option<UserId>,
    verdict: Option<&'static str>,
    kind: Option<&'static str>,
}

impl Wanted {
    fn read(ask: &Ask) -> Result<Wanted, Problem> {
        let of = |name: &str, all: &[&'static str]| match ask.query(name)? {
            None => Ok(None),
            Some(text) => match all.iter().find(|one| **one == text) {
                Some(one) => Ok(Some(*one)),
                None => Err(Problem::new(ErrorCode::BadRequest, format!("{name} is one of {}", all.join(", ")))),
            },
        };
        let verdict = of("verdict", &["allow", "flag", "block", "none"])?;
        Ok(Wanted { user: audit::user_of(ask, "user")?, verdict, kind: of("kind", &KINDS)? })
    }

    fn is_it(&self, row: &Value) -> bool {
        let is = |name: &str, wanted: Option<&str>| wanted.is_none_or(|wanted| row[name] == wanted);
        is("kind", self.kind) && is("verdict", self.verdict) && is("user_id", self.user.as_ref().map(UserId::as_str))
    }
}

/// Rows as they come up, and the one that may still be given what it changed.
struct Book {
    rows: Vec<Value>,
    open: Option<Open>,
    permit: Permit,
}

struct Open {
    row: Value,
    /// Of an audit: what it did, and the place before which its next change would stand.
    audit: Option<(String, EventId)>,
    /// What it changed, in the log's order.
    changes: Vec<Value>,
    /// The first of those.
    newer: Option<record::Body>,
    /// Nothing before it is of the change.
    whole: bool,
}

impl Book {
    /// Whether the record is a change of the open row, or no decision at all.
    fn takes(&mut self, record: &Record) -> bool {
        if let Some(Open { audit: Some((what, next)), changes, newer, whole: whole @ false, .. }) = &mut self.open
            && record.event_id().value() + 1 == next.value()
            // What is shown of a held comment is a row of its own, with its verdict.
            && !matches!(record.body, record::Body::Comment(_))
            && let part @ (Part::First | Part::Later) = changes::part_of(what, newer.as_ref(), &record.body)
        {
            *next = record.event_id();
            *newer = Some(record.body.clone());
            *whole = part == Part::First;
            changes.insert(0, audit::line_for(record, self.permit));
            return true;
        }
        kind_of(record).is_none()
    }

    fn open(&mut self, record: &Record) {
        let Some(kind) = kind_of(record) else { return };
        let audited = match &record.body {
            record::Body::Audit(audit) => Some((audit.what.to_string(), record.event_id())),
            _ => None,
        };
        self.open = Some(Open {
            row: row_of(record, kind, self.permit),
            audit: audited,
            changes: Vec::new(),
            newer: None,
            whole: false,
        });
    }

    fn close(&mut self, wanted: &Wanted) {
        let Some(Open { mut row, audit, changes, .. }) = self.open.take() else { return };
        if audit.is_some() {
            row["changes"] = changes.into();
        }
        if wanted.is_it(&row) {
            self.rows.push(row);
        }
    }
}

/// What of the room's decisions a record is; `None`: it is none, or another record stands for it.
fn kind_of(record: &Record) -> Option<&'static str> {
    match &record.body {
        // A winner of a window is what was said before, once more.
        record::Body::Comment(_) | record::Body::Erased if record.raw_id().is_some() => None,
        record::Body::Comment(_) => Some("comment"),
        record::Body::Blocked(_) => Some("blocked"),
        record::Body::Held(_) => Some("held"),
        record::Body::HeldEnd(_) => Some("held_end"),
        record::Body::Audit(_) if record.user.is_none() => Some("override"),
        record::Body::Audit(_) => Some("admin"),
        // Without an audit in this room's log: it came with one of the whole site.
        record::Body::Ban(_) | record::Body::Unban(_) | record::Body::Retract(_) => Some("action"),
        record::Body::Erased => Some("erased"),
        _ => None,
    }
}

fn row_of(record: &Record, kind: &str, permit: Permit) -> Value {
    let verdict = match record.verdict {
        Verdict::Unjudged => "none",
        Verdict::Allow => "allow",
        Verdict::Flag => "flag",
        Verdict::Block => "block",
    };
    let mut row = json!({"kind": kind, "event_id": record.event_id().value(), "ts": stamp::text(record.ts)});
    match &record.body {
        record::Body::Audit(audit) => {
            row["operator"] = record.user.as_ref().map(UserId::as_str).into();
            row["action"] = (*audit.what).into();
            row["justification"] = (*audit.justification).into();
        }
        _ => {
            row["verdict"] = verdict.into();
            row["policy_version"] = record.policy_version.into();
            row["user_id"] = record.user.as_ref().map(UserId::as_str).into();
            if !matches!(record.body, record::Body::Erased) {
                row["record"] = audit::line_for(record, permit);
            }
        }
    }
    row
}

/// `GET /admin/ledger/verify?after=&link=`: whether the log is what was written, a stretch of it at a time, from where an earlier answer
/// came to. `broken` names the first record that does not fit.
pub async fn verify(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    auth::may_administer(ask.identity(&control)?.as_deref())?;
    let mut from = match (ask.cursor("after")?, ask.query("link")?) {
        (None, None) => None,
        (Some(after), Some(link)) => {
            let wrong = || Problem::new(ErrorCode::BadRequest, "link is the `link` of an earlier answer");
            Some((after, unhex(link).ok_or_else(wrong)?))
        }
        _ => return Err(Problem::new(ErrorCode::BadRequest, "after and link go together")),
    };
    let started = clock::mono();
    let (mut n, mut n_before) = (0, 0);
    let (mut broken, mut more);
    loop {
        let verified = control.deps.shard.verify(from).await?;
        (n, n_before) = (n + verified.n, n_before + verified.n_before);
        (from, broken, more) = (Some(verified.upto), verified.broken, verified.more);
        if !more || broken.is_some() || clock::mono().since(started) >= audit::READ_FOR {
            break;
        }
    }
    let (upto, link) = from.expect("a look comes somewhere");
    let saved = control.deps.shard.status().chained();
    if let Some((at, saved)) = saved.filter(|_| !more && broken.is_none()) {
        let why = match control.deps.shard.chain_link(at).await? {
            Some(found) if found == saved => None,
            None if at <= upto => None,
            None => Some("the log ends before its checkpoint"),
            Some(_) => Some("the checkpoint knows another link of it"),
        };
        broken = why.and_then(|why| Some((at.event_id()?, why.to_owned())));
    }
    let broken = broken.map(
        |(id, why)| json!({"event_id": id.value(), "epoch": id.epoch().value(), "seq": id.seq().value(), "why": why}),
    );
    let body = json!({
        "upto": upto.value(), "link": chain::hex(&link), "records": n, "before_chain": n_before,
        "more": more && broken.is_none(), "broken": broken,
        "checkpoint": saved.map(|(at, link)| json!({"event_id": at.value(), "link": chain::hex(&link)})),
    });
    Ok(answer_json(StatusCode::OK, &body))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use grandstand_core::ids::{Epoch, EventId};
    use grandstand_core::moderation::Ruling;
    use grandstand_core::names::{ClientMsgId, RoomId, UserId};
    use grandstand_core::owner::answer::Output;
    use grandstand_core::owner::command::{Author, Command, Publish, Standing};
    use grandstand_core::owner::{Owner, Settings};
    use grandstand_core::record::{Audit, Body, Policy, Record, Verdict};
    use grandstand_core::rooms::RoomChange;
    use grandstand_core::time::{Mono, Wall};
    use grandstand_wire::chain;
    use serde_json::{Value, json};

    use super::{Book, Wanted, unhex};
    use crate::auth::permit;

    /// A room that holds what is flagged, for a minute, and everything that is said in it.
    struct Desk {
        owner: Owner,
        now: Mono,
        log: Vec<Arc<Record>>,
    }

    impl Desk {
        fn new() -> Desk {
            let now = Mono(1_000_000);
            let mut owner = Owner::new(Settings::default(), now, Wall(1_781_000_000_000));
            owner.start(Epoch::new(1).expect("an epoch"));
            let mut desk = Desk { owner, now, log: Vec::new() };
            let change = RoomChange {
                moderation_policy: Some(Policy::PreModerate),
                hold_flagged: Some(true),
                hold_seconds: Some(60),
                ..RoomChange::default()
            };
            desk.submit(Command::PutRoom { room: room(), change: Box::new(change), if_version: None });
            desk.commit();
            desk
        }

        fn wall(&self) -> Wall {
            Wall(1_781_000_000_000) + self.now.since(Mono(1_000_000))
        }

        fn submit(&mut self, command: Command) {
            self.owner.submit(1, command, self.now, self.wall());
        }

        /// What is due is decided, in one batch with what was submitted.
        fn commit(&mut self) {
            loop {
                while let Some(output) = self.owner.poll() {
                    match output {
                        Output::Committed(record) => self.log.push(record),
                        Output::NeedVerdict { tag, .. } => {
                            let ruling = Ruling::of(Verdict::Flag, "a rule");
                            self.owner.on_verdict(tag, Some(ruling), self.now, self.wall());
                        }
                        _ => {}
                    }
                }
                if self.owner.seal(self.now, self.wall()).is_none() {
                    return;
                }
                self.owner.on_committed(self.now, self.wall());
            }
        }

        fn hold(&mut self, key: &str) -> EventId {
            let user = UserId::parse("ann").expect("a user");
            let author = Author { user, display: "Ann".into(), badges: [].into(), standing: Standing::Viewer };
            let client_msg_id = ClientMsgId::parse(key).expect("a key");
            let publish = Publish { room: room(), author, client_msg_id, text: "odd".into(), reply_to: None };
            self.submit(Command::Publish(publish));
            self.commit();
            self.log.last().filter(|record| matches!(record.body, Body::Held(_))).expect("it is held").event_id()
        }

        fn deny(&mut self, held: EventId) {
            let command = Box::new(Command::Decide { room: room(), held, approve: false });
            let audit = Audit { what: "held: deny".into(), justification: "odd".into() };
            self.submit(Command::Audited { by: UserId::parse("mod").expect("a user"), audit, command });
        }

        fn pass(&mut self, time: Duration) {
            self.now = self.now + time;
            self.owner.on_deadline(self.now, self.wall());
        }

        fn rows(&self) -> Vec<Value> {
            let mut book = Book { rows: Vec::new(), open: None, permit: permit::of_operators_book() };
            let all = Wanted { user: None, verdict: None, kind: None };
            for record in self.log.iter().rev().filter(|record| record.room.is_some()) {
                if !book.takes(record) {
                    book.close(&all);
                    book.open(record);
                }
            }
            book.close(&all);
            book.rows
        }
    }

    fn room() -> RoomId {
        RoomId::parse("a").expect("a room")
    }

    #[test]
    fn what_expires_is_one_row_of_its_own_also_beside_what_is_decided() {
        let mut desk = Desk::new();
        let alone = desk.hold("k1");
        desk.pass(Duration::from_secs(60));
        desk.commit();
        let beside = desk.hold("k2");
        desk.pass(Duration::from_secs(30));
        let denied = desk.hold("k3");
        // In one batch: the end of the one, the end of the other, and who said so.
        desk.pass(Duration::from_secs(30));
        desk.deny(denied);
        desk.commit();
        let rows = desk.rows();
        let gist = |row: &Value| {
            let record = if row["kind"] == "admin" { &row["changes"][0] } else { &row["record"] };
            json!([row["kind"], record["held_id"], record["end"], row["changes"].as_array().map(Vec::len)])
        };
        let wanted = [
            json!(["admin", denied.value(), "denied", 1]),
            json!(["held_end", beside.value(), "expired", null]),
            json!(["held", null, null, null]),
            json!(["held", null, null, null]),
            json!(["held_end", alone.value(), "expired", null]),
            json!(["held", null, null, null]),
        ];
        assert_eq!(rows.iter().map(gist).collect::<Vec<_>>(), wanted, "{rows:?}");
        assert_eq!(rows[1]["user_id"], "ann", "{rows:?}");
    }

    #[test]
    fn a_link_comes_back_as_it_was_told() {
        let mut link = [0; 32];
        link.iter_mut().enumerate().for_each(|(at, byte)| *byte = at as u8 * 8);
        assert_eq!(unhex(&chain::hex(&link)), Some(link));
        for wrong in ["", "00", &"g".repeat(64), &"0".repeat(66), "é".repeat(32).as_str()] {
            assert_eq!(unhex(wrong), None, "{wrong}");
        }
    }
}
