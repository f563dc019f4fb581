//! How one axis of an image is extended beyond its ends before it is convolved.
//!
//! A blur is written as *extend, then convolve where the kernel fits*: an axis of `input` samples
//! becomes one of `extended` samples, each a copy of an input sample or zero, and the convolution has
//! `output = extended − kernel + 1` samples. The adjoint then is the adjoint of the convolution followed
//! by the adjoint of the extension, which adds each extended sample to the one it was copied from; it
//! is exact whatever the padding, also when the kernel is larger than the image.

use std::ops::Range;

use super::Padding;
use crate::physics::region::at_most_a_side;

/// An axis of the image with its extension for a kernel of a given length.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    pub input: usize,
    pub kernel: usize,
    pub output: usize,
    /// The input sample that each extended sample copies; `None` for a zero.
    pub sources: Vec<Option<usize>>,
    /// Where the input itself begins within the extension.
    pub begin: usize,
    /// Whether the axis begins again at its other end.
    pub circular: bool,
    /// The input sample that output 0 belongs to.
    pub first: usize,
}

impl Axis {
    /// `None` if the padding leaves nothing: `valid` with a kernel longer than the axis.
    pub(super) fn new(input: usize, kernel: usize, padding: Padding) -> Option<Self> {
        if padding == Padding::Valid {
            let output = (input + 1).checked_sub(kernel).filter(|&output| output > 0)?;
            let sources = (0..input).map(Some).collect();
            let first = kernel - 1 - kernel / 2;
            return Some(Self { input, kernel, output, sources, begin: 0, circular: false, first });
        }
        // The kernel's centre is at `kernel / 2`, so that many samples are needed after the last one.
        let begin = kernel - 1 - kernel / 2;
        let circular = padding == Padding::Circular;
        let sources = (0..input + kernel - 1)
            .map(|i| source(i as isize - begin as isize, input, padding))
            .collect();
        Some(Self { input, kernel, output: input, sources, begin, circular, first: 0 })
    }

    pub(super) fn extended(&self) -> usize {
        self.sources.len()
    }

    /// For each input sample, the extended samples that copy it, in order.
    pub(super) fn copies(&self) -> Vec<Vec<usize>> {
        let mut copies = vec![Vec::new(); self.input];
        for (i, source) in self.sources.iter().enumerate() {
            if let Some(source) = source {
                copies[*source].push(i);
            }
        }
        copies
    }

    /// The outputs that belong to a range of the input: those of ranges that tile the input tile the output.
    pub(super) fn outputs(&self, inputs: &Range<usize>) -> Range<usize> {
        let output = |input: usize| input.saturating_sub(self.first).min(self.output);
        output(inputs.start)..output(inputs.end)
    }

    /// The input samples that a range of outputs is computed from.
    pub(super) fn input_reads(&self, outputs: &Range<usize>) -> Range<isize> {
        let extended = outputs.start..outputs.end + self.kernel - 1;
        if self.circular {
            let begin = self.begin as isize;
            let range = extended.start as isize - begin..extended.end as isize - begin;
            return at_most_a_side(range, self.input);
        }
        hull(self.sources[extended].iter().flatten().map(|&source| source..source + 1))
    }

    /// The outputs that the adjoint on a range of the input is computed from.
    pub(super) fn output_reads(&self, inputs: &Range<usize>) -> Range<isize> {
        let reach = self.kernel - 1;
        if self.circular {
            let [first, end] = [inputs.start, inputs.end].map(|i| (i + self.begin) as isize);
            return at_most_a_side(first - reach as isize..end, self.output);
        }
        let copies = (0..self.extended()).filter(|&i| self.copies_one_of(i, inputs));
        hull(copies.map(|i| i.saturating_sub(reach)..(i + 1).min(self.output)))
    }

    /// Whether an extended sample copies one of these inputs.
    fn copies_one_of(&self, extended: usize, inputs: &Range<usize>) -> bool {
        self.sources[extended].is_some_and(|source| inputs.contains(&source))
    }

    /// The extended samples that copy one of these inputs, in ranges.
    pub(super) fn copying(&self, inputs: &Range<usize>) -> Vec<Range<usize>> {
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for i in (0..self.extended()).filter(|&i| self.copies_one_of(i, inputs)) {
            match ranges.last_mut() {
                Some(range) if range.end == i => range.end += 1,
                _ => ranges.push(i..i + 1),
            }
        }
        ranges
    }

    /// Those samples with the input that each is added to, in the order of the sums: the input itself, then its copies.
    pub(super) fn folds(&self, inputs: &Range<usize>) -> impl Iterator<Item = (usize, usize)> {
        let end = self.begin + self.input;
        let itself = (inputs.clone()).map(|input| (self.begin + input, input));
        let border = (0..self.begin).chain(end..self.extended());
        let inputs = inputs.clone();
        let copies = border.filter_map(move |i| {
            self.sources[i].filter(|source| inputs.contains(source)).map(|source| (i, source))
        });
        itself.chain(copies)
    }

    /// Writes the extension of `input` at the beginning of `extended`, whose rest stays as it is.
    pub(super) fn extend(&self, input: &[f32], extended: &mut [f32]) {
        for (to, source) in extended.iter_mut().zip(&self.sources[..self.begin]) {
            *to = source.map_or(0.0, |source| input[source]);
        }
        let end = self.begin + self.input;
        extended[self.begin..end].copy_from_slice(input);
        for (to, source) in extended[end..].iter_mut().zip(&self.sources[end..]) {
            *to = source.map_or(0.0, |source| input[source]);
        }
    }

    /// Adds the adjoint of [`extend`](Self::extend): every extended sample to its source.
    pub(super) fn fold(&self, extended: &[f32], input: &mut [f32]) {
        let end = self.begin + self.input;
        for (to, value) in input.iter_mut().zip(&extended[self.begin..end]) {
            *to += value;
        }
        let border = (0..self.begin).chain(end..self.sources.len());
        for i in border {
            if let Some(source) = self.sources[i] {
                input[source] += extended[i];
            }
        }
    }
}

/// From the first to the last of all ranges; empty ones do not count.
fn hull(ranges: impl Iterator<Item = Range<usize>>) -> Range<isize> {
    let ranges = ranges.filter(|range| !range.is_empty());
    let hull = ranges.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or(0..0);
    hull.start as isize..hull.end as isize
}

/// The sample of an axis of `len` that stands at `i`, which may be far outside.
fn source(i: isize, len: usize, padding: Padding) -> Option<usize> {
    let last = len as isize - 1;
    match padding {
        Padding::Circular => Some(i.rem_euclid(len as isize) as usize),
        Padding::Replicate => Some(i.clamp(0, last) as usize),
        // Reflection about the end samples, again and again where the kernel is longer than the axis.
        Padding::Reflect if last == 0 => Some(0),
        Padding::Reflect => {
            let i = i.rem_euclid(2 * last);
            Some(if i > last { 2 * last - i } else { i } as usize)
        }
        Padding::Constant | Padding::Valid => (0..=last).contains(&i).then_some(i as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(len: usize, kernel: usize, padding: Padding) -> Vec<Option<usize>> {
        Axis::new(len, kernel, padding).expect("an axis").sources
    }

    #[test]
    fn reflection_does_not_repeat_the_ends_and_goes_on_beyond_the_other_side() {
        let expected = [1, 0, 1, 2, 1, 0, 1, 2].map(Some);
        assert_eq!(sources(3, 6, Padding::Reflect)[1..], expected[..7]);
        assert_eq!(sources(1, 3, Padding::Reflect), [Some(0); 3]);
    }

    #[test]
    fn an_even_kernel_reaches_further_to_the_right() {
        assert_eq!(sources(2, 2, Padding::Constant), [Some(0), Some(1), None]);
        assert_eq!(sources(2, 4, Padding::Circular), [1, 0, 1, 0, 1].map(Some));
    }

    #[test]
    fn a_kernel_longer_than_the_axis_leaves_nothing_valid() {
        assert!(Axis::new(4, 5, Padding::Valid).is_none());
        assert_eq!(Axis::new(4, 4, Padding::Valid).expect("an axis").output, 1);
    }
}
