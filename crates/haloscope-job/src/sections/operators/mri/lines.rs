//! Which frequencies of a grid are measured.

use std::path::PathBuf;

use haloscope::io::{self, ReadOptions};
use haloscope::{Array, Error, Result};
use ndarray::Axis;

use crate::document::Section;

/// The lines of a grid that are measured.
#[derive(Clone, Debug)]
pub(super) enum Lines {
    All,
    /// A file with what each frequency is multiplied with.
    File(PathBuf),
    /// One line of so many along the first axis, by chance, and this part of them in the middle.
    Random {
        acceleration: f64,
        calibration: f64,
        seed: u64,
    },
}

impl Lines {
    pub(super) fn read(section: &Section) -> Result<Self> {
        let file = section.path("mask")?;
        let acceleration = section.positive("acceleration")?;
        match (file, acceleration) {
            (Some(_), Some(_)) => Err(section
                .place()
                .refuse("`mask` and `acceleration` are given; one of them is expected")),
            (Some(path), None) => Ok(Self::File(path)),
            (None, Some(acceleration)) if acceleration >= 1.0 => {
                let calibration = section.not_negative("calibration")?.unwrap_or(0.08);
                if calibration * acceleration > 1.0 {
                    return Err(section.place_of("calibration").refuse(format!(
                        "{calibration} of the lines in the middle are more than one of {acceleration}; {} or less is expected",
                        1.0 / acceleration
                    )));
                }
                let seed = section.get::<usize>("seed")?.unwrap_or(0) as u64;
                Ok(Self::Random { acceleration, calibration, seed })
            }
            (None, Some(acceleration)) => Err(section
                .place_of("acceleration")
                .refuse(format!("{acceleration} is given; 1 (all lines) or more is expected"))),
            (None, None) => Ok(Self::All),
        }
    }

    /// What each frequency is multiplied with, (1, spatial…).
    pub(super) fn mask(&self, image: &[usize]) -> Result<Option<Array>> {
        let mut shape = image.to_vec();
        shape[0] = 1;
        match self {
            Self::All => Ok(None),
            Self::File(path) => {
                let read =
                    io::read(path, &ReadOptions::default())?.array.index_axis_move(Axis(0), 0);
                if let Some(value) = read.iter().find(|value| !value.is_finite()) {
                    let reason = format!("the mask holds {value}; finite numbers are expected");
                    return Err(Error::Content { file: path.display().to_string(), reason });
                }
                if read.shape() == shape {
                    return Ok(Some(read.mapv(|value| f32::from(value != 0.0))));
                }
                Err(Error::Shape {
                    what: format!("{}: the mask", path.display()),
                    expected: format!("{shape:?} is expected"),
                    found: read.shape().to_vec(),
                })
            }
            Self::Random { acceleration, calibration, seed } => {
                let lines = shape[1];
                let middle = ((lines as f64 * calibration).round() as usize).min(lines);
                let wanted =
                    ((lines as f64 / acceleration).round() as usize).max(1).saturating_sub(middle);
                let first = (lines - middle) / 2;
                let mut others: Vec<usize> =
                    (0..lines).filter(|line| !(first..first + middle).contains(line)).collect();
                let mut random = *seed;
                for index in 0..wanted.min(others.len()) {
                    let left = others.len() - index;
                    others.swap(index, index + (next(&mut random) % left as u64) as usize);
                }
                others.truncate(wanted);
                others.extend(first..first + middle);
                Ok(Some(Array::from_shape_fn(shape, |at| f32::from(others.contains(&at[1])))))
            }
        }
    }
}

/// `SplitMix64`, so that a seed means the same lines for good.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut bits = *state;
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_lines_are_as_many_as_asked_for_and_have_the_middle() -> Result<()> {
        let lines = Lines::Random { acceleration: 4.0, calibration: 0.1, seed: 3 };
        let mask = lines.mask(&[1, 80, 5])?.expect("a mask");
        let kept: Vec<usize> = (0..80).filter(|line| mask[[0, *line, 0]] == 1.0).collect();
        assert_eq!(kept.len(), 20);
        assert!((36..44).all(|line| kept.contains(&line)));
        assert_eq!(mask.sum(), 100.0);
        assert_eq!(lines.mask(&[1, 80, 5])?, Some(mask.clone()));
        let other = Lines::Random { acceleration: 4.0, calibration: 0.1, seed: 4 };
        assert_ne!(other.mask(&[1, 80, 5])?, Some(mask));
        Ok(())
    }
}
