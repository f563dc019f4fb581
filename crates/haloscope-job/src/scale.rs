//! How the values of a file become those from 0 to 1 that networks are trained for, and back.
//!
//! The one idea: nobody should have to say it for data whose range can be told, and what was chosen is printed.

use std::ops::RangeInclusive;
use std::path::Path;

use haloscope::array::extremes;
use haloscope::io::{Image, Scaling};
use haloscope::{Array, Error, Result};
use haloscope_comm::{Collectives, Context, Reduction};

/// Values that are 0 and 1 for a network.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    /// The value that is 0.
    pub black: f64,
    /// The value that is 1.
    pub white: f64,
    /// Where they are from, in a few words.
    pub reason: String,
}

/// The bits that cameras and their converters have.
const BITS: [u32; 5] = [8, 10, 12, 14, 16];

/// Between which shares of the values black and white are, where nothing else tells.
const MIDDLE: (f64, f64) = (0.001, 0.999);

/// Floats are from 0 to 1, but for noise, if their largest is in this range and their smallest is not below [`DIM`].
const BRIGHT: RangeInclusive<f32> = 0.2..=1.5;
const DIM: f32 = -0.5;

impl Scale {
    /// The value that is 1, as somebody says it.
    #[must_use]
    pub fn with_white(white: f64) -> Self {
        Self { black: 0.0, white, reason: "as given".into() }
    }

    /// Nearly all values are from 0 to 1, wherever they were.
    #[must_use]
    pub fn normalising(array: &Array) -> Self {
        let (black, white) = middle(array);
        Self { black, white, reason: "99.8 % of the values".into() }
    }

    /// The scale of an image whose values are as they are stored.
    #[must_use]
    pub fn automatic(image: &Image) -> Self {
        if let Some(scale) = Self::by_range(image, extremes(&image.array)) {
            return scale;
        }
        let (black, white) = middle(&image.array);
        // A background of little more or less than nothing is black.
        if black.abs() <= 0.1 * white {
            return Self { black: 0.0, white, reason: "99.9 % of the values are below".into() };
        }
        Self { black, white, reason: "99.8 % of the values".into() }
    }

    /// The scale of an image whose least and greatest value are known, if these tell. The values themselves may be
    /// elsewhere.
    #[must_use]
    pub fn by_range(image: &Image, (low, high): (f32, f32)) -> Option<Self> {
        if let Some(white) = image.sample.white().filter(|_| image.format.is_picture()) {
            let reason = format!("white of {}", image.format.name());
            return Some(Self { black: 0.0, white, reason });
        }
        let is_integer = !image.sample.is_float() && is_whole(image.scaling);
        if is_integer && low >= 0.0 {
            let holds = |bits: &&u32| high <= full_scale(**bits);
            // Few counts are far below the full scale of any camera.
            if let Some(bits) =
                BITS.iter().find(holds).filter(|bits| high >= full_scale(**bits) / 4.1)
            {
                let reason = format!("{bits} bits");
                return Some(Self { black: 0.0, white: full_scale(*bits).into(), reason });
            }
        }
        if !is_integer && BRIGHT.contains(&high) && low >= DIM {
            let reason = "values are there already".into();
            return Some(Self { black: 0.0, white: 1.0, reason });
        }
        None
    }

    /// The difference of white and black.
    #[must_use]
    pub fn range(&self) -> f64 {
        self.white - self.black
    }

    /// Values from 0 to 1.
    #[must_use]
    pub fn apply(&self, array: Array) -> Array {
        array.mapv_into(|value| ((f64::from(value) - self.black) / self.range()) as f32)
    }

    /// Values as they were.
    #[must_use]
    pub fn restore(&self, array: Array) -> Array {
        array.mapv_into(|value| (f64::from(value) * self.range() + self.black) as f32)
    }
}

fn full_scale(bits: u32) -> f32 {
    ((1_u32 << bits) - 1) as f32
}

/// Whether integers that are scaled so are integers.
fn is_whole(scaling: Scaling) -> bool {
    scaling.slope == 1.0 && scaling.offset.fract() == 0.0
}

/// The values that nearly all others are between, which are not the same.
fn middle(array: &Array) -> (f64, f64) {
    let mut values: Vec<f32> = array.iter().copied().collect();
    let last = values.len().saturating_sub(1) as f64;
    let mut at = |share: f64| {
        let index = (last * share).round() as usize;
        f64::from(*values.select_nth_unstable_by(index, f32::total_cmp).1)
    };
    let (low, high) = (at(MIDDLE.0), at(MIDDLE.1));
    if low < high {
        return (low, high);
    }
    // Little light in the dark, or none.
    let (low, high) = (at(0.0), at(1.0));
    if low < high { (low, high) } else { (low, low + low.abs().max(1.0)) }
}

/// The shares of values that are below and above what a file can hold, by more than a rounding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Clipped {
    /// The share of values that are too small.
    pub below: f64,
    /// The share of values that are too large.
    pub above: f64,
}

/// What is lost beyond this share is worth a word: noise reaches a little beyond black and white.
const WORTH_A_WORD: f64 = 0.01;

impl Clipped {
    /// Of an array in a file whose values are from `low` to `high`.
    pub(crate) fn of(array: &Array, (low, high): (f32, f32)) -> Self {
        Self::shares(Self::counts(array, (low, high)))
    }

    /// Of an array of which each rank has a part; all ranks call it.
    pub(crate) fn of_parts(ctx: &Context, part: &Array, range: (f32, f32)) -> Result<Self> {
        let mut counts = Self::counts(part, range);
        ctx.comm().all_reduce(Reduction::Sum, &mut counts)?;
        Ok(Self::shares(counts))
    }

    /// The values of an array that are below, those that are above, and all of them: parts of an array may be added up.
    pub(crate) fn counts(array: &Array, (low, high): (f32, f32)) -> [u64; 3] {
        let tolerance = 0.005 * (high - low);
        let count = |is_out: &dyn Fn(f32) -> bool| {
            array.iter().filter(|value| is_out(**value)).count() as u64
        };
        let below = count(&|value| value < low - tolerance);
        [below, count(&|value| value > high + tolerance), array.len() as u64]
    }

    /// The shares of so many values.
    pub(crate) fn shares([below, above, all]: [u64; 3]) -> Self {
        let share = |count: u64| count as f64 / all.max(1) as f64;
        Self { below: share(below), above: share(above) }
    }

    /// A warning, if there is something to say.
    pub(crate) fn warning(
        self,
        file: &str,
        (low, high): (f32, f32),
        advice: &str,
    ) -> Option<String> {
        (self.below + self.above >= WORTH_A_WORD).then(|| {
            format!(
                "{file} holds values from {low} to {high}, and {:.0} % are below and {:.0} % above; {advice}",
                100.0 * self.below,
                100.0 * self.above
            )
        })
    }
}

/// Refuses an image that a network would make nothing but more such values of.
pub fn check_finite(path: &Path, image: &Array) -> Result<()> {
    refuse_infinite(path, image.iter().filter(|value| !value.is_finite()).count(), image.len())
}

/// Refuses an image of which so many values are not finite.
pub(crate) fn refuse_infinite(path: &Path, count: usize, all: usize) -> Result<()> {
    if count == 0 {
        return Ok(());
    }
    Err(Error::Content {
        file: path.display().to_string(),
        reason: format!(
            "{count} of its {all} values are NaN or infinite, and a network spreads them; replace them first"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use haloscope::io::{self, ReadOptions, Sample, WriteOptions};

    fn image(name: &str, sample: Option<Sample>, value: impl Fn(usize) -> f32) -> Image {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(name);
        let array = Array::from_shape_fn(vec![1, 1, 40, 50], |at| value(at[2] * 50 + at[3]));
        let options = WriteOptions { sample, raw: true, ..WriteOptions::default() };
        io::write(&path, &array, &options).expect("written");
        let stored = ReadOptions { white: Some(1.0), ..ReadOptions::default() };
        io::read(&path, &stored).expect("read")
    }

    #[test]
    fn the_range_of_data_is_told_from_type_and_values() {
        let ramp = |most: f32| move |index: usize| index as f32 / 1999.0 * most;
        let automatic = |name: &str, sample, most: f32| {
            let scale = Scale::automatic(&image(name, sample, ramp(most)));
            (scale.black, (scale.white * 100.0).round() / 100.0)
        };
        assert_eq!(automatic("a.png", Some(Sample::U8), 30.0), (0.0, 255.0));
        assert_eq!(automatic("a.png", Some(Sample::U16), 30_000.0), (0.0, 65_535.0));
        // 12 bits in 16, as cameras write them.
        for name in ["a.tif", "a.npy", "a.nii"] {
            assert_eq!(automatic(name, Some(Sample::U16), 3900.0), (0.0, 4095.0), "{name}");
            assert_eq!(automatic(name, Some(Sample::U8), 200.0), (0.0, 255.0), "{name}");
        }
        assert_eq!(automatic("a.npy", Some(Sample::I32), 60_000.0), (0.0, 65_535.0));
        // Photons: fewer than any camera's full scale.
        assert_eq!(automatic("a.npy", Some(Sample::U16), 12.0), (0.0, 12.0));
        for (most, white) in [(1.0, 1.0), (0.7, 1.0), (1000.0, 999.0), (0.01, 0.01)] {
            assert_eq!(automatic("a.fits", None, most), (0.0, white), "{most}");
        }
    }

    #[test]
    fn data_that_are_far_from_0_are_moved() {
        let hounsfield = image("a.npy", None, |index| index as f32 - 1000.0);
        let scale = Scale::automatic(&hounsfield);
        assert_eq!((scale.black, scale.white), (-998.0, 997.0));
        let scaled = scale.apply(hounsfield.array.clone());
        let back = scale.restore(scaled.clone());
        assert!(scaled.iter().all(|value| (-0.01..1.01).contains(value)));
        assert!((&back - &hounsfield.array).iter().all(|difference| difference.abs() < 1e-3));
        let same = Scale::automatic(&image("a.npy", None, |_| 7.0));
        assert!(same.range() > 0.0, "{same:?}");
        // A few stars in the dark.
        let stars = Scale::automatic(&image("a.fits", None, |index| f32::from(index == 9) * 1e4));
        assert_eq!((stars.black, stars.white), (0.0, 1e4));
    }

    #[test]
    fn what_is_cut_off_is_counted() {
        let array = Array::from_shape_fn(vec![1, 1, 1, 10], |at| at[3] as f32 / 4.0 - 0.2);
        let clipped = Clipped::of(&array, (0.0, 1.0));
        assert_eq!((clipped.below, clipped.above), (0.1, 0.5));
        let words = clipped.warning("a.png", (0.0, 1.0), "choose another").expect("a warning");
        assert!(words.contains("10 % are below and 50 % above; choose another"), "{words}");
        let fine = Array::from_elem(vec![1, 1, 1, 10], 1.003);
        assert_eq!(Clipped::of(&fine, (0.0, 1.0)).warning("a.png", (0.0, 1.0), ""), None);
    }
}
