//! Many small calls in a row, with ranks that come and go at random: the right results, and memory
//! that stays where it was.

// Memory can be read on Linux only.
#![cfg(target_os = "linux")]

mod resident;
mod suite;

use haloscope_comm::{Context, Error};

#[test]
fn hundred_thousand_collectives_leave_memory_flat() {
    for size in [2, 3] {
        Context::threads(size, |ctx| {
            let mut rng = fastrand::Rng::with_seed(ctx.rank_seed());
            let mut early = 0;
            for call in 0..100_000_u64 {
                suite::arrive_at_a_random_time(&mut rng);
                suite::small_call(ctx.comm(), call)?;
                if call == 10_000 {
                    early = resident::kilobytes().expect("the system tells");
                }
            }
            let late = resident::kilobytes().expect("the system tells");
            assert!(late <= early + 1_024, "{early} kB after 10,000 calls, {late} kB at the end");
            Ok::<_, Error>(())
        })
        .expect("no rank fails");
    }
}
