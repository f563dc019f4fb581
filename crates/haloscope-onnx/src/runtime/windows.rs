//! Windows of one size that cover an image of another.
//!
//! A network whose sides are aligned gets one window, in which the image is continued by its mirror image. One for images of
//! a fixed size gets as many as a larger image needs; they overlap by a quarter on either side, of which nothing is kept.

use std::ops::Range;

use haloscope_nn::engine::graph::extended;

/// The windows of one shape of image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Windows {
    image: Vec<usize>,
    window: Vec<usize>,
    /// Along each axis.
    spans: Vec<Vec<Span>>,
}

/// A window along one axis.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Span {
    /// Its first pixel in the image.
    start: usize,
    /// The pixels of the image that it gives.
    keep: Range<usize>,
}

impl Windows {
    /// Windows of these sides on images of those.
    pub(crate) fn new(sides: &[usize], window: &[usize]) -> Self {
        let spans = sides.iter().zip(window).map(|(side, window)| spans(*side, *window)).collect();
        Self { image: sides.to_vec(), window: window.to_vec(), spans }
    }

    /// The sides of each window.
    pub(crate) fn sides(&self) -> &[usize] {
        &self.window
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.spans.iter().map(Vec::len).product()
    }

    /// The pixels of a window.
    pub(crate) fn pixels(&self) -> usize {
        self.window.iter().product()
    }

    /// Whether the only window is the image itself.
    fn is_image(&self) -> bool {
        self.image == self.window
    }

    /// Appends what a window shows of an image of one channel, each value times `factor`.
    pub(crate) fn append(&self, index: usize, image: &[f32], factor: f32, target: &mut Vec<f32>) {
        if self.is_image() {
            target.extend(image.iter().map(|value| value * factor));
            return;
        }
        let axes = self.window.iter().zip(&self.image).zip(self.of(index));
        let mut offsets = vec![0];
        for ((length, side), span) in axes {
            let sources: Vec<usize> = (0..*length)
                .map(|position| source(span.start + position, *side, *length))
                .collect();
            offsets = offsets
                .iter()
                .flat_map(|offset| sources.iter().map(move |source| offset * side + source))
                .collect();
        }
        target.extend(offsets.iter().map(|offset| image[*offset] * factor));
    }

    /// Puts what a window keeps of its result in the place of the image, each value times `factor`.
    pub(crate) fn store(&self, index: usize, window: &[f32], factor: f32, image: &mut [f32]) {
        if self.is_image() {
            image.iter_mut().zip(window).for_each(|(to, from)| *to = from * factor);
            return;
        }
        let mut pairs = vec![(0, 0)];
        let axes = self.window.iter().zip(&self.image).zip(self.of(index));
        for ((length, side), span) in axes {
            let kept = span.keep.clone().map(|position| (position - span.start, position));
            pairs = pairs
                .iter()
                .flat_map(|(from, to)| {
                    kept.clone().map(move |(inside, position)| {
                        (from * length + inside, to * side + position)
                    })
                })
                .collect();
        }
        for (from, to) in pairs {
            image[to] = window[from] * factor;
        }
    }

    /// The window along each axis.
    fn of(&self, mut index: usize) -> Vec<&Span> {
        let mut found: Vec<&Span> = Vec::with_capacity(self.spans.len());
        for spans in self.spans.iter().rev() {
            found.push(&spans[index % spans.len()]);
            index /= spans.len();
        }
        found.reverse();
        found
    }
}

/// Where a position of a window that may lie beyond the image comes from.
fn source(position: usize, side: usize, length: usize) -> usize {
    if position < side { position } else { extended(position, side, length.max(side)) }
}

/// The windows along a side.
fn spans(side: usize, window: usize) -> Vec<Span> {
    if side <= window {
        return vec![Span { start: 0, keep: 0..side }];
    }
    let margin = window / 4;
    let step = (window - 2 * margin).max(1);
    let mut spans: Vec<Span> = Vec::new();
    let mut kept = 0;
    while kept < side {
        let start = (spans.len() * step).min(side - window);
        let end = if start + window == side { side } else { start + window - margin };
        spans.push(Span { start, keep: kept..end });
        kept = end;
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_keep_every_pixel_once_and_stay_inside() {
        for window in [1, 2, 5, 8, 64] {
            for side in 1..200 {
                let spans = spans(side, window);
                let kept: Vec<usize> = spans.iter().flat_map(|span| span.keep.clone()).collect();
                assert_eq!(kept, (0..side).collect::<Vec<_>>(), "{side} {window}");
                for span in &spans {
                    assert!(side <= window || span.start + window <= side);
                    assert!(span.keep.start >= span.start && span.keep.end <= span.start + window);
                    let first = span.keep.start == 0;
                    assert!(first || span.keep.start >= span.start + window / 4, "{span:?}");
                }
            }
        }
    }

    #[test]
    fn an_image_that_goes_through_windows_stays_the_same() {
        for (sides, window) in [
            (vec![30, 21], vec![8, 12]),
            (vec![5, 7], vec![8, 8]),
            (vec![9, 4, 6], vec![4, 4, 8]),
            (vec![8, 8], vec![8, 8]),
        ] {
            let windows = Windows::new(&sides, &window);
            let image: Vec<f32> = (0..sides.iter().product()).map(|at: usize| at as f32).collect();
            let mut result = vec![-1.0; image.len()];
            for index in 0..windows.count() {
                let mut shown = Vec::new();
                windows.append(index, &image, 2.0, &mut shown);
                assert_eq!(shown.len(), windows.pixels());
                windows.store(index, &shown, 0.5, &mut result);
            }
            assert_eq!(result, image, "{sides:?} {window:?}");
        }
    }

    #[test]
    fn an_image_that_is_smaller_than_its_window_is_mirrored() {
        let windows = Windows::new(&[1, 5], &[1, 8]);
        let mut shown = Vec::new();
        windows.append(0, &[0.0, 1.0, 2.0, 3.0, 4.0], 1.0, &mut shown);
        assert_eq!(shown, [0.0, 1.0, 2.0, 3.0, 4.0, 3.0, 2.0, 1.0]);
    }
}
