//! An image in as many parts as there are ranks, without overlap: what exact denoising works on.
//!
//! The parts exchange what they read of each other while the network runs, so their results are those of the whole image
//! and need only be put together. How the image is cut depends on the ranks; the result does not.

use std::ops::Range;

use haloscope_nn::engine::Grain;
use ndarray::{Axis, Slice};

use super::Tiles;
use crate::array::{Array, View};
use crate::error::{Error, Result};

/// A grid of boxes, one for each rank.
///
/// ```
/// use haloscope::tiling::ShardPlan;
/// use haloscope_nn::engine::Grain;
///
/// let grain = Grain { step: 48, last: 1 };
/// let shards = ShardPlan::new(&[1, 3, 480, 480], &[grain, grain], 4)?;
/// assert_eq!((shards.grid(), shards.region(3)), (vec![2, 2], vec![240..480, 240..480]));
/// // The one that lies above it.
/// assert_eq!(shards.neighbour(3, 0, 0), Some(1));
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardPlan {
    image: Vec<usize>,
    /// The parts of each spatial axis.
    cuts: Vec<Vec<Range<usize>>>,
}

impl ShardPlan {
    /// The parts of images of this shape, (batch, channel, spatial…), that may be cut at these grains, for so many ranks:
    /// the largest part is as small as possible, and the cuts are as short as possible then. There may be fewer parts than
    /// ranks.
    pub fn new(image: &[usize], grains: &[Grain], ranks: usize) -> Result<Self> {
        if image.len() != grains.len() + 2 || image.contains(&0) || ranks == 0 {
            return Err(Error::argument(
                "shards",
                format!(
                    "images of shape {image:?}, {} grains and {ranks} ranks; (batch, channel, spatial…), a grain for each \
                     spatial axis and at least 1 rank are needed",
                    grains.len()
                ),
            ));
        }
        let mut best: Option<(f64, f64, Vec<usize>)> = None;
        let mut grid = vec![1; grains.len()];
        choose(&image[2..], grains, ranks, &mut grid, 0, &mut best);
        let grid = best.map_or_else(|| vec![1; grains.len()], |(_, _, grid)| grid);
        let axes = grains.iter().zip(&image[2..]).zip(&grid);
        let cuts: Option<Vec<_>> =
            axes.map(|((grain, &side), &parts)| grain.cut(side, parts)).collect();
        let cuts = cuts.ok_or_else(|| {
            Error::argument("shards", format!("a grid of {grid:?}, which {grains:?} do not allow"))
        })?;
        Ok(Self { image: image.to_vec(), cuts })
    }

    /// How many parts there are along each spatial axis.
    #[must_use]
    pub fn grid(&self) -> Vec<usize> {
        self.cuts.iter().map(Vec::len).collect()
    }

    /// Where a part lies.
    #[must_use]
    pub fn region(&self, part: usize) -> Vec<Range<usize>> {
        self.cuts.iter().zip(self.place_of(part)).map(|(cuts, at)| cuts[at].clone()).collect()
    }

    /// The part next to this one on an axis, before it (0) or after it (1).
    #[must_use]
    pub fn neighbour(&self, part: usize, axis: usize, side: usize) -> Option<usize> {
        let mut place = self.place_of(part);
        let at = if side == 0 { place[axis].checked_sub(1)? } else { place[axis] + 1 };
        place[axis] = at;
        let is_there = at < self.cuts[axis].len();
        is_there.then(|| {
            place.iter().zip(&self.cuts).fold(0, |part, (at, cuts)| part * cuts.len() + at)
        })
    }

    /// The longest part of each spatial axis.
    #[must_use]
    pub fn longest(&self) -> Vec<usize> {
        let longest = |cuts: &Vec<Range<usize>>| cuts.iter().map(Range::len).max().unwrap_or(0);
        self.cuts.iter().map(longest).collect()
    }

    /// The pixels of the largest part, in fair shares of the image on so many ranks.
    #[must_use]
    pub fn largest_load(&self, ranks: usize) -> f64 {
        (0..self.count()).map(|part| self.load(part, ranks)).fold(0.0, f64::max)
    }

    pub(crate) fn load(&self, part: usize, ranks: usize) -> f64 {
        let pixels: f64 = self.image[2..].iter().map(|side| *side as f64).product();
        self.cost(part) * ranks as f64 / pixels
    }

    fn place_of(&self, mut part: usize) -> Vec<usize> {
        let mut place: Vec<usize> = (self.cuts.iter().rev())
            .map(|cuts| {
                let at = part % cuts.len();
                part /= cuts.len();
                at
            })
            .collect();
        place.reverse();
        place
    }
}

/// Tries all grids of at most `ranks` parts from `axis` on.
fn choose(
    sides: &[usize],
    grains: &[Grain],
    ranks: usize,
    grid: &mut Vec<usize>,
    axis: usize,
    best: &mut Option<(f64, f64, Vec<usize>)>,
) {
    if axis == sides.len() {
        let longest = |axis: usize| {
            let cut = grains[axis].cut(sides[axis], grid[axis]).unwrap_or_default();
            cut.iter().map(Range::len).max().unwrap_or(0) as f64
        };
        let lengths: Vec<f64> = (0..sides.len()).map(longest).collect();
        let volume: f64 = lengths.iter().product();
        // The faces of a part in the middle.
        let face = |axis: usize| (grid[axis] - 1).min(2) as f64 * volume / lengths[axis];
        let faces: f64 = (0..sides.len()).map(face).sum();
        let is_better = |(least, shortest, _): &(f64, f64, Vec<usize>)| {
            volume < *least || volume <= *least && faces < *shortest
        };
        if best.as_ref().is_none_or(is_better) {
            *best = Some((volume, faces, grid.clone()));
        }
        return;
    }
    for parts in 1..=ranks.min(grains[axis].most_parts(sides[axis])) {
        grid[axis] = parts;
        choose(sides, grains, ranks / parts, grid, axis + 1, best);
    }
    grid[axis] = 1;
}

impl Tiles for ShardPlan {
    fn count(&self) -> usize {
        self.cuts.iter().map(Vec::len).product()
    }

    fn image_shape(&self) -> &[usize] {
        &self.image
    }

    fn extract(&self, image: &View, tile: usize) -> Result<Array> {
        if image.ndim() != self.image.len() || image.shape()[2..] != self.image[2..] {
            return Err(Error::Shape {
                what: "the image to cut into parts".into(),
                expected: format!("the sides {:?} were planned for", &self.image[2..]),
                found: image.shape().to_vec(),
            });
        }
        let mut part = image.view();
        for (axis, range) in self.region(tile).into_iter().enumerate() {
            part.slice_axis_inplace(Axis(axis + 2), Slice::from(range));
        }
        Ok(part.as_standard_layout().into_owned())
    }

    fn finish(&self, result: Array, _tile: usize) -> Result<Array> {
        Ok(result)
    }

    fn part_len(&self, tile: usize) -> usize {
        self.region(tile).iter().map(Range::len).product()
    }

    fn place(&self, image: &mut [f32], part: &[f32], tile: usize) -> Result<()> {
        let region = self.region(tile);
        let mut shape = self.image[..2].to_vec();
        shape.extend(region.iter().map(Range::len));
        let target = ndarray::ArrayViewMutD::from_shape(self.image.clone(), image);
        let part = ndarray::ArrayViewD::from_shape(shape.clone(), part);
        let (Ok(mut target), Ok(part)) = (target, part) else {
            return Err(Error::Shape {
                what: "a part of the image".into(),
                expected: format!("one of {:?} is expected", self.image),
                found: shape,
            });
        };
        for (axis, range) in region.into_iter().enumerate() {
            target.slice_axis_inplace(Axis(axis + 2), Slice::from(range));
        }
        target.assign(&part);
        Ok(())
    }

    fn cost(&self, tile: usize) -> f64 {
        self.part_len(tile) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINE: Grain = Grain { step: 48, last: 1 };

    #[test]
    fn blocks_are_chosen_before_slabs_and_nothing_is_left_out() {
        for (ranks, grid) in
            [(1, vec![1, 1]), (2, vec![2, 1]), (4, vec![2, 2]), (16, vec![4, 4]), (64, vec![8, 8])]
        {
            let shards =
                ShardPlan::new(&[1, 3, 1536, 1536], &[FINE, FINE], ranks).expect("it fits");
            let mut sorted = shards.grid();
            sorted.sort_by(|a, b| b.cmp(a));
            assert_eq!(sorted, grid, "{ranks} ranks");
            assert!((shards.largest_load(ranks) - 1.0).abs() < 1e-9);
        }
        // One row of grains: slabs of columns, and no more ranks than grains.
        let shards = ShardPlan::new(&[1, 1, 40, 200], &[FINE, FINE], 9).expect("it fits");
        assert_eq!(shards.grid(), [1, 5]);
        assert_eq!((shards.neighbour(0, 1, 0), shards.neighbour(0, 1, 1)), (None, Some(1)));
        assert_eq!((shards.neighbour(4, 1, 1), shards.neighbour(4, 0, 0)), (None, None));
    }

    #[test]
    fn parts_that_are_cut_and_placed_make_the_image_again() {
        let coarse = Grain { step: 5, last: 3 };
        let shape = [2, 3, 23, 17];
        let image = Array::from_shape_fn(ndarray::IxDyn(&shape), |at| {
            (at[0] * 1000 + at[1] * 500 + at[2] * 20 + at[3]) as f32
        });
        let shards = ShardPlan::new(&shape, &[coarse, coarse], 6).expect("it fits");
        assert!(shards.count() > 3);
        let mut copy = vec![f32::NAN; image.len()];
        for part in 0..shards.count() {
            let values = shards.extract(&image, part).expect("its shape");
            assert_eq!(values.len(), 6 * shards.part_len(part));
            shards.place(&mut copy, values.as_slice().expect("standard"), part).expect("fits");
        }
        assert_eq!(copy, image.into_raw_vec_and_offset().0);
    }
}
