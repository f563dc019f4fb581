//! Volumes as planes of an axis, and back: blocks of them are turned so that z comes last.
//!
//! Neighbours along z are a whole plane apart in a volume. A block uses all of every line of the cache that it touches, however far apart
//! these are, and those that the machine reads ahead.

use std::ops::Range;

use rayon::prelude::*;

use super::space::layout;

/// The sides of a block: 16 kB, which the innermost cache holds.
const BLOCK: usize = 64;

/// How many of so many planes are turned in one task: 8 or more, and no more than leave every thread a task.
fn together(planes: usize) -> usize {
    planes.div_ceil(rayon::current_num_threads()).clamp(8, BLOCK)
}

/// The volume as planes of an axis: rows of z for planes of y and x.
pub(super) fn planes(volume: &[f32], size: [usize; 3], axis: usize) -> Vec<f32> {
    planes_of(volume, size, axis, 0..layout(size, axis)[0].0)
}

/// Some of the planes.
pub(super) fn planes_of(
    volume: &[f32],
    size: [usize; 3],
    axis: usize,
    numbers: Range<usize>,
) -> Vec<f32> {
    let [_, lines, elements] = layout(size, axis);
    let area = lines.0 * elements.0;
    if axis == 0 {
        return volume[numbers.start * area..numbers.end * area].to_vec();
    }
    let [depth, height, width] = size;
    let mut planes = vec![0.0; numbers.len() * area];
    // Planes of y hold all x of a row, and planes of x all y, of which those of a block are turned together.
    let together = if axis == 1 { 1 } else { together(numbers.len()) };
    planes.par_chunks_mut(together * area).enumerate().for_each(|(task, planes)| {
        let first = numbers.start + task * together;
        let count = planes.len() / area;
        let (ys, xs) = match axis {
            1 => (first..first + count, 0..width),
            _ => (0..height, first..first + count),
        };
        let (y_step, x_step) = if axis == 1 { (area, depth) } else { (depth, area) };
        for (row, y) in ys.enumerate() {
            for x in xs.clone().step_by(BLOCK) {
                let wide = BLOCK.min(xs.end - x);
                for z in (0..depth).step_by(BLOCK) {
                    let deep = BLOCK.min(depth - z);
                    let from = &volume[(z * height + y) * width + x..];
                    let to = &mut planes[row * y_step + (x - xs.start) * x_step + z..];
                    let block = Block::read(from, height * width, [deep, wide]);
                    block.each_column(|x, column| to[x * x_step..][..deep].copy_from_slice(column));
                }
            }
        }
    });
    planes
}

/// Adds planes of an axis to the volume.
pub(super) fn add_from_planes(planes: &[f32], size: [usize; 3], axis: usize, volume: &mut [f32]) {
    let [depth, height, width] = size;
    let add = |to: &mut [f32], from: &[f32]| {
        to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
    };
    if axis == 0 {
        let rows = volume.par_chunks_mut(width).zip(planes.par_chunks(width));
        return rows.for_each(|(to, from)| add(to, from));
    }
    let (y_step, x_step) = if axis == 1 { (width * depth, depth) } else { (depth, height * depth) };
    let together = together(depth);
    volume.par_chunks_mut(together * height * width).enumerate().for_each(|(task, volume)| {
        let (z, deep) = (task * together, volume.len() / (height * width));
        for y in 0..height {
            for x in (0..width).step_by(BLOCK) {
                let wide = BLOCK.min(width - x);
                let block =
                    Block::read(&planes[y * y_step + x * x_step + z..], x_step, [wide, deep]);
                let to = &mut volume[y * width + x..];
                block.each_column(|z, column| add(&mut to[z * height * width..][..wide], column));
            }
        }
    });
}

/// Some lines, each of which lies together.
struct Block {
    values: [[f32; BLOCK]; BLOCK],
    /// The lines, and the values of each.
    sides: [usize; 2],
}

impl Block {
    /// Lines that begin so many values after each other.
    fn read(from: &[f32], step: usize, sides: [usize; 2]) -> Self {
        let mut values = [[0.0; BLOCK]; BLOCK];
        for (line, values) in values[..sides[0]].iter_mut().enumerate() {
            let from = &from[line * step..];
            // Nearly all blocks are whole, and a known length is copied at once.
            match sides[1] {
                BLOCK => values.copy_from_slice(&from[..BLOCK]),
                count => values[..count].copy_from_slice(&from[..count]),
            }
        }
        Self { values, sides }
    }

    /// Calls with every place in the lines, and with what the lines have there.
    fn each_column(&self, mut visit: impl FnMut(usize, &[f32])) {
        let [lines, places] = self.sides;
        let mut column = [0.0; BLOCK];
        for place in 0..places {
            match lines {
                BLOCK => column = std::array::from_fn(|line| self.values[line][place]),
                _ => column
                    .iter_mut()
                    .zip(&self.values[..lines])
                    .for_each(|(to, line)| *to = line[place]),
            }
            visit(place, &column[..lines]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Smaller than a block, whole blocks, and some values more.
    const SIZES: [[usize; 3]; 4] = [[3, 2, 5], [64, 3, 128], [70, 66, 65], [1, 130, 1]];

    fn numbers(count: usize) -> Vec<f32> {
        (0..count).map(|number| number as f32).collect()
    }

    #[test]
    fn planes_hold_every_voxel_at_its_place() {
        for size in SIZES {
            let volume = numbers(size.iter().product());
            for axis in 0..3 {
                let [plane, line, element] = layout(size, axis);
                let some = plane.0 / 3..plane.0;
                let found = planes_of(&volume, size, axis, some.clone());
                let mut places = found.iter();
                for p in some {
                    for l in 0..line.0 {
                        for e in 0..element.0 {
                            let voxel = p * plane.1 + l * line.1 + e * element.1;
                            assert_eq!(
                                places.next(),
                                Some(&volume[voxel]),
                                "{size:?}, axis {axis}"
                            );
                        }
                    }
                }
                assert_eq!(places.next(), None);
            }
        }
    }

    #[test]
    fn what_is_added_comes_back_to_its_voxel() {
        for size in SIZES {
            let volume = numbers(size.iter().product());
            for axis in 0..3 {
                let mut sum = vec![1.0; volume.len()];
                add_from_planes(&planes(&volume, size, axis), size, axis, &mut sum);
                assert!(sum.iter().zip(&volume).all(|(a, b)| *a == b + 1.0), "{size:?}, {axis}");
            }
        }
    }
}
