//! Checkpoints of states in shards: each rank writes its parts, and any number of ranks resumes, in either layout.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use haloscope_comm::Context;

use super::{Checkpoints, Found, JobId, Part, Parts, State};
use crate::distribute::{ShardedStack, agree};
use crate::error::{Error, Result};
use crate::image::{Image, Region, Space};
use crate::solve::prox_primal_dual::operator_of;

impl Checkpoints {
    /// Each rank writes what it has of a state in shards.
    pub(super) fn save_shards(&mut self, ctx: &Context, state: &State, job: &JobId) -> Result<()> {
        let regions: BTreeMap<&str, Region> =
            state.arrays.iter().map(|(name, array)| (&name[..], array.region())).collect();
        let image = state.image.region();
        let arrays = state.arrays.iter().map(|(name, array)| {
            (
                &name[..],
                Part { whole: array.shape(), region: &regions[&name[..]], values: array.local() },
            )
        });
        let parts = Parts {
            iteration: state.iteration,
            image: Part { whole: state.image.shape(), region: &image, values: state.image.local() },
            arrays: arrays.collect(),
            numbers: &state.numbers,
        };
        self.save_parts(ctx, &parts, job)
    }

    /// The newest checkpoint that is whole, of which each rank reads its parts for operators on an image in shards; all ranks call
    /// it. The run that wrote it may have had another number of ranks, or the whole image on each. `None` if there are no
    /// checkpoints.
    ///
    /// # Errors
    /// On all ranks: as [`load_parts`](Self::load_parts), and if an array of the state does not belong to these operators.
    pub fn load_shards(
        &mut self,
        ctx: &Context,
        job: &JobId,
        physics: &ShardedStack,
    ) -> Result<Option<Found>> {
        let spaces: RefCell<BTreeMap<Option<String>, Arc<Space>>> = RefCell::default();
        let wanted = |name: Option<&str>, shape: &[usize]| {
            let space = space_of(physics, name, shape)?;
            let own = space.own().clone();
            spaces.borrow_mut().insert(name.map(str::to_owned), space);
            Some(own)
        };
        let strange = RefCell::new(None);
        let found = self.load_parts(ctx, job, &|name, shape| {
            let region = wanted(name, shape);
            if region.is_none() {
                *strange.borrow_mut() = Some(Error::Shape {
                    what: format!("{} of the checkpoint", name.unwrap_or("the image")),
                    expected: format!("images of {:?} are in shards", physics.space().whole()),
                    found: shape.to_vec(),
                });
            }
            region
        })?;
        agree(ctx, strange.into_inner().map_or(Ok(()), Err))?;
        let Some(mut found) = found else { return Ok(None) };
        let spaces = spaces.into_inner();
        let in_shards = |name: Option<&str>, part: Image| match spaces.get(&name.map(str::to_owned))
        {
            Some(space) => Image::sharded(space, part.into_local()),
            None => Ok(part),
        };
        let State { iteration, image, arrays, numbers } = found.state;
        let arrays = arrays.into_iter().map(|(name, part)| {
            let part = in_shards(Some(&name), part)?;
            Ok((name, part))
        });
        found.state = State {
            iteration,
            image: in_shards(None, image)?,
            arrays: arrays.collect::<Result<_>>()?,
            numbers,
        };
        Ok(Some(found))
    }
}

/// Where the parts of an array of a state are: as those of the image, with an axis for gradients, or as those of a measurement.
fn space_of(physics: &ShardedStack, name: Option<&str>, shape: &[usize]) -> Option<Arc<Space>> {
    let space = physics.space();
    if let Some(operator) = name.and_then(operator_of) {
        let measured = physics.measured().get(operator)?;
        return (measured.whole() == shape).then(|| measured.clone());
    }
    if shape == space.whole() {
        return Some(space.clone());
    }
    let (axis, mut rest) = (*shape.get(2)?, shape.to_vec());
    rest.remove(2);
    (rest == space.whole()).then(|| space.with_axis(2, axis))
}
