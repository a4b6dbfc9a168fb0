//! What the kernel knows of a process: CPU time, memory, open-file limit.

use std::fs;

use serde::{Deserialize, Serialize};

/// CPU and memory of one process at one moment, or the sum of several.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Microseconds of user and system time since it started.
    pub cpu_us: u64,
    pub rss_kb: u64,
    /// Resident memory that is not a file's: heap and stacks.
    pub rss_anon_kb: u64,
    /// Descriptors and threads.
    pub files: u64,
    pub threads: u64,
}

/// Clock ticks a second as /proc counts them; the same on every Linux a program sees.
const USER_HZ: u64 = 100;

/// The sum over `pids`. Errors: `None` when one of them cannot be read.
pub fn usage(pids: &[u32]) -> Option<Usage> {
    let mut sum = Usage::default();
    for pid in pids {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may hold spaces; the fields after it do not. utime and stime are fields 14 and 15.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
        sum.cpu_us += ticks * (1_000_000 / USER_HZ);
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let number = |name: &str| {
            let line = status.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        sum.rss_kb += number("VmRSS")?;
        sum.rss_anon_kb += number("RssAnon")?;
        sum.threads += number("Threads")?;
        sum.files += fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count() as u64;
    }
    Some(sum)
}

/// Files this process may have open.
pub fn open_files_max() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::usage;

    #[test]
    fn this_process_has_memory_and_an_unknown_one_is_none() {
        let usage_now = usage(&[std::process::id()]).unwrap();
        assert!(usage_now.rss_kb > 0 && usage_now.rss_anon_kb > 0);
        assert!(usage_now.files > 2 && usage_now.threads > 0);
        assert!(usage(&[0]).is_none());
    }
}
