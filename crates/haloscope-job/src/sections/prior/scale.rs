//! What a network takes for black and white, and which values suit an image.

use haloscope::image::Layout;
use haloscope::{Array, Image, Result};
use haloscope_comm::Collectives;
use ndarray::{ArrayD, Dimension};
use toml::de::DeValue;

use crate::document::{Section, Value};

/// What a network takes for black and white.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scale {
    /// 0 and 1, if the image to begin with is about there, else what suits it.
    Auto,
    /// The extremes of the image, anew in every iteration.
    Range,
    Given(f32, f32),
}

impl<'a> Value<'a> for Scale {
    fn expected() -> String {
        "\"auto\", \"range\", the value above 0 that is white, or [black, white]".into()
    }

    fn of(value: &'a DeValue<'a>) -> Option<Self> {
        match value.as_str() {
            Some("auto") => return Some(Self::Auto),
            Some("range") => return Some(Self::Range),
            _ => (),
        }
        let (black, white) = match Vec::<f64>::of(value)?[..] {
            [white] => (0.0, white as f32),
            [black, white] => (black as f32, white as f32),
            _ => return None,
        };
        (black < white).then_some(Self::Given(black, white))
    }
}

impl Scale {
    /// `scale`, or what it was called before.
    pub(super) fn read(section: &Section) -> Result<Self> {
        let scale = section.get("scale")?;
        let Some(normalise) = section.get::<bool>("normalise")? else {
            return Ok(scale.unwrap_or(Self::Auto));
        };
        if scale.is_some() {
            let reason = "`scale` and its old name `normalise` are given; `scale` is expected";
            return Err(section.place_of("normalise").refuse(reason));
        }
        let (scale, words) =
            if normalise { (Self::Range, "\"range\"") } else { (Self::Given(0.0, 1.0), "1") };
        section.notice(
            "normalise",
            format!("`normalise` of a prior is called `scale` now; write scale = {words}"),
        );
        Ok(scale)
    }
}

/// The values that should be 0 and 1 to a network: just these for images that are about there, else about the least and the
/// greatest value; 0 stays black where it may.
pub(super) fn suitable_scale((least, greatest): (f32, f32)) -> (f32, f32) {
    let is_picture = least >= -0.3 && (0.2..=1.7).contains(&greatest);
    let width = greatest - least;
    // A flat image says nothing.
    if is_picture || !(width.is_finite() && width > 0.0) {
        return (0.0, 1.0);
    }
    let black = if greatest > 0.0 && (-0.3 * greatest..=0.5 * greatest).contains(&least) {
        0.0
    } else {
        least
    };
    (two_digits(black), two_digits(greatest))
}

/// A scan whose values are below this may be in units in which 1 means nothing.
pub(super) const DIM: f32 = 0.6;

/// About the least and the greatest value, without what few pixels or noise add: percentiles of means over blocks.
///
/// All ranks that share the image call it. The means, which are a sixteenth of a picture, come together on all of them.
pub(crate) fn robust_extremes(image: &Image) -> Result<(f32, f32)> {
    let mut means = block_means(image.local());
    if let Layout::Sharded(space) = image.layout() {
        means = space.context().comm().all_gather(&means)?.concat();
    }
    means.sort_unstable_by(f32::total_cmp);
    let tail = (TAIL * means.len() as f64) as usize;
    let greatest = means.len().checked_sub(tail + 1).and_then(|at| means.get(at));
    Ok(match (means.get(tail), greatest) {
        (Some(least), Some(greatest)) => (*least, *greatest),
        _ => (0.0, 0.0),
    })
}

/// Pixels along each side of a block.
pub(crate) const BLOCK: usize = 4;

/// What is left out of the means at either end.
const TAIL: f64 = 0.005;

fn block_means(image: &Array) -> Vec<f32> {
    let shape = image.shape();
    let blocks: Vec<usize> = shape
        .iter()
        .enumerate()
        .map(|(axis, side)| if axis < 2 { *side } else { side.div_ceil(BLOCK) })
        .collect();
    let mut sums = ArrayD::<f64>::zeros(blocks.clone());
    let mut counts = ArrayD::<u32>::zeros(blocks);
    let mut place = [0; 8];
    for (at, value) in image.indexed_iter() {
        let axes = at.ndim().min(place.len());
        for axis in 0..axes {
            place[axis] = if axis < 2 { at[axis] } else { at[axis] / BLOCK };
        }
        sums[&place[..axes]] += f64::from(*value);
        counts[&place[..axes]] += 1;
    }
    sums.iter().zip(&counts).map(|(sum, count)| (sum / f64::from(*count)) as f32).collect()
}

/// A value that can be written in a few digits, so that what is printed is what is used.
pub(super) fn two_digits(value: f32) -> f32 {
    brief(value).parse().unwrap_or(value)
}

pub(super) fn brief(value: f32) -> String {
    match format!("{value:.1e}").parse::<f32>() {
        Ok(short) => short.to_string(),
        Err(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extremes(image: Array) -> (f32, f32) {
        robust_extremes(&image.into()).expect("one rank")
    }

    #[test]
    fn pictures_stay_and_other_units_are_scaled_to_them() {
        // Half black, half white, with a bright pixel that is no part of it.
        let image =
            |black: f32, white: f32| {
                let mut image = Array::from_shape_fn(vec![1, 1, 64, 64], |at| {
                    if at[3] < 32 { black } else { white }
                });
                image[[0, 0, 5, 5]] = 100.0 * white;
                suitable_scale(extremes(image))
            };
        for (black, white) in [(0.0, 1.0), (0.0, 0.4), (0.1, 1.2), (-0.2, 0.9), (0.0, 0.0)] {
            assert_eq!(image(black, white), (0.0, 1.0), "{black} {white}");
        }
        assert_eq!(image(0.0, 0.0052), (0.0, 0.0052));
        assert_eq!(image(-0.0001, 0.0052), (0.0, 0.0052));
        assert_eq!(image(0.0, 4096.0), (0.0, 4100.0));
        assert_eq!(image(-1000.0, 2000.0), (-1000.0, 2000.0));
        assert_eq!(image(1000.0, 1100.0), (1000.0, 1100.0));
        assert_eq!(image(-3.0, -2.0), (-3.0, -2.0));
    }
}
