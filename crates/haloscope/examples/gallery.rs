//! What each operator does to an image, as pictures: those of docs/gallery.md.
//!
//!     cargo run --release -p haloscope --features hdf5 --example gallery -- docs/gallery
//!
//! With the environment variable `HALOSCOPE_DATA`, also reconstructions of a real scan.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use haloscope::denoise::Wavelets;
use haloscope::distribute::distribute;
use haloscope::fidelity::{Ball, Fidelities};
use haloscope::io::exchange::Scan;
use haloscope::least_squares::{LeastSquaresOptions, pseudo_inverse};
use haloscope::noise::{Noise, NoiseSource};
use haloscope::phantom::{self, SheppLogan, Table, landscape};
use haloscope::physics::fourier::{Coverage, Spiral, Trajectory, Visibilities, birdcage, radial};
use haloscope::physics::tomography::{
    ConeBeam, FanBeam, ParallelBeam, Tomography2d, Tomography3d, Window, evenly_spaced,
};
use haloscope::physics::{
    Blur, Clipping, Compose, Decolorize, Downsampling, DownsamplingFilter, Inpainting,
    LinearPhysics, Padding, Physics, Saturation, Stack, kernels,
};
use haloscope::solve::{
    Problem, ProxPrimalDual, Start, State, Stopping, WaveletProxPrimalDual, solve,
};
use haloscope::{Array, Measurements, Result, io};
use haloscope_comm::Context;
use ndarray::{Axis, IxDyn};

const SIDE: usize = 192;

fn main() -> Result<()> {
    let folder = std::env::args().nth(1).map_or_else(|| PathBuf::from("gallery"), PathBuf::from);
    std::fs::create_dir_all(&folder).map_err(|error| haloscope::Error::File {
        file: folder.display().to_string(),
        reason: error.to_string(),
    })?;
    pictures(&folder)?;
    tomography(&folder)?;
    frequencies(&folder)?;
    scan(&folder)
}

fn pictures(folder: &Path) -> Result<()> {
    let image = landscape(SIDE, SIDE)?;
    let shape = [3, SIDE, SIDE];
    save(folder, "image", &image)?;
    let blur = |kernel: &Array| Blur::new(&shape, kernel, Padding::Reflect);
    save(folder, "blur-gaussian", &blur(&kernels::gaussian(&[4.0, 1.0], 30.0)?)?.forward(&image)?)?;
    save(folder, "blur-motion", &blur(&kernels::random_motion(25, 3)?)?.forward(&image)?)?;
    let small = Downsampling::new(&shape, 4, &DownsamplingFilter::Bicubic, Padding::Reflect)?;
    save(folder, "downsampling", &small.forward(&image)?)?;
    let mut random = fastrand::Rng::with_seed(1);
    let mask =
        Array::from_shape_simple_fn(IxDyn(&[1, SIDE, SIDE]), || f32::from(random.f32() > 0.6));
    let mask = mask.broadcast(IxDyn(&shape)).expect("three channels").to_owned();
    save(folder, "inpainting", &Inpainting::new(&shape, &mask)?.forward(&image)?)?;
    save(folder, "decolorize", &Decolorize::new(&shape)?.forward(&image)?)?;
    let bright = Saturation::new(&shape, 0.6, Clipping::Smooth)?;
    let soft =
        Compose::new(Arc::new(bright), Arc::new(blur(&kernels::gaussian(&[1.0, 1.0], 0.0)?)?))?;
    save(folder, "saturation-after-blur", &soft.forward(&image)?)?;
    for (name, noise) in [
        ("noise-gaussian", Noise::gaussian(0.1)?),
        ("noise-poisson", Noise::poisson(0.05)?),
        ("noise-uniform", Noise::uniform(0.2)?),
    ] {
        let mut noisy = image.clone();
        noise.add(&mut noisy, NoiseSource { seed: 1, operator: 0 })?;
        save(folder, name, &noisy)?;
    }
    Ok(())
}

fn tomography(folder: &Path) -> Result<()> {
    let head = SheppLogan::new(Table::Modified).with_points(3).draw(&[SIDE, SIDE])?;
    save(folder, "shepp-logan", &head)?;
    let parallel = ParallelBeam::new(evenly_spaced(180, std::f64::consts::PI), SIDE * 3 / 2);
    let projector = Tomography2d::new(&[1, SIDE, SIDE], parallel)?;
    let sinogram = projector.forward(&head)?;
    save(folder, "tomography-parallel", &stretched(&sinogram))?;
    save(
        folder,
        "tomography-parallel-fbp",
        &projector.filtered_back_projection(&sinogram, Window::Ramp)?,
    )?;
    let side = SIDE as f64;
    let fan =
        FanBeam::new(evenly_spaced(360, std::f64::consts::TAU), SIDE * 2, 3.0 * side, 2.0 * side);
    let projector = Tomography2d::new(&[1, SIDE, SIDE], fan)?;
    let sinogram = projector.forward(&head)?;
    save(folder, "tomography-fan", &stretched(&sinogram))?;
    save(
        folder,
        "tomography-fan-fbp",
        &projector.filtered_back_projection(&sinogram, Window::Hann)?,
    )?;

    let (n, length) = (96, 96.0);
    let volume = SheppLogan::new(Table::Modified).draw(&[n, n, n])?;
    let cone =
        ConeBeam::new(evenly_spaced(180, std::f64::consts::TAU), [144, 144], 3.0 * length, length);
    let projector = Tomography3d::new(&[1, n, n, n], cone)?;
    let projections = projector.forward(&volume)?;
    save(folder, "tomography-cone", &stretched(&slice_of(&projections, 20)))?;
    let again = projector.filtered_back_projection(&projections, Window::Ramp)?;
    save(folder, "tomography-cone-fdk", &slice_of(&again, n / 2))
}

/// Two instruments that measure frequencies: an MRI scanner along spokes, and a radio interferometer.
fn frequencies(folder: &Path) -> Result<()> {
    let head = SheppLogan::new(Table::Modified).with_points(3).draw(&[SIDE, SIDE])?;
    let points = radial(48, 2 * SIDE, 0.0)?;
    let density = Trajectory::density(&[SIDE, SIDE], &points)?;
    let coils: Vec<Arc<dyn Physics>> = (0..4)
        .map(|coil| {
            let map = birdcage(&[SIDE, SIDE], 4, coil)?;
            let scan =
                Trajectory::new(&[1, SIDE, SIDE], Some(&map), &points, Some(&density), 1e-5)?;
            Ok(Arc::new(scan) as Arc<dyn Physics>)
        })
        .collect::<Result<_>>()?;
    let coils = Stack::new(coils)?;
    let measured = coils.forward(&head)?;
    save(folder, "mri-radial-adjoint", &stretched(&coils.adjoint(&measured)?))?;
    let options = LeastSquaresOptions {
        max_iterations: 15,
        tolerance: 0.0,
        ..LeastSquaresOptions::default()
    };
    save(folder, "mri-radial-cg", &pseudo_inverse(&coils, &measured, &options)?.image)?;

    // Arms that wind half as often as would leave no gaps.
    let covering = Spiral::covering(16, 1.0, &[SIDE, SIDE]);
    let points = Spiral { turns: covering.turns / 2.0, ..covering }.points()?;
    let density = Trajectory::density(&[SIDE, SIDE], &points)?;
    let spiral = Trajectory::new(&[1, SIDE, SIDE], None, &points, Some(&density), 1e-5)?;
    save(folder, "mri-spiral-adjoint", &stretched(&spiral.normal(&head)?))?;

    let sky = phantom::sky(SIDE, SIDE)?;
    save(folder, "sky", &sky)?;
    let cell = 5e-6;
    let coverage =
        Coverage { antennas: 24, hours: 8.0, times: 40, declination: -45.0, longest: 0.45 / cell };
    let telescope = Visibilities::new(&[1, SIDE, SIDE], &coverage.uvw(), cell, 1e-5)?;
    save(
        folder,
        "visibilities-point-spread",
        &telescope.point_spread()?.mapv(|value| value.abs().sqrt()),
    )?;
    let mut measured = telescope.forward(&sky)?;
    // Noise 30 dB below the visibilities.
    let size = measured.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
    let sigma = size / (measured.len() as f64).sqrt() * 10_f64.powf(-30.0 / 20.0);
    Noise::gaussian(sigma)?.add(&mut measured, NoiseSource { seed: 1, operator: 0 })?;
    save(folder, "visibilities-dirty", &stretched(&telescope.adjoint(&measured)?))?;
    let radius = sigma * (measured.len() as f64).sqrt();
    save(folder, "visibilities-sara", &sparse(telescope, measured, radius)?)
}

/// The image of the least average sparsity whose visibilities are within a distance of the data.
fn sparse(telescope: Visibilities, measured: Array, radius: f64) -> Result<Array> {
    let ctx = Context::solo();
    let physics = distribute(vec![Arc::new(telescope) as Arc<dyn Physics>], &ctx)?;
    let fidelity = distribute(Fidelities::from(Ball::new(radius)?), &ctx)?;
    let problem = Problem::new(physics, Measurements::new(vec![measured]), fidelity)?;
    let squared_norm = problem.squared_norm()?;
    let step = 1.0 / squared_norm.sqrt();
    let method =
        ProxPrimalDual { squared_norm, weight: 1.0, step, range: Some((0.0, f32::INFINITY)) };
    let method = WaveletProxPrimalDual { method, wavelets: Wavelets::sara() };
    let start = State::new(problem.start(&Start::Zeros)?);
    let stopping = Stopping { iterations: 300, ..Stopping::default() };
    solve(&problem, &method, start, &stopping, None)?.state.image.into_whole()
}

/// The tooth: a real parallel-beam scan, by filtered back-projection and by conjugate gradients.
fn scan(folder: &Path) -> Result<()> {
    let Some(data) = std::env::var_os("HALOSCOPE_DATA").map(PathBuf::from) else {
        println!("skipped: the tooth, which needs HALOSCOPE_DATA");
        return Ok(());
    };
    let scan = Scan::read(data.join("ct/tomopy_tooth.h5"), &io::Limits::default())?;
    // (1, rows, angles, bins): the first row of the detector is one slice.
    let rows = scan.line_integrals()?;
    println!("the tooth: {:?}, {} angles", rows.shape(), scan.angles.len());
    let sinogram = tooth_slice(&rows, scan.angles.len());
    let bins = sinogram.shape()[3];
    // The rotation centre is at bin 296.
    let mut beam = ParallelBeam::new(scan.angles.clone(), bins);
    beam.offset = (bins as f64 - 1.0) / 2.0 - 296.0;
    let projector = Tomography2d::new(&[1, bins, bins], beam)?;
    save(
        folder,
        "tooth-fbp",
        &contrast(&projector.filtered_back_projection(&sinogram, Window::Hann)?),
    )?;
    let options = LeastSquaresOptions {
        max_iterations: 15,
        tolerance: 0.0,
        ..LeastSquaresOptions::default()
    };
    let solution = pseudo_inverse(&projector, &sinogram, &options)?;
    save(folder, "tooth-cg", &contrast(&solution.image))
}

/// The sinogram of the first row of a detector, whichever axis the rows are on.
fn tooth_slice(rows: &Array, angles: usize) -> Array {
    let axis = rows.shape().iter().position(|size| *size == 2).unwrap_or(1);
    let slice = rows.index_axis(Axis(axis), 0).to_owned();
    let bins = slice.len() / angles;
    slice.into_shape_with_order(IxDyn(&[1, 1, angles, bins])).expect("angles by bins")
}

/// The middle 99 % of the values from black to white.
fn contrast(image: &Array) -> Array {
    let mut values: Vec<f32> = image.iter().copied().collect();
    values.sort_by(f32::total_cmp);
    let at = |share: f64| values[((values.len() - 1) as f64 * share) as usize];
    let (low, high) = (at(0.005), at(0.995));
    image.mapv(|value| (value - low) / (high - low).max(f32::MIN_POSITIVE))
}

/// One slice of a volume, or one view of a scan.
fn slice_of(volume: &Array, index: usize) -> Array {
    volume.index_axis(Axis(2), index).to_owned()
}

/// All values from black to white.
fn stretched(image: &Array) -> Array {
    let high = image.iter().copied().fold(f32::MIN_POSITIVE, f32::max);
    image / high
}

fn save(folder: &Path, name: &str, image: &Array) -> Result<()> {
    io::write(folder.join(format!("{name}.png")), image, &io::WriteOptions::default())
}
