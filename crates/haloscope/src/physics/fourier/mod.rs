//! Instruments that measure Fourier transforms of images: MRI scanners and radio interferometers.
//!
//! Measurements are complex, and are two channels: the real parts and the imaginary parts. Images are complex in the same way,
//! or real with one channel; the adjoint then leaves the imaginary part out. [`complex`] goes from channels to complex numbers
//! and back.

mod calibration;
mod cartesian;
mod centred;
mod coils;
mod coverage;
mod footprint;
mod hermitian;
mod planes;
mod sampled;
mod spiral;
mod trajectory;
mod visibilities;
mod weighting;

pub use calibration::Calibration;
pub use cartesian::Cartesian;
#[cfg(feature = "hdf5")]
pub(crate) use centred::Centred;
pub use coils::birdcage;
pub use coverage::Coverage;
pub use footprint::Footprint;
pub use spiral::Spiral;
pub use trajectory::{Trajectory, radial};
pub use visibilities::Visibilities;
pub use weighting::Weighting;

use crate::error::{Error, Result};
use crate::fourier::Complex;

/// Complex numbers from their real parts and, behind them, their imaginary parts; real ones from one channel.
#[must_use]
pub fn complex(channels: usize, values: &[f32]) -> Vec<Complex<f32>> {
    if channels == 1 {
        return values.iter().map(|&real| Complex::new(real, 0.0)).collect();
    }
    let (real, imaginary) = values.split_at(values.len() / 2);
    real.iter().zip(imaginary).map(|(&re, &im)| Complex::new(re, im)).collect()
}

/// Refuses images that are neither real nor complex, or have not two or three sides.
fn check_image(operator: &str, shape: &[usize]) -> Result<()> {
    let fits = matches!(shape.len(), 3 | 4) && matches!(shape[0], 1 | 2) && !shape.contains(&0);
    if fits {
        return Ok(());
    }
    Err(Error::Shape {
        what: format!("the image of {operator}"),
        expected: "one channel (real) or two (complex), and two or three sides, are expected"
            .into(),
        found: shape.to_vec(),
    })
}

/// Complex values of all pixels from an array (2, spatial…), or real ones from (1, spatial…).
fn pixel_values(
    operator: &str,
    role: &str,
    sides: &[usize],
    values: &crate::View,
) -> Result<Vec<Complex<f32>>> {
    let found = values.shape();
    if found.len() != sides.len() + 1 || found[1..] != *sides || !matches!(found[0], 1 | 2) {
        return Err(Error::Shape {
            what: format!("the {role} of {operator}"),
            expected: format!("one or two channels of {sides:?} are expected"),
            found: found.to_vec(),
        });
    }
    let values = values.as_standard_layout();
    let values = values.as_slice().unwrap_or_default();
    if values.iter().all(|value| value.is_finite()) {
        return Ok(complex(found[0], values));
    }
    Err(Error::argument(operator, format!("the {role} has values that are not finite")))
}
