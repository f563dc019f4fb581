//! An array of `f32` with a shape, shared when cloned: weights, and the reference executor's images.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::shape::Shape;

/// A shape and its values in row-major order. Cloning shares the values.
///
/// ```
/// use haloscope_nn::{Shape, Tensor};
///
/// let tensor = Tensor::new(Shape::new([2, 3])?, vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0])?;
/// assert_eq!(tensor.values()[3], 3.0);
/// # Ok::<(), haloscope_nn::Error>(())
/// ```
#[derive(Clone, PartialEq)]
pub struct Tensor {
    shape: Shape,
    values: Arc<[f32]>,
}

impl Tensor {
    /// A tensor of these values; their number must be that of the shape.
    pub fn new(shape: Shape, values: impl Into<Arc<[f32]>>) -> Result<Self> {
        let values = values.into();
        if values.len() != shape.count() {
            return Err(Error::Argument {
                what: "tensor",
                reason: format!(
                    "{} values for the shape {shape}, which needs {}",
                    values.len(),
                    shape.count()
                ),
            });
        }
        Ok(Self { shape, values })
    }

    /// A tensor whose every value is `value`.
    #[must_use]
    pub fn filled(shape: Shape, value: f32) -> Self {
        let values = std::iter::repeat_n(value, shape.count()).collect();
        Self { shape, values }
    }

    /// A tensor whose values come from their place in row-major order.
    #[must_use]
    pub fn from_fn(shape: Shape, value: impl FnMut(usize) -> f32) -> Self {
        let values = (0..shape.count()).map(value).collect();
        Self { shape, values }
    }

    /// A shape without values, for the parameters of a model that is built only to see what it
    /// needs. Whoever makes one must not let it out of this crate.
    pub(crate) fn hollow(shape: Shape) -> Self {
        Self { shape, values: Arc::new([]) }
    }

    /// Whether the values are not there.
    pub(crate) fn is_hollow(&self) -> bool {
        self.values.len() != self.shape.count()
    }

    /// Values computed from those of a tensor of shape `shape`, hollow if that is.
    pub(crate) fn like(shape: &Shape, values: Vec<f32>) -> Self {
        debug_assert!(values.is_empty() || values.len() == shape.count());
        Self { shape: shape.clone(), values: values.into() }
    }

    /// A tensor with one axis.
    #[must_use]
    pub fn vector(values: Vec<f32>) -> Self {
        Self { shape: Shape::of_list(&values), values: values.into() }
    }

    /// The sizes.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The values in row-major order.
    #[must_use]
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// Whether no clone shares the values.
    pub(crate) fn is_only_owner(&self) -> bool {
        Arc::strong_count(&self.values) == 1
    }

    /// The same shape with each value replaced; `map` gets the index along the first axis.
    #[must_use]
    pub(crate) fn map_by_first_axis(&self, mut map: impl FnMut(usize, f32) -> f32) -> Self {
        let run = (self.values.len() / self.shape.batch().max(1)).max(1);
        let values =
            self.values.iter().enumerate().map(|(at, &value)| map(at / run, value)).collect();
        Self { shape: self.shape.clone(), values }
    }
}

/// The shape and the first few values: weights are too long to print.
impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 4;
        let shown = &self.values[..self.values.len().min(SHOWN)];
        let dots = if self.values.len() > SHOWN { " …" } else { "" };
        write!(f, "Tensor({}, {shown:?}{dots})", self.shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_number_of_values_is_refused() {
        let shape = Shape::new([2, 2]).expect("small");
        let error = Tensor::new(shape, vec![0.0; 3]).expect_err("one value too few");
        assert_eq!(error.to_string(), "tensor: 3 values for the shape 2×2, which needs 4");
    }
}
