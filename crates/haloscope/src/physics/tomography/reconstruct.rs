//! Filtered back-projection of circular scans: FBP for planes, FDK for cone beams.
//!
//! Rows of the detector are weighted by the obliqueness of their rays, filtered with a ramp, and
//! smeared back over the image, pixel by pixel with linear interpolation: what a pixel takes does
//! not depend on the discretisation of the projector. Each view counts for the arc that it stands
//! for, so that angles need not be equally spaced. Fans and cones may go all around or, with
//! Parker's weights, half around plus the angle of the fan. A shorter arc leaves lines unmeasured, and what they would
//! show is missing from the image: [`Tomography2d::missing_arc`].

use std::f64::consts::{PI, TAU};

use haloscope_nn::Stop;
use rayon::prelude::*;

use super::coverage::Coverage;
use super::filter::{Ramp, Window};
use super::geometry::{Scan2d, Scan3d};
use super::{Tomography2d, Tomography3d};
use crate::array::{Array, View};
use crate::error::{Error, Result};
use crate::physics::Physics;

impl Tomography2d {
    /// The image by filtered back-projection of sinograms of parallel or fan beams.
    ///
    /// ```
    /// use haloscope::physics::Physics;
    /// use haloscope::physics::tomography::{ParallelBeam, Tomography2d, Window, evenly_spaced};
    ///
    /// let scan = ParallelBeam::new(evenly_spaced(60, std::f64::consts::PI), 32);
    /// let operator = Tomography2d::new(&[1, 32, 32], scan)?;
    /// let image = ndarray::ArrayD::from_shape_fn(vec![1, 1, 32, 32], |i| {
    ///     f32::from((i[2] as f32 - 15.5).hypot(i[3] as f32 - 15.5) < 12.0)
    /// });
    /// let again = operator.filtered_back_projection(&operator.forward(&image)?, Window::Hann)?;
    /// assert!((again[[0, 0, 16, 16]] - 1.0).abs() < 0.02);
    /// # Ok::<(), haloscope::Error>(())
    /// ```
    pub fn filtered_back_projection(&self, sinogram: &View, window: Window) -> Result<Array> {
        let [height, width] = [self.image_shape()[1], self.image_shape()[2]];
        let [pixel_height, pixel_width] = self.pixel();
        let image = Axes {
            x: centred(width, pixel_width),
            y: centred(height, -pixel_height),
            z: vec![0.0],
        };
        self.circle()?.reconstruct(self, sinogram, &image, self.factor(), window)
    }

    /// What is missing of the arc that filtered back-projection needs, if something is. The image then lacks what the
    /// missing views would show: edges along their rays.
    #[must_use]
    pub fn missing_arc(&self) -> Option<MissingArc> {
        self.circle().ok()?.missing_arc()
    }

    fn circle(&self) -> Result<Circle<'_>> {
        Ok(match self.scan() {
            Scan2d::Parallel(scan) => Circle {
                angles: &scan.angles,
                source: None,
                spacing: [1.0, scan.spacing],
                offset: [0.0, scan.offset],
                detector: [1, scan.bins],
            },
            Scan2d::Fan(scan) => {
                let source = scan.source_distance;
                let shrink = source / (source + scan.detector_distance);
                Circle {
                    angles: &scan.angles,
                    source: Some(source),
                    spacing: [1.0, scan.spacing * shrink],
                    offset: [0.0, scan.offset],
                    detector: [1, scan.bins],
                }
            }
            Scan2d::Views { .. } => return Err(no_circle()),
        })
    }
}

impl Tomography3d {
    /// The volume by the method of Feldkamp, Davis and Kress from projections of cone beams, or by
    /// filtered back-projection from those of parallel beams.
    pub fn filtered_back_projection(&self, projections: &View, window: Window) -> Result<Array> {
        let size = &self.image_shape()[1..];
        let [depth, height, width] = self.voxel();
        let image = Axes {
            x: centred(size[2], width),
            y: centred(size[1], height),
            z: centred(size[0], depth),
        };
        self.circle()?.reconstruct(self, projections, &image, self.factor(), window)
    }

    /// What is missing of the arc that filtered back-projection needs, if something is.
    #[must_use]
    pub fn missing_arc(&self) -> Option<MissingArc> {
        self.circle().ok()?.missing_arc()
    }

    fn circle(&self) -> Result<Circle<'_>> {
        Ok(match self.scan() {
            Scan3d::Parallel(scan) => Circle {
                angles: &scan.angles,
                source: None,
                spacing: scan.spacing,
                offset: scan.offset,
                detector: scan.detector,
            },
            Scan3d::Cone(scan) => {
                let source = scan.source_distance;
                let shrink = source / (source + scan.detector_distance);
                Circle {
                    angles: &scan.angles,
                    source: Some(source),
                    spacing: scan.spacing.map(|spacing| spacing * shrink),
                    offset: scan.offset,
                    detector: scan.detector,
                }
            }
            Scan3d::Views { .. } => return Err(no_circle()),
        })
    }
}

/// An arc that is too short for filtered back-projection, in radians.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MissingArc {
    /// What the views cover.
    pub covered: f64,
    /// What is needed: half a turn, and the angle of the fan.
    pub needed: f64,
}

fn no_circle() -> Error {
    Error::argument(
        "tomography",
        "filtered back-projection of views at any position; it takes parallel, fan and cone beams \
         that go around the image",
    )
}

/// Where the pixels of an image are.
struct Axes {
    x: Vec<f64>,
    y: Vec<f64>,
    z: Vec<f64>,
}

fn centred(count: usize, spacing: f64) -> Vec<f64> {
    (0..count).map(|i| (i as f64 - (count as f64 - 1.0) / 2.0) * spacing).collect()
}

/// A circular scan, with the detector moved to the rotation axis and shrunk accordingly.
struct Circle<'a> {
    angles: &'a [f64],
    /// The distance of the source; parallel rays have none.
    source: Option<f64>,
    spacing: [f64; 2],
    offset: [f64; 2],
    detector: [usize; 2],
}

impl Circle<'_> {
    fn reconstruct(
        &self,
        operator: &dyn Physics,
        measurement: &View,
        image: &Axes,
        factor: f64,
        window: Window,
    ) -> Result<Array> {
        let batch = operator.check_measurement(measurement)?;
        let weights = self.view_weights();
        let mut filtered = measurement.as_standard_layout().into_owned();
        let values = filtered.as_slice_mut().ok_or_else(|| {
            Error::argument("tomography", "measurements that are not in standard layout")
        })?;
        let [rows, columns] = self.detector;
        let views = self.angles.len();
        values.par_chunks_mut(columns).enumerate().for_each(|(i, values)| {
            let (row, view) = (i % rows, i / rows % views);
            for (column, value) in values.iter_mut().enumerate() {
                let [v, u] = self.place(row, column);
                let weight = weights(view, u) * self.obliqueness(u, v) / factor;
                *value *= weight as f32;
            }
        });
        Ramp::new(columns, self.spacing[1], window)?.apply(values, columns)?;
        let mut result = Array::zeros([&[batch], operator.image_shape()].concat());
        let planes = image.x.len() * image.y.len() * image.z.len();
        let to = result.as_slice_mut().expect("an array that was just made is in standard layout");
        let size = views * rows * columns;
        for (to, values) in to.chunks_exact_mut(planes).zip(values.chunks_exact(size)) {
            self.smear(values, image, to);
        }
        Stop::check()?;
        Ok(result)
    }

    /// Where a pixel of the detector is on the plane through the rotation axis: (v, u).
    fn place(&self, row: usize, column: usize) -> [f64; 2] {
        let index = [row as f64, column as f64];
        std::array::from_fn(|i| {
            (index[i] - (self.detector[i] as f64 - 1.0) / 2.0 + self.offset[i]) * self.spacing[i]
        })
    }

    /// The cosine of the angle between a ray and the middle one.
    fn obliqueness(&self, u: f64, v: f64) -> f64 {
        self.source.map_or(1.0, |source| source / (source * source + u * u + v * v).sqrt())
    }

    /// What the rays of a view at a place `u` count for: the arc of the view, shared with the rays
    /// that go the same way in reverse.
    fn view_weights(&self) -> impl Fn(usize, f64) -> f64 + Sync {
        let coverage = self.coverage();
        let arcs = coverage.arcs();
        let (begin, length) = coverage.extent();
        let short = self.source.filter(|_| !coverage.is_closed());
        let angles = self.angles.to_vec();
        let full = if self.source.is_some() { 0.5 } else { 1.0 };
        move |view: usize, u: f64| {
            let share = match short {
                Some(source) => {
                    let turned = (angles[view] - begin).rem_euclid(TAU);
                    // Rounding may put the first view just before its own place.
                    let turned = if turned > length + 1e-9 { 0.0 } else { turned };
                    parker(turned, (u / source).atan(), length)
                }
                None => full,
            };
            share * arcs[view]
        }
    }

    fn coverage(&self) -> Coverage {
        Coverage::new(self.angles, if self.source.is_some() { TAU } else { PI })
    }

    /// The arc that is scanned and the one that is needed, if they differ.
    fn missing_arc(&self) -> Option<MissingArc> {
        let coverage = self.coverage();
        if coverage.is_closed() {
            return None;
        }
        let (_, covered) = coverage.extent();
        let fan = self.source.map_or(0.0, |source| {
            let edge = |column| (self.place(0, column)[1] / source).atan().abs();
            edge(0).max(edge(self.detector[1] - 1))
        });
        let needed = PI + 2.0 * fan;
        (covered < needed).then_some(MissingArc { covered, needed })
    }

    /// Adds up what the rays through each pixel of the image saw.
    fn smear(&self, values: &[f32], image: &Axes, to: &mut [f32]) {
        let [rows, columns] = self.detector;
        let turns: Vec<(f64, f64)> = self.angles.iter().map(|angle| angle.sin_cos()).collect();
        let middle: [f64; 2] =
            std::array::from_fn(|i| (self.detector[i] as f64 - 1.0) / 2.0 - self.offset[i]);
        let (width, height) = (image.x.len(), image.y.len());
        let stop = Stop::current();
        to.par_chunks_mut(width).enumerate().for_each(|(i, to)| {
            if stop.is_requested() {
                return;
            }
            let (y, z) = (image.y[i % height], image.z[i / height]);
            for (&(sin, cos), values) in turns.iter().zip(values.chunks_exact(rows * columns)) {
                for (&x, to) in image.x.iter().zip(to.iter_mut()) {
                    // The pixel is this many times as far from the source as the rotation axis is.
                    let reach = match self.source {
                        Some(source) => 1.0 + (y * cos - x * sin) / source,
                        None => 1.0,
                    };
                    if reach <= 0.0 {
                        continue;
                    }
                    let near = 1.0 / reach;
                    let u = (x * cos + y * sin) * near / self.spacing[1] + middle[1];
                    let v = z * near / self.spacing[0] + middle[0];
                    let value = if rows == 1 {
                        read(values, columns, u)
                    } else {
                        read_pixel(values, rows, columns, v, u)
                    };
                    *to += (near * near) as f32 * value;
                }
            }
        });
    }
}

/// Parker's weights, made smooth over all that a scan has beyond half a turn: the two rays along one
/// line have weights that sum to 1. A ray that is alone on its line, as those of short arcs are, has 1.
fn parker(turned: f64, fan: f64, length: f64) -> f64 {
    // The opposite ray of (turned, fan) is (turned + π − 2 fan, −fan).
    let spare = (length - PI) / 2.0;
    if turned < 2.0 * (spare + fan) {
        (PI / 4.0 * turned / (spare + fan)).sin().powi(2)
    } else if turned <= PI + 2.0 * fan {
        1.0
    } else {
        let rest = (length - turned).max(0.0);
        (PI / 4.0 * rest / (spare - fan)).sin().powi(2)
    }
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

/// A pixel at a place between rows and columns, zero outside.
#[inline]
fn read_pixel(values: &[f32], rows: usize, columns: usize, v: f64, u: f64) -> f32 {
    let below = v.floor();
    if !(below >= -1.0 && below < rows as f64) {
        return 0.0;
    }
    let fraction = (v - below) as f32;
    let i = below as isize;
    let row = |i: isize| match usize::try_from(i).ok().filter(|&i| i < rows) {
        Some(i) => read(&values[i * columns..], columns, u),
        None => 0.0,
    };
    let (low, high) = (row(i), row(i + 1));
    low + fraction * (high - low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_rays_along_a_line_count_once_and_one_that_is_alone_counts_whole() {
        for length in [PI + 0.8, PI + 0.1, PI - 0.2, 1.0] {
            check_weights(length);
        }
    }

    fn check_weights(length: f64) {
        for turned in 0..100 {
            for fan in -10..=10 {
                let (turned, fan) = (f64::from(turned) * length / 100.0, f64::from(fan) * 0.03);
                let back = turned + PI - 2.0 * fan;
                if (0.0..=length).contains(&back) {
                    let sum = parker(turned, fan, length) + parker(back, -fan, length);
                    assert!((sum - 1.0).abs() < 1e-9, "{length}: {turned} {fan}: {sum}");
                } else if turned - PI - 2.0 * fan < 0.0 {
                    assert_eq!(parker(turned, fan, length), 1.0, "{length}: {turned} {fan}");
                }
            }
        }
    }
}
