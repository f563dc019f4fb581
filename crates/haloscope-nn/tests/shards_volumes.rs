//! Parts of a volume that exchange halos, slabs of planes among them, give the bits of the whole volume.
//!
//! With assertions on, as in tests, the engine fills ghost planes and the border on cut sides with NaN before each exchange, so
//! a ghost that was not received shows in the result.

mod common;
mod parts;

use std::ops::Range;
use std::sync::Arc;

use haloscope_nn::engine::{
    Accuracy, Cpu, Engine, EngineOptions, EnginePlan, Faces, Grain, Halo, HaloPlan, InstructionSet,
    Round, Shard,
};
use haloscope_nn::models::{Architecture, Dncnn, Drunet, Unet};
use haloscope_nn::{Conv, Network, NetworkBuilder, Shape, Tensor};

use common::{Kinds, random_network, random_tensor, small_drunet, whole};
use parts::{cuts, grid, run_together};

/// Compares an estimate with what a plan takes: no more, and little less. Workspaces are estimated for four planes at a time, also
/// where five are cut into three and two.
fn check_bytes(foretold: usize, plan: &dyn EnginePlan) {
    let taken = plan.memory().total();
    let room = foretold / 8 + (1 << 17);
    assert!(
        (foretold.saturating_sub(room)..=foretold).contains(&taken),
        "{taken} of {foretold} bytes"
    );
}

/// Runs a network on all parts at once, and compares each with the whole. Returns what the parts send.
fn compare(
    engine: &Cpu,
    network: &Network,
    input: &Tensor,
    expected: &Tensor,
    cuts: &[Vec<Range<usize>>],
    options: &EngineOptions,
) -> Vec<HaloPlan> {
    let parts = grid(cuts);
    let plans: Vec<Arc<dyn EnginePlan>> = (parts.iter())
        .map(|(_, region)| {
            let shard = Shard::new(input.shape().clone(), region.clone()).expect("inside");
            let plan = engine.plan_shard(network, &shard, options).expect("cut at grains");
            // The last words: kernels of one plane are not always described as such.
            let last = |words: &str| words.rsplit(", ").next().unwrap_or(words).to_owned();
            let methods = |plan: &dyn EnginePlan| -> Vec<String> {
                plan.steps().iter().map(|step| last(step.method())).collect()
            };
            let all = engine.plan(network, input.shape(), options).expect("it runs");
            assert_eq!(methods(&*plan), methods(&*all), "a part has the methods of the whole");
            assert_eq!(engine.halo(network, &shard, options).as_ref(), Ok(plan.halo()));
            check_bytes(engine.shard_bytes(network, &shard, options).expect("cut"), &*plan);
            plan
        })
        .collect();
    run_together(&plans, &parts, input, expected);
    plans.iter().map(|plan| plan.halo().clone()).collect()
}

#[test]
fn drunet_on_slabs_of_every_remainder_has_the_bits_of_the_whole() {
    let mut random = fastrand::Rng::with_seed(31);
    let (engine, model) = (Cpu::default(), small_drunet(3));
    let network = model.network();
    let options = EngineOptions::default();
    let (mut seen, mut deep) = (Vec::new(), false);
    for (depth, parts) in
        [(64, 8), (43, 5), (21, 2), (26, 3), (71, 8), (15, 1), (17, 2), (36, 4), (22, 3)]
    {
        let sizes = [1, network.input_channels(), depth, 19, 24];
        let input = random_tensor(&mut random, &sizes);
        let expected = whole(&engine, network, &input, &options);
        let cuts = cuts(&engine, network, input.shape(), &[parts, 1, 1], &options);
        assert!(cuts[0].iter().all(|part| part.start % 8 == 0), "{cuts:?}");
        seen.push(cuts[0].len());
        let plan = engine.plan(network, input.shape(), &options).expect("it runs");
        let tiles = ["F(2×4×4)", "F(2×6×6)"];
        let is_deep = |method: &str| tiles.iter().any(|tile| method.contains(tile));
        deep |= plan.steps().iter().any(|step| is_deep(step.method()));
        compare(&engine, network, &input, &expected, &cuts, &options);
    }
    // Tiles along depth on the last level let 64 planes be cut at every sixteenth.
    assert!(seen[0] >= 4, "{seen:?}");
    assert_eq!(seen[1..], [5, 2, 3, 8, 1, 2, 4, 3]);
    assert!(deep, "no part had tiles along depth");
}

#[test]
fn models_on_blocks_have_the_bits_of_the_whole() {
    let mut random = fastrand::Rng::with_seed(32);
    let drunet = small_drunet(3);
    let dncnn = Dncnn { rank: 3, depth: 4, channels: 12, ..Dncnn::default() }.random(3);
    let dncnn = dncnn.expect("valid");
    let unet = Unet { rank: 3, channels: vec![8, 12, 16], ..Unet::default() }.random(4);
    let unet = unet.expect("valid");
    for (model, batch, sides, parts) in [
        (&drunet, 2, [25, 101, 100], [2, 2, 2]),
        (&drunet, 1, [40, 10, 104], [5, 1, 2]),
        (&dncnn, 2, [7, 20, 15], [3, 3, 2]),
        (&dncnn, 1, [9, 5, 6], [8, 1, 1]),
        (&dncnn, 1, [5, 1, 1], [5, 1, 1]),
        (&unet, 1, [13, 50, 30], [3, 2, 1]),
        (&unet, 1, [33, 6, 9], [4, 1, 1]),
        (&unet, 1, [64, 6, 9], [4, 1, 1]),
    ] {
        let network = model.network();
        let sizes = [&[batch, network.input_channels()], &sides[..]].concat();
        let input = random_tensor(&mut random, &sizes);
        for (accuracy, threads) in [(Accuracy::Fast, 1), (Accuracy::Strict, 2)] {
            let engine = Cpu::default();
            let options = EngineOptions { accuracy, threads, ..EngineOptions::default() };
            let expected = whole(&engine, network, &input, &options);
            let cuts = cuts(&engine, network, input.shape(), &parts, &options);
            assert_eq!(cuts[0].len(), parts[0], "{cuts:?}");
            compare(&engine, network, &input, &expected, &cuts, &options);
        }
    }
}

#[test]
fn random_networks_have_the_bits_of_the_whole_on_any_blocks() {
    let mut random = fastrand::Rng::with_seed(33);
    let mut most = [0; 2];
    for case in 0..14 {
        let network = random_network(&mut random, Kinds::Cut, 3);
        let sets = InstructionSet::ALL.into_iter().filter(|set| set.is_available());
        let set = random.choice(sets.collect::<Vec<_>>()).expect("there is one");
        let engine = Cpu::with_instructions(set).expect("available");
        let sides = [random.usize(1..24), random.usize(1..30), random.usize(1..30)];
        let sizes = [&[1 + case % 2, network.input_channels()], &sides[..]].concat();
        let input = random_tensor(&mut random, &sizes);
        let options = EngineOptions { threads: 1 + case % 2, ..EngineOptions::default() };
        let expected = whole(&engine, &network, &input, &options);
        for parts in [[random.usize(1..10), 1, 1], [2, 2, 2]] {
            let cuts = cuts(&engine, &network, input.shape(), &parts, &options);
            most[0] = most[0].max(cuts[0].len());
            most[1] = most[1].max(cuts.iter().filter(|parts| parts.len() > 1).count());
            compare(&engine, &network, &input, &expected, &cuts, &options);
        }
    }
    assert!(most[0] >= 5 && most[1] == 3, "at most {most:?}");
}

#[test]
fn a_plan_foretells_the_bytes_of_a_drunet_for_volumes() {
    let drunet = Drunet { rank: 3, channels: [32, 64, 128, 256], blocks: 2, ..Drunet::default() };
    let model = drunet.random(1).expect("valid");
    let network = model.network();
    let shape = Shape::new([1, network.input_channels(), 48, 16, 24]).expect("small");
    let (engine, options) = (Cpu::default(), EngineOptions::default());
    let grains = engine.grains(network, &shape, &options).expect("it can be cut");
    assert_eq!(grains[0], Grain { step: 8, last: 1 });
    let halo = |planes: Range<usize>| {
        let shard = Shard::new(shape.clone(), vec![planes, 0..16, 0..24]).expect("inside");
        engine.halo(network, &shard, &options).expect("cut at grains")
    };
    // For each voxel at a cut: the input, then in f32 what the 3×3×3 convolutions read on each level, a quarter of the voxels of
    // the one before.
    let convolutions = |blocks: usize| 2 * blocks * 2;
    let voxel = network.input_channels()
        + (convolutions(2) + 1) * 32
        + convolutions(2) * (64 / 4 + 128 / 16)
        + convolutions(1) * 256 / 64;
    let first = halo(0..8);
    assert_eq!(
        (first.messages(), first.bytes_sent()),
        (first.rounds().len(), (16 * 24 * 4 * voxel) as u64)
    );
    let middle = halo(8..24);
    assert_eq!(
        (middle.messages(), middle.bytes_sent()),
        (2 * first.messages(), 2 * first.bytes_sent())
    );
    assert!(middle.rounds().iter().all(|round| round.axis == 0));
}

#[test]
fn cuts_between_planes_and_columns_run_in_waves_with_the_bits_of_the_whole() {
    let mut random = fastrand::Rng::with_seed(34);
    let (engine, model) = (Cpu::default(), small_drunet(3));
    let network = model.network();
    let options = EngineOptions { threads: 2, ..EngineOptions::default() };
    let input = random_tensor(&mut random, &[1, network.input_channels(), 21, 201, 100]);
    let expected = whole(&engine, network, &input, &options);
    for counts in [[2, 1, 1], [2, 1, 2]] {
        let parts = grid(&cuts(&engine, network, input.shape(), &counts, &options));
        assert_eq!(parts.len(), counts.iter().product::<usize>());
        let plans: Vec<Arc<dyn EnginePlan>> = (parts.iter())
            .map(|(_, region)| {
                let shard = Shard::new(input.shape().clone(), region.clone()).expect("inside");
                let plan = engine.plan_waves_shard(network, &shard, Some(48), &options);
                let plan = plan.expect("rows are not cut");
                let outline = engine.outline_waves(network, &shard, Some(48), &options);
                let outline = outline.expect("rows are not cut");
                assert_eq!((plan.waves(), plan.halo()), (Some(&outline.waves), &outline.halo));
                check_bytes(outline.bytes, &*plan);
                let at_once = engine.halo(network, &shard, &options).expect("cut at grains");
                assert_eq!(at_once.bytes_sent(), plan.halo().bytes_sent());
                assert!(outline.waves.count > 4, "{:?}", outline.waves);
                plan
            })
            .collect();
        run_together(&plans, &parts, &input, &expected);
    }
    let rows = Shard::new(input.shape().clone(), vec![0..21, 0..96, 0..100]).expect("inside");
    let error = engine.plan_waves_shard(network, &rows, None, &options).expect_err("rows are cut");
    assert!(error.to_string().contains("only planes and columns can be cut"), "{error}");
}

#[test]
fn random_networks_on_slabs_run_in_waves_with_the_bits_of_the_whole() {
    let mut random = fastrand::Rng::with_seed(35);
    let mut most = [0; 2];
    for case in 0..12 {
        let network = random_network(&mut random, Kinds::Cut, 3);
        let engine = Cpu::default();
        let sides = [random.usize(1..20), random.usize(1..90), random.usize(1..30)];
        let sizes = [&[1, network.input_channels()], &sides[..]].concat();
        let input = random_tensor(&mut random, &sizes);
        let options = EngineOptions { threads: 1 + case % 2, ..EngineOptions::default() };
        let expected = whole(&engine, &network, &input, &options);
        let parts = grid(&cuts(&engine, &network, input.shape(), &[3, 1, 2], &options));
        let plans: Vec<Arc<dyn EnginePlan>> = (parts.iter())
            .map(|(_, region)| {
                let shard = Shard::new(input.shape().clone(), region.clone()).expect("inside");
                let plan = engine.plan_waves_shard(&network, &shard, Some(8), &options);
                plan.expect("rows are not cut")
            })
            .collect();
        let waves = plans[0].waves().map_or(0, |waves| waves.count);
        most = [most[0].max(waves), most[1].max(parts.len())];
        run_together(&plans, &parts, &input, &expected);
    }
    assert!(most[0] > 5 && most[1] == 6, "at most {most:?} waves and parts");
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
    let mut random = fastrand::Rng::with_seed(36);
    // Without activations, of which some hide a NaN.
    let mut builder = NetworkBuilder::new("linear", 3).expect("rank");
    let mut at = builder.input(3).expect("first");
    for index in 0..3 {
        let weight = random_tensor(&mut random, &[3, 3, 3, 3, 3]);
        let conv = Conv::new(weight).padding(1);
        at = builder.conv(format!("conv{index}"), conv, at).expect("fits");
    }
    let network = builder.finish(at).expect("used");
    let shape = Shape::new([1, 3, 6, 24, 12]).expect("small");
    let shard = Shard::new(shape, vec![2..4, 0..24, 0..12]).expect("inside");
    let (engine, options) = (Cpu::default(), EngineOptions::default());
    for plan in [
        engine.plan_shard(&network, &shard, &options).expect("cut"),
        engine.plan_waves_shard(&network, &shard, Some(6), &options).expect("cut"),
    ] {
        let input = random_tensor(&mut random, &[1, 3, 2, 24, 12]);
        let mut scratch = plan.scratch();
        let rounds = plan.halo().rounds().len();
        for lost in std::iter::once(None).chain((0..rounds).map(Some)) {
            let mut output = vec![0.0; plan.output_shape().count()];
            let mut halo = Silent { round: 0, lost };
            plan.run_shard(input.values(), &mut output, &mut scratch, &mut halo, &mut |_, _| ())
                .expect("nobody fails");
            let shows = output.iter().any(|value| value.is_nan());
            assert_eq!(shows, lost.is_some(), "{lost:?} of {rounds}");
        }
    }
}

#[test]
fn a_network_that_reads_two_planes_is_cut_in_the_plane_only() {
    let mut random = fastrand::Rng::with_seed(37);
    let mut builder = NetworkBuilder::new("deep", 3).expect("rank");
    let input = builder.input(2).expect("first");
    let weight = random_tensor(&mut random, &[2, 2, 5, 3, 3]);
    let conv = Conv { padding: vec![2, 1, 1], ..Conv::new(weight) };
    let at = builder.conv("conv", conv, input).expect("fits");
    let network = builder.finish(at).expect("used");
    let (engine, options) = (Cpu::default(), EngineOptions::default());
    let input = random_tensor(&mut random, &[1, 2, 9, 20, 24]);
    let cuts = cuts(&engine, &network, input.shape(), &[4, 2, 2], &options);
    assert_eq!(cuts.iter().map(Vec::len).collect::<Vec<_>>(), [1, 2, 2]);
    let expected = whole(&engine, &network, &input, &options);
    compare(&engine, &network, &input, &expected, &cuts, &options);
}
