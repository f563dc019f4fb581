//! Inputs whose sides a network cannot halve: rounded up on the way in, cut on the way out.

use crate::error::Result;
use crate::footprint::Footprint;
use crate::network::Network;
use crate::op::PaddingMode;
use crate::shape::Shape;

/// The shape of an input, and the shape on which the network runs.
///
/// ```
/// use haloscope_nn::Shape;
/// use haloscope_nn::engine::graph::Aligned;
/// use haloscope_nn::models::{Architecture, Drunet};
///
/// let drunet = Drunet { channels: [4, 4, 4, 4], blocks: 1, ..Drunet::default() }.random(0)?;
/// let aligned = Aligned::of(drunet.network(), &Shape::new([1, 4, 21, 32])?)?;
/// assert_eq!(aligned.run.sizes(), [1, 4, 24, 32]);
/// let output = aligned.output(&Shape::new([1, 3, 24, 32])?)?;
/// assert_eq!(output.sizes(), [1, 3, 21, 32]);
/// # Ok::<(), haloscope_nn::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aligned {
    /// The shape that the caller has.
    pub input: Shape,
    /// The same shape with its sides rounded up to the network's alignment.
    pub run: Shape,
}

impl Aligned {
    /// Rounds the sides up. Networks whose output is not as large as their input have no alignment; they take the input
    /// as it is.
    pub fn of(network: &Network, input: &Shape) -> Result<Self> {
        let spatial = match Footprint::of(network) {
            Ok(footprint) if input.spatial().len() == network.rank() && input.count() > 0 => {
                footprint.aligned(input.spatial())
            }
            _ => input.spatial().to_vec(),
        };
        let run = Shape::image(input.batch(), input.channels(), &spatial)?;
        Ok(Self { input: input.clone(), run })
    }

    /// The part of an output that belongs to the input, given the whole output's shape.
    pub fn output(&self, whole: &Shape) -> Result<Shape> {
        let sides = self.input.spatial().iter().zip(self.run.spatial()).zip(whole.spatial());
        let spatial: Vec<usize> =
            sides.map(|((&input, &run), &output)| (input * output).div_ceil(run).max(1)).collect();
        Shape::image(whole.batch(), whole.channels(), &spatial)
    }
}

/// The position whose value an axis of `size` values has at `position` when it is extended to `length`: reflected, or the
/// last one where there are too few to reflect.
#[must_use]
pub fn extended(position: usize, size: usize, length: usize) -> usize {
    let mirrors = length < 2 * size;
    let mode = if mirrors { PaddingMode::Reflect } else { PaddingMode::Replicate };
    mode.source(position.cast_signed(), size).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_is_extended_by_reflection_or_else_by_its_last_value() {
        let reflected: Vec<usize> = (0..7).map(|position| extended(position, 4, 7)).collect();
        assert_eq!(reflected, [0, 1, 2, 3, 2, 1, 0]);
        let replicated: Vec<usize> = (0..8).map(|position| extended(position, 1, 8)).collect();
        assert_eq!(replicated, [0; 8]);
        let too_small: Vec<usize> = (0..8).map(|position| extended(position, 4, 8)).collect();
        assert_eq!(too_small, [0, 1, 2, 3, 3, 3, 3, 3]);
    }
}
