//! Parts of an image that exchange halos give the bits of the whole image, wherever it is cut.
//!
//! With assertions on, as in tests, the engine fills the border on cut sides with NaN before each exchange, so a ghost that
//! was not received shows in the result.

mod common;
mod parts;

use std::ops::Range;
use std::sync::Arc;

use haloscope_nn::engine::{
    Accuracy, Cpu, Engine, EngineOptions, EnginePlan, Faces, Halo, HaloPlan, InstructionSet, Round,
    Shard,
};
use haloscope_nn::models::{Architecture, Builtin, Dncnn, Drunet, Unet};
use haloscope_nn::{Conv, Network, NetworkBuilder, Op, PaddingMode, Shape, Tensor, UpsampleMode};

use common::{Kinds, random_network, random_tensor, small_drunet, whole};
use parts::{cuts, grid, run_together};

/// Runs the network on all parts at once, twice, and compares each with the whole. Returns what the parts send.
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
            assert_eq!(engine.halo(network, &shard, options).as_ref(), Ok(plan.halo()));
            plan
        })
        .collect();
    run_together(&plans, &parts, input, expected);
    plans.iter().map(|plan| plan.halo().clone()).collect()
}

#[test]
fn every_remainder_of_the_alignment_gives_the_bits_of_the_whole() {
    let mut random = fastrand::Rng::with_seed(1);
    let (engine, model) = (Cpu::default(), small_drunet(2));
    let network = model.network();
    let options = EngineOptions::default();
    let mut parts_seen = 0;
    for remainder in 0..8 {
        let (height, width) = (192 + 48 * (remainder % 3) + remainder, 104 + (remainder + 3) % 8);
        let input = random_tensor(&mut random, &[1, 4, height, width]);
        let expected = whole(&engine, network, &input, &options);
        for parts in [[1, 1], [2, 1], [1, 2], [9, 1], [3, 2]] {
            let cuts = cuts(&engine, network, input.shape(), &parts, &options);
            parts_seen = parts_seen.max(cuts[0].len() * cuts[1].len());
            compare(&engine, network, &input, &expected, &cuts, &options);
        }
    }
    assert!(parts_seen >= 4, "at most {parts_seen} parts");
}

#[test]
fn models_on_blocks_have_the_bits_of_the_whole() {
    let mut random = fastrand::Rng::with_seed(2);
    let dncnn = Dncnn { depth: 5, channels: 12, ..Dncnn::default() }.random(3).expect("valid");
    let unet = Unet { channels: vec![8, 12, 16], ..Unet::default() }.random(4).expect("valid");
    let volume = small_drunet(3);
    for (model, sizes, parts) in [
        (&dncnn, &[2, 3, 50, 43][..], &[3, 3][..]),
        (&dncnn, &[1, 3, 1, 77][..], &[1, 8][..]),
        (&unet, &[1, 1, 150, 101][..], &[3, 2][..]),
        (&volume, &[1, 2, 9, 104, 100][..], &[1, 2, 2][..]),
    ] {
        let network = model.network();
        let sizes = [&[sizes[0], network.input_channels()], &sizes[2..]].concat();
        let input = random_tensor(&mut random, &sizes);
        for (accuracy, threads) in [(Accuracy::Fast, 1), (Accuracy::Strict, 2)] {
            let engine = Cpu::default();
            let options = EngineOptions { accuracy, threads, ..EngineOptions::default() };
            let expected = whole(&engine, network, &input, &options);
            let cuts = cuts(&engine, network, input.shape(), parts, &options);
            assert!(cuts.iter().any(|parts| parts.len() > 1), "{cuts:?}");
            compare(&engine, network, &input, &expected, &cuts, &options);
        }
    }
}

#[test]
fn the_built_in_denoisers_have_the_bits_of_the_whole() {
    let mut random = fastrand::Rng::with_seed(3);
    for builtin in [Builtin::Gray, Builtin::Color] {
        let model = builtin.model().expect("it is part of the crate");
        let network = model.network();
        let input = random_tensor(&mut random, &[1, network.input_channels(), 101, 58]);
        let (engine, options) = (Cpu::default(), EngineOptions::default());
        let expected = whole(&engine, network, &input, &options);
        let cuts = cuts(&engine, network, input.shape(), &[2, 2], &options);
        assert!(cuts[0].len() == 2, "{cuts:?}");
        compare(&engine, network, &input, &expected, &cuts, &options);
    }
}

#[test]
fn random_networks_have_the_bits_of_the_whole_on_any_blocks() {
    let mut random = fastrand::Rng::with_seed(4);
    let mut most = 0;
    for case in 0..40 {
        let network = random_network(&mut random, Kinds::Cut, 2);
        let sets = InstructionSet::ALL.into_iter().filter(|set| set.is_available());
        let set = random.choice(sets.collect::<Vec<_>>()).expect("there is one");
        let engine = Cpu::with_instructions(set).expect("available");
        let [height, width] = [0; 2].map(|_| random.usize(1..100));
        let channels = network.input_channels();
        let input = random_tensor(&mut random, &[1 + case % 2, channels, height, width]);
        let options = EngineOptions { threads: 1 + case % 2, ..EngineOptions::default() };
        let expected = whole(&engine, &network, &input, &options);
        for parts in [[random.usize(1..10), 1], [1, random.usize(1..10)], [3, 3]] {
            let cuts = cuts(&engine, &network, input.shape(), &parts, &options);
            most = most.max(cuts[0].len() * cuts[1].len());
            compare(&engine, &network, &input, &expected, &cuts, &options);
        }
    }
    assert!(most >= 8, "at most {most} parts");
}

#[test]
fn a_plan_foretells_the_bytes_of_drunet() {
    let model = Drunet::default().random(1).expect("valid");
    let network = model.network();
    let shape = Shape::new([1, 4, 768, 384]).expect("small");
    let (engine, options) = (Cpu::default(), EngineOptions::default());
    let grains = engine.grains(network, &shape, &options).expect("it can be cut");
    assert_eq!((grains[0].step, grains[0].last), (48, 1));
    let plan = |region| {
        let shard = Shard::new(shape.clone(), region).expect("inside");
        engine.plan_shard(network, &shard, &options).expect("cut at grains")
    };
    // 14 608 bytes for each pixel at a cut: 4 · (4 + 17 · 64 + 16 · (128 / 2 + 256 / 4) + 8 · 512 / 8).
    let upper = plan(vec![0..384, 0..384]);
    assert_eq!(upper.halo().rounds().len(), 58);
    assert_eq!((upper.halo().messages(), upper.halo().bytes_sent()), (58, 384 * 14_608));
    let middle = plan(vec![48..384, 0..384]);
    assert_eq!((middle.halo().messages(), middle.halo().bytes_sent()), (116, 2 * 384 * 14_608));
    // Nothing is computed twice.
    let lower = plan(vec![384..768, 0..384]);
    let flops = engine.plan(network, &shape, &options).expect("any size").flops();
    assert!((upper.flops() + lower.flops() - flops).abs() < 1e-6 * flops);
}

#[test]
fn what_cannot_be_cut_is_refused_with_the_reason() {
    let engine = Cpu::default();
    let options = EngineOptions::default();
    let shape = Shape::new([1, 4, 100, 100]).expect("small");
    let model = small_drunet(2);
    let refusal = |region: Vec<Range<usize>>, options: &EngineOptions| {
        let shard = Shard::new(shape.clone(), region).expect("inside");
        let plan = engine.plan_shard(model.network(), &shard, options);
        plan.expect_err("it cannot be cut there").to_string()
    };
    let error = refusal(vec![0..50, 0..100], &options);
    assert!(error.contains("the part 0..50 of a side of 100; parts begin at multiples"), "{error}");
    let budget = EngineOptions { memory_budget: Some(1 << 30), ..EngineOptions::default() };
    assert!(refusal(vec![0..48, 0..100], &budget).contains("memory budget"));
    assert!(Shard::new(shape.clone(), vec![0..101, 0..100]).is_err());
    assert!(Shard::new(shape.clone(), vec![5..5, 0..100]).is_err());
    assert!(Shard::new(shape.clone(), vec![0..100; 3]).is_err());

    let mut random = fastrand::Rng::with_seed(5);
    let mut single = |op: &dyn Fn(&mut fastrand::Rng) -> Op| {
        let mut builder = NetworkBuilder::new("single", 2).expect("rank");
        let input = builder.input(4).expect("first");
        let node = builder.push("node", op(&mut random), &[input]).expect("fits");
        let network = builder.finish(node).expect("all used");
        engine.grains(&network, &shape, &options).expect_err("it cannot be cut").to_string()
    };
    let weight =
        |random: &mut fastrand::Rng, kernel| random_tensor(random, &[4, 4, kernel, kernel]);
    for (error, words) in [
        (
            single(&|random| {
                Op::Conv(Conv::new(weight(random, 3)).padding(1).mode(PaddingMode::Circular))
            }),
            "circular padding",
        ),
        (
            single(&|random| Op::Conv(Conv::new(weight(random, 5)).padding(2))),
            "reads 2 pixels of its neighbours",
        ),
        (
            single(&|_| Op::Upsample { factor: 2, mode: UpsampleMode::Linear }),
            "interpolates between neighbours",
        ),
        (single(&|random| Op::Conv(Conv::new(weight(random, 3)))), "not the same number of pixels"),
    ] {
        assert!(error.contains(words) && error.contains("`node`"), "{error}");
    }
}

#[test]
fn a_part_needs_its_neighbours_and_a_halo_that_fails_ends_the_run() {
    struct Broken;
    impl Halo for Broken {
        fn exchange(&mut self, _: &Round, _: Faces<'_>) -> Result<(), String> {
            Err("rank 3 is gone".into())
        }
    }
    let (engine, model) = (Cpu::default(), small_drunet(2));
    let shape = Shape::new([1, 4, 200, 64]).expect("small");
    let options = EngineOptions::default();
    let grain = engine.grains(model.network(), &shape, &options).expect("it can be cut")[0];
    let shard = Shard::new(shape, vec![0..grain.step, 0..64]).expect("inside");
    let plan = engine.plan_shard(model.network(), &shard, &options).expect("cut at a grain");
    let input = vec![0.0; plan.input_shape().count()];
    let mut output = vec![0.0; plan.output_shape().count()];
    let mut scratch = plan.scratch();
    let error = plan.run(&input, &mut output, &mut scratch).expect_err("alone").to_string();
    assert!(error.contains("run_shard"), "{error}");
    let error = plan.run_shard(&input, &mut output, &mut scratch, &mut Broken, &mut |_, _| ());
    let error = error.expect_err("no neighbour").to_string();
    assert!(error.contains("rank 3 is gone") && error.contains("m_head"), "{error}");
}
