//! What every communicator must do, whatever its transport: `threads.rs` runs these facts on thread
//! ranks, `rank_process` on MPI processes. Every rank runs the same function and checks its own view.
//!
//! Random cases are functions of their number alone, so all ranks draw the same ones and each can
//! compute what the others send.

// Each runner uses a part of it.
#![allow(dead_code)]

use std::time::Duration;

use fastrand::Rng;
use haloscope_comm::{Collectives, Communicator, Element, Error, Operation, Reduction};

/// A fact about communicators, by name.
pub(crate) struct Fact {
    pub(crate) name: &'static str,
    pub(crate) check: fn(&dyn Communicator),
}

macro_rules! facts {
    ($($name:ident),* $(,)?) => {
        /// All facts, for a runner to walk.
        pub(crate) const FACTS: &[Fact] = &[$(Fact { name: stringify!($name), check: $name }),*];
    };
}

facts! {
    barrier_returns_on_all_ranks,
    broadcast_copies_the_data_of_each_root,
    all_reduce_equals_the_reduction_in_rank_order,
    reduce_scatter_leaves_each_rank_its_part,
    all_gather_concatenates_lists_of_any_length,
    exchange_delivers_every_message_of_a_random_graph,
    exchange_around_a_ring_passes_halos,
    ordered_sum_has_the_bits_of_the_serial_sum,
    ordered_sum_of_nothing_is_zero,
    ordered_sum_refuses_an_index_twice,
    split_makes_independent_communicators,
    threads_of_a_rank_use_communicators_side_by_side,
    refused_arguments_leave_the_communicator_usable,
    statistics_count_calls_and_bytes,
    statistics_count_the_time_of_waiting,
}

/// Lengths around the places where algorithms and frames change.
fn random_length(rng: &mut Rng) -> usize {
    match rng.u8(0..6) {
        0 => 0,
        1 => 1,
        2 | 3 => rng.usize(0..300),
        4 => rng.usize(1_000..9_000),
        _ => rng.usize(20_000..60_000),
    }
}

/// Floats over many magnitudes, so that the order of a sum shows in its bits.
fn random_floats(seed: u64, length: usize) -> Vec<f32> {
    let mut rng = Rng::with_seed(seed);
    (0..length).map(|_| (rng.f32() - 0.5) * 10_f32.powi(rng.i32(-6..7))).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn seed(case: u64, item: u64) -> u64 {
    case * 1_000_003 + item
}

pub(crate) fn barrier_returns_on_all_ranks(comm: &dyn Communicator) {
    for _ in 0..20 {
        comm.barrier().expect("all ranks take part");
    }
}

pub(crate) fn broadcast_copies_the_data_of_each_root(comm: &dyn Communicator) {
    for case in 0..40 {
        let mut rng = Rng::with_seed(case);
        let root = rng.usize(0..comm.size());
        let expected = random_floats(case, random_length(&mut rng));
        let mut values = vec![f32::NAN; expected.len()];
        if comm.rank() == root {
            values.clone_from(&expected);
        }
        comm.broadcast(root, &mut values).expect("all ranks take part");
        assert_eq!(bits(&values), bits(&expected), "case {case}");

        let mut list = if comm.rank() == root { expected.clone() } else { vec![1.0; 3] };
        comm.broadcast_list(root, &mut list).expect("all ranks take part");
        assert_eq!(bits(&list), bits(&expected), "case {case}");
    }
}

pub(crate) fn all_reduce_equals_the_reduction_in_rank_order(comm: &dyn Communicator) {
    fn check<T: Element + std::fmt::Debug>(
        comm: &dyn Communicator,
        case: u64,
        reduction: Reduction,
        combine: fn(T, T) -> T,
        of_rank: impl Fn(usize) -> Vec<T>,
    ) {
        let mut values = of_rank(comm.rank());
        comm.all_reduce(reduction, &mut values).expect("all ranks take part");
        let expected = (1..comm.size()).fold(of_rank(0), |sum, rank| {
            sum.into_iter().zip(of_rank(rank)).map(|(a, b)| combine(a, b)).collect()
        });
        assert_eq!(values, expected, "case {case}");
    }
    for case in 0..60 {
        let mut rng = Rng::with_seed(case);
        let length = random_length(&mut rng);
        let item = |rank: usize| seed(case, rank as u64);
        let floats = |rank| random_floats(item(rank), length);
        let integers = |rank| {
            let mut rng = Rng::with_seed(item(rank));
            (0..length).map(|_| rng.u64(..)).collect::<Vec<u64>>()
        };
        if case % 5 == 0 {
            let mut mean = floats(comm.rank());
            comm.all_reduce(Reduction::Mean, &mut mean).expect("all ranks take part");
            let sum = (1..comm.size()).fold(floats(0), |sum, rank| {
                sum.into_iter().zip(floats(rank)).map(|(a, b)| a + b).collect()
            });
            let expected: Vec<f32> = sum.iter().map(|sum| sum / comm.size() as f32).collect();
            assert_eq!(bits(&mean), bits(&expected), "case {case}");
        }
        match case % 5 {
            0 => check(comm, case, Reduction::Sum, |a, b| a + b, floats),
            1 => check(comm, case, Reduction::Max, f32::max, floats),
            2 => check(comm, case, Reduction::Min, u64::min, integers),
            3 => check(
                comm,
                case,
                Reduction::Sum,
                |a, b| a + b,
                |rank| floats(rank).into_iter().map(f64::from).collect::<Vec<f64>>(),
            ),
            _ => check(comm, case, Reduction::Sum, u8::wrapping_add, |rank| {
                integers(rank).into_iter().map(|x| x as u8).collect::<Vec<u8>>()
            }),
        }
    }
}

pub(crate) fn reduce_scatter_leaves_each_rank_its_part(comm: &dyn Communicator) {
    for case in 0..40 {
        let mut rng = Rng::with_seed(case);
        let counts: Vec<usize> = (0..comm.size()).map(|_| random_length(&mut rng)).collect();
        let total = counts.iter().sum();
        let of_rank = |rank: usize| random_floats(seed(case, rank as u64), total);
        let part = comm
            .reduce_scatter(Reduction::Sum, &of_rank(comm.rank()), &counts)
            .expect("all ranks take part");
        let whole = (1..comm.size()).fold(of_rank(0), |sum, rank| {
            sum.iter().zip(of_rank(rank)).map(|(a, b)| a + b).collect()
        });
        let start: usize = counts[..comm.rank()].iter().sum();
        assert_eq!(bits(&part), bits(&whole[start..start + part.len()]), "case {case}");
        let mean = comm
            .reduce_scatter(Reduction::Mean, &of_rank(comm.rank()), &counts)
            .expect("all ranks take part");
        let expected: Vec<f32> = part.iter().map(|sum| sum / comm.size() as f32).collect();
        assert_eq!(bits(&mean), bits(&expected), "case {case}");
    }
    // Integers have no mean of their own; all ranks are told so, and go on.
    let refused = comm.all_reduce(Reduction::Mean, &mut [7_u64]).expect_err("integers");
    assert!(refused.to_string().contains("f32 and f64 have one"), "{refused}");
    let counts = vec![1; comm.size()];
    let bytes = vec![1_u8; comm.size()];
    let refused = comm.reduce_scatter(Reduction::Mean, &bytes, &counts).expect_err("bytes");
    assert!(refused.to_string().contains("mean of u8"), "{refused}");
}

pub(crate) fn all_gather_concatenates_lists_of_any_length(comm: &dyn Communicator) {
    for case in 0..40 {
        let mut rng = Rng::with_seed(case);
        let lists: Vec<Vec<f32>> = (0..comm.size())
            .map(|rank| random_floats(seed(case, rank as u64), random_length(&mut rng)))
            .collect();
        let gathered = comm.all_gather(&lists[comm.rank()]).expect("all ranks take part");
        assert_eq!(gathered, lists, "case {case}");
        // Data on one rank only.
        let nothing = vec![case as u8; 70_000 * usize::from(comm.rank() == 0)];
        let gathered = comm.all_gather(&nothing).expect("all ranks take part");
        assert_eq!(gathered.concat(), vec![case as u8; 70_000]);
    }
}

pub(crate) fn exchange_delivers_every_message_of_a_random_graph(comm: &dyn Communicator) {
    for case in 0..30 {
        let mut rng = Rng::with_seed(case);
        // messages[from][to] are the lengths of the messages between two ranks, themselves included.
        let lengths: Vec<Vec<Vec<usize>>> = (0..comm.size())
            .map(|_| {
                (0..comm.size())
                    .map(|_| (0..rng.usize(0..4)).map(|_| random_length(&mut rng)).collect())
                    .collect()
            })
            .collect();
        let message = |from: usize, to: usize, k: usize| {
            let item = ((from * comm.size() + to) * 4 + k) as u64;
            random_floats(seed(case, item), lengths[from][to][k])
        };
        let me = comm.rank();
        let ranks = || 0..comm.size();
        let sent: Vec<(usize, Vec<f32>)> = ranks()
            .flat_map(|to| (0..lengths[me][to].len()).map(move |k| (to, k)))
            .map(|(to, k)| (to, message(me, to, k)))
            .collect();
        let expected: Vec<(usize, Vec<f32>)> = ranks()
            .flat_map(|from| (0..lengths[from][me].len()).map(|k| (from, k)).collect::<Vec<_>>())
            .map(|(from, k)| (from, message(from, me, k)))
            .collect();
        let mut received: Vec<(usize, Vec<f32>)> =
            expected.iter().map(|(from, data)| (*from, vec![f32::NAN; data.len()])).collect();
        let sends: Vec<(usize, &[f32])> = sent.iter().map(|(to, d)| (*to, &d[..])).collect();
        let mut receives: Vec<(usize, &mut [f32])> =
            received.iter_mut().map(|(from, d)| (*from, &mut d[..])).collect();
        comm.exchange(&sends, &mut receives).expect("the lists match");
        assert_eq!(received, expected, "case {case}");
    }
    comm.barrier().expect("all messages have been received");
}

pub(crate) fn exchange_around_a_ring_passes_halos(comm: &dyn Communicator) {
    let (rank, size) = (comm.rank(), comm.size());
    let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);
    for step in 0..50_u64 {
        let mine = [rank as u64, step];
        let (mut from_left, mut from_right) = ([0; 2], [0; 2]);
        comm.exchange(
            &[(right, &mine[..]), (left, &mine[..])],
            &mut [(left, &mut from_left[..]), (right, &mut from_right[..])],
        )
        .expect("both neighbours take part");
        assert_eq!(from_left, [left as u64, step]);
        assert_eq!(from_right, [right as u64, step]);
    }
}

pub(crate) fn ordered_sum_has_the_bits_of_the_serial_sum(comm: &dyn Communicator) {
    for case in 0..40 {
        // Neither the terms nor their order depends on the number of ranks.
        let mut rng = Rng::with_seed(case);
        let length = random_length(&mut rng);
        let mut indices: Vec<u64> = (0..rng.u64(0..12)).map(|i| i * 3 + 1).collect();
        let term = |index: u64| random_floats(seed(case, index), length);
        let expected = indices
            .iter()
            .map(|index| term(*index))
            .reduce(|sum, term| sum.iter().zip(term).map(|(a, b)| a + b).collect())
            .unwrap_or_else(|| vec![0.0; length]);
        // Which rank holds what is drawn anew for each number of ranks.
        rng.shuffle(&mut indices);
        let owners: Vec<usize> = indices.iter().map(|_| rng.usize(0..comm.size())).collect();
        let mine: Vec<(u64, Vec<f32>)> = indices
            .iter()
            .zip(owners)
            .filter(|(_, owner)| *owner == comm.rank())
            .map(|(index, _)| (*index, term(*index)))
            .collect();
        let terms: Vec<(u64, &[f32])> = mine.iter().map(|(i, term)| (*i, &term[..])).collect();
        let mut sum = vec![f32::NAN; length];
        comm.ordered_sum(&terms, &mut sum).expect("all ranks take part");
        assert_eq!(bits(&sum), bits(&expected), "case {case}");
    }
}

pub(crate) fn ordered_sum_of_nothing_is_zero(comm: &dyn Communicator) {
    let mut sum = [1.0_f64; 5];
    comm.ordered_sum(&[], &mut sum).expect("all ranks take part");
    assert_eq!(sum, [0.0; 5]);
    // A single term is itself, to the sign of zero.
    let term = [-0.0_f64; 5];
    let mine: &[(u64, &[f64])] = if comm.rank() == 0 { &[(9, &term)] } else { &[] };
    comm.ordered_sum(mine, &mut sum).expect("all ranks take part");
    assert!(sum.iter().all(|x| x.is_sign_negative()));
}

pub(crate) fn ordered_sum_refuses_an_index_twice(comm: &dyn Communicator) {
    let term = [1.0_f32; 3];
    let twice: &[(u64, &[f32])] =
        if comm.size() == 1 { &[(4, &term), (4, &term)] } else { &[(4, &term)] };
    let error = comm.ordered_sum(twice, &mut [0.0; 3]).expect_err("4 occurs more than once");
    assert!(error.to_string().contains("contribution 4"), "{error}");
    comm.barrier().expect("the communicator is still usable");
}

pub(crate) fn split_makes_independent_communicators(comm: &dyn Communicator) {
    let (rank, size) = (comm.rank(), comm.size());
    // Odd and even ranks, numbered backwards.
    let half = comm
        .split(Some(rank as u64 % 2), (size - rank) as u64)
        .expect("all ranks take part")
        .expect("a colour was given");
    let members: Vec<u64> = (0..size as u64).filter(|r| r % 2 == rank as u64 % 2).rev().collect();
    let gathered = half.all_gather(&[rank as u64]).expect("the half takes part").concat();
    assert_eq!(gathered, members);
    assert_eq!(members[half.rank()], rank as u64);

    // A rank without a colour gets nothing; the others go on without it.
    let others = comm.split((rank > 0).then_some(7), 0).expect("all ranks take part");
    assert_eq!(others.is_none(), rank == 0);
    if let Some(others) = &others {
        let mut count = [1_u64];
        others.all_reduce(Reduction::Sum, &mut count).expect("all but rank 0 take part");
        assert_eq!(count[0] as usize, size - 1);
        // Parts of parts.
        let alone = others.split(Some(rank as u64), 0).expect("all but rank 0 take part");
        let alone = alone.expect("a colour was given");
        assert_eq!((alone.rank(), alone.size()), (0, 1));
        alone.barrier().expect("nobody to wait for");
    }
    // Communicators do not hear each other: the whole goes on while the parts exist.
    for _ in 0..10 {
        let mut sum = [half.rank() as u64];
        comm.all_reduce(Reduction::Max, &mut sum).expect("all ranks take part");
        half.barrier().expect("the half takes part");
    }
}

/// Two threads of each rank, each with a communicator of its own and parts of it.
pub(crate) fn threads_of_a_rank_use_communicators_side_by_side(comm: &dyn Communicator) {
    let parts = [0, 1].map(|_| {
        comm.split(Some(0), comm.rank() as u64).expect("all ranks take part").expect("a colour")
    });
    std::thread::scope(|scope| {
        for (name, part) in parts.iter().enumerate() {
            scope.spawn(move || {
                let mark = (name + 1) as f64;
                for round in 0..60 {
                    // Small and large, so that both algorithms run beside each other.
                    let mut values = vec![mark; if round % 10 == 0 { 40_000 } else { 3 }];
                    part.all_reduce(Reduction::Sum, &mut values).expect("all ranks take part");
                    let sum = mark * comm.size() as f64;
                    assert!(values.iter().all(|value| *value == sum), "{mark} in round {round}");
                    let smaller = part.split(Some(0), 0).expect("all ranks take part");
                    let smaller = smaller.expect("a colour was given");
                    let gathered = smaller.all_gather(&[mark]).expect("all ranks take part");
                    assert!(gathered.concat().iter().all(|value| *value == mark));
                    // Others can look while a call is under way.
                    assert!(part.statistics().total().calls > 0);
                }
            });
        }
    });
}

/// More than the room that a link has for frames under way, several times over. Not one of the
/// facts: it is for whole frames only.
pub(crate) fn large_data_arrives_whole(comm: &dyn Communicator) {
    let (rank, size) = (comm.rank(), comm.size());
    let length = 6_000_000;
    let pattern = |rank: usize, i: usize| ((i * 7 + rank) % 1_000) as f32;
    let mine: Vec<f32> = (0..length).map(|i| pattern(rank, i)).collect();
    let sum = |i: usize| (0..size).map(|other| pattern(other, i)).sum::<f32>();
    let is_sum = |values: &[f32]| values.iter().enumerate().all(|(i, value)| *value == sum(i));

    let mut values = mine.clone();
    comm.all_reduce(Reduction::Sum, &mut values).expect("all ranks take part");
    assert!(is_sum(&values));
    comm.ordered_sum(&[(rank as u64, &mine[..])], &mut values).expect("all ranks take part");
    assert!(is_sum(&values));
    for (other, list) in comm.all_gather(&mine).expect("all ranks take part").iter().enumerate() {
        assert!(list.iter().enumerate().all(|(i, value)| *value == pattern(other, i)));
    }
    comm.broadcast(size - 1, &mut values).expect("all ranks take part");
    let others: Vec<usize> = (0..size).filter(|other| *other != rank).collect();
    let sends: Vec<(usize, &[f32])> = others.iter().map(|other| (*other, &mine[..])).collect();
    let mut received: Vec<Vec<f32>> = others.iter().map(|_| vec![0.0; length]).collect();
    let mut receives: Vec<(usize, &mut [f32])> =
        others.iter().zip(&mut received).map(|(other, list)| (*other, &mut list[..])).collect();
    comm.exchange(&sends, &mut receives).expect("the lists match");
    for (other, list) in others.iter().zip(&received) {
        assert!(list.iter().enumerate().all(|(i, value)| *value == pattern(*other, i)));
    }
    comm.barrier().expect("all ranks take part");
}

pub(crate) fn refused_arguments_leave_the_communicator_usable(comm: &dyn Communicator) {
    let root = comm.size() + 1;
    let error = comm.broadcast(root, &mut [0_u8; 3]).expect_err("no such rank");
    assert!(error.to_string().contains(&format!("0 to {}", comm.size() - 1)), "{error}");
    let error = comm
        .all_gather_into(&[1.0_f32; 2], &vec![usize::MAX / 2 + 1; comm.size() + 1], &mut [])
        .expect_err("one count too many");
    assert!(matches!(error, Error::Argument { .. }) && !error.is_final(), "{error}");
    let error = comm
        .exchange(&[(comm.rank(), &[0_u64; 2][..])], &mut [])
        .expect_err("nothing receives the message");
    assert!(error.to_string().contains("must match"), "{error}");
    comm.barrier().expect("the communicator is still usable");
}

pub(crate) fn statistics_count_calls_and_bytes(comm: &dyn Communicator) {
    comm.reset_statistics();
    let mut values = vec![1.0_f32; 50_000];
    comm.all_reduce(Reduction::Sum, &mut values).expect("all ranks take part");
    let cost = comm.statistics().cost(Operation::AllReduce);
    assert_eq!(cost.calls, 1);
    // A segment to everyone and the sum of one's own segment to everyone: 2 (n - 1) / n of it all.
    let bytes = 2 * 200_000 * (comm.size() as u64 - 1) / comm.size() as u64;
    assert!(cost.bytes_sent.abs_diff(bytes) <= 8 * comm.size() as u64, "{cost:?} {bytes}");
    comm.reset_statistics();
    assert_eq!(comm.statistics().total().calls, 0);
    assert_eq!(comm.gather_statistics().expect("all ranks take part").len(), comm.size());
}

/// A rank that is late on purpose is waited for; rank 0 may be late by chance, but not every time.
pub(crate) fn statistics_count_the_time_of_waiting(comm: &dyn Communicator) {
    let waited = |pause: Duration| {
        if comm.rank() == comm.size() - 1 {
            std::thread::sleep(pause);
        }
        comm.barrier().expect("all ranks take part");
        let all = comm.gather_statistics().expect("all ranks take part");
        all[0].cost(Operation::Barrier).waiting
    };
    let pauses = [10, 100, 1_000, 10_000].map(Duration::from_millis);
    assert!(
        comm.size() == 1 || pauses.into_iter().any(|pause| waited(pause) >= pause / 2),
        "rank 0 did not wait for the last"
    );
}

/// Sometimes at once, sometimes a little later, now and then much later than the others.
pub(crate) fn arrive_at_a_random_time(rng: &mut Rng) {
    match rng.u32(0..1_000) {
        0 => std::thread::sleep(Duration::from_micros(rng.u64(0..1_000))),
        1..20 => std::thread::yield_now(),
        20..200 => (0..rng.u32(0..2_000)).for_each(|_| std::hint::spin_loop()),
        _ => (),
    }
}

/// One small call out of five kinds, checked.
pub(crate) fn small_call(comm: &dyn Communicator, call: u64) -> haloscope_comm::Result<()> {
    let (rank, size) = (comm.rank(), comm.size());
    let mut value = [call];
    let mut expected = call;
    match call % 5 {
        0 => comm.barrier()?,
        1 => comm.broadcast((call % size as u64) as usize, &mut value)?,
        2 => {
            comm.all_reduce(Reduction::Sum, &mut value)?;
            expected *= size as u64;
        }
        3 => {
            comm.ordered_sum(&[(rank as u64, &[call][..])], &mut value)?;
            expected *= size as u64;
        }
        _ => {
            let (next, last) = ((rank + 1) % size, (rank + size - 1) % size);
            comm.exchange(&[(next, &[call][..])], &mut [(last, &mut value[..])])?;
        }
    }
    assert_eq!(value[0], expected);
    Ok(())
}
