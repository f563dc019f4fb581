//! What a method remembers between steps.

use std::collections::BTreeMap;

use crate::image::Image;

/// The image and everything else that a method needs to continue, so that a saved state resumes bit for bit.
///
/// Replicated arrays are the same on all ranks, except for those that belong to operators: these are only on the ranks that own
/// the operator, and an array has the same content under the same name wherever it is present. Of sharded arrays each rank has
/// its part.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// The number of completed iterations.
    pub iteration: usize,
    /// The image so far.
    pub image: Image,
    /// Other arrays, by the method's own names, each in its layout.
    pub arrays: BTreeMap<String, Image>,
    /// Numbers, by the method's own names.
    pub numbers: BTreeMap<String, f64>,
}

impl State {
    /// The state before the first iteration, at an image.
    #[must_use]
    pub fn new(image: impl Into<Image>) -> Self {
        let (arrays, numbers) = (BTreeMap::new(), BTreeMap::new());
        Self { iteration: 0, image: image.into(), arrays, numbers }
    }

    /// Removes an array and returns it, or `default` at the first step.
    pub(super) fn take(&mut self, name: &str, default: impl FnOnce(&Image) -> Image) -> Image {
        self.arrays.remove(name).unwrap_or_else(|| default(&self.image))
    }

    pub(super) fn put(&mut self, name: &str, array: Image) {
        self.arrays.insert(name.to_owned(), array);
    }

    pub(super) fn number(&self, name: &str) -> Option<f64> {
        self.numbers.get(name).copied()
    }

    pub(super) fn set_number(&mut self, name: &str, number: f64) {
        self.numbers.insert(name.to_owned(), number);
    }
}
