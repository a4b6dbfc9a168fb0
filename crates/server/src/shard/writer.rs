//! The one thread that appends to the log.
//!
//! It takes one batch at a time, makes it durable and says so; while it does, the owner collects the next. That is the whole
//! of group commit: the batch is as large as the log is slow. Between batches it does what may wait: a step of an erase or of
//! retention, and, when nothing has come for a while, folding the write-ahead log back. It decides nothing and holds no state of rooms.

use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use grandstand_core::ids::EventId;
use grandstand_core::names::RoomId;
use grandstand_core::record::Record;
use grandstand_core::time::Wall;
use grandstand_store::fault::WriteFault;
use grandstand_store::log::{Log, Retention, Step};

use crate::link::{OwnerBox, ShardStatus};

pub enum Work {
    Append(Arc<[Arc<Record>]>),
    /// Bodies older than each room's time, or the one for rooms not named, may go; headers older than the last.
    Retain(Keeping),
    /// A user's erase stands in the log under this id.
    EraseUser(EventId),
}

/// How far back the log must reach.
pub struct Keeping {
    pub rooms: HashMap<RoomId, Wall>,
    pub others: Wall,
    pub headers: Wall,
}

/// What the last batch came to. One batch is out at a time, so one place is enough.
#[derive(Default)]
pub struct Outcome(Mutex<Option<Result<(), WriteFault>>>);

impl Outcome {
    pub fn is_there(&self) -> bool {
        self.0.lock().expect("no holder of this lock can panic").is_some()
    }
    pub fn take(&self) -> Option<Result<(), WriteFault>> {
        self.0.lock().expect("no holder of this lock can panic").take()
    }
}

/// Quiet for this long, the write-ahead log is folded back.
const IDLE: Duration = Duration::from_millis(500);

/// While batches follow each other without a pause, a step of an erase is taken this often all the same: it has a minute.
const ERASE_EVERY: Duration = Duration::from_millis(50);
/// After a step that found something in its way, or failed.
const ERASE_AGAIN: Duration = Duration::from_millis(200);

/// Erases that are under way, oldest first, and when the next step is due.
struct Erasures {
    ids: VecDeque<EventId>,
    next: Instant,
}

impl Erasures {
    /// How long the writer may wait for work before the next step.
    fn wait(&self) -> Option<Duration> {
        (!self.ids.is_empty()).then(|| self.next.saturating_duration_since(Instant::now()))
    }

    /// One step of the oldest, when no start needs any more what it erases.
    fn step(&mut self, log: &mut dyn Log, status: &ShardStatus) {
        let Some(&id) = self.ids.front() else { return };
        self.next = Instant::now() + ERASE_AGAIN;
        if !status.erasing().may_go(id) {
            return;
        }
        match log.erase_user(id) {
            Ok(Step::More(_)) => self.next = Instant::now(),
            Ok(Step::Later) => {}
            Ok(Step::Done) => {
                self.ids.pop_front();
                status.erasing().end(id);
                tracing::info!(id = id.value(), "an erase is done");
            }
            Err(fault) => tracing::warn!(%fault, id = id.value(), "a step of an erase failed; it is tried again"),
        }
    }
}

/// Runs until the sender is gone; then everything sent has been appended. Gives the log back, to be closed.
pub fn run(
    mut log: Box<dyn Log>,
    work: &Receiver<Work>,
    outcome: &Outcome,
    owner: &OwnerBox,
    status: &ShardStatus,
) -> Box<dyn Log> {
    let mut folded = true;
    let mut retaining = None;
    let mut erasures = Erasures { ids: VecDeque::new(), next: Instant::now() };
    let mut stepped = Instant::now();
    loop {
        let wait = if retaining.is_some() { Duration::ZERO } else { IDLE };
        let wait = erasures.wait().map_or(wait, |step| step.min(wait));
        let next = if folded && retaining.is_none() && erasures.ids.is_empty() {
            work.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            work.recv_timeout(wait)
        };
        let erase_is_due = erasures.wait().is_some_and(|wait| wait.is_zero());
        match next {
            Ok(Work::Append(records)) => {
                let started = Instant::now();
                let result = log.append(&records);
                if result.is_ok() {
                    status.add_commit(records.len() as u64, started.elapsed());
                }
                folded = false;
                owner.nudge(|| {
                    let before = outcome.0.lock().expect("no holder of this lock can panic").replace(result);
                    assert!(before.is_none(), "one batch is out at a time");
                });
                if erase_is_due && stepped.elapsed() >= ERASE_EVERY {
                    erasures.step(&mut *log, status);
                    stepped = Instant::now();
                }
            }
            Ok(Work::Retain(keeping)) => retaining = Some(keeping),
            Ok(Work::EraseUser(id)) => erasures.ids.push_back(id),
            Err(RecvTimeoutError::Timeout) if erase_is_due => {
                erasures.step(&mut *log, status);
                stepped = Instant::now();
                folded = false;
            }
            Err(RecvTimeoutError::Timeout) => match &retaining {
                Some(keeping) => {
                    let bodies_before = |room: &RoomId| keeping.rooms.get(room).copied().unwrap_or(keeping.others);
                    let rule = Retention { bodies_before: &bodies_before, headers_before: keeping.headers };
                    match log.retain(&rule) {
                        Ok(retained) if retained.more => {}
                        Ok(_) => retaining = None,
                        Err(fault) => {
                            tracing::warn!(%fault, "a step of retention failed; the next round tries again");
                            retaining = None;
                        }
                    }
                    folded = false;
                }
                None => {
                    if let Err(fault) = log.idle() {
                        tracing::warn!(%fault, "folding the write-ahead log failed; it grows until it works again");
                    }
                    status.set_log_bytes(log.size_bytes());
                    folded = true;
                }
            },
            Err(RecvTimeoutError::Disconnected) => return log,
        }
    }
}
