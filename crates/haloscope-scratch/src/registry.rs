//! The files that there are.
//!
//! The allocator calls it, and what it allocates itself while it is locked comes back to the allocator: everything below [`LEAST`] is
//! the system's, and is never looked for here. That is why the table has a fixed size, and why no smaller array is in a file.

use std::ffi::CString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::mapping::{Mapping, SMALLEST_PAGE};

/// Smaller arrays are never in files.
pub(crate) const LEAST: usize = 1 << 15;

/// The most files at once.
pub(crate) const MOST: usize = 4096;

/// What is known of all files.
pub(crate) struct Registry {
    /// Of the scratch that is open, and how often it was opened.
    pub(crate) open: Option<(PathBuf, CString)>,
    pub(crate) users: usize,
    /// From the oldest to the newest, and how many there are.
    mappings: [Mapping; MOST],
    count: usize,
}

static REGISTRY: Mutex<Registry> =
    Mutex::new(Registry { open: None, users: 0, mappings: [Mapping::NONE; MOST], count: 0 });

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

fn count_bytes(change: isize) {
    let before = BYTES.fetch_add(change as usize, Ordering::Relaxed);
    PEAK.fetch_max(before.wrapping_add(change as usize), Ordering::Relaxed);
}

/// A new file, or null if the disk has no room for it; `None` if there are as many files as there can be, so that memory is what is left.
pub(crate) fn allocate(bytes: usize) -> Option<*mut u8> {
    let mut registry = lock();
    let (folder, path) = registry.open.as_ref()?;
    if registry.count == MOST {
        return None;
    }
    Some(match Mapping::new(path, bytes) {
        Ok(mapping) => {
            let count = registry.count;
            registry.mappings[count] = mapping;
            registry.count += 1;
            drop(registry);
            COUNT.fetch_add(1, Ordering::Relaxed);
            count_bytes(mapping.bytes as isize);
            mapping.start as *mut u8
        }
        Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
            return None;
        }
        Err(error) => refuse(folder, bytes, &error),
    })
}

/// Says why there is no file: the program ends for want of memory, and would not say of which.
fn refuse(folder: &std::path::Path, bytes: usize, error: &io::Error) -> *mut u8 {
    let folder = folder.display();
    // An allocator must not panic, even if nobody reads it.
    let _ = writeln!(
        io::stderr(),
        "error: the scratch folder {folder} has no room for {bytes} bytes: {error}"
    );
    std::ptr::null_mut()
}

/// Whether a file begins there.
pub(crate) fn has(data: *mut u8, bytes: usize) -> bool {
    may_have(data, bytes) && position(&lock(), data).is_some()
}

/// Gives up the file that begins there, if one does.
pub(crate) fn free(data: *mut u8, bytes: usize) -> bool {
    if !may_have(data, bytes) {
        return false;
    }
    let mut registry = lock();
    let Some(index) = position(&registry, data) else { return false };
    let mapping = registry.mappings[index];
    let count = registry.count;
    registry.mappings.copy_within(index + 1..count, index);
    registry.count -= 1;
    drop(registry);
    COUNT.fetch_sub(1, Ordering::Relaxed);
    count_bytes(-(mapping.bytes as isize));
    mapping.free();
    true
}

/// Gives the file that begins there another size, if one does; null if that is impossible.
pub(crate) fn resize(data: *mut u8, before: usize, bytes: usize) -> Option<*mut u8> {
    if !may_have(data, before) {
        return None;
    }
    let mut registry = lock();
    let index = position(&registry, data)?;
    let before = registry.mappings[index];
    let after = match before.resized(bytes) {
        Ok(after) => after,
        Err(error) => {
            let folder = registry.open.as_ref().map(|(folder, _)| folder.as_path());
            return Some(refuse(folder.unwrap_or(std::path::Path::new("")), bytes, &error));
        }
    };
    registry.mappings[index] = after;
    count_bytes(after.bytes as isize - before.bytes as isize);
    Some(after.start as *mut u8)
}

/// The mapping of a place, if there is one.
pub(crate) fn find(place: usize) -> Option<Mapping> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    lock().mappings().iter().find(|mapping| mapping.has(place)).copied()
}

impl Registry {
    pub(crate) fn mappings(&self) -> &[Mapping] {
        &self.mappings[..self.count]
    }

    /// Whether a mapping is still there, as it was.
    fn knows(&self, mapping: &Mapping) -> bool {
        let is_same =
            |other: &&Mapping| (other.serial, other.start) == (mapping.serial, mapping.start);
        self.mappings().iter().find(is_same).is_some_and(|now| now.bytes == mapping.bytes)
    }
}

/// Begins to write back what has changed of some bytes of a mapping.
pub(crate) fn begin_writing(mapping: &Mapping, from: usize, bytes: usize) {
    check(mapping, mapping.begin_writing(from, bytes));
}

/// Writes back what has changed of some bytes of a mapping, and drops their pages. Those that somebody changes meanwhile stay.
pub(crate) fn release(mapping: &Mapping, from: usize, bytes: usize) {
    // Nobody waits for the disk with the lock.
    check(mapping, mapping.write(from, bytes));
    let registry = lock();
    if registry.knows(mapping) {
        // SAFETY: it is there, and cannot be given up before the lock is.
        unsafe { mapping.unmap_pages(from, bytes) };
        mapping.drop_pages(from, bytes);
    }
}

/// Ends the program if a file could not be written: the system may forget such pages, and then the array has other values.
fn check(mapping: &Mapping, outcome: io::Result<()>) {
    let Err(error) = outcome else { return };
    let registry = lock();
    // The number of the file of an array that is gone may be that of another file, or of none.
    if registry.knows(mapping) {
        let folder = registry.open.as_ref().map(|(folder, _)| folder.display().to_string());
        let folder = folder.unwrap_or_default();
        // Even if nobody reads it, the program has to end.
        let _ = writeln!(
            io::stderr(),
            "error: a file in the scratch folder {folder} cannot be written: {error}"
        );
        std::process::abort();
    }
}

/// Mappings are large and begin at a page, where the system's allocator hardly ever gives memory.
fn may_have(data: *mut u8, bytes: usize) -> bool {
    bytes >= LEAST
        && (data as usize).is_multiple_of(SMALLEST_PAGE)
        && COUNT.load(Ordering::Relaxed) > 0
}

fn position(registry: &Registry, data: *mut u8) -> Option<usize> {
    registry.mappings().iter().position(|mapping| mapping.start == data as usize)
}
