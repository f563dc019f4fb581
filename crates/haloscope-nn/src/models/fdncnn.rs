//! FDnCNN: the convolutions of a DnCNN on the image and a noise map, which give the clean image
//! itself. As in the authors' checkpoints.

use super::dncnn::Stack;
use super::{Architecture, Model, Parameters, Sigma};
use crate::builder::NetworkBuilder;
use crate::error::Result;

/// The options of an FDnCNN. The default is that of the authors' colour checkpoint; its parameters
/// are named `model.0`, `model.2` ….
///
/// ```
/// use haloscope_nn::models::{Architecture, Fdncnn, Sigma};
///
/// let model = Fdncnn { depth: 3, channels: 4, ..Fdncnn::default() }.random(0)?;
/// assert_eq!(model.sigma(), Sigma::Map);
/// assert_eq!((model.image_channels(), model.network().input_channels()), (3, 4));
/// # Ok::<(), haloscope_nn::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fdncnn {
    /// Spatial axes: 2 or 3.
    pub rank: usize,
    /// Channels of the image, without the noise map, and of the result.
    pub image_channels: usize,
    /// The number of convolutions, 2 at least.
    pub depth: usize,
    /// Channels between convolutions.
    pub channels: usize,
    /// Whether convolutions have biases.
    pub bias: bool,
}

impl Default for Fdncnn {
    fn default() -> Self {
        Self { rank: 2, image_channels: 3, depth: 20, channels: 64, bias: true }
    }
}

impl Architecture for Fdncnn {
    fn build(&self, parameters: &mut Parameters<'_>) -> Result<Model> {
        let mut builder = NetworkBuilder::new("fdncnn", self.rank)?;
        let with_map = self.image_channels.saturating_add(1);
        let input = builder.input(with_map)?;
        let stack = Stack {
            depth: self.depth,
            channels: [with_map, self.channels, self.image_channels],
            bias: self.bias,
            negated: false,
        };
        let name = |layer| format!("model.{}", 2 * layer);
        let x = stack.build(&mut builder, parameters, input, name)?;
        Ok(Model::new(builder.finish(x)?, Sigma::Map))
    }
}
