//! How many durable publishes a second the owner and the writer carry, with nothing else in the way.
//!
//! `cargo run --release -p grandstand-server --example shard_rate -- [SECONDS] [PUBLISHERS] [ROOMS] [fsync|interval|none|memory]`
//! Each publisher sends its next comment when the last is acked. Prints acks a second, ack latency and records a commit.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use grandstand_core::names::{ClientMsgId, RoomId, UserId};
use grandstand_core::owner::answer::Answer;
use grandstand_core::owner::command::{Author, Command, Publish, Standing};
use grandstand_server::link::{ConnKey, Mailbox, ReplyTo, ToWorker, WorkerId, Workers};
use grandstand_server::shard::{self, ShardConfig, Stores};
use grandstand_store::sqlite::{DataDir, Durability};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |n: usize, default: u64| args.get(n).map_or(default, |a| a.parse().expect("a number"));
    let (seconds, n_publishers, n_rooms) = (number(0, 5), number(1, 200) as u32, number(2, 10));
    let durability = args.get(3).map_or("fsync", String::as_str);

    let dir = tempfile::tempdir_in(".").expect("the working folder is writable");
    let stores = match durability {
        "memory" => Stores::memory(),
        name => {
            let durability = match name {
                "fsync" => Durability::Fsync,
                "interval" => Durability::Interval(Duration::from_millis(100)),
                "none" => Durability::None,
                _ => panic!("fsync, interval, none or memory"),
            };
            let dir = DataDir::open(dir.path()).expect("a fresh folder opens");
            Stores::open(&dir, durability, None).expect("a fresh folder opens")
        }
    };
    let workers = Workers::new(1);
    let (wake, woken) = mpsc::sync_channel::<()>(1);
    let mailbox = Arc::new(Mailbox::new(65_536, move || {
        let _ = wake.try_send(());
    }));
    workers.set(WorkerId(0), mailbox.clone());
    let (handle, join) = shard::start(stores, ShardConfig::embedded(true), workers).expect("a fresh log starts");

    let rooms: Vec<RoomId> = (0..n_rooms).map(|n| RoomId::parse(&format!("rate-{n}")).expect("a room id")).collect();
    let authors: Vec<Author> = (0..n_publishers)
        .map(|n| Author {
            user: UserId::parse(&format!("user-{n}")).expect("a user id"),
            display: format!("User {n}").into(),
            badges: Arc::new([]),
            standing: Standing::Backend,
        })
        .collect();
    let text: Arc<str> = "what a save, nobody saw that coming in the last minute".into();
    let mut sent_at = vec![Instant::now(); n_publishers as usize];
    let mut next = vec![0u64; n_publishers as usize];
    let mut send = |slot: u32, sent_at: &mut Vec<Instant>| {
        let i = slot as usize;
        next[i] += 1;
        sent_at[i] = Instant::now();
        let command = Command::Publish(Publish {
            room: rooms[i % rooms.len()].clone(),
            author: authors[i].clone(),
            client_msg_id: ClientMsgId::parse(&format!("{slot}-{}", next[i])).expect("a key"),
            text: text.clone(),
            reply_to: None,
        });
        let conn = ConnKey { worker: WorkerId(0), slot, generation: 0 };
        handle.command(ReplyTo::Conn { conn, request: next[i] }, command).expect("the lane has room");
    };
    let start = Instant::now();
    (0..n_publishers).for_each(|slot| send(slot, &mut sent_at));
    let mut micros: Vec<u32> = Vec::new();
    let mut n_refused = 0u64;
    while start.elapsed() < Duration::from_secs(seconds) {
        let _ = woken.recv_timeout(Duration::from_millis(100));
        for item in mailbox.take() {
            let ToWorker::Answer { conn, answer, .. } = item else { continue };
            match answer {
                Answer::Published { .. } => micros.push(sent_at[conn.slot as usize].elapsed().as_micros() as u32),
                other => {
                    n_refused += 1;
                    assert!(n_refused < 1_000, "refused: {other:?}");
                }
            }
            send(conn.slot, &mut sent_at);
        }
    }
    let elapsed = start.elapsed();
    let (commits, records, took) = handle.status().commits();
    micros.sort_unstable();
    let at = |share: f64| f64::from(micros[((micros.len() - 1) as f64 * share) as usize]) / 1_000.0;
    println!(
        "{durability}: {:.0} acks/s from {n_publishers} publishers over {:.1} s ({n_refused} refused)",
        micros.len() as f64 / elapsed.as_secs_f64(),
        elapsed.as_secs_f64()
    );
    println!("ack latency ms: p50 {:.2}  p99 {:.2}  p99.9 {:.2}  max {:.2}", at(0.5), at(0.99), at(0.999), at(1.0));
    println!(
        "commits: {commits}, {:.0} records each, {:.2} ms each, the writer busy {:.0} %",
        records as f64 / commits as f64,
        took.as_secs_f64() * 1_000.0 / commits as f64,
        100.0 * took.as_secs_f64() / elapsed.as_secs_f64()
    );
    join.stop();
}
