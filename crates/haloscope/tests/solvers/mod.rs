//! Problems and all methods for them, in either layout of images: what they find, to the bit.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::sync::Arc;

use haloscope::denoise::{Denoiser, TotalVariation};
use haloscope::distribute::{ShardedStack, distribute};
use haloscope::fidelity::{Fidelities, Fidelity};
use haloscope::image::Space;
use haloscope::physics::{
    Blur, BlurMethod, Downsampling, DownsamplingFilter, Identity, Inpainting, Padding, Physics,
    Stack,
};
use haloscope::solve::{
    Admm, Algorithm, ConjugateGradient, DouglasRachford, Fista, HalfQuadratic, Landweber, Plug,
    PrimalDual, Prior, Problem, Prox, ProximalGradient, Range, RedFixedPoint, RedGradient,
    Schedule, Start, State, Stopping, TotalVariationPrior, solve,
};
use haloscope::tiling::ShardPlan;
use haloscope::{Array, Measurements, Result};
use haloscope_comm::Context;
use haloscope_nn::engine::Grain;

pub(crate) type Operators = fn(&[usize]) -> Result<Vec<Arc<dyn Physics>>>;

fn blur(shape: &[usize], size: usize, padding: Padding) -> Result<Arc<dyn Physics>> {
    let mut random = fastrand::Rng::with_seed(size as u64);
    let kernel = Array::from_shape_simple_fn(vec![1, 1, size, size + 2], || random.f32());
    let kernel = &kernel / kernel.sum();
    Ok(Arc::new(Blur::with_method(shape, &kernel, padding, BlurMethod::Direct)?))
}

/// Problems by name; the last has several operators of unlike reach.
pub(crate) const PROBLEMS: [(&str, Operators); 6] = [
    ("denoising", |shape| Ok(vec![Arc::new(Identity::new(shape))])),
    ("inpainting", |shape| {
        let mask = Inpainting::random_mask(shape, 0.4, 7)?;
        Ok(vec![Arc::new(Inpainting::new(shape, &mask)?)])
    }),
    ("circular", |shape| Ok(vec![blur(shape, 5, Padding::Circular)?])),
    ("reflect", |shape| Ok(vec![blur(shape, 5, Padding::Reflect)?])),
    ("super-resolution", |shape| {
        let filter = DownsamplingFilter::Box;
        Ok(vec![Arc::new(Downsampling::new(shape, 2, &filter, Padding::Circular)?)])
    }),
    ("frames", |shape| {
        let identity: Arc<dyn Physics> = Arc::new(Identity::new(shape));
        Ok(vec![
            blur(shape, 3, Padding::Circular)?,
            identity,
            blur(shape, 5, Padding::Reflect)?,
            blur(shape, 3, Padding::Valid)?,
        ])
    }),
];

/// Steps at which rows and columns are cut: blocks, columns, rows.
pub(crate) const CUTS: [[usize; 2]; 3] = [[4, 8], [1000, 8], [3, 1000]];

pub(crate) fn truth(shape: &[usize]) -> Array {
    let mut random = fastrand::Rng::with_seed(11);
    Array::from_shape_fn([&[1], shape].concat(), |at| {
        let smooth = (at[2] as f32 * 0.3).sin() + (at[3] as f32 * 0.2).cos();
        0.5 + 0.2 * smooth + 0.05 * random.f32()
    })
}

pub(crate) fn stack(operators: Operators, shape: &[usize]) -> Result<Stack> {
    Stack::new(operators(shape)?)
}

pub(crate) fn space(ctx: &Context, image: &[usize], steps: [usize; 2]) -> Result<Arc<Space>> {
    let grains = steps.map(|step| Grain { step, last: 1 });
    Space::new(ctx, &ShardPlan::new(image, &grains, ctx.size())?)
}

/// The problem in a layout.
pub(crate) fn problem(
    ctx: &Context,
    space: Option<&Arc<Space>>,
    stack: Stack,
    data: Measurements,
    fidelity: impl Fidelity + 'static,
) -> Result<Problem> {
    let fidelity = distribute(Fidelities::from(fidelity), ctx)?;
    let problem = match space {
        Some(space) => Problem::sharded(ShardedStack::new(stack, space)?, &data, fidelity)?,
        None => Problem::new(distribute(stack, ctx)?, data, fidelity)?,
    };
    Ok(problem.with_inner(1e-6, 6).with_prox(Prox::Iterative))
}

/// All methods with total variation or a denoiser, for squares.
pub(crate) fn methods(
    problem: &Problem,
    denoiser: &Arc<dyn Denoiser>,
) -> Result<Vec<Box<dyn Algorithm>>> {
    let step = problem.step_size()?;
    let variation = TotalVariation { iterations: 6, tolerance: 1e-4 };
    let prior: Arc<dyn Prior> = Arc::new(TotalVariationPrior { weight: 0.02, denoiser: variation });
    let plug = Plug::new(denoiser.clone(), 0.05).range(Range::Normalise);
    let plugged: Arc<dyn Prior> = Arc::new(plug.clone().range(Range::Clamp(0.0, 1.0)));
    let range = Some((0.1, 0.9));
    Ok(vec![
        Box::new(ProximalGradient { step, prior: plugged.clone(), relaxation: Some(0.5) }),
        Box::new(Fista { step, prior: prior.clone() }),
        Box::new(HalfQuadratic {
            prior: plug.clone(),
            schedule: Schedule::falling(0.2, 0.02, 3, 0.05, 0.23)?,
        }),
        Box::new(Admm { step, prior: prior.clone() }),
        Box::new(DouglasRachford { step, prior: plugged.clone(), relaxation: 1.2 }),
        Box::new(RedGradient { step, weight: 0.1, prior: plugged }),
        Box::new(RedFixedPoint { weight: 0.3, prior: plug }),
        Box::new(PrimalDual { lipschitz: 0.99 / step, weight: 0.02, range }),
        Box::new(ConjugateGradient),
        Box::new(Landweber { step, range }),
    ])
}

pub(crate) fn bits(image: &Array) -> Vec<u32> {
    image.iter().map(|value| value.to_bits()).collect()
}

/// What a case is called, the bits of its image, and those of its numbers.
pub(crate) type Fact = (String, Vec<u32>, Vec<u64>);

/// What a few iterations of all methods make of a start, with all numbers of their records.
pub(crate) fn run(
    problem: &Problem,
    methods: &[Box<dyn Algorithm>],
    start: &Start,
) -> Result<Vec<Fact>> {
    let mut results = Vec::new();
    for method in methods {
        let state = State::new(problem.start(start)?);
        let stopping = Stopping { iterations: 3, ..Stopping::default() };
        let outcome = solve(problem, &**method, state, &stopping, None)?;
        let numbers = outcome.records.iter().flat_map(|record| {
            [record.relative_change.to_bits(), record.data_term.unwrap_or(-1.0).to_bits()]
        });
        let image = bits(&outcome.state.image.gather()?);
        results.push((method.name().to_owned(), image, numbers.collect()));
    }
    Ok(results)
}
