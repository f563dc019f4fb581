//! The trained networks in the folder `HALOSCOPE_DATA`: all files are read, fit their models by
//! name, and denoise. Skipped, visibly, without that folder.

use std::f64::consts::TAU;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use haloscope_nn::models::{Architecture, Dncnn, Fdncnn, Model};
use haloscope_nn::weights::{Limits, StateDict};
use haloscope_nn::{Error, Shape, Tensor, run_reference};

const SIGMA: f32 = 25.0 / 255.0;

/// The folder of data, or a line that says why nothing is tested.
fn data() -> Option<PathBuf> {
    let folder = std::env::var_os("HALOSCOPE_DATA").map(PathBuf::from);
    if folder.is_none() {
        // Past the capture of the test harness, so that it is seen.
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), "skipped: HALOSCOPE_DATA is not set");
    }
    folder
}

fn open(folder: &Path, file: &str) -> Result<StateDict, Error> {
    StateDict::open(folder.join("weights").join(file), &Limits::default())
}

fn load(folder: &Path, file: &str, architecture: &dyn Architecture) -> Model {
    let state = open(folder, file).unwrap_or_else(|error| panic!("{error}"));
    architecture.load(&state).unwrap_or_else(|error| panic!("{file}: {error}"))
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

#[allow(clippy::cast_possible_truncation)] // the rounding is the purpose
fn noisy(image: &Tensor) -> Tensor {
    let mut random = fastrand::Rng::with_seed(5);
    let mut normal = || (-2.0 * (1.0 - random.f64()).ln()).sqrt() * (TAU * random.f64()).cos();
    Tensor::from_fn(image.shape().clone(), |at| {
        image.values()[at] + (f64::from(SIGMA) * normal()) as f32
    })
}

fn psnr(image: &Tensor, truth: &Tensor) -> f64 {
    let pairs = image.values().iter().zip(truth.values());
    let sum: f64 = pairs.map(|(a, b)| f64::from(a - b).powi(2)).sum();
    -10.0 * (sum / image.values().len() as f64).log10()
}

/// Denoising at σ = 25/255 gains at least 6 dB; the full images of the data's README gain 10.
fn denoises(file: &str, model: &Model, image: &Tensor) {
    let noisy = noisy(image);
    let input = model.input(&noisy, SIGMA).expect("the image fits");
    let output = run_reference(model.network(), &input).expect("any size works");
    let (before, after) = (psnr(&noisy, image), psnr(&output, image));
    println!("{file}: {before:.2} dB before, {after:.2} dB after");
    assert!(after > before + 6.0, "{file}: {before:.2} dB before, {after:.2} dB after");
}

#[test]
fn trained_networks_load_by_name_and_denoise() {
    let Some(folder) = data() else { return };
    let color = crop(&folder.join("images/CBSD_0010.png"), 48);
    let gray = crop(&folder.join("images/Set12/01.png"), 48);

    let file = "dncnn20_color_blind_deepinv.pth";
    denoises(file, &load(&folder, file, &Dncnn::default()), &color);
    let file = "fdncnn_color.safetensors";
    denoises(file, &load(&folder, file, &Fdncnn::default()), &color);
    let file = "fdncnn_gray.safetensors";
    let model = Fdncnn { image_channels: 1, ..Fdncnn::default() };
    denoises(file, &load(&folder, file, &model), &gray);
}

/// Three of the files are in the format from before PyTorch 1.6.
#[test]
fn files_in_the_old_format_say_how_to_rewrite_them() {
    let Some(folder) = data() else { return };
    for file in
        ["kair_dncnn_gray_25.pth", "biasfree_unet_gray_0-55.pt", "biasfree_dncnn_gray_0-55.pt"]
    {
        let error = open(&folder, file).expect_err("the old format");
        assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(file) && text.contains("torch.save(torch.load("), "{text}");
    }
}
