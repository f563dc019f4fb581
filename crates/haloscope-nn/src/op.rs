//! The operations of a network's nodes as plain data, and how each changes a size.
//!
//! Sizes along the spatial axes are lists with one entry per axis, so that two and three dimensions
//! are the same code. Meanings (rounding, coordinates) are those of PyTorch 2.

use crate::foreign::Foreign;
use crate::tensor::Tensor;

/// What a node computes from its inputs.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// The input of the network. There is one, and it is the first node.
    Input {
        /// Its channels, the noise map's included.
        channels: usize,
    },
    /// A convolution.
    Conv(Conv),
    /// A transposed convolution.
    ConvTranspose(ConvTranspose),
    /// A function of each value.
    Activation(Activation),
    /// The sum of two or more inputs of the same shape.
    Add,
    /// The inputs one after the other along the channels.
    Concat,
    /// The mean or the maximum over windows.
    Pool(Pool),
    /// Interpolation to `factor` times the size.
    Upsample {
        /// How many times larger each spatial axis becomes.
        factor: usize,
        /// How values in between are made.
        mode: UpsampleMode,
    },
    /// Channels become space: `factor` times the size, `factor^rank` times fewer channels. Of the
    /// channels that make one block, the last varies along the last axis.
    PixelShuffle(usize),
    /// Space becomes channels: the inverse of [`PixelShuffle`](Self::PixelShuffle).
    PixelUnshuffle(usize),
    /// A scale and a shift for each channel: a batch normalization that could not be folded into
    /// the convolution before it.
    Affine {
        /// One factor per channel.
        scale: Tensor,
        /// One summand per channel, added after the scale.
        shift: Tensor,
    },
    /// Every value times a constant.
    Scale(f32),
    /// A whole network of another file format, as large as its input, which only its own engine runs.
    Foreign(Foreign),
}

impl Op {
    /// The operation's name as it appears in messages.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Input { .. } => "input",
            Self::Conv(_) => "conv",
            Self::ConvTranspose(_) => "transposed conv",
            Self::Activation(_) => "activation",
            Self::Add => "add",
            Self::Concat => "concat",
            Self::Pool(_) => "pool",
            Self::Upsample { .. } => "upsample",
            Self::PixelShuffle(_) => "pixel shuffle",
            Self::PixelUnshuffle(_) => "pixel unshuffle",
            Self::Affine { .. } => "affine",
            Self::Scale(_) => "scale",
            Self::Foreign(_) => "foreign network",
        }
    }

    /// The foreign network, if it is one.
    #[must_use]
    pub fn foreign(&self) -> Option<&Foreign> {
        match self {
            Self::Foreign(foreign) => Some(foreign),
            _ => None,
        }
    }

    /// The tensors that the operation holds.
    pub fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        let (first, second) = match self {
            Self::Conv(conv) => (Some(&conv.weight), conv.bias.as_ref()),
            Self::ConvTranspose(conv) => (Some(&conv.weight), conv.bias.as_ref()),
            Self::Affine { scale, shift } => (Some(scale), Some(shift)),
            _ => (None, None),
        };
        first.into_iter().chain(second)
    }

    /// The size along spatial axis `axis` that comes out for the size `size` that goes in, or why
    /// none does.
    pub(crate) fn output_size(&self, axis: usize, size: usize) -> Result<usize, String> {
        match self {
            Self::Conv(conv) => {
                let (kernel, padding) = (conv.kernel()[axis], conv.padding[axis]);
                let most = match conv.mode {
                    PaddingMode::Zero => usize::MAX,
                    PaddingMode::Replicate => size.saturating_mul(usize::MAX),
                    PaddingMode::Reflect => size.saturating_sub(1),
                    PaddingMode::Circular => size,
                };
                if padding > most {
                    return Err(format!(
                        "{} padding of {padding} on axis {axis} of size {size}; \
                         at most {most} is possible",
                        conv.mode.name()
                    ));
                }
                windows(axis, size, kernel, conv.stride[axis], padding)
            }
            Self::ConvTranspose(conv) => {
                let (kernel, padding) = (conv.kernel()[axis], conv.padding[axis]);
                if size == 0 {
                    return Err(format!("axis {axis} has the size 0; at least 1 is needed"));
                }
                // (size − 1)·stride − 2·padding + kernel
                (size - 1)
                    .checked_mul(conv.stride[axis])
                    .and_then(|reach| reach.checked_add(kernel))
                    .and_then(|reach| reach.checked_sub(2 * padding))
                    .filter(|&size| size > 0)
                    .ok_or_else(|| {
                        format!(
                            "axis {axis} of size {size} becomes empty or overflows with kernel \
                             {kernel} and padding {padding}"
                        )
                    })
            }
            Self::Pool(pool) => windows(axis, size, pool.size[axis], pool.stride[axis], 0),
            Self::Upsample { factor, .. } | Self::PixelShuffle(factor) => size
                .checked_mul(*factor)
                .ok_or_else(|| format!("axis {axis} of size {size} times {factor} overflows")),
            Self::PixelUnshuffle(factor) => {
                if size.is_multiple_of(*factor) {
                    Ok(size / factor)
                } else {
                    Err(format!(
                        "axis {axis} has the size {size}; a multiple of {factor} is needed"
                    ))
                }
            }
            Self::Input { .. }
            | Self::Activation(_)
            | Self::Add
            | Self::Concat
            | Self::Affine { .. }
            | Self::Scale(_)
            | Self::Foreign(_) => Ok(size),
        }
    }
}

/// How many windows of `kernel` fit into a padded axis.
fn windows(
    axis: usize,
    size: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
) -> Result<usize, String> {
    let padded = size.saturating_add(padding.saturating_mul(2));
    if size == 0 || padded < kernel {
        return Err(format!(
            "axis {axis} has the size {size}; with padding {padding} and kernel {kernel} \
             at least {} is needed",
            kernel.saturating_sub(2 * padding).max(1)
        ));
    }
    Ok((padded - kernel) / stride + 1)
}

/// A convolution (a correlation, as everywhere in deep learning).
///
/// ```
/// use haloscope_nn::{Conv, PaddingMode, Shape, Tensor};
///
/// let weight = Tensor::filled(Shape::new([64, 3, 3, 3])?, 0.1);
/// let conv = Conv::new(weight).padding(1).mode(PaddingMode::Circular);
/// assert_eq!((conv.inputs(), conv.outputs(), conv.kernel()), (3, 64, &[3, 3][..]));
/// # Ok::<(), haloscope_nn::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Conv {
    /// Output channels × input channels × kernel.
    pub weight: Tensor,
    /// One value per output channel.
    pub bias: Option<Tensor>,
    /// The step between windows on each axis.
    pub stride: Vec<usize>,
    /// How much is added on both sides of each axis.
    pub padding: Vec<usize>,
    /// What is added there.
    pub mode: PaddingMode,
}

impl Conv {
    /// A convolution with stride 1, no padding and no bias.
    #[must_use]
    pub fn new(weight: Tensor) -> Self {
        let rank = weight.shape().spatial().len();
        Self {
            weight,
            bias: None,
            stride: vec![1; rank],
            padding: vec![0; rank],
            mode: PaddingMode::Zero,
        }
    }

    /// With another kind of padding.
    #[must_use]
    pub fn mode(mut self, mode: PaddingMode) -> Self {
        self.mode = mode;
        self
    }

    /// The number of input channels.
    #[must_use]
    pub fn inputs(&self) -> usize {
        self.weight.shape().channels()
    }

    /// The number of output channels.
    #[must_use]
    pub fn outputs(&self) -> usize {
        self.weight.shape().batch()
    }
}

/// A transposed convolution: the adjoint of a [`Conv`] with zero padding.
#[derive(Clone, Debug, PartialEq)]
pub struct ConvTranspose {
    /// Input channels × output channels × kernel.
    pub weight: Tensor,
    /// One value per output channel.
    pub bias: Option<Tensor>,
    /// The step between windows of the output on each axis.
    pub stride: Vec<usize>,
    /// How much is cut from both sides of each axis of the output.
    pub padding: Vec<usize>,
}

impl ConvTranspose {
    /// A transposed convolution with stride 1, no padding and no bias.
    #[must_use]
    pub fn new(weight: Tensor) -> Self {
        let rank = weight.shape().spatial().len();
        Self { weight, bias: None, stride: vec![1; rank], padding: vec![0; rank] }
    }

    /// The number of input channels.
    #[must_use]
    pub fn inputs(&self) -> usize {
        self.weight.shape().batch()
    }

    /// The number of output channels.
    #[must_use]
    pub fn outputs(&self) -> usize {
        self.weight.shape().channels()
    }
}

/// What convolutions and transposed ones have in common: fields of the same names and meanings.
macro_rules! settings {
    ($conv:ident) => {
        impl $conv {
            /// With a bias, or without.
            #[must_use]
            pub fn bias(mut self, bias: impl Into<Option<Tensor>>) -> Self {
                self.bias = bias.into();
                self
            }

            /// With the same stride on all axes.
            #[must_use]
            pub fn stride(mut self, stride: usize) -> Self {
                self.stride.fill(stride);
                self
            }

            /// With the same padding on all axes.
            #[must_use]
            pub fn padding(mut self, padding: usize) -> Self {
                self.padding.fill(padding);
                self
            }

            /// The kernel's size on each axis.
            #[must_use]
            pub fn kernel(&self) -> &[usize] {
                self.weight.shape().spatial()
            }
        }
    };
}

settings!(Conv);
settings!(ConvTranspose);

/// What a convolution sees outside the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PaddingMode {
    /// Zeros.
    Zero,
    /// The image mirrored at its first and last pixel, which are not repeated.
    Reflect,
    /// The nearest pixel.
    Replicate,
    /// The image again, as if it were periodic.
    Circular,
}

impl PaddingMode {
    /// The mode's name as it appears in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Zero => "zero",
            Self::Reflect => "reflect",
            Self::Replicate => "replicate",
            Self::Circular => "circular",
        }
    }

    /// Where the value at `position` of an axis of `size` pixels comes from; `None` is zero. The
    /// position may be outside by as much as the padding that [`infer`](crate::Network::infer)
    /// accepts.
    #[must_use]
    pub fn source(self, position: isize, size: usize) -> Option<usize> {
        let last = size.cast_signed() - 1;
        let inside = match self {
            _ if (0..=last).contains(&position) => position,
            Self::Zero => return None,
            Self::Reflect if position < 0 => -position,
            Self::Reflect => 2 * last - position,
            Self::Replicate => position.clamp(0, last),
            Self::Circular => position.rem_euclid(last + 1),
        };
        Some(inside.cast_unsigned())
    }
}

/// A function of each value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activation {
    /// `max(x, 0)`
    Relu,
    /// `x` where positive, `slope · x` elsewhere.
    LeakyRelu(f32),
    /// `x` where positive, `alpha · (exp(x) − 1)` elsewhere.
    Elu(f32),
    /// `ln(1 + exp(x))`
    Softplus,
}

impl Activation {
    /// The value at `x`.
    #[must_use]
    pub fn apply(self, x: f64) -> f64 {
        match self {
            // Not `max`, which would hide a NaN.
            Self::Relu => {
                if x < 0.0 {
                    0.0
                } else {
                    x
                }
            }
            Self::LeakyRelu(slope) => {
                if x > 0.0 {
                    x
                } else {
                    f64::from(slope) * x
                }
            }
            Self::Elu(alpha) => {
                if x > 0.0 {
                    x
                } else {
                    f64::from(alpha) * x.exp_m1()
                }
            }
            // The larger of 0 and x is taken out so that the exponential cannot overflow.
            Self::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
        }
    }
}

/// The mean or the maximum over windows, without padding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// What is taken of a window.
    pub kind: PoolKind,
    /// The size of a window on each axis.
    pub size: Vec<usize>,
    /// The step between windows on each axis.
    pub stride: Vec<usize>,
}

impl Pool {
    /// Windows of `size` on each of `rank` axes that touch but do not overlap.
    #[must_use]
    pub fn new(kind: PoolKind, rank: usize, size: usize) -> Self {
        Self { kind, size: vec![size; rank], stride: vec![size; rank] }
    }
}

/// What is taken of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PoolKind {
    /// The mean.
    Average,
    /// The maximum.
    Max,
}

/// How values between pixels are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UpsampleMode {
    /// The nearest pixel.
    Nearest,
    /// Linear on each axis (bilinear, trilinear) between pixel centres; beyond the outermost
    /// centres the outermost pixel (PyTorch's `align_corners=False`).
    Linear,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_sources_are_those_of_the_extended_image() {
        let row = |mode: PaddingMode| -> Vec<Option<usize>> {
            (-2..6).map(|position| mode.source(position, 4)).collect()
        };
        let some = |list: [usize; 8]| list.map(Some).to_vec();
        assert_eq!(row(PaddingMode::Reflect), some([2, 1, 0, 1, 2, 3, 2, 1]));
        assert_eq!(row(PaddingMode::Replicate), some([0, 0, 0, 1, 2, 3, 3, 3]));
        assert_eq!(row(PaddingMode::Circular), some([2, 3, 0, 1, 2, 3, 0, 1]));
        let zero = [None, None, Some(0), Some(1), Some(2), Some(3), None, None];
        assert_eq!(row(PaddingMode::Zero), zero);
    }

    #[test]
    fn softplus_neither_overflows_nor_vanishes() {
        assert!((Activation::Softplus.apply(0.0) - 2f64.ln()).abs() < 1e-15);
        assert!((Activation::Softplus.apply(1000.0) - 1000.0).abs() < 1e-15);
        assert!(Activation::Softplus.apply(-50.0) > 0.0);
    }
}
