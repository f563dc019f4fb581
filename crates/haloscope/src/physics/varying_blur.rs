//! A blur whose kernel changes across the image: a sum of blurs, each of the image times a window of its own.
//!
//! Lenses are sharper in the middle than in the corners, and the air above a telescope differs from one part of the field to the
//! next. `A x = Σ_k h_k * (w_k x)`, as in deepinv's `SpaceVaryingBlur`, with kernels that are known at the nodes of a grid and
//! windows that go linearly from one node to the next.

use std::ops::Range;

use super::{Blur, BlurMethod, LinearPhysics, Padding, Physics, Reach, WindowPhysics, region};
use crate::array::Array;
use crate::error::{Error, Result};

/// Kernels on a grid, and between them what is linear.
///
/// Nodes are in the middle of the cells of the grid. Windows sum to 1 everywhere, and beyond the outermost nodes those go on. The
/// work is that of so many blurs of the whole image as there are kernels.
///
/// ```
/// use haloscope::physics::{Padding, Physics, VaryingBlur, kernels};
///
/// // Sharp on the left, and blurred on the right.
/// let kernels = [kernels::gaussian(&[0.5, 0.5], 0.0)?, kernels::gaussian(&[0.5, 2.0], 0.0)?];
/// let blur = VaryingBlur::new(&[3, 32, 64], &[1, 2], &kernels, Padding::Reflect)?;
/// let flat = ndarray::ArrayD::ones(vec![1, 3, 32, 64]);
/// // Where windows bend, a flat image is not quite flat any more.
/// assert!(blur.forward(&flat)?.iter().all(|value| (value - 1.0).abs() < 0.05));
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Debug)]
pub struct VaryingBlur {
    /// One for each node, the last axis of the grid fastest; all of them reach equally far.
    blurs: Vec<Blur>,
    grid: Vec<usize>,
    /// For each axis and node along it, the window along that axis.
    windows: Vec<Vec<Vec<f32>>>,
}

impl VaryingBlur {
    /// For images of a shape (channel, spatial…), with a kernel (1, channel, spatial…) for each node of a grid along the spatial axes,
    /// the last axis fastest.
    pub fn new(
        shape: &[usize],
        grid: &[usize],
        kernels: &[Array],
        padding: Padding,
    ) -> Result<Self> {
        let refuse = |reason: String| Err(Error::argument("varying blur", reason));
        let sides = shape.get(1..).unwrap_or_default();
        if grid.len() != sides.len() || grid.iter().zip(sides).any(|(n, side)| *n == 0 || n > side)
        {
            return refuse(format!(
                "a grid of {grid:?} for an image of {sides:?}; for each side, a number of kernels from 1 to its pixels is expected"
            ));
        }
        let nodes = grid.iter().product::<usize>();
        if kernels.len() != nodes {
            let found = kernels.len();
            return refuse(format!("{found} kernels for a grid of {grid:?}; {nodes} are expected"));
        }
        if let Some(kernel) = kernels.iter().find(|kernel| kernel.ndim() != shape.len() + 1) {
            return refuse(format!(
                "a kernel of {:?}; (1, channel, spatial…) with {} axes behind the channel is expected",
                kernel.shape(),
                sides.len()
            ));
        }
        let largest: Vec<usize> = (0..=shape.len())
            .map(|axis| kernels.iter().map(|kernel| kernel.shape()[axis]).max().unwrap_or(1))
            .collect();
        let kernels: Vec<Array> = kernels.iter().map(|kernel| widened(kernel, &largest)).collect();
        let make = |method: BlurMethod| -> Result<Vec<Blur>> {
            let blur = |kernel: &Array| Blur::with_method(shape, kernel, padding, method);
            kernels.iter().map(blur).collect()
        };
        let mut blurs = make(BlurMethod::Automatic)?;
        if blurs.iter().any(|blur| blur.method() != BlurMethod::Direct) {
            // Blurs by other methods read other windows. Blocks have small transforms, of which each kernel keeps its own.
            blurs = make(BlurMethod::Blocks)?;
        }
        let windows = grid.iter().zip(sides).map(|(nodes, side)| tents(*nodes, *side)).collect();
        Ok(Self { blurs, grid: grid.to_vec(), windows })
    }

    /// The values of a window of the image times the window of a kernel.
    fn weigh(&self, kernel: usize, window: &[Range<isize>], values: &mut [f32]) {
        let mut node = vec![0; self.grid.len()];
        let mut rest = kernel;
        for axis in (0..self.grid.len()).rev() {
            node[axis] = rest % self.grid[axis];
            rest /= self.grid[axis];
        }
        let along: Vec<Vec<f32>> = (window.iter().enumerate())
            .map(|(axis, range)| {
                let tent = &self.windows[axis][node[axis]];
                let side = tent.len() as isize;
                range.clone().map(|at| tent[at.rem_euclid(side) as usize]).collect()
            })
            .collect();
        let Some((last, others)) = along.split_last() else { return };
        let lines = others.iter().map(Vec::len).product::<usize>();
        for (index, line) in values.chunks_mut(last.len().max(1)).enumerate() {
            let (mut rest, mut weight) = (index % lines.max(1), 1.0);
            for tent in others.iter().rev() {
                weight *= tent[rest % tent.len()];
                rest /= tent.len();
            }
            line.iter_mut().zip(last).for_each(|(value, along)| *value *= weight * along);
        }
    }

    /// The sum of what each kernel makes.
    fn sum(
        &self,
        out: &mut [f32],
        mut make: impl FnMut(usize, &Blur, &mut [f32]) -> Result<()>,
    ) -> Result<()> {
        let mut part = vec![0.0; out.len()];
        out.fill(0.0);
        for (kernel, blur) in self.blurs.iter().enumerate() {
            make(kernel, blur, &mut part)?;
            out.iter_mut().zip(&part).for_each(|(sum, term)| *sum += term);
        }
        Ok(())
    }

    fn sides(&self) -> &[usize] {
        &self.blurs[0].image_shape()[1..]
    }
}

/// The windows of so many nodes along a side: each is 1 at its own node, and falls to 0 at the next ones.
fn tents(nodes: usize, side: usize) -> Vec<Vec<f32>> {
    let cell = side as f64 / nodes as f64;
    let tent = |node: usize| {
        (0..side)
            .map(|pixel| {
                // Where the pixel is between nodes; the outermost ones go on to the ends.
                let place = ((pixel as f64 + 0.5) / cell - 0.5).clamp(0.0, nodes as f64 - 1.0);
                (1.0 - (place - node as f64).abs()).max(0.0) as f32
            })
            .collect()
    };
    (0..nodes).map(tent).collect()
}

/// A kernel with zeros around it, its centre (at half of each side) where that of the larger one is.
fn widened(kernel: &Array, size: &[usize]) -> Array {
    let mut whole = kernel.shape().to_vec();
    whole[2..].copy_from_slice(&size[2..]);
    let mut wide = Array::zeros(whole);
    let shift = |axis: usize| if axis < 2 { 0 } else { size[axis] / 2 - kernel.shape()[axis] / 2 };
    for (at, value) in kernel.indexed_iter() {
        let place: Vec<usize> = (0..size.len()).map(|axis| at[axis] + shift(axis)).collect();
        wide[&place[..]] = *value;
    }
    wide
}

impl Physics for VaryingBlur {
    fn name(&self) -> &'static str {
        "varying blur"
    }

    fn image_shape(&self) -> &[usize] {
        self.blurs[0].image_shape()
    }

    fn measurement_shape(&self) -> &[usize] {
        self.blurs[0].measurement_shape()
    }

    fn apply_forward(&self, batch: usize, image: &[f32], measurement: &mut [f32]) -> Result<()> {
        let whole = region::whole(self.sides());
        let mut weighed = vec![0.0; image.len()];
        self.sum(measurement, |kernel, blur, part| {
            weighed.copy_from_slice(image);
            self.weigh(kernel, &whole, &mut weighed);
            blur.apply_forward(batch, &weighed, part)
        })
    }

    fn as_linear(&self) -> Option<&dyn LinearPhysics> {
        Some(self)
    }

    fn as_window(&self) -> Option<&dyn WindowPhysics> {
        Some(self)
    }

    fn cost(&self) -> f64 {
        self.blurs.iter().map(Physics::cost).sum()
    }

    fn reach(&self) -> Reach {
        self.blurs[0].reach()
    }
}

impl LinearPhysics for VaryingBlur {
    fn apply_adjoint(&self, batch: usize, measurement: &[f32], image: &mut [f32]) -> Result<()> {
        let whole = region::whole(self.sides());
        self.sum(image, |kernel, blur, part| {
            blur.apply_adjoint(batch, measurement, part)?;
            self.weigh(kernel, &whole, part);
            Ok(())
        })
    }
}

/// All kernels have one size and all blurs one method, so that all read the same.
impl WindowPhysics for VaryingBlur {
    fn measurement_region(&self, image: &[Range<usize>]) -> Vec<Range<usize>> {
        self.blurs[0].measurement_region(image)
    }

    fn image_reads(&self, measurement: &[Range<usize>]) -> Vec<Range<isize>> {
        self.blurs[0].image_reads(measurement)
    }

    fn measurement_reads(&self, image: &[Range<usize>]) -> Vec<Range<isize>> {
        self.blurs[0].measurement_reads(image)
    }

    fn apply_forward_window(
        &self,
        batch: usize,
        measurement: &[Range<usize>],
        window: &[f32],
        out: &mut [f32],
    ) -> Result<()> {
        let place = self.image_reads(measurement);
        let mut weighed = vec![0.0; window.len()];
        self.sum(out, |kernel, blur, part| {
            weighed.copy_from_slice(window);
            self.weigh(kernel, &place, &mut weighed);
            blur.apply_forward_window(batch, measurement, &weighed, part)
        })
    }

    fn apply_adjoint_window(
        &self,
        batch: usize,
        image: &[Range<usize>],
        window: &[f32],
        out: &mut [f32],
    ) -> Result<()> {
        let place = region::window(image);
        self.sum(out, |kernel, blur, part| {
            blur.apply_adjoint_window(batch, image, window, part)?;
            self.weigh(kernel, &place, part);
            Ok(())
        })
    }

    fn window_bits_agree(&self) -> bool {
        self.blurs.iter().all(WindowPhysics::window_bits_agree)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::physics::kernels;

    #[test]
    fn windows_sum_to_one_and_end_flat() {
        for (nodes, side) in [(1, 5), (2, 8), (3, 10), (4, 4)] {
            let tents = tents(nodes, side);
            for pixel in 0..side {
                let sum: f32 = tents.iter().map(|tent| tent[pixel]).sum();
                assert!((sum - 1.0).abs() < 1e-6, "{nodes} {side} {pixel}: {sum}");
            }
            assert_eq!((tents[0][0], tents[nodes - 1][side - 1]), (1.0, 1.0));
        }
    }

    #[test]
    fn a_point_at_a_node_becomes_its_kernel() -> Result<()> {
        let kernels: Vec<Array> = (0..4)
            .map(|k| kernels::gaussian(&[0.4 + 0.3 * f64::from(k), 0.6], 10.0 * f64::from(k)))
            .collect::<Result<_>>()?;
        let blur = VaryingBlur::new(&[1, 34, 34], &[2, 2], &kernels, Padding::Constant)?;
        for (node, (row, column)) in [(8, 8), (8, 25), (25, 8), (25, 25)].into_iter().enumerate() {
            let mut point = Array::zeros(vec![1, 1, 34, 34]);
            point[[0, 0, row, column]] = 1.0;
            let alone = Blur::new(&[1, 34, 34], &kernels[node], Padding::Constant)?;
            let error = (blur.forward(&point)? - alone.forward(&point)?)
                .iter()
                .fold(0.0_f32, |most, rest| most.max(rest.abs()));
            // Nodes are at 8 and 25, in the middle of cells of 17.
            assert!(error < 1e-6, "{node}: {error}");
        }
        Ok(())
    }

    #[test]
    fn grids_that_do_not_fit_are_refused() {
        let one = || vec![Array::ones(vec![1, 1, 3, 3]); 4];
        let refusal = |grid: &[usize], kernels: &[Array]| {
            let blur = VaryingBlur::new(&[1, 9, 9], grid, kernels, Padding::Constant);
            blur.expect_err("refused").to_string()
        };
        assert!(refusal(&[2, 3], &one()).contains("4 kernels for a grid of [2, 3]; 6"));
        assert!(refusal(&[4], &one()).contains("for each side"));
        assert!(refusal(&[0, 4], &[]).contains("for each side"));
        let mut mixed = one();
        mixed[2] = Array::ones(vec![1, 1, 3]);
        assert!(refusal(&[2, 2], &mixed).contains("2 axes behind the channel"));
    }
}
