//! The system's allocator, which counts what a test asks it for. One test to a process, or they count each other's.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static LARGEST: AtomicUsize = AtomicUsize::new(0);

/// The bytes that are allocated now.
pub(crate) fn live() -> usize {
    LIVE.load(Ordering::SeqCst)
}

/// The most bytes that were allocated at once since the last [`forget`].
pub(crate) fn peak() -> usize {
    PEAK.load(Ordering::SeqCst)
}

/// The bytes of the largest request since the last [`forget`].
pub(crate) fn largest() -> usize {
    LARGEST.load(Ordering::SeqCst)
}

/// Begins anew.
pub(crate) fn forget() {
    PEAK.store(live(), Ordering::SeqCst);
    LARGEST.store(0, Ordering::SeqCst);
}

fn count(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Ordering::SeqCst) + bytes;
    PEAK.fetch_max(live, Ordering::SeqCst);
    LARGEST.fetch_max(bytes, Ordering::SeqCst);
}

// SAFETY: all calls are the system's, with the arguments as they came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promises are the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promises are the system's.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::SeqCst);
        // SAFETY: the caller's promises are the system's.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both exist while one is copied to the other.
        count(size);
        LIVE.fetch_sub(layout.size(), Ordering::SeqCst);
        // SAFETY: the caller's promises are the system's.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
