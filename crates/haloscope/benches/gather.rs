//! What it costs to gather measurements of different sizes on two thread ranks, for each way of doing it.
//!
//!     bench_gather [REPEATS]
//!
//! Prints a line of JSON for each case; times are the best of the repeats, which go round all cases in turn.

use std::sync::Arc;
use std::time::Instant;

use haloscope::distribute::{Gather, StackOptions, distribute_with};
use haloscope::physics::{Downsampling, DownsamplingFilter, Padding, Physics};
use haloscope::{Array, Error, Result};
use haloscope_comm::{Collectives, Context};

const WAYS: [(&str, Gather); 3] = [
    ("concatenated", Gather::Concatenated),
    ("naive", Gather::Naive),
    ("broadcast", Gather::Broadcast),
];

fn main() -> Result<()> {
    let repeats = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(20);
    for (parts, side) in [(8, 1024), (64, 64)] {
        for (name, how) in WAYS {
            let times = Context::threads(2, move |ctx| {
                // Every second operator measures a quarter of the pixels of the others.
                let operators = (0..parts).map(|index| -> Result<Arc<dyn Physics>> {
                    let factor = 1 + index % 2;
                    let filter = DownsamplingFilter::None;
                    let shape = [1, side, side];
                    Ok(Arc::new(Downsampling::new(&shape, factor, &filter, Padding::Circular)?))
                });
                let options = StackOptions { gather: how, ..StackOptions::default() };
                let operators = operators.collect::<Result<Vec<_>>>()?;
                let stack = distribute_with(operators, ctx, options)?;
                let image = Array::ones(vec![1, 1, side, side]);
                let mut best = f64::INFINITY;
                for _ in 0..repeats {
                    let terms = stack.forward_terms(&image)?;
                    ctx.comm().barrier()?;
                    let begin = Instant::now();
                    terms.gather()?;
                    best = best.min(begin.elapsed().as_secs_f64());
                }
                Ok::<_, Error>(best)
            })?;
            let seconds = times.into_iter().fold(0.0, f64::max);
            println!(
                "{{\"case\": \"{parts} parts of {side}², {name}\", \"seconds\": {seconds:.7}}}"
            );
        }
    }
    Ok(())
}
