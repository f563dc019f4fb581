//! The engine against the networks' definition in f64: kernels on random shapes, whole models,
//! threads, batches, sizes, budgets.

use haloscope_nn::engine::{Accuracy, Cpu, Engine, EngineOptions, InstructionSet, Scratch};
use haloscope_nn::models::{Architecture, Dncnn, Downsampling, Drunet, Unet, Upsampling};
use haloscope_nn::{
    Activation, Conv, ConvTranspose, Network, NetworkBuilder, NodeId, Op, PaddingMode, Pool,
    PoolKind, Shape, Tensor, UpsampleMode, run_reference,
};

fn random_tensor(random: &mut fastrand::Rng, sizes: &[usize]) -> Tensor {
    let shape = Shape::new(sizes).expect("small");
    let values: Vec<f32> = (0..shape.count()).map(|_| random.f32() * 2.0 - 1.0).collect();
    Tensor::new(shape, values).expect("as many as the shape says")
}

fn run(network: &Network, input: &Tensor, options: &EngineOptions) -> Tensor {
    run_on(&Cpu::default(), network, input, options)
}

fn run_on(
    engine: &dyn Engine,
    network: &Network,
    input: &Tensor,
    options: &EngineOptions,
) -> Tensor {
    let plan = engine.plan(network, input.shape(), options).expect("the network can be planned");
    let mut output = vec![f32::NAN; plan.output_shape().count()];
    let mut scratch = plan.scratch();
    plan.run(input.values(), &mut output, &mut scratch).expect("lengths fit");
    // A second run finds what the first left in the scratch.
    let mut again = vec![f32::NAN; output.len()];
    plan.run(input.values(), &mut again, &mut scratch).expect("lengths fit");
    assert_eq!(output, again, "a second run differs");
    Tensor::new(plan.output_shape().clone(), output).expect("the plan's shape")
}

/// ‖a − b‖ / ‖b‖.
fn relative_error(a: &Tensor, b: &Tensor) -> f64 {
    assert_eq!(a.shape(), b.shape());
    let pairs = || a.values().iter().zip(b.values());
    let difference: f64 = pairs().map(|(a, b)| f64::from(a - b).powi(2)).sum();
    let norm: f64 = pairs().map(|(_, b)| f64::from(*b).powi(2)).sum();
    (difference / norm.max(1e-30)).sqrt()
}

fn instruction_sets() -> impl Iterator<Item = InstructionSet> {
    InstructionSet::ALL.into_iter().filter(|set| {
        if !set.is_available() {
            eprintln!("skipped: {set:?}, which this CPU does not have");
        }
        set.is_available()
    })
}

/// A network of one operation after the input.
fn single(channels: usize, rank: usize, op: Op) -> Network {
    let mut builder = NetworkBuilder::new("single", rank).expect("rank");
    let input = builder.input(channels).expect("first");
    let node = builder.push("node", op, &[input]).expect("fits");
    builder.finish(node).expect("all used")
}

/// Compares all instruction sets and accuracies with the definition.
fn check(network: &Network, input: &Tensor, tolerance: f64) {
    let expected = run_reference(network, input).expect("the reference runs");
    let mut avx2: Vec<Tensor> = Vec::new();
    for instructions in instruction_sets() {
        let engine = Cpu::with_instructions(instructions).expect("it is available");
        for accuracy in [Accuracy::Fast, Accuracy::Strict] {
            let options = EngineOptions { accuracy, ..EngineOptions::default() };
            let result = run_on(&engine, network, input, &options);
            match instructions {
                InstructionSet::Avx2 => avx2.push(result.clone()),
                InstructionSet::Avx512 => {
                    assert!(avx2.contains(&result), "AVX-512 has other bits than AVX2");
                }
                _ => {}
            }
            let corner = Tensor::new(expected.shape().clone(), crop(&result, expected.shape()));
            let error = relative_error(&corner.expect("cropped"), &expected);
            assert!(
                error < tolerance,
                "{instructions:?} {accuracy:?}: error {error:.2e} for input {} of {:?}",
                input.shape(),
                network.nodes().iter().map(haloscope_nn::Node::op).collect::<Vec<_>>()
            );
        }
    }
}

/// The first values of each axis: an input that strides do not divide is extended by the engine,
/// which makes the output larger than the definition's.
fn crop(tensor: &Tensor, shape: &Shape) -> Vec<f32> {
    let (from, to) = (tensor.shape().sizes(), shape.sizes());
    assert!(from.iter().zip(to).all(|(from, to)| from >= to), "{from:?} for {to:?}");
    (0..shape.count())
        .map(|mut index| {
            let (mut at, mut stride) = (0, 1);
            for axis in (0..to.len()).rev() {
                at += index % to[axis] * stride;
                index /= to[axis];
                stride *= from[axis];
            }
            tensor.values()[at]
        })
        .collect()
}

#[test]
fn convolutions_of_3_by_3_on_random_shapes_are_those_of_the_definition() {
    let mut random = fastrand::Rng::with_seed(1);
    for case in 0..60 {
        let (inputs, outputs) = (random.usize(1..40), random.usize(1..50));
        // Sides below a tile, of one pixel, and of several tiles.
        let [height, width] =
            [0; 2].map(|_| random.choice([1, 2, 3, 5, 7, 12, 13, 20]).expect("some"));
        let weight = random_tensor(&mut random, &[outputs, inputs, 3, 3]);
        let bias = (case % 2 == 0).then(|| random_tensor(&mut random, &[outputs]));
        let network = single(inputs, 2, Op::Conv(Conv::new(weight).bias(bias).padding(1)));
        let batch = random.usize(1..4);
        check(&network, &random_tensor(&mut random, &[batch, inputs, height, width]), 5e-6);
    }
}

#[test]
fn volumes_are_convolved_as_the_definition_says() {
    let mut random = fastrand::Rng::with_seed(2);
    for case in 0..30 {
        let (inputs, outputs) = (random.usize(1..20), random.usize(1..34));
        let [depth, height, width] =
            [0; 3].map(|_| random.choice([1, 2, 3, 5, 8, 11]).expect("some"));
        let weight = random_tensor(&mut random, &[outputs, inputs, 3, 3, 3]);
        let bias = (case % 2 == 0).then(|| random_tensor(&mut random, &[outputs]));
        let network = single(inputs, 3, Op::Conv(Conv::new(weight).bias(bias).padding(1)));
        let batch = 1 + case % 2;
        check(&network, &random_tensor(&mut random, &[batch, inputs, depth, height, width]), 5e-6);
    }
}

/// What each step of a plan does.
fn methods(network: &Network, shape: &Shape, options: &EngineOptions) -> Vec<String> {
    let plan = Cpu::default().plan(network, shape, options).expect("the network can be planned");
    plan.steps().iter().map(|step| step.method().to_owned()).collect()
}

#[test]
fn tiles_along_depth_convolve_as_the_definition_says_at_every_depth() {
    let mut random = fastrand::Rng::with_seed(12);
    let fast = EngineOptions::default();
    let strict = EngineOptions { accuracy: Accuracy::Strict, ..fast.clone() };
    let tiles = ["F(2×6×6)", "F(2×4×4)", "F(2×2×2)"];
    let mut seen = [0; 3];
    for case in 0..42 {
        // Of 4² where that divides the sides and of 6² elsewhere; few channels have flat tiles.
        let (depth, channels, sides) = match case {
            0..14 => (8 + case % 9, 24, &[4, 8][..]),
            14..28 => (8 + case % 9, 24, &[5, 12][..]),
            _ => (8 + case % 9, 1, &[1, 4, 5, 9, 13][..]),
        };
        let (inputs, outputs) = (random.usize(channels..40), random.usize(channels..50));
        let [height, width] = [0; 2].map(|_| *random.choice(sides).expect("some"));
        let weight = random_tensor(&mut random, &[outputs, inputs, 3, 3, 3]);
        let bias = (case % 2 == 0).then(|| random_tensor(&mut random, &[outputs]));
        // Without padding along depth, too.
        let padding = vec![usize::from(case % 3 > 0), 1, 1];
        let conv = Conv { padding, ..Conv::new(weight).bias(bias) };
        let network = single(inputs, 3, Op::Conv(conv));
        let input = random_tensor(&mut random, &[1 + case % 2, inputs, depth, height, width]);
        let found = [&fast, &strict].map(|options| methods(&network, input.shape(), options));
        for (seen, method) in seen.iter_mut().zip(tiles) {
            *seen += found.iter().flatten().filter(|found| found.contains(method)).count();
        }
        check(&network, &input, 5e-6);
    }
    assert!(seen.iter().all(|&count| count > 3), "{tiles:?}: {seen:?}");
}

#[test]
fn tiles_along_depth_are_about_as_accurate_as_those_of_planes() {
    let mut random = fastrand::Rng::with_seed(13);
    let weight = random_tensor(&mut random, &[32, 32, 3, 3, 3]);
    let network = single(32, 3, Op::Conv(Conv::new(weight).padding(1)));
    // The tile of a mode depends on the depth: flat ones for few planes.
    let cases = [
        (Accuracy::Fast, [[7, 36, 36], [8, 36, 36]], ["F(6×6)", "F(2×6×6)"]),
        (Accuracy::Fast, [[7, 8, 8], [8, 8, 8]], ["F(4×4)", "F(2×4×4)"]),
        (Accuracy::Strict, [[7, 12, 12], [8, 12, 12]], ["F(2×2)", "F(2×2×2)"]),
    ];
    for (accuracy, shapes, tiles) in cases {
        let options = EngineOptions { accuracy, ..EngineOptions::default() };
        let mut error_of = |[depth, height, width]: [usize; 3], tile: &str| {
            let input = random_tensor(&mut random, &[1, 32, depth, height, width]);
            let found = methods(&network, input.shape(), &options);
            assert!(found.iter().any(|method| method.contains(tile)), "{found:?}, not {tile}");
            let expected = run_reference(&network, &input).expect("the reference runs");
            let error = relative_error(&run(&network, &input, &options), &expected);
            println!("{accuracy:?} {found:?}: {error:.2e}");
            error
        };
        let [flat, deep] = [0, 1].map(|index| error_of(shapes[index], tiles[index]));
        assert!(deep < 1.5 * flat, "{tiles:?}: {deep:.2e} and {flat:.2e}");
    }
}

#[test]
fn any_kernel_stride_and_padding_convolves_as_the_definition_says() {
    let mut random = fastrand::Rng::with_seed(3);
    let modes =
        [PaddingMode::Zero, PaddingMode::Reflect, PaddingMode::Replicate, PaddingMode::Circular];
    for case in 0..120 {
        let rank = if case % 5 == 0 { 3 } else { 2 };
        let kernel = random.usize(1..6);
        let padding = random.usize(0..=kernel / 2 + 1);
        let (inputs, outputs) = (random.usize(1..12), random.usize(1..36));
        let mut sizes = vec![outputs, inputs];
        sizes.resize(2 + rank, kernel);
        let weight = random_tensor(&mut random, &sizes);
        let stride = random.usize(1..4);
        let conv = Conv::new(weight).stride(stride).padding(padding).mode(modes[case % 4]);
        let network = single(inputs, rank, Op::Conv(conv));
        // Multiples of the stride: others are extended, and then the border differs.
        let least = kernel.max(padding + 1).div_ceil(stride);
        let mut sizes = vec![random.usize(1..3), inputs];
        sizes.resize_with(2 + rank, || stride * random.usize(least..least + 5));
        check(&network, &random_tensor(&mut random, &sizes), 5e-6);
    }
}

#[test]
fn transposed_convolutions_are_those_of_the_definition() {
    let mut random = fastrand::Rng::with_seed(4);
    let kernels =
        [(2, 2, 0), (4, 2, 1), (3, 2, 1), (3, 1, 1), (5, 2, 0), (6, 2, 2), (1, 2, 0), (7, 1, 0)];
    for case in 0..80 {
        let rank = if case % 4 == 0 { 3 } else { 2 };
        let (kernel, stride, padding) = random.choice(kernels).expect("some");
        let (inputs, outputs) = (random.usize(1..20), random.usize(1..36));
        let mut sizes = vec![inputs, outputs];
        sizes.resize(2 + rank, kernel);
        let conv = ConvTranspose::new(random_tensor(&mut random, &sizes))
            .stride(stride)
            .padding(padding)
            .bias(random_tensor(&mut random, &[outputs]));
        let network = single(inputs, rank, Op::ConvTranspose(conv));
        let mut sizes = vec![random.usize(1..3), inputs];
        sizes.resize_with(2 + rank, || random.usize(2..9));
        check(&network, &random_tensor(&mut random, &sizes), 5e-6);
    }
}

#[test]
fn every_other_operation_is_that_of_the_definition() {
    let mut random = fastrand::Rng::with_seed(5);
    for rank in [2, 3] {
        let affine = Op::Affine {
            scale: random_tensor(&mut random, &[16]),
            shift: random_tensor(&mut random, &[16]),
        };
        let ops = [
            affine,
            Op::Activation(Activation::Relu),
            Op::Activation(Activation::LeakyRelu(0.2)),
            Op::Activation(Activation::Elu(0.7)),
            Op::Activation(Activation::Softplus),
            Op::Scale(-2.5),
            Op::Pool(Pool::new(PoolKind::Average, rank, 2)),
            Op::Pool(Pool::new(PoolKind::Max, rank, 2)),
            Op::Upsample { factor: 2, mode: UpsampleMode::Nearest },
            Op::Upsample { factor: 2, mode: UpsampleMode::Linear },
            Op::Upsample { factor: 3, mode: UpsampleMode::Linear },
            Op::PixelShuffle(2),
            Op::PixelUnshuffle(2),
        ];
        for op in ops {
            let mut sizes = vec![2, 16];
            sizes.resize_with(2 + rank, || 2 * random.usize(1..5));
            check(&single(16, rank, op), &random_tensor(&mut random, &sizes), 1e-6);
        }
    }
}

/// Sums and activations that can and that cannot become part of a convolution.
fn branches(random: &mut fastrand::Rng, channels: usize, activation: Activation) -> Network {
    let mut builder = NetworkBuilder::new("branches", 2).expect("rank");
    let input = builder.input(channels).expect("first");
    let mut conv = |builder: &mut NetworkBuilder, name: &str, from: NodeId, outputs: usize| {
        let weight = random_tensor(random, &[outputs, builder.channels(from), 3, 3]);
        let bias = random_tensor(random, &[outputs]);
        builder.conv(name, Conv::new(weight).bias(bias).padding(1), from).expect("fits")
    };
    let first = conv(&mut builder, "first", input, 24);
    let relu = builder.activation("relu", activation, first).expect("fits");
    let second = conv(&mut builder, "second", relu, channels);
    let sum = builder.push("sum", Op::Add, &[input, second]).expect("fits");
    let twice = builder.push("twice", Op::Add, &[sum, input]).expect("fits");
    let late = builder.activation("late", activation, twice).expect("fits");
    let concat = builder.push("concat", Op::Concat, &[late, input, relu]).expect("fits");
    let third = conv(&mut builder, "third", concat, 3);
    let fourth = conv(&mut builder, "fourth", late, 3);
    let elu = builder.activation("elu", Activation::Elu(1.0), fourth).expect("fits");
    let last = builder.push("last", Op::Add, &[third, elu, third]).expect("fits");
    builder.finish(last).expect("all used")
}

#[test]
fn fused_sums_and_activations_change_nothing() {
    let mut random = fastrand::Rng::with_seed(6);
    let leaky = Activation::LeakyRelu(0.1);
    for (channels, activation) in
        [(3, Activation::Relu), (8, leaky), (13, leaky), (16, Activation::Relu)]
    {
        let network = branches(&mut random, channels, activation);
        let input = random_tensor(&mut random, &[2, channels, 14, 9]);
        check(&network, &input, 5e-6);
    }
}

fn small_drunet(rank: usize) -> Drunet {
    Drunet { rank, channels: [16, 24, 32, 48], blocks: 2, ..Drunet::default() }
}

#[test]
fn whole_models_keep_the_accuracy_of_their_mode() {
    let mut random = fastrand::Rng::with_seed(7);
    let shuffled = Drunet {
        downsampling: Downsampling::MaxPool,
        upsampling: Upsampling::PixelShuffle,
        activation: Activation::Elu(1.0),
        ..small_drunet(2)
    };
    let models = [
        ("drunet", small_drunet(2).random(1), vec![24; 2]),
        ("volume", small_drunet(3).random(2), vec![8; 3]),
        ("deep volume", small_drunet(3).random(2), vec![32, 8, 16]),
        ("dncnn", Dncnn { depth: 7, channels: 32, ..Dncnn::default() }.random(3), vec![23; 2]),
        ("unet", Unet { channels: vec![16, 24, 32], ..Unet::default() }.random(4), vec![24; 2]),
        ("pool and shuffle", shuffled.random(5), vec![16; 2]),
    ];
    for (name, model, sides) in models {
        let model = model.expect("the options are valid");
        let network = model.network();
        let sizes = [vec![1, network.input_channels()], sides].concat();
        let input = random_tensor(&mut random, &sizes);
        let expected = run_reference(network, &input).expect("aligned");
        for (accuracy, most) in [(Accuracy::Fast, 2e-5), (Accuracy::Strict, 2e-6)] {
            let options = EngineOptions { accuracy, threads: 2, ..EngineOptions::default() };
            let error = relative_error(&run(network, &input, &options), &expected);
            println!("{name} {accuracy:?}: {error:.2e}");
            assert!(error < most, "{name} {accuracy:?}: {error:.2e}");
        }
    }
}

#[test]
fn threads_do_not_change_a_bit() {
    let mut random = fastrand::Rng::with_seed(8);
    for (model, side) in [
        (small_drunet(2).random(1), 40),
        (small_drunet(3).random(1), 16),
        (small_drunet(3).random(1), 24),
    ] {
        let model = model.expect("valid");
        let network = model.network();
        let mut sizes = vec![1, network.input_channels()];
        sizes.resize(2 + network.rank(), side);
        let input = random_tensor(&mut random, &sizes);
        let one = run(network, &input, &EngineOptions::default());
        for threads in [2, 3] {
            let options = EngineOptions { threads, ..EngineOptions::default() };
            assert_eq!(run(network, &input, &options), one, "{threads} threads");
        }
    }
}

#[test]
fn a_batch_gives_the_bits_of_its_images() {
    let mut random = fastrand::Rng::with_seed(9);
    let model = small_drunet(2).random(1).expect("valid");
    let batch = random_tensor(&mut random, &[3, 4, 24, 32]);
    let together = run(model.network(), &batch, &EngineOptions::default());
    let images = batch.values().chunks(4 * 24 * 32);
    for (image, expected) in images.zip(together.values().chunks(3 * 24 * 32)) {
        let shape = Shape::new([1, 4, 24, 32]).expect("small");
        let image = Tensor::new(shape, image.to_vec()).expect("one image");
        assert_eq!(run(model.network(), &image, &EngineOptions::default()).values(), expected);
    }
}

#[test]
fn one_plan_runs_on_several_threads_at_once() {
    let mut random = fastrand::Rng::with_seed(10);
    let model = small_drunet(2).random(1).expect("valid");
    let input = random_tensor(&mut random, &[1, 4, 24, 24]);
    let options = EngineOptions { threads: 2, ..EngineOptions::default() };
    let plan = Cpu::default().plan(model.network(), input.shape(), &options).expect("aligned");
    let expected = run(model.network(), &input, &options);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut output = vec![0.0; plan.output_shape().count()];
                let mut scratch = plan.scratch();
                for _ in 0..3 {
                    plan.run(input.values(), &mut output, &mut scratch).expect("lengths fit");
                    assert_eq!(output, expected.values());
                }
            });
        }
    });
}

#[test]
fn sizes_that_are_not_aligned_are_extended_by_reflection_and_cut() {
    let mut random = fastrand::Rng::with_seed(11);
    let model = small_drunet(2).random(1).expect("valid");
    let (height, width) = (21, 30);
    let input = random_tensor(&mut random, &[1, 4, height, width]);
    let mirror = |position: usize, size: usize| {
        if position < size { position } else { 2 * (size - 1) - position }
    };
    let mut extended = Vec::new();
    for channel in 0..4 {
        for row in 0..24 {
            for column in 0..32 {
                let at = (channel * height + mirror(row, height)) * width + mirror(column, width);
                extended.push(input.values()[at]);
            }
        }
    }
    let shape = Shape::new([1, 4, 24, 32]).expect("small");
    let extended = Tensor::new(shape, extended).expect("fits");
    let whole = run(model.network(), &extended, &EngineOptions::default());
    let cut = run(model.network(), &input, &EngineOptions::default());
    assert_eq!(cut.shape().sizes(), [1, 3, height, width]);
    assert_eq!(cut.values(), crop(&whole, cut.shape()));
}

#[test]
fn tiny_images_run() {
    let mut random = fastrand::Rng::with_seed(12);
    let model = small_drunet(2).random(1).expect("valid");
    for (height, width) in [(1, 1), (1, 9), (3, 2)] {
        let input = random_tensor(&mut random, &[1, 4, height, width]);
        let output = run(model.network(), &input, &EngineOptions::default());
        assert_eq!(output.shape().sizes(), [1, 3, height, width]);
        assert!(output.values().iter().all(|value| value.is_finite()));
    }
}

#[test]
fn a_memory_budget_is_kept_and_the_result_stays_right() {
    let mut random = fastrand::Rng::with_seed(13);
    let model = Drunet { channels: [32, 64, 128, 128], blocks: 1, ..Drunet::default() };
    let model = model.random(1).expect("valid");
    let input = random_tensor(&mut random, &[1, 4, 32, 32]);
    let free = Cpu::default()
        .plan(model.network(), input.shape(), &EngineOptions::default())
        .expect("aligned");
    let expected = run(model.network(), &input, &EngineOptions::default());
    for percent in [80, 60, 45] {
        let budget = free.memory().total() * percent / 100;
        let options = EngineOptions { memory_budget: Some(budget), ..EngineOptions::default() };
        let plan = Cpu::default().plan(model.network(), input.shape(), &options).expect("fits");
        assert!(plan.memory().total() <= budget, "{:?} for {budget}", plan.memory());
        assert!(relative_error(&run(model.network(), &input, &options), &expected) < 2e-5);
    }
    let options = EngineOptions { memory_budget: Some(1000), ..EngineOptions::default() };
    let error =
        Cpu::default().plan(model.network(), input.shape(), &options).expect_err("too little");
    assert!(error.to_string().contains("1000 bytes; at least"), "{error}");
}

#[test]
fn plans_for_other_shapes_give_the_same_bits_as_plans_that_share_nothing() {
    let mut random = fastrand::Rng::with_seed(14);
    let model = small_drunet(2).random(1).expect("valid");
    let network = model.network();
    let engine = Cpu::default();
    let first = Shape::new([1, 4, 40, 40]).expect("small");
    let kept = engine.plan(network, &first, &EngineOptions::default()).expect("aligned");
    for sizes in [[2, 4, 40, 40], [1, 4, 16, 64], [1, 4, 9, 100]] {
        let input = random_tensor(&mut random, &sizes);
        let options = EngineOptions { threads: 2, ..EngineOptions::default() };
        let shared = run_on(&engine, &network.clone(), &input, &options);
        assert_eq!(shared, run(network, &input, &options));
    }
    // The same names, other weights: nothing may be shared.
    let stranger = small_drunet(2).random(2).expect("valid");
    let input = random_tensor(&mut random, &[1, 4, 40, 40]);
    let result = run_on(&engine, stranger.network(), &input, &EngineOptions::default());
    assert_eq!(result, run(stranger.network(), &input, &EngineOptions::default()));
    drop(kept);
}

#[test]
fn memory_grows_with_pixels_and_has_no_spikes() {
    let model = small_drunet(2).random(1).expect("valid");
    let per_pixel = |width: usize| {
        let shape = Shape::new([1, 4, 256, width]).expect("small");
        let plan = Cpu::default()
            .plan(model.network(), &shape, &EngineOptions::default())
            .expect("any width");
        let memory = plan.memory();
        (memory.activations + memory.workspace) as f64 / (256 * width) as f64
    };
    let widths = (1024..=2048).step_by(64).chain((1024..=2048).step_by(68));
    let bytes: Vec<f64> = widths.map(per_pixel).collect();
    let least = bytes.iter().copied().fold(f64::INFINITY, f64::min);
    let most = bytes.iter().copied().fold(0.0, f64::max);
    assert!(most < 1.1 * least, "{least:.1} to {most:.1} bytes per pixel");
}

/// Widths at which a well-known implementation takes several times as much as at their neighbours, because it runs in one piece
/// where a side can be halved often enough and in four where it cannot. Nothing is run.
#[test]
fn the_full_drunet_is_planned_without_spikes_at_a_height_of_2048() {
    let model = Drunet::default().random(1).expect("valid");
    let network = model.network();
    let shape = |width: usize| Shape::new([1, 4, 2048, width]).expect("small");
    let options = EngineOptions::default();
    let engine = Cpu::default();
    // Kept, so that the others find its weights.
    let first = engine.plan(network, &shape(1224), &options).expect("any width");
    assert!(first.memory().total() > 0);
    let bytes = |width: usize| {
        let plan = engine.plan(network, &shape(width), &options).expect("any width");
        let memory = plan.memory();
        (memory.activations + memory.workspace) as f64
    };
    let widths = [1216, 1224, 1228, 1232, 1288, 1292, 1296, 1300, 1304];
    let all: Vec<f64> = widths.iter().map(|width| bytes(*width)).collect();
    // A line through the first and the last, from which none differs by more than a hundredth.
    let slope = (all[8] - all[0]) / (widths[8] - widths[0]) as f64;
    for (width, found) in widths.iter().zip(&all) {
        let line = all[0] + slope * (width - widths[0]) as f64;
        assert!((found / line - 1.0).abs() < 0.01, "{found:e} bytes at {width}, not {line:e}");
    }
    // Sides are rounded up to multiples of 8: 1228 takes no more than 1232.
    assert!(all.windows(2).all(|pair| pair[0] <= pair[1]), "{all:?}");
    assert!(all[2] <= all[3] && all[7] <= all[8], "{all:?}");
    // Of the order of the pixels times the channels of a few layers.
    let per_pixel = all[6] / (2048.0 * 1296.0);
    assert!((300.0..2000.0).contains(&per_pixel), "{per_pixel} bytes for a pixel");
}

#[test]
fn a_shape_that_no_memory_could_hold_is_refused() {
    let model = small_drunet(2).random(1).expect("valid");
    let shape = Shape::new([1, 4, 1 << 24, 1 << 24]).expect("it can be addressed");
    let error = Cpu::default()
        .plan(model.network(), &shape, &EngineOptions::default())
        .expect_err("too large");
    assert!(error.to_string().contains("no memory could hold"), "{error}");
}

#[test]
fn wrong_lengths_and_foreign_scratch_are_refused() {
    let model = small_drunet(2).random(1).expect("valid");
    let plan = |side| {
        let shape = Shape::new([1, 4, side, side]).expect("small");
        Cpu::default().plan(model.network(), &shape, &EngineOptions::default()).expect("aligned")
    };
    let (small, large) = (plan(16), plan(32));
    let mut output = vec![0.0; 3 * 32 * 32];
    let error = large.run(&[0.0; 5], &mut output, &mut large.scratch()).expect_err("five values");
    assert_eq!(error.to_string(), "input: 5 values; the plan's shape 1×4×32×32 needs 4096");
    let input = vec![0.0; 4 * 32 * 32];
    assert!(large.run(&input, &mut output, &mut small.scratch()).is_err());
    let error = large.run(&input, &mut output, &mut Scratch::new(())).expect_err("not the CPU's");
    assert!(error.to_string().contains("another engine"), "{error}");
}
