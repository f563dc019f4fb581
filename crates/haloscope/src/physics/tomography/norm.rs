//! The factor that gives a projector the norm 1.
//!
//! A projector has no negative weights, so neither has its largest singular vector: Lanczos' method
//! from an image of ones starts near it and needs a few steps only.

use crate::error::{Error, Result};
use crate::least_squares::{LinearMap, largest};

/// The residual at which the iteration stops, of which the error of the norm is about the square, and the most steps that it takes.
const TOLERANCE: f64 = 1e-3;
const STEPS: usize = 100;

/// The factor that gives a projector the norm 1, to about 1e-4. Ranks that have a part of the views each find it together,
/// by [`as_map`](crate::distribute::DistributedStack::as_map), and so do ranks that have a part of the image, by a
/// [`ShardedStack`](crate::distribute::ShardedStack).
///
/// ```
/// use haloscope::physics::tomography::{ParallelBeam, Tomography2d, evenly_spaced, unit_factor};
///
/// let scan = ParallelBeam::new(evenly_spaced(20, std::f64::consts::PI), 24);
/// let operator = Tomography2d::new(&[1, 16, 16], scan)?;
/// let factor = unit_factor(&operator)?;
/// assert!((unit_factor(&operator.scaled(factor)?)? - 1.0).abs() < 1e-3);
/// # Ok::<(), haloscope::Error>(())
/// ```
///
/// # Errors
/// If no ray meets the image.
pub fn unit_factor<M: LinearMap + ?Sized>(projector: &M) -> Result<f64> {
    // Channels are measured alike, but an operator takes all that it has.
    let found = largest(projector, projector.image_of(&|_| 1.0), TOLERANCE, STEPS)?;
    if found.value <= 0.0 {
        return Err(Error::argument(
            "tomography",
            "no ray meets the image, so that no factor can give the operator a norm of 1",
        ));
    }
    Ok(1.0 / found.value.sqrt())
}
