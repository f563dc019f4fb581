//! Blur: convolution with a known kernel.
//!
//! `y[i] = Σ_t k[t] x[i + c − t]` with the kernel's centre at `c = size / 2` on each axis, a true
//! convolution as in deepinv's `Blur` and `BlurFFT`; `valid` padding keeps the outputs for which the
//! kernel lies within the image. Small kernels are applied directly, large ones by Fourier transforms,
//! whichever is estimated to be faster.

mod axis;
mod blocks;
mod correlate;
mod diagonal;
mod direct;
mod fourier;
mod grid;
pub mod kernels;
mod lines;
mod pairs;
mod spectrum;
mod width;
mod window;

use std::fmt;
use std::sync::OnceLock;

use haloscope_nn::Stop;
use rayon::prelude::*;
use rustfft::num_complex::Complex;

use super::{LinearPhysics, Physics, Reach, WindowPhysics, slice};
use crate::array::{Array, View};
use crate::error::{Error, Result};
pub use width::gaussian_width;

use axis::Axis;
use blocks::Blocks;
use diagonal::Diagonal;
use direct::{Direct, Taps};
use grid::Grid;
use lines::Filter;

/// What the image is taken to be beyond its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Padding {
    /// It begins again at the other end.
    Circular,
    /// It is mirrored about the end samples, which are not repeated; as often as the kernel needs.
    Reflect,
    /// Its end samples are repeated.
    Replicate,
    /// It is zero.
    Constant,
    /// Nothing: only outputs that need nothing from there exist, `size − kernel + 1` on each axis.
    Valid,
}

/// How a convolution is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlurMethod {
    /// Whichever is estimated to be faster.
    Automatic,
    /// By its definition.
    Direct,
    /// By Fourier transforms of the whole image.
    Fourier,
    /// By Fourier transforms of blocks, which give parts of an image the bits of the whole; parts of a blur by
    /// [`Fourier`](Self::Fourier) transforms are computed like that as well.
    Blocks,
}

/// Below this number of samples per plane, planes run side by side rather than in pieces.
const SMALL_PLANE: usize = 1 << 16;

/// Convolution with a kernel, in two or three dimensions.
///
/// While it runs it needs, beside input and output, about one plane or volume of scratch (one per
/// thread if planes are small). With the Fourier method it keeps that, and the transform of each distinct
/// kernel: 4 bytes per sample of the grid, half of it for kernels that are symmetric about their centre.
///
/// ```
/// use haloscope::physics::{Blur, LinearPhysics, Padding, Physics, kernels};
///
/// let kernel = kernels::gaussian(&[2.0, 1.0], 30.0)?;
/// let blur = Blur::new(&[3, 64, 48], &kernel, Padding::Circular)?;
/// let image = ndarray::ArrayD::ones(vec![1, 3, 64, 48]);
/// let blurred = blur.forward(&image)?;
/// assert!(blurred.iter().all(|value| (value - 1.0).abs() < 1e-5));
/// assert!((blur.exact_squared_norm().unwrap() - 1.0).abs() < 1e-5);
/// # Ok::<(), haloscope::Error>(())
/// ```
pub struct Blur {
    shape: Vec<usize>,
    measurement: Vec<usize>,
    kernels: Kernels,
    padding: Padding,
    axes: [Axis; 3],
    engine: Engine,
    /// For parts of the image, if the engine transforms the whole.
    blocks: OnceLock<Box<Blocks>>,
    /// For circular padding, the blur as a product in the Fourier domain, if the engine is not that.
    diagonal: OnceLock<Box<Diagonal>>,
}

impl fmt::Debug for Blur {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Kernels { images, channels, size, .. } = &self.kernels;
        f.debug_struct("Blur")
            .field("shape", &self.shape)
            .field("kernel", &(images, channels, size))
            .field("padding", &self.padding)
            .field("method", &self.method())
            .finish_non_exhaustive()
    }
}

enum Engine {
    Direct(Box<Direct>, Vec<Taps>),
    /// Transforms are planned when the whole image is blurred for the first time: parts of it take blocks.
    Fourier(Box<[Grid; 3]>, OnceLock<Box<Diagonal>>),
    Blocks(Box<Blocks>),
}

/// All kernels of a blur.
struct Kernels {
    /// 1, or one for each image of a batch.
    images: usize,
    /// 1, or one for each channel.
    channels: usize,
    /// (depth, height, width).
    size: [usize; 3],
    samples: Vec<f32>,
}

impl Blur {
    /// For images of a shape (channel, height, width) or (channel, depth, height, width).
    ///
    /// The kernel is an array (image, channel, spatial…): one for each image of a batch or 1 for all,
    /// one for each channel or 1 for all. With one for each image the operator takes batches of just
    /// that size.
    pub fn new(shape: &[usize], kernel: &View, padding: Padding) -> Result<Self> {
        Self::with_method(shape, kernel, padding, BlurMethod::Automatic)
    }

    /// Like [`new`](Self::new), with a choice of how it is computed.
    pub fn with_method(
        shape: &[usize],
        kernel: &View,
        padding: Padding,
        method: BlurMethod,
    ) -> Result<Self> {
        let size = check_shape(shape)?;
        let kernels = Kernels::new(shape, kernel)?;
        let axis = |i: usize| {
            Axis::new(size[i], kernels.size[i], padding).ok_or_else(|| {
                let reason = format!(
                    "the kernel of (depth, height, width) {:?} does not fit into the image of {size:?}, which \
                     valid padding needs; other paddings take any kernel",
                    kernels.size
                );
                Error::argument("blur", reason)
            })
        };
        let axes = [axis(0)?, axis(1)?, axis(2)?];
        let mut measurement = shape.to_vec();
        let spatial = axes.iter().map(|axis| axis.output).skip(4 - shape.len());
        measurement[1..].iter_mut().zip(spatial).for_each(|(to, output)| *to = output);
        let engine = Engine::new(&kernels, axes.clone(), padding, method);
        let (shape, blocks, diagonal) = (shape.to_vec(), OnceLock::new(), OnceLock::new());
        Ok(Self { shape, measurement, kernels, padding, axes, engine, blocks, diagonal })
    }

    /// How it is computed: direct, by Fourier transforms or by blocks.
    #[must_use]
    pub fn method(&self) -> BlurMethod {
        match self.engine {
            Engine::Direct(..) => BlurMethod::Direct,
            Engine::Fourier(..) => BlurMethod::Fourier,
            Engine::Blocks(_) => BlurMethod::Blocks,
        }
    }

    /// What the image is taken to be beyond its ends.
    #[must_use]
    pub fn padding(&self) -> Padding {
        self.padding
    }

    /// The number of the kernel of a channel of an image.
    pub(super) fn kernel_number(&self, image: usize, channel: usize) -> usize {
        self.kernels.number(image, channel)
    }

    /// Refuses batches for which there are not as many kernels.
    pub(super) fn check_batch(&self, batch: usize) -> Result<()> {
        self.kernels.check_batch(batch)
    }

    /// For circular padding, the whole transform of each kernel on the image's grid, in the order
    /// (depth, height, width).
    pub(super) fn spectra(&self) -> Option<Vec<Vec<Complex<f32>>>> {
        let diagonal = self.diagonal()?;
        let sides = diagonal.fourier.grids().each_ref().map(|grid| grid.len);
        Some(diagonal.spectra.iter().map(|spectrum| spectrum.whole(sides)).collect())
    }

    fn run(&self, adjoint: bool, batch: usize, input: &[f32], output: &mut [f32]) -> Result<()> {
        match &self.engine {
            Engine::Direct(direct, taps) => {
                let whole = direct.whole(adjoint);
                let run = |kernel: usize, input: &[f32], output: &mut [f32], (): &mut ()| {
                    direct.run(whole, &taps[kernel], input, output);
                };
                self.for_each_plane(batch, input, output, || (), run)
            }
            Engine::Fourier(grids, diagonal) => {
                let diagonal = diagonal.get_or_init(|| self.on_grids(*grids.clone()));
                let filter = if adjoint { Filter::Adjoint } else { Filter::Forward };
                self.filter(diagonal, filter, batch, input, output)
            }
            Engine::Blocks(blocks) => {
                let side = |axis: &Axis| if adjoint { axis.input } else { axis.output };
                let whole = self.axes.each_ref().map(|axis| 0..side(axis));
                self.run_blocks(blocks, adjoint, batch, &whole, input, output)
            }
        }
    }

    fn filter(
        &self,
        diagonal: &Diagonal,
        filter: Filter,
        batch: usize,
        input: &[f32],
        output: &mut [f32],
    ) -> Result<()> {
        let Diagonal { fourier, spectra, .. } = diagonal;
        let scratch = || diagonal.borrow_scratch();
        self.for_each_plane(batch, input, output, scratch, |kernel, input, output, borrowed| {
            fourier.run(filter, &spectra[kernel], input, output, &mut borrowed.scratch);
        })
    }

    /// Runs on every plane or volume with the number of its kernel.
    fn for_each_plane<S: Send>(
        &self,
        batch: usize,
        input: &[f32],
        output: &mut [f32],
        scratch: impl Fn() -> S + Sync + Send,
        run: impl Fn(usize, &[f32], &mut [f32], &mut S) + Sync + Send,
    ) -> Result<()> {
        self.kernels.check_batch(batch)?;
        let planes = batch * self.shape[0];
        let (from, to) = (input.len() / planes, output.len() / planes);
        let kernel = |plane| self.kernels.number(plane / self.shape[0], plane % self.shape[0]);
        if planes > 1 && from.max(to) < SMALL_PLANE {
            let pairs = input.par_chunks(from).zip(output.par_chunks_mut(to)).enumerate();
            pairs.for_each_init(scratch, |scratch, (plane, (input, output))| {
                run(kernel(plane), input, output, scratch);
            });
        } else {
            let mut scratch = scratch();
            for (plane, (input, output)) in
                input.chunks(from).zip(output.chunks_mut(to)).enumerate()
            {
                Stop::check()?;
                run(kernel(plane), input, output, &mut scratch);
            }
        }
        Ok(())
    }

    /// A circular blur as a product in the Fourier domain.
    fn diagonal(&self) -> Option<&Diagonal> {
        if self.padding != Padding::Circular {
            return None;
        }
        if let Engine::Fourier(grids, diagonal) = &self.engine
            && grids.iter().all(Grid::is_periodic)
        {
            return Some(diagonal.get_or_init(|| self.on_grids(*grids.clone())));
        }
        let grids = || self.axes.each_ref().map(|axis| Grid::periodic(axis.input, axis.kernel));
        Some(self.diagonal.get_or_init(|| self.on_grids(grids())))
    }

    fn on_grids(&self, grids: [Grid; 3]) -> Box<Diagonal> {
        Box::new(Diagonal::new(&self.kernels, grids))
    }
}

impl Physics for Blur {
    fn name(&self) -> &'static str {
        "blur"
    }

    fn image_shape(&self) -> &[usize] {
        &self.shape
    }

    fn measurement_shape(&self) -> &[usize] {
        &self.measurement
    }

    fn apply_forward(&self, batch: usize, image: &[f32], measurement: &mut [f32]) -> Result<()> {
        self.run(false, batch, image, measurement)
    }

    fn as_linear(&self) -> Option<&dyn LinearPhysics> {
        Some(self)
    }

    fn as_window(&self) -> Option<&dyn WindowPhysics> {
        Some(self)
    }

    /// Half the kernel, whose centre is at the larger half of an even side.
    fn reach(&self) -> Reach {
        Reach::Local(self.kernels.size.into_iter().max().unwrap_or(1) / 2)
    }

    fn cost(&self) -> f64 {
        let channels = self.shape[0] as f64;
        match &self.engine {
            Engine::Direct(_, taps) => {
                let work: usize = taps.iter().map(Taps::work).sum();
                let samples: usize = self.measurement.iter().product();
                (work * samples) as f64 / taps.len() as f64
            }
            Engine::Fourier(grids, _) => channels * fourier_work(grids),
            Engine::Blocks(blocks) => {
                let (grids, number) = blocks.work();
                channels * number as f64 * fourier_work(grids)
            }
        }
    }
}

impl LinearPhysics for Blur {
    fn apply_adjoint(&self, batch: usize, measurement: &[f32], image: &mut [f32]) -> Result<()> {
        self.run(true, batch, measurement, image)
    }

    /// For circular padding, the greatest squared magnitude of the kernel's transform.
    fn exact_squared_norm(&self) -> Option<f64> {
        let greatest = self.diagonal()?.spectra.iter().map(|spectrum| spectrum.greatest);
        Some(greatest.fold(0.0, f64::max))
    }

    /// For circular padding. With a shift of 0, frequencies whose eigenvalue is below 1e-6 of the
    /// greatest count as not measured: what f32 says of them is mostly rounding.
    fn solve_normal(&self, b: &View, shift: f64) -> Option<Result<Array>> {
        let diagonal = self.diagonal()?;
        let greatest = self.exact_squared_norm()?;
        let filter = Filter::Solve { shift: shift as f32, floor: (1e-6 * greatest) as f32 };
        let solve = || {
            let batch = self.check_image(b)?;
            let mut solution = Array::zeros(b.raw_dim());
            let to = super::slice_mut(&mut solution);
            self.filter(diagonal, filter, batch, &slice(b), to)?;
            Ok(solution)
        };
        Some(solve())
    }
}

impl Engine {
    fn new(kernels: &Kernels, axes: [Axis; 3], padding: Padding, method: BlurMethod) -> Self {
        let taps = || kernels.each().map(|kernel| Taps::new(kernel, kernels.size[2])).collect();
        let grids = axes.each_ref().map(|axis| {
            Grid::new(axis.input, axis.kernel, padding).expect("a grid fits where an axis does")
        });
        let fourier = |grids| Self::Fourier(Box::new(grids), OnceLock::new());
        match method {
            BlurMethod::Direct => Self::Direct(Box::new(Direct::new(axes)), taps()),
            BlurMethod::Fourier => fourier(grids),
            BlurMethod::Blocks => Self::Blocks(Box::new(Blocks::new(kernels, axes))),
            BlurMethod::Automatic => {
                let taps: Vec<Taps> = taps();
                let outputs: usize = axes.iter().map(|axis| axis.output).product();
                let work: usize = taps.iter().map(Taps::work).sum();
                if (work * outputs) as f64 / taps.len() as f64 <= fourier_work(&grids) {
                    Self::Direct(Box::new(Direct::new(axes)), taps)
                } else {
                    fourier(grids)
                }
            }
        }
    }
}

/// The work of a Fourier convolution of one plane or volume, in multiplications of the direct method
/// that take as long; after `bench_blur rule`.
fn fourier_work(grids: &[Grid; 3]) -> f64 {
    let samples: usize = grids.iter().map(|grid| grid.len).product();
    samples as f64 * (10.0 + 5.0 * (samples as f64).log2())
}

impl Kernels {
    fn new(shape: &[usize], kernel: &View) -> Result<Self> {
        let found = kernel.shape();
        let channels = shape[0];
        let fits = found.len() == shape.len() + 1 && (found[1] == 1 || found[1] == channels);
        if !fits || kernel.is_empty() {
            let expected = format!(
                "(image, channel, spatial…) is expected for images of {shape:?}: {} axes, none of them empty, \
                 with 1 channel or all {channels}",
                shape.len() + 1
            );
            let what = "the kernel of blur".to_string();
            return Err(Error::Shape { what, expected, found: found.to_vec() });
        }
        if let Some(value) = kernel.iter().find(|value| !value.is_finite()) {
            let reason = format!("the kernel holds {value}; finite numbers are expected");
            return Err(Error::argument("blur", reason));
        }
        let mut size = [1; 3];
        size[5 - found.len()..].copy_from_slice(&found[2..]);
        let samples = slice(kernel).into_owned();
        Ok(Self { images: found[0], channels: found[1], size, samples })
    }

    fn each(&self) -> impl Iterator<Item = &[f32]> {
        self.samples.chunks(self.size.iter().product())
    }

    fn number(&self, image: usize, channel: usize) -> usize {
        let image = if self.images == 1 { 0 } else { image };
        let channel = if self.channels == 1 { 0 } else { channel };
        image * self.channels + channel
    }

    fn check_batch(&self, batch: usize) -> Result<()> {
        let kernels = self.images;
        if kernels == 1 || kernels == batch {
            return Ok(());
        }
        let reason = format!(
            "there are kernels for {kernels} images and {batch} images; a batch of {kernels} or one kernel for \
             all is expected"
        );
        Err(Error::argument("blur", reason))
    }
}

/// (depth, height, width) of a shape (channel, spatial…), the depth 1 in two dimensions.
fn check_shape(shape: &[usize]) -> Result<[usize; 3]> {
    match *shape {
        [channels, height, width] if channels * height * width > 0 => Ok([1, height, width]),
        [channels, depth, height, width] if channels * depth * height * width > 0 => {
            Ok([depth, height, width])
        }
        _ => Err(Error::Shape {
            what: "the image of blur".to_string(),
            expected:
                "(channel, height, width) or (channel, depth, height, width) is expected, none of \
                       them 0"
                    .to_string(),
            found: shape.to_vec(),
        }),
    }
}

#[cfg(test)]
mod tests;
