//! Visits of arrays in a known order: the next piece is read ahead, and the last one is written back and dropped.
//!
//! Arrays in memory are visited at once, as if there were no pieces.

use std::ops::Range;

/// An array that is visited step by step: elements, rows or planes of it.
#[derive(Clone, Copy, Debug)]
pub struct Visited {
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "there are no files"))]
    start: usize,
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "there are no files"))]
    bytes: usize,
}

impl Visited {
    /// All of an array, whose values are read, written or both.
    #[must_use]
    pub fn of<T>(values: &[T]) -> Self {
        Self { start: values.as_ptr() as usize, bytes: size_of_val(values) }
    }
}

/// Whether arrays may be in files, so that their order matters.
#[must_use]
pub fn is_active() -> bool {
    #[cfg(target_os = "linux")]
    return crate::registry::is_active();
    #[cfg(not(target_os = "linux"))]
    return false;
}

/// The bytes of all arrays of this process that are in files now.
#[must_use]
pub fn bytes_in_files() -> u64 {
    #[cfg(target_os = "linux")]
    return crate::registry::usage().0 as u64;
    #[cfg(not(target_os = "linux"))]
    return 0;
}

/// The bytes of all arrays together that are visited in a piece; `None` if no array is in a file.
#[must_use]
pub fn piece_bytes() -> Option<usize> {
    #[cfg(target_os = "linux")]
    return is_active().then(crate::scratch::piece);
    #[cfg(not(target_os = "linux"))]
    return None;
}

/// Visits so many steps of some arrays, in order, with ranges of steps. Each array is divided evenly into the steps.
#[cfg(target_os = "linux")]
pub fn in_pieces(steps: usize, arrays: &[Visited], mut visit: impl FnMut(Range<usize>)) {
    use crate::mapping::page;
    use crate::registry::{begin_writing, release};

    let Some(most) = piece_bytes().filter(|_| steps > 1) else { return visit(0..steps) };
    let found = |array: &Visited| {
        let mapping = crate::registry::find(array.start).filter(|_| array.bytes > 0)?;
        Some((mapping, array.start - mapping.start, array.bytes))
    };
    let files: Vec<_> = arrays.iter().filter_map(found).collect();
    if files.is_empty() {
        return visit(0..steps);
    }
    let bytes: usize = arrays.iter().map(|array| array.bytes / steps).sum();
    // Pieces that begin at a page of every array, where that is possible, so that no page is visited twice.
    let whole =
        files.iter().map(|file| page() / common_divisor(page(), (file.2 / steps).max(1))).max();
    let whole = whole.filter(|whole| whole * bytes <= most && *whole <= steps).unwrap_or(1);
    let together = (most / bytes.max(1) / whole * whole).max(whole);
    // What is left over by the division belongs to the last step.
    let part = |range: &Range<usize>, all: usize| {
        let begin = range.start * (all / steps);
        let end = if range.end == steps { all } else { range.end * (all / steps) };
        (begin, end - begin)
    };
    // New arrays, too: pages that are missed one by one make the system read what lies around them.
    let fetch = |range: &Range<usize>| {
        for (mapping, begin, all) in files.iter().filter(|_| !range.is_empty()) {
            let (from, bytes) = part(range, *all);
            mapping.fetch(begin + from, bytes);
        }
    };
    fetch(&(0..together.min(steps)));
    let mut before: Option<Range<usize>> = None;
    for first in (0..steps).step_by(together) {
        let range = first..(first + together).min(steps);
        let next = range.end..(range.end + together).min(steps);
        fetch(&next);
        visit(range.clone());
        for (mapping, begin, all) in &files {
            let (from, bytes) = part(&range, *all);
            begin_writing(mapping, begin + from, bytes);
            if let Some(before) = &before {
                let (from, bytes) = part(before, *all);
                release(mapping, begin + from, bytes);
            }
        }
        before = Some(range);
    }
    for (mapping, begin, all) in &files {
        if let Some(before) = &before {
            let (from, bytes) = part(before, *all);
            release(mapping, begin + from, bytes);
        }
    }
}

/// Visits all steps at once: there are no files.
#[cfg(not(target_os = "linux"))]
pub fn in_pieces(steps: usize, _: &[Visited], mut visit: impl FnMut(Range<usize>)) {
    visit(0..steps);
}

/// Asks for an array, or a part of one, that is needed soon, if it is in a file.
pub fn fetch<T>(values: &[T]) {
    #[cfg(target_os = "linux")]
    if let Some(mapping) = crate::registry::find(values.as_ptr() as usize) {
        mapping.fetch(values.as_ptr() as usize - mapping.start, size_of_val(values));
    }
    #[cfg(not(target_os = "linux"))]
    let _ = values;
}

/// Writes back what has changed of an array, or of a part of one, and drops its pages, if it is in a file: nobody needs it soon.
pub fn done<T>(values: &[T]) {
    #[cfg(target_os = "linux")]
    if let Some(mapping) = crate::registry::find(values.as_ptr() as usize) {
        let from = values.as_ptr() as usize - mapping.start;
        crate::registry::release(&mapping, from, size_of_val(values));
    }
    #[cfg(not(target_os = "linux"))]
    let _ = values;
}

#[cfg(target_os = "linux")]
fn common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common_divisor(b, a % b) }
}
