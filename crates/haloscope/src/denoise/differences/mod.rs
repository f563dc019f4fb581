//! Differences between neighbouring pixels, their adjoint, and the ball that total variation is the support of.
//!
//! The gradient of an image (batch, channel, spatial…) is (batch, channel, axis, spatial…): the next pixel along the
//! axis minus this one, and zero at the end. Everything is done row by row, so that the inner loops have no
//! conditions. A part of an image has faces: what lies beside it along each axis, one pixel thick.

use haloscope_scratch::{Visited, in_pieces};
use rayon::prelude::*;

use crate::array::Array;

pub(crate) mod on_images;

/// The rows of an image and how they lie beside each other.
struct Rows {
    /// Pixels of a row.
    length: usize,
    /// Rows of a channel.
    count: usize,
    /// For each axis but the last: its size, and the rows between neighbours.
    axes: Vec<(usize, usize)>,
}

impl Rows {
    fn of(shape: &[usize]) -> Self {
        let sides = &shape[2..];
        let (length, outer) =
            sides.split_last().map_or((1, &[][..]), |(last, outer)| (*last, outer));
        let axes = (0..outer.len()).map(|axis| (outer[axis], outer[axis + 1..].iter().product()));
        Self { length: length.max(1), count: outer.iter().product(), axes: axes.collect() }
    }

    fn pixels(&self) -> usize {
        self.length * self.count
    }

    fn dimensions(&self) -> usize {
        self.axes.len() + 1
    }

    /// The place of a row along an axis.
    fn place(&self, row: usize, axis: usize) -> usize {
        row / self.axes[axis].1 % self.axes[axis].0
    }

    /// The row of a face across an axis that lies beside a row of a channel.
    fn beside<'a>(&self, face: &'a [f32], channel: usize, row: usize, axis: usize) -> &'a [f32] {
        let (size, stride) = self.axes[axis];
        let place = channel * (self.count / size) + row / (size * stride) * stride + row % stride;
        &face[place * self.length..][..self.length]
    }
}

/// The face across an axis, if there is one: a whole image has none, and those at its ends are empty.
fn face(faces: &[Array], axis: usize) -> Option<&[f32]> {
    faces.get(axis)?.as_slice().filter(|values| !values.is_empty())
}

/// The gradient of an image.
pub(crate) fn gradient(image: &[f32], shape: &[usize]) -> Vec<f32> {
    let mut result = vec![0.0; image.len() * Rows::of(shape).dimensions()];
    add_gradient(&mut result, 1.0, image, shape, &[]);
    result
}

/// `dual ← dual + factor · ∇image`; `after` are the faces of the image after this part of it, along each axis.
pub(crate) fn add_gradient(
    dual: &mut [f32],
    factor: f32,
    image: &[f32],
    shape: &[usize],
    after: &[Array],
) {
    let rows = Rows::of(shape);
    visit_dual(dual, shape, &[Visited::of(image)], |index, to| {
        let (plane, row) = (index / rows.count, index % rows.count);
        let (channel, axis) = (plane / rows.dimensions(), plane % rows.dimensions());
        let begin = channel * rows.pixels() + row * rows.length;
        let here = &image[begin..begin + rows.length];
        if axis == rows.axes.len() {
            for (to, pair) in to.iter_mut().zip(here.windows(2)) {
                *to += factor * (pair[1] - pair[0]);
            }
            if let (Some(to), [.., here], Some(face)) = (to.last_mut(), here, face(after, axis)) {
                *to += factor * (face[channel * rows.count + row] - here);
            }
            return;
        }
        let (size, stride) = rows.axes[axis];
        let beside = if rows.place(row, axis) + 1 < size {
            Some(&image[begin + stride * rows.length..][..rows.length])
        } else {
            face(after, axis).map(|face| rows.beside(face, channel, row, axis))
        };
        for (to, (here, beside)) in to.iter_mut().zip(here.iter().zip(beside.unwrap_or(&[]))) {
            *to += factor * (beside - here);
        }
    });
}

/// Writes the adjoint of [`gradient`] over whatever `result` holds, for a part of an image: along an axis where it does not end
/// here, its last difference is one to a pixel that is elsewhere. `before` are the faces of the dual before it along each axis, of
/// the differences along that axis.
pub(crate) fn gradient_adjoint_into(
    result: &mut [f32],
    dual: &[f32],
    shape: &[usize],
    ends: &[bool],
    before: &[Array],
) {
    let rows = Rows::of(shape);
    let differences = rows.length - usize::from(ends[rows.axes.len()]);
    visit_image(result, shape, dual, |index, to| {
        to.fill(0.0);
        let (channel, row) = (index / rows.count, index % rows.count);
        for (axis, (&(size, stride), ends)) in rows.axes.iter().zip(ends).enumerate() {
            let begin = (channel * rows.dimensions() + axis) * rows.pixels() + row * rows.length;
            let place = rows.place(row, axis);
            if place + 1 < size || !ends {
                to.iter_mut().zip(&dual[begin..]).for_each(|(to, dual)| *to -= dual);
            }
            let beside = if place > 0 {
                Some(&dual[begin - stride * rows.length..])
            } else {
                face(before, axis).map(|face| rows.beside(face, channel, row, axis))
            };
            to.iter_mut().zip(beside.unwrap_or(&[])).for_each(|(to, dual)| *to += dual);
        }
        let begin =
            (channel * rows.dimensions() + rows.axes.len()) * rows.pixels() + row * rows.length;
        let along = &dual[begin..][..differences];
        to.iter_mut().zip(along).for_each(|(to, dual)| *to -= dual);
        if let Some(face) = face(before, rows.axes.len()) {
            to[0] += face[channel * rows.count + row];
        }
        to[1..].iter_mut().zip(along).for_each(|(to, dual)| *to += dual);
    });
}

/// The length of the gradient of each pixel, over all its channels and axes.
pub(crate) fn lengths(gradient: &[f32], shape: &[usize]) -> Vec<f32> {
    let rows = Rows::of(shape);
    let pixels = rows.pixels();
    let planes = shape[1] * rows.dimensions();
    let mut lengths = vec![0.0_f32; shape[0] * pixels];
    lengths.par_chunks_mut(rows.length).enumerate().for_each(|(index, to)| {
        let (image, row) = (index / rows.count, index % rows.count);
        for plane in 0..planes {
            let begin = (image * planes + plane) * pixels + row * rows.length;
            to.iter_mut().zip(&gradient[begin..]).for_each(|(to, value)| *to += value * value);
        }
        for value in to {
            *value = value.sqrt();
        }
    });
    lengths
}

/// Calls with every row of a dual and its index. A dual in a scratch folder is visited by rows of the image, those of all channels and
/// axes together, with other arrays of which each step needs what lies there.
fn visit_dual(
    dual: &mut [f32],
    shape: &[usize],
    others: &[Visited],
    visit: impl Fn(usize, &mut [f32]) + Sync,
) {
    let rows = Rows::of(shape);
    if !haloscope_scratch::is_active() {
        let all = dual.par_chunks_mut(rows.length).enumerate();
        return all.for_each(|(index, row)| visit(index, row));
    }
    let (plane, planes) = (rows.pixels(), dual.len() / rows.pixels().max(1));
    let mut arrays: Vec<Visited> = dual.chunks(plane.max(1)).map(Visited::of).collect();
    if planes == rows.dimensions() {
        arrays.extend_from_slice(others);
    }
    in_pieces(rows.count, &arrays, |piece| {
        let begin = piece.start * rows.length;
        let taken = dual.par_chunks_mut(plane).enumerate().flat_map(|(number, plane)| {
            let part = &mut plane[begin..piece.end * rows.length];
            let first = number * rows.count + piece.start;
            part.par_chunks_mut(rows.length).enumerate().map(move |(row, to)| (first + row, to))
        });
        taken.for_each(|(index, row)| visit(index, row));
    });
}

/// Calls with every row of an image and its index; what is computed there needs what lies there of a dual.
fn visit_image(
    image: &mut [f32],
    shape: &[usize],
    dual: &[f32],
    visit: impl Fn(usize, &mut [f32]) + Sync,
) {
    let rows = Rows::of(shape);
    if !haloscope_scratch::is_active() || image.len() != rows.pixels() {
        let all = image.par_chunks_mut(rows.length).enumerate();
        return all.for_each(|(index, row)| visit(index, row));
    }
    let planes = dual.chunks(rows.pixels().max(1)).map(Visited::of);
    let arrays: Vec<Visited> = std::iter::once(Visited::of(image)).chain(planes).collect();
    in_pieces(rows.count, &arrays, |piece| {
        let part = &mut image[piece.start * rows.length..piece.end * rows.length];
        let all = part.par_chunks_mut(rows.length).enumerate();
        all.for_each(|(row, to)| visit(piece.start + row, to));
    });
}

/// Shortens the vectors of pixels that are longer than `radius`.
pub(crate) fn project(dual: &mut [f32], shape: &[usize], radius: f32) {
    if haloscope_scratch::is_active() && dual.len() == Rows::of(shape).pixels() * (shape.len() - 2)
    {
        return project_in_pieces(dual, shape, radius);
    }
    let pixels = Rows::of(shape).pixels();
    let planes = shape[1] * Rows::of(shape).dimensions();
    let mut factors = lengths(dual, shape);
    factors
        .par_iter_mut()
        .for_each(|length| *length = radius / length.max(radius).max(f32::MIN_POSITIVE));
    dual.par_chunks_mut(pixels).enumerate().for_each(|(plane, values)| {
        let factors = &factors[plane / planes * pixels..][..pixels];
        values.iter_mut().zip(factors).for_each(|(value, factor)| *value *= factor);
    });
}

/// The same for one image of one channel, in pieces of a scratch folder: the lengths of a piece are all that is held beside it.
fn project_in_pieces(dual: &mut [f32], shape: &[usize], radius: f32) {
    let rows = Rows::of(shape);
    let pixels = rows.pixels();
    let arrays: Vec<Visited> = dual.chunks(pixels).map(Visited::of).collect();
    in_pieces(rows.count, &arrays, |piece| {
        let part = piece.start * rows.length..piece.end * rows.length;
        let mut factors = vec![0.0_f32; part.len()];
        factors.par_chunks_mut(rows.length).enumerate().for_each(|(row, to)| {
            let begin = part.start + row * rows.length;
            for plane in dual.chunks(pixels) {
                to.iter_mut().zip(&plane[begin..]).for_each(|(to, value)| *to += value * value);
            }
            for value in to {
                let length = value.sqrt();
                *value = radius / length.max(radius).max(f32::MIN_POSITIVE);
            }
        });
        dual.par_chunks_mut(pixels).for_each(|plane| {
            let values = plane[part.clone()].iter_mut().zip(&factors);
            values.for_each(|(value, factor)| *value *= factor);
        });
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::dot;

    #[test]
    fn the_adjoint_of_the_gradient_is_exact() {
        let mut random = fastrand::Rng::with_seed(2);
        for shape in [&[1, 1, 9][..], &[2, 3, 5, 7], &[1, 2, 3, 4, 5], &[1, 1, 1, 6], &[1, 1, 6, 1]]
        {
            let count: usize = shape.iter().product();
            let image: Vec<f32> = (0..count).map(|_| random.f32() - 0.5).collect();
            let rise = gradient(&image, shape);
            let dual: Vec<f32> = rise.iter().map(|_| random.f32() - 0.5).collect();
            let mut back = vec![0.0; count];
            gradient_adjoint_into(&mut back, &dual, shape, &vec![true; shape.len() - 2], &[]);
            let (left, right) = (dot(&rise, &dual), dot(&image, &back));
            assert!((left - right).abs() < 1e-5, "{shape:?}: {left}, {right}");
        }
    }

    #[test]
    fn projection_shortens_long_vectors_only() {
        let shape = [1, 1, 1, 2];
        // Axis 0 of both pixels, then axis 1.
        let mut dual = vec![3.0, 0.1, 4.0, 0.2];
        project(&mut dual, &shape, 1.0);
        assert!((dual[0] - 0.6).abs() < 1e-6 && (dual[2] - 0.8).abs() < 1e-6);
        assert_eq!((dual[1], dual[3]), (0.1, 0.2));
    }
}
