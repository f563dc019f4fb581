//! A blur of parts of the image.
//!
//! The direct method gives parts the bits of the whole. So do [`Blocks`](super::blocks::Blocks), which also take the place of
//! transforms of the whole image, of which there are no parts.

use std::ops::Range;

use super::blocks::Blocks;
use super::{Blur, Engine};
use crate::error::Result;
use crate::physics::{WindowPhysics, region};

impl WindowPhysics for Blur {
    fn measurement_region(&self, image: &[Range<usize>]) -> Vec<Range<usize>> {
        let axes = &self.axes[3 - image.len()..];
        axes.iter().zip(image).map(|(axis, range)| axis.outputs(range)).collect()
    }

    fn image_reads(&self, measurement: &[Range<usize>]) -> Vec<Range<isize>> {
        self.reads(false, measurement)
    }

    fn measurement_reads(&self, image: &[Range<usize>]) -> Vec<Range<isize>> {
        self.reads(true, image)
    }

    fn apply_forward_window(
        &self,
        batch: usize,
        measurement: &[Range<usize>],
        window: &[f32],
        out: &mut [f32],
    ) -> Result<()> {
        self.run_part(false, batch, measurement, window, out)
    }

    fn apply_adjoint_window(
        &self,
        batch: usize,
        image: &[Range<usize>],
        window: &[f32],
        out: &mut [f32],
    ) -> Result<()> {
        self.run_part(true, batch, image, window, out)
    }

    /// Not with the Fourier method, which transforms the whole image.
    fn window_bits_agree(&self) -> bool {
        !matches!(self.engine, Engine::Fourier(_))
    }
}

impl Blur {
    /// What a part of the measurement, or of the image for the adjoint, is computed from.
    fn reads(&self, adjoint: bool, part: &[Range<usize>]) -> Vec<Range<isize>> {
        if part.iter().any(Range::is_empty) {
            return region::nothing(part.len());
        }
        let blocks = self.blocks();
        let reads = |(axis, range): (usize, &Range<usize>)| match blocks {
            Some(blocks) => blocks.reads(adjoint, axis, range),
            None if adjoint => self.axes[axis].output_reads(range),
            None => self.axes[axis].input_reads(range),
        };
        (3 - part.len()..).zip(part).map(reads).collect()
    }

    fn run_part(
        &self,
        adjoint: bool,
        batch: usize,
        part: &[Range<usize>],
        window: &[f32],
        out: &mut [f32],
    ) -> Result<()> {
        let mut box_of_three = [0..1, 0..1, 0..1];
        box_of_three[3 - part.len()..].clone_from_slice(part);
        if let Engine::Direct(direct, taps) = &self.engine {
            let part = direct.part(adjoint, box_of_three);
            let run = |kernel: usize, input: &[f32], output: &mut [f32], (): &mut ()| {
                direct.run(&part, &taps[kernel], input, output);
            };
            return self.for_each_plane(batch, window, out, || (), run);
        }
        let blocks = self.blocks().expect("a blur that is not direct has blocks");
        self.run_blocks(blocks, adjoint, batch, &box_of_three, window, out)
    }

    /// The blocks, unless the method is direct.
    fn blocks(&self) -> Option<&Blocks> {
        match &self.engine {
            Engine::Direct(..) => None,
            Engine::Blocks(blocks) => Some(blocks),
            Engine::Fourier(_) => {
                let make = || Box::new(Blocks::new(&self.kernels, self.axes.clone()));
                Some(self.blocks.get_or_init(make))
            }
        }
    }

    pub(super) fn run_blocks(
        &self,
        blocks: &Blocks,
        adjoint: bool,
        batch: usize,
        part: &[Range<usize>; 3],
        input: &[f32],
        output: &mut [f32],
    ) -> Result<()> {
        let part = blocks.part(adjoint, part);
        let run = |kernel: usize, input: &[f32], output: &mut [f32], (): &mut ()| {
            blocks.run(&part, kernel, input, output);
        };
        self.for_each_plane(batch, input, output, || (), run)
    }
}
