//! Volumes in a scratch folder as slabs: some planes of y or of x at a time.
//!
//! Planes of y are rows that lie together in every plane of z. Planes of x are single voxels of every row: a volume is first cut
//! into bricks, one for each slab, of which every step reads or writes long pieces. Values are only moved, so that projectors
//! find the same planes as in memory, in the same order.
//!
//! Every part of a file is fetched before it is touched, new ones too: a page that is missed makes the system read all around
//! it, up to 8 MB on some machines, which other slabs have just written.

use std::ops::Range;

use haloscope_scratch::{Visited, done, fetch, in_memory, in_pieces, piece_bytes};
use rayon::prelude::*;

use super::turn::{add_from_planes, planes, planes_of};

/// How the planes of an axis are cut.
#[derive(Clone, Debug)]
pub(super) struct Slabs {
    /// (z, y, x).
    size: [usize; 3],
    axis: usize,
    /// Planes of a slab.
    together: usize,
}

impl Slabs {
    /// Of a volume of which not all planes should be in memory at once; `None` if there is only one slab.
    pub(super) fn of(size: [usize; 3], axis: usize) -> Option<Self> {
        let plane = 4 * size.iter().product::<usize>() / size[axis].max(1);
        let together = (piece_bytes()? / plane.max(1)).max(1);
        (together < size[axis]).then_some(Self { size, axis, together })
    }

    /// Calls with one slab after the other: the number of its first plane, and its planes.
    pub(super) fn read(&self, volume: &[f32], mut visit: impl FnMut(usize, &[f32])) {
        let bricks = if self.axis == 2 { self.cut(volume) } else { Vec::new() };
        let mut rest = &bricks[..];
        for numbers in self.ranges() {
            let first = numbers.start;
            if self.axis == 2 {
                let size = self.brick(&numbers);
                let (brick, others) = rest.split_at(size.iter().product());
                rest = others;
                fetch(brick);
                let planes = in_memory(|| planes(brick, size, 2));
                done(brick);
                visit(first, &planes);
            } else {
                self.rows(&numbers).for_each(|rows| fetch(&volume[rows]));
                let planes = in_memory(|| planes_of(volume, self.size, 1, numbers.clone()));
                // Only these rows are there, and one call for all is faster than one for each.
                done(volume);
                visit(first, &planes);
            }
        }
    }

    /// Fills one slab after the other with `fill`, which gets the number of its first plane and zeros, and writes them to the volume:
    /// over what it has if they are the first that it gets, or added to it.
    pub(super) fn write(
        &self,
        volume: &mut [f32],
        is_first: bool,
        mut fill: impl FnMut(usize, &mut [f32]),
    ) {
        let area = self.size.iter().product::<usize>() / self.size[self.axis];
        let mut bricks = vec![0.0; if self.axis == 2 { volume.len() } else { 0 }];
        let mut rest = &mut bricks[..];
        for numbers in self.ranges() {
            let mut planes = in_memory(|| vec![0.0; numbers.len() * area]);
            fill(numbers.start, &mut planes);
            if self.axis == 2 {
                let size = self.brick(&numbers);
                let (brick, others) = rest.split_at_mut(size.iter().product());
                rest = others;
                fetch(brick);
                add_from_planes(&planes, size, 2, brick);
                done(brick);
            } else {
                self.rows(&numbers).for_each(|rows| fetch(&volume[rows]));
                self.place(&numbers, &planes, volume, is_first);
                done(volume);
            }
        }
        if self.axis == 2 {
            self.join(&bricks, volume, is_first);
        }
    }

    /// The planes of every slab.
    fn ranges(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (count, together) = (self.size[self.axis], self.together);
        (0..count).step_by(together).map(move |first| first..(first + together).min(count))
    }

    /// The size of the brick of a slab of x.
    fn brick(&self, numbers: &Range<usize>) -> [usize; 3] {
        [self.size[0], self.size[1], numbers.len()]
    }

    /// Where the rows of a slab of y are, plane by plane of z.
    fn rows(&self, numbers: &Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
        let ([depth, height, width], numbers) = (self.size, numbers.clone());
        (0..depth)
            .map(move |z| (z * height + numbers.start) * width..(z * height + numbers.end) * width)
    }

    /// Writes planes of y to their rows.
    fn place(&self, numbers: &Range<usize>, planes: &[f32], volume: &mut [f32], is_first: bool) {
        let [depth, height, width] = self.size;
        let whole = volume.par_chunks_mut(height * width).enumerate();
        whole.for_each(|(z, plane)| {
            let rows = plane[numbers.start * width..numbers.end * width].chunks_exact_mut(width);
            for (row, values) in rows.zip(planes.chunks_exact(width * depth)) {
                for (to, from) in row.iter_mut().zip(values[z..].iter().step_by(depth)) {
                    *to = if is_first { 0.0 } else { *to } + from;
                }
            }
        });
    }

    /// The bricks of a volume, one after the other.
    fn cut(&self, volume: &[f32]) -> Vec<f32> {
        let [depth, height, width] = self.size;
        let mut bricks = vec![0.0; volume.len()];
        in_pieces(depth, &[Visited::of(volume)], |piece| {
            let mut rest = &mut bricks[..];
            for numbers in self.ranges() {
                let (brick, others) = rest.split_at_mut(depth * height * numbers.len());
                rest = others;
                let area = height * numbers.len();
                let part = &mut brick[piece.start * area..piece.end * area];
                fetch(part);
                let rows = volume[piece.start * height * width..].par_chunks(width);
                part.par_chunks_mut(numbers.len()).zip(rows).for_each(|(to, row)| {
                    to.copy_from_slice(&row[numbers.clone()]);
                });
            }
            done(&bricks);
        });
        bricks
    }

    /// Puts bricks together.
    fn join(&self, bricks: &[f32], volume: &mut [f32], is_first: bool) {
        let [depth, height, width] = self.size;
        in_pieces(depth, &[Visited::of(volume)], |piece| {
            let mut rest = bricks;
            for numbers in self.ranges() {
                let (brick, others) = rest.split_at(depth * height * numbers.len());
                rest = others;
                let area = height * numbers.len();
                let part = &brick[piece.start * area..piece.end * area];
                fetch(part);
                let rows = volume[piece.start * height * width..].par_chunks_mut(width);
                rows.zip(part.par_chunks(numbers.len())).for_each(|(row, from)| {
                    for (to, from) in row[numbers.clone()].iter_mut().zip(from) {
                        *to = if is_first { 0.0 } else { *to } + from;
                    }
                });
            }
            done(bricks);
        });
    }
}
