//! Filters views and smears them over an image.
//!
//! Rows of the detector are weighted by the obliqueness of their rays, filtered with a ramp, and smeared back, pixel by
//! pixel with linear interpolation: what a pixel takes does not depend on the discretisation of the projector. Views are
//! filtered one by one, and lines of the image take from views one after the other, so that both can be shared by ranks
//! ([`back_project`](crate::distribute::back_project)) without a change of the result.

use std::ops::Range;

use haloscope_nn::Stop;
use rayon::prelude::*;

use super::filter::{Ramp, Window};
use super::reconstruct::{Axes, Circle, Shares};
use crate::array::{Array, View};
use crate::error::{Error, Result};

/// Filtered back-projection of a circular scan, planned: by the views, and by the lines of the image.
#[derive(Clone, Debug)]
pub struct BackProjection {
    circle: Circle,
    shares: Shares,
    /// (channel, spatial…).
    shape: Vec<usize>,
    image: Axes,
    /// What line integrals were multiplied with.
    factor: f64,
    ramp: Ramp,
    /// Sine and cosine of each angle.
    turns: Vec<(f64, f64)>,
}

impl BackProjection {
    pub(super) fn new(
        circle: Circle,
        shape: &[usize],
        image: Axes,
        factor: f64,
        window: Window,
    ) -> Result<Self> {
        let ramp = Ramp::new(circle.detector[1], circle.spacing[1], window)?;
        let turns = circle.angles.iter().map(|angle| angle.sin_cos()).collect();
        let (shares, shape) = (circle.shares(), shape.to_vec());
        Ok(Self { circle, shares, shape, image, factor, ramp, turns })
    }

    /// The same for a box of the image alone, a range for each spatial axis: the lines of it, with the bits of the whole.
    ///
    /// ```
    /// use haloscope::physics::tomography::{ParallelBeam, Tomography2d, Window, evenly_spaced};
    ///
    /// let scan = ParallelBeam::new(evenly_spaced(20, std::f64::consts::PI), 24);
    /// let plan = Tomography2d::new(&[1, 16, 16], scan)?.back_projection(Window::Ramp)?;
    /// let part = plan.of_part(&[4..8, 0..10]);
    /// assert_eq!((part.lines(), part.line_len(), part.views()), (4, 10, 20));
    /// # Ok::<(), haloscope::Error>(())
    /// ```
    ///
    /// # Panics
    /// If the box is not within the image.
    #[must_use]
    pub fn of_part(&self, part: &[Range<usize>]) -> Self {
        let along = |axis: &[f64], range: Option<&Range<usize>>| match range {
            Some(range) => axis[range.clone()].to_vec(),
            None => axis.to_vec(),
        };
        // The last axis is x, and planes have no z.
        let mut axes = part.iter().rev();
        let image = Axes {
            x: along(&self.image.x, axes.next()),
            y: along(&self.image.y, axes.next()),
            z: along(&self.image.z, axes.next()),
        };
        let shape = self.shape[..1].iter().copied().chain(part.iter().map(Range::len)).collect();
        Self { shape, image, ..self.clone() }
    }

    /// The number of views.
    #[must_use]
    pub fn views(&self) -> usize {
        self.turns.len()
    }

    /// The values of a view of one channel.
    #[must_use]
    pub fn view_len(&self) -> usize {
        self.circle.detector.iter().product()
    }

    /// The rows of the detector.
    pub(crate) fn detector_rows(&self) -> usize {
        self.circle.detector[0]
    }

    /// The shape of an image, (channel, spatial…).
    #[must_use]
    pub fn image_shape(&self) -> &[usize] {
        &self.shape
    }

    /// The lines of an image of one channel: all pixels along its last axis are one.
    #[must_use]
    pub fn lines(&self) -> usize {
        self.image.y.len() * self.image.z.len()
    }

    /// The pixels of a line.
    #[must_use]
    pub fn line_len(&self) -> usize {
        self.image.x.len()
    }

    /// The rows of the detector that the image is taken from, whatever the view: for a [part](Self::of_part) often only some.
    #[must_use]
    pub fn rows_read(&self) -> Range<usize> {
        let Circle { source, spacing, detector: [rows, _], .. } = self.circle;
        let [middle, _] = self.middle();
        let place = |z: f64, near: f64| z * (near / spacing[0]) + middle;
        let ends = |axis: &[f64]| [axis.first().copied(), axis.last().copied()];
        let mut hull: Option<Range<f64>> = None;
        let mut take = |begin: f64, end: f64| {
            let all = hull.get_or_insert(begin..end);
            *all = all.start.min(begin)..all.end.max(end);
        };
        match source {
            // As in `smear`, so that a row is known to be of no weight.
            None => self.image.z.iter().for_each(|&z| {
                let row = place(z, 1.0);
                take(row.floor(), row.ceil() + 1.0);
            }),
            Some(source) => {
                for (sin, cos) in &self.turns {
                    for (x, y) in ends(&self.image.x).into_iter().flatten().flat_map(|x| {
                        ends(&self.image.y).into_iter().flatten().map(move |y| (x, y))
                    }) {
                        let reach = 1.0 + (y * cos - x * sin) / source;
                        if reach < 1e-6 {
                            return 0..rows;
                        }
                        for z in ends(&self.image.z).into_iter().flatten() {
                            // A row more on both sides, for rounding.
                            let row = place(z, 1.0 / reach);
                            take(row.floor() - 1.0, row.floor() + 3.0);
                        }
                    }
                }
            }
        }
        let Some(hull) = hull else { return 0..rows };
        let last = rows.saturating_sub(1) as f64;
        let begin = hull.start.clamp(0.0, last) as usize;
        begin..(hull.end.clamp(0.0, rows as f64) as usize).max(begin + 1)
    }

    /// Weights and filters views, of which `values` has one after the other; `view` gives their numbers.
    pub fn filter(&self, values: &mut [f32], view: impl Fn(usize) -> usize + Sync) -> Result<()> {
        let rows = self.circle.detector[0];
        self.filter_rows(values, |i| (view(i / rows), i % rows))
    }

    /// Weights and filters rows of views, of which `values` has one after the other; `place` gives the number of the view and of the
    /// row in it.
    pub(crate) fn filter_rows(
        &self,
        values: &mut [f32],
        place: impl Fn(usize) -> (usize, usize) + Sync,
    ) -> Result<()> {
        let columns = self.circle.detector[1];
        values.par_chunks_mut(columns).enumerate().for_each(|(i, values)| {
            let (view, row) = place(i);
            for (column, value) in values.iter_mut().enumerate() {
                let [v, u] = self.circle.place(row, column);
                let weight = self.shares.at(view, u) * self.circle.obliqueness(u, v) / self.factor;
                *value *= weight as f32;
            }
        });
        self.ramp.apply(values, columns)
    }

    /// Adds to lines of the image, from `first` on, what some filtered views show of them: numbers and values, in the order
    /// in which they are added.
    pub fn smear(&self, views: &[(usize, &[f32])], first: usize, lines: &mut [f32]) {
        self.smear_rows(0..self.circle.detector[0], views, first, lines);
    }

    /// The same with views that have some rows of the detector, all that [are read](Self::rows_read).
    pub(crate) fn smear_rows(
        &self,
        there: Range<usize>,
        views: &[(usize, &[f32])],
        first: usize,
        lines: &mut [f32],
    ) {
        let [rows, columns] = self.circle.detector;
        let [middle, _] = self.middle();
        let (width, height) = (self.image.x.len(), self.image.y.len());
        // Lines above each other are seen in the same columns of the detector.
        let mut stacks: Vec<Stack> = Vec::new();
        for (line, to) in (first..).zip(lines.chunks_mut(width)) {
            let (plane, row) = (line / height, line % height);
            let at = (plane - first / height) / STACK * height + row;
            stacks.resize_with(stacks.len().max(at + 1), Stack::default);
            stacks[at].y = self.image.y[row];
            stacks[at].lines.push((self.image.z[plane], to));
        }
        // Rows of the first plane that somebody else has.
        stacks.retain(|stack| !stack.lines.is_empty());
        let stop = Stop::current();
        stacks.par_iter_mut().for_each_init(Vec::new, |places, stack| {
            for (view, values) in views {
                if stop.is_requested() {
                    return;
                }
                self.places(*view, stack.y, places);
                let between_columns =
                    places.iter().all(|place| place.column.saturating_add(1) < columns);
                let [least, most] = range(places.iter().map(|place| place.rise));
                for (z, to) in &mut stack.lines {
                    let pixels = places.iter().zip(to.iter_mut());
                    let row_of = |place: &Place| *z * place.rise + middle;
                    let ends = [least, most].map(|rise| *z * rise + middle);
                    let between_rows =
                        |v: f64| v >= there.start as f64 && v + 1.0 < there.end as f64;
                    if rows == 1 {
                        for (place, to) in pixels {
                            *to += place.weight * read(values, columns, place.u);
                        }
                    } else if between_columns && ends.into_iter().all(between_rows) {
                        // Nearly everywhere: the same numbers without a test for each.
                        for (place, to) in pixels {
                            let v = row_of(place);
                            let i = v as i32;
                            let along = (v - f64::from(i)) as f32;
                            let at = (i as usize - there.start) * columns + place.column;
                            let low = place.between(&values[at..at + 2]);
                            let high = place.between(&values[at + columns..at + columns + 2]);
                            *to += place.weight * (low + along * (high - low));
                        }
                    } else {
                        for (place, to) in pixels {
                            let from = (*values, &there);
                            let value = read_pixel(from, [rows, columns], row_of(place), place.u);
                            *to += place.weight * value;
                        }
                    }
                }
            }
        });
    }

    /// Where a view shows the pixels of a line at `y`, whatever its height.
    fn places(&self, view: usize, y: f64, places: &mut Vec<Place>) {
        let Circle { source, spacing, .. } = self.circle;
        let [_, middle] = self.middle();
        let (sin, cos) = self.turns[view];
        places.clear();
        places.extend(self.image.x.iter().map(|x| {
            // The pixel is this many times as far from the source as the rotation axis is.
            let reach = source.map_or(1.0, |source| 1.0 + (y * cos - x * sin) / source);
            if reach <= 0.0 {
                return Place::default();
            }
            let near = 1.0 / reach;
            let u = (x * cos + y * sin) * near / spacing[1] + middle;
            let column = if u >= 0.0 { u as usize } else { usize::MAX - 1 };
            let across = (u - column as f64) as f32;
            Place { rise: near / spacing[0], u, column, across, weight: (near * near) as f32 }
        }));
    }

    /// The row of the detector that shows the plane of the source, and the column that shows the rotation axis.
    fn middle(&self) -> [f64; 2] {
        let Circle { detector, offset, .. } = self.circle;
        std::array::from_fn(|i| (detector[i] as f64 - 1.0) / 2.0 - offset[i])
    }

    /// The images of complete measurements.
    pub(super) fn reconstruct(&self, batch: usize, measurement: &View) -> Result<Array> {
        let mut filtered = measurement.as_standard_layout().into_owned();
        let values = filtered.as_slice_mut().ok_or_else(|| {
            Error::argument("tomography", "measurements that are not in standard layout")
        })?;
        let views = self.views();
        self.filter(values, |i| i % views)?;
        let mut result = Array::zeros([&[batch], &self.shape[..]].concat());
        let to = result.as_slice_mut().expect("an array that was just made is in standard layout");
        let planes = values.chunks_exact(views * self.view_len());
        for (to, values) in to.chunks_exact_mut(self.lines() * self.line_len()).zip(planes) {
            let views: Vec<_> = values.chunks_exact(self.view_len()).enumerate().collect();
            self.smear(&views, 0, to);
        }
        Stop::check()?;
        Ok(result)
    }
}

/// How many lines of a stack are smeared over at once: many share what is known of columns, and few stay in the caches.
const STACK: usize = 64;

/// Lines of an image above each other.
#[derive(Default)]
struct Stack<'a> {
    y: f64,
    /// The height of each, and its pixels.
    lines: Vec<(f64, &'a mut [f32])>,
}

/// Where a view shows pixels above each other. Behind the source it shows none.
#[derive(Clone, Copy, Default)]
struct Place {
    /// Rows of the detector for each unit of height.
    rise: f64,
    /// The place between columns: after this column, and so far from it.
    u: f64,
    column: usize,
    across: f32,
    /// What the pixels take of the view.
    weight: f32,
}

impl Place {
    /// Of a row of which its two columns are given.
    #[inline]
    fn between(&self, pair: &[f32]) -> f32 {
        pair[0] + self.across * (pair[1] - pair[0])
    }
}

/// The least and the greatest of some numbers.
fn range(numbers: impl Iterator<Item = f64>) -> [f64; 2] {
    numbers.fold([f64::INFINITY, f64::NEG_INFINITY], |[least, most], number| {
        [least.min(number), most.max(number)]
    })
}

/// A row at a place between its elements, zero outside.
#[inline]
fn read(row: &[f32], columns: usize, u: f64) -> f32 {
    let below = u.floor();
    if !(below >= -1.0 && below < columns as f64) {
        return 0.0;
    }
    let fraction = (u - below) as f32;
    let i = below as isize;
    let left = if i >= 0 { row[i as usize] } else { 0.0 };
    let right = row[..columns].get((i + 1) as usize).copied().unwrap_or(0.0);
    left + fraction * (right - left)
}

/// A pixel at a place between rows and columns, zero outside, of values that have some rows.
#[inline]
fn read_pixel(
    (values, there): (&[f32], &Range<usize>),
    [rows, columns]: [usize; 2],
    v: f64,
    u: f64,
) -> f32 {
    // Between four pixels, where nearly all places are: the same numbers without calls for the floors.
    if u >= 0.0 && v >= 0.0 {
        let (i, j) = (v as usize, u as usize);
        if j + 1 < columns && there.start <= i && i + 1 < there.end {
            let (across, along) = ((u - j as f64) as f32, (v - i as f64) as f32);
            let at = (i - there.start) * columns + j;
            let between = |at: usize| values[at] + across * (values[at + 1] - values[at]);
            let (low, high) = (between(at), between(at + columns));
            return low + along * (high - low);
        }
    }
    let below = v.floor();
    if !(below >= -1.0 && below < rows as f64) {
        return 0.0;
    }
    let fraction = (v - below) as f32;
    let i = below as isize;
    let row = |i: isize| match usize::try_from(i).ok().filter(|i| there.contains(i)) {
        Some(i) => read(&values[(i - there.start) * columns..], columns, u),
        None => 0.0,
    };
    debug_assert!(
        fraction == 0.0
            || !(0..rows as isize - 1).contains(&i)
            || there.contains(&((i + 1) as usize))
    );
    let (low, high) = (row(i), row(i + 1));
    low + fraction * (high - low)
}

#[cfg(test)]
mod tests {
    use std::f64::consts::TAU;

    use super::*;
    use crate::physics::tomography::{ConeBeam, Tomography3d, evenly_spaced};

    #[test]
    fn lines_of_several_stacks_have_the_values_of_single_ones() {
        // Three stacks of planes, from the middle of a plane on.
        let (planes, height, width, first) = (2 * STACK + 7, 3, 4, 5 * 3 + 2);
        let scan = ConeBeam::new(evenly_spaced(5, TAU), [190, 9], 200.0, 60.0);
        let plan = Tomography3d::new(&[1, planes, height, width], scan)
            .and_then(|physics| physics.back_projection(Window::Ramp))
            .expect("a plan");
        let views: Vec<Vec<f32>> = (0..5)
            .map(|view| (0..plan.view_len()).map(|i| ((i * 7 + view) % 11) as f32).collect())
            .collect();
        let views: Vec<(usize, &[f32])> =
            views.iter().enumerate().map(|(view, values)| (view, &values[..])).collect();
        let mut together = vec![0.0; (planes * height - first) * width];
        plan.smear(&views, first, &mut together);
        assert!(together.iter().all(|value| *value != 0.0));
        for (line, found) in (first..).zip(together.chunks(width)) {
            let mut alone = vec![0.0; width];
            plan.smear(&views, line, &mut alone);
            assert_eq!(found, alone, "line {line}");
        }
    }
}
