//! Parts of an array: boxes of positions along its spatial axes, and copies between them.
//!
//! A part of the array itself has ranges of `usize`. What an operator reads may go on beyond an end at which the array
//! begins again: such a window has ranges of `isize`, whose positions count modulo the side, none of them longer than it.

use std::ops::Range;

/// The window that is just this part.
pub(crate) fn window(part: &[Range<usize>]) -> Vec<Range<isize>> {
    part.iter().map(|range| range.start as isize..range.end as isize).collect()
}

/// All of an array.
pub(crate) fn whole(sides: &[usize]) -> Vec<Range<isize>> {
    sides.iter().map(|&side| 0..side as isize).collect()
}

/// The number of positions in a window.
pub(crate) fn positions(window: &[Range<isize>]) -> usize {
    window.iter().map(Range::len).product()
}

/// A window with no positions.
pub(crate) fn nothing(axes: usize) -> Vec<Range<isize>> {
    vec![0..0; axes]
}

/// The window from the first to the last position of both, or the whole side where it would be longer than that.
pub(crate) fn around(
    a: Vec<Range<isize>>,
    b: Vec<Range<isize>>,
    sides: &[usize],
) -> Vec<Range<isize>> {
    if positions(&a) == 0 {
        return b;
    }
    if positions(&b) == 0 {
        return a;
    }
    let ranges = a.iter().zip(&b).map(|(a, b)| a.start.min(b.start)..a.end.max(b.end));
    ranges.zip(sides).map(|(range, &side)| at_most_a_side(range, side)).collect()
}

/// The range, or the whole side if it is longer than that.
pub(crate) fn at_most_a_side(range: Range<isize>, side: usize) -> Range<isize> {
    if range.len() < side { range } else { 0..side as isize }
}

/// A part of an array and the place that it takes in a window.
pub(crate) type PlacedPart = (Vec<Range<usize>>, Vec<Range<isize>>);

/// The parts of an array that make up a window of it, each with the place that it takes in the window.
pub(crate) fn parts(window: &[Range<isize>], sides: &[usize]) -> Vec<PlacedPart> {
    let mut parts = vec![(Vec::new(), Vec::new())];
    for (range, &side) in window.iter().zip(sides) {
        let pieces = pieces(range, side);
        parts = parts
            .into_iter()
            .flat_map(|part| pieces.iter().map(move |piece| (part.clone(), piece.clone())))
            .map(|((mut part, mut place), (range, at))| {
                part.push(range);
                place.push(at);
                (part, place)
            })
            .collect();
    }
    parts
}

/// The ranges of a side that make up a range which may go on beyond its ends, each with its place.
pub(crate) fn pieces(range: &Range<isize>, side: usize) -> Vec<(Range<usize>, Range<isize>)> {
    let side = side as isize;
    let mut pieces = Vec::new();
    let mut start = range.start;
    while start < range.end {
        let first = start.rem_euclid(side);
        let len = (side - first).min(range.end - start);
        pieces.push((first as usize..(first + len) as usize, start..start + len));
        start += len;
    }
    pieces
}

/// Where a sample of a side is in a window of it.
pub(crate) fn place(sample: usize, window: &Range<isize>, side: usize) -> usize {
    (sample as isize - window.start).rem_euclid(side as isize) as usize
}

/// Copies what both windows hold, for each of `planes` (images and channels) of an array with these sides; positions that
/// only one of them has stay as they are.
pub(crate) fn copy(
    planes: usize,
    sides: &[usize],
    (from_window, from): (&[Range<isize>], &[f32]),
    (to_window, to): (&[Range<isize>], &mut [f32]),
) {
    let mut axes = vec![Copies::all(planes)];
    for ((from, to), &side) in from_window.iter().zip(to_window).zip(sides) {
        axes.push(Copies { runs: runs(from, to, side), from: from.len(), to: to.len() });
    }
    copy_axes(&axes, from, to);
}

/// What is copied along one axis, between axes of these lengths.
pub(crate) struct Copies {
    pub runs: Vec<Run>,
    pub from: usize,
    pub to: usize,
}

impl Copies {
    /// From an axis to one like it.
    pub(crate) fn all(len: usize) -> Self {
        Self { runs: vec![Run { from: 0, to: 0, len }], from: len, to: len }
    }
}

/// Neighbours that are neighbours in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub from: usize,
    pub to: usize,
    pub len: usize,
}

impl Run {
    /// Lengthens the last run by a pair of places, or begins another one with it.
    pub(crate) fn push(runs: &mut Vec<Self>, from: usize, to: usize) {
        match runs.last_mut() {
            Some(run) if run.from + run.len == from && run.to + run.len == to => run.len += 1,
            _ => runs.push(Self { from, to, len: 1 }),
        }
    }
}

/// The positions of `to` that `from` holds as well.
fn runs(from: &Range<isize>, to: &Range<isize>, side: usize) -> Vec<Run> {
    let mut runs = Vec::new();
    for (index, position) in to.clone().enumerate() {
        let place = (position - from.start).rem_euclid(side as isize) as usize;
        if place < from.len() {
            Run::push(&mut runs, place, index);
        }
    }
    runs
}

/// Copies along all axes, the first one outermost.
pub(crate) fn copy_axes(axes: &[Copies], from: &[f32], to: &mut [f32]) {
    let Some((axis, inner)) = axes.split_first() else { return };
    if inner.iter().any(|axis| axis.runs.is_empty()) {
        return;
    }
    if inner.is_empty() {
        for run in &axis.runs {
            to[run.to..][..run.len].copy_from_slice(&from[run.from..][..run.len]);
        }
        return;
    }
    let (from_len, to_len): (usize, usize) =
        (inner.iter().map(|axis| axis.from).product(), inner.iter().map(|axis| axis.to).product());
    for run in &axis.runs {
        for i in 0..run.len {
            let from = &from[(run.from + i) * from_len..][..from_len];
            copy_axes(inner, from, &mut to[(run.to + i) * to_len..][..to_len]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_beyond_both_ends_holds_the_array_as_it_begins_again() {
        let image: Vec<f32> = (0..12).map(|i| i as f32).collect();
        let (rows, columns) = (-1..2, 3..5);
        let mut cut = vec![-1.0; 6];
        copy(1, &[3, 4], (&window(&[0..3, 0..4]), &image), (&[rows, columns], &mut cut));
        assert_eq!(cut, [11.0, 8.0, 3.0, 0.0, 7.0, 4.0]);
    }

    #[test]
    fn what_only_one_window_holds_is_left_alone() {
        let (from, to_window) = ([0..1, 1..3], [0..1, 2..6]);
        let mut to = vec![9.0; 8];
        copy(2, &[1, 8], (&from, &[1.0, 2.0, 3.0, 4.0]), (&to_window, &mut to));
        assert_eq!(to, [2.0, 9.0, 9.0, 9.0, 4.0, 9.0, 9.0, 9.0]);
        copy(2, &[1, 8], (&nothing(2), &[]), (&to_window, &mut to));
        assert_eq!(to[0], 2.0);
    }

    #[test]
    fn the_parts_of_a_window_are_of_the_array_and_have_their_places() {
        let found = parts(&[-1..2, 1..3], &[5, 4]);
        assert_eq!(
            found,
            [(vec![4..5, 1..3], vec![-1..0, 1..3]), (vec![0..2, 1..3], vec![0..2, 1..3])]
        );
        assert!(parts(&nothing(2), &[5, 4]).is_empty());
    }

    #[test]
    fn around_two_windows_is_never_longer_than_the_side() {
        let (a, b) = (vec![-3..1, 0..2], vec![4..6, 1..3]);
        assert_eq!(around(a.clone(), b.clone(), &[20, 9]), [-3..6, 0..3]);
        assert_eq!(around(a.clone(), b, &[9, 9]), [0..9, 0..3]);
        assert_eq!(around(a.clone(), nothing(2), &[9, 9]), a);
    }
}
