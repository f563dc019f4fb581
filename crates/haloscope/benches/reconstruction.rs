//! A whole reconstruction, end to end: seconds, memory and PSNR, as a line of JSON for `bench/compare.py`.
//!
//!     bench_reconstruction prepare FOLDER [--size N]
//!     bench_reconstruction run FOLDER --weights FILE [--iterations N] [--threads N] [--patch N] [--overlap N]
//!
//! `prepare` writes what `run` and `bench/peers/reconstruction.py` read: `problem.safetensors` with a colour picture, three
//! blurs and their noisy measurements, and random weights of a DnCNN-20 and a full DRUNet. `run` is plug-and-play proximal
//! gradient descent, one network for the whole picture unless a patch size is given. One iteration plans and warms up;
//! then all of them are timed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use haloscope::denoise::NetworkDenoiser;
use haloscope::distribute::{distribute, distribute_with};
use haloscope::fidelity::{Fidelities, L2};
use haloscope::metrics::psnr;
use haloscope::noise::Noise;
use haloscope::phantom::landscape;
use haloscope::physics::{Blur, Padding, Physics, Stack, kernels};
use haloscope::solve::{Plug, Problem, ProximalGradient, State, Stopping, solve};
use haloscope::tiling::{Strategy, Tiling};
use haloscope::{Array, Measurements, Result};
use haloscope_comm::{Context, ContextOptions};
use haloscope_nn::engine::EngineOptions;
use haloscope_nn::models::{Architecture, Dncnn, Drunet, Model};
use haloscope_nn::weights::{Limits, StateDict};
use haloscope_nn::{Shape, Tensor};
use safetensors::Dtype;
use safetensors::tensor::TensorView;

/// The step of the gradient and the noise level that the denoiser is told, those of the peers.
const STEP: f64 = 0.5;
const LEVEL: f32 = 0.05;

const ANGLES: [f64; 3] = [0.0, 60.0, 120.0];
const NOISE: [f64; 3] = [0.03, 0.05, 0.04];

fn main() -> Result<()> {
    let request = Request::from_arguments();
    match request.command.as_str() {
        "prepare" => prepare(&request),
        "run" => run(&request),
        other => panic!("`{other}` is unknown; there are prepare and run"),
    }
}

/// What the command line asks for.
struct Request {
    command: String,
    folder: PathBuf,
    size: usize,
    weights: PathBuf,
    iterations: usize,
    threads: usize,
    patch: Option<usize>,
    overlap: usize,
}

impl Request {
    fn from_arguments() -> Self {
        let mut arguments = std::env::args().skip(1);
        let mut next = |what: &str| arguments.next().unwrap_or_else(|| panic!("{what} is needed"));
        let mut request = Self {
            command: next("prepare or run"),
            folder: next("a folder").into(),
            size: 512,
            weights: PathBuf::new(),
            iterations: 10,
            threads: 1,
            patch: None,
            overlap: 64,
        };
        while let Some(argument) = arguments.next() {
            let value = arguments.next().unwrap_or_else(|| panic!("{argument} needs a value"));
            let number = || value.parse().unwrap_or_else(|_| panic!("{argument} needs a number"));
            match argument.as_str() {
                "--size" => request.size = number(),
                "--weights" => request.weights = value.into(),
                "--iterations" => request.iterations = number(),
                "--threads" => request.threads = number(),
                "--patch" => request.patch = Some(number()),
                "--overlap" => request.overlap = number(),
                _ => panic!("{argument} is unknown"),
            }
        }
        request
    }
}

/// Writes the problem and the weights.
fn prepare(request: &Request) -> Result<()> {
    let truth = landscape(request.size, request.size)?;
    let kernel = |angle: f64| kernels::gaussian(&[3.0, 1.0], angle);
    let kernels = ANGLES.into_iter().map(kernel).collect::<Result<Vec<Array>>>()?;
    let physics = distribute(blurs(&truth, &kernels)?, &Context::solo())?;
    let noise = NOISE.into_iter().map(Noise::gaussian).collect::<Result<Vec<Noise>>>()?;
    let data = physics.measure(&truth, &noise, 1)?;
    let mut tensors = StateDict::default();
    let mut insert = |name: String, array: &Array| -> Result<()> {
        let values: Vec<f32> = array.iter().copied().collect();
        tensors.insert(name, Tensor::new(Shape::new(array.shape())?, values)?);
        Ok(())
    };
    insert("start".into(), &(physics.adjoint(&data)? / ANGLES.len() as f32))?;
    insert("truth".into(), &truth)?;
    for (kernel, (index, part)) in kernels.iter().zip(data.iter()) {
        insert(format!("kernel {index}"), kernel)?;
        insert(format!("data {index}"), part)?;
    }
    std::fs::create_dir_all(&request.folder).expect("the folder can be made");
    write(&request.folder.join("problem.safetensors"), &tensors);
    write(&request.folder.join("dncnn.safetensors"), &random_weights(&Dncnn::default(), 1.4)?);
    write(&request.folder.join("drunet.safetensors"), &random_weights(&Drunet::default(), 0.5)?);
    Ok(())
}

/// Weights with which the network is about the identity, so that iterations stay finite: the picture passes by the layers,
/// whose random part is made small at the end. `gain` is by how much a layer changes the size of values.
fn random_weights(architecture: &dyn Architecture, gain: f32) -> Result<StateDict> {
    let mut random = fastrand::Rng::with_seed(1);
    let mut weights = StateDict::default();
    for (name, shape) in architecture.parameters()? {
        let sizes = shape.sizes().to_vec();
        let fan_in = sizes[1..].iter().product::<usize>();
        let is_last = ["out_conv.weight", "m_up1.0.weight", "m_tail.weight"].contains(&&*name);
        let reach = gain * (3.0 / fan_in as f32).sqrt() * if is_last { 0.02 } else { 1.0 };
        let mut values = Tensor::from_fn(shape.clone(), |_| reach * (2.0 * random.f32() - 1.0))
            .values()
            .to_vec();
        if sizes.len() == 1 {
            values.fill(0.0);
        }
        if let ("m_head.weight" | "m_tail.weight", &[_, inputs, 3, 3]) = (&*name, &*sizes) {
            // Three features are the colours: taken in here, given out there.
            for color in 0..3 {
                let kernels = &mut values[color * inputs * 9..][..inputs * 9];
                if name == "m_head.weight" {
                    kernels.fill(0.0);
                }
                kernels[color * 9 + 4] = 1.0;
            }
        }
        weights.insert(name, Tensor::new(shape, values)?);
    }
    Ok(weights)
}

fn write(path: &Path, tensors: &StateDict) {
    let bytes = |tensor: &Tensor| -> Vec<u8> {
        tensor.values().iter().flat_map(|value| value.to_le_bytes()).collect()
    };
    let parts: HashMap<&str, (Vec<usize>, Vec<u8>)> = tensors
        .iter()
        .map(|(name, tensor)| (name, (tensor.shape().sizes().to_vec(), bytes(tensor))))
        .collect();
    let views = parts.iter().map(|(name, (shape, bytes))| {
        (*name, TensorView::new(Dtype::F32, shape.clone(), bytes).expect("as long as its shape"))
    });
    let file = safetensors::serialize(views, None).expect("tensors can be written");
    std::fs::write(path, file).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// Reconstructs, and prints what it took.
fn run(request: &Request) -> Result<()> {
    let limits = Limits::default();
    let tensors = StateDict::open(request.folder.join("problem.safetensors"), &limits)?;
    let get = |name: String| {
        let tensor = tensors.get(&name).unwrap_or_else(|| panic!("`{name}` is not in the file"));
        Array::from_shape_vec(tensor.shape().sizes(), tensor.values().to_vec()).expect("its shape")
    };
    let kernels: Vec<Array> = (0..ANGLES.len()).map(|i| get(format!("kernel {i}"))).collect();
    let data = (0..ANGLES.len()).map(|i| get(format!("data {i}"))).collect();
    let (truth, start) = (get("truth".into()), get("start".into()));
    let model = Model::recognize(&StateDict::open(&request.weights, &limits)?)?;
    let network = model.network().name().to_owned();

    let threads = Some(request.threads);
    let ctx = ContextOptions { threads, ..ContextOptions::default() }.solo()?;
    let fidelity = distribute(Fidelities::from(L2::default()), &ctx)?;
    let physics = distribute(blurs(&truth, &kernels)?, &ctx)?;
    let problem = Problem::new(physics, Measurements::new(data), fidelity)?;
    let options = EngineOptions { threads: request.threads, ..EngineOptions::default() };
    let tiling = match request.patch {
        None => Tiling { patch: side(&truth).into(), ..Tiling::new(Strategy::Basic) },
        Some(patch) => Tiling {
            patch: patch.into(),
            overlap: request.overlap.into(),
            ..Tiling::new(Strategy::Overlap)
        },
    };
    let denoiser = distribute_with(NetworkDenoiser::new(model, options)?, &ctx, tiling)?;
    let prior = Arc::new(Plug::new(Arc::new(denoiser), LEVEL));
    let algorithm = ProximalGradient { step: STEP, prior, relaxation: None };
    let reconstruct = |iterations: usize| {
        let stopping = Stopping { iterations, ..Stopping::default() };
        solve(&problem, &algorithm, State::new(start.clone()), &stopping, None)
    };

    let begin = Instant::now();
    reconstruct(1)?;
    let first = begin.elapsed();
    let begin = Instant::now();
    let image = reconstruct(request.iterations)?.state.image.into_local();
    let seconds = begin.elapsed();

    let (side, iterations, threads) = (side(&truth), request.iterations, request.threads);
    let plural = if threads > 1 { "s" } else { "" };
    let case = format!(
        "deblurring {side}²×3 with {network}, {iterations} iterations, {threads} thread{plural}"
    );
    let line = serde_json::json!({
        "case": case,
        "seconds": seconds.as_secs_f64(),
        "first_iteration_seconds": first.as_secs_f64(),
        "psnr_db": psnr(&image, &truth, 1.0)?[0],
        "start_psnr_db": psnr(&start, &truth, 1.0)?[0],
        "peak_mb": peak_megabytes(),
    });
    println!("{line}");
    Ok(())
}

fn blurs(image: &Array, kernels: &[Array]) -> Result<Stack> {
    let blur = |kernel: &Array| -> Result<Arc<dyn Physics>> {
        Ok(Arc::new(Blur::new(&image.shape()[1..], kernel, Padding::Circular)?))
    };
    Stack::new(kernels.iter().map(blur).collect::<Result<Vec<_>>>()?)
}

fn side(image: &Array) -> usize {
    image.shape()[3]
}

/// The most memory that the process has held; 0 where the system does not tell.
fn peak_megabytes() -> f64 {
    haloscope::memory::peak_resident_bytes().unwrap_or(0) as f64 / 1e6
}
