//! The facts of `suite` on 1, 2, 3, 5 and 8 thread ranks, with whole and with split messages.

mod suite;

use haloscope_comm::{Communicator, Threads};

/// Runs `check` on every rank of a new world.
fn on_ranks(size: usize, frame_bytes: usize, check: fn(&dyn Communicator)) {
    let ranks = Threads::group_with_frames(size, frame_bytes).expect("a valid number of ranks");
    std::thread::scope(|scope| {
        for rank in ranks {
            scope.spawn(move || check(&rank));
        }
    });
}

macro_rules! test_facts {
    ($($name:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            for size in [1, 2, 3, 5, 8] {
                on_ranks(size, 128 << 10, suite::$name);
                // As if a message could hold a few elements only.
                on_ranks(size, 1000, suite::$name);
            }
        })*

        #[test]
        fn every_fact_of_the_suite_is_tested_here() {
            let here = [$(stringify!($name)),*];
            assert!(suite::FACTS.iter().map(|fact| fact.name).eq(here));
        }
    };
}

#[test]
fn large_data_arrives_whole() {
    for size in [1, 2, 3, 5] {
        on_ranks(size, 128 << 10, suite::large_data_arrives_whole);
    }
}

test_facts! {
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
