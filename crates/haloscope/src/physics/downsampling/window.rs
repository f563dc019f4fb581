//! Downsampling of parts of the image: the blur of a window, of which samples are kept.

use std::ops::Range;

use super::{Downsampling, divide_by_mask};
use crate::error::Result;
use crate::physics::WindowPhysics;
use crate::physics::region::{self, Copies, Run, copy_axes, pieces};

impl WindowPhysics for Downsampling {
    /// The samples that are kept of the blurred image there.
    fn measurement_region(&self, image: &[Range<usize>]) -> Vec<Range<usize>> {
        let blurred = match &self.blur {
            Some(blur) => blur.measurement_region(image),
            None => image.to_vec(),
        };
        self.axes().zip(&blurred).map(|(axis, range)| axis.kept(range)).collect()
    }

    fn image_reads(&self, measurement: &[Range<usize>]) -> Vec<Range<isize>> {
        let blurred = self.blurred_part(measurement);
        match &self.blur {
            Some(blur) => blur.image_reads(&blurred),
            None => region::window(&blurred),
        }
    }

    fn measurement_reads(&self, image: &[Range<usize>]) -> Vec<Range<isize>> {
        let blurred = self.blurred_window(image);
        let reads: Vec<Range<isize>> =
            self.axes().zip(&blurred).map(|(axis, range)| axis.kept_of_window(range)).collect();
        if region::positions(&reads) == 0 { region::nothing(reads.len()) } else { reads }
    }

    fn apply_forward_window(
        &self,
        batch: usize,
        measurement: &[Range<usize>],
        window: &[f32],
        out: &mut [f32],
    ) -> Result<()> {
        let part = self.blurred_part(measurement);
        let planes = batch * self.shape[0];
        let mut copies = vec![Copies::all(planes)];
        for (axis, (part, kept)) in self.axes().zip(part.iter().zip(measurement)) {
            let run = |i: usize| Run { from: i * axis.factor, to: i, len: 1 };
            let runs = (0..kept.len()).map(run).collect();
            copies.push(Copies { runs, from: part.len(), to: kept.len() });
        }
        let Some(blur) = &self.blur else {
            copy_axes(&copies, window, out);
            return Ok(());
        };
        let mut blurred = vec![0.0; planes * region::positions(&region::window(&part))];
        blur.forward_window(batch, &part, window, &mut blurred)?;
        copy_axes(&copies, &blurred, out);
        Ok(())
    }

    fn apply_adjoint_window(
        &self,
        batch: usize,
        image: &[Range<usize>],
        window: &[f32],
        out: &mut [f32],
    ) -> Result<()> {
        let Some(blur) = &self.blur else {
            self.spread_window(batch, &region::window(image), window, out);
            return Ok(());
        };
        let read = self.blurred_window(image);
        let mut blurred = vec![0.0; batch * self.shape[0] * region::positions(&read)];
        self.spread_window(batch, &read, window, &mut blurred);
        blur.adjoint_window(batch, image, &blurred, out)
    }

    fn window_bits_agree(&self) -> bool {
        self.blur.as_ref().is_none_or(WindowPhysics::window_bits_agree)
    }

    /// Without a filter.
    fn solve_normal_window(
        &self,
        batch: usize,
        image: &[Range<usize>],
        b: &[f32],
        shift: f64,
        out: &mut [f32],
    ) -> Option<Result<()>> {
        if self.blur.is_some() {
            return None;
        }
        let kept = region::positions(&self.measurement_reads(image));
        let ones = vec![1.0; batch * self.shape[0] * kept];
        self.spread_window(batch, &region::window(image), &ones, out);
        divide_by_mask(out, b, shift);
        Some(Ok(()))
    }
}

/// One axis of the blurred image, of which the samples `phase`, `phase + factor`, … are kept.
#[derive(Clone, Copy)]
struct Axis {
    side: usize,
    factor: usize,
    phase: usize,
}

impl Axis {
    /// The number of samples that are kept before a place.
    fn kept_before(self, place: usize) -> usize {
        place.saturating_sub(self.phase).div_ceil(self.factor)
    }

    fn kept(self, range: &Range<usize>) -> Range<usize> {
        self.kept_before(range.start)..self.kept_before(range.end)
    }

    /// What is kept of a window, which goes on beyond an end as the window does.
    fn kept_of_window(self, range: &Range<isize>) -> Range<isize> {
        let (side, kept) = (self.side as isize, self.kept_before(self.side) as isize);
        let before = |place: isize| {
            let beyond = place.div_euclid(side);
            beyond * kept + self.kept_before(place.rem_euclid(side) as usize) as isize
        };
        before(range.start)..before(range.end)
    }
}

impl Downsampling {
    /// Of the spatial axes that the image has.
    fn axes(&self) -> impl Iterator<Item = Axis> {
        (4 - self.shape.len()..3).map(|i| Axis {
            side: self.blurred[i],
            factor: self.factors[i],
            phase: self.phases[i],
        })
    }

    /// From the first to the last sample of the blurred image that is kept in a part of the measurement.
    fn blurred_part(&self, measurement: &[Range<usize>]) -> Vec<Range<usize>> {
        let part = |(axis, kept): (Axis, &Range<usize>)| {
            if kept.is_empty() {
                return 0..0;
            }
            let first = axis.phase + kept.start * axis.factor;
            first..first + (kept.len() - 1) * axis.factor + 1
        };
        self.axes().zip(measurement).map(part).collect()
    }

    /// What of the blurred image the adjoint of the blur on a part of the image is computed from.
    fn blurred_window(&self, image: &[Range<usize>]) -> Vec<Range<isize>> {
        match &self.blur {
            Some(blur) => blur.measurement_reads(image),
            None => region::window(image),
        }
    }

    /// Puts samples of the measurement where they were kept, and zeros between them, in a window of the blurred image.
    fn spread_window(
        &self,
        batch: usize,
        blurred: &[Range<isize>],
        window: &[f32],
        out: &mut [f32],
    ) {
        out.fill(0.0);
        let mut copies = vec![Copies::all(batch * self.shape[0])];
        for (axis, range) in self.axes().zip(blurred) {
            let mut runs = Vec::new();
            for (part, place) in pieces(range, axis.side) {
                let begin = (place.start - range.start) as usize;
                for kept in axis.kept(&part) {
                    let to = begin + axis.phase + kept * axis.factor - part.start;
                    runs.push(Run { from: runs.len(), to, len: 1 });
                }
            }
            copies.push(Copies { from: runs.len(), runs, to: range.len() });
        }
        copy_axes(&copies, window, out);
    }
}
