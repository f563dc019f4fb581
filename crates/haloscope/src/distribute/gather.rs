//! Three ways to bring every rank's arrays to all ranks.

use std::str::FromStr;

use haloscope_comm::{Collectives, Context};
use ndarray::{ArrayD, IxDyn};

use crate::array::Array;
use crate::error::{Error, Result};
use crate::measurements::Measurements;

/// How arrays of different ranks and shapes are gathered. All give the same result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Gather {
    /// One flat message of each rank, as long as its arrays are. The fastest for many or small arrays; a few large ones are
    /// gathered faster by [`Broadcast`](Self::Broadcast), because this one copies them all once more.
    #[default]
    Concatenated,
    /// Each rank writes its arrays with indices and shapes into one list of bytes. For parts whose shapes
    /// the other ranks do not know; copies everything twice.
    Naive,
    /// One broadcast for each operator, by its owner. No rank holds more than one array that is not its
    /// result. The fastest for a few large arrays; many small ones are many small messages.
    Broadcast,
}

impl FromStr for Gather {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "concatenated" => Ok(Self::Concatenated),
            "naive" => Ok(Self::Naive),
            "broadcast" => Ok(Self::Broadcast),
            _ => Err(Error::argument(
                "gather",
                format!("`{name}` is unknown; there are concatenated, naive and broadcast"),
            )),
        }
    }
}

/// The parts of all ranks. `owners` and `shapes` say for each index who has it and what it is.
pub(crate) fn gather(
    how: Gather,
    ctx: &Context,
    local: Measurements,
    owners: &[usize],
    shapes: &[Vec<usize>],
) -> Result<Measurements> {
    if ctx.size() == 1 {
        return Ok(local);
    }
    match how {
        Gather::Concatenated => concatenated(ctx, &local, owners, shapes),
        Gather::Naive => naive(ctx, &local, owners.len()),
        Gather::Broadcast => broadcast(ctx, local, owners, shapes),
    }
}

fn concatenated(
    ctx: &Context,
    local: &Measurements,
    owners: &[usize],
    shapes: &[Vec<usize>],
) -> Result<Measurements> {
    let len = |index: usize| shapes[index].iter().product::<usize>();
    let owned = |rank: usize| (0..owners.len()).filter(move |index| owners[*index] == rank);
    let counts: Vec<usize> = (0..ctx.size()).map(|rank| owned(rank).map(len).sum()).collect();
    let mut mine = Vec::with_capacity(counts[ctx.rank()]);
    for (_, part) in local.iter() {
        mine.extend(part.iter());
    }
    let mut all = vec![0.0_f32; counts.iter().sum()];
    ctx.comm().all_gather_into(&mine, &counts, &mut all)?;
    let mut rest = all.as_slice();
    let mut parts = Vec::with_capacity(owners.len());
    for index in (0..ctx.size()).flat_map(owned) {
        let (part, later) = rest.split_at(len(index));
        parts.push((index, from_slice(&shapes[index], part)?));
        rest = later;
    }
    Measurements::partial(owners.len(), parts)
}

fn naive(ctx: &Context, local: &Measurements, count: usize) -> Result<Measurements> {
    let mut bytes = Vec::new();
    for (index, part) in local.iter() {
        let header = [index, part.ndim()].into_iter().chain(part.shape().iter().copied());
        bytes.extend(header.flat_map(|word| (word as u64).to_le_bytes()));
        bytes.extend(part.iter().flat_map(|value| value.to_le_bytes()));
    }
    let mut parts = Vec::with_capacity(count);
    for bytes in ctx.comm().all_gather(&bytes)? {
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let (part, later) = parse(rest).ok_or_else(|| {
                Error::argument("gather", "what a rank sent makes no list of arrays")
            })?;
            parts.push(part);
            rest = later;
        }
    }
    Measurements::partial(count, parts)
}

/// An array with its index, and what follows it.
fn parse(bytes: &[u8]) -> Option<((usize, Array), &[u8])> {
    let word = |bytes: &[u8; 8]| usize::try_from(u64::from_le_bytes(*bytes)).ok();
    let (header, rest) = bytes.split_at_checked(16)?;
    let [index, axes] = header.as_chunks::<8>().0 else { return None };
    let (index, axes) = (word(index)?, word(axes)?);
    let (shape, rest) = rest.split_at_checked(axes.checked_mul(8)?)?;
    let shape: Vec<usize> = shape.as_chunks::<8>().0.iter().map(word).collect::<Option<_>>()?;
    let len = shape.iter().try_fold(4_usize, |product, size| product.checked_mul(*size))?;
    let (values, rest) = rest.split_at_checked(len)?;
    let values = values.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    Some(((index, ArrayD::from_shape_vec(IxDyn(&shape), values).ok()?), rest))
}

fn broadcast(
    ctx: &Context,
    mut local: Measurements,
    owners: &[usize],
    shapes: &[Vec<usize>],
) -> Result<Measurements> {
    let mut parts = Vec::with_capacity(owners.len());
    for (index, (owner, shape)) in owners.iter().zip(shapes).enumerate() {
        let mut part = match local.get_mut(index) {
            Some(part) => std::mem::take(part).as_standard_layout().into_owned(),
            None => Array::zeros(IxDyn(shape)),
        };
        let values = part.as_slice_mut().expect("an array in standard layout");
        ctx.comm().broadcast(*owner, values)?;
        parts.push((index, part));
    }
    Measurements::partial(owners.len(), parts)
}

fn from_slice(shape: &[usize], values: &[f32]) -> Result<Array> {
    ArrayD::from_shape_vec(IxDyn(shape), values.to_vec())
        .map_err(|error| Error::argument("gather", error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_to_gather_have_names() {
        let names = [
            ("concatenated", Gather::Concatenated),
            ("naive", Gather::Naive),
            ("broadcast", Gather::Broadcast),
        ];
        for (name, way) in names {
            assert_eq!(name.parse(), Ok(way));
        }
        for unknown in ["", "Naive", "all"] {
            let error = unknown.parse::<Gather>().expect_err("unknown").to_string();
            let expected = format!(
                "gather: `{unknown}` is unknown; there are concatenated, naive and broadcast"
            );
            assert_eq!(error, expected);
        }
    }
}
