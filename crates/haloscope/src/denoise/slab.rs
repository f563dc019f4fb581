//! Total variation of some rows of an image, or of a box of it: what a rank computes of it, or all of it.
//!
//! Rows are those of the first spatial axis, slices of a volume. All that a row needs of others are differences along that axis:
//! the dual of the row before it, and the row after it. A slab has a copy of these two, and a box has one of the pixels around
//! it; [`Neighbours`] keep them up to date, and every element is computed by the same operations as in the whole image. The sums
//! that decide when to stop are those of images in any layout, so that they do not depend on the cut either.

use std::borrow::Cow;
use std::ops::Range;

use haloscope_nn::Stop;
use haloscope_scratch::{Visited, in_pieces};
use ndarray::ArrayViewMutD;
use rayon::prelude::*;

use super::TotalVariation;
use super::differences::{add_gradient, gradient_adjoint_into, project};
use crate::array::update;
use crate::error::Result;
use crate::image::{Sum, add_runs};

/// Those who have the other rows.
pub(crate) trait Neighbours {
    /// Sends the rows at the ends of a slab to those who have the rows beside them, and receives theirs. Without a slab there is
    /// nothing to send or receive, but the call is made.
    fn exchange(&mut self, slab: Option<&mut Slab<'_>>, field: Field) -> Result<()>;

    /// The totals of sums of which this is the slab's own share.
    fn totals(&mut self, own: [Sum; 2]) -> Result<[f64; 2]>;
}

/// Nobody: the slab is the whole image.
pub(crate) struct Alone;

impl Neighbours for Alone {
    fn exchange(&mut self, _: Option<&mut Slab<'_>>, _: Field) -> Result<()> {
        Ok(())
    }

    fn totals(&mut self, own: [Sum; 2]) -> Result<[f64; 2]> {
        Ok(own.map(|sum| sum.value()))
    }
}

/// A dual variable of a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    /// Where the next step begins.
    Ahead,
    /// The result.
    Dual,
}

/// Rows of one image, or a box of it. The image has a batch of 1, and two spatial axes at least if it is cut into rows.
pub(crate) struct Slab<'a> {
    /// (1, channel, spatial…), with what lies beside the own pixels.
    shape: Vec<usize>,
    /// The own pixels along each spatial axis.
    own: Vec<Range<usize>>,
    /// Whether the last of them are the image's last.
    ends: Vec<bool>,
    image: Cow<'a, [f32]>,
    weight: f32,
    dual: Vec<f32>,
    ahead: Vec<f32>,
    /// The last estimate and the one before it, as far as there are some.
    estimate: Vec<f32>,
    before: Vec<f32>,
    momentum: f32,
}

impl TotalVariation {
    /// The minimiser in the rows of a slab, together with those who have the others; nothing for those who have no rows.
    pub(crate) fn minimise<'a>(
        &self,
        mut slab: Option<Slab<'a>>,
        neighbours: &mut dyn Neighbours,
    ) -> Result<Option<Slab<'a>>> {
        for iteration in 0..self.iterations {
            Stop::check()?;
            // In the beginning the duals are zero everywhere, and the first estimate is the image itself.
            let is_first = iteration == 0;
            if !is_first {
                neighbours.exchange(slab.as_mut(), Field::Ahead)?;
            }
            slab.iter_mut().for_each(Slab::advance);
            if is_first {
                continue;
            }
            let own = slab.as_ref().map(Slab::sums).unwrap_or_default();
            let [change, square] = neighbours.totals(own)?;
            if change.sqrt() <= self.tolerance * square.sqrt() {
                break;
            }
        }
        if let Some(slab) = &mut slab {
            (slab.ahead, slab.before) = (Vec::new(), Vec::new());
        }
        neighbours.exchange(slab.as_mut(), Field::Dual)?;
        slab.iter_mut().for_each(Slab::finish);
        Ok(slab)
    }
}

impl<'a> Slab<'a> {
    /// The whole image.
    pub(crate) fn whole(image: &'a [f32], shape: &[usize], weight: f32) -> Self {
        let own = shape[2..].iter().map(|side| 0..*side).collect();
        Self::with(Cow::Borrowed(image), shape.to_vec(), own, vec![true; shape.len() - 2], weight)
    }

    /// Some rows of it, at least one.
    pub(crate) fn cut(image: &[f32], shape: &[usize], rows: Range<usize>, weight: f32) -> Self {
        let (count, length) = (shape[2], shape[3..].iter().product::<usize>());
        let first = rows.start.saturating_sub(1);
        let taken = first..(rows.end + 1).min(count);
        let planes = image.chunks(count * length);
        let part = planes.flat_map(|plane| &plane[taken.start * length..taken.end * length]);
        let mut cut = shape.to_vec();
        cut[2] = taken.len();
        let mut own: Vec<_> = shape[2..].iter().map(|side| 0..*side).collect();
        let mut ends = vec![true; own.len()];
        (own[0], ends[0]) = (rows.start - first..rows.end - first, taken.end == count);
        Self::with(part.copied().collect(), cut, own, ends, weight)
    }

    /// A box of an image with the pixels around it: where its own pixels are, and along which axes they go to the image's end.
    pub(crate) fn with(
        image: Cow<'a, [f32]>,
        shape: Vec<usize>,
        own: Vec<Range<usize>>,
        ends: Vec<bool>,
        weight: f32,
    ) -> Self {
        let dual = vec![0.0; image.len() * (shape.len() - 2)];
        let ahead = dual.clone();
        let (estimate, before, momentum) = (Vec::new(), Vec::new(), 1.0);
        Self { shape, own, ends, image, weight, dual, ahead, estimate, before, momentum }
    }

    /// A projected gradient step of the dual, with momentum.
    fn advance(&mut self) {
        let axes = self.shape.len() - 2;
        // ‖∇‖² is at most 4 per axis.
        let step = 1.0 / (4.0 * axes as f32 * self.weight);
        std::mem::swap(&mut self.estimate, &mut self.before);
        self.estimate.resize(self.image.len(), 0.0);
        Self::primal(
            &mut self.estimate,
            &self.image,
            &self.ahead,
            &self.shape,
            &self.ends,
            self.weight,
        );
        add_gradient(&mut self.ahead, step, &self.estimate, &self.shape, &[]);
        project(&mut self.ahead, &self.shape, 1.0);
        let following = f32::midpoint(1.0, (1.0 + 4.0 * self.momentum * self.momentum).sqrt());
        let factor = (self.momentum - 1.0) / following;
        // What is ahead is the next dual; both become what follows from them.
        let visited = [Visited::of(&self.ahead), Visited::of(&self.dual)];
        let (ahead, dual) = (&mut self.ahead, &mut self.dual);
        in_pieces(ahead.len(), &visited, |piece| {
            let pairs = ahead[piece.clone()].par_iter_mut().zip(dual[piece].par_iter_mut());
            pairs.for_each(|(ahead, dual)| {
                let (next, old) = (*ahead, *dual);
                *ahead = next + factor * (next - old);
                *dual = next;
            });
        });
        self.momentum = following;
    }

    /// `image − weight ∇ᵀ dual`. What lies before the own pixels is wrong, and is not used.
    fn primal(
        to: &mut [f32],
        image: &[f32],
        dual: &[f32],
        shape: &[usize],
        ends: &[bool],
        weight: f32,
    ) {
        gradient_adjoint_into(to, dual, shape, ends, &[]);
        update(to, image, |to, image| *to = image + -weight * *to);
    }

    /// The squares of the last change and of the estimate, of the own pixels.
    fn sums(&self) -> [Sum; 2] {
        let (columns, outer) = self.own.split_last().expect("there is an axis");
        let sides = &self.shape[2..];
        let length = sides[outer.len()];
        // Lines of all channels, of which the own ones count.
        let lines = self.shape[1] * sides[..outer.len()].iter().product::<usize>();
        let is_own = |line: usize| {
            let mut rest = line;
            outer.iter().zip(sides).rev().all(|(own, side)| {
                let place = rest % side;
                rest /= side;
                own.contains(&place)
            })
        };
        let add = |mut sums: [Sum; 2], line: usize| {
            let row = line * length + columns.start..line * length + columns.end;
            let (here, before) = (&self.estimate[row.clone()], &self.before[row]);
            add_runs(&mut sums[0], [here, before], &|[a, b]: [f32; 2]| {
                (f64::from(a) - f64::from(b)).powi(2)
            });
            add_runs(&mut sums[1], [here], &|[a]: [f32; 1]| f64::from(a) * f64::from(a));
            sums
        };
        let merge = |mut sums: [Sum; 2], others: [Sum; 2]| {
            sums.iter_mut().zip(&others).for_each(|(sum, other)| sum.merge(other));
            sums
        };
        let mut total: [Sum; 2] = Default::default();
        let visited = [Visited::of(&self.estimate), Visited::of(&self.before)];
        in_pieces(lines, &visited, |piece| {
            let lines = piece.into_par_iter().with_min_len(64).filter(|line| is_own(*line));
            let found = lines.fold(Default::default, add).reduce(Default::default, merge);
            total = merge(std::mem::take(&mut total), found);
        });
        total
    }

    /// Makes the estimate the one of the dual.
    fn finish(&mut self) {
        self.estimate.resize(self.image.len(), 0.0);
        Self::primal(
            &mut self.estimate,
            &self.image,
            &self.dual,
            &self.shape,
            &self.ends,
            self.weight,
        );
    }

    /// What was found, if there are no rows of others.
    pub(crate) fn into_result(self) -> Vec<f32> {
        self.estimate
    }

    /// What was found in the own rows of a channel.
    pub(crate) fn result(&self, channel: usize) -> &[f32] {
        let (begin, length, own) = (channel * self.rows(), self.row_len(), self.own_rows());
        &self.estimate[(begin + own.start) * length..(begin + own.end) * length]
    }

    /// A dual, with that of the pixels around the own ones: (1, channel, axis, spatial…).
    pub(crate) fn field(&mut self, field: Field) -> ArrayViewMutD<'_, f32> {
        let mut shape = self.shape.clone();
        shape.insert(2, shape.len() - 2);
        let values = match field {
            Field::Ahead => &mut self.ahead,
            Field::Dual => &mut self.dual,
        };
        ArrayViewMutD::from_shape(shape, values).expect("an axis more than the image")
    }

    /// What those before need of the first own row: all of its dual. And what those after need of the last one: its differences
    /// along the first axis.
    pub(crate) fn sent(&self, field: Field) -> [Vec<f32>; 2] {
        let values = match field {
            Field::Ahead => &self.ahead,
            Field::Dual => &self.dual,
        };
        let copy = |places: Vec<Range<usize>>| {
            places.into_iter().flat_map(|place| &values[place]).copied().collect()
        };
        let ([all, along], own) = (self.reach(), self.own_rows());
        [copy(self.places(own.start, all)), copy(self.places(own.end - 1, along))]
    }

    /// The lengths of what those before and those after send, 0 where there is nobody.
    pub(crate) fn awaited(&self) -> [usize; 2] {
        let [all, along] = self.reach();
        let values = |axes: usize| axes * self.shape[1] * self.row_len();
        let own = self.own_rows();
        let (before, after) = (own.start > 0, own.end < self.rows());
        [if before { values(along) } else { 0 }, if after { values(all) } else { 0 }]
    }

    /// Takes what those before and those after have sent.
    pub(crate) fn receive(&mut self, field: Field, arrived: [&[f32]; 2]) {
        let ([all, along], own) = (self.reach(), self.own_rows());
        let mut places = Vec::new();
        if !arrived[0].is_empty() {
            places.push((self.places(own.start - 1, along), arrived[0]));
        }
        if !arrived[1].is_empty() {
            places.push((self.places(own.end, all), arrived[1]));
        }
        let values = match field {
            Field::Ahead => &mut self.ahead,
            Field::Dual => &mut self.dual,
        };
        for (places, arrived) in places {
            for (place, row) in
                places.into_iter().zip(arrived.chunks(self.shape[3..].iter().product()))
            {
                values[place].copy_from_slice(row);
            }
        }
    }

    /// How many of the axes matter of a row after the slab, and of one before it.
    fn reach(&self) -> [usize; 2] {
        [self.shape.len() - 2, 1]
    }

    /// Where the first so many axes of a row are in a dual.
    fn places(&self, row: usize, axes: usize) -> Vec<Range<usize>> {
        let (all, rows, length) = (self.shape.len() - 2, self.rows(), self.row_len());
        let planes =
            (0..self.shape[1]).flat_map(|channel| (0..axes).map(move |axis| channel * all + axis));
        let begin = |plane: usize| (plane * rows + row) * length;
        planes.map(|plane| begin(plane)..begin(plane) + length).collect()
    }

    /// The own rows. An image of one axis is one row.
    fn own_rows(&self) -> Range<usize> {
        if self.shape.len() > 3 { self.own[0].clone() } else { 0..1 }
    }

    /// Its rows with those beside them. An image of one axis is one row.
    fn rows(&self) -> usize {
        if self.shape.len() > 3 { self.shape[2] } else { 1 }
    }

    /// The pixels of a row, of one channel.
    fn row_len(&self) -> usize {
        self.shape[2..].iter().product::<usize>() / self.rows().max(1)
    }
}
