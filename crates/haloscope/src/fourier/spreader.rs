//! The kernel on its own, for sums over planes that are no grid of an image.

use super::kernel::Kernel;

/// How much closer planes are than they would have to be.
const OVERSAMPLING: f64 = 2.0;

/// A kernel that spreads samples to planes a unit apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spreader(Kernel);

impl Spreader {
    /// The narrowest kernel of an accuracy, if there is one.
    pub(crate) fn new(accuracy: f64) -> Option<Self> {
        Kernel::for_accuracy(accuracy, OVERSAMPLING, 1).map(Self)
    }

    /// The planes that a sample touches.
    pub(crate) fn width(&self) -> usize {
        self.0.width
    }

    /// The highest frequency, in turns from plane to plane, at which it has its accuracy.
    pub(crate) fn most_turns() -> f64 {
        0.5 / OVERSAMPLING
    }

    /// The kernel at a distance from its middle, in planes.
    pub(crate) fn value(&self, distance: f64) -> f64 {
        let t = 2.0 * distance / self.0.width as f64;
        if t.abs() > 1.0 { 0.0 } else { self.0.value(t) }
    }

    /// Its Fourier transform.
    pub(crate) fn transform(&self, turns: f64) -> f64 {
        self.0.transform(turns)
    }
}
