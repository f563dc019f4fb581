//! Photon counts in the dark: wide blurs, which are computed by Fourier transforms, leave values a little below 0 there.

use haloscope::fidelity::{Fidelity, Poisson};
use haloscope::io::{self, WriteOptions};
use haloscope::noise::{Noise, NoiseSource};
use haloscope::physics::{Blur, BlurMethod, Padding, Physics, kernels};
use haloscope::{Array, Result};
use haloscope_comm::Context;
use haloscope_job::{Job, Outcome};

const SIDE: usize = 128;

/// Bright discs on a black ground.
fn discs() -> Array {
    Array::from_shape_fn(vec![1, 1, SIDE, SIDE], |at| {
        let away = |row: f64, column: f64| (at[2] as f64 - row).hypot(at[3] as f64 - column);
        2000.0 * f32::from(away(40.0, 44.0) < 6.0) + 5000.0 * f32::from(away(70.0, 60.0) < 4.0)
    })
}

fn run(folder: &std::path::Path, method: &str, iterations: i64, ranks: usize) -> Outcome {
    let job = Job::builder()
        .folder(folder)
        .measurements(|it| it.set("files", "counts.npy"))
        .operator("blur", |it| {
            it.set("kernel", "file").set("file", "kernel.npy").set("padding", "zero")
        })
        .fidelity("poisson", |it| it)
        .prior("none", |it| it.set("clamp", vec![0.0, f64::INFINITY]))
        .solver(method, |it| it)
        .stop(|it| it.set("iterations", iterations))
        .build()
        .expect("a job");
    let run = move |ctx: &Context| job.run(ctx, &mut ()).map_err(haloscope_job::Error::into_inner);
    Context::threads(ranks, run).expect("no rank fails").swap_remove(0)
}

#[test]
fn a_wide_blur_of_a_dark_image_is_undone() -> Result<()> {
    let truth = discs();
    // What is far from the focus: a disc of 65 pixels.
    let kernel = Array::from_shape_fn(vec![1, 1, 65, 65], |at| {
        f32::from((at[2] as f64 - 32.0).hypot(at[3] as f64 - 32.0) < 32.5)
    });
    let folder = tempfile::tempdir().expect("a folder");
    io::write(folder.path().join("kernel.npy"), &kernel, &WriteOptions::default())?;
    let blur = Blur::new(&[1, SIDE, SIDE], &kernels::normalised(&kernel)?, Padding::Constant)?;
    assert_eq!(blur.method(), BlurMethod::Fourier);
    let blurred = blur.forward(&truth)?;
    // The case: what is 0 is not, after the transforms.
    assert!(blurred.iter().any(|value| *value < 0.0) && blurred.iter().all(|value| *value > -0.01));
    let mut counts = blurred.mapv(|value| value.max(0.0));
    Noise::poisson(1.0)?.add(&mut counts, NoiseSource { seed: 4, operator: 0 })?;
    assert!(counts.iter().filter(|count| **count == 0.0).count() > SIDE * SIDE / 8);
    io::write(folder.path().join("counts.npy"), &counts, &WriteOptions::default())?;
    let best = Poisson::new(1.0, 0.0)?.value(&blurred, &counts)?;
    for method in ["pgd", "fista"] {
        let outcome = run(folder.path(), method, 120, 1);
        let terms: Vec<f64> =
            outcome.records[0].iter().filter_map(|record| record.data_term).collect();
        let (first, last) = (terms[0], terms[terms.len() - 1]);
        println!("{method}: {first} to {last}; {best}");
        // Nearly as far as the image that was measured is.
        assert!(first - last > 0.99 * (first - best), "{method}: {first} to {last}; {best}");
        assert_eq!(run(folder.path(), method, 120, 3).bits, outcome.bits, "{method}");
    }
    Ok(())
}
