//! Stretches: images of a large dynamic range, as a denoiser that was trained on pictures can see them.

use crate::denoise::NoiseLevel;
use crate::error::{Error, Result};

/// A monotone map of values that keeps 0 and 1 and spreads faint ones, with an exact inverse; it is odd, so that negative values
/// are treated as positive ones.
///
/// Faint noise of a standard deviation `σ` has one of about `slope · σ` after it, where the [slope](Self::slope) is that at the
/// background, 0. Bright pixels then have less noise than the denoiser is told.
///
/// ```
/// use haloscope::solve::Stretch;
///
/// let stretch = Stretch::asinh(1000.0)?;
/// assert!(stretch.apply(0.001) > 0.1 && stretch.apply(1.0) == 1.0);
/// assert!((stretch.undo(stretch.apply(0.25)) - 0.25).abs() < 1e-5);
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch {
    curve: Curve,
    dynamic_range: f64,
    /// What the curve is at the dynamic range.
    most: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Curve {
    Asinh,
    Log,
}

impl Stretch {
    /// `asinh(D x) / asinh(D)`: linear up to about `1 / D`, logarithmic above.
    pub fn asinh(dynamic_range: f64) -> Result<Self> {
        Self::new(Curve::Asinh, dynamic_range)
    }

    /// `ln(1 + D x) / ln(1 + D)`.
    pub fn log(dynamic_range: f64) -> Result<Self> {
        Self::new(Curve::Log, dynamic_range)
    }

    fn new(curve: Curve, dynamic_range: f64) -> Result<Self> {
        if !(dynamic_range > 0.0 && dynamic_range <= 1e12) {
            return Err(Error::argument(
                "dynamic range",
                format!("{dynamic_range} is given; a number above 0, and up to 1e12, is expected"),
            ));
        }
        let most = match curve {
            Curve::Asinh => dynamic_range.asinh(),
            Curve::Log => dynamic_range.ln_1p(),
        };
        Ok(Self { curve, dynamic_range, most })
    }

    /// A value as the denoiser sees it.
    #[must_use]
    pub fn apply(&self, value: f32) -> f32 {
        let size = self.dynamic_range * f64::from(value.abs());
        let found = match self.curve {
            Curve::Asinh => size.asinh(),
            Curve::Log => size.ln_1p(),
        };
        ((found / self.most) as f32).copysign(value)
    }

    /// The value that the denoiser sees as this one.
    #[must_use]
    pub fn undo(&self, value: f32) -> f32 {
        let size = self.most * f64::from(value.abs());
        let found = match self.curve {
            Curve::Asinh => size.sinh(),
            Curve::Log => size.exp_m1(),
        };
        ((found / self.dynamic_range) as f32).copysign(value)
    }

    /// How steep it is at 0, where it is the steepest.
    #[must_use]
    pub fn slope(&self) -> f64 {
        self.dynamic_range / self.most
    }

    /// The level of noise after it, of noise of a level around 0.
    #[must_use]
    pub fn level(&self, level: &NoiseLevel) -> NoiseLevel {
        let mapped = |level: f32| (f64::from(level) * self.slope()) as f32;
        match level {
            NoiseLevel::Uniform(level) => NoiseLevel::Uniform(mapped(*level)),
            NoiseLevel::PerImage(levels) => {
                NoiseLevel::PerImage(levels.iter().copied().map(mapped).collect())
            }
            NoiseLevel::Map(levels) => NoiseLevel::Map(levels.mapv(mapped)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_is_monotone_and_undone() -> Result<()> {
        for range in [1e-3, 1.0, 1e3, 1e6] {
            for stretch in [Stretch::asinh(range)?, Stretch::log(range)?] {
                assert_eq!((stretch.apply(0.0), stretch.apply(1.0)), (0.0, 1.0));
                let mut last = f32::NEG_INFINITY;
                for index in -300..=300_i16 {
                    // From -2 to 2, and dense around 0.
                    let value = 2.0 * (f32::from(index) / 300.0).powi(5);
                    let seen = stretch.apply(value);
                    assert!(seen > last || index == 0 || value.abs() < 1e-9, "{range:e}: {value}");
                    last = seen;
                    let error = (stretch.undo(seen) - value).abs();
                    // Rounding of what is seen is that of the logarithm.
                    assert!(error <= 3e-6 * value.abs(), "{range:e}: {value} {error:e}");
                    assert_eq!(stretch.apply(-value), -seen);
                }
            }
        }
        Ok(())
    }

    #[test]
    fn the_slope_is_what_noise_at_the_background_grows_by() -> Result<()> {
        for stretch in [Stretch::asinh(1e3)?, Stretch::log(1e3)?] {
            let step = 1e-7;
            let slope = f64::from(stretch.apply(step)) / f64::from(step);
            assert!((slope / stretch.slope() - 1.0).abs() < 1e-3);
            let NoiseLevel::Uniform(level) = stretch.level(&1e-4.into()) else { panic!("one") };
            assert!((f64::from(level) - 1e-4 * stretch.slope()).abs() < 1e-8);
        }
        let error = Stretch::log(-1.0).expect_err("negative").to_string();
        assert!(error.contains("-1") && error.contains("1e12"), "{error}");
        Ok(())
    }
}
