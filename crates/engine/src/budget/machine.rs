//! What memory there is: of the machine, or of the container in which the process runs. It decides
//! which numbers of the kernel's count.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// Memory as it is at one moment, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    pub total: u64,
    /// What could be taken without the kernel's having to do without anything of use.
    pub available: u64,
}

impl Memory {
    /// What there is now; `None` where the kernel does not tell.
    pub fn now() -> Option<Self> {
        let machine = of_machine(&read_to_string("/proc/meminfo").ok()?)?;
        let groups = read_to_string("/proc/self/cgroup").unwrap_or_default();
        let folders = folders(&groups, Path::new("/sys/fs/cgroup"));
        Some(folders.iter().filter_map(|folder| of_group(folder)).fold(machine, Memory::scarcer))
    }

    /// What both leave.
    fn scarcer(self, other: Self) -> Self {
        Memory {
            total: self.total.min(other.total),
            available: self.available.min(other.available),
        }
    }
}

/// A number of lines like `MemTotal:  24684 kB` or `inactive_file 4096`.
fn number(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix([' ', ':']))?;
    line.split_whitespace().next()?.parse().ok()
}

fn of_machine(meminfo: &str) -> Option<Memory> {
    let bytes = |name| Some(number(meminfo, name)?.saturating_mul(1024));
    Some(Memory { total: bytes("MemTotal")?, available: bytes("MemAvailable")? })
}

/// Where the groups that bound the memory of a process may be: its own, and those around it. In a
/// container the path may be that of the host, and its own group lies at the root.
fn folders(groups: &str, root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for line in groups.lines() {
        let mut words = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (words.next(), words.next()) else { continue };
        let place = match controllers {
            "" => root.to_path_buf(),
            some if some.split(',').any(|name| name == "memory") => root.join("memory"),
            _ => continue,
        };
        let within = Path::new(path.trim_start_matches('/'));
        found.extend(within.ancestors().map(|part| place.join(part)));
    }
    found
}

/// What a group leaves, if it bounds memory; by either version of the kernel's interface.
fn of_group(folder: &Path) -> Option<Memory> {
    const VERSIONS: [[&str; 3]; 2] = [
        ["memory.max", "memory.current", "inactive_file"],
        ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"],
    ];
    let text = |name: &str| read_to_string(folder.join(name)).ok();
    VERSIONS.iter().find_map(|[limit, used, inactive]| {
        let total: u64 = text(limit)?.trim().parse().ok()?;
        let used: u64 = text(used)?.trim().parse().ok()?;
        // What was read from files and not used lately goes before anything else.
        let cached = text("memory.stat").and_then(|stat| number(&stat, inactive)).unwrap_or(0);
        Some(Memory { total, available: total.saturating_sub(used.saturating_sub(cached)) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells() {
        let now = Memory::now().expect("this is Linux");
        assert!(now.available > 0 && now.available <= now.total, "{now:?}");
    }

    #[test]
    fn groups_bound_what_the_machine_has() {
        let meminfo = "MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:    600 kB\n";
        let machine = of_machine(meminfo).expect("both are there");
        assert_eq!(machine, Memory { total: 1_024_000, available: 614_400 });
        let root = std::env::temp_dir().join(format!("penstock-groups-{}", std::process::id()));
        let (new, old) = (root.join("a/b"), root.join("memory/c"));
        std::fs::create_dir_all(&new).expect("makes");
        std::fs::create_dir_all(&old).expect("makes");
        let put = |path: PathBuf, text: &str| std::fs::write(path, text).expect("writes");
        put(new.join("memory.max"), "max\n");
        put(new.join("memory.current"), "7\n");
        put(root.join("a/memory.max"), "500000\n");
        put(root.join("a/memory.current"), "450000\n");
        put(root.join("a/memory.stat"), "anon 1\ninactive_file_x 9\ninactive_file 50000\n");
        put(old.join("memory.limit_in_bytes"), "9223372036854771712\n");
        put(old.join("memory.usage_in_bytes"), "10\n");
        let found = |groups: &str| -> Vec<Memory> {
            folders(groups, &root).iter().filter_map(|folder| of_group(folder)).collect()
        };
        assert_eq!(found("0::/a/b"), [Memory { total: 500_000, available: 100_000 }]);
        let unbounded = found("4:cpu,memory:/c\n3:cpu:/a");
        assert_eq!(unbounded.len(), 1);
        assert_eq!(unbounded[0].scarcer(machine), machine, "no bound at all");
        put(root.join("memory/memory.limit_in_bytes"), "300000");
        put(root.join("memory/memory.usage_in_bytes"), "400000");
        let outer = found("4:memory:/elsewhere/on/the/host");
        assert_eq!(outer, [Memory { total: 300_000, available: 0 }]);
        std::fs::remove_dir_all(&root).expect("removes");
    }
}
