//! Tiles and their results against deepinv 0.5.0 (`fixtures/make_tiling.py`), and the seams of blended tiles.

use std::path::PathBuf;

use haloscope::Array;
use haloscope::denoise::{Denoiser, NetworkDenoiser, denoiser_fn};
use haloscope::distribute::distribute_with;
use haloscope::tiling::{Border, Extent, Patch, Strategy, Tiling};
use haloscope_comm::Context;
use haloscope_nn::StateDict;
use haloscope_nn::engine::EngineOptions;
use haloscope_nn::models::Model;
use haloscope_nn::weights::Limits;
use ndarray::{ArrayD, IxDyn};

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name)
}

/// The mean over a neighbourhood of 5 pixels along each axis, with zeros beyond the edge.
fn mean(image: &haloscope::View) -> Array {
    let mut result = image.to_owned();
    for axis in 2..image.ndim() {
        let source = result.clone();
        let length = image.shape()[axis];
        for (index, value) in result.indexed_iter_mut() {
            let center = index[axis];
            let mut sum = 0.0;
            for beside in center.saturating_sub(2)..(center + 3).min(length) {
                let mut place = index.clone();
                place[axis] = beside;
                sum += source[&place];
            }
            *value = sum / 5.0;
        }
    }
    result
}

#[test]
fn overlapping_tiles_and_their_result_are_those_of_deepinv() {
    let tensors =
        StateDict::open(fixture("tiling.safetensors"), &Limits::default()).expect("fixture");
    let tensor = |name: &str| {
        let tensor = tensors.get(name).expect("a tensor");
        ArrayD::from_shape_vec(IxDyn(tensor.shape().sizes()), tensor.values().to_vec())
            .expect("its shape")
    };
    let text = std::fs::read_to_string(fixture("tiling.json")).expect("fixture");
    let cases: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let numbers = |value: &serde_json::Value| -> Vec<usize> {
        let list = value.as_array().expect("a list");
        list.iter().map(|number| number.as_u64().expect("a number") as usize).collect()
    };
    for (index, case) in cases.as_array().expect("cases").iter().enumerate() {
        let tiling = Tiling {
            patch: Patch::Given(Extent::PerAxis(numbers(&case["patch"]))),
            overlap: Extent::PerAxis(numbers(&case["overlap"])).into(),
            axes: Some(numbers(&case["axes"])),
            border: Border::Reflect,
            ..Tiling::new(Strategy::Overlap)
        };
        let plan = tiling.plan(&numbers(&case["shape"]), 1, 1).expect("a plan");
        let targets = case["targets"].as_array().expect("tiles");
        assert_eq!(plan.len(), targets.len(), "case {index}");
        for (tile, target) in targets.iter().enumerate() {
            let write: Vec<Vec<usize>> =
                plan.tile(tile).write.iter().map(|range| vec![range.start, range.end]).collect();
            let expected: Vec<Vec<usize>> =
                target.as_array().expect("axes").iter().map(numbers).collect();
            assert_eq!(write, expected, "case {index}, tile {tile}");
        }
        let (image, expected) =
            (tensor(&format!("image {index}")), tensor(&format!("result {index}")));
        for ranks in [1, 3] {
            let (image, tiling) = (image.clone(), tiling.clone());
            let results = Context::threads(ranks, move |ctx| {
                let denoiser = denoiser_fn("mean", |image, _| Ok(mean(image)));
                distribute_with(denoiser, ctx, tiling.clone())?.denoise(&image, &0.1.into())
            });
            let results = results.expect("no rank fails");
            let error = (&results[0] - &expected).mapv(|x| x * x).sum().sqrt();
            let norm = expected.mapv(|x| x * x).sum().sqrt();
            assert!(error <= 1e-6 * norm, "case {index} on {ranks} ranks: {}", error / norm);
        }
    }
}

/// The largest step between neighbouring columns of the difference to the untiled result.
fn largest_step(difference: &Array, columns: impl Iterator<Item = usize>) -> f32 {
    let mut largest = 0.0_f32;
    for column in columns {
        let left = difference.slice(ndarray::s![0, 0, .., column - 1]);
        let right = difference.slice(ndarray::s![0, 0, .., column]);
        largest = left.iter().zip(right).fold(largest, |most, (a, b)| most.max((a - b).abs()));
    }
    largest
}

fn psnr(a: &Array, b: &Array) -> f64 {
    let errors = a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>();
    -10.0 * (errors / a.len() as f64).log10()
}

/// Blended tiles of a trained network: no larger steps at the borders of tiles than inside them.
#[test]
fn blended_tiles_of_a_trained_network_have_no_seams() {
    let Some(data) = std::env::var_os("HALOSCOPE_DATA").map(PathBuf::from) else {
        println!("skipped: tiles of a trained network, which need HALOSCOPE_DATA");
        return;
    };
    let weights = data.join("weights/fdncnn_gray.safetensors");
    let state = StateDict::open(&weights, &Limits::default()).expect("weights");
    let network = || {
        let model = Model::recognize(&state).expect("a known network");
        NetworkDenoiser::new(model, EngineOptions { threads: 2, ..EngineOptions::default() })
            .expect("a denoiser")
    };
    // Bars and texture with noise; any image will do.
    let mut random = fastrand::Rng::with_seed(3);
    let image = ArrayD::from_shape_fn(vec![1, 1, 192, 256], |index| {
        let (y, x) = (index[2] as f32, index[3] as f32);
        let clean = 0.5
            + 0.2 * (x / 9.0).sin() * (y / 17.0).cos()
            + if ((x / 31.0) as usize).is_multiple_of(2) { 0.2 } else { 0.0 };
        let normal: f32 = (0..12).map(|_| random.f32()).sum::<f32>() - 6.0;
        clean + 0.1 * normal
    });
    let whole = network().denoise(&image, &0.1.into()).expect("untiled");
    for overlap in [0, 8, 16, 32, 64] {
        let tiling = Tiling {
            patch: 64.into(),
            overlap: overlap.into(),
            border: Border::Inside,
            ..Tiling::new(Strategy::Blend)
        };
        let tiled = distribute_with(network(), &Context::solo(), tiling)
            .and_then(|denoiser| denoiser.denoise(&image, &0.1.into()))
            .expect("tiled");
        let difference = &tiled - &whole;
        let borders = || [64, 128, 192].into_iter();
        let at_borders = largest_step(&difference, borders());
        let inside =
            largest_step(&difference, (1..256).filter(|x| !borders().any(|border| border == *x)));
        println!(
            "overlap {overlap:2}: {:5.1} dB from the untiled result, steps {at_borders:.5} at borders, \
             {inside:.5} inside",
            psnr(&tiled, &whole)
        );
        if overlap >= 8 {
            assert!(at_borders <= inside, "overlap {overlap}: {at_borders} > {inside}");
        }
    }
}
