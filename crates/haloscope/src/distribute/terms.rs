//! One array for each operator that a rank owns, and what can become of them.

use haloscope_comm::{Collectives, Context};
use ndarray::IxDyn;

use super::agree::agree;
use super::gather::{Gather, gather};
use crate::array::{Array, add_scaled, scale, slice, slice_mut};
use crate::error::{Error, Result};
use crate::measurements::Measurements;

/// The results of a rank's own operators, before anything is sent.
///
/// Every operation over ranks ends in one of these; how they are brought together is the caller's
/// choice: not at all ([`into_local`](Self::into_local)), added up on the rank
/// ([`local_sum`](Self::local_sum)), gathered on all ranks ([`gather`](Self::gather)), or added up over
/// all of them ([`sum`](Self::sum), [`mean`](Self::mean)). All ranks make the same choice.
#[derive(Debug)]
pub struct Terms<'a> {
    pub(super) ctx: &'a Context,
    pub(super) how: Gather,
    pub(super) owners: &'a [usize],
    /// The shape of each operator's term, on whichever rank it is.
    pub(super) shapes: Vec<Vec<usize>>,
    /// What became of the rank's own operators.
    pub(super) local: Result<Measurements>,
}

impl Terms<'_> {
    /// The rank's own, without sending anything.
    pub fn into_local(self) -> Result<Measurements> {
        self.local
    }

    /// The sum of the rank's own, in the order of the operators; zeros if it has none. Nothing is sent.
    pub fn local_sum(self) -> Result<Array> {
        let shape = self.common_shape()?;
        let mut sum: Option<Array> = None;
        for (_, term) in self.local?.iter() {
            match &mut sum {
                None => sum = Some(term.as_standard_layout().into_owned()),
                Some(sum) => add_scaled(slice_mut(sum), 1.0, &slice(term)),
            }
        }
        Ok(sum.unwrap_or_else(|| Array::zeros(IxDyn(&shape))))
    }

    /// Those of all ranks, on all ranks.
    pub fn gather(self) -> Result<Measurements> {
        let _span = self.ctx.span("gather");
        let local = agree(self.ctx, self.local)?;
        gather(self.how, self.ctx, local, self.owners, &self.shapes)
    }

    /// The sum over all ranks' operators, in their order: the same bits on any number of ranks.
    pub fn sum(self) -> Result<Array> {
        let shape = self.common_shape()?;
        let _span = self.ctx.span("reduction");
        let local = agree(self.ctx, self.local)?;
        let terms: Vec<_> = local.iter().map(|(index, term)| (index as u64, slice(term))).collect();
        let terms: Vec<_> = terms.iter().map(|(index, term)| (*index, &**term)).collect();
        let mut sum = Array::zeros(IxDyn(&shape));
        self.ctx.comm().ordered_sum(&terms, slice_mut(&mut sum))?;
        Ok(sum)
    }

    /// [`sum`](Self::sum) divided by the number of operators.
    pub fn mean(self) -> Result<Array> {
        let count = self.owners.len();
        let mut mean = self.sum()?;
        scale(slice_mut(&mut mean), 1.0 / count as f32);
        Ok(mean)
    }

    /// The shape that all terms have, if they can be added up.
    fn common_shape(&self) -> Result<Vec<usize>> {
        match self.shapes.iter().find(|shape| **shape != self.shapes[0]) {
            None => Ok(self.shapes[0].clone()),
            Some(other) => Err(Error::Shape {
                what: "a term of the sum".into(),
                expected: format!(
                    "the first has {:?}; terms of different shapes can be gathered only",
                    self.shapes[0]
                ),
                found: other.clone(),
            }),
        }
    }
}
