//! Exported files in Python's ONNX Runtime against the CPU engine: all models, fixed and dynamic sizes, every operation.
//!
//! `HALOSCOPE_ONNX_PYTHON` is a Python that has `onnx`, `onnxruntime` and `numpy`; `make onnx` provides one.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use haloscope_nn::engine::{Accuracy, Cpu, Engine, EngineOptions};
use haloscope_nn::models::{
    Architecture, Builtin, Dncnn, Downsampling, Drunet, Fdncnn, Model, Sigma, Unet, Upsampling,
};
use haloscope_nn::{
    Activation, Conv, ConvTranspose, NetworkBuilder, Op, PaddingMode, Pool, PoolKind, Shape,
    Tensor, UpsampleMode,
};
use haloscope_onnx::{Size, encode};

/// Files and the images that they are tried with.
struct Cases<'a> {
    folder: &'a Path,
    list: String,
    random: fastrand::Rng,
}

impl<'a> Cases<'a> {
    fn new(folder: &'a Path) -> Self {
        Self { folder, list: String::new(), random: fastrand::Rng::with_seed(3) }
    }

    /// A file for this size only, and one for any size with this image and others.
    fn both(&mut self, name: &str, model: &Model, sides: &[&[usize]]) {
        let size = Size::Fixed { batch: 2, sides: sides[0].to_vec() };
        self.file(&format!("{name}-fixed"), model, &size);
        self.image(&format!("{name}-fixed@0"), model, 2, sides[0], false);
        self.file(&format!("{name}-dynamic"), model, &Size::Dynamic);
        for (index, sides) in sides.iter().enumerate() {
            let is_map = index % 2 == 1;
            self.image(&format!("{name}-dynamic@{index}"), model, 1 + index % 2, sides, is_map);
        }
    }

    fn file(&self, name: &str, model: &Model, size: &Size) {
        let bytes = encode(model, size).expect("it can be exported");
        fs::write(self.folder.join(format!("{name}.onnx")), bytes).expect("a file");
    }

    /// An image, with a level for all pixels or one for each, and what the engine makes of it.
    fn image(&mut self, name: &str, model: &Model, batch: usize, sides: &[usize], is_map: bool) {
        let channels = model.image_channels();
        let shape = Shape::image(batch, channels, sides).expect("small");
        let image = Tensor::from_fn(shape, |_| self.random.f32());
        self.write(name, "image", image.values());
        let mut level_sizes = "-".to_owned();
        let mut input = model.input(&image, 0.1).expect("it takes the image");
        if model.sigma() == Sigma::Map {
            let pixels: usize = sides.iter().product();
            let level = if is_map {
                let map: Vec<f32> = (0..batch * pixels).map(|_| self.random.f32() * 0.2).collect();
                let mut values = input.values().to_vec();
                for (member, map) in
                    values.chunks_exact_mut((channels + 1) * pixels).zip(map.chunks_exact(pixels))
                {
                    member[channels * pixels..].copy_from_slice(map);
                }
                input = Tensor::new(input.shape().clone(), values).expect("as before");
                level_sizes = sizes(Shape::image(batch, 1, sides).expect("small").sizes());
                map
            } else {
                level_sizes = sizes(&vec![1; 2 + sides.len()]);
                vec![0.1]
            };
            self.write(name, "sigma", &level);
        }
        let options = EngineOptions { accuracy: Accuracy::Strict, ..EngineOptions::default() };
        let plan = Cpu::default().plan(model.network(), input.shape(), &options).expect("a plan");
        let mut expected = vec![0.0; plan.output_shape().count()];
        plan.run(input.values(), &mut expected, &mut plan.scratch()).expect("it runs");
        self.write(name, "expected", &expected);
        let (image, output) = (sizes(image.shape().sizes()), sizes(plan.output_shape().sizes()));
        writeln!(self.list, "{name} {image} {level_sizes} {output}").expect("text grows");
    }

    fn write(&self, name: &str, part: &str, values: &[f32]) {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        fs::write(self.folder.join(format!("{name}.{part}")), bytes).expect("a file");
    }

    /// Runs all cases in Python; none may differ by more than 1e-5.
    fn check(self, python: &str) {
        fs::write(self.folder.join("cases.txt"), &self.list).expect("a file");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/runtime.py");
        let output = Command::new(python).arg(script).arg(self.folder).output().expect("Python");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        println!("{text}");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(text.lines().count(), self.list.lines().count());
        for line in text.lines() {
            let error = line.split_whitespace().nth(1).and_then(|text| text.parse::<f64>().ok());
            assert!(error.is_some_and(|error| error < 1e-5), "{line}");
        }
    }
}

fn sizes(sizes: &[usize]) -> String {
    sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join("x")
}

/// Makes cases and checks them, if there is a Python for it.
fn check(add: impl FnOnce(&mut Cases<'_>)) {
    let Ok(python) = std::env::var("HALOSCOPE_ONNX_PYTHON") else {
        println!("skipped: exported files in ONNX Runtime, which need HALOSCOPE_ONNX_PYTHON");
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let mut cases = Cases::new(folder.path());
    add(&mut cases);
    cases.check(&python);
}

#[test]
fn the_built_in_denoisers_have_the_engines_values() {
    check(|cases| {
        for builtin in Builtin::ALL {
            let model = builtin.model().expect("built in");
            if builtin == Builtin::Volume {
                cases.both(builtin.name(), &model, &[&[5, 24, 37], &[8, 32, 40], &[2, 9, 21]]);
                continue;
            }
            // The last one is too small to be mirrored.
            cases.both(builtin.name(), &model, &[&[45, 37], &[64, 40], &[9, 70], &[3, 5]]);
        }
    });
}

#[test]
fn drunet_of_the_published_size_has_the_engines_values() {
    check(|cases| {
        let model = Drunet::default().random(1).expect("valid");
        cases.file("drunet", &model, &Size::Dynamic);
        cases.image("drunet@0", &model, 1, &[37, 50], false);
    });
}

#[test]
fn models_without_scales_have_the_engines_values() {
    check(|cases| {
        let model = Dncnn::default().random(1).expect("valid");
        cases.both("dncnn", &model, &[&[33, 21], &[40, 17]]);
        let model = Fdncnn::default().random(1).expect("valid");
        cases.both("fdncnn", &model, &[&[33, 21], &[40, 17]]);
    });
}

#[test]
fn unets_have_the_engines_values() {
    check(|cases| {
        let unet = Unet { image_channels: 3, output_channels: 3, ..Unet::default() };
        let model = unet.random(1).expect("valid");
        cases.both("unet", &model, &[&[37, 45], &[64, 24]]);
    });
}

#[test]
fn volumes_have_the_engines_values() {
    check(|cases| {
        let drunet = Drunet {
            rank: 3,
            image_channels: 1,
            output_channels: 1,
            channels: [16, 24, 32, 40],
            blocks: 1,
            ..Drunet::default()
        };
        let model = drunet.random(1).expect("valid");
        cases.both("drunet-3d", &model, &[&[13, 10, 17], &[8, 21, 6]]);
    });
}

#[test]
fn other_ways_to_change_the_scale_have_the_engines_values() {
    check(|cases| {
        let downs = [Downsampling::AveragePool, Downsampling::MaxPool];
        let ups = [Upsampling::PixelShuffle, Upsampling::Upconv];
        for (index, (downsampling, upsampling)) in downs.into_iter().zip(ups).enumerate() {
            // Shuffles are for pictures only.
            for rank in 2..=2 + index {
                let drunet = Drunet {
                    rank,
                    channels: [8, 8, 16, 16],
                    blocks: 1,
                    downsampling,
                    upsampling,
                    ..Drunet::default()
                };
                let model = drunet.random(1).expect("valid");
                let sides = [19, 26, 11];
                cases.both(&format!("drunet-{index}-{rank}"), &model, &[&sides[..rank]]);
            }
        }
    });
}

#[test]
fn every_operation_has_the_engines_values() {
    fn random(random: &mut fastrand::Rng, sizes: &[usize]) -> Tensor {
        Tensor::from_fn(Shape::new(sizes).expect("small"), |_| random.f32() - 0.5)
    }
    check(|cases| {
        let mut rng = fastrand::Rng::with_seed(8);
        for rank in [2, 3] {
            let kernel = |outputs: usize, inputs: usize, side: usize| {
                [&[outputs, inputs][..], &vec![side; rank]].concat()
            };
            let modes = [PaddingMode::Zero, PaddingMode::Reflect, PaddingMode::Replicate];
            let convs = modes.into_iter().chain([PaddingMode::Circular]).map(|mode| {
                let weight = random(&mut rng, &kernel(4, 4, 3));
                Op::Conv(Conv::new(weight).bias(random(&mut rng, &[4])).padding(1).mode(mode))
            });
            let mut ops: Vec<Op> = convs.collect();
            let up = ConvTranspose::new(random(&mut rng, &kernel(4, 3, 4))).padding(1).stride(2);
            ops.push(Op::ConvTranspose(up.bias(random(&mut rng, &[3]))));
            for activation in [
                Activation::Relu,
                Activation::LeakyRelu(0.2),
                Activation::Elu(0.7),
                Activation::Softplus,
            ] {
                ops.push(Op::Activation(activation));
            }
            for kind in [PoolKind::Average, PoolKind::Max] {
                ops.push(Op::Pool(Pool::new(kind, rank, 2)));
            }
            for mode in [UpsampleMode::Nearest, UpsampleMode::Linear] {
                ops.push(Op::Upsample { factor: 2, mode });
            }
            ops.push(Op::PixelUnshuffle(2));
            ops.push(Op::Affine { scale: random(&mut rng, &[4]), shift: random(&mut rng, &[4]) });
            ops.push(Op::Scale(-1.75));
            for (index, op) in ops.into_iter().enumerate() {
                let mut builder = NetworkBuilder::new("single", rank).expect("a rank");
                let input = builder.input(4).expect("first");
                // Called like an input of the file.
                let node = builder.push("image", op, &[input]).expect("it fits");
                let model = Model::new(builder.finish(node).expect("all used"), Sigma::Ignored);
                let sides = [6, 10, 8];
                cases.both(&format!("op-{index}-{rank}"), &model, &[&sides[..rank]]);
            }
            let mut builder = NetworkBuilder::new("shuffle", rank).expect("a rank");
            let input = builder.input(16).expect("first");
            let large = builder.push("a", Op::PixelShuffle(2), &[input]).expect("it fits");
            let twice = builder.push("b", Op::Scale(2.0), &[large]).expect("it fits");
            let sum = builder.push("c", Op::Add, &[large, twice, large]).expect("it fits");
            let both = builder.push("d", Op::Concat, &[sum, twice]).expect("it fits");
            let model = Model::new(builder.finish(both).expect("all used"), Sigma::Ignored);
            cases.both(&format!("shuffle-{rank}"), &model, &[&[5, 6, 7][..rank]]);
        }
    });
}

#[test]
fn sizes_that_a_network_does_not_take_are_refused() {
    let model = Builtin::Gray.model().expect("built in");
    let fixed = |sides: &[usize]| encode(&model, &Size::Fixed { batch: 1, sides: sides.to_vec() });
    let error = fixed(&[8, 8, 8]).expect_err("a volume").to_string();
    assert_eq!(error, "size: 8×8×8; drunet takes height and width");
    assert!(fixed(&[0, 8]).is_err());
    assert!(fixed(&[usize::MAX / 2, 8]).is_err());
    assert!(encode(&model, &Size::Fixed { batch: 0, sides: vec![8, 8] }).is_err());
}
