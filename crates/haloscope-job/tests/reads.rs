//! Each file of a scan is read once, by a rank that needs it: by the bytes that the system handed to this process. And the
//! result has the same bits, however a scan is stored and on any number of ranks.
#![cfg(all(target_os = "linux", feature = "hdf5"))]

use std::path::Path;

use haloscope::io::exchange::Scan;
use haloscope::io::{self, Limits, WriteOptions};
use haloscope::{Array, Result};
use haloscope_comm::Context;
use haloscope_job::{Job, JobBuilder, Resuming};
use hdf5_pure::FileBuilder;

const VIEWS: usize = 22;
const ROWS: usize = 120;
const COLUMNS: usize = 96;

/// What each rank reads besides: the memory and the cores of the machine, heads of files. Much less than any scan here.
const BESIDES: u64 = 50_000;

/// All bytes that this process has read.
fn bytes_read() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").expect("on Linux");
    let line = text.lines().find_map(|line| line.strip_prefix("rchar: ")).expect("a count");
    line.trim().parse().expect("a number")
}

/// What a detector counts of a disc that fills part of it.
fn counts(view: usize, row: usize, column: usize) -> f32 {
    let place = column as f32 - 23.5 - 4.0 * (view as f32 / 7.0).sin();
    let depth = 0.06 * (150.0 - place * place).max(0.0).sqrt() * (1.0 + row as f32 / 240.0);
    (10.0 + 900.0 * (-depth).exp()).round()
}

/// Writes the scan as HDF5, and its line integrals as one array and as a file for each view.
fn write(folder: &Path) -> Result<()> {
    let frame = ROWS * COLUMNS;
    let of = |frames: usize, value: &dyn Fn(usize, usize, usize) -> f32| -> Vec<f32> {
        let all = 0..frames * frame;
        all.map(|i| value(i / frame, i % frame / COLUMNS, i % COLUMNS)).collect()
    };
    let mut builder = FileBuilder::new();
    let mut group = builder.create_group("exchange");
    for (name, frames, values) in [
        ("data", VIEWS, of(VIEWS, &counts)),
        ("data_white", 3, of(3, &|frame, _, column| 900.0 + (frame + column) as f32)),
        ("data_dark", 2, of(2, &|frame, row, _| (frame + row % 3) as f32)),
    ] {
        let shape = [frames as u64, ROWS as u64, COLUMNS as u64];
        group.create_dataset(name).with_f32_data(&values).with_shape(&shape);
    }
    builder.add_group(group.finish());
    let path = folder.join("scan.h5");
    std::fs::write(&path, builder.finish().expect("a file")).expect("written");

    // (row, 1, view, column)
    let integrals = Scan::read(&path, &Limits::default())?.line_integrals()?;
    let all = Array::from_shape_fn(vec![1, 1, VIEWS, ROWS, COLUMNS], |at| {
        integrals[[at[3], 0, at[2], at[4]]]
    });
    io::write(folder.join("scan.npy"), &all, &WriteOptions::default())?;
    std::fs::create_dir(folder.join("views")).expect("a folder");
    for (view, values) in all.axis_iter(ndarray::Axis(2)).enumerate() {
        let path = folder.join(format!("views/{view:03}.npy"));
        io::write(path, &values.to_owned(), &WriteOptions::default())?;
    }
    Ok(())
}

/// The bits of the result, and the bytes that were read for it.
fn run(job: JobBuilder, folder: &Path, ranks: usize) -> (String, u64) {
    let job = job.folder(folder).build().expect("a job").resuming(Resuming::Never);
    let before = bytes_read();
    let run = move |ctx: &Context| job.run(ctx, &mut ()).map_err(haloscope_job::Error::into_inner);
    let outcomes = Context::threads(ranks, run).expect("no rank fails");
    let bits = outcomes[0].bits.clone();
    assert!(outcomes.iter().all(|outcome| outcome.bits == bits), "{ranks} ranks");
    (bits, bytes_read() - before)
}

/// A scan from a source, with its back-projection as the start, scaled operators, and checkpoints that know the data.
fn job(source: &str, path: &str, row: Option<i64>) -> JobBuilder {
    let (source, path) = (source.to_owned(), path.to_owned());
    Job::builder()
        .measurements(move |it| {
            let it = it.set(&source, path);
            match row {
                Some(row) => it.set("row", row),
                None => it,
            }
        })
        .operator("parallel-beam", |it| {
            it.set("angles", VIEWS as i64).set("groups", 5).set("normalise", true)
        })
        .prior("total-variation", |it| it.set("weight", 0.001))
        .solver("fista", |it| it)
        .stop(|it| it.set("iterations", 2))
        .start("fbp", |it| it)
        .checkpoint(|it| it.set("folder", "checkpoints").set("iterations", 1))
}

#[test]
fn each_file_of_a_scan_is_read_once() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path())?;
    let frame = (4 * ROWS * COLUMNS) as u64;
    let all = VIEWS as u64 * frame;
    let mut bits: Vec<String> = Vec::new();
    for ranks in [1, 2, 3, 5, 8] {
        // One file for each view; one file; one file of which every rank reads its own views, and all frames.
        for (source, path, frames) in [
            ("files", "views/*.npy", 0),
            ("files", "scan.npy", 0),
            ("scan", "scan.h5", 5 * frame * ranks.min(5) as u64),
        ] {
            let (found, read) = run(job(source, path, Some(9)), folder.path(), ranks);
            println!("{path}, {ranks} ranks: {read} bytes of {all}");
            let besides = BESIDES * (ranks as u64 + 1);
            assert!(besides < all / 2, "a second reading would be seen");
            assert!(
                (all..all + frames + besides).contains(&read),
                "{path}, {ranks} ranks: {read} bytes of {all}"
            );
            bits.push(found);
        }
    }
    assert!(bits.iter().all(|found| *found == bits[0]), "{bits:?}");
    compare_volumes(folder.path());
    compare_channels(folder.path())
}

/// All rows of the same files. In one test with the other, because tests of one process share its count of bytes.
fn compare_volumes(folder: &Path) {
    let bits: Vec<String> = [("files", "views/*.npy"), ("files", "scan.npy"), ("scan", "scan.h5")]
        .into_iter()
        .zip([1, 3, 8])
        .map(|((source, path), ranks)| {
            let direct = job(source, path, None);
            let direct = direct.solver("fbp", |it| it).without("start").without("prior");
            run(direct, folder, ranks).0
        })
        .collect();
    assert!(bits.iter().all(|found| *found == bits[0]), "{bits:?}");
}

/// A batch of scans of two channels, which the first rank reads and deals.
fn compare_channels(folder: &Path) -> Result<()> {
    let scans = Array::from_shape_fn(vec![2, 2, VIEWS, COLUMNS], |at| {
        counts(at[2], 10 * at[1] + at[0], at[3]).ln()
    });
    io::write(folder.join("channels.npy"), &scans, &WriteOptions::default())?;
    let bits: Vec<String> = [1, 2, 3, 5, 8]
        .into_iter()
        .map(|ranks| run(job("files", "channels.npy", None), folder, ranks).0)
        .collect();
    assert!(bits.iter().all(|found| *found == bits[0]), "{bits:?}");
    Ok(())
}
