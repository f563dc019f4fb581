//! Every linear operator passes the dot test, on random shapes and parameters:
//! |⟨Ax, y⟩ − ⟨x, Aᵀy⟩| ≤ 1e-6 ‖Ax‖ ‖y‖, where an operator that hardly sees the image counts as if
//! ‖Ax‖ were a hundredth of ‖x‖: its few weights are rounded like larger ones.
//!
//! A new operator is one line in the list at the end.

use std::sync::Arc;

use haloscope::Array;
use haloscope::array::{dot, norm};
use haloscope::physics::fourier::{Cartesian, Trajectory, Visibilities};
use haloscope::physics::tomography::{
    ConeBeam, FanBeam, ParallelBeam, ParallelBeam3d, Rays, Scan3d, Tomography2d, Tomography3d,
    View3d,
};
use haloscope::physics::{
    Affine, Blur, BlurMethod, Compose, Decolorize, Downsampling, DownsamplingFilter, Identity,
    Inpainting, LinearPhysics, Matrix, Padding, Physics, Scaled, VaryingBlur,
};
use ndarray::ArrayD;
use proptest::prelude::*;

/// A source of random shapes and parameters, which a failing case can be made from again.
type Random = fastrand::Rng;

/// Fails unless the operator and its adjoint agree on random arrays.
fn assert_adjoint(operator: &dyn LinearPhysics, random: &mut Random) {
    // Many small images: one measurement of a few samples may come out near 0, where rounding is all
    // that is left of it.
    let samples = |shape: &[usize]| shape.iter().product::<usize>();
    let few = samples(operator.image_shape()).min(samples(operator.measurement_shape()));
    let batch = random.usize(1..3) + 256 / few;
    let x = array(batch, operator.image_shape(), random);
    let y = array(batch, operator.measurement_shape(), random);
    let ax = operator.forward(&x).expect("forward");
    let aty = operator.adjoint(&y).expect("adjoint");
    let (left, right) = (inner(&ax, &y), inner(&x, &aty));
    let scale = norm(slice(&ax)).max(0.01 * norm(slice(&x))) * norm(slice(&y));
    assert!(
        (left - right).abs() <= 1e-6 * scale,
        "{operator:?}: ⟨Ax, y⟩ = {left}, ⟨x, Aᵀy⟩ = {right}, scale {scale}"
    );
}

fn array(batch: usize, shape: &[usize], random: &mut Random) -> Array {
    let mut full = vec![batch];
    full.extend_from_slice(shape);
    ArrayD::from_shape_fn(full, |_| random.f32() * 2.0 - 1.0)
}

fn inner(a: &Array, b: &Array) -> f64 {
    dot(slice(a), slice(b))
}

fn slice(a: &Array) -> &[f32] {
    a.as_slice().expect("operators return arrays in standard layout")
}

/// 1 or 3 channels and two or three sides.
fn image_shape(random: &mut Random) -> Vec<usize> {
    let sides = random.usize(2..4);
    let mut shape = vec![if random.bool() { 1 } else { 3 }];
    shape.extend((0..sides).map(|_| random.usize(1..if sides == 2 { 40 } else { 14 })));
    shape
}

/// 1 or 3 channels and some sides.
fn channels_and_sides<const N: usize>(most: usize, random: &mut Random) -> Vec<usize> {
    let mut shape = vec![if random.bool() { 1 } else { 3 }];
    shape.extend((0..N).map(|_| random.usize(1..most)));
    shape
}

fn between(low: f64, high: f64, random: &mut Random) -> f64 {
    low + (high - low) * random.f64()
}

/// Angles anywhere, some of them along an axis or a diagonal.
fn angles(random: &mut Random) -> Vec<f64> {
    let eighth = std::f64::consts::FRAC_PI_4;
    let angle = |random: &mut Random| {
        if random.bool() {
            between(-7.0, 7.0, random)
        } else {
            eighth * f64::from(random.i32(-9..9))
        }
    };
    (0..random.usize(1..7)).map(|_| angle(random)).collect()
}

fn parallel_beam(random: &mut Random) -> Tomography2d {
    let scan = ParallelBeam {
        angles: angles(random),
        bins: random.usize(1..70),
        spacing: between(0.3, 3.0, random),
        offset: between(-9.0, 9.0, random),
    };
    let pixel = [between(0.5, 2.0, random), between(0.5, 2.0, random)];
    Tomography2d::with_pixels(&channels_and_sides::<2>(50, random), pixel, scan).expect("a scan")
}

fn fan_beam(random: &mut Random) -> Tomography2d {
    let scan = FanBeam {
        angles: angles(random),
        bins: random.usize(1..70),
        spacing: between(0.3, 3.0, random),
        offset: between(-9.0, 9.0, random),
        // The source may be within the image.
        source_distance: between(10.0, 90.0, random),
        detector_distance: between(0.0, 40.0, random),
    };
    let pixel = [between(0.5, 2.0, random), between(0.5, 2.0, random)];
    Tomography2d::with_pixels(&channels_and_sides::<2>(50, random), pixel, scan).expect("a scan")
}

fn voxel(random: &mut Random) -> [f64; 3] {
    std::array::from_fn(|_| if random.bool() { 1.0 } else { between(0.5, 2.0, random) })
}

fn parallel_beam_3d(random: &mut Random) -> Tomography3d {
    let scan = ParallelBeam3d {
        angles: angles(random),
        detector: [random.usize(1..20), random.usize(1..20)],
        spacing: std::array::from_fn(
            |_| if random.bool() { 1.0 } else { between(0.4, 2.5, random) },
        ),
        offset: std::array::from_fn(
            |_| if random.bool() { 0.0 } else { between(-4.0, 4.0, random) },
        ),
    };
    let shape = channels_and_sides::<3>(20, random);
    Tomography3d::with_voxels(&shape, voxel(random), scan).expect("a scan")
}

fn cone_beam(random: &mut Random) -> ConeBeam {
    ConeBeam {
        angles: angles(random),
        detector: [random.usize(1..20), random.usize(1..20)],
        spacing: std::array::from_fn(|_| between(0.4, 2.5, random)),
        offset: std::array::from_fn(|_| between(-4.0, 4.0, random)),
        source_distance: between(6.0, 60.0, random),
        detector_distance: between(0.0, 30.0, random),
    }
}

/// A circular cone beam whose every view is moved and tilted.
fn cone_vectors(random: &mut Random) -> Tomography3d {
    let scan = Scan3d::from(cone_beam(random));
    let mut moved = |vector: [f64; 3], by: f64| vector.map(|x| x + between(-by, by, random));
    let views = (scan.views().iter())
        .map(|view| View3d {
            rays: match view.rays {
                Rays::Along(direction) | Rays::From(direction) => Rays::From(moved(direction, 3.0)),
            },
            centre: moved(view.centre, 3.0),
            u: moved(view.u, 0.2),
            v: moved(view.v, 0.2),
        })
        .collect();
    let shape = channels_and_sides::<3>(20, random);
    let scan = Scan3d::Views { views, detector: scan.detector() };
    Tomography3d::with_voxels(&shape, voxel(random), scan).expect("a scan")
}

/// A blur with a kernel of up to 12 samples a side, often larger than the image, by either method.
fn random_blur(padding: Padding, random: &mut Random) -> Box<dyn LinearPhysics> {
    let shape = image_shape(random);
    let (kernel, method) = (random_kernel(&shape, padding, random), random_method(random));
    Box::new(Blur::with_method(&shape, &kernel, padding, method).expect("a blur"))
}

/// One for all channels or one for each.
fn random_kernel(shape: &[usize], padding: Padding, random: &mut Random) -> Array {
    // A measurement of one or two samples may come out near 0, where rounding is all that is left of it.
    let longest = |side: usize| if padding == Padding::Valid { (side / 2 + 1).min(12) } else { 12 };
    let mut size = vec![if random.bool() { 1 } else { shape[0] }];
    size.extend(shape[1..].iter().map(|&side| random.usize(1..=longest(side))));
    array(1, &size, random)
}

fn random_method(random: &mut Random) -> BlurMethod {
    [BlurMethod::Direct, BlurMethod::Fourier, BlurMethod::Blocks][random.usize(0..3)]
}

fn random_downsampling(padding: Padding, random: &mut Random) -> Box<dyn LinearPhysics> {
    let mut shape = image_shape(random);
    shape[1..].iter_mut().for_each(|side| *side += 8);
    let factor = random.usize(1..5);
    let filter = match random.usize(0..5) {
        0 => DownsamplingFilter::None,
        4 => DownsamplingFilter::Box,
        1 if padding != Padding::Valid => DownsamplingFilter::Gaussian,
        2 if padding != Padding::Valid && shape.len() == 3 => DownsamplingFilter::Bicubic,
        _ => DownsamplingFilter::Kernel(random_kernel(&shape, padding, random)),
    };
    let phase: Vec<usize> = shape[1..].iter().map(|_| random.usize(0..factor)).collect();
    let make = || Downsampling::new(&shape, factor, &filter, padding).expect("downsampling");
    // A phase beyond a short side is refused.
    Box::new(make().with_phase(&phase).unwrap_or_else(|_| make()))
}

fn random_inpainting(random: &mut Random) -> Inpainting {
    let shape = image_shape(random);
    let mask = array(1, &shape, random).mapv(|value| f32::from(value > 0.0));
    Inpainting::new(&shape, &mask.index_axis_move(ndarray::Axis(0), 0)).expect("inpainting")
}

fn random_matrix(random: &mut Random) -> Matrix {
    let shape = [1, random.usize(1..9), random.usize(1..9)];
    let rows = array(random.usize(1..40), &[shape[1] * shape[2]], random);
    Matrix::new(&shape, &rows).expect("a matrix")
}

fn random_decolorize(random: &mut Random) -> Decolorize {
    let shape = image_shape(random);
    let weights: Vec<f32> = (0..shape[0]).map(|_| random.f32()).collect();
    Decolorize::with_weights(&shape, &weights).expect("decolorize")
}

fn random_compose(random: &mut Random) -> Compose {
    let inner = Arc::new(random_inpainting(random));
    let shape = inner.image_shape();
    let kernel = random_kernel(shape, Padding::Reflect, random);
    let outer = Blur::new(shape, &kernel, Padding::Reflect).expect("a blur");
    Compose::new(Arc::new(outer), inner).expect("operators that meet")
}

fn random_varying_blur(padding: Padding, random: &mut Random) -> VaryingBlur {
    let shape = image_shape(random);
    let grid: Vec<usize> = shape[1..].iter().map(|side| random.usize(1..=(*side).min(2))).collect();
    let nodes = grid.iter().product();
    let kernels: Vec<Array> = (0..nodes).map(|_| random_kernel(&shape, padding, random)).collect();
    let kernels: Vec<Array> = kernels
        .into_iter()
        .map(|kernel| kernel.slice_axis(ndarray::Axis(0), ndarray::Slice::from(0..1)).to_owned())
        .collect();
    VaryingBlur::new(&shape, &grid, &kernels, padding).expect("a blur")
}

/// Turned, stretched and moved, so that some of the image is out of sight.
fn random_affine(random: &mut Random) -> Affine {
    let shape = image_shape(random);
    let sides: Vec<usize> = shape[1..].iter().map(|_| random.usize(1..20)).collect();
    let count = sides.len();
    let rows: Vec<f64> = (0..count * (count + 1))
        .map(|at| {
            let (row, column) = (at / (count + 1), at % (count + 1));
            let identity = if row == column { 1.0 } else { 0.0 };
            let moves = if column == count { 3.0 } else { 0.3 };
            identity + between(-moves, moves, random)
        })
        .collect();
    Affine::new(&shape, &sides, &rows).expect("a map that has an inverse")
}

/// A real or a complex image of two or three sides, and a coil's sensitivity if there is one.
fn coil_image(random: &mut Random) -> (Vec<usize>, Option<Array>) {
    let mut shape = image_shape(random);
    shape[0] = random.usize(1..3);
    let coil = random.bool().then(|| {
        let mut map = shape.clone();
        map[0] = random.usize(1..3);
        array(1, &map, random).index_axis_move(ndarray::Axis(0), 0)
    });
    (shape, coil)
}

fn random_cartesian(random: &mut Random) -> Cartesian {
    let (shape, coil) = coil_image(random);
    let mut sides = shape.clone();
    sides[0] = 1;
    let mask = array(1, &sides, random).mapv(|value| f32::from(value > -0.5));
    let mask = mask.index_axis_move(ndarray::Axis(0), 0);
    Cartesian::new(&shape, coil.as_deref(), random.bool().then_some(&*mask)).expect("a scan")
}

fn random_trajectory(random: &mut Random) -> Trajectory {
    let (shape, coil) = coil_image(random);
    let samples = random.usize(1..300);
    let points: Vec<f64> =
        (0..samples * (shape.len() - 1)).map(|_| between(-3.1, 3.1, random)).collect();
    let density: Vec<f64> = (0..samples).map(|_| between(0.2, 2.0, random)).collect();
    let accuracy = [1e-2, 1e-4, 1e-7][random.usize(0..3)];
    Trajectory::new(
        &shape,
        coil.as_deref(),
        &points,
        random.bool().then_some(&density[..]),
        accuracy,
    )
    .expect("a scan")
}

fn random_visibilities(random: &mut Random) -> Visibilities {
    let shape = [1, random.usize(1..30), random.usize(1..30)];
    let cell = between(1e-4, 0.02, random);
    let depth = if random.bool() { 0.0 } else { between(1.0, 200.0, random) };
    let longest = 0.5 / cell;
    let uvw: Vec<[f64; 3]> = (0..random.usize(1..200))
        .map(|_| [longest, longest, depth].map(|most| between(-most, most, random)))
        .collect();
    let weights: Vec<f64> = uvw.iter().map(|_| between(0.2, 3.0, random)).collect();
    let beam = array(1, &shape, random).index_axis_move(ndarray::Axis(0), 0);
    let accuracy = [1e-3, 1e-5, 1e-7][random.usize(0..3)];
    Visibilities::with(&shape, &uvw, cell, Some(&weights), Some(&beam), accuracy)
        .expect("a telescope")
}

macro_rules! adjoint_tests {
    ($($name:ident: $make:expr;)*) => { proptest! {
        #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]
        $(#[test] fn $name(seed: u64) {
            let mut random = Random::with_seed(seed);
            let make: fn(&mut Random) -> Box<dyn LinearPhysics> = $make;
            assert_adjoint(&*make(&mut random), &mut random);
        })*
    } };
}

#[test]
fn a_cone_that_hardly_sees_the_volume_has_its_adjoint() {
    let mut random = Random::with_seed(17_361_302_648_887_721_163);
    let shape = channels_and_sides::<3>(20, &mut random);
    let cone = Tomography3d::new(&shape, cone_beam(&mut random)).expect("a scan");
    assert_adjoint(&cone, &mut random);
}

adjoint_tests! {
    identity: |random| Box::new(Identity::new(&image_shape(random)));
    blur_circular: |random| random_blur(Padding::Circular, random);
    blur_reflect: |random| random_blur(Padding::Reflect, random);
    blur_replicate: |random| random_blur(Padding::Replicate, random);
    blur_constant: |random| random_blur(Padding::Constant, random);
    blur_valid: |random| random_blur(Padding::Valid, random);
    downsampling_circular: |random| random_downsampling(Padding::Circular, random);
    downsampling_reflect: |random| random_downsampling(Padding::Reflect, random);
    downsampling_replicate: |random| random_downsampling(Padding::Replicate, random);
    downsampling_constant: |random| random_downsampling(Padding::Constant, random);
    downsampling_valid: |random| random_downsampling(Padding::Valid, random);
    inpainting: |random| Box::new(random_inpainting(random));
    decolorize: |random| Box::new(random_decolorize(random));
    matrix: |random| Box::new(random_matrix(random));
    compose: |random| Box::new(random_compose(random));
    scaled: |random| Box::new(Scaled::new(random.f32() - 0.5, Arc::new(random_inpainting(random))).expect("finite"));
    varying_blur: |random| Box::new(random_varying_blur(Padding::Reflect, random));
    varying_blur_circular: |random| Box::new(random_varying_blur(Padding::Circular, random));
    affine: |random| Box::new(random_affine(random));
    mri: |random| Box::new(random_cartesian(random));
    mri_trajectory: |random| Box::new(random_trajectory(random));
    visibilities: |random| Box::new(random_visibilities(random));
    tomography_parallel: |random| Box::new(parallel_beam(random));
    tomography_fan: |random| Box::new(fan_beam(random));
    tomography_parallel_3d: |random| Box::new(parallel_beam_3d(random));
    tomography_cone: |random| Box::new(Tomography3d::new(&channels_and_sides::<3>(20, random), cone_beam(random)).expect("a scan"));
    tomography_cone_vectors: |random| Box::new(cone_vectors(random));
}
