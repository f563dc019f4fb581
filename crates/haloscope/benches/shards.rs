//! What two ranks of one thread each make of a network, against what the machine can give two of them.
//!
//!     bench_shards [SIDE] [REPEATS]                      two thread ranks
//!     mpirun -n 2 bench_shards [SIDE] [REPEATS]          two processes, in a build with MPI
//!
//! Every rank denoises a whole image of its own, untiled, side by side with the other and without a word between them: half of that
//! time is what an image could take on two ranks. Then the ranks share one image: exactly, in two slabs, and in tiles. One rank
//! alone is there for the plain efficiency. Times are the best of the repeats, which go round the cases; prints a line of JSON for
//! each. `exchange_seconds` is the time in messages of the slowest rank without the time in which it waits for the other, and
//! `waiting_seconds` that time.

use std::time::Instant;

use haloscope::denoise::{Denoiser, NetworkDenoiser};
use haloscope::distribute::distribute_with;
use haloscope::tiling::{Batch, Strategy, Tiling};
use haloscope::{Array, Error, Result};
use haloscope_comm::{CallCost, Collectives, Context, ContextOptions, Operation, Reduction};
use haloscope_nn::engine::EngineOptions;
use haloscope_nn::models::{Architecture, Drunet};

const CASES: [&str; 4] = ["one rank", "side by side", "two slabs", "tiles of 256"];

fn main() -> Result<()> {
    let argument = |place: usize, default: usize| {
        std::env::args().nth(place).and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (side, repeats) = (argument(1, 768), argument(2, 3));
    let options = ContextOptions { threads: Some(1), ..ContextOptions::default() };
    let launched = options.detect()?;
    if launched.size() == 1 {
        options.threads(2, move |ctx| measure(ctx, side, repeats, "threads"))?;
        return Ok(());
    }
    measure(&launched, side, repeats, "MPI")
}

fn measure(ctx: &Context, side: usize, repeats: usize, ranks: &str) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(1);
    let image = Array::from_shape_simple_fn(vec![1, 3, side, side], || random.f32());
    let engine = EngineOptions { threads: 1, ..EngineOptions::default() };
    let network = ctx
        .share("network", || NetworkDenoiser::new(Drunet::default().random(1)?, engine.clone()))?;
    let tiles = Tiling {
        patch: 256.into(),
        overlap: 64.into(),
        batch: Batch::AtMost(1),
        ..Tiling::new(Strategy::Overlap)
    };
    let slabs = distribute_with(network.clone(), ctx, Tiling::new(Strategy::Exact))?;
    let tiles = distribute_with(network.clone(), ctx, tiles)?;
    let mut best = [(f64::INFINITY, 0.0, 0.0, 0); CASES.len()];
    // The first round plans and is not counted.
    for round in 0..=repeats {
        for (case, best) in CASES.into_iter().zip(&mut best) {
            ctx.comm().barrier()?;
            let before = cost(ctx);
            let begin = Instant::now();
            let level = 0.1.into();
            match case {
                "one rank" if !ctx.is_root() => (),
                "one rank" | "side by side" => drop(network.denoise(&image, &level)?),
                "two slabs" => drop(slabs.denoise(&image, &level)?),
                _ => drop(tiles.denoise(&image, &level)?),
            }
            let seconds = begin.elapsed().as_secs_f64();
            let after = cost(ctx);
            let mut of_all = [
                seconds,
                after.transfer.saturating_sub(before.transfer).as_secs_f64(),
                after.waiting.saturating_sub(before.waiting).as_secs_f64(),
                (after.bytes_sent - before.bytes_sent) as f64,
            ];
            ctx.comm().all_reduce(Reduction::Max, &mut of_all)?;
            let [seconds, transfer, waiting, bytes] = of_all;
            if round > 0 && seconds < best.0 {
                *best = (seconds, transfer, waiting, bytes as u64);
            }
        }
    }
    if ctx.is_root() {
        let (alone, limit) = (best[0].0, best[1].0 / 2.0);
        for (case, (seconds, transfer, waiting, bytes)) in CASES.into_iter().zip(best) {
            let line = serde_json::json!({
                "case": format!("DRUNet {side}², {ranks}, {case}"),
                "seconds": seconds,
                "share_of_the_machine": limit / seconds,
                "plain_efficiency": alone / 2.0 / seconds,
                "exchange_seconds": transfer,
                "waiting_seconds": waiting,
                "bytes_sent": bytes,
            });
            println!("{line}");
        }
    }
    Ok::<_, Error>(())
}

/// What this rank's messages have taken, without the barriers between the cases.
fn cost(ctx: &Context) -> CallCost {
    let statistics = ctx.comm().statistics();
    let (total, barrier) = (statistics.total(), statistics.cost(Operation::Barrier));
    CallCost {
        transfer: total.transfer.saturating_sub(barrier.transfer),
        waiting: total.waiting.saturating_sub(barrier.waiting),
        ..total
    }
}
