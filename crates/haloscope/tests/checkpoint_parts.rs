//! Checkpoints of states that are spread over ranks: stop on some ranks, resume on others, in parts or whole.

#![allow(clippy::unwrap_used, reason = "what cannot be unwrapped fails the test")]

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use haloscope::solve::{Checkpoints, Every, JobId, Part, Parts, State};
use haloscope::{Array, Error, View};
use haloscope_comm::Context;
use ndarray::{Axis, Slice};

const EACH: Every = Every { iterations: Some(1), time: None };
const WHOLE: [usize; 4] = [1, 2, 7, 5];

fn job() -> JobId {
    JobId::new("parts", b"what decides the result")
}

/// Every value has other bits, some of them those of numbers that are none.
fn values(shape: &[usize], seed: u32) -> Array {
    let mut next = seed;
    Array::from_shape_simple_fn(shape, || {
        next = next.wrapping_mul(2_654_435_761).wrapping_add(12_345);
        f32::from_bits(if next.is_multiple_of(5) { next | 0x7f80_0001 } else { next })
    })
}

/// An image, an array with an axis more, one that all ranks have, and one that a single rank has.
fn state(iteration: usize) -> State {
    let seed = iteration as u32;
    let mut state = State::new(values(&WHOLE, seed));
    state.iteration = iteration;
    state.arrays.insert("dual".into(), values(&[2, 1, 2, 7, 5], seed + 1).into());
    state.arrays.insert("small".into(), values(&[3], seed + 2).into());
    state.arrays.insert("operator 1".into(), values(&[4, 4], seed + 3).into());
    state.arrays.insert(String::new(), values(&[], seed + 4).into());
    state.numbers.insert("momentum".into(), 1.5 + iteration as f64);
    state
}

/// The rows of a rank of so many; the last ones may have none.
fn rows(rank: usize, ranks: usize) -> Range<usize> {
    let height = WHOLE[2];
    let each = height.div_ceil(ranks);
    (rank * each).min(height)..((rank + 1) * each).min(height)
}

/// What a rank has of an array: rows of what is as large as the image.
fn region(name: Option<&str>, shape: &[usize], rank: usize, ranks: usize) -> Vec<Range<usize>> {
    let mut region: Vec<Range<usize>> = shape.iter().map(|&side| 0..side).collect();
    if matches!(name, None | Some("dual")) {
        let axis = shape.len() - 2;
        region[axis] = rows(rank, ranks);
    }
    region
}

fn is_here(name: &str, rank: usize, ranks: usize) -> bool {
    name != "operator 1" || rank == 1 % ranks
}

fn cut(array: &View, region: &[Range<usize>]) -> Array {
    let mut part = array.view();
    for (axis, range) in region.iter().enumerate() {
        part.slice_axis_inplace(Axis(axis), Slice::from(range.clone()));
    }
    part.to_owned()
}

/// What a rank has of a state.
fn local(whole: &State, rank: usize, ranks: usize) -> State {
    let part = |name, array: &Array| cut(array, &region(name, array.shape(), rank, ranks));
    let mut state = whole.clone();
    state.image = part(None, whole.image.local()).into();
    state.arrays.retain(|name, _| is_here(name, rank, ranks));
    for (name, array) in &mut state.arrays {
        *array = part(Some(name), array.local()).into();
    }
    state
}

fn save(ctx: &Context, checkpoints: &mut Checkpoints, iteration: usize) -> Result<(), Error> {
    let whole = state(iteration);
    let mine = local(&whole, ctx.rank(), ctx.size());
    let place = |name, shape: &[usize]| region(name, shape, ctx.rank(), ctx.size());
    let regions: BTreeMap<&str, _> = (whole.arrays.iter())
        .map(|(name, array)| (&name[..], place(Some(name), array.shape())))
        .collect();
    let image_region = place(None, &WHOLE);
    let image = Part { whole: &WHOLE, region: &image_region, values: mine.image.local() };
    let arrays = mine.arrays.iter().map(|(name, values)| {
        let whole = whole.arrays[name].shape();
        (&name[..], Part { whole, region: &regions[&name[..]], values: values.local() })
    });
    let parts = Parts { iteration, image, arrays: arrays.collect(), numbers: &mine.numbers };
    checkpoints.save_parts(ctx, &parts, &job())
}

fn same_bits(one: &State, other: &State) -> bool {
    let arrays = |state: &State| {
        let mut arrays: Vec<(String, Array)> = state
            .arrays
            .clone()
            .into_iter()
            .map(|(name, array)| (name, array.into_local()))
            .collect();
        arrays.push(("image".into(), state.image.local().clone()));
        let bits = |array: &Array| array.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        arrays
            .into_iter()
            .map(|(name, array)| (name, array.shape().to_vec(), bits(&array)))
            .collect::<Vec<_>>()
    };
    (one.iteration, &one.numbers) == (other.iteration, &other.numbers)
        && arrays(one) == arrays(other)
}

/// Resumes in parts on so many ranks, and checks every bit of what each of them gets.
fn resume_in_parts(folder: &Path, ranks: usize, iteration: usize) {
    let folder = folder.to_owned();
    let states = Context::threads(ranks, move |ctx| {
        let (rank, ranks) = (ctx.rank(), ctx.size());
        let wanted = |name: Option<&str>, shape: &[usize]| {
            let here = name.is_none_or(|name| is_here(name, rank, ranks));
            here.then(|| region(name, shape, rank, ranks))
        };
        Checkpoints::new(&folder, EACH)?.load_parts(ctx, &job(), &wanted)
    });
    for (rank, found) in states.expect("no rank fails").into_iter().enumerate() {
        let found = found.expect("there is one");
        let expected = local(&state(iteration), rank, ranks);
        assert!(same_bits(&found.state, &expected), "rank {rank} of {ranks}");
        assert!(found.notes().is_empty(), "{:?}", found.notes());
    }
}

fn resume_whole(folder: &Path, ranks: usize, iteration: usize) {
    let folder = folder.to_owned();
    let states = Context::threads(ranks, move |ctx| {
        Checkpoints::new(&folder, EACH)?.load_latest(ctx, &job())
    });
    for found in states.expect("no rank fails") {
        assert!(same_bits(&found.expect("there is one").state, &state(iteration)), "{ranks} ranks");
    }
}

fn save_on(folder: &Path, ranks: usize, iterations: Range<usize>) {
    let folder = folder.to_owned();
    let saved = Context::threads(ranks, move |ctx| {
        let mut checkpoints = Checkpoints::new(&folder, EACH)?;
        iterations.clone().try_for_each(|iteration| save(ctx, &mut checkpoints, iteration))
    });
    saved.expect("no rank fails");
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn parts(folder: &Path) -> Vec<PathBuf> {
    names(folder)
        .iter()
        .filter(|name| Path::new(name).extension().is_some_and(|end| end == "part"))
        .map(|name| folder.join(name))
        .collect()
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
