//! How activations lie in memory: channels in blocks of eight, planes with a border.
//!
//! `[image][channel / 8][depth][row][column][channel % 8]`. Each plane has one row and column of
//! border before the image and enough after it for whole Winograd tiles of any size, so that no
//! kernel branches at an edge. The border holds zeros, which is also the convolutions' padding.
//! Depth has no border: kernels skip the planes that are not there. Only where a volume is cut between planes, a value that is
//! read across the cut has ghost planes, which hold the neighbour's.

use std::ops::Range;

/// Channels in a block: one vector register of eight floats.
pub(crate) const BLOCK: usize = 8;
/// Border before the first row and column.
pub(crate) const BORDER: usize = 1;

/// The size of a batch of images or volumes, and with it where each value lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) batch: usize,
    pub(crate) channels: usize,
    /// 1 for images.
    pub(crate) depth: usize,
    pub(crate) height: usize,
    pub(crate) width: usize,
    /// Planes of the neighbours that memory holds before the first plane and after the last.
    pub(crate) ghosts: [usize; 2],
    /// Rows that a plane has in memory with their border: all of them, or a window that moves down the image.
    pub(crate) stored: usize,
}

impl Layout {
    /// The layout of whole images.
    pub(crate) fn new(batch: usize, channels: usize, [depth, height, width]: [usize; 3]) -> Self {
        let stored = with_border(height);
        Self { batch, channels, depth, height, width, ghosts: [0; 2], stored }
    }

    /// The same memory with the ghost planes as planes like any other: plane 0 is the first ghost.
    pub(crate) fn with_ghosts(self) -> Self {
        Self { depth: self.stored_planes(), ghosts: [0; 2], ..self }
    }

    /// The same images, of which memory holds so many rows at a time.
    pub(crate) fn window(self, rows: usize) -> Self {
        Self { stored: rows + with_border(self.height) - self.height, ..self }
    }

    /// Channel blocks; the channels that fill the last one up hold finite values that weigh nothing.
    pub(crate) fn blocks(&self) -> usize {
        self.channels.div_ceil(BLOCK)
    }

    pub(crate) fn row_stride(&self) -> usize {
        with_border(self.width) * BLOCK
    }

    pub(crate) fn plane_stride(&self) -> usize {
        self.stored * self.row_stride()
    }

    /// Planes of a channel block in memory, those of the neighbours included.
    fn stored_planes(&self) -> usize {
        self.ghosts[0] + self.depth + self.ghosts[1]
    }

    pub(crate) fn block_stride(&self) -> usize {
        self.stored_planes() * self.plane_stride()
    }

    pub(crate) fn image_stride(&self) -> usize {
        self.blocks() * self.block_stride()
    }

    /// The end of the border below the image, counted from the image's first row.
    pub(crate) fn rows_after(&self) -> usize {
        with_border(self.height) - BORDER
    }

    /// The end of the border after the image, counted from the image's first column.
    pub(crate) fn columns_after(&self) -> usize {
        with_border(self.width) - BORDER
    }

    /// Floats in all.
    pub(crate) fn len(&self) -> usize {
        self.batch * self.image_stride()
    }

    /// Where a row starts, at column 0 of the image; `row` counts from the image's first.
    pub(crate) fn row_offset(&self, image: usize, block: usize, plane: usize, row: usize) -> usize {
        image * self.image_stride()
            + block * self.block_stride()
            + (self.ghosts[0] + plane) * self.plane_stride()
            + (row + BORDER) * self.row_stride()
            + BORDER * BLOCK
    }

    /// Planes of rows in all, without ghosts: images × channel blocks × depth.
    pub(crate) fn planes(&self) -> usize {
        self.batch * self.blocks() * self.depth
    }

    /// Whether memory could hold it: sums of such lengths never overflow.
    pub(crate) fn is_possible(&self) -> bool {
        const MOST: usize = 1 << 48;
        let sides = [with_border(self.height), with_border(self.width)];
        let factors = [self.batch, self.blocks() * BLOCK, self.depth, sides[0], sides[1]];
        let len = factors.iter().try_fold(1usize, |len, &factor| len.checked_mul(factor));
        len.is_some_and(|len| len <= MOST)
    }

    /// Image, channel block and depth of a plane.
    pub(crate) fn plane(&self, index: usize) -> (usize, usize, usize) {
        let image_block = index / self.depth;
        (image_block / self.blocks(), image_block % self.blocks(), index % self.depth)
    }

    /// Values that are part of the image.
    pub(crate) fn values(&self) -> usize {
        self.batch * self.channels * self.depth * self.height * self.width
    }
}

/// A side with its border: whole tiles of 2, 4 and 6 and the two rows that tiles share.
fn with_border(side: usize) -> usize {
    side.next_multiple_of(4).max(side.next_multiple_of(6)) + 2 * BORDER
}

/// A tensor in the engine's memory. Copies refer to the same values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tensor {
    pub(crate) layout: Layout,
    pub(crate) data: *mut f32,
}

// SAFETY: a tensor is a pointer into a `Scratch` that one `run` holds exclusively; the steps of the
// run give the same rows to one thread only.
unsafe impl Send for Tensor {}
// SAFETY: as above.
unsafe impl Sync for Tensor {}

impl Tensor {
    /// The same memory with the ghost planes as planes like any other: plane 0 is the first ghost.
    pub(crate) fn with_ghosts(self) -> Self {
        Self { layout: self.layout.with_ghosts(), ..self }
    }

    /// Pointer to the first channel of the block at a pixel. The pixel may lie in the border.
    pub(crate) fn at(
        &self,
        image: usize,
        block: usize,
        plane: usize,
        row: isize,
        column: isize,
    ) -> *mut f32 {
        let origin = self.layout.row_offset(image, block, plane, 0);
        let offset = row * signed(self.layout.row_stride()) + column * signed(BLOCK);
        self.data.wrapping_add(origin).wrapping_offset(offset)
    }

    /// The pixels of a row of the image.
    ///
    /// # Safety
    /// The tensor's memory is valid and nobody writes the row while the result lives.
    pub(crate) unsafe fn row<'a>(
        &self,
        image: usize,
        block: usize,
        plane: usize,
        row: usize,
    ) -> &'a [[f32; BLOCK]] {
        // SAFETY: the caller's contract.
        unsafe { self.row_with([0, 0], image, block, plane, row) }
    }

    /// The pixels of a row of the image, with so many of its border before and after them.
    ///
    /// # Safety
    /// As for [`row`](Self::row); the border is as wide.
    pub(crate) unsafe fn row_with<'a>(
        &self,
        [before, after]: [usize; 2],
        image: usize,
        block: usize,
        plane: usize,
        row: usize,
    ) -> &'a [[f32; BLOCK]] {
        let start = self.at(image, block, plane, signed(row), -signed(before)).cast_const().cast();
        // SAFETY: a row has `width` pixels and its border; the caller's contract.
        unsafe { std::slice::from_raw_parts(start, before + self.layout.width + after) }
    }

    /// The pixels of a row of the image, to write them.
    ///
    /// # Safety
    /// The tensor's memory is valid and nobody else uses the row while the result lives.
    pub(crate) unsafe fn row_mut<'a>(
        &self,
        image: usize,
        block: usize,
        plane: usize,
        row: usize,
    ) -> &'a mut [[f32; BLOCK]] {
        // SAFETY: the caller's contract.
        unsafe { self.row_with_mut([0, 0], image, block, plane, row) }
    }

    /// The pixels of a row of the image, with so many of its border before and after them, to write them.
    ///
    /// # Safety
    /// As for [`row_mut`](Self::row_mut); the border is as wide.
    pub(crate) unsafe fn row_with_mut<'a>(
        &self,
        [before, after]: [usize; 2],
        image: usize,
        block: usize,
        plane: usize,
        row: usize,
    ) -> &'a mut [[f32; BLOCK]] {
        let start = self.at(image, block, plane, signed(row), -signed(before)).cast();
        // SAFETY: a row has `width` pixels and its border; the caller's contract.
        unsafe { std::slice::from_raw_parts_mut(start, before + self.layout.width + after) }
    }

    /// Fills some columns of a row with zeros. Both may lie in the border.
    ///
    /// # Safety
    /// The tensor's memory is valid, and no other thread uses these pixels.
    pub(crate) unsafe fn clear(
        &self,
        image: usize,
        block: usize,
        plane: usize,
        row: isize,
        columns: Range<isize>,
    ) {
        let start = self.at(image, block, plane, row, columns.start).cast::<[f32; BLOCK]>();
        for pixel in 0..(columns.end - columns.start).max(0).cast_unsigned() {
            // SAFETY: the caller's contract.
            unsafe { start.add(pixel).write([0.0; BLOCK]) };
        }
    }

    /// Fills a row with zeros from `column` to the end of its border.
    ///
    /// # Safety
    /// As for [`clear`](Self::clear).
    pub(crate) unsafe fn clear_to_end(
        &self,
        image: usize,
        block: usize,
        plane: usize,
        row: isize,
        column: usize,
    ) {
        let end = with_border(self.layout.width) - BORDER;
        // SAFETY: the caller's contract.
        unsafe { self.clear(image, block, plane, row, signed(column)..signed(end)) };
    }

    /// Fills a row of the border with zeros.
    ///
    /// # Safety
    /// As for [`clear`](Self::clear).
    pub(crate) unsafe fn clear_row(&self, image: usize, block: usize, plane: usize, row: isize) {
        let end = with_border(self.layout.width) - BORDER;
        // SAFETY: the caller's contract.
        unsafe { self.clear(image, block, plane, row, -signed(BORDER)..signed(end)) };
    }

    /// Clears the border at both ends of a row of the image; with the first and the last row also
    /// the rows of border above and below it.
    ///
    /// # Safety
    /// As for [`clear`](Self::clear); steps that write whole rows call it for each of them.
    pub(crate) unsafe fn clear_border(&self, image: usize, block: usize, plane: usize, row: usize) {
        // SAFETY: the caller's contract.
        unsafe {
            self.clear(image, block, plane, signed(row), -signed(BORDER)..0);
            self.clear_to_end(image, block, plane, signed(row), self.layout.width);
            if row == 0 {
                self.clear_row(image, block, plane, -1);
            }
            if row + 1 == self.layout.height {
                for below in row + 1..self.layout.rows_after() {
                    self.clear_row(image, block, plane, signed(below));
                }
            }
        }
    }
}

/// Sizes are far below `isize::MAX`: they index memory.
#[expect(clippy::cast_possible_wrap, reason = "no object is larger than isize::MAX bytes")]
pub(crate) fn signed(size: usize) -> isize {
    size as isize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_border_holds_whole_tiles_of_every_size() {
        for side in 1..70 {
            for tile in [2, 4, 6] {
                assert!(with_border(side) >= side.next_multiple_of(tile) + 2);
            }
        }
    }

    #[test]
    fn lengths_that_would_overflow_are_not_possible() {
        let layout = Layout::new(1, 64, [1, 1 << 10, 1 << 10]);
        assert!(layout.is_possible());
        assert!(!Layout { width: 1 << 40, ..layout }.is_possible());
        assert!(!Layout { height: 1 << 60, width: 1 << 60, ..layout }.is_possible());
    }

    #[test]
    fn clearing_the_border_leaves_the_image() {
        let layout = Layout::new(2, 9, [3, 5, 4]);
        let mut values = vec![1.0f32; layout.len()];
        let tensor = Tensor { layout, data: values.as_mut_ptr() };
        for at in 0..layout.planes() * layout.height {
            let (row, plane) = (at % layout.height, at / layout.height);
            let (depth, block) = (plane % layout.depth, plane / layout.depth % layout.blocks());
            let image = plane / layout.depth / layout.blocks();
            // SAFETY: the vector has the layout's length and only this thread uses it.
            unsafe { tensor.clear_border(image, block, depth, row) };
        }
        let sum: f32 = values.iter().sum();
        assert!((sum - 1920.0).abs() < 0.5, "{sum} for 2 · 16 · 3 · 5 · 4");
    }
}
