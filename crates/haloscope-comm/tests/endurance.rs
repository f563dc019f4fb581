//! Many small calls in a row, with ranks that come and go at random: the right results, and memory
//! that stays where it was.

mod resident;

use std::time::Duration;

use haloscope_comm::{Collectives, Context, Error, Reduction};

#[test]
fn hundred_thousand_collectives_leave_memory_flat() {
    for size in [2, 3] {
        Context::threads(size, |ctx| {
            let mut rng = fastrand::Rng::with_seed(ctx.rank_seed());
            let mut early = 0;
            for call in 0..100_000_u64 {
                if rng.u32(0..2_000) == 0 {
                    std::thread::sleep(Duration::from_micros(rng.u64(0..300)));
                }
                let mut sum = [call, ctx.rank() as u64];
                match call % 4 {
                    0 => ctx.comm().barrier()?,
                    1 => ctx.comm().broadcast((call % ctx.size() as u64) as usize, &mut sum)?,
                    2 => ctx.comm().all_reduce(Reduction::Sum, &mut sum)?,
                    _ => ctx
                        .comm()
                        .ordered_sum(&[(ctx.rank() as u64, &[call][..])], &mut sum[..1])?,
                }
                let ranks = ctx.size() as u64;
                let expected = [call, call, call * ranks, call * ranks][(call % 4) as usize];
                assert_eq!(sum[0], expected);
                if call == 10_000 {
                    early = resident::kilobytes();
                }
            }
            let late = resident::kilobytes();
            assert!(late <= early + 1_024, "{early} kB after 10,000 calls, {late} kB at the end");
            Ok::<_, Error>(())
        })
        .expect("no rank fails");
    }
}
