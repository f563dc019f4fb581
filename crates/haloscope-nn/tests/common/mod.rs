//! What tests of the engine have in common: random networks and inputs, and the result for a whole image.

use haloscope_nn::engine::{Cpu, Engine, EngineOptions};
use haloscope_nn::models::{Architecture, Drunet, Model};
use haloscope_nn::{
    Activation, Conv, ConvTranspose, Network, NetworkBuilder, NodeId, Op, PaddingMode, Pool,
    PoolKind, Shape, Tensor, UpsampleMode,
};

/// Values from −1 to 1.
pub(crate) fn random_tensor(random: &mut fastrand::Rng, sizes: &[usize]) -> Tensor {
    let shape = Shape::new(sizes).expect("small");
    let values: Vec<f32> = (0..shape.count()).map(|_| random.f32() * 2.0 - 1.0).collect();
    Tensor::new(shape, values).expect("as many as the shape says")
}

/// What a plan for the whole image gives.
pub(crate) fn whole(
    engine: &Cpu,
    network: &Network,
    input: &Tensor,
    options: &EngineOptions,
) -> Tensor {
    let plan = engine.plan(network, input.shape(), options).expect("any size");
    assert!(plan.halo().is_empty());
    let mut output = vec![0.0; plan.output_shape().count()];
    plan.run(input.values(), &mut output, &mut plan.scratch()).expect("lengths fit");
    Tensor::new(plan.output_shape().clone(), output).expect("the plan's shape")
}

/// A DRUNet with few channels.
pub(crate) fn small_drunet(rank: usize) -> Model {
    let drunet = Drunet { rank, channels: [8, 12, 16, 24], blocks: 1, ..Drunet::default() };
    drunet.random(1).expect("valid")
}

/// Which operations a random network has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kinds {
    /// Those that can be cut into parts: convolutions of several kinds, pools, skips, sums, shuffles.
    Cut,
    /// All.
    Any,
}

/// A random network for images or volumes whose output is as large as its input.
pub(crate) fn random_network(random: &mut fastrand::Rng, kinds: Kinds, rank: usize) -> Network {
    let weight = |random: &mut fastrand::Rng, channels: [usize; 2], kernel: usize| {
        random_tensor(random, &[&channels[..], &vec![kernel; rank]].concat())
    };
    let mut builder = NetworkBuilder::new("random", rank).expect("rank");
    let mut at = builder.input(random.usize(1..5)).expect("first");
    let mut skips: Vec<NodeId> = Vec::new();
    let mut count = 0;
    let mut name = |what: &str| {
        count += 1;
        format!("{what}{count}")
    };
    let conv = |builder: &mut NetworkBuilder, random: &mut fastrand::Rng, name: String, from| {
        let outputs = random.usize(1..20);
        let other = kinds == Kinds::Any && random.usize(0..4) == 0;
        let padding = if other { random.usize(0..4) } else { 1 };
        let kernel = 2 * padding + 1;
        let weight = weight(random, [outputs, builder.channels(from)], kernel);
        let bias = random.bool().then(|| random_tensor(random, &[outputs]));
        let modes = [
            PaddingMode::Zero,
            PaddingMode::Reflect,
            PaddingMode::Replicate,
            PaddingMode::Circular,
        ];
        let mode = if other { modes[random.usize(0..4)] } else { PaddingMode::Zero };
        let conv = Conv::new(weight).bias(bias).padding(padding).mode(mode);
        builder.conv(&name, conv, from).expect("fits")
    };
    let levels = random.usize(0..3);
    for _ in 0..levels {
        at = conv(&mut builder, random, name("down"), at);
        if random.bool() {
            at = builder.activation(name("relu"), Activation::Relu, at).expect("fits");
        }
        skips.push(at);
        let channels = builder.channels(at);
        at = match random.usize(0..4) {
            0 => {
                let conv = Conv::new(weight(random, [channels; 2], 2)).stride(2);
                builder.conv(name("half"), conv, at).expect("fits")
            }
            1 => {
                // Reads one row of the neighbour before, none of the one after.
                let weight = weight(random, [channels; 2], 3);
                let conv = Conv::new(weight).stride(2).padding(1);
                builder.conv(name("half"), conv, at).expect("fits")
            }
            2 => {
                let pool = Op::Pool(Pool::new(PoolKind::Max, rank, 2));
                builder.push(name("pool"), pool, &[at]).expect("fits")
            }
            _ => builder.push(name("unshuffle"), Op::PixelUnshuffle(2), &[at]).expect("fits"),
        };
    }
    let body = conv(&mut builder, random, name("body"), at);
    let sum = conv(&mut builder, random, name("body"), body);
    let one = weight(random, [builder.channels(sum), builder.channels(body)], 1);
    let one = builder.conv(name("one"), Conv::new(one), body).expect("fits");
    at = builder.push(name("sum"), Op::Add, &[sum, one]).expect("fits");
    while let Some(skip) = skips.pop() {
        let channels = builder.channels(at);
        at = match random.usize(0..3) {
            0 => {
                let linear = kinds == Kinds::Any && random.bool();
                let mode = if linear { UpsampleMode::Linear } else { UpsampleMode::Nearest };
                let upsample = Op::Upsample { factor: 2, mode };
                builder.push(name("up"), upsample, &[at]).expect("fits")
            }
            kind => {
                let (kernel, padding) = if kind == 1 { (2, 0) } else { (4, 1) };
                let weight = weight(random, [channels; 2], kernel);
                let conv = ConvTranspose::new(weight).stride(2).padding(padding);
                builder.push(name("up"), Op::ConvTranspose(conv), &[at]).expect("fits")
            }
        };
        at = builder.push(name("concat"), Op::Concat, &[at, skip]).expect("fits");
        at = conv(&mut builder, random, name("merge"), at);
    }
    at = conv(&mut builder, random, name("tail"), at);
    builder.finish(at).expect("all used")
}
