//! U-Net (Jin et al. 2017): two convolutions per scale, maxima on the way down, nearest pixels on
//! the way up, skips by concatenation. Class `deepinv.models.UNet`.

use super::{Architecture, Model, Parameters, Sigma, bad_option};
use crate::builder::NetworkBuilder;
use crate::error::Result;
use crate::network::NodeId;
use crate::op::{Activation, Op, PaddingMode, Pool, PoolKind, UpsampleMode};
use crate::tensor::Tensor;

/// The options of a UNet. The default is deepinv's.
///
/// ```
/// use haloscope_nn::models::{Architecture, Unet};
/// use haloscope_nn::Footprint;
///
/// let model = Unet { channels: vec![4, 6, 8], ..Unet::default() }.random(0)?;
/// assert_eq!(Footprint::of(model.network())?.alignment, [4, 4]);
/// # Ok::<(), haloscope_nn::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unet {
    /// Spatial axes: 2 or 3 (`dim`).
    pub rank: usize,
    /// Channels of the image (`in_channels`).
    pub image_channels: usize,
    /// Channels of the result (`out_channels`).
    pub output_channels: usize,
    /// Channels at each scale, from full size down (`channels_per_scale`); 2 scales at least.
    pub channels: Vec<usize>,
    /// Whether the image is added to the result, if both have the same channels (`residual`).
    pub residual: bool,
    /// What convolutions see around the image (`circular_padding`: circular instead of zero).
    pub padding: PaddingMode,
    /// Whether scales on the way up also get the values from the way down (`cat`). Without it,
    /// deepinv has the convolutions that would take them, but does not run them.
    pub skips: bool,
    /// Whether convolutions, and bias-free normalizations, have biases (`bias`).
    pub bias: bool,
    /// The normalization after each convolution (`batch_norm`).
    pub batch_norm: BatchNorm,
}

/// The normalization after a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BatchNorm {
    /// None (`False`).
    None,
    /// The usual one (`True`).
    Standard,
    /// Division by the standard deviation; mean and bias only if the model has biases
    /// (`"biasfree"`).
    BiasFree,
}

impl Default for Unet {
    fn default() -> Self {
        Self {
            rank: 2,
            image_channels: 1,
            output_channels: 1,
            channels: vec![64, 128, 256, 512],
            residual: true,
            padding: PaddingMode::Zero,
            skips: true,
            bias: true,
            batch_norm: BatchNorm::Standard,
        }
    }
}

impl Architecture for Unet {
    fn build(&self, parameters: &mut Parameters<'_>) -> Result<Model> {
        if self.channels.len() < 2 {
            return Err(bad_option(
                "unet",
                format!("{} scales; at least 2 are needed", self.channels.len()),
            ));
        }
        let builder = NetworkBuilder::new("unet", self.rank)?;
        let mut layers = Layers { options: self, parameters, builder };
        let input = layers.builder.input(self.image_channels)?;
        let x = layers.descend_and_climb(input)?;
        let kernel = vec![1; self.rank];
        let channels = [self.channels[0], self.output_channels];
        let conv = layers.parameters.conv("Conv_1x1", channels, &kernel, self.bias)?;
        let mut x = layers.builder.conv("Conv_1x1", conv, x)?;
        if self.residual && self.image_channels == self.output_channels {
            x = layers.builder.push("output", Op::Add, &[x, input])?;
        }
        Ok(Model::new(layers.builder.finish(x)?, Sigma::Ignored))
    }
}

struct Layers<'a, 'b> {
    options: &'a Unet,
    parameters: &'a mut Parameters<'b>,
    builder: NetworkBuilder,
}

impl Layers<'_, '_> {
    fn descend_and_climb(&mut self, input: NodeId) -> Result<NodeId> {
        let channels = &self.options.channels;
        let mut x = self.double("Conv1", [self.options.image_channels, channels[0]], input)?;
        let mut passed = Vec::with_capacity(channels.len());
        for scale in 1..channels.len() {
            passed.push(x);
            let pool = Op::Pool(Pool::new(PoolKind::Max, self.options.rank, 2));
            x = self.builder.push(format!("Maxpool{}", scale + 1), pool, &[x])?;
            let pair = [channels[scale - 1], channels[scale]];
            x = self.double(&format!("Conv{}", scale + 1), pair, x)?;
        }
        for (scale, skip) in passed.into_iter().enumerate().rev() {
            let (number, outputs) = (scale + 2, channels[scale]);
            let name = format!("Up{number}");
            let nearest = Op::Upsample { factor: 2, mode: UpsampleMode::Nearest };
            x = self.builder.push(format!("{name}.0"), nearest, &[x])?;
            x = self.single(&name, 1, [channels[scale + 1], outputs], x)?;
            let name = format!("Up_conv{number}");
            let pair = [outputs.saturating_mul(2), outputs];
            if self.options.skips {
                x = self.builder.push(format!("{name}.input"), Op::Concat, &[skip, x])?;
                x = self.double(&name, pair, x)?;
            } else {
                self.pass_over(&name, pair)?;
            }
        }
        Ok(x)
    }

    /// How many of a sequence's numbers a convolution, its normalization and its ReLU take.
    fn step(&self) -> usize {
        if self.options.batch_norm == BatchNorm::None { 2 } else { 3 }
    }

    /// Two convolutions.
    fn double(&mut self, stage: &str, channels: [usize; 2], input: NodeId) -> Result<NodeId> {
        let x = self.single(stage, 0, channels, input)?;
        self.single(stage, self.step(), [channels[1]; 2], x)
    }

    /// Takes the parameters of two convolutions that are not run.
    fn pass_over(&mut self, stage: &str, channels: [usize; 2]) -> Result<()> {
        for (number, inputs) in [(0, channels[0]), (self.step(), channels[1])] {
            let kernel = vec![3; self.options.rank];
            let layer = format!("{stage}.{number}");
            self.parameters.conv(&layer, [inputs, channels[1]], &kernel, self.options.bias)?;
            if self.options.batch_norm != BatchNorm::None {
                self.norm(&format!("{stage}.{}", number + 1), channels[1])?;
            }
        }
        Ok(())
    }

    /// A convolution, its normalization and its ReLU, numbered from `number`.
    fn single(
        &mut self,
        stage: &str,
        number: usize,
        channels: [usize; 2],
        input: NodeId,
    ) -> Result<NodeId> {
        let kernel = vec![3; self.options.rank];
        let layer = format!("{stage}.{number}");
        let conv = self.parameters.conv(&layer, channels, &kernel, self.options.bias)?.padding(1);
        let mut x = self.builder.conv(&layer, conv.mode(self.options.padding), input)?;
        if self.options.batch_norm != BatchNorm::None {
            let name = format!("{stage}.{}", number + 1);
            let norm = self.norm(&name, channels[1])?;
            x = self.builder.push(name, norm, &[x])?;
        }
        let relu = format!("{stage}.{}", number + self.step() - 1);
        self.builder.activation(relu, Activation::Relu, x)
    }

    /// A trained normalization as a scale and a shift per channel.
    #[allow(clippy::cast_possible_truncation)] // the rounding is the purpose
    fn norm(&mut self, name: &str, channels: usize) -> Result<Op> {
        const EPSILON: f64 = 1e-5;
        let mut take = |what: &str| self.parameters.take(&format!("{name}.{what}"), &[channels]);
        let (weight, bias) = (take("weight")?, take("bias")?);
        let (mean, variance) = (take("running_mean")?, take("running_var")?);
        self.parameters.take(&format!("{name}.num_batches_tracked"), &[])?;
        let free = self.options.batch_norm == BatchNorm::BiasFree;
        let deviation = |variance: f64| {
            if free { variance.sqrt() + EPSILON } else { (variance + EPSILON).sqrt() }
        };
        let scales: Vec<f64> = (weight.values().iter().zip(variance.values()))
            .map(|(&weight, &variance)| f64::from(weight) / deviation(f64::from(variance)))
            .collect();
        let shifted = !free || self.options.bias;
        let shifts = (scales.iter().zip(mean.values()).zip(bias.values()))
            .map(|((scale, &mean), &bias)| f64::from(bias) - f64::from(mean) * scale)
            .map(|shift| if shifted { shift as f32 } else { 0.0 })
            .collect();
        let scales = scales.iter().map(|&scale| scale as f32).collect();
        let shape = weight.shape();
        Ok(Op::Affine { scale: Tensor::like(shape, scales), shift: Tensor::like(shape, shifts) })
    }
}
