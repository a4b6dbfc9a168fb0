//! What a comment costs the built-in classifier: `cargo run --release -p grandstand-classifier --example judge_rate`; one line of JSON.

use std::hint::black_box;
use std::time::Duration;

use grandstand_classifier::{Links, Lists, Rules, Words};

/// As many entries as a large community keeps.
const ENTRIES: usize = 5_000;
const CALLS: usize = 200_000;

const PLAIN: &str =
    "a comment of one hundred bytes, as a viewer of a lively room might write it after the first goal, or so";
const DISGUISED: &str = "w0w th1s is s0 cl0se to a g.o.a.l, ｗｈａｔ a n1ght, ñever séen anythïng l1ke 1t";
const SHORT: &str = "GOOOOOAAL!!";

fn main() {
    let block: Vec<String> = (0..ENTRIES).map(|n| format!("{}entry{n}{}", star(n, 3), star(n, 5))).collect();
    let lists = Lists { block: &block.join("\n"), flag: "rude word\n*odd*\n", allow: "oddly\n" };
    let words = Words::read(lists).unwrap_or_else(|(list, fault)| panic!("the {list} list: {fault:?}"));
    let rules = Rules { words, links: Links::Deny(vec!["example.com".into()]), english: true };
    let of = |text: &str, strict: bool| -> f64 {
        let start = on_cpu();
        for _ in 0..CALLS {
            black_box(rules.judge(black_box(text), strict));
        }
        (on_cpu() - start).as_nanos() as f64 / CALLS as f64
    };
    println!(
        "{{\"entries\":{ENTRIES},\"short_ns\":{:.0},\"plain_ns\":{:.0},\"disguised_ns\":{:.0},\"strict_ns\":{:.0}}}",
        of(SHORT, false),
        of(PLAIN, false),
        of(DISGUISED, false),
        of(PLAIN, true),
    );
}

fn star(n: usize, every: usize) -> &'static str {
    if n.is_multiple_of(every) { "*" } else { "" }
}

/// Time this thread has been on a CPU, so that a busy machine does not count. Source: Linux, proc_pid_schedstat(5).
fn on_cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux with schedstat");
    let nanos = stat.split(' ').next().and_then(|n| n.parse().ok()).expect("schedstat starts with nanoseconds");
    Duration::from_nanos(nanos)
}
