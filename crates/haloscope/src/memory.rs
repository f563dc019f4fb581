//! The memory of this process, where the system reports it.

/// The bytes that this process holds now.
#[must_use]
pub fn resident_bytes() -> Option<u64> {
    status("VmRSS:")
}

/// The most bytes that this process has held.
#[must_use]
pub fn peak_resident_bytes() -> Option<u64> {
    status("VmHWM:")
}

/// A field of Linux's description of the process, which is in kilobytes.
fn status(field: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_at_least_what_is_held_and_grows_with_it() {
        let before = peak_resident_bytes().expect("on Linux");
        let held = vec![1_u8; 64 << 20];
        assert!(resident_bytes().expect("on Linux") >= held.len() as u64);
        assert!(peak_resident_bytes().expect("on Linux") >= before.max(held.len() as u64));
    }
}
