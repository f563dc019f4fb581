//! A rank that fails while the ranks save a checkpoint in parts: the others end and name it, and there is a whole checkpoint to
//! resume from.

mod intercepted;
mod parted;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use haloscope::Error;
use haloscope::solve::Checkpoints;
use haloscope_comm::{ContextOptions, DEFAULT_DEADLINE};
use intercepted::intercepted;
use parted::{EACH, names, parts, resume_in_parts, save, save_on};

const RANKS: usize = 3;

/// How a rank ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Death {
    Panic,
    /// It stays away until the others have given up.
    Stall,
}

/// Saves iteration 2 on ranks of which one ends before it makes the call of a number, and returns what the others say; `None`
/// if there are fewer calls.
fn last_words(
    folder: &Path,
    victim: usize,
    number: usize,
    death: Death,
) -> Option<Vec<(usize, String)>> {
    let deadline = if death == Death::Stall { Duration::from_secs(5) } else { DEFAULT_DEADLINE };
    let options = ContextOptions { deadline, ..ContextOptions::default() };
    let (folder, words) = (folder.to_owned(), Arc::new(Mutex::new(Vec::new())));
    let said = words.clone();
    let outcome = options.threads(RANKS, move |ctx| {
        let (rank, heard) = (ctx.rank(), said.clone());
        let ctx = intercepted(ctx, move |call_number, call, comm| {
            if rank == victim && call_number == number {
                assert!(death == Death::Stall, "the power is out");
                while heard.lock().expect("nobody panics with it").len() < RANKS - 1 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            comm.execute(call)
        });
        let outcome = save(&ctx, &mut Checkpoints::new(&folder, EACH)?, 2);
        if let (true, Err(error)) = (rank != victim, &outcome) {
            said.lock().expect("nobody panics with it").push((rank, error.to_string()));
        }
        outcome
    });
    let words = words.lock().expect("nobody panics with it").clone();
    assert_eq!(outcome.is_ok(), words.is_empty(), "{words:?}");
    outcome.is_err().then_some(words)
}

/// Which iteration five ranks resume from, all of whose bits are checked.
fn resumed(folder: &Path) -> usize {
    let newest = names(folder).into_iter().rfind(|name| name.ends_with(".checkpoint"));
    let iteration = if newest.as_deref() == Some("iteration-0000002.checkpoint") { 2 } else { 1 };
    resume_in_parts(folder, 5, iteration);
    iteration
}

#[test]
fn a_rank_that_dies_before_any_call_of_a_save_is_named_and_a_whole_checkpoint_is_left() {
    for victim in 0..RANKS {
        let mut iterations = Vec::new();
        for number in 0.. {
            let folder = tempfile::tempdir().expect("a folder");
            save_on(folder.path(), RANKS, 1..2);
            let Some(words) = last_words(folder.path(), victim, number, Death::Panic) else {
                break;
            };
            assert_eq!(words.len(), RANKS - 1, "rank {victim}, call {number}: {words:?}");
            let expected = format!("rank {victim} panicked: the power is out");
            for (rank, error) in words {
                assert!(error.contains(&expected), "rank {rank}, call {number}: {error}");
            }
            iterations.push(resumed(folder.path()));
            // What the dead left is no hindrance, and is removed.
            save_on(folder.path(), RANKS, 2..3);
            resume_in_parts(folder.path(), 2, 2);
            assert_eq!(parts(folder.path()).len(), 2 * RANKS, "{:?}", names(folder.path()));
        }
        // The new checkpoint is there from some call on, and the old one before it.
        assert!(iterations.is_sorted(), "rank {victim}: {iterations:?}");
        let ends = [iterations.first(), iterations.last()];
        assert_eq!(ends, [Some(&1), Some(&2)], "rank {victim}: {iterations:?}");
    }
}

#[test]
fn a_rank_that_stays_away_from_a_save_is_named_at_the_deadline() {
    // After the ranks have agreed on names, before they know that all parts are written.
    let (victim, number) = (1, 6);
    let folder = tempfile::tempdir().expect("a folder");
    save_on(folder.path(), RANKS, 1..2);
    let words = last_words(folder.path(), victim, number, Death::Stall).expect("it stays away");
    assert_eq!(words.len(), RANKS - 1, "{words:?}");
    for (rank, error) in words {
        assert!(error.contains("rank 1 did not arrive within"), "rank {rank}: {error}");
    }
    assert!(parts(folder.path()).len() > RANKS, "it did not die while parts were written");
    assert_eq!(resumed(folder.path()), 1);
    assert_eq!(parts(folder.path()).len(), RANKS, "{:?}", names(folder.path()));
}

#[test]
fn a_rank_that_cannot_write_its_part_is_named_and_the_ranks_stay_together() {
    // The first rank makes its folder if it is not there.
    for victim in 1..RANKS {
        let folder = tempfile::tempdir().expect("a folder");
        save_on(folder.path(), RANKS, 1..2);
        let path = folder.path().to_owned();
        // The folder of one rank is not there, as if a disk was not mounted.
        let errors = ContextOptions::default().threads(RANKS, move |ctx| {
            let own = if ctx.rank() == victim { path.join("not/mounted") } else { path.clone() };
            let failed = save(ctx, &mut Checkpoints::new(own, EACH)?, 2);
            let next = save(ctx, &mut Checkpoints::new(&path, EACH)?, 3);
            Ok::<_, Error>((failed.expect_err("no folder").to_string(), next))
        });
        for (rank, (error, next)) in errors.expect("no rank fails alone").into_iter().enumerate() {
            assert!(error.contains("cannot write it"), "rank {rank}: {error}");
            let is_named = error.starts_with(&format!("rank {victim}: "));
            assert_eq!(is_named, rank != victim, "rank {rank}: {error}");
            assert_eq!(next, Ok(()), "rank {rank}");
        }
        resume_in_parts(folder.path(), 2, 3);
        assert_eq!(parts(folder.path()).len(), 2 * RANKS, "{:?}", names(folder.path()));
    }
}
