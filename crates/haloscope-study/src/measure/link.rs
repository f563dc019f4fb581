//! The cost of a message between two ranks on this machine: the model's latency and bandwidth.
//!
//! It is measured with the reduction that a reconstruction uses, so the bandwidth includes adding up what arrives.

use std::time::Instant;

use haloscope_comm::{Collectives, Context};

use super::{Tell, on_ranks};
use crate::error::Result;
use crate::row::Backend;
use crate::trial::{Answer, LinkSpeed};

/// Calls of short messages, and calls and bytes of long ones; the fastest call counts.
const SHORT_CALLS: usize = 200;
const LONG_CALLS: usize = 12;
const LONG_BYTES: usize = 32 << 20;

/// Measures messages between two ranks.
pub(super) fn measure(
    backend: Backend,
    tell: impl Fn(Answer) -> Result<()> + Send + Sync + 'static,
) -> Result<()> {
    on_ranks(backend, 2, 1, move |ctx| exchange(ctx, &tell))
}

fn exchange(ctx: &Context, tell: &Tell<'_>) -> Result<()> {
    let short = fastest(ctx, 1, SHORT_CALLS)?;
    let long = fastest(ctx, LONG_BYTES / size_of::<f32>(), LONG_CALLS)?;
    if ctx.is_root() {
        tell(Answer::Link(speed(short, long)))?;
    }
    Ok(())
}

/// What a call takes: the seconds of the fastest one, and the bytes that a rank sends in each.
#[derive(Clone, Copy, Debug)]
struct Taken {
    seconds: f64,
    bytes: u64,
}

/// A short call is nothing but latency; what a long one takes beyond it goes to its bytes.
fn speed(short: Taken, long: Taken) -> LinkSpeed {
    let bytes = long.bytes.saturating_sub(short.bytes) as f64;
    let seconds = long.seconds - short.seconds;
    // On a machine that others use, a long call may have been no slower than any short one.
    let seconds = if seconds > 0.0 { seconds } else { long.seconds };
    LinkSpeed { latency_seconds: short.seconds, bytes_per_second: bytes / seconds.max(1e-9) }
}

/// The fastest sum of arrays of so many elements.
fn fastest(ctx: &Context, elements: usize, calls: usize) -> Result<Taken> {
    let term = vec![1.0_f32; elements];
    let mut sum = vec![0.0_f32; elements];
    let mut best = Taken { seconds: f64::INFINITY, bytes: 0 };
    for _ in 0..calls {
        ctx.comm().barrier()?;
        let before = ctx.comm().statistics().total().bytes_sent;
        let begin = Instant::now();
        ctx.comm().ordered_sum(&[(ctx.rank() as u64, &term[..])], &mut sum)?;
        best.seconds = best.seconds.min(begin.elapsed().as_secs_f64());
        best.bytes = ctx.comm().statistics().total().bytes_sent - before;
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use haloscope_comm::Error;

    use super::*;

    #[test]
    fn the_speed_of_a_link_is_found_from_what_it_takes() {
        // 20 µs and 4 GB/s.
        let of = |bytes: u64| Taken { seconds: 20e-6 + bytes as f64 / 4e9, bytes };
        let found = speed(of(12), of(LONG_BYTES as u64));
        assert!((found.latency_seconds / 20e-6 - 1.0).abs() < 1e-3, "{found:?}");
        assert!((found.bytes_per_second / 4e9 - 1.0).abs() < 1e-9, "{found:?}");
        // A long call that was as fast as a short one does not make the link infinitely fast.
        let long = Taken { seconds: 1e-3, bytes: 1_000_000 };
        let found = speed(Taken { seconds: 2e-3, bytes: 0 }, long);
        assert_eq!((found.latency_seconds, found.bytes_per_second), (2e-3, 1e9));
    }

    #[test]
    fn a_long_call_sends_as_many_bytes_as_its_arrays_have() {
        let elements = LONG_BYTES / size_of::<f32>();
        let taken = Context::threads(2, move |ctx| {
            let calls = [fastest(ctx, elements, 1), fastest(ctx, 1, 3)];
            let [long, short] = calls.map(|call| call.expect("both ranks take part"));
            Ok::<_, Error>((long.bytes, short.bytes))
        });
        // With one term each, a rank sends half of its own and then the half of the sum that it made; the indices of the
        // terms come on top.
        for (long, short) in taken.expect("no rank fails") {
            let most = LONG_BYTES as u64 + 64;
            assert!((LONG_BYTES as u64..=most).contains(&long), "{long} bytes");
            assert!((1..=64).contains(&short), "{short} bytes");
        }
    }
}
