//! The cost of a message between two ranks on this machine: the model's latency and bandwidth.
//!
//! It is measured with the reduction that a reconstruction uses, so the bandwidth includes adding up what arrives.

use std::time::Instant;

use haloscope_comm::{Collectives, Context};

use super::{Tell, on_ranks};
use crate::error::Result;
use crate::job::{Answer, LinkSpeed};
use crate::row::Backend;

/// Calls of short messages, and calls and bytes of long ones; the fastest call counts.
const SHORT_CALLS: usize = 200;
const LONG_CALLS: usize = 12;
const LONG_BYTES: usize = 32 << 20;

/// Measures messages between two ranks.
pub fn measure(
    backend: Backend,
    tell: impl Fn(Answer) -> Result<()> + Send + Sync + 'static,
) -> Result<()> {
    on_ranks(backend, 2, 1, move |ctx| exchange(ctx, &tell))
}

fn exchange(ctx: &Context, tell: &Tell<'_>) -> Result<()> {
    let latency = fastest(ctx, 1, SHORT_CALLS)?;
    let long = fastest(ctx, LONG_BYTES / size_of::<f32>(), LONG_CALLS)?;
    // With one term each, a rank sends half of its own and then the half of the sum that it made.
    let bytes_per_second = LONG_BYTES as f64 / (long - latency).max(1e-9);
    if ctx.is_root() {
        tell(Answer::Link(LinkSpeed { latency_seconds: latency, bytes_per_second }))?;
    }
    Ok(())
}

/// Seconds of the fastest sum of arrays of so many elements.
fn fastest(ctx: &Context, elements: usize, calls: usize) -> Result<f64> {
    let term = vec![1.0_f32; elements];
    let mut sum = vec![0.0_f32; elements];
    let mut best = f64::INFINITY;
    for _ in 0..calls {
        ctx.comm().barrier()?;
        let begin = Instant::now();
        ctx.comm().ordered_sum(&[(ctx.rank() as u64, &term[..])], &mut sum)?;
        best = best.min(begin.elapsed().as_secs_f64());
    }
    Ok(best)
}
