//! Measures how long an owner takes to come back from a large log with its checkpoint near the end.
//!
//! `cargo run --release -p grandstand-store --example recover_rate [-- DIR [BYTES [MINUTES [TAIL]]]]`: a log of BYTES (1 GB) that was
//! written in MINUTES of log time (60), with TAIL records (50 000, the most between two checkpoints) behind the checkpoint. A log that
//! is there is used again.

use std::time::{Duration, Instant};

use grandstand_core::ids::Position;
use grandstand_core::owner::{Owner, Settings};
use grandstand_core::time::{Mono, Wall};
use grandstand_store::catalog::Catalog;
use grandstand_store::conformance::Pen;
use grandstand_store::log::{Log, PAGE_ROWS_MAX};
use grandstand_store::memory::MemoryCatalog;
use grandstand_store::recover::{Behind, encode, recover};
use grandstand_store::sqlite::{DataDir, Durability, SqliteCatalog, SqliteLog};
use rustix::time::{ClockId, clock_gettime};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().unwrap_or_else(|| "target/recover-rate".into());
    let bytes: u64 = args.next().map_or(Ok(1 << 30), |a| a.parse())?;
    let minutes: u64 = args.next().map_or(Ok(60), |a| a.parse())?;
    let tail: usize = args.next().map_or(Ok(50_000), |a| a.parse())?;
    let dir = DataDir::open(path.as_ref())?;
    if SqliteLog::open(&dir, Durability::None)?.head() == Position::START {
        write(&dir, bytes, minutes, tail)?;
    }

    let (begun, cpu) = (Instant::now(), cpu_time());
    let log = SqliteLog::open(&dir, Durability::Fsync)?;
    let mut catalog = SqliteCatalog::open(&dir)?;
    let mut owner = new_owner();
    let recovered = recover(&mut owner, &mut *log.reader()?, &mut catalog, Behind::Refuse)?;
    let (took, cpu) = (begun.elapsed(), cpu_time() - cpu);
    println!("{} bytes of log recovered in {took:.2?}, {cpu:.2?} of CPU: {recovered:?}", log.size_bytes());

    let begun = Instant::now();
    let mut owner = new_owner();
    let recovered = recover(&mut owner, &mut *log.reader()?, &mut MemoryCatalog::new(), Behind::Refuse)?;
    println!("without a checkpoint in {:.2?}: {} records", begun.elapsed(), recovered.n_tail);
    Ok(())
}

/// Of all threads: what the time would be, at most, on a machine that does nothing else.
fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn new_owner() -> Owner {
    Owner::new(Settings { create_on_use: true, ..Settings::default() }, Mono(0), Wall(0))
}

fn write(dir: &DataDir, bytes: u64, minutes: u64, tail: usize) -> Result<(), Box<dyn std::error::Error>> {
    let mut log = SqliteLog::open(dir, Durability::None)?;
    let rooms: Vec<String> = (0..20).map(|n| format!("room-{n}")).collect();
    let rooms: Vec<&str> = rooms.iter().map(String::as_str).collect();
    let (mut pen, begun) = (Pen::new(1), Wall(Pen::new(1).ts));
    let first = pen.rooms(&rooms);
    let mut n_records = first.len();
    log.append(&first)?;
    while log.size_bytes() < bytes {
        // Log time passes in step with the bytes; the pen's own milliseconds come on top.
        let due = begun + Duration::from_secs(minutes * 60).mul_f64(log.size_bytes() as f64 / bytes as f64);
        pen.ts = pen.ts.max(due.0);
        let batch = pen.batch(&rooms, 2_000);
        n_records += batch.len();
        log.append(&batch)?;
    }
    let mut owner = new_owner();
    let (mut reader, mut at, mut n_read) = (log.reader()?, Position::START, 0);
    'checkpoint: loop {
        for record in reader.scan(at, PAGE_ROWS_MAX)? {
            if n_read + tail >= n_records {
                break 'checkpoint;
            }
            at = record.event_id().position();
            owner.replay(&record);
            n_read += 1;
        }
    }
    let (state, rooms) = owner.take_checkpoint();
    SqliteCatalog::open(dir)?.save_checkpoint(&encode(&state, &rooms))?;
    println!("{n_records} records written, checkpoint after {n_read}");
    Ok(())
}
