//! A log at the process's file-size limit refuses, keeps what it has, and goes on when the limit is raised.
//!
//! The limit belongs to a process, and a test may not lower its own: this one runs itself again under a shell that ignores
//! SIGXFSZ (as the server does) and sets the limit.

use std::process::Command;
use std::sync::Arc;

use grandstand_core::ids::Position;
use grandstand_store::conformance::Pen;
use grandstand_store::fault::{Refusal, WriteFault};
use grandstand_store::log::{Log, PAGE_ROWS_MAX};
use grandstand_store::sqlite::{DataDir, Durability, SqliteLog};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const CHILD: &str = "GRANDSTAND_TEST_FULL_DISK";

#[test]
fn a_file_size_limit_is_refused_as_no_space_and_heals() {
    if std::env::var_os(CHILD).is_some() {
        return at_the_limit();
    }
    // 4 096 blocks of 512 bytes: 2 MiB, below the size at which the WAL is emptied of itself.
    let script = "trap '' XFSZ; ulimit -S -f 4096; exec \"$0\" --exact a_file_size_limit_is_refused_as_no_space_and_heals --nocapture";
    let child =
        Command::new("sh").args(["-c", script]).arg(std::env::current_exe().unwrap()).env(CHILD, "1").output().unwrap();
    let told = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{told}{}", String::from_utf8_lossy(&child.stderr));
    assert!(told.contains("refused as it should"), "the limit was met: {told}");
}

fn at_the_limit() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = DataDir::open(tmp.path()).unwrap();
    let mut log = SqliteLog::open(&dir, Durability::Fsync).unwrap();
    let (mut pen, mut all, mut n_refused) = (Pen::new(1), Vec::new(), 0);
    while n_refused < 5 {
        assert!(all.len() < 100_000, "2 MiB hold fewer");
        let kept = pen.clone();
        let batch = pen.batch(&["a", "b", "c"], 100);
        match log.append(&batch) {
            Ok(()) => all.extend(batch),
            Err(WriteFault::Refused(Refusal::NoSpace)) => (pen, n_refused) = (kept, n_refused + 1),
            Err(other) => panic!("a full disk refuses, and nothing else: {other}"),
        }
        log.idle().unwrap();
    }
    assert!(all.len() > 1_000, "the limit was met after {} records", all.len());
    assert_eq!(read_all(&log), all, "what was acknowledged is still read");
    let full = getrlimit(Resource::Fsize);
    setrlimit(Resource::Fsize, Rlimit { current: full.maximum, maximum: full.maximum }).unwrap();
    for _ in 0..20 {
        let batch = pen.batch(&["a", "b", "c"], 100);
        log.append(&batch).unwrap();
        all.extend(batch);
    }
    drop(log);
    let log = SqliteLog::open(&dir, Durability::Fsync).unwrap();
    assert_eq!(read_all(&log), all, "no hole and no loss after the limit was raised");
    println!("refused as it should");
}

fn read_all(log: &SqliteLog) -> Vec<Arc<grandstand_core::record::Record>> {
    let (mut reader, mut all, mut after) = (log.reader().unwrap(), Vec::new(), Position::START);
    loop {
        let page = reader.scan(after, PAGE_ROWS_MAX).unwrap();
        let Some(last) = page.last() else { return all };
        after = last.event_id().position();
        all.extend(page);
    }
}
