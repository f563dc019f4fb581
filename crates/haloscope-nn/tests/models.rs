//! Every model and operation against PyTorch's own output, from the files in `fixtures/`.

use std::path::Path;

use haloscope_nn::engine::{Accuracy, Cpu, Engine, EngineOptions};
use haloscope_nn::models::{
    Architecture, BatchNorm, Depth, Dncnn, DncnnNames, Downsampling, Drunet, Fdncnn, Sigma, Unet,
    Upsampling,
};
use haloscope_nn::weights::{Limits, StateDict};
use haloscope_nn::{
    Activation, Conv, ConvTranspose, NetworkBuilder, Op, PaddingMode, Pool, PoolKind, Tensor,
    UpsampleMode, run_reference,
};

/// What single precision leaves of a double-precision truth when only weights are rounded.
const TOLERANCE: f64 = 2e-6;

fn fixture(name: &str) -> StateDict {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/{name}.safetensors"));
    StateDict::open(path, &Limits::default()).expect("fixtures are committed")
}

fn relative_error(value: &Tensor, truth: &Tensor) -> f64 {
    assert_eq!(value.shape(), truth.shape());
    let norm = |list: &mut dyn Iterator<Item = f64>| list.map(|x| x * x).sum::<f64>().sqrt();
    let pairs = value.values().iter().zip(truth.values());
    let difference = norm(&mut pairs.map(|(a, b)| f64::from(*a) - f64::from(*b)));
    difference / norm(&mut truth.values().iter().map(|x| f64::from(*x)))
}

fn check(name: &str, architecture: &dyn Architecture) {
    let file = fixture(name);
    let model = architecture.load(&file.section("weights")).expect("the weights fit by name");
    let sigma = file.get("sigma").map(|sigma| sigma.values()[0]);
    assert_eq!(model.sigma() == Sigma::Map, sigma.is_some(), "{name}");
    let image = file.get("input").expect("each fixture has an input");
    let input = model.input(image, sigma.unwrap_or(0.0)).expect("the image fits");
    let output = run_reference(model.network(), &input).expect("the size is aligned");
    let error = relative_error(&output, file.get("output").expect("and an output"));
    println!("{name}: relative error {error:.1e}");
    assert!(error <= TOLERANCE, "{name}: relative error {error:.1e}");
    for (accuracy, most) in [(Accuracy::Fast, 2e-5), (Accuracy::Strict, 2e-6)] {
        let options = EngineOptions { accuracy, ..EngineOptions::default() };
        let plan = Cpu::default()
            .plan(model.network(), input.shape(), &options)
            .expect("it can be planned");
        let mut values = vec![0.0; plan.output_shape().count()];
        plan.run(input.values(), &mut values, &mut plan.scratch()).expect("lengths fit");
        let planned = Tensor::new(plan.output_shape().clone(), values).expect("the plan's shape");
        let error = relative_error(&planned, file.get("output").expect("and an output"));
        println!("{name}, {accuracy:?}: relative error {error:.1e}");
        assert!(error <= most, "{name}, {accuracy:?}: relative error {error:.1e}");
    }
}

#[test]
fn drunet_matches_deepinv() {
    let gray = Drunet { image_channels: 1, output_channels: 1, ..Drunet::default() };
    check("drunet_color", &Drunet { channels: [8, 12, 16, 20], blocks: 2, ..Drunet::default() });
    check(
        "drunet_gray",
        &Drunet {
            channels: [4, 6, 8, 10],
            blocks: 1,
            activation: Activation::Elu(1.0),
            ..gray.clone()
        },
    );
    check(
        "drunet_pools",
        &Drunet {
            output_channels: 2,
            channels: [4, 5, 6, 7],
            blocks: 2,
            activation: Activation::LeakyRelu(0.2),
            downsampling: Downsampling::AveragePool,
            upsampling: Upsampling::Upconv,
            ..gray.clone()
        },
    );
    check(
        "drunet_shuffle",
        &Drunet {
            channels: [3, 4, 5, 6],
            blocks: 1,
            activation: Activation::Softplus,
            downsampling: Downsampling::MaxPool,
            upsampling: Upsampling::PixelShuffle,
            ..gray.clone()
        },
    );
    let volume = Drunet { rank: 3, channels: [4, 5, 6, 7], blocks: 2, ..gray };
    check("drunet_3d", &volume);
    check("drunet_kept_depth", &Drunet { depth: Depth::Kept, ..volume });
}

#[test]
fn dncnn_matches_deepinv() {
    check("dncnn_color", &Dncnn { depth: 7, channels: 12, ..Dncnn::default() });
    let gray = Dncnn { image_channels: 1, ..Dncnn::default() };
    check("dncnn_gray", &Dncnn { depth: 5, channels: 8, bias: false, ..gray.clone() });
    check("dncnn_3d", &Dncnn { rank: 3, depth: 4, channels: 6, ..gray.clone() });
    let names = DncnnNames::Kair;
    check("dncnn_kair", &Dncnn { depth: 6, channels: 8, names, ..gray });
}

#[test]
fn fdncnn_matches_its_definition() {
    check("fdncnn_color", &Fdncnn { depth: 6, channels: 8, ..Fdncnn::default() });
}

#[test]
fn unet_matches_deepinv() {
    check("unet_gray", &Unet { channels: vec![4, 6, 8, 10], ..Unet::default() });
    check(
        "unet_color",
        &Unet {
            image_channels: 3,
            output_channels: 3,
            channels: vec![5, 7, 9],
            padding: PaddingMode::Circular,
            bias: false,
            batch_norm: BatchNorm::BiasFree,
            ..Unet::default()
        },
    );
    check(
        "unet_biasfree_bias",
        &Unet {
            channels: vec![4, 6],
            residual: false,
            batch_norm: BatchNorm::BiasFree,
            ..Unet::default()
        },
    );
    check(
        "unet_plain",
        &Unet {
            output_channels: 2,
            channels: vec![4, 5, 6],
            skips: false,
            batch_norm: BatchNorm::None,
            ..Unet::default()
        },
    );
    check("unet_3d", &Unet { rank: 3, channels: vec![3, 4, 5], ..Unet::default() });
}

/// The model that a heading of `fixtures/parameters.txt` means.
fn named(heading: &str) -> Box<dyn Architecture> {
    let gray = Drunet { image_channels: 1, output_channels: 1, ..Drunet::default() };
    let channels = [2, 3, 4, 5];
    match heading.split(' ').collect::<Vec<_>>()[..] {
        ["drunet"] => Box::new(Drunet::default()),
        ["drunet", "gray"] => Box::new(gray),
        ["drunet", "3d"] => Box::new(Drunet { rank: 3, channels, ..Drunet::default() }),
        ["drunet", blocks, down, up] => Box::new(Drunet {
            channels,
            blocks: blocks.parse().expect("a number"),
            downsampling: match down {
                "strideconv" => Downsampling::StridedConv,
                "avgpool" => Downsampling::AveragePool,
                _ => Downsampling::MaxPool,
            },
            upsampling: match up {
                "convtranspose" => Upsampling::ConvTranspose,
                "pixelshuffle" => Upsampling::PixelShuffle,
                _ => Upsampling::Upconv,
            },
            ..Drunet::default()
        }),
        ["dncnn"] => Box::new(Dncnn::default()),
        ["dncnn", "gray"] => Box::new(Dncnn { image_channels: 1, ..Dncnn::default() }),
        ["unet"] => Box::new(Unet::default()),
        ["unet", "two", "scales"] => Box::new(Unet { channels: vec![3, 5], ..Unet::default() }),
        ["unet", "five", "scales"] => Box::new(Unet {
            channels: vec![64, 128, 256, 512, 1024],
            bias: false,
            batch_norm: BatchNorm::None,
            ..Unet::default()
        }),
        _ => panic!("{heading}: no such model"),
    }
}

#[test]
fn parameters_have_the_names_and_shapes_of_deepinv() {
    let list = include_str!("../fixtures/parameters.txt");
    let mut models = 0;
    for section in list.split("= ").skip(1) {
        let mut lines = section.lines();
        let heading = lines.next().expect("each section has a heading");
        let mut expected: Vec<&str> = lines.collect();
        let parameters = named(heading).parameters().expect("good options");
        let mut found: Vec<String> = (parameters.iter())
            .map(|(name, shape)| {
                shape.sizes().iter().fold(name.clone(), |line, size| format!("{line} {size}"))
            })
            .collect();
        expected.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, expected, "{heading}");
        models += 1;
    }
    assert_eq!(models, 8 + 27);
}

#[test]
fn batch_normalizations_are_gone_after_building() {
    let model = Unet { channels: vec![4, 6], ..Unet::default() }.random(1).expect("good options");
    let mut nodes = model.network().nodes().iter();
    assert!(nodes.all(|node| !matches!(node.op(), Op::Affine { .. })));
}

#[test]
fn operations_match_pytorch() {
    let file = fixture("operations");
    let part = |name: &str, part: &str| file.get(&format!("{name}.{part}")).cloned();
    let weight = |name: &str| part(name, "weight").expect("it has a weight");
    let conv = |name: &str| Conv::new(weight(name)).bias(part(name, "bias"));
    let transpose = |name: &str| ConvTranspose::new(weight(name)).bias(part(name, "bias"));
    let around = |name, mode| Op::Conv(conv(name).padding(2).stride(2).mode(mode));
    let upsample = |factor, mode| Op::Upsample { factor, mode };
    let pool =
        |kind, size, stride| Op::Pool(Pool { stride: vec![stride; 2], ..Pool::new(kind, 2, size) });
    let cases = [
        ("conv_reflect", around("conv_reflect", PaddingMode::Reflect)),
        ("conv_replicate", around("conv_replicate", PaddingMode::Replicate)),
        ("conv_circular", around("conv_circular", PaddingMode::Circular)),
        ("conv_stride_3", Op::Conv(conv("conv_stride_3").padding(1).stride(3))),
        ("conv_3d", Op::Conv(conv("conv_3d").padding(1))),
        ("transpose_2", Op::ConvTranspose(transpose("transpose_2").stride(2))),
        ("transpose_4", Op::ConvTranspose(transpose("transpose_4").stride(2).padding(1))),
        ("transpose_3d", Op::ConvTranspose(transpose("transpose_3d").stride(2))),
        ("relu", Op::Activation(Activation::Relu)),
        ("leaky_relu", Op::Activation(Activation::LeakyRelu(0.2))),
        ("elu", Op::Activation(Activation::Elu(1.0))),
        ("softplus", Op::Activation(Activation::Softplus)),
        ("average_pool", pool(PoolKind::Average, 3, 3)),
        ("max_pool", pool(PoolKind::Max, 3, 2)),
        ("nearest", upsample(3, UpsampleMode::Nearest)),
        ("bilinear", upsample(3, UpsampleMode::Linear)),
        ("trilinear", upsample(2, UpsampleMode::Linear)),
        ("pixel_unshuffle", Op::PixelUnshuffle(3)),
        ("pixel_shuffle", Op::PixelShuffle(2)),
    ];
    for (name, op) in cases {
        let input = part(name, "input").expect("each has an input");
        let rank = input.shape().spatial().len();
        let mut builder = NetworkBuilder::new(name, rank).expect("rank 2 or 3");
        let from = builder.input(input.shape().channels()).expect("first");
        let output = builder.push("operation", op, &[from]).expect("it fits");
        let network = builder.finish(output).expect("all nodes are used");
        let output = run_reference(&network, &input).expect("it runs");
        let error = relative_error(&output, &part(name, "output").expect("and an output"));
        assert!(error <= 1e-7, "{name}: relative error {error:.1e}");
    }
}
