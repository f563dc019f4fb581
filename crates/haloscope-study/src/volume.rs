//! A volume of a file as the truth of `tomography-3d`, in the place of the phantom.
//!
//! The process that runs a study reads the file once, and leaves a volume of the sides that are measured beside the
//! results; measuring processes read that. So their memory is that of the reconstruction, however large the file is.

use std::collections::BTreeSet;
use std::path::Path;

use haloscope::io::{self, ReadOptions, WriteOptions};
use haloscope::{Array, Digest};
use ndarray::{Array3, ArrayView3, Ix5};

use crate::error::{Error, Result};
use crate::trial::Trial;

/// A volume with values from 0 to 1.
///
/// ```
/// use haloscope::io::{self, WriteOptions};
/// use haloscope_study::volume::Volume;
/// use ndarray::ArrayD;
///
/// let folder = tempfile::tempdir()?;
/// let file = folder.path().join("head.nii.gz");
/// let values = ArrayD::from_shape_fn(vec![1, 1, 4, 5, 6], |at| 100.0 * at[4] as f32);
/// io::write(&file, &values, &WriteOptions::default())?;
///
/// let volume = Volume::read(&file)?;
/// assert_eq!(volume.fitted(&[8, 8, 8]).shape(), [1, 1, 8, 8, 8]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Volume {
    /// (depth, height, width).
    values: Array3<f32>,
    /// The distance of neighbouring values along each axis.
    spacing: [f64; 3],
    digest: String,
}

impl Volume {
    /// Reads a file of finite values that are not all the same; the smallest becomes 0 and the largest 1.
    pub fn read(file: &Path) -> Result<Self> {
        let refuse =
            |reason: String| Error::argument("volume", format!("{}: {reason}", file.display()));
        // These name the file themselves.
        let image = io::read(file, &ReadOptions::default())
            .map_err(|error| Error::argument("volume", error.to_string()))?;
        let shape = image.array.shape().to_vec();
        let values = match image.array.into_dimensionality::<Ix5>() {
            Ok(values) if shape[..2] == [1, 1] && !values.is_empty() => {
                values.into_shape_with_order((shape[2], shape[3], shape[4]))
            }
            _ => {
                return Err(refuse(format!(
                    "its shape is {shape:?}; one volume of one channel, \
                     [1, 1, depth, height, width], is accepted"
                )));
            }
        };
        let values = values.map_err(|error| refuse(error.to_string()))?;
        if let Some(value) = values.iter().find(|value| !value.is_finite()) {
            return Err(refuse(format!("a value is {value}; all have to be finite")));
        }
        let least = values.iter().copied().fold(f32::INFINITY, f32::min);
        let most = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        if least == most {
            let reason = format!("all values are {least}; there is nothing to reconstruct");
            return Err(refuse(reason));
        }
        let spacing = spacing(image.spacing.as_deref());
        let mut digest = Digest::default();
        digest.add_bytes(
            &shape.iter().flat_map(|side| (*side as u64).to_le_bytes()).collect::<Vec<_>>(),
        );
        digest.add_bytes(&spacing.iter().flat_map(|step| step.to_le_bytes()).collect::<Vec<_>>());
        digest.add(&values);
        // In f64, where the largest range of f32 is finite.
        let range = f64::from(most) - f64::from(least);
        let values = values.mapv(|value| ((f64::from(value) - f64::from(least)) / range) as f32);
        Ok(Self { values, spacing, digest: digest.to_string() })
    }

    /// Tells volumes apart: a digest of the values as the file has them, of their shape and of their spacing.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The volume (1, 1, depth, height, width) in a box of these sides: all of it, as large as it fits, in the middle,
    /// with 0 around it. Voxels of the box are cubes, whatever those of the file are; their values are interpolated
    /// between the eight around their middle, without smoothing where the box has fewer than the file.
    #[must_use]
    pub fn fitted(&self, sides: &[usize; 3]) -> Array {
        let step = self.step(sides);
        let axes: [Vec<Option<Between>>; 3] = std::array::from_fn(|axis| {
            let count = self.values.len_of(ndarray::Axis(axis));
            between(count, sides[axis], step / self.spacing[axis])
        });
        let values = self.values.view();
        Array::from_shape_fn(vec![1, 1, sides[0], sides[1], sides[2]], |at| {
            match (axes[0][at[2]], axes[1][at[3]], axes[2][at[4]]) {
                (Some(z), Some(y), Some(x)) => interpolate(&values, [z, y, x]),
                _ => 0.0,
            }
        })
    }

    /// Saves a volume in `folder`, which it may make, for every shape that is reconstructed, and gives the trials its path.
    pub fn prepare(&self, folder: &Path, trials: &mut [Trial]) -> Result<()> {
        // Measuring processes may be started elsewhere.
        let folder = std::path::absolute(folder).map_err(|error| Error::file(folder, error))?;
        std::fs::create_dir_all(&folder).map_err(|error| Error::file(&folder, error))?;
        let mut written = BTreeSet::new();
        for trial in trials {
            let sides = trial.configuration.sides();
            let &[depth, height, width] = &sides[..] else { continue };
            let file = folder.join(format!("volume-{depth}x{height}x{width}.nii"));
            if written.insert(sides.clone()) {
                let sides = [depth, height, width];
                let spacing = Some(vec![self.step(&sides); 3]);
                let options = WriteOptions { spacing, ..WriteOptions::default() };
                io::write(&file, &self.fitted(&sides), &options)?;
            }
            trial.truth = Some(file);
        }
        Ok(())
    }

    /// The side of the box's voxels, in the unit of the spacing: that of the axis which leaves no room.
    fn step(&self, sides: &[usize; 3]) -> f64 {
        let of_axis = |axis: usize| {
            self.values.len_of(ndarray::Axis(axis)) as f64 * self.spacing[axis] / sides[axis] as f64
        };
        (0..3).map(of_axis).fold(0.0, f64::max)
    }
}

/// That of the file, or cubes where it does not say.
fn spacing(given: Option<&[f64]>) -> [f64; 3] {
    let is_length = |step: &f64| step.is_finite() && *step > 0.0;
    given
        .and_then(|given| given.try_into().ok())
        .filter(|given: &[f64; 3]| given.iter().all(is_length))
        .unwrap_or([1.0; 3])
}

/// A place between two values of an axis: the first, the second, and the share of the second.
type Between = (usize, usize, f32);

/// Where the middles of `sides` voxels are on an axis of `count` values, `step` of which they are wide; none where that
/// is beyond them.
fn between(count: usize, sides: usize, step: f64) -> Vec<Option<Between>> {
    let place = |index: usize| {
        // Both axes have their middle at 0, and voxels reach half a step to either side of their own.
        let middle = (index as f64 + 0.5 - sides as f64 / 2.0) * step;
        let place = middle + count as f64 / 2.0 - 0.5;
        if !(-0.5..=count as f64 - 0.5).contains(&place) {
            return None;
        }
        let place = place.clamp(0.0, (count - 1) as f64);
        let first = place.floor() as usize;
        Some((first, (first + 1).min(count - 1), place.fract() as f32))
    };
    (0..sides).map(place).collect()
}

/// Along one axis after the other.
fn interpolate(values: &ArrayView3<'_, f32>, [z, y, x]: [Between; 3]) -> f32 {
    let mix = |(_, _, share): Between, first: f32, second: f32| first + share * (second - first);
    let along_x = |z: usize, y: usize| mix(x, values[[z, y, x.0]], values[[z, y, x.1]]);
    let along_y = |z: usize| mix(y, along_x(z, y.0), along_x(z, y.1));
    mix(z, along_y(z.0), along_y(z.1)).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn write(folder: &Path, values: &Array, spacing: Option<Vec<f64>>) -> PathBuf {
        let file = folder.join("volume.nii");
        io::write(&file, values, &WriteOptions { spacing, ..WriteOptions::default() })
            .expect("a file");
        file
    }

    fn volume(values: &Array, spacing: Option<Vec<f64>>) -> Result<Volume> {
        let folder = tempfile::tempdir().expect("a folder");
        Volume::read(&write(folder.path(), values, spacing))
    }

    /// 10, 11, 12 … along the last axis.
    fn ramp(sides: [usize; 3]) -> Array {
        let [depth, height, width] = sides;
        Array::from_shape_fn(vec![1, 1, depth, height, width], |at| 10.0 + at[4] as f32)
    }

    #[test]
    fn a_box_of_the_same_sides_has_the_values_of_the_file_from_0_to_1() {
        let fitted = volume(&ramp([8, 8, 8]), None).expect("a volume").fitted(&[8, 8, 8]);
        assert_eq!(fitted, (ramp([8, 8, 8]) - 10.0) / 7.0);
    }

    #[test]
    fn a_finer_box_has_the_values_between() {
        let fitted = volume(&ramp([4, 4, 4]), None).expect("a volume").fitted(&[8, 8, 8]);
        // Middles at -0.25, 0.25, 0.75 … of the file's voxels; beyond the outermost middles nothing changes.
        let expected = [0.0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3.0].map(|value: f32| value / 3.0);
        for line in fitted.rows() {
            for (found, expected) in line.iter().zip(expected) {
                assert!((found - expected).abs() < 1e-6, "{line}");
            }
        }
    }

    #[test]
    fn long_volumes_are_whole_and_have_nothing_beside_them() {
        // Twice as deep as high, and of voxels that are half as wide as high: 16 x 8 x 4 in millimetres.
        let values = ramp([16, 8, 8]).mapv(|value| if value == 10.0 { 0.0 } else { 5.0 });
        let volume = volume(&values, Some(vec![1.0, 1.0, 0.5])).expect("a volume");
        let fitted = volume.fitted(&[16, 16, 16]);
        let extent = |axis: usize| {
            let places = fitted.indexed_iter().filter(|(_, value)| **value > 0.0);
            let places: BTreeSet<usize> = places.map(|(at, _)| at[axis]).collect();
            (places.first().copied(), places.last().copied())
        };
        assert_eq!(extent(2), (Some(0), Some(15)));
        assert_eq!(extent(3), (Some(4), Some(11)));
        assert_eq!(extent(4), (Some(6), Some(9)));
    }

    #[test]
    fn digests_tell_values_shapes_and_spacings_apart() {
        let digest = |values: &Array, spacing: Option<Vec<f64>>| {
            volume(values, spacing).expect("a volume").digest().to_owned()
        };
        let first = digest(&ramp([8, 8, 8]), None);
        assert_eq!(first, digest(&ramp([8, 8, 8]), None));
        assert_ne!(first, digest(&(ramp([8, 8, 8]) * 2.0), None));
        assert_ne!(first, digest(&ramp([8, 8, 8]), Some(vec![2.0, 1.0, 1.0])));
        assert_ne!(digest(&ramp([4, 8, 8]), None), digest(&ramp([8, 4, 8]), None));
    }

    #[test]
    fn what_is_no_volume_is_refused_by_name() {
        let mut broken = ramp([8, 8, 8]);
        broken[[0, 0, 3, 2, 1]] = f32::NAN;
        for (values, words) in [
            (broken, "a value is NaN"),
            (Array::ones(vec![1, 1, 8, 8, 8]), "all values are 1"),
            (Array::ones(vec![1, 1, 8, 8]), "its shape is [1, 1, 8, 8]; one volume"),
            (Array::ones(vec![1, 2, 8, 8, 8]), "its shape is [1, 2, 8, 8, 8]"),
        ] {
            let error = volume(&values, None).expect_err(words).to_string();
            assert!(error.contains("volume.nii: ") && error.contains(words), "{error}");
        }
        let error = Volume::read(Path::new("there/is/no.nii")).expect_err("no file").to_string();
        assert!(error.contains("there/is/no.nii"), "{error}");
    }
}
