//! The sizes of an array: (batch, channel, spatial…) for images, anything for weights.

use std::fmt;

use crate::error::{Error, Result};

/// The sizes of an array, slowest axis first. The number of elements always fits in memory's
/// address range (at most `isize::MAX` bytes of `f32`).
///
/// ```
/// use haloscope_nn::Shape;
///
/// let shape = Shape::new([1, 3, 256, 320])?;
/// assert_eq!((shape.batch(), shape.channels(), shape.spatial()), (1, 3, &[256, 320][..]));
/// assert_eq!(shape.to_string(), "1×3×256×320");
/// # Ok::<(), haloscope_nn::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Shape {
    sizes: Box<[usize]>,
}

impl Shape {
    /// A shape with these sizes; refused if its `f32` elements could not be addressed.
    pub fn new(sizes: impl Into<Box<[usize]>>) -> Result<Self> {
        let sizes = sizes.into();
        let mut bytes = size_of::<f32>();
        let mut empty = false;
        for &size in &sizes {
            empty |= size == 0;
            bytes = bytes.saturating_mul(size.max(1));
        }
        if !empty && isize::try_from(bytes).is_err() {
            return Err(Error::Argument {
                what: "shape",
                reason: format!(
                    "{} has more elements than memory can address",
                    Self { sizes: sizes.clone() }
                ),
            });
        }
        Ok(Self { sizes })
    }

    /// The shape of a list that is in memory already.
    pub(crate) fn of_list<T>(list: &[T]) -> Self {
        Self { sizes: [list.len()].into() }
    }

    /// All sizes, slowest axis first.
    #[must_use]
    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// The number of axes.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.sizes.len()
    }

    /// The number of elements; 1 for a shape without axes.
    #[must_use]
    pub fn count(&self) -> usize {
        // With a zero size the product of the others may not fit, but then it does not matter.
        if self.sizes.contains(&0) { 0 } else { self.sizes.iter().product() }
    }

    /// The first size, of an image's shape; 1 for a shape without axes.
    #[must_use]
    pub fn batch(&self) -> usize {
        self.sizes.first().copied().unwrap_or(1)
    }

    /// The second size, of an image's shape; 1 for a shape with fewer axes.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.sizes.get(1).copied().unwrap_or(1)
    }

    /// The sizes after batch and channel; empty for a shape with fewer axes.
    #[must_use]
    pub fn spatial(&self) -> &[usize] {
        self.sizes.get(2..).unwrap_or_default()
    }

    /// This shape with another number of channels.
    pub(crate) fn with_channels(&self, channels: usize) -> Result<Self> {
        Self::image(self.batch(), channels, self.spatial())
    }

    /// The shape of a batch of images or volumes.
    pub fn image(batch: usize, channels: usize, spatial: &[usize]) -> Result<Self> {
        let mut sizes = Vec::with_capacity(2 + spatial.len());
        sizes.extend([batch, channels]);
        sizes.extend(spatial);
        Self::new(sizes)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.sizes.is_empty() {
            return f.write_str("scalar");
        }
        for (axis, size) in self.sizes.iter().enumerate() {
            if axis > 0 {
                f.write_str("×")?;
            }
            write!(f, "{size}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shape({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shape_that_memory_cannot_address_is_refused() {
        let error = Shape::new([usize::MAX, 2, 3]).expect_err("too many elements");
        assert!(error.to_string().contains("2×3 has more elements"), "{error}");
    }

    #[test]
    fn zero_size_makes_any_shape_empty() {
        let shape = Shape::new([usize::MAX, usize::MAX, 0]).expect("no elements");
        assert_eq!(shape.count(), 0);
    }
}
