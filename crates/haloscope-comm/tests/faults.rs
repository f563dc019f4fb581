//! Ranks that fail on purpose: every other rank returns the right error, soon, again and again.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use haloscope_comm::{
    Cause, Collectives, Communicator, Context, ContextOptions, Error, Reduction, Result, Threads,
};

/// How often each fault is repeated.
const REPEATS: usize = 50;

/// Runs `body` on thread ranks with a short deadline; what each rank got from it, and what the
/// whole run returned.
fn run(
    size: usize,
    deadline: Duration,
    body: impl Fn(&Context) -> Result<()> + Send + Sync + 'static,
) -> (Vec<Option<Result<()>>>, Result<Vec<()>>) {
    let outcomes = Arc::new(Mutex::new(vec![None; size]));
    let options = ContextOptions { deadline, ..ContextOptions::default() };
    let record = outcomes.clone();
    let whole = options.threads(size, move |ctx| {
        let outcome = body(ctx);
        record.lock().expect("no panic while recording")[ctx.rank()] = Some(outcome.clone());
        outcome
    });
    let outcomes = outcomes.lock().expect("no panic while recording").clone();
    (outcomes, whole)
}

const LONG: Duration = Duration::from_mins(1);

/// All ranks but `failed` must have returned `expected`.
fn all_others_return(outcomes: &[Option<Result<()>>], failed: usize, expected: &Error) {
    for (rank, outcome) in outcomes.iter().enumerate().filter(|(rank, _)| *rank != failed) {
        assert_eq!(outcome, &Some(Err(expected.clone())), "rank {rank}");
    }
}

#[test]
fn panic_of_a_rank_reaches_all_others_with_its_message() {
    for repeat in 0..REPEATS {
        let size = [2, 3, 5, 8][repeat % 4];
        let failed = repeat % size;
        let (outcomes, whole) = run(size, LONG, move |ctx| {
            ctx.comm().barrier()?;
            assert!(ctx.rank() != failed, "detector {failed} exploded");
            let mut sum = vec![1.0_f32; 40_000];
            ctx.comm().all_reduce(Reduction::Sum, &mut sum)
        });
        let cause = Cause::Panicked(format!("detector {failed} exploded"));
        let expected = Error::RankFailed { rank: failed, cause };
        all_others_return(&outcomes, failed, &expected);
        assert_eq!(whole, Err(expected));
    }
}

#[test]
fn early_return_of_a_rank_is_noticed() {
    for repeat in 0..REPEATS {
        let size = [2, 3, 5, 8][repeat % 4];
        let failed = repeat % size;
        let (outcomes, whole) = run(size, LONG, move |ctx| {
            ctx.comm().barrier()?;
            if ctx.rank() == failed {
                return Ok(());
            }
            ctx.comm().barrier()?;
            ctx.comm().barrier()
        });
        assert_eq!(outcomes[failed], Some(Ok(())));
        let expected = Error::RankFailed { rank: failed, cause: Cause::Left };
        all_others_return(&outcomes, failed, &expected);
        assert_eq!(whole, Err(expected));
    }
}

/// The error of the whole run is that of the rank that failed by itself, not of those it left.
#[test]
fn own_error_of_a_rank_is_what_the_run_returns() {
    for repeat in 0..REPEATS {
        let failed = repeat % 3;
        let own = || Error::Argument { operation: "test", reason: "bad detector".into() };
        let (_, whole) =
            run(
                3,
                LONG,
                move |ctx| {
                    if ctx.rank() == failed { Err(own()) } else { ctx.comm().barrier() }
                },
            );
        assert_eq!(whole, Err(own()));
    }
}

/// Ranks that never need the one that failed learn of it all the same.
#[test]
fn own_error_of_a_rank_ends_the_calls_of_the_others() {
    for repeat in 0..REPEATS {
        let failed = repeat % 3;
        let (outcomes, _) = run(3, LONG, move |ctx| {
            let others = ctx.comm().split((ctx.rank() != failed).then_some(0), 0)?;
            let Some(others) = others else {
                return Err(Error::Argument { operation: "test", reason: "bad detector".into() });
            };
            loop {
                others.barrier()?;
            }
        });
        let expected = Error::RankFailed { rank: failed, cause: Cause::ReturnedError };
        all_others_return(&outcomes, failed, &expected);
    }
}

/// A rank that makes its last call late must not take the others' leaving for a failure.
#[test]
fn ranks_may_leave_while_others_still_read_their_last_frames() {
    for _ in 0..REPEATS {
        let (_, whole) = run(2, LONG, |ctx| {
            // The first wait is longer than the grace for frames of a rank that has left.
            if ctx.rank() == 1 {
                std::thread::sleep(Duration::from_millis(60));
            }
            ctx.comm().barrier()
        });
        assert!(whole.is_ok(), "{whole:?}");
    }
}

#[test]
fn deadlines_of_any_length_are_safe() {
    let (_, whole) = run(2, haloscope_comm::MAX_DEADLINE, |ctx| {
        ctx.comm().set_deadline(Duration::MAX);
        ctx.comm().barrier()
    });
    assert!(whole.is_ok(), "{whole:?}");
    let (_, whole) = run(2, Duration::MAX, |ctx| ctx.comm().barrier());
    let error = whole.expect_err("too long").to_string();
    assert!(error.contains("10⁹ s"), "{error}");
}

/// One rank stays away until all others have given up on it.
fn stall(size: usize, failed: usize, deadline: Duration) {
    let given_up = AtomicUsize::new(0);
    let (outcomes, whole) = run(size, deadline, move |ctx| {
        ctx.comm().barrier()?;
        while ctx.rank() == failed && given_up.load(Ordering::SeqCst) < size - 1 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut sum = [1.0_f64; 3];
        let outcome = ctx.comm().all_reduce(Reduction::Sum, &mut sum);
        given_up.fetch_add(1, Ordering::SeqCst);
        outcome
    });
    for (rank, outcome) in outcomes.iter().enumerate() {
        match outcome {
            Some(Err(Error::Timeout { ranks, site, .. })) => {
                assert_eq!(ranks, &[failed], "rank {rank}");
                assert_eq!(site.call, "all_reduce(sum, f64 × 3)");
            }
            other => panic!("rank {rank} got {other:?}"),
        }
    }
    assert!(matches!(whole, Err(Error::Timeout { .. })), "{whole:?}");
}

#[test]
fn stalled_rank_is_named_at_the_deadline_even_by_those_that_wait_for_others() {
    // All at once: they only wait, for so long that no rank but the stalled one is late.
    std::thread::scope(|scope| {
        for repeat in 0..REPEATS {
            let size = [2, 3, 5, 8][repeat % 4];
            scope.spawn(move || stall(size, repeat % size, Duration::from_secs(5)));
        }
    });
}

#[test]
fn rank_that_never_returns_is_left_behind() {
    let (outcomes, whole) = run(3, Duration::from_secs(2), |ctx| {
        if ctx.rank() == 1 {
            loop {
                std::thread::park();
            }
        }
        ctx.comm().barrier()
    });
    assert!(outcomes[1].is_none());
    assert!(matches!(whole, Err(Error::Timeout { ranks, .. }) if ranks == [1]));
}

#[test]
fn different_calls_are_an_error_on_all_ranks_that_names_both() {
    type Body = fn(&dyn Communicator, bool) -> Result<()>;
    let pairs: &[(Body, [&str; 2])] = &[
        (
            |comm, odd| {
                if odd { comm.barrier() } else { comm.all_reduce(Reduction::Sum, &mut [1.0_f32]) }
            },
            ["barrier()", "all_reduce(sum, f32 × 1)"],
        ),
        (
            |comm, odd| {
                if odd {
                    comm.broadcast(0, &mut [1.0_f32; 2])
                } else {
                    comm.broadcast(0, &mut [1.0_f64; 2])
                }
            },
            ["broadcast(root 0, f32 × 2)", "broadcast(root 0, f64 × 2)"],
        ),
        (
            |comm, odd| {
                comm.all_reduce(
                    Reduction::Sum,
                    &mut vec![0_u64; if odd { 100_000 } else { 100_001 }],
                )
            },
            ["u64 × 100000", "u64 × 100001"],
        ),
        (
            |comm, odd| {
                comm.all_reduce(if odd { Reduction::Max } else { Reduction::Min }, &mut [0_u8; 2])
            },
            ["all_reduce(max", "all_reduce(min"],
        ),
        (
            |comm, odd| comm.broadcast(usize::from(odd), &mut vec![0_u8; 100_000]),
            ["root 0", "root 1"],
        ),
    ];
    for repeat in 0..REPEATS {
        let size = [2, 3, 5, 8][repeat % 4];
        for (body, names) in pairs {
            let body = *body;
            let (outcomes, whole) =
                run(size, LONG, move |ctx| body(ctx.comm(), ctx.rank() == ctx.size() - 1));
            for outcome in &outcomes {
                let error = outcome.clone().expect("no panic").expect_err("the calls differ");
                assert!(matches!(error, Error::Mismatch { .. }), "{error}");
                let text = error.to_string();
                assert!(names.iter().all(|name| text.contains(name)), "{text}");
            }
            assert!(matches!(whole, Err(Error::Mismatch { .. })));
        }
    }
}

#[test]
fn a_rank_that_skips_an_exchange_of_others_is_out_of_step() {
    let (outcomes, whole) = run(3, LONG, |ctx| {
        let (rank, mut received) = (ctx.rank(), [0.0_f32; 3]);
        match rank {
            // It has no neighbours, and should have passed empty lists.
            2 => (),
            _ => ctx
                .comm()
                .exchange(&[(1 - rank, &[1.0_f32; 3][..])], &mut [(1 - rank, &mut received[..])])?,
        }
        ctx.comm().barrier()
    });
    assert!(matches!(whole, Err(Error::Mismatch { .. })), "{whole:?}");
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Some(Err(Error::Mismatch { .. })))));
}

#[test]
fn message_of_another_length_is_an_error() {
    let (_, whole) = run(2, LONG, |ctx| {
        let other = 1 - ctx.rank();
        let mut received = [0.0_f32; 3];
        let sent = [1.0_f32; 4];
        ctx.comm().exchange(&[(other, &sent[..])], &mut [(other, &mut received[..])])
    });
    let error = whole.expect_err("the lengths differ").to_string();
    assert!(error.contains("f32 × 3") && error.contains("f32 × 4"), "{error}");
}

#[test]
fn refused_argument_on_one_rank_shows_at_the_next_call_of_the_others() {
    let (outcomes, _) = run(3, LONG, |ctx| {
        let counts: &[usize] = if ctx.rank() == 1 { &[1, 1] } else { &[1, 1, 1] };
        let refused = ctx.comm().all_gather_into(&[0_u64], counts, &mut [0_u64; 3]);
        assert!(refused.is_err());
        if ctx.rank() == 1 { ctx.comm().barrier() } else { refused }
    });
    for outcome in outcomes {
        let error = outcome.expect("no panic").expect_err("rank 1 was refused");
        assert!(matches!(error, Error::Mismatch { .. }), "{error}");
    }
}

#[test]
fn abort_ends_every_rank_with_its_reason() {
    for _ in 0..REPEATS {
        let (outcomes, whole) = run(3, LONG, |ctx| {
            if ctx.rank() == 2 {
                return Err(ctx.comm().abort("the disk is full"));
            }
            ctx.comm().barrier()
        });
        let cause = Cause::Aborted("the disk is full".into());
        let expected = Error::RankFailed { rank: 2, cause };
        assert!(outcomes.iter().all(|outcome| outcome == &Some(Err(expected.clone()))));
        assert_eq!(whole, Err(expected));
    }
}

#[test]
fn failure_is_final_for_all_communicators_and_dropping_them_does_not_block() {
    for _ in 0..REPEATS {
        let (outcomes, _) = run(4, LONG, |ctx| {
            let half = ctx.comm().split(Some(ctx.rank() as u64 % 2), 0)?.expect("a colour");
            if ctx.rank() == 0 {
                return Err(ctx.comm().abort("enough"));
            }
            let first = half.barrier().and_then(|()| ctx.comm().barrier());
            let second = ctx.comm().barrier();
            assert_eq!(second, half.barrier());
            first
        });
        for outcome in outcomes {
            let error = outcome.expect("no panic").expect_err("rank 0 ended the job");
            assert!(matches!(error, Error::RankFailed { rank: 0, .. }), "{error}");
        }
    }
}

/// Without `Context`: a rank that unwinds tells the others by itself.
#[test]
fn rank_that_unwinds_is_noticed_without_a_runner() {
    let mut ranks = Threads::group(2).expect("two ranks");
    let (second, first) = (ranks.remove(1), ranks.remove(0));
    let thread = std::thread::spawn(move || {
        let _rank = second;
        panic!("on purpose");
    });
    let error = first.barrier().expect_err("the other rank panicked");
    assert!(matches!(error, Error::RankFailed { rank: 1, cause: Cause::Panicked(_) }), "{error}");
    assert!(thread.join().is_err());
}
