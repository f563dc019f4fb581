//! Structural similarity in two and three dimensions.
//!
//! The one idea: means, variances and the covariance under a Gaussian window need four filtered fields
//! (x, y, x² + y², xy), and a Gaussian is separable. Rows are filtered along themselves once, kept in a
//! ring as long as the window, and summed over the ring; in three dimensions a row is first the
//! weighted sum of the rows of several slices. So memory is a few rows per task whatever the size.

use std::ops::Range;

use rayon::prelude::*;

use super::{check_range, per_image};
use crate::array::View;
use crate::error::{Error, Result};
use crate::image::{Sum, add_row};

/// Output rows of one task; a task filters a window's length of rows more than it has results.
const BAND: usize = 48;

/// Filtered at once: x, y, x² + y² and xy.
const FIELDS: usize = 4;

/// How the border is treated where the window extends beyond it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Border {
    /// The image is mirrored about its outermost pixels, and all pixels count: torchmetrics.
    #[default]
    Reflect,
    /// Only pixels whose window lies inside the image count: `structural_similarity` of scikit-image
    /// with `gaussian_weights=True, use_sample_covariance=False`, and the authors' own program.
    Inside,
}

/// The structural similarity of Wang, Bovik, Sheikh and Simoncelli (2004).
///
/// At every pixel, with means μ, variances σ² and covariance σₓᵧ under a Gaussian window,
/// `(2 μₓμᵧ + C₁)(2 σₓᵧ + C₂) / ((μₓ² + μᵧ² + C₁)(σₓ² + σᵧ² + C₂))`, where `C₁ = (0.01 L)²`,
/// `C₂ = (0.03 L)²` and L is the data range. The window has a standard deviation of 1.5 and 11 taps per
/// spatial axis; weights sum to 1, and variances are those of the population.
///
/// Channels and pixels are averaged; [`Border`] selects which pixels. The default is that of
/// `StructuralSimilarityIndexMeasure` of torchmetrics. The values of scikit-image, which leaves the
/// border out, differ in the third digit on photographs and more on small images.
///
/// ```
/// use haloscope::metrics::Ssim;
/// use ndarray::ArrayD;
///
/// let volume = ArrayD::from_shape_fn(vec![1, 1, 12, 16, 16], |at| (at[2] + at[4]) as f32);
/// let similarity = Ssim::new(26.0)?.per_image(&volume, &volume)?;
/// assert!((similarity[0] - 1.0).abs() < 1e-12);
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Ssim {
    border: Border,
    window: Vec<f64>,
    c1: f64,
    c2: f64,
}

impl Ssim {
    /// The usual window, for values whose largest and smallest differ by `data_range`.
    pub fn new(data_range: f64) -> Result<Self> {
        Self::with_window(data_range, 1.5)
    }

    /// Uses a Gaussian window of another standard deviation, cut at 3.5 of them.
    pub fn with_window(data_range: f64, sigma: f64) -> Result<Self> {
        check_range("ssim", data_range)?;
        if !(sigma > 0.0 && sigma <= 1000.0) {
            return Err(Error::argument(
                "ssim",
                format!(
                    "the window's standard deviation is {sigma}; it must be above 0, up to 1000"
                ),
            ));
        }
        let radius = (3.5 * sigma + 0.5).floor() as i64;
        let gaussian = |i: i64| (-0.5 * (i as f64 / sigma).powi(2)).exp();
        let sum: f64 = (-radius..=radius).map(gaussian).sum();
        let window = (-radius..=radius).map(|i| gaussian(i) / sum).collect();
        Ok(Self {
            border: Border::Reflect,
            window,
            c1: (0.01 * data_range).powi(2),
            c2: (0.03 * data_range).powi(2),
        })
    }

    /// Uses another rule for the border.
    #[must_use]
    pub fn with_border(self, border: Border) -> Self {
        Self { border, ..self }
    }

    /// The taps of the window along one axis.
    #[must_use]
    pub fn window(&self) -> &[f64] {
        &self.window
    }

    /// The similarity of each image of a batch to its reference.
    ///
    /// Images have two or three spatial axes, each at least as long as the window; with a mirrored
    /// border, longer than half of it.
    pub fn per_image(&self, image: &View, reference: &View) -> Result<Vec<f64>> {
        let shape = image.shape();
        self.check(shape)?;
        let sides = &shape[2..];
        let len: usize = sides.iter().product();
        let whole: Vec<Range<usize>> = sides.iter().map(|side| 0..*side).collect();
        let part = Part { sides, own: &whole, window: &whole };
        let pixels = self.pixels(sides) as f64;
        per_image("ssim", image, reference, |image, reference| {
            let channels = image.chunks(len).zip(reference.chunks(len));
            let means = channels.map(|(x, y)| self.of_channel(x, y, &part).value() / pixels);
            super::mean(&means.collect::<Vec<f64>>())
        })
    }

    /// Refuses shapes that the window does not fit.
    pub(super) fn check(&self, shape: &[usize]) -> Result<()> {
        let least = match self.border {
            Border::Reflect => self.window.len() / 2 + 1,
            Border::Inside => self.window.len(),
        };
        if !(4..=5).contains(&shape.len()) || shape[2..].iter().any(|&side| side < least) {
            return Err(Error::Shape {
                what: "the image of ssim".into(),
                expected: format!(
                    "(batch, channel, spatial…) is expected with two or three spatial axes of at \
                     least {least}, for a window of {}",
                    self.window.len()
                ),
                found: shape.to_vec(),
            });
        }
        Ok(())
    }

    /// The pixels that count.
    pub(super) fn pixels(&self, sides: &[usize]) -> usize {
        sides.iter().map(|side| self.results(*side)).product()
    }

    /// What of an axis of so many places is read for the results that belong to a part of it.
    pub(super) fn reads(&self, side: usize, own: &Range<usize>) -> Range<usize> {
        let (results, pad) = (self.results(side), self.pad());
        let own = own.start.min(results)..own.end.min(results);
        let places = own.start..own.end + self.window.len() - 1;
        let seen = || places.clone().map(|at| mirrored(at, pad, side));
        match (seen().min(), seen().max()) {
            (Some(first), Some(last)) if !own.is_empty() => first..last + 1,
            _ => 0..0,
        }
    }

    fn pad(&self) -> usize {
        match self.border {
            Border::Reflect => self.window.len() / 2,
            Border::Inside => 0,
        }
    }

    fn results(&self, side: usize) -> usize {
        side + 2 * self.pad() - (self.window.len() - 1)
    }

    /// The sum over the part of one channel.
    pub(super) fn of_channel(&self, x: &[f32], y: &[f32], part: &Part) -> Sum {
        let (taps, pad) = (self.window.len(), self.pad());
        let own = |axis: usize| {
            let results = self.results(part.sides[axis]);
            part.own[axis].start.min(results)..part.own[axis].end.min(results)
        };
        let last = part.sides.len() - 1;
        let (rows, columns) = (own(last - 1), own(last));
        // A picture is one slice that is seen through a window of one tap.
        let (through, slices): (&[f64], Range<usize>) =
            if last == 2 { (&self.window, own(0)) } else { (&[1.0], 0..1) };
        if rows.is_empty() || columns.is_empty() || slices.is_empty() {
            return Sum::default();
        }
        let bands = rows.len().div_ceil(BAND);
        let places = columns.start..columns.end + taps - 1;
        let places: Vec<usize> = places
            .map(|at| mirrored(at, pad, part.sides[last]) - part.window[last].start)
            .collect();
        (0..slices.len() * bands)
            .into_par_iter()
            .map_init(
                || Scratch::new(taps, part.window[last].len(), columns.len()),
                |scratch, task| {
                    let (slice, band) = (slices.start + task / bands, task % bands);
                    let seen = (slice..slice + through.len()).map(|at| match last {
                        2 => mirrored(at, pad, part.sides[0]) - part.window[0].start,
                        _ => 0,
                    });
                    let slices = seen.zip(through.iter().copied()).collect();
                    let planes = Planes { x, y, slices, part, pad, places: &places };
                    let begin = rows.start + band * BAND;
                    self.of_band(&planes, begin..(begin + BAND).min(rows.end), scratch)
                },
            )
            .reduce(Sum::default, |mut sum, other| {
                sum.merge(&other);
                sum
            })
    }

    /// The sum over some rows of the result.
    fn of_band(&self, planes: &Planes, rows: Range<usize>, scratch: &mut Scratch) -> Sum {
        let taps = self.window.len();
        let mut sum = Sum::default();
        for row in rows.start..rows.end + taps - 1 {
            planes.fields_of_row(row, &mut scratch.fields, &mut scratch.padded);
            let slot = row % taps;
            for (field, filtered) in scratch.padded.iter().zip(&mut scratch.ring[slot]) {
                filter(field, &self.window, filtered);
            }
            if row + 1 >= rows.start + taps {
                let first = row + 1 - taps;
                for (field, total) in scratch.sums.iter_mut().enumerate() {
                    total.fill(0.0);
                    for (tap, &weight) in self.window.iter().enumerate() {
                        add_weighted(total, weight, &scratch.ring[(first + tap) % taps][field]);
                    }
                }
                self.of_row(&scratch.sums, &mut scratch.row);
                add_row(&mut sum, &scratch.row);
            }
        }
        sum
    }

    /// The similarities along one row, from its filtered fields.
    fn of_row(&self, [x, y, squares, product]: &[Vec<f64>; FIELDS], row: &mut [f64]) {
        let means = x.iter().zip(y);
        let moments = squares.iter().zip(product);
        for (to, ((&x, &y), (&squares, &product))) in row.iter_mut().zip(means.zip(moments)) {
            let (xy, xx_yy) = (x * y, x * x + y * y);
            let structure = 2.0 * (product - xy) + self.c2;
            // Rounding may leave a variance just below zero.
            let variances = (squares - xx_yy).max(0.0) + self.c2;
            *to = (2.0 * xy + self.c1) * structure / ((xx_yy + self.c1) * variances);
        }
    }
}

/// Which part of an image is measured, and which is there: ranges along each spatial axis.
pub(super) struct Part<'a> {
    pub(super) sides: &'a [usize],
    pub(super) own: &'a [Range<usize>],
    pub(super) window: &'a [Range<usize>],
}

/// A channel, and what one slice of the result sees of it.
struct Planes<'a> {
    x: &'a [f32],
    y: &'a [f32],
    /// Which slices, and how much of each.
    slices: Vec<(usize, f64)>,
    part: &'a Part<'a>,
    /// Pixels beyond each border.
    pad: usize,
    /// Where the columns of the padded part are.
    places: &'a [usize],
}

impl Planes<'_> {
    /// The weighted sums over the slices of x, y, x² + y² and xy along one row of the padded image.
    fn fields_of_row(
        &self,
        row: usize,
        fields: &mut [Vec<f64>; FIELDS],
        padded: &mut [Vec<f64>; FIELDS],
    ) {
        for field in fields.iter_mut() {
            field.fill(0.0);
        }
        let last = self.part.sides.len() - 1;
        let (height, width) = (self.part.window[last - 1].len(), self.part.window[last].len());
        let row = mirrored(row, self.pad, self.part.sides[last - 1]);
        let row = row - self.part.window[last - 1].start;
        let [xs, ys, squares, products] = fields.each_mut();
        for &(slice, weight) in &self.slices {
            let from = (slice * height + row) * width;
            let x = &self.x[from..from + width];
            let y = &self.y[from..from + width];
            for i in 0..width {
                let (x, y) = (f64::from(x[i]), f64::from(y[i]));
                let (weighted_x, weighted_y) = (weight * x, weight * y);
                xs[i] += weighted_x;
                ys[i] += weighted_y;
                squares[i] += weighted_x * x + weighted_y * y;
                products[i] += weighted_x * y;
            }
        }
        for (field, padded) in fields.iter().zip(padded) {
            for (to, place) in padded.iter_mut().zip(self.places) {
                *to = field[*place];
            }
        }
    }
}

/// Where a place of the padded axis is, with the first and last values as mirrors.
fn mirrored(at: usize, pad: usize, side: usize) -> usize {
    if at < pad {
        pad - at
    } else if at - pad < side {
        at - pad
    } else {
        2 * (side - 1) - (at - pad)
    }
}

/// Rows of a task, made once per thread that works on it.
struct Scratch {
    fields: [Vec<f64>; FIELDS],
    padded: [Vec<f64>; FIELDS],
    ring: Vec<[Vec<f64>; FIELDS]>,
    sums: [Vec<f64>; FIELDS],
    row: Vec<f64>,
}

impl Scratch {
    fn new(taps: usize, width: usize, columns: usize) -> Self {
        let rows = |length: usize| std::array::from_fn(|_| vec![0.0; length]);
        Self {
            fields: rows(width),
            padded: rows(columns + taps - 1),
            ring: (0..taps).map(|_| rows(columns)).collect(),
            sums: rows(columns),
            row: vec![0.0; columns],
        }
    }
}

/// The sums under the window at every place where it fits.
fn filter(row: &[f64], window: &[f64], filtered: &mut [f64]) {
    filtered.fill(0.0);
    for (tap, &weight) in window.iter().enumerate() {
        add_weighted(filtered, weight, &row[tap..]);
    }
}

/// `total += weight · row`, over the length of `total`.
fn add_weighted(total: &mut [f64], weight: f64, row: &[f64]) {
    for (total, &value) in total.iter_mut().zip(row) {
        *total += weight * value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::Array;

    fn noise(shape: &[usize], seed: u64) -> Array {
        let mut random = fastrand::Rng::with_seed(seed);
        Array::from_shape_fn(shape, |_| random.f32())
    }

    /// Straight from the definition: every window of a volume on its own.
    fn plain(x: &View, y: &View, data_range: f64) -> f64 {
        let ssim = Ssim::new(data_range).expect("a range");
        let sides = &x.shape()[2..];
        let inside: Vec<usize> = sides.iter().map(|side| side - 10).collect();
        let mut sum = 0.0;
        let places = ndarray::indices(inside.clone());
        let count = inside.iter().product::<usize>() as f64;
        for at in places {
            let mut moments = [0.0; 5];
            for tap in ndarray::indices(vec![11; sides.len()]) {
                let mut index = vec![0, 0];
                let mut weight = 1.0;
                for axis in 0..sides.len() {
                    index.push(at[axis] + tap[axis]);
                    weight *= ssim.window()[tap[axis]];
                }
                let (a, b) = (f64::from(x[&index[..]]), f64::from(y[&index[..]]));
                for (moment, value) in moments.iter_mut().zip([a, b, a * a, b * b, a * b]) {
                    *moment += weight * value;
                }
            }
            let (c1, c2) = (ssim.c1, ssim.c2);
            let [mean_x, mean_y, xx, yy, xy] = moments;
            let (product, squares) = (mean_x * mean_y, mean_x * mean_x + mean_y * mean_y);
            sum += (2.0 * product + c1) * (2.0 * (xy - product) + c2)
                / ((squares + c1) * (xx + yy - squares + c2));
        }
        sum / count
    }

    #[test]
    fn pictures_and_volumes_agree_with_the_definition() {
        for shape in [vec![1, 1, 75, 23], vec![1, 1, 13, 12, 14], vec![1, 1, 11, 11]] {
            let (x, y) = (noise(&shape, 1), noise(&shape, 2));
            let y = (&x + &y) / 2.0;
            let inside = Ssim::new(1.0).expect("a range").with_border(Border::Inside);
            let fast = inside.per_image(&x, &y).expect("fits")[0];
            let slow = plain(&x, &y, 1.0);
            assert!((fast - slow).abs() < 1e-12, "{shape:?}: {fast} {slow}");
        }
    }

    #[test]
    fn mirrored_border_is_that_of_a_padded_image() {
        for shape in [vec![1, 1, 20, 23], vec![1, 1, 8, 12, 9], vec![1, 1, 6, 6]] {
            let (x, y) = (noise(&shape, 1), noise(&shape, 2));
            let padded = |a: &View| {
                let larger: Vec<usize> = shape
                    .iter()
                    .enumerate()
                    .map(|(i, s)| if i < 2 { *s } else { s + 10 })
                    .collect();
                Array::from_shape_fn(larger, |at| {
                    let axis = |i: usize| if i < 2 { at[i] } else { mirrored(at[i], 5, shape[i]) };
                    let index: Vec<usize> = (0..shape.len()).map(axis).collect();
                    a[&index[..]]
                })
            };
            let ssim = Ssim::new(1.0).expect("a range");
            let found = ssim.per_image(&x, &y).expect("fits")[0];
            let inside = ssim.with_border(Border::Inside);
            let expected = inside.per_image(&padded(&x), &padded(&y)).expect("fits")[0];
            assert!((found - expected).abs() < 1e-12, "{shape:?}: {found} {expected}");
        }
    }

    #[test]
    fn number_of_threads_does_not_show() {
        let (x, y) = (noise(&[1, 2, 211, 64], 3), noise(&[1, 2, 211, 64], 4));
        let on = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            let ssim = Ssim::new(1.0).expect("a range");
            pool.expect("a pool").install(|| ssim.per_image(&x, &y)).expect("fits")[0].to_bits()
        };
        assert_eq!(on(1), on(3));
    }

    #[test]
    fn images_smaller_than_the_window_are_refused() {
        let small = Array::zeros(vec![1, 1, 5, 50]);
        let ssim = Ssim::new(1.0).expect("a range");
        let error = ssim.per_image(&small, &small).expect_err("too small");
        assert!(error.to_string().contains("at least 6"), "{error}");
        let error = ssim.with_border(Border::Inside).per_image(&small, &small);
        assert!(error.expect_err("too small").to_string().contains("at least 11"));
    }
}
