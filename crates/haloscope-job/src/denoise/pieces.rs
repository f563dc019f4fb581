//! An array as a network takes it, piece by piece.

use haloscope::{Array, Error, Result};
use haloscope_nn::models::{Model, Sigma};
use haloscope_nn::{Shape, Tensor};
use ndarray::{ArrayViewD, Axis};

/// How images (batch, channel, spatial…) become inputs of a network: each image of the batch, or each of its slices. A gray
/// piece is given to a colour network three times, the channels of any other to a gray one by one.
pub(super) struct Fit {
    /// Whether pieces are slices along the depth.
    are_slices: bool,
    /// How often a piece's values come.
    pub(super) repeats: usize,
    /// Batch and channels of the network's images.
    pub(super) members: usize,
    pub(super) channels: usize,
    /// Whether the noise level is a channel, too.
    pub(super) has_map: bool,
}

impl Fit {
    pub(super) fn new(shape: &[usize], model: &Model) -> Result<Self> {
        let (sides, rank) = (shape.len() - 2, model.network().rank());
        let (have, need) = (shape[1], model.image_channels());
        let are_slices = match (sides, rank) {
            (3, 2) => true,
            (sides, rank) if sides == rank => false,
            _ => {
                let reason =
                    format!("a network for volumes, and this is an image of {sides} sides");
                return Err(Error::argument(model.network().name(), reason));
            }
        };
        let (members, channels, repeats) = match (have, need) {
            (have, need) if have == need => (1, have, 1),
            (1, 3) => (1, 3, 3),
            (have, 1) => (have, 1, 1),
            (have, need) => {
                let reason = format!(
                    "it takes images of {need} channels, and this one has {have}; models of 1 and 3 channels can be used \
                     for gray and colour images"
                );
                return Err(Error::argument(model.network().name(), reason));
            }
        };
        let has_map = model.sigma() == Sigma::Map;
        Ok(Self { are_slices, repeats, members, channels, has_map })
    }

    /// The shape of the network's input for pieces with these sides.
    pub(super) fn input_shape(&self, sides: &[usize]) -> Result<Shape> {
        Ok(Shape::image(self.members, self.channels + usize::from(self.has_map), sides)?)
    }
}

/// The pieces of an array.
pub(super) struct Pieces {
    pub(super) array: Array,
    pub(super) fit: Fit,
}

impl Pieces {
    pub(super) fn new(array: Array, model: &Model) -> Result<Self> {
        let fit = Fit::new(array.shape(), model)?;
        Ok(Self { array, fit })
    }

    pub(super) fn count(&self) -> usize {
        self.array.shape()[0] * if self.fit.are_slices { self.array.shape()[2] } else { 1 }
    }

    /// One of them, (channel, spatial…).
    fn piece(&self, index: usize) -> ArrayViewD<'_, f32> {
        if !self.fit.are_slices {
            return self.array.index_axis(Axis(0), index);
        }
        let depth = self.array.shape()[2];
        self.array.index_axis(Axis(0), index / depth).index_axis_move(Axis(1), index % depth)
    }

    /// The values of a piece as often as they come.
    fn values(&self, index: usize) -> Vec<f32> {
        let values: Vec<f32> = self.piece(index).iter().copied().collect();
        values.repeat(self.fit.repeats)
    }

    /// The network's input of the first.
    pub(super) fn input(&self, model: &Model, sigma: f32) -> Result<Tensor> {
        let sides = &self.piece(0).shape()[1..].to_vec();
        let shape = Shape::image(self.fit.members, self.fit.channels, sides)?;
        Ok(model.input(&Tensor::new(shape, self.values(0))?, sigma)?)
    }

    /// Puts another piece in the place of the first: its channels, before that of the noise level.
    pub(super) fn exchange(&self, index: usize, input: &mut [f32]) {
        let values = self.values(index);
        let members = self.fit.members;
        let (member, stored) = (values.len() / members, input.len() / members);
        for (to, from) in input.chunks_exact_mut(stored).zip(values.chunks_exact(member)) {
            to[..member].copy_from_slice(from);
        }
    }

    /// What the network made of a piece, in its place; of repeated ones the mean.
    pub(super) fn store(&self, index: usize, output: &[f32], result: &mut Array) {
        let depth = self.array.shape()[2];
        let piece = if self.fit.are_slices {
            result.index_axis_mut(Axis(0), index / depth).index_axis_move(Axis(1), index % depth)
        } else {
            result.index_axis_mut(Axis(0), index)
        };
        mean_of_repeats(self.fit.repeats, output, piece);
    }
}

/// The mean of values that come several times, all of them one time after the other.
pub(super) fn mean_of_repeats(
    repeats: usize,
    values: &[f32],
    mut means: ndarray::ArrayViewMutD<'_, f32>,
) {
    let count = means.len();
    for (at, value) in means.iter_mut().enumerate() {
        let sum: f32 = (0..repeats).map(|repeat| values[repeat * count + at]).sum();
        *value = sum / repeats as f32;
    }
}
