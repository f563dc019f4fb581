//! One axis cut into windows of the same length.
//!
//! The pixels that windows contribute partition the axis: `own` of one window ends where that of the next
//! begins. The last patch is moved back to end with the axis, so that all windows are equally long; the
//! previous one keeps what both have.

use std::ops::Range;

use super::{Border, Strategy};

/// What one window reads and writes along an axis.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Span {
    /// The first pixel that is read; before 0 it is beyond the edge.
    pub read: isize,
    /// The pixels of the axis that the window contributes to.
    pub write: Range<usize>,
    /// Its share in each of them, if other windows have one as well.
    pub weights: Option<Vec<f32>>,
}

/// The windows of an axis, and their length.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cut {
    pub window: usize,
    pub spans: Vec<Span>,
}

/// How to cut one axis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AxisTiling {
    pub length: usize,
    pub patch: usize,
    pub overlap: usize,
    pub alignment: usize,
    pub border: Border,
}

impl AxisTiling {
    /// The length of a window; the whole axis if there is one only.
    pub fn window(&self) -> usize {
        let window = (self.patch + 2 * self.overlap).next_multiple_of(self.alignment);
        if self.patch >= self.length || (self.border == Border::Inside && window >= self.length) {
            self.length
        } else {
            window
        }
    }

    /// How many windows there are.
    pub fn count(&self) -> usize {
        if self.window() == self.length { 1 } else { self.length.div_ceil(self.patch) }
    }

    /// The windows.
    pub fn cut(&self, strategy: Strategy) -> Cut {
        let (window, count) = (self.window(), self.count());
        if count == 1 {
            let span = Span { read: 0, write: 0..self.length, weights: None };
            return Cut { window, spans: vec![span] };
        }
        let begin = |index: usize| (index * self.patch).min(self.length - self.patch);
        let own = |index: usize| {
            let from = if index == 0 { 0 } else { begin(index - 1) + self.patch };
            from.min(begin(index) + self.patch)..begin(index) + self.patch
        };
        let spans = (0..count).map(|index| {
            let read = begin(index).cast_signed() - self.overlap.cast_signed();
            let read = match self.border {
                Border::Inside => read.clamp(0, (self.length - window).cast_signed()),
                _ => read,
            };
            Span { read, write: own(index), weights: None }
        });
        let mut spans: Vec<Span> = spans.collect();
        if strategy == Strategy::Blend {
            fade(&mut spans, self.overlap);
        }
        Cut { window, spans }
    }
}

/// Widens what neighbours write so that they share the pixels around their border, with weights
/// that rise from 0 to 1.
///
/// They share the inner half of the overlap: further out, a network has seen too little of the surroundings.
/// A window shares no pixel with more than one neighbour on a side.
fn fade(spans: &mut [Span], overlap: usize) {
    let own: Vec<Range<usize>> = spans.iter().map(|span| span.write.clone()).collect();
    let halves: Vec<usize> = own
        .windows(2)
        .map(|pair| (overlap / 2).min(pair[0].len() / 2).min(pair[1].len() / 2))
        .collect();
    for (index, span) in spans.iter_mut().enumerate() {
        let before = if index == 0 { 0 } else { halves[index - 1] };
        let after = halves.get(index).copied().unwrap_or(0);
        let Range { start, end } = own[index].clone();
        span.write = start - before..end + after;
        let weight = |pixel: usize| {
            if pixel < start + before {
                rise(pixel + before - start, before)
            } else if pixel + after >= end {
                1.0 - rise(pixel + after - end, after)
            } else {
                1.0
            }
        };
        span.weights = Some(span.write.clone().map(weight).collect());
    }
}

/// The weight of pixel `index` of `2 half`, which rises like a cosine.
fn rise(index: usize, half: usize) -> f32 {
    let position = (index as f64 + 0.5) / (2 * half) as f64;
    (0.5 - 0.5 * (std::f64::consts::PI * position).cos()) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    const AXIS: AxisTiling =
        AxisTiling { length: 100, patch: 32, overlap: 8, alignment: 8, border: Border::Reflect };

    #[test]
    fn windows_partition_every_axis() {
        for length in 1..70 {
            for patch in 1..20 {
                for border in [Border::Reflect, Border::Inside] {
                    for overlap in [0, 3, 25] {
                        let axis = AxisTiling { length, patch, overlap, alignment: 4, border };
                        let cut = axis.cut(Strategy::Overlap);
                        assert_eq!(cut.spans.len(), axis.count());
                        let mut next = 0;
                        for span in &cut.spans {
                            assert_eq!(span.write.start, next, "{axis:?}");
                            let end = span.read + cut.window.cast_signed();
                            assert!(span.read <= span.write.start.cast_signed(), "{axis:?}");
                            assert!(span.write.end.cast_signed() <= end, "{axis:?}");
                            next = span.write.end;
                        }
                        assert_eq!(next, length, "{axis:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn weights_of_all_windows_sum_to_one() {
        for (length, patch, overlap) in
            [(100, 32, 8), (100, 33, 40), (50, 7, 3), (9, 8, 8), (64, 16, 0)]
        {
            let axis = AxisTiling { length, patch, overlap, ..AXIS };
            let mut sums = vec![0.0; length];
            let cut = axis.cut(Strategy::Blend);
            for span in &cut.spans {
                let weights = span.weights.as_ref().expect("blended");
                for (pixel, weight) in span.write.clone().zip(weights) {
                    sums[pixel] += weight;
                    let place = pixel.cast_signed() - span.read;
                    assert!((0..cut.window.cast_signed()).contains(&place));
                }
            }
            assert!(sums.iter().all(|sum: &f32| (sum - 1.0).abs() < 1e-6), "{axis:?}: {sums:?}");
        }
    }

    #[test]
    fn windows_are_aligned_and_a_patch_as_long_as_the_axis_is_one_window() {
        assert_eq!(AxisTiling { patch: 30, ..AXIS }.window(), 48);
        assert_eq!(AxisTiling { patch: 100, ..AXIS }.cut(Strategy::Blend).spans.len(), 1);
        assert_eq!(AxisTiling { patch: 1000, ..AXIS }.window(), 100);
    }
}
