//! Checkpoints of states that are spread over ranks: stop on some ranks, resume on others, in parts or whole.

#![allow(clippy::unwrap_used, reason = "what cannot be unwrapped fails the test")]

mod parted;

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use haloscope::solve::{Checkpoints, Every, JobId, Part, Parts};
use haloscope::{Array, Error};
use haloscope_comm::Context;
use parted::{
    EACH, WHOLE, job, names, parts, region, resume_in_parts, rows, same_bits, save_on, state,
};

fn resume_whole(folder: &Path, ranks: usize, iteration: usize) {
    let folder = folder.to_owned();
    let states = Context::threads(ranks, move |ctx| {
        Checkpoints::new(&folder, EACH)?.load_latest(ctx, &job())
    });
    for found in states.expect("no rank fails") {
        assert!(same_bits(&found.expect("there is one").state, &state(iteration)), "{ranks} ranks");
    }
}

#[test]
fn any_number_of_ranks_resumes_from_parts_of_any_number() {
    for stopped in [1, 2, 3, 5, 8] {
        let folder = tempfile::tempdir().unwrap();
        save_on(folder.path(), stopped, 3..4);
        for ranks in [1, 2, 3, 5, 8] {
            resume_in_parts(folder.path(), ranks, 3);
            resume_whole(folder.path(), ranks, 3);
        }
    }
}

#[test]
fn whole_checkpoints_are_resumed_in_parts() {
    let folder = tempfile::tempdir().unwrap();
    Checkpoints::new(folder.path(), EACH).unwrap().save(&state(4), &job()).unwrap();
    for ranks in [1, 3, 8] {
        resume_in_parts(folder.path(), ranks, 4);
    }
    // And back: parts after it, and a whole one after them.
    save_on(folder.path(), 3, 5..6);
    resume_whole(folder.path(), 2, 5);
    let mut checkpoints = Checkpoints::new(folder.path(), EACH).unwrap();
    checkpoints.load_latest(&Context::solo(), &job()).unwrap().unwrap();
    checkpoints.save(&state(6), &job()).unwrap();
    resume_in_parts(folder.path(), 5, 6);
}

#[test]
fn two_are_kept_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    save_on(folder.path(), 3, 1..5);
    let kept: Vec<String> =
        names(folder.path()).into_iter().filter(|name| name.ends_with("checkpoint")).collect();
    assert_eq!(kept, ["iteration-0000003.checkpoint", "iteration-0000004.checkpoint"]);
    assert_eq!(parts(folder.path()).len(), 6, "{:?}", names(folder.path()));
    // The same iteration again: the old parts go when the new ones are there.
    let before = parts(folder.path());
    save_on(folder.path(), 3, 4..5);
    let after = parts(folder.path());
    assert_eq!((after.len(), after.iter().filter(|part| before.contains(part)).count()), (6, 3));
    resume_in_parts(folder.path(), 2, 4);
    let mut done = Checkpoints::new(folder.path(), Every::default()).unwrap();
    done.finish();
    assert!(!folder.path().exists());
}

#[test]
fn what_a_kill_left_is_passed_over_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    save_on(folder.path(), 3, 1..2);
    // Parts of the next one, one of them torn, and no manifest.
    for rank in 0..2 {
        let part = folder.path().join(format!("iteration-0000002.00000000000000ab.{rank}.part"));
        fs::write(part, vec![0; 10 * rank]).unwrap();
    }
    // A manifest that was not renamed, and parts of iteration 1 that were written again.
    fs::write(folder.path().join(".haloscope-checkpoint-x.part"), "torn").unwrap();
    fs::write(folder.path().join("iteration-0000001.00000000000000ab.0.part"), "torn").unwrap();
    resume_in_parts(folder.path(), 2, 1);
    assert_eq!(names(folder.path()).len(), 4, "{:?}", names(folder.path()));
    resume_whole(folder.path(), 2, 1);
}

#[test]
fn damaged_parts_are_refused_by_name_and_the_older_one_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    save_on(folder.path(), 3, 1..3);
    let newest: Vec<PathBuf> = parts(folder.path())
        .into_iter()
        .filter(|path| path.display().to_string().contains("iteration-0000002"))
        .collect();
    let manifest = folder.path().join("iteration-0000002.checkpoint");
    for damaged in newest.iter().chain([&manifest]) {
        let whole = fs::read(damaged).unwrap();
        let mut torn = vec![whole[..whole.len() - 1].to_vec(), Vec::new()];
        for at in [0, whole.len() / 2, whole.len() - 1] {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            torn.push(bytes);
        }
        for bytes in torn {
            fs::write(damaged, bytes).unwrap();
            // A manifest that is no longer one leaves its parts without a name.
            let saved: Vec<_> = newest.iter().map(|part| fs::read(part).unwrap()).collect();
            let name = damaged.file_name().unwrap().to_str().unwrap();
            let solo = Context::solo();
            let found = Checkpoints::new(folder.path(), EACH).unwrap().load_latest(&solo, &job());
            let found = found.unwrap().expect("the older one");
            assert!(same_bits(&found.state, &state(1)), "{name}");
            assert!(found.notes()[0].contains(name), "{name}: {:?}", found.notes());
            for (part, bytes) in newest.iter().zip(&saved) {
                fs::write(part, bytes).unwrap();
            }
            let path = folder.path().to_owned();
            let found = Context::threads(3, move |ctx| {
                let wanted = |name: Option<&str>, shape: &[usize]| {
                    Some(region(name, shape, ctx.rank(), ctx.size()))
                };
                Checkpoints::new(&path, EACH)?.load_parts(ctx, &job(), &wanted)
            });
            for found in found.expect("no rank fails alone") {
                let found = found.expect("the older one");
                assert_eq!(found.state.iteration, 1, "{name}");
                assert!(found.notes()[0].contains(name), "{name}: {:?}", found.notes());
            }
            for (part, bytes) in newest.iter().zip(&saved) {
                fs::write(part, bytes).unwrap();
            }
        }
        fs::write(damaged, whole).unwrap();
    }
    resume_in_parts(folder.path(), 3, 2);
    fs::remove_file(&newest[1]).unwrap();
    resume_whole(folder.path(), 1, 1);
}

#[test]
fn parts_that_do_not_make_a_state_are_refused_on_all_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let errors = Context::threads(3, move |ctx| {
        let mut checkpoints = Checkpoints::new(&path, EACH)?;
        let numbers = BTreeMap::new();
        let attempt = |checkpoints: &mut Checkpoints, rows: Range<usize>, held: usize| {
            let values = Array::zeros(vec![1, 2, held, 5]);
            let region = [0..1, 0..2, rows, 0..5];
            let image = Part { whole: &WHOLE, region: &region, values: &values };
            let parts = Parts { iteration: 1, image, arrays: BTreeMap::new(), numbers: &numbers };
            checkpoints.save_parts(ctx, &parts, &job()).expect_err("no state").to_string()
        };
        let own = rows(ctx.rank(), 3);
        // The last row is nobody's, and then rank 1 lacks a row of its own.
        let short = own.start..own.end.min(6);
        let gap = attempt(&mut checkpoints, short.clone(), short.len());
        let lack = attempt(&mut checkpoints, own.clone(), own.len() - usize::from(ctx.rank() == 1));
        Ok::<_, Error>([gap, lack])
    });
    for [gap, lack] in errors.expect("no rank fails alone") {
        assert!(gap.contains("the image") && gap.contains("60 of its 70"), "{gap}");
        assert!(lack.contains("the part [0..1, 0..2, 3..6, 0..5] of the image"), "{lack}");
    }
    assert!(names(folder.path()).is_empty());
}

#[test]
fn parts_of_another_job_are_an_error() {
    let folder = tempfile::tempdir().unwrap();
    save_on(folder.path(), 2, 1..2);
    let path = folder.path().to_owned();
    let errors = Context::threads(2, move |ctx| {
        let other = JobId::new("other", b"something else");
        let mut checkpoints = Checkpoints::new(&path, EACH)?;
        let whole = |_: Option<&str>, shape: &[usize]| {
            Some(shape.iter().map(|&side| 0..side).collect::<Vec<_>>())
        };
        let parts = checkpoints.load_parts(ctx, &other, &whole).expect_err("another").to_string();
        let latest = checkpoints.load_latest(ctx, &other).expect_err("another").to_string();
        Ok::<_, Error>([parts, latest])
    });
    for error in errors.expect("no rank fails alone").iter().flatten() {
        assert!(error.contains("another job"), "{error}");
    }
    assert_eq!(parts(folder.path()).len(), 2, "reading removes nothing");
}
