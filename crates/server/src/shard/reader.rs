//! Reader threads: cursors judged, pages of the log for viewers that catch up, older comments, exports.
//!
//! Each job is one page and one short read. Jobs that ask for the same page at the same time share one read and its encoded
//! pieces. A reader never shows what the owner has not given out: pages end at the published head, so that every retract up
//! to there is known and every event after it comes live.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use grandstand_core::ids::{Position, Pseq};
use grandstand_core::names::RoomId;
use grandstand_core::record::{Audience, Audit, Body, Comment, Lane, Record, Room};
use grandstand_core::sampler::pick::WindowNumber;
use grandstand_core::viewer::part;
use grandstand_core::viewer::resume::{self, Answer, Priority, Reason};
use grandstand_store::fault::Fault;
use grandstand_store::log::{LogReader, PAGE_ROWS_MAX, PAGE_TIME_MAX};

use crate::changes::{self, CHANGES_MAX, Part};
use crate::clock;
use crate::failpoint;
use crate::link::{
    After, AuditAsked, Audited, BackPage, ExportPage, Fetch, JobBox, Page, Past, Piece, Read, ReadRefused, Resumed,
    ShardStatus, ToReader, ToWorker, WorkerId, Workers,
};
use crate::shard::facts::{Facts, Moment};
use crate::shard::piece;

/// Rows of one page for a viewer. 100 comments of 2 000 bytes are one 240 KB write, which a slow socket may keep whole.
const VIEWER_PAGE_ROWS: usize = 100;

/// Rows of one page for a ring: at most 1.2 MB of the 4 MB it may hold.
const PAST_ROWS: usize = 500;

pub struct Reader {
    pub log: Box<dyn LogReader>,
    pub facts: Arc<Facts>,
    pub status: Arc<ShardStatus>,
    pub workers: Workers,
    pub create_on_use: bool,
}

/// Jobs taken at once: as many as may share a page without one reader keeping all the work.
const JOBS_AT_ONCE: usize = 64;

/// What makes two page jobs the same.
type PageKey = (RoomId, Position, Position);

impl Reader {
    /// Runs until the box is closed.
    pub fn run(mut self, jobs: &JobBox<ToReader>) {
        while let Some(jobs) = jobs.take(JOBS_AT_ONCE) {
            let mut shared: HashMap<PageKey, Page> = HashMap::new();
            for job in jobs {
                self.job(job, &mut shared);
            }
        }
    }

    fn job(&mut self, job: ToReader, shared: &mut HashMap<PageKey, Page>) {
        match job {
            ToReader::Fetch(Fetch::Resume { conn, request, room, cursor }) => {
                failpoint::wait("resume.before_read");
                let answer = self.resume(&room, cursor, shared);
                self.send(conn.worker, ToWorker::Resume { conn, request, room, answer });
            }
            ToReader::Fetch(Fetch::Page { conn, request, room, after, comments_from }) => {
                failpoint::wait("resume.between_pages");
                let page = self.page(&room, after, comments_from, shared);
                self.send(conn.worker, ToWorker::Page { conn, request, room, answer: page });
            }
            ToReader::Fetch(Fetch::Past { worker, request, room, upto, seen }) => {
                let answer = self.past(&room, upto, seen);
                self.send(worker, ToWorker::Past { room, request, answer });
            }
            ToReader::Older { room, before, limit, reply } => {
                let _ = reply.send(self.older(&room, before, limit));
            }
            ToReader::Export { room, after, reply } => {
                let _ = reply.send(self.export(&room, after));
            }
            ToReader::Archive { room, after, reply } => {
                let _ = reply.send(self.archive(&room, after));
            }
            ToReader::Scan { after, reply } => {
                let _ = reply.send(self.scan(after));
            }
            ToReader::Past { room, before, reply } => {
                let _ = reply.send(self.all_past(&room, before));
            }
            ToReader::Verify { from, reply } => {
                self.status.add_read(Read::Verify);
                let _ = reply.send(self.log.verify(from, PAGE_ROWS_MAX).map_err(fault));
            }
            ToReader::Link { at, reply } => {
                let _ = reply.send(self.log.link(at).map_err(fault));
            }
            ToReader::Audit { asked, reply } => {
                let _ = reply.send(self.audit(&asked));
            }
        }
    }

    /// Whether the room is there, as of the head that was published last.
    fn moment(&self, room: &RoomId) -> Result<Moment, ReadRefused> {
        let moment = self.facts.moment(room);
        if moment.room.is_none() && !self.create_on_use {
            return Err(ReadRefused::NoRoom);
        }
        Ok(moment)
    }

    fn resume(
        &mut self,
        room: &RoomId,
        cursor: Position,
        shared: &mut HashMap<PageKey, Page>,
    ) -> Result<Resumed, ReadRefused> {
        let moment = self.moment(room)?;
        let now = clock::wall();
        let (window, last_event, pseq) = match &moment.room {
            Some(seen) => (seen.settings.resume_window_seconds, seen.last_event, seen.pseq),
            None => (Room::fresh("").resume_window_seconds, Position::START, Pseq(0)),
        };
        let window = Duration::from_secs(u64::from(window));
        let mut facts = resume::Facts {
            head: moment.head,
            epochs: &moment.epochs,
            complete_after: Position::START,
            last_event,
            pseq,
            first_priority: None,
            first_comment: None,
            n_comments: 0,
            window,
            wide_from: None,
        };
        let mut lost = None;
        // The log is asked only when something of the room follows the cursor.
        if cursor > Position::START && cursor < last_event && cursor <= moment.head {
            self.status.add_read(Read::Resume);
            let gap = self.log.room_facts(room, cursor, moment.head).map_err(fault)?;
            lost = gap.last_lost;
            facts.complete_after = gap.floor;
            facts.first_priority = gap.first_priority.map(|(id, pseq, ts)| Priority { id, pseq, age: now.since(ts) });
            facts.first_comment = gap.first_comment.map(|(id, ts)| (id, now.since(ts)));
            facts.n_comments = gap.n_comments;
            if let Some(seen) = moment.room.as_ref().filter(|seen| seen.wide) {
                let past = resume::wide_past(seen.settings.sampling.cap(), window);
                facts.wide_from = Some(self.log.before_ts(now - past).map_err(fault)?);
            }
        }
        let mut failed = None;
        let newest = || {
            let newest = self.log.newest_comments(room, cursor, moment.head, resume::COMMENTS_MAX + 1);
            let newest = newest.unwrap_or_else(|fault| {
                failed = Some(fault);
                Vec::new()
            });
            newest.into_iter().map(|(id, ts)| (id, now.since(ts))).collect()
        };
        let answer = resume::resume_from(cursor, &facts, newest);
        if let Some(failed) = failed {
            return Err(fault(failed));
        }
        let first = match answer {
            Answer::Resumed { .. } if lost.is_some() => return Ok(lacks(moment.head, pseq)),
            Answer::Resumed { from, comments_after, until, .. } if from < until => {
                match self.page(room, from, comments_after, shared) {
                    Err(ReadRefused::Unknown) => return Ok(lacks(moment.head, pseq)),
                    page => page?,
                }
            }
            _ => Page { pieces: Vec::new(), upto: answer.baseline().0 },
        };
        Ok(Resumed { answer, first })
    }

    /// Events after `after` up to the published head, comments only after `comments_from`; of a window that either place lies
    /// within also what lies before it.
    /// Errors: `Unknown` when a priority event among them is erased; who lacks it resumes and is told so.
    fn page(
        &mut self,
        room: &RoomId,
        after: Position,
        comments_from: Position,
        shared: &mut HashMap<PageKey, Page>,
    ) -> Result<Page, ReadRefused> {
        let key = (room.clone(), after, comments_from);
        if let Some(page) = shared.get(&key) {
            return Ok(page.clone());
        }
        let head = self.moment(room)?.head;
        let started = clock::mono();
        let mut page = Page { pieces: Vec::new(), upto: after };
        // A gap whose comments do not follow is read on until something of it does, within the time of one page.
        while page.upto < head && page.pieces.is_empty() && clock::mono().since(started) < PAGE_TIME_MAX {
            self.status.add_read(Read::Page);
            let from = page.upto;
            let read = self.log.room_page(room, from, VIEWER_PAGE_ROWS).map_err(fault)?;
            let mut records = read.records;
            if records.iter().any(|record| record.is_lost() && record.event_id().position() <= head) {
                return Err(ReadRefused::Unknown);
            }
            page.upto = read.upto.min(head);
            if let Some(window) = part::broken_end(&windows(&records)).filter(|_| read.upto < head) {
                page.upto = just_before(&records[window]);
                records.truncate(window);
            }
            // A window that the asked place lies within is read whole; who is given a page passes over what it has.
            let lacking = part::lacks_before(&windows(&records));
            if let Some(before) = Position::new(from.value() + 1).filter(|_| lacking > 0) {
                let mut whole = self.log.room_page_back(room, before, lacking).map_err(fault)?.records;
                whole.append(&mut records);
                records = whole;
            }
            let of = windows(&records);
            let told = records.partition_point(|record| record.event_id().position() <= comments_from);
            let split = of.get(told).copied().flatten().filter(|of_next| told > 0 && of[told - 1] == Some(*of_next));
            let mut of = of.into_iter();
            records.retain(|record| {
                let (at, of) = (record.event_id().position(), of.next().flatten());
                let follows = at > comments_from || split.is_some() && of == split;
                at <= head && (record.lane() != Some(Lane::Comment) || follows)
            });
            page.pieces = self.pieces(room, &records);
        }
        shared.insert(key, page.clone());
        Ok(page)
    }

    /// What viewers are sent of records, without what a retract took back. A winner that was keeps its place in its window,
    /// empty, so that nobody's picks of the others move.
    fn pieces(&self, room: &RoomId, records: &[Arc<Record>]) -> Vec<Arc<Piece>> {
        let retracted = self.facts.retracted(room, records);
        let piece = |(record, is_gone): (&Arc<Record>, bool)| match is_gone {
            true => piece::emptied(record),
            false => piece::of(record),
        };
        records.iter().zip(retracted).filter_map(piece).collect()
    }

    /// The newest events up to `upto`, for a ring.
    fn past(&mut self, room: &RoomId, upto: Position, seen: Position) -> Result<Past, ReadRefused> {
        let moment = self.moment(room)?;
        if upto > moment.head || !resume::is_known(seen, moment.head, &moment.epochs) {
            return Err(ReadRefused::Unknown);
        }
        let Some(before) = Position::new(upto.value() + 1) else { return Err(ReadRefused::Unknown) };
        self.status.add_read(Read::Past);
        let read = self.log.room_page_back(room, before, PAST_ROWS).map_err(fault)?;
        let mut after = match read.upto.value().checked_sub(1) {
            Some(before) => Position::new(before).expect("one less than a position is one"),
            // The room has nothing older; of what the log let go nobody can tell.
            None => self.log.floor().map_err(fault)?.min(upto),
        };
        let mut records = read.records;
        // Nobody can be given what is erased: who is further back resumes from the log, and is told so.
        if let Some(lost) = records.iter().rposition(|record| record.is_lost()) {
            after = after.max(records[lost].event_id().position());
            records.drain(..=lost);
        }
        if let Some(rest) = part::broken_start(&windows(&records)) {
            after = just_before(&records[rest]);
            records.drain(..rest);
        }
        Ok(Past { pieces: self.pieces(room, &records), after })
    }

    fn older(&mut self, room: &RoomId, before: Position, limit: usize) -> Result<Vec<Arc<Piece>>, ReadRefused> {
        self.moment(room)?;
        let started = clock::mono();
        let mut before = before;
        let mut comments: Vec<Arc<Record>> = Vec::new();
        while before > Position::START && comments.len() < limit && clock::mono().since(started) < PAGE_TIME_MAX * 4 {
            self.status.add_read(Read::Older);
            let read = self.log.room_page_back(room, before, PAGE_ROWS_MAX).map_err(fault)?;
            let mut records = read.records;
            records.retain(|r| matches!(r.body, Body::Comment(_)) && r.audience == Audience::Everyone);
            self.facts.without_retracted(room, &mut records);
            records.extend(comments);
            comments = records;
            before = read.upto;
        }
        let from = comments.len().saturating_sub(limit);
        Ok(comments[from..].iter().filter_map(|record| piece::of(record)).collect())
    }

    /// Everything the log holds of the room, control records included, one page of it.
    fn export(&mut self, room: &RoomId, after: Position) -> Result<ExportPage, ReadRefused> {
        let head = self.moment(room)?.head;
        if after >= head {
            return Ok(ExportPage { records: Vec::new(), upto: after, head });
        }
        self.status.add_read(Read::Export);
        let mut page = self.log.room_scan(room, after, PAGE_ROWS_MAX).map_err(fault)?;
        // What was committed since is another page's, when it has been given out.
        page.records.retain(|record| record.event_id().position() <= head);
        Ok(ExportPage { records: page.records, upto: page.upto.min(head), head })
    }

    /// The room's comments as anybody may still be shown them: nothing that was taken back, that waits or that its author alone is shown.
    fn archive(&mut self, room: &RoomId, after: After) -> Result<ExportPage, ReadRefused> {
        let head = self.moment(room)?.head;
        let after = match after {
            After::Position(after) => after,
            After::From(ts) => self.log.before_ts(ts).map_err(fault)?,
        };
        if after >= head {
            return Ok(ExportPage { records: Vec::new(), upto: after, head });
        }
        self.status.add_read(Read::Export);
        let mut page = self.log.room_page(room, after, PAGE_ROWS_MAX).map_err(fault)?;
        page.records.retain(|record| {
            let is_shown = matches!(&record.body, Body::Comment(comment) if !comment.shadowed);
            is_shown && record.audience == Audience::Everyone && record.event_id().position() <= head
        });
        self.facts.without_retracted(room, &mut page.records);
        Ok(ExportPage { records: page.records, upto: page.upto.min(head), head })
    }

    /// One page of the log, without what users say and what says nothing.
    fn scan(&mut self, after: Position) -> Result<ExportPage, ReadRefused> {
        let head = self.facts.head();
        if after >= head {
            return Ok(ExportPage { records: Vec::new(), upto: after, head });
        }
        self.status.add_read(Read::Export);
        let mut records = self.log.scan(after, PAGE_ROWS_MAX).map_err(fault)?;
        let upto = records.last().map_or(head, |last| last.event_id().position().min(head));
        records.retain(|record| {
            let says_nothing =
                matches!(record.body, Body::Comment(_) | Body::Erased | Body::EpochStart | Body::Tally(_));
            !says_nothing && record.event_id().position() <= head
        });
        Ok(ExportPage { records, upto, head })
    }

    /// Everything the log holds of the room before `before`, one page of the newest, newest first.
    fn all_past(&mut self, room: &RoomId, before: Position) -> Result<BackPage<Arc<Record>>, ReadRefused> {
        let before = before.min(after_head(self.moment(room)?.head));
        self.status.add_read(Read::Back);
        let page = self.log.room_scan_back(room, before, PAGE_ROWS_MAX).map_err(fault)?;
        Ok(BackPage { found: page.records.into_iter().rev().collect(), upto: page.upto })
    }

    /// What operators changed, newest first, each with what it wrote.
    fn audit(&mut self, asked: &AuditAsked) -> Result<BackPage<Audited>, ReadRefused> {
        let head = match &asked.room {
            Some(room) => self.moment(room)?.head,
            None => self.facts.head(),
        };
        let mut before = asked.before.min(after_head(head));
        if let Some(to) = asked.to {
            before = before.min(after_head(self.log.before_ts(to).map_err(fault)?));
        }
        let first = asked.from.map(|from| self.log.before_ts(from)).transpose().map_err(fault)?;
        self.status.add_read(Read::Back);
        let page = self.log.others_back(asked.room.as_ref(), before, PAGE_ROWS_MAX).map_err(fault)?;
        let (mut found, mut upto) = (Vec::new(), page.upto);
        for record in page.records.into_iter().rev() {
            let at = record.event_id().position();
            if first.is_some_and(|first| at <= first) {
                upto = Position::START;
                break;
            }
            let Body::Audit(audit) = &record.body else { continue };
            let is_by = asked.by.as_ref().is_none_or(|by| record.user.as_ref() == Some(by));
            if !is_by || asked.what.as_ref().is_some_and(|what| *what != audit.what) {
                continue;
            }
            if found.len() == asked.limit {
                // One more is there: the next look begins with it.
                upto = after_head(at);
                break;
            }
            let changes = self.changes(&record)?;
            found.push(Audited { audit: record, changes });
        }
        if first.is_some_and(|first| upto <= first) {
            upto = Position::START;
        }
        Ok(BackPage { found, upto })
    }

    /// The records that an operator's change wrote: they stand directly before its audit.
    fn changes(&mut self, audit: &Record) -> Result<Vec<Arc<Record>>, ReadRefused> {
        let Body::Audit(Audit { what, .. }) = &audit.body else { return Ok(Vec::new()) };
        let mut changes: Vec<Arc<Record>> = Vec::new();
        let mut next = audit.event_id().value();
        while changes.len() < CHANGES_MAX {
            let Some(after) = next.checked_sub(2).and_then(Position::new) else { break };
            let before = self.log.scan(after, 1).map_err(fault)?.into_iter().next();
            let Some(record) = before.filter(|r| r.event_id().value() == next - 1 && r.room == audit.room) else {
                break;
            };
            let part = changes::part_of(what, changes.last().map(|newer| &newer.body), &record.body);
            if part == Part::None {
                break;
            }
            next -= 1;
            changes.push(record);
            if part == Part::First {
                break;
            }
        }
        changes.reverse();
        Ok(changes)
    }

    fn send(&self, worker: WorkerId, item: ToWorker) {
        // The connection's own deadline ends its wait; the client comes back.
        if self.workers.send(worker, item).is_err() {
            self.status.add_undelivered();
        }
    }
}

/// What a cursor is answered that a priority event follows which is erased.
fn lacks(head: Position, pseq: Pseq) -> Resumed {
    let answer = Answer::SnapshotRequired { reason: Reason::TooOld, from: head, pseq };
    Resumed { answer, first: Page { pieces: Vec::new(), upto: head } }
}

/// Each record's window, and how many winners that has.
fn windows(records: &[Arc<Record>]) -> Vec<Option<(WindowNumber, u32)>> {
    let window = |record: &Arc<Record>| match &record.body {
        Body::Comment(Comment { won: Some(won), .. }) => Some((won.window, won.of)),
        _ => None,
    };
    records.iter().map(window).collect()
}

/// Before it is everything up to `head`.
fn after_head(head: Position) -> Position {
    Position::new(head.value() + 1).unwrap_or(head)
}

/// The place just before a record.
fn just_before(record: &Record) -> Position {
    Position::new(record.event_id().value() - 1).expect("one less than an id is a position")
}

fn fault(fault: Fault) -> ReadRefused {
    tracing::error!(%fault, "the log could not be read");
    ReadRefused::Fault
}
