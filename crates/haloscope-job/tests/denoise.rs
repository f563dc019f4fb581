//! Files through a network, by a program.

use std::path::Path;

use haloscope::io::{self, WriteOptions};
use haloscope::noise::{Noise, NoiseSource};
use haloscope::{Array, Error};
use haloscope_job::{Deviation, Event, FileDenoising, Observer, WhitePoint};
use haloscope_nn::engine::EngineOptions;

/// Adds up the work, and asks for an end after some of it.
#[derive(Default)]
struct Watch {
    flops: f64,
    patience: Option<usize>,
}

impl Observer for Watch {
    fn event(&mut self, event: Event<'_>) {
        if let Event::Worked { flops } = event {
            self.flops += flops;
        }
    }

    fn stop(&mut self) -> Option<u8> {
        let patience = self.patience.as_mut()?;
        *patience = patience.checked_sub(1).unwrap_or(usize::MAX);
        (*patience == usize::MAX).then_some(2)
    }
}

fn denoising(folder: &Path, output: &str, budget: Option<usize>) -> FileDenoising {
    let input = folder.join("in.npy");
    if !input.exists() {
        let image =
            Array::from_shape_fn(vec![1, 1, 900, 20], |at| (at[2] * at[3] % 97) as f32 / 97.0);
        io::write(&input, &image, &WriteOptions::default()).expect("it is written");
    }
    FileDenoising {
        model: Some("dncnn:8:5".parse().expect("a model")),
        engine: EngineOptions { threads: 1, memory_budget: budget, ..EngineOptions::default() },
        ..FileDenoising::new(input, folder.join(output), Deviation::OfWhite(0.1))
    }
}

#[test]
fn a_file_by_bands_has_the_bytes_of_the_whole_and_all_work_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let mut watch = Watch::default();
    let plan = denoising(folder, "whole.npy", None).check().expect("a plan");
    let flops = plan.flops();
    assert!(!plan.is_by_bands() && !folder.join("whole.npy").exists());
    let whole = plan.run(&mut watch).expect("it runs");
    assert!((watch.flops / flops - 1.0).abs() < 1e-6, "{} of {flops}", watch.flops);
    assert_eq!((whole.waves, whole.sigma_used), (0, false));

    let budget = whole.memory_whole_bytes * 4 / 5;
    let plan = denoising(folder, "bands.npy", Some(budget)).check().expect("a plan");
    assert!(plan.is_by_bands());
    let bands = plan.run(&mut ()).expect("it runs");
    assert!(bands.by_bands && bands.waves > 1, "{bands:?}");
    let read = |name: &str| std::fs::read(folder.join(name)).expect("a result");
    assert!(read("whole.npy") == read("bands.npy"));
}

#[test]
fn noise_that_nobody_gave_is_estimated_alike_in_memory_and_by_bands() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let mut image = Array::from_shape_fn(vec![1, 1, 900, 20], |at| 0.3 + at[2] as f32 / 3000.0);
    let source = NoiseSource { seed: 3, operator: 0 };
    Noise::gaussian(0.05).expect("noise").add(&mut image, source).expect("added");
    io::write(folder.join("in.npy"), &image, &WriteOptions::default()).expect("written");
    let estimated = |output: &str, budget| FileDenoising {
        deviation: Deviation::Estimated,
        white: WhitePoint::Given(1.0),
        model: Some("drunet:4-4-8-8:1".parse().expect("a model")),
        ..denoising(folder, output, budget)
    };
    let whole = estimated("whole.npy", None).run(&mut ()).expect("it runs");
    assert!(whole.sigma_estimated && (whole.sigma - 0.05).abs() < 0.005, "{}", whole.sigma);
    let budget = whole.memory_whole_bytes * 4 / 5;
    let bands = estimated("bands.npy", Some(budget)).run(&mut ()).expect("it runs");
    assert!(bands.by_bands && bands.sigma == whole.sigma);
    let read = |name: &str| std::fs::read(folder.join(name)).expect("a result");
    assert!(read("whole.npy") == read("bands.npy"));
    io::write(folder.join("in.npy"), &Array::zeros(vec![1, 1, 9, 20]), &WriteOptions::default())
        .expect("written");
    let error = estimated("flat.npy", None).run(&mut ()).expect_err("no noise");
    assert!(error.to_string().contains("give `sigma` or `noise`"), "{error}");
    // A network that takes no level has none to refuse.
    let blind = FileDenoising {
        model: Some("dncnn:8:5".parse().expect("a model")),
        ..estimated("flat.npy", None)
    };
    let flat = blind.run(&mut ()).expect("it runs");
    assert_eq!((flat.sigma, flat.sigma_used), (0.0, false));
}

#[test]
fn an_observer_that_asks_for_an_end_leaves_no_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let whole = denoising(folder, "whole.npy", None).run(&mut ()).expect("it runs");
    let budget = whole.memory_whole_bytes * 4 / 5;
    for (output, budget, patience) in [("now.npy", None, 0), ("later.npy", Some(budget), 1)] {
        let mut watch = Watch { patience: Some(patience), ..Watch::default() };
        let error = denoising(folder, output, budget).run(&mut watch).expect_err("it ends");
        assert!(matches!(error, haloscope_job::Error::Failed(Error::Interrupted)), "{error}");
    }
    let left: Vec<_> = std::fs::read_dir(folder).expect("a folder").collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn what_is_wrong_is_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let good = denoising(folder, "out.npy", None);
    let over = FileDenoising { output: good.input.clone(), ..good.clone() };
    let missing = FileDenoising { input: folder.join("none.npy"), ..good.clone() };
    let loud = FileDenoising { deviation: Deviation::InUnits(3.0), ..good.clone() };
    let nowhere = FileDenoising { output: folder.join("no/out.npy"), ..good };
    for (wrong, words) in [
        (over, "written over the input"),
        (missing, "none.npy"),
        (loud, "3 is more than the 1 between black and white"),
        (nowhere, "output: there is no folder"),
    ] {
        let error = wrong.run(&mut ()).expect_err(words);
        assert!(matches!(error, haloscope_job::Error::Refused(_)), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
    assert!(!folder.join("out.npy").exists());
}

#[test]
fn numbers_that_no_data_have_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let refused = |white, deviation| {
        let plain = denoising(folder.path(), "out.npy", None);
        let error = FileDenoising { white, deviation, ..plain }.check();
        error.expect_err("a wrong number").to_string()
    };
    let sigma = Deviation::OfWhite(0.1);
    for (white, deviation, words) in [
        (WhitePoint::Given(0.0), sigma, "a number above 0"),
        (WhitePoint::Given(f64::NAN), sigma, "a number above 0"),
        (WhitePoint::Automatic, Deviation::OfWhite(f32::NAN), "from 0 to 1"),
        (WhitePoint::Given(2.0), Deviation::OfWhite(1.5), "from 0 to 1"),
        (WhitePoint::Automatic, Deviation::InUnits(-1.0), "at least 0"),
    ] {
        let error = refused(white, deviation);
        assert!(error.contains(words), "{error}");
    }
}
