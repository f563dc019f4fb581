//! What `[preparation]` does to a scan that is not ideal: on any number of ranks, and against what it should undo.

use haloscope::io::{self, WriteOptions};
use haloscope::phantom::{SheppLogan, Table};
use haloscope::physics::Physics;
use haloscope::physics::tomography::{ParallelBeam3d, Tomography3d, evenly_spaced};
use haloscope::{Array, metrics};
use haloscope_comm::Context;
use haloscope_job::{Job, JobBuilder, Outcome};

const SIDE: usize = 24;
const VIEWS: usize = 40;

fn truth() -> Array {
    SheppLogan::new(Table::Modified).draw(&[4, SIDE, SIDE]).expect("a volume")
}

/// A scan of four slices, with a column of the detector that counts too little in two rows, and two specks.
fn scan(is_flawed: bool) -> Array {
    let angles = evenly_spaced(VIEWS, std::f64::consts::PI);
    let beam = ParallelBeam3d::new(angles, [4, SIDE]);
    let mut scan = Tomography3d::new(&[1, 4, SIDE, SIDE], beam)
        .expect("a scan")
        .forward(&truth())
        .expect("its views");
    if is_flawed {
        for view in 0..VIEWS {
            for row in [1, 2] {
                scan[[0, 0, view, row, 7]] += 1.5;
            }
        }
        scan[[0, 0, 3, 0, 11]] += 40.0;
        scan[[0, 0, 20, 3, 5]] -= 40.0;
    }
    scan
}

fn job(folder: &std::path::Path, file: &str) -> JobBuilder {
    Job::builder()
        .folder(folder)
        .image(|it| it.set("size", vec![4, SIDE as i64, SIDE as i64]))
        .measurements(|it| it.set("files", file))
        .operator("parallel-beam", |it| it.set("angles", VIEWS as i64).set("groups", 5))
        .solver("fbp", |it| it)
}

fn run(job: &Job, ranks: usize) -> Vec<Outcome> {
    let job = job.clone();
    let run = move |ctx: &Context| job.run(ctx, &mut ()).map_err(haloscope_job::Error::into_inner);
    Context::threads(ranks, run).expect("no rank fails")
}

fn error_of(image: &Array, other: &Array) -> f64 {
    metrics::mse(image, other).expect("one shape")[0].sqrt()
}

#[test]
fn rings_and_specks_go_and_the_bits_do_not_depend_on_the_ranks() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, is_flawed) in [("flawed.npy", true), ("ideal.npy", false)] {
        let path = folder.path().join(name);
        io::write(path, &scan(is_flawed), &WriteOptions::default()).expect("written");
    }
    let image = |job: JobBuilder| {
        let outcome = run(&job.build().expect("a job"), 1).remove(0);
        outcome.state.image.whole().expect("replicated").clone()
    };
    let ideal = image(job(folder.path(), "ideal.npy"));
    let flawed = image(job(folder.path(), "flawed.npy"));
    let prepared =
        job(folder.path(), "flawed.npy").preparation(|it| it.set("outliers", 5.0).set("rings", 3));
    let mended = image(prepared.clone());
    let [before, after] = [&flawed, &mended].map(|image| error_of(image, &ideal));
    assert!(after < 0.3 * before, "{after} after {before}");
    let prepared = prepared.build().expect("a job");
    let digest = run(&prepared, 1)[0].bits.clone();
    for ranks in [2, 3, 5, 8] {
        assert!(run(&prepared, ranks).iter().all(|one| one.bits == digest), "{ranks} ranks");
    }
}

#[test]
fn hardening_is_a_polynomial_of_the_line_integrals() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let ideal = scan(false);
    // p = q + q² for the measured q.
    let hardened = ideal.mapv(|p| (-0.5 + (0.25 + p).max(0.0).sqrt()).max(0.0));
    for (name, scan) in [("ideal.npy", &ideal), ("hardened.npy", &hardened)] {
        io::write(path(name), scan, &WriteOptions::default()).expect("written");
    }
    let image = |job: JobBuilder| {
        let outcome = run(&job.build().expect("a job"), 2).remove(0);
        outcome.state.image.whole().expect("replicated").clone()
    };
    let expected = image(job(folder.path(), "ideal.npy"));
    let corrected =
        job(folder.path(), "hardened.npy").preparation(|it| it.set("hardening", vec![1.0, 1.0]));
    let error = error_of(&image(corrected), &expected);
    assert!(error < 1e-3, "{error}");
}

#[test]
fn what_makes_no_sense_is_refused_with_the_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let refusal = |job: JobBuilder| job.build().expect_err("wrong").to_string();
    let scan = || job(folder.path(), "scan.npy");
    for (job, words) in [
        (scan().preparation(|it| it.set("rings", 1)), "preparation.rings: 1 bins"),
        (scan().preparation(|it| it.set("outliers", -1.0)), "preparation.outliers"),
        (scan().preparation(|it| it.set("ring", true)), "did you mean `rings`"),
        (
            Job::builder()
                .folder(folder.path())
                .measurements(|it| it.set("files", "a.npy"))
                .preparation(|it| it.set("rings", true))
                .operator("identity", |it| it)
                .solver("cg", |it| it),
            "it is for scans alone",
        ),
        (
            scan().image(|it| it.set("layout", "sharded")).preparation(|it| it.set("rings", true)),
            "[preparation] works on whole views",
        ),
    ] {
        let message = refusal(job);
        assert!(message.contains(words), "{message}");
    }
}
