//! Files by region: the values of the whole reader and the bytes of the whole writer, on any number of ranks.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use haloscope::io::{self, Access, Axes, ReadOptions, Reader, Sample, WriteOptions, Writer};
use haloscope::{Array, Error, View};
use haloscope_comm::Context;
use ndarray::{Axis, IxDyn, Slice};

type Region = Vec<Range<usize>>;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/files")
}

/// The part of an array in ranges of its last axes.
fn cut(array: &View, region: &[Range<usize>]) -> Array {
    let mut part = array.view();
    let first = array.ndim() - region.len();
    for (axis, range) in region.iter().enumerate() {
        part.slice_axis_inplace(Axis(first + axis), Slice::from(range.clone()));
    }
    part.as_standard_layout().into_owned()
}

fn bits(array: &View) -> Vec<u32> {
    array.iter().map(|value| value.to_bits()).collect()
}

/// Parts of a side of uneven lengths, no more than it has values.
fn uneven(side: usize, parts: usize) -> Vec<Range<usize>> {
    let parts = parts.min(side);
    let end = |part: usize| match part {
        0 => 0,
        part if part == parts => side,
        part => (side * part / parts).saturating_sub(part % 2).max(part),
    };
    (0..parts).map(|part| end(part)..end(part + 1)).collect()
}

/// The boxes of a grid over the spatial sides; the first axis is the slowest.
fn boxes(sides: &[usize], grid: &[usize]) -> Vec<Region> {
    let mut all: Vec<Region> = vec![Vec::new()];
    for (&side, &parts) in sides.iter().zip(grid) {
        let cuts = uneven(side, parts);
        let extend = |region: &Region| {
            let with = |cut: &Range<usize>| [&region[..], std::slice::from_ref(cut)].concat();
            cuts.iter().map(with).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(extend).collect();
    }
    all
}

/// Grids of at most so many parts in one, two and three dimensions.
fn grids(axes: usize, ranks: usize) -> Vec<Vec<usize>> {
    let ones = vec![1; axes];
    let with = |parts: &[(usize, usize)]| {
        let mut grid = ones.clone();
        for &(axis, parts) in parts {
            grid[axis] = parts;
        }
        grid
    };
    let mut grids = vec![with(&[(0, ranks)]), with(&[(axes - 1, ranks)])];
    if ranks >= 4 {
        grids.push(with(&[(0, 2), (axes - 1, ranks / 2)]));
    }
    if ranks >= 8 && axes == 3 {
        grids.push(vec![2, 2, 2]);
    }
    grids.dedup();
    grids
}

/// All files of a folder, or a file, with their bytes.
fn content(path: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    if path.is_file() {
        return [(PathBuf::new(), std::fs::read(path).expect("a file"))].into();
    }
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(path).expect("a folder") {
        let name = entry.expect("an entry").file_name();
        for (inside, bytes) in content(&path.join(&name)) {
            all.insert(Path::new(&name).join(inside), bytes);
        }
    }
    all
}

fn values(shape: &[usize]) -> Array {
    let mut random = fastrand::Rng::with_seed(shape.iter().product::<usize>() as u64);
    Array::from_shape_simple_fn(IxDyn(shape), || random.f32())
}

/// Writes and reads an image on so many ranks in this grid, and compares with the whole.
fn check(name: &str, image: &Array, options: &WriteOptions, ranks: usize, grid: &[usize]) {
    let folder = tempfile::tempdir().expect("a folder");
    let (whole, sharded) = (folder.path().join(name), folder.path().join("s").join(name));
    std::fs::create_dir(folder.path().join("s")).expect("a folder");
    io::write(&whole, image, options).expect("the whole writer");
    let expected = io::read(&whole, &ReadOptions::default()).expect("the whole reader").array;
    let regions = boxes(&image.shape()[2..], grid);
    let what = format!("{name}, {ranks} ranks, {grid:?}");
    let (all, paths) = (regions.clone(), (whole.clone(), sharded.clone()));
    let (image, options) = (image.clone(), options.clone());
    let parts = Context::threads(ranks, move |ctx| {
        let (whole, sharded) = &paths;
        let part = all.get(ctx.rank()).map(|region| cut(&image, region));
        let part = part.as_deref();
        io::write_sharded(ctx, sharded, image.shape(), &options, &all, part)?;
        let (reader, read) = io::read_sharded(ctx, whole, &ReadOptions::default(), &all)?;
        assert_eq!(reader.shape(), image.shape());
        Ok::<_, Error>(read)
    });
    let parts = parts.expect(&what);
    assert_eq!(parts.iter().flatten().count(), regions.len(), "{what}");
    for (part, region) in parts.iter().flatten().zip(&regions) {
        assert_eq!(bits(part), bits(&cut(&expected, region)), "{what}: {region:?}");
    }
    assert!(content(&whole) == content(&sharded), "{what}: the bytes differ");
    let left = std::fs::read_dir(folder.path().join("s")).expect("a folder").count();
    assert_eq!(left, 1, "{what}: something was left behind");
}

/// Names of files, types of values, and the channels that they are tried with.
fn formats() -> Vec<(&'static str, Option<Sample>, usize)> {
    let mut formats = vec![
        ("a.npy", None, 3),
        ("a.npy", Some(Sample::I16), 1),
        ("a.fits", None, 3),
        ("a.nii", None, 2),
        ("a.nii", Some(Sample::F64), 1),
        ("a.tif", None, 3),
        ("a.tif", Some(Sample::U16), 1),
        ("a.nii.gz", None, 2),
        ("a.npz", None, 1),
        ("a.png", None, 3),
        ("a.png", Some(Sample::U16), 1),
        ("a.jpg", None, 3),
        ("a.jpg", None, 1),
    ];
    if cfg!(feature = "zarr") {
        formats.push(("a.zarr", None, 2));
    }
    formats
}

#[test]
fn pictures_and_volumes_are_those_of_the_whole_on_any_number_of_ranks() {
    for (name, sample, channels) in formats() {
        let options = WriteOptions { sample, ..WriteOptions::default() };
        let is_picture = name.ends_with("png") || name.ends_with("jpg");
        let mut images = vec![values(&[1, channels, 7, 19])];
        if !is_picture {
            images.push(values(&[1, channels, 5, 6, 9]));
        }
        for image in images {
            for ranks in [1, 2, 3, 5, 8] {
                for grid in grids(image.ndim() - 2, ranks) {
                    check(name, &image, &options, ranks, &grid);
                }
            }
        }
    }
}

/// Several bands, strips and chunks.
#[test]
fn large_pictures_are_those_of_the_whole() {
    for (name, sample, channels) in formats() {
        if channels == 1 {
            continue;
        }
        let image = values(&[1, channels, 610, 310]);
        let options = WriteOptions { sample, ..WriteOptions::default() };
        check(name, &image, &options, 3, &[3, 1]);
        check(name, &image, &options, 5, &[2, 2]);
    }
}

#[test]
fn regions_of_files_of_other_programs_are_those_of_the_whole() {
    let mut seen = 0;
    for entry in std::fs::read_dir(fixtures()).expect("committed") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.ends_with("json") {
            continue;
        }
        let entry = match &name[..] {
            "two.npz" => Some("b".to_owned()),
            "latest.h5" => Some("volume".to_owned()),
            _ => None,
        };
        for options in [
            ReadOptions::default(),
            ReadOptions { raw: true, ..ReadOptions::default() },
            ReadOptions { white: Some(12.0), axes: Axes::AsStored, ..ReadOptions::default() },
            ReadOptions { axes: Axes::ChannelLast, ..ReadOptions::default() },
        ] {
            let options = ReadOptions { entry: entry.clone(), ..options };
            let whole = io::read(&path, &options);
            let reader = Reader::open(&path, &options);
            let (Ok(whole), Ok(reader)) = (&whole, &reader) else {
                let failed = whole.is_err() && (reader.is_err() || name.contains("transparent"));
                assert!(failed, "{name}: {:?} and {:?}", whole.err(), reader.err());
                continue;
            };
            assert_eq!(reader.shape(), whole.array.shape(), "{name}");
            let sides = &whole.array.shape()[whole.array.ndim().min(2)..];
            for grid in [1, 2, 3].map(|parts| vec![parts; sides.len()]) {
                for region in boxes(sides, &grid) {
                    let part = reader.read_region(&region).expect(&name);
                    assert!(part.is_standard_layout(), "{name}");
                    assert_eq!(bits(&part), bits(&cut(&whole.array, &region)), "{name} {region:?}");
                    assert_eq!(part.shape(), cut(&whole.array, &region).shape(), "{name}");
                }
            }
            let without = |image: io::Image| io::Image { array: Array::zeros(vec![0]), ..image };
            let about = reader.image(Array::zeros(vec![0]));
            assert_eq!(about, without(whole.clone()), "{name}");
            seen += 1;
        }
    }
    assert!(seen > 100, "{seen} files");
}

#[test]
fn damaged_and_cut_files_are_refused_and_never_end_the_program() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("damaged");
    let limits = io::Limits { elements: 1 << 20, ..io::Limits::default() };
    let options = ReadOptions { limits, ..ReadOptions::default() };
    let mut random = fastrand::Rng::with_seed(5);
    let (mut good, mut bad) = (0, 0);
    for entry in std::fs::read_dir(fixtures()).expect("committed") {
        let seed = entry.expect("an entry").path();
        let name = seed.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !seed.is_file() || name.ends_with("json") {
            continue;
        }
        let seed = std::fs::read(seed).expect("readable");
        let mut attempts: Vec<Vec<u8>> =
            (0..12).map(|part| seed[..seed.len() * part / 12].to_vec()).collect();
        for _ in 0..24 {
            let mut bytes = seed.clone();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(0..bytes.len().min(600));
                bytes[at] = random.u8(..);
            }
            attempts.push(bytes);
        }
        for bytes in attempts {
            std::fs::write(&path, &bytes).expect("written");
            let whole = io::read(&path, &options);
            let reader = Reader::open(&path, &options);
            let read = reader.and_then(|reader| {
                assert!(reader.shape().iter().product::<usize>() <= 1 << 20, "{name}");
                let whole: Region = reader.shape().iter().map(|&side| 0..side).collect();
                reader.read_region(&whole)
            });
            match (whole, read) {
                (Ok(whole), Ok(read)) => {
                    assert_eq!(bits(&whole.array), bits(&read), "{name}");
                    good += 1;
                }
                (Err(_), Err(error)) => {
                    assert!(error.to_string().contains("damaged"), "{name}: {error}");
                    bad += 1;
                }
                (Ok(_), Err(error)) => panic!("{name}: refused by region only: {error}"),
                // The lengths of strips in their table do not matter to those who need not unpack them.
                (Err(_), Ok(_)) if name.ends_with("tif") => bad += 1,
                (Err(error), Ok(_)) => panic!("{name}: refused as a whole only: {error}"),
            }
        }
    }
    println!("{good} read, {bad} refused");
    assert!(good > 100 && bad > 100, "{good} {bad}");
}

#[test]
fn one_rank_that_fails_fails_all_and_leaves_what_was_there() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["a.npy", "a.png", "a.nii.gz"] {
        let path = folder.path().join(name);
        std::fs::write(&path, "old").expect("a file");
        let (inside, file) = (folder.path().to_owned(), path.clone());
        let errors = Context::threads(3, move |ctx| {
            let path = &file;
            let regions = [vec![0..4, 0..9], vec![4..6, 0..9], vec![6..8, 0..9]];
            // The last rank has too few rows.
            let rows = if ctx.rank() == 2 { 1 } else { regions[ctx.rank()][0].len() };
            let part = values(&[1, 1, rows, 9]);
            let options = WriteOptions::default();
            let wrong =
                io::write_sharded(ctx, path, &[1, 1, 8, 9], &options, &regions, Some(&part));
            let none = inside.join("absent").join(name);
            let part = values(&[1, 1, regions[ctx.rank()][0].len(), 9]);
            let lost =
                io::write_sharded(ctx, &none, &[1, 1, 8, 9], &options, &regions, Some(&part));
            let missing = io::read_sharded(ctx, &none, &ReadOptions::default(), &regions);
            let torn = io::read_sharded(ctx, path, &ReadOptions::default(), &regions);
            Ok::<_, Error>([
                wrong.expect_err("too few rows").to_string(),
                lost.expect_err("no folder").to_string(),
                missing.expect_err("no file").to_string(),
                torn.expect_err("no image").to_string(),
            ])
        });
        for errors in errors.expect("no rank fails alone") {
            assert!(errors[0].contains("6..8, 0..9] has shape"), "{errors:?}");
            assert!(errors.iter().all(|error| error.contains(name)), "{errors:?}");
        }
        assert_eq!(std::fs::read(&path).expect("still there"), b"old", "{name}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("a list").count(), 3);
}

#[test]
fn damage_that_rank_0_finds_in_a_stream_is_known_to_all() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("torn.png");
    io::write(&path, &values(&[1, 3, 600, 400]), &WriteOptions::default()).expect("written");
    let whole = std::fs::read(&path).expect("a file");
    std::fs::write(&path, &whole[..whole.len() * 3 / 4]).expect("written");
    let errors = Context::threads(3, move |ctx| {
        let regions = [vec![0..100, 0..400], vec![100..200, 0..400], vec![200..600, 0..400]];
        let torn = io::read_sharded(ctx, &path, &ReadOptions::default(), &regions);
        // Ranks are still in step.
        haloscope_comm::Collectives::barrier(ctx.comm())?;
        Ok::<_, Error>(torn.expect_err("cut short").to_string())
    });
    for error in errors.expect("no rank fails alone") {
        assert!(error.contains("torn.png"), "{error}");
    }
}

#[test]
fn writers_that_are_not_finished_leave_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["a.npy", "a.tif", "a.nii", "a.fits"] {
        let path = folder.path().join(name);
        let mut writer =
            Writer::create(&path, &[1, 1, 4, 5], &WriteOptions::default()).expect("made");
        let error = writer.write_region(&[0..5, 0..5], &values(&[1, 1, 5, 5])).expect_err("large");
        assert!(error.to_string().contains("0..5"), "{error}");
        writer.write_region(&[0..2, 0..5], &values(&[1, 1, 2, 5])).expect("half of it");
        drop(writer);
    }
    let error =
        Writer::create(folder.path().join("a.png"), &[1, 1, 4, 5], &WriteOptions::default());
    let error = error.expect_err("a stream").to_string();
    assert!(error.contains(".npy"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("a list").count(), 0);
}

#[test]
fn readers_know_what_regions_cost() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, access) in [
        ("a.npy", Access::Offsets),
        ("a.tif", Access::Offsets),
        ("a.nii", Access::Offsets),
        ("a.fits", Access::Offsets),
        ("a.png", Access::Stream),
        ("a.jpg", Access::Stream),
        ("a.nii.gz", Access::Stream),
    ] {
        let path = folder.path().join(name);
        io::write(&path, &values(&[1, 1, 9, 8]), &WriteOptions::default()).expect("written");
        let reader = Reader::open(&path, &ReadOptions::default()).expect("readable");
        assert_eq!(reader.access(), access, "{name}");
        let error = reader.read_region(&[0..10, 0..8]).expect_err("too many rows").to_string();
        assert!(error.contains("[0..10, 0..8]") && error.contains("[1, 1, 9, 8]"), "{error}");
    }
}
