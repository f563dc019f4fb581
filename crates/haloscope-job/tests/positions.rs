//! Scans that do more than go around: helices, detectors that are turned or moved, lists of positions, and rotation axes that are found.

use std::f64::consts::TAU;
use std::fmt::Write as _;
use std::path::Path;

use haloscope::io::{self, WriteOptions};
use haloscope::physics::Physics;
use haloscope::physics::tomography::{ParallelBeam, Tomography2d, evenly_spaced};
use haloscope::{Array, metrics};
use haloscope_comm::Context;
use haloscope_job::{Job, JobBuilder, Keys, Outcome};

const SIDE: usize = 20;
const DETECTOR: [usize; 2] = [26, 30];
const VIEWS: usize = 36;
const SOURCE: f64 = 60.0;
const FAR: f64 = 20.0;
const SPACING: f64 = 4.0 / 3.0;
const PITCH: f64 = 8.0;
const TILT: f64 = 10.0;
/// Where the middle of the volume is seen: row and column.
const SEEN: [f64; 2] = [11.0, 16.5];

/// The positions of two turns along a helix, by the formulas of a laboratory: source, middle of the detector, steps of columns and rows.
fn helix() -> Vec<[[f64; 3]; 4]> {
    let (sin_tilt, cos_tilt) = TILT.to_radians().sin_cos();
    let first = (DETECTOR[0] as f64 - 1.0) / 2.0 - SEEN[0];
    let second = (DETECTOR[1] as f64 - 1.0) / 2.0 - SEEN[1];
    let middle = TAU * (VIEWS as f64 - 1.0) / VIEWS as f64;
    (0..VIEWS)
        .map(|view| {
            let angle = 2.0 * TAU * view as f64 / VIEWS as f64;
            let z = PITCH * (angle - middle) / TAU;
            let (sin, cos) = angle.sin_cos();
            let u = [cos * cos_tilt, sin * cos_tilt, sin_tilt].map(|x| x * SPACING);
            let v = [-cos * sin_tilt, -sin * sin_tilt, cos_tilt].map(|x| x * SPACING);
            let middle = [-FAR * sin, FAR * cos, z];
            let middle = std::array::from_fn(|i| middle[i] + second * u[i] + first * v[i]);
            [[SOURCE * sin, -SOURCE * cos, z], middle, u, v]
        })
        .collect()
}

const BALLS: [([f64; 3], f64); 3] =
    [([2.0, -3.0, 3.5], 1.6), ([-3.0, 2.0, -1.0], 2.0), ([1.0, 4.0, -4.0], 1.5)];

/// Some smooth balls, (z, y, x).
fn balls() -> Array {
    Array::from_shape_fn(vec![1, 1, SIDE, SIDE, SIDE], |i| {
        let at = |axis: usize| i[axis] as f64 - (SIDE as f64 - 1.0) / 2.0;
        let p = [at(4), at(3), at(2)];
        BALLS.iter().map(|(ball, width)| value(p, *ball, *width)).sum::<f64>() as f32
    })
}

fn value(p: [f64; 3], ball: [f64; 3], width: f64) -> f64 {
    let squared: f64 = (0..3).map(|j| (p[j] - ball[j]).powi(2)).sum();
    (-squared / (2.0 * width * width)).exp()
}

/// Their integrals along the rays of the helix: a ball of width w is w √(2π) exp(−d²/2w²) along a line at distance d.
fn integrals() -> Array {
    let views = helix();
    Array::from_shape_fn(vec![1, 1, VIEWS, DETECTOR[0], DETECTOR[1]], |i| {
        let [source, middle, u, v] = views[i[2]];
        let row = i[3] as f64 - (DETECTOR[0] as f64 - 1.0) / 2.0;
        let column = i[4] as f64 - (DETECTOR[1] as f64 - 1.0) / 2.0;
        let ray: [f64; 3] =
            std::array::from_fn(|j| middle[j] + column * u[j] + row * v[j] - source[j]);
        let dot = |a: [f64; 3], b: [f64; 3]| a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
        let through = |(ball, width): &([f64; 3], f64)| {
            let o: [f64; 3] = std::array::from_fn(|j| source[j] - ball[j]);
            let squared = dot(o, o) - dot(o, ray).powi(2) / dot(ray, ray);
            width * TAU.sqrt() * (-squared / (2.0 * width * width)).exp()
        };
        BALLS.iter().map(through).sum::<f64>() as f32
    })
}

fn job(folder: &Path, operator: impl FnOnce(Keys) -> Keys) -> JobBuilder {
    let side = SIDE as i64;
    Job::builder()
        .folder(folder)
        .image(|it| it.set("size", vec![side; 3]))
        .measurements(|it| it.set("files", "helix.npy"))
        .operator("cone-beam", |it| operator(it.set("pixel", 1.0).set("groups", 5)))
        .solver("cg", |it| it)
        .stop(|it| it.set("iterations", 30))
}

/// The scan in words of a job file, with a pitch.
fn in_words(it: Keys, pitch: f64) -> Keys {
    it.set("angles", VIEWS as i64)
        .set("arc", 720.0)
        .set("source-distance", SOURCE)
        .set("detector-distance", FAR)
        .set("spacing", SPACING)
        .set("centre-row", SEEN[0])
        .set("centre", SEEN[1])
        .set("tilt", TILT)
        .set("pitch", pitch)
}

fn run(job: &JobBuilder, ranks: usize) -> Vec<Outcome> {
    let job = job.clone().build().expect("a job");
    let run = move |ctx: &Context| job.run(ctx, &mut ()).map_err(haloscope_job::Error::into_inner);
    Context::threads(ranks, run).expect("no rank fails")
}

fn image(outcome: &Outcome) -> &Array {
    outcome.state.image.whole().expect("replicated")
}

fn prepare(folder: &Path) {
    let write = |name: &str, array: &Array| {
        io::write(folder.join(name), array, &WriteOptions::default()).expect("written");
    };
    write("helix.npy", &integrals());
    let mut text = String::from("# source, detector, columns, rows\n");
    for view in helix() {
        for number in view.as_flattened() {
            write!(text, "{number} ").expect("a text");
        }
        text.push('\n');
    }
    std::fs::write(folder.join("helix.txt"), text).expect("written");
}

#[test]
fn a_helix_on_a_turned_detector_is_reconstructed_in_words_and_from_a_list_of_positions() {
    let folder = tempfile::tempdir().expect("a folder");
    prepare(folder.path());
    let truth = balls();
    let psnr = |outcome: &Outcome| metrics::psnr(image(outcome), &truth, 1.0).expect("images")[0];
    let words = run(&job(folder.path(), |it| in_words(it, PITCH)), 1).remove(0);
    let listed = run(&job(folder.path(), |it| it.set("vectors", "helix.txt")), 1).remove(0);
    let wrong = run(&job(folder.path(), |it| in_words(it, 0.9 * PITCH)), 1).remove(0);
    let [good, same, bad] = [&words, &listed, &wrong].map(psnr);
    assert!(good > 38.0, "{good} dB");
    assert!(bad < good - 6.0, "{bad} dB with a wrong pitch for {good} dB");
    assert!((good - same).abs() < 0.01, "{good} and {same} dB");
    let rest = metrics::mse(image(&words), image(&listed)).expect("images")[0].sqrt();
    assert!(rest < 1e-5, "{rest}");
}

#[test]
fn positions_have_the_same_bits_on_any_number_of_ranks_and_in_shards() {
    let folder = tempfile::tempdir().expect("a folder");
    prepare(folder.path());
    let few = |layout: &'static str| {
        job(folder.path(), |it| it.set("vectors", "helix.txt"))
            .image(move |it| it.set("layout", layout))
            .stop(|it| it.set("iterations", 3))
    };
    for layout in ["replicated", "sharded"] {
        let bits = run(&few(layout), 1).remove(0).bits;
        for ranks in [2, 3, 5, 8] {
            let all = run(&few(layout), ranks);
            assert!(all.iter().all(|one| one.bits == bits), "{layout}, {ranks} ranks");
        }
    }
}

/// A sinogram of a disc and a bar, whose axis is seen at a bin.
fn sinogram(centre: f64) -> Array {
    let mut scan = ParallelBeam::new(evenly_spaced(60, TAU / 2.0), 61);
    scan.offset = 30.0 - centre;
    let slice = Array::from_shape_fn(vec![1, 1, 48, 48], |i| {
        let (y, x) = (i[2] as f64 - 30.0, i[3] as f64 - 20.0);
        let bar = (8..14).contains(&i[2]) && (20..38).contains(&i[3]);
        f32::from(u8::from(x.hypot(y) < 9.0)) + 0.5 * f32::from(u8::from(bar))
    });
    let operator = Tomography2d::new(&[1, 48, 48], scan).expect("a scan");
    operator.forward(&slice).expect("a sinogram")
}

#[test]
fn the_rotation_axis_is_found_in_the_measurements() {
    let folder = tempfile::tempdir().expect("a folder");
    let found = |centre: f64| {
        let path = folder.path().join("slice.npy");
        io::write(path, &sinogram(centre), &WriteOptions::default()).expect("written");
        let job = Job::builder()
            .folder(folder.path())
            .image(|it| it.set("size", vec![48, 48]))
            .measurements(|it| it.set("files", "slice.npy"))
            .operator("parallel-beam", |it| it.set("angles", 60).set("centre", "auto"))
            .solver("fbp", |it| it);
        let plan = job.clone().build().expect("a job").check(3).expect("a plan");
        let scan =
            plan.lines.iter().find(|(name, _)| *name == "centre").expect("a centre").1.clone();
        let bits = run(&job, 1).remove(0).bits;
        assert!(run(&job, 3).iter().all(|one| one.bits == bits), "{centre}");
        scan
    };
    for centre in [30.0, 26.5] {
        let text = found(centre);
        let (bin, rest) = text.trim_start_matches("bin ").split_once(',').expect("a comma");
        let bin: f64 = bin.parse().expect("a number");
        assert!((bin - centre).abs() < 0.1 && rest.contains("found in the measurements"), "{text}");
    }
}

#[test]
fn what_contradicts_itself_is_refused_with_the_key() {
    let folder = tempfile::tempdir().expect("a folder");
    prepare(folder.path());
    std::fs::write(folder.path().join("short.txt"), "1 2 3 4 5 6 7").expect("written");
    let refusal = |job: JobBuilder| match job.build() {
        Ok(job) => job.check(1).expect_err("wrong").to_string(),
        Err(error) => error.to_string(),
    };
    let cone = |keys: fn(Keys) -> Keys| job(folder.path(), keys);
    let slice = |keys: fn(Keys) -> Keys| {
        Job::builder()
            .folder(folder.path())
            .image(|it| it.set("size", vec![20, 20]))
            .measurements(|it| it.set("phantom", "shepp-logan").set("size", vec![20, 20]))
            .operator("parallel-beam", |it| keys(it.set("angles", 9).set("detector", 20)))
            .solver("cg", |it| it)
    };
    for (job, words) in [
        (cone(|it| it.set("vectors", "helix.txt").set("angles", 9)), "leave `angles` out"),
        (cone(|it| it.set("vectors", "short.txt")), "has 7 numbers; 12 for each view"),
        (cone(|it| in_words(it, 1.0).set("centre-row", 40.0)), "row 40 is outside"),
        (cone(|it| in_words(it, 1.0).set("centre", "auto")), "is for parallel beams"),
        (
            cone(|it| {
                let angles: Vec<f64> =
                    (0..VIEWS).map(|view| f64::from(view as u32 * 20 % 360)).collect();
                in_words(it, 1.0).set("angles", angles)
            }),
            "begin anew",
        ),
        (slice(|it| it.set("tilt", 3.0)), "it is for volumes"),
        (slice(|it| it.set("centre", "auto")), "the rotation axis was not found"),
        (slice(|it| it.set("centre", "middle")), "or \"auto\""),
    ] {
        let message = refusal(job);
        assert!(message.contains(words), "{message}");
    }
    let fdk = cone(|it| in_words(it, 1.0)).start("fdk", |it| it).build().expect("a job");
    let message = fdk.check(1).map(drop).err().map(|error| error.to_string());
    assert!(message.is_some_and(|it| it.contains("needs views that go around an axis")), "fdk");
}
