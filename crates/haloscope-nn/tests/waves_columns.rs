//! Parts of an image that is cut between columns, each of which runs in waves beside its neighbours, give the bits of the
//! whole image.
//!
//! With assertions on, as in tests, the engine fills every window and the border on cut sides with NaN before it uses them, so
//! a ghost that was not received, or not kept with its row, shows in the result.

mod common;
mod parts;

use std::sync::Arc;

use haloscope_nn::engine::{
    Accuracy, Cpu, Engine, EngineOptions, EnginePlan, Faces, Halo, InstructionSet, Round, Shard,
    WavesOutline,
};
use haloscope_nn::models::{Architecture, Builtin, Dncnn, Drunet, Unet};
use haloscope_nn::{Conv, Network, NetworkBuilder, Shape, Tensor};

use common::{Kinds, random_network, random_tensor, small_drunet, whole};
use parts::{Part, cuts, grid, run_together};

/// The parts of about so many columns.
fn columns(
    engine: &Cpu,
    network: &Network,
    shape: &Shape,
    parts: usize,
    options: &EngineOptions,
) -> Vec<Part> {
    let mut counts = vec![1; shape.spatial().len()];
    *counts.last_mut().expect("two or three sides") = parts;
    grid(&cuts(engine, network, shape, &counts, options))
}

/// The outlines of parts with the bands that all of them have.
fn outlines(
    engine: &Cpu,
    network: &Network,
    shards: &[Shard],
    options: &EngineOptions,
) -> Vec<WavesOutline> {
    let outline = |band| {
        let of = move |shard| engine.outline_waves(network, shard, band, options);
        shards.iter().map(of).map(|outline| outline.expect("it fits")).collect::<Vec<_>>()
    };
    let band = outline(None).iter().map(|outline| outline.waves.band).min();
    outline(band)
}

/// Runs a network in waves on all parts at once, and compares the bits with those of the whole. Returns what the parts are.
fn compare(
    engine: &Cpu,
    network: &Network,
    input: &Tensor,
    expected: &Tensor,
    parts: &[Part],
    options: &EngineOptions,
) -> Vec<WavesOutline> {
    let shards: Vec<Shard> = (parts.iter())
        .map(|(_, region)| Shard::new(input.shape().clone(), region.clone()).expect("inside"))
        .collect();
    let outlines = outlines(engine, network, &shards, options);
    let plans: Vec<Arc<dyn EnginePlan>> = (shards.iter().zip(&outlines))
        .map(|(shard, outline)| {
            let band = Some(outline.waves.band);
            let plan = engine.plan_waves_shard(network, shard, band, options).expect("outlined");
            assert_eq!((plan.waves(), plan.halo()), (Some(&outline.waves), &outline.halo));
            check_bytes(outline.bytes, &*plan);
            if let Some(budget) = options.memory_budget {
                assert!(plan.memory().total() <= budget, "{:?} of {budget}", plan.memory());
            }
            plan
        })
        .collect();
    run_together(&plans, parts, input, expected);
    outlines
}

/// Compares an estimate with what a plan takes: no more, and little less.
fn check_bytes(foretold: usize, plan: &dyn EnginePlan) {
    let taken = plan.memory().total();
    let room = foretold / 50 + (1 << 15);
    assert!((foretold - room..=foretold).contains(&taken), "{taken} of {foretold} bytes");
}

/// The least and the greatest budget that changes anything for these parts.
fn budgets(
    engine: &Cpu,
    network: &Network,
    shape: &Shape,
    parts: &[Part],
    options: &EngineOptions,
) -> [usize; 2] {
    let mut bounds = [0, 0];
    for (_, region) in parts {
        let shard = Shard::new(shape.clone(), region.clone()).expect("inside");
        let free = engine.outline_waves(network, &shard, None, options).expect("any size");
        let byte = EngineOptions { memory_budget: Some(1), ..options.clone() };
        let error = engine.outline_waves(network, &shard, None, &byte).expect_err("a byte");
        let words = error.to_string();
        let mut words = words.split(' ').skip_while(|&word| word != "least").skip(1);
        let least = words.next().and_then(|word| word.parse().ok()).expect("it says the least");
        bounds = [bounds[0].max(least), bounds[1].max(free.bytes)];
    }
    bounds
}

/// As [`compare`], within the least budget, one in between, and none. Returns the most waves, and the most parts.
fn compare_budgets(
    engine: &Cpu,
    network: &Network,
    input: &Tensor,
    counts: &[usize],
    options: &EngineOptions,
) -> [usize; 2] {
    let expected = whole(engine, network, input, options);
    let mut most = [0, 0];
    for &count in counts {
        let parts = columns(engine, network, input.shape(), count, options);
        let [least, free] = budgets(engine, network, input.shape(), &parts, options);
        for memory_budget in [Some(least), Some(least.midpoint(free.max(least))), None] {
            let options = EngineOptions { memory_budget, ..options.clone() };
            let outlines = compare(engine, network, input, &expected, &parts, &options);
            most = [most[0].max(outlines[0].waves.count), most[1].max(parts.len())];
        }
    }
    most
}

#[test]
fn random_networks_on_columns_have_the_bits_of_the_whole_within_any_budget() {
    const { assert!(cfg!(debug_assertions), "tests are built with assertions") };
    let mut random = fastrand::Rng::with_seed(21);
    let mut most = [0, 0];
    for case in 0..40 {
        let network = random_network(&mut random, Kinds::Cut, 2);
        let sets = InstructionSet::ALL.into_iter().filter(|set| set.is_available());
        let set = random.choice(sets.collect::<Vec<_>>()).expect("there is one");
        let engine = Cpu::with_instructions(set).expect("available");
        let height = if case % 2 == 0 { random.usize(1..400) } else { random.usize(1..60) };
        let sizes = [1 + case % 2, network.input_channels(), height, random.usize(1..130)];
        let input = random_tensor(&mut random, &sizes);
        let accuracy = if case % 5 == 0 { Accuracy::Strict } else { Accuracy::Fast };
        let options = EngineOptions { threads: 1 + case % 2, accuracy, ..EngineOptions::default() };
        let count = [1, 2, 3, 5, 8][case % 5];
        let found = compare_budgets(&engine, &network, &input, &[count], &options);
        most = [most[0].max(found[0]), most[1].max(found[1])];
    }
    assert!(most[0] > 20 && most[1] == 8, "at most {most:?} waves and parts");
}

#[test]
fn models_on_columns_have_the_bits_of_the_whole() {
    let mut random = fastrand::Rng::with_seed(22);
    let engine = Cpu::default();
    let options = EngineOptions { threads: 2, ..EngineOptions::default() };
    let drunet = small_drunet(2);
    let dncnn = Dncnn { depth: 6, channels: 12, ..Dncnn::default() }.random(3).expect("valid");
    let unet = Unet { channels: vec![8, 12, 16], ..Unet::default() }.random(4).expect("valid");
    let builtin = Builtin::Color.model().expect("it is part of the crate");
    // Sides with every remainder of eight; the last grain of a side is joined to the one before if it is too short.
    for (model, sizes, counts) in [
        (&drunet, &[(333, 250), (200, 155), (97, 103)][..], &[1, 2, 3, 5][..]),
        (&dncnn, &[(399, 101), (145, 54), (1, 48)], &[2, 3, 5, 8]),
        (&unet, &[(385, 214), (21, 99)], &[2, 3, 5]),
        (&builtin, &[(206, 100)], &[2, 3]),
    ] {
        let network = model.network();
        for &(height, width) in sizes {
            let input = random_tensor(&mut random, &[1, network.input_channels(), height, width]);
            compare_budgets(&engine, network, &input, counts, &options);
        }
    }
    // Volumes run in waves of rows, and are cut between columns.
    let volume = small_drunet(3);
    let input = random_tensor(&mut random, &[1, volume.network().input_channels(), 8, 201, 100]);
    let [waves, parts] = compare_budgets(&engine, volume.network(), &input, &[2], &options);
    assert!(waves > 3 && parts == 2);
}

#[test]
fn the_full_drunet_on_columns_has_the_bits_of_the_whole() {
    let model = Drunet::default().random(1).expect("valid");
    let mut random = fastrand::Rng::with_seed(23);
    let input = random_tensor(&mut random, &[1, 4, 1203, 104]);
    let (engine, options) =
        (Cpu::default(), EngineOptions { threads: 2, ..EngineOptions::default() });
    let expected = whole(&engine, model.network(), &input, &options);
    let parts = columns(&engine, model.network(), input.shape(), 2, &options);
    assert_eq!(parts.len(), 2);
    let [least, _] = budgets(&engine, model.network(), input.shape(), &parts, &options);
    let tight = EngineOptions { memory_budget: Some(least), ..options };
    let outlines = compare(&engine, model.network(), &input, &expected, &parts, &tight);
    assert!(outlines[0].waves.count > 4, "{:?}", outlines[0].waves);
}

#[test]
fn waves_send_the_bytes_of_columns_that_run_at_once_and_hold_less_than_half_a_whole() {
    let (engine, options, model) = (Cpu::default(), EngineOptions::default(), small_drunet(2));
    let shape = Shape::new([1, 4, 4000, 480]).expect("small");
    let network = model.network();
    let waves = |columns| {
        let shard = Shard::new(shape.clone(), vec![0..4000, columns]).expect("inside");
        let at_once = engine.halo(network, &shard, &options).expect("cut at grains");
        let outline = engine.outline_waves(network, &shard, Some(144), &options).expect("any size");
        assert_eq!(at_once.bytes_sent(), outline.halo.bytes_sent());
        // Bands are so high that no message of a wave is small but where an image ends.
        assert!(outline.halo.messages() <= at_once.messages() * outline.waves.count);
        let whole = engine.shard_bytes(network, &shard, &options).expect("cut at grains");
        check_bytes(whole, &*engine.plan_shard(network, &shard, &options).expect("cut"));
        (outline.bytes, whole)
    };
    let (half, at_once) = waves(0..240);
    let (middle, _) = waves(144..288);
    let all = engine.plan_waves(network, &shape, &options).expect("any size").memory().total();
    assert!(2 * half < at_once && middle < half && 10 * half < 6 * all, "{half} {at_once} {all}");
}

/// A neighbour of zeros, of whom one message does not arrive.
struct Silent {
    round: usize,
    lost: Option<usize>,
}

impl Halo for Silent {
    fn exchange(&mut self, _: &Round, faces: Faces<'_>) -> Result<(), String> {
        if self.lost != Some(self.round) {
            faces.received.into_iter().for_each(|face| face.fill(0.0));
        }
        self.round += 1;
        Ok(())
    }
}

#[test]
fn a_message_that_does_not_arrive_shows() {
    let mut random = fastrand::Rng::with_seed(24);
    // Without activations, of which some hide a NaN.
    let mut builder = NetworkBuilder::new("linear", 2).expect("rank");
    let mut at = builder.input(3).expect("first");
    for index in 0..4 {
        let weight = random_tensor(&mut random, &[3, 3, 3, 3]);
        let conv = Conv::new(weight).padding(1);
        at = builder.conv(format!("conv{index}"), conv, at).expect("fits");
    }
    let network = builder.finish(at).expect("used");
    let shape = Shape::new([1, 3, 150, 48]).expect("small");
    let shard = Shard::new(shape, vec![0..150, 24..48]).expect("inside");
    let (engine, options) = (Cpu::default(), EngineOptions::default());
    let plan = engine.plan_waves_shard(&network, &shard, Some(24), &options).expect("cut");
    let input = random_tensor(&mut random, &[1, 3, 150, 24]);
    let mut scratch = plan.scratch();
    let rounds = plan.halo().rounds().len();
    assert!(rounds > 20, "{rounds}");
    for lost in std::iter::once(None).chain((0..rounds).map(Some)) {
        let mut output = vec![0.0; plan.output_shape().count()];
        let mut halo = Silent { round: 0, lost };
        plan.run_shard(input.values(), &mut output, &mut scratch, &mut halo, &mut |_, _| ())
            .expect("nobody fails");
        let shows = output.iter().any(|value| value.is_nan());
        assert_eq!(shows, lost.is_some(), "{lost:?} of {rounds}");
    }
}

#[test]
fn cuts_between_rows_and_runs_without_neighbours_are_refused() {
    let (engine, options, model) = (Cpu::default(), EngineOptions::default(), small_drunet(2));
    let shape = Shape::new([1, 4, 200, 200]).expect("small");
    let plan = |region: Vec<std::ops::Range<usize>>, band| {
        let shard = Shard::new(shape.clone(), region).expect("inside");
        engine.plan_waves_shard(model.network(), &shard, band, &options)
    };
    for region in [vec![0..96, 0..200], vec![96..200, 0..96]] {
        let error = plan(region, None).expect_err("rows are cut").to_string();
        assert!(error.contains("only columns can be cut"), "{error}");
    }
    let error = plan(vec![0..200, 0..50], None).expect_err("no grain").to_string();
    assert!(error.contains("multiples of"), "{error}");
    let error = plan(vec![0..200, 0..96], Some(0)).expect_err("no rows").to_string();
    assert!(error.contains("0 rows"), "{error}");
    let plan = plan(vec![0..200, 0..96], None).expect("columns");
    let (input, mut output) = (vec![0.0; 4 * 200 * 96], vec![0.0; 3 * 200 * 96]);
    let error = plan.run(&input, &mut output, &mut plan.scratch()).expect_err("no neighbours");
    assert!(error.to_string().contains("use `run_shard`"), "{error}");
    let error =
        plan.run_bands(&mut |_, _| Ok(()), &mut |_, _| Ok(()), &mut plan.scratch(), &mut |_, _| ());
    assert!(error.expect_err("no neighbours").to_string().contains("use `run_shard`"));
}
