//! The orthogonal wavelet transform of an image of any number of sides, with periodic boundaries.
//!
//! Coefficients take the places of the pixels: at each scale the means of an axis come first and the details after them, and the
//! next scale works on the means. A transform keeps all lengths and is its own inverse's adjoint for sides of any length:
//!
//! - an axis is halved while it is at least as long as the filter; a shorter one keeps its length at this scale;
//! - of an odd number of values the last one is passed to the means as it is.
//!
//! For even sides the numbers are those of `PyWavelets` with `mode="periodization"`.

use rayon::prelude::*;

use super::filters::{high_pass, low_pass};

/// The transform of images of certain sides.
#[derive(Clone, Debug)]
pub(super) struct Transform {
    low: Vec<f32>,
    high: Vec<f32>,
    sides: Vec<usize>,
    steps: Vec<Step>,
    coarse: Vec<usize>,
}

/// One axis at one scale, in a corner of the image.
#[derive(Clone, Debug)]
struct Step {
    axis: usize,
    corner: Vec<usize>,
}

#[derive(Clone, Copy, PartialEq)]
enum Direction {
    Forward,
    Inverse,
}

impl Transform {
    /// With the wavelet of an order from 1 to 8, at no more than so many scales.
    pub(super) fn new(order: usize, sides: &[usize], scales: usize) -> Self {
        let low = low_pass(order);
        let mut steps = Vec::new();
        let mut corner = sides.to_vec();
        for _ in 0..scales {
            let axes: Vec<usize> =
                (0..corner.len()).filter(|axis| corner[*axis] >= low.len()).collect();
            if axes.is_empty() {
                break;
            }
            steps.extend(axes.iter().map(|axis| Step { axis: *axis, corner: corner.clone() }));
            for axis in axes {
                corner[axis] = corner[axis].div_ceil(2);
            }
        }
        let single = |filter: &[f64]| filter.iter().map(|value| *value as f32).collect();
        let high = single(&high_pass(low));
        Self { low: single(low), high, sides: sides.to_vec(), steps, coarse: corner }
    }

    /// The sides of the corner that has the means at the coarsest scale.
    pub(super) fn coarse(&self) -> &[usize] {
        &self.coarse
    }

    /// Pixels become coefficients. `scratch` is used and enlarged to an image at most.
    pub(super) fn forward(&self, data: &mut [f32], scratch: &mut Vec<f32>) {
        for step in &self.steps {
            self.apply(step, Direction::Forward, data, scratch);
        }
    }

    /// Coefficients become pixels.
    pub(super) fn inverse(&self, data: &mut [f32], scratch: &mut Vec<f32>) {
        for step in self.steps.iter().rev() {
            self.apply(step, Direction::Inverse, data, scratch);
        }
    }

    fn apply(&self, step: &Step, way: Direction, data: &mut [f32], scratch: &mut Vec<f32>) {
        let corner = &step.corner;
        let last = corner.len() - 1;
        let length = corner[last];
        let lines = Lines::new(&self.sides, corner);
        scratch.resize(lines.count * length, 0.0);
        let source = &*data;
        if step.axis == last {
            scratch.par_chunks_mut(length).enumerate().for_each_init(
                Phases::default,
                |phases, (line, to)| {
                    let from = &source[lines.begin(line)..][..length];
                    match way {
                        Direction::Forward => self.forward_line(from, to, phases),
                        Direction::Inverse => self.inverse_line(from, to, phases),
                    }
                },
            );
        } else {
            let taps = self.taps(corner[step.axis], way);
            scratch.par_chunks_mut(length).enumerate().for_each(|(line, to)| {
                to.fill(0.0);
                let place = lines.place(line, step.axis);
                for (index, factor) in &taps[place] {
                    let from = &source[lines.moved(line, step.axis, *index)..][..length];
                    to.iter_mut().zip(from).for_each(|(to, from)| *to += factor * from);
                }
            });
        }
        for (line, from) in scratch.chunks(length).enumerate() {
            data[lines.begin(line)..][..length].copy_from_slice(from);
        }
    }

    /// Where the filter begins for the first mean: before the first value.
    fn begin(&self) -> usize {
        self.low.len() / 2 - 1
    }

    /// What each value along an axis is the sum of: values of the same line, and their factors.
    fn taps(&self, length: usize, way: Direction) -> Vec<Vec<(usize, f32)>> {
        let (half, means) = (length / 2, length.div_ceil(2));
        let even = 2 * half;
        let mut taps = vec![Vec::with_capacity(self.low.len()); length];
        for index in 0..half {
            for (offset, (low, high)) in self.low.iter().zip(&self.high).enumerate() {
                let value = (2 * index + offset + even * self.low.len() - self.begin()) % even;
                match way {
                    Direction::Forward => {
                        taps[index].push((value, *low));
                        taps[means + index].push((value, *high));
                    }
                    Direction::Inverse => {
                        taps[value].push((index, *low));
                        taps[value].push((means + index, *high));
                    }
                }
            }
        }
        if length > even {
            match way {
                Direction::Forward => taps[half].push((even, 1.0)),
                Direction::Inverse => taps[even].push((half, 1.0)),
            }
        }
        taps
    }

    /// The same along a line in memory: values at even and odd places are lines of their own.
    fn forward_line(&self, from: &[f32], to: &mut [f32], phases: &mut Phases) {
        let half = from.len() / 2;
        let order = self.low.len() / 2;
        let (values, rest) = from.split_at(2 * half);
        let (means, details) = to.split_at_mut(half + rest.len());
        means[half..].copy_from_slice(rest);
        // Once around, and the length of the filter further.
        let begin = 2 * half * self.low.len() - self.begin();
        let at = |index: usize| values[(index + begin) % (2 * half)];
        for (parity, phase) in phases.0.iter_mut().enumerate() {
            phase.clear();
            phase.extend((0..half + order).map(|index| at(2 * index + parity)));
        }
        let [even, odd] = &phases.0;
        for (filter, to) in [(&self.low, &mut means[..half]), (&self.high, details)] {
            to.fill(0.0);
            for (offset, pair) in filter.chunks_exact(2).enumerate() {
                let both = even[offset..].iter().zip(&odd[offset..]);
                for (to, (even, odd)) in to.iter_mut().zip(both) {
                    *to += pair[0] * even + pair[1] * odd;
                }
            }
        }
    }

    fn inverse_line(&self, from: &[f32], to: &mut [f32], phases: &mut Phases) {
        let half = from.len() / 2;
        let order = self.low.len() / 2;
        let (means, details) = from.split_at(from.len() - half);
        if let (Some(rest), Some(to)) = (means.get(half), to.get_mut(2 * half)) {
            *to = *rest;
        }
        // Values of the pair `index` are of the means `index - order + 1` to `index`, once around.
        let begin = half * order - (order - 1);
        let around = |line: &[f32], phase: &mut Vec<f32>| {
            phase.clear();
            phase.extend((0..half + order).map(|index| line[(index + begin) % half]));
        };
        let [low, high] = &mut phases.0;
        around(&means[..half], low);
        around(details, high);
        let shift = 2 * half * self.low.len() - self.begin();
        for parity in 0..2 {
            phases.1.clear();
            phases.1.resize(half, 0.0);
            let [low, high] = &phases.0;
            for back in 0..order {
                let (a, b) = (self.low[2 * back + parity], self.high[2 * back + parity]);
                let both = low[order - 1 - back..].iter().zip(&high[order - 1 - back..]);
                for (to, (low, high)) in phases.1.iter_mut().zip(both) {
                    *to += a * low + b * high;
                }
            }
            for (index, value) in phases.1.iter().enumerate() {
                to[(2 * index + parity + shift) % (2 * half)] = *value;
            }
        }
    }
}

/// Memory for one line: two lines of halves, and one that they add up to.
#[derive(Default)]
struct Phases([Vec<f32>; 2], Vec<f32>);

/// The lines along the last axis of a corner of an array.
struct Lines {
    /// Of the corner, without the last axis.
    corner: Vec<usize>,
    /// Of the array.
    strides: Vec<usize>,
    count: usize,
}

impl Lines {
    fn new(sides: &[usize], corner: &[usize]) -> Self {
        let strides = (0..sides.len()).map(|axis| sides[axis + 1..].iter().product()).collect();
        let corner = corner[..corner.len() - 1].to_vec();
        let count = corner.iter().product();
        Self { corner, strides, count }
    }

    /// The lines that are between two neighbours along an axis.
    fn step(&self, axis: usize) -> usize {
        self.corner[axis + 1..].iter().product()
    }

    /// The place of a line along an axis.
    fn place(&self, line: usize, axis: usize) -> usize {
        line / self.step(axis) % self.corner[axis]
    }

    /// Where a line begins.
    fn begin(&self, line: usize) -> usize {
        (0..self.corner.len()).map(|axis| self.place(line, axis) * self.strides[axis]).sum()
    }

    /// Where the line begins that is at another place along an axis.
    fn moved(&self, line: usize, axis: usize, to: usize) -> usize {
        self.begin(line) - self.place(line, axis) * self.strides[axis] + to * self.strides[axis]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(count: usize) -> Vec<f32> {
        let mut random = fastrand::Rng::with_seed(7);
        std::iter::repeat_with(|| random.f32() - 0.5).take(count).collect()
    }

    fn norm(values: &[f32]) -> f64 {
        values.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt()
    }

    #[test]
    fn transforms_of_any_sides_are_orthogonal_and_undone() {
        for sides in [&[64][..], &[37], &[1], &[2, 3], &[17, 40], &[31, 33], &[9, 16, 21]] {
            for order in 1..=8 {
                let transform = Transform::new(order, sides, 4);
                let mut scratch = Vec::new();
                let pixels = values(sides.iter().product());
                let mut found = pixels.clone();
                transform.forward(&mut found, &mut scratch);
                let error = (norm(&found) - norm(&pixels)).abs() / norm(&pixels);
                assert!(error < 1e-5, "db{order} of {sides:?}: {error:e}");
                transform.inverse(&mut found, &mut scratch);
                let worst =
                    found.iter().zip(&pixels).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(worst < 1e-5, "db{order} of {sides:?}: {worst:e}");
            }
        }
    }

    #[test]
    fn an_axis_is_halved_while_it_is_as_long_as_the_filter() {
        let coarse = |order, sides: &[usize], scales| Transform::new(order, sides, scales).coarse;
        assert_eq!(coarse(1, &[256, 256], 4), [16, 16]);
        assert_eq!(coarse(8, &[64, 256], 4), [8, 16]);
        assert_eq!(coarse(8, &[15, 33], 4), [15, 9]);
        assert_eq!(coarse(2, &[100, 51], 0), [100, 51]);
    }

    #[test]
    fn a_polynomial_below_the_order_has_no_details_but_where_it_wraps() {
        let transform = Transform::new(3, &[64], 1);
        let mut line: Vec<f32> = (0_u8..64)
            .map(|at| 1.0 + 0.1 * f32::from(at) - 0.002 * f32::from(at).powi(2))
            .collect();
        transform.forward(&mut line, &mut Vec::new());
        assert!(line[34..62].iter().all(|detail| detail.abs() < 1e-4), "{line:?}");
        assert!(line[32..].iter().any(|detail| detail.abs() > 1e-2));
    }
}
