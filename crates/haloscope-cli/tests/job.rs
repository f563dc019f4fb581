//! `haloscope reconstruct`, `init` and `check` on small jobs: every method, on any number of ranks, and on files.

mod jobs;

use haloscope::io;
use jobs::{Folder, PRIMAL_DUAL, deblurring, haloscope, identity_network, json, npy, text};

/// Every method with a prior that it takes.
const METHODS: [(&str, &str); 15] = [
    ("primal-dual", PRIMAL_DUAL),
    (
        "primal-dual in a range",
        "[solver]\nmethod = 'primal-dual'\n[prior]\nkind = 'total-variation'\nweight = 0.002\n\
         clamp = [0.2, 0.8]",
    ),
    ("pgd", "[solver]\nmethod = 'pgd'\n[prior]\nkind = 'total-variation'\nweight = 0.002"),
    (
        "pgd in any units",
        "[solver]\nmethod = 'pgd'\n[prior]\nkind = 'network'\nmodel = 'identity.safetensors'\n\
         normalise = true",
    ),
    (
        "pgd in a range",
        "[solver]\nmethod = 'pgd'\nstep = 0.3\nrelaxation = 20\n[prior]\nkind = 'network'\n\
         model = 'identity.safetensors'\npatch = 16\noverlap = 4\nclamp = [0, 1]",
    ),
    ("pgd alone", "[solver]\nmethod = 'pgd'\n[prior]\nkind = 'none'\nclamp = [0, 1]"),
    ("fista", "[solver]\nmethod = 'fista'\n[prior]\nkind = 'total-variation'\nweight = 0.002"),
    (
        "hqs",
        "[solver]\nmethod = 'hqs'\nlevels = [0.01, 0.001]\nnoise = 0.005\nschedule-iterations = 12\n\
         [prior]\nkind = 'total-variation'\nweight = 0.002",
    ),
    ("admm", "[solver]\nmethod = 'admm'\n[prior]\nkind = 'total-variation'\nweight = 0.002"),
    ("drs", "[solver]\nmethod = 'drs'\n[prior]\nkind = 'total-variation'\nweight = 0.002"),
    (
        "red",
        "[solver]\nmethod = 'red'\nweight = 0.01\n[prior]\nkind = 'total-variation'\nweight = 0.01",
    ),
    (
        "red-fixed-point",
        "[solver]\nmethod = 'red-fixed-point'\nweight = 0.1\n[prior]\nkind = 'total-variation'\n\
         weight = 0.002",
    ),
    ("cg", "[solver]\nmethod = 'cg'"),
    ("landweber", "[solver]\nmethod = 'landweber'\n[start]\nkind = 'zeros'"),
    ("landweber in a range", "[solver]\nmethod = 'landweber'\n[prior]\nclamp = [0, 1]"),
];

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("identity.safetensors", identity_network());
    folder
}

#[test]
fn every_method_improves_the_image_with_the_same_bits_on_1_to_3_ranks() {
    for (name, sections) in METHODS {
        let folder = folder();
        let job = deblurring(12, sections);
        let alone = json(&folder.run(&job, &[]));
        let decibels = |when: &str| alone[when]["psnr_db"].as_f64().expect("a number");
        assert!(decibels("after") > decibels("before") + 0.5, "{name}: {alone}");
        assert_eq!(alone["iterations"], 12, "{name}");
        for ranks in ["2", "3"] {
            assert_eq!(folder.bits(&job, &["--ranks", ranks]), alone["bits"], "{name} on {ranks}");
        }
    }
}

#[test]
fn every_method_goes_on_to_the_same_bits_on_another_number_of_ranks() {
    let often = "\n[checkpoint]\niterations = 3\n";
    for (name, sections) in METHODS {
        let folder = folder();
        let whole = folder.bits(&deblurring(12, sections), &[]);
        let sections = sections.to_owned() + often;
        let cut = json(&folder.run(&deblurring(7, &sections), &["--ranks", "2"]));
        assert_ne!(cut["bits"], whole, "{name}");
        let resumed = json(&folder.run(&deblurring(12, &sections), &["--resume", "--ranks", "3"]));
        assert_eq!(resumed["resumed_from"], 6, "{name}");
        assert_eq!(resumed["bits"], whole, "{name}");
    }
}

#[test]
fn each_fidelity_has_a_method() {
    for fidelity in ["kind = 'l2'\nsigma = 0.5", "kind = 'l1'", "kind = 'poisson'\ngain = 0.01"] {
        let job = deblurring(
            10,
            &format!(
                "[fidelity]\n{fidelity}\n[solver]\nmethod = 'pgd'\nstep = 0.002\n[prior]\nkind = 'none'\n\
                 clamp = [0.001, 1]\n"
            ),
        );
        let summary = json(&Folder::new().run(&job, &["--ranks", "2"]));
        assert!(summary["data_term"].as_f64().is_some_and(f64::is_finite), "{fidelity}");
    }
}

#[test]
fn rules_end_a_run_before_its_iterations() {
    for (rule, reason) in [
        ("relative-change = 0.01", "hardly changes"),
        ("discrepancy = 0.05", "as well as asked for"),
        ("data-term = 1.0", "as well as asked for"),
        ("minutes = 1e-9", "the time is up"),
    ] {
        let job = deblurring(500, PRIMAL_DUAL)
            .replace("iterations = 500", &format!("iterations = 500\n{rule}"));
        let summary = json(&Folder::new().run(&job, &["--ranks", "2"]));
        assert!(summary["reason"].as_str().is_some_and(|why| why.contains(reason)), "{summary}");
        assert!(summary["iterations"].as_u64() < Some(500), "{summary}");
    }
}

#[test]
fn conjugate_gradients_stop_at_the_noise() {
    let job = deblurring(500, "[solver]\nmethod = 'cg'")
        .replace("iterations = 500", "iterations = 500\ndiscrepancy = 0.02");
    let summary = json(&Folder::new().run(&job, &["--ranks", "2"]));
    assert!(summary["reason"].as_str().is_some_and(|why| why.contains("as well as asked for")));
    assert!(summary["per_rank"][0]["data_seconds"].as_f64() > Some(0.0), "{summary}");
}

#[test]
fn images_stay_in_the_range_of_the_prior() {
    let folder = Folder::new();
    for solver in ["method = 'primal-dual'", "method = 'pgd'", "method = 'fista'"] {
        let job = deblurring(
            8,
            &format!(
                "[solver]\n{solver}\n[prior]\nkind = 'total-variation'\nweight = 0.002\nclamp = [0.3, 0.7]"
            ),
        )
        .replace("[output]", "[output]\nfile = 'out.npy'");
        json(&folder.run(&job, &["--ranks", "2"]));
        let bytes = std::fs::read(folder.path("out.npy")).expect("the image");
        let values: Vec<f32> = bytes[bytes.len() - 4 * 3 * 24 * 20..]
            .chunks_exact(4)
            .map(|bytes| f32::from_le_bytes(bytes.try_into().expect("four bytes")))
            .collect();
        let reaches = |value: f32| values.contains(&value);
        assert!(values.iter().all(|value| (0.3..=0.7).contains(value)), "{solver}");
        assert!(reaches(0.3) && reaches(0.7), "{solver}");
    }
}

#[test]
fn pictures_of_images_in_other_units_take_a_contrast_and_say_so() {
    let folder = Folder::new();
    folder.write("counts.npy", npy(&[8, 8], |index| 1000.0 * index as f32 / 63.0));
    let job = |contrast: &str| {
        format!(
            "[measurements]\nfiles = 'counts.npy'\n[[operators]]\nkind = 'identity'\n[solver]\nmethod = 'cg'\n\
             [stop]\niterations = 2\n[output]\nfile = 'out.png'\n{contrast}\n"
        )
    };
    let shown = |job: &str| {
        let output = folder.run(job, &[]);
        json(&output);
        let picture = image::open(folder.path("out.png")).expect("a picture").to_luma8();
        (picture.into_raw(), text(&output.stderr))
    };
    let (white, message) = shown(&job(""));
    assert!(white[1..].iter().all(|value| *value == 255), "{white:?}");
    assert!(message.contains("`contrast` in [output]"), "{message}");
    let (shades, message) = shown(&job("contrast = [0, 1000]"));
    let expected = |index: usize| (255.0 * index as f32 / 63.0).round() as u8;
    let near = shades.iter().enumerate().all(|(i, shade)| shade.abs_diff(expected(i)) <= 1);
    assert!(near && !message.contains("contrast"), "{shades:?} {message}");
}

#[test]
fn a_result_that_cannot_be_written_is_kept_in_a_checkpoint() {
    let folder = Folder::new();
    let job = deblurring(4, PRIMAL_DUAL);
    let expected = Folder::new().bits(&job, &[]);
    std::fs::create_dir_all(folder.path("pictures/report.html")).expect("a folder in the way");
    for ranks in ["1", "2"] {
        let output = folder.run(&job, &["--start-over", "--quiet", "--ranks", ranks]);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(message.contains("--resume writes it again"), "{message}");
        assert_eq!(message.matches("the result").count(), 1, "{message}");
        assert_eq!(folder.checkpoints().len(), 1);
    }
    std::fs::remove_dir(folder.path("pictures/report.html")).expect("out of the way");
    assert_eq!(folder.bits(&job, &["--resume"]), expected);
}

#[test]
fn checkpoints_that_are_given_up_are_gone_after_a_run_that_needs_none() {
    let folder = Folder::new();
    let saving = deblurring(4, PRIMAL_DUAL) + "\n[checkpoint]\niterations = 2\n";
    folder.bits(&saving, &[]);
    assert_eq!(folder.checkpoints().len(), 2);
    let plain = deblurring(3, PRIMAL_DUAL);
    folder.bits(&plain, &["--start-over"]);
    assert_eq!(folder.checkpoints().len(), 0);
    folder.bits(&plain, &[]);
}

#[test]
fn a_volume_too_thin_for_similarity_is_reconstructed_without_it() {
    let job = "[measurements]\nphantom = 'shepp-logan'\nsize = [4, 16, 16]\nnoise = { gaussian = 0.01 }\n[[operators]]\nkind = 'identity'\n\
               [solver]\nmethod = 'landweber'\n[stop]\niterations = 2\n[output]\nfolder = 'pictures'\n";
    let summary = json(&Folder::new().run(job, &[]));
    assert!(
        summary["after"]["psnr_db"].is_f64() && summary["after"]["ssim"].is_null(),
        "{summary}"
    );
}

#[test]
fn every_operator_and_start_runs_the_same_on_2_ranks() {
    let picture = "phantom = 'landscape'\nsize = [16, 16]";
    let slice = "phantom = 'shepp-logan'\nsize = 16\nnoise = [{ gaussian = 0.01 }]";
    let volume = "phantom = 'shepp-logan'\nsize = [8, 10, 12]\npoints = 1";
    for (image, operators, start) in [
        (picture, "kind = 'blur'\nkernel = 'motion'\nlength = 5\nangle = 30", "zeros"),
        (
            picture,
            "kind = 'blur'\nkernel = 'shake'\nsize = 7\nseed = [1, 2]\npadding = 'valid'",
            "adjoint",
        ),
        (
            picture,
            "kind = 'blur'\nkernel = 'uniform'\nsize = 3\npadding = 'reflect'",
            "pseudo-inverse",
        ),
        (picture, "kind = 'blur'\nkernel = 'file'\nfile = 'kernel.npy'", "adjoint"),
        (
            picture,
            "kind = 'downsampling'\nfactor = 2\nfilter = 'bicubic'\nphase = [0, 1]",
            "adjoint",
        ),
        (picture, "kind = 'downsampling'\nfactor = 2\nphase = 'all'", "adjoint"),
        (picture, "kind = 'inpainting'\nmissing = 0.3\nseed = 4", "adjoint"),
        (picture, "kind = 'inpainting'\nmask = 'mask.npy'", "adjoint"),
        (picture, "kind = 'decolorize'", "adjoint"),
        (picture, "kind = 'identity'\n[[operators]]\nkind = 'decolorize'", "adjoint"),
        (
            slice,
            "kind = 'parallel-beam'\nangles = 12\ndetector = 24\ncentre = 12.0\ngroups = 3",
            "fbp",
        ),
        (
            slice,
            "kind = 'parallel-beam'\nangles = [0, 30, 60, 90, 120, 150]\ndetector = 24",
            "adjoint",
        ),
        (
            slice,
            "kind = 'fan-beam'\nangles = 24\ndetector = 32\nsource-distance = 60\ndetector-distance = 20\n\
             spacing = 1.2\nnormalise = true",
            "fbp",
        ),
        (volume, "kind = 'parallel-beam'\nangles = 8\ndetector = [8, 18]\ngroups = 2", "fdk"),
        (
            volume,
            "kind = 'cone-beam'\nangles = 12\ndetector = [12, 20]\nsource-distance = 60\n\
             detector-distance = 20\npixel = [1.0, 1.0, 1.0]",
            "fdk",
        ),
    ] {
        let folder = Folder::new();
        folder.write("kernel.npy", npy(&[3, 5], |index| index as f32));
        folder.write("mask.npy", npy(&[16, 16], |index| f32::from(u8::from(index % 3 > 0))));
        let job = format!(
            "[measurements]\n{image}\n[[operators]]\n{operators}\n[start]\nkind = '{start}'\n\
             [solver]\nmethod = 'fista'\n[prior]\nkind = 'total-variation'\nweight = 0.001\n\
             [stop]\niterations = 4\n[output]\nfolder = 'out'\nfile = 'a.npy'\n"
        );
        let alone = folder.bits(&job, &[]);
        assert_eq!(folder.bits(&job, &["--ranks", "2"]), alone, "{operators}");
        assert!(folder.path("a.npy").exists() && folder.path("out/report.html").exists());
        assert!(
            folder.path("out/after.png").exists() && folder.path("out/difference.png").exists()
        );
    }
}

#[test]
fn results_are_where_their_images_are() {
    let folder = Folder::new();
    let volume = haloscope::Array::from_shape_fn(vec![1, 1, 5, 9, 8], |at| at[4] as f32);
    let affine = [[-1.0, 0.0, 0.0, 90.0], [0.0, 2.0, 0.0, -126.0], [0.0, 0.0, 3.0, -72.0]];
    let placed = io::WriteOptions {
        spacing: Some(vec![3.0, 2.0, 1.0]),
        affine: Some(affine),
        ..io::WriteOptions::default()
    };
    io::write(folder.path("brain.nii.gz"), &volume, &placed).expect("written");
    let found = |measurements: &str, operators: &str| {
        let job = format!(
            "[measurements]\n{measurements}\n[[operators]]\n{operators}\n[solver]\nmethod = 'landweber'\n\
             [stop]\niterations = 1\n[output]\nfile = 'out.nii.gz'\n"
        );
        json(&folder.run(&job, &[]));
        let image = io::read(folder.path("out.nii.gz"), &io::ReadOptions::default());
        let image = image.expect("an image");
        (image.spacing, image.affine)
    };
    let shrunk = [[-2.0, 0.0, 0.0, 89.5], [0.0, 4.0, 0.0, -125.0], [0.0, 0.0, 6.0, -70.5]];
    let beam = "kind = 'cone-beam'\nangles = 4\ndetector = [5, 9]\nsource-distance = 60\ndetector-distance = 20";
    let small = "kind = 'parallel-beam'\nangles = 4\ndetector = 9\npixel = [0.5, 0.25]";
    let phantom = "phantom = 'shepp-logan'\npoints = 1\nsize";
    for (measurements, operators, spacing, affine) in [
        ("image = 'brain.nii.gz'", "kind = 'identity'", vec![3.0, 2.0, 1.0], Some(affine)),
        ("image = 'brain.nii.gz'\nshrink = 2", beam, vec![6.0, 4.0, 2.0], Some(shrunk)),
        ("files = 'brain.nii.gz'", "kind = 'identity'", vec![3.0, 2.0, 1.0], Some(affine)),
        (&format!("{phantom} = [3, 4, 5]"), &format!("{beam}\npixel = 0.5"), vec![0.5; 3], None),
        (&format!("{phantom} = [6, 7]"), small, vec![0.5, 0.25], None),
        (&format!("{phantom} = [6, 7]"), "kind = 'identity'", vec![1.0, 1.0], None),
    ] {
        let expected = (Some(spacing), affine);
        assert_eq!(found(measurements, operators), expected, "{measurements}: {operators}");
    }
}

#[test]
fn a_mask_is_where_it_is_not_zero() {
    let folder = Folder::new();
    let job = "[measurements]\nphantom = 'landscape'\nsize = [16, 16]\n[[operators]]\nkind = 'inpainting'\n\
               mask = 'mask.npy'\n[solver]\nmethod = 'landweber'\n[stop]\niterations = 2\n\
               [output]\nfile = 'a.npy'\n";
    let bits = |present: f32| {
        let mask = npy(&[16, 16], |index| if index % 3 > 0 { present } else { 0.0 });
        folder.write("mask.npy", mask);
        folder.bits(job, &[])
    };
    let expected = bits(1.0);
    for present in [255.0, 0.25, -1.0] {
        assert_eq!(bits(present), expected, "{present}");
    }
    folder.write("mask.npy", npy(&[16, 16], |_| f32::NAN));
    let message = text(&folder.run(job, &[]).stderr);
    assert!(message.contains("the mask holds NaN"), "{message}");
}

/// Simulated data that are written to files and read again give the bits of the simulation.
#[test]
fn measurements_come_from_files_of_any_format() {
    let folder = Folder::new();
    // An identity leaves its input: its output is a file of measurements.
    let copy = |size: &str, file: &str| {
        let job = format!(
            "[measurements]\nphantom = 'landscape'\nsize = {size}\nnoise = {{ gaussian = 0.05 }}\n\
             [[operators]]\nkind = 'identity'\n[solver]\nmethod = 'cg'\n[stop]\niterations = 1\n\
             [output]\nfile = {file}\n"
        );
        json(&folder.run(&job, &[]));
    };
    copy("[12, 14]", "['a.npy', 'a.tif', 'a.fits', 'a.nii.gz', 'a.npz']");
    let job = |file: &str| {
        format!(
            "[measurements]\nfiles = '{file}'\n[[operators]]\nkind = 'blur'\nkernel = 'uniform'\nsize = 3\n\
             [solver]\nmethod = 'landweber'\n[stop]\niterations = 3\n[output]\nfile = 'out.npy'\n\
             [truth]\nfile = 'a.npy'\n"
        )
    };
    let bits = folder.bits(&job("a.npy"), &[]);
    for file in ["a.tif", "a.fits", "a.npz"] {
        assert_eq!(folder.bits(&job(file), &["--ranks", "2"]), bits, "{file}");
    }
    let two = job("a.npy").replace("'a.npy'\n[[", "['a.npy', 'a.tif']\n[[");
    let two = two.replace("size = 3\n", "size = 3\n[[operators]]\nkind = 'identity'\n");
    assert_eq!(folder.bits(&two, &[]), folder.bits(&two, &["--ranks", "3"]));
}

#[test]
fn a_sinogram_in_a_file_is_split_into_groups() {
    let folder = Folder::new();
    let disk = |index: usize| {
        let bin = (index % 24) as f32 - 11.5;
        (2.0 * (36.0 - bin * bin).max(0.0).sqrt()) / 12.0
    };
    folder.write("sinogram.npy", npy(&[20, 24], disk));
    let degrees = npy(&[20], |index| index as f32 * 9.0);
    folder.write("angles.npy", degrees);
    let job = |angles: &str| {
        format!(
            "[measurements]\nfiles = 'sinogram.npy'\n[[operators]]\nkind = 'parallel-beam'\n\
             angles = {angles}\ngroups = 3\n[start]\nkind = 'fbp'\nwindow = 'hann'\n\
             [solver]\nmethod = 'cg'\n[stop]\niterations = 5\n[output]\nfile = 'disk.npy'\n\
             folder = 'pictures'\n"
        )
    };
    let bits = folder.bits(&job("20"), &[]);
    assert_eq!(folder.bits(&job("20"), &["--ranks", "2"]), bits);
    let degrees: Vec<String> = (0..20).map(|index| (index * 9).to_string()).collect();
    folder.write("angles.csv", degrees.join(", "));
    folder.write("angles.txt", format!("# degrees\n{}\n", degrees.join("\n")));
    for angles in ["'angles.csv'", "'angles.txt'"] {
        assert_eq!(folder.bits(&job(angles), &[]), bits, "{angles}");
    }
    let summary = json(&folder.run(&job("'angles.npy'"), &[]));
    assert_eq!(summary["shape"], serde_json::json!([1, 24, 24]));
    // Without a truth there is no difference to show.
    assert!(!folder.path("pictures/difference.png").exists());
    let bytes = std::fs::read(folder.path("disk.npy")).expect("the image");
    let value = |row: usize, column: usize| {
        let at = bytes.len() - 4 * (24 * 24 - row * 24 - column);
        f32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
    };
    // The integrals are those of a disk of radius 6 and density 1/12.
    assert!((value(11, 11) - 1.0 / 12.0).abs() < 0.01, "{}", value(11, 11));
    assert!(value(2, 2).abs() < 0.01, "{}", value(2, 2));
}

#[test]
fn checkpoints_of_earlier_runs_and_other_jobs_are_not_overwritten() {
    let folder = Folder::new();
    let sections = PRIMAL_DUAL.to_owned() + "\n[checkpoint]\niterations = 2\n";
    let job = deblurring(4, &sections);
    let bits = folder.bits(&job, &[]);
    // Its time is up before it is done.
    folder.bits(&job.replace("[stop]", "[stop]\nminutes = 1e-9"), &["--start-over"]);
    assert_eq!(folder.checkpoints().len(), 1);
    let again = folder.run(&job, &[]);
    assert_eq!(again.status.code(), Some(2));
    let message = text(&again.stderr);
    assert!(message.contains("--resume") && message.contains("--start-over"), "{message}");
    let other = job.replace("weight = 0.002", "weight = 0.003");
    let refused = folder.run(&other, &["--resume"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("another job"), "{}", text(&refused.stderr));
    // Comments and layout are no other job.
    assert_eq!(folder.bits(&format!("# a note\n{job}"), &["--resume"]), bits);
    assert_ne!(folder.bits(&other, &["--start-over"]), bits);
    assert_ne!(folder.bits(&other, &["--resume"]), bits);
}

#[test]
fn a_damaged_checkpoint_is_passed_over_for_the_one_before_it() {
    let folder = Folder::new();
    let sections = PRIMAL_DUAL.to_owned() + "\n[checkpoint]\niterations = 2\n";
    let bits = folder.bits(&deblurring(6, &sections), &[]);
    let latest = folder.checkpoints().pop().expect("a checkpoint");
    let mut bytes = std::fs::read(&latest).expect("it is there");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&latest, bytes).expect("it is damaged");
    let resumed = folder.run(&deblurring(6, &sections), &["--resume"]);
    assert!(text(&resumed.stderr).contains("resuming from the one before it, at iteration 4"));
    assert_eq!(json(&resumed)["bits"], bits);
}

#[test]
fn every_problem_of_init_runs_as_it_is_written() {
    for problem in
        ["deblur", "tomography-2d", "tomography-3d", "super-resolution", "denoise", "inpainting"]
    {
        let folder = Folder::new();
        let path = folder.name("try.toml");
        let init = ["init", problem, &path, "--size", "24"];
        assert!(haloscope(&init).status.success(), "{problem}");
        let written = std::fs::read_to_string(&path).expect("it is there");
        let again = haloscope(&init);
        assert_eq!(again.status.code(), Some(2));
        assert!(text(&again.stderr).contains("--force"));
        assert!(haloscope(&[&init[..], &["--force"]].concat()).status.success());
        assert_eq!(std::fs::read_to_string(&path).expect("it is there"), written);

        let check = haloscope(&["check", &path, "--ranks", "2"]);
        let plan = text(&check.stdout);
        assert!(check.status.success(), "{problem}: {}", text(&check.stderr));
        assert!(plan.contains("is valid") && plan.contains("GB are available"), "{plan}");
        assert!(!folder.path("try").exists(), "a check writes nothing");

        let summary = json(&haloscope(&["reconstruct", &path, "--json", "--ranks", "2"]));
        let decibels = |when: &str| summary[when]["psnr_db"].as_f64().expect("a number");
        assert!(decibels("after") > decibels("before") + 0.5, "{summary}");
        assert!(folder.path("try/report.html").exists());
        let demo = haloscope(&[
            "demo",
            "--problem",
            problem,
            "--size",
            "24",
            "--json",
            "--out",
            &folder.name("demo"),
        ]);
        assert_eq!(json(&demo)["bits"], summary["bits"], "{problem}");
    }
}

#[test]
fn quiet_says_nothing_and_progress_is_no_part_of_the_output() {
    let folder = Folder::new();
    let job = folder.write("job.toml", deblurring(3, PRIMAL_DUAL));
    let quiet = haloscope(&["reconstruct", &job, "--quiet"]);
    assert!(quiet.status.success() && quiet.stdout.is_empty() && quiet.stderr.is_empty());
    let output = haloscope(&["reconstruct", &job]);
    let summary = text(&output.stdout);
    assert!(summary.contains("PSNR") && summary.contains("bits"), "{summary}");
    assert!(!summary.contains('\u{1b}') && !text(&output.stderr).contains('\u{1b}'));
}
