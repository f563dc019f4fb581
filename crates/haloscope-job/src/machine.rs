//! What the machine has: cores, memory, instruction sets.

use std::path::Path;

use serde::Serialize;

/// What a job can use of this machine.
#[derive(Debug, Serialize)]
pub struct Machine {
    /// Cores that this process may use.
    pub cores: usize,
    /// The processor's name, where the system tells.
    pub processor: Option<String>,
    /// Bytes of memory that this process may use: the machine's, or its container's limit.
    pub memory_bytes: Option<u64>,
    /// Bytes that are free now, there and in the container.
    pub memory_available_bytes: Option<u64>,
    /// Bytes of address space that this process may still take, if it has a limit (`ulimit -v`).
    pub address_space_left_bytes: Option<u64>,
    /// Instruction sets that matter here, as found at run time.
    pub instruction_sets: Vec<&'static str>,
}

impl Machine {
    /// Looks at the machine.
    pub fn detect() -> Self {
        let (limit, left) = control_groups();
        let free = kilobytes("/proc/meminfo", "MemAvailable:");
        let total = kilobytes("/proc/meminfo", "MemTotal:");
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            processor: processor(),
            memory_bytes: [total, limit].into_iter().flatten().min(),
            memory_available_bytes: [free, left].into_iter().flatten().min(),
            address_space_left_bytes: address_space_left(),
            instruction_sets: instruction_sets(),
        }
    }

    /// The threads of each of so many ranks that share the cores.
    #[must_use]
    pub fn threads_per_rank(&self, ranks: usize) -> usize {
        (self.cores / ranks.max(1)).max(1)
    }
}

/// The soft limit of the process without what it has taken; `None` if it has none.
pub(crate) fn address_space_left() -> Option<u64> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let limit = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    let limit: u64 = limit.split_whitespace().next()?.parse().ok()?;
    Some(limit.saturating_sub(kilobytes("/proc/self/status", "VmSize:")?))
}

/// The memory that the control groups of this process (version 2) may have, and what is left of it: the least of its own group and of
/// those around it. What a group keeps of files can be given up, and does not count as used.
fn control_groups() -> (Option<u64>, Option<u64>) {
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    // In a container its own group is the root of all that it sees.
    let folders = Path::new(own).ancestors().map(|group| Path::new("/sys/fs/cgroup").join(group));
    let limits = folders.filter_map(|folder| group_limit(&folder));
    limits.fold((None, None), |(limit, left), (next, rest)| {
        let least =
            |known: Option<u64>, next: u64| Some(known.map_or(next, |known| known.min(next)));
        (least(limit, next), least(left, rest))
    })
}

/// The limit of a control group, if it has one, and what is left of it.
fn group_limit(folder: &Path) -> Option<(u64, u64)> {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
    let limit: u64 = read("memory.max")?.trim().parse().ok()?;
    let used: u64 = read("memory.current")?.trim().parse().ok()?;
    let files = |text: String| {
        let line =
            text.lines().find_map(|line| line.strip_prefix("inactive_file ").map(str::to_owned));
        line?.trim().parse::<u64>().ok()
    };
    let files = read("memory.stat").and_then(files).unwrap_or(0);
    Some((limit, limit.saturating_sub(used.saturating_sub(files))))
}

/// A field of a file of the system that is in kilobytes, in bytes.
fn kilobytes(path: &str, field: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().into())
}

#[cfg(target_arch = "x86_64")]
fn instruction_sets() -> Vec<&'static str> {
    let found = [
        ("sse4.2", is_x86_feature_detected!("sse4.2")),
        ("avx", is_x86_feature_detected!("avx")),
        ("avx2", is_x86_feature_detected!("avx2")),
        ("fma", is_x86_feature_detected!("fma")),
        ("f16c", is_x86_feature_detected!("f16c")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
    ];
    found.into_iter().filter_map(|(name, is_there)| is_there.then_some(name)).collect()
}

#[cfg(target_arch = "aarch64")]
fn instruction_sets() -> Vec<&'static str> {
    if std::arch::is_aarch64_feature_detected!("neon") { vec!["neon"] } else { Vec::new() }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn instruction_sets() -> Vec<&'static str> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_group_leaves_what_its_files_can_give_up() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).expect("written");
        };
        assert_eq!(group_limit(folder.path()), None);
        write("memory.max", "max\n");
        write("memory.current", "700\n");
        assert_eq!(group_limit(folder.path()), None);
        write("memory.max", "1000\n");
        assert_eq!(group_limit(folder.path()), Some((1000, 300)));
        write("memory.stat", "anon 100\ninactive_file 500\n");
        assert_eq!(group_limit(folder.path()), Some((1000, 800)));
    }
}
