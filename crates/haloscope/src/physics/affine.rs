//! The image as another instrument, or the same one from another side, sees it: turned, moved, stretched or sheared.
//!
//! A view of multi-view microscopy is an affine map and a blur. Values between pixels are interpolated linearly, and outside of the
//! image is nothing. The adjoint gathers, with the weights of the forward pass, so that threads write what is theirs alone.

use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;

use super::{LinearPhysics, Physics};
use crate::error::{Error, Result};

/// `(A x)(p) = x(M p + t)`, where places are counted from the middle of the image and of the measurement.
///
/// ```
/// use haloscope::physics::{Affine, Physics};
///
/// // Everything moves by a column and a half to the left.
/// let moved = Affine::new(&[1, 1, 4], &[1, 4], &[1.0, 0.0, 0.0, 0.0, 1.0, 1.5])?;
/// let image = ndarray::array![[[[0.0, 0.0, 2.0, 4.0]]]].into_dyn();
/// assert_eq!(moved.forward(&image)?, ndarray::array![[[[1.0, 3.0, 2.0, 0.0]]]].into_dyn());
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Affine {
    /// Of the part of the image that is there, which is all of it unless the operator was restricted.
    shape: Vec<usize>,
    measurement: Vec<usize>,
    /// (depth, height, width), of which depth is 1 in the plane.
    map: Map,
    /// Of the part of the image.
    from: [usize; 3],
    to: [usize; 3],
}

/// From places of the measurement to places of the image, both counted from their first pixels.
#[derive(Clone, Debug)]
struct Map {
    matrix: [[f64; 3]; 3],
    shift: [f64; 3],
    inverse: [[f64; 3]; 3],
}

impl Affine {
    /// For images of a shape (channel, spatial…) and measurements of these sides, with the rows of the matrix, each followed by what
    /// is added: six numbers in the plane, twelve in space. Axes are in the order of arrays: (y, x), or (z, y, x).
    pub fn new(shape: &[usize], sides: &[usize], rows: &[f64]) -> Result<Self> {
        let refuse = |reason: String| Err(Error::argument("affine", reason));
        let count = shape.len().saturating_sub(1);
        if !(2..=3).contains(&count) || sides.len() != count {
            return refuse(format!(
                "an image of {shape:?} and a measurement of {sides:?}; both have 2 sides or 3"
            ));
        }
        if shape.contains(&0) || sides.contains(&0) {
            return refuse(format!("an image of {shape:?} and a measurement of {sides:?}"));
        }
        if rows.len() != count * (count + 1) || rows.iter().any(|value| !value.is_finite()) {
            return refuse(format!(
                "{} numbers; {} finite ones are expected: the rows of the matrix, each followed by what is added",
                rows.len(),
                count * (count + 1)
            ));
        }
        let first = 3 - count;
        let (mut matrix, mut added) = ([[0.0; 3]; 3], [0.0; 3]);
        matrix[0][0] = 1.0;
        for (row, numbers) in rows.chunks(count + 1).enumerate() {
            matrix[first + row][first..].copy_from_slice(&numbers[..count]);
            added[first + row] = numbers[count];
        }
        let Some(inverse) = inverse(&matrix) else {
            return refuse("the matrix has no inverse: it would put the image into a plane".into());
        };
        let (from, to) = (sides_of(&shape[1..]), sides_of(sides));
        let middle = |side: usize| (side as f64 - 1.0) / 2.0;
        let shift = std::array::from_fn(|i| {
            let turned: f64 = (0..3).map(|j| matrix[i][j] * middle(to[j])).sum();
            added[i] + middle(from[i]) - turned
        });
        let measurement = [&shape[..1], sides].concat();
        let map = Map { matrix, shift, inverse };
        Ok(Self { shape: shape.to_vec(), measurement, map, from, to })
    }
}

/// Three sides, of which the first is 1 in the plane.
fn sides_of(sides: &[usize]) -> [usize; 3] {
    let mut three = [1; 3];
    three[3 - sides.len()..].copy_from_slice(sides);
    three
}

/// The inverse of a matrix by its cofactors, unless it is singular to about 1e-9.
fn inverse(m: &[[f64; 3]; 3]) -> Option<[[f64; 3]; 3]> {
    let minor = |i: usize, j: usize| {
        let (a, b, c, d) = ((i + 1) % 3, (i + 2) % 3, (j + 1) % 3, (j + 2) % 3);
        m[a][c] * m[b][d] - m[a][d] * m[b][c]
    };
    let determinant: f64 = (0..3).map(|j| m[0][j] * minor(0, j)).sum();
    let size = m.iter().flatten().fold(0.0_f64, |most, value| most.max(value.abs()));
    (determinant.abs() > 1e-9 * size.powi(3))
        .then(|| std::array::from_fn(|i| std::array::from_fn(|j| minor(j, i) / determinant)))
}

impl Map {
    /// Where in the image a place of the measurement is.
    fn image(&self, place: [usize; 3]) -> [f64; 3] {
        std::array::from_fn(|i| {
            let row = &self.matrix[i];
            let [z, y, x] = place.map(|at| at as f64);
            self.shift[i] + row[0] * z + row[1] * y + row[2] * x
        })
    }

    /// The places of the measurement, along each axis, whose value may depend on a place of the image.
    fn touched(&self, place: [usize; 3], to: [usize; 3]) -> [Range<usize>; 3] {
        std::array::from_fn(|i| {
            let row = &self.inverse[i];
            let at: f64 = (0..3).map(|j| row[j] * (place[j] as f64 - self.shift[j])).sum();
            // A pixel counts up to one step away along each axis; a little more is nothing.
            let reach = row.iter().map(|part| part.abs()).sum::<f64>() + 1e-6;
            let start = (at - reach).ceil().max(0.0) as usize;
            start
                ..((at + reach).floor() + 1.0).clamp(start as f64, to[i].max(start) as f64) as usize
        })
    }
}

/// How much the pixels at the integer below a place, and above it, count.
fn weights(place: f64) -> (isize, [f32; 2]) {
    let below = place.floor();
    let part = (place - below) as f32;
    (below as isize, [1.0 - part, part])
}

impl Physics for Affine {
    fn name(&self) -> &'static str {
        "affine"
    }

    fn image_shape(&self) -> &[usize] {
        &self.shape
    }

    fn measurement_shape(&self) -> &[usize] {
        &self.measurement
    }

    fn apply_forward(&self, _batch: usize, image: &[f32], measurement: &mut [f32]) -> Result<()> {
        let ([_, high, wide], [deep, tall, width]) = (self.from, self.to);
        let volume = self.from.iter().product::<usize>();
        let inside = |at: isize, axis: usize| (0..self.from[axis] as isize).contains(&at);
        measurement.par_chunks_mut(width).enumerate().for_each(|(line, values)| {
            let (plane, z, y) = (line / (deep * tall), line / tall % deep, line % tall);
            let image = &image[plane * volume..(plane + 1) * volume];
            for (x, value) in values.iter_mut().enumerate() {
                let [a, b, c] = self.map.image([z, y, x]).map(weights);
                let mut sum = 0.0;
                for corner in 0..8 {
                    let [i, j, k] = [corner >> 2, corner >> 1 & 1, corner & 1];
                    let at = [a.0 + i as isize, b.0 + j as isize, c.0 + k as isize];
                    if inside(at[0], 0) && inside(at[1], 1) && inside(at[2], 2) {
                        let [p, q, r] = at.map(|at| at as usize);
                        sum += a.1[i] * b.1[j] * c.1[k] * image[(p * high + q) * wide + r];
                    }
                }
                *value = sum;
            }
        });
        Ok(())
    }

    fn as_linear(&self) -> Option<&dyn LinearPhysics> {
        Some(self)
    }

    fn cost(&self) -> f64 {
        16.0 * self.measurement.iter().product::<usize>() as f64
    }
}

impl LinearPhysics for Affine {
    fn apply_adjoint(&self, _batch: usize, measurement: &[f32], image: &mut [f32]) -> Result<()> {
        let ([deep, high, wide], [_, tall, width]) = (self.from, self.to);
        let volume = self.to.iter().product::<usize>();
        image.par_chunks_mut(wide).enumerate().for_each(|(line, values)| {
            let (plane, p, q) = (line / (deep * high), line / high % deep, line % high);
            let measured = &measurement[plane * volume..(plane + 1) * volume];
            for (r, value) in values.iter_mut().enumerate() {
                let here = [p, q, r];
                let mut sum = 0.0;
                let [zs, ys, xs] = self.map.touched(here, self.to);
                for z in zs {
                    for y in ys.clone() {
                        for x in xs.clone() {
                            let place = self.map.image([z, y, x]);
                            let weight = (0..3).fold(1.0, |product, axis| {
                                let (below, weights) = weights(place[axis]);
                                match here[axis] as isize - below {
                                    0 => product * weights[0],
                                    1 => product * weights[1],
                                    _ => 0.0,
                                }
                            });
                            sum += weight * measured[(z * tall + y) * width + x];
                        }
                    }
                }
                *value = sum;
            }
        });
        Ok(())
    }

    fn restricted(&self, image: &[Range<usize>]) -> Option<Result<Arc<dyn Physics>>> {
        let mut part = self.clone();
        let first = 3 - image.len();
        for (axis, range) in image.iter().enumerate() {
            if range.is_empty() || range.end > self.shape[axis + 1] {
                let reason = format!("a part {image:?} of an image of {:?}", &self.shape[1..]);
                return Some(Err(Error::argument("affine", reason)));
            }
            part.shape[axis + 1] = range.len();
            part.from[first + axis] = range.len();
            part.map.shift[first + axis] -= range.start as f64;
        }
        Some(Ok(Arc::new(part)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::Array;

    #[test]
    fn a_quarter_turn_exchanges_the_axes() -> Result<()> {
        let turn = Affine::new(&[1, 3, 5], &[5, 3], &[0.0, 1.0, 0.0, -1.0, 0.0, 0.0])?;
        let image = Array::from_shape_fn(vec![1, 1, 3, 5], |at| (10 * at[2] + at[3]) as f32);
        let turned = turn.forward(&image)?;
        for ((_, _, row, column), value) in
            turned.clone().into_dimensionality::<ndarray::Ix4>().expect("four axes").indexed_iter()
        {
            assert_eq!(*value, (10 * column + 4 - row) as f32);
        }
        // It is a permutation, so that the adjoint turns back.
        assert_eq!(turn.adjoint(&turned)?, image);
        Ok(())
    }

    #[test]
    fn a_linear_image_is_interpolated_exactly() -> Result<()> {
        let (sin, cos) = 0.3_f64.sin_cos();
        let rows = [1.0, 0.0, 0.0, 0.5, 0.0, cos, -sin, -0.25, 0.0, sin, cos, 0.75];
        let turn = Affine::new(&[1, 12, 14, 16], &[4, 5, 6], &rows)?;
        let plane = |[z, y, x]: [f64; 3]| 3.0 + z - 2.0 * y + 0.5 * x;
        let image = Array::from_shape_fn(vec![1, 1, 12, 14, 16], |at| {
            plane([at[2], at[3], at[4]].map(|at| at as f64)) as f32
        });
        for (at, value) in turn.forward(&image)?.indexed_iter() {
            let [z, y, x] =
                [(2, 1.5), (3, 2.0), (4, 2.5)].map(|(axis, middle)| at[axis] as f64 - middle);
            let place = [z + 0.5, cos * y - sin * x - 0.25, sin * y + cos * x + 0.75];
            let expected = plane([place[0] + 5.5, place[1] + 6.5, place[2] + 7.5]);
            assert!((f64::from(*value) - expected).abs() < 1e-4, "{value} for {expected}");
        }
        Ok(())
    }

    #[test]
    fn what_is_no_map_is_refused() {
        let refusal = |shape: &[usize], sides: &[usize], rows: &[f64]| {
            Affine::new(shape, sides, rows).expect_err("refused").to_string()
        };
        let flat = [1.0, 2.0, 0.0, 2.0, 4.0, 0.0];
        assert!(refusal(&[1, 4, 4], &[4, 4], &flat).contains("no inverse"));
        assert!(refusal(&[1, 4, 4], &[4, 4], &flat[..5]).contains("6 finite ones"));
        assert!(refusal(&[1, 4, 4], &[4], &flat).contains("2 sides or 3"));
        assert!(refusal(&[1, 4], &[4], &flat[..2]).contains("2 sides or 3"));
    }
}
