//! What a method remembers between steps.

use std::collections::BTreeMap;

use crate::array::{Array, standard};

/// The image and everything else that a method needs to continue, so that a saved state resumes bit for bit. It is the
/// same on all ranks, except for arrays that belong to operators: these are only on the ranks that own the operator, and
/// an array has the same content under the same name wherever it is present.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// The number of completed iterations.
    pub iteration: usize,
    /// The image so far.
    pub image: Array,
    /// Other arrays, by the method's own names.
    pub arrays: BTreeMap<String, Array>,
    /// Numbers, by the method's own names.
    pub numbers: BTreeMap<String, f64>,
}

impl State {
    /// The state before the first iteration, at an image.
    #[must_use]
    pub fn new(image: Array) -> Self {
        Self { iteration: 0, image, arrays: BTreeMap::new(), numbers: BTreeMap::new() }
    }

    /// Brings all arrays into standard layout, in which steps change them where they are.
    pub(super) fn make_standard(&mut self) {
        for array in std::iter::once(&mut self.image).chain(self.arrays.values_mut()) {
            *array = standard(std::mem::take(array));
        }
    }

    /// Removes an array and returns it, or `default` at the first step.
    pub(super) fn take(&mut self, name: &str, default: impl FnOnce(&Array) -> Array) -> Array {
        self.arrays.remove(name).unwrap_or_else(|| default(&self.image))
    }

    pub(super) fn put(&mut self, name: &str, array: Array) {
        self.arrays.insert(name.to_owned(), array);
    }

    pub(super) fn number(&self, name: &str) -> Option<f64> {
        self.numbers.get(name).copied()
    }

    pub(super) fn set_number(&mut self, name: &str, number: f64) {
        self.numbers.insert(name.to_owned(), number);
    }
}
