//! Supplies a model's parameters by name while it is built, and collects those that do not fit.
//!
//! A missing parameter is replaced by a tensor that has its shape but no values, so that building
//! continues and the error can list everything at once. Such a network never leaves this crate.

use std::collections::BTreeSet;

use crate::error::{Error, Result};
use crate::op::{Conv, ConvTranspose};
use crate::shape::Shape;
use crate::tensor::Tensor;
use crate::weights::StateDict;

/// Where the weights of a model come from while it is built.
#[derive(Debug)]
pub struct Parameters<'a> {
    source: Source<'a>,
    taken: BTreeSet<String>,
    list: Vec<(String, Shape)>,
    missing: Vec<String>,
    wrong_shape: Vec<String>,
}

#[derive(Debug)]
enum Source<'a> {
    State(&'a StateDict),
    Random(fastrand::Rng),
    Listing,
}

impl<'a> Parameters<'a> {
    pub(crate) fn from_state(state: &'a StateDict) -> Self {
        Self::new(Source::State(state))
    }

    pub(crate) fn random(seed: u64) -> Self {
        Self::new(Source::Random(fastrand::Rng::with_seed(seed)))
    }

    pub(crate) fn listing() -> Self {
        Self::new(Source::Listing)
    }

    fn new(source: Source<'a>) -> Self {
        let (taken, list, missing, wrong_shape) = Default::default();
        Self { source, taken, list, missing, wrong_shape }
    }

    /// The parameter of this name and these sizes.
    pub fn take(&mut self, name: &str, sizes: &[usize]) -> Result<Tensor> {
        let shape = Shape::new(sizes)?;
        self.taken.insert(name.to_owned());
        self.list.push((name.to_owned(), shape.clone()));
        match &mut self.source {
            Source::Listing => Ok(Tensor::hollow(shape)),
            Source::Random(random) => Ok(random_tensor(name, shape, random)),
            Source::State(state) => match state.get(name) {
                Some(tensor) if *tensor.shape() == shape => Ok(tensor.clone()),
                Some(tensor) => {
                    self.wrong_shape.push(format!("{name} is {}, not {shape}", tensor.shape()));
                    Ok(Tensor::hollow(shape))
                }
                None => {
                    self.missing.push(name.to_owned());
                    Ok(Tensor::hollow(shape))
                }
            },
        }
    }

    /// A convolution without stride and padding: `{layer}.weight`, and `{layer}.bias` if asked for.
    pub fn conv(
        &mut self,
        layer: &str,
        [inputs, outputs]: [usize; 2],
        kernel: &[usize],
        bias: bool,
    ) -> Result<Conv> {
        let weight = self.take(&format!("{layer}.weight"), &sizes([outputs, inputs], kernel))?;
        Ok(Conv::new(weight).bias(self.bias(layer, outputs, bias)?))
    }

    /// As [`conv`](Self::conv), transposed.
    pub fn conv_transpose(
        &mut self,
        layer: &str,
        [inputs, outputs]: [usize; 2],
        kernel: &[usize],
        bias: bool,
    ) -> Result<ConvTranspose> {
        let weight = self.take(&format!("{layer}.weight"), &sizes([inputs, outputs], kernel))?;
        Ok(ConvTranspose::new(weight).bias(self.bias(layer, outputs, bias)?))
    }

    fn bias(&mut self, layer: &str, outputs: usize, bias: bool) -> Result<Option<Tensor>> {
        bias.then(|| self.take(&format!("{layer}.bias"), &[outputs])).transpose()
    }

    /// An error that lists everything that did not fit, if anything.
    pub(crate) fn finish(self) -> Result<()> {
        let Source::State(state) = self.source else { return Ok(()) };
        let unexpected: Vec<String> =
            state.names().filter(|name| !self.taken.contains(*name)).map(str::to_owned).collect();
        if self.missing.is_empty() && unexpected.is_empty() && self.wrong_shape.is_empty() {
            return Ok(());
        }
        Err(Error::Weights { missing: self.missing, unexpected, wrong_shape: self.wrong_shape })
    }

    pub(crate) fn into_list(self) -> Vec<(String, Shape)> {
        self.list
    }
}

fn sizes(channels: [usize; 2], kernel: &[usize]) -> Vec<usize> {
    channels.iter().chain(kernel).copied().collect()
}

/// Uniform values: for a kernel with the variance that keeps values before a ReLU at the same size
/// from layer to layer (He et al. 2015), near 1 for what multiplies, near 0 for what is added.
fn random_tensor(name: &str, shape: Shape, random: &mut fastrand::Rng) -> Tensor {
    let (middle, reach) = if shape.rank() > 1 {
        let fan_in =
            shape.sizes()[1..].iter().fold(1, |product: usize, &size| product.saturating_mul(size));
        (0.0, (6.0 / fan_in.max(1) as f64).sqrt())
    } else if name.ends_with(".weight") || name.ends_with("running_var") {
        (1.0, 0.5)
    } else {
        (0.0, 0.1)
    };
    #[allow(clippy::cast_possible_truncation)] // the rounding is the purpose
    Tensor::from_fn(shape, |_| (middle + reach * (2.0 * random.f64() - 1.0)) as f32)
}
