//! One axis cut into windows of the same length.
//!
//! The pixels that windows contribute partition the axis: `own` of one window ends where that of the next
//! begins. The last window is moved back to end with the axis, so that all are equally long; the previous one
//! keeps what both have. A window that stays inside needs no overlap at the edge, and keeps more there instead.

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
    pub(super) fn window(&self) -> usize {
        let window = (self.patch + 2 * self.overlap).next_multiple_of(self.alignment);
        if self.patch >= self.length || (self.border == Border::Inside && window >= self.length) {
            self.length
        } else {
            window
        }
    }

    /// How many windows there are.
    pub(super) fn count(&self) -> usize {
        if self.window() == self.length {
            return 1;
        }
        match self.border {
            // The first and the last keep an overlap more than the others.
            Border::Inside => (self.length - 2 * self.overlap).div_ceil(self.kept()),
            _ => self.length.div_ceil(self.patch),
        }
    }

    /// The shortest patch that cuts the axis into so many windows, each as long as alignment makes it anyway.
    pub(super) fn patch_for(&self, count: usize) -> usize {
        let kept = match self.border {
            Border::Inside => self.length.saturating_sub(2 * self.overlap).div_ceil(count),
            _ => self.length.div_ceil(count),
        };
        let window = kept.max(1) + 2 * self.overlap;
        window.next_multiple_of(self.alignment) - 2 * self.overlap
    }

    /// What a window keeps between two others. One that stays inside also keeps what it was lengthened by.
    fn kept(&self) -> usize {
        match self.border {
            Border::Inside => self.window() - 2 * self.overlap,
            _ => self.patch,
        }
    }

    /// The windows.
    pub(super) fn cut(&self, strategy: Strategy) -> Cut {
        let (window, count) = (self.window(), self.count());
        if count == 1 {
            let span = Span { read: 0, write: 0..self.length, weights: None };
            return Cut { window, spans: vec![span] };
        }
        let kept = self.kept();
        // The edge takes the place of an overlap, or the overlap lies beyond it.
        let (edge, beyond, reach) = match self.border {
            Border::Inside => (self.overlap, 0, window),
            _ => (0, self.overlap, kept + self.overlap),
        };
        let end = |index: usize| match index + 1 {
            after if after == count => self.length,
            after => after * kept + edge,
        };
        let spans = (0..count).map(|index| {
            let read = (index * kept).cast_signed() - beyond.cast_signed();
            let last = self.length.cast_signed() - reach.cast_signed();
            let own = if index == 0 { 0 } else { end(index - 1) }..end(index);
            Span { read: read.min(last), write: own, weights: None }
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
    fn halves_that_stay_inside_overlap_by_no_more_than_they_must() {
        let axis = AxisTiling {
            length: 512,
            patch: 224,
            overlap: 32,
            alignment: 8,
            border: Border::Inside,
        };
        let cut = axis.cut(Strategy::Overlap);
        assert_eq!(cut.window, 288);
        let spans: Vec<_> = cut.spans.iter().map(|span| (span.read, span.write.clone())).collect();
        assert_eq!(spans, [(0, 0..256), (224, 256..512)]);
    }

    #[test]
    fn the_shortest_patch_gives_no_more_windows_than_a_longer_one() {
        for length in 2..200 {
            for patch in 1..length {
                for border in [Border::Reflect, Border::Inside] {
                    for overlap in [0, 3, 25] {
                        let axis = AxisTiling { length, patch, overlap, alignment: 4, border };
                        let shorter = AxisTiling { patch: axis.patch_for(axis.count()), ..axis };
                        if axis.count() > 1 {
                            assert!(shorter.window() <= axis.window(), "{axis:?}");
                        }
                        assert!(shorter.count() <= axis.count(), "{axis:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_a_window_keeps_is_an_overlap_away_from_its_ends_or_at_the_edge() {
        for length in 30..90 {
            for patch in 1..20 {
                for overlap in [0, 1, 6] {
                    let axis =
                        AxisTiling { length, patch, overlap, alignment: 4, border: Border::Inside };
                    let Cut { window, spans } = axis.cut(Strategy::Overlap);
                    for Span { read, write, .. } in &spans {
                        let (begin, end) = (read.cast_unsigned(), read.cast_unsigned() + window);
                        assert!(write.start == 0 || write.start >= begin + overlap, "{axis:?}");
                        assert!(write.end == length || write.end + overlap <= end, "{axis:?}");
                        assert!(!write.is_empty() && end <= length, "{axis:?}");
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
