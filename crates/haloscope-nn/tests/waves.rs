//! Networks that run in waves give the bits of the whole image, whatever the network, its size and the memory budget.
//!
//! With assertions on, as in tests, the engine fills every window with NaN before a wave uses it, so a row or a border that is
//! read and was not computed shows in the result.

mod common;

use std::ops::Range;

use haloscope_nn::engine::{Accuracy, Cpu, Engine, EngineOptions, EnginePlan, InstructionSet};
use haloscope_nn::models::{Architecture, Builtin, Dncnn, Drunet, Fdncnn, Unet};
use haloscope_nn::{Conv, Network, NetworkBuilder, Shape, Tensor};

use common::{Kinds, random_network, random_tensor, small_drunet, whole};

/// The least budget that a network can run in: the one that its refusal of a byte names.
fn least(engine: &Cpu, network: &Network, shape: &Shape, options: &EngineOptions) -> usize {
    let options = EngineOptions { memory_budget: Some(1), ..options.clone() };
    let error = engine.plan_waves(network, shape, &options).expect_err("a byte").to_string();
    let words = error.split(' ').collect::<Vec<_>>();
    let at = words.iter().position(|&word| word == "least").expect("it says the least");
    words[at + 1].parse().expect("bytes")
}

/// Runs a network in waves, from slices and by bands, and compares the bits with those of the whole. Returns the number of waves.
fn compare(
    engine: &Cpu,
    network: &Network,
    input: &Tensor,
    expected: &Tensor,
    options: &EngineOptions,
) -> usize {
    let plan = engine.plan_waves(network, input.shape(), options).expect("any size");
    if let Some(budget) = options.memory_budget {
        let memory = plan.memory();
        assert!(memory.total() <= budget, "{memory:?} for a budget of {budget}");
    }
    assert_eq!(plan.output_shape(), expected.shape());
    let mut scratch = plan.scratch();
    let check = |output: &[f32], what: &str| {
        let pairs = output.iter().zip(expected.values());
        let differing = pairs.filter(|(a, b)| a.to_bits() != b.to_bits()).count();
        let (shape, waves) = (input.shape(), plan.waves());
        assert_eq!(differing, 0, "of {} values of {shape} {what}, {waves:?}", output.len());
    };
    let mut output = vec![f32::NAN; expected.values().len()];
    plan.run(input.values(), &mut output, &mut scratch).expect("lengths fit");
    check(&output, "from slices");
    // The second run finds what the first left in the scratch.
    output.fill(f32::NAN);
    by_bands(&*plan, input, &mut output, &mut scratch);
    check(&output, "by bands");
    plan.waves().expect("it runs in waves").count
}

/// The rows of an array as bands come: all planes, some rows.
fn each_row(shape: &Shape, rows: &Range<usize>, mut copy: impl FnMut(Range<usize>, Range<usize>)) {
    let [height, width] = shape.sizes()[shape.sizes().len() - 2..] else { unreachable!() };
    for plane in 0..shape.count() / height / width {
        let band = plane * rows.len() * width;
        let start = (plane * height + rows.start) * width;
        copy(band..band + rows.len() * width, start..start + rows.len() * width);
    }
}

fn by_bands(
    plan: &dyn EnginePlan,
    input: &Tensor,
    output: &mut [f32],
    scratch: &mut haloscope_nn::engine::Scratch,
) {
    let rows_of = |shape: &Shape| shape.sizes()[shape.sizes().len() - 2];
    let (mut read, mut written) = (0, 0);
    let mut source = |rows: Range<usize>, band: &mut [f32]| {
        assert!(rows.start == read && !rows.is_empty(), "{rows:?} after {read} rows");
        read = rows.end;
        each_row(input.shape(), &rows, |to, from| {
            band[to].copy_from_slice(&input.values()[from]);
        });
        Ok(())
    };
    let mut sink = |rows: Range<usize>, band: &[f32]| {
        assert!(rows.start == written && !rows.is_empty(), "{rows:?} after {written} rows");
        written = rows.end;
        each_row(plan.output_shape(), &rows, |from, to| output[to].copy_from_slice(&band[from]));
        Ok(())
    };
    let mut flops = 0.0;
    plan.run_bands(&mut source, &mut sink, scratch, &mut |step, _| flops += step.flops())
        .expect("nothing fails");
    // The rows of all waves are those of the image: nothing is computed twice.
    assert!((flops / plan.flops() - 1.0).abs() < 1e-9, "{flops} of {}", plan.flops());
    assert_eq!((read, written), (rows_of(input.shape()), rows_of(plan.output_shape())));
}

/// The waves of a network with the least budget, one in between, and none.
fn compare_budgets(
    engine: &Cpu,
    network: &Network,
    input: &Tensor,
    options: &EngineOptions,
) -> usize {
    let expected = whole(engine, network, input, options);
    let with_skips = |skips_apart: bool| {
        let options = EngineOptions { skips_apart, ..options.clone() };
        let least = least(engine, network, input.shape(), &options);
        let free = engine.plan_waves(network, input.shape(), &options).expect("any size");
        let between = least.midpoint(free.memory().total().max(least));
        let budgets = [Some(least), Some(between), None].into_iter();
        let waves = budgets.map(|memory_budget| {
            let options = EngineOptions { memory_budget, ..options.clone() };
            compare(engine, network, input, &expected, &options)
        });
        waves.max().expect("three of them")
    };
    with_skips(false).max(with_skips(true))
}

#[test]
fn rows_of_skip_connections_are_kept_apart_if_that_is_asked_for() {
    let (engine, model) = (Cpu::default(), small_drunet(2));
    let shape = Shape::new([1, 4, 1600, 4000]).expect("sizes");
    let memory = |skips_apart: bool| {
        let options = EngineOptions { skips_apart, ..EngineOptions::default() };
        engine.plan_waves(model.network(), &shape, &options).expect("any size").memory()
    };
    let (together, apart) = (memory(false), memory(true));
    assert_eq!(together.apart, 0);
    assert!(apart.apart > 0 && apart.total() < together.total(), "{apart:?} for {together:?}");
    // Nothing else grows but the windows that the rows are copied to.
    assert!(apart.total() + apart.apart < together.total() * 5 / 4, "{apart:?} for {together:?}");
}

#[test]
fn random_networks_have_the_bits_of_the_whole_within_any_budget() {
    let mut random = fastrand::Rng::with_seed(11);
    let (mut most, mut ran) = (0, 0);
    for case in 0..60 {
        let network =
            random_network(&mut random, if case % 3 == 0 { Kinds::Cut } else { Kinds::Any }, 2);
        let sets = InstructionSet::ALL.into_iter().filter(|set| set.is_available());
        let set = random.choice(sets.collect::<Vec<_>>()).expect("there is one");
        let engine = Cpu::with_instructions(set).expect("available");
        let height = if case % 2 == 0 { random.usize(1..400) } else { random.usize(1..60) };
        let width = random.usize(1..40);
        let sizes = [1 + case % 2, network.input_channels(), height, width];
        let input = random_tensor(&mut random, &sizes);
        let accuracy = if case % 5 == 0 { Accuracy::Strict } else { Accuracy::Fast };
        let options = EngineOptions { threads: 1 + case % 2, accuracy, ..EngineOptions::default() };
        // Reflections of more rows than there are do not exist.
        if engine.plan(&network, input.shape(), &options).is_err() {
            continue;
        }
        most = most.max(compare_budgets(&engine, &network, &input, &options));
        ran += 1;
    }
    assert!(ran > 30 && most > 20, "{ran} networks ran, in at most {most} waves");
}

#[test]
fn models_have_the_bits_of_the_whole_at_every_height() {
    let mut random = fastrand::Rng::with_seed(12);
    let drunet = small_drunet(2);
    let dncnn = Dncnn { depth: 6, channels: 12, ..Dncnn::default() }.random(3).expect("valid");
    let fdncnn = Fdncnn { depth: 4, channels: 10, ..Fdncnn::default() }.random(5).expect("valid");
    let unet = Unet { channels: vec![8, 12, 16], ..Unet::default() }.random(4).expect("valid");
    for (model, heights) in [
        (&drunet, &[1, 7, 8, 9, 47, 95, 193, 200, 333, 400][..]),
        (&dncnn, &[1, 2, 5, 6, 7, 143, 144, 145, 399]),
        (&fdncnn, &[1, 13, 255]),
        (&unet, &[1, 3, 21, 97, 385]),
    ] {
        let network = model.network();
        for (index, &height) in heights.iter().enumerate() {
            let input =
                random_tensor(&mut random, &[1, network.input_channels(), height, 30 + index]);
            let options = EngineOptions { threads: 1 + index % 2, ..EngineOptions::default() };
            compare_budgets(&Cpu::default(), network, &input, &options);
        }
    }
}

#[test]
fn the_built_in_denoisers_and_a_volume_have_the_bits_of_the_whole() {
    let mut random = fastrand::Rng::with_seed(13);
    let options = EngineOptions { threads: 2, ..EngineOptions::default() };
    for builtin in [Builtin::Gray, Builtin::Color] {
        let model = builtin.model().expect("it is part of the crate");
        let network = model.network();
        let input = random_tensor(&mut random, &[1, network.input_channels(), 357, 45]);
        assert!(compare_budgets(&Cpu::default(), network, &input, &options) > 4);
    }
    let volume = small_drunet(3);
    let input = random_tensor(&mut random, &[1, volume.network().input_channels(), 9, 211, 20]);
    assert!(compare_budgets(&Cpu::default(), volume.network(), &input, &options) > 3);
}

#[test]
fn the_full_drunet_has_the_bits_of_the_whole() {
    let model = Drunet::default().random(1).expect("valid");
    let mut random = fastrand::Rng::with_seed(14);
    let input = random_tensor(&mut random, &[1, 4, 1203, 8]);
    let (engine, options) =
        (Cpu::default(), EngineOptions { threads: 2, ..EngineOptions::default() });
    let expected = whole(&engine, model.network(), &input, &options);
    let least = least(&engine, model.network(), input.shape(), &options);
    let tight = EngineOptions { memory_budget: Some(least), ..options };
    let waves = compare(&engine, model.network(), &input, &expected, &tight);
    assert!(waves > 4, "{waves} waves");
}

#[test]
fn memory_depends_on_the_width_and_not_on_the_height() {
    let model = small_drunet(2);
    let engine = Cpu::default();
    let plan = |height, width| {
        let shape = Shape::new([1, 4, height, width]).expect("small");
        engine.plan_waves(model.network(), &shape, &EngineOptions::default()).expect("any size")
    };
    let bytes = |height, width| plan(height, width).memory().total();
    assert_eq!(bytes(4000, 64), bytes(40_000, 64));
    let ratio = bytes(4000, 4096) as f64 / bytes(4000, 2048) as f64;
    assert!((1.5..2.1).contains(&ratio), "{ratio}");
    let (short, long) = (plan(4000, 64), plan(40_000, 64));
    let (short, long) = (short.waves().expect("waves"), long.waves().expect("waves"));
    assert_eq!((short.band, &short.delays), (long.band, &long.delays));
    // Each layer is behind those that it reads, and waves end soon after the last layer has caught up.
    assert!(short.delay() > short.delays[0]);
    assert!((short.count - 2) * short.band < 4000 + short.delay(), "{short:?}");
    // Nothing is computed twice.
    let shape = Shape::new([1, 4, 400, 64]).expect("small");
    let whole = engine.plan(model.network(), &shape, &EngineOptions::default()).expect("any size");
    assert_eq!(plan(400, 64).flops().to_bits(), whole.flops().to_bits());
}

#[test]
fn a_band_that_cannot_be_read_or_written_ends_the_run_and_the_next_one_works() {
    let model = small_drunet(2);
    let shape = Shape::new([1, 4, 900, 8]).expect("small");
    let engine = Cpu::default();
    let budget = least(&engine, model.network(), &shape, &EngineOptions::default());
    let options = EngineOptions { memory_budget: Some(budget), ..EngineOptions::default() };
    let plan = engine.plan_waves(model.network(), &shape, &options).expect("any size");
    let mut scratch = plan.scratch();
    let mut good = |_: Range<usize>, band: &mut [f32]| {
        band.fill(0.5);
        Ok(())
    };
    let mut bad = |rows: Range<usize>, _: &mut [f32]| {
        if rows.start > 0 { Err(format!("row {} is damaged", rows.start)) } else { Ok(()) }
    };
    let mut full = |_: Range<usize>, _: &[f32]| Err("the disk is full".to_owned());
    let error = plan.run_bands(&mut bad, &mut |_, _| Ok(()), &mut scratch, &mut |_, _| ());
    assert!(error.expect_err("damaged").to_string().contains("is damaged"));
    let error = plan.run_bands(&mut good, &mut full, &mut scratch, &mut |_, _| ());
    assert_eq!(error.expect_err("full").to_string(), "the disk is full");
    plan.run_bands(&mut good, &mut |_, _| Ok(()), &mut scratch, &mut |_, _| ()).expect("good");
    let other = Cpu::default().plan(model.network(), &shape, &EngineOptions::default());
    let mut other = other.expect("any size").scratch();
    let error = plan.run_bands(&mut good, &mut |_, _| Ok(()), &mut other, &mut |_, _| ());
    assert!(error.expect_err("not its scratch").to_string().contains("scratch"));
}

#[test]
fn an_output_of_another_size_than_the_input_is_written_by_bands_too() {
    let mut random = fastrand::Rng::with_seed(15);
    let mut builder = NetworkBuilder::new("valid", 2).expect("rank");
    let mut at = builder.input(3).expect("first");
    for index in 0..4 {
        let inputs = builder.channels(at);
        let weight = random_tensor(&mut random, &[5, inputs, 3, 3]);
        at = builder.conv(format!("conv{index}"), Conv::new(weight), at).expect("fits");
    }
    let network = builder.finish(at).expect("used");
    let input = random_tensor(&mut random, &[1, 3, 300, 33]);
    compare_budgets(&Cpu::default(), &network, &input, &EngineOptions::default());
}
