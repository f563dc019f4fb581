//! What a method remembers between steps.

use std::collections::BTreeMap;

use crate::array::Array;

/// The image, and whatever else a method needs to go on: all of it, so that a state that was saved continues to
/// the same bits. It is the same on all ranks, but for arrays that belong to operators, which are where those are: under
/// one name there is the same array wherever there is one.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// The iterations that are done.
    pub iteration: usize,
    /// The image so far.
    pub image: Array,
    /// Other arrays, by the method's own names.
    pub arrays: BTreeMap<String, Array>,
    /// Numbers, by the method's own names.
    pub numbers: BTreeMap<String, f64>,
}

impl State {
    /// The beginning, at an image.
    #[must_use]
    pub fn new(image: Array) -> Self {
        Self { iteration: 0, image, arrays: BTreeMap::new(), numbers: BTreeMap::new() }
    }

    /// Takes an array out; `default` at the first step.
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
