//! How many publishes a second one core decides, without any store: `cargo run --release -p grandstand-core --example owner_rate`.

use std::time::Duration;

use grandstand_core::ids::Epoch;
use grandstand_core::names::{ClientMsgId, RoomId, UserId};
use grandstand_core::owner::answer::{Answer, Output};
use grandstand_core::owner::command::{Author, Command, Publish, Standing};
use grandstand_core::owner::{Owner, Settings};
use grandstand_core::rooms::RoomChange;
use grandstand_core::time::{Mono, Wall};

const USERS: usize = 20_000;
const ROOMS: usize = 100;
const BATCH: usize = 512;
const PUBLISHES: usize = 2_000_000;

fn main() {
    let rooms: Vec<RoomId> = (0..ROOMS).map(|n| RoomId::parse(&format!("room-{n}")).expect("a room id")).collect();
    let users: Vec<UserId> = (0..USERS).map(|n| UserId::parse(&format!("user-{n}")).expect("a user id")).collect();
    let mut owner = Owner::new(Settings { seed: 7, ..Settings::default() }, Mono(0), Wall(0));
    owner.start(Epoch::new(1).expect("an epoch"));
    for room in &rooms {
        let change = RoomChange { rate: Some(100_000), user_rate: Some(1_000), ..RoomChange::default() };
        owner.submit(
            0,
            Command::PutRoom { room: room.clone(), change: change.into(), if_version: None },
            Mono(0),
            Wall(0),
        );
    }
    let display = "somebody".into();
    let badges = [].into();
    let (mut done, mut refused) = (0usize, 0usize);
    let mut spent = Duration::ZERO;
    let mut made = 0;
    while made < PUBLISHES {
        // 400 000 a second of log time.
        let (now, wall) = (Mono(made as u64 * 5 / 2), Wall(made as u64 / 400));
        let commands: Vec<Command> = (made..made + BATCH)
            .map(|n| {
                let author = Author {
                    user: users[n * 7 % USERS].clone(),
                    display: std::sync::Arc::clone(&display),
                    badges: std::sync::Arc::clone(&badges),
                    standing: Standing::Viewer,
                };
                Command::Publish(Publish {
                    room: rooms[n * 13 % ROOMS].clone(),
                    author,
                    client_msg_id: ClientMsgId::parse(&format!("key-{n}")).expect("a key"),
                    text: "what a goal, did you see that from the other side".into(),
                    reply_to: None,
                })
            })
            .collect();
        let start = on_cpu();
        for (i, command) in commands.into_iter().enumerate() {
            owner.submit((made + i) as u64, command, now, wall);
        }
        if owner.seal(now, wall).is_some() {
            owner.on_committed(now, wall);
        }
        while let Some(output) = owner.poll() {
            match output {
                Output::Answer { answer: Answer::Published { .. }, .. } => done += 1,
                Output::Answer { answer: Answer::Reject(_), .. } => refused += 1,
                Output::Answer { .. } | Output::Committed(_) | Output::Fate { .. } | Output::Decided { .. } => {}
                Output::NeedVerdict { .. } | Output::LikesSettled { .. } => {}
            }
        }
        spent += on_cpu() - start;
        made += BATCH;
    }
    let per_second = made as f64 / spent.as_secs_f64();
    println!("{made} publishes, {done} in the log, {refused} refused: {per_second:.0}/s on one core");
}

/// Time this thread has been on a CPU, so that a busy machine does not count. Source: Linux, proc_pid_schedstat(5).
fn on_cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux with schedstat");
    let nanos = stat.split(' ').next().and_then(|n| n.parse().ok()).expect("schedstat starts with nanoseconds");
    Duration::from_nanos(nanos)
}
