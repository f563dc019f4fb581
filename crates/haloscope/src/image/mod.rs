//! Images in a layout: the same arithmetic for images that every rank holds and for images in parts.
//!
//! An [`Image`] knows where its values are. What is done to each element is done to this rank's part and sends nothing; products,
//! norms and extremes are those of the whole image, with the same bits in every layout and on any number of ranks. So a solver is
//! written once. `README.md` in this folder says why layouts are values and not type parameters, and how sums are defined.
#![doc = include_str!("README.md")]

mod layout;
mod spread;
mod sum;
mod window;

use std::ops::Range;
use std::sync::Arc;

use haloscope_comm::Collectives;

use crate::array::{self, Array, View, slice_mut, standard};
use crate::error::{Error, Result};
use crate::region::{copied, place};

pub use crate::region::Region;
pub use layout::{Layout, Space};
pub use sum::{RUN, Sum};

pub(crate) use layout::{dot_on_ranks, totals};
pub(crate) use sum::{add_row, add_runs, sum_of};
pub(crate) use window::{Needed, WindowPlan};

/// An image, or any array, in a layout.
///
/// ```
/// use haloscope::image::{Image, Layout};
///
/// // An array that all ranks have is a replicated image.
/// let mut image = Image::from(ndarray::ArrayD::from_elem(vec![1, 1, 4, 4], 2.0));
/// image.scale(0.5);
/// assert_eq!((image.layout(), image.norm()?), (&Layout::Replicated, 4.0));
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Debug, PartialEq)]
pub struct Image {
    layout: Layout,
    /// In standard layout.
    local: Array,
}

impl Clone for Image {
    fn clone(&self) -> Self {
        Self { layout: self.layout.clone(), local: array::copy_of(&self.local) }
    }
}

impl From<Array> for Image {
    /// A replicated image: all ranks have the same array.
    fn from(array: Array) -> Self {
        Self { layout: Layout::Replicated, local: standard(array) }
    }
}

impl Image {
    /// This rank's part of an image in shards.
    pub fn sharded(space: &Arc<Space>, local: Array) -> Result<Self> {
        if local.shape() != space.own_shape() {
            return Err(Error::Shape {
                what: "the part of an image".into(),
                expected: format!("{:?} is this rank's part", space.own_shape()),
                found: local.shape().to_vec(),
            });
        }
        Ok(Self { layout: Layout::Sharded(space.clone()), local: standard(local) })
    }

    /// This rank's part of an array that it has as a whole.
    pub fn cut(space: &Arc<Space>, whole: &View) -> Result<Self> {
        if whole.shape() != space.whole() {
            return Err(Error::Shape {
                what: "the image to cut into shards".into(),
                expected: format!("{:?} was planned for", space.whole()),
                found: whole.shape().to_vec(),
            });
        }
        Self::sharded(space, copied(whole, space.own()))
    }

    /// Other values in the same layout: this rank's part of them.
    pub fn with(&self, local: Array) -> Result<Self> {
        match &self.layout {
            Layout::Replicated => Ok(local.into()),
            Layout::Sharded(space) => Self::sharded(space, local),
        }
    }

    /// Zeros in the same layout.
    #[must_use]
    pub fn zeros_like(&self) -> Self {
        Self { layout: self.layout.clone(), local: Array::zeros(self.local.raw_dim()) }
    }

    /// Zeros of this layout with one more axis, of so many places, before axis `at`.
    #[must_use]
    pub(crate) fn zeros_with_axis(&self, at: usize, places: usize) -> Self {
        let mut shape = self.local.shape().to_vec();
        shape.insert(at, places);
        let layout = match &self.layout {
            Layout::Replicated => Layout::Replicated,
            Layout::Sharded(space) => Layout::Sharded(space.with_axis(at, places)),
        };
        Self { layout, local: Array::zeros(shape) }
    }

    /// Where the values are.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The shape of the whole image: (batch, channel, spatial…).
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        match &self.layout {
            Layout::Replicated => self.local.shape(),
            Layout::Sharded(space) => space.whole(),
        }
    }

    /// Which part of it this rank has.
    #[must_use]
    pub fn region(&self) -> Region {
        match &self.layout {
            Layout::Replicated => self.local.shape().iter().map(|side| 0..*side).collect(),
            Layout::Sharded(space) => space.own().clone(),
        }
    }

    /// The values that this rank has.
    #[must_use]
    pub fn local(&self) -> &Array {
        &self.local
    }

    /// The values that this rank has, to be changed in place. Their shape stays.
    pub(crate) fn local_mut(&mut self) -> &mut Array {
        &mut self.local
    }

    /// The values that this rank has, to be given up.
    #[must_use]
    pub fn into_local(self) -> Array {
        self.local
    }

    /// The whole image, if this rank has it.
    ///
    /// # Errors
    /// If the image is sharded; [`gather`](Self::gather) brings its parts together.
    pub fn whole(&self) -> Result<&Array> {
        match &self.layout {
            Layout::Replicated => Ok(&self.local),
            Layout::Sharded(_) => Err(only_a_part()),
        }
    }

    /// The whole image, to be given up.
    ///
    /// # Errors
    /// If the image is sharded; [`gather`](Self::gather) brings its parts together.
    pub fn into_whole(self) -> Result<Array> {
        match &self.layout {
            Layout::Replicated => Ok(self.local),
            Layout::Sharded(_) => Err(only_a_part()),
        }
    }

    /// The whole image on every rank, which takes the memory that shards are there to save. All ranks call it.
    #[expect(clippy::missing_panics_doc, reason = "a part has the size of its region")]
    pub fn gather(&self) -> Result<Array> {
        let Layout::Sharded(space) = &self.layout else { return Ok(self.local.clone()) };
        let volume = |region: &Region| region.iter().map(Range::len).product::<usize>();
        let counts: Vec<usize> = space.regions().iter().map(volume).collect();
        let mut parts = vec![0.0; counts.iter().sum()];
        space.context().comm().all_gather_into(self.values(), &counts, &mut parts)?;
        let mut whole = Array::zeros(space.whole());
        let mut rest = &parts[..];
        for (region, count) in space.regions().iter().zip(counts) {
            let (part, others) = rest.split_at(count);
            rest = others;
            let shape: Vec<usize> = region.iter().map(Range::len).collect();
            if count > 0 {
                let part = Array::from_shape_vec(shape, part.to_vec()).expect("its region's size");
                place(&mut whole, region, &part);
            }
        }
        Ok(whole)
    }

    /// `self ← self + a x`.
    pub fn add_scaled(&mut self, a: f32, x: &Self) -> Result<()> {
        self.update(x, |y, x| *y += a * x)
    }

    /// `self ← x + b self`.
    pub fn scale_and_add(&mut self, b: f32, x: &Self) -> Result<()> {
        self.update(x, |y, x| *y = x + b * *y)
    }

    /// `self ← a self`.
    pub fn scale(&mut self, a: f32) {
        array::scale(slice_mut(&mut self.local), a);
    }

    /// Replaces every value by `f` of it.
    pub fn map(&mut self, f: impl Fn(f32) -> f32 + Sync) {
        array::map_in_place(&mut self.local, f);
    }

    /// Clamps all values to a range, if there is one.
    pub fn clamp(&mut self, range: Option<(f32, f32)>) {
        if let Some((low, high)) = range {
            self.map(|value| value.clamp(low, high));
        }
    }

    /// `f(y, x)` of every element.
    ///
    /// # Errors
    /// If the images are not in one layout.
    pub fn update(&mut self, x: &Self, f: impl Fn(&mut f32, f32) + Sync) -> Result<()> {
        self.check(x)?;
        array::update(slice_mut(&mut self.local), x.values(), f);
        Ok(())
    }

    /// `f(y, a, b)` of every element.
    ///
    /// # Errors
    /// If the images are not in one layout.
    pub fn update_from_two(
        &mut self,
        (a, b): (&Self, &Self),
        f: impl Fn(&mut f32, f32, f32) + Sync,
    ) -> Result<()> {
        self.check(a)?;
        self.check(b)?;
        array::update_from_two(slice_mut(&mut self.local), (a.values(), b.values()), f);
        Ok(())
    }

    /// Σ aᵢ bᵢ, in f64.
    pub fn dot(&self, other: &Self) -> Result<f64> {
        Self::sum([self, other], |[a, b]| f64::from(a) * f64::from(b))
    }

    /// Σ aᵢ², in f64.
    pub fn squared_norm(&self) -> Result<f64> {
        Self::sum([self], |[a]| f64::from(a) * f64::from(a))
    }

    /// √Σ aᵢ², in f64.
    pub fn norm(&self) -> Result<f64> {
        Ok(self.squared_norm()?.sqrt())
    }

    /// √Σ (aᵢ − bᵢ)², in f64.
    pub fn distance(&self, other: &Self) -> Result<f64> {
        let square = |[a, b]: [f32; 2]| (f64::from(a) - f64::from(b)).powi(2);
        Ok(Self::sum([self, other], square)?.sqrt())
    }

    /// The smallest and the largest value, ignoring NaN; +∞ and −∞ without any.
    pub fn extremes(&self) -> Result<(f32, f32)> {
        self.layout.extremes(array::extremes(&self.local))
    }

    /// Σ f(aᵢ, …) over the elements of images in one layout, in f64.
    ///
    /// # Errors
    /// If the images are not in one layout.
    pub fn sum<const N: usize>(
        images: [&Self; N],
        f: impl Fn([f32; N]) -> f64 + Sync,
    ) -> Result<f64> {
        let Some(first) = images.first() else { return Ok(0.0) };
        let [total] = first.layout.totals([Self::share(images, f)?])?;
        Ok(total)
    }

    /// This rank's share of such a sum: several of them become [totals](Layout::totals) in one message.
    pub(crate) fn share<const N: usize>(
        images: [&Self; N],
        f: impl Fn([f32; N]) -> f64 + Sync,
    ) -> Result<Sum> {
        let Some(first) = images.first() else { return Ok(Sum::default()) };
        images.iter().try_for_each(|image| first.check(image))?;
        Ok(sum_of(images.map(Self::values), array::row_of(&first.local), f))
    }

    fn values(&self) -> &[f32] {
        self.local.as_slice().expect("images are in standard layout")
    }

    fn check(&self, other: &Self) -> Result<()> {
        if self.layout == other.layout && self.local.shape() == other.local.shape() {
            return Ok(());
        }
        let words = |image: &Self| match image.layout {
            Layout::Replicated => format!("replicated, of shape {:?}", image.shape()),
            Layout::Sharded(_) => {
                format!("in shards, of shape {:?}, {:?} of it here", image.shape(), image.region())
            }
        };
        let reason = format!(
            "one is {}, the other {}; images of one layout can be combined",
            words(self),
            words(other)
        );
        Err(Error::argument("images", reason))
    }
}

fn only_a_part() -> Error {
    Error::argument("image", "this rank has only a part of it; `gather` brings all parts together")
}

#[cfg(test)]
mod tests;
