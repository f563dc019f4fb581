//! The size of a tile of Winograd's method.

use super::layout::BLOCK;

/// Outputs that are computed together along rows and columns, and along depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tile {
    /// Rows, and columns.
    pub(crate) side: usize,
    /// Planes, two or one; with one, the taps along depth are summed one by one, and images have no others.
    pub(crate) depth: usize,
}

impl Tile {
    /// A tile of one plane.
    pub(crate) const fn flat(side: usize) -> Self {
        Self { side, depth: 1 }
    }

    /// Whether it is transformed along depth, too.
    pub(crate) const fn is_deep(self) -> bool {
        self.depth > 1
    }

    /// Points of the transformed domain in a plane.
    pub(crate) fn plane_points(self) -> usize {
        (self.side + 2) * (self.side + 2)
    }

    /// Points along depth, each with the points of a plane.
    pub(crate) fn depth_points(self) -> usize {
        if self.is_deep() { self.depth + 2 } else { 1 }
    }

    /// Points of the transformed domain.
    pub(crate) fn points(self) -> usize {
        self.depth_points() * self.plane_points()
    }

    /// The point 1 of each axis, from where a bias reaches every output once.
    pub(crate) fn bias_point(self) -> usize {
        let plane = if self.is_deep() { self.plane_points() } else { 0 };
        plane + self.side + 3
    }

    /// The taps along depth that the products sum over.
    pub(crate) fn summed_taps(self, taps: usize) -> usize {
        if self.is_deep() { 1 } else { taps }
    }

    /// Tiles over so many planes; one where these are taken one by one.
    pub(crate) fn over_planes(self, planes: usize) -> usize {
        if self.is_deep() { planes.div_ceil(self.depth) } else { 1 }
    }

    /// Floats in which the input of a run of tiles is transformed along depth before it is transformed in the plane.
    pub(crate) fn depth_room(self, run: usize) -> usize {
        let window = (self.side + 2) * (run * self.side + 2) * BLOCK;
        if self.is_deep() { self.depth_points() * window } else { 0 }
    }
}
