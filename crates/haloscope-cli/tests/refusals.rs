//! Broken job files and data files: each is refused with its line, what is wrong and what would be accepted.

mod jobs;

use jobs::{Folder, deblurring, haloscope, identity_network, npy, text};

/// A job that is good, of which each case breaks a part.
fn good() -> String {
    deblurring(
        3,
        "[prior]\nkind = 'total-variation'\nweight = 0.002\n\n[solver]\nmethod = 'primal-dual'\nstep = 'auto'\n",
    )
}

/// What is replaced in the good job by what, and the words that the message must have.
const BROKEN_JOBS: &[(&str, &str, &str, &[&str])] = &[
    ("no TOML", "[stop]", "[stop", &["job.toml:14:"]),
    ("a key twice", "seed = 3", "seed = 3\nseed = 4", &["job.toml:7:", "duplicate"]),
    (
        "a misspelt key",
        "iterations = 3",
        "itertions = 3",
        &["job.toml:15: stop.itertions", "did you mean `iterations`?"],
    ),
    (
        "a misspelt section",
        "[solver]",
        "[slover]",
        &["job.toml:24: slover: the section is unknown", "did you mean `solver`?"],
    ),
    (
        "an unknown section",
        "[output]",
        "[outputs]\nfile = 'a.npy'\n[output]",
        &["job.toml:17: outputs", "did you mean `output`?"],
    ),
    (
        "a misspelt section that need not be there",
        "[prior]",
        "[priorr]",
        &["job.toml:20: priorr", "did you mean `prior`?"],
    ),
    (
        "a key of another method",
        "step = 'auto'",
        "relaxation = 1",
        &["solver.relaxation", "method and step"],
    ),
    (
        "an unknown method",
        "'primal-dual'",
        "'primal-duel'",
        &["`primal-duel` is unknown (did you mean `primal-dual`?)", "landweber"],
    ),
    (
        "an unknown operator",
        "kind = \"blur\"",
        "kind = \"blurr\"",
        &["job.toml:9: operators[0].kind", "did you mean `blur`?"],
    ),
    (
        "an unknown kernel",
        "\"gaussian\"\nsigma",
        "\"gauss\"\nsigma",
        &["operators[0].kernel", "did you mean `gaussian`?"],
    ),
    (
        "an unknown prior",
        "'total-variation'",
        "'total_variation'",
        &["did you mean `total-variation`?"],
    ),
    (
        "an unknown phantom",
        "\"landscape\"",
        "\"lansdcape\"",
        &["did you mean `landscape`?", "shepp-logan"],
    ),
    (
        "an unknown padding",
        "angle = [0, 60, 120]",
        "padding = 'mirror'",
        &["operators[0].padding", "reflect"],
    ),
    (
        "text for a number",
        "weight = 0.002",
        "weight = 'large'",
        &["prior.weight: 'large' is given; a number is expected"],
    ),
    (
        "a number for text",
        "phantom = \"landscape\"",
        "phantom = 3",
        &["measurements.phantom: 3 is given"],
    ),
    (
        "a fraction for a count",
        "iterations = 3",
        "iterations = 3.5",
        &["stop.iterations: 3.5 is given; a whole number"],
    ),
    ("no iterations", "iterations = 3", "iterations = 0", &["0 is given; 1 or more is expected"]),
    (
        "a negative weight",
        "weight = 0.002",
        "weight = -1",
        &["prior.weight: -1 is given; a number that is not negative"],
    ),
    (
        "a step of zero",
        "step = 'auto'",
        "step = 0",
        &["solver.step: 0 is given; a number above 0, or \"auto\""],
    ),
    ("a step that is a word", "step = 'auto'", "step = 'best'", &["solver.step: 'best' is given"]),
    ("a prior without its weight", "weight = 0.002", "", &["prior.weight: it is missing"]),
    (
        "no measurements",
        "phantom = \"landscape\"\nsize = [24, 20]\nnoise = { gaussian = 0.01 }\nseed = 3",
        "",
        &["job.toml:2: measurements", "one of `files`"],
    ),
    (
        "a slip in what is measured",
        "phantom = ",
        "phantm = ",
        &["none is given", "(did you mean `phantom`?)"],
    ),
    (
        "two kinds of measurements",
        "phantom = ",
        "files = 'a.npy'\nphantom = ",
        &["files and phantom is given"],
    ),
    ("no operators", "[[operators]]", "[other]", &["other: the section is unknown; there are"]),
    ("operators as a table", "[[operators]]", "[operators]", &["[[operators]]", "is expected"]),
    (
        "a phantom of one side too many",
        "[24, 20]",
        "[24, 20, 4]",
        &["measurements.size: [24, 20, 4] is given"],
    ),
    (
        "a phantom that needs more memory than there is",
        "[24, 20]",
        "[1000000, 1000000]",
        &["GB are available"],
    ),
    (
        "a sigma too many",
        "[1.5, 0.7]",
        "[1.5, 0.7, 1]",
        &["operators[0].kernel: 3 values for the sides"],
    ),
    ("a sigma of zero", "[1.5, 0.7]", "[1.5, 0.0]", &["operators[0].kernel"]),
    (
        "noise of a kind too many",
        "gaussian = 0.01 }",
        "gaussian = 0.01, uniform = 1 }",
        &["goes with no other kind"],
    ),
    (
        "as many noises as no operators",
        "{ gaussian = 0.01 }",
        "[{ gaussian = 0.01 }, { gaussian = 0.02 }]",
        &["2 kinds for 3 operators"],
    ),
    (
        "primal-dual without total variation",
        "kind = 'total-variation'\nweight = 0.002",
        "kind = 'none'",
        &["job.toml:23: solver", "takes total variation"],
    ),
    (
        "a prior for conjugate gradients",
        "'primal-dual'\nstep = 'auto'",
        "'cg'",
        &["cg takes no prior"],
    ),
    (
        "hqs without a schedule",
        "'primal-dual'\nstep = 'auto'",
        "'hqs'",
        &["solver.levels: it is missing"],
    ),
    (
        "a schedule of zeros",
        "'primal-dual'\nstep = 'auto'",
        "'hqs'\nlevels = [0.1, 0]\nnoise = 1",
        &["solver.levels", "all must be above 0"],
    ),
    (
        "admm with another fidelity",
        "'primal-dual'\nstep = 'auto'",
        "'admm'\n[fidelity]\nkind = 'l1'",
        &["admm does not take the fidelity l1"],
    ),
    (
        "no step for another fidelity",
        "'primal-dual'\nstep = 'auto'",
        "'pgd'\n[fidelity]\nkind = 'l1'",
        &["`step` is missing"],
    ),
    (
        "a rule that the method does not know",
        "'primal-dual'\nstep = 'auto'",
        "'admm'\n[stop]\ndiscrepancy = 1",
        &["duplicate"],
    ),
    (
        "a clamp from high to low",
        "weight = 0.002",
        "weight = 0.002\nclamp = [1, 0]",
        &["prior.clamp: [1.0, 0.0] is given"],
    ),
    ("an output that says nothing", "folder = \"pictures\"", "", &["neither `file`"]),
    (
        "an output of no format",
        "folder = \"pictures\"",
        "file = 'image.doc'",
        &["output.file", "image.doc", ".npy"],
    ),
    (
        "an output in no folder",
        "folder = \"pictures\"",
        "file = 'none/image.npy'",
        &["there is no folder"],
    ),
    (
        "a start that needs a scan",
        "[solver]",
        "[start]\nkind = 'fbp'\n[solver]",
        &["start", "needs a scan"],
    ),
    (
        "a start of another shape",
        "[solver]",
        "[start]\nkind = 'file'\nfile = 'small.npy'\n[solver]",
        &["has shape [1, 1, 4, 4]"],
    ),
    (
        "a truth beside the one that is simulated",
        "[solver]",
        "[truth]\nfile = 'small.npy'\n[solver]",
        &["truth: the image that is simulated is the truth"],
    ),
    (
        "an image of another size",
        "[solver]",
        "[image]\nsize = [9, 9]\n[solver]",
        &["job.toml:", "leave [image] out"],
    ),
    (
        "a network that is not there",
        "kind = 'total-variation'\nweight = 0.002\n\n[solver]\nmethod = 'primal-dual'",
        "kind = 'network'\nmodel = 'none.pth'\n[solver]\nmethod = 'pgd'",
        &["prior.model", "none.pth"],
    ),
    (
        "a network that is none",
        "kind = 'total-variation'\nweight = 0.002\n\n[solver]\nmethod = 'primal-dual'",
        "kind = 'network'\nmodel = 'small.npy'\n[solver]\nmethod = 'pgd'",
        &["prior.model", "small.npy"],
    ),
    (
        "a mask of another size",
        "kind = \"blur\"\nkernel = \"gaussian\"\nsigma = [1.5, 0.7]\nangle = [0, 60, 120]",
        "kind = 'inpainting'\nmask = 'small.npy'",
        &["job.toml:8: operators[0]", "mask"],
    ),
    (
        "a mask of everything",
        "kind = \"blur\"\nkernel = \"gaussian\"\nsigma = [1.5, 0.7]\nangle = [0, 60, 120]",
        "kind = 'inpainting'\nmissing = 1",
        &["operators[0].missing", "below 1"],
    ),
    (
        "a fan without its source",
        "kind = \"blur\"\nkernel = \"gaussian\"\nsigma = [1.5, 0.7]\nangle = [0, 60, 120]",
        "kind = 'fan-beam'\nangles = 9",
        &["operators[0].source-distance: it is missing"],
    ),
    (
        "more groups than views",
        "kind = \"blur\"\nkernel = \"gaussian\"\nsigma = [1.5, 0.7]\nangle = [0, 60, 120]",
        "kind = 'parallel-beam'\nangles = 3\ndetector = 30",
        &["4 groups of 3 views"],
    ),
    (
        "a cone around a picture",
        "kind = \"blur\"\nkernel = \"gaussian\"\nsigma = [1.5, 0.7]\nangle = [0, 60, 120]",
        "kind = 'cone-beam'\nangles = 9\ndetector = [9, 9]\nsource-distance = 50\ndetector-distance = 5",
        &["cone beams take 3 sides"],
    ),
    (
        "a variable that is not set",
        "phantom = \"landscape\"\nsize = [24, 20]",
        "image = '$HALOSCOPE_NOWHERE/a.png'",
        &["HALOSCOPE_NOWHERE is not set"],
    ),
    (
        "a factor that does not fit",
        "kind = \"blur\"\nkernel = \"gaussian\"\nsigma = [1.5, 0.7]\nangle = [0, 60, 120]",
        "kind = 'downsampling'\nfactor = 0",
        &["operators[0]", "the factor is 0"],
    ),
    (
        "a factor of more phases than there can be",
        "kind = \"blur\"\nkernel = \"gaussian\"\nsigma = [1.5, 0.7]\nangle = [0, 60, 120]",
        "kind = 'downsampling'\nfactor = 4000000000\nphase = 'all'",
        &["operators[0].phase", "up to a factor of 64"],
    ),
    (
        "a kernel that no machine can hold",
        "kind = \"blur\"\nkernel = \"gaussian\"\nsigma = [1.5, 0.7]\nangle = [0, 60, 120]",
        "kind = 'blur'\nkernel = 'uniform'\nsize = 9000000000",
        &["operators[0]", "at most 1e8 samples"],
    ),
    (
        "more views than any scanner takes",
        "kind = \"blur\"\nkernel = \"gaussian\"\nsigma = [1.5, 0.7]\nangle = [0, 60, 120]",
        "kind = 'parallel-beam'\nangles = 1000000000000\ndetector = 30",
        &["operators[0]", "at most 1000000 are possible"],
    ),
    (
        "a detector that no machine can hold",
        "kind = \"blur\"\nkernel = \"gaussian\"\nsigma = [1.5, 0.7]\nangle = [0, 60, 120]",
        "kind = 'parallel-beam'\nangles = 9\ndetector = 9000000000000000000",
        &["7.378697629483821e19 measured values; at most 1e13"],
    ),
    (
        "a schedule of more levels than there can be",
        "'primal-dual'\nstep = 'auto'",
        "'hqs'\nlevels = [0.2, 0.05]\nnoise = 0.01\nschedule-iterations = 1000000000000000",
        &["at most 1000000 iterations"],
    ),
    (
        "a folder that is a file",
        "folder = \"pictures\"",
        "folder = 'small.npy'",
        &["output.folder", "small.npy is a file"],
    ),
];

#[test]
fn broken_jobs_are_refused_with_line_and_remedy() {
    let folder = Folder::new();
    folder.write("small.npy", npy(&[4, 4], |_| 1.0));
    for (case, from, to, words) in BROKEN_JOBS {
        let job = good().replacen(from, to, 1);
        assert_ne!(job, good(), "{case}: nothing is broken");
        refused(&folder, case, &job, words);
    }
}

/// Files of measurements, and the words that the message must have.
#[test]
fn broken_data_are_refused_by_name() {
    let folder = Folder::new();
    let valid = npy(&[8, 8], |index| index as f32);
    folder.write("good.npy", &valid);
    folder.write("cut.npy", &valid[..valid.len() - 9]);
    folder.write("empty.npy", []);
    folder.write("text.png", "not a picture");
    folder.write("cut.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR");
    folder.write("small.npy", npy(&[4, 4], |_| 1.0));
    folder.write("line.npy", npy(&[64], |_| 1.0));
    folder.write("nan.npy", npy(&[8, 8], |index| if index == 9 { f32::NAN } else { 0.0 }));
    folder.write("huge.npy", huge());
    folder.write("folder.txt", "");
    folder.write("words.txt", "0\n1\ntwo, 3\n");
    std::fs::create_dir(folder.path("nothing.zarr")).expect("a folder");
    folder.write("identity.safetensors", identity_network());
    let job = |files: &str, operators: &str| {
        format!(
            "[measurements]\nfiles = {files}\n[[operators]]\n{operators}\n[solver]\nmethod = 'landweber'\n\
             [stop]\niterations = 2\n[output]\nfile = 'out.npy'\n"
        )
    };
    let identity = "kind = 'identity'";
    let scan = "kind = 'parallel-beam'\ngroups = 2";
    for (files, operators, words) in [
        (
            "'none.npy'",
            identity,
            &["job.toml:2: measurements.files", "none.npy", "No such file"][..],
        ),
        ("'cut.npy'", identity, &["cut.npy"]),
        ("'empty.npy'", identity, &["empty.npy", "not a PNG"]),
        ("'text.png'", identity, &["text.png", "not a PNG"]),
        ("'cut.png'", identity, &["cut.png"]),
        ("'nan.npy'", identity, &["nan.npy: element 9", "not a finite number"]),
        ("'line.npy'", identity, &["line.npy", "[64]"]),
        ("'huge.npy'", identity, &["huge.npy"]),
        (
            "'good.npy'\naxes = 'channel-first'",
            identity,
            &["good.npy", "[8, 8]", "the axes channel-first are (channel, height, width)"],
        ),
        ("'nothing.zarr'", identity, &["nothing.zarr", "zarr.json"]),
        ("'identity.safetensors'", identity, &["identity.safetensors", "not a PNG"]),
        ("[]", identity, &["an empty list"]),
        ("['good.npy', 'good.npy']", identity, &["2 files for 1 operator;"]),
        ("'good.npy'", "kind = 'identity'\n[[operators]]\nkind = 'identity'", &["1 file for"]),
        (
            "['good.npy', 'small.npy']",
            "kind = 'identity'\n[[operators]]\nkind = 'identity'",
            &["job.toml:5: operators[1]", "operator 1 (identity) has shape [1, 1, 4, 4]"],
        ),
        ("'good.npy'", scan, &["`angles` is missing"]),
        (
            "'good.npy'",
            "kind = 'parallel-beam'\nangles = 9",
            &["9 angles for measurements of 8 views"],
        ),
        (
            "'good.npy'",
            "kind = 'parallel-beam'\nangles = 'none.npy'",
            &["none.npy", "No such file"],
        ),
        (
            "'good.npy'",
            "kind = 'parallel-beam'\nangles = 'none.txt'",
            &["none.txt", "No such file"],
        ),
        (
            "'good.npy'",
            "kind = 'parallel-beam'\nangles = 'words.txt'",
            &["operators[0]", "words.txt:3: \"two\" is not a number"],
        ),
        (
            "'good.npy'",
            "kind = 'parallel-beam'\nangles = 8\ndetector = 9",
            &["operators[0]", "[1, 1, 2, 9]"],
        ),
        (
            "'good.npy'",
            "kind = 'blur'\nkernel = 'file'\nfile = 'none.npy'",
            &["operators[0].kernel", "none.npy"],
        ),
        (
            "'good.npy'",
            "kind = 'identity'\n[truth]\nfile = 'small.npy'",
            &["the truth has shape [1, 1, 4, 4]"],
        ),
        (
            "'good.npy'",
            "kind = 'blur'\nkernel = 'uniform'\nsize = 3\npadding = 'valid'",
            &["[image] is missing"],
        ),
        (
            "'good.npy'",
            "kind = 'parallel-beam'\nangles = 8\n[image]\nsize = [4294967296, 4294967296]",
            &["GB are available"],
        ),
    ] {
        refused(&folder, files, &job(files, operators), words);
    }
}

/// What would fail in the end, or in the middle, is refused at the beginning.
#[test]
fn jobs_that_cannot_end_well_do_not_begin() {
    let folder = Folder::new();
    folder.write("good.npy", npy(&[8, 8], |index| index as f32 / 64.0));
    folder.write("small.npy", npy(&[4, 4], |_| 1.0));
    folder.write("negative.npy", npy(&[8, 8], |index| index as f32 - 1.0));
    let files = "files = 'good.npy'";
    let landweber = "[solver]\nmethod = 'landweber'";
    let network = "[prior]\nkind = 'network'\nmodel = 'builtin:gray'";
    for (measurements, sections, output, words) in [
        (
            files,
            landweber.to_owned(),
            "file = ['out.npy', './good.npy']",
            &["output", "good.npy would be written over", "which the job reads"][..],
        ),
        (
            "phantom = 'shepp-logan'\nsize = [8, 8, 8]",
            landweber.to_owned(),
            "file = 'out.png'",
            &["output", "out.png is for one image of 1 or 3 channels", "[1, 1, 8, 8, 8]"],
        ),
        (
            files,
            format!("{network}\nsigma = 0.3\n[solver]\nmethod = 'pgd'"),
            "file = 'out.npy'",
            &["prior.sigma", "noise level", "0 to 0.294"],
        ),
        (
            files,
            format!("{network}\n[solver]\nmethod = 'hqs'\nnoise = 0.1\nlevels = [0.05, 0.5]"),
            "file = 'out.npy'",
            &["solver", "noise level", "0 to 0.294"],
        ),
        (
            "files = 'negative.npy'",
            "[solver]\nmethod = 'pgd'\nstep = 0.1\n[fidelity]\nkind = 'poisson'".to_owned(),
            "file = 'out.npy'",
            &["operators[0]", "element 0 of the data is -1"],
        ),
        (
            files,
            format!("{landweber}\n[start]\nkind = 'file'\nfile = 'small.npy'"),
            "file = 'out.npy'",
            &["small.npy: the image to start from has shape [1, 1, 4, 4]"],
        ),
        (
            "phantom = 'shepp-logan'\nsize = 8\nnoise = 0.1",
            landweber.to_owned(),
            "file = 'out.npy'",
            &["measurements.noise", "{ gaussian = 0.1 }"],
        ),
    ] {
        let job = format!(
            "[measurements]\n{measurements}\n[[operators]]\nkind = 'identity'\n{sections}\n[stop]\niterations = 2\n\
             [output]\n{output}\n"
        );
        refused(&folder, output, &job, words);
    }
}

/// The header of an array that no machine can hold.
fn huge() -> Vec<u8> {
    let mut bytes = npy(&[1], |_| 0.0);
    let header = String::from_utf8_lossy(&bytes[10..bytes.len() - 4])
        .replace("(1,)", "(99999999, 99999999)");
    let header = format!("{}\n", header.trim_end());
    bytes.truncate(8);
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes
}

/// Both commands refuse it, alone and on ranks, with one line that has these words.
fn refused(folder: &Folder, case: &str, job: &str, words: &[&str]) {
    let path = folder.write("job.toml", job);
    for arguments in
        [&["check", &path][..], &["reconstruct", &path], &["reconstruct", &path, "--ranks", "2"]]
    {
        let output = haloscope(arguments);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{case}: {arguments:?}: {message}");
        for word in words {
            assert!(message.contains(word), "{case}: {arguments:?}: {word} is not in: {message}");
        }
        let lines = message.lines().filter(|line| !line.contains("has no operators ("));
        assert_eq!(lines.count(), 1, "{case}: {message}");
        assert!(output.stdout.is_empty() && !folder.path("out.npy").exists(), "{case}");
    }
}

#[cfg(feature = "builtin")]
#[test]
fn a_network_for_colours_says_which_one_takes_gray() {
    let folder = Folder::new();
    let job = |phantom: &str, size: &str| {
        format!(
            "[measurements]\nphantom = '{phantom}'\nsize = {size}\n[[operators]]\nkind = 'identity'\n[prior]\n\
             kind = 'network'\nmodel = 'builtin:color'\n[solver]\nmethod = 'pgd'\n[stop]\niterations = 1\n[output]\n\
             file = 'out.npy'\n"
        )
    };
    for size in ["32", "[8, 32, 32]"] {
        let output = folder.run(&job("shepp-logan", size), &[]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("takes images of 3 channels and 2 sides"), "{said}");
        assert!(said.contains("model = \"builtin:gray\" takes this one"), "{said}");
        // And so it does.
        let gray = job("shepp-logan", size).replace("builtin:color", "builtin:gray");
        let output = folder.run(&gray, &[]);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    assert!(folder.run(&job("landscape", "32"), &[]).status.success());
}
