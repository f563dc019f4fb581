//! What the system says of this process's memory.

/// Memory that this process holds now, where the system tells.
pub fn resident_bytes() -> Option<u64> {
    kilobytes("VmRSS:")
}

/// The most memory that this process has held, where the system tells.
pub fn peak_bytes() -> Option<u64> {
    kilobytes("VmHWM:")
}

fn kilobytes(field: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}
