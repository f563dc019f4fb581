//! Jobs of microscopes and satellites: several views of a volume, a blur that varies, and a sharp gray image beside a coarse one of many
//! channels. Each is better than what it is compared with, and has the same bits on any number of ranks.

use haloscope::io::{self, WriteOptions};
use haloscope::physics::kernels;
use haloscope::{Array, metrics};
use haloscope_comm::Context;
use haloscope_job::{Job, JobBuilder, Outcome};

fn run(job: &JobBuilder, ranks: usize) -> Vec<Outcome> {
    let job = job.clone().build().expect("a job");
    let run = move |ctx: &Context| job.run(ctx, &mut ()).map_err(haloscope_job::Error::into_inner);
    Context::threads(ranks, run).expect("no rank fails")
}

fn psnr(outcome: &Outcome, truth: &Array) -> f64 {
    let image = outcome.state.image.whole().expect("replicated");
    metrics::psnr(image, truth, 1.0).expect("images")[0]
}

fn assert_same_bits(job: &JobBuilder) {
    let bits = run(job, 1).remove(0).bits;
    for ranks in [2, 3, 5, 8] {
        assert!(run(job, ranks).iter().all(|one| one.bits == bits), "{ranks} ranks");
    }
}

/// Beads of a few voxels.
fn beads(sides: [usize; 3]) -> Array {
    let mut volume = Array::zeros(vec![1, 1, sides[0], sides[1], sides[2]]);
    for bead in 0..30 {
        // Multiples of irrational numbers are spread evenly.
        let spread = |factor: f64| (f64::from(bead) * factor).fract();
        let parts = [spread(0.618_034), spread(0.754_878), spread(0.569_84)];
        let place: [f64; 3] = std::array::from_fn(|i| parts[i] * (sides[i] as f64 - 6.0) + 3.0);
        for (at, value) in volume.indexed_iter_mut() {
            let squared: f64 = (0..3).map(|i| (at[i + 2] as f64 - place[i]).powi(2)).sum();
            *value += 0.7 * (-squared / 1.6).exp() as f32;
        }
    }
    volume
}

#[test]
fn two_views_of_a_volume_are_better_than_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let truth = beads([20, 18, 20]);
    io::write(folder.path().join("beads.npy"), &truth, &WriteOptions::default()).expect("written");
    let view = |job: JobBuilder, matrix: Vec<f64>| {
        job.operator("affine", |it| {
            it.set("matrix", matrix).set("kernel", "gaussian").set("sigma", vec![3.0, 0.8, 0.8])
        })
    };
    let job = || {
        Job::builder()
            .folder(folder.path())
            .measurements(|it| it.set("image", "beads.npy"))
            .fidelity("poisson", |it| it.set("background", 0.01))
            .solver("richardson-lucy", |it| it)
            .stop(|it| it.set("iterations", 30))
    };
    let upright = vec![1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0];
    // From the side: depth and width change places.
    let side = vec![0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, -1.0, 0.0, 0.0, 0.0];
    let one = view(job(), upright.clone());
    let two = view(view(job(), upright), side);
    let [one, both] = [&one, &two].map(|job| psnr(&run(job, 1).remove(0), &truth));
    assert!(both > one + 2.0, "{both} dB of two views, {one} dB of one");
    assert_same_bits(&two);
}

#[test]
fn a_sharp_gray_image_sharpens_colours() {
    let job = || {
        Job::builder()
            .measurements(|it| {
                it.set("phantom", "landscape")
                    .set("size", vec![48, 64])
                    .set("noise", JobBuilder::keys().set("gaussian", 0.01))
            })
            .operator("downsampling", |it| it.set("factor", 4).set("filter", "box"))
            .prior("total-variation", |it| it.set("weight", 0.02))
            .solver("fista", |it| it)
            .stop(|it| it.set("iterations", 60))
    };
    let sharpened = job().operator("decolorize", |it| it.set("weights", vec![0.4, 0.35, 0.25]));
    let truth = haloscope::phantom::landscape(48, 64).expect("an image");
    let [coarse, both] = [&job(), &sharpened].map(|job| psnr(&run(job, 1).remove(0), &truth));
    assert!(both > coarse + 3.0, "{both} dB with a gray image, {coarse} dB without");
    assert_same_bits(&sharpened);
}

#[test]
fn the_right_kernels_are_better_than_their_mean() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, array: &Array| {
        io::write(folder.path().join(name), array, &WriteOptions::default()).expect("written");
    };
    // Sharp in one corner, and worse towards the other.
    let all: Vec<Array> = [0.6, 1.4, 1.4, 2.4]
        .map(|sigma| kernels::gaussian(&[sigma, sigma], 0.0).expect("a kernel"))
        .into_iter()
        .collect();
    for (index, kernel) in all.iter().enumerate() {
        write(&format!("kernel{index}.npy"), kernel);
    }
    let files: Vec<String> = (0..4).map(|index| format!("kernel{index}.npy")).collect();
    let varying = |job: JobBuilder| {
        job.operator("varying-blur", |it| {
            it.set("kernel", "file").set("file", files.clone()).set("grid", vec![2, 2])
        })
    };
    let solver = |job: JobBuilder| {
        job.folder(folder.path())
            .prior("total-variation", |it| it.set("weight", 0.0005))
            .solver("fista", |it| it)
            .stop(|it| it.set("iterations", 60))
    };
    let truth = haloscope::phantom::landscape(48, 64).expect("an image");
    let operator = {
        let mut blurred = truth.clone();
        let blur = haloscope::physics::VaryingBlur::new(
            &truth.shape()[1..],
            &[2, 2],
            &all,
            haloscope::physics::Padding::Circular,
        );
        blurred.assign(
            &haloscope::physics::Physics::forward(&blur.expect("a blur"), &truth).expect("blurred"),
        );
        blurred
    };
    write("blurred.npy", &operator);
    let measured = || solver(Job::builder().measurements(|it| it.set("files", "blurred.npy")));
    let right = varying(measured());
    let mean = measured().operator("blur", |it| it.set("kernel", "gaussian").set("sigma", 1.4));
    let [right_db, mean_db] = [&right, &mean].map(|job| psnr(&run(job, 1).remove(0), &truth));
    assert!(
        right_db > mean_db + 1.0,
        "{right_db} dB with the right kernels, {mean_db} dB with one"
    );
    assert_same_bits(&right);
    assert_same_bits(&right.clone().image(|it| it.set("layout", "sharded")));
    let wrong = measured().operator("varying-blur", |it| {
        it.set("kernel", "file").set("file", files[..3].to_vec()).set("grid", vec![2, 2])
    });
    let error = wrong.build().expect("a job").check(1).expect_err("three").to_string();
    assert!(error.contains("3 kernels for a grid of [2, 2]; 4 are expected"), "{error}");
}
