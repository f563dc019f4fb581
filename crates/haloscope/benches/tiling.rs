//! A tiled DRUNet on one and on two thread ranks of one thread each: seconds and work multipliers.
//!
//!     bench_tiling [SIDE] [REPEATS]
//!
//! Prints a line of JSON for each case; times are the best of the repeats, which go round all cases in turn.

use std::sync::Arc;
use std::time::Instant;

use haloscope::denoise::{Denoiser, NetworkDenoiser};
use haloscope::distribute::distribute_with;
use haloscope::tiling::{Border, Patch, Strategy, Tiling};
use haloscope::words::count;
use haloscope::{Array, Error, Result};
use haloscope_comm::{Collectives, ContextOptions};
use haloscope_nn::engine::EngineOptions;
use haloscope_nn::models::{Architecture, Drunet};

fn main() -> Result<()> {
    let argument = |place: usize, default: usize| {
        std::env::args().nth(place).and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (side, repeats) = (argument(1, 512), argument(2, 3));
    let shape = [1, 3, side, side];
    let mut random = fastrand::Rng::with_seed(1);
    let image = Arc::new(Array::from_shape_simple_fn(&shape[..], || random.f32()));
    let model = Drunet::default().random(1)?;
    // Thread ranks share the transformed weights.
    let denoiser: Arc<dyn Denoiser> =
        Arc::new(NetworkDenoiser::new(model, EngineOptions::default())?);

    let tiling = |patch: Patch| Tiling {
        patch,
        overlap: 32.into(),
        border: Border::Inside,
        ..Tiling::new(Strategy::Blend)
    };
    let whole = "untiled".to_owned();
    let mut cases: Vec<(String, usize, Tiling)> = vec![(whole, 1, tiling(side.into()))];
    for (name, patch) in
        [("128", 128.into()), ("256", 256.into()), ("448", 448.into()), ("auto", Patch::Auto)]
    {
        for ranks in [1, 2] {
            cases.push((format!("patch {name}"), ranks, tiling(patch.clone())));
        }
    }
    let mut best = vec![f64::INFINITY; cases.len()];
    for _ in 0..repeats {
        for (seconds, (_, ranks, tiling)) in best.iter_mut().zip(&cases) {
            let (image, denoiser, tiling) = (image.clone(), denoiser.clone(), tiling.clone());
            let options = ContextOptions { threads: Some(1), ..ContextOptions::default() };
            let times = options.threads(*ranks, move |ctx| {
                let distributed = distribute_with(denoiser.clone(), ctx, tiling.clone())?;
                // Plans and memory are kept from one image to the next.
                distributed.denoise(&image, &0.1.into())?;
                ctx.comm().barrier()?;
                let begin = Instant::now();
                distributed.denoise(&image, &0.1.into())?;
                Ok::<_, Error>(begin.elapsed().as_secs_f64())
            })?;
            *seconds = seconds.min(times.into_iter().fold(0.0, f64::max));
        }
    }
    for ((name, ranks, tiling), seconds) in cases.iter().zip(best) {
        let plan = tiling.plan(&shape, denoiser.alignment(), *ranks)?;
        println!(
            "{{\"case\": \"DRUNet 1x3x{side}x{side}, {name}, {}\", \"seconds\": {seconds:.4}, \
             \"tiles\": {}, \"window\": {:?}, \"work_multiplier\": {:.3}, \"largest_load\": {:.3}}}",
            count(*ranks, "rank"),
            plan.len(),
            plan.window(),
            plan.work_multiplier(),
            plan.loads().into_iter().fold(0.0, f64::max),
        );
    }
    Ok(())
}
