//! How near a process is to the end of its memory, and what it does about it (the rule is `grandstand_core::pressure`).
//!
//! Two things can be near their end: the process itself, held against `limits.memory_bytes`, and each control group around it
//! that has a limit, with everything else in it. A group's page cache and reclaimable slabs are not counted: the kernel takes
//! them back before it ends anybody, and the log keeps them full. What sockets hold in the kernel is counted there.
//!
//! Looked at once a second by whichever worker is first, or by the keeper of the links in a process without workers.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use grandstand_core::pressure::{Level, Pressure, Use};
use grandstand_core::time::Mono;

use crate::kernel;
use crate::metrics::Metrics;

const TICK: Duration = Duration::from_secs(1);
/// Version 1 says "no limit" by a number near 2^63, rounded down to pages.
const NO_LIMIT: u64 = 1 << 62;

/// A control group with its files, by version.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Group {
    folder: PathBuf,
    names: &'static Names,
}

#[derive(PartialEq, Eq, Debug)]
struct Names {
    used: &'static str,
    limit: &'static str,
    /// What the kernel takes back, in `memory.stat`: page cache on its two lists, and slabs where they are told.
    cache: &'static [&'static str],
}

const V1: Names = Names {
    used: "memory.usage_in_bytes",
    limit: "memory.limit_in_bytes",
    cache: &["total_inactive_file", "total_active_file"],
};
const V2: Names =
    Names { used: "memory.current", limit: "memory.max", cache: &["inactive_file", "active_file", "slab_reclaimable"] };

impl Group {
    /// `None`: it has no limit, or does not tell.
    fn used(&self) -> Option<Use> {
        let read = |name: &str| fs::read_to_string(self.folder.join(name)).ok();
        let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
        let limit = number(self.names.limit).filter(|limit| *limit < NO_LIMIT)?;
        let stat = read("memory.stat").unwrap_or_default();
        let cache: u64 = stat
            .lines()
            .filter_map(|line| line.split_once(' '))
            .filter(|(name, _)| self.names.cache.contains(name))
            .filter_map(|(_, n)| n.parse::<u64>().ok())
            .sum();
        Some(Use { bytes: number(self.names.used)?.saturating_sub(cache), limit })
    }
}

/// The groups around this process, the innermost first. `root` is `/`, but in tests.
fn groups(root: &Path) -> Vec<Group> {
    let told = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mut found = Vec::new();
    for line in told.lines() {
        // Source: cgroups(7): number, controllers, path; version 2 has number 0 and no controllers.
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else { continue };
        let (bases, names): (&[&str], _) = match controllers {
            "" => (&["sys/fs/cgroup", "sys/fs/cgroup/unified"], &V2),
            list if list.split(',').any(|controller| controller == "memory") => (&["sys/fs/cgroup/memory"], &V1),
            _ => continue,
        };
        for base in bases {
            let base = root.join(base);
            // Where the path is another namespace's, only the base is there: the container's own group.
            let path = Path::new(path.trim_start_matches('/'));
            let folders = path.ancestors().map(|ancestor| base.join(ancestor));
            let groups = folders.map(|folder| Group { folder, names });
            found.extend(groups.filter(|group| group.folder.join(names.limit).exists()));
        }
    }
    found
}

#[derive(Default)]
struct State {
    pressure: Pressure,
    looked: Option<Mono>,
}

/// The memory of this process and of what is around it.
pub struct Memory {
    /// Of the process's resident memory.
    limit: Option<u64>,
    groups: Vec<Group>,
    state: Mutex<State>,
    /// Copies for a look without the lock.
    level: AtomicU8,
    permille: AtomicU64,
}

impl Default for Memory {
    /// Nothing is limited.
    fn default() -> Memory {
        Memory::of(None, Vec::new())
    }
}

impl Memory {
    /// `limit`: of each process's resident memory, beside what the control groups allow.
    pub fn new(limit: Option<u64>) -> Memory {
        Memory::of(limit, groups(Path::new("/")))
    }

    fn of(limit: Option<u64>, groups: Vec<Group>) -> Memory {
        Memory { limit, groups, state: Mutex::default(), level: AtomicU8::new(0), permille: AtomicU64::new(0) }
    }

    /// Looks, when a second has passed since the last look. `Some`: the level is another one.
    pub fn look(&self, now: Mono, metrics: &Metrics) -> Option<Level> {
        if self.limit.is_none() && self.groups.is_empty() {
            return None;
        }
        // Another worker looks: nobody waits here for what the kernel is slow to tell.
        let Ok(mut state) = self.state.try_lock() else { return None };
        if state.looked.is_some_and(|at| now.since(at) < TICK) {
            return None;
        }
        state.looked = Some(now);
        let own = self.limit.and_then(|limit| Some(Use { bytes: kernel::resident_bytes()?, limit }));
        let used: Vec<Use> = self.groups.iter().filter_map(Group::used).chain(own).collect();
        let was = state.pressure.level();
        let level = state.pressure.look(&used, now);
        let nearest = used.iter().max_by_key(|used| used.permille());
        self.permille.store(nearest.map_or(0, |used| used.permille()), Ordering::Relaxed);
        self.level.store(level as u8, Ordering::Release);
        metrics.memory_short[0].store(i64::from(level >= Level::Sheds), Ordering::Relaxed);
        metrics.memory_short[1].store(i64::from(level >= Level::Refuses), Ordering::Relaxed);
        if level == was {
            return None;
        }
        if let Some(Use { bytes, limit }) = nearest {
            let (used_mb, limit_mb) = (bytes >> 20, limit >> 20);
            match level {
                Level::Calm => tracing::info!(used_mb, limit_mb, "there is memory again"),
                Level::Sheds => tracing::warn!(used_mb, limit_mb, "memory is short: comments are given up"),
                Level::Refuses => {
                    tracing::error!(used_mb, limit_mb, "memory is nearly gone: new streams and comments are refused");
                }
            }
        }
        Some(level)
    }

    /// Comments are given up for want of memory.
    pub fn sheds(&self) -> bool {
        self.level.load(Ordering::Acquire) >= Level::Sheds as u8
    }

    /// New streams and comments are refused for want of it.
    pub fn refuses(&self) -> bool {
        self.level.load(Ordering::Acquire) >= Level::Refuses as u8
    }

    /// Thousandths used of the limit that is nearest; 0 where there is none.
    pub fn permille(&self) -> u64 {
        self.permille.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use grandstand_core::pressure::{Level, Use};
    use grandstand_core::time::Mono;

    use super::{Memory, groups};
    use crate::metrics::Metrics;

    fn put(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn a_group_of_version_2_is_held_against_its_limit_without_its_page_cache() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "proc/self/cgroup", "0::/system.slice/grandstand.service\n");
        let inner = "sys/fs/cgroup/system.slice/grandstand.service";
        put(root.path(), &format!("{inner}/memory.max"), "1000000\n");
        put(root.path(), &format!("{inner}/memory.current"), "900000\n");
        put(
            root.path(),
            &format!("{inner}/memory.stat"),
            "anon 1\ninactive_file 200000\nactive_file 100000\nslab_reclaimable 100000\nsock 5\n",
        );
        put(root.path(), "sys/fs/cgroup/system.slice/memory.max", "max\n");
        put(root.path(), "sys/fs/cgroup/system.slice/memory.current", "5000000\n");
        let found = groups(root.path());
        assert_eq!(found.len(), 2);
        let used: Vec<_> = found.iter().filter_map(|group| group.used()).collect();
        assert_eq!(used, [Use { bytes: 500_000, limit: 1_000_000 }]);
    }

    #[test]
    fn a_group_of_version_1_is_read_in_a_container_that_sees_another_path() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "proc/self/cgroup", "7:cpu,cpuacct:/\n4:memory:/docker/0123\n0::/\n");
        put(root.path(), "sys/fs/cgroup/memory/memory.limit_in_bytes", "800\n");
        put(root.path(), "sys/fs/cgroup/memory/memory.usage_in_bytes", "700\n");
        put(root.path(), "sys/fs/cgroup/memory/memory.stat", "cache 9\ninactive_file 7\ntotal_inactive_file 60\n");
        let found = groups(root.path());
        assert_eq!(found.iter().filter_map(|group| group.used()).collect::<Vec<_>>(), [Use { bytes: 640, limit: 800 }]);
        put(root.path(), "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(found.iter().filter_map(|group| group.used()).count(), 0, "no limit");
    }

    #[test]
    fn what_a_group_says_is_looked_at_once_a_second_and_shown() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "proc/self/cgroup", "0::/\n");
        put(root.path(), "sys/fs/cgroup/memory.max", "1000");
        put(root.path(), "sys/fs/cgroup/memory.current", "850");
        let (memory, metrics) = (Memory::of(None, groups(root.path())), Metrics::new());
        let at = |millis: u64| Mono(millis * 1_000);
        assert_eq!(memory.look(at(1_000), &metrics), Some(Level::Sheds));
        assert!(memory.sheds() && !memory.refuses() && memory.permille() == 850);
        put(root.path(), "sys/fs/cgroup/memory.current", "950");
        assert_eq!(memory.look(at(1_999), &metrics), None);
        assert_eq!(memory.look(at(2_000), &metrics), Some(Level::Refuses));
        let shown = || metrics.memory_short.each_ref().map(|n| n.load(std::sync::atomic::Ordering::Relaxed));
        assert_eq!((memory.refuses(), shown()), (true, [1, 1]));
        fs::remove_file(root.path().join("sys/fs/cgroup/memory.current")).unwrap();
        assert_eq!(memory.look(at(9_000), &metrics), None, "what cannot be read is no sign of calm");
        assert!(memory.refuses());
    }

    #[test]
    fn a_process_above_its_own_limit_refuses_and_one_without_limits_never_looks() {
        let metrics = Metrics::new();
        let memory = Memory::of(Some(1 << 20), Vec::new());
        assert_eq!(memory.look(Mono(1), &metrics), Some(Level::Refuses), "this process is larger than a megabyte");
        assert_eq!(Memory::default().look(Mono(1), &metrics), None);
    }
}
