//! The trained networks in the folder `HALOSCOPE_DATA`: all files are read, those of a known
//! architecture are recognized, and denoise as well as their authors say. Skipped, visibly, without that folder.

use std::f64::consts::TAU;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use haloscope_nn::engine::{Cpu, Engine, EngineOptions};
use haloscope_nn::models::{Architecture, Dncnn, DncnnNames, Fdncnn, Model, Recognized, recognize};
use haloscope_nn::weights::{Limits, StateDict};
use haloscope_nn::{Error, Shape, Tensor};

/// The folder of data, or a line that says why nothing is tested.
fn data() -> Option<PathBuf> {
    let folder = std::env::var_os("HALOSCOPE_DATA").map(PathBuf::from);
    if folder.is_none() {
        // Past the capture of the test harness, so that it is seen.
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), "skipped: trained networks, which need HALOSCOPE_DATA");
    }
    folder
}

fn open(folder: &Path, file: &str) -> Result<StateDict, Error> {
    StateDict::open(folder.join("weights").join(file), &Limits::default())
}

/// The model in a file, which must be recognized as `expected`.
fn load(folder: &Path, file: &str, expected: &Recognized) -> Model {
    let state = open(folder, file).unwrap_or_else(|error| panic!("{error}"));
    let (found, weights) = recognize(&state).unwrap_or_else(|error| panic!("{file}: {error}"));
    assert_eq!(found, *expected, "{file}");
    found.load(&weights).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// `size`² pixels around the middle of an 8-bit image, as 1×channels×size×size in 0 to 1.
fn crop(path: &Path, size: usize) -> Tensor {
    let file = BufReader::new(File::open(path).expect("the image is there"));
    let mut reader = png::Decoder::new(file).read_info().expect("it is a PNG");
    let mut pixels = vec![0; reader.output_buffer_size().expect("it is small")];
    let info = reader.next_frame(&mut pixels).expect("it is whole");
    let (width, height) = (info.width as usize, info.height as usize);
    let channels = info.color_type.samples();
    let (top, left) = ((height - size) / 2, (width - size) / 2);
    let shape = Shape::new([1, channels, size, size]).expect("small");
    Tensor::from_fn(shape, |at| {
        let (channel, row, column) = (at / (size * size), at / size % size, at % size);
        let place = ((top + row) * width + left + column) * channels + channel;
        f32::from(pixels[place]) / 255.0
    })
}

fn noisy(image: &Tensor, sigma: f32) -> Tensor {
    let mut random = fastrand::Rng::with_seed(5);
    let mut normal = || (-2.0 * (1.0 - random.f64()).ln()).sqrt() * (TAU * random.f64()).cos();
    Tensor::from_fn(image.shape().clone(), |at| {
        image.values()[at] + (f64::from(sigma) * normal()) as f32
    })
}

fn psnr(image: &Tensor, truth: &Tensor) -> f64 {
    let pairs = image.values().iter().zip(truth.values());
    let sum: f64 = pairs.map(|(a, b)| f64::from(a - b).powi(2)).sum();
    -10.0 * (sum / image.values().len() as f64).log10()
}

/// Peak signal-to-noise ratios in dB before and after denoising, noise of `level`/255.
fn denoised(model: &Model, image: &Tensor, level: f32) -> (f64, f64) {
    let sigma = level / 255.0;
    let noisy = noisy(image, sigma);
    let input = model.input(&noisy, sigma).expect("the image fits");
    let options = EngineOptions { threads: 2, ..EngineOptions::default() };
    let plan =
        Cpu::default().plan(model.network(), input.shape(), &options).expect("any size works");
    let mut output = vec![0.0; plan.output_shape().count()];
    plan.run(input.values(), &mut output, &mut plan.scratch()).expect("lengths fit");
    // As an image would be stored.
    for value in &mut output {
        *value = value.clamp(0.0, 1.0);
    }
    let output = Tensor::new(plan.output_shape().clone(), output).expect("the plan's shape");
    (psnr(&noisy, image), psnr(&output, image))
}

/// What was measured with these weights on this picture, by PyTorch. On one picture the draw of the
/// noise alone moves it by 0.1 dB at the low levels and 0.3 dB at the high one; that the outputs
/// themselves are those of PyTorch is what `models.rs` and `engine.rs` check.
#[test]
fn gray_networks_reach_their_known_quality_on_the_cameraman() {
    let Some(folder) = data() else { return };
    let cameraman = crop(&folder.join("images/Set12/01.png"), 256);
    let fdncnn = Recognized::Fdncnn(Fdncnn { image_channels: 1, ..Fdncnn::default() });
    let kair = Dncnn { image_channels: 1, depth: 17, names: DncnnNames::Kair, ..Dncnn::default() };
    for (file, expected, level, known) in [
        ("fdncnn_gray.safetensors", &fdncnn, 15.0, 32.61),
        ("fdncnn_gray.safetensors", &fdncnn, 25.0, 30.16),
        ("fdncnn_gray.safetensors", &fdncnn, 50.0, 27.02),
        ("kair_dncnn_gray_25.pth", &Recognized::Dncnn(kair), 25.0, 30.16),
    ] {
        let (_, after) = denoised(&load(&folder, file, expected), &cameraman, level);
        println!("{file} at {level}: {after:.2} dB, known {known}");
        assert!((after - known).abs() < 0.15, "{file} at {level}: {after:.2} dB");
    }
}

#[test]
fn colour_networks_are_recognized_and_denoise() {
    let Some(folder) = data() else { return };
    let image = crop(&folder.join("images/CBSD_0010.png"), 256);
    for (file, expected) in [
        ("dncnn20_color_blind_deepinv.pth", Recognized::Dncnn(Dncnn::default())),
        ("fdncnn_color.safetensors", Recognized::Fdncnn(Fdncnn::default())),
    ] {
        let (before, after) = denoised(&load(&folder, file, &expected), &image, 25.0);
        println!("{file}: {before:.2} dB before, {after:.2} dB after");
        assert!(after > before + 8.0, "{file}: {before:.2} dB before, {after:.2} dB after");
    }
}

/// Two of the files are checkpoints of a training, with its options and its optimizer. The sums
/// are PyTorch's, of the magnitudes of all values in double precision.
#[test]
fn training_checkpoints_in_the_old_format_give_their_tensors() {
    let Some(folder) = data() else { return };
    for (file, tensors, values, sum) in [
        ("biasfree_unet_gray_0-55.pt", 9, 233_024, 20_172.337_213_158_16),
        ("biasfree_dncnn_gray_0-55.pt", 110, 669_330, 216_177.678_595_306_2),
    ] {
        let state = open(&folder, file).unwrap_or_else(|error| panic!("{error}"));
        let model = state.section("model.0");
        assert_eq!(model.len(), tensors, "{file}");
        let all = || model.iter().flat_map(|(_, tensor)| tensor.values());
        assert_eq!(all().count(), values, "{file}");
        let found: f64 = all().map(|value| f64::from(value.abs())).sum();
        assert!((found / sum - 1.0).abs() < 1e-9, "{file}: {found}");
        // Architectures of their authors' own, which are not known.
        let error = Model::recognize(&state).expect_err("another architecture");
        assert!(matches!(error, Error::Unrecognized { .. }), "{file}: {error}");
    }
}
