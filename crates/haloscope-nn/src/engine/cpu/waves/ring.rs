//! Rows of a value that outlive a wave: a ring of rows, in which later waves read them or from which they fetch them.

use std::ops::Range;

use crate::engine::cpu::layout::{BORDER, Layout, Tensor};
use crate::engine::cpu::operation::Value;
use crate::engine::cpu::team::Team;

/// A ring of rows, `[plane][row modulo length]`. Rows have their border, which holds anything but ghosts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ring {
    /// Rows that it holds: whole tiles of every size.
    rows: usize,
    layout: Layout,
    /// The ghosts before and after a row, which are kept with it.
    ghosts: [usize; 2],
    /// Where it lies in its memory, after something at least as long as a row.
    offset: usize,
    /// Whether that is the memory of what is kept apart, not that of the activations.
    pub(super) is_apart: bool,
}

impl Ring {
    /// A ring for so many rows of values of this layout, with so many ghosts before and after them.
    pub(super) fn new(layout: &Layout, rows: usize, ghosts: [usize; 2], offset: usize) -> Self {
        let rows = rows.next_multiple_of(12);
        let layout = Layout { stored: rows, ..*layout };
        Self { rows, layout, ghosts, offset, is_apart: false }
    }

    /// Its floats.
    pub(super) fn len(&self) -> usize {
        self.layout.len()
    }

    /// The rows of a range from its start to where the ring begins again.
    pub(super) fn piece(&self, rows: &Range<usize>) -> Range<usize> {
        rows.start..rows.end.min((rows.start / self.rows + 1) * self.rows)
    }

    /// The ring as a value, of which the rows of a [`piece`](Self::piece) can be used.
    pub(super) fn value(&self, piece: &Range<usize>) -> Value {
        // The border above the first row is not there.
        let offset = self.offset - BORDER * self.layout.row_stride();
        Value { layout: self.layout, offset, first: piece.start / self.rows * self.rows }
    }

    /// Takes rows of a value in.
    pub(super) fn store(
        &self,
        team: &mut Team,
        memory: *mut f32,
        value: &Tensor,
        rows: Range<usize>,
    ) {
        self.for_each_row(team, memory, value, rows, &|ring, value, image, block, plane, row| {
            // SAFETY: the plan gave the ring and the value memory of their own; no other item uses the plane.
            unsafe {
                let target = ring.row_with_mut(self.ghosts, image, block, plane, row);
                target.copy_from_slice(value.row_with(self.ghosts, image, block, plane, row));
            }
        });
    }

    /// Copies rows with their ghosts into a value, and clears the rest of the border beside them.
    pub(super) fn fetch(
        &self,
        team: &mut Team,
        memory: *mut f32,
        value: &Tensor,
        rows: Range<usize>,
    ) {
        self.for_each_row(team, memory, value, rows, &|ring, value, image, block, plane, row| {
            // SAFETY: as above.
            unsafe {
                value.clear_border(image, block, plane, row);
                let target = value.row_with_mut(self.ghosts, image, block, plane, row);
                target.copy_from_slice(ring.row_with(self.ghosts, image, block, plane, row));
            }
        });
    }

    /// Calls `copy` with ring, value, image, block, plane and row.
    fn for_each_row(
        &self,
        team: &mut Team,
        memory: *mut f32,
        value: &Tensor,
        mut rows: Range<usize>,
        copy: &(impl Fn(&Tensor, &Tensor, usize, usize, usize, usize) + Sync),
    ) {
        debug_assert!(rows.len() <= self.rows, "the plan found the most rows");
        while !rows.is_empty() {
            let piece = self.piece(&rows);
            // Ghost planes are kept as all others.
            let (ring, value) =
                (self.value(&piece).tensor(memory).with_ghosts(), value.with_ghosts());
            let layout = self.layout.with_ghosts();
            team.for_each(layout.planes(), &|_, index| {
                let (image, block, plane) = layout.plane(index);
                for row in piece.clone() {
                    copy(&ring, &value, image, block, plane, row);
                }
            });
            rows.start = piece.end;
        }
    }
}
