//! A reader of the log that is shown nothing of who is being erased, however far the writer has come.

use std::sync::Arc;

use grandstand_core::ids::{EpochSpan, EventId, Position};
use grandstand_core::names::RoomId;
use grandstand_core::record::Record;
use grandstand_core::time::Wall;
use grandstand_store::fault::Fault;
use grandstand_store::log::{LogReader, RoomFacts, RoomPage, Verified};
use grandstand_wire::chain::Link;

use crate::link::ShardStatus;

pub struct Veiled {
    pub log: Box<dyn LogReader>,
    pub status: Arc<ShardStatus>,
}

impl Veiled {
    fn page(&mut self, read: impl FnOnce(&mut dyn LogReader) -> Result<RoomPage, Fault>) -> Result<RoomPage, Fault> {
        let before = self.status.erasing().now();
        let mut page = read(&mut *self.log)?;
        self.status.erasing().veil(before, &mut page.records);
        Ok(page)
    }

    /// The same of records that viewers are sent: what is left of one may be for none.
    fn shown(&mut self, read: impl FnOnce(&mut dyn LogReader) -> Result<RoomPage, Fault>) -> Result<RoomPage, Fault> {
        let mut page = self.page(read)?;
        page.records.retain(|record| record.lane().is_some());
        Ok(page)
    }
}

impl LogReader for Veiled {
    fn scan(&mut self, after: Position, rows: usize) -> Result<Vec<Arc<Record>>, Fault> {
        let before = self.status.erasing().now();
        let mut records = self.log.scan(after, rows)?;
        self.status.erasing().veil(before, &mut records);
        Ok(records)
    }

    fn room_scan(&mut self, room: &RoomId, after: Position, rows: usize) -> Result<RoomPage, Fault> {
        self.page(|log| log.room_scan(room, after, rows))
    }

    fn room_page(&mut self, room: &RoomId, after: Position, rows: usize) -> Result<RoomPage, Fault> {
        self.shown(|log| log.room_page(room, after, rows))
    }

    fn room_page_back(&mut self, room: &RoomId, before: Position, rows: usize) -> Result<RoomPage, Fault> {
        self.shown(|log| log.room_page_back(room, before, rows))
    }

    fn room_scan_back(&mut self, room: &RoomId, before: Position, rows: usize) -> Result<RoomPage, Fault> {
        self.page(|log| log.room_scan_back(room, before, rows))
    }

    fn others_back(&mut self, room: Option<&RoomId>, before: Position, rows: usize) -> Result<RoomPage, Fault> {
        self.page(|log| log.others_back(room, before, rows))
    }

    fn room_facts(&mut self, room: &RoomId, after: Position, upto: Position) -> Result<RoomFacts, Fault> {
        let mut facts = self.log.room_facts(room, after, upto)?;
        // Which of them the writer will erase is not looked up: while one is under way, whoever lacks any is told to take a snapshot.
        let newest = self.status.erasing().newest_named();
        let lost = facts.first_priority.map(|(id, ..)| id).filter(|id| newest.is_some_and(|newest| *id < newest));
        facts.last_lost = facts.last_lost.max(lost);
        Ok(facts)
    }

    fn newest_comments(
        &mut self,
        room: &RoomId,
        after: Position,
        upto: Position,
        rows: usize,
    ) -> Result<Vec<(EventId, Wall)>, Fault> {
        self.log.newest_comments(room, after, upto, rows)
    }

    fn before_ts(&mut self, ts: Wall) -> Result<Position, Fault> {
        self.log.before_ts(ts)
    }

    fn head(&mut self) -> Result<Position, Fault> {
        self.log.head()
    }

    fn floor(&mut self) -> Result<Position, Fault> {
        self.log.floor()
    }

    fn verify(&mut self, from: Option<(Position, Link)>, rows: usize) -> Result<Verified, Fault> {
        self.log.verify(from, rows)
    }

    fn link(&mut self, at: Position) -> Result<Option<Link>, Fault> {
        self.log.link(at)
    }

    fn epochs(&mut self) -> Result<Vec<EpochSpan>, Fault> {
        self.log.epochs()
    }
}
