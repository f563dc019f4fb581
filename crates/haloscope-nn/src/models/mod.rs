//! Models as deepinv 0.5.0 defines them, with the same parameter names, so that checkpoints load
//! without conversion.
//!
//! A model's options are a plain struct that implements [`Architecture`]: it can list its parameters,
//! be loaded from a [`StateDict`] with a strict check, or be filled with random weights. There is one
//! model per file. [`Model::recognize`] detects the options from the weights.

mod builtin;
mod dncnn;
mod drunet;
mod fdncnn;
mod name;
mod parameters;
mod recognize;
mod unet;

pub use builtin::Builtin;
pub use dncnn::{Dncnn, DncnnNames};
pub use drunet::{Depth, Downsampling, Drunet, Upsampling};
pub use fdncnn::Fdncnn;
pub use name::ModelName;
pub use parameters::Parameters;
pub use recognize::{Recognized, recognize};
pub use unet::{BatchNorm, Unet};

use std::ops::RangeInclusive;

use crate::error::{Error, Result};
use crate::network::Network;
use crate::shape::Shape;
use crate::tensor::Tensor;
use crate::weights::StateDict;

/// A denoiser: a network, and how the noise level enters it.
#[derive(Clone, Debug)]
pub struct Model {
    network: Network,
    sigma: Sigma,
    levels: RangeInclusive<f32>,
}

/// How the noise level enters a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sigma {
    /// As one more channel after the image's, which holds the standard deviation at each pixel in
    /// the units of the image.
    Map,
    /// Not at all: the network denoises blindly, or for one level.
    Ignored,
}

impl Model {
    /// A model of this network.
    #[must_use]
    pub fn new(network: Network, sigma: Sigma) -> Self {
        Self { network, sigma, levels: 0.0..=f32::MAX }
    }

    /// The model, for these noise levels only: a network answers to levels that it was not trained for with
    /// artefacts, not with an error.
    #[must_use]
    pub fn with_levels(mut self, levels: RangeInclusive<f32>) -> Self {
        self.levels = levels;
        self
    }

    /// The noise levels that it is for.
    #[must_use]
    pub fn levels(&self) -> &RangeInclusive<f32> {
        &self.levels
    }

    /// Refuses a noise level that the network was not trained for, if it uses the level at all.
    pub fn check_level(&self, level: f32) -> Result<()> {
        if self.sigma == Sigma::Ignored || self.levels.contains(&level) {
            return Ok(());
        }
        let (low, high) = (self.levels.start(), self.levels.end());
        Err(Error::Argument {
            what: "noise level",
            reason: format!("{level}; this {} is for {low} to {high}", self.network.name()),
        })
    }

    /// The network. With [`Sigma::Map`] its input has the map's channel.
    #[must_use]
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The network, without the model: for [`Engine::plan_consuming`](crate::engine::Engine::plan_consuming).
    #[must_use]
    pub fn into_network(self) -> Network {
        self.network
    }

    /// How the noise level enters.
    #[must_use]
    pub fn sigma(&self) -> Sigma {
        self.sigma
    }

    /// The channels of the images that the model takes, without the map.
    #[must_use]
    pub fn image_channels(&self) -> usize {
        self.network.input_channels() - usize::from(self.sigma == Sigma::Map)
    }

    /// The network's input for a batch of images with the same noise level everywhere.
    pub fn input(&self, image: &Tensor, sigma: f32) -> Result<Tensor> {
        let shape = image.shape();
        let channels = self.image_channels();
        if shape.rank() != 2 + self.network.rank() || shape.channels() != channels {
            return Err(Error::Argument {
                what: "image",
                reason: format!(
                    "the shape {shape}; {} takes batch×{channels} and {} spatial sizes",
                    self.network.name(),
                    self.network.rank()
                ),
            });
        }
        if self.sigma == Sigma::Ignored {
            return Ok(image.clone());
        }
        self.check_level(sigma)?;
        let pixels: usize = shape.spatial().iter().product();
        let with_map = shape.with_channels(channels + 1)?;
        let mut values = Vec::with_capacity(with_map.count());
        for member in image.values().chunks_exact((channels * pixels).max(1)) {
            values.extend_from_slice(member);
            values.extend(std::iter::repeat_n(sigma, pixels));
        }
        Tensor::new(with_map, values)
    }
}

/// The options of a model, from which it can be built.
pub trait Architecture {
    /// Builds the model, taking every weight from `parameters` by name.
    fn build(&self, parameters: &mut Parameters<'_>) -> Result<Model>;

    /// The model with the weights in `state`. Its names and shapes must be exactly those of the
    /// model: whatever is missing, unexpected or of another shape is listed in one error.
    fn load(&self, state: &StateDict) -> Result<Model> {
        let mut parameters = Parameters::from_state(state);
        let model = self.build(&mut parameters);
        // Weights that do not fit are the reason for whatever else went wrong.
        parameters.finish()?;
        model
    }

    /// The model with random weights that keep values of the size of the input's, the same for the
    /// same seed: for benchmarks and tests.
    fn random(&self, seed: u64) -> Result<Model> {
        self.build(&mut Parameters::random(seed))
    }

    /// The names and shapes of the model's parameters, in the order of its layers.
    fn parameters(&self) -> Result<Vec<(String, Shape)>> {
        let mut parameters = Parameters::listing();
        self.build(&mut parameters)?;
        Ok(parameters.into_list())
    }
}

/// A parameter of a model that makes no network.
fn bad_option(what: &'static str, reason: String) -> Error {
    Error::Argument { what, reason }
}
