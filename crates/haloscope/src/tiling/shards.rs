//! An image in as many parts as there are ranks, without overlap: what exact denoising works on.
//!
//! The parts exchange what they read of each other while the network runs, so their results are those of the whole image
//! and need only be put together. How the image is cut depends on the ranks; the result does not.

use std::ops::Range;

use haloscope_nn::engine::Grain;
use ndarray::{Axis, Slice};

use super::{Tiles, grid};
use crate::array::{Array, View};
use crate::error::{Error, Result};

/// Cuts between columns, the last axis, are at multiples of this as well as of the network's grain: sums over an image add up
/// runs of so many columns, and no cut divides one. An axis that is too short for it is not cut.
pub const COLUMN_STEP: usize = 8;

/// How an image is cut into parts, one for each rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Shards {
    /// The largest part is as small as possible, and the cuts are as short as possible then. Volumes are cut into slabs of planes
    /// first, and in the plane where the largest part would otherwise be more than an eighth larger. There may be fewer
    /// parts than ranks.
    #[default]
    Auto,
    /// So many parts along each spatial axis, as many in all as there are ranks.
    Grid(Vec<usize>),
}

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
    /// Where each spatial axis may be cut.
    grains: Vec<Grain>,
    /// The parts of each spatial axis.
    cuts: Vec<Vec<Range<usize>>>,
}

/// The length of a part along each axis, and whether it has a neighbour before and after it there.
pub(crate) type Kind = Vec<(usize, [bool; 2])>;

impl ShardPlan {
    /// The parts of images of this shape, (batch, channel, spatial…), that may be cut at these grains, for so many ranks:
    /// those of [`Shards::Auto`].
    pub fn new(image: &[usize], grains: &[Grain], ranks: usize) -> Result<Self> {
        Self::with_shards(image, grains, &Shards::Auto, ranks)
    }

    /// As [`new`](Self::new), in a grid that may be given.
    ///
    /// ```
    /// use haloscope::tiling::{ShardPlan, Shards};
    /// use haloscope_nn::engine::Grain;
    ///
    /// let (image, grain) = ([1, 3, 480, 480], Grain { step: 48, last: 1 });
    /// let slabs = |parts| Shards::Grid(vec![parts, 1]);
    /// let shards = ShardPlan::with_shards(&image, &[grain, grain], &slabs(4), 4)?;
    /// assert_eq!(shards.region(3), [384..480, 0..480]);
    /// let error = ShardPlan::with_shards(&image, &[grain, grain], &slabs(3), 4).unwrap_err();
    /// assert!(error.to_string().contains("grids that fit: [2, 2]"));
    /// # Ok::<(), haloscope::Error>(())
    /// ```
    pub fn with_shards(
        image: &[usize],
        grains: &[Grain],
        shards: &Shards,
        ranks: usize,
    ) -> Result<Self> {
        if image.len() != grains.len() + 2 || image.len() < 3 || image.contains(&0) || ranks == 0 {
            return Err(Error::argument(
                "shards",
                format!(
                    "images of shape {image:?}, {} grains and {ranks} ranks; (batch, channel, spatial…), a grain for each \
                     spatial axis and at least 1 rank are needed",
                    grains.len()
                ),
            ));
        }
        let mut grains = grains.to_vec();
        if let Some(columns) = grains.last_mut() {
            columns.step = least_common_multiple(columns.step.max(1), COLUMN_STEP);
        }
        let sides = &image[2..];
        let grid = match shards {
            Shards::Auto => grid::largest(sides, &grains, ranks),
            Shards::Grid(grid) => {
                grid::check(grid, sides, &grains, ranks)?;
                grid.clone()
            }
        };
        Self::in_grid(image, grains, &grid)
    }

    fn in_grid(image: &[usize], grains: Vec<Grain>, grid: &[usize]) -> Result<Self> {
        let axes = grains.iter().zip(&image[2..]).zip(grid);
        let cuts: Option<Vec<_>> =
            axes.map(|((grain, &side), &parts)| grain.cut(side, parts)).collect();
        let cuts = cuts.ok_or_else(|| {
            Error::argument("shards", format!("a grid of {grid:?}, which {grains:?} do not allow"))
        })?;
        Ok(Self { image: image.to_vec(), grains, cuts })
    }

    /// The same image for so many ranks, not cut between rows, the axis before the last. The grains are the same.
    pub(crate) fn without_cut_rows(&self, ranks: usize) -> Result<Self> {
        let rows = self.image.len().saturating_sub(4)..self.image.len() - 3;
        self.with_whole(rows, ranks)
    }

    /// The same image for so many ranks, cut between columns, the last axis, alone. The grains are the same.
    pub(crate) fn in_columns(&self, ranks: usize) -> Result<Self> {
        self.with_whole(0..self.image.len() - 3, ranks)
    }

    /// The same image for so many ranks, not cut along some spatial axes.
    fn with_whole(&self, axes: Range<usize>, ranks: usize) -> Result<Self> {
        let sides = &self.image[2..];
        let mut grains = self.grains.clone();
        for (grain, side) in grains[axes.clone()].iter_mut().zip(&sides[axes]) {
            grain.step = *side;
        }
        let grid = grid::largest(sides, &grains, ranks);
        Self::in_grid(&self.image, self.grains.clone(), &grid)
    }

    /// The smallest boxes that the image may be cut into: the parts of any number of ranks are made of these.
    ///
    /// ```
    /// use haloscope::tiling::ShardPlan;
    /// use haloscope_nn::engine::Grain;
    ///
    /// let grain = Grain { step: 48, last: 1 };
    /// let shards = |ranks| ShardPlan::new(&[1, 3, 96, 100], &[grain, grain], ranks);
    /// assert_eq!(shards(1)?.grains(), shards(4)?.grains());
    /// assert_eq!(shards(1)?.grains()[2], [0..48, 96..100]);
    /// # Ok::<(), haloscope::Error>(())
    /// ```
    #[must_use]
    pub fn grains(&self) -> Vec<Vec<Range<usize>>> {
        let mut boxes: Vec<Vec<Range<usize>>> = vec![Vec::new()];
        for (grain, &side) in self.grains.iter().zip(&self.image[2..]) {
            let finest = grain.cut(side, grain.most_parts(side));
            let along = finest.unwrap_or_else(|| std::iter::once(0..side).collect());
            let extended = |start: &Vec<Range<usize>>| {
                let with = |next: &Range<usize>| start.iter().chain([next]).cloned().collect();
                along.iter().map(with).collect::<Vec<_>>()
            };
            boxes = boxes.iter().flat_map(extended).collect();
        }
        boxes
    }

    /// How many [grains](Self::grains) there are.
    #[must_use]
    pub fn grain_count(&self) -> usize {
        let sides = self.grains.iter().zip(&self.image[2..]);
        sides.map(|(grain, side)| grain.most_parts(*side)).product()
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

    /// What decides what a part costs: its lengths and the sides that are cut. Parts of one kind exchange as much.
    pub(crate) fn kind(&self, part: usize) -> Kind {
        let sides = self.region(part).into_iter().zip(&self.image[2..]);
        sides.map(|(part, side)| (part.len(), [part.start > 0, part.end < *side])).collect()
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

/// Multiples of these grains of which an image with these sides has at most 64: for [operators that see the whole
/// image](crate::distribute::ShardedStack::new), which work on one after the other. Rows are cut more often than columns.
///
/// ```
/// use haloscope::tiling::coarse_grains;
/// use haloscope_nn::engine::Grain;
///
/// let grain = Grain { step: 8, last: 1 };
/// let coarse = coarse_grains(&[512, 500], &[grain, grain]);
/// assert_eq!((coarse[0].step, coarse[1].step), (32, 128));
/// ```
#[must_use]
pub fn coarse_grains(sides: &[usize], grains: &[Grain]) -> Vec<Grain> {
    let most = |axis: usize| match (sides.len(), axis) {
        (1, _) => 64,
        (_, 0) => 16,
        (2, _) => 4,
        _ => 2,
    };
    let coarse = |(axis, (grain, &side)): (usize, (&Grain, &usize))| {
        let is_last = axis + 1 == sides.len();
        let step = if is_last {
            least_common_multiple(grain.step.max(1), COLUMN_STEP)
        } else {
            grain.step.max(1)
        };
        let grain = Grain { step, ..*grain };
        Grain { step: step * grain.most_parts(side).div_ceil(most(axis)), ..grain }
    };
    grains.iter().zip(sides).enumerate().map(coarse).collect()
}

fn least_common_multiple(a: usize, b: usize) -> usize {
    let (mut divisor, mut rest) = (a, b);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    a / divisor * b
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
    fn volumes_are_cut_into_slabs_until_planes_run_out() {
        let depth = Grain { step: 8, last: 1 };
        let grid = |sides: [usize; 3], ranks| {
            let shape = [&[1, 1], &sides[..]].concat();
            let shards = ShardPlan::new(&shape, &[depth, FINE, FINE], ranks).expect("it fits");
            (shards.grid(), shards.largest_load(ranks))
        };
        // Blocks of 2 × 2 × 2 would have shorter cuts.
        for ranks in [1, 2, 4, 8] {
            assert_eq!(grid([64, 96, 96], ranks), (vec![ranks, 1, 1], 1.0));
        }
        // More ranks than slabs.
        assert_eq!(grid([64, 96, 96], 16), (vec![8, 1, 2], 1.0));
        assert_eq!(grid([16, 96, 192], 8), (vec![2, 2, 2], 1.0));
        assert_eq!(grid([4, 96, 96], 4), (vec![1, 2, 2], 1.0));
        assert_eq!(grid([40, 96, 96], 6).0, [5, 1, 1]);
        // Nine grains of planes for four ranks: a slab would have a third more than a block, and half a slab a ninth. Of 33 grains,
        // a slab has an eleventh more.
        assert_eq!(grid([72, 96, 96], 4).0, [2, 1, 2]);
        assert_eq!(grid([264, 96, 96], 4).0, [4, 1, 1]);
    }

    #[test]
    fn no_cut_divides_a_run_of_columns() {
        for (step, last) in [(1, 1), (6, 1), (6, 5), (48, 8), (20, 3)] {
            let grain = Grain { step, last };
            for (side, ranks) in [(7, 3), (13, 2), (50, 8), (203, 5), (400, 64)] {
                let shards = ShardPlan::new(&[1, 1, 1, side], &[grain, grain], ranks);
                let shards = shards.expect("it fits");
                for part in 0..shards.count() {
                    let columns = shards.region(part)[1].clone();
                    assert!(
                        columns.start.is_multiple_of(COLUMN_STEP)
                            && columns.start.is_multiple_of(step)
                    );
                }
                // An axis is cut as soon as it has room for a cut.
                let step = least_common_multiple(step, COLUMN_STEP);
                assert_eq!(shards.count() > 1, ranks > 1 && side >= step + last);
            }
        }
    }

    #[test]
    fn grids_that_are_given_are_taken_as_they_are() {
        let grid = |grid: &[usize], ranks| {
            let shards = Shards::Grid(grid.to_vec());
            ShardPlan::with_shards(&[1, 3, 203, 155], &[FINE, FINE], &shards, ranks)
        };
        for (parts, ranks) in [(&[5, 1], 5), (&[1, 3], 3), (&[2, 2], 4), (&[4, 2], 8)] {
            assert_eq!(grid(parts, ranks).expect("it fits").grid(), parts);
        }
        for (parts, ranks, words) in [
            (&[2][..], 2, "[2]; one number for each of 2 spatial axes is needed, such as [2, 1]"),
            (&[2, 2], 3, "[2, 2] are 4 parts for 3 ranks; grids that fit: [1, 3], [3, 1]"),
            (&[0, 2], 2, "[0, 2] are 0 parts for 2 ranks; grids that fit: [2, 1], [1, 2]"),
            (
                &[1, 6],
                6,
                "6 parts of 155 pixels, of which at most 4 are possible (cuts are at multiples of 48)",
            ),
            (
                &[7, 1],
                7,
                "no grid of 7 parts fits, because at most [5, 4] are possible; take 6 ranks, or \"auto\"",
            ),
        ] {
            let error = grid(parts, ranks).expect_err("it does not fit").to_string();
            assert!(error.contains(words), "{error}");
        }
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
