//! Blurs that vary are those of deepinv 0.5.0 and affine maps those of `scipy`, and ranks change no bit of them. The numbers are made by
//! `fixtures/make_views.py`.

use std::sync::Arc;

use haloscope::Array;
use haloscope::array::{distance, norm};
use haloscope::denoise::{Averaged, Axes, Denoiser, NetworkDenoiser};
use haloscope::distribute::{ShardedStack, distribute_with};
use haloscope::image::{Image, Space};
use haloscope::physics::{
    Affine, LinearPhysics, Padding, Physics, Stack, VaryingBlur, WindowPhysics, kernels,
};
use haloscope::tiling::{ShardPlan, Strategy, Tiling};
use haloscope_comm::Context;
use haloscope_nn::engine::{EngineOptions, Grain};
use haloscope_nn::models::{Architecture, Drunet};
use ndarray::{ArrayD, Axis, IxDyn, Slice};
use safetensors::{Dtype, SafeTensors};

const FIXTURE: &[u8] = include_bytes!("../fixtures/views.safetensors");

fn numbers(name: &str) -> (Vec<usize>, Vec<f64>) {
    let all = SafeTensors::deserialize(FIXTURE).expect("tensors");
    let tensor = all.tensor(name).expect("a tensor");
    let values = match tensor.dtype() {
        Dtype::F32 => {
            tensor.data().as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b).into()).collect()
        }
        _ => tensor.data().as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b)).collect(),
    };
    (tensor.shape().to_vec(), values)
}

fn array(name: &str) -> Array {
    let (shape, values) = numbers(name);
    Array::from_shape_vec(shape, values.iter().map(|value| *value as f32).collect())
        .expect("it fits")
}

fn relative(found: &Array, expected: &Array) -> f64 {
    assert_eq!(found.shape(), expected.shape());
    let slice = |a: &Array| a.as_standard_layout().iter().copied().collect::<Vec<f32>>();
    distance(&slice(found), &slice(expected)) / norm(&slice(expected))
}

fn random(shape: &[usize], seed: u64) -> Array {
    let mut random = fastrand::Rng::with_seed(seed);
    ArrayD::from_shape_simple_fn(IxDyn(shape), || random.f32())
}

#[test]
fn blurs_that_vary_are_those_of_deepinv() {
    let image = array("blur_image");
    let kernels: Vec<Array> = (array("blur_kernels").outer_iter())
        .map(|kernel| kernel.to_owned().insert_axis(Axis(0)).insert_axis(Axis(0)))
        .collect();
    for (name, padding) in
        [("valid", Padding::Valid), ("circular", Padding::Circular), ("reflect", Padding::Reflect)]
    {
        let blur = VaryingBlur::new(&[2, 18, 23], &[2, 3], &kernels, padding).expect("a blur");
        let found = blur.forward(&image).expect("a measurement");
        let error = relative(&found, &array(&format!("blur_{name}")));
        assert!(error < 1e-5, "{name}: {error}");
        let back = blur.adjoint(&array(&format!("blur_{name}_v"))).expect("an image");
        let error = relative(&back, &array(&format!("blur_{name}_adjoint")));
        assert!(error < 1e-5, "adjoint, {name}: {error}");
    }
}

#[test]
fn affine_maps_are_those_of_scipy() {
    for name in ["plane", "space"] {
        let (image, seen) = (array(&format!("{name}_image")), array(&format!("{name}_seen")));
        let (_, rows) = numbers(&format!("{name}_rows"));
        let map = Affine::new(&image.shape()[1..], &seen.shape()[2..], &rows).expect("a map");
        let error = relative(&map.forward(&image).expect("a view"), &seen);
        assert!(error < 1e-5, "{name}: {error}");
    }
}

#[test]
fn parts_of_a_blur_that_varies_have_the_bits_of_the_whole() {
    let small: Vec<Array> = (0..4)
        .map(|k| kernels::gaussian(&[0.3 + 0.1 * f64::from(k), 0.4], 20.0).expect("a kernel"))
        .collect();
    // Of these, two are products of lines, for which another method would be the faster one than for the others.
    let large: Vec<Array> = [0.0, 45.0, 30.0, 90.0]
        .map(|angle| kernels::gaussian(&[3.0, 1.5], angle).expect("a kernel"))
        .to_vec();
    let image = random(&[1, 2, 19, 23], 3);
    let paddings = [Padding::Circular, Padding::Reflect, Padding::Constant];
    let cases = paddings.iter().flat_map(|padding| [(*padding, &small), (*padding, &large)]);
    for (padding, kernels) in cases {
        let blur = VaryingBlur::new(&[2, 19, 23], &[2, 2], kernels, padding).expect("a blur");
        assert!(blur.window_bits_agree());
        let whole = blur.forward(&image).expect("a measurement");
        let plan = |ranks| ShardPlan::new(&[1, 2, 19, 23], &[Grain { step: 1, last: 1 }; 2], ranks);
        for ranks in [1, 2, 3, 5, 8] {
            let (kernels, image) = (kernels.clone(), image.clone());
            let parts = Context::threads(ranks, move |ctx| {
                let space = Space::new(ctx, &plan(ranks)?)?;
                let blur = VaryingBlur::new(&[2, 19, 23], &[2, 2], &kernels, padding)?;
                let stack = ShardedStack::new(Stack::new(vec![Arc::new(blur)])?, &space)?;
                let cut = Image::cut(&space, &image)?;
                let measured = stack.forward(&cut)?;
                let part = measured.get(0).expect("one").clone();
                Image::sharded(&stack.measured()[0], part)?.gather()
            });
            let found = parts.expect("no rank fails").remove(0);
            assert_eq!(found, whole, "{padding:?}, {ranks} ranks");
        }
    }
}

fn network() -> NetworkDenoiser {
    let options = Drunet {
        rank: 2,
        image_channels: 1,
        output_channels: 1,
        channels: [4, 4, 8, 8],
        blocks: 1,
        ..Drunet::default()
    };
    let model = options.random(1).expect("valid");
    NetworkDenoiser::new(model, EngineOptions::default()).expect("aligned")
}

fn flipped(image: &Array, axis: usize) -> Array {
    let view = image.slice_axis(Axis(axis), Slice::new(0, None, -1));
    view.as_standard_layout().into_owned()
}

#[test]
fn an_ensemble_is_the_mean_of_eight_and_turns_with_the_image() {
    let image = random(&[1, 1, 16, 24], 1);
    let level = 0.1.into();
    let ensemble = Averaged::new(network(), Axes::Ensemble);
    let result = ensemble.denoise(&image, &level).expect("an image");
    let alone = network();
    let mut sum = ArrayD::<f64>::zeros(image.raw_dim());
    for look in 0..8 {
        let turn = |array: &Array| {
            let mut turned = array.clone();
            if look & 4 != 0 {
                turned.swap_axes(2, 3);
            }
            let turned = turned.as_standard_layout().into_owned();
            let turned = if look & 1 != 0 { flipped(&turned, 2) } else { turned };
            if look & 2 != 0 { flipped(&turned, 3) } else { turned }
        };
        let denoised = alone.denoise(&turn(&image), &level).expect("an image");
        let back = if look & 1 != 0 { flipped(&denoised, 2) } else { denoised };
        let mut back = if look & 2 != 0 { flipped(&back, 3) } else { back };
        if look & 4 != 0 {
            back.swap_axes(2, 3);
        }
        sum += &back.mapv(f64::from);
    }
    let mean = sum.mapv(|sum| (sum / 8.0) as f32);
    assert!(relative(&result, &mean) < 1e-6);
    // Whatever is turned, the result turns with it, which one pass of a network does not.
    let turned = ensemble.denoise(&flipped(&image, 3), &level).expect("an image");
    assert!(relative(&flipped(&turned, 3), &result) < 1e-5);
    let once = alone.denoise(&image, &level).expect("an image");
    let once_turned = alone.denoise(&flipped(&image, 3), &level).expect("an image");
    assert!(relative(&flipped(&once_turned, 3), &once) > 1e-3);
    for strategy in [Strategy::Exact, Strategy::Overlap] {
        let tiling = Tiling { patch: 16.into(), overlap: 4.into(), ..Tiling::new(strategy) };
        let tiling = if strategy == Strategy::Exact { Tiling::new(strategy) } else { tiling };
        let run = |ranks: usize| {
            let (tiling, image) = (tiling.clone(), image.clone());
            let all = Context::threads(ranks, move |ctx| {
                let shared = distribute_with(network(), ctx, tiling.clone())?;
                Averaged::new(shared, Axes::Ensemble).denoise(&image, &0.1.into())
            });
            all.expect("no rank fails")
        };
        let one = run(1).remove(0);
        assert!(strategy != Strategy::Exact || one == result);
        for ranks in [2, 3, 5] {
            assert!(run(ranks).iter().all(|image| *image == one), "{strategy:?}, {ranks} ranks");
        }
    }
}
