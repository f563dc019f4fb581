//! A closure as a denoiser.

use std::fmt;

use super::{Denoiser, NoiseLevel};
use crate::array::{Array, View};
use crate::error::Result;

/// A closure with a name; see [`denoiser_fn`].
pub struct FunctionDenoiser<F> {
    name: String,
    function: F,
}

/// A denoiser that calls `function`.
///
/// ```
/// use haloscope::denoise::{Denoiser, denoiser_fn};
///
/// let halve = denoiser_fn("halve", |image, _level| Ok(image * 0.5));
/// let image = ndarray::ArrayD::ones(vec![1, 1, 4, 4]);
/// assert_eq!(halve.denoise(&image, &0.1.into())?[[0, 0, 2, 3]], 0.5);
/// # Ok::<(), haloscope::Error>(())
/// ```
pub fn denoiser_fn<F>(name: impl Into<String>, function: F) -> FunctionDenoiser<F>
where
    F: Fn(&View, &NoiseLevel) -> Result<Array> + Send + Sync,
{
    FunctionDenoiser { name: name.into(), function }
}

impl<F> fmt::Debug for FunctionDenoiser<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FunctionDenoiser").field(&self.name).finish()
    }
}

impl<F> Denoiser for FunctionDenoiser<F>
where
    F: Fn(&View, &NoiseLevel) -> Result<Array> + Send + Sync,
{
    fn name(&self) -> &str {
        &self.name
    }

    fn denoise(&self, image: &View, level: &NoiseLevel) -> Result<Array> {
        (self.function)(image, level)
    }
}
