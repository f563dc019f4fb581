//! Values that lie one after the other, in any order of the axes: read and written by region.
//!
//! A stored array has its own axes, the slowest first. Each of them is an axis of the array in memory, whose other axes
//! have one value. The values are in one block, or, in TIFF files, in blocks that are boxes of the stored array.

use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::Range;

use ndarray::{ArrayViewD, Axis, IxDyn};

use super::samples::{self, Encoded, failed_read};
use crate::array::{Array, View};
use crate::error::{Error, Result};
use crate::region::{self, Region};

/// Where the values of an array are among those of a file.
#[derive(Clone, Debug)]
pub(super) struct Plain {
    pub encoded: Encoded,
    /// The sides of the stored array.
    pub stored: Vec<usize>,
    /// The axis of the array that each stored axis is.
    pub axes: Vec<usize>,
    /// The shape of the array.
    pub shape: Vec<usize>,
}

/// A box of the stored array that lies in one piece. It may reach beyond the array.
#[derive(Clone, Debug)]
pub(super) struct Block {
    /// Its first byte.
    pub offset: u64,
    pub region: Region,
}

impl Plain {
    /// All values in one block.
    pub(super) fn block(&self, offset: u64) -> Block {
        Block { offset, region: region::whole(&self.stored) }
    }

    /// The box of the array that a stored box is.
    pub(super) fn of_stored(&self, stored: &[Range<usize>]) -> Region {
        let mut region = vec![0..1; self.shape.len()];
        for (range, &axis) in stored.iter().zip(&self.axes) {
            region[axis] = range.clone();
        }
        region
    }

    /// The stored box that a box of the array is.
    pub(super) fn to_stored(&self, region: &[Range<usize>]) -> Region {
        self.axes.iter().map(|&axis| region[axis].clone()).collect()
    }

    /// Reads all values, from where the reader is.
    pub(super) fn read(&self, name: &str, reader: &mut dyn Read) -> Result<Array> {
        self.read_stored(name, reader, &self.stored)
    }

    /// Reads the values of a stored box of these sides, from where the reader is.
    pub(super) fn read_stored(
        &self,
        name: &str,
        reader: &mut dyn Read,
        sides: &[usize],
    ) -> Result<Array> {
        let values = self.encoded.read(name, reader, sides.iter().product())?;
        self.arrange(name, values, sides)
    }

    /// Reads a box of the array.
    pub(super) fn read_region<'a>(
        &self,
        name: &str,
        file: &mut (impl Read + Seek),
        blocks: impl IntoIterator<Item = &'a Block>,
        region: &[Range<usize>],
    ) -> Result<Array> {
        let wanted = self.to_stored(region);
        let encoded = Encoded { available: None, ..self.encoded.clone() };
        let mut array: Option<Array> = None;
        for block in blocks {
            let Some(common) = region::overlap(&wanted, &block.region) else {
                continue;
            };
            let mut values = Vec::new();
            samples::reserve(name, &mut values, region::volume(&common))?;
            let (length, starts) = runs(&common, block, encoded.sample.bytes());
            for start in starts {
                file.seek(SeekFrom::Start(start)).map_err(|error| failed_read(name, &error))?;
                encoded.append(name, file, length, &mut values)?;
            }
            let part = self.arrange(name, values, &region::sides(&common))?;
            if common == wanted {
                return Ok(part);
            }
            let array = array.get_or_insert_with(|| Array::zeros(region::sides(region)));
            region::copy(&part, &self.of_stored(&common), array, region);
        }
        array.ok_or_else(|| Error::Content {
            file: name.into(),
            reason: format!("it has no values for {region:?}"),
        })
    }

    /// Writes a box of the array, which covers `region`, to where it belongs.
    pub(super) fn write_region<'a>(
        &self,
        file: &mut (impl Write + Seek),
        blocks: impl IntoIterator<Item = &'a Block>,
        region: &[Range<usize>],
        values: &View,
    ) -> std::io::Result<()> {
        let wanted = self.to_stored(region);
        let (sample, order) = (self.encoded.sample, self.encoded.order);
        for block in blocks {
            let Some(common) = region::overlap(&wanted, &block.region) else {
                continue;
            };
            let part = region::within(&self.of_stored(&common), region);
            let part = self.as_stored(region::cut(values, &part));
            let mut values = part.iter().copied();
            let (length, starts) = runs(&common, block, sample.bytes());
            for start in starts {
                file.seek(SeekFrom::Start(start))?;
                samples::write(file, values.by_ref().take(length), sample, order, 1.0)?;
            }
        }
        Ok(())
    }

    /// The values of a stored box with the axes of the array, in standard layout.
    pub(super) fn arrange(&self, name: &str, values: Vec<f32>, sides: &[usize]) -> Result<Array> {
        let array = Array::from_shape_vec(IxDyn(sides), values)
            .map_err(|error| Error::Content { file: name.into(), reason: error.to_string() })?;
        let mut order: Vec<usize> = (0..self.axes.len()).collect();
        order.sort_unstable_by_key(|&stored| self.axes[stored]);
        let mut array = array.permuted_axes(order);
        for axis in (0..self.shape.len()).filter(|axis| !self.axes.contains(axis)) {
            array.insert_axis_inplace(Axis(axis));
        }
        Ok(if array.is_standard_layout() { array } else { array.as_standard_layout().into_owned() })
    }

    /// A box of the array with the stored axes.
    fn as_stored<'a>(&self, mut array: ArrayViewD<'a, f32>) -> ArrayViewD<'a, f32> {
        for axis in (0..self.shape.len()).rev().filter(|axis| !self.axes.contains(axis)) {
            array = array.index_axis_move(Axis(axis), 0);
        }
        let place = |axis: &usize| self.axes.iter().filter(|other| *other < axis).count();
        array.permuted_axes(self.axes.iter().map(place).collect::<Vec<_>>())
    }
}

/// The values of each run of neighbours in a stored box that lies within a block, and the first bytes of the runs.
fn runs(stored: &[Range<usize>], block: &Block, size: usize) -> (usize, Vec<u64>) {
    let inside = region::within(stored, &block.region);
    let sides = region::sides(&block.region);
    // Axes that are taken whole belong to the run, and the one before them.
    let mut split = inside.len();
    let mut length = 1;
    while split > 0 {
        split -= 1;
        length *= inside[split].len();
        if inside[split].len() < sides[split] {
            break;
        }
    }
    let outer = &inside[..split];
    let starts = ndarray::indices(region::sides(outer)).into_iter().map(|at| {
        let first = inside.iter().enumerate().map(|(axis, range)| {
            range.start as u64 + if axis < split { at[axis] as u64 } else { 0 }
        });
        let index = first.zip(&sides).fold(0, |index, (at, &side)| index * side as u64 + at);
        block.offset.saturating_add(index.saturating_mul(size as u64))
    });
    (length, starts.collect())
}

#[cfg(test)]
mod tests {
    use super::super::samples::Order;
    use super::super::{Sample, Scaling};
    use super::*;

    /// (z, y, x, channel) in blocks that overhang, as tiles of TIFF do.
    #[test]
    fn regions_of_tiled_and_turned_arrays_are_those_of_the_whole() {
        let encoded = Encoded {
            sample: Sample::U16,
            order: Order::Big,
            scaling: Scaling::NONE,
            blank: None,
            available: None,
        };
        let (stored, axes, shape) = (vec![3, 5, 7, 2], vec![2, 3, 4, 1], vec![1, 2, 3, 5, 7]);
        let plain = Plain { encoded, stored, axes, shape: shape.clone() };
        let whole = Array::from_shape_fn(shape.clone(), |at| {
            (1 + at[1] + 2 * (at[4] + 7 * (at[3] + 5 * at[2]))) as f32
        });
        let mut blocks = Vec::new();
        for z in 0..3 {
            for (y, x) in [(0, 0), (0, 4), (3, 0), (3, 4)] {
                let offset = 10 + 48 * blocks.len() as u64;
                blocks.push(Block { offset, region: vec![z..z + 1, y..y + 3, x..x + 4, 0..2] });
            }
        }
        for blocks in [vec![plain.block(3)], blocks] {
            let mut file = std::io::Cursor::new(Vec::new());
            // In two parts.
            for region in [vec![0..1, 0..2, 0..3, 0..2, 0..7], vec![0..1, 0..2, 0..3, 2..5, 0..7]] {
                let part = region::cut(&whole, &region);
                plain.write_region(&mut file, &blocks, &region, &part).expect("memory");
            }
            for region in [
                region::whole(&shape),
                vec![0..1, 0..2, 1..2, 1..4, 2..6],
                vec![0..1, 0..2, 0..3, 4..5, 6..7],
            ] {
                let part = plain.read_region("memory", &mut file, &blocks, &region);
                assert_eq!(part.expect("all there"), region::cut(&whole, &region), "{region:?}");
            }
        }
    }
}
