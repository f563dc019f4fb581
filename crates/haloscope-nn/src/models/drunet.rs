//! DRUNet (Zhang et al. 2021): a U-Net of residual blocks over four scales that takes the noise
//! level as a map. Class `deepinv.models.DRUNet`.

use super::{Architecture, Model, Parameters, Sigma, bad_option};
use crate::builder::NetworkBuilder;
use crate::error::Result;
use crate::network::NodeId;
use crate::op::{Activation, Op, Pool, PoolKind, UpsampleMode};

/// The options of a DRUNet. The default is that of the published colour checkpoint.
///
/// ```
/// use haloscope_nn::models::{Architecture, Drunet};
///
/// let gray = Drunet { image_channels: 1, output_channels: 1, ..Drunet::default() };
/// let parameters = gray.parameters()?;
/// assert_eq!(parameters[0].0, "m_head.weight");
/// assert_eq!(parameters[0].1.sizes(), [64, 2, 3, 3]);
/// # Ok::<(), haloscope_nn::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Drunet {
    /// Spatial axes: 2 or 3 (`dim`).
    pub rank: usize,
    /// Channels of the image, without the noise map (`in_channels`).
    pub image_channels: usize,
    /// Channels of the result (`out_channels`).
    pub output_channels: usize,
    /// Channels at each scale, from full size to an eighth (`nc`).
    pub channels: [usize; 4],
    /// Residual blocks at each scale, on the way down and on the way up (`nb`).
    pub blocks: usize,
    /// The activation within the blocks (`act_mode`; deepinv's LeakyReLU has the slope 0.2).
    pub activation: Activation,
    /// How a scale becomes the next smaller one (`downsample_mode`).
    pub downsampling: Downsampling,
    /// How a scale becomes the next larger one (`upsample_mode`).
    pub upsampling: Upsampling,
    /// What the scales are along the depth of volumes; of no effect on images.
    pub depth: Depth,
}

/// What the scales of a network for volumes are along their depth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Depth {
    /// As along the other sides: cubic kernels, and each scale has half the planes (`dim = 3` in deepinv).
    #[default]
    Halved,
    /// All scales have all planes. Kernels lie in the plane, but for the first of each block at the two finest scales, which
    /// is 3 planes deep: a network for images whose slices see their neighbours.
    Kept,
}

/// How a scale becomes the next smaller one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Downsampling {
    /// A convolution of windows of 2 that do not overlap (`strideconv`).
    StridedConv,
    /// The mean over such windows, then a convolution (`avgpool`).
    AveragePool,
    /// The maximum over such windows, then a convolution (`maxpool`).
    MaxPool,
}

/// How a scale becomes the next larger one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Upsampling {
    /// A transposed convolution of windows of 2 that do not overlap (`convtranspose`).
    ConvTranspose,
    /// A convolution to four times the channels, which then become space (`pixelshuffle`); not in
    /// three dimensions.
    PixelShuffle,
    /// The nearest pixel, then a convolution (`upconv`).
    Upconv,
}

/// The stages of the two finest scales.
const FINE_STAGES: [&str; 4] = ["m_down1", "m_down2", "m_up1", "m_up2"];

/// Far beyond any use.
const MOST_BLOCKS: usize = 1000;

impl Default for Drunet {
    fn default() -> Self {
        Self {
            rank: 2,
            image_channels: 3,
            output_channels: 3,
            channels: [64, 128, 256, 512],
            blocks: 4,
            activation: Activation::Relu,
            downsampling: Downsampling::StridedConv,
            upsampling: Upsampling::ConvTranspose,
            depth: Depth::Halved,
        }
    }
}

impl Architecture for Drunet {
    fn build(&self, parameters: &mut Parameters<'_>) -> Result<Model> {
        if self.blocks > MOST_BLOCKS {
            let reason =
                format!("{} blocks per scale; 0 to {MOST_BLOCKS} are possible", self.blocks);
            return Err(bad_option("drunet", reason));
        }
        if self.rank == 3 && self.upsampling == Upsampling::PixelShuffle {
            return Err(bad_option(
                "drunet",
                "pixel shuffling in three dimensions; transposed and nearest upsampling are \
                 possible there"
                    .into(),
            ));
        }
        if self.keeps_depth()
            && (self.downsampling, self.upsampling)
                != (Downsampling::StridedConv, Upsampling::ConvTranspose)
        {
            return Err(bad_option(
                "drunet",
                format!(
                    "{:?} and {:?} with scales that keep the depth; StridedConv and ConvTranspose are possible there",
                    self.downsampling, self.upsampling
                ),
            ));
        }
        let mut layers = Layers {
            options: self,
            parameters,
            builder: NetworkBuilder::new("drunet", self.rank)?,
        };
        let [full, half, quarter, eighth] = self.channels;
        let with_map = self.image_channels.saturating_add(1);
        let input = layers.builder.input(with_map)?;
        let x1 = layers.conv("m_head", [with_map, full], input)?;
        let x2 = layers.down("m_down1", [full, half], x1)?;
        let x3 = layers.down("m_down2", [half, quarter], x2)?;
        let x4 = layers.down("m_down3", [quarter, eighth], x3)?;
        let x = layers.body("m_body", eighth, x4)?;
        let x = layers.up("m_up3", [eighth, quarter], [x, x4])?;
        let x = layers.up("m_up2", [quarter, half], [x, x3])?;
        let x = layers.up("m_up1", [half, full], [x, x2])?;
        let x = layers.sum("m_tail.input", [x, x1])?;
        let x = layers.conv("m_tail", [full, self.output_channels], x)?;
        Ok(Model::new(layers.builder.finish(x)?, Sigma::Map))
    }
}

impl Drunet {
    fn keeps_depth(&self) -> bool {
        self.rank == 3 && self.depth == Depth::Kept
    }

    /// The same on all sides, or in the plane with so much along the depth.
    fn sizes(&self, plane: usize, depth: usize) -> Vec<usize> {
        if self.keeps_depth() { vec![depth, plane, plane] } else { vec![plane; self.rank] }
    }
}

struct Layers<'a, 'b> {
    options: &'a Drunet,
    parameters: &'a mut Parameters<'b>,
    builder: NetworkBuilder,
}

impl Layers<'_, '_> {
    /// Blocks, then the step to the smaller scale.
    fn down(&mut self, stage: &str, channels: [usize; 2], input: NodeId) -> Result<NodeId> {
        let blocks = self.options.blocks;
        let x = self.blocks(stage, channels[0], 0, input)?;
        let pool = match self.options.downsampling {
            Downsampling::StridedConv => {
                let layer = member(stage, blocks, blocks == 0);
                let window = self.options.sizes(2, 1);
                let mut conv = self.parameters.conv(&layer, channels, &window, false)?;
                conv.stride = window;
                return self.builder.conv(layer, conv, x);
            }
            Downsampling::AveragePool => PoolKind::Average,
            Downsampling::MaxPool => PoolKind::Max,
        };
        let pool = Op::Pool(Pool::new(pool, self.options.rank, 2));
        let x = self.builder.push(format!("{stage}.{blocks}"), pool, &[x])?;
        self.conv(&format!("{stage}.{}", blocks + 1), channels, x)
    }

    fn body(&mut self, stage: &str, channels: usize, input: NodeId) -> Result<NodeId> {
        if self.options.blocks == 1 {
            // A sequence of one is not a sequence in deepinv, so the block has no number.
            return self.block(stage, channels, input);
        }
        self.blocks(stage, channels, 0, input)
    }

    /// The sum with the skip, the step to the larger scale, then blocks.
    fn up(&mut self, stage: &str, channels: [usize; 2], inputs: [NodeId; 2]) -> Result<NodeId> {
        let x = self.sum(&format!("{stage}.input"), inputs)?;
        let [_, outputs] = channels;
        let (x, taken) = match self.options.upsampling {
            Upsampling::ConvTranspose => {
                let layer = member(stage, 0, self.options.blocks == 0);
                let window = self.options.sizes(2, 1);
                let mut conv = self.parameters.conv_transpose(&layer, channels, &window, false)?;
                conv.stride = window;
                (self.builder.conv_transpose(layer, conv, x)?, 1)
            }
            Upsampling::PixelShuffle => {
                let x =
                    self.conv(&format!("{stage}.0"), [channels[0], outputs.saturating_mul(4)], x)?;
                (self.builder.push(format!("{stage}.1"), Op::PixelShuffle(2), &[x])?, 2)
            }
            Upsampling::Upconv => {
                let nearest = Op::Upsample { factor: 2, mode: UpsampleMode::Nearest };
                let x = self.builder.push(format!("{stage}.0"), nearest, &[x])?;
                (self.conv(&format!("{stage}.1"), channels, x)?, 2)
            }
        };
        self.blocks(stage, outputs, taken, x)
    }

    /// Residual blocks numbered from `first`.
    fn blocks(
        &mut self,
        stage: &str,
        channels: usize,
        first: usize,
        input: NodeId,
    ) -> Result<NodeId> {
        (first..first + self.options.blocks)
            .try_fold(input, |x, number| self.block(&format!("{stage}.{number}"), channels, x))
    }

    /// `x + conv(activation(conv(x)))`
    fn block(&mut self, name: &str, channels: usize, input: NodeId) -> Result<NodeId> {
        let stage = name.split('.').next().unwrap_or_default();
        let planes = if FINE_STAGES.contains(&stage) { 3 } else { 1 };
        let x = self.conv_through(&format!("{name}.res.0"), [channels; 2], planes, input)?;
        let activation = self.options.activation;
        let x = self.builder.activation(format!("{name}.res.1"), activation, x)?;
        let x = self.conv(&format!("{name}.res.2"), [channels; 2], x)?;
        self.sum(name, [input, x])
    }

    fn conv(&mut self, layer: &str, channels: [usize; 2], input: NodeId) -> Result<NodeId> {
        self.conv_through(layer, channels, 1, input)
    }

    /// A convolution that keeps all sides, through so many planes where the scales keep the depth.
    fn conv_through(
        &mut self,
        layer: &str,
        channels: [usize; 2],
        planes: usize,
        input: NodeId,
    ) -> Result<NodeId> {
        let kernel = self.options.sizes(3, planes);
        let mut conv = self.parameters.conv(layer, channels, &kernel, false)?;
        conv.padding = kernel.iter().map(|size| size / 2).collect();
        self.builder.conv(layer, conv, input)
    }

    fn sum(&mut self, name: &str, inputs: [NodeId; 2]) -> Result<NodeId> {
        self.builder.push(name, Op::Add, &inputs)
    }
}

/// The name of a stage's layer; the only layer of a stage has the stage's.
fn member(stage: &str, number: usize, alone: bool) -> String {
    if alone { stage.to_owned() } else { format!("{stage}.{number}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::footprint::{Footprint, NetworkCost};
    use crate::shape::Shape;

    fn count(model: &Drunet) -> usize {
        let parameters = model.parameters().expect("the options are good");
        parameters.iter().map(|(_, shape)| shape.count()).sum()
    }

    #[test]
    fn default_has_the_parameters_of_the_published_checkpoint() {
        assert_eq!(count(&Drunet::default()), 32_640_960);
    }

    #[test]
    fn default_has_the_geometry_and_cost_of_the_published_network() {
        // The graph alone: 130 MB of weights are of no use here.
        let model = Drunet::default().build(&mut Parameters::listing()).expect("good options");
        let footprint = Footprint::of(model.network()).expect("same size");
        assert_eq!(footprint.alignment, [8, 8]);
        assert_eq!(footprint.minimum, [8, 8]);
        // 18 convolutions at full size, 16 at a half, 16 at a quarter and 8 at an eighth, and up to
        // 7 pixels because blocks of 8 share what lies below.
        assert_eq!(footprint.radius, [18 + 2 * 16 + 4 * 16 + 8 * 8 + 7; 2]);
        let cost = NetworkCost::of(model.network(), &Shape::new([1, 4, 256, 256]).expect("small"));
        assert_eq!(cost.expect("aligned").multiply_adds, 138_776_936_448);
    }

    #[test]
    fn kept_depth_needs_no_alignment_and_the_first_convolutions_of_fine_blocks_see_neighbours() {
        let options = Drunet { rank: 3, depth: Depth::Kept, blocks: 2, ..Drunet::default() };
        let model = options.build(&mut Parameters::listing()).expect("good options");
        let footprint = Footprint::of(model.network()).expect("same size");
        assert_eq!(footprint.alignment, [1, 8, 8]);
        // Two blocks on the way down and two on the way up, at two scales.
        assert_eq!(footprint.radius[0], 8);
        let flat =
            Drunet { rank: 2, ..options.clone() }.build(&mut Parameters::listing()).expect("good");
        assert_eq!(footprint.radius[1..], Footprint::of(flat.network()).expect("same size").radius);
        let pooled = Drunet { downsampling: Downsampling::MaxPool, ..options.clone() };
        let error = pooled.parameters().expect_err("halves the depth").to_string();
        assert!(error.contains("MaxPool") && error.contains("StridedConv"), "{error}");
    }

    #[test]
    fn volumes_have_the_same_names_and_cubic_kernels() {
        let flat = Drunet::default();
        let volume = Drunet { rank: 3, ..Drunet::default() };
        let flat = flat.parameters().expect("good");
        let volume = volume.parameters().expect("good");
        for ((flat, shape), (name, cubic)) in flat.iter().zip(&volume) {
            assert_eq!(flat, name);
            assert_eq!(cubic.sizes()[..4], *shape.sizes());
        }
    }
}
