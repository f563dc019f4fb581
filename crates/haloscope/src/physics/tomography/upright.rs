//! The projector of scans whose detector stands upright: its columns are along z.
//!
//! That is so for circular cone beams and parallel beams around z. All rays of a detector column
//! then lie in one plane along z, so that Joseph's bilinear interpolation separates: where the
//! column crosses a plane of the volume, two lines of voxels along z are blended once, and the rays
//! read the blend at equal distances. Volumes are worked on in a layout with z last. Forward, a task
//! owns some views; for the adjoint, a task owns a plane.

use haloscope_nn::Stop;
use haloscope_scratch::{fetch, in_memory};
use rayon::prelude::*;

use super::geometry::Rays;
use super::resample::{MARGIN, Points, SLACK, add_scaled, blend, floor, interpolate, spread};
use super::slabs::Slabs;
use super::space::{Place, Space};
use super::turn::{add_from_planes, planes};

/// Views that one task measures together at the most, sharing the planes that it has in cache.
const READ_VIEWS: usize = 4;

/// Views that are spread together, which bounds the memory for their measurements.
const WRITE_VIEWS: usize = 16;

/// One column of the detector in one view, in units of voxels.
#[derive(Clone, Debug)]
struct Column {
    /// Its number in the view.
    number: usize,
    /// Lines cross plane `j` at `across + (j − along)·slope`.
    along: f64,
    across: f64,
    slope: f64,
    /// The fraction of the way from source to detector, by plane; 0 for parallel rays.
    fraction: f64,
    /// Ray `r` is at `start + t start_by + r (step + t step_by)`, where `t` is that fraction.
    start: f64,
    start_by: f64,
    step: f64,
    step_by: f64,
    /// Rows are counted from the last one.
    reversed: bool,
    /// The length of ray `r` between planes is `√(flat + (rise + r climb)²)`.
    flat: f64,
    rise: f64,
    climb: f64,
}

/// Whether columns of the detector are along z in all views, and no ray is nearer to z than to x or y.
pub(super) fn is_upright(space: &Space) -> bool {
    (0..space.views.len()).all(|view| {
        let place = &space.views[view];
        let level = match place.rays {
            Rays::Along(d) => d[0] == 0.0,
            Rays::From(_) => true,
        };
        level
            && place.u[0] == 0.0
            && place.v[1] == 0.0
            && place.v[2] == 0.0
            && place.v[0] != 0.0
            && (0..space.detector[1]).all(|number| {
                let (_, column) = column(space, place, number);
                let last = column.start_by + (space.detector[0] as f64 - 1.0) * column.step_by;
                let steepest = column.start_by.abs().max(last.abs()) * column.fraction.abs();
                steepest <= 1.0
            })
    })
}

/// A column and the axis over whose planes it steps: 1 (y) or 2 (x).
fn column(space: &Space, view: &Place, number: usize) -> (usize, Column) {
    let rows = space.detector[0] as f64;
    let k = number as f64;
    let bin: [f64; 3] = std::array::from_fn(|i| view.bin[i] + k * view.u[i]);
    let (mut low, mut rise_step) = (bin[0], view.v[0]);
    let reversed = rise_step < 0.0;
    if reversed {
        low += (rows - 1.0) * rise_step;
        rise_step = -rise_step;
    }
    let (origin, d) = match view.rays {
        Rays::Along(d) => (bin, d),
        Rays::From(source) => (source, std::array::from_fn(|i| bin[i] - source[i])),
    };
    let axis = if d[1].abs() >= d[2].abs() { 1 } else { 2 };
    let other = 3 - axis;
    let along = d[axis].abs();
    let flat = ((space.voxel[1] * d[1]).powi(2) + (space.voxel[2] * d[2]).powi(2)) / along.powi(2);
    let mut column = Column {
        number,
        along: origin[axis],
        across: origin[other],
        slope: d[other] / d[axis],
        fraction: 0.0,
        start: low,
        start_by: 0.0,
        step: rise_step,
        step_by: 0.0,
        reversed,
        flat,
        rise: 0.0,
        climb: 0.0,
    };
    if let Rays::From(source) = view.rays {
        column.fraction = 1.0 / d[axis];
        (column.start, column.start_by) = (source[0], low - source[0]);
        (column.step, column.step_by) = (0.0, rise_step);
        column.rise = space.voxel[0] * (low - source[0]) / along;
        column.climb = space.voxel[0] * rise_step / along;
    }
    (axis, column)
}

impl Column {
    /// Where the rays cross a plane: the place across, and the points along z.
    fn cross(&self, plane: usize, rows: usize) -> Option<(f64, Points)> {
        let distance = plane as f64 - self.along;
        let t = distance * self.fraction;
        let step = self.step + t * self.step_by;
        // Planes behind the source are not on the way.
        if t < 0.0 || step <= 0.0 {
            return None;
        }
        let points = Points { start: self.start + t * self.start_by, step, count: rows };
        Some((self.across + distance * self.slope, points))
    }

    /// The length of a ray between two planes.
    fn weight(&self, ray: usize) -> f64 {
        (self.flat + (self.rise + ray as f64 * self.climb).powi(2)).sqrt()
    }

    /// The row of the detector that a ray belongs to.
    fn row(&self, ray: usize, rows: usize) -> usize {
        if self.reversed { rows - 1 - ray } else { ray }
    }
}

/// The columns of some views that step over the planes of an axis, with the numbers of the views.
fn columns(space: &Space, views: std::ops::Range<usize>, axis: usize) -> Vec<(usize, Column)> {
    let all = views.flat_map(|view| (0..space.detector[1]).map(move |number| (view, number)));
    all.filter_map(|(view, number)| {
        let (its_axis, column) = column(space, &space.views[view], number);
        (its_axis == axis).then_some((view, column))
    })
    .collect()
}

/// The integrals along all rays, or only some of them if somebody asks for an end.
pub(super) fn forward(space: &Space, volume: &[f32], measurement: &mut [f32]) {
    let [rows, width] = space.detector;
    let stop = Stop::current();
    // Few views leave no thread without a task.
    let together = space.views.len().div_ceil(rayon::current_num_threads()).clamp(1, READ_VIEWS);
    for axis in [1, 2] {
        let tasks = measurement.par_chunks_mut(together * rows * width).enumerate();
        if let Some(slabs) = Slabs::of(space.size, axis) {
            // The sums of all views stay until the last slab.
            let mut readings: Vec<Reading> = tasks
                .map(|(task, part)| Reading::new(space, axis, task * together, part.len()))
                .collect();
            slabs.read(volume, |first, planes| {
                if !stop.is_requested() {
                    readings.par_iter_mut().for_each(|reading| reading.add(space, first, planes));
                }
            });
            let tasks = measurement.par_chunks_mut(together * rows * width);
            tasks.zip(&readings).for_each(|(part, reading)| reading.finish(space, part));
            continue;
        }
        let volume = planes(volume, space.size, axis);
        tasks.for_each(|(task, measurement)| {
            if stop.is_requested() {
                return;
            }
            let mut reading = Reading::new(space, axis, task * together, measurement.len());
            reading.add(space, 0, &volume);
            reading.finish(space, measurement);
        });
    }
}

/// What some views read of a volume, plane by plane.
struct Reading {
    axis: usize,
    /// The first of the views.
    first: usize,
    columns: Vec<(usize, Column)>,
    sums: Vec<f32>,
}

impl Reading {
    /// Of the views from number `first` on that measure so many values.
    fn new(space: &Space, axis: usize, first: usize, values: usize) -> Self {
        let [rows, width] = space.detector;
        let columns = columns(space, first..first + values / (rows * width), axis);
        let sums = in_memory(|| vec![0.0; columns.len() * (rows + SLACK)]);
        Self { axis, first, columns, sums }
    }

    /// Adds what is in some planes, from number `first` on.
    fn add(&mut self, space: &Space, first: usize, planes: &[f32]) {
        let (rows, depth, lines) = (space.detector[0], space.size[0], space.size[3 - self.axis]);
        let mut line = vec![0.0; depth + 2 * MARGIN];
        for (number, plane) in planes.chunks_exact(lines * depth).enumerate() {
            let sums = self.sums.chunks_exact_mut(rows + SLACK);
            for ((_, column), sums) in self.columns.iter().zip(sums) {
                let Some((across, points)) = column.cross(first + number, rows) else { continue };
                let to = &mut line[MARGIN..MARGIN + depth];
                let Some((below, fraction)) = below(across, lines) else { continue };
                let part = |i: isize| {
                    let i = usize::try_from(i).ok().filter(|&i| i < lines)?;
                    Some(&plane[i * depth..(i + 1) * depth])
                };
                blend(part(below), part(below + 1), fraction, to);
                interpolate(&line, points, sums);
            }
        }
    }

    /// Writes the integrals to what its views measure.
    fn finish(&self, space: &Space, measurement: &mut [f32]) {
        let [rows, width] = space.detector;
        for ((view, column), sums) in self.columns.iter().zip(self.sums.chunks_exact(rows + SLACK))
        {
            for (ray, &sum) in sums[..rows].iter().enumerate() {
                let row = (view - self.first) * rows + column.row(ray, rows);
                let weight = column.weight(ray) * space.factor;
                measurement[row * width + column.number] = weight as f32 * sum;
            }
        }
    }
}

/// The transpose of [`forward`].
pub(super) fn adjoint(space: &Space, measurement: &[f32], volume: &mut [f32]) {
    for axis in [1, 2] {
        if let Some(slabs) = Slabs::of(space.size, axis) {
            slabs.write(volume, axis == 1, |first, planes| {
                spread_views(space, axis, measurement, first, planes);
            });
            continue;
        }
        if axis == 1 {
            volume.fill(0.0);
        }
        let mut sums = vec![0.0; volume.len()];
        spread_views(space, axis, measurement, 0, &mut sums);
        add_from_planes(&sums, space.size, axis, volume);
    }
}

/// Adds what all views spread over some planes of an axis, from number `first` on.
fn spread_views(space: &Space, axis: usize, measurement: &[f32], first: usize, sums: &mut [f32]) {
    let [rows, width] = space.detector;
    let (depth, lines) = (space.size[0], space.size[3 - axis]);
    let stop = Stop::current();
    let mut begin = 0;
    while begin < space.views.len() && !stop.is_requested() {
        let views = begin..(begin + WRITE_VIEWS).min(space.views.len());
        begin = views.end;
        fetch(&measurement[views.start * rows * width..views.end * rows * width]);
        let columns = columns(space, views, axis);
        let mut values = in_memory(|| vec![0.0; columns.len() * (rows + 2 * MARGIN)]);
        values.par_chunks_mut(rows + 2 * MARGIN).zip(&columns).for_each(
            |(values, (view, column))| {
                for (ray, value) in values[MARGIN..MARGIN + rows].iter_mut().enumerate() {
                    let row = view * rows + column.row(ray, rows);
                    let weight = column.weight(ray) * space.factor;
                    *value = weight as f32 * measurement[row * width + column.number];
                }
            },
        );
        sums.par_chunks_mut(lines * depth).enumerate().for_each(|(number, plane)| {
            let mut line = vec![0.0; depth + SLACK];
            let values = values.chunks_exact(rows + 2 * MARGIN);
            for ((_, column), values) in columns.iter().zip(values) {
                let Some((across, points)) = column.cross(first + number, rows) else { continue };
                let Some((below, fraction)) = below(across, lines) else { continue };
                line.fill(0.0);
                spread(values, points, &mut line);
                for (i, weight) in [(below, 1.0 - fraction), (below + 1, fraction)] {
                    if let Some(i) = usize::try_from(i).ok().filter(|&i| i < lines) {
                        add_scaled(weight, &line[..depth], &mut plane[i * depth..][..depth]);
                    }
                }
            }
        });
    }
}

/// The line below a place and the fraction towards the next one, if any of the two is in the plane.
fn below(across: f64, lines: usize) -> Option<(isize, f32)> {
    let below = floor(across);
    let inside = below >= -1.0 && below < lines as f64;
    inside.then_some((below as isize, (across - below) as f32))
}
