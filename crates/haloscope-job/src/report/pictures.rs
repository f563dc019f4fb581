//! Pictures of a run: what was measured, what was found, and how far it is from the truth.
//!
//! A volume is shown as the three slices through its middle, the same ones in every picture.
//!
//! Slices of a volume whose file says where the patient's head is are shown the usual way up; their left and right are
//! as in the file, and what is in files is never turned.

use std::path::{Path, PathBuf};

use haloscope::array::extremes;
use haloscope::{Array, Result, io};
use ndarray::{Axis, concatenate};

use super::{Panel, ValueScale};
use crate::layout::Truth;
use crate::prepare::Before;
use crate::run::with_contrast;
use crate::sections::placement::Affine;
use crate::words::count;

/// A picture that was written.
pub(crate) struct Written {
    pub path: PathBuf,
    /// The name of the file, without its ending.
    pub name: &'static str,
    pub caption: String,
    /// What black and white are.
    pub scale: ValueScale,
    pub panels: Vec<Panel>,
}

/// Writes the pictures there are: truth, before, after and difference. `contrast` are the values of black and white, in
/// this unit.
pub(super) fn write(
    folder: &Path,
    truth: Option<&Truth>,
    before: Option<&Before>,
    after: &Array,
    contrast: Option<(f32, f32)>,
    unit: &str,
) -> Result<Vec<Written>> {
    let (low, high) = contrast.unwrap_or_else(|| match truth {
        Some(truth) => contrast_of(truth),
        None => middle(after),
    });
    let upwards =
        truth.and_then(|truth| truth.placement.affine.as_ref()).map_or([false; 3], upwards);
    let slices = |image: &Array| slices(image, upwards);
    let difference = |truth: &Truth| {
        let pairs = slices(after).into_iter().zip(slices(&truth.image));
        pairs.map(|(found, true_one)| found - true_one).collect()
    };
    let shown = ValueScale { black: low, white: high, unit: unit.to_owned() };
    let of_difference = |truth: &Truth| {
        let most = truth.range as f32 / 8.0;
        ValueScale { black: -most, white: most, unit: unit.to_owned() }
    };
    let pictures = [
        ("truth", "truth", truth.map(|truth| (slices(&truth.image), shown.clone()))),
        ("before", before.map_or("", |before| &before.shows), {
            before.map(|before| (slices(&before.image), shown.clone()))
        }),
        ("after", "reconstruction", Some((slices(after), shown.clone()))),
        ("difference", "reconstruction minus truth", {
            truth.map(|truth| (difference(truth), of_difference(truth)))
        }),
    ];
    let panels = panels(after.shape());
    let several = match after.shape()[0] {
        1 => String::new(),
        images => format!(", the first of {}", count(images, "image")),
    };
    let mut written = Vec::new();
    for (name, caption, picture) in pictures {
        let Some((slices, scale)) = picture else { continue };
        let path = folder.join(format!("{name}.png"));
        let contrast = (scale.black, scale.white);
        let slices: Vec<Array> =
            slices.iter().map(|slice| with_contrast(slice, contrast)).collect();
        io::write(&path, &side_by_side(&slices), &io::WriteOptions::default())?;
        written.push(Written {
            path,
            name,
            caption: format!("{caption}{several}"),
            scale,
            panels: panels.clone(),
        });
    }
    Ok(written)
}

/// The values of black and white for a truth: 0 and 1 if it is a picture that goes nearly up to that, else its own.
fn contrast_of(truth: &Truth) -> (f32, f32) {
    let (low, high) = extremes(&truth.image);
    let reaches = high > NEARLY_WHITE || high <= low;
    if truth.range == 1.0 && low >= 0.0 && reaches { (0.0, 1.0) } else { (low, high) }
}

/// Pictures that have something brighter than this are shown as they are.
const NEARLY_WHITE: f32 = 0.7;

/// Which axes of a volume (depth, height, width) lead to the patient's head or face. The world's axes lead to the right,
/// to the face and to the head; an oblique axis counts as the one that it is nearest to.
fn upwards(affine: &Affine) -> [bool; 3] {
    [2, 1, 0].map(|column| {
        let [right, face, head] = affine.map(|row| row[column]);
        let (sideways, ahead, up) = (right.abs(), face.abs(), head.abs());
        if up >= ahead && up >= sideways { head > 0.0 } else { ahead >= sideways && face > 0.0 }
    })
}

/// One image as it is; of a volume, the three slices through its middle, of which those whose rows lead upwards are
/// turned over, because pictures begin at the top. Of several images, the first.
fn slices(image: &Array, upwards: [bool; 3]) -> Vec<Array> {
    let mut image = image.slice_axis(Axis(0), (0..1).into());
    if ![1, 3].contains(&image.shape()[1]) {
        image = image.slice_axis_move(Axis(1), (0..1).into());
    }
    if image.ndim() == 4 {
        return vec![image.to_owned()];
    }
    let slice = |axis: usize| {
        let mut slice =
            image.index_axis(Axis(2 + axis), middle_of(image.shape()[2 + axis])).to_owned();
        let rows = usize::from(axis == 0);
        if upwards[rows] {
            slice.invert_axis(Axis(2));
        }
        slice
    };
    (0..3).map(slice).collect()
}

/// What the slices of an image of this shape are, in their order.
fn panels(image: &[usize]) -> Vec<Panel> {
    let &[_, _, depth, height, width] = image else {
        return vec![Panel { caption: String::new(), width: image.last().copied().unwrap_or(0) }];
    };
    let sides = [("depth", depth, width), ("height", height, width), ("width", width, height)];
    let panel =
        |(name, side, width)| Panel { caption: format!("{name} {}", middle_of(side)), width };
    sides.map(panel).to_vec()
}

/// The index of the slice that is shown.
fn middle_of(side: usize) -> usize {
    side / 2
}

/// Pictures in a row.
fn side_by_side(slices: &[Array]) -> Array {
    let height = slices.iter().map(|slice| slice.shape()[2]).max().unwrap_or(0);
    let padded: Vec<Array> = slices.iter().map(|slice| with_height(slice, height)).collect();
    let views: Vec<_> = padded.iter().map(|slice| slice.view()).collect();
    concatenate(Axis(3), &views).expect("all have one height")
}

/// A picture in the middle of black.
fn with_height(slice: &Array, height: usize) -> Array {
    let mut shape = slice.shape().to_vec();
    let begin = (height - shape[2]) / 2;
    let end = begin + shape[2];
    shape[2] = height;
    let mut padded = Array::zeros(shape);
    padded.slice_axis_mut(Axis(2), (begin..end).into()).assign(slice);
    padded
}

/// Between which the middle 99 % of the values are.
fn middle(image: &Array) -> (f32, f32) {
    let mut values: Vec<f32> = image.iter().copied().collect();
    let mut at = |share: f64| {
        let index = ((values.len() - 1) as f64 * share) as usize;
        *values.select_nth_unstable_by(index, f32::total_cmp).1
    };
    (at(0.005), at(0.995))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sections::placement::Placement;

    #[test]
    fn a_volume_of_any_sides_is_three_slices_in_a_row() {
        let volume = Array::from_shape_fn(vec![1, 1, 3, 5, 7], |at| at[2] as f32);
        // (height, width), (depth, width) and (depth, height).
        assert_eq!(flat(&volume, [false; 3]).shape(), [1, 1, 5, 7 + 7 + 5]);
        assert_eq!(flat(&Array::zeros(vec![2, 3, 4, 4]), [true; 3]).shape(), [1, 3, 4, 4]);
        let panels = panels(volume.shape());
        assert_eq!(panels.iter().map(|panel| panel.width).collect::<Vec<_>>(), [7, 7, 5]);
        let captions: Vec<_> = panels.into_iter().map(|panel| panel.caption).collect();
        assert_eq!(captions, ["depth 1", "height 2", "width 3"]);
    }

    #[test]
    fn the_margins_of_smaller_slices_are_black_whatever_black_is() {
        let volume = Array::from_elem(vec![1, 1, 2, 4, 4], 5.0);
        let folder = tempfile::tempdir().expect("a folder");
        let written = write(folder.path(), None, None, &volume, Some((-5.0, 5.0)), "counts");
        let written = written.expect("a picture");
        assert_eq!(written[0].scale.unit, "counts");
        let read = io::read(&written[0].path, &io::ReadOptions::default()).expect("a picture");
        assert_eq!((read.array[[0, 0, 0, 5]], read.array[[0, 0, 2, 5]]), (0.0, 1.0));
    }

    fn flat(image: &Array, upwards: [bool; 3]) -> Array {
        side_by_side(&slices(image, upwards))
    }

    #[test]
    fn head_and_face_are_on_top() {
        // The voxels of a scanner whose x leads to the left, y to the face and z to the head, slightly tilted.
        let affine = [[-1.0, 0.0, 0.1, 90.0], [0.0, 1.0, -0.2, -126.0], [0.0, 0.2, 1.0, -72.0]];
        assert_eq!(upwards(&affine), [true, true, false]);
        let towards_the_feet = [affine[0], affine[1], affine[2].map(|value| -value)];
        assert_eq!(upwards(&towards_the_feet), [false, true, false]);

        let volume = Array::from_shape_fn(vec![1, 1, 4, 4, 4], |at| (10 * at[2] + at[3]) as f32);
        let picture = flat(&volume, [true, true, false]);
        // Axial, coronal and sagittal slices begin with the last of height, depth and depth.
        let corners = [0, 4, 8].map(|column| picture[[0, 0, 0, column]]);
        assert_eq!(corners, [23.0, 32.0, 30.0]);
        let corners = [0, 4, 8].map(|column| flat(&volume, [false; 3])[[0, 0, 0, column]]);
        assert_eq!(corners, [20.0, 2.0, 0.0]);
    }

    #[test]
    fn dark_truths_are_shown_from_their_least_to_their_greatest() {
        let contrast = |low: f32, high: f32, range: f64| {
            let image =
                Array::from_shape_vec(vec![1, 1, 1, 2], vec![low, high]).expect("two values");
            contrast_of(&Truth { image, range, placement: Placement::default() })
        };
        assert_eq!(contrast(0.0, 0.3, 1.0), (0.0, 0.3));
        assert_eq!((contrast(0.1, 0.9, 1.0), contrast(0.5, 0.5, 1.0)), ((0.0, 1.0), (0.0, 1.0)));
        assert_eq!(contrast(-1.0, 3000.0, 3001.0), (-1.0, 3000.0));
    }

    #[test]
    fn the_middle_leaves_out_the_extremes() {
        let mut image = Array::from_shape_fn(vec![1, 1, 20, 20], |at| (at[2] * 20 + at[3]) as f32);
        image[[0, 0, 0, 0]] = -1e9;
        let (low, high) = middle(&image);
        assert!(low >= 0.0 && (390.0..400.0).contains(&high), "{low} {high}");
    }
}
