//! Scans with `image = "sharded"`, simulated, and from files as detectors write them: one result on any number of ranks.
//!
//! The views of a scan see the whole image, of which each rank has a part. Sums over the parts are exact, so the bits do not
//! depend on the ranks; they differ from those of a replicated image by rounding, except where nothing is summed over the image.

mod layouts;

use std::path::Path;

use haloscope::io::{self, ReadOptions, WriteOptions};
use haloscope::{Array, Result};
use haloscope_job::{Job, JobBuilder};
use layouts::{RANKS, network, run, sharded};

/// Scans by name: slices and volumes, simulated, from one file, and from a file for each view.
fn scans(folder: &Path) -> Vec<(&'static str, JobBuilder)> {
    let simulated = |phantom: &str, sides: &[i64]| {
        Job::builder().measurements(|it| {
            it.set("phantom", phantom)
                .set("size", sides.to_vec())
                .set("noise", JobBuilder::keys().set("gaussian", 0.05))
                .set("seed", 3)
        })
    };
    let slice = || {
        simulated("shepp-logan", &[44, 50]).operator("parallel-beam", |it| {
            it.set("angles", 13).set("detector", 61).set("groups", 4)
        })
    };
    let measured = |files: &str| {
        Job::builder()
            .folder(folder)
            .measurements(|it| it.set("files", files))
            .image(|it| it.set("size", vec![40, 40]).set("channels", 1))
            .operator("parallel-beam", |it| it.set("angles", 17).set("groups", 3))
    };
    let weight = |job: JobBuilder, method: &str| {
        job.prior("total-variation", |it| it.set("weight", 0.002))
            .solver(method, |it| it)
            .stop(|it| it.set("iterations", 4))
    };
    let fan = simulated("shepp-logan", &[40, 44]).operator("fan-beam", |it| {
        it.set("angles", 15)
            .set("detector", 70)
            .set("source-distance", 90)
            .set("detector-distance", 30)
            .set("normalise", true)
    });
    let cone = simulated("shepp-logan", &[12, 20, 24]).operator("cone-beam", |it| {
        it.set("angles", 9)
            .set("detector", vec![20, 40])
            .set("groups", 2)
            .set("source-distance", 90)
            .set("detector-distance", 30)
    });
    vec![
        ("a slice, fista", weight(slice(), "fista")),
        ("a slice, cg from fbp", {
            let job = slice().start("fbp", |it| it).solver("cg", |it| it);
            job.stop(|it| it.set("iterations", 3))
        }),
        ("a slice, os-sart", {
            let job = slice().solver("os-sart", |it| it.set("subsets", 2));
            job.stop(|it| it.set("iterations", 3))
        }),
        ("one file, fbp", measured("sinogram.npy").solver("fbp", |it| it)),
        ("a fan, pgd", weight(fan, "pgd")),
        ("a cone, primal-dual", weight(cone, "primal-dual")),
        ("one file, admm", weight(measured("sinogram.npy"), "admm")),
        ("views, network", {
            let job = measured("views/*.npy").start("fbp", |it| it);
            network(job).solver("pgd", |it| it)
        }),
    ]
}

/// The sinogram of a disc, in one file and in one for each view.
fn write_scan(folder: &Path) -> Result<()> {
    let write =
        |name: String, array: &Array| io::write(folder.join(name), array, &WriteOptions::default());
    let all = Array::from_shape_fn(vec![1, 1, 17, 57], |at| {
        let away = at[3] as f32 - 28.0 - 3.0 * (at[2] as f32 / 5.0).sin();
        2.0 * (144.0 - away * away).max(0.0).sqrt() / 24.0
    });
    write("sinogram.npy".into(), &all)?;
    std::fs::create_dir(folder.join("views")).expect("a folder");
    for (number, view) in all.axis_iter(ndarray::Axis(2)).enumerate() {
        let view = view.to_owned().insert_axis(ndarray::Axis(2));
        write(format!("views/{number:02}.npy"), &view)?;
    }
    Ok(())
}

/// Runs a job in shards on all ranks, which have one digest, and compares the image with a replicated one: the same bits by
/// back-projection, and equal but for rounding by other methods.
fn compare(folder: &Path, name: &str, job: JobBuilder) -> Result<String> {
    let output = |job: JobBuilder, file: &str| {
        let file = folder.join(file).display().to_string();
        job.output(|it| it.set("file", file))
    };
    let whole = output(job.clone(), "whole.npy").edit("image", |it| it.set("layout", "replicated"));
    let whole = run(&whole.build()?, 2).remove(0);
    let job = sharded(output(job, "parts.npy")).build()?;
    let mut bits = None;
    for ranks in RANKS {
        let outcomes = run(&job, ranks);
        let first = bits.get_or_insert_with(|| outcomes[0].bits.clone());
        assert!(outcomes.iter().all(|one| one.bits == *first), "{name}, {ranks} ranks");
        let parts: usize = outcomes.iter().map(|outcome| outcome.image().len()).sum();
        assert_eq!(parts, whole.image().len(), "{name}: each pixel is on one rank");
    }
    let read = |file: &str| io::read(folder.join(file), &ReadOptions::default());
    let (found, expected) = (read("parts.npy")?.array, read("whole.npy")?.array);
    let size = |array: &Array| array.iter().map(|value| value * value).sum::<f32>();
    let apart = (size(&(&found - &expected)) / size(&expected)).sqrt();
    assert!(apart < 5e-6, "{name}: {apart:e}");
    let bits = bits.expect("some ranks");
    // Every pixel of a back-projection is computed alike.
    assert!(!name.ends_with(", fbp") || bits == whole.bits, "{name}");
    Ok(bits)
}

#[test]
fn scans_in_shards_have_one_result_on_any_number_of_ranks() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    write_scan(folder.path())?;
    for (name, job) in scans(folder.path()) {
        compare(folder.path(), name, job)?;
    }
    Ok(())
}

/// Data that were measured, because comparisons with a truth would add their own messages.
#[test]
fn the_plan_of_a_scan_in_shards_says_what_travels() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    write_scan(folder.path())?;
    let job = Job::builder()
        .folder(folder.path())
        .measurements(|it| it.set("files", "views/*.npy"))
        .image(|it| it.set("size", vec![40, 40]).set("channels", 1))
        .operator("parallel-beam", |it| it.set("angles", 17).set("groups", 3));
    let job = sharded(network(job).solver("pgd", |it| it)).build()?;
    for ranks in RANKS {
        let plan = job.check(ranks)?;
        let text = plan.to_string();
        assert!(text.contains("shards") && text.contains("largest load"), "{text}");
        let outcome = run(&job, ranks).remove(0);
        let foretold = plan.expected.forecast.bytes_sent() * outcome.iterations() as u64;
        assert_eq!(outcome.bytes_moved, foretold, "{ranks} ranks");
    }
    Ok(())
}

const VIEWS: usize = 14;
const ROWS: usize = 6;
const COLUMNS: usize = 41;

/// What a detector counts of a disc behind its flat and dark frames.
fn counts(view: usize, row: usize, column: usize) -> f32 {
    let place = column as f32 - 19.5 - 3.0 * (view as f32 / 4.0).sin();
    let depth = 0.05 * (110.0 - place * place).max(0.0).sqrt() * (1.0 + row as f32 / 20.0);
    (dark(0, row) + (flat(1, column) - dark(0, row)) * (-depth).exp()).round()
}

fn flat(frame: usize, column: usize) -> f32 {
    900.0 + (frame + column) as f32
}

fn dark(frame: usize, row: usize) -> f32 {
    (3 + frame + row % 3) as f32
}

/// Counts of a scan in one array and in one for each view, with three flat frames and two dark ones.
fn write_counts(folder: &Path) -> Result<()> {
    let write = |name: &str, frames: usize, value: &dyn Fn(usize, usize, usize) -> f32| {
        let all = Array::from_shape_fn(vec![1, 1, frames, ROWS, COLUMNS], |at| {
            value(at[2], at[3], at[4])
        });
        io::write(folder.join(name), &all, &WriteOptions::default())
    };
    write("counts.npy", VIEWS, &counts)?;
    write("flat.npy", 3, &|frame, _, column| flat(frame, column))?;
    write("dark.npy", 2, &|frame, row, _| dark(frame, row))?;
    std::fs::create_dir(folder.join("counted")).expect("a folder");
    for view in 0..VIEWS {
        let frame =
            Array::from_shape_fn(vec![1, 1, ROWS, COLUMNS], |at| counts(view, at[2], at[3]));
        let path = folder.join(format!("counted/{view:02}.npy"));
        io::write(path, &frame, &WriteOptions::default())?;
    }
    Ok(())
}

/// The scan of some files by a method: of one row of the detector, or of all.
fn counted(folder: &Path, source: &[(&str, &str)], row: Option<i64>, method: &str) -> JobBuilder {
    let measured = Job::builder().folder(folder).measurements(|it| {
        let it = source.iter().fold(it, |it, (key, value)| it.set(key, *value));
        if let Some(row) = row { it.set("row", row) } else { it }
    });
    let job = measured
        .operator("parallel-beam", |it| it.set("angles", VIEWS as i64).set("groups", 3))
        .solver(method, |it| it);
    if method == "fbp" {
        return job;
    }
    job.prior("total-variation", |it| it.set("weight", 0.002)).stop(|it| it.set("iterations", 3))
}

/// However a scan is stored, its flat and dark frames make the same measurements of it on any number of ranks.
#[test]
fn scans_with_flat_and_dark_frames_in_shards_have_one_result() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    write_counts(folder)?;
    let frames = [("flat", "flat.npy"), ("dark", "dark.npy")];
    let mut sources = vec![
        [&[("files", "counts.npy")], &frames[..]].concat(),
        [&[("files", "counted/*.npy")], &frames[..]].concat(),
    ];
    if cfg!(feature = "hdf5") {
        write_exchange(folder);
        sources.push(vec![("scan", "scan.h5")]);
    }
    for (row, method) in [(Some(2), "fbp"), (Some(2), "fista"), (None, "fbp"), (None, "fista")] {
        let mut bits = Vec::new();
        for source in &sources {
            let name = format!("{source:?}, {row:?}, {method}");
            bits.push(compare(folder, &name, counted(folder, source, row, method))?);
        }
        assert!(bits.iter().all(|other| *other == bits[0]), "{row:?}, {method}: {bits:?}");
    }
    Ok(())
}

/// The value of a pixel of a frame: of its number, row and column.
type Value<'a> = &'a dyn Fn(usize, usize, usize) -> f32;

/// The same scan in HDF5, as Data Exchange has it.
fn write_exchange(folder: &Path) {
    let frame = ROWS * COLUMNS;
    let mut builder = hdf5_pure::FileBuilder::new();
    let mut group = builder.create_group("exchange");
    let frames: [(&str, usize, Value<'_>); 3] = [
        ("data", VIEWS, &counts),
        ("data_white", 3, &|number, _, column| flat(number, column)),
        ("data_dark", 2, &|number, row, _| dark(number, row)),
    ];
    for (name, count, value) in frames {
        let values: Vec<f32> = (0..count * frame)
            .map(|at| value(at / frame, at % frame / COLUMNS, at % COLUMNS))
            .collect();
        let shape = [count as u64, ROWS as u64, COLUMNS as u64];
        group.create_dataset(name).with_f32_data(&values).with_shape(&shape);
    }
    builder.add_group(group.finish());
    let bytes = builder.finish().expect("a file");
    std::fs::write(folder.join("scan.h5"), bytes).expect("written");
}
