//! What ranks read of their neighbours' parts: nothing that was not exchanged shows, and every exchange counts.
//!
//! With assertions on, as in tests, ghosts and windows hold NaN until something arrives. So results that have the bits of the
//! whole image on any ranks depend on nothing else, and a message that is lost must show in them.

mod intercepted;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use haloscope::denoise::{Denoiser, NetworkDenoiser, TotalVariation};
use haloscope::distribute::{ShardedNetwork, ShardedStack};
use haloscope::image::{Image, Layout, Space};
use haloscope::metrics::{Ssim, of_images};
use haloscope::physics::{
    Blur, BlurMethod, Compose, Decolorize, Downsampling, DownsamplingFilter, Identity, Inpainting,
    Padding, Physics, Stack, kernels,
};
use haloscope::tiling::ShardPlan;
use haloscope::{Array, Error, Result};
use haloscope_comm::{Call, Communicator, Context, Incoming, Outgoing, ViewMut};
use haloscope_nn::engine::{EngineOptions, Grain};
use haloscope_nn::models::{Architecture, Dncnn, Drunet, Model};
use intercepted::intercepted;

const RANKS: [usize; 5] = [1, 2, 3, 5, 8];

fn image(shape: &[usize]) -> Array {
    let mut random = fastrand::Rng::with_seed(3);
    Array::from_shape_simple_fn(shape, || random.f32())
}

/// What is computed of an image that may be in parts.
type Work = Arc<dyn Fn(&Image) -> Result<Array> + Send + Sync>;

struct Case {
    name: &'static str,
    image: Vec<usize>,
    grains: Vec<Grain>,
    work: Work,
}

/// A network, whose layers exchange what they read.
fn network(name: &'static str, model: Model, shape: &[usize]) -> Case {
    let network = NetworkDenoiser::new(model, EngineOptions::default()).expect("a network");
    let mut grains = network.grains(shape).expect("grains");
    // Columns are cut at multiples of 8, too.
    let columns = grains.len() - 1;
    grains[columns].step = multiple_of_8(grains[columns].step);
    let network = Arc::new(network);
    let work = move |image: &Image| match image.layout() {
        Layout::Replicated => network.denoise(image.local(), &0.1.into()),
        Layout::Sharded(space) => {
            let parts = ShardedNetwork::new(network.clone(), space)?;
            parts.denoise_image(image, &0.1.into())?.gather()
        }
    };
    Case { name, image: shape.to_vec(), grains, work: Arc::new(work) }
}

/// The least common multiple with 8.
fn multiple_of_8(step: usize) -> usize {
    (1..=8).map(|times| times * step).find(|step| step % 8 == 0).expect("eight times at most")
}

/// Operators that read beyond their part, in one stack; `AᵀA x`.
fn normal(name: &'static str, operators: Vec<Arc<dyn Physics>>) -> Case {
    let stack = Stack::new(operators).expect("one shape");
    let shape = [&[1], stack.image_shape()].concat();
    let work = move |image: &Image| match image.layout() {
        Layout::Replicated => stack.normal(image.local()),
        Layout::Sharded(space) => ShardedStack::new(stack.clone(), space)?.normal(image)?.gather(),
    };
    Case { name, image: shape, grains: steps([4, 8]), work: Arc::new(work) }
}

fn steps(steps: [usize; 2]) -> Vec<Grain> {
    steps.map(|step| Grain { step, last: 1 }).to_vec()
}

fn cases() -> Result<Vec<Case>> {
    let shape = [3, 26, 44];
    let grey = [1, 26, 44];
    let kernel = kernels::gaussian(&[1.3, 0.9], 0.4)?;
    let blur = |padding, method| -> Result<Arc<dyn Physics>> {
        Ok(Arc::new(Blur::with_method(&shape, &kernel, padding, method)?))
    };
    let mask = Inpainting::random_mask(&shape, 0.4, 7)?;
    let thin = Downsampling::new(&shape, 2, &DownsamplingFilter::Box, Padding::Circular)?;
    let after = Blur::with_method(&grey, &kernel, Padding::Reflect, BlurMethod::Direct)?;
    let composed = Compose::new(Arc::new(after), Arc::new(Decolorize::new(&shape)?))?;
    let variation = TotalVariation { iterations: 4, tolerance: 0.0 };
    let dncnn = Dncnn { depth: 4, channels: 8, image_channels: 3, ..Dncnn::default() };
    let drunet = Drunet {
        channels: [8, 12, 16, 24],
        blocks: 1,
        image_channels: 1,
        output_channels: 1,
        ..Drunet::default()
    };
    let deep = Dncnn { rank: 3, image_channels: 1, ..dncnn.clone() };
    let volumes = Drunet { rank: 3, ..drunet.clone() };
    Ok(vec![
        network("dncnn", dncnn.random(2)?, &[1, 3, 31, 50]),
        network("drunet", drunet.random(1)?, &[1, 1, 300, 99]),
        network("dncnn for volumes", deep.random(2)?, &[1, 1, 5, 14, 20]),
        network("drunet for volumes", volumes.random(1)?, &[1, 1, 37, 12, 20]),
        normal("circular", vec![blur(Padding::Circular, BlurMethod::Direct)?]),
        normal(
            "frames",
            vec![
                blur(Padding::Reflect, BlurMethod::Direct)?,
                Arc::new(Inpainting::new(&shape, &mask)?),
                Arc::new(thin),
                Arc::new(composed),
                Arc::new(Identity::new(&shape)),
                blur(Padding::Valid, BlurMethod::Direct)?,
            ],
        ),
        Case {
            name: "total variation",
            image: vec![1, 3, 26, 44],
            grains: steps([4, 8]),
            work: Arc::new(move |image| variation.denoise_image(image, &0.1.into())?.gather()),
        },
        Case {
            name: "SSIM",
            image: vec![1, 3, 26, 44],
            grains: steps([4, 8]),
            work: Arc::new(|image| {
                let other = image.clone().into_local().mapv(|value| value * value);
                let found = of_images::ssim(&Ssim::new(1.0)?, image, &image.with(other)?)?;
                Ok(Array::from_shape_fn(vec![found.len()], |at| found[at[0]] as f32))
            }),
        },
    ])
}

fn bits(image: &Array) -> Vec<u32> {
    image.iter().map(|value| value.to_bits()).collect()
}

/// What each rank finds of a case whose image is in parts.
fn in_parts(
    case: &Case,
    ranks: usize,
    context: impl Fn(&Context) -> Context + Send + Sync + 'static,
) -> Result<Vec<Array>> {
    let (shape, grains, work) = (case.image.clone(), case.grains.clone(), case.work.clone());
    Context::threads(ranks, move |ctx| {
        let ctx = context(ctx);
        let space = Space::new(&ctx, &ShardPlan::new(&shape, &grains, ranks)?)?;
        work(&Image::cut(&space, &image(&shape))?)
    })
}

#[test]
fn nothing_that_was_not_exchanged_shows() -> Result<()> {
    for case in cases()? {
        let whole = (case.work)(&image(&case.image).into())?;
        assert!(whole.iter().all(|value| value.is_finite()), "{}", case.name);
        for ranks in RANKS {
            for found in in_parts(&case, ranks, Context::clone)? {
                assert!(bits(&found) == bits(&whole), "{} on {ranks} ranks", case.name);
            }
        }
    }
    Ok(())
}

/// Two ranks never get what one of their exchanges brings them, one exchange after the other. What that leaves must not be taken for
/// values.
#[test]
#[cfg_attr(not(debug_assertions), ignore = "ghosts are filled with NaN where assertions are on")]
fn each_exchange_that_is_lost_shows() -> Result<()> {
    for case in cases()? {
        let whole = (case.work)(&image(&case.image).into())?;
        let mut lost = 0;
        loop {
            let losses = Arc::new(AtomicUsize::new(0));
            let lost_by_ranks = losses.clone();
            let outcome = in_parts(&case, 2, move |ctx| {
                let (losses, arrivals) = (lost_by_ranks.clone(), AtomicUsize::new(0));
                intercepted(ctx, move |_, call, comm| match call {
                    Call::Exchange { sends, receives } if !receives.is_empty() => {
                        if arrivals.fetch_add(1, Ordering::SeqCst) == lost {
                            losses.fetch_add(1, Ordering::SeqCst);
                            return lose(comm, sends, receives);
                        }
                        comm.execute(Call::Exchange { sends, receives })
                    }
                    call => comm.execute(call),
                })
            });
            if losses.load(Ordering::SeqCst) == 0 {
                break;
            }
            // Rectifiers make 0 of what is no number, so what shows may be another number.
            let shows = match outcome {
                Ok(found) => bits(&found[0]) != bits(&whole),
                Err(error) => {
                    assert!(!matches!(error, Error::Ranks(_)), "{}: {error}", case.name);
                    true
                }
            };
            assert!(shows, "{}: exchange {lost} may be left out", case.name);
            lost += 1;
        }
        assert!(lost > 0, "{}: nothing is exchanged", case.name);
    }
    Ok(())
}

/// Makes an exchange, and forgets what arrives.
fn lose(
    comm: &dyn Communicator,
    sends: &[Outgoing<'_>],
    receives: &[Incoming<'_>],
) -> haloscope_comm::Result<()> {
    let mut buffers: Vec<Vec<f32>> = receives.iter().map(|one| vec![0.0; one.data.len()]).collect();
    let mut elsewhere: Vec<Incoming<'_>> = (receives.iter().zip(&mut buffers))
        .map(|(one, buffer)| Incoming { from: one.from, data: ViewMut::new(buffer) })
        .collect();
    comm.execute(Call::Exchange { sends, receives: &mut elsewhere })
}
