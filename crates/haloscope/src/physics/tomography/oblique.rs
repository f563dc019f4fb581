//! The projector of scans with any position of source and detector.
//!
//! Joseph's projector in space: a ray steps over the planes of the axis that it is nearest to, and
//! interpolates bilinearly in each. Forward, rays are independent; for the adjoint, the rays of one
//! view are prepared and every task spreads them over a plane of its own. Only the rays of one view
//! are in memory at a time.

use haloscope_nn::Stop;
use rayon::prelude::*;

use super::geometry::Rays;
use super::space::{Space, layout};
use super::turn::add_from_planes;

/// A ray in units of voxels. On plane `j` of its axis it is at line `line + j·line_slope` and, in
/// that, at `element + j·element_slope`.
#[derive(Clone, Copy, Debug)]
struct Ray {
    axis: usize,
    line: f64,
    line_slope: f64,
    element: f64,
    element_slope: f64,
    /// The planes that it may meet.
    first: usize,
    end: usize,
    /// Its length between planes, times the factor of the operator.
    weight: f32,
}

/// The ray to a pixel of the detector.
fn ray(space: &Space, view: usize, row: usize, column: usize) -> Ray {
    let place = &space.views[view];
    let (r, c) = (row as f64, column as f64);
    let bin: [f64; 3] = std::array::from_fn(|i| place.bin[i] + c * place.u[i] + r * place.v[i]);
    let (origin, d) = match place.rays {
        Rays::Along(d) => (bin, d),
        Rays::From(source) => (source, std::array::from_fn(|i| bin[i] - source[i])),
    };
    let longest = |a: usize, b: usize| if d[b].abs() > d[a].abs() { b } else { a };
    let axis = longest(longest(1, 2), 0);
    let (lines, elements) = [(1, 2), (2, 0), (1, 0)][axis];
    let slope = |other: usize| d[other] / d[axis];
    let at_zero = |other: usize| origin[other] - origin[axis] * slope(other);
    let mut range = (0.0_f64, space.size[axis] as f64);
    for other in [lines, elements] {
        let (start, slope) = (at_zero(other), slope(other));
        let size = space.size[other] as f64;
        if slope.abs() > 1e-12 {
            let ends = [(-1.0 - start) / slope, (size - start) / slope];
            range.0 = range.0.max(ends[0].min(ends[1]).floor());
            range.1 = range.1.min(ends[0].max(ends[1]).ceil() + 1.0);
        } else if start <= -1.0 || start >= size {
            range.1 = range.0;
        }
    }
    if let Rays::From(source) = place.rays {
        // Planes behind the source are not on the way.
        if d[axis] > 0.0 {
            range.0 = range.0.max(source[axis].floor() + 1.0);
        } else {
            range.1 = range.1.min(source[axis].ceil());
        }
    }
    let length: f64 = (0..3).map(|i| (d[i] * space.voxel[i]).powi(2)).sum::<f64>().sqrt();
    Ray {
        axis,
        line: at_zero(lines),
        line_slope: slope(lines),
        element: at_zero(elements),
        element_slope: slope(elements),
        first: range.0.max(0.0) as usize,
        end: range.1.max(0.0) as usize,
        weight: (length / d[axis].abs() * space.factor) as f32,
    }
}

impl Ray {
    /// Calls with the line and element below where it crosses a plane, and the fractions.
    #[inline]
    fn cross(&self, plane: usize) -> ([isize; 2], [f32; 2]) {
        let j = plane as f64;
        let place = [self.line + j * self.line_slope, self.element + j * self.element_slope];
        let below = place.map(f64::floor);
        let fraction = [(place[0] - below[0]) as f32, (place[1] - below[1]) as f32];
        (below.map(|below| below as isize), fraction)
    }
}

/// The integrals along all rays, or only some of them if somebody asks for an end.
pub(super) fn forward(space: &Space, volume: &[f32], measurement: &mut [f32]) {
    let [rows, width] = space.detector;
    let layouts: [_; 3] = std::array::from_fn(|axis| layout(space.size, axis));
    let stop = Stop::current();
    measurement.par_chunks_mut(width).enumerate().for_each(|(task, measurement)| {
        if stop.is_requested() {
            return;
        }
        let (view, row) = (task / rows, task % rows);
        for (column, measurement) in measurement.iter_mut().enumerate() {
            let ray = ray(space, view, row, column);
            let [plane, line, element] = layouts[ray.axis];
            let mut sum = 0.0;
            for j in ray.first..ray.end {
                let (below, fraction) = ray.cross(j);
                let read = |l: isize, e: isize| {
                    let inside = l >= 0 && l < line.0 as isize && e >= 0 && e < element.0 as isize;
                    if !inside {
                        return 0.0;
                    }
                    volume[j * plane.1 + l as usize * line.1 + e as usize * element.1]
                };
                let [l, e] = below;
                let pair = |l| read(l, e) + fraction[1] * (read(l, e + 1) - read(l, e));
                let (a, b) = (pair(l), pair(l + 1));
                sum += a + fraction[0] * (b - a);
            }
            *measurement = ray.weight * sum;
        }
    });
}

/// The transpose of [`forward`].
pub(super) fn adjoint(space: &Space, measurement: &[f32], volume: &mut [f32]) {
    let [rows, width] = space.detector;
    volume.fill(0.0);
    let stop = Stop::current();
    for axis in 0..3 {
        let mut sums = Vec::new();
        let [plane, line, element] = layout(space.size, axis);
        for (view, measurement) in measurement.chunks_exact(rows * width).enumerate() {
            if stop.is_requested() {
                return;
            }
            // Rays of this axis, with what they spread.
            let rays: Vec<(Ray, f32)> = (measurement.par_iter().enumerate())
                .filter_map(|(i, &value)| {
                    let ray = ray(space, view, i / width, i % width);
                    (ray.axis == axis && ray.first < ray.end).then_some((ray, ray.weight * value))
                })
                .collect();
            if rays.is_empty() {
                continue;
            }
            sums.resize(plane.0 * line.0 * element.0, 0.0_f32);
            sums.par_chunks_mut(line.0 * element.0).enumerate().for_each(|(j, plane)| {
                for (ray, value) in &rays {
                    if (ray.first..ray.end).contains(&j) {
                        add(plane, [line.0, element.0], ray.cross(j), *value);
                    }
                }
            });
        }
        if !sums.is_empty() {
            add_from_planes(&sums, space.size, axis, volume);
        }
    }
}

/// Spreads a value over the four voxels around a place.
fn add(
    plane: &mut [f32],
    [lines, elements]: [usize; 2],
    ([l, e], [across_lines, along_line]): ([isize; 2], [f32; 2]),
    value: f32,
) {
    for (l, weight) in [(l, 1.0 - across_lines), (l + 1, across_lines)] {
        if l < 0 || l >= lines as isize {
            continue;
        }
        for (e, weight) in [(e, weight * (1.0 - along_line)), (e + 1, weight * along_line)] {
            if e >= 0 && e < elements as isize {
                plane[l as usize * elements + e as usize] += weight * value;
            }
        }
    }
}
