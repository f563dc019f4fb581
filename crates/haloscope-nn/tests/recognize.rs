//! Every model in `fixtures/` is recognized as what it is, up to what weights do not tell.

use std::path::Path;

use haloscope_nn::models::{
    BatchNorm, Depth, Dncnn, DncnnNames, Downsampling, Drunet, Fdncnn, Model, Recognized, Unet,
    Upsampling, recognize,
};
use haloscope_nn::weights::{Limits, StateDict};
use haloscope_nn::{Error, Tensor, run_reference};

/// What the weights of a fixture tell, and whether they tell all that its output depends on.
fn expected(name: &str) -> (Recognized, bool) {
    let drunet = Drunet { image_channels: 1, output_channels: 1, ..Drunet::default() };
    let dncnn = Dncnn { image_channels: 1, ..Dncnn::default() };
    let pooled = Drunet { downsampling: Downsampling::AveragePool, ..drunet.clone() };
    match name {
        "drunet_color" => (
            Recognized::Drunet(Drunet {
                channels: [8, 12, 16, 20],
                blocks: 2,
                ..Drunet::default()
            }),
            true,
        ),
        // With another activation.
        "drunet_gray" => {
            (Recognized::Drunet(Drunet { channels: [4, 6, 8, 10], blocks: 1, ..drunet }), false)
        }
        // With another activation.
        "drunet_pools" => (
            Recognized::Drunet(Drunet {
                output_channels: 2,
                channels: [4, 5, 6, 7],
                blocks: 2,
                upsampling: Upsampling::Upconv,
                ..pooled
            }),
            false,
        ),
        // With maxima and another activation.
        "drunet_shuffle" => (
            Recognized::Drunet(Drunet {
                channels: [3, 4, 5, 6],
                blocks: 1,
                upsampling: Upsampling::PixelShuffle,
                ..pooled
            }),
            false,
        ),
        "drunet_3d" => (
            Recognized::Drunet(Drunet { rank: 3, channels: [4, 5, 6, 7], blocks: 2, ..drunet }),
            true,
        ),
        "drunet_kept_depth" => (
            Recognized::Drunet(Drunet {
                rank: 3,
                channels: [4, 5, 6, 7],
                blocks: 2,
                depth: Depth::Kept,
                ..drunet
            }),
            true,
        ),
        "dncnn_color" => {
            (Recognized::Dncnn(Dncnn { depth: 7, channels: 12, ..Dncnn::default() }), true)
        }
        "dncnn_gray" => {
            (Recognized::Dncnn(Dncnn { depth: 5, channels: 8, bias: false, ..dncnn }), true)
        }
        "dncnn_3d" => (Recognized::Dncnn(Dncnn { rank: 3, depth: 4, channels: 6, ..dncnn }), true),
        "dncnn_kair" => {
            let names = DncnnNames::Kair;
            (Recognized::Dncnn(Dncnn { depth: 6, channels: 8, names, ..dncnn }), true)
        }
        "fdncnn_color" => {
            (Recognized::Fdncnn(Fdncnn { depth: 6, channels: 8, ..Fdncnn::default() }), true)
        }
        "unet_gray" => {
            (Recognized::Unet(Unet { channels: vec![4, 6, 8, 10], ..Unet::default() }), true)
        }
        // With circular padding; and bias-free, which shows after training: see below.
        "unet_color" => (
            Recognized::Unet(Unet {
                image_channels: 3,
                output_channels: 3,
                channels: vec![5, 7, 9],
                bias: false,
                ..Unet::default()
            }),
            false,
        ),
        // Not residual.
        "unet_biasfree_bias" => {
            (Recognized::Unet(Unet { channels: vec![4, 6], ..Unet::default() }), false)
        }
        // Without skips.
        "unet_plain" => (
            Recognized::Unet(Unet {
                output_channels: 2,
                channels: vec![4, 5, 6],
                batch_norm: BatchNorm::None,
                ..Unet::default()
            }),
            false,
        ),
        "unet_3d" => {
            (Recognized::Unet(Unet { rank: 3, channels: vec![3, 4, 5], ..Unet::default() }), true)
        }
        _ => panic!("{name}: what is it?"),
    }
}

fn open(name: &str) -> StateDict {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    StateDict::open(folder.join(name).with_extension("safetensors"), &Limits::default())
        .expect("fixtures are committed")
}

/// The largest difference between what the model gives for the fixture's input and its output.
fn difference(file: &StateDict, model: &Model) -> f32 {
    let sigma = file.get("sigma").map_or(0.0, |sigma| sigma.values()[0]);
    let image = file.get("input").expect("each fixture has an input");
    let input = model.input(image, sigma).expect("the image fits");
    let output = run_reference(model.network(), &input).expect("the size is aligned");
    let truth = file.get("output").expect("and an output");
    let pairs = output.values().iter().zip(truth.values());
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn fixtures_are_recognized_as_what_they_are() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let mut models = 0;
    for entry in std::fs::read_dir(folder).expect("fixtures are committed") {
        let file = entry.expect("the folder can be listed").file_name();
        let file = file.to_string_lossy();
        let Some(name) = file.strip_suffix(".safetensors") else { continue };
        if name == "operations" {
            continue;
        }
        let state = open(name);
        let (options, tells_all) = expected(name);
        let (found, weights) = recognize(&state).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(found, options, "{name}");
        assert_eq!(weights, state.section("weights"), "{name}");
        let model = Model::recognize(&state).unwrap_or_else(|error| panic!("{name}: {error}"));
        if tells_all {
            let difference = difference(&state, &model);
            assert!(difference < 1e-4, "{name}: {difference}");
        }
        models += 1;
    }
    assert_eq!(models, 16);
}

#[test]
fn normalization_without_shifts_is_bias_free() {
    let state = open("unet_color").section("weights");
    let as_trained: StateDict = state
        .iter()
        .map(|(name, tensor)| {
            let shift = matches!(name.rsplit('.').next(), Some("bias" | "running_mean"));
            let tensor =
                if shift { Tensor::filled(tensor.shape().clone(), 0.0) } else { tensor.clone() };
            (name.to_owned(), tensor)
        })
        .collect();
    let (Recognized::Unet(options), _) = recognize(&as_trained).expect("it is a UNet") else {
        panic!("it is a UNet")
    };
    assert_eq!(options.batch_norm, BatchNorm::BiasFree);
}

#[test]
fn other_weights_are_refused_with_what_is_known_and_what_was_found() {
    let error = Model::recognize(&open("operations")).expect_err("these are no model");
    assert!(matches!(error, Error::Unrecognized { .. }), "{error:?}");
    assert_eq!(
        error.to_string(),
        "no known architecture has these weights: there are average_pool.input (2×3×9×12), \
         average_pool.output (2×3×3×4), bilinear.input (2×3×9×12), bilinear.output (2×3×27×36), \
         conv_3d.bias (3) and 49 more; known are drunet (by `m_head.weight`), dncnn (by \
         `in_conv.weight`), dncnn or fdncnn as KAIR names it (by `model.0.weight`), unet (by \
         `Conv1.0.weight`)"
    );
}
