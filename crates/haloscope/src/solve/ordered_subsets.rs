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

/// One over the sums of rows and of columns, and 0 where there is nothing to sum.
pub(super) struct Sums {
    pub(super) rows: Measurements,
    pub(super) columns: Image,
}

impl Sums {
    /// By a projection and a back-projection of ones. All ranks call it.
    pub(super) fn of(problem: &Problem) -> Result<Self> {
        let mut ones = problem.start(&Start::Zeros)?;
        ones.map(|_| 1.0);
        let mut rows = problem.forward(&ones)?;
        drop(ones);
        let all = rows.map(|_, part| Ok(Array::ones(part.raw_dim())))?;
        let mut columns = problem.adjoint_of(&all)?;
        drop(all);
        let extremes = |part: &Array| {
            part.iter().fold((0.0_f32, 0.0_f32), |(low, high), v| (low.min(*v), high.max(*v)))
        };
        let (low, high) = rows
            .iter()
            .map(|(_, part)| extremes(part))
            .fold((0.0_f32, 0.0_f32), |all, part| (all.0.min(part.0), all.1.max(part.1)));
        let mut most = [high, -low];
        problem.context().comm().all_reduce(Reduction::Max, &mut most)?;
        let [most, negative] = most;
        let (low, high) = columns.extremes()?;
        if !(most > 0.0 && high > 0.0 && most.is_finite() && high.is_finite()) {
            let reason = "the operators map constant images to nothing, or to no finite numbers";
            return Err(Error::argument("solver", reason));
        }
        if negative > LEAST * most || low < -LEAST * high {
            let reason = "operators with negative weights, which it cannot divide by the sums of; use cg or landweber";
            return Err(Error::argument("solver", reason));
        }
        let invert = |most: f32| move |sum: f32| if sum > LEAST * most { sum.recip() } else { 0.0 };
        let of_row = invert(most);
        for (_, part) in rows.iter_mut() {
            slice_mut(part).iter_mut().for_each(|sum| *sum = of_row(*sum));
        }
        columns.map(invert(high));
        Ok(Self { rows, columns })
    }
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
