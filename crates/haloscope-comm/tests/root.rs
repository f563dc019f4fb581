//! Work of rank 0 that takes longer than the deadline of a call, and ranks that are gone meanwhile.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use haloscope_comm::{Cause, Collectives, Context, ContextOptions, Error, Result};

/// Short, and long enough for threads that the system runs late.
const DEADLINE: Duration = Duration::from_secs(2);

fn run<T: Send + 'static>(
    size: usize,
    body: impl Fn(&Context) -> Result<T> + Send + Sync + 'static,
) -> Result<Vec<T>> {
    ContextOptions { deadline: DEADLINE, ..ContextOptions::default() }.threads(size, body)
}

#[test]
fn the_work_may_take_longer_than_the_deadline() {
    let results = run(3, |ctx| {
        let result = ctx.comm().on_root(|| {
            std::thread::sleep(2 * DEADLINE);
            ctx.rank()
        })?;
        // Calls go on, with the same deadline.
        ctx.comm().barrier()?;
        assert_eq!(ctx.comm().deadline(), DEADLINE);
        Ok(result)
    });
    assert_eq!(results, Ok(vec![Some(0), None, None]));
}

#[test]
fn short_work_and_that_of_a_rank_alone_are_done_once() {
    for size in [1, 2, 5] {
        let results = run(size, |ctx| {
            (0..100).map(|call| ctx.comm().on_root(|| call)).collect::<Result<Vec<_>>>()
        });
        for (rank, done) in results.expect("no rank fails").into_iter().enumerate() {
            let expected: Vec<Option<i32>> =
                (0..100).map(|call| (rank == 0).then_some(call)).collect();
            assert_eq!(done, expected);
        }
    }
}

#[test]
fn a_panic_of_the_work_reaches_the_other_ranks() {
    let whole = run(3, |ctx| {
        ctx.comm().on_root(|| {
            std::thread::sleep(DEADLINE);
            panic!("the disk is gone")
        })?;
        Ok(())
    });
    let cause = Cause::Panicked("the disk is gone".into());
    assert_eq!(whole, Err(Error::RankFailed { rank: 0, cause }));
}

/// Rank 0 works until the others have given up: they notice who is missing, though rank 0 is busy.
#[test]
fn a_rank_that_stays_away_is_named_while_rank_0_works() {
    let given_up = AtomicUsize::new(0);
    let whole = run(3, move |ctx| {
        let wait = |count| {
            while given_up.load(Ordering::SeqCst) < count {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        if ctx.rank() == 2 {
            wait(2);
        }
        let outcome = ctx.comm().on_root(|| wait(1));
        given_up.fetch_add(1, Ordering::SeqCst);
        outcome
    });
    assert!(matches!(&whole, Err(Error::Timeout { ranks, .. }) if ranks == &[2]), "{whole:?}");
}
