//! What methods with ordered subsets share: the sums of rows and columns, and a pass over the subsets.

use haloscope_comm::{Collectives, Reduction};

use super::algorithm::Setting;
use super::problem::{Problem, Start};
use crate::array::{Array, slice_mut};
use crate::distribute::Subset;
use crate::error::{Error, Result};
use crate::image::Image;
use crate::measurements::Measurements;

/// Sums below this part of the largest one are those of rays that miss the image, and of pixels that no ray meets.
const LEAST: f32 = 1e-6;

/// One over the sums of columns, and 0 where there is nothing to sum: by a back-projection of ones. All ranks call it.
pub(super) fn column_sums(problem: &Problem) -> Result<Image> {
    let ones = problem.data().map(|_, part| Ok(Array::ones(part.raw_dim())))?;
    let mut columns = problem.adjoint_of(&ones)?;
    drop(ones);
    let (low, high) = columns.extremes()?;
    check_sums(low, high)?;
    columns.map(move |sum| inverse(sum, high));
    Ok(columns)
}

/// The same of rows, for what this rank has of the measurements: by a projection of ones.
pub(super) fn row_sums(problem: &Problem) -> Result<Measurements> {
    let mut ones = problem.start(&Start::Zeros)?;
    ones.map(|_| 1.0);
    let mut rows = problem.forward(&ones)?;
    drop(ones);
    let (mut low, mut high) = (0.0_f32, 0.0_f32);
    for value in rows.iter().flat_map(|(_, part)| part.iter()) {
        (low, high) = (low.min(*value), high.max(*value));
    }
    let mut most = [high, -low];
    problem.context().comm().all_reduce(Reduction::Max, &mut most)?;
    let [high, negative] = most;
    check_sums(-negative, high)?;
    for (_, part) in rows.iter_mut() {
        for sum in slice_mut(part) {
            *sum = inverse(*sum, high);
        }
    }
    Ok(rows)
}

/// Refuses operators whose sums cannot be divided by.
fn check_sums(low: f32, high: f32) -> Result<()> {
    let reason = if !(high > 0.0 && high.is_finite() && low.is_finite()) {
        "the operators map constant images to nothing, or to no finite numbers"
    } else if low < -LEAST * high {
        "operators with negative weights, which it cannot divide by the sums of; use cg or landweber"
    } else {
        return Ok(());
    };
    Err(Error::argument("solver", reason))
}

fn inverse(sum: f32, most: f32) -> f32 {
    if sum > LEAST * most { sum.recip() } else { 0.0 }
}

/// Refuses a number of subsets that leaves one without an operator.
pub(super) fn check(problem: &Problem, subsets: usize) -> Result<()> {
    let operators = problem.operators();
    if (1..=operators).contains(&subsets) {
        return Ok(());
    }
    let reason = format!(
        "{subsets} subsets of {operators} operators; from 1 to {operators} are possible (the views of a scan are as many \
         operators as it has `groups`)"
    );
    Err(Error::argument("solver", reason))
}

/// The image after a step with each of the subsets.
pub(super) fn pass(
    setting: &Setting<'_>,
    image: &Image,
    subsets: usize,
    mut step: impl FnMut(&Image, Subset) -> Result<Image>,
) -> Result<Image> {
    let mut next = None;
    for index in 0..subsets {
        let subset = Subset { index, count: subsets };
        let from = next.as_ref().unwrap_or(image);
        next = Some(setting.data(|| step(from, subset))?);
    }
    next.ok_or_else(|| Error::argument("solver", "there are no subsets; at least 1 is needed"))
}
