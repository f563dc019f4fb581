//! A scan of a volume in units of voxels, and the layouts of volumes that projectors step through.

use super::geometry::{Rays, View3d};

/// The largest distance, in pixels, at which positions are still exact to a small part of one.
pub(super) const FARTHEST: f64 = 1e9;

/// What the projectors of volumes need to know. Axes are (z, y, x), as in memory.
#[derive(Clone, Debug)]
pub(super) struct Space {
    /// The number of voxels by axis.
    pub(super) size: [usize; 3],
    /// The size of voxels.
    pub(super) voxel: [f64; 3],
    /// The rows and columns of the detector.
    pub(super) detector: [usize; 2],
    /// What integrals are multiplied with.
    pub(super) factor: f64,
    pub(super) views: Vec<Place>,
}

/// A view in units of voxels.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) rays: Rays<3>,
    /// The middle of the first pixel of the detector.
    pub(super) bin: [f64; 3],
    /// To the next column.
    pub(super) u: [f64; 3],
    /// To the next row.
    pub(super) v: [f64; 3],
}

impl Place {
    pub(super) fn new(view: &View3d, size: [usize; 3], voxel: [f64; 3], bins: [usize; 2]) -> Self {
        let vector = |[x, y, z]: [f64; 3]| [z / voxel[0], y / voxel[1], x / voxel[2]];
        let point = |p: [f64; 3]| -> [f64; 3] {
            let p = vector(p);
            std::array::from_fn(|i| p[i] + (size[i] as f64 - 1.0) / 2.0)
        };
        let (u, v, centre) = (vector(view.u), vector(view.v), point(view.centre));
        let half = bins.map(|bins| (bins as f64 - 1.0) / 2.0);
        let bin = std::array::from_fn(|i| centre[i] - half[1] * u[i] - half[0] * v[i]);
        let rays = match view.rays {
            Rays::Along(direction) => Rays::Along(vector(direction)),
            Rays::From(source) => Rays::From(point(source)),
        };
        Self { rays, bin, u, v }
    }

    /// Whether the rays lie in the plane of the detector, the detector has no area, or anything is
    /// further away than positions can be told apart.
    pub(super) fn is_degenerate(&self) -> bool {
        let [u, v] = [self.u, self.v];
        let normal =
            [u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0]];
        let (Rays::Along(origin) | Rays::From(origin)) = self.rays;
        let d: [f64; 3] = match self.rays {
            Rays::Along(d) => d,
            Rays::From(source) => std::array::from_fn(|i| self.bin[i] - source[i]),
        };
        let dot = |a: [f64; 3], b: [f64; 3]| a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
        let length = |a: [f64; 3]| dot(a, a).sqrt();
        let apart = dot(normal, d).abs() > 1e-9 * length(u) * length(v) * length(d);
        let near = [u, v, self.bin, origin].iter().flatten().all(|x| x.abs() < FARTHEST);
        !(apart && near)
    }
}

/// The sizes of a layout in planes of an axis: (planes, lines, elements of a line), and how far apart
/// neighbours along each are in the volume.
pub(super) fn layout([depth, height, width]: [usize; 3], axis: usize) -> [(usize, usize); 3] {
    let [z, y, x] = [(depth, height * width), (height, width), (width, 1)];
    match axis {
        0 => [z, y, x],
        1 => [y, x, z],
        _ => [x, y, z],
    }
}
