//! Least squares of a replicated image in segments: each rank has the vectors of the method for its own rows of the image.
//!
//! An operator needs the whole image, so the ranks gather it before each application, and of the sum over the operators each
//! rank keeps its own rows. That sends what an image on all ranks would send, while the arithmetic of the vectors and their memory
//! are divided. Sums over all rows are exact, so the bits are those of one rank.

use std::cell::RefCell;
use std::ops::Range;

use haloscope_comm::partition;
use ndarray::IxDyn;

use super::map::DistributedMap;
use super::rounds;
use super::stack::{DistributedStack, linear, part, with_batch};
use crate::array::{Array, elements, slice};
use crate::error::Result;
use crate::image::dot_on_ranks;
use crate::least_squares::{LeastSquaresOptions, LinearMap, Solution, prox_l2_from_adjoint};
use crate::measurements::Measurements;
use crate::physics::Physics;

/// A [`DistributedStack`] whose images are each rank's own rows, of shape (row, column).
#[derive(Debug)]
struct SegmentMap<'a> {
    stack: &'a DistributedStack,
    batch: usize,
    /// The elements of each rank, which are whole rows: no run of a sum is divided.
    segments: Vec<Range<usize>>,
    /// The shape of this rank's.
    own: [usize; 2],
    /// Used again by each application of the operators: memory pages that are new each time cost a tenth of it.
    room: RefCell<Room>,
}

/// Where an application of the operators puts what others send.
#[derive(Debug)]
struct Room {
    image: Array,
    arrived: Vec<Vec<f32>>,
}

/// Whether a prox of the L2 fidelity is computed in segments: where there are ranks to share it, and no closed form.
pub(super) fn is_divided(stack: &DistributedStack) -> bool {
    stack.context().size() > 1 && stack.len() > 1
}

/// [`prox_l2_from_adjoint`] of replicated images, on all ranks.
pub(super) fn prox(
    stack: &DistributedStack,
    image: &Array,
    adjoint: &Array,
    gamma: f64,
    options: &LeastSquaresOptions,
) -> Result<Solution> {
    let map = SegmentMap::new(stack, stack.check_image(image)?);
    let start = options.start.map(|start| map.cut(start)).transpose()?;
    let options = LeastSquaresOptions { start: start.as_ref(), ..*options };
    let (image, adjoint) = (map.cut(image)?, map.cut(adjoint)?);
    let Solution { image, report } = prox_l2_from_adjoint(&map, &image, &adjoint, gamma, &options)?;
    map.gather(&image, &mut map.room.borrow_mut().image)?;
    Ok(Solution { image: map.room.into_inner().image, report })
}

impl<'a> SegmentMap<'a> {
    fn new(stack: &'a DistributedStack, batch: usize) -> Self {
        let row = stack.image_shape().last().copied().unwrap_or(1);
        let elements: usize = with_batch(batch, stack.image_shape()).iter().product();
        let ctx = stack.context();
        let segments: Vec<Range<usize>> = partition::even(elements / row.max(1), ctx.size())
            .into_iter()
            .map(|rows| rows.start * row..rows.end * row)
            .collect();
        let own = [segments[ctx.rank()].len() / row.max(1), row];
        let image = Array::zeros(with_batch(batch, stack.image_shape()));
        let room = RefCell::new(Room { image, arrived: Vec::new() });
        Self { stack, batch, segments, own, room }
    }

    /// This rank's rows of an image.
    fn cut(&self, image: &Array) -> Result<Array> {
        self.stack.check_image(image)?;
        let own = self.segments[self.stack.context().rank()].clone();
        Ok(self.rows(slice(image)[own].to_vec()))
    }

    /// Fills the image of which the ranks have these rows.
    fn gather(&self, rows: &Array, image: &mut Array) -> Result<()> {
        let own = elements("least squares", rows)?;
        rounds::gather(self.stack.context(), &self.segments, own, image)
    }

    fn rows(&self, values: Vec<f32>) -> Array {
        Array::from_shape_vec(IxDyn(&self.own), values).expect("a segment is this rank's rows")
    }

    fn data(&self) -> Result<DistributedMap<'a>> {
        self.stack.as_map()
    }
}

impl LinearMap for SegmentMap<'_> {
    type Data = Measurements;

    fn image_shape(&self) -> &[usize] {
        &self.own[1..]
    }

    fn forward(&self, rows: &Array) -> Result<Measurements> {
        let image = &mut self.room.borrow_mut().image;
        self.gather(rows, image)?;
        self.data()?.forward(image)
    }

    fn adjoint(&self, data: &Measurements) -> Result<Array> {
        let arrived = &mut self.room.borrow_mut().arrived;
        let term = |index: usize, operator: &dyn Physics| {
            linear(index, operator)?.adjoint(part(data, index)?)
        };
        self.stack
            .sum_segment("adjoint", self.batch, &self.segments, arrived, term)
            .map(|sum| self.rows(sum))
    }

    fn normal(&self, rows: &Array) -> Result<Array> {
        let Room { image, arrived } = &mut *self.room.borrow_mut();
        self.gather(rows, image)?;
        let term = |index: usize, operator: &dyn Physics| linear(index, operator)?.normal(image);
        self.stack
            .sum_segment("normal", self.batch, &self.segments, arrived, term)
            .map(|sum| self.rows(sum))
    }

    fn data_squared_norm(&self, data: &Measurements) -> Result<f64> {
        self.data()?.data_squared_norm(data)
    }

    fn image_dot(&self, a: &Array, b: &Array) -> Result<f64> {
        dot_on_ranks(self.stack.context(), a, b)
    }
}
