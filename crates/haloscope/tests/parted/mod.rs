//! A state that is spread over ranks: what each has of it, saving it in parts, and resuming with every bit checked.

#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(clippy::unwrap_used, reason = "what cannot be unwrapped fails the test")]

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use haloscope::solve::{Checkpoints, Every, JobId, Part, Parts, State};
use haloscope::{Array, Error, View};
use haloscope_comm::Context;
use ndarray::{Axis, Slice};

pub(crate) const EACH: Every = Every { iterations: Some(1), time: None };
pub(crate) const WHOLE: [usize; 4] = [1, 2, 7, 5];

pub(crate) fn job() -> JobId {
    JobId::new("parts", b"what decides the result")
}

/// Every value has other bits, some of them those of numbers that are none.
pub(crate) fn values(shape: &[usize], seed: u32) -> Array {
    let mut next = seed;
    Array::from_shape_simple_fn(shape, || {
        next = next.wrapping_mul(2_654_435_761).wrapping_add(12_345);
        f32::from_bits(if next.is_multiple_of(5) { next | 0x7f80_0001 } else { next })
    })
}

/// An image, an array with an axis more, one that all ranks have, and one that a single rank has.
pub(crate) fn state(iteration: usize) -> State {
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
pub(crate) fn rows(rank: usize, ranks: usize) -> Range<usize> {
    let height = WHOLE[2];
    let each = height.div_ceil(ranks);
    (rank * each).min(height)..((rank + 1) * each).min(height)
}

/// What a rank has of an array: rows of what is as large as the image.
pub(crate) fn region(
    name: Option<&str>,
    shape: &[usize],
    rank: usize,
    ranks: usize,
) -> Vec<Range<usize>> {
    let mut region: Vec<Range<usize>> = shape.iter().map(|&side| 0..side).collect();
    if matches!(name, None | Some("dual")) {
        let axis = shape.len() - 2;
        region[axis] = rows(rank, ranks);
    }
    region
}

pub(crate) fn is_here(name: &str, rank: usize, ranks: usize) -> bool {
    name != "operator 1" || rank == 1 % ranks
}

pub(crate) fn cut(array: &View, region: &[Range<usize>]) -> Array {
    let mut part = array.view();
    for (axis, range) in region.iter().enumerate() {
        part.slice_axis_inplace(Axis(axis), Slice::from(range.clone()));
    }
    part.to_owned()
}

/// What a rank has of a state.
pub(crate) fn local(whole: &State, rank: usize, ranks: usize) -> State {
    let part = |name, array: &Array| cut(array, &region(name, array.shape(), rank, ranks));
    let mut state = whole.clone();
    state.image = part(None, whole.image.local()).into();
    state.arrays.retain(|name, _| is_here(name, rank, ranks));
    for (name, array) in &mut state.arrays {
        *array = part(Some(name), array.local()).into();
    }
    state
}

pub(crate) fn save(
    ctx: &Context,
    checkpoints: &mut Checkpoints,
    iteration: usize,
) -> Result<(), Error> {
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

pub(crate) fn same_bits(one: &State, other: &State) -> bool {
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
pub(crate) fn resume_in_parts(folder: &Path, ranks: usize, iteration: usize) {
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

pub(crate) fn save_on(folder: &Path, ranks: usize, iterations: Range<usize>) {
    let folder = folder.to_owned();
    let saved = Context::threads(ranks, move |ctx| {
        let mut checkpoints = Checkpoints::new(&folder, EACH)?;
        iterations.clone().try_for_each(|iteration| save(ctx, &mut checkpoints, iteration))
    });
    saved.expect("no rank fails");
}

pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

pub(crate) fn parts(folder: &Path) -> Vec<PathBuf> {
    names(folder)
        .iter()
        .filter(|name| Path::new(name).extension().is_some_and(|end| end == "part"))
        .map(|name| folder.join(name))
        .collect()
}
