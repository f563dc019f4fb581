//! Data and folders that `check` and `reconstruct` have to doubt before anything is computed.

mod jobs;

use haloscope::Array;
use haloscope::io::{self, WriteOptions};
use jobs::{Folder, haloscope, text};

/// What `check` and `reconstruct` say of a job, and whether both succeed.
fn said(folder: &Folder, job: &str) -> ([String; 2], bool) {
    let name = folder.write("job.toml", job);
    let outputs = [haloscope(&["check", &name]), haloscope(&["reconstruct", &name])];
    let succeed = outputs.iter().all(|output| output.status.success());
    let words = outputs.map(|output| text(&output.stdout) + &text(&output.stderr));
    (words, succeed)
}

fn write(folder: &Folder, name: &str, array: &Array) {
    io::write(folder.path(name), array, &WriteOptions::default()).expect("a file");
}

#[test]
fn photon_counts_are_not_taken_for_line_integrals_without_a_word() {
    // A disk in the middle of the detector, from every side.
    let integrals = Array::from_shape_fn(vec![1, 1, 24, 48], |at| {
        let away = (at[3] as f32 - 23.5) / 14.0;
        1.5 * (1.0 - away * away).max(0.0).sqrt()
    });
    let folder = Folder::new();
    write(&folder, "counts.npy", &integrals.mapv(|value| 5000.0 * (-value).exp()));
    write(&folder, "integrals.npy", &integrals);
    let volume = integrals.index_axis(ndarray::Axis(0), 0).index_axis_move(ndarray::Axis(0), 0);
    let rows = volume.view().insert_axis(ndarray::Axis(1));
    let rows = ndarray::concatenate(ndarray::Axis(1), &[rows.view(), rows.view()]).expect("rows");
    write(&folder, "rows.npy", &rows.mapv(|value| (-value).exp()));
    let job = |keys: &str| {
        format!(
            "[measurements]\n{keys}\n[[operators]]\nkind = 'parallel-beam'\nangles = 24\n[solver]\nmethod = 'fbp'\n\
             [output]\nfile = 'result.npy'\n"
        )
    };
    for (keys, is_doubted) in [
        ("files = 'counts.npy'", true),
        ("files = 'rows.npy'", true),
        ("files = 'counts.npy'\nwhite = 5000\nlogarithm = true", false),
        ("files = 'integrals.npy'", false),
    ] {
        let (words, succeed) = said(&folder, &job(keys));
        assert!(succeed, "{words:?}");
        for words in words {
            assert_eq!(words.contains("look like intensities"), is_doubted, "{keys}: {words}");
        }
    }
}

#[test]
fn a_mask_by_which_nothing_is_there_may_be_inverted() {
    let present = |at: &ndarray::IxDyn| !(at[2] * 31 + at[3] * 17).is_multiple_of(3);
    let image = |at: ndarray::IxDyn| if present(&at) { 0.2 + 0.02 * at[3] as f32 } else { 0.0 };
    let folder = Folder::new();
    let shape = vec![1, 1, 24, 24];
    write(&folder, "damaged.png", &Array::from_shape_fn(shape.clone(), image));
    let mask = Array::from_shape_fn(shape, |at| f32::from(u8::from(present(&at))));
    write(&folder, "mask.png", &mask);
    write(&folder, "inverted.png", &mask.mapv(|value| 1.0 - value));
    for (name, is_doubted) in [("mask.png", false), ("inverted.png", true)] {
        let (words, succeed) = said(
            &folder,
            &format!(
                "[measurements]\nfiles = 'damaged.png'\n[[operators]]\nkind = 'inpainting'\nmask = '{name}'\n[prior]\nkind = \
                 'total-variation'\nweight = 0.01\n[solver]\nmethod = 'fista'\n[stop]\niterations = 2\n[output]\nfile = \
                 'result.png'\n"
            ),
        );
        assert!(succeed, "{words:?}");
        for words in words {
            assert_eq!(words.contains("may be inverted"), is_doubted, "{name}: {words}");
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_folder_that_cannot_be_written_is_known_before_anything_is_computed() {
    let folder = Folder::new();
    let job = |output: &str| {
        format!(
            "[measurements]\nphantom = 'landscape'\nsize = 16\n[[operators]]\nkind = 'identity'\n[solver]\nmethod = \
             'cg'\n[stop]\niterations = 2\n[output]\n{output}\n"
        )
    };
    // Nobody makes files there, whoever runs the tests.
    for output in ["file = '/proc/result.npy'", "folder = '/proc/results/new'"] {
        let name = folder.write("job.toml", job(output));
        for what in ["check", "reconstruct"] {
            let refused = haloscope(&[what, &name]);
            let words = text(&refused.stderr);
            assert_eq!(refused.status.code(), Some(2), "{what}: {words}");
            assert!(words.contains("nothing can be written in /proc"), "{what}: {words}");
        }
    }
    let (words, succeed) = said(&folder, &job("file = 'result.npy'\nfolder = 'new/pictures'"));
    assert!(succeed, "{words:?}");
    let left = std::fs::read_dir(folder.path("")).expect("the folder").flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with(".haloscope")), "{left:?}");
}
