//! The thread that keeps a process below its limit, whoever visits its arrays: it writes back and drops pages of the oldest first.
//!
//! Temporary arrays of an operator are new, and stay. Dropping a page changes nothing but time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::mapping::page;
use crate::registry;

/// How often it looks.
const PAUSE: Duration = Duration::from_millis(10);

/// The bytes that are dropped between two looks.
const STEP: usize = 8 << 20;

/// Watches until `alive` is gone.
pub(crate) fn start(limit: u64, alive: &Arc<AtomicBool>) -> std::io::Result<()> {
    let alive: Weak<AtomicBool> = Arc::downgrade(alive);
    let watch = move || {
        let mut seen = vec![0; STEP / page()];
        while alive.upgrade().is_some_and(|alive| alive.load(Ordering::Relaxed)) {
            if resident().is_some_and(|bytes| bytes > limit / 100 * 90) {
                reduce(limit / 100 * 80, &mut seen);
            }
            std::thread::sleep(PAUSE);
        }
    };
    std::thread::Builder::new().name("scratch".into()).spawn(watch).map(drop)
}

/// Drops pages until the process has at most so many bytes in memory, or there are none left.
fn reduce(target: u64, seen: &mut [u8]) {
    let mut index = 0;
    let mut from = 0;
    loop {
        let Some(mapping) = registry::lock().mappings().get(index).copied() else { return };
        if from >= mapping.bytes {
            (index, from) = (index + 1, 0);
            continue;
        }
        let bytes = STEP.min(mapping.bytes - from);
        if mapping.is_resident(from, bytes, seen) {
            registry::release(&mapping, from, bytes);
            if resident().is_none_or(|bytes| bytes <= target) {
                return;
            }
        }
        from += bytes;
    }
}

/// The bytes of this process that are in memory, files and all.
fn resident() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * page() as u64)
}
