//! Boxes of arrays, a range for each axis, and the order in which streams go through them.

use std::ops::Range;

use ndarray::{ArrayViewD, Axis, Slice};

use crate::array::{Array, View};
use crate::error::{Error, Result};

/// A box in an array: a range for each axis.
pub type Region = Vec<Range<usize>>;

/// The values of a band of a stream, 1 MiB of them, unless one row takes more.
pub(crate) const BAND: usize = 1 << 18;

/// All of an array.
pub(crate) fn whole(shape: &[usize]) -> Region {
    shape.iter().map(|&side| 0..side).collect()
}

/// The shape of a box.
pub(crate) fn sides(region: &[Range<usize>]) -> Vec<usize> {
    region.iter().map(Range::len).collect()
}

/// The number of values in a box.
pub(crate) fn volume(region: &[Range<usize>]) -> usize {
    region.iter().map(Range::len).product()
}

/// Whether there is nothing in a box.
pub(crate) fn is_empty(region: &[Range<usize>]) -> bool {
    region.iter().any(Range::is_empty)
}

/// What two boxes have in common, if anything.
pub(crate) fn overlap(one: &[Range<usize>], other: &[Range<usize>]) -> Option<Region> {
    let common = |(one, other): (&Range<usize>, &Range<usize>)| {
        let common = one.start.max(other.start)..one.end.min(other.end);
        (!common.is_empty()).then_some(common)
    };
    one.iter().zip(other).map(common).collect()
}

/// A box inside another, counted from the other's start.
pub(crate) fn within(inner: &[Range<usize>], outer: &[Range<usize>]) -> Region {
    let shift = |(inner, outer): (&Range<usize>, &Range<usize>)| {
        inner.start - outer.start..inner.end - outer.start
    };
    inner.iter().zip(outer).map(shift).collect()
}

/// The part of an array in a box.
pub(crate) fn cut<'a>(array: &'a View, region: &[Range<usize>]) -> ArrayViewD<'a, f32> {
    let mut part = array.view();
    for (axis, range) in region.iter().enumerate() {
        part.slice_axis_inplace(Axis(axis), Slice::from(range.clone()));
    }
    part
}

/// A copy of the part of an array in a box, in standard layout.
pub(crate) fn copied(array: &View, region: &[Range<usize>]) -> Array {
    // A copy always, also of all of it.
    let mut copy = Array::zeros(sides(region));
    copy.assign(&cut(array, region));
    copy
}

/// Writes an array into a box of another.
pub(crate) fn place(array: &mut View, region: &[Range<usize>], part: &View) {
    let mut target = array.view_mut();
    for (axis, range) in region.iter().enumerate() {
        target.slice_axis_inplace(Axis(axis), Slice::from(range.clone()));
    }
    target.assign(part);
}

/// Puts `values`, which cover `from`, where they overlap with `array`, which covers `to`. Returns how many values that
/// are.
pub(crate) fn copy(
    values: &View,
    from: &[Range<usize>],
    array: &mut View,
    to: &[Range<usize>],
) -> usize {
    let Some(common) = overlap(from, to) else {
        return 0;
    };
    let mut target = array.view_mut();
    for (axis, range) in within(&common, to).into_iter().enumerate() {
        target.slice_axis_inplace(Axis(axis), Slice::from(range));
    }
    target.assign(&cut(values, &within(&common, from)));
    volume(&common)
}

/// The ranges of the last axes, completed by all of the axes before them.
///
/// # Errors
/// If it is no box of at least one value inside the array.
pub(crate) fn complete(shape: &[usize], last: &[Range<usize>]) -> Result<Region> {
    let fits = last.len() <= shape.len()
        && last
            .iter()
            .zip(&shape[shape.len() - last.len()..])
            .all(|(range, &side)| !range.is_empty() && range.end <= side);
    if !fits {
        let reason = format!(
            "{last:?} is no part of an array of shape {shape:?}; a range of at least one value inside it for each of its \
             last axes is"
        );
        return Err(Error::argument("region", reason));
    }
    let mut region = whole(&shape[..shape.len() - last.len()]);
    region.extend_from_slice(last);
    Ok(region)
}

/// Refuses boxes that are not parts of the array, share values, or leave some out.
pub(crate) fn check_cover(shape: &[usize], regions: &[Region]) -> Result<()> {
    let volumes: usize = regions.iter().map(|region| volume(region)).sum();
    let all: usize = shape.iter().product();
    let shared = regions
        .iter()
        .enumerate()
        .find_map(|(number, one)| regions[..number].iter().find_map(|other| overlap(one, other)));
    let is_outside = |region: &&Region| {
        let within = |(range, side): (&Range<usize>, &usize)| range.end <= *side;
        region.len() != shape.len() || !region.iter().zip(shape).all(within)
    };
    let outside = regions.iter().find(is_outside);
    let reason = match (outside, shared) {
        (Some(outside), _) => format!("{outside:?} is not within it"),
        (None, Some(shared)) => format!("{shared:?} is in two of them"),
        (None, None) if volumes != all => format!("they have {volumes} of its {all} values"),
        (None, None) => return Ok(()),
    };
    let reason = format!("the parts of an array of shape {shape:?} must cover it once; {reason}");
    Err(Error::argument("regions", reason))
}

/// Boxes of up to `most` values, or one value, that make up an array in its memory order.
pub(crate) fn bands(shape: &[usize], most: usize) -> Vec<Region> {
    let trailing = |axis: usize| shape[axis + 1..].iter().product::<usize>();
    let Some(split) = (0..shape.len()).find(|&axis| trailing(axis) <= most) else {
        return vec![Vec::new()];
    };
    let rows = (most / trailing(split)).max(1);
    let mut bands = Vec::new();
    for at in ndarray::indices(&shape[..split]) {
        let leading = (0..split).map(|axis| at[axis]..at[axis] + 1);
        for start in (0..shape[split]).step_by(rows) {
            let rows = start..(start + rows).min(shape[split]);
            let rest = shape[split + 1..].iter().map(|&side| 0..side);
            bands.push(leading.clone().chain([rows]).chain(rest).collect());
        }
    }
    bands
}

/// Boxes of whole rows and all channels of a picture (1, channel, height, width), of up to [`BAND`] values or `step` rows,
/// and of a multiple of `step` rows.
pub(crate) fn rows(shape: &[usize], step: usize) -> Vec<Region> {
    let &[batch, channels, height, width] = shape else {
        return Vec::new();
    };
    let most = (BAND / (channels * width)).max(step) / step * step;
    let band = |start| vec![0..batch, 0..channels, start..(start + most).min(height), 0..width];
    (0..height).step_by(most).map(band).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_cover_an_array_in_order() {
        for shape in [vec![7], vec![3, 5], vec![1, 3, 4, 5], vec![2, 1, 1, 6], vec![]] {
            for most in [1, 2, 5, 7, 20, 1000] {
                let bands = bands(&shape, most);
                let mut next = 0;
                let number = |at: &[usize]| {
                    at.iter().zip(&shape).fold(0, |number, (at, side)| number * side + at)
                };
                for band in &bands {
                    assert!(volume(band) <= most, "{shape:?} {most}: {band:?}");
                    let start: Vec<usize> = band.iter().map(|range| range.start).collect();
                    assert_eq!(number(&start), next, "{shape:?} {most}: {band:?}");
                    next += volume(band);
                }
                assert_eq!(next, shape.iter().product::<usize>());
                check_cover(&shape, &bands).expect("all of it");
            }
        }
    }

    #[test]
    fn parts_that_overlap_or_leave_something_out_are_refused() {
        let halves = [vec![0..3, 0..4], vec![3..5, 0..4]];
        check_cover(&[5, 4], &halves).expect("all of it");
        let error = check_cover(&[6, 4], &halves).expect_err("a row is missing").to_string();
        assert!(error.contains("20 of its 24"), "{error}");
        let error = check_cover(&[5, 4], &[vec![0..4, 0..4], vec![3..5, 0..4]]);
        let error = error.expect_err("a row is shared").to_string();
        assert!(error.contains("[3..4, 0..4] is in two"), "{error}");
        let error = check_cover(&[5, 4], &[vec![0..4, 0..4], vec![5..6, 0..4]]);
        let error = error.expect_err("a row is outside").to_string();
        assert!(error.contains("[5..6, 0..4] is not within"), "{error}");
        for region in [vec![0..2, 0..5], vec![2..2, 0..4], vec![0..1; 3]] {
            assert!(complete(&[5, 4], &region).is_err(), "{region:?}");
        }
        assert_eq!(
            complete(&[5, 4], std::slice::from_ref(&(1..2))).expect("columns"),
            [0..5, 1..2]
        );
    }
}
