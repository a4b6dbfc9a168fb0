//! Measures durable appends: batches of comments to a fresh SQLite log, each synced before the next.
//!
//! `cargo run --release -p grandstand-store --example append_rate [-- DIR [RECORDS [BATCH [ROOMS]]]]`

use std::time::{Duration, Instant};

use grandstand_store::conformance::Pen;
use grandstand_store::log::Log;
use grandstand_store::sqlite::{DataDir, Durability, SqliteLog};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().unwrap_or_else(|| "target/append-rate".into());
    let n_records: usize = args.next().map_or(Ok(600_000), |a| a.parse())?;
    let batch: usize = args.next().map_or(Ok(200), |a| a.parse())?;
    let n_rooms: usize = args.next().map_or(Ok(1), |a| a.parse())?;
    match std::fs::remove_dir_all(&path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e.into()),
        _ => {}
    }
    let dir = DataDir::open(path.as_ref())?;
    let mut log = SqliteLog::open(&dir, Durability::Fsync)?;
    let rooms: Vec<String> = (0..n_rooms).map(|n| format!("room-{n}")).collect();
    let rooms: Vec<&str> = rooms.iter().map(String::as_str).collect();
    let mut pen = Pen::new(1);
    let mut took: Vec<Duration> = Vec::new();
    while took.len() * batch < n_records {
        // Making the records is the owner's work and not counted.
        let records = pen.batch(&rooms, batch);
        let begun = Instant::now();
        log.append(&records)?;
        took.push(begun.elapsed());
    }
    let total: Duration = took.iter().sum();
    took.sort();
    let part = |share: f64| took[((took.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    let n = took.len() * batch;
    println!("{n} records in batches of {batch} over {n_rooms} rooms: {:.0} records/s", n as f64 / total.as_secs_f64());
    println!(
        "a batch: p50 {:.2} ms, p90 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms, worst {:.2} ms",
        part(0.5),
        part(0.9),
        part(0.99),
        part(0.999),
        part(1.0)
    );
    println!("{} bytes, {} a record", log.size_bytes(), log.size_bytes() / n as u64);
    Ok(())
}
