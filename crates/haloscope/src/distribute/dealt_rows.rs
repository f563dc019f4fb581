//! Filtered back-projection of a volume in shards, of which ranks have rows of all views instead of views.
//!
//! Every rank filters its rows, and gets of the others those that it reads for its part: none but its own where rows are planes. Every
//! voxel takes from the views in their order, so the bits are those of one rank.

use std::ops::Range;

use haloscope_comm::Collectives;
use haloscope_nn::Stop;

use super::ShardedStack;
use super::agree::agree;
use super::back_projection::smear;
use super::stack::part;
use crate::array::{Array, slice, slice_mut};
use crate::error::Result;
use crate::image::Image;
use crate::measurements::Measurements;
use crate::physics::tomography::BackProjection;
use crate::region::is_empty;

/// Views whose rows are dealt to ranks.
pub(super) struct DealtRows<'a> {
    stack: &'a ShardedStack,
    plan: &'a BackProjection,
    /// Images of the batch and channels.
    planes: usize,
    columns: usize,
    /// The rows that each rank reads for its part.
    read: Vec<Range<usize>>,
}

impl<'a> DealtRows<'a> {
    /// The rows of a stack whose measurements are dealt so, if they are.
    pub(super) fn of(stack: &'a ShardedStack, plan: &'a BackProjection) -> Option<Self> {
        let is_dealt = stack.measured().iter().any(|measured| {
            let rows = measured.whole().get(3).filter(|_| measured.whole().len() == 5);
            let mut parts = measured.regions().iter().filter(|region| !is_empty(region));
            rows.is_some_and(|rows| parts.any(|region| region[3].len() < *rows))
        });
        if !is_dealt {
            return None;
        }
        let space = stack.space();
        let planes = space.whole()[..2].iter().product();
        let columns = plan.view_len() / plan.detector_rows();
        let read = |part: &Vec<Range<usize>>| {
            if is_empty(part) { 0..0 } else { plan.of_part(&part[2..]).rows_read() }
        };
        let read = space.regions().iter().map(read).collect();
        Some(Self { stack, plan, planes, columns, read })
    }

    /// This rank's part of the image, from its parts of the measurements. All ranks call it.
    pub(super) fn back_project(&self, stripe: usize, data: &Measurements) -> Result<Image> {
        let Self { stack, plan, planes, .. } = *self;
        let (ctx, space, groups) = (stack.context(), stack.space(), stack.len());
        let of_part = plan.of_part(&space.own()[2..]);
        let mut image = Array::zeros(space.own_shape());
        let lines = 0..if is_empty(space.own()) { 0 } else { planes * of_part.lines() };
        let together = groups * (stripe / (groups * planes * plan.view_len()).max(1)).max(1);
        // A rank that fails goes on with what it has, so that nobody waits for it; in the end all know.
        let mut outcome = Ok(());
        for begin in (0..plan.views()).step_by(together) {
            let views = begin..(begin + together).min(plan.views());
            let mut rows = self.own_rows(data, &views)?;
            if outcome.is_ok() {
                outcome = self.filter(&views, &mut rows);
            }
            let window = self.gather(&views, &rows)?;
            let (there, size) = (&self.read[ctx.rank()], window.len() / views.len());
            let views: Vec<(usize, &[f32])> = views.zip(window.chunks_exact(size.max(1))).collect();
            let to = slice_mut(&mut image);
            stack.workers().run(|| smear(&of_part, (planes, there), &views, lines.clone(), to));
            outcome = outcome.and_then(|()| Ok(Stop::check()?));
        }
        agree(ctx, outcome)?;
        Image::sharded(space, image)
    }

    /// The rows that a rank has of a view.
    fn own(&self, rank: usize, view: usize) -> Range<usize> {
        self.stack.measured()[view % self.stack.len()].regions()[rank][3].clone()
    }

    /// The rows of a view that one rank has and another reads.
    fn between(&self, from: usize, to: usize, view: usize) -> Range<usize> {
        let (own, read) = (self.own(from, view), &self.read[to]);
        let begin = own.start.max(read.start);
        begin..own.end.min(read.end).max(begin)
    }

    /// The values of some views that one rank sends to another.
    fn sent(&self, from: usize, to: usize, views: &Range<usize>) -> usize {
        let rows: usize = views.clone().map(|view| self.between(from, to, view).len()).sum();
        self.planes * rows * self.columns
    }

    /// The rows that this rank has, view by view, each of all planes.
    fn own_rows(&self, data: &Measurements, views: &Range<usize>) -> Result<Vec<Vec<f32>>> {
        let (groups, rank) = (self.stack.len(), self.stack.context().rank());
        let of_view = |view: usize| -> Result<Vec<f32>> {
            let all = slice(part(data, view % groups)?);
            let length = self.own(rank, view).len() * self.columns;
            let count = all.len() / (self.planes * length).max(1);
            let mut values = Vec::with_capacity(self.planes * length);
            for plane in 0..self.planes {
                let at = (plane * count + view / groups) * length;
                values.extend_from_slice(all.get(at..at + length).unwrap_or(&[]));
            }
            Ok(values)
        };
        views.clone().map(of_view).collect()
    }

    fn filter(&self, views: &Range<usize>, rows: &mut [Vec<f32>]) -> Result<()> {
        let rank = self.stack.context().rank();
        for (view, values) in views.clone().zip(rows) {
            let own = self.own(rank, view);
            let place = |i: usize| (view, own.start + i % own.len().max(1));
            self.stack.workers().run(|| self.plan.filter_rows(values, place))?;
        }
        Ok(())
    }

    /// All rows that this rank reads, view by view, each of all planes, from those that ranks have. All ranks call it.
    fn gather(&self, views: &Range<usize>, rows: &[Vec<f32>]) -> Result<Vec<f32>> {
        let ctx = self.stack.context();
        let (rank, columns) = (ctx.rank(), self.columns);
        let others = || (0..ctx.size()).filter(|other| *other != rank);
        let packed: Vec<(usize, Vec<f32>)> = others()
            .filter(|to| self.sent(rank, *to, views) > 0)
            .map(|to| (to, self.pack(to, views, rows)))
            .collect();
        let mut arrived: Vec<(usize, Vec<f32>)> = others()
            .map(|from| (from, vec![0.0; self.sent(from, rank, views)]))
            .filter(|(_, values)| !values.is_empty())
            .collect();
        {
            let _span = ctx.span("gather");
            let sends: Vec<(usize, &[f32])> =
                packed.iter().map(|(to, values)| (*to, &values[..])).collect();
            let mut receives: Vec<(usize, &mut [f32])> =
                arrived.iter_mut().map(|(from, values)| (*from, &mut values[..])).collect();
            ctx.comm().exchange(&sends, &mut receives)?;
        }
        drop(packed);
        arrived.push((rank, self.pack(rank, views, rows)));
        let length = self.read[rank].len() * columns;
        let mut window = vec![0.0; views.len() * self.planes * length];
        for (from, values) in arrived {
            let mut rest = &values[..];
            for (index, view) in views.clone().enumerate() {
                let here = self.between(from, rank, view);
                if here.is_empty() {
                    continue;
                }
                for plane in 0..self.planes {
                    let (now, after) = rest.split_at(here.len() * columns);
                    let at = (index * self.planes + plane) * length
                        + (here.start - self.read[rank].start) * columns;
                    window[at..at + now.len()].copy_from_slice(now);
                    rest = after;
                }
            }
        }
        Ok(window)
    }

    /// What this rank has of the rows that a rank reads.
    fn pack(&self, to: usize, views: &Range<usize>, rows: &[Vec<f32>]) -> Vec<f32> {
        let (rank, columns) = (self.stack.context().rank(), self.columns);
        let mut packed = Vec::with_capacity(self.sent(rank, to, views));
        for (view, rows) in views.clone().zip(rows) {
            let (own, wanted) = (self.own(rank, view), self.between(rank, to, view));
            if wanted.is_empty() {
                continue;
            }
            let at = |row: usize| (row - own.start) * columns;
            for plane in rows.chunks_exact(own.len() * columns) {
                packed.extend_from_slice(&plane[at(wanted.start)..at(wanted.end)]);
            }
        }
        packed
    }
}
