//! Scans as strangers have them: in millimetres, with the axis off the middle, as arrays without a word on their geometry;
//! and the traps on the way from them to an image.

mod jobs;

use haloscope::io::{self, ReadOptions};
use haloscope::metrics::psnr;
use haloscope::noise::{Noise, NoiseSource};
use haloscope::phantom::{SheppLogan, Table};
use haloscope::physics::Physics;
use haloscope::physics::tomography::{
    ConeBeam, FanBeam, ParallelBeam, Tomography2d, Tomography3d, evenly_spaced,
};
use haloscope::{Array, Result};
use jobs::{Folder, edited, haloscope, json, npy, text};

/// Attenuation of white, per millimetre.
const WHITE: f32 = 0.02;

/// The side of a pixel, in millimetres.
const PIXEL: f64 = 0.1;

/// A head of `inner` pixels along each side in the middle of an image of `side`, in attenuations per millimetre.
fn head(side: usize, inner: usize, sides: usize) -> Array {
    let phantom = SheppLogan::new(Table::Modified).with_points(2);
    let small = phantom.draw(&vec![inner; sides]).expect("a phantom");
    let border = (side - inner) / 2;
    Array::from_shape_fn([vec![1, 1], vec![side; sides]].concat(), |at| {
        let mut place = [0; 5];
        for axis in 2..2 + sides {
            match at[axis].checked_sub(border).filter(|index| *index < inner) {
                Some(index) => place[axis] = index,
                None => return 0.0,
            }
        }
        WHITE * small[&place[..2 + sides]]
    })
}

/// Writes what an operator measures of an image, with noise, as an array of numpy.
fn measure(folder: &Folder, operator: &dyn Physics, image: &Array, noise: f64) {
    let mut measured = operator.forward(image).expect("measurements");
    let source = NoiseSource { seed: 5, operator: 0 };
    Noise::gaussian(noise).and_then(|noise| noise.add(&mut measured, source)).expect("noise");
    let shape = measured.shape()[2..].to_vec();
    let values: Vec<f32> = measured.iter().copied().collect();
    folder.write("measured.npy", npy(&shape, |index| values[index]));
}

fn quality(folder: &Folder, file: &str, truth: &Array) -> f64 {
    let found = io::read(folder.path(file), &ReadOptions::default()).expect("a result").array;
    assert_eq!(found.shape(), truth.shape());
    psnr(&found, truth, f64::from(WHITE)).expect("a PSNR").iter().sum::<f64>()
        / found.shape()[0] as f64
}

/// Runs a job on 1 and 3 ranks, with the same bits; its PSNR, and what it said.
fn found(folder: &Folder, job: &str, file: &str, truth: &Array) -> (f64, String) {
    let output = folder.run(job, &[]);
    let said = text(&output.stderr);
    let bits = json(&output)["bits"].as_str().expect("a digest").to_owned();
    assert_eq!(folder.bits(job, &["--ranks", "3"]), bits);
    (quality(folder, file, truth), said)
}

/// The same scan by filtered back-projection.
fn back_projected(folder: &Folder, operators: &str, method: &str, truth: &Array) -> f64 {
    let job = format!(
        "[measurements]\nfiles = 'measured.npy'\n[[operators]]\n{operators}\n[solver]\nmethod = '{method}'\n\
         [output]\nfile = 'direct.npy'\n"
    );
    let summary = json(&folder.run(&job, &[]));
    assert_eq!(summary["iterations"], 0);
    quality(folder, "direct.npy", truth)
}

#[test]
fn a_parallel_scan_in_millimetres_reconstructs_from_the_template() {
    let folder = Folder::new();
    let (side, views) = (96, 90);
    let mut scan = ParallelBeam::new(evenly_spaced(views, std::f64::consts::PI), side);
    // The axis is seen at bin 43.5.
    (scan.spacing, scan.offset) = (PIXEL, 4.0);
    let truth = head(side, 80, 2);
    let operator = Tomography2d::with_pixels(&[1, side, side], [PIXEL; 2], scan).expect("a scan");
    measure(&folder, &operator, &truth, 0.002);
    let job = edited(
        &folder,
        &["tomography-2d"],
        &[
            ("phantom", "files = 'measured.npy'"),
            ("size", ""),
            ("noise", ""),
            ("angles", "angles = 90"),
            ("detector", ""),
            ("# spacing", "spacing = 0.1"),
            ("# centre", "centre = 43.5"),
            ("normalise", ""),
            ("file", "file = 'image.npy'"),
        ],
    );
    let (psnr, said) = found(&folder, &job, "image.npy", &truth);
    let direct = back_projected(
        &folder,
        "kind = 'parallel-beam'\nangles = 90\nspacing = 0.1\ncentre = 43.5",
        "fbp",
        &truth,
    );
    println!("{psnr:.2} dB, {direct:.2} dB by back-projection");
    assert!(psnr > direct + 3.0 && psnr > 25.0, "{psnr} dB against {direct} dB: {said}");
    assert!(said.contains("`scale` in [prior]") && said.contains("noise"), "{said}");
}

#[test]
fn a_fan_beam_scan_in_millimetres_fills_the_image() {
    let folder = Folder::new();
    let (side, views) = (96, 120);
    let mut scan = FanBeam::new(evenly_spaced(views, std::f64::consts::TAU), side, 100.0, 50.0);
    (scan.spacing, scan.offset) = (0.15, -3.0);
    let truth = head(side, 80, 2);
    let operator = Tomography2d::with_pixels(&[1, side, side], [PIXEL; 2], scan).expect("a scan");
    measure(&folder, &operator, &truth, 0.002);
    let geometry = "angles = 120\nspacing = 0.15\ncentre = 50.5\nsource-distance = 100\ndetector-distance = 50";
    let job = edited(
        &folder,
        &["tomography-2d"],
        &[
            ("phantom", "files = 'measured.npy'"),
            ("size", ""),
            ("noise", ""),
            ("kind", "kind = 'fan-beam'"),
            ("angles", geometry),
            ("detector", ""),
            ("normalise", ""),
            ("file", "file = 'image.npy'"),
        ],
    );
    let (psnr, said) = found(&folder, &job, "image.npy", &truth);
    let direct = back_projected(&folder, &format!("kind = 'fan-beam'\n{geometry}"), "fbp", &truth);
    println!("{psnr:.2} dB, {direct:.2} dB by back-projection");
    assert!(psnr > direct + 3.0 && psnr > 25.0, "{psnr} dB against {direct} dB: {said}");

    let name = folder.write("job.toml", &job);
    let output = haloscope(&["check", &name]);
    let plan = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for line in [
        "beam          fan, source 100 and detector 50 from the rotation axis (magnification 1.5)",
        "views         120, from 0.00° to 357.00° (an arc of 357.00°)",
        "centre        bin 50.5; the middle of the detector is 47.5",
        "pixel         0.1, the spacing of bins over the magnification",
        "field of view a circle of 8.991, 10.19 in some views",
        "the image is 9.6 x 9.6",
        "time          ",
    ] {
        assert!(plan.contains(line), "{line} in\n{plan}");
    }
    assert!(!plan.contains("warning"), "{plan}");
}

#[test]
fn a_cone_beam_scan_in_millimetres_reconstructs_from_the_template() {
    let folder = Folder::new();
    let (side, views) = (32, 60);
    let angles = evenly_spaced(views, std::f64::consts::TAU);
    let mut scan = ConeBeam::new(angles, [side, side], 60.0, 30.0);
    (scan.spacing, scan.offset) = ([0.15; 2], [0.0, 1.0]);
    let truth = head(side, 26, 3);
    let shape = [1, side, side, side];
    let operator = Tomography3d::with_voxels(&shape, [PIXEL; 3], scan).expect("a scan");
    measure(&folder, &operator, &truth, 0.001);
    let geometry =
        "angles = 60\nspacing = 0.15\ncentre = 14.5\nsource-distance = 60\ndetector-distance = 30";
    let job = edited(
        &folder,
        &["tomography-3d"],
        &[
            ("phantom", "files = 'measured.npy'"),
            ("size", ""),
            ("points", ""),
            ("noise", ""),
            ("angles", geometry),
            ("detector", ""),
            ("source-distance", ""),
            ("detector-distance", ""),
            ("pixel", ""),
            ("normalise", ""),
            ("file", "file = 'image.npy'"),
        ],
    );
    let (psnr, said) = found(&folder, &job, "image.npy", &truth);
    let direct = back_projected(&folder, &format!("kind = 'cone-beam'\n{geometry}"), "fdk", &truth);
    println!("{psnr:.2} dB, {direct:.2} dB by back-projection");
    assert!(psnr > direct + 2.0 && psnr > 20.0, "{psnr} dB against {direct} dB: {said}");
}

/// A job on measured data, for what is wrong with its operators.
fn job_of(operators: &str, more: &str) -> String {
    format!(
        "[measurements]\nfiles = 'measured.npy'\n[[operators]]\n{operators}\n{more}\n[output]\nfile = 'image.npy'\n"
    )
}

#[test]
fn traps_of_geometry_are_named() {
    let landweber = "[solver]\nmethod = 'landweber'\n[stop]\niterations = 1";
    let slice: &[usize] = &[20, 32];
    let radians: Vec<String> =
        (0..20).map(|view| format!("{:.4}", f64::from(view) * 0.157_08)).collect();
    let list = format!("kind = 'parallel-beam'\nangles = [{}]", radians.join(", "));
    let fan = "kind = 'fan-beam'\nangles = 20\ndetector-distance = 30\nsource-distance";
    for (shape, operators, words) in [
        (slice, list.as_str(), &["angles", "radians", "angle-unit"][..]),
        (
            slice,
            "kind = 'parallel-beam'\nangles = 20\narc = 3.14159",
            &["operators[0].arc", "half a turn in radians"],
        ),
        (slice, "kind = 'parallel-beam'\nangles = 20\narc = 6.2832", &["a turn in radians"]),
        (slice, &format!("{fan} = 10\npixel = 1"), &["inside the image", "32 x 32"]),
        (slice, &format!("{fan} = -10"), &["source-distance", "above 0"]),
        (
            slice,
            "kind = 'parallel-beam'\nangles = 20\ncentre = 160",
            &["operators[0].centre", "bin 160 is outside of the detector", "from 0 to 31"],
        ),
        (slice, "kind = 'parallel-beam'\nangles = 32", &["look transposed", "(view, bin)"]),
        (
            &[6, 20, 32],
            "kind = 'parallel-beam'\nangles = 20",
            &["axis 1 has that many", "look transposed", "(view, row, column)"],
        ),
        (slice, "kind = 'parallel-beam'\nangles = 21", &["21 angles for measurements of 20 views"]),
    ] {
        let folder = Folder::new();
        folder.write("measured.npy", npy(shape, |index| index as f32));
        let job = folder.write("job.toml", job_of(operators, landweber));
        for command in ["check", "reconstruct"] {
            let output = haloscope(&[command, &job]);
            let message = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{operators}: {message}");
            assert!(words.iter().all(|word| message.contains(word)), "{words:?}: {message}");
        }
    }
}

#[test]
fn radians_are_accepted_where_the_job_says_so() {
    let folder = Folder::new();
    folder.write("measured.npy", npy(&[20, 32], |index| (index % 7) as f32));
    let landweber = "[solver]\nmethod = 'landweber'\n[stop]\niterations = 1";
    let list = |unit: f64| -> String {
        let angles: Vec<String> =
            (0..20).map(|view| format!("{}", f64::from(view) * 9.0 * unit)).collect();
        angles.join(", ")
    };
    let degrees = job_of(&format!("kind = 'parallel-beam'\nangles = [{}]", list(1.0)), landweber);
    let radians = job_of(
        &format!(
            "kind = 'parallel-beam'\nangles = [{}]\nangle-unit = 'radians'",
            list(1_f64.to_radians())
        ),
        landweber,
    );
    assert_eq!(folder.bits(&degrees, &[]), folder.bits(&radians, &[]));
    let small = job_of(
        "kind = 'parallel-beam'\nangles = 20\narc = 3.1416\nangle-unit = 'degrees'",
        landweber,
    );
    json(&folder.run(&small, &[]));
}

#[test]
fn a_kernel_without_brightness_is_refused() {
    let folder = Folder::new();
    folder.write("measured.npy", npy(&[16, 16], |_| 1.0));
    let job = job_of(
        "kind = 'blur'\nkernel = 'file'\nfile = 'kernel.npy'",
        "[solver]\nmethod = 'landweber'\n[stop]\niterations = 1",
    );
    for (sum, values) in [("-1", [1.0, -3.0, 1.0]), ("0", [1.0, -2.0, 1.0])] {
        folder.write("kernel.npy", npy(&[1, 3], |index| values[index]));
        let output = folder.run(&job, &[]);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(&format!("sum to {sum}; a sum above 0")), "{message}");
    }
}

#[test]
fn back_projection_is_a_method_on_any_number_of_ranks() {
    let folder = Folder::new();
    let simulated = |operators: &str, solver: &str| {
        format!(
            "[measurements]\nphantom = 'shepp-logan'\nsize = 32\npoints = 2\nnoise = {{ gaussian = 0.01 }}\n\
             [[operators]]\n{operators}\n{solver}\n[output]\nfile = 'image.npy'\nfolder = 'pictures'\n"
        )
    };
    let beam = "kind = 'parallel-beam'\nangles = 40\ndetector = 48\ngroups = 5";
    let job = simulated(beam, "[solver]\nmethod = 'fbp'\nwindow = 'hann'");
    let output = folder.run(&job, &[]);
    let summary = json(&output);
    assert_eq!((&summary["iterations"], &summary["method"]), (&0.into(), &"fbp".into()));
    assert!(summary["after"]["psnr_db"].as_f64().is_some_and(|psnr| psnr > 18.0), "{summary}");
    assert!(folder.path("image.npy").exists() && folder.path("pictures/report.html").exists());
    for ranks in ["2", "3", "5"] {
        assert_eq!(folder.bits(&job, &["--ranks", ranks]), summary["bits"].as_str().expect("bits"));
    }
    let plan = haloscope(&["check", &folder.name("job.toml")]);
    assert!(text(&plan.stdout).contains("fbp, no iterations"), "{}", text(&plan.stdout));

    // The image to begin with is the same, and `clamp` keeps it in a range.
    let started = simulated(
        beam,
        "[start]\nkind = 'fbp'\nwindow = 'hann'\n[solver]\nmethod = 'landweber'\nstep = 1e-30\n[stop]\niterations = 1",
    );
    assert_eq!(folder.bits(&started, &[]), summary["bits"].as_str().expect("bits"));
    let clamped = format!("[prior]\nclamp = [0, 0.5]\n{job}");
    json(&folder.run(&clamped, &[]));
    let image = io::read(folder.path("image.npy"), &ReadOptions::default()).expect("an image");
    assert!(image.array.iter().all(|value| (0.0..=0.5).contains(value)));

    for (job, words) in [
        (format!("[prior]\nkind = 'total-variation'\nweight = 1\n{job}"), "fbp takes no prior"),
        (simulated("kind = 'identity'", "[solver]\nmethod = 'fbp'"), "needs a scan"),
        (format!("[start]\nkind = 'fbp'\nwindow = 'hann'\n{job}"), "give `window` in [solver]"),
        (job.replace("'hann'", "'hat'"), "`hat` is unknown"),
    ] {
        let message = text(&folder.run(&job, &[]).stderr);
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn short_arcs_warn_and_continue_whatever_the_beam() {
    for (size, operators, method, needed) in [
        ("32", "kind = 'parallel-beam'\nangles = 30\narc = 120\ndetector = 48", "fbp", "180.0°"),
        (
            "32",
            "kind = 'fan-beam'\nangles = 30\narc = 150\ndetector = 48\nsource-distance = 80\n\
             detector-distance = 40\npixel = 1",
            "fbp",
            "needs 2",
        ),
        (
            "[12, 12, 12]",
            "kind = 'cone-beam'\nangles = 20\narc = 150\ndetector = [20, 20]\nsource-distance = 60\n\
             detector-distance = 20\npixel = 1",
            "fdk",
            "needs ",
        ),
    ] {
        let folder = Folder::new();
        let job = format!(
            "[measurements]\nphantom = 'shepp-logan'\nsize = {size}\npoints = 1\n[[operators]]\n{operators}\n\
             [solver]\nmethod = '{method}'\n[output]\nfile = 'image.npy'\n"
        );
        let output = folder.run(&job, &[]);
        let (said, summary) = (text(&output.stderr), json(&output));
        assert!(said.contains("the views cover") && said.contains(needed), "{said}");
        assert!(summary["after"]["psnr_db"].as_f64().is_some_and(|psnr| psnr > 10.0), "{summary}");
        let plan = haloscope(&["check", &folder.name("job.toml")]);
        assert!(plan.status.success(), "{}", text(&plan.stderr));
        let plan = text(&plan.stdout);
        assert!(plan.contains("the views cover") && plan.contains(needed), "{plan}");
    }
}

#[test]
fn counts_of_photons_need_no_step_and_stay_where_they_mean_something() {
    let folder = Folder::new();
    let job = |solver: &str| {
        format!(
            "[measurements]\nphantom = 'shepp-logan'\nsize = 24\npoints = 2\nnoise = {{ poisson = 0.1 }}\n\
             [[operators]]\nkind = 'parallel-beam'\nangles = 20\ndetector = 36\n[fidelity]\nkind = 'poisson'\n\
             gain = 0.1\n[prior]\nclamp = [0, 2]\n{solver}\n[output]\nfile = 'image.npy'\n"
        )
    };
    for (solver, starts) in [
        ("[solver]\nmethod = 'fista'\n[stop]\niterations = 30", "adjoint"),
        ("[solver]\nmethod = 'fista'\nstep = 10\n[stop]\niterations = 30", "fbp"),
        ("[solver]\nmethod = 'pgd'\n[stop]\niterations = 30", "zeros"),
        ("[solver]\nmethod = 'landweber'\n[stop]\niterations = 30", "adjoint"),
    ] {
        let job = job(&format!("[start]\nkind = '{starts}'\n{solver}"));
        let output = folder.run(&job, &[]);
        let summary = json(&output);
        let records = summary["per_rank"][0]["records"].as_array().expect("records");
        let term = |index: usize| records[index]["data_term"].as_f64().expect("a data term");
        assert!(term(29) < term(0), "{solver}: {} to {}", term(0), term(29));
        assert!(
            summary["after"]["psnr_db"].as_f64().is_some_and(|psnr| psnr > 15.0),
            "{solver}: {summary}"
        );
        assert_eq!(folder.bits(&job, &["--ranks", "3"]), summary["bits"].as_str().expect("bits"));
    }
    // Total variation by duals, which need neither a step nor a gradient.
    let tv = job("[solver]\nmethod = 'primal-dual'\n[stop]\niterations = 60")
        .replace("[prior]\n", "[prior]\nkind = 'total-variation'\nweight = 0.2\n");
    let summary = json(&folder.run(&tv, &[]));
    assert!(summary["after"]["psnr_db"].as_f64().is_some_and(|psnr| psnr > 15.0), "{summary}");
    assert_eq!(folder.bits(&tv, &["--ranks", "3"]), summary["bits"].as_str().expect("bits"));
}

/// Blurred frames of a picture with the builtin network, whose values are `unit` times those from 0 to 1.
fn in_unit(folder: &Folder, unit: f32, prior: &str) -> String {
    let picture = haloscope::phantom::landscape(40, 40).expect("a picture");
    let gray = picture.index_axis(ndarray::Axis(1), 1);
    let values: Vec<f32> = gray.iter().map(|value| unit * value).collect();
    let mut next = 1_u32;
    let noise: Vec<f32> = (0..values.len())
        .map(|_| {
            let mut sum = 0.0;
            for _ in 0..12 {
                next = next.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                sum += next as f32 / u32::MAX as f32;
            }
            0.05 * unit * (sum - 6.0)
        })
        .collect();
    folder.write("measured.npy", npy(&[40, 40], |index| values[index] + noise[index]));
    format!(
        "[measurements]\nfiles = 'measured.npy'\n[[operators]]\nkind = 'identity'\n[prior]\nkind = 'network'\n\
         model = 'builtin:gray'\n{prior}\n[solver]\nmethod = 'hqs'\nlevels = [0.1, 0.04]\n\
         schedule-iterations = 4\n[output]\nfile = 'image.npy'\n"
    )
}

fn read(folder: &Folder) -> Result<Array> {
    Ok(io::read(folder.path("image.npy"), &ReadOptions::default())?.array)
}

#[test]
fn a_network_does_not_depend_on_the_unit_of_the_data() {
    let folder = Folder::new();
    let stop = "[stop]\niterations = 4\n";
    let mut images = Vec::new();
    for unit in [1.0, 0.005, 4000.0] {
        let job = in_unit(&folder, unit, "") + stop;
        let output = folder.run(&job, &[]);
        let said = text(&output.stderr);
        let bits = json(&output)["bits"].as_str().expect("bits").to_owned();
        assert_eq!(said.contains("`scale` in [prior]"), unit != 1.0, "{said}");
        assert_eq!(folder.bits(&job, &["--ranks", "2"]), bits);
        images.push(read(&folder).expect("an image") / unit);
    }
    let distance = |one: &Array, other: &Array| {
        let square =
            |array: &Array| array.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>();
        (square(&(one - other)) / square(one)).sqrt()
    };
    // White is not the same to the last digit.
    for image in &images[1..] {
        assert!(distance(&images[0], image) < 0.03, "{}", distance(&images[0], image));
    }
    // Without the scale the picture is gone.
    let job = in_unit(&folder, 0.005, "scale = 1") + stop;
    json(&folder.run(&job, &[]));
    let blurred = read(&folder).expect("an image") / 0.005;
    assert!(distance(&images[0], &blurred) > 0.1, "{}", distance(&images[0], &blurred));
}

#[test]
fn a_run_that_goes_on_has_the_scale_that_it_began_with() {
    let folder = Folder::new();
    let job = in_unit(&folder, 0.005, "");
    let whole = folder.bits(&format!("{job}[stop]\niterations = 4\n"), &[]);
    // The time is up after the first iteration.
    let cut = format!("{job}[stop]\niterations = 4\nminutes = 1e-9\n");
    assert_eq!(json(&folder.run(&cut, &["--start-over"]))["iterations"], 1);
    let output = folder.run(&format!("{job}[stop]\niterations = 4\n"), &["--resume"]);
    let summary = json(&output);
    assert_eq!((&summary["bits"], &summary["resumed_from"]), (&whole.into(), &1.into()));
}

#[test]
fn the_old_name_of_scale_is_understood_and_said() {
    let folder = Folder::new();
    let stop = "[stop]\niterations = 1\n";
    let output = folder.run(&(in_unit(&folder, 0.005, "normalise = true") + stop), &[]);
    assert!(text(&output.stderr).contains("called `scale` now; write scale = \"range\""));
    let bits = json(&output)["bits"].as_str().expect("bits").to_owned();
    assert_eq!(folder.bits(&(in_unit(&folder, 0.005, "scale = 'range'") + stop), &[]), bits);
    let check = haloscope(&[
        "check",
        &folder.write("old.toml", in_unit(&folder, 1.0, "normalise = false")),
    ]);
    assert!(text(&check.stdout).contains("write scale = 1"), "{}", text(&check.stdout));
    let both = in_unit(&folder, 1.0, "normalise = false\nscale = 1");
    assert!(text(&folder.run(&both, &[]).stderr).contains("its old name `normalise`"));
    let range = in_unit(&folder, 1.0, "scale = 'range'\nclamp = [0, 1]");
    assert!(text(&folder.run(&range, &[]).stderr).contains("one of them is possible"));
}

#[test]
fn a_range_far_from_the_measurements_is_refused() {
    let folder = Folder::new();
    let job = in_unit(&folder, 4000.0, "clamp = [0, 1]") + "[stop]\niterations = 1\n";
    let output = folder.run(&job, &[]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("far from the [0, 1] that `clamp` of [prior]"), "{said}");
    let job = job.replace("[0, 1]", "[0, inf]");
    assert!(!text(&folder.run(&job, &[]).stderr).contains("`clamp`"));
}

#[test]
fn results_have_the_size_of_pixels_that_the_scan_implies() {
    let folder = Folder::new();
    folder.write("measured.npy", npy(&[12, 8, 10], |index| index as f32));
    let job = job_of(
        "kind = 'cone-beam'\nangles = 12\nspacing = [0.4, 0.2]\nsource-distance = 30\ndetector-distance = 30",
        "[solver]\nmethod = 'fdk'",
    )
    .replace("image.npy", "image.nii.gz");
    json(&folder.run(&job, &[]));
    let image = io::read(folder.path("image.nii.gz"), &ReadOptions::default()).expect("a volume");
    let spacing = image.spacing.expect("a spacing");
    let expected = [0.2, 0.1, 0.1];
    assert!(spacing.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{spacing:?}");
}
