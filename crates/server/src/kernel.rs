//! What the kernel allows this process, held against what it needs: asked once, at start.
//!
//! A limit that is too low shows late and elsewhere: viewers that are turned away on the night that matters. So it is named
//! while somebody watches. Nothing here changes a setting; docs/operate/sizing.md has each with its reason.

use std::fs;
use std::path::Path;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Connections that the listener may have waiting; the kernel cuts it to `net.core.somaxconn` without a word.
pub const BACKLOG: u32 = 4_096;
/// What a socket's unsent bytes may take; the kernel doubles it, and cuts it to `net.core.wmem_max` without a word.
pub const SEND_BUFFER: u32 = 32 * 1024;
/// A socket with less than this unsent is writable.
pub const UNSENT_LOW: u32 = 16 * 1024;
/// The log, its WAL, listeners, pollers, and callers of the API.
pub const DESCRIPTORS_BESIDE: u64 = 512;
/// What is asked for where no `limits.connections_max` says how many streams there may be.
const CONNECTIONS: u64 = 10_000;
/// An idle socket's buffers hold nothing; when one viewer in eight is slow, its 64 KiB are 16 pages, 2 for each of the eight.
const PAGES_PER_CONNECTION: u64 = 2;
/// Packets that come while a busy core puts their handling off: 150 000 a second, the most a machine was seen to send, for 10 ms.
const PACKETS_PUT_OFF: u64 = 1_500;
/// A crowd that comes back has its old connections' entries (2 minutes in TIME_WAIT) beside its new ones.
const TRACKED_PER_CONNECTION: u64 = 2;

/// A limit of the kernel and what this server needs of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limit {
    pub name: &'static str,
    pub has: u64,
    pub needs: u64,
    /// What happens when it stays as it is.
    pub why: &'static str,
}

impl Limit {
    pub fn is_too_low(&self) -> bool {
        self.has < self.needs
    }
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} is {}, {} are needed: {}", self.name, self.has, self.needs, self.why)
    }
}

/// What this process takes of the machine; what the kernel does not tell is 0, and a limit that is none the most there is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Taken {
    /// User and system, since its start.
    pub cpu_micros: u64,
    pub resident_bytes: u64,
    /// Thousandths used of the memory limit that is nearest; 0 where there is none. Known to `memory.rs`.
    pub memory_permille: u64,
    pub descriptors: u64,
    pub descriptors_max: u64,
}

/// Resident memory alone, which is cheap to ask for. `None`: the kernel does not tell.
pub fn resident_bytes() -> Option<u64> {
    // Size, resident and more, in pages (proc(5)).
    let pages = fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse::<u64>().ok()?;
    Some(pages.saturating_mul(rustix::param::page_size() as u64))
}

pub fn taken() -> Taken {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let entries = |entries: fs::ReadDir| entries.count() as u64;
    Taken {
        descriptors: fs::read_dir("/proc/self/fd").map_or(0, entries),
        descriptors_max: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
        ..taken_from(&stat, rustix::param::clock_ticks_per_second(), rustix::param::page_size() as u64)
    }
}

/// CPU time and memory, from the text of `/proc/self/stat`.
fn taken_from(stat: &str, ticks_per_second: u64, page: u64) -> Taken {
    // After the name, which may hold anything: state is field 3, utime and stime are 14 and 15, resident pages 24 (proc(5)).
    let fields: Vec<&str> = stat.rsplit_once(')').map_or_else(Vec::new, |(_, rest)| rest.split_whitespace().collect());
    let field = |n: usize| fields.get(n - 3).and_then(|f| f.parse::<u64>().ok()).unwrap_or(0);
    let ticks = field(14).saturating_add(field(15));
    Taken {
        cpu_micros: ticks.saturating_mul(1_000_000) / ticks_per_second.max(1),
        resident_bytes: field(24).saturating_mul(page),
        ..Taken::default()
    }
}

/// The limits as they are now, of a server whose connections are shared out among `gateways` processes beside the one with the
/// log; `None`: all is one process. What this kernel does not have or tell is left out.
pub fn limits(connections_max: Option<u32>, gateways: Option<u8>) -> Vec<Limit> {
    limits_from(
        connections_max.map_or(CONNECTIONS, u64::from),
        gateways,
        getrlimit(Resource::Nofile).current,
        Path::new("/proc/sys"),
    )
}

/// Takes what the kernel offers of descriptors: the lower, soft limit is there for programs that use `select`.
pub fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    // A refusal leaves the limit as it is, and that is compared and named.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

fn limits_from(connections: u64, gateways: Option<u8>, nofile: Option<u64>, sys: &Path) -> Vec<Limit> {
    let nth =
        |name: &str, n: usize| fs::read_to_string(sys.join(name)).ok()?.split_whitespace().nth(n)?.parse::<u64>().ok();
    let number = |name: &str| nth(name, 0);
    // Each gateway process holds its share of the connections; the one with the log holds none, and has files like the others.
    let (holders, processes) = gateways.map_or((1, 1), |n| (u64::from(n.max(1)), u64::from(n) + 1));
    let descriptors = connections.div_ceil(holders) + DESCRIPTORS_BESIDE;
    // With cookies the listener's own backlog is the limit; without them the kernel drops strangers at three quarters of this.
    let syn_backlog = match number("net/ipv4/tcp_syncookies") {
        Some(0) => (u64::from(BACKLOG) * 4).div_ceil(3),
        _ => 0,
    };
    [
        // None is unlimited.
        (
            "LimitNOFILE",
            Some(nofile.unwrap_or(u64::MAX)),
            descriptors,
            "each viewer of a process is one descriptor, who is over it is refused",
        ),
        (
            "fs.file-max",
            number("fs/file-max"),
            connections + DESCRIPTORS_BESIDE * processes,
            "descriptors of the whole machine",
        ),
        (
            "net.core.somaxconn",
            number("net/core/somaxconn"),
            BACKLOG.into(),
            "a crowd that comes back at once is refused by the kernel beyond it",
        ),
        (
            "net.ipv4.tcp_max_syn_backlog",
            number("net/ipv4/tcp_max_syn_backlog"),
            syn_backlog,
            "tcp_syncookies is 0, so a crowd that comes back at once is dropped from three quarters of it",
        ),
        (
            "net.core.wmem_max",
            number("net/core/wmem_max"),
            SEND_BUFFER.into(),
            "the send buffer a viewer is given is cut to it, and slow viewers are skipped earlier",
        ),
        (
            "net.core.netdev_max_backlog",
            number("net/core/netdev_max_backlog"),
            connections.min(PACKETS_PUT_OFF),
            "packets of a busy core beyond it are dropped and sent again",
        ),
        (
            "net.ipv4.tcp_mem (max, pages)",
            // min, pressure, max: tcp(7).
            nth("net/ipv4/tcp_mem", 2),
            connections * PAGES_PER_CONNECTION,
            "sockets stall when all buffers together reach it",
        ),
        (
            "net.netfilter.nf_conntrack_max",
            number("net/netfilter/nf_conntrack_max"),
            connections * TRACKED_PER_CONNECTION,
            "a firewall that tracks connections drops new ones beyond it",
        ),
    ]
    .into_iter()
    .filter_map(|(name, has, needs, why)| Some(Limit { name, has: has?, needs, why }))
    .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Limit, Taken, limits, limits_from, taken, taken_from};

    #[test]
    fn what_a_process_takes_is_read_behind_whatever_its_name_holds() {
        let rest = "S 1 1 1 0 -1 4194560 5 0 0 0 250 50 0 0 20 0 9 0 100 1000000 321 18446744073709551615";
        let read = taken_from(&format!("7 (a) (b) 1 2) {rest}"), 100, 4_096);
        assert_eq!((read.cpu_micros, read.resident_bytes), (3_000_000, 321 * 4_096));
        assert_eq!(taken_from("", 100, 4_096), Taken::default());
        let own = taken();
        let resident = super::resident_bytes().unwrap();
        assert!(resident > own.resident_bytes / 2 && resident < own.resident_bytes * 2, "{resident}");
        assert!(
            own.resident_bytes > 1 << 20 && own.descriptors > 2 && own.descriptors_max > own.descriptors,
            "{own:?}"
        );
    }

    #[test]
    fn what_is_too_low_is_named_and_what_cannot_be_read_is_left_out() {
        let sys = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let path = sys.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("net/core/somaxconn", "128\n");
        put("net/core/wmem_max", "212992\n");
        put("net/ipv4/tcp_mem", "18\t25\t19999\n");
        let all = limits_from(10_000, None, Some(1_024), sys.path());
        let low = |all: &[Limit]| all.iter().filter(|l| l.is_too_low()).map(|l| l.name).collect::<Vec<_>>();
        assert_eq!(all.len(), 4);
        assert_eq!(low(&all), ["LimitNOFILE", "net.core.somaxconn", "net.ipv4.tcp_mem (max, pages)"]);
        assert!(all[0].to_string().starts_with("LimitNOFILE is 1024, 10512 are needed: "), "{}", all[0]);
        put("net/core/somaxconn", "4096\n");
        put("net/ipv4/tcp_mem", "18\t25\t20000\n");
        assert_eq!(low(&limits_from(10_000, None, Some(10_512), sys.path())), [""; 0]);
        put("net/core/netdev_max_backlog", "1000\n");
        put("net/netfilter/nf_conntrack_max", "19999\n");
        let both = ["net.core.netdev_max_backlog", "net.netfilter.nf_conntrack_max"];
        assert_eq!(low(&limits_from(10_000, None, Some(10_512), sys.path())), both);
        assert_eq!(low(&limits_from(1_000, None, Some(10_512), sys.path())), [""; 0], "few viewers need little");
        put("net/ipv4/tcp_max_syn_backlog", "4096\n");
        put("net/ipv4/tcp_syncookies", "1\n");
        assert_eq!(low(&limits_from(1_000, None, Some(10_512), sys.path())), [""; 0], "cookies stand in for the queue");
        put("net/ipv4/tcp_syncookies", "0\n");
        let all = limits_from(1_000, None, Some(10_512), sys.path());
        assert_eq!(low(&all), ["net.ipv4.tcp_max_syn_backlog"]);
        assert_eq!(all.iter().find(|l| l.is_too_low()).unwrap().needs, 5_462);
        assert!(!limits_from(1 << 40, None, None, sys.path())[0].is_too_low(), "no limit at all is enough");
    }

    #[test]
    fn several_processes_need_descriptors_for_their_share_and_the_machine_for_all_of_them() {
        let sys = tempfile::tempdir().unwrap();
        fs::create_dir(sys.path().join("fs")).unwrap();
        fs::write(sys.path().join("fs/file-max"), "1\n").unwrap();
        let needs =
            |gateways| limits_from(10_000, gateways, Some(1), sys.path()).iter().map(|l| l.needs).collect::<Vec<_>>();
        assert_eq!(needs(None), [10_512, 10_512]);
        assert_eq!(needs(Some(1)), [10_512, 11_024]);
        assert_eq!(needs(Some(4)), [3_012, 12_560]);
        assert_eq!(needs(Some(3)), [3_334 + 512, 12_048], "the larger share");
    }

    #[test]
    fn this_machine_tells_its_limits() {
        assert!(limits(Some(1), None).iter().any(|l| l.name == "LimitNOFILE" && l.has > 0));
    }
}
