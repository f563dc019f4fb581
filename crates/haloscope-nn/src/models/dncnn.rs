//! DnCNN (Zhang et al. 2017): a stack of convolutions that predicts the noise or its negative.
//! Class `deepinv.models.DnCNN`, and the form of the authors' own checkpoints.

use super::{Architecture, Model, Parameters, Sigma, bad_option};
use crate::builder::NetworkBuilder;
use crate::error::Result;
use crate::network::NodeId;
use crate::op::{Activation, Conv, Op};
use crate::tensor::Tensor;

/// The options of a DnCNN. The default is that of deepinv's colour checkpoint.
///
/// ```
/// use haloscope_nn::models::{Architecture, Dncnn};
/// use haloscope_nn::Footprint;
///
/// let model = Dncnn { depth: 7, channels: 8, ..Dncnn::default() }.random(0)?;
/// assert_eq!(Footprint::of(model.network())?.radius, [7, 7]);
/// # Ok::<(), haloscope_nn::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dncnn {
    /// Spatial axes: 2 or 3 (`dim`).
    pub rank: usize,
    /// Channels of the image and of the result (`in_channels` and `out_channels`).
    pub image_channels: usize,
    /// The number of convolutions (`depth`), 2 at least.
    pub depth: usize,
    /// Channels between convolutions (`nf`).
    pub channels: usize,
    /// Whether convolutions have biases (`bias`).
    pub bias: bool,
    /// Whose names and sign the weights have.
    pub names: DncnnNames,
}

/// The names of a DnCNN's parameters, and what its convolutions predict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DncnnNames {
    /// deepinv's: `in_conv`, `conv_list.0` …, `out_conv`; the result is `x + net(x)`.
    Deepinv,
    /// KAIR's: `model.0`, `model.2` …; the result is `x − net(x)`.
    Kair,
}

impl Default for Dncnn {
    fn default() -> Self {
        Self {
            rank: 2,
            image_channels: 3,
            depth: 20,
            channels: 64,
            bias: true,
            names: DncnnNames::Deepinv,
        }
    }
}

impl Architecture for Dncnn {
    fn build(&self, parameters: &mut Parameters<'_>) -> Result<Model> {
        let mut builder = NetworkBuilder::new("dncnn", self.rank)?;
        let input = builder.input(self.image_channels)?;
        let last = self.depth.saturating_sub(1);
        let name = |layer: usize| match self.names {
            DncnnNames::Kair => format!("model.{}", 2 * layer),
            DncnnNames::Deepinv if layer == 0 => "in_conv".into(),
            DncnnNames::Deepinv if layer == last => "out_conv".into(),
            DncnnNames::Deepinv => format!("conv_list.{}", layer - 1),
        };
        let stack = Stack {
            depth: self.depth,
            channels: [self.image_channels, self.channels, self.image_channels],
            bias: self.bias,
            negated: self.names == DncnnNames::Kair,
        };
        let x = stack.build(&mut builder, parameters, input, name)?;
        let x = builder.push("output", Op::Add, &[x, input])?;
        Ok(Model::new(builder.finish(x)?, Sigma::Ignored))
    }
}

/// Convolutions of size 3 with a ReLU between each two.
pub(super) struct Stack {
    pub depth: usize,
    /// Before, within and after the stack.
    pub channels: [usize; 3],
    pub bias: bool,
    /// Whether the negative of the result is wanted. The last convolution gives it for free.
    pub negated: bool,
}

impl Stack {
    pub(super) fn build(
        &self,
        builder: &mut NetworkBuilder,
        parameters: &mut Parameters<'_>,
        input: NodeId,
        name: impl Fn(usize) -> String,
    ) -> Result<NodeId> {
        // The upper end is far beyond any use.
        if !(2..=1000).contains(&self.depth) {
            let reason = format!("{} convolutions; 2 to 1000 are possible", self.depth);
            return Err(bad_option("depth", reason));
        }
        let [before, within, after] = self.channels;
        let last = self.depth - 1;
        let mut x = input;
        for layer in 0..self.depth {
            let inputs = if layer == 0 { before } else { within };
            let outputs = if layer == last { after } else { within };
            let kernel = vec![3; builder.rank()];
            let name = name(layer);
            let conv = parameters.conv(&name, [inputs, outputs], &kernel, self.bias)?.padding(1);
            let negate = self.negated && layer == last;
            x = builder.conv(&name, if negate { negative(&conv) } else { conv }, x)?;
            if layer != last {
                x = builder.activation(format!("{name}.relu"), Activation::Relu, x)?;
            }
        }
        Ok(x)
    }
}

fn negative(conv: &Conv) -> Conv {
    let negative = |tensor: &Tensor| tensor.map_by_first_axis(|_, value| -value);
    let bias = conv.bias.as_ref().map(negative);
    Conv { weight: negative(&conv.weight), bias, ..conv.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::shape::Shape;
    use crate::weights::StateDict;

    fn small() -> Dncnn {
        Dncnn { depth: 3, channels: 2, image_channels: 1, ..Dncnn::default() }
    }

    #[test]
    fn one_error_lists_everything_that_does_not_fit() {
        let mut state = StateDict::default();
        for (name, shape) in small().parameters().expect("good options") {
            if name != "in_conv.bias" && name != "out_conv.weight" {
                state.insert(name, Tensor::filled(shape, 0.5));
            }
        }
        state.insert("extra.weight", Tensor::filled(Shape::new([1]).expect("small"), 0.0));
        state.insert("conv_list.0.bias", Tensor::filled(Shape::new([3]).expect("small"), 0.0));
        let error = small().load(&state).expect_err("four faults");
        assert_eq!(
            error,
            Error::Weights {
                missing: vec!["in_conv.bias".into(), "out_conv.weight".into()],
                unexpected: vec!["extra.weight".into()],
                wrong_shape: vec!["conv_list.0.bias is 3, not 2".into()],
            }
        );
        assert_eq!(
            error.to_string(),
            "the weights do not fit the model; missing: in_conv.bias, out_conv.weight; \
             unexpected: extra.weight; wrong shape: conv_list.0.bias is 3, not 2"
        );
    }

    #[test]
    fn single_convolution_is_refused() {
        let error = Dncnn { depth: 1, ..small() }.random(0).expect_err("too shallow");
        assert!(error.to_string().contains("1 convolutions; 2 to 1000"), "{error}");
    }
}
