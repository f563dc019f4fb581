//! What must not depend on the ranks: each operation over ranks, as a name and the bits of its result.
//!
//! `tests/distributed.rs` runs it on threads, `tests/mpi.rs` under mpirun; both compare with one rank.

#[path = "../solvers/mod.rs"]
mod solvers;

use std::sync::Arc;

use haloscope::denoise::{Denoiser, NetworkDenoiser, NoiseLevel, TotalVariation, denoiser_fn};
use haloscope::distribute::{
    Assignment, Dealing, DenoiserOptions, DistributedFidelity, DistributedStack, Factory,
    FidelityFactory, FidelityReduction, Gather, LocalTiles, Parameters, StackOptions, distribute,
    distribute_with,
};
use haloscope::fidelity::{Fidelities, Fidelity, L1, L2};
use haloscope::least_squares::{self, LinearSolver, NormOptions};
use haloscope::noise::Noise;
use haloscope::physics::{LinearPhysics, Physics, Stack};
use haloscope::solve::Start;
use haloscope::tiling::{Batch, Border, Extent, ShardPlan, Shards, Strategy, Tiling};
use haloscope::{Array, Error, Measurements, Result};
use haloscope_comm::{Collectives, Context};
use haloscope_nn::engine::EngineOptions;
use haloscope_nn::models::{Architecture, Drunet, Fdncnn};

/// The name of an operation, and a digest of the bits that every rank got.
pub(crate) type Facts = Vec<(String, u64)>;

/// A dense operator with random entries; each has a measurement shape of its own.
#[derive(Debug)]
pub(crate) struct Dense {
    image: Vec<usize>,
    measurement: Vec<usize>,
    entries: Vec<f32>,
}

impl Dense {
    /// The operator with this index of a heterogeneous stack.
    pub(crate) fn operator(index: usize, image: &[usize]) -> Arc<dyn Physics> {
        let measurement =
            if index.is_multiple_of(2) { vec![1, 3 + index] } else { vec![1, 2, 1 + index] };
        let count = image.iter().product::<usize>() * measurement.iter().product::<usize>();
        let mut random = fastrand::Rng::with_seed(index as u64);
        let entries = (0..count).map(|_| random.f32() - 0.5).collect();
        Arc::new(Self { image: image.to_vec(), measurement, entries })
    }
}

impl Physics for Dense {
    fn name(&self) -> &'static str {
        "dense"
    }

    fn image_shape(&self) -> &[usize] {
        &self.image
    }

    fn measurement_shape(&self) -> &[usize] {
        &self.measurement
    }

    fn apply_forward(&self, batch: usize, image: &[f32], measurement: &mut [f32]) -> Result<()> {
        let (n, m) = (image.len() / batch, measurement.len() / batch);
        for (x, y) in image.chunks(n).zip(measurement.chunks_mut(m)) {
            for (row, y) in self.entries.chunks(n).zip(y) {
                *y = row.iter().zip(x).map(|(a, x)| a * x).sum();
            }
        }
        Ok(())
    }

    fn as_linear(&self) -> Option<&dyn LinearPhysics> {
        Some(self)
    }
}

impl LinearPhysics for Dense {
    fn apply_adjoint(&self, batch: usize, measurement: &[f32], image: &mut [f32]) -> Result<()> {
        let (n, m) = (image.len() / batch, measurement.len() / batch);
        image.fill(0.0);
        for (x, y) in image.chunks_mut(n).zip(measurement.chunks(m)) {
            for (row, y) in self.entries.chunks(n).zip(y) {
                x.iter_mut().zip(row).for_each(|(x, a)| *x += a * y);
            }
        }
        Ok(())
    }
}

/// The square of each pixel: an operator that is not linear.
#[derive(Debug)]
struct Square(Vec<usize>);

impl Physics for Square {
    fn name(&self) -> &'static str {
        "square"
    }

    fn image_shape(&self) -> &[usize] {
        &self.0
    }

    fn measurement_shape(&self) -> &[usize] {
        &self.0
    }

    fn apply_forward(&self, _batch: usize, image: &[f32], measurement: &mut [f32]) -> Result<()> {
        measurement.iter_mut().zip(image).for_each(|(y, x)| *y = x * x);
        Ok(())
    }

    fn apply_vjp(&self, _: usize, image: &[f32], v: &[f32], result: &mut [f32]) -> Result<()> {
        result.iter_mut().zip(image.iter().zip(v)).for_each(|(r, (x, v))| *r = 2.0 * x * v);
        Ok(())
    }
}

/// Random numbers that are the same everywhere.
pub(crate) fn noise(shape: &[usize], seed: u64) -> Array {
    let mut random = fastrand::Rng::with_seed(seed);
    Array::from_shape_simple_fn(shape, || random.f32() - 0.25)
}

/// Every operation, on the ranks of `ctx`.
pub(crate) fn facts(ctx: &Context) -> Result<Facts> {
    let mut facts = Facts::new();
    for count in [1, 4, 7] {
        for batch in [1, 3] {
            physics(ctx, count, batch, &mut facts)?;
        }
    }
    nonlinear(ctx, &mut facts)?;
    closures(ctx, &mut facts)?;
    networks(ctx, &mut facts)?;
    exact(ctx, &mut facts)?;
    defaults(ctx, &mut facts)?;
    methods(ctx, &mut facts)?;
    Ok(facts)
}

fn physics(ctx: &Context, count: usize, batch: usize, facts: &mut Facts) -> Result<()> {
    let shape = [2, 5, 7];
    let image = noise(&[batch, 2, 5, 7], 3);
    let operators = || (0..count).map(|index| Dense::operator(index, &shape)).collect::<Vec<_>>();
    let plain = Stack::new(operators())?;
    let last = ctx.size() - 1;
    let options = [
        StackOptions::default(),
        StackOptions { gather: Gather::Naive, ..StackOptions::default() },
        StackOptions { gather: Gather::Broadcast, assignment: Assignment::Balanced },
        StackOptions {
            assignment: Assignment::Costs((0..count).map(|index| index as f64).collect()),
            ..StackOptions::default()
        },
        StackOptions {
            assignment: Assignment::Owners(vec![last; count]),
            ..StackOptions::default()
        },
    ];
    for option in options {
        let stack = distribute_with(plain.clone(), ctx, option.clone())?;
        of_stack(&format!("{count} operators, {batch} images"), &stack, &plain, &image, facts)?;
        let list = distribute_with(operators(), ctx, option)?;
        of_stack(&format!("{count} operators, {batch} images"), &list, &plain, &image, facts)?;
    }
    let shared = Parameters::new()
        .with("scale", noise(&[3], 9))
        .with("level", 0.1)
        .with("count", count as i64)
        .with("padding", "circular");
    let factory = Factory::new(count, move |index, _, shared| {
        assert_eq!(*shared.array("scale")?, noise(&[3], 9));
        assert_eq!((shared.number("level")?, shared.text("padding")?), (0.1, "circular"));
        assert_eq!(shared.integer("count")?, count as i64);
        Ok(Dense::operator(index, &shape))
    });
    // What other ranks give is replaced by what rank 0 gives.
    let factory = factory.shared(if ctx.is_root() { shared } else { Parameters::new() });
    let made = distribute(factory, ctx)?;
    of_stack(&format!("{count} operators, {batch} images"), &made, &plain, &image, facts)
}

/// `plain` has the same operators, on one rank.
fn of_stack(
    name: &str,
    stack: &DistributedStack,
    plain: &Stack,
    image: &Array,
    facts: &mut Facts,
) -> Result<()> {
    equals_plain(stack, plain, image)?;
    terms(stack, plain, image)?;
    let mut add = |what: &str, digest: u64| facts.push((format!("{name}: {what}"), digest));
    let y = stack.forward(image)?;
    assert!(y.is_complete());
    add("forward", digest_all(&y));
    let local = stack.forward_terms(image)?.into_local()?;
    assert!(local.iter().all(|(index, part)| y.get(index) == Some(part)));
    assert_eq!(local.iter().count(), stack.local_indices().len());

    let adjoint = stack.adjoint(&y)?;
    add("adjoint", digest(&adjoint));
    // Measurements that never left their ranks will do.
    assert_eq!(stack.adjoint(&local)?, adjoint);
    add("vjp", digest(&stack.vjp(image, &local)?));
    add("normal", digest(&stack.normal(image)?));
    assert_eq!(stack.normal(image)?, adjoint);
    add("gram", digest_all(&stack.gram(&y)?));
    add("mean of adjoints", digest(&stack.adjoint_terms(&y)?.mean()?));
    add("adjoint, not reduced", digest_all(&stack.adjoint_terms(&y)?.gather()?));
    let noise = [Noise::gaussian(0.1)?];
    add("measure", digest_all(&stack.measure(image, &noise, 5)?));
    let each = vec![Noise::uniform(0.1)?; stack.len()];
    let noisy = stack.measure_terms(image, &each, 5)?.into_local()?;
    for method in [
        LinearSolver::ConjugateGradient,
        LinearSolver::Lsqr,
        LinearSolver::Minres,
        LinearSolver::Bicgstab,
    ] {
        let options =
            least_squares::LeastSquaresOptions { method, max_iterations: 7, ..Default::default() };
        let exact = stack.pseudo_inverse(&noisy, &options)?;
        add(&format!("pseudo-inverse by {method}"), digest(&exact.image));
        add("its residual", exact.report.residual.unwrap_or(-1.0).to_bits());
    }
    let options = least_squares::LeastSquaresOptions { max_iterations: 5, ..Default::default() };
    add("mean of pseudo-inverses", digest(&stack.mean_of_pseudo_inverses(&noisy, &options)?));
    let options = NormOptions { max_iterations: 20, ..NormOptions::default() };
    let norm = stack.squared_norm(&options)?;
    add("squared norm", norm.estimate.to_bits());
    let bound = stack.squared_norm_bound(&options)?;
    assert!(bound * (1.0 + 1e-5) >= norm.lower, "{bound} < {norm:?}");
    add("bound of the squared norm", bound.to_bits());
    fidelities(name, stack, plain, image, &noisy, facts)?;

    let own = stack.adjoint_terms(&y)?.into_local()?;
    let sum = stack.adjoint_terms(&y)?.local_sum()?;
    let by_hand = own.iter().fold(Array::zeros(sum.raw_dim()), |sum, (_, term)| sum + term);
    assert!((&sum - &by_hand).iter().all(|difference| difference.abs() < 1e-5));
    Ok(())
}

/// What a distributed stack does is what the stack does, to the bit.
fn equals_plain(stack: &DistributedStack, plain: &Stack, image: &Array) -> Result<()> {
    let y = plain.forward(image)?;
    assert_eq!(bits_of_all(&stack.forward(image)?), bits_of_all(&y));
    assert_eq!(bits(&stack.adjoint(&y)?), bits(&plain.adjoint(&y)?));
    assert_eq!(bits(&stack.vjp(image, &y)?), bits(&plain.vjp(image, &y)?));
    assert_eq!(bits(&stack.normal(image)?), bits(&plain.normal(image)?));
    assert_eq!(bits_of_all(&stack.gram(&y)?), bits_of_all(&plain.gram(&y)?));
    Ok(())
}

/// The terms of a rank are those of its own operators, and nobody else's.
fn terms(stack: &DistributedStack, plain: &Stack, image: &Array) -> Result<()> {
    let y = plain.forward(image)?;
    let linear = |index: usize| plain.operators()[index].as_linear().expect("a linear operator");
    let check = |local: &Measurements, expected: &dyn Fn(usize, &Array) -> Result<Array>| {
        assert!(local.iter().map(|(index, _)| index).eq(stack.local_indices()));
        for (index, term) in local.iter() {
            assert_eq!(bits(term), bits(&expected(index, term)?), "operator {index}");
        }
        Ok::<_, Error>(())
    };
    let measured = |index: usize| y.get(index).expect("complete measurements");
    check(&stack.vjp_terms(image, &y)?.into_local()?, &|index, _| {
        plain.operators()[index].vjp(image, measured(index))
    })?;
    check(&stack.normal_terms(image)?.into_local()?, &|index, _| linear(index).normal(image))?;
    let gram = plain.gram(&y)?;
    check(&stack.gram_terms(&y)?.into_local()?, &|index, _| {
        Ok(gram.get(index).expect("complete").clone())
    })?;
    // Measurements of different shapes have no sum, wherever it would be taken.
    if stack.len() > 1 {
        for refused in [stack.forward_terms(image)?.sum(), stack.gram_terms(&y)?.local_sum()] {
            let error = refused.expect_err("different shapes").to_string();
            assert!(error.contains("terms of different shapes can be gathered only"), "{error}");
        }
    } else {
        assert_eq!(bits(&stack.forward_terms(image)?.sum()?), bits(measured(0)));
    }
    Ok(())
}

fn fidelities(
    name: &str,
    stack: &DistributedStack,
    plain: &Stack,
    image: &Array,
    noisy: &Measurements,
    facts: &mut Facts,
) -> Result<()> {
    let ctx = stack.context();
    let mixed = |index: usize| -> Arc<dyn Fidelity> {
        if index.is_multiple_of(2) { Arc::new(L2::default()) } else { Arc::new(L1) }
    };
    let list = Fidelities::each((0..stack.len()).map(mixed).collect());
    let factory = FidelityFactory::new(stack.len(), move |index| Ok(mixed(index)));
    let same = distribute(Fidelities::from(L2::new(0.5)?), ctx)?;
    let each = distribute(list.clone(), ctx)?;
    let made = distribute(factory, ctx)?;
    let mean = distribute_with(list.clone(), ctx, FidelityReduction::Mean)?;
    let l2 = Fidelities::from(L2::new(0.5)?);
    local_fidelities(stack, &mean, &list, plain, image, noisy)?;
    // Without noise, all ranks have the measurements of all operators.
    let half = plain.forward(&(image * 0.5))?;
    for (distributed, plain_list) in [(&same, &l2), (&each, &list)] {
        let value = distributed.value(stack, image, &half)?;
        assert_eq!(value.to_bits(), plain_list.value(plain, image, &half)?.to_bits());
        let gradient = distributed.gradient(stack, image, &half)?;
        assert_eq!(bits(&gradient), bits(&plain_list.gradient(plain, image, &half)?));
        let (again, both) = distributed.value_and_gradient(stack, image, &half)?;
        assert_eq!((again.to_bits(), bits(&both)), (value.to_bits(), bits(&gradient)));
    }
    let mut add = |what: &str, digest: u64| facts.push((format!("{name}: {what}"), digest));
    for (what, fidelity) in [("same", &same), ("each", &each), ("made", &made), ("mean", &mean)] {
        add(&format!("value, {what}"), fidelity.value(stack, image, noisy)?.to_bits());
        add(&format!("gradient, {what}"), digest(&fidelity.gradient(stack, image, noisy)?));
    }
    assert_eq!(each.gradient(stack, image, noisy)?, made.gradient(stack, image, noisy)?);
    let options = least_squares::LeastSquaresOptions { max_iterations: 9, ..Default::default() };
    add("prox", digest(&same.prox(stack, image, noisy, 0.7, &options)?.image));
    Ok(())
}

/// Values and gradients of a rank's own operators: neither added nor divided, though the whole is a mean.
fn local_fidelities(
    stack: &DistributedStack,
    mean: &DistributedFidelity,
    list: &Fidelities,
    plain: &Stack,
    image: &Array,
    noisy: &Measurements,
) -> Result<()> {
    let values = mean.local_values(stack, image, noisy)?;
    assert!(values.iter().map(|(index, _)| *index).eq(stack.local_indices()));
    let gradients = mean.gradient_terms(stack, image, noisy)?.into_local()?;
    for (index, value) in values {
        let (fidelity, operator) =
            (list.get(index).expect("one for each"), &plain.operators()[index]);
        let y = noisy.get(index).expect("the rank's own");
        assert_eq!(value.to_bits(), fidelity.value_at(&**operator, image, y)?.to_bits());
        let gradient = fidelity.gradient_at(&**operator, image, y)?;
        assert_eq!(gradients.get(index).map(bits), Some(bits(&gradient)));
    }
    let whole = mean.gradient_terms(stack, image, noisy)?.mean()?;
    assert_eq!(bits(&whole), bits(&mean.gradient(stack, image, noisy)?));
    Ok(())
}

fn nonlinear(ctx: &Context, facts: &mut Facts) -> Result<()> {
    let shape = vec![1, 6, 4];
    let operators: Vec<Arc<dyn Physics>> =
        vec![Arc::new(Square(shape.clone())), Dense::operator(1, &shape), Arc::new(Square(shape))];
    let stack = distribute(operators, ctx)?;
    assert!(!stack.is_linear());
    let image = noise(&[2, 1, 6, 4], 5);
    let y = stack.forward(&image)?;
    facts.push(("nonlinear: forward".into(), digest_all(&y)));
    facts.push(("nonlinear: vjp".into(), digest(&stack.vjp(&image, &y)?)));
    let error = stack.adjoint(&y).expect_err("not linear").to_string();
    assert!(error.contains("not all operators of the stack are linear"), "{error}");

    // Measurements of one shape can be added up: frame by frame, from the first to the last.
    let frame = |_| Arc::new(Square(vec![1, 6, 4])) as Arc<dyn Physics>;
    let frames = distribute((0..3).map(frame).collect::<Vec<_>>(), ctx)?;
    let part = image.mapv(|x| x * x);
    let sum = frames.forward_terms(&image)?.sum()?;
    assert_eq!(bits(&sum), bits(&(&(&part + &part) + &part)));
    facts.push(("nonlinear: sum of measurements".into(), digest(&sum)));
    facts.push(("nonlinear: mean".into(), digest(&frames.forward_terms(&image)?.mean()?)));
    Ok(())
}

/// What each rank's tiles contribute, put together by hand in the order of the tiles.
fn put_together(ctx: &Context, local: LocalTiles, shape: &[usize]) -> Result<Array> {
    let LocalTiles { parts, tiles } = local;
    let indices: Vec<u64> = parts.iter().map(|(tile, _)| *tile as u64).collect();
    let values: Vec<f32> = parts.iter().flat_map(|(_, part)| part.iter().copied()).collect();
    let indices = ctx.comm().all_gather(&indices)?.concat();
    let values = ctx.comm().all_gather(&values)?.concat();
    let planes = shape[0] * shape[1];
    let mut begin = 0;
    let mut all: Vec<(usize, &[f32])> = Vec::new();
    for tile in indices {
        let length = planes * tiles.part_len(tile as usize);
        all.push((tile as usize, &values[begin..begin + length]));
        begin += length;
    }
    assert_eq!((all.len(), begin), (tiles.count(), values.len()));
    all.sort_by_key(|(tile, _)| *tile);
    let mut image = Array::zeros(shape);
    let pixels = image.as_slice_mut().expect("standard layout");
    for (tile, part) in all {
        tiles.place(pixels, part, tile)?;
    }
    Ok(image)
}

/// A denoiser whose result at a pixel depends on its neighbour in the row and on the level.
fn smooth() -> impl Denoiser {
    denoiser_fn("smooth", |image, level| {
        let level = match level {
            NoiseLevel::Uniform(level) => Array::from_elem(image.raw_dim(), *level),
            NoiseLevel::PerImage(levels) => Array::from_shape_fn(image.raw_dim(), |i| levels[i[0]]),
            NoiseLevel::Map(map) => map.broadcast(image.raw_dim()).expect("a map").to_owned(),
        };
        let last = image.ndim() - 1;
        let mut result = image.to_owned();
        for (index, value) in result.indexed_iter_mut() {
            let mut beside = index.clone();
            beside[last] = (index[last] + 1) % image.shape()[last];
            *value += level[&index] * image[&beside];
        }
        Ok(result)
    })
}

/// Denoisers that nobody says how to cut for. Their tiles must not depend on the ranks, or their bits would.
fn defaults(ctx: &Context, facts: &mut Facts) -> Result<()> {
    let mut add = |what: &str, denoiser: &dyn Denoiser, shape: &[usize]| -> Result<()> {
        let result = denoiser.denoise(&noise(shape, 23), &0.2.into())?;
        facts.push((format!("{what} with default tiles, {shape:?}"), digest(&result)));
        Ok(())
    };
    for shape in [&[1, 2, 300, 270][..], &[1, 1, 100, 20, 30], &[2, 1, 600]] {
        let denoiser = distribute(smooth(), ctx)?;
        assert!(denoiser.tiles(shape)?.count() > 1, "{shape:?} is one tile");
        add("smooth", &denoiser, shape)?;
    }
    let network = |channels: usize| -> Result<NetworkDenoiser> {
        let model = Fdncnn { image_channels: channels, depth: 3, channels: 8, ..Fdncnn::default() };
        NetworkDenoiser::new(model.random(2)?, EngineOptions::default())
    };
    // A picture, and a volume whose slices a network of pictures takes one by one: in tiles, and as it is by default, in one
    // part for each rank.
    for (channels, shape) in [(3, &[1, 3, 264, 280][..]), (1, &[1, 1, 20, 33, 40])] {
        let denoiser = distribute_with(network(channels)?, ctx, Tiling::new(Strategy::Overlap))?;
        assert!(denoiser.tiles(shape)?.count() > 1, "{shape:?} is one tile");
        add("fdncnn", &denoiser, shape)?;
        let denoiser = distribute(network(channels)?, ctx)?;
        // Slabs of a volume may be one fewer, if they are hardly larger.
        let parts = denoiser.tiles(shape)?.count();
        assert!(parts <= ctx.size() && 8 * parts >= 7 * ctx.size(), "{shape:?}: {parts}");
        add("fdncnn by default", &denoiser, shape)?;
    }
    Ok(())
}

/// Denoisers that are closures: every strategy, 1 to 3 axes, odd sizes, batches, maps.
fn closures(ctx: &Context, facts: &mut Facts) -> Result<()> {
    let shapes: [&[usize]; 4] = [&[1, 1, 40], &[2, 3, 33, 50], &[1, 1, 9, 20, 17], &[1, 2, 3, 3]];
    for shape in shapes {
        let image = noise(shape, 11);
        let mut one_channel = shape.to_vec();
        one_channel[1] = 1;
        let levels = [
            NoiseLevel::Uniform(0.3),
            NoiseLevel::PerImage((0..shape[0]).map(|index| index as f32).collect()),
            NoiseLevel::Map(noise(&one_channel, 13).mapv(f32::abs)),
        ];
        for strategy in [Strategy::Basic, Strategy::Overlap, Strategy::Blend] {
            for (patch, overlap, border, batch) in [
                (8, 3, Border::Reflect, Batch::AtMost(3)),
                (16, 20, Border::Inside, Batch::Auto),
                (5, 2, Border::Zero, Batch::Memory(1 << 20)),
            ] {
                let tiling = Tiling {
                    strategy,
                    patch: patch.into(),
                    overlap: Extent::Same(overlap).into(),
                    border,
                    batch,
                    ..Tiling::default()
                };
                let blocks = distribute_with(smooth(), ctx, tiling.clone())?;
                let mut options = DenoiserOptions::from(tiling);
                options.dealing = Dealing::RoundRobin;
                let dealt = distribute_with(smooth(), ctx, options)?;
                for level in &levels {
                    let result = blocks.denoise(&image, level)?;
                    assert_eq!(result, dealt.denoise(&image, level)?);
                    let own = blocks.denoise_local(&image, level)?;
                    assert_eq!(bits(&put_together(ctx, own, shape)?), bits(&result));
                    let own = dealt.denoise_local(&image, level)?;
                    assert_eq!(bits(&put_together(ctx, own, shape)?), bits(&result));
                    facts.push((format!("smooth {strategy:?} {patch} {shape:?}"), digest(&result)));
                }
            }
        }
    }
    Ok(())
}

fn networks(ctx: &Context, facts: &mut Facts) -> Result<()> {
    for (rank, shape) in [(2, vec![2, 3, 45, 70]), (3, vec![1, 1, 16, 24, 40])] {
        let channels = shape[1];
        let model = Drunet {
            rank,
            image_channels: channels,
            output_channels: channels,
            channels: [8, 8, 16, 16],
            blocks: 1,
            ..Drunet::default()
        };
        let options = EngineOptions { threads: ctx.threads_per_rank(), ..EngineOptions::default() };
        let network = NetworkDenoiser::new(model.random(1)?, options)?;
        let network = Arc::new(network);
        // How many tiles the network gets at once changes no bit: one, two, four, all of a rank.
        for most in [1, 2, 4, usize::MAX] {
            let tiling = Tiling {
                patch: 16.into(),
                overlap: 8.into(),
                batch: Batch::AtMost(most),
                ..Tiling::new(Strategy::Blend)
            };
            let denoiser = distribute_with(network.clone(), ctx, tiling)?;
            let result = denoiser.denoise(&noise(&shape, 17), &0.1.into())?;
            facts.push((format!("drunet in {rank} dimensions"), digest(&result)));
        }
        let bits: Vec<u64> = facts.iter().rev().take(4).map(|(_, bits)| *bits).collect();
        assert!(bits.iter().all(|other| *other == bits[0]), "batches change bits: {bits:x?}");
    }
    Ok(())
}

/// Networks on one part of the image for each rank: blocks of a picture, slices of a volume, and fewer parts than ranks.
fn exact(ctx: &Context, facts: &mut Facts) -> Result<()> {
    let drunet = Drunet { channels: [8, 8, 16, 16], blocks: 1, ..Drunet::default() }.random(1)?;
    let gray =
        Fdncnn { image_channels: 1, depth: 3, channels: 8, ..Fdncnn::default() }.random(2)?;
    for (name, model, shape) in [
        ("drunet", &drunet, &[2, 3, 101, 150][..]),
        ("drunet", &drunet, &[1, 3, 150, 20]),
        ("fdncnn", &gray, &[1, 1, 3, 13, 20]),
    ] {
        let options = EngineOptions { threads: ctx.threads_per_rank(), ..EngineOptions::default() };
        let network = Arc::new(NetworkDenoiser::new(model.clone(), options)?);
        let (image, level) = (noise(shape, 29), 0.1.into());
        let whole = network.denoise(&image, &level)?;
        let mut grids = vec![Shards::Auto];
        // Slabs and stripes, where the image can be cut into as many.
        let sides = shape.len() - 2;
        let grains = network.grains(shape)?;
        for axis in 0..sides {
            let mut grid = vec![1; sides];
            grid[axis] = ctx.size();
            let shards = Shards::Grid(grid);
            if ShardPlan::with_shards(shape, &grains, &shards, ctx.size()).is_ok() {
                grids.push(shards);
            }
        }
        for shards in grids {
            // Exact, because it is a network.
            let tiling = Tiling { shards, ..Tiling::default() };
            let denoiser = distribute_with(network.clone(), ctx, tiling)?;
            let result = denoiser.denoise(&image, &level)?;
            assert_eq!(bits(&result), bits(&whole), "{name} on {shape:?}");
        }
        facts.push((format!("{name}, exact on {shape:?}"), digest(&whole)));
    }
    Ok(())
}

/// All methods for denoising, inpainting, deblurring and super-resolution: the same bits with the image in shards and on every
/// rank.
fn methods(ctx: &Context, facts: &mut Facts) -> Result<()> {
    let shape = [2, 22, 44];
    let truth = solvers::truth(&shape);
    let space = solvers::space(ctx, truth.shape(), solvers::CUTS[0])?;
    let denoiser: Arc<dyn Denoiser> = Arc::new(TotalVariation { iterations: 5, tolerance: 0.0 });
    for (name, operators) in solvers::PROBLEMS {
        let data = solvers::stack(operators, &shape)?.forward(&truth)?;
        let find = |space| {
            let stack = solvers::stack(operators, &shape)?;
            let problem = solvers::problem(ctx, space, stack, data.clone(), L2::default())?;
            let methods = solvers::methods(&problem, &denoiser)?;
            solvers::run(&problem, &methods, &Start::Adjoint)
        };
        let (whole, parts) = (find(None)?, find(Some(&space))?);
        for ((method, image, numbers), parts) in whole.into_iter().zip(parts) {
            assert!(
                (&method, &image, &numbers) == (&parts.0, &parts.1, &parts.2),
                "{name}, {method}"
            );
            let words = image.into_iter().map(u64::from).chain(numbers);
            facts.push((
                format!("{name} by {method}"),
                words.fold(0, |hash: u64, word| (hash ^ word).wrapping_mul(0x100_0000_01b3)),
            ));
        }
    }
    Ok(())
}

/// The bits of an array, which tell −0 from 0.
fn bits(array: &Array) -> Vec<u32> {
    array.iter().map(|value| value.to_bits()).collect()
}

fn bits_of_all(measurements: &Measurements) -> Vec<(usize, Vec<u32>)> {
    measurements.iter().map(|(index, part)| (index, bits(part))).collect()
}

/// FNV-1a over the bits.
pub(crate) fn digest(array: &Array) -> u64 {
    let bytes = array.iter().flat_map(|value| value.to_bits().to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

fn digest_all(measurements: &Measurements) -> u64 {
    measurements.iter().fold(0, |hash: u64, (index, part)| {
        hash.rotate_left(7) ^ digest(part).wrapping_add(index as u64)
    })
}
