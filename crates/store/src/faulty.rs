//! Makes a log or a catalog fail in every way its port allows, by a seed: the same seed and the same calls, the same faults.
//!
//! A stunt double: from outside it is the thing itself, and it falls on cue. It must never do what the port forbids (a
//! *failed* append that is seen later, an `Ok` that is not), or a test would blame the caller for it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use grandstand_core::ids::{EpochSpan, EventId, Position};
use grandstand_core::names::RoomId;
use grandstand_core::record::Record;
use grandstand_core::rng::Rng;
use grandstand_core::time::Wall;
use grandstand_wire::chain::Link;

use crate::catalog::{Catalog, Checkpoint, RoomRow};
use crate::fault::{Fault, Refusal, WriteFault};
use crate::log::{Erasure, Log, LogReader, Retained, Retention, RoomFacts, RoomPage, Step, Verified};

/// How often each fault comes, in a thousand calls, and how long a delay lasts at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    pub delay: u32,
    pub delay_max: Duration,
    /// *Refused*: no space. Nothing is written.
    pub no_space: u32,
    /// *Failed*: nothing is written.
    pub fail: u32,
    /// *Unknown*, and everything was written.
    pub fail_after_success: u32,
    /// *Unknown*, and nothing was written.
    pub lost: u32,
    /// *Unknown*, and the first records of the batch were written.
    pub torn: u32,
    /// A read answers as of an earlier head.
    pub stale_read: u32,
    /// A read fails.
    pub read_fail: u32,
}

impl Faults {
    /// None at all.
    pub const OFF: Faults = Faults {
        delay: 0,
        delay_max: Duration::ZERO,
        no_space: 0,
        fail: 0,
        fail_after_success: 0,
        lost: 0,
        torn: 0,
        stale_read: 0,
        read_fail: 0,
    };
}

/// How many faults of each kind were made; a run in which the wanted ones never came proves nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Made {
    pub delays: u64,
    pub no_space: u64,
    pub failed: u64,
    pub after_success: u64,
    pub lost: u64,
    pub torn: u64,
    pub stale_reads: u64,
    pub read_failures: u64,
}

/// The cue sheet, shared by a wrapper, its readers, and whoever changes the faults while they run.
#[derive(Clone)]
pub struct Director(Arc<Mutex<Script>>);

struct Script {
    faults: Faults,
    rng: Rng,
    made: Made,
    pause: Box<dyn FnMut(Duration) + Send>,
    /// The last heads that were durable, for stale reads: a replica lags, it does not forget.
    heads: VecDeque<Position>,
}

/// `inner`, with faults.
pub struct Faulty<T> {
    inner: T,
    director: Director,
    /// After an unknown outcome the handle writes no more, as the port says.
    poisoned: bool,
}

struct FaultyReader {
    inner: Box<dyn LogReader>,
    director: Director,
}

/// How far a stale read is behind at most, in appends.
const HEADS_KEPT: usize = 8;

enum Cue {
    Play,
    NoSpace,
    Fail,
    AfterSuccess,
    Lost,
    Torn,
}

impl Director {
    /// `pause` is called for a delay: a simulator moves its clock, a test sleeps or counts.
    pub fn new(faults: Faults, seed: u64, pause: impl FnMut(Duration) + Send + 'static) -> Director {
        let script = Script {
            faults,
            rng: Rng::new(seed),
            made: Made::default(),
            pause: Box::new(pause),
            heads: VecDeque::from([Position::START]),
        };
        Director(Arc::new(Mutex::new(script)))
    }

    /// Other faults from here on.
    pub fn set(&self, faults: Faults) {
        self.with(|script| script.faults = faults);
    }

    pub fn made(&self) -> Made {
        self.with(|script| script.made)
    }

    fn with<T>(&self, body: impl FnOnce(&mut Script) -> T) -> T {
        body(&mut self.0.lock().expect("no holder of the script can panic but in its pause"))
    }

    fn cue(&self) -> Cue {
        self.with(|script| {
            script.delay();
            let Faults { no_space, fail, fail_after_success, lost, torn, .. } = script.faults;
            let (mut draw, made) = (script.rng.below(1000) as u32, &mut script.made);
            let cues = [
                (no_space, Cue::NoSpace, &mut made.no_space),
                (fail, Cue::Fail, &mut made.failed),
                (fail_after_success, Cue::AfterSuccess, &mut made.after_success),
                (lost, Cue::Lost, &mut made.lost),
                (torn, Cue::Torn, &mut made.torn),
            ];
            for (share, cue, count) in cues {
                if draw < share {
                    *count += 1;
                    return cue;
                }
                draw -= share;
            }
            Cue::Play
        })
    }

    /// Errors: the injected one. Otherwise an earlier head to answer by, or `None` for the newest.
    fn read_cue(&self) -> Result<Option<Position>, Fault> {
        self.with(|script| {
            script.delay();
            let draw = script.rng.below(1000) as u32;
            if draw < script.faults.read_fail {
                script.made.read_failures += 1;
                return Err(Fault::Injected("a read failed"));
            }
            if draw < script.faults.read_fail + script.faults.stale_read {
                script.made.stale_reads += 1;
                let n = script.heads.len();
                let back = script.rng.below(n as u64) as usize;
                return Ok(Some(script.heads[n - 1 - back]));
            }
            Ok(None)
        })
    }
}

impl Script {
    fn delay(&mut self) {
        if self.rng.chance(u64::from(self.faults.delay), 1000) && !self.faults.delay_max.is_zero() {
            self.made.delays += 1;
            let micros = self.rng.below(self.faults.delay_max.as_micros() as u64 + 1);
            (self.pause)(Duration::from_micros(micros));
        }
    }
}

impl<T> Faulty<T> {
    pub fn new(inner: T, director: &Director) -> Faulty<T> {
        Faulty { inner, director: director.clone(), poisoned: false }
    }

    pub fn inner(&mut self) -> &mut T {
        &mut self.inner
    }

    pub fn into_inner(self) -> T {
        self.inner
    }

    fn write<R>(
        &mut self,
        all: impl FnOnce(&mut T) -> Result<R, WriteFault>,
        part: impl FnOnce(&mut T, &mut Rng) -> Result<(), WriteFault>,
    ) -> Result<R, WriteFault> {
        if self.poisoned {
            return Err(WriteFault::Failed(Fault::Injected("an earlier write ended as unknown")));
        }
        let done = match self.director.cue() {
            Cue::Play => all(&mut self.inner),
            Cue::NoSpace => Err(Refusal::NoSpace.into()),
            Cue::Fail => Err(WriteFault::Failed(Fault::Injected("the write failed"))),
            Cue::AfterSuccess => {
                all(&mut self.inner).and(Err(WriteFault::Unknown(Fault::Injected("written, the answer was lost"))))
            }
            Cue::Lost => Err(WriteFault::Unknown(Fault::Injected("not written, the answer was lost"))),
            Cue::Torn => {
                let mut rng = Rng::new(self.director.with(|script| script.rng.next()));
                part(&mut self.inner, &mut rng).and(Err(WriteFault::Unknown(Fault::Injected("written in part"))))
            }
        };
        self.poisoned = matches!(done, Err(WriteFault::Unknown(_)));
        done
    }
}

impl<L: Log> Log for Faulty<L> {
    fn append(&mut self, records: &[Arc<Record>]) -> Result<(), WriteFault> {
        let done = self.write(
            |log| log.append(records),
            |log, rng| log.append(&records[..rng.below(records.len() as u64 + 1) as usize]),
        );
        let head = self.inner.head();
        self.director.with(|script| {
            script.heads.push_back(head);
            if script.heads.len() > HEADS_KEPT {
                script.heads.pop_front();
            }
        });
        done
    }

    fn head(&self) -> Position {
        self.inner.head()
    }

    fn reader(&self) -> Result<Box<dyn LogReader>, Fault> {
        Ok(Box::new(FaultyReader { inner: self.inner.reader()?, director: self.director.clone() }))
    }

    fn idle(&mut self) -> Result<(), WriteFault> {
        self.inner.idle()
    }

    fn erase(&mut self, ids: &[EventId]) -> Result<usize, WriteFault> {
        self.write(
            |log| log.erase(ids),
            |log, rng| log.erase(&ids[..rng.below(ids.len() as u64 + 1) as usize]).map(drop),
        )
    }

    fn erasures(&self) -> Result<Vec<Erasure>, Fault> {
        self.inner.erasures()
    }

    fn erase_user(&mut self, id: EventId) -> Result<Step, WriteFault> {
        self.write(|log| log.erase_user(id), |_, _| Ok(()))
    }

    fn retain(&mut self, rule: &Retention<'_>) -> Result<Retained, WriteFault> {
        self.write(|log| log.retain(rule), |_, _| Ok(()))
    }

    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn limit_bytes(&mut self, limit: Option<u64>) -> Result<(), Fault> {
        self.inner.limit_bytes(limit)
    }
}

impl LogReader for FaultyReader {
    fn scan(&mut self, after: Position, rows: usize) -> Result<Vec<Arc<Record>>, Fault> {
        let as_of = self.director.read_cue()?;
        let mut records = self.inner.scan(after, rows)?;
        records.retain(|r| seen(r.event_id().position(), as_of));
        Ok(records)
    }

    fn room_scan(&mut self, room: &RoomId, after: Position, rows: usize) -> Result<RoomPage, Fault> {
        let as_of = self.director.read_cue()?;
        let page = self.inner.room_scan(room, after, rows)?;
        Ok(as_seen(page, as_of, after))
    }

    fn room_page(&mut self, room: &RoomId, after: Position, rows: usize) -> Result<RoomPage, Fault> {
        let as_of = self.director.read_cue()?;
        let page = self.inner.room_page(room, after, rows)?;
        Ok(as_seen(page, as_of, after))
    }

    fn room_page_back(&mut self, room: &RoomId, before: Position, rows: usize) -> Result<RoomPage, Fault> {
        let as_of = self.director.read_cue()?;
        let mut page = self.inner.room_page_back(room, no_later(before, as_of), rows)?;
        page.head = as_of.map_or(page.head, |head| head.min(page.head));
        Ok(page)
    }

    fn room_scan_back(&mut self, room: &RoomId, before: Position, rows: usize) -> Result<RoomPage, Fault> {
        let as_of = self.director.read_cue()?;
        let page = self.inner.room_scan_back(room, no_later(before, as_of), rows)?;
        Ok(RoomPage { head: as_of.map_or(page.head, |head| head.min(page.head)), ..page })
    }

    fn others_back(&mut self, room: Option<&RoomId>, before: Position, rows: usize) -> Result<RoomPage, Fault> {
        let as_of = self.director.read_cue()?;
        let page = self.inner.others_back(room, no_later(before, as_of), rows)?;
        Ok(RoomPage { head: as_of.map_or(page.head, |head| head.min(page.head)), ..page })
    }

    fn room_facts(&mut self, room: &RoomId, after: Position, upto: Position) -> Result<RoomFacts, Fault> {
        let as_of = self.director.read_cue()?;
        let facts = self.inner.room_facts(room, after, as_of.map_or(upto, |head| head.min(upto)))?;
        Ok(RoomFacts { head: as_of.map_or(facts.head, |head| head.min(facts.head)), ..facts })
    }

    fn newest_comments(
        &mut self,
        room: &RoomId,
        after: Position,
        upto: Position,
        rows: usize,
    ) -> Result<Vec<(EventId, Wall)>, Fault> {
        let as_of = self.director.read_cue()?;
        self.inner.newest_comments(room, after, as_of.map_or(upto, |head| head.min(upto)), rows)
    }

    fn before_ts(&mut self, ts: Wall) -> Result<Position, Fault> {
        let as_of = self.director.read_cue()?;
        let found = self.inner.before_ts(ts)?;
        Ok(as_of.map_or(found, |head| found.min(head)))
    }

    fn head(&mut self) -> Result<Position, Fault> {
        let as_of = self.director.read_cue()?;
        let head = self.inner.head()?;
        Ok(as_of.map_or(head, |stale| stale.min(head)))
    }

    fn floor(&mut self) -> Result<Position, Fault> {
        self.director.read_cue()?;
        self.inner.floor()
    }

    fn verify(&mut self, from: Option<(Position, Link)>, rows: usize) -> Result<Verified, Fault> {
        self.director.read_cue()?;
        self.inner.verify(from, rows)
    }

    fn link(&mut self, at: Position) -> Result<Option<Link>, Fault> {
        self.director.read_cue()?;
        self.inner.link(at)
    }

    fn epochs(&mut self) -> Result<Vec<EpochSpan>, Fault> {
        // An epoch's extent as it was at an earlier head cannot be told from here, so this fails or is new.
        self.director.read_cue()?;
        self.inner.epochs()
    }
}

impl<C: Catalog> Catalog for Faulty<C> {
    fn rooms(&mut self) -> Result<Vec<RoomRow>, Fault> {
        self.director.read_cue()?;
        self.inner.rooms()
    }

    fn room(&mut self, room: &RoomId) -> Result<Option<RoomRow>, Fault> {
        self.director.read_cue()?;
        self.inner.room(room)
    }

    fn put_room(&mut self, row: &RoomRow) -> Result<(), WriteFault> {
        self.write(|catalog| catalog.put_room(row), |_, _| Ok(()))
    }

    fn save_checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<(), WriteFault> {
        self.write(|catalog| catalog.save_checkpoint(checkpoint), |_, _| Ok(()))
    }

    fn load_checkpoint(&mut self) -> Result<Option<Checkpoint>, Fault> {
        self.director.read_cue()?;
        self.inner.load_checkpoint()
    }

    fn forget_checkpoints(&mut self) -> Result<(), WriteFault> {
        self.write(|catalog| catalog.forget_checkpoints(), |_, _| Ok(()))
    }

    fn scrub(&mut self) -> Result<(), WriteFault> {
        self.write(|catalog| catalog.scrub(), |_, _| Ok(()))
    }

    fn meta(&mut self, key: &str) -> Result<Option<Vec<u8>>, Fault> {
        self.director.read_cue()?;
        self.inner.meta(key)
    }

    fn put_meta(&mut self, key: &str, value: &[u8]) -> Result<(), WriteFault> {
        self.write(|catalog| catalog.put_meta(key, value), |_, _| Ok(()))
    }
}

/// A reader that is behind goes back from where it stands.
fn no_later(before: Position, as_of: Option<Position>) -> Position {
    as_of.and_then(|head| Position::new(head.value() + 1)).map_or(before, |end| end.min(before))
}

/// A page after `after`, as it was at an earlier head.
fn as_seen(mut page: RoomPage, as_of: Option<Position>, after: Position) -> RoomPage {
    if let Some(head) = as_of.filter(|head| *head < page.head) {
        page.records.retain(|r| seen(r.event_id().position(), as_of));
        page.head = head;
        page.upto = page.upto.min(head).max(after);
    }
    page
}

fn seen(at: Position, as_of: Option<Position>) -> bool {
    as_of.is_none_or(|head| at <= head)
}
