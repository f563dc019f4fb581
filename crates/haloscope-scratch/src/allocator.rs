//! Which allocations are files: those of many bytes that ask for no alignment, while a scratch is open.
//!
//! Buffers of engines and kernels ask for cache lines or huge pages, and stay in memory; so do those that are made within
//! [`in_memory`]. Large arrays in memory ask for huge pages.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Whether this thread wants no files now.
    static IN_MEMORY: Cell<bool> = const { Cell::new(false) };
}

/// What `make` makes, of which this thread's allocations stay in memory: for buffers that are used at once and again, and that the
/// system would write to a file in vain.
///
/// ```
/// let buffer = haloscope_scratch::in_memory(|| vec![0.0_f32; 1024]);
/// assert_eq!(buffer.len(), 1024);
/// ```
pub fn in_memory<T>(make: impl FnOnce() -> T) -> T {
    let before = IN_MEMORY.replace(true);
    let made = make();
    IN_MEMORY.set(before);
    made
}

/// The system's allocator with huge pages for large arrays, and files for them while a [`Scratch`](crate::Scratch) is open.
///
/// Memory that was taken from a file is given back to it, whether the scratch is still open or not.
#[derive(Clone, Copy, Debug, Default)]
pub struct Allocator;

/// The largest alignment of arrays of numbers.
#[cfg(target_os = "linux")]
const PLAIN: usize = 16;

#[cfg(target_os = "linux")]
mod files {
    use super::PLAIN;
    use crate::registry;
    use std::alloc::Layout;

    /// Whether an allocation is to be a file.
    pub(super) fn takes(layout: Layout) -> bool {
        layout.size() >= registry::threshold()
            && layout.align() <= PLAIN
            // A thread that ends wants nothing.
            && !super::IN_MEMORY.try_with(std::cell::Cell::get).unwrap_or(false)
    }
}

#[cfg(target_os = "linux")]
mod pages {
    /// From this size on, glibc usually maps memory for an allocation alone, and gives it back at the end: all of its pages are new.
    const LARGE: usize = 32 << 20;
    /// The smallest page there is.
    const PAGE: usize = 4 << 10;

    /// Asks for huge pages, of which new ones take hundreds of times fewer faults, and no more memory once the array is filled. The system
    /// is free to ignore it.
    ///
    /// The range has all pages of the array, so that memory that was mapped for it alone stays one mapping, which can grow where it is.
    pub(super) fn advise(data: *mut u8, bytes: usize) {
        if bytes < LARGE || data.is_null() {
            return;
        }
        let before = data.addr() % PAGE;
        let length = (before + bytes).next_multiple_of(PAGE);
        // SAFETY: these pages hold the array, and an advice changes none of their values.
        unsafe { libc::madvise(data.wrapping_sub(before).cast(), length, libc::MADV_HUGEPAGE) };
    }
}

// SAFETY: every pointer is of the system's allocator or of a mapping, and goes back to where it is from.
#[cfg(target_os = "linux")]
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if files::takes(layout)
            && let Some(data) = crate::registry::allocate(layout.size())
        {
            return data;
        }
        // SAFETY: as the caller promises.
        let data = unsafe { System.alloc(layout) };
        pages::advise(data, layout.size());
        data
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // A file begins with zeros.
        if files::takes(layout)
            && let Some(data) = crate::registry::allocate(layout.size())
        {
            return data;
        }
        // SAFETY: as the caller promises.
        let data = unsafe { System.alloc_zeroed(layout) };
        pages::advise(data, layout.size());
        data
    }

    unsafe fn dealloc(&self, data: *mut u8, layout: Layout) {
        if !crate::registry::free(data, layout.size()) {
            // SAFETY: no mapping begins there, so it is the system's.
            unsafe { System.dealloc(data, layout) }
        }
    }

    unsafe fn realloc(&self, data: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let next = Layout::from_size_align(size, layout.align());
        let is_large = next.as_ref().is_ok_and(|next| files::takes(*next));
        if !is_large && !crate::registry::has(data, layout.size()) {
            // SAFETY: the pointer is the system's, and stays there.
            let data = unsafe { System.realloc(data, layout, size) };
            pages::advise(data, size);
            return data;
        }
        if is_large && let Some(moved) = crate::registry::resize(data, layout.size(), size) {
            return moved;
        }
        // From memory to a file, or back.
        let Ok(next) = next else { return std::ptr::null_mut() };
        // SAFETY: the size is not zero, as the caller promises.
        let to = unsafe { self.alloc(next) };
        if !to.is_null() {
            // SAFETY: both have at least so many bytes, and they are different allocations.
            unsafe { std::ptr::copy_nonoverlapping(data, to, layout.size().min(size)) };
            // SAFETY: it was allocated with this layout.
            unsafe { self.dealloc(data, layout) };
        }
        to
    }
}

// SAFETY: it is the system's allocator.
#[cfg(not(target_os = "linux"))]
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, data: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(data, layout) }
    }

    unsafe fn realloc(&self, data: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as the caller promises.
        unsafe { System.realloc(data, layout, size) }
    }
}
