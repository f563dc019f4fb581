//! Some of the operators of a stack, taken in turn: the ordered subsets of methods such as OS-SART and OSEM.
//!
//! Which operators belong together follows from their number and never from the ranks, so the result has the same bits on any
//! number of ranks.

use crate::array::{Array, slice, slice_mut, update};
use crate::error::{Error, Result};
use crate::fidelity::Fidelity;
use crate::measurements::Measurements;

/// Every `count`-th operator, beginning with `index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Subset {
    pub(crate) index: usize,
    pub(crate) count: usize,
}

impl Subset {
    /// The indices of its operators, of so many in all.
    pub(crate) fn indices(self, operators: usize) -> Vec<usize> {
        (self.index..operators).step_by(self.count.max(1)).collect()
    }
}

/// What is projected back of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Residual<'a> {
    /// `w (y − A x)`, with weights in the shape of the measurements.
    Weighted(&'a Measurements),
    /// Measured over expected counts.
    Ratio,
}

impl Residual<'_> {
    /// Makes it of what an operator expects and what was measured.
    pub(crate) fn of(
        self,
        index: usize,
        mut expected: Array,
        measured: &Array,
        fidelity: &dyn Fidelity,
    ) -> Result<Array> {
        match self {
            Self::Weighted(weights) => {
                let weights = weights.get(index).filter(|w| w.shape() == expected.shape());
                let Some(weights) = weights.filter(|_| measured.shape() == expected.shape()) else {
                    let reason = format!(
                        "the weights or the data of operator {index} are not those of what it measures"
                    );
                    return Err(Error::argument("subsets", reason));
                };
                update(slice_mut(&mut expected), &slice(measured), |to, y| *to = y - *to);
                update(slice_mut(&mut expected), &slice(weights), |to, weight| *to *= weight);
                Ok(expected)
            }
            Self::Ratio => fidelity.count_ratio(&expected, measured).unwrap_or_else(|| {
                let reason =
                    format!("{} is not for counts, of which the ratio is taken", fidelity.name());
                Err(Error::argument("fidelity", reason))
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subsets_have_every_operator_once() {
        for (operators, count) in [(1, 1), (7, 3), (8, 8), (4, 2)] {
            let mut all: Vec<usize> =
                (0..count).flat_map(|index| Subset { index, count }.indices(operators)).collect();
            all.sort_unstable();
            assert_eq!(all, (0..operators).collect::<Vec<_>>());
        }
    }
}
