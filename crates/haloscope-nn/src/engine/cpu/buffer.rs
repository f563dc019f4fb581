//! Aligned memory for activations, weights and scratch.
//!
//! Memory is not cleared on allocation: transformed weights are hundreds of megabytes, and the
//! first touch of each page should happen in the threads that fill it.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// One cache line; also a multiple of every vector register's size.
const LINE: usize = 64;
/// The size of a huge page where there are such.
const HUGE_PAGE: usize = 2 << 20;

/// A fixed number of `f32` that start at a cache line, or at a huge page when there are many.
pub(crate) struct AlignedBuffer {
    data: NonNull<f32>,
    len: usize,
}

// SAFETY: the buffer owns its memory as a `Vec<f32>` does.
unsafe impl Send for AlignedBuffer {}
// SAFETY: shared references only read; writers synchronise as the engine's steps describe.
unsafe impl Sync for AlignedBuffer {}

impl AlignedBuffer {
    /// A buffer whose contents are arbitrary until they are written.
    pub(crate) fn uninitialised(len: usize) -> Self {
        if len == 0 {
            return Self { data: NonNull::dangling(), len };
        }
        let layout = Self::layout(len);
        // SAFETY: the layout's size is not zero.
        let data = unsafe { alloc(layout) };
        #[expect(clippy::cast_ptr_alignment, reason = "the layout is aligned to a line at least")]
        let data = data.cast::<f32>();
        let Some(data) = NonNull::new(data) else { handle_alloc_error(layout) };
        advise_huge_pages(data.as_ptr(), layout);
        Self { data, len }
    }

    /// A buffer of zeros.
    pub(crate) fn zeroed(len: usize) -> Self {
        let buffer = Self::uninitialised(len);
        // SAFETY: the buffer holds `len` floats, for which all bits zero is 0.0.
        unsafe { buffer.data.as_ptr().write_bytes(0, len) };
        buffer
    }

    pub(crate) fn bytes(&self) -> usize {
        self.len * size_of::<f32>()
    }

    pub(crate) fn as_ptr(&self) -> *mut f32 {
        self.data.as_ptr()
    }

    fn layout(len: usize) -> Layout {
        let bytes = len * size_of::<f32>();
        let alignment = if bytes >= 2 * HUGE_PAGE { HUGE_PAGE } else { LINE };
        Layout::from_size_align(bytes, alignment).expect("plans check the sizes of their buffers")
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: allocated with the same layout in `uninitialised`.
            unsafe { dealloc(self.data.as_ptr().cast(), Self::layout(self.len)) };
        }
    }
}

/// Fewer page faults while weights are transformed; the kernel is free to ignore it.
fn advise_huge_pages(data: *mut f32, layout: Layout) {
    #[cfg(target_os = "linux")]
    if layout.align() == HUGE_PAGE {
        // SAFETY: the range was just allocated and starts at a page.
        unsafe { libc::madvise(data.cast(), layout.size(), libc::MADV_HUGEPAGE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (data, layout);
}

/// Gives memory back to the system that was freed and that the allocator keeps for later: weights
/// are freed one by one between others that stay, which leaves glibc's heap full of holes.
pub(crate) fn return_free_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it only touches what belongs to nobody.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_start_at_a_cache_line() {
        for len in [1, 7, 1000, 3 << 20] {
            assert_eq!(AlignedBuffer::zeroed(len).as_ptr() as usize % LINE, 0);
        }
    }

    #[test]
    fn an_empty_buffer_allocates_nothing() {
        assert_eq!(AlignedBuffer::uninitialised(0).bytes(), 0);
    }
}
