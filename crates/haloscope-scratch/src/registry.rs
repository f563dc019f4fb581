//! The files that there are. It is called by the allocator, so it allocates nothing that is large.

use std::ffi::CString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::mapping::{Mapping, PAGE};

/// What is known of all files.
pub(crate) struct Registry {
    /// Of the scratch that is open, and how often it was opened.
    pub(crate) open: Option<(PathBuf, CString)>,
    pub(crate) users: usize,
    /// From the oldest to the newest.
    mappings: Vec<Mapping>,
}

static REGISTRY: Mutex<Registry> =
    Mutex::new(Registry { open: None, users: 0, mappings: Vec::new() });

/// Allocations of so many bytes are files.
static THRESHOLD: AtomicUsize = AtomicUsize::new(usize::MAX);
/// How many files there are.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Their bytes, and the most that there were since the scratch was opened.
static BYTES: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

pub(crate) fn lock() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn threshold() -> usize {
    THRESHOLD.load(Ordering::Relaxed)
}

pub(crate) fn set_threshold(bytes: usize) {
    THRESHOLD.store(bytes, Ordering::Relaxed);
}

/// Whether there are files, or arrays become some.
pub(crate) fn is_active() -> bool {
    threshold() != usize::MAX || COUNT.load(Ordering::Relaxed) > 0
}

/// The bytes of all files, and the most that there were.
pub(crate) fn usage() -> (usize, usize) {
    (BYTES.load(Ordering::Relaxed), PEAK.load(Ordering::Relaxed))
}

pub(crate) fn reset_peak() {
    PEAK.store(BYTES.load(Ordering::Relaxed), Ordering::Relaxed);
}

fn count(change: isize) {
    let before = BYTES.fetch_add(change as usize, Ordering::Relaxed);
    PEAK.fetch_max(before.wrapping_add(change as usize), Ordering::Relaxed);
}

/// A new file; null if the disk has no room for it.
pub(crate) fn allocate(bytes: usize) -> *mut u8 {
    let mut registry = lock();
    let Some((_, folder)) = &registry.open else { return std::ptr::null_mut() };
    match Mapping::new(folder, bytes) {
        Ok(mapping) => {
            registry.mappings.push(mapping);
            COUNT.fetch_add(1, Ordering::Relaxed);
            count(mapping.bytes as isize);
            mapping.start as *mut u8
        }
        Err(error) => {
            // The program ends for want of memory, and would not say of which.
            let folder = folder.to_string_lossy();
            eprintln!("error: the scratch folder {folder} has no room for {bytes} bytes: {error}");
            std::ptr::null_mut()
        }
    }
}

/// Whether a file begins there.
pub(crate) fn has(data: *mut u8) -> bool {
    may_have(data) && position(&lock(), data).is_some()
}

/// Gives up the file that begins there, if one does.
pub(crate) fn free(data: *mut u8) -> bool {
    if !may_have(data) {
        return false;
    }
    let mut registry = lock();
    let Some(index) = position(&registry, data) else { return false };
    let mapping = registry.mappings.remove(index);
    drop(registry);
    COUNT.fetch_sub(1, Ordering::Relaxed);
    count(-(mapping.bytes as isize));
    mapping.free();
    true
}

/// Gives the file that begins there another size, if one does; null if that is impossible.
pub(crate) fn resize(data: *mut u8, bytes: usize) -> Option<*mut u8> {
    if !may_have(data) {
        return None;
    }
    let mut registry = lock();
    let index = position(&registry, data)?;
    let before = registry.mappings[index];
    let Ok(after) = before.resized(bytes) else { return Some(std::ptr::null_mut()) };
    registry.mappings[index] = after;
    count(after.bytes as isize - before.bytes as isize);
    Some(after.start as *mut u8)
}

/// The mapping of a place, if there is one.
pub(crate) fn find(place: usize) -> Option<Mapping> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    lock().mappings.iter().find(|mapping| mapping.has(place)).copied()
}

impl Registry {
    pub(crate) fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }
}

/// Mappings begin at a page, where the system's allocator hardly ever gives memory.
fn may_have(data: *mut u8) -> bool {
    (data as usize).is_multiple_of(PAGE) && COUNT.load(Ordering::Relaxed) > 0
}

fn position(registry: &Registry, data: *mut u8) -> Option<usize> {
    registry.mappings.iter().position(|mapping| mapping.start == data as usize)
}
