//! What the owner's door costs, without any store: time of one publish by what becomes of it, and memory of a million users that are
//! known. `cargo run --release -p grandstand-core --example admission_rate [USERS]`; one line of JSON.

use std::sync::Arc;
use std::time::Duration;

use grandstand_core::hash::Seeded;
use grandstand_core::ids::Epoch;
use grandstand_core::names::{ClientMsgId, RoomId, UserId};
use grandstand_core::owner::answer::{Answer, Output};
use grandstand_core::owner::command::{Author, Command, Publish, Standing};
use grandstand_core::owner::{Owner, Settings};
use grandstand_core::refusals::{ADDRESS, Rates, Refusals};
use grandstand_core::reject::{Code, Reject};
use grandstand_core::rooms::{Asks, RoomChange};
use grandstand_core::time::{Mono, Wall};

const WALL: u64 = 1_781_000_000_000;
/// A batch of a busy owner.
const BATCH: usize = 512;
const ROUNDS: usize = 400;

fn main() {
    let users: usize =
        std::env::args().nth(1).map_or(1_000_000, |n| n.parse().expect("how many users are to be known"));
    let mut door = Door::new();
    let room = room();
    let mut accepted = door.owner(RoomChange { rate: Some(100_000), user_rate: Some(1_000), ..RoomChange::default() });
    let accepted_ns =
        door.time(&mut accepted, |n| publish(&room, n % 20_000, n), |a| matches!(a, Answer::Published { .. }));
    // All that a room may ask: that nothing is said twice is looked up among what the user said in the last ten minutes.
    let asks = Asks { unique_comment: Some(true), members_only: Some(Some("sub".into())), ..Asks::default() };
    let change = RoomChange { rate: Some(100_000), user_rate: Some(1_000), ..asks.into() };
    let mut asking = door.owner(change);
    let asked_ns = door.time(&mut asking, |n| publish(&room, n % 20_000, n), |a| matches!(a, Answer::Published { .. }));
    // Of one user a burst is let in; the rest is refused by its rate.
    let mut limited = door.owner(RoomChange { user_rate: Some(1), user_burst: Some(1), ..RoomChange::default() });
    let refused_ns = door.time(&mut limited, |n| publish(&room, 0, n), |a| is(a, Code::UserRate));
    let mut known = door.owner(RoomChange { rate: Some(100_000), user_rate: Some(1_000), ..RoomChange::default() });
    door.say(&mut known, BATCH, |n| publish(&room, n, n));
    let repeated_ns = door.time(
        &mut known,
        |n| publish(&room, n % BATCH, n % BATCH),
        |a| matches!(a, Answer::Published { duplicate: true, .. }),
    );
    drop((accepted, asking, limited, known));

    let before = resident();
    let mut crowd = door.owner(RoomChange { rate: Some(100_000), ..RoomChange::default() });
    let mut said = 0;
    while said < users {
        let n = BATCH.min(users - said);
        door.say(&mut crowd, n, |i| publish(&room, said + i, said + i));
        said += n;
    }
    let bytes = resident().saturating_sub(before);
    drop(crowd);
    println!(
        "{{\"accepted_ns\":{accepted_ns:.0},\"asked_ns\":{asked_ns:.0},\"refused_ns\":{refused_ns:.0},\
         \"repeated_ns\":{repeated_ns:.0},\"door_refused_ns\":{:.0},\"users\":{users},\"mib\":{:.1},\
         \"bytes_per_user\":{:.0}}}",
        at_a_gateway(),
        bytes as f64 / f64::from(1 << 20),
        bytes as f64 / users.max(1) as f64,
    );
}

/// Between two batches: what a room may take at its highest rate is never reached.
const EVERY: Duration = Duration::from_millis(10);

/// The clocks that owners are told.
struct Door {
    now: Mono,
    wall: Wall,
}

impl Door {
    fn new() -> Door {
        Door { now: Mono(1_000_000), wall: Wall(WALL) }
    }

    fn owner(&self, change: RoomChange) -> Owner {
        let mut owner = Owner::new(Settings { seed: 7, ..Settings::default() }, self.now, self.wall);
        owner.start(Epoch::new(1).expect("an epoch"));
        let put = Command::PutRoom { room: room(), change: change.into(), if_version: None };
        owner.submit(0, put, self.now, self.wall);
        self.commit(&mut owner);
        while owner.poll().is_some() {}
        owner
    }

    fn commit(&self, owner: &mut Owner) {
        if owner.seal(self.now, self.wall).is_some() {
            owner.on_committed(self.now, self.wall);
        }
    }

    /// So many publishes, in one batch.
    fn say(&mut self, owner: &mut Owner, n: usize, mut of: impl FnMut(usize) -> Command) {
        for i in 0..n {
            owner.submit(i as u64, of(i), self.now, self.wall);
        }
        self.commit(owner);
        while owner.poll().is_some() {}
        self.pass();
    }

    fn pass(&mut self) {
        (self.now, self.wall) = (self.now + EVERY, self.wall + EVERY);
    }

    /// Nanoseconds on the CPU of one publish from the door to its answer. Panics: when most are not answered as they should be.
    fn time(&mut self, owner: &mut Owner, of: impl Fn(usize) -> Command, wanted: impl Fn(&Answer) -> bool) -> f64 {
        let (mut spent, mut good, mut made) = (Duration::ZERO, 0, 0);
        for _ in 0..ROUNDS {
            let commands: Vec<Command> = (made..made + BATCH).map(&of).collect();
            made += BATCH;
            let (mut answers, start) = (Vec::with_capacity(BATCH), on_cpu());
            for (i, command) in commands.into_iter().enumerate() {
                owner.submit(i as u64, command, self.now, self.wall);
            }
            self.commit(owner);
            while let Some(output) = owner.poll() {
                if let Output::Answer { answer, .. } = output {
                    answers.push(answer);
                }
            }
            spent += on_cpu() - start;
            self.pass();
            good += answers.iter().filter(|answer| wanted(answer)).count();
        }
        assert!(good * 10 >= made * 9, "{good} of {made} publishes were answered as they were to be");
        spent.as_nanos() as f64 / made as f64
    }
}

/// A publish that a gateway refuses by itself: by the owner's last word on its user, and by its address.
fn at_a_gateway() -> f64 {
    let (mut refusals, mut rates) = (Refusals::new(Seeded(7)), Rates::new(Seeded(7), ADDRESS));
    let (room, user, now) = (room(), user(1), Mono(1_000_000));
    refusals.note(&room, &user, &Reject::after(Code::UserRate, "too many comments", Duration::from_secs(2)), now);
    let (mut refused, n) = (0_u64, 1_000_000_u64);
    let start = on_cpu();
    for address in 0..n {
        let told = refusals.may_ask(&room, &user, now);
        refused += u64::from(told.is_err() || rates.take(address % 64, now).is_err());
    }
    let spent = on_cpu() - start;
    assert!(refused * 10 >= n * 9, "a flood is refused");
    spent.as_nanos() as f64 / n as f64
}

fn is(answer: &Answer, code: Code) -> bool {
    matches!(answer, Answer::Reject(reject) if reject.code == code)
}

fn room() -> RoomId {
    RoomId::parse("room").expect("a room id")
}

fn user(n: usize) -> UserId {
    UserId::parse(&format!("user-{n}")).expect("a user id")
}

fn publish(room: &RoomId, by: usize, key: usize) -> Command {
    let badges: Arc<[Arc<str>]> = [Arc::from("sub")].into();
    let author = Author { user: user(by), display: "somebody".into(), badges, standing: Standing::Viewer };
    Command::Publish(Publish {
        room: room.clone(),
        author,
        client_msg_id: ClientMsgId::parse(&format!("key-{key}")).expect("a key"),
        text: format!("what a goal, did you see that from the other side: {key}").into(),
        reply_to: None,
    })
}

/// Bytes of this process that are in memory. Source: Linux, proc_pid_statm(5); pages of 4 KiB.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux with statm");
    let pages: u64 = statm.split(' ').nth(1).and_then(|n| n.parse().ok()).expect("statm has the resident pages second");
    pages * 4_096
}

/// Time this thread has been on a CPU, so that a busy machine does not count. Source: Linux, proc_pid_schedstat(5).
fn on_cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux with schedstat");
    let nanos = stat.split(' ').next().and_then(|n| n.parse().ok()).expect("schedstat starts with nanoseconds");
    Duration::from_nanos(nanos)
}
