//! The shard role, embedded: one log, its owner, and the threads around them.
//!
//! ```text
//!                 ┌── Work ──► writer (Log::append) ── outcome ──┐
//! mail ──► owner ─┤                                              ├──► owner ──► answers, batches
//!                 └── Keep ──► keeper (checkpoints)              │
//! jobs ──► readers (2) ──► resumes, pages ◄── facts (published head, retracts) ◄┘
//! ```
//!
//! Nothing is answered or shown before the commit that holds it returned. A failed assertion in the owner or the writer ends
//! the process: the log knows better than memory what is true, and the next start reads it.

use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use grandstand_core::ids::Epoch;
use grandstand_core::owner::{Owner, Settings};
use grandstand_core::record::Body;
use grandstand_store::catalog::Catalog;
use grandstand_store::fault::{Fault, WriteFault};
use grandstand_store::log::{Log, LogReader};
use grandstand_store::memory::{MemoryCatalog, MemoryLog};
use grandstand_store::recover::{self, Behind, RecoverFault, Recovered};
use grandstand_store::sqlite::{DataDir, Durability, SqliteCatalog, SqliteLog, next_epoch};

use crate::clock;
use crate::link::{ShardEnds, ShardHandle, Tallies, Workers};
use crate::moderation;
use facts::Facts;
use reader::Reader;
pub use task::Times;
use task::{State, Task};
use veiled::Veiled;

mod asker;
mod facts;
mod info;
mod keeper;
mod piece;
mod reader;
mod task;
mod veiled;
mod writer;

/// Called when the log's state is not known any more, with the reason. It must end the process.
pub type OnFatal = Arc<dyn Fn(&str) + Send + Sync>;

#[derive(Clone)]
pub struct ShardConfig {
    pub region: Arc<str>,
    pub create_on_use: bool,
    /// Days the bodies of a room are kept that has the default setting, and any record's header at least.
    pub retention_days: u32,
    pub retention_header_days: u32,
    pub times: Times,
    pub on_fatal: OnFatal,
    /// How many watch each room, over all gateways.
    pub tallies: Tallies,
    /// The built-in classifier.
    pub rules: Arc<moderation::Live>,
}

impl ShardConfig {
    /// Embedded: one region, the process ends on a fatal fault with status 70 (the next start reads the log).
    pub fn embedded(create_on_use: bool) -> ShardConfig {
        let on_fatal: OnFatal = Arc::new(|why| {
            tracing::error!(why, "fatal");
            eprintln!("grandstand: fatal: {why}");
            std::process::exit(70);
        });
        ShardConfig {
            region: "local".into(),
            create_on_use,
            retention_days: 14,
            retention_header_days: 90,
            times: Times::default(),
            on_fatal,
            tallies: Tallies::default(),
            rules: Arc::new(moderation::Live::empty()),
        }
    }
}

/// What the shard stands on.
pub struct Stores {
    pub log: Box<dyn Log>,
    pub catalog: Box<dyn Catalog>,
    pub epoch: Epoch,
    pub durability: &'static str,
}

impl Stores {
    /// Nothing outlives the process.
    pub fn memory() -> Stores {
        Stores {
            log: Box::new(MemoryLog::new()),
            catalog: Box::new(MemoryCatalog::new()),
            epoch: Epoch::new(1).expect("1 is an epoch"),
            durability: "none",
        }
    }

    /// The log and the catalog of a data folder, which stays locked as long as they live.
    pub fn open(dir: &DataDir, durability: Durability, bytes_max: Option<u64>) -> Result<Stores, StartFault> {
        let mut log = SqliteLog::open(dir, durability)?;
        log.limit_bytes(bytes_max)?;
        let epoch = next_epoch(log.head(), clock::wall()).ok_or(StartFault::NoEpoch)?;
        let catalog = SqliteCatalog::open(dir)?;
        let durability = match durability {
            Durability::Fsync => "fsync",
            Durability::Interval(_) => "interval",
            Durability::None => "none",
        };
        Ok(Stores { log: Box::new(log), catalog: Box::new(catalog), epoch, durability })
    }
}

#[derive(Debug, thiserror::Error)]
pub enum StartFault {
    #[error("the log's epochs are used up")]
    NoEpoch,
    #[error("while reading the log: {0}")]
    Read(#[from] Fault),
    #[error(transparent)]
    Recover(#[from] RecoverFault),
    #[error("while writing this epoch's first record: {0}")]
    Write(#[from] WriteFault),
    #[error("while starting a thread: {0}")]
    Thread(#[from] std::io::Error),
}

/// Recovers the log and begins an epoch. On return the epoch's first record is durable and commands are taken.
pub fn start(stores: Stores, config: ShardConfig, workers: Workers) -> Result<(ShardHandle, ShardJoin), StartFault> {
    let Stores { mut log, mut catalog, epoch, durability } = stores;
    let (handle, ends) = ShardHandle::new();
    let facts = Arc::new(Facts::default());
    let (mut owner, recovered) = recover(&config, durability, log.reader()?.as_mut(), catalog.as_mut(), &facts)?;
    let epoch = match recovered.highest > recovered.head {
        // What was lost may have been seen by viewers: its ids are not given again.
        true => epoch.max(next_epoch(recovered.highest, clock::wall()).ok_or(StartFault::NoEpoch)?),
        false => epoch,
    };
    begin(&mut owner, log.as_mut(), epoch, &facts)?;

    let ShardEnds { owner: mail, readers: jobs, likes, status } = ends;
    status.set_durability(durability);
    status.board().write(Arc::new(owner.access().at(clock::wall())));
    status.set_epoch(epoch);
    status.set_head(owner.head());
    status.set_log_bytes(log.size_bytes());

    if let Some((at, link)) = keeper::kept_link(catalog.as_mut())? {
        status.set_chained(at, link);
    }
    let keeper_log = log.reader()?;
    // What a crash cut short goes on: its records stand in the log.
    let erasures = log.erasures()?;
    for erasure in &erasures {
        status.erasing().begin(erasure.id, erasure.user.clone());
    }

    let mut readers = Vec::new();
    for n in 0..READERS {
        let reader = Reader {
            log: Box::new(Veiled { log: log.reader()?, status: status.clone() }),
            facts: facts.clone(),
            status: status.clone(),
            workers: workers.clone(),
            create_on_use: config.create_on_use,
        };
        let jobs = jobs.clone();
        readers.push(spawn(&format!("shard-reader-{n}"), &config.on_fatal, move || reader.run(&jobs))?);
    }

    let (to_writer, work) = mpsc::channel();
    let outcome = Arc::new(writer::Outcome::default());
    let writer = {
        let (outcome, mail, status) = (outcome.clone(), mail.clone(), status.clone());
        spawn("shard-writer", &config.on_fatal, move || drop(writer::run(log, &work, &outcome, &mail, &status)))?
    };
    let (to_keeper, keep_work) = mpsc::channel();
    let keeper = {
        let status = status.clone();
        spawn("shard-keeper", &config.on_fatal, move || {
            keeper::run(catalog, keeper_log, &keep_work, &status);
        })?
    };

    let asker = match config.rules.http() {
        Some(http) => Some(asker::start(http.clone(), mail.clone(), status.moderation().asking().clone())?),
        None => None,
    };
    let task = Task {
        asker,
        owner,
        create_on_use: config.create_on_use,
        retention_days: config.retention_days,
        retention_header_days: config.retention_header_days,
        mail,
        likes,
        tallies: config.tallies,
        rules: config.rules,
        status: status.clone(),
        facts,
        workers,
        writer: to_writer,
        outcome,
        keeper: to_keeper,
        on_fatal: config.on_fatal.clone(),
        times: config.times,
        state: State::default(),
    };
    for erasure in erasures {
        task.writer.send(writer::Work::EraseUser(erasure.id)).expect("the writer was just started");
    }
    let owner = spawn("shard-owner", &config.on_fatal, move || task.run())?;
    status.set_ready(true);
    Ok((handle.clone(), ShardJoin { handle, owner, writer, keeper, readers }))
}

/// The running threads of a shard.
pub struct ShardJoin {
    handle: ShardHandle,
    owner: JoinHandle<()>,
    writer: JoinHandle<()>,
    keeper: JoinHandle<()>,
    readers: Vec<JoinHandle<()>>,
}

impl ShardJoin {
    /// Finishes what was admitted, refuses the rest with `not_ready`, saves a checkpoint and closes the log.
    pub fn stop(self) {
        self.handle.stop_owner();
        // A thread that panicked has ended the process already, or the test's `on_fatal` was told.
        let _ = self.owner.join();
        let _ = self.writer.join();
        let _ = self.keeper.join();
        self.handle.stop_readers();
        for reader in self.readers {
            let _ = reader.join();
        }
    }
}

/// Two: one may wait for the disk while the other answers from memory; more would only take the owner's processor.
const READERS: usize = 2;

/// The owner as the log says it is, and what was found on the way.
fn recover(
    config: &ShardConfig,
    durability: &str,
    log: &mut dyn LogReader,
    catalog: &mut dyn Catalog,
    facts: &Facts,
) -> Result<(Owner, Recovered), StartFault> {
    let settings = Settings {
        region: config.region.clone(),
        create_on_use: config.create_on_use,
        // The standard library's own maps are seeded by the system's chance; nobody outside can learn it.
        seed: RandomState::new().hash_one(0),
        ..Settings::default()
    };
    let mut owner = Owner::new(settings, clock::mono(), clock::wall());
    // A log that is synced at every commit never ends before its checkpoint; one that is not may, after a power cut.
    let behind = if durability == "fsync" { Behind::Refuse } else { Behind::ReadLog };
    let recovered = recover::recover(&mut owner, log, catalog, behind)?;
    if let Some(why) = &recovered.passed_over {
        tracing::warn!(%why, "no checkpoint is used; the whole log is read");
    }
    if recovered.n_holes > 0 || recovered.n_void > 0 {
        tracing::error!(holes = recovered.n_holes, void = recovered.n_void, "the log has records that are not valid");
    }
    facts.advance(owner.head(), owner.epochs(), owner.rooms());
    let Recovered { checkpoint, head, n_keys, n_tail, .. } = recovered;
    tracing::info!(
        checkpoint = checkpoint.value(),
        keys = n_keys,
        tail = n_tail,
        head = head.value(),
        "the log is recovered"
    );
    Ok((owner, recovered))
}

/// Makes the epoch's first record durable.
fn begin(owner: &mut Owner, log: &mut dyn Log, epoch: Epoch, facts: &Facts) -> Result<(), StartFault> {
    owner.start(epoch);
    let (mono, wall) = (clock::mono(), clock::wall());
    let records = owner.seal(mono, wall).expect("an epoch begins with its EpochStart");
    assert!(matches!(records[0].body, Body::EpochStart), "an epoch begins with its EpochStart");
    log.append(&records)?;
    owner.on_committed(mono, wall);
    while owner.poll().is_some() {}
    facts.advance(owner.head(), owner.epochs(), std::iter::empty());
    Ok(())
}

/// A thread whose failed assertion is fatal.
fn spawn(name: &str, on_fatal: &OnFatal, run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    let (on_fatal, who) = (on_fatal.clone(), name.to_owned());
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        // Nothing of the closure is looked at again, so nothing half changed can be seen.
        if catch_unwind(AssertUnwindSafe(run)).is_err() {
            on_fatal(&format!("an assertion failed in {who}; the next start reads the log again"));
        }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::{OnFatal, spawn};

    #[test]
    fn f31_an_assertion_that_fails_in_a_thread_of_the_shard_is_fatal_and_an_end_is_not() {
        let said = Arc::new(Mutex::new(Vec::new()));
        let hear = said.clone();
        let on_fatal: OnFatal = Arc::new(move |why| hear.lock().unwrap().push(why.to_owned()));
        spawn("shard-owner", &on_fatal, || {}).unwrap().join().unwrap();
        assert!(said.lock().unwrap().is_empty());
        spawn("shard-owner", &on_fatal, || panic!("an order that was corrupted")).unwrap().join().unwrap();
        assert_eq!(*said.lock().unwrap(), ["an assertion failed in shard-owner; the next start reads the log again"]);
    }
}
